"""Groups and datasets of HDF5's earliest form, read straight from the file's bytes.

HDF5's own calls take some 70 µs to find a dataset; files of robot data hold tens of thousands,
nearly all of this form: superblock 0, symbol tables, object headers 1 ("HDF5 File Format
Specification Version 3.0", sections II to IV). Every place and length is checked against the file
before it is used, and so is what HDF5 would refuse or fail to find. Whatever is not just as
expected raises one of ``ODD``: then HDF5 has the word.
"""

from __future__ import annotations

import math
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

_ENTRY = struct.Struct("<QQII16x")
_MESSAGE = struct.Struct("<HHB3x")
_HEAP = struct.Struct("<5s3xQQQ")
_NODE = struct.Struct("<5sBH")
_WINDOW = 8192
_MOST_BLOCKS, _LARGEST_BLOCK = 64, 1 << 20
_LARGEST_HEAP, _LONGEST_NAME = 64 << 20, 4096
_MOST_FREE, _NO_MORE = 1024, 1
_SOFT = 2

DATASPACE, DATATYPE, LAYOUT, FILTERS = 1, 3, 8, 11
_FILL, _CONTINUED, _TABLE, _LAST_KIND = 5, 16, 17, 23
_USUAL = {0, DATASPACE, DATATYPE, _FILL, LAYOUT, FILTERS, 12, 13, 14, _CONTINUED, 18, 21}
"""With nothing, attributes, comments and times of change."""


class NotEarly(ValueError):
    """Something of another form, or damaged."""


ODD = (NotEarly, struct.error, OSError, ValueError, KeyError, OverflowError, zlib.error)
"""What comes of bytes that are not as expected."""


class Early:
    """The objects of an open file, by their addresses."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size
        self._begin, self._window = 0, b""
        self._like: Alike | None = None
        block = self.at(0, 96)
        if block[:9] != b"\x89HDF\r\n\x1a\n\0" or block[13:15] != b"\x08\x08":
            raise NotEarly
        if block[24:32] != bytes(8):  # addresses count from the file's beginning
            raise NotEarly
        leaves, inner = struct.unpack_from("<HH", block, 16)
        self._widths = (2 * inner, 2 * leaves)
        end, self.root = struct.unpack_from("<Q16xQ", block, 40)
        self._size = min(self._size, end)

    def names(self, header: int) -> dict[str, int | None]:
        """What is in a group: the address of every object; None for soft links."""
        tables = [body for kind, body in self.messages(header) if kind == _TABLE]
        if len(tables) != 1:
            raise NotEarly
        tree, heap = struct.unpack("<QQ", tables[0])
        text = self._heap(heap)

        def name_at(offset: int) -> bytes:
            return text[offset : text.index(b"\0", offset, offset + _LONGEST_NAME)]

        found: dict[str, int | None] = {}
        before = b""
        for node, low, high in self._symbols(tree):
            least, most = name_at(low), name_at(high)
            for offset, address, cached, _ in _ENTRY.iter_unpack(node):
                name = name_at(offset)
                if not before < name or not least < name <= most or cached > _SOFT:
                    raise NotEarly  # HDF5 would look for it elsewhere
                found[name.decode()] = None if cached == _SOFT else address
                before = name
        return found

    def _heap(self, address: int) -> bytes:
        """The names of a group."""
        mark, size, free, place = _HEAP.unpack(self.at(address, 32))
        if mark != b"HEAP\0" or size > _LARGEST_HEAP:
            raise NotEarly
        text = self.at(place, size)
        for _ in range(_MOST_FREE):
            if free == _NO_MORE:
                return text
            begin = free
            free, length = struct.unpack_from("<QQ", text, begin)
            if begin + length > size:
                break
        raise NotEarly

    def dataset(
        self, header: int, known: Mapping[bytes, np.dtype[Any]]
    ) -> tuple[tuple[int, ...], np.dtype[Any], int]:
        """Shape, type and place of a dataset whose values lie in the file in one piece.

        known: the types that datatype messages stand for.
        """
        if self._like is not None:
            alike = self._like.read(self.at(header, self._like.size))
            if alike is not None:
                return self._inside(*alike)
        found = dict(self.messages(header))
        require_usual(found)
        space, layout = found[DATASPACE], found[LAYOUT]
        if layout[:2] != b"\x03\x01" or FILTERS in found:
            raise NotEarly
        shape = shape_of(space)
        place, size = struct.unpack_from("<QQ", layout, 2)
        dtype = known[found[DATATYPE]]
        if self._like is None and _CONTINUED not in found:
            whole = 16 + struct.unpack("<8xI", self.at(header, 12))[0]
            self._like = Alike.of(self.at(header, whole), dtype)
        return self._inside(shape, dtype, place, size)

    def _inside(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], place: int, size: int
    ) -> tuple[tuple[int, ...], np.dtype[Any], int]:
        """The same without the size, which must be right and in the file."""
        if not shape or size != math.prod(shape) * dtype.itemsize:
            raise NotEarly
        if not 0 < size <= self._size - place:  # values in another file have no place here
            raise NotEarly
        return shape, dtype, place

    def at(self, place: int, size: int) -> bytes:
        """So many bytes of the file."""
        begin = place - self._begin
        if begin < 0 or begin + size > len(self._window):
            if place + size > self._size:
                raise NotEarly
            self._begin, begin = place, 0
            self._window = os.pread(self._descriptor, max(size, _WINDOW), place)
            if len(self._window) < size:
                raise NotEarly
        return self._window[begin : begin + size]

    def close(self) -> None:
        """Read no more: the number of the open file may soon be another's."""
        self._descriptor, self._window = -1, b""

    def require(self, place: int, size: int) -> None:
        """Raise NotEarly where so many bytes are not in the file."""
        if place + size > self._size:
            raise NotEarly

    def messages(self, header: int) -> Iterator[tuple[int, bytes]]:
        """Kinds and bodies of an object's messages."""
        version, _, left, _, size = struct.unpack("<BBHII", self.at(header, 12))
        if version != 1:
            raise NotEarly
        blocks = [(header + 16, size)]
        for place, length in blocks:
            if length > _LARGEST_BLOCK or len(blocks) > _MOST_BLOCKS:
                raise NotEarly
            block, at = self.at(place, length), 0
            while at < length:
                kind, size, flags = _MESSAGE.unpack_from(block, at)
                body = block[at + 8 : at + 8 + size]
                # cut off, kept elsewhere, unknown
                if len(body) < size or size % 8 or flags > 1 or kind > _LAST_KIND:
                    raise NotEarly
                if kind == _CONTINUED:
                    blocks.append(struct.unpack("<QQ", body))
                yield kind, body
                at += 8 + size
                left -= 1
        if left:
            raise NotEarly

    def _symbols(self, tree: int) -> Iterator[tuple[bytes, int, int]]:
        """The entries of every symbol node below a tree's node, and the names around them."""
        nodes: list[tuple[int, int | None]] = [(tree, None)]
        left = self._size // _ENTRY.size  # entries there can be: a tree may lead in a circle
        for address, above in nodes:
            mark, level, used = _NODE.unpack(self.at(address, 8))
            if mark != b"TREE\0" or used > self._widths[0]:
                raise NotEarly
            if above is not None and level != above - 1:
                raise NotEarly
            self.require(address, 32 + 16 * self._widths[0])
            body = struct.unpack(f"<{2 * used + 1}Q", self.at(address + 24, 16 * used + 8))
            left -= used
            for k, child in enumerate(body[1::2]):
                if level:
                    nodes.append((child, level))
                    continue
                self.require(child, 8 + _ENTRY.size * self._widths[1])
                mark, _, count = _NODE.unpack(self.at(child, 8))
                left -= count
                if mark != b"SNOD\x01" or count > self._widths[1] or left < 0:
                    raise NotEarly
                yield self.at(child + 8, _ENTRY.size * count), body[2 * k], body[2 * k + 2]


