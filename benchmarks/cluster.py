"""Planning for very many files; two shards on two cores against one on one; and their merge.

    python benchmarks/cluster.py [--files 100000] [--gigabytes 2] [--folder DIR]

Planning: a dry run of one of 1000 shards, and of all, of so many files of 20 actions × 3 dofs, .npy
and HDF5 (with a start and a dt each); seconds of the whole command, of its processor time, and its
peak memory.

Shards: a run that writes so many gigabytes; as one shard bound to one core, then as two bound
to a core each, in turns; seconds until all are done. The target is 0.6. Then their merge.

Small files of 8 × 30 actions × 7 dofs: milliseconds each, by two processes at a time, one for each;
by two shards of all; and, where Ray is installed, by its workers.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import h5py
import numpy as np

ROUNDS = 3
TRAJCLI = [sys.executable, "-m", "trajcli"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        os.chdir(folder)
        for kind in ("npy", "h5"):
            write_many(kind, options.files)
            for shard in ("0/1000", "0/1"):
                plan(kind, options.files, shard)
            shutil.rmtree(kind)
        shards(options.gigabytes)
        small_files()


def plan(kind: str, count: int, shard: str) -> None:
    """A dry run over very many files."""
    time_and_start = ["--dt", "0.02", "--start", "zero"] if kind == "npy" else []
    began = time.perf_counter()
    process = start([f"{kind}/*.{kind}", "-o", "out.h5", *time_and_start, "--dry-run"], shard)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0
    seconds = time.perf_counter() - began
    busy = usage.ru_utime + usage.ru_stime
    print(
        f"shard {shard} of {count} {kind} files planned in {seconds:.1f} s "
        f"({busy:.1f} s of a processor), {usage.ru_maxrss / 1024:.0f} MB",
        flush=True,
    )


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


def shards(gigabytes: float) -> None:
    """One shard on one core, and two on two; then the merge of the two."""
    batch = int(gigabytes * 1e9 / (4 * 4 * 101 * 7))
    random = np.random.default_rng(0)
    np.save("in.npy", random.standard_normal((batch, 100, 7), "f4"))
    first, second = sorted(os.sched_getaffinity(0))[:2]
    rounds = []
    for _ in range(ROUNDS):
        rounds.append((timed([first]), timed([first, second])))
        print("one shard {:.2f} s, two {:.2f} s".format(*rounds[-1]), flush=True)
    one, two = (statistics.median(seconds) for seconds in zip(*rounds, strict=True))
    print(f"medians: one shard on one core {one:.2f} s, two on two {two:.2f} s: {two / one:.2f}")
    subprocess.run([*TRAJCLI, "merge", "out.h5"], check=True)


def timed(cores: list[int]) -> float:
    """Seconds until all shards are done, each on a core."""
    shutil.rmtree("out.h5.parts", ignore_errors=True)
    line = ["in.npy", "--dt", "0.02", "--start", "zero", "--mode", "jerk", "-o", "out.h5"]
    began = time.perf_counter()
    processes = [start(line, f"{k}/{len(cores)}", core) for k, core in enumerate(cores)]
    codes = [process.wait() for process in processes]
    assert not any(codes)
    return time.perf_counter() - began


def small_files(count: int = 400, few: int = 40) -> None:
    """The same files by a process for each (few of them), by two shards, and by Ray's workers."""
    Path("small").mkdir()
    random = np.random.default_rng(0)
    names = [f"small/{number:03}.npy" for number in range(count)]
    for name in names:
        np.save(name, random.standard_normal((8, 30, 7), "f4"))
    line = ["--dt", "0.02", "--start", "zero", "--mode", "jerk", "-o"]
    os.environ["TRAJCLI_THREADS"] = "1"

    began = time.perf_counter()
    for pair in zip(names[:few:2], names[1:few:2], strict=True):
        running = [start([name, *line, f"{name}.h5"], "0/1") for name in pair]
        codes = [process.wait() for process in running]
        assert not any(codes)
    print(f"a process for each: {1e3 * (time.perf_counter() - began) / few:.1f} ms a file")

    began = time.perf_counter()
    running = [start(["small/*.npy", *line, "small.h5"], f"{k}/2") for k in (0, 1)]
    codes = [process.wait() for process in running]
    assert not any(codes)
    print(f"two shards of all: {1e3 * (time.perf_counter() - began) / count:.1f} ms a file")

    if find_spec("ray") is None:
        print("by Ray: not installed")
        return
    import ray

    import trajcli

    @ray.remote  # type: ignore[untyped-decorator, unused-ignore]
    def computed(source: str) -> float:
        trajectory: Any = trajcli.integrate(np.load(source), "zero", 0.02, "jerk")
        trajectory.save(f"{source}.by-ray.h5")
        return float(np.max(np.abs(trajectory.velocity)))

    began = time.perf_counter()
    ray.init(num_cpus=2, include_dashboard=False, logging_level=logging.ERROR)
    ready = time.perf_counter()
    ray.get([computed.remote(os.path.abspath(name)) for name in names])
    each = 1e3 * (time.perf_counter() - ready) / count
    print(f"by Ray: {each:.1f} ms a file, after {ready - began:.1f} s in which Ray starts")
    ray.shutdown()


def start(line: list[str], shard: str, core: int | None = None) -> subprocess.Popen[bytes]:
    """A shard in a process of its own, bound to a core where one is named."""
    bound = ["taskset", "-c", str(core)] if core is not None else []
    return subprocess.Popen([*bound, *TRAJCLI, "integrate", *line, "--quiet", "--shard", shard])


if __name__ == "__main__":
    main()
