"""Paths through rows, and the setpoints of their fastest timing within limits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from trajcli.arrays import time_stamp_faults
from trajcli.calls import differentiate, integrate
from trajcli.errors import Fault, InputError, UsageError, listed, raise_if_any
from trajcli.kernels.native import absence
from trajcli.kernels.native.fastest import Path, fastest, sample
from trajcli.kernels.program import Floats, Integers
from trajcli.modes.mode import QUANTITIES
from trajcli.trajectory import State

Bounds = Mapping[str, tuple[Floats, Floats]]
"""The lower and the upper limit by quantity, numbers or [D]."""
# The states of timings, the worst first.
_STATES = ("not finite", "beyond limits", "uniform", "not converged", "solved", "does not move")
# Rows are equal within this share of their range; a path turns from so many degrees on.
_EQUAL, _TURN = 1e-9, 15.0
# How much longer a step may have to be: limits then hold within 1e-9 of them.
_TOLERANCE = 1 + 3e-10


@dataclass(frozen=True)
class Course:
    """The paths of a trajectory between its stops; none where it does not move.

    dwells: the first and the last time of each standstill, which is left out. corners: the time, or
    row, and the angle of each at which it rests. moving: whether it does at its start and its end.
    assumed: remarks on what was not given. first: its position at the start [D].
    """

    paths: list[Path]
    dwells: list[tuple[float, float]]
    corners: list[tuple[float, float]]
    moving: tuple[bool, bool]
    assumed: list[str]
    first: Floats


@dataclass(frozen=True)
class Timed:
    """The timing of a course: its duration, that of its fastest uniform pace, the state of its
    worst path, and the durations and solutions of all."""

    duration: float
    uniform: float
    state: str
    durations: list[float]
    solutions: list[Floats]


@dataclass(frozen=True)
class Setpoints:
    """All control points [N, D] of a timing, and what mode ``bspline`` makes them of: the states at
    both ends [4, D] and actions [N − 7, D]. ``steps`` of the time ``step`` are the motion's."""

    points: Floats
    step: float
    steps: int
    start: Floats
    goal: Floats
    actions: Floats
    count: int


