// The band along the rows, for float data on evenly spaced points: the window and its differences
// stay in registers, so that each row costs one load and three differences.
// Included by each level*.cpp after evenly.hpp.

namespace TRAJCLI_LEVEL {

// Points that follow each other: before the data, of the data, after it.
struct Points {
    const double* before;
    std::int64_t before_count, before_row;
    const float* inner;
    std::int64_t inner_count, inner_row, ahead;  // from here to what comes next, for the cache
    const double* after;
    std::int64_t after_count, after_row;
};

// Where results go: rows of ``lanes`` lanes.
struct Rows {
    float* out[4];
    std::int64_t row;
    int lanes;
    bool whole;  // a row is one vector: two rows are stored at once
};

#if defined(TRAJCLI_AVX512)
// Inlined first of all: otherwise the window is also kept in memory, stored with every row.
#define TRAJCLI_INLINE inline __attribute__((always_inline))

// Stores are what there is least of: one of 64 bytes takes no longer than one of 32.
inline __m512i two_of(int lanes) {
    alignas(64) int place[16];
    for (int i = 0; i < 16; i++) place[i] = i < lanes ? i : i < lanes + W ? 16 + i - lanes : 0;
    return _mm512_load_si512(place);
}

// The first lanes of a, and b after them.
inline void store_two(float* to, Quiet a, Quiet b, __m512i place) {
    const __m512 low = _mm512_castps256_ps512(_mm512_cvt_roundpd_ps((__m512d)a.v, TRAJCLI_SILENT));
    const __m512 high = _mm512_castps256_ps512(_mm512_cvt_roundpd_ps((__m512d)b.v, TRAJCLI_SILENT));
    _mm512_storeu_ps(to, _mm512_permutex2var_ps(low, place, high));
}

// The window: its last points and their differences, oldest first.
template <int WIDTH, int SPARED>
struct Window {
    static constexpr int POINTS = WIDTH > 4 ? WIDTH - SPARED : WIDTH;
    Vec x[POINTS], first[POINTS - 1], second[POINTS - 2], third[POINTS - 3];

    template <int I = 0, int N>
    static TRAJCLI_INLINE void fill(Vec (&values)[N], Vec with) {
        values[I] = with;
        if constexpr (I + 1 < N) fill<I + 1>(values, with);
    }

    // Written out for every place: loops over them would keep them in memory.
    template <int I = 0, int N>
    static TRAJCLI_INLINE void shift(Vec (&values)[N], Vec next) {
        if constexpr (I + 1 < N) {
            values[I] = values[I + 1];
            shift<I + 1>(values, next);
        } else {
            values[I] = next;
        }
    }

    TRAJCLI_INLINE void push(Vec next) {
        const Vec one = next - x[POINTS - 1], two = one - first[POINTS - 2];
        shift(third, two - second[POINTS - 3]);
        shift(second, two);
        shift(first, one);
        shift(x, next);
    }
};

// Weights that read the same from both ends are applied to sums of two differences.
template <int N, bool SYMMETRIC, int I = 0, int M>
TRAJCLI_INLINE Vec weighed_row(const Vec* weight, const Vec (&d)[M], Vec sum = Vec{}) {
    constexpr int other = N - 1 - I;
    if constexpr (SYMMETRIC ? other < I : I == N) {
        return sum;
    } else {
        const Vec x = SYMMETRIC && other != I ? d[I] + d[other] : d[I];
        sum = I ? multiply_add(weight[I], x, sum) : weight[0] * x;
        return weighed_row<N, SYMMETRIC, I + 1>(weight, d, sum);
    }
}

template <int WIDTH, int SPARED, bool VALUES, bool SYMMETRIC>
struct Slide {
    static constexpr int POINTS = Window<WIDTH, SPARED>::POINTS;
    static constexpr bool VALUED = VALUES;

    const Evenly<WIDTH>& stencil;
    Window<WIDTH, SPARED> window;

    // As if the first point had been there all along.
    Slide(const Evenly<WIDTH>& given, Vec first) : stencil(given) {
        window.fill(window.x, first);
        window.fill(window.first, Vec{});
        window.fill(window.second, Vec{});
        window.fill(window.third, Vec{});
    }

    TRAJCLI_INLINE void push(Vec x) { window.push(x); }

    TRAJCLI_INLINE void results(Quiet y[4]) const {
        if (VALUES) y[0] = scaled<0>(window.x);
        y[1] = scaled<1>(window.first);
        y[2] = scaled<2>(window.second);
        y[3] = scaled<3>(window.third);
    }

    template <int M, int N>
    TRAJCLI_INLINE Quiet scaled(const Vec (&d)[N]) const {
        return stencil.scale[M] * quiet(weighed_row<Evenly<WIDTH>::taps(M, SPARED), SYMMETRIC>(stencil.weight[M], d));
    }

    static TRAJCLI_INLINE Vec point(const double* from, int lanes) {
        return (Vec)_mm512_maskz_loadu_pd((__mmask8)((1u << lanes) - 1), from);
    }
    static TRAJCLI_INLINE Vec point(const float* from, int lanes) { return load_some(from, lanes); }

    static TRAJCLI_INLINE Vec first_point(const Points& points, std::int64_t column, int lanes) {
        return points.before_count  ? point(points.before + column, lanes)
               : points.inner_count ? point(points.inner + column, lanes)
                                    : point(points.after + column, lanes);
    }

