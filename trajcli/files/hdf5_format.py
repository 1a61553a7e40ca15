"""The bytes of an HDF5 file with very many small groups that are all alike.

HDF5's own calls take some 50 µs for every dataset and attribute; a file of thousands of short
trajectories has tens of thousands of them. Here one group is laid out, and copied for all with
its numbers put in. The format is the oldest and most widely read: superblock 0, symbol tables,
object headers 1 ("HDF5 File Format Specification Version 3.0", sections II to IV).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

UNDEFINED = (1 << 64) - 1
LEAF_K, INTERNAL_K = 4, 16
_NODE = 24 + (2 * INTERNAL_K + 1) * 8 + 2 * INTERNAL_K * 8
_SYMBOLS = 8 + 2 * LEAF_K * 40
_HEAP_MINIMUM = 4096
MOST_OBJECTS = 60_000
"""That one collection numbers."""

Messages = list[tuple[int, bytes]]


def padded(data: bytes) -> bytes:
    """Up to a multiple of eight bytes."""
    return data + bytes(-len(data) % 8)


def datatype(kind: np.dtype[Any]) -> bytes:
    """A datatype message: little-endian floats and integers."""
    size = kind.itemsize
    if kind.kind == "f":
        exponent, mantissa = (8, 23) if size == 4 else (11, 52)
        head = struct.pack("<BBBBI", 0x11, 0x20, 8 * size - 1, 0, size)
        bias = (1 << (exponent - 1)) - 1
        shape = struct.pack("<BBBBI", mantissa, exponent, 0, mantissa, bias)
        return head + struct.pack("<HH", 0, 8 * size) + shape
    signed = 0x08 if kind.kind == "i" else 0
    return struct.pack("<BBBBIHH", 0x10, signed, 0, 0, size, 0, 8 * size)


TEXT = struct.pack("<BBBBI", 0x19, 0x01, 0x01, 0, 16) + datatype(np.dtype("u1"))
"""Strings of any length, UTF-8: HDF5 takes them for lists of bytes."""
REFERENCES = struct.pack("<BBBBI", 0x19, 0, 0, 0, 16) + struct.pack("<BBBBI", 0x17, 0, 0, 0, 8)
"""Lists of references to objects."""


def fixed_text(size: int) -> bytes:
    """Strings of a length, ASCII, that end with a zero."""
    return struct.pack("<BBBBI", 0x13, 0, 0, 0, size)


def dataspace(shape: Sequence[int]) -> bytes:
    """A dataspace message."""
    return struct.pack("<BBBBI", 1, len(shape), 0, 0, 0) + struct.pack(f"<{len(shape)}Q", *shape)


def contiguous(address: int, size: int) -> bytes:
    """A layout message: values in one piece."""
    return struct.pack("<BBQQ", 3, 1, address, size)


NO_FILL = bytes((2, 1, 1, 0))
"""A fill value message: space is there from the start, and nothing is written to it."""


def attribute(name: str, kind: bytes, shape: Sequence[int], value: bytes) -> bytes:
    """An attribute message."""
    raw, space = name.encode() + b"\0", dataspace(shape)
    head = struct.pack("<BBHHH", 1, 0, len(raw), len(kind), len(space))
    return head + padded(raw) + padded(kind) + padded(space) + value


def number_attribute(name: str, value: Any) -> bytes:
    """An attribute that is a number, or an array of numbers."""
    array = np.asarray(value)
    native = array.astype(array.dtype.newbyteorder("<"))
    return attribute(name, datatype(native.dtype), native.shape, native.tobytes())


def object_header(messages: Messages, links: int = 1) -> bytes:
    """An object header, version 1."""
    body = b""
    for kind, data in messages:
        data = padded(data)
        body += struct.pack("<HHBBBB", kind, len(data), 0, 0, 0, 0) + data
    return struct.pack("<BBHIII", 1, 0, len(messages), links, len(body), 0) + body


def superblock(root: int, tree: int, heap: int, end: int) -> bytes:
    """The first 96 bytes."""
    sizes = struct.pack("<8B2HI", 0, 0, 0, 0, 0, 8, 8, 0, LEAF_K, INTERNAL_K, 0)
    places = struct.pack("<4Q", 0, UNDEFINED, end, UNDEFINED)
    entry = struct.pack("<QQIIQQ", 0, root, 1, 0, tree, heap)
    return b"\x89HDF\r\n\x1a\n" + sizes + places + entry


class Space:
    """Addresses given out one after the other, each a multiple of eight."""

    def __init__(self, begin: int) -> None:
        self.end = begin

    def take(self, size: int) -> int:
        """The address of so many bytes."""
        address = self.end
        self.end += size + (-size % 8)
        return address


class Table:
    """The names of a group and where their objects lie: tree, heap and symbol nodes."""

    def __init__(self, names: Sequence[str], space: Space) -> None:
        self._names = sorted((name.encode() for name in names), key=bytes)
        sizes = [len(name) + 1 + (-(len(name) + 1) % 8) for name in self._names]
        self._offsets = np.concatenate([[8], 8 + np.cumsum(sizes, dtype=np.int64)]).tolist()
        self._nodes = _levels(len(self._names))
        self.heap = space.take(32 + self._offsets[-1])
        self._symbols = space.take(_SYMBOLS * self._nodes[0])
        self._trees = [space.take(_NODE * count) for count in self._nodes[1:]]
        self.tree = self._trees[-1]

    def pieces(self, objects: Mapping[str, int]) -> list[tuple[int, bytes]]:
        """Addresses and bytes; objects: address of each name's object."""
        text = bytes(8) + b"".join(padded(name + b"\0") for name in self._names)
        heap = b"HEAP" + struct.pack("<IQQQ", 0, len(text), 1, self.heap + 32) + text
        per_node = 2 * LEAF_K
        symbols = b""
        parts = []
        for begin in range(0, max(len(self._names), 1), per_node):
            names = self._names[begin : begin + per_node]
            entries = b"".join(
                struct.pack("<QQIIQQ", offset, objects[name.decode()], 0, 0, 0, 0)
                for name, offset in zip(names, self._offsets[begin:], strict=False)
            )
            node = b"SNOD" + struct.pack("<BBH", 1, 0, len(names)) + entries
            parts.append(node + bytes(_SYMBOLS - len(node)))
        symbols = b"".join(parts)
        pieces = [(self.heap, heap), (self._symbols, symbols)]
        # the largest name below each child, as its place in the heap
        ends = [
            self._offsets[min(begin + per_node, len(self._names)) - 1]
            for begin in range(0, len(self._names), per_node)
        ]
        children = [self._symbols + _SYMBOLS * k for k in range(self._nodes[0])]
        for level, address in enumerate(self._trees):
            data, ends, children = _tree_nodes(level, address, children, ends)
            pieces.append((address, data))
        return pieces

    def message(self) -> bytes:
        """The symbol table message of the group."""
        return struct.pack("<QQ", self.tree, self.heap)


