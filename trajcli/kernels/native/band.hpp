// The band and its adjoint: see Band in kernels/program.py. Included by level.hpp after
// cascade.hpp.

namespace LEVEL {

// The windows of a job's rows, one after another: Windows in kernels/program.py.
class Windows {
public:
    Windows(const Job& job, Int row)
        : steps_(job.window_steps),
          shift_(job.window_shift),
          last_(job.window_last),
          row_(row + job.window_offset),
          segment_((row_ >= 0 ? row_ : row_ - steps_ + 1) / steps_) {}

    void advance() {
        if (++row_ == (segment_ + 1) * steps_) segment_++;
    }

    Int first() const { return std::max(std::min(segment_ - shift_, last_), Int(0)); }
    Int kind() const { return row_ - steps_ * first(); }

private:
    const Int steps_, shift_, last_;
    Int row_, segment_;
};

inline Int first_point(const Job& job, Int row) { return Windows(job, row).first(); }

// The first row whose window begins at ``point`` or later.
inline Int first_row(const Job& job, Int point) {
    const Int row = (point + job.window_shift) * job.window_steps - job.window_offset;
    return point <= 0                  ? 0
           : point > job.window_last   ? job.window_count
                                       : std::clamp(row, Int(0), job.window_count);
}

// What a kind of row takes: the point its position is based on, and the differences that have
// weights.
struct Kind {
    Int base, begin, end;
};

inline const Kind* kinds_of(const Job& job) { return static_cast<const Kind*>(job.kinds); }

// Adds to the gradient of a point.
inline void add(double* point, Vec gradient) { store(point, load(point) + gradient); }

// Rows by weights: of a job's table, of points one unit apart, over powers of the spacing, or made
// for some rows, which then are the kinds. STEP: from one weight of a kind to the next.
template <Int STEP>
class Table {
public:
    Table(const Job& job, const double* dt)
        : next_kind_((job.width - 1) * 4),
          copies_(job.copies),
          kinds_(kinds_of(job)),
          weights_(static_cast<const double*>(job.table)) {
        static_assert(STEP == 1);
        const Vec spacing = static_cast<double>(job.spacing) * load(dt);
        Vec power = all(1.0);
        for (Vec& scale : scale_) scale = 1.0 / power, power *= spacing;
    }

    Table(const Kind* kinds, const double* weights)
        : next_kind_(1), copies_(false), kinds_(kinds), weights_(weights) {
        for (Vec& scale : scale_) scale = all(1.0);
    }

    Int kind(const Windows& windows, Int row) const { return STEP == 1 ? windows.kind() : row; }

    // Position to jerk of a row whose window begins at point ``first``.
    void derive(Int first, Int kind, Rows<const double> points, Vec* x) const {
        const auto [base, begin, end] = kinds_[kind];
        const Int next = points.pitch;
        const double* point = points.at + first * next;
        const double* weights = weights_ + kind * next_kind_ + begin * 4 * STEP;
        const double* at = point + begin * next;
        Vec sum[4] = {}, here = load(at);
        for (Int i = begin; i < end; i++, weights += 4 * STEP) {
            const Vec after = load(at += next), change = after - here;
            if (!copies_) sum[0] += weights[0] * change;
            for (int m = 1; m < 4; m++) sum[m] += weights[m * STEP] * change;
            here = after;
        }
        x[0] = load(point + base * next);
        if (!copies_) x[0] += sum[0];
        for (int m = 1; m < 4; m++) x[m] = sum[m] * scale_[m];
    }

