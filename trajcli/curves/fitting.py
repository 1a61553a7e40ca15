"""Fits B-splines to recordings: the control points whose curve is nearest to the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from trajcli.arrays import (
    as_array,
    cast,
    concatenate,
    eager,
    float64,
    match_library,
    nonfinite_fault,
    number,
    output_dtype,
    readable,
    require_counts,
    to_numpy,
)
from trajcli.calls import integrate
from trajcli.curves.resampling import row_knots
from trajcli.errors import Fault, InputError, UsageError, raise_if_any, wrong_shape
from trajcli.kernels.program import Array, ArrayLike, Floats
from trajcli.mode_options import DEGREE
from trajcli.modes.mode import QUANTITIES
from trajcli.trajectory import State, StateLike, sample, state_parts

# The number of knot intervals that are solved for at once.
_INTERVALS = 8
# The largest standard deviation of an unknown, in knots, where that of the rows is 1.
#
# An unknown moves so many times as far as the rows. Rounding it to float32, by 6e-8 of its size,
# then moves the curve by up to 6e-4 of how far the rows are from smooth, and rounding to float64 by
# 1e-12. With two rows per interval it is 10 to 100; as the intervals become as many as the rows, it
# grows to 1e16, and the curve consists of rounding errors.
_MOST_SPREAD = 1e4


@dataclass(frozen=True)
class Fitted:
    """B-splines that fit recordings, for mode ``bspline`` with ``ends="goal"``.

    Attributes:
        actions: control points [B, H, D]; the last, which that mode does not use, is the goal
            position.
        start, goal: states [B, D], prescribed or fitted.
        knot: the knot spacing dt · steps in seconds, [B].
        error: the largest distance of a row from the curve of the rounded values, [B].
    """

    actions: Array
    start: State
    goal: State
    knot: Floats
    error: Floats


@eager
def fit(
    positions: ArrayLike,
    dt: ArrayLike | float | None = None,
    *,
    times: ArrayLike | None = None,
    knots: int | None = None,
    error: float | None = None,
    degree: int = 3,
    start: StateLike = None,
    goal: StateLike = None,
) -> Fitted:
    """Fits B-splines to recorded positions by least squares.

    The curve is ``integrate(f.actions, f.start, f.knot[:, None] / steps, "bspline",
    degree=degree, steps=steps, ends="goal", goal=f.goal)``. With degree 4 and 5 the first and the
    last interval are cubic, as in mode ``bspline``. Differentiable with respect to positions and
    states. The banded equations are solved by QR, a few intervals at a time: C. Lawson and
    R. Hanson, "Solving Least Squares Problems", ch. 27.

    Parameters:
        positions: [B, T, D] or [T, D]; NumPy or torch.
        dt, times: see ``trajcli.differentiate``.
        knots: the number of uniform intervals over each trajectory.
        error: instead of knots, the largest distance of a row from the curve; it is reached with
            roughly the fewest intervals.
        degree: 3, 4 or 5.
        start, goal: states as for ``trajcli.integrate``. Their parts are met exactly, and absent
            parts are fitted. A position, or ``"zero"``, prescribes only the position.

    Raises:
        InputError: wrong arrays or times, or intervals without rows.
        UsageError: a degree, a number of knots or an error that is impossible.
    """
    rows = as_array(positions, "positions")
    rows = rows[None] if rows.ndim == 2 else rows
    if rows.ndim != 3 or 0 in rows.shape:
        raise InputError(wrong_shape("positions", "[B, T, D]", rows.shape))
    if (knots is None) == (error is None) or (dt is None) == (times is None):
        raise UsageError("either knots or an error, and either dt or times", where="fit")
    # in NumPy, since the fit reads the values of times: they have no gradient
    stamps: Any = row_knots(np.broadcast_to(0.0, tuple(rows.shape)), dt, times).times
    raise_if_any([nonfinite_fault(rows, "positions", ("trajectory", "row", "dof"))])
    ends = list[dict[str, Array]]()
    for state, role in ((start, "start"), (goal, "goal")):
        parts: dict[str, Array] = {}
        for name, part in state_parts(state, role, rows.shape[2:]).items():
            where = f"{role}/{name}"
            if part.shape not in ((1, rows.shape[2]), (len(rows), rows.shape[2])):
                expected = f"[{rows.shape[2]}] or [{len(rows)}, {rows.shape[2]}]"
                raise InputError(wrong_shape(where, expected, part.shape))
            raise_if_any([nonfinite_fault(part, where, ("trajectory", "dof"))])
            parts[name] = float64(match_library(part, rows))[:, None] + 0.0 * float64(rows[:, :1])
        ends.append(parts)
    fit_intervals = partial(_fit, rows, stamps, degree, ends)
    require_counts(degree=degree, **({} if knots is None else {"knots": knots}))
    error = None if error is None else number(error, "error")
    if knots is None and not readable(rows):
        expected = "values, to find how many intervals it takes"
        what = "positions that cannot be read"
        raise UsageError(what, where="error", expected=expected, hint="knots=")
    if knots is None:
        count = rows.shape[1]
        knots = fewest_intervals(lambda n: fit_intervals(n).error.max(), error, degree, count)
    return fit_intervals(knots)


def fewest_intervals(
    largest: Callable[[int], float], error: float | None, degree: int, rows: int
) -> int:
    """Searches roughly the fewest intervals with which ``largest`` gives at most ``error``."""
    if error is None or not 0 < error < np.inf:
        raise UsageError("not an error", where="error", expected="a number > 0", found=str(error))
    require_intervals(degree + 2, degree, rows)

    def error_with(intervals: int) -> float:
        try:
            return largest(intervals)
        except InputError:  # more intervals than the rows determine
            return np.inf

    # Doubling until the error is reached, then bisection: below, ``fails`` intervals are too few,
    # ``count`` is the best number so far and ``more`` the next to try.
    count, most = degree + 2, rows + degree - 6
    fails, off, more = count - 1, largest(count), min(2 * count, most)
    while off > error:
        if more == count:
            what, found = "an error that is not reached", f"{off:.3g} with {count} intervals"
            hint = "a larger error"
            raise UsageError(what, where="error", expected=f"{error:g}", found=found, hint=hint)
        off_with_more = error_with(more)
        if np.isinf(off_with_more):
            most, more = more - 1, (count + more) // 2
        else:
            fails, count, off = count, more, off_with_more
            more = min(2 * count, most)
    while count - fails > 1:
        middle = (fails + count) // 2
        fails, count = (fails, middle) if error_with(middle) <= error else (middle, count)
    return count


def require_intervals(intervals: int, degree: int, rows: int) -> None:
    """Raises UsageError for a degree or a number of intervals that rows cannot determine."""
    if degree not in DEGREE.choices:
        raise UsageError("no such degree", where="degree", expected="3, 4 or 5", found=str(degree))
    most = rows + degree - 6  # with more, there are more unknowns than rows
    if not degree + 2 <= intervals <= most:
        what, expected = "no such number of intervals", f"{degree + 2} to {most}, of {rows} rows"
        raise UsageError(what, where="knots", expected=expected, found=str(intervals))


def _fit(
    rows: Array, times: Floats, degree: int, ends: Sequence[Mapping[str, Array]], intervals: int
) -> Fitted:
    """Fits rows [B, T, D] at times [1 or B, T] with the prescribed parts of both ``ends``."""
    # The unknowns [B, N, D] are p, v, a and j of the start, the points between, and p, v, a and j
    # of the goal, per knot instead of per second.
    require_intervals(intervals, degree, rows.shape[1])
    target, dtype, batch = float64(rows), output_dtype(rows.dtype), len(rows)
    # knots lie evenly between the first and the last time of each trajectory
    knot = np.broadcast_to((times[:, -1] - times[:, 0]) / intervals, batch).copy()
    at = np.minimum((times - times[:, :1]) / knot[: len(times), None], intervals)
    if (np.abs(at - at[:1]) < 1e-12 * intervals).all():
        at = at[:1]  # one matrix serves all trajectories
    # the m-th derivative per knot is that per second times knotᵐ
    powers = match_library(knot[:, None] ** np.arange(4.0), target)[..., None]

    zero = 0.0 * target[:, :1]
    first, last = (
        concatenate([parts.get(name, zero) for name in QUANTITIES], 1) * powers for parts in ends
    )
    unknowns = concatenate([first, zero[:, [0] * (intervals - degree - 2)], last], 1)
    free = np.ones(unknowns.shape[1], bool)
    free[:4], free[-4:] = ([name not in parts for name in QUANTITIES] for parts in ends)
    if free.any():
        # the curve of the prescribed parts is subtracted; the rest is linear in the free unknowns
        off = target - _curve(unknowns, at, degree)
        groups = [slice(None)] if len(at) == 1 else [slice(b, b + 1) for b in range(batch)]
        pairs = zip(groups, at, strict=True)
        changes = [_least_squares(off[group], line, degree, free) for group, line in pairs]
        unknowns = unknowns + concatenate(changes, 0)

    states = []
    for parts, values in zip(ends, (unknowns[:, :4], unknowns[:, -4:]), strict=True):
        fitted = {name: (values / powers)[:, m : m + 1] for m, name in enumerate(QUANTITIES)}
        states.append(State(**{n: cast(x[:, 0], dtype) for n, x in {**fitted, **parts}.items()}))
    points = cast(unknowns[:, 4:-4], dtype)
    # the error of the returned values, which are rounded to the dtype of the rows
    first, last = (
        concatenate([float64(x)[:, None] for x in state.parts().values()], 1) * powers
        for state in states
    )
    off = target - _curve(concatenate([first, float64(points), last], 1), at, degree)
    error = np.abs(to_numpy(off)).max((1, 2)) if readable(off) else np.full(batch, np.nan)
    actions = concatenate([points, states[1].position[:, None]], 1)
    return Fitted(actions, states[0], states[1], knot, error)


def _curve(unknowns: Array, at: Floats, degree: int) -> Array:
    """Samples the positions [B, T, D] of unknowns at times [1 or B, T] in knots."""
    start, goal = (State(*(unknowns[:, k + m] for m in range(4))) for k in (0, -4))
    points = concatenate([unknowns[:, 4:-4], goal.position[:, None]], 1)
    motion = integrate(
        points, start, 1.0, "bspline", degree=degree, ends="goal", goal=goal, backend="auto"
    )
    return sample(motion, at, write=["position"]).outputs()["position"]


def _least_squares(rows: Array, at: Floats, degree: int, free: Any) -> Array:
    """Solves for the unknowns [B, N, D], 0 where not free, of the curve nearest to rows [B, T, D]
    at times [T] in knots."""
    count = int(free.sum())
    width = min(_INTERVALS + degree + 4, count)
    number = np.where(free, np.cumsum(free) - 1, count)
    # one curve shows the weights of many unknowns: those that are a width away share no row
    probes = np.zeros((len(free), width))
    probes[free, np.arange(count) % width] = 1.0
    weights = _curve(probes[None], at[None], degree)[0]
    segments = np.arange(0, len(free) + degree - 6, _INTERVALS)
    begins = np.where(segments > degree, segments - degree - 1 + free[:4].sum(), 0)
    begins = np.minimum(begins, count - width)  # the first unknown of each segment
    edges = [0, *np.searchsorted(at, segments[1:]).tolist(), len(at)]
    # Segments of rows are added to a triangle by QR. The unknowns that appear in no later rows are
    # solved for; the triangle of the others goes on to the next segment.
    upper, right, solved = np.zeros((0, width)), rows[:, :0], []
    for k, (begin, after) in enumerate(pairwise([*begins.tolist(), count])):
        part, columns = slice(edges[k], edges[k + 1]), np.arange(begin, begin + width) % width
        turn, upper = np.linalg.qr(np.concatenate([upper, weights[part, columns]]))
        right = match_library(turn.T, rows) @ concatenate([right, rows[:, part]], 1)
        done = after - begin
        if len(upper) < done or not np.diag(upper)[:done].all():
            raise InputError(_too_few(segments[k], len(at), count, np.inf))
        solved.append((upper[:done], right[:, :done]))
        upper, right = np.roll(upper, -done, 1)[done:], right[:, done:]
    solution, spread = rows[:, :0], np.zeros((0, 0))
    for segment, (upper, right) in zip(segments[::-1], reversed(solved), strict=True):
        done, after = len(upper), width - len(upper)
        known = match_library(upper[:, done:], rows) @ solution[:, :after]
        # back substitution, block by block
        inverse = np.linalg.inv(upper[:, :done])
        solution = concatenate([match_library(inverse, rows) @ (right - known), solution], 1)
        # covariance (UᵀU)⁻¹ of these unknowns and the next, for rows of variance 1
        shared = -inverse @ upper[:, done:] @ spread[:after, :after]
        block = inverse @ (inverse.T - upper[:, done:] @ shared.T)
        spread = np.block([[block, shared], [shared.T, spread[:after, :after]]])
        most = np.sqrt(np.diag(block).max(initial=0.0))
        if not most <= _MOST_SPREAD:
            raise InputError(_too_few(segment, len(at), count, most))
    return concatenate([solution, 0.0 * solution[:, :1]], 1)[:, number]


def _too_few(segment: int, rows: int, unknowns: int, spread: float) -> Fault:
    what, where = "too few rows to fit", f"interval {segment} and those after it"
    found = f"{rows} rows for {unknowns} unknowns, which move {spread:.0e} times as far"
    hint = "fewer intervals, a larger error, or no gaps between the rows"
    expected = "rows that determine the curve"
    return Fault(what, where=where, expected=expected, found=found, hint=hint)
