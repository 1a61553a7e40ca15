"""What passes from piece to piece of trajectories that are computed in pieces along H.

A piece changes what is carried into it by a fixed linear map (sums of lower order grow by
powers of the time it spans) and adds its totals, computed from rest. Pieces are gone through in
order, in groups: groups from rest, then the groups, then the pieces of each.
"""

from __future__ import annotations

import triton
import triton.language as tl

from trajcli.kernels.triton_ops.arithmetic import add, settled, times, times_pair, two_product
from trajcli.kernels.triton_ops.steps import steps_at


@triton.jit
def spans(
    dt,
    dt_stride,
    span,
    count,
    horizon,
    pieces,
    piece_rows,
    START_ROW: tl.constexpr,
    SCHEME: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    """The map of each piece under steps of its own: span[0..3] [count], the pairs by which a sum
    grows with the one above it and with the one above that."""
    lane = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)[:, None]
    trajectory = lane // pieces
    row_0 = (lane - trajectory * pieces) * piece_rows - START_ROW
    alive = lane < count
    zero = tl.zeros([N, 1], tl.float64)
    one_hi, one_lo, two_hi, two_lo = zero, zero, zero, zero
    for first in range(0, piece_rows, K):
        steps = steps_at(dt, trajectory, dt_stride, row_0 + first, horizon, alive, N, K)
        for i in tl.static_range(K):
            row = row_0 + first + i
            inside = (row >= 0) & (row < horizon) & (first + i < piece_rows) & alive
            step = tl.where(inside, steps[i], 0.0)
            next_hi, next_lo = add(one_hi, one_lo, step, zero)
            if SCHEME == 0:
                hi, lo = times(step, next_hi, next_lo)
            else:
                hi, lo = times(step, one_hi, one_lo)
                square_hi, square_lo = two_product(step, 0.5 * step)
                hi, lo = add(hi, lo, square_hi, square_lo)
            two_hi, two_lo = add(two_hi, two_lo, hi, lo)
            one_hi, one_lo = settled(next_hi, next_lo)
            two_hi, two_lo = settled(two_hi, two_lo)
    values = (one_hi, one_lo, two_hi, two_lo)
    for k in tl.static_range(4):
        tl.store(span[k] + lane, values[k], mask=alive)


@triton.jit
def uniform_span(dt, rows, SCHEME: tl.constexpr):
    """The map of a piece of so many rows, all steps dt."""
    rows = rows.to(tl.float64)
    one_hi, one_lo = two_product(rows, dt)
    square_hi, square_lo = two_product(dt, dt)
    if SCHEME == 0:
        hi, lo = two_product(rows, 0.5 * (rows + 1.0))
    else:
        hi, lo = two_product(rows, 0.5 * rows)
    two_hi, two_lo = times_pair(hi, lo, square_hi, square_lo)
    return one_hi, one_lo, two_hi, two_lo


