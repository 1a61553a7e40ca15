"""The transpose of the band over evenly spaced points in Triton: sums slide along the rows.

As in sliding.py a thread owns a column. It holds what the points of a window are asked for so far;
every row adds to all of them, in the order of the rows, after which the first of them is complete.
"""

from __future__ import annotations

import triton
import triton.language as tl

from trajcli.kernels.triton_ops.arithmetic import narrowed, rows_of, tile_of, widened
from trajcli.kernels.triton_ops.sliding import factors
from trajcli.kernels.triton_ops.steps import lanes, offsets


@triton.constexpr_function
def most_of(one: int, other: int) -> int:
    """The larger of two numbers."""
    return max(one, other)


@triton.jit
def moved(values, value):
    """The window one further: its first value is dropped, ``value`` joins."""
    window = ()
    for i in tl.static_range(1, len(values)):
        window = window + (values[i],)
    return window + (value,)


@triton.jit
def with_row(sums, upstream, rows, factor, WEIGHTS: tl.constexpr, POINTS: tl.constexpr):
    """What the points of a window are asked for, with what a row asks: a number for each order in
    ``upstream``."""
    scaled = ()
    for m in tl.static_range(4):
        if upstream[m] is None:
            scaled = scaled + ((),)
        else:
            scaled = scaled + (widened(rows[m]) * factor[m],)
    found = ()
    for i in tl.static_range(POINTS):
        total = sums[i]
        for m in tl.static_range(4):
            if upstream[m] is not None:
                if WEIGHTS[m * POINTS + i] != 0:
                    weight = tl.full(total.shape, WEIGHTS[m * POINTS + i], tl.float64)
                    total = tl.fma(weight, scaled[m], total)
        found = found + (total,)
    return found


@triton.jit
def asked_by(upstream, at, mask):
    """What a row of outputs is asked for: four numbers, () where it is not."""
    asked = ()
    for m in tl.static_range(4):
        if upstream[m] is None:
            asked = asked + ((),)
        else:
            asked = asked + (tl.load(upstream[m] + at, mask=mask, other=0.0),)
    return asked


@triton.jit
def with_weighed(totals, asked, places, NUMBERS: tl.constexpr, POINT: tl.constexpr):
    """Four totals with what a state's parts are asked for by one of its points, by NUMBERS of
    formula.points."""
    found = ()
    for m in tl.static_range(4):
        if places[m] is not None:
            weight = tl.full(asked.shape, NUMBERS[8 + 4 * POINT + m], tl.float64)
            found = found + (tl.fma(weight, asked, totals[m]),)
        else:
            found = found + (totals[m],)
    return found


@triton.jit
def with_weighed_at(totals, asked, places, NUMBERS: tl.constexpr, at, COUNT: tl.constexpr):
    """The same by point ``at``, a number, of COUNT."""
    found = ()
    for m in tl.static_range(4):
        if places[m] is not None:
            weight = tl.zeros(asked.shape, tl.float64)
            for k in tl.static_range(COUNT):
                weight = tl.where(at == k, NUMBERS[8 + 4 * k + m], weight)
            found = found + (tl.fma(weight, asked, totals[m]),)
        else:
            found = found + (totals[m],)
    return found


