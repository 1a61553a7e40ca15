"""Reads Zarr stores, versions 2 and 3, in folders and .zip archives."""

from __future__ import annotations

import itertools
import math
import os
import stat
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import InputError
from trajcli.files.arrays import ArrayFile, Dataset, OpenFiles
from trajcli.files.file_bytes import SourceFiles
from trajcli.files.numpy_files import require_deflate
from trajcli.files.source import natural_order
from trajcli.memory import KEPT_CHUNK

# Codecs of version 2 that construct Python objects.
_RUNS_CODE = ("pickle", "json2", "msgpack2")
_PACKERS = {"blosc", "zstd", "gzip", "zlib", "lz4"}
# Codecs that are read. At most one of an array's may be a compressor, since a few bytes
# compressed twice may expand to any size; the filters do not expand data.
_FILTERS = {
    "bytes", "transpose", "sharding_indexed", "crc32c", "crc32", "adler32", "fletcher32",
    "vlen-utf8", "vlen-bytes", "delta", "fixedscaleoffset", "quantize", "bitround", "shuffle",
    "packbits", "astype",
}  # fmt: skip
# Arrays of more chunks are not searched for missing or changing ones.
_MOST_CHUNKS = 1 << 16
_METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
# Bytes; the consolidated metadata of 10 000 arrays takes about 10 MB.
_LONGEST_METADATA = 32 << 20


