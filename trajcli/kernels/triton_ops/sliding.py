"""The band over evenly spaced points in Triton: windows slide along the rows in registers.

A thread owns a column (a dof of a trajectory) and passes along its rows, K at a time, as in
steps.py: every point, or row of the transpose, is loaded and converted once. The weights are
whole numbers times a factor for each order (see differences.py), known when the kernel is
compiled: those of order m weigh m-th differences, which are exact for nearly all float32 points.
"""

from __future__ import annotations

import triton
import triton.language as tl

from trajcli.kernels.triton_ops.arithmetic import (
    narrowed,
    rounded,
    rows_of,
    tile_of,
    two_sum,
    widened,
)
from trajcli.kernels.triton_ops.points import point, scaled_ends, start_row
from trajcli.kernels.triton_ops.steps import lanes, offsets
from trajcli.kernels.triton_ops.windows import band_rows


@triton.constexpr_function
def count_of(points: int, order: int) -> int:
    """How many differences of an order so many points have; at least one."""
    return max(points - order, 1)


@triton.constexpr_function
def place_of(points: int, order: int) -> int:
    """Where the differences of an order begin in a window."""
    return sum(max(points - m, 1) for m in range(order))


@triton.jit
def factors(spacing, stride, trajectory, batch, COMMON: tl.constexpr):
    """1 / (COMMON[m] · spacingᵐ) of each lane, m = 0..3, [N, 1]."""
    inside = trajectory < batch
    hi = tl.load(spacing[0] + trajectory * stride, mask=inside, other=1.0)
    lo = tl.load(spacing[1] + trajectory * stride, mask=inside, other=0.0)
    found = ()
    power = hi * 0.0 + 1.0
    for m in tl.static_range(4):
        found = found + ((1.0 - m * (lo / hi)) / (COMMON[m] * power),)
        power = power * hi
    return found


@triton.jit
def weighed(values, WEIGHTS: tl.constexpr, FIRST: tl.constexpr):
    """Σ WEIGHTS[FIRST + i] · values[i] in order, without those of weight zero."""
    total = tl.zeros_like(values[0])
    for i in tl.static_range(len(values)):
        if WEIGHTS[FIRST + i] != 0:
            weight = tl.full(values[0].shape, WEIGHTS[FIRST + i], tl.float64)
            total = tl.fma(weight, values[i], total)
    return total


@triton.jit
def with_point(window, point, POINTS: tl.constexpr):
    """The window of points and of their first, second and third differences one point further.

    A flat tuple: POINTS points, POINTS − 1 first differences and so on. An order for which there
    are too few points has one value that counts for nothing.
    """
    found = ()
    value = point
    for m in tl.static_range(4):
        for i in tl.static_range(1, count_of(POINTS, m)):
            found = found + (window[place_of(POINTS, m) + i],)
        found = found + (value,)
        value = value - window[place_of(POINTS, m + 1) - 1]
    return found


@triton.jit
def with_pair(window, lows, hi, lo, POINTS: tl.constexpr):
    """The same of pairs: what the differences of high parts missed is in ``lows``."""
    found = ()
    found_lows = ()
    for m in tl.static_range(4):
        for i in tl.static_range(1, count_of(POINTS, m)):
            found = found + (window[place_of(POINTS, m) + i],)
            found_lows = found_lows + (lows[place_of(POINTS, m) + i],)
        found = found + (hi,)
        found_lows = found_lows + (lo,)
        hi, missed = two_sum(hi, -window[place_of(POINTS, m + 1) - 1])
        lo = missed + (lo - lows[place_of(POINTS, m + 1) - 1])
    return found, found_lows


@triton.jit
def result(window, WEIGHTS: tl.constexpr, POINTS: tl.constexpr, M: tl.constexpr):
    """The weighted sum of the differences of order M in a window."""
    values = ()
    for j in tl.static_range(count_of(POINTS, M)):
        values = values + (window[place_of(POINTS, M) + j],)
    return weighed(values, WEIGHTS, M * POINTS)


