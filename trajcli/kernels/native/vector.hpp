// Vectors of doubles for one instruction set. Included by level.hpp, first.

namespace LEVEL {

using namespace trajcli;

constexpr Int W = WIDTH;
typedef double Vec __attribute__((vector_size(WIDTH * 8)));
typedef float NarrowVec __attribute__((vector_size(WIDTH * 4)));
typedef long long Mask __attribute__((vector_size(WIDTH * 8)));

inline Vec load(const double* from) {
    Vec v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

inline Vec widen(NarrowVec v) {
#if defined(TRAJCLI_AVX512)  // compilers convert halves
    return (Vec)_mm512_maskz_cvtps_pd(-1, (__m256)v);
#else
    return __builtin_convertvector(v, Vec);
#endif
}

inline NarrowVec narrow(Vec v) {
#if defined(TRAJCLI_AVX512)
    return (NarrowVec)_mm512_maskz_cvtpd_ps(-1, (__m512d)v);
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

constexpr Int LINE = 64;

// Bytes written past the caches, but for the ends of the first and the last line.
inline void stream(char* to, const char* from, Int bytes) {
    Int ahead = -reinterpret_cast<std::uintptr_t>(to) & (LINE - 1);
    ahead = ahead < bytes ? ahead : bytes;
    std::memcpy(to, from, ahead);
    Int done = ahead;
    for (; done + LINE <= bytes; done += LINE) {
#if defined(TRAJCLI_AVX512)
        _mm512_stream_si512((__m512i*)(to + done), _mm512_loadu_si512(from + done));
#elif defined(TRAJCLI_AVX2)
        for (int i = 0; i < LINE; i += 32)
            _mm256_stream_si256((__m256i*)(to + done + i),
                                _mm256_loadu_si256((const __m256i*)(from + done + i)));
#elif defined(__SSE2__)
        for (int i = 0; i < LINE; i += 16)
            _mm_stream_si128((__m128i*)(to + done + i),
                             _mm_loadu_si128((const __m128i*)(from + done + i)));
#else
        std::memcpy(to + done, from + done, LINE);
#endif
    }
    std::memcpy(to + done, from + done, bytes - done);
}

inline void end_stream() {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

}  // namespace LEVEL
