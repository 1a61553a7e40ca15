"""trajcli score against reading the same positions: h5py for groups, NumPy for packed arrays.

    python benchmarks/scores.py [--count 100000] [--rounds 3] [--kinds groups,packed,stamped,buffer]

Whole processes in turns; processor seconds of the children, medians. The target is twice the time
of reading groups.
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

LEAST, MOST, DOFS, DT = 100, 200, 7, 0.02
KINDS = ("groups", "packed", "stamped", "buffer")


def read(path: str, kind: str) -> None:
    """Every position, as a script would."""
    with h5py.File(path) as file:
        if kind == "groups":
            for demo in file["data"].values():
                demo["position"][()].max()
            return
        stored = file["data/action" if kind == "buffer" else "position"]
        step = 65536 // stored[0].size  # 256 KiB
        for k in range(0, len(stored), step):
            stored[k : k + step].max()


def make_input(path: Path, kind: str, count: int) -> None:
    """Smooth motions with noise: [rows, 7] float32 of 100 to 200 rows, packed ones of 150."""
    random = np.random.default_rng(7)
    time = DT * np.arange(MOST)[:, None]
    base = np.sin(time * random.uniform(0.3, 3.0, (64, 1, DOFS))).astype("f4")
    base += 1e-3 * random.standard_normal(base.shape).astype("f4")
    lengths = random.integers(LEAST, MOST, count)
    mean = (LEAST + MOST) // 2
    with h5py.File(path, "w", libver="latest") as file:
        if kind == "groups":
            file.attrs["dt"] = DT
            for k, rows in enumerate(lengths.tolist()):
                file[f"data/demo_{k}/position"] = base[k % 64, :rows]
        elif kind == "buffer":
            actions = file.create_dataset("data/action", (int(lengths.sum()), DOFS), "f4")
            file["meta/episode_ends"] = np.cumsum(lengths)
            ends = np.cumsum(lengths)
            for k in range(0, count, 64):
                part = [base[i, :rows] for i, rows in enumerate(lengths[k : k + 64].tolist())]
                actions[ends[k] - lengths[k] : ends[min(k + 63, count - 1)]] = np.concatenate(part)
        else:
            stored = file.create_dataset("position", (count, mean, DOFS), "f4")
            for k in range(0, count, 64):
                stored[k : k + 64] = base[: min(64, count - k), :mean]
            if kind == "stamped":
                steps = DT * (1.0 + 0.1 * random.uniform(-1.0, 1.0, (count, mean)))
                file["times"] = np.cumsum(steps, 1)
            else:
                file.attrs["dt"] = DT


def spent(command: list[str]) -> float:
    """Seconds of processors that a command uses."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=dict(os.environ))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(kind: str, count: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / f"{kind}.h5"
        make_input(path, kind, count)
        rate = ["--rate", str(1 / DT)] if kind == "buffer" else []
        source = f"{path}:data/action" if kind == "buffer" else str(path)
        commands = (
            [sys.executable, __file__, "--read", str(path), "--kinds", kind],
            [sys.executable, "-m", "trajcli", "score", source, *rate, "--quiet"],
        )
        taken = [[spent(command) for command in commands] for _ in range(rounds)]
        read, score = (statistics.median(seconds) for seconds in zip(*taken, strict=True))
        ratio = statistics.median(b / a for a, b in taken)
        each = 1e6 * score / count
        print(
            f"{kind:8} read {read:.2f} s  score {score:.2f} s, {each:.0f} us each  {ratio:.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--read", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read is not None:
        read(given.read, given.kinds)
        return
    for kind in given.kinds.split(","):
        measure(kind, given.count, given.rounds)


if __name__ == "__main__":
    main()
