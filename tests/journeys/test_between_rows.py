"""A plan at the rate of a controller, from the shell."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

QUANTITIES = ("position", "velocity", "acceleration", "jerk")


def test_ruckigs_plan_at_a_kilohertz_is_its_own_at_every_millisecond(trajcli, folder):
    ruckig = pytest.importorskip("ruckig")
    move = ruckig.InputParameter(3)
    move.current_position, move.target_position = [0.0, 0.1, -0.5], [1.0, -2.0, 3.0]
    move.current_velocity, move.target_velocity = [0.2, -0.3, 0.0], [0.0, 0.3, -0.1]
    move.max_velocity, move.max_acceleration, move.max_jerk = [1.0] * 3, [2.0] * 3, [4.0] * 3
    profile = ruckig.Trajectory(3)
    assert ruckig.Ruckig(3).calculate(move, profile) == ruckig.Result.Working
    ends = [np.cumsum([*p.brake.t, *p.t]) for p in profile.profiles[0]]
    jerks = [np.array([*p.brake.j, *p.j, 0.0]) for p in profile.profiles[0]]
    times = np.unique(np.concatenate([[0.0], *ends]))
    times = times[np.concatenate([[True], np.diff(times) > 1e-12])]
    middles = (times[1:] + times[:-1]) / 2
    held = [j[np.searchsorted(end, middles)] for j, end in zip(jerks, ends, strict=True)]
    np.savez(
        "in.npz", actions=np.stack(held, -1)[None], times=times,
        start_position=move.current_position, start_velocity=move.current_velocity,
    )  # fmt: skip
    assert trajcli("integrate in.npz --mode jerk --scheme zoh -o plan.h5").code == 0
    result = trajcli("resample plan.h5 --to 1000 -o out.h5")
    assert result.code == 0, result.err
    with h5py.File("out.h5") as file:
        stamps = file["time"][:]
        np.testing.assert_array_equal(stamps, np.arange(int(times[-1] * 1000) + 1) / 1000)
        states = np.array([profile.at_time(time) for time in stamps])  # [T, 3 parts, dof]
        for k, name in enumerate(QUANTITIES[:3]):
            np.testing.assert_allclose(file[name][0], states[:, k], rtol=0, atol=1e-10)
