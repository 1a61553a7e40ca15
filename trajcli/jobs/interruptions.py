"""What ends a run from outside: signals, which are answered between blocks."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

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
