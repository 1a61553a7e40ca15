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

// A kind of row: the point that its position is based on, and the range of differences that have
// weights.
struct Kind {
    Int base, begin, end;
};

inline const Kind* kinds_of(const Job& job) { return static_cast<const Kind*>(job.kinds); }

// Adds to the gradient of a point.
inline void add(double* point, Vec gradient) { store(point, load(point) + gradient); }

// Computes rows by a job's table of weights, which are for points one unit apart, and divides by
// powers of the spacing.
//
// SPARING is for tiles with values that are not finite. It leaves out points of weight zero, which
// lie between two differences of equal weights. Finite lanes get the same bits either way.
template <bool SPARING>
class Table {
public:
    Table(const Job& job, const double* dt)
        : next_kind_((job.width - 1) * 4),
          copies_(job.copies),
          kinds_(kinds_of(job)),
          weights_(static_cast<const double*>(job.table)) {
        const Vec spacing = static_cast<double>(job.spacing) * load(dt);
        Vec power = all(1.0);
        for (Vec& scale : scale_) scale = 1.0 / power, power *= spacing;
    }

    // Computes position to jerk of a row whose window begins at point ``first``.
    void derive(Int first, Int kind, Rows<const double> points, Vec* x) const {
        const auto [base, begin, end] = kinds_[kind];
        const double* point = points.at + first * points.pitch;
        const double* weights = weights_ + kind * next_kind_ + begin * 4;
        const double* at = point + begin * points.pitch;
        Vec sum[4] = {}, here[4];
        for (Vec& value : here) value = load(at);
        for (Int i = begin; i < end; i++, weights += 4) {
            const Vec next = load(at += points.pitch), change = next - here[0];
            for (int m = copies_; SPARING && m < 4; m++) {
                const bool skips = weights[m] == weight_of(kind, i + 1, m);
                const Vec after = skips ? finite_or(next, here[m]) : next;
                if (weights[m] != 0) sum[m] += weights[m] * (after - here[m]);
                here[m] = after;
            }
            if (SPARING) continue;
            if (!copies_) sum[0] += weights[0] * change;
            for (int m = 1; m < 4; m++) sum[m] += weights[m] * change;
            here[0] = next;
        }
        x[0] = load(point + base * points.pitch);
        if (!copies_) x[0] += sum[0];
        for (int m = 1; m < 4; m++) x[m] = sum[m] * scale_[m];
    }

    // The transpose of derive: adds to the gradients of the points.
    void pull(Int first, Int kind, const Vec* x, Rows<double> points) const {
        const auto [base, begin, end] = kinds_[kind];
        double* point = points.at + first * points.pitch;
        const double* weights = weights_ + kind * next_kind_ + begin * 4;
        Vec g[4], nan[4], before = {};  // nan: 0 where g is finite
        for (int m = 0; m < 4; m++) {
            g[m] = (SPARING ? finite_or(x[m], Vec{}) : x[m]) * scale_[m];
            nan[m] = x[m] - x[m];
        }
        for (Int i = begin; i <= end; i++, weights += 4) {
            Vec sum = {};
            if (i < end) {
                sum = weights[1] * g[1] + weights[2] * g[2] + weights[3] * g[3];
                if (!copies_) sum += weights[0] * g[0];
            }
            Vec gradient = before - sum;
            for (int m = copies_; SPARING && m < 4; m++)
                if (weight_of(kind, i - 1, m) != weight_of(kind, i, m)) gradient += nan[m];
            add(point + i * points.pitch, gradient);
            before = sum;
        }
        add(point + base * points.pitch, x[0]);
    }

private:
    // The weight of difference i in order m; zero outside the range of weights.
    double weight_of(Int kind, Int i, int m) const {
        const Kind& of = kinds_[kind];
        return i < of.begin || i >= of.end ? 0.0 : weights_[kind * next_kind_ + i * 4 + m];
    }

    const Int next_kind_;
    const bool copies_;
    const Kind* kinds_;
    const double* weights_;
    Vec scale_[4];
};

// Computes rows where steps differ: derivatives of the polynomial through five points, in Newton's
// form by Horner's rule. This takes differences of points and sums of gaps; it subtracts no times,
// which would lose digits where neighbouring steps differ by many orders of magnitude.
class Newton {
public:
    // ``gaps`` follow each point, beginning with the window of the first row.
    Newton(const Job& job, Rows<const double> gaps, Int column)
        : kinds_(kinds_of(job)), gaps_{gaps.at + column, gaps.pitch} {}

