"""Actions from one or many datasets, seen as one [B, H, D], and the blocks they are done in."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from trajcli.checks import describe
from trajcli.errors import Fault, InputError
from trajcli.files.arrays import StoredArray

_SHORT_BYTES = 1 << 20
"""Single trajectories up to this are read and computed together."""


class Block(NamedTuple):
    """What is read, computed and written at once: trajectories begin..end.

    ``local``: the first of them in its dataset, ``part``.
    """

    begin: int
    end: int
    local: int
    part: StoredArray


@dataclass(frozen=True)
class Batch:
    """Datasets of equal horizon and dofs, one after the other.

    ``kept``: indices of the rows that are used, where some are left out: int64 [H].
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

    def blocks(self, size: int, done: int = 0, stop: int | None = None) -> Iterator[Block]:
        """Blocks of up to ``size`` trajectories of one dataset each, in order.

        ``done``: trajectories to leave out. ``stop``: where to end.
        """
        total = self.offsets[-1]
        stop = total if stop is None else stop
        first = max(bisect_right(self.offsets, done) - 1, 0) if total else 0
        for k in range(first, len(self.parts)):
            part, offset = self.parts[k], self.offsets[k]
            if total and offset >= stop:
                return
            count = min(part.shape[0], stop - offset)
            # no trajectories: rows have times yet
            for local in range(max(done - offset, 0), count, size) if total else (0,):
                end = min(local + size, count)
                yield Block(offset + local, offset + end, local, part)

    def read(self, block: Block) -> Any:
        """The actions of a block's trajectories [b, H, D]."""
        actions = block.part.read_rows(block.local, block.local + block.end - block.begin)
        if actions.dtype.kind == "f" and actions.dtype.itemsize > 8:
            actions = actions.astype(np.float64)
        return actions if self.kept is None else actions[:, self.kept]


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
            yield _as_batch(array)
    if run:
        yield _together(run)


def _together(run: Sequence[StoredArray]) -> StoredArray:
    """Single trajectories [H, D] as one array."""
    first = run[0]
    if len(run) == 1:
        return _as_batch(first)
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
    )
