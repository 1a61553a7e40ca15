// The band and its transpose: a window of weights slid over the padded actions.
// Included by each level*.cpp after stage.hpp.

namespace TRAJCLI_LEVEL {

constexpr int WIDEST = 6;  // points in a window, at most

// Doubles of what is given; as much again is what comes next, for the second cache.
template <class In>
inline void widen(const In* from, double* to, std::int64_t count) {
    constexpr std::int64_t line = LINE / sizeof(In);
    std::int64_t i = 0;
    for (; i + line <= count; i += line) {
        __builtin_prefetch(from + count + i, 0, 2);
        for (std::int64_t j = i; j < i + line; j += W) store(to + j, load(from + j));
    }
    for (; i < count; i++) to[i] = from[i];
}

// Rows that follow each other with the same weights, each window one point on from the last.
struct Stretch {
    std::int64_t row, count;
    bool padded;  // their windows reach into head or tail
};

template <class Job>
std::vector<Stretch> stretches(const Job& job, bool apart) {
    std::vector<Stretch> found;
    auto padded = [&](std::int64_t t) {
        return job.first[t] < job.head || job.first[t] + job.width > job.head + job.horizon;
    };
    for (std::int64_t t = 0; t < job.rows; t++) {
        bool goes_on = t > 0 && job.first[t] == job.first[t - 1] + 1 &&
                       job.phase[t] == job.phase[t - 1] &&
                       (!apart || padded(t) == found.back().padded);
        if (goes_on)
            found.back().count++, found.back().padded = found.back().padded || padded(t);
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
// PADDED: points have low parts.
template <int WIDTH, bool PADDED, class Out>
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
            x[i] = add(x[i], negative(centre));
        for (int m = 1; m < 4; m++)
            if (out[m]) store(out[m] + at, rounded<true>(weighed<WIDTH>(taps, m, x)));
    }
}

// Weights for evenly spaced points: order m's are on m-th differences of the points, small whole
// numbers or fractions, and all of them times one factor. Differences of floats are nearly always
// exact in doubles, and so are whole multiples of them: see uniform.hpp.
template <int WIDTH>
struct Evenly {
    Vec weight[4][WIDTH];
    Quiet scale[4];
    bool copy = true;           // order 0 is the middle point itself
    bool full = true;           // no weight is zero
    bool all_but_last = true;   // the last of each order is, where there are several
    int offset = 0;             // 1: the first of each order was, and the window begins after it

