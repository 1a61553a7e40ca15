"""Motions that are polynomials of time, which each mode must reproduce from row 0 on.

Steps are dyadic fractions and coefficients small integers, so that everything given to trajcli
is the polynomial itself and not a rounding of it.
"""

from __future__ import annotations

from itertools import accumulate
from math import comb, factorial
from typing import Any

import numpy as np
import pytest
from exact import PARTS, assert_within, number
from gmpy2 import mpq

import trajcli
from trajcli import State

EVEN = np.full(12, 0.125)
UNEVEN = np.array([0.125, 0.25, 0.0625, 0.5, 0.125, 0.0625, 0.25, 0.25, 0.125, 0.5, 0.0625, 0.125])
STEPS = pytest.mark.parametrize("steps", [EVEN, UNEVEN], ids=["even", "uneven"])

COEFFICIENTS = (3, -2, 5, -7, 4, -1)  # of 1, t, t², …


def derivative(degree: int, order: int, time: mpq) -> mpq:
    """Of the polynomial of this degree."""
    total = mpq(0)
    for i in range(order, degree + 1):
        total += COEFFICIENTS[i] * mpq(factorial(i), factorial(i - order)) * time ** (i - order)
    return total


def times_of(steps: np.ndarray) -> list[mpq]:
    return list(accumulate((number(dt) for dt in steps), initial=mpq(0)))


def course(degree: int, times: list[mpq]) -> dict[str, np.ndarray]:
    """The polynomial and its derivatives at these times, [1, T, 1]."""
    result = {}
    for order, part in enumerate(PARTS):
        values = np.array([derivative(degree, order, t) for t in times], dtype=object)
        result[part] = values[None, :, None]
    return result


def state_at(degree: int, time: mpq | int = 0) -> State:
    return State(*(np.array([float(derivative(degree, m, time))]) for m in range(4)))


def assert_follows(result: trajcli.Trajectory, expected: dict[str, Any], rows: slice) -> None:
    largest = float(max(abs(x) for x in expected["position"].ravel()))
    step = float(np.diff(result.time).min())
    for order, part in enumerate(PARTS):
        rounding = 2.0**-51 * largest * (2.0 / step) ** order  # of the positions, differenced
        values, wanted = getattr(result, part)[:, rows], expected[part][:, rows]
        assert_within(values, wanted, 1e-13, nothing=rounding)


@STEPS
@pytest.mark.parametrize("scheme", ["zoh", "foh"])
@pytest.mark.parametrize(("order", "mode"), [(1, "velocity"), (2, "acceleration"), (3, "jerk")])
def test_constant_actions_under_zoh_and_linear_ones_under_foh_are_integrated_exactly(
    mode: str, order: int, scheme: str, steps: np.ndarray
) -> None:
    degree = order + (scheme == "foh")
    expected = course(degree, times_of(steps))  # its derivative of this order
    actions = expected[PARTS[order]][:, 1:].astype(float)
    result = trajcli.integrate(actions, state_at(degree), steps, mode, scheme=scheme)
    if scheme == "zoh":
        assert_follows(result, expected, slice(None))
    for part in PARTS[: order + (scheme == "foh")]:
        assert_within(getattr(result, part), expected[part], 1e-13)


@pytest.mark.parametrize("scheme", ["euler", "zoh", "foh"])
def test_constant_acceleration_under_euler_runs_ahead_by_half_a_step_of_velocity(
    scheme: str,
) -> None:
    dt, rows = 0.125, np.arange(13)
    start = State(np.array([1.0]), np.array([2.0]), np.array([4.0]))
    result = trajcli.integrate(np.full((1, 12, 1), 4.0), start, dt, scheme=scheme)
    time = rows * dt
    ahead = 4.0 * time * dt / 2 if scheme == "euler" else 0.0
    assert (result.velocity[0, :, 0] == 2 + 4 * time).all()
    assert (result.position[0, :, 0] == 1 + 2 * time + 2 * time**2 + ahead).all()
    assert (result.jerk == 0).all()


@STEPS
def test_clique_differences_a_straight_line_exactly_from_row_0(steps: np.ndarray) -> None:
    expected = course(1, times_of(steps))
    actions = expected["position"][:, 1:].astype(float)
    result = trajcli.integrate(actions, state_at(1), steps, "clique")
    assert_follows(result, expected, slice(None))


@STEPS
@pytest.mark.parametrize("degree", [0, 1, 2, 3, 4])
def test_central_reproduces_a_recorded_quartic_in_every_row(degree: int, steps: np.ndarray) -> None:
    expected = course(degree, times_of(steps))
    recording = expected["position"].astype(float)
    result = trajcli.differentiate(recording, dt=steps, method="central")
    assert_follows(result, expected, slice(None))


@STEPS
@pytest.mark.parametrize(("degree", "first"), [(3, 0), (4, 2)])
def test_central_reproduces_a_planned_polynomial_up_to_its_held_end(
    degree: int, first: int, steps: np.ndarray
) -> None:
    # the point before the start is on the start's cubic, so that row 1 of a quartic is not
    expected = course(degree, times_of(steps))
    actions = expected["position"][:, 1:].astype(float)
    result = trajcli.integrate(actions, state_at(degree), steps, "central")
    assert_follows(result, expected, slice(first, len(steps) - 1))


