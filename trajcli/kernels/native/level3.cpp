// The kernels for x86-64-v3. Compiled for it alone, called only where it is there.
#if defined(__x86_64__)
#include "job.hpp"
#pragma GCC push_options
#pragma GCC target("avx2")
#define LEVEL level3
#define WIDTH 4
#include "level.hpp"
#pragma GCC pop_options
#endif
