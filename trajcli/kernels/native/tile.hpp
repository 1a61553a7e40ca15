// Tiles: some rows of some trajectories, small enough for the caches, on their way from the inputs
// through a kernel to the outputs. Included by each level*.cpp after vector.hpp.
//
// A kernel sees rows of doubles whose columns are the lanes of vectors: the dofs of a trajectory,
// or, where they fill no more than half a vector, those of a group of trajectories. Vectors may
// read beyond a row, and where rows are written in order, write beyond it.

namespace LEVEL {

constexpr Int LEAST_ROWS = 8;     // of a tile of a long trajectory
constexpr Int MOST_COLUMNS = 1024;

constexpr std::align_val_t ALIGNED{LINE};

template <class T>
class Buffer {
public:
    // Room for vectors that begin at the last element.
    explicit Buffer(Int count) : at(static_cast<T*>(::operator new((count + 2 * W) * sizeof(T), ALIGNED))) {
        std::memset(static_cast<void*>(at), 0, (count + 2 * W) * sizeof(T));
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { ::operator delete(at, ALIGNED); }
    T* const at;
};

// Trajectories [batch, batch + count), dofs [column, column + columns), rows [row, row + rows).
struct Place {
    Int batch, count, column, columns, row, rows;
};

// How a job is cut into items: groups of trajectories, or blocks of the dofs of one.
struct Split {
    Int group;    // trajectories side by side in a vector
    Int blocks;   // of dofs
    Int columns;  // of a block
    Int lanes;    // columns of the rows that kernels see
    Int groups;

    explicit Split(const Job& job) {
        group = job.dofs * 2 <= W ? W / job.dofs : 1;
        blocks = (job.dofs + MOST_COLUMNS - 1) / MOST_COLUMNS;
        columns = (job.dofs + blocks - 1) / blocks;
        lanes = group > 1 ? W : columns;
        groups = (job.batch + group - 1) / group;
    }

    Int items() const { return groups * blocks; }

    // Rows of a tile of one group.
    Int tile_rows(const Job& job) const {
        return std::max(job.tile / lanes, LEAST_ROWS);
    }

    // Groups whose ``rows`` fit a tile.
    Int tile_groups(const Job& job, Int rows) const {
        return blocks > 1 ? 1 : std::max(tile_rows(job) / std::max<Int>(rows, 1), Int(1));
    }
};

// -- inputs ---------------------------------------------------------------------------------

inline void check_finite(Run& run, const double* values, Int count) {
    if (!run.job.finite) return;
    Mask wrong = {};
    Int i = 0;
    for (; i + W <= count; i += W) {
        const Vec v = load(values + i);
        wrong |= (v - v) != Vec{};
    }
    bool found = false;
    for (int k = 0; k < W; k++) found |= wrong[k] != 0;
    for (; i < count; i++) found |= values[i] - values[i] != 0.0;
    if (found) run.status = NOT_FINITE;
}

inline const char* element(const Array& array, Int batch, Int row, Int column) {
    return static_cast<const char*>(array.data) + batch * array.stride[0] + row * array.stride[1] +
           column * array.stride[2];
}

// Rows of an array as doubles, one after another.
inline void read(Run& run, const Array& array, Int batch, Int row, Int rows, Int column,
                 Int columns, double* to) {
    if (rows <= 0) return;
    const char* from = element(array, batch, row, column);
    const Int size = array.type == 0 ? 4 : 8, count = rows * columns;
    if (array.type > 1 || (columns > 1 && array.stride[2] != size)) {
        convert(array, from, rows, columns, to);
    } else {
        const bool whole = rows == 1 || array.stride[1] == columns * size;
        const Int pieces = whole ? 1 : rows, length = whole ? count : columns;
        for (Int t = 0; t < pieces; t++) {
            const char* piece = from + t * array.stride[1];
            double* place = to + t * columns;
            if (size == 8) {
                std::memcpy(place, piece, length * 8);
                continue;
            }
            Int i = 0;
            for (; i + W <= length; i += W) store(place + i, load_floats(piece + 4 * i));
            for (float x; i < length; i++) {
                std::memcpy(&x, piece + 4 * i, 4);
                place[i] = x;
            }
        }
    }
    check_finite(run, to, count);
}

// The same of ``count`` trajectories.
inline void read(Run& run, const Array& array, Int batch, Int count, Int row, Int rows, Int column,
                 Int columns, double* to) {
    const Int length = rows * columns, size = array.type == 0 ? 4 : 8;
    const bool whole = array.type < 2 && array.stride[0] == length * size &&
                       (rows == 1 || array.stride[1] == columns * size) &&
                       (columns == 1 || array.stride[2] == size);
    if (whole) return read(run, array, batch, row, 1, column, count * length, to);
    for (Int g = 0; g < count; g++)
        read(run, array, batch + g, row, rows, column, columns, to + g * length);
}

inline double step_at(const Array& dt, Int batch, Int step) {
    double x;
    std::memcpy(&x, element(dt, batch, step, 0), sizeof x);
    return x;
}

constexpr Int SPAN = 512;  // elements that are read at once where trajectories are short

// The four parts of the states of trajectories.
class States {
public:
    States(Run& run, const Split& split, const Array* parts, const Array& index)
        : run_(run),
          parts_(parts),
          index_(index),
          span_(split.lanes < SPAN ? SPAN / split.lanes * split.group : split.group),
          pitch(span_ * split.columns + W),
          values_(4 * pitch) {}

