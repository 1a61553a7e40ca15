"""What ends a run from outside: signals between blocks, and inputs that another program cuts short.

Mapped pages that are gone would end the process by SIGBUS; the guard of the compiled kernels
replaces them by zeros. Whether that was needed is asked after every block, and at the end whether
a file has become shorter. Without the compiled kernels there is no guard.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from trajcli.errors import Fault, InputError, raise_if_any
from trajcli.files.file_bytes import shortened
from trajcli.kernels import native

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


@contextmanager
def signals() -> Iterator[Callable[[], str | None]]:
    """Turn signals into an answer to ask for between blocks: the name of one that came."""
    names: list[str] = []

    def note(number: int, frame: FrameType | None) -> None:
        names.append(signal.Signals(number).name)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    before = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield lambda: names[0] if names else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Sizes:
    """The sizes that files had when they were opened."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._before = {path: _identity(path) for path in paths}

    def require_pages(self) -> None:
        """Raise InputError where pages were gone when they were needed."""
        if native.pages_lost():
            self.require_all()
            hint = "another program writes an input or the output"
            raise InputError(Fault("pages of a mapped file were gone", hint=hint))

    def require_all(self) -> None:
        """Raise InputError for the files that are shorter now."""
        faults = []
        for path, before in self._before.items():
            try:
                now = _identity(path)
            except OSError:
                continue  # a file without a name can still be read
            if now[:2] == before[:2] and now[2] < before[2]:
                faults.append(shortened(path, before[2], now[2]))
        raise_if_any(faults)


def _identity(path: str) -> tuple[int, int, int]:
    """Device, inode and size of a file."""
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size


@contextmanager
def guarded(paths: Sequence[str]) -> Iterator[Sizes]:
    """Survive pages that are gone; ask the sizes whether any are."""
    with native.guard():
        yield Sizes(paths)
