"""One row of a cascade and of its transpose, and the lanes a program computes.

A program computes a few lanes, each a trajectory (or a piece of one) with all its dofs side by
side, K rows at a time: the rows are loaded as they lie in memory, exchanged so that a thread
owns a column of them, stepped through in order with the state in registers, and exchanged back.
"""

from __future__ import annotations

import triton
import triton.language as tl

from trajcli.kernels.triton_ops.arithmetic import (
    add,
    reciprocal,
    rows_of,
    settled,
    times,
    times_pair,
    two_product,
    two_sum,
    widened,
)


@triton.jit
def with_part(x, M: tl.constexpr, hi, lo):
    """Four pairs, flat, with the one of order M replaced."""
    y = ()
    for m in tl.static_range(4):
        if m == M:
            y = y + (hi, lo)
        else:
            y = y + (x[2 * m], x[2 * m + 1])
    return y


@triton.jit
def step_of(dt, ORDER: tl.constexpr, SCHEME: tl.constexpr):
    """What a step length makes of the relation, pairs flat: dt, 1/dt, dt²/2, and of the action
    dtⁿ/n! (foh: dtⁿ/(n+1)!) for n = 1, 2, 3."""
    inverse_hi, inverse_lo = reciprocal(dt)
    step = (dt, dt * 0.0, inverse_hi, inverse_lo)
    if SCHEME != 0:
        square_hi, square_lo = two_product(dt, dt)
        step = step + (0.5 * square_hi, 0.5 * square_lo)
        power_hi, power_lo = dt, dt * 0.0
        factorial = dt * 0.0 + 1.0
        for n in tl.static_range(1, ORDER + 1):
            factorial = factorial * (n + SCHEME - 1)
            one_hi, one_lo = reciprocal(factorial)
            now_hi, now_lo = times_pair(one_hi, one_lo, power_hi, power_lo)
            step = step + (now_hi, now_lo)
            power_hi, power_lo = times(dt, power_hi, power_lo)
            power_hi, power_lo = settled(power_hi, power_lo)
    return step


@triton.jit
def by_taylor(step, R: tl.constexpr, hi, lo):
    """A pair times dtʳ/r!, r = 1 or 2."""
    if R == 1:
        hi, lo = times(step[0], hi, lo)
    else:
        hi, lo = times_pair(step[4], step[5], hi, lo)
    return hi, lo


@triton.jit
def next_row(
    x,
    action,
    step,
    ORDER: tl.constexpr,
    SCHEME: tl.constexpr,
    BOTTOM: tl.constexpr,
    TOP: tl.constexpr,
):
    """The four pairs one row on; orders below BOTTOM and above TOP are wanted by nobody."""
    y = with_part(x, ORDER, action, tl.zeros_like(action))
    for m in tl.static_range(ORDER - 1, BOTTOM - 1, -1):
        if SCHEME == 0:
            if m == ORDER - 1:
                gain_hi, gain_lo = two_product(step[0], action)
            else:
                gain_hi, gain_lo = times(step[0], y[2 * m + 2], y[2 * m + 3])
        else:
            now_hi, now_lo = step[4 + 2 * (ORDER - m)], step[5 + 2 * (ORDER - m)]
            gain_hi, gain_lo = times(action, now_hi, now_lo)
            if SCHEME == 2:
                hi, lo = (ORDER - m) * now_hi, (ORDER - m) * now_lo
                hi, lo = times_pair(hi, lo, x[2 * ORDER], x[2 * ORDER + 1])
                gain_hi, gain_lo = add(gain_hi, gain_lo, hi, lo)
            for r in tl.static_range(1, ORDER - m):
                hi, lo = by_taylor(step, r, x[2 * (m + r)], x[2 * (m + r) + 1])
                gain_hi, gain_lo = add(gain_hi, gain_lo, hi, lo)
        hi, lo = add(x[2 * m], x[2 * m + 1], gain_hi, gain_lo)
        y = with_part(y, m, hi, lo)
    for m in tl.static_range(ORDER + 1, 4):
        if m <= TOP:
            if m == ORDER + 1:
                hi, missed = two_sum(action, -x[2 * ORDER])
                lo = missed - x[2 * ORDER + 1]
            else:
                hi, lo = add(y[2 * m - 2], y[2 * m - 1], -x[2 * m - 2], -x[2 * m - 1])
            hi, lo = times_pair(step[2], step[3], hi, lo)
            y = with_part(y, m, hi, lo)
    return y


