"""One pass over arrays [B, T, D]: per dof the range and the peak, what is not finite, limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from trajcli.files.blocks import Array, Block, Floats
from trajcli.files.limits import Bounds, Limits
from trajcli.views.findings import Excess, Failure, failures
from trajcli.views.trajectories import Batch

_GROUPED = 256
"""Rows that are reduced side by side: NumPy is slow along an axis of a few dofs."""


class Statistics:
    """What blocks of an array [B, T, D] hold; ``add`` takes the blocks one by one.

    low, high, peak [D]: of the finite values; the peak of their magnitudes lies at ``peak_at``
    [D] (trajectory, row), not in the first and the last ``ends`` rows. ``beyond`` [D]: values
    outside ``bounds``, and of these dofs the ``worst``.
    """

    def __init__(self, dofs: int, bounds: Bounds | None = None, ends: int = 0) -> None:
        self.dofs, self.bounds, self.ends = dofs, bounds, ends
        self.low, self.high = np.full(dofs, np.inf), np.full(dofs, -np.inf)
        self.peak = np.full(dofs, -1.0)
        self.peak_at: list[tuple[int, int] | None] = [None] * dofs
        self.nan = self.inf = 0
        self.nonfinite: list[Failure] = []
        self.beyond = np.zeros(dofs, np.int64)
        self.outside: list[Failure] = []
        self.worst: dict[int, Excess] = {}

    @property
    def known(self) -> bool:
        """Whether any value is finite."""
        return bool((self.low <= self.high).any())

    def add(self, values: Array, block: Block) -> None:
        """Take in the values [b, T, D] of a block."""
        if not values.size:
            return
        if values.dtype.kind != "f" or values.dtype.itemsize < 4 or not values.dtype.isnative:
            values = values.astype(np.float64)
        low, high = _extreme(np.minimum, values), _extreme(np.maximum, values)
        if not (np.isfinite(low) & np.isfinite(high)).all():  # most blocks are read only twice
            bad = ~np.isfinite(values)
            self.nan += int(np.isnan(values).sum())
            self.inf += int(np.isinf(values).sum())
            self.nonfinite += failures(bad, np.where(bad, np.inf, 0.0), values, block)
            low = _extreme(np.minimum, np.where(bad, np.inf, values))
            high = _extreme(np.maximum, np.where(bad, -np.inf, values))
            values = np.where(bad, np.nan, values)
        if ends := min(self.ends, (values.shape[1] - 1) // 2):
            inner = values[:, ends:-ends]
            peak = np.fmax.reduce(np.abs(inner), (0, 1)).astype(np.float64)
            self._add_peaks(inner, peak, replace(block, first=block.first + ends))
        else:
            self._add_peaks(values, np.maximum(-low, high), block)
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)
        bounds = self.bounds
        if bounds is not None and not ((high <= bounds.upper) & (low >= bounds.lower)).all():
            excess, beyond = exceeded(values, bounds)
            self.beyond += beyond.sum((0, 1))
            self.outside += failures(beyond, excess, values, block)
            self._add_worst(np.where(beyond, excess, -1.0), values, block)

    def _add_worst(self, excess: Floats, values: Array, block: Block) -> None:
        times = block.known_times() if (excess >= 0).any() else None
        for dof in np.flatnonzero((excess >= 0).any((0, 1))).tolist():
            b, row = (int(n) for n in np.unravel_index(excess[..., dof].argmax(), excess.shape[:2]))
            size = float(excess[b, row, dof])
            if dof in self.worst and size <= self.worst[dof].excess:
                continue
            edges = np.flatnonzero(np.diff(excess[b, :, dof] >= 0, prepend=False, append=False))
            spans = edges.reshape(-1, 2) - [0, 1]
            place = int(block.numbers[b]), block.first + row, float(values[b, row, dof]), size
            known = () if times is None else (float(times[b, row]), times[b][spans])
            self.worst[dof] = Excess(*place, block.first + spans, *known)

    def _add_peaks(self, values: Array, peak: Floats, block: Block) -> None:
        rows = values.shape[1]
        flat = values.reshape(-1, self.dofs)
        for dof in np.flatnonzero(peak > self.peak).tolist():
            at = int((np.abs(flat[:, dof]) == peak[dof]).argmax())
            self.peak[dof] = peak[dof]
            self.peak_at[dof] = (int(block.numbers[at // rows]), block.first + at % rows)

    def used(self) -> float | None:
        """The largest share of symmetric bounds that is used; None for others."""
        bounds = self.bounds
        if bounds is None or not self.known or not (bounds.lower == -bounds.upper).all():
            return None
        with np.errstate(invalid="ignore", divide="ignore"):
            share = self.peak / bounds.upper
        return float(np.max(share, initial=0.0, where=np.isfinite(share)))


def array_bounds(batch: Batch, limits: Limits | None) -> dict[str, Bounds]:
    """The limits of the arrays that a batch has; of actions, as what their mode says they are."""
    if limits is None:
        return {}
    quantities = {name: batch.quantity(name) for name in batch.first.arrays}
    units = {what: batch.first.unit(name) or "" for name, what in quantities.items()}
    tables = quantity_bounds(batch, limits, units)
    return {name: tables[what] for name, what in quantities.items() if what in tables}


def quantity_bounds(batch: Batch, limits: Limits, units: Mapping[str, str]) -> dict[str, Bounds]:
    """The limits of the dofs of a batch by quantity, which is in these units."""
    itemsize = min(stored.precision.itemsize for stored in batch.first.arrays.values())
    return limits.bounds(batch.dofs, itemsize, units, batch.first.dofs)


def exceeded(values: Array, bounds: Bounds) -> tuple[Floats, Array]:
    """By what share of the limits values [..., D] pass them, and where that is no rounding."""
    with np.errstate(invalid="ignore"):
        excess = np.maximum(values - bounds.upper, bounds.lower - values) / bounds.size
    return excess, (excess > bounds.slack) & np.isfinite(values)


def _extreme(function: Any, values: Array) -> Array:
    """numpy.minimum or maximum of values [..., D] along all axes but the last; NaN stays NaN."""
    dofs = values.shape[-1]
    flat = values.reshape(-1, dofs)
    count = len(flat) // _GROUPED
    if not count:
        return np.asarray(function.reduce(flat, 0), np.float64)
    grouped = flat[: count * _GROUPED].reshape(count, _GROUPED * dofs)
    rows = [function.reduce(grouped, 0).reshape(_GROUPED, dofs), flat[count * _GROUPED :]]
    return np.asarray(function.reduce(np.concatenate(rows), 0), np.float64)
