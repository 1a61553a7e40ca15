// The kernels for any machine: what its compiler takes for granted.
#include <algorithm>
#include <cfenv>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>
#if defined(__SSE2__)
#include <immintrin.h>
#endif
#define TRAJCLI_LEVEL level1
#define TRAJCLI_WIDTH 2
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
