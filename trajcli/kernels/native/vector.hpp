// Vectors of doubles, and numbers carried as unevaluated sums of two of them, for one instruction
// set. Included by each level*.cpp with TRAJCLI_LEVEL (its namespace) and TRAJCLI_WIDTH set, and TRAJCLI_AVX2
// or TRAJCLI_AVX512 where there is that (the compiler's own macros do not follow its pragmas).
//
// Sources: T. J. Dekker, Numer. Math. 18 (1971); D. E. Knuth, TAOCP vol. 2, 4.2.2; T. Ogita,
// S. M. Rump, S. Oishi, "Accurate sum and dot product", SIAM J. Sci. Comput. 26 (2005).

#include <cstring>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // within the compiler's own headers
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace TRAJCLI_LEVEL {

constexpr int W = TRAJCLI_WIDTH;
typedef double Vec __attribute__((vector_size(TRAJCLI_WIDTH * 8)));
typedef float NarrowVec __attribute__((vector_size(TRAJCLI_WIDTH * 4)));
typedef long long Mask __attribute__((vector_size(TRAJCLI_WIDTH * 8)));

inline Vec load(const double* from) {
    Vec v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

inline Vec load(const float* from) {
    NarrowVec v;
    std::memcpy(&v, from, sizeof v);
    return __builtin_convertvector(v, Vec);
}

inline void store(double* to, Vec v) { std::memcpy(to, &v, sizeof v); }

inline void store(float* to, Vec v) {
    NarrowVec narrow = __builtin_convertvector(v, NarrowVec);
    std::memcpy(to, &narrow, sizeof narrow);
}

// The first lanes alone; what lies behind them stays as it is.
template <class Out>
inline void store(Out* to, Vec v, int lanes) {
    if (lanes == W) return store(to, v);
    Out part[W];
    store(part, v);
    for (int l = 0; l < lanes; l++) to[l] = part[l];
}

inline Vec all(double x) { return x - Vec{}; }

// a·b + c, with one rounding where the machine can; only ever used on low-order parts.
inline Vec multiply_add(Vec a, Vec b, Vec c) {
#if defined(TRAJCLI_AVX512)
    return (Vec)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(TRAJCLI_AVX2)
    return (Vec)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#elif defined(__aarch64__)
    Vec r;
    for (int i = 0; i < W; i++) r[i] = __builtin_fma(a[i], b[i], c[i]);
    return r;
#else
    return a * b + c;
#endif
}

// a·b − product without error, where product = a·b rounded.
inline Vec product_error(Vec a, Vec b, Vec product) {
#if defined(TRAJCLI_AVX512) || defined(TRAJCLI_AVX2) || defined(__aarch64__)
    return multiply_add(a, b, -product);
#else
    const double splitter = 134217729.0;  // 2^27 + 1
    Vec scaled_a = splitter * a, scaled_b = splitter * b;
    Vec a_high = scaled_a - (scaled_a - a), b_high = scaled_b - (scaled_b - b);
    Vec a_low = a - a_high, b_low = b - b_high;
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low;
#endif
}

// A vector whose arithmetic sets no floating-point flag; elsewhere the flags say whether results
// are exact (see uniform.hpp). Only AVX-512 has such operations.
#if defined(TRAJCLI_AVX512)
constexpr bool HAS_QUIET = true;
struct Quiet {
    Vec v;
};
#define TRAJCLI_SILENT (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
inline Quiet operator+(Quiet a, Quiet b) {
    return {(Vec)_mm512_add_round_pd((__m512d)a.v, (__m512d)b.v, TRAJCLI_SILENT)};
}
inline Quiet operator-(Quiet a, Quiet b) {
    return {(Vec)_mm512_sub_round_pd((__m512d)a.v, (__m512d)b.v, TRAJCLI_SILENT)};
}
inline Quiet operator*(Quiet a, Quiet b) {
    return {(Vec)_mm512_mul_round_pd((__m512d)a.v, (__m512d)b.v, TRAJCLI_SILENT)};
}
inline Quiet operator-(Quiet a) { return {-a.v}; }
inline Quiet multiply_add(Quiet a, Quiet b, Quiet c) {
    return {(Vec)_mm512_fmadd_round_pd((__m512d)a.v, (__m512d)b.v, (__m512d)c.v, TRAJCLI_SILENT)};
}
inline Quiet product_error(Quiet a, Quiet b, Quiet product) { return multiply_add(a, b, -product); }
inline Quiet quiet(Vec v) { return {v}; }
inline Vec plain(Quiet q) { return q.v; }
inline void store(double* to, Quiet q) { store(to, q.v); }
inline void store(float* to, Quiet q) {
    _mm256_storeu_ps(to, _mm512_cvt_roundpd_ps((__m512d)q.v, TRAJCLI_SILENT));
}
#else
constexpr bool HAS_QUIET = false;
typedef Vec Quiet;
inline Quiet quiet(Vec v) { return v; }
inline Vec plain(Quiet q) { return q; }
#endif

// hi + lo; lo is small beside hi, but not always below half a unit of it.
template <class V>
struct PairOf {
    V hi, lo;
};
using Pair = PairOf<Vec>;
using QuietPair = PairOf<Quiet>;

inline Pair exact(Vec v) { return {v, Vec{}}; }

template <class V>
inline PairOf<V> negative(PairOf<V> a) {
    return {-a.hi, -a.lo};
}

template <class V>
inline PairOf<V> two_sum(V a, V b) {
    V total = a + b;
    V b_part = total - a;
    return {total, (a - (total - b_part)) + (b - b_part)};
}

template <class V>
inline PairOf<V> add(PairOf<V> a, PairOf<V> b) {
    PairOf<V> total = two_sum(a.hi, b.hi);
    // a is what is carried from row to row: one addition between its low parts, not two
    return {total.hi, a.lo + (total.lo + b.lo)};
}

template <class V>
inline PairOf<V> multiply(PairOf<V> a, PairOf<V> b) {
    V product = a.hi * b.hi;
    V error = product_error(a.hi, b.hi, product);
    return {product, multiply_add(a.lo, b.hi, multiply_add(a.hi, b.lo, error))};
}

// By a factor without a low part.
template <class V>
inline PairOf<V> multiply(V a, PairOf<V> b) {
    V product = a * b.hi;
    return {product, multiply_add(a, b.lo, product_error(a, b.hi, product))};
}

// lo made at most half a unit of hi.
template <class V>
inline PairOf<V> settled(PairOf<V> a) {
    V total = a.hi + a.lo;
    return {total, a.lo - (total - a.hi)};
}

inline Pair reciprocal(Vec a) {
    Vec quotient = 1.0 / a;
    Vec back = quotient * a;
    Vec rest = (1.0 - back) - product_error(quotient, a, back);
    return {quotient, rest / a};
}

// hi + lo, rounded once. The low part of an infinity is no number: with CAREFUL it is left out.
template <bool CAREFUL>
inline Vec rounded(Pair a) {
    Vec total = a.hi + a.lo;
    if (!CAREFUL) return total;
    Mask is_number = total == total;
    return is_number ? total : a.hi;
}

inline Pair broadcast(double hi, double lo) { return {all(hi), all(lo)}; }

}  // namespace TRAJCLI_LEVEL