def _levels(names: int) -> list[int]:
    """How many symbol nodes, then tree nodes of each level up to the one at the top."""
    counts = [max(1, -(-names // (2 * LEAF_K)))]
    while len(counts) == 1 or counts[-1] > 1:
        counts.append(-(-counts[-1] // (2 * INTERNAL_K)))
    return counts


def _tree_nodes(
    level: int, address: int, children: Sequence[int], ends: Sequence[int]
) -> tuple[bytes, list[int], list[int]]:
    """The nodes of a level; and the last names and addresses of these, for the level above."""
    width = 2 * INTERNAL_K
    data, last, places = b"", [], []
    before = 0  # the empty name at the heap's beginning
    count = -(-len(children) // width)
    for k in range(count):
        some = children[k * width : (k + 1) * width]
        names = ends[k * width : (k + 1) * width]
        left = address + _NODE * (k - 1) if k else UNDEFINED
        right = address + _NODE * (k + 1) if k + 1 < count else UNDEFINED
        node = b"TREE" + struct.pack("<BBHQQ", 0, level, len(some) if names else 0, left, right)
        node += struct.pack("<Q", before)
        for child, name in zip(some, names, strict=False):
            node += struct.pack("<QQ", child, name)
        data += node + bytes(_NODE - len(node))
        before = names[-1] if names else 0
        last.append(before)
        places.append(address + _NODE * k)
    return data, last, places


def heap_object(index: int, value: bytes) -> bytes:
    """An object of a global heap; its index numbers it within its collection."""
    return struct.pack("<HHIQ", index, 1, 0, len(value)) + padded(value)


def heap_collection(records: bytes, size: int) -> bytes:
    """A global heap collection of so many bytes around its objects."""
    left = size - 16 - len(records)
    free = struct.pack("<HHIQ", 0, 0, 0, left) if left >= 16 else b""
    head = b"GCOL" + struct.pack("<BBHQ", 1, 0, 0, size)
    return head + records + free + bytes(left - len(free))


def collection_size(records: int) -> int:
    """Bytes of a collection that holds so many bytes of objects."""
    return max(_HEAP_MINIMUM, 16 + records + 16)
