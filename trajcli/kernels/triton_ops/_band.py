"""The band and its adjoint in Triton; see :class:`trajcli.kernels.program.Band`.

Inner rows, whose windows hold actions alone and repeat the same weights, are computed in tiles: a
lane owns K consecutive windows of a column and, in forward, computes one row of each. It loads and
converts each point once and takes each difference once for all orders; weights are loaded once for
a program, which is one warp. Where windows have one row each, lanes exchange the rows before they
store them, see :func:`store_tile`. All other rows are computed one by one, by the same formula: a
lane computes one row of one dof from the points of its window; in the adjoint, one point from the
rows that use it. These lanes are in the order of memory. Windows overlap, so that caches have most
of what lanes load.

A table [order, point, kind] has the weights of the points of one kind of window in a column; where
steps differ, those of each row. A point of weight zero is not used: its NaN stays in other rows.
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

NARROW = tl.constexpr(8)
"""The widest window whose points all are in registers at once; only such have states about them,
and are computed in tiles."""
TOGETHER = tl.constexpr(4)
"""Rows whose gradients are loaded at once."""


@kernel
def forward(
    actions, start, start_index, start_count, goal, goal_index, goal_count, dt, rows, ends_table,
    table, batch, horizon, used, held, dt_stride, table_stride, entries, count, last, offset, shift,
    tiles, inner, inner_row, inner_action,
    START_ROW: tl.constexpr, HEAD: tl.constexpr, SPACING: tl.constexpr,
    D: tl.constexpr, WIDTH: tl.constexpr, STEPS: tl.constexpr, EVEN: tl.constexpr,
    FIRST: tl.constexpr, COPIES: tl.constexpr, K: tl.constexpr, LANES: tl.constexpr,
    PITCH: tl.constexpr, ROWS: tl.constexpr, PHASE: tl.constexpr,
):  # fmt: skip
    """Computes rows [B, T, D] from actions [B, H, D] and states [S, D].

    The first ``tiles`` programs compute the rows of ``inner`` windows, which begin at row
    ``inner_row`` and at action ``inner_action``; the other programs all rows but these.
    """
    all_rows = START_ROW + count
    if tl.program_id(0) < tiles:
        if K > 0:
            forward_tile(
                actions, dt, rows, table, batch, horizon, all_rows, dt_stride, entries, shift,
                inner, inner_row, inner_action,
                SPACING, D, WIDTH, STEPS, FIRST, COPIES, K, LANES, PITCH, ROWS, PHASE,
            )  # fmt: skip
    else:
        program, outer = tl.program_id(0) - tiles, all_rows - inner * STEPS
        trajectory, row, dof, there = elements(program, batch, outer, D, LANES)
        row = tl.where(row >= inner_row, row + inner * STEPS, row)
        t = tl.maximum(row - START_ROW, 0)
        uses = there & (row >= START_ROW)
        first = first_of(t, (offset, shift, last), STEPS)
        kind = t + offset - STEPS * first if EVEN else t
        column = (table + trajectory * table_stride + kind, entries.to(tl.int64))
        spacing = SPACING * tl.load(dt + trajectory * dt_stride, mask=there, other=1.0)
        action = actions + trajectory * horizon * D + dof
        ends = (HEAD, used, held)
        state = zeros(dof, 4)
        near = False  # whether any lane needs states
        if START_ROW or ends_table is not None:
            beyond = (first < HEAD) | (first + WIDTH > HEAD + used + held)
            near = tl.max((there & (beyond | (row < START_ROW))).to(tl.int32), 0) > 0
            if near:
                state = load_state(start, start_index, start_count, trajectory, dof, there, D)
        if WIDTH <= NARROW:
            points = ()
            for i in tl.static_range(WIDTH):
                points = points + (load_action(action, first + i, ends, uses, D),)
            if ends_table is not None:
                if near:
                    end = load_state(goal, goal_index, goal_count, trajectory, dof, there, D)
                    points = with_states(points, first, ends_table, state, end, spacing, uses, ends)
            sums = (zeros(dof, 4), zeros(dof, 4), zeros(dof, 4))
            for i in tl.static_range(WIDTH):
                sums = add_point(sums, points[i], column, i, uses, WIDTH)
        else:
            sums = (zeros(dof, 4), zeros(dof, 4), zeros(dof, 4))
            for i in range(WIDTH):
                point = load_action(action, first + i, ends, uses, D)
                sums = add_point(sums, point, column, i, uses, WIDTH)
        values = values_of(sums, scale_of(spacing, EVEN))
        if START_ROW:
            chosen = ()
            for m in tl.static_range(4):
                chosen = chosen + (tl.where(row < START_ROW, state[m], values[m]),)
            values = chosen
        store_row(rows, values, (trajectory * all_rows + row) * D + dof, there)


@kernel
def adjoint(
    actions, start, goal, dt, rows, ends_table, table, batch, horizon, used, held, dt_stride,
    table_stride, entries, count, last, offset, shift, tiles, inner, inner_row, inner_action,
    programs, steps,
    START_ROW: tl.constexpr, HEAD: tl.constexpr, TAIL: tl.constexpr, SPACING: tl.constexpr,
    D: tl.constexpr, WIDTH: tl.constexpr, STEPS: tl.constexpr, EVEN: tl.constexpr,
    FIRST: tl.constexpr, COPIES: tl.constexpr, K: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Computes gradients of actions [B, H, D] from those of rows, by the first ``programs``; those
    after them compute the gradients of starts, then of goals [B, D].

    The first ``tiles`` of all compute the gradients of those actions that inner windows alone use.
    """
    windows = (offset, shift, last, count)
    all_rows = START_ROW + count
    alone = tl.maximum(inner - (WIDTH - 1), 0)
    first_alone = inner_action + WIDTH - 1
    if tl.program_id(0) < tiles:
        if K > 0 and actions is not None:
            adjoint_tile(
                actions, dt, rows, table, batch, horizon, all_rows, dt_stride, entries, windows,
                inner, inner_row, inner_action, 1 if STEPS == 1 else steps,
                START_ROW, HEAD, SPACING, D, WIDTH, STEPS, FIRST, COPIES, K, LANES,
            )  # fmt: skip
    else:
        number = tl.program_id(0) - programs
        of_states = number >= 0
        goals = tl.cdiv(batch * D, LANES)
        of_goal = number >= goals
        if of_states:
            number -= tl.where(of_goal, goals, 0)
            trajectory, action, dof, there = elements(number, batch, 1, D, LANES)
            point = action + tl.where(of_goal, HEAD + used + held, 0)
            points = tl.where(of_goal, TAIL, HEAD)
        else:
            program = tl.program_id(0) - tiles
            trajectory, action, dof, there = elements(program, batch, horizon - alone, D, LANES)
            action = tl.where(action >= first_alone, action + alone, action)
            point = HEAD + action
            points = held + 1  # the last action takes the gradients of the points that hold it, too
        step = tl.load(dt + trajectory * dt_stride, mask=there, other=1.0)
        scale, powers = scale_of(SPACING * step, EVEN), powers_of(SPACING * step)
        row = trajectory * all_rows * D + dof
        column = (table + trajectory * table_stride, entries.to(tl.int64))
        total = tl.zeros([LANES], tl.float64)
        state = zeros(dof, 4)
        if START_ROW:
            state = load_row(rows, row, there & of_states & (of_goal == 0), 0.0)
        for i in range(points):
            uses = there & (of_states | ((action < used) & ((i == 0) | (action == used - 1))))
            gradient = pull_point(
                rows, row + START_ROW * D, column, point + i, windows, scale, uses,
                D, WIDTH, STEPS, EVEN,
            )  # fmt: skip
            total += gradient
            if ends_table is not None:
                if of_states:
                    more = ()
                    for m in tl.static_range(4):
                        weight = tl.load(ends_table + 4 * (i + tl.where(of_goal, HEAD, 0)) + m)
                        value = tl.fma(weight * powers[m], gradient, state[m])
                        more = more + (tl.where(weight != 0.0, value, state[m]),)
                    state = more
        if of_states:
            store_row(start, state, trajectory * D + dof, there & (of_goal == 0))
            store_row(goal, state, trajectory * D + dof, there & of_goal)
        else:
            store(actions, total, (trajectory * horizon + action) * D + dof, there)


