"""The bytes of a file as arrays: small ones are read, large ones mapped where that is safe.

Only local file systems that keep the space they have promised are safe: on others a mapped page
can vanish, which ends a process by a signal.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.errors import Fault, InputError

_SAFE = frozenset(("ext2", "ext3", "ext4", "xfs", "tmpfs", "overlay"))
_SMALL_BYTES = 1 << 20
"""Less is read: mapping it would bring the megabytes around it into memory."""


class FileBytes:
    """The bytes of an open file. An array stays valid when it is closed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY)
        self._map: mmap.mmap | None = None

    @property
    def size(self) -> int:
        """How many there are, now."""
        return os.fstat(self._descriptor).st_size

    def array(self, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int) -> npt.NDArray[Any]:
        """Values that lie behind each other from an offset on; mapped ones are read-only.

        Raises InputError where the file ends before them.
        """
        size = math.prod(shape) * dtype.itemsize
        values: npt.NDArray[Any]
        if size > _SMALL_BYTES and is_safe(self._path):
            with contextlib.suppress(OSError):  # no room in the address space
                self._map = self._map or mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
            if self._map is not None and offset + size <= len(self._map):
                values = np.ndarray(shape, dtype, self._map, offset)
                return values
        values = np.empty(shape, dtype)
        view: Any = memoryview(values.reshape(-1).view(np.uint8)) if size else b""  # type: ignore[arg-type]
        while len(view):
            count = os.preadv(self._descriptor, [view], offset)
            if not count:
                raise InputError(shortened(str(self._path), offset + len(view), self.size))
            view, offset = view[count:], offset + count
        return values

    def rows(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int, start: int, stop: int
    ) -> npt.NDArray[Any]:
        """Rows start..stop of an array of this shape; all of one without dimensions."""
        if not shape:
            return self.array(dtype, shape, offset)
        start, stop, _ = slice(start, stop).indices(shape[0])
        per_row = math.prod(shape[1:]) * dtype.itemsize
        return self.array(dtype, (max(stop - start, 0), *shape[1:]), offset + start * per_row)

    def close(self) -> None:
        """Close the file; arrays that are in use keep what they map."""
        os.close(self._descriptor)
        self._map = None


def shortened(path: str, before: int, now: int) -> Fault:
    """The fault of a file that another program cut off; sizes in bytes."""
    expected = f"{before} bytes, as at the beginning"
    hint = "another program writes it: run again when it is done"
    return Fault("became shorter while it was read", path, expected, f"{now} bytes", hint)


def is_safe(path: Path) -> bool:
    """Whether a file lies on a file system whose mapped pages can be trusted."""
    return _file_system(os.path.dirname(os.path.realpath(path))) in _SAFE


@cache
def _file_system(folder: str) -> str:
    """The type of the file system that holds a folder; "" where it cannot be known."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
            lines = [line.split() for line in file]
    except OSError:
        return ""
    best, kind = "", ""
    for _, place, name, *_ in lines:
        place = place.replace("\\040", " ")
        inside = folder == place or folder.startswith(place.rstrip("/") + "/")
        if inside and len(place) >= len(best):
            best, kind = place, name
    return kind
