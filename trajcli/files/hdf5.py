"""Reading HDF5: only this file, only what it holds.

h5py's low-level calls look things up, so that files of ten thousand demonstrations open quickly.
Contiguous values are read at the offset h5py gives, everything else by h5py.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import NUMERIC_KINDS, ArrayFile, Dataset
from trajcli.files.mapping import FileBytes
from trajcli.files.source import natural_key

_EXPANSION_LIMIT = 1100
"""No filter of HDF5's own packs more: deflate reaches about 1030 : 1."""
_CHUNK_CACHE = 16 << 20
"""Of each open dataset, so that a chunk of several MiB is unpacked once."""
_OPEN_DATASETS = 8
_LONGEST_ATTRIBUTE = 1 << 20
_DEEPEST_LINK = 32
_BUILT_IN_FILTERS = {*range(1, 7), 32000}
"""deflate to scale-offset, and h5py's LZF; others are loaded as plug-ins."""
_FAULTS = (OSError, RuntimeError, ValueError, KeyError, TypeError, MemoryError, OverflowError)
"""What h5py raises over a damaged file."""


class Hdf5File(ArrayFile):
    """An HDF5 file, read without following anything that leads out of it.

    External links, external storage, virtual datasets and filters that need a plug-in are refused
    unless ``allow_external``. What a group holds is read once.
    """

    failures = _FAULTS
    expected = "an intact HDF5 file"
    slash = "/"

    def __init__(self, path: Path, allow_external: bool = False) -> None:
        super().__init__(path, "hdf5")
        self._allow_external = allow_external
        self._names: list[str] | None = None
        self._groups: dict[str, _Group | None] = {}
        self.opened()

    def begin(self) -> _Handle:
        return _Handle(self.path)

    def names(self) -> list[str]:
        if self._names is None:
            self._names = sorted(self.safely("", self._walk), key=natural_key)
        return self._names

    def get(self, name: str) -> Dataset | None:
        path = name.strip("/")
        above, _, last = path.rpartition("/")
        if above in self._groups:  # without h5py, as most names that are looked for do not exist
            group = self._groups[above]
            if group is None or last not in group.links:
                return None
        return self.safely(path, lambda: self._dataset(path))

    def attributes(self, group: str = "") -> Mapping[str, Any]:
        path = group.strip("/")
        known = self._groups.get(path) or self.safely(path, lambda: self._group(path))
        return known.attributes if known else {}

    def children(self, group: str = "") -> list[str]:
        path = group.strip("/")
        known = self.safely(path, lambda: self._group(path))
        # also what leads out of the file: that is refused when it is read
        return known.children if known else []

    def has_group(self, name: str) -> bool:
        with contextlib.suppress(InputError):
            return self.safely(name, lambda: self._group(name.strip("/"))) is not None
        return False

    def dims(self, name: str) -> tuple[str, ...]:
        """The dimensions of a dataset, as the scales attached to it are called."""
        path = name.strip("/")

        def scales() -> list[str]:
            item = h5py.Dataset(self._open(path))
            return [axis[0].name if len(axis) else path for axis in item.dims]

        return tuple(scale.rpartition("/")[2] for scale in self.safely(path, scales))

    def _walk(self) -> list[str]:
        """Every dataset reached by hard links alone, once."""
        names: list[str] = []
        root = self.opened().root

        def visit(name: bytes, info: Any) -> None:
            # a dimension lies in the root; that of the dofs has a link in every group
            dimension = b"/" not in name or name.endswith(b"/dof")
            if info.type == h5py.h5o.TYPE_DATASET and not (
                dimension and _is_bare_dimension(h5py.h5o.open(root, name))
            ):
                names.append(_text(name))

        h5py.h5o.visit(root, visit, info=True)
        return names

    def _group(self, path: str) -> _Group | None:
        """What is in a group; None where there is none, and where links go in a circle."""
        if path not in self._groups:
            self._groups[path] = None
            try:
                item = self._open(path)
                if isinstance(item, h5py.h5g.GroupID):
                    name = h5py.h5f.get_name(self.opened().root)
                    foreign = self._allow_external and h5py.h5f.get_name(item) != name
                    self._groups[path] = _Group(item, self._attributes(item, path), foreign)
            except BaseException:
                del self._groups[path]
                raise
        return self._groups[path]

    def _open(
        self, path: str, open_link: Callable[..., Any] = h5py.h5o.open, depth: int = 0
    ) -> Any:
        """The object at a path, by its low-level name; None where there is none.

        Raises InputError where the path leads out of the file, and what h5py does.
        """
        root = self.opened().root
        if not path:
            return root
        above, _, last = path.rpartition("/")
        group = self._group(above)
        kind = group.links.get(last) if group is not None else None
        if kind == h5py.h5l.TYPE_EXTERNAL:
            file, inside = root.links.get_val(_raw(path))
            if not self._allow_external:
                found = f"a link to {_text(file)}:{_text(inside)}"
                raise InputError(_external(f"{self.path}:/{path}", found))
            self._lead_to(file)
        elif group and kind == h5py.h5l.TYPE_SOFT and not group.foreign:  # else HDF5 follows it
            target = _text(root.links.get_val(_raw(path)))
            parts = target.split("/") if target.startswith("/") else [above, *target.split("/")]
            to = "/".join(part for part in parts if part not in ("", "."))
            return self._open(to, open_link, depth + 1) if depth < _DEEPEST_LINK else None
        return None if kind is None else open_link(root, _raw(path))

    def _lead_to(self, name: str | bytes) -> str:
        """Remember a file that this one names; relative names are beside it."""
        path = os.path.join(self.path.parent, os.fsdecode(name))
        if path not in self.outside:
            self.outside.append(path)
        return path

    def _attributes(self, item: Any, path: str) -> Mapping[str, Any]:
        """The attributes of the object at a path."""
        names: list[bytes] = []
        if h5py.h5a.get_num_attrs(item):
            with contextlib.suppress(*_FAULTS):
                h5py.h5a.iterate(item, names.append)

        def read(name: str) -> Any:
            with self.lock, contextlib.suppress(InputError, *_FAULTS):
                return _plain(self._open(path), name)

        return Attributes([_text(name) for name in names], read) if names else {}

    def _dataset(self, path: str) -> Dataset | None:
        """A dataset and how its values are read."""
        item = self._open(path, _open_dataset)
        if not isinstance(item, h5py.h5d.DatasetID):
            return None
        where, handle = f"{self.path}:/{path}", self.opened()
        offset, dtype, shape = item.get_offset(), item.dtype, item.shape
        attributes = self._attributes(item, path)
        size = math.prod(shape) * dtype.itemsize
        plain = offset is not None and dtype.kind in NUMERIC_KINDS and dtype.itemsize <= 8
        # of what lies in another file, or behind a user block, only HDF5 knows the place
        plain = plain and not handle.user_block and not self.outside
        if plain and 0 < size <= handle.bytes.size - offset:

            def read_rows(start: int, stop: int) -> Any:
                with self.lock:
                    return self.opened().bytes.rows(dtype, shape, offset, start, stop)

            return Dataset(where, shape, dtype, read_rows, attributes, "contiguous")
        dataset = h5py.Dataset(item)
        if _is_bare_dimension(item):
            return None
        if dataset.shape is None:
            raise InputError(Fault("an empty dataset", where, "numbers", "no values at all"))
        self._refuse_outside(dataset, where)
        _refuse_undersized(dataset, where, size)

        def read_by_hdf5(start: int, stop: int) -> Any:
            def read() -> Any:
                stored = self._open_dataset(path)
                return np.asarray(stored[start:stop] if shape else stored[()])

            return self.safely(path, read)

        packing = [dataset.compression, "shuffle" if dataset.shuffle else None]
        chunks = f"chunked {'×'.join(map(str, dataset.chunks))}" if dataset.chunks else "contiguous"
        storage = ", ".join(filter(None, [chunks, *packing]))
        return Dataset(where, shape, dtype, read_by_hdf5, attributes, storage)

    def _open_dataset(self, path: str) -> Any:
        """A dataset that was there when the file was looked at; the last few stay open."""
        datasets = self.opened().datasets
        if path not in datasets:
            if len(datasets) >= _OPEN_DATASETS:
                del datasets[next(iter(datasets))]
            datasets[path] = h5py.Dataset(self._open(path))
        return datasets[path]

    def _refuse_outside(self, dataset: Any, where: str) -> None:
        """Raise InputError for values in other files, unless they may be read and are there."""
        properties = dataset.id.get_create_plist()
        filters = (properties.get_filter(k) for k in range(properties.get_nfilters()))
        foreign = [_text(name) for code, *_, name in filters if code not in _BUILT_IN_FILTERS]
        for present, found in (
            (dataset.is_virtual, "a virtual dataset"),
            (dataset.external, f"values in {dataset.external and dataset.external[0][0]}"),
            (foreign, f"a filter that is a plug-in: {', '.join(foreign)}"),
        ):
            if present and not self._allow_external:
                raise InputError(_external(where, found))
        for source in dataset.virtual_sources() if dataset.is_virtual else ():
            if source.file_name != "." and not os.path.exists(self._lead_to(source.file_name)):
                found = f"{source.file_name} is missing"
                raise InputError(Fault("a virtual dataset without its values", where, found=found))
        for name, *_ in dataset.external or ():
            self._lead_to(name)


