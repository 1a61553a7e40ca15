"""Reads .npy and .npz files: never a pickle, and never more than the file holds."""

from __future__ import annotations

import io
import math
import os
import tokenize
import zipfile
import zlib
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trajcli.errors import InputError
from trajcli.files._records import RecordFile
from trajcli.files.catalogue import (
    PROVENANCE,
    Dataset,
    OpenFiles,
    json_object,
    plain_copy,
)
from trajcli.files.file_bytes import FileBytes
from trajcli.files.source import natural_order

# The exceptions that NumPy, zipfile and zlib raise for damaged files.
_FAULTS = (
    ValueError, EOFError, OSError, RuntimeError, TypeError, KeyError, IndexError, ArithmeticError,
    MemoryError, SyntaxError, zipfile.BadZipFile, zlib.error, tokenize.TokenError,
)  # fmt: skip
_ARRAY = "an array without pickled objects"
# The largest compression ratio: deflate reaches about 1030 : 1.
_EXPANSION_LIMIT = 1100
# Bytes; NumPy itself parses no more than 10 000.
_LONGEST_HEADER = 1 << 14
# Bytes; trajcli itself writes far less.
_LONGEST_PROVENANCE = 1 << 20


class _Header(NamedTuple):
    """The header of an array in NumPy's format; the values follow at ``offset``."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    offset: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def read_rows(self, data: FileBytes, begin: int, start: int, stop: int) -> npt.NDArray[Any]:
        """Returns rows start to stop of an array whose header begins at byte ``begin``."""
        begin += self.offset
        if not self.fortran:
            return data.read_rows(self.dtype, self.shape, begin, start, stop)
        # Fortran order is C order of the reversed shape, transposed
        whole = data.read_rows(self.dtype, self.shape[::-1], begin, 0, self.shape[-1])
        rows: npt.NDArray[Any] = whole.T[start:stop]
        return rows


@lru_cache(maxsize=64)
def _parsed(head: bytes) -> _Header:
    """Parses a header; thousands of files that one program wrote have the same."""
    stream = io.BytesIO(head)
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"npy format version {version}")
    read = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
    sizes, fortran, dtype = read(stream)
    shape = tuple(int(n) for n in sizes)
    if any(n < 0 for n in shape):
        raise ValueError(f"a shape of {list(shape)}")
    return _Header(shape, dtype, fortran and len(shape) > 1, stream.tell())


def _read_header(head: bytes, path: Path, *names: str) -> _Header:
    """Parses the header at the beginning of some bytes, of a file or of an array in it."""
    # 8 bytes of magic and version, then the length in 2 or 4
    width = 2 if head[6:7] == b"\1" else 4
    header = _parsed(head[: 8 + width + int.from_bytes(head[8 : 8 + width], "little")])
    if header.dtype.hasobject:
        load = f"np.load(%s, allow_pickle=True){'[%s]' if names else ''}"
        hint = plain_copy(path, load, *names, shape=header.shape)
        where = ":".join([str(path), *names])
        what, found = "pickled data", "a pickle, which can run code when read"
        raise InputError(what, where=where, expected=_ARRAY, found=found, hint=hint)
    return header


_ALONE: dict[str, Collection[str]] = {"": ("",)}
"""The names in a file of one array, which has none."""


class NpyFile(RecordFile):
    """One array; its dataset name is empty. Of records it is the names of their fields."""

    failures = _FAULTS
    expected = _ARRAY

    def __init__(self, path: Path, pool: OpenFiles | None = None) -> None:
        super().__init__(path, "npy", pool)
        try:
            self._header = self.safely("", self._read_header)
            # one for all of a hundred thousand files
            self.listed = {} if self._header.dtype.names else _ALONE
        except BaseException:
            self.close()
            raise

    def _read_header(self) -> _Header:
        file: FileBytes = self.opened()
        head = os.pread(file.descriptor, _LONGEST_HEADER, 0)
        header = _read_header(head, self.path)
        if file.size < header.offset + header.nbytes:
            raise InputError(
                "shorter than its header says",
                where=str(self.path),
                expected="as many values as the header declares",
                found=f"a file of {file.size} bytes",
            )
        return header

    def begin(self) -> FileBytes:
        return FileBytes(self.path)

    def names(self) -> list[str]:
        return self.with_fields([""])

    def find(self, name: str) -> Dataset | None:
        if name:
            return None
        header, order = self._header, "Fortran order" if self._header.fortran else "contiguous"
        read = lambda start, stop: header.read_rows(self.opened(), 0, start, stop)  # noqa: E731
        return self.described("", header.shape, header.dtype, read, storage=order)


class NpzFile(RecordFile):
    """A zip archive of .npy members; trajcli.json in it holds attributes and units. Uncompressed
    members are read in place, others decompressed as a whole and kept until the file is closed."""

    failures = _FAULTS
    expected, expected_array = "an .npz archive", _ARRAY

    def __init__(self, path: Path, pool: OpenFiles | None = None) -> None:
        super().__init__(path, "npz", pool)
        archive = self.opened().zip
        members = {info.filename: info for info in archive.infolist()}
        self.parts = {n.removesuffix(".npy"): i for n, i in members.items() if n.endswith(".npy")}
        self._names: list[str] = []
        table: dict[str, Any] = {}
        with suppress(*_FAULTS, InputError):  # absent if another program wrote the archive
            info = archive.getinfo(PROVENANCE)
            require_deflate(info, path)
            if info.file_size <= _LONGEST_PROVENANCE:
                table = json_object(archive.read(info))
        attributes, units = table.get("attributes"), table.get("units")
        pairs = attributes.items() if isinstance(attributes, dict) else ()
        self._attributes = {k: v for k, v in pairs if isinstance(v, (str, int, float))}
        self._units = units if isinstance(units, dict) else {}

    def begin(self) -> _Archive:
        return _Archive(self.path)

    def attributes(self, group: str = "") -> Mapping[str, Any]:
        return {} if group.strip("/") else self._attributes

    def names(self) -> list[str]:
        self._names = self._names or self.with_fields(natural_order(self.parts))
        return self._names

    def find(self, name: str) -> Dataset | None:
        if name not in self.parts:
            return None
        info = self.parts[name]
        require_deflate(info, self.path)
        header = self._header(info)
        stored = info.compress_type == zipfile.ZIP_STORED
        if not stored:
            hint = "numpy.savez, which does not compress"
            self.pool.refuse_larger(header.nbytes, self.place(name), hint)
        read = partial(self._stored_rows if stored else self._unpacked_rows, info, header)
        storage, unit = "stored" if stored else "deflated", self._units.get(name)
        about = {"units": str(unit)} if unit else {}
        return self.described(name, header.shape, header.dtype, read, about, storage)

    def _header(self, info: zipfile.ZipInfo) -> _Header:
        with self.opened().zip.open(info) as stream:
            name = info.filename.removesuffix(".npy")
            header = _read_header(stream.read(_LONGEST_HEADER), self.path, name)
        declared, size = header.nbytes, info.file_size - header.offset
        if declared > _EXPANSION_LIMIT * (info.compress_size + 1):
            raise ValueError(f"declares {declared} bytes in {info.compress_size} packed ones")
        if declared != size:
            raise ValueError(f"declares {declared} bytes of values, holds {size}")
        return header

    def _unpacked_rows(self, info: zipfile.ZipInfo, header: _Header, start: int, stop: int) -> Any:
        """Returns rows of a compressed member, and keeps all of it decompressed."""
        archive: _Archive = self.opened()
        if info.filename not in archive.unpacked:
            self.pool.hold(self, header.nbytes)
            archive = self.opened()
            values = np.frombuffer(archive.zip.read(info), header.dtype, offset=header.offset)
            order: Any = "F" if header.fortran else "C"
            archive.unpacked[info.filename] = values.reshape(header.shape, order=order)
        values = archive.unpacked[info.filename]
        return values[start:stop] if header.shape else values

    def _stored_rows(self, info: zipfile.ZipInfo, header: _Header, start: int, stop: int) -> Any:
        """Returns rows of an uncompressed member."""
        data: FileBytes = self.opened().bytes
        # a local header has 30 bytes, then name and extra field, whose lengths are at byte 26
        lengths = data.read_rows(np.dtype("<u2"), (2,), info.header_offset + 26, 0, 2)
        return header.read_rows(data, info.header_offset + 30 + int(lengths.sum()), start, stop)


def require_deflate(info: zipfile.ZipInfo, path: Path) -> None:
    """Raises InputError for a member that is compressed by another method than deflate: zipfile
    decompresses those as a whole, and a few bytes may expand to any size."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        names = {zipfile.ZIP_BZIP2: "bzip2", zipfile.ZIP_LZMA: "lzma"}
        what, where = "packed by another method than deflate", f"{path}:{info.filename}"
        found = names.get(info.compress_type, f"method {info.compress_type}")
        hint = "numpy.savez_compressed writes deflate"
        raise InputError(what, where=where, expected="deflate, or none", found=found, hint=hint)


class _Archive:
    """An open zip archive, and its members that were decompressed."""

    def __init__(self, path: Path) -> None:
        self.bytes = FileBytes(path)
        try:
            self.zip = zipfile.ZipFile(os.fdopen(self.bytes.descriptor, "rb", closefd=False))
        except BaseException:
            self.bytes.close()
            raise
        self.unpacked: dict[str, npt.NDArray[Any]] = {}

    def close(self) -> None:
        self.zip.close()
        self.bytes.close()
