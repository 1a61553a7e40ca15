// The functions Python calls: pick the instruction set of this machine, split trajectories over
// threads. Nothing is checked here and nothing is kept.

#include <cstring>
#include <exception>
#include <functional>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "api.hpp"

#define TRAJCLI_DECLARE(level)                                                             \
    namespace level {                                                                      \
    void cascade(const trajcli_cascade&, bool, std::int64_t, std::int64_t);                \
    void cascade_adjoint(const trajcli_cascade_adjoint&, bool, std::int64_t, std::int64_t); \
    void band(const trajcli_band&, bool, std::int64_t, std::int64_t);                      \
    void band_adjoint(const trajcli_band_adjoint&, bool, std::int64_t, std::int64_t);      \
    }
TRAJCLI_DECLARE(level1)
TRAJCLI_DECLARE(level3)
TRAJCLI_DECLARE(level4)

namespace {

enum Level { ANY = 1, V3 = 3, V4 = 4 };

Level highest() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
        return V4;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return V3;
#endif
    return ANY;
}

template <class Job>
using Kernel = void (*)(const Job&, bool, std::int64_t, std::int64_t);

#if defined(__x86_64__)
#define TRAJCLI_PICK(level, name) \
    (level >= V4 ? level4::name : level >= V3 ? level3::name : level1::name)
#else
#define TRAJCLI_PICK(level, name) level1::name
#endif

// Returns 0, or 1 where there was not enough memory.
template <class Job>
int run(Kernel<Job> kernel, const Job& job, int streaming, std::int64_t threads) {
    if (job.batch == 0) return 0;
    if (threads > job.batch) threads = job.batch;
    if (threads < 1) threads = 1;
    std::vector<int> failed(threads, 0);
    auto part = [&](std::int64_t k) {
        try {
            kernel(job, streaming, job.batch * k / threads, job.batch * (k + 1) / threads);
        } catch (const std::exception&) {
            failed[k] = 1;
        }
    };
    std::vector<std::thread> others;
    std::int64_t started = 1;
    try {
        for (; started < threads; started++) others.emplace_back(part, started);
    } catch (const std::system_error&) {
        // no more threads to be had: do the rest here
    }
    part(0);
    for (std::int64_t k = started; k < threads; k++) part(k);
    for (std::thread& other : others) other.join();
    for (int one : failed)
        if (one) return 1;
    return 0;
}

}  // namespace

extern "C" {

// The highest instruction set of this machine that the kernels have code for.
int trajcli_level() { return highest(); }

// Bytes of what the kernels are asked with: others come from sources of another day.
std::int64_t trajcli_bytes() {
    return sizeof(trajcli_cascade) + sizeof(trajcli_cascade_adjoint) + sizeof(trajcli_band) +
           sizeof(trajcli_band_adjoint);
}

int trajcli_run_cascade(const trajcli_cascade* job, int level, int streaming, std::int64_t threads) {
    (void)level;
    return run<trajcli_cascade>(TRAJCLI_PICK(level, cascade), *job, streaming, threads);
}

int trajcli_run_cascade_adjoint(const trajcli_cascade_adjoint* job, int level, int streaming,
                                std::int64_t threads) {
    (void)level;
    return run<trajcli_cascade_adjoint>(TRAJCLI_PICK(level, cascade_adjoint), *job, streaming,
                                        threads);
}

int trajcli_run_band(const trajcli_band* job, int level, int streaming, std::int64_t threads) {
    (void)level;
    return run<trajcli_band>(TRAJCLI_PICK(level, band), *job, streaming, threads);
}

int trajcli_run_band_adjoint(const trajcli_band_adjoint* job, int level, int streaming,
                             std::int64_t threads) {
    (void)level;
    return run<trajcli_band_adjoint>(TRAJCLI_PICK(level, band_adjoint), *job, streaming, threads);
}

}  // extern "C"
