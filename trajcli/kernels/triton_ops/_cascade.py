"""Runs :class:`trajcli.kernels.program.Cascade` and its adjoint in Triton.

A lane computes one column, a dof of a trajectory, row after row. It loads K rows ahead of those
that it computes. A program is one warp, and loads one row of all its columns at once. Where D is
not a multiple of 8, such loads touch up to 2.2 times the sectors of memory that their bytes fill;
caches serve them. Stores are different: a sector written in part takes memory as long as a full
one, and with many trajectories stores took four times as long as a copy. Lanes of forward therefore
exchange rows before they store them (:func:`store_tile`), and begin at rows that begin a sector.
"""

from __future__ import annotations

import triton
import triton.language as tl

from trajcli.kernels.triton_ops._access import (
    in_range,
    kernel,
    load_row,
    load_state,
    locate_columns,
    locate_tile,
    phase_shift,
    round_row,
    select_row,
    store,
    store_row,
    store_tile,
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
    trajectory, dof, valid = locate_columns(tl.program_id(0), batch, D, PITCH, LANES)
    action = trajectory * horizon * D + dof
    row = trajectory * (START_ROW + used) * D + dof
    step = dt + trajectory * dt_stride
    factors = step_factors(tl.load(step, mask=valid, other=1.0))
    x = load_state(start, start_index, start_count, trajectory, dof, valid, D)
    total = START_ROW + used
    # ``first`` is the first of K rows, counted as the actions are: the start row has number −1
    first = 0
    if ROWS == 1:
        if START_ROW:
            store_row(rows, x, row, valid)
            row += D
        count = used
    else:
        # The start is a row like others here. Groups of rows are aligned, so that the first of them
        # may begin in the trajectory before; its rows are masked when they are stored.
        count = total + (PHASE - 1)
        first -= START_ROW + phase_shift(trajectory, total, 0, PHASE)
        action += first * D
        step += first * dt_step.to(tl.int64)
        origin, offsets, number, exists = locate_tile(
            tl.program_id(0), batch, total, 0, D, PITCH, ROWS, PHASE, LANES
        )  # fmt: skip
    # loads of the next K rows run while these K rows are computed
    array = (actions,)
    fetched = fetch(array, 1, action, step, dt_step, first, used, valid, D, EVEN, K)
    for begin in range(0, count, K):
        action += K * D
        step += K * dt_step.to(tl.int64)
        ahead = fetch(array, 1, action, step, dt_step, first + K, used, valid, D, EVEN, K)
        pending = ()
        for k in tl.static_range(K):
            if not EVEN:
                factors = step_factors(fetched[K + k])
            y = next_row(x, fetched[k].to(tl.float64), factors, ORDER, SCHEME)
            if ROWS > 1 and k < START_ROW + PHASE - 1:
                # until the first action the state stays at the start
                y = select_row(first + k >= 0, y, x)
            x = y
            if ROWS == 1:
                store_row(rows, x, row + k * D, valid & (first + k < used))
            else:
                pending = pending + (round_row(rows, x),)
                if len(pending) == ROWS:
                    done = begin + (k + 1 - ROWS)
                    mask = exists & in_range(done + number, total)
                    store_tile(rows, pending, origin + done * D, offsets, mask, PITCH, LANES)
                    pending = ()
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
    trajectory, dof, valid = locate_columns(tl.program_id(0), batch, D, D, LANES)
    row_0 = trajectory * (START_ROW + used) * D + dof
    step = dt + trajectory * dt_stride
    factors = step_factors(tl.load(step, mask=valid, other=1.0))
    later = zeros(dof, 4)
    # Tiles of K rows run from the last to the first. The last may have rows behind the last row,
    # which come first, load zeros and add nothing.
    begin = (tl.cdiv(used, K) - 1) * K
    row = row_0 + (START_ROW + begin.to(tl.int64)) * D
    action = trajectory * horizon * D + dof + begin.to(tl.int64) * D
    step += begin.to(tl.int64) * dt_step
    fetched = fetch(rows, 4, row, step, dt_step, begin, used, valid, D, EVEN, K)
    for _ in range(0, used, K):
        row -= K * D
        step -= K * dt_step.to(tl.int64)
        ahead = fetch(rows, 4, row, step, dt_step, begin - K, used, valid, D, EVEN, K)
        for k in tl.static_range(K - 1, -1, -1):
            if not EVEN:
                factors = step_factors(fetched[4 * K + k])
            upstream = ()
            for m in tl.static_range(4):
                upstream = upstream + (fetched[m * K + k].to(tl.float64),)
            gradient, later = pull_row(later, upstream, factors, ORDER, SCHEME)
            store(actions, gradient, action + k * D, valid & (begin + k < used))
        begin -= K
        action -= K * D
        fetched = ahead
    # actions that are not used have a gradient of zero
    for i in range(used, horizon):
        store(actions, zeros(dof, 1)[0], trajectory * horizon * D + i * D + dof, valid)
    # the start's own row adds its gradient to that of all later rows
    if START_ROW:
        first = load_row(rows, row_0, valid, 0.0)
        later = (later[0] + first[0], later[1] + first[1], later[2] + first[2], later[3] + first[3])
    store_row(start, later, trajectory * D + dof, valid)


@triton.jit
def fetch(
    arrays, COUNT: tl.constexpr, index, step, dt_step, begin, used, valid, D: tl.constexpr,
    EVEN: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Loads K rows of each array from row ``begin`` on and, where steps differ, their steps."""
    values = ()
    for m in tl.static_range(COUNT):
        for k in tl.static_range(K):
            if arrays[m] is None:
                values = values + (tl.zeros(index.shape, tl.float32),)
            else:
                mask = valid & in_range(begin + k, used)
                values = values + (tl.load(arrays[m] + index + k * D, mask=mask, other=0),)
    if not EVEN:
        for k in tl.static_range(K):
            mask = valid & in_range(begin + k, used)
            values = values + (tl.load(step + k * dt_step, mask=mask, other=1.0),)
    return values


@triton.jit
def step_factors(step):
    """Computes dt, dt²/2, dt³/6 and 1/dt."""
    square = step * step
    return step, square * 0.5, square * step * (1.0 / 6.0), 1.0 / step


@triton.jit
def action_weight(factors, n: tl.constexpr, SCHEME: tl.constexpr):
    """Computes the weight of the action in the quantity n orders below it."""
    # zoh: dtⁿ/n!; foh, of the ramp that ends at the action: dtⁿ/(n + 1)!
    weight = factors[n - 1]
    if SCHEME == "foh":
        weight = weight * (1.0 / (n + 1))
    return weight


@triton.jit
def next_row(x, action, factors, ORDER: tl.constexpr, SCHEME: tl.constexpr):
    """Computes the four values of the row after x, by the formulas of program.Cascade."""
    # from the action's order down, as Euler's sums take the value of the row itself, then up
    y = (action,)
    for n in tl.static_range(1, ORDER + 1):
        if SCHEME == "euler":
            value = tl.fma(factors[0], y[0], x[ORDER - n])
        else:
            value = tl.fma(action_weight(factors, n, SCHEME), action, x[ORDER - n])
            if SCHEME == "foh":
                value = tl.fma(action_weight(factors, n, SCHEME) * n, x[ORDER], value)
            # Taylor's terms of the orders between, in the row before
            for r in tl.static_range(1, n):
                value = tl.fma(factors[r - 1], x[ORDER - n + r], value)
        y = (value,) + y
    for m in tl.static_range(ORDER + 1, 4):
        y = y + ((y[m - 1] - x[m - 1]) * factors[3],)
    return y


@triton.jit
def pull_row(later, upstream, factors, ORDER: tl.constexpr, SCHEME: tl.constexpr):
    """Applies the transpose of :func:`next_row`.

    later: the gradient of this row's four values by the rows after it. Returns the gradient of this
    row's action, and the gradient of the row before by this row and all later ones.
    """
    # Lines of next_row in reverse. x_m = (x_{m−1} − x_{m−1} of the row before) / dt gives its
    # gradient over dt to x_{m−1}, and the opposite to the row before. ``above`` collects the latter
    # for orders from the action's to jerk.
    above = zeros(later[3], 1)
    received = above[0]
    for m in tl.static_range(3, ORDER, -1):
        received = (upstream[m] + later[m] + received) * factors[3]
        above = (-received,) + above
    action = upstream[ORDER] + later[ORDER] + received
    # Below the action's order. With Euler x_m takes dt·x_{m+1} of this same row, so that gradients
    # run up through the orders; otherwise all it takes is of the row before and of the actions.
    sums = ()
    for m in tl.static_range(ORDER):
        value = upstream[m] + later[m]
        if SCHEME == "euler" and m > 0:
            value = tl.fma(factors[0], sums[m - 1], value)
        sums = sums + (value,)
    # ``held`` is the gradient of the action before, from which foh's ramp begins
    held = above[0]
    below = ()
    for m in tl.static_range(ORDER):
        value = sums[m]
        if SCHEME != "euler":
            action = tl.fma(action_weight(factors, ORDER - m, SCHEME), sums[m], action)
            for r in tl.static_range(1, m + 1):
                value = tl.fma(factors[r - 1], sums[m - r], value)
        if SCHEME == "foh":
            before_action = action_weight(factors, ORDER - m, SCHEME) * (ORDER - m)
            held = tl.fma(before_action, sums[m], held)
        below = below + (value,)
    if SCHEME == "euler" and ORDER > 0:
        action = tl.fma(factors[0], sums[ORDER - 1], action)
    before = below + (held,)
    for m in tl.static_range(ORDER + 1, 4):
        before = before + (above[m - ORDER],)
    return action, before
