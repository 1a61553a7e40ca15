"""An open Zarr store, in a folder or a .zip archive, of which nothing but files is opened."""

from __future__ import annotations

import contextlib
import os
import stat
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trajcli.files.file_bytes import SourceFiles
from trajcli.files.numpy_files import require_deflate

_METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
_LONGEST_METADATA = 32 << 20
"""Bytes; that of 10 000 arrays together takes some 10 MB."""


class ZarrStore:
    """A store, its arrays and groups, and of each array the chunks read last."""

    def __init__(self, path: Path, sources: SourceFiles) -> None:
        import zarr

        self._folder, self._members, self._sources = path, None, sources
        if path.is_file():
            with zipfile.ZipFile(path) as archive:
                for one in archive.infolist():
                    require_deflate(one, path)
                    _require_small(one.filename, one.file_size)
                self._members = {one.filename: one.file_size for one in archive.infolist()}
        folder = self._members is None
        kind = _folder_store(sources) if folder else zarr.storage.ZipStore
        self._store = kind(path, read_only=True)
        self.root: Any = zarr.open(self._store, mode="r")
        self.items: dict[str, Any] = {}
        self.last: dict[str, tuple[int, Any]] = {}

    def watch(self, keys: Iterable[str]) -> None:
        """Have it noticed when the files of these keys change, also before they are opened."""
        if self._members is None:
            self._sources.add(str(self._folder / key) for key in keys)

    def holds(self, key: str) -> bool:
        """Whether anything lies under this key."""
        there = self._members
        return os.path.exists(self._folder / key) if there is None else key in there

    def close(self) -> None:
        """Close it."""
        self.last.clear()
        self._store.close()


def _require_small(key: str, size: int) -> None:
    """Raise ValueError for what says what the store holds, and is larger than any of it can be."""
    if key.rpartition("/")[2] in _METADATA and size > _LONGEST_METADATA:
        raise ValueError(f"{key} has {size} bytes, which are read at once")


def _regular(path: Path) -> int:
    """The size of a file; raises ValueError for a pipe, which zarr would wait for, and for metadata
    that is too large."""
    state = os.stat(path)
    if not stat.S_ISREG(state.st_mode) and not stat.S_ISDIR(state.st_mode):
        raise ValueError(f"{path.name} is no file")
    _require_small(path.name, state.st_size)
    return state.st_size


def _folder_store(sources: SourceFiles) -> Any:
    """zarr's store in a folder, which opens nothing but files, and says which."""
    from zarr.storage import LocalStore

    class FolderStore(LocalStore):
        async def get(self, key: str, *rest: Any, **others: Any) -> Any:
            sources.opened(self.root / key)
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                _regular(self.root / key)
            return await super().get(key, *rest, **others)

        def get_sync(self, key: str, **others: Any) -> Any:
            sources.opened(self.root / key)
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                _regular(self.root / key)
            return super().get_sync(key, **others)

    return FolderStore
