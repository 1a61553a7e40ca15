"""Outputs with a group for every trajectory, as the input has them.

Trajectories of equal length lie side by side in the file, so that they are computed and written
together; each group's datasets point at its share.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from trajcli.errors import Fault, OutputError
from trajcli.files import hdf5_format as hdf5
from trajcli.files.mapping import map_writable
from trajcli.files.outputs import Hdf5Output
from trajcli.files.placing import reserve
from trajcli.files.schema import Schema, Variable

_TAG = 0xF9D7C5E3
"""Marks the places in the model of a group where each group has a number of its own."""
_PAGE = 4096

_Text = tuple[str, str]


class MirroredOutput(Hdf5Output):
    """Schema.groups[k] names the trajectories that variables k/NAME hold, one after the other."""

    @cached_property
    def _by_name(self) -> dict[str, Variable]:
        return {variable.name: variable for variable in self.schema.variables}

    def _prepare(self) -> None:
        descriptor = self._open_at(self._hidden)
        file = _File(self.schema)
        self._put(descriptor, file.data(), 0)
        begin = min(file.offsets.values(), default=0)
        reserve(descriptor, begin, file.end - begin)
        self._places = {name: (descriptor, offset) for name, offset in file.offsets.items()}

    def view(self, name: str) -> Any:
        """A variable as memory; the file is mapped once for all of them."""
        if "" not in self._views:
            whole = map_writable(self._open[0], self._hidden, np.dtype("u1"), 0, (self._end(),))
            self._views[""] = whole
        whole, variable = self._views[""], self._variable(name)
        if whole is None:
            return None
        return np.ndarray(variable.shape, variable.dtype, whole, self._places[name][1])

    def _end(self) -> int:
        return max(at + self._variable(name).nbytes for name, (_, at) in self._places.items())

    def _variable(self, name: str) -> Variable:
        return self._by_name[name]


class _File:
    """All bytes before the values, and where each variable's values lie."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._space = hdf5.Space(96)
        self._pieces: list[tuple[int, bytes]] = []
        self._texts: list[bytes] = []
        names = [name for group in schema.groups for name in group]
        _require_groups(names)
        self._texts_at = self._space.take(self._count_texts())
        self._dof = self._dof_dataset(len(names)) if "dof" in schema.dims else None
        model = _Model(schema, self._dof)
        leaves = self._space.take(len(names) * model.size)
        collections = self._collections(len(names), model)
        self._tables(names, leaves, model.size)
        begin = -(-self._space.end // _PAGE) * _PAGE
        self.offsets: dict[str, int] = {}
        self.end = begin
        for variable in schema.variables:
            self.offsets[variable.name] = begin
            self.end = begin + variable.nbytes
            begin = self.end + (-self.end % 64)
        block = hdf5.superblock(self._root, self._table.tree, self._table.heap, self.end)
        self._pieces += [(0, block), (leaves, model.groups(leaves, collections, self.offsets))]
        self._pieces += model.heaps(leaves, collections)
        self._finish_texts()

    def data(self) -> bytes:
        """The bytes up to the first value."""
        whole = bytearray(max(address + len(data) for address, data in self._pieces))
        for address, data in self._pieces:
            whole[address : address + len(data)] = data
        return bytes(whole)

    def _count_texts(self) -> int:
        """The size of the heap for the texts of root and dof; there are as many as are added."""
        texts = [v for v in self._schema.attributes.values() if isinstance(v, str)]
        texts += list(self._schema.joint_names or ())
        self._texts_size = hdf5.collection_size(
            sum(16 + len(hdf5.padded(text.encode())) for text in texts)
        )
        return self._texts_size

    def _text(self, text: str) -> bytes:
        """The descriptor of a text, which goes to the heap."""
        raw = text.encode()
        self._texts.append(raw)
        return struct.pack("<IQI", len(raw), self._texts_at, len(self._texts))

    def _finish_texts(self) -> None:
        records = b"".join(hdf5.heap_object(k, raw) for k, raw in enumerate(self._texts, 1))
        self._pieces.append((self._texts_at, hdf5.heap_collection(records, self._texts_size)))

    def _dof_dataset(self, count: int) -> int:
        """The dimension of dofs: their names, or only how many; every group links to it."""
        dofs, names = self._schema.dims["dof"], self._schema.joint_names
        mark = f"This is a netCDF dimension but not a netCDF variable.{dofs:10d}"
        kind = hdf5.TEXT if names else struct.pack(
            "<BBBBIHHBBBBI", 0x11, 0x21, 31, 0, 4, 0, 32, 23, 8, 0, 23, 127
        )  # fmt: skip
        values = b"".join(self._text(name) for name in names or ())
        at = self._space.take(len(values)) if values else hdf5.UNDEFINED
        self._pieces += [(at, values)] if values else []
        size = len(values) or 4 * dofs
        messages = _dataset(kind, (dofs,), at, size)
        messages += [(0x0C, text) for text in _scale("dof" if names else mark)]
        data = hdf5.object_header(messages, links=count + 1)
        address = self._space.take(len(data))
        self._pieces.append((address, data))
        return address

    def _collections(self, count: int, model: _Model) -> list[tuple[int, int]]:
        """Address and number of groups of each global heap."""
        per_heap = max(1, hdf5.MOST_OBJECTS // max(1, model.objects))
        found = []
        for begin in range(0, count, per_heap):
            groups = min(per_heap, count - begin)
            found.append((self._space.take(model.heap_size(groups)), groups))
        return found

    def _tables(self, names: Sequence[str], leaves: int, size: int) -> None:
        """The groups above those of the trajectories, and the root."""
        tree: dict[str, Any] = {}
        for k, name in enumerate(names):
            *above, last = name.split("/")
            node = tree
            for part in above:
                node = node.setdefault(part, {})
            node[last] = leaves + k * size
        if self._dof is not None:
            tree["dof"] = self._dof
        self._root, self._table = self._group(tree, self._root_messages())

    def _group(self, tree: Mapping[str, Any], more: hdf5.Messages) -> tuple[int, hdf5.Table]:
        objects = {
            name: self._group(below, [])[0] if isinstance(below, dict) else below
            for name, below in tree.items()
        }
        table = hdf5.Table(list(objects), self._space)
        self._pieces += table.pieces(objects)
        data = hdf5.object_header([(0x11, table.message()), *more])
        address = self._space.take(len(data))
        self._pieces.append((address, data))
        return address, table

    def _root_messages(self) -> hdf5.Messages:
        messages = []
        for name, value in self._schema.attributes.items():
            if isinstance(value, str):
                data = hdf5.attribute(name, hdf5.TEXT, (), self._text(value))
            else:
                data = hdf5.number_attribute(name, value)
            messages.append((0x0C, data))
        return messages


def _require_groups(names: Sequence[str]) -> None:
    known = set(names)
    for name in names:
        above = name.rpartition("/")[0]
        if above in known or name == "dof" or not name:
            what = "a trajectory within another, or without a name"
            raise OutputError(Fault(what, name, hint="--pack writes all into one array"))


def _dataset(kind: bytes, shape: Sequence[int], address: int, size: int) -> hdf5.Messages:
    return [
        (0x01, hdf5.dataspace(shape)),
        (0x03, kind),
        (0x05, hdf5.NO_FILL),
        (0x08, hdf5.contiguous(address, size)),
    ]


def _scale(name: str) -> list[bytes]:
    """The attributes that make a dataset the scale of a dimension."""
    raw = name.encode() + b"\0"
    return [
        hdf5.attribute("CLASS", hdf5.fixed_text(16), (), b"DIMENSION_SCALE\0"),
        hdf5.attribute("NAME", hdf5.fixed_text(len(raw)), (), raw),
    ]


class _Model:
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

    def groups(self, begin: int, collections: Any, offsets: Mapping[str, int]) -> bytes:
        """The bytes of all groups, the first at ``begin``."""
        counts = [len(group) for group in self._schema.groups]
        total = sum(counts)
        block = np.tile(np.frombuffer(self._bytes, np.uint8), (total, 1))
        starts = begin + self.size * np.arange(total)
        classes = np.repeat(np.arange(len(counts)), counts)
        within = np.concatenate([np.arange(n) for n in counts]) if counts else np.zeros(0, int)
        heaps = np.repeat([at for at, _ in collections], [n for _, n in collections])
        numbers = np.concatenate([np.arange(n) for _, n in collections])
        for place, mark in self._fields:
            kind, *what = self._marks[mark]
            if kind == "address":
                values = starts + what[0]
            elif kind == "heap":
                values = heaps
                index = numbers * self.objects + what[0]
                block[:, place + 8 : place + 12] = _bytes_of(index, "<u4")
            else:
                values = self._of_class(kind, what, offsets, classes, within)
            block[:, place : place + 8] = _bytes_of(values, "<u8")
        return block.tobytes()

    def _of_class(
        self, kind: str, what: Any, offsets: Mapping[str, Any], classes: Any, within: Any
    ) -> Any:
        """Extents, places and sizes of values, by the class that a trajectory is of."""
        name = what[0]
        having = [self._named(k, name) for k in range(len(self._schema.groups))]
        if kind == "extent":
            return np.array([v.shape[1 + what[1]] for v in having])[classes]
        sizes = np.array([v.nbytes // max(1, v.shape[0]) for v in having])
        if kind == "size":
            return sizes[classes]
        firsts = np.array([offsets[v.name] for v in having])
        return firsts[classes] + sizes[classes] * within

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
        messages = _dataset(hdf5.datatype(variable.dtype), shape, address, size)
        if name == "time":
            messages += [(0x0C, data) for data in _scale("time")]
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
