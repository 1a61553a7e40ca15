"""What a trajectory comes out as does not depend on what is computed beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from exact import PARTS
from kernels.cases import Job, job

import trajcli
from trajcli import State

RNG = np.random.default_rng(0)
B, H, D = 7, 33, 3
ACTIONS = RNG.normal(size=(B, H, D))
START = State(*RNG.normal(size=(4, B, D)))
GOAL = State(*RNG.normal(size=(4, B, D)))
STEPS = RNG.uniform(0.02, 0.09, size=(B, H))

CASES = {
    **{
        f"{mode} {scheme}": {"mode": mode, "scheme": scheme}
        for mode in ("clique", "velocity", "acceleration", "jerk")
        for scheme in ("euler", "zoh", "foh")
    },
    "central": {"mode": "central"},
    "central to a goal": {"mode": "central", "ends": "goal"},
    "central of curobo": {"mode": "central", "convention": "curobo"},
    "bspline": {"mode": "bspline", "degree": 4, "steps": 3},
    "bspline to a goal": {"mode": "bspline", "degree": 5, "steps": 2, "ends": "goal"},
    "bspline at knots": {"mode": "bspline", "degree": 5},
    "teleport": {"mode": "teleport"},
}
EVERY_CASE = pytest.mark.parametrize("case", CASES)
EVERY_DTYPE = pytest.mark.parametrize("dtype", ["float32", "float64"])


def compute(
    case: str,
    actions: Any = ACTIONS,
    start: State = START,
    *,
    which: Any = slice(None),
    dt: Any = STEPS,
    **options: Any,
) -> trajcli.Trajectory:
    """The case for a selection of the trajectories, with per-trajectory dt."""
    options = {**CASES[case], **options}
    if options["mode"] == "bspline" and np.ndim(dt):
        dt = dt[:, :1]
    if options.get("ends") == "goal":
        parts = PARTS if options["mode"] == "bspline" else PARTS[:1]
        options["goal"] = State(*(getattr(GOAL, part)[which] for part in parts))
    chosen = State(*(getattr(start, part)[which] for part in PARTS))
    dt = dt[which] if np.ndim(dt) else dt
    return trajcli.integrate(actions[which], chosen, dt, **options)


def assert_same_bits(one: Any, two: Any, part: str = "") -> None:
    np.testing.assert_array_equal(np.asarray(one), np.asarray(two), err_msg=part)


@pytest.mark.parametrize("moving", [False, True], ids=["at rest", "moving"])
@pytest.mark.parametrize("dofs", [1, 2, 3, 7, 14, 17])
@EVERY_CASE
def test_a_start_that_all_share_gives_the_bits_of_one_for_each(
    case: str, dofs: int, moving: bool
) -> None:
    options = dict(CASES[case])
    if options.get("ends") == "goal":
        options["goal"] = State(np.ones((1, dofs)))
    actions = RNG.normal(size=(19, H, dofs)).astype(np.float32)
    parts = RNG.normal(size=(4, 1, dofs))[: 4 if moving else 1]
    shared = trajcli.integrate(actions, State(*parts), 0.04, **options)
    repeated = trajcli.integrate(actions, State(*np.repeat(parts, 19, 1)), 0.04, **options)
    alone = trajcli.integrate(actions[3:4], State(*parts), 0.04, **options)
    for part in PARTS:
        assert_same_bits(getattr(shared, part), getattr(repeated, part), part)
        assert_same_bits(getattr(shared, part)[3:4], getattr(alone, part), part)


@pytest.mark.parametrize("dt", [0.04, STEPS], ids=["one step", "per-trajectory steps"])
@EVERY_DTYPE
@EVERY_CASE
def test_a_trajectory_alone_has_the_bits_it_has_among_others(
    case: str, dtype: str, dt: Any
) -> None:
    actions = ACTIONS.astype(dtype)
    together = compute(case, actions, dt=dt)
    for which in (slice(0, 1), slice(3, 4), slice(2, 6), slice(6, 7)):
        apart = compute(case, actions, dt=dt, which=which)
        for part in PARTS:
            assert_same_bits(getattr(apart, part), getattr(together, part)[which], part)


BANDS = [
    job("central", recorded=True),
    job("central"),
    job("central", convention="curobo"),
    # steps so few that no weight is small but not 0
    *(job("bspline", degree=degree, steps=steps) for degree in (3, 4, 5) for steps in (1, 2, 3, 4)),
    *(
        job("savgol", recorded=True, window=window, degree=degree)
        for window, degree in ((5, 2), (5, 4), (7, 2), (7, 5), (9, 3))
    ),
    job("clique", recorded=True),
]


@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("work", BANDS, ids=str)
def test_nan_reaches_just_what_has_weight(work: Job, backend: str) -> None:
    """A quantity has it from the actions that it changes with, and gives it back to these."""
    start = State(*(part[:1, :1] for part in START.parts().values()))
    for rows in (x for x in (1, 3, 9) if x >= work.least):

        def call(actions: Any, start: Any = start, **options: Any) -> trajcli.Trajectory:
            return work.trajectory(actions, start, 0.1, backend=backend, **options)

        units = torch.eye(rows, dtype=torch.float64)[..., None]
        weights = np.stack([x[..., 0].T for x in call(units, "zero")])
        used = abs(weights) > 1e-9 * abs(weights).max((1, 2), keepdims=True)  # [4, T, rows]
        last = rows - (not work.recorded)  # a plan holds the last action, which has several weights
        actions = torch.from_numpy(ACTIONS[:1, :rows, :1])
        wrong = torch.where(units[:last] == 1, torch.nan, actions)  # each with one NaN
        clean = list(call(wrong.nan_to_num(1.0)))
        for m, values in enumerate(call(wrong, allow_nonfinite=True)):
            for i, nan in enumerate(used[m, :, :last].T):
                np.testing.assert_array_equal(values[i, :, 0].isnan(), nan)
                atol = 1e-13 * clean[m][i].abs().max()
                same = clean[m][i, ~nan]
                np.testing.assert_allclose(values[i, ~nan], same, rtol=0, atol=atol)
        many = actions.repeat(used.shape[1], 1, 1).requires_grad_()
        upstream = torch.where(torch.eye(used.shape[1]) == 1, torch.nan, 0.0).double()[..., None]
        for m, values in enumerate(call(many)):
            (grad,) = torch.autograd.grad(values, many, upstream, retain_graph=True)
            np.testing.assert_array_equal(grad[:, :last, 0].isnan(), used[m, :, :last])
