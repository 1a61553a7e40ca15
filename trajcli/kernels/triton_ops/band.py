"""The band and its adjoint in Triton; see :class:`trajcli.kernels.program.Band`.

A window slides along: what it needs of its points is kept in registers, and where it moves on by
a point, the oldest is dropped. With a table those are the points and their differences. With
steps of their own they are Newton's divided differences: of each order the ones within the
window, of which a new point makes one new each (in the adjoint: takes one away).
"""

from __future__ import annotations

import triton
import triton.language as tl

from trajcli.kernels.triton_ops.newton import (
    newton_point,
    newton_row,
    pull_newton_point,
    pull_newton_row,
)
from trajcli.kernels.triton_ops.points import give_points, load_points, powers_of
from trajcli.kernels.triton_ops.table import even_row, load_weights, pull_even_row, scaled
from trajcli.kernels.triton_ops.tiles import (
    appended,
    lanes,
    load_row,
    load_state,
    load_step,
    load_tiles,
    slots,
    store_state,
    store_tile,
    store_tiles,
    zeros_like,
)
from trajcli.kernels.triton_ops.windows import (
    action_of,
    chosen,
    first_of,
    kind_of,
    pull_base,
    pulled,
    pushed,
)

SIZES = ["start_count", "goal_count", "batch", "used", "actions_stride", "rows_stride"]
SIZES += ["entries", "dt_stride", "dt_step", "held", "count", "last", "offset", "shift"]
"""Not specialised: a last block with fewer trajectories compiles nothing anew."""
SLICES = ["actions", "start_index", "goal_index", "dt"]
"""Nor by where in memory a block begins."""


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=SLICES)
def run(
    actions, start, start_index, start_count, goal, goal_index, goal_count, dt, rows,
    head_table, tail_table, table, held, count, last, offset, shift,
    batch, used, actions_stride, rows_stride, entries, dt_stride, dt_step,
    ADJOINT: tl.constexpr, START_ROW: tl.constexpr, HEAD: tl.constexpr, SPACING: tl.constexpr,
    FORM: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Rows [B, T, D] from actions [B, ≥ used, D] and states [S, D]. Or, what is read and what is
    written changed about, the gradients of actions and of states [B, D] from those of rows."""
    D: tl.constexpr = FORM.D
    lane = lanes(batch, D, FORM.DOFS, LANES)
    trajectory, dof, there = lane
    steps = (dt + trajectory * dt_stride, dt_step, entries)
    spacing = load_step(steps, 0, there) * SPACING
    inverse = powers_of(1.0 / spacing)
    weights = ()
    if FORM.EVEN and FORM.KINDS == 1:
        weights = scaled(load_weights(table, 0, FORM.WIDTH - 1), inverse)
    windows = (offset, shift, last)
    spans = (HEAD, HEAD + used, HEAD + used + held)
    ends = (head_table, start, start_index, start_count), (tail_table, goal, goal_index, goal_count)
    tile = slots(batch, D, FORM.DOFS, LANES, FORM.K)
    action_places = tile[0] * actions_stride + tile[2]
    row_places = tile[0] * rows_stride + tile[2] + START_ROW * D
    first_row = trajectory * rows_stride + dof
    arrays = (actions, action_places, rows, row_places, count)
    even = (table, weights, inverse)
    if ADJOINT:
        state = zeros_like(dof, 4)
        store_state(goal, state, trajectory * D + dof, there)
        if START_ROW:
            state = load_row(rows, first_row, there)
        store_state(start, state, trajectory * D + dof, there)
        gradients(arrays, steps, spacing, even, windows, spans, ends, lane, tile, FORM)
    else:
        if START_ROW:
            state = load_state(start, start_index, start_count, lane, D)
            store_state(rows, state, first_row, there)
        trajectories(arrays, steps, spacing, even, windows, spans, ends, lane, tile, FORM)


@triton.jit
def trajectories(
    arrays, steps, spacing, even, windows, spans, ends, lane, tile, FORM: tl.constexpr
):  # fmt: skip
    """Rows from actions, the first row first."""
    actions, action_places, rows, row_places, count = arrays
    table, weights, inverse = even
    WIDTH: tl.constexpr = FORM.WIDTH
    K: tl.constexpr = FORM.K
    _, row, _, inside, to_lanes, to_memory = tile
    _, dof, there = lane
    gap_before = WIDTH - 2 - tl.maximum(spans[0] - 1, 0)  # the last of a window's, from its first
    points = zeros_like(dof, WIDTH)
    differences = zeros_like(dof, WIDTH - 1)
    gaps = zeros_like(dof, 4)
    quotients = zeros_like(dof, 10)
    LEAD: tl.constexpr = (WIDTH + K - 2) // K * K  # rows before row 0, for all points but one
    for begin in range(-LEAD, count, K):
        mask = inside & (begin + row < count)
        action, known = action_of(begin + row, windows, spans, FORM)
        places = actions + action_places + action * FORM.D
        new_points = load_points(
            places, mask & known, to_lanes, begin, windows, spans, ends, lane, spacing, FORM
        )
        columns = ((), (), (), ())
        for k in tl.static_range(K):
            first = first_of(begin + k, windows, FORM)
            kind = kind_of(begin + k, windows, FORM)
            moves = first != first_of(begin + k - 1, windows, FORM)
            point, before = new_points[k], points[WIDTH - 1]
            if not FORM.EVEN:
                gap = load_step(steps, first + gap_before, there)
                new_gaps, new = newton_point(gaps, quotients, before, point, gap)
                gaps = chosen(moves, FORM.STEADY, new_gaps, gaps)
                quotients = chosen(moves, FORM.STEADY, new, quotients)
            elif WIDTH > 1:
                new = pushed(differences, point - before)
                differences = chosen(moves, FORM.STEADY, new, differences)
            points = chosen(moves, FORM.STEADY, pushed(points, point), points)
            if not FORM.EVEN:
                values = newton_row(points, gaps, quotients, kind, FORM.BASE)
            elif FORM.KINDS == 1:
                values = even_row(points, differences, weights, kind, FORM.BASE, FORM.COPIES)
            else:
                of_kind = load_weights(table, kind, WIDTH - 1)
                values = even_row(points, differences, of_kind, kind, FORM.BASE, FORM.COPIES)
                values = scaled(values, inverse)
            columns = appended(columns, values)
        place = (begin + row).to(tl.int64) * FORM.D
        store_tiles(rows, row_places + place, columns, mask & (begin + row >= 0), to_memory, K)


@triton.jit
def gradients(
    arrays, steps, spacing, even, windows, spans, ends, lane, tile, FORM: tl.constexpr
):  # fmt: skip
    """Gradients of actions and, added in memory, of states from those of rows, the last first."""
    actions, action_places, rows, row_places, count = arrays
    table, weights, inverse = even
    WIDTH: tl.constexpr = FORM.WIDTH
    K: tl.constexpr = FORM.K
    _, row, _, inside, to_lanes, to_memory = tile
    trajectory, dof, there = lane
    gap_after = -tl.maximum(spans[0] - 1, 0)  # the first of a window's
    tiles = tl.cdiv(count, K)
    points = zeros_like(dof, WIDTH)
    differences = zeros_like(dof, WIDTH - 1)
    quotients = zeros_like(dof, 10)
    gaps = ()
    first = first_of(tiles * K - 1, windows, FORM)
    for i in tl.static_range(4):
        gaps = gaps + (load_step(steps, first + gap_after + i, there),)
    zero = tl.zeros(dof.shape, tl.float64)
    later = zero  # of the difference after a window's last point
    held_sum = zero
    LEAD: tl.constexpr = (WIDTH + K - 2) // K
    for j in range(tiles + LEAD):
        begin = (tiles - 1 - j) * K
        mask = inside & (begin + row >= 0) & (begin + row < count)
        place = (begin + row).to(tl.int64) * FORM.D
        columns = load_tiles(rows, row_places + place, mask, to_lanes, K)
        gradient = ()
        for k in tl.static_range(K - 1, -1, -1):
            first = first_of(begin + k, windows, FORM)
            kind = kind_of(begin + k, windows, FORM)
            moves = first != first_of(begin + k - 1, windows, FORM)
            upstream = (columns[0][k], columns[1][k], columns[2][k], columns[3][k])
            if rows[0] is not None:
                points = pull_base(points, upstream[0], kind, FORM.BASE)
            # then the last point of the window, which is in none before it, is complete
            before = zero
            if not FORM.EVEN:
                quotients = pull_newton_row(gaps, quotients, upstream, kind, FORM.BASE)
                gap = load_step(steps, first + gap_after - 1, there)
                new_gaps, new, before = pull_newton_point(gaps, quotients, gap)
                # beyond the last row windows stand still, and so do gaps
                gaps = chosen(moves, False, new_gaps, gaps)
                quotients = chosen(moves, FORM.STEADY, new, quotients)
            elif WIDTH > 1:
                if FORM.KINDS == 1:
                    differences = pull_even_row(differences, upstream, rows, weights, FORM.COPIES)
                else:
                    of_kind = load_weights(table, kind, WIDTH - 1)
                    upstream = scaled(upstream, inverse)
                    differences = pull_even_row(differences, upstream, rows, of_kind, FORM.COPIES)
                before = differences[WIDTH - 2]
                differences = chosen(moves, FORM.STEADY, pulled(differences, zero), differences)
            gradient = (points[WIDTH - 1] + before - later,) + gradient
            later = before if FORM.STEADY else tl.where(moves, before, later)
            points = chosen(moves, FORM.STEADY, pulled(points, zero), points)
        places = trajectory * FORM.D + dof
        gradient, held_sum = give_points(
            gradient, begin, held_sum, windows, spans, ends, places, there, spacing, FORM
        )
        if actions is not None:
            action = action_of(begin + row, windows, spans, FORM)[0]
            firsts = first_of(begin + row, windows, FORM)
            moving = firsts != first_of(begin + row - 1, windows, FORM)
            last_points = firsts + WIDTH - 1
            mask = inside & moving & (last_points >= spans[0]) & (last_points < spans[1])
            store_tile(actions + action_places + action * FORM.D, gradient, mask, to_memory, K)