    // Its transpose: adds to the gradients of the points.
    void pull(Int first, Int kind, const Vec* x, Rows<double> points) const {
        const auto [base, begin, end] = kinds_[kind];
        const Int next = points.pitch;
        double* point = points.at + first * next;
        const double* weights = weights_ + kind * next_kind_ + begin * 4 * STEP;
        double* at = point + begin * next;
        Vec g[4], before = {};
        for (int m = 0; m < 4; m++) g[m] = x[m] * scale_[m];
        for (Int i = begin; i < end; i++, weights += 4 * STEP, at += next) {
            Vec sum = weights[STEP] * g[1] + weights[2 * STEP] * g[2] + weights[3 * STEP] * g[3];
            if (!copies_) sum += weights[0] * g[0];
            add(at, before - sum);
            before = sum;
        }
        add(at, before);
        add(point + base * next, g[0]);
    }

protected:
    const Int next_kind_;
    const bool copies_;
    const Kind* kinds_;
    const double* weights_;
    Vec scale_[4];
};

// The same where something is not finite: what has weight zero in a row's order is left out of it.
// That is a point between two differences of equal weights. Finite lanes have the same bits.
class SparingTable : public Table<1> {
public:
    using Table<1>::Table;

    void derive(Int first, Int kind, Rows<const double> points, Vec* x) const {
        const auto [base, begin, end] = kinds_[kind];
        const double* point = points.at + first * points.pitch;
        x[0] = load(point + base * points.pitch);
        for (int m = copies_; m < 4; m++) {
            Vec sum = {}, here = load(point + begin * points.pitch);
            for (Int i = begin; i < end; i++) {
                const double weight = weight_of(kind, i, m);
                Vec after = load(point + (i + 1) * points.pitch);
                if (weight == weight_of(kind, i + 1, m)) after = finite_or(after, here);
                if (weight != 0) sum += weight * (after - here);
                here = after;
            }
            x[m] = m == 0 ? x[0] + sum : sum * scale_[m];
        }
    }

    void pull(Int first, Int kind, const Vec* x, Rows<double> points) const {
        const auto [base, begin, end] = kinds_[kind];
        double* point = points.at + first * points.pitch;
        Vec g[4], nan[4], before = {};  // nan: 0 where g is finite
        for (int m = 0; m < 4; m++) {
            g[m] = finite_or(x[m], Vec{}) * scale_[m];
            nan[m] = x[m] - x[m];
        }
        for (Int i = begin; i <= end; i++) {
            Vec sum = {};
            for (int m : {1, 2, 3, 0})
                if (m >= copies_) sum += weight_of(kind, i, m) * g[m];
            Vec gradient = before - sum;
            for (int m = copies_; m < 4; m++)
                if (weight_of(kind, i - 1, m) != weight_of(kind, i, m)) gradient += nan[m];
            add(point + i * points.pitch, gradient);
            before = sum;
        }
        add(point + base * points.pitch, x[0]);
    }

private:
    // Of difference i in order m; zero beyond those that have weights.
    double weight_of(Int kind, Int i, int m) const {
        const Kind& of = kinds_[kind];
        return i < of.begin || i >= of.end ? 0.0 : weights_[kind * next_kind_ + i * 4 + m];
    }
};

// Rows where steps differ: derivatives of the polynomial through five points in Newton's form,
// which takes differences and subtracts no times, by Horner's rule.
class Newton {
public:
    // gaps: those after each point from the first row's window on.
    Newton(const Job& job, Rows<const double> gaps, Int column)
        : kinds_(kinds_of(job)), gaps_{gaps.at + column, gaps.pitch} {}

    Int kind(const Windows& windows, Int) const { return windows.kind(); }

    void derive(Int first, Int kind, Rows<const double> points, Vec* x) const {
        const Int base = kinds_[kind].base, next = points.pitch;
        const double* point = points.at + first * next;
        const Times times(gaps_.at + first * gaps_.pitch, gaps_.pitch, base);
        Vec change[4];
        for (int j = 0; j < 4; j++, point += next)
            change[j] = (load(point + next) - load(point)) / times.length[0][j];
        for (int k = 1; k < 4; k++)  // to the divided difference of points 0 to k + 1 in place k
            for (int j = 3; j >= k; j--)
                change[j] = (change[j] - change[j - 1]) / times.length[k][j - k];
        Vec sum = change[3], velocity = {}, half = {}, sixth = {};  // of acceleration and jerk
        for (int k = 3; k >= 0; k--) {
            sixth = sixth * times.since[k] + half;
            half = half * times.since[k] + velocity;
            velocity = velocity * times.since[k] + sum;
            if (k > 0) sum = sum * times.since[k] + change[k - 1];
        }
        x[0] = load(points.at + (first + base) * next);
        x[1] = velocity, x[2] = 2.0 * half, x[3] = 6.0 * sixth;
    }

