"""Reads HDF5 files, without following anything that leads out of them.

Links and datasets are looked up by h5py's low-level calls, which open files of ten thousand
demonstrations quickly. Contiguous values are mapped at the offset that h5py gives; all others are
read by h5py.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from trajcli.errors import InputError
from trajcli.files._records import RecordFile
from trajcli.files.catalogue import NUMERIC_KINDS, Dataset, OpenFiles
from trajcli.files.conversion import decode_values
from trajcli.files.file_bytes import FileBytes
from trajcli.files.source import natural_order
from trajcli.memory import CHUNK_CACHE

# An open dataset of h5py has a cache of chunks of its own, so that few of them stay open.
_OPEN_DATASETS = 8
# Soft links may form a circle. Deep groups cost time, since HDF5 visits each by its whole path.
_DEEPEST_LINK, _DEEPEST_GROUP = 32, 100
_FAILURES = (OSError, RuntimeError, ValueError, KeyError, TypeError, MemoryError, OverflowError)
_LONGEST_ATTRIBUTE = 1 << 20
_PLAIN_TYPES = (h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.STRING)
# The largest compression ratio of HDF5's own filters: deflate reaches about 1030 : 1.
_EXPANSION_LIMIT = 1100
# The filters deflate to scale-offset, and h5py's LZF; all others are plug-ins.
_BUILT_IN_FILTERS = {*range(1, 7), 32000}
_COMPRESSORS = {1: "gzip", 4: "szip", 5: "nbit", 6: "scaleoffset", 32000: "lzf"}

# The links of a group by kind, in natural order; its attributes; whether it is in another file.
_Group = tuple[Mapping[str, int], Mapping[str, Any], bool]


class _Handle:
    def __init__(self, path: Path) -> None:
        self.bytes = FileBytes(path)  # first, since HDF5 would wait for a pipe
        try:
            access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
            access.set_cache(0, 521, CHUNK_CACHE, 0.75)
            access.set_file_locking(True, True)
            name, flags = os.fsencode(path), h5py.h5f.ACC_RDONLY
            try:
                self.file = h5py.h5f.open(name, flags, fapl=access)
            except OSError as error:
                # A file system may refuse locks. HDF5 goes on without them only where the kernel
                # lacks the call; BlockingIOError is the lock of another program, and stands.
                if isinstance(error, BlockingIOError) or "unable to lock" not in str(error):
                    raise
                access.set_file_locking(False, True)
                self.file = h5py.h5f.open(name, flags, fapl=access)
            self.user_block = self.file.get_create_plist().get_userblock()
            self.root = h5py.h5g.open(self.file, b"/")
        except BaseException:
            self.bytes.close()
            raise
        self.datasets: dict[str, Any] = {}

    def close(self) -> None:
        self.datasets.clear()  # HDF5 keeps a file open as long as one of its objects is
        del self.root
        self.file.close()
        self.bytes.close()


class Hdf5File(RecordFile):
    """An HDF5 file.

    External links, external storage, virtual datasets and plug-ins are refused unless allowed.
    """

    family, handle_type = "hdf5", _Handle
    failures = _FAILURES
    expected = "an intact HDF5 file"
    slash = "/"

    def __init__(self, path: Path, pool: OpenFiles | None = None) -> None:
        super().__init__(path, pool)
        self._names: list[str] = []
        self._groups: dict[str, _Group | None] = {}
        self.open_handle()

    def names(self) -> list[str]:
        if self._names:
            return self._names
        names, root = list[str](), self.open_handle().root

        def visit(name: bytes, info: Any) -> bytes | None:
            if name.count(b"/") > _DEEPEST_GROUP:
                return name
            # only these can be dimension scales without values; opening all others would be slow
            dimension = b"/" not in name or name.endswith((b"/dof", b"/point"))
            if info.type == h5py.h5o.TYPE_DATASET and not (
                dimension and _is_bare_dimension(h5py.h5o.open(root, name))
            ):
                names.append(_decode(name))
            return None

        # visiting thousands of nested groups takes seconds, so visit() stops at the depth limit
        if self.guard("", lambda: h5py.h5o.visit(root, visit, info=True)) is not None:
            what, expected = "groups nested too deeply", f"at most {_DEEPEST_GROUP} levels"
            raise InputError(what, where=str(self.path), expected=expected, found="more")
        self._names = self.expand_records(natural_order(names))
        return self._names

    def attributes(self, group: str = "") -> Mapping[str, Any]:
        return self._contents(group)[1]

    def children(self, group: str = "") -> list[str]:
        # links out of the file are listed, too; reading them is refused
        return list(self._contents(group)[0])

    def _contents(self, group: str) -> tuple[Iterable[str], Mapping[str, Any]]:
        path = group.strip("/")
        if path not in self._groups:
            self.guard(path, self._group, path)
        if (known := self._groups[path]) is not None:
            return known[:2]
        table = self.records(path)
        return (table.children(), table.about) if table else ((), {})

    def dims(self, name: str) -> tuple[str, ...]:
        def scales() -> list[str]:
            axes = h5py.Dataset(self._open(name.strip("/"))).dims
            return [axis[0].name if len(axis) else name for axis in axes]

        return tuple(scale.rpartition("/")[2] for scale in self.guard(name, scales))

    def _group(self, path: str) -> _Group | None:
        if path not in self._groups:
            self._groups[path] = None  # a soft link that leads back here finds no group
            try:
                item = self._open(path)
                if isinstance(item, h5py.h5g.GroupID):
                    name = h5py.h5f.get_name(self._handle.root)
                    foreign = self.pool.allow_external and h5py.h5f.get_name(item) != name
                    kinds: dict[str, int] = {}
                    item.links.iterate(
                        lambda name, info: kinds.setdefault(_decode(name), info.type) and None,
                        info=True,
                    )
                    links = {name: kinds[name] for name in natural_order(kinds)}
                    read = lambda name: _read_attribute(self._open(path), _encode(name))  # noqa: E731
                    names = list(map(_decode, _attribute_names(item)))
                    attributes = _Attributes(names, functools.partial(self.guard, path, read))
                    self._groups[path] = links, attributes, foreign
                    self.known_children[path] = links
            except BaseException:
                del self._groups[path]
                raise
        return self._groups[path]

    def _open(self, path: str, depth: int = 0) -> Any:
        root = (self._handle or self.open_handle()).root
        if not path:
            return root
        parent, _, last = path.rpartition("/")
        links, _, foreign = self._group(parent) or ({}, {}, False)
        kind = links.get(last)
        if kind == h5py.h5l.TYPE_EXTERNAL:
            file, item = root.links.get_val(_encode(path))
            self._refuse_external(path, f"a link to {_decode(file)}:{_decode(item)}", file)
        elif kind == h5py.h5l.TYPE_SOFT and not foreign:
            # followed here, not by HDF5, so that an external link on the way is seen
            target = _decode(root.links.get_val(_encode(path)))
            parts = target.split("/") if target.startswith("/") else [parent, *target.split("/")]
            end = "/".join(part for part in parts if part not in ("", "."))
            return self._open(end, depth + 1) if depth < _DEEPEST_LINK else None
        return None if kind is None else h5py.h5o.open(root, _encode(path))

    def _refuse_external(self, path: str, target: str, name: str | bytes | None = None) -> None:
        """Refuses an object of another file or, where allowed, records the file as read."""
        if not self.pool.allow_external:
            raise InputError(
                "leads out of the file",
                where=f"{self.path}:/{path}",
                expected="values in the file itself",
                found=target,
                hint="h5py reads it, if you trust the file",
                shell="--allow-external reads it, if you trust the file",
            )
        if name is not None:
            other = os.path.join(self.path.parent, os.fsdecode(name))
            self.pool.sources.record(other)
            self.linked_paths += [other] if other not in self.linked_paths else []

    def find(self, name: str) -> Dataset | None:
        item = self._open(name)
        if not isinstance(item, h5py.h5d.DatasetID):
            return None
        handle = self._handle
        offset, dtype, shape = item.get_offset(), item.dtype, item.shape
        pairs = ((_decode(name), _read_attribute(item, name)) for name in _attribute_names(item))
        attributes = {name: value for name, value in pairs if value is not None}
        # Contiguous values whose bytes are those of NumPy's type, so that HDF5 would convert
        # nothing, are mapped. Their offset is relative to the user block, and means nothing in
        # another file.
        foreign = handle.user_block or self.linked_paths or attributes.get("MATLAB_class")
        plain = offset is not None and dtype.kind in NUMERIC_KINDS and dtype.itemsize <= 8
        plain = plain or (offset is not None and bool(dtype.names) and not dtype.hasobject)
        plain = plain and item.get_type().equal(h5py.h5t.py_create(dtype))
        size = math.prod(shape) * dtype.itemsize if plain and not foreign else 0
        if 0 < size <= handle.bytes.size - (offset or 0):
            read = functools.partial(self._map_rows, dtype, shape, offset)
            stored = self.make_dataset(name, shape, dtype, read, attributes, "contiguous")
            return decode_values(stored)
        if _is_bare_dimension(item):
            return None
        where = self.place(name)
        empty = shape is None or attributes.get("MATLAB_empty")
        # a damaged string type looks like a sequence, and HDF5 would read beyond its memory
        texts = item.get_type().get_class() == h5py.h5t.STRING
        if empty or (dtype.hasobject and not texts):
            raise InputError(
                "an empty dataset" if empty else "not real numbers",
                where=where,
                expected="numbers or texts",
                found="no values at all" if empty else "sequences",
            )
        dataset = h5py.Dataset(item)
        unpacked = self._check_storage(dataset, name)
        self.pool.refuse_larger(unpacked, where, "smaller chunks: h5repack -l CHUNK=...")
        packing = [dataset.compression, "shuffle" if dataset.shuffle else None]
        chunks = f"chunked {'×'.join(map(str, dataset.chunks))}" if dataset.chunks else "contiguous"
        storage = ", ".join(filter(None, [chunks, *packing]))
        read = functools.partial(self._read_rows, name)
        stored = self.make_dataset(name, shape, dtype, read, attributes, storage)
        kind = attributes.get("MATLAB_class")
        if not kind or not shape:
            return decode_values(stored)
        # MATLAB (save -v7.3) stores arrays with their dimensions reversed: they are read along the
        # last one and transposed. An array of characters [N, C] becomes N texts.
        transposed = functools.partial(self.guard, name, functools.partial(read, reverse=True))
        shape, width = shape[::-1], max(math.prod(shape[:-1]), 1)
        if str(kind) != "char" or dtype.kind != "u" or dtype.itemsize > 2:
            return decode_values(replace(stored, shape=shape, reader=transposed))

        def read_texts(start: int, stop: int) -> Any:
            rows = transposed(start, stop)
            lines = ["".join(map(chr, codes.ravel())).rstrip() for codes in rows]
            return np.array(lines, f"U{width}")

        text = np.dtype(f"U{width}")
        return decode_values(replace(stored, shape=shape[:1], dtype=text, reader=read_texts))

    def _map_rows(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int, start: int, stop: int
    ) -> Any:
        handle = self._handle or self.open_handle()
        return handle.bytes.read_rows(dtype, shape, offset, start, stop)

    def _check_storage(self, dataset: Any, path: str) -> int:
        """Refuses what is unsafe to read; returns the size in bytes of what is unpacked at once."""
        where, properties = f"{self.path}:/{path}", dataset.id.get_create_plist()
        filters = [properties.get_filter(k) for k in range(properties.get_nfilters())]
        for code, *_, name in filters:
            if code not in _BUILT_IN_FILTERS:
                plug_in = name.decode("utf-8", "replace")
                self._refuse_external(path, f"a filter that is a plug-in: {plug_in}")
        for file, *_ in dataset.external or ():
            self._refuse_external(path, f"values in {file}", file)
        sources = dataset.virtual_sources() if dataset.is_virtual else ()
        for file in dict.fromkeys(source.file_name for source in sources):
            self._refuse_external(path, "a virtual dataset", None if file == "." else file)
            if file != "." and not os.path.exists(os.path.join(self.path.parent, file)):
                raise InputError(
                    "a virtual dataset without its values", where=where, found=f"no file {file}"
                )
        packers = [_COMPRESSORS[code] for code, *_ in filters if code in _COMPRESSORS]
        if len(packers) > 1:  # a few kB compressed twice may expand to any size
            raise InputError(
                "compressed more than once",
                where=where,
                expected="one compressor",
                found=", ".join(packers),
                hint="write it again with one compressor",
            )
        # the size of a value in the file, which HDF5 may convert to a larger one
        value_size = min(dataset.dtype.itemsize, dataset.id.get_type().get_size())
        size, stored = dataset.size * value_size, dataset.id.get_storage_size()
        packed = dataset.chunks and filters
        # HDF5 does not check the length of unfiltered chunks, and would read beyond short ones
        declared = size > stored * (_EXPANSION_LIMIT if packed else 1)
        if declared and not dataset.external and not dataset.is_virtual:
            raise InputError(
                "declares more than the file holds",
                where=where,
                expected=f"the values of {size} bytes declared "
                f"({list(dataset.shape)} {dataset.dtype})",
                found=f"{stored} bytes stored",
                hint="it was never written, or cut off: get or write it again",
            )
        chunk = math.prod(dataset.chunks) * dataset.dtype.itemsize if packed else 0
        # a field of records is read as a whole
        column = 8 * dataset.size if dataset.dtype.names else size
        return max(chunk, column) if packed and dataset.ndim == 1 else chunk

    def _read_rows(self, path: str, start: int, stop: int, reverse: bool = False) -> Any:
        datasets = self.open_handle().datasets
        if path not in datasets:
            if len(datasets) >= _OPEN_DATASETS:
                del datasets[next(iter(datasets))]
            datasets[path] = h5py.Dataset(self._open(path))
        stored = datasets[path]
        if reverse:
            return np.ascontiguousarray(stored[..., start:stop].T)
        return np.asarray(stored[start:stop] if stored.shape else stored[()])


def _encode(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _decode(name: bytes | str) -> str:
    return name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name


class _Attributes(Mapping[str, Any]):
    """The attributes of a group, read on demand: robomimic's have models of 100 kB each."""

    def __init__(self, names: list[str], read: Callable[[str], Any]) -> None:
        self._names, self._read = names, read
        self._values: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name in self._names and name not in self._values:
            self._values[name] = self._read(name)
        value = self._values.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._names if name in self)

    def __len__(self) -> int:
        return len(list(self))