@triton.jit(do_not_specialize=["count", "pieces", "rows", "group"])
def carried(
    totals,
    start,
    dt,
    dt_stride,
    span,
    span_stride,
    bases,
    sums,
    sums_span,
    count,
    pieces,
    piece_rows,
    rows,
    group,
    groups,
    skipped,
    SCHEME: tl.constexpr,
    STEPPED: tl.constexpr,
    BACKWARDS: tl.constexpr,
    SUMS: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
    N: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """Go through the pieces of each group; a lane is a group, ``count`` of them.

    Pairs are flat: the SUMS sums that are carried, those that depend on no other first. totals
    [B, pieces, D] of each piece from rest; start [B, groups, D] is what each group's first piece
    is given (None: nothing); ``bases`` [B, pieces, D] gets what each piece is given, ``sums``
    [B, groups, D] what each group passes on and ``sums_span`` [b, groups] its map; the last two
    only where wanted. A piece spans ``piece_rows`` of rows ``skipped``..``rows``. The
    totals of AT_ONCE pieces are loaded together.
    """
    lane = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)[:, None]
    column = tl.program_id(1) * DP + tl.arange(0, DP)[None, :]
    trajectory = lane // groups
    number = lane - trajectory * groups
    alive = (lane < count) & (column < D)
    zero = tl.zeros([N, DP], tl.float64)
    carry = ()
    for k in tl.static_range(2 * SUMS):
        if start[k] is None:
            carry = carry + (zero,)
        else:
            carry = carry + (tl.load(start[k] + lane * D + column, mask=alive, other=0.0),)
    none = tl.zeros([N, 1], tl.float64)
    whole = (none, none, none, none)
    if not STEPPED:
        step = tl.load(dt + trajectory * dt_stride, mask=lane < count, other=1.0)
    for first in range(0, group, AT_ONCE):
        loaded = ()
        maps = ()
        for i in tl.static_range(AT_ONCE):
            place_in = first + i + number * 0
            there = place_in < group
            if BACKWARDS:
                place_in = group - 1 - place_in
            piece = number * group + place_in
            there = there & (piece < pieces)
            for k in tl.static_range(2 * SUMS):
                place = (trajectory * pieces + piece) * D + column
                loaded = loaded + (tl.load(totals[k] + place, mask=alive & there, other=0.0),)
            if STEPPED:
                for k in tl.static_range(4):
                    place = trajectory * span_stride + piece
                    more = tl.load(span[k] + place, mask=(lane < count) & there, other=0.0)
                    maps = maps + (more,)
            else:
                begin = tl.maximum(piece * piece_rows, skipped)
                within = tl.minimum((piece + 1) * piece_rows, rows) - begin
                maps = maps + uniform_span(step, tl.where(there, within, 0), SCHEME)
        for i in tl.static_range(AT_ONCE):
            place_in = first + i + number * 0
            there = alive & (place_in < group)
            if BACKWARDS:
                place_in = group - 1 - place_in
            piece = number * group + place_in
            there = there & (piece < pieces)
            one_hi, one_lo = maps[4 * i], maps[4 * i + 1]
            two_hi, two_lo = maps[4 * i + 2], maps[4 * i + 3]
            following = ()
            for j in tl.static_range(SUMS):
                if bases is not None:
                    place = (trajectory * pieces + piece) * D + column
                    tl.store(bases[2 * j] + place, carry[2 * j], mask=there)
                    tl.store(bases[2 * j + 1] + place, carry[2 * j + 1], mask=there)
                more_hi = loaded[2 * (i * SUMS + j)]
                more_lo = loaded[2 * (i * SUMS + j) + 1]
                hi, lo = add(carry[2 * j], carry[2 * j + 1], more_hi, more_lo)
                if j >= 1:
                    gain_hi, gain_lo = times_pair(
                        one_hi, one_lo, carry[2 * j - 2], carry[2 * j - 1]
                    )
                    hi, lo = add(hi, lo, gain_hi, gain_lo)
                if j >= 2:
                    gain_hi, gain_lo = times_pair(
                        two_hi, two_lo, carry[2 * j - 4], carry[2 * j - 3]
                    )
                    hi, lo = add(hi, lo, gain_hi, gain_lo)
                following = following + (hi, lo)
            carry = following
            if sums_span is not None:
                hi, lo = times_pair(one_hi, one_lo, whole[0], whole[1])
                hi, lo = add(hi, lo, two_hi, two_lo)
                two_hi, two_lo = add(whole[2], whole[3], hi, lo)
                one_hi, one_lo = add(whole[0], whole[1], one_hi, one_lo)
                whole = (one_hi, one_lo, two_hi, two_lo)
    if sums is not None:
        for k in tl.static_range(2 * SUMS):
            tl.store(sums[k] + lane * D + column, carry[k], mask=alive)
    if sums_span is not None:
        own = (lane < count) & ((trajectory == 0) | (trajectory * span_stride > 0))  # or shared
        for k in tl.static_range(4):
            tl.store(sums_span[k] + lane, whole[k], mask=own)
