"""Motions that are polynomials of time, which each mode must reproduce from row 0 on; and round
trips between modes.

Steps are dyadic fractions and coefficients small integers, so that everything given to trajcli
is the polynomial itself and not a rounding of it.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from exact import ORDERS, QUANTITIES

import trajcli
from trajcli import State

UNEVEN = np.array([0.125, 0.25, 0.0625, 0.5, 0.125, 0.0625, 0.25, 0.25, 0.125, 0.5, 0.0625, 0.125])
STEPS = pytest.mark.parametrize("steps", [np.full(12, 0.125), UNEVEN], ids=["even", "uneven"])


def course(degree: int, steps: Any) -> tuple[dict[str, Any], State]:
    """A polynomial of this degree and its derivatives at the rows, [1, T, 1], and its start."""
    curve = np.polynomial.Polynomial([3, -2, 5, -7, 4][: degree + 1])
    times = np.concatenate([[0.0], np.cumsum(steps)])
    rows = [(curve.deriv(m) if m else curve)(times)[None, :, None] for m in range(4)]
    return dict(zip(QUANTITIES, rows, strict=True)), State(*(x[0, 0] for x in rows))


def assert_follows(
    found: Any, wanted: dict[str, Any], step: float, rows: slice, parts: Any
) -> None:
    largest = np.abs(wanted["position"]).max()
    for order, part in enumerate(parts):
        rounding = 2.0**-51 * largest * (2.0 / step) ** order  # of the positions, differenced
        atol = rounding + 1e-13 * np.abs(wanted[part]).max()
        values = getattr(found, part)[:, rows]
        np.testing.assert_allclose(values, wanted[part][:, rows], rtol=0, atol=atol)


@STEPS
@pytest.mark.parametrize("scheme", ["zoh", "foh"])
@pytest.mark.parametrize("mode", ["velocity", "acceleration", "jerk"])
def test_zoh_is_exact_for_constant_actions_foh_for_linear_ones(
    mode: str, scheme: str, steps: Any
) -> None:
    order = ORDERS[mode]
    degree = order + (scheme == "foh")
    wanted, start = course(degree, steps)
    found = trajcli.integrate(wanted[QUANTITIES[order]][:, 1:], start, steps, mode, scheme=scheme)
    parts = QUANTITIES if scheme == "zoh" else QUANTITIES[:degree]
    assert_follows(found, wanted, min(steps), slice(None), parts)


@STEPS
@pytest.mark.parametrize(("degree", "first"), [(3, 0), (4, 2)])
def test_central_reproduces_a_planned_polynomial_up_to_its_held_end(
    degree: int, first: int, steps: Any
) -> None:
    # the point before the start is on the start's cubic, so that row 1 of a quartic is not
    wanted, start = course(degree, steps)
    found = trajcli.integrate(wanted["position"][:, 1:], start, steps, "central")
    assert_follows(found, wanted, min(steps), slice(first, len(steps) - 1), QUANTITIES)


@pytest.mark.parametrize(("first", "second"), [*permutations(ORDERS, 2)])
def test_a_mode_fed_with_what_another_gave_gives_the_same_trajectory(
    first: str, second: str
) -> None:
    """Bit for bit, as no value needs rounding."""
    whole = np.random.default_rng(1).integers(-9, 10, size=(2, 12, 3)).astype(float)
    start = State(*np.random.default_rng(2).integers(-9, 10, size=(4, 2, 3)).astype(float))
    once = trajcli.integrate(whole, start, UNEVEN, first)
    again = trajcli.integrate(
        getattr(once, QUANTITIES[ORDERS[second]])[:, 1:], start, UNEVEN, second
    )
    for part in QUANTITIES:
        assert (getattr(again, part) == getattr(once, part)).all(), part
