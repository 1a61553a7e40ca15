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
                __builtin_prefetch(place + ahead, 0, 2);
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
