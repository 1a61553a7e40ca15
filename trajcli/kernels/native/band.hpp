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

template <class In, class Out>
class BandRun {
public:
    BandRun(const trajcli_band& job, bool streaming)
        : job_(job), streaming_(streaming), together_(stretches(job, false)), apart_(stretches(job, true)) {
        rows_ = TILE / job.dofs;
        if (rows_ < 1) rows_ = 1;
        std::int64_t points = (rows_ + job.width) * job.dofs + W;
        hi_.resize(points), lo_.resize(points);
        for (int m = 0; m < 4; m++)
            if (job.out[m]) stages_[m].emplace_back((rows_ + 1) * job.dofs + W, streaming);
    }

    void trajectories(std::int64_t begin, std::int64_t end) {
        if (!in_groups(begin, end))
            for (std::int64_t b = begin; b < end; b++) alone(b);
        for (auto& stages : stages_)
            for (auto& stage : stages) stage.drain(true);
    }

private:
    void alone(std::int64_t b) {
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

    // Few dofs, side by side; false, and nothing done, where they are not few or do not fit.
    bool in_groups(std::int64_t begin, std::int64_t end) {
#if defined(TRAJCLI_AVX512)
        if constexpr (sizeof(In) == sizeof(float) && sizeof(Out) == sizeof(float))
            if (evenly())
                return in_groups_of<4>(begin, end) || in_groups_of<5>(begin, end) ||
                       in_groups_of<6>(begin, end);
#endif
        return false;
    }

#if defined(TRAJCLI_AVX512)
    template <int WIDTH>
    bool in_groups_of(std::int64_t begin, std::int64_t end) {
        if (!BandGroups<WIDTH>::suit(job_)) return false;
        BandGroups<WIDTH> groups(job_, streaming_);
        for (std::int64_t b = begin; b < end; b += groups.size()) {
            const std::int64_t next = b + groups.size();
            bool plain = next <= end;
            for (std::int64_t k = b; plain && k < next; k++) plain = !any_low(k);
            if (plain && groups.compute(b)) continue;
            for (std::int64_t k = b; k < next && k < end; k++) alone(k);
        }
        groups.finish();
        return true;
    }
#endif

    static constexpr std::int64_t TILE = 1536;

    const trajcli_band& job_;
    bool streaming_;
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
    void bring(std::int64_t b, std::int64_t begin, std::int64_t count, bool padded, bool low) {
        const std::int64_t D = job_.dofs, end = begin + count;
        const In* actions = static_cast<const In*>(job_.actions) + b * job_.actions_stride;
        const std::int64_t last = job_.head + job_.horizon;
        const std::int64_t from = begin > job_.head ? begin : job_.head, to = end < last ? end : last;
        if (to > from)
            widen(actions + (from - job_.head) * D, hi_.data() + (from - begin) * D, (to - from) * D);
        if (!padded) return;
        if (low) std::memset(lo_.data(), 0, count * D * sizeof(double));
        auto copy = [&](std::int64_t point, const double* hi, const double* lo, std::int64_t at) {
            std::memcpy(hi_.data() + (point - begin) * D, hi + at, D * sizeof(double));
            if (lo && low) std::memcpy(lo_.data() + (point - begin) * D, lo + at, D * sizeof(double));
        };
        for (std::int64_t point = begin; point < job_.head && point < end; point++)
            copy(point, job_.head_hi, job_.head_lo, b * job_.head_stride + point * job_.head_row);
        for (std::int64_t point = begin > last ? begin : last; point < end; point++)
            copy(point, job_.tail_hi, job_.tail_lo,
                 b * job_.tail_stride + (point - last) * job_.tail_row);
    }

    void tile(std::int64_t b, std::int64_t row, std::int64_t count, bool padded, bool low) {
        if (!low && slides(b, row, count)) return;
        bring(b, job_.first[row], count + job_.width - 1, padded, low);
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

    // Rows along their dofs, where that is exact.
    bool slides(std::int64_t b, std::int64_t row, std::int64_t count) {
#if defined(TRAJCLI_AVX512)
        if constexpr (sizeof(In) == sizeof(float) && sizeof(Out) == sizeof(float)) {
            if (!evenly() || !job_.unit_whole || job_.dofs <= W / 2 || count < job_.width) return false;
            switch (job_.width) {
                case 4: return slide_rows<4>(b, row, count);
                case 5: return slide_rows<5>(b, row, count);
                case 6: return slide_rows<6>(b, row, count);
            }
        }
#endif
        return false;
    }

#if defined(TRAJCLI_AVX512)
    template <int WIDTH>
    bool slide_rows(std::int64_t b, std::int64_t row, std::int64_t count) {
        const Evenly<WIDTH>& stencil = evenly_for<WIDTH>(b, job_.phase[row]);
        if (!stencil.full && !stencil.all_but_last) return false;
        const std::int64_t D = job_.dofs, middle = job_.first[row] + WIDTH / 2 - job_.head;
        const float* actions = static_cast<const float*>(job_.actions) + b * job_.actions_stride;
        const bool passes = stencil.copy && middle >= 0 && middle + count <= job_.horizon;
        if (stencil.copy && !passes && job_.out[0]) return false;
        Rows rows{{}, D, 0, D <= W};
        for (int m = passes; m < 4; m++)
            if (job_.out[m]) rows.out[m] = stages_[m][0].room();
        const std::int64_t first = job_.first[row] + stencil.offset;
        const std::int64_t width = WIDTH > 4 && !stencil.full ? WIDTH - 1 : WIDTH;
        if (!slide_exactly<WIDTH>(stencil, points(b, first, count + width - 1), rows, D)) return false;
        for (int m = 0; m < 4; m++)
            if (rows.out[m]) stages_[m][0].added(count * D);
        if (passes && job_.out[0]) stages_[0][0].pass(actions + middle * D, count * D);
        return true;
    }

    // Points begin.. of the padded sequence, where they are.
    Points points(std::int64_t b, std::int64_t begin, std::int64_t count) const {
        const std::int64_t D = job_.dofs, head = job_.head, last = head + job_.horizon;
        const std::int64_t end = begin + count;
        const std::int64_t inner = begin > head ? begin : head, after = begin > last ? begin : last;
        Points found{};
        found.before = job_.head_hi + b * job_.head_stride + begin * job_.head_row;
        found.before_count = begin < head ? (end < head ? end : head) - begin : 0;
        found.before_row = job_.head_row;
        found.inner =
            static_cast<const float*>(job_.actions) + b * job_.actions_stride + (inner - head) * D;
        found.inner_count = inner < last && end > inner ? (end < last ? end : last) - inner : 0;
        found.inner_row = D, found.ahead = found.inner_count * D;
        found.after = job_.tail_hi + b * job_.tail_stride + (after - last) * job_.tail_row;
        found.after_count = end > after ? end - after : 0;
        found.after_row = job_.tail_row;
        return found;
    }
#endif

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

}  // namespace TRAJCLI_LEVEL
