"""HDF5 with shuffled and deflated chunks, packed on all processors.

A chunk holds whole trajectories, some MiB of them; of one that is longer, a part of its rows. The
bytes are those that HDF5's own filters would make of the same chunks. Packed chunks wait in a
file of their own until all are there: where they lie in OUT then depends neither on the
blocks that trajectories are written in nor on whether the run was stopped and resumed.
"""

from __future__ import annotations

import os
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from trajcli.errors import Fault, OutputError
from trajcli.files.hdf5_output import Hdf5Output
from trajcli.files.schema import Schema, Variable
from trajcli.system import processors

_CHUNK_BYTES = 4 << 20
_LARGEST_CHUNK = 8 << 20
_QUEUED_CHUNKS = 8
_CHUNKS = "chunks"
"""The file of packed chunks in the hidden folder."""
_HELD, _CHECKSUMS, _PACKED = "held/", "checksums", "packed"
"""In a journal: trajectories that do not fill a chunk yet, size and CRC-32 of packed chunks, and
the number of blocks that are packed."""


class _Block(NamedTuple):
    """Trajectories that share a chunk: their group, the first of them in it, and how many."""

    group: int
    row: int
    size: int


class CompressedOutput(Hdf5Output):
    """The same file with its trajectories [B, T, ...] in compressed chunks."""

    def __init__(self, path: Path, schema: Schema, level: int) -> None:
        super().__init__(path, schema)
        self._level = level
        self._pool = ThreadPoolExecutor(processors())
        self._chunked = {v.name: v for v in schema.streamed if _is_chunked(v)}
        self._together = trajectories_per_chunk(schema)
        self._blocks = _blocks(schema, self._together)
        self._packed = 0
        self._held: dict[str, list[Any]] = {name: [] for name in self._chunked}
        self._packing: deque[Future[bytes]] = deque()
        self._checksums: list[tuple[int, int]] = []
        """Size and CRC-32 of every chunk that is packed."""

    def place(self, name: str, row: int, group: int = 0) -> tuple[int, int] | None:
        """None of what is compressed: a chunk has no place before it is packed."""
        return None if name in self._chunked else super().place(name, row, group)

    def write(self, name: str, row: int, block: Any, group: int = 0) -> None:
        """Entries of a variable, one after the other; full chunks are packed."""
        if name not in self._chunked:
            super().write(name, row, block, group)
            return
        self._held[name] += list(np.array(block, self._chunked[name].dtype))
        while self._packed < len(self._blocks):
            next_block = self._blocks[self._packed]
            if any(len(held) < next_block.size for held in self._held.values()):
                break
            self._pack(next_block)
        self._collect(_QUEUED_CHUNKS)

    def _pack(self, block: _Block) -> None:
        """Have the chunks of a block packed."""
        values = {name: np.stack(held[: block.size]) for name, held in self._held.items()}
        for held in self._held.values():
            del held[: block.size]
        for name, rows, shape in self._chunks(block):
            part = values[name][:, rows]
            try:
                future = self._pool.submit(pack, part, shape, self._level)
            except RuntimeError:  # a process may have no more threads
                future = Future()
                future.set_result(pack(part, shape, self._level))
            self._packing.append(future)
        self._packed += 1

    def _chunks(self, block: _Block) -> Iterator[tuple[str, slice, tuple[int, ...]]]:
        """The chunks of a block: their variable, which of its rows, and their shape."""
        for name, variable in self._chunked.items():
            variable = self.schema.in_group(variable, block.group)
            shape = chunk_shape(variable, self._together)
            for begin in range(0, variable.shape[1], shape[1]):
                yield name, slice(begin, begin + shape[1]), shape

    def _collect(self, most: int) -> None:
        """Put aside the chunks that are packed; waits for them where more than so many are not."""
        while len(self._packing) > most or (self._packing and self._packing[0].done()):
            chunk = self._packing.popleft().result()
            self._pwrite(self._chunks_file, memoryview(chunk), self._end)
            self._checksums.append((len(chunk), zlib.crc32(chunk)))
            self._end += len(chunk)

    def _complete(self) -> None:
        """Copy the chunks into their datasets."""
        self._collect(0)
        checksums, at = iter(self._checksums), 0
        with h5py.File(self._hidden.data, "r+", locking=False) as file:
            for block in self._blocks:
                prefix, offset = "", [block.row]
                if self.schema.groups:
                    prefix, offset = f"{self.schema.groups[block.group].names[block.row]}/", []
                for name, rows, shape in self._chunks(block):
                    dataset = h5py.h5d.open(file.id, f"{prefix}{name}".encode())
                    place = (*offset, rows.start, *(0 for _ in shape[2:]))
                    size, crc = next(checksums)
                    chunk = os.pread(self._chunks_file, size, at)
                    if zlib.crc32(chunk) != crc:
                        where = str(self._hidden.path / _CHUNKS)
                        raise OutputError(Fault("damaged", where, f"CRC-32 {crc:08x}"))
                    dataset.write_direct_chunk(place, chunk)
                    if self._segments is not None:
                        stored = dataset.get_chunk_info_by_coord(place)
                        self._segments[stored.byte_offset] = (size, crc)
                    at += size

    def keep(self, done: int, carried: Mapping[str, Any]) -> None:
        """Also trajectories that do not fill a chunk yet are kept."""
        self._collect(0)
        held = {_HELD + name: np.array(values) for name, values in self._held.items() if values}
        packed = {_CHECKSUMS: np.array(self._checksums, np.int64), _PACKED: np.array(self._packed)}
        super().keep(done, {**carried, **held, **packed})

    def _resume(self) -> bool:
        if not super()._resume():
            return False
        self._checksums = list(map(tuple, self.carried.pop(_CHECKSUMS).tolist()))
        self._end = sum(size for size, _ in self._checksums)
        self._packed = int(self.carried.pop(_PACKED))
        for name in self._chunked:
            self._held[name] = list(self.carried.pop(_HELD + name, ()))
        return True

    def _open_files(self) -> None:
        super()._open_files()
        self._chunks_file, self._end = self._open_file(self._hidden.path / _CHUNKS), 0

    def _close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        super()._close()

    def _properties(self, variable: Variable) -> Any:
        properties = super()._properties(variable)
        if variable.name in self._chunked:
            shape = chunk_shape(variable, self._together)
            properties.set_chunk(shape[1:] if self.schema.groups else shape)
            properties.set_shuffle()
            properties.set_deflate(self._level)
            properties.set_alloc_time(h5py.h5d.ALLOC_TIME_INCR)
        return properties


