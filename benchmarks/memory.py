"""Arrays in memory: trajectories and gradients over plain copies of as many bytes.

    python benchmarks/memory.py [--level 3] [--rows REGEX] [--dofs 1,7] [--dtypes float32]

Per row, processor time of ``trajcli.integrate``, checks and all, or of the backward pass through
torch, over that of copying as many arrays as there are outputs to fresh ones of their shapes.
Rounds are interleaved and figures are medians of ratios of the same round, so that a busy machine
disturbs them little.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import re
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import trajcli
from trajcli.arrays import Pages

FEW, MANY = (1, 2, 3, 4), (6, 7, 14, 32)
SCHEMES = ("euler", "zoh", "foh")


@dataclass(frozen=True)
class Row:
    """A line of the table; dt is 1, H, B1 or BH, or of time stamps: times H or times BH."""

    mode: str
    dofs: int
    target: float
    options: dict[str, Any] = field(default_factory=dict)
    dt: str = "1"
    horizon: int = 100
    backward: bool = False

    @property
    def name(self) -> str:
        options = " ".join(str(value) for value in self.options.values())
        direction = "backward" if self.backward else "forward"
        return f"{self.mode} {options} dt {self.dt} H {self.horizon} D {self.dofs} {direction}"


def table() -> Iterator[Row]:
    for backward in (False, True):
        for dofs in (*FEW, *MANY):
            few = dofs in FEW
            for mode in ("clique", "velocity", "acceleration", "jerk"):
                for scheme in SCHEMES[: 1 if mode == "clique" else 3]:
                    options: dict[str, Any] = {} if mode == "clique" else {"scheme": scheme}
                    target = 1.6 if backward else 1.3
                    yield Row(
                        mode, dofs, 2.2 if few and backward else target, options, backward=backward
                    )
            for dt in ("H", "B1", "BH"):
                for scheme in ("euler", "zoh"):
                    target = 2.2 if few and backward else 2.0 if dt == "BH" else 1.6
                    yield Row("jerk", dofs, target, {"scheme": scheme}, dt, backward=backward)
            target = (2.5 if few else 1.5) if backward else 1.4 if few else 1.2
            for horizon in (16, 30, 100):
                yield Row("central", dofs, target, horizon=horizon, backward=backward)
                for degree in (3, 5):
                    options = {"degree": degree}
                    yield Row("bspline", dofs, target, options, horizon=horizon, backward=backward)
        for dofs, target in ((1, 2.0), (7, 1.4)):
            for degree, steps in ((3, 4), (5, 5)):
                options = {"degree": degree, "steps": steps}
                yield Row("bspline", dofs, target, options, backward=backward)
        yield Row("acceleration", 1, 4.0, horizon=1, backward=backward)
        yield Row("acceleration", 7, 2.0, horizon=4, backward=backward)
        yield Row("acceleration", 200_000, 2.0, horizon=16, backward=backward)
        yield Row("acceleration", 1, 2.0, horizon=1_000_000, backward=backward)
    for dt, target in (("times H", 2.5), ("times BH", 5.0)):
        yield Row("central", 7, target, dt=dt)


def measure(row: Row, dtype: str, elements: int, rounds: int, unchecked: bool) -> dict[str, Any]:
    """Medians of seconds and of their ratios."""
    random = np.random.default_rng(0)
    shape = (max(1, elements // (row.horizon * row.dofs)), row.horizon, row.dofs)
    arguments: dict[str, Any] = {
        "actions": random.standard_normal(shape).astype(dtype),
        **steps(row.dt, shape, random),
        **row.options,
        "allow_nonfinite": unchecked,
    }
    method: Callable[..., Any] = trajcli.integrate
    if "times" in arguments:
        arguments |= {"positions": arguments.pop("actions"), "method": row.mode}
        method = trajcli.differentiate
    else:
        arguments |= {"start": np.zeros(row.dofs), "mode": row.mode}
    found = method(**arguments)
    sources: list[Any] = [found.position] * 4 + [found.time]
    work: Callable[[], object] = lambda: method(**arguments)  # noqa: E731
    if row.backward:
        tensors: dict[str, Any] = {**arguments, "start": torch.zeros(row.dofs)}
        actions = torch.from_numpy(arguments["actions"]).requires_grad_()
        found = trajcli.integrate(**{**tensors, "actions": actions})
        sources.pop()  # times have no gradient
        outputs: Any = [found.position, found.velocity, found.acceleration, found.jerk]
        upstream = [torch.randn_like(x) for x in outputs]
        work = lambda: torch.autograd.grad(outputs, actions, upstream, retain_graph=True)  # noqa: E731
    pairs = [(processor_time(work), processor_time(lambda: copies(sources))) for _ in range(rounds)]
    return {
        "row": row.name,
        "dtype": dtype,
        "seconds": statistics.median(a for a, _ in pairs[1:]),
        "over_copies": statistics.median(a / b for a, b in pairs[1:]),
        "target": row.target,
    }


def steps(form: str, shape: tuple[int, int, int], random: Any) -> dict[str, Any]:
    """dt, or the time stamps of a recording."""
    batch, horizon, _ = shape
    shapes = {"1": (), "H": (horizon,), "B1": (batch, 1), "BH": (batch, horizon)}
    if not form.startswith("times"):
        return {"dt": random.uniform(0.01, 0.03, shapes[form])}
    stamps = np.cumsum(random.uniform(0.01, 0.03, shapes[form.removeprefix("times ")]), -1)
    return {"times": stamps}


def copies(sources: list[Any]) -> list[Any]:
    """As many fresh arrays, written."""
    made = [np.empty_like(source) for source in sources]
    for array, source in zip(made, sources, strict=True):
        np.copyto(array, source)
    return made


def processor_time(work: Callable[[], object]) -> float:
    """Of all threads of this process. What the work makes is kept until the clock has stopped."""
    began = time.process_time()
    made = work()
    seconds = time.process_time() - began
    del made
    return seconds


def keep_memory_fresh() -> None:
    """Large arrays come from the system and go back there (glibc), as the first of a process do.

    Else some reuse the pages of others that were freed, and take a third of the time.
    """
    Pages.most_spare = 0
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(-3, 1 << 20)  # M_MMAP_THRESHOLD


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--rows", default="", help="those whose name has this regular expression")
    parser.add_argument("--dofs", default="", help="1,7 …; all, unless given")
    parser.add_argument("--dtypes", default="float32,float64")
    parser.add_argument("--level", help="of instructions: 1, 3 (AVX2) or 4 (AVX-512)")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--elements", type=int, default=3_000_000, help="actions, B·H·D")
    parser.add_argument("--rounds", type=int, default=7, help="without the first, which warms up")
    parser.add_argument("--unchecked", action="store_true", help="do not look for NaN and Inf")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    dofs = {int(x) for x in given.dofs.split(",") if x}
    chosen = [
        row
        for row in table()
        if re.search(given.rows, row.name) and row.dofs in (dofs or {row.dofs})
    ]
    os.environ["TRAJCLI_THREADS"] = given.threads
    if given.level:
        os.environ["TRAJCLI_LEVEL"] = given.level
    gc.disable()
    keep_memory_fresh()
    found = []
    for dtype in given.dtypes.split(","):
        # the first rows of a process fault pages in that a virtual machine had given back
        for row in chosen[:1]:
            measure(row, dtype, given.elements, 2 * given.rounds, given.unchecked)
        for row in chosen:
            line = measure(row, dtype, given.elements, given.rounds + 1, given.unchecked)
            found.append(line)
            if not given.json:
                mark = "" if line["over_copies"] <= row.target else "  over"
                print(
                    f"{row.name:56} {dtype}  {line['over_copies']:6.2f}  of {row.target:.1f}{mark}",
                    flush=True,
                )
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        met = sum(line["over_copies"] <= line["target"] for line in found)
        print(f"{met} of {len(found)} within the target")


if __name__ == "__main__":
    main()
