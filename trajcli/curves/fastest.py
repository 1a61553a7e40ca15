"""Paths through rows, and the setpoints of their fastest timing within limits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trajcli.arrays import time_stamp_faults
from trajcli.calls import differentiate, integrate
from trajcli.errors import Fault, InputError, UsageError, join_names, raise_if_any
from trajcli.kernels.native import absence
from trajcli.kernels.native.fastest import Path, Timing, fastest, sample
from trajcli.kernels.program import Booleans, Floats, Integers
from trajcli.modes.mode import QUANTITIES
from trajcli.trajectory import State

Bounds = Mapping[str, tuple[Floats, Floats]]
"""The lower and the upper limit by quantity, numbers or [D]."""
# The states of timings, worst first.
_STATES = ("not finite", "beyond limits", "uniform", "not converged", "solved", "does not move")
# Rows within this share of their range are equal: rows of a clock, and waypoints.
_EQUAL = 1e-14, 1e-9
_TURN = 15.0  # degrees from which a change of direction is a corner
_NONE = "no limits of velocity, acceleration or jerk"
# How much longer a step may have to be: limits then hold within 1e-9 of them.
_TOLERANCE = 1 + 3e-10
# How often a timing is stretched: by less each time, unless rounding exceeds a limit anew.
_TURNS = 30


class Remark(NamedTuple):
    """A remark on a path: its kind, its size, and the words for that."""

    kind: str
    size: float = 0.0
    text: str = ""


class Course(NamedTuple):
    """The paths of a trajectory between its stops; none if it does not move."""

    paths: list[Path]
    first: Floats  # the position at the start [D]
    moving: tuple[bool, bool] = (False, False)  # at its start and at its end
    dwells: Sequence[tuple[float, float]] = ()  # first and last time of standstill, left out
    corners: Sequence[tuple[float, float]] = ()  # time, or row, and angle where it rests
    remarks: Sequence[Remark] = ()  # what was assumed, as it was not given


class CourseTiming(NamedTuple):
    """The duration of a course, that of its fastest uniform pace, the state of its worst path, and
    the timing of each path."""

    duration: float
    uniform: float
    state: str
    timings: list[Timing]


@dataclass(frozen=True)
class Setpoints:
    """Control points [H, D] from which mode ``bspline`` makes ``count`` rows: positions ``step``
    apart in time, between the states at both ends [4, D]."""

    actions: Floats
    step: float
    start: Floats
    goal: Floats
    count: int


def make_course(
    points: Floats, times: Floats | None = None, velocity: Floats | None = None,
    acceleration: Floats | None = None, corners: str | float | None = None,
) -> Course:  # fmt: skip
    """Makes the paths through rows [K, D] at times [K], or through waypoints.

    corners: None refuses them, ``"stop"`` rests there, a radius cuts all rows within it.
    """
    rows, rates = np.array(points, np.float64), [velocity, acceleration]
    tables = zip(QUANTITIES, (rows, *rates), strict=False)
    bad = [name for name, x in tables if x is not None and not np.isfinite(x).all()]
    raise_if_any(Fault("NaN or Inf", where=name, expected="finite numbers") for name in bad)
    raise_if_any([] if times is None else time_stamp_faults(times, "time"))
    equal = _EQUAL[times is None] * np.ptp(rows, 0).max() + 4 * np.spacing(abs(rows).max())
    moves = abs(np.diff(rows, axis=0)).max(1, initial=0) > equal
    begins = np.append(0, np.flatnonzero(moves) + 1)  # of runs of equal rows
    if len(begins) == 1:
        return Course([], rows[0])
    last, radius = len(rows) - 1, None if isinstance(corners, str) else corners
    if times is None:
        labels, still, moving = begins, np.empty((0, 2), np.int64), (False, False)
        n = len(rows) - len(begins)
        remarks = [Remark("repeated waypoints left out", n, str(n))] if n else []
        rows, moves, last = rows[begins], moves[moves], len(begins) - 1
        knots = np.append(0.0, np.cumsum(np.linalg.norm(np.diff(rows, axis=0), axis=1)))
    else:
        labels, knots = times, (times - times[0]).astype(np.float64)
        runs = np.stack([begins, np.append(begins[1:], len(rows)) - 1], 1)
        # a gentle start has many rows that hardly differ, but whose differences add up
        drift = abs(rows[runs[:, 1]] - rows[runs[:, 0]]).max(1)
        still = runs[(runs[:, 1] - runs[:, 0] > 1) & (drift <= 2 * equal)]
        moving, remarks = _end_motion(velocity, np.diff(rows, axis=0) / np.diff(knots)[:, None])
        if any(moving) and acceleration is None:
            order: Any = min(last, 2)
            rates[1] = np.gradient(np.asarray(velocity), knots, axis=0, edge_order=order)
    moving = moving[0] and 0 not in still, moving[1] and last not in still
    if radius is not None and any(moving):
        moving = False, False
        remarks = [Remark("ends in motion are taken as at rest, as corners are cut")]
    turns, paths = list[tuple[float, float]](), list[Path]()
    for begin, end in np.concatenate([[0], still.ravel(), [last]]).reshape(-1, 2).tolist():
        if begin == end:
            continue
        span = rows[begin : end + 1]
        if radius is not None:
            paths.append(_cut_corners(span[np.append(True, moves[begin:end])], float(radius)))
            continue
        isolated = times is not None or corners is None
        sharp, angles = _find_corners(span, knots[begin : end + 1], isolated)
        turns += zip(labels[sharp + begin].astype(float).tolist(), angles.tolist(), strict=True)
        for i, k in itertools.pairwise([begin, *(sharp + begin), end]):
            edges = moving[0] and i == 0, moving[1] and k == last
            clock = None if times is None else knots[i : k + 1]
            ends = [[x[j] for x in rates if x is not None] for j in (i, k)]
            paths.append(_make_path(rows[i : k + 1], clock, ends, edges, len(sharp) > 0))
    if turns and corners is None:
        label = "row {:g}, {:.0f}°" if times is None else "{:g} s, {:.0f}°"
        raise InputError(
            "the path turns at once, where no timing but rest is within limits", where="position",
            expected="a smooth path", found=join_names((label.format(*x) for x in turns), 3),
            hint="corners='stop', which rests there; corners=0.01 cuts them by so much",
            shell="--corners stop, which rests there; --corners 0.01 cuts them by so much",
        )  # fmt: skip
    dwells = [(float(labels[i]), float(labels[k])) for i, k in still]
    return Course(paths, rows[0], moving, dwells, turns, remarks)


def _make_path(
    rows: Floats, knots: Floats | None, ends: Sequence[Sequence[Floats]],
    moving: tuple[bool, bool], cornered: bool,
) -> Path:  # fmt: skip
    """Makes a path through rows, with the rates of its ``moving`` ends."""
    # the clock of the rows tells where the curve bends, unless it goes on at a corner
    length = np.append(0.0, np.cumsum(np.linalg.norm(np.diff(rows, axis=0), axis=1)))
    even = np.diff(length).min() > 1e-3 * np.diff(length).max()
    if knots is None or (cornered and even and not any(moving)):
        return Path(length, rows)
    rates = np.zeros((2, 2, rows.shape[1]))
    for side in (0, 1):
        if moving[side]:
            rates[side] = ends[side]
    return Path(knots - knots[0], rows, None, rates, True, moving)


def _end_motion(velocity: Floats | None, slopes: Floats) -> tuple[tuple[bool, bool], list[Remark]]:
    """Tells whether a trajectory moves at its start and at its end, with remarks."""
    # It moves if a stored rate exceeds 1 % of the dof's peak speed. Positions alone rest at their
    # ends, with a remark if their slopes exceed 5 %.
    rates, least = (slopes, 0.05) if velocity is None else (velocity, 0.01)
    peak = abs(rates).max(0)
    # a dof that hardly moves, as by noise, decides nothing
    shares = abs(rates[[0, -1]]) / np.maximum(peak, max(peak.max() / 10, 1e-300))
    moves = shares.max(1) > least
    if velocity is not None or not moves.any():
        return (bool(moves[0]), bool(moves[1])), []
    kind, speeds = "taken as at rest", abs(rates[[0, -1], shares.argmax(1)])
    ends = zip(speeds.tolist(), ("start", "end"), strict=True)
    remarks = [Remark(kind, v, f"the {end}, where it moves at {v:.3g}/s") for v, end in ends]
    return (False, False), list(itertools.compress(remarks, moves))


def _find_corners(rows: Floats, knots: Floats, isolated: bool) -> tuple[Integers, Floats]:
    """Finds the rows at which a path turns, and by how many degrees."""
    rise = np.diff(rows, axis=0)
    slopes, size = rise / np.diff(knots)[:, None], np.linalg.norm(rise, axis=1)
    with np.errstate(all="ignore"):
        cosine = (rise[1:] * rise[:-1]).sum(1) / (size[1:] * size[:-1])
    angles = np.pad(np.degrees(np.arccos(np.clip(cosine, -1, 1))), 1)
    sharp = angles >= _TURN
    if isolated:
        # only where the slope changes ten times as much as at the two rows on either side, since
        # a densely sampled curve may turn by as much over several rows
        kinks = np.pad(np.linalg.norm(np.diff(slopes, axis=0), axis=1), 3)
        around = np.max([kinks[:-4], kinks[1:-3], kinks[3:-1], kinks[4:]], axis=0)
        # rounding makes no corner
        sharp &= kinks[2:-2] > np.maximum(10 * around, 1e-6 * abs(slopes).max())
        sharp[[0, 1, -2, -1]] = False
    return np.flatnonzero(sharp), angles[sharp]


def _cut_corners(rows: Floats, radius: float) -> Path:
    """Makes a quintic B-spline within the radius of the lines through rows."""
    # Rows within a tenth of the radius of a line are left out: D. Douglas and T. Peucker, 1973.
    corners, spans = {0, len(rows) - 1}, [(0, len(rows) - 1)]
    while spans:
        first, last = spans.pop()
        off, line = rows[first : last + 1] - rows[first], rows[last] - rows[first]
        along = np.clip(off @ line / max(line @ line, 1e-300), 0, 1)
        away = np.linalg.norm(off - along[:, None] * line, axis=1)
        if away.max() > 0.1 * radius:
            middle = first + int(away.argmax())
            corners.add(middle)
            spans += [(first, middle), (middle, last)]
    rows = rows[sorted(corners)]
    reach = np.diff(rows, axis=0)
    reach *= np.minimum(0.9 * radius / np.linalg.norm(reach, axis=1, keepdims=True), 0.4)
    # Control points are the other rows and, within the rest of the radius, points of the lines
    # before and after each. The curve lies in the hull of any six of them, which is so near.
    inner, back, ahead = rows[1:-1], reach[:-1], reach[1:]
    control = np.stack([inner - back, inner - back / 2, inner, inner + ahead / 2, inner + ahead], 1)
    points, still = np.concatenate([control.reshape(-1, rows.shape[1]), rows[-1:]]), 0 * rows[0]
    # from rest at a jerk whose cubic, as a quintic B-spline, has its last control point at 225/60 j
    start, goal = (State(rows[k], still, still, reach[k] * 60 / 225) for k in (0, -1))
    curve = integrate(points, start, 1 / 8, "bspline", degree=5, steps=8, ends="goal", goal=goal)
    rates = np.concatenate([curve.velocity, curve.acceleration])
    time: Any = curve.time
    return Path(time, curve.position[0], rates, clock=True)


def _sides(bounds: Bounds, dofs: int) -> Floats:
    """Stacks the lower and the upper limits of velocity, acceleration and jerk, [2, 3, D]."""
    pairs = [bounds.get(name, (-np.inf, np.inf)) for name in QUANTITIES[1:]]
    return np.array([[np.broadcast_to(pair[side], dofs) for pair in pairs] for side in (0, 1)])


def limit_faults(parts: Sequence[str], bounds: Mapping[str, Any]) -> Iterator[Fault]:
    """Checks limits: ``parts`` are the quantities that can have any."""
    if not bounds:
        yield Fault(_NONE, where="limits", expected="one of them or more")
    for name in bounds:
        if name not in parts:
            what, known = f"limits of {name}, and no {name}", ", ".join(parts) or "none"
            yield Fault(what, where=name, expected="every limited quantity", found=known)
            continue
        for side, sign, limit in zip(("lower", "upper"), (-1.0, 1.0), bounds[name], strict=True):
            values = np.atleast_1d(limit)
            for joint in np.flatnonzero(~(sign * values > 0)):  # NaN, too
                where = f"{name} {side}" + f", joint {joint}" * (len(values) > 1)
                what, expected = "a limit that no pace can keep", f"{side} {'<>'[sign > 0]} 0"
                yield Fault(what, where=where, expected=expected, found=f"{values[joint]:g}")


def solve_timings(courses: Sequence[Course], bounds: Bounds) -> list[CourseTiming]:
    """Computes the fastest timing of each course; raises UsageError without compiled kernels."""
    if why := absence():
        what, hint = "the fastest timing takes compiled kernels", "method='uniform'"
        raise UsageError(what, where="method", found=why, hint=hint, shell="--method uniform")
    raise_if_any(limit_faults(QUANTITIES[1:], bounds))
    paths, solved = [path for course in courses for path in course.paths], list[CourseTiming]()
    lower, upper = _sides(bounds, len(courses[0].first))
    timings = iter(fastest(paths, lower, upper))
    for course in courses:
        part = [next(timings) for _ in course.paths]
        state = min((x.state for x in part), key=_STATES.index, default="does not move")
        uniform = sum(x.uniform for x in part if x.state != "does not move")
        solved.append(CourseTiming(sum(x.duration for x in part), uniform, state, part))
    return solved


def make_setpoints(
    course: Course, timing: CourseTiming, bounds: Bounds, rate: float = 1000.0,
    rows: int | None = None, duration: float | None = None,
) -> Setpoints:  # fmt: skip
    """Makes the control points of a timing, whose differences keep the limits at every step.

    ``rate`` is in Hz; ``rows``, a number of rows, replaces it; ``duration`` is exact.
    """
    # From rest to rest the timing is stretched to a whole number of steps. An end that moves keeps
    # its speed, so that the last step, or the first, reaches into the rest at the other end; if
    # both ends move, steps become a little shorter. Differences of positions are means of their
    # derivatives: they exceed limits only by rounding, and at moving ends.
    lower, upper = _sides(bounds, len(course.first))
    uniform = {"hint": "method='uniform'", "shell": "--method uniform"}
    if timing.state in _STATES[:2]:
        what = "the curve through its rows moves at its ends and is beyond limits at its own pace"
        moving = np.any([np.ptp(path.points, 0) > 0 for path in course.paths], 0)
        if not np.isfinite([lower, upper])[..., moving].any():
            raise InputError(_NONE, where="limits", expected="one of a joint that moves")
        what = "a timing that is not finite" if timing.state == _STATES[0] else what
        raise InputError(what, where="limits", **uniform)
    around = 5 - course.moving[0] - 2 * course.moving[1]  # points before and after the motion
    if rows is not None and rows < 6:
        raise InputError("too few rows", where="rows", expected="6 or more", found=str(rows))
    if duration and any(course.moving):
        points = make_setpoints(course, timing, bounds, rate, rows)
        total = (points.count - 1) * points.step
        if abs(total - duration) > 1e-9 * duration:
            what, found = "an end that moves keeps its speed", f"{duration:g} s"
            takes = f"{total:.10g} s, which that takes"
            raise InputError(what, where="duration", expected=takes, found=found, **uniform)
        return points
    length, step = timing.duration, 1 / rate
    steps = math.ceil(length * rate * (1 - 1e-12))
    if rows or duration:
        steps = (rows - 1 if rows else round((duration or 0) * rate)) + 2 - around
    steps = max(steps, 7 - around)
    shrinks = bool(length and (rows or all(course.moving)))
    step = duration / (steps + around - 2) if duration else length / steps if shrinks else step
    size = np.max([abs(path.points).max(0) for path in course.paths] or [course.first], axis=0)
    # sampling leaves up to sixteen last places in each position
    rounding = 16 * np.array([[1], [2], [4]]) * np.spacing(size) / np.minimum(upper, -lower)
    finest = float(((100 * rounding.max(1)) ** (1 / np.array([1, 2, 3]))).max())
    reaches, pace = any(course.moving) and not shrinks, 1.0
    jerkless = not np.isfinite([lower[2], upper[2]]).any()
    for turn in itertools.count():
        if step < finest or turn == _TURNS:
            most = f"{0.95 / max(finest, 2 * step * (turn > 0)):.1e}".replace("e+0", "e")
            what, found = "rounding takes a hundredth of a limit", f"{1 / step:g} Hz"
            way = {"hint": f"rate={most}", "shell": f"--to {most}"}
            raise InputError(what, where="rate", expected=f"at most {most} Hz", found=found, **way)
        extent = steps * step / pace if reaches else length
        positions, needed = _sample_course(course, timing, extent, steps, jerkless), 0.0
        for order, low, high in zip((1, 2, 3), lower, upper, strict=True):
            change = np.diff(positions, order, axis=0)
            share = np.maximum(change.max(0) / high, change.min(0) / low).max()
            needed = max(needed, float(share) ** (1 / order))
        if duration and max(needed, length / steps) > step * _TOLERANCE:
            least = make_setpoints(course, timing, bounds, rate, rows)
            raise duration_error(duration, (least.count - 1) * least.step)
        step = max(step, needed) if shrinks else step
        if needed <= step * _TOLERANCE:
            break
        pace *= needed / step
        steps = max(steps + (not reaches), math.ceil(length * pace / step))
    start, goal = _end_state(positions[:4], step), _end_state(positions[:-5:-1], -step)
    return Setpoints(positions[4:-3], step, start, goal, len(positions) - 2)


def duration_error(duration: float, least: float) -> InputError:
    enough = math.ceil(least * 1e6) / 1e6
    return InputError(
        "limits forbid this duration", where="duration", expected=f">= {enough} s",
        found=f"{duration:g} s", hint=f"duration={enough}", shell=f"--duration {enough}",
    )  # fmt: skip


def _sample_course(
    course: Course, timing: CourseTiming, extent: float, steps: int, jerkless: bool
) -> Floats:
    """Samples positions at the ends of ``steps`` equal parts of an extent, and around it."""
    # The extent begins with the timing, or ends with it if the course moves at its end. The
    # positions around it repeat the ends; at a moving end they continue its Taylor polynomial.
    if not (size := extent / steps):
        return np.repeat(course.first[None], steps + 6, 0)
    at = np.linspace(0, extent, steps + 1) + course.moving[1] * (timing.duration - extent)
    durations = [x.duration for x in timing.timings]
    ends = np.cumsum(durations)
    number = np.searchsorted(ends, at).clip(max=len(ends) - 1)
    indices = np.unique(number).tolist()
    paths = [course.paths[k] for k in indices]
    solutions = [timing.timings[k].solution for k in indices]
    times = [at[number == k] - (ends[k] - durations[k]) for k in indices]
    states = np.concatenate(sample(paths, solutions, times, jerkless), 1)
    taylor = np.array([1, size, size**2 / 2, size**3 / 6])
    head = (taylor * [1, -1, 1, -1] @ states[:, 0])[None] if course.moving[0] else states[0, [0, 0]]
    tail = (taylor @ states[:, -1])[None] if course.moving[1] else states[0, [-1, -1, -1]]
    return np.concatenate([head, states[0], tail])


def _end_state(points: Floats, step: float) -> Floats:
    """Computes position to jerk [4, D] at the begin of the cubic B-spline of four points."""
    first, second, third = np.diff(points, axis=0)
    bend = second - first
    rates = (first + second) / 2 / step, bend / step**2, (third - second - bend) / step**3
    return np.stack([points[1] + bend / 6, *rates]) + 0.0  # no zero is negative


def is_binding(values: Floats, lower: Floats, upper: Floats) -> Booleans:
    """Tells where values [..., D] use 98 % of a limit or more: it binds. Zero uses none."""
    return np.where(values < 0, values <= 0.98 * lower, (values > 0) & (values >= 0.98 * upper))


def binding_shares(rows: Mapping[str, Floats], bounds: Bounds) -> dict[str, Floats]:
    """Computes the share of rows [..., T, D] at which a limit binds, [..., D] by name."""
    return {name: is_binding(rows[name], *pair).mean(-2) for name, pair in bounds.items()
            if name in rows}  # fmt: skip


def noise_cost(points: Floats, times: Floats, bounds: Bounds) -> float | None:
    """Estimates the share by which noisy rows [K, D] take longer than smoothed ones; else None."""
    # third differences of noise alternate: their autocorrelation from row to row is −3/4
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
