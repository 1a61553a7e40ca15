// The polynomials that fit recordings on unequal steps best: a rule of filter_rows and
// filter_adjoint, see Band in kernels/program.py. Included by level.hpp after filter.hpp.

namespace LEVEL {

// Like fit_weights in kernels/fit.py it takes polynomials P_k that are orthogonal on the times t_i,
// which are 0 at the row, but it weights differences from the row's own point:
//
//     x_m = Σ_i w_mi · (X_i − X_base)  (x_0: and X_base),  w_mi = Σ_k P_k⁽ᵐ⁾(0) / |P_k|² · P_k(t_i)
//
// The weights of W rows, a block, are made side by side when they are needed, and kept while there
// is room if trajectories share them. W rows of one dof are computed side by side too, by the same
// sums in the same order.
class Fitted {
    static constexpr int MOST = 6;        // polynomials
    static constexpr Int ROOM = 1 << 17;  // for weights
    static constexpr Int NEXT = 5 * W;    // from the weights of a point to those of the next

public:
    static constexpr int CHANNELS = 4;  // of upstream: the four parts

    Fitted(Run& run, const Tiling&)
        : run_(run),
          job_(run.job),
          size_(job_.width * W),
          own_(job_.dt.stride[0] || job_.span_stride),
          kept_(own_ ? W : W * std::clamp(ROOM / (5 * size_), Int(1), job_.window_count / W + 1)),
          rows_(kept_),
          weights_(kept_ * job_.width * 5),
          times_((MOST + 1) * size_),
          gaps_(job_.width + W) {}

    void prepare(const Tile& tile, Int trajectory, Int, Int stop) {
        columns_ = tile.columns, stop_ = stop, trajectory_ = own_ ? trajectory : 0;
    }

    // Computes rows that follow each other, of each stretch; the first window is at ``point``.
    template <bool SPARING, class Out>
    void share(Int row, Int, const double* point, Int rows, const Stretches& stretches,
               const Rows<Out>* out) {
        const Int origin = first_point(job_, row);
        for (Int t = 0, count; t < rows; t += count) {
            const Row* const of = row_of(row + t);
            const bool same = of->first == of[of->side - 1].first;  // windows
            count = columns_ == 1 ? std::min(of->side, rows - t) : 1;
            for (Int s = 0; s < stretches.number; s++)
                for (Int e = 0; e < columns_; e += W) {
                    const Int at = columns_ < W ? 0 : std::min(e, columns_ - W);
                    const double *window = point + s * stretches.points + at, *w = of->weights;
                    window += (of->first - origin) * columns_;
                    const Vec here = load(window + of->base * columns_);
                    Vec sum[4] = {};
                    for (Int i = 0; count > 1 && i < job_.width; i++, w += NEXT) {
                        const Vec x = same ? all(window[i]) : load(window + i);
                        const Vec rise = load(w + 4 * W) != 0.0 ? x - here : Vec{};
                        for (int m = 0; m < 4; m++) sum[m] += load(w + m * W) * rise;
                    }
                    for (Int i = of->begin; count == 1 && i < of->end; i++) {
                        const Vec rise = load(window + i * columns_) - here;
                        for (int m = 0; m < 4; m++) sum[m] += w[i * NEXT + m * W] * rise;
                    }
                    sum[0] += here;
                    if (job_.degree < 3) sum[3] = Vec{};  // also of what is not finite
                    for (int m = 0; m < 4; m++) {  // what is behind is written later
                        const Rows<Out> to = out[m].from(t, s * stretches.rows[m] + at);
                        put(to.at, sum[m], (rows - t) * columns_);
                    }
                }
        }
    }