    // Those of a place's trajectories from ``batch`` on: part m lies m·pitch further on.
    const double* at(const Place& place, Int batch) {
        if (batch < begin_ || batch >= end_ || place.column != column_) {
            const Int left = place.batch + place.count - batch;
            begin_ = batch, end_ = batch + (left < span_ ? left : span_), column_ = place.column;
            for (Int m = 0; m < 4; m++) read_part(parts_[m], place, values_.at + m * pitch);
        }
        return values_.at + (batch - begin_) * place.columns;
    }

private:
    void read_part(const Array& part, const Place& place, double* to) {
        const Int count = end_ - begin_;
        if (!part.data) return;  // zero from the beginning
        if (!index_.data)
            return read(run_, part, begin_, count, 0, 1, place.column, place.columns, to);
        for (Int g = 0; g < count; g++) {
            std::int64_t row;
            std::memcpy(&row, element(index_, begin_ + g, 0, 0), sizeof row);
            read(run_, part, row, 0, 1, place.column, place.columns, to + g * place.columns);
        }
    }

    Run& run_;
    const Array* parts_;
    const Array& index_;
    const Int span_;
    Int begin_ = 0, end_ = 0, column_ = -1;

public:
    const Int pitch;

private:
    Buffer<double> values_;
};

// -- few dofs -------------------------------------------------------------------------------

// Elements that are moved at once: what is too much is overwritten by what comes next.
constexpr int moved(int dofs) { return dofs == 3 ? 4 : dofs < 5 ? dofs : 8; }

// From a group's trajectories behind each other to trajectories side by side, and back. Those that
// are missing from the last group are moved along.
template <int DOFS>
void interleave(const double* from, Int rows, double* to) {
    for (Int t = 0; t < rows; t++, from += DOFS, to += W)
        for (int g = 0; g < W / DOFS; g++)
            std::memcpy(to + g * DOFS, from + g * rows * DOFS, moved(DOFS) * sizeof(double));
}

template <int DOFS, class T>
void separate(const T* from, Int rows, T* to) {
    for (int g = 0; g < W / DOFS; g++)
        for (Int t = 0; t < rows; t++, to += DOFS)
            std::memcpy(to, from + t * W + g * DOFS, moved(DOFS) * sizeof(T));
}

inline void interleave(const double* from, Int rows, Int dofs, double* to) {
    if (dofs == 1) return interleave<1>(from, rows, to);
    if (dofs == 2) return interleave<2>(from, rows, to);
    if (dofs == 3) return interleave<3>(from, rows, to);
    return interleave<4>(from, rows, to);
}

template <class T>
void separate(const T* from, Int rows, Int dofs, T* to) {
    switch (dofs) {
        case 1: return separate<1>(from, rows, to);
        case 2: return separate<2>(from, rows, to);
        case 3: return separate<3>(from, rows, to);
        case 4: return separate<4>(from, rows, to);
        case 5: return separate<5>(from, rows, to);
        case 6: return separate<6>(from, rows, to);
        default: return separate<7>(from, rows, to);
    }
}

// Rows that a kernel reads, ``apart`` elements from one to the next, and where those lie that will
// most often be read after them: it fetches them into the cache meanwhile.
struct Input {
    double* at;
    Int apart;
    const char* next;
    Int next_apart, size;  // in bytes

