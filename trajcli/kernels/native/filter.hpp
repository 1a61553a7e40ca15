// Bands whose rows are one sum at every place, and their adjoint, in the order of memory: see Band in
// kernels/program.py. Included by level.hpp after tile.hpp.
//
// The points of a trajectory, [point, dof], are one line of doubles. Element e of its rows is a sum
// over elements e + i * dofs of the line, so that vectors are full whatever the number of dofs. Only
// rows near the ends, and those of steps within a knot, are computed row by row.

#define INLINE __attribute__((always_inline))

namespace LEVEL {

// The window of a row: Windows in kernels/program.py.
class Windows {
public:
    Windows(const Job& job, Int row)
        : steps_(job.window_steps),
          shift_(job.window_shift),
          last_(job.window_last),
          row_(row + job.window_offset),
          segment_(steps_ == 1 ? row_ : (row_ >= 0 ? row_ : row_ - steps_ + 1) / steps_) {}

    Int first() const { return std::max(std::min(segment_ - shift_, last_), Int(0)); }
    Int kind() const { return row_ - steps_ * first(); }

private:
    const Int steps_, shift_, last_, row_, segment_;
};

inline Int first_point(const Job& job, Int row) { return Windows(job, row).first(); }

// The first row whose window begins at ``point`` or later.
inline Int first_row(const Job& job, Int point) {
    const Int row = (point + job.window_shift) * job.window_steps - job.window_offset;
    return point <= 0                  ? 0
           : point > job.window_last   ? job.window_count
                                       : std::clamp(row, Int(0), job.window_count);
}

// A kind of row: the point that its position is based on, the range of differences that have
// weights, and, of rows that are symmetric about their base, how many points on each side.
struct Kind {
    Int base, begin, end, pairs;
};

inline const Kind* kinds_of(const Job& job) { return static_cast<const Kind*>(job.kinds); }

// The rows of a job that the same weights make of the windows that follow each other: those of
// ``kind``, whose windows begin ``begin`` points before the number of the row.
struct Inner {
    Int kind, begin, end;
    bool fits;

    explicit Inner(const Job& job)
        : kind(job.window_shift),
          begin(job.window_shift - job.window_offset),
          end(std::min(begin + job.window_last + 1, job.window_count)),
          fits(job.degree && !job.table) {
        if (job.window_steps > 1 || fits) begin = end = job.window_count;
    }

    bool has(Int row) const { return row >= begin && row < end; }

    // How many windows after each other have ``rows`` of the same kinds, at most ``left`` in all.
    Int knots(const Job& job, const Windows& window, Int rows, Int left) const {
        const Int steps = job.window_steps;
        const bool whole = steps > 1 && rows == steps && window.kind() == job.window_shift * steps;
        return whole ? std::max(std::min(left / steps, job.window_last - window.first()), Int(1)) : 1;
    }

    // Behind the last row from ``row`` on that is alike: inner, or with the same first point. Fits
    // are all alike.
    Int after(const Job& job, Int row, Int first) const {
        if (has(row) || fits) return end;
        const Int next = first_row(job, first + 1);
        return row < begin ? std::min(next, begin) : next;
    }
};

// Adds lanes of a vector to values.
inline void add(double* to, Vec values, Int lanes = W) {
    if (lanes >= W) return store(to, load(to) + values);
    for (Int i = 0; i < lanes; i++) to[i] += values[i];
}

// Stores the first ``lanes`` of a vector.
template <class Out>
inline void put(Out* to, Vec values, Int lanes) {
    if (lanes >= W) return store(to, values);
    Out few[W];
    store(few, values);
    copy(to, few, lanes);
}

typedef decltype(Vec{} > Vec{}) Mask;

inline bool any(Mask mask) {
    Int some = 0;
    for (Int i = 0; i < W; i++) some |= mask[i];
    return some;
}

// Stretches of elements that are computed alike: how many, and the distances from one to the next of
// points, of the steps after them and of each output's rows. The first step is at ``step``.
struct Stretches {
    Int number, points, steps, step, rows[4];
};

// Calls ``rule`` for vectors of ``count`` elements of each stretch, with the places of their points and
// steps, and writes the four that it returns. The last vector may overlap the one before.
template <class Out, class Rule>
inline void for_elements(Int count, const Stretches& all, const Rows<Out>* out, Rule rule) {
    for (Int i = 0; i < all.number; i++) {
        Out* const to[4] = {out[0].at + i * all.rows[0], out[1].at + i * all.rows[1],
                            out[2].at + i * all.rows[2], out[3].at + i * all.rows[3]};
        Vec x[4];
        for (Int e = 0; e < count && count >= W; e += W) {
            const Int at = std::min(e, count - W);
            rule(i * all.points + at, all.step + i * all.steps + at, x);
            for (int m = 0; m < 4; m++) store(to[m] + at, x[m]);
        }
        if (count >= W) continue;
        rule(i * all.points, all.step + i * all.steps, x);
        for (int m = 0; m < 4; m++) put(to[m], x[m], count);
    }
}

// Calls ``work`` with a count, as a constant if it is one of these.
template <Int... CONSTANTS, class Work>
inline void with_constant(Int count, Work work) {
    if (!((count == CONSTANTS && (work(std::integral_constant<Int, CONSTANTS>()), true)) || ...))
        work(count);
}

template <class Count>
constexpr Int constant_of = 0;
template <Int COUNT>
constexpr Int constant_of<std::integral_constant<Int, COUNT>> = COUNT;

// Weights as vectors: in registers if their number, a multiple of four, is a constant.
template <Int COUNT>
class Weights {
public:
    explicit Weights(const double* from) : from_(from) {
        for (Int i = 0; i < COUNT; i++) held_[i] = all(from[i]);
    }
    Vec operator[](Int i) const {
        if constexpr (COUNT) return held_[i];
        return all(from_[i]);
    }

private:
    const double* from_;
    Vec held_[std::max(COUNT, Int(1))];
};

// -- points -----------------------------------------------------------------------------------

// Rows of an array, as doubles; zeros without an array.
class Source {
public:
    explicit Source(const Array& array = {}, const Array& index = {})
        : array_(array), index_(index), shared(array.stride[0] == 0 && !index.data) {
        if (is_plain<float>(array) && array.stride[2] == sizeof(float)) plain_ = 1;
        if (is_plain<double>(array) && array.stride[2] == sizeof(double)) plain_ = 2;
    }

