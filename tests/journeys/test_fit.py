"""trajcli fit, as a user types it, and what integrate makes of its output."""

from __future__ import annotations

import shlex

import h5py
import numpy as np
import pytest

import trajcli as library

TIME = np.arange(200) * 0.01


def motion(count: int = 5, rows: int = 200):
    speeds = np.random.default_rng(0).uniform(1, 4, (count, 1, 3))
    return np.sin(speeds * TIME[:rows, None])


@pytest.fixture
def recordings(folder):
    with h5py.File("in.h5", "w") as file:
        file["position"], file["times"] = motion(), TIME
        file["position"].attrs["units"] = "rad"
        file["joint_names"] = ["a", "b", "c"]
    return folder


@pytest.mark.parametrize("degree", [3, 5])
@pytest.mark.parametrize("target", ["points.h5", "points.npz"])
def test_integrate_makes_the_curve_of_a_fit(trajcli, recordings, degree, target):
    line = f"fit in.h5 --knots 20 --degree {degree} --steps 4 -o {target} --json"
    report = trajcli(line)
    assert report.code == 0, report.err
    assert report.document["trajectories"] == 5
    assert trajcli(f"integrate {target} -o out.h5").code == 0  # mode and options are in the file
    fitted = library.fit(motion(), 0.01, knots=20, degree=degree)
    assert report.document["error"]["most"] == pytest.approx(fitted.error.max(), rel=1e-9)
    made = library.integrate(fitted.actions, fitted.start, fitted.knot[:, None] / 4, "bspline",
                             degree=degree, steps=4, ends="goal", goal=fitted.goal)  # fmt: skip
    with h5py.File("out.h5") as file:
        for name, values in made.outputs().items():
            np.testing.assert_allclose(file[name][:], values, atol=1e-6, rtol=1e-9)
        if target == "points.h5":
            assert file["position"].attrs["units"] == "rad"
            assert [one.decode() for one in file["dof"][:]] == ["a", "b", "c"]
        time = np.ravel(file["time"][:])
        assert time[81 - 1] == pytest.approx(1.99)


def test_the_line_that_the_command_shows_next_works(trajcli, recordings):
    result = trajcli("fit in.h5 --error 0.001 -o", "my points.h5")
    assert result.code == 0, result.err
    assert "no row further than 0.00" in result.out
    (line,) = [one for one in result.out.splitlines() if one.startswith("next: trajcli ")]
    assert trajcli("", *shlex.split(line.removeprefix("next: trajcli ")), "-o", "out.h5").code == 0
    with h5py.File("out.h5") as file:
        at, p = np.atleast_2d(file["time"][:])[0], file["position"][:]
    off = max(np.abs(np.interp(TIME, at, p[b, :, k]) - motion()[b, :, k]).max()
              for b in range(5) for k in range(3))  # fmt: skip
    assert off < 2e-3  # and of straight lines between the rows


def test_demos_of_unequal_length_have_the_same_number_of_control_points(trajcli, folder):
    with h5py.File("demos.h5", "w") as file:
        for n in range(12):
            file[f"demo_{n}/position"] = motion(1, 100 + 10 * (n % 3))[0]
        file.attrs["dt"] = 0.01
    report = trajcli("fit demos.h5 --knots 12 -o points.h5 --json").document
    with h5py.File("points.h5") as file:
        actions, dt = file["actions"][:], file["dt"][:]
    for n in range(12):
        alone = library.fit(motion(1, 100 + 10 * (n % 3)), 0.01, knots=12)
        np.testing.assert_allclose(actions[n], alone.actions[0], atol=1e-9)
        assert dt[n, 0] * report["steps"] == pytest.approx(alone.knot[0])
        assert report["errors"][n] == pytest.approx(alone.error[0], rel=1e-6)


def test_states_are_held_exactly(trajcli, recordings):
    assert trajcli("fit in.h5 --knots 20 --start rest --goal last -o points.h5").code == 0
    with h5py.File("points.h5") as file:
        np.testing.assert_array_equal(file["start/position"][:], motion()[:, 0])
        assert not file["start/velocity"][:].any()
        assert not file["start/jerk"][:].any()
        np.testing.assert_array_equal(file["goal/position"][:], motion()[:, -1])
        assert file["goal/velocity"][:].all()
    random = np.random.default_rng(1).normal(size=(2, 5, 3))
    np.savez("start.npz", position=random[0], velocity=random[1])
    assert trajcli("fit in.h5 --knots 20 --start start.npz --goal 1,2,3 -o held.npz").code == 0
    with np.load("held.npz") as file:
        names = {name.replace("_", "/"): file[name] for name in file.files}
        np.testing.assert_array_equal(names["start/position"], random[0])
        np.testing.assert_array_equal(names["start/velocity"], random[1])
        assert names["start/acceleration"].all()
        np.testing.assert_array_equal(names["goal/position"], [[1.0, 2, 3]] * 5)


def test_velocities_are_not_fitted_and_gaps_are_said(trajcli, recordings):
    with h5py.File("in.h5", "r+") as file:
        file["velocity"] = motion()
        file["times"][100:] = TIME[100:] + 9.0
    result = trajcli("fit in.h5:velocity --knots 20 -o points.h5")
    assert result.code == 2
    assert "not positions" in result.err
    result = trajcli("fit in.h5 --knots 20 -o points.h5")
    assert result.code == 2
    assert "too few rows to fit" in result.err


def test_recordings_that_cannot_be_fitted_are_left_out(trajcli, recordings):
    starts = np.arange(15.0).reshape(5, 3)
    with h5py.File("in.h5", "r+") as file:
        file["position"][1, 7, 2] = np.nan
        file["begin/position"] = starts
    line = "fit in.h5:position --knots 20 --start in.h5:begin -o out.h5"
    assert trajcli(line).code == 2
    result = trajcli(f"{line} --skip-bad --json")
    assert result.code == 1
    (left,) = result.document["left_out"]
    assert "trajectory 1, step 7, dof 2" in left["name"]
    assert result.document["trajectories"] == len(result.document["errors"]) == 4
    with h5py.File("out.h5") as file:  # the others keep the states that are theirs
        np.testing.assert_array_equal(file["start/position"], np.delete(starts, 1, 0))