def course(
    points: Floats, times: Floats | None = None, velocity: Floats | None = None,
    acceleration: Floats | None = None, corners: str | float | None = None,
) -> Course:  # fmt: skip
    """Returns the paths through rows [K, D] at times [K], or through waypoints.

    corners: None refuses them, ``"stop"`` rests there, a radius cuts all rows within it. Raises
    InputError, whose places name no trajectory.
    """
    if not (corners in (None, "stop") or (not isinstance(corners, str) and corners > 0)):
        expected = "stop, or a distance > 0"
        raise UsageError("not for corners", where="corners", expected=expected, found=str(corners))
    rows, rates = np.array(points, np.float64), (velocity, acceleration)
    given = zip(QUANTITIES, (rows, *rates), strict=False)
    bad = [name for name, x in given if x is not None and not np.isfinite(x).all()]
    raise_if_any(Fault("NaN or Inf", where=name, expected="finite numbers") for name in bad)
    raise_if_any([] if times is None else time_stamp_faults(times, "time"))
    moves = abs(np.diff(rows, axis=0)).max(1, initial=0) > _EQUAL * np.ptp(rows, 0).max()
    begins = np.append(0, np.flatnonzero(moves) + 1)  # of rows that are equal
    if len(begins) == 1:
        return Course([], [], [], (False, False), [], rows[0])
    if times is None:
        labels, still, moving = begins, np.empty((0, 2), np.int64), (False, False)
        notes = [f"{n} repeated waypoints are left out" for n in [len(rows) - len(begins)] if n]
        rows, moves = rows[begins], moves[moves]
        knots = _lengths(rows)
    else:
        labels, knots = times, (times - times[0]).astype(np.float64)
        runs = np.stack([begins, np.append(begins[1:], len(rows)) - 1], 1)
        still = runs[runs[:, 1] - runs[:, 0] > 1]
        rows[still[:, 1]] = rows[still[:, 0]]
        moving, notes = _ends(velocity, np.diff(rows, axis=0) / np.diff(knots)[:, None])
    last, radius = len(rows) - 1, None if isinstance(corners, str) else corners
    moving = moving[0] and 0 not in still, moving[1] and last not in still
    if radius is not None and any(moving):
        moving, notes = (False, False), ["moving ends are taken as at rest, as corners are cut"]
    places, paths = list[tuple[float, float]](), list[Path]()
    for begin, end in np.concatenate([[0], still.ravel(), [last]]).reshape(-1, 2).tolist():
        if begin == end:
            continue
        span = rows[begin : end + 1]
        if radius is not None:
            paths.append(_rounded(span[np.append(True, moves[begin:end])], float(radius)))
            continue
        alone = times is not None or corners is None
        found, angles = _corners(span, knots[begin : end + 1], alone)
        places += zip(labels[found + begin].astype(float).tolist(), angles.tolist(), strict=True)
        for i, k in pairwise([begin, *(found + begin), end]):
            part, rest = slice(i, k + 1), np.zeros((2, 2, rows.shape[1]))
            length, own = _lengths(rows[part]), (moving[0] and i == 0, moving[1] and k == last)
            # a clock that goes on at a corner says little of the curve, which its rows alone give
            even = np.diff(length).min() > 1e-3 * np.diff(length).max()
            if times is None or (len(found) and even and not any(own)):
                paths.append(Path(length, rows[part]))
                continue
            for side, row in ((0, i), (1, k)):
                if own[side]:
                    rest[side] = [
                        np.full_like(rows[0], np.nan) if x is None else x[row] for x in rates
                    ]
            paths.append(Path(knots[part] - knots[i], rows[part], None, rest, True, own))
    if places and corners is None:
        at = "row {:g}, {:.0f}°" if times is None else "{:g} s, {:.0f}°"
        raise InputError(
            "the path turns at once, where no timing but rest is within limits", where="position",
            expected="a smooth path", found=listed((at.format(*place) for place in places), 3),
            hint="corners='stop', which rests there; corners=0.01 cuts them by so much",
            shell="--corners stop, which rests there; --corners 0.01 cuts them by so much",
        )  # fmt: skip
    dwells = [(float(labels[i]), float(labels[k])) for i, k in still]
    return Course(paths, dwells, places, moving, notes, rows[0])


def _lengths(rows: Floats) -> Floats:
    """Returns the length of the polyline through rows up to each."""
    return np.append(0.0, np.cumsum(np.linalg.norm(np.diff(rows, axis=0), axis=1)))


def _ends(velocity: Floats | None, slopes: Floats) -> tuple[tuple[bool, bool], list[str]]:
    """Returns whether a trajectory moves at its start and end, by more than 1 % of a dof's peak
    speed in stored rates, and remarks on that. Rows of positions alone, with slopes, rest there."""
    rates, least = (slopes, 0.05) if velocity is None else (velocity, 0.01)
    peak = abs(rates).max(0)  # what hardly moves, as by noise, decides nothing
    shares, notes = abs(rates[[0, -1]]) / np.maximum(peak, max(peak.max() / 10, 1e-300)), []
    for row, end in ((0, "start"), (-1, "end")):
        if shares[row].max() > least:
            rest = "" if velocity is not None else f"taken as at rest at its {end}, where it "
            speed = abs(rates[row, shares[row].argmax()])
            notes.append(f"{rest}moves{'' if rest else f' at its {end}'}: {speed:.3g} per second")
    moves = (shares.max(1) > least) & (velocity is not None)
    return (bool(moves[0]), bool(moves[1])), notes


