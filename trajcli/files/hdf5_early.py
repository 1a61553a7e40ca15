"""Groups and datasets of HDF5's earliest form, read straight from the file's bytes.

HDF5's own calls take some 70 µs to find a dataset; files of robot data hold tens of thousands,
nearly all of this form: superblock 0, symbol tables, object headers 1 ("HDF5 File Format
Specification Version 3.0", sections II to IV). Every place and length is checked against the file
before it is used. Whatever is not just as expected raises one of ``ODD``: then HDF5 has the word.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

_ENTRY = struct.Struct("<QQII16x")
_MESSAGE = struct.Struct("<HHB3x")
_HEAP = struct.Struct("<5s3xQQQ")
_NODE = struct.Struct("<5sBH")
_CHILD = struct.Struct("<Q8x")
_FIRST = struct.pack("<HH", 17, 16)
"""How the message of a symbol table begins."""
_WINDOW = 4096
_MOST_BLOCKS, _LARGEST_BLOCK = 64, 1 << 20
_LARGEST_HEAP, _LONGEST_NAME = 64 << 20, 4096
_SOFT = 2
_DATASPACE, _DATATYPE, _LAYOUT, _CONTINUED, _TABLE = 1, 3, 8, 16, 17
_OF_DATASETS = (_DATASPACE, _DATATYPE, _LAYOUT)


class NotEarly(ValueError):
    """Something of another form, or damaged."""


ODD = (NotEarly, struct.error, OSError, ValueError, KeyError)
"""What comes of bytes that are not as expected."""


class Early:
    """The objects of an open file, by their addresses."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size
        self._begin, self._window = 0, b""
        block = self._at(0, 96)
        if block[:9] != b"\x89HDF\r\n\x1a\n\0" or block[13:15] != b"\x08\x08":
            raise NotEarly
        if block[24:32] != bytes(8):  # addresses count from the file's beginning
            raise NotEarly
        leaves, inner = struct.unpack_from("<HH", block, 16)
        self._widths = (2 * inner, 2 * leaves)
        (self.root,) = struct.unpack_from("<Q", block, 64)

    def names(self, header: int) -> dict[str, int | None]:
        """What is in a group: the address of every object; None for soft links."""
        head = self._at(header, 40)
        body = head[24:]
        if head[16:20] != _FIRST:  # as HDF5 writes it; others may have it further back
            body = next((each for kind, each in self._messages(header) if kind == _TABLE), b"")
        tree, heap = struct.unpack("<QQ", body)
        mark, size, _, place = _HEAP.unpack(self._at(heap, 32))
        if mark != b"HEAP\0" or size > _LARGEST_HEAP:
            raise NotEarly
        text = self._at(place, size)
        found: dict[str, int | None] = {}
        for node in self._symbols(tree):
            for offset, address, cached, _ in _ENTRY.iter_unpack(node):
                name = text[offset : text.index(b"\0", offset, offset + _LONGEST_NAME)]
                found[name.decode()] = None if cached == _SOFT else address
        return found

    def dataset(
        self, header: int, known: Mapping[bytes, np.dtype[Any]]
    ) -> tuple[tuple[int, ...], np.dtype[Any], int]:
        """Shape, type and place of a dataset whose values lie in the file in one piece.

        known: the types that datatype messages stand for.
        """
        found: dict[int, bytes] = {}
        for kind, body in self._messages(header):
            if kind in _OF_DATASETS:
                found[kind] = body
            if len(found) == len(_OF_DATASETS):
                break
        space, layout = found[_DATASPACE], found[_LAYOUT]
        if space[0] != 1 or layout[:2] != b"\x03\x01":
            raise NotEarly
        shape = struct.unpack_from(f"<{space[1]}Q", space, 8)
        place, size = struct.unpack_from("<QQ", layout, 2)
        dtype = known[found[_DATATYPE]]
        if not shape or size != math.prod(shape) * dtype.itemsize:
            raise NotEarly
        if not 0 < size <= self._size - place:  # values in another file have no place here
            raise NotEarly
        return shape, dtype, place

    def _at(self, place: int, size: int) -> bytes:
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

    def _messages(self, header: int) -> Iterator[tuple[int, bytes]]:
        """Kinds and bodies of an object's messages."""
        version, _, count, _, size = struct.unpack("<BBHII", self._at(header, 12))
        if version != 1:
            raise NotEarly
        blocks = [(header + 16, size)]
        for place, length in blocks:
            if length > _LARGEST_BLOCK or len(blocks) > _MOST_BLOCKS:
                raise NotEarly
            block, at = self._at(place, length), 0
            while at + 8 <= length and count:
                kind, size, flags = _MESSAGE.unpack_from(block, at)
                body = block[at + 8 : at + 8 + size]
                if len(body) < size or (flags & 2 and kind in _OF_DATASETS):
                    raise NotEarly  # cut off, or kept elsewhere
                if kind == _CONTINUED:
                    blocks.append(struct.unpack("<QQ", body))
                yield kind, body
                at += 8 + size
                count -= 1

    def _symbols(self, tree: int) -> Iterator[bytes]:
        """The entries of every symbol node below a tree's node."""
        nodes: list[tuple[int, int | None]] = [(tree, None)]
        left = self._size // _ENTRY.size  # entries there can be: a tree may lead in a circle
        for address, above in nodes:
            mark, level, used = _NODE.unpack(self._at(address, 8))
            if mark != b"TREE\0" or used > self._widths[0]:
                raise NotEarly
            if above is not None and level != above - 1:
                raise NotEarly
            body = self._at(address + 32, 16 * used)
            left -= used
            for (child,) in _CHILD.iter_unpack(body):
                if level:
                    nodes.append((child, level))
                    continue
                mark, _, count = _NODE.unpack(self._at(child, 8))
                left -= count
                if mark != b"SNOD\x01" or count > self._widths[1] or left < 0:
                    raise NotEarly
                yield self._at(child + 8, _ENTRY.size * count)


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
