"""The datasets of a file as plain values: shapes, types, ranges, per dof the peaks and when."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trajcli.errors import InputError
from trajcli.files.arrays import ArrayFile, Dataset
from trajcli.files.blocks import Block, Progress
from trajcli.views.statistics import Statistics
from trajcli.views.trajectories import Batch

SAMPLE_BYTES = 24 << 20
"""Larger files are sampled: about so many bytes of them are read."""
LEAST_BYTES = 1 << 20
"""The least that is read of a dataset of a larger file, if it has so much."""
_MOST_SHAPES = 2000
_AXES = ("trajectory", "row", "dof")
Members = Sequence[tuple[ArrayFile, str]]
"""Datasets of one pattern, as their files and their names in them."""


@dataclass
class Datasets:
    """Reports of datasets; the arrays of a batch are read together, once.

    numbers: of the trajectories of each batch that are looked at, which ``episodes`` says. size:
    bytes of the file as it is stored, maybe packed. sampled: whether not all was read.
    """

    trajectories: Sequence[Batch]
    numbers: Sequence[Sequence[int]]
    episodes: str | None
    full: bool
    size: int
    on_progress: Progress
    sampled: bool = False

    def __post_init__(self) -> None:
        every = self.trajectories
        self._small = self.size <= SAMPLE_BYTES
        self._arrays = {b.label(name): (b, name) for b in every for name in b.first.arrays}
        self._labels = {
            path: label for label, (b, name) in self._arrays.items() for path in b.paths(name)
        }
        self._statistics: dict[int, dict[str, Statistics]] = {}

    def reports(self, names: Members, named: bool) -> list[dict[str, Any]]:
        """One for each dataset; for those whose groups differ in numbers alone, one in all.

        What cannot be read is listed with the reason. named: the user named the dataset; raises
        InputError where it cannot be read.
        """
        groups: dict[str, list[tuple[ArrayFile, str]]] = {}
        for file, name in names:
            pattern = self._labels.get(name) or re.sub(r"\d+(?=[^/]*/)", "*", name)
            groups.setdefault(pattern, []).append((file, name))
        self._budget = max(SAMPLE_BYTES // max(len(groups), 1), LEAST_BYTES)
        reports = []
        for pattern, members in groups.items():
            alone = len(members) == 1 and pattern not in self._arrays
            name = (members[0][1] if alone else pattern) or members[0][0].path.name
            try:
                array = self._arrays.get(name)
                about = self._of_batch(*array) if array is not None else self._other(members)
                about |= _shapes(members) if len(members) > 1 else {}
            except InputError as error:
                if named and len(groups) == 1:
                    raise
                about = {"unreadable": str(error.faults[0])}
            reports.append({"name": name, **about})
        return reports

    def _of_batch(self, batch: Batch, name: str) -> dict[str, Any]:
        """An array of trajectories."""
        first, stored = batch.first, batch.first.arrays[name]
        if id(batch) not in self._statistics:
            self._statistics[id(batch)] = self._read(batch)
        of = self._statistics[id(batch)][name]
        dofs = first.dofs.numbers
        places = [(one.trajectory, one.row, dofs[one.dof]) for one in of.nonfinite[:5]]
        about = _about(stored, of, stored.shape[1:] if first.single else stored.shape)
        about["units"] = first.unit(name)
        about["trajectories"] = self.episodes or "all"
        about["nonfinite_at"] = [dict(zip(_AXES, place, strict=True)) for place in places]
        about["dofs"] = batch.dofs
        if stored.dtype.kind == "f":
            about["per_dof"] = [_per_dof(of, i, batch) for i in range(first.shape[2])]
        return about

    def _read(self, batch: Batch) -> dict[str, Statistics]:
        numbers = self.numbers[[id(one) for one in self.trajectories].index(id(batch))]
        arrays = {
            name: Statistics(batch.first.shape[2], ends=batch.one_sided * (name != "position"))
            for name in batch.first.arrays
        }
        budget = SAMPLE_BYTES if self._small else self._budget * len(arrays)
        whole = self.full or batch.nbytes(len(numbers)) <= budget
        self.sampled |= not whole
        every = batch.blocks(numbers, self.on_progress)
        for block in every if whole else batch.sample(numbers, budget):
            for name, statistics in arrays.items():
                statistics.add(block.read(name), block)
        return arrays

    def _other(self, members: Members) -> dict[str, Any]:
        """What is no trajectory; of many in a large file, the beginning of the first."""
        whole = self.full or self._small
        of, left = Statistics(1), SAMPLE_BYTES if self._small else self._budget
        self.sampled |= not whole and len(members) > 1
        stored = [file.require(name) for file, name in (members if whole else members[:1])]
        for one in (one for one in stored if one.numeric):
            count = one.shape[0] if one.shape else 1
            step = max(1, count * LEAST_BYTES // max(one.nbytes, 1))
            for begin in range(0, count, step):
                if left <= 0 and not self.full:
                    self.sampled = True
                    break
                values = np.asarray(one.read_rows(begin, min(begin + step, count)))
                of.add(values.reshape(1, -1, 1), Block(np.zeros(1, np.int64), (), values.size))
                left -= values.nbytes
        return _about(stored[0], of, stored[0].shape) | {"trajectories": "all"}


def _shapes(members: Members) -> dict[str, Any]:
    """How many datasets there are of a pattern, and the range of their shapes."""
    shapes = []
    for file, name in members[:: 1 + len(members) // _MOST_SHAPES]:
        with contextlib.suppress(InputError):
            shapes.append(file.require(name).shape)
    sizes = np.array([shape for shape in shapes if len(shape) == len(shapes[0])])
    low, high = sizes.min(0).tolist(), sizes.max(0).tolist()
    shape = [a if a == b else f"{a}..{b}" for a, b in zip(low, high, strict=True)]
    return {"count": len(members), "shape": shape}


def _about(stored: Dataset, of: Statistics, shape: Sequence[int]) -> dict[str, Any]:
    units = stored.attributes.get("units")
    about: dict[str, Any] = {
        "shape": list(shape),
        "dtype": "text" if stored.dtype.kind in "SUO" else str(stored.dtype),
        "storage": stored.storage,
        "units": None if units is None else str(units),
    }
    if stored.numeric:
        about |= {"nan": of.nan, "inf": of.inf}
        about["min"] = float(of.low.min()) if of.known else None
        about["max"] = float(of.high.max()) if of.known else None
    return about


def _per_dof(of: Statistics, dof: int, batch: Batch) -> dict[str, Any]:
    """The range and the peak of a dof, and when that is."""
    place = of.peak_at[dof]
    if place is None:
        return {"min": None, "max": None, "peak": None, "at": None}
    trajectory, row = place
    times = replace(batch.block(trajectory), first=row, rows=1).known_times()
    when = None if times is None else float(times[0, 0])
    return {
        "min": float(of.low[dof]),
        "max": float(of.high[dof]),
        "peak": float(of.peak[dof]),
        "at": {"trajectory": trajectory, "row": row, "time": when},
    }
