"""trajcli export for controllers and learning: setpoints in CSV, JointTrajectory, and actions."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import yaml
from formats.test_lerobot_copy import column, data_set
from journeys.arrays import close, read_h5, same, write_h5
from layouts import writers
from scipy.spatial.transform import Rotation

from trajcli import rotations

ROOT = Path(__file__).resolve().parents[2]
RANDOM = np.random.default_rng(7)
# A log of a clock in ns since 1970, at 100 Hz with jitter.
COUNT = np.arange(500)
STAMPS = 1_700_000_000_123_456_789 + COUNT * 10_000_000 + RANDOM.integers(0, 999_999, 500)
ANGLES = np.stack([np.sin(COUNT / 9), -0.5 * np.cos(COUNT / 7)], 1)


@pytest.fixture
def log(folder) -> Path:
    """log.csv as a logger on Windows writes it: a BOM, CRLF, and an empty line at the end."""
    rows = [f"{t},{a!r},{b!r}" for t, (a, b) in zip(STAMPS.tolist(), ANGLES.tolist(), strict=True)]
    text = "\r\n".join(["timestamp_ns,position/hip,position/knee", *rows, "", ""])
    Path("log.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    return folder


@pytest.fixture
def plan(trajcli, folder) -> dict[str, np.ndarray]:
    """plan.h5: a trajectory of a joint and a lift with units, velocity, acceleration and jerk."""
    values = {name: RANDOM.standard_normal((1, 30, 2)) for name in ("position", "velocity")}
    values |= {name: 1e-5 * RANDOM.standard_normal((1, 30, 2)) for name in ("acceleration", "jerk")}
    values["acceleration"][0, 0] = 1e-05, -2e-300
    units = {"position@units": "rad,m", "velocity@units": "rad/s,m/s"}
    write_h5("plan.h5", values | units, dt=0.004, joint_names=["turn", "lift"])
    return values


def cells(text: str, separator: str = ",") -> list[list[str]]:
    return list(csv.reader(io.StringIO(text), delimiter=separator))


def rounded(value: float, places: int) -> str:
    """A number in so many decimals, from its exact value."""
    exact = Decimal(value).quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN)
    return str(exact if exact else abs(exact))


def test_a_controller_gets_its_columns_units_decimals_and_separators(trajcli, plan):
    line = "export plan.h5 -o out.csv --columns time,velocity,position/lift --decimals 3"
    trajcli.ok(f"{line} --to-units deg,mm --separator ; --decimal ,")
    head, *rows = cells(Path("out.csv").read_text(), ";")
    assert head == ["t (s)", "velocity/turn (deg/s)", "velocity/lift (mm/s)", "position/lift (mm)"]
    velocity, lift = plan["velocity"][0] * [180 / np.pi, 1000], plan["position"][0, :, 1:] * 1000
    numbers = np.hstack([0.004 * np.arange(30)[:, None], velocity, lift])
    assert rows == [[rounded(x, 3).replace(".", ",") for x in row] for row in numbers.tolist()]
    trajcli.refuses("export plan.h5 -o x.csv --decimal ,", "--separator ';'")
    np.savez("in.npz", position=[[-1e-9, 0.0015], [-0.0, np.nan]], dt=0.1)  # no minus near zero
    trajcli.ok("export in.npz -o small.csv --decimals 2 --columns position --no-heading")
    assert Path("small.csv").read_text() == "0.00,0.00\n0.00,nan\n"


def test_columns_come_as_they_are_named(trajcli, plan):
    line = "export plan.h5 -o out.csv --columns position/lift,time,position/lift --separator tab"
    assert trajcli.ok(f"{line} --no-heading --json").document["quantities"] == ["position"]
    rows = np.array(cells(Path("out.csv").read_text(), "\t"), float)
    same(rows[:, [0, 2]], plan["position"][0][:, [1, 1]])
    same(rows[:, 1], 0.004 * np.arange(30))
    trajcli.refuses("export plan.h5 -o x.csv --columns velocty", "did you mean velocity?")
    trajcli.refuses("export plan.h5 -o x.csv --columns position/knee", "position/turn")


def test_decimals_never_make_two_rows_one_moment(trajcli, plan):
    line = "export plan.h5 -o x.csv --decimals 2"
    trajcli.refuses(line, "--decimals 2: times of rows become equal")
    trajcli.ok(f"{line} --columns position")
    trajcli.ok("export plan.h5 -o y.csv --decimals 3")


def test_stamps_are_those_of_the_source_to_the_last_digit(trajcli, log):
    trajcli.ok("export log.csv -o out.csv --stamps --columns time,position/knee --decimals 2")
    head, *rows = cells(Path("out.csv").read_text())
    assert head == ["t (ns)", "position/knee"]
    assert [int(row[0]) for row in rows] == STAMPS.tolist()
    assert [row[1] for row in rows] == [rounded(x, 2) for x in ANGLES[:, 1].tolist()]
    trajcli.ok("differentiate log.csv --method central -o out.h5")  # which has the first stamp
    trajcli.ok("export out.h5 -o out.csv --stamps --columns time --overwrite")
    assert [int(row[0]) for row in cells(Path("out.csv").read_text())[1:]] == STAMPS.tolist()


def test_stamps_in_seconds_and_of_several_episodes_are_exact_too(trajcli, folder):
    clocks = [1.7e9 + np.cumsum(RANDOM.uniform(0.01, 0.02, n)) for n in (5, 7, 5)]
    arrays = {f"data/demo_{k}/time": clock for k, clock in enumerate(clocks)}
    arrays |= {f"data/demo_{k}/position": np.ones((len(x), 2)) for k, x in enumerate(clocks)}
    write_h5("demos.h5", arrays)
    trajcli.ok("export demos.h5 --episodes 2,0 -o out.csv --stamps --columns time")
    rows = cells(Path("out.csv").read_text())[1:]
    for k in (0, 2):
        same([float(t) for name, t in rows if name == f"data/demo_{k}"], clocks[k])


def test_stamps_that_the_source_has_not_are_an_error(trajcli, plan):
    trajcli.refuses("export plan.h5 -o x.csv --stamps", "no stamps of a clock", "times from 0")
    np.save("in.npy", ANGLES)
    trajcli.refuses("export in.npy -o x.csv --stamps", "no stamps of a clock", "no times")
    result = trajcli.refuses("export plan.h5 -o - --stamps --to-units ms", "--to-units of times")
    assert "--actions-as" not in result.err


def test_stdout_holds_the_csv_and_nothing_else(trajcli, plan):
    trajcli.ok("export plan.h5 -o out.csv --decimals 5")
    result = trajcli.ok("export plan.h5 -o - --decimals 5")
    assert result.out == Path("out.csv").read_text()
    assert "1 trajectory" in result.err
    trajcli.refuses("export plan.h5 -o - --json", "-o - and --json: cannot be combined")
    trajcli.refuses("export plan.h5 -o - --lerobot .", "-o - and --lerobot: cannot be combined")


def test_a_reader_that_has_read_enough_ends_the_export_in_peace(folder):
    np.savez("in.npz", position=RANDOM.standard_normal((100_000, 3)), dt=0.01)
    words = [sys.executable, "-m", "trajcli", "export", "in.npz", "-o", "-"]
    env = {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(words, stdout=-1, stderr=-1, text=True, env=env) as run:
        assert run.stdout.readline() == "t (s),position/0,position/1,position/2\n"
        run.stdout.close()
        assert "error" not in run.stderr.read()
    assert run.returncode == 0


def test_options_of_csv_are_refused_elsewhere(trajcli, plan):
    for options in ("--decimals 3", "--columns time", "--stamps", "--separator ;", "--no-heading"):
        where = f"{options.split()[0]}: an option of CSV alone"
        for out in ("x.h5", "x.parquet", "x.yaml"):
            trajcli.refuses(f"export plan.h5 -o {out} {options}", where)
        trajcli.refuses(f"export plan.h5 --lerobot . -o x {options}", "CSV")


@pytest.mark.parametrize("command", ["differentiate", "resample --to 50", "integrate"])
@pytest.mark.parametrize("out", ["out.csv", "out.yaml", "plan.json", "-"])
def test_tables_from_other_commands_are_refused_with_export_named(trajcli, plan, command, out):
    made = "out.h5" if out == "-" else Path(out).with_suffix(".h5")
    hint = f"-o {made}, and then: trajcli export {made} -o {out}"
    trajcli.refuses(f"{command} plan.h5 -o {out}", hint)


# --- JointTrajectory --------------------------------------------------------------------------


def load(name: str) -> dict[str, object]:
    text = Path(name).read_text()
    return json.loads(text) if name.endswith("json") else yaml.safe_load(text)


@pytest.mark.parametrize("name", ["out.yaml", "out.yml", "out.json"])
def test_a_joint_trajectory_has_the_points_that_ros2_control_takes(trajcli, plan, name):
    assert "a JointTrajectory has no jerk: left out" in trajcli.ok(f"export plan.h5 -o {name}").err
    document = load(name)
    assert document["joint_names"] == ["turn", "lift"]
    fields = ["positions", "velocities", "accelerations"]
    assert [list(point) for point in document["points"]] == [[*fields, "time_from_start"]] * 30
    for field, values in zip(fields, plan.values(), strict=False):
        same([point[field] for point in document["points"]], values[0])
    stamps = [point["time_from_start"] for point in document["points"]]
    nanoseconds = [stamp["sec"] * 10**9 + stamp["nanosec"] for stamp in stamps]
    assert nanoseconds == [4_000_000 * k for k in range(30)]
    trajcli.ok(f"export {name} -o back.npz")
    back = np.load("back.npz")
    for quantity in ("position", "velocity", "acceleration"):
        same(back[quantity], plan[quantity])
    close(back["time"], 0.004 * np.arange(30), rtol=1e-15)


def test_a_joint_trajectory_begins_at_zero_nanoseconds(trajcli, log):
    trajcli.ok("export log.csv -o out.json")
    stamps = [point["time_from_start"] for point in load("out.json")["points"]]
    elapsed = [int(t - STAMPS[0]) for t in STAMPS]
    assert [stamp["sec"] * 10**9 + stamp["nanosec"] for stamp in stamps] == elapsed
    times = 1.7e9 + np.array([0, 0.25, 0.5, 0.75, 1.75])
    np.savez("in.npz", position=np.ones((5, 1)), times=times, joint_names=["a"])
    trajcli.ok("export in.npz -o seconds.yaml")
    stamps = [point["time_from_start"] for point in load("seconds.yaml")["points"]]
    assert [stamp["sec"] for stamp in stamps] == [0, 0, 0, 0, 1]
    assert [stamp["nanosec"] / 250_000_000 for stamp in stamps] == [0, 1, 2, 3, 3]


def test_a_joint_trajectory_has_one_trajectory_of_named_joints(trajcli, log, samples):
    np.savez("in.npz", position=np.ones((2, 4, 2)) * np.arange(4)[:, None], dt=0.1)
    trajcli.refuses("export in.npz -o x.yaml", "several trajectories", "--episodes 0")
    line = "export in.npz --episodes 1 -o x.yaml"
    trajcli.refuses(line, "joints without names", "--joints joint1,joint2")
    trajcli.ok(f"{line} --joints a,b")
    assert load("x.yaml")["joint_names"] == ["a", "b"]
    trajcli.ok("export log.csv -o e.yaml --dofs knee --json")
    assert load("e.yaml")["joint_names"] == ["knee"]
    trajcli.refuses(f"export {samples}/camera.h5:orientation_xyzw -o y.yaml", "rotations")
    trajcli.refuses("export log.csv -o y.yaml --to-units deg", "--to-units: units that are fixed")
    np.savez("v.npz", velocity=np.ones((4, 2)), dt=0.1, joint_names=["a", "b"])
    trajcli.refuses("export v.npz -o y.yaml", "no positions")
    np.savez("t.npz", position=np.ones((4, 2)), joint_names=["a", "b"])
    trajcli.refuses("export t.npz -o y.yaml", "no times", "--dt SECONDS")


def test_a_controller_gets_neither_nan_nor_two_points_at_once(trajcli, folder):
    for name, values, times in (
        ("NaN or Inf", [[0.0], [np.nan], [1.0]], [0.0, 0.1, 0.2]),
        ("times that do not increase", [[0.0], [0.5], [1.0]], [0.0, 0.1, 0.1]),
        ("times that do not increase", [[0.0], [0.5], [1.0]], [0.0, 0.1, 0.1 + 1e-11]),
    ):
        np.savez("in.npz", position=np.array(values), times=times, joint_names=["a"])
        trajcli.refuses("export in.npz -o x.json", name)


# --- actions ----------------------------------------------------------------------------------


def by_hand(positions: np.ndarray, kind: str) -> np.ndarray:
    """Delta or relative actions of positions [T, D], by a loop."""
    origin = [positions[k - 1] if kind == "delta" else positions[0] for k in range(len(positions))]
    return np.array([positions[k] - origin[k] for k in range(1, len(positions))])


@pytest.mark.parametrize(
    ("kind", "form"),
    [*[("delta", x) for x in ("h5", "npz", "parquet")], ("relative", "h5"), ("relative", "csv")],
)
def test_actions_lead_back_to_the_positions(trajcli, folder, kind, form):
    positions = RANDOM.standard_normal((3, 9, 3)).cumsum(1)
    times = np.cumsum(RANDOM.uniform(0.05, 0.2, 9))
    times -= times[0]
    units = {"position@units": "rad,rad,m"}
    write_h5("in.h5", units, position=positions, time=times, joint_names=["a", "b", "grip"])
    trajcli.ok(f"export in.h5 --actions-as {kind} --absolute grip -o out.{form}")
    start = "--start in.h5:position" if form in ("csv", "parquet") else ""
    line = f"integrate out.{form} --mode clique --actions {kind} --absolute grip {start}"
    trajcli.ok(f"{line} -o back.h5")
    back = read_h5("back.h5")
    close(back["position"], positions, atol=1e-14)
    close(np.atleast_2d(back["time"])[0], times, rtol=1e-14)
    if form == "h5":
        stored = read_h5("out.h5")
        for k in range(3):
            want = by_hand(positions[k], kind)
            want[:, 2] = positions[k, 1:, 2]
            close(stored["actions"][k], want, rtol=1e-15)
        same(stored["start/position"], positions[:, 0])


def test_actions_of_demonstrations_of_different_length_are_in_their_units(trajcli, folder):
    demos = [RANDOM.standard_normal((n, 2)).astype("f4") for n in (4, 11, 4)]
    arrays = {f"data/demo_{k}/position": values for k, values in enumerate(demos)}
    arrays |= {f"data/demo_{k}/position@units": "rad,m" for k in range(3)}
    write_h5("in.h5", arrays | {"@dt": 0.05})
    trajcli.ok("export in.h5 --actions-as delta --to-units deg,mm -o out.h5")
    trajcli.ok("integrate out.h5 --mode clique --actions delta -o back.h5")
    with h5py.File("out.h5") as out, h5py.File("back.h5") as back:
        assert out["data/demo_1/actions"].attrs["units"] == "deg,mm"
        for k, values in enumerate(demos):
            want = by_hand(values.astype("f8"), "delta") * [180 / np.pi, 1000]
            close(out[f"data/demo_{k}/actions"], want, rtol=2e-7)
            close(back[f"data/demo_{k}/position"], values, atol=1e-6)


def test_a_single_array_holds_the_actions_alone(trajcli, folder):
    positions = RANDOM.standard_normal((2, 5, 3))
    np.save("in.npy", positions)
    trajcli.ok("export in.npy --actions-as relative -o out.npy")
    same(np.load("out.npy"), [by_hand(values, "relative") for values in positions])
    trajcli.ok("export in.npy --actions-as delta -o out.csv")
    head, *rows = cells(Path("out.csv").read_text())
    assert head == ["trajectory", "row", "actions/0", "actions/1", "actions/2"]
    want = np.concatenate([by_hand(values, "delta") for values in positions])
    same(np.array([row[2:] for row in rows], float), want)


def test_viewers_show_actions_at_the_rows_they_lead_to(trajcli, folder):
    reader = pytest.importorskip("rerun.chunk").RrdReader
    positions, times = RANDOM.standard_normal((6, 1)), np.array([5.0, 5.1, 5.2, 5.4, 5.5, 5.9])
    np.savez("in.npz", position=positions, times=times)
    trajcli.ok("export in.npz --actions-as delta -o out.rrd")
    batches = [chunk.to_record_batch() for chunk in reader("out.rrd").stream().to_chunks()]
    (found,) = [batch for batch in batches if "Scalars:scalars" in batch.schema.names]
    seen = [time.total_seconds() for time in found["time"].to_pylist()]
    close(seen, times[1:] - times[0], atol=1e-6)
    close(np.concatenate(found["Scalars:scalars"].to_pylist()), by_hand(positions, "delta")[:, 0])


FORMS = {
    "xyzw": lambda turn: turn.as_quat(),
    "wxyz": lambda turn: turn.as_quat()[:, [3, 0, 1, 2]],
    "rotvec": lambda turn: turn.as_rotvec(),
    "rpy": lambda turn: turn.as_euler("xyz"),
    "rot6d": lambda turn: np.hstack([turn.as_matrix()[..., 0], turn.as_matrix()[..., 1]]),
}


@pytest.mark.parametrize(
    ("form", "kind", "frame"),
    [
        ("xyzw", "delta", "world"),
        ("wxyz", "relative", "body"),
        ("rotvec", "delta", "body"),
        ("rpy", "relative", "world"),
        ("rot6d", "delta", "body"),
    ],
)
def test_poses_become_turns_in_the_frame_that_is_named(trajcli, folder, kind, frame, form):
    turns = Rotation.from_rotvec(RANDOM.standard_normal((12, 3)))
    place, grip = RANDOM.standard_normal((12, 3)), RANDOM.random((12, 1))
    values = FORMS[form](turns)
    np.savez("in.npz", pose=np.hstack([place, values, grip]), dt=0.1)
    last = 3 + values.shape[1]
    words = f"--rotation 3:{last}={form} --rotation-frame {frame} --absolute {last}"
    trajcli.ok(f"export in.npz:pose --actions-as {kind} -o out.h5 {words}")
    actions = read_h5("out.h5")["actions"].squeeze()
    origin = turns[:-1] if kind == "delta" else turns[np.zeros(11, int)]
    want = turns[1:] * origin.inv() if frame == "world" else origin.inv() * turns[1:]
    q = rotations.to_quaternions(actions[:, 3:last], form)
    assert (Rotation.from_quat(q[:, [1, 2, 3, 0]]) * want.inv()).magnitude().max() < 1e-7
    close(actions[:, :3], by_hand(place, kind), rtol=1e-14)
    same(actions[:, last], grip[1:, 0])
    trajcli.ok(f"integrate out.h5 --mode clique --actions {kind} -o back.h5 {words}")
    back = read_h5("back.h5")
    there = Rotation.from_quat(back["orientation"][0][:, [1, 2, 3, 0]])
    assert (there * turns.inv()).magnitude().max() < 1e-7
    close(back["position"][0], np.hstack([place, grip]), atol=1e-14)


def test_orientations_that_trajcli_wrote_become_turns_of_named_components(trajcli, folder):
    turns = Rotation.from_rotvec(RANDOM.standard_normal((1, 3)) + np.arange(40)[:, None] / 20)
    np.savez("in.npz", pose=np.hstack([RANDOM.standard_normal((40, 3)), turns.as_quat()]), dt=0.1)
    trajcli.ok("differentiate in.npz:pose --rotation 3:7=xyzw -o out.h5")
    trajcli.refuses("export out.h5 --actions-as delta -o x.h5", "two arrays", "out.h5:DATASET")
    trajcli.ok("export out.h5:orientation --actions-as delta -o turns.h5")
    trajcli.ok("integrate turns.h5 --mode clique --actions delta -o back.h5")
    want, got = read_h5("out.h5")["orientation"], read_h5("back.h5")["orientation"]
    assert np.abs((want * got).sum(-1)).min() > 1 - 1e-12
    trajcli.ok("export out.h5:position --actions-as delta -o moves.h5")
    place = read_h5("out.h5")["position"][0]
    close(read_h5("moves.h5")["actions"][0], by_hand(place, "delta"), atol=1e-15)


@pytest.mark.parametrize(("kind", "version"), [("delta", 2), ("relative", 3)])
def test_frames_of_lerobot_have_the_action_to_the_next(trajcli, folder, kind, version):
    data_set(version)
    line = f"export set:observation.state --actions-as {kind} --absolute 6 --lerobot set -o out"
    assert "its action stays there" in trajcli.ok(line).err
    begin, actions = 0, column("out", "trajcli.actions")
    states = column("set", "observation.state").astype("f8")
    for length in writers.LENGTHS:
        rows = states[begin : begin + length]
        want = by_hand(np.concatenate([rows, rows[-1:]]), kind)
        want[:, 6] = [*rows[1:, 6], rows[-1, 6]]
        close(actions[begin : begin + length], want, atol=1e-6)
        begin += length
    trajcli.ok("integrate set:action --mode clique --start zero -o p.h5 --overwrite")
    result = trajcli.ok(f"export p.h5 --actions-as {kind} --lerobot set -o other")  # a row more
    assert "stays there" not in result.err
    commands = column("set", "action").astype("f8")[: writers.LENGTHS[0]]
    want = by_hand(np.concatenate([np.zeros((1, 7)), commands]), kind)
    close(column("other", "trajcli.actions")[: writers.LENGTHS[0]], want, atol=1e-5)


def test_actions_are_made_of_positions_alone(trajcli, folder, samples):
    writers.robomimic("in.h5", writers.demos())
    trajcli.refuses("export in.h5 --actions-as delta -o x.h5", "no positions", "trajcli inspect")
    trajcli.ok("export in.h5:obs/robot0_joint_pos --actions-as delta -o x.h5")
    np.savez("one.npz", position=np.ones((2, 1, 3)), dt=0.1)
    trajcli.refuses("export one.npz --actions-as delta -o y.h5", "fewer than two rows")
    line = f"export {samples}/recorded.h5 -o y.csv"
    for option in ("--absolute 1", "--rotation-frame body"):
        trajcli.refuses(f"{line} {option}", option.split()[0], "option of --actions-as")
    trajcli.refuses(f"{line} --actions-as delta --stamps", "--stamps: cannot be combined")
    trajcli.refuses("export one.npz --actions-as delta -o y.json", ".json: cannot be combined")
    np.savez("pose.npz", pose=np.eye(4)[[0, 1, 2, 0]], dt=0.1)
    line = "export pose.npz:pose --rotation wxyz --actions-as delta -o y.h5"
    trajcli.refuses(f"{line} --absolute 2", "a rotation among absolute dofs")


def test_exported_actions_are_not_integrated_as_something_else(trajcli, folder):
    np.savez("in.npz", position=RANDOM.standard_normal((2, 6, 3)), dt=0.1)
    trajcli.ok("export in.npz --actions-as relative --absolute 2 -o out.h5")
    said = "actions of another kind than the file states"
    hint = "--actions relative --absolute 2 --mode clique"
    trajcli.refuses("integrate out.h5 -o x.h5", said, hint)
    trajcli.refuses("integrate out.h5 --mode clique --actions relative -o x.h5", "--absolute 2")
    trajcli.ok("integrate out.h5 --mode clique --actions relative --absolute 2 -o back.h5")
    close(read_h5("back.h5")["position"], np.load("in.npz")["position"], atol=1e-14)


def test_actions_that_export_wrote_are_no_positions(trajcli, folder):
    # the unit of lengths, which actions have too, does not make them positions
    rows = RANDOM.standard_normal((1, 9, 3))
    write_h5("in.h5", {"position": rows, "position@units": "m"}, dt=0.1)
    trajcli.ok("export in.h5 --actions-as relative -o relative.h5")
    trajcli.refuses("export relative.h5 --actions-as delta -o no.h5", "no positions", "actions")
    trajcli.ok("integrate relative.h5 --actions relative --mode clique --write position -o back.h5")
    trajcli.ok("export back.h5 --actions-as delta -o delta.h5")
    close(read_h5("delta.h5")["actions"], np.diff(rows, axis=1))


def test_a_joint_names_its_columns_of_all_quantities(trajcli, plan):
    text = trajcli.ok("export plan.h5 --columns lift,time -o -").out
    quantities = ("position", "velocity", "acceleration", "jerk")
    heads = [head.partition(" ")[0] for head in cells(text)[0]]
    assert heads == [*(f"{name}/lift" for name in quantities), "t"]


@pytest.mark.parametrize("out", ["out.csv", "out.parquet"])
def test_a_table_of_no_rows_has_its_headings(trajcli, folder, out):
    np.savez("in.npz", position=np.zeros((2, 0, 3)), dt=0.02)
    trajcli.ok(f"export in.npz -o {out}")
    table = pd.read_csv(out) if out.endswith("csv") else pd.read_parquet(out)
    assert len(table) == 0
    assert len(table.columns) == 5
