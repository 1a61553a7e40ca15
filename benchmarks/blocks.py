"""How long commands take with blocks of other sizes than those of trajcli/memory.py.

    python benchmarks/blocks.py [--mib 64] [--rounds 5]

Prints medians of interleaved rounds over that of the size in use, for sizes 1/16 to 16 times it.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import statistics
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from trajcli import memory
from trajcli.cli import main as trajcli

FACTORS = (1 / 16, 1 / 4, 1, 4, 16)
INTEGRATE = "integrate actions.npy --dt 0.02 --start zero --overwrite -o out.h5"
SAVED = "integrate actions.npy --dt 0.02 --start zero --overwrite -o in.h5"
# constant, modules that use it, key in it, command
CASES = (
    ("BLOCK_VALUES", "jobs.plan", "native", INTEGRATE),
    ("BLOCK_VALUES", "jobs.plan", "torch", INTEGRATE),
    ("NATIVE_TILE", "kernels.native", "", INTEGRATE),
    ("TORCH_VALUES", "kernels.torch_ops", "", INTEGRATE),
    ("CHANGED_BYTES", "jobs.job", "", "resample in.h5 --to 33 --overwrite -o out.h5"),
    ("RESAMPLED_VALUES", "jobs.resample", "", "resample in.h5 --to 33 --overwrite -o out.h5"),
    ("MERGED_BYTES", "jobs.shards", "", "merge shards.h5 --overwrite"),
    ("SCANNED_BYTES", "views.diff", "", "diff in.h5 in.h5"),
    ("CHUNK_BYTES", "files.hdf5_output", "", f"{INTEGRATE} --compress 1"),
)


def run(command: str) -> float:
    """Runs a command in this process; returns seconds."""
    began = time.perf_counter()
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as errors:
        code = trajcli(command.split())
    assert code == 0, errors.getvalue()
    return time.perf_counter() - began


def case(name: str, module: str, key: str, command: str, rounds: int) -> None:
    """Prints a line for one constant."""
    user = importlib.import_module(f"trajcli.{module}")
    value: Any = getattr(memory, name)
    chosen = value[key] if key else value

    def use(size: int) -> None:
        setattr(user, name, {**value, key: size} if key else size)

    times: dict[float, list[float]] = {factor: [] for factor in FACTORS}
    for _ in range(rounds):
        for factor in FACTORS:
            use(max(1, int(chosen * factor)))
            times[factor].append(run(command))
    use(chosen)
    medians = {factor: statistics.median(seconds) for factor, seconds in times.items()}
    ratios = "  ".join(f"×{f:g}: {medians[f] / medians[1]:.2f}" for f in FACTORS)
    print(f"{name} {key} {chosen}: {medians[1]:.3f} s;  {ratios}", flush=True)


def main(arguments: argparse.Namespace) -> None:
    """Makes the inputs and measures every constant."""

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        count = (arguments.mib << 20) // (64 * 7 * 4)
        rng = np.random.default_rng(1)
        np.save("actions.npy", rng.normal(size=(count, 64, 7)).astype("f4"))
        run(SAVED)
        for k in range(2):
            run(f"{INTEGRATE.replace('out.h5', 'shards.h5')} --shard {k}/2")
        for name, module, key, command in CASES:
            torch = key == "torch" or module == "kernels.torch_ops"
            os.environ["TRAJCLI_BACKEND"] = "torch" if torch else "auto"
            case(name, module, key, command, arguments.rounds)
        os.chdir("/")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    main(parser.parse_args())
