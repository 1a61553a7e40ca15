// Bands whose rows are one sum at every place, and their adjoint, in the order of memory: see Band in
// kernels/program.py. Included by level.hpp after tile.hpp.
//
// The points of a trajectory, [point, dof], are one line of doubles. Element e of its rows is a sum
// over elements e + i * dofs of the line, so that vectors are full whatever the number of dofs. Only
// rows near the ends, and those of steps within a knot, are computed row by row.

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

// The weights of a kind's points, order by order.
inline const double* points_of(const Job& job, Int kind) {
    return static_cast<const double*>(job.points) + kind * job.width * 4;
}

// The rows of a job that the same weights make of the windows that follow each other: those of
// ``kind``, whose windows begin ``begin`` points before the number of the row.
struct Inner {
    Int kind, begin, end;

    explicit Inner(const Job& job)
        : kind(job.window_shift),
          begin(job.window_shift - job.window_offset),
          end(std::min(begin + job.window_last + 1, job.window_count)) {
        if (job.window_steps > 1 || !job.table) begin = end = job.window_count;
    }

    bool has(Int row) const { return row >= begin && row < end; }

    // How many windows after each other have ``rows`` of the same kinds, at most ``left`` in all.
    Int knots(const Job& job, const Windows& window, Int rows, Int left) const {
        const Int steps = job.window_steps;
        const bool whole = steps > 1 && rows == steps && window.kind() == job.window_shift * steps;
        return whole ? std::max(std::min(left / steps, job.window_last - window.first()), Int(1)) : 1;
    }

    // Behind the last row from ``row`` on that is alike: inner, or with the same first point. Where
    // steps differ all are alike.
    Int after(const Job& job, Int row, Int first) const {
        if (has(row) || !job.table) return end;
        const Int next = first_row(job, first + 1);
        return row < begin ? std::min(next, begin) : next;
    }
};

// Adds lanes of a vector to values.
inline void add(double* to, Vec values, Int lanes = W) {
    if (lanes >= W) return store(to, load(to) + values);
    for (Int i = 0; i < lanes; i++) to[i] += values[i];
}

// Stretches of elements that are computed alike: of how many trajectories, how many of each, and the
// distances from one trajectory and from one stretch to the next, of points in elements and of rows.
struct Stretches {
    Int group, number, points[2], rows[2];
};

// Copies [rows, number, columns] to [number, rows, columns]; pitches are those of the first.
template <class T>
inline void swap_axes(Rows<const T> from, Int rows, Int number, Int columns, Rows<T> to) {
    if (columns == 1) return transpose(from, rows, number, to);
    for (Int i = 0; i < rows; i++)
        for (Int j = 0; j < number; j++)
            copy(to.from(j, i * columns).at, from.from(i, j * columns).at, columns);
}

// Calls ``work`` with a count, as a constant if it is one of these.
template <Int... CONSTANTS, class Work>
INLINE inline void with_constant(Int count, Work work) {
    if (!((count == CONSTANTS && (work(std::integral_constant<Int, CONSTANTS>()), true)) || ...))
        work(count);
}

template <class Count>
constexpr Int constant_of = 0;
template <Int COUNT>
constexpr Int constant_of<std::integral_constant<Int, COUNT>> = COUNT;

// -- points -----------------------------------------------------------------------------------

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
                          1.0, &faults);
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
            actions_.read(trajectory, row, tile.column, rows, columns, to, 1.0, &faults_);
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

// Computes rows by a job's table of weights, which are for points one unit apart, and divides by
// powers of the spacing.
//
// SPARING is for points that are not all finite: what has no weight is left out. Finite elements get
// the same bits either way.
template <class Out>
class Even {
public:
    static constexpr bool FOLLOWS = true;  // whether it has inner rows

    Even(Run& run, const Tiling& tiling)
        : run_(run),
          job_(run.job),
          steps_(job_.dt.stride[0] ? tiling.group : 1),
          scales_(4 * W * steps_),
          changes_(job_.width * W) {}

