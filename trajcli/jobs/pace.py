"""How fast a run goes from file to file, for runs to come (see trajcli.kernels.speeds)."""

from __future__ import annotations

import time

from trajcli.jobs.request import Request
from trajcli.kernels import cuda
from trajcli.kernels.choose import Choice

LEAST_SECONDS = 0.3
LEAST_ACTIONS = 5_000_000
"""Shorter runs say nothing about long ones."""


class Pace:
    """Begins when blocks begin; is told of each that has come back and been written.

    A device's first block ends its start, which began when it was chosen; the rest tells its
    rate. Nothing is waited for that the run does not wait for.
    """

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self._began = self._last = time.perf_counter()
        self._actions = 0
        self._start: float | None = None

    def block(self, actions: int) -> None:
        """Another block is done."""
        self._last = time.perf_counter()
        if self._choice.device != "cpu" and self._start is None:
            self._start = self._last - self._began
            self._began = self._last
        else:
            self._actions += actions

    def keep(self, request: Request) -> None:
        """Leave the figures of a run that is done, if it was like most and some run may ask."""
        slow = request.cost or request.grad or request.compress is not None  # than all the rest
        if slow or not cuda.driver():
            return
        from trajcli.kernels import speeds

        choice, measured = self._choice, {}
        if self._start is not None and choice.start is not None:
            measured[speeds.START] = choice.start + self._start
        seconds = self._last - self._began
        if seconds >= LEAST_SECONDS and self._actions >= LEAST_ACTIONS:
            kind = "cpu" if choice.device == "cpu" else "cuda"
            measured[f"{kind} {choice.backend}"] = self._actions / seconds
        if measured:
            speeds.keep(measured)
