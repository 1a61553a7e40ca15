"""Small chunked datasets of HDF5's earliest form, unpacked straight from the file's bytes.

HDF5's own calls take half a millisecond to open and read one, most of the time that thousands of
short gzipped demonstrations need. Deflate and shuffle alone; whatever else there is, and whatever
is not just as expected, raises one of ``ODD``: then HDF5 has the word.
"""

from __future__ import annotations

import itertools
import math
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trajcli.files.hdf5_early import (
    DATASPACE,
    DATATYPE,
    FILTERS,
    LAYOUT,
    Early,
    NotEarly,
    require_usual,
    shape_of,
)

_DEFLATE, _SHUFFLE = 1, 2
_HIGHEST_LEVEL = 9
_MOST_ENTRIES = 64
_LARGEST = 1 << 20
"""Bytes; HDF5 keeps unpacked chunks of larger ones at hand, from look to look."""
_NAMES = {_DEFLATE: "gzip", _SHUFFLE: "shuffle"}


@dataclass(frozen=True)
class Chunked:
    """Where the chunks of a dataset lie: ``places`` are file address, size and first corner."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk: tuple[int, ...]
    filters: Sequence[int]
    places: Sequence[tuple[int, int, tuple[int, ...]]]

    @property
    def storage(self) -> str:
        """As people are told it."""
        packing = [_NAMES[each] for each in (_DEFLATE, _SHUFFLE) if each in self.filters]
        return ", ".join([f"chunked {'×'.join(map(str, self.chunk))}", *packing])

    def read(self, at: Callable[[int, int], bytes], start: int, stop: int) -> Any:
        """Rows start..stop along the first axis; at(place, size): bytes of the file."""
        found = np.empty((stop - start, *self.shape[1:]), self.dtype)
        for place, size, corner in self.places:
            first, last = max(corner[0], start), min(corner[0] + self.chunk[0], stop)
            if first >= last:
                continue
            values = self._unpacked(at(place, size))[first - corner[0] : last - corner[0]]
            inside = tuple(
                slice(c, min(c + n, whole))
                for c, n, whole in zip(corner[1:], self.chunk[1:], self.shape[1:], strict=True)
            )
            cut = tuple(slice(0, part.stop - part.start) for part in inside)
            into, of = (slice(first - start, last - start), *inside), (slice(None), *cut)
            found[into] = values[of]
        return found

    def _unpacked(self, data: bytes) -> Any:
        size = math.prod(self.chunk) * self.dtype.itemsize
        for each in reversed(self.filters):
            if each == _DEFLATE:
                stream = zlib.decompressobj()
                data = stream.decompress(data, size + 1)  # one more: so that the sum is checked
                if not stream.eof:
                    raise NotEarly
            elif len(data) == size:
                data = np.frombuffer(data, np.uint8).reshape(self.dtype.itemsize, -1).T.tobytes()
        if len(data) != size:
            raise NotEarly
        return np.frombuffer(data, self.dtype).reshape(self.chunk)


def find_chunks(early: Early, header: int, known: Mapping[bytes, np.dtype[Any]]) -> Chunked:
    """A chunked dataset by the address of its header; known: types by datatype messages."""
    found = dict(early.messages(header))
    require_usual(found)
    layout, shape = found[LAYOUT], shape_of(found[DATASPACE])
    dtype, rank = known[found[DATATYPE]], len(shape)
    if not rank or layout[:3] != bytes((3, 2, rank + 1)):
        raise NotEarly
    (tree,) = struct.unpack_from("<Q", layout, 3)
    *chunk, itemsize = struct.unpack_from(f"<{rank + 1}I", layout, 11)
    bytes_each = math.prod(chunk) * dtype.itemsize
    if itemsize != dtype.itemsize or not 0 < bytes_each <= _LARGEST:
        raise NotEarly
    if not 0 < math.prod(shape) * dtype.itemsize <= _LARGEST:
        raise NotEarly
    filters = _filters(found[FILTERS], itemsize) if FILTERS in found else []
    places = list(_places(early, tree, (*chunk, itemsize)))
    if len(places) != math.prod(-(-n // c) for n, c in zip(shape, chunk, strict=True)):
        raise NotEarly  # some were never written
    corners = itertools.product(*(range(0, n, c) for n, c in zip(shape, chunk, strict=True)))
    if [corner for *_, corner in places] != list(corners):
        raise NotEarly
    if not filters and any(size != bytes_each for _, size, _ in places):
        raise NotEarly
    return Chunked(shape, dtype, tuple(chunk), filters, places)


def _filters(body: bytes, itemsize: int) -> list[int]:
    """The filters that values went through, in order; of these two none twice."""
    version, count, at, found = body[0], body[1], 8, []
    if version != 1:
        raise NotEarly
    for _ in range(count):
        kind, name, _, values = struct.unpack_from("<4H", body, at)
        (value,) = struct.unpack_from("<I", body, at + 8 + name)
        fits = value == itemsize if kind == _SHUFFLE else value <= _HIGHEST_LEVEL
        if kind not in _NAMES or kind in found or name % 8 or values != 1 or not fits:
            raise NotEarly
        found.append(kind)
        at += 8 + name + 8
    return found


def _places(
    early: Early, tree: int, extents: tuple[int, ...]
) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """The chunks of a tree of one node, as small datasets have it; extents: of a chunk, in it."""
    mark, kind, level, used = struct.unpack("<4sBBH", early.at(tree, 8))
    if mark != b"TREE" or kind != 1 or level or not 0 < used <= _MOST_ENTRIES:
        raise NotEarly
    rank = len(extents)
    entry, key = struct.Struct(f"<II{rank}QQ"), struct.Struct(f"<8x{rank}Q")
    end = key.unpack(early.at(tree + 24 + entry.size * used, key.size))
    if any(at % n for at, n in zip(end, extents, strict=True)):
        raise NotEarly
    for size, skipped, *corner, place in entry.iter_unpack(early.at(tree + 24, entry.size * used)):
        if skipped or corner[-1] or not 0 < size <= 2 * _LARGEST or not tuple(corner) < end:
            raise NotEarly
        early.require(place, size)
        yield place, size, tuple(corner[:-1])
