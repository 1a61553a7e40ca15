"""Which number is wrong, where a relation is broken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trajcli.views.laws import CONTEXT
from trajcli.views.windows import Residual


def blame(found: Sequence[Residual], trajectory: int, dof: int, row: int) -> tuple[int, int]:
    """The order and row of the one number whose error explains most of what fails near a row.

    A number that is off by δ moves every relation it is part of by its weight times δ: of all
    numbers near, the one whose δ leaves the least behind.
    """
    near = range(row - 3 * CONTEXT, row + 3 * CONTEXT + 1)
    missed: dict[tuple[int, int], float] = {}
    weighed: dict[tuple[int, int], float] = {}
    for residual in found:
        shape = residual.values.shape
        b = trajectory if shape[0] > 1 else 0
        for i in (at - residual.first for at in near):
            if not 0 <= i < shape[1] or not np.isfinite(residual.values[b, i, dof]):
                continue
            allowed = max(float(residual.allowed[b, i, dof]), 1e-140)
            off = float(residual.values[b, i, dof]) / allowed
            for term in residual.terms:
                weight = _entry(term.weight, b, i) / allowed
                number = (term.order, residual.first + i + term.offset)
                missed[number] = missed.get(number, 0.0) + weight * off
                weighed[number] = weighed.get(number, 0.0) + weight * weight
    explained = {n: missed[n] / weighed[n] * missed[n] for n in missed if weighed[n] > 0}
    return max(explained, key=lambda number: (explained[number], -abs(number[1] - row)))


def _entry(weight: Any, trajectory: int, row: int) -> float:
    if isinstance(weight, float):
        return weight
    b, i = (min(at, n - 1) for at, n in zip((trajectory, row), weight.shape[:2], strict=True))
    return float(weight[b, i, 0])
