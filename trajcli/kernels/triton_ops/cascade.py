"""The cascade and its transpose in Triton.

A program computes a few lanes, each a trajectory (or a piece of one) with all its dofs side by
side, K rows at a time: the rows are loaded as they lie in memory, exchanged so that a thread
owns a column of them, stepped through in order with the state in registers, and exchanged back.
"""

from __future__ import annotations

import triton
import triton.language as tl

from trajcli.kernels.triton_ops.arithmetic import (
    add,
    narrowed,
    reciprocal,
    rounded,
    rows_of,
    settled,
    tile_of,
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

    later: what later rows ask of this one; upstream: of its outputs, four numbers.
    """
    asked = ()
    zero = tl.zeros_like(upstream[0])
    before = (zero, zero, zero, zero, zero, zero, zero, zero)
    for m in tl.static_range(4):
        hi, missed = two_sum(later[2 * m], upstream[m])
        asked = asked + (hi, later[2 * m + 1] + missed)
    for m in tl.static_range(3, ORDER, -1):
        hi, lo = times_pair(step[2], step[3], asked[2 * m], asked[2 * m + 1])
        sum_hi, sum_lo = add(asked[2 * m - 2], asked[2 * m - 1], hi, lo)
        asked = with_part(asked, m - 1, sum_hi, sum_lo)
        before = with_part(before, m - 1, -hi, -lo)
    for m in tl.static_range(ORDER):
        a_hi, a_lo = asked[2 * m], asked[2 * m + 1]
        hi, lo = add(before[2 * m], before[2 * m + 1], a_hi, a_lo)
        before = with_part(before, m, hi, lo)
        if SCHEME == 0:
            hi, lo = times(step[0], a_hi, a_lo)
            hi, lo = add(asked[2 * m + 2], asked[2 * m + 3], hi, lo)
            asked = with_part(asked, m + 1, hi, lo)
        else:
            for r in tl.static_range(1, ORDER - m):
                hi, lo = by_taylor(step, r, a_hi, a_lo)
                hi, lo = add(before[2 * (m + r)], before[2 * (m + r) + 1], hi, lo)
                before = with_part(before, m + r, hi, lo)
            now_hi, now_lo = step[4 + 2 * (ORDER - m)], step[5 + 2 * (ORDER - m)]
            now_hi, now_lo = times_pair(now_hi, now_lo, a_hi, a_lo)
            hi, lo = add(asked[2 * ORDER], asked[2 * ORDER + 1], now_hi, now_lo)
            asked = with_part(asked, ORDER, hi, lo)
            if SCHEME == 2:
                now_hi, now_lo = (ORDER - m) * now_hi, (ORDER - m) * now_lo
                hi, lo = add(before[2 * ORDER], before[2 * ORDER + 1], now_hi, now_lo)
                before = with_part(before, ORDER, hi, lo)
    return asked, before


@triton.jit
def chosen(mask, x, y):
    """Four pairs: x where the mask holds, else y."""
    z = ()
    for i in tl.static_range(8):
        z = z + (tl.where(mask, x[i], y[i]),)
    return z


@triton.jit
def steps_at(dt, trajectory, stride, first, horizon, N: tl.constexpr, K: tl.constexpr):
    """dt of K rows from ``first`` [N, 1] on, a tuple of [N, 1]; 1 outside the horizon."""
    row = first + tl.arange(0, K)[None, :]
    inside = (row >= 0) & (row < horizon)
    tile = tl.load(dt + trajectory * stride + row, mask=inside, other=1.0)
    return rows_of(tl.reshape(tile, [N, K, 1]), K)


@triton.jit
def loaded_state(parts, strides, trajectory, column, alive):
    """Eight arrays [B, D] (hi and lo of four orders) at the lanes, float64; None is zero."""
    x = ()
    for i in tl.static_range(8):
        if parts[i] is None:
            x = x + (tl.zeros(alive.shape, tl.float64),)
        else:
            place = parts[i] + trajectory * strides[2 * i] + column * strides[2 * i + 1]
            x = x + (tl.load(place, mask=alive, other=0.0),)
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
def forward(
    actions,
    actions_stride,
    state,
    state_strides,
    dt,
    dt_stride,
    out,
    out_strides,
    end,
    totals,
    bases,
    batch,
    horizon,
    pieces,
    piece_rows,
    ORDER: tl.constexpr,
    SCHEME: tl.constexpr,
    START_ROW: tl.constexpr,
    STEPPED: tl.constexpr,
    CHUNKED: tl.constexpr,
    BOTTOM: tl.constexpr,
    TOP: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    """Rows of outputs from actions, forward in time.

    Row o of a piece is action o − START_ROW. CHUNKED 0: lanes are trajectories. 1: pieces of
    them from rest, of which only the last state (``totals``) is wanted. 2: pieces, each from its
    state in ``bases`` (orders below the actions') and the last state of the piece before.
    """
    if CHUNKED == 0:
        trajectory, piece, column, alive = lanes(batch, 1, N, DP, D)
        row_0 = piece * 0
    else:
        trajectory, piece, column, alive = lanes(batch, pieces, N, DP, D)
        row_0 = piece * piece_rows
    if CHUNKED != 1:
        x = loaded_state(state, state_strides, trajectory, column, alive)
    at = (trajectory * pieces + piece) * D + column
    if CHUNKED == 1:
        begun = alive & (row_0 > START_ROW)
        place = actions + trajectory * actions_stride + (row_0 - START_ROW - 1) * D + column
        previous = widened(tl.load(place, mask=begun, other=0.0))
        zero = tl.zeros(alive.shape, tl.float64)
        x = (zero, zero, zero, zero, zero, zero, zero, zero)
        if SCHEME == 2:
            rest = loaded_state(state, state_strides, trajectory, column, alive & (piece == 0))
            x = with_part(
                x, ORDER, tl.where(begun, previous, rest[2 * ORDER]), rest[2 * ORDER + 1]
            )
    if CHUNKED == 2:
        later = alive & (piece > 0)
        for m in tl.static_range(4):
            hi, lo = x[2 * m], x[2 * m + 1]
            if m < ORDER:
                hi = tl.load(bases[2 * m] + at, mask=later, other=0.0)
                lo = tl.load(bases[2 * m + 1] + at, mask=later, other=0.0)
            else:
                hi = tl.load(totals[2 * m] + at - D, mask=later, other=0.0)
                lo = tl.load(totals[2 * m + 1] + at - D, mask=later, other=0.0)
            x = with_part(
                x,
                m,
                tl.where(piece > 0, hi, x[2 * m]),
                tl.where(piece > 0, lo, x[2 * m + 1]),
            )
    flat = tl.arange(0, K * DP)[None, :]
    flat_row = flat // DP
    flat_column = flat % DP + tl.program_id(1) * DP
    there = (trajectory < batch) & (flat_column < D)
    if not STEPPED:
        step = step_of(tl.load(dt + trajectory * dt_stride, mask=trajectory < batch, other=1.0), ORDER, SCHEME)
    for first in range(0, piece_rows, K):
        row = row_0 + first + flat_row  # of the outputs
        inside = there & (row < horizon + START_ROW)
        if CHUNKED != 0:
            inside = inside & (first + flat_row < piece_rows)
        action_row = row - START_ROW
        tile = tl.load(
            actions + trajectory * actions_stride + action_row * D + flat_column,
            mask=inside & (action_row >= 0),
            other=0.0,
        )
        rows = rows_of(tl.reshape(tile, [N, K, DP]), K)
        if STEPPED:
            steps = steps_at(dt, trajectory, dt_stride, row_0 + first - START_ROW, horizon, N, K)
        position = ()
        velocity = ()
        acceleration = ()
        jerk = ()
        for i in tl.static_range(K):
            if STEPPED:
                step = step_of(steps[i], ORDER, SCHEME)
            y = next_row(x, widened(rows[i]), step, ORDER, SCHEME, BOTTOM, TOP)
            o = row_0 + first + i
            if START_ROW and i == 0:
                y = chosen(o == 0, x, y)
            if CHUNKED == 1 or end[0] is not None:
                y = chosen((o < horizon + START_ROW) & (first + i < piece_rows), y, x)
            x = y
            if out[0] is not None and ORDER != 0:
                position = position + (narrowed(rounded(x[0], x[1]), out[0].dtype.element_ty),)
            if out[1] is not None and ORDER != 1:
                velocity = velocity + (narrowed(rounded(x[2], x[3]), out[1].dtype.element_ty),)
            if out[2] is not None and ORDER != 2:
                acceleration = acceleration + (
                    narrowed(rounded(x[4], x[5]), out[2].dtype.element_ty),
                )
            if out[3] is not None and ORDER != 3:
                jerk = jerk + (narrowed(rounded(x[6], x[7]), out[3].dtype.element_ty),)
        columns = (position, velocity, acceleration, jerk)
        for m in tl.static_range(4):
            if out[m] is not None:
                if m == ORDER:
                    given = narrowed(widened(tile), out[m].dtype.element_ty)
                    if START_ROW:
                        begin = inside & (row == 0)
                        place = state[2 * m] + trajectory * state_strides[4 * m]
                        place = place + flat_column * state_strides[4 * m + 1]
                        begun = tl.load(place + row * 0, mask=begin, other=0.0)
                        given = tl.where(row == 0, narrowed(begun, out[m].dtype.element_ty), given)
                else:
                    given = tile_of(columns[m], K)
                place = out[m] + trajectory * out_strides[m] + row * D + flat_column
                tl.store(place, given, mask=inside)
    if CHUNKED == 1:
        store_state(totals, x, at, alive)
    elif end[0] is not None:
        if CHUNKED == 0:
            store_state(end, x, trajectory * D + column, alive)
        else:
            store_state(end, x, trajectory * D + column, alive & (piece == pieces - 1))
