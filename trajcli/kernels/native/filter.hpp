// The bands of kernels/program.py and their adjoint, in the order of memory. Included by level.hpp
// after tile.hpp.
//
// The points of a trajectory, [point, dof], are one line of doubles. Element e of its rows is a sum
// over elements e + i * dofs of the line, so that vectors are full whatever the number of dofs. Only
// rows near the ends, and those of steps within a knot, are computed row by row. Trajectories of few
// dofs make one line together, side by side.

namespace LEVEL {

// The window of a row, as Windows of kernels/program.py computes it.
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

// The inner rows of a job: consecutive windows, to which the same weights apply. They are of ``kind``,
// and their windows begin ``begin`` points before the number of the row.
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

    // Finds the end of a run of similar rows from ``row`` on: inner ones, or those with the same first
    // point. Where steps differ all rows are similar.
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

// Stretches of elements that are computed in one way: the number of lines, and of stretches of each,
// which are a point apart; the distance between lines in elements of points, and in rows the distances
// between lines and between stretches.
struct Stretches {
    Int lines, number, points, rows[2];
    Int left;  // rows of a line behind these, which are written later
};

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

// -- points -----------------------------------------------------------------------------------

// The layout of a job's points, for both directions.
struct Points {
    Int actions, held, tail, count;  // where each kind begins, and the number of all

    explicit Points(const Job& job)
        : actions(job.head_count),
          held(actions + job.used),
          tail(held + job.held),
          count(tail + job.tail_count) {}
};

// Calls ``use`` with each vector of lanes, the parts of a state in a point of the head or the tail, and
// their factors.
template <class Use>
void for_parts(const Job& job, Address table, Int point, const Tile& line, Lanes& steps, Use use) {
    const double* const c = static_cast<const double*>(table) + point * 4;
    for (Int e = 0; e < line.lanes; e += W) {
        const Vec spacing = static_cast<double>(job.spacing) * step_of(job, steps, line, e);
        Vec power = all(1.0);
        for (int m = 0; m < 4; m++, power *= spacing)
            if (c[m] != 0.0) use(e, m, c[m] * power);
    }
}

// The points of a tile's lines, one after another.
class Line {
public:
    Line(Run& run, const Tiling& tiling)
        : start(run, tiling, run.job.start, 1, run.job.start_index),
          job_(run.job),
          points_(job_),
          steps_(run, of_steps(job_, tiling), job_.dt, 1),
          actions_(run, tiling, job_.actions, 1),
          goal_(run, tiling, job_.goal, 1, job_.goal_index),
          shared_(start.shared() && goal_.shared() && !job_.dt.stride[0]),
          state_(4 * whole(tiling.lanes)),
          values_(std::min(tiling.rows / job_.window_steps + 2 + job_.width, points_.count) *
                  tiling.lanes * tiling.lines()) {}

    // Returns points [from, stop).
    const double* read(const Tile& tile, Int from, Int stop) {
        const std::array<Int, 4> layout = {tile.column, tile.lanes, from, stop};
        if (layout != layout_ || !shared_) filled_ = 0, placed_ = true;
        finite = true, layout_ = layout;
        for (Int g = 0; g < tile.lines(); g++)
            read_line(tile.line(g), from, stop, values_.at + g * (stop - from) * tile.lanes, g < filled_);
        filled_ = std::max(filled_, tile.lines());
        finite &= placed_;
        return values_.at;
    }

    Parts start;
    bool finite;  // all of the points

private:
    // filled: whether the points that are made of states are in place.
    void read_line(const Tile& line, Int from, Int stop, double* to, bool filled) {
        const auto at = [&](Int point) { return to + (point - from) * line.lanes; };
        if (!filled) place(line, job_.head, start, 0, from, std::min(stop, points_.actions), at(from));
        const Int action = std::max(from, points_.actions), end = std::min(stop, points_.held);
        const Int held = std::max(from, points_.held), tail = std::min(stop, points_.tail);
        const auto read = [&](Int row, Int rows, double* points) {
            finite &= actions_.copy(line, row, rows, points, true);
        };
        if (action < end) read(action - points_.actions, end - action, at(action));
        if (held < tail) read(job_.used - 1, 1, at(held));
        for (Int i = held + 1; i < tail; i++) copy(at(i), at(held), line.lanes);
        const Int goal = std::max(from, points_.tail);
        if (!filled) place(line, job_.tail, goal_, points_.tail, goal, stop, at(goal));
    }

