// The kernels for any machine: what its compiler takes for granted.
#include "job.hpp"
#define LEVEL level1
#define WIDTH 2
#include "level.hpp"
