// The kernels for x86-64-v4: AVX-512. Compiled for it alone, called only where it is there.
#if defined(__x86_64__)
#include <algorithm>
#include <cfenv>
#include <cstdint>
#include <cstring>
#include <immintrin.h>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma,prefer-vector-width=512")
#define TRAJCLI_LEVEL level4
#define TRAJCLI_WIDTH 8
#define TRAJCLI_AVX512
#include "api.hpp"
#include "vector.hpp"
#include "stage.hpp"
#include "cascade.hpp"
#include "interleave.hpp"
#include "uniform.hpp"
#include "uniform_run.hpp"
#include "evenly.hpp"
#include "slide.hpp"
#include "band_groups.hpp"
#include "band.hpp"
#include "band_adjoint.hpp"
#pragma GCC pop_options
#endif