    Evenly(const double* unit, const double* factors) {
        for (int i = 0; i < WIDTH; i++) copy = copy && unit[i] * factors[0] == (i == WIDTH / 2);
        double moved[4 * WIDTH];
        if (!copy && WIDTH > 4 && unit[0] == 0.0) {  // several weights in each order
            offset = 1;
            for (int m = 0; m < 4; m++)
                for (int i = 0; i < WIDTH; i++)
                    moved[m * WIDTH + i] = i < WIDTH - m - 1 ? unit[m * WIDTH + i + 1] : 0.0;
            unit = moved;
        }
        for (int m = 0; m < 4; m++) {
            scale[m] = quiet(all(factors[m]));
            for (int i = 0; i < WIDTH; i++, unit++) {
                weight[m][i] = all(*unit);
                const int last = WIDTH - m - 1;
                if (i > last || (m == 0 && copy)) continue;
                full = full && *unit != 0.0;
                all_but_last = all_but_last && (*unit == 0.0) == (i == last && i > 0);
            }
        }
    }
};

inline Vec times(Vec weight, Vec x, Vec sum) { return multiply_add(weight, x, sum); }
inline Pair times(Vec weight, Pair x, Pair sum) { return add(sum, multiply(weight, x)); }
inline Vec first_times(Vec weight, Vec x) { return weight * x; }
inline Pair first_times(Vec weight, Pair x) { return multiply(weight, x); }

template <int WIDTH, int M, bool WHOLE, int SPARED, class N>
inline Quiet weighed_evenly(const Evenly<WIDTH>& stencil, const N* d) {
    constexpr int n = WIDTH - M > 1 ? WIDTH - M - SPARED : WIDTH - M;
    if constexpr (n < 1) {
        return quiet(Vec{});
    } else if constexpr (WHOLE) {
        N sum = first_times(stencil.weight[M][0], d[0]);
        for (int i = 1; i < n; i++) sum = times(stencil.weight[M][i], d[i], sum);
        return stencil.scale[M] * quiet(collapsed(sum));
    } else {
        Quiet sum = quiet(stencil.weight[M][0]) * quiet(collapsed(d[0]));
        for (int i = 1; i < n; i++)
            sum = multiply_add(quiet(stencil.weight[M][i]), quiet(collapsed(d[i])), sum);
        return stencil.scale[M] * sum;
    }
}

template <int WIDTH, bool WHOLE, int SPARED, class N, class Out>
__attribute__((noinline)) void slide_in(const Evenly<WIDTH>& stencil, const double* hi,
                                        const double* lo, std::int64_t row, std::int64_t count,
                                        Out* const given_out[4]) {
    Out* const out[4] = {given_out[0], given_out[1], given_out[2], given_out[3]};
    const bool derived = out[1] || out[2] || out[3];
    for (std::int64_t at = 0; at < count; at += W) {
        N d[WIDTH];
        for (int i = 0; i < WIDTH; i++)
            take(d[i], Pair{load(hi + i * row + at), lo ? load(lo + i * row + at) : Vec{}});
        if (out[0] && stencil.copy)
            store(out[0] + at, quiet(collapsed(d[WIDTH / 2])));
        else if (out[0])
            store(out[0] + at, weighed_evenly<WIDTH, 0, WHOLE, SPARED>(stencil, d));
        if (!derived) continue;
        for (int i = 0; i + 1 < WIDTH; i++) d[i] = minus(d[i + 1], d[i]);
        if (out[1]) store(out[1] + at, weighed_evenly<WIDTH, 1, WHOLE, SPARED>(stencil, d));
        for (int i = 0; i + 2 < WIDTH; i++) d[i] = minus(d[i + 1], d[i]);
        if (out[2]) store(out[2] + at, weighed_evenly<WIDTH, 2, WHOLE, SPARED>(stencil, d));
        for (int i = 0; i + 3 < WIDTH; i++) d[i] = minus(d[i + 1], d[i]);
        if (out[3]) store(out[3] + at, weighed_evenly<WIDTH, 3, WHOLE, SPARED>(stencil, d));
    }
}

// The operations of slide_in that must be exact, and no others: for machines on which the flag
// counts all. What is computed has to be seen by somebody, or it is not computed.
template <int WIDTH, bool WHOLE, int SPARED>
__attribute__((noinline)) void try_in(const Evenly<WIDTH>& stencil, const double* hi,
                                      std::int64_t row, std::int64_t count, Vec* seen_by) {
    Mask seen{};
    for (std::int64_t at = 0; at < count; at += W) {
        Vec d[WIDTH];
        for (int i = 0; i < WIDTH; i++) d[i] = load(hi + i * row + at);
        auto see = [&](auto order) {
            constexpr int M = decltype(order)::value, left = WIDTH - M;
            constexpr int n = left > 1 ? left - SPARED : left;
            if constexpr (n > 0) {
                Vec sum = d[0];
                if (WHOLE && !(M == 0 && stencil.copy)) {
                    sum = first_times(stencil.weight[M][0], d[0]);
                    for (int i = 1; i < n; i++) sum = times(stencil.weight[M][i], d[i], sum);
                } else {
                    for (int i = 1; i < n; i++) seen ^= (Mask)d[i];
                }
                seen ^= (Mask)sum;
            }
            for (int i = 0; i + M + 1 < WIDTH; i++) d[i] = minus(d[i + 1], d[i]);
        };
        see(std::integral_constant<int, 0>());
        see(std::integral_constant<int, 1>());
        see(std::integral_constant<int, 2>());
        see(std::integral_constant<int, 3>());
    }
    *seen_by = (Vec)seen;
}

// False, and nothing done, for weights of another pattern. low: points have low parts.
template <bool WHOLE, int WIDTH, class Out>
bool slide_evenly(const Evenly<WIDTH>& stencil, const double* hi, const double* lo, bool low,
                  std::int64_t row, std::int64_t count, Out* const out[4]) {
    if (!stencil.full && !stencil.all_but_last) return false;
    hi += stencil.offset * row, lo += stencil.offset * row;
    if (!low) {
        auto go = [&] {
            (stencil.full ? slide_in<WIDTH, WHOLE, 0, Vec, Out>
                          : slide_in<WIDTH, WHOLE, 1, Vec, Out>)(stencil, hi, nullptr, row, count, out);
        };
        Vec seen;
        forget_inexact();
        if (HAS_QUIET)
            go();
        else
            (stencil.full ? try_in<WIDTH, WHOLE, 0>
                          : try_in<WIDTH, WHOLE, 1>)(stencil, hi, row, count, &seen);
        if (!was_inexact()) {
            if (!HAS_QUIET) go();
            return true;
        }
    }
    (stencil.full ? slide_in<WIDTH, WHOLE, 0, Pair, Out>
                  : slide_in<WIDTH, WHOLE, 1, Pair, Out>)(stencil, hi, low ? lo : nullptr, row, count, out);
    return true;
}

template <class In, class Out>
class BandRun {
public:
    BandRun(const trajcli_band& job, bool streaming)
        : job_(job), together_(stretches(job, false)), apart_(stretches(job, true)) {
        rows_ = TILE / job.dofs;
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
            // what lies outside the data needs no care where its low parts are zero
            const bool plain = evenly() && !any_low(b);
            for (const Stretch& stretch : plain ? together_ : apart_)
                for (std::int64_t done = 0; done < stretch.count; done += rows_) {
                    std::int64_t left = stretch.count - done;
                    tile(b, stretch.row + done, left < rows_ ? left : rows_, stretch.padded,
                         stretch.padded && !plain);
                }
        }
        for (auto& stages : stages_)
            for (auto& stage : stages) stage.drain(true);
    }

private:
    static constexpr std::int64_t TILE = 1536;

