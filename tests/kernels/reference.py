"""What a program gives, a second time: a loop over rows, straight from kernels/program.py.

Slow on purpose and shared with no backend: one row after another, no tables, no windows slid
along. ``number`` is what it computes in: float64, longdouble (ten more bits, for long
trajectories) or mpq (exact). Dofs are the lanes of an array, and nothing else is. The
adjoint is the transpose of the matrix that the rows of unit vectors are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import factorial
from typing import Any, NamedTuple

import numpy as np
from gmpy2 import mpq

from trajcli.kernels.program import Band, Cascade, Operands, Program


class Expected(NamedTuple):
    """Four arrays [B, T, D] and as many of the magnitudes that the error bound is relative to.

    That of a sum is the sum's own, that of a difference is that of all that is subtracted.
    """

    values: list[Any]
    sizes: list[Any]


def forward(program: Program, operands: Operands, number: Any = np.longdouble) -> Expected:
    """What the program gives for these operands, all as stored."""
    rows: list[Any] = []
    for b, actions in enumerate(numbers(operands.actions, number)):
        start = state(operands.start, operands.start_index, b, actions, number)
        dt = list(numbers(operands.dt[b if len(operands.dt) > 1 else 0], number))
        if isinstance(program, Cascade):
            rows.append(cascade(program, actions, start, dt))
        else:
            goal = state(operands.goal, operands.goal_index, b, actions, number)
            spans = program.spans
            span = None if spans is None else spans[b if len(spans) > 1 else 0]
            rows.append(band(program, actions, start, goal, dt, span))
    _, _, dofs = operands.actions.shape
    result = np.array(rows, dtype=object if number is mpq else number)
    result = result.reshape(len(rows), program.rows, 2, 4, dofs)
    return Expected(*([result[:, :, k, m] for m in range(4)] for k in range(2)))


def numbers(values: Any, number: Any) -> Any:
    values = np.asarray(values).astype(np.float64)
    if number is mpq:
        return np.vectorize(mpq, otypes=[object])(values) if values.size else values
    return values.astype(number)


def state(parts: Any, index: Any, b: int, like: Any, number: Any) -> list[Any]:
    """The four parts of the state of trajectory b, each [D]."""
    zero = numbers(np.zeros(like.shape[1]), number)
    result = []
    for part in parts:
        row = 0 if part is not None and len(part) == 1 else b
        row = row if index is None else int(index[b])
        result.append(zero if part is None else numbers(part[row], number))
    return result


# -- the cascade ------------------------------------------------------------------------------


def cascade(program: Cascade, actions: Any, start: list[Any], dt: list[Any]) -> list[Any]:
    """Of each row its values and their sizes, [2][4][D]."""
    if program.recorded:
        return recorded_cascade(actions[: program.used], dt)
    order, rows = program.order, [[start, [abs(x) for x in start]]]
    for i in range(program.used):
        before, sizes_before = rows[-1]
        step = dt[i] if len(dt) > 1 else dt[0]
        now, sizes = [actions[i] * 0] * 4, [actions[i] * 0] * 4
        now[order] = actions[i]
        for m in range(order):
            n = order - m
            now[m] = before[m] + sum(
                (step**r / (1 if program.scheme == "euler" else factorial(r)) * before[m + r])
                for r in range(1, n)
            )
            if program.scheme == "euler":
                now[m] = now[m] + step**n * actions[i]
            elif program.scheme == "zoh":
                now[m] = now[m] + step**n / factorial(n) * actions[i]
            else:
                last = start[order] if i == 0 else actions[i - 1]
                now[m] = now[m] + step**n / factorial(n + 1) * (actions[i] + n * last)
        for m in range(4):
            sizes[m] = abs(now[m])
        for m in range(order + 1, 4):
            now[m] = (now[m - 1] - before[m - 1]) / step
            sizes[m] = (sizes[m - 1] + sizes_before[m - 1]) / step
        rows.append([now, sizes])
    return rows if program.start_row else rows[1:]


def recorded_cascade(positions: Any, dt: list[Any]) -> list[Any]:
    columns = [[list(positions)], [[abs(x) for x in positions]]]
    for m in (1, 2, 3):
        for sign, column in zip((-1, 1), columns, strict=True):
            below, result = column[-1], []
            for t in range(len(positions)):
                step = dt[t - 1] if len(dt) > 1 else dt[0]
                result.append((below[t] + sign * below[t - 1]) / step)
            fill = result[m] if m < len(positions) else positions[0] * 0
            column.append([fill] * min(m, len(positions)) + result[m:])
    return [[[x[t] for x in column] for column in columns] for t in range(len(positions))]


# -- the band ---------------------------------------------------------------------------------


def band(
    program: Band, actions: Any, start: list[Any], goal: list[Any], dt: list[Any], spans: Any = None
) -> list[Any]:
    """Of each row its values and their sizes, [2][4][D]."""
    number = type(dt[0])
    spacing = program.spacing * dt[0]
    zero, used = actions[0] * 0, list(actions[: program.used])
    pairs = [
        *state_points(program.head, start, spacing),
        *([x, abs(x)] for x in used + used[-1:] * program.held),
        *state_points(program.tail, goal, spacing),
    ]
    points, sizes = [x for x, _ in pairs], [size for _, size in pairs]
    gaps = []
    for i in range(len(points) - 1):
        entry = min(max(i - max(len(program.head) - 1, 0), 0), program.steps - 1)
        gaps.append(dt[entry] if len(dt) > 1 else dt[0])

    differences = [
        [(after - before) for before, after in pairwise(points)],
        [(after + before) for before, after in pairwise(sizes)],
    ]
    rows = [[start, [abs(x) for x in start]]] if program.start_row else []
    windows = program.windows
    for t in range(windows.count):
        first = (t + windows.offset) // windows.steps - windows.shift
        first = min(max(first, 0), windows.last)
        kind = t + windows.offset - windows.steps * first
        base = program.base[kind]
        if spans is not None:
            first, last = map(int, spans[t])
            base = t - first
            weights = stencil(gaps[first:last], base, program.degree)
        elif program.table is None:
            weights = stencil(gaps[first : first + program.width - 1], base, program.degree)
        else:
            weights = [
                [number(w) / spacing**m for w in row] for m, row in enumerate(program.table[kind])
            ]
        values = [points[first + base], zero, zero, zero]
        errors = [sizes[first + base], zero, zero, zero]
        for m in range(4):
            for i, weight in enumerate(weights[m], start=first):
                values[m] = values[m] + weight * differences[0][i]
                errors[m] = errors[m] + abs(weight) * differences[1][i]
        rows.append([values, errors])
    return rows


def state_points(table: Any, state: list[Any], spacing: Any) -> list[list[Any]]:
    """Each point of a state, and its size."""
    points = []
    for row in table:
        terms = [type(spacing)(row[m]) * spacing**m * state[m] for m in range(4)]
        points.append([sum(terms), sum(abs(term) for term in terms)])
    return points


def stencil(gaps: list[Any], base: int, degree: int | None) -> list[list[Any]]:
    """Derivatives 0 … 3, at point ``base``, of the polynomial through points so far apart, or of
    the one of this degree that fits them best: the weights of differences of neighbours."""
    times = [sum(gaps[:i]) - sum(gaps[:base]) for i in range(len(gaps) + 1)]
    weights = through(times) if degree is None else fitting(times, degree)
    # what is after a gap moves with its difference; weights of derivatives sum to zero
    before = [[sum(w[m] for w in weights[: i + 1]) for i in range(base)] for m in range(4)]
    after = [
        [sum(w[m] for w in weights[i + 1 :]) for i in range(base, len(gaps))] for m in range(4)
    ]
    return [[*(-x for x in left), *right] for left, right in zip(before, after, strict=True)]


def through(times: list[Any]) -> list[list[Any]]:
    """Of each point its weights in derivatives 0 … 3 of the polynomial through all, at time 0."""
    weights = []
    for i, time in enumerate(times):
        lagrange = [time * 0 + 1]  # by powers of the time since the base
        for other in times[:i] + times[i + 1 :]:
            raised, scaled = [0, *lagrange], [*(-other * c for c in lagrange), 0]
            lagrange = [(a + b) / (time - other) for a, b in zip(raised, scaled, strict=True)]
        weights.append([factorial(m) * lagrange[m] for m in range(4)])
    return weights


def fitting(times: list[Any], degree: int) -> list[list[Any]]:
    """The same of the polynomial that fits best: powers of time made orthogonal to those below, by
    J. Gram's and E. Schmidt's sums, each with its values at the points and its coefficients."""
    scale = times[-1] - times[0]
    times = [time / scale for time in times]
    weights = [[time * 0] * 4 for time in times]
    basis: list[tuple[list[Any], list[Any]]] = []
    for k in range(degree + 1):
        values = [time**k for time in times]
        powers = [times[0] * 0 + (n == k) for n in range(6)]
        for _ in range(2):  # again for what is rounded
            for other, coefficients in basis:
                product = sum(a * b for a, b in zip(values, other, strict=True))
                share = product / sum(b * b for b in other)
                values = [a - share * b for a, b in zip(values, other, strict=True)]
                powers = [a - share * b for a, b in zip(powers, coefficients, strict=True)]
        basis.append((values, powers))
        norm = sum(a * a for a in values)
        for m in range(4):
            at_row = factorial(m) * powers[m] / scale**m
            for weight, value in zip(weights, values, strict=True):
                weight[m] = weight[m] + at_row * value / norm
    return weights


# -- the adjoint ------------------------------------------------------------------------------


def adjoint(
    program: Program,
    operands: Operands,
    upstream: Sequence[Any],
    number: Any = np.longdouble,
    places: Sequence[int] | None = None,
) -> tuple[list[Any], list[Any]]:
    """The gradients of the actions, the parts of the start and those of the goal, and the sums of
    the magnitudes that each is the sum of.

    places: the actions whose gradients are computed, by default all.
    """
    batch, horizon, dofs = operands.actions.shape
    places = range(horizon) if places is None else places
    result: list[list[Any]] = [[], []]
    for b in range(batch):
        dt, alone = operands.dt[b if len(operands.dt) > 1 else 0][None], program
        if isinstance(program, Band) and program.spans is not None and len(program.spans) > 1:
            alone = replace(program, spans=program.spans[b : b + 1])
        columns = matrix(alone, horizon, places, dt, number)
        grads = [None if g is None else numbers(g[b], number) for g in upstream]
        for k, of in enumerate((lambda x: x, abs)):
            terms = [of(a).T @ of(g) for a, g in zip(columns, grads, strict=True) if g is not None]
            zero = numbers(np.zeros((len(places) + 8, dofs)), number)
            result[k].append(sum(terms, zero))
    n = len(places)
    split = []
    for kind in result:
        values = np.array(kind).reshape(batch, n + 8, dofs)
        parts = [values[:, n + m] for m in range(8)]
        split.append([values[:, :n], *parts])
    return split[0], split[1]


def matrix(
    program: Program, horizon: int, places: Sequence[int], dt: Any, number: Any
) -> list[Any]:
    """Of one trajectory, [T, len(places) + 8]: its columns are the rows that a 1 at one of these
    actions gives, or in a part of the start, or of the goal."""
    count = len(places) + 8
    actions = np.zeros((1, horizon, count))
    actions[0, list(places), range(len(places))] = 1
    states = np.zeros((8, 1, count))
    states[range(8), 0, range(len(places), count)] = 1
    operands = Operands(actions, dt, list(states[:4]), list(states[4:]))
    return [values[0] for values in forward(program, operands, number).values]
