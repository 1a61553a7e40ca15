"""The alignments of rows and actions, and how they hang together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from exact import PARTS

import trajcli
from trajcli import State

RNG = np.random.default_rng(0)
ACTIONS = RNG.normal(size=(3, 8, 2))
START = State(*RNG.normal(size=(4, 3, 2)))
UNEVEN = RNG.uniform(0.05, 0.1, size=(3, 8))
CASCADE = ("clique", "velocity", "acceleration", "jerk")
MODES = (*CASCADE, "central", "teleport")
STEPS = pytest.mark.parametrize("dt", [0.07, UNEVEN], ids=["even", "uneven"])


def assert_rows(result: trajcli.Trajectory, full: trajcli.Trajectory, rows: slice) -> None:
    for part in PARTS:
        assert (getattr(result, part) == getattr(full, part)[:, rows]).all(), part
    assert (result.time == full.time[..., rows]).all()


@STEPS
@pytest.mark.parametrize("mode", MODES)
def test_full_frames_are_the_start_and_one_row_per_action(mode: str, dt: Any) -> None:
    full = trajcli.integrate(ACTIONS, START, dt, mode)
    for part in PARTS:
        assert getattr(full, part).shape == (3, 9, 2)
        assert (getattr(full, part)[:, 0] == getattr(START, part)).all()
    assert (full.time[..., 0] == 0).all()


@STEPS
@pytest.mark.parametrize("mode", MODES)
def test_frames_actions_leave_out_the_start_row_alone(mode: str, dt: Any) -> None:
    full = trajcli.integrate(ACTIONS, START, dt, mode)
    result = trajcli.integrate(ACTIONS, START, dt, mode, frames="actions")
    assert_rows(result, full, slice(1, None))


@STEPS
@pytest.mark.parametrize("mode", [*CASCADE, "teleport"])
def test_frames_curobo_leave_out_the_last_row_alone(mode: str, dt: Any) -> None:
    full = trajcli.integrate(ACTIONS, START, dt, mode)
    result = trajcli.integrate(ACTIONS, START, dt, mode, frames="curobo")
    assert_rows(result, full, slice(None, -1))


@STEPS
@pytest.mark.parametrize("mode", MODES)
def test_frames_curobo_make_no_use_of_the_last_action(mode: str, dt: Any) -> None:
    shorter = dt if np.ndim(dt) == 0 else dt[:, :-1]
    full = trajcli.integrate(ACTIONS[:, :-1], START, shorter, mode)
    result = trajcli.integrate(ACTIONS, START, dt, mode, frames="curobo")
    assert_rows(result, full, slice(None))


@pytest.mark.parametrize("mode", CASCADE)
def test_convention_curobo_takes_the_step_into_row_t_from_place_t(mode: str) -> None:
    shifted = np.concatenate([UNEVEN[:, 1:], UNEVEN[:, -1:]], 1)
    expected = trajcli.integrate(ACTIONS, START, shifted, mode, frames="curobo")
    result = trajcli.integrate(ACTIONS, START, UNEVEN, mode, convention="curobo")
    assert_rows(result, expected, slice(None))
    other_first = UNEVEN.copy()
    other_first[:, 0] = 3.0
    assert_rows(
        trajcli.integrate(ACTIONS, START, other_first, mode, convention="curobo"),
        expected,
        slice(None),
    )


@pytest.mark.parametrize("ends", ["plan", "goal"])
def test_central_in_the_curobo_convention_has_a_row_before_the_start_and_two_held(
    ends: str,
) -> None:
    goal = np.array([0.25, -3.0]) if ends == "goal" else None
    options = {"ends": ends, "goal": goal, "convention": "curobo"}
    result = trajcli.integrate(ACTIONS, START, 0.07, "central", **options)
    last = ACTIONS[:, -1] if goal is None else np.broadcast_to(goal, (3, 2))
    assert result.position.shape == (3, 12, 2)
    assert (result.position[:, 1] == START.position).all()
    assert (result.position[:, 2:9] == ACTIONS[:, :-1]).all()
    for row in (9, 10, 11):
        assert (result.position[:, row] == last).all()
    for part in PARTS[1:]:
        assert (getattr(result, part)[:, 11] == 0).all()
    np.testing.assert_allclose(result.time, 0.07 * np.arange(-1, 11), rtol=1e-14)


@pytest.mark.parametrize("degree", [3, 4, 5])
def test_bspline_has_a_row_for_every_sample_of_every_segment_and_one_more(degree: int) -> None:
    for steps in (1, 2, 5):
        result = trajcli.integrate(ACTIONS, START, 0.1, "bspline", degree=degree, steps=steps)
        rows = (8 + degree + 1) * steps + 1
        assert result.position.shape == (3, rows, 2)
        np.testing.assert_allclose(result.time, 0.1 * np.arange(rows), rtol=1e-14)


@pytest.mark.parametrize("mode", [*MODES, "bspline"])
@pytest.mark.parametrize("part", PARTS)
def test_each_output_is_the_same_when_it_alone_is_asked_for(mode: str, part: str) -> None:
    whole = trajcli.integrate(ACTIONS, START, 0.1, mode)
    alone = trajcli.integrate(ACTIONS, START, 0.1, mode, write=[part])
    for name in PARTS:
        if name == part:
            assert (getattr(alone, name) == getattr(whole, name)).all()
        else:
            assert getattr(alone, name) is None