    const trajcli_band& job_;
    std::vector<Stretch> together_, apart_;
    std::int64_t rows_;
    std::vector<double> hi_, lo_;
    std::vector<Stage<Out>> stages_[4];
    Aligned<Vec> stencils_;
    std::vector<std::int64_t> made_for_;

    bool evenly() const { return job_.unit && sizeof(In) == sizeof(float) && sizeof(Out) == sizeof(float); }

    bool any_low(std::int64_t b) const {
        auto any = [&](const double* lo, std::int64_t points, std::int64_t stride, std::int64_t row) {
            bool found = false;
            for (std::int64_t t = 0; lo && t < points; t++)
                for (std::int64_t d = 0; d < job_.dofs; d++) found |= lo[b * stride + t * row + d] != 0.0;
            return found;
        };
        return any(job_.head_lo, job_.head, job_.head_stride, job_.head_row) ||
               any(job_.tail_lo, job_.tail, job_.tail_stride, job_.tail_row);
    }

    // Points begin.. of the padded sequence, side by side; those of head and tail with low parts.
    void bring(std::int64_t b, std::int64_t begin, std::int64_t count, bool padded) {
        const std::int64_t D = job_.dofs, end = begin + count;
        const In* actions = static_cast<const In*>(job_.actions) + b * job_.actions_stride;
        const std::int64_t last = job_.head + job_.horizon;
        const std::int64_t from = begin > job_.head ? begin : job_.head, to = end < last ? end : last;
        if (to > from)
            widen(actions + (from - job_.head) * D, hi_.data() + (from - begin) * D, (to - from) * D);
        if (!padded) return;
        std::memset(lo_.data(), 0, count * D * sizeof(double));
        auto copy = [&](std::int64_t point, const double* hi, const double* lo, std::int64_t at) {
            std::memcpy(hi_.data() + (point - begin) * D, hi + at, D * sizeof(double));
            if (lo) std::memcpy(lo_.data() + (point - begin) * D, lo + at, D * sizeof(double));
        };
        for (std::int64_t point = begin; point < job_.head && point < end; point++)
            copy(point, job_.head_hi, job_.head_lo, b * job_.head_stride + point * job_.head_row);
        for (std::int64_t point = begin > last ? begin : last; point < end; point++)
            copy(point, job_.tail_hi, job_.tail_lo,
                 b * job_.tail_stride + (point - last) * job_.tail_row);
    }