    void derive(Int first, Int kind, Rows<const double> points, Vec* x) const {
        const Int base = kinds_[kind].base, next = points.pitch;
        const double* point = points.at + first * next;
        const Times times(gaps_.at + first * gaps_.pitch, gaps_.pitch, base);
        Vec change[4];
        for (int j = 0; j < 4; j++, point += next)
            change[j] = (load(point + next) - load(point)) / times.length[0][j];
        for (int k = 1; k < 4; k++)  // place k gets the divided difference of points 0 to k + 1
            for (int j = 3; j >= k; j--)
                change[j] = (change[j] - change[j - 1]) / times.length[k][j - k];
        Vec sum = change[3], velocity = {}, half = {}, sixth = {};  // acceleration / 2, jerk / 6
        for (int k = 3; k >= 0; k--) {
            sixth = sixth * times.since[k] + half;
            half = half * times.since[k] + velocity;
            velocity = velocity * times.since[k] + sum;
            if (k > 0) sum = sum * times.since[k] + change[k - 1];
        }
        x[0] = load(points.at + (first + base) * next);
        x[1] = velocity, x[2] = 2.0 * half, x[3] = 6.0 * sixth;
    }

    // The transpose of derive, step by step from its end.
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
        Vec length[4][4];  // [k][j]: the sum of k + 1 gaps from j on
        Vec since[5];      // the time from each point to the base

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

// Computes rows where steps differ by the polynomials that fit their windows best, for as many rows
// at a time as a vector has lanes. Like fit_weights in kernels/fit.py it sums over polynomials P_k
// that are orthogonal on the times t_i, which are 0 at the row,
//
//     x_m = Σ_k P_k⁽ᵐ⁾(0) / |P_k|² · Σ_i P_k(t_i) · (X_i − X_base)      (x_0: and X_base)
//
// Where columns are few, the lanes of vectors are rows. Otherwise rows are computed one by one, by
// the same sums in the same order.
class Fit {
    static constexpr int MOST = 6;  // polynomials

public:
    explicit Fit(const Job& job)
        : job_(job),
          count_(fits(job) ? job.width : 0),
          memory_(((MOST + 2) * count_ + 4 * MOST) * W),
          times_(memory_.at),
          gradients_(times_ + count_ * W),
          factors_(gradients_ + count_ * W),
          values_(factors_ + 4 * MOST * W) {}

    // Prepares the rows from ``row`` on, at most W. ``gaps`` follow each point, beginning with the
    // window of the first row; they are the same in all lanes.
    void make(const Tile& tile, Int row, Int rows, Rows<const double> gaps) {
        rows_ = rows, columns_ = tile.lanes * 2 <= W ? tile.lanes : 0;
        place_times(row, gaps);
        for (Int i = 0; i < count_; i++) store(polynomial(0) + i * W, all(1.0));
        if (job_.spans) leave_out(tile.batch, row);
        with_degree([&](auto degree) {
            Basis basis = {};
            basis.at_row[0][0] = all(1.0);
            extend<0, decltype(degree)::value>(basis);
        });
    }

    // Computes rows of points; these begin with the window of the first row.
    template <class Out>
    void derive(Rows<const double> points, Out* const* to, Int pitch) const {
        for (Int t = 0; !columns_ && t < rows_; t++) {
            Vec x[4];
            const auto [base, begin, end] = kinds_[t];
            const Rows<const double> window = points.from(first_[t], 0);
            const auto point = [&](Int i) { return load(window.at + i * window.pitch); };
            sum(begin, end, point, point(base), [&](const double* of) { return of[t]; }, x);
            for (int m = 0; m < 4; m++) store(to[m] + t * pitch, x[m]);
        }
        for (Int d = 0; d < columns_; d++) {
            Vec x[4], here;
            for (Int lane = 0; lane < W; lane++)
                here[lane] = *points.from(first_[lane] + kinds_[lane].base, d).at;
            const auto point = [&](Int i) { return choose(i, gather(points.from(0, d), i), here); };
            sum(0, count_, point, here, [&](const double* of) { return load(of); }, x);
            for (int m = 0; m < 4; m++) scatter(x[m], Rows<Out>{to[m] + d, pitch});
        }
    }

