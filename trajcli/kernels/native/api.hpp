// What the kernels are asked to do: plain buffers, owned by the caller. Sizes and strides count
// elements. Types: 0 is float, 1 is double.

#pragma once

#include <cstdint>

extern "C" {

struct trajcli_cascade {
    std::int64_t batch, horizon, dofs;
    const void* actions;            // [B, H, D], rows and dofs contiguous
    std::int64_t actions_stride;    // from trajectory to trajectory
    std::int64_t actions_type;
    const double* state_hi[4];      // [B, D] each
    const double* state_lo[4];
    std::int64_t state_stride;      // 0: shared by all trajectories
    const double* dt;               // [b, h]
    std::int64_t dt_trajectory_stride, dt_step_stride;
    std::int64_t order, scheme;     // scheme: 0 euler, 1 zoh, 2 foh
    std::int64_t start_row;         // 1: the state is written as the first row
    void* out[4];                   // [B, T, D] or null
    std::int64_t out_stride, out_type;
    double* end_hi[4];              // [B, D] each, or null: the state after the last step
    double* end_lo[4];
};

struct trajcli_cascade_adjoint {
    std::int64_t batch, horizon, dofs;
    const void* upstream[4];        // [B, H, D] or null
    std::int64_t upstream_stride, upstream_type;
    const double* end[4];           // [B, D] or null: gradients of the state after the last step
    const double* dt;
    std::int64_t dt_trajectory_stride, dt_step_stride;
    std::int64_t order, scheme;
    void* sources[4];               // [B, H, D] or null: gradients of the sources
    std::int64_t sources_stride, sources_type;
    double* state[4];               // [B, D]: gradients of the state before the first step
};

struct trajcli_band {
    std::int64_t batch, horizon, dofs;
    const void* actions;            // [B, H, D], rows and dofs contiguous
    std::int64_t actions_stride, actions_type;
    const double* head_hi;          // [B, head, D]
    const double* head_lo;          // or null: zero
    std::int64_t head, head_stride, head_row;  // points, from trajectory to trajectory, from row to row
    const double* tail_hi;          // [B, tail, D]
    const double* tail_lo;
    std::int64_t tail, tail_stride, tail_row;
    const double* table_hi;         // [b, P, 4, width]
    const double* table_lo;
    std::int64_t table_stride;      // 0: one table for all trajectories
    std::int64_t width, rows;
    const double* unit;             // [P, 4, width]: order m's weights on m-th differences, or null
    std::int64_t unit_whole;        // 1: they are small whole numbers
    const double* scale;            // [b, 4]: what they are multiplied by
    std::int64_t scale_stride;      // 0: the same for all trajectories
    const std::int64_t* first;      // [rows], never going down
    const std::int64_t* phase;      // [rows]
    const double* start[4];         // [B, D] or all null: written as the first row
    std::int64_t start_stride;
    void* out[4];                   // [B, T, D] or null
    std::int64_t out_stride, out_type;
};

struct trajcli_band_adjoint {
    std::int64_t batch, horizon, dofs;
    const void* upstream[4];        // [B, rows, D] or null
    std::int64_t upstream_stride, upstream_type;
    std::int64_t head, tail;
    const double* table;            // [b, P, 4, width]
    std::int64_t table_stride;
    std::int64_t width, rows;
    const std::int64_t* first;
    const std::int64_t* phase;
    void* actions;                  // [B, H, D]: gradients
    std::int64_t actions_stride, actions_type;
    double* head_grad;              // [B, head, D]
    double* tail_grad;              // [B, tail, D]
};

}  // extern "C"
