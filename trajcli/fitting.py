"""Recordings as B-splines: the control points whose curve is nearest to the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from trajcli.arrays import (
    as_array,
    cast,
    concatenate,
    float64,
    is_torch,
    output_dtype,
    readable,
    to_numpy,
    to_torch,
)
from trajcli.checks import describe, nonfinite_fault, time_stamp_faults, time_stamp_shape_faults
from trajcli.errors import Fault, InputError, UsageError, raise_if_any
from trajcli.modes.bspline import BSpline
from trajcli.modes.mode import PARTS
from trajcli.modes.stencils import blossoms
from trajcli.trajectory import State

Array = Any
"""numpy.ndarray or torch.Tensor."""
Floats: TypeAlias = npt.NDArray[np.float64]
_SINGULAR = 1e13


@dataclass(frozen=True)
class Fitted:
    """B-splines that fit recordings, as mode ``bspline`` takes them with ``ends="goal"``.

    actions [B, H, D]: control points; the last, which that mode does not use, is the goal position.
    start, goal: states [B, D], held or fitted. knot [B]: the knot spacing in seconds, dt · steps.
    error [B]: how far any row is from the curve.
    """

    actions: Array
    start: State
    goal: State
    knot: Floats
    error: Floats


def fit(
    positions: Array,
    dt: float | None = None,
    *,
    times: Array | None = None,
    knots: int | None = None,
    error: float | None = None,
    degree: int = 3,
    start: State | None = None,
    goal: State | None = None,
) -> Fitted:
    """The least-squares B-spline of recorded positions: control points for mode ``bspline``.

    positions [B, T, D] or [T, D], NumPy or torch; their step ``dt`` in seconds or their ``times``
    [T] or [B, T]. Uniform ``knots``, so many intervals over each trajectory,
    or about as few as bring every row within ``error`` of its curve. The parts of ``start`` and
    ``goal`` that are given are held exactly, others are fitted; with degree 4 and 5 the first and
    the last interval are cubic, as in mode ``bspline``. ``integrate(f.actions, f.start,
    f.knot[:, None] / steps, "bspline", degree=degree, steps=steps, ends="goal", goal=f.goal)``
    is the curve. Differentiable with respect to positions and states.

    The normal equations, a band, are solved by blocks, and the solution is refined once; C. de
    Boor, "A Practical Guide to Splines", ch. XIV. Raises InputError for arrays and times that are
    wrong and intervals without rows, UsageError for a degree, knots or an error that cannot be.
    """
    rows = as_array(positions, "positions")
    rows = rows[None] if rows.ndim == 2 else rows
    if rows.ndim != 3 or 0 in rows.shape:
        raise InputError(Fault("wrong shape", "positions", "[B, T, D]", describe(rows.shape)))
    if (knots is None) == (error is None) or (dt is None) == (times is None):
        raise UsageError(Fault("either knots or an error, and either dt or times", "fit"))
    stamps = dt * np.arange(rows.shape[1]) if times is None else to_numpy(as_array(times, "times"))
    raise_if_any(time_stamp_shape_faults(stamps.shape, len(rows), rows.shape[1], "times"))
    stamps = np.atleast_2d(stamps).astype(np.float64)
    bad = nonfinite_fault(rows, "positions", ("trajectory", "row", "dof"))
    faults = time_stamp_faults(stamps, "times" if dt is None else "dt")
    raise_if_any(faults if bad is None else [*faults, bad])
    held = _held(start, rows, "start"), _held(goal, rows, "goal")

    fitted = partial(_fit, rows, stamps, degree, held)
    if knots is None:
        knots = fewest_intervals(lambda n: fitted(n).error.max(), error, degree, rows.shape[1])
    return fitted(knots)


def fewest_intervals(
    largest: Callable[[int], float], error: float | None, degree: int, rows: int
) -> int:
    """About as few intervals as bring ``largest``, the error with so many, to ``error``.

    Raises UsageError for an error that is none, or that is not reached.
    """
    if error is None or not 0 < error < np.inf:
        raise UsageError(Fault("not an error", "error", "a number > 0", str(error)))
    require_intervals(degree + 2, degree, rows)
    fails, count, most = degree + 1, degree + 2, rows + degree - 6
    while (off := largest(count)) > error:
        if count >= most:
            found = f"{off:.3g} with {count} intervals"
            raise UsageError(Fault("an error that is not reached", "error", f"{error:g}", found))
        fails, count = count, min(2 * count, most)
    while count - fails > 1:
        middle = (fails + count) // 2
        fails, count = (fails, middle) if largest(middle) <= error else (middle, count)
    return count


def require_intervals(intervals: int, degree: int, rows: int) -> None:
    """Raise UsageError for a degree, or a number of intervals, that rows cannot be fitted with."""
    if degree not in BSpline.degrees:
        raise UsageError(Fault("no such degree", "degree", "3, 4 or 5", str(degree)))
    most = rows + degree - 6  # with more, there are more unknowns than rows
    if not degree + 2 <= intervals <= most:
        expected = f"{degree + 2} to {most}, of {rows} rows"
        raise UsageError(Fault("no such number of intervals", "knots", expected, str(intervals)))


def _held(state: State | None, rows: Array, role: str) -> dict[str, Array]:
    """The parts of a state, float64 [B, 1, D] in the library of the rows."""
    parts: dict[str, Array] = {}
    for name, values in ({} if state is None else state.parts()).items():
        where, part = f"{role}/{name}", as_array(values, f"{role}/{name}")
        part = part[None] if part.ndim == 1 else part
        if part.shape not in ((1, rows.shape[2]), (len(rows), rows.shape[2])):
            expected = f"[{rows.shape[2]}] or [{len(rows)}, {rows.shape[2]}]"
            raise InputError(Fault("wrong shape", where, expected, describe(part.shape)))
        bad = nonfinite_fault(part, where, ("trajectory", "dof"))
        raise_if_any([] if bad is None else [bad])
        parts[name] = float64(_like(part, rows))[:, None] + 0.0 * float64(rows[:, :1])
    return parts


def _like(values: Array, like: Array) -> Array:
    """The values in the library, and on the device, of others."""
    return to_torch(values, str(like.device)) if is_torch(like) else to_numpy(values)


def _fit(
    rows: Array, times: Floats, degree: int, held: Sequence[Mapping[str, Array]], intervals: int
) -> Fitted:
    """The fit of rows [B, T, D] at times [1 or B, T] that holds parts of the start and the goal."""
    require_intervals(intervals, degree, rows.shape[1])
    target, dtype, (batch, _, dofs) = float64(rows), output_dtype(rows), rows.shape
    knot = np.broadcast_to((times[:, -1] - times[:, 0]) / intervals, batch).copy()
    powers = _like(knot[:, None] ** np.arange(4.0), target)[..., None]
    design = _Design(times, intervals, degree)

    zero = 0.0 * target[:, :1]
    first, last = (
        concatenate([parts.get(name, zero) for name in PARTS], 1) * powers for parts in held
    )
    between = _like(np.zeros((batch, intervals - degree - 2, dofs)), target)
    unknowns = concatenate([first, between, last], 1)
    free = np.ones((unknowns.shape[1], 1))
    free[:4, 0], free[-4:, 0] = ([name not in parts for name in PARTS] for parts in held)
    block = degree + 3
    ones = np.resize(np.eye(3 * block), (len(free), 3 * block))
    band = free * design.normal_matrix(free * ones) + (1.0 - free) * ones
    for _ in range(2):  # the second time for what the first one rounded
        right = _like(free, target) * design.adjoint(target - design.positions(unknowns))
        unknowns = unknowns + _solved(band, right, block)

    states = []
    for parts, ends in zip(held, (unknowns[:, :4], unknowns[:, -4:]), strict=True):
        values = zip(PARTS, range(4), strict=True)
        state = {name: parts.get(name, (ends / powers)[:, m : m + 1]) for name, m in values}
        states.append(State(**{name: cast(x[:, 0], dtype) for name, x in state.items()}))
    points = [cast(unknowns[:, 4:-4], dtype), states[1].position[:, None]]
    off = target - design.positions(unknowns)
    error = np.abs(to_numpy(off)).max((1, 2)) if readable(off) else np.full(batch, np.nan)
    return Fitted(concatenate(points, 1), states[0], states[1], knot, error)


class _Design:
    """The positions [B, T, D] as linear functions of the unknowns [B, N, D].

    The unknowns are p, v·h, a·h² and j·h³ of the start, the points between, and those of the goal.
    weights [1 or B, T, d + 1]: of the points from number ``segment`` [1 or B, T] on.
    """

    def __init__(self, times: Floats, intervals: int, degree: int) -> None:
        place = intervals * (times - times[:, :1]) / (times[:, -1:] - times[:, :1])
        if (np.abs(place - place[:1]) < 1e-12 * intervals).all():
            place = place[:1]  # one matrix for all
        self.intervals, self.width = intervals, degree + 1
        self.segment = np.minimum(place.astype(np.int64), intervals - 1)
        self.weights = _basis(place - self.segment, degree)
        self.ends = [np.array(blossoms(degree, when), np.float64) for when in (0, 1)]

    def positions(self, unknowns: Array) -> Array:
        """The rows [B, T, D] on the curves."""
        points = self._with_ends(unknowns, *self.ends)
        segment, weights = self._terms(points, points.shape[1])
        values = points.reshape(-1, points.shape[2])
        return sum(weights[..., n, None] * values[segment + n] for n in range(self.width))

    def adjoint(self, rows: Array) -> Array:
        """The transpose: [B, N, D]."""
        count = self.intervals + self.width - 1
        segment, weights = self._terms(rows, count)
        shape = len(rows), count, rows.shape[2]
        terms = (weights[..., n, None] * rows for n in range(self.width))
        points = sum(_sums(segment + n, term, shape) for n, term in enumerate(terms))
        return self._with_ends(points, *(end.T for end in self.ends))

    def normal_matrix(self, probes: Floats) -> Array:
        """The adjoint of the positions of NumPy unknowns [N, n], [b, N, n]."""
        width, shape = self.width, (*self.weights.shape[:1], self.intervals, self.width)
        segment, weights = self._terms(self.weights, self.intervals)
        points = self._with_ends(probes[None], *self.ends)
        result = np.zeros((len(weights), *points.shape[1:]))
        for n in range(width):
            products = _sums(segment, weights[..., n, None] * weights, shape)
            for k in range(width):
                part = points[:, k : k + self.intervals]
                result[:, n : n + self.intervals] += products[..., k, None] * part
        return self._with_ends(result, *(end.T for end in self.ends))

    def _terms(self, like: Array, count: int) -> tuple[Array, Array]:
        """The segments of ``count`` for each trajectory, counted through all, and the weights."""
        segment = self.segment + count * np.arange(len(like))[:, None]
        return _like(segment, like), _like(self.weights, like)

    @staticmethod
    def _with_ends(values: Array, start: Floats, goal: Floats) -> Array:
        """Values [B, n, D], of which matrices are applied to the first and the last."""
        first, last = _like(start, values), _like(goal, values)
        n = first.shape[1]
        return concatenate([first @ values[:, :n], values[:, n:-n], last @ values[:, -n:]], 1)


def _sums(places: Array, values: Array, shape: tuple[int, ...]) -> Array:
    """Zeros of a shape [B, N, D], to which values [B, T, D] at increasing places are added."""
    flat, places = values.reshape(-1, shape[2]), places.reshape(-1)
    if is_torch(values):
        zeros = values.new_zeros(shape).reshape(-1, shape[2])
        return zeros.index_add(0, places, flat).reshape(shape)
    begins = np.flatnonzero(np.diff(places, prepend=-1))
    sums = np.zeros((shape[0] * shape[1], shape[2]))
    sums[places[begins]] = np.add.reduceat(flat, begins)
    return sums.reshape(shape)


def _basis(local: Floats, degree: int) -> Floats:
    """The uniform B-splines at local times 0..1 of an interval, [..., degree + 1].

    C. de Boor, "A Practical Guide to Splines", ch. X.
    """
    values: list[Any] = [np.ones(local.shape)]
    for j in range(1, degree + 1):
        lower = [0.0, *values, 0.0]
        values = [
            ((local + j - r) * lower[r] + (r + 1 - local) * lower[r + 1]) / j for r in range(j + 1)
        ]
    return np.stack(values, -1)


def _solved(band: Array, right: Array, n: int) -> Array:
    """The solution [B, N, D] of a system in blocks of n rows, of which neighbours are coupled.

    band [b, N, 3n]: column j holds those of the unknowns j, j + 3n, j + 6n and so on.
    Raises InputError where it is singular.
    """
    inverses: list[Array] = []
    below: list[Array] = []
    solved: list[Array] = []
    for begin in range(0, band.shape[1], n):
        rows, i, before = band[:, begin : begin + n], begin % (3 * n), (begin - n) % (3 * n)
        matrix, part = rows[..., i : i + rows.shape[1]], right[:, begin : begin + n]
        if begin:
            below.append(rows[..., before : before + n])
            ratio = below[-1] @ inverses[-1]
            matrix = matrix - ratio @ below[-1].swapaxes(1, 2)
            part = part - _like(ratio, right) @ solved[-1]
        if not (np.linalg.cond(matrix, 1) < _SINGULAR).all():
            hint = "fewer intervals, a larger error, or no gaps between the rows"
            raise InputError(Fault("too few rows to fit", f"interval {begin}", hint=hint))
        inverses.append(np.linalg.inv(matrix))
        solved.append(part)
    solved[-1] = _like(inverses[-1], right) @ solved[-1]
    for i in reversed(range(len(below))):
        coupled = _like(below[i].swapaxes(1, 2), right) @ solved[i + 1]
        solved[i] = _like(inverses[i], right) @ (solved[i] - coupled)
    return concatenate(solved, 1)
