"""Every CPU backend and instruction set: outputs and gradients, as anyone who calls sees them.

Only public functions are called, so this holds whatever the kernels look like inside. Outputs are
those of exact arithmetic. As they are linear in actions and states, the products of these with
their gradients add up, for each trajectory and dof, to the products of the exact outputs with the
gradients from above. The gradient of dt meets the slope over a step of 2⁻¹⁰⁰.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import exact
import numpy as np
import pytest
import torch
from exact import PARTS, assert_promised
from gmpy2 import mpq
from kernels.cases import BANDS, CASCADES, DTYPES, Job

from trajcli import State

WORKS = [x for x in (*CASCADES, *BANDS) if x.mode not in ("savgol", "teleport")]
DOFS = (1, 3, 5, 7, 8, 9, 17)
TINY = mpq(1, 2**100)
RELATIVE = {"float32": 2.0**-22, "float64": 1e-12}
fractions = np.frompyfunc(lambda x: mpq(float(x)), 1, 1)


@cache
def problem(work: Job, dofs: int, form: str, dtype: str) -> Any:
    """Actions, dt, states by role, exact outputs, and their slopes along a direction of dt."""
    rng = np.random.default_rng(dofs)
    steps = 5 - work.recorded
    shape = {"[1,1]": (), "[1,H]": (steps,), "[B,1]": (2, 1), "[B,H]": (2, steps)}[form]
    actions = rng.standard_normal((2, 5, dofs)).astype(dtype)
    dt, along = np.asarray(rng.uniform(0.02, 0.2, shape)), np.asarray(rng.standard_normal(shape))
    goals = 0 if ("ends", "goal") not in work.options else 1 if work.mode == "central" else 4
    states = {} if work.recorded else {"start": rng.standard_normal((4, 2, dofs)).astype(dtype)}
    states |= {"goal": rng.standard_normal((goals, 2, dofs)).astype(dtype)} if goals else {}
    options: dict[str, Any] = {"start": "first", "mode": work.mode, **dict(work.options)}
    options |= {role: State(*parts) for role, parts in states.items()}
    want, there = (
        exact.integrate(actions, dt=x, **options)
        for x in (dt, np.asarray(fractions(dt) + TINY * fractions(along)))
    )
    slopes = [(there[part] - want[part]) / TINY for part in PARTS]
    return actions, dt, along, states, want, slopes


@pytest.mark.parametrize("work", WORKS, ids=str)
def test_outputs_and_gradients_are_exact(work: Job, backend: str) -> None:
    """However many dofs there are, and whether or not they fill the machine's vectors."""
    for k, dofs in enumerate(DOFS):
        form, dtype = work.forms[k % len(work.forms)], DTYPES[k // 2 % 2]
        note = f"{dofs} dofs, dt {form}, {dtype}"
        actions, dt, along, states, want, slopes = problem(work, dofs, form, dtype)

        def call(u: Any, dt: Any, states: Any) -> Any:
            given: Any = {role: State(*parts) for role, parts in states.items()}
            start = given.pop("start", None)
            return work.trajectory(u, start, dt, backend=backend.partition(" ")[0], **given)

        plain = call(actions, dt, states)
        assert_promised(plain, want, dtype)
        arrays = (dt, actions, *(x for parts in states.values() for x in parts))
        leaves = [torch.tensor(x, requires_grad=True) for x in arrays]
        parts = iter(leaves[2:])
        tensors = {role: [next(parts) for _ in x] for role, x in states.items()}
        result = call(leaves[1], leaves[0], tensors)
        detached = {name: getattr(result, name).detach() for name in (*PARTS, "time")}
        assert_promised(replace(result, **detached), want, dtype)
        above = np.random.default_rng(k).standard_normal((4, *plain.position.shape)).astype(dtype)
        found = torch.autograd.grad(
            tuple(result), leaves, [*map(torch.tensor, above)],
            allow_unused=True, materialize_grads=True,
        )  # fmt: skip
        by_dt, *grads = (x.double().numpy() for x in found)

        knot = float(np.min(dt)) * dict(work.options).get("steps", 1)
        sizes = np.array(knot ** -np.arange(4.0))[:, None, None] * np.abs(above).max(2)  # [4, 2, D]
        powers = [1.0, *(knot**m for x in states.values() for m in range(len(x)))]
        inputs = [np.asarray(x, "f8").reshape(2, -1, dofs) for x in arrays[1:]]
        points = sum(p * np.abs(x).sum(1) for p, x in zip(powers, inputs, strict=True))
        # of a window, which are subtracted and divided
        bound = points * sizes.sum(0) * (work in BANDS)
        outputs = [want[part] * fractions(g) for part, g in zip(PARTS, above, strict=True)]
        products = [x * g.reshape(x.shape) for x, g in zip(inputs, grads, strict=True)]
        terms = np.concatenate(products, 1)
        size = bound + np.abs(terms).sum(1) + sum(np.abs(x).sum(1).astype("f8") for x in outputs)
        off = (fractions(terms).sum(1) - sum(x.sum(1) for x in outputs)).astype("f8")
        assert (np.abs(off) <= RELATIVE[dtype] * size).all(), f"{note}: {np.abs(off / size).max()}"

        changes = [x * fractions(g) for x, g in zip(slopes, above, strict=True)]
        size = bound.sum() / knot + sum(float(np.abs(x).sum()) for x in changes)
        off = float(np.sum(fractions(by_dt * along)) - sum(x.sum() for x in changes))
        assert abs(off) <= RELATIVE[dtype] * size, f"{note}: gradient of dt, {abs(off) / size}"
