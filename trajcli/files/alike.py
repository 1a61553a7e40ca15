"""Small files by the thousand that differ in their values alone.

Opening an HDF5 file takes a millisecond, and keeps it open. Where all bytes of a small file but
the values of its plain datasets are those of another, it holds the same datasets at the same
places: then only one of them is opened, and of the others the values are read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import InputError
from trajcli.files.arrays import ArrayFile, StoredArray, unreadable
from trajcli.files.mapping import shortened

_SMALL_BYTES = 1 << 16
_TINY_BYTES, _MOST_TINY = 64, 8
"""Values of so few bytes, such as a dt or a start, are kept; they are asked for at once."""
_MOST_KINDS = 128
"""Each keeps a file open."""


@dataclass
class _Kind:
    """A file that others are like: what it holds, and where the values lie that may differ."""

    file: ArrayFile
    places: Mapping[str, int]
    rest: tuple[bytes, ...]
    spans: tuple[tuple[int, int], ...]
    tiny: Mapping[str, int]
    arrays: dict[str, StoredArray | None] = field(default_factory=dict)
    held: dict[str, Any] = field(default_factory=dict)

    def covers(self, data: bytes) -> bool:
        """Whether these bytes differ from the file in values alone."""
        return all(data[a:b] == own for (a, b), own in zip(self.spans, self.rest, strict=True))

    def get(self, name: str) -> StoredArray | None:
        """The dataset of the file itself."""
        if name not in self.arrays:
            self.arrays[name] = self.file.get(name)
        return self.arrays[name]

    def first_of(self, groups: Sequence[str], names: Sequence[str]) -> str | None:
        """The first dataset there is with one of these names, group by group."""
        key = "\n".join((*groups, "", *names))
        if key not in self.held:
            there = (group + name for group in groups for name in names)
            self.held[key] = next((name for name in there if self.get(name) is not None), None)
        found: str | None = self.held[key]
        return found

    def once(self, what: str, group: str, ask: Callable[[str], Any]) -> Any:
        """What the file says of a group, asked for once."""
        key = f"{what} {group}"
        if key not in self.held:
            self.held[key] = ask(group)
        return self.held[key]


class AlikeFile(ArrayFile):
    """A file that is like another."""

    __slots__ = ("_kind", "_tiny")

    def __init__(self, path: Path, kind: _Kind, data: bytes) -> None:
        super().__init__(os.fspath(path), kind.file.family)
        self._kind = kind
        self._tiny = b"".join(
            data[at : at + size]
            for at, size in ((kind.places[name], size) for name, size in kind.tiny.items())
        )

    def names(self) -> list[str]:
        return self._kind.file.names()

    def get(self, name: str) -> StoredArray | None:
        key = name.strip("/")
        stored, at = self._kind.get(key), self._kind.places.get(key)
        if stored is None or at is None:
            return stored and _renamed(stored, self._kind.file, self.path)
        path = os.fspath(self._path)
        values: Any = _Values(path, at, stored.shape, stored.dtype)
        if key in self._kind.tiny:
            values = _Held(self._held(key), stored.shape, stored.dtype)
        where = f"{path}:/{key}" if key else path
        return StoredArray(
            where, stored.shape, stored.dtype, values, stored.attributes, stored.storage
        )

    def _held(self, key: str) -> bytes:
        """The bytes of a tiny dataset."""
        begin = 0
        for name, size in self._kind.tiny.items():
            if name == key:
                return self._tiny[begin : begin + size]
            begin += size
        return b""

    def first_of(self, groups: Sequence[str], names: Sequence[str]) -> str | None:
        """The first dataset there is with one of these names, group by group."""
        return self._kind.first_of(groups, names)

    def attributes(self, group: str = "") -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._kind.once("attributes", group, self._kind.file.attributes)
        return found

    def children(self, group: str = "") -> list[str]:
        found: list[str] = self._kind.once("children", group, self._kind.file.children)
        return found

    def has_group(self, name: str) -> bool:
        return bool(self._kind.once("group", name, self._kind.file.has_group))


class Kinds:
    """The kinds of files met so far."""

    def __init__(self) -> None:
        self._by_size: dict[int, list[_Kind]] = {}
        self._count = 0

    def like(self, path: Path) -> tuple[ArrayFile | None, bytes]:
        """The file, where it is like one met before; and its bytes, where it is small."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return None, b""  # opening it in the usual way says why
        try:
            size = os.fstat(descriptor).st_size
            data = os.read(descriptor, size) if size <= _SMALL_BYTES else b""
        except OSError:
            return None, b""
        finally:
            os.close(descriptor)
        for kind in self._by_size.get(len(data), ()):
            if kind.covers(data):
                return AlikeFile(path, kind, data), data
        return None, data

    def add(self, file: ArrayFile, data: bytes) -> None:
        """Remember a file of these bytes, where others may be like it."""
        if not data or self._count >= _MOST_KINDS:
            return
        try:
            places = file.places()
            arrays = {name: file.require(name) for name in places}
        except InputError:
            return
        spans, begin = [], 0
        for at, size in sorted((at, arrays[name].nbytes) for name, at in places.items()):
            if at < begin:
                return
            spans.append((begin, at))
            begin = at + size
        if not places or begin > len(data):
            return
        spans.append((begin, len(data)))
        rest = tuple(data[a:b] for a, b in spans)
        tiny = {name: array.nbytes for name, array in arrays.items() if array.nbytes <= _TINY_BYTES}
        kind = _Kind(file, places, rest, tuple(spans), tiny if len(tiny) <= _MOST_TINY else {})
        self._by_size.setdefault(len(data), []).append(kind)
        self._count += 1


def _renamed(stored: StoredArray, of: ArrayFile, path: Path) -> StoredArray:
    """A dataset that is the same in all files alike."""
    return replace(stored, where=stored.where.replace(str(of.path), str(path), 1))


@dataclass(frozen=True, slots=True)
class _Values:
    """The rows of an array that lies in a file."""

    path: str
    at: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __call__(self, start: int, stop: int) -> Any:
        values: Any = np.empty(self.shape, self.dtype)
        view = memoryview(values.reshape(-1).view(np.uint8))
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
            try:
                count = os.preadv(descriptor, [view], self.at)
                now = os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)
        except OSError as error:
            raise InputError(unreadable(self.path, "a readable file", error)) from None
        if count != len(view):
            raise InputError(shortened(self.path, self.at + len(view), now))
        return values[start:stop] if self.shape else values


@dataclass(frozen=True, slots=True)
class _Held:
    """The rows of an array that has been read."""

    data: bytes
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __call__(self, start: int, stop: int) -> Any:
        values = np.frombuffer(bytearray(self.data), self.dtype).reshape(self.shape)
        return values[start:stop] if self.shape else values
