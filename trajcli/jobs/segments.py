"""The trajectories of several sets as those of one run: numbered, by their lengths, and named.

And arrays, in memory or in a file, seen another way: some rows of them, or several as one.
What lies in a file is read when it is needed, block by block.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.errors import raise_if_any
from trajcli.files.arrays import Dataset, Numbers, in_memory
from trajcli.files.reader import dof_faults, joint_faults
from trajcli.files.time import Time
from trajcli.files.trajectory_set import TrajectorySet
from trajcli.units import require_same_kind

_LISTED_SOURCES = 100
Values = Any
"""numpy.ndarray, or a Dataset that is read block by block."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Trajectories of equal length from one set, and which of their rows are used.

    trajectories: their numbers in the set. numbers: their numbers in the run. rows: the rows of
    each.
    """

    source: TrajectorySet
    time: Time
    trajectories: Numbers
    numbers: Numbers
    rows: Numbers

    @property
    def whole(self) -> bool:
        """Whether these are all trajectories of the set with all their rows."""
        if isinstance(self.trajectories, np.ndarray) or isinstance(self.rows, np.ndarray):
            return False
        batch, rows, _ = self.source.shape
        return self.trajectories == range(batch) and self.rows == range(rows)

    @property
    def selected_time(self) -> Time:
        """The time of these trajectories alone, of as many rows as they have."""
        return self.time if self.whole else self.time.select(self.trajectories, len(self.rows))

    def only(self, chosen: npt.NDArray[np.bool_]) -> Segment:
        """The same with the chosen [n] of these trajectories alone."""
        if chosen.all():
            return self
        trajectories = np.asarray(self.trajectories)[chosen]
        return replace(self, trajectories=trajectories, numbers=np.asarray(self.numbers)[chosen])

    def array(self, stored: Dataset) -> Dataset:
        """Their part [n, length, D] of an array of the set, read when it is needed."""
        return stored if self.whole else stored.select(self.trajectories, self.rows)


def segments_of(inputs: Iterable[tuple[TrajectorySet, Time]]) -> list[Segment]:
    """Every set, by the lengths of its trajectories."""
    segments: list[Segment] = []
    first = 0
    for one, time in inputs:
        batch, rows, _ = one.shape
        lengths = one.lengths
        if lengths is None:
            numbers = range(first, first + batch)
            segments.append(Segment(one, time, range(batch), numbers, range(rows)))
        for length in () if lengths is None else np.unique(lengths).tolist():
            chosen = np.flatnonzero(lengths == length)
            segments.append(Segment(one, time, chosen, first + chosen, range(length)))
        first += batch
    return segments


def require_alike(sets: Sequence[TrajectorySet]) -> None:
    """Raise InputError for sets of different dofs or joints, or of units that cannot be converted
    into each other."""
    require_same_kind([(one.as_stored.where, one.position_units) for one in sets])
    raise_if_any(dof_faults(sets))
    raise_if_any(joint_faults(sets))


@dataclass(frozen=True)
class EqualLength:
    """All trajectories of one length."""

    segments: Sequence[Segment]

    @cached_property
    def numbers(self) -> npt.NDArray[np.int64]:
        """Their numbers in the run [n]."""
        return np.concatenate([np.asarray(s.numbers, np.int64) for s in self.segments])

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(len(segment.trajectories) for segment in self.segments))

    def place(self, k: int) -> tuple[Segment, int]:
        """The segment of the k-th of them, and its number in the set."""
        at = bisect_right(self._ends, k)
        segment = self.segments[at]
        number = segment.trajectories[k - self._ends[at]]
        return segment, int(segment.source.numbers[number])


def by_length(segments: Iterable[Segment]) -> list[EqualLength]:
    """The trajectories of each length, read and written, the shortest first: so that what is in a
    part of the run does not order them."""
    lengths: dict[int, list[Segment]] = {}
    for segment in segments:
        lengths.setdefault(len(segment.rows), []).append(segment)
    return [EqualLength(lengths[rows]) for rows in sorted(lengths)]


def trajectory_names(
    segments: Sequence[Segment], sets: Sequence[TrajectorySet], paths: Iterable[str]
) -> dict[int, str]:
    """A name for every trajectory by its number in the run. sets, paths: all those of the run,
    whose segments may be a part.

    It is the group in the file; of several files, the title of the file comes before it.
    """
    titles, seen = _file_titles(paths), Counter[str]()
    bases = {one: _base(one, titles) for one in dict.fromkeys(one.whole for one in sets)}
    arrays = {(base, one.array_name) for one, base in bases.items()}
    counts = Counter(base for base, _ in arrays)
    for one, base in bases.items():
        if counts[base] > 1:  # several arrays of one group
            base = f"{base}/{one.array_name.rpartition('/')[2]}"
        seen[base] += 1  # a file may be named twice
        bases[one] = base if seen[base] == 1 else f"{base}_{seen[base]}"
    names: dict[int, str] = {}
    for segment in segments:
        one = segment.source
        base, single = bases[one.whole] + one.suffix, one.whole.shape[0] == 1
        for number, k in zip(segment.numbers, segment.trajectories, strict=True):
            names[int(number)] = base if single else f"{base}/trajectory_{one.numbers[k]}"
    return dict(sorted(names.items()))


def _base(one: TrajectorySet, titles: dict[str, str]) -> str:
    """The name of the set within its file, behind the title of that where there are several."""
    if len(titles) <= 1:
        return one.name
    path = os.fspath(one.file.path)
    title = titles.get(path, Path(path).stem)
    in_file = one.group or (one.member is not None and one.member.end is not None)
    return f"{title}/{one.name}" if in_file else title


def _file_titles(paths: Iterable[str]) -> dict[str, str]:
    """A title for each file of a run, from the list of its paths alone: the name without ending
    where no two are the same, else the path below the folder that all share."""
    listed = list(dict.fromkeys(paths))
    stems = {path: Path(path).stem for path in listed}
    if len(set(stems.values())) == len(listed):
        return stems
    common = os.path.commonpath([os.path.abspath(os.path.dirname(path)) for path in listed])
    below = {path: os.path.relpath(os.path.abspath(path), common) for path in listed}
    shortened = {path: os.path.splitext(text)[0] for path, text in below.items()}
    return shortened if len(set(shortened.values())) == len(listed) else below


def first_and_more(names: Iterable[str]) -> str:
    """The first of the names, and how many others there are."""
    first, *others = dict.fromkeys(names)
    return f"{first} and {len(others)} more" if others else first


def sources_text(attribute: str, names: Iterable[str]) -> str:
    """What an attribute of an output says of names: ``source`` a line for each, of many the first;
    another one the first and how many others there are."""
    if attribute != "source":
        return first_and_more(names)
    lines = list(dict.fromkeys(names))
    more = len(lines) - _LISTED_SOURCES
    return "\n".join(lines[:_LISTED_SOURCES] + [f"and {more} more"] * (more > 0))


def rows_by_number(values: Values, numbers: Any) -> Values:
    """Rows of [B, ...] by number; of a dataset [B, T, ...] they are read when they are needed."""
    if len(numbers) == values.shape[0] and (np.diff(numbers) == 1).all():
        return values
    if isinstance(values, Dataset) and values.ndim > 1:
        return values.select(numbers, range(values.shape[1]))
    return in_memory(values)[numbers]


def stacked(arrays: Sequence[Values]) -> Dataset:
    """Values [b, ...] one behind the other, equal in shape behind the first axis."""
    first, ends = arrays[0], list(accumulate(array.shape[0] for array in arrays))
    if isinstance(first, Dataset) and len(arrays) == 1:
        return first
    dtype = np.result_type(*{array.dtype for array in arrays})

    def read_rows(start: int, stop: int) -> Any:
        blocks = [np.empty((0, *first.shape[1:]), dtype)]
        k = bisect_right(ends, start)
        while start < stop:
            begin, end, part = ends[k] - arrays[k].shape[0], min(stop, ends[k]), arrays[k]
            rows = slice(start - begin, end - begin)
            stored = isinstance(part, Dataset)
            blocks.append(part.read_rows(rows.start, rows.stop) if stored else part[rows])
            start, k = end, k + 1
        return blocks[1] if len(blocks) == 2 else np.concatenate(blocks)

    where = first_and_more(getattr(array, "where", "") for array in arrays)
    kind = np.result_type(*{getattr(array, "precision", array.dtype) for array in arrays})
    return Dataset(where, (ends[-1], *first.shape[1:]), dtype, read_rows, converted_from=kind)