    // Takes the steps of a tile's trajectories.
    void prepare(const Tile& tile) {
        columns_ = tile.columns;
        for (Int g = 0; g < std::min(steps_, tile.group); g++) {
            const double dt = step(job_, tile.batch + g, 0);
            if (job_.finite && dt - dt != 0.0) run_.status = NOT_FINITE;
            double power = 1.0;
            for (int m = 0; m < 4; m++, power *= static_cast<double>(job_.spacing) * dt)
                std::fill_n(scales_.at + (4 * g + m) * W, W, 1.0 / power);
        }
    }

    // What sums of order m are multiplied by, for a trajectory of the tile.
    double scale(Int g, int m) const { return scales_.at[(4 * g * (steps_ > 1) + m) * W]; }

    // Computes stretches of ``count`` elements of rows of one kind; the first window is at ``point``.
    template <bool SPARING>
    void follow(Int kind, const double* point, Int count, const Stretches& over,
                const Rows<Out>* out) const {
        compute<SPARING>(kind, 1, point, columns_, count, over, out, own_scales());
    }

    // Computes, of each stretch, rows of kinds that follow each other and share a window. Those of few
    // dofs are computed beside each other, and copied to their places.
    template <bool SPARING>
    void share(Int, Int kind, const double* point, Int rows, const Stretches& over,
               const Rows<Out>* out) {
        Rows<Out> to[4] = {out[0], out[1], out[2], out[3]};
        Stretches rest = over;
        if (const Int last = columns_ < W; over.number > last && columns_ * (SPARING ? 1 : 2) >= W) {
            // vectors may reach into the next window's first row, which is written later
            rest.number -= last;
            compute<SPARING>(kind, rows, point, columns_, std::max(columns_, W), rest, out, own_scales());
            for (int m = 0; m < 4; m++) to[m] = out[m].from(rest.number * rows, 0);
            point += rest.number * columns_, rest.number = last;
            if (!last) return;
        }
        const bool single = rest.number == 1;
        const Int piece = rest.number * columns_, count = std::max(rest.group * piece, W);
        values_.reserve((job_.width + 4) * count);
        rows_.reserve(4 * rows * count);
        double *const window = values_.at, *const scales = window + job_.width * count;
        for (int m = 1; m < 4; m++)
            for (Int g = 0; g < std::min(steps_, rest.group); g++)
                std::fill_n(scales + m * count + g * piece, steps_ > 1 ? piece : count, scale(g, m));
        if (single)
            swap_axes<double>({point, over.points[0]}, over.group, job_.width, columns_, {window, count});
        for (Int g = 0; !single && g < over.group; g++)
            for (Int i = 0; i < job_.width; i++)
                copy(window + i * count + g * piece, point + g * over.points[0] + i * columns_, piece);
        Rows<Out> side[4];
        for (int m = 0; m < 4; m++) side[m] = {rows_.at + m * rows * count, count};
        compute<SPARING>(kind, rows, window, count, count, {1, 1, {}, {}}, side, {scales, 0, count, 1});
        const Int number = single ? over.group : rest.number, pitch = single ? over.rows[0] : rows;
        for (int m = 0; m < 4; m++)
            for (Int g = 0; g < (single ? 1 : over.group); g++)
                swap_axes<Out>(side[m].from(0, g * piece), rows, number, columns_,
                               {to[m].from(g * over.rows[0], 0).at, pitch * columns_});
    }