def require_usual(messages: Mapping[int, bytes]) -> None:
    """Raise NotEarly for a dataset of other messages, or a fill value HDF5 might refuse."""
    fill = messages.get(_FILL, b"\2\1\0\0")
    known = fill[0] == 2 and 1 <= fill[1] <= 3 and fill[2] <= 2 and fill[3] <= 1
    if not known or not messages.keys() <= _USUAL:
        raise NotEarly
    if fill[3] and struct.unpack_from("<I", fill, 4)[0] > len(fill) - 8:
        raise NotEarly


def shape_of(space: bytes) -> tuple[int, ...]:
    """The shape in a dataspace message."""
    version, rank, limited = space[:3]
    if version != 1 or limited > 1:
        raise NotEarly
    shape: tuple[int, ...] = struct.unpack_from(f"<{rank}Q", space, 8)
    most = struct.unpack_from(f"<{rank}Q", space, 8 + 8 * rank) if limited else shape
    if most != shape and any(n > limit for n, limit in zip(shape, most, strict=True)):
        raise NotEarly
    return shape


@dataclass(frozen=True)
class Alike:
    """A dataset's header, to know those that differ from it in extents and place alone.

    ``extents`` and ``place`` say where these are; ``rest`` is all else.
    """

    size: int
    dtype: np.dtype[Any]
    rank: int
    extents: slice
    place: int
    rest: bytes

    @staticmethod
    def of(data: bytes, dtype: np.dtype[Any]) -> Alike:
        """That of a dataset whose header this is, all in one piece."""
        rank, extents, place, at = 0, slice(0), 0, 16
        while at < len(data):
            kind, size, _ = _MESSAGE.unpack_from(data, at)
            at += 8
            if kind == DATASPACE:
                rank = data[at + 1]
                extents = slice(at + 8, at + 8 + 8 * rank * (1 + data[at + 2]))
            elif kind == LAYOUT:
                place = at + 2
            at += size
        rest = data[: extents.start] + data[extents.stop : place] + data[place + 16 :]
        return Alike(len(data), dtype, rank, extents, place, rest)

    def read(self, data: bytes) -> tuple[tuple[int, ...], np.dtype[Any], int, int] | None:
        """Shape, type, place and size of another; None where more than these differ."""
        extents, place = self.extents, self.place
        if data[: extents.start] + data[extents.stop : place] + data[place + 16 :] != self.rest:
            return None
        numbers = struct.unpack(f"<{(extents.stop - extents.start) // 8}Q", data[extents])
        shape = numbers[: self.rank]
        if numbers[self.rank :] not in ((), shape):
            return None
        begin, size = struct.unpack_from("<QQ", data, place)
        return shape, self.dtype, begin, size


def types(h5py: Any) -> dict[bytes, np.dtype[Any]]:
    """The numbers of at most eight bytes, by what datatype messages say of them."""
    kinds = [f"{order}{kind}" for kind in ("f2", "f4", "f8", "i1", "i2", "i4", "i8")
             for order in "<>"]  # fmt: skip
    kinds += [f"{order}u{size}" for size in (1, 2, 4, 8) for order in "<>"]
    found = {}
    for kind in kinds:
        dtype = np.dtype(kind)
        message = h5py.h5t.py_create(dtype).encode()[2:]
        found[message + bytes(-len(message) % 8)] = dtype
    return found
