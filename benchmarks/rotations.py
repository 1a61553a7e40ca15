"""How fast rotations are computed, beside SciPy's compiled Rotation and beside plainer ways.

    python benchmarks/rotations.py [--rows 200000] [--rounds 7]

Each pair takes turns; the ratio is the median over the rounds. The target is at most 3, also of
windows on uneven stamps beside even ones, and of splines in torch beside NumPy.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.spatial.transform import Rotation, RotationSpline, Slerp

from trajcli import resample, rotations

Pair = tuple[Callable[[], Any], Callable[[], Any]]


def pairs(rows: int) -> dict[str, Pair]:
    """Ours and SciPy's of each task, on a random walk of orientations."""
    random, dt = np.random.default_rng(0), 0.01
    q = rotations.exp(np.cumsum(random.normal(0, 0.01, (rows, 3)), 0))
    times, vectors = dt * np.arange(rows), random.normal(size=(rows, 3))
    at = np.sort(random.uniform(0, times[-1], rows))
    rotvecs, matrices = rotations.log(q), rotations.from_quaternions(q, "matrix")

    def read(values: Any = q) -> Rotation:
        return Rotation.from_quat(values, scalar_first=True)

    def spline() -> list[Any]:
        curve = RotationSpline(times, read())
        return [curve(at, order) for order in range(3)]

    return {
        "from rotation vectors": (
            lambda: rotations.exp(rotvecs),
            lambda: Rotation.from_rotvec(rotvecs).as_quat(),
        ),
        "to rotation vectors": (lambda: rotations.log(q), lambda: read().as_rotvec()),
        "from matrices": (
            lambda: rotations.to_quaternions(matrices, "matrix"),
            lambda: Rotation.from_matrix(matrices.reshape(-1, 3, 3)).as_quat(),
        ),
        "to matrices": (
            lambda: rotations.from_quaternions(q, "matrix"),
            lambda: read().as_matrix(),
        ),
        "products": (
            lambda: rotations.multiply(q[1:], q[:-1]),
            lambda: (read(q[1:]) * read(q[:-1])).as_quat(),
        ),
        "turned vectors": (lambda: rotations.rotate(q, vectors), lambda: read().apply(vectors)),
        "differences": (
            lambda: rotations.differentiate(q, dt=dt, method="backward"),
            lambda: (read(q[1:]) * read(q[:-1]).inv()).as_rotvec() / dt,
        ),
        "slerp": (
            lambda: rotations.resample(q, "slerp", at=at, times=times),
            lambda: Slerp(times, read())(at).as_quat(),
        ),
        "spline and rates": (
            lambda: rotations.resample(q, "spline", at=at, times=times),
            spline,
        ),
    }


def plain_neighbours(rows: int) -> dict[str, Pair]:
    """The slower of two ways that ask the same, and the plain one."""
    random, rows = np.random.default_rng(0), min(rows, 4000)
    q = rotations.exp(np.cumsum(random.normal(0, 1e-3, (rows, 3)), 0))
    stamps = np.cumsum(random.uniform(0.5e-3, 1.5e-3, rows))
    at, positions = np.linspace(0.0, 0.9 * rows / 1e3, 2 * rows), random.normal(size=(1, rows, 7))
    tensors = [torch.tensor(x) for x in (positions, at)]
    found: dict[str, Pair] = {}
    for method in ("savgol", "central", "backward"):
        task = partial(rotations.differentiate, q, method=method)
        found[f"{method}, uneven"] = partial(task, times=stamps), partial(task, dt=1e-3)
    found["cubic, torch"] = (
        lambda: resample(tensors[0], "cubic", at=tensors[1], dt=1e-3),
        lambda: resample(positions, "cubic", at=at, dt=1e-3),
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name, tasks in (pairs(options.rows) | plain_neighbours(options.rows)).items():
        seconds = np.empty((options.rounds, 2))
        for taken in seconds:
            for k, task in enumerate(tasks):
                began = time.perf_counter()
                task()
                taken[k] = time.perf_counter() - began
        ours, theirs = np.median(seconds, 0) * 1e3
        ratio = np.median(seconds[:, 0] / seconds[:, 1])
        print(f"{name:22} {ours:8.1f} ms, beside {theirs:8.1f} ms: {ratio:.2f} (target 3)")


if __name__ == "__main__":
    main()
