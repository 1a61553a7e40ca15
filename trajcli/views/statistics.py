"""One pass over arrays [B, T, D]: per dof the range and the peak, what is not finite, limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trajcli.views.trajectories import Array, Block, Floats

if TYPE_CHECKING:
    from trajcli.files.limits import Bounds

Progress = Callable[[int, int], None]
"""Called with trajectories done, and all of them."""

_GROUPED = 256
"""So many rows are reduced side by side: NumPy is slow along an axis of a few dofs."""


@dataclass(frozen=True)
class Failure:
    """A trajectory that fails a check: how many of its values, and the worst of them."""

    trajectory: int
    count: int
    row: int
    dof: int
    value: float
    excess: float = np.inf
    """By how much the worst value fails; what is worst among trajectories."""
    dataset: str = ""


class Statistics:
    """What blocks of an array [B, T, D] hold; ``add`` takes the blocks one by one.

    low, high, peak [D]: of the finite values, peak of their magnitudes, which lies at
    ``peak_at`` [D] (trajectory, row). ``beyond`` [D]: values outside ``bounds``.
    """

    def __init__(self, dofs: int, bounds: Bounds | None = None) -> None:
        self.dofs, self.bounds = dofs, bounds
        self.low, self.high = np.full(dofs, np.inf), np.full(dofs, -np.inf)
        self.peak = np.full(dofs, -1.0)
        self.peak_at: list[tuple[int, int] | None] = [None] * dofs
        self.nan = self.inf = 0
        self.nonfinite: list[Failure] = []
        self.beyond = np.zeros(dofs, np.int64)
        self.outside: list[Failure] = []

    @property
    def known(self) -> bool:
        """Whether any value is finite."""
        return bool((self.low <= self.high).any())

    def add(self, values: Array, block: Block) -> None:
        """Take in the values [b, T, D] of a block."""
        if not values.size:
            return
        numbers, first = block.numbers, block.first
        if values.dtype.kind != "f" or values.dtype.itemsize < 4 or not values.dtype.isnative:
            values = values.astype(np.float64)
        low, high = extreme(np.minimum, values), extreme(np.maximum, values)
        if not (np.isfinite(low) & np.isfinite(high)).all():  # most blocks are read only twice
            bad = ~np.isfinite(values)
            self.nan += int(np.isnan(values).sum())
            self.inf += int(np.isinf(values).sum())
            self.nonfinite += failures(bad, np.where(bad, np.inf, 0.0), values, numbers, first)
            low = extreme(np.minimum, np.where(bad, np.inf, values))
            high = extreme(np.maximum, np.where(bad, -np.inf, values))
            values = np.where(bad, np.nan, values)
        self._add_peaks(values, np.maximum(-low, high), numbers, first)
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)
        bounds = self.bounds
        if bounds is not None and not ((high <= bounds.upper) & (low >= bounds.lower)).all():
            with np.errstate(invalid="ignore"):
                excess = np.maximum(values - bounds.upper, bounds.lower - values) / bounds.size
            beyond = excess > bounds.slack  # what is less is rounding
            self.beyond += beyond.sum((0, 1))
            self.outside += failures(beyond, excess, values, numbers, first)

    def _add_peaks(self, values: Array, peak: Floats, numbers: Array, first_row: int) -> None:
        rows = values.shape[1]
        flat = values.reshape(-1, self.dofs)
        for dof in np.flatnonzero(peak > self.peak).tolist():
            at = int((np.abs(flat[:, dof]) == peak[dof]).argmax())
            self.peak[dof] = peak[dof]
            self.peak_at[dof] = (int(numbers[at // rows]), first_row + at % rows)

    def used(self) -> float | None:
        """The largest share of symmetric bounds that is used; None for others."""
        bounds = self.bounds
        if bounds is None or not self.known or not (bounds.lower == -bounds.upper).all():
            return None
        with np.errstate(invalid="ignore", divide="ignore"):
            share = self.peak / bounds.upper
        return float(np.max(share, initial=0.0, where=np.isfinite(share)))


def failures(
    bad: Array, excess: Array, values: Array, numbers: Array, first: int = 0, name: str = ""
) -> list[Failure]:
    """The trajectories where values [b, T, D] are bad, each with its worst by ``excess``."""
    excess = np.where(bad, excess, -1.0)
    found = []
    for b in np.flatnonzero(bad.any((1, 2))).tolist():
        row, dof = (int(n) for n in np.unravel_index(excess[b].argmax(), excess[b].shape))
        value, worst = float(values[b, row, dof]), float(excess[b, row, dof])
        count = int(bad[b].sum())
        found.append(Failure(int(numbers[b]), count, first + row, dof, value, worst, name))
    return found


def extreme(function: Any, values: Array) -> Array:
    """numpy.minimum or maximum of values [..., D] along all axes but the last; NaN stays NaN."""
    dofs = values.shape[-1]
    flat = values.reshape(-1, dofs)
    count = len(flat) // _GROUPED
    if not count:
        return np.asarray(function.reduce(flat, 0), np.float64)
    grouped = flat[: count * _GROUPED].reshape(count, _GROUPED * dofs)
    rows = [function.reduce(grouped, 0).reshape(_GROUPED, dofs), flat[count * _GROUPED :]]
    return np.asarray(function.reduce(np.concatenate(rows), 0), np.float64)
