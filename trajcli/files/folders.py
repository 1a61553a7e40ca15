"""Folders of .npy files as trajcli writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import ArrayFile, StoredArray
from trajcli.files.numpy_files import NpyFile
from trajcli.files.placing import PROVENANCE
from trajcli.files.provenance import LIMIT, Provenance
from trajcli.files.source import natural_key


class FolderFile(ArrayFile):
    """A folder that trajcli wrote; each .npy in it and in its folders is a dataset."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "npy folder")
        try:
            self._about = Provenance.parse((path / PROVENANCE).read_bytes()[: LIMIT + 1])
            files = [*path.glob("*.npy"), *path.glob("*/*.npy")]
        except OSError as error:
            reason = error.strerror or str(error)
            raise InputError(Fault("cannot be read", str(path), "a folder", reason)) from None
        self._files = {
            part.relative_to(path).with_suffix("").as_posix(): part
            for part in files
            if part.is_file() and not (part.is_symlink() or part.parent.is_symlink())
        }

    def names(self) -> list[str]:
        return sorted(self._files, key=natural_key)

    def get(self, name: str) -> StoredArray | None:
        part = self._files.get(name.strip("/"))
        if part is None:
            return None
        stored = NpyFile(part).get("")
        return stored and self._about.attach(stored, name.strip("/"))

    def attributes(self, group: str = "") -> Mapping[str, Any]:
        return {} if group.strip("/") else self._about.attributes

    def dof_names(self) -> list[str] | None:
        return self._about.dofs