@triton.jit(do_not_specialize=["batch", "horizon", "rows"])
def slide_back(
    upstream,
    upstream_stride,
    spacing,
    spacing_stride,
    grad,
    grad_stride,
    of_state,
    of_goal,
    batch,
    horizon,
    rows,
    pieces,
    piece_rows,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
    HEAD_POINTS: tl.constexpr,
    TAIL_POINTS: tl.constexpr,
    OFFSET: tl.constexpr,
    WEIGHTS: tl.constexpr,
    LAST_WEIGHTS: tl.constexpr,
    COMMON: tl.constexpr,
    POINTS: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    WIDE: tl.constexpr,
):
    """The transpose of :func:`slide` at fixed weights, which are those of points: the gradient of
    the actions, and those of the scaled parts of state and goal [B, D] (None where there is none),
    whose points are HEAD and TAIL; without TAIL_POINTS the tail is the last action, held.

    A row adds to the points of its window; then its first is complete. LAST_WEIGHTS: those of the
    last row, where it has the window of the row before; else None.
    """
    BEFORE: tl.constexpr = HEAD - OFFSET
    trajectory, piece, column, alive = lanes(batch, pieces, N, DP, D)
    row_0 = piece * piece_rows  # of the actions: the first of its window is row_0 + BEFORE
    factor = factors(spacing, spacing_stride, trajectory, batch, COMMON)
    zero = tl.zeros([N, DP], tl.float64)
    alone = rows
    if LAST_WEIGHTS is not None:
        alone = rows - 1
    begin = trajectory * upstream_stride + column
    final = begin + (rows - 1).to(tl.int64) * D
    sums = ()
    for _ in tl.static_range(POINTS):
        sums = sums + (zero,)
    begun = (zero, zero, zero, zero)
    for back in tl.static_range(most_of(BEFORE, POINTS - 1), 0, -1):
        row = row_0 + (BEFORE - back)
        asked = asked_by(upstream, begin + row * D, alive & (row >= 0) & (row < alone))
        sums = with_row(sums, upstream, asked, factor, WEIGHTS, POINTS)
        if LAST_WEIGHTS is not None:
            asked = asked_by(upstream, final, alive & (row == rows - 2))
            sums = with_row(sums, upstream, asked, factor, LAST_WEIGHTS, POINTS)
        if back <= HEAD:
            begun = with_weighed(begun, sums[0], of_state, HEAD_POINTS, HEAD - back)
        sums = moved(sums, zero)
    for m in tl.static_range(4):
        if of_state[m] is not None:
            to = of_state[m] + trajectory * D + column
            tl.store(to, begun[m] * HEAD_POINTS[2 * m], mask=alive & (piece == 0))
    flat = tl.arange(0, K * DP)[None, :]
    flat_row = flat // DP
    there = (trajectory < batch) & (flat % DP + tl.program_id(1) * DP < D)
    from_begin, from_place = offsets(
        upstream_stride, trajectory, row_0, pieces, piece_rows, N, K, D, DP, WIDE
    )
    to_begin, to_place = offsets(
        grad_stride, trajectory, row_0, pieces, piece_rows, N, K, D, DP, WIDE
    )
    from_begin += BEFORE * D
    last_piece = piece == pieces - 1  # which goes on behind the last action
    last_0 = (pieces - 1) * piece_rows
    lane = tl.program_id(0).to(tl.int64) * N % pieces
    span = tl.where(lane + N >= pieces, piece_rows + TAIL, piece_rows)
    held = rows - 2 - BEFORE  # where the last row's window begins, if it is that of the row before
    held = tl.where(held >= last_0, held - last_0, held % tl.maximum(piece_rows, 1))
    ended = (zero, zero, zero, zero)
    for first in range(0, span, K):
        inside = there & (row_0 + first + BEFORE + flat_row < alone)
        tiles = ()
        for m in tl.static_range(4):
            if upstream[m] is None:
                tiles = tiles + ((),)
            else:
                tile = tl.load(upstream[m] + from_begin + from_place, mask=inside, other=0.0)
                tiles = tiles + (rows_of(tl.reshape(tile, [N, K, DP]), K),)
        given = ()
        for i in tl.static_range(K):
            asked = ()
            for m in tl.static_range(4):
                if upstream[m] is None:
                    asked = asked + ((),)
                else:
                    asked = asked + (tiles[m][i],)
            sums = with_row(sums, upstream, asked, factor, WEIGHTS, POINTS)
            if LAST_WEIGHTS is not None:
                if first + i == held:
                    row = row_0 + (first + i + BEFORE)
                    asked = asked_by(upstream, final, alive & (row == rows - 2))
                    sums = with_row(sums, upstream, asked, factor, LAST_WEIGHTS, POINTS)
            given = given + (narrowed(sums[0], grad.dtype.element_ty),)
            if TAIL > 0:
                after = last_0 + first + i - horizon
                if TAIL_POINTS is None:
                    if after >= -1:
                        ended = (ended[0] + tl.where(last_piece, sums[0], 0.0),) + ended[1:]
                else:
                    if after >= 0:
                        asked = tl.where(last_piece, sums[0], 0.0)
                        ended = with_weighed_at(ended, asked, of_goal, TAIL_POINTS, after, TAIL)
            sums = moved(sums, zero)
        kept = there & (first + flat_row < piece_rows)
        if TAIL > 0 and TAIL_POINTS is None:
            kept = kept & (row_0 + first + flat_row < horizon - 1)
        else:
            kept = kept & (row_0 + first + flat_row < horizon)
        tl.store(grad + to_begin + to_place, tile_of(given, K), mask=kept)
        from_begin += K * D
        to_begin += K * D
    if TAIL > 0:
        if TAIL_POINTS is None:
            to = grad + trajectory * grad_stride + (horizon - 1).to(tl.int64) * D + column
            tl.store(to, narrowed(ended[0], grad.dtype.element_ty), mask=alive & last_piece)
        else:
            for m in tl.static_range(4):
                if of_goal[m] is not None:
                    to = of_goal[m] + trajectory * D + column
                    tl.store(to, ended[m] * TAIL_POINTS[2 * m], mask=alive & last_piece)
