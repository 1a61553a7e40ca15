// The cascade and its transpose: a recurrence over rows, one lane per dof.
// Included by each level*.cpp after stage.hpp.

namespace TRAJCLI_LEVEL {

enum Scheme { EULER, ZOH, FOH };

// What a step length makes of the relation: see "Two kernels make every mode" in the design.
template <int ORDER, int SCHEME>
struct Step {
    Vec dt;
    Pair inverse;    // 1/dt
    Pair taylor[3];  // dt^r / r!, of what came before
    Pair now[4];     // of the action, n = 1..3 sums below it
    Pair before[4];  // of the action before

    explicit Step(Vec step) : dt(step) {
        if (ORDER < 3) inverse = reciprocal(dt);
        if (SCHEME == EULER) return;
        Pair power = exact(dt);
        double factorial = 1.0;
        for (int n = 1; n <= ORDER; n++) {
            if (n < 3) taylor[n] = n == 1 ? power : multiply(all(0.5), power);
            factorial *= SCHEME == ZOH ? n : n + 1;
            now[n] = multiply(reciprocal(all(factorial)), power);
            if (SCHEME == FOH) before[n] = multiply(all(n), now[n]);
            power = settled(multiply(dt, power));
        }
    }
};

// What a recurrence carries from row to row, a lane per dof; kept between tiles as doubles.
struct Lanes {
    Pair x[4];

    explicit Lanes(const double* kept) {
        for (int m = 0; m < 4; m++) x[m] = {load(kept + 2 * m * W), load(kept + (2 * m + 1) * W)};
    }

    void keep(double* kept) const {
        for (int m = 0; m < 4; m++)
            store(kept + 2 * m * W, x[m].hi), store(kept + (2 * m + 1) * W, x[m].lo);
    }
};

// Rows forward. Orders below ``bottom`` and above ``top`` are wanted by nobody.
template <int ORDER_, int SCHEME_>
struct Forward {
    static constexpr int ORDER = ORDER_, SCHEME = SCHEME_;
    static constexpr bool backwards = false;

    template <bool CAREFUL, class Out>
    static inline void row(Lanes& lanes, const Step<ORDER, SCHEME>& step, const double* const in[4],
                           std::int64_t at, Out* const out[4], int, int bottom, int top) {
        Pair* x = lanes.x;
        Pair next[4] = {x[0], x[1], x[2], x[3]};
        Vec action = load(in[ORDER] + at);
        next[ORDER] = exact(action);
        for (int m = ORDER - 1; m >= 0; m--) {
            if (m < bottom) break;
            Pair gain;
            const int n = ORDER - m;
            if (SCHEME == EULER) {
                gain = multiply(step.dt, next[m + 1]);
            } else {
                gain = multiply(step.now[n], next[ORDER]);
                if (SCHEME == FOH) gain = add(gain, multiply(step.before[n], x[ORDER]));
                for (int r = 1; r < n; r++) gain = add(gain, multiply(step.taylor[r], x[m + r]));
            }
            next[m] = add(x[m], gain);
        }
        for (int m = ORDER + 1; m < 4; m++) {
            if (m > top) break;
            next[m] = multiply(step.inverse, add(next[m - 1], negative(x[m - 1])));
        }
        for (int m = 0; m < 4; m++) {
            if (out[m]) store(out[m] + at, m == ORDER ? action : rounded<CAREFUL>(next[m]));
            x[m] = next[m];
        }
    }
};

// Rows backward: the transpose of the relation. lanes.x is what later rows ask of a row.
template <int ORDER_, int SCHEME_>
struct Adjoint {
    static constexpr int ORDER = ORDER_, SCHEME = SCHEME_;
    static constexpr bool backwards = true;