    // Its transpose, step by step from its end.
    void pull(Int first, Int kind, const Vec* x, Rows<double> points) const {
        const Int base = kinds_[kind].base, next = points.pitch;
        double* point = points.at + first * next;
        const Times times(gaps_.at + first * gaps_.pitch, gaps_.pitch, base);
        Vec sum = {}, velocity = x[1], half = 2.0 * x[2], sixth = 6.0 * x[3], change[4];
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
                change[j] /= times.length[k][j - k];
                change[j - 1] -= change[j];
            }
        Vec before = {};
        for (int j = 0; j < 4; j++) {
            change[j] /= times.length[0][j];
            add(point + j * next, before - change[j]);
            before = change[j];
        }
        add(point + 4 * next, before);
        add(point + base * next, x[0]);
    }

private:
    struct Times {
        Vec length[4][4];  // [k][j]: of the k + 1 gaps from j on
        Vec since[5];      // from each point to the base

        Times(const double* gaps, Int pitch, Int base) {
            for (int j = 0; j < 4; j++) length[0][j] = load(gaps + j * pitch);
            for (int k = 1; k < 4; k++)
                for (int j = 0; j + k < 4; j++) length[k][j] = length[k - 1][j] + length[0][j + k];
            for (Vec& time : since) time = Vec{};
            for (int i = 0; i < 4; i++)
                if (i >= base) since[i + 1] = since[i] - length[0][i];
            for (int i = 3; i >= 0; i--)
                if (i < base) since[i] = since[i + 1] + length[0][i];
        }
    };

    const Kind* kinds_;
    const Rows<const double> gaps_;
};

// Rows where steps differ, by the polynomials that fit the points of their windows best: a table
// that is made anew for every few rows, which are the lanes of its vectors. As fit_weights in
// kernels/fit.py, sums over polynomials that are orthogonal on the times.
class Fit {
    static constexpr Int MOST_DEGREE = 5;

public:
    explicit Fit(const Job& job)
        : job_(job), count_(fits(job) ? job.width : 0), buffer_((job.degree + 6) * count_ * W) {}

