"""Thousands of small .npy files in one command against a script that loads each.

    python benchmarks/many_files.py [--files 10000] [--rounds 5] [--folder DIR]

The script loads every file by numpy.load, computes by NumPy and writes one HDF5 file by h5py.
Whole commands in turns; processor and wall seconds of the children, medians, and the ratios of the
same round. The target is at most 2.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from short_demos import spent

ROWS, DOFS, DT = 50, 7, 0.02
TRAJCLI = [sys.executable, "-m", "trajcli"]
COMMANDS = {
    "differentiate": ["differentiate", "--method", "central"],
    "integrate": ["integrate", "--mode", "acceleration", "--start", "zero"],
}
SCRIPT = """
import glob, sys
import h5py
import numpy as np

command, pattern, out, dt = *sys.argv[1:4], float(sys.argv[4])
x = np.stack([np.load(path) for path in sorted(glob.glob(pattern))])
if command == "differentiate":
    p = x
    v = np.gradient(p, dt, axis=1)
    a = np.gradient(v, dt, axis=1)
    j = np.gradient(a, dt, axis=1)
else:
    a = np.concatenate([np.zeros_like(x[:, :1]), x], 1)
    v = np.cumsum(dt * a, 1)
    p = np.cumsum(dt * v, 1)
    j = np.diff(a, axis=1, prepend=0) / dt
with h5py.File(out, "w") as file:
    for name, values in zip(("position", "velocity", "acceleration", "jerk"), (p, v, a, j)):
        file[name] = values.astype(np.float32)
"""


def measure(folder: Path, command: str, rounds: int) -> None:
    """Both in turns, the first round not counted."""
    out, pattern = folder / "out.h5", str(folder / "in" / "*.npy")
    arguments = [*COMMANDS[command], pattern, "--rate", f"{1 / DT:g}", "-o", str(out), "-q"]
    lines = {
        "script": [
            sys.executable,
            "-c",
            SCRIPT,
            command,
            pattern,
            str(folder / "plain.h5"),
            f"{DT}",
        ],
        "trajcli": [*TRAJCLI, *arguments, "--overwrite"],
    }
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in lines}
    for _ in range(rounds + 1):
        for name, line in lines.items():
            before, began = spent(), time.perf_counter()
            subprocess.run(line, check=True, env=environment)
            taken[name].append((spent() - before, time.perf_counter() - began))
    for clock, what in enumerate(("processors", "wall")):
        script, ours = ([each[clock] for each in seconds[1:]] for seconds in taken.values())
        ratio = statistics.median(a / b for a, b in zip(ours, script, strict=True))
        print(
            f"{command:14} {what:10} trajcli {statistics.median(ours):.2f} s  "
            f"script {statistics.median(script):.2f} s  ratio {ratio:.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder, random = Path(name), np.random.default_rng(0)
        (folder / "in").mkdir()
        for k in range(given.files):
            values = random.standard_normal((ROWS, DOFS), dtype=np.float32).cumsum(0)
            np.save(folder / "in" / f"episode_{k}.npy", values)
        for command in COMMANDS:
            measure(folder, command, given.rounds)


if __name__ == "__main__":
    main()
