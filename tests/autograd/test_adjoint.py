"""Gradients on NumPy arrays by the compiled kernels are those that torch finds by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from kernels.cases import BANDS, CASCADES, Job, job

from trajcli.adjoint import pull_back
from trajcli.inputs import Inputs, shape_faults
from trajcli.kernels import native, torch_ops
from trajcli.kernels.choose import Choice
from trajcli.modes import QUANTITIES, make_mode

pytestmark = pytest.mark.skipif(bool(native.absence()), reason=native.absence())

B, D = 3, 2
WORKS = [
    *CASCADES,
    *BANDS,
    *(
        job(mode, alignment=alignment, **more)
        for alignment in ("actions", "curobo")
        for mode, more in (("acceleration", {}), ("central", {}), ("central", {"ends": "goal"}))
    ),
    job("jerk", convention="curobo"),
    job("central", ends="goal", convention="curobo"),
]
STEPS = ("scalar", "per step", "per trajectory", "both", "stamps", "with the first", "one for all")
EVEN = ("scalar", "per trajectory")


def inputs(work: Job, steps: str, H: int) -> Inputs:
    """Random inputs with a start index, and steps of a kind."""
    random = np.random.default_rng(0)
    recorded, options = work.recorded, dict(work.options)
    n = H - recorded
    shapes = {"scalar": (), "per step": (n,), "per trajectory": (B, 1), "both": (B, n)}
    shapes |= {"with the first": (B, H), "one for all": (1, n)}
    stamps = np.cumsum(random.uniform(0.5, 1, (B, n + 1)), 1)
    goals = {"central": 1, "bspline": 4}.get(work.mode, 0) if options.get("ends") == "goal" else 0
    return Inputs(
        mode=make_mode(work.mode, **options),
        actions=random.standard_normal((B, H, D)),
        start={} if recorded else {p: random.standard_normal((2, D)) for p in QUANTITIES},
        goal={p: random.standard_normal((B, D)) for p in QUANTITIES[:goals]},
        dt=None if steps == "stamps" else np.asarray(random.uniform(0.5, 1, shapes[steps])),
        times=stamps if steps == "stamps" else None,
        start_index=None if recorded else np.array([1, 0, 1]),
        recorded=recorded,
    )


def by_torch(sample: Inputs, upstream: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same by torch's derivatives of torch_ops, with states gathered per trajectory."""
    operands = sample.operands("cpu")

    def gathered(part: Any, index: Any) -> Any:
        if part is None:
            return None
        part = part.expand(B, -1) if index is None else part[index]
        return part.clone().requires_grad_()

    start = [gathered(part, operands.start_index) for part in operands.start]
    goal = [gathered(part, operands.goal_index) for part in operands.goal]
    dt = operands.dt.expand(B, -1).clone().requires_grad_()
    leaves = {"actions": operands.actions.clone().requires_grad_(), "dt": dt}
    leaves |= {f"start_{p}": x for p, x in zip(QUANTITIES, start, strict=True) if x is not None}
    leaves |= {f"goal_{p}": x for p, x in zip(QUANTITIES, goal, strict=True) if x is not None}
    plain = operands._replace(
        actions=leaves["actions"], dt=dt, start=start, goal=goal, start_index=None, goal_index=None
    )
    rows = dict(zip(QUANTITIES, torch_ops.trajectories(sample.program(), plain), strict=True))
    total = sum((rows[name] * torch.as_tensor(g)).sum() for name, g in upstream.items())
    grads = torch.autograd.grad(total, list(leaves.values()), materialize_grads=True)
    result = {name: grad.numpy() for name, grad in zip(leaves, grads, strict=True)}
    result["dt"] = sample.dt_gradient(result["dt"])
    return {name: x.detach().numpy() for name, x in rows.items()}, result


@pytest.mark.parametrize("work", WORKS, ids=str)
def test_every_gradient_is_torchs(work: Job) -> None:
    """Of all outputs together, and at the shortest horizons of one alone."""
    uneven = not (work.mode == "bspline" or work.mode == "savgol")
    for k, steps in enumerate(STEPS if uneven else EVEN):
        for H in sorted({7, work.least + work.recorded, 2}):
            names = QUANTITIES if H == 7 else (QUANTITIES[1 + k % 3],)
            if work.least + work.recorded > H:
                continue
            sample = inputs(work, steps, H)
            assert shape_faults(sample) == []
            random = np.random.default_rng(1)
            upstream = {name: random.standard_normal((B, sample.rows, D)) for name in names}
            choice = Choice("native", "cpu", "")
            rows, result = pull_back(sample, lambda _, g=upstream: g, choice, "float64")
            same, want = by_torch(sample, upstream)
            for name in QUANTITIES:
                np.testing.assert_allclose(rows[name], same[name], rtol=1e-12, atol=1e-12)
            assert result.keys() == want.keys()
            for name, grad in want.items():
                assert result[name].shape == grad.shape, name
                largest = max(np.abs(grad).max(), 1e-2)  # the terms of a sum that is 0 are larger
                np.testing.assert_allclose(
                    result[name], grad, rtol=0, atol=1e-12 * largest, err_msg=f"{name}, {steps}"
                )