    template <bool CAREFUL, class Out>
    static inline void row(Lanes& lanes, const Step<ORDER, SCHEME>& step, const double* const in[4],
                           std::int64_t at, Out* const out[4], int own, int, int) {
        Pair* later = lanes.x;
        Pair asked[4], next[4];
        for (int m = 0; m < 4; m++) {
            asked[m] = in[m] ? add(later[m], exact(load(in[m] + at))) : later[m];
            next[m] = exact(Vec{});
        }
        for (int m = 3; m > ORDER; m--) {
            Pair share = multiply(step.inverse, asked[m]);
            asked[m - 1] = add(asked[m - 1], share);
            next[m - 1] = negative(share);
        }
        for (int m = 0; m < ORDER; m++) {
            const int n = ORDER - m;
            next[m] = add(next[m], asked[m]);
            if (SCHEME == EULER) {
                asked[m + 1] = add(asked[m + 1], multiply(step.dt, asked[m]));
                continue;
            }
            for (int r = 1; r < n; r++)
                next[m + r] = add(next[m + r], multiply(step.taylor[r], asked[m]));
            asked[ORDER] = add(asked[ORDER], multiply(step.now[n], asked[m]));
            if (SCHEME == FOH)
                next[ORDER] = add(next[ORDER], multiply(step.before[n], asked[m]));
        }
        for (int m = 0; m < 4; m++) {
            // the row behind this one is there already: spare lanes must not go over it
            if (out[m]) store(out[m] + at, rounded<CAREFUL>(asked[m]), own);
            later[m] = next[m];
        }
    }
};

// Rows of one vector of lanes, of which the first ``own`` are the row's. ``steps``: dt of every row
// and lane; null: ``dt`` for all rows.
struct Tile {
    const double* in[4];
    const double* steps;
    Vec dt;
    std::int64_t count, stride;
    int own, bottom, top;
};

template <class Kernel, bool CAREFUL, class Out>
void compute_rows(double* kept, const Tile& tile, Out* const out[4]) {
    Lanes lanes(kept);
    Step<Kernel::ORDER, Kernel::SCHEME> step(tile.dt);
    for (std::int64_t i = 0; i < tile.count; i++) {
        std::int64_t t = Kernel::backwards ? tile.count - 1 - i : i;
        if (tile.steps) step = Step<Kernel::ORDER, Kernel::SCHEME>(load(tile.steps + t * W));
        Kernel::template row<CAREFUL>(lanes, step, tile.in, t * tile.stride, out, tile.own, tile.bottom,
                                      tile.top);
    }
    lanes.keep(kept);
}

// A run over a range of trajectories: rows are brought in tiles that fit the first cache, as
// doubles, and leave through stages. Few dofs share a vector with those of other trajectories.
struct Job {
    std::int64_t batch, horizon, dofs;
    const void* in[4];
    std::int64_t in_stride, in_type;
    const double* begin_hi[4];  // state of the lanes before the first row computed; null: zero
    const double* begin_lo[4];
    std::int64_t begin_stride;
    const double* dt;
    std::int64_t dt_trajectory_stride, dt_step_stride;
    std::int64_t copied;        // 1: begin_hi is written as a row of its own, before the others
    void* out[4];
    std::int64_t out_stride;
    double* end_hi[4];          // state of the lanes after the last row computed, or null
    double* end_lo[4];          // null: added to end_hi
    bool streaming;
};

template <class Out>
class Run {
public:
    using Rows = void (*)(double*, const Tile&, Out* const[4]);

    Run(const Job& job, Rows rows, Rows careful, bool backwards)
        : job_(job), compute_rows_(rows), careful_rows_(careful), backwards_(backwards) {
        dofs_ = job.dofs;
        group_ = dofs_ <= W / 2 ? W / dofs_ : 1;
        width_ = group_ > 1 ? W : dofs_;
        blocks_ = group_ > 1 ? 1 : (dofs_ + W - 1) / W;
        std::int64_t per_lane = group_ > 1 ? 1536 / W : 1536;
        rows_ = per_lane / width_ * (group_ > 1 ? W : 1);
        if (rows_ < 1) rows_ = 1;
        if (rows_ > job.horizon) rows_ = job.horizon > 0 ? job.horizon : 1;
        bottom_ = 4, top_ = -1;
        for (int m = 0; m < 4; m++) {
            if (job.in[m]) in_[m].resize(rows_ * width_ + W);
            if (!job.out[m] && !job.end_hi[m]) continue;
            bottom_ = m < bottom_ ? m : bottom_;
            top_ = m;
        }
        for (int m = 0; m < 4; m++) {
            if (!job.out[m]) continue;
            for (std::int64_t g = 0; g < group_; g++)
                stages_[m].emplace_back((rows_ + 1) * dofs_ + W, job.streaming);
            if (group_ > 1) shared_[m].resize(rows_ * W + W);
        }
        if (job.dt_step_stride) steps_.resize(rows_ * W);
        lanes_.resize(blocks_ * 8 * W);
        for (int l = 0; l < W; l++) {
            member_[l] = group_ > 1 && l < group_ * dofs_ ? l / dofs_ : 0;
            dof_[l] = group_ > 1 ? l % dofs_ : l;
        }
    }

