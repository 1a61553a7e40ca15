// Few dofs: rows of several trajectories side by side in one vector, and back.
// Included by each level*.cpp after stage.hpp.

namespace TRAJCLI_LEVEL {

#if defined(__clang__) || __GNUC__ >= 12
#define TRAJCLI_SHUFFLES  // vectors of any length

// The halves of two vectors that a transposition swaps, in units of D elements, ``step`` apart.
template <int D>
constexpr int swapped(int element, int step, bool upper) {
    const int unit = element / D;
    const bool from_b = unit & step;
    const int other = unit + (upper ? (from_b ? 0 : step) : (from_b ? -step : 0));
    return (from_b ? W : 0) + other * D + element % D;
}

template <int D, int STEP, int... E>
inline void swap_units(NarrowVec& a, NarrowVec& b, std::integer_sequence<int, E...>) {
    NarrowVec low = __builtin_shufflevector(a, b, swapped<D>(E, STEP, false)...);
    b = __builtin_shufflevector(a, b, swapped<D>(E, STEP, true)...);
    a = low;
}

template <int D, int STEP = W / D / 2>
inline void transpose(NarrowVec x[W / D]) {
    if constexpr (STEP > 0) {
        for (int i = 0; i < W / D; i++)
            if (!(i & STEP)) swap_units<D, STEP>(x[i], x[i + STEP], std::make_integer_sequence<int, W>());
        transpose<D, STEP / 2>(x);
    }
}
#endif

#if defined(TRAJCLI_AVX512)
// Two places of four floats each. Putting them together as they are loaded saves a third of the
// shuffles.
inline __m256 two(const float* low, const float* high) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
}

// 4 by 4 floats, in both halves.
inline void transpose_quads(__m256 x[4]) {
    const __m256 a = _mm256_unpacklo_ps(x[0], x[1]), b = _mm256_unpackhi_ps(x[0], x[1]);
    const __m256 c = _mm256_unpacklo_ps(x[2], x[3]), d = _mm256_unpackhi_ps(x[2], x[3]);
    x[0] = _mm256_shuffle_ps(a, c, 0x44), x[1] = _mm256_shuffle_ps(a, c, 0xee);
    x[2] = _mm256_shuffle_ps(b, d, 0x44), x[3] = _mm256_shuffle_ps(b, d, 0xee);
}

