"""Whether results over long horizons are as exact as promised. Exits 1 if one is not.

    python benchmarks/accuracy.py [--horizons 1000,1000000] [--json]

Exact rows come from whole numbers: actions and steps are taken as they are stored, as multiples of
a power of two, and sums of them in Python's integers round nothing. dt is 0.02 or differs from step
to step, neither of which float64 has exactly; actions are biased, so that errors of dt and of sums
add up. The promise: before its last rounding, a result is off by no more than
max(1e-12, 1.2e-16·H) of the largest value along the trajectory (differences: of the values that
are subtracted, over dt). Sums in float32 must fail it, else this would tell nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from itertools import pairwise
from math import factorial
from typing import Any

import numpy as np

import trajcli

HORIZONS = (10**3, 10**4, 10**5, 10**6)
QUANTITIES = ("position", "velocity", "acceleration", "jerk")
ORDERS = {"clique": 0, "velocity": 1, "acceleration": 2, "jerk": 3}
CASES = [
    ("clique", "euler"),
    ("acceleration", "euler"),
    ("acceleration", "foh"),
    ("jerk", "euler"),
    ("jerk", "zoh"),
]
ACTIONS: dict[str, Callable[[int], Any]] = {
    "biased": lambda n: np.random.default_rng(n).uniform(-0.5, 1.5, n),
    "constant": lambda n: np.full(n, 0.7),
    "there and back": lambda n: np.where(np.arange(n) < n // 2, 0.7, -0.7),
}
LAST_ROUNDING = 0.5 + 1e-6
"""Units in the last place, and what the comparison itself rounds."""
BITS = 100
"""Actions and steps are whole multiples of 2**-BITS."""


def exact_rows(actions: Any, start: Any, steps: Any, order: int, scheme: str) -> list[Any]:
    """Rows 1.. of the quantities up to ``order``, from position on, rounded once to float64.

    x_m is a whole number of units of 2**(-BITS·(n + 1)) / 24ⁿ, n = order − m, so that dtʳ/r! of
    the quantity r orders above is one, too.
    """
    u, dt = whole(actions), whole(steps)
    first = whole(start)
    state = [first[m] * (24 << BITS) ** (order - m) for m in range(order + 1)]
    columns: list[list[int]] = [[] for _ in range(order + 1)]
    for i, action in enumerate(u):
        step = 24 * (dt[i] if len(dt) > 1 else dt[0])
        before, state = state, [*state[:order], action]
        if scheme == "euler":
            for m in reversed(range(order)):
                state[m] += step * state[m + 1]
        else:
            for m in range(order):
                n = order - m
                state[m] += sum(step**r * before[m + r] // factorial(r) for r in range(1, n))
                if scheme == "zoh":
                    state[m] += step**n * action // factorial(n)
                else:
                    state[m] += step**n * (action + n * before[order]) // factorial(n + 1)
        for column, value in zip(columns, state, strict=True):
            column.append(value)
    units = [(1 << BITS) * (24 << BITS) ** (order - m) for m in range(order + 1)]
    return [np.array([x / unit for x in c]) for c, unit in zip(columns, units, strict=True)]


def whole(values: Any) -> list[int]:
    """Floats as multiples of 2**-BITS; none of those here is finer."""
    ratios = (float(x).as_integer_ratio() for x in np.atleast_1d(values))
    return [n * ((1 << BITS) // d) for n, d in ratios]


def exact_differences(actions: Any, start: float, steps: Any) -> tuple[list[Any], list[float]]:
    """Rows 1.. of position, velocity and acceleration, and the magnitudes that bound errors."""
    u, dt = [*whole(start), *whole(actions)], whole(steps)
    dt = dt if len(dt) > 1 else dt * len(actions)
    # in fractions of the steps: v = Δp/dt_t, a = (v_t − v_{t−1})/dt_t; v_0 is zero
    changes = [b - a for a, b in pairwise(u)]
    velocity = [c / step for c, step in zip(changes, dt, strict=True)]
    acceleration = [changes[0] * (1 << BITS) / dt[0] ** 2]
    for t in range(1, len(changes)):
        above = changes[t] * dt[t - 1] - changes[t - 1] * dt[t]
        acceleration.append(above * (1 << BITS) / (dt[t] ** 2 * dt[t - 1]))
    peak, least = max(map(abs, u)) / (1 << BITS), min(dt) / (1 << BITS)
    rows = [np.asarray(actions, np.float64), np.array(velocity), np.array(acceleration)]
    return rows, [peak, 2 * peak / least, 4 * peak / least**2]


def sums_in_float32(actions: Any, start: Any, steps: Any, order: int) -> Any:
    """The position that running sums in float32 give."""
    rows = actions
    for m in reversed(range(order)):
        rows = start[m] + np.cumsum(steps.astype(np.float32) * rows, dtype=np.float32)
    return rows


def worst(found: Any, exact: Any, size: float, horizon: int) -> tuple[float, bool]:
    """The largest error over the size, less the last rounding, and whether it is as promised."""
    off = np.abs(found.astype(np.float64) - exact)
    off -= LAST_ROUNDING * np.spacing(np.abs(found)).astype(np.float64)
    error = max(float(off.max()), 0.0) / size if size else float(off.max() > 0)
    return error, error <= max(1e-12, 1.2e-16 * horizon)


def measure(mode: Any, scheme: str, kind: str, horizon: int, even: bool) -> dict[str, Any]:
    """The largest errors of any part, over its size: of results in float32 and in float64, and of
    positions summed in float32."""
    order = ORDERS[mode]
    actions = ACTIONS[kind](horizon).astype(np.float32)
    start = np.array([0.3, -0.2, 0.1, 0.0][: max(order, 1)], np.float32)
    random = np.random.default_rng(horizon)
    steps = np.array(0.02) if even else random.uniform(0.01, 0.03, horizon)
    if order:
        exact = exact_rows(actions, [*start, 0.0], steps, order, scheme)
        sizes = [float(np.abs(x).max()) for x in exact]
    else:
        exact, sizes = exact_differences(actions, float(start[0]), steps)
    options: dict[str, Any] = {"scheme": scheme} if order else {}
    state = trajcli.State(*(x[None, None] for x in start))
    row: dict[str, Any] = {
        "mode": f"{mode} {scheme}" if order else mode,
        "actions": kind,
        "dt": "0.02" if even else "varied",
        "horizon": horizon,
    }
    passed = []
    for dtype in ("float32", "float64"):
        found = trajcli.integrate(
            actions[None, :, None], state, steps, mode, dtype=dtype, **options
        )
        outputs = [getattr(found, part)[0, 1:, 0] for part in QUANTITIES]
        errors = [worst(*x, horizon) for x in zip(outputs, exact, sizes, strict=False)]
        row[dtype] = max(error for error, _ in errors)
        passed += [kept for _, kept in errors]
    if order and scheme == "euler":
        naive = sums_in_float32(actions, start, steps, order)
        row["sums"], kept = worst(naive, exact[0], sizes[0], horizon)
        passed.append(not kept)
    return {**row, "passed": all(passed)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--horizons", default=",".join(map(str, HORIZONS)))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = [
        measure(mode, scheme, kind, horizon, even)
        for horizon in map(int, given.horizons.split(","))
        for mode, scheme in CASES
        for k, kind in enumerate(ACTIONS)
        for even in ((True, False) if k == 0 else (True,))
    ]
    if given.json:
        print(json.dumps(rows, indent=2))
    else:
        titles = "mode", "actions", "dt", "horizon", "float32", "float64", "sums in float32"
        print("{:20}{:16}{:8}{:>8}{:>10}{:>10}{:>17}".format(*titles))
        for row in rows:
            sums = f"{row['sums']:17.1e}" if "sums" in row else " " * 17
            print(
                f"{row['mode']:20}{row['actions']:16}{row['dt']:8}{row['horizon']:8}"
                f"{row['float32']:10.1e}{row['float64']:10.1e}{sums}"
                f"  {'ok' if row['passed'] else 'NOT AS PROMISED'}"
            )
    failed = sum(not row["passed"] for row in rows)
    if failed:
        sys.exit(f"{failed} of {len(rows)} are not as promised")


if __name__ == "__main__":
    main()
