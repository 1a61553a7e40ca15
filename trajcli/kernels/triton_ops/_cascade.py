"""The cascade and its adjoint in Triton; see :class:`trajcli.kernels.program.Cascade`.

A lane computes one column, a dof of a trajectory, row after row, and has what it loads of K rows
ahead of those that it computes. A program is one warp. Its loads are of one row of all its columns:
where D is no multiple of 8 these take up to 2.2 times the sectors that their bytes fill, which
caches serve. Stores would, too, but each sector that is written in part takes memory as much time
as a whole one: with many trajectories they took four times what a copy takes. So lanes of forward
exchange rows, see :func:`store_tile`, and begin at rows from which whole sectors are written.
"""

from __future__ import annotations

import triton
import triton.language as tl

from trajcli.kernels.triton_ops._access import (
    columns,
    kernel,
    load_row,
    load_state,
    rounded,
    shift_of,
    store,
    store_row,
    store_tile,
    tile_of,
    within,
    zeros,
)


@kernel
def forward(
    actions, start, start_index, start_count, dt, rows, batch, horizon, used, dt_stride, dt_step,
    START_ROW: tl.constexpr, D: tl.constexpr, ORDER: tl.constexpr, SCHEME: tl.constexpr,
    EVEN: tl.constexpr, K: tl.constexpr, LANES: tl.constexpr, PITCH: tl.constexpr,
    ROWS: tl.constexpr, PHASE: tl.constexpr,
):  # fmt: skip
    """Computes rows [B, T, D] from actions [B, H, D] and states [S, D]."""
    trajectory, dof, there = columns(tl.program_id(0), batch, D, PITCH, LANES)
    action = trajectory * horizon * D + dof
    row = trajectory * (START_ROW + used) * D + dof
    step = dt + trajectory * dt_stride
    factors = factors_of(tl.load(step, mask=there, other=1.0))
    x = load_state(start, start_index, start_count, trajectory, dof, there, D)
    total = START_ROW + used
    first = 0  # of K rows, counted as the actions are
    if ROWS == 1:
        if START_ROW:
            store_row(rows, x, row, there)
            row += D
        count = used
    else:  # the start is a row as others are; the first of all may be of the trajectory before
        count = total + (PHASE - 1)
        first -= START_ROW + shift_of(trajectory, total, 0, PHASE)
        action += first * D
        step += first * dt_step.to(tl.int64)
        origin, places, number, exists = tile_of(
            tl.program_id(0), batch, total, 0, D, PITCH, ROWS, PHASE, LANES
        )  # fmt: skip
    array = (actions,)
    fetched = fetch(array, 1, action, step, dt_step, first, used, there, D, EVEN, K)
    for begin in range(0, count, K):
        action += K * D
        step += K * dt_step.to(tl.int64)
        ahead = fetch(array, 1, action, step, dt_step, first + K, used, there, D, EVEN, K)
        kept = ()
        for k in tl.static_range(K):
            if not EVEN:
                factors = factors_of(fetched[K + k])
            y = next_row(x, fetched[k].to(tl.float64), factors, ORDER, SCHEME)
            if ROWS > 1 and k < START_ROW + PHASE - 1:
                y = chosen(first + k >= 0, y, x)  # until the first action, the start
            x = y
            if ROWS == 1:
                store_row(rows, x, row + k * D, there & (first + k < used))
            else:
                kept = kept + (rounded(rows, x),)
                if len(kept) == ROWS:
                    done = begin + (k + 1 - ROWS)
                    wanted = exists & within(done + number, total)
                    store_tile(rows, kept, origin + done * D, places, wanted, PITCH, LANES)
                    kept = ()
        first += K
        row += K * D
        fetched = ahead


