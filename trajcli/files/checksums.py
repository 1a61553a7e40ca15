"""Checksums of a file behind its end: a CRC-32 of each of its segments.

HDF5 reads no further than its header says, so a file that has them is a file like any other. A part
of a run in shards has them, of what was computed, not of what is on the disk: a merge then finds
what a disk or a network has changed, also in the header, before HDF5 reads it.

    (size, CRC-32) of each segment, int64 | their number, int64 | CRC-32 of both, int64
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from trajcli.errors import Fault, InputError
from trajcli.files.file_bytes import unreadable

Segments = dict[int, tuple[int, int]]
"""Size and CRC-32 of what was written, by its first byte."""
_BLOCK_BYTES = 4 << 20
_NUMBER = 8
"""Bytes of a number."""


def append_checksums(path: Path, segments: Mapping[int, tuple[int, int]]) -> None:
    """Complete a file by its checksums; those of what lies between the segments are taken now."""
    with open(path, "rb+") as file:
        end, at, table = os.fstat(file.fileno()).st_size, 0, []
        for offset, (size, crc) in [*sorted(segments.items()), (end, (0, 0))]:
            table += [(offset - at, checksum(file, at, offset - at)), (size, crc)]
            at = offset + size
        numbers = np.array([*np.ravel(table), len(table)], "<i8").tobytes()
        file.seek(end)
        file.write(numbers + np.array(zlib.crc32(numbers), "<i8").tobytes())


def require_intact(path: Path) -> None:
    """Raise InputError for a file whose bytes are not those of its checksums."""
    if not path.is_file():
        raise InputError(Fault("cannot be read", str(path), "a file", "something else"))
    try:
        with open(path, "rb") as file:
            at = 0
            for size, crc in _read_table(file).tolist():
                if checksum(file, at, size) != crc:
                    expected, there = f"the bytes written, CRC-32 {crc:08x}", f"others from {at} on"
                    raise InputError(Fault("damaged", str(path), expected, there))
                at += size
    except ValueError as error:
        raise InputError(Fault("damaged", str(path), "checksums at its end", str(error))) from None
    except OSError as error:
        raise InputError(unreadable(path, "a readable file", error)) from None


def _read_table(file: BinaryIO) -> npt.NDArray[np.int64]:
    """Size and checksum of each segment, [n, 2]; raises ValueError where there are none."""
    end = os.fstat(file.fileno()).st_size
    if end < 2 * _NUMBER:
        raise ValueError("none")
    file.seek(end - 2 * _NUMBER)
    count, crc = np.frombuffer(file.read(2 * _NUMBER), "<i8").tolist()
    size = (2 * count + 1) * _NUMBER
    begin = end - _NUMBER - size
    if count < 0 or begin < 0 or checksum(file, begin, size) != crc:
        raise ValueError("others")
    file.seek(begin)
    table = np.frombuffer(file.read(size - _NUMBER), "<i8").reshape(-1, 2)
    if table[:, 0].sum() != begin:
        raise ValueError("those of another size")
    return table


def checksum(file: BinaryIO, offset: int, size: int) -> int:
    """That of so many bytes of a file."""
    value = 0
    file.seek(offset)
    while size > 0 and (block := file.read(min(size, _BLOCK_BYTES))):
        value, size = zlib.crc32(block, value), size - len(block)
    return value
