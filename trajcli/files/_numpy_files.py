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

from trajcli.errors import InputError
from trajcli.files._records import RecordFile
from trajcli.files.catalogue import PROVENANCE, Dataset, OpenFiles, json_object, plain_copy
from trajcli.files.file_bytes import FileBytes
from trajcli.files.source import natural_order
from trajcli.kernels.program import NumpyArray

_FAILURES = (
    ValueError, EOFError, OSError, RuntimeError, TypeError, KeyError, IndexError, ArithmeticError,
    MemoryError, SyntaxError, zipfile.BadZipFile, zlib.error, tokenize.TokenError,
)  # fmt: skip
_EXPECTED = "an array without pickled objects"
# The largest compression ratio: deflate reaches about 1030 : 1.
_EXPANSION_LIMIT = 1100
# NumPy itself parses no more than 10 000 bytes.
_LONGEST_HEADER = 1 << 14
_LONGEST_PROVENANCE = 1 << 20
# The names in a file of one array, which has none: one object for a hundred thousand files.
_UNNAMED: dict[str, Collection[str]] = {"": ("",)}


class _Header(NamedTuple):
    """The header of an array in NumPy's format; the values follow at ``offset``."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    offset: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def read_rows(self, data: FileBytes, begin: int, start: int, stop: int) -> NumpyArray:
        begin += self.offset
        if not self.fortran:
            return data.read_rows(self.dtype, self.shape, begin, start, stop)
        # Fortran order is C order of the reversed shape, transposed
        columns = data.read_rows(self.dtype, self.shape[::-1], begin, 0, self.shape[-1])
        rows: NumpyArray = columns.T[start:stop]
        return rows


@lru_cache(maxsize=64)
def _parse(head: bytes) -> _Header:
    # cached: thousands of files that one program wrote have the same header
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
    # The format (numpy.lib.format): 6 bytes of magic, 2 of version, then the length of the text,
    # in 2 bytes in version 1 and in 4 since version 2. Only the header is parsed, as the values
    # that follow would make every file a new entry of the cache.
    width = 2 if head[6:7] == b"\1" else 4
    header = _parse(head[: 8 + width + int.from_bytes(head[8 : 8 + width], "little")])
    if header.dtype.hasobject:
        load = f"np.load(%s, allow_pickle=True){'[%s]' if names else ''}"
        hint = plain_copy(path, load, *names, shape=header.shape)
        where = ":".join([str(path), *names])
        what, found = "pickled data", "a pickle, which can run code when read"
        raise InputError(what, where=where, expected=_EXPECTED, found=found, hint=hint)
    return header


class _Archive:
    """An open zip archive, and its members that were decompressed."""

    def __init__(self, path: Path) -> None:
        self.bytes = FileBytes(path)
        try:
            self.zip = zipfile.ZipFile(os.fdopen(self.bytes.descriptor, "rb", closefd=False))
        except BaseException:
            self.bytes.close()
            raise
        self.unpacked: dict[str, NumpyArray] = {}

    def close(self) -> None:
        self.zip.close()
        self.bytes.close()


class NpyFile(RecordFile):
    """One array, whose dataset name is empty. The fields of records have their own names."""

    family, handle_type = "npy", FileBytes
    failures = _FAILURES
    expected = _EXPECTED

    def __init__(self, path: Path, pool: OpenFiles | None = None) -> None:
        super().__init__(path, pool)
        try:
            self._header = self.guard("", self._read_header)
            self.known_children = {} if self._header.dtype.names else _UNNAMED
        except BaseException:
            self.close()
            raise

    def _read_header(self) -> _Header:
        file: FileBytes = self.open_handle()
        header = _read_header(os.pread(file.descriptor, _LONGEST_HEADER, 0), self.path)
        if file.size < header.offset + header.nbytes:
            what, expected = "shorter than its header says", "as many values as the header declares"
            found = f"a file of {file.size} bytes"
            raise InputError(what, where=str(self.path), expected=expected, found=found)
        return header

    def names(self) -> list[str]:
        return self.expand_records([""])

    def find(self, name: str) -> Dataset | None:
        if name:
            return None
        header, order = self._header, "Fortran order" if self._header.fortran else "contiguous"
        read = lambda start, stop: header.read_rows(self.open_handle(), 0, start, stop)  # noqa: E731
        return self.make_dataset("", header.shape, header.dtype, read, storage=order)


class NpzFile(RecordFile):
    """A zip archive of .npy members; trajcli.json in it holds attributes and units.

    Uncompressed members are read in place; others are decompressed as a whole, and kept.
    """

    family, handle_type = "npz", _Archive
    failures = _FAILURES
    expected, expected_array = "an .npz archive", _EXPECTED

    def __init__(self, path: Path, pool: OpenFiles | None = None) -> None:
        super().__init__(path, pool)
        archive = self.open_handle().zip
        members = {info.filename: info for info in archive.infolist()}
        self.parts = {n.removesuffix(".npy"): i for n, i in members.items() if n.endswith(".npy")}
        self._names: list[str] = []
        table: dict[str, Any] = {}
        with suppress(*_FAILURES, InputError):  # absent if another program wrote the archive
            info = archive.getinfo(PROVENANCE)
            require_deflate(info, path)
            if info.file_size <= _LONGEST_PROVENANCE:
                table = json_object(archive.read(info))
        attributes, units = table.get("attributes"), table.get("units")
        pairs = attributes.items() if isinstance(attributes, dict) else ()
        self._attributes = {k: v for k, v in pairs if isinstance(v, (str, int, float))}
        self._units = units if isinstance(units, dict) else {}

    def attributes(self, group: str = "") -> Mapping[str, Any]:
        return {} if group.strip("/") else self._attributes

    def names(self) -> list[str]:
        self._names = self._names or self.expand_records(natural_order(self.parts))
        return self._names

    def find(self, name: str) -> Dataset | None:
        if name not in self.parts:
            return None
        info = self.parts[name]
        require_deflate(info, self.path)
        with self.open_handle().zip.open(info) as stream:
            header = _read_header(stream.read(_LONGEST_HEADER), self.path, name)
        # a damaged or hostile header must not make NumPy reserve more than the member can hold
        declared, size = header.nbytes, info.file_size - header.offset
        if declared > _EXPANSION_LIMIT * (info.compress_size + 1):
            raise ValueError(f"declares {declared} bytes in {info.compress_size} packed ones")
        if declared != size:
            raise ValueError(f"declares {declared} bytes of values, holds {size}")
        stored = info.compress_type == zipfile.ZIP_STORED
        if not stored:
            hint = "numpy.savez, which does not compress"
            self.pool.refuse_larger(header.nbytes, self.place(name), hint)
        read = partial(self._read_rows, info, header)
        storage, unit = "stored" if stored else "deflated", self._units.get(name)
        about = {"units": str(unit)} if unit else {}
        return self.make_dataset(name, header.shape, header.dtype, read, about, storage)

    def _read_rows(self, info: zipfile.ZipInfo, header: _Header, start: int, stop: int) -> Any:
        archive: _Archive = self.open_handle()
        if info.compress_type == zipfile.ZIP_STORED:
            # a local header has 30 bytes, then name and extra field, whose lengths are at byte 26
            begin = info.header_offset
            lengths = archive.bytes.read_rows(np.dtype("<u2"), (2,), begin + 26, 0, 2)
            return header.read_rows(archive.bytes, begin + 30 + int(lengths.sum()), start, stop)
        if info.filename not in archive.unpacked:
            self.pool.reserve(self, header.nbytes)
            archive = self.open_handle()  # to reserve memory may have closed the one before
            values = np.frombuffer(archive.zip.read(info), header.dtype, offset=header.offset)
            order: Any = "F" if header.fortran else "C"
            archive.unpacked[info.filename] = values.reshape(header.shape, order=order)
        values = archive.unpacked[info.filename]
        return values[start:stop] if header.shape else values


def require_deflate(info: zipfile.ZipInfo, path: Path) -> None:
    """Raises InputError for a member that is compressed by another method than deflate."""
    # zipfile decompresses such members as a whole, and a few bytes may expand to any size
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        names = {zipfile.ZIP_BZIP2: "bzip2", zipfile.ZIP_LZMA: "lzma"}
        what, where = "packed by another method than deflate", f"{path}:{info.filename}"
        found = names.get(info.compress_type, f"method {info.compress_type}")
        hint = "numpy.savez_compressed writes deflate"
        raise InputError(what, where=where, expected="deflate, or none", found=found, hint=hint)
