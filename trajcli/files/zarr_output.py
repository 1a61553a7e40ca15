"""Zarr outputs, version 3: groups and arrays as in HDF5, in chunks of whole trajectories.

A chunk is a file of plain values, so that no library is needed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.files.atomic_output import reserve
from trajcli.files.outputs import Output
from trajcli.files.refusals import ZARR_NODE, os_failures
from trajcli.files.schema import Schema, Variable, padded
from trajcli.files.zarr_nodes import array_node, group_node, require_folders, string_chunk

_CHUNK_BYTES = 4 << 20


class ZarrStore:
    """A store in a folder, with all arrays of a schema, and all or some of its trajectories.

    numbers: which these are, for each of their lengths.
    """

    def __init__(self, root: Path, schema: Schema, numbers: Sequence[Any] = ()) -> None:
        self._root, self._schema = root, schema
        self._variables = {variable.name: variable for variable in schema.variables}
        self._grouped, self._together = schema.kind == "groups", trajectories_per_chunk(schema)
        every = [group.numbers for group in schema.groups]
        self._numbers = list(numbers) or every or [np.arange(schema.dims.get("trajectory", 1))]
        pairs = (zip(g.numbers.tolist(), g.names, strict=True) for g in schema.groups)
        self._names = {number: name for group in pairs for number, name in group}

    def make(self) -> None:
        """Make the folder, all metadata, and the chunks of these trajectories with their space."""
        schema, mine = self._schema, np.concatenate([np.asarray(n) for n in self._numbers])
        self._make_node("", group_node(schema.attributes))
        for dim, names in (("dof", schema.joint_names), ("trajectory", schema.trajectory_names)):
            if names:
                self._make_node(dim, array_node("string", [dim], [len(names)], [len(names)]))
                (self._root / dim / chunk_name(1)).write_bytes(string_chunk(names))
        chunks = np.unique(mine // self._together).tolist()
        for variable in schema.variables:
            if not (self._grouped and variable.by_trajectory):
                self._make_variable(variable.name, variable, variable.shape, chunks)
        for k, group in enumerate(schema.groups if self._grouped else ()):
            names = [self._names[n] for n in np.intersect1d(mine, group.numbers).tolist()]
            require_folders(names)
            for variable in (v for v in schema.variables if v.by_trajectory):
                shape = schema.in_group(variable, k).shape[1:]
                for name in names:
                    self._make_variable(f"{name}/{variable.name}", variable, shape, [0])
        for folder, _, files in os.walk(self._root):  # what is above arrays
            if ZARR_NODE not in files:
                self._make_node(os.path.relpath(folder, self._root), group_node({}))

    def _make_variable(
        self, path: str, of: Variable, shape: Sequence[int], chunks: Sequence[int]
    ) -> None:
        """An array, and of one by trajectory the files of these chunks along the first axis."""
        chunk = [max(1, n) for n in shape]
        if of.by_trajectory and not self._grouped:
            chunk[0] = self._together
        dims = of.dims[len(of.dims) - len(shape) :]
        self._make_node(path, array_node(of.dtype.name, dims, shape, chunk, of.attributes))
        for number in chunks if of.by_trajectory and of.nbytes else ():
            place = self._root / path / chunk_name(len(shape), number)
            place.touch()
            reserve(place, math.prod(chunk) * of.dtype.itemsize)

    def _make_node(self, path: str, node: str) -> None:
        (self._root / path).mkdir(parents=True, exist_ok=True)
        (self._root / path / ZARR_NODE).write_text(node, encoding="utf-8")

    def write(self, name: str, row: int, block: Any, group: int = 0) -> None:
        """Entries row, row + 1, … of a variable, of the trajectories of one length."""
        variable = self._variables[name]
        values = np.ascontiguousarray(block, variable.dtype.newbyteorder("<"))
        if not variable.by_trajectory:
            (self._root / name / chunk_name(len(variable.shape))).write_bytes(values.tobytes())
            return
        for path, at, part in self._parts(variable, row, values, group) if values.size else ():
            with open(self._root / path, "r+b") as file:
                file.seek(at)
                file.write(np.ascontiguousarray(part).data)

    def _parts(
        self, variable: Variable, row: int, values: Any, group: int
    ) -> Iterator[tuple[str, int, Any]]:
        """The chunks that values of trajectories go to, from which byte on, and their part."""
        numbers = np.asarray(self._numbers[group][row : row + len(values)])
        if self._grouped:
            for number, one in zip(numbers.tolist(), values, strict=True):
                yield f"{self._names[number]}/{variable.name}/{chunk_name(one.ndim)}", 0, one
            return
        values = padded(values, variable.shape[1:])
        ends = np.flatnonzero((np.diff(numbers) != 1) | (numbers[1:] % self._together == 0)) + 1
        for begin, end in pairwise([0, *ends.tolist(), len(numbers)]):
            chunk, inside = divmod(int(numbers[begin]), self._together)
            path = f"{variable.name}/{chunk_name(len(variable.shape), chunk)}"
            yield path, inside * variable.row_bytes, values[begin:end]


class ZarrOutput(Output):
    """A store of its own."""

    @cached_property
    def _store(self) -> ZarrStore:
        return ZarrStore(self._hidden.data, self.schema)

    def _prepare(self) -> None:
        self._store.make()

    def _open_files(self) -> None:
        """Chunks are opened as they are written."""

    def write(self, name: str, row: int, block: Any, group: int = 0) -> None:
        """Entries row, row + 1, … of a variable."""
        with os_failures(self.path):
            self._store.write(name, row, block, group)

    def place(self, *_: Any) -> None:
        """None: entries lie in several files."""


def trajectories_per_chunk(schema: Schema) -> int:
    """How many of the largest variable make about 4 MiB: of all variables the same number."""
    sizes = [v.row_bytes for v in schema.variables if v.by_trajectory]
    if schema.kind == "groups" or not sizes:
        return 1
    return max(1, min(schema.dims.get("trajectory", 1), _CHUNK_BYTES // max(1, *sizes)))


def chunk_name(ndim: int, number: int = 0) -> str:
    """The file of a chunk of an array with so many axes: which it is along the first one."""
    return ".".join(["c", *[str(number), *"0" * (ndim - 1)][:ndim]])
