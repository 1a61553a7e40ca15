"""Runs commands in forked children of one process, each contained: it may crash, hang or lie."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECONDS = 10.0
MEMORY = 12 << 30


@dataclass
class Ended:
    """How a child ended: its exit code (−signal), what it printed, whether it had to be stopped."""

    job: Any
    code: int
    text: str
    hung: bool = False
    seconds: float = 0.0
    resident: int = 0
    """kB, at most"""
    folder: Path = field(default_factory=Path)


def run_all(
    jobs: Iterable[Any], work: Callable[[Any], int], folder: Path, at_once: int = 2
) -> Iterator[Ended]:
    """``work(job)`` for every job in a child of its own, its exit code being what work returns."""
    running: dict[int, tuple[Any, Path, float]] = {}
    waiting = iter(jobs)
    number, more = 0, True
    clock = Clock()
    while more or running:
        while more and len(running) < at_once:
            job = next(waiting, None)
            if job is None:
                more = False
                break
            place = folder / f"job{number}"
            place.mkdir()
            running[_start(job, work, place)] = (job, place, clock.now())
            number += 1
        yield from _ended(running, clock)


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
        code = work(job)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Clock:
    """Seconds in which this process was running: a machine that stands still hangs nothing."""

    def __init__(self) -> None:
        self._seconds, self._last = 0.0, time.monotonic()

    def now(self) -> float:
        """So many up to now; to be asked often."""
        seen = time.monotonic()
        self._seconds += min(seen - self._last, 0.1)
        self._last = seen
        return self._seconds


def _ended(running: dict[int, tuple[Any, Path, float]], clock: Clock) -> Iterator[Ended]:
    """The children that have ended by now, or are stopped for taking too long."""
    for child, (job, place, began) in list(running.items()):
        pid, status, usage = os.wait4(child, os.WNOHANG)
        seconds = clock.now() - began
        crowd = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        hung = not pid and seconds > SECONDS * crowd
        if hung:
            os.killpg(child, signal.SIGKILL)
            pid, status, usage = os.wait4(child, 0)
        if pid:
            del running[child]
            text = place.with_suffix(".txt").read_text(errors="replace")
            place.with_suffix(".txt").unlink()
            code = os.waitstatus_to_exitcode(status)
            yield Ended(job, code, text, hung, seconds, usage.ru_maxrss, place)
    time.sleep(0.004)