    // The transpose of derive: adds to the gradients of the points.
    template <class In>
    void pull(const Rows<const In>* upstream, Rows<double> points) const {
        for (Int t = 0; !columns_ && t < rows_; t++) {
            Vec x[4], total = {};
            for (int m = 0; m < 4; m++) x[m] = load(upstream[m].from(t, 0).at);
            const auto [base, begin, end] = kinds_[t];
            const Rows<double> window = points.from(first_[t], 0);
            const auto use = [&](Int i, Vec gradient) {
                add(window.at + i * window.pitch, gradient);
                total += gradient;
            };
            spread(begin, end, x, [&](const double* of) { return of[t]; }, use);
            add(window.at + base * window.pitch, x[0] - total);
        }
        for (Int d = 0; d < columns_; d++) {
            Vec x[4] = {}, total = {};
            for (int m = 0; m < 4; m++)
                for (Int lane = 0; lane < rows_; lane++)
                    x[m][lane] = *upstream[m].from(lane, d).at;
            const auto use = [&](Int i, Vec gradient) {
                gradient = choose(i, gradient, Vec{});
                store(gradients_ + i * W, gradient);
                total += gradient;
            };
            spread(0, count_, x, [&](const double* of) { return load(of); }, use);
            for (Int lane = 0; lane < rows_; lane++) {
                const auto [base, begin, end] = kinds_[lane];
                const Rows<double> window = points.from(first_[lane], d);
                for (Int i = begin; i < end; i++)
                    window.at[i * window.pitch] += gradients_[i * W + lane];
                window.at[base * window.pitch] += x[0][lane] - total[lane];
            }
        }
    }

private:
    // Each polynomial's derivatives at the row, its sum of squares, and the inverse of that.
    struct Basis {
        Vec at_row[MOST][4], norm[MOST], inverse[MOST], mean;
    };

    template <class Work>
    void with_degree(Work work) const {
        switch (job_.degree) {
            case 2: return work(std::integral_constant<int, 2>());
            case 3: return work(std::integral_constant<int, 3>());
            case 4: return work(std::integral_constant<int, 4>());
            default: return work(std::integral_constant<int, 5>());
        }
    }

    double* polynomial(Int k) const { return values_ + k * count_ * W; }
    double* factor(Int k, Int m) const { return factors_ + (k * 4 + m) * W; }

    // Takes a where point i is within the window, else b.
    Vec choose(Int i, Vec a, Vec b) const { return load(polynomial(0) + i * W) != 0.0 ? a : b; }

    // Makes polynomial K by the three-term recurrence, then those after it.
    template <int K, int LAST>
    void extend(Basis& basis) const {
        auto& [at_row, norm, inverse, mean] = basis;
        constexpr int one = std::max(K - 1, 0), two = std::max(K - 2, 0);
        const Vec center = mean, ratio = K > 1 ? norm[one] * inverse[two] : Vec{};
        double* const now = polynomial(K);
        Vec rest[MOST] = {};  // products with earlier polynomials, which rounding leaves
        Vec square = {}, moment = {};
        for (Int i = 0; i < count_ * W; i += W) {
            const Vec time = load(times_ + i);
            Vec value = load(now + i);
            if constexpr (K > 0) {
                Vec before[K];
                for (int j = 0; j < K; j++) before[j] = load(polynomial(j) + i);
                value = (time - center) * before[one] - ratio * before[two];
                store(now + i, value);
                for (int j = 0; j < K; j++) rest[j] += value * before[j];
            }
            square += value * value;
            moment += time * (value * value);
        }
        norm[K] = square, mean = moment;
        if constexpr (K > 0) {
            for (int m = 0; m < 4; m++) {
                const Vec slope = m > 0 ? static_cast<double>(m) * at_row[one][m - 1] : Vec{};
                at_row[K][m] = slope - center * at_row[one][m] - ratio * at_row[two][m];
            }
            bool any = false;
            for (int j = 0; j < K; j++) {  // none: orthogonal up to rounding
                const auto none = rest[j] * rest[j] < 1e-28 * norm[j] * norm[K];
                rest[j] = none ? Vec{} : rest[j] * inverse[j];
                for (Int lane = 0; lane < W; lane++) any |= !none[lane];
            }
            if (any) take_away<K>(basis, rest);
        }
        inverse[K] = 1.0 / norm[K];
        mean *= inverse[K];
        for (int m = 0; m < 4; m++) store(factor(K, m), at_row[K][m] * inverse[K]);
        if constexpr (K < LAST) extend<K + 1, LAST>(basis);
    }

