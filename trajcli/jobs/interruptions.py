"""What ends a run from outside: signals between blocks, and inputs that another program changes.

Mapped pages that are gone would end the process by SIGBUS; the guard of the compiled kernels
replaces them by zeros. Whether that was needed is asked after every block, and at the end whether
a file has changed. Without the compiled kernels there is no guard.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
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


class SourceFiles:
    """The files of a run as they were when it began."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._before: dict[str, tuple[int, ...]] = {}
        self.add(paths)

    def add(self, paths: Iterable[str]) -> None:
        """Also these, as they are now."""
        for path in paths:
            state = self._before.get(path) or _state(path)
            if state is not None:
                self._before[path] = state

    def require_pages(self) -> None:
        """Raise InputError where pages were gone when they were needed."""
        if native.pages_lost():
            self.require_unchanged()
            hint = "another program writes an input or the output"
            raise InputError(Fault("pages of a mapped file were gone", hint=hint))

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
            hint = "another program writes it: run again when it is done"
            faults.append(
                Fault(f"{what} while it was read", path, "as at the beginning", hint=hint)
            )
        raise_if_any(faults)


def _state(path: str) -> tuple[int, ...] | None:
    """Device, inode, size and time of change of a file; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@contextmanager
def guarded(paths: Iterable[str]) -> Iterator[SourceFiles]:
    """Survive pages that are gone; ask the files whether any are."""
    with native.guard():
        yield SourceFiles(paths)
