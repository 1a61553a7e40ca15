"""Compiled Triton kernels beside torch_ops, on random cases, without a device.

    PYTHONPATH=tests:. python -m kernels.ptx.compare 7.5 9.0 --cases 200 --seed 1

Every case runs forward and backward, with outputs and gradients wanted at random, as calls ask for
them. In some cases an action or an upstream gradient is NaN, and what is not finite has to be the
same. ``--driver`` goes through Triton's own launcher. Prints what is wrong, then a line of JSON for
each capability. Another Triton, such as the least version:

    pip install --no-deps --target build/triton35 'triton==3.5.*'
    PYTHONPATH=build/triton35:tests:. python -m kernels.ptx.compare 9.0
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import triton
from kernels import cases as drawing
from kernels import comparison
from kernels.cases import BANDS, CASCADES, DTYPES, STATES, Case
from kernels.ptx import driver

KINDS = ("mode", "mode", "mode", "mode", "fit", "band")
"""Modes' programs, fits with any window, and any band that kernels/program.py allows."""
TOGETHER = 5
"""Cases of a mode that need no new kernel: of other sizes and values."""


def draw_wanted(draw: random.Random, count: int) -> list[bool]:
    """Which of so many results are wanted: often all, or the first alone; at least one."""
    kind = draw.random()
    if kind < 0.4:
        return [True] + [kind < 0.2] * (count - 1)
    wanted = [draw.random() < 0.45 for _ in range(count)]
    wanted[draw.randrange(count)] = True
    return wanted


def draw_cases(draw: random.Random, kind: str) -> Iterator[Case]:
    if kind == "fit":
        cases = [drawing.random_fit.__wrapped__(draw.randrange(2**31))]
    elif kind == "band":
        cases = [drawing.random_band.__wrapped__(draw.randrange(2**31))]
    else:
        cases = draw_mode(draw)
    for case in cases:
        if draw.random() < 0.3 and case.operands.actions.size:
            actions = case.operands.actions.copy()
            actions.flat[draw.randrange(actions.size)] = np.nan
            case = replace(case, operands=case.operands._replace(actions=actions))
        upstream = [None if g is None else g.copy() for g in case.upstream]
        # weights of the position on a curve that meets all points are zero or nearly
        first = int(bool(getattr(case.program, "degree", None)))
        present = [g for g in upstream[first:] if g is not None and g.size]
        if draw.random() < 0.2 and present:
            grad = draw.choice(present)
            grad.flat[draw.randrange(grad.size)] = np.nan
        yield replace(case, upstream=upstream)


def draw_mode(draw: random.Random) -> list[Case]:
    """Cases of one mode, options, dofs and types."""
    # torch computes recorded cascades, without a kernel
    works = [*(work for work in CASCADES if not work.recorded), *BANDS]
    work, dofs = draw.choice(works), draw.choice((1, 2, 3, 6, 7, 8, 14, 33))
    more = {}
    curobo = ("convention", "curobo") in work.options
    if not (work.recorded or curobo or work.mode == "bspline"):
        more["alignment"] = draw.choice(("full", "actions", "curobo"))
    form, states = draw.choice(work.forms), draw.choice(STATES)
    dtype, output = draw.choice(DTYPES), draw.choice(DTYPES)
    absent = [draw.random() < 0.2 for _ in range(4)]
    absent[draw.randrange(4)] = False
    cases = []
    for _ in range(TOGETHER):
        shape = (
            draw.randint(1, 11),
            max(draw.choice((1, 5, 9, 30)) + draw.randint(0, 9), work.least),
            dofs,
        )
        case = drawing.case.__wrapped__(
            work, shape, form, dtype, draw.randrange(2**31), states, **more
        )
        upstream = [None if no else g for no, g in zip(absent, case.upstream, strict=True)]
        rows = {"own": shape[0], "shared": 1, "indexed": 3}[states]
        parts = [
            np.ones((rows, dofs), dtype) if x is None else x
            for x in (*case.operands.start, *case.operands.goal)
        ]
        if work.mode in ("jerk", "central"):  # now and then a part that nobody gave
            parts[2] = None
        operands = case.operands._replace(start=parts[:4], goal=parts[4:])
        cases.append(replace(case, operands=operands, upstream=upstream, dtype=output))
    return cases


