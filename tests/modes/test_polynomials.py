"""Motions that are polynomials of time, which each mode must reproduce from row 0 on.

Steps are dyadic fractions and coefficients small integers, so that everything given to trajcli
is the polynomial itself and not a rounding of it.
"""

from __future__ import annotations

from itertools import accumulate
from math import factorial
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
@pytest.mark.parametrize(("degree", "first"), [(3, 0), (4, 2)])
def test_central_reproduces_a_planned_polynomial_up_to_its_held_end(
    degree: int, first: int, steps: np.ndarray
) -> None:
    # the point before the start is on the start's cubic, so that row 1 of a quartic is not
    expected = course(degree, times_of(steps))
    actions = expected["position"][:, 1:].astype(float)
    result = trajcli.integrate(actions, state_at(degree), steps, "central")
    assert_follows(result, expected, slice(first, len(steps) - 1))