    // Marks faults where values are not finite, if asked for.
    void read(Int trajectory, Int row, Int column, Int rows, Int columns, double* to,
              Mask* faults = nullptr) const {
        if (!array_.data) return static_cast<void>(std::fill_n(to, rows * columns, 0.0));
        if (index_.data) std::memcpy(&trajectory, element(index_, trajectory, 0, 0), sizeof(Int));
        const char* from = element(array_, trajectory, row, column);
        if (plain_ && array_.stride[1] == columns * 4 * plain_) columns *= rows, rows = 1;
        for (; rows > 0; rows--, from += array_.stride[1], to += columns)
            if (plain_ == 1)
                widen(reinterpret_cast<const float*>(from), columns, to, faults);
            else if (plain_ == 2)
                widen(reinterpret_cast<const double*>(from), columns, to, faults);
            else
                convert(array_, from, columns, to), widen<double>(to, columns, to, faults);
    }

private:
    template <class T>
    static void widen(const T* from, Int count, double* to, Mask* faults) {
        Mask here = {};
        const auto part = [&](Int at, Int lanes, auto checks) INLINE {
            const Vec values = lanes < W ? all(from[at]) : load(from + at);
            if (decltype(checks)::value) here |= values - values != 0.0;
            put(to + at, values, lanes);
        };
        const auto each = [&](auto checks) INLINE {
            for (Int e = 0; e < count && count < W; e++) part(e, 1, checks);
            for (Int e = 0; e < count && count >= W; e += W) {
                // processors lose track of four arrays at once: this saves a sixth of the time
                __builtin_prefetch(from + e + 512);
                part(std::min(e, count - W), W, checks);
            }
        };
        faults ? each(std::true_type()) : each(std::false_type());
        if (faults) *faults |= here;
    }

    Array array_, index_;  // the index names the state of each trajectory
    Int plain_ = 0;        // 1: floats side by side, 2: doubles

public:
    bool shared;
};

// The states of trajectories, one after another: four parts of as many columns as a tile has.
class State {
public:
    State(Run& run, const Tiling& tiling, const Array* parts, const Array& index)
        : run_(run), columns_(tiling.columns), values_(4 * tiling.columns) {
        for (int m = 0; m < 4; m++) {
            part_[m] = Source(parts[m], index);
            shared &= part_[m].shared;
        }
    }

    void read(const Tile& tile, Int trajectory) {
        const Int place = (shared ? 0 : trajectory) * run_.job.dofs + tile.column;
        if (place == place_) return;
        Mask faults = {};
        for (int m = 0; m < 4; m++)
            part_[m].read(trajectory, 0, tile.column, 1, tile.columns, values_.at + m * columns_,
                          &faults);
        if (run_.job.finite && any(faults)) run_.status = NOT_FINITE;
        place_ = place;
    }

    const double* part(int m) const { return values_.at + m * columns_; }

    bool shared = true;  // by all trajectories

private:
    Run& run_;
    const Int columns_;
    Buffer<double> values_;
    Source part_[4];
    Int place_ = -1;
};

// The layout of a job's points, for both directions.
struct Points {
    Int actions, held, tail, count;  // where each kind begins, and the number of all

    explicit Points(const Job& job)
        : actions(job.head_count),
          held(actions + job.used),
          tail(held + job.held),
          count(tail + job.tail_count) {}
};

// Calls ``use`` with the factor of each part of a state in a point of the head or the tail.
template <class Use>
void for_parts(const Job& job, Address table, Int point, double dt, Use use) {
    const double spacing = static_cast<double>(job.spacing) * dt;
    double power = 1.0;
    for (int m = 0; m < 4; m++, power *= spacing)
        if (const double c = static_cast<const double*>(table)[point * 4 + m]; c != 0.0)
            use(m, c * power);
}

inline double step(const Job& job, Int trajectory, Int row) {
    double dt;
    std::memcpy(&dt, element(job.dt, trajectory, row, 0), sizeof dt);
    return dt;
}

// The points of a tile's trajectories, one after another.
class Line {
public:
    Line(Run& run, const Tiling& tiling)
        : start(run, tiling, run.job.start, run.job.start_index),
          job_(run.job),
          points_(job_),
          actions_(job_.actions),
          goal_(run, tiling, job_.goal, job_.goal_index),
          values_(std::min(tiling.rows / job_.window_steps + 2 + job_.width, points_.count) *
                  tiling.columns * tiling.group) {}

    // Returns points [from, stop).
    const double* read(const Tile& tile, Int from, Int stop) {
        if (from != from_ || stop != stop_ || tile.column != column_) filled_ = 0, finite_ = true;
        from_ = from, stop_ = stop, column_ = tile.column, faults_ = Mask{};
        for (Int g = 0; g < tile.group; g++) read(tile, g);
        filled_ = std::max(filled_, tile.group);
        finite = finite_ && !any(faults_);
        return values_.at;
    }

