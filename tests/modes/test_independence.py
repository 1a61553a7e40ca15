"""What a trajectory comes out as does not depend on what is computed beside it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from exact import PARTS
from recordings import trajectory_of

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


def bands() -> list[tuple[str, Any, dict[str, Any]]]:
    """Modes, what they start from, and options; steps so few that no weight is small but not 0."""
    jobs: list[tuple[str, Any, dict[str, Any]]] = [
        ("central", "first", {}),
        ("central", START, {"ends": "plan"}),
        ("central", START, {"convention": "curobo"}),
    ]
    jobs += [
        ("bspline", START, {"degree": degree, "steps": steps})
        for degree in (3, 4, 5)
        for steps in (1, 2, 3, 4)
    ]
    jobs += [
        ("savgol", "first", {"window": window, "degree": degree})
        for window, degree in ((5, 2), (5, 4), (7, 2), (7, 5), (9, 3))
    ]
    jobs += [("clique", "first", {})]
    return jobs


@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize(("mode", "start", "options"), bands(), ids=str)
def test_nan_reaches_just_what_has_weight(
    mode: str, start: Any, options: Any, backend: str
) -> None:
    """A quantity has it from the actions that it changes with, and gives it back to these."""
    if isinstance(start, State):
        start = State(*(part[:1, :1] for part in start.parts().values()))
    for rows in (1, 3, 9):
        least = {"central": 5 if start == "first" else 1, "savgol": options.get("window", 1)}
        if rows < least.get(mode, 1):
            continue
        actions = torch.from_numpy(ACTIONS[:1, :rows, :1].copy()).requires_grad_()
        call = partial(trajectory_of, start=start, dt=0.1, mode=mode, backend=backend, **options)
        made = [x[0, :, 0] for x in call(actions)]
        weights = np.stack(
            [[torch.autograd.grad(x, actions, retain_graph=True)[0][0, :, 0] for x in values]
             for values in made]
        )  # fmt: skip
        used = abs(weights) > 1e-9 * abs(weights).max((1, 2), keepdims=True)  # [4, T, rows]
        last = rows - (start != "first")  # a plan holds the last action, which has several weights
        for i in range(last):
            wrong = actions.detach().clone()
            wrong[0, i] = torch.nan
            reached = np.stack([x[0, :, 0] for x in call(wrong, allow_nonfinite=True)])
            np.testing.assert_array_equal(np.isnan(reached), used[..., i])
            clean = call(wrong.nan_to_num(1.0))
            for values, wanted, nan in zip(reached, clean, used[..., i], strict=True):
                atol = 1e-13 * wanted.abs().max()
                np.testing.assert_allclose(values[~nan], wanted[0, ~nan, 0], rtol=0, atol=atol)
        for m, t in np.ndindex(used.shape[:2]):
            upstream = torch.where(torch.arange(used.shape[1]) == t, torch.nan, 0.0).double()
            (grad,) = torch.autograd.grad(made[m], actions, upstream, retain_graph=True)
            np.testing.assert_array_equal(grad[0, :last, 0].isnan(), used[m, t, :last])
