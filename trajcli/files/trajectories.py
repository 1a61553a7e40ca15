"""Trajectories of files, numbered in the order of their SOURCEs, and blocks that are read at once.

"What are the trajectories of these files?" is answered by :func:`.reader.read_groups`; what they
hold, how long they are, when their rows were, what they are called, by :class:`Trajectories`.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.arrays import describe
from trajcli.errors import Fault, InputError, UsageError, raise_if_any
from trajcli.files.catalogue import Dataset
from trajcli.files.file_bytes import Progress
from trajcli.files.quantities import TIMES, role
from trajcli.files.source import Place, first_and_more
from trajcli.files.states import NO_STATE, States
from trajcli.files.time import Time
from trajcli.files.trajectory_group import TrajectoryGroup
from trajcli.memory import READ_BYTES

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
# Names and rows that are looked at for times.
_SEARCHED = 100


class Trajectories:
    """Trajectories of one or several groups. Immutable; values are read when they are asked for.

    groups: where they lie. numbers [n]: which of all trajectories in these groups they are.
    first_row: the row of the file that their rows begin with. start, goal: the states of all
    trajectories in the groups. notes: what was done to read them so.

    Trajectories of one length can be read: ``rows`` is how many rows they have.
    """

    def __init__(
        self,
        groups: Sequence[TrajectoryGroup],
        start: States = NO_STATE,
        goal: States = NO_STATE,
        notes: Iterable[str] = (),
    ) -> None:
        """Raises InputError for a file whose lengths cannot be those of its trajectories."""
        self.groups, self.start, self.goal, self.notes = tuple(groups), start, goal, tuple(notes)
        # the number of the first trajectory of each group, and that of all
        self.offsets: Integers = np.cumsum([0, *(group.shape[0] for group in groups)])
        lengths = [
            np.full(group.shape[0], group.shape[1]) if group.lengths is None else group.lengths
            for group in groups
        ]
        self._lengths: Integers = np.concatenate(lengths) if lengths else np.zeros(0, np.int64)
        self.numbers: Integers = np.arange(self.offsets[-1])
        self.first_row = 0
        self._rows: int | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, which: Any) -> Trajectories:
        """Returns some of these trajectories: by their places among these, a slice, or booleans."""
        taken = copy(self)
        # these were looked up for all trajectories
        for name in ("lengths", "runs", "group_numbers", "groups_in_use"):
            taken.__dict__.pop(name, None)
        taken.numbers = self.numbers[which]
        return taken

    def usable(self) -> tuple[Trajectories, dict[str, Fault]]:
        """Returns the trajectories that can be used, and the faults of the others by name."""
        if all(group.fault is None for group in self.groups):
            return self, {}
        fault_of = [self.groups[k].fault for k in self.group_numbers.tolist()]
        named = zip(self.numbers.tolist(), fault_of, strict=True)
        faults = {self.name(number): fault for number, fault in named if fault is not None}
        return self.take(np.array([fault is None for fault in fault_of], bool)), faults

    def rows_only(self, first: int, count: int) -> Trajectories:
        """Returns the same trajectories, of one length, with ``count`` rows from ``first`` on."""
        cut = copy(self)
        cut.first_row, cut._rows = first, count
        return cut

    @cached_property
    def arrays(self) -> list[str]:
        """The names of the arrays that all groups have."""
        return [name for name in self.first.arrays if all(name in g.arrays for g in self.groups)]

    def only(self, names: Iterable[str]) -> Trajectories:
        """Returns the trajectories with these arrays alone."""
        trajectories = copy(self)
        trajectories.__dict__["arrays"] = list(names)
        return trajectories

    @cached_property
    def groups_in_use(self) -> list[TrajectoryGroup]:
        """The groups that these trajectories lie in; of none, the first."""
        return list(dict.fromkeys(group for group, *_ in self.runs))

    @property
    def sources(self) -> list[Place]:
        """The arrays or files that they are read from, each once."""
        places = (place for group, *part in self.runs for place in group.sources(*part))
        return list(dict.fromkeys(places))

    @property
    def source(self) -> Place:
        """The first of their sources, and how many others there are."""
        return first_and_more(self.sources)

    @property
    def paths(self) -> list[str]:
        """The paths of all files that hold trajectories of the groups."""
        files = (file for group in self.groups for file in group.file.members or (group.file,))
        return list(dict.fromkeys(os.fspath(file.path) for file in files))

    @property
    def time_source(self) -> Place:
        """The first source of the times of their rows, and how many others there are."""
        return first_and_more(group.time.source for group in self.groups_in_use if group.time)

    @property
    def path(self) -> str:
        """The first file, for messages."""
        return str(self.first.file.path)

    @property
    def dofs(self) -> list[str]:
        """The names of the dofs; their numbers in the file where there are none."""
        return self.first.dof_labels

    @property
    def several(self) -> bool:
        """Whether they lie in several groups or files."""
        return len(self.groups) > 1 or bool(self.first.file.members)

    @cached_property
    def pattern(self) -> str:
        """The name of the groups, with * for the number in which they differ: data/demo_*."""
        names = {group.group for group in self.groups}
        patterns = names if len(names) == 1 else {numberless(name) for name in names}
        return patterns.pop() if len(patterns) == 1 else "*"

    def name(self, number: int) -> str:
        """Returns the group or episode of a trajectory that has one to itself, else its number."""
        if not self.several and self.first.shape[0] > 1:
            return str(number)
        k = int(np.searchsorted(self.offsets, number, "right")) - 1
        group, inside = self.groups[k], number - int(self.offsets[k])
        if group.file.members:
            return group.name_of(inside)
        if group.whole is not group and group.shape[0] > 1:  # segments of several recordings
            return f"{group.name}/trajectory_{group.numbers[inside]}"
        named = group.shape[0] == 1 and (self.several or group.member is not None)
        return group.name if named else str(number)

    @property
    def first(self) -> TrajectoryGroup:
        """The first group that can be used, for what all groups share."""
        return next((group for group in self.groups if group.fault is None), self.groups[0])

    @cached_property
    def lengths(self) -> Integers:
        """The rows of each trajectory [n], without padding."""
        return self._lengths[self.numbers]

    @property
    def rows(self) -> int:
        """The number of rows of trajectories of one length."""
        if self._rows is not None:
            return self._rows
        return int(self.lengths[0]) if len(self) else self.first.shape[1]

    @cached_property
    def group_numbers(self) -> Integers:
        """The number of the group that each trajectory lies in [n]."""
        return np.searchsorted(self.offsets, self.numbers, "right") - 1

    @cached_property
    def runs(self) -> list[tuple[TrajectoryGroup, int, int]]:
        """Groups, with trajectories begin to end that follow each other there."""
        if not len(self):
            return [(self.first, 0, 0)]
        groups = self.group_numbers
        # a run ends where a group ends or a number is skipped
        breaks = np.flatnonzero((np.diff(self.numbers) != 1) | (np.diff(groups) != 0)) + 1
        begins = np.concatenate([[0], breaks])
        counts = np.diff([*begins, len(self)])
        inside = self.numbers[begins] - self.offsets[groups[begins]]
        return [
            (self.groups[k], begin, begin + count)
            for k, begin, count in zip(
                groups[begins].tolist(), inside.tolist(), counts.tolist(), strict=True
            )
        ]

    def locate(self, k: int, name: str = "") -> tuple[TrajectoryGroup, str, int]:
        """Returns the group of the k-th trajectory, where its array lies, and its number there."""
        group = self.groups[self.group_numbers[k]]
        inside = int(self.numbers[k] - self.offsets[self.group_numbers[k]])
        return group, *group.place(inside, name)

    def place(self, k: int, name: str = "") -> str:
        """Returns where the k-th trajectory lies, for messages."""
        _, where, number = self.locate(k, name)
        return f"{where}, trajectory {number}"

    def by_length(self) -> list[Trajectories]:
        """Returns the trajectories of each length, the shortest first: a part of a run has them in
        the order of the whole run."""
        if (self.lengths == self.lengths[:1]).all():
            return [self]
        return [self.take(self.lengths == rows) for rows in np.unique(self.lengths)]

    def by_group(self) -> Iterator[tuple[TrajectoryGroup, Trajectories]]:
        """Yields each group with the trajectories that lie in it."""
        breaks = np.flatnonzero(np.diff(self.group_numbers)) + 1
        for begin, end in pairwise([0, *breaks.tolist(), len(self)]):
            part = self.take(slice(begin, end))
            yield part.runs[0][0], part

    def dataset(self, name: str = "") -> Dataset:
        """Returns an array of trajectories of one length, by default the one that is integrated,
        as one dataset [n, T, D]."""
        arrays = [group.array(name) for group in self.groups_in_use]
        first = arrays[0]
        if len(arrays) == 1 and first.shape[:2] == (len(self), self.rows):
            return first
        apart = any(group.file.members for group in self.groups_in_use)
        return Dataset(
            self.source if apart else first_and_more(array.where for array in arrays),
            (len(self), self.rows, first.shape[2]),
            np.result_type(*{array.dtype for array in arrays}),
            lambda start, stop: self.take(slice(start, stop)).read(name),
            converted_from=np.result_type(*{array.precision for array in arrays}),
        )

    def read(self, name: str) -> Array:
        """Returns an array [n, T, D] of trajectories of one length, in its stored type."""
        last = self.first_row + self.rows
        arrays = [
            np.asarray(group.array(name).read_part(begin, end, self.first_row, last))
            for group, begin, end in self.runs
        ]
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    @property
    def step(self) -> float | None:
        """The step in seconds, where all steps of all trajectories are equal."""
        clocks = (group.time for group in self.groups_in_use)
        steps = {None if clock is None else clock.uniform for clock in clocks}
        return steps.pop() if len(steps) == 1 else None

    def times(self) -> Floats | None:
        """Returns times [n, T] of trajectories of one length in seconds, as stored; None if nothing
        states them. Raises InputError for a file that contradicts itself."""
        first, last = self.first_row, self.first_row + self.rows
        clocks = [group.time for group, *_ in self.runs]
        known = [clock for clock in clocks if clock is not None]
        if len(known) < len(clocks):
            return None
        raise_if_any(fault for clock in known for fault in clock.shape_faults())
        step, acting = self.step, {clock.actions for clock in known}
        if step is not None and len(acting) == 1:  # a long trajectory is not laid out as a whole
            line = step * (np.arange(first, last, dtype=np.float64) + acting.pop())
            return np.broadcast_to(line, (len(self), self.rows))
        lines = []
        for clock, (_, begin, end) in zip(known, self.runs, strict=True):
            line = clock.rows(begin, begin + 1 if clock.shared else end, first, last)
            lines.append(np.broadcast_to(line, (end - begin, self.rows)))
        return lines[0] if len(lines) == 1 else np.concatenate(lines)

    def known_times(self) -> Floats | None:
        """Returns times [n, T]; None also if the file contradicts itself."""
        try:
            return self.times()
        except InputError:
            return None

    def start_stamps(
        self, relative: bool = False, of_rows: bool = False
    ) -> tuple[Array, str] | None:
        """Returns the first stamp [n] of each trajectory as its source has it, and their unit.

        of_rows: of actions with one stamp more than rows, that of the first row. None where not all
        have stamps of one unit, or where all are 0 and they may not be ``relative``.
        """
        parts = [group.first_stamps(begin, end, of_rows) for group, begin, end in self.runs]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts) or len({(x.dtype.kind, unit) for x, unit in known}) != 1:
            return None
        joined = np.concatenate([stamps for stamps, _ in known])
        return (joined, known[0][1]) if relative or joined.any() else None

    def blocks(
        self,
        on_progress: Progress = lambda done, total: None,
        size: int = READ_BYTES,
        rows: int = 0,
    ) -> Iterator[Trajectories]:
        """Yields the trajectories in their order, each once and whole, in blocks of one length.

        Small groups with equally many rows are read together, so that there are few blocks. size:
        the bytes of one array of a block. rows: how many rows are computed of each trajectory.
        """
        begin = held = 0
        for start, nbytes in self._pieces(size, rows):
            if begin < start and (held + nbytes > size or not self._stackable(begin, start)):
                yield self.take(slice(begin, start))
                on_progress(start, len(self))
                begin, held = start, 0
            held += nbytes
        if len(self):
            yield self.take(slice(begin, None))
        on_progress(len(self), len(self))

    def _pieces(self, size: int, rows: int) -> Iterator[tuple[int, int]]:
        """Yields the first trajectory of each piece, of one group and one length and no larger than
        a block, and the bytes of one of its arrays."""
        groups, lengths = self.group_numbers, self.lengths
        breaks = np.flatnonzero((np.diff(groups) != 0) | (np.diff(lengths) != 0)) + 1
        for begin, end in pairwise([0, *breaks.tolist(), len(self)]) if len(self) else ():
            group = self.groups[groups[begin]]
            # padding of arrays is read as well; results may have more rows than what is read
            read = int(lengths[begin]) if group.file.members else group.shape[1]
            size_of_one = max(1, max(read, rows) * row_bytes(group))
            step = max(1, size // size_of_one)
            for start in range(begin, end, step):
                yield start, size_of_one * (min(start + step, end) - start)

    def _stackable(self, a: int, b: int) -> bool:
        """Whether two trajectories have equally many rows, and arrays of the same types."""
        groups = (self.groups[self.group_numbers[k]] for k in (a, b))
        types = [[array.dtype for array in group.arrays.values()] for group in groups]
        return self.lengths[a] == self.lengths[b] and types[0] == types[1]

    def names(self, paths: Iterable[str]) -> list[str]:
        """Returns the name that each trajectory has in an output: its group in the file, of several
        behind the title of the file. paths: the files of the whole run."""
        titles, uses = _file_titles(paths), Counter[str]()
        bases = {
            (group, k): _base(group, k, titles)
            for group in dict.fromkeys(g.whole for g in self.groups)
            for k in range(max(len(group.file.members), 1))
        }
        arrays = {(base, group.array_name) for (group, _), base in bases.items()}
        counts = Counter(base for base, _ in arrays)
        for (group, k), base in bases.items():
            if counts[base] > 1:  # several arrays of one group
                base = f"{base}/{group.array_name.rpartition('/')[2]}"
            uses[base] += 1  # a file may be named twice
            bases[group, k] = base if uses[base] == 1 else f"{base}_{uses[base]}"
        names: list[str] = []
        for group, begin, end in self.runs:
            numbers, single = group.numbers[begin:end], group.whole.shape[0] == 1
            if group.file.members:
                names += [bases[group.whole, number] + group.suffix for number in numbers]
                continue
            base = bases[group.whole, 0] + group.suffix
            names += [base if single else f"{base}/trajectory_{number}" for number in numbers]
        return names


def timed(groups: Sequence[TrajectoryGroup], option: Time | None) -> list[TrajectoryGroup]:
    """Returns the groups at the times that an option names, else at those that their files state.

    The times of an option, [T] or [B, T], are those of all trajectories through all groups. The
    first row is at time 0 if there is a time for each row and no mode calls the arrays actions.
    Raises InputError for times of another number of trajectories, and if there are none.
    """
    count, first, timed_groups = sum(group.shape[0] for group in groups), 0, []
    if option is not None:
        option = option.fitted(count, max(group.shape[1] for group in groups))
        _require_times_of(option, count)
    for group in groups:
        batch, rows, _ = group.shape
        if group.fault is None:  # which is raised where the group is used
            if option is not None:
                time = option.select(range(first, first + batch), rows)
                # with a time for each row, rows are actions only if the file states a mode
                acting = group.of_actions and (bool(group.stated_mode[0]) or not time.fits)
                group = group.changed(time.fitted(batch, rows, acting, group.lengths))
            elif group.time is None:
                raise InputError(no_time(group))
            else:
                _require_times_of(group.time, batch)
            require_stamps(group, group.time)
        timed_groups.append(group)
        first += batch
    return timed_groups


def require_stamps(group: TrajectoryGroup, time: Time | None) -> None:
    """Raises UsageError where --units names a unit of time, but no dataset says the times."""
    if group.given.time is not None and (time is None or not time.unit):
        raise UsageError(
            "a unit of time, and no stamps or steps in a dataset",
            where=f"--units {group.given.time}",
            expected="units of positions alone",
            found="no times" if time is None else str(time.source),
        )


def no_time(group: TrajectoryGroup) -> Fault:
    """Returns the fault of trajectories without times, with a hint at how to state them."""
    layout = group.layout
    hint = (layout.dt_hint if layout else "") or "--dt SECONDS, --rate HZ or --times FILE:DATASET"
    if near := _near_times(group) if layout is None else []:
        hint = f"{' or '.join(near[:3])}, if these are times; else {hint}"
    return Fault(
        "no time step",
        where=group.input.where,
        expected="a step in seconds, a rate, or time stamps",
        found="none given, and none in the input" + (f" (layout {layout.name})" if layout else ""),
        hint=hint,
    )


def _near_times(trajectories: TrajectoryGroup) -> list[str]:
    """Returns options for datasets or columns beside the trajectories that increase: those
    with nearly a name of time stamps first, and no counters."""
    file, near, others = trajectories.file, list[str](), list[str]()
    (_, rows, dofs), single = trajectories.shape, trajectories.single
    columns = list(getattr(file, "columns", ()))[:_SEARCHED]
    beside = [f"{group}{name}" for group in trajectories.groups
              for name in file.children(group)[:_SEARCHED]]  # fmt: skip
    for path in (name.lstrip("/") for name in columns or beside if name != trajectories.path):
        with suppress(InputError):
            stored, name = file.get(path), path.rpartition("/")[2].lower()
            near_one = difflib.get_close_matches(name, TIMES, 1, 0.7)
            named = role(name) in ("time", "likely") or (near_one and not role(name))
            if stored is None or not stored.numeric or (role(name) and not named):
                continue
            size = max(stored.shape, default=0) if stored.ndim < 3 else 0
            turned = single and rows < dofs == size  # dofs × rows, as MATLAB has them
            lone = math.prod(stored.shape) == size and (turned or size == rows)
            first = stored.read() if stored.ndim == 1 or lone else stored.read_rows(0, 1)
            # flags called timeouts do not increase
            if (lone or named) and np.size(first) > 1 and (np.diff(np.ravel(first)) > 0).all():
                way = f"{'--axes DT ' * turned}--times {shlex.quote(f'{file.path}:{path}')}"
                (near if named else others).append(way)
    return near + others


def _require_times_of(time: Time, count: int) -> None:
    """Raises InputError for steps or stamps of another number of trajectories."""
    if time.shape[:-1] not in ((), (1,), (count,)):
        raise InputError(
            "steps and trajectories differ in number",
            where=time.where,
            expected=f"{count}, one per trajectory, or one for all",
            found=describe(time.shape),
        )


def row_bytes(group: TrajectoryGroup) -> int:
    """Returns the bytes of a row of the group's largest array."""
    return max(1, group.shape[2] * max(array.dtype.itemsize for array in group.arrays.values()))