    void trajectories(std::int64_t begin, std::int64_t end) {
        std::int64_t each = (end - begin + group_ - 1) / group_;
        for (std::int64_t i = 0; i < each; i++) {
            active_ = 0;
            for (std::int64_t g = 0; g < group_; g++) {
                std::int64_t b = begin + g * each + i;
                if (b < end) which_[active_++] = b;
            }
            for (std::int64_t g = active_; g < group_; g++) which_[g] = which_[0];
            together();
        }
        for (auto& stages : stages_)
            for (auto& stage : stages) stage.drain(true);
    }

private:
    const Job& job_;
    Rows compute_rows_, careful_rows_;
    bool backwards_;
    std::int64_t dofs_, group_, width_, blocks_, rows_, active_ = 0;
    std::int64_t which_[W];                 // the trajectories computed together
    std::int64_t member_[W], dof_[W];       // of each lane: which of them, and its dof
    bool plain_ = true;                     // only finite numbers came in
    int bottom_, top_;
    std::vector<double> in_[4], steps_;
    std::vector<Out> shared_[4];
    std::vector<Stage<Out>> stages_[4];
    std::vector<double> lanes_;

    Out* place(int m, std::int64_t g, std::int64_t row) {
        return static_cast<Out*>(job_.out[m]) + which_[g] * job_.out_stride + row * dofs_;
    }

    void together() {
        plain_ = true;
        begin();
        plain_ = all_finite(lanes_.data(), lanes_.size());
        const std::int64_t H = job_.horizon;
        Vec dt{};
        if (!job_.dt_step_stride)
            for (int l = 0; l < W; l++) dt[l] = job_.dt[trajectory_of(l) * job_.dt_trajectory_stride];
        const std::int64_t tiles = (H + rows_ - 1) / rows_;
        for (std::int64_t k = 0; k < tiles; k++) {
            // backwards, the short tile comes last too: tiles do not depend on the direction
            std::int64_t first = backwards_ ? H - (k + 1) * rows_ : k * rows_;
            std::int64_t count = rows_;
            if (first < 0) count += first, first = 0;
            if (first + count > H) count = H - first;
            bring(first, count);
            compute(first, count, dt);
        }
        finish();
    }

    std::int64_t trajectory_of(int lane) const { return which_[member_[lane]]; }

    void begin() {
        for (int m = 0; m < 4; m++) {
            for (std::int64_t c = 0; c < blocks_; c++) {
                double* hi = lanes_.data() + (8 * c + 2 * m) * W;
                double* lo = hi + W;
                std::memset(hi, 0, 2 * W * sizeof(double));
                if (!job_.begin_hi[m]) continue;
                for (int l = 0; l < W && c * W + dof_[l] < dofs_; l++) {
                    std::int64_t from = trajectory_of(l) * job_.begin_stride + c * W + dof_[l];
                    hi[l] = job_.begin_hi[m][from];
                    if (job_.begin_lo[m]) lo[l] = job_.begin_lo[m][from];
                }
            }
            if (!job_.out[m]) continue;
            for (std::int64_t g = 0; g < active_; g++) {
                Stage<Out>& stage = stages_[m][g];
                if (!backwards_) stage.aim(place(m, g, 0));
                if (!job_.copied) continue;
                const double* from = job_.begin_hi[m] + which_[g] * job_.begin_stride;
                for (std::int64_t d = 0; d < dofs_; d++) stage.room()[d] = static_cast<Out>(from[d]);
                stage.added(dofs_);
            }
        }
    }

    void finish() {
        for (int m = 0; m < 4; m++) {
            if (!job_.end_hi[m]) continue;
            for (std::int64_t c = 0; c < blocks_; c++)
                for (int l = 0; l < W && c * W + dof_[l] < dofs_; l++) {
                    if (member_[l] >= active_) break;
                    if (group_ > 1 && l >= group_ * dofs_) break;
                    std::int64_t to = trajectory_of(l) * dofs_ + c * W + dof_[l];
                    const double* hi = lanes_.data() + (8 * c + 2 * m) * W;
                    const double* lo = hi + W;
                    job_.end_hi[m][to] = hi[l] + (job_.end_lo[m] ? 0.0 : lo[l]);
                    if (job_.end_lo[m]) job_.end_lo[m][to] = lo[l];
                }
        }
    }

    template <class In>
    void bring_as(int m, std::int64_t first, std::int64_t count) {
        double* to = in_[m].data();
        for (std::int64_t g = 0; g < group_; g++) {
            const In* from =
                static_cast<const In*>(job_.in[m]) + which_[g] * job_.in_stride + first * dofs_;
            plain_ = plain_ && all_finite(from, count * dofs_);
            if (group_ == 1)
                for (std::int64_t i = 0; i < count * dofs_; i++) to[i] = from[i];
            else
                repack(from, dofs_, to + g * dofs_, W, count);
        }
    }

