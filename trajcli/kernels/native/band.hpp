// The band and its transpose: a window of weights slid over the padded actions.
// Included by each level*.cpp after stage.hpp.

namespace TRAJCLI_LEVEL {

constexpr int WIDEST = 6;  // points in a window, at most

// Rows that follow each other with the same weights, each window one point on from the last.
struct Stretch {
    std::int64_t row, count;
    bool padded;  // their windows reach into head or tail
};

inline std::vector<Stretch> stretches(const std::int64_t* first, const std::int64_t* phase,
                                      std::int64_t rows, std::int64_t width, std::int64_t head,
                                      std::int64_t horizon) {
    std::vector<Stretch> found;
    auto padded = [&](std::int64_t t) {
        return first[t] < head || first[t] + width > head + horizon;
    };
    for (std::int64_t t = 0; t < rows; t++) {
        bool goes_on = t > 0 && first[t] == first[t - 1] + 1 && phase[t] == phase[t - 1] &&
                       padded(t) == found.back().padded;
        if (goes_on)
            found.back().count++;
        else
            found.push_back({t, 1, padded(t)});
    }
    return found;
}

// The weights of one kind of window: which points count for each order, and how much.
template <int WIDTH>
struct Taps {
    Pair weight[4][WIDTH];
    bool used[4][WIDTH];
    bool copy = true;  // order 0 is the middle point itself

    Taps(const double* hi, const double* lo) {
        constexpr int middle = WIDTH / 2;
        for (int m = 0; m < 4; m++)
            for (int i = 0; i < WIDTH; i++, hi++, lo++) {
                weight[m][i] = broadcast(*hi, *lo);
                // derivatives weigh differences from the middle point
                used[m][i] = *hi != 0.0 && !(m && i == middle);
                if (m == 0) copy = copy && *hi == (i == middle) && *lo == 0.0;
            }
    }
};

template <int WIDTH>
inline Pair weighed(const Taps<WIDTH>& taps, int m, const Pair* x) {
    Pair sum = exact(Vec{});
    for (int i = 0; i < WIDTH; i++)
        if (taps.used[m][i]) sum = add(sum, multiply(taps.weight[m][i], x[i]));
    return sum;
}

// ``count`` results of every order, flat over rows and dofs; a row has ``row`` of them.
// PADDED: points have low parts. NARROW: they were floats, whose differences doubles hold.
template <int WIDTH, bool PADDED, bool NARROW, class Out>
void slide(const double* table_hi, const double* table_lo, const double* hi, const double* lo,
           std::int64_t row, std::int64_t count, Out* const out[4]) {
    const Taps<WIDTH> taps(table_hi, table_lo);
    constexpr int middle = WIDTH / 2;
    const bool derived = out[1] || out[2] || out[3];
    for (std::int64_t at = 0; at < count; at += W) {
        Pair x[WIDTH];
        for (int i = 0; i < WIDTH; i++)
            x[i] = {load(hi + i * row + at), PADDED ? load(lo + i * row + at) : Vec{}};
        if (out[0]) {
            Pair sum = taps.copy ? x[middle] : weighed<WIDTH>(taps, 0, x);
            store(out[0] + at, rounded<true>(sum));
        }
        if (!derived) continue;
        const Pair centre = x[middle];
        for (int i = 0; i < WIDTH; i++)
            x[i] = PADDED || !NARROW ? add(x[i], negative(centre)) : exact(x[i].hi - centre.hi);
        for (int m = 1; m < 4; m++)
            if (out[m]) store(out[m] + at, rounded<true>(weighed<WIDTH>(taps, m, x)));
    }
}

template <class In, class Out>
class BandRun {
public:
    BandRun(const trajcli_band& job, bool streaming)
        : job_(job),
          stretches_(stretches(job.first, job.phase, job.rows, job.width, job.head, job.horizon)) {
        rows_ = 1536 / job.dofs;
        if (rows_ < 1) rows_ = 1;
        std::int64_t points = (rows_ + job.width) * job.dofs + W;
        hi_.resize(points), lo_.resize(points);
        for (int m = 0; m < 4; m++)
            if (job.out[m]) stages_[m].emplace_back((rows_ + 1) * job.dofs + W, streaming);
    }

    void trajectories(std::int64_t begin, std::int64_t end) {
        for (std::int64_t b = begin; b < end; b++) {
            for (int m = 0; m < 4; m++) {
                if (!job_.out[m]) continue;
                Stage<Out>& stage = stages_[m][0];
                stage.aim(static_cast<Out*>(job_.out[m]) + b * job_.out_stride);
                if (!job_.start[0]) continue;
                const double* from = job_.start[m] + b * job_.start_stride;
                for (std::int64_t d = 0; d < job_.dofs; d++)
                    stage.room()[d] = static_cast<Out>(from[d]);
                stage.added(job_.dofs);
            }
            for (const Stretch& stretch : stretches_)
                for (std::int64_t done = 0; done < stretch.count; done += rows_) {
                    std::int64_t left = stretch.count - done;
                    tile(b, stretch.row + done, left < rows_ ? left : rows_, stretch.padded);
                }
        }
        for (auto& stages : stages_)
            for (auto& stage : stages) stage.drain(true);
    }

private:
    const trajcli_band& job_;
    std::vector<Stretch> stretches_;
    std::int64_t rows_;
    std::vector<double> hi_, lo_;
    std::vector<Stage<Out>> stages_[4];

