"""Calls to the operating system, with another way where a system lacks them; signals."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import signal
from collections.abc import Iterator

TYPE_CHECKING = False  # nothing is imported before signals are answered that is not needed
if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

# RENAME_NOREPLACE and AT_FDCWD of renameat2(2).
_NO_REPLACE, _HERE = 1, -100
# Errors of a file system or a sandbox that does not have a call.
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
_MOUNTS = "/proc/self/mounts"
PAGE, HUGE_PAGE = 1 << 12, 1 << 21
"""Bytes."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""The signals that stop a command."""


def processors() -> int:
    """Returns the number of processors that this process may use, or of all where unknown."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def environment_variable(name: bytes) -> str:
    """Returns a variable of the environment, "" where it is not set."""
    # os.environ.get takes a twentieth of a small call, its dictionary nothing
    value: bytes | None = os.environ._data.get(name)  # type: ignore[attr-defined]
    return os.fsdecode(value) if value else ""


def allocate_memory(size: int) -> int:
    """Allocates whole pages, huge ones where the system has them, and returns their address."""
    library, address = ctypes.CDLL(None), ctypes.c_void_p()
    page = PAGE if size % HUGE_PAGE else HUGE_PAGE
    if library.posix_memalign(ctypes.byref(address), page, ctypes.c_size_t(size)):
        raise MemoryError
    if page == HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        library.madvise(address, ctypes.c_size_t(size), mmap.MADV_HUGEPAGE)
    return address.value or 0


def free_memory(address: int) -> None:
    """Frees what :func:`allocate_memory` allocated."""
    ctypes.CDLL(None).free(ctypes.c_void_p(address))


def allocate(descriptor: int, size: int) -> None:
    """Extends an open file to at least ``size`` bytes, reserving them on the disk where possible.

    Raises OSError where there is no room.
    """
    try:
        os.posix_fallocate(descriptor, 0, size)
    except (OSError, AttributeError) as error:
        missing = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
        if isinstance(error, OSError) and error.errno not in missing:
            raise
        os.ftruncate(descriptor, max(size, os.fstat(descriptor).st_size))


def rename_new(old: Path, new: Path) -> None:
    """Renames a file or folder to a name that is free.

    Raises FileExistsError, and replaces nothing, where the name is taken. On a file system that
    has neither this call nor links, a file that appears after the check is replaced.
    """
    error = _renameat2(old, new, _NO_REPLACE)
    if error == 0:
        return
    if error not in _UNSUPPORTED:
        raise OSError(error, os.strerror(error), str(new))
    try:
        os.link(old, new)
    except FileExistsError:
        raise
    except OSError:
        if os.path.lexists(new):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(new)) from None
        os.rename(old, new)
    else:
        with contextlib.suppress(OSError):  # the file already has its new name
            os.unlink(old)


def _renameat2(old: Path, new: Path, flags: int) -> int:
    """Calls renameat2(2), and returns 0 or the number of its error."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return errno.ENOSYS
    failed = rename(_HERE, os.fsencode(old), _HERE, os.fsencode(new), flags)
    return ctypes.get_errno() if failed else 0


def file_system(folder: str) -> str:
    """Returns the kind of file system that a folder is on, such as ext4; "" where unknown."""
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            mounts = [line.split()[1:3] for line in file]
    except OSError:
        return ""
    # of several mounts on one place the last one counts
    kinds = {place.replace("\\040", " ").rstrip("/"): kind for place, kind in mounts}
    while folder.rstrip("/") not in kinds and folder.strip("/"):
        folder = os.path.dirname(folder)
    return kinds.get(folder.rstrip("/"), "")


# Signals that :func:`interrupt` answered. Where Python runs it within a destructor, the exception
# is ignored; where it runs within a library's callback, the library may raise an exception of its
# own. :func:`pending_signal` tells of the signal then.
_answered: list[str] = []
# How many blocks of code hold signals back, and whether none is answered any more.
_held, _complete = 0, False


class Interrupt(BaseException):
    """A signal that ends a command, by its name; Typer would swallow KeyboardInterrupt."""


def answer_signals() -> None:
    """Answers signals by :func:`interrupt` from now on, in a process of the command line."""
    heard = _heard()
    for number in heard:
        signal.signal(number, interrupt)
    # from its second time on, a signal acts as without handlers, which also ends a process whose
    # handler waits for a library that does not return; where C lacks the call, once it has run
    with contextlib.suppress(AttributeError):
        handler_of, handle = ctypes.pythonapi.PyOS_getsig, ctypes.CDLL(None).sysv_signal
        handler_of.restype, handle.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p)
        handle.restype = ctypes.c_void_p
        for number in heard:
            handle(number, handler_of(number))


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raises Interrupt with the name of a signal, unless signals are held back; the next signal
    acts as without handlers."""
    for heard in _heard():  # from here on every signal acts as without handlers
        signal.signal(heard, signal.SIG_DFL)
    _answered.append(signal.Signals(number).name)
    if not (_held or _complete):
        raise Interrupt(_answered[0])


def pending_signal() -> str | None:
    """Returns the name of a signal that has arrived, unless it came too late to change anything."""
    return _answered[0] if _answered and not _complete else None


def is_command() -> bool:
    """Returns whether :func:`interrupt` answers signals, or has answered one."""
    return bool(_answered) or any(signal.getsignal(number) is interrupt for number in SIGNALS)


@contextlib.contextmanager
def hold_signals() -> Iterator[None]:
    """Holds back the signals that a command answers: one that arrives raises Interrupt at the end,
    unless an error ends this. The handlers of any other process stay as they are."""
    global _held
    _held += 1
    try:
        yield
    finally:
        _held -= 1
    if not _held and (name := pending_signal()):
        raise Interrupt(name)


def mark_complete() -> None:
    """Says that the output has its name, so that a signal changes nothing any more."""
    global _complete
    _complete = True


def ignore_signals() -> None:
    """Ignores all signals, as the process is about to end."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _heard() -> list[signal.Signals]:
    """Returns the signals that are not ignored; nohup starts processes that ignore some."""
    return [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
