"""Thousands of short demos against one packed array with as many values, stored alike.

    python benchmarks/short_demos.py [--rounds 5] [--kinds plain,gzip,shorter]

Whole commands in turns; processor and wall seconds of the children, medians. The target is at
most 2.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np


def spent() -> float:
    """Seconds of processors that children have used: other work on the machine is not in it."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


KINDS: dict[str, tuple[int, int, int, dict[str, Any]]] = {
    "plain": (2000, 100, 300, {}),
    "gzip": (2000, 100, 300, {"compression": "gzip"}),
    "shorter": (5000, 30, 70, {}),
}
"""How many demos, of how many steps, and how they are stored: as robomimic, as Isaac Lab do."""


def make_inputs(folder: Path, kind: str = "plain") -> None:
    """Demos as robomimic keeps them, and as many values in one array."""
    random = np.random.default_rng(9)
    count, least, most, storage = KINDS[kind]
    lengths = random.integers(least, most, count)
    with h5py.File(folder / "demos.h5", "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = '{"env_kwargs": {"control_freq": 20}}'
        for i, length in enumerate(lengths):
            actions = random.standard_normal((length, 7)).astype("f4")
            data.create_dataset(f"demo_{i}/actions", data=actions, **storage)
            data[f"demo_{i}"].attrs["num_samples"] = length
    with h5py.File(folder / "packed.h5", "w") as file:
        rows = (least + most) // 2
        packed = random.standard_normal((int(lengths.sum()) // rows, rows, 7)).astype("f4")
        file.create_dataset("actions", data=packed, **storage)


def measure(kind: str, rounds: int) -> None:
    """Both in turns, the first round of each not counted."""
    taken: dict[str, list[tuple[float, float]]] = {"demos.h5": [], "packed.h5": []}
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_inputs(folder, kind)
        for _ in range(rounds + 1):
            for source, seconds in taken.items():
                line = ["integrate", str(folder / source), "--rate", "20", "--start", "zero"]
                out = ["-o", str(folder / "out.h5"), "-q", "--overwrite"]
                command = [sys.executable, "-m", "trajcli", *line, *out]
                before, began = spent(), time.perf_counter()
                subprocess.run(command, check=True, env=environment)
                seconds.append((spent() - before, time.perf_counter() - began))
    for clock, what in enumerate(("processors", "wall")):
        demos, packed = ([each[clock] for each in seconds[1:]] for seconds in taken.values())
        ratio = statistics.median(a / b for a, b in zip(demos, packed, strict=True))
        print(
            f"{kind:8} {what:10} demos {statistics.median(demos):.3f} s  "
            f"packed {statistics.median(packed):.3f} s  ratio {ratio:.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", default=",".join(KINDS))
    given = parser.parse_args()
    for kind in given.kinds.split(","):
        measure(kind, given.rounds)


if __name__ == "__main__":
    main()
