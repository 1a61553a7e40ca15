"""Calls to the operating system, with substitutes where a system lacks them; signals."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import signal
from collections.abc import Iterator

TYPE_CHECKING = False  # typing is not imported: signals are to be answered before large imports
if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

# RENAME_NOREPLACE and AT_FDCWD of renameat2(2).
_NO_REPLACE, _WORKING_FOLDER = 1, -100
# Errors of a file system or a sandbox without the call.
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
_MOUNTS = "/proc/self/mounts"
PAGE, HUGE_PAGE = 1 << 12, 1 << 21
"""Bytes."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""The signals that stop a command."""


def processors() -> int:
    """Counts the processors that this process may use, or all if that is unknown."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def environment_variable(name: bytes) -> str:
    """Reads a variable of the environment; "" if it is not set."""
    # os.environ.get would take a twentieth of a small call of the library
    value: bytes | None = os.environ._data.get(name)  # type: ignore[attr-defined]
    return os.fsdecode(value) if value else ""


def allocate_memory(size: int) -> int:
    """Allocates whole pages, huge ones if the system has them, and returns their address."""
    library, address = ctypes.CDLL(None), ctypes.c_void_p()
    page = PAGE if size % HUGE_PAGE else HUGE_PAGE
    if library.posix_memalign(ctypes.byref(address), page, ctypes.c_size_t(size)):
        raise MemoryError
    if page == HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        library.madvise(address, ctypes.c_size_t(size), mmap.MADV_HUGEPAGE)
    return address.value or 0


def free_memory(address: int) -> None:
    ctypes.CDLL(None).free(ctypes.c_void_p(address))


def allocate(descriptor: int, size: int) -> None:
    """Extends an open file to at least ``size`` bytes, reserved on the disk if possible."""
    try:
        os.posix_fallocate(descriptor, 0, size)
    except (OSError, AttributeError) as error:
        missing = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
        if isinstance(error, OSError) and error.errno not in missing:
            raise
        os.ftruncate(descriptor, max(size, os.fstat(descriptor).st_size))


def rename_new(old: Path, new: Path) -> None:
    """Renames a file or folder to a free name; raises FileExistsError if the name is taken."""
    # renameat2 is atomic; so is a link, but folders have none
    error = _renameat2(old, new, _NO_REPLACE)
    if error == 0:
        return
    if error not in _UNSUPPORTED:
        raise OSError(error, os.strerror(error), str(new))
    try:
        os.link(old, new)
    except FileExistsError:
        raise
    except OSError:  # without links, a file that appears after the check is replaced
        if os.path.lexists(new):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(new)) from None
        os.rename(old, new)
    else:
        with contextlib.suppress(OSError):  # the file already has its new name
            os.unlink(old)


def _renameat2(old: Path, new: Path, flags: int) -> int:
    """Calls renameat2(2); returns 0 or the number of its error."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return errno.ENOSYS
    failed = rename(_WORKING_FOLDER, os.fsencode(old), _WORKING_FOLDER, os.fsencode(new), flags)
    return ctypes.get_errno() if failed else 0


def file_system(folder: str) -> str:
    """Finds the kind of file system that a folder is on, such as ext4; "" if unknown."""
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            mounts = [line.split()[1:3] for line in file]
    except OSError:
        return ""
    # of several mounts on one path the last counts
    kinds = {path.replace("\\040", " ").rstrip("/"): kind for path, kind in mounts}
    while folder.rstrip("/") not in kinds and folder.strip("/"):
        folder = os.path.dirname(folder)
    return kinds.get(folder.rstrip("/"), "")


# Signals that :func:`interrupt` answered. Python ignores its exception within a destructor, and a
# library may replace it by another within a callback: :func:`pending_signal` knows of the signal.
_answered: list[str] = []
# How many blocks of code hold signals back, and whether it is too late to answer any.
_held, _complete = 0, False


class Interrupt(BaseException):
    """The name of a signal that ends a command; Typer would swallow KeyboardInterrupt."""


def answer_signals() -> None:
    """Answers signals by :func:`interrupt` from now on, in a process of the command line."""
    heard = _heard()
    for number in heard:
        signal.signal(number, interrupt)
    # A second signal acts as without handlers: it ends a process whose handler cannot run while a
    # library does not return. Without this call of C, that holds only once the handler has run.
    with contextlib.suppress(AttributeError):
        handler_of, handle = ctypes.pythonapi.PyOS_getsig, ctypes.CDLL(None).sysv_signal
        handler_of.restype, handle.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p)
        handle.restype = ctypes.c_void_p
        for number in heard:
            handle(number, handler_of(number))


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raises Interrupt with the name of a signal, unless signals are held back."""
    for heard in _heard():  # from here on every signal acts as without handlers
        signal.signal(heard, signal.SIG_DFL)
    _answered.append(signal.Signals(number).name)
    if not (_held or _complete):
        raise Interrupt(_answered[0])


def pending_signal() -> str | None:
    """Names a signal that has arrived, unless it came too late to change anything."""
    return _answered[0] if _answered and not _complete else None


def is_command() -> bool:
    """Tells whether this is a process of the command line: :func:`interrupt` answers signals."""
    return bool(_answered) or any(signal.getsignal(number) is interrupt for number in SIGNALS)


@contextlib.contextmanager
def hold_signals() -> Iterator[None]:
    """Holds signals back in a block of code: one that arrives raises Interrupt at its end."""
    global _held
    _held += 1
    try:
        yield
    finally:
        _held -= 1
    if not _held and (name := pending_signal()):
        raise Interrupt(name)


def mark_complete() -> None:
    """Records that the output has its name: a later signal changes nothing any more."""
    global _complete
    _complete = True


def ignore_signals() -> None:
    """Ignores all signals, because the process is about to end."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _heard() -> list[signal.Signals]:
    """Lists the signals that are not ignored; nohup starts processes that ignore some."""
    return [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