    void tile(std::int64_t b, std::int64_t row, std::int64_t count, bool padded, bool low) {
        bring(b, job_.first[row], count + job_.width - 1, padded);
        Out* out[4] = {};
        for (int m = 0; m < 4; m++)
            if (job_.out[m]) out[m] = stages_[m][0].room();
        switch (job_.width) {
            case 1: compute<1>(b, row, count, low, out); break;
            case 2: compute<2>(b, row, count, low, out); break;
            case 3: compute<3>(b, row, count, low, out); break;
            case 4: compute<4>(b, row, count, low, out); break;
            case 5: compute<5>(b, row, count, low, out); break;
            case 6: compute<6>(b, row, count, low, out); break;
        }
        for (int m = 0; m < 4; m++)
            if (job_.out[m]) stages_[m][0].added(count * job_.dofs);
    }

    // Made once for each kind, or for each trajectory where these differ.
    template <int WIDTH>
    const Evenly<WIDTH>& evenly_for(std::int64_t b, std::int64_t kind) {
        constexpr std::size_t size = sizeof(Evenly<WIDTH>) / sizeof(Vec) + 1;
        if (made_for_.empty()) {
            const std::int64_t* last = job_.phase + job_.rows;
            made_for_.assign(*std::max_element(job_.phase, last) + 1, -1);
            stencils_.resize(made_for_.size() * size);
        }
        Vec* place = stencils_.data() + kind * size;
        const std::int64_t wanted = job_.scale_stride ? b : 0;
        if (made_for_[kind] != wanted) {
            made_for_[kind] = wanted;
            new (place) Evenly<WIDTH>(job_.unit + kind * 4 * WIDTH, job_.scale + b * job_.scale_stride);
        }
        return *reinterpret_cast<const Evenly<WIDTH>*>(place);
    }

    // What the last vector writes too much is written over by what comes next.
    template <int WIDTH>
    void compute(std::int64_t b, std::int64_t row, std::int64_t count, bool low, Out* const out[4]) {
        const std::int64_t D = job_.dofs, kind = job_.phase[row] * 4 * WIDTH;
        const double *hi = hi_.data(), *lo = lo_.data();
        if constexpr (sizeof(Out) == sizeof(float)) if (evenly()) {
            const Evenly<WIDTH>& stencil = evenly_for<WIDTH>(b, job_.phase[row]);
            if (job_.unit_whole ? slide_evenly<true>(stencil, hi, lo, low, D, count * D, out)
                                : slide_evenly<false>(stencil, hi, lo, low, D, count * D, out))
                return;
        }
        const double* table_hi = job_.table_hi + b * job_.table_stride + kind;
        const double* table_lo = job_.table_lo + b * job_.table_stride + kind;
        (low ? slide<WIDTH, true, Out> : slide<WIDTH, false, Out>)(table_hi, table_lo, hi, lo, D,
                                                                   count * D, out);
    }
};

void band(const trajcli_band& a, bool streaming, std::int64_t begin, std::int64_t end) {
    const unsigned before = flags();
    if (a.actions_type)
        a.out_type ? BandRun<double, double>(a, streaming).trajectories(begin, end)
                   : BandRun<double, float>(a, streaming).trajectories(begin, end);
    else
        a.out_type ? BandRun<float, double>(a, streaming).trajectories(begin, end)
                   : BandRun<float, float>(a, streaming).trajectories(begin, end);
    set_flags(before);
    streams_done();
}