    // Weights of the rows from ``row`` on, at most W. gaps: those after each point from the first
    // row's window on; all lanes have the same.
    Table<W> make(Int trajectory, Int row, Int rows, Rows<const double> gaps) {
        place_times(row, rows, gaps);
        for (Int i = 0; i < count_; i++) store(values_ + i * W, all(1.0));
        if (job_.spans) leave_out(trajectory, row, rows, values_);
        // of every polynomial, its derivatives at the row, and these over its norm
        Vec at_row[MOST_DEGREE + 1][4] = {{all(1.0)}}, factor[MOST_DEGREE + 1][4] = {};
        Vec norm[MOST_DEGREE + 1] = {}, mean = {};
        for (Int k = 0; k <= job_.degree; k++) {
            double* const now = polynomial(k);
            if (k > 0) {
                const Int second = std::max(k - 2, Int(0));
                const Vec ratio = k > 1 ? norm[k - 1] / norm[second] : Vec{};
                const double *before = polynomial(k - 1), *two_before = polynomial(second);
                Vec rest[MOST_DEGREE] = {};  // of those before, by rounding: it is taken away
                for (Int i = 0; i < count_ * W; i += W) {
                    const Vec value =
                        (load(times_ + i) - mean) * load(before + i) - ratio * load(two_before + i);
                    store(now + i, value);
                    for (Int j = 0; j < k; j++) rest[j] += value * load(polynomial(j) + i);
                }
                for (int m = 0; m < 4; m++) {
                    const Vec slope = m > 0 ? static_cast<double>(m) * at_row[k - 1][m - 1] : Vec{};
                    at_row[k][m] = slope - mean * at_row[k - 1][m] - ratio * at_row[second][m];
                }
                for (Int j = 0; j < k; j++) {
                    rest[j] /= norm[j];
                    for (int m = 0; m < 4; m++) at_row[k][m] -= rest[j] * at_row[j][m];
                }
                for (Int i = 0; i < count_ * W; i += W) {
                    Vec value = load(now + i);
                    for (Int j = 0; j < k; j++) value -= rest[j] * load(polynomial(j) + i);
                    store(now + i, value);
                }
            }
            Vec moment = {};
            for (Int i = 0; i < count_ * W; i += W) {
                const Vec value = load(now + i), square = value * value;
                norm[k] += square;
                moment += load(times_ + i) * square;
            }
            mean = moment / norm[k];
            for (int m = 0; m < 4; m++) factor[k][m] = at_row[k][m] / norm[k];
        }
        Vec weight[4] = {};  // on differences: those of all points up to it
        for (Int i = 0; i < count_; i++) {
            for (Int k = 0; k <= job_.degree; k++) {
                const Vec value = load(polynomial(k) + i * W);
                for (int m = 0; m < 4; m++) weight[m] -= factor[k][m] * value;
            }
            for (int m = 0; m < 4; m++) store(weights_ + (i * 4 + m) * W, weight[m]);
        }
        for (Int lane = 0; lane < W; lane++)  // beyond the base: and those of all points, which are 1
            for (Int i = kinds_[lane].base; i < count_; i++) weights_[i * 4 * W + lane] += 1.0;
        return Table<W>(kinds_, weights_);
    }

private:
    double* polynomial(Int k) const { return values_ + k * count_ * W; }

    // Points beyond the spans of rows: the first polynomial is 0 there, and so are all.
    void leave_out(Int trajectory, Int row, Int rows, double* values) {
        Windows windows(job_, row);
        const Int* spans = static_cast<const Int*>(job_.spans) + trajectory * job_.span_stride;
        for (Int lane = 0; lane < W; lane++) {
            const Int* span = spans + 2 * (row + std::min(lane, rows - 1));
            Kind& kind = kinds_[lane];
            kind.begin = span[0] - windows.first(), kind.end = span[1] - windows.first();
            for (Int i = 0; i < count_; i++)
                if (i < kind.begin || i > kind.end) values[i * W + lane] = 0.0;
            if (lane + 1 < rows) windows.advance();
        }
    }

    // The time from each row to each point of its window.
    void place_times(Int row, Int rows, Rows<const double> gaps) {
        Windows windows(job_, row);
        const Int from = windows.first();
        for (Int lane = 0; lane < W; lane++) {
            const Int base = kinds_of(job_)[windows.kind()].base;
            const double* gap = gaps.at + (windows.first() - from) * gaps.pitch;
            kinds_[lane] = {base, 0, count_ - 1};
            double time = 0.0;
            for (Int i = base; i >= 0; i--) {
                times_[i * W + lane] = time;
                if (i > 0) time -= gap[(i - 1) * gaps.pitch];
            }
            time = 0.0;
            for (Int i = base + 1; i < count_; i++)
                times_[i * W + lane] = time += gap[(i - 1) * gaps.pitch];
            if (lane + 1 < rows) windows.advance();
        }
    }

    const Job& job_;
    const Int count_;
    Buffer<double> buffer_;
    double* const times_ = buffer_.at;
    double* const weights_ = times_ + count_ * W;
    double* const values_ = weights_ + 4 * count_ * W;
    Kind kinds_[W];
};

// A strip of rows from ``row`` on. points: those from the first row's window on.
template <class Rule, class Out>
void band_strip(const Job& job, const Rule& rule, Int row, Int rows, Rows<const double> points,
                Out* const* to, Int pitch) {
    Windows windows(job, row);
    const Int from = windows.first();
    for (Int t = 0; t < rows; t++, windows.advance()) {
        Vec x[4];
        rule.derive(windows.first() - from, rule.kind(windows, t), points, x);
        for (int m = 0; m < 4; m++) store(to[m] + t * pitch, x[m]);
    }
}