    // Rows of few dofs, from one row length to another.
    template <int D, class From, class To>
    static void move(const From* from, std::int64_t from_row, To* to, std::int64_t to_row,
                     std::int64_t count) {
        for (std::int64_t t = 0; t < count; t++)
            for (int d = 0; d < D; d++) to[t * to_row + d] = from[t * from_row + d];
    }

    template <class From, class To>
    void repack(const From* from, std::int64_t from_row, To* to, std::int64_t to_row,
                std::int64_t count) const {
        switch (dofs_) {
            case 1: return move<1>(from, from_row, to, to_row, count);
            case 2: return move<2>(from, from_row, to, to_row, count);
            case 3: return move<3>(from, from_row, to, to_row, count);
            default: return move<4>(from, from_row, to, to_row, count);
        }
    }

    void bring(std::int64_t first, std::int64_t count) {
        for (int m = 0; m < 4; m++) {
            if (!job_.in[m]) continue;
            job_.in_type ? bring_as<double>(m, first, count) : bring_as<float>(m, first, count);
        }
        if (!job_.dt_step_stride) return;
        for (std::int64_t t = 0; t < count; t++)
            for (int l = 0; l < W; l++)
                steps_[t * W + l] = job_.dt[trajectory_of(l) * job_.dt_trajectory_stride +
                                            (first + t) * job_.dt_step_stride];
    }

    void compute(std::int64_t first, std::int64_t count, Vec dt) {
        const std::int64_t row0 = first + job_.copied;
        Out* rooms[4] = {};
        for (int m = 0; m < 4; m++) {
            if (!job_.out[m]) continue;
            if (group_ > 1) {
                rooms[m] = shared_[m].data();
                continue;
            }
            stages_[m][0].aim(place(m, 0, row0));
            rooms[m] = stages_[m][0].room();
        }
        // Last columns first: what a vector writes beyond its row, forward, is then written over.
        for (std::int64_t c = blocks_ - 1; c >= 0; c--) {
            const int own = static_cast<int>(width_ - c * W < W ? width_ - c * W : W);
            Tile tile{{}, job_.dt_step_stride ? steps_.data() : nullptr, dt, count, width_,
                      own, bottom_, top_};
            Out* out[4] = {};
            for (int m = 0; m < 4; m++) {
                if (job_.in[m]) tile.in[m] = in_[m].data() + c * W;
                if (rooms[m]) out[m] = rooms[m] + c * W;
            }
            double* kept = lanes_.data() + 8 * c * W;
            if (plain_) {
                double before[8 * W];
                std::memcpy(before, kept, sizeof before);
                compute_rows_(kept, tile, out);
                if (all_finite(kept, 8 * W)) continue;
                plain_ = false;
                std::memcpy(kept, before, sizeof before);
            }
            careful_rows_(kept, tile, out);
        }
        for (int m = 0; m < 4; m++) {
            if (!job_.out[m]) continue;
            if (group_ == 1) {
                stages_[m][0].added(count * dofs_);
                continue;
            }
            for (std::int64_t g = 0; g < active_; g++) {
                Stage<Out>& stage = stages_[m][g];
                stage.aim(place(m, g, row0));
                Out* to = stage.room();
                const Out* from = rooms[m] + g * dofs_;
                repack(from, W, to, dofs_, count);
                stage.added(count * dofs_);
            }
        }
    }
};

template <class Out, template <int, int> class Kernel>
void run_as(const Job& job, int order, int scheme, std::int64_t begin, std::int64_t end) {
    auto go = [&](auto kernel) {
        using K = decltype(kernel);
        Run<Out>(job, compute_rows<K, false, Out>, compute_rows<K, true, Out>, K::backwards)
            .trajectories(begin, end);
    };
    auto with = [&](auto euler, auto zoh, auto foh) {
        scheme == EULER ? go(euler) : scheme == ZOH ? go(zoh) : go(foh);
    };
    switch (order) {
        case 0: return go(Kernel<0, EULER>{});
        case 1: return with(Kernel<1, EULER>{}, Kernel<1, ZOH>{}, Kernel<1, FOH>{});
        case 2: return with(Kernel<2, EULER>{}, Kernel<2, ZOH>{}, Kernel<2, FOH>{});
        default: return with(Kernel<3, EULER>{}, Kernel<3, ZOH>{}, Kernel<3, FOH>{});
    }
}

}  // namespace TRAJCLI_LEVEL
