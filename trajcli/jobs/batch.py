"""Actions from one or many datasets, seen as one [B, H, D], and the blocks they are done in."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from trajcli.checks import describe
from trajcli.errors import Fault, InputError
from trajcli.files.arrays import StoredArray
from trajcli.modes.stretch import PIECE, Range

_SHORT_BYTES = 1 << 20
"""Single trajectories up to this are read and computed together."""
_GLIDING_BYTES = 1 << 20
"""More is not held between two windows."""


@dataclass(frozen=True)
class Size:
    """How much is done at once: rows of trajectories; only whole ones go together.

    ``lead``: rows before the first step, from which pieces are counted.
    """

    trajectories: int
    rows: int
    lead: int = 0


@dataclass(frozen=True)
class Block:
    """What is read, computed and written at once: some rows of trajectories begin..end.

    ``local``: the first of them in its dataset, ``part``.
    """

    begin: int
    end: int
    rows: Range
    local: int
    part: StoredArray


@dataclass(frozen=True)
class Batch:
    """Datasets of equal horizon and dofs, one after the other.

    ``kept``: indices of the rows that are used, where some are left out.
    """

    parts: Sequence[StoredArray]
    kept: Any = None

    @staticmethod
    def of(arrays: Sequence[StoredArray]) -> Batch:
        """Join datasets [B, H, D] or [H, D]; raises InputError where they do not fit."""
        parts = list(_joined(arrays))
        first = parts[0]
        faults = [
            Fault(
                "trajectories of different length or dofs in one run",
                part.where,
                f"H = {first.shape[1]}, D = {first.shape[2]}, as in {first.where}",
                f"H = {part.shape[1]}, D = {part.shape[2]}",
                "run them one at a time",
            )
            for part in parts[1:]
            if part.shape[1:] != first.shape[1:]
        ]
        if faults:
            raise InputError(*faults[:5])
        return Batch(parts)

    @property
    def shape(self) -> tuple[int, int, int]:
        """[B, H, D]."""
        _, horizon, dofs = self.parts[0].shape
        rows = horizon if self.kept is None else len(self.kept)
        return self.offsets[-1], rows, dofs

    @cached_property
    def offsets(self) -> list[int]:
        """The number of the first trajectory of each part, and of all."""
        return [0, *accumulate(part.shape[0] for part in self.parts)]

    @property
    def ndim(self) -> int:
        """Always 3."""
        return 3

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type that holds all parts."""
        return np.result_type(*(part.dtype for part in self.parts))

    @property
    def nbytes(self) -> int:
        """Bytes of values in the files."""
        return sum(part.nbytes for part in self.parts)

    @property
    def name(self) -> str:
        """What it is called in messages."""
        first, *more = self.sources()
        return f"{first} and {len(more)} more" if more else first

    def sources(self) -> list[str]:
        """Every dataset there is something of."""
        found: list[str] = []
        for part in self.parts:
            count = 1 if part.origin is None else part.shape[0]
            found += [
                part.where if part.origin is None else part.origin(b)[0] for b in range(count)
            ]
        return list(dict.fromkeys(found))

    def blocks(
        self, size: Size, rows: int, done: Range = (0, 0), stop: int | None = None
    ) -> Iterator[Block]:
        """Blocks of one dataset each, in order; of ``rows`` rows where they are whole.

        ``done``: trajectories done, and rows of the next one. ``stop``: where to end.
        """
        total = self.offsets[-1]
        stop = total if stop is None else stop
        first = max(bisect_right(self.offsets, done[0]) - 1, 0) if total else 0
        for k in range(first, len(self.parts)):
            part, offset = self.parts[k], self.offsets[k]
            if total and offset >= stop:
                return
            count = min(part.shape[0], stop - offset)
            firsts = range(max(done[0] - offset, 0), count, size.trajectories)
            for local in firsts if total else (0,):  # no trajectories: rows have times yet
                end = min(local + size.trajectories, count)
                begun = done[1] if offset + local == done[0] else 0
                for span in _spans(begun, rows, size):
                    yield Block(offset + local, offset + end, span, local, part)

    def read(self, block: Block, actions: Range) -> Any:
        """Some of the actions of a block's trajectories."""
        begin, end = block.local, block.local + block.end - block.begin
        if self.kept is None:
            return block.part.read_part(begin, end, *actions)
        kept = np.asarray(self.kept[slice(*actions)])
        first, last = (int(kept[0]), int(kept[-1]) + 1) if len(kept) else (0, 0)
        return block.part.read_part(begin, end, first, last)[:, kept - first]


