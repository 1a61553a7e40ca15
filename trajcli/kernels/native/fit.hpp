// The polynomials that fit recordings on unequal steps best: a rule of filter_rows and
// filter_adjoint, see Band in kernels/program.py. Included by level.hpp after filter.hpp.

namespace LEVEL {

// Computes rows where steps differ by the polynomials that fit their windows best. Like fit_weights
// in kernels/fit.py it takes polynomials P_k that are orthogonal on the times t_i, which are 0 at
// the row; their weights are those of differences from the row's own point,
//
//     x_m = Σ_i w_mi · (X_i − X_base)  (x_0: and X_base),  w_mi = Σ_k P_k⁽ᵐ⁾(0) / |P_k|² · P_k(t_i)
//
// The weights of W rows, a block, are made side by side where they are needed first, and kept as
// long as all trajectories share them and there is room.
class Fitted {
    static constexpr int MOST = 6;         // polynomials
    static constexpr Int ROOM = 1 << 17;   // for weights, beyond those of one block

public:
    static constexpr int CHANNELS = 4;  // of upstream: the four parts

    Fitted(Run& run, const Tiling&)
        : run_(run),
          job_(run.job),
          size_(job_.width * W),
          own_(job_.dt.stride[0] || job_.span_stride),
          count_(own_ ? 1 : std::clamp(ROOM / (4 * size_), Int(1), job_.window_count / W + 1)),
          blocks_(count_),
          weights_(count_ * 4 * size_),
          values_((MOST + 1) * size_),
          gaps_(job_.width + W) {
        forget();
    }

    void prepare(const Tile& tile, Int trajectory, Int, Int stop) {
        columns_ = tile.columns, stop_ = stop;
        if (own_ && trajectory != trajectory_) trajectory_ = trajectory, forget();
    }

    // Computes rows that follow each other, of each stretch; their first window begins at ``point``.
    template <bool SPARING, class Out>
    void share(Int row, Int, const double* point, Int rows, const Stretches& all,
               const Rows<Out>* out) {
        for_blocks(row, rows, [&](const Block& block, Int t, Int lane, Int count, Int move) {
            for (Int s = 0; s < all.number; s++) {
                const double* const from = point + s * all.points + move * columns_;
                Rows<Out> to[4];
                for (int m = 0; m < 4; m++) to[m] = out[m].from(t, s * all.rows[m]);
                if (columns_ == 1 && count == W) {
                    derive(block, from, to);
                    continue;
                }
                for (Int i = 0; i < count; i++) {
                    derive(block, lane + i, from, (rows - t - i) * columns_, to);
                    for (Rows<Out>& rows : to) rows.at += rows.pitch;
                }
            }
        });
    }

    // Adds to the gradients of points from ``begin`` on, up to those that were prepared.
    void spread(Int row, Int, const double* channels, Int size, Int rows, Int, bool, double* points,
                Int begin, Int, Int) {
        const Int origin = first_point(job_, row);
        for_blocks(row, rows, [&](const Block& block, Int t, Int lane, Int count, Int move) {
            double* const to = points + move * columns_;
            const Int from = begin - move, stop = stop_ - origin - move;
            const double* const at = channels + t * columns_;
            Vec x[4];
            if (columns_ == 1 && count == W) {
                read(at, size, x);
                for (Int i = 0; i < job_.width; i++) {
                    const Vec* const w = reinterpret_cast<const Vec*>(block.weights + i * 4 * W);
                    Vec sum = w[0] * x[0];
                    for (int m = 1; m < 4; m++) sum += w[m] * x[m];
                    store(values_.at + i * W, sum);
                }
                for (Int k = 0; k < W; k++)
                    block.for_points(k, from, stop, [&](Int i, Int place) {
                        to[place] += values_.at[i * W + k];
                    });
                return;
            }
            for (Int k = 0; k < count; k++)
                for (Int e = 0; e < columns_; e += W) {
                    read(at + k * columns_ + e, size, x);
                    block.for_points(lane + k, from, stop, [&](Int i, Int place) {
                        const double* const w = block.weights + i * 4 * W + lane + k;
                        Vec sum = w[0] * x[0];
                        for (int m = 1; m < 4; m++) sum += w[m * W] * x[m];
                        add(to + place * columns_ + e, sum, columns_ - e);
                    });
                }
        });
    }

    // no rows are inner
    template <bool SPARING, class Out>
    void follow(Int, const double*, Int, const Stretches&, const Rows<Out>*) const {}
    template <class Use>
    void for_weights(Int, Use) const {}
    void pull(Int, double*, Int, Int, Int) const {}

private:
    // Rows from a multiple of W on. Points are counted from the first of a row's window, windows
    // from the first of these; ``origin`` is that.
    struct Block {
        Int number, origin, first[W];
        bool follows;  // whether each window begins one point after the one before
        Vec base, begin, end;
        double* weights;  // [point, order, row]