    // Makes polynomial K orthogonal to all before it once more.
    template <int K>
    void take_away(Basis& basis, const Vec* rest) const {
        auto& [at_row, norm, inverse, mean] = basis;
        for (int j = 0; j < K; j++)
            for (int m = 0; m < 4; m++) at_row[K][m] -= rest[j] * at_row[j][m];
        Vec square = {}, moment = {};
        for (Int i = 0; i < count_ * W; i += W) {
            Vec value = load(polynomial(K) + i);
            for (int j = 0; j < K; j++) value -= rest[j] * load(polynomial(j) + i);
            store(polynomial(K) + i, value);
            square += value * value;
            moment += load(times_ + i) * (value * value);
        }
        norm[K] = square, mean = moment;
    }

    template <class Point, class Pick>
    void sum(Int begin, Int end, Point point, Vec here, Pick pick, Vec* x) const {
        with_degree([&](auto degree) {
            Vec sums[degree + 1] = {};
            for (Int i = begin; i < end; i++) {
                const Vec rise = point(i) - here;
                for (int k = 0; k <= degree; k++) sums[k] += pick(polynomial(k) + i * W) * rise;
            }
            for (int m = 0; m < 4; m++) {
                x[m] = m == 0 ? here : Vec{};
                for (int k = m; k <= degree; k++)
                    x[m] += pick(factor(k, m)) * sums[k];
            }
        });
    }

    template <class Pick, class Use>
    void spread(Int begin, Int end, const Vec* x, Pick pick, Use use) const {
        with_degree([&](auto degree) {
            Vec share[degree + 1] = {};
            for (int k = 0; k <= degree; k++)
                for (int m = 0; m <= std::min(k, 3); m++) share[k] += pick(factor(k, m)) * x[m];
            for (Int i = begin; i < end; i++) {
                Vec gradient = {};
                for (int k = 0; k <= degree; k++)
                    gradient += pick(polynomial(k) + i * W) * share[k];
                use(i, gradient);
            }
        });
    }

    // Point i of each row's window.
    Vec gather(Rows<const double> points, Int i) const {
        if (points.pitch == 1 && follows_) return load(points.at + first_[0] + i);
        Vec result;
        for (Int lane = 0; lane < W; lane++) result[lane] = *points.from(first_[lane] + i, 0).at;
        return result;
    }

    template <class Out>
    void scatter(Vec values, Rows<Out> to) const {
        if (to.pitch == 1 && rows_ == W) return store(to.at, values);
        for (Int lane = 0; lane < rows_; lane++)
            *to.from(lane, 0).at = static_cast<Out>(values[lane]);
    }

    // Leaves out points beyond the spans of rows: the first polynomial is 0 there, hence all are.
    void leave_out(Int trajectory, Int row) {
        const Int origin = first_point(job_, row);
        const Int* spans = static_cast<const Int*>(job_.spans) + trajectory * job_.span_stride;
        for (Int lane = 0; lane < W; lane++) {
            const Int* span = spans + 2 * (row + std::min(lane, rows_ - 1));
            Kind& kind = kinds_[lane];
            kind.begin = span[0] - origin - first_[lane];
            kind.end = span[1] + 1 - origin - first_[lane];
            for (Int i = 0; i < count_; i++)
                if (i < kind.begin || i >= kind.end) polynomial(0)[i * W + lane] = 0.0;
        }
    }

    // Stores the time from each row to each point of its window.
    void place_times(Int row, Rows<const double> gaps) {
        Windows windows(job_, row);
        const Int origin = windows.first();
        Vec bases, time = {};
        follows_ = true;
        for (Int lane = 0; lane < W; lane++) {
            first_[lane] = windows.first() - origin;
            kinds_[lane] = {kinds_of(job_)[windows.kind()].base, 0, count_};
            bases[lane] = static_cast<double>(kinds_[lane].base);
            follows_ &= first_[lane] == lane;
            if (lane + 1 < rows_) windows.advance();
        }
        // sums of the gaps between, as differences of times would lose digits
        for (Int i = 0; i < count_; i++) {
            if (i > 0) time = bases < static_cast<double>(i) ? time + gather(gaps, i - 1) : time;
            store(times_ + i * W, time);
        }
        time = Vec{};
        for (Int i = count_ - 2; i >= 0; i--) {
            time = bases > static_cast<double>(i) ? time - gather(gaps, i) : time;
            store(times_ + i * W, load(times_ + i * W) + time);
        }
    }

