// Tiles: some rows of some trajectories, small enough for the caches, on their way from the inputs
// through a kernel to the outputs. Included by level.hpp after vector.hpp.
//
// A kernel sees rows whose columns are the lanes of vectors: the dofs of a trajectory or, where
// these fill no more than half a vector or trajectories are short, those of a group of
// trajectories. Vectors may read beyond a row, and where rows are written in order, write beyond it.

namespace LEVEL {

constexpr Int LEAST_ROWS = 8;     // of a tile of a long trajectory
constexpr Int MOST_COLUMNS = 1024;
constexpr Int SHORT = 512;        // elements below which trajectories are taken together

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
        const Int length = std::max<Int>(job.dofs * std::max(job.rows, job.horizon), 1);
        group = std::max(job.dofs * 2 <= W ? W : 1, SHORT / length);
        group = std::max<Int>(std::min(group, job.batch), 1);
        blocks = (job.dofs + MOST_COLUMNS - 1) / MOST_COLUMNS;
        columns = (job.dofs + blocks - 1) / blocks;
        lanes = group > 1 ? whole(group * columns) : columns;
        groups = (job.batch + group - 1) / group;
    }

    // Columns in whole vectors.
    static Int whole(Int columns) { return (columns + W - 1) / W * W; }

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

template <class T>
void check_finite(Run& run, const T* values, Int count) {
    if (!run.job.finite) return;
    Mask wrong = {};
    Int i = 0;
    for (; i + W <= count; i += W) {
        const Vec v = load(values + i);
        wrong |= (v - v) != Vec{};
    }
    bool found = false;
    for (int k = 0; k < W; k++) found |= wrong[k] != 0;
    for (; i < count; i++) found |= values[i] - values[i] != 0;
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
            for (; i + W <= length; i += W) store(place + i, load(reinterpret_cast<const float*>(piece) + i));
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

// The four parts of the states of a group's trajectories: part m lies m·pitch further on.
class States {
public:
    States(Run& run, const Split& split, const Array* parts, const Array& index)
        : run_(run), parts_(parts), index_(index), pitch(split.lanes + W), values_(4 * pitch) {
        for (Int m = 0; m < 4; m++) shared_ &= !parts[m].data || parts[m].stride[0] == 0;
    }

    const double* at(const Place& place, Int batch, Int group) {
        if (shared_ && group <= made_ && place.column == column_) return values_.at;
        made_ = group, column_ = place.column;
        for (Int m = 0; m < 4; m++) read_part(parts_[m], place, batch, group, values_.at + m * pitch);
        return values_.at;
    }

private:
    void read_part(const Array& part, const Place& place, Int batch, Int group, double* to) {
        if (!part.data) return;  // zero from the beginning
        if (!index_.data)
            return read(run_, part, batch, group, 0, 1, place.column, place.columns, to);
        for (Int g = 0; g < group; g++) {
            std::int64_t row;
            std::memcpy(&row, element(index_, batch + g, 0, 0), sizeof row);
            read(run_, part, row, 0, 1, place.column, place.columns, to + g * place.columns);
        }
    }

    Run& run_;
    const Array* parts_;
    const Array& index_;
    bool shared_ = true;
    Int made_ = 0, column_ = -1;

public:
    const Int pitch;

private:
    Buffer<double> values_;
};

// -- groups ---------------------------------------------------------------------------------

// Calls ``work`` with the number of dofs, the trajectories of a group and the lanes of a row, as
// constants where they often occur.
template <class Work>
inline void with_sizes(Int dofs, Int group, Int lanes, Work work) {
    auto few = [&](auto count) {
        constexpr Int D = decltype(count)::value;
        if (group == W && lanes == W * D)
            work(count, std::integral_constant<Int, W>(), std::integral_constant<Int, W * D>());
        else
            work(count, group, lanes);
    };
    switch (dofs) {
        case 1: return few(std::integral_constant<Int, 1>());
        case 2: return few(std::integral_constant<Int, 2>());
        case 3: return few(std::integral_constant<Int, 3>());
        case 4: return few(std::integral_constant<Int, 4>());
        case 7: return few(std::integral_constant<Int, 7>());
        default: return work(dofs, group, lanes);
    }
}

// From trajectories behind each other, whose rows are ``apart`` elements apart and which are
// ``next`` elements apart, to rows of ``lanes`` that have them side by side.
template <class T>
void interleave(const T* from, Int group, Int next, Int rows, Int apart, Int dofs, T* to, Int lanes) {
    if (rows == 1 && next == dofs) return void(std::memcpy(to, from, group * dofs * sizeof(T)));
    with_sizes(dofs, group, lanes, [=](auto count, auto together, auto width) {
        for (Int t = 0; t < rows; t++)
            for (Int g = 0; g < together; g++)
                std::memcpy(to + t * width + g * count, from + g * next + t * apart, count * sizeof(T));
    });
}

// And back.
template <class T>
void separate(const T* from, Int group, Int rows, Int dofs, Int lanes, T* to) {
    with_sizes(dofs, group, lanes, [=](auto count, auto together, auto width) {
        for (Int g = 0; g < together; g++)
            for (Int t = 0; t < rows; t++)
                std::memcpy(to + (g * rows + t) * count, from + t * width + g * count, count * sizeof(T));
    });
}

// What each trajectory of a group has one of a row, in all of its lanes.
inline void spread(const double* from, Int group, Int rows, Int dofs, double* to, Int lanes) {
    with_sizes(dofs, group, lanes, [=](auto count, auto together, auto width) {
        for (Int t = 0; t < rows; t++)
            for (Int g = 0; g < together; g++)
                for (Int d = 0; d < count; d++) to[t * width + g * count + d] = from[g * rows + t];
    });
}

// Rows that a kernel reads or writes, ``apart`` elements from one to the next.
template <class T>
struct Rows {
    T* at;
    Int apart;
};

template <class In>
using Input = Rows<const In>;

// Whether elements are of a type and lie so that kernels may read them where they are.
template <class In>
bool is_plain(const Array& array, Int columns) {
    const Int size = sizeof(In);
    return array.type == (size == 8) && (columns == 1 || array.stride[2] == size) &&
           array.stride[0] % size == 0 && array.stride[1] % size == 0 &&
           reinterpret_cast<std::uintptr_t>(array.data) % size == 0;
}

// Rows of an array as a kernel wants them. In: double, or the type of all elements.
template <class In>
class Reader {
public:
    // rows: the most that are read of a trajectory.
    Reader(Run& run, const Split& split, const Array& array, Int rows)
        : run_(run),
          split_(split),
          array_(array),
          plain_(!run.job.recorded && is_plain<In>(array, split.columns)),
          flat_(split.group > 1 && !plain_ ? split.group * rows * split.columns : 0) {}

    // Those of a group: at ``to``, or where they are.
    Input<In> read_rows(const Place& place, Int batch, Int group, Int row, Int rows, In* to) {
        const Int columns = place.columns, size = sizeof(In);
        const char* at = element(array_, batch, row, place.column);
        const In* from = reinterpret_cast<const In*>(at);
        Int next = array_.stride[0] / size, apart = array_.stride[1] / size;
        const Int ahead = group * array_.stride[0];
        if (array_.stride[0] == rows * array_.stride[1])  // what will most often be read next
            for (Int i = 0; i < ahead; i += LINE) __builtin_prefetch(at + ahead + i, 0, 2);
        if (!plain_) {
            double* flat = reinterpret_cast<double*>(split_.group > 1 ? flat_.at : to);
            read(run_, array_, batch, group, row, rows, place.column, columns, flat);
            from = reinterpret_cast<In*>(flat), next = rows * columns, apart = columns;
        } else if (run_.job.finite) {
            const bool dense = apart == columns;
            for (Int g = 0; g < group; g++)
                for (Int t = 0; t < (dense ? 1 : rows); t++)
                    check_finite(run_, from + g * next + t * apart, dense ? rows * columns : columns);
        }
        if (split_.group > 1) {
            interleave(from, group, next, rows, apart, columns, to, split_.lanes);
            return {to, split_.lanes};
        }
        // a vector that begins in the last trajectory could end behind the array
        const bool last = columns % W != 0 && (next < W || batch + 1 == run_.job.batch);
        if (!plain_ || !last) return {from, apart};
        interleave(from, 1, next, rows, apart, columns, to, columns);
        return {to, columns};
    }

private:
    Run& run_;
    const Split& split_;
    const Array& array_;
    const bool plain_;
    Buffer<In> flat_;
};

// The four arrays that an adjoint is given; what is not given is zero.
template <class In>
class Upstream {
public:
    Upstream(Run& run, const Split& split, Int rows)
        : job_(run.job),
          size_(rows * split.lanes + W),
          rows_(4 * size_),
          readers_{{run, split, job_.upstream[0], rows},
                   {run, split, job_.upstream[1], rows},
                   {run, split, job_.upstream[2], rows},
                   {run, split, job_.upstream[3], rows}} {}

    Input<In> read_rows(int m, const Place& place, Int batch, Int group, Int row, Int rows) {
        In* to = rows_.at + m * size_;
        if (job_.upstream[m].data) return readers_[m].read_rows(place, batch, group, row, rows, to);
        return {to, 0};
    }

private:
    const Job& job_;
    const Int size_;
    Buffer<In> rows_;
    Reader<In> readers_[4];
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
          lanes_(split_.group > 1 ? outputs * rows_ * split_.lanes : outputs == 1 ? rows_ * W : 0),
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
    // Columns that kernels compute.
    Int columns(const Place& place, Int group) const {
        return split_.group > 1 ? Split::whole(group * place.columns) : place.columns;
    }

    // Where the group at hand has its rows of an output; with ``apart`` they need not be dense.
    Rows<Out> rows_of(int m, const Place& place, bool apart = false) {
        const Int lanes = split_.group > 1 ? split_.lanes : W;
        if (split_.group > 1 || (apart && place.columns < W)) return {lanes_.at + m * rows_ * lanes, lanes};
        return {tile_.at + m * size_ + first_ * place.rows * place.columns, place.columns};
    }

    // To be called where its rows are done.
    void finish_rows(int m, const Place& place, Int group, bool apart = false) {
        const Rows<Out> rows = rows_of(m, place, apart);
        Out* to = tile_.at + m * size_ + first_ * place.rows * place.columns;
        if (rows.at != to) separate(rows.at, group, place.rows, place.columns, rows.apart, to);
    }

    // The start state as the first row.
    void put_state(Rows<Out>* out, const double* state, Int pitch, Int columns) {
        for (int m = 0; m < 4; m++, state += pitch) {
            each_strip(columns,
                       [&](Int column) { store(out[m].at + column, load(state + column)); });
            out[m].at += out[m].apart;
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
