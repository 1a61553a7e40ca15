"""Reads the bytes of regular files: small arrays by read, large ones by mmap where that is safe.

It is safe on local file systems that keep reserved space. On others a mapped page can disappear,
and the kernel then kills the process with SIGBUS.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import shlex
import stat
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError, raise_if_any
from trajcli.kernels.program import NumpyArray
from trajcli.memory import MAPPED_BYTES
from trajcli.system import file_system

State = tuple[int, ...]
"""Device, inode, size, mtime and ctime of a file."""
# File systems whose mapped pages do not disappear.
_SAFE = frozenset(("ext2", "ext3", "ext4", "xfs", "tmpfs", "overlay"))
_file_system = cache(file_system)
# Bytes hashed at each end of a file: enough for any header, and quick for recordings of gigabytes.
_HASHED_BYTES = 64 << 10


def open_regular(path: Path) -> int:
    """Opens a regular file and returns its descriptor, without ever waiting for a writer."""
    # O_NONBLOCK: opening a FIFO without a writer returns at once, and is refused below
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
    """Reads the bytes of a small file; raises InputError if it is irregular or too large."""
    try:
        with open(open_regular(path), "rb") as file:
            # one byte more shows that it is larger: st_size of files in /proc is 0
            data = file.read(largest + 1)
    except OSError as error:
        raise InputError(read_fault(path, expected, error)) from None
    if len(data) > largest:
        raise InputError(
            "too large",
            where=str(path),
            expected=f"{expected} of at most {largest} bytes",
            found="a larger one",
        )
    return data


def read_fault(where: object, expected: str, error: Exception) -> Fault:
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if isinstance(error, MemoryError):
        reason = f"too large for the available memory ({reason})"
    what, hint, writes = "cannot be read", "", "open in another program that writes it"
    if "unable to lock file" in reason:
        hint = "HDF5_USE_FILE_LOCKING=FALSE in front of the command reads it as it is"
        if isinstance(error, BlockingIOError):
            what, hint = writes, f"close it there; {hint}"
    if "h5clear" in reason:  # the mark of a writer, which one that was killed leaves behind
        what = f"not closed by its writer, or {writes}"
        hint = f"close it there; h5clear -s {shlex.quote(str(where))}, once no program writes it"
    return Fault(what, where=str(where), expected=expected, found=reason, hint=hint)


class FileBytes:
    """The bytes of an open regular file. Arrays stay valid after it is closed."""

    def __init__(self, path: Path) -> None:
        self._path, self.descriptor = path, open_regular(path)
        self.size = os.fstat(self.descriptor).st_size

    def read_rows(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int, start: int, stop: int
    ) -> NumpyArray:
        """Reads rows start to stop of an array at a byte offset, or the value of a scalar."""
        if shape:
            start, stop, _ = slice(start, stop).indices(shape[0])
            offset += start * math.prod(shape[1:]) * dtype.itemsize
            shape = (max(stop - start, 0), *shape[1:])
        size = math.prod(shape) * dtype.itemsize
        values: NumpyArray
        folder = os.path.dirname(os.path.realpath(self._path)) if size > MAPPED_BYTES else ""
        if folder and _file_system(folder) in _SAFE:
            begin = offset - offset % mmap.ALLOCATIONGRANULARITY
            length = offset + size - begin
            # mmap fails without address space, or if the file became shorter: read it instead
            with contextlib.suppress(OSError, ValueError):
                # the array keeps the mapping alive, and unmaps it when it is freed
                pages = mmap.mmap(self.descriptor, length, access=mmap.ACCESS_READ, offset=begin)
                values = np.ndarray(shape, dtype, pages, offset - begin)
                return values
        values = np.empty(shape, dtype)
        # preadv reads at most 2 GiB at once, and less where a signal interrupts it
        view: Any = memoryview(values.reshape(-1).view(np.uint8)) if size else b""  # type: ignore[arg-type]
        while len(view):
            count = os.preadv(self.descriptor, [view], offset)
            if not count:  # the end of a file that was longer when it was opened
                now = file_state(self._path)
                raise InputError(change_fault(self._path, (*(now or (0, 0))[:2], self.size), now))
            view, offset = view[count:], offset + count
        return values

    def close(self) -> None:
        os.close(self.descriptor)


def change_fault(path: str | Path, before: State | None, now: State | None) -> Fault:
    # another inode is another file: programs that write safely replace the old one
    if before is None:
        what = "appeared"
    elif now is None or now[:2] != before[:2]:
        what = "replaced"
    else:
        what = "became shorter" if now[2] < before[2] else "changed"
    return Fault(
        f"{what} while it was read",
        where=str(path),
        expected="the file as it was" if before else "no file, as before",
        found=f"{now[2]} bytes" if now else "",
        hint="another program writes it: run again when it is done",
    )


class SourceFiles:
    """The state of a command's files when it began, and which of them it opened."""

    def __init__(self) -> None:
        # a missing file has a state, too: the command fails if it appears meanwhile
        self._before: dict[str, State | None] = {}
        self._opened: dict[str, None] = {}

    def watch(self, paths: Iterable[str]) -> None:
        """Notes the present state of files that are not noted yet."""
        for path in paths:
            if path not in self._before:
                self._before[path] = file_state(path)

    def record(self, path: str | Path, state: State | None = None) -> None:
        """Records a file that is about to be opened; ``state``: its present one, if known."""
        self._opened[str(path)] = None
        if str(path) not in self._before:
            self._before[str(path)] = state or file_state(path)

    def hash_contents(self) -> Iterator[tuple[str, str]]:
        """Yields each opened file with the text that :func:`file_content` makes of it."""
        for path in self._opened:
            before = self._before[path]
            if before is not None and not os.path.isdir(path):
                yield path, file_content(path) or "gone"

    def require_unchanged(self) -> None:
        """Raises InputError for files that changed; a file that was removed had been read."""
        states = ((path, before, file_state(path)) for path, before in self._before.items())
        raise_if_any(change_fault(*state) for state in states if state[2] not in (None, state[1]))


def file_state(path: str | Path) -> State | None:
    try:
        s = os.stat(path)
    except OSError:
        return None
    # a program can set mtime back after a change, but only the kernel sets ctime
    return s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns


def file_content(path: str | Path) -> str | None:
    """Describes a file by size, modification and a hash of both ends, which its copies share."""
    import hashlib  # imported late: it loads OpenSSL, which a run without shards does not need

    try:
        with open(open_regular(Path(path)), "rb") as file:
            status = os.fstat(file.fileno())
            digest = hashlib.sha256(file.read(_HASHED_BYTES))
            file.seek(max(status.st_size - _HASHED_BYTES, file.tell()))
            digest.update(file.read(_HASHED_BYTES))
    except (OSError, InputError):
        return None
    ends = digest.hexdigest()[:16]
    return f"{status.st_size} bytes, modified at {status.st_mtime_ns} ns, {ends}"
