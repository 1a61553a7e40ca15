"""Finds the fastest timing of paths within limits of velocity, acceleration and jerk.

The compiled kernel solves them; fastest.hpp states the method. docs/retiming.md has it for users.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from trajcli.kernels.native import Curve, address, time_curves
from trajcli.kernels.program import Floats

# in the order of the enumeration in fastest.hpp; the first three have a solution
_STATES = "solved", "not converged", "uniform", "does not move", "not finite", "beyond limits"
# The kernel refines eight steps of its grid at either end, which must not meet.
_LEAST_INTERVALS = 40


class Path(NamedTuple):
    """A curve of quintic pieces to be timed.

    knots: the parameter at the points [K], K >= 2, increasing: seconds of a plan's own clock, or
    any measure of length. points: [K, D]. slopes: first and second derivative by the parameter at
    the points [2, K, D]; None: those of the C4 spline through the points. ends: the first and
    second derivative of that spline at its start and at its end [2, 2, D]; NaN: free, so that its
    third and fourth derivative are zero there. clock: whether the parameter is a plan's own clock,
    so that the pace 1 is the plan's. held: whether the curve moves at its start, and at its end:
    there it keeps the plan's own speed and acceleration.
    """

    knots: Floats
    points: Floats
    slopes: Floats | None = None
    ends: Floats | None = None
    clock: bool = False
    held: tuple[bool, bool] = (False, False)


class Timing(NamedTuple):
    """The timing of a path.

    duration: in seconds; 0 where it does not move. uniform: the duration of the fastest uniform
    pace. state: "solved", "not converged" (within limits all the same), "uniform" (that pace),
    "does not move", "not finite" or "beyond limits" (a path that moves at its ends, whose own pace
    is beyond limits). solution: x in [0, 1], the pace b = (dx/dt)² and its second derivative by x
    at the knots of b, a C² cubic spline [3, n]; n is 0 where there is no duration.
    """

    duration: float
    uniform: float
    state: str
    iterations: int
    solution: Floats


def fastest(
    paths: Sequence[Path],
    lower: Floats,
    upper: Floats,
    intervals: int | None = None,
    tolerance: float = 1e-3,
) -> list[Timing]:
    """Finds the fastest timing of each path within limits.

    lower, upper: limits of velocity, acceleration and jerk [3, D], lower < 0 < upper, infinite
    where there are none. intervals: of the spline of the pace.
    """
    # waypoints are far apart: the pace varies within a piece more than between rows of a plan
    pieces = [(4 if path.clock else 20) * (len(path.knots) - 1) for path in paths]
    counts = [max(intervals or min(max(count, 200), 2000), _LEAST_INTERVALS) for count in pieces]
    solutions = [np.empty((3, 2 * count + 1)) for count in counts]
    sides = [np.ascontiguousarray(side, np.float64) for side in (lower, upper)]
    limits = {"lower": address(sides[0]), "upper": address(sides[1]), "dofs": sides[0].shape[1]}
    curves, _arrays = _curves(paths, solutions)
    # At rest the path is x³ of its parameter where jerk is limited, else x²: the least power for
    # which the pace b stays finite there.
    power = 3 if any(np.isfinite(side[2]).any() for side in sides) else 2
    time_curves(curves, tolerance=tolerance, power=power, **limits)
    timings = []
    for curve, solution in zip(curves, solutions, strict=True):
        solution = solution if curve.state <= 2 else np.empty((3, 0))
        state = _STATES[curve.state]
        timings.append(Timing(curve.duration, curve.uniform, state, curve.iterations, solution))
    return timings


def sample(
    paths: Sequence[Path], solutions: Sequence[Floats], times: Sequence[Floats], jerkless: bool
) -> list[Floats]:
    """Samples position to jerk [4, m, D] of paths at times [m]; ends outside their duration."""
    dofs = paths[0].points.shape[1]
    out = [np.empty((4, len(clock), dofs)) for clock in times]
    curves, _arrays = _curves(paths, solutions)
    clocks = [np.ascontiguousarray(clock, np.float64) for clock in times]
    for curve, clock, rows in zip(curves, clocks, out, strict=True):
        curve.times, curve.samples, curve.rows = address(clock), len(clock), address(rows)
    time_curves(curves, dofs=dofs, power=2 if jerkless else 3)
    return out


def _curves(paths: Sequence[Path], solutions: Sequence[Floats]) -> tuple[Any, list[Any]]:
    """Describes paths to the kernels; returns the arrays that must outlive their run."""
    curves, arrays = (Curve * len(paths))(), []
    for curve, path, solution in zip(curves, paths, solutions, strict=True):
        curve.count, curve.intervals = len(path.knots), solution.shape[1] // 2
        curve.clock, curve.held[:] = int(path.clock), [int(end) for end in path.held]
        parts = {**path._asdict(), "solution": solution}
        for name in ("knots", "points", "slopes", "ends", "solution"):
            if parts[name] is not None:
                arrays.append(np.ascontiguousarray(parts[name], np.float64))
                setattr(curve, name, address(arrays[-1]))
    return curves, arrays
