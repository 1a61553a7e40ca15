// The kernels for x86-64-v3: AVX2 and FMA. Compiled for it alone, called only where it is there.
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
#pragma GCC target("avx2,fma")
#define TRAJCLI_LEVEL level3
#define TRAJCLI_WIDTH 4
#define TRAJCLI_AVX2
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
