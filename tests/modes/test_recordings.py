"""Recordings: no separate start state, T = H, and rows before the data began."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from exact import PARTS

import trajcli
from trajcli import State

RECORDING = np.random.default_rng(0).normal(size=(2, 9, 3))
STEPS = np.random.default_rng(1).uniform(0.05, 0.1, size=8)
METHODS = ("backward", "central")


@pytest.mark.parametrize("method", METHODS)
def test_recording_has_a_row_for_every_action_and_its_positions(method: str) -> None:
    result = trajcli.differentiate(RECORDING, dt=STEPS, method=method)
    assert (result.position == RECORDING).all()
    assert result.time[0] == 0
    for part in PARTS:
        assert getattr(result, part).shape == RECORDING.shape
    np.testing.assert_allclose(result.time, np.concatenate([[0], np.cumsum(STEPS)]), rtol=1e-14)


@pytest.mark.parametrize("dt", [0.1, STEPS], ids=["even", "uneven"])
def test_clique_gives_the_rows_before_the_data_the_first_value_there_is(dt: Any) -> None:
    result = trajcli.differentiate(RECORDING, dt=dt, method="backward")
    step = np.broadcast_to(dt, 8)
    velocity = (RECORDING[:, 1] - RECORDING[:, 0]) / step[0]
    np.testing.assert_allclose(result.velocity[:, 1], velocity, rtol=1e-14)
    assert (result.velocity[:, 0] == result.velocity[:, 1]).all()
    assert (result.acceleration[:, :2] == result.acceleration[:, 2:3]).all()
    assert (result.jerk[:, :3] == result.jerk[:, 3:4]).all()
    for rows in (result.velocity[:, 1:3], result.acceleration[:, 2:4], result.jerk[:, 3:5]):
        assert (rows[:, 0] != rows[:, 1]).all()


def test_clique_of_a_recording_and_of_a_plan_agree_where_both_are_differences() -> None:
    recorded = trajcli.differentiate(RECORDING, dt=STEPS, method="backward")
    planned = trajcli.integrate(RECORDING[:, 1:], State(RECORDING[:, 0]), STEPS, "clique")
    for order, part in enumerate(PARTS):
        one, two = getattr(recorded, part), getattr(planned, part)
        assert (one[:, order:] == two[:, order:]).all(), part


@pytest.mark.parametrize("dt", [0.1, STEPS], ids=["even", "uneven"])
def test_central_of_a_recording_and_of_a_plan_agree_away_from_the_ends(dt: Any) -> None:
    recorded = trajcli.differentiate(RECORDING, dt=dt, method="central")
    planned = trajcli.integrate(RECORDING[:, 1:], State(RECORDING[:, 0]), dt, "central")
    for part in PARTS:
        one, two = getattr(recorded, part), getattr(planned, part)
        np.testing.assert_allclose(one[:, 2:-2], two[:, 2:-2], rtol=1e-12, err_msg=part)
        if part != "position":
            assert (one[:, :2] != two[:, :2]).all()
            assert (one[:, -2:] != two[:, -2:]).all()


@pytest.mark.parametrize("method", METHODS)
def test_all_ways_to_give_a_recordings_steps_agree(method: str) -> None:
    expected = trajcli.differentiate(RECORDING, dt=STEPS, method=method)
    with_first = np.concatenate([[7.0], STEPS])
    for dt in (with_first, np.tile(STEPS, (2, 1)), np.tile(with_first, (2, 1)), STEPS[None]):
        result = trajcli.differentiate(RECORDING, dt=dt, method=method)
        for part in PARTS:
            assert (getattr(result, part) == getattr(expected, part)).all()
        assert (result.time == expected.time).all()


@pytest.mark.parametrize(
    ("rows", "known"),
    [(1, ("position",)), (2, ("position", "velocity")), (3, PARTS[:3]), (4, PARTS)],
)
def test_clique_of_a_short_recording_is_at_rest_where_it_has_no_difference(
    rows: int, known: tuple[str, ...]
) -> None:
    result = trajcli.differentiate(RECORDING[:, :rows], dt=0.1, method="backward")
    for part in PARTS:
        values = getattr(result, part)
        assert values.shape == (2, rows, 3)
        assert (values != 0).all() if part in known else (values == 0).all(), part


@pytest.mark.parametrize("dt", [np.zeros(0), np.zeros((1, 0)), 0.1], ids=["[0]", "[1, 0]", "one"])
@pytest.mark.parametrize("make", [np.asarray, torch.tensor])
def test_a_recording_of_one_row_needs_no_step(dt, make):
    actions = make(np.array([[[3.0]]], dtype="f4"))
    sample = make(dt) if isinstance(dt, np.ndarray) else dt
    result = trajcli.differentiate(actions, dt=sample, method="backward")
    assert [float(x[0, 0, 0]) for x in (result.position, result.velocity)] == [3.0, 0.0]
