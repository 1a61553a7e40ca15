"""The cascade and its adjoint in Triton; see :class:`trajcli.kernels.program.Cascade`."""

from __future__ import annotations

import triton
import triton.language as tl

from trajcli.kernels.triton_ops.tiles import (
    add,
    append,
    lanes,
    load_row,
    load_state,
    load_step,
    load_tile,
    load_tiles,
    slots,
    store_state,
    store_tile,
    store_tiles,
    zeros_like,
)

SIZES = ["start_count", "batch", "used", "actions_stride", "rows_stride"]
SIZES += ["entries", "dt_stride", "dt_step"]
"""Not specialised, so that a last, smaller block needs no other kernel."""
SLICES = ["actions", "start_index", "dt"]
"""Not specialised by alignment: a block may begin anywhere."""


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=SLICES)
def run(
    actions, start, start_index, start_count, dt, rows,
    batch, used, actions_stride, rows_stride, entries, dt_stride, dt_step,
    ADJOINT: tl.constexpr, START_ROW: tl.constexpr, FORM: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Rows [B, T, D] from actions [B, ≥ used, D] and states [S, D]. ADJOINT: the arrays are
    gradients, and those of actions and of states [B, D] are written from those of rows."""
    D: tl.constexpr = FORM.D
    lane = lanes(batch, D, FORM.DOFS, LANES)
    trajectory, dof, there = lane
    steps = (dt + trajectory * dt_stride, dt_step, entries)
    tile = slots(batch, D, FORM.DOFS, LANES, FORM.K)
    action_places = tile[0] * actions_stride + tile[2]
    row_places = tile[0] * rows_stride + tile[2] + START_ROW * D
    first_action = trajectory * actions_stride + dof
    first_row = trajectory * rows_stride + dof
    arrays = (actions, action_places, rows, row_places, used)
    if ADJOINT:
        later = gradients(arrays, first_row, steps, there, tile, FORM)
        if START_ROW:
            later = add(later, load_row(rows, first_row, there))
        store_state(start, later, trajectory * D + dof, there)
    else:
        x = load_state(start, start_index, start_count, lane, D)
        if START_ROW:
            store_state(rows, x, first_row, there)
        trajectories(arrays, first_action, steps, there, tile, x, FORM)


@triton.jit
def trajectories(arrays, first_action, steps, there, tile, x, FORM: tl.constexpr):
    """Rows from actions, the first row first; x: the state before them."""
    actions, action_places, rows, row_places, used = arrays
    K: tl.constexpr = FORM.K
    _, row, _, inside, to_lanes, to_memory = tile
    factors = factors_of(load_step(steps, 0, there))
    if FORM.RECORDED:
        firsts = first_differences(actions + first_action, used, steps, there, FORM.D)
    for begin in range(0, used, K):
        mask = inside & (begin + row < used)
        place = (begin + row).to(tl.int64) * FORM.D
        tile_actions = load_tile(actions + action_places + place, mask, to_lanes, K)
        columns = ((), (), (), ())
        for k in tl.static_range(K):
            if not FORM.EVEN:
                factors = factors_of(load_step(steps, begin + k - FORM.RECORDED, there))
            x = next_row(x, tile_actions[k], factors, FORM.ORDER, FORM.SCHEME)
            y = x
            if FORM.RECORDED:
                y = (x[0],)
                for m in tl.static_range(1, 4):
                    y = y + (tl.where(begin + k < m, firsts[m], x[m]),)
            columns = append(columns, y)
        store_tiles(rows, row_places + place, columns, mask, to_memory, K)


@triton.jit
def gradients(arrays, first_row, steps, there, tile, FORM: tl.constexpr):
    """Gradients of actions from those of rows, the last row first; those of the state before."""
    actions, action_places, rows, row_places, used = arrays
    K: tl.constexpr = FORM.K
    _, row, _, inside, to_lanes, to_memory = tile
    factors = factors_of(load_step(steps, 0, there))
    later = zeros_like(first_row, 4)
    if FORM.RECORDED:
        shared = shared_upstream(rows, first_row, used, there, FORM.D)
    tiles = tl.cdiv(used, K)
    for j in range(tiles):
        begin = (tiles - 1 - j) * K
        mask = inside & (begin + row < used)
        place = (begin + row).to(tl.int64) * FORM.D
        columns = load_tiles(rows, row_places + place, mask, to_lanes, K)
        gradient = ()
        for k in tl.static_range(K - 1, -1, -1):
            if not FORM.EVEN:
                factors = factors_of(load_step(steps, begin + k - FORM.RECORDED, there))
            upstream = (columns[0][k], columns[1][k], columns[2][k], columns[3][k])
            if FORM.RECORDED:
                total = (upstream[0],)
                for m in tl.static_range(1, 4):
                    value = tl.where(begin + k == m, upstream[m] + shared[m], upstream[m])
                    total = total + (tl.where(begin + k < m, 0.0, value),)
                upstream = total
            action, later = row_before(later, upstream, factors, FORM.ORDER, FORM.SCHEME)
            gradient = (action,) + gradient
        if actions is not None:
            store_tile(actions + action_places + place, gradient, mask, to_memory, K)
    return later


@triton.jit
def factors_of(step):
    """dt, dt²/2, dt³/6 and 1/dt."""
    square = step * step
    return step, square * 0.5, square * step * (1.0 / 6.0), 1.0 / step


@triton.jit
def now_of(factors, n: tl.constexpr, SCHEME: tl.constexpr):
    """The weight of the action in the quantity n orders below it."""
    weight = factors[n - 1]
    if SCHEME == "foh":
        weight = weight * (1.0 / (n + 1))
    return weight


@triton.jit
def next_row(x, action, factors, ORDER: tl.constexpr, SCHEME: tl.constexpr):
    """The row after x: four values."""
    y = (action,)
    for n in tl.static_range(1, ORDER + 1):
        if SCHEME == "euler":
            value = tl.fma(factors[0], y[0], x[ORDER - n])
        else:
            value = tl.fma(now_of(factors, n, SCHEME), action, x[ORDER - n])
            if SCHEME == "foh":
                value = tl.fma(now_of(factors, n, SCHEME) * n, x[ORDER], value)
            for r in tl.static_range(1, n):
                value = tl.fma(factors[r - 1], x[ORDER - n + r], value)
        y = (value,) + y
    for m in tl.static_range(ORDER + 1, 4):
        y = y + ((y[m - 1] - x[m - 1]) * factors[3],)
    return y


@triton.jit
def row_before(later, upstream, factors, ORDER: tl.constexpr, SCHEME: tl.constexpr):
    """The transpose of next_row.

    later: the gradient of this row's four values by the rows after it. Returns the gradient of this
    row's action, and that of the row before by this row and those after it.
    """
    above = zeros_like(later[3], 1)  # for the row before: orders from the action's to jerk
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


@triton.jit
def first_differences(pointers, used, steps, there, D: tl.constexpr):
    """Of a recording, the values of order m in the rows before row m: those of row m, or zero if
    there is no row m."""
    column = ()
    for i in tl.static_range(4):
        value = tl.load(pointers + tl.minimum(i, used - 1) * D, mask=there, other=0.0)
        column = column + (value.to(tl.float64),)
    firsts = (column[0],)
    for m in tl.static_range(1, 4):
        higher = ()
        for i in tl.static_range(4 - m):
            step = load_step(steps, m + i - 1, there)
            higher = higher + ((column[i + 1] - column[i]) * (1.0 / step),)
        column = higher
        firsts = firsts + (tl.where(used > m, column[0], 0.0),)
    return firsts


@triton.jit
def shared_upstream(rows, first_row, used, there, D: tl.constexpr):
    """The transpose: for every order m the gradient that the rows before row m add to row m's."""
    total = zeros_like(first_row, 4)
    for i in tl.static_range(3):
        early = load_row(rows, first_row + tl.minimum(i, used - 1) * D, there)
        sums = ()
        for m in tl.static_range(4):
            more = tl.where(used > m, early[m], 0.0)
            sums = sums + (total[m] + more if i < m else total[m],)
        total = sums
    return total