        // Value ``i`` of each row's window.
        Vec gather(const double* from, Int i) const {
            if (follows) return load(from + i);
            Vec result;
            for (Int lane = 0; lane < W; lane++) result[lane] = from[first[lane] + i];
            return result;
        }

        // Where point ``i`` is among those that a row takes.
        Mask has(Int i) const {
            const Vec place = all(static_cast<double>(i));
            return (begin <= place) & (place < end);
        }

        // Calls ``use`` with the points of a row, and where they are, from ``from`` to before ``stop``.
        template <class Use>
        void for_points(Int lane, Int from, Int stop, Use use) const {
            const Int move = first[lane], last = std::min(stop - move, Int(end[lane]));
            for (Int i = std::max(from - move, Int(begin[lane])); i < last; i++) use(i, move + i);
        }
    };

    // Each polynomial's derivatives at the row, its sum of squares, and the inverse of that; the
    // mean of times by the last one's squares.
    struct Basis {
        Vec at_row[MOST][4], norm[MOST], inverse[MOST], mean;
    };

    void forget() {
        for (Int i = 0; i < count_; i++) blocks_.at[i].number = -1;
    }

    // Calls ``work`` with every block of rows, which of the rows are in it, and how far its points
    // are from those of the first row.
    template <class Work>
    void for_blocks(Int row, Int rows, Work work) {
        for (Int t = 0, count; t < rows; t += count) {
            const Int number = (row + t) / W, lane = (row + t) % W, place = number % count_;
            count = std::min(W - lane, rows - t);
            Block& block = blocks_.at[place];
            block.weights = weights_.at + place * 4 * size_;
            if (block.number != number) make(block, number);
            work(block, t, lane, count, block.origin - first_point(job_, row));
        }
    }

    // Reads upstream; a parabola has no jerk.
    void read(const double* from, Int size, Vec* x) const {
        for (int m = 0; m < 4; m++) x[m] = m > job_.degree ? Vec{} : load(from + m * size);
    }

    template <class Out>
    void derive(const Block& block, const double* from, const Rows<Out>* to) const {
        const Vec* w = reinterpret_cast<const Vec*>(block.weights);
        Vec here, sum[4] = {};
        for (Int k = 0; k < W; k++) here[k] = from[block.first[k] + Int(block.base[k])];
        for (Int i = 0; i < job_.width; i++, w += 4) {
            Vec rise = block.gather(from, i) - here;
            if (job_.spans) rise = block.has(i) ? rise : Vec{};
            for (int m = 0; m < 4; m++) sum[m] += w[m] * rise;
        }
        sum[0] += here;
        for (int m = 0; m < 4; m++) store(to[m].at, m > job_.degree ? Vec{} : sum[m]);
    }

    // left: elements from here on that are written now or later
    template <class Out>
    void derive(const Block& block, Int lane, const double* from, Int left,
                const Rows<Out>* to) const {
        const double* const window = from + block.first[lane] * columns_;
        for (Int e = 0; e < columns_; e += W) {
            const Int at = columns_ < W ? 0 : std::min(e, columns_ - W);
            const Vec here = load(window + Int(block.base[lane]) * columns_ + at);
            Vec sum[4] = {};
            for (Int i = Int(block.begin[lane]); i < Int(block.end[lane]); i++) {
                const Vec rise = load(window + i * columns_ + at) - here;
                const double* const w = block.weights + i * 4 * W + lane;
                for (int m = 0; m < 4; m++) sum[m] += w[m * W] * rise;
            }
            sum[0] += here;
            for (int m = 0; m < 4; m++)
                put(to[m].at + at, m > job_.degree ? Vec{} : sum[m], left);
        }
    }

    double* polynomial(Int k) const { return values_.at + k * size_; }
    double* times() const { return polynomial(MOST); }