class _Handle:
    """An open HDF5 file."""

    def __init__(self, path: Path) -> None:
        access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
        access.set_cache(0, 521, _CHUNK_CACHE, 0.75)
        access.set_file_locking(True, True)  # where the file system can
        self.file = h5py.h5f.open(os.fsencode(path), h5py.h5f.ACC_RDONLY, fapl=access)
        self.bytes = FileBytes(path)
        self.user_block = self.file.get_create_plist().get_userblock()
        self.root = h5py.h5g.open(self.file, b"/")
        self.datasets: dict[str, Any] = {}

    def close(self) -> None:
        """Close it: HDF5 does so once nothing in it is open."""
        self.datasets.clear()
        del self.root
        self.file.close()
        self.bytes.close()


class _Group:
    """The links of a group, by their kinds, and its attributes; ``foreign``: of another file."""

    __slots__ = ("_children", "attributes", "foreign", "links")

    def __init__(self, group: Any, attributes: Mapping[str, Any], foreign: bool) -> None:
        kinds: dict[str, int] = {}
        group.links.iterate(lambda name, info: kinds.setdefault(_text(name), info.type) and None,
                            info=True)  # fmt: skip
        self.links, self.attributes, self.foreign = kinds, attributes, foreign
        self._children: list[str] | None = None

    @property
    def children(self) -> list[str]:
        """The names of the links in natural order."""
        if self._children is None:
            self._children = sorted(self.links, key=natural_key)
        return self._children


