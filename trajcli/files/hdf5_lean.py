"""Datasets of an HDF5 file looked up by the thousand.

Straight from the file's bytes where it is of HDF5's earliest form, else by few of h5py's
low-level calls. Only the plain case: numbers in this very file, reached by hard links alone. For
everything else the answer is None, and the careful way is gone.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import InputError
from trajcli.files import hdf5_early
from trajcli.files.arrays import NUMERIC_KINDS, StoredArray, unreadable
from trajcli.files.hdf5_chunks import Chunked, find_chunks
from trajcli.files.mapping import is_safe, part_of

_MOST_TABLES = 8
_NOT_PLAIN = (OSError, RuntimeError, ValueError, KeyError, TypeError)


class Lean:
    """The plain datasets of an open file; ``careful`` finds one as HDF5 does."""

    def __init__(
        self, h5py: Any, file: Any, path: Path, careful: Callable[[str], StoredArray]
    ) -> None:
        self._h5, self._path, self._careful = h5py, path, careful
        self._groups: dict[str, Any] = {"": h5py.h5g.open(file.id, b"/")}
        self._links: dict[str, set[str]] = {}
        self._types: list[tuple[Any, np.dtype[Any]]] = []
        self._size = os.path.getsize(path)
        self._whole: Any = None
        self._mappable = not file.userblock_size and self._size > 0 and is_safe(path)
        self._early: hdf5_early.Early | None = None
        self._tables: dict[str, dict[str, int | None]] = {}
        if self._mappable:
            with contextlib.suppress(*hdf5_early.ODD):
                self._early = hdf5_early.Early(file.id.get_vfd_handle())
                self._numbers = hdf5_early.types(h5py)

    def close(self) -> None:
        """What has not been read cannot be read any more."""
        if self._early is not None:
            self._early.close()

    def _table(self, name: str) -> dict[str, int | None]:
        """The objects in a group, by the file's bytes; raises ``ODD``. The last few are kept."""
        assert self._early is not None
        found = self._tables.pop(name, None)
        if found is None:
            above, _, last = name.rpartition("/")
            header = self._table(above)[last] if name else self._early.root
            if header is None:
                raise hdf5_early.NotEarly
            found = self._early.names(header)
            if len(self._tables) >= _MOST_TABLES:
                del self._tables[next(iter(self._tables))]
        self._tables[name] = found
        return found

    def lacks(self, name: str) -> bool:
        """Whether the file surely holds nothing of this name."""
        above, _, last = name.rpartition("/")
        try:
            return self._early is not None and last not in self._table(above)
        except KeyError:  # of a group above
            return True
        except hdf5_early.ODD:
            return False

    def _early_dataset(self, name: str, where: str) -> StoredArray | None:
        """A dataset by the file's bytes; None where they are not just as expected."""
        if self._early is None:
            return None
        above, _, last = name.rpartition("/")
        try:
            header = self._table(above)[last]
            if header is None:
                return None
            with contextlib.suppress(hdf5_early.NotEarly):
                return self._array(*self._early.dataset(header, self._numbers), name, where)
            return self._chunked(find_chunks(self._early, header, self._numbers), name, where)
        except hdf5_early.ODD:
            return None

    def _chunked(self, chunks: Chunked, name: str, where: str) -> StoredArray:
        """A small chunked dataset; what cannot be unpacked here HDF5 is asked for."""

        def read_rows(start: int, stop: int) -> Any:
            assert self._early is not None
            start, stop, _ = slice(start, stop).indices(chunks.shape[0])
            try:
                return chunks.read(self._early.at, start, max(start, stop))
            except hdf5_early.ODD:
                return self._careful(name).read_rows(start, stop)

        attributes = Attributes(self._read_attributes, name)
        return StoredArray(where, chunks.shape, chunks.dtype, read_rows, attributes, chunks.storage)

    def group(self, name: str) -> Any:
        """A group reached by hard links, by its low-level name; None where there is none such."""
        if name not in self._groups:
            above, _, last = name.rpartition("/")
            parent, found = self.group(above), None
            raw = last.encode()
            if parent is not None and self._hard(parent, raw):
                try:
                    found = self._h5.h5g.open(parent, raw)
                except _NOT_PLAIN:
                    found = None
            self._groups[name] = found
        return self._groups[name]

    def _hard(self, parent: Any, name: bytes) -> bool:
        try:
            return bool(parent.links.get_info(name).type == self._h5.h5l.TYPE_HARD)
        except _NOT_PLAIN:
            return False

    def _hard_links(self, name: str, group: Any) -> set[str]:
        """The hard links of a group, all looked at in one go."""
        if name not in self._links:
            found: set[str] = set()

            def note(link: bytes, info: Any) -> None:
                if info.type == self._h5.h5l.TYPE_HARD:
                    found.add(link.decode("utf-8", "surrogateescape"))

            try:
                group.links.iterate(note, info=True)
            except _NOT_PLAIN:
                found = set()
            self._links[name] = found
        return self._links[name]

    def children(self, name: str) -> list[str] | None:
        """The names in a group; None where it is not a plain one."""
        if self._early is not None:
            with contextlib.suppress(*hdf5_early.ODD):
                return list(self._table(name))
        above, _, last = name.rpartition("/")
        parent = self.group(above)  # not kept: there may be thousands
        raw = last.encode()
        if not last or parent is None or not self._hard(parent, raw):
            return None
        try:
            return [each.decode() for each in self._h5.h5g.open(parent, raw)]
        except _NOT_PLAIN:
            return None

    def dataset(self, name: str, where: str) -> StoredArray | None:
        """A dataset of numbers whose values lie in the file as they are; None for any other."""
        early = self._early_dataset(name, where)
        if early is not None or self.lacks(name):
            return early
        above, between, last = _split(name)
        parent = self.group(above)
        if parent is None or (between and between not in self._hard_links(above, parent)):
            return None
        path = f"{between}/{last}".encode() if between else last.encode()
        if not self._hard(parent, path):
            return None
        try:
            found = self._h5.h5d.open(parent, path)
            return self._stored(found, name, where)
        except _NOT_PLAIN:
            return None

    def _stored(self, dataset: Any, name: str, where: str) -> StoredArray | None:
        kind, offset = self._dtype(dataset.get_type()), dataset.get_offset()
        if kind is None or offset is None:  # chunked, compact, virtual or in another file
            return None
        shape = dataset.shape
        size = math.prod(shape) * kind.itemsize
        if not (self._mappable and shape and 0 < size <= self._size - offset):
            return None
        return self._array(shape, kind, offset, name, where)

    def _array(
        self, shape: tuple[int, ...], kind: np.dtype[Any], offset: int, name: str, where: str
    ) -> StoredArray:
        """Values in one piece, whose place is known."""
        if self._whole is None:
            self._whole = np.memmap(self._path, np.uint8, "r")
        values: Any = np.ndarray(shape, kind, self._whole, offset)

        def read_steps(start: int, stop: int, first: int, last: int) -> Any:
            try:
                return part_of(values, self._path, offset, (start, stop, first, last))
            except OSError as error:
                raise InputError(unreadable(where, "an intact HDF5 file", error)) from None

        return StoredArray(
            where,
            shape,
            kind,
            lambda start, stop: values[start:stop],
            Attributes(self._read_attributes, name),
            "contiguous",
            read_steps,
        )

    def _read_attributes(self, name: str) -> dict[str, Any]:
        from trajcli.files.hdf5 import small_attributes

        try:
            raw = self._h5.h5d.open(self._groups[""], name.encode())
            return small_attributes(self._h5.Dataset(raw))
        except _NOT_PLAIN:
            return {}

    def _dtype(self, kind: Any) -> np.dtype[Any] | None:
        """The type as NumPy has it; None for what is not a number of at most 8 bytes."""
        for known, dtype in self._types:
            if kind.equal(known):
                return dtype
        own: np.dtype[Any] = kind.dtype
        if own.kind not in NUMERIC_KINDS or own.itemsize > 8:
            return None
        self._types.append((kind, own))
        return own


def _split(name: str) -> tuple[str, str, str]:
    """data/demo_3/actions: the group of groups, the group, the dataset."""
    rest, _, last = name.rpartition("/")
    above, _, between = rest.rpartition("/")
    return above, between, last


class Attributes(Mapping[str, Any]):
    """The attributes of a dataset, read when they are asked for."""

    def __init__(self, read: Callable[[str], dict[str, Any]], name: str) -> None:
        self._ask, self._name = read, name
        self._found: dict[str, Any] | None = None

    def _read(self) -> dict[str, Any]:
        if self._found is None:
            self._found = self._ask(self._name)
        return self._found

    def __getitem__(self, name: str) -> Any:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())
