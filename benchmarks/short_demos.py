"""Thousands of short demos against one packed array with as many values.

    python benchmarks/short_demos.py [--rounds 5]

Whole commands in turns; processor seconds of the children, medians. The target is at most 2.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np


def spent() -> float:
    """Seconds of processors that children have used: other work on the machine is not in it."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def make_inputs(folder: Path) -> None:
    """2000 demos of 100 to 300 steps as robomimic keeps them, and as many values in one array."""
    random = np.random.default_rng(9)
    lengths = random.integers(100, 300, 2000)
    with h5py.File(folder / "demos.h5", "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = '{"env_kwargs": {"control_freq": 20}}'
        for i, length in enumerate(lengths):
            actions = random.standard_normal((length, 7)).astype("f4")
            data.create_dataset(f"demo_{i}/actions", data=actions)
    with h5py.File(folder / "packed.h5", "w") as file:
        packed = random.standard_normal((int(lengths.sum()) // 200, 200, 7))
        file["actions"] = packed.astype("f4")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    seconds: dict[str, list[float]] = {"demos.h5": [], "packed.h5": []}
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_inputs(folder)
        for _ in range(rounds + 1):
            for source, taken in seconds.items():
                line = ["integrate", str(folder / source), "--rate", "20", "--start", "zero"]
                out = ["-o", str(folder / "out.h5"), "-q", "--overwrite"]
                before = spent()
                command = [sys.executable, "-m", "trajcli", *line, *out]
                subprocess.run(command, check=True, env=environment)
                taken.append(spent() - before)
    demos, packed = (taken[1:] for taken in seconds.values())
    ratio = statistics.median(a / b for a, b in zip(demos, packed, strict=True))
    print(f"demos {statistics.median(demos):.3f} s  packed {statistics.median(packed):.3f} s")
    print(f"ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
