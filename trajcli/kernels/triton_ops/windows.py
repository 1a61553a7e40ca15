"""The band in Triton: every output on its own, from the points around it.

A program computes a tile of outputs as they lie in memory, a few trajectories by a run of flat
(row, dof) places. Windows of a tile overlap, so all but the first load of a point come from
cache. Row t's window begins at min(max((t + OFFSET) // STEPS − SHIFT, 0), last). This is for any
weights (a dt for every step, several steps to a knot, one-sided ends, float64) and for the rows
near the ends of those that sliding.py computes.
"""

from __future__ import annotations

import triton
import triton.language as tl

from trajcli.kernels.triton_ops.arithmetic import (
    add,
    narrowed,
    rounded,
    times_pair,
    two_sum,
)
from trajcli.kernels.triton_ops.points import point, scaled_ends, start_row


@triton.jit
def window(t, last, OFFSET: tl.constexpr, STEPS: tl.constexpr, SHIFT: tl.constexpr):
    """Where the window of row t begins."""
    return tl.minimum(tl.maximum((t + OFFSET) // STEPS - SHIFT, 0), last)


@triton.jit
def kind_of(t, first, OFFSET: tl.constexpr, STEPS: tl.constexpr, EACH: tl.constexpr):
    """Which row of the table row t takes: its own (EACH), or by its place in the window."""
    if EACH:
        kind = t
    else:
        kind = t + OFFSET - STEPS * first
    return kind


@triton.jit
def row_number(count, D: tl.constexpr, F: tl.constexpr):
    """Which of ``count`` rows a program has that has only one."""
    return tl.program_id(0) // tl.cdiv(D, F) % count


@triton.jit
def places(
    count,
    runs,
    INNER: tl.constexpr,
    WIDE: tl.constexpr,
    D: tl.constexpr,
    N: tl.constexpr,
    F: tl.constexpr,
):
    """Trajectories [N, 1] int64, number of the row, dof and whether there is such a place.

    INNER: one of ``runs`` of flat places of ``count`` rows, [1, F], in 32 bits unless WIDE. Else
    one of ``count`` rows, a number, [1, F] dofs.
    """
    tile = tl.program_id(0)
    if INNER:
        run = tile % runs
        tile = tile // runs
        if WIDE:
            run = run.to(tl.int64)
        flat = run * F + tl.arange(0, F)[None, :]
        number = flat // D
        d = flat % D
        there = flat < count * D
    else:
        number = row_number(count, D, F) + tl.zeros([1, 1], tl.int64)
        d = tile % tl.cdiv(D, F) * F + tl.arange(0, F)[None, :]
        tile = tile // tl.cdiv(D, F) // count
        there = d < D
    trajectory = tile.to(tl.int64) * N + tl.arange(0, N)[:, None]
    return trajectory, number, d, there


@triton.jit
def weights_at(
    trajectory,
    stride,
    kind,
    batch,
    there,
    SHARED: tl.constexpr,
    ALIKE: tl.constexpr,
    INNER: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Where the weights of rows lie in the table, and whether there are any. SHARED by all
    trajectories and ALIKE for all rows of the tile they are numbers, read once."""
    at = kind * (4 * WIDTH)
    if SHARED:
        if ALIKE or not INNER:
            mask = tl.zeros([1, 1], tl.int32) == 0
            at = at + tl.zeros([1, 1], tl.int64)
        else:
            mask = there
    else:
        at = at + trajectory * stride
        if ALIKE or not INNER:
            mask = trajectory < batch
        else:
            mask = there & (trajectory < batch)
    return at, mask


@triton.jit
def leading_bits(a):
    """a to its 15 leading bits: its products with differences of float32 values, and sums of a
    few of those, are without error."""
    scaled = 274877906945.0 * a  # 2**38 + 1
    return scaled - (scaled - a)


@triton.jit
def weighed(table, at, mask, hi, lo, M: tl.constexpr, WIDTH: tl.constexpr, PAIRED: tl.constexpr):
    """Σ_i weight_i · point_i of order M: the weights lie at table[..] + at + i.

    hi, lo: the points (differences from the middle one for M > 0), of which those with a weight
    of zero count for nothing, NaN or not. PAIRED: in pairs throughout. Else the points are
    float32 or differences of such; weights are taken in two parts, the leading one exact.
    """
    sum_hi = tl.zeros_like(hi[0])
    sum_lo = tl.zeros_like(hi[0])
    for i in tl.static_range(WIDTH):
        if M == 0 or i != WIDTH // 2:
            weight_hi = tl.load(table[0] + at + i, mask=mask, other=0.0)
            weight_lo = tl.load(table[1] + at + i, mask=mask, other=0.0)
            used = weight_hi != 0.0
            if PAIRED:
                term_hi, term_lo = times_pair(weight_hi, weight_lo, hi[i], lo[i])
                term_hi = tl.where(used, term_hi, 0.0)
                term_lo = tl.where(used, term_lo, 0.0)
                sum_hi, sum_lo = add(sum_hi, sum_lo, term_hi, term_lo)
            elif M == 0:
                sum_hi = tl.fma(weight_hi, tl.where(used, hi[i], 0.0), sum_hi)
            else:
                value = tl.where(used, hi[i], 0.0)
                leading = leading_bits(weight_hi)
                sum_hi = tl.fma(leading, value, sum_hi)
                sum_lo = tl.fma((weight_hi - leading) + weight_lo, value, sum_lo)
    return rounded(sum_hi, sum_lo)


@triton.jit
def band_rows(
    row,
    d,
    trajectory,
    mask,
    actions,
    actions_stride,
    state,
    early,
    goal,
    late,
    table,
    table_stride,
    out,
    out_stride,
    batch,
    horizon,
    last,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
    HEAD_POINTS: tl.constexpr,
    TAIL_POINTS: tl.constexpr,
    OFFSET: tl.constexpr,
    STEPS: tl.constexpr,
    SHIFT: tl.constexpr,
    EACH: tl.constexpr,
    SHARED: tl.constexpr,
    INNER: tl.constexpr,
    PAIRED: tl.constexpr,
    START: tl.constexpr,
    WIDTH: tl.constexpr,
    D: tl.constexpr,
):
    """Outputs at places of rows, trajectories and dofs; see :func:`band`."""
    t = row - START
    if INNER:
        first = (t + OFFSET) // STEPS - SHIFT
    else:
        first = window(t, last, OFFSET, STEPS, SHIFT)
    hi = ()
    lo = ()
    for i in tl.static_range(WIDTH):
        windowed = mask & (t >= 0)
        point_hi, point_lo = point(
            first + i,
            d,
            trajectory,
            windowed,
            actions,
            actions_stride,
            horizon,
            state,
            early,
            goal,
            late,
            HEAD,
            TAIL,
            HEAD_POINTS,
            TAIL_POINTS,
            not INNER,
            D,
        )
        hi = hi + (point_hi,)
        lo = lo + (point_lo,)
    apart_hi = ()
    apart_lo = ()
    for i in tl.static_range(WIDTH):
        if PAIRED:
            point_hi, point_lo = two_sum(hi[i], -hi[WIDTH // 2])
            point_lo = point_lo + (lo[i] - lo[WIDTH // 2])
            apart_hi = apart_hi + (point_hi,)
            apart_lo = apart_lo + (point_lo,)
        else:
            apart_hi = apart_hi + (hi[i] - hi[WIDTH // 2],)
            apart_lo = apart_lo + (lo[i],)
    if INNER and STEPS == 1 and not EACH:
        at, weighted = weights_at(
            trajectory, table_stride, SHIFT, batch, mask, SHARED, True, INNER, WIDTH
        )
    else:
        kind = kind_of(t, first, OFFSET, STEPS, EACH)
        if not INNER:
            kind = tl.maximum(kind, 0)  # the start's row has none
        at, weighted = weights_at(
            trajectory, table_stride, kind, batch, mask, SHARED, False, INNER, WIDTH
        )
    for m in tl.static_range(4):
        if out[m] is not None:
            if m == 0:
                value = weighed(table, at, weighted, hi, lo, m, WIDTH, PAIRED)
            else:
                value = weighed(
                    table, at + m * WIDTH, weighted, apart_hi, apart_lo, m, WIDTH, PAIRED
                )
            to = out[m] + trajectory * out_stride + row * D + d
            tl.store(to, narrowed(value, out[m].dtype.element_ty), mask=mask & (t >= 0))


@triton.jit(
    do_not_specialize=[
        "batch",
        "rows",
        "jump_at",
        "jump",
        "last",
        "runs",
        "states",
        "goals",
    ]
)
def band(
    actions,
    actions_stride,
    state,
    state_strides,
    state_rows,
    states,
    goal,
    goal_strides,
    goal_rows,
    goals,
    state_spacing,
    state_spacing_stride,
    table,
    table_stride,
    out,
    out_stride,
    batch,
    horizon,
    row_0,
    rows,
    jump_at,
    jump,
    last,
    runs,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
    HEAD_POINTS: tl.constexpr,
    TAIL_POINTS: tl.constexpr,
    OFFSET: tl.constexpr,
    STEPS: tl.constexpr,
    SHIFT: tl.constexpr,
    EACH: tl.constexpr,
    SHARED: tl.constexpr,
    INNER: tl.constexpr,
    WIDE: tl.constexpr,
    PAIRED: tl.constexpr,
    START: tl.constexpr,
    WIDTH: tl.constexpr,
    D: tl.constexpr,
    N: tl.constexpr,
    F: tl.constexpr,
):
    """``rows`` rows of outputs from row_0 on; from number ``jump_at`` on, ``jump`` rows further.

    SHARED: the table is the same for all trajectories. INNER: windows hold actions only, and
    none is held at an end. START: row 0 is the start.
    """
    trajectory, number, d, there = places(rows, runs, INNER, WIDE, D, N, F)
    mask = there & (trajectory < batch)
    row = row_0 + number + tl.where(number >= jump_at, jump, 0)
    early = ()
    late = ()
    if not INNER:
        early, late = scaled_ends(
            state,
            state_strides,
            state_rows,
            states,
            goal,
            goal_strides,
            goal_rows,
            goals,
            state_spacing,
            state_spacing_stride,
            trajectory,
            d,
            mask,
            batch,
            HEAD,
            TAIL,
            HEAD_POINTS,
            TAIL_POINTS,
        )
        if START:
            start_row(
                out,
                out_stride,
                state,
                state_strides,
                state_rows,
                states,
                trajectory,
                d,
                mask & (row == 0),
                batch,
                D,
            )
    band_rows(
        row,
        d,
        trajectory,
        mask,
        actions,
        actions_stride,
        state,
        early,
        goal,
        late,
        table,
        table_stride,
        out,
        out_stride,
        batch,
        horizon,
        last,
        HEAD,
        TAIL,
        HEAD_POINTS,
        TAIL_POINTS,
        OFFSET,
        STEPS,
        SHIFT,
        EACH,
        SHARED,
        INNER,
        PAIRED,
        START,
        WIDTH,
        D,
    )