    // Adds to the gradients of the points of windows that rows share, as many of each trajectory as
    // there are stretches. Orders of upstream are ``size`` apart; ``finite``: all of it. As in ``share``,
    // rows of few dofs are put beside each other first.
    void spread(Int, Int kind, const double* upstream, Int size, Int rows, const Stretches& over,
                bool finite, double* points) {
        const auto add_rows = finite ? &Even::add_rows<false> : &Even::add_rows<true>;
        const Int piece = over.number * columns_, count = over.group * piece, lines = 4 * rows * count;
        const bool apart = columns_ * 2 >= W;
        for (Int g = 0; apart && g < over.group; g++)
            for (Int i = 0; i < over.number; i++)
                (this->*add_rows)(kind, upstream + g * 4 * size + i * rows * columns_, size, rows, columns_,
                                  columns_, points + g * over.points[0] + i * columns_);
        if (apart) return;
        values_.reserve(lines + job_.width * count);
        double* const sums = values_.at + lines;
        std::fill_n(sums, job_.width * count, 0.0);
        const bool single = over.number == 1;
        for (int m = 0; m < 4; m++)
            for (Int g = 0; g < (single ? 1 : over.group); g++)
                swap_axes<double>({upstream + (g * 4 + m) * size, single ? 4 * size : rows * columns_},
                                  single ? over.group : over.number, rows, columns_,
                                  {values_.at + m * rows * count + g * piece, count});
        (this->*add_rows)(kind, values_.at, rows * count, rows, count, count, sums);
        // last to first, so that a point takes those of earlier windows first
        for (Int i = job_.width - 1; i >= 0; i--)
            for (Int g = 0; g < over.group; g++) {
                const double* const from = sums + i * count + g * piece;
                double* const to = points + g * over.points[0] + i * columns_;
                for (Int e = 0; e < piece; e++) to[e] += from[e];
            }
    }

private:
    // Where the scales of elements are, and the distances between those of trajectories, of orders and
    // of elements.
    struct Scales {
        const double* at;
        Int group, order, element;
    };

    Scales own_scales() const { return {scales_.at, steps_ > 1 ? 4 * W : 0, W, 0}; }

    // Adds to the gradients of a window's points, ``next`` apart.
    template <bool SPARING>
    void add_rows(Int kind, const double* upstream, Int size, Int rows, Int next, Int count,
                  double* points) {
        const Int width = job_.width;
        with_constant<5, 6>(width, [&](auto number) {
            constexpr Int N = constant_of<decltype(number)> ? constant_of<decltype(number)> : 5;
            for (Int e = 0; e < count; e += W)
                for (Int i = 0; i < width; i += N) {
                    const double *weights = points_of(job_, kind) + i, *at = upstream + e;
                    Vec sum[N] = {};
                    for (Int t = 0; t < rows; t++, at += next)
                        for (int m = 0; m < 4; m++, weights += width) {
                            const Vec x = load(at + m * size);
                            for (Int n = 0; n < N; n++)
                                if (!SPARING || weights[n] != 0.0) sum[n] += weights[n] * x;
                        }
                    for (Int n = 0; n < N && i + n < width; n++)
                        add(points + (i + n) * next + e, sum[n], count - e);
                }
        });
    }