    const Job& job_;
    const Int count_;
    Buffer<double> memory_;
    double *const times_, *const gradients_, *const factors_, *const values_;
    Int rows_ = 0, columns_ = 0;  // columns_: those computed with rows as lanes
    Int first_[W];                // where windows begin, counted from that of the first row
    bool follows_ = false;        // whether each window begins one point after the one before
    Kind kinds_[W];
};

// Computes a strip of rows from ``row`` on; points begin with the window of the first row.
template <class Rule, class Out>
void band_strip(const Job& job, const Rule& rule, Int row, Int rows, Rows<const double> points,
                Out* const* to, Int pitch) {
    Windows windows(job, row);
    const Int from = windows.first();
    for (Int t = 0; t < rows; t++, windows.advance()) {
        Vec x[4];
        rule.derive(windows.first() - from, windows.kind(), points, x);
        for (int m = 0; m < 4; m++) store(to[m] + t * pitch, x[m]);
    }
}

template <class Out>
void band_strip(const Job&, const Fit& fit, Int, Int, Rows<const double> points, Out* const* to,
                Int pitch) {
    fit.derive(points, to, pitch);
}

// The transpose of band_strip: adds to the gradients of points, whose rows are whole vectors.
template <class Rule, class In>
void band_adjoint_strip(const Job& job, const Rule& rule, Int row, Int rows,
                        const Rows<const In>* upstream, Rows<double> points) {
    Windows windows(job, row);
    const Int from = windows.first();
    for (Int t = 0; t < rows; t++, windows.advance()) {
        Vec x[4];
        for (int m = 0; m < 4; m++) x[m] = load(upstream[m].at + t * upstream[m].pitch);
        rule.pull(windows.first() - from, windows.kind(), x, points);
    }
}

template <class In>
void band_adjoint_strip(const Job&, const Fit& fit, Int, Int, const Rows<const In>* upstream,
                        Rows<double> points) {
    fit.pull(upstream, points);
}

// Returns whether all values of rows in a tile's dofs are finite.
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

// Calls ``work`` for every strip of a job's rows from ``row`` on, with the rule that computes them,
// the rows [t, t + count), the first point of their windows, counted from that of all rows, and the
// first lane. ``plain``: all values that they take are finite.
template <class Work>
void for_rules(const Job& job, Fit& fit, const Tile& tile, Int row, Int rows, const double* dt,
               Rows<const double> gaps, bool plain, Work work) {
    const Int lanes = tile.lanes;
    if (!fits(job))
        return for_strips(lanes, [&](Int column) {
            !job.table ? work(Newton(job, gaps, column), 0, rows, 0, column)
            : plain    ? work(Table<false>(job, dt + column), 0, rows, 0, column)
                       : work(Table<true>(job, dt + column), 0, rows, 0, column);
        });
    for (Int t = 0; t < rows; t += W) {
        const Int count = std::min(W, rows - t);
        const Int point = first_point(job, row + t) - first_point(job, row);
        const Rows<const double> after = {gaps.at + point * gaps.pitch, gaps.pitch};
        fit.make(tile, row + t, count, after);
        for_strips(lanes, [&](Int column) { work(fit, t, count, point, column); });
    }
}

// The layout of a job's points, for both directions.
struct Points {
    Int actions, held, tail, count;  // where each kind begins, and the number of all
    Int lead;                        // points before the one that the first step follows

    explicit Points(const Job& job)
        : actions(job.head_count),
          held(actions + job.used),
          tail(held + job.held),
          count(tail + job.tail_count),
          lead(std::max(actions - 1, Int(0))) {}
};

// Calls ``use`` with the factor of each part of a state in a point of the head or the tail.
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
    // the points of a tile's windows, clipped ones included
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

// The gradients of points: for each, the sum over the rows whose windows reach it.
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

    // Gathers the gradients of points [from, end), sparingly where one is not finite.
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

    // The number of rows that are gathered at once.
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

// Tiles are rows of actions.
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
