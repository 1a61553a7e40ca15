// The kernels for any machine, with the instructions that its compiler may always use.
#include "job.hpp"
#define LEVEL level1
#define WIDTH 2
#include "level.hpp"
