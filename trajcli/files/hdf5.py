"""Reading HDF5: only this file, only what it holds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import NUMERIC_KINDS, ArrayFile, StoredArray, unreadable
from trajcli.files.hdf5_lean import Lean
from trajcli.files.mapping import map_array, part_of
from trajcli.files.source import in_natural_order, natural_key

_EXPANSION_LIMIT = 1100
"""No filter of HDF5's own packs more: deflate reaches about 1030 : 1."""

_CHUNK_CACHE = 16 << 20
"""Of each dataset, so that a chunk of several MiB is unpacked once, not for every look at it."""

_FAULTS = (OSError, RuntimeError, ValueError, KeyError, TypeError, MemoryError, OverflowError)
"""What h5py raises over a damaged file."""


class Hdf5File(ArrayFile):
    """An HDF5 file, read without following anything that leads out of it.

    External links, external storage and virtual datasets are refused unless ``allow_external``.
    """

    def __init__(self, path: Path, allow_external: bool = False) -> None:
        super().__init__(path, "hdf5")
        import h5py

        self._h5 = h5py
        self._allow_external = allow_external
        self._names: list[str] | None = None
        self._children: dict[str, list[str]] = {}
        try:
            self._file = h5py.File(path, "r", locking="best-effort", rdcc_nbytes=_CHUNK_CACHE)
            self._lean = Lean(h5py, self._file, path, self._by_hdf5)
        except _FAULTS as error:
            raise InputError(_unreadable(path, error)) from None

    def names(self) -> list[str]:
        if self._names is None:
            found: list[str] = []
            try:
                self._walk(self._file, "", found, set())
            except _FAULTS as error:
                raise InputError(_unreadable(self.path, error)) from None
            self._names = sorted(found, key=natural_key)
        return self._names

    def _walk(self, group: Any, prefix: str, found: list[str], seen: set[Any]) -> None:
        """Datasets below a group by hard links alone, each group once."""
        identity = self._h5.h5o.get_info(group.id)
        if (identity.fileno, identity.addr) in seen:
            return
        seen.add((identity.fileno, identity.addr))
        h5o, kinds = self._h5.h5o, (self._h5.h5o.TYPE_GROUP, self._h5.h5o.TYPE_DATASET)
        for key in group.id:
            if group.id.links.get_info(key).type != self._h5.h5l.TYPE_HARD:
                continue
            kind = h5o.get_info(group.id, key).type
            name = key.decode("utf-8", "surrogateescape")
            if kind == kinds[0]:
                self._walk(group[name], f"{prefix}{name}/", found, seen)
            elif kind == kinds[1] and not _is_bare_dimension(self._h5, group, key):
                found.append(prefix + name)

    def get(self, name: str) -> StoredArray | None:
        own = name.strip("/")
        plain = self._lean.dataset(own, f"{self.path}:/{own}")
        if plain is not None or self._lean.lacks(own):
            return plain
        return self._found(name)

    def _by_hdf5(self, name: str) -> StoredArray:
        """A dataset that is there, by HDF5 alone."""
        found = self._found(name)
        if found is None:
            raise InputError(self.missing(name))
        return found

    def _found(self, name: str) -> StoredArray | None:
        try:
            item = self._resolve(name)
            if not isinstance(item, self._h5.Dataset):
                return None
            return self._stored(item, f"{self.path}:/{name.strip('/')}")
        except InputError:
            raise
        except _FAULTS as error:
            raise InputError(_unreadable(f"{self.path}:{name}", error)) from None

    def attributes(self, group: str = "") -> Mapping[str, Any]:
        try:
            item = self._resolve(group)
            return {} if item is None else small_attributes(item)
        except _FAULTS:
            return {}

    def children(self, group: str = "") -> list[str]:
        key = group.strip("/")
        if key not in self._children:
            try:
                names = self._lean.children(key)
                if names is None:
                    item = self._resolve(key)
                    inside = item.id if isinstance(item, self._h5.Group) else ()
                    # also what leads out of the file: that is refused when it is read
                    names = [name.decode("utf-8", "replace") for name in inside]
            except _FAULTS as error:
                raise InputError(_unreadable(f"{self.path}:/{key}", error)) from None
            self._children[key] = in_natural_order(names)
        return self._children[key]

    def has_group(self, name: str) -> bool:
        try:
            return isinstance(self._resolve(name), self._h5.Group)
        except _FAULTS:
            return False

    def places(self) -> Mapping[str, int]:
        found = {}
        for name in self.names() if not self._file.userblock_size else ():
            item = self._resolve(name)
            outside = item.is_virtual or item.external or item.chunks
            if not outside and item.dtype.kind in NUMERIC_KINDS and item.size:
                offset = item.id.get_offset()
                if offset is not None:
                    found[name] = int(offset)
        return found

    def close(self) -> None:
        self._lean.close()
        self._file.close()

    def _resolve(self, name: str, depth: int = 0) -> Any:
        """Walk a path link by link; None where it ends, InputError where it leaves the file."""
        item: Any = self._file
        parts = [part for part in name.split("/") if part]
        for position, part in enumerate(parts):
            if not isinstance(item, self._h5.Group):
                return None
            link = item.get(part, getlink=True)
            if link is None:
                return None
            if isinstance(link, self._h5.ExternalLink) and not self._allow_external:
                raise InputError(
                    _external(
                        f"{self.path}:/{'/'.join(parts[: position + 1])}",
                        f"a link to {link.filename}:{link.path}",
                    )
                )
            if isinstance(link, self._h5.ExternalLink):
                self._lead_to(link.filename)
            if isinstance(link, self._h5.SoftLink):
                if depth > 32:
                    return None
                base = "" if link.path.startswith("/") else "/".join(parts[:position]) + "/"
                rest = "/".join(parts[position + 1 :])
                return self._resolve(f"{base}{link.path}/{rest}", depth + 1)
            item = item[part]
        return item

    def _lead_to(self, name: str | bytes) -> str:
        """Remember a file that this one names; relative names are beside it."""
        path = os.path.join(self.path.parent, os.fsdecode(name))
        if path not in self.outside:
            self.outside.append(path)
        return path

    def _stored(self, dataset: Any, where: str) -> StoredArray:
        if dataset.shape is None:
            raise InputError(Fault("an empty dataset", where, "numbers", "no values at all"))
        if not self._allow_external:
            if dataset.is_virtual:
                raise InputError(_external(where, "a virtual dataset"))
            if dataset.external:
                raise InputError(_external(where, f"values in {dataset.external[0][0]}"))
        for source in dataset.virtual_sources() if dataset.is_virtual else ():
            if source.file_name != "." and not os.path.exists(self._lead_to(source.file_name)):
                found = f"{source.file_name} is missing"
                raise InputError(Fault("a virtual dataset without its values", where, found=found))
        for name, *_ in dataset.external or ():
            self._lead_to(name)
        size = int(np.prod(dataset.shape, dtype=object)) * dataset.dtype.itemsize
        held = dataset.id.get_storage_size()
        outside = dataset.is_virtual or dataset.external
        # unfiltered chunks are as long as they say: of shorter ones HDF5 reads what lies behind
        packed = dataset.chunks and dataset.id.get_create_plist().get_nfilters()
        if not outside and size > held * (_EXPANSION_LIMIT if packed else 1):
            raise InputError(
                Fault(
                    "declares more than the file holds",
                    where,
                    f"the values of {size} bytes declared ({list(dataset.shape)} {dataset.dtype})",
                    f"{held} bytes stored",
                    "it was never written, or cut off: get or write it again",
                )
            )

        read_rows, read_steps = self._readers(dataset, where, bool(outside))
        packing = ", ".join(filter(None, [dataset.compression, dataset.shuffle and "shuffle"]))
        chunks = f"chunked {'×'.join(map(str, dataset.chunks))}" if dataset.chunks else "contiguous"
        return StoredArray(
            where=where,
            shape=tuple(int(n) for n in dataset.shape),
            dtype=dataset.dtype,
            read_rows=read_rows,
            attributes=small_attributes(dataset),
            storage=f"{chunks}, {packing}" if packing else chunks,
            read_steps=read_steps,
        )

    def _readers(self, dataset: Any, where: str, outside: bool) -> tuple[Any, Any]:
        """How rows are read, and of these some along the second axis."""
        mapped = None if outside or dataset.chunks else self._mapped(dataset)
        offset = dataset.id.get_offset() if mapped is not None else 0

        def read(*part: slice) -> Any:
            if mapped is not None:
                return mapped[part]
            try:
                return np.asarray(dataset[part] if dataset.shape else dataset[()])
            except _FAULTS as error:
                raise InputError(_unreadable(where, error)) from None

        def read_steps(start: int, stop: int, first: int, last: int) -> Any:
            if mapped is None:
                return read(slice(start, stop), slice(first, last))
            try:
                return part_of(mapped, self.path, offset, (start, stop, first, last))
            except OSError as error:
                raise InputError(_unreadable(where, error)) from None

        return lambda start, stop: read(slice(start, stop)), read_steps

    def _mapped(self, dataset: Any) -> Any:
        """The values of a contiguous dataset as mapped memory; None where they cannot be."""
        plain = dataset.dtype.kind in NUMERIC_KINDS and dataset.shape and not dataset.chunks
        if not plain or dataset.dtype.itemsize > 8 or self._file.userblock_size:
            return None
        if dataset.file.filename != self._file.filename:  # reached by a link to another file
            return None
        try:
            offset = dataset.id.get_offset()
        except _FAULTS:
            return None
        if offset is None:  # compact: beside its header
            return None
        return map_array(self.path, dataset.dtype, offset, dataset.shape)


