"""The band and its adjoint in Triton; see :class:`trajcli.kernels.program.Band`.

A window slides along the points. What it needs of them stays in registers, and where it moves on
by a point, the oldest leaves. With a table these are points and their differences. With unequal
steps they are Newton's divided differences within the window: a new point adds one of every order
(in the adjoint, removes one).
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
from trajcli.kernels.triton_ops.points import load_points, powers_of, pull_points
from trajcli.kernels.triton_ops.table import even_row, load_weights, pull_even_row, scale
from trajcli.kernels.triton_ops.tiles import (
    append,
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
    first_of,
    kind_of,
    pull_base,
    push,
    push_first,
    select,
)

SIZES = ["start_count", "goal_count", "batch", "used", "actions_stride", "rows_stride"]
SIZES += ["entries", "dt_stride", "dt_step", "held", "count", "last", "offset", "shift"]
"""Not specialised, so that a last, smaller block needs no other kernel."""
SLICES = ["actions", "start_index", "goal_index", "dt"]
"""Not specialised by alignment: a block may begin anywhere."""


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=SLICES)
def run(
    actions, start, start_index, start_count, goal, goal_index, goal_count, dt, rows,
    head_table, tail_table, table, held, count, last, offset, shift,
    batch, used, actions_stride, rows_stride, entries, dt_stride, dt_step,
    ADJOINT: tl.constexpr, START_ROW: tl.constexpr, HEAD: tl.constexpr, SPACING: tl.constexpr,
    FORM: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Rows [B, T, D] from actions [B, ≥ used, D] and states [S, D]. ADJOINT: the arrays are
    gradients, and those of actions and of states [B, D] are written from those of rows."""
    D: tl.constexpr = FORM.D
    lane = lanes(batch, D, FORM.DOFS, LANES)
    trajectory, dof, there = lane
    steps = (dt + trajectory * dt_stride, dt_step, entries)
    spacing = load_step(steps, 0, there) * SPACING
    inverse = powers_of(1.0 / spacing)
    weights = ()
    if FORM.EVEN and FORM.KINDS == 1:
        weights = scale(load_weights(table, 0, FORM.WIDTH - 1), inverse)
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
        action, acts = action_of(begin + row, windows, spans, FORM)
        places = actions + action_places + action * FORM.D
        new_points = load_points(
            places, mask & acts, to_lanes, begin, windows, spans, ends, lane, spacing, FORM
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
                gaps = select(moves, FORM.STEADY, new_gaps, gaps)
                quotients = select(moves, FORM.STEADY, new, quotients)
            elif WIDTH > 1:
                new = push(differences, point - before)
                differences = select(moves, FORM.STEADY, new, differences)
            points = select(moves, FORM.STEADY, push(points, point), points)
            if not FORM.EVEN:
                values = newton_row(points, gaps, quotients, kind, FORM.BASE)
            elif FORM.KINDS == 1:
                values = even_row(points, differences, weights, kind, FORM.BASE, FORM.COPIES)
            else:
                of_kind = load_weights(table, kind, WIDTH - 1)
                values = even_row(points, differences, of_kind, kind, FORM.BASE, FORM.COPIES)
                values = scale(values, inverse)
            columns = append(columns, values)
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
                gaps = select(moves, False, new_gaps, gaps)
                quotients = select(moves, FORM.STEADY, new, quotients)
            elif WIDTH > 1:
                if FORM.KINDS == 1:
                    differences = pull_even_row(differences, upstream, rows, weights, FORM.COPIES)
                else:
                    of_kind = load_weights(table, kind, WIDTH - 1)
                    upstream = scale(upstream, inverse)
                    differences = pull_even_row(differences, upstream, rows, of_kind, FORM.COPIES)
                before = differences[WIDTH - 2]
                differences = select(moves, FORM.STEADY, push_first(differences, zero), differences)
            gradient = (points[WIDTH - 1] + before - later,) + gradient
            later = before if FORM.STEADY else tl.where(moves, before, later)
            points = select(moves, FORM.STEADY, push_first(points, zero), points)
        places = trajectory * FORM.D + dof
        gradient, held_sum = pull_points(
            gradient, begin, held_sum, windows, spans, ends, places, there, spacing, FORM
        )
        if actions is not None:
            action = action_of(begin + row, windows, spans, FORM)[0]
            firsts = first_of(begin + row, windows, FORM)
            moving = firsts != first_of(begin + row - 1, windows, FORM)
            last_points = firsts + WIDTH - 1
            mask = inside & moving & (last_points >= spans[0]) & (last_points < spans[1])
            store_tile(actions + action_places + action * FORM.D, gradient, mask, to_memory, K)
