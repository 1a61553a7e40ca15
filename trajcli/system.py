"""Calls that not every system has, each with another way where it is missing."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from pathlib import Path

_NO_REPLACE, _HERE = 1, -100
"""RENAME_NOREPLACE and AT_FDCWD of renameat2(2)."""
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
"""What a file system or a sandbox says to a call that it does not have."""
_MOUNTS = "/proc/self/mounts"


def processors() -> int:
    """Those that this process may run on; where that is not known, all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def allocate(descriptor: int, size: int) -> None:
    """Make an open file at least so many bytes long, with room on the disk where the system can.

    Raises OSError where there is no room.
    """
    try:
        os.posix_fallocate(descriptor, 0, size)
    except (OSError, AttributeError) as error:
        missing = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
        if isinstance(error, OSError) and error.errno not in missing:
            raise
        os.ftruncate(descriptor, max(size, os.fstat(descriptor).st_size))


def rename_new(one: Path, other: Path) -> None:
    """Give a file or folder a name that is free.

    Raises FileExistsError, and replaces nothing, where the name is taken. A file system that can
    neither rename so nor link files is asked first: what appears in between is replaced.
    """
    error = _renameat2(one, other, _NO_REPLACE)
    if error == 0:
        return
    if error not in _UNSUPPORTED:
        raise OSError(error, os.strerror(error), str(other))
    try:
        os.link(one, other)
    except FileExistsError:
        raise
    except OSError:
        if os.path.lexists(other):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(other)) from None
        os.rename(one, other)
    else:
        with contextlib.suppress(OSError):  # the file has its name
            os.unlink(one)


def _renameat2(one: Path, other: Path, flags: int) -> int:
    """Call renameat2(2) and return 0 or the number of its error."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return errno.ENOSYS
    failed = rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), flags)
    return ctypes.get_errno() if failed else 0


def file_system(folder: str) -> str:
    """The kind of the file system that a folder lies on, such as ext4; empty where not known."""
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            mounts = [line.split()[1:3] for line in file]
    except OSError:
        return ""
    # of several on one place the last one is seen
    kinds = {place.replace("\\040", " ").rstrip("/"): kind for place, kind in mounts}
    while folder.rstrip("/") not in kinds and folder.strip("/"):
        folder = os.path.dirname(folder)
    return kinds.get(folder.rstrip("/"), "")