    // Computes rows that share windows of points ``next`` apart, whole vectors of elements, of which the
    // last may overlap the one before. Weights are for differences of neighbours or, of a single row, for
    // sums and differences of pairs about the base.
    template <bool SPARING>
    void compute(Int kind, Int rows, const double* first, Int next, Int count, Stretches over,
                 const Rows<Out>* out, Scales scales) const {
        Rows<Out> to[4] = {out[0], out[1], out[2], out[3]};
        for (; SPARING && rows > 1; kind++, rows--) {
            compute<SPARING>(kind, 1, first, next, count, over, to, scales);
            for (int m = 0; m < 4; m++) to[m] = to[m].from(1, 0);
        }
        const Kind* const kinds = kinds_of(job_) + kind;
        const bool one = rows == 1;
        const Int own = kinds->base * next;
        const Int begin = one ? kinds->begin : 0, end = one ? kinds->end : job_.width - 1;
        const double* const table =
            static_cast<const double*>(job_.table) + (kind * (job_.width - 1) + begin) * 4;
        const auto run = [&](auto copies, auto single, auto paired, auto number) INLINE {
            constexpr bool COPIES = decltype(copies)::value, SINGLE = decltype(single)::value;
            constexpr bool PAIRED = decltype(paired)::value;
            constexpr Int NUMBER = constant_of<decltype(number)>;
            constexpr Int HELD = SINGLE ? 4 * NUMBER : 0;  // weights in registers
            Vec weights[HELD + 1];
            for (Int i = 0; i < HELD; i++) weights[i] = all(table[i]);
            const auto weight_at = [&](Int i) INLINE { return HELD ? weights[i] : all(table[i]); };
            Vec held[NUMBER + 1], *const changes = NUMBER ? held : reinterpret_cast<Vec*>(changes_.at);
            const auto vector = [&](const double* at, const double* factors, Out* const* rows_at) INLINE {
                const double* const from = at + begin * next;
                const auto change = [&](Int i) INLINE {
                    return load(from + (i + 1) * next) - load(from + i * next);
                };
                for (Int i = 0; !SINGLE && i < number; i++) changes[i] = change(i);
                for (Int t = 0; t < (SINGLE ? 1 : rows); t++) {
                    const double* const middle = at + (SINGLE ? own : kinds[t].base * next);
                    const Vec here = load(middle);
                    Vec sum[4] = {}, before[4];
                    for (Vec& value : before) value = SPARING ? load(from) : Vec{};
                    for (Int i = 0; i < number; i++) {
                        Vec rise, bend;
                        if (PAIRED) {
                            const Vec after = load(middle + (i + 1) * next);
                            const Vec other = load(middle - (i + 1) * next);
                            rise = after - other, bend = (after - here) - (here - other);
                        } else {
                            rise = bend = SINGLE ? change(i) : changes[i];
                        }
                        for (int m = COPIES; m < 4; m++) {
                            const Vec weight = weight_at((t * number + i) * 4 + m);
                            Vec part = m % 2 ? rise : bend;
                            if (SPARING && !PAIRED) {
                                // a point between equal weights, or beside none, has none
                                const Vec then = i + 1 < number ? weight_at(i * 4 + 4 + m) : Vec{};
                                Vec after = load(from + (i + 1) * next);
                                if (weight[0] == then[0]) after = finite_or(after, before[m]);
                                part = after - before[m], before[m] = after;
                            }
                            if (SPARING && weight[0] == 0.0) part = finite_or(part, Vec{});
                            sum[m] = i ? sum[m] + weight * part : weight * part;
                        }
                    }
                    sum[0] = COPIES ? here : here + sum[0];
                    for (int m = 1; m < 4; m++) sum[m] *= load(factors + m * scales.order);
                    for (int m = 0; m < 4; m++) store(rows_at[m] + t * to[m].pitch, sum[m]);
                }
            };
            for (Int g = 0; g < over.group; g++)
                for (Int i = 0; i < over.number; i++) {
                    const double* const at = first + g * over.points[0] + i * over.points[1];
                    const Int row = g * over.rows[0] + i * over.rows[1];
                    for (Int e = 0; e < count; e += W) {
                        const Int place = std::min(e, count - W);
                        Out* const rows_at[4] = {to[0].from(row, place).at, to[1].from(row, place).at,
                                                 to[2].from(row, place).at, to[3].from(row, place).at};
                        vector(at + place, scales.at + g * scales.group + place * scales.element, rows_at);
                    }
                }
        };
        const auto with_copies = [&](auto single, auto paired, auto number) INLINE {
            job_.copies ? run(std::true_type(), single, paired, number)
                        : run(std::false_type(), single, paired, number);
        };
        constexpr std::true_type yes;
        constexpr std::false_type no;
        if (one && kinds->pairs)
            with_constant<2>(kinds->pairs, [&](auto number) INLINE { with_copies(yes, yes, number); });
        else if (one)
            with_constant<3, 4, 5>(end - begin, [&](auto number) INLINE { with_copies(yes, no, number); });
        else if constexpr (!SPARING)
            with_constant<3, 4, 5>(end - begin, [&](auto number) INLINE { with_copies(no, no, number); });
    }