    // Points begin.. of the padded sequence, side by side.
    void bring(std::int64_t b, std::int64_t begin, std::int64_t count, bool padded) {
        const std::int64_t D = job_.dofs;
        const In* actions = static_cast<const In*>(job_.actions) + b * job_.actions_stride;
        if (!padded) {
            const In* from = actions + (begin - job_.head) * D;
            for (std::int64_t i = 0; i < count * D; i++) hi_[i] = from[i];
            return;
        }
        for (std::int64_t k = 0; k < count; k++) {
            double *hi = hi_.data() + k * D, *lo = lo_.data() + k * D;
            std::int64_t point = begin + k, after = point - job_.head - job_.horizon;
            if (point >= job_.head && after < 0) {
                for (std::int64_t d = 0; d < D; d++)
                    hi[d] = actions[(point - job_.head) * D + d], lo[d] = 0.0;
                continue;
            }
            bool early = point < job_.head;
            std::int64_t from = early ? (b * job_.head + point) * D : (b * job_.tail + after) * D;
            std::memcpy(hi, (early ? job_.head_hi : job_.tail_hi) + from, D * sizeof(double));
            std::memcpy(lo, (early ? job_.head_lo : job_.tail_lo) + from, D * sizeof(double));
        }
    }

    void tile(std::int64_t b, std::int64_t row, std::int64_t count, bool padded) {
        compute(b, row, count, padded);
        for (int m = 0; m < 4; m++)
            if (job_.out[m]) stages_[m][0].added(count * job_.dofs);
    }

    void compute(std::int64_t b, std::int64_t row, std::int64_t count, bool padded) {
        const std::int64_t D = job_.dofs, width = job_.width;
        bring(b, job_.first[row], count + width - 1, padded);
        const std::int64_t kind = b * job_.table_stride + job_.phase[row] * 4 * width;
        Out* out[4] = {};
        for (int m = 0; m < 4; m++)
            if (job_.out[m]) out[m] = stages_[m][0].room();
        // What the last vector writes too much is written over by what comes next.
        auto go = [&](auto slide) {
            slide(job_.table_hi + kind, job_.table_lo + kind, hi_.data(), lo_.data(), D, count * D,
                  out);
        };
        constexpr bool narrow = sizeof(In) == sizeof(float);
        switch (width) {
            case 1: return go(padded ? slide<1, true, narrow, Out> : slide<1, false, narrow, Out>);
            case 2: return go(padded ? slide<2, true, narrow, Out> : slide<2, false, narrow, Out>);
            case 3: return go(padded ? slide<3, true, narrow, Out> : slide<3, false, narrow, Out>);
            case 4: return go(padded ? slide<4, true, narrow, Out> : slide<4, false, narrow, Out>);
            case 5: return go(padded ? slide<5, true, narrow, Out> : slide<5, false, narrow, Out>);
            case 6: return go(padded ? slide<6, true, narrow, Out> : slide<6, false, narrow, Out>);
        }
    }
};

void band(const trajcli_band& a, bool streaming, std::int64_t begin, std::int64_t end) {
    if (a.actions_type)
        a.out_type ? BandRun<double, double>(a, streaming).trajectories(begin, end)
                   : BandRun<double, float>(a, streaming).trajectories(begin, end);
    else
        a.out_type ? BandRun<float, double>(a, streaming).trajectories(begin, end)
                   : BandRun<float, float>(a, streaming).trajectories(begin, end);
    streams_done();
}

// The transpose, as a sum over the rows whose windows hold a point, in their order. Points are
// finished from first to last: ``first`` never goes down, so a point's rows are a run of them.
template <class In, class Out>
class BandAdjointRun {
public:
    BandAdjointRun(const trajcli_band_adjoint& job, bool streaming)
        : job_(job),
          stretches_(stretches(job.first, job.phase, job.rows, job.width, job.head, job.horizon)),
          stage_((1536 / job.dofs + 2 * WIDEST) * job.dofs + W, streaming) {
        rows_ = 1536 / job.dofs;
        if (rows_ < 1) rows_ = 1;
        sums_.resize((rows_ + 2 * job.width) * job.dofs + W);
        for (int m = 0; m < 4; m++)
            if (job.upstream[m]) in_[m].resize((rows_ + 2 * job.width) * job.dofs + W);
    }

