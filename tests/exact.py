"""Every mode a second time: exact rational arithmetic, one number after another.

Straight from the definitions and slow on purpose. Nothing here is shared with trajcli: sums of
held actions are antiderivatives, stencils are derivatives of the interpolating quartic, splines
are de Boor's recursion, and a state's control points are solved for. Inputs are taken exactly
as they are stored.

:func:`integrate` is called like ``trajcli.integrate`` and returns arrays of fractions;
:func:`assert_promised` compares what trajcli found with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate, pairwise
from math import factorial
from typing import Any

import numpy as np
from gmpy2 import mpq

QUANTITIES = ("position", "velocity", "acceleration", "jerk")
ORDERS = {"clique": 0, "velocity": 1, "acceleration": 2, "jerk": 3}

Columns = list[list[mpq]]
"""Position, velocity, acceleration and jerk of one trajectory and dof, [4][T]."""


# -- one trajectory, one dof ----------------------------------------------------------------


def cascade(
    actions: Sequence[mpq],
    state: Sequence[mpq],
    steps: Sequence[mpq],
    order: int,
    scheme: str = "euler",
) -> Columns:
    """Rows 0..H: the actions of this order, summed down and differenced up."""
    rows = [list(state)]
    for action, dt in zip(actions, steps, strict=True):
        before = rows[-1]
        now = [mpq(0)] * 4
        now[order] = action
        # what the action does over the step, as a polynomial of the time since its beginning
        course = [action] if scheme == "zoh" else [before[order], (action - before[order]) / dt]
        for m in reversed(range(order)):
            if scheme == "euler":
                now[m] = before[m] + dt * now[m + 1]
            else:
                course = [before[m], *(c / (i + 1) for i, c in enumerate(course))]
                now[m] = _polynomial(course, dt)
        for m in range(order + 1, 4):
            now[m] = (now[m - 1] - before[m - 1]) / dt
        rows.append(now)
    return _columns(rows)


def recorded_cascade(positions: Sequence[mpq], steps: Sequence[mpq]) -> Columns:
    """Differences of a recording; rows before the data began take the first there is."""
    columns = [list(positions)]
    for m in (1, 2, 3):
        below = columns[-1]
        known = [(below[t] - below[t - 1]) / steps[t - 1] for t in range(m, len(below))]
        first = known[0] if known else mpq(0)
        columns.append([first] * min(m, len(below)) + known)
    return columns


def central(
    actions: Sequence[mpq],
    state: Sequence[mpq],
    steps: Sequence[mpq],
    goal: mpq | None = None,
) -> Columns:
    """Rows 0..H of a plan that holds its last action, or the goal in its place."""
    rows = [list(state)]
    if not actions:
        return _columns(rows)
    used = [*actions[:-1], actions[-1] if goal is None else goal]
    p, v, a, j = state
    tau, last = steps[0], steps[-1]
    points = [p - tau * v + tau**2 * a / 2 - tau**3 * j / 6, p, *used, used[-1], used[-1]]
    times = [-tau, *accumulate(steps, initial=mpq(0))]
    times += [times[-1] + last, times[-1] + 2 * last]
    for t in range(1, len(used) + 1):
        rows.append(_stencil(times[t - 1 : t + 4], points[t - 1 : t + 4], times[t + 1]))
    return _columns(rows)


def recorded_central(positions: Sequence[mpq], steps: Sequence[mpq]) -> Columns:
    """A recording: each row's window is the five nearest rows."""
    times = list(accumulate(steps, initial=mpq(0)))
    rows = []
    for t in range(len(positions)):
        first = min(max(t - 2, 0), len(positions) - 5)
        window = slice(first, first + 5)
        rows.append(_stencil(times[window], positions[window], times[t]))
    return _columns(rows)


