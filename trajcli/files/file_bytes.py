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
import re
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trajcli.errors import Fault, InputError, UsageError, raise_if_any
from trajcli.system import file_system

if TYPE_CHECKING:
    from trajcli.files.arrays import ArrayFile

Progress = Callable[[float, int], None]
"""Called with trajectories done, of one maybe a part, and all of them."""
_LEAST_MEMORY = 64 << 20
_MOST_FILES = 64
_SAFE = frozenset(("ext2", "ext3", "ext4", "xfs", "tmpfs", "overlay"))
"""File systems whose mapped pages can be trusted."""
_file_system = cache(file_system)
_WRITTEN = "another program writes it: run again when it is done"
_SMALL_BYTES = 1 << 20
"""Less is read: mapping it would bring the megabytes around it into memory."""
_HASHED_BYTES = 64 << 10
"""At each end of a file."""


def open_regular(path: Path) -> int:
    """A descriptor of a regular file. Anything else is refused, never waited for.

    Raises InputError for a pipe, a socket, a device or a folder, and OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise InputError(
        "not a regular file",
        where=str(path),
        expected="a file on a disk",
        found="a folder" if os.path.isdir(path) else "a pipe, socket or device",
    )


def read_regular(path: Path, largest: int, expected: str) -> bytes:
    """All of a small file; raises InputError where it is not regular, readable and small."""
    try:
        with open(open_regular(path), "rb") as file:
            data = file.read(largest + 1)  # what /proc holds has no size
    except OSError as error:
        raise InputError(unreadable(path, expected, error)) from None
    if len(data) > largest:
        raise InputError(
            "too large",
            where=str(path),
            expected=f"{expected} of at most {largest} bytes",
            found="a larger one",
        )
    return data


def unreadable(where: object, expected: str, error: Exception) -> Fault:
    """The fault of a file that a library could not read."""
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if isinstance(error, MemoryError):
        reason = f"too large for the memory there is ({reason})"
    return Fault("cannot be read", where=str(where), expected=expected, found=reason)


def memory_bound() -> int:
    """Bytes of working memory for a run, and for what a file unpacks to: TRAJCLI_MEMORY, like
    256MiB (the default), 2GB or 1000000. Raises UsageError for what is no size."""
    text = os.environ.get("TRAJCLI_MEMORY") or "256MiB"
    match = re.fullmatch(r"([0-9.]+(?:E[0-9]+)?) *([KMGT]?)(I?)B?", text.strip().upper())
    try:
        base = 1024 if match and (match[3] or not text.strip().upper().endswith("B")) else 1000
        size = int(float(match[1]) * base ** " KMGT".index(match[2] or " ")) if match else 0
    except (ValueError, OverflowError):
        size = 0
    if size <= 0:
        raise UsageError(
            "not a size", where="TRAJCLI_MEMORY", expected="like 256MiB or 2GB", found=repr(text)
        )
    return size


class FileBytes:
    """The bytes of an open regular file. An array stays valid when it is closed."""

    def __init__(self, path: Path) -> None:
        self._path, self._folder = path, os.path.dirname(os.path.realpath(path))
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
        if size > _SMALL_BYTES and _file_system(self._folder) in _SAFE:
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
    return Fault(
        "became shorter while it was read",
        where=path,
        expected=f"{before} bytes, as at the beginning",
        found=f"{now} bytes",
        hint=_WRITTEN,
    )


class OpenFiles:
    """Files of which only so many are open at a time: one more closes the one opened first.

    That one is opened again when something of it is read. ``lock`` is held while a file is used,
    so that no other thread closes it. ``memory``: bytes that may be unpacked at once, 64 MiB at
    least. ``allow_external``: what leads out of a file is followed. ``on_progress`` is called where
    one trajectory takes long to read. ``sources``: the files that readers opened.
    """

    def __init__(
        self,
        memory: int | None = None,
        allow_external: bool = False,
        on_progress: Progress = lambda done, total: None,
    ) -> None:
        self.sources = SourceFiles()
        self.memory = max(memory_bound() if memory is None else memory, _LEAST_MEMORY)
        self.allow_external = allow_external
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
            hint = f"a larger TRAJCLI_MEMORY, or {hint}"
            raise InputError(
                "too large to be unpacked",
                where=where,
                expected=f"at most {self.memory} bytes at once",
                found=f"{size} bytes",
                hint=hint,
            )


class FileContent(NamedTuple):
    """Size, time of modification in ns, and a hash of both ends of a file."""

    size: int
    modified: int
    ends: str

    def __str__(self) -> str:
        return f"{self.size} bytes, modified at {self.modified} ns, {self.ends[:8]}"


class SourceFiles:
    """The files of a command as they were when it began, and which of them it opened.

    A file that was not there is kept in mind, too: it changes when it appears.
    """

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, ...] | None] = {}
        self._opened: dict[str, None] = {}

    def add(self, paths: Iterable[str]) -> None:
        """Keep these in mind as they are now."""
        for path in paths:
            if path not in self._before:
                self._before[path] = file_state(path)

    def opened(self, path: str | Path) -> None:
        """Keep a file in mind that is about to be opened; of a folder, what is in it."""
        self._opened[str(path)] = None
        self.add([str(path)])

    def contents(self) -> Iterator[tuple[str, FileContent]]:
        """The files that were opened, with what copies of them have in common."""
        for path in self._opened:
            before = self._before[path]
            if before is not None and not os.path.isdir(path):
                yield path, file_content(path) or FileContent(before[2], before[3], "gone")

    def require_unchanged(self) -> None:
        """Raise InputError for the files that are others now; one that is gone was read."""
        faults = []
        for path, before in self._before.items():
            now = file_state(path)
            if now is None or now == before:
                continue
            if before is None:
                faults.append(
                    Fault(
                        "appeared while it was read", where=path, expected="no file", hint=_WRITTEN
                    )
                )
            elif now[:2] == before[:2] and now[2] < before[2]:
                faults.append(shortened(path, before[2], now[2]))
            else:
                what = "replaced" if now[:2] != before[:2] else "changed"
                faults.append(
                    Fault(
                        f"{what} while it was read", where=path, expected="as it was", hint=_WRITTEN
                    )
                )
        raise_if_any(faults)


def file_state(path: str | Path) -> tuple[int, ...] | None:
    """Device, inode, size, and times of modification and of change of a file; None where there is
    none. The last of these nobody but the kernel sets."""
    try:
        s = os.stat(path)
    except OSError:
        return None
    return s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns


def file_content(path: str | Path) -> FileContent | None:
    """What copies of a file have in common; None where it cannot be read."""
    import hashlib  # which loads OpenSSL: a plain run does without

    try:
        with open(open_regular(Path(path)), "rb") as file:
            status = os.fstat(file.fileno())
            digest = hashlib.sha256(file.read(_HASHED_BYTES))
            file.seek(max(status.st_size - _HASHED_BYTES, file.tell()))
            digest.update(file.read(_HASHED_BYTES))
    except (OSError, InputError):
        return None
    return FileContent(status.st_size, status.st_mtime_ns, digest.hexdigest())
