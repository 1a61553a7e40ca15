"""Reading .npy and .npz: never a pickle, never more than the file holds."""

from __future__ import annotations

import os
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import ArrayFile, StoredArray, unreadable
from trajcli.files.mapping import is_safe, part_of
from trajcli.files.placing import PROVENANCE
from trajcli.files.provenance import LIMIT, Provenance
from trajcli.files.source import natural_key

_FAULTS = (
    ValueError,
    EOFError,
    OSError,
    RuntimeError,
    TypeError,
    KeyError,
    IndexError,
    ArithmeticError,
    MemoryError,
    SyntaxError,
    zipfile.BadZipFile,
    zlib.error,
    tokenize.TokenError,
)
"""What NumPy, zipfile and zlib raise over damaged files."""
_PASSED = 1 << 17
"""So many values are rather read than jumped over."""
_EXPANSION_LIMIT = 1100
"""Deflate packs no more than about 1030 : 1."""


class NpyFile(ArrayFile):
    """One array; its dataset name is empty."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "npy")
        self._array = _mapped(path)

    def names(self) -> list[str]:
        return [""]

    def get(self, name: str) -> StoredArray | None:
        if name.strip("/"):
            return None
        array = self._array
        order = "Fortran order" if array.flags.fnc and array.ndim > 1 else "contiguous"
        return StoredArray(
            where=str(self.path),
            shape=tuple(int(n) for n in array.shape),
            dtype=array.dtype,
            read_rows=self._read_rows,
            storage=order,
            read_steps=self._read_steps,
        )

    def places(self) -> Mapping[str, int]:
        plain = self._array.flags.c_contiguous and self._array.size
        return {"": int(self._array.offset)} if plain else {}

    def _read_rows(self, start: int, stop: int) -> Any:
        return self._read(slice(start, stop))

    def _read(self, *part: slice) -> Any:
        """Values as they lie in the file where its pages can be trusted, else read."""
        values = self._array[part] if self._array.ndim else self._array
        return values if is_safe(self.path) else np.array(values)

    def _read_steps(self, start: int, stop: int, first: int, last: int) -> Any:
        array = self._array
        if not (isinstance(array, np.memmap) and array.flags.c_contiguous and is_safe(self.path)):
            return self._read(slice(start, stop), slice(first, last))
        try:
            return part_of(array, self.path, array.offset, (start, stop, first, last))
        except OSError as error:
            raise InputError(unreadable(self.path, "an intact file", error)) from None


class NpzFile(ArrayFile):
    """A zip archive of .npy members, plain or deflated."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "npz")
        try:
            self._zip = zipfile.ZipFile(path)
        except _FAULTS as error:
            raise InputError(unreadable(path, "an .npz archive", error)) from None
        self._opened: list[_Member] = []
        self._members = {
            info.filename.removesuffix(".npy"): info
            for info in self._zip.infolist()
            if info.filename.endswith(".npy")
        }
        self._about = self._provenance()

    def _provenance(self) -> Provenance:
        """What trajcli wrote beside the arrays; nothing where another program wrote them."""
        try:
            with self._zip.open(PROVENANCE) as stream:
                return Provenance.parse(stream.read(LIMIT + 1))
        except _FAULTS:
            return Provenance()

    def names(self) -> list[str]:
        return sorted(self._members, key=natural_key)

    def get(self, name: str) -> StoredArray | None:
        info = self._members.get(name.strip("/"))
        if info is None:
            return None
        member = _Member(self._zip, info, f"{self.path}:{name.strip('/')}")
        self._opened.append(member)
        return self._about.attach(member.stored(), name.strip("/"))

    def attributes(self, group: str = "") -> Mapping[str, Any]:
        return {} if group.strip("/") else self._about.attributes

    def dof_names(self) -> list[str] | None:
        return self._about.dofs

    def close(self) -> None:
        for member in self._opened:
            member.close()
        self._zip.close()


