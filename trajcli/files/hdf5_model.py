"""One group of datasets as bytes, and the same for every trajectory with its own numbers."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from trajcli.files import hdf5_format as hdf5
from trajcli.files.schema import Schema, Variable

_TAG = 0xF9D7C5E3
"""Marks the places in the model of a group where each group has a number of its own."""
_AT_ONCE = 256
"""Groups that are filled in together: they fit in a processor's cache."""


def dataset_messages(kind: bytes, shape: Sequence[int], address: int, size: int) -> hdf5.Messages:
    return [
        (0x01, hdf5.dataspace(shape)),
        (0x03, kind),
        (0x05, hdf5.NO_FILL),
        (0x08, hdf5.contiguous(address, size)),
    ]


def scale_attributes(name: str) -> list[bytes]:
    """The attributes that make a dataset the scale of a dimension."""
    raw = name.encode() + b"\0"
    return [
        hdf5.attribute("CLASS", hdf5.fixed_text(16), (), b"DIMENSION_SCALE\0"),
        hdf5.attribute("NAME", hdf5.fixed_text(len(raw)), (), raw),
    ]


class Model:
    """One trajectory's group, with marks where others have other numbers.

    A mark is a number whose upper half is the tag: below it stands which number goes there.
    """

    def __init__(self, schema: Schema, dof: int | None) -> None:
        self._schema = schema
        self._variables = [v for v in schema.variables if v.name.startswith("0/")]
        self._by_name = {v.name: v for v in schema.variables}
        self._marks: list[tuple[Any, ...]] = []
        self._heap = b""
        self._heap_fields: list[tuple[int, str, int]] = []  # place, index or address, number
        self.objects = 0
        self._dof = dof
        self._bytes = self._group()
        self.size = len(self._bytes)
        self._fields = _marked(self._bytes)

    def heap_size(self, groups: int) -> int:
        """Bytes of the heap of so many groups."""
        return hdf5.collection_size(groups * len(self._heap))

    def groups(
        self, begin: int, collections: Any, offsets: Mapping[str, int]
    ) -> Iterator[tuple[int, Any]]:
        """Address and bytes of some groups, and the next, the first at ``begin``."""
        counts = [len(group) for group in self._schema.groups]
        classes = np.repeat(np.arange(len(counts)), counts)
        within = np.concatenate([np.arange(n) for n in counts]) if counts else np.zeros(0, int)
        heaps = np.repeat([at for at, _ in collections], [n for _, n in collections])
        numbers = np.concatenate([np.arange(n) for _, n in collections])
        tables = {mark: self._by_class(self._marks[mark], offsets) for _, mark in self._fields}
        for first in range(0, len(classes), _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            count = len(classes[some])
            block = np.tile(np.frombuffer(self._bytes, np.uint8), (count, 1))
            starts = begin + self.size * (first + np.arange(count))
            for place, mark in self._fields:
                kind, *what = self._marks[mark]
                if kind == "address":
                    values = starts + what[0]
                elif kind == "heap":
                    values = heaps[some]
                    index = numbers[some] * self.objects + what[0]
                    block[:, place + 8 : place + 12] = _bytes_of(index, "<u4")
                else:
                    values, step = (table[classes[some]] for table in tables[mark])
                    values = values + step * within[some]
                block[:, place : place + 8] = _bytes_of(values, "<u8")
            yield begin + self.size * first, block

    def _by_class(self, mark: tuple[Any, ...], offsets: Mapping[str, int]) -> tuple[Any, Any]:
        """Extents, sizes and places of values by length: of the first trajectory, and how much
        more of each that follows."""
        kind, name = mark[0], str(mark[1]) if len(mark) > 1 else ""
        count = len(self._schema.groups)
        still = np.zeros(count, int)
        if kind in ("address", "heap"):
            return still, still
        having = [self._named(k, name) for k in range(count)]
        if kind == "extent":
            return np.array([v.shape[1 + mark[2]] for v in having]), still
        sizes = np.array([v.nbytes // max(1, v.shape[0]) for v in having])
        if kind == "size":
            return sizes, still
        return np.array([offsets[v.name] for v in having]), sizes

    def _named(self, k: int, name: str) -> Variable:
        return self._by_name[f"{k}/{name}"]

    def heaps(self, begin: int, collections: Any) -> list[tuple[int, bytes]]:
        """Address and bytes of every global heap."""
        found, first = [], 0
        for address, count in collections:
            block = np.tile(np.frombuffer(self._heap, np.uint8), (count, 1))
            starts = begin + self.size * (first + np.arange(count))
            for place, kind, number in self._heap_fields:
                if kind == "index":
                    numbers = np.arange(count) * self.objects + number
                    block[:, place : place + 2] = _bytes_of(numbers, "<u2")
                else:
                    block[:, place : place + 8] = _bytes_of(starts + number, "<u8")
            size = self.heap_size(count)
            found.append((address, hdf5.heap_collection(block.tobytes(), size)))
            first += count
        return found

    def _mark(self, *what: Any) -> int:
        self._marks.append(what)
        return _TAG << 32 | len(self._marks) - 1

    def _group(self) -> bytes:
        names = [v.name.removeprefix("0/") for v in self._variables]
        linked = [*names, "dof"] if self._dof is not None else names
        space = hdf5.Space(0)
        header = space.take(40)
        table = hdf5.Table(linked, space)
        self._places: dict[str, int] = {}
        for name in sorted(names, key=lambda name: name != "time"):  # the scale comes first
            variable = self._named(0, name)
            self._places[name] = space.end
            size = len(hdf5.object_header(self._messages(variable, dry=True)))
            space.take(size)
        objects = {name: self._mark("address", at) for name, at in self._places.items()}
        pieces = table.pieces({**objects, "dof": self._dof or 0})
        message = struct.pack(
            "<QQ", self._mark("address", table.tree), self._mark("address", table.heap)
        )
        pieces = [(at, self._relocated(data)) for at, data in pieces]
        pieces.append((header, hdf5.object_header([(0x11, message)])))
        for name, at in self._places.items():
            messages = self._messages(self._named(0, name))
            pieces.append((at, hdf5.object_header(messages)))
        whole = bytearray(space.end)
        for at, data in pieces:
            whole[at : at + len(data)] = data
        return bytes(whole)

    def _relocated(self, data: bytes) -> bytes:
        """A tree or heap built at address 0, its addresses within the group marked."""
        changed = bytearray(data)
        kind = data[:4]
        if kind == b"HEAP":
            places = [24]
        elif kind == b"TREE":
            places = [32 + 16 * k for k in range(struct.unpack_from("<H", data, 6)[0])]
        else:
            places = []
        for place in places:
            (address,) = struct.unpack_from("<Q", data, place)
            struct.pack_into("<Q", changed, place, self._mark("address", address))
        return bytes(changed)

    def _messages(self, variable: Variable, dry: bool = False) -> hdf5.Messages:
        """Those of a dataset; ``dry``: only to know how long they are."""
        name = variable.name.removeprefix("0/")
        shape = [self._mark("extent", name, axis) for axis in range(len(variable.shape) - 1)]
        address, size = self._mark("data", name), self._mark("size", name)
        messages = dataset_messages(hdf5.datatype(variable.dtype), shape, address, size)
        if name == "time":
            messages += [(0x0C, data) for data in scale_attributes("time")]
        elif len(shape):
            lists = b"".join(self._dimension(dim, dry) for dim in variable.dims[1:])
            value = hdf5.attribute("DIMENSION_LIST", hdf5.REFERENCES, (len(shape),), lists)
            messages.append((0x0C, value))
        for label, text in variable.attributes.items():
            raw = str(text).encode()
            value = self._described(raw, len(raw), dry)
            messages.append((0x0C, hdf5.attribute(label, hdf5.TEXT, (), value)))
        return messages

    def _dimension(self, dim: str, dry: bool) -> bytes:
        """The list of scales of a dimension: the one there is."""
        scale = self._dof if dim == "dof" else self._places["time"]
        refers_to = None if dim == "dof" else self._places["time"]
        return self._described(struct.pack("<Q", scale or 0), 1, dry, refers_to)

    def _described(self, raw: bytes, length: int, dry: bool, refers_to: int | None = None) -> bytes:
        """The descriptor of a list or text in the heap; refers_to: an address in the group."""
        if not dry:
            self.objects += 1
            place = len(self._heap)
            self._heap_fields.append((place, "index", self.objects))
            if refers_to is not None:
                self._heap_fields.append((place + 16, "address", refers_to))
            self._heap += hdf5.heap_object(0, raw)
        return struct.pack("<IQI", length, self._mark("heap", self.objects), 0)


def _bytes_of(values: Any, kind: str) -> Any:
    """Numbers [n] as bytes [n, size]."""
    return values.astype(kind).reshape(-1, 1).view(np.uint8)


def _marked(data: bytes) -> list[tuple[int, int]]:
    """The marks in a model: their places and numbers."""
    tag = struct.pack("<I", _TAG)
    found, at = [], data.find(tag)
    while at >= 0:
        found.append((at - 4, struct.unpack_from("<I", data, at - 4)[0]))
        at = data.find(tag, at + 1)
    return found
