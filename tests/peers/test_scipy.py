"""SciPy's B-splines, on extended knots and control points found by solving for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from exact import PARTS

import trajcli
from trajcli import State

interpolate = pytest.importorskip("scipy.interpolate")

B, H, D = 2, 9, 3
RNG = np.random.default_rng(0)
ACTIONS = RNG.normal(size=(B, H, D))
START = State(*RNG.normal(size=(4, B, D)))
GOAL = State(*RNG.normal(size=(4, B, D)))


def end_points(state: State, degree: int, knot: float, at: int) -> np.ndarray:
    """Control points of the segment 0..1 whose derivatives at 0 or 1 are the state's."""
    knots = np.arange(-degree, degree + 2.0)
    basis = interpolate.BSpline(knots, np.eye(degree + 1), degree)
    slopes = np.stack([basis.derivative(m)(at) if m else basis(at) for m in range(degree + 1)])
    if at == 1:  # the highest derivative of the one segment holds at its end too
        slopes[degree] = basis.derivative(degree)(0.5)
    local = np.zeros((degree + 1, B, D))
    for m, part in enumerate(PARTS):
        local[m] = getattr(state, part) * knot**m
    points = np.linalg.solve(slopes, local.reshape(degree + 1, -1))
    return np.moveaxis(points.reshape(degree + 1, B, D), 0, 1)


@pytest.mark.parametrize("ends", ["plan", "goal"])
@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("degree", [3, 4, 5])
def test_bspline_and_its_derivatives_are_scipys(degree: int, steps: int, ends: str) -> None:
    dt = 0.1
    knot = dt * steps
    first = end_points(START, degree, knot, at=0)
    if ends == "goal":
        middle, last = ACTIONS[:, :-1], end_points(GOAL, degree, knot, at=1)
    else:
        middle, last = ACTIONS, np.repeat(ACTIONS[:, -1:], degree, axis=1)
    points = np.concatenate([first, middle, last], 1)  # [B, n, D]
    count = points.shape[1]
    knots = (np.arange(count + degree + 1) - degree) * knot
    spline = interpolate.BSpline(knots, points, degree, axis=1)

    options: dict[str, Any] = {"goal": GOAL} if ends == "goal" else {}
    options |= {"degree": degree, "steps": steps, "ends": ends}
    trajectory = trajcli.integrate(ACTIONS, START, dt, "bspline", **options)
    rows = (count - degree) * steps + 1
    assert trajectory.position.shape == (B, rows, D)
    # where a derivative jumps, at knots of degree 3, rows belong to what comes after
    times = np.arange(rows) * dt
    inside = times + 1e-9 * knot
    inside[-1] = times[-1] - 1e-9 * knot
    for order, part in enumerate(PARTS):
        curve = spline if order == 0 else spline.derivative(order)
        expected = curve(inside if order == degree else times)
        error = np.abs(getattr(trajectory, part) - expected).max()
        assert error <= 1e-11 * np.abs(expected).max(), part
