"""Statistics of arrays [B, T, D] and of rotations in one pass: range, peak, NaN and Inf, limits."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from trajcli.arrays import reduce_rows
from trajcli.errors import Fault, InputError
from trajcli.files.dofs import RotationDofs
from trajcli.files.limits import Bounds
from trajcli.files.recording import Array, Recording
from trajcli.kernels.program import Floats
from trajcli.rotations import angle
from trajcli.rotations.quaternions import TOLERANCE, normalize
from trajcli.scores import angular_rates

# Rows whose rotations are converted at once.
_ROTATED = 1 << 15


@dataclass(frozen=True)
class Failure:
    """The worst of the values that fail a check, in one trajectory or of one dof.

    excess: by how much it fails. count: how many values fail. time: that of the value in seconds,
    as in the file; None where it is not known. spans: the first and the last row of each run of
    rows in which the dof fails in this trajectory, and their times.
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
    bad: Array, excess: Array, values: Array, block: Recording, dataset: str = "",
    late: Array | float = 0.0,
) -> list[Failure]:  # fmt: skip
    """Returns for each trajectory of a block with bad values [b, T, D] the one of most excess.

    late: by how many seconds values are later than their rows.
    """
    late = np.broadcast_to(late, bad.shape)
    times = block.known_times() if bad.any() else None
    worst = []
    for b in np.flatnonzero(bad.any((1, 2))).tolist():
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
                time=None if times is None else float(times[b, row] + late[b, row, dof]),
                dataset=dataset,
            )
        )
    return worst


class Summary(Protocol):
    """Sums up all arrays of some trajectories, block by block."""

    def add(self, values: Mapping[str, Array], block: Recording) -> None:
        """Adds a block with arrays [b, T, D] by name."""


def read_blocks(
    blocks: Iterable[Recording],
    names: Iterable[str],
    summaries: Iterable[Summary],
    faults: dict[str, Fault] | None = None,
) -> None:
    """Reads the named arrays of every block once, and adds them to all summaries.

    faults: takes the faults of trajectories that cannot be read, by name, which are raised without
    it: those of a block that cannot be read are read one after the other.
    """
    for block in blocks:
        try:
            values = {name: block.arrays[name].read() for name in names}
            for summary in summaries:
                summary.add(values, block)
        except InputError as error:
            if faults is None:
                raise
            if len(block) > 1:
                single = map(block.take, np.arange(len(block))[:, None])
                read_blocks(single, names, summaries, faults)
            else:
                faults[block.title(0)] = error.faults[0]


def _range(values: Array, least: np.ufunc, largest: np.ufunc) -> tuple[Array, Array]:
    """Returns the range [D] of values [b, T, D] by two such functions."""
    rows = values.reshape(1, -1, values.shape[-1])
    return reduce_rows(least, rows)[0], reduce_rows(largest, rows)[0]


