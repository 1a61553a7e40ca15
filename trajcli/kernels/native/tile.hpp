// Tiles: some rows of some trajectories, small enough for the caches, on their way from the inputs
// through a kernel to the outputs. Included by level.hpp after vector.hpp.
//
// A kernel sees rows of lanes, a vector of them at a time: the dofs of a trajectory or, where these
// fill no more than half a vector or trajectories are short, those of several trajectories side by
// side. A row's last vector may reach into the next row, so that rows are written first to last and
// the vectors of a row last to first: what is not theirs is overwritten.

namespace LEVEL {

constexpr Int LEAST_ROWS = 8;      // of a tile of a long trajectory
constexpr Int MOST_COLUMNS = 1024;
constexpr Int SHORT = 512;         // elements below which trajectories are taken together

constexpr std::align_val_t ALIGNED{64};

// Memory that starts as zeros, with room for vectors that begin at the last element.
template <class T>
class Buffer {
public:
    explicit Buffer(Int count) {
        const std::size_t bytes = (count + 2 * W) * sizeof(T);
        at = static_cast<T*>(std::memset(::operator new(bytes, ALIGNED), 0, bytes));
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { ::operator delete(at, ALIGNED); }
    T* at;
};

// Rows of lanes, ``pitch`` elements from one to the next.
template <class T>
struct Rows {
    T* at;
    Int pitch;

    operator Rows<const T>() const { return {at, pitch}; }
};

// Columns in whole vectors.
constexpr Int whole(Int columns) { return (columns + W - 1) / W * W; }

// Trajectories [batch, batch + group), dofs [column, column + columns), rows [row, row + rows).
struct Tile {
    Int batch, group, column, columns, row, rows;
    Int lanes;  // of a row
};

// How a job is cut into items, which are groups of trajectories or blocks of the dofs of one, and
// items into tiles.
struct Tiling {
    Int total;    // rows of a trajectory
    Int group;    // trajectories side by side
    Int blocks;   // of dofs
    Int columns;  // of a block
    Int lanes, rows;

    explicit Tiling(const Job& job) {
        total = job.adjoint ? job.horizon : job.rows;
        const Int length = std::max<Int>(job.dofs * std::max(job.rows, job.horizon), 1);
        group = std::max(job.dofs * 2 <= W ? W : 1, SHORT / length);
        group = std::max<Int>(std::min(group, job.batch), 1);
        blocks = (job.dofs + MOST_COLUMNS - 1) / MOST_COLUMNS;
        columns = (job.dofs + blocks - 1) / blocks;
        lanes = group > 1 ? whole(group * columns) : columns;
        rows = std::min(total, rows_per_tile(job));
    }

    Int rows_per_tile(const Job& job) const { return std::max(job.tile / lanes, LEAST_ROWS); }

    Int items(const Job& job) const { return (job.batch + group - 1) / group * blocks; }