    State start;
    bool finite;  // all of the points

private:
    void read(const Tile& tile, Int g) {
        const Int columns = tile.columns, trajectory = tile.batch + g;
        double* const line = values_.at + g * (stop_ - from_) * columns;
        const auto at = [&](Int point) { return line + (point - from_) * columns; };
        place(tile, g, job_.head, start, 0, from_, std::min(stop_, points_.actions), at(from_));
        const Int action = std::max(from_, points_.actions), end = std::min(stop_, points_.held);
        const Int held = std::max(from_, points_.held), tail = std::min(stop_, points_.tail);
        const auto actions = [&](Int row, Int rows, double* to) {
            actions_.read(trajectory, row, tile.column, rows, columns, to, &faults_);
        };
        if (action < end) actions(action - points_.actions, end - action, at(action));
        if (held < tail) actions(job_.used - 1, 1, at(held));
        for (Int i = held + 1; i < tail; i++) copy(at(i), at(held), columns);
        const Int goal = std::max(from_, points_.tail);
        place(tile, g, job_.tail, goal_, points_.tail, goal, stop_, at(goal));
    }

    // Places points [from, end) that are made of a state, unless they are there.
    void place(const Tile& tile, Int g, Address table, State& state, Int origin, Int from, Int end,
               double* to) {
        if (from >= end || (g < filled_ && state.shared && !job_.dt.stride[0])) return;
        const double dt = step(job_, tile.batch + g, 0);
        state.read(tile, tile.batch + g);
        for (; from < end; from++, to += tile.columns) {
            std::fill_n(to, tile.columns, 0.0);
            for_parts(job_, table, from - origin, dt, [&](int m, double factor) {
                for (Int d = 0; d < tile.columns; d++) to[d] += factor * state.part(m)[d];
            });
            for (Int d = 0; d < tile.columns; d++) finite_ &= to[d] - to[d] == 0.0;
        }
    }

    const Job& job_;
    const Points points_;
    const Source actions_;
    State goal_;
    Buffer<double> values_;
    Int from_ = 0, stop_ = 0, column_ = 0;
    Int filled_ = 0;       // trajectories whose points of states are there
    bool finite_ = true;   // whether all of these were
    Mask faults_ = {};     // of actions
};

// -- equal steps --------------------------------------------------------------------------------

// Weights of as many rows as fill a vector, side by side, for rows that share a window: those of
// the first kinds, and of the kinds after that of inner rows.
class Wide {
public:
    // length: of the weights of a kind
    Wide(const Job& job, Int length, Int columns)
        : length_(length),
          kinds_(std::max((job.window_shift + 1) * job.window_steps,
                          job.window_count ? Windows(job, job.window_count - 1).kind() + 1 : 0)),
          middle_(job.window_steps > 1 ? kinds_ : job.window_shift + 1),
          rows(kinds_ * length <= MOST && !job.adjoint ? std::max(W / columns, Int(1)) : 1),
          values_(rows > 1 ? (kinds_ / rows + 2) * length * W : 0) {
        for (Int kind = 0; rows > 1 && kind < kinds_; kind++)
            if (Vec* to = place(kind))
                for (Int i = 0; i < length; i++)
                    for (Int lane = 0; lane < rows * columns; lane++) {
                        const Int of = std::min(kind + lane / columns, kinds_ - 1);
                        to[i][lane] = static_cast<const double*>(job.table)[of * length + i];
                    }
    }

    // The weights of kinds from ``kind`` on, or null.
    const Vec* of(Int kind) const { return place(kind); }

private:
    static constexpr Int MOST = 4096;

    Vec* place(Int kind) const {
        const Int after = kind - middle_, first = after < 0 ? kind : after;
        if (rows == 1 || first % rows) return nullptr;
        const Int begin = after < 0 ? 0 : (middle_ + rows - 1) / rows;
        return reinterpret_cast<Vec*>(values_.at) + (begin + first / rows) * length_;
    }

    const Int length_, kinds_, middle_;

public:
    const Int rows;

private:
    Buffer<double> values_;
};

// Computes rows by a job's table of weights, which are for points one unit apart, and divides by
// powers of the spacing.
//
// SPARING is for points that are not all finite: what has no weight is left out. Finite elements get
// the same bits either way.
class Even {
public:
    static constexpr int CHANNELS = 4;  // of upstream: its parts

    Even(Run& run, const Tiling& tiling)
        : run_(run),
          job_(run.job),
          columns_(tiling.columns),
          wide_(job_, (job_.width - 1) * 4, columns_),
          changes_(job_.width * W) {}

    // Takes the steps of a trajectory.
    void prepare(const Tile& tile, Int trajectory, Int, Int) {
        columns_ = tile.columns;
        const double dt = step(job_, trajectory, 0), spacing = static_cast<double>(job_.spacing) * dt;
        if (dt == dt_) return;
        if (job_.finite && dt - dt != 0.0) run_.status = NOT_FINITE;
        dt_ = dt;
        double power = 1.0;
        for (double& scale : scale_) scale = 1.0 / power, power *= spacing;
    }

    // Computes stretches of ``count`` elements of rows of one kind; the first window begins at
    // ``point``.
    template <bool SPARING, class Out>
    void follow(Int kind, const double* point, Int count, const Stretches& all,
                const Rows<Out>* out) const {
        const Kind& of = kinds_of(job_)[kind];
        const auto run = [&](auto copies) {
            constexpr bool COPIES = decltype(copies)::value;
            if (SPARING)
                of.pairs ? pairs<true, COPIES>(kind, of.pairs, point, count, all, out)
                         : differences<true, COPIES>(kind, of.end - of.begin, point, count, all, out);
            else if (of.pairs)
                with_constant<2>(of.pairs, [&](auto number) {
                    pairs<false, COPIES>(kind, number, point, count, all, out);
                });
            else
                with_constant<3, 4>(of.end - of.begin, [&](auto number) {
                    differences<false, COPIES>(kind, number, point, count, all, out);
                });
        };
        job_.copies ? run(std::true_type()) : run(std::false_type());
    }