def _is_bare_dimension(h5py: Any, group: Any, key: bytes) -> bool:
    """Whether this is netCDF's mark of a dimension that has no values."""
    if not h5py.h5a.exists(group.id, b"NAME", obj_name=key):
        return False  # without opening it, which takes most of the time of a walk
    name = group[key].attrs.get("NAME", b"")
    return isinstance(name, bytes) and name.startswith(b"This is a netCDF dimension but not")


def small_attributes(item: Any) -> dict[str, Any]:
    """Attributes that are numbers or text; references and the like are left alone."""
    found: dict[str, Any] = {}
    for name in item.attrs:
        try:
            if item.attrs.get_id(name).get_storage_size() > 1 << 20:
                continue
            value = item.attrs[name]
        except _FAULTS:
            continue
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        plain = isinstance(value, (str, int, float, np.integer, np.floating))
        if plain or (isinstance(value, np.ndarray) and value.dtype.kind in "fiu"):
            found[name] = value
    return found


def _external(where: str, found: str) -> Fault:
    return Fault(
        "leads out of the file",
        where,
        "values in the file itself",
        found,
        "--allow-external reads it, if you trust the file",
    )


def _unreadable(where: object, error: Exception) -> Fault:
    return unreadable(where, "an intact HDF5 file", error)
