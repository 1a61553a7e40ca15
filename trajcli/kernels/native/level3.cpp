// The kernels for x86-64-v3, called only on machines that have it.
#if defined(__x86_64__)
#include "job.hpp"
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif
#define LEVEL level3
#define WIDTH 4
#define TRAJCLI_AVX2
#include "level.hpp"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