class ZarrFile(ArrayFile):
    """A Zarr store, read chunk by chunk on demand. Needs zarr 3."""

    failures = (Exception,)  # zarr and its codecs have no common error for damaged stores
    expected = "an intact Zarr store"

    def __init__(self, path: Path, pool: OpenFiles | None = None) -> None:
        super().__init__(path, "zarr", pool)
        try:
            import zarr  # noqa: F401
        except ImportError:
            raise InputError(
                "Zarr stores are read by zarr, which is not installed",
                where=str(path),
                hint="pip install zarr",
            ) from None
        self._arrays: dict[str, Dataset] = {}
        self._watched: set[str] = set()

    def begin(self) -> _Store:
        return _Store(self.path, self.pool.sources)

    @cached_property
    def _names(self) -> list[str]:
        import zarr

        root = self.opened().root
        if isinstance(root, zarr.Array):
            return [""]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zarr warns of other files, such as .DS_Store
            members = root.members(max_depth=None)
        return natural_order(name for name, item in members if isinstance(item, zarr.Array))

    def names(self) -> list[str]:
        return self.safely("", lambda: self._names)

    def get(self, name: str) -> Dataset | None:
        name = name.strip("/")
        if name not in self.names():
            return None
        if name not in self._arrays:
            self._arrays[name] = self.safely(name, lambda: self._described(name))
        return self._arrays[name]

    def _described(self, name: str) -> Dataset:
        stored, where = self._array(name), f"{self.path}:{name}"
        codecs = {getattr(one, "codec_id", "") for one in stored.filters + stored.compressors}
        # strings of variable length have dtype object, but are never constructed from code
        texts = stored.metadata.to_dict().get("data_type") == "string"
        if codecs.intersection(_RUNS_CODE) or (stored.dtype.hasobject and not texts):
            what = "an array of Python objects is never read"
            raise InputError(
                what, where=where, expected="numbers", found=", ".join(codecs) or "objects"
            )
        names = [name.removeprefix("numcodecs.") for name in _codecs(stored.metadata.to_dict())]
        packers = [name for name in names if name not in _FILTERS]
        if len(packers) > 1 or not _PACKERS.issuperset(packers):
            what = "codecs that are not read"
            raise InputError(
                what,
                where=where,
                expected=f"one of {', '.join(sorted(_PACKERS))}",
                found=", ".join(packers),
                hint="write it again with one of them",
            )
        chunk = stored.shards or stored.chunks
        size, count = math.prod(chunk) * stored.dtype.itemsize, (stored.shape or (1,))[0]
        self.pool.refuse_larger(size, where, "smaller chunks")

        def read_rows(start: int, stop: int) -> Any:
            if not stored.shape:
                return self.safely(name, lambda: self._read(name, ...))
            return self.safely(name, lambda: self._rows(name, *slice(start, stop).indices(count)))

        kind = f"chunks {list(chunk)}"
        dtype = np.dtype(str) if texts else stored.dtype
        remarks, keys = [], self._keys(name) if dtype.kind == "f" and stored.ndim < 4 else []
        # chunks are missing from a store that was copied in part, and read as the fill value
        if gone := sum(not self.opened().holds(key) for key in keys):
            remark = f"{where}: {gone} of {len(keys)} chunks are not in the store; their values"
            remarks.append(f"{remark} are the fill value, {stored.fill_value}")
        return Dataset(where, stored.shape, dtype, read_rows, dict(stored.attrs), kind, remarks)

    def _keys(self, name: str) -> list[str]:
        """Returns the keys of all chunks of an array; none if it has too many."""
        stored = self._array(name)
        sizes = stored.shards or stored.chunks
        along = [range(-(-n // max(m, 1))) for n, m in zip(stored.shape, sizes, strict=True)]
        if math.prod(map(len, along)) > _MOST_CHUNKS:
            return []
        keys = map(stored.metadata.encode_chunk_key, itertools.product(*along))
        return [f"{name}/{key}".strip("/") for key in keys]

    def _rows(self, name: str, start: int, stop: int, _: int) -> Any:
        """Reads rows of an array.

        If they are part of a chunk, like an episode of a replay buffer, the decompressed chunk is
        kept for the next episode.
        """
        stored, last = self._array(name), self.opened().last
        length = (stored.shards or stored.chunks)[0]
        first = start // max(length, 1) * length
        size = length * math.prod(stored.shape[1:]) * stored.dtype.itemsize
        if not start < stop <= first + length or stop - start == length or size > KEPT_CHUNK:
            return self._read(name, slice(start, stop))
        if last.get(name, (None,))[0] != first:
            last[name] = first, self._read(name, slice(first, first + length))
        return last[name][1][start - first : stop - first]

    def _read(self, name: str, rows: Any) -> Any:
        """Reads rows; first records the files of the array, so that a change is noticed."""
        if name not in self._watched:
            self._watched.add(name)
            if (folder := self.opened().folder) is not None:
                self.pool.sources.add(str(folder / key) for key in self._keys(name))
        values = np.asarray(self._array(name)[rows])
        return np.array(values.tolist(), str) if values.dtype.hasobject else values

    def _array(self, name: str) -> Any:
        store: _Store = self.opened()
        if name not in store.items:
            store.items[name] = store.root[name] if name else store.root
        return store.items[name]

    def attributes(self, group: str = "") -> Mapping[str, Any]:
        group = group.strip("/")
        there = not group or self.has_group(group)
        return self.safely(group, lambda: dict(self._array(group).attrs)) if there else {}


class _Store:
    """An open store in a folder or a .zip archive; ``last``: the chunk read last of each array."""

    def __init__(self, path: Path, sources: SourceFiles) -> None:
        import zarr

        self.folder: Path | None = path if path.is_dir() else None
        self._members: set[str] = set()
        if self.folder is None:
            with zipfile.ZipFile(path) as archive:
                for member in archive.infolist():
                    require_deflate(member, path)
                    _require_small(member.filename, member.file_size)
                    self._members.add(member.filename)
        kind = zarr.storage.ZipStore if self.folder is None else _folder_store(sources)
        self._store = kind(path, read_only=True)
        self.root: Any = zarr.open(self._store, mode="r")
        self.items: dict[str, Any] = {}
        self.last: dict[str, tuple[int, Any]] = {}

    def holds(self, key: str) -> bool:
        """Whether the store has an entry of this key."""
        return key in self._members if self.folder is None else os.path.exists(self.folder / key)

    def close(self) -> None:
        self.last.clear()
        self._store.close()


def _require_small(key: str, size: int) -> None:
    """Raises ValueError for metadata that no store would need."""
    if key.rpartition("/")[2] in _METADATA and size > _LONGEST_METADATA:
        raise ValueError(f"{key} has {size} bytes, which are read at once")


def _folder_store(sources: SourceFiles) -> Any:
    """Returns a class of stores in a folder that opens only regular files, and records them."""
    from zarr.storage import LocalStore

    def check(path: Path) -> None:
        sources.opened(path)
        if not os.path.exists(path):
            return
        state = os.stat(path)
        if not stat.S_ISREG(state.st_mode) and not stat.S_ISDIR(state.st_mode):
            raise ValueError(f"{path.name} is no file")  # zarr would wait for a pipe
        _require_small(path.name, state.st_size)

    class FolderStore(LocalStore):
        async def get(self, key: str, *rest: Any, **others: Any) -> Any:
            check(self.root / key)
            return await super().get(key, *rest, **others)

        def get_sync(self, key: str, **others: Any) -> Any:
            check(self.root / key)
            return super().get_sync(key, **others)

    return FolderStore


def _codecs(metadata: Any) -> Iterator[str]:
    """Yields the names of all codecs in the metadata of an array or of another codec."""
    for key in ("codecs", "index_codecs", "filters", "compressor"):
        listed = metadata.get(key) or ()
        for codec in listed if isinstance(listed, (list, tuple)) else (listed,):
            about = codec if isinstance(codec, Mapping) else codec.to_dict()
            yield str(about.get("name") or about.get("id"))
            yield from _codecs(about.get("configuration") or {})
