"""Planning for very many files, and two shares on two cores against one on one.

    python benchmarks/cluster.py [--files 100000] [--gigabytes 2] [--folder DIR]

Planning: a dry run of a share of so many files of 20 actions × 3 dofs, .npy and HDF5 (with a
start and a dt each); seconds of the whole command, of its processor time, and its peak memory.

Shares: the actions of a run that writes so many gigabytes; one share bound to one core, then two
shares bound to a core each, in turns; seconds until all are done. The target is 0.6.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--folder", type=Path, default=None)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        os.chdir(folder)
        for kind in ("npy", "h5"):
            plan(kind, asked.files)
        shares(asked.gigabytes)


def plan(kind: str, count: int) -> None:
    """A dry run over very many files."""
    write_many(kind, count)
    given = ["--dt", "0.02", "--start", "zero"] if kind == "npy" else []
    line = [f"{kind}/*.{kind}", "-o", "out.h5", *given, "--dry-run"]
    began = time.perf_counter()
    process = start(line, 0, 1000)
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0
    seconds = time.perf_counter() - began
    busy = used.ru_utime + used.ru_stime
    print(
        f"{count} {kind} files planned in {seconds:.1f} s ({busy:.1f} s of a processor), "
        f"{used.ru_maxrss / 1024:.0f} MB",
        flush=True,
    )
    shutil.rmtree(kind)


def write_many(kind: str, count: int) -> None:
    """Files of random actions; of HDF5 all but the values are copied."""
    Path(kind).mkdir()
    random = np.random.default_rng(0)
    first = Path(kind, f"first.{kind}")
    if kind == "npy":
        np.save(first, np.zeros((20, 3), "f4"))
        places: list[tuple[int, int]] = [(first.stat().st_size - 240, 60)]
    else:
        with h5py.File(first, "w") as file:
            for name, shape in (("actions", (20, 3)), ("start/position", (3,))):
                file[name] = np.zeros(shape, "f4")
            file["dt"] = 0.02
        with h5py.File(first) as file:
            actions, position = file["actions"], file["start/position"]
            places = [(int(d.id.get_offset()), int(d.size)) for d in (actions, position)]
    data = bytearray(first.read_bytes())
    first.unlink()
    for number in range(count):
        for at, size in places:
            data[at : at + 4 * size] = random.standard_normal(size, "f4").tobytes()
        Path(kind, f"a_{number}.{kind}").write_bytes(data)


def shares(gigabytes: float) -> None:
    """One share on one core, and two on two."""
    batch = int(gigabytes * 1e9 / (4 * 4 * 101 * 7))
    random = np.random.default_rng(0)
    np.save("in.npy", random.standard_normal((batch, 100, 7), "f4"))
    first, second = sorted(os.sched_getaffinity(0))[:2]
    found = []
    for _ in range(ROUNDS):
        found.append((timed(1, [first]), timed(2, [first, second])))
        print("one share {:.2f} s, two {:.2f} s".format(*found[-1]), flush=True)
    one, two = (statistics.median(each) for each in zip(*found, strict=True))
    print(f"medians: one share on one core {one:.2f} s, two on two {two:.2f} s: {two / one:.2f}")


def timed(number: int, cores: list[int]) -> float:
    """Seconds until all shares are done."""
    shutil.rmtree("out.h5.parts", ignore_errors=True)
    line = ["in.npy", "--dt", "0.02", "--start", "zero", "--mode", "jerk", "-o", "out.h5"]
    began = time.perf_counter()
    started = [start(line, index, number, core) for index, core in enumerate(cores)]
    codes = [process.wait() for process in started]
    assert codes == [0] * number
    return time.perf_counter() - began


def start(
    line: list[str], index: int, number: int, core: int | None = None
) -> subprocess.Popen[bytes]:
    """A share, on a core of its own."""
    command = [sys.executable, "-m", "trajcli", "integrate", *line, "--quiet"]
    bound = ["taskset", "-c", str(core)] if core is not None else []
    share = ["--shard-index", str(index), "--num-shards", str(number)]
    return subprocess.Popen([*bound, *command, *share])


if __name__ == "__main__":
    main()
