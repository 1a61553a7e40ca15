"""What a gradient costs: the adjoint of every mode against its forward kernel.

    python benchmarks/backward.py [--elements 1000000] [--rounds 7] [--json]

Both run in the same backend on the same arrays, in turns; the figure is the median over the
rounds of adjoint time over forward time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import torch

import trajcli

MODES: list[tuple[str, dict[str, str]]] = [
    *(
        (mode, {"scheme": scheme})
        for mode in ("clique", "velocity", "acceleration", "jerk")
        for scheme in (("euler",) if mode == "clique" else ("euler", "zoh", "foh"))
    ),
    ("central", {}),
    ("bspline", {}),
]


def measure(mode: str, options: dict[str, str], elements: int, rounds: int) -> dict[str, object]:
    """One row: seconds forward and backward, medians, and the median of their ratios."""
    horizon, dofs = 100, 7
    batch = max(1, elements // (horizon * dofs))
    actions = torch.randn(batch, horizon, dofs, requires_grad=True)
    start = torch.randn(batch, dofs, requires_grad=True)
    forward, backward = [], []
    upstream: list[Any] = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        found = trajcli.integrate(actions, start, 0.02, mode, **options)  # type: ignore[arg-type]
        rows: list[Any] = [found.position, found.velocity, found.acceleration, found.jerk]
        middle = time.perf_counter()
        upstream = upstream or [torch.randn_like(row) for row in rows]
        ready = time.perf_counter()
        torch.autograd.grad(rows, (actions, start), upstream)
        forward.append(middle - began)
        backward.append(time.perf_counter() - ready)
    pairs = list(zip(forward[1:], backward[1:], strict=True))  # the first round warms up
    return {
        "mode": mode,
        **options,
        "forward_seconds": statistics.median(forward[1:]),
        "backward_seconds": statistics.median(backward[1:]),
        "ratio": statistics.median(b / f for f, b in pairs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--elements", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = [measure(*case, arguments.elements, arguments.rounds) for case in MODES]
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'mode':<14}{'scheme':<8}{'forward s':>10}{'backward s':>12}{'ratio':>8}")
    for row in rows:
        print(
            f"{row['mode']:<14}{row.get('scheme', ''):<8}{row['forward_seconds']:>10.3f}"
            f"{row['backward_seconds']:>12.3f}{row['ratio']:>8.2f}"
        )


if __name__ == "__main__":
    main()