    // Computes, of each stretch, rows of kinds that follow each other and share the window that begins
    // at ``point``.
    template <bool SPARING, class Out>
    void share(Int, Int kind, const double* point, Int rows, const Stretches& all,
               const Rows<Out>* out) const {
        for (Int t = 0; SPARING && t < rows; t++) {
            const Rows<Out> to[4] = {out[0].from(t, 0), out[1].from(t, 0), out[2].from(t, 0),
                                     out[3].from(t, 0)};
            follow<true>(kind + t, point, columns_, all, to);
        }
        if (SPARING) return;
        const Vec* wide = rows > 1 ? wide_.of(kind) : nullptr;
        const double* single = weights_of(kind);
        // positions are based on the rows' own points, or all on one
        const Kind* kinds = kinds_of(job_) + kind;
        const bool own = rows > 1 && kinds[0].base != kinds[1].base;
        for (Int t = 1; t < rows; t++)
            if (kinds[t].base != kinds[0].base + own * t) wide = nullptr;
        with_constant<3, 4, 5>(job_.width - 1, [&](auto gaps) {
            const auto some = [&](Int side, auto value, auto weight) {
                share(gaps, kind, point, rows, side, all, out, value, weight);
            };
            const auto side_by_side = [=](Int k, Int i) INLINE { return wide[k * gaps * 4 + i]; };
            if (!wide)
                some(1, [](const double* of) INLINE { return load(of); },
                     [=](Int k, Int i) INLINE { return single[k * gaps * 4 + i] - Vec{}; });
            else if (columns_ == 1)
                some(W, [](const double* of) INLINE { return *of - Vec{}; }, side_by_side);
            else
                some(wide_.rows, [&](const double* of) { return repeat(of); }, side_by_side);
        });
    }

    void pull(Int, double*, Int, Int, Int) const {}  // channels are upstream itself

    // Calls ``use`` with the channel, the point and the factor of each that a row's points take.
    template <class Use>
    void for_weights(Int kind, Use use) const {
        for (int m = 0; m < 4; m++)
            for (Int i = 0; job_.upstream[m].data && i < job_.width; i++)
                if (const double weight = points_of(kind)[m * job_.width + i]; weight != 0.0)
                    use(m, i, weight * scale_[m]);
    }

    // Adds to the gradients of points [begin, end) of a window that rows share. ``finite``: all of
    // upstream.
    void spread(Int, Int kind, const double* channels, Int size, Int rows, Int, bool finite, double* points,
                Int begin, Int end, Int knots) const {
        for (; knots > 0; knots--, channels += rows * columns_, points += columns_)
            finite ? spread<false>(kind, channels, size, rows, points, begin, end)
                   : spread<true>(kind, channels, size, rows, points, begin, end);
    }

private:
    template <bool SPARING>
    void spread(Int kind, const double* channels, Int size, Int rows, double* points, Int begin,
                Int end) const {
        const Int width = job_.width;
        const auto times = [](Vec weight, Vec x) INLINE {
            return SPARING ? (weight != 0.0 ? weight * x : Vec{}) : weight * x;
        };
        const auto side_by_side = [&](auto number) {  // points, of one dof
            constexpr Int N = decltype(number)::value;
            for (Int i = begin; i < end; i += N * W) {
                const double* weights = points_of(kind) + i;
                Vec sum[N];
                for (Vec& value : sum) value = Vec{};
                for (Int t = 0; t < rows; t++)
                    for (int m = 0; m < 4; m++, weights += width) {
                        const Vec x = all(channels[m * size + t] * scale_[m]);
                        for (int n = 0; n < N; n++) sum[n] += times(load(weights + n * W), x);
                    }
                for (Int n = 0; n < N && i + n * W < end; n++)
                    add(points + i + n * W, sum[n], end - i - n * W);
            }
        };
        if (columns_ == 1 && width <= 2 * W) return side_by_side(std::integral_constant<Int, 2>());
        if (columns_ == 1) return side_by_side(std::integral_constant<Int, 4>());
        with_constant<4, 5, 6>(width, [&](auto number) {
            constexpr Int N = constant_of<decltype(number)> ? constant_of<decltype(number)> : 5;
            for (Int e = 0; e < columns_; e += W)
                for (Int i = 0; i < width; i += N) {
                    const double *weights = points_of(kind) + i, *at = channels + e;
                    Vec sum[N];
                    for (Vec& value : sum) value = Vec{};
                    for (Int t = 0; t < rows; t++, at += columns_)
                        for (int m = 0; m < 4; m++, weights += width) {
                            const Vec x = load(at + m * size) * scale_[m];
                            for (Int n = 0; n < N; n++) sum[n] += times(all(weights[n]), x);
                        }
                    for (Int n = 0; n < N; n++)
                        if (i + n >= begin && i + n < end)
                            add(points + (i + n) * columns_ + e, sum[n], columns_ - e);
                }
        });
    }

