// The structures of fields.def, and what all levels share.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trajcli {

using Int = std::int64_t;
using Real = double;
using Address = void*;

// The size of ``count`` elements in bytes.
template <class T>
constexpr std::size_t bytes(Int count) { return static_cast<std::size_t>(count) * sizeof(T); }

#define STRUCT(name) struct name {
#define FIELD(type, name) type name;
#define FIELDS(type, name, count) type name[count];
#define END };
#include "fields.def"
#undef STRUCT
#undef FIELD
#undef FIELDS
#undef END

constexpr Int NOT_FINITE = -1;

// One call, seen by all of its threads.
struct Run {
    const Job& job;
    std::atomic<Int> status{0};  // an errno, or NOT_FINITE: then the rest is not computed
    std::atomic<Int> faults{0};
    std::mutex writes;  // a file takes one write at a time, and other threads would wait spinning
};

// Writes all bytes at an offset of a file; returns 0 or an errno.
int write_file(Int file, Int offset, const char* from, Int bytes);

// Computes part k of count of a job, at one level.
using Engine = void(Run& run, Int k, Int count);

// Times or samples one path, at one level.
using CurveEngine = void(const Timings& job, Curve& curve);

}  // namespace trajcli