def _corners(rows: Floats, knots: Floats, alone: bool) -> tuple[Integers, Floats]:
    """Returns the rows at which a path turns, and by how many degrees; ``alone`` only those whose
    change of slope is ten times that of the two rows on either side."""
    rise = np.diff(rows, axis=0)
    slopes, size = rise / np.diff(knots)[:, None], np.linalg.norm(rise, axis=1)
    with np.errstate(all="ignore"):
        cosine = (rise[1:] * rise[:-1]).sum(1) / (size[1:] * size[:-1])
    angles = np.pad(np.degrees(np.arccos(np.clip(cosine, -1, 1))), 1)
    sharp = angles >= _TURN
    if alone:
        kinks = np.pad(np.linalg.norm(np.diff(slopes, axis=0), axis=1), 3)
        beside = np.max([kinks[:-4], kinks[1:-3], kinks[3:-1], kinks[4:]], axis=0)
        # rounding makes no corner
        sharp &= kinks[2:-2] > np.maximum(10 * beside, 1e-6 * abs(slopes).max())
        sharp[[0, 1, -2, -1]] = False
    return np.flatnonzero(sharp), angles[sharp]


def _rounded(rows: Floats, radius: float) -> Path:
    """Returns a quintic B-spline within the radius of the lines through rows.

    Rows that are within a tenth of it of such a line are left out. Control points are the others
    and, within the rest of it, points of the lines before and behind each: any six are so near.
    """
    kept, spans = {0, len(rows) - 1}, [(0, len(rows) - 1)]
    while spans:  # D. Douglas and T. Peucker, 1973
        first, last = spans.pop()
        off, line = rows[first : last + 1] - rows[first], rows[last] - rows[first]
        along = np.clip(off @ line / max(line @ line, 1e-300), 0, 1)
        away = np.linalg.norm(off - along[:, None] * line, axis=1)
        if away.max() > 0.1 * radius:
            middle = first + int(away.argmax())
            kept.add(middle)
            spans += [(first, middle), (middle, last)]
    rows = rows[sorted(kept)]
    reach = np.diff(rows, axis=0)
    reach *= np.minimum(0.9 * radius / np.linalg.norm(reach, axis=1, keepdims=True), 0.4)
    inner, back, on = rows[1:-1], reach[:-1], reach[1:]
    beside = np.stack([inner - back, inner - back / 2, inner, inner + on / 2, inner + on], 1)
    points, still = np.concatenate([beside.reshape(-1, rows.shape[1]), rows[-1:]]), 0 * rows[0]
    # from rest at a jerk whose cubic, as a quintic B-spline, has its last control point at 225/60 j
    start, goal = (State(rows[k], still, still, reach[k] * 60 / 225) for k in (0, -1))
    curve = integrate(points, start, 1 / 8, "bspline", degree=5, steps=8, ends="goal", goal=goal)
    rates = np.concatenate([curve.velocity, curve.acceleration])
    return Path(curve.time, curve.position[0], rates, clock=True)


def _sides(bounds: Bounds, dofs: int) -> Floats:
    """Returns the lower and the upper limits of velocity, acceleration and jerk, [2, 3, D]."""
    pairs = [bounds.get(name, (-np.inf, np.inf)) for name in QUANTITIES[1:]]
    return np.array([[np.broadcast_to(pair[side], dofs) for pair in pairs] for side in (0, 1)])


def limit_faults(parts: Sequence[str], bounds: Mapping[str, Any]) -> Iterator[Fault]:
    """Yields the faults of limits, of which ``parts`` can have some."""
    if not bounds:
        expected = "limits of velocity, acceleration or jerk"
        yield Fault("no limits", where="limits", expected=expected)
    for name in bounds:
        if name not in parts:
            what, known = f"limits of {name}, and no {name}", ", ".join(parts) or "none"
            yield Fault(what, where=name, expected="every limited quantity", found=known)
            continue
        for side, sign, limit in zip(("lower", "upper"), (-1.0, 1.0), bounds[name], strict=True):
            array = np.asarray(limit)
            if not (sign * array > 0).all():  # false for NaN too
                what, where = "a limit that no pace can keep", f"{name} {side}"
                expected, values = f"{side} {'> 0' if sign > 0 else '< 0'}", str(array.tolist())
                yield Fault(what, where=where, expected=expected, found=values)


