// The functions that Python calls: they split a job over threads, which run the kernels of its level. They check nothing and keep no state between calls.

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <exception>
#include <thread>
#include <vector>

#include <unistd.h>

#include "job.hpp"

namespace level1 { trajcli::Engine run_part; }
namespace level3 { trajcli::Engine run_part; }
namespace level4 { trajcli::Engine run_part; }

// The highest level that this machine has: 1 any machine's, 3 x86-64-v3, 4 x86-64-v4.
#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int trajcli_level() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
    return v4 ? 4 : v3 ? 3 : 1;
#else
    return 1;
#endif
}

namespace trajcli {
namespace {

constexpr Int SMALL = 1 << 20;  // elements below which starting threads costs more than it gains

Engine* engine(Int level) {
#if defined(__x86_64__)
    if (level >= 3) return level >= 4 ? level4::run_part : level3::run_part;
#endif
    return level1::run_part;
}

struct Half {
    std::uint16_t bits;

    explicit operator double() const {
        const int exponent = bits >> 10 & 31, fraction = bits & 1023;
        double value = std::ldexp(exponent ? fraction + 1024 : fraction, std::max(exponent, 1) - 25);
        if (exponent == 31) value = fraction ? NAN : INFINITY;
        return bits >> 15 ? -value : value;
    }
};

template <class T>
void convert_all(const Array& array, const char* from, Int count, double* to) {
    const bool swapped = array.type & 16;
    for (Int i = 0; i < count; i++, from += array.stride[2]) {
        char bytes[sizeof(T)];
        std::memcpy(bytes, from, sizeof bytes);
        if (swapped) std::reverse(bytes, bytes + sizeof bytes);
        T value;
        std::memcpy(&value, bytes, sizeof value);
        to[i] = static_cast<double>(value);
    }
}

}  // namespace

void convert(const Array& array, const char* from, Int count, double* to) {
    static constexpr decltype(&convert_all<float>) types[] = {
        convert_all<float>,         convert_all<double>,       convert_all<Half>,
        convert_all<std::int8_t>,   convert_all<std::uint8_t>, convert_all<std::int16_t>,
        convert_all<std::uint16_t>, convert_all<std::int32_t>, convert_all<std::uint32_t>,
        convert_all<std::int64_t>,  convert_all<std::uint64_t>,
    };
    types[array.type & 15](array, from, count, to);
}

int write_file(Int file, Int offset, const char* from, Int bytes) {
    while (bytes > 0) {
        const auto size = static_cast<std::size_t>(bytes);
        const ssize_t done = pwrite(static_cast<int>(file), from, size, offset);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return errno;
        if (done == 0) return EIO;
        from += done, offset += done, bytes -= done;
    }
    return 0;
}

}  // namespace trajcli

using namespace trajcli;

// The size of a job in bytes: Python compares it with its own.
EXPORT std::int64_t trajcli_bytes() { return sizeof(Job); }

// Returns 0, an errno or NOT_FINITE.
EXPORT std::int64_t trajcli_run(Job& job) {
    if (job.batch == 0 || job.dofs == 0 || (!job.adjoint && job.rows == 0)) return 0;
    Run run{job};
    const Int work = job.batch * job.rows * job.dofs * (job.smoother ? 64 : 1);
    const Int count = work < SMALL ? 1 : job.threads;
    auto part = [&](Int k) {
        try {
            engine(job.level)(run, k, count);
        } catch (const std::exception&) {
            run.status = ENOMEM;
        }
    };
    std::vector<std::thread> others;
    Int started = 1;
    try {
        for (; started < count; started++) others.emplace_back(part, started);
    } catch (const std::exception&) {
        // no more threads: the rest is done here
    }
    part(0);
    for (Int k = started; k < count; k++) part(k);
    for (std::thread& other : others) other.join();
    job.faults = run.faults;
    return run.status;
}
