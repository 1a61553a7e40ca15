"""The fastest timing of paths: waypoints, plans, recordings, and what commands make of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from journeys.arrays import close, same, write_h5

JOINTS = [f"panda_joint{k}" for k in range(1, 8)]
LIMITS = "--limits sample_data/limits.toml"
FAST = f"--method fastest {LIMITS}"
QUANTITIES = ("position", "velocity", "acceleration", "jerk")
BOUNDS = {
    "velocity": np.array([2.175] * 4 + [2.61] * 3),
    "acceleration": np.array([15.0, 7.5, 10.0, 12.5, 15.0, 20.0, 20.0]),
    "jerk": np.array([7500.0, 3750.0, 5000.0, 6250.0, 7500.0, 10000.0, 10000.0]),
}
HOME = np.array([0.0, -0.785, 0.0, -2.356, 0.0, 1.571, 0.785])
REACH = np.array([0.9, 0.5, -0.4, 0.7, 0.6, 0.5, -0.8])
TURN = np.array([1.0, 1.0, 2.0, 1.0, 2.0, 1.0, 1.0])
STATED = ("does not move; binds: nothing", "solved; binds: ")
# Times of waypoints, and rows on a smooth path.
AT = np.linspace(0, 1, 6)[:, None]
NAMES = f"--joints {','.join(JOINTS)}"
WAYPOINTS = HOME + REACH * AT + 0.2 * np.sin(np.pi * AT * TURN)


def eased(at):
    """A motion from 0 to 1 that rests at both ends."""
    at = np.clip(at, 0.0, 1.0)
    return at**3 * (10 + at * (6 * at - 15))


def table(path, rows, times=None, end="\n", mark=""):
    names = (["time"] if times is not None else []) + JOINTS
    columns = rows if times is None else np.c_[times, rows]
    lines = [",".join(names), *(",".join(f"{x:.9g}" for x in line) for line in columns), "", ""]
    if times is not None:  # stamps since 1970 take more digits
        lines[1:-2] = [",".join([f"{x[0]:.6f}", *(f"{y:.9g}" for y in x[1:])]) for x in columns]
    Path(path).write_bytes((mark + end.join(lines)).encode())


def trajectories(path):
    """Yields the arrays of every trajectory of an output."""
    with h5py.File(path) as file:
        names: list[str] = []
        file.visit(names.append)
        groups = [n.rpartition("/")[0] for n in names if n.endswith("/time")]
        for group in groups:
            names = [name for name in (*QUANTITIES, "time", "actions") if name in file[group]]
            yield {name: file[f"{group}/{name}"][()] for name in names}
        for k in range(0 if groups else len(file["position"])):
            rows = {name: file[name][k] for name in (*QUANTITIES, "actions") if name in file}
            yield rows | {"time": np.reshape(file["time"][()], (-1, rows["jerk"].shape[0]))[-1]}


def test_waypoints_are_timed_as_typed(trajcli, with_samples):
    result = trajcli.ok(f"retime sample_data/waypoints.csv {LIMITS} -o out.h5")
    assert "no times: the rows are a path" in result.err
    assert "binds: acceleration of panda_joint" in result.out
    trajcli.ok(f"check out.h5 --rest {LIMITS}")
    (motion,) = trajectories("out.h5")
    step, setpoints = 0.001, motion["actions"]
    rate = np.diff(setpoints, axis=0) / step
    for name, order in (("velocity", 0), ("acceleration", 1), ("jerk", 2)):
        # what a controller makes of the setpoints keeps the limits as well
        assert (abs(np.diff(rate, order, axis=0) / step**order) <= BOUNDS[name] * (1 + 1e-9)).all()
    waypoints = np.loadtxt("sample_data/waypoints.csv", delimiter=",", skiprows=1)
    for point in waypoints:
        assert abs(motion["position"] - point).max(1).min() < 2e-3
    close(motion["position"][[0, -1]], waypoints[[0, -1]], atol=1e-14)
    with h5py.File("out.h5") as file:
        assert file["velocity"].attrs["upper_limit"][4] == 2.61
        assert file["velocity"].attrs["lower_limit"][4] == -2.61
        assert file.attrs["method"] == "fastest"


LIST = "".join(f"- {[float(x) for x in row]}\n" for row in WAYPOINTS)


@pytest.mark.parametrize("kind", ["npy", "batch", "npz", "csv", "bom", "list", "joints"])
def test_rows_without_times_are_a_path_in_every_format(trajcli, with_samples, kind):
    source = f"path.{'csv' if kind == 'bom' else kind}"
    if kind in ("npy", "batch"):
        source = "path.npy"
        np.save(source, WAYPOINTS if kind == "npy" else np.stack([WAYPOINTS, WAYPOINTS[::-1]]))
    elif kind == "npz":
        np.savez(source, waypoints=WAYPOINTS)
    elif kind == "csv":
        table(source, WAYPOINTS)
    elif kind == "bom":
        table(source, WAYPOINTS, end="\r\n", mark="\ufeff")
    else:
        source, points = "path.yaml", LIST.replace("- ", "- positions: ")
        joints = f"joint_names: [{', '.join(JOINTS)}]\npoints:\n{points}"
        # a list may end without a new line
        Path(source).write_text(joints if kind == "joints" else f"# joints\n---\n{LIST.strip()}")
    more = "" if kind in ("csv", "bom", "joints") else NAMES
    result = trajcli.ok(f"retime {source} {more} {LIMITS} --json -o out.h5").document
    assert result["method"] == "fastest"
    assert result["trajectories"] == (2 if kind == "batch" else 1)
    assert result["durations"]["before"][0] is None
    assert result["durations"]["after"][0] == pytest.approx(0.969, abs=0.003)
    if kind == "batch":  # the same path backwards takes as long
        assert np.ptp(result["durations"]["after"]) <= 0.002
        assert result["rows"][0] == len(next(trajectories("out.h5"))["time"])


@pytest.fixture
def plans(with_samples):
    """Three plans of other lengths: one moves at its end, one stands still."""
    arrays = {}
    for k, (rows, path) in enumerate(((80, 1.0), (60, 0.5), (40, 0.0))):
        times, span = np.linspace(0, 1.6, rows), 2.0 if k == 1 else 1.6
        values = HOME + path * REACH * eased(times / span)[:, None]
        rates = [np.gradient(values, times, axis=0, edge_order=2)]
        rates.append(np.gradient(rates[0], times, axis=0, edge_order=2))
        if k != 1:
            rates = [x * (np.arange(rows) < rows - 1)[:, None] for x in rates]
        parts = {"position": values, "velocity": rates[0], "acceleration": rates[1], "time": times}
        arrays |= {f"demo_{k}/{name}": x for name, x in parts.items()}
    write_h5("plans.h5", arrays)
    return f"plans.h5 {NAMES}"


@pytest.mark.parametrize("how", ["", "--rows 300"])
def test_an_output_is_what_its_control_points_make(trajcli, plans, how):
    result = trajcli.ok(f"retime {plans} {FAST} {how} --json -o out.h5").document
    assert any("in motion at ends: 0.173/s at the end in demo_1" in x for x in result["notes"])
    assert result["states"].count("does not move") == 1
    trajcli.ok("integrate out.h5 -o again.h5")
    motions = [*trajectories("out.h5")]
    assert len(motions) == 3
    with h5py.File("out.h5") as file:
        assert file.attrs["ends"] == "goal"  # of all, as one moves there
    with h5py.File("again.h5") as file:
        for k, motion in enumerate(motions):
            at = f"demo_{k}/{{}}" if "demo_0" in file else "{}"
            for name in QUANTITIES:
                again = file[at.format(name)][()]
                same(motion[name], again if "demo_0" in file else again[k])
            limits = {name: x * (1 + 1e-9) for name, x in BOUNDS.items()}
            assert all((abs(motion[name]) <= limits[name]).all() for name in limits)
            if how == "--rows 300":
                assert len(motion["time"]) == 300
    trajcli.ok(f"check out.h5 {LIMITS}")
    for line in ("resample out.h5 --to 500 -o r.h5", "export out.h5 -o e.csv", "score out.h5"):
        trajcli.ok(line)
    if not how:  # the moving end keeps its speed
        with h5py.File("plans.h5") as file:
            close(motions[1]["velocity"][-1], file["demo_1/velocity"][-1], atol=3e-4)


def test_an_output_is_at_its_limits_already(trajcli, plans):
    plans += " --episodes 0,2"
    first = trajcli.ok(f"retime {plans} {FAST} --to 4000 --json -o out.h5").document
    scaled = trajcli.ok(f"retime out.h5 {LIMITS} --json -o scaled.h5").document
    again = trajcli.ok(f"retime out.h5 {FAST} --json -o again.h5").document
    close(scaled["factors"], 1.0, atol=2e-3)
    before, after = first["durations"]["after"], again["durations"]["after"]
    close(after[0], before[0], rtol=5e-3)


def test_recorded_positions_are_a_path_and_standstill_is_left_out(trajcli, with_samples):
    times = np.arange(400) / 100
    first, second = eased((times - 0.3) / 1.2), eased((times - 2.2) / 1.2)
    table("log.csv", HOME + 0.5 * REACH * (first + second)[:, None], times + 1.7e9)
    result = trajcli.ok(f"retime log.csv {FAST} -o out.h5")
    for text in ("standstill left out: 0 to 0.3 s, 1.5 to 2.2 s, 3.4 to 3.99 s", "3.99 s → "):
        assert text in result.err + result.out
    result = trajcli.ok(f"retime log.csv {FAST} --json --overwrite -o out.h5").document
    close(result["dwells"][0], [[0.0, 0.3], [1.5, 2.2], [3.4, 3.99]], atol=1e-6)
    (motion,) = trajectories("out.h5")
    middle = HOME + 0.5 * REACH
    near = abs(motion["position"] - middle).max(1).argmin()
    assert abs(motion["velocity"][near]).max() < 0.02  # it rests where it stood


def test_noise_is_told_by_what_it_costs(trajcli, with_samples):
    times = np.arange(300) / 100
    noise = 3e-5 * np.random.default_rng(0).standard_normal((300, 7))
    table("log.csv", HOME + REACH * eased(times / 2.99)[:, None] + noise, times)
    result = trajcli.ok(f"retime log.csv {FAST} --corners stop -o out.h5")
    assert "noise in the rows costs" in result.err
    command = result.err.split("trajectory 0): trajcli ")[1].split(", then retime ")
    trajcli.ok(command[0])
    trajcli.ok(f"retime {command[1].split()[0]} {FAST} --overwrite -o out.h5")


def test_corners_are_named_stopped_at_or_cut(trajcli, with_samples):
    line = np.linspace(0, 1, 5)[:, None]
    legs = [HOME + REACH * line, HOME + REACH + np.roll(REACH, 3) * line[1:]]
    table("path.csv", np.concatenate(legs))
    trajcli.refuses(f"retime path.csv {LIMITS} -o out.h5", "row 4, ", "--corners stop")
    stopped = trajcli.ok(f"retime path.csv {LIMITS} --corners stop -o out.h5")
    assert "rest at corners: row 4" in stopped.err
    (motion,) = trajectories("out.h5")
    assert abs(motion["position"] - legs[0][-1]).max(1).min() < 2e-6
    trajcli.ok(f"retime path.csv {LIMITS} --corners 0.1 --overwrite -o out.h5")
    (cut,) = trajectories("out.h5")
    assert cut["time"][-1] < motion["time"][-1]
    assert 2e-6 < np.linalg.norm(cut["position"] - legs[0][-1], axis=1).min() <= 0.1


def test_a_margin_and_a_duration_hold_for_both_methods(trajcli, plans):
    trajcli.ok(f"retime {plans} --episodes 0 {FAST} -o fast.h5")
    for method in ("fastest", "uniform"):
        line = f"retime fast.h5 {LIMITS} --method {method} --overwrite -o out.h5"
        least = trajcli.ok(f"{line} --margin 0.5 --json").document
        (motion,) = trajectories("out.h5")
        assert all((abs(motion[n]) <= x * 0.5 * (1 + 1e-9)).all() for n, x in BOUNDS.items())
        trajcli.ok(f"{line} --margin 0.5 --duration 9")
        (motion,) = trajectories("out.h5")
        assert motion["time"][-1] == pytest.approx(9.0, abs=1e-12)
        line += " --margin 0.5"
        refused = trajcli.refuses(f"{line} --duration 0.1", "limits forbid this duration").err
        hint = refused.split("try:")[1].split()
        trajcli.ok(f"{line} {' '.join(hint)}")
        assert least["method"] == method


def test_options_of_the_other_method_are_refused(trajcli, plans):
    uniform = ("--to 100", "--rows 9 --corners stop")
    fastest = ("--slower-only", "--to 9 --rows 9", "--corners halt", "--corners -0.1")
    for method, options in [("uniform", x) for x in uniform] + [("fastest", x) for x in fastest]:
        line = f"retime {plans} {LIMITS} --method {method} {options} -o out.h5"
        trajcli.refuses(line, options.split()[0])
    np.save("path.npy", WAYPOINTS)
    line = f"retime path.npy {NAMES} {LIMITS} --method uniform -o out.h5"
    trajcli.refuses(line, "--method fastest")
    np.save("joint_vel.npy", WAYPOINTS)  # velocities are no path, and commands are none
    trajcli.refuses(f"retime joint_vel.npy {NAMES} {FAST} -o out.h5", "integrate")
    np.savez("commands.npz", actions=WAYPOINTS / 3)
    trajcli.refuses(f"retime commands.npz {FAST} -o out.h5", "no recorded positions")


def test_actions_with_units_of_a_rate_are_for_integrate(trajcli, with_samples):
    error = trajcli.refuses(f"retime sample_data/reach.h5 {FAST} -o out.h5").err
    assert "names them" not in error
    assert "trajcli integrate takes actions" in error


def link(name):
    """The file that a descriptor of a process is of; a file without a name, too."""
    text = os.readlink(name) if name.is_symlink() else ""
    return text if text.endswith("(deleted)") else ""


def test_a_signal_ends_the_first_pass_and_leaves_nothing(with_samples):
    np.save("paths.npy", WAYPOINTS + np.linspace(0, 0.1, 4000)[:, None, None] * np.sin(5 * AT))
    words = f"retime paths.npy {NAMES} {LIMITS} -o out.h5".split()
    before = sorted(os.listdir())
    with subprocess.Popen([sys.executable, "-m", "trajcli", *words], stderr=subprocess.PIPE) as run:
        opened = Path(f"/proc/{run.pid}/fd")
        end = time.monotonic() + 60
        while not any(f"{Path.cwd()}/" in link(name) for name in opened.iterdir()):  # the points
            assert time.monotonic() < end
            time.sleep(0.05)
        run.terminate()
        assert run.wait(20) == 75
        assert run.stderr is not None
        assert b"of 4000 trajectories done" in run.stderr.read()
    assert sorted(os.listdir()) == before


def test_limits_that_bound_nothing_are_pointed_out(trajcli, with_samples):
    np.save("path.npy", WAYPOINTS)
    speed = "[velocity]\nupper = 1.0\n"
    more = f"{speed}[acceleration]\nupper = 9.0"
    for text, said in ((speed, "no limits of acceleration and jerk"), (more, "no limits of jerk")):
        Path("some.toml").write_text(text)
        assert said in trajcli.ok("retime path.npy --limits some.toml --overwrite -o out.h5").err
    np.savez("plan.npz", position=WAYPOINTS, velocity=0 * WAYPOINTS, dt=0.1)
    wrong = {
        "[position]\nupper = 9.0": "no limits",
        "[velocity]\nupper = 2.0\nlower = 1.0": "a limit that no pace can keep",
    }
    for text, said in wrong.items():
        Path("some.toml").write_text(text)
        for source in ("path.npy", "plan.npz --method uniform"):
            line = f"retime {source} --limits some.toml --overwrite -o out.h5"
            trajcli.refuses(line, said, "some.toml: velocity lower" if "lower" in text else "")


def test_a_robot_description_limits_speed_alone_which_then_binds_always(trajcli, with_samples):
    np.save("path.npy", WAYPOINTS)
    limit = '<limit lower="-3" upper="3" velocity="2"/>'
    joints = [f'<joint name="{name}" type="revolute">{limit}</joint>' for name in JOINTS]
    Path("robot.urdf").write_text(f'<robot name="panda">{"".join(joints)}</robot>')
    run = trajcli.ok(f"retime path.npy {NAMES} --limits robot.urdf --json -o out.h5")
    assert run.document["states"] == ["solved"]
    assert np.sum(run.document["shares"]["velocity"]) > 0.98
    assert "warning: no limits of acceleration and jerk" in run.err


def test_times_that_are_not_there_are_not_named(trajcli, with_samples):
    np.save("path.npy", WAYPOINTS)
    run = trajcli.ok(f"retime path.npy {NAMES} {LIMITS} --json -o out.h5")
    assert run.document["dt_source"] is None
    assert "note: no times: the rows are a path" in run.err
    with h5py.File("out.h5") as file:
        texts = {name: str(value) for name, value in file.attrs.items()}
    assert "source_dt" not in texts
    assert not any("none" in text for text in [*texts.values(), run.err])


def test_verbose_lists_every_timing(trajcli, with_samples):
    paths = WAYPOINTS[0] + np.linspace(0, 1, 8)[:, None, None] * (WAYPOINTS - WAYPOINTS[0])
    np.save("paths.npy", paths)
    line = f"retime paths.npy {NAMES} {LIMITS} --overwrite -o out.h5"
    assert "trajectory_3" not in trajcli.ok(line).out
    listed = trajcli.ok(f"{line} -v").out.splitlines()
    result = trajcli.ok(f"{line} --json").document
    for k, name in enumerate(result["trajectory"]):
        (about,) = (text for text in listed if text.startswith(f"{name}: "))
        after, uniform = (result["durations"][key][k] for key in ("after", "uniform"))
        assert f"{after:.2f} s (uniform scaling: {uniform:.2f} s), {STATED[k > 0]}" in about
        shares = np.array([result["shares"][x][k] for x in QUANTITIES[1:]])
        said = [x.split()[-1] for x in about.split(" %")[:-1]]
        assert said == [f"{100 * x:.0f}" for x in sorted(shares[shares >= 0.005], reverse=True)[:2]]
    # of all together: the sum, and the mean shares
    assert f"{sum(result['durations']['after']):.2f} s (uniform" in listed[1]


def test_what_cannot_be_timed_is_left_out(trajcli, with_samples):
    bad = WAYPOINTS.copy()
    bad[2, 3] = np.nan
    corner = np.concatenate([HOME + REACH * AT, HOME + REACH + np.roll(REACH, 3) * AT[1:]])[3:9]
    np.save("paths.npy", np.stack([WAYPOINTS, bad, WAYPOINTS[::-1], corner]))
    line = f"retime paths.npy {NAMES} {LIMITS} --json -o out.h5"
    error = trajcli.refuses(line).document["error"]["faults"]
    assert [fault["where"] for fault in error] == ["paths.npy, trajectory 1, step 2, dof 3"]
    result = trajcli(f"{line} --skip-bad", code=1).document
    left = [x["name"].split(", ")[1] for x in result["left_out"]]
    assert left == ["trajectory 1", "trajectory 3"]
    assert result["trajectory"] == ["paths/trajectory_0", "paths/trajectory_2"]
    assert len([*trajectories("out.h5")]) == 2


@pytest.mark.parametrize("how", [FAST, "--limits speed.toml"])
def test_shards_of_retime_merge_to_the_same_bytes(trajcli, plans, how):
    Path("speed.toml").write_text("[velocity]\nupper = 2.0\n[acceleration]\nupper = 9.0")
    line = f"retime {plans} {how}"
    trajcli.ok(f"{line} -o whole.h5")
    for k in (2, 0, 1, 3):
        trajcli.ok(f"{line} -o out.h5 --shard {k}/4")
        assert "done already" in trajcli.ok(f"{line} -o out.h5 --shard {k}/4").out
    trajcli.ok("status out.h5")
    trajcli.ok("merge out.h5")
    assert Path("out.h5").read_bytes() == Path("whole.h5").read_bytes()
    trajcli.refuses(f"{line} -o out.h5 --overwrite --shard 0/5")


def test_the_names_of_groups_are_kept(trajcli, with_samples):
    """A set of demonstrations, whose commands are no path, and whose recorded joints are."""
    with h5py.File("set.hdf5", "w") as file:
        file.create_group("data").attrs["env_args"] = '{"env_kwargs": {"control_freq": 20}}'
        for k in range(3):
            demo, count = file.create_group(f"data/demo_{k}"), 30 + 10 * k
            demo.attrs["num_samples"] = count
            demo["actions"] = np.random.default_rng(k).uniform(-1, 1, (count, 8))
            path = (1 + k) / 3 * REACH * eased(np.linspace(0, 1, count))[:, None]
            demo["obs/robot0_joint_pos"] = HOME + path
    trajcli.ok(f"retime set.hdf5:obs/robot0_joint_pos {NAMES} {FAST} -o out.h5")
    with h5py.File("out.h5") as file:
        assert [*file["data"]] == ["demo_0", "demo_1", "demo_2"]
    xarray = pytest.importorskip("xarray")
    with xarray.open_dataset("out.h5", engine="h5netcdf", group="data/demo_1") as opened:
        assert opened.actions.dims == ("point", "dof")
        assert opened.jerk.sizes["time"] == opened.actions.sizes["point"] + 5
    trajcli.ok(f"check out.h5 --rest {LIMITS}")
    assert "obs/robot0_joint_pos" in trajcli.refuses(f"retime set.hdf5 {FAST} -o o.h5").err


@pytest.mark.parametrize("kind", ["h5", "npz"])
def test_check_compares_the_first_row_with_the_stored_start(trajcli, plans, kind):
    trajcli.ok(f"retime {plans} {FAST} -o out.{kind}")
    found = trajcli.ok(f"check out.{kind}").out
    assert "equals the start state" in found
    assert "not checked" not in found
    if kind == "h5":
        with h5py.File("out.h5", "r+") as file:
            file["demo_1/position"][0, 2] += 1e-9
        (line,) = (x for x in trajcli("check out.h5", code=1).out.splitlines() if "off by" in x)
        assert line.startswith("start row")
        assert "1e-09" in line


def test_the_longest_standstill_of_a_set_is_named(trajcli, with_samples):
    arrays = {}
    for k, still in enumerate((30, 50, 20)):
        rows = HOME + REACH * eased(np.linspace(0, 1, 60))[:, None]
        rows = np.concatenate([rows, np.repeat(rows[-1:], still, 0), rows[::-1]])
        arrays |= {f"demo_{k}/position": rows, f"demo_{k}/time": 0.01 * np.arange(len(rows))}
    write_h5("set.h5", arrays)
    run = trajcli.ok(f"retime set.h5 {NAMES} {FAST} -o out.h5")
    said = "standstill left out: 0.59 to 1.1 s in demo_1, the most; found in 3 of 3 trajectories"
    assert said in " ".join(run.err.split())
