"""The band and its adjoint in Triton; see :class:`trajcli.kernels.program.Band`.

A window slides along: what it needs of its points is kept in registers, and where it moves on by
a point, the oldest is dropped. With a table those are the points and their differences. With
steps of their own they are Newton's divided differences: of each order the ones within the
window, of which a new point makes one new each (in the adjoint: takes one away).
"""

from __future__ import annotations

import triton
import triton.language as tl

from trajcli.kernels.triton_ops.tiles import (
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
    ADJOINT: tl.constexpr, HEAD: tl.constexpr, SPACING: tl.constexpr, START_ROW: tl.constexpr,
    STEPS: tl.constexpr, STEADY: tl.constexpr, WIDTH: tl.constexpr, KINDS: tl.constexpr,
    BASE: tl.constexpr, COPIES: tl.constexpr, EVEN: tl.constexpr,
    D: tl.constexpr, DOFS: tl.constexpr, LANES: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Rows [B, T, D] from actions [B, ≥ used, D] and states [S, D]. Or, what is read and what is
    written changed about, the gradients of actions and of states [B, D] from those of rows.

    STEADY: each row's window is one point after that of the row before. BASE has one entry where
    all kinds have the same; COPIES: positions are points; EVEN: there is a table.
    """
    lane = lanes(batch, D, DOFS, LANES)
    trajectory, dof, there = lane
    steps = (dt + trajectory * dt_stride, dt_step, entries)
    spacing = load_step(steps, 0, there) * SPACING
    inverse = powers_of(1.0 / spacing)
    weights = ()
    if EVEN and KINDS == 1:
        weights = scaled(load_weights(table, 0, WIDTH - 1), inverse)
    windows = (offset, shift, last)
    spans = (HEAD, HEAD + used, HEAD + used + held)
    ends = (head_table, start, start_index, start_count), (tail_table, goal, goal_index, goal_count)
    tile = slots(batch, D, DOFS, LANES, K)
    of_actions = tile[0] * actions_stride + tile[2]
    of_rows = tile[0] * rows_stride + tile[2] + START_ROW * D
    first_row = trajectory * rows_stride + dof
    if ADJOINT:
        state = zeros_like(dof, 4)
        store_state(goal, state, trajectory * D + dof, there)
        if START_ROW:
            state = load_row(rows, first_row, there)
        store_state(start, state, trajectory * D + dof, there)
        gradients(
            actions, rows, of_actions, of_rows, count, steps, spacing, inverse, table, weights,
            windows, spans, ends, lane, tile, STEPS, STEADY, WIDTH, KINDS, BASE, COPIES, EVEN, D, K,
        )  # fmt: skip
    else:
        if START_ROW:
            state = load_state(start, start_index, start_count, lane, D)
            store_state(rows, state, first_row, there)
        trajectories(
            actions, rows, of_actions, of_rows, count, steps, spacing, inverse, table, weights,
            windows, spans, ends, lane, tile, STEPS, STEADY, WIDTH, KINDS, BASE, COPIES, EVEN, D, K,
        )  # fmt: skip


@triton.jit
def trajectories(
    actions, rows, of_actions, of_rows, count, steps, spacing, inverse, table, weights,
    windows, spans, ends, lane, tile,
    STEPS: tl.constexpr, STEADY: tl.constexpr, WIDTH: tl.constexpr, KINDS: tl.constexpr,
    BASE: tl.constexpr, COPIES: tl.constexpr, EVEN: tl.constexpr, D: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Rows from actions, the first row first."""
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
        action, known = action_of(begin + row, windows, spans, STEPS, WIDTH)
        new_points = load_points(
            actions + of_actions + action * D, mask & known, to_lanes, begin, windows, spans,
            ends, lane, spacing, STEPS, WIDTH, D, K,
        )  # fmt: skip
        position = ()
        velocity = ()
        acceleration = ()
        jerk = ()
        for k in tl.static_range(K):
            first = first_of(begin + k, windows, STEPS)
            kind = kind_of(begin + k, windows, STEPS, KINDS)
            moves = first != first_of(begin + k - 1, windows, STEPS)
            point, before = new_points[k], points[WIDTH - 1]
            if not EVEN:
                gap = load_step(steps, first + gap_before, there)
                new_gaps, new = newton_point(gaps, quotients, before, point, gap)
                gaps = chosen(moves, STEADY, new_gaps, gaps)
                quotients = chosen(moves, STEADY, new, quotients)
            elif WIDTH > 1:
                new = pushed(differences, point - before)
                differences = chosen(moves, STEADY, new, differences)
            points = chosen(moves, STEADY, pushed(points, point), points)
            if not EVEN:
                values = newton_row(points, gaps, quotients, kind, BASE)
            elif KINDS == 1:
                values = even_row(points, differences, weights, kind, BASE, COPIES)
            else:
                of_kind = load_weights(table, kind, WIDTH - 1)
                values = even_row(points, differences, of_kind, kind, BASE, COPIES)
                values = scaled(values, inverse)
            position = position + (values[0],)
            velocity = velocity + (values[1],)
            acceleration = acceleration + (values[2],)
            jerk = jerk + (values[3],)
        columns = (position, velocity, acceleration, jerk)
        place = (begin + row).to(tl.int64) * D
        store_tiles(rows, of_rows + place, columns, mask & (begin + row >= 0), to_memory, K)


@triton.jit
def gradients(
    actions, rows, of_actions, of_rows, count, steps, spacing, inverse, table, weights,
    windows, spans, ends, lane, tile,
    STEPS: tl.constexpr, STEADY: tl.constexpr, WIDTH: tl.constexpr, KINDS: tl.constexpr,
    BASE: tl.constexpr, COPIES: tl.constexpr, EVEN: tl.constexpr, D: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Gradients of actions and, added in memory, of states from those of rows, the last first."""
    _, row, _, inside, to_lanes, to_memory = tile
    trajectory, dof, there = lane
    gap_after = -tl.maximum(spans[0] - 1, 0)  # the first of a window's
    tiles = tl.cdiv(count, K)
    points = zeros_like(dof, WIDTH)
    differences = zeros_like(dof, WIDTH - 1)
    quotients = zeros_like(dof, 10)
    gaps = ()
    first = first_of(tiles * K - 1, windows, STEPS)
    for i in tl.static_range(4):
        gaps = gaps + (load_step(steps, first + gap_after + i, there),)
    zero = tl.zeros(dof.shape, tl.float64)
    later = zero  # of the difference after a window's last point
    held_sum = zero
    LEAD: tl.constexpr = (WIDTH + K - 2) // K
    for j in range(tiles + LEAD):
        begin = (tiles - 1 - j) * K
        mask = inside & (begin + row >= 0) & (begin + row < count)
        place = (begin + row).to(tl.int64) * D
        columns = load_tiles(rows, of_rows + place, mask, to_lanes, K)
        gradient = ()
        for k in tl.static_range(K - 1, -1, -1):
            first = first_of(begin + k, windows, STEPS)
            kind = kind_of(begin + k, windows, STEPS, KINDS)
            moves = first != first_of(begin + k - 1, windows, STEPS)
            upstream = (columns[0][k], columns[1][k], columns[2][k], columns[3][k])
            if rows[0] is not None:
                points = pull_base(points, upstream[0], kind, BASE)
            # then the last point of the window, which is in none before it, is complete
            before = zero
            if not EVEN:
                quotients = pull_newton_row(gaps, quotients, upstream, kind, BASE)
                gap = load_step(steps, first + gap_after - 1, there)
                new_gaps, new, before = pull_newton_point(gaps, quotients, gap)
                # beyond the last row windows stand still, and so do gaps
                gaps = chosen(moves, False, new_gaps, gaps)
                quotients = chosen(moves, STEADY, new, quotients)
            elif WIDTH > 1:
                if KINDS == 1:
                    differences = pull_even_row(differences, upstream, rows, weights, COPIES)
                else:
                    of_kind = load_weights(table, kind, WIDTH - 1)
                    upstream = scaled(upstream, inverse)
                    differences = pull_even_row(differences, upstream, rows, of_kind, COPIES)
                before = differences[WIDTH - 2]
                differences = chosen(moves, STEADY, pulled(differences, zero), differences)
            gradient = (points[WIDTH - 1] + before - later,) + gradient
            later = before if STEADY else tl.where(moves, before, later)
            points = chosen(moves, STEADY, pulled(points, zero), points)
        gradient, held_sum = give_points(
            gradient, begin, held_sum, windows, spans, ends, trajectory * D + dof, there, spacing,
            STEPS, WIDTH, K,
        )  # fmt: skip
        if actions is not None:
            action = action_of(begin + row, windows, spans, STEPS, WIDTH)[0]
            firsts = first_of(begin + row, windows, STEPS)
            moving = firsts != first_of(begin + row - 1, windows, STEPS)
            last_points = firsts + WIDTH - 1
            mask = inside & moving & (last_points >= spans[0]) & (last_points < spans[1])
            store_tile(actions + of_actions + action * D, gradient, mask, to_memory, K)


@triton.jit
def first_of(t, windows, STEPS: tl.constexpr):
    """The first point of row t's window. Before row 0 it goes on falling, point by point, so that
    the first window is filled as the others are."""
    offset, shift, last = windows
    inside = (tl.maximum(t, 0) + offset) // STEPS - shift
    return tl.minimum(tl.maximum(inside, 0), last) + tl.minimum(t, 0)


@triton.jit
def kind_of(t, windows, STEPS: tl.constexpr, KINDS: tl.constexpr):
    """Which of the tables row t has."""
    kind = t + windows[0] - STEPS * first_of(t, windows, STEPS)
    return tl.minimum(tl.maximum(kind, 0), KINDS - 1)


@triton.jit
def base_of(values, kind, BASE: tl.constexpr):
    """Of the values of a window's points, the one at its base."""
    value = values[BASE[0]]
    for k in tl.static_range(1, len(BASE)):
        if BASE[k] != BASE[k - 1]:
            value = tl.where(kind >= k, values[BASE[k]], value)
    return value


@triton.jit
def pushed(values, value):
    """Without the first, and with a last."""
    new = ()
    for i in tl.static_range(1, len(values)):
        new = new + (values[i],)
    return new + (value,)


@triton.jit
def pulled(values, value):
    """With a first, and without the last."""
    new = (value,)
    for i in tl.static_range(len(values) - 1):
        new = new + (values[i],)
    return new


@triton.jit
def chosen(condition, ALWAYS: tl.constexpr, values, others):
    """The values where the condition holds, else the others."""
    new = ()
    for i in tl.static_range(len(values)):
        new = new + (values[i] if ALWAYS else tl.where(condition, values[i], others[i]),)
    return new


@triton.jit
def powers_of(spacing):
    """h, h², h³."""
    return spacing, spacing * spacing, spacing * spacing * spacing


@triton.jit
def state_point(table, row, state, spacing):
    """A point made of a state: the row's coefficients by the powers of h."""
    powers = powers_of(spacing)
    value = tl.load(table + 4 * row) * state[0]
    for m in tl.static_range(1, 4):
        value = tl.fma(tl.load(table + 4 * row + m) * powers[m - 1], state[m], value)
    return value


@triton.jit
def add_to_state(table, row, parts, places, there, gradient, spacing):
    """The transpose of state_point, added to what is in memory."""
    powers = powers_of(spacing)
    for m in tl.static_range(4):
        if parts[m] is not None:
            weight = tl.load(table + 4 * row + m)
            if m > 0:
                weight = weight * powers[m - 1]
            total = tl.load(parts[m] + places, mask=there, other=0.0)
            tl.store(parts[m] + places, tl.fma(gradient, weight, total), mask=there)


@triton.jit
def replaced(values, k, value):
    """The values, with another one at k."""
    new = ()
    for i in tl.static_range(len(values)):
        new = new + (tl.where(k == i, value, values[i]),)
    return new


@triton.jit
def element(values, k):
    """The value at k."""
    value = values[0]
    for i in tl.static_range(1, len(values)):
        value = tl.where(k == i, values[i], value)
    return value


# -- rows of a table ----------------------------------------------------------------------------


@triton.jit
def load_weights(table, kind, N: tl.constexpr):
    """Of each order those of the N differences of a window, one order after the other."""
    weights = ()
    for i in tl.static_range(4 * N):
        weights = weights + (tl.load(table + kind * (4 * N) + i),)
    return weights


@triton.jit
def scaled(values, inverse):
    """Values of position to jerk over 1, h, h², h³; some of each."""
    N: tl.constexpr = len(values) // 4
    new = ()
    for i in tl.static_range(4 * N):
        if i < N:
            new = new + (values[i],)
        else:
            # not a plain product: compilers would make a vector of four, and multiply by 1, too
            new = new + (tl.fma(values[i], inverse[i // N - 1], 0.0),)
    return new


@triton.jit
def even_row(points, differences, weights, kind, BASE: tl.constexpr, COPIES: tl.constexpr):
    """The four values of a window, of points one unit apart."""
    N: tl.constexpr = len(differences)
    row = ()
    for m in tl.static_range(4):
        if m == 0:
            value = base_of(points, kind, BASE)
        else:
            value = tl.zeros(points[0].shape, tl.float64)
        if m > 0 or not COPIES:
            for i in tl.static_range(N):
                value = tl.fma(weights[m * N + i], differences[i], value)
        row = row + (value,)
    return row


@triton.jit
def pull_even_row(differences, upstream, rows, weights, COPIES: tl.constexpr):
    """The transpose of even_row, added to the gradients of the differences."""
    N: tl.constexpr = len(differences)
    new = ()
    for i in tl.static_range(N):
        value = differences[i]
        for m in tl.static_range(4):
            if rows[m] is not None and (m > 0 or not COPIES):
                value = tl.fma(weights[m * N + i], upstream[m], value)
        new = new + (value,)
    return new


@triton.jit
def pull_base(points, upstream, kind, BASE: tl.constexpr):
    """The transpose of base_of, added to the gradients of the points."""
    base = BASE[0]
    for k in tl.static_range(1, len(BASE)):
        base = tl.where(kind >= k, BASE[k], base)
    new = ()
    for i in tl.static_range(len(points)):
        if len(BASE) == 1:
            if i == BASE[0]:
                new = new + (points[i] + upstream,)
            else:
                new = new + (points[i],)
        else:
            new = new + (tl.where(base == i, points[i] + upstream, points[i]),)
    return new


# -- rows with steps of their own ---------------------------------------------------------------


@triton.jit
def newton_point(gaps, quotients, before, point, gap):
    """Divided differences of the window that has moved on by a point, and the gaps in it.

    Of points 0 … 4 of a window, ``quotients`` are (0 1), (1 2), (2 3), (3 4), (0 1 2), (1 2 3),
    (2 3 4), (0 … 3), (1 … 4), (0 … 4).
    """
    q = quotients
    gaps = pushed(gaps, gap)
    first = (point - before) / gap
    second = (first - q[3]) / (gaps[2] + gap)
    third = (second - q[6]) / (gaps[1] + gaps[2] + gap)
    fourth = (third - q[8]) / (gaps[0] + gaps[1] + gaps[2] + gap)
    return gaps, (q[1], q[2], q[3], first, q[5], q[6], second, q[8], third, fourth)


@triton.jit
def pull_newton_point(gaps, gradients, gap):
    """The transpose: gradients within the window a point before, and that of the difference
    between the last two points."""
    q = gradients
    fourth = q[9] / (gaps[0] + gaps[1] + gaps[2] + gaps[3])
    third = (q[8] + fourth) / (gaps[1] + gaps[2] + gaps[3])
    second = (q[6] + third) / (gaps[2] + gaps[3])
    first = (q[3] + second) / gaps[3]
    zero = tl.zeros(first.shape, tl.float64)
    before = (zero, q[0], q[1], q[2] - second, zero, q[4], q[5] - third, zero, q[7] - fourth, zero)
    return pulled(gaps, gap), before, first


@triton.jit
def newton_weights(gaps, kind, BASE: tl.constexpr):
    """Elementary symmetric polynomials of the base's distances from points 0 … 3 of the window:
    derivatives of the products (t − t_0)(t − t_1) … in Newton's form of the polynomial."""
    zero = tl.zeros(gaps[0].shape, tl.float64)
    times = (zero, gaps[0])
    for i in tl.static_range(1, 4):
        times = times + (times[i] + gaps[i],)
    base = base_of(times, kind, BASE)
    a, b, c, d = base - times[0], base - times[1], base - times[2], base - times[3]
    sum_2, sum_3 = a + b, a + b + c
    pairs_3 = tl.fma(sum_2, c, a * b)
    return (
        sum_2,
        pairs_3,
        tl.fma(pairs_3, d, a * b * c),
        2.0 * sum_3,
        2.0 * tl.fma(sum_3, d, pairs_3),
        6.0 * (sum_3 + d),
    )


@triton.jit
def newton_row(points, gaps, quotients, kind, BASE: tl.constexpr):
    """The four values of a window with steps of its own."""
    w = newton_weights(gaps, kind, BASE)
    q = quotients
    velocity = tl.fma(q[4], w[0], tl.fma(q[7], w[1], tl.fma(q[9], w[2], q[0])))
    acceleration = tl.fma(q[7], w[3], tl.fma(q[9], w[4], 2.0 * q[4]))
    jerk = tl.fma(q[9], w[5], 6.0 * q[7])
    return base_of(points, kind, BASE), velocity, acceleration, jerk


@triton.jit
def pull_newton_row(gaps, gradients, upstream, kind, BASE: tl.constexpr):
    """The transpose, added to the gradients of the quotients."""
    w = newton_weights(gaps, kind, BASE)
    q, v, a, j = gradients, upstream[1], upstream[2], upstream[3]
    of_2 = tl.fma(v, w[0], q[4] + 2.0 * a)
    of_3 = tl.fma(v, w[1], tl.fma(a, w[3], q[7] + 6.0 * j))
    of_4 = tl.fma(v, w[2], tl.fma(a, w[4], tl.fma(j, w[5], q[9])))
    return (q[0] + v, q[1], q[2], q[3], of_2, q[5], q[6], of_3, q[8], of_4)


# -- points -------------------------------------------------------------------------------------


@triton.jit
def load_points(
    pointers, mask, to_lanes, begin, windows, spans, ends, lane, spacing,
    STEPS: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """The last points of the windows of rows begin … begin + K − 1; those of states are made."""
    points = load_tile(pointers, mask, to_lanes, K)
    start, goal = ends
    if start[0] is not None or goal[0] is not None:
        head, _, tail = spans
        low = first_of(begin, windows, STEPS) + WIDTH - 1
        high = first_of(begin + K - 1, windows, STEPS) + WIDTH - 1
        if (low < head) | (high >= tail):
            for k in range(K):
                point = first_of(begin + k, windows, STEPS) + WIDTH - 1
                if start[0] is not None:
                    if (point >= 0) & (point < head):
                        state = load_state(start[1], start[2], start[3], lane, D)
                        made = state_point(start[0], point, state, spacing)
                        points = replaced(points, k, made)
                if goal[0] is not None:
                    if point >= tail:
                        state = load_state(goal[1], goal[2], goal[3], lane, D)
                        made = state_point(goal[0], point - tail, state, spacing)
                        points = replaced(points, k, made)
    return points


@triton.jit
def give_points(
    points, begin, held_sum, windows, spans, ends, places, there, spacing,
    STEPS: tl.constexpr, WIDTH: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Adds the gradients of points that states made to those of the states, and those of the last
    action, held, to that of the action itself."""
    head, held, tail = spans
    start, goal = ends
    low = first_of(begin, windows, STEPS) + WIDTH - 1
    high = first_of(begin + K - 1, windows, STEPS) + WIDTH - 1
    if (low < head) | (high >= held - 1):
        for j in range(K):
            k = K - 1 - j
            t = begin + k
            point = first_of(t, windows, STEPS) + WIDTH - 1
            value = element(points, k)
            if first_of(t, windows, STEPS) != first_of(t - 1, windows, STEPS):
                if start[0] is not None:
                    if (point >= 0) & (point < head):
                        add_to_state(start[0], point, start[1], places, there, value, spacing)
                if goal[0] is not None:
                    if point >= tail:
                        add_to_state(goal[0], point - tail, goal[1], places, there, value, spacing)
                if (point >= held) & (point < tail):
                    held_sum += value
                if point == held - 1:
                    points = replaced(points, k, value + held_sum)
    return points, held_sum


@triton.jit
def action_of(t, windows, spans, STEPS: tl.constexpr, WIDTH: tl.constexpr):
    """The action that is the last point of row t's window, and whether one is."""
    head, held, tail = spans
    point = first_of(t, windows, STEPS) + WIDTH - 1
    action = tl.minimum(point, held - 1) - head
    return action.to(tl.int64), (point >= head) & (point < tail) & (action >= 0)
