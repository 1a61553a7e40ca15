"""The command as a process of its own: it starts, settles and ends without detours."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

_WHILE_LOADING = 100_000


def start() -> None:
    """Before anything is loaded.

    Modules that load leave no garbage to look for, and NumPy's linear algebra, which is not used,
    would start threads that wait for work by spinning.
    """
    gc.set_threshold(_WHILE_LOADING)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    """A signal before there is work, or after it: nothing is half done."""
    os._exit(75)


def settle() -> None:
    """All modules are loaded: look for garbage as usual from now on, but not among them."""
    if gc.get_threshold()[0] == _WHILE_LOADING:
        gc.freeze()
        gc.set_threshold(700, 10, 10)


def end(code: int) -> NoReturn:
    """Leave now that all files are closed; the memory need not be tidied up first."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)
