// Few dofs: rows of several trajectories side by side in one vector, and back.
// Included by each level*.cpp after stage.hpp.

namespace TRAJCLI_LEVEL {

#if defined(__clang__) || __GNUC__ >= 12
#define TRAJCLI_SHUFFLES

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

// ``count`` rows of D values from trajectories ``apart`` elements from each other to rows of W;
// ``ahead``: where the next such rows lie, for the cache.
template <int D, class Value>
inline void interleave(const Value* from, std::int64_t apart, Value* to, std::int64_t count,
                       std::int64_t ahead) {
    constexpr int G = W / D;
    std::int64_t t = 0;
#if defined(TRAJCLI_SHUFFLES)
    if constexpr (sizeof(Value) == sizeof(float) && G * D == W && G > 1)
        for (; t + G <= count; t += G) {
            NarrowVec x[G];
            for (int g = 0; g < G; g++) {
                const Value* place = from + g * apart + t * D;
                __builtin_prefetch(place + ahead);
                std::memcpy(&x[g], place, sizeof x[g]);
            }
            transpose<D>(x);
            std::memcpy(to + t * W, x, sizeof x);
        }
#endif
    (void)ahead;
    for (; t < count; t++)
        for (int g = 0; g < G; g++)
            for (int d = 0; d < D; d++) to[t * W + g * D + d] = from[g * apart + t * D + d];
}

// And back.
template <int D, class Value>
inline void separate(const Value* from, Value* const* to, std::int64_t count) {
    constexpr int G = W / D;
    std::int64_t t = 0;
#if defined(TRAJCLI_SHUFFLES)
    if constexpr (sizeof(Value) == sizeof(float) && G * D == W && G > 1)
        for (; t + G <= count; t += G) {
            NarrowVec x[G];
            std::memcpy(x, from + t * W, sizeof x);
            transpose<D>(x);
            for (int g = 0; g < G; g++) std::memcpy(to[g] + t * D, &x[g], sizeof x[g]);
        }
#endif
    for (; t < count; t++)
        for (int g = 0; g < G; g++)
            for (int d = 0; d < D; d++) to[g][t * D + d] = from[t * W + g * D + d];
}

}  // namespace TRAJCLI_LEVEL
