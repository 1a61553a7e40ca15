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


@triton.jit(do_not_specialize=["batch", "horizon", "rows"])
def slide_back(
    upstream,
    upstream_stride,
    spacing,
    spacing_stride,
    grads,
    actions_stride,
    batch,
    horizon,
    rows,
    pieces,
    piece_rows,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
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
    """The transpose of :func:`slide` at fixed weights, which are those of points: ``grads`` of
    actions, head and tail. A row adds to the points of its window; then its first is complete.

    LAST_WEIGHTS: those of the last row, where it has the window of the row before; else None.
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
    for back in tl.static_range(most_of(BEFORE, POINTS - 1), 0, -1):
        row = row_0 + (BEFORE - back)
        asked = asked_by(upstream, begin + row * D, alive & (row >= 0) & (row < alone))
        sums = with_row(sums, upstream, asked, factor, WEIGHTS, POINTS)
        if LAST_WEIGHTS is not None:
            asked = asked_by(upstream, final, alive & (row == rows - 2))
            sums = with_row(sums, upstream, asked, factor, LAST_WEIGHTS, POINTS)
        if back <= HEAD:
            to = grads[1] + (trajectory * HEAD + HEAD - back) * D + column
            tl.store(to, sums[0], mask=alive & (piece == 0))
        sums = moved(sums, zero)
    for q in tl.static_range(OFFSET):
        tl.store(grads[1] + (trajectory * HEAD + q) * D + column, zero, mask=alive & (piece == 0))
    flat = tl.arange(0, K * DP)[None, :]
    flat_row = flat // DP
    there = (trajectory < batch) & (flat % DP + tl.program_id(1) * DP < D)
    from_begin, from_place = offsets(
        upstream_stride, trajectory, row_0, pieces, piece_rows, N, K, D, DP, WIDE
    )
    to_begin, to_place = offsets(
        actions_stride, trajectory, row_0, pieces, piece_rows, N, K, D, DP, WIDE
    )
    from_begin += BEFORE * D
    last_0 = (pieces - 1) * piece_rows
    for first in range(0, piece_rows, K):
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
                if first + i == (rows - 2 - BEFORE) % piece_rows:
                    row = row_0 + (first + i + BEFORE)
                    asked = asked_by(upstream, final, alive & (row == rows - 2))
                    sums = with_row(sums, upstream, asked, factor, LAST_WEIGHTS, POINTS)
            given = given + (narrowed(sums[0], grads[0].dtype.element_ty),)
            if TAIL > 0:
                if last_0 + first + i >= horizon:
                    after = row_0 + first + i - horizon
                    to = grads[2] + (trajectory * TAIL + after) * D + column
                    tl.store(to, sums[0], mask=alive & (after >= 0) & (after < TAIL))
            sums = moved(sums, zero)
        kept = there & (row_0 + first + flat_row < horizon)
        tl.store(grads[0] + to_begin + to_place, tile_of(given, K), mask=kept)
        from_begin += K * D
        to_begin += K * D