class _Member:
    """A member of a zip archive, read front to back; going back starts it again."""

    def __init__(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo, where: str) -> None:
        self._archive, self._info, self._where = archive, info, where
        self._stream: Any = None
        self._at = 0
        try:
            self._open()
        except _FAULTS as error:
            raise InputError(unreadable(where, "an array without pickled objects", error)) from None

    def _open(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream = self._archive.open(self._info)
        version = np.lib.format.read_magic(self._stream)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        if version not in read:
            raise ValueError(f"npy format version {version}")
        shape, self._fortran, self._dtype = read[version](self._stream)
        self._shape = tuple(int(n) for n in shape)
        if self._dtype.hasobject:
            raise ValueError("pickled objects")
        count = int(np.prod(self._shape, dtype=object))
        declared = count * self._dtype.itemsize
        self._header = self._stream.tell()
        held = self._info.file_size - self._header
        if declared > _EXPANSION_LIMIT * (self._info.compress_size + 1):
            raise ValueError(f"declares {declared} bytes in {self._info.compress_size} packed ones")
        if declared != held:
            raise ValueError(f"declares {declared} bytes of values, holds {held}")
        self._at = 0

    def close(self) -> None:
        """Let go of the archive."""
        if self._stream is not None:
            self._stream.close()

    def stored(self) -> StoredArray:
        kind = "stored" if self._info.compress_type == zipfile.ZIP_STORED else "deflated"
        return StoredArray(
            self._where,
            self._shape,
            self._dtype,
            self._read_rows,
            storage=kind,
            read_steps=self._read_steps,
        )

    def _read_rows(self, start: int, stop: int) -> Any:
        try:
            if self._fortran or not self._shape:
                self._open()
                whole = self._take(int(np.prod(self._shape, dtype=object)))
                whole = whole.reshape(self._shape[::-1]).T if self._fortran else whole
                return whole[start:stop] if self._shape else whole.reshape(())
            per_row = int(np.prod(self._shape[1:], dtype=object))
            values = self._run(start * per_row, stop * per_row)
            return values.reshape(stop - start, *self._shape[1:])
        except _FAULTS as error:
            raise InputError(unreadable(self._where, "an intact archive", error)) from None

    def _read_steps(self, start: int, stop: int, first: int, last: int) -> Any:
        if self._fortran or (first, last) == (0, self._shape[1]) or start == stop:
            return self._read_rows(start, stop)[:, first:last]
        per_row = int(np.prod(self._shape[1:], dtype=object))
        per_step = int(np.prod(self._shape[2:], dtype=object))
        begin, end = first * per_step, last * per_step
        try:
            rows = [self._run(row * per_row + begin, row * per_row + end)
                    for row in range(start, stop)]  # fmt: skip
        except _FAULTS as error:
            raise InputError(unreadable(self._where, "an intact archive", error)) from None
        return np.concatenate(rows).reshape(stop - start, last - first, *self._shape[2:])

    def _run(self, begin: int, end: int) -> Any:
        """Values begin..end in the order they lie in."""
        far = begin < self._at or begin - self._at > _PASSED
        if far and self._info.compress_type == zipfile.ZIP_STORED:
            return self._jump(begin, end)
        if begin < self._at:
            self._open()
        while self._at < begin:
            self._take(min(begin - self._at, _PASSED))
        return self._take(end - begin)

    def _jump(self, begin: int, end: int) -> Any:
        """Values of a member that lies in the archive as it is, without what is before them.

        Only reading from front to end meets the checksum.
        """
        name = self._archive.filename
        assert name is not None
        with open(name, "rb") as file:
            file.seek(self._info.header_offset + 26)
            lengths = np.frombuffer(file.read(4), "<u2")
            first = self._info.header_offset + 30 + int(lengths.sum()) + self._header
            file.seek(first + begin * self._dtype.itemsize)
            size = (end - begin) * self._dtype.itemsize
            data = file.read(size)
        if len(data) != size:
            raise EOFError(f"{size - len(data)} bytes are missing")
        return np.frombuffer(bytearray(data), self._dtype)

    def _take(self, count: int) -> Any:
        size = count * self._dtype.itemsize
        data = self._stream.read(size)
        if len(data) != size:
            raise EOFError(f"{size - len(data)} bytes are missing")
        self._at += count
        return np.frombuffer(bytearray(data), self._dtype)


def _mapped(path: Path) -> Any:
    try:
        with np.errstate(all="raise"):  # of shapes that overflow
            return np.load(path, mmap_mode="r", allow_pickle=False)
    except _FAULTS as error:
        message = str(error)
        if "mmap length" in message or "buffer" in message:
            held = os.path.getsize(path)
            fault = Fault(
                "shorter than its header says",
                str(path),
                "as many values as the header declares",
                f"a file of {held} bytes",
                "it was cut off while being written or copied: get it again",
            )
            raise InputError(fault) from None
        if "allow_pickle" in message or "Object arrays" in message or "Python objects" in message:
            raise InputError(pickled(path)) from None
        raise InputError(unreadable(path, "a .npy array", error)) from None


def pickled(path: Path) -> Fault:
    """The fault of data that could run code when read."""
    return Fault(
        "pickled data",
        str(path),
        "an array of floats or integers",
        "a pickle, which can run code when read",
        "save it again as a plain array: np.save(path, np.asarray(values, dtype=float))",
    )
