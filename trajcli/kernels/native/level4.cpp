// The kernels for x86-64-v4, called only on machines that have it.
#if defined(__x86_64__)
#include "job.hpp"
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,avx2,prefer-vector-width=512")
#endif
#define LEVEL level4
#define WIDTH 8
#define TRAJCLI_AVX512
#include "level.hpp"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
