"""Weights of evenly spaced points as weights on their differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from trajcli.kernels.program import Evenly

_SMALL = 128
"""Multiples of floats by whole numbers below it, and sums of some, are exact in doubles."""


def on_differences(evenly: Evenly) -> tuple[Any, bool, Any]:
    """Order m's weights on m-th differences of the points; whether whole; their factor.

    Weights of a derivative of order m give zero on polynomials of lower degree, so they are
    weights on m-th differences: Σ w_i x_i = −Σ W_i (x_{i+1} − x_i) with W_i = w_0 + … + w_i, m
    times over. Where denominators are small, the weights are brought to whole numbers, and the
    factor is one over the denominator and the spacing to the m. [P, 4, W] (the last m of each
    row are 0), and [b, 4].
    """
    unit, common = _table(evenly.unit)
    spacing = np.asarray(evenly.spacing.hi, dtype=np.float64)  # [b, 1]
    low = np.asarray(evenly.spacing.lo, dtype=np.float64) / spacing
    orders = np.arange(4)
    denominators = np.asarray(common or (1, 1, 1, 1), dtype=np.float64)
    return unit, common is not None, (1.0 - orders * low) / (denominators * spacing**orders)


@lru_cache(maxsize=32)
def _table(unit: tuple[tuple[tuple[Fraction, ...], ...], ...]) -> tuple[Any, Any]:
    """The weights, and for each order what they were multiplied by to be whole, or None."""
    table = [[_summed(weights, m) for m, weights in enumerate(kind)] for kind in unit]
    common = [math.lcm(*(w.denominator for kind in table for w in kind[m])) for m in range(4)]
    whole = all(abs(w * common[m]) < _SMALL for kind in table for m in range(4) for w in kind[m])
    values = np.zeros((len(table), 4, len(unit[0][0])))
    for k, kind in enumerate(table):
        for m, weights in enumerate(kind):
            factor = common[m] if whole else 1
            values[k, m, : len(weights)] = [float(w * factor) for w in weights]
    return values, tuple(common) if whole else None


def _summed(weights: Sequence[Fraction], order: int) -> list[Fraction]:
    values = list(weights)
    for _ in range(order):
        values = [-sum(values[: i + 1], Fraction(0)) for i in range(len(values) - 1)]
    return values
