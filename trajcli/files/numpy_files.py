"""Reading .npy, .npz and folders of .npy: never a pickle, never more than the file holds."""

from __future__ import annotations

import json
import math
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import ArrayFile, Dataset, unreadable
from trajcli.files.atomic_output import PROVENANCE
from trajcli.files.mapping import FileBytes
from trajcli.files.source import natural_key

_FAULTS = (
    ValueError, EOFError, OSError, RuntimeError, TypeError, KeyError, IndexError, ArithmeticError,
    MemoryError, SyntaxError, zipfile.BadZipFile, zlib.error, tokenize.TokenError,
)  # fmt: skip
"""What NumPy, zipfile and zlib raise over damaged files."""
_ARRAY = "an array without pickled objects"
_EXPANSION_LIMIT = 1100
"""Deflate packs no more than about 1030 : 1."""
_LONGEST_PROVENANCE = 1 << 20
"""Longer ones, in bytes, are not trajcli's."""


class _Header:
    """What an array in NumPy's format says of itself; its values follow."""

    def __init__(self, stream: Any) -> None:
        version = np.lib.format.read_magic(stream)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        if version not in read:
            raise ValueError(f"npy format version {version}")
        shape, self.fortran, self.dtype = read[version](stream)
        self.shape = tuple(int(n) for n in shape)
        if self.dtype.hasobject:
            raise ValueError("pickled objects")
        if any(n < 0 for n in self.shape):
            raise ValueError(f"a shape of {list(self.shape)}")
        self.fortran = self.fortran and len(self.shape) > 1
        self.offset: int = stream.tell()
        self.nbytes = math.prod(self.shape) * self.dtype.itemsize

    def rows(self, data: FileBytes, begin: int, start: int, stop: int) -> npt.NDArray[Any]:
        """Rows start..stop, where the header lies at ``begin`` of a file."""
        if not self.fortran:
            return data.rows(self.dtype, self.shape, begin + self.offset, start, stop)
        whole = data.array(self.dtype, self.shape[::-1], begin + self.offset)
        rows: npt.NDArray[Any] = whole.T[start:stop]
        return rows


class NpyFile(ArrayFile):
    """One array; its dataset name is empty."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "npy")
        try:
            with open(path, "rb") as stream:
                self._header = _Header(stream)
        except _FAULTS as error:
            fault = pickled(path) if "pickled" in str(error) else unreadable(path, _ARRAY, error)
            raise InputError(fault) from None
        size = self.opened().size
        if size < self._header.offset + self._header.nbytes:
            what, expected = "shorter than its header says", "as many values as the header declares"
            hint = "it was cut off while being written or copied: get it again"
            raise InputError(Fault(what, str(path), expected, f"a file of {size} bytes", hint))

    def begin(self) -> FileBytes:
        return FileBytes(self.path)

    def names(self) -> list[str]:
        return [""]

    def get(self, name: str) -> Dataset | None:
        header = self._header

        def read_rows(start: int, stop: int) -> Any:
            with self.lock:
                return header.rows(self.opened(), 0, start, stop)

        order = "Fortran order" if header.fortran else "contiguous"
        stored = Dataset(str(self.path), header.shape, header.dtype, read_rows, storage=order)
        return None if name.strip("/") else stored


class _NamedArrays(ArrayFile):
    """Arrays by name, beside which trajcli.json says what .npy cannot where trajcli wrote them."""

    def describe(self, text: bytes) -> None:
        """Take over what trajcli.json says; nothing of one that is none of trajcli's."""
        try:
            document = json.loads(text) if len(text) <= _LONGEST_PROVENANCE else None
        except (ValueError, RecursionError):
            document = None
        table = document if isinstance(document, dict) else {}
        attributes, units = (
            part if isinstance(part, dict) else {}
            for part in (table.get("attributes"), table.get("units"))
        )
        self._attributes = {n: v for n, v in attributes.items() if isinstance(v, (str, int, float))}
        self._units = {name: str(unit) for name, unit in units.items()}
        names = table.get("dof")
        self._dofs = list(map(str, names)) if isinstance(names, list) else None

    def attributes(self, group: str = "") -> Mapping[str, Any]:
        return {} if group.strip("/") else self._attributes

    def dof_names(self) -> list[str] | None:
        return self._dofs

    def names(self) -> list[str]:
        return sorted(self.parts(), key=natural_key)

    def parts(self) -> Mapping[str, Any]:
        """What holds each array, by name."""
        raise NotImplementedError

    def get(self, name: str) -> Dataset | None:
        name = name.strip("/")
        stored = self.array(name) if name in self.parts() else None
        unit = self._units.get(name)
        return replace(stored, attributes={"units": unit}) if stored and unit else stored

    def array(self, name: str) -> Dataset:
        """The array of a name there is."""
        raise NotImplementedError