    // The first tile of an item.
    Tile tile(const Job& job, Int item) const {
        Tile tile = {item / blocks * group, 0, item % blocks * columns, 0, 0, rows, lanes};
        tile.group = std::min(group, job.batch - tile.batch);
        tile.columns = std::min(columns, job.dofs - tile.column);
        if (group == 1) tile.lanes = tile.columns;
        return tile;
    }
};

// Calls ``strip`` with the first lane of each vector of a row.
template <class Strip>
inline void for_strips(Int lanes, Strip strip) {
    for (Int column = (lanes - 1) / W * W; column >= 0; column -= W) strip(column);
}

// Calls ``work`` with the dofs, the trajectories and the lanes of a tile: as constants where dofs
// are few and the trajectories as many as a vector has lanes.
template <class Work>
inline void with_sizes(const Tile& tile, Work work) {
    auto few = [&](auto columns) {
        constexpr Int D = decltype(columns)::value;
        if (tile.group == W && tile.lanes == W * D)
            work(columns, std::integral_constant<Int, W>(), std::integral_constant<Int, W * D>());
        else
            work(columns, tile.group, tile.lanes);
    };
    switch (tile.columns) {
        case 1: return few(std::integral_constant<Int, 1>());
        case 2: return few(std::integral_constant<Int, 2>());
        case 3: return few(std::integral_constant<Int, 3>());
        case 4: return few(std::integral_constant<Int, 4>());
        case 7: return few(std::integral_constant<Int, 7>());
        default: return work(tile.columns, tile.group, tile.lanes);
    }
}

// -- inputs -----------------------------------------------------------------------------------

template <class T>
void check_finite(Run& run, const T* values, Int count) {
    if (!run.job.finite) return;
    int faults = 0;
    for (Int i = 0; i < count; i++) faults |= values[i] - values[i] != 0;
    if (faults) run.status = NOT_FINITE;
}

inline const char* element(const Array& array, Int batch, Int row, Int column) {
    return static_cast<const char*>(array.data) + batch * array.stride[0] + row * array.stride[1] +
           column * array.stride[2];
}

// Rows of any array as doubles, one after another: [tile.group, rows, tile.columns].
inline void read(Run& run, const Array& array, const Tile& tile, Int row, Int rows, double* to) {
    const Int size = array.type == 0 ? 4 : 8, all = tile.group * rows * tile.columns;
    const Int *stride = array.stride, type = array.type;
    const bool direct = type < 2 && (tile.columns == 1 || stride[2] == size);
    Int group = tile.group, count = tile.columns;  // elements that follow each other
    if (direct && (rows == 1 || stride[1] == count * size)) {
        count *= rows, rows = 1;
        if (group == 1 || stride[0] == count * size) count *= group, group = 1;
    }
    double* at = to;
    for (Int g = 0; g < group; g++)
        for (Int t = 0; t < rows; t++, at += count) {
            const char* from = element(array, tile.batch + g, row + t, tile.column);
            if (!direct)
                convert(array, from, count, at);
            else if (type == 1)
                std::memcpy(at, from, count * sizeof(double));
            else
                for (Int i = 0; i < count; i++) {
                    float x;
                    std::memcpy(&x, from + 4 * i, sizeof x);
                    at[i] = x;
                }
        }
    check_finite(run, to, all);
}

// Trajectories that lie ``next`` elements apart, side by side.
template <class T>
void interleave(const T* from, Int next, Int pitch, const Tile& tile, Int rows, T* to) {
    with_sizes(tile, [=](auto columns, auto group, auto lanes) {
        for (Int t = 0; t < rows; t++)
            for (Int g = 0; g < group; g++)
                std::memcpy(to + t * lanes + g * columns, from + g * next + t * pitch,
                            columns * sizeof(T));
    });
}

// And back: one after another.
template <class T>
void separate(const T* from, const Tile& tile, T* to) {
    with_sizes(tile, [=, rows = tile.rows](auto columns, auto group, auto lanes) {
        for (Int g = 0; g < group; g++)
            for (Int t = 0; t < rows; t++)
                std::memcpy(to + (g * rows + t) * columns, from + t * lanes + g * columns,
                            columns * sizeof(T));
    });
}

// Whether elements are of a type and lie so that kernels may read them where they are.
template <class In>
bool is_plain(const Array& array, Int columns) {
    const Int size = sizeof(In);
    return array.type == (size == 8) && (columns == 1 || array.stride[2] == size) &&
           array.stride[0] % size == 0 && array.stride[1] % size == 0 &&
           reinterpret_cast<std::uintptr_t>(array.data) % size == 0;
}

// Rows of an array as lanes. In: double, or the type of all elements.
template <class In>
class Reader {
public:
    // rows: the most that are read at once.
    Reader(Run& run, const Tiling& tiling, const Array& array, Int rows)
        : run_(run),
          array_(array),
          interleaved_(tiling.group > 1),
          plain_(is_plain<In>(array, tiling.columns)),
          next_(array.stride[0] / Int(sizeof(In))),
          flat_(interleaved_ && !plain_ ? tiling.group * rows * tiling.columns : 0),
          rows_(rows * tiling.lanes) {}

    // To be read only, where they are if they can be; zeros where there is no array.
    Rows<const In> rows(const Tile& tile, Int row, Int rows) {
        if (!array_.data) return {rows_.at, 0};
        // a vector that begins in the last trajectory could end behind the array
        const bool last = next_ < W || tile.batch + 1 == run_.job.batch;
        if (interleaved_ || !plain_ || (last && tile.columns % W != 0))
            return copy(tile, row, rows);
        const Rows<const In> there = locate(tile, row, rows);
        check(there, tile, rows);
        return there;
    }

    Rows<In> copy(const Tile& tile, Int row, Int rows) {
        copy(tile, row, rows, rows_.at);
        return {rows_.at, tile.lanes};
    }

