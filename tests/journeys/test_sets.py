"""Data sets with gaps, bad episodes and unreadable files: what their stamps say, and what is left
out or fails, in every command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from journeys.arrays import write_h5

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

T = np.arange(60) / 30
GAP = T + 0.5 * (T >= 1)
Q = np.stack([np.sin(3 * T), np.cos(3 * T)], 1)
DIFFER = "differentiate {} --method central -o out.h5 --overwrite"


def lerobot(*episodes: dict[str, Any], version: int = 3, fps: int = 30) -> str:
    """A LeRobot set; an episode is its stamps, frame numbers and positions, where they differ."""
    folder = Path("set/data/chunk-000")
    folder.mkdir(parents=True)
    Path("set/meta").mkdir()
    Path("set/meta/info.json").write_text(json.dumps({"fps": fps, "features": {}}))
    tables = []
    for k, of in enumerate(episodes):
        stamps = np.asarray(of.get("timestamp", T))
        values = np.asarray(of.get("action", np.stack([np.sin(3 * stamps), np.cos(3 * stamps)], 1)))
        flat = arrow.array(values.astype("f4").ravel())
        frames = np.rint(of.get("frame_index", np.arange(len(stamps)))).astype(int)
        columns = {"timestamp": stamps.astype("f4"), "frame_index": frames}
        columns |= {"episode_index": np.full(len(stamps), k)}
        actions = arrow.FixedSizeListArray.from_arrays(flat, values.shape[1])
        tables.append(arrow.table({"action": actions, **columns}))
    if version == 2:
        for k, table in enumerate(tables):
            parquet.write_table(table, folder / f"episode_{k:06d}.parquet")
    else:
        parquet.write_table(arrow.concat_tables(tables), folder / "file-000.parquet")
    return "set:action"


def rows(path: str, name: str = "velocity") -> list[np.ndarray]:
    """The trajectories of an array of an output, in the order of their names."""
    found: list[np.ndarray] = []

    def add(place: str, values: Any) -> None:
        if place.rpartition("/")[2] in (name, f"{name}s"):
            found.extend(values[()] if values.ndim == 3 else [values[()]])

    with h5py.File(path) as file:
        file.visititems(add)
    return found


@pytest.mark.parametrize("version", [2, 3])
def test_missing_frames_are_a_time_jump_in_every_command(trajcli, folder, version):
    source = lerobot({}, {"timestamp": GAP}, version=version)
    trajcli.fails(f"check {source}")
    trajcli.ok(f"check {source} --episodes 0")
    trajcli.fails(f"score {source} --fail time_jumps>0")
    trajcli.ok(DIFFER.format(f"{source} --max-gap 0.3"))
    assert sorted(map(len, rows("out.h5"))) == [30, 30, 60]
    trajcli.ok(DIFFER.format(source))
    assert max(np.abs(x).max() for x in rows("out.h5")) < 3.1
    trajcli.ok(f"export {source} -o e.csv --episodes 1")
    np.testing.assert_allclose(np.loadtxt("e.csv", delimiter=",", skiprows=1)[:, 0], GAP, atol=1e-6)


@pytest.mark.parametrize("version", [2, 3])
def test_a_rate_that_contradicts_the_stamps_is_refused(trajcli, folder, version):
    slow = {"timestamp": T * 30 / 25}
    source = lerobot(slow, {"timestamp": slow["timestamp"][:40]}, version=version)
    trajcli.refuses(DIFFER.format(source), "fps", "timestamp")
    trajcli.fails(f"check {source}")
    for option, peak in (("--rate 30", 3.6), ("--times set:timestamp", 3.0)):
        trajcli.ok(DIFFER.format(f"{source} {option}"))
        np.testing.assert_allclose([np.abs(x).max() for x in rows("out.h5")], peak, rtol=0.01)


@pytest.mark.parametrize(
    "array", ["observation/robot_state/joint_positions", "action/joint_position"]
)
def test_rows_of_droid_are_at_its_time_stamps(trajcli, folder, array):
    stamps = 1_700_000_000_000 + np.rint(1000 * GAP).astype(int)
    names = ("robot_state/read_start", "control/step_start")
    times = {f"observation/timestamp/{name}": stamps for name in names}
    write_h5("trajectory.h5", {array: Q} | times)
    trajcli.ok(DIFFER.format(f"trajectory.h5:{array}"))
    np.testing.assert_allclose(np.ravel(rows("out.h5", "time")), GAP, atol=1e-3)


def test_jitter_of_stamps_is_no_contradiction(trajcli, folder):
    noise = np.random.default_rng(0).uniform(-0.005, 0.005, 60)
    trajcli.ok(DIFFER.format(lerobot({"timestamp": T + noise})))
    np.testing.assert_allclose(np.ravel(rows("out.h5", "time")), T + noise - noise[0], atol=1e-6)


def demos(groups: str, bad: Any) -> str:
    """Three demonstrations in groups, of which the first is bad, or the second is without actions;
    the first of a file tells its layout."""
    arrays = {f"{groups}_{k}/actions": Q if k != (bad is None) else bad for k in range(3)}
    arrays |= {f"{groups}_{k}/other": Q for k in range(3)}
    write_h5("set.h5", {path: x for path, x in arrays.items() if x is not None})
    return "set.h5:actions --rate 30"


def replay() -> str:
    write_h5("set.h5", {"data/action": np.concatenate([Q, Q]), "meta/episode_ends": [0, 60, 120]})
    return "set.h5:data/action --rate 30"


def damaged() -> str:
    source = lerobot({}, {}, {}, version=2)
    Path("set/data/chunk-000/episode_000000.parquet").write_text("junk")
    return source


ANEW = np.concatenate([T[:30], T[:30]])
BAD = {
    "LeRobot, stamps that begin anew": lambda: lerobot({"timestamp": ANEW}, {}, {}),
    "LeRobot, frames that begin anew": lambda: lerobot({}, {"frame_index": 30 * ANEW}, {}),
    "LeRobot, frames missing": lambda: lerobot({}, {"frame_index": T * 60}, {}),
    "LeRobot, other dofs": lambda: lerobot({"action": Q[:, :1]}, {}, {}, version=2),
    "robomimic, no rows": lambda: demos("data/demo", Q[:0]),
    "robomimic, other dofs": lambda: demos("data/demo", Q[:, :1]),
    "robomimic, no actions": lambda: demos("data/demo", None),
    "robomimic, texts": lambda: demos("data/demo", np.array([[b"a", b"b"]] * 60)),
    "ManiSkill, other dofs": lambda: demos("traj", Q[:, :1]),
    "replay buffer, no rows": replay,
    "LeRobot, a damaged file": damaged,
}


@pytest.mark.parametrize("kind", BAD)
def test_one_bad_episode_can_be_left_out_of_every_command(trajcli, folder, kind):
    source, bad = BAD[kind](), int("frames" in kind or "no actions" in kind)
    trajcli.refuses(DIFFER.format(source))
    trajcli.fails(f"check {source}")
    trajcli.refuses(f"score {source}")
    trajcli.ok(f"inspect {source}")
    line = DIFFER.format(source)
    for run, words, count in (
        (trajcli.ok, "--episodes 2", 1),
        (trajcli.fails, "--skip-bad", 2),
        (trajcli.fails, f"--skip-bad --episodes {bad},2", 1),
    ):
        run(f"{line} {words}")
        assert len(rows("out.h5")) == count
    trajcli.refuses(f"resample {source} --to 60 -o r.h5")
    trajcli.fails(f"resample {source} --to 60 -o r.h5 --skip-bad")
    assert len(rows("r.h5", "action")) == 2
    trajcli.ok(f"check {source} --episodes {1 - bad},2")
    for command in ("check", "score"):
        result = trajcli.fails(f"{command} {source} --skip-bad --json").document
        assert len(result["left_out"]) == 1
        assert not result["passed"]
    scored = trajcli.ok(f"score {source} --episodes 2,{1 - bad} --json").document["trajectories"]
    assert [line["trajectory"].rpartition("_")[2] for line in scored] == ["2", str(1 - bad)]
    plot = ("plot {} -o p.svg",) * (kind == "robomimic, other dofs")
    for command in ("export {} -o e.csv", "fit {} --knots 9 -o f.h5", *plot):
        trajcli.ok(f"{command.format(source)} --episodes 2")


@pytest.mark.parametrize("option", ["", " --skip-bad"])
@pytest.mark.parametrize("command", ["check", "score --fail limit_share>1"])
def test_other_files_are_judged_where_one_cannot_be_read(trajcli, folder, command, option):
    for name, size in (("a", 0.1), ("b", 0.1), ("c", 9.0)):
        np.savez(f"{name}.npz", position=size * Q, times=T)
    Path("b.npz").write_bytes(Path("b.npz").read_bytes()[:500])
    Path("l.toml").write_text("[velocity]\nupper = [3.0, 3.0]\n")
    line = f"{command} a.npz b.npz c.npz --limits l.toml --json{option}"
    files = trajcli.fails(line).document["files"]
    assert [file["passed"] for file in files] == [True, False, False]
    assert [len(file["left_out"]) for file in files] == [0, 1, 0]
    trajcli.refuses(f"{command} b.npz --limits l.toml{option}")


@pytest.mark.parametrize(
    ("limits", "arrays"),
    [
        ("[angular_velocity]\nupper = 1.0\n", {"position": Q}),
        ("[velocity]\nupper = [9.0, 9.0]\n", {"acceleration": Q}),
        ("", {"position": Q, "reference/velocity": Q}),
    ],
)
def test_what_was_not_scored_fails_a_gate_and_nothing_else(trajcli, folder, limits, arrays):
    Path("l.toml").write_text(limits)
    write_h5("in.h5", arrays)
    line = f"score in.h5 --dt 0.1 --json{' --limits l.toml' * bool(limits)}"
    assert len(trajcli.ok(line).document["unscored"]) == 1
    trajcli.fails(f"{line} --fail duration>1000")


def test_one_that_differs_is_an_outlier_and_rounding_makes_none(trajcli, folder):
    many, rising = np.tile(Q[None], (12, 1, 1)), 0.37 * np.arange(12)[:, None, None]
    times = np.tile(T, (12, 1))
    times[7, 30:] += 0.1
    amplitudes = np.random.default_rng(0).uniform(0.9, 1.1, 12)
    amplitudes[3] = 20
    for arrays, expected in (
        ({"position": many, "times": times}, {"time_jumps": [7], "duration": [7]}),
        ({"position": many + rising, "dt": 1 / 30}, {}),
        ({"position": (many + rising).astype("f4"), "dt": 1 / 30}, {}),
        ({"position": many * amplitudes[:, None, None], "dt": 1 / 30}, {"path_length": [3]}),
    ):
        np.savez("in.npz", **arrays)
        outliers = trajcli.ok("score in.npz --json").document["outliers"]
        assert expected == {name: outliers.get(name) for name in expected or outliers}


def test_a_rate_is_that_of_its_group(trajcli, folder):
    slow = {f"gripper/{name}": x for name, x in (("position", Q), ("time", T * 10))}
    write_h5("in.h5", {"arm/position": Q, "arm/time": T} | slow)
    result = trajcli.ok("inspect in.h5 --json").document["trajectories"]
    assert result["rate"] is None
    rates = [result["rates"][name] for name in ("arm", "gripper")]
    np.testing.assert_allclose(rates, [[30] * 2, [3] * 2])
    assert "arm 30 Hz" in trajcli.ok("inspect in.h5").out
    result = trajcli.ok("inspect in.h5:arm --json").document["trajectories"]
    assert result["rate"] == pytest.approx(30)
    mixed = {f"demo_{k}/{name}": x for k in range(4)
             for name, x in (("position", Q), ("time", T * (1 + k % 2)))}  # fmt: skip
    write_h5("mixed.h5", mixed)
    result = trajcli.ok("inspect mixed.h5 --json").document["trajectories"]
    assert result["rate"] is None
    np.testing.assert_allclose(result["rates"]["demo_*"], [15, 30])


def test_what_was_not_looked_at_has_no_count_of_nan(trajcli, folder, monkeypatch):
    values = np.zeros((300, 300, 2))
    values[173, 211, 1] = np.nan
    np.save("big.npy", values)
    write_h5("big.h5", position=values)
    for name in ("SAMPLED_BYTES", "LEAST_SAMPLED_BYTES"):
        monkeypatch.setattr(f"trajcli.views.inspect.{name}", 1 << 14)
    for file in ("big.npy", "big.h5"):
        for option, expected in (("", None), (" --full", 1)):
            found = trajcli.ok(f"inspect {file} --json{option}").document["datasets"]
            assert [one["nan"] for one in found if one["shape"][0] == 300][-1] == expected


def test_picked_dofs_are_those_of_every_array(trajcli, folder):
    noise = np.random.default_rng(0).normal(0, 1e-3, (60, 2))
    np.savez("q.npz", position=Q * [1, 5] + noise, times=T)
    trajcli.ok("differentiate q.npz -o out.h5")
    found = trajcli.ok("inspect out.h5 --dofs 1 --json").document["datasets"]
    about = {one["name"]: one for one in found}
    sizes = {one["shape"][-1] for one in found if one["name"] not in ("time", "dof", "trajectory")}
    assert sizes == {1}
    assert "bandlimit" in about
    assert about["recorded_position"]["max"] == pytest.approx((Q * 5 + noise)[:, 1].max())


TIDY = "".join(f"{t:.3f},a,{x:.5f}\n{t:.3f},b,{y:.5f}\n" for t, (x, y) in zip(T, Q, strict=True))
ROS = "".join(f"{k},{'a,b' if k % 3 else 'l,r'},{x:.5f},{y:.5f}\n" for k, (x, y) in enumerate(Q))
TURNS = {
    "tidy.csv": f"t,joint,position\n{TIDY}",
    "ids.csv": f"t,motor_id,position\n{TIDY}".replace(",a,", ",1,").replace(",b,", ",2,"),
    "ros.csv": f"%time,field.name0,field.name1,field.position0,field.position1\n{ROS}",
}


@pytest.mark.parametrize(
    "command", ["differentiate {} -o o.h5", "check {}", "score {}", "export {} -o e.csv"]
)
def test_rows_of_joints_in_turns_are_refused(trajcli, folder, command):
    for name, content in TURNS.items():
        Path(name).write_text(content)
        trajcli.refuses(command.format(name), "in turns", "awk")
    columns = [line.split(",") for line in TIDY.split()]
    table = {name: [row[k] for row in columns] for k, name in enumerate(("t", "joint", "position"))}
    table |= {name: [float(x) for x in table[name]] for name in ("t", "position")}
    parquet.write_table(arrow.table(table), "tidy.parquet")
    trajcli.refuses(command.format("tidy.parquet"), "in turns")
    one = "".join(f"{t:.3f},a,{x:.5f},{y:.5f}\n" for t, (x, y) in zip(T, Q, strict=True))
    Path("one.csv").write_text(f"t,joint,q0,q1\n{one}")
    trajcli.ok(command.format("one.csv"))


@pytest.mark.parametrize("cut", [2, 12])
def test_a_table_that_breaks_off_is_read_without_its_last_line(trajcli, folder, cut):
    lines = "\n".join(f"{t:.3f},{x:.5f},{y:.5f}" for t, (x, y) in zip(T, Q, strict=True))
    Path("cut.csv").write_text(f"t,q0,q1\n{lines[:-cut]}")
    assert "breaks off in line 61" in trajcli.ok(DIFFER.format("cut.csv")).err
    assert len(rows("out.h5")[0]) == 59
    Path("cut.csv").write_text(f"t,q0,q1\n{lines}")
    assert "breaks off" not in trajcli.ok(DIFFER.format("cut.csv")).err
    assert len(rows("out.h5")[0]) == 60


@pytest.mark.parametrize("column", ["servo", "name", "valid", "done"])
def test_columns_that_only_look_like_turns_are_none(trajcli, folder, column):
    """Positions of a servo, phases of a task, flags of single rows, and ends in words."""
    k = np.arange(60)
    cells = {"servo": 1500 + k * k % 3, "name": np.where(k < 30, "reach", "lift"),
             "valid": k % 7 > 0, "done": np.isin(k, (29, 59))}[column]  # fmt: skip
    lines = [f"{t:.6f},{q:.9f},{cell}" for t, (q, _), cell in zip(T, Q, cells, strict=True)]
    Path("in.csv").write_text("\n".join([f"time,q1,{column}", *lines]) + "\n")
    numbers = trajcli.ok("score in.csv:q1 --json").document["trajectories"]
    assert len(numbers) == 1 + (column == "done")


def test_empty_and_uncommon_groups_are_left_out(trajcli, folder):
    for odd in (Q[:0], Q[:, :1]):
        write_h5("set.h5", {f"demo_{k}/position": odd if k == 1 else Q for k in range(4)})
        trajcli.fails("check set.h5 --rate 30")
        scored = trajcli.fails("score set.h5 --rate 30 --skip-bad --json").document["trajectories"]
        assert len(scored) == 3
        trajcli.ok("export set.h5 --rate 30 --episodes 2: -o e.csv --overwrite")
