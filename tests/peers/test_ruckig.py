"""Ruckig's profiles are jerks held over unequal steps: mode jerk under zoh must land on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from exact import QUANTITIES

import trajcli
from trajcli import State

ruckig = pytest.importorskip("ruckig")

MOVES: dict[str, dict[str, list[float]]] = {
    "moving to moving": {
        "current_position": [0.0, 0.1, -0.5],
        "current_velocity": [0.2, -0.3, 0.0],
        "current_acceleration": [0.1, 0.5, -0.5],
        "target_position": [1.0, -2.0, 3.0],
        "target_velocity": [0.0, 0.3, -0.1],
        "target_acceleration": [0.0, 0.0, 0.5],
    },
    "too fast at first, so that it brakes": {
        "current_position": [0.0, 1.0, 2.0],
        "current_velocity": [1.7, -1.4, 0.0],
        "current_acceleration": [0.5, -2.5, 2.6],
        "target_position": [2.0, -2.0, 3.0],
    },
}


def switches(profile: Any) -> tuple[np.ndarray, np.ndarray]:
    """The times at which a profile changes its jerk, and the jerk after each."""
    steps, jerks = [*profile.brake.t, *profile.t], [*profile.brake.j, *profile.j]
    return np.concatenate([[0.0], np.cumsum(steps)]), np.array(jerks)


@pytest.mark.parametrize("samples", [0, 50], ids=["switching times alone", "and samples between"])
@pytest.mark.parametrize("move", MOVES)
def test_jerk_under_zoh_lands_on_ruckigs_own_states(move: str, samples: int) -> None:
    problem, planned = ruckig.InputParameter(3), ruckig.Trajectory(3)
    for name, values in MOVES[move].items():
        setattr(problem, name, values)
    problem.max_velocity, problem.max_acceleration, problem.max_jerk = (
        [1.0] * 3,
        [2.0] * 3,
        [4.0] * 3,
    )
    assert ruckig.Ruckig(3).calculate(problem, planned) == ruckig.Result.Working
    profiles = [switches(profile) for profile in planned.profiles[0]]
    between = np.random.default_rng(0).uniform(0, planned.duration, size=samples)
    times = np.unique(np.concatenate([[0.0], between, *(t for t, _ in profiles)]))
    times = times[times < planned.duration - 1e-9]
    times = times[np.concatenate([[True], np.diff(times) > 1e-12])]

    middles = (times[1:] + times[:-1]) / 2
    jerk = np.empty((1, len(middles), 3))
    for dof, (switched, jerks) in enumerate(profiles):
        held = np.searchsorted(switched, middles, side="right") - 1
        jerk[0, :, dof] = np.append(jerks, 0.0)[np.minimum(held, len(jerks))]

    states = np.array([planned.at_time(time) for time in times])  # [T, 3 parts, dof]
    trajectory = trajcli.integrate(jerk, State(*states[0]), np.diff(times), "jerk", scheme="zoh")
    assert np.abs(trajectory.position).max() > 0.1
    for k, part in enumerate(QUANTITIES[:3]):
        error = np.abs(getattr(trajectory, part)[0] - states[:, k]).max()
        assert error <= 1e-11 * max(1.0, np.abs(states[:, k]).max()), part
    np.testing.assert_allclose(trajectory.time, times, atol=1e-12)
