"""Small calls in a loop, as an optimiser makes them: microseconds a call, beside the same by hand.

    python benchmarks/calls.py [--calls 200] [--rounds 9]

Mode acceleration on [1024, 30, 7], [64, 32, 7] and [1, 32, 7], float32, all four outputs; processor
time of one thread, in turns, medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

import trajcli

SHAPES = ((1024, 30, 7), (64, 32, 7), (1, 32, 7))
SHARE = 0.45
"""Of the time by hand: the target of the largest shape."""
TARGETS = {
    (64, "NumPy"): 60,
    (64, "torch, forward"): 70,
    (64, "torch, forward and backward"): 220,
    (1, "NumPy"): 25,
    (1, "torch, forward"): 35,
    (1, "torch, forward and backward"): 150,
}
DT = 0.02


def numpy_by_hand(actions: Any, start: Any) -> tuple[Any, ...]:
    a = np.concatenate([np.zeros_like(actions[:, :1]), actions], 1)
    v = DT * np.cumsum(a, 1)
    p = start[:, None] + DT * np.cumsum(v, 1)
    j = np.concatenate([np.zeros_like(actions[:, :1]), np.diff(a, axis=1) / DT], 1)
    return p, v, a, j


def torch_by_hand(actions: Any, start: Any) -> tuple[Any, ...]:
    a = torch.nn.functional.pad(actions, (0, 0, 1, 0))
    v = DT * torch.cumsum(a, 1)
    p = start[:, None] + DT * torch.cumsum(v, 1)
    j = torch.nn.functional.pad(torch.diff(a, dim=1) / DT, (0, 0, 1, 0))
    return p, v, a, j


def with_trajcli(actions: Any, start: Any) -> tuple[Any, ...]:
    found = trajcli.integrate(actions, start, DT)
    return found.position, found.velocity, found.acceleration, found.jerk


def and_backward(
    forward: Callable[..., tuple[Any, ...]], actions: Any, start: Any, upstream: list[Any]
) -> Any:
    """The gradient of the actions from those of all four."""
    return torch.autograd.grad(forward(actions, start), actions, upstream)


def measure(calls: int, rounds: int) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    os.environ["TRAJCLI_THREADS"] = "1"
    found = []
    for shape in SHAPES:
        random = np.random.default_rng(0)
        arrays = [random.standard_normal(s, dtype=np.float32) for s in (shape, (shape[0], 7))]
        tensors = [torch.from_numpy(x) for x in arrays]
        upstream = [torch.randn(shape[0], shape[1] + 1, shape[2]) for _ in range(4)]
        leaves: list[Any] = [tensors[0].clone().requires_grad_(), tensors[1], upstream]
        cases: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "NumPy": (partial(with_trajcli, *arrays), partial(numpy_by_hand, *arrays)),
            "torch, forward": (partial(with_trajcli, *tensors), partial(torch_by_hand, *tensors)),
            "torch, forward and backward": (
                partial(and_backward, with_trajcli, *leaves),
                partial(and_backward, torch_by_hand, *leaves),
            ),
        }
        for name, pair in cases.items():
            rounds_of = [[per_call(work, calls) for work in pair] for _ in range(rounds + 1)]
            ours, by_hand = (statistics.median(x) for x in zip(*rounds_of[1:], strict=True))
            found.append(
                {
                    "shape": shape,
                    "case": name,
                    "microseconds": ours,
                    "by_hand": by_hand,
                    "target": TARGETS.get((shape[0], name), SHARE * by_hand),
                }
            )
    return found


def per_call(work: Callable[[], object], calls: int) -> float:
    """Microseconds of processor time."""
    began = time.process_time()
    for _ in range(calls):
        work()
    return 1e6 * (time.process_time() - began) / calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = measure(given.calls, given.rounds)
    if given.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'shape':14}{'case':30}{'trajcli µs':>11}{'target':>8}{'by hand':>9}")
    for row in rows:
        print(
            f"{row['shape']!s:14}{row['case']:30}{row['microseconds']:11.0f}{row['target']:8.0f}"
            f"{row['by_hand']:9.0f}"
        )


if __name__ == "__main__":
    main()
