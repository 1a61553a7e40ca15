"""Outputs with a group for every trajectory, as the input has them.

Trajectories of equal length lie side by side in the file, so that they are computed and written
together; each group's datasets point at its share.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trajcli.errors import Fault, OutputError
from trajcli.files import hdf5_format as hdf5
from trajcli.files.hdf5_model import Model, dataset_messages, scale_attributes
from trajcli.files.outputs import Hdf5Output
from trajcli.files.placing import reserve
from trajcli.files.schema import Schema

_PAGE = 4096

_Text = tuple[str, str]


class MirroredOutput(Hdf5Output):
    """Schema.groups[k] names the trajectories that variables k/NAME hold, one after the other."""

    def _prepare(self) -> None:
        descriptor = self._open_at(self._hidden)
        file = _File(self.schema)
        os.ftruncate(descriptor, 0)  # a killed run may have left more
        reserve(descriptor, 0, file.end)
        for address, data in file.pieces():
            self._put(descriptor, data, address)
        self._places = {name: (descriptor, offset) for name, offset in file.offsets.items()}


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
        model = Model(schema, self._dof)
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
        self._pieces.append((0, block))
        self._finish_texts()
        self._leaves = (model, leaves, collections)

    def pieces(self) -> Iterator[tuple[int, Any]]:
        """Addresses and bytes of all that comes before the first value."""
        yield from self._pieces
        model, leaves, collections = self._leaves
        yield from model.groups(leaves, collections, self.offsets)
        yield from model.heaps(leaves, collections)

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
        messages = dataset_messages(kind, (dofs,), at, size)
        messages += [(0x0C, text) for text in scale_attributes("dof" if names else mark)]
        data = hdf5.object_header(messages, links=count + 1)
        address = self._space.take(len(data))
        self._pieces.append((address, data))
        return address

    def _collections(self, count: int, model: Model) -> list[tuple[int, int]]:
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