    Run& run_;
    const Job& job_;
    const Int steps_;  // how many trajectories have steps of their own
    Buffer<double> scales_, changes_, values_{0};
    Buffer<Out> rows_{0};
    Int columns_ = 0;
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
        const Int next = (stop - from) * columns;  // from one trajectory to the next
        const double* points = line.read(tile, from, stop);
        const bool plain = line.finite;
        if (!plain && job.finite) run.status = NOT_FINITE;
        for (Int g = 0; starts && g < tile.group; g++) {
            line.start.read(tile, tile.batch + g);
            for (int m = 0; m < 4; m++)
                std::copy_n(line.start.part(m), columns, out[m].from(g * tile.rows, 0).at);
        }
        rule.prepare(tile);
        for (Int t = row, then; t < after; t = then) {
            const Windows window(job, t);
            const double* const point = points + (window.first() - from) * columns;
            then = std::min(inner.after(job, t, window.first()), after);
            const Int kind = window.kind(), rows = then - t;
            const Int knots = inner.knots(job, window, rows, after - t);
            Rows<Out> to[4];
            for (int m = 0; m < 4; m++) to[m] = out[m].from(starts + t - row, 0);
            if constexpr (Rule::FOLLOWS)
                if (inner.has(t) && rows * columns >= W) {
                    const bool apart = tiling.blocks > 1;  // rows do not follow each other
                    const Stretches over = {tile.group, apart ? rows : 1, {next, columns}, {tile.rows, 1}};
                    const Int count = (apart ? 1 : rows) * columns;
                    plain ? rule.template follow<false>(kind, point, count, over, to)
                          : rule.template follow<true>(kind, point, count, over, to);
                    continue;
                }
            const Int shared = inner.has(t) ? 1 : rows;
            const Stretches over = {tile.group, knots, {next, columns}, {tile.rows, shared}};
            then = t + knots * shared;
            plain ? rule.template share<false>(t, kind, point, shared, over, to)
                  : rule.template share<true>(t, kind, point, shared, over, to);
        }
    });
}