    // Places points [from, end) that are made of a state.
    void place(const Tile& line, Address table, Parts& state, Int origin, Int from, Int end, double* to) {
        if (from >= end) return;
        const Int pitch = whole(line.lanes);
        state.read(line, state_.at, pitch);
        for (; from < end; from++, to += line.lanes) {
            std::fill_n(to, pitch, 0.0);
            for_parts(job_, table, from - origin, line, steps_, [&](Int e, int m, Vec factor) {
                store(to + e, load(to + e) + factor * load(state_.at + m * pitch + e));
            });
            for (Int e = 0; e < line.lanes; e++) placed_ &= to[e] - to[e] == 0.0;
        }
    }

    const Job& job_;
    const Points points_;
    Lanes steps_, actions_;
    Parts goal_;
    const bool shared_;  // all states and steps
    Buffer<double> state_, values_;
    std::array<Int, 4> layout_ = {};
    Int filled_ = 0;      // lines whose points of states are in place
    bool placed_ = true;  // whether these are finite
};

// -- equal steps --------------------------------------------------------------------------------

// Computes rows by a job's table of weights, which are for points one unit apart, and divides by
// powers of the spacing.
//
// SPARING is for lines with points that are not finite. It leaves out points without a weight, since
// zero times NaN is NaN. Finite elements get the same bits either way.
template <class Out>
class Even {
public:
    Even(Run& run, const Tiling& tiling)
        : job_(run.job),
          steps_(run, of_steps(job_, tiling), job_.dt, 1),
          length_(tiling.side > 1 ? whole(tiling.lanes) : W),
          each_(tiling.side == 1 && job_.dt.stride[0]),
          scales_(4 * length_ * (each_ ? tiling.group : 1)),
          changes_(job_.width * W) {}

    // Takes the steps of a tile's trajectories.
    void prepare(const Tile& tile) {
        lanes_ = tile.lanes, beside_ = tile.side > 1 && job_.dt.stride[0];
        for (Int g = 0; g < (each_ ? tile.group : 1); g++) {
            const Tile line = tile.line(g);
            for (Int e = 0; e < length_; e += W) {
                const Vec spacing = static_cast<double>(job_.spacing) * step_of(job_, steps_, line, e);
                Vec power = all(1.0);
                for (int m = 0; m < 4; m++, power *= spacing)
                    store(scales_.at + 4 * (g * length_ + e) + m * W, 1.0 / power);
            }
        }
    }

    // The factors of sums of order m, for each vector of a line's lanes, 4 W apart.
    const double* scale(Int g, int m) const { return scales_.at + 4 * g * each_ * length_ + m * W; }

