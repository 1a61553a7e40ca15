"""Calls that not every system has, each with another way where it is missing."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

_NO_REPLACE, _HERE = 1, -100
"""RENAME_NOREPLACE and AT_FDCWD of renameat2(2)."""
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
"""What a file system or a sandbox says to a call that it does not have."""
_MOUNTS = "/proc/self/mounts"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Those that stop a command."""


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


_came: list[str] = []
"""Signals that :func:`interrupt` answered: where Python runs it in a destructor, the exception is
ignored, and the signal counts as soon as :func:`signals` asks."""


class Interrupt(BaseException):
    """A signal that ends a command, by its name; Typer keeps KeyboardInterrupt to itself."""


def answer_signals() -> None:
    """Begin to answer signals by :func:`interrupt`, in a process of the command line."""
    for number in _heard():
        signal.signal(number, interrupt)
        _once(number)


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Raise Interrupt with the name of a signal; the next one takes the default way."""
    _take_default_way()
    _came.append(signal.Signals(number).name)
    raise Interrupt(_came[-1])


def is_command() -> bool:
    """Return whether signals are answered by :func:`interrupt`, or one has been."""
    return bool(_came) or any(signal.getsignal(number) is interrupt for number in SIGNALS)


@contextlib.contextmanager
def signals() -> Iterator[Callable[[], str | None]]:
    """Hold signals back: yields what to ask between blocks, the name of one that came, or None.

    A command answers no signal after this has ended without an error, as its output is complete;
    a second signal takes the default way. Another process then has its own handlers again.
    """
    names = list(_came)
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    command, before = is_command(), {number: signal.getsignal(number) for number in _heard()}

    def note(number: int, frame: FrameType | None) -> None:
        names.append(signal.Signals(number).name)
        if command:
            _take_default_way()

    complete = False
    for number in before:
        signal.signal(number, note)
        if command:
            _once(number)
    try:
        yield lambda: names[0] if names else None
        complete = True
    finally:
        if not (command and (complete or names)):
            for number, handler in before.items():
                signal.signal(number, handler)
                if handler is interrupt:
                    _once(number)


def ignore_signals() -> None:
    """Answer no signal any more: the process ends."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _heard() -> list[signal.Signals]:
    """The signals that this process was not started to ignore, as nohup does."""
    return [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


def _take_default_way() -> None:
    """Let every signal do what it does to a process without handlers."""
    for number in _heard():
        signal.signal(number, signal.SIG_DFL)


def _once(number: int) -> None:
    """Let a signal take the default way from its second time on, also where the handler waits for
    a library that does not return; where C has no such call, only once the handler has run."""
    with contextlib.suppress(AttributeError):
        handler_of, handle = ctypes.pythonapi.PyOS_getsig, ctypes.CDLL(None).sysv_signal
        handler_of.restype, handle.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p)
        handle.restype = ctypes.c_void_p
        handle(number, handler_of(number))