// Its transpose: adds to the gradients of points, whose rows are whole vectors.
template <class Rule, class In>
void band_adjoint_strip(const Job& job, const Rule& rule, Int row, Int rows,
                        const Rows<const In>* upstream, Rows<double> points) {
    Windows windows(job, row);
    const Int from = windows.first();
    for (Int t = 0; t < rows; t++, windows.advance()) {
        Vec x[4];
        for (int m = 0; m < 4; m++) x[m] = load(upstream[m].at + t * upstream[m].pitch);
        rule.pull(windows.first() - from, rule.kind(windows, t), x, points);
    }
}

// Whether what rows have of a tile's dofs is finite.
inline bool finite(const Tile& tile, Rows<const double> values, Int rows) {
    const Int lanes = tile.group * tile.columns;
    bool all = true;
    for_strips(lanes, [&](Int column) {
        decltype(Vec{} != Vec{}) faults = {};
        for (Int t = 0; t < rows; t++) {
            const Vec value = load(values.at + t * values.pitch + column);
            faults |= value - value != 0.0;
        }
        for (Int lane = 0; lane < std::min(W, lanes - column); lane++) all &= !faults[lane];
    });
    return all;
}

// Calls ``work`` with the rule of a job's rows from ``row`` on, for every strip: rows
// [t, t + count), the first point of their windows, counted from that of all, and the first lane.
// plain: whether all that they take is finite.
template <class Work>
void for_rules(const Job& job, Fit& fit, const Tile& tile, Int row, Int rows, const double* dt,
               Rows<const double> gaps, bool plain, Work work) {
    const Int lanes = tile.lanes;
    if (!fits(job))
        return for_strips(lanes, [&](Int column) {
            !job.table ? work(Newton(job, gaps, column), 0, rows, 0, column)
            : plain    ? work(Table<1>(job, dt + column), 0, rows, 0, column)
                       : work(SparingTable(job, dt + column), 0, rows, 0, column);
        });
    for (Int t = 0; t < rows; t += W) {
        const Int count = std::min(W, rows - t);
        const Int point = first_point(job, row + t) - first_point(job, row);
        const Rows<const double> after = {gaps.at + point * gaps.pitch, gaps.pitch};
        const auto table = fit.make(tile.batch, row + t, count, after);
        for_strips(lanes, [&](Int column) { work(table, t, count, point, column); });
    }
}

// What both directions know of a job's points.
struct Points {
    Int actions, held, tail, count;  // where those after the actions begin, and how many are all
    Int lead;                        // those before the one that the first step follows

    explicit Points(const Job& job)
        : actions(job.head_count),
          held(actions + job.used),
          tail(held + job.held),
          count(tail + job.tail_count),
          lead(std::max(actions - 1, Int(0))) {}
};

// Calls ``use`` with what a point of the head or the tail takes of each part of a state.
template <class Use>
void for_parts(const Job& job, Address table, Int point, const double* dt, Use use) {
    const Vec spacing = static_cast<double>(job.spacing) * load(dt);
    Vec power = all(1.0);
    for (int m = 0; m < 4; m++, power *= spacing)
        if (const double c = static_cast<const double*>(table)[point * 4 + m]; c != 0.0)
            use(m, c * power);
}