    // Computes ``count`` elements of each stretch of rows that share windows. The first window is at
    // ``point``.
    template <bool SPARING>
    void compute(Int, Int kind, Int rows, const double* point, Int count, Stretches over,
                 const Rows<Out>* out) {
        Rows<Out> to[4] = {out[0], out[1], out[2], out[3]};
        for (; SPARING && rows > 1; kind++, rows--) {
            Stretches one = over;
            one.left += rows - 1;
            compute<SPARING>(0, kind, 1, point, count, one, to);
            for (int m = 0; m < 4; m++) to[m] = to[m].from(1, 0);
        }
        if (beside_ && count > lanes_)  // row by row, as each lane has its own scale
            over.number = count / lanes_, over.rows[1] = 1, count = lanes_;
        const Kind* const kinds = kinds_of(job_) + kind;
        const auto function = choose<SPARING>(kinds, rows);
        // Vectors may reach into rows that are written later. Where none follows, the row is computed
        // elsewhere and copied.
        const Int size = rows * lanes_, reach = std::max(W - count, Int(0));
        const bool joined = over.number == 1 || over.rows[1] == rows;
        const Int few = (std::max(reach - over.left * lanes_, Int(0)) + size - 1) / size;
        const Int direct = joined ? std::max(over.number - few, Int(0)) : reach ? 0 : over.number;
        if (reach) few_.reserve(4 * rows * W);
        Stretches part = over;
        part.number = direct;
        if (direct) (this->*function)(kinds, rows, point, count + reach, part, 0, to);
        for (Int g = 0; g < over.lines; g++)
            for (Int i = direct; i < over.number; i++) {
                Rows<Out> place[4];
                for (int m = 0; m < 4; m++) place[m] = {few_.at + m * rows * W, W};
                const double* const at = point + g * over.points + i * lanes_;
                (this->*function)(kinds, rows, at, W, {1, 1, 0, {}, 0}, g, place);
                const Int row = g * over.rows[0] + i * over.rows[1];
                for (Int t = 0; t < rows; t++)
                    for (int m = 0; m < 4; m++)
                        copy(to[m].from(row + t, 0).at, place[m].from(t, 0).at, count);
            }
    }

    // Adds to the gradients of the points of windows that rows share, one stretch for each window.
    // Orders of upstream are ``size`` apart; ``finite``: whether all of it is.
    void spread(Int, Int kind, const double* upstream, Int size, Int rows, const Stretches& over,
                bool finite, double* points) const {
        finite ? add_rows<false>(kind, upstream, size, rows, over, points)
               : add_rows<true>(kind, upstream, size, rows, over, points);
    }

private:
    template <bool SPARING>
    void add_rows(Int kind, const double* upstream, Int size, Int rows, Stretches over,
                  double* points) const {
        const Int width = job_.width, lanes = lanes_;
        const double* const first = points_of(job_, kind);
        with_constant<5, 6>(width, [=](auto number) {
            constexpr Int N = constant_of<decltype(number)> ? constant_of<decltype(number)> : 5;
            for (Int s = 0; s < over.lines * over.number; s++) {
                const Int g = s / over.number, i = s % over.number;
                const double* const rows_at = upstream + g * 4 * size + i * rows * lanes;
                double* const to = points + g * over.points + i * lanes;
                for (Int e = 0; e < lanes; e += W)
                    for (Int p = 0; p < width; p += N) {
                        const double *weights = first + p, *at = rows_at + e;
                        Vec sum[N];
                        for (Vec& value : sum) value = Vec{};  // in registers
                        for (Int t = 0; t < rows; t++, at += lanes)
                            for (int m = 0; m < 4; m++, weights += width) {
                                const Vec x = load(at + m * size);
                                for (Int n = 0; n < N; n++)
                                    if (!SPARING || weights[n] != 0.0) sum[n] += weights[n] * x;
                            }
                        for (Int n = 0; n < N && p + n < width; n++)
                            add(to + (p + n) * lanes + e, sum[n], lanes - e);
                    }
            }
        });
    }

    using Sums = void (Even::*)(const Kind*, Int, const double*, Int, Stretches, Int,
                                const Rows<Out>*) const;

    template <bool SPARING>
    Sums choose(const Kind* kinds, Int rows) const {
        Sums chosen = nullptr;
        const auto with_copies = [&](auto single, auto paired, auto number) {
            constexpr bool SINGLE = decltype(single)::value, PAIRED = decltype(paired)::value;
            constexpr Int NUMBER = constant_of<decltype(number)>;
            chosen = job_.copies ? &Even::sums<SPARING, true, SINGLE, PAIRED, NUMBER>
                                 : &Even::sums<SPARING, false, SINGLE, PAIRED, NUMBER>;
        };
        constexpr std::true_type yes;
        constexpr std::false_type no;
        if (rows > 1)
            with_constant<3, 4, 5>(job_.width - 1, [&](auto number) { with_copies(no, no, number); });
        else if (kinds->pairs)
            with_constant<2>(kinds->pairs, [&](auto number) { with_copies(yes, yes, number); });
        else
            with_constant<3, 4, 5>(kinds->end - kinds->begin,
                                   [&](auto number) { with_copies(yes, no, number); });
        return chosen;
    }

