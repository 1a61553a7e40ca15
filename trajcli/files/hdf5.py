"""Reading HDF5: only this file, only what it holds.

h5py's low-level calls look things up, so that files of ten thousand demonstrations open quickly.
Contiguous values are read at the offset h5py gives, everything else by h5py.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import NUMERIC_KINDS, ArrayFile, Dataset, OpenFiles
from trajcli.files.file_bytes import FileBytes
from trajcli.files.hdf5_checks import files_outside, leads_outside, unpacked_bytes
from trajcli.files.source import natural_order
from trajcli.kernels.native import time_limit

_CHUNK_CACHE = 16 << 20
"""Of each open dataset, so that a chunk of several MiB is unpacked once."""
_OPEN_DATASETS = 8
_LONGEST_ATTRIBUTE = 1 << 20
_PLAIN_TYPES = (h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.STRING)
_LONGEST_READ = 2.0
"""Seconds of processor time for texts; in damaged heaps HDF5 may look for them for ever."""
_ENDLESS = (
    b"error: a file cannot be read\n"
    b"  expected: an intact hdf5 file\n"
    b"  found:    HDF5 did not come to an end with its texts\n"
    b"  try:      trajcli inspect FILE --untrusted says whether it is this one\n"
)
_DEEPEST_LINK = 32
_DEEPEST_GROUP = 100
_FAULTS = (OSError, RuntimeError, ValueError, KeyError, TypeError, MemoryError, OverflowError)
"""What h5py raises over a damaged file."""


class _Group(NamedTuple):
    """The links of a group by kind, in natural order; ``foreign``: of another file."""

    links: Mapping[str, int]
    attributes: Mapping[str, Any]
    foreign: bool


def _reading(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of Hdf5File that reads the open file, and its errors; names may have slashes."""

    @functools.wraps(method)
    def read(self: Hdf5File, name: str = "", *rest: Any) -> Any:
        path = name.strip("/")
        with self.lock:
            try:
                if self._handle is None:
                    self.opened()
                return method(self, path, *rest)
            except InputError:
                raise
            except _FAULTS as error:
                raise self.damaged(path, error) from None

    return read


