// Bands whose points are evenly spaced, for float data: weights on differences of the points.
// Included by each level*.cpp after uniform.hpp.

namespace TRAJCLI_LEVEL {

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
    bool symmetric = true;      // the others read the same from both ends
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
        for (int m = copy; m < 4; m++)
            for (int i = 0, n = taps(m, !full); i < n; i++)
                symmetric = symmetric && weight[m][i][0] == weight[m][n - 1 - i][0];
    }

    // How many weights order m has, where the last is zero (``spared``) or is not.
    static constexpr int taps(int m, int spared) { return WIDTH - m > 1 ? WIDTH - m - spared : WIDTH - m; }
};

inline Vec times(Vec weight, Vec x, Vec sum) { return multiply_add(weight, x, sum); }
inline Pair times(Vec weight, Pair x, Pair sum) { return add(sum, multiply(weight, x)); }
inline Vec first_times(Vec weight, Vec x) { return weight * x; }
inline Pair first_times(Vec weight, Pair x) { return multiply(weight, x); }

template <int WIDTH, int M, bool WHOLE, int SPARED, class N>
inline Quiet weighed_evenly(const Evenly<WIDTH>& stencil, const N* d) {
    constexpr int n = Evenly<WIDTH>::taps(M, SPARED);
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
            constexpr int M = decltype(order)::value, n = Evenly<WIDTH>::taps(M, SPARED);
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

}  // namespace TRAJCLI_LEVEL
