"""The trajectories of a source, numbered, and blocks of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.errors import InputError, raise_if_any
from trajcli.files.schema import QUANTITIES
from trajcli.files.source import expand_files, parse_source
from trajcli.files.time import Time
from trajcli.files.trajectory_set import TrajectorySet
from trajcli.modes import ALIASES, MODES

BLOCK_BYTES = 1 << 18
"""What is read of one array at once: with what is computed from it, it fits in the caches."""
_SAMPLE_PLACES = 12
Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Progress = Callable[[int, int], None]
"""Called with trajectories done, and all of them."""


@dataclass(frozen=True)
class Block:
    """Trajectories of a batch that have the same number of rows T, without padding.

    numbers [b]: which, counted through the batch. parts: where they lie, as a set and its
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

    def times(self) -> Floats | None:
        """Times of the rows [b, T] in seconds, as stored; None where the file has none.

        Raises InputError for a file that contradicts itself.
        """
        lines, last = [], self.first + self.rows
        for one, begin, end in self.parts:
            time = one.time
            if time is None:
                return None
            raise_if_any(time.shape_faults())
            if time.uniform is not None:  # a very long trajectory is not laid out as a whole
                rows = np.arange(self.first, last, dtype=np.float64)
                line = time.uniform * (rows + time.actions)[None]
            else:
                which = [begin] if shared(time) else range(begin, end)
                line = np.stack([time.rows(k, self.first, last) for k in which])
            lines.append(np.broadcast_to(line, (end - begin, self.rows)))
        return lines[0] if len(lines) == 1 else np.concatenate(lines)

    def known_times(self) -> Floats | None:
        """Times of the rows [b, T]; None also where the file contradicts itself."""
        try:
            return self.times()
        except InputError:
            return None


