"""Trajectories and actions at another rate.

The dense second opinion of hold, linear and ramp-and-hold at whole factors is in
:mod:`trajcli.matrices`; that of B-splines is mode ``bspline``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from trajcli.arrays import to_numpy
from trajcli.checks import as_array, describe, time_stamp_faults
from trajcli.errors import Fault, InputError, UsageError, raise_if_any
from trajcli.modes.bspline import DEGREES

Array = Any
"""numpy.ndarray"""
Floats: TypeAlias = npt.NDArray[np.float64]

METHODS = ("hold", "linear", "ramp-and-hold", "cubic", "bspline")
_SAME = 1e-9
"""New rows that lie closer than this share of a step to an old row are that row."""


@dataclass(frozen=True)
class Resampled:
    """``values`` [B, T, D] at ``time`` [T], in seconds from the first row."""

    values: Array
    time: Array


def resample(
    values: Array,
    method: str = "linear",
    *,
    rate: float,
    dt: float | None = None,
    times: Array | None = None,
    hold: float = 0.0,
    degree: int = 3,
) -> Resampled:
    """Rows [B, T, D] or [T, D] at ``rate`` rows per second, from the first row on.

    The given rows lie ``dt`` seconds apart, or at ``times`` [T]. New rows are uniform, 1/rate
    apart, and end at or before the last given row; one that lies on a given row is that row. One
    row stays one row.

    - ``hold``: each row until the next. With ``times`` [T + 1] each row is an action that acts from
      its time to the next: the new rows are the actions at the beginnings of steps of 1/rate.
    - ``linear``: straight lines between rows.
    - ``ramp-and-hold``: straight lines that reach the next row early, by ``hold`` (0 ≤ hold < 1)
      of the step, and stay there.
    - ``cubic``: the cubic spline through the rows, with the not-a-knot condition at both ends (of
      three rows the parabola, of two the line). C. de Boor, "A Practical Guide to Splines", ch. IV.
    - ``bspline``: the rows are control points of a uniform B-spline of ``degree`` 3, 4 or 5, the
      first and last repeated ``degree`` times: it starts and ends at rest on them, and lasts
      (T + degree)·dt, as mode ``bspline`` with the first row as start state does.

    Computed in float64, returned in the values' own type (integers and float16: float64 and
    float32). Raises InputError or UsageError for shapes, times, rates and methods that are wrong.
    """
    rows = to_numpy(as_array(values, "values"))
    single = rows.ndim == 2
    rows = rows[None] if single else rows
    knots, rounding = _knots(rows.shape, dt, times, method)
    acting = len(knots) > rows.shape[1]
    resampler = make_resampler(method, knots, rate, hold, degree, rounding, acting)
    resampled = resampler.apply(rows)
    return Resampled(resampled[0] if single else resampled, resampler.time)


@dataclass(frozen=True)
class Resampler:
    """New rows as a function of old ones: ``evaluate`` makes [b, T', D] of [b, T, D], in float64.

    time: of the new rows [T'], in seconds.
    """

    time: Floats
    evaluate: Callable[[Floats], Floats]

    def apply(self, rows: Array) -> Array:
        """[B, T, D] → [B, new T, D], in the type that rows have."""
        return self.evaluate(rows.astype(np.float64)).astype(output_type(rows.dtype))


def output_type(kind: np.dtype[Any]) -> np.dtype[Any]:
    """float32 for float32 and half precision, else float64."""
    small = kind.kind == "f" and kind.itemsize <= 4
    return np.dtype(np.float32 if small else np.float64)


def make_resampler(
    method: str,
    knots: Floats,
    rate: float,
    hold: float = 0.0,
    degree: int = 3,
    rounding: float = 0.0,
    acting: bool = False,
) -> Resampler:
    """How rows at ``knots`` become rows at ``rate``; raises UsageError.

    knots: seconds from the first row on, [T], or [b, T] of trajectories that have as many new
    rows. rounding: how far the knots may be off, as time stamps are by their type. acting: rows to
    hold are actions, and one knot more than rows is the end of the last.
    """
    raise_if_any(_option_faults(method, rate, hold, degree), UsageError)
    knots = np.atleast_2d(knots)
    if knots.shape[1] == 1:
        return Resampler(np.zeros(1), lambda rows: rows)
    if method == "bspline":
        steps = [_uniform(line, rounding) for line in knots]
        rows = knots.shape[1] + degree
        placed = [_new_rows(step * rows, step, rate, rounding) for step in steps]
        places = np.stack([place for _, place in placed])
        return Resampler(placed[0][0], lambda rows: _spline(rows, places, degree))
    located = [_between(line, rate, rounding) for line in knots]
    if acting:
        located = [_before_end(*line, knots.shape[1] - 1) for line in located]
    time, index = located[0][0], np.stack([row for _, row, _ in located])
    share = np.stack([part for _, _, part in located])
    if method == "cubic":
        return Resampler(time, lambda rows: _cubic(rows, knots, index, share))
    if method == "hold":
        row = index + (share == 1.0)  # the last row is a row, not the end of a hold
        return Resampler(time, lambda rows: take_rows(rows, row))
    if method == "ramp-and-hold":
        share = np.minimum(share / (1.0 - hold), 1.0)
    return Resampler(time, lambda rows: _linear(rows, index, share))


def _option_faults(method: str, rate: float, hold: float, degree: int) -> list[Fault]:
    faults = []
    if method not in METHODS:
        faults.append(Fault("unknown method", "method", ", ".join(METHODS), repr(method)))
    if not (math.isfinite(rate) and rate > 0):
        faults.append(Fault("a rate that is not positive", "rate", "Hz > 0", str(rate)))
    if not 0.0 <= hold < 1.0:
        faults.append(Fault("a hold as long as the step", "hold", "0 ≤ hold < 1", str(hold)))
    if hold and method != "ramp-and-hold":
        faults.append(Fault("a hold is part of ramp-and-hold", "hold", "0", str(hold)))
    if degree not in DEGREES:
        faults.append(Fault("unknown degree", "degree", "3, 4 or 5", str(degree)))
    return faults


def _knots(
    shape: tuple[int, ...], dt: float | None, times: Array | None, method: str
) -> tuple[Floats, float]:
    """The times of the given rows, from 0 on, and how far they may be off by rounding."""
    if len(shape) != 3 or shape[1] < 1:
        raise InputError(Fault("wrong shape", "values", "[B, T, D], T >= 1", describe(shape)))
    if (dt is None) == (times is None):
        raise UsageError(Fault("one of dt and times says where the rows lie", "dt, times"))
    if times is None:
        assert dt is not None
        if not (math.isfinite(dt) and dt > 0):
            what = "a step that is not positive and finite"
            raise InputError(Fault(what, "dt", "dt > 0, in seconds", repr(dt)))
        return np.arange(float(shape[1])) * dt, 0.0
    stamps = to_numpy(as_array(times, "times"))
    if stamps.shape != (shape[1],) and not (method == "hold" and stamps.shape == (shape[1] + 1,)):
        expected = describe((shape[1],))
        raise InputError(
            Fault("wrong number of time stamps", "times", expected, describe(stamps.shape))
        )
    raise_if_any(time_stamp_faults(stamps, "times"))
    elapsed: Floats = (stamps - stamps[0]).astype(np.float64)
    return elapsed, rounding_of(stamps)


def rounding_of(stamps: Array) -> float:
    """How far time stamps, and differences of them, may be off because of their type."""
    largest = float(np.abs(stamps.astype(np.float64)).max(initial=0.0))
    kind = stamps.dtype if stamps.dtype.kind == "f" and stamps.itemsize < 8 else np.float64
    return 4.0 * float(np.spacing(np.asarray(largest, kind)))


def _uniform(knots: Floats, rounding: float) -> float:
    """The step of knots that are uniform."""
    steps = np.diff(knots)
    step = float(knots[-1] / len(steps))
    if np.abs(steps - step).max() > 1e-6 * step + rounding:
        uneven = f"steps from {steps.min():g} to {steps.max():g} s"
        raise UsageError(Fault("a B-spline has uniform knots", "times", "one dt", uneven))
    return step


def _new_rows(
    duration: float, step: float, rate: float, rounding: float = 0.0
) -> tuple[Floats, Floats]:
    """Times of rows at ``rate`` up to ``duration``, and where they lie, in steps.

    What is a row within rounding is that row: dt and rate are decimal numbers, seldom exact.
    """
    per_step = 1.0 / (rate * step)
    near = Fraction(per_step).limit_denominator(100_000)
    exact = abs(float(near) - per_step) <= (4e-16 + rounding / duration) * per_step
    last = round(duration / step)
    if exact:
        count = Fraction(last) / near
        numbers = np.arange(int(count) + 1)
        place = np.asarray(numbers * near.numerator / near.denominator, np.float64)
    else:
        count_of = math.floor(duration * rate * (1 + 1e-12) + _SAME)
        numbers = np.arange(count_of + 1)
        place = np.asarray(numbers * per_step, np.float64)
    whole = np.rint(place)
    place = np.where(np.abs(place - whole) <= _SAME, whole, place)
    return numbers / rate, np.minimum(place, last)


def _between(
    knots: Floats, rate: float, rounding: float
) -> tuple[Floats, npt.NDArray[np.int64], Floats]:
    """New times, the old row before each, and the share of the step after it (1: the last)."""
    steps = np.diff(knots)
    step = float(knots[-1] / len(steps))
    if np.abs(steps - step).max() <= 1e-12 * knots[-1] + rounding:
        time, place = _new_rows(float(knots[-1]), step, rate, rounding)
        index = np.minimum(place.astype(np.int64), len(knots) - 2)
        return time, index, place - index
    numbers = np.arange(math.floor((float(knots[-1]) + rounding) * rate + _SAME) + 1)
    time = numbers / rate
    index = np.clip(np.searchsorted(knots, time + rounding, "right") - 1, 0, len(knots) - 2)
    share = (time - knots[index]) / steps[index]
    same = _SAME + rounding / steps[index]
    share = np.where(share > 1.0 - same, 1.0, np.where(share < same, 0.0, share))
    following = (share == 1.0) & (index < len(knots) - 2)  # it is the row after: hold that one
    return time, index + following, np.where(following, 0.0, share)


def _before_end(
    time: Floats, index: npt.NDArray[np.int64], share: Floats, steps: int
) -> tuple[Floats, npt.NDArray[np.int64], Floats]:
    """The result of :func:`_between` without the row at the end of the last step."""
    inside = index + (share == 1.0) < steps
    return time[inside], index[inside], share[inside]


def take_rows(rows: Array, index: npt.NDArray[np.int64]) -> Array:
    """Rows [b, T', D] by their numbers, [1, T'] the same of all trajectories or [b, T']."""
    if len(index) == 1:
        return np.take(rows, index[0], axis=1)  # five times as fast as rows[:, index[0]]
    return np.take_along_axis(rows, index[..., None], axis=1)


def _linear(rows: Floats, index: npt.NDArray[np.int64], share: Floats) -> Floats:
    """Between rows index and index + 1; on a row it is that row, whatever the next one holds."""
    after: Floats = take_rows(rows, index + (share > 0.0))
    before: Floats = take_rows(rows, index + (share == 1.0))
    after *= share[..., None]
    before *= 1.0 - share[..., None]
    before += after
    return before


def _cubic(rows: Floats, knots: Floats, index: npt.NDArray[np.int64], share: Floats) -> Floats:
    """The spline in the form of its slopes: a cubic Hermite piece between two rows."""
    slopes = spline_slopes(rows, knots)
    step = np.take_along_axis(np.diff(knots), index, axis=1)[..., None]
    s = share[..., None]
    before, after = take_rows(rows, index), take_rows(rows, index + 1)
    rise = after - before
    bend = (1.0 - s) * (step * take_rows(slopes, index) - rise)
    bend -= s * (step * take_rows(slopes, index + 1) - rise)
    between: Floats = before * (1.0 - s) + after * s + (1.0 - s) * s * bend
    return between


def spline_slopes(rows: Floats, knots: Floats) -> Floats:
    """Slopes [B, T, D] at the rows of the not-a-knot cubic spline through them.

    knots: [1, T] or [B, T].
    """
    h = np.diff(knots).T[..., None]  # [T - 1, 1 or B, 1]
    y = np.moveaxis(rows, 1, 0)  # [T, B, D]
    secant = np.diff(y, axis=0) / h
    n = len(y)
    if n == 2:
        return np.moveaxis(np.concatenate([secant, secant]), 0, 1)
    if n == 3:  # the parabola through three rows
        a, b = h[0], h[1]
        middle = (b * secant[0] + a * secant[1]) / (a + b)
        return np.moveaxis(np.stack([2 * secant[0] - middle, middle, 2 * secant[1] - middle]), 0, 1)
    below, on, above = (np.empty((n, *h.shape[1:])) for _ in range(3))
    right = np.empty_like(y)
    below[1:-1], on[1:-1], above[1:-1] = h[1:], 2 * (h[:-1] + h[1:]), h[:-1]
    right[1:-1] = 3 * (h[1:] * secant[:-1] + h[:-1] * secant[1:])
    for end, near, far, beside in ((0, 0, 1, above), (n - 1, n - 2, n - 3, below)):
        a, b = h[near], h[far]
        on[end], beside[end] = b, a + b
        right[end] = ((a + 2 * (a + b)) * b * secant[near] + a**2 * secant[far]) / (a + b)
    return np.moveaxis(_solve_tridiagonal(below, on, above, right), 0, 1)


def _solve_tridiagonal(below: Floats, on: Floats, above: Floats, right: Floats) -> Floats:
    """Row by row, all columns at once; the spline's system needs no pivoting."""
    n = len(on)
    pivot: Floats = on.copy()
    solution: Floats = right.copy()
    for i in range(1, n):
        factor = below[i] / pivot[i - 1]
        pivot[i] = on[i] - factor * above[i - 1]
        solution[i] -= factor * solution[i - 1]
    solution[-1] /= pivot[-1]
    for i in range(n - 2, -1, -1):
        solution[i] = (solution[i] - above[i] * solution[i + 1]) / pivot[i]
    return solution


def _spline(rows: Floats, place: Floats, degree: int) -> Floats:
    """The uniform B-spline over the rows, its ends repeated, at places [1 or b, T'] in knots."""
    points = np.concatenate([rows[:, :1]] * degree + [rows] + [rows[:, -1:]] * degree, 1)
    segment = np.minimum(place.astype(np.int64), points.shape[1] - degree - 1)
    weights = basis(degree, place - segment)  # [degree + 1, 1 or b, T']
    total = np.zeros((len(rows), place.shape[1], rows.shape[2]))
    for i, weight in enumerate(weights):
        total += weight[..., None] * take_rows(points, segment + i)
    return total


def basis(degree: int, s: Floats) -> Floats:
    """The degree + 1 uniform B-splines that are not zero at local times s in [0, 1].

    Cox and de Boor's recurrence on unit knots.
    """
    splines: list[Floats] = [np.ones_like(s)]
    for d in range(1, degree + 1):
        rising = [(s + (d - 1 - i)) / d * b for i, b in enumerate(splines)]
        falling = [(i + 1 - s) / d * b for i, b in enumerate(splines)]
        splines = [
            (falling[i] if i < d else 0.0) + (rising[i - 1] if i else np.zeros_like(s))
            for i in range(d + 1)
        ]
    return np.stack(splines)
