"""Rotations in files: never differenced by component in silence."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from trajcli import differentiate, rotations

COMMANDS = {
    "integrate": "--mode central --start zero -o out.h5",
    "fit": "--knots 8 -o out.h5",
}
"""Commands that take dofs one by one."""


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
    with h5py.File("pose.h5", "w") as file:
        file["position"], file["times"] = p, t
        file["orientation_xyzw"], file["quat"], file["state"] = xyzw, q, np.hstack([p, q])
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_takes_a_rotation_by_component_in_silence(trajcli, pose, command):
    again = ["--overwrite"]
    for source, what in (
        ("pose.csv", "these are a rotation"),
        ("pose.h5:orientation_xyzw", "these are a rotation"),
        ("pose.h5:quat", "whose order is not known"),
        ("pose.h5:state", "four dofs whose norm is 1"),
    ):
        refused = trajcli(f"{command} {source} {COMMANDS[command]} --dt 0.01", *again)
        assert (refused.code, what in refused.err) == (2, True), refused.err
        assert "--rotation none" in refused.err
        taken = trajcli(f"{command} {source} --rotation none {COMMANDS[command]} --dt 0.01", *again)
        assert taken.code == 0, taken.err
    scored = trajcli(f"score pose.h5:{'quat' if command == 'fit' else 'state'} --dt 0.01")
    assert (scored.code, "--rotation none" in scored.err) == (2, True)
    picked = trajcli(f"{command} pose.csv --dofs x,y,z {COMMANDS[command]} --dt 0.01", *again)
    assert picked.code == 0, picked.err


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
        refused = trajcli(f"inspect pose.csv --rotation {option}")
        assert (refused.code, "--rotation" in refused.err) == (2, True), option


@pytest.mark.parametrize("frame", ["world", "body"])
@pytest.mark.parametrize("method", ["backward", "central", "savgol --window 9"])
def test_recordings_are_differentiated_as_rotations(trajcli, pose, method, frame):
    name, *more = method.split()
    options = {"window": int(more[1])} if more else {}
    columns = np.loadtxt("pose.csv", delimiter=",", skiprows=1)
    q = columns[:, [7, 4, 5, 6]]
    expected = rotations.differentiate(q, dt=0.01, method=name, frame=frame, **options)
    for source in ("pose.csv", "pose.h5:orientation_xyzw", "pose.h5:quat --rotation wxyz",
                   "pose.h5:state --rotation 3:7=wxyz"):  # fmt: skip
        line = f"differentiate {source} --method {method} --rotation-frame {frame} -o out.h5"
        result = trajcli(line, "--overwrite", "--dt", "0.01")
        assert result.code == 0, result.err
        with h5py.File("out.h5") as file:
            names = ("orientation", *rotations.RATES)
            for order, (part, values) in enumerate(zip(names, expected, strict=True)):
                bound = 1e-15 * 100.0**order  # rounding of quaternions over dt
                np.testing.assert_allclose(file[part][:], values, rtol=0, atol=bound * 10)
            assert file["orientation"].attrs["order"] == "wxyz"
            assert file["angular_jerk"].attrs["units"] == "rad/s^3"
            assert file.attrs["rotation_frame"] == frame
            if "csv" in source or "state" in source:
                alone = differentiate(columns[:, 1:4], dt=0.01, method=name, **options)
                for part, values in alone.outputs().items():
                    np.testing.assert_array_equal(file[part][:], values)
            else:
                assert "position" not in file
        assert trajcli("check out.h5 --recompute").code == 0


def test_bodies_and_lengths_are_written_each_to_its_place(trajcli, pose):
    rng = np.random.default_rng(0)
    recordings = {}
    for k, rows in enumerate((20, 33, 20)):
        pair = rotations.exp(np.cumsum(rng.normal(0, 0.05, (rows, 2, 3)), 0))
        recordings[f"data/demo_{k}"] = pair
        with h5py.File("demos.h5", "a") as file:
            flat = np.concatenate([pair.reshape(rows, 8), rng.normal(size=(rows, 1))], 1)
            file[f"data/demo_{k}/position"] = flat.astype("f4")
    line = "differentiate demos.h5 --rotation 0:8=wxyz --method central --dt 0.1 -o"
    for out in ("out.h5", "out.npz"):
        assert trajcli(f"{line} {out}").code == 0
    with h5py.File("out.h5") as file, np.load("out.npz") as archive:
        for name, pair in recordings.items():
            stored = pair.reshape(len(pair), 8).astype("f4").reshape(pair.shape)
            expected = rotations.differentiate(stored[None], dt=0.1, method="central")
            for part, values in zip(("orientation", *rotations.RATES), expected, strict=True):
                np.testing.assert_array_equal(file[f"{name}/{part}"], values[0])
                np.testing.assert_array_equal(archive[f"{name}/{part}"], values[0])
            assert file[f"{name}/position"].shape == (len(pair), 1)
    written = trajcli(f"{line} some.h5 --write velocity")
    assert written.code == 0
    with h5py.File("some.h5") as file:
        assert set(file["data/demo_0"]) == {"velocity", "angular_velocity", "time", "dof"}


@pytest.mark.parametrize("method", ["central", "smooth --bandlimit 2"])
def test_shards_of_rotations_are_merged_to_the_bytes_of_the_whole(trajcli, pose, method):
    rng = np.random.default_rng(1)
    for k, rows in enumerate((20, 33, 20)):
        with h5py.File("demos.h5", "a") as file:
            pair = rotations.exp(np.cumsum(rng.normal(0, 0.05, (rows, 2, 3)), 0))
            other = rng.normal(size=(rows, 1))
            file[f"data/demo_{k}/position"] = np.concatenate([pair.reshape(rows, 8), other], 1)
    line = f"differentiate demos.h5 --rotation 0:8=wxyz --method {method} --dt 0.1 -o"
    assert trajcli(f"{line} whole.h5").code == 0
    for shard in ("0/2", "1/2"):
        part = trajcli(f"{line} parts.h5 --shard {shard}")
        assert part.code == 0, part.err
    merged = trajcli("merge parts.h5")
    assert merged.code == 0, merged.err
    shown = trajcli("inspect whole.h5:orientation --json").document["datasets"]
    assert shown[0]["dofs"] == [f"{k}/q{axis}" for k in range(2) for axis in "wxyz"]
    assert [rotation["form"] for rotation in shown[0]["rotations"]] == ["wxyz", "wxyz"]
    assert Path("parts.h5").read_bytes() == Path("whole.h5").read_bytes()


@pytest.mark.parametrize(
    "method", ["backward", "central", "savgol --window 9", "savgol --window 0.15s", "smooth"]
)
def test_rows_of_long_recordings_are_computed_a_few_at_a_time(trajcli, pose, method, monkeypatch):
    random = np.random.default_rng(2)
    pair = rotations.exp(np.cumsum(random.normal(0.01, 0.02, (700, 2, 3)), 0))
    with h5py.File("long.h5", "w") as file:
        file["pair"] = np.concatenate([pair.reshape(700, 8), random.normal(size=(700, 2))], 1)
        file["pair"][300:302] *= -1
        file["times"] = np.cumsum(random.uniform(0.008, 0.012, 700))
    line = f"differentiate long.h5:pair --rotation 0:8=wxyz --method {method} -o"
    assert trajcli(f"{line} whole.h5").code == 0
    monkeypatch.setattr("trajcli.rotation_rates.ROTATION_VALUES", 500)
    monkeypatch.setattr("trajcli.rotations.ROTATION_VALUES", 500)
    assert trajcli(f"{line} part.h5").code == 0
    assert Path("part.h5").read_bytes() == Path("whole.h5").read_bytes()


def test_smooth_writes_what_it_chose_about_each_axis(trajcli, pose):
    columns = np.loadtxt("pose.csv", delimiter=",", skiprows=1)
    result = trajcli("differentiate pose.csv --bandlimit 8 -o out.h5 --json")
    assert (result.code, result.document["mode"]) == (0, "smooth"), result.err
    assert (
        trajcli("differentiate pose.h5:orientation_xyzw --method smooth --dt 0.01 -o one.h5").code
        == 0
    )
    expected = rotations.differentiate(
        columns[:, [7, 4, 5, 6]], times=columns[:, 0], method="smooth", bandlimit=8.0
    )
    alone = differentiate(columns[:, 1:4], times=columns[:, 0], method="smooth", bandlimit=8.0)
    with h5py.File("out.h5") as file, h5py.File("one.h5") as one:
        for name, values in zip(("orientation", *rotations.RATES), expected, strict=True):
            np.testing.assert_allclose(file[name], values, atol=1e-9 * abs(values).max())
        np.testing.assert_allclose(file["velocity"], alone.velocity, rtol=1e-9, atol=1e-12)
        assert file["angular_bandlimit"].shape == (1, 3)
        assert file["bandlimit"].shape == (1, 3)
        assert (one["angular_residual"][0] >= 0).all()
        assert "bandlimit" not in one
    for command in ("inspect", "check", "check --recompute", "plot -o out.svg"):
        name, *more = command.split()
        assert trajcli(f"{name} out.h5", *more).code == 0, command


def test_norms_and_missing_rows_are_said_with_their_place(trajcli, pose):
    with h5py.File("pose.h5", "a") as file:
        q = np.tile(file["quat"][:], (3, 1, 1))
        file["near_wxyz"], file["orientation_wxyz"] = q * 1.0009, q
        file["orientation_wxyz"][2, 40] *= 1.002
        q[1, 7] = np.nan
        file["missing_quat_wxyz"] = q
    line = "--method backward --dt 0.01 -o out.h5 --overwrite"
    near = trajcli(f"differentiate pose.h5:near_wxyz --rotation wxyz {line}")
    assert (near.code, "normalised" in near.err) == (0, True), near.err
    wrong = trajcli(f"differentiate pose.h5:orientation_wxyz {line}")
    assert (wrong.code, "trajectory 2, entry [40]" in wrong.err) == (2, True), wrong.err
    missing = trajcli(f"differentiate pose.h5:missing_quat_wxyz {line}")
    assert (missing.code, "trajectory 1, step 7" in missing.err) == (2, True), missing.err
    assert trajcli(f"differentiate pose.h5:missing_quat_wxyz {line} --allow-nonfinite").code == 0
    with h5py.File("out.h5") as file:
        rows = np.argwhere(np.isnan(file["angular_jerk"][:]).any(2))
        assert set(rows[:, 0]) == {1}
        assert rows[:, 1].min() >= 7
        assert rows[:, 1].max() <= 10


@pytest.mark.parametrize("frame", ["world", "body"])
@pytest.mark.parametrize(("method", "curve"), [("linear", "slerp"), ("cubic", "spline")])
def test_recordings_are_resampled_as_rotations(trajcli, pose, method, curve, frame):
    columns = np.loadtxt("pose.csv", delimiter=",", skiprows=1)
    expected = rotations.resample(columns[:, [7, 4, 5, 6]], curve, dt=0.01, rate=250, frame=frame)
    for source in ("pose.csv", "pose.h5:orientation_xyzw", "pose.h5:state --rotation 3:7=wxyz"):
        result = trajcli(f"resample {source} --method {method} --rotation-frame {frame} --dt 0.01",
                         *["--to", "250", "-o", "out.h5", "--overwrite"])  # fmt: skip
        assert result.code == 0, result.err
        with h5py.File("out.h5") as file:
            for order, name in enumerate(("orientation", *rotations.RATES)):
                values = getattr(expected, name)
                assert (name in file) == (values is not None)
                if values is not None:
                    bound = 1e-14 * 100.0**order
                    np.testing.assert_allclose(file[name][:], values, rtol=0, atol=bound)
            assert ("data" in file or "state" in file) == ("orientation" not in source)
    refused = trajcli("resample pose.csv --to 50 --method quintic -o out.h5 --overwrite")
    assert (refused.code, "slerp" in refused.err) == (2, True)
    assert trajcli("differentiate pose.csv -o both.h5").code == 0
    some = trajcli("resample both.h5 --to 50 -o some.h5")
    assert "both.h5:/orientation is left out" in some.err
    once_more = trajcli("differentiate both.h5 -o positions.h5")
    assert "both.h5:/orientation is left out" in once_more.err
    beside = trajcli("differentiate pose.h5:position -o positions.h5 --overwrite")
    assert "left out" not in beside.err  # SOURCE names what is meant
    for line in ("differentiate pose.h5", "resample pose.h5 --to 50"):
        result = trajcli(f"{line} -o positions.h5 --overwrite")
        assert "note: pose.h5:/orientation_xyzw and 1 more are left out" in result.err
    again = trajcli("resample both.h5:orientation --to 50 -o again.h5 --overwrite")
    assert again.code == 0, again.err


def test_turns_of_42_degrees_in_a_file_make_no_excursion(trajcli, folder):
    np.save("turns.npy", np.deg2rad([[159.0, 0.0, 0.0], [-159.0, 0.0, 0.0]]))
    for method in ("linear", "cubic"):
        line = f"resample turns.npy --rotation rotvec --dt 1 --to 50 --method {method} -o out.h5"
        result = trajcli(line, "--overwrite")
        assert result.code == 0, result.err
        with h5py.File("out.h5") as file:
            q = file["orientation"][0]
        angles = np.rad2deg(rotations.angle(q[:1], q))
        np.testing.assert_allclose(angles, np.linspace(0.0, 42.0, 51), atol=1e-10)


def test_components_have_their_names_and_a_table_of_them_is_read_again(trajcli, pose):
    assert trajcli("differentiate pose.csv -o out.h5").code == 0
    assert trajcli("export out.h5:orientation -o q.csv").code == 0
    heading = Path("q.csv").read_text(encoding="utf-8").splitlines()[0]
    assert all(f"q{axis}" in heading for axis in "wxyz")
    assert trajcli("resample q.csv --to 100 -o back.h5").code == 0
    with h5py.File("out.h5") as file, h5py.File("back.h5") as back:
        np.testing.assert_allclose(back["orientation"], file["orientation"], atol=1e-14)
    shown = trajcli("inspect out.h5:angular_velocity --json --dofs z").document
    assert shown["joint_names"] == ["z"]
    for command in ("inspect out.h5", "check out.h5", "diff out.h5 out.h5", "score out.h5",
                    "plot out.h5 -o fig.png"):  # fmt: skip
        assert trajcli(command).code == 0, command
