"""Rotations in files: never differenced by component in silence; rates and turns as actions."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from journeys.arrays import close, read_h5, same, write_h5
from scipy.spatial.transform import Rotation

from trajcli import State, differentiate, rotations


@pytest.fixture
def pose(folder):
    """A tilted body that spins, as a table, as datasets, and without names; with flips of signs."""
    t = np.arange(60) / 100
    q = rotations.exp(np.stack([0.3 + 0.0 * t, 0.1 * t, 3.0 * t], 1))
    q *= np.where(np.arange(60) % 7 == 3, -1.0, 1.0)[:, None]
    p = np.stack([t, t**2, 0.1 * np.sin(t)], 1)
    xyzw = q[:, [1, 2, 3, 0]]
    heading = "time,x,y,z,qx,qy,qz,qw"
    np.savetxt("pose.csv", np.concatenate([t[:, None], p, xyzw], 1), "%.17g", ",", header=heading,
               comments="")  # fmt: skip
    write_h5("pose.h5", position=p, times=t, orientation_xyzw=xyzw, quat=q, state=np.hstack([p, q]))
    return folder


def test_no_command_takes_a_rotation_by_component_in_silence(trajcli, pose):
    for line, what in (
        ("integrate pose.csv --mode central --start zero -o out.h5", "these are a rotation"),
        ("fit pose.h5:quat --knots 8 -o out.h5", "whose order is not known"),
        ("fit pose.h5:state --knots 8 -o out.h5", "four dofs whose norm is 1"),
        ("score pose.h5:state", ""),
        ("score pose.h5:quat", ""),
    ):
        trajcli.refuses(f"{line} --dt 0.01", what, "--rotation none")
    trajcli.ok("fit pose.csv --dofs x,y,z --knots 8 --dt 0.01 -o out.h5")


def test_views_say_what_they_take_for_a_rotation(trajcli, pose):
    for command in ("inspect", "check", "plot -o fig.png", "export -o out.csv"):
        name, *more = command.split()
        shown = trajcli(f"{name} pose.csv", *more)
        assert "q (dofs 6, 3, 4, 5: wxyz) is a rotation" in shown.out + shown.err, command
    assert "is a rotation" not in trajcli("inspect pose.csv --rotation none").out
    shown = trajcli("inspect pose.h5:state --rotation 3:7=wxyz")
    assert "3:7 (dofs 3, 4, 5, 6: wxyz) is a rotation" in shown.out + shown.err


def test_options_that_fit_no_rotation_are_refused(trajcli, pose):
    for option in ("euler", "0:3=xyzw", "qx,qy,qz=xyzw", "9:13=xyzw"):
        trajcli.refuses(f"inspect pose.csv --rotation {option}", "--rotation")


def test_rotations_of_several_blocks_are_recomputed(trajcli, folder):
    turned = Rotation.from_rotvec(np.cumsum(np.full((30_000, 3), 1e-3), 0))
    write_h5("long.h5", orientation=turned.as_quat(scalar_first=True), dt=0.01)
    trajcli.ok("differentiate long.h5:orientation --rotation wxyz --method central -o turned.h5")
    trajcli.ok("check turned.h5 --recompute")
    with h5py.File("turned.h5", "r+") as file:
        file["angular_velocity"][0, 29_000, 1] += 1e-3
    checks = trajcli.fails("check turned.h5 --recompute --json").document["checks"]
    (failed,) = (check for check in checks if not check["passed"] and check["passed"] is not None)
    assert (failed["check"], failed["dataset"]) == ("recompute", "angular_velocity")


@pytest.mark.parametrize(
    ("method", "frame"),
    [("backward", "world"), ("central", "body"), ("savgol --window 9", "world")],
)
def test_recordings_are_differentiated_as_rotations(trajcli, pose, method, frame):
    name, *more = method.split()
    options = {"window": int(more[1])} if more else {}
    columns = np.loadtxt("pose.csv", delimiter=",", skiprows=1)
    q = columns[:, [7, 4, 5, 6]]
    expected = rotations.differentiate(q, dt=0.01, method=name, frame=frame, **options)
    for source in ("pose.csv", "pose.h5:orientation_xyzw", "pose.h5:quat --rotation wxyz",
                   "pose.h5:state --rotation 3:7=wxyz"):  # fmt: skip
        line = f"differentiate {source} --method {method} --rotation-frame {frame} -o out.h5"
        trajcli.ok(line, "--overwrite", "--dt", "0.01")
        with h5py.File("out.h5") as file:
            names = ("orientation", *rotations.RATES)
            for order, (part, values) in enumerate(zip(names, expected, strict=True)):
                bound = 1e-15 * 100.0**order  # rounding of quaternions over dt
                close(file[part][:], values, rtol=0, atol=bound * 10)
            assert file["orientation"].attrs["order"] == "wxyz"
            assert file["angular_jerk"].attrs["units"] == "rad/s^3"
            assert file.attrs["rotation_frame"] == frame
            if "csv" in source or "state" in source:
                alone = differentiate(columns[:, 1:4], dt=0.01, method=name, **options)
                for part, values in alone.outputs().items():
                    same(file[part][:], values)
            else:
                assert "position" not in file
        trajcli.ok("check out.h5 --recompute")


def test_bodies_and_lengths_are_written_each_to_its_place(trajcli, folder):
    random, pairs = np.random.default_rng(0), {}
    for k, rows in enumerate((20, 33, 20)):
        pair = rotations.exp(np.cumsum(random.normal(0, 0.05, (rows, 2, 3)), 0)).astype("f4")
        pairs[f"data/demo_{k}"] = pair
    flat = {name: pair.reshape(len(pair), 8) for name, pair in pairs.items()}
    write_h5("demos.h5", {f"{name}/position": q[:, [*range(8), 0]] for name, q in flat.items()})
    line = "differentiate demos.h5 --rotation 0:8=wxyz --method central --dt 0.1 -o"
    for out in ("out.h5", "out.npz"):
        trajcli.ok(f"{line} {out}")
    file, archive = read_h5("out.h5"), np.load("out.npz")
    for name, pair in pairs.items():
        expected = rotations.differentiate(pair[None], dt=0.1, method="central")
        for part, values in zip(("orientation", *rotations.RATES), expected, strict=True):
            same(file[f"{name}/{part}"], values[0])
            same(archive[f"{name}/{part}"], values[0])
        assert file[f"{name}/position"].shape == (len(pair), 1)
    trajcli.ok(f"{line} some.h5 --write velocity")
    with h5py.File("some.h5") as file:
        assert set(file["data/demo_0"]) == {"velocity", "angular_velocity", "time", "dof"}
    trajcli.repeats_and_divides(line.replace("central", "smooth --bandlimit 2").removesuffix(" -o"))
    shown = trajcli("inspect whole.h5:orientation --json").document["datasets"]
    assert shown[0]["dofs"] == [f"{k}/q{axis}" for k in range(2) for axis in "wxyz"]
    assert [rotation["form"] for rotation in shown[0]["rotations"]] == ["wxyz", "wxyz"]


@pytest.mark.parametrize("method", ["central", "savgol --window 0.15s", "smooth"])
def test_rows_of_long_recordings_are_computed_a_few_at_a_time(trajcli, pose, method, monkeypatch):
    random = np.random.default_rng(2)
    pair = rotations.exp(np.cumsum(random.normal(0.01, 0.02, (700, 2, 3)), 0))
    pair[300:302] *= -1
    rows = np.concatenate([pair.reshape(700, 8), random.normal(size=(700, 2))], 1)
    write_h5("long.h5", pair=rows, times=np.cumsum(random.uniform(0.008, 0.012, 700)))
    line = f"differentiate long.h5:pair --rotation 0:8=wxyz --method {method} -o"
    trajcli.ok(f"{line} whole.h5")
    monkeypatch.setattr("trajcli.rotations._rates.ROTATION_VALUES", 500)
    monkeypatch.setattr("trajcli.rotations.ROTATION_VALUES", 500)
    trajcli.ok(f"{line} part.h5")
    assert Path("part.h5").read_bytes() == Path("whole.h5").read_bytes()


def test_smooth_writes_what_it_chose_about_each_axis(trajcli, pose):
    columns = np.loadtxt("pose.csv", delimiter=",", skiprows=1)
    result = trajcli.ok("differentiate pose.csv --bandlimit 8 -o out.h5 --json")
    assert result.document["mode"] == "smooth"
    trajcli.ok("differentiate pose.h5:orientation_xyzw --method smooth --dt 0.01 -o one.h5")
    expected = rotations.differentiate(
        columns[:, [7, 4, 5, 6]], times=columns[:, 0], method="smooth", bandlimit=8.0
    )
    alone = differentiate(columns[:, 1:4], times=columns[:, 0], method="smooth", bandlimit=8.0)
    with h5py.File("out.h5") as file, h5py.File("one.h5") as one:
        for name, values in zip(("orientation", *rotations.RATES), expected, strict=True):
            close(file[name], values, atol=1e-9 * abs(values).max())
        close(file["velocity"], alone.velocity, rtol=1e-9, atol=1e-12)
        assert file["angular_bandlimit"].shape == (1, 3)
        assert file["bandlimit"].shape == (1, 3)
        assert (one["angular_residual"][0] >= 0).all()
        assert "bandlimit" not in one
    trajcli.ok("check out.h5 --recompute")


def test_norms_and_missing_rows_are_said_with_their_place(trajcli, pose):
    with h5py.File("pose.h5", "a") as file:
        q = np.tile(file["quat"][:], (3, 1, 1))
        file["near_wxyz"], file["orientation_wxyz"] = q * 1.0009, q
        file["orientation_wxyz"][2, 40] *= 1.002
        q[1, 7] = np.nan
        file["missing_quat_wxyz"] = q
    line = "--method backward --dt 0.01 -o out.h5 --overwrite"
    assert "normalised" in trajcli.ok(f"differentiate pose.h5:near_wxyz --rotation wxyz {line}").err
    trajcli.refuses(f"differentiate pose.h5:orientation_wxyz {line}", "trajectory 2, entry [40]")
    trajcli.refuses(f"differentiate pose.h5:missing_quat_wxyz {line}", "trajectory 1, step 7")
    trajcli.ok(f"differentiate pose.h5:missing_quat_wxyz {line} --allow-nonfinite")
    with h5py.File("out.h5") as file:
        rows = np.argwhere(np.isnan(file["angular_jerk"][:]).any(2))
        assert set(rows[:, 0]) == {1}
        assert rows[:, 1].min() >= 7
        assert rows[:, 1].max() <= 10


@pytest.mark.parametrize(
    ("method", "curve", "frame"), [("linear", "slerp", "world"), ("cubic", "spline", "body")]
)
def test_recordings_are_resampled_as_rotations(trajcli, pose, method, curve, frame):
    columns = np.loadtxt("pose.csv", delimiter=",", skiprows=1)
    expected = rotations.resample(columns[:, [7, 4, 5, 6]], curve, dt=0.01, rate=250, frame=frame)
    for source in ("pose.csv", "pose.h5:orientation_xyzw", "pose.h5:state --rotation 3:7=wxyz"):
        trajcli.ok(
            f"resample {source} --method {method} --rotation-frame {frame} --dt 0.01",
            *["--to", "250", "-o", "out.h5", "--overwrite"],
        )
        with h5py.File("out.h5") as file:
            for order, name in enumerate(("orientation", *rotations.RATES)):
                values = getattr(expected, name)
                assert (name in file) == (values is not None)
                if values is not None:
                    close(file[name][:], values, rtol=0, atol=1e-14 * 100.0**order)
            assert ("data" in file or "state" in file) == ("orientation" not in source)
    trajcli.refuses("resample pose.csv --to 50 --method quintic -o out.h5 --overwrite", "slerp")
    trajcli.ok("differentiate pose.csv -o both.h5")
    for line in ("differentiate {}", "resample {} --to 50"):
        line += " -o positions.h5 --overwrite"
        for source, what in (
            ("both.h5", "both.h5:/orientation is left out"),
            ("pose.h5", "note: pose.h5:/orientation_xyzw and 1 more are left out"),
        ):
            assert what in trajcli(line.format(source)).err
        # SOURCE names what is meant
        assert "left out" not in trajcli(line.format("pose.h5:position")).err
    trajcli.ok("resample both.h5:orientation --to 50 -o again.h5 --overwrite")


TILTED = np.array([0.5, -0.5, 0.1, 0.7])  # w, x, y, z
TILTED /= np.linalg.norm(TILTED)


def numbers(values):
    return ",".join(repr(float(value)) for value in values)


def turns(quaternions):
    return Rotation.from_quat(quaternions, scalar_first=True)


def require_equal(q, expected, atol):
    close(q, np.sign((q * expected).sum(-1, keepdims=True)) * expected, rtol=0, atol=atol)


@pytest.fixture
def rates(folder):
    """Angular velocities [2, 40, 3] of two trajectories, as a file that trajcli recognises."""
    omega = np.cumsum(np.random.default_rng(0).normal(size=(2, 40, 3)), 1)
    write_h5("rates.h5", angular_velocity=omega, gyro=omega)
    return omega


@pytest.mark.parametrize(
    ("scheme", "frame"), [("euler", "body"), ("zoh", "world"), ("foh", "body")]
)
def test_angular_velocities_are_integrated_to_orientations(trajcli, rates, scheme, frame):
    vector = turns(TILTED).as_rotvec()
    more = f"--mode velocity --scheme {scheme} --rotation-frame {frame} --dt 0.01 -o out.h5"
    expected = rotations.integrate(
        rates, State(TILTED, np.zeros(3)), 0.01, scheme=scheme, frame=frame
    )
    for source, start in (
        ("rates.h5:angular_velocity", TILTED),  # a quaternion, or a rotation vector
        ("rates.h5:angular_velocity", vector),
        ("rates.h5:gyro --rotation rotvec", TILTED),
    ):
        trajcli.ok(f"integrate {source} {more} --overwrite --start", numbers(start))
        with h5py.File("out.h5") as file:
            for name, values in zip(("orientation", *rotations.RATES), expected, strict=True):
                close(file[name], values, rtol=0, atol=1e-9)
            assert "position" not in file
    trajcli.ok("check out.h5")
    trajcli.ok("check out.h5 --recompute")


@pytest.mark.parametrize("frame", ["world", "body"])
def test_delta_actions_of_an_end_effector_become_poses_and_back(trajcli, folder, frame):
    random = np.random.default_rng(2)
    deltas = np.concatenate(
        [random.normal(0, 0.01, (30, 3)), random.normal(0, 0.2, (30, 3)), np.ones((30, 1))], 1
    )
    turn = turns(TILTED)
    poses, place = [turn], np.array([0.1, 0.2, 0.3])
    for step in Rotation.from_rotvec(deltas[:, 3:6]):
        turn = step * turn if frame == "world" else turn * step
        poses.append(turn)
    write_h5("demo.h5", {"start/position": [*place, *poses[0].as_rotvec(), 0.0]}, actions=deltas)
    line = "--mode clique --actions delta --absolute 6 --rotation 3:6=rotvec --dt 0.05"
    trajcli.ok(f"integrate demo.h5 {line} --rotation-frame {frame} -o poses.h5")
    expected = Rotation.concatenate(poses).as_quat(scalar_first=True)
    with h5py.File("poses.h5") as file:
        require_equal(file["orientation"][0], expected, 1e-12)
        positions = file["position"][0]
        close(positions[1:, :3], place + np.cumsum(deltas[:, :3], 0))
        same(positions[1:, 3], 1.0)  # the gripper
        back = rotations.decompose(file["orientation"][:], frame=frame)
        turned = expected[1:], expected[:-1]
    close(rotations.from_quaternions(back[0], "rotvec"), deltas[:, 3:6], atol=1e-12)
    # relative to the start, by quaternions
    write_h5("offsets.h5", actions=rotations.decompose(expected, kind="relative", frame=frame))
    line = f"--mode clique --actions relative --rotation wxyz --rotation-frame {frame} --dt 0.05"
    trajcli.ok(f"integrate offsets.h5 {line} -o again.h5 --start", numbers(TILTED))
    with h5py.File("again.h5") as file:
        require_equal(file["orientation"][0], expected, 1e-12)
        omega = file["angular_velocity"][0, 1:]
    later, earlier = map(turns, turned)
    step = later * earlier.inv() if frame == "world" else earlier.inv() * later
    close(omega, step.as_rotvec() / 0.05, atol=1e-10)


def test_a_gyroscope_with_stamps_is_integrated_by_foh(trajcli, folder):
    t = np.cumsum(np.random.default_rng(3).uniform(0.005, 0.015, 200))
    omega = np.stack([np.sin(t), 0.5 * np.cos(2 * t), 0.3 + 0 * t], 1)
    np.savetxt("imu.csv", np.column_stack([t, omega]), "%.17g", ",", comments="",
               header="time,wx,wy,wz")  # fmt: skip
    line = "--mode velocity --rotation rotvec --rotation-frame body --start zero -o out.h5"
    trajcli.ok(f"integrate imu.csv {line}")
    expected = rotations.integrate(
        omega[1:], State(np.array([1.0, 0, 0, 0]), omega[0]), np.diff(t), scheme="foh",
        frame="body",
    )  # fmt: skip
    with h5py.File("out.h5") as file:
        require_equal(file["orientation"][0], expected.orientation[0], 1e-12)
        assert file["orientation"].shape == (1, 200, 4)


@pytest.mark.parametrize(("ending", "mark"), [("h5", "/"), ("npz", "_")])
def test_a_start_orientation_is_where_angular_velocities_begin(trajcli, rates, ending, mark):
    first = Rotation.random(2, random_state=1).as_quat(canonical=True, scalar_first=True)
    arrays = {"angular_velocity": rates, "dt": 0.01}
    files = {
        "in": arrays | {f"start{mark}orientation": first},
        "bare": arrays,
        "state": {"orientation": first},
        "other": {"q_xyzw": first[:, [1, 2, 3, 0]]},
        "named": arrays | {"start/orientation_xyzw": first[:, [1, 2, 3, 0]]},
        "three": arrays | {"start/orientation": first[:, 1:]},
        "five": arrays | {"start/orientation": np.ones((2, 5))},
    }
    for name, values in files.items():
        (np.savez if ending == "npz" else write_h5)(f"{name}.{ending}", **values)
    end = turns(first)
    for step in np.moveaxis(rates, 1, 0):
        end = Rotation.from_rotvec(0.01 * step) * end
    last = end.as_quat(scalar_first=True)
    more = ":angular_velocity --mode velocity --overwrite -o out.h5"
    bare = f"bare.{ending}{more}"
    rows = [",".join(map(str, [q[k] for k in (2, 0, 1, 3)])) for q in first]
    Path("state.csv").write_text("\n".join(["qy,qw,qx,qz", *rows]))
    for line in (f"in.{ending}{more}", f"{bare} --start state.{ending}",
                 f"named.{ending}{more}", f"{bare} --start state.csv:qx,qy,qz,qw",
                 f"{bare} --start state.csv:data", f"{bare} --start state.{ending}:orientation",
                 f"{bare} --start other.{ending}:q_xyzw"):  # fmt: skip
        trajcli.ok(f"integrate {line}")
        found = read_h5("out.h5")["orientation"]
        require_equal(found[:, 0], first, 1e-12)
        require_equal(found[:, -1], last, 1e-12)
    for name in ("three", "five"):
        result = trajcli(f"integrate {name}.{ending}{more}")
        assert result.code == 2
        assert "[B, 4]" in result.err
