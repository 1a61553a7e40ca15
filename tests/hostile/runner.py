"""Runs commands in forked children of one process, each contained: it may crash, hang or lie."""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import os
import pkgutil
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

CPU_SECONDS = 10
"""A child that computes for so long hangs. Seconds of the processor, as a loaded machine takes
many times as long by the clock."""
SECONDS = 120.0
"""A child that is there for so long hangs, too: it waits for what never comes."""
MEMORY = 12 << 30


class Ended(NamedTuple):
    """How a child ended: its exit code (−signal), what it printed, whether it hung."""

    job: Any
    code: int
    text: str
    hung: bool = False
    resident: int = 0
    """kB, at most"""
    folder: Path = Path()


def warm() -> None:
    """Imports what every child would import."""
    import trajcli
    from trajcli.cli import main

    # an editable install has two places, of which one holds the compiled kernels alone
    modules = [
        f"trajcli.{room}.{module.name}"
        for room in ("cli", "files", "jobs", "views")
        for module in pkgutil.iter_modules([f"{place}/{room}" for place in trajcli.__path__])
    ]
    for name in (*modules, "trajcli.curves.resampling", "trajcli.curves.retiming", "rich.console"):
        importlib.import_module(name)
    with contextlib.redirect_stderr(io.StringIO()):
        main(["inspect", "none.h5", "--quiet"])  # builds what parses words
    gc.collect()
    gc.freeze()


def run_all(
    jobs: Iterable[Any], work: Callable[[Any], int], folder: Path, at_once: int = 2
) -> Iterator[Ended]:
    """``work(job)`` for every job in a child of its own, its exit code being what work returns."""
    running: dict[int, tuple[Any, Path, float]] = {}
    waiting = enumerate(jobs)
    while True:
        while len(running) < at_once and (following := next(waiting, None)):
            number, job = following
            place = folder / f"job{number}"
            place.mkdir()
            running[_start(job, work, place)] = (job, place, time.monotonic())
        if not running:
            return
        for child, (job, place, began) in list(running.items()):
            pid, status, usage = os.wait4(child, os.WNOHANG)
            late = not pid and time.monotonic() - began > SECONDS
            if late:
                os.killpg(child, signal.SIGKILL)
                pid, status, usage = os.wait4(child, 0)
            if pid:
                del running[child]
                output = place.with_suffix(".txt")
                text, code = output.read_text(errors="replace"), os.waitstatus_to_exitcode(status)
                output.unlink()
                hung = late or code == -signal.SIGXCPU
                yield Ended(job, code, text, hung, usage.ru_maxrss, place)
        time.sleep(0.004)


def _start(job: Any, work: Callable[[Any], int], place: Path) -> int:
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        os.setsid()
        os.chdir(place)
        output = os.open(place.with_suffix(".txt"), os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, resource.RLIM_INFINITY))
        code = work(job)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
