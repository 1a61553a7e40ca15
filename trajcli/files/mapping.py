"""Files as memory: where that is safe, values are read without a copy.

Only on local file systems that keep the space they have promised: on others a mapped page can
vanish, which ends a process by a signal. There, plain reads do the work.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError

_SAFE = frozenset(("ext2", "ext3", "ext4", "xfs", "tmpfs", "overlay"))
_SMALL_BYTES, _FEW_RUNS = 1 << 20, 64


def map_array(path: Path, dtype: np.dtype[Any], offset: int, shape: tuple[int, ...]) -> Any:
    """Values in a file as a read-only array; None where they cannot be mapped safely."""
    count = int(np.prod(shape, dtype=object))
    if not count or not is_safe(path) or os.path.getsize(path) < offset + count * dtype.itemsize:
        return None
    try:
        return np.memmap(path, dtype, "r", offset, shape)
    except (OSError, ValueError):
        return None


def part_of(mapped: Any, path: Path, offset: int, part: tuple[int, int, int, int]) -> Any:
    """Entries start..stop of the first axis, of each first..last of the second.

    A small part is read, not mapped: a page would bring megabytes around it along, which looks
    here and there have no use for. Raises InputError where the file has become shorter.
    """
    start, stop, first, last = part
    values = mapped[start:stop, first:last]
    whole = (first, last) == (0, mapped.shape[1])
    if values.nbytes > _SMALL_BYTES or (not whole and len(values) > _FEW_RUNS):
        return values
    per_row = mapped.nbytes // max(len(mapped), 1)
    per_step = per_row // max(mapped.shape[1], 1)
    read = np.empty(values.shape, values.dtype)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        for i, run in enumerate([read] if whole else read):
            view = memoryview(run).cast("B") if run.size else b""
            _fill(descriptor, view, offset + (start + i) * per_row + first * per_step)
    except EOFError:
        size = os.fstat(descriptor).st_size
        raise InputError(shortened(str(path), offset + mapped.nbytes, size)) from None
    finally:
        os.close(descriptor)
    return read


def shortened(path: str, before: int, now: int) -> Fault:
    """The fault of a file that another program cut off; sizes in bytes."""
    expected = f"{before} bytes, as at the beginning"
    hint = "another program writes it: run again when it is done"
    return Fault("became shorter while it was read", path, expected, f"{now} bytes", hint)


def _fill(descriptor: int, view: Any, at: int) -> None:
    while len(view):
        count = os.preadv(descriptor, [view], at)
        if not count:
            raise EOFError
        view, at = view[count:], at + count


def is_safe(path: Path) -> bool:
    """Whether a file lies on a file system whose pages can be trusted."""
    return _file_system(os.path.realpath(path.parent if not path.exists() else path)) in _SAFE


@cache
def _file_system(path: str) -> str:
    """The type of the file system that holds a path; "" where it cannot be known."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
            lines = [line.split() for line in file]
    except OSError:
        return ""
    best, kind = "", ""
    for _, place, name, *_ in lines:
        place = place.replace("\\040", " ")
        inside = path == place or path.startswith(place.rstrip("/") + "/")
        if inside and len(place) >= len(best):
            best, kind = place, name
    return kind
