"""Rotations as actions: angular rates, delta and relative turns, of files."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from trajcli import State, rotations

TILTED = np.array([0.5, -0.5, 0.1, 0.7])  # w, x, y, z
TILTED /= np.linalg.norm(TILTED)


def numbers(values):
    return ",".join(repr(float(value)) for value in values)


def as_quaternions(turn):
    return turn.as_quat(scalar_first=True)


def require_equal(q, expected, atol):
    signs = np.sign((q * expected).sum(-1, keepdims=True))
    np.testing.assert_allclose(q, signs * expected, rtol=0, atol=atol)


@pytest.fixture
def rates(folder):
    """Angular velocities [2, 40, 3] of two trajectories, as a file that trajcli recognises."""
    omega = np.cumsum(np.random.default_rng(0).normal(size=(2, 40, 3)), 1)
    with h5py.File("rates.h5", "w") as file:
        file["angular_velocity"], file["gyro"] = omega, omega
    return omega


@pytest.mark.parametrize("frame", ["world", "body"])
@pytest.mark.parametrize("scheme", ["euler", "zoh", "foh"])
def test_angular_velocities_are_integrated_to_orientations(trajcli, rates, scheme, frame):
    vector = Rotation.from_quat(TILTED, scalar_first=True).as_rotvec()
    more = f"--mode velocity --scheme {scheme} --rotation-frame {frame} --dt 0.01 -o out.h5"
    expected = rotations.integrate(
        rates, State(TILTED, np.zeros(3)), 0.01, scheme=scheme, frame=frame
    )
    for source, start in (
        ("rates.h5:angular_velocity", TILTED),  # a quaternion, or a rotation vector
        ("rates.h5:angular_velocity", vector),
        ("rates.h5:gyro --rotation rotvec", TILTED),
    ):
        result = trajcli(f"integrate {source} {more} --overwrite --start", numbers(start))
        assert result.code == 0, result.err
        with h5py.File("out.h5") as file:
            for name, values in zip(("orientation", *rotations.RATES), expected, strict=True):
                np.testing.assert_allclose(file[name], values, rtol=0, atol=1e-9)
            assert "position" not in file
    assert trajcli("check out.h5").code == 0
    assert trajcli("check out.h5 --recompute").code == 0


@pytest.mark.parametrize("frame", ["world", "body"])
def test_differences_of_a_file_lead_back_to_its_orientations(trajcli, folder, frame):
    turns = np.cumsum(np.random.default_rng(1).normal(0, 0.1, (500, 3)), 0)
    q = as_quaternions(Rotation.from_rotvec(turns))
    np.save("quat.npy", q)
    line = f"--rotation wxyz --method backward --rotation-frame {frame} --dt 0.01 -o rates.h5"
    assert trajcli(f"differentiate quat.npy {line}").code == 0
    # the rate of row t leads to it; row 0 has that of row 1
    with h5py.File("rates.h5") as file, h5py.File("actions.h5", "w") as actions:
        actions["angular_velocity"] = file["angular_velocity"][:, 1:]
    line = f"--mode velocity --rotation-frame {frame} --dt 0.01 -o back.h5 --start"
    result = trajcli(f"integrate actions.h5:angular_velocity {line}", numbers(q[0]))
    assert result.code == 0, result.err
    with h5py.File("back.h5") as file:
        require_equal(file["orientation"][0], q, 1e-12)


@pytest.mark.parametrize("frame", ["world", "body"])
def test_delta_actions_of_an_end_effector_become_poses_and_back(trajcli, folder, frame):
    random = np.random.default_rng(2)
    deltas = np.concatenate(
        [random.normal(0, 0.01, (30, 3)), random.normal(0, 0.2, (30, 3)), np.ones((30, 1))], 1
    )
    turn = Rotation.from_quat(TILTED, scalar_first=True)
    poses, place = [turn], np.array([0.1, 0.2, 0.3])
    for step in Rotation.from_rotvec(deltas[:, 3:6]):
        turn = step * turn if frame == "world" else turn * step
        poses.append(turn)
    start = [*place, *poses[0].as_rotvec(), 0.0]
    with h5py.File("demo.h5", "w") as file:
        file["actions"], file["start/position"] = deltas, start
    line = "--mode clique --actions delta --absolute 6 --rotation 3:6=rotvec --dt 0.05"
    result = trajcli(f"integrate demo.h5 {line} --rotation-frame {frame} -o poses.h5")
    assert result.code == 0, result.err
    expected = as_quaternions(Rotation.concatenate(poses))
    with h5py.File("poses.h5") as file:
        require_equal(file["orientation"][0], expected, 1e-12)
        positions = file["position"][0]
        np.testing.assert_allclose(positions[1:, :3], place + np.cumsum(deltas[:, :3], 0))
        np.testing.assert_array_equal(positions[1:, 3], 1.0)  # the gripper
        back = rotations.decompose(file["orientation"][:], frame=frame)
        turned = expected[1:], expected[:-1]
    vectors = rotations.from_quaternions(back[0], "rotvec")
    np.testing.assert_allclose(vectors, deltas[:, 3:6], atol=1e-12)
    # relative to the start, by quaternions
    offsets = rotations.decompose(expected, kind="relative", frame=frame)
    with h5py.File("offsets.h5", "w") as file:
        file["actions"] = offsets
    line = f"--mode clique --actions relative --rotation wxyz --rotation-frame {frame} --dt 0.05"
    result = trajcli(f"integrate offsets.h5 {line} -o again.h5 --start", numbers(TILTED))
    assert result.code == 0, result.err
    with h5py.File("again.h5") as file:
        require_equal(file["orientation"][0], expected, 1e-12)
        omega = file["angular_velocity"][0, 1:]
    later, earlier = (Rotation.from_quat(x, scalar_first=True) for x in turned)
    step = later * earlier.inv() if frame == "world" else earlier.inv() * later
    np.testing.assert_allclose(omega, step.as_rotvec() / 0.05, atol=1e-10)


def test_a_gyroscope_with_a_stamp_for_each_row_is_integrated_by_foh(trajcli, folder):
    t = np.cumsum(np.random.default_rng(3).uniform(0.005, 0.015, 200))
    omega = np.stack([np.sin(t), 0.5 * np.cos(2 * t), 0.3 + 0 * t], 1)
    np.savetxt("imu.csv", np.column_stack([t, omega]), "%.17g", ",", comments="",
               header="time,wx,wy,wz")  # fmt: skip
    line = "--mode velocity --rotation rotvec --rotation-frame body --start zero -o out.h5"
    result = trajcli(f"integrate imu.csv {line}")
    assert result.code == 0, result.err
    expected = rotations.integrate(
        omega[1:], State(np.array([1.0, 0, 0, 0]), omega[0]), np.diff(t), scheme="foh",
        frame="body",
    )  # fmt: skip
    with h5py.File("out.h5") as file:
        require_equal(file["orientation"][0], expected.orientation[0], 1e-12)
        assert file["orientation"].shape == (1, 200, 4)


def test_modes_that_take_dofs_one_by_one_refuse_rotations(trajcli, rates):
    np.save("quat.npy", rotations.exp(rates[0]))
    for line, what in (
        ("quat.npy --rotation wxyz --mode velocity", "takes angular rates"),
        ("quat.npy --rotation wxyz --mode bspline", "takes dofs one by one"),
        ("quat.npy --mode velocity", "four dofs whose norm is 1"),
        ("rates.h5:angular_velocity --mode velocity --cost velocity", "no gradients of rotations"),
    ):
        refused = trajcli(f"integrate {line} --dt 0.01 --start zero -o out.h5")
        assert (refused.code, what in refused.err) == (2, True), refused.err
    plain = "rates.h5:angular_velocity --rotation none --mode velocity --dt 0.01 --start zero"
    assert trajcli(f"integrate {plain} -o plain.h5").code == 0
    with h5py.File("plain.h5") as file:
        assert "position" in file
