"""Derivatives of noisy recordings: errors against the motion's own, by mode.

    python benchmarks/noise.py
    python benchmarks/noise.py --long

A smooth motion of 7 dofs, 20 s at 100 Hz, its positions recorded with 0.2 mrad of white noise as an
encoder gives. RMS errors of velocity, acceleration and jerk, over all rows and without half a
window at both ends, where windows are one-sided; and the largest error, with and without. Then the
RMS error of velocity on the six problems of pynumdiff 0.3 (rows of 0.01 s, 4 s, noise 0.1, mean of
ten seeds), written anew from their formulas, plain and with a hundredth of outliers. Then the time
that modes take, at even steps and at uneven ones: the least of 60 runs, of 16 trajectories.

With --long only what a row of one long recording costs by smooth, which chooses the cutoff:
processor time and wall time, with one thread and with two. TRAJCLI_LEVEL holds it to a level of
instructions.
"""

from __future__ import annotations

import os
import sys
import time as clock
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

import trajcli

RATE, SECONDS, DOFS, NOISE = 100.0, 20.0, 7, 2e-4
MODES: list[tuple[Any, dict[str, Any]]] = [
    ("central", {}),
    ("savgol", {"window": 15}),
    ("savgol", {"window": 31}),
    ("savgol", {"window": 61}),
    ("savgol", {"window": 31, "degree": 3}),
    ("smooth", {}),
]
SPEEDS: list[tuple[Any, dict[str, Any]]] = [*MODES, ("smooth", {"bandlimit": 1.5})]
STEP, COUNT = 0.01, 400
TIMES = np.arange(COUNT) * STEP


def motion(time: Any, random: np.random.Generator) -> list[Any]:
    """Positions to jerks [T, D]: sums of three sines of up to 0.5 Hz."""
    parts = [np.zeros((len(time), DOFS)) for _ in range(4)]
    for _ in range(3):
        size, phase = random.uniform(0.1, 0.5, DOFS), random.uniform(0.0, 2 * np.pi, DOFS)
        rate = 2 * np.pi * random.uniform(0.1, 0.5, DOFS)
        for order, part in enumerate(parts):
            part += size * rate**order * np.sin(rate * time[:, None] + phase + order * np.pi / 2)
    return parts


def cruise() -> Any:
    """A car that a controller holds at a speed over hills: position and velocity [2, T]."""
    hills = np.sin(2 * np.pi * TIMES) + 0.3 * np.sin(8 * np.pi * TIMES + 0.5)
    slope = 0.01 * (hills + 1.2 * np.sin(3.4 * np.pi * TIMES + 0.5))
    state, rows = np.zeros(4), []  # position, velocity, acceleration, summed error
    for grade in slope:
        p, v, a, total = state
        pull = -1e4 * grade + 0.25 / STEP * (0.5 - v) - 0.9 * v + 0.05 / STEP**2 * total
        state = np.array([p + STEP * v + STEP**2 / 2 * a, v + STEP * a, pull,
                          total + STEP * (0.5 - v)])  # fmt: skip
        rows.append(state[:2])
    return np.array(rows).T


def sines() -> Any:
    rates = 2 * np.pi * np.array([[1.0], [1.7]])
    return [1 + 0.5 * np.sin(rates * TIMES).sum(0), 0.5 * (rates * np.cos(rates * TIMES)).sum(0)]


def triangle() -> Any:
    """Lines through the extrema of sin(t²)."""
    knots = np.sqrt(np.pi / 2 + np.pi * np.arange(5))
    knots = np.array([0.0, *knots, COUNT * STEP])
    values = np.sin(knots**2)
    piece = np.searchsorted(knots, TIMES, "right") - 1
    return [np.interp(TIMES, knots, values), (np.diff(values) / np.diff(knots))[piece]]


def logistic() -> Any:
    p = 2 / (1 + 19 * np.exp(-4 * TIMES))
    return [p, 4 * p * (1 - p / 2)]


def oscillator() -> Any:
    """Of x″ = −(100·x + 3·x′)/0.99, from 0 at 20."""
    decay = 1.5 / 0.99
    rate = np.sqrt(100 / 0.99 - decay**2)
    size, angle = 20 / rate * np.exp(-decay * TIMES), rate * TIMES
    return [size * np.sin(angle), size * (rate * np.cos(angle) - decay * np.sin(angle))]


def lorenz() -> Any:
    """The first coordinate, by Euler's rule with steps of 0.1 ms."""
    (x, y, z), rows = (5.0, 1.0, 3.0), []
    for step in range(COUNT * 100):
        dx, dy, dz = 10 * (y - x), x * (45 - z) - y, x * y - 8 / 3 * z
        if step % 100 == 0:
            rows.append((x / 20, dx / 20))
        x, y, z = x + 1e-4 * dx, y + 1e-4 * dy, z + 1e-4 * dz
    return np.array(rows).T


