// Rows where steps differ, by polynomials through or near points: a rule of filter_rows and
// filter_adjoint for bands without a table. Included by level.hpp after filter.hpp.

namespace LEVEL {

// Fits take polynomials P_k that are orthogonal on the times t_i, which are 0 at the row, like
// fit_weights in kernels/least_squares.py. But they weight differences from the row's own point:
//
//     x_m = Σ_i w_mi · (X_i − X_base)  (x_0: and X_base),  w_mi = Σ_k P_k⁽ᵐ⁾(0) / |P_k|² · P_k(t_i)
//
// A polynomial through all points, in Newton's form, weights differences of neighbours: differences
// over longer spans lose digits where steps differ by many orders of magnitude.
//
// The weights of a block of W rows are computed side by side when they are needed. If trajectories
// share them, they are kept while there is room. W rows of one dof are computed side by side as well,
// by the same sums in the same order.
template <class Out>
class Uneven {
    static constexpr int MOST = 6;        // polynomials
    static constexpr Int ROOM = 1 << 17;  // for weights
    static constexpr Int NEXT = 5 * W;    // from the weights of a point to those of the next

public:
    Uneven(Run& run, const Tiling& tiling)
        : run_(run),
          job_(run.job),
          size_(job_.width * W),
          own_(tiling.own),
          kept_(own_ ? W : W * std::clamp(ROOM / (5 * size_), Int(1), job_.window_count / W + 1)),
          rows_(kept_),
          weights_(kept_ * job_.width * 5),
          times_((MOST + 1) * size_),
          gaps_(job_.width + W) {}

    void prepare(const Tile& tile) {
        lanes_ = tile.lanes, batch_ = tile.batch;
    }

    const double* scale(Int, int) const { return nullptr; }

    // Computes rows that follow each other, of each line; the first window is at ``point``.
    template <bool SPARING>
    void compute(Int row, Int, Int rows, const double* point, Int, const Stretches& over,
                 const Rows<Out>* out) {
        const Int origin = first_point(job_, row);
        const auto sums = [&](Int g, Int t, Int count, const Row* of, auto through, auto beside) INLINE {
            constexpr bool THROUGH = decltype(through)::value, BESIDE = decltype(beside)::value;
            const Int move = of[count - 1].first - of->first;  // of windows
            const Int first = THROUGH ? 1 : BESIDE ? 0 : of->begin, end = BESIDE ? job_.width : of->end;
            for (Int e = 0; e < lanes_; e += W) {
                const Int at = lanes_ < W ? 0 : std::min(e, lanes_ - W);
                const double* window = point + g * over.points + at;
                window += (of->first - origin) * lanes_;
                const auto x = [&](Int i) INLINE {
                    if (!BESIDE || move == count - 1) return load(window + i * lanes_);
                    Vec values = all(window[i]);
                    for (Int lane = 0; move && lane < count; lane++)
                        values[lane] = window[i + of[lane].first - of->first];
                    return values;
                };
                Vec here = load(window + of->base * lanes_);
                for (Int lane = 0; BESIDE && move < count - 1 && lane < count; lane++)
                    here[lane] = window[of[lane].base + of[lane].first - of->first];
                Vec sum[4] = {}, before = THROUGH ? x(0) : here;
                for (Int i = first; i < (THROUGH ? 5 : end); i++) {
                    const double* const w = of->weights + i * NEXT;
                    Vec rise = x(i) - before;
                    if (THROUGH) before = x(i);
                    if (BESIDE && !THROUGH) rise = load(w + 4 * W) != 0.0 ? rise : Vec{};
                    for (int m = THROUGH; m < 4; m++)
                        sum[m] += (BESIDE ? load(w + m * W) : all(w[m * W])) * rise;
                }
                sum[0] = THROUGH ? here : sum[0] + here;
                // a parabola has no jerk, even where its points are not finite
                if (job_.degree == 2) sum[3] = Vec{};
                for (int m = 0; m < 4; m++) {  // later rows overwrite what lies behind
                    const Rows<Out> to = out[m].from(g * over.rows[0] + t, at);
                    put(to.at, sum[m], (rows - t) * lanes_);
                }
            }
        };
        for_rows(row, rows, over.lines, [&](Int g, Int t, Int count, const Row* of) {
            constexpr std::true_type yes;
            constexpr std::false_type no;
            if (job_.degree)
                lanes_ == 1 ? sums(g, t, count, of, no, yes) : sums(g, t, count, of, no, no);
            else
                lanes_ == 1 ? sums(g, t, count, of, yes, yes) : sums(g, t, count, of, yes, no);
        });
    }

