"""Statistics of arrays [B, T, D] in one pass: per dof the range, the peak, NaN and Inf, limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trajcli.files.limits import Bounds
from trajcli.files.trajectories import Array, Floats, Trajectories

# Rows reduced side by side: NumPy is slow along an axis of a few dofs.
_GROUPED = 256


@dataclass(frozen=True)
class Failure:
    """The worst of the values that fail a check, in one trajectory or of one dof.

    Attributes:
        excess: by how much the value fails.
        count: the number of values that fail.
        time: that of the row in seconds, as in the file; None where it is not known.
        spans: the first and the last row of each run of rows in which the dof fails in this
            trajectory, and their times.
    """

    trajectory: int
    row: int
    dof: int
    value: float
    excess: float
    count: int
    time: float | None = None
    spans: Sequence[tuple[list[int], list[float] | None]] = ()
    dataset: str = ""


def failures(
    bad: Array, excess: Array, values: Array, block: Trajectories | None, dataset: str = ""
) -> list[Failure]:
    """Returns for each trajectory of a block with bad values [b, T, D] the one of most excess."""
    times = block.known_times() if block is not None and bad.any() else None
    worst = []
    for b in np.flatnonzero(bad.any((1, 2))).tolist():
        ranks = np.where(bad[b], excess[b], -1.0)
        row, dof = (int(n) for n in np.unravel_index(ranks.argmax(), ranks.shape))
        failure = Failure(
            trajectory=b if block is None else int(block.numbers[b]),
            row=row if block is None else block.first_row + row,
            dof=dof,
            value=float(values[b, row, dof]),
            excess=float(excess[b, row, dof]),
            count=int(bad[b].sum()),
            time=None if times is None else float(times[b, row]),
            dataset=dataset,
        )
        worst.append(failure)
    return worst


def _place(block: Trajectories | None, b: int, row: int) -> tuple[int, int]:
    """Returns the trajectory and row of a row of a block's b-th trajectory."""
    return (b, row) if block is None else (int(block.numbers[b]), block.first_row + row)


class Statistics:
    """Sums up an array [B, T, D], which ``add`` takes block by block.

    Attributes:
        low, high: the range of the finite values [D].
        peak, peak_at: their largest magnitude [D], and its trajectory and row; the first and the
            last ``ends`` rows of a trajectory do not count.
        nan, inf: numbers of such values; ``nonfinite`` has the trajectories with any.
        beyond: the number of values outside ``bounds`` [D]; ``outside`` has the trajectories with
            any, and ``worst`` the worst value of each dof.
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
        self.worst: dict[int, Failure] = {}

    @property
    def known(self) -> bool:
        """Whether any value is finite."""
        return bool((self.low <= self.high).any())

    def add(self, values: Array, block: Trajectories | None = None) -> None:
        """Adds values [b, T, D]: those of a block of trajectories, or of none."""
        if not values.size:
            return
        # half precision, integers and foreign byte order are slow, or overflow
        if values.dtype.kind != "f" or values.dtype.itemsize < 4 or not values.dtype.isnative:
            values = values.astype(np.float64)
        low, high = _extreme(np.minimum, values), _extreme(np.maximum, values)
        if not (np.isfinite(low) & np.isfinite(high)).all():  # most blocks are read only twice
            bad = ~np.isfinite(values)
            self.nan += int(np.isnan(values).sum())
            self.inf += int(np.isinf(values).sum())
            self.nonfinite += failures(bad, np.where(bad, np.inf, 0.0), values, block)
            values = np.where(bad, np.nan, values)
            low = np.fmin.reduce(values, (0, 1), np.float64, initial=np.inf)
            high = np.fmax.reduce(values, (0, 1), np.float64, initial=-np.inf)
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)
        inner, peak, rows = values, np.maximum(-low, high), values.shape[1]
        if ends := min(self.ends, (rows - 1) // 2):
            inner = values[:, ends : rows - ends]
            peak = np.fmax.reduce(np.abs(inner), (0, 1)).astype(np.float64)
        for dof in np.flatnonzero(peak > self.peak).tolist():
            at = int((np.abs(inner[..., dof]) == peak[dof]).argmax())
            b, row = divmod(at, inner.shape[1])
            self.peak[dof] = peak[dof]
            self.peak_at[dof] = _place(block, b, ends + row)
        bounds = self.bounds
        if (
            bounds is None
            or block is None
            or ((high <= bounds.upper) & (low >= bounds.lower)).all()
        ):
            return
        with np.errstate(invalid="ignore"):
            # by how much a value is beyond the nearer limit, as a share of its size
            excess = np.maximum(values - bounds.upper, bounds.lower - values) / bounds.size
        beyond = (excess > bounds.slack) & np.isfinite(values)
        self.beyond += beyond.sum((0, 1))
        self.outside += failures(beyond, excess, values, block)
        self._add_worst(beyond, excess, values, block)

    def _add_worst(self, beyond: Array, excess: Floats, values: Array, block: Trajectories) -> None:
        times = block.known_times() if beyond.any() else None
        for dof in np.flatnonzero(beyond.any((0, 1))).tolist():
            column = np.s_[:, :, dof : dof + 1]
            worst = max(
                failures(beyond[column], excess[column], values[column], block),
                key=lambda failure: failure.excess,
            )
            if dof in self.worst and worst.excess <= self.worst[dof].excess:
                continue
            b = block.numbers.tolist().index(worst.trajectory)
            # runs of rows beyond the limit, first and last row of each
            edges = np.flatnonzero(np.diff(beyond[b, :, dof], prepend=False, append=False))
            runs = edges.reshape(-1, 2) - [0, 1]
            seconds = [None] * len(runs) if times is None else times[b][runs].tolist()
            spans = list(zip((block.first_row + runs).tolist(), seconds, strict=True))
            self.worst[dof] = replace(worst, dof=dof, spans=spans)

    def used(self) -> float | None:
        """Returns the largest share of symmetric bounds that is used; None for others."""
        bounds = self.bounds
        if bounds is None or not self.known or not (bounds.lower == -bounds.upper).all():
            return None
        with np.errstate(invalid="ignore", divide="ignore"):
            # infinite limits are never used
            share = self.peak / bounds.upper
        return float(np.max(share, initial=0.0, where=np.isfinite(share)))


def _extreme(function: np.ufunc, values: Array) -> Floats:
    """Returns numpy.minimum or maximum of values [..., D] along all axes but the last, without a
    copy of them: a long trajectory is mapped."""
    flat = values.reshape(-1, values.shape[-1])
    count = len(flat) // _GROUPED * _GROUPED
    # rows side by side make a long axis, along which NumPy is fast
    grouped = flat[:count].reshape(-1, _GROUPED * flat.shape[1])
    rows = [function.reduce(grouped, 0).reshape(_GROUPED, -1)] if count else []
    extreme: Floats = function.reduce(np.concatenate([*rows, flat[count:]]), 0).astype(np.float64)
    return extreme