template <class Out>
void band(Run& run, Int begin, Int end) {
    const Job& job = run.job;
    const Tiling tiling(job);
    const Points points(job);
    const Int pitch = whole(tiling.lanes);
    // those of the windows of a tile's rows, clipped ones included
    const Int most = std::min(tiling.rows / job.window_steps + 2 + job.width, points.count);
    Reader<double> first_step(run, tiling, job.dt, 1);
    Reader<double> steps(run, tiling, job.dt, most, {}, job.steps - 1);
    Reader<double> actions(run, tiling, job.actions, most, {}, job.used - 1);
    Readers<double> start(run, tiling, job.start, 1, job.start_index);
    Readers<double> goal(run, tiling, job.goal, 1, job.goal_index);
    Buffer<double> state(4 * pitch), window(most * tiling.lanes);
    Fit fit(job);
    Writer<Out> writer(run, tiling, 4);
    writer.write_items(begin, end, [&](const Tile& tile, Rows<Out>* out) {
        const double* dt = first_step.rows(tile, 0, 1).at;
        const bool starts = job.start_row && tile.row == 0;
        if (starts) {
            start.read(tile, state.at, pitch);
            write_start(tile, state.at, pitch, out);
        }
        const Int row = starts ? 0 : tile.row - job.start_row, rows = tile.rows - starts;
        if (rows == 0) return;
        const Int from = first_point(job, row), last = first_point(job, row + rows - 1) + job.width;
        auto place = [&](Address table, Int origin, Readers<double>& readers, Int i, Int stop) {
            if (i < stop) readers.read(tile, state.at, pitch);
            for (; i < stop; i++)
                for_strips(tile.lanes, [&](Int column) {
                    Vec sum = {};
                    for_parts(job, table, i - origin, dt + column, [&](int m, Vec factor) {
                        sum += factor * load(state.at + m * pitch + column);
                    });
                    store(window.at + (i - from) * tile.lanes + column, sum);
                });
        };
        place(job.head, 0, start, from, std::min(last, points.actions));
        const Int action = std::max(from, points.actions), stop = std::min(last, points.tail);
        if (action < stop)
            actions.copy(tile, action - points.actions, stop - action,
                         window.at + (action - from) * tile.lanes);
        place(job.tail, points.tail, goal, std::max(from, points.tail), last);
        Rows<const double> gaps = {};
        if (!job.table) gaps = steps.rows(tile, from - points.lead, last - from - 1);
        const bool plain = job.finite || finite(tile, {window.at, tile.lanes}, last - from);
        for_rules(job, fit, tile, row, rows, dt, gaps, plain,
                  [&](const auto& rule, Int t, Int count, Int point, Int column) {
                      Out* to[4];
                      for (int m = 0; m < 4; m++) to[m] = out[m].from(t, column).at;
                      double* at = window.at + point * tile.lanes + column;
                      band_strip(job, rule, row + t, count, {at, tile.lanes}, to, out[0].pitch);
                  });
    });
}

// The gradients of points: of each, what the rows whose windows reach it give.
template <class In>
class PointGradients {
public:
    PointGradients(Run& run, const Tiling& tiling)
        : pitch(whole(tiling.lanes)),
          upstream(run, tiling, run.job.upstream, chunk(run.job, tiling)),
          job_(run.job),
          chunk_(chunk(run.job, tiling)),
          steps_(run, tiling, job_.dt, chunk_ / job_.window_steps + 2 + job_.width, {},
                 job_.steps - 1),
          values_((tiling.rows + 2 * job_.width + Points(job_).count - job_.used + 2) * pitch),
          fit_(job_) {}

    // Gathers those of points [from, end), and again where one is not finite.
    void gather(const Tile& tile, Int from, Int end, const double* dt) {
        gather(tile, from, end, dt, true);
        if (job_.table && !finite(tile, {at(from), pitch}, end - from))
            gather(tile, from, end, dt, false);
    }

    double* at(Int point) { return values_.at + (point - begin_) * pitch; }