    // side: how many rows are computed side by side. value: of a point, for all of these.
    template <class Gaps, class Out, class Value, class Weight>
    void share(Gaps gaps, Int kind, const double* point, Int rows, Int side, const Stretches& all,
               const Rows<Out>* out, Value value, Weight weight) const {
        const Kind* kinds = kinds_of(job_) + kind;
        const bool own = rows > 1 && kinds[0].base != kinds[1].base, copies = job_.copies;
        // where stretches lie one after another, what is behind is written later
        Int left = all.number * rows * columns_;
        for (int m = 0; m < 4; m++) left = all.rows[m] == rows * columns_ ? left : 0;
        const Vec scale[4] = {{}, scale_[1] - Vec{}, scale_[2] - Vec{}, scale_[3] - Vec{}};
        Vec held[constant_of<Gaps> + 1];
        Vec* const changes = constant_of<Gaps> ? held : reinterpret_cast<Vec*>(changes_.at);
        Rows<Out> to[4] = {out[0], out[1], out[2], out[3]};
        for (Int s = 0; s < all.number; s++, point += all.points) {
            for (Int e = 0; e < side * columns_; e += W) {
                const Int at = columns_ < W ? 0 : std::min(e, columns_ - W);
                Vec here = value(point + at);
                for (Int i = 0; i < gaps; i++) {
                    const Vec next = value(point + (i + 1) * columns_ + at);
                    changes[i] = next - here, here = next;
                }
                Out* at_row[4] = {to[0].at + at, to[1].at + at, to[2].at + at, to[3].at + at};
                for (Int t = 0, k = 0; t < rows; t += side, k++) {
                    Vec sum[4] = {};
                    for (Int i = 0; i < gaps; i++)
                        for (int m = 0; m < 4; m++) {
                            const Vec part = weight(k, i * 4 + m) * changes[i];
                            sum[m] = i ? sum[m] + part : part;
                        }
                    const double* base = point + kinds[t].base * columns_ + at;
                    const Vec x = own ? load(base) : value(base);
                    sum[0] = copies ? x : x + sum[0];
                    for (int m = 1; m < 4; m++) sum[m] *= scale[m];
                    const bool full = columns_ >= W || left - t * columns_ >= W;
                    const Int lanes = full ? W : std::min(side, rows - t) * columns_;
                    for (int m = 0; m < 4; m++) {
                        lanes >= W ? store(at_row[m], sum[m]) : put(at_row[m], sum[m], lanes);
                        at_row[m] += side * to[m].pitch;
                    }
                }
            }
            left -= rows * columns_;
            for (int m = 0; m < 4; m++) to[m].at += all.rows[m];
        }
    }

    // The values of one point for as many rows as are side by side.
    Vec repeat(const double* point) const {
        double values[W] = {};
        for (Int lane = 0; lane + columns_ <= W; lane += columns_)
            for (Int d = 0; d < columns_; d++) values[lane + d] = point[d];
        return load(values);
    }

    const double* weights_of(Int kind) const {
        return static_cast<const double*>(job_.table) + kind * (job_.width - 1) * 4;
    }

    const double* points_of(Int kind) const {
        return static_cast<const double*>(job_.points) + kind * job_.width * 4;
    }

    // Weights are for sums and differences of two points, as far on either side of the base.
    template <bool SPARING, bool COPIES, class Number, class Out>
    void pairs(Int kind, Number number, const double* at, Int count, const Stretches& all,
               const Rows<Out>* out) const {
        const Weights<4 * constant_of<Number>> weights(weights_of(kind));
        const Vec scale[4] = {{}, scale_[1] - Vec{}, scale_[2] - Vec{}, scale_[3] - Vec{}};
        const Int next = columns_;
        at += kinds_of(job_)[kind].base * next;
        for_elements(count, all, out, [&](Int e, Int, Vec* x) INLINE {
            const Vec here = load(at + e);
            Vec sum[4] = {};
            for (Int k = 0; k < number; k++) {
                const Vec after = load(at + e + (k + 1) * next), before = load(at + e - (k + 1) * next);
                const Vec rise = after - before, bend = (after - here) - (here - before);
                for (int m = COPIES; m < 4; m++) {
                    const Vec weight = weights[k * 4 + m];
                    Vec part = m % 2 ? rise : bend;
                    if (SPARING && weight[0] == 0.0) part = finite_or(part, Vec{});
                    sum[m] = k ? sum[m] + weight * part : weight * part;
                }
            }
            x[0] = COPIES ? here : here + sum[0];
            for (int m = 1; m < 4; m++) x[m] = sum[m] * scale[m];
        });
    }

    // Weights are for differences of neighbouring points.
    template <bool SPARING, bool COPIES, class Number, class Out>
    void differences(Int kind, Number number, const double* at, Int count, const Stretches& all,
                     const Rows<Out>* out) const {
        const auto [base, begin, end, none] = kinds_of(job_)[kind];
        const Weights<4 * constant_of<Number>> weights(weights_of(kind) + begin * 4);
        const Vec scale[4] = {{}, scale_[1] - Vec{}, scale_[2] - Vec{}, scale_[3] - Vec{}};
        const Int next = columns_;
        const double *const own = at + base * next, *const first = at + begin * next;
        for_elements(count, all, out, [&](Int e, Int, Vec* x) INLINE {
            Vec sum[4] = {}, here[4];
            for (Vec& value : here) value = load(first + e);
            for (Int i = 0; i < number; i++) {
                const Vec after = load(first + e + (i + 1) * next);
                for (int m = COPIES; m < 4; m++) {
                    const Vec weight = weights[i * 4 + m];
                    Vec value = after, part = after - here[0];
                    if (SPARING) {
                        // a point between equal weights, or beside none, has none
                        const Vec then = i + 1 < number ? weights[i * 4 + 4 + m] : Vec{};
                        if (weight[0] == then[0]) value = finite_or(after, here[m]);
                        part = value - here[m], here[m] = value;
                        if (weight[0] == 0.0) part = finite_or(part, Vec{});
                    }
                    sum[m] = i ? sum[m] + weight * part : weight * part;
                }
                if (!SPARING) here[0] = after;
            }
            x[0] = COPIES ? load(own + e) : load(own + e) + sum[0];
            for (int m = 1; m < 4; m++) x[m] = sum[m] * scale[m];
        });
    }

