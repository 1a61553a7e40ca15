"""Recordings as B-splines: the control points whose curve is nearest to the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
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
from trajcli.checks import describe, nonfinite_fault, time_stamp_faults
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
    stamps = np.atleast_2d(stamps).astype(np.float64)
    if stamps.shape not in ((1, rows.shape[1]), (len(rows), rows.shape[1])):
        expected = f"[{rows.shape[1]}] or [{len(rows)}, {rows.shape[1]}]"
        found = describe(stamps.shape)
        raise InputError(Fault("wrong number of time stamps", "times", expected, found))
    bad = nonfinite_fault(rows, "positions", ("trajectory", "row", "dof"))
    faults = time_stamp_faults(stamps, "times" if dt is None else "dt")
    raise_if_any(faults if bad is None else [*faults, bad])
    held = _held(start, rows, "start"), _held(goal, rows, "goal")
    if knots is not None:
        return _fit(rows, stamps, knots, degree, *held)

    def largest(count: int) -> float:
        return float(_fit(rows, stamps, count, degree, *held).error.max())

    count = fewest_intervals(largest, error, degree, rows.shape[1])
    return _fit(rows, stamps, count, degree, *held)


def fewest_intervals(
    largest: Callable[[int], float], error: float | None, degree: int, rows: int
) -> int:
    """About as few intervals as bring ``largest``, the error with so many, to ``error``.

    Raises UsageError for an error that is none, or that is not reached.
    """
    if error is None or not 0 < error < np.inf:
        raise UsageError(Fault("not an error", "error", "a number > 0", str(error)))
    require_intervals(degree + 2, degree, rows)
    fails, count, most = degree + 1, degree + 2, _most_intervals(degree, rows)
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
    most = _most_intervals(degree, rows)
    if not degree + 2 <= intervals <= most:
        expected = f"{degree + 2} to {most}, of {rows} rows"
        raise UsageError(Fault("no such number of intervals", "knots", expected, str(intervals)))


def _most_intervals(degree: int, rows: int) -> int:
    """With more, the unknowns are more than rows: two states, and points between them."""
    return rows + degree - 6


def _held(state: State | None, rows: Array, role: str) -> dict[str, Array]:
    """The parts of a state, float64 [1 or B, D] in the library of the rows."""
    parts: dict[str, Array] = {}
    for name, values in ({} if state is None else state.parts()).items():
        part = as_array(values, f"{role}/{name}")
        part = part[None] if part.ndim == 1 else part
        if part.shape not in ((1, rows.shape[2]), (rows.shape[0], rows.shape[2])):
            expected = f"[{rows.shape[2]}] or [{rows.shape[0]}, {rows.shape[2]}]"
            raise InputError(Fault("wrong shape", f"{role}/{name}", expected, describe(part.shape)))
        bad = nonfinite_fault(part, f"{role}/{name}", ("trajectory", "dof"))
        raise_if_any([] if bad is None else [bad])
        parts[name] = float64(_like(part, rows))
    return parts


def _like(values: Array, like: Array) -> Array:
    """The values in the library, and on the device, of others."""
    return to_torch(values, str(like.device)) if is_torch(like) else to_numpy(values)


def _fit(
    rows: Array, times: Floats, intervals: int, degree: int, *held: Mapping[str, Array]
) -> Fitted:
    """The fit of rows [B, T, D] at times [1 or B, T] that holds parts of the start and the goal.

    The first and the last d + 1 of the S + d points are the polynomials of the two states, linear
    in their parts. Points are coupled to the d next to them alone: in blocks of d + 1 and more,
    only neighbours are.
    """
    require_intervals(intervals, degree, rows.shape[1])
    width, points = degree + 1, intervals + degree
    target, (batch, _, dofs) = float64(rows), rows.shape
    knot = np.broadcast_to((times[:, -1] - times[:, 0]) / intervals, batch).copy()
    powers = _like(knot[:, None] ** np.arange(4.0), target)  # [B, 4]
    ends = [np.array(blossoms(degree, when), np.float64) for when in (0, 1)]
    fixed = [_fixed(end, parts, powers, target) for end, parts in zip(ends, held, strict=True)]
    middle = _like(np.zeros((batch, points - 2 * width, dofs)), target)
    curve = concatenate([fixed[0], middle, fixed[1]], 1)
    free = [[m for m, name in enumerate(PARTS) if name not in parts] for parts in held]

    firsts = [*range(0, points - width + 1, width), points]
    rest = points - firsts[-2] - width  # points before the goal's in its block
    bases = [ends[0][:, free[0]], *(np.eye(width) for _ in firsts[2:])]
    bases[-1] = np.zeros((rest + width, rest + len(free[1])))
    bases[-1][:rest, :rest], bases[-1][rest:, rest:] = np.eye(rest), ends[1][:, free[1]]
    design = _Design(times, intervals, degree)
    inverses, below = (
        [_like(x, target) for x in y] for y in _factored(design.matrix(), firsts, bases)
    )
    to_points = [_like(basis, target) for basis in bases]

    unknowns: list[Array] = []
    for _ in range(2):  # the second time for what the first one rounded
        right = design.adjoint(target - design.positions(curve))
        blocks = zip(to_points, pairwise(firsts), strict=True)
        new = _solved(inverses, below, [basis.T @ right[:, a:b] for basis, (a, b) in blocks])
        unknowns = [a + b for a, b in zip(unknowns, new, strict=True)] if unknowns else new
        curve = curve + concatenate([x @ y for x, y in zip(to_points, new, strict=True)], 1)

    start = _state(held[0], free[0], unknowns[0], powers, rows)
    goal = _state(held[1], free[1], unknowns[-1][:, rest:], powers, rows)
    actions = concatenate(
        [cast(curve[:, width : points - width], output_dtype(rows)), goal.position[:, None]], 1
    )
    off = target - design.positions(curve)
    error = np.abs(to_numpy(off)).max((1, 2)) if readable(off) else np.full(batch, np.nan)
    return Fitted(actions, start, goal, knot, error)


def _fixed(end: Floats, parts: Mapping[str, Array], powers: Array, target: Array) -> Array:
    """What the held parts of a state give to its points [B, d + 1, D]."""
    total = _like(np.zeros((len(target), len(end), target.shape[2])), target)
    for m, name in enumerate(PARTS):
        if name in parts:
            scaled = parts[name] * powers[:, m, None]
            total = total + _like(end[:, m, None], target) * scaled[:, None]
    return total


def _state(
    held: Mapping[str, Array], free: Sequence[int], fitted: Array, powers: Array, rows: Array
) -> State:
    """The held and the fitted parts of a state, in the type of the rows."""
    parts = {PARTS[m]: fitted[:, i] / powers[:, m, None] for i, m in enumerate(free)}
    parts |= {name: values + 0.0 * float64(rows[:, 0]) for name, values in held.items()}
    return State(**{name: cast(values, output_dtype(rows)) for name, values in parts.items()})


class _Design:
    """The positions [B, T, D] as linear functions of the points [B, P, D] of uniform B-splines.

    weights [1 or B, T, d + 1]: of the points with these numbers, in ``index``.
    """

    def __init__(self, times: Floats, intervals: int, degree: int) -> None:
        place = intervals * (times - times[:, :1]) / (times[:, -1:] - times[:, :1])
        if (np.abs(place - place[:1]) < 1e-12 * intervals).all():
            place = place[:1]  # one matrix for all
        segment = np.minimum(place.astype(np.int64), intervals - 1)
        self.points, self.index = intervals + degree, segment[..., None] + np.arange(degree + 1)
        self.weights = _basis(place - segment, degree)

    def matrix(self) -> Floats:
        """The normal matrix of all points: its main diagonal and those below, [b, P, d + 1]."""
        batch, _, width = self.weights.shape
        segments = np.zeros((batch, self.points - width + 1, width, width))
        which = np.arange(batch)[:, None], self.index[..., 0]
        np.add.at(segments, which, self.weights[..., None] * self.weights[..., None, :])
        band = np.zeros((batch, self.points, width))
        for i in range(width):
            for k in range(i + 1):
                band[:, i : i + segments.shape[1], k] += segments[:, :, i, i - k]
        return band

    def positions(self, points: Array) -> Array:
        """The rows [B, T, D] on the curves."""
        index, weights = self._terms(points)
        return (weights * points.reshape(-1, points.shape[2])[index]).sum(2)

    def adjoint(self, rows: Array) -> Array:
        """The transpose: [B, P, D]."""
        index, weights = self._terms(rows)
        (batch, _, dofs), terms = rows.shape, weights * rows[:, :, None]
        if is_torch(rows):
            sums = rows.new_zeros(batch * self.points, dofs)
            sums = sums.index_add(0, index.reshape(-1), terms.reshape(-1, dofs))
        else:
            sums = np.zeros((batch * self.points, dofs))
            np.add.at(sums, index.reshape(-1), terms.reshape(-1, dofs))
        return sums.reshape(batch, self.points, dofs)

    def _terms(self, like: Array) -> tuple[Array, Array]:
        """The numbers of points through all trajectories [B, T, d + 1], and weights."""
        index = self.index + self.points * np.arange(len(like))[:, None, None]
        return _like(index, like), _like(self.weights[..., None], like)


def _basis(local: Floats, degree: int) -> Floats:
    """The uniform B-splines at local times 0..1 of an interval, [..., degree + 1].

    C. de Boor, "A Practical Guide to Splines", ch. X, BSPLVB.
    """
    values = np.zeros((*local.shape, degree + 1))
    values[..., 0] = 1.0
    for j in range(1, degree + 1):
        saved = np.zeros(local.shape)
        for r in range(j):
            share = values[..., r] / j
            values[..., r] = saved + (r + 1 - local) * share
            saved = (local + (j - r - 1)) * share
        values[..., j] = saved
    return values


def _factored(
    band: Floats, firsts: Sequence[int], bases: Sequence[Floats]
) -> tuple[list[Floats], list[Floats]]:
    """Of a block tridiagonal matrix the inverses of A_i = M_ii − M_i,i−1 A_i−1⁻¹ M_i,i−1ᵀ, and the
    M_i,i−1. bases: the points of each block as they depend on its unknowns.

    Raises InputError where it is singular.
    """

    def block(a: int, b: int, c: int, d: int) -> Floats:
        """Rows a..b and columns c..d of the band, at and below its diagonal."""
        part = np.zeros((len(band), b - a, d - c))
        for k in range(band.shape[2]):
            i = np.arange(max(a, c + k), min(b, d + k))
            part[:, i - a, i - k - c] = band[:, i, k]
        return part

    inverses: list[Floats] = []
    below: list[Floats] = []
    for i, (first, last) in enumerate(pairwise(firsts)):
        lower = block(first, last, first, last)
        matrix = bases[i].T @ (lower + np.tril(lower, -1).swapaxes(1, 2)) @ bases[i]
        if i:
            below.append(bases[i].T @ block(first, last, firsts[i - 1], first) @ bases[i - 1])
            matrix = matrix - below[-1] @ inverses[-1] @ below[-1].swapaxes(1, 2)
        if matrix.size and not (np.linalg.cond(matrix) < _SINGULAR).all():
            hint = "fewer intervals, a larger error, or no gaps between the rows"
            raise InputError(Fault("too few rows to fit", f"interval {first}", hint=hint))
        inverses.append(np.linalg.inv(matrix))
    return inverses, below


def _solved(inverses: list[Array], below: list[Array], right: list[Array]) -> list[Array]:
    """The unknowns [B, n, D] of each block."""
    for i, coupled in enumerate(below):
        right[i + 1] = right[i + 1] - coupled @ (inverses[i] @ right[i])
    unknowns = [inverses[-1] @ right[-1]]
    for i in reversed(range(len(below))):
        after = below[i].swapaxes(1, 2) @ unknowns[-1]
        unknowns.append(inverses[i] @ (right[i] - after))
    return unknowns[::-1]