def _is_chunked(variable: Variable) -> bool:
    return variable.by_trajectory and len(variable.shape) > 1 and variable.nbytes > 0


def _blocks(schema: Schema, together: int) -> list[_Block]:
    """The trajectories of all chunks, in the order in which they are written."""
    if schema.groups:
        return [
            _Block(k, row, 1) for k, g in enumerate(schema.groups) for row in range(len(g.names))
        ]
    count = schema.dims["trajectory"] if any(map(_is_chunked, schema.streamed)) else 0
    return [_Block(0, row, min(together, count - row)) for row in range(0, count, together)]


def trajectories_per_chunk(schema: Schema) -> int:
    """How many of the largest variable make about 4 MiB: of all variables the same number."""
    sizes = [v.row_bytes for v in schema.streamed if _is_chunked(v)]
    if schema.groups or not sizes:
        return 1
    return max(1, min(schema.dims["trajectory"], _CHUNK_BYTES // max(sizes)))


def chunk_shape(variable: Variable, together: int) -> tuple[int, ...]:
    """``together`` whole trajectories; of one larger than 8 MiB, so many rows as make 4 MiB."""
    _, rows, *inner = variable.shape
    if variable.row_bytes > _LARGEST_CHUNK:
        rows = max(1, _CHUNK_BYTES * rows // variable.row_bytes)
    return (together, rows, *inner)


def pack(values: Any, shape: Sequence[int], level: int) -> bytes:
    """A chunk as HDF5 stores it: filled up with zeros, bytes of one place together, deflated.

    values: those of the chunk that the dataset has; fewer than ``shape`` where it ends.
    """
    size = values.dtype.itemsize
    shuffled: Any = np.zeros((size, *shape), np.uint8)
    there = tuple(map(slice, values.shape))
    split = np.ascontiguousarray(values).view(np.uint8).reshape(*values.shape, size)
    for place in range(size):  # one by one: NumPy then lets other threads run
        shuffled[place][there] = split[..., place]
    return zlib.compress(shuffled.data, level)