class FolderFile(_NamedArrays):
    """A folder that trajcli wrote; each .npy in it and in its folders is a dataset."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "npy folder")
        try:
            with open(path / PROVENANCE, "rb") as stream:
                self.describe(stream.read(_LONGEST_PROVENANCE + 1))
            files = [*path.glob("*.npy"), *path.glob("*/*.npy")]
        except OSError as error:
            raise InputError(unreadable(path, "a folder", error)) from None
        self._files: dict[str, NpyFile] = {}
        self._parts = {
            part.relative_to(path).with_suffix("").as_posix(): part
            for part in files
            if part.is_file() and not (part.is_symlink() or part.parent.is_symlink())
        }

    def parts(self) -> Mapping[str, Path]:
        return self._parts

    def array(self, name: str) -> Dataset:
        if name not in self._files:
            self._files[name] = NpyFile(self._parts[name])
        self._files[name].share(self.pool)
        return self._files[name].require("")

    def close(self) -> None:
        for file in self._files.values():
            file.close()


class NpzFile(_NamedArrays):
    """A zip archive of .npy members. Stored ones are read in place; deflated ones as a whole, and
    kept until the file is closed."""

    failures = _FAULTS
    expected = "an .npz archive"

    def __init__(self, path: Path) -> None:
        super().__init__(path, "npz")
        archive = self.opened().zip
        try:
            with archive.open(PROVENANCE) as stream:
                text = stream.read(_LONGEST_PROVENANCE + 1)
        except _FAULTS:  # another program wrote it
            text = b""
        self.describe(text)

    def begin(self) -> _Archive:
        return _Archive(self.path)

    def parts(self) -> Mapping[str, zipfile.ZipInfo]:
        infos: Mapping[str, zipfile.ZipInfo] = self.opened().infos
        return infos

    def array(self, name: str) -> Dataset:
        where = f"{self.path}:{name}"
        header, whole = self.safely(name, lambda: self._header(name), _ARRAY)

        def read_rows(start: int, stop: int) -> Any:
            return self.safely(name, lambda: self._rows(name, header, whole, start, stop), _ARRAY)

        plain = self.parts()[name].compress_type == zipfile.ZIP_STORED
        storage = "stored" if plain else "deflated"
        return Dataset(where, header.shape, header.dtype, read_rows, storage=storage)

    def _header(self, name: str) -> tuple[_Header, bool]:
        """What a member says of itself, and whether it is read as a whole."""
        info = self.parts()[name]
        with self.opened().zip.open(info) as stream:
            header = _Header(stream)
        declared, size = header.nbytes, info.file_size - header.offset
        if declared > _EXPANSION_LIMIT * (info.compress_size + 1):
            raise ValueError(f"declares {declared} bytes in {info.compress_size} packed ones")
        if declared != size:
            raise ValueError(f"declares {declared} bytes of values, holds {size}")
        return header, header.fortran or info.compress_type != zipfile.ZIP_STORED

    def _rows(self, name: str, header: _Header, whole: bool, start: int, stop: int) -> Any:
        archive, info = self.opened(), self.parts()[name]
        if whole:
            values = archive.unpacked.get(name)
            if values is None:
                self.pool.hold(self, header.nbytes, f"{self.path}:{name}")
                values = archive.unpacked[name] = _unpacked(header, archive.zip.read(info))
            return values[start:stop] if header.shape else values
        lengths = archive.bytes.array(np.dtype("<u2"), (2,), info.header_offset + 26)
        begin = info.header_offset + 30 + int(lengths.sum())
        rows = header.rows(archive.bytes, begin, start, stop)
        archive.check(info, begin, header, start, rows)
        return rows


class _Archive:
    """An open zip archive, and what was unpacked of it."""

    def __init__(self, path: Path) -> None:
        self.zip = zipfile.ZipFile(path)
        self.bytes = FileBytes(path)
        self.infos = {
            info.filename.removesuffix(".npy"): info
            for info in self.zip.infolist()
            if info.filename.endswith(".npy")
        }
        self.unpacked: dict[str, npt.NDArray[Any]] = {}
        self._checked: dict[str, tuple[int, int]] = {}

    def check(
        self, info: zipfile.ZipInfo, begin: int, header: _Header, start: int, rows: Any
    ) -> None:
        """Raise BadZipFile where a stored member, read from front to end, misses its checksum."""
        at, sum_ = self._checked.get(info.filename, (0, 0))
        first = start * (header.nbytes // header.shape[0]) if header.shape and start else 0
        if first == 0:
            head = self.bytes.array(np.dtype("u1"), (header.offset,), begin)
            at, sum_ = 0, zlib.crc32(head.tobytes())
        if first != at:
            return
        sum_ = zlib.crc32(rows.tobytes(), sum_)
        self._checked[info.filename] = (at + rows.nbytes, sum_)
        if at + rows.nbytes == header.nbytes and sum_ != info.CRC:
            raise zipfile.BadZipFile(f"Bad CRC-32 for file {info.filename!r}")

    def close(self) -> None:
        """Close the archive."""
        self.unpacked.clear()
        self.zip.close()
        self.bytes.close()


def _unpacked(header: _Header, data: bytes) -> npt.NDArray[Any]:
    """The array that a member holds."""
    values = np.frombuffer(data, header.dtype, math.prod(header.shape), header.offset)
    return values.reshape(header.shape[::-1]).T if header.fortran else values.reshape(header.shape)


def pickled(path: Path) -> Fault:
    """The fault of data that could run code when read."""
    return Fault(
        "pickled data",
        str(path),
        "an array of floats or integers",
        "a pickle, which can run code when read",
        "save it again as a plain array: np.save(path, np.asarray(values, dtype=float))",
    )