    // Adds to the gradients of points from ``begin`` on, up to those that were prepared.
    void spread(Int row, Int, const double* channels, Int size, Int rows, Int, bool, double* points,
                Int begin, Int, Int) {
        const Int origin = first_point(job_, row);
        double* const sums = times_.at;
        const auto for_points = [&](const Row& of, auto use) {
            const Int move = of.first - origin, end = std::min(of.end, stop_ - of.first);
            for (Int i = std::max(of.begin, begin - move); i < end; i++) use(i, move + i);
        };
        for (Int t = 0, count; t < rows; t += count) {
            const Row* const of = row_of(row + t);
            count = columns_ == 1 ? std::min(of->side, rows - t) : 1;
            for (Int e = 0; e < columns_; e += W) {
                Vec x[4];
                for (int m = 0; m < 4; m++)
                    x[m] = m > job_.degree ? Vec{} : load(channels + m * size + t * columns_ + e);
                const auto gradient = [&](Int i, auto weight) INLINE {
                    const double* const w = of->weights + i * NEXT;
                    Vec sum = weight(w) * x[0];
                    for (int m = 1; m < 4; m++) sum += weight(w + m * W) * x[m];
                    return sum;
                };
                for (Int i = 0; count > 1 && i < job_.width; i++)
                    store(sums + i * W, gradient(i, [=](const double* w) INLINE { return load(w); }));
                for (Int lane = 0; count > 1 && lane < count; lane++)
                    for_points(of[lane], [=](Int i, Int place) { points[place] += sums[i * W + lane]; });
                if (count > 1) break;
                for_points(*of, [&](Int i, Int place) {
                    const Vec sum = gradient(i, [](const double* w) { return *w; });
                    add(points + place * columns_ + e, sum, columns_ - e);
                });
            }
        }
    }

    // there are no inner rows
    template <bool SPARING, class Out>
    void follow(Int, const double*, Int, const Stretches&, const Rows<Out>*) const {}
    template <class Use>
    void for_weights(Int, Use) const {}
    void pull(Int, double*, Int, Int, Int) const {}

private:
    // A row's number, counted through all trajectories and from 1 on; its window, the point that it
    // is for, those that it takes; how many rows from it on may be computed side by side; weights of
    // its points, W apart, for each order, and last whether it takes the point.
    struct Row {
        Int number, first, base, begin, end, side;
        const double* weights;
    };

    const Row* row_of(Int row) {
        const Row* const of = rows_.at + row % kept_;
        if (of->number != trajectory_ * job_.window_count + row + 1) make(row / W * W);
        return of;
    }

    // Makes the weights of W rows.
    void make(Int row) {
        const Int origin = first_point(job_, row), size = size_;
        double *const gaps = gaps_.at, *const times = times_.at;
        double* const weights = weights_.at + row % kept_ * job_.width * 5;
        Row* const rows = rows_.at + row % kept_;
        Vec begin, end, sum = {};
        for (Int lane = 0, known = 0; lane < W; lane++) {
            const Int own = std::min(row + lane, job_.window_count - 1);
            const Windows window(job_, own);
            const Int first = window.first(), base = kinds_of(job_)[window.kind()].base;
            const Int* span = static_cast<const Int*>(job_.spans);
            if (span) span += trajectory_ * job_.span_stride + 2 * own;
            rows[lane] = {trajectory_ * job_.window_count + row + lane + 1, first, base,
                          span ? span[0] - first : 0, span ? span[1] + 1 - first : job_.width, 1,
                          weights + lane};
            begin[lane] = static_cast<double>(rows[lane].begin);
            end[lane] = static_cast<double>(rows[lane].end);
            for (; known < first + job_.width - 1 - origin; known++)
                gaps[known] = step(job_, trajectory_, origin + known);
            // times are sums of the gaps between, as differences of times would lose digits
            double before = 0.0, after = 0.0, *const to = times + lane;
            const double* const gap = gaps + first - origin;
            to[base * W] = 0.0;
            for (Int i = base; i-- > 0;) to[i * W] = before -= gap[i];
            for (Int i = base + 1; i * W < size; i++) to[i * W] = after += gap[i - 1];
            if (job_.finite && (after - before) * 0.0 != 0.0) run_.status = NOT_FINITE;
        }
        const Int moves = rows[W - 1].first - origin;
        if (moves == 0 || moves == W - 1) rows[0].side = W;
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

    // Makes polynomial K by the three-term recurrence and, where rounding leaves some of the earlier
    // ones in it, as it does across gaps, takes these away; then those after it, and the weights.
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
    Int trajectory_ = 0, columns_ = 0, stop_ = 0;
    // of each polynomial: derivatives at the row, sum of squares, inverse; the next one's center
    Vec at_row_[MOST][4] = {{all(1.0)}}, norm_[MOST], inverse_[MOST], mean_;
};

}  // namespace LEVEL