def noisy(p: Any, seed: int, outliers: bool) -> Any:
    """Positions with pynumdiff's noise, and with outliers at a hundredth of the rows."""
    random = np.random.RandomState(seed)
    noise = random.normal(0, 0.1, COUNT)
    if outliers:
        rows = random.choice(COUNT, COUNT // 100, replace=False)
        size = random.choice([-1, 1], size=len(rows)) + random.uniform(-0.5, 0.5, len(rows))
        noise[rows] = size * np.ptp(p)
    return p + noise


def measure_problems() -> None:
    """Print the RMS error of velocity on each of pynumdiff's problems."""
    problems = {f.__name__: f() for f in (cruise, sines, triangle, logistic, oscillator, lorenz)}
    peers = ("pi_cruise_control", "sine", "triangle", "pop_dyn", "linear_autonomous", "lorenz_x")
    if find_spec("pynumdiff"):
        simulate = import_module("pynumdiff.utils.simulate")
        for peer, (name, (p, _)) in zip(peers, problems.items(), strict=True):
            theirs = getattr(simulate, peer)(noise_parameters=(0, 0.1), random_seed=1)[0]
            print(f"{name}: off pynumdiff's own by {abs(theirs - noisy(p, 1, False)).max():.1e}")
    print("RMS error of velocity |", " ".join(problems), "| mean")
    runs: list[tuple[str, bool, dict[str, Any]]] = [
        ("savgol", False, {"method": "savgol"}),
        ("smooth", False, {}),
        ("smooth, outliers", True, {}),
        ("smooth, robust", True, {"robust": True}),
    ]
    for label, outliers, options in runs:
        errors = []
        for p, v in problems.values():
            rows = np.stack([noisy(p, seed, outliers) for seed in range(1, 11)])[:, :, None]
            found: Any = trajcli.differentiate(rows, dt=STEP, **options)
            errors.append(np.sqrt(((found.velocity[:, :, 0] - v) ** 2).mean(1)).mean())
        print(f"{label:<17}", " ".join(f"{x:.2f}" for x in errors), f"| {np.mean(errors):.3f}")


def measure_speed(random: np.random.Generator) -> None:
    """Print the time of every mode, in ns a row, and that of central it takes."""
    positions = random.normal(size=(16, 1000, DOFS)).cumsum(1)
    stamps = random.uniform(0.008, 0.012, positions.shape[:2]).cumsum(1)
    steps: dict[str, dict[str, Any]] = {
        "even steps": {"dt": 0.01}, "uneven": {"times": stamps[0]}, "of each": {"times": stamps}
    }  # fmt: skip
    for label, step in steps.items():
        runs = [partial(trajcli.differentiate, positions, method=mode, **options, **step)
                for mode, options in SPEEDS]  # fmt: skip
        seconds = np.full((60, len(runs)), np.inf)
        for row in seconds:
            for i, run in enumerate(runs):
                begin = clock.perf_counter()
                run()
                row[i] = clock.perf_counter() - begin
        least = seconds.min(0)
        for (mode, options), time in zip(SPEEDS, least, strict=True):
            words = f"{mode} {' '.join(map(str, options.values()))}"
            share = f"{time / least[0]:.2f} of central"
            print(f"{label:<10} {words:<12} {time * 1e9 / 16_000:5.0f} ns/row  {share}")


def measure_long(random: np.random.Generator) -> None:
    """Print the median processor time and wall time of smooth in µs a row, by rows and threads."""
    print("rows, dofs: µs of processor time a row (wall time) with 1 thread | with 2 | 2 : 1")
    for rows in (10_000, 100_000, 1_000_000):
        for dofs in (1, DOFS):
            time = np.arange(rows)[:, None] / RATE
            positions: Any = np.sin(2 * np.pi * 0.3 * time) * np.arange(1, dofs + 1)
            positions = positions + random.normal(0.0, NOISE, positions.shape)
            taken = np.zeros((max(1, min(7, 300_000 // rows)), 2, 2))
            for each in taken:
                for threads in (1, 2):
                    os.environ["TRAJCLI_THREADS"] = str(threads)
                    begin = np.array([clock.process_time(), clock.perf_counter()])
                    trajcli.differentiate(positions, dt=1.0 / RATE)
                    each[threads - 1] = clock.process_time(), clock.perf_counter()
                    each[threads - 1] -= begin
            one, two = np.median(taken, axis=0) / rows * 1e6
            cells = " | ".join(f"{cpu:5.1f} ({wall:5.1f})" for cpu, wall in (one, two))
            print(f"{rows:9,} {dofs}: {cells} | {two[0] / one[0]:.2f}", flush=True)


def main() -> None:
    random = np.random.default_rng(1)
    if sys.argv[1:] == ["--long"]:
        measure_long(random)
        return
    time = np.arange(SECONDS * RATE) / RATE
    exact = motion(time, random)
    recorded = exact[0] + random.normal(0.0, NOISE, exact[0].shape)
    print("RMS error: velocity, acceleration, jerk | without ends | largest | without ends")
    for mode, options in MODES:
        result = trajcli.differentiate(recorded, dt=1.0 / RATE, method=mode, **options)
        half = options.get("window", 31) // 2
        columns = []
        for ends in (slice(None), slice(half, -half)):
            outputs: list[Any] = list(result)
            off = [v[0, ends] - x[ends] for v, x in zip(outputs, exact, strict=True)][1:]
            columns.append([np.sqrt((e**2).mean()) for e in off])
            columns.append([abs(e).max() for e in off])
        words = " ".join(str(value) for value in options.values())
        cells = [" ".join(f"{x:9.2g}" for x in columns[i]) for i in (0, 2, 1, 3)]
        print(f"{mode} {words:<6} " + " | ".join(cells))
    measure_problems()
    measure_speed(random)


if __name__ == "__main__":
    main()
