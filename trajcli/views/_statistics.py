"""Statistics of arrays [B, T, D] and of rotations in one pass: range, peak, NaN and Inf, limits."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from trajcli.arrays import reduce_rows, to_numpy
from trajcli.errors import Fault, InputError
from trajcli.files.dofs import RotationDofs
from trajcli.files.limits import Bounds
from trajcli.files.recording import Recording
from trajcli.kernels.program import Floats, NumpyArray
from trajcli.rotations import angle
from trajcli.rotations.quaternions import TOLERANCE, normalize
from trajcli.scores import angular_rates

# So many rows of rotations are converted at once: their quaternions fit a processor's cache.
_ROTATED = 1 << 15


@dataclass(frozen=True)
class Failure:
    """The worst of the values that fail a check, in one trajectory or of one dof.

    excess: by how much the value fails. count: how many fail. time: that of the value in seconds,
    as in the file. spans: the first and the last row of each run of rows in which the dof fails in
    this trajectory, and their times.
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


def find_failures(
    bad: NumpyArray, excess: NumpyArray, values: NumpyArray, block: Recording, dataset: str = "",
    delays: NumpyArray | float = 0.0,
) -> list[Failure]:  # fmt: skip
    """Finds for each trajectory of a block with bad values [b, T, D] the one of most excess.

    delays: by how many seconds values are later than their rows.
    """
    delays = np.broadcast_to(delays, bad.shape)
    times = block.known_times() if bad.any() else None
    worst = []
    for b in np.flatnonzero(bad.any((1, 2))).tolist():
        # An excess is not negative: values that are not bad rank below all that are.
        ranks = np.where(bad[b], excess[b], -1.0)
        row, dof = divmod(int(ranks.argmax()), ranks.shape[1])
        worst.append(
            Failure(
                trajectory=int(block.numbers[b]),
                row=block.first_row + row,
                dof=dof,
                value=float(values[b, row, dof]),
                excess=float(excess[b, row, dof]),
                count=int(bad[b].sum()),
                time=None if times is None else float(times[b, row] + delays[b, row, dof]),
                dataset=dataset,
            )
        )
    return worst


class Summary(Protocol):
    """Sums up all arrays of some trajectories, block by block."""

    def add_block(self, values: Mapping[str, NumpyArray], block: Recording) -> None:
        """Adds a block with arrays [b, T, D] by name."""


def read_blocks(
    blocks: Iterable[Recording],
    names: Iterable[str],
    summaries: Iterable[Summary],
    faults: dict[str, Fault] | None = None,
) -> None:
    """Reads the named arrays of every block once, and adds them to all summaries."""
    for block in blocks:
        try:
            values = {name: block.arrays[name].read() for name in names}
            for summary in summaries:
                summary.add_block(values, block)
        except InputError as error:
            # Unreadable trajectories are faults by name where these are collected.
            if faults is None:
                raise
            if len(block) > 1:
                # Trajectories are read one by one, to keep those that can be read.
                single = map(block.take, np.arange(len(block))[:, None])
                read_blocks(single, names, summaries, faults)
            else:
                faults[block.title(0)] = error.faults[0]


def _range(values: NumpyArray, least: np.ufunc, largest: np.ufunc) -> tuple[NumpyArray, NumpyArray]:
    rows = values.reshape(1, -1, values.shape[-1])
    low, high = (to_numpy(reduce_rows(x, rows))[0] for x in (least, largest))
    return low, high