    // Adds to the gradients of points.
    void spread(Int row, Int, const double* upstream, Int size, Int rows, const Stretches& over, bool,
                double* points) {
        const Int origin = first_point(job_, row);
        for_rows(row, rows, over.lines, [&](Int g, Int t, Int count, const Row* of) {
            double* const to = points + g * over.points + (of->first - origin) * lanes_;
            const Int move = of[count - 1].first - of->first;  // of windows
            for (Int e = 0; e < lanes_; e += W) {
                Vec x[4];
                for (int m = 0; m < 4; m++)
                    x[m] = load(upstream + (g * 4 + m) * size + t * lanes_ + e);
                if (job_.degree == 2) x[3] = Vec{};
                const auto gradient = [&](Int i, auto weight) INLINE {
                    const double* const w = of->weights + i * NEXT;
                    Vec sum = weight(w) * x[0];
                    for (int m = 1; m < 4; m++) sum += weight(w + m * W) * x[m];
                    return sum;
                };
                for (Int i = of->begin; lanes_ > 1 && i < of->end; i++) {
                    const Vec sum = gradient(i, [&](const double* w) INLINE { return *w; });
                    add(to + i * lanes_ + e, sum, lanes_ - e);
                }
                for (Int i = 0; lanes_ == 1 && i < job_.width; i++) {
                    const Vec sum = gradient(i, [&](const double* w) INLINE { return load(w); });
                    store(times_.at + i * W, load(of->weights + i * NEXT + 4 * W) != 0.0 ? sum : Vec{});
                }
                // a point takes those of earlier rows first
                for (Int p = 0; lanes_ == 1 && p < move + job_.width; p++) {
                    double sum = to[p];
                    for (Int lane = 0; lane < count; lane++)
                        if (const Int i = p + of->first - of[lane].first; i >= 0 && i < job_.width)
                            sum += times_.at[i * W + lane];
                    to[p] = sum;
                }
            }
        });
    }

private:
    // A row's number, counted through all trajectories and from 1 on; its window, the point that it
    // is for, those that it takes; weights of its points, W apart, for each order, and last whether it
    // takes the point.
    struct Row {
        Int number, first, base, begin, end;
        const double* weights;
    };

    // Calls ``use`` with trajectories of the tile, and rows from ``row`` on: how many are computed side
    // by side.
    template <class Use>
    void for_rows(Int row, Int rows, Int group, Use use) {
        for (Int begin = 0, end; begin < group; begin = end) {
            end = own_ ? begin + 1 : group, trajectory_ = own_ ? batch_ + begin : 0;
            for (Int t = 0, count; t < rows; t += count) {
                const Row* const of = rows_.at + (row + t) % kept_;
                if (of->number != trajectory_ * job_.window_count + row + t + 1) make((row + t) / W * W);
                count = lanes_ == 1 ? std::min(W - (row + t) % W, rows - t) : 1;
                for (Int g = begin; g < end; g++) use(g, t, count, of);
            }
        }
    }

    double step(Int trajectory, Int row) const {
        double dt;
        std::memcpy(&dt, element(job_.dt, trajectory, row, 0), sizeof dt);
        return dt;
    }

