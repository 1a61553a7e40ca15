"""The trajectories of a source, numbered, and blocks of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from trajcli.errors import InputError, raise_if_any
from trajcli.files.blocks import Block, Trajectories, row_bytes
from trajcli.files.guesses import require_time
from trajcli.files.limits import Bounds, Limits
from trajcli.files.opening import Files
from trajcli.files.reader import dof_faults, read_sources
from trajcli.files.reading import Repair
from trajcli.files.repair import repaired
from trajcli.files.schema import QUANTITIES, unit_of
from trajcli.files.source import expand_files, parse_source
from trajcli.files.stored_time import time_from_options
from trajcli.files.time import Time
from trajcli.files.trajectory_set import TrajectorySet
from trajcli.modes import MODES
from trajcli.units import parse_units

_SAMPLE_PLACES = 12


@dataclass(frozen=True)
class Batch(Trajectories):
    """Trajectories that have the same arrays, numbered through the groups of a file.

    pattern: the name of the groups, with * for the number in which they differ.
    """

    pattern: str

    @property
    def first(self) -> TrajectorySet:
        """The first set, for what all sets share."""
        return self.sets[0]

    @property
    def path(self) -> str:
        """The file, for messages."""
        return str(self.first.file.path)

    @cached_property
    def one_sided(self) -> int:
        """The rows at each end of which mode savgol had no full window around them: their
        derivatives are several times as far off as others, and are no peaks."""
        attributes = self.first.file.attributes()
        mode, window = attributes.get("mode"), attributes.get("window")
        if not isinstance(mode, str) or mode != "savgol":
            return 0
        if not (isinstance(window, str) and re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,9}s", window)):
            # other values are another program's
            return max(int(window), 0) // 2 if isinstance(window, (int, np.integer)) else 0
        half = 0.5 * float(window[:-1]) * (1.0 - 1e-5)  # as stamps are rounded
        ends = 0
        for number in self.offsets[:-1][np.diff(self.offsets) > 0].tolist():  # one of each set
            times = self.block(number).known_times()
            if times is not None and times.size:
                since, until = times[0] - times[0, 0], times[0, -1] - times[0]
                ends = max(ends, int((since < half).sum()), int((until < half).sum()))
        return ends

    @cached_property
    def dofs(self) -> list[str]:
        """Names of the dofs; their numbers in the file where there are none."""
        return self.first.dof_labels

    def name(self, number: int) -> str:
        """Returns a trajectory's group or episode where it has one to itself, else its number."""
        if len(self.sets) == 1 and self.first.shape[0] > 1:
            return str(number)
        one, begin, _ = self.block(number).parts[0]
        if one.whole is not one and one.shape[0] > 1:  # segments of several recordings
            return f"{one.name}/trajectory_{one.numbers[begin]}"
        several = len(self.sets) > 1 or one.member is not None
        return one.name if several and one.shape[0] == 1 else str(number)

    def label(self, name: str = "") -> str:
        """Returns an array of the batch as the file calls it: data/demo_*/actions."""
        return array_path(self.pattern, self.first, name) or self.first.file.path.name

    def trajectory_text(self, number: int) -> str:
        """Returns "trajectory 13, ", or "data/demo_13, ", to stand before a place in it; nothing
        where there is only one trajectory."""
        name = self.name(number)
        text = f"trajectory {name}, " if name.isdecimal() else f"{name}, "
        return text if self.count > 1 else ""

    def dof_text(self, dof: int) -> str:
        """Returns the number of a dof in the file, and its name: dof 3 (panda_joint4)."""
        name = self.dofs[dof]
        return f"dof {self.first.dofs.numbers[dof]}" + f" ({name})" * (not name.isdecimal())

    def beside(self, other: Batch) -> bool:
        """Whether another batch is of the same trajectories: as many, in groups of other names."""
        patterns = [{_pattern(one.group) for one in batch.sets} for batch in (self, other)]
        return self.count == other.count and not patterns[0] & patterns[1]

    def quantity(self, name: str) -> str:
        """Returns what an array holds: actions are what the mode of the file makes them."""
        mode = self.first.stated_mode[0] if name == "actions" else ""
        return QUANTITIES[MODES[mode].derivatives_of] if mode else name

    def quantities(
        self, named: str = "position"
    ) -> tuple[dict[str, str], dict[str, str], list[str]]:
        """Returns the array that holds each quantity, the unit of each quantity ("" where it is
        not known), and a note on an array whose quantity neither its name nor its mode says.

        Such an array is what its unit says, or else ``named`` where SOURCE names it.
        """
        one, first = self.first, next(iter(self.first.arrays))
        known = {self.quantity(name): name for name in one.arrays}
        stored = {name: known[name] for name in QUANTITIES if name in known}
        of_unit, notes = parse_units(one.unit(first)), []
        if not stored and (of_unit or one.named or one.file.family == "npy"):
            quantity = QUANTITIES[of_unit[0].order] if of_unit else named
            stored = {quantity: first}
            notes.append(f"{first} read as {quantity}" + ", by its unit" * bool(of_unit))
        units = {name: one.unit(array) or "" for name, array in stored.items()}
        if units.get("position"):
            units |= {name: unit_of(name, units["position"]) for name in QUANTITIES}
        return stored, dict.fromkeys(QUANTITIES, "") | units, notes

    def bounds(self, limits: Limits, units: Mapping[str, str]) -> dict[str, Bounds]:
        """Returns the limits of the dofs by quantity; units: of the arrays, by quantity."""
        itemsize = min(dataset.precision.itemsize for dataset in self.first.arrays.values())
        return limits.bounds(self.dofs, itemsize, units, self.first.dofs)

    def sample(self, numbers: Sequence[int], budget: int) -> Iterator[Block]:
        """Returns about ``budget`` bytes of these trajectories, evenly spread; some rows of those
        that are too long for that."""
        rows, of_rows = self.first.shape[1], row_bytes(self.first) * len(self.first.arrays)
        length = max(1, budget // _SAMPLE_PLACES // of_rows)
        length -= length % rows if length > rows else 0
        starts = np.linspace(0, max(len(numbers) * rows - length, 0), _SAMPLE_PLACES).astype(int)
        for k, row in (divmod(start, rows) for start in dict.fromkeys(starts.tolist())):
            if length >= rows:
                yield from self.blocks(numbers[k : k + length // rows])
                continue
            whole = self.block(numbers[k])
            count = min(length, whole.rows)
            yield replace(whole, rows=count, first=min(row, whole.rows - count))

    def nbytes(self, count: int) -> int:
        """Returns the size of the arrays of so many trajectories, roughly."""
        rows = max(1, self.first.shape[1])
        return rows * row_bytes(self.first) * len(self.first.arrays) * count


def array_path(group: str, one: TrajectorySet, name: str) -> str:
    """Returns an array of a set as the file calls it, in a group: obs/joint_pos for joint_pos."""
    stored = one.array_name if name and name == next(iter(one.arrays)) else name
    return f"{group}/{stored}".strip("/")


def expand_globs(texts: Sequence[str]) -> list[str]:
    """Returns a source for each file that globs name; a folder of files is one source."""
    sources = [(text, parse_source(text)) for text in texts]
    return [
        one
        for text, source in sources
        for one in ([text] if source.path.is_dir() else map(str, expand_files(source)))
    ]


def read_batches(
    files: Files, sources: Sequence[str], as_stored: bool = False, repair: Repair | None = None
) -> list[Batch]:
    """Returns the trajectories that sources name, at the times that --dt, --rate or --times give.

    as_stored: in the units of the files, unless --units says others. repair: what is done to
    recordings first.
    """
    every = batches(read_sources(files, sources, as_stored))
    time = time_from_options(files)
    if time is not None:
        for batch in every:
            _use_time(batch, time)
    if repair is None or repair == Repair():
        return every
    repaired_batches = []
    for batch in every:
        clocks = [require_time(one.time, one.where, one) for one in batch.sets]
        parts, notes = repaired(list(zip(batch.sets, clocks, strict=True)), repair, 1)
        for one, clock in parts:
            one.time = clock
        for note in notes:
            files.note(note)
        repaired_batches.append(replace(batch, sets=[one for one, _ in parts]))
    return repaired_batches


def _use_time(batch: Batch, time: Time) -> None:
    """Gives trajectories these times; the first row of arrays that no mode calls actions is at 0,
    where the times have one number for each row."""
    for one in batch.sets:
        rows = time.fitted(*one.shape[:2], False, one.lengths)
        actions = one.of_actions and not (batch.quantity("actions") == "actions" and rows.fits)
        one.time = time.fitted(*one.shape[:2], True, one.lengths) if actions else rows


def batches(sets: Iterable[TrajectorySet]) -> list[Batch]:
    """Returns the sets in their order, those together whose groups differ in numbers alone.

    Groups of other names (actions, and reference/position) are other batches of the same
    trajectories; but in a file that trajcli wrote every group is a trajectory.
    """
    members: dict[tuple[Any, ...], list[TrajectorySet]] = {}
    for one in sets:
        written = one.group and "trajcli_version" in one.file.attributes()
        key = "*" if written else _pattern(one.group)
        members.setdefault((key, one.shape[2], *one.arrays), []).append(one)
    named = []
    for alike in members.values():
        groups = {one.group for one in alike}
        patterns = groups if len(groups) == 1 else {_pattern(group) for group in groups}
        named.append(Batch(alike, patterns.pop() if len(patterns) == 1 else "*"))
    return named


def _pattern(group: str) -> str:
    """Returns data/demo_3 as data/demo_*."""
    return re.sub(r"\d+", "*", group)


def main_batch(candidates: Sequence[Batch]) -> Batch | None:
    """Returns the batch with the most arrays, the first of several; None where there is none."""
    return max(candidates, key=lambda batch: len(batch.first.arrays), default=None)


def whole_batch(candidates: Sequence[Batch]) -> tuple[Batch | None, list[str]]:
    """Returns the trajectories with the most arrays, in groups of any names, and other arrays.

    Raises InputError where trajectories would be left out: those that have other dofs, or in groups
    of the same names other arrays.
    """
    main = main_batch(candidates)
    if main is None:
        return None, []
    arrays = list(main.first.arrays)
    alike = [batch for batch in candidates if list(batch.first.arrays) == arrays]
    others = [batch for batch in candidates if batch not in alike]
    sets = [one for batch in alike for one in batch.sets]
    raise_if_any(dof_faults([main.first, *sets]))
    groups = {(one.file.path, one.group) for one in sets}
    patterns = {_pattern(one.group) for one in sets}
    for one in (one for batch in others for one in batch.sets):
        if (one.file.path, one.group) not in groups and _pattern(one.group) in patterns:
            raise InputError(
                "trajectories of different arrays",
                where=one.where,
                expected=", ".join(arrays),
                found=", ".join(one.arrays),
                hint="FILE:DATASET names an array that all have",
            )
    labels = [batch.label(next(iter(batch.first.arrays))) for batch in others]
    return (main if len(alike) == 1 else Batch(sets, "*")), labels
