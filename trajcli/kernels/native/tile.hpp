// Tiles: some rows of some trajectories, small enough for the caches, on their way from the inputs
// through a kernel to the outputs. Included by level.hpp, first.
//
// A kernel works on rows of lanes, one vector at a time. Lanes are the dofs of a trajectory or,
// where dofs are few or trajectories very short, those of several trajectories side by side: the
// first dof of all of them, then the next. Rows of several trajectories are whole vectors. The last
// vector of a row of one may reach into the next row. Rows are therefore written first to last, and
// the vectors of a row last to first: later writes overwrite what does not belong there.

#define INLINE __attribute__((always_inline))

namespace LEVEL {

// -- vectors of doubles -------------------------------------------------------------------------

using namespace trajcli;

constexpr Int W = WIDTH;
typedef double Vec __attribute__((vector_size(WIDTH * 8)));
typedef float NarrowVec __attribute__((vector_size(WIDTH * 4)));

inline Vec load(const double* from) {
    Vec v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

// Compilers would convert each half by itself, and some of them through memory.
#if defined(TRAJCLI_AVX512)
inline Vec widen(NarrowVec v) { return (Vec)_mm512_maskz_cvtps_pd(0xFF, (__m256)v); }
inline NarrowVec narrow(Vec v) { return (NarrowVec)_mm512_maskz_cvtpd_ps(0xFF, (__m512d)v); }
#elif defined(TRAJCLI_AVX2)
inline Vec widen(NarrowVec v) { return (Vec)_mm256_cvtps_pd((__m128)v); }
inline NarrowVec narrow(Vec v) { return (NarrowVec)_mm256_cvtpd_ps((__m256d)v); }
#else
inline Vec widen(NarrowVec v) { return __builtin_convertvector(v, Vec); }
inline NarrowVec narrow(Vec v) { return __builtin_convertvector(v, NarrowVec); }
#endif

inline NarrowVec load_as_is(const float* from) {
    NarrowVec v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

inline Vec load_as_is(const double* from) { return load(from); }
inline Vec load(const float* from) { return widen(load_as_is(from)); }

inline void store(double* to, Vec v) { std::memcpy(to, &v, sizeof v); }
inline void store(double* to, NarrowVec v) { store(to, widen(v)); }
inline void store(float* to, NarrowVec v) { std::memcpy(to, &v, sizeof v); }
inline void store(float* to, Vec v) { store(to, narrow(v)); }

inline Vec all(double x) { return x - Vec{}; }

typedef decltype(Vec{} > Vec{}) Mask;

inline bool any(Mask mask) {
    Int some = 0;
    for (Int i = 0; i < W; i++) some |= mask[i];
    return some;
}

// Takes each lane from a where that is finite, else from b.
inline Vec finite_or(Vec a, Vec b) { return a - a == 0.0 ? a : b; }

// -- tiles ----------------------------------------------------------------------------------------

constexpr Int LEAST_ROWS = 8;      // in a tile of a long trajectory
constexpr Int MOST_COLUMNS = 1024;
constexpr Int GROUP = 256;         // elements of short trajectories computed side by side

// Zeroed memory, with room for a vector that begins at the last element.
template <class T>
class Buffer {
public:
    explicit Buffer(Int count) {
        const std::size_t size = bytes<T>(count + 2 * W);
        at = static_cast<T*>(std::memset(::operator new(size, std::align_val_t{64}), 0, size));
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { ::operator delete(at, std::align_val_t{64}); }

    // Makes room for ``count`` elements; earlier contents are lost.
    void reserve(Int count) {
        if (count <= count_) return;
        Buffer larger(2 * count);
        std::swap(at, larger.at);
        count_ = 2 * count;
    }

    T* at;

private:
    Int count_ = 0;
};

// Rows of lanes; ``pitch`` is the distance from one row to the next, in elements.
template <class T>
struct Rows {
    T* at;
    Int pitch;

    operator Rows<const T>() const { return {at, pitch}; }

    Rows from(Int row, Int column) const { return {at + row * pitch + column, pitch}; }
};

// Rounds columns up to whole vectors.
constexpr Int whole(Int columns) { return (columns + W - 1) / W * W; }

// Joins blocks of S lanes of a and b in turns: those with even numbers, or (ODD = S) odd ones.
// Compilers make shuffles of it.
template <Int S, Int ODD, class V, Int... I>
inline V join(V a, V b, std::integer_sequence<Int, I...>) {
    return V{(I & S ? b : a)[(I & ~S) + ODD]...};
}

// Transposes W vectors in registers: swaps two quarters of the square, then two of each quarter.
template <Int S = W / 2, class V>
inline void transpose(V* square) {
    constexpr std::make_integer_sequence<Int, W> lanes;
    V joined[W];
    for (Int i = 0; i < W; i++)
        joined[i] = i & S ? join<S, S>(square[i - S], square[i], lanes)
                          : join<S, 0>(square[i], square[i + S], lanes);
    if constexpr (S > 1) transpose<S / 2>(joined);
    for (Int i = 0; i < W; i++) square[i] = joined[i];
}

// Transposes ``count`` rows by squares, the last of which may overlap the one before. Meanwhile it
// fetches the next trajectories, ``read`` and ``written`` elements further on: processors do not
// foresee these addresses, and fetching them all at once would hold up the other loads.
template <class From, class To>
void transpose(Rows<const From> from, Int count, Int columns, Rows<To> to, Int read = 0,
               Int written = 0) {
    if (count < W || columns < W) {
        for (Int i = 0; i < count; i++)
            for (Int j = 0; j < columns; j++)
                to.at[j * to.pitch + i] = static_cast<To>(from.at[i * from.pitch + j]);
        return;
    }
    for (Int j = 0; j < columns; j += W)
        for (Int i = 0; i < count; i += W) {
            const Int row = std::min(i, count - W), column = std::min(j, columns - W);
            const From* const source = from.from(row, column).at;
            To* const target = to.from(column, row).at;
            decltype(load_as_is(source)) square[W];
            for (Int k = 0; k < W; k++) {
                square[k] = load_as_is(source + k * from.pitch);
                if (read) __builtin_prefetch(source + k * from.pitch + read);
            }
            transpose(square);
            for (Int k = 0; k < W; k++) {
                store(target + k * to.pitch, square[k]);
                if (written) __builtin_prefetch(target + k * to.pitch + written, 1);
            }
        }
}

// Trajectories [batch, batch + group), dofs [column, column + columns), rows [row, row + rows).
struct Tile {
    Int batch, group, column, columns, row, rows;
    Int side;   // lanes of a dof: one, or enough for the group in whole vectors
    Int lanes;  // of a row

    // A tile has one line of all trajectories side by side, or lines of each.
    Int lines() const { return side > 1 ? 1 : group; }
    Tile line(Int g) const {
        Tile one = *this;
        if (side == 1) one.batch += g, one.group = 1;
        return one;
    }
};

// Tells whether trajectories of ``length`` elements are computed faster one by one. Side by side,
// vectors are full, but every value is copied twice. The limits were measured with data in the caches
// and beyond them.
inline bool alone(const Job& job, Int length) {
    if (job.dofs * 2 > W) return length >= 48;
    return !job.adjoint && job.dofs > std::max(W / 4, Int(1)) && length >= 128;
}

// Cuts a job into items, which are groups of trajectories or blocks of the dofs of one trajectory,
// and items into tiles.
struct Tiling {
    Int total;    // rows of a trajectory
    Int group;    // trajectories side by side
    Int side;     // lanes of a dof
    Int blocks;   // of dofs
    Int columns;  // dofs of a block
    Int lanes, rows;  // of a tile
    Int parts = 1;    // tiles of a trajectory that are items of their own
    bool ordered;     // trajectories lie one after another
    bool own;         // trajectories have weights of their own, where steps differ

    explicit Tiling(const Job& job) {
        total = job.adjoint ? job.horizon : job.rows;
        own = job.band && !job.table && (job.dt.stride[0] || job.span_stride);
        const Int length = std::max<Int>(job.dofs * std::max(job.rows, job.horizon), 1);
        group = std::min(whole(std::max(GROUP / length, Int(1))), job.batch);
        if (alone(job, length)) group = 1;
        blocks = (job.dofs + MOST_COLUMNS - 1) / MOST_COLUMNS;
        columns = (job.dofs + blocks - 1) / blocks;
        if (blocks > 1) columns = whole(columns);
        while (blocks > 1 && job.dofs % columns && job.dofs % columns < W) columns -= W;
        blocks = (job.dofs + columns - 1) / columns;  // none is less than a vector
        side = group > 1 ? whole(group) : 1;
        lanes = side * columns;
        rows = std::min(total, rows_per_tile(job));
        if (job.band) {
            const Int most = job.tile / 4;  // so that points fit into a processor's first cache
            // measured, as the limits of ``alone`` are
            const bool few = job.dofs * 2 <= W && (job.dofs == 1 || job.window_steps > 1 || length <= 64);
            group = std::clamp(most / length, Int(1), job.batch);
            side = 1;
            if (few && !own && group > 1) {
                group = std::min(std::max(group / W * W, W), job.batch);
                side = whole(group);
            }
            lanes = side * columns;
            rows = std::min(total, std::max(most / lanes, LEAST_ROWS));
            parts = rows && side == 1 ? (total + rows - 1) / rows : 1;
            if (blocks > 1 || parts > 1) group = 1;
        }
        ordered = job.band && side == 1;
    }

    Int lines() const { return side > 1 ? 1 : group; }  // at most, of a tile

    Int rows_per_tile(const Job& job) const { return std::max(job.tile / lanes, LEAST_ROWS); }

    Int items(const Job& job) const { return (job.batch + group - 1) / group * blocks * parts; }

    // The first tile of an item.
    Tile tile(const Job& job, Int item) const {
        const Int row = item % parts * rows;
        item /= parts;
        Tile tile = {item / blocks * group, 0, item % blocks * columns, 0, row, rows, side, lanes};
        tile.group = std::min(group, job.batch - tile.batch);
        tile.columns = std::min(columns, job.dofs - tile.column);
        tile.lanes = side * tile.columns;
        return tile;
    }
};

// Calls ``strip`` with the first lane of each vector of a row.
template <class Strip>
inline void for_strips(Int lanes, Strip strip) {
    for (Int column = (lanes - 1) / W * W; column >= 0; column -= W) strip(column);
}

// Copies a few elements without a call, in pieces; the last piece may overlap the one before.
template <class T>
inline void copy(T* to, const T* from, Int count) {
    auto pieces = [&](auto size) {
        for (Int i = 0; i + size < count; i += size) std::memcpy(to + i, from + i, bytes<T>(size));
        std::memcpy(to + count - size, from + count - size, bytes<T>(size));
    };
    if (constexpr std::integral_constant<Int, 16 / sizeof(T)> size; count >= size)
        pieces(size);
    else if (count >= 2)
        pieces(std::integral_constant<Int, 2>());
    else
        pieces(std::integral_constant<Int, 1>());
}

// Stores the first ``lanes`` of a vector.
template <class Out>
inline void put(Out* to, Vec values, Int lanes) {
    if (lanes >= W) return store(to, values);
    Out few[W];
    store(few, values);
    copy(to, few, lanes);
}

// -- inputs -----------------------------------------------------------------------------------

inline const char* element(const Array& array, Int batch, Int row, Int column) {
    return static_cast<const char*>(array.data) + batch * array.stride[0] + row * array.stride[1] +
           column * array.stride[2];
}

// Reads rows of an array as lanes of doubles: those of one trajectory as they lie, those of several
// transposed. Steps, which all dofs share, and parts of states are read in the same way.
class Lanes {
public:
    // ``rows`` is the largest number that the method of that name reads at once.
    Lanes(Run& run, const Tiling& tiling, const Array& array, Int rows, const Array& index = {})
        : shared(array.stride[0] == 0 && !index.data),
          run_(run),
          array_(array),
          index_(index),
          even_(array.stride[1] == 0),
          lanes_((even_ ? 1 : rows) * tiling.lanes) {}

    // Returns rows; zeros without an array.
    Rows<const double> rows(const Tile& tile, Int row, Int rows) {
        if (even_) row = 0, rows = std::min(rows, Int(1));
        if (!array_.data || rows <= 0) return {lanes_.at, 0};
        const std::array<Int, 5> place = {shared ? 0 : tile.batch, tile.group, tile.column, row, rows};
        if (place != place_) copy(tile, row, rows, lanes_.at, !run_.job.allow_nonfinite);
        place_ = place;
        return {lanes_.at, even_ ? 0 : tile.lanes};
    }

    // Copies rows to memory of the caller, with a pitch of tile.lanes, times the scale of each lane or,
    // of one trajectory, of all. Returns false where a value is not finite, if that is to be checked.
    bool copy(const Tile& tile, Int row, Int rows, double* to, bool check,
              const double* scale = nullptr) {
        if (!array_.data) return std::fill_n(to, rows * tile.lanes, 0.0), true;
        Mask faults = {}, *const checks = check ? &faults : nullptr;
        (this->*(array_.type ? &Lanes::copy_as<double> : &Lanes::copy_as<float>))(
            tile, row, rows, to, tile.side == 1 && scale ? *scale : 1.0, checks);
        for (Int t = 0; tile.side > 1 && scale && t < rows; t++, to += tile.lanes)
            for (Int e = 0; e < tile.lanes; e += W) store(to + e, load(to + e) * load(scale + 4 * e));
        const bool finite = !any(faults);
        if (!finite && !run_.job.allow_nonfinite) run_.status = NOT_FINITE;
        return finite;
    }

    const bool shared;  // by all trajectories

private:
    template <class T>
    void copy_as(const Tile& tile, Int row, Int rows, double* to, double scale, Mask* faults) {
        const Int size = sizeof(T), next = array_.stride[0] / size, pitch = array_.stride[1] / size;
        const Int count = tile.columns * rows, whole = pitch == tile.columns ? rows : 1;
        if (tile.side == 1) return read<T>(tile, tile.batch, row, rows, to, scale, faults);
        if (index_.data || (tile.columns > 1 && array_.stride[2] != size)) {
            line_.reserve(tile.group * count);
            for (Int g = 0; g < tile.group; g++)
                read<T>(tile, tile.batch + g, row, rows, line_.at + g * count, 1.0, nullptr);
            transpose<double, double>({line_.at, count}, tile.group, count, {to, tile.side});
        } else {
            auto from = reinterpret_cast<const T*>(element(array_, tile.batch, row, tile.column));
            for (Int t = 0; t < rows; t += whole, from += pitch)
                transpose<T, double>({from, next}, tile.group, tile.columns * whole,
                                     {to + t * tile.lanes, tile.side}, tile.group * next);
        }
        for (Int i = 0; faults && i < rows * tile.lanes; i += W)
            *faults |= load(to + i) - load(to + i) != 0.0;
    }

    // Reads rows of one trajectory, times a scale; marks what is not finite, if asked for.
    template <class T>
    void read(const Tile& tile, Int trajectory, Int row, Int rows, double* to, double scale,
              Mask* faults) {
        if (index_.data) std::memcpy(&trajectory, element(index_, trajectory, 0, 0), sizeof(Int));
        auto from = reinterpret_cast<const T*>(element(array_, trajectory, row, tile.column));
        const Int size = sizeof(T), pitch = array_.stride[1] / size, next = array_.stride[2] / size;
        const bool dense = tile.columns == 1 || next == 1, whole = dense && pitch == tile.columns;
        const Int count = dense ? tile.columns * (whole ? rows : 1) : 1;
        for (Int t = 0; t < (whole ? 1 : rows); t++)
            for (Int e = 0; e < (dense ? 1 : tile.columns); e++)
                widen(from + t * pitch + e * next, count, to + t * tile.columns + e, scale, faults);
    }

    template <class T>
    static void widen(const T* from, Int count, double* to, double scale, Mask* faults) {
        Mask here = {};
        const auto each = [&](auto checks, auto scales) INLINE {
            const auto part = [&](Int at, Int lanes) INLINE {
                Vec values = lanes < W ? all(from[at]) : load(from + at);
                if (decltype(checks)::value) here |= values - values != 0.0;
                if (decltype(scales)::value) values *= scale;
                put(to + at, values, lanes);
            };
            for (Int e = 0; e < count && count < W; e++) part(e, 1);
            for (Int e = 0; e < count && count >= W; e += W) {
                // processors do not foresee four arrays at once: fetching saves a sixth of the time
                __builtin_prefetch(from + e + 512);
                part(std::min(e, count - W), W);
            }
        };
        constexpr std::true_type yes;
        constexpr std::false_type no;
        if (!faults) return scale == 1.0 ? each(no, no) : each(no, yes);
        each(yes, yes);
        *faults |= here;
    }

    Run& run_;
    const Array array_, index_;  // the index names the state of each trajectory
    const bool even_;
    std::array<Int, 5> place_ = {};  // what was read last
    Buffer<double> lanes_, line_{0};
};

// The tiling, or a tile, of a job's steps, which all dofs share.
template <class T>
T of_steps(const Job& job, T tile) {
    if (job.dt.stride[0] == 0) tile.group = tile.side = 1;
    tile.columns = 1, tile.lanes = tile.side;
    return tile;
}

// The first steps of the trajectories of a vector of lanes.
inline Vec step_of(const Job& job, Lanes& steps, const Tile& line, Int lane) {
    const Tile tile = of_steps(job, line);
    const double* const dt = steps.rows(tile, 0, 1).at;
    return tile.side == 1 ? all(*dt) : load(dt + lane % tile.side);
}

// Lanes of position to jerk, of states or of gradients.
struct Parts {
    Parts(Run& run, const Tiling& tiling, const Array* parts, Int rows, const Array& index = {})
        : part{{run, tiling, parts[0], rows, index},
               {run, tiling, parts[1], rows, index},
               {run, tiling, parts[2], rows, index},
               {run, tiling, parts[3], rows, index}} {}

    bool shared() const {
        return std::all_of(part, part + 4, [](const Lanes& lanes) { return lanes.shared; });
    }

    // Copies one row of each part; parts lie ``pitch`` apart.
    void read(const Tile& tile, double* to, Int pitch) {
        for (int m = 0; m < 4; m++)
            std::memcpy(to + m * pitch, part[m].rows(tile, 0, 1).at, bytes<double>(tile.lanes));
    }

    Lanes part[4];
};

// -- outputs ----------------------------------------------------------------------------------

// Writes values to a file, beginning at element ``position`` of the output, and counts those that
// are not finite.
template <class Out>
void write_values(Run& run, const Output& out, const Out* from, Int position, Int count) {
    Int faults = 0;
    for (Int i = 0; i < count; i++) faults += from[i] - from[i] != 0;
    if (faults) run.faults += faults;
    const Int offset = reinterpret_cast<std::intptr_t>(out.data) + position * Int(sizeof(Out));
    const char* bytes = reinterpret_cast<const char*>(from);
    const std::lock_guard<std::mutex> turn(run.writes);
    if (int error = write_file(out.file, offset, bytes, count * Int(sizeof(Out)))) run.status = error;
}

// Writes the first ``count`` outputs of a job. Rows are computed in their final place. Where their last
// vectors would overwrite rows that are finished or belong to other threads, they are copied instead.
// Values for files are collected until the buffer is full or the next ones go elsewhere.
template <class Out>
class Writer {
public:
    // ``backwards``: rows are computed last to first.
    Writer(Run& run, const Tiling& tiling, int count, bool backwards = false)
        : run_(run),
          tiling_(tiling),
          count_(count),
          backwards_(backwards),
          apart_(tiling.blocks > 1 ||
                 (backwards && (tiling.rows < tiling.total || tiling.columns * 2 < W)) ||
                 tiling.columns * (tiling.total + 1) < W),  // less than a vector reaches
          size_(tiling.rows * whole(tiling.lanes) * (tiling.ordered ? tiling.group : 1) + W),
          lanes_(count * size_),
          room_(std::max(32 * run.job.tile / Int(sizeof(Out)), size_)) {
        for (int m = 0; m < count; m++) {
            files_ |= run.job.out[m].file >= 0;
            cut_ |= tiling.blocks > 1 && (files_ || !is_wanted(m) || run.job.dofs % 1024 == 0);
        }
        if (files_) tiles_ = std::make_unique<Buffer<Out>>(count * (room_ + W));
    }

    // Writes items [begin, end). Calls ``compute`` with every tile and the places of its rows, one
    // for each output.
    template <class Compute>
    void write_items(Int begin, Int end, Compute compute) {
        const Int total = tiling_.total, most = tiling_.rows;
        const Int count = tiling_.parts > 1 ? 1 : (total + most - 1) / most;
        for (Int item = begin; item < end; item++) {
            Tile tile = tiling_.tile(run_.job, item);
            const bool whole = tile.columns % W == 0;
            copied_ = !tiling_.ordered &&
                      (tile.side > 1 || cut_ || (!whole && (apart_ || item + 1 == end)));
            for (Int i = 0; i < count; i++) {
                if (run_.status.load(std::memory_order_relaxed)) return;
                if (count > 1) tile.row = (backwards_ ? count - 1 - i : i) * most;
                tile.rows = std::min(total - tile.row, most);
                Rows<Out> out[4];
                place(tile, out);
                compute(tile, out);
                write(tile);
            }
        }
        flush();
    }

private:
    // The place of rows, and the distances to the next trajectory and to the next row.
    struct Target {
        Out* at;
        Int next, pitch;
    };

    void place(const Tile& tile, Rows<Out>* out) {
        if (files_ && end_ + tile.group * tile.rows * tile.columns > room_) {
            flush();
            begin_ = end_ = 0;
        }
        for (int m = 0; m < count_; m++) {
            const bool direct = !copied_ && is_wanted(m);
            out[m].at = direct ? target(m, tile).at : lanes_.at + m * size_;
            out[m].pitch = copied_ ? whole(tile.lanes) : tile.columns;
            if (direct) out[m].pitch = target(m, tile).pitch;
        }
    }

    void write(const Tile& tile) {
        for (int m = 0; m < count_; m++)
            if (copied_ && is_wanted(m)) separate(lanes_.at + m * size_, tile, target(m, tile));
        if (!files_) return;
        const Int dofs = run_.job.dofs, total = tiling_.total;
        const bool cut = tile.columns < dofs, joined = !cut && tile.rows == total;
        const Int groups = joined ? 1 : tile.group, rows = cut ? tile.rows : 1;
        for (Int g = 0; g < groups; g++)
            for (Int t = 0; t < rows; t++) {
                const Int row = (tile.batch + g) * total + tile.row + t;
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
            if (run_.job.out[m].file >= 0)
                write_values(run_, run_.job.out[m], tile_at(m) + begin_, position_, end_ - begin_);
        begin_ = end_;
    }

    bool is_wanted(int m) const { return run_.job.out[m].file >= 0 || run_.job.out[m].data; }

    Out* tile_at(int m) { return tiles_->at + m * (room_ + W); }

    Target target(int m, const Tile& tile) {
        const Output& out = run_.job.out[m];
        if (out.file >= 0) return {tile_at(m) + end_, tile.rows * tile.columns, tile.columns};
        const Int dofs = run_.job.dofs, row = tile.batch * tiling_.total + tile.row;
        return {static_cast<Out*>(out.data) + row * dofs + tile.column, tiling_.total * dofs,
                dofs};
    }

    static void separate(const Out* from, const Tile& tile, Target to) {
        if (tile.side > 1)
            return transpose<Out, Out>({from, tile.side}, tile.rows * tile.columns, tile.group,
                                       {to.at, to.next}, 0, tile.group * to.next);
        for (Int t = 0; t < tile.rows; t++, from += whole(tile.lanes), to.at += to.pitch)
            for (Int d = 0; d < tile.columns; d++) to.at[d] = from[d];
    }

    Run& run_;
    const Tiling& tiling_;
    const int count_;
    const bool backwards_, apart_;  // apart_: only rows of whole vectors are computed in place
    // whether rows of blocks have other pitches in some outputs, or one at which caches are narrow
    bool cut_ = false;
    bool copied_ = false;  // whether the current tile is copied
    const Int size_;
    Buffer<Out> lanes_;
    // elements waiting for each file: their range in tiles_, and their position in the file
    bool files_ = false;
    const Int room_;
    Int begin_ = 0, end_ = 0, position_ = 0;
    std::unique_ptr<Buffer<Out>> tiles_;
};

// Writes a state, whose parts lie ``pitch`` apart, as the first row of all outputs, and advances the
// outputs to the next row.
template <class Out>
void write_start(const Tile& tile, const double* state, Int pitch, Rows<Out>* out) {
    for (int m = 0; m < 4; m++, out++, state += pitch) {
        for_strips(tile.lanes,
                   [&](Int column) { store(out->at + column, load(state + column)); });
        out->at += out->pitch;
    }
}

// Writes a part of a state's gradient from the lanes of a tile to its place in [B, D].
inline void write_state(const Job& job, Address to, const Tile& tile, const double* lanes) {
    double* const place = static_cast<double*>(to) + tile.batch * job.dofs + tile.column;
    if (to)
        transpose<double, double>({lanes, tile.side}, tile.columns, tile.group, {place, job.dofs});
}

}  // namespace LEVEL
