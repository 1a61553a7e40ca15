"""HDF5 with shuffled and deflated chunks: packed on all processors, written by one thread.

A chunk holds whole trajectories, some MiB of them; a longer trajectory is cut along its rows.
The bytes are those that HDF5's own filters would make of the same chunks, and where they lie in
the file does not depend on the blocks that rows come in.
"""

from __future__ import annotations

import math
import os
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, OutputError
from trajcli.files.outputs import Hdf5Output
from trajcli.files.placing import locked, os_fault, remove
from trajcli.files.schema import Schema, Variable

_CHUNK_BYTES = 4 << 20
_LARGEST_CHUNK = 8 << 20
_HELD_CHUNKS = 8
_LAST = 1 << 62
_HELD, _AT = "held/", "at/"  # in a journal: values of chunks that are not full, and their places

_Packed = tuple[str, tuple[int, ...], Future[bytes]]

_Key = tuple[int, float, int]
"""The trajectory and row a chunk ends with, and the place of its variable: chunks are written in
this order, whatever blocks their rows came in."""


class _Filling:
    """The chunk of a variable that is being filled; rows come in their order."""

    def __init__(self, variable: Variable, place: int) -> None:
        self.variable = variable
        self.chunk = chunk_shape(variable)
        self.at = (0, 0)
        self._place = place
        self._held: list[Any] = []
        self._cut = len(self.chunk) > 1 and self.chunk[1] < variable.shape[1]

    def add(self, values: Any) -> Iterator[tuple[_Key, tuple[int, ...], Any]]:
        """Take values; yields every chunk they fill: its key, its place and its values."""
        self._held.append(np.ascontiguousarray(values, dtype=self.variable.dtype).reshape(-1))
        held = sum(part.size for part in self._held)
        shape = self._next()
        while 0 < (size := int(np.prod(shape, dtype=object))) <= held:
            whole = self.held()
            self._held, held = [whole[size:]], held - size
            at = self._place_of(shape)
            yield self._go_on(shape), at, whole[:size].reshape(shape)
            shape = self._next()

    def held(self) -> Any:
        """The values of a chunk that is not full."""
        none = np.zeros(0, self.variable.dtype)
        return self._held[0] if len(self._held) == 1 else np.concatenate([none, *self._held])

    def go_to(self, at: tuple[int, int], held: Any) -> Iterator[tuple[_Key, tuple[int, ...]]]:
        """Go on where another one was; yields key and place of the chunks that it filled."""
        while self.at < at:
            shape = self._next()
            place = self._place_of(shape)
            yield self._go_on(shape), place
        self._held = [held]

    def _place_of(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Where in the dataset the next chunk lies."""
        return (*self.at, *(0 for _ in shape[2:]))[: len(shape)]

    def _next(self) -> tuple[int, ...]:
        """How many values of each axis are left for this chunk."""
        first, second = self.at
        if self._cut:
            return (1, min(self.chunk[1], self.variable.shape[1] - second), *self.chunk[2:])
        return (min(self.chunk[0], self.variable.shape[0] - first), *self.chunk[1:])

    def _go_on(self, shape: tuple[int, ...]) -> _Key:
        """To the next chunk; returns the key of this one."""
        first, second = self.at
        if not self._cut:
            self.at = (first + shape[0], 0)
        elif second + shape[1] < self.variable.shape[1]:
            self.at = (first, second + shape[1])
        else:
            self.at = (first + 1, 0)
        along, end = self.variable.dims[0], first + shape[0]
        if along == "time":  # of rows that all trajectories share: they come with the first
            return 0, end, self._place
        row = second + shape[1] if self._cut else math.inf
        return (end - 1 if along == "trajectory" else _LAST), row, self._place


class CompressedOutput(Hdf5Output):
    """The same file with its streamed variables in compressed chunks."""

    keeps = True

    def __init__(
        self,
        path: Path,
        schema: Schema,
        overwrite: bool,
        durable: bool,
        identity: str = "",
        resume: bool = False,
        *,
        level: int,
        threads: int,
    ) -> None:
        self._level = level
        self._pool = ThreadPoolExecutor(threads)
        self._filling = {
            v.name: _Filling(v, k) for k, v in enumerate(schema.streamed) if v.shape and v.nbytes
        }
        self._fresh: list[tuple[_Key, _Packed]] = []
        self._packed: deque[_Packed] = deque()
        self._file: Any = None
        identity = f"{identity} deflated {level}"
        super().__init__(path, schema, overwrite, durable, identity, resume)

    def place(self, name: str, row: int) -> None:
        """None: chunks have no place before they are packed."""

    def write(self, name: str, row: int, block: Any) -> None:
        """Rows of a variable, one after the other; whole chunks go to be packed.

        Packers read the block itself, so nobody may write to it any more.
        """
        if name not in self._filling:
            super().write(name, row, block)
            return
        filling = self._filling[name]
        for key, at, values in filling.add(block):
            packed = self._pool.submit(pack, [values], filling.chunk, self._level)
            self._fresh.append((key, (name, at, packed)))

    def settle(self) -> None:
        """Write the chunks that are packed.

        Those still being packed are waited for only where too many are held.
        """
        self._write_packed(_HELD_CHUNKS)

    def _write_packed(self, held: int) -> None:
        self._packed += [packed for _, packed in sorted(self._fresh, key=lambda one: one[0])]
        self._fresh = []
        try:
            while len(self._packed) > held or (self._packed and self._packed[0][2].done()):
                name, at, packed = self._packed.popleft()
                self._open_file()[name].id.write_direct_chunk(at, packed.result())
        except (OSError, RuntimeError) as error:
            failed = error if isinstance(error, OSError) else OSError(str(error))
            raise OutputError(os_fault(self.path, failed)) from None

    def keep(self, done: int, carried: Mapping[str, Any]) -> None:
        """The chunks that are full are kept in the file, the others in the journal."""
        self._write_packed(0)
        self._close_file()
        held = {_HELD + name: filling.held() for name, filling in self._filling.items()}
        at = {_AT + name: np.array(filling.at) for name, filling in self._filling.items()}
        super().keep(done, {**carried, **held, **at})

    def _reopen(self, offsets: Mapping[str, int]) -> None:
        """Write what is left into a new file, so that it comes out as if nothing had happened.

        Where in a file HDF5 puts things depends on when it was opened and closed.
        """
        import h5py

        remove(self._journal)  # from here on there is nothing to go back to
        os.replace(self._hidden, self._left)
        left, self._lock = self._lock, locked(self._hidden, self.path)
        os.close(left)
        self._prepare()
        self._write_all_given()
        chunks: list[tuple[_Key, str, tuple[int, ...]]] = []
        for name, filling in self._filling.items():
            first, second = (int(n) for n in self.carried[_AT + name])
            found = filling.go_to((first, second), self.carried[_HELD + name])
            chunks += [(key, name, at) for key, at in found]
        try:
            with h5py.File(self._left, "r", locking=False) as before:
                for _, name, at in sorted(chunks):
                    _, packed = before[name].id.read_direct_chunk(at)
                    self._open_file()[name].id.write_direct_chunk(at, packed)
        except (OSError, RuntimeError, KeyError) as error:
            hint = "run it again without --resume"
            found_ = str(error)
            raise OutputError(
                Fault("what is left cannot be read", str(self.path), found=found_, hint=hint)
            ) from None
        remove(self._left)

    def _complete(self) -> None:
        self._write_packed(0)
        self._close_file()

    def _close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._close_file()
        super()._close()

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open_file(self) -> Any:
        import h5py

        if self._file is None:
            self._file = h5py.File(self._hidden, "r+", locking=False)
        return self._file

    def _layout_of(self, h5py: Any, variable: Variable, properties: Any) -> None:
        if variable.name not in self._filling:
            super()._layout_of(h5py, variable, properties)
            return
        properties.set_chunk(chunk_shape(variable))
        properties.set_shuffle()
        properties.set_deflate(self._level)
        properties.set_alloc_time(h5py.h5d.ALLOC_TIME_INCR)

    def _reserve(self, descriptor: int, offsets: Mapping[str, int | None]) -> None:
        """Only what is written in place has its place now."""
        contiguous = {v.name: v for v in self.schema.variables if offsets[v.name] is not None}
        self._places = {name: (descriptor, offsets[name] or 0) for name in contiguous}


def chunk_shape(variable: Variable) -> tuple[int, ...]:
    """Whole trajectories of about 4 MiB; of one that is larger than 8 MiB, as many rows."""
    count, *rest = variable.shape
    per_row = int(np.prod(rest, dtype=object)) * variable.dtype.itemsize
    if per_row <= _LARGEST_CHUNK or not rest:
        return (max(1, min(count, _CHUNK_BYTES // max(per_row, 1))), *rest)
    rows, *inner = rest
    per_inner = int(np.prod(inner, dtype=object)) * variable.dtype.itemsize
    return (1, max(1, min(rows, _CHUNK_BYTES // per_inner)), *inner)


def pack(parts: Sequence[Any], shape: tuple[int, ...], level: int) -> bytes:
    """A chunk as HDF5 stores it: filled up with zeros, bytes of one place together, deflated.

    parts: its rows, one after the other; also fewer, and less of each, than the shape has.
    """
    size = parts[0].dtype.itemsize
    shuffled: Any = np.zeros((size, *shape), np.uint8)
    begin = 0
    for part in parts:
        there = (slice(begin, begin + len(part)), *map(slice, part.shape[1:]))
        of_each = np.ascontiguousarray(part).view(np.uint8).reshape(*part.shape, size)
        for place in range(size):  # one by one: NumPy then lets other threads run
            shuffled[place][there] = of_each[..., place]
        begin += len(part)
    return zlib.compress(shuffled.data, level)
