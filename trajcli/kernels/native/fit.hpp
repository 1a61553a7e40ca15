// The polynomials that fit recordings on unequal steps best, and their adjoint: see Band in
// kernels/program.py. Included by level.hpp after filter.hpp.

namespace LEVEL {

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
            const auto [base, begin, end, none] = kinds_[t];
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
            const auto [base, begin, end, none] = kinds_[t];
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
                const auto [base, begin, end, none] = kinds_[lane];
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
            kinds_[lane] = {kinds_of(job_)[windows.kind()].base, 0, count_, 0};
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

// Calls ``work`` for strips of a job's rows from ``row`` on: with the rows [t, t + count), the first
// point of their windows, counted from that of all rows, and the first lane.
template <class Work>
void for_fits(const Job& job, Fit& fit, const Tile& tile, Int row, Int rows,
              Rows<const double> gaps, Work work) {
    for (Int t = 0; t < rows; t += W) {
        const Int count = std::min(W, rows - t);
        const Int point = first_point(job, row + t) - first_point(job, row);
        fit.make(tile, row + t, count, gaps.from(point, 0));
        for_strips(tile.lanes, [&](Int column) { work(t, count, point, column); });
    }
}

// The points are the actions, and all rows are those of their windows.
template <class Out>
void fit_rows(Run& run, Int begin, Int end) {
    const Job& job = run.job;
    const Tiling tiling(job);
    const Int most = std::min(tiling.rows + 2 + job.width, job.used);  // points of a tile
    Reader<double> steps(run, tiling, job.dt, most, {}, job.steps - 1);
    Reader<double> actions(run, tiling, job.actions, most, {}, job.used - 1);
    Fit fit(job);
    Writer<Out> writer(run, tiling, 4);
    writer.write_items(begin, end, [&](const Tile& tile, Rows<Out>* out) {
        const Int from = first_point(job, tile.row);
        const Int count = first_point(job, tile.row + tile.rows - 1) + job.width - from;
        const Rows<const double> points = actions.rows(tile, from, count);
        const Rows<const double> gaps = steps.rows(tile, from, count - 1);
        for_fits(job, fit, tile, tile.row, tile.rows, gaps,
                 [&](Int t, Int, Int point, Int column) {
                     Out* to[4];
                     for (int m = 0; m < 4; m++) to[m] = out[m].from(t, column).at;
                     fit.derive(points.from(point, column), to, out[0].pitch);
                 });
    });
}

// Gathers the gradients of points: for each, the sum over the rows whose windows reach it.
template <class Out, class In>
void fit_adjoint(Run& run, Int begin, Int end) {
    const Job& job = run.job;
    const Tiling tiling(job);
    const Int pitch = whole(tiling.lanes);
    const Int chunk = std::min(std::max(job.window_count, Int(1)), tiling.rows_per_tile(job));
    Reader<double> steps(run, tiling, job.dt, chunk + 2 + job.width, {}, job.steps - 1);
    Readers<In> upstream(run, tiling, job.upstream, chunk);
    Buffer<double> values((tiling.rows + 2 * job.width + 2) * pitch), zeros(pitch);
    Fit fit(job);
    Writer<Out> writer(run, tiling, 1);
    writer.write_items(begin, end, [&](const Tile& tile, Rows<Out>* out) {
        const Int row = first_row(job, tile.row - job.width + 1);
        const Int last = first_row(job, tile.row + tile.rows);
        const Int from = first_point(job, row), stop = first_point(job, last - 1) + job.width;
        std::memset(values.at, 0, bytes<double>((stop - from) * pitch));
        for (Int t = row; t < last; t += chunk) {
            const Int count = std::min(last - t, chunk), origin = first_point(job, t);
            const Int points = first_point(job, t + count - 1) + job.width - origin;
            Rows<const In> rows[4];
            for (int m = 0; m < 4; m++) rows[m] = upstream.part[m].rows(tile, t, count);
            const Rows<const double> gaps = steps.rows(tile, origin, points - 1);
            const Rows<double> to = {values.at + (origin - from) * pitch, pitch};
            for_fits(job, fit, tile, t, count, gaps, [&](Int u, Int, Int point, Int column) {
                Rows<const In> of[4];
                for (int m = 0; m < 4; m++) of[m] = rows[m].from(u, column);
                fit.pull(of, to.from(point, column));
            });
        }
        for (Int t = 0; t < tile.rows; t++)
            for_strips(tile.lanes, [&](Int column) {
                const double* gradient = values.at + (tile.row + t - from) * pitch + column;
                store(out->at + t * out->pitch + column, load(gradient));
            });
        for (int m = 0; m < 4; m++) {
            write_state(job, job.start_gradient[m], tile, zeros.at);
            write_state(job, job.goal_gradient[m], tile, zeros.at);
        }
    });
}

}  // namespace LEVEL
