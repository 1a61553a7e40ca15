"""The band and its adjoint in Triton; see :class:`trajcli.kernels.program.Band`.

A lane computes one row of one dof from the points of its window; the adjoint's, one point from the
rows that use it. Lanes are in the order of memory, which makes every access a run of neighbours,
whatever D is. Windows overlap, so that caches have most of what lanes load.

A table has the weights of one kind of window in a column [order, i, kind]; where steps differ,
those of each row. The forward kernel's apply to differences of neighbours: where two are equal, the
point between has no weight, and the row does not use it. The adjoint's apply to points.
"""

from __future__ import annotations

import triton
import triton.language as tl

from trajcli.kernels.triton_ops.states import load_row, load_state, store_row

NARROW = tl.constexpr(8)
"""The widest window whose points all are in registers at once; only such have states about them."""
SIZES = ["start_count", "goal_count", "batch", "used", "held", "actions_stride", "rows_stride"]
SIZES += ["dt_stride", "table_stride", "entries", "count", "last", "offset", "shift", "begin"]
SIZES += ["horizon", "programs", "inner", "reach"]
"""Not specialised, so that a last, smaller block needs no other kernel."""
POINTERS = ["actions", "start", "start_index", "goal", "goal_index", "dt", "rows"]
POINTERS += ["table", "bases", "ends_table"]
"""Not specialised by alignment: arrays may begin anywhere."""


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=POINTERS)
def forward(
    actions, start, start_index, start_count, goal, goal_index, goal_count, dt, rows,
    ends_table, table, bases, batch, begin, used, held, actions_stride, rows_stride,
    dt_stride, table_stride, entries, count, last, offset, shift,
    START_ROW: tl.constexpr, HEAD: tl.constexpr, SPACING: tl.constexpr, D: tl.constexpr,
    WIDTH: tl.constexpr, STEPS: tl.constexpr, EVEN: tl.constexpr, BASE: tl.constexpr,
    EVER: tl.constexpr, ALWAYS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Rows [B, T, D] from actions [B, ≥ used, D] and states [S, D]. BASE: that of all windows, or
    −1. EVER, ALWAYS: which points some and all windows use, as bits by order and point."""
    trajectory, row, dof, there, first_row, last_row = elements(batch, START_ROW + count, D, LANES)
    t = tl.maximum(row - START_ROW, 0)
    windows = (offset, shift, last)
    first = first_of(t, windows, STEPS)
    kind = trajectory * table_stride + (t + offset - STEPS * first if EVEN else t)
    size = entries.to(tl.int64)
    trajectory += begin
    spacing = SPACING * tl.load(dt + trajectory * dt_stride, mask=there, other=1.0)
    action = actions + trajectory * actions_stride + dof
    uses = there & (row >= START_ROW)
    base = first + BASE
    if BASE < 0:
        base = first + tl.load(bases + t + offset - STEPS * first, mask=uses, other=0)
    ends = (HEAD, used, held)
    PLACE: tl.constexpr = BASE if WIDTH <= NARROW and BASE > 0 else 0
    points = ()
    if WIDTH <= NARROW:
        for i in tl.static_range(WIDTH):
            points = points + (load_action(action, first + i, ends, uses, D),)
    else:
        points = points + (load_action(action, base, ends, uses, D),)
    state = zeros(dof, 4)
    if START_ROW or ends_table is not None:
        # where any window of the program has points that states make
        before = (first_row < START_ROW) | (first_of(first_row - START_ROW, windows, STEPS) < HEAD)
        tail = HEAD + used + held
        if before | (first_of(last_row - START_ROW, windows, STEPS) + WIDTH > tail):
            state = load_state(start, start_index, start_count, trajectory, dof, there, D)
            if ends_table is not None:
                end = load_state(goal, goal_index, goal_count, trajectory, dof, there, D)
                points = with_states(points, first, ends_table, state, end, spacing, uses, ends)
    here = points[PLACE]
    if WIDTH <= NARROW:
        if BASE < 0:
            for i in tl.static_range(1, WIDTH):
                here = tl.where(base == first + i, points[i], here)
        values = narrow_row(points, here, table, kind, size, uses, EVER, ALWAYS)
    else:
        window = (action, first, ends)
        values = wide_row(window, here, table, kind, size, uses, D, WIDTH)
    scale = scale_of(spacing, EVEN)
    scaled = ()
    for m in tl.static_range(4):
        value = values[m]
        if m > 0 and EVEN:
            value = value * scale[m]
        scaled = scaled + (tl.where(row < START_ROW, state[m], value),)
    store_row(rows, scaled, trajectory * rows_stride + row * D + dof, there)


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=POINTERS)
def adjoint(
    actions, start, goal, dt, rows, ends_table, table,
    batch, begin, horizon, used, held, actions_stride, rows_stride, dt_stride, table_stride,
    entries, count, last, offset, shift, programs, inner, reach,
    START_ROW: tl.constexpr, HEAD: tl.constexpr, TAIL: tl.constexpr, SPACING: tl.constexpr,
    D: tl.constexpr, WIDTH: tl.constexpr, STEPS: tl.constexpr, EVEN: tl.constexpr,
    ORDERS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Gradients of actions [B, H, D] from those of rows by the first ``programs``; by those after
    them of starts, then of goals [B, D]. inner, reach: the most rows that use a point away from the
    ends, and any point. ORDERS: those that have weights, as bits."""
    windows = (offset, shift, last, count)
    number = tl.program_id(0) - programs
    goals = tl.cdiv(batch * D, LANES)  # the programs of starts end there
    of_goal = number >= goals
    if number < 0:
        trajectory, action, dof, there, low, high = elements(batch, horizon, D, LANES)
        point = HEAD + action
        points = tl.where(high >= used - 1, held, 0) + 1  # the last action is held
        most = tl.where((HEAD + low >= WIDTH) & (HEAD + high < last), inner, reach)
    else:
        column = number.to(tl.int64) * LANES + tl.arange(0, LANES)
        column -= tl.where(of_goal, goals, 0).to(tl.int64) * LANES
        trajectory, dof = column // D, (column % D).to(tl.int32)
        there = trajectory < batch
        action = dof * 0
        point = action + tl.where(of_goal, HEAD + used + held, 0)
        points = tl.where(of_goal, TAIL, HEAD)
        most = reach + 0
    own_table = trajectory * table_stride
    trajectory += begin
    step = tl.load(dt + trajectory * dt_stride, mask=there, other=1.0)
    scale, powers = scale_of(SPACING * step, EVEN), powers_of(SPACING * step)
    places = (trajectory * rows_stride + dof, own_table)
    upstream = (rows, START_ROW * D, table, entries.to(tl.int64))
    total = tl.zeros([LANES], tl.float64)
    state = zeros(dof, 4)
    if START_ROW:
        state = load_row(rows, places[0], there & (number >= 0) & (number < goals))
    for i in range(points):
        uses = there
        if number < 0:
            uses = there & (action < used) & ((i == 0) | (action == used - 1))
        gradient = pull_point(
            upstream, places, point + i, windows, most, scale, uses, D, WIDTH, STEPS, EVEN, ORDERS
        )
        total += gradient
        if ends_table is not None:
            if number >= 0:
                more = ()
                for m in tl.static_range(4):
                    weight = tl.load(ends_table + 4 * (i + tl.where(of_goal, HEAD, 0)) + m)
                    value = tl.fma(weight * powers[m], gradient, state[m])
                    more = more + (tl.where(weight != 0.0, value, state[m]),)
                state = more
    if number < 0:
        if actions is not None:
            place = trajectory * actions_stride + action * D + dof
            tl.store(actions + place, total.to(actions.dtype.element_ty), mask=there)
    else:
        store_row(start, state, trajectory * D + dof, there & (of_goal == 0))
        store_row(goal, state, trajectory * D + dof, there & of_goal)


@triton.jit
def elements(batch, rows, D: tl.constexpr, LANES: tl.constexpr):
    """The trajectory, the row and the dof of each lane, in the order of memory, and whether there
    is such a trajectory; the first and the last row of any lane. A program has whole trajectories,
    where several fit in, or a part of one."""
    size = rows * D
    group = tl.maximum(LANES // size, 1)
    parts = tl.cdiv(size, LANES)
    begin = tl.program_id(0) % parts * LANES
    lane = begin + tl.arange(0, LANES)
    number, rest = lane // size, lane % size
    trajectory = (tl.program_id(0) // parts).to(tl.int64) * group + number
    there = (number < group) & (trajectory < batch)
    last_row = (tl.minimum(begin + LANES, size) - 1) // D
    return trajectory, rest // D, rest % D, there, begin // D, last_row


@triton.jit
def first_of(t, windows, STEPS: tl.constexpr):
    """The first point of row t's window."""
    offset, shift, last = windows[0], windows[1], windows[2]
    return tl.minimum(tl.maximum((t + offset) // STEPS - shift, 0), last)


@triton.jit
def load_action(action, point, ends, there, D: tl.constexpr):
    """A point that is an action, or the last one held, in float64; zero for others."""
    head, used, held = ends
    number = tl.minimum(point - head, used - 1)
    mask = there & (point >= head) & (point < head + used + held)
    return tl.load(action + number * D, mask=mask, other=0).to(tl.float64)


@triton.jit
def powers_of(h):
    """1, h, h², h³."""
    return tl.full(h.shape, 1.0, tl.float64), h, h * h, h * h * h


@triton.jit
def scale_of(spacing, EVEN: tl.constexpr):
    """What values of a table are multiplied by: those of a row have its steps in them."""
    unit = tl.full(spacing.shape, 1.0, tl.float64)
    return powers_of(unit / spacing if EVEN else unit)


@triton.jit
def zeros(like, COUNT: tl.constexpr):
    """COUNT times zero in float64, for all lanes."""
    values = ()
    for _ in tl.static_range(COUNT):
        values = values + (tl.zeros(like.shape, tl.float64),)
    return values


@triton.jit
def with_states(points, first, ends_table, start, goal, spacing, there, ends):
    """The points, those before and after the actions made of states: a row of the table has the
    coefficients of a state's parts times powers of h. A part that has none is not used."""
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
def narrow_row(points, here, table, kind, entries, there, EVER: tl.constexpr, ALWAYS: tl.constexpr):
    """The four values of a window whose points are in registers: the point at the base, or zero,
    and the weights times the differences of neighbours among the points that the row uses."""
    WIDTH: tl.constexpr = len(points)
    zero = tl.zeros(here.shape, tl.float64)
    values = ()
    for m in tl.static_range(4):
        value = here
        if m > 0:
            value = zero
        previous = zero
        before = zero
        for i in tl.static_range(WIDTH):
            after = zero
            if i < WIDTH - 1:
                entry = (m * (WIDTH - 1) + i) * entries + kind
                after = tl.load(table + entry, mask=there, other=0.0)
            if (EVER >> (m * WIDTH + i)) % 2 == 1:
                new = value
                if (EVER >> (m * WIDTH)) % (1 << i) != 0:  # not the first
                    new = tl.fma(before, points[i] - previous, value)
                if (ALWAYS >> (m * WIDTH + i)) % 2 == 1:
                    value = new
                    previous = points[i]
                else:
                    value = tl.where(before != after, new, value)
                    previous = tl.where(before != after, points[i], previous)
            before = after
        values = values + (value,)
    return values


@triton.jit
def wide_row(
    window, here, table, kind, entries, there, D: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    """The same of a window whose points are loaded one after another."""
    action, first, ends = window
    zero = tl.zeros(here.shape, tl.float64)
    values = (here, zero, zero, zero)
    previous = zeros(first, 4)
    before = zeros(first, 4)
    for i in range(WIDTH):
        point = load_action(action, first + i, ends, there, D)
        new_values = ()
        new_previous = ()
        new_before = ()
        for m in tl.static_range(4):
            entry = (m * (WIDTH - 1) + i) * entries + kind
            after = tl.load(table + entry, mask=there & (i < WIDTH - 1), other=0.0)
            uses = before[m] != after
            new = tl.fma(before[m], point - previous[m], values[m])
            new_values = new_values + (tl.where(uses, new, values[m]),)
            new_previous = new_previous + (tl.where(uses, point, previous[m]),)
            new_before = new_before + (after,)
        values = new_values
        previous = new_previous
        before = new_before
    return values


@triton.jit
def pull_point(
    upstream, places, point, windows, most, scale, there, D: tl.constexpr, WIDTH: tl.constexpr,
    STEPS: tl.constexpr, EVEN: tl.constexpr, ORDERS: tl.constexpr,
):  # fmt: skip
    """The gradient of a point: from each of the rows that use it, ``most`` at most."""
    rows, first_row, table, entries = upstream
    place, own_table = places
    offset, shift, last, count = windows
    # the rows whose windows begin at most WIDTH − 1 points before this one
    target = point - (WIDTH - 1)
    low = tl.where(target <= 0, 0, tl.maximum((target + shift) * STEPS - offset, 0))
    low = tl.where(target > last, count, low)
    high = tl.where(point >= last, count, (point + shift + 1) * STEPS - offset)
    high = tl.minimum(high, count)
    sums = zeros(point, 4)
    TOGETHER: tl.constexpr = WIDTH if STEPS == 1 and WIDTH <= NARROW else 4
    for begin in range(0, most, TOGETHER):
        for k in tl.static_range(TOGETHER):
            t = low + begin + k
            uses = there & (t < high)
            first = first_of(t, windows, STEPS)
            kind = t + offset - STEPS * first if EVEN else t
            new = ()
            for m in tl.static_range(4):
                value = sums[m]
                if rows[m] is not None and (ORDERS >> m) % 2 == 1:
                    entry = (m * WIDTH + point - first) * entries + kind + own_table
                    weight = tl.load(table + entry, mask=uses, other=0.0)
                    # a row that does not use the point gives it no NaN
                    at = rows[m] + place + first_row + t * D
                    gradient = tl.load(at, mask=uses & (weight != 0.0), other=0.0)
                    value = tl.fma(weight, gradient.to(tl.float64), value)
                new = new + (value,)
            sums = new
    total = sums[0]
    for m in tl.static_range(1, 4):
        total = tl.fma(sums[m], scale[m], total)
    return total