    void copy(const Tile& tile, Int row, Int rows, In* to) {
        const Rows<const In> there = locate(tile, row, rows);
        if (plain_) {
            check(there, tile, rows);
            return interleave(there.at, next_, there.pitch, tile, rows, to);
        }
        if constexpr (std::is_same_v<In, double>) {
            read(run_, array_, tile, row, rows, interleaved_ ? flat_.at : to);
            if (interleaved_)
                interleave(flat_.at, rows * tile.columns, tile.columns, tile, rows, to);
        }
    }

private:
    Rows<const In> locate(const Tile& tile, Int row, Int rows) const {
        const char* at = element(array_, tile.batch, row, tile.column);
        // Rows that are read side by side are no stream that processors know: half the time
        const Int size = tile.group * array_.stride[0];
        if (array_.stride[0] == rows * array_.stride[1])  // what is read next
            for (Int i = 0; i < size; i += 64) __builtin_prefetch(at + size + i);
        return {reinterpret_cast<const In*>(at), array_.stride[1] / Int(sizeof(In))};
    }

    void check(Rows<const In> rows, const Tile& tile, Int count) {
        const bool dense = rows.pitch == tile.columns;
        for (Int g = 0; g < tile.group; g++)
            for (Int t = 0; t < (dense ? 1 : count); t++)
                check_finite(run_, rows.at + g * next_ + t * rows.pitch,
                             dense ? count * tile.columns : tile.columns);
    }

    Run& run_;
    const Array& array_;
    const bool interleaved_, plain_;
    const Int next_;  // elements to the next trajectory, where plain
    Buffer<In> flat_, rows_;
};

// The four parts of the states of a tile's trajectories: part m lies m · pitch further on.
class States {
public:
    States(Run& run, const Tiling& tiling, const Array* parts, const Array& index)
        : pitch(whole(tiling.lanes)), run_(run), parts_(parts), index_(index), values_(4 * pitch) {
        for (Int m = 0; m < 4; m++) shared_ &= !parts[m].data || parts[m].stride[0] == 0;
    }

    const double* at(const Tile& tile) {
        if (shared_ && tile.group <= group_ && tile.column == column_) return values_.at;
        group_ = tile.group, column_ = tile.column;
        for (Int m = 0; m < 4; m++)
            if (parts_[m].data) read_part(parts_[m], tile, values_.at + m * pitch);
        return values_.at;
    }

    const Int pitch;

private:
    void read_part(const Array& part, const Tile& tile, double* to) {
        if (!index_.data) return read(run_, part, tile, 0, 1, to);
        Tile one = tile;
        one.group = 1;
        for (Int g = 0; g < tile.group; g++, to += tile.columns) {
            std::memcpy(&one.batch, element(index_, tile.batch + g, 0, 0), sizeof one.batch);
            read(run_, part, one, 0, 1, to);
        }
    }

    Run& run_;
    const Array* parts_;
    const Array& index_;
    bool shared_ = true;
    Int group_ = 0, column_ = -1;  // of what was read last
    Buffer<double> values_;
};

// The steps of a tile's trajectories, in all of their lanes.
class Steps {
public:
    // rows: the most that are read at once.
    Steps(Run& run, const Tiling& tiling, Int rows)
        : run_(run),
          even_(run.job.dt.stride[1] == 0),
          shared_(run.job.dt.stride[0] == 0),
          flat_((even_ ? 1 : rows) * tiling.group),
          lanes_((even_ ? 1 : rows) * tiling.lanes) {}

    // Steps [row, row + rows), those before the first and after the last like these: whether they
    // are others than those read before.
    bool read_rows(const Tile& tile, Int row, Int rows) {
        if (even_) row = 0, rows = 1;
        const bool same = shared_ && row == row_ && rows == rows_ && tile.group == group_ &&
                          tile.columns == columns_;
        row_ = row, rows_ = rows, group_ = tile.group, columns_ = tile.columns;
        if (same || rows <= 0) return false;
        Tile steps = tile;
        steps.column = 0, steps.columns = 1;
        const Int last = std::max(run_.job.steps - 1, Int(0));
        const Int first = std::clamp(row, Int(0), last);
        const Int count = std::clamp(row + rows - 1, Int(0), last) - first + 1;
        read(run_, run_.job.dt, steps, first, count, flat_.at);
        const double* from = flat_.at;
        with_sizes(tile, [=, to = lanes_.at](auto columns, auto group, auto lanes) {
            for (Int t = 0; t < rows; t++) {
                const double* step = from + std::clamp(row + t - first, Int(0), count - 1);
                for (Int g = 0; g < group; g++)
                    for (Int d = 0; d < columns; d++)
                        to[t * lanes + g * columns + d] = step[g * count];
            }
        });
        return true;
    }