    // Makes the weights of W rows.
    void make(Int row) {
        const Int origin = first_point(job_, row), size = size_;
        double *const gaps = gaps_.at, *const times = times_.at;
        const Int lead = std::max(job_.head_count - 1, Int(0));
        double* const weights = weights_.at + row % kept_ * job_.width * 5;
        Row* const rows = rows_.at + row % kept_;
        Vec begin, end, sum = {};
        for (Int lane = 0, known = 0; lane < W; lane++) {
            const Int own = std::min(row + lane, job_.window_count - 1);
            const Windows window(job_, own);
            const Int first = window.first(), base = kinds_of(job_)[window.kind()].base;
            const Int* span = static_cast<const Int*>(job_.spans);
            if (span) span += trajectory_ * job_.span_stride + 2 * own;
            // difference i is the one before point i
            rows[lane] = {trajectory_ * job_.window_count + row + lane + 1, first, base,
                          span ? span[0] - first : !job_.degree && !job_.adjoint,
                          span ? span[1] + 1 - first : job_.width, weights + lane};
            begin[lane] = static_cast<double>(rows[lane].begin);
            end[lane] = static_cast<double>(rows[lane].end);
            for (; known < first + job_.width - 1 - origin; known++) {
                const Int at = std::clamp(origin + known - lead, Int(0), job_.steps - 1);
                gaps[known] = step(trajectory_, at);
                const bool finite = gaps[known] * 0.0 == 0.0;
                if (!finite && !job_.allow_nonfinite) run_.status = NOT_FINITE;
            }
        }
        if (rows[W - 1].first == origin + W - 1 && rows[W - 1].base == rows[0].base) {
            add_gaps<Vec>(gaps, rows[0].base, times);
        } else {
            for (Int lane = 0; lane < W; lane++)
                add_gaps<double>(gaps + rows[lane].first - origin, rows[lane].base, times + lane);
        }
        if (!job_.degree) return interpolate(weights);
        for (Int i = 0; i < size; i += W) {
            const Vec place = all(static_cast<double>(i / W));
            const Vec inside = (place >= begin) & (place < end) ? all(1.0) : Vec{};
            store(times + size + i, inside);
            store(weights + i * 5 + 4 * W, inside);
            sum += inside * load(times + i);
        }
        norm_[0] = end - begin, inverse_[0] = 1.0 / norm_[0], mean_ = sum * inverse_[0];
        extend<1>(weights);
    }

    // Computes the times of points, W apart, of one row or of W. They are sums of the gaps between, as
    // differences of times would lose digits. The gaps follow behind.
    template <class T>
    void add_gaps(const double* gaps, Int base, double* times) const {
        T before = {}, after = {}, gap;
        std::memcpy(times + base * W, &before, sizeof gap);
        for (Int i = base; i-- > 0;) {
            std::memcpy(&gap, gaps + i, sizeof gap);
            before -= gap;
            std::memcpy(times + i * W, &before, sizeof gap);
        }
        for (Int i = base + 1; i < job_.width; i++) {
            std::memcpy(&gap, gaps + i - 1, sizeof gap);
            after += gap;
            std::memcpy(times + i * W, &after, sizeof gap);
        }
        for (Int i = 0; !job_.degree && i < 4; i++)
            std::memcpy(times + size_ + i * W, gaps + i, sizeof gap);
    }

    // Makes the weights of differences of five points in Newton's form; of a gradient, those of points.
    void interpolate(double* weights) const {
        const double *const times = times_.at, *const gaps = times + size_;
        // share[j][i]: of difference i in that of points j to j + k + 1, divided. basis[m]: the derivative
        // of order m, over m!, of the product of the times since points 0 to k
        Vec sum[4] = {}, share[4][4] = {}, order[4][4] = {}, basis[4] = {all(1.0)};
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            const Vec since = -load(times + k * W);
            for (int m = 3; m > 0; m--) basis[m] = basis[m] * since + basis[m - 1];
            basis[0] *= since;
#pragma GCC unroll 4
            for (int j = 0; j + k < 4; j++) {
                sum[j] += load(gaps + (j + k) * W);
                const Vec inverse = 1.0 / sum[j];
                if (k == 0) {
                    share[j][j] = inverse;
                    continue;
                }
#pragma GCC unroll 4
                for (int i = j; i <= j + k; i++)
                    share[j][i] = (share[j + 1][i] - share[j][i]) * inverse;
            }
#pragma GCC unroll 4
            for (int i = 0; i <= k; i++)
                for (int m = 1; m < 4; m++) order[i][m] += share[0][i] * basis[m];
        }
        for (int i = 0; i < 4; i++) {
            const Vec values[5] = {{}, order[i][1], 2.0 * order[i][2], 6.0 * order[i][3], all(1.0)};
            for (int m = 0; m < 5; m++) store(weights + (i + 1) * NEXT + m * W, values[m]);
        }
        for (int i = 0; job_.adjoint && i < 5; i++, weights += NEXT)
            for (int m = 0; m < 4; m++) {
                Vec own = i > 0 ? load(weights + m * W) : Vec{};
                if (i < 4) own -= load(weights + NEXT + m * W);
                if (m == 0) own = load(times + i * W) == 0.0 ? all(1.0) : Vec{};
                store(weights + m * W, own);
                store(weights + 4 * W, all(1.0));
            }
    }