class Hdf5File(ArrayFile):
    """An HDF5 file, read without following anything that leads out of it.

    External links, external storage, virtual datasets and filters that need a plug-in are refused
    unless ``allow_external``. What a group holds is read once.
    """

    failures = _FAULTS
    expected = "an intact HDF5 file"
    slash = "/"

    def __init__(
        self, path: Path, allow_external: bool = False, pool: OpenFiles | None = None
    ) -> None:
        super().__init__(path, "hdf5", pool)
        self._allow_external = allow_external
        self._names: list[str] = []
        self._groups: dict[str, _Group | None] = {}
        self.opened()

    def begin(self) -> _Handle:
        return _Handle(self.path)

    @_reading
    def names(self, _: str) -> list[str]:
        """Every dataset reached by hard links alone, once."""
        if self._names:
            return self._names
        names: list[str] = []
        root = self._handle.root

        def visit(name: bytes, info: Any) -> bytes | None:
            if name.count(b"/") > _DEEPEST_GROUP:
                return name
            # a dimension lies in the root; that of the dofs has a link in every group
            dimension = b"/" not in name or name.endswith(b"/dof")
            if info.type == h5py.h5o.TYPE_DATASET and not (
                dimension and _is_bare_dimension(h5py.h5o.open(root, name))
            ):
                names.append(_text(name))
            return None

        if h5py.h5o.visit(root, visit, info=True) is not None:  # it takes seconds for thousands
            what, expected = "groups in groups in groups", f"at most {_DEEPEST_GROUP} deep"
            raise InputError(Fault(what, str(self.path), expected, "more"))
        self._names = natural_order(names)
        return self._names

    @_reading
    def get(self, path: str) -> Dataset | None:
        above, _, last = path.rpartition("/")
        if above in self._groups:  # without h5py, as most names that are looked for do not exist
            group = self._groups[above]
            if group is None or last not in group.links:
                return None
        return self._dataset(path)

    @_reading
    def attributes(self, path: str) -> Mapping[str, Any]:
        group = self._group(path)
        return group.attributes if group else {}

    @_reading
    def children(self, path: str) -> list[str]:
        group = self._group(path)  # also what leads out of the file: refused when it is read
        return list(group.links) if group else []

    @_reading
    def has_group(self, path: str) -> bool:
        with contextlib.suppress(InputError, *_FAULTS):
            return self._group(path) is not None
        return False

    @_reading
    def dims(self, path: str) -> tuple[str, ...]:
        """The dimensions of a dataset, as the scales attached to it are called."""
        item = h5py.Dataset(self._open(path))
        scales = (axis[0].name if len(axis) else path for axis in item.dims)
        return tuple(scale.rpartition("/")[2] for scale in scales)

    def _group(self, path: str) -> _Group | None:
        """What is in a group; None where there is none, and where links go in a circle."""
        if path not in self._groups:
            self._groups[path] = None
            try:
                item = self._open(path)
                if isinstance(item, h5py.h5g.GroupID):
                    name = h5py.h5f.get_name(self._handle.root)
                    foreign = self._allow_external and h5py.h5f.get_name(item) != name
                    attributes = self._attributes(item, path)
                    self._groups[path] = _Group(_links(item), attributes, foreign)
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
        root = self._handle.root
        if not path:
            return root
        above, _, last = path.rpartition("/")
        group = self._group(above)
        kind = group.links.get(last) if group is not None else None
        if kind == h5py.h5l.TYPE_EXTERNAL:
            file, inside = root.links.get_val(_raw(path))
            if not self._allow_external:
                target = f"a link to {_text(file)}:{_text(inside)}"
                raise InputError(leads_outside(f"{self.path}:/{path}", target))
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

        read = functools.partial(self._attribute, path)
        known: dict[str, Any] = {}
        if b"units" in names and isinstance(item, h5py.h5d.DatasetID):  # which is always wanted
            with contextlib.suppress(*_FAULTS):
                known["units"] = _units(item)
        return _Attributes([_text(name) for name in names], read, known) if names else {}

    @_reading
    def _attribute(self, path: str, name: str) -> Any:
        return _attribute(self._open(path), name)

    def _dataset(self, path: str) -> Dataset | None:
        """A dataset and how its values are read."""
        item = self._open(path, _open_dataset)
        if not isinstance(item, h5py.h5d.DatasetID):
            return None
        where, handle = f"{self.path}:/{path}", self._handle
        offset, dtype, shape = item.get_offset(), item.dtype, item.shape
        attributes = self._attributes(item, path)
        size = math.prod(shape) * dtype.itemsize
        plain = offset is not None and dtype.kind in NUMERIC_KINDS and dtype.itemsize <= 8
        # of what lies in another file, or behind a user block, only HDF5 knows the place
        plain = plain and not handle.user_block and not self.outside
        if plain and 0 < size <= handle.bytes.size - offset:

            def read_rows(start: int, stop: int) -> Any:
                with self.lock:
                    handle = self._handle or self.opened()
                    return handle.bytes.rows(dtype, shape, offset, start, stop)

            return Dataset(where, shape, dtype, read_rows, attributes, "contiguous")
        dataset = h5py.Dataset(item)
        if _is_bare_dimension(item):
            return None
        if dataset.shape is None:
            raise InputError(Fault("an empty dataset", where, "numbers", "no values at all"))
        for name in files_outside(dataset, where, self._allow_external):
            if not os.path.exists(self._lead_to(name)) and dataset.is_virtual:
                missing = f"{name} is missing"
                raise InputError(Fault("a virtual dataset without its values", where, "", missing))
        self.pool.refuse_larger(
            unpacked_bytes(dataset, where), where, "smaller chunks: h5repack -l CHUNK=..."
        )
        packing = [dataset.compression, "shuffle" if dataset.shuffle else None]
        chunks = f"chunked {'×'.join(map(str, dataset.chunks))}" if dataset.chunks else "contiguous"
        storage = ", ".join(filter(None, [chunks, *packing]))
        read = functools.partial(self._rows, path)
        return Dataset(where, shape, dtype, read, attributes, storage)

    @_reading
    def _rows(self, path: str, start: int, stop: int) -> Any:
        """Rows of a dataset, by h5py; the last few datasets stay open."""
        datasets = self._handle.datasets
        if path not in datasets:
            if len(datasets) >= _OPEN_DATASETS:
                del datasets[next(iter(datasets))]
            datasets[path] = h5py.Dataset(self._open(path))
        stored = datasets[path]
        texts = stored.dtype.hasobject
        with time_limit(_LONGEST_READ, _ENDLESS) if texts else contextlib.nullcontext():
            return np.asarray(stored[start:stop] if stored.shape else stored[()])


