"""A CRC-32 of a whole file, in four bytes behind its end.

HDF5 reads no further than its header says, so a file that has them is a file like any other. A part
of a run in shards has them: a merge then finds what a disk or a network has changed, also in the
header, before HDF5 reads it.
"""

from __future__ import annotations

import io
import os
import zlib
from pathlib import Path

from trajcli.errors import Fault, InputError
from trajcli.files.file_bytes import unreadable

_BLOCK_BYTES = 4 << 20
_BYTES = 4


def append_checksum(path: Path) -> None:
    """Complete a file by its checksum."""
    with open(path, "r+b", buffering=0) as file:
        file.write(_checksum(file, os.fstat(file.fileno()).st_size))


def require_intact(path: Path) -> None:
    """Raise InputError for a file that is not as it was when its checksum was appended."""
    if not path.is_file():
        raise InputError(Fault("cannot be read", str(path), "a file", "something else"))
    try:
        with open(path, "rb", buffering=0) as file:
            size = max(os.fstat(file.fileno()).st_size - _BYTES, 0)
            there, stored = _checksum(file, size), file.read(_BYTES)
    except OSError as error:
        raise InputError(unreadable(path, "a readable file", error)) from None
    if there != stored:
        expected = f"the bytes written, CRC-32 {stored.hex() or 'in the last four'}"
        raise InputError(Fault("damaged", str(path), expected, there.hex()))


def _checksum(file: io.FileIO, size: int) -> bytes:
    """That of so many bytes from the file's position on."""
    value = 0
    while size > 0 and (block := file.read(min(size, _BLOCK_BYTES))):
        value, size = zlib.crc32(block, value), size - len(block)
    return value.to_bytes(_BYTES, "big")