    // Where all are equal the pitch is 0.
    Rows<const double> rows(const Tile& tile) const { return {lanes_.at, even_ ? 0 : tile.lanes}; }

private:
    Run& run_;
    const bool even_, shared_;
    Int row_ = -1, rows_ = -1, group_ = -1, columns_ = -1;  // of what was read last
    Buffer<double> flat_, lanes_;
};

// -- outputs ----------------------------------------------------------------------------------

// The first ``count`` outputs of a job. What lies together there is written at once.
template <class Out>
class Writer {
public:
    // backwards: whether rows are written last to first.
    Writer(Run& run, const Tiling& tiling, int count, bool backwards)
        : run_(run),
          total_(tiling.total),
          count_(count),
          apart_(tiling.group > 1 || (backwards && tiling.columns < W)),
          size_(tiling.rows * whole(tiling.lanes)),
          room_(std::max(run.job.tile, tiling.group * tiling.rows * tiling.columns)),
          lanes_(apart_ ? count * size_ : 0),
          tiles_(count * (room_ + W)) {}

    // Places for the rows of a tile, one for each output; behind the start's row, if there is one.
    void place(const Tile& tile, Rows<Out>* out, const double* start = nullptr, Int pitch = 0) {
        if (end_ + tile.group * tile.rows * tile.columns > room_) {
            flush();
            begin_ = end_ = 0;
        }
        for (int m = 0; m < count_; m++) {
            out[m] = rows(m, tile);
            if (!start) continue;
            for_strips(tile.lanes, [&](Int column) {
                store(out[m].at + column, load(start + m * pitch + column));
            });
            out[m].at += out[m].pitch;
        }
    }

    // To be called where they are computed.
    void write(const Tile& tile) {
        Tile wide = tile;
        wide.lanes = whole(tile.lanes);
        for (int m = 0; apart_ && m < count_; m++)
            separate(rows(m, tile).at, wide, tile_at(m) + end_);
        const Int dofs = run_.job.dofs;
        const bool cut = tile.columns < dofs, joined = !cut && tile.rows == total_;
        const Int groups = joined ? 1 : tile.group, rows = cut ? tile.rows : 1;
        for (Int g = 0; g < groups; g++)
            for (Int t = 0; t < rows; t++) {
                const Int row = (tile.batch + g) * total_ + tile.row + t;
                const Int position = row * dofs + tile.column;
                if (position != position_ + end_ - begin_) {
                    flush();
                    position_ = position;
                }
                end_ += tile.group / groups * (tile.rows / rows) * tile.columns;
            }
    }

    void flush() {
        for (int m = 0; m < count_ && begin_ < end_; m++)
            put(run_.job.out[m], tile_at(m) + begin_, end_ - begin_);
        begin_ = end_;
    }

private:
    Out* tile_at(int m) { return tiles_.at + m * (room_ + W); }

    Rows<Out> rows(int m, const Tile& tile) {
        if (apart_) return {lanes_.at + m * size_, whole(tile.lanes)};
        return {tile_at(m) + end_, tile.columns};
    }

    void put(const Output& out, const Out* from, Int count) {
        const char* bytes = reinterpret_cast<const char*>(from);
        const Int begin = position_ * Int(sizeof(Out)), size = count * Int(sizeof(Out));
        if (out.file >= 0) {
            Int faults = 0;
            for (Int i = 0; i < count; i++) faults += from[i] - from[i] != 0;
            if (faults) run_.faults += faults;
            const Int offset = reinterpret_cast<std::intptr_t>(out.data) + begin;
            const int error = write_file(out.file, offset, bytes, size);
            if (error) run_.status = error;
        } else if (out.data) {
            std::memcpy(static_cast<char*>(out.data) + begin, bytes, size);
        }
    }

    Run& run_;
    const Int total_;
    const int count_;
    const bool apart_;  // rows are computed elsewhere, not where they are written from
    const Int size_, room_;
    // elements of each output that wait: where they are in its tiles and where they go
    Int begin_ = 0, end_ = 0, position_ = 0;
    Buffer<Out> lanes_, tiles_;
};

// A part of a state's gradient, in the lanes of a tile, to its place in [B, D].
inline void write_state(const Job& job, Address to, const Tile& tile, const double* lanes) {
    if (to)
        std::memcpy(static_cast<double*>(to) + tile.batch * job.dofs + tile.column, lanes,
                    tile.group * tile.columns * sizeof(double));
}

}  // namespace LEVEL
