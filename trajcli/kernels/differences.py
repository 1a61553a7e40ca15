"""Weights of evenly spaced points as weights on their differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from trajcli.kernels.program import Evenly, Kind, Unit

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


def whole_weights(
    unit: Sequence[Kind], of_differences: bool
) -> tuple[tuple[Kind, ...], tuple[int, ...] | None]:
    """Weights [kind][order][point], and for each order what makes them whole, or None.

    of_differences: those of order m on its m-th differences, m fewer than there are points. Where
    they can be brought to small whole numbers they are; else they come as they are, with None.
    """
    table = [
        [_summed(row, m if of_differences else 0) for m, row in enumerate(kind)] for kind in unit
    ]
    common = tuple(math.lcm(*(w.denominator for kind in table for w in kind[m])) for m in range(4))
    scaled = [[[w * common[m] for w in row] for m, row in enumerate(kind)] for kind in table]
    whole = all(abs(w) < _SMALL for kind in scaled for row in kind for w in row)
    chosen = scaled if whole else table
    return tuple(tuple(tuple(row) for row in kind) for kind in chosen), common if whole else None


@lru_cache(maxsize=32)
def _table(unit: Unit) -> tuple[Any, Any]:
    """Those of differences as an array [P, 4, W], and what makes them whole."""
    weights, common = whole_weights(unit, True)
    values = np.zeros((len(unit), 4, len(unit[0][0])))
    for k, kind in enumerate(weights):
        for m, row in enumerate(kind):
            values[k, m, : len(row)] = [float(w) for w in row]
    return values, common


def _summed(weights: Sequence[Fraction], order: int) -> list[Fraction]:
    values = list(weights)
    for _ in range(order):
        values = [-sum(values[: i + 1], Fraction(0)) for i in range(len(values) - 1)]
    return values