class Attributes(Mapping[str, Any]):
    """The attributes of an object that are numbers or text, read when they are asked for.

    References, very long ones and what cannot be read are left out.
    """

    __slots__ = ("_names", "_read", "_values")

    def __init__(self, names: list[str], read: Callable[[str], Any]) -> None:
        self._names, self._read = names, read
        self._values: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._values and name in self._names:
            self._values[name] = self._read(name)
        if self._values.get(name) is None:
            raise KeyError(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._names if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _plain(item: Any, name: str) -> Any:
    """An attribute as a number, an array of numbers or text; None where it is no such thing."""
    group = isinstance(item, h5py.h5g.GroupID)
    manager = h5py.AttributeManager(h5py.Group(item) if group else h5py.Dataset(item))
    if manager.get_id(name).get_storage_size() > _LONGEST_ATTRIBUTE:
        return None
    value = manager[name]
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    plain = isinstance(value, (str, int, float, np.integer, np.floating))
    return value if plain or (isinstance(value, np.ndarray) and value.dtype.kind in "fiu") else None


def _refuse_undersized(dataset: Any, where: str, size: int) -> None:
    """Raise InputError for a dataset of ``size`` bytes of which far less is stored."""
    held = dataset.id.get_storage_size()
    # unfiltered chunks are as long as they say: of shorter ones HDF5 reads what lies behind
    packed = dataset.chunks and dataset.id.get_create_plist().get_nfilters()
    if dataset.is_virtual or dataset.external or size <= held * (_EXPANSION_LIMIT if packed else 1):
        return
    raise InputError(
        Fault(
            "declares more than the file holds",
            where,
            f"the values of {size} bytes declared ({list(dataset.shape)} {dataset.dtype})",
            f"{held} bytes stored",
            "it was never written, or cut off: get or write it again",
        )
    )


def _is_bare_dimension(item: Any) -> bool:
    """Whether a dataset is netCDF's mark of a dimension that has no values."""
    if not h5py.h5a.exists(item, b"NAME"):
        return False
    name = _plain(item, "NAME")
    return isinstance(name, str) and name.startswith("This is a netCDF dimension but not")


def _open_dataset(root: Any, name: bytes) -> Any:
    """What has this name: of a dataset, in half the time that h5o.open takes."""
    try:
        return h5py.h5d.open(root, name)
    except _FAULTS:
        return h5py.h5o.open(root, name)


def _raw(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _text(name: bytes | str) -> str:
    """A name in a file, which may hold any bytes."""
    return name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name


def _external(where: str, found: str) -> Fault:
    hint = "--allow-external reads it, if you trust the file"
    return Fault("leads out of the file", where, "values in the file itself", found, hint)