// The transpose, as a sum over the rows whose windows hold a point, in their order. Points are
// finished from first to last: ``first`` never goes down, so a point's rows are a run of them.
template <class In, class Out>
class BandAdjointRun {
public:
    BandAdjointRun(const trajcli_band_adjoint& job, bool streaming)
        : job_(job),
          stretches_(stretches(job, false)),
          stage_((TILE / job.dofs + 2 * WIDEST) * job.dofs + W, streaming) {
        rows_ = TILE / job.dofs;
        if (rows_ < 1) rows_ = 1;
        sums_.resize((rows_ + 2 * job.width) * job.dofs + AT_ONCE * W);
        for (int m = 0; m < 4; m++)
            if (job.upstream[m]) in_[m].resize((rows_ + 2 * job.width) * job.dofs + AT_ONCE * W);
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
    static constexpr std::int64_t TILE = 1536;
    static constexpr int AT_ONCE = 4;  // vectors

    const trajcli_band_adjoint& job_;
    std::vector<Stretch> stretches_;
    Stage<Out> stage_;
    std::int64_t rows_;
    std::int64_t base_ = 0, live_ = 0;  // the first point in sums_, and how many are not zero
    std::vector<double> sums_, in_[4];

    // Nothing will be added to points before ``point``: write them out.
    void finished(std::int64_t b, std::int64_t point) {
        const std::int64_t D = job_.dofs;
        while (base_ < point) {
            const std::int64_t room = rows_ + job_.width, left = point - base_;
            const std::int64_t count = left < room ? left : room;
            put(b, base_, count, sums_.data());
            const std::int64_t kept = live_ > count ? live_ - count : 0;
            std::memmove(sums_.data(), sums_.data() + count * D, kept * D * sizeof(double));
            if (live_ > kept)
                std::memset(sums_.data() + kept * D, 0, (live_ - kept) * D * sizeof(double));
            live_ = kept, base_ += count;
        }
    }

    void put(std::int64_t b, std::int64_t point, std::int64_t count, const double* from) {
        const std::int64_t D = job_.dofs, last = job_.head + job_.horizon;
        for (; count && point < job_.head; point++, count--, from += D)
            std::memcpy(job_.head_grad + (b * job_.head + point) * D, from, D * sizeof(double));
        const std::int64_t inner = point + count < last ? count : point < last ? last - point : 0;
        if (inner) {
            Out* to = stage_.room();
            for (std::int64_t i = 0; i < inner * D; i++) to[i] = static_cast<Out>(from[i]);
            stage_.added(inner * D);
            point += inner, count -= inner, from += inner * D;
        }
        if (count)
            std::memcpy(job_.tail_grad + (b * job_.tail + point - last) * D, from,
                        count * D * sizeof(double));
    }

    struct Tap {
        double weight;
        const double* from;
    };

    // What a point takes from the rows around it, in the order of the rows: from their weights,
    // those of derivatives applied to differences from the middle of the window.
    int taps(const double* table, Tap* found) const {
        const std::int64_t width = job_.width, middle = width / 2;
        int count = 0;
        for (std::int64_t k = width - 1; k >= 0; k--)
            for (int m = 0; m < 4; m++) {
                double weight = table[m * width + k];
                if (m && k == middle) {
                    weight = 0.0;
                    for (std::int64_t i = 0; i < width; i++)
                        weight -= i == middle ? 0.0 : table[m * width + i];
                }
                if (job_.upstream[m] && weight != 0.0)
                    found[count++] = {weight, in_[m].data() + (width - 1 - k) * job_.dofs};
            }
        return count;
    }

    // Add what ``count`` rows ask of their windows.
    void tile(std::int64_t b, std::int64_t row, std::int64_t count) {
        const std::int64_t D = job_.dofs, width = job_.width;
        // Rows with zeros around them: every point then sums over a whole window of rows.
        const std::int64_t around = (width - 1) * D;
        for (int m = 0; m < 4; m++) {
            if (!job_.upstream[m]) continue;
            const In* from =
                static_cast<const In*>(job_.upstream[m]) + b * job_.upstream_stride + row * D;
            double* to = in_[m].data();
            std::memset(to, 0, around * sizeof(double));
            widen(from, to + around, count * D);
            std::memset(to + around + count * D, 0, (around + AT_ONCE * W) * sizeof(double));
        }
        Tap tap[4 * WIDEST];
        const int n = taps(job_.table + b * job_.table_stride + job_.phase[row] * 4 * width, tap);
        double* sums = sums_.data() + (job_.first[row] - base_) * D;
        const std::int64_t points = (count + width - 1) * D;
        // What is added beyond the last point is zero.
        for (std::int64_t i = 0; i < points; i += AT_ONCE * W) {
            Vec sum[AT_ONCE];
            for (int j = 0; j < AT_ONCE; j++) sum[j] = load(sums + i + j * W);
            for (int k = 0; k < n; k++) {
                const Vec weight = all(tap[k].weight);
                const double* from = tap[k].from + i;
                for (int j = 0; j < AT_ONCE; j++)
                    sum[j] = multiply_add(weight, load(from + j * W), sum[j]);
            }
            for (int j = 0; j < AT_ONCE; j++) store(sums + i + j * W, sum[j]);
        }
        live_ = live_ < count + width - 1 ? count + width - 1 : live_;
    }
};

// The same for floats, a lane per dof: what a point has gathered so far stays in registers while
// the window moves over it. Few dofs share a vector with those of the next trajectories.
template <int WIDTH, bool COPY, class Out>
class BandAdjointLanes {
public:
    BandAdjointLanes(const trajcli_band_adjoint& job, bool streaming)
        : job_(job),
          stretches_(stretches(job, false)) {
        dofs_ = job.dofs;
        group_ = dofs_ <= W / 2 ? W / dofs_ : 1;
        width_ = group_ > 1 ? W : dofs_;
        columns_ = group_ > 1 ? 1 : (dofs_ + W - 1) / W;
        rows_ = TILE / width_ > 16 ? TILE / width_ : 16;
        for (int m = 0; m < 4; m++)
            if (group_ > 1 && job.upstream[m]) in_[m].resize(rows_ * W);
        points_.resize((rows_ + WIDTH) * width_ + W);
        if (group_ > 1) apart_.resize((rows_ + WIDTH) * W);
        sums_.resize(columns_ * WIDTH);
        for (std::int64_t g = 0; g < group_; g++)
            stages_.emplace_back((rows_ + WIDTH) * dofs_ + W, streaming);
    }

