// Counts every call by which a process changes files, and at one of them kills the process, fails,
// or does a part of what was asked. Preloaded; a test says what to do by faults_arm(). With
// FAULTS_NO_LOCKS in the environment there are no locks.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum Mode { COUNT, KILL, CUT, FAIL, SHORT };
enum Action { GO_ON, FAILED, PARTIAL };
enum { LONGEST = 1 << 16, DESCRIPTORS = 1 << 16 };

static int mode, error_number, for_good;
static long calls, fault_at;
static volatile int armed;
static char kinds[LONGEST + 1];
static char written[DESCRIPTORS];  // descriptors that are open for writing

void faults_arm(int new_mode, long at, int error, int forever) {
    mode = new_mode, fault_at = at, error_number = error, for_good = forever;
    calls = 0;
    memset(kinds, 0, sizeof kinds);
    armed = 1;
}

const char* faults_disarm(void) {
    armed = 0;
    return kinds;
}

static _Noreturn void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

// Kinds: open, write, truncate, fallocate (a), rename, link, unlink, mkdir (d), rmdir (x), sync,
// map (m), close.
static enum Action step(char kind) {
    if (!armed) return GO_ON;
    const long now = ++calls;
    if (now <= LONGEST) kinds[now - 1] = kind;
    const int takes_space = strchr("owtarldsm", kind) != NULL;
    if (mode == COUNT || !(now == fault_at || (for_good && now > fault_at && takes_space)))
        return GO_ON;
    const int divisible = strchr("wta", kind) != NULL;
    if (mode == KILL || (mode == CUT && !divisible)) die();
    if (mode == FAIL) {
        errno = error_number;
        return FAILED;
    }
    return divisible && (mode == CUT || kind == 'w') ? PARTIAL : GO_ON;
}

static int counted(const char* path) {
    return strncmp(path, "/dev/", 5) && strncmp(path, "/proc/", 6) && strncmp(path, "/sys/", 5);
}

static int marked(int file) { return file >= 0 && file < DESCRIPTORS && written[file]; }

static void mark(int file, int value) {
    if (file >= 0 && file < DESCRIPTORS) written[file] = (char)value;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = dlsym(RTLD_NEXT, #name)

#define OPEN(name, declared, passed)                                                \
    int name declared {                                                             \
        REAL(name);                                                                 \
        va_list more;                                                               \
        va_start(more, flags);                                                      \
        const mode_t bits = va_arg(more, mode_t);                                   \
        va_end(more);                                                               \
        const int writes = (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) && counted(path); \
        if (writes && step('o') == FAILED) return -1;                               \
        const int file = real passed;                                               \
        mark(file, writes);                                                         \
        return file;                                                                \
    }
OPEN(open, (const char* path, int flags, ...), (path, flags, bits))
OPEN(open64, (const char* path, int flags, ...), (path, flags, bits))
OPEN(openat, (int folder, const char* path, int flags, ...), (folder, path, flags, bits))
OPEN(openat64, (int folder, const char* path, int flags, ...), (folder, path, flags, bits))

int close(int file) {
    REAL(close);
    const int fails = marked(file) && step('c') == FAILED, number = errno;
    mark(file, 0);
    const int done = real(file);
    if (fails) errno = number;
    return fails ? -1 : done;
}

// Does all of a call, none where it fails, or half of it; the process ends after a cut.
#define PART(kind, type, name, declared, whole, half)                               \
    type name declared {                                                            \
        REAL(name);                                                                 \
        const enum Action action = marked(file) ? step(kind) : GO_ON;               \
        if (action == FAILED) return -1;                                            \
        if (action == GO_ON) return real whole;                                     \
        const type done = real half;                                                \
        if (mode == CUT) die();                                                     \
        return done;                                                                \
    }
PART('w', ssize_t, write, (int file, const void* from, size_t n), (file, from, n),
     (file, from, (n + 1) / 2))
PART('w', ssize_t, pwrite, (int file, const void* from, size_t n, off_t at), (file, from, n, at),
     (file, from, (n + 1) / 2, at))
PART('w', ssize_t, pwrite64, (int file, const void* from, size_t n, off_t at), (file, from, n, at),
     (file, from, (n + 1) / 2, at))
PART('w', ssize_t, writev, (int file, const struct iovec* parts, int n), (file, parts, n),
     (file, parts, (n + 1) / 2))
PART('t', int, ftruncate, (int file, off_t size), (file, size), (file, size / 2))
PART('t', int, ftruncate64, (int file, off_t size), (file, size), (file, size / 2))

#define ALLOCATE(name)                                                              \
    int name(int file, off_t at, off_t size) {                                      \
        REAL(name);                                                                 \
        switch (step('a')) {                                                        \
            case FAILED: return error_number;                                       \
            case PARTIAL: real(file, at, size / 2); die();                          \
            default: return real(file, at, size);                                   \
        }                                                                           \
    }
ALLOCATE(posix_fallocate)
ALLOCATE(posix_fallocate64)

#define ONE(kind, name, declared, passed)                                           \
    int name declared {                                                             \
        REAL(name);                                                                 \
        return step(kind) == FAILED ? -1 : real passed;                             \
    }
ONE('r', rename, (const char* a, const char* b), (a, b))
ONE('r', renameat, (int f, const char* a, int g, const char* b), (f, a, g, b))
ONE('r', renameat2, (int f, const char* a, int g, const char* b, unsigned w), (f, a, g, b, w))
ONE('l', link, (const char* a, const char* b), (a, b))
ONE('l', linkat, (int f, const char* a, int g, const char* b, int w), (f, a, g, b, w))
ONE('l', symlink, (const char* a, const char* b), (a, b))
ONE('u', unlink, (const char* path), (path))
ONE('u', unlinkat, (int folder, const char* path, int flags), (folder, path, flags))
ONE('x', rmdir, (const char* path), (path))
ONE('d', mkdir, (const char* path, mode_t bits), (path, bits))
ONE('d', mkdirat, (int folder, const char* path, mode_t bits), (folder, path, bits))
ONE('s', fsync, (int file), (file))
ONE('s', fdatasync, (int file), (file))

#define MAP(name)                                                                   \
    void* name(void* where, size_t size, int access, int flags, int file, off_t at) { \
        REAL(name);                                                                 \
        const int writes = marked(file) && (access & PROT_WRITE) && (flags & MAP_SHARED); \
        if (writes && step('m') == FAILED) return MAP_FAILED;                       \
        return real(where, size, access, flags, file, at);                          \
    }
MAP(mmap)
MAP(mmap64)

int flock(int file, int operation) {
    REAL(flock);
    if (getenv("FAULTS_NO_LOCKS")) {
        errno = ENOLCK;
        return -1;
    }
    return real(file, operation);
}