class Statistics:
    """Sums up one array [B, T, D], which ``add`` takes block by block.

    low, high: the range of the finite values [D]. peak, peak_at: their largest magnitude [D], and
    its trajectory and row; the first and the last ``ends`` rows of a trajectory do not count. nan,
    inf: numbers of such values; ``nonfinite`` has the trajectories with any. beyond: the number of
    values outside ``bounds`` [D]; ``outside`` has the trajectories with any, ``worst`` the worst of
    each dof. sampled: whether there are values that were not added.
    """

    def __init__(self, name: str, dofs: int, bounds: Bounds | None = None, ends: int = 0) -> None:
        self.name, self.bounds, self.ends, self.sampled = name, bounds, ends, False
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

    def add(
        self, arrays: Mapping[str, Array], block: Recording | None = None,
        late: Array | None = None,
    ) -> None:  # fmt: skip
        """Adds the array of its name; without trajectories only range, NaN and Inf count.

        late: by how many seconds values [b, T − 1, D] of the steps are later than their rows.
        """
        values = arrays[self.name]
        if not values.size:
            return
        # half precision, integers and foreign byte order are slow, or overflow
        if values.dtype.kind != "f" or values.dtype.itemsize < 4 or not values.dtype.isnative:
            values = values.astype(np.float64)
        low, high = _range(values, np.minimum, np.maximum)
        if not (np.isfinite(low) & np.isfinite(high)).all():  # most blocks are read only twice
            bad = ~np.isfinite(values)
            self.nan += int(np.isnan(values).sum())
            self.inf += int(np.isinf(values).sum())
            if block is not None:
                self.nonfinite += failures(bad, np.where(bad, np.inf, 0.0), values, block)
            values = np.where(bad, np.nan, values)
            low, high = _range(values, np.fmin, np.fmax)
        self.low, self.high = np.fmin(self.low, low), np.fmax(self.high, high)
        if block is not None:
            self._add_peaks(values, np.fmax(np.abs(low), np.abs(high)), block)
            self._add_beyond(values, low, high, block, late)

    def _add_peaks(self, values: Array, peaks: Array, block: Recording) -> None:
        """Adds the largest magnitudes [D] of values, without rows at the ends that do not count."""
        rows = values.shape[1]
        if ends := min(self.ends, (rows - 1) // 2):
            values = values[:, ends : rows - ends]
            peaks = np.fmax(*np.abs(_range(values, np.fmin, np.fmax)))
        for dof in np.flatnonzero(peaks > self.peak).tolist():
            at = int((np.abs(values[..., dof]) == peaks[dof]).argmax())
            b, row = divmod(at, values.shape[1])
            self.peak[dof] = peaks[dof]
            self.peak_at[dof] = int(block.numbers[b]), block.first_row + ends + row

    def _add_beyond(
        self, values: Array, low: Array, high: Array, block: Recording, late: Array | None
    ) -> None:
        """Adds what is outside the bounds, of values of this range."""
        bounds = self.bounds
        if bounds is None or ((high <= bounds.upper) & (low >= bounds.lower)).all():
            return
        with np.errstate(invalid="ignore"):
            # by how much a value is beyond the nearer limit, as a share of its size
            excess = np.maximum(values - bounds.upper, bounds.lower - values) / bounds.size
        beyond = (excess > bounds.slack) & np.isfinite(values)
        if not beyond.any():
            return
        self.beyond += beyond.sum((0, 1))
        later = np.broadcast_to(0.0 if late is None else late, values.shape)
        self.outside += failures(beyond, excess, values, block, late=later)
        times = block.known_times()
        for dof in np.flatnonzero(beyond.any((0, 1))).tolist():
            ranks = np.where(beyond[..., dof], excess[..., dof], -1.0)
            b = int(ranks.argmax()) // ranks.shape[1]
            if dof in self.worst and ranks[b].max() <= self.worst[dof].excess:
                continue
            column = np.s_[b : b + 1, :, dof : dof + 1]
            own = beyond[column], excess[column], values[column]
            (worst,) = failures(*own, block.take([b]), late=later[column])
            # runs of rows beyond the limit, first and last row of each; a step ends with the next
            edges = np.flatnonzero(np.diff(beyond[b, :, dof], prepend=False, append=False))
            runs = edges.reshape(-1, 2) - [0, late is None]
            seconds = [None] * len(runs) if times is None else times[b][runs].tolist()
            spans = list(zip((block.first_row + runs).tolist(), seconds, strict=True))
            self.worst[dof] = replace(worst, dof=dof, spans=spans)

    def used(self) -> float | None:
        """Returns the largest share of symmetric bounds that is used; None for others."""
        bounds = self.bounds
        if bounds is None or not self.known or not (bounds.lower == -bounds.upper).all():
            return None
        with np.errstate(invalid="ignore", divide="ignore"):
            share = self.peak / bounds.upper  # infinite limits are never used
        return float(np.max(share, initial=0.0, where=np.isfinite(share)))


def orientations(values: Array, rotations: Sequence[RotationDofs]) -> tuple[Floats, Floats]:
    """Returns unit quaternions [b, T, R, 4] of dofs [b, T, D], and how far each is off, [b, T, R].

    What is no rotation becomes NaN.
    """
    shape = (*values.shape[:2], len(rotations))
    quaternions, off = np.empty((*shape, 4)), np.empty(shape)
    for k, rotation in enumerate(rotations):
        for begin in range(0, shape[1], _ROTATED):
            rows = slice(begin, begin + _ROTATED)
            columns = values[:, rows, list(rotation.dofs)].astype(np.float64)
            quaternions[:, rows, k], off[:, rows, k] = normalize(columns, rotation.form)
    return quaternions, off


class RotationStatistics:
    """Statistics of the rotations of a batch, each of which counts as a dof.

    rotations: those of the batch; none where it has angular rates alone, or other dofs. of: by
    "norm", how far norms are from 1; by "sign", 1 where a quaternion's sign changes; by "angle",
    angles from the first row; by the names of angular rates, magnitudes.
    """

    def __init__(
        self,
        batch: Recording,
        names: Sequence[str],
        limits: Mapping[str, float] | None = None,
        stored: Collection[str] = (),
    ) -> None:
        """names: norm, sign, angle. limits: the largest magnitudes of rates, which are derived from
        orientations where they are not ``stored`` in the file."""
        self.batch, self.limits = batch, limits or {}
        self.rotations = batch.rotations
        self.derived = [name for name in self.limits if self.rotations and name not in stored]
        self.stored = [name for name in self.limits if name in batch.arrays]
        widths = {rotation.width for rotation in self.rotations}
        fitting = {"norm": {4, 9}, "sign": {4}, "angle": widths}
        names = [name for name in names if widths & fitting[name]]
        self.count = len(self.rotations) or batch.shape[2] // 3
        upper = {"norm": TOLERANCE, "sign": 0.5, "angle": np.inf, **self.limits}
        size = self.count
        self.of = {
            name: Statistics(name, size, Bounds(np.full(size, -np.inf), np.full(size, upper[name])))
            for name in (*names, *self.stored, *self.derived)
        }

    @property
    def alone(self) -> bool:
        """Whether the batch has no dofs but rotations or their rates."""
        return self.batch.holds_rotations or not self.batch.free_dofs

    def add(self, values: Mapping[str, Array], block: Recording) -> None:
        """Adds a block with arrays [b, T, D] by name."""
        rates = {name: values[name].astype(np.float64) for name in self.stored}
        found = dict[str, Array]()
        if self.rotations and block.rows:
            name = next(iter(values))
            quaternions, found["norm"] = orientations(values[name], self.rotations)
            if "sign" in self.of:
                turned = np.zeros(found["norm"].shape)
                turned[:, 1:] = (quaternions[:, 1:] * quaternions[:, :-1]).sum(-1) < 0
                turned[..., [rotation.width != 4 for rotation in self.rotations]] = 0.0
                found["sign"] = turned
            if "angle" in self.of:
                start = quaternions[:, :1]
                if block.first_row:  # of a sample
                    first = self.batch.take(block.numbers, range(1)).arrays[name]
                    start, _ = orientations(first.read(), self.rotations)
                found["angle"] = angle(quaternions, start)
            if self.derived:
                times = block.known_times()
                times = np.zeros(quaternions.shape[:2]) if times is None else times
                rates |= angular_rates(quaternions, times, block.step, self.derived)
        for name, vectors in rates.items():
            found[name] = np.linalg.norm(vectors.reshape(*vectors.shape[:2], -1, 3), axis=-1)
        for name in self.of.keys() & found.keys():
            self.of[name].add(found, block)

    def facts(self) -> list[dict[str, str | float | None]]:
        """Returns what is known of each rotation, for JSON: null where nothing is."""
        known = {name: (x.peak, x.beyond) for name, x in self.of.items() if x.known}
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