    // Computes stretches of ``count`` elements, of lines from ``line`` on; the last vector of each may
    // overlap the one before. Weights are for differences of neighbours or, of a single row, for sums
    // and differences of pairs about the base.
    template <bool SPARING, bool COPIES, bool SINGLE, bool PAIRED, Int NUMBER>
    void sums(const Kind* kinds, Int rows, const double* first, Int count, Stretches over, Int line,
              const Rows<Out>* out) const {
        const Int kind = kinds - kinds_of(job_), next = lanes_, own = kinds->base * next;
        const Int begin = SINGLE ? kinds->begin : 0, end = SINGLE ? kinds->end : job_.width - 1;
        const Int number = NUMBER ? NUMBER : PAIRED ? kinds->pairs : end - begin, step = beside_ ? 4 : 0;
        const double* const table =
            static_cast<const double*>(job_.table) + (kind * (job_.width - 1) + begin) * 4;
        constexpr Int HELD = SINGLE ? 4 * NUMBER : 0;  // weights in registers
        Vec weights[HELD + 1];
        for (Int i = 0; i < HELD; i++) weights[i] = all(table[i]);
        const auto weight_at = [&](Int i) INLINE { return HELD ? weights[i] : all(table[i]); };
        Vec held[NUMBER + 1], *const changes = NUMBER ? held : reinterpret_cast<Vec*>(changes_.at);
        const Rows<Out> rows_of[4] = {out[0], out[1], out[2], out[3]};
        const double *point = first, *scales = scale(line, 0);
        Rows<Out> to[4] = {out[0], out[1], out[2], out[3]};
        for (Int g = 0, s = 0, e = 0; g < over.lines;) {
            const Int place = std::min(e, count - W);
            const double *const at = point + place, *const from = at + begin * next;
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
                            // a point between two equal weights of differences has none itself
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
                for (int m = 1; m < 4; m++) sum[m] *= load(scales + step * place + m * W);
                for (int m = 0; m < 4; m++) store(to[m].at + t * to[m].pitch + place, sum[m]);
            }
            if ((e += W) < count) continue;
            e = 0, s++;
            if (s == over.number) s = 0, g++, scales = scale(line + g, 0);
            point = first + g * over.points + s * next;
            for (int m = 0; m < 4; m++) to[m] = rows_of[m].from(g * over.rows[0] + s * over.rows[1], 0);
        }
    }

    const Job& job_;
    Lanes steps_;
    const Int length_;  // of the scales of a line and order
    const bool each_;   // whether each line has its own steps
    Buffer<double> scales_, changes_;
    Buffer<Out> few_{0};  // rows of less than a vector
    Int lanes_ = 0;
    bool beside_ = false;  // trajectories side by side, each with its own steps
};

// -- rows ---------------------------------------------------------------------------------------