    const Int pitch;
    Readers<In> upstream;

private:
    void gather(const Tile& tile, Int from, Int end, const double* dt, bool plain) {
        const Int row = first_row(job_, from - job_.width + 1), last = first_row(job_, end);
        begin_ = row < last ? std::min(from, first_point(job_, row)) : from;
        const Int stop = row < last ? first_point(job_, last - 1) + job_.width : end;
        std::memset(values_.at, 0, bytes<double>((std::max(stop, end) - begin_) * pitch));
        for (Int t = row; t < last; t += chunk_) {
            const Int count = std::min(last - t, chunk_), origin = first_point(job_, t);
            const Int points = first_point(job_, t + count - 1) + job_.width - origin;
            Rows<const In> rows[4];
            for (int m = 0; m < 4; m++)
                rows[m] = upstream.part[m].rows(tile, t + job_.start_row, count);
            Rows<const double> gaps = {};
            if (!job_.table) gaps = steps_.rows(tile, origin - Points(job_).lead, points - 1);
            const Rows<double> to = {at(origin), pitch};
            for_rules(job_, fit_, tile, t, count, dt, gaps, plain,
                      [&](const auto& rule, Int u, Int some, Int point, Int column) {
                          Rows<const In> of[4];
                          for (int m = 0; m < 4; m++) of[m] = rows[m].from(u, column);
                          band_adjoint_strip(job_, rule, t + u, some, of, to.from(point, column));
                      });
        }
    }

    // Rows that are gathered at once.
    static Int chunk(const Job& job, const Tiling& tiling) {
        return std::min(std::max(job.window_count, Int(1)), tiling.rows_per_tile(job));
    }

    const Job& job_;
    const Int chunk_;
    Reader<double> steps_;
    Buffer<double> values_;
    Fit fit_;
    Int begin_ = 0;
};

// Tiles are of rows of actions.
template <class Out, class In>
void band_adjoint(Run& run, Int begin, Int end) {
    const Job& job = run.job;
    const Tiling tiling(job);
    const Points points(job);
    Reader<double> first_step(run, tiling, job.dt, 1);
    PointGradients<In> gradients(run, tiling);
    const Int pitch = gradients.pitch;
    Buffer<double> state(4 * pitch);
    Writer<Out> writer(run, tiling, 1);
    writer.write_items(begin, end, [&](const Tile& tile, Rows<Out>* out) {
        // the points of these actions, with those before the first and after the last
        const bool first = tile.row == 0, any = first || tile.row < job.used;
        const bool last = any && tile.row + tile.rows >= job.used;
        const Int action = points.actions + tile.row;
        const Int from = first ? 0 : action, stop = last ? points.count : action + tile.rows;
        const Int used = any ? std::min(stop, points.held) - action : 0;
        const double* dt = first_step.rows(tile, 0, 1).at;
        if (any) gradients.gather(tile, from, stop, dt);
        for (Int i = points.held; last && i < points.tail; i++)  // the last action again
            for_strips(tile.lanes, [&](Int column) {
                add(gradients.at(points.held - 1) + column, load(gradients.at(i) + column));
            });
        for (Int t = 0; t < used; t++)
            for_strips(tile.lanes, [&](Int column) {
                store(out->at + t * out->pitch + column, load(gradients.at(action + t) + column));
            });
        for (Int t = used; t < tile.rows; t++)
            std::fill_n(out->at + t * out->pitch, tile.lanes, Out(0));
        auto pull = [&](Address table, Int origin, Int count, const Address* to, Int start_row) {
            Rows<const In> row[4];
            for (int m = 0; m < 4; m++) row[m] = gradients.upstream.part[m].rows(tile, 0, start_row);
            for_strips(tile.lanes, [&](Int column) {
                Vec sum[4] = {};
                for (int m = 0; start_row && m < 4; m++) sum[m] = load(row[m].at + column);
                for (Int i = 0; i < count; i++)
                    for_parts(job, table, i, dt + column, [&](int m, Vec factor) {
                        sum[m] += factor * load(gradients.at(origin + i) + column);
                    });
                for (int m = 0; m < 4; m++) store(state.at + m * pitch + column, sum[m]);
            });
            for (int m = 0; m < 4; m++) write_state(job, to[m], tile, state.at + m * pitch);
        };
        if (first) pull(job.head, 0, job.head_count, job.start_gradient, job.start_row);
        if (last) pull(job.tail, points.tail, job.tail_count, job.goal_gradient, 0);
    });
}

}  // namespace LEVEL