@kernel
def adjoint(
    actions, start, dt, rows, batch, horizon, used, dt_stride, dt_step,
    START_ROW: tl.constexpr, D: tl.constexpr, ORDER: tl.constexpr, SCHEME: tl.constexpr,
    EVEN: tl.constexpr, K: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Computes gradients of actions and of states [B, D] from those of rows, the last row first."""
    trajectory, dof, there = columns(tl.program_id(0), batch, D, D, LANES)
    row_0 = trajectory * (START_ROW + used) * D + dof
    step = dt + trajectory * dt_stride
    factors = factors_of(tl.load(step, mask=there, other=1.0))
    later = zeros(dof, 4)
    # whole tiles of K rows; those of the last that do not exist come first, and add nothing
    begin = (tl.cdiv(used, K) - 1) * K
    row = row_0 + (START_ROW + begin.to(tl.int64)) * D
    action = trajectory * horizon * D + dof + begin.to(tl.int64) * D
    step += begin.to(tl.int64) * dt_step
    fetched = fetch(rows, 4, row, step, dt_step, begin, used, there, D, EVEN, K)
    for _ in range(0, used, K):
        row -= K * D
        step -= K * dt_step.to(tl.int64)
        ahead = fetch(rows, 4, row, step, dt_step, begin - K, used, there, D, EVEN, K)
        for k in tl.static_range(K - 1, -1, -1):
            if not EVEN:
                factors = factors_of(fetched[4 * K + k])
            upstream = ()
            for m in tl.static_range(4):
                upstream = upstream + (fetched[m * K + k].to(tl.float64),)
            gradient, later = row_before(later, upstream, factors, ORDER, SCHEME)
            store(actions, gradient, action + k * D, there & (begin + k < used))
        begin -= K
        action -= K * D
        fetched = ahead
    for i in range(used, horizon):
        store(actions, zeros(dof, 1)[0], trajectory * horizon * D + i * D + dof, there)
    if START_ROW:
        first = load_row(rows, row_0, there, 0.0)
        later = (later[0] + first[0], later[1] + first[1], later[2] + first[2], later[3] + first[3])
    store_row(start, later, trajectory * D + dof, there)


@triton.jit
def chosen(condition, row, other):
    """Returns the four values of a row where the condition holds, or else of the other one."""
    values = ()
    for m in tl.static_range(4):
        values = values + (tl.where(condition, row[m], other[m]),)
    return values


@triton.jit
def fetch(
    arrays, COUNT: tl.constexpr, place, step, dt_step, begin, used, there, D: tl.constexpr,
    EVEN: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Loads K rows of each array from the begin-th on and, where steps differ, their steps."""
    values = ()
    for m in tl.static_range(COUNT):
        for k in tl.static_range(K):
            if arrays[m] is None:
                values = values + (tl.zeros(place.shape, tl.float32),)
            else:
                mask = there & within(begin + k, used)
                values = values + (tl.load(arrays[m] + place + k * D, mask=mask, other=0),)
    if not EVEN:
        for k in tl.static_range(K):
            mask = there & within(begin + k, used)
            values = values + (tl.load(step + k * dt_step, mask=mask, other=1.0),)
    return values


@triton.jit
def factors_of(step):
    """Returns dt, dt²/2, dt³/6 and 1/dt."""
    square = step * step
    return step, square * 0.5, square * step * (1.0 / 6.0), 1.0 / step


@triton.jit
def now_of(factors, n: tl.constexpr, SCHEME: tl.constexpr):
    """Returns the weight of the action in the quantity n orders below it."""
    weight = factors[n - 1]
    if SCHEME == "foh":
        weight = weight * (1.0 / (n + 1))
    return weight


@triton.jit
def next_row(x, action, factors, ORDER: tl.constexpr, SCHEME: tl.constexpr):
    """Returns the four values of the row after x."""
    y = (action,)
    for n in tl.static_range(1, ORDER + 1):
        if SCHEME == "euler":  # xᵐ + dt·xᵐ⁺¹, where xᵐ⁺¹ is that of this row already
            value = tl.fma(factors[0], y[0], x[ORDER - n])
        else:
            value = tl.fma(now_of(factors, n, SCHEME), action, x[ORDER - n])
            if SCHEME == "foh":
                value = tl.fma(now_of(factors, n, SCHEME) * n, x[ORDER], value)
            for r in tl.static_range(1, n):  # Taylor's terms of the row before
                value = tl.fma(factors[r - 1], x[ORDER - n + r], value)
        y = (value,) + y
    for m in tl.static_range(ORDER + 1, 4):
        y = y + ((y[m - 1] - x[m - 1]) * factors[3],)
    return y


@triton.jit
def row_before(later, upstream, factors, ORDER: tl.constexpr, SCHEME: tl.constexpr):
    """Applies the transpose of next_row.

    later: the gradient of this row's four values by the rows after it. Returns the gradient of this
    row's action, and that of the row before by this row and those after it.
    """
    above = zeros(later[3], 1)  # for the row before: orders from the action's to jerk
    received = above[0]
    for m in tl.static_range(3, ORDER, -1):
        received = (upstream[m] + later[m] + received) * factors[3]
        above = (-received,) + above
    action = upstream[ORDER] + later[ORDER] + received
    sums = ()  # of orders below the action's
    for m in tl.static_range(ORDER):
        value = upstream[m] + later[m]
        if SCHEME == "euler" and m > 0:
            value = tl.fma(factors[0], sums[m - 1], value)
        sums = sums + (value,)
    held = above[0]  # for the action before
    below = ()
    for m in tl.static_range(ORDER):
        value = sums[m]
        if SCHEME != "euler":
            action = tl.fma(now_of(factors, ORDER - m, SCHEME), sums[m], action)
            for r in tl.static_range(1, m + 1):
                value = tl.fma(factors[r - 1], sums[m - r], value)
        if SCHEME == "foh":
            before_action = now_of(factors, ORDER - m, SCHEME) * (ORDER - m)
            held = tl.fma(before_action, sums[m], held)
        below = below + (value,)
    if SCHEME == "euler" and ORDER > 0:
        action = tl.fma(factors[0], sums[ORDER - 1], action)
    before = below + (held,)
    for m in tl.static_range(ORDER + 1, 4):
        before = before + (above[m - ORDER],)
    return action, before
