"""Runs :class:`trajcli.kernels.program.Band` and its adjoint in Triton.

Windows of inner rows hold only actions and repeat the same weights. They are computed in tiles: a
lane has K consecutive windows of a column and, in forward, computes one row of each. It loads and
converts each point once and takes each difference once for all orders; weights are loaded once for
a program, which is one warp. Where windows have one row each, lanes exchange the rows before they
store them (:func:`store_tile`). All other rows are computed one by one, by the same formula: a
lane computes one row of one dof from the points of its window; in the adjoint, one point from the
rows that use it. These lanes are in the order of memory. Windows overlap, so that caches serve most
loads.

A table [order, point, kind] has the weights of the points of one kind of window in a column; where
steps differ, the weights of each row. A point of weight zero is not used: its NaN stays in rows
that use it.
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

# The widest window whose points all fit in registers. Wider ones have no states about them, and are
# not computed in tiles.
NARROW = tl.constexpr(8)
# Rows whose gradients are loaded at once: loads that do not wait for each other hide their latency.
GROUP = tl.constexpr(4)


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
        trajectory, row, dof, valid = locate_elements(program, batch, outer, D, LANES)
        row = tl.where(row >= inner_row, row + inner * STEPS, row)
        t = tl.maximum(row - START_ROW, 0)
        uses = valid & (row >= START_ROW)
        first = first_point(t, (offset, shift, last), STEPS)
        kind = t + offset - STEPS * first if EVEN else t
        column = (table + trajectory * table_stride + kind, entries.to(tl.int64))
        spacing = SPACING * tl.load(dt + trajectory * dt_stride, mask=valid, other=1.0)
        action = actions + trajectory * horizon * D + dof
        ends = (HEAD, used, held)
        state = zeros(dof, 4)
        # Few rows need states: those at the ends. A program in which no lane does skips the loads,
        # so the condition is one for all its lanes.
        needs_states = False
        if START_ROW or ends_table is not None:
            beyond = (first < HEAD) | (first + WIDTH > HEAD + used + held)
            needs_states = tl.max((valid & (beyond | (row < START_ROW))).to(tl.int32), 0) > 0
            if needs_states:
                state = load_state(start, start_index, start_count, trajectory, dof, valid, D)
        if WIDTH <= NARROW:
            points = ()
            for i in tl.static_range(WIDTH):
                points = points + (load_action(action, first + i, ends, uses, D),)
            if ends_table is not None:
                if needs_states:
                    end = load_state(goal, goal_index, goal_count, trajectory, dof, valid, D)
                    points = add_states(points, first, ends_table, state, end, spacing, uses, ends)
            sums = (zeros(dof, 4), zeros(dof, 4), zeros(dof, 4))
            for i in tl.static_range(WIDTH):
                sums = add_point(sums, points[i], column, i, uses, WIDTH)
        else:
            sums = (zeros(dof, 4), zeros(dof, 4), zeros(dof, 4))
            for i in range(WIDTH):
                point = load_action(action, first + i, ends, uses, D)
                sums = add_point(sums, point, column, i, uses, WIDTH)
        values = row_values(sums, row_scale(spacing, EVEN))
        if START_ROW:
            values = select_row(row < START_ROW, state, values)
        store_row(rows, values, (trajectory * all_rows + row) * D + dof, valid)


@kernel
def adjoint(
    actions, start, goal, dt, rows, ends_table, table, batch, horizon, used, held, dt_stride,
    table_stride, entries, count, last, offset, shift, tiles, inner, inner_row, inner_action,
    programs, steps,
    START_ROW: tl.constexpr, HEAD: tl.constexpr, TAIL: tl.constexpr, SPACING: tl.constexpr,
    D: tl.constexpr, WIDTH: tl.constexpr, STEPS: tl.constexpr, EVEN: tl.constexpr,
    FIRST: tl.constexpr, COPIES: tl.constexpr, K: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Computes gradients of actions [B, H, D] and of states [B, D] from those of rows.

    The first ``programs`` compute the gradients of actions, the next those of starts, the last
    those of goals. The first ``tiles`` compute actions that only inner windows use: ``exclusive``
    ones, from action ``first_exclusive`` on.
    """
    windows = (offset, shift, last, count)
    all_rows = START_ROW + count
    exclusive = tl.maximum(inner - (WIDTH - 1), 0)
    first_exclusive = inner_action + WIDTH - 1
    if tl.program_id(0) < tiles:
        if K > 0 and actions is not None:
            adjoint_tile(
                actions, dt, rows, table, batch, horizon, all_rows, dt_stride, entries, windows,
                inner, inner_row, inner_action, 1 if STEPS == 1 else steps,
                START_ROW, HEAD, SPACING, D, WIDTH, STEPS, FIRST, COPIES, K, LANES,
            )  # fmt: skip
    else:
        # A lane has one action, or one state. It sums the gradients of all points made of it: of an
        # action one, of the last action those that hold it as well, of a state its row of points.
        number = tl.program_id(0) - programs
        is_state = number >= 0
        goals = tl.cdiv(batch * D, LANES)
        is_goal = number >= goals
        if is_state:
            number -= tl.where(is_goal, goals, 0)
            trajectory, action, dof, valid = locate_elements(number, batch, 1, D, LANES)
            point = action + tl.where(is_goal, HEAD + used + held, 0)
            points = tl.where(is_goal, TAIL, HEAD)
        else:
            program = tl.program_id(0) - tiles
            count_others = horizon - exclusive
            trajectory, action, dof, valid = locate_elements(program, batch, count_others, D, LANES)
            action = tl.where(action >= first_exclusive, action + exclusive, action)
            point = HEAD + action
            points = held + 1
        step = tl.load(dt + trajectory * dt_stride, mask=valid, other=1.0)
        scale, powers = row_scale(SPACING * step, EVEN), step_powers(SPACING * step)
        row = trajectory * all_rows * D + dof
        column = (table + trajectory * table_stride, entries.to(tl.int64))
        total = tl.zeros([LANES], tl.float64)
        state = zeros(dof, 4)
        if START_ROW:
            state = load_row(rows, row, valid & is_state & (is_goal == 0), 0.0)
        for i in range(points):
            uses = valid & (is_state | ((action < used) & ((i == 0) | (action == used - 1))))
            gradient = pull_point(
                rows, row + START_ROW * D, column, point + i, windows, scale, uses,
                D, WIDTH, STEPS, EVEN,
            )  # fmt: skip
            total += gradient
            if ends_table is not None:
                if is_state:
                    # a point is Σ_m c_m·hᵐ·part_m; a part without a weight takes no NaN of it
                    updated = ()
                    for m in tl.static_range(4):
                        weight = tl.load(ends_table + 4 * (i + tl.where(is_goal, HEAD, 0)) + m)
                        value = tl.fma(weight * powers[m], gradient, state[m])
                        updated = updated + (tl.where(weight != 0.0, value, state[m]),)
                    state = updated
        if is_state:
            store_row(start, state, trajectory * D + dof, valid & (is_goal == 0))
            store_row(goal, state, trajectory * D + dof, valid & is_goal)
        else:
            store(actions, total, (trajectory * horizon + action) * D + dof, valid)