@dataclass(frozen=True)
class Batch:
    """Trajectories that have the same arrays, numbered through the groups of a file.

    pattern: the name of the groups, with * for the number in which they differ.
    """

    pattern: str
    sets: Sequence[TrajectorySet]

    @property
    def first(self) -> TrajectorySet:
        """The first set, for what all sets share."""
        return self.sets[0]

    @property
    def path(self) -> str:
        """The file, for messages."""
        return str(self.first.file.path)

    @cached_property
    def offsets(self) -> npt.NDArray[np.int64]:
        """The number of the first trajectory of each set, and the number of them all."""
        return np.cumsum([0, *(one.shape[0] for one in self.sets)])

    @property
    def count(self) -> int:
        """The number of trajectories."""
        return int(self.offsets[-1])

    @cached_property
    def one_sided(self) -> int:
        """The rows at each end of which mode savgol had no full window around them: their
        derivatives are several times as far off as others, and are no peaks."""
        attributes = self.first.file.attributes()
        mode, window = attributes.get("mode"), attributes.get("window")
        if not isinstance(mode, str) or mode != "savgol":
            return 0
        if isinstance(window, str) and re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,9}s", window):
            half = 0.5 * float(window[:-1])
            firsts = self.offsets[:-1][np.diff(self.offsets) > 0]  # of each set, one
            return max((self._rows_at_ends(int(k), half) for k in firsts), default=0)
        # other values are another program's
        return max(int(window), 0) // 2 if isinstance(window, (int, np.integer)) else 0

    def _rows_at_ends(self, number: int, seconds: float) -> int:
        times = self.block(number).known_times()
        if times is None or not times.size:
            return 0
        inner = seconds * (1.0 - 1e-5)  # as stamps are rounded
        since, until = times[0] - times[0, 0], times[0, -1] - times[0]
        return int(max((since < inner).sum(), (until < inner).sum()))

    @cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The rows of each trajectory [count], without padding."""
        stored = ((one.lengths, one.shape) for one in self.sets)
        rows = [np.full(shape[0], shape[1]) if own is None else own for own, shape in stored]
        return np.concatenate(rows)

    @cached_property
    def dofs(self) -> list[str]:
        """Names of the dofs; their numbers in the file where there are none."""
        return self.first.dof_labels

    def name(self, number: int) -> str:
        """A trajectory's group or episode where it has one to itself, else its number."""
        if len(self.sets) == 1 and self.first.shape[0] > 1:
            return str(number)
        one, _, _ = self.block(number).parts[0]
        several = len(self.sets) > 1 or one.member is not None
        return one.name if several and one.shape[0] == 1 else str(number)

    def label(self, name: str = "") -> str:
        """An array of the batch as the file calls it: data/demo_*/actions."""
        return array_path(self.pattern, self.first, name) or self.first.file.path.name

    def paths(self, name: str) -> list[str]:
        """The datasets of an array of the batch."""
        return [array_path(one.group, one, name) for one in self.sets]

    def quantity(self, name: str) -> str:
        """What an array holds: actions are what the mode that the file states makes them."""
        stated = self.first.attribute("mode") if name == "actions" else None
        mode = MODES.get(ALIASES.get(str(stated[1]), str(stated[1]))) if stated else None
        return name if mode is None else QUANTITIES[mode.derivatives_of]

    def block(self, number: int) -> Block:
        """One trajectory."""
        k = int(np.searchsorted(self.offsets, number, "right")) - 1
        at = number - int(self.offsets[k])
        part = self.sets[k], at, at + 1
        return Block(np.array([number]), [part], int(self.lengths[number]))

    def blocks(
        self, numbers: Sequence[int], on_progress: Progress = lambda done, total: None
    ) -> Iterator[Block]:
        """The trajectories of these numbers, each once and whole.

        Small sets with equally many rows are put together, so that few blocks are read.
        """
        waiting: list[Block] = []
        size = done = 0
        for block in self._runs(numbers):
            more = len(block.numbers) * block.rows * _row_bytes(block.parts[0][0])
            if waiting and (size + more > BLOCK_BYTES or not _stackable(waiting[0], block)):
                yield _joined(waiting)
                on_progress(done, len(numbers))
                waiting, size = [], 0
            waiting.append(block)
            size += more
            done += len(block.numbers)
        if waiting:
            yield _joined(waiting)
        on_progress(done, len(numbers))

    def _runs(self, numbers: Sequence[int]) -> Iterator[Block]:
        """Trajectories of one length that follow each other in a set, at most a block of them."""
        if not len(numbers):
            return
        which = np.asarray(numbers, np.int64)
        sets = np.searchsorted(self.offsets, which, "right") - 1
        rows = self.lengths[which]
        ends = (np.diff(which) != 1) | (np.diff(sets) != 0) | (np.diff(rows) != 0)
        for begin, end in pairwise([0, *(np.flatnonzero(ends) + 1).tolist(), len(which)]):
            one, length = self.sets[sets[begin]], int(rows[begin])
            step = max(1, BLOCK_BYTES // max(1, one.shape[1] * _row_bytes(one)))
            first = int(which[begin] - self.offsets[sets[begin]])
            for a in range(begin, end, step):
                b = min(a + step, end)
                part = one, first + a - begin, first + b - begin
                yield Block(which[a:b], [part], length)

    def sample(self, numbers: Sequence[int], budget: int) -> Iterator[Block]:
        """About ``budget`` bytes of these trajectories, spread evenly from the first to the last.

        Of trajectories that are too long for that, some rows.
        """
        rows = self.first.shape[1]
        length = max(1, budget // _SAMPLE_PLACES // (_row_bytes(self.first) * self._arrays))
        length -= length % rows if length > rows else 0
        ends = np.linspace(0, max(len(numbers) * rows - length, 0), _SAMPLE_PLACES).astype(int)
        for k, row in (divmod(int(place), rows) for place in dict.fromkeys(ends.tolist())):
            if length >= rows:
                yield from self.blocks(numbers[k : k + length // rows])
                continue
            whole = self.block(numbers[k])
            count = min(length, whole.rows)
            yield replace(whole, rows=count, first=min(row, whole.rows - count))

    def nbytes(self, count: int) -> int:
        """The size of the arrays of so many trajectories, roughly."""
        return max(1, self.first.shape[1] * _row_bytes(self.first)) * self._arrays * count

    @property
    def _arrays(self) -> int:
        return len(self.first.arrays)


def array_path(group: str, one: TrajectorySet, name: str) -> str:
    """An array of a set as the file calls it, in a group: obs/joint_pos for joint_pos."""
    stored = one.array_name if name and name == next(iter(one.arrays)) else name
    return f"{group}/{stored}".strip("/")


def _row_bytes(one: TrajectorySet) -> int:
    return max(1, one.shape[2] * max(stored.dtype.itemsize for stored in one.arrays.values()))


def _stackable(a: Block, b: Block) -> bool:
    types = [[stored.dtype for stored in c.parts[0][0].arrays.values()] for c in (a, b)]
    return a.rows == b.rows and types[0] == types[1]


def _joined(blocks: Sequence[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    numbers = np.concatenate([block.numbers for block in blocks])
    return Block(numbers, [part for block in blocks for part in block.parts], blocks[0].rows)


def expand_globs(texts: Sequence[str]) -> list[str]:
    """A source for each file that globs name; a folder of files is one source."""
    sources = [(text, parse_source(text)) for text in texts]
    return [
        one
        for text, source in sources
        for one in ([text] if source.path.is_dir() else map(str, expand_files(source)))
    ]


def batches(sets: Iterable[TrajectorySet]) -> list[Batch]:
    """Sets in their order, those together whose groups differ in numbers alone.

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
        named.append(Batch(patterns.pop() if len(patterns) == 1 else "*", alike))
    return named


def _pattern(group: str) -> str:
    """data/demo_3 as data/demo_*."""
    return re.sub(r"\d+", "*", group)


def main_batch(candidates: Sequence[Batch]) -> Batch | None:
    """The batch with the most arrays, the first of several; None where there is none."""
    return max(candidates, key=lambda batch: len(batch.first.arrays), default=None)


def shared(time: Time) -> bool:
    """Whether all trajectories have the same times."""
    values = time.dt if time.stamps is None else time.stamps
    return values is None or isinstance(values, float) or values.ndim < 2 or values.shape[0] == 1
