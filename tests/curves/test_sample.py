"""Between the rows a trajectory is the polynomial that its mode defines: peers and exact sums."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.interpolate import BSpline

import trajcli
from trajcli import InputError, State, UsageError

CASCADES = ("clique", "velocity", "acceleration", "jerk")
random = np.random.default_rng(5)


def trajectory_of(mode: str, scheme: str, batch: int = 3, varying: bool = True) -> Any:
    actions = random.normal(size=(batch, 9, 5))
    start = State(*random.normal(size=(4, batch, 5)))
    dt = random.uniform(0.02, 0.3, (batch, 9)) if varying else 0.05
    return trajcli.integrate(actions, start, dt, mode, scheme=scheme)


@pytest.mark.parametrize("scheme", ["zoh", "foh"])
@pytest.mark.parametrize("mode", CASCADES)
def test_a_finer_run_of_the_same_motion_has_the_same_states(mode: str, scheme: str) -> None:
    """Every step is halved, and the action held, or its line followed, over both halves."""
    order = CASCADES.index(mode)
    actions = random.normal(size=(3, 9, 5))
    start = State(*random.normal(size=(4, 3, 5)))
    dt = random.uniform(0.02, 0.3, (3, 9))
    before = np.concatenate(
        [start.parts()[trajcli.modes.QUANTITIES[order]][:, None], actions[:, :-1]], 1
    )
    first = actions if scheme == "zoh" else (before + actions) / 2
    halves = np.stack([first, actions], 2).reshape(3, 18, 5)
    fine = trajcli.integrate(halves, start, np.repeat(dt / 2, 2, 1), mode, scheme=scheme)
    coarse = trajcli.integrate(actions, start, dt, mode, scheme=scheme)
    times = fine.time.copy()
    times[:, ::2] = coarse.time  # to the bit: what is held jumps there
    sampled = trajcli.sample(coarse, times)
    known = order + 1 + (scheme == "foh")  # of zoh the one above is an impulse at the rows
    for m, (values, wanted) in enumerate(list(zip(sampled, fine, strict=True))[:known]):
        since = int(m > order)  # foh: the start has a derivative of its own above the action
        values, wanted = values[:, since:], wanted[:, since:]
        np.testing.assert_allclose(values, wanted, rtol=0, atol=1e-11 * abs(wanted).max())


@pytest.mark.parametrize("varying", [True, False])
@pytest.mark.parametrize("mode", CASCADES)
def test_a_time_on_a_row_gives_the_row_bit_for_bit(mode: str, varying: bool) -> None:
    trajectory = trajectory_of(mode, "zoh", varying=varying)
    sampled = trajcli.sample(trajectory, trajectory.time)
    for m in range(CASCADES.index(mode) + 1):
        assert (list(sampled)[m] == list(trajectory)[m]).all()
    order = CASCADES.index(mode)
    assert all((x == 0).all() for x in list(sampled)[order + 1 :])


def test_the_time_of_a_row_up_to_rounding_gives_the_row() -> None:
    plan = trajcli.integrate(np.arange(20.0)[:, None], "zero", 0.1, "jerk", scheme="zoh")
    beside = plan.time * (1 + 3e-16) + 1e-16
    assert (beside != plan.time).any()
    assert (beside > plan.time[-1]).any()
    for name, values in trajcli.sample(plan, beside).outputs().items():
        assert (values == getattr(plan, name)).all()


@pytest.mark.parametrize("degree", [3, 4, 5])
@pytest.mark.parametrize("steps", [1, 4])
def test_a_b_spline_is_scipys_at_any_time(degree: int, steps: int) -> None:
    actions, state = random.normal(size=(2, 12, 3)), np.zeros((2, 3))
    trajectory = trajcli.integrate(
        actions, State(state), 0.07, "bspline", degree=degree, steps=steps
    )
    spacing = 0.07 * steps
    times = np.sort(random.uniform(0.0, trajectory.time[-1], 300))
    sampled = trajcli.sample(trajectory, times)
    for b in range(2):
        points = np.concatenate([np.zeros((degree + 1, 3)), actions[b], [actions[b, -1]] * degree])
        curve = BSpline(spacing * (np.arange(len(points) + degree + 1) - degree), points, degree)
        for m, values in enumerate(sampled):
            wanted = curve.derivative(m)(times) if m else curve(times)
            atol = 1e-11 * max(1.0, abs(wanted).max())
            np.testing.assert_allclose(values[b], wanted, rtol=0, atol=atol)
    on_rows = trajcli.sample(trajectory, trajectory.time)
    assert all((a == b).all() for a, b in zip(on_rows, trajectory, strict=True))


@pytest.mark.parametrize("shared", [True, False], ids=["one list of times", "times of their own"])
@pytest.mark.parametrize("varying", [True, False])
@pytest.mark.parametrize("scheme", ["zoh", "foh"])
def test_torch_gives_what_numpy_gives(shared: bool, varying: bool, scheme: str) -> None:
    trajectory = trajectory_of("acceleration", scheme, varying=varying)
    shortest = np.atleast_2d(trajectory.time)[:, -1].min()
    times = np.linspace(0, shortest, 33) if shared else random.uniform(0, shortest, (3, 33))
    tensors = trajcli.Trajectory(
        *map(torch.from_numpy, trajectory),
        torch.from_numpy(trajectory.time),
        trajectory.mode,
        trajectory.options,
    )
    for a, b in zip(trajcli.sample(trajectory, times), trajcli.sample(tensors, times), strict=True):
        assert (a == b.numpy()).all()


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("jerk", {"scheme": "zoh"}),
        ("acceleration", {"scheme": "foh"}),
        ("bspline", {"degree": 5}),
        ("bspline", {"degree": 4}),
    ],
)
def test_gradients_of_actions_start_dt_and_times(mode: str, options: dict[str, Any]) -> None:
    def call(actions: Any, start: Any, dt: Any, share: Any) -> Any:
        plan = trajcli.integrate(actions, State(start), dt, mode, **options)
        assert plan.position is not None
        end = plan.time[-1] if plan.time.ndim == 1 else plan.time[:, -1:]
        return tuple(x for x in trajcli.sample(plan, share * end) if x.requires_grad)

    torch.manual_seed(3)  # no time may be beside a knot, where jerk has no slope
    inputs = [torch.rand(2, 6, 2), torch.rand(2, 2), 0.1 + torch.rand(2, 1), torch.rand(2, 7)]
    inputs = [x.double().requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(call, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, inputs, fast_mode=True)


@pytest.mark.parametrize(
    "number", [float, np.float64, np.asarray, torch.ones((), dtype=torch.float64).new_tensor]
)
@pytest.mark.parametrize("library", [np.asarray, torch.tensor])
def test_a_number_is_one_time(library: Any, number: Any) -> None:
    plan = trajcli.integrate(library(random.normal(size=(2, 9, 3))), "zero", 0.1, scheme="zoh")
    found, want = trajcli.sample(plan, number(0.37)), trajcli.sample(plan, [0.37])
    for a, b in zip((*found, found.time), (*want, want.time), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_time_without_axes_has_a_gradient() -> None:
    plan = trajcli.integrate(torch.rand(2, 9, 3).double(), "zero", 0.1, "jerk", scheme="zoh")
    time = torch.tensor(0.37, dtype=torch.float64, requires_grad=True)
    found = trajcli.sample(plan, time)
    (speed,) = torch.autograd.grad(found.position.sum(), time)
    torch.testing.assert_close(speed, found.velocity.sum())


def test_float32_is_rounded_once() -> None:
    wide = trajectory_of("jerk", "zoh")
    narrow = trajcli.Trajectory(*(x.astype("f4") for x in wide), wide.time, wide.mode, wide.options)
    rounded = trajcli.Trajectory(
        *(x.astype("f8") for x in narrow), wide.time, wide.mode, wide.options
    )
    share = random.uniform(0.0, 1.0, (3, 40))
    times = wide.time[:, :1] + share * (wide.time[:, -1:] - wide.time[:, :1])
    for a, b in zip(trajcli.sample(narrow, times), trajcli.sample(rounded, times), strict=True):
        assert a.dtype == np.float32
        assert (a == b.astype("f4")).all()


@pytest.mark.parametrize("degree", [3, 4, 5])
def test_float32_splines_agree_with_scipy_over_short_steps(degree: int) -> None:
    spacing, offset = 5e-3, 3.0 + 1e-4 * np.arange(12).reshape(12, 1) ** 2
    made = trajcli.integrate(
        offset.astype("f4"), State(offset[0]), spacing / 5, "bspline", degree=degree, steps=5
    )
    points = offset.astype("f4").astype("f8")
    points = np.concatenate([[offset[0]] * (degree + 1), points, [points[-1]] * degree])
    curve = BSpline(spacing * (np.arange(len(points) + degree + 1) - degree), points, degree)
    times = np.sort(random.uniform(0.0, made.time[-1], 300))
    for m, (values, digits) in enumerate(
        zip(trajcli.sample(made, times), (1e-7, 4e-7, 4e-6, 1e-3), strict=True)
    ):
        wanted = curve.derivative(m)(times) if m else curve(times)
        assert abs(values[0] - wanted).max() < digits * abs(wanted).max()


@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_slope_of_foh_is_that_of_unrounded_actions(order: int) -> None:
    actions = (1e4 + 1e-3 * np.arange(9.0) ** 2)[:, None]
    start = State(*[np.full(1, 1e4 * (k == order)) for k in range(4)])
    made = trajcli.integrate(actions, start, 1e-3, CASCADES[order], scheme="foh", dtype="float32")
    sampled = list(trajcli.sample(made, made.time[1:] - 5e-4))[order + 1]
    slopes = np.diff(np.concatenate([[1e4], actions[:, 0]])) / 1e-3
    np.testing.assert_allclose(sampled[0, :, 0], slopes, rtol=1e-6, atol=1e-6)


def test_outputs_that_are_not_written_stay_away_or_are_asked_for() -> None:
    actions = random.normal(size=(9, 5))
    plan = trajcli.integrate(
        actions, "zero", 0.1, "acceleration", scheme="zoh", write=["velocity", "acceleration"]
    )
    p, v, _, j = trajcli.sample(plan, [0.05, 0.5])
    assert p is None
    assert j is None
    assert math.isclose(v[0, 0, 0], 0.05 * actions[0, 0])
    alone = trajcli.integrate(
        actions, "zero", 0.1, "acceleration", scheme="zoh", write=["position"]
    )
    with pytest.raises(UsageError, match="velocity, acceleration as well"):
        trajcli.sample(alone, [0.05])


@pytest.mark.parametrize(
    ("mode", "options", "words"),
    [
        ("acceleration", {}, "scheme euler"),
        ("central", {}, "mode central"),
        ("teleport", {}, "mode teleport"),
    ],
)
def test_modes_without_polynomials_are_refused(mode: str, options: Any, words: str) -> None:
    plan = trajcli.integrate(np.ones((9, 5)), "zero", 0.1, mode, **options)
    with pytest.raises(UsageError, match=words) as refusal:
        trajcli.sample(plan, [0.05])
    assert "resample" in str(refusal.value)


@pytest.mark.parametrize("times", [[0.1, -1e-9], [0.91], [float("nan")], [[0.1], [0.2]], 0.91])
def test_times_that_do_not_fit_are_refused(times: Any) -> None:
    plan = trajcli.integrate(np.ones((9, 5)), "zero", 0.1, "jerk", scheme="zoh")
    with pytest.raises(InputError, match="times"):
        trajcli.sample(plan, times)
