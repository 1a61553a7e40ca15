"""Gradients of what comes after integrate: retime, score and operator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import trajcli
from trajcli import State, Trajectory, UsageError, matrices

Case = tuple[str, dict[str, Any], dict[str, Any]]
# what binds: a row, or the curve between two
AT_ROWS: list[Case] = [
    ("velocity", {}, {"velocity": 1.0}),
    ("acceleration", {"scheme": "zoh"}, {"acceleration": (-0.5, 2.0), "velocity": 50.0}),
    ("jerk", {"scheme": "zoh"}, {"jerk": 1.0}),
    ("central", {}, {"velocity": 50.0, "acceleration": 1.0}),
]
BETWEEN: list[Case] = [
    ("acceleration", {"scheme": "foh"}, {"velocity": 1.0}),
    ("jerk", {"scheme": "foh"}, {"acceleration": 1.0}),
    ("jerk", {"scheme": "zoh"}, {"velocity": (-1.0, 2.0)}),
    ("bspline", {"degree": 4}, {"velocity": 1.0}),
    ("bspline", {"degree": 5, "steps": 2}, {"acceleration": 1.0}),
    ("bspline", {"degree": 5}, {"jerk": 1.0}),
]


def inputs(seed: int = 3) -> list[torch.Tensor]:
    """Actions, starts and steps."""
    random = np.random.default_rng(seed)
    drawn = [random.normal(size=(3, 7, 2)), random.normal(size=(2, 2)), [[0.1], [0.15], [0.2]]]
    return [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in drawn]


def plan(mode: str, options: dict[str, Any], u: Any, s: Any, dt: Any) -> Trajectory:
    return trajcli.integrate(u, State(s[0], s[1]), dt, mode, **options)


@pytest.mark.parametrize(("mode", "options", "limits"), AT_ROWS + BETWEEN)
def test_a_pace_has_the_gradient_of_what_decides_it(
    mode: str, options: dict[str, Any], limits: dict[str, Any]
) -> None:
    def call(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        paced = trajcli.retime(plan(mode, options, *given), limits)
        return (paced.factor, paced.time, *(x for x in paced if x is not None))

    given = inputs()
    made = plan(mode, options, *(x.detach() for x in given))
    rows = trajcli.retime(replace(made, mode="", options={}), limits).factor
    between = trajcli.retime(made, limits).factor > (1 + 1e-9) * rows
    assert between.any() == ((mode, options, limits) in BETWEEN)
    assert gradcheck(call, given, fast_mode=True, check_forward_ad=True)
    assert gradgradcheck(call, given, fast_mode=True)


def test_a_pace_set_by_one_row_has_only_its_gradient() -> None:
    velocity = torch.tensor([[1.0, -3.0], [2.0, 0.0]], dtype=torch.float64)[..., None]
    velocity.requires_grad_()
    rows = Trajectory(None, velocity, None, None, torch.arange(2.0))
    paced = trajcli.retime(rows, {"velocity": (-2.0, 4.0)})
    (gradient,) = torch.autograd.grad(paced.factor.sum(), velocity)
    assert gradient[..., 0].tolist() == [[0.0, -0.5], [0.25, 0.0]]


def test_a_pace_without_a_deciding_limit_has_no_gradient() -> None:
    velocity = torch.zeros(2, 3, 1, dtype=torch.float64)
    velocity[1] = 0.5
    rows = Trajectory(None, velocity.requires_grad_(), None, None, torch.arange(3.0))
    paced = trajcli.retime(rows, {"velocity": 1.0}, slower_only=True)
    assert paced.limited_by == ["", ""]
    (gradient,) = torch.autograd.grad(paced.velocity.sum() + paced.factor.sum(), velocity)
    assert (gradient == 1.0).all()


def test_transforms_of_torch_reach_through_a_pace() -> None:
    u, s, dt = (x.detach() for x in inputs())

    def factor(u: Any) -> Any:
        made = plan("bspline", {"degree": 5}, u, s, dt)
        return trajcli.retime(made, {"velocity": 1.0, "jerk": 99.0}).factor

    want = torch.autograd.functional.jacobian(factor, u)
    torch.testing.assert_close(torch.func.jacrev(factor)(u), want)
    tangent = torch.ones_like(u)
    _, along = torch.func.jvp(factor, (u,), (tangent,))
    torch.testing.assert_close(along, (want * tangent).sum((1, 2, 3)))


def test_limits_with_a_gradient_are_refused() -> None:
    made = plan("jerk", {}, *inputs())
    with pytest.raises(UsageError, match="detach"):
        trajcli.retime(made, {"velocity": torch.ones(2, requires_grad=True)})


MATRICES: dict[str, dict[str, Any]] = {
    **{f"{mode} {scheme}": {"mode": mode, "scheme": scheme}
       for mode in ("clique", "velocity", "acceleration", "jerk") for scheme in ("euler", "foh")},
    "central": {"mode": "central"},
    "central, goal": {"mode": "central", "ends": "goal"},
    "central, recording": {"mode": "central", "start": "first"},
    "bspline": {"mode": "bspline", "ends": "goal", "degree": 4},
    "savgol": {"mode": "savgol", "start": "first", "window": 5, "degree": 3},
    "backward": {"mode": "clique", "start": "first"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "each"),
    [
        *((name, (k + k // 2) % 2 == 1) for k, name in enumerate(MATRICES) if name != "bspline"),
        ("bspline", False),
        ("central", True),
        ("central, goal", False),
        ("savgol", True),
    ],
)
def test_matrices_of_tensors_are_those_of_numpy_and_have_gradients(name: str, each: bool) -> None:
    options = MATRICES[name]
    dt = np.random.default_rng(5).uniform(0.3, 0.9, 6 - ("start" in options)) if each else 0.4
    want = trajcli.operator(6, dt, **options)
    steps = torch.tensor(dt, dtype=torch.float64, requires_grad=True)

    def call(steps: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = trajcli.operator(6, steps, **options)
        return tuple(x for x in (found.A, found.C, found.G, found.time) if x is not None)

    known = [x for x in (want.A, want.C, want.G, want.time) if x is not None]
    for x, y in zip(call(steps), known, strict=True):
        np.testing.assert_allclose(x.detach().numpy(), y, 1e-13, 1e-13 * abs(y).max())
    assert gradcheck(call, [steps], fast_mode=True, check_forward_ad=True)
    assert gradgradcheck(call, [steps], fast_mode=True)
    each_step = steps.expand(6 - ("start" in options))
    stamps = torch.cat([steps.new_zeros(1), each_step.cumsum(0)])
    if name != "bspline":
        by_times = trajcli.operator(6, times=stamps, **options)
        torch.testing.assert_close(by_times.A, call(steps)[0])
    torch.testing.assert_close(torch.func.jacfwd(call)(steps)[0], torch.func.jacrev(call)(steps)[0])


@pytest.mark.parametrize("each", [False, True], ids=["one", "each"])
def test_building_blocks_of_tensors_are_those_of_numpy_and_have_gradients(each: bool) -> None:
    dt = np.random.default_rng(5).uniform(0.3, 0.9, 6) if each else np.array(0.4)
    steps = torch.tensor(dt, requires_grad=True)
    for block in (
        lambda dt: matrices.difference_matrix(6, 2, dt),
        lambda dt: matrices.difference_matrix(6, 3, dt, shifted=True),
        lambda dt: matrices.difference_matrix(6, 1, dt, previous=True),
        lambda dt: matrices.integration_matrix(6, 2, dt, offset=-1),
        lambda dt: matrices.clique_matrix(6, dt),
    ):
        np.testing.assert_allclose(block(steps).detach().numpy(), block(dt), 1e-13)
        assert gradcheck(block, [steps], fast_mode=True)
        with pytest.raises(UsageError, match="dt"):
            block(-steps)


SMOOTH = ("duration", "path_length", "rms_jerk", "log_jerk")


@pytest.mark.parametrize("write", [trajcli.modes.QUANTITIES, ["position"], ["velocity", "jerk"]])
@pytest.mark.parametrize("uneven", [False, True])
def test_smooth_scores_are_those_of_numpy_and_have_gradients(write: Any, uneven: bool) -> None:
    u, s, dt = inputs()
    dt = dt * torch.linspace(0.5, 1.0, 7, dtype=torch.float64) if uneven else dt

    def made(u: Any, s: Any, dt: Any) -> Trajectory:
        return trajcli.integrate(u, State(s[0], s[1]), dt, "jerk", write=write)

    def call(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = trajcli.score(made(*given))
        return tuple(found[name] for name in SMOOTH if name in found)

    want = trajcli.score(made(*(x.detach().numpy() for x in (u, s, dt))))
    found = trajcli.score(made(u, s, dt))
    assert set(found) == set(want)
    for name, values in found.items():
        assert values.requires_grad == (name in SMOOTH)
        np.testing.assert_allclose(values.detach().numpy(), want[name], 1e-12)
    given = [x.detach().requires_grad_() for x in (u, s, dt)]
    assert gradcheck(call, given, fast_mode=True, check_forward_ad=True)
    assert gradgradcheck(call, given, fast_mode=True)
    torch.testing.assert_close(
        torch.func.jacrev(lambda u: call(u, *given[1:])[-1])(given[0]),
        torch.autograd.functional.jacobian(lambda u: call(u, *given[1:])[-1], given[0]),
    )


def test_gradients_of_scores_are_zero_where_nothing_moves() -> None:
    jerk = torch.zeros(2, 8, 2, dtype=torch.float64)
    jerk[1, 2:] = 1.0
    found = trajcli.score(trajcli.integrate(jerk.requires_grad_(), "zero", 0.1, "jerk"))
    assert found["log_jerk"][0].isnan()
    total = found["path_length"].sum() + found["rms_jerk"].sum() + found["log_jerk"][1]
    (gradient,) = torch.autograd.grad(total, jerk)
    assert (gradient[0] == 0.0).all()
    assert gradient[1].isfinite().all()
    assert (gradient[1] != 0.0).any()
    start = State(torch.zeros(2), torch.ones(2))  # which moves, without jerk
    found = trajcli.score(trajcli.integrate(jerk[:1] * 1.0, start, 0.1, "jerk"))["log_jerk"]
    assert found.isposinf().all()
    (gradient,) = torch.autograd.grad(found, jerk)
    assert (gradient == 0.0).all()


@pytest.mark.parametrize("write", [trajcli.modes.QUANTITIES, ["position"]])
@pytest.mark.parametrize("library", [np.asarray, torch.tensor])
def test_a_padded_trajectory_scores_as_it_does_alone(library: Any, write: Any) -> None:
    random, lengths = np.random.default_rng(2), np.array([9, 3, 30, 9, 1])
    made = trajcli.integrate(random.normal(size=(5, 29, 2)), "zero", 0.1, "jerk", write=write)
    rows = [None if x is None else x.copy() for x in made]
    for values in (*rows, time := made.time * np.ones((5, 1))):
        for b, length in enumerate(lengths):
            if values is not None:
                values[b, length:] = np.nan
    padded = Trajectory(*(x if x is None else library(x) for x in rows), library(time))
    limits = {"position": 9.0, "velocity": 5.0}
    found = trajcli.score(padded, limits, lengths=lengths)
    for name, values in trajcli.score(replace(padded, lengths=library(lengths)), limits).items():
        np.testing.assert_array_equal(values, found[name])
    for b, length in enumerate(lengths):
        alone = (x if x is None else library(x[b : b + 1, :length]) for x in rows)
        want = trajcli.score(Trajectory(*alone, library(time[b, :length])), limits)
        assert set(found) == set(want)
        for name in set(want) - {"saturation"}:  # which compares trajectories
            np.testing.assert_array_equal(found[name][b : b + 1], want[name], err_msg=name)


def test_padding_has_no_gradient_of_a_score() -> None:
    u, s, dt = inputs()
    made = plan("jerk", {}, u, s, dt)
    found = trajcli.score(made, lengths=[8, 6, 2])
    (gradient,) = torch.autograd.grad(found["rms_jerk"].sum() + found["path_length"].sum(), u)
    assert [int((row != 0).any(1).sum()) for row in gradient] == [7, 5, 1]


@pytest.mark.parametrize("lengths", [[1, 2], [0, 1, 2], [9, 9, 9], [1.0, 1.0, 1.0], "x"])
def test_lengths_that_do_not_fit_are_refused(lengths: Any) -> None:
    made = plan("jerk", {}, *(x.detach() for x in inputs()))
    with pytest.raises(trajcli.InputError, match="lengths"):
        trajcli.score(made, lengths=lengths)


def test_trajectories_at_another_pace_are_joined_and_moved() -> None:
    plan = trajcli.integrate(torch.randn(2, 6, 3), "zero", 0.1, "jerk", scheme="zoh")
    paced = trajcli.retime(plan, {"velocity": 1.0})
    joined = trajcli.concatenate([paced, paced])
    assert torch.equal(joined.position[2:], paced.position)
    assert torch.utils.data.default_collate([paced, paced]) == joined
    assert paced.to("cpu") == paced
    assert paced.numpy().limited_by == paced.limited_by


def test_a_smoother_that_chooses_by_the_values_is_no_matrix() -> None:
    with pytest.raises(UsageError, match="chooses a bandlimit"):
        trajcli.operator(9, 0.1, "smooth", start="first")  # type: ignore[arg-type]