@triton.jit
def row_before(
    later,
    upstream,
    step,
    ORDER: tl.constexpr,
    SCHEME: tl.constexpr,
):
    """The transpose of :func:`next_row`: what a row's sources are asked for, and the row before.

    later: what later rows ask of this one; upstream: of its outputs, four numbers. What is summed
    over all rows (orders below ORDER) is carried in pairs. What a row has of its own and of its
    neighbour alone is added in float64, its low part 0.
    """
    asked = ()
    zero = tl.zeros_like(upstream[0])
    before = (zero, zero, zero, zero, zero, zero, zero, zero)
    for m in tl.static_range(4):
        if m < ORDER:
            hi, missed = two_sum(later[2 * m], upstream[m])
            asked = asked + (hi, later[2 * m + 1] + missed)
        else:
            asked = asked + (later[2 * m] + upstream[m], zero)
    for m in tl.static_range(3, ORDER, -1):
        change = step[2] * asked[2 * m]
        asked = with_part(asked, m - 1, asked[2 * m - 2] + change, zero)
        before = with_part(before, m - 1, -change, zero)
    for m in tl.static_range(ORDER):
        a_hi, a_lo = asked[2 * m], asked[2 * m + 1]
        if SCHEME == 0 or m == 0:
            before = with_part(before, m, a_hi, a_lo)
        else:
            hi, lo = add(before[2 * m], before[2 * m + 1], a_hi, a_lo)
            before = with_part(before, m, hi, lo)
        if SCHEME == 0 and m + 1 < ORDER:
            hi, lo = times(step[0], a_hi, a_lo)
            hi, lo = add(asked[2 * m + 2], asked[2 * m + 3], hi, lo)
            asked = with_part(asked, m + 1, hi, lo)
        if SCHEME == 0 and m + 1 == ORDER:
            asked = with_part(asked, ORDER, tl.fma(step[0], a_hi + a_lo, asked[2 * ORDER]), zero)
        if SCHEME != 0:
            for r in tl.static_range(1, ORDER - m):
                hi, lo = by_taylor(step, r, a_hi, a_lo)
                if m > 0:
                    hi, lo = add(before[2 * (m + r)], before[2 * (m + r) + 1], hi, lo)
                before = with_part(before, m + r, hi, lo)
            now = step[4 + 2 * (ORDER - m)]
            asked = with_part(asked, ORDER, tl.fma(now, a_hi + a_lo, asked[2 * ORDER]), zero)
            if SCHEME == 2:
                shared = tl.fma((ORDER - m) * now, a_hi + a_lo, before[2 * ORDER])
                before = with_part(before, ORDER, shared, zero)
    return asked, before


@triton.jit
def chosen(mask, x, y):
    """Four pairs: x where the mask holds, else y."""
    z = ()
    for i in tl.static_range(8):
        z = z + (tl.where(mask, x[i], y[i]),)
    return z


@triton.jit
def uniform_step(dt, stride, trajectory, batch):
    """dt of each lane, [N, 1]."""
    return tl.load(dt + trajectory * stride, mask=trajectory < batch, other=1.0)


@triton.jit
def steps_at(dt, trajectory, stride, first, horizon, alive, N: tl.constexpr, K: tl.constexpr):
    """dt of K rows from ``first`` [N, 1] on, a tuple of [N, 1]; 1 outside the horizon."""
    row = first + tl.arange(0, K)[None, :]
    inside = alive & (row >= 0) & (row < horizon)
    tile = tl.load(dt + trajectory * stride + row, mask=inside, other=1.0)
    return rows_of(tl.reshape(tile, [N, K, 1]), K)


@triton.jit
def own_state(rows, count, trajectory, batch):
    """Which of ``count`` states each trajectory has, and whether there is such a one."""
    own = trajectory
    known = trajectory >= 0
    if rows is not None:
        own = tl.load(rows + trajectory, mask=trajectory < batch, other=0)
        known = (own >= 0) & (own < count)
    return own, known


@triton.jit
def part_of(place, alive, known):
    """A part of a state at the lanes that are alive, as it is; NaN where they have no state."""
    value = tl.load(place, mask=alive & known, other=0.0)
    return tl.where(known, value, float("nan"))


@triton.jit
def loaded_state(parts, strides, own, known, column, alive):
    """Eight arrays (hi and lo of four orders) at the lanes, float64; None is zero."""
    x = ()
    for i in tl.static_range(8):
        if parts[i] is None:
            x = x + (tl.zeros(alive.shape, tl.float64),)
        else:
            place = parts[i] + own * strides[2 * i] + column * strides[2 * i + 1]
            x = x + (widened(part_of(place, alive, known)),)
    return x


@triton.jit
def store_state(places, x, at, alive):
    """Eight flat arrays, None where nobody asks."""
    for i in tl.static_range(8):
        if places[i] is not None:
            tl.store(places[i] + at, x[i], mask=alive)


@triton.jit
def lanes(batch, pieces, N: tl.constexpr, DP: tl.constexpr, D: tl.constexpr):
    """Trajectory and piece of each lane [N, 1] int64, its columns [1, DP], which are there."""
    lane = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)[:, None]
    trajectory = lane // pieces
    column = tl.program_id(1) * DP + tl.arange(0, DP)[None, :]
    return trajectory, lane - trajectory * pieces, column, (trajectory < batch) & (column < D)


@triton.jit
def offsets(
    stride,
    trajectory,
    row_0,
    pieces,
    piece_rows,
    N: tl.constexpr,
    K: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Where the first rows of the lanes lie: that of the first lane, a number, and all elements of
    a tile [N, K · DP] from there, in 32 bits unless WIDE."""
    lane_0 = tl.program_id(0).to(tl.int64) * N
    trajectory_0 = lane_0 // pieces
    begin_0 = (lane_0 - trajectory_0 * pieces) * piece_rows
    place = (trajectory - trajectory_0) * stride + (row_0 - begin_0) * D
    if not WIDE:
        place = place.to(tl.int32)
    flat = tl.arange(0, K * DP)[None, :]
    place = place + ((flat // DP) * D + flat % DP + tl.program_id(1) * DP)
    return trajectory_0 * stride + begin_0 * D, place