    void trajectories(std::int64_t begin, std::int64_t end) {
        for (first_ = begin; first_ < end; first_ += group_) {
            active_ = end - first_ < group_ ? end - first_ : group_;
            for (std::int64_t g = 0; g < active_; g++)
                stages_[g].aim(static_cast<Out*>(job_.actions) + (first_ + g) * job_.actions_stride);
            for (std::int64_t i = 0; i < columns_ * WIDTH; i++) sums_[i] = Vec{};
            base_ = 0;
            for (const Stretch& stretch : stretches_)
                for (std::int64_t done = 0; done < stretch.count; done += rows_) {
                    const std::int64_t left = stretch.count - done, row = stretch.row + done;
                    finish_to(job_.first[row]);
                    tile(row, left < rows_ ? left : rows_);
                }
            finish_to(job_.head + job_.horizon + job_.tail);
        }
        for (auto& stage : stages_) stage.drain(true);
    }

private:
    static constexpr std::int64_t TILE = 1536;

    const trajcli_band_adjoint& job_;
    std::vector<Stretch> stretches_;
    std::int64_t dofs_, group_, width_, columns_, rows_;
    std::int64_t first_ = 0, active_ = 0;  // the trajectories computed together
    std::int64_t base_ = 0;                // the first point in sums_
    std::vector<float> in_[4];
    std::vector<double> points_;
    std::vector<Out> apart_;
    Aligned<Vec> sums_;                    // of WIDTH points, for each column
    std::vector<Stage<Out>> stages_;

    int lanes_of(std::int64_t column) const {
        if (group_ > 1) return active_ * dofs_;
        const std::int64_t left = dofs_ - column * W;
        return left < W ? left : W;
    }