// The gradient of a point is a sum over rows: of inner rows that of a filter, on a line of each order
// of upstream, which is zero where there are none; those of other rows are added. What has no weight
// is left out, so that nothing is sparing. Tiles are rows of actions.
template <class Out, class Rule>
void filter_adjoint(Run& run, Int begin, Int end) {
    const Job& job = run.job;
    const Tiling tiling(job);
    const Inner inner(job);
    const Points points(job);
    const Int reach = job.width - 1, most = tiling.rows + points.count - job.used;
    const Int size = ((most + reach) * tiling.group + reach) * tiling.columns + 8 * W;
    // rows that are no inner ones are read for so many windows at once; the first and the last have more
    const Int steps = job.window_steps;
    const Int windows = std::max(job.tile / 8 / (steps * tiling.columns * tiling.group), Int(1));
    const Int ends = std::max(inner.kind * steps, Windows(job, job.window_count - 1).kind()) + steps;
    const Int rows_size = std::min(windows * steps + 2 * ends, job.window_count) * tiling.columns + W;
    Source upstream[4];
    for (int m = 0; m < 4; m++) upstream[m] = Source(job.upstream[m]);
    Rule rule(run, tiling);
    Buffer<double> lines(inner.begin < inner.end ? 4 * size : 0), rows(4 * rows_size * tiling.group);
    Buffer<double> sums(size + reach * tiling.columns), state(4 * tiling.columns);
    double* const values = sums.at + reach * tiling.columns;
    Buffer<double> weights(4 * job.width);
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
        const Int next = (stop - from + reach) * columns;  // from one trajectory to the next
        // the inner rows whose windows reach these points, and where they are in a line
        const Int first = std::max({inner.begin, Int(0), from - reach + inner.begin});
        const Int inners = std::max(std::min(inner.end, stop + inner.begin) - first, Int(0));
        const Int place = (first - inner.begin - from + reach) * columns;
        const Int row = first_row(job, from - reach), after = first_row(job, stop);
        const std::array<Int, 3> layout = {place, inners, next};
        const auto value = [&](Int g, Int point) { return values + g * next + (point - from) * columns; };
        const auto read = [&](Int g, int m, Int t, Int number, double* to, Mask* faults = nullptr) {
            upstream[m].read(tile.batch + g, t, tile.column, number, columns, to, rule.scale(g, m), faults);
        };
        rule.prepare(tile);
        Int taps = 0;
        if (inners) {
            if (layout != placed) std::fill_n(lines.at, 4 * size, 0.0);
            placed = layout;
            for (Int i = 0; i < 4 * job.width; i++) {
                const double weight = points_of(job, inner.kind)[i];
                if (weight == 0.0 || !job.upstream[i / job.width].data) continue;
                places.at[taps] = i / job.width * size + (reach - i % job.width) * columns;
                weights.at[taps++] = weight;
            }
            for (Int g = 0; g < tile.group; g++)
                for (int m = 0; m < 4; m++)
                    read(g, m, first + job.start_row, inners, lines.at + m * size + g * next + place);
        }
        for (Int e = 0; e < tile.group * next; e += 8 * W) {
            Vec sum[8] = {};
            for (Int i = 0; i < taps; i++)
                for (int v = 0; v < 8; v++)
                    sum[v] += weights.at[i] * load(lines.at + places.at[i] + e + v * W);
            for (int v = 0; v < 8; v++) store(values + e + v * W, sum[v]);
        }
        Mask faults = {};
        for (Int t = row, here = row, behind = row; t < after;) {
            if (inner.has(t)) t = inner.end;
            if (t >= after) break;
            const Windows window(job, t);
            const Int point = window.first();
            if (t >= behind) {
                here = t, behind = std::min(first_row(job, point + windows), after);
                if (t < inner.begin) behind = std::min(behind, inner.begin);
                faults = Mask{};
                for (Int g = 0; g < tile.group; g++)
                    for (int m = 0; m < 4; m++)
                        read(g, m, t + job.start_row, behind - t, rows.at + (g * 4 + m) * rows_size, &faults);
            }
            const Int number = std::min(inner.after(job, t, point), behind) - t;
            const Int knots = inner.knots(job, window, number, behind - t);
            rule.spread(t, window.kind(), rows.at + (t - here) * columns, rows_size, number,
                        {tile.group, knots, {next, columns}, {}}, !any(faults), value(0, point));
            t += knots * number;
        }
        for (Int g = 0; g < tile.group; g++) {
            for (Int p = points.held; last && p < points.tail; p++)  // the last action again
                for (Int d = 0; d < columns; d++) value(g, points.held - 1)[d] += value(g, p)[d];
            const Rows<Out> to = out->from(g * tile.rows, 0);
            const Int flat = to.pitch == columns ? used : 1;
            for (Int t = 0; t < used; t += flat)
                std::copy_n(value(g, action + t), flat * columns, to.from(t, 0).at);
            for (Int t = used; t < tile.rows; t++) std::fill_n(to.from(t, 0).at, columns, Out(0));
            const auto gather = [&](Address table, Int number, Int p, const Address* sums, bool row) {
                if (std::none_of(sums, sums + 4, [](Address sum) { return sum; })) return;
                for (int m = 0; m < 4; m++) {
                    double* const sum = state.at + m * columns;
                    std::fill_n(sum, columns, 0.0);
                    if (row) upstream[m].read(tile.batch + g, 0, tile.column, 1, columns, sum);
                }
                for (Int k = 0; k < number; k++)
                    for_parts(job, table, k, step(job, tile.batch + g, 0), [&](int m, double factor) {
                        for (Int d = 0; d < columns; d++)
                            state.at[m * columns + d] += factor * value(g, p + k)[d];
                    });
                for (int m = 0; m < 4; m++)
                    if (sums[m])
                        std::copy_n(state.at + m * columns, columns,
                                    static_cast<double*>(sums[m]) + (tile.batch + g) * job.dofs + tile.column);
            };
            if (start) gather(job.head, job.head_count, 0, job.start_gradient, job.start_row);
            if (last) gather(job.tail, job.tail_count, points.tail, job.goal_gradient, false);
        }
    });
}

}  // namespace LEVEL
