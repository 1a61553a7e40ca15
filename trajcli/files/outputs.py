"""Writing outputs: in a hidden folder beside OUT, renamed last.

Whatever ends the process, OUT is absent, the old one, or complete; see :mod:`.atomic_output`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import zipfile
import zlib
from abc import ABC, abstractmethod
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from trajcli.files.atomic_output import HiddenFolder, reserve
from trajcli.files.refusals import (
    PROVENANCE,
    os_failures,
    require_space,
)
from trajcli.files.schema import Schema, Variable, plain_value


class Output(ABC):
    """An output being written. ``finish`` makes it appear; the end of its context, or ``discard``,
    removes what is not finished.

    ``group`` numbers the length of the trajectories that are written, where they are of several
    (:attr:`Schema.groups`); ``row`` then counts those of this length.
    """

    def __init__(self, path: Path, schema: Schema, level: int | None = None) -> None:
        """level: of deflate, where values are compressed."""
        self.path, self.schema, self.level = path, schema, level
        self.notes: list[str] = []
        """Remarks about a complete output."""
        self.inputs: list[str] = []
        """The inputs that a part of a run lists, set before it is finished."""
        self._variables = {variable.name: variable for variable in schema.variables}
        self._descriptors: dict[str, int] = {}
        self._addresses: dict[tuple[str, int], npt.NDArray[np.int64]] = {}
        """By name and group: the byte at which a packed variable begins, or of each trajectory in
        a group of its own."""
        self._open: list[int] = []

    def begin(self, overwrite: bool) -> None:
        """Make the hidden folder and write what is known before the values."""
        self._hidden = HiddenFolder(self.path, overwrite)
        try:
            with os_failures(self.path):
                self._hidden.make()
                require_space(self.path, self.schema.nbytes)
                self._prepare()
                names, data = (name for name, _ in self._addresses), self._hidden.data
                opened = dict.fromkeys(names, self._open_file(data))
                self._descriptors = opened | self._descriptors
                self._write_known()
        except BaseException:
            self.discard()
            raise

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    @abstractmethod
    def _prepare(self) -> None:
        """Make the file with all that is not streamed, reserve its space, and set the addresses of
        every variable, and the descriptors of those that wait in another file."""

    def write(self, name: str, row: int, block: Any, group: int = 0) -> None:
        """Entries row, row + 1, … of a variable."""
        variable = self._variables[name]
        values = np.ascontiguousarray(block, variable.dtype)
        if not values.size:
            return
        size = variable.row_bytes
        if not (self.schema.groups and variable.by_trajectory):  # they follow each other
            at = int(self._addresses[name, 0][0]) + row * size
            self._put(self._descriptors[name], values, at)
            return
        rows = slice(row, row + len(values))
        addresses, size = self._addresses[name, group][rows], values.nbytes // len(values)
        ends = np.flatnonzero(np.diff(addresses) != size) + 1
        for begin, end in pairwise([0, *ends.tolist(), len(values)]):
            self._put(self._descriptors[name], values[begin:end], int(addresses[begin]))

    def write_time(self, row: int, count: int, times: Any, group: int = 0) -> None:
        """Times [count or 1, T] of so many trajectories; what all share is written once."""
        variable = self._variables.get("time")
        if variable is None:
            return
        if variable.by_trajectory:
            self.write("time", row, np.broadcast_to(times, (count, times.shape[-1])), group)
        elif row == 0 and times.shape[-1] == variable.shape[0]:
            self.write("time", 0, times[0])

    def place(self, name: str, row: int, group: int = 0) -> tuple[int, int] | None:
        """The file descriptor and byte where all entries of a variable lie from ``row`` on, one
        after the other, for kernels that write into the file. None where they do
        not: ``write`` finds their places."""
        addresses = self._addresses[name, group]
        size = self.schema.in_group(self._variables[name], group).row_bytes
        if int(addresses[-1] - addresses[0]) != size * (len(addresses) - 1):
            return None
        return self._descriptors[name], int(addresses[0]) + row * size

    def _put(self, descriptor: int, values: Any, at: int) -> None:
        """Bytes of the output in their place in a file."""
        view = memoryview(values).cast("B")
        with os_failures(self.path):
            while view:
                written = os.pwrite(descriptor, view[: 1 << 30], at)
                view, at = view[written:], at + written

    def _write_known(self) -> None:
        """Write the variables whose values the schema has."""
        for variable in self.schema.variables:
            if variable.values is None:
                continue
            if not (variable.by_trajectory and self.schema.groups):
                self.write(variable.name, 0, np.reshape(variable.values, variable.shape or 1))
                continue
            for k, group in enumerate(self.schema.groups):
                self.write(variable.name, 0, variable.values[group.numbers], k)

    def finish(self) -> None:
        """Complete the output and give it its name."""
        with os_failures(self.path):
            self._complete()
            self._close()
            self._hidden.publish()
        for path in self._hidden.close():
            self.notes.append(f"{path} could not be removed; nothing needs it")

    def discard(self) -> None:
        """Remove everything that is not finished."""
        while self._open:
            with contextlib.suppress(OSError):
                self._close()
        self._hidden.close()

    def _complete(self) -> None:  # noqa: B027
        """What remains to be done once all blocks are written."""

    def _close(self) -> None:
        while self._open:
            os.close(self._open.pop())

    def _open_file(self, path: Path) -> int:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        self._open.append(descriptor)
        return descriptor


class NpzOutput(Output):
    """An uncompressed .npz archive, where each array has its place from the start.

    Trajectories of unequal length have members of their own, named as groups of HDF5 would be:
    ``data/demo_0/position``.
    """

    def _prepare(self) -> None:
        with open(self._hidden.data, "xb+") as file:
            self._write_heads(file)
            reserve(self._hidden.data, file.tell())

    def _write_heads(self, file: BinaryIO) -> list[zipfile.ZipInfo]:
        """What each member begins with, its checksum as of now; up to the end of the last one."""
        members = []
        for variable in self.schema.variables:
            grouped = self.schema.groups if variable.by_trajectory else ()
            for k, group in enumerate(grouped or [None]):
                stored, names = variable, [variable.name]
                if group is not None:  # each trajectory has a member of its own
                    stored = self.schema.in_group(variable, k)
                    stored = replace(stored, dims=stored.dims[1:], shape=stored.shape[1:])
                    names = [f"{name}/{variable.name}" for name in group.names]
                head, places = _npy_header(stored), []
                for name in names:
                    begin = file.tell()
                    member = zipfile.ZipInfo(f"{name}.npy")  # dated 1980: same input, same bytes
                    member.header_offset, member.external_attr, member.CRC = begin, 0o600 << 16, 0
                    member.file_size = member.compress_size = len(head) + stored.nbytes
                    first = begin + len(member.FileHeader(zip64=True))
                    member.CRC = _checksum(file, first, member.file_size)
                    file.seek(begin)
                    file.write(member.FileHeader(zip64=True) + head)
                    places.append(file.tell())
                    file.seek(stored.nbytes, os.SEEK_CUR)
                    members.append(member)
                self._addresses[variable.name, k] = np.array(places, np.int64)
        return members

    def _complete(self) -> None:
        with open(self._hidden.data, "rb+") as file, zipfile.ZipFile(file, "w") as archive:
            archive.filelist += self._write_heads(file)
            archive.start_dir = file.tell()
            labels = {"dof": self.schema.joint_names, "trajectory": self.schema.trajectory_names}
            for name, texts in labels.items():
                if texts:
                    member = io.BytesIO()
                    np.save(member, np.array(texts, "U"), allow_pickle=False)
                    archive.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue())
            archive.writestr(zipfile.ZipInfo(PROVENANCE), _provenance(self.schema))


class NpyOutput(Output):
    """The one quantity that is written, as an array and nothing else."""

    def _prepare(self) -> None:
        self._name = next(v.name for v in self.schema.streamed if v.name != "time")
        variable = self._variables[self._name]
        head = _npy_header(variable)
        self._hidden.data.write_bytes(head)
        reserve(self._hidden.data, len(head) + variable.nbytes)
        self._addresses[self._name, 0] = np.array([len(head)])

    def write(self, name: str, row: int, block: Any, group: int = 0) -> None:
        """Entries of the quantity; times and indices are left out."""
        if name == self._name:
            super().write(name, row, block, group)


def _npy_header(variable: Variable) -> bytes:
    head = io.BytesIO()
    layout = {"descr": variable.dtype.str, "fortran_order": False, "shape": variable.shape}
    np.lib.format.write_array_header_2_0(head, layout)
    return head.getvalue()


def _provenance(schema: Schema) -> str:
    """What HDF5 files say in attributes and dimension scales."""
    document = {
        "attributes": dict(schema.attributes),
        "dims": {v.name: v.dims for v in schema.variables},
        "units": {
            v.name: v.attributes["units"] for v in schema.variables if "units" in v.attributes
        },
        **({"dof": list(schema.joint_names)} if schema.joint_names else {}),
    }
    return json.dumps(document, indent=2, sort_keys=True, default=plain_value) + "\n"


def _checksum(file: BinaryIO, offset: int, size: int) -> int:
    """That of so many bytes of a file."""
    value = 0
    file.seek(offset)
    while size > 0 and (block := file.read(min(size, 4 << 20))):
        value, size = zlib.crc32(block, value), size - len(block)
    return value
