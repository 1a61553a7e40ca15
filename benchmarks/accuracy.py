"""How many units in the last place float32 results are from exact, beyond what tests have time for.

    python benchmarks/accuracy.py [--json]

Exact values come from integers: actions and steps are dyadic rationals, so that running sums are
whole numbers of a common unit, without rounding, in Python's integers. Prints a row per mode,
scheme and horizon: the largest error in ulp where terms do not cancel, and the largest error over
the largest value along the trajectory (modes: the contract allows 1 ulp, or 1e-12 of that value).
"""

from __future__ import annotations

import argparse
import json
import math
import time
from fractions import Fraction
from itertools import accumulate

import numpy as np

import trajcli

HORIZONS = (10**3, 10**4, 10**5, 10**6)
UNIT = 2**40
"""Actions are whole multiples of 1/UNIT, so sums of them are exact integers."""
STEP = 2**-6


def exact_sums(actions: list[int], start: list[int], order: int) -> list[list[int]]:
    """Rows 1.. of every quantity below the actions, in whole units, highest order first.

    Quantity m is in units of STEP**(order − m) / UNIT, so that each sum is x += x' exactly.
    """
    found = []
    above = actions
    for m in range(order - 1, -1, -1):
        scale = round(1 / STEP) ** (order - m)
        above = list(accumulate(above, initial=start[m] * scale))[1:]
        found.append(above)
    return found


def worst(computed: np.ndarray, exact: list[int], unit: Fraction) -> tuple[float, float]:
    """Largest error in ulp of float32 outside cancellation, and over the largest value."""
    peak = max(map(abs, exact)) * unit
    ulps, relative = 0.0, 0.0
    for value, whole in zip(computed.tolist(), exact, strict=True):
        truth = whole * unit
        error = abs(Fraction(value) - truth)
        relative = max(relative, float(error / peak)) if peak else relative
        if error > peak / 10**12:
            ulps = max(
                ulps, float(error / Fraction(float(np.spacing(np.float32(abs(float(truth)))))))
            )
    return ulps, relative


def measure(order: int, horizon: int, kind: str) -> dict[str, object]:
    """One row: acceleration (order 2) or jerk (order 3) over a horizon."""
    random = np.random.default_rng(horizon + order)
    if kind == "random":
        actions = random.integers(-(2**23), 2**23, horizon)
    else:  # there and back at constant action: sums that cancel
        actions = np.where(np.arange(horizon) < horizon // 2, 2**22, -(2**22))
    start = random.integers(-(2**23), 2**23, 4)
    scaled = (actions / UNIT).astype(np.float32)
    state = trajcli.State(*((start[:3] / UNIT).astype(np.float32)[:, None]))
    mode = {2: "acceleration", 3: "jerk"}[order]
    began = time.perf_counter()
    found = trajcli.integrate(scaled[None, :, None], state, STEP, mode)
    seconds = time.perf_counter() - began
    row: dict[str, object] = {"mode": mode, "actions": kind, "horizon": horizon, "seconds": seconds}
    sums = exact_sums(actions.tolist(), start.tolist(), order)
    for m, exact in zip(range(order - 1, -1, -1), sums, strict=True):
        name = ("position", "velocity", "acceleration")[m]
        unit = Fraction(STEP) ** (order - m) / UNIT
        ulps, relative = worst(getattr(found, name)[0, 1:, 0], exact, unit)
        row[f"{name}_ulp"], row[f"{name}_relative"] = ulps, relative
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = [
        measure(order, horizon, kind)
        for horizon in HORIZONS
        for order in (2, 3)
        for kind in ("random", "there and back")
    ]
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'mode':<14}{'actions':<16}{'horizon':>9}  {'worst ulp':>10}  {'worst / peak':>13}")
    for row in rows:
        ulp = max(float(str(v)) for k, v in row.items() if k.endswith("_ulp"))
        relative = max(float(str(v)) for k, v in row.items() if k.endswith("_relative"))
        print(
            f"{row['mode']:<14}{row['actions']:<16}{row['horizon']:>9}  {ulp:>10.4f}"
            f"  {relative:>13.3g}"
        )
        assert math.isfinite(ulp)


if __name__ == "__main__":
    main()
