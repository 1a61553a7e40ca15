"""Derivatives of noisy recordings: errors against the motion's own, by mode.

    python benchmarks/noise.py

A smooth motion of 7 dofs, 20 s at 100 Hz, its positions recorded with 0.2 mrad of white noise as an
encoder gives. RMS errors of velocity, acceleration and jerk, over all rows and without half a
window at both ends, where windows are one-sided; and the largest error, with and without. Then the
time that modes take, at even steps and at uneven ones: the least of 60 runs, of 16 trajectories.
"""

from __future__ import annotations

import time as clock
from functools import partial
from typing import Any

import numpy as np

import trajcli

RATE, SECONDS, DOFS, NOISE = 100.0, 20.0, 7, 2e-4
MODES: list[tuple[str, dict[str, Any]]] = [
    ("central", {}),
    ("savgol", {"window": 15}),
    ("savgol", {"window": 31}),
    ("savgol", {"window": 61}),
    ("savgol", {"window": 31, "degree": 3}),
]


def motion(time: Any, random: np.random.Generator) -> list[Any]:
    """Positions to jerks [T, D]: sums of three sines of up to 0.5 Hz."""
    parts = [np.zeros((len(time), DOFS)) for _ in range(4)]
    for _ in range(3):
        size, phase = random.uniform(0.1, 0.5, DOFS), random.uniform(0.0, 2 * np.pi, DOFS)
        rate = 2 * np.pi * random.uniform(0.1, 0.5, DOFS)
        for order, part in enumerate(parts):
            part += size * rate**order * np.sin(rate * time[:, None] + phase + order * np.pi / 2)
    return parts


def measure_speed(random: np.random.Generator) -> None:
    """Print the time of every mode, in ns a row, and that of central it takes."""
    positions = random.normal(size=(16, 1000, DOFS)).cumsum(1)
    stamps = random.uniform(0.008, 0.012, positions.shape[:2]).cumsum(1)
    steps: dict[str, dict[str, Any]] = {
        "even steps": {"dt": 0.01}, "uneven": {"times": stamps[0]}, "of each": {"times": stamps}
    }  # fmt: skip
    for label, step in steps.items():
        runs = [partial(trajcli.differentiate, positions, method=mode, **options, **step)
                for mode, options in MODES]  # fmt: skip
        seconds = np.full((60, len(runs)), np.inf)
        for row in seconds:
            for i, run in enumerate(runs):
                begin = clock.perf_counter()
                run()
                row[i] = clock.perf_counter() - begin
        least = seconds.min(0)
        for (mode, options), time in zip(MODES, least, strict=True):
            words = f"{mode} {' '.join(map(str, options.values()))}"
            share = f"{time / least[0]:.2f} of central"
            print(f"{label:<10} {words:<12} {time * 1e9 / 16_000:5.0f} ns/row  {share}")


def main() -> None:
    random = np.random.default_rng(1)
    time = np.arange(SECONDS * RATE) / RATE
    exact = motion(time, random)
    recorded = exact[0] + random.normal(0.0, NOISE, exact[0].shape)
    print("RMS error: velocity, acceleration, jerk | without ends | largest | without ends")
    for mode, options in MODES:
        result = trajcli.differentiate(recorded, dt=1.0 / RATE, method=mode, **options)
        half = options.get("window", 5) // 2
        columns = []
        for ends in (slice(None), slice(half, -half)):
            outputs: list[Any] = list(result)
            off = [v[0, ends] - x[ends] for v, x in zip(outputs, exact, strict=True)][1:]
            columns.append([np.sqrt((e**2).mean()) for e in off])
            columns.append([abs(e).max() for e in off])
        words = " ".join(str(value) for value in options.values())
        cells = [" ".join(f"{x:9.2g}" for x in columns[i]) for i in (0, 2, 1, 3)]
        print(f"{mode} {words:<6} " + " | ".join(cells))
    measure_speed(random)


if __name__ == "__main__":
    main()