template <class Out, class Rule>
void filter_rows(Run& run, Int begin, Int end) {
    const Job& job = run.job;
    const Tiling tiling(job);
    const Inner inner(job);
    Line line(run, tiling);
    Rule rule(run, tiling);
    Buffer<double> state(4 * whole(tiling.lanes));
    Writer<Out> writer(run, tiling, 4);
    writer.write_items(begin, end, [&](const Tile& tile, Rows<Out>* out) {
        const bool starts = job.start_row && tile.row == 0;
        const Int lanes = tile.lanes, row = starts ? 0 : tile.row - job.start_row;
        const Int after = row + tile.rows - starts, from = first_point(job, row);
        const Int stop = row < after ? first_point(job, after - 1) + job.width : from;
        const Int next = (stop - from) * lanes;  // from one line to the next
        const double* points = line.read(tile, from, stop);
        const bool plain = line.finite;
        if (!plain && !job.allow_nonfinite) run.status = NOT_FINITE;
        for (Int g = 0; starts && g < tile.lines(); g++) {
            line.start.read(tile.line(g), state.at, whole(lanes));
            for (int m = 0; m < 4; m++)
                std::copy_n(state.at + m * whole(lanes), lanes, out[m].from(g * tile.rows, 0).at);
        }
        rule.prepare(tile);
        for (Int t = row, then; t < after; t = then) {
            const Windows window(job, t);
            const double* const point = points + (window.first() - from) * lanes;
            then = std::min(inner.after(job, t, window.first()), after);
            Int rows = then - t, number = inner.knots(job, window, rows, after - t), count = lanes;
            Rows<Out> to[4];
            for (int m = 0; m < 4; m++) to[m] = out[m].from(starts + t - row, 0);
            if (inner.has(t)) {  // all rows at once
                number = rows, rows = 1;
                if (tiling.blocks == 1) count *= std::exchange(number, 1);
            } else {
                then = t + number * rows;
            }
            const Stretches over = {tile.lines(), number, next, {tile.rows, rows}, after - then};
            plain ? rule.template compute<false>(t, window.kind(), rows, point, count, over, to)
                  : rule.template compute<true>(t, window.kind(), rows, point, count, over, to);
        }
    });
}

