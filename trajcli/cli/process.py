"""The command as a process of its own: it starts, settles and ends without detours."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import sys
from typing import NoReturn

_WHILE_LOADING = 100_000
"""Objects between two searches for garbage, of which modules that load leave none."""


def start() -> None:
    """Before anything is loaded."""
    gc.set_threshold(_WHILE_LOADING)
    # NumPy's linear algebra is not used; its threads would wait for work by spinning
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        # before there is work, or after it, nothing is half done
        signal.signal(number, lambda *_: os._exit(75))


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
