// The functions Python calls: they pick the instruction set of this machine and split a job over
// threads. Nothing is checked here and nothing is kept.

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#if defined(__linux__)
#include <sched.h>
#endif

#include "job.hpp"

namespace level1 { extern const trajcli::Engine engine; }
namespace level3 { extern const trajcli::Engine engine; }
namespace level4 { extern const trajcli::Engine engine; }

namespace trajcli {
namespace {

constexpr Int SMALL = 1 << 16;  // elements below which starting threads costs more than it gains

// A positive number that the environment names, or 0.
Int from_environment(const char* name) {
    const char* text = std::getenv(name);
    const long value = text ? std::atol(text) : 0;
    return value > 0 ? value : 0;
}

int level() {
    int best = 1;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) best = 3;
    if (best == 3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
        best = 4;
#endif
    const Int limit = from_environment("TRAJCLI_INSTRUCTIONS");
    if (limit == 0 || limit >= best) return best;
    return limit >= 3 ? 3 : 1;
}

const Engine& engine() {
#if defined(__x86_64__)
    const int here = level();
    if (here >= 4) return level4::engine;
    if (here >= 3) return level3::engine;
#endif
    return level1::engine;
}

Int threads() {
    if (const Int limit = from_environment("TRAJCLI_THREADS")) return limit;
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
    const unsigned count = std::thread::hardware_concurrency();
    return count ? count : 1;
}

// Returns 0, an errno or NOT_FINITE.
Int run_job(Job& job) {
    if (job.batch == 0 || job.dofs == 0 || (!job.adjoint && job.rows == 0)) return 0;
    Run run{job};
    const Engine& here = engine();
    const Int items = here.items(job);
    const Int limit = job.batch * job.rows * job.dofs < SMALL ? 1 : threads();
    const Int count = limit < items ? limit : items;
    auto part = [&](Int k) {
        try {
            here.run(run, items * k / count, items * (k + 1) / count);
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

struct Half {
    std::uint16_t bits;

    explicit operator double() const {
        const int exponent = bits >> 10 & 31, fraction = bits & 1023;
        double value = (exponent ? fraction + 1024 : fraction) * 0x1p-24;
        if (exponent > 1) value *= 1 << (exponent - 1);
        if (exponent == 31) value = fraction ? NAN : INFINITY;
        return bits >> 15 ? -value : value;
    }
};

std::atomic<bool> lost{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may take no lock");
std::uintptr_t page = 0;
struct sigaction before;

// Touching a mapped page that is gone, as its file was cut short, ends a process by SIGBUS. This
// puts zeros there and notes the loss, so that the run can end with an error instead.
void replace_page(int, siginfo_t* info, void*) {
    void* at = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(info->si_addr) & -page);
    constexpr int access = PROT_READ | PROT_WRITE, kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (info->si_code == BUS_ADRERR && mmap(at, page, access, kind, -1, 0) == at)
        lost = true;
    else
        sigaction(SIGBUS, &before, nullptr);  // another error: it comes again, and ends the process
}

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

extern "C" {

int trajcli_level() { return level(); }

std::int64_t trajcli_threads() { return threads(); }

// The size of a job in bytes: Python compares it with its own.
std::int64_t trajcli_bytes() { return sizeof(Job); }

std::int64_t trajcli_run(Job* job) { return run_job(*job); }

// Puts the guard of mapped pages up, or takes it down; returns 0 where that worked.
int trajcli_guard(int up) {
    if (!up) return sigaction(SIGBUS, &before, nullptr);
    page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    lost = false;
    struct sigaction action = {};
    action.sa_sigaction = replace_page;
    action.sa_flags = SA_SIGINFO;
    return sigaction(SIGBUS, &action, &before);
}

// Whether pages were lost since the guard is up.
int trajcli_pages_lost() { return lost; }

}  // extern "C"