@triton.jit
def locate_block(program, windows, K: tl.constexpr):
    """Finds the program's group of columns, and the first of its K windows."""
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

    A window has STEPS rows; a program computes the same one for all its windows. FIRST: for each
    order the first point of a window that has a weight.
    """
    step = tl.program_id(0) % STEPS
    group, block = locate_block(tl.program_id(0) // STEPS, inner + (PHASE - 1), K)
    trajectory, dof, valid = locate_columns(group, batch, D, PITCH, LANES)
    begin = block
    # the first window begins at an aligned row, which may lie before the first inner row
    if PHASE > 1:
        begin -= phase_shift(trajectory, all_rows, inner_row, PHASE)
    action = actions + (trajectory * horizon + inner_action + begin) * D + dof
    row = (trajectory * all_rows + inner_row + begin * STEPS + step) * D + dof
    scale = row_scale(SPACING * tl.load(dt + trajectory * dt_stride, mask=valid, other=1.0), True)
    kind = table + shift * STEPS + step
    zero = tl.zeros([LANES], tl.float64)
    points = ()
    nonfinite = tl.zeros([LANES], tl.float32)
    for k in tl.static_range(K + WIDTH - 1):
        present = valid & in_range(begin + k, inner + WIDTH - 1)
        loaded = tl.load(action + k * D, mask=present, other=0.0)
        # x·0 is NaN where x is NaN or Inf; 2x, where differences of such x may be Inf
        nonfinite += ((loaded + loaded) * 0.0).to(tl.float32)
        points = points + (loaded.to(tl.float64),)
    # Differences to the first point are zero for that point itself, and points before it have no
    # weight. Positions that copy points need no weights at all.
    weights = ()
    for m in tl.static_range(4):
        for i in tl.static_range(WIDTH):
            if rows[m] is None or i <= FIRST[m] or (m == 0 and COPIES):
                weights = weights + (0.0,)
            else:
                weights = weights + (tl.load(kind + (m * WIDTH + i) * entries),)
    if tl.max((nonfinite != 0.0).to(tl.int32), 0) > 0:
        # slower, point by point: those of weight zero, which may be NaN or Inf, are left out
        for w in range(K):
            uses = valid & in_range(begin + w, inner)
            column = (kind + dof * 0, entries.to(tl.int64))
            sums = (zeros(dof, 4), zeros(dof, 4), zeros(dof, 4))
            for j in range(WIDTH):
                point = tl.load(action + (w + j) * D, mask=uses, other=0.0).to(tl.float64)
                sums = add_point(sums, point, column, j, uses, WIDTH)
            store_row(rows, row_values(sums, scale), row + w * STEPS * D, uses)
    else:
        if ROWS > 1:
            origin, offsets, number, exists = locate_tile(
                group, batch, all_rows, inner_row, D, PITCH, ROWS, PHASE, LANES
            )  # fmt: skip
        pending = ()
        for k in tl.static_range(K):
            values = ()
            for m in tl.static_range(4):
                value = zero
                if rows[m] is not None:
                    reference = points[k + FIRST[m]]
                    total = zero
                    if m > 0 or not COPIES:
                        for i in tl.static_range(FIRST[m] + 1, WIDTH):
                            total = tl.fma(weights[m * WIDTH + i], points[k + i] - reference, total)
                    value = total + reference if m == 0 else total * scale[m]
                values = values + (value,)
            if ROWS == 1 or STEPS > 1:
                store_row(rows, values, row + k * STEPS * D, valid & (begin + k < inner))
            else:
                pending = pending + (round_row(rows, values),)
                if len(pending) == ROWS:
                    now = number + (block + k + 1 - ROWS)
                    mask = exists & in_range(now, inner)
                    row_offset = origin + (block + k + 1 - ROWS).to(tl.int64) * D
                    store_tile(rows, pending, row_offset, offsets, mask, PITCH, LANES)
                    pending = ()


@triton.jit
def adjoint_tile(
    actions, dt, rows, table, batch, horizon, all_rows, dt_stride, entries, windows,
    inner, inner_row, inner_action, steps, START_ROW: tl.constexpr, HEAD: tl.constexpr,
    SPACING: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, STEPS: tl.constexpr,
    FIRST: tl.constexpr, COPIES: tl.constexpr, K: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Computes the gradients of K actions that only inner windows use."""
    # windows k to k + WIDTH − 1 of the tile use its action k, in the reverse order of the points
    exclusive = inner - (WIDTH - 1)
    group, begin = locate_block(tl.program_id(0), exclusive, K)
    trajectory, dof, valid = locate_columns(group, batch, D, D, LANES)
    row = (trajectory * all_rows + inner_row + begin * STEPS) * D + dof
    action = inner_action + WIDTH - 1 + begin
    results = (trajectory * horizon + action) * D + dof
    scale = row_scale(SPACING * tl.load(dt + trajectory * dt_stride, mask=valid, other=1.0), True)
    kind = windows[1] * STEPS  # shift
    totals = zeros(dof, K)
    for m in tl.static_range(4):
        if rows[m] is not None:
            sums = zeros(dof, K)
            # a number that the compiler does not know: it would unroll the loop and spill registers
            for s in tl.range(steps):
                new = ()
                if m == 0 and COPIES:
                    for k in tl.static_range(K):
                        index = row + ((k + WIDTH - 1 - FIRST[0]) * STEPS + s) * D
                        present = valid & (begin + k < exclusive)
                        loaded = tl.load(rows[m] + index, mask=present, other=0)
                        new = new + (sums[k] + loaded.to(tl.float64),)
                else:
                    loaded_all, weights = (), ()
                    for k in tl.static_range(K + WIDTH - 1):
                        index = row + (k * STEPS + s) * D
                        loaded = tl.load(rows[m] + index, mask=valid & (begin + k < inner), other=0)
                        loaded_all = loaded_all + (loaded.to(tl.float64),)
                    for i in tl.static_range(WIDTH):
                        index = (m * WIDTH + WIDTH - 1 - i) * entries + kind + s
                        weights = weights + (tl.load(table + index),)
                    for k in tl.static_range(K):
                        value = sums[k]
                        for i in tl.static_range(WIDTH):
                            value = tl.fma(weights[i], loaded_all[k + i], value)
                        new = new + (value,)
                sums = new
            # derivatives are divided by powers of the spacing, positions are not
            updated = ()
            for k in tl.static_range(K):
                updated = updated + (tl.fma(sums[k], scale[m], totals[k]) if m > 0 else sums[k],)
            totals = updated
    # x·0 is NaN where x is NaN or Inf, and 0 elsewhere
    nonfinite = tl.zeros([LANES], tl.float64)
    for k in tl.static_range(K):
        nonfinite += totals[k] * 0.0
        store(actions, totals[k], results + k * D, valid & (begin + k < exclusive))
    if tl.max((nonfinite != 0.0).to(tl.int32), 0) > 0:
        # Gradients that are NaN or Inf are computed again: rows that do not use the action, whose
        # weight is zero, are left out.
        for a in range(K):
            present = valid & (begin + a < exclusive)
            stored = tl.load(actions + results + a * D, mask=present, other=0.0)
            uses = present & (stored * 0.0 != 0.0)
            gradient = pull_point(
                rows, (trajectory * all_rows + START_ROW) * D + dof, (table, entries.to(tl.int64)),
                HEAD + action + a + dof * 0, windows, scale, uses, D, WIDTH, STEPS, True,
            )  # fmt: skip
            store(actions, gradient, results + a * D, uses)


