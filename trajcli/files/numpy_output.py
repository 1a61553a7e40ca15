"""Outputs for those who want no HDF5: an .npz archive, or one array as .npy."""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np

from trajcli.files.atomic_output import reserve
from trajcli.files.outputs import Output
from trajcli.files.refusals import PROVENANCE
from trajcli.files.schema import Schema, Variable, plain_value


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