    void prefetch(Int row, Int column) const {
        __builtin_prefetch(next + row * next_apart + column * size, 0, 2);
    }
};

// Rows of an array as a kernel wants them.
class Reader {
public:
    // rows: the most that are read of a trajectory.
    Reader(Run& run, const Split& split, const Array& array, Int rows)
        : run_(run),
          split_(split),
          array_(array),
          span_(rows * split.lanes < SPAN ? SPAN / (rows * split.lanes + 1) + 1 : 1),
          flat_(span_ > 1 || split.group > 1 ? span_ * split.group * rows * split.columns : 0) {}

    // Those of the group that begins with trajectory ``batch``: at ``to``, or where they are.
    Input read_rows(const Place& place, Int batch, Int row, Int rows, double* to) {
        const Int left = place.batch + place.count - batch, length = rows * place.columns;
        const Int group = left < split_.group ? left : split_.group;
        if (split_.group == 1 && span_ == 1) {
            read(run_, array_, batch, row, rows, place.column, place.columns, to);
        } else {
            if (batch < begin_ || batch >= end_ || row != row_ || rows != rows_) {
                const Int most = span_ * split_.group;
                begin_ = batch, end_ = batch + (left < most ? left : most);
                row_ = row, rows_ = rows;
                read(run_, array_, batch, end_ - begin_, row, rows, 0, place.columns, flat_.at);
            }
            double* from = flat_.at + (batch - begin_) * length;
            if (split_.group > 1)
                interleave(from, rows, place.columns, to);
            else
                to = from;
        }
        const Int size = array_.type == 0 ? 4 : 8;
        const Int columns = split_.group > 1 ? W : place.columns;
        Input found = {to, columns, element(array_, batch, row, place.column), columns * size, size};
        found.next += split_.blocks > 1 ? columns * size : group * length * size;
        if (split_.blocks > 1) found.next_apart = array_.stride[1];
        return found;
    }

private:
    Run& run_;
    const Split& split_;
    const Array& array_;
    const Int span_;  // groups whose rows are read at once
    Int begin_ = 0, end_ = 0, row_ = -1, rows_ = -1;
    Buffer<double> flat_;
};

// The four arrays that an adjoint is given; what is not given is zero.
class Upstream {
public:
    Upstream(Run& run, const Split& split, Int rows)
        : job_(run.job),
          size_(rows * split.lanes + W),
          lanes_(split.lanes),
          rows_(4 * size_),
          readers_{{run, split, job_.upstream[0], rows},
                   {run, split, job_.upstream[1], rows},
                   {run, split, job_.upstream[2], rows},
                   {run, split, job_.upstream[3], rows}} {}

    Input read_rows(int m, const Place& place, Int batch, Int row, Int rows) {
        double* to = rows_.at + m * size_;
        if (job_.upstream[m].data) return readers_[m].read_rows(place, batch, row, rows, to);
        return {to, lanes_, nullptr, 0, 0};
    }

private:
    const Job& job_;
    const Int size_, lanes_;
    Buffer<double> rows_;
    Reader readers_[4];
};

// -- outputs --------------------------------------------------------------------------------

template <class T>
void write_piece(Run& run, const Output& out, Int position, const T* from, Int count) {
    const char* bytes = reinterpret_cast<const char*>(from);
    const Int size = sizeof(T);
    if (out.file >= 0) {
        Int faults = 0;
        for (Int i = 0; i < count; i++) faults += from[i] - from[i] != 0;
        if (faults) run.faults += faults;
        const Int offset = reinterpret_cast<std::intptr_t>(out.data) + position * size;
        if (const int error = write_file(out.file, offset, bytes, count * size)) run.status = error;
    } else if (run.job.streaming) {
        stream(static_cast<char*>(out.data) + position * size, bytes, count * size);
    } else {
        std::memcpy(static_cast<char*>(out.data) + position * size, bytes, count * size);
    }
}

// A tile to its output [B, rows, D].
template <class T>
void write_tile(Run& run, const Output& out, const Place& place, Int rows, const T* tile) {
    const Int dofs = run.job.dofs;
    if (!out.data && out.file < 0) return;
    const Int length = place.rows * place.columns;
    if (place.columns == dofs && (place.rows == rows || place.count == 1))
        return write_piece(run, out, (place.batch * rows + place.row) * dofs, tile,
                           place.count * length);
    for (Int b = 0; b < place.count; b++, tile += length) {
        const Int position = ((place.batch + b) * rows + place.row) * dofs + place.column;
        if (place.columns == dofs) {
            write_piece(run, out, position, tile, length);
            continue;
        }
        for (Int t = 0; t < place.rows; t++)
            write_piece(run, out, position + t * dofs, tile + t * place.columns, place.columns);
    }
}

// A state's gradient, lanes of a group, to its place in [B, D].
inline void write_state(const Job& job, Address to, const Place& place, Int batch, Int group,
                        const double* lanes) {
    if (to)
        std::memcpy(static_cast<double*>(to) + batch * job.dofs + place.column, lanes,
                    group * place.columns * sizeof(double));
}

// Calls ``strip`` with the first column of each vector of rows of so many columns; the last one
// ends with the row, so that it may overlap the one before.
template <class Strip>
inline void each_strip(Int columns, Strip strip) {
    for (Int column = 0; column < columns; column += W)
        strip(column + W <= columns || columns < W ? column : columns - W);
}

// Rows that a kernel writes, ``apart`` elements from one to the next.
template <class T>
struct Rows {
    T* at;
    Int apart;
};

// What all kernels share: the tiles of their outputs, ``total`` rows of each trajectory.
template <class Out>
class Tiles {
public:
    Tiles(Run& run, Int items, Int total, int outputs)
        : run_(run),
          job_(run.job),
          split_(job_),
          total_(total),
          rows_(std::min(total, split_.tile_rows(job_))),
          groups_(std::min(items, split_.tile_groups(job_, total))),
          outputs_(outputs),
          // where rows are written last to first, none may reach into the next
          lanes_(split_.group > 1 || outputs == 1 ? outputs * rows_ * W : 0),
          size_(groups_ * split_.group * rows_ * split_.columns + W),
          tile_(outputs * size_) {}

