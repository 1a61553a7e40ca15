"""Finite differences and sums as NumPy and the textbooks have them."""

from __future__ import annotations

import numpy as np
import pytest
from exact import QUANTITIES

import trajcli

RNG = np.random.default_rng(0)
RECORDING = RNG.normal(size=(2, 20, 3))
DT = 0.05

# Weights on the first five rows for derivatives 1 to 3 in the row of that number; B. Fornberg,
# Math. Comp. 51 (1988), tables 1 and 3. Those at the end are the mirror image.
FIRST = np.array([[-25, 48, -36, 16, -3], [35, -104, 114, -56, 11], [-5, 18, -24, 14, -3]])
SECOND = np.array([[-3, -10, 18, -6, 1], [11, -20, 6, 4, -1], [-3, 10, -12, 6, -1]])
CENTRAL = np.array([[1, -8, 0, 8, -1], [-1, 16, -30, 16, -1], [-1, 2, 0, -2, 1]])


def assert_close(actual: np.ndarray, expected: np.ndarray, relative: float = 1e-12) -> None:
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() <= relative * np.abs(expected).max()


@pytest.mark.parametrize("order", [1, 2, 3])
def test_central_has_the_textbooks_stencils_in_every_row(order: int) -> None:
    values = getattr(trajcli.differentiate(RECORDING, dt=DT, method="central"), QUANTITIES[order])
    scale = np.array([12, 12, 2])[order - 1] * DT**order

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
