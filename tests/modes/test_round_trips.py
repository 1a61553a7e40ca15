"""What one mode gives, another takes back to where it came from."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from exact import PARTS

import trajcli
from trajcli import State

ORDERS = ("clique", "velocity", "acceleration", "jerk")
PAIRS = list(permutations(range(4), 2))
PAIR_NAMES = [f"{ORDERS[a]}-{ORDERS[b]}" for a, b in PAIRS]

RNG = np.random.default_rng(0)
EVEN = 0.04
UNEVEN = RNG.uniform(0.03, 0.06, size=60)
ACTIONS = RNG.normal(size=(3, 60, 2))
START = State(*RNG.normal(size=(4, 3, 2)))


def action_of(result: trajcli.Trajectory, order: int) -> Any:
    """The rows after the start of the quantity that the mode of this order takes."""
    return getattr(result, PARTS[order])[:, 1:]


@pytest.mark.parametrize("dt", [EVEN, UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize(("first", "second"), PAIRS, ids=PAIR_NAMES)
def test_a_mode_fed_with_what_another_gave_gives_the_same_trajectory(
    first: int, second: int, dt: Any
) -> None:
    once = trajcli.integrate(ACTIONS, START, dt, ORDERS[first])
    again = trajcli.integrate(action_of(once, second), START, dt, ORDERS[second])
    for part in PARTS:
        expected = getattr(once, part)
        error = np.abs(getattr(again, part) - expected).max()
        assert error <= 2e-11 * np.abs(expected).max(), part


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=PAIR_NAMES)
def test_where_no_value_needs_rounding_the_round_trip_is_bit_for_bit(
    first: int, second: int
) -> None:
    whole = np.random.default_rng(1).integers(-9, 10, size=(2, 40, 3)).astype(float)
    start = State(*np.random.default_rng(2).integers(-9, 10, size=(4, 2, 3)).astype(float))
    once = trajcli.integrate(whole, start, 0.25, ORDERS[first])
    again = trajcli.integrate(action_of(once, second), start, 0.25, ORDERS[second])
    for part in PARTS:
        assert (getattr(again, part) == getattr(once, part)).all(), part


@pytest.mark.parametrize("mode", [*ORDERS, "central", "bspline"])
def test_outputs_are_linear_in_actions_and_start(mode: str) -> None:
    other_actions = RNG.normal(size=ACTIONS.shape)
    other_start = State(*RNG.normal(size=(4, 3, 2)))
    both = State(*(getattr(START, p) + getattr(other_start, p) for p in PARTS))
    one = trajcli.integrate(ACTIONS, START, EVEN, mode)
    two = trajcli.integrate(other_actions, other_start, EVEN, mode)
    sum_of_inputs = trajcli.integrate(ACTIONS + other_actions, both, EVEN, mode)
    for part in PARTS:
        expected = getattr(one, part) + getattr(two, part)
        error = np.abs(getattr(sum_of_inputs, part) - expected).max()
        assert error <= 1e-11 * np.abs(expected).max(), part


# -- a loop over plain floats ----------------------------------------------------------------


def plain_loop(actions: Any, state: Any, steps: Any, order: int, scheme: str) -> Any:
    """The formulas as people write them down, in float64."""
    rows = [np.array(state)]
    for u, dt in zip(actions, steps, strict=True):
        p, v, a, j = rows[-1]
        if scheme == "euler":
            if order == 3:
                j, a = u, a + dt * u
                v = v + dt * a
                p = p + dt * v
            elif order == 2:
                j, a = (u - a) / dt, u
                v = v + dt * a
                p = p + dt * v
            elif order == 1:
                a_now = (u - v) / dt
                j, a, v = (a_now - a) / dt, a_now, u
                p = p + dt * v
            else:
                v_now = (u - p) / dt
                a_now = (v_now - v) / dt
                j, a, v, p = (a_now - a) / dt, a_now, v_now, u
        elif scheme == "zoh" and order == 3:
            p = p + dt * v + dt**2 / 2 * a + dt**3 / 6 * u
            v = v + dt * a + dt**2 / 2 * u
            a, j = a + dt * u, u
        elif scheme == "zoh" and order == 2:
            p = p + dt * v + dt**2 / 2 * u
            v, j, a = v + dt * u, (u - a) / dt, u
        elif scheme == "foh" and order == 2:
            p = p + dt * v + dt**2 * (a / 3 + u / 6)
            v, j, a = v + dt * (a + u) / 2, (u - a) / dt, u
        elif scheme == "foh" and order == 3:
            p = p + dt * v + dt**2 / 2 * a + dt**3 * (j / 8 + u / 24)
            v = v + dt * a + dt**2 * (j / 3 + u / 6)
            a, j = a + dt * (j + u) / 2, u
        else:
            raise NotImplementedError
        rows.append(np.array([p, v, a, j]))
    return np.array(rows).T


@pytest.mark.parametrize(
    ("mode", "scheme"),
    [(mode, "euler") for mode in ORDERS]
    + [("acceleration", "zoh"), ("jerk", "zoh"), ("acceleration", "foh"), ("jerk", "foh")],
)
def test_a_step_by_step_loop_gives_the_same(mode: str, scheme: str) -> None:
    result = trajcli.integrate(ACTIONS, START, UNEVEN, mode, scheme=scheme)
    for b in range(3):
        for d in range(2):
            state = [getattr(START, part)[b, d] for part in PARTS]
            expected = plain_loop(ACTIONS[b, :, d], state, UNEVEN, ORDERS.index(mode), scheme)
            for part, column in zip(PARTS, expected, strict=True):
                error = np.abs(getattr(result, part)[b, :, d] - column).max()
                assert error <= 1e-10 * np.abs(column).max(), part