@triton.jit
def tile(program, windows, K: tl.constexpr):
    """Returns the number of the program's group of columns, and the first of its K windows."""
    blocks = tl.cdiv(windows, K)
    group = program // blocks
    return group, (program - group * blocks) * K


@triton.jit
def forward_tile(
    actions, dt, rows, table, batch, horizon, all_rows, dt_stride, entries, shift,
    inner, inner_row, inner_action, SPACING: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
    STEPS: tl.constexpr, FIRST: tl.constexpr, COPIES: tl.constexpr, K: tl.constexpr,
    LANES: tl.constexpr, PITCH: tl.constexpr, ROWS: tl.constexpr, PHASE: tl.constexpr,
):  # fmt: skip
    """Computes one row of each of K inner windows by the formula of :func:`add_point`.

    A window has as many rows as there are steps; a program computes the same one for all windows.

    FIRST: for each order the first point of a window that it uses.
    """
    step = tl.program_id(0) % STEPS
    group, block = tile(tl.program_id(0) // STEPS, inner + (PHASE - 1), K)
    trajectory, dof, there = columns(group, batch, D, PITCH, LANES)
    begin = block
    if PHASE > 1:
        begin -= shift_of(trajectory, all_rows, inner_row, PHASE)
    action = actions + (trajectory * horizon + inner_action + begin) * D + dof
    row = (trajectory * all_rows + inner_row + begin * STEPS + step) * D + dof
    scale = scale_of(SPACING * tl.load(dt + trajectory * dt_stride, mask=there, other=1.0), True)
    kind = table + shift * STEPS + step
    zero = tl.zeros([LANES], tl.float64)
    points = ()
    spoilt = tl.zeros([LANES], tl.float32)
    for k in tl.static_range(K + WIDTH - 1):
        mine = there & within(begin + k, inner + WIDTH - 1)
        loaded = tl.load(action + k * D, mask=mine, other=0.0)
        # NaN if any is NaN or Inf, or so large that differences may be Inf
        spoilt += ((loaded + loaded) * 0.0).to(tl.float32)
        points = points + (loaded.to(tl.float64),)
    weights = ()
    for m in tl.static_range(4):
        for i in tl.static_range(WIDTH):
            if rows[m] is None or i <= FIRST[m] or (m == 0 and COPIES):
                weights = weights + (0.0,)
            else:
                weights = weights + (tl.load(kind + (m * WIDTH + i) * entries),)
    if tl.max((spoilt != 0.0).to(tl.int32), 0) > 0:
        # without points of weight zero, which may be NaN or Inf
        for w in range(K):
            uses = there & within(begin + w, inner)
            column = (kind + dof * 0, entries.to(tl.int64))
            sums = (zeros(dof, 4), zeros(dof, 4), zeros(dof, 4))
            for j in range(WIDTH):
                point = tl.load(action + (w + j) * D, mask=uses, other=0.0).to(tl.float64)
                sums = add_point(sums, point, column, j, uses, WIDTH)
            store_row(rows, values_of(sums, scale), row + w * STEPS * D, uses)
    else:
        if ROWS > 1:
            origin, places, number, exists = tile_of(
                group, batch, all_rows, inner_row, D, PITCH, ROWS, PHASE, LANES
            )  # fmt: skip
        kept = ()
        for k in tl.static_range(K):
            values = ()
            for m in tl.static_range(4):
                value = zero
                if rows[m] is not None:
                    near = points[k + FIRST[m]]
                    total = zero
                    if m > 0 or not COPIES:
                        for i in tl.static_range(FIRST[m] + 1, WIDTH):
                            total = tl.fma(weights[m * WIDTH + i], points[k + i] - near, total)
                    value = total + near if m == 0 else total * scale[m]
                values = values + (value,)
            if ROWS == 1 or STEPS > 1:
                store_row(rows, values, row + k * STEPS * D, there & (begin + k < inner))
            else:
                kept = kept + (rounded(rows, values),)
                if len(kept) == ROWS:
                    now = number + (block + k + 1 - ROWS)
                    wanted = exists & within(now, inner)
                    at = origin + (block + k + 1 - ROWS).to(tl.int64) * D
                    store_tile(rows, kept, at, places, wanted, PITCH, LANES)
                    kept = ()


@triton.jit
def adjoint_tile(
    actions, dt, rows, table, batch, horizon, all_rows, dt_stride, entries, windows,
    inner, inner_row, inner_action, steps, START_ROW: tl.constexpr, HEAD: tl.constexpr,
    SPACING: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, STEPS: tl.constexpr,
    FIRST: tl.constexpr, COPIES: tl.constexpr, K: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Computes the gradients of K actions that inner windows alone use.

    Action k of the tile is used by windows k to k + WIDTH − 1 of the tile.
    """
    alone = inner - (WIDTH - 1)
    group, begin = tile(tl.program_id(0), alone, K)
    trajectory, dof, there = columns(group, batch, D, D, LANES)
    row = (trajectory * all_rows + inner_row + begin * STEPS) * D + dof
    action = inner_action + WIDTH - 1 + begin
    into = (trajectory * horizon + action) * D + dof
    scale = scale_of(SPACING * tl.load(dt + trajectory * dt_stride, mask=there, other=1.0), True)
    kind = windows[1] * STEPS  # shift
    totals = zeros(dof, K)
    for m in tl.static_range(4):
        if rows[m] is not None:
            sums = zeros(dof, K)
            for s in tl.range(steps):  # a runtime number, as the loop unrolled spills registers
                new = ()
                if m == 0 and COPIES:
                    for k in tl.static_range(K):
                        place = row + ((k + WIDTH - 1 - FIRST[0]) * STEPS + s) * D
                        loaded = tl.load(rows[m] + place, mask=there & (begin + k < alone), other=0)
                        new = new + (sums[k] + loaded.to(tl.float64),)
                else:
                    loaded_all, weights = (), ()
                    for k in tl.static_range(K + WIDTH - 1):
                        place = row + (k * STEPS + s) * D
                        loaded = tl.load(rows[m] + place, mask=there & (begin + k < inner), other=0)
                        loaded_all = loaded_all + (loaded.to(tl.float64),)
                    for i in tl.static_range(WIDTH):
                        place = (m * WIDTH + WIDTH - 1 - i) * entries + kind + s
                        weights = weights + (tl.load(table + place),)
                    for k in tl.static_range(K):
                        value = sums[k]
                        for i in tl.static_range(WIDTH):
                            value = tl.fma(weights[i], loaded_all[k + i], value)
                        new = new + (value,)
                sums = new
            more = ()
            for k in tl.static_range(K):
                more = more + (tl.fma(sums[k], scale[m], totals[k]) if m > 0 else sums[k],)
            totals = more
    spoilt = tl.zeros([LANES], tl.float64)
    for k in tl.static_range(K):
        spoilt += totals[k] * 0.0
        store(actions, totals[k], into + k * D, there & (begin + k < alone))
    if tl.max((spoilt != 0.0).to(tl.int32), 0) > 0:
        # compute gradients that are NaN or Inf again, without rows that do not use the action
        for a in range(K):
            mine = there & (begin + a < alone)
            found = tl.load(actions + into + a * D, mask=mine, other=0.0)
            uses = mine & (found * 0.0 != 0.0)
            gradient = pull_point(
                rows, (trajectory * all_rows + START_ROW) * D + dof, (table, entries.to(tl.int64)),
                HEAD + action + a + dof * 0, windows, scale, uses, D, WIDTH, STEPS, True,
            )  # fmt: skip
            store(actions, gradient, into + a * D, uses)


@triton.jit
def elements(program, batch, rows, D: tl.constexpr, LANES: tl.constexpr):
    """Returns the trajectory, the row and the dof of each lane, in the order of memory, and whether
    there is such a trajectory."""
    size = rows * D
    begin = program.to(tl.int64) * LANES
    lane = (begin % size).to(tl.int32) + tl.arange(0, LANES)
    trajectory = begin // size + lane // size
    rest = lane % size
    return trajectory, rest // D, rest % D, trajectory < batch


@triton.jit
def first_of(t, windows, STEPS: tl.constexpr):
    """Returns the first point of row t's window."""
    offset, shift, last = windows[0], windows[1], windows[2]
    return tl.minimum(tl.maximum((t + offset) // STEPS - shift, 0), last)


@triton.jit
def load_action(action, point, ends, there, D: tl.constexpr):
    """Loads a point that is an action, or the last one held, in float64; zero for others."""
    head, used, held = ends
    number = tl.minimum(point - head, used - 1)
    mask = there & (point >= head) & (point < head + used + held)
    return tl.load(action + number * D, mask=mask, other=0).to(tl.float64)


@triton.jit
def powers_of(h):
    """Returns 1, h, h², h³."""
    return tl.full(h.shape, 1.0, tl.float64), h, h * h, h * h * h


@triton.jit
def scale_of(spacing, EVEN: tl.constexpr):
    """Returns what sums are multiplied by. Weights of a row's own have its steps in them."""
    unit = tl.full(spacing.shape, 1.0, tl.float64)
    return powers_of(unit / spacing if EVEN else unit)


@triton.jit
def with_states(points, first, ends_table, start, goal, spacing, there, ends):
    """Makes the points before and after the actions of states, and returns all points.

    A row of the table has the coefficients of a state's parts times powers of h. A part whose
    coefficient is zero is not used.
    """
    head, used, held = ends
    powers = powers_of(spacing)
    new = ()
    for i in tl.static_range(len(points)):
        point = first + i
        of_start, of_goal = point < head, point >= head + used + held
        number = tl.where(of_start, point, point - used - held)
        made = there & (of_start | of_goal)
        value = tl.zeros(first.shape, tl.float64)
        for m in tl.static_range(4):
            weight = tl.load(ends_table + 4 * number + m, mask=made, other=0.0)
            part = tl.where(of_start, start[m], goal[m])
            more = tl.fma(weight * powers[m], part, value)
            value = tl.where(weight != 0.0, more, value)
        new = new + (tl.where(made, value, points[i]),)
    return new


@triton.jit
def add_point(sums, point, column, i, there, WIDTH: tl.constexpr):
    """Adds point i of a window to the four values.

    sums: Σ w·(X − X_n), X_n, and the weight of n, where n is the first point that is used. So what
    stands still has derivatives of exactly zero.
    """
    weights, entries = column
    values, firsts, begun = (), (), ()
    for m in tl.static_range(4):
        weight = tl.load(weights + (m * WIDTH + i) * entries, mask=there, other=0.0)
        uses = weight != 0.0
        near = tl.where(uses & (sums[2][m] == 0.0), point, sums[1][m])
        value = tl.where(uses, tl.fma(weight, point - near, sums[0][m]), sums[0][m])
        values = values + (value,)
        firsts = firsts + (near,)
        begun = begun + (tl.where(sums[2][m] == 0.0, weight, sums[2][m]),)
    return values, firsts, begun


@triton.jit
def values_of(sums, scale):
    """Returns the four values of rows from what :func:`add_point` has summed."""
    values = (sums[0][0] * scale[0] + sums[1][0],)
    for m in tl.static_range(1, 4):
        values = values + (sums[0][m] * scale[m],)
    return values


@triton.jit
def pull_point(
    rows, row, column, point, windows, scale, there, D: tl.constexpr, WIDTH: tl.constexpr,
    STEPS: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Returns the gradient of a point, from those of the rows that use it."""
    weights, entries = column
    offset, shift, last, count = windows
    # the rows whose windows begin at most WIDTH − 1 points before this one
    target = point - (WIDTH - 1)
    low = tl.where(target <= 0, 0, tl.maximum((target + shift) * STEPS - offset, 0))
    low = tl.where(target > last, count, low)
    high = tl.where(point >= last, count, (point + shift + 1) * STEPS - offset)
    high = tl.where(there, tl.minimum(high, count), low)
    sums = zeros(point, 4)
    for begin in range(0, tl.max(high - low, 0), TOGETHER):
        for k in tl.static_range(TOGETHER):
            t = low + begin + k
            uses = t < high
            first = first_of(t, windows, STEPS)
            kind = t + offset - STEPS * first if EVEN else t
            new = ()
            for m in tl.static_range(4):
                value = sums[m]
                if rows[m] is not None:
                    entry = (m * WIDTH + point - first) * entries + kind
                    weight = tl.load(weights + entry, mask=uses, other=0.0)
                    # a row that does not use the point gives it no NaN
                    at = rows[m] + row + t * D
                    gradient = tl.load(at, mask=uses & (weight != 0.0), other=0.0)
                    value = tl.fma(weight, gradient.to(tl.float64), value)
                new = new + (value,)
            sums = new
    total = sums[0]
    for m in tl.static_range(1, 4):
        total = tl.fma(sums[m], scale[m], total)
    return total