def timed(courses: Sequence[Course], bounds: Bounds, intervals: int | None = None) -> list[Timed]:
    """Returns the fastest timing of each course; raises UsageError without compiled kernels, and
    InputError for limits that cannot be."""
    if why := absence():
        what, hint = "the fastest timing takes compiled kernels", "method='uniform'"
        raise UsageError(what, where="method", found=why, hint=hint, shell="--method uniform")
    raise_if_any(limit_faults(QUANTITIES[1:], bounds))
    paths, made = [path for one in courses for path in one.paths], list[Timed]()
    lower, upper = _sides(bounds, len(courses[0].first))
    timings = iter(fastest(paths, lower, upper, intervals))
    for one in courses:
        own = [next(timings) for _ in one.paths]
        state = min((x.state for x in own), key=_STATES.index, default="does not move")
        uniform = sum(x.uniform for x in own if x.state != "does not move")
        lasting, solutions = [x.duration for x in own], [x.solution for x in own]
        made.append(Timed(sum(lasting), uniform, state, lasting, solutions))
    return made


def setpoints(
    course: Course, timed: Timed, bounds: Bounds, rate: float = 1000.0, rows: int | None = None,
    duration: float | None = None,
) -> Setpoints:  # fmt: skip
    """Returns the control points of a timing, whose differences are within limits at every step.

    rate: in Hz. rows: as many, instead. duration: exactly so long. Differences of positions are
    means of their derivatives, and exceed limits by rounding, and at moving ends, alone. Raises
    InputError where that, or the duration, leaves no such points.
    """
    if timed.state in _STATES[:2]:
        what = "the plan moves at its ends and is beyond limits at its own pace"
        what = what if timed.state == _STATES[1] else "a timing that is not finite"
        raise InputError(what, where="limits", hint="method='uniform'", shell="--method uniform")
    around = sum(1 if moves else n for moves, n in zip(course.moving, (2, 3), strict=True))
    if rows is not None and rows < 6:
        raise InputError("too few rows", where="rows", expected="6 or more", found=str(rows))
    free = math.ceil(timed.duration * rate * (1 - 1e-12)) + around - 2
    spans = rows - 1 if rows else max(round(duration * rate) if duration else free, 5)
    steps, step = spans + 2 - around, duration / spans if duration else 1 / rate
    if rows and timed.duration and not duration:
        step = timed.duration / steps
    lower, upper = _sides(bounds, len(course.first))
    size = np.max([abs(path.points).max(0) for path in course.paths] or [course.first], axis=0)
    rounding = np.array([[1], [2], [4]]) * np.spacing(size) / np.minimum(upper, -lower)
    finest = float(((10 * rounding.max(1)) ** (1 / np.array([1, 2, 3]))).max())
    if step < finest:
        most = f"{0.95 / finest:.1e}".replace("e+0", "e")
        what, found = "rounding takes a tenth of a limit", f"{1 / step:g} Hz"
        way = {"hint": f"rate={most}", "shell": f"--to {most}"}
        raise InputError(what, where="rate", expected=f"at most {most} Hz", found=found, **way)
    while True:
        points, needed = _points(course, timed, bounds, steps), 0.0
        for order, low, high in zip((1, 2, 3), lower, upper, strict=True):
            change = np.diff(points, order, axis=0)
            share = np.maximum(change.max(0) / high, change.min(0) / low).max()
            needed = max(needed, float(share) ** (1 / order))
        if duration and max(needed, timed.duration / steps) > step * _TOLERANCE:
            least = setpoints(course, timed, bounds, rate, rows)
            raise forbidden(duration, (least.count - 1) * least.step)
        step = step if rows is None or duration else max(step, needed)
        if needed <= step * _TOLERANCE:
            break
        steps = max(steps + 1, math.ceil(steps * needed / step))
    start, goal = _state(points[:4], step), _state(points[:-5:-1], -step)
    return Setpoints(points, step, steps, start, goal, points[4:-3], len(points) - 2)


