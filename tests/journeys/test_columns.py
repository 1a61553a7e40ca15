"""What columns and arrays are by their names and values: times, steps, counts, dofs, rotations."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from trajcli import rotations

N = 40
T = np.arange(N) * 0.02
Q = np.stack([np.sin(2 * T), np.cos(3 * T)], 1)
V = np.stack([2 * np.cos(2 * T), -3 * np.sin(3 * T)], 1)
TURN = Rotation.from_rotvec(np.stack([0.5 * T, np.sin(T), 0.3 * np.cos(2 * T)], 1))
MATRIX = TURN.as_matrix()
WXYZ = TURN.as_quat()[:, [3, 0, 1, 2]]
COMMANDS = (
    "differentiate {} --method central -o o.h5 --overwrite", "check {}", "inspect {}", "score {}",
    "plot {} -o o.png --overwrite", "resample {} --to 300 -o o.h5 --overwrite",
    "export {} -o o.csv --overwrite",
)  # fmt: skip


def write(name: str, columns: dict[str, Any], heading: bool = True) -> str:
    """Writes columns as a table, or as arrays: those called a, b, … as one array q."""
    path = Path(name)
    if path.suffix == ".csv":
        head = ",".join(columns) if heading else ""
        values = np.stack(list(columns.values()), 1)
        np.savetxt(path, values, "%.17g", ",", header=head, comments="")
        if not heading:
            path.write_text(path.read_text().lstrip("\n"))
    elif path.suffix == ".parquet":
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table(columns), path)
    else:
        arrays = {k: x for k, x in columns.items() if k not in ("a", "b")}
        arrays["q"] = np.stack([columns["a"], columns["b"]], 1)
        if path.suffix == ".npz":
            np.savez(path, **arrays)
        elif path.suffix == ".mat":
            pytest.importorskip("scipy.io").savemat(path, arrays)  # [T, 1] are [T, 1] there
        else:
            with h5py.File(path, "w") as file:
                for key, x in arrays.items():
                    file[key] = x
    return name


def dofs(**beside: Any) -> dict[str, Any]:
    return {**beside, "a": Q[:, 0], "b": Q[:, 1]}


def result(name: str = "velocity") -> Any:
    with h5py.File("o.h5") as file:
        return file[name][0]


def said(trajcli, line: str, code: int | None = 0) -> str:
    """Runs a command, and returns all that it printed, in one line."""
    printed = trajcli(line, code=code)
    return " ".join((printed.out + printed.err).split())


def differentiated(trajcli, line: str, expected: Any = V, name: str = "velocity") -> str:
    """Runs differentiate, and compares rows off the ends; returns what it said."""
    printed = said(trajcli, f"differentiate {line} --method central -o o.h5 --overwrite")
    found = result(name)
    assert found.shape == expected.shape, printed
    np.testing.assert_allclose(found[4:-4], expected[4:-4], atol=3e-3)
    return printed


NAMES = {"rosbagTimestamp": "ns", "Time (Seconds)": "", "Time(ms)": "ms", "ts": "",
         "elapsed_time": "", "log_time": "ns", "TimeStamp": "", "sim_time": "",
         "timestamp_us": "us", "header.stamp.secs": "", "datetime": "",
         "Unix Time [s]": ""}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_arrays_named_like_a_time_are_never_dofs(trajcli, folder, name):
    stamps = np.round((5 + T) * {"": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}[NAMES[name]], 6)
    unit = f" --units {NAMES[name]}" if NAMES[name] == "ns" else ""
    endings = ("csv", "parquet") if re.search(r"[ .(\[]", name) else ("csv", "npz")
    for ending in endings:
        path = write(f"in.{ending}", dofs(**{name: stamps}))
        differentiated(trajcli, path + unit)
        differentiated(trajcli, f"{path} --rate 50")


def test_counters_and_steps_next_to_a_time_are_left_out(trajcli, folder):
    for name in ("frame", "Index", "header.seq", "id", "sample_index", "tick"):
        write("in.csv", dofs(**{name: np.arange(N) * 1.0}))
        assert name in differentiated(trajcli, "in.csv --rate 50")
    for ending in ("csv", "parquet"):
        path = write(f"in.{ending}", dofs(time=T, dt=np.full(N, 0.02), frame=np.arange(N) * 1.0))
        assert "dt, frame" in differentiated(trajcli, path)
        for command in COMMANDS[:: 1 if ending == "csv" else 3]:
            assert "dt, frame" in said(trajcli, command.format(path)), command
    trajcli("differentiate in.csv:frame,a --rate 50 -o o.h5 --overwrite", code=0)
    assert result().shape == (N, 2)  # what is named is taken


def test_increasing_columns_are_dofs_and_offered_as_times(trajcli, folder):
    quaternion = {f"q{axis}": column for axis, column in zip("xyzw", TURN.as_quat().T, strict=True)}
    columns = {"root x": 0.5 + 1.2 * T, "y": Q[:, 0], "z": Q[:, 1], **quaternion}
    expected = np.c_[np.full(N, 1.2), V]
    for heading, first, rotation in ((True, "root x", ""), (False, "data0", "--rotation 3:7=xyzw")):
        write("walk.csv", columns, heading)
        differentiated(trajcli, f"walk.csv --rate 50 {rotation}", expected)
        for command in ("differentiate walk.csv -o o.h5", "resample walk.csv --to 9 -o o.h5"):
            printed = said(trajcli, f"{command} --overwrite {rotation}", 2)
            assert f"--times {shlex.quote('walk.csv:' + first)}" in printed
        words = ["--times", f"walk.csv:{first}", *rotation.replace("3:7", "2:6").split()]
        trajcli("differentiate walk.csv --method central -o o.h5 --overwrite", *words, code=0)
        assert result().shape == (N, 2)  # the time that an option names is no dof


@pytest.mark.parametrize(
    ("ending", "first"),
    [("csv", 0.03), ("csv", np.nan), ("parquet", np.nan), ("npz", 0.03), ("h5", np.nan),
     ("mat", 0.03)],
)  # fmt: skip
def test_a_step_of_each_row_leads_into_it(trajcli, folder, ending, first):
    steps = 0.02 + 0.005 * np.sin(np.arange(N))
    times = np.cumsum(steps)
    steps[0] = first  # before row 0 there is nothing
    positions = np.stack([np.sin(2 * times), np.cos(3 * times)], 1)
    velocity = np.stack([2 * np.cos(2 * times), -3 * np.sin(3 * times)], 1)
    table = ending in ("csv", "parquet")
    shapes = ((N,),) if table else ((N,), (N, 1))
    for name, shape in ((name, shape) for name in ("dt", "delta_t") for shape in shapes):
        columns = {name: steps.reshape(shape), "a": positions[:, 0], "b": positions[:, 1]}
        path = write(f"in.{ending}", columns)
        differentiated(trajcli, path, velocity)
        named = "a,b" if table else "q"
        differentiated(trajcli, f"{path}:{named} --dt {path}:{name}", velocity)
        trajcli(f"resample {path} --to 100 -o r.h5 --overwrite", code=0)
        with h5py.File("r.h5") as file:
            assert abs(file["time"][-1] - (times[-1] - times[0])) < 0.0101
        trajcli(f"check {path}", code=0)


UNITS = {"q_1 [deg],q_2 [deg]": ("", "q", "q_1,q_2", "q_*", "*"),
         "A1 [deg],B1 [deg]": ("A1,B1", "*"), "dof_a(rad),dof_b(rad)": ("dof_a,dof_b", "dof_*"),
         "p_x [mm],p_y [mm]": ("", "p", "p_x,p_y", "*", "t,p_x,p_y")}  # fmt: skip


@pytest.mark.parametrize("heading", UNITS)
def test_a_unit_in_the_heading_hides_no_name(trajcli, folder, heading):
    per_si = {"deg": 180 / np.pi, "rad": 1.0, "mm": 1e3}[re.search(r"deg|rad|mm", heading)[0]]
    first, second = heading.split(",")
    for ending in ("csv", "parquet"):
        path = write(f"in.{ending}", {"t": T, first: Q[:, 0] * per_si, second: Q[:, 1] * per_si})
        for named in UNITS[heading]:
            differentiated(trajcli, f"{path}:{named}" if named else path)


@pytest.mark.parametrize("first", [0, 5000])
def test_stamps_that_count_rows_are_pointed_out(trajcli, folder, first):
    stamps = first + np.arange(N)
    for k, ending in enumerate(("csv", "parquet", "npz", "h5")):
        path = write(f"in.{ending}", dofs(time=stamps))
        for command in COMMANDS if k == 0 else COMMANDS[k - 1 :: 3]:
            assert said(trajcli, command.format(path)).count("--units ms") == 1, command
        for command in ("differentiate {} -o o.h5 --overwrite", "check {}"):
            assert "--units" not in said(trajcli, command.format(f"{path} --units ms"))
    write("in.csv", dofs(time=stamps * 0.5))
    assert "--units" not in said(trajcli, "check in.csv")


@pytest.mark.parametrize("name", ["time", "timestamps", "log_time"])
def test_float32_stamps_since_1970_are_refused_by_name(trajcli, folder, name):
    for ending, scale in (("parquet", 1), ("npz", 1e3), ("h5", 1e9)):
        path = write(f"in.{ending}", dofs(**{name: np.float32((1.7e9 + T) * scale)}))
        for command in ("differentiate {} -o o.h5", "resample {} --to 9 -o r.h5", "check {}"):
            assert "too coarse" in said(trajcli, command.format(path), None), command
        differentiated(trajcli, f"{path} --rate 50")


def quaternion_table(names: str) -> dict[str, Any]:
    columns = {}
    for name in names.split(","):
        columns[name] = WXYZ[:, "wxyz".index(name[-1].lower())].copy()
        columns[name][10:12] = np.nan
    return columns


@pytest.mark.parametrize(
    "names", ["root_rot_w,root_rot_x,root_rot_y,root_rot_z", "bX,bY,bZ,bW", "qw,qx,qy,qz"]
)
def test_four_neighbours_of_norm_1_are_a_quaternion_by_their_endings(trajcli, folder, names):
    write("in.csv", {"time": T, **quaternion_table(names), "a": Q[:, 0]})
    trajcli("differentiate in.csv --method smooth --allow-nonfinite -o o.h5", code=0)
    assert np.abs(np.abs((result("orientation") * WXYZ).sum(1)) - 1).max() < 1e-4
    plain = {name: column * 2 for name, column in quaternion_table(names).items()}
    if names[0] != "q":  # of another norm they are four numbers
        write("in.csv", {"time": T, **plain})
        trajcli("differentiate in.csv --allow-nonfinite -o o.h5 --overwrite", code=0)
        assert result().shape == (N, 4)


UNNAMED = {"xyzw": TURN.as_quat(), "rot6d": np.swapaxes(MATRIX[:, :, :2], 1, 2).reshape(N, 6),
           "rot6d_rows": MATRIX[:, :2].reshape(N, 6), "matrix": MATRIX.reshape(N, 9),
           "turns": MATRIX[:, :, :2].reshape(N, 6)}  # fmt: skip


@pytest.mark.parametrize("form", UNNAMED)
def test_unnamed_rotations_are_pointed_out_with_their_form(trajcli, folder, form):
    values = np.c_[Q[:, :1], UNNAMED[form]]
    np.savez("whole.npz", position=values, dt=0.02)
    values[20:22] = np.nan
    np.savez("gaps.npz", position=values, dt=0.02)
    forms = {"xyzw": "xyzw", "matrix": "matrix"}.get(form, "rot6d")
    for path in ("whole.npz", "gaps.npz"):
        line = f"differentiate {path} --allow-nonfinite --method smooth -o o.h5 --overwrite"
        refused = said(trajcli, line, 2)
        which = re.search(rf"--rotation (\S+)={forms}\b", refused)[1]
        assert ("rot6d_rows" in refused) == (forms == "rot6d")
        printed = said(trajcli, f"{line} --rotation {which}={form.replace('turns', 'rot6d')}")
        assert ("rot6d_rows two rows" in printed) == (form in ("rot6d", "turns"))
        assert np.abs(np.abs((result("orientation") * WXYZ).sum(1)) - 1).max() < 1e-4


def test_lines_of_nan_do_not_hide_a_tum_trajectory(trajcli, folder):
    rows = np.c_[1.3e9 + T, Q, Q[:, 0], TURN.as_quat()]
    rows[10:12, 1:] = np.nan
    np.savetxt("poses.txt", rows, "%.7f")
    line = "differentiate poses.txt --method central --allow-nonfinite -o o.h5 --overwrite"
    rows[:, 0] = np.floor(rows[:, 0])
    np.savetxt("whole.txt", rows, "%.7f")
    for text in (line, line.replace("poses.txt", "whole.txt --rate 50")):
        trajcli(text, code=0)
        assert (result().shape, result("angular_velocity").shape) == ((N, 3), (N, 3))


def test_forms_of_rotations_are_those_of_scipy_there_and_back():
    angles = np.r_[TURN.as_euler("xyz"), [[0.3, np.pi / 2, 0.5], [3.1, -1.57, -3.1], [0, 0, np.pi]]]
    turn = Rotation.from_euler("xyz", angles)
    rows = turn.as_matrix()[:, :2].reshape(-1, 6)
    for form, values in (("rpy", angles), ("rot6d_rows", rows)):
        quaternions = rotations.to_quaternions(values, form)
        back = Rotation.from_quat(quaternions[:, [1, 2, 3, 0]])
        assert (back * turn.inv()).magnitude().max() < 1e-7
        again = rotations.from_quaternions(quaternions, form)
        if form == "rpy":  # of one rotation there are several
            again = Rotation.from_euler("xyz", again).as_matrix()[:, :2].reshape(-1, 6)
        np.testing.assert_allclose(again, rows, atol=1e-7)


HEADINGS = {"roll,pitch,yaw": True, "Roll [deg],Pitch [deg],Yaw [deg]": True,
            "ee_roll,ee_pitch,ee_yaw,ee_x,ee_y,ee_z": True, "rpy.roll,rpy.pitch,rpy.yaw": True,
            "hip_roll_joint,hip_pitch_joint,hip_yaw_joint": False}  # fmt: skip


@pytest.mark.parametrize("heading", HEADINGS)
def test_roll_pitch_and_yaw_are_read_as_a_rotation(trajcli, folder, heading):
    angles = TURN.as_euler("xyz", degrees="deg" in heading)
    names = heading.split(",")
    columns = dict(zip(names, [*angles.T, *np.zeros((3, N))], strict=False))
    path = write("in.csv", {"time": T, **columns})
    which = ",".join(re.sub(r" \[.*", "", name) for name in names[:3])
    for command in COMMANDS if names[0] == "roll" else COMMANDS[:2]:
        line = command.format(path)
        assert (f"--rotation {which}=rpy" in said(trajcli, line)) == HEADINGS[heading], command
        assert "=rpy" not in said(trajcli, f"{line} --rotation none")
    trajcli(f"differentiate {path} --rotation {which}=rpy --method central -o o.h5 --overwrite")
    step = (TURN[2:] * TURN[:-2].inv()).as_rotvec() / 0.04
    np.testing.assert_allclose(result("angular_velocity")[4:-4], step[3:-3], atol=3e-3)
    assert np.abs(np.abs((result("orientation") * WXYZ).sum(1)) - 1).max() < 1e-9


def test_actions_in_new_forms_are_composed_into_orientations(trajcli, folder):
    for form, values in (("rpy", TURN.as_euler("xyz")), ("rot6d_rows", UNNAMED["rot6d_rows"])):
        np.savez("in.npz", actions=values, dt=0.02)
        start = ",".join(map(str, values[0]))
        line = f"integrate in.npz --mode clique --start {start} --rotation {form}"
        trajcli(f"{line} -o o.h5 --overwrite", code=0)
        assert np.abs(np.abs((result("orientation")[1:] * WXYZ).sum(1)) - 1).max() < 1e-9