// 2 by 2 pairs of floats, in both halves.
inline void transpose_pairs(__m256 x[2]) {
    const __m256d a = _mm256_castps_pd(x[0]), b = _mm256_castps_pd(x[1]);
    x[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
    x[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
}

// W / D rows of as many trajectories.
template <int D>
inline void interleave_block(const float* from, std::int64_t apart, float* to) {
    constexpr int n = 4 / D;
    for (int half = 0; half < 2; half++, from += 4, to += n * W) {
        __m256 x[n];
        for (int i = 0; i < n; i++) x[i] = two(from + i * apart, from + (i + n) * apart);
        if constexpr (D == 1) transpose_quads(x);
        if constexpr (D == 2) transpose_pairs(x);
        for (int i = 0; i < n; i++) _mm256_storeu_ps(to + i * W, x[i]);
    }
}

template <int D>
inline void separate_block(const float* from, float* const* to, std::int64_t at) {
    constexpr int n = 4 / D;
    for (int half = 0; half < 2; half++, from += 4, to += n) {
        __m256 x[n];
        for (int i = 0; i < n; i++) x[i] = two(from + i * W, from + (i + n) * W);
        if constexpr (D == 1) transpose_quads(x);
        if constexpr (D == 2) transpose_pairs(x);
        for (int i = 0; i < n; i++) _mm256_storeu_ps(to[i] + at, x[i]);
    }
}
#elif defined(TRAJCLI_SHUFFLES)
template <int D>
inline void interleave_block(const float* from, std::int64_t apart, float* to) {
    NarrowVec x[W / D];
    for (int g = 0; g < W / D; g++) std::memcpy(&x[g], from + g * apart, sizeof x[g]);
    transpose<D>(x);
    std::memcpy(to, x, sizeof x);
}

template <int D>
inline void separate_block(const float* from, float* const* to, std::int64_t at) {
    NarrowVec x[W / D];
    std::memcpy(x, from, sizeof x);
    transpose<D>(x);
    for (int g = 0; g < W / D; g++) std::memcpy(to[g] + at, &x[g], sizeof x[g]);
}
#endif

// Whether blocks of rows are moved with shuffles.
template <int D, class Value>
constexpr bool in_blocks() {
#if defined(TRAJCLI_AVX512) || defined(TRAJCLI_SHUFFLES)
    return sizeof(Value) == sizeof(float) && W % D == 0 && D < W;
#else
    return false;
#endif
}

// ``count`` rows of D values from trajectories ``apart`` elements from each other to rows of W;
// ``ahead``: where the next such rows lie, for the cache.
template <int D, class Value>
inline void interleave(const Value* from, std::int64_t apart, Value* to, std::int64_t count,
                       std::int64_t ahead) {
    constexpr int G = W / D;
    if constexpr (in_blocks<D, Value>()) {
        for (std::int64_t t = 0; count >= G && t < count; t += G) {
            for (int g = 0; g < G; g++) __builtin_prefetch(from + g * apart + t * D + ahead, 0, 2);
            const std::int64_t row = t + G <= count ? t : count - G;  // the last ones, again
            interleave_block<D>(from + row * D, apart, to + row * W);
        }
        if (count >= G) return;
    }
    for (std::int64_t t = 0; t < count; t++)
        for (int g = 0; g < G; g++)
            for (int d = 0; d < D; d++) to[t * W + g * D + d] = from[g * apart + t * D + d];
}

// And back.
template <int D, class Value>
inline void separate(const Value* from, Value* const* to, std::int64_t count) {
    constexpr int G = W / D;
    if constexpr (in_blocks<D, Value>()) {
        for (std::int64_t t = 0; count >= G && t < count; t += G) {
            const std::int64_t row = t + G <= count ? t : count - G;
            separate_block<D>(from + row * W, to, row * D);
        }
        if (count >= G) return;
    }
    for (std::int64_t t = 0; t < count; t++)
        for (int g = 0; g < G; g++)
            for (int d = 0; d < D; d++) to[g][t * D + d] = from[t * W + g * D + d];
}

// The same for any D up to half a vector; of ``active`` trajectories, where fewer are left.
template <class Value>
void interleave_rows(const Value* from, std::int64_t apart, Value* to, std::int64_t dofs,
                     std::int64_t count, std::int64_t active) {
    const std::int64_t group = W / dofs, ahead = group * apart;
    if (active < group)
        for (std::int64_t t = 0; t < count; t++)
            for (std::int64_t g = 0; g < active; g++)
                std::memcpy(to + t * W + g * dofs, from + g * apart + t * dofs, dofs * sizeof(Value));
    else if (dofs == 1)
        interleave<1>(from, apart, to, count, ahead);
    else if (dofs == 2)
        interleave<2>(from, apart, to, count, ahead);
    else if (dofs == 3)
        interleave<3>(from, apart, to, count, ahead);
    else
        interleave<4>(from, apart, to, count, ahead);
}

template <class Value>
void separate_rows(const Value* from, Value* const* to, std::int64_t dofs, std::int64_t count,
                   std::int64_t active) {
    if (active < W / dofs)
        for (std::int64_t t = 0; t < count; t++)
            for (std::int64_t g = 0; g < active; g++)
                std::memcpy(to[g] + t * dofs, from + t * W + g * dofs, dofs * sizeof(Value));
    else if (dofs == 1)
        separate<1>(from, to, count);
    else if (dofs == 2)
        separate<2>(from, to, count);
    else if (dofs == 3)
        separate<3>(from, to, count);
    else
        separate<4>(from, to, count);
}

}  // namespace TRAJCLI_LEVEL