def forbidden(duration: float, least: float) -> InputError:
    """Returns the error of a duration that limits forbid."""
    enough = math.ceil(least * 1e6) / 1e6
    return InputError(
        "limits forbid this duration", where="duration", expected=f">= {enough} s",
        found=f"{duration:g} s", hint=f"duration={enough}", shell=f"--duration {enough}",
    )  # fmt: skip


def _points(course: Course, timed: Timed, bounds: Bounds, steps: int) -> Floats:
    """Returns positions at the ends of ``steps`` equal parts of a timing, and those around them:
    the same ones, or one of the Taylor polynomial at a moving end."""
    size = timed.duration / steps
    if not size:
        return np.repeat(course.first[None], steps + 6, 0)
    at, ends = np.append(np.arange(steps) * size, timed.duration), np.cumsum(timed.durations)
    number = np.searchsorted(ends, at)
    used = np.unique(number).tolist()
    begins = ends - timed.durations
    paths, solutions = [course.paths[k] for k in used], [timed.solutions[k] for k in used]
    jerkless = not np.isfinite(_sides(bounds, len(course.first))[1][2]).any()
    states = sample(paths, solutions, [at[number == k] - begins[k] for k in used], jerkless)
    head, tail = [states[0][0, :1]] * 2, [states[-1][0, -1:]] * 3
    if course.moving[0]:
        head = [np.array([1, -size, size**2 / 2, -(size**3) / 6]) @ states[0][:, :1].swapaxes(0, 1)]
    if course.moving[1]:
        tail = [np.array([1, size, size**2 / 2, size**3 / 6]) @ states[-1][:, -1:].swapaxes(0, 1)]
    return np.concatenate([*head, *(x[0] for x in states), *tail])


def _state(points: Floats, step: float) -> Floats:
    """Returns position to jerk [4, D] where the cubic B-spline of four control points begins."""
    first, second, third = np.diff(points, axis=0)
    bend = second - first
    rates = (first + second) / 2 / step, bend / step**2, (third - second - bend) / step**3
    return np.stack([points[1] + bend / 6, *rates]) + 0.0  # no zero is negative


def binding(rows: Mapping[str, Floats], bounds: Bounds) -> dict[str, Floats]:
    """Returns the share of rows [..., T, D] that use 98 % of a limit or more, [..., D] by name."""
    return {
        name: ((rows[name] >= 0.98 * high) | (rows[name] <= 0.98 * low)).mean(-2)
        for name, (low, high) in bounds.items() if name in rows
    }  # fmt: skip


def noise_cost(points: Floats, times: Floats, bounds: Bounds) -> float | None:
    """Returns the share of time that noise of rows [K, D] costs: how much longer they take than
    what ``differentiate`` makes of them; None where they have none.

    Third differences of noise alternate, with an autocorrelation of −3/4 from row to row.
    """
    moving = np.ptp(points, 0) > 1e-3 * np.ptp(points, 0).max()
    third = np.diff(points[:, moving].astype(np.float64), 3, axis=0)
    power = (third**2).sum(0)
    if len(third) < 16 or not (2 * (third[1:] * third[:-1]).sum(0) < -power).any():
        return None
    knots, rest = times - times[0], np.zeros((2, 2, points.shape[1]))
    smooth = differentiate(points, times=knots).position[0]
    paths = [Path(knots, np.asarray(x, np.float64), None, rest, True) for x in (points, smooth)]
    lower, upper = _sides(bounds, points.shape[1])
    noisy, clean = fastest(paths, lower, upper)
    return noisy.duration / clean.duration - 1 if clean.duration else None