    void make(Block& block, Int number) {
        Windows windows(job_, number * W);
        block.number = number, block.origin = windows.first(), block.follows = true;
        const Int* spans = static_cast<const Int*>(job_.spans) + trajectory_ * job_.span_stride;
        for (Int lane = 0, row = number * W; lane < W; lane++) {
            const Int first = block.first[lane] = windows.first() - block.origin;
            const Int begin = block.origin + first;
            block.base[lane] = static_cast<double>(kinds_of(job_)[windows.kind()].base);
            block.begin[lane] = static_cast<double>(job_.spans ? spans[2 * row] - begin : 0);
            block.end[lane] = static_cast<double>(job_.spans ? spans[2 * row + 1] + 1 - begin : job_.width);
            block.follows &= first == lane;
            if (row + 1 < job_.window_count) row++, windows.advance();
        }
        const Int gaps = block.first[W - 1] + job_.width - 1;
        for (Int i = 0; i < gaps; i++) {
            gaps_.at[i] = step(job_, trajectory_, block.origin + i);
            if (job_.finite && gaps_.at[i] - gaps_.at[i] != 0.0) run_.status = NOT_FINITE;
        }
        // times are sums of the gaps between, as differences of times would lose digits
        Vec time = {};
        for (Int i = 0; i < job_.width; i++) {
            const Vec place = all(static_cast<double>(i));
            if (i > 0) time = block.base < place ? time + block.gather(gaps_.at, i - 1) : time;
            store(times() + i * W, time);
        }
        Basis basis = {};
        time = Vec{};
        for (Int i = job_.width - 1; i >= 0; i--) {
            const Vec place = all(static_cast<double>(i)), inside = block.has(i) ? all(1.0) : Vec{};
            if (i + 1 < job_.width)
                time = block.base > place ? time - block.gather(gaps_.at, i) : time;
            const Vec whole = load(times() + i * W) + time;
            store(times() + i * W, whole);
            store(polynomial(0) + i * W, inside);
            basis.norm[0] += inside, basis.mean += inside * whole;
        }
        basis.at_row[0][0] = all(1.0);
        basis.inverse[0] = 1.0 / basis.norm[0];
        basis.mean *= basis.inverse[0];
        extend<1>(basis, block.weights);
    }

    // Makes polynomial K by the three-term recurrence and, as rounding leaves some of the earlier
    // ones in it across gaps, makes it orthogonal to all of them once more; then those after it.
    template <int K>
    void extend(Basis& basis, double* weights) const {
        auto& [at_row, norm, inverse, mean] = basis;
        constexpr int one = K - 1, two = std::max(K - 2, 0);
        const Vec center = mean, ratio = K > 1 ? norm[one] * inverse[two] : Vec{};
        Vec rest[K], square, moment;
        const auto pass = [&](auto value_of) INLINE {
            square = moment = Vec{};
            for (Vec& product : rest) product = Vec{};
            for (Int i = 0; i < size_; i += W) {
                Vec before[K];
                for (int j = 0; j < K; j++) before[j] = load(polynomial(j) + i);
                const Vec time = load(times() + i), value = value_of(i, time, before);
                store(polynomial(K) + i, value);
                square += value * value, moment += time * (value * value);
                for (int j = 0; j < K; j++) rest[j] += value * before[j];
            }
        };
        pass([&](Int, Vec time, const Vec* before) INLINE {
            const Vec value = (time - center) * before[one];
            return K > 1 ? value - ratio * before[two] : value;
        });
        for (int m = 0; m < 4; m++) {
            const Vec slope = m > 0 ? static_cast<double>(m) * at_row[one][m - 1] : Vec{};
            at_row[K][m] = slope - center * at_row[one][m] - ratio * at_row[two][m];
        }
        Mask some = {};
        Vec share[K];
        for (int j = 0; j < K; j++) {
            const Mask none = rest[j] * rest[j] < 1e-28 * norm[j] * square;  // up to rounding
            share[j] = none ? Vec{} : rest[j] * inverse[j];
            some |= ~none;
        }
        if (any(some)) {
            for (int j = 0; j < K; j++)
                for (int m = 0; m < 4; m++) at_row[K][m] -= share[j] * at_row[j][m];
            pass([&](Int i, Vec, const Vec* before) INLINE {
                Vec value = load(polynomial(K) + i);
                for (int j = 0; j < K; j++) value -= share[j] * before[j];
                return value;
            });
        }
        norm[K] = square, inverse[K] = 1.0 / square, mean = moment * inverse[K];
        if constexpr (K + 1 < MOST)
            if (K < job_.degree) return extend<K + 1>(basis, weights);
        for (int k = 0; k <= K; k++)
            for (Vec& x : at_row[k]) x *= inverse[k];
        for (Int i = 0; i < size_; i += W)
            for (int m = 0; m < 4; m++, weights += W) {
                Vec sum = {};
                for (int k = m; k <= K; k++) sum += at_row[k][m] * load(polynomial(k) + i);
                store(weights, sum);
            }
    }

    Run& run_;
    const Job& job_;
    const Int size_;  // of a polynomial's values
    const bool own_;  // whether each trajectory has its own weights
    const Int count_;
    Buffer<Block> blocks_;
    Buffer<double> weights_, values_, gaps_;
    Int trajectory_ = 0, columns_ = 0, stop_ = 0;
};

}  // namespace LEVEL