def numberless(group: str) -> str:
    """Returns data/demo_3 as data/demo_*."""
    return re.sub(r"\d+", "*", group)


def _base(group: TrajectoryGroup, k: int, titles: dict[str, str]) -> str:
    """Returns the name of the group of the k-th trajectory within its file, of several behind the
    title of the file."""
    if len(titles) <= 1:
        return group.name_of(k)
    path = os.fspath(group.file_of(k).path)
    title = titles[path] if path in titles else Path(path).stem
    in_file = group.group or (group.member is not None and group.member.end is not None)
    return f"{title}/{group.name}" if in_file else title


def _file_titles(paths: Iterable[str]) -> dict[str, str]:
    """Returns a title for each file of a run: its name without the ending if all differ, else the
    path below the folder that all share."""
    listed = list(dict.fromkeys(paths))
    stems = {path: os.path.splitext(os.path.basename(path))[0] for path in listed}
    if len(set(stems.values())) == len(listed):
        return stems
    common = os.path.commonpath([os.path.abspath(os.path.dirname(path)) for path in listed])
    below = {path: os.path.relpath(os.path.abspath(path), common) for path in listed}
    shortened = {path: os.path.splitext(text)[0] for path, text in below.items()}
    return shortened if len(set(shortened.values())) == len(listed) else below
