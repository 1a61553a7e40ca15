"""Compiled Triton kernels compared with torch_ops on random cases, without a device.

    PYTHONPATH=tests:. python -m kernels.ptx.compare 7.5 9.0 --cases 200 --seed 1

Every case runs forward and backward, with random choices of outputs and gradients. In some cases an
action or an upstream gradient is NaN, and the same results have to be finite. Prints what is wrong,
then a line of JSON for each capability. Another Triton, such as the least version:

    pip install --no-deps --target build/triton35 'triton==3.5.*'
    PYTHONPATH=build/triton35:tests:. python -m kernels.ptx.compare 9.0
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
import triton
from kernels import cases as drawing
from kernels import comparison
from kernels.cases import BANDS, CASCADES, DTYPES, STATES, Case
from kernels.ptx import driver

KINDS = ("mode", "mode", "mode", "mode", "fit", "band")
"""Modes' programs, fits with any window, and any band that kernels/program.py allows."""
SIZES = 5
"""Cases of a mode that need no new kernel: of other sizes and values."""


def draw_results(draw: random.Random, count: int) -> list[bool]:
    """Chooses among so many results: often all, or the first alone; at least one."""
    kind = draw.random()
    if kind < 0.4:
        return [True] + [kind < 0.2] * (count - 1)
    choice = [draw.random() < 0.45 for _ in range(count)]
    choice[draw.randrange(count)] = True
    return choice


def draw_cases(draw: random.Random, kind: str) -> Iterator[Case]:
    if kind == "mode":
        cases = draw_mode(draw)
    else:
        make = drawing.random_fit if kind == "fit" else drawing.random_band
        cases = [make.__wrapped__(draw.randrange(2**31))]
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


def draw_mode(draw: random.Random) -> Iterator[Case]:
    """Cases of one mode, options, dofs and types."""
    # torch computes recorded cascades, without a kernel
    works = [*(work for work in CASCADES if not work.recorded), *BANDS]
    work, dofs = draw.choice(works), draw.choice((1, 2, 3, 6, 7, 8, 14, 33))
    options = {}
    if not (work.recorded or ("convention", "curobo") in work.options or work.mode == "bspline"):
        options["alignment"] = draw.choice(("full", "actions", "curobo"))
    form, states = draw.choice(work.forms), draw.choice(STATES)
    dtype, output = draw.choice(DTYPES), draw.choice(DTYPES)
    absent = [draw.random() < 0.2 for _ in range(4)]
    absent[draw.randrange(4)] = False
    for _ in range(SIZES):
        horizon = max(draw.choice((1, 5, 9, 30)) + draw.randint(0, 9), work.least)
        shape = draw.randint(1, 11), horizon, dofs
        seed = draw.randrange(2**31)
        case = drawing.case.__wrapped__(work, shape, form, dtype, seed, states, **options)
        upstream = [None if no else g for no, g in zip(absent, case.upstream, strict=True)]
        ones = np.ones(({"own": shape[0], "shared": 1, "indexed": 3}[states], dofs), dtype)
        operands = case.operands
        parts = [ones if x is None else x for x in (*operands.start, *operands.goal)]
        if work.mode in ("jerk", "central"):  # now and then a part that nobody gave
            parts[2] = None
        operands = operands._replace(start=parts[:4], goal=parts[4:])
        yield replace(case, operands=operands, upstream=upstream, dtype=output)


def assert_same(case: Case, outputs: list[bool], inputs: list[bool]) -> None:
    """The chosen rows and gradients are those of torch_ops, and are finite where those are."""
    exact = replace(case, dtype="float64")
    rows = comparison.rows("torch", exact)
    gradients = comparison.gradients("torch", exact)
    largest = [np.nanmax(np.abs(x), 1, keepdims=True, initial=0.0) for x in [*rows, gradients[0]]]
    operands = case.operands._replace(actions=np.nan_to_num(case.operands.actions))
    upstream = [None if g is None else np.nan_to_num(g) for g in case.upstream]
    finite_case = replace(case, operands=operands, upstream=upstream)
    sizes = [*largest, *comparison.transposed_rows.__wrapped__(finite_case)[2][1:]]
    names = [*comparison.NAMES, *(f"gradient of {name}" for name in comparison.INPUTS)]
    values = [*comparison.rows("triton", case, outputs)]
    values += comparison.gradients("triton", case, inputs)
    # weights of the position on a curve that meets all points are zero or nearly
    weightless = ("position",) if getattr(case.program, "degree", None) else ()
    # where steps may differ, torch takes a weight for one that is used though it comes out as zero,
    # as those of steps that are equal may
    uneven = getattr(case.program, "table", "") is None
    for name, a, b, size in zip(names, values, [*rows, *gradients], sizes, strict=True):
        if a is None:
            continue
        finite = np.isfinite(b)
        wrong = finite & ~np.isfinite(a) if uneven else finite != np.isfinite(a)
        if name in weightless:
            finite &= np.isfinite(a)
        elif wrong.any():
            at = tuple(map(int, np.argwhere(wrong)[0]))
            raise AssertionError(f"{name} at {at}: {a[at]} for {b[at]}")
        a, b = np.where(finite, a, 0), np.where(finite, b, 0)
        comparison.assert_within(a, b, size, 2 * comparison.promised(case), name)


def compare(count: int, seed: int) -> tuple[int, int]:
    """Draws at least so many cases, prints the wrong ones, and counts all and the wrong ones."""
    cases, wrong = 0, 0
    while cases < count:
        draw = random.Random(seed)
        # one choice for a kind, whose cases need no new kernel then
        outputs, inputs = draw_results(draw, 4), draw_results(draw, 9)
        for case in draw_cases(draw, draw.choice(KINDS)):
            cases += 1
            try:
                assert_same(case, outputs, inputs)
            except Exception as error:
                wrong += 1
                chosen = "".join(str(int(x)) for x in [*outputs, *inputs])
                text = f"{case}, results {chosen}: {type(error).__name__}: {error}"
                print(f"--seed {seed}: {text}"[:2000], flush=True)
        seed += 1
    return cases, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("capabilities", nargs="+")
    parser.add_argument("--cases", type=int, default=20, help="for each capability")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    seed, failed = arguments.seed, 0
    for name in arguments.capabilities:
        driver.launches.clear()
        driver.emulate(int(name.replace(".", "")))
        cases, wrong = compare(arguments.cases, seed)
        report = {"triton": triton.__version__, "capability": name, "seed": seed}
        report |= {"cases": cases, "wrong": wrong, "launches": driver.launches.total()}
        print(json.dumps(report), flush=True)
        seed, failed = seed + cases, failed + wrong  # each capability has cases of its own
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
