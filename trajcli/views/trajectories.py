"""The trajectories of a source, numbered; which of them are meant; and blocks of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.errors import InputError, raise_if_any
from trajcli.files.schema import QUANTITIES
from trajcli.files.time import Time
from trajcli.files.trajectory_set import TrajectorySet
from trajcli.modes import ALIASES, MODES
from trajcli.views.selection import runs

BLOCK_BYTES = 1 << 18
"""Of an array so much is read at once: with what is computed of it, it stays in the caches."""
_PLACES = 12
"""A sample is taken at so many places."""
Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Block:
    """Trajectories of a batch that have the same number of rows T, none of them padding.

    numbers [b]: which, counted through the batch. parts: where they lie, as a set and its
    trajectories begin..end. rows: T. first: above 0 where these are rows first..first+T of each.
    """

    numbers: npt.NDArray[np.int64]
    parts: Sequence[tuple[TrajectorySet, int, int]]
    rows: int
    first: int = 0

    def read(self, name: str) -> Array:
        """An array [b, T, D] in the type it is stored as."""
        last = self.first + self.rows
        read = [
            np.asarray(one.arrays[name].read_part(begin, end, self.first, last))
            for one, begin, end in self.parts
        ]
        return read[0] if len(read) == 1 else np.concatenate(read)

    def times(self) -> Floats | None:
        """Times of the rows [b, T] in seconds, as the file has them; None where it has none.

        Raises InputError for a file that contradicts itself.
        """
        lines = []
        for one, begin, end in self.parts:
            time = one.time
            if time is None:
                return None
            raise_if_any(time.shape_faults())
            last = self.first + self.rows
            if time.uniform is not None:  # of a very long trajectory, not every row
                first = self.first + time.actions
                line = time.uniform * np.arange(first, last + time.actions, dtype=np.float64)
            elif shared(time):
                line = time.rows(begin, self.first, last)
            else:
                line = np.stack([time.rows(k, self.first, last) for k in range(begin, end)])
            lines.append(np.broadcast_to(line, (end - begin, self.rows)))
        return lines[0] if len(lines) == 1 else np.concatenate(lines)


@dataclass(frozen=True)
class Batch:
    """Trajectories that have the same arrays, numbered through the groups of a file.

    pattern: the groups' name, with * for the number by which they differ.
    """

    pattern: str
    sets: Sequence[TrajectorySet]

    @property
    def first(self) -> TrajectorySet:
        """The first set, for what all sets share."""
        return self.sets[0]

    @cached_property
    def offsets(self) -> npt.NDArray[np.int64]:
        """The number of the first trajectory of each set, and the number of them all."""
        return np.cumsum([0, *(one.shape[0] for one in self.sets)])

    @property
    def count(self) -> int:
        """How many trajectories there are."""
        return int(self.offsets[-1])

    @cached_property
    def dofs(self) -> list[str]:
        """Names of the dofs; their numbers where the file has none."""
        return dof_names(self.first)

    def at(self, number: int) -> tuple[TrajectorySet, int]:
        """The set of a trajectory, and its number in it."""
        k = int(np.searchsorted(self.offsets, number, "right")) - 1
        return self.sets[k], number - int(self.offsets[k])

    def name(self, number: int) -> str:
        """A trajectory's group or episode where it has one to itself, else its number."""
        one, _ = self.at(number)
        several = len(self.sets) > 1 or one.member is not None
        return one.name if several and one.shape[0] == 1 else str(number)

    def rows(self, number: int) -> int:
        """The rows of a trajectory, without padding."""
        one, k = self.at(number)
        return one.shape[1] if one.lengths is None else int(one.lengths[k])

    def label(self, name: str = "") -> str:
        """An array of the batch as it is called in the file: data/demo_*/actions."""
        return _path(self.pattern, self.first, name) or self.first.file.path.name

    def paths(self, name: str) -> list[str]:
        """The datasets of an array of the batch."""
        return [_path(one.group, one, name) for one in self.sets]

    def block(self, number: int) -> Block:
        """A trajectory by itself."""
        one, k = self.at(number)
        return Block(np.array([number]), [(one, k, k + 1)], self.rows(number))

    def blocks(self, numbers: Sequence[int] | None = None) -> Iterator[Block]:
        """All trajectories, or those of ``numbers``, each once and whole.

        Small sets of equally many rows are put together, so that few blocks are read.
        """
        waiting: list[Block] = []
        size = 0
        for block in self._runs(range(self.count) if numbers is None else numbers):
            more = len(block.numbers) * _row_bytes(block.parts[0][0]) * block.rows
            if waiting and (size + more > BLOCK_BYTES or not _stackable(waiting[0], block)):
                yield _joined(waiting)
                waiting, size = [], 0
            waiting.append(block)
            size += more
        if waiting:
            yield _joined(waiting)

    def _runs(self, numbers: Sequence[int]) -> Iterator[Block]:
        """Trajectories of one length that follow each other in a set, of at most a block."""
        for begin, end in runs(numbers):
            while begin < end:
                one, k = self.at(begin)
                rows, step = self.rows(begin), max(1, BLOCK_BYTES // _trajectory_bytes(one))
                last = min(k + min(end - begin, step), one.shape[0])
                if one.lengths is not None and (others := one.lengths[k:last] != rows).any():
                    last = k + int(others.argmax())
                yield Block(np.arange(begin, begin + last - k), [(one, k, last)], rows)
                begin += last - k

    def sample(self, numbers: Sequence[int], budget: int) -> Iterator[Block]:
        """About ``budget`` bytes of these trajectories, spread evenly from the first to the last.

        Of trajectories that are too long for that, some rows.
        """
        rows = self.first.shape[1]
        length = max(1, budget // _PLACES // (_row_bytes(self.first) * len(self.first.arrays)))
        length -= length % rows if length > rows else 0
        ends = np.linspace(0, max(len(numbers) * rows - length, 0), _PLACES).astype(int)
        for k, row in (divmod(int(place), rows) for place in dict.fromkeys(ends.tolist())):
            if length >= rows:
                yield from self.blocks(numbers[k : k + length // rows])
                continue
            whole = self.block(numbers[k])
            count = min(length, whole.rows)
            yield replace(whole, rows=count, first=min(row, whole.rows - count))

    def nbytes(self, numbers: Sequence[int]) -> int:
        """About how many bytes the arrays of these trajectories have."""
        return _trajectory_bytes(self.first) * len(self.first.arrays) * len(numbers)


def _path(group: str, one: TrajectorySet, name: str) -> str:
    called = one.array_name if name and name == next(iter(one.arrays)) else name
    return f"{group}/{called}".strip("/")


def _row_bytes(one: TrajectorySet) -> int:
    return max(1, one.shape[2] * max(stored.dtype.itemsize for stored in one.arrays.values()))


def _trajectory_bytes(one: TrajectorySet) -> int:
    return max(1, one.shape[1] * _row_bytes(one))


def _stackable(a: Block, b: Block) -> bool:
    one, other = a.parts[0][0], b.parts[0][0]
    kinds = [[stored.dtype for stored in s.arrays.values()] for s in (one, other)]
    return a.rows == b.rows and kinds[0] == kinds[1]


def _joined(blocks: Sequence[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    numbers = np.concatenate([block.numbers for block in blocks])
    return Block(numbers, [part for block in blocks for part in block.parts], blocks[0].rows)


def dof_names(one: TrajectorySet) -> list[str]:
    """Names of the dofs of a set; their numbers where the file has none that fit."""
    count = one.shape[2]
    names = one.joint_names
    return list(names) if names and len(names) == count else [str(i) for i in range(count)]


def quantity_of(one: TrajectorySet, name: str) -> str:
    """What an array holds: actions are what the mode that the file states makes them."""
    stated = one.attribute("mode") if name == "actions" else None
    mode = MODES.get(ALIASES.get(str(stated[1]), str(stated[1]))) if stated else None
    return QUANTITIES[mode.derivatives_of] if mode is not None else name


def batches(sets: Iterable[TrajectorySet]) -> list[Batch]:
    """Sets in their order, those together whose groups differ in numbers alone.

    What lies in groups of other names (actions, and reference/position) are other batches, of the
    same trajectories; but in a file that trajcli wrote every group is a trajectory.
    """
    members: dict[tuple[Any, ...], list[TrajectorySet]] = {}
    for one in sets:
        written = one.group and "trajcli_version" in one.file.attributes()
        key = "*" if written else re.sub(r"\d+", "*", one.group)
        members.setdefault((key, one.shape[2], *one.arrays), []).append(one)
    return [Batch(_pattern([one.group for one in sets]), sets) for sets in members.values()]


def _pattern(groups: Sequence[str]) -> str:
    """What groups are called together: data/demo_*, or * where they have nothing in common."""
    if len(set(groups)) == 1:
        return groups[0]
    patterns = {re.sub(r"\d+", "*", group) for group in groups}
    return patterns.pop() if len(patterns) == 1 else "*"


def main_batch(candidates: Sequence[Batch]) -> Batch | None:
    """The batch with the most arrays, the first of several; None where there is none."""
    return max(candidates, key=lambda batch: len(batch.first.arrays), default=None)


def shared(time: Time) -> bool:
    """Whether all trajectories have the same times."""
    values = time.dt if time.stamps is None else time.stamps
    return values is None or isinstance(values, float) or values.ndim < 2 or values.shape[0] == 1


def known_times(block: Block) -> Floats | None:
    """Times of the rows of a block; None also where the file contradicts itself."""
    try:
        return block.times()
    except InputError:
        return None