// The gradient of a point is a sum over rows. Inner rows make a filter over a line of each order of
// upstream, which is zero outside of them; the gradients of other rows are added. Rows without a weight
// are left out. Tiles are rows of actions.
template <class Out, class Rule>
void filter_adjoint(Run& run, Int begin, Int end) {
    const Job& job = run.job;
    const Tiling tiling(job);
    const Inner inner(job);
    const Points points(job);
    const Int pitch = whole(tiling.lanes);
    const Int reach = job.width - 1, most = tiling.rows + points.count - job.used;
    const Int size = ((most + reach) * tiling.lines() + reach) * tiling.lanes + 8 * W;
    // Rows that are not inner are read for so many windows at once. The first and the last window have
    // more rows than the others.
    const Int steps = job.window_steps;
    const Int windows = std::max(job.tile / 8 / (steps * tiling.lanes * tiling.lines()), Int(1));
    const Int ends = std::max(inner.kind * steps, Windows(job, job.window_count - 1).kind()) + steps;
    const Int rows_size = std::min(windows * steps + 2 * ends, job.window_count) * tiling.lanes + W;
    Parts upstream(run, tiling, job.upstream, 1);
    Lanes dt(run, of_steps(job, tiling), job.dt, 1);
    Rule rule(run, tiling);
    Buffer<double> inputs(inner.begin < inner.end ? 4 * size : 0), rows(4 * rows_size * tiling.lines());
    Buffer<double> sums(size + reach * tiling.lanes), state(4 * pitch);
    double* const values = sums.at + reach * tiling.lanes;
    Buffer<double> weights(4 * job.width);
    Buffer<Int> places(4 * job.width);
    std::array<Int, 3> placed = {};  // how inputs were laid out last
    Writer<Out> writer(run, tiling, 1);
    writer.write_items(begin, end, [&](const Tile& tile, Rows<Out>* out) {
        // the points of these actions, with those before the first and after the last
        const bool start = tile.row == 0, uses = start || tile.row < job.used;
        const bool last = uses && tile.row + tile.rows >= job.used;
        const Int lanes = tile.lanes, lines = tile.lines(), action = points.actions + tile.row;
        const Int from = start ? 0 : action, stop = last ? points.count : action + tile.rows;
        const Int used = uses ? std::min(stop, points.held) - action : 0;
        const Int next = (stop - from + reach) * lanes;  // from one line to the next
        // the inner rows whose windows reach these points, and their position in a line
        const Int first = std::max({inner.begin, Int(0), from - reach + inner.begin});
        const Int inners = std::max(std::min(inner.end, stop + inner.begin) - first, Int(0));
        const Int place = (first - inner.begin - from + reach) * lanes;
        const Int row = first_row(job, from - reach), after = first_row(job, stop);
        const std::array<Int, 3> layout = {place, inners, next};
        const auto value = [&](Int g, Int point) {
            return values + g * next + (point - from) * lanes;
        };
        const auto read = [&](Int g, int m, Int t, Int number, double* to, bool check) {
            const double* const scale = rule.scale(g, m);
            return upstream.part[m].copy(tile.line(g), t + job.start_row, number, to, check, scale);
        };
        rule.prepare(tile);
        Int taps = 0;
        if (inners) {
            if (layout != placed) std::fill_n(inputs.at, 4 * size, 0.0);
            placed = layout;
            for (Int i = 0; i < 4 * job.width; i++) {
                const double weight = points_of(job, inner.kind)[i];
                if (weight == 0.0 || !job.upstream[i / job.width].data) continue;
                places.at[taps] = i / job.width * size + (reach - i % job.width) * lanes;
                weights.at[taps++] = weight;
            }
            for (Int g = 0; g < lines; g++)
                for (int m = 0; m < 4; m++)
                    read(g, m, first, inners, inputs.at + m * size + g * next + place, false);
        }
        for (Int e = 0; e < lines * next; e += 8 * W) {
            Vec sum[8] = {};
            for (Int i = 0; i < taps; i++)
                for (int v = 0; v < 8; v++)
                    sum[v] += weights.at[i] * load(inputs.at + places.at[i] + e + v * W);
            for (int v = 0; v < 8; v++) store(values + e + v * W, sum[v]);
        }
        bool finite = true;
        for (Int t = row, here = row, behind = row; t < after;) {
            if (inner.has(t)) t = inner.end;
            if (t >= after) break;
            const Windows window(job, t);
            const Int point = window.first();
            if (t >= behind) {
                here = t, behind = std::min(first_row(job, point + windows), after), finite = true;
                if (t < inner.begin) behind = std::min(behind, inner.begin);
                for (Int g = 0; g < lines; g++)
                    for (int m = 0; m < 4; m++)
                        finite &= read(g, m, t, behind - t, rows.at + (g * 4 + m) * rows_size, true);
            }
            const Int number = std::min(inner.after(job, t, point), behind) - t;
            const Int knots = inner.knots(job, window, number, behind - t);
            rule.spread(t, window.kind(), rows.at + (t - here) * lanes, rows_size, number,
                        {lines, knots, next, {}, 0}, finite, value(0, point));
            t += knots * number;
        }
        for (Int g = 0; g < lines; g++) {
            const Tile line = tile.line(g);
            for (Int p = points.held; last && p < points.tail; p++)  // the last action again
                for (Int e = 0; e < lanes; e++) value(g, points.held - 1)[e] += value(g, p)[e];
            const Rows<Out> actions = out->from(g * tile.rows, 0);
            const Int flat = actions.pitch == lanes ? used : 1;
            for (Int t = 0; t < used; t += flat)
                std::copy_n(value(g, action + t), flat * lanes, actions.from(t, 0).at);
            for (Int t = used; t < tile.rows; t++) std::fill_n(actions.from(t, 0).at, lanes, Out(0));
            const auto gather = [&](Address table, Int number, Int p, const Address* to, bool own) {
                if (std::none_of(to, to + 4, [](Address part) { return part; })) return;
                std::fill_n(state.at, 4 * pitch, 0.0);
                if (own) upstream.read(line, state.at, pitch);
                for (Int k = 0; k < number; k++)
                    for_parts(job, table, k, line, dt, [&](Int e, int m, Vec factor) {
                        double* const sum = state.at + m * pitch + e;
                        store(sum, load(sum) + factor * load(value(g, p + k) + e));
                    });
                for (int m = 0; m < 4; m++) write_state(job, to[m], line, state.at + m * pitch);
            };
            if (start) gather(job.head, job.head_count, 0, job.start_gradient, job.start_row);
            if (last) gather(job.tail, job.tail_count, points.tail, job.goal_gradient, false);
        }
    });
}

}  // namespace LEVEL
