"""Gradients on NumPy arrays by the compiled kernels are those that torch finds by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from trajcli.adjoint import pull_back
from trajcli.inputs import Inputs, shape_faults
from trajcli.kernels import native, torch_ops
from trajcli.kernels.choose import Choice
from trajcli.modes import PARTS, make_mode

pytestmark = pytest.mark.skipif(bool(native.absence()), reason=native.absence())

B, D = 3, 2

FRAMES: list[dict[str, Any]] = [
    {},
    {"frames": "actions"},
    {"frames": "curobo"},
    {"convention": "curobo"},
]
MODES: list[tuple[str, bool, dict[str, Any]]] = [
    *(
        (mode, False, {"scheme": scheme, **rows})
        for mode in ("clique", "velocity", "acceleration", "jerk")
        for scheme in ("euler", "zoh", "foh")
        for rows in FRAMES
    ),
    ("clique", True, {}),
    *(("central", False, {"ends": ends, **rows}) for ends in ("plan", "goal") for rows in FRAMES),
    ("central", True, {}),
    *(
        ("bspline", False, {"degree": d, "steps": 2, "ends": ends, "convention": convention})
        for d in (3, 4, 5)
        for ends in ("plan", "goal")
        for convention in ("standard", "curobo")
    ),
    ("teleport", False, {"frames": "curobo"}),
]
STEPS = ("scalar", "per step", "per trajectory", "both", "stamps", "with the first", "one for all")


def inputs(mode: str, recorded: bool, options: dict[str, Any], steps: str, H: int = 7) -> Inputs:
    """Random inputs with a start index, and steps of a kind."""
    random = np.random.default_rng(0)
    n = H - 1 if recorded else H
    shapes = {"scalar": (), "per step": (n,), "per trajectory": (B, 1), "both": (B, n)}
    shapes |= {"with the first": (B, H), "one for all": (1, n)}
    dt: Any = None
    times: Any = None
    if steps == "stamps":
        times = np.cumsum(random.uniform(0.5, 1, (B, n + 1)), 1)
    else:
        dt = np.asarray(random.uniform(0.5, 1, shapes[steps]))
    goals = {"central": 1, "bspline": 4}.get(mode, 0) if options.get("ends") == "goal" else 0
    return Inputs(
        mode=make_mode(mode, **options),
        actions=random.standard_normal((B, H, D)),
        start={} if recorded else {p: random.standard_normal((2, D)) for p in PARTS},
        goal={p: random.standard_normal((B, D)) for p in PARTS[:goals]},
        dt=dt,
        times=times,
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
    leaves |= {f"start_{p}": x for p, x in zip(PARTS, start, strict=True) if x is not None}
    leaves |= {f"goal_{p}": x for p, x in zip(PARTS, goal, strict=True) if x is not None}
    plain = operands._replace(
        actions=leaves["actions"], dt=dt, start=start, goal=goal, start_index=None, goal_index=None
    )
    rows = dict(zip(PARTS, torch_ops.trajectories(sample.program(), plain), strict=True))
    total = sum((rows[name] * torch.as_tensor(g)).sum() for name, g in upstream.items())
    total = total + sum((leaf * 0.0).sum() for leaf in leaves.values())
    grads = torch.autograd.grad(total, list(leaves.values()))
    result = {name: grad.numpy() for name, grad in zip(leaves, grads, strict=True)}
    result["dt"] = sample.unaligned(result["dt"])
    return {name: x.detach().numpy() for name, x in rows.items()}, result


def compare(sample: Inputs, names: tuple[str, ...]) -> None:
    assert shape_faults(sample) == []
    random = np.random.default_rng(1)
    shape = (B, sample.rows, D)
    upstream = {name: random.standard_normal(shape) for name in names}
    choice = Choice("native", "cpu", "")
    rows, result = pull_back(sample, lambda outputs: upstream, choice, "float64")
    same, want = by_torch(sample, upstream)
    for name in PARTS:
        np.testing.assert_allclose(rows[name], same[name], rtol=1e-12, atol=1e-12)
    assert result.keys() == want.keys()
    for name, grad in want.items():
        assert result[name].shape == grad.shape, name
        largest = max(np.abs(grad).max(), 1e-2)  # the terms of a sum that is 0 are larger
        np.testing.assert_allclose(result[name], grad, rtol=0, atol=1e-12 * largest, err_msg=name)


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize(("mode", "recorded", "options"), MODES)
def test_every_gradient_is_torchs(mode, recorded, options, steps):
    if mode == "bspline" and steps not in ("scalar", "per trajectory"):
        pytest.skip("a spline has uniform knots")
    compare(inputs(mode, recorded, options, steps), PARTS)


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("steps", ["scalar", "both"])
@pytest.mark.parametrize("mode", ["jerk", "clique", "central", "teleport"])
def test_so_is_that_of_each_output_alone(mode, steps, name):
    compare(inputs(mode, False, {}, steps), (name,))


@pytest.mark.parametrize(
    ("mode", "recorded", "options"),
    [
        (mode, False, {**rows, **ends})
        for rows in FRAMES
        for mode, ends in (
            ("acceleration", {}),
            ("central", {}),
            ("central", {"ends": "goal"}),
        )
    ]
    + [("clique", True, {}), ("teleport", False, {}), ("bspline", False, {"ends": "goal"})],
)
@pytest.mark.parametrize("H", [1, 2])
@pytest.mark.parametrize("steps", ["scalar", "per trajectory", "both"])
def test_so_are_those_of_the_shortest_horizons(mode, recorded, options, H, steps):
    if (recorded and H == 1) or (mode == "bspline" and steps == "both" and H > 1):
        pytest.skip("no steps, or none that may differ")
    compare(inputs(mode, recorded, options, steps, H), PARTS)
