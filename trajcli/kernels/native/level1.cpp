// The kernels for any machine: what its compiler takes for granted.
#include <algorithm>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#endif
#include <new>
#include <utility>
#include "job.hpp"
#define LEVEL level1
#define WIDTH 2
#include "vector.hpp"
#include "tile.hpp"
#include "cascade.hpp"
#include "band.hpp"
#include "level.hpp"