    // Points before ``point`` get nothing more.
    void finish_to(std::int64_t point) {
        while (base_ < point) {
            const std::int64_t left = point - base_, count = left < WIDTH ? left : WIDTH;
            for (std::int64_t c = 0; c < columns_; c++) {
                Vec* sum = sums_.data() + c * WIDTH;
                for (std::int64_t k = 0; k < count; k++) keep(k, c, sum[k]);
                for (std::int64_t k = 0; k < WIDTH; k++) sum[k] = k + count < WIDTH ? sum[k + count] : Vec{};
            }
            put(count);
        }
    }

    void keep(std::int64_t k, std::int64_t column, Vec x) {
        std::memcpy(points_.data() + k * width_ + column * W, &x, lanes_of(column) * sizeof(double));
    }

    void tile(std::int64_t row, std::int64_t count) {
        const double* table = job_.table + first_ * job_.table_stride + job_.phase[row] * 4 * WIDTH;
        const float* in[4];
        bool used[4];
        for (int m = 0; m < 4; m++) {
            used[m] = false;
            for (int k = 0; k < WIDTH; k++) used[m] = used[m] || table[m * WIDTH + k] != 0.0;
            used[m] = used[m] && job_.upstream[m];
            if (used[m]) in[m] = bring(m, row, count);
        }
        // Last columns first: what a vector writes beyond its row is then written over.
        for (std::int64_t c = columns_ - 1; c >= 0; c--) column(c, table, in, used, count);
        put(count - 1);
    }

    const float* bring(int m, std::int64_t row, std::int64_t count) {
        const float* from = static_cast<const float*>(job_.upstream[m]) +
                            first_ * job_.upstream_stride + row * dofs_;
        if (group_ == 1) return from;
        float* to = in_[m].data();
        interleave_rows(from, job_.upstream_stride, to, dofs_, count, active_);
        return to;
    }

    // Weights, of each lane's own trajectory where these differ; those of derivatives are applied
    // to differences from the middle of the window.
    void weights(const double* table, const bool used[4], Vec found[4][WIDTH]) const {
        const std::int64_t kinds = group_ > 1 && job_.table_stride ? active_ : 1;
        for (std::int64_t g = 0; g < kinds; g++, table += job_.table_stride)
            for (int m = 0; m < 4; m++) {
                double rest = 0.0;
                for (int k = 0; k < WIDTH; k++) rest -= k == WIDTH / 2 ? 0.0 : table[m * WIDTH + k];
                for (int k = 0; k < WIDTH; k++) {
                    const double weight = m && k == WIDTH / 2 ? rest : table[m * WIDTH + k];
                    if (g == 0) found[m][k] = all(used[m] ? weight : 0.0);
                    for (std::int64_t l = g * dofs_; g && used[m] && l < (g + 1) * dofs_; l++)
                        found[m][k][l] = weight;
                }
            }
    }

    void column(std::int64_t c, const double* table, const float* const given[4], const bool used[4],
                std::int64_t count) {
        static const float zeros[2 * W] = {};
        Vec weight[4][WIDTH], sum[WIDTH];
        weights(table, used, weight);
        const float* in[4];
        std::int64_t row[4];
        for (int m = 0; m < 4; m++)
            in[m] = used[m] ? given[m] + c * W : zeros, row[m] = used[m] ? width_ : 0;
        const int lanes = lanes_of(c);
        const std::int64_t ahead = group_ > 1 ? 0 : count * dofs_, width = width_;
        double* to = points_.data() + c * W;
        Vec* kept = sums_.data() + c * WIDTH;
        for (int k = 0; k < WIDTH; k++) sum[k] = kept[k];
        for (std::int64_t t = 0; t < count; t++) {
            if (t) {
                store(to + (t - 1) * width, sum[0]);
                for (int k = 0; k + 1 < WIDTH; k++) sum[k] = sum[k + 1];
                sum[WIDTH - 1] = Vec{};
            }
            for (int m = 0; m < 4; m++) {
                const float* from = in[m] + t * row[m];
                __builtin_prefetch(from + ahead, 0, 2);
                const Vec x = load_some(from, lanes);
                if (m == 0 && COPY)
                    sum[WIDTH / 2] = multiply_add(weight[0][WIDTH / 2], x, sum[WIDTH / 2]);
                else
                    for (int k = 0; k < WIDTH; k++) sum[k] = multiply_add(weight[m][k], x, sum[k]);
            }
        }
        for (int k = 0; k < WIDTH; k++) kept[k] = sum[k];
    }