class Statistics:
    """Sums up one array [B, T, D], block by block.

    peak, peak_rows: the largest magnitude [D], and its trajectory and row; the first and the last
    ``ends`` rows of a trajectory do not count. violations: how many values are outside ``bounds``
    [D]. nonfinite, failures: trajectories with any NaN or Inf, and with violations. worst: that of
    each dof. sampled: whether there are values that were not added.
    """

    def __init__(self, name: str, dofs: int, bounds: Bounds | None = None, ends: int = 0) -> None:
        self.name, self.bounds, self.ends, self.sampled = name, bounds, ends, False
        self.low, self.high = np.full(dofs, np.inf), np.full(dofs, -np.inf)
        self.peak = np.full(dofs, -1.0)
        self.peak_rows: list[tuple[int, int] | None] = [None] * dofs
        self.nan = self.inf = 0
        self.nonfinite: list[Failure] = []
        self.violations = np.zeros(dofs, np.int64)
        self.failures: list[Failure] = []
        self.worst: dict[int, Failure] = {}

    @property
    def known(self) -> bool:
        """Whether any value is finite."""
        return bool((self.low <= self.high).any())

    def add_block(
        self, arrays: Mapping[str, NumpyArray], block: Recording | None = None,
        delays: NumpyArray | None = None,
    ) -> None:  # fmt: skip
        """Adds the array of its name; without trajectories only range, NaN and Inf count."""
        values = arrays[self.name]
        if not values.size:
            return
        # Half precision, integers and foreign byte order are slow, or overflow.
        if values.dtype.kind != "f" or values.dtype.itemsize < 4 or not values.dtype.isnative:
            values = values.astype(np.float64)
        low, high = _range(values, np.minimum, np.maximum)
        # NaN and Inf show in the range, so most blocks are passed over only twice.
        if not (np.isfinite(low) & np.isfinite(high)).all():
            bad = ~np.isfinite(values)
            self.nan += int(np.isnan(values).sum())
            self.inf += int(np.isinf(values).sum())
            if block is not None:
                self.nonfinite += find_failures(bad, np.where(bad, np.inf, 0.0), values, block)
            values = np.where(bad, np.nan, values)
            low, high = _range(values, np.fmin, np.fmax)
        self.low, self.high = np.fmin(self.low, low), np.fmax(self.high, high)
        if block is None:
            return
        bounds = self.bounds
        if bounds is not None and not ((high <= bounds.upper) & (low >= bounds.lower)).all():
            self._add_violations(values, bounds, block, delays)
        peaks = np.fmax(np.abs(low), np.abs(high))
        rows = values.shape[1]
        # At least the middle row of a short trajectory counts.
        if ends := min(self.ends, (rows - 1) // 2):
            values = values[:, ends : rows - ends]
            peaks = np.fmax(*np.abs(_range(values, np.fmin, np.fmax)))
        for dof in np.flatnonzero(peaks > self.peak).tolist():
            b, row = divmod(int((np.abs(values[..., dof]) == peaks[dof]).argmax()), values.shape[1])
            self.peak[dof] = peaks[dof]
            self.peak_rows[dof] = int(block.numbers[b]), block.first_row + ends + row

    def _add_violations(
        self, values: NumpyArray, bounds: Bounds, block: Recording, delays: NumpyArray | None
    ) -> None:
        """Adds the values that are outside the bounds by more than rounding."""
        with np.errstate(invalid="ignore"):
            # By how much a value is beyond the nearer limit, as a share of its size.
            excess = np.maximum(values - bounds.upper, bounds.lower - values) / bounds.size
        bad = (excess > bounds.slack) & np.isfinite(values)
        if not bad.any():
            return
        self.violations += bad.sum((0, 1))
        later = np.broadcast_to(0.0 if delays is None else delays, values.shape)
        self.failures += find_failures(bad, excess, values, block, delays=later)
        times = block.known_times()
        for dof in np.flatnonzero(bad.any((0, 1))).tolist():
            ranks = np.where(bad[..., dof], excess[..., dof], -1.0)
            b = int(ranks.argmax()) // ranks.shape[1]
            if dof in self.worst and ranks[b].max() <= self.worst[dof].excess:
                continue
            column = np.s_[b : b + 1, :, dof : dof + 1]
            parts = bad[column], excess[column], values[column]
            (worst,) = find_failures(*parts, block.take([b]), delays=later[column])
            # Runs of rows beyond the limit, first and last row of each; a step ends with the next.
            edges = np.flatnonzero(np.diff(bad[b, :, dof], prepend=False, append=False))
            runs = edges.reshape(-1, 2) - [0, delays is None]
            seconds = [None] * len(runs) if times is None else times[b][runs].tolist()
            spans = list(zip((block.first_row + runs).tolist(), seconds, strict=True))
            self.worst[dof] = replace(worst, dof=dof, spans=spans)

    def limit_share(self) -> float | None:
        """Computes the largest share of symmetric bounds that is used; None for other bounds."""
        bounds = self.bounds
        if bounds is None or not self.known or not (bounds.lower == -bounds.upper).all():
            return None
        with np.errstate(invalid="ignore", divide="ignore"):
            share = self.peak / bounds.upper
        # Infinite limits are never used.
        return float(np.max(share, initial=0.0, where=np.isfinite(share)))


def orientations(values: NumpyArray, rotations: Sequence[RotationDofs]) -> tuple[Floats, Floats]:
    """Converts dofs [b, T, D] to unit quaternions [b, T, R, 4], NaN for what is no rotation.

    Returns also by how much each differs from a rotation [b, T, R].
    """
    shape = (*values.shape[:2], len(rotations))
    quaternions, off = np.empty((*shape, 4)), np.empty(shape)
    for k, rotation in enumerate(rotations):
        for start in range(0, shape[1], _ROTATED):
            rows = slice(start, start + _ROTATED)
            columns = values[:, rows, list(rotation.dofs)].astype(np.float64)
            quaternions[:, rows, k], off[:, rows, k] = normalize(columns, rotation.form)
    return quaternions, off


class RotationStatistics:
    """Statistics of the rotations of a batch, each of which counts as a dof.

    statistics: of "norm", by how much norms differ from 1; of "sign", 1 where the sign of a
    quaternion changes; of "angle", the angle from the first row; and of the magnitude of each
    angular rate, by its name.
    """

    def __init__(
        self,
        batch: Recording,
        names: Sequence[str],
        limits: Mapping[str, float] | None = None,
        stored: Collection[str] = (),
    ) -> None:
        """limits: the largest magnitudes of rates, derived from orientations unless ``stored``."""
        self.batch, self.limits = batch, limits or {}
        self.rotations = batch.rotations
        self.derived = [name for name in self.limits if self.rotations and name not in stored]
        self.stored = [name for name in self.limits if name in batch.arrays]
        # Forms of four and nine numbers have norms that rounding or averaging may spoil.
        widths = {rotation.width for rotation in self.rotations}
        fitting = {"norm": {4, 9}, "sign": {4}, "angle": widths}
        names = [name for name in names if widths & fitting[name]]
        self.count = count = len(self.rotations) or batch.shape[2] // 3
        upper = {"norm": TOLERANCE, "sign": 0.5, "angle": np.inf, **self.limits}
        self.statistics = {
            name: Statistics(
                name, count, Bounds(np.full(count, -np.inf), np.full(count, upper[name]))
            )
            for name in (*names, *self.stored, *self.derived)
        }

    def add_block(self, values: Mapping[str, NumpyArray], block: Recording) -> None:
        rates = {name: values[name].astype(np.float64) for name in self.stored}
        numbers = dict[str, Any]()
        if self.rotations and block.rows:
            name = next(iter(values))
            quaternions, numbers["norm"] = orientations(values[name], self.rotations)
            if "sign" in self.statistics:
                # q and −q are one rotation: neighbours of a negative product differ in sign.
                changes = np.zeros(numbers["norm"].shape)
                changes[:, 1:] = (quaternions[:, 1:] * quaternions[:, :-1]).sum(-1) < 0
                changes[..., [rotation.width != 4 for rotation in self.rotations]] = 0.0
                numbers["sign"] = changes
            if "angle" in self.statistics:
                start = quaternions[:, :1]
                # A block of a sample need not begin with the first row.
                if block.first_row:
                    first = self.batch.take(block.numbers, range(1)).arrays[name]
                    start, _ = orientations(first.read(), self.rotations)
                numbers["angle"] = angle(quaternions, start)
            if self.derived:
                times = block.known_times()
                times = np.zeros(quaternions.shape[:2]) if times is None else times
                rates |= angular_rates(quaternions, times, block.step, self.derived)
        for name, vectors in rates.items():
            numbers[name] = np.linalg.norm(vectors.reshape(*vectors.shape[:2], -1, 3), axis=-1)
        for name in self.statistics.keys() & numbers.keys():
            self.statistics[name].add_block(numbers, block)

    def facts(self) -> list[dict[str, str | float | None]]:
        known = {name: (x.peak, x.violations) for name, x in self.statistics.items() if x.known}
        return [
            {
                "name": rotation.name,
                "form": rotation.form,
                "turn": float(known["angle"][0][k]) if "angle" in known else None,
                "norm": float(known["norm"][0][k]) if "norm" in known else None,
                "signs": int(known["sign"][1][k]) if "sign" in known else None,
            }
            for k, rotation in enumerate(self.rotations)
        ]