@pytest.mark.parametrize("ends", ["plan", "goal"])
def test_central_with_the_last_position_held_long_enough_comes_to_rest(ends: str) -> None:
    actions = np.array([1.0, 2.0, 3.0, 3.0, 3.0, 8.0 if ends == "goal" else 3.0])[None, :, None]
    goal = np.array([3.0]) if ends == "goal" else None
    result = trajcli.integrate(actions, np.zeros(1), 0.1, "central", ends=ends, goal=goal)
    assert result.position[0, -1, 0] == 3.0
    for part in PARTS[1:]:
        assert getattr(result, part)[0, -1, 0] == 0.0


# -- B-splines -------------------------------------------------------------------------------

KNOT = mpq(1, 2)
DEGREES = pytest.mark.parametrize("degree", [3, 4, 5])


def polynomial_control_points(polynomial: int, degree: int, first_knots: range) -> np.ndarray:
    """Of the polynomial of that degree in a spline of this one, by polar forms [1, n, 1]."""
    points = []
    for first in first_knots:
        symmetric = [mpq(1)] + [mpq(0)] * degree
        for k in range(degree):
            for m in range(degree, 0, -1):
                symmetric[m] += KNOT * (first + k) * symmetric[m - 1]
        terms = [COEFFICIENTS[m] * symmetric[m] / comb(degree, m) for m in range(polynomial + 1)]
        points.append(float(sum(terms)))
    return np.array(points)[None, :, None]


@DEGREES
@pytest.mark.parametrize("steps", [1, 4])
def test_bspline_begins_with_the_start_states_polynomial(degree: int, steps: int) -> None:
    dt = float(KNOT / steps)
    actions = np.random.default_rng(0).normal(size=(1, 6, 1))
    result = trajcli.integrate(actions, state_at(3), dt, "bspline", degree=degree, steps=steps)
    expected = course(3, [t * number(dt) for t in range(steps + 1)])
    whole = slice(0, steps + 1 if degree > 3 else steps)  # of degree 3, jerk jumps at a knot
    for part in PARTS[:3]:
        assert_within(getattr(result, part)[:, : steps + 1], expected[part], 1e-12)
    assert_within(result.jerk[:, whole], expected["jerk"][:, whole], 1e-12)


@DEGREES
def test_bspline_through_a_cubics_control_points_is_the_cubic(degree: int) -> None:
    steps, count = 4, 7
    dt = float(KNOT / steps)
    # the d + 1 start points begin at knots 1 − d … 1; the actions go on from 2
    actions = polynomial_control_points(3, degree, range(2, 2 + count))
    result = trajcli.integrate(actions, state_at(3), dt, "bspline", degree=degree, steps=steps)
    rows = (count + 1) * steps  # before the end points come in
    expected = course(3, [t * number(dt) for t in range(rows)])
    for part in PARTS:
        assert_within(getattr(result, part)[:, :rows], expected[part], 1e-12)


@DEGREES
def test_bspline_reproduces_polynomials_of_its_degree_between_the_ends(degree: int) -> None:
    steps, count = 4, 9
    dt = float(KNOT / steps)
    actions = polynomial_control_points(degree, degree, range(2, 2 + count))
    result = trajcli.integrate(actions, np.zeros(1), dt, "bspline", degree=degree, steps=steps)
    rows = range((degree + 1) * steps, (count + 1) * steps)  # of actions alone
    expected = course(degree, [t * number(dt) for t in rows])
    for part in PARTS:
        assert_within(getattr(result, part)[:, rows.start : rows.stop], expected[part], 1e-12)


@DEGREES
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bspline_without_a_goal_ends_at_rest_on_its_last_action(degree: int, dtype: str) -> None:
    actions = np.random.default_rng(2).normal(size=(4, 6, 3)).astype(dtype)
    start = State(*np.ones((4, 3)))
    result = trajcli.integrate(actions, start, 0.3, "bspline", degree=degree, steps=5)
    assert (result.position[:, -1] == actions[:, -1]).all()
    for part in PARTS[1:]:
        assert (getattr(result, part)[:, -1] == 0).all(), part


@DEGREES
def test_bspline_with_a_goal_ends_with_the_goals_polynomial(degree: int) -> None:
    steps, count = 4, 5
    dt = float(KNOT / steps)
    rows = (count + degree + 1) * steps + 1
    times = [t * number(dt) for t in range(rows)]
    end = times[-1]
    goal = state_at(3, end)
    actions = np.random.default_rng(3).normal(size=(1, count, 1))
    options = {"degree": degree, "steps": steps, "ends": "goal"}
    result = trajcli.integrate(actions, np.zeros(1), dt, "bspline", goal=goal, **options)
    segment = slice(rows - 1 - steps, rows)
    expected = course(3, times[segment])
    for part in PARTS:
        assert_within(getattr(result, part)[:, segment], expected[part], 1e-12)
