// The functions that Python calls. They split a job over threads, which run the kernels of its level.
// They check nothing and keep no state between calls.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <thread>
#include <vector>

#include <unistd.h>

#include "job.hpp"

namespace level1 { trajcli::Engine run_part; trajcli::CurveEngine time_curve; }
namespace level3 { trajcli::Engine run_part; trajcli::CurveEngine time_curve; }
namespace level4 { trajcli::Engine run_part; trajcli::CurveEngine time_curve; }

#define EXPORT extern "C" __attribute__((visibility("default")))

// The highest level that this machine has: 1 any machine's, 3 x86-64-v3, 4 x86-64-v4.
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

// The function of a level.
#if defined(__x86_64__)
#define OF_LEVEL(level, name) (level >= 4 ? level4::name : level >= 3 ? level3::name : level1::name)
#else
#define OF_LEVEL(level, name) level1::name
#endif

// Calls ``part`` with 0 .. count - 1, each in a thread; returns 0, or ENOMEM where one had no memory.
template <class Part>
Int share(Int count, Part part) {
    std::atomic<Int> status{0};
    auto careful = [&](Int k) {
        try {
            part(k);
        } catch (const std::exception&) {
            status = ENOMEM;
        }
    };
    std::vector<std::thread> others;
    Int started = 1;
    try {
        for (; started < count; started++) others.emplace_back(careful, started);
    } catch (const std::exception&) {
        // the system has no more threads: this one does the rest
    }
    careful(0);
    for (Int k = started; k < count; k++) careful(k);
    for (std::thread& other : others) other.join();
    return status;
}

}  // namespace

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

// The sizes of the structures: Python compares them with its own.
EXPORT std::int64_t trajcli_bytes() {
    return static_cast<Int>(sizeof(Job) << 32 | sizeof(Curve) << 16 | sizeof(Timings));
}

// Returns 0, an errno or NOT_FINITE.
EXPORT std::int64_t trajcli_run(Job& job) {
    if (job.batch == 0 || job.dofs == 0 || (!job.adjoint && job.rows == 0)) return 0;
    Run run{job};
    const Int work = job.batch * job.rows * job.dofs * (job.smoother ? 64 : 1);
    const Int count = work < SMALL ? 1 : job.threads;
    Engine* engine = OF_LEVEL(job.level, run_part);
    const Int status = share(count, [&](Int k) { engine(run, k, count); });
    job.faults = run.faults;
    return status ? status : run.status.load();
}

// Times or samples paths, in threads that take one after the other; returns 0 or an errno.
EXPORT std::int64_t trajcli_time(Timings& job) {
    Curve* curves = static_cast<Curve*>(job.curves);
    std::atomic<Int> next{0};
    CurveEngine* engine = OF_LEVEL(job.level, time_curve);
    return share(std::min(job.threads, job.count), [&](Int) {
        for (Int k; (k = next++) < job.count;) engine(job, curves[k]);
    });
}