    // ``count`` points from base_ on are complete.
    void put(std::int64_t count) {
        const std::int64_t last = job_.head + job_.horizon;
        const double* from = points_.data();
        for (; count > 0 && base_ < job_.head; from += width_, base_++, count--)
            put_outside(from, job_.head_grad, job_.head, base_);
        const std::int64_t inner = base_ + count < last ? count : base_ < last ? last - base_ : 0;
        if (inner > 0) put_inside(from, inner);
        from += inner * width_, base_ += inner, count -= inner;
        for (; count > 0; from += width_, base_++, count--)
            put_outside(from, job_.tail_grad, job_.tail, base_ - last);
    }

    void put_outside(const double* from, double* to, std::int64_t points, std::int64_t point) {
        for (std::int64_t g = 0; g < active_; g++)
            std::memcpy(to + ((first_ + g) * points + point) * dofs_, from + g * dofs_,
                        dofs_ * sizeof(double));
    }

    void put_inside(const double* from, std::int64_t count) {
        Out* to[W];
        for (std::int64_t g = 0; g < active_; g++) to[g] = stages_[g].room();
        Out* rows = group_ > 1 ? apart_.data() : to[0];
        for (std::int64_t i = 0; i < count * width_; i++) rows[i] = static_cast<Out>(from[i]);
        if (group_ > 1) separate_rows(rows, to, dofs_, count, active_);
        for (std::int64_t g = 0; g < active_; g++) stages_[g].added(count * dofs_);
    }
};

template <int WIDTH, class Out>
void band_adjoint_lanes(const trajcli_band_adjoint& a, bool streaming, std::int64_t begin,
                        std::int64_t end) {
    bool copy = true;  // order 0 takes the middle point alone, wherever it is
    for (std::int64_t t = 0; t < a.rows; t++)
        for (int k = 0; k < WIDTH; k++)
            copy = copy && (k == WIDTH / 2 || a.table[a.phase[t] * 4 * WIDTH + k] == 0.0);
    copy ? BandAdjointLanes<WIDTH, true, Out>(a, streaming).trajectories(begin, end)
         : BandAdjointLanes<WIDTH, false, Out>(a, streaming).trajectories(begin, end);
}

template <class Out>
void band_adjoint_floats(const trajcli_band_adjoint& a, bool streaming, std::int64_t begin,
                         std::int64_t end) {
    switch (a.width) {
        case 1: return band_adjoint_lanes<1, Out>(a, streaming, begin, end);
        case 2: return band_adjoint_lanes<2, Out>(a, streaming, begin, end);
        case 3: return band_adjoint_lanes<3, Out>(a, streaming, begin, end);
        case 4: return band_adjoint_lanes<4, Out>(a, streaming, begin, end);
        case 5: return band_adjoint_lanes<5, Out>(a, streaming, begin, end);
        default: return band_adjoint_lanes<6, Out>(a, streaming, begin, end);
    }
}

void band_adjoint(const trajcli_band_adjoint& a, bool streaming, std::int64_t begin,
                  std::int64_t end) {
    if (a.upstream_type)
        a.actions_type ? BandAdjointRun<double, double>(a, streaming).trajectories(begin, end)
                       : BandAdjointRun<double, float>(a, streaming).trajectories(begin, end);
    else
        a.actions_type ? band_adjoint_floats<double>(a, streaming, begin, end)
                       : band_adjoint_floats<float>(a, streaming, begin, end);
    streams_done();
}

}  // namespace TRAJCLI_LEVEL
