"""Trajectories read from files, with everything that is known about them.

:func:`record` makes one :class:`Recording` from the arrays of one group of a file.
:meth:`Recording.take` picks some of its trajectories, and :func:`join` makes one of several.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.arrays import index_shape_faults, state_count_fault
from trajcli.errors import Fault, InputError, Note, Report, UsageError, raise_if_any
from trajcli.files._layouts import Layout
from trajcli.files.catalogue import (
    Catalogue,
    Dataset,
    Numbers,
    Values,
    decode_text,
    load_array,
    stack_arrays,
    take_trajectories,
)
from trajcli.files.clock import Clock
from trajcli.files.companions import Companions, StatedMode
from trajcli.files.conversion import (
    as_batch,
    convert_to_si,
    find_units,
    join_axes,
    read_unit,
    reorder_axes,
)
from trajcli.files.dofs import (
    ANGLES,
    JOINED,
    Dofs,
    RotationDofs,
    count_bodies,
    named_rotations,
    parse_dofs,
    parse_joints,
    parse_rotations,
    unnamed_rotation,
)
from trajcli.files.episodes import Member, nan_lengths
from trajcli.files.quantities import (
    POSITIONS,
    QUANTITIES,
    RESERVED_NAMES,
    ROTATIONS,
    derive_unit,
    rate_name,
)
from trajcli.files.reading import Reading
from trajcli.files.source import Place, first_and_more
from trajcli.kernels.program import Floats, Integers, NumpyArray
from trajcli.memory import EAGER_BYTES, READ_BYTES
from trajcli.units import (
    KNOWN,
    NO_UNIT,
    InputUnits,
    Units,
    derivative_units,
    parse_units,
    unit_text,
)

ACTIONS = ("actions", "action")
SEVERAL = "several"
"""Stands in place of a quantity where the dofs of an array are of several."""
# Angles in degrees are looked for in this many rows at both ends and in the middle of an array:
# enough to meet a large angle, few enough to read before every command.
_SAMPLE = 1 << 15
# Faults of one kind that are raised together: a run over thousands of files needs no more of them.
_MOST_FAULTS = 5


@dataclass(frozen=True)
class ArrayGroup:
    """Arrays of one shape in one group of a file, which are trajectories.

    path: the path of the first array in the file. datasets: the arrays by path or name. named:
    SOURCE names the array, or its name was ``guessed``. dofs: the slice of dofs that SOURCE names.
    """

    file: Catalogue
    path: str
    datasets: Mapping[str, Dataset]
    layout: Layout | None = None
    member: Member | None = None
    named: bool = False
    guessed: bool = False
    dofs: str | None = None
    companions: Companions = field(init=False)
    """The datasets and attributes next to the arrays."""

    def __post_init__(self) -> None:
        array = next(iter(self.datasets.values()))
        folder = self.path.rpartition("/")[0]
        companions = Companions(self.file, folder, array, self.layout, self.member)
        object.__setattr__(self, "companions", companions)

    @property
    def group(self) -> str:
        return self.path.rpartition("/")[0] if self.member is None else self.member.group

    @property
    def name(self) -> str:
        """The name of the trajectories in messages and, as a group, in outputs."""
        return self.group or self.file.path.stem if self.member is None else self.member.name

    @property
    def acting(self) -> bool:
        return any(array_name(path) == "actions" for path in self.datasets)

    @property
    def array_name(self) -> str:
        return self.path[len(self.group) :].strip("/")


@dataclass(frozen=True)
class States:
    """Start or goal states of trajectories.

    parts: states [S, D] by name, "position" to "jerk". names: where each part is from, for
    messages. index: which state each trajectory uses [B]; without it S is B, or 1 for all.
    """

    parts: Mapping[str, Values]
    names: Mapping[str, str]
    sources: Sequence[Place]
    index: Values | None = None

    @property
    def source(self) -> Place:
        return first_and_more(self.sources)

    def take(self, numbers: Numbers) -> States:
        if self.index is not None:
            return replace(self, index=take_trajectories(self.index, numbers))
        # a state that all trajectories share has no rows to choose from
        parts = {
            part: values if values.shape[0] == 1 else take_trajectories(values, numbers)
            for part, values in self.parts.items()
        }
        return replace(self, parts=parts)

    def load(self, numbers: Numbers) -> dict[str, NumpyArray]:
        """Reads the states [n, D] of these trajectories, or [1, D] if they share one."""
        chosen = self.take(numbers)
        parts = {part: load_array(values) for part, values in chosen.parts.items()}
        if chosen.index is None:
            return parts
        # NumPy would read -1 as the last state
        index, count = load_array(chosen.index), max(map(len, parts.values()))
        if not ((index >= 0) & (index < count)).all():
            raise InputError(
                "index out of range",
                where=f"index of the states {self.source}",
                expected=f"0 to {count - 1}",
            )
        return {part: rows[index] if len(rows) > 1 else rows for part, rows in parts.items()}

    def faults(self, role: str, count: int) -> list[Fault]:
        if self.index is not None:
            return index_shape_faults(self.names[f"{role}_index"], count, self.index)
        return [
            state_count_fault(role, self.names[f"{role}/{part}"], count, values.shape)
            for part, values in self.parts.items()
            if values.shape[0] not in (1, count)
        ]

    def with_index(self, role: str, index: Dataset) -> States:
        values = index if index.nbytes > EAGER_BYTES else index.read()
        return replace(self, index=values, names={**self.names, f"{role}_index": str(index.where)})


NO_STATE = States({}, {}, [Place(remark="none")])


@dataclass(frozen=True, eq=False, kw_only=True)
class Recording:
    """Trajectories [B, T, D] of one or several groups; values are read when they are asked for.

    Attributes:
        origin: the arrays that they are read from. Where trajectories of several groups are
            joined, this and everything that is not [B] describes the first group.
        named: SOURCE names the array, or its name was guessed.
        name: their name in messages and, as a group, in outputs.
        array_name: the path of the first array within its trajectory, "obs/joint_pos".
        commands: they are what a robot was told to do, not what it did.
        single: the file holds them as [T, D].
        arrays: by name, "actions" (what a mode integrates), "position" … "jerk", or the last part
            of a name that SOURCE gives; in SI. Outputs use the same names.
        stored: the same arrays in the units of the file.
        lengths: the number of rows of each trajectory [B] that are not padding.
        numbers: their numbers [B] among the trajectories of a command, or of the group.
        group_indices: their numbers [B] among the ``count`` trajectories of their group.
        first_row: the number of their first row within the trajectories.
        row_numbers: the numbers of their rows in the file [T], where some were left out.
        suffix: what their names end in: "/segment_1".
        windowed: they were cut to a window, and have the times that options or the file say.
        joint_names: the names of the dofs, of --joints or taken from the file; None without.
        turning: the dofs that actions turn: the axes of arrays like angular_velocity, too.
        units: the units of the arrays in the file, where these are known.
        own_clock: the times of the rows of one group; None where nothing says them.
        fault: why they cannot be used.
        notes: how the file was read, where a user may expect something else.
        parts: the recordings that were joined; none for one group.
        part_indices, begins: the part of each trajectory [B], and the first number of each part.
    """

    origin: ArrayGroup
    file: Catalogue
    group: str
    layout: Layout | None
    member: Member | None
    named: bool
    name: str
    array_name: str
    companions: Companions
    arrays: Mapping[str, Dataset]
    stored: Mapping[str, Dataset]
    lengths: Integers
    unequal: bool
    numbers: Integers
    group_indices: Integers
    count: int
    dofs: Dofs
    commands: bool = False
    single: bool = False
    first_row: int = 0
    row_numbers: Numbers | None = None
    suffix: str = ""
    windowed: bool = False
    joint_names: Sequence[str] | None = None
    own_names: Sequence[str] | None = None
    rotations: Sequence[RotationDofs] = ()
    turning: Sequence[RotationDofs] = ()
    rotation_option: str | None = None
    rotation_fault: Fault | None = None
    units: Mapping[str, Units] = field(default_factory=dict)
    option_units: InputUnits = field(default_factory=InputUnits)
    stated_mode: StatedMode = field(default_factory=StatedMode)
    own_clock: Clock | None = None
    start: States = NO_STATE
    goal: States = NO_STATE
    fault: Fault | None = None
    notes: Sequence[str] = ()
    parts: Sequence[Recording] = ()
    part_indices: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    begins: Integers = field(default_factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def shape(self) -> tuple[int, int, int]:
        batch, rows, dofs = next(iter(self.arrays.values())).shape
        return batch, rows, dofs

    @property
    def rows(self) -> int:
        return self.shape[1]

    @property
    def where(self) -> Place:
        return next(iter(self.arrays.values())).where

    @property
    def _main_name(self) -> str:
        return "actions" if "actions" in self.arrays else next(iter(self.arrays))

    @property
    def input(self) -> Dataset:
        """The array that is integrated: the actions, or else the one that SOURCE names."""
        return self.arrays[self._main_name]

    @property
    def as_stored(self) -> Dataset:
        """The actions, or else the first array, in the units of the file."""
        return self.stored[self._main_name]

    @property
    def holds_actions(self) -> bool:
        return set(self.arrays) == {"actions"}

    @property
    def holds_rotations(self) -> bool:
        """Whether the arrays are orientations or angular rates, as trajcli writes them."""
        return self.array_name.rpartition("/")[2] in ROTATIONS

    @property
    def is_output(self) -> bool:
        return self.file.is_output

    @property
    def members(self) -> Sequence[Recording]:
        return self.parts or (self,)

    @property
    def several(self) -> bool:
        return len(self.parts) > 1 or bool(self.file.members)

    def part(self, k: int) -> Recording:
        return self.parts[self.part_indices[k]] if self.parts else self

    def locate(self, k: int, name: str = "") -> tuple[Place, int]:
        """Finds the place of an array of the k-th trajectory, and its number there."""
        part = self.part(k)
        if part.file.members:
            return part.file.members[self.group_indices[k]].place(), 0
        return (part.arrays[name] if name else part.input).where, int(self.group_indices[k])

    def place_text(self, k: int) -> str:
        where, number = self.locate(k)
        return f"{where}, trajectory {number}"

    def title(self, k: int) -> str:
        """Names the k-th trajectory by its group or episode, if alone there, else by its number."""
        part = self.part(k)
        # trajectories of one array have numbers, as arrays of NumPy do; every other name is that
        # of a file, a group or an episode
        if not self.several and part.count > 1:
            return str(self.group_indices[k])
        if part.file.members:
            stem: str = part.file.members[self.group_indices[k]].path.stem
            return stem + part.suffix
        if part.suffix and len(part) > 1:  # segments of several recordings
            return f"{part.name}/trajectory_{self.group_indices[k]}"
        named = len(part) == 1 and (self.several or part.member is not None)
        return part.name if named else str(self.numbers[k])

    def sources(self) -> list[Place]:
        """Lists the arrays or files that the trajectories are read from, each once."""
        # a dict keeps the order, and 10 000 trajectories of one array are one source
        places = dict[Place, None]()
        alone = not self.parts and not self.file.members
        for k in range(len(self))[:1] if alone else range(len(self)):
            part = self.part(k)
            if part.file.members:
                places[part.file.members[self.group_indices[k]].place()] = None
            elif part.member is not None and not part.member.group:  # some rows of an array
                places[replace(part.file.place(), name=part.array_name)] = None
            else:
                places[part.where] = None
        return list(places) or [self.where]

    @property
    def source(self) -> Place:
        return first_and_more(self.sources())

    def parts_in_use(self) -> list[Recording]:
        """Lists the recordings of one group that hold these trajectories, else the first one."""
        if not self.parts:
            return [self]
        return [self.parts[k] for k in sorted({*self.part_indices.tolist()})] or [self.parts[0]]

    @property
    def paths(self) -> list[str]:
        files = (file for part in self.members for file in part.file.members or (part.file,))
        return list(dict.fromkeys(os.fspath(file.path) for file in files))

    @property
    def dof_labels(self) -> Sequence[str]:
        return self.joint_names or list(map(str, self.dofs.numbers))

    @property
    def pairing_labels(self) -> Sequence[str]:
        """The names by which dofs are paired with the dofs of another source."""
        # where --joints only gives the order of a source without names, the names of the file say
        # which dof is which
        own = self.own_names
        same = own is not None and sorted(own) == sorted(self.joint_names or ())
        return own if own is not None and same else self.dof_labels

    @property
    def free_dofs(self) -> list[int]:
        taken = {dof for rotation in self.rotations for dof in rotation.dofs}
        return [dof for dof in range(self.shape[2]) if dof not in taken]

    @property
    def input_units(self) -> Units | None:
        """The units of the actions or the first array in the file; None if unknown."""
        return self.units.get(self._main_name) or self.option_units.positions

    @property
    def position_units(self) -> Units | None:
        """The units of positions that the input units imply: deg for deg/s^2."""
        return derivative_units(self.input_units, 0) if self.input_units else None

    def unit(self, name: str) -> str | None:
        """Finds the unit that an array states, else the one that the positions imply."""
        # an output states units of positions once: rad implies rad/s of its velocities
        for array in (name, "position") if name in QUANTITIES else (name,):
            unit = read_unit(self.arrays[array]) if array in self.arrays else ""
            if unit:
                return unit if array == name else derive_unit(name, unit)
        return None

    @property
    def rate_name(self) -> str:
        """The rate that names the array, else all its dofs; ``SEVERAL`` where these differ."""
        path = f"{self.group}/{self.array_name}" if self.array_name else self.file.path.stem
        names = {rate_name(name) for name in self.joint_names or [""]}
        return rate_name(path) or (names.pop() if len(names) == 1 else SEVERAL)

    def pick(self, values: Any) -> Any:
        """Picks the dofs of this recording from values [..., D] that the file holds."""
        unchanged = list(self.dofs.numbers) == list(range(self.dofs.count))
        return values if unchanged else self.dofs.pick(values)

    def select_arrays(self, names: Iterable[str]) -> Recording:
        names = list(names)
        if names == list(self.arrays):
            return self
        path, stored = self.array_name, self.stored
        if names[0] != next(iter(self.arrays)):
            path = f"{path.rpartition('/')[0]}/{names[0]}".lstrip("/")
        return replace(
            self, array_name=path, arrays={name: self.arrays[name] for name in names},
            stored={name: stored[name] for name in names if name in stored},
            parts=[part.select_arrays(names) for part in self.parts],
        )  # fmt: skip

    def take(self, selection: Any, rows: range | None = None) -> Recording:
        """Selects trajectories by their indices among these, a slice, or booleans, and consecutive
        rows: without these, all up to the end of the longest."""
        indices = np.arange(len(self))[selection]
        lengths = self.lengths[indices]
        if rows is None:
            rows = range(int(lengths.max()) if len(lengths) else self.rows)
        if len(indices) == len(self) and len(rows) == self.rows and (np.diff(indices) == 1).all():
            return self
        padded = len(lengths) > 0 and bool((lengths < len(rows)).any())
        arrays, array_indices, array_rows = self.arrays, indices, rows
        parts = self.part_indices[indices] if self.parts else self.part_indices
        # trajectories of one group are read from the arrays of the group, whose places messages
        # name, and not from the arrays that were joined
        if len(parts) and (parts == parts[0]).all():
            part = self.parts[parts[0]]
            arrays = {name: part.arrays.get(name, part.input) for name in arrays}
            array_indices = self.numbers[indices] - self.begins[parts[0]]
            array_rows = range(self.first_row + rows.start, self.first_row + rows.stop)
        numbers = self.row_numbers
        return replace(
            self,
            arrays={n: array.select(array_indices, array_rows) for n, array in arrays.items()},
            lengths=np.minimum(lengths, len(rows)),
            numbers=self.numbers[indices],
            group_indices=self.group_indices[indices],
            part_indices=parts,
            first_row=self.first_row + rows.start,
            row_numbers=None if numbers is None else numbers[rows.start : rows.stop],
            own_clock=self.own_clock
            and self.own_clock.take(indices, rows, lengths if padded else None),
            start=self.start.take(indices),
            goal=self.goal.take(indices),
        )

    @cached_property
    def clock(self) -> Clock | None:
        if not self.parts:
            return self.own_clock
        clocks = [clock for clock, _ in self._group_clocks()]
        known = [clock for clock in clocks if clock is not None]
        return Clock.join(known) if len(known) == len(clocks) else None

    def _group_clocks(self) -> Iterator[tuple[Clock | None, range]]:
        """Yields the times of each run of trajectories of one group, and their indices."""
        if not self.parts:
            yield self.own_clock, range(len(self))
            return
        # a group is cut to the rows that it has: joined arrays are as long as the longest
        edges, last = np.flatnonzero(np.diff(self.part_indices)) + 1, self.first_row + self.rows
        for begin, end in pairwise([0, *edges.tolist(), len(self)]):
            if end:
                k = self.part_indices[begin]
            else:  # without trajectories there are the rows of the longest
                k = max(range(len(self.parts)), key=lambda k: self.parts[k].rows)
            part, indices = self.parts[k], self.numbers[begin:end] - self.begins[k]
            rows = range(self.first_row, min(last, part.rows))
            yield part.take(indices, rows).clock, range(begin, end)

    def cut(self, spans: Integers, fault: Fault | None = None) -> Iterator[Recording]:
        """Cuts each trajectory to rows start to stop of spans [B, 2], one recording for equal rows.

        One without rows is left out or, where a fault is passed, becomes a placeholder.
        """
        # neighbours with the same rows stay one recording, which is read in one piece
        edges = np.flatnonzero((spans[1:] != spans[:-1]).any(1)) + 1
        for run in np.split(np.arange(len(self)), edges):
            start, stop = spans[run[0]].tolist()
            if stop:
                yield self.segment(run, range(start, stop), "")
            elif fault is not None:
                fault = replace(fault, found=f"none in {self.place_text(run[0])}")
                yield make_placeholder(self.segment(run, range(1), ""), self.origin, fault)

    def segment(self, trajectories: Numbers, rows: Numbers, suffix: str) -> Recording:
        """Makes a recording of some rows of some trajectories, with their times."""
        numbers = None if self.row_numbers is None else np.asarray(self.row_numbers)[rows]
        # one of several trajectories of an array is named by its number; joined files have names
        single = len(trajectories) == 1 < len(self) and not self.file.members
        number = f"/trajectory_{self.group_indices[trajectories[0]]}" if single else ""
        return replace(
            self,
            arrays={name: array.select(trajectories, rows) for name, array in self.arrays.items()},
            lengths=np.full(len(trajectories), len(rows)),
            numbers=self.numbers[trajectories],
            group_indices=self.group_indices[trajectories],
            row_numbers=rows if numbers is None else numbers,
            suffix=self.suffix + suffix,
            name=self.name + suffix + number,
            own_clock=self.own_clock and self.own_clock.segment(trajectories, rows),
        )

    def usable(self) -> tuple[Recording, dict[str, Fault]]:
        """Separates the trajectories that can be used from the faults of the others by name."""
        part_faults = [part.fault for part in self.members]
        indices = self.part_indices.tolist() if self.parts else [0] * len(self)
        faults = [part_faults[k] for k in indices]
        bad = {self.title(k): fault for k, fault in enumerate(faults) if fault is not None}
        return (self.take(np.array([x is None for x in faults], bool)) if bad else self), bad

    def split_by_length(self) -> list[Recording]:
        # a shard takes the lengths in the order of the whole run, so that outputs do not depend on
        # how a run is divided
        parts = [self.take(self.lengths == rows) for rows in sorted({*self.lengths.tolist()})]
        return parts or [self]

    def split_by_group(self) -> Iterator[tuple[Recording, Integers]]:
        """Yields the trajectories of each group as a recording, with their indices among these."""
        if not self.parts:
            yield self, np.arange(len(self))
            return
        for k in sorted({*self.part_indices.tolist()}):
            indices = np.flatnonzero(self.part_indices == k)
            part = self.parts[k].take(self.numbers[indices] - self.begins[k])
            start, goal = self.start.take(indices), self.goal.take(indices)
            yield replace(part, start=start, goal=goal), indices

    @property
    def step(self) -> float | None:
        clocks = [part.own_clock for part in self.parts_in_use()]
        steps = {None if clock is None else clock.step for clock in clocks}
        return steps.pop() if len(steps) == 1 else None

    def times(self) -> Floats | None:
        """Reads the times [B, T] in seconds, as stored; None if nothing states them."""
        if any(part.own_clock is None for part in self.parts_in_use()):
            return None
        return np.broadcast_to(self.lines(Clock.stored_times), self.shape[:2])

    def lines(self, times: Callable[[Clock], Floats]) -> Floats:
        """Reads the times [B or 1, n] that a function of the clock of each group gives."""
        # each group is asked, since the joined clock would add up steps where the clock of a group
        # multiplies one: k·dt is not the sum of k steps to the last digit
        lines = [
            (times(clock), indices) for clock, indices in self._group_clocks() if clock is not None
        ]
        if len(lines) == 1:
            return lines[0][0]
        values = np.zeros((len(self), max(line.shape[1] for line, _ in lines)))
        for line, indices in lines:
            values[indices.start : indices.stop, : line.shape[1]] = line
        return values

    def known_times(self) -> Floats | None:
        with suppress(InputError):
            return self.times()
        return None

    def start_stamps(
        self, relative: bool = False, skip_start: bool = False
    ) -> tuple[NumpyArray, str] | None:
        """Reads the first stamp [B] of each trajectory as its source has it, and their unit.

        None where not all have stamps of one unit, or where all are 0 and they may not be
        ``relative``. skip_start: as for :meth:`Clock.first_stamps`.
        """
        # all or none: stamps of some trajectories would mix two clocks in one table
        known, units = list[NumpyArray](), set[str]()
        for clock, indices in self._group_clocks():
            first = None if clock is None else clock.first_stamps(range(len(indices)), skip_start)
            if clock is None or first is None:
                return None
            known.append(first)
            units.add(clock.unit or "s")
        # float stamps next to integers would lose digits in one array
        if len(units) != 1 or len({first.dtype.kind for first in known}) != 1:
            return None
        joined = np.concatenate(known)
        return (joined, units.pop()) if relative or joined.any() else None

    def blocks(self, report: Report | None = None, size: int = READ_BYTES) -> Iterator[Recording]:
        """Yields the trajectories in blocks of one length; see :meth:`spans`."""
        for span in self.spans(size):
            yield self.take(span)
            if report is not None:
                report.on_progress(span.stop, len(self))

    def spans(self, size: int = READ_BYTES, rows: int = 0) -> Iterator[slice]:
        """Yields which trajectories form a block: of one length, each once and in their order.

        Small groups with equally many rows are read together, so that there are few blocks. size:
        the bytes of one array of a block. rows: how many rows are computed of each trajectory.
        """
        parts = self.part_indices if self.parts else np.zeros(len(self), np.int64)
        breaks = np.flatnonzero((np.diff(parts) != 0) | (np.diff(self.lengths) != 0)) + 1
        begin = block_bytes = 0
        block_kind: Any = None
        # runs of one group and one length; a run that is larger than a block is divided
        for first, end in pairwise([0, *breaks.tolist(), len(self)]) if len(self) else ():
            part, length = self.part(first), int(self.lengths[first])
            # blocks are stacked, which needs equal rows, types and kinds of steps
            kind = (
                length,
                [array.dtype for array in part.arrays.values()],
                part.clock and (part.clock.acting, part.clock.contradiction is None),
            )
            # padding of arrays is read as well; results may have more rows than what is read
            read = length if part.file.members else part.rows
            trajectory_bytes = max(1, max(read, rows) * part.row_bytes)
            step = max(1, size // trajectory_bytes)
            for start in range(first, end, step):
                nbytes = trajectory_bytes * (min(start + step, end) - start)
                if begin < start and (block_bytes + nbytes > size or kind != block_kind):
                    yield slice(begin, start)
                    begin, block_bytes = start, 0
                if begin == start:
                    block_kind = kind
                block_bytes += nbytes
        if len(self):
            yield slice(begin, len(self))

    @property
    def row_bytes(self) -> int:
        return max(1, self.shape[2] * max(array.dtype.itemsize for array in self.arrays.values()))

    @property
    def pattern(self) -> str:
        """The name of the groups, with * for the number in which they differ: data/demo_*."""
        names = {part.group for part in self.members}
        patterns = names if len(names) == 1 else {mask_numbers(name) for name in names}
        return patterns.pop() if len(patterns) == 1 else "*"

    def output_names(self, paths: Iterable[str]) -> list[str]:
        """Names each trajectory in an output by its group and, among several paths, by its file."""
        # first a name for each trajectory that is a group, an episode or a file of its own (bases),
        # then, where several trajectories share one, their numbers in it
        listed = list(dict.fromkeys(paths))
        titles = {path: os.path.splitext(os.path.basename(path))[0] for path in listed}
        # the shortest titles of files that differ: run_0, else left/run_0, else left/run_0.npy,
        # which are paths below the folder that all files share
        if len(set(titles.values())) < len(listed):
            common = os.path.commonpath([os.path.abspath(os.path.dirname(path)) for path in listed])
            below = {path: os.path.relpath(os.path.abspath(path), common) for path in listed}
            titles = {path: os.path.splitext(text)[0] for path, text in below.items()}
            titles = titles if len(set(titles.values())) == len(listed) else below
        uses, firsts = Counter[str](), dict[int, Recording]()
        for part in self.members:
            firsts.setdefault(id(part.origin), part)
        bases: dict[tuple[int, int], str] = {}
        for origin, part in firsts.items():
            in_file = part.group or (part.member is not None and part.member.end is not None)
            for k in range(max(len(part.file.members), 1)):
                file = part.file.members[k] if part.file.members else part.file
                name = file.path.stem if part.file.members else part.origin.name
                if len(titles) > 1:
                    path = os.fspath(file.path)
                    title = titles[path] if path in titles else Path(path).stem
                    name = f"{title}/{name}" if in_file else title
                bases[origin, k] = name
        arrays = {(base, firsts[origin].array_name) for (origin, _), base in bases.items()}
        counts = Counter(base for base, _ in arrays)
        for (origin, k), base in bases.items():
            if counts[base] > 1:  # several arrays of one group
                base = f"{base}/{firsts[origin].array_name.rpartition('/')[2]}"
            uses[base] += 1  # a file may be named twice
            bases[origin, k] = base if uses[base] == 1 else f"{base}_{uses[base]}"
        names: list[str] = []
        for k, number in enumerate(self.group_indices.tolist()):
            part = self.part(k)
            own_file = bool(part.file.members)
            base = bases[id(part.origin), number if own_file else 0] + part.suffix
            alone = own_file or part.count == 1
            names.append(base if alone else f"{base}/trajectory_{number}")
        return names

    def require_rotations(self) -> Sequence[RotationDofs]:
        """Lists the rotations; raises InputError where it is not known which dofs are rotations."""
        if self.rotation_fault is not None:
            raise InputError(self.rotation_fault)
        if not (self.rotations or self.rotation_option is not None) and self._unnamed_rotation:
            raise InputError(self._unnamed_rotation)
        return self.rotations

    @cached_property
    def _unnamed_rotation(self) -> Fault | None:
        return unnamed_rotation(self.input)

    def refuse_rotations(self, command: str) -> None:
        """Raises InputError for rotations, whose dofs mean nothing if each is taken alone."""
        for rotation in self.require_rotations():
            raise InputError(
                f"{command} takes dofs one by one, and these are a rotation",
                where=self.input.where,
                expected="other dofs",
                found=str(rotation),
                hint="--dofs picks others, --rotation none takes these as they are; "
                "trajcli.rotations computes with rotations",
            )

    def unit_remarks(self) -> Iterator[str]:
        """Yields notes on dofs whose unit the file leaves open or --units contradicts."""
        # at most one kind of remark is made: an option first, then an unknown unit, dofs without a
        # unit, and large angles, each of which only matters if those before it did not occur
        stated, positions = read_unit(self.as_stored), self.option_units.positions
        where, units = self.as_stored.where, parse_units(stated)
        turned = {dof for rotation in self.turning for dof in rotation.dofs}
        for name, array in self.stored.items() if positions else ():
            unit, text = read_unit(array), unit_text(self.units[name])
            known = parse_units(unit)
            if known is not None:
                known = without_rotations(self.turning, known, self.shape[2])
            if unit and (known is None or unit_text(known) != text):
                yield Note(f"{array.where} is in {unit}; it is read in {text}, as --units says")
        if positions or self.is_output:
            return
        if stated and units is None:
            yield f"{where} is in {stated!r}, which is not known ({KNOWN}): taken as it is"
            return
        pairs = enumerate(zip(self.dof_labels, units or (), strict=False))
        bare = ", ".join(
            f"{name} ({unit})" if unit.name else name
            for dof, (name, unit) in pairs
            if not unit.known and dof not in turned
        )
        if bare:
            yield Note(f"{where} states no known unit for {bare}: taken as rad or m")
            return
        # angles beyond a turn are likely degrees; bags are in rad and m by convention (REP 103)
        name, (_, rows, _) = self.array_name.rpartition("/")[2], self.shape
        family = self.file.family
        angles = family in ("csv", "parquet") or (name in POSITIONS and family != "ros")
        if stated or not angles or self.rate_name or 0 in self.shape:
            return
        joints = [k for k, dof in enumerate(self.dof_labels) if not re.search("[xyzw]$", dof)]
        starts = {0, max(rows // 2 - _SAMPLE // 2, 0), max(rows - _SAMPLE, 0)}
        parts = [self.as_stored.read_part(0, 1, k, min(k + _SAMPLE, rows)) for k in starts]
        sizes = np.abs(np.concatenate(parts, 1)[..., joints], dtype=np.float64)
        largest = float(np.fmax.reduce(sizes, None, initial=0.0))
        if largest > 2 * np.pi * 1.001:
            yield (
                f"{where} states no unit and has values up to {largest:.4g}: taken as rad or m; "
                "--units deg reads degrees, --units rad or m says what they are"
            )


def record(
    origin: ArrayGroup, reading: Reading, *, given: InputUnits | None = None, option: bool = False
) -> Recording:
    """Makes a recording of a group of arrays, with everything that is known about them.

    given: the units on the command line; values are converted to SI. None keeps them as they are
    stored. option: whether an option says the times of the rows.
    """
    layout, member, companions, path = (
        origin.layout, origin.member, origin.companions, origin.array_name,
    )  # fmt: skip
    # The order of these steps matters: axes, then dofs, which options count in the file's order,
    # then their names, then rotations, which names tell, and at last units, which depend on
    # rotations since the numbers of a quaternion have none.
    bodies = count_bodies(origin.file) if path.rpartition("/")[2] in ROTATIONS else 1
    tables = {n: join_axes(reorder_axes(x, "T"), bodies) for n, x in origin.datasets.items()}
    single = next(iter(tables.values())).ndim == 2
    stored = {array_name(name): as_batch(array) for name, array in tables.items()}
    batch, rows, _ = next(iter(stored.values())).shape
    stored, dofs, own_names = _select_dofs(origin, reading.dofs, stored)
    count = len(dofs.numbers)
    joints = parse_joints(reading.joints, count) if reading.joints is not None else own_names
    if reading.quantity is not None:
        if len(stored) > 1:
            raise UsageError(
                "several arrays",
                where=f"--as {reading.quantity}",
                expected="one array: FILE:DATASET",
                found=", ".join(stored),
            )
        stored = {reading.quantity: next(iter(stored.values()))}
    rotations, turning, rotation_fault = _find_rotations(origin, reading.rotation, stored, joints)
    arrays, units = dict(stored), dict[str, Units]()
    if given is not None:
        arrays, units = _convert_units(stored, turning, given.positions, count)
    # lengths and masks that the file states come first; without them, rows of NaN at the end of
    # plain arrays are padding, as many tools write it
    lengths, notes = companions.lengths(batch, rows, single)
    if layout is None and not single and lengths is None:
        first = next(iter(stored.values()))
        with suppress(InputError):  # damage is reported where all values are read
            lengths = nan_lengths(first)
        if lengths is not None:
            ended = f"{(lengths < rows).sum()} of {len(lengths)} trajectories end"
            notes.append(Note(f"{first.where}: {ended} in rows of NaN, which are padding"))
    padded = lengths if lengths is not None and (lengths < rows).any() else None
    # an option replaces whatever the file states, even statements that contradict each other
    clock, fault = None, None if member is None else member.fault
    if fault is not None:
        clock = Clock.unknown(fault, batch, rows)
    elif not option:
        unit = None if given is None else given.time
        clock = companions.clock(batch, rows, set(arrays) == {"actions"}, padded, unit)
        # an output counts its times from 0, and keeps the first stamp of its source next to them
        name = f"{companions.groups[0]}start_stamp"
        start = origin.file.get(name) if origin.file.is_output else None
        if start is not None and clock is not None:
            clock = clock.shift(np.ravel(start.read()), read_unit(start) or "s")
    return Recording(
        origin=origin, file=origin.file, group=origin.group, layout=layout, member=member,
        named=origin.named or origin.guessed, name=origin.name, array_name=path,
        companions=companions, arrays=arrays, stored=stored,
        lengths=np.full(batch, rows) if padded is None else padded, unequal=padded is not None,
        numbers=np.arange(batch), group_indices=np.arange(batch), count=batch, dofs=dofs,
        commands=layout is not None and path.split("/")[0] in layout.family.actions,
        single=single, joint_names=joints, own_names=own_names, rotations=rotations,
        turning=turning, rotation_option=reading.rotation, rotation_fault=rotation_fault,
        units=units, option_units=given or InputUnits(), stated_mode=companions.mode(),
        own_clock=clock, fault=fault, notes=notes,
    )  # fmt: skip


def _select_dofs(
    origin: ArrayGroup, option: str | None, stored: dict[str, Dataset]
) -> tuple[dict[str, Dataset], Dofs, Sequence[str] | None]:
    """Selects the dofs that SOURCE and --dofs name from arrays [B, T, D], with their names."""
    companions, path = origin.companions, origin.array_name
    first = next(iter(stored.values()))
    where, count = first.where, first.shape[2]
    names: Sequence[str] | None = None
    if path.rpartition("/")[2] in ROTATIONS:
        # the components of an orientation or angular rate are called by their axes; where a row
        # holds several bodies, the number of the body comes first
        quaternion = [f"q{axis}" for axis in decode_text(companions.order_of_quaternions or "")]
        axes = quaternion if path.endswith(ROTATIONS[0]) else list("xyz")
        bodies = count // (len(axes) or 1)
        names = [f"{k}/{axis}" for k in range(bodies) for axis in axes] if bodies > 1 else axes
    names = names or companions.dof_names
    if names is None and origin.layout is not None:
        names = origin.layout.family.dof_names(origin.layout, path)
    dofs = Dofs(count, range(count))
    own = names if names is not None and len(names) == count else None
    # the slice of SOURCE comes first: --dofs picks among the dofs that it leaves
    for text, place in ((origin.dofs, f"{where}[{origin.dofs}]"), (option, "--dofs")):
        if text is not None:
            chosen = parse_dofs(text, len(dofs.numbers), place, own or ())
            dofs = Dofs(count, [dofs.numbers[k] for k in chosen.numbers])
            own = own and chosen.pick(own)
    if len(dofs.numbers) < count or option is not None:
        stored = {name: dofs.pick(array) for name, array in stored.items()}
        if own is None and names is not None and len(names) == len(dofs.numbers):
            own = names  # the file names the picked dofs alone
    return stored, dofs, own


def _find_rotations(
    origin: ArrayGroup, option: str | None, stored: Mapping[str, Dataset],
    names: Sequence[str] | None,
) -> tuple[Sequence[RotationDofs], Sequence[RotationDofs], Fault | None]:  # fmt: skip
    """Finds the rotations among dofs, those that actions turn, and why they are not known."""
    main = stored["actions" if "actions" in stored else next(iter(stored))]
    count, last = main.shape[2], origin.array_name.rpartition("/")[2]
    if option is not None:
        rotations = parse_rotations(option, count, names or ())
        return rotations, rotations, None
    family = origin.file.family if origin.layout is None else origin.layout.name
    order = origin.companions.order_of_quaternions
    # a file without an order of quaternions can be inspected: the fault waits until they are used
    array = "" if JOINED in main.attributes else origin.array_name
    try:
        rotations = named_rotations(array, names or (), count, family, order, main.where, main)
    except InputError as error:
        return (), (), error.faults[0]
    if rotations or last not in ROTATIONS[1:]:
        return rotations, rotations, None
    # angular rates are no rotations, but integrating them turns: three dofs about one vector
    return rotations, parse_rotations("rotvec", count, ()), None


def _convert_units(
    stored: Mapping[str, Dataset], turning: Sequence[RotationDofs], positions: Units,
    count: int,
) -> tuple[dict[str, Dataset], dict[str, Units]]:  # fmt: skip
    """Converts arrays of ``count`` dofs to SI, and finds the units that they are stored in."""
    arrays, units = dict(stored), find_units(stored, positions)
    for name, known in units.items():
        if positions or any(unit.per_si != 1.0 for unit in known):
            own_unit = read_unit(arrays[name])
            units[name] = known = without_rotations(turning, known, count, own_unit)
        arrays[name] = convert_to_si(arrays[name], known)
        # --units names units of positions, and which derivative actions are is not known here
        if positions and name not in QUANTITIES:
            rest = {k: v for k, v in arrays[name].attributes.items() if k != "units"}
            arrays[name] = replace(arrays[name], attributes=rest)
    return arrays, units


def make_placeholder(like: Recording, origin: ArrayGroup, fault: Fault) -> Recording:
    """Makes a recording shaped like another, whose values raise a fault when they are read."""

    def read(*_: int) -> Any:
        raise InputError(fault)

    none = {name: replace(array, reader=read) for name, array in like.stored.items()}
    if origin.member is None:
        origin = replace(origin, member=Member(origin.name, origin.group))
    return replace(
        like, origin=origin, file=origin.file, group=origin.group, layout=origin.layout,
        member=origin.member, name=origin.name, arrays=none, stored=none, fault=fault,
        own_clock=Clock.unknown(fault, len(like), like.rows),
    )  # fmt: skip


def join(recordings: Sequence[Recording]) -> Recording:
    """Joins the trajectories of recordings into one recording; shorter ones are padded.

    It has the arrays that all recordings have, else the arrays that are integrated. What a
    recording has only once, such as its dofs, comes from the first one that can be used.
    """
    first = next((part for part in recordings if part.fault is None), recordings[0])
    names = [name for name in first.arrays if all(name in part.arrays for part in recordings)]
    names = names or [first._main_name]  # arrays without a common name: those that are integrated
    if len(recordings) == 1:
        return replace(first.select_arrays(names), numbers=np.arange(len(first)))
    batches = [len(part) for part in recordings]
    # nothing is read here: a joined array reads each part when its trajectories are taken
    arrays = {
        name: replace(
            stack_arrays([part.arrays.get(name, part.input) for part in recordings], batches),
            attributes=first.arrays[name].attributes,
        )
        for name in names
    }
    return replace(
        first,
        arrays=arrays,
        lengths=np.concatenate([part.lengths for part in recordings]),
        numbers=np.arange(sum(batches)),
        group_indices=np.concatenate([part.group_indices for part in recordings]),
        row_numbers=None,
        own_clock=None,
        start=_join_states("start", [part.start for part in recordings], batches),
        goal=_join_states("goal", [part.goal for part in recordings], batches),
        fault=None,
        parts=tuple(recordings),
        part_indices=np.repeat(np.arange(len(recordings)), batches),
        begins=np.cumsum([0, *batches[:-1]]),
    )


def _join_states(role: str, states: Sequence[States], batches: Sequence[int]) -> States:
    """Joins the states of groups; raises InputError if some lack what others have."""
    first = states[0]
    if all(state is first for state in states):
        return first
    indexed = next((state for state in states if state.index is not None), None)
    if indexed is not None:
        what = "an index of states in some of several inputs"
        raise InputError(what, where=indexed.source, hint="run them one at a time")
    # a part that some inputs lack would silently be zero there
    full = max(states, key=lambda state: len(state.parts))
    for state in states:
        missing = [part for part in full.parts if part not in state.parts]
        if missing:
            what = f"{role} {', '.join(missing)} in only some of the inputs"
            raise InputError(what, where=state.source, expected=f"as in {full.source}")
    pairs = list(zip(states, batches, strict=True))
    faults = [fault for state, batch in pairs for fault in state.faults(role, batch)]
    raise_if_any(faults[:_MOST_FAULTS])
    parts = dict[str, Values]()
    for part in first.parts:
        # a state that a group shares becomes one for each of its trajectories
        tables = [
            state.parts[part] if state.parts[part].shape[0] == batch
            else np.broadcast_to(load_array(state.parts[part]), (batch, state.parts[part].shape[1]))
            for state, batch in pairs
        ]  # fmt: skip
        parts[part] = load_small(stack_arrays(tables, batches))
    names = {f"{role}/{part}": f"{role} {part} of the inputs" for part in parts}
    sources = list(dict.fromkeys(source for state in states for source in state.sources))
    return States(parts, names, sources)


def load_small(stored: Values) -> Values:
    """Reads states into memory, unless there is one for each trajectory and they are large."""
    large = len(stored.shape) > 1 and stored.nbytes > EAGER_BYTES
    return stored if large else np.atleast_2d(load_array(stored))


def without_rotations(
    rotations: Sequence[RotationDofs], units: Units, count: int, stated: str = ""
) -> Units:
    """Removes the units of dofs that are no angles of a rotation, such as those of quaternions.

    units: of ``count`` dofs, or one for all. stated: the units of the file, which angles keep
    where ``units`` do not measure angles.
    """
    forms = {dof: rotation.form for rotation in rotations for dof in rotation.dofs}
    every = units if units[1:] else [*units] * count
    own = (parse_units(stated) or [NO_UNIT]) if forms else []
    remaining = [*every]
    # rotation vectors and roll, pitch and yaw are angles: they keep the first unit that is one
    for dof, form in forms.items():
        fitting = (x for x in (every[dof], own[dof % len(own)]) if x.si == "rad")
        remaining[dof] = next(fitting, NO_UNIT) if form in ANGLES else NO_UNIT
    return units if remaining == [*every] else remaining


def array_name(path: str) -> str:
    """Names the array at a path, for recordings and outputs."""
    last = decode_text(path).strip("/").rpartition("/")[2]
    if not {"*", ","}.isdisjoint(last):  # columns of a table
        return "data"
    return "actions" if last in ("", ".", "..", *ACTIONS) or last in RESERVED_NAMES else last


def mask_numbers(group: str) -> str:
    """Turns data/demo_3 into data/demo_*."""
    return re.sub(r"\d+", "*", group)