    Run& run_;
    const Job& job_;
    Int columns_;
    const Wide wide_;
    Buffer<double> changes_;
    double dt_ = std::numeric_limits<double>::quiet_NaN(), scale_[4];
};

// -- unequal steps ------------------------------------------------------------------------------

// Computes rows where steps differ: derivatives of the polynomial through five points, in Newton's
// form by Horner's rule. This takes differences of points and sums of gaps; it subtracts no times,
// which would lose digits where neighbouring steps differ by many orders of magnitude.
class Uneven {
public:
    static constexpr int CHANNELS = 5;  // of upstream: see pull

    Uneven(Run& run, const Tiling& tiling)
        : run_(run),
          job_(run.job),
          columns_(tiling.columns),
          size_((std::min(tiling.rows + 2 * job_.width + 16, Points(job_).count) + 4) * columns_ + W),
          lines_(5 * size_) {}

    // Takes the gaps after points [from, stop) of a trajectory, as many times as it has dofs, and the
    // inverses of the sums of one to four.
    void prepare(const Tile& tile, Int trajectory, Int from, Int stop) {
        if (!job_.dt.stride[0]) trajectory = 0;
        const Int columns = tile.columns;
        if (trajectory == trajectory_ && from == from_ && stop == stop_ && columns == columns_) return;
        trajectory_ = trajectory, from_ = from, stop_ = stop, columns_ = columns;
        const Int lead = std::max(job_.head_count - 1, Int(0)), count = stop - from;
        for (Int i = 0; i < count + 4; i++) {
            const Int row = std::clamp(from + i - lead, Int(0), job_.steps - 1);
            const double gap = step(job_, trajectory, row);
            if (job_.finite && gap - gap != 0.0) run_.status = NOT_FINITE;
            std::fill_n(lines_.at + i * columns, columns, gap);
        }
        for (Int e = 0; e < count * columns; e += W) {
            Vec sum = {};
            for (Int k = 0; k < 4; k++) {
                sum += load(lines_.at + e + k * columns);
                store(lines_.at + (k + 1) * size_ + e, 1.0 / sum);
            }
        }
    }

    template <bool SPARING, class Out>
    void follow(Int kind, const double* point, Int count, const Stretches& all,
                const Rows<Out>* out) const {
        const Int next = columns_;
        with_base(kind, [&](auto base) {
            for_elements(count, all, out, [&](Int e, Int gap, Vec* x) INLINE {
                const double* at = point + e;
                const Times times(*this, base, gap);
                Vec change[4];
                for (int j = 0; j < 4; j++, at += next)
                    change[j] = (load(at + next) - load(at)) * times.inverse(0, j);
                for (int k = 1; k < 4; k++)  // place k gets the divided difference of points 0 to k + 1
                    for (int j = 3; j >= k; j--)
                        change[j] = (change[j] - change[j - 1]) * times.inverse(k, j - k);
                Vec sum = change[3], velocity = {}, half = {}, sixth = {};  // acceleration / 2, jerk / 6
                for (int k = 3; k >= 0; k--) {
                    sixth = sixth * times.since[k] + half;
                    half = half * times.since[k] + velocity;
                    velocity = velocity * times.since[k] + sum;
                    if (k > 0) sum = sum * times.since[k] + change[k - 1];
                }
                x[0] = load(point + e + base * next);
                x[1] = velocity, x[2] = 2.0 * half, x[3] = 6.0 * sixth;
            });
        });
    }

    template <bool SPARING, class Out>
    void share(Int, Int kind, const double* point, Int rows, const Stretches& all,
               const Rows<Out>* out) const {
        for (Int t = 0; t < rows; t++) {
            const Rows<Out> to[4] = {out[0].from(t, 0), out[1].from(t, 0), out[2].from(t, 0),
                                     out[3].from(t, 0)};
            follow<SPARING>(kind + t, point, columns_, all, to);
        }
    }

    // The transpose of follow, step by step from its end, up to the differences of points.
    void pull(Int kind, double* channels, Int size, Int count, Int gap) const {
        with_base(kind, [&](auto base) {
            for (Int e = 0; e < count; e += W, channels += W) {
                const Times times(*this, base, gap + e);
                Vec sum = {}, velocity = load(channels + size), half = 2.0 * load(channels + 2 * size);
                Vec sixth = 6.0 * load(channels + 3 * size), change[4];
                for (int k = 0; k < 4; k++) {
                    if (k > 0) change[k - 1] = sum;
                    sum = sum * times.since[k] + velocity;
                    velocity = velocity * times.since[k] + half;
                    half = half * times.since[k] + sixth;
                    sixth = sixth * times.since[k];
                }
                change[3] = sum;
                for (int k = 3; k > 0; k--)
                    for (int j = k; j < 4; j++) {
                        change[j] *= times.inverse(k, j - k);
                        change[j - 1] -= change[j];
                    }
                for (int j = 0; j < 4; j++)
                    put(channels + (j + 1) * size, change[j] * times.inverse(0, j), count - e);
            }
        });
    }

    template <class Use>
    void for_weights(Int kind, Use use) const {
        use(0, kinds_of(job_)[kind].base, 1.0);
        for (Int j = 0; j < 4; j++) use(j + 1, j, -1.0), use(j + 1, j + 1, 1.0);
    }

