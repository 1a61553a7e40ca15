// What a mapped file costs when another program cuts it short: touching a page that is gone ends
// a process by SIGBUS. While the guard is up, such a page is replaced by one of zeros and the loss
// is noted, so that the run can end with an error instead.

#include <atomic>
#include <csignal>
#include <cstdint>
#include <sys/mman.h>
#include <unistd.h>

namespace {

std::atomic<bool> lost{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may take no lock");
std::uintptr_t page = 0;
struct sigaction before;

void replace_page(int, siginfo_t* info, void*) {
    char* address = static_cast<char*>(info->si_addr);
    char* at = address - (reinterpret_cast<std::uintptr_t>(address) & (page - 1));
    const bool gone = info->si_code == BUS_ADRERR &&
                      mmap(at, page, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at;
    if (gone)
        lost = true;
    else
        sigaction(SIGBUS, &before, nullptr);  // not ours: it comes again, and is not caught
}

}  // namespace

extern "C" {

// Puts the guard up; returns 0 where that worked.
int trajcli_guard_up() {
    page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    lost = false;
    struct sigaction ours = {};
    ours.sa_sigaction = replace_page;
    ours.sa_flags = SA_SIGINFO;
    sigemptyset(&ours.sa_mask);
    return sigaction(SIGBUS, &ours, &before);
}

// Whether pages were lost since the guard is up.
int trajcli_guard_lost() { return lost; }

void trajcli_guard_down() { sigaction(SIGBUS, &before, nullptr); }

}  // extern "C"