def assert_same(case: Case, outputs: list[bool], inputs: list[bool]) -> None:
    """The wanted rows and gradients of inputs are those of torch_ops, and are finite where those
    are."""
    pairs: list[tuple[str, Any, Any]] = []
    want, found = (
        comparison.rows("torch", replace(case, dtype="float64")),
        comparison.rows("triton", case, outputs),
    )
    for name, a, b in zip(comparison.NAMES, found, want, strict=True):
        if a is None:
            continue
        largest = np.nanmax(np.abs(b), axis=1, keepdims=True, initial=0.0)
        pairs.append((name, a, b, largest))  # type: ignore[arg-type]
    want = comparison.gradients("torch", replace(case, dtype="float64"))
    found = comparison.gradients("triton", case, inputs)
    largest = np.nanmax(np.abs(want[0]), axis=1, keepdims=True, initial=0.0)
    plain = np.nan_to_num(case.operands.actions)
    upstream = [None if g is None else np.nan_to_num(g) for g in case.upstream]
    bounded = replace(case, operands=case.operands._replace(actions=plain), upstream=upstream)
    sizes = [largest, *comparison.transposed_rows.__wrapped__(bounded)[2][1:]]
    for name, a, b, size in zip(comparison.INPUTS, found, want, sizes, strict=True):
        if a is not None:
            pairs.append((f"gradient of {name}", a, b, size))  # type: ignore[arg-type]
    # weights of the position on a curve that meets all points are zero or nearly
    without_weights = ("position",) if getattr(case.program, "degree", None) else ()
    # where steps may differ, torch takes a weight for one that is used though it comes out as zero,
    # as those of steps that are equal may
    by_chance = getattr(case.program, "table", "") is None
    for name, a, b, size in pairs:  # type: ignore[misc]
        own, finite = np.isfinite(a), np.isfinite(b)
        wrong = finite & ~own if by_chance else finite != own
        if name in without_weights:
            finite &= own
        elif wrong.any():
            at = tuple(map(int, np.argwhere(wrong)[0]))
            raise AssertionError(f"{name} at {at}: {a[at]} for {b[at]}")
        a, b = np.where(finite, a, 0), np.where(finite, b, 0)
        comparison.assert_within(a, b, size, 2 * comparison.promised(case), name)


def compare(count: int, seed: int, kinds: list[str]) -> tuple[int, int]:
    """Draws at least so many cases, and prints those that are wrong. Returns how many there were of
    either."""
    cases, wrong = 0, 0
    while cases < count:
        draw = random.Random(seed)
        # one choice for a kind, whose cases so need no new kernel
        outputs, inputs = draw_wanted(draw, 4), draw_wanted(draw, 9)
        for case in draw_cases(draw, draw.choice(kinds)):
            cases += 1
            try:
                assert_same(case, outputs, inputs)
            except Exception as error:
                wrong += 1
                text = f"{type(error).__name__}: {error}"
                wanted = "".join(map(str, map(int, [*outputs, *inputs])))
                print(f"--seed {seed}: {case}, wanted {wanted}: {text}"[:2000], flush=True)
        seed += 1
    return cases, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("capabilities", nargs="+")
    parser.add_argument("--cases", type=int, default=20, help="for each capability")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--driver", action="store_true", help="of one capability")
    parser.add_argument("--kinds", default=",".join(KINDS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    seed, failed = arguments.seed, 0
    for name in arguments.capabilities:
        began, launches = time.perf_counter(), sum(driver.launches.values())
        emulate = driver.emulate_driver if arguments.driver else driver.emulate
        emulate(int(name.replace(".", "")))
        cases, wrong = compare(arguments.cases, seed, arguments.kinds.split(","))
        about = {
            "triton": triton.__version__,
            "capability": name,
            "seed": seed,
            "cases": cases,
            "wrong": wrong,
            "launches": sum(driver.launches.values()) - launches,
            "seconds": round(time.perf_counter() - began, 1),
        }
        print(json.dumps(about), flush=True)
        seed, failed = seed + cases, failed + wrong  # each capability has cases of its own
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