class _Handle:
    """An open HDF5 file."""

    def __init__(self, path: Path) -> None:
        self.bytes = FileBytes(path)  # first: HDF5 itself would wait for a pipe
        try:
            access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
            access.set_cache(0, 521, _CHUNK_CACHE, 0.75)
            access.set_file_locking(True, True)  # where the file system can
            self.file = h5py.h5f.open(os.fsencode(path), h5py.h5f.ACC_RDONLY, fapl=access)
            self.user_block = self.file.get_create_plist().get_userblock()
            self.root = h5py.h5g.open(self.file, b"/")
        except BaseException:
            self.bytes.close()
            raise
        self.datasets: dict[str, Any] = {}

    def close(self) -> None:
        """Close it: HDF5 does so once nothing in it is open."""
        self.datasets.clear()
        del self.root
        self.file.close()
        self.bytes.close()


class _Attributes(Mapping[str, Any]):
    """The attributes of an object that are numbers or text, read when they are asked for.

    References, very long ones and what cannot be read are left out. ``known``: those read before.
    """

    def __init__(
        self, names: list[str], read: Callable[[str], Any], known: Mapping[str, Any]
    ) -> None:
        self._names, self._read, self._known = names, read, known

    def __getitem__(self, name: str) -> Any:
        value = self._known.get(name)
        if value is None and name in self._names:
            with contextlib.suppress(InputError):
                value = self._read(name)
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._names if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _attribute(item: Any, name: str) -> Any:
    """An attribute as a number, an array of numbers or text; None where it is no such thing."""
    group = isinstance(item, h5py.h5g.GroupID)
    manager = h5py.AttributeManager(h5py.Group(item) if group else h5py.Dataset(item))
    stored = manager.get_id(name)
    if stored.get_type().get_class() not in _PLAIN_TYPES:
        return None  # of a damaged one HDF5 may read memory that is not there
    if stored.get_storage_size() > _LONGEST_ATTRIBUTE or (stored.shape and stored.dtype.hasobject):
        return None  # of many strings any number may be one long one
    with time_limit(_LONGEST_READ, _ENDLESS):
        value = manager[name]
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    plain = isinstance(value, (str, int, float, np.integer, np.floating))
    return value if plain or (isinstance(value, np.ndarray) and value.dtype.kind in "fiu") else None


def _units(item: Any) -> Any:
    """The attribute ``units`` of a dataset, in a third of the time that others take."""
    stored = h5py.h5a.open(item, b"units")
    if stored.shape != () or stored.get_storage_size() > _LONGEST_ATTRIBUTE:
        return None
    value: Any = np.empty((), stored.dtype)
    stored.read(value)
    value = value.item()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _is_bare_dimension(item: Any) -> bool:
    """Whether a dataset is netCDF's mark of a dimension that has no values."""
    if not h5py.h5a.exists(item, b"NAME"):
        return False
    name = _attribute(item, "NAME")
    return isinstance(name, str) and name.startswith("This is a netCDF dimension but not")


def _open_dataset(root: Any, name: bytes) -> Any:
    """What has this name: of a dataset, in half the time that h5o.open takes."""
    try:
        return h5py.h5d.open(root, name)
    except _FAULTS:
        return h5py.h5o.open(root, name)


def _links(group: Any) -> dict[str, int]:
    """The names in a group, in natural order, and what kind of link each is."""
    kinds: dict[str, int] = {}
    group.links.iterate(lambda name, info: kinds.setdefault(_text(name), info.type) and None,
                        info=True)  # fmt: skip
    return {name: kinds[name] for name in natural_order(kinds)}


def _raw(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _text(name: bytes | str) -> str:
    """A name in a file, which may hold any bytes."""
    return name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name
