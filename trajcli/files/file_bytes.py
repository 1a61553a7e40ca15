"""The bytes of files: only of regular ones, few of them open at a time, small arrays read, large
ones mapped where that is safe.

Only local file systems that keep the space they have promised are safe: on others a mapped page
can vanish, which ends a process by a signal.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import stat
import threading
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trajcli.errors import Fault, InputError, raise_if_any
from trajcli.system import file_system

if TYPE_CHECKING:
    from trajcli.files.arrays import ArrayFile

Progress = Callable[[float, int], None]
"""Called with trajectories done, of one maybe a part, and all of them."""
DEFAULT_MEMORY = 256 << 20
_LEAST_MEMORY = 64 << 20
_MOST_FILES = 64
_SAFE = frozenset(("ext2", "ext3", "ext4", "xfs", "tmpfs", "overlay"))
_WRITTEN = "another program writes it: run again when it is done"
_SMALL_BYTES = 1 << 20
"""Less is read: mapping it would bring the megabytes around it into memory."""


def open_regular(path: Path) -> int:
    """A descriptor of a regular file. Anything else is refused, never waited for.

    Raises InputError for a pipe, a socket, a device or a folder, and OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    found = "a folder" if os.path.isdir(path) else "a pipe, socket or device"
    raise InputError(Fault("not a regular file", str(path), "a file on a disk", found))


def read_regular(path: Path, largest: int, expected: str) -> bytes:
    """All of a small file; raises InputError where it is not regular, readable and small."""
    try:
        with open(open_regular(path), "rb") as file:
            data = file.read(largest + 1)  # what /proc holds has no size
    except OSError as error:
        raise InputError(unreadable(path, expected, error)) from None
    if len(data) > largest:
        limit, found = f"{expected} of at most {largest} bytes", "a larger one"
        raise InputError(Fault("too large", str(path), limit, found))
    return data


def unreadable(where: object, expected: str, error: Exception) -> Fault:
    """The fault of a file that a library could not read."""
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if isinstance(error, MemoryError):
        reason = f"too large for the memory there is ({reason})"
    return Fault("cannot be read", str(where), expected, reason)


class FileBytes:
    """The bytes of an open regular file. An array stays valid when it is closed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.descriptor = open_regular(path)
        self.size = os.fstat(self.descriptor).st_size
        """How many there were when it was opened."""

    def rows(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int, start: int, stop: int
    ) -> npt.NDArray[Any]:
        """Rows start..stop of an array of this shape; all of one without dimensions.

        Mapped ones are read-only. Raises InputError where the file ends before them.
        """
        if shape:
            start, stop, _ = slice(start, stop).indices(shape[0])
            offset += start * math.prod(shape[1:]) * dtype.itemsize
            shape = (max(stop - start, 0), *shape[1:])
        size = math.prod(shape) * dtype.itemsize
        values: npt.NDArray[Any]
        if size > _SMALL_BYTES and _is_safe(os.path.dirname(os.path.realpath(self._path))):
            begin = offset - offset % mmap.ALLOCATIONGRANULARITY
            length = offset + size - begin
            # no room in the address space, or a file that became shorter
            with contextlib.suppress(OSError, ValueError):
                # its pages are given back with the array
                pages = mmap.mmap(self.descriptor, length, access=mmap.ACCESS_READ, offset=begin)
                values = np.ndarray(shape, dtype, pages, offset - begin)
                return values
        values = np.empty(shape, dtype)
        view: Any = memoryview(values.reshape(-1).view(np.uint8)) if size else b""  # type: ignore[arg-type]
        while len(view):
            count = os.preadv(self.descriptor, [view], offset)
            if not count:
                now = os.fstat(self.descriptor).st_size
                raise InputError(shortened(str(self._path), offset + len(view), now))
            view, offset = view[count:], offset + count
        return values

    def close(self) -> None:
        """Close the file; arrays that are in use keep what they map."""
        os.close(self.descriptor)


def shortened(path: str, before: int, now: int) -> Fault:
    """The fault of a file that another program cut off; sizes in bytes."""
    what, expected = "became shorter while it was read", f"{before} bytes, as at the beginning"
    return Fault(what, path, expected, f"{now} bytes", _WRITTEN)


@cache
def _is_safe(folder: str) -> bool:
    """Whether a folder lies on a file system whose mapped pages can be trusted."""
    return file_system(folder) in _SAFE


class OpenFiles:
    """Files of which only so many are open at a time: one more closes the one opened first.

    That one is opened again when something of it is read. ``lock`` is held while a file is used,
    so that no other thread closes it. ``memory``: bytes that may be unpacked at once, 64 MiB at
    least. ``allow_external``: what leads out of a file is followed. ``on_progress`` is called where
    one trajectory takes long to read.
    """

    def __init__(
        self,
        memory: int = DEFAULT_MEMORY,
        allow_external: bool = False,
        on_progress: Progress = lambda done, total: None,
    ) -> None:
        self.memory, self.allow_external = max(memory, _LEAST_MEMORY), allow_external
        self.on_progress = on_progress
        self._files: dict[ArrayFile, int] = {}  # and the bytes that each has unpacked
        self.lock = threading.RLock()

    def add(self, file: ArrayFile) -> None:
        """Count a file that has been opened."""
        self._files[file] = 0
        while len(self._files) > _MOST_FILES:
            next(iter(self._files)).close()

    def hold(self, file: ArrayFile, size: int) -> None:
        """Make room for what a file unpacks, at most ``memory``: others forget what they hold."""
        others = (other for other in list(self._files) if other is not file)
        while size + sum(self._files.values()) > self.memory:
            next(others, file).close()
        file.opened()
        self._files[file] += size

    def remove(self, file: ArrayFile) -> None:
        """Forget a file that has been closed."""
        self._files.pop(file, None)

    def refuse_larger(self, size: int, where: str, hint: str) -> None:
        """Raise InputError for what is unpacked as a whole and takes more than ``memory``."""
        if size > self.memory:
            what, expected = "too large to be unpacked", f"at most {self.memory} bytes at once"
            hint = f"a larger --memory, where the command has it, or {hint}"
            raise InputError(Fault(what, where, expected, f"{size} bytes", hint))


class SourceFiles:
    """The files of a command as they were when it began."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, ...]] = {}

    def add(self, paths: Iterable[str]) -> None:
        """Keep these in mind as they are now."""
        for path in paths:
            state = self._before.get(path) or _state(path)
            if state is not None:
                self._before[path] = state

    def require_unchanged(self) -> None:
        """Raise InputError for the files that are others now; one that is gone was read."""
        faults = []
        for path, before in self._before.items():
            now = _state(path)
            if now is None or now == before:
                continue
            if now[:2] == before[:2] and now[2] < before[2]:
                faults.append(shortened(path, before[2], now[2]))
                continue
            what = "replaced" if now[:2] != before[:2] else "changed"
            faults.append(Fault(f"{what} while it was read", path, "as it was", hint=_WRITTEN))
        raise_if_any(faults)


def _state(path: str) -> tuple[int, ...] | None:
    """Device, inode, size and time of change of a file; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
