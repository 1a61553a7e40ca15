"""Finite differences and sums as NumPy and the textbooks have them."""

from __future__ import annotations

from math import factorial

import numpy as np
import pytest
from exact import PARTS

import trajcli
from trajcli import State

RNG = np.random.default_rng(0)
RECORDING = RNG.normal(size=(2, 20, 3))
DT = 0.05
UNEVEN = RNG.uniform(0.03, 0.08, size=19)

# Weights on the first five rows for derivatives 1 to 3 in the row of that number; B. Fornberg,
# Math. Comp. 51 (1988), tables 1 and 3. Those at the end are the mirror image.
FIRST = np.array([[-25, 48, -36, 16, -3], [35, -104, 114, -56, 11], [-5, 18, -24, 14, -3]])
SECOND = np.array([[-3, -10, 18, -6, 1], [11, -20, 6, 4, -1], [-3, 10, -12, 6, -1]])
CENTRAL = np.array([[1, -8, 0, 8, -1], [-1, 16, -30, 16, -1], [-1, 2, 0, -2, 1]])
OVER = np.array([12, 12, 2])


def assert_close(actual: np.ndarray, expected: np.ndarray, relative: float = 1e-12) -> None:
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() <= relative * np.abs(expected).max()


@pytest.mark.parametrize("order", [1, 2, 3])
def test_central_has_the_textbooks_stencils_in_every_row(order: int) -> None:
    trajectory = trajcli.differentiate(RECORDING, dt=DT, method="central")
    values = getattr(trajectory, PARTS[order])
    scale = OVER[order - 1] * DT**order

    def stencil(weights: np.ndarray, rows: slice) -> np.ndarray:
        return np.einsum("w,bwd->bd", weights[order - 1] / scale, RECORDING[:, rows])

    start, end = slice(0, 5), slice(15, 20)
    mirror = (-1) ** order
    assert_close(values[:, 0], stencil(FIRST, start))
    assert_close(values[:, 1], stencil(SECOND, start))
    assert_close(values[:, -1], mirror * stencil(FIRST[:, ::-1], end))
    assert_close(values[:, -2], mirror * stencil(SECOND[:, ::-1], end))
    inner = [stencil(CENTRAL, slice(t - 2, t + 3)) for t in range(2, 18)]
    assert_close(values[:, 2:-2], np.stack(inner, 1))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_central_at_uneven_steps_solves_for_its_weights(order: int) -> None:
    trajectory = trajcli.differentiate(RECORDING, dt=UNEVEN, method="central")
    times = np.concatenate([[0.0], np.cumsum(UNEVEN)])
    expected = np.empty_like(RECORDING)
    for t in range(20):
        first = min(max(t - 2, 0), 15)
        offsets = times[first : first + 5] - times[t]
        powers = np.vander(offsets / DT, increasing=True).T  # rows are powers, in units of DT
        wanted = np.zeros(5)
        wanted[order] = factorial(order) / DT**order
        weights = np.linalg.solve(powers, wanted)
        expected[:, t] = np.einsum("w,bwd->bd", weights, RECORDING[:, first : first + 5])
    assert_close(getattr(trajectory, PARTS[order]), expected, 1e-11)


@pytest.mark.parametrize("dt", [DT, UNEVEN], ids=["even", "uneven"])
def test_clique_is_numpys_diff_again_and_again(dt: float | np.ndarray) -> None:
    start = State(*RNG.normal(size=(4, 2, 3)))
    trajectory = trajcli.integrate(RECORDING[:, 1:], start, dt, "clique")
    steps = np.broadcast_to(dt, 19)[:, None]
    below = np.concatenate([start.position[:, None], RECORDING[:, 1:]], 1)
    for part in PARTS[1:]:
        rows = np.diff(below, axis=1) / steps
        assert_close(getattr(trajectory, part)[:, 1:], rows, 1e-10)
        below = np.concatenate([getattr(start, part)[:, None], rows], 1)


@pytest.mark.parametrize("dt", [DT, UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize(("order", "mode"), [(1, "velocity"), (2, "acceleration"), (3, "jerk")])
def test_sums_are_numpys_cumsum_again_and_again(
    mode: str, order: int, dt: float | np.ndarray
) -> None:
    start = State(*RNG.normal(size=(4, 2, 3)))
    actions = RECORDING[:, 1:]
    trajectory = trajcli.integrate(actions, start, dt, mode)
    steps = np.broadcast_to(dt, 19)[:, None]
    above = actions
    for part in PARTS[:order][::-1]:
        above = getattr(start, part)[:, None] + np.cumsum(steps * above, axis=1)
        assert_close(getattr(trajectory, part)[:, 1:], above)