    // Makes polynomial K by the three-term recurrence. Rounding leaves some of the earlier polynomials in
    // it, above all across gaps, so that these are taken out once more. Then makes the polynomials after
    // it, and the weights.
    template <int K>
    void extend(double* weights) {
        constexpr int one = K - 1, two = std::max(K - 2, 0);
        const Int size = size_;
        double *const times = times_.at, *const values = times + size;
        const Vec center = mean_, ratio = K > 1 ? norm_[one] * inverse_[two] : Vec{};
        for (int m = 0; m < 4; m++) {
            const Vec slope = m > 0 ? static_cast<double>(m) * at_row_[one][m - 1] : Vec{};
            at_row_[K][m] = slope - center * at_row_[one][m] - ratio * at_row_[two][m];
        }
        Vec share[K] = {};
        for (bool some = false, again = false;; again = true) {
            Vec rest[K] = {}, square = {}, moment = {};
            for (Int i = 0; i < size; i += W) {
                Vec before[K], time = load(times + i);
                for (int j = 0; j < K; j++) before[j] = load(values + j * size + i);
                Vec value = (time - center) * before[one];
                if (K > 1) value -= ratio * before[two];
                for (int j = 0; again && j < K; j++) value -= share[j] * before[j];
                store(values + K * size + i, value);
                square += value * value, moment += time * (value * value);
                for (int j = 0; j < K; j++) rest[j] += value * before[j];
            }
            norm_[K] = square, inverse_[K] = 1.0 / square, mean_ = moment * inverse_[K];
            for (int j = 0; !again && j < K; j++) {
                const Mask none = rest[j] * rest[j] < 1e-28 * norm_[j] * square;
                share[j] = none ? Vec{} : rest[j] * inverse_[j], some |= any(~none);
                for (int m = 0; m < 4; m++) at_row_[K][m] -= share[j] * at_row_[j][m];
            }
            if (again || !some) break;
        }
        if constexpr (K + 1 < MOST)
            if (K < job_.degree) return extend<K + 1>(weights);
        Vec factor[K + 1][4];
        for (int k = 0; k <= K; k++)
            for (int m = 0; m < 4; m++) factor[k][m] = at_row_[k][m] * inverse_[k];
        for (Int i = 0; i < size; i += W, weights += NEXT)
            for (int m = 0; m < 4; m++) {
                Vec sum = {};
                for (int k = m; k <= K; k++) sum += factor[k][m] * load(values + k * size + i);
                store(weights + m * W, sum);
            }
    }

    Run& run_;
    const Job& job_;
    const Int size_;  // of the values of a polynomial
    const bool own_;  // whether each trajectory has its own weights
    const Int kept_;  // rows
    Buffer<Row> rows_;
    Buffer<double> weights_, times_, gaps_;  // after the times: the values of each polynomial
    Int batch_ = 0, trajectory_ = 0, lanes_ = 0;
    // of each polynomial: derivatives at the row, sum of squares, inverse; the next one's center
    Vec at_row_[MOST][4] = {{all(1.0)}}, norm_[MOST], inverse_[MOST], mean_;
};

}  // namespace LEVEL
