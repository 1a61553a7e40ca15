"""Files by the thousand that differ in their values alone.

Opening an HDF5 file takes a millisecond, and keeps it open. Where all bytes of a file but the
values of its plain datasets are those of another, it holds the same datasets at the same places:
then only one of them is opened, and of the others the values are read.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trajcli.errors import InputError
from trajcli.files.arrays import ArrayFile, StoredArray, unreadable
from trajcli.files.mapping import shortened

_SMALL_BYTES = 1 << 16
"""Of a file that is read in one go, and of what is compared of any."""
_TINY_BYTES, _MOST_TINY = 64, 8
"""Values of so few bytes, such as a dt or a start, are kept; they are asked for at once."""
_MOST_KINDS = 128
"""Each keeps a file open."""


_Take = Callable[[int, int], bytes]
"""Bytes begin..end of a file."""


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

    def covers(self, take: _Take) -> bool:
        """Whether a file of these bytes differs from this one in values alone."""
        return all(take(a, b) == own for (a, b), own in zip(self.spans, self.rest, strict=True))

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

    def __init__(self, path: Path, kind: _Kind, take: _Take) -> None:
        super().__init__(os.fspath(path), kind.file.family)
        self._kind = kind
        self._tiny = b"".join(
            take(at, at + size)
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
        steps = values.steps if stored.ndim > 2 and isinstance(values, _Values) else None
        return StoredArray(
            where, stored.shape, stored.dtype, values, stored.attributes, stored.storage, steps
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

    def like(self, path: Path) -> ArrayFile | None:
        """The file, where it is like one met before."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return None  # opening it in the usual way says why
        try:
            size = os.fstat(descriptor).st_size
            kinds = self._by_size.get(size)
            if kinds is None:
                return None
            take = _taker(descriptor, size)
            kind = next((kind for kind in kinds if kind.covers(take)), None)
            return None if kind is None else AlikeFile(path, kind, take)
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def add(self, file: ArrayFile) -> None:
        """Remember an open file, where others may be like it."""
        if self._count >= _MOST_KINDS:
            return
        try:
            places = file.places()
            arrays = {name: file.require(name) for name in places}
            size = os.path.getsize(file.path)
        except (InputError, OSError):
            return
        spans, begin = [], 0
        for at, length in sorted((at, arrays[name].nbytes) for name, at in places.items()):
            if at < begin:
                return
            spans.append((begin, at))
            begin = at + length
        spans.append((begin, size))
        if not places or begin > size or sum(b - a for a, b in spans) > _SMALL_BYTES:
            return
        with open(file.path, "rb") as opened:
            take = _taker(opened.fileno(), size)
            rest = tuple(take(a, b) for a, b in spans)
        tiny = {name: array.nbytes for name, array in arrays.items() if array.nbytes <= _TINY_BYTES}
        kind = _Kind(file, places, rest, tuple(spans), tiny if len(tiny) <= _MOST_TINY else {})
        self._by_size.setdefault(size, []).append(kind)
        self._count += 1


def _taker(descriptor: int, size: int) -> _Take:
    """How bytes are taken from an open file: of a small one from all of them."""
    if size > _SMALL_BYTES:
        return lambda begin, end: os.pread(descriptor, end - begin, begin)
    data = os.pread(descriptor, size, 0)
    return lambda begin, end: data[begin:end]


def _renamed(stored: StoredArray, of: ArrayFile, path: Path) -> StoredArray:
    """A dataset that is the same in all files alike."""
    return replace(stored, where=stored.where.replace(str(of.path), str(path), 1))


class _Values(NamedTuple):
    """The rows of an array that lies in a file."""

    path: str
    at: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __call__(self, start: int, stop: int) -> Any:
        if not self.shape:
            return self._read([0], ())[0]
        rows = len(range(*slice(start, stop).indices(self.shape[0])))
        return self._read([start * self._each(1)], (rows, *self.shape[1:]))[0]

    def steps(self, start: int, stop: int, first: int, last: int) -> Any:
        """Rows start..stop, of these first..last along the second axis."""
        begin = first * self._each(2)
        places = [row * self._each(1) + begin for row in range(start, stop)]
        return self._read(places, (last - first, *self.shape[2:]))

    def _each(self, axis: int) -> int:
        """Bytes of an entry along an axis, counted from 1."""
        return math.prod(self.shape[axis:]) * self.dtype.itemsize

    def _read(self, places: Sequence[int], shape: tuple[int, ...]) -> Any:
        """Arrays that lie in these places after the first value."""
        values: Any = np.empty((len(places), *shape), self.dtype)
        flat: Any = values.reshape(len(places), math.prod(shape)).view(np.uint8)
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
            try:
                for piece, place in zip(flat, places, strict=True):
                    self._fill(descriptor, memoryview(piece), self.at + place)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise InputError(unreadable(self.path, "a readable file", error)) from None
        return values

    def _fill(self, descriptor: int, view: memoryview, at: int) -> None:
        while len(view):
            count = os.preadv(descriptor, [view], at)
            if not count:
                size = os.fstat(descriptor).st_size
                raise InputError(shortened(self.path, at + len(view), size))
            view, at = view[count:], at + count


class _Held(NamedTuple):
    """The rows of an array that has been read."""

    data: bytes
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __call__(self, start: int, stop: int) -> Any:
        values = np.frombuffer(bytearray(self.data), self.dtype).reshape(self.shape)
        return values[start:stop] if self.shape else values
