"""Small calls in a loop, as an optimiser makes them: microseconds a call, beside the same by hand.

    python benchmarks/calls.py [--calls 200] [--rounds 9]

Mode acceleration on [1024, 30, 7], [64, 32, 7] and [1, 32, 7], float32, all four outputs; processor
time of one thread, in turns, medians over the rounds. Then the forms of dt, times and states on
[1, 30, 7], the gradient by dt [H], and calls of which each has another shape: beside them
calls that no later one can use, because their start is a list.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
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
SHARES = {
    "dt a number": 1.1,
    "dt a tensor [H]": 1.5,
    "start_index": 1.5,
    "times": 1.5,
    "gradient by dt [H]": 1.5,
    "another shape each time": 1.0,
}
"""Of the time by hand: the targets of the forms."""


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


def steps_by_hand(actions: Any, start: Any, dt: Any) -> tuple[Any, ...]:
    """The same for dt [H]."""
    pad, step = torch.nn.functional.pad, dt[:, None]
    a = pad(actions, (0, 0, 1, 0))
    v = pad(torch.cumsum(step * actions, 1), (0, 0, 1, 0))
    p = start[:, None] + pad(torch.cumsum(step * v[:, 1:], 1), (0, 0, 1, 0))
    j = pad(torch.diff(a, dim=1) / step, (0, 0, 1, 0))
    return p, v, a, j


def with_trajcli(actions: Any, start: Any) -> tuple[Any, ...]:
    found = trajcli.integrate(actions, start, DT)
    return found.position, found.velocity, found.acceleration, found.jerk


def and_backward(
    forward: Callable[..., tuple[Any, ...]], actions: Any, start: Any, upstream: list[Any]
) -> Any:
    """The gradient of the actions from those of all four."""
    return torch.autograd.grad(forward(actions, start), actions, upstream)


def forms() -> dict[str, tuple[tuple[int, ...], Callable[[], object], Callable[[], object]]]:
    """Shapes, calls of trajcli and the same by hand, by the form of dt, times or states."""
    small, large = torch.randn(1, 30, 7), torch.randn(100, 30, 7, requires_grad=True)
    start, starts, states = torch.randn(1, 7), torch.randn(100, 7), torch.randn(5, 7)
    index, dt = torch.tensor([2]), torch.full((30,), DT)
    times = torch.arange(31, dtype=torch.float64) * DT
    leaf = dt.clone().requires_grad_()
    upstream = [torch.randn(100, 31, 7) for _ in range(4)]
    lengths, long = itertools.cycle(range(31, 1000)), torch.randn(1, 1000, 7)

    def gradient(rows: Any) -> Any:
        return torch.autograd.grad([*rows], [leaf, large], upstream)

    def of_length(state: Any) -> Any:
        return trajcli.integrate(long[:, : next(lengths)], state, DT)

    one, many, listed = (1, 30, 7), (100, 30, 7), start.tolist()
    integrate = trajcli.integrate
    return {
        "dt a number": (
            one,
            lambda: integrate(small, start, DT),
            lambda: torch_by_hand(small, start),
        ),
        "dt a tensor [H]": (
            one,
            lambda: integrate(small, start, dt),
            lambda: steps_by_hand(small, start, dt),
        ),
        "start_index": (
            one,
            lambda: integrate(small, states, DT, start_index=index),
            lambda: torch_by_hand(small, states[index]),
        ),
        "times": (
            one,
            lambda: integrate(small, start, times=times),
            lambda: steps_by_hand(small, start, times.diff().float()),
        ),
        "gradient by dt [H]": (
            many,
            lambda: gradient(integrate(large, starts, leaf)),
            lambda: gradient(steps_by_hand(large, starts, leaf)),
        ),
        "another shape each time": ((1, 0, 7), lambda: of_length(start), lambda: of_length(listed)),
    }


def measure(calls: int, rounds: int) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    os.environ["TRAJCLI_THREADS"] = "1"
    found = []
    for name, (shape, *of_name) in forms().items():
        found.append(row(shape, name, of_name, calls, rounds, SHARES[name]))
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
            found.append(row(shape, name, pair, calls, rounds, SHARE))
            found[-1]["target"] = TARGETS.get((shape[0], name), found[-1]["target"])
    return found


def row(
    shape: tuple[int, ...],
    case: str,
    pair: Sequence[Callable[[], object]],
    calls: int,
    rounds: int,
    share: float,
) -> dict[str, Any]:
    """Medians of both in turns, without the first round; the target is a share of the second."""
    turns = [[per_call(work, calls) for work in pair] for _ in range(rounds + 1)]
    ours, by_hand = (statistics.median(x) for x in zip(*turns[1:], strict=True))
    times = {"microseconds": ours, "by_hand": by_hand, "target": share * by_hand}
    return {"shape": shape, "case": case, **times}


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
