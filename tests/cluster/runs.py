"""Runs that are divided into shards, and their inputs, in the folder of a test."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from trajcli.jobs.request import Request, Shard
from trajcli.jobs.run import run

BATCH = 23
OUT, QUANTITIES = Path("out.h5"), Path("out.h5.parts")


def run_shards(request: Request, count: int, indices: Iterable[int] | None = None) -> None:
    """Writes all parts of a run, or the parts of these shards."""
    for index in range(count) if indices is None else indices:
        run(replace(request, shard=Shard(index, count)))


def write_parts(count: int, indices: Iterable[int] | None = None, **more: Any) -> None:
    """Writes parts of a small run; what it computes does not matter."""
    if not Path("small.npy").exists():
        np.save("small.npy", np.random.default_rng(0).standard_normal((BATCH, 4, 3)).astype("f4"))
    options = {"dt": "0.02", "start": "zero", "overwrite": True, **more}
    run_shards(Request(sources=["small.npy"], out=OUT, **options), count, indices)


def one_array(**more: Any) -> Request:
    random = np.random.default_rng(0)
    np.savez(
        "in.npz",
        actions=random.standard_normal((BATCH, 30, 3)).astype("f4"),
        start_position=random.standard_normal((4, 3)),
        start_index=random.integers(0, 4, BATCH),
        dt=0.02,
    )
    np.save("steps.npy", random.uniform(0.01, 0.1, (BATCH, 30)))
    np.save("one_each.npy", random.uniform(0.01, 0.1, (BATCH, 1)))
    return replace(Request(sources=["in.npz"], out=OUT), **more)


def many_files(steps: Any = 0.0, rows: int = 0, **more: Any) -> Request:
    """Writes nine files, with the same steps or each with a step and a length of its own."""
    random = np.random.default_rng(3)
    for k in range(9):
        with h5py.File(f"in_{k}.h5", "w") as file:
            file["actions"] = random.standard_normal((7, 20 + rows * (k // 3), 2))
            file["more"] = 2 * file["actions"][()]
            file["start/position"] = random.standard_normal(2)
            file["dt"] = 0.1 + steps * (k if np.ndim(steps) == 0 else 1)
    return replace(Request(sources=["in_*.h5"], out=OUT, mode="jerk"), **more)


def demonstrations(**more: Any) -> Request:
    random = np.random.default_rng(4)
    sources = ["a.h5", "b.h5", "c.h5", "d.h5"]
    for name in sources:
        with h5py.File(name, "w") as file:
            for k in range(12):
                demo = file.create_group(f"data/demo_{k}")
                demo["actions"] = random.standard_normal((random.integers(5, 9), 3)).astype("f4")
    return replace(Request(sources=sources, out=OUT, dt="0.05", start="zero"), **more)


def lengths(**more: Any) -> Request:
    random = np.random.default_rng(4)
    rows = random.choice([50, 9, 31], BATCH)
    actions = random.standard_normal((BATCH, 50, 3)).astype("f4")
    index, start = random.integers(0, 3, BATCH), random.standard_normal((3, 3))
    np.savez("in.npz", actions=actions, lengths=rows, start_index=index, start_position=start)
    return replace(Request(sources=["in.npz"], out=OUT, dt="0.05"), **more)