@triton.jit(
    do_not_specialize=[
        "batch",
        "horizon",
        "rows",
        "before",
        "count",
        "skipped",
        "alike",
        "last",
        "states",
        "goals",
    ]
)
def slide(
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
    spacing,
    spacing_stride,
    table,
    table_stride,
    out,
    out_stride,
    batch,
    horizon,
    rows,
    before,
    count,
    skipped,
    alike,
    last,
    pieces,
    piece_rows,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
    HEAD_POINTS: tl.constexpr,
    TAIL_POINTS: tl.constexpr,
    OFFSET: tl.constexpr,
    SHIFT: tl.constexpr,
    START: tl.constexpr,
    SHARED: tl.constexpr,
    WEIGHTS: tl.constexpr,
    COMMON: tl.constexpr,
    POINTS: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    WIDE: tl.constexpr,
):
    """All ``rows`` rows of outputs: ``count`` of them, after ``before`` others, in columns, their
    windows one after the other from action ``skipped`` on. WEIGHTS: POINTS of each order, of
    differences.

    Where the last action is held (TAIL_POINTS is None), it is so in the columns. Windows that hold
    points of a state slide in pairs. What is left, rows from ``alike`` on or, with a SHIFT, all
    that are held at an end, has weights of its own in ``table``.
    """
    HELD: tl.constexpr = TAIL > 0 and TAIL_POINTS is None
    trajectory, piece, column, alive = lanes(batch, pieces, N, DP, D)
    row_0 = piece * piece_rows
    factor = factors(spacing, spacing_stride, trajectory, batch, COMMON)
    window = ()
    for m in tl.static_range(4):
        for _ in tl.static_range(count_of(POINTS, m)):
            window = window + (tl.zeros([N, DP], tl.float64),)
    own = actions + trajectory * actions_stride + column
    if HELD:
        held = tl.load(own + (horizon - 1).to(tl.int64) * D, mask=alive, other=0.0)
    for i in tl.static_range(POINTS - 1):
        at = row_0 + skipped + i
        given = tl.load(own + at * D, mask=alive & (at < horizon), other=0.0)
        if HELD:
            given = tl.where(at < horizon, given, held)
        window = with_point(window, widened(given), POINTS)
    flat = tl.arange(0, K * DP)[None, :]
    flat_row = flat // DP
    there = (trajectory < batch) & (flat % DP + tl.program_id(1) * DP < D)
    from_begin, from_place = offsets(
        actions_stride, trajectory, row_0, pieces, piece_rows, N, K, D, DP, WIDE
    )
    to_begin, to_place = offsets(
        out_stride, trajectory, row_0, pieces, piece_rows, N, K, D, DP, WIDE
    )
    from_begin += (skipped + POINTS - 1) * D
    to_begin += before * D
    known = horizon - (skipped + POINTS - 1)  # rows whose last point is an action of its own
    last_0 = (pieces - 1) * piece_rows
    for first in range(0, tl.minimum(piece_rows, count), K):
        inside = there & (row_0 + first + flat_row < count)
        there_are = inside & (row_0 + first + flat_row < known)
        tile = tl.load(actions + from_begin + from_place, mask=there_are, other=0.0)
        points = rows_of(tl.reshape(tile, [N, K, DP]), K)
        if HELD:
            if last_0 + first + K > known:
                more = ()
                for i in tl.static_range(K):
                    more = more + (tl.where(row_0 + (first + i) < known, points[i], held),)
                points = more
        columns = ((), (), (), ())
        for i in tl.static_range(K):
            window = with_point(window, widened(points[i]), POINTS)
            found = ()
            for m in tl.static_range(4):
                if out[m] is None:
                    found = found + ((),)
                else:
                    value = result(window, WEIGHTS, POINTS, m) * factor[m]
                    found = found + (columns[m] + (narrowed(value, out[m].dtype.element_ty),),)
            columns = found
        for m in tl.static_range(4):
            if out[m] is not None:
                tl.store(out[m] + to_begin + to_place, tile_of(columns[m], K), mask=inside)
        from_begin += K * D
        to_begin += K * D
    lane = tl.program_id(0).to(tl.int64) * N % pieces
    if (lane == 0) | (lane + N > pieces):  # there is a first piece among the lanes
        first_piece = alive & (piece == 0)
        begin, end = scaled_ends(
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
            column,
            first_piece,
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
                column,
                first_piece,
                batch,
                D,
            )
        others = rows - count
        if SHIFT == 0:
            others = rows - START - alike
            lows = ()
            for _ in tl.static_range(place_of(POINTS, 4)):
                lows = lows + (tl.zeros([N, DP], tl.float64),)
            early = before - START  # rows without windows of actions alone, and later ones
            late = tl.maximum(alike - early - count, 0)
            early_points = tl.where(early > 0, early + (POINTS - 1), 0)
            late_points = tl.where(late > 0, late + (POINTS - 1), 0)
            for number in range(early_points + late_points):
                is_late = number >= early_points
                row = number + tl.where(is_late, early + count - early_points, 0) - (POINTS - 1)
                t = row + tl.zeros([1, 1], tl.int64)
                hi, lo = point(
                    t + (POINTS - 1 + OFFSET),
                    column,
                    trajectory,
                    first_piece,
                    actions,
                    actions_stride,
                    horizon,
                    state,
                    begin,
                    goal,
                    end,
                    HEAD,
                    TAIL,
                    HEAD_POINTS,
                    TAIL_POINTS,
                    True,
                    D,
                )
                window, lows = with_pair(window, lows, hi, lo, POINTS)
                if row >= tl.where(is_late, early + count, 0):  # the window is full
                    to = trajectory * out_stride + (t + START) * D + column
                    for m in tl.static_range(4):
                        if out[m] is not None:
                            hi = result(window, WEIGHTS, POINTS, m)
                            lo = result(lows, WEIGHTS, POINTS, m)
                            value = narrowed(rounded(hi, lo) * factor[m], out[m].dtype.element_ty)
                            tl.store(out[m] + to, value, mask=first_piece)
        for number in range(others):
            row = number + tl.where(number >= before, count, 0)
            if SHIFT == 0:
                row = number + START + alike
            band_rows(
                row + tl.zeros([1, 1], tl.int64),
                column,
                trajectory,
                first_piece,
                actions,
                actions_stride,
                state,
                begin,
                goal,
                end,
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
                1,
                SHIFT,
                False,
                SHARED,
                False,
                True,
                START,
                POINTS,
                D,
            )