    // Gives ``kernel`` each group of each place of items [begin, end), and writes what it makes.
    template <class Kernel>
    void each_group(Int begin, Int end, bool backwards, Kernel& kernel) {
        const Int tiles = std::max((total_ + rows_ - 1) / std::max<Int>(rows_, 1), Int(1));
        for (Int item = begin; item < end; item += groups_) {
            Place place;
            place.batch = item / split_.blocks * split_.group;
            place.count = std::min((std::min(item + groups_, end) - item) * split_.group,
                                   job_.batch - place.batch);
            place.column = item % split_.blocks * split_.columns;
            place.columns = std::min(job_.dofs - place.column, split_.columns);
            for (Int i = 0; i < tiles; i++) {
                place.row = (backwards ? tiles - 1 - i : i) * rows_;
                place.rows = std::min(total_ - place.row, rows_);
                if (run_.status.load(std::memory_order_relaxed)) return;
                for (first_ = 0; first_ < place.count; first_ += split_.group)
                    kernel(place, place.batch + first_, std::min(place.count - first_, split_.group));
                for (int m = 0; m < outputs_; m++)
                    write_tile(run_, job_.out[m], place, total_, tile_.at + m * size_);
            }
        }
        if (job_.streaming) end_stream();
    }

protected:
    Int columns(const Place& place) const { return split_.group > 1 ? W : place.columns; }

    // Where the group at hand has its rows of an output; with ``apart`` they need not be dense.
    Rows<Out> rows_of(int m, const Place& place, bool apart = false) {
        if (split_.group > 1 || (apart && place.columns < W)) return {lanes_.at + m * rows_ * W, W};
        return {tile_.at + m * size_ + first_ * place.rows * place.columns, place.columns};
    }

    // To be called where its rows are done.
    void finish_rows(int m, const Place& place, bool apart = false) {
        if (split_.group > 1 || (apart && place.columns < W))
            separate(lanes_.at + m * rows_ * W, place.rows, place.columns,
                     tile_.at + m * size_ + first_ * place.rows * place.columns);
    }

    // The start state as the first row.
    void put_state(Rows<Out>* out, const double* state, Int pitch, Int columns) {
        for (int m = 0; m < 4; m++, state += pitch) {
            each_strip(columns,
                       [&](Int column) { store(out[m].at + column, load(state + column)); });
            out[m].at += columns;
        }
    }

    Run& run_;
    const Job& job_;
    const Split split_;
    const Int total_, rows_, groups_;

private:
    const int outputs_;
    Int first_ = 0;  // trajectory of the place, of the group at hand
    Buffer<Out> lanes_;
    const Int size_;
    Buffer<Out> tile_;
};

}  // namespace LEVEL
