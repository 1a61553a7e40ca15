"""Trajectories of several sets, numbered through, and blocks of them that are read at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.errors import InputError, raise_if_any
from trajcli.files.file_bytes import Progress as Progress
from trajcli.files.time import Time
from trajcli.files.trajectory_set import TrajectorySet

BLOCK_BYTES = 1 << 18
"""What is read of one array at once: with what is computed from it, it fits in the caches."""
Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Block:
    """Trajectories that have the same number of rows T, without padding.

    numbers [b]: which, counted through the sets. parts: where they lie, as a set and its
    trajectories begin..end. rows: T. first: the row that these rows begin with.
    """

    numbers: npt.NDArray[np.int64]
    parts: Sequence[tuple[TrajectorySet, int, int]]
    rows: int
    first: int = 0

    def read(self, name: str) -> Array:
        """An array [b, T, D] in its stored type."""
        last = self.first + self.rows
        arrays = [
            np.asarray(one.arrays[name].read_part(begin, end, self.first, last))
            for one, begin, end in self.parts
        ]
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    @property
    def step(self) -> float | None:
        """The step, where all steps of all trajectories are equal."""
        return common_step(one for one, *_ in self.parts)

    def times(self) -> Floats | None:
        """Times of the rows [b, T] in seconds, as stored; None where the file has none.

        Raises InputError for a file that contradicts itself.
        """
        clocks, first, last = (
            [one.time for one, *_ in self.parts],
            self.first,
            self.first + self.rows,
        )
        known = [clock for clock in clocks if clock is not None]
        if len(known) < len(clocks):
            return None
        raise_if_any(fault for clock in known for fault in clock.shape_faults())
        step, actions = self.step, {clock.actions for clock in known}
        if step is not None and len(actions) == 1:  # a long trajectory is not laid out as a whole
            line = step * (np.arange(first, last, dtype=np.float64) + actions.pop())
            return np.broadcast_to(line, (len(self.numbers), self.rows))
        lines = []
        for clock, (_, begin, end) in zip(known, self.parts, strict=True):
            line = clock.rows(begin, begin + 1 if shared(clock) else end, first, last)
            lines.append(np.broadcast_to(line, (end - begin, self.rows)))
        return lines[0] if len(lines) == 1 else np.concatenate(lines)

    def known_times(self) -> Floats | None:
        """Times of the rows [b, T]; None also where the file contradicts itself."""
        try:
            return self.times()
        except InputError:
            return None


@dataclass(frozen=True)
class Trajectories:
    """The trajectories of sets, numbered in their order."""

    sets: Sequence[TrajectorySet]

    @cached_property
    def offsets(self) -> npt.NDArray[np.int64]:
        """The number of the first trajectory of each set, and the number of them all."""
        return np.cumsum([0, *(one.shape[0] for one in self.sets)])

    @property
    def count(self) -> int:
        """The number of trajectories."""
        return int(self.offsets[-1])

    @cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The rows of each trajectory [count], without padding."""
        stored = ((one.lengths, one.shape) for one in self.sets)
        rows = [np.full(shape[0], shape[1]) if own is None else own for own, shape in stored]
        return np.concatenate(rows)

    def block(self, number: int) -> Block:
        """One trajectory."""
        k = int(np.searchsorted(self.offsets, number, "right")) - 1
        at = number - int(self.offsets[k])
        part = self.sets[k], at, at + 1
        return Block(np.array([number]), [part], int(self.lengths[number]))

    def blocks(
        self,
        numbers: Sequence[int],
        on_progress: Progress = lambda done, total: None,
        size: int = BLOCK_BYTES,
        rows: int = 0,
    ) -> Iterator[Block]:
        """The trajectories of these numbers, each once and whole.

        Small sets with equally many rows are put together, so that few blocks are read. size: of
        one array of a block, in bytes. rows: how many are computed of each trajectory.
        """
        waiting: list[Block] = []
        held = done = 0
        for block in self._runs(numbers, size, rows):
            more = len(block.numbers) * max(block.rows, rows) * row_bytes(block.parts[0][0])
            if waiting and (held + more > size or not _stackable(waiting[0], block)):
                yield _joined(waiting)
                on_progress(done, len(numbers))
                waiting, held = [], 0
            waiting.append(block)
            held += more
            done += len(block.numbers)
        if waiting:
            yield _joined(waiting)
        on_progress(done, len(numbers))

    def _runs(self, numbers: Sequence[int], size: int, rows: int) -> Iterator[Block]:
        """Trajectories of one length that follow each other in a set, at most a block of them."""
        if not len(numbers):
            return
        which = np.asarray(numbers, np.int64)
        sets = np.searchsorted(self.offsets, which, "right") - 1
        lengths = self.lengths[which]
        ends = (np.diff(which) != 1) | (np.diff(sets) != 0) | (np.diff(lengths) != 0)
        for begin, end in pairwise([0, *(np.flatnonzero(ends) + 1).tolist(), len(which)]):
            one, length = self.sets[sets[begin]], int(lengths[begin])
            step = max(1, size // max(1, max(one.shape[1], rows) * row_bytes(one)))
            first = int(which[begin] - self.offsets[sets[begin]])
            for a in range(begin, end, step):
                b = min(a + step, end)
                part = one, first + a - begin, first + b - begin
                yield Block(which[a:b], [part], length)


def row_bytes(one: TrajectorySet) -> int:
    """Of a row of its largest array."""
    return max(1, one.shape[2] * max(stored.dtype.itemsize for stored in one.arrays.values()))


def _stackable(a: Block, b: Block) -> bool:
    types = [[stored.dtype for stored in c.parts[0][0].arrays.values()] for c in (a, b)]
    return a.rows == b.rows and types[0] == types[1]


def _joined(blocks: Sequence[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    numbers = np.concatenate([block.numbers for block in blocks])
    return Block(numbers, [part for block in blocks for part in block.parts], blocks[0].rows)


def common_step(sets: Iterable[TrajectorySet]) -> float | None:
    """The step, where all steps of all trajectories are equal."""
    steps = {None if one.time is None else one.time.uniform for one in sets}
    return steps.pop() if len(steps) == 1 else None


def shared(time: Time) -> bool:
    """Whether all trajectories have the same times."""
    values = time.dt if time.stamps is None else time.stamps
    return values is None or isinstance(values, float) or values.ndim < 2 or values.shape[0] == 1