def _spans(begin: int, rows: int, size: Size) -> Iterator[Range]:
    """Runs of rows from ``begin`` on, none shorter than a stretch may be, of whole pieces."""
    while begin < rows:
        pieces = (begin + max(size.rows, 2 * PIECE) - size.lead) // PIECE
        end = size.lead + pieces * PIECE
        end = rows if rows - end < PIECE else end
        yield begin, end
        begin = end


def _joined(arrays: Sequence[StoredArray]) -> Iterator[StoredArray]:
    """The arrays, but short single trajectories that follow each other as one: they go together."""
    run: list[StoredArray] = []
    for array in arrays:
        array.require_numeric()
        short = array.ndim == 2 and array.nbytes <= _SHORT_BYTES
        if run and not (short and array.dtype == run[0].dtype and array.shape == run[0].shape):
            yield _together(run)
            run = []
        if short:
            run.append(array)
        else:
            yield gliding(_as_batch(array))
    if run:
        yield _together(run)


def _together(run: Sequence[StoredArray]) -> StoredArray:
    """Single trajectories [H, D] as one array."""
    first = run[0]
    if len(run) == 1:
        return gliding(_as_batch(first))
    rows = first.shape[0]

    def read_rows(begin: int, end: int) -> Any:
        found = np.empty((end - begin, *first.shape), first.dtype.newbyteorder("="))
        for k in range(begin, end):
            found[k - begin] = run[k].read_rows(0, rows)
        return found

    return StoredArray(
        where=first.where,
        shape=(len(run), *first.shape),
        dtype=first.dtype,
        read_rows=read_rows,
        storage="put together",
        origin=lambda b: (run[b].where, 0),
    )


def _as_batch(array: StoredArray) -> StoredArray:
    """A dataset as [B, H, D]; [H, D] is one trajectory."""
    if array.ndim == 3:
        return array
    if array.ndim != 2:
        raise InputError(
            Fault(
                "wrong number of dimensions",
                array.where,
                "[B, H, D], or [H, D] for one trajectory",
                describe(array.shape),
            )
        )
    return StoredArray(
        array.where,
        (1, *array.shape),
        array.dtype,
        lambda begin, end: array.read()[None][begin:end],
        array.attributes,
        array.storage,
        lambda begin, end, *steps: array.read_rows(*steps)[None][begin:end],
    )


def gliding(array: StoredArray) -> StoredArray:
    """The same values for a reader that moves on, by windows that overlap.

    Of packed values every one is then unpacked once: archives are read from front to back only.
    """
    if array.ndim == 0 or array.storage in ("contiguous", "Fortran order"):
        return array
    last: dict[str, Any] = {}

    def steps(start: int, stop: int, first: int, end: int) -> Any:
        return _glide(
            last, (start, stop), first, end, lambda a, b: array.read_part(start, stop, a, b), 1
        )

    def rows(start: int, stop: int) -> Any:
        return _glide(last, "rows", start, stop, array.read_rows, 0)

    return replace(array, read_rows=rows, read_steps=steps)


def _glide(last: dict[str, Any], key: Any, first: int, end: int, read: Any, axis: int) -> Any:
    """Values first..end along an axis, of which those of the last window are at hand."""
    kept = last.get("values") if last.get("key") == key else None
    if kept is None or not last["first"] <= first <= last["end"] <= end:
        values = read(first, end)
    else:
        kept = np.split(kept, [first - last["first"]], axis)[1]
        values = np.concatenate([kept, read(last["end"], end)], axis)
    tail = np.split(values, [max(values.shape[axis] - PIECE, 0)], axis)[1]
    if tail.nbytes > _GLIDING_BYTES:
        last.clear()
    else:
        last.update(key=key, values=tail.copy(), end=end, first=end - tail.shape[axis])
    return values
