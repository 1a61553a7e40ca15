"""How fast this machine has been: figures of earlier runs, in a file that the user names.

Runs from file to file leave what they took, and ``--device auto`` weighs the CPU against a CUDA
device by it. Nothing is written where nobody asked for it, so without TRAJCLI_SPEEDS the built-in
figures count; without a driver there is nothing to weigh, and the file is neither read nor
written. Nothing depends on it: what cannot be read or written is as if it were not there. Of each
figure the last few values are kept, each with its day, by host and number of threads:

    {"format": 1, "machines": {"node1, 16 threads": {"cpu native": [[1.1e8, "2026-11-21"]]}}}
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

START = "cuda start"
"""Seconds until a CUDA device has given back its first block; all others: actions per second."""
_NAMES = ("cpu native", "cpu torch", START, "cuda triton", "cuda torch")
_FORMAT = 1
_VALUES = 5
_DAYS = 90
"""After which a value is forgotten: libraries and machines change."""
_MACHINES = 16
"""That share a file, at most; those not heard of for longest are dropped."""
_MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class Figure:
    """A number and the day on which it was last measured here; "" for one that is built in."""

    value: float
    measured: str = ""


BUILT_IN: Mapping[str, Figure] = {
    "cpu native": Figure(1e8),
    "cpu torch": Figure(2e6),
    START: Figure(3.0),
}
"""The compiled kernels bring 35 million float32 actions from file to file in 0.3 to 0.5 s, torch
takes 45 to 560 ns for each (2 shared x86-64 cores, benchmarks/README). To import torch took 1.1 s
there; the rest of a start, the device's context and its kernels, is an allowance."""


@dataclass(frozen=True)
class Estimate:
    """What a job takes on the CPU and on a CUDA device, by the figures at hand.

    ``device``: its actions per second; where they are not known, only its start counts.
    """

    actions: int
    cpu: Figure
    start: Figure
    device: Figure | None

    @property
    def cpu_seconds(self) -> float:
        return self.actions / self.cpu.value

    @property
    def device_seconds(self) -> float:
        more = 0.0 if self.device is None else self.actions / self.device.value
        return self.start.value + more

    @property
    def pays(self) -> bool:
        """Whether the device is done sooner."""
        return self.device_seconds < self.cpu_seconds

    @property
    def words(self) -> str:
        """Both, and where the figures are from."""
        start = "to start" if self.device is None else "with its start"
        if bool(self.cpu.measured) != bool(self.start.measured):
            both = ("the CPU's", "the device's")
            here, built_in = both if self.cpu.measured else both[::-1]
            source = f"{here} measured here, {built_in} built in"
        else:
            source = "both measured here" if self.cpu.measured else "built-in figures"
        return (
            f"{self.actions:,} actions take the CPU {_about(self.cpu_seconds)}, "
            f"a CUDA device {_about(self.device_seconds)} {start} ({source})"
        )


def estimate(
    actions: int, cpu: str, device: Sequence[str], known: Mapping[str, Figure]
) -> Estimate:
    """What so many actions take by such figures.

    cpu: the CPU's backend. device: the backends that the device may have, the best first.
    """
    rates = (known.get(f"cuda {backend}") for backend in device)
    rate = next((rate for rate in rates if rate is not None), None)
    return Estimate(actions, known[f"cpu {cpu}"], known[START], rate)


def figures() -> dict[str, Figure]:
    """Every figure by its name: measured on this machine, or built in, or left out.

    Of a rate the median counts, of starts the least: in the others, kernels were compiled. The
    first of a device's alone does not count, for the same reason.
    """
    path, found = place(), dict(BUILT_IN)
    machines = None if path is None else _read(path)
    here = _sensible(machines.get(_machine())) if machines else {}
    for name, values in here.items():
        if len(values) > (0 if name.startswith("cpu") else 1):
            numbers = sorted(number for number, _ in values)
            number = numbers[0] if name == START else numbers[len(numbers) // 2]
            found[name] = Figure(number, values[-1][1])
    return found


def keep(measured: Mapping[str, float]) -> None:
    """Add what a run has measured, by name; a file that is something else stays as it is."""
    path = place()
    machines = None if path is None else _read(path)
    if path is None or machines is None:
        return
    machine = _machine()
    here, today = _sensible(machines.pop(machine, None)), date.today().isoformat()
    for name, number in measured.items():
        here[name] = [*here.get(name, []), (float(f"{number:.4g}"), today)][-_VALUES:]
    machines[machine] = here
    kept = dict(list(machines.items())[-_MACHINES:])
    with suppress(OSError, RecursionError):
        _write(path, json.dumps({"format": _FORMAT, "machines": kept}))


def place() -> Path | None:
    """The file that TRAJCLI_SPEEDS names; without it, nothing is kept."""
    told = os.environ.get("TRAJCLI_SPEEDS", "")
    return Path(told) if told else None


def _machine() -> str:
    from trajcli.kernels.native import threads

    return f"{os.uname().nodename}, {threads()} threads"


def _read(path: Path) -> dict[str, Any] | None:
    """What the file says of each machine, not looked at yet: nothing if there is none, None if it
    is something else."""
    try:
        if not path.exists():
            return {}
        if not path.is_file():
            return None
        with open(path, "rb") as file:
            document = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    known = isinstance(document, dict) and document.get("format") == _FORMAT
    machines = document.get("machines") if known else None
    return machines if isinstance(machines, dict) else None


def _sensible(here: Any) -> dict[str, list[tuple[float, str]]]:
    """Of what is said of a machine, the values that are numbers in bounds and of the last months,
    each with its day."""
    found: dict[str, list[tuple[float, str]]] = {}
    today = date.today()
    for name in _NAMES:
        values = here.get(name) if isinstance(here, dict) else None
        for value in values[-_VALUES:] if isinstance(values, list) else []:
            with suppress(TypeError, ValueError, LookupError, OverflowError):
                number, day = float(value[0]), date.fromisoformat(value[1])
                if 1e-3 < number < 1e15 and abs((today - day).days) <= _DAYS:
                    found.setdefault(name, []).append((number, day.isoformat()))
    return found


def _write(path: Path, text: str) -> None:
    """Give the file its new text in one step, or leave it as it is."""
    fresh = Path(f"{path}.{os.getpid()}-{time.monotonic_ns()}")
    try:
        with open(fresh, "x", encoding="utf-8") as file:
            file.write(text)
        os.replace(fresh, path)
    except OSError:
        fresh.unlink(missing_ok=True)


def _about(seconds: float) -> str:
    if seconds < 0.1:
        return "less than 0.1 s"
    return f"about {seconds:.1f} s" if seconds < 100 else f"about {math.ceil(seconds):,} s"