    // ``count`` points more; of the window that each completes the row ``at``.. is written.
    template <class Value>
    TRAJCLI_INLINE void take(const Value* from, std::int64_t count, std::int64_t by, std::int64_t ahead,
                     const Rows& rows, __m512i place, std::int64_t& at) {
        std::int64_t i = 0;
        for (; i < count && at < 0; i++, at++) push(point(from + i * by, rows.lanes));
        Quiet y[4], z[4];
        for (; rows.whole && i + 1 < count; i += 2, at += 2) {
            __builtin_prefetch(from + i * by + ahead, 0, 2);
            push(point(from + i * by, rows.lanes));
            results(y);
            push(point(from + (i + 1) * by, rows.lanes));
            results(z);
            for (int m = !VALUES; m < 4; m++)
                if (rows.out[m]) store_two(rows.out[m] + at * rows.row, y[m], z[m], place);
        }
        for (; i < count; i++, at++) {
            __builtin_prefetch(from + i * by + ahead, 0, 2);
            push(point(from + i * by, rows.lanes));
            results(y);
            for (int m = !VALUES; m < 4; m++)
                if (rows.out[m]) store(rows.out[m] + at * rows.row, y[m]);
        }
    }
};

// The same for two columns side by side, the first of W lanes.
template <class S, class Value>
TRAJCLI_INLINE void take_two(S& low, S& high, const Value* from, std::int64_t count, std::int64_t by,
                     std::int64_t ahead, const Rows& rows, __m512i place, std::int64_t& at) {
    const int lanes = rows.lanes - W;
    auto push = [&](std::int64_t i) __attribute__((always_inline)) {
        low.push(S::point(from + i * by, W));
        high.push(S::point(from + i * by + W, lanes));
    };
    std::int64_t i = 0;
    for (; i < count && at < 0; i++, at++) push(i);
    for (; i < count; i++, at++) {
        __builtin_prefetch(from + i * by + ahead, 0, 2);
        push(i);
        Quiet y[4], z[4];
        low.results(y);
        high.results(z);
        for (int m = !S::VALUED; m < 4; m++)
            if (rows.out[m]) store_two(rows.out[m] + at * rows.row, y[m], z[m], place);
    }
}

template <class S, int WIDTH>
__attribute__((noinline)) void slide_two(const Evenly<WIDTH>& stencil, const Points points,
                                         const Rows rows) {
    const int lanes = rows.lanes - W;
    S low(stencil, S::first_point(points, 0, W)), high(stencil, S::first_point(points, W, lanes));
    const __m512i place = two_of(W);
    std::int64_t at = 1 - S::POINTS;
    take_two(low, high, points.before, points.before_count, points.before_row, 0, rows, place, at);
    take_two(low, high, points.inner, points.inner_count, points.inner_row, points.ahead, rows, place, at);
    take_two(low, high, points.after, points.after_count, points.after_row, 0, rows, place, at);
}

template <class S, int WIDTH>
__attribute__((noinline)) void slide_along(const Evenly<WIDTH>& stencil, const Points points,
                                           const Rows rows) {
    S slide(stencil, S::first_point(points, 0, rows.lanes));
    const __m512i place = two_of(rows.lanes);
    std::int64_t at = 1 - S::POINTS;
    slide.take(points.before, points.before_count, points.before_row, 0, rows, place, at);
    slide.take(points.inner, points.inner_count, points.inner_row, points.ahead, rows, place, at);
    slide.take(points.after, points.after_count, points.after_row, 0, rows, place, at);
}

template <int WIDTH, int SPARED>
void slide_columns(const Evenly<WIDTH>& stencil, const Points& points, const Rows& rows) {
    auto along = [&](auto values, auto symmetric) {
        using S = Slide<WIDTH, SPARED, decltype(values)::value, decltype(symmetric)::value>;
        (rows.lanes > W ? slide_two<S, WIDTH> : slide_along<S, WIDTH>)(stencil, points, rows);
    };
    const std::false_type no;
    const std::true_type yes;
    if (rows.out[0])
        stencil.symmetric ? along(yes, yes) : along(yes, no);
    else
        stencil.symmetric ? along(no, yes) : along(no, no);
}

// All columns of ``dofs``, the last ones first: what a vector writes beyond its row is then written
// over. False where that was not exact.
template <int WIDTH>
bool slide_exactly(const Evenly<WIDTH>& stencil, const Points& points, const Rows& rows,
                   std::int64_t dofs) {
    forget_inexact();
    for (std::int64_t c = (dofs - 1) / (2 * W) * 2; c >= 0; c -= 2) {
        Points p = points;
        Rows r = rows;
        if (p.before_count) p.before += c * W;
        if (p.inner_count) p.inner += c * W;
        if (p.after_count) p.after += c * W;
        for (float*& out : r.out)
            if (out) out += c * W;
        r.lanes = dofs - c * W < 2 * W ? dofs - c * W : 2 * W;
        (stencil.full ? slide_columns<WIDTH, 0> : slide_columns<WIDTH, 1>)(stencil, p, r);
    }
    return !was_inexact();
}
#endif

}  // namespace TRAJCLI_LEVEL