    void trajectories(std::int64_t begin, std::int64_t end) {
        const std::int64_t points = job_.head + job_.horizon + job_.tail;
        for (std::int64_t b = begin; b < end; b++) {
            stage_.aim(static_cast<Out*>(job_.actions) + b * job_.actions_stride);
            base_ = 0;
            for (const Stretch& stretch : stretches_)
                for (std::int64_t done = 0; done < stretch.count; done += rows_) {
                    std::int64_t left = stretch.count - done, row = stretch.row + done;
                    std::int64_t count = left < rows_ ? left : rows_;
                    finished(b, job_.first[row]);
                    tile(b, row, count);
                    finished(b, job_.first[row] + count - 1);
                }
            finished(b, points);
        }
        stage_.drain(true);
    }

private:
    const trajcli_band_adjoint& job_;
    std::vector<Stretch> stretches_;
    Stage<Out> stage_;
    std::int64_t rows_;
    std::int64_t base_ = 0, live_ = 0;  // the first point in sums_, and how many are not zero
    std::vector<double> sums_, in_[4];

    // Nothing will be added to points before ``point``: write them out.
    void finished(std::int64_t b, std::int64_t point) {
        const std::int64_t D = job_.dofs;
        for (; base_ < point && live_ == 0; base_++) put(b, base_, sums_.data());
        if (base_ == point) return;
        std::int64_t count = point - base_ < live_ ? point - base_ : live_;
        for (std::int64_t k = 0; k < count; k++) put(b, base_ + k, sums_.data() + k * D);
        live_ -= count, base_ += count;
        std::memmove(sums_.data(), sums_.data() + count * D, live_ * D * sizeof(double));
        std::memset(sums_.data() + live_ * D, 0, count * D * sizeof(double));
        finished(b, point);
    }

    void put(std::int64_t b, std::int64_t point, const double* from) {
        const std::int64_t D = job_.dofs, after = point - job_.head - job_.horizon;
        if (point < job_.head) {
            std::memcpy(job_.head_grad + (b * job_.head + point) * D, from, D * sizeof(double));
        } else if (after >= 0) {
            std::memcpy(job_.tail_grad + (b * job_.tail + after) * D, from, D * sizeof(double));
        } else {
            for (std::int64_t d = 0; d < D; d++) stage_.room()[d] = static_cast<Out>(from[d]);
            stage_.added(D);
        }
    }

    // Add what ``count`` rows ask of their windows.
    void tile(std::int64_t b, std::int64_t row, std::int64_t count) {
        const std::int64_t D = job_.dofs, width = job_.width, middle = width / 2;
        const double* table = job_.table + b * job_.table_stride + job_.phase[row] * 4 * width;
        // Rows with zeros around them: every point then sums over a whole window of rows.
        const std::int64_t around = (width - 1) * D;
        double weights[4][WIDEST];
        for (int m = 0; m < 4; m++) {
            if (!job_.upstream[m]) continue;
            const In* from =
                static_cast<const In*>(job_.upstream[m]) + b * job_.upstream_stride + row * D;
            double* to = in_[m].data();
            std::memset(to, 0, around * sizeof(double));
            for (std::int64_t i = 0; i < count * D; i++) to[around + i] = from[i];
            std::memset(to + around + count * D, 0, (around + W) * sizeof(double));
            double rest = 0.0;
            for (int i = 0; i < width; i++) weights[m][i] = table[m * width + i];
            for (int i = 0; m && i < width; i++) rest -= i == middle ? 0.0 : weights[m][i];
            if (m) weights[m][middle] = rest;
        }
        double* sums = sums_.data() + (job_.first[row] - base_) * D;
        const std::int64_t points = (count + width - 1) * D;
        for (std::int64_t i = 0; i < points; i += W) {
            Vec sum = load(sums + i);
            for (int k = width - 1; k >= 0; k--)  // rows in their order: the last weight first
                for (int m = 0; m < 4; m++) {
                    if (!job_.upstream[m] || weights[m][k] == 0.0) continue;
                    sum += all(weights[m][k]) * load(in_[m].data() + (width - 1 - k) * D + i);
                }
            store(sums + i, sum);
        }
        live_ = live_ < count + width - 1 ? count + width - 1 : live_;
    }
};

void band_adjoint(const trajcli_band_adjoint& a, bool streaming, std::int64_t begin,
                  std::int64_t end) {
    if (a.upstream_type)
        a.actions_type ? BandAdjointRun<double, double>(a, streaming).trajectories(begin, end)
                       : BandAdjointRun<double, float>(a, streaming).trajectories(begin, end);
    else
        a.actions_type ? BandAdjointRun<float, double>(a, streaming).trajectories(begin, end)
                       : BandAdjointRun<float, float>(a, streaming).trajectories(begin, end);
    streams_done();
}

}  // namespace TRAJCLI_LEVEL
