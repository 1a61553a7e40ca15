// Vectors of doubles for one instruction set. Included by level.hpp, first.

namespace LEVEL {

using namespace trajcli;

constexpr Int W = WIDTH;
typedef double Vec __attribute__((vector_size(WIDTH * 8)));
typedef float NarrowVec __attribute__((vector_size(WIDTH * 4)));

inline Vec load(const double* from) {
    Vec v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

inline Vec widen(NarrowVec v) {
#if defined(TRAJCLI_AVX512)  // compilers convert halves
    return (Vec)_mm512_maskz_cvtps_pd(0xFF, (__m256)v);
#else
    return __builtin_convertvector(v, Vec);
#endif
}

inline NarrowVec narrow(Vec v) {
#if defined(TRAJCLI_AVX512)
    return (NarrowVec)_mm512_maskz_cvtpd_ps(0xFF, (__m512d)v);
#else
    return __builtin_convertvector(v, NarrowVec);
#endif
}

inline Vec load(const float* from) {
    NarrowVec v;
    std::memcpy(&v, from, sizeof v);
    return widen(v);
}

inline void store(double* to, Vec v) { std::memcpy(to, &v, sizeof v); }

inline void store(float* to, Vec v) {
    const NarrowVec floats = narrow(v);
    std::memcpy(to, &floats, sizeof floats);
}

inline Vec all(double x) { return x - Vec{}; }

// Of every lane a, where it is finite, else b.
inline Vec finite_or(Vec a, Vec b) { return a - a == 0.0 ? a : b; }

}  // namespace LEVEL
