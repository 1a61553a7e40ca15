"""Outputs for those who want no HDF5: a folder of .npy files, or an .npz archive of them."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import BinaryIO

import numpy as np

from trajcli.files.atomic_output import reserve
from trajcli.files.checksums import checksum
from trajcli.files.outputs import Output
from trajcli.files.refusals import PROVENANCE
from trajcli.files.schema import Schema, Variable, plain_value


class FolderOutput(Output):
    """A folder with one .npy per variable, and the attributes in trajcli.json."""

    def _prepare(self) -> None:
        self._hidden.data.mkdir()
        for variable in self.schema.variables:
            head, path = _npy_header(variable), self._path_of(variable.name)
            self._addresses[variable.name, 0] = np.array([len(head)])
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(head)
            reserve(path, len(head) + variable.nbytes)
        (self._hidden.data / PROVENANCE).write_text(_provenance(self.schema), encoding="utf-8")

    def _open_files(self) -> None:
        self._descriptors = {n: self._open_file(self._path_of(n)) for n, _ in self._addresses}

    def _path_of(self, name: str) -> Path:
        return self._hidden.data / f"{name}.npy"


class NpzOutput(Output):
    """The same files in one uncompressed .npz archive, where each has its place from the start."""

    def _prepare(self) -> None:
        with open(self._hidden.data, "xb+") as file:
            self._write_heads(file)
            reserve(self._hidden.data, file.tell())

    def _write_heads(self, file: BinaryIO) -> list[zipfile.ZipInfo]:
        """What each member begins with, its checksum as of now; up to the end of the last one."""
        members = []
        for variable in self.schema.variables:
            head, begin = _npy_header(variable), file.tell()
            member = zipfile.ZipInfo(f"{variable.name}.npy")  # dated 1980: same input, same bytes
            member.header_offset, member.external_attr, member.CRC = begin, 0o600 << 16, 0
            member.file_size = member.compress_size = len(head) + variable.nbytes
            first = begin + len(member.FileHeader(zip64=True))
            member.CRC = checksum(file, first, member.file_size)
            file.seek(begin)
            file.write(member.FileHeader(zip64=True) + head)
            self._addresses[variable.name, 0] = np.array([file.tell()])
            file.seek(variable.nbytes, os.SEEK_CUR)
            members.append(member)
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
