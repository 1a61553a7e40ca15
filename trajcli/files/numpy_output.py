"""Outputs for those who want no HDF5: a folder of .npy files, or an .npz archive of them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np

from trajcli.files.atomic_output import reserve
from trajcli.files.outputs import Output
from trajcli.files.refusals import PROVENANCE
from trajcli.files.schema import Schema, plain_value

_COPY_BYTES = 1 << 24


class FolderOutput(Output):
    """A folder with one .npy per variable, and the attributes in trajcli.json."""

    def _prepare(self) -> None:
        self._arrays.mkdir()
        for variable in self.schema.variables:
            head = io.BytesIO()
            layout = {"descr": variable.dtype.str, "fortran_order": False, "shape": variable.shape}
            np.lib.format.write_array_header_2_0(head, layout)
            self._addresses[variable.name, 0] = np.array([head.tell()])
            path = self._path_of(variable.name)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(head.getvalue())
            reserve(path, head.tell() + variable.nbytes)
        (self._arrays / PROVENANCE).write_text(_provenance(self.schema), encoding="utf-8")

    def _open_files(self) -> None:
        self._descriptors = {n: self._open_file(self._path_of(n)) for n, _ in self._addresses}

    @property
    def _arrays(self) -> Path:
        """The folder of the arrays."""
        return self._hidden.data

    def _path_of(self, name: str) -> Path:
        return self._arrays / f"{name}.npy"


class NpzOutput(FolderOutput):
    """The same files in one uncompressed .npz archive."""

    copies = 2

    @property
    def _arrays(self) -> Path:
        return self._hidden.path / "arrays"

    def _complete(self) -> None:
        import shutil
        import zipfile

        self._close()
        with zipfile.ZipFile(self._hidden.data, "x", zipfile.ZIP_STORED, allowZip64=True) as target:
            for name in [*(f"{v.name}.npy" for v in self.schema.variables), PROVENANCE]:
                info = zipfile.ZipInfo(name)  # dated 1980: same input, same bytes
                part = self._arrays / name
                info.file_size = part.stat().st_size
                with open(part, "rb") as source, target.open(info, "w", force_zip64=True) as sink:
                    shutil.copyfileobj(source, sink, _COPY_BYTES)
                part.unlink()


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
    return json.dumps(document, indent=2, default=plain_value) + "\n"
