"""What an array looks like in memory changes no bit of a result, forward or backward.

Inputs and gradients from above are views, drawn at random; each result is compared, bit for bit,
with that of the same values contiguous. The seed is fixed. For others, and more of them:

    TRAJCLI_SEED=7 TRAJCLI_VIEWS=500 pytest tests/kernels/test_memory.py

Under the address sanitizer: see sanitize.py.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from kernels import memory
from kernels.cases import BANDS, CASCADES, DOFS, DTYPES, STATES, Case, Job, case
from kernels.comparison import gradients, map_arrays, rows

from trajcli import State
from trajcli.kernels.program import Operands
from trajcli.modes import QUANTITIES

SEED = int(os.environ.get("TRAJCLI_SEED") or 31)
VIEWS = int(os.environ.get("TRAJCLI_VIEWS") or 3)
"""Cases of each mode on each backend."""

every_job = pytest.mark.parametrize("work", [*CASCADES, *BANDS], ids=str)


def drawn_shape(work: Job, draw: random.Random) -> tuple[int, int, int]:
    """Past vectors, tiles and blocks of dofs, and what is just as long as they are."""
    dofs = draw.choice([*DOFS, draw.randint(1, 40), 1030])
    horizon = draw.choice([draw.randint(1, 9), draw.randint(10, 70), 4200 // dofs % 700 + 5])
    batch = draw.choice([1, 2, 8, draw.randint(3, 20)]) if horizon * dofs < 2000 else 2
    return batch, max(horizon, work.least), dofs


def assert_same(result: Sequence[Any], want: Sequence[Any], note: str) -> None:
    for k, (a, b) in enumerate(zip(result, want, strict=True)):
        np.testing.assert_array_equal(a, b, err_msg=f"{note}, result {k}", strict=True)


# -- the kernels, on arrays ------------------------------------------------------------------


def loosened(sample: Case, draw: random.Random) -> Case:
    """The case with views of new values in the place of all of its arrays."""
    kinds = (sample.dtype,) * 4 + DTYPES + (draw.choice(memory.WIDER),)
    operands = sample.operands

    def part(x: Any) -> Any:
        return None if x is None else memory.array(x.shape, draw.choice(kinds[:6]), draw)

    def index(x: Any) -> Any:
        return None if x is None else memory.array(x.shape, "i8", draw, memory.one_of_three)

    return replace(
        sample,
        operands=Operands(
            memory.array(operands.actions.shape, draw.choice(kinds), draw),
            memory.array(operands.dt.shape, "f8", draw, memory.steps),
            *([part(x) for x in parts] for parts in (operands.start, operands.goal)),
            *map(index, (operands.start_index, operands.goal_index)),
        ),
        upstream=[
            None if draw.random() < 0.1 else memory.array(x.shape, draw.choice(kinds), draw)
            for x in sample.upstream
        ],
    )


def straightened(sample: Case) -> Case:
    """The same values, contiguous."""
    operands, upstream = map_arrays(memory.plain, (sample.operands, sample.upstream))
    return replace(sample, operands=Operands(*operands), upstream=upstream)


@every_job
def test_arrays_may_lie_anyhow(work: Job, compiled: str) -> None:
    if compiled == "triton":
        pytest.skip("it takes tensors alone")
    draw = random.Random(f"{SEED} {work}")
    for k in range(VIEWS):
        form, states, dtype = draw.choice(work.forms), draw.choice(STATES), draw.choice(DTYPES)
        sample = loosened(case(work, drawn_shape(work, draw), form, dtype, k, states), draw)
        note = f"{compiled}, TRAJCLI_SEED={SEED}, view {k}: {sample}"
        same = straightened(sample)
        assert_same(rows(compiled, sample), rows(compiled, same), note)
        assert_same(gradients(compiled, sample), gradients(compiled, same), note)


# -- integrate, on tensors -------------------------------------------------------------------


def derivatives(work: Job, backend: str, inputs: dict[str, Any], above: Any, second: Any) -> Any:
    """Outputs, gradients of all inputs from those ``above``, and of these from ``second``."""
    given = {name: x.detach().requires_grad_(x.is_floating_point()) for name, x in inputs.items()}
    leaves = [x for x in given.values() if x.requires_grad]
    upstream = [g.detach().requires_grad_() for g in above]
    states = {
        role: State(*parts)
        if (parts := [x for name, x in given.items() if name.startswith(f"{role} ")])
        else None
        for role in ("start", "goal")
    }
    more = {name: given[name] for name in ("times", "start_index", "goal_index") if name in given}
    more |= {"goal": states["goal"]} if states["goal"] else {}
    result = work.trajectory(
        given["actions"],
        states["start"],
        given.get("dt", None if "times" in given else 0.05),
        dtype=str(upstream[0].dtype)[6:],
        backend=backend.partition(" ")[0],
        **more,
    )
    # of whole numbers, positions depend on nothing
    outputs, used = zip(
        *((x, g) for x, g in zip(result, upstream, strict=True) if x.requires_grad), strict=True
    )
    first = torch.autograd.grad(outputs, leaves, used, create_graph=True, materialize_grads=True)
    above_them = [g for g, x in zip(second, given.values(), strict=True) if x.requires_grad]
    pairs = [(x, g) for x, g in zip(first, above_them, strict=True) if x.requires_grad]
    back = torch.autograd.grad(
        [x for x, _ in pairs], upstream, [g for _, g in pairs], materialize_grads=True
    )
    found = [x.detach().resolve_neg() for x in (*result, result.time, *first, *back)]
    return [x.float() if x.dtype == torch.bfloat16 else x for x in found]  # NumPy has no such type


def assert_same_from_views(
    work: Job, backend: str, draw: random.Random, shape: tuple[int, int, int]
) -> None:
    """Tensors of any kind give what their contiguous copies give."""
    batch, horizon, dofs = shape
    options = dict(work.options)
    goals = 0 if options.get("ends") != "goal" else 1 if work.mode == "central" else 4
    dtype, count = draw.choice(DTYPES), max(horizon - work.recorded, 1)
    form = draw.choice(("number", *work.forms, *["times"] * ("[B,H]" in work.forms)))
    indexed = draw.random() < 0.3
    states = (3 if indexed else batch, dofs)
    shapes = {f"start {m}": states for m in range(0 if work.recorded else 4)}
    shapes |= {f"goal {m}": states for m in range(goals)}
    inputs = {name: memory.tensor(size, dtype, draw) for name, size in shapes.items()}
    for role in sorted({name.partition(" ")[0] for name in shapes}) if indexed else ():
        kind = draw.choice(("int64", "int32"))
        inputs[f"{role}_index"] = memory.tensor((batch,), kind, draw, memory.one_of_three)
    differentiable = shapes or form != "number"  # in something but the actions
    kind = draw.choice((dtype,) * 4 + ("float16", "bfloat16", "int16" if differentiable else dtype))
    inputs["actions"] = memory.tensor(shape, kind, draw)
    if form == "times":
        of_times = (draw.choice((1, batch)), horizon + (not work.recorded))
        while "times" not in inputs or not (inputs["times"].diff() > 0).all():  # expanded
            inputs["times"] = memory.tensor(of_times, "float64", draw, memory.stamps)
    elif form != "number":
        of_dt = (batch if "B" in form else 1, count if "H" in form else 1)
        inputs["dt"] = memory.tensor(of_dt, "float64", draw, memory.steps)
    rows = work.program(horizon, "H" in form or form == "times").rows
    above = [memory.tensor((batch, rows, dofs), dtype, draw) for _ in range(4)]
    second = [
        memory.tensor(x.shape, str(x.dtype)[6:], draw) if x.is_floating_point() else x
        for x in inputs.values()
    ]
    straight = {name: memory.plain(x) for name, x in inputs.items()}
    want = derivatives(work, backend, straight, *(map(memory.plain, x) for x in (above, second)))
    note = f"{backend}, TRAJCLI_SEED={SEED}: {work} {shape} {kind} to {dtype}, dt {form}"
    assert_same(derivatives(work, backend, inputs, above, second), want, note)


@every_job
def test_tensors_may_lie_anyhow(work: Job, backend: str) -> None:
    draw = random.Random(f"{SEED} {work} of tensors")
    for _ in range(VIEWS):
        assert_same_from_views(work, backend, draw, drawn_shape(work, draw))


@every_job
def test_the_sum_of_an_output_has_a_gradient(work: Job, backend: str) -> None:
    """The first line of a newcomer: a sum hands down one number for all rows."""
    values = torch.randn(4, max(30, work.least), 7)
    options: dict[str, Any] = {"backend": backend.partition(" ")[0]}
    if ("ends", "goal") in work.options:
        options["goal"] = torch.ones(4, 7)
    for name in QUANTITIES:
        leaves = [values.clone().requires_grad_() for _ in range(2)]
        summed, same = (getattr(work.trajectory(u, "zero", 0.01, **options), name) for u in leaves)
        summed.sum().backward()
        same.backward(torch.ones_like(same))
        assert torch.equal(*(u.grad for u in leaves)), name


@pytest.mark.parametrize(("narrow", "wide"), [("float16", "float64"), ("bfloat16", "float32")])
@every_job
def test_narrow_actions_have_the_gradient_of_wide_ones(
    work: Job, narrow: str, wide: str, backend: str
) -> None:
    """Rounded once: a half is computed in float64, a bfloat16 is made wider by torch itself."""
    for dofs in (1, 7):
        u = torch.randn(3, max(9, work.least), dofs).to(getattr(torch, narrow))
        options: dict[str, Any] = {"backend": backend.partition(" ")[0]}
        if ("ends", "goal") in work.options:
            options["goal"] = torch.ones(3, dofs)
        grads = []
        for kind in (narrow, wide):
            leaf = u.clone().to(getattr(torch, kind)).requires_grad_()
            result = work.trajectory(leaf, "zero", 0.5, dtype="float64", **options)
            sum(x.sum() for x in result).backward()
            grads.append(leaf.grad.to(u.dtype))
        assert torch.equal(*grads)
