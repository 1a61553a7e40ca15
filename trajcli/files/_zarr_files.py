"""Reads Zarr stores, versions 2 and 3, in folders and .zip archives."""

from __future__ import annotations

import math
import os
import stat
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import InputError
from trajcli.files._numpy_files import require_deflate
from trajcli.files.catalogue import Catalogue, Dataset, OpenFiles, import_library
from trajcli.files.conversion import decode_values
from trajcli.files.file_bytes import SourceFiles
from trajcli.files.source import natural_order
from trajcli.memory import CACHED_CHUNK

# Of the codecs of an array at most one may be a compressor, since a few bytes compressed twice may
# expand to any size; the filters do not expand data, and construct no Python objects.
_PACKERS = {"blosc", "zstd", "gzip", "zlib", "lz4"}
_FILTERS = {
    "bytes", "transpose", "sharding_indexed", "crc32c", "crc32", "adler32", "fletcher32",
    "vlen-utf8", "vlen-bytes", "delta", "fixedscaleoffset", "quantize", "bitround", "shuffle",
    "packbits", "astype",
}  # fmt: skip
_METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
# The consolidated metadata of 10 000 arrays takes about 10 MB.
_LONGEST_METADATA = 32 << 20


class ZarrFile(Catalogue):
    """A Zarr store, read chunk by chunk on demand. Needs zarr 3."""

    family = "zarr"
    failures = (Exception,)  # zarr and its codecs have no common error for damaged stores
    expected = "an intact Zarr store"

    def __init__(self, path: Path, pool: OpenFiles | None = None) -> None:
        super().__init__(path, pool)
        import_library("zarr", "zarr", path)

    def begin(self) -> _Store:
        return _Store(self.path, self.pool.sources)

    def names(self) -> list[str]:
        return list(self.open_handle().arrays)

    def find(self, name: str) -> Dataset | None:
        if name not in self.open_handle().arrays:
            return None
        # a chunk that changes before it is read would mix two states of the array
        if self.path.is_dir():
            self.pool.sources.watch(map(str, (self.path / name).rglob("*")))
        stored, where = self.open_handle().arrays[name], self.place(name)
        metadata = stored.metadata.to_dict()
        # strings of variable length have dtype object, but are never constructed from code
        texts = metadata.get("data_type") == "string"
        if stored.dtype.hasobject and not texts:
            raise InputError(
                "an array of Python objects is never read", where=where, expected="numbers"
            )
        names = (name.removeprefix("numcodecs.") for name in _codecs(metadata))
        packers = [name for name in names if name not in _FILTERS]
        if len(packers) > 1 or not _PACKERS.issuperset(packers):
            raise InputError(
                "codecs that are not read",
                where=where,
                expected=f"one of {', '.join(sorted(_PACKERS))}",
                found=", ".join(packers),
                hint="write it again with one of them",
            )
        chunk = stored.shards or stored.chunks
        self.pool.refuse_larger(math.prod(chunk) * stored.dtype.itemsize, where, "smaller chunks")
        dtype = np.dtype(str) if texts else stored.dtype
        about, kind = dict(stored.attrs), f"chunks {list(chunk)}"
        # in version 2, xarray stores _FillValue as the value of chunks that were never written
        if "_ARRAY_DIMENSIONS" in about and metadata.get("fill_value"):
            about.setdefault("_FillValue", metadata["fill_value"])
        read = partial(self._read_rows, name)
        return decode_values(self.make_dataset(name, stored.shape, dtype, read, about, kind))

    def _read_rows(self, name: str, start: int, stop: int) -> Any:
        store: _Store = self.open_handle()
        stored = store.arrays[name]
        if not stored.shape:
            return np.asarray(stored[...])
        start, stop, _ = slice(start, stop).indices(stored.shape[0])
        length = max((stored.shards or stored.chunks)[0], 1)
        # Rows that are part of a chunk, such as an episode of a replay buffer, are cut from the
        # decompressed chunk, which is kept for the next episode.
        first = start // length * length
        size = length * math.prod(stored.shape[1:]) * stored.dtype.itemsize
        is_part = start < stop <= first + length and stop - start < length
        if not is_part or size > CACHED_CHUNK or stored.dtype.hasobject:
            values = np.asarray(stored[start:stop])
            return np.array(values.tolist(), str) if values.dtype.hasobject else values
        if store.chunks.get(name, (-1,))[0] != first:
            store.chunks[name] = first, np.asarray(stored[first : first + length])
        return store.chunks[name][1][start - first : stop - first]

    def attributes(self, group: str = "") -> Mapping[str, Any]:
        group, root = group.strip("/"), self.open_handle().root
        if group and not self.has_group(group):
            return {}
        return self.guard(group, lambda: dict((root[group] if group else root).attrs))


class _Store:
    """An open store in a folder or a .zip archive."""

    def __init__(self, path: Path, sources: SourceFiles) -> None:
        import zarr

        # what a hostile archive could make huge is checked before zarr sees any of it
        folder = path.is_dir()
        if not folder:
            with zipfile.ZipFile(path) as archive:
                for member in archive.infolist():
                    require_deflate(member, path)
                    _require_small(member.filename, member.file_size)
        kind = _folder_store(sources) if folder else zarr.storage.ZipStore
        self._store = kind(path, read_only=True)
        self.root: Any = zarr.open(self._store, mode="r")
        self.arrays: dict[str, Any] = {"": self.root}  # by name, in natural order
        if not isinstance(self.root, zarr.Array):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # zarr warns of other files, such as .DS_Store
                members = self.root.members(max_depth=None)
            arrays = {name: item for name, item in members if isinstance(item, zarr.Array)}
            self.arrays = {name: arrays[name] for name in natural_order(arrays)}
        # for each array, the first row and the values of the chunk that was read last
        self.chunks: dict[str, tuple[int, Any]] = {}

    def close(self) -> None:
        self.chunks.clear()
        self._store.close()


def _require_small(key: str, size: int) -> None:
    if key.rpartition("/")[2] in _METADATA and size > _LONGEST_METADATA:
        raise ValueError(f"{key} has {size} bytes, which are read at once")


def _folder_store(sources: SourceFiles) -> Any:
    """Makes a class of stores in a folder that opens only regular files, and records them."""
    from zarr.storage import LocalStore

    def check(path: Path) -> None:
        sources.record(path)
        if not os.path.exists(path):
            return
        state = os.stat(path)
        if not stat.S_ISREG(state.st_mode) and not stat.S_ISDIR(state.st_mode):
            raise ValueError(f"{path.name} is no file")  # zarr would wait for a pipe
        _require_small(path.name, state.st_size)

    # zarr reads by either method, so that both check
    class FolderStore(LocalStore):
        async def get(self, key: str, *rest: Any, **others: Any) -> Any:
            check(self.root / key)
            return await super().get(key, *rest, **others)

        def get_sync(self, key: str, **others: Any) -> Any:
            check(self.root / key)
            return super().get_sync(key, **others)

    return FolderStore


def _codecs(metadata: Any) -> Iterator[str]:
    for key in ("codecs", "index_codecs", "filters", "compressor"):
        codecs = metadata.get(key) or ()
        for codec in codecs if isinstance(codecs, (list, tuple)) else (codecs,):
            about = codec if isinstance(codec, Mapping) else codec.to_dict()
            yield str(about.get("name") or about.get("id"))
            yield from _codecs(about.get("configuration") or {})