def _attribute_names(item: Any) -> list[bytes]:
    names: list[bytes] = []
    if h5py.h5a.get_num_attrs(item):
        with contextlib.suppress(*_FAILURES):
            h5py.h5a.iterate(item, names.append)
    return names


def _read_attribute(item: Any, name: bytes) -> Any:
    """Reads an attribute that is a number, an array of numbers or a text; else gives None."""
    # h5py's AttributeManager takes three times as long, and the units of every array are read
    with contextlib.suppress(*_FAILURES):
        stored = h5py.h5a.open(item, name)
        if stored.get_type().get_class() not in _PLAIN_TYPES:
            return None  # HDF5 may read beyond its memory if such a type is damaged
        shape, dtype = stored.shape, stored.dtype
        if stored.get_storage_size() > _LONGEST_ATTRIBUTE or shape is None:
            return None
        if shape and dtype.kind not in "fiu":
            return None  # an array of strings may refer to one long string any number of times
        value: Any = np.empty(shape, dtype)
        stored.read(value)
        value = value if shape else value[()]
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        kinds = (str, int, float, np.integer, np.floating, np.ndarray)
        return value if isinstance(value, kinds) else None
    return None


def _is_bare_dimension(item: Any) -> bool:
    # netCDF marks a dimension without values so
    name = _read_attribute(item, b"NAME") if h5py.h5a.exists(item, b"NAME") else None
    return isinstance(name, str) and name.startswith("This is a netCDF dimension but not")