    void spread(Int, Int kind, double* channels, Int size, Int rows, Int gap, bool, double* points, Int begin,
                Int end, Int) const {
        for (Int t = 0; t < rows; t++, channels += columns_) {
            pull(kind + t, channels, size, columns_, gap);
            for_weights(kind + t, [&](Int channel, Int i, double weight) {
                for (Int d = 0; i >= begin && i < end && d < columns_; d++)
                    points[i * columns_ + d] += weight * channels[channel * size + d];
            });
        }
    }

private:
    template <class Base>
    struct Times {
        Times(const Uneven& all, Base base, Int place)
            : next(all.columns_), size(all.size_), lines(all.lines_.at + place) {
            for (Vec& time : since) time = Vec{};
            for (int i = 0; i < 4; i++)
                if (i >= base) since[i + 1] = since[i] - load(lines + i * next);
            for (int i = 3; i >= 0; i--)
                if (i < base) since[i] = since[i + 1] + load(lines + i * next);
        }

        // Of the sum of k + 1 gaps from j on.
        Vec inverse(Int k, Int j) const { return load(lines + (k + 1) * size + j * next); }

        const Int next, size;
        const double* lines;
        Vec since[5];  // the time from each point to the base
    };

    template <class Work>
    void with_base(Int kind, Work work) const {
        with_constant<0, 1, 2, 3, 4>(kinds_of(job_)[kind].base, work);
    }