def curobo_central(
    actions: Sequence[mpq],
    state: Sequence[mpq],
    steps: Sequence[mpq],
    goal: mpq | None = None,
) -> Columns:
    """Rows −1..H+2, every one by stencil, from cuRobo's own past points."""
    used = [*actions[:-1], actions[-1] if goal is None else goal]
    p, v, a, j = state
    tau, last = steps[0], steps[-1]
    thirds = {1: mpq(-7, 6), 2: mpq(-4, 3), 3: mpq(-3, 2)}
    points = [
        p - k * tau * v + (mpq(k * k, 2) - 2 * k) * tau**2 * a + thirds[k] * tau**3 * j
        for k in (3, 2, 1)
    ]
    points += [p, *used, *[used[-1]] * 4]
    times = [-3 * tau, -2 * tau, -tau, *accumulate(steps, initial=mpq(0))]
    times += [times[-1] + k * last for k in (1, 2, 3, 4)]
    return _columns(
        [
            _stencil(times[first : first + 5], points[first : first + 5], times[first + 2])
            for first in range(len(points) - 4)
        ]
    )


def bspline(
    actions: Sequence[mpq],
    state: Sequence[mpq],
    dt: mpq,
    degree: int,
    steps: int,
    goal: Sequence[mpq] | None = None,
    convention: str = "standard",
) -> Columns:
    """The spline of start points, actions and end points, ``steps`` rows per knot interval."""
    knot = dt * steps
    if convention == "curobo" and degree == 3:
        state = [*state[:3], mpq(0)]
        goal = None if goal is None else [*goal[:3], mpq(0)]
    points = control_points(state, knot, degree, at=0)
    if goal is None:
        points += [*actions, *[actions[-1]] * degree]
    else:
        at = 1 if convention == "standard" else 0
        points += [*actions[:-1], *control_points(goal, knot, degree, at=at)]
    segments = len(points) - degree
    places = [(t // steps, mpq(t % steps, steps)) for t in range(segments * steps)]
    places.append((segments - 1, mpq(1)))
    columns = []
    for order in range(4):
        remaining = degree - order
        columns.append(
            [de_boor(points[s : s + remaining + 1], remaining, local) for s, local in places]
        )
        points = [(b - a) / knot for a, b in pairwise(points)]
    return columns


def de_boor(points: Sequence[mpq], degree: int, local: mpq) -> mpq:
    """A uniform spline at ``local`` (0..1) in the segment of these degree + 1 points."""
    points = list(points)
    for level in range(1, degree + 1):
        for i in range(degree, level - 1, -1):
            knot, next_knot = i - degree, i + 1 - level  # the segment is 0..1
            share = (local - knot) / (next_knot - knot)
            points[i] = (1 - share) * points[i - 1] + share * points[i]
    return points[degree]


def control_points(state: Sequence[mpq], knot: mpq, degree: int, at: int) -> list[mpq]:
    """The control points of the segment that has this state at local time ``at``, 0 or 1."""
    local = [x * knot**m for m, x in enumerate(state)] + [mpq(0)] * (degree - 3)
    inverse = _inverse_of_derivatives(degree, at)
    return [sum((w * x for w, x in zip(row, local, strict=True)), mpq(0)) for row in inverse]


@cache
def _inverse_of_derivatives(degree: int, at: int) -> list[list[mpq]]:
    """From a segment's derivatives 0..degree by local time to its control points."""
    matrix = []
    for order in range(degree + 1):
        row = []
        for i in range(degree + 1):
            points = [mpq(int(k == i)) for k in range(degree + 1)]
            for _ in range(order):
                points = [b - a for a, b in pairwise(points)]
            row.append(de_boor(points, degree - order, mpq(at)))
        matrix.append(row)
    return _inverse(matrix)


def _inverse(matrix: list[list[mpq]]) -> list[list[mpq]]:
    """Gauss and Jordan's elimination."""
    n = len(matrix)
    rows = [[*row, *(mpq(int(i == k)) for k in range(n))] for i, row in enumerate(matrix)]
    for column in range(n):
        pivot = next(i for i in range(column, n) if rows[i][column])
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [x / rows[column][column] for x in rows[column]]
        for i in range(n):
            if i != column:
                factor = rows[i][column]
                rows[i] = [x - factor * y for x, y in zip(rows[i], rows[column], strict=True)]
    return [row[n:] for row in rows]


def _stencil(times: Sequence[mpq], points: Sequence[mpq], at: mpq) -> list[mpq]:
    """Value and three derivatives, at one time, of the quartic through five points.

    Newton's divided differences, expanded around ``at``.
    """
    differences = list(points)
    for level in range(1, 5):
        for i in range(4, level - 1, -1):
            gap = times[i] - times[i - level]
            differences[i] = (differences[i] - differences[i - 1]) / gap
    coefficients = [differences[4]]
    for i in (3, 2, 1, 0):  # coefficients · (time − times[i]) + differences[i]
        shift = at - times[i]
        raised = [mpq(0), *coefficients]
        scaled = [shift * c for c in coefficients] + [mpq(0)]
        coefficients = [a + b for a, b in zip(raised, scaled, strict=True)]
        coefficients[0] += differences[i]
    return [factorial(m) * coefficients[m] for m in range(4)]


def _polynomial(coefficients: Sequence[mpq], at: mpq) -> mpq:
    return sum((c * at**i for i, c in enumerate(coefficients)), mpq(0))


def _columns(rows: Sequence[Sequence[mpq]]) -> Columns:
    return [[row[m] for row in rows] for m in range(4)]


# -- arrays ---------------------------------------------------------------------------------


def integrate(
    actions: Any,
    start: Any = None,
    dt: Any = None,
    mode: str = "acceleration",
    *,
    times: Any = None,
    goal: Any = None,
    start_index: Any = None,
    goal_index: Any = None,
    scheme: str = "euler",
    ends: str = "plan",
    degree: int = 3,
    steps: int = 1,
    alignment: str = "full",
    convention: str = "standard",
) -> dict[str, np.ndarray]:
    """What trajcli.integrate should find: four object arrays [B, T, D] and ``time`` [B, T].

    start and goal have the four parts as attributes, each [D], [B, D] or, with an index,
    [S, D]; start "first" is a recording.
    """
    actions = np.asarray(actions)
    batch, horizon, dofs = actions.shape
    recorded = isinstance(start, str) and start == "first"
    if convention == "curobo" and mode in ORDERS:
        alignment = "curobo"
    gaps = _steps(dt, times, batch, horizon, recorded)
    table: dict[str, Any] = {part: [] for part in QUANTITIES}
    clock = []
    for b in range(batch):
        step = gaps[b]
        if convention == "curobo" and mode in ORDERS and len(step) > 1:
            step = step[1:]  # the step into row t is dt[t]
        per_dof = []
        for d in range(dofs):
            u = [number(x) for x in actions[b, :, d]]
            s = None if recorded else _state(start, start_index, b, d)
            g = None if goal is None else _state(goal, goal_index, b, d)
            if alignment == "curobo":
                u = u[:-1]
            used = step[: len(u)]
            if mode == "bspline":
                columns = bspline(u, s, step[0], degree, steps, g, convention)
            elif mode == "central" and recorded:
                columns = recorded_central(u, step)
            elif mode == "central":
                kind = curobo_central if convention == "curobo" else central
                columns = kind(u, s, used, g[0] if g and ends == "goal" else None)
            elif mode == "teleport":
                rest = [[mpq(0)] * len(u) for _ in range(3)]
                columns = [u, *rest] if recorded else _after(s, [u, *rest])
            elif recorded:
                columns = recorded_cascade(u, step)
            else:
                columns = cascade(u, s, used, ORDERS[mode], scheme)
            if alignment == "actions":
                columns = [column[1:] for column in columns]
            per_dof.append(columns)
        for m, part in enumerate(QUANTITIES):
            table[part].append([list(row) for row in zip(*(c[m] for c in per_dof), strict=True)])
        clock.append(_times(step, mode, convention, alignment, len(per_dof[0][0])))
    rows = len(clock[0]) if clock else 0
    arrays = {part: _objects(values, (batch, rows, dofs)) for part, values in table.items()}
    return {**arrays, "time": _objects(clock, (batch, rows))}


def differentiate(positions: Any, method: str, **steps: Any) -> dict[str, np.ndarray]:
    """What trajcli.differentiate should find."""
    return integrate(positions, "first", mode="clique" if method == "backward" else method, **steps)


def number(value: Any) -> mpq:
    """A stored number, exactly."""
    if isinstance(value, type(mpq())):
        return value
    return mpq(int(value)) if isinstance(value, (int, np.integer)) else mpq(float(value))


def _steps(dt: Any, times: Any, batch: int, horizon: int, recorded: bool) -> list[list[mpq]]:
    """The steps between rows of each trajectory, in float64 as stored or as differences."""
    count = horizon - 1 if recorded else horizon
    if times is not None:
        stamps = np.broadcast_to(np.asarray(times, dtype=np.float64), (batch, count + 1))
        return [[number(b - a) for a, b in pairwise(row)] for row in stamps]
    dt = np.asarray(dt)
    if recorded and dt.ndim and dt.shape[-1] == horizon > 1:
        dt = dt[..., 1:]  # no step leads into a recording's first row
    return [[number(x) for x in row] for row in np.broadcast_to(dt, (batch, count))]


def _state(state: Any, index: Any, b: int, d: int) -> list[mpq]:
    parts = state if isinstance(state, Mapping) else {p: getattr(state, p) for p in QUANTITIES}
    numbers = []
    for part in QUANTITIES:
        values = parts.get(part)
        if values is None:
            numbers.append(mpq(0))
            continue
        table = np.atleast_2d(np.asarray(values))
        row = 0 if len(table) == 1 else b if index is None else int(index[b])
        numbers.append(number(table[row, d]))
    return numbers


def _after(state: Sequence[mpq], columns: Columns) -> Columns:
    return [[first, *column] for first, column in zip(state, columns, strict=True)]


def _times(steps: list[mpq], mode: str, convention: str, alignment: str, rows: int) -> list[mpq]:
    if mode == "bspline":
        return [t * steps[0] for t in range(rows)]
    times = list(accumulate(steps, initial=mpq(0)))
    if mode == "central" and convention == "curobo":
        return [-steps[0], *times, times[-1] + steps[-1], times[-1] + 2 * steps[-1]]
    return times[1 : rows + 1] if alignment == "actions" else times[:rows]


def _objects(values: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = np.empty(shape, dtype=object)
    if array.size:
        array[:] = values
    return array


# -- comparing ------------------------------------------------------------------------------


def assert_promised(actual: Any, exact: Mapping[str, Any], dtype: str) -> None:
    """A trajectory keeps what is promised of plain float64, rounded once to its type.

    Within max(1e-12, 1.2e-16·H) of the largest magnitude of the quantity along its trajectory and
    dof; of a quantity that is differenced, of the magnitudes that are subtracted, over the steps.
    """
    time = np.atleast_2d(np.asarray(actual.time))
    assert time.dtype == np.float64
    steps = np.diff(time, axis=1)
    shortest = float(steps.min()) if steps.size else 1.0
    shortest *= actual.options.get("steps", 1)
    order = ORDERS.get(actual.mode, 0)
    relative = max(1e-12, 1.2e-16 * time.shape[1])
    size: Any = 0.0
    for m, part in enumerate(QUANTITIES):
        values, wanted = np.asarray(getattr(actual, part)), exact[part]
        assert values.dtype == dtype
        assert values.shape == wanted.shape
        nearest = np.array([float(x) for x in wanted.ravel()]).reshape(wanted.shape)
        largest = np.abs(nearest).max(1, keepdims=True, initial=0.0)
        size = largest if m <= order else np.maximum(largest, 2.0 * size / shortest)
        bound = np.broadcast_to(relative * size, values.shape)
        if dtype == "float32":
            bound = bound + 0.502 * np.spacing(np.abs(nearest).astype(np.float32))
        for place in np.argwhere(values != nearest.astype(dtype)):
            value, target = values[tuple(place)], wanted[tuple(place)]
            error = abs(number(value) - target)
            assert error <= bound[tuple(place)], (
                f"{part} {place}: found {value!r}, exactly {float(target)!r}, "
                f"off by {float(error):.3g}, more than {bound[tuple(place)]:.3g}"
            )
    for row, wanted in zip(np.broadcast_to(time, exact["time"].shape), exact["time"], strict=True):
        largest = max(map(abs, wanted), default=mpq(0))
        for value, target in zip(row, wanted, strict=True):
            assert abs(number(value) - target) <= mpq(relative) * largest
