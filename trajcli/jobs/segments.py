"""The trajectories of several sets as those of one run: numbered, by their lengths, and named."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.files.arrays import Dataset, Numbers
from trajcli.files.time import Time
from trajcli.files.trajectory_set import TrajectorySet
from trajcli.jobs.array_views import pick_dofs

Dofs = Sequence[int] | None
"""Which of a set are used, None for all."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Trajectories of equal length from one set, and which of their rows and dofs are used.

    trajectories: their numbers in the set. numbers: their numbers in the run. rows: the rows of
    each. stamps: time stamps [length] of these rows, where rows were selected by them. suffix:
    "/segment_2" where a recording was split.
    """

    source: TrajectorySet
    time: Time
    dofs: Dofs
    trajectories: Numbers
    numbers: Numbers
    rows: Numbers
    stamps: npt.NDArray[Any] | None = None
    suffix: str = ""

    @property
    def whole(self) -> bool:
        """Whether these are all trajectories of the set with all their rows."""
        if isinstance(self.trajectories, np.ndarray) or isinstance(self.rows, np.ndarray):
            return False
        batch, rows, _ = self.source.shape
        return self.trajectories == range(batch) and self.rows == range(rows)

    @property
    def own_time(self) -> Time:
        """The time of these trajectories alone, of as many rows as they have."""
        return self.time if self.whole else self.time.select(self.trajectories, len(self.rows))

    def array(self, stored: Dataset) -> Dataset:
        """Their part [n, length, D] of an array of the set, read when it is needed."""
        if not self.whole:
            stored = stored.select(self.trajectories, self.rows)
        return stored if self.dofs is None else pick_dofs(stored, self.dofs)


def segments_of(inputs: Iterable[tuple[TrajectorySet, Time, Dofs]]) -> list[Segment]:
    """Every set, by the lengths of its trajectories."""
    segments: list[Segment] = []
    first = 0
    for one, time, dofs in inputs:
        batch, rows, _ = one.shape
        lengths = one.lengths
        if lengths is None:
            numbers = range(first, first + batch)
            segments.append(Segment(one, time, dofs, range(batch), numbers, range(rows)))
        for length in () if lengths is None else np.unique(lengths).tolist():
            chosen = np.flatnonzero(lengths == length)
            segments.append(Segment(one, time, dofs, chosen, first + chosen, range(length)))
        first += batch
    return segments


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
        return segment, int(segment.trajectories[k - self._ends[at]])


def by_length(segments: Iterable[Segment]) -> list[EqualLength]:
    """The trajectories of each length, in the order in which lengths come."""
    lengths: dict[int, list[Segment]] = {}
    for segment in segments:
        lengths.setdefault(len(segment.rows), []).append(segment)
    return [EqualLength(equal) for equal in lengths.values()]


def trajectory_names(
    segments: Sequence[Segment], sets: Sequence[TrajectorySet], paths: Iterable[str]
) -> dict[int, str]:
    """A name for every trajectory by its number in the run. sets, paths: all those of the run,
    whose segments may be a part.

    It is the group in the file; of several files, the title of the file comes before it.
    """
    bases = _set_names(sets, paths)
    names: dict[int, str] = {}
    for segment in segments:
        base = bases[segment.source] + segment.suffix
        single = segment.source.shape[0] == 1
        for number, k in zip(segment.numbers, segment.trajectories, strict=True):
            names[int(number)] = base if single else f"{base}/trajectory_{k}"
    return dict(sorted(names.items()))


def _set_names(sets: Sequence[TrajectorySet], paths: Iterable[str]) -> dict[TrajectorySet, str]:
    titles = _file_titles(paths)
    bases = [_base(one, titles) for one in sets]
    counts, seen = Counter(bases), Counter[str]()
    names = {}
    for one, base in zip(sets, bases, strict=True):
        if counts[base] > 1 and one.array_name:  # several arrays of one group
            base = f"{base}/{one.array_name.rpartition('/')[2]}"
        seen[base] += 1  # a file may be named twice
        names[one] = base if seen[base] == 1 else f"{base}_{seen[base]}"
    return names


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
