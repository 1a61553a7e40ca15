// Where rows wait until whole cache lines of them can be written past the cache.
// Included by each level*.cpp after vector.hpp.

#include <cstdint>
#include <vector>

namespace TRAJCLI_LEVEL {

constexpr std::int64_t LINE = 64;

inline void stream_line(void* to, const void* from) {
#if defined(TRAJCLI_AVX512)
    _mm512_stream_si512((__m512i*)to, _mm512_loadu_si512(from));
#elif defined(TRAJCLI_AVX2)
    for (int i = 0; i < 2; i++)
        _mm256_stream_si256((__m256i*)to + i, _mm256_loadu_si256((const __m256i*)from + i));
#elif defined(__SSE2__)
    for (int i = 0; i < 4; i++)
        _mm_stream_si128((__m128i*)to + i, _mm_loadu_si128((const __m128i*)from + i));
#else
    std::memcpy(to, from, LINE);
#endif
}

inline void streams_done() {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

// Whether there is no NaN and no infinity; branch-free, so that it runs in vectors.
inline bool all_finite(const float* values, std::int64_t count) {
    std::uint32_t found = 0;
    for (std::int64_t i = 0; i < count; i++) {
        std::uint32_t bits;
        std::memcpy(&bits, values + i, sizeof bits);
        found |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return !found;
}

inline bool all_finite(const double* values, std::int64_t count) {
    std::uint64_t found = 0;
    for (std::int64_t i = 0; i < count; i++) {
        std::uint64_t bits;
        std::memcpy(&bits, values + i, sizeof bits);
        found |= (bits & 0x7ff0000000000000u) == 0x7ff0000000000000u;
    }
    return !found;
}

// Rows on their way to one output. They are written where ``room`` says, then counted.
template <class Out>
class Stage {
public:
    // capacity: elements that may be added between two calls of ``added``
    Stage(std::int64_t capacity, bool streaming)
        : buffer_(capacity + full + LINE / sizeof(Out) + 2 * W), streaming_(streaming) {}

    // From here on rows go to another place; those that wait are written.
    void aim(Out* to) {
        if (to != to_ + count_) {
            drain(true);
            to_ = to;
        }
    }

    Out* room() { return buffer_.data() + count_; }

    void added(std::int64_t count) {
        count_ += count;
        if (count_ >= full) drain(false);
    }

    // Rows as they are: whole lines go straight from where they lie.
    void pass(const Out* from, std::int64_t count) {
        constexpr std::int64_t line = LINE / sizeof(Out);
        if (streaming_) {
            std::int64_t ahead = -(reinterpret_cast<std::uintptr_t>(to_ + count_) / sizeof(Out)) & (line - 1);
            if (ahead > count) ahead = count;
            std::memcpy(room(), from, ahead * sizeof(Out));
            added(ahead), from += ahead, count -= ahead;
            if (count < line) return keep(from, count);
            drain(false);
            for (; count >= line; count -= line, from += line, to_ += line) stream_line(to_, from);
            keep(from, count);
        } else {
            drain(true);
            std::memcpy(to_, from, count * sizeof(Out));
            to_ += count;
        }
    }

    // Write what waits: whole lines, or all.
    void drain(bool everything) {
        const char* from = reinterpret_cast<const char*>(buffer_.data());
        char* to = reinterpret_cast<char*>(to_);
        std::int64_t bytes = count_ * sizeof(Out), done = 0;
        if (!streaming_) {
            std::memcpy(to, from, bytes);
            done = bytes;
        } else {
            std::int64_t ahead = -reinterpret_cast<std::uintptr_t>(to) & (LINE - 1);
            if (ahead && (everything || bytes >= ahead)) {
                done = ahead < bytes ? ahead : bytes;
                std::memcpy(to, from, done);
            }
            for (; done + LINE <= bytes; done += LINE) stream_line(to + done, from + done);
            if (everything) {
                std::memcpy(to + done, from + done, bytes - done);
                done = bytes;
            }
        }
        std::memmove(buffer_.data(), from + done, bytes - done);
        to_ += done / sizeof(Out);
        count_ -= done / sizeof(Out);
    }

private:
    void keep(const Out* from, std::int64_t count) {
        std::memcpy(room(), from, count * sizeof(Out));
        count_ += count;
    }

    static constexpr std::int64_t full = 512;
    std::vector<Out> buffer_;
    bool streaming_;
    Out* to_ = nullptr;
    std::int64_t count_ = 0;
};

}  // namespace TRAJCLI_LEVEL
