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
