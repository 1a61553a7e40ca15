"""HDF5 with shuffled and deflated chunks: packed on all processors, written by one thread.

A chunk holds whole trajectories, some MiB of them; a longer trajectory is cut along its rows.
The bytes are those that HDF5's own filters would make of the same chunks.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import OutputError
from trajcli.files.outputs import Hdf5Output
from trajcli.files.placing import os_fault
from trajcli.files.schema import Schema, Variable

_CHUNK_BYTES = 4 << 20
_LARGEST_CHUNK = 8 << 20
_HELD_CHUNKS = 8

_Packed = tuple[Variable, tuple[int, ...], Future[bytes]]


class CompressedOutput(Hdf5Output):
    """The same file with its streamed variables in compressed chunks. It cannot be resumed."""

    resumable = False

    def __init__(
        self,
        path: Path,
        schema: Schema,
        overwrite: bool,
        durable: bool,
        level: int,
        threads: int,
    ) -> None:
        self._level = level
        self._pool = ThreadPoolExecutor(threads)
        self._waiting: dict[str, tuple[int, list[Any]]] = {}  # name: first row, blocks
        self._packed: deque[_Packed] = deque()
        self._file: Any = None
        super().__init__(path, schema, overwrite, durable)

    def view(self, name: str) -> Any:
        """Chunks cannot be computed into."""
        return None

    def write(self, name: str, row: int, block: Any) -> None:
        """Rows of a variable, one after the other; whole chunks go to be packed.

        Packers read the block itself, so nobody may write to it any more.
        """
        variable = next(v for v in self.schema.variables if v.name == name)
        if variable.values is not None:
            super().write(name, row, block)
            return
        begin, blocks = self._waiting.get(name, (row, []))
        blocks = [*blocks, np.asarray(block, dtype=variable.dtype)]
        per_chunk = chunk_shape(variable)[0]
        while sum(map(len, blocks)) >= per_chunk:
            chunk, blocks = _divided(blocks, per_chunk)
            self._pack(variable, begin, chunk)
            begin += per_chunk
        self._waiting[name] = (begin, blocks)

    def settle(self) -> None:
        """Write the chunks that are packed; for the thread that uses HDF5.

        Those still being packed are waited for only where too many are held.
        """
        self._write_packed(_HELD_CHUNKS)

    def _write_packed(self, held: int) -> None:
        try:
            while len(self._packed) > held or (self._packed and self._packed[0][2].done()):
                variable, at, packed = self._packed.popleft()
                self._open_file()[variable.name].id.write_direct_chunk(at, packed.result())
        except (OSError, RuntimeError) as error:
            failed = error if isinstance(error, OSError) else OSError(str(error))
            raise OutputError(os_fault(self.path, failed)) from None

    def _complete(self) -> None:
        for name, (begin, blocks) in self._waiting.items():
            if blocks:
                variable = next(v for v in self.schema.variables if v.name == name)
                self._pack(variable, begin, blocks)
        self._write_packed(0)
        if self._file is not None:
            self._file.close()
            self._file = None

    def _close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        if self._file is not None:
            self._file.close()
            self._file = None
        super()._close()

    def _open_file(self) -> Any:
        import h5py

        if self._file is None:
            self._file = h5py.File(self._hidden, "r+", locking=False)
        return self._file

    def _pack(self, variable: Variable, begin: int, blocks: Sequence[Any]) -> None:
        """Hand rows of one chunk, or of one row of chunks, to the packers."""
        shape = chunk_shape(variable)
        if len(shape) == 1:
            self._packed.append((variable, (begin,), self._submit(blocks, shape)))
            return
        for row in range(0, variable.shape[1], shape[1]):
            parts = [block[:, row : row + shape[1]] for block in blocks]
            at = (begin, row, *(0 for _ in shape[2:]))
            self._packed.append((variable, at, self._submit(parts, shape)))

    def _submit(self, parts: Sequence[Any], shape: tuple[int, ...]) -> Future[bytes]:
        return self._pool.submit(pack, parts, shape, self._level)

    def _layout_of(self, h5py: Any, variable: Variable, properties: Any) -> None:
        if variable.values is not None or not variable.nbytes:
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


def _divided(blocks: Sequence[Any], count: int) -> tuple[list[Any], list[Any]]:
    """The first ``count`` rows of successive blocks, and the rest; nothing is copied."""
    first: list[Any] = []
    rest: list[Any] = []
    for block in blocks:
        taken = min(count, len(block))
        count -= taken
        if taken:
            first.append(block[:taken])
        if taken < len(block):
            rest.append(block[taken:])
    return first, rest
