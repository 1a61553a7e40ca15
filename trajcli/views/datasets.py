"""What is in the datasets of a file, as plain values: shapes, types, ranges, peaks and when."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import InputError
from trajcli.files.arrays import ArrayFile, Dataset
from trajcli.views.selection import select
from trajcli.views.statistics import Progress, Statistics
from trajcli.views.trajectories import Batch, Block, known_times

SAMPLE_BYTES = 24 << 20
"""Of larger files so many bytes are looked at."""
LEAST_BYTES = 1 << 20
"""But of each dataset at least so many."""
_MOST_SHAPES = 2000
"""Of more datasets of one pattern not all are asked for their shapes."""
_AXES = ("trajectory", "row", "dof")


def file_bytes(path: Path) -> int:
    """The size of a file, or of all files in a folder."""
    if path.is_dir():
        return sum(part.stat().st_size for part in path.rglob("*") if part.is_file())
    return path.stat().st_size


class Datasets:
    """Reports of the datasets of a file; the arrays of a batch are read together, once."""

    def __init__(
        self,
        file: ArrayFile,
        trajectories: Sequence[Batch],
        index: str | None,
        dof: str | None,
        full: bool,
        on_progress: Progress,
    ) -> None:
        self._file, self._index, self._dof, self._full = file, index, dof, full
        self._small = file_bytes(file.path) <= SAMPLE_BYTES  # as it is stored, maybe packed
        self._progress = on_progress
        self._arrays = {b.label(name): (b, name) for b in trajectories for name in b.first.arrays}
        self._labels = {
            path: label for label, (b, name) in self._arrays.items() for path in b.paths(name)
        }
        self._seen: dict[int, dict[str, Statistics]] = {}
        self._budget = SAMPLE_BYTES
        self.sampled = False

    def reports(self, names: Sequence[str], named: bool) -> list[dict[str, Any]]:
        """One for each dataset; for those whose groups differ in numbers alone, one in all.

        What cannot be read is listed with the reason. named: the user named the dataset; raises
        InputError where it cannot be read.
        """
        groups: dict[str, list[str]] = {}
        for name in names:
            pattern = self._labels.get(name) or re.sub(r"\d+(?=[^/]*/)", "*", name)
            groups.setdefault(pattern, []).append(name)
        self._budget = max(SAMPLE_BYTES // max(len(groups), 1), LEAST_BYTES)
        reports = []
        for pattern, members in groups.items():
            alone = len(members) == 1 and pattern not in self._arrays
            name = (members[0] if alone else pattern) or self._file.path.name
            try:
                known = self._arrays.get(name)
                about = self._of_batch(*known) if known is not None else self._other(members)
                if len(members) > 1:
                    about |= self._shapes(members)
            except InputError as error:
                if named and len(groups) == 1:
                    raise
                about = {"unreadable": str(error.faults[0])}
            reports.append({"name": name, **about})
        return reports

    def _of_batch(self, batch: Batch, name: str) -> dict[str, Any]:
        """An array of trajectories."""
        first, stored = batch.first, batch.first.arrays[name]
        dofs = select(self._dof, first.shape[2], "--dof", batch.dofs)
        if id(batch) not in self._seen:
            self._seen[id(batch)] = self._statistics(batch)
        seen = self._seen[id(batch)][name]
        places = [(failure.trajectory, failure.row, failure.dof) for failure in seen.nonfinite[:5]]
        about = _about(stored, seen, stored.shape[1:] if first.single else stored.shape)
        about["units"] = first.unit(name)
        about["trajectories"] = self._index or "all"
        about["nonfinite_at"] = [dict(zip(_AXES, place, strict=True)) for place in places]
        about["dofs"] = [batch.dofs[i] for i in dofs]
        if stored.dtype.kind == "f":
            about["per_dof"] = [_per_dof(seen, i, batch) for i in dofs]
        return about

    def _statistics(self, batch: Batch) -> dict[str, Statistics]:
        numbers = select(self._index, batch.count, "--index")
        seen = {name: Statistics(batch.first.shape[2]) for name in batch.first.arrays}
        budget = SAMPLE_BYTES if self._small else self._budget * len(seen)
        whole = self._full or batch.nbytes(numbers) <= budget
        self.sampled |= not whole
        done = 0
        for block in batch.blocks(numbers) if whole else batch.sample(numbers, budget):
            for name, statistics in seen.items():
                statistics.add(block.read(name), block)
            done += len(block.numbers)
            self._progress(done, len(numbers))
        return seen

    def _other(self, members: Sequence[str]) -> dict[str, Any]:
        """A dataset that is no trajectory; of many of one pattern in a large file, the first,
        middle and last."""
        spread = sorted({0, len(members) // 2, len(members) - 1})
        chosen = members if self._full or self._small else [members[i] for i in spread]
        self.sampled |= len(chosen) < len(members)
        stored = [self._file.require(name) for name in chosen]
        seen, budget = Statistics(1), self._budget // len(chosen)
        if self._small and sum(one.nbytes for one in stored) <= SAMPLE_BYTES:
            budget = SAMPLE_BYTES
        for one in stored:
            for values in self._parts(one, budget) if one.numeric else ():
                seen.add(values.reshape(1, -1, 1), Block(np.zeros(1, np.int64), (), values.size))
        return _about(stored[0], seen, stored[0].shape) | {"trajectories": "all"}

    def _parts(self, stored: Dataset, budget: int) -> Iterator[Any]:
        """All of a dataset, or four runs of it along its first axis."""
        count = stored.shape[0] if stored.shape else 1
        step = max(1, budget // 4 * count // max(stored.nbytes, 1))
        begins: Sequence[int] = range(0, count, step)
        if not self._full and stored.nbytes > budget:
            self.sampled = True
            begins = sorted(set(np.linspace(0, count - step, 4).astype(int).tolist()))
        for begin in begins:
            yield np.asarray(stored.read_rows(begin, min(begin + step, count)))

    def _shapes(self, members: Sequence[str]) -> dict[str, Any]:
        """How many datasets there are of a pattern, and the range of their shapes."""
        shapes = []
        for name in members[:: 1 + len(members) // _MOST_SHAPES]:
            with contextlib.suppress(InputError):
                shapes.append(self._file.require(name).shape)
        sizes = np.array([shape for shape in shapes if len(shape) == len(shapes[0])])
        low, high = sizes.min(0).tolist(), sizes.max(0).tolist()
        shape = [a if a == b else f"{a}..{b}" for a, b in zip(low, high, strict=True)]
        return {"count": len(members), "shape": shape}


def _about(stored: Dataset, seen: Statistics, shape: Sequence[int]) -> dict[str, Any]:
    units = stored.attributes.get("units")
    about: dict[str, Any] = {
        "shape": list(shape),
        "dtype": "text" if stored.dtype.kind in "SUO" else str(stored.dtype),
        "storage": stored.storage,
        "units": None if units is None else str(units),
    }
    if stored.numeric:
        about |= {"nan": seen.nan, "inf": seen.inf}
        about["min"] = float(seen.low.min()) if seen.known else None
        about["max"] = float(seen.high.max()) if seen.known else None
    return about


def _per_dof(seen: Statistics, dof: int, batch: Batch) -> dict[str, Any]:
    """The range and the peak of a dof, and when that is."""
    place = seen.peak_at[dof]
    if place is None:
        return {"min": None, "max": None, "peak": None, "at": None}
    trajectory, row = place
    times = known_times(replace(batch.block(trajectory), first=row, rows=1))
    when = None if times is None else float(times[0, 0])
    return {
        "min": float(seen.low[dof]),
        "max": float(seen.high[dof]),
        "peak": float(seen.peak[dof]),
        "at": {"trajectory": trajectory, "row": row, "time": when},
    }