@triton.jit
def locate_elements(program, batch, rows, D: tl.constexpr, LANES: tl.constexpr):
    """Finds trajectory, row and dof of lanes in the order of memory, and whether they exist."""
    # one division in 64 bits for all lanes; those of single lanes are in 32 bits, which are faster
    size = rows * D
    begin = program.to(tl.int64) * LANES
    lane = (begin % size).to(tl.int32) + tl.arange(0, LANES)
    trajectory = begin // size + lane // size
    rest = lane % size
    return trajectory, rest // D, rest % D, trajectory < batch


@triton.jit
def first_point(t, windows, STEPS: tl.constexpr):
    """Computes the first point of row t's window: see program.Windows."""
    offset, shift, last = windows[0], windows[1], windows[2]
    return tl.minimum(tl.maximum((t + offset) // STEPS - shift, 0), last)


@triton.jit
def load_action(action, point, ends, valid, D: tl.constexpr):
    """Loads a point that is an action, or repeats the last one, in float64; zero for others."""
    head, used, held = ends
    number = tl.minimum(point - head, used - 1)
    mask = valid & (point >= head) & (point < head + used + held)
    return tl.load(action + number * D, mask=mask, other=0).to(tl.float64)


@triton.jit
def step_powers(h):
    """Computes 1, h, h², h³."""
    return tl.full(h.shape, 1.0, tl.float64), h, h * h, h * h * h


@triton.jit
def row_scale(spacing, EVEN: tl.constexpr):
    """Computes the factors of sums, h⁻ᵐ; 1 where steps differ, as weights then have them."""
    unit = tl.full(spacing.shape, 1.0, tl.float64)
    return step_powers(unit / spacing if EVEN else unit)


@triton.jit
def add_states(points, first, ends_table, start, goal, spacing, valid, ends):
    """Adds the points before and after the actions, Σ_m c_m·hᵐ·part_m, c a row of the table."""
    # a part whose coefficient is zero is not used, so that its NaN stays out
    head, used, held = ends
    powers = step_powers(spacing)
    new = ()
    for i in tl.static_range(len(points)):
        point = first + i
        is_start, is_goal = point < head, point >= head + used + held
        number = tl.where(is_start, point, point - used - held)
        is_made = valid & (is_start | is_goal)
        value = tl.zeros(first.shape, tl.float64)
        for m in tl.static_range(4):
            weight = tl.load(ends_table + 4 * number + m, mask=is_made, other=0.0)
            part = tl.where(is_start, start[m], goal[m])
            updated = tl.fma(weight * powers[m], part, value)
            value = tl.where(weight != 0.0, updated, value)
        new = new + (tl.where(is_made, value, points[i]),)
    return new


@triton.jit
def add_point(sums, point, column, i, valid, WIDTH: tl.constexpr):
    """Adds point i of a window to the four values.

    sums: Σ w·(X − X_n), X_n, and the weight of n, which is the first point with a weight. With
    differences, joints that stand still have derivatives of exactly zero.
    """
    # until n is found its weight is 0, and the point at hand is the reference of a zero difference
    weights, entries = column
    values, references, first_weights = (), (), ()
    for m in tl.static_range(4):
        weight = tl.load(weights + (m * WIDTH + i) * entries, mask=valid, other=0.0)
        uses = weight != 0.0
        reference = tl.where(uses & (sums[2][m] == 0.0), point, sums[1][m])
        value = tl.where(uses, tl.fma(weight, point - reference, sums[0][m]), sums[0][m])
        values = values + (value,)
        references = references + (reference,)
        first_weights = first_weights + (tl.where(sums[2][m] == 0.0, weight, sums[2][m]),)
    return values, references, first_weights


@triton.jit
def row_values(sums, scale):
    """Computes the four values of rows from the sums of :func:`add_point`."""
    values = (sums[0][0] * scale[0] + sums[1][0],)
    for m in tl.static_range(1, 4):
        values = values + (sums[0][m] * scale[m],)
    return values


@triton.jit
def pull_point(
    rows, row, column, point, windows, scale, valid, D: tl.constexpr, WIDTH: tl.constexpr,
    STEPS: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Sums the gradient of a point over the rows that use it."""
    weights, entries = column
    offset, shift, last, count = windows
    # The rows whose windows begin at most WIDTH − 1 points before this one: inverting
    # first = (t + offset) // STEPS − shift, which is clipped to 0 and last, so that the first and
    # the last window have more rows.
    target = point - (WIDTH - 1)
    low = tl.where(target <= 0, 0, tl.maximum((target + shift) * STEPS - offset, 0))
    low = tl.where(target > last, count, low)
    high = tl.where(point >= last, count, (point + shift + 1) * STEPS - offset)
    high = tl.where(valid, tl.minimum(high, count), low)
    sums = zeros(point, 4)
    for begin in range(0, tl.max(high - low, 0), GROUP):
        for k in tl.static_range(GROUP):
            t = low + begin + k
            uses = t < high
            first = first_point(t, windows, STEPS)
            kind = t + offset - STEPS * first if EVEN else t
            new = ()
            for m in tl.static_range(4):
                value = sums[m]
                if rows[m] is not None:
                    entry = (m * WIDTH + point - first) * entries + kind
                    weight = tl.load(weights + entry, mask=uses, other=0.0)
                    # a row that does not use the point passes it no NaN
                    pointer = rows[m] + row + t * D
                    gradient = tl.load(pointer, mask=uses & (weight != 0.0), other=0.0)
                    value = tl.fma(weight, gradient.to(tl.float64), value)
                new = new + (value,)
            sums = new
    total = sums[0]
    for m in tl.static_range(1, 4):
        total = tl.fma(sums[m], scale[m], total)
    return total