    Run& run_;
    const Job& job_;
    Int columns_;
    const Int size_;
    Buffer<double> lines_;  // of gaps, and of the inverses of sums of one to four
    Int trajectory_ = -1, from_ = 0, stop_ = 0;
};

// -- rows ---------------------------------------------------------------------------------------

template <class Out, class Rule>
void filter_rows(Run& run, Int begin, Int end) {
    const Job& job = run.job;
    const Tiling tiling(job);
    const Inner inner(job);
    Line line(run, tiling);
    Rule rule(run, tiling);
    Writer<Out> writer(run, tiling, 4);
    writer.write_items(begin, end, [&](const Tile& tile, Rows<Out>* out) {
        const bool starts = job.start_row && tile.row == 0;
        const Int columns = tile.columns, row = starts ? 0 : tile.row - job.start_row;
        const Int after = row + tile.rows - starts, from = first_point(job, row);
        const Int stop = row < after ? first_point(job, after - 1) + job.width : from;
        const double* points = line.read(tile, from, stop);
        const bool plain = line.finite;
        if (!plain && job.finite) run.status = NOT_FINITE;
        for (Int g = 0; starts && g < tile.group; g++) {
            line.start.read(tile, tile.batch + g);
            for (int m = 0; m < 4; m++)
                std::copy_n(line.start.part(m), columns, out[m].from(g * tile.rows, 0).at);
        }
        // trajectories whose steps are alike are computed together, or all steps within knots
        const Int like = job.dt.stride[0] || job.span_stride || job.window_steps > 1 ? 1 : tile.group;
        for (Int g = 0; g < tile.group; g += like) {
            rule.prepare(tile, tile.batch + g, from, stop);
            for (Int t = row, next; t < after; t = next) {
                const Windows window(job, t);
                const double* point = points + (g * (stop - from) + window.first() - from) * columns;
                next = std::min(inner.after(job, t, window.first()), after);
                Rows<Out> to[4];
                Stretches all = {like, (stop - from) * columns, 0, (window.first() - from) * columns, {}};
                for (int m = 0; m < 4; m++) {
                    to[m] = out[m].from(g * tile.rows + starts + t - row, 0);
                    all.rows[m] = tile.rows * out[m].pitch;
                }
                Int count = (next - t) * columns;
                if (inner.has(t) && tiling.blocks > 1) {  // one trajectory, row by row
                    all = {next - t, columns, columns, all.step, {}}, count = columns;
                    for (int m = 0; m < 4; m++) all.rows[m] = out[m].pitch;
                }
                const Int kind = window.kind(), rows = next - t;
                const Int knots = inner.knots(job, window, rows, after - t);
                if (knots > 1) {
                    all = {knots, columns, 0, 0, {}}, next = t + knots * rows;
                    for (int m = 0; m < 4; m++) all.rows[m] = rows * out[m].pitch;
                }
                if (inner.has(t))
                    plain ? rule.template follow<false>(kind, point, count, all, to)
                          : rule.template follow<true>(kind, point, count, all, to);
                else
                    plain ? rule.template share<false>(t, kind, point, rows, all, to)
                          : rule.template share<true>(t, kind, point, rows, all, to);
            }
        }
    });
}

// The gradient of a point is a sum over rows: of inner rows that of a filter, on a line of each
// channel of upstream, which is zero where there are none; those of other rows are added one by one.
// What has no weight is left out, so that nothing is sparing. Tiles are rows of actions.
template <class Out, class Rule>
void filter_adjoint(Run& run, Int begin, Int end) {
    const Job& job = run.job;
    const Tiling tiling(job);
    const Inner inner(job);
    const Points points(job);
    const Int reach = job.width - 1, most = tiling.rows + points.count - job.used;
    const Int size = ((most + reach) * tiling.group + reach) * tiling.columns + 8 * W;
    const Int chunk = (most + job.width) * job.window_steps, rows_size = chunk * tiling.columns + W;
    Source upstream[4];
    for (int m = 0; m < 4; m++) upstream[m] = Source(job.upstream[m]);
    Rule rule(run, tiling);
    Buffer<double> lines(Rule::CHANNELS * size), rows(Rule::CHANNELS * rows_size), values(size);
    Buffer<double> state(4 * tiling.columns), weights(4 * job.width);
    Buffer<Int> places(4 * job.width);
    std::array<Int, 3> placed = {};  // how lines were laid out last
    Writer<Out> writer(run, tiling, 1);
    writer.write_items(begin, end, [&](const Tile& tile, Rows<Out>* out) {
        // the points of these actions, with those before the first and after the last
        const bool start = tile.row == 0, uses = start || tile.row < job.used;
        const bool last = uses && tile.row + tile.rows >= job.used;
        const Int columns = tile.columns, action = points.actions + tile.row;
        const Int from = start ? 0 : action, stop = last ? points.count : action + tile.rows;
        const Int used = uses ? std::min(stop, points.held) - action : 0;
        const Int origin = std::max(from - reach, Int(0)), next = (stop - from + reach) * columns;
        // the inner rows whose windows reach these points, and where they are in a line
        const Int first = std::max({inner.begin, Int(0), from - reach + inner.begin});
        const Int inners = std::max(std::min(inner.end, stop + inner.begin) - first, Int(0));
        const Int place = (first - inner.begin - from + reach) * columns;
        const Int row = first_row(job, from - reach), after = first_row(job, stop);
        const std::array<Int, 3> layout = {place, inners, next};
        if (layout != placed) std::fill_n(lines.at, Rule::CHANNELS * size, 0.0);
        placed = layout;
        // trajectories whose steps are alike are computed together
        const Int like = job.dt.stride[0] || job.span_stride ? 1 : tile.group;
        for (Int g = 0; g < tile.group; g += like) {
            rule.prepare(tile, tile.batch + g, origin, stop);
            Int taps = 0;
            if (inners)
                rule.for_weights(inner.kind, [&](Int channel, Int point, double weight) {
                    places.at[taps] = channel * size + (reach - point) * columns;
                    weights.at[taps++] = weight;
                });
            for (Int i = 0; inners && i < like; i++) {
                double* const to = lines.at + i * next + place;
                for (int m = 0; m < 4; m++)
                    upstream[m].read(tile.batch + g + i, first + job.start_row, tile.column, inners,
                                     columns, to + m * size);
                rule.pull(inner.kind, to, size, inners * columns,
                          (first - inner.begin - origin) * columns);
            }
            for (Int e = 0; e < like * next; e += 8 * W) {
                Vec sum[8] = {};
                for (Int i = 0; i < taps; i++) {
                    const double* const at = lines.at + places.at[i] + e;
                    const Vec weight = all(weights.at[i]);
                    for (int v = 0; v < 8; v++) sum[v] += weight * load(at + v * W);
                }
                for (int v = 0; v < 8; v++) store(values.at + e + v * W, sum[v]);
            }
            for (Int i = 0; i < like; i++) {
                const Int trajectory = tile.batch + g + i;
                const auto value = [&](Int point) {
                    return values.at + i * next + (point - from) * columns;
                };
                const auto read = [&](int m, Int t, Int number, double* to, Mask* faults) {
                    upstream[m].read(trajectory, t, tile.column, number, columns, to, faults);
                };
                Mask faults = {};
                for (Int t = row, here = row, behind = row; t < after;) {
                    if (inner.has(t)) t = inner.end;
                    if (t >= after) break;
                    if (t >= behind) {
                        here = t, faults = Mask{};
                        behind = std::min({t < inner.begin ? inner.begin : after, after, t + chunk});
                        for (int m = 0; m < 4; m++)
                            read(m, t + job.start_row, behind - t, rows.at + m * rows_size, &faults);
                    }
                    const Windows window(job, t);
                    const Int point = window.first();
                    const Int then = std::min(inner.after(job, t, point), behind), number = then - t;
                    Int knots = inner.knots(job, window, number, behind - t);
                    if (point < from || point + knots + reach > stop) knots = 1;
                    rule.spread(t, window.kind(), rows.at + (t - here) * columns, rows_size, number,
                                (point - origin) * columns, !any(faults), value(point),
                                std::max(from - point, Int(0)), std::min(stop - point, job.width), knots);
                    t += knots * number;
                }
                for (Int p = points.held; last && p < points.tail; p++)  // the last action again
                    for (Int d = 0; d < columns; d++) value(points.held - 1)[d] += value(p)[d];
                const Rows<Out> to = out->from((g + i) * tile.rows, 0);
                const Int flat = to.pitch == columns ? used : 1;
                for (Int t = 0; t < used; t += flat)
                    std::copy_n(value(action + t), flat * columns, to.from(t, 0).at);
                for (Int t = used; t < tile.rows; t++) std::fill_n(to.from(t, 0).at, columns, Out(0));
                const auto gather = [&](Address table, Int number, Int p, const Address* sums, bool row) {
                    if (std::none_of(sums, sums + 4, [](Address sum) { return sum; })) return;
                    for (int m = 0; m < 4; m++) {
                        double* const sum = state.at + m * columns;
                        std::fill_n(sum, columns, 0.0);
                        if (row) read(m, 0, 1, sum, nullptr);
                    }
                    for (Int k = 0; k < number; k++)
                        for_parts(job, table, k, step(job, trajectory, 0), [&](int m, double factor) {
                            for (Int d = 0; d < columns; d++)
                                state.at[m * columns + d] += factor * value(p + k)[d];
                        });
                    for (int m = 0; m < 4; m++)
                        if (sums[m])
                            std::copy_n(state.at + m * columns, columns,
                                        static_cast<double*>(sums[m]) + trajectory * job.dofs + tile.column);
                };
                if (start) gather(job.head, job.head_count, 0, job.start_gradient, job.start_row);
                if (last) gather(job.tail, job.tail_count, points.tail, job.goal_gradient, false);
            }
        }
    });
}

}  // namespace LEVEL
