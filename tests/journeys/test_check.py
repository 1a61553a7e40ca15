"""trajcli check, as a user types it."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

QUANTITIES = ("position", "velocity", "acceleration", "jerk")


@pytest.fixture
def out(trajcli, samples, tmp_path, monkeypatch) -> Path:
    """A good output with its source beside it, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reach.h5").write_bytes((samples / "reach.h5").read_bytes())
    assert trajcli("integrate reach.h5 --mode jerk --scheme zoh -o out.h5").code == 0
    return tmp_path / "out.h5"


def findings(result) -> dict[str, dict]:
    return {f"{c['check']} {c['dataset']}": c for c in result.document["checks"]}


def only(result, check: str) -> dict:
    (found,) = [c for c in result.document["checks"] if c["check"].startswith(check)]
    return found


def failing(result) -> list[tuple[str, str]]:
    return [(c["check"], c["dataset"]) for c in result.document["checks"] if c["passed"] is False]


def test_a_good_output_passes_every_check(trajcli, out, samples):
    result = trajcli(f"check out.h5 --limits {samples}/limits.toml --json")
    assert result.code == 0
    assert result.document["passed"]
    assert all(check["passed"] for check in result.document["checks"])
    names = {check["check"] for check in result.document["checks"]}
    assert names == {
        "finite",
        "start row",
        "time",
        *(f"{quantity} limits" for quantity in QUANTITIES),
    }
    text = trajcli(f"check out.h5 --limits {samples}/limits.toml").out
    assert "checks passed" in text
    assert "within limits, peak 94.7 %" in text


def test_a_batch_of_failures_is_one_line_and_v_lists_them(trajcli, out):
    with h5py.File(out, "r+") as file:
        file["velocity"][:, 20, 3] = np.nan
    text = trajcli("check out.h5").out
    assert len(text.splitlines()) < 15
    assert "64 in 64 of 64" in text
    assert "row 20, dof 3 (panda_joint4)" in text
    assert "-v lists" in text
    verbose = trajcli("check out.h5 -v").out
    assert all(f"trajectory {n}, row 20, dof 3" in verbose for n in range(64))
    listed = findings(trajcli("check out.h5 -v --json"))["finite velocity"]["failures"]
    assert [where.split(",")[0] for where in listed] == [f"trajectory {n}" for n in range(64)]


def test_nan_the_start_row_and_time_each_have_a_check_of_their_own(trajcli, out):
    with h5py.File(out, "r+") as file:
        file["jerk"][2, 60, 6] = np.nan
        file["position"][5, 0, 1] += 1e-9
        file["time"][7, 9] = file["time"][7, 8]
    report = trajcli("check out.h5 --json")
    assert report.code == 1
    found = findings(report)
    at = found["finite jerk"]["at"]
    with h5py.File(out) as file:
        assert at.pop("time") == file["time"][2, 60]
    assert at == {"trajectory": 2, "row": 60, "dof": 6}
    at = {"trajectory": 5, "row": 0, "dof": 1, "time": 0.0}
    assert found["start row position"]["at"] == at
    assert found["time time"]["where"].startswith("trajectory 7, row 9 (")
    assert [row["row"] for row in found["time time"]["rows"]] == [9]


def test_the_start_row_is_not_checked_where_its_source_is_gone(trajcli, out):
    (out.parent / "reach.h5").unlink()
    found = only(trajcli("check out.h5 --json"), "start row")
    assert found["passed"] is None
    assert "reach.h5" in found["text"]


def test_an_output_in_another_folder_finds_its_start(trajcli, samples, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    (tmp_path / "reach.h5").write_bytes((samples / "reach.h5").read_bytes())
    assert trajcli("integrate reach.h5 --mode jerk --scheme zoh -o results/out.h5").code == 0
    monkeypatch.chdir(samples)
    assert only(trajcli(f"check {tmp_path}/results/out.h5 --json"), "start row")["passed"] is True


@pytest.mark.parametrize("kind", ["toml", "urdf"])
def test_what_passes_a_limit_is_counted_and_the_worst_is_named(trajcli, out, kind):
    with h5py.File(out) as file:
        speed, time = np.abs(file["velocity"][:, :, 1]), file["time"][...]
    limit = 0.9 * speed.max()
    limits = out.parent / f"limits.{kind}"
    if kind == "toml":
        limits.write_text(f"[velocity]\nupper = [9, {limit}, 9, 9, 9, 9, 9]")
    else:
        joints = "".join(
            f'<joint name="panda_joint{n}" type="revolute"><limit lower="-9" upper="9" '
            f'velocity="{limit if n == 2 else 9}"/></joint>'
            for n in range(1, 8)
        )
        limits.write_text(f"<robot>{joints}</robot>")
    report = trajcli(f"check out.h5 --limits {limits} --json")
    assert report.code == 1
    (finding,) = [c for c in report.document["checks"] if c["passed"] is False]
    assert finding["check"] == "velocity limits"
    assert finding["failing_values"] == int((speed > limit).sum())
    assert finding["failing_trajectories"] == int((speed > limit).any(1).sum())
    at = np.unravel_index(speed.argmax(), speed.shape)
    assert finding["at"] == {"trajectory": at[0], "row": at[1], "dof": 1, "time": time[at]}
    assert abs(finding["value"]) == speed.max()


def write_limits(**limits: float) -> str:
    """A file of limits of two dofs."""
    tables = (f"[{name}]\nupper = [{limit}, {limit}]\n" for name, limit in limits.items())
    Path("limits.toml").write_text("".join(tables))
    return "--limits limits.toml"


TIME = 0.01 * np.arange(200)
SWING = np.stack([np.sin(3 * TIME), 0.1 * np.cos(TIME)], 1)  # up to 1 rad, 3 rad/s and 9 rad/s²


@pytest.fixture(params=["csv", "npy", "columns", "h5"])
def swing(request, folder) -> str:
    """Two dofs called q, which no file says are positions: SOURCE and what says the time."""
    if request.param == "npy":
        np.save("in.npy", SWING[None])
        return "in.npy --dt 0.01"
    if request.param == "h5":
        with h5py.File("in.h5", "w") as file:
            file["q"], file["time"] = SWING, TIME
        return "in.h5:q"
    names = ("q[0]", "q[1]") if request.param == "csv" else ("elbow", "wrist")
    table = np.column_stack([TIME, SWING])
    np.savetxt("in.csv", table, delimiter=",", header=",".join(["time", *names]), comments="")
    return "in.csv" if request.param == "csv" else "in.csv:elbow,wrist"


@pytest.mark.parametrize(
    ("quantity", "peak"), [("position", 1.0), ("velocity", 3.0), ("acceleration", 9.0)]
)
def test_limits_are_held_against_positions_of_any_name_and_their_differences(
    trajcli, swing, quantity, peak
):
    for share, code in ((1.01, 0), (0.9, 1)):
        line = f"check {swing} {write_limits(**{quantity: share * peak})} --json"
        result = trajcli(line)
        assert result.code == code, (result.out, result.err)
        assert result.document["passed"] is (code == 0)
        found = only(result, f"{quantity} limits")
        assert found["quantity"] == quantity
        assert ("derived_from" in found) is (quantity != "position")
        text = trajcli(line.removesuffix("--json")).out
        assert ("central differences" in " ".join(text.split())) is (quantity != "position")
    (dof,) = found["dofs"]
    assert dof["dof"] == 0
    assert abs(dof["value"]) == pytest.approx(peak, rel=1e-3)
    assert dof["time"] == TIME[dof["row"]]
    exact = {"position": np.sin, "velocity": np.cos, "acceleration": np.sin}[quantity](3 * TIME)
    beyond = np.abs(exact) > share
    assert dof["failing_values"] == pytest.approx(beyond.sum(), abs=2)
    assert len(dof["spans"]) == (np.diff(beyond.astype(int), prepend=0) == 1).sum()
    for span in dof["spans"]:
        assert span["seconds"] == TIME[span["rows"]].tolist()
        assert beyond[span["rows"][0] + 1 : span["rows"][1]].all()


@pytest.mark.parametrize(
    ("name", "values", "limited", "reason"),
    [
        ("in.h5", {"velocity": np.zeros((9, 2)), "dt": 0.1}, "jerk", "no positions to diff"),
        ("in.h5", {"velocity": np.zeros((9, 2)), "dt": 0.1}, "position", "no positions to diff"),
        ("in.h5", {"actions": np.zeros((9, 2)), "dt": 0.1}, "position", "FILE:DATASET names them"),
        ("in.h5", {"position": np.zeros((9, 2))}, "velocity", "no time step"),
        ("in.h5", {"position": np.zeros((4, 2)), "dt": 0.1}, "velocity", "8 values that are NaN"),
        ("in.h5", {"position": np.zeros((9, 2)), "dt": -1.0}, "velocity", "not checked"),
        ("in.h5", {"position": np.zeros((9, 2)), "time": [0.0] * 9}, "velocity", "not checked"),
        ("in.h5", {"position": np.zeros((3, 0, 2)), "dt": 0.1}, "position", "there are no rows"),
        ("in.h5", {"position": np.full((9, 2), np.nan)}, "position", "18 values that are NaN"),
    ],
)
def test_a_limit_that_was_held_against_nothing_is_a_failure(
    trajcli, folder, name, values, limited, reason
):
    with h5py.File(name, "w") as file:
        for key, value in values.items():
            file[key] = value
    result = trajcli(f"check {name} {write_limits(**{limited: 1.0})} --json")
    assert result.code == 1, result.err
    assert not result.document["passed"]
    found = only(result, f"{limited} limits")
    assert found["passed"] is False
    assert "not checked" in found["text"]
    assert reason in found["text"]
    assert "could not be made" not in trajcli(f"check {name} --limits limits.toml").out


def test_two_arms_in_groups_of_their_own_are_held_against_limits_each(trajcli, folder):
    with h5py.File("in.h5", "w") as file:
        for arm in ("left", "right"):
            file[f"{arm}/position"], file[f"{arm}/time"] = SWING, TIME
        file["right/velocity"] = np.zeros((200, 2))
    result = trajcli(f"check in.h5 {write_limits(velocity=2.0)} --json")
    assert failing(result) == [("velocity limits", "left/position")]


def test_time_that_does_not_go_by_dt_fails(trajcli, folder):
    assert trajcli("integrate actions.npy --start zero --dt 0.1 -o out.h5").code == 0
    with h5py.File("out.h5", "r+") as file:
        file["time"][4] += 0.01
    assert failing(trajcli("check out.h5 --json")) == [("time", "time")]


def test_dt_and_times_that_contradict_each_other_fail(trajcli, folder):
    with h5py.File("in.h5", "w") as file:
        file["position"] = np.zeros((2, 5, 3))
        file["times"] = 0.1 * np.arange(5)
        file["dt"] = 0.02
    result = trajcli("check in.h5 --json")
    assert result.code == 1
    found = only(result, "time")
    assert "contradict" in found["text"]
    assert "dt" in found["where"]
    assert "times" in found["where"]


def test_the_faulty_sample_fails_at_each_row_that_repeats(trajcli, samples):
    report = trajcli(f"check {samples}/recorded_faulty.h5 --json")
    assert report.code == 1
    assert failing(report) == [("time", "times")]
    with h5py.File(samples / "recorded_faulty.h5") as file:
        times = file["times"][...]
    rows = (np.flatnonzero(np.diff(times) <= 0) + 1).tolist()
    found = only(report, "time")
    assert len(rows) == 2
    assert found["failing_values"] == 2
    assert found["failing_trajectories"] == 1
    assert [(one["row"], one["time"]) for one in found["rows"]] == [(n, times[n]) for n in rows]
    text = " ".join(trajcli(f"check {samples}/recorded_faulty.h5").out.split())
    assert all(f"row {row} ({times[row]:.3f} s)" in text for row in rows)


def test_rows_whose_times_are_wrong_are_counted_in_all_trajectories(trajcli, folder):
    times = np.tile(0.1 * np.arange(20), (3, 1))
    times[0, 5:] -= 0.1
    times[2, 2:18:2] = times[2, 1:17:2]
    with h5py.File("in.h5", "w") as file:
        file["position"], file["times"] = np.zeros((3, 20, 2)), times
    found = only(trajcli("check in.h5 --json -v"), "time")
    assert (found["failing_values"], found["failing_trajectories"]) == (9, 2)
    assert [one["row"] for one in found["rows"]] == [5]
    first, last = found["failures"]
    assert first == "trajectory 0, row 5 (0.400 s): not increasing"
    assert all(f"row {row} ({times[2, row]:.3f} s)" in last for row in range(2, 18, 2))
    assert "9 in 2 of 3" in trajcli("check in.h5").out
    text = " ".join(trajcli("check in.h5 --episodes 2").out.split())
    assert "(0.900 s) and 3 more (-v)" in text


def recording(path: str, factor: float = 1.0) -> None:
    """One robot's positions, and velocities that are their derivative times a factor."""
    time = np.arange(0.0, 4.0, 0.01)
    noise = 1e-3 * np.random.default_rng(0).standard_normal((400, 2))
    with h5py.File(path, "w") as file:
        file["obs/qpos"] = np.stack([np.sin(time), np.cos(2 * time)], 1)
        file["obs/qvel"] = factor * np.stack([np.cos(time), -2 * np.sin(2 * time)], 1) + noise
        file["time"] = time


def test_recorded_velocities_are_held_against_recorded_positions(trajcli, folder):
    recording("in.h5")
    result = trajcli("check in.h5:obs/qvel --velocity-of obs/qpos --json")
    assert result.code == 0, result.err
    assert only(result, "velocity")["passed"] is True
    assert trajcli("check in.h5:obs/qvel --velocity-of in.h5:obs/qpos").code == 0
    recording("in.h5", 180 / np.pi)
    result = trajcli("check in.h5:obs/qvel --velocity-of obs/qpos --json")
    assert result.code == 1
    assert "degrees" in only(result, "velocity")["text"]
    assert trajcli("check in.h5:obs/qvel --velocity-of obs/none").code == 2
    assert trajcli("check in.h5:obs/qvel --velocity-of in.h5:time").code == 2


def test_recompute_says_whether_an_output_is_what_its_command_gives(trajcli, out):
    report = trajcli("check out.h5 --recompute --json").document
    again = [check for check in report["checks"] if check["check"] == "recompute"]
    assert {check["dataset"] for check in again} == {*QUANTITIES, "time"}
    assert all(check["passed"] and check["exact"] for check in again)
    with h5py.File(out, "r+") as file:
        file["position"][9, 30, 4] += 1e-6
    result = trajcli("check out.h5 --recompute --json")
    assert result.code == 1
    assert ("recompute", "position") in failing(result)
    found = findings(result)["recompute position"]
    assert found["at"] == {"trajectory": 9, "row": 30, "dof": 4}


def test_recompute_without_sources_is_exit_2_and_names_them(trajcli, out):
    (out.parent / "reach.h5").unlink()
    result = trajcli("check out.h5 --recompute")
    assert result.code == 2
    assert "reach.h5" in result.err
    assert trajcli("check " + "reach.h5 --recompute").code == 2


@pytest.fixture
def sources(folder: Path) -> None:
    """Inputs of many kinds in the current folder."""
    random = np.random.default_rng(0)
    with h5py.File("padded.h5", "w") as file:
        file["actions"] = random.standard_normal((6, 20, 3))
        file["lengths"] = [20, 5, 9, 20, 5, 2]
        file["start/position"] = random.standard_normal((6, 3))
        file["start/velocity"] = random.standard_normal((6, 3))
        file.attrs["dt"] = 0.1
    with h5py.File("demos.hdf5", "w") as file:
        for n in range(12):
            demo = file.create_group(f"data/demo_{n}")
            demo["actions"] = random.standard_normal((10 + n % 4, 3))
            demo["obs/joint_pos"] = random.standard_normal((10 + n % 4, 3)).cumsum(0)
            demo.attrs["num_samples"] = 10 + n % 4
        file["data/demo_5/actions"][2, 1] = np.nan
    with h5py.File("recorded.h5", "w") as file:
        file["position"] = random.standard_normal((300, 2)).cumsum(0)
        times = 0.01 * np.arange(300)
        times[100:] += 1.0
        file["times"] = times
    np.save("longer.npy", random.standard_normal((4, 9, 3)).astype("f4"))
    np.save("shorter.npy", random.standard_normal((3, 7, 3)).astype("f4"))
    np.save("states.npy", random.standard_normal((7, 3)))


@pytest.mark.parametrize(
    ("words", "out"),
    [
        ("padded.h5 --mode jerk", "out.h5"),
        ("padded.h5 --mode central", "out.npz"),
        ("padded.h5 --dofs 0:2 --start 0,0.5", "out.h5"),
        ("demos.hdf5 --start zero --dt 0.05 --mode bspline --allow-nonfinite", "out.h5"),
        ("demos.hdf5 --start zero --dt 0.05 --mode velocity --skip-bad", "out.npz"),
        ("demos.hdf5:obs/joint_pos --dt 0.05 --method central", "out.h5"),
        ("recorded.h5:position --method backward --max-gap 0.5", "out.h5"),
        ("longer.npy shorter.npy --start states.npy --dt 0.1", "out.h5"),
        ("longer.npy --start zero --dt 0.1 --cost velocity+0.1*jerk", "out.h5"),
        ("longer.npy --start zero --dt 0.1 --compress 4", "out.h5"),
    ],
)
def test_any_output_computed_again_is_equal_to_the_bit(trajcli, sources, words, out):
    recorded = "--method" in words
    line = f"{'differentiate' if recorded else 'integrate'} {words} -o {out}"
    assert trajcli(line).code in (0, 1), line  # 1: --skip-bad left something out
    report = trajcli(f"check {out} --recompute --json").document
    again = [check for check in report["checks"] if check["check"] == "recompute"]
    assert len(again) >= 4
    assert all(check["exact"] for check in again)
    starts = [check["passed"] for check in report["checks"] if check["check"] == "start row"]
    assert set(starts) == {None if recorded else True}


@pytest.mark.parametrize(
    "request_text",
    [
        "",
        "[" * 50_000,
        '{"sources": 5}',
        '{"sources": ["actions.npy"], "options": 5}',
        '{"sources": ["a\\u0000.npy"]}',
        '{"sources": ["/dev/zero"]}',
    ],
)
def test_a_recorded_command_that_is_none_is_no_bug(trajcli, folder, request_text):
    assert trajcli("integrate actions.npy --start zero --dt 0.1 -o out.h5").code == 0
    with h5py.File("out.h5", "r+") as file:
        file.attrs["request"] = request_text
    result = trajcli("check out.h5 --json")
    assert result.code == 0, result.err
    assert only(result, "start row")["passed"] is None
    assert trajcli("check out.h5 --recompute").code == 2


@pytest.mark.parametrize(
    ("name", "change"), [("position", 1e-11), ("acceleration", 1e-10), ("jerk", 1e-15)]
)
def test_recompute_fails_what_is_more_than_the_kernels_promise(trajcli, out, name, change):
    line = "integrate reach.h5 --mode jerk --scheme zoh --dtype float64 -o out.h5 --overwrite"
    assert trajcli(line).code == 0
    with h5py.File(out, "r+") as file:
        values = file[name][9]
        values[30, 4] += change * np.abs(values[:, 4]).max()
        file[name][9] = values
    result = trajcli("check out.h5 --recompute --json")
    found = findings(result)[f"recompute {name}"]
    assert found["passed"] is False
    assert found["at"] == {"trajectory": 9, "row": 30, "dof": 4}


def test_recompute_allows_differences_the_rounding_of_what_they_subtract(trajcli, folder):
    noise = 1e-6 * np.random.default_rng(0).normal(size=(2, 20, 3))
    np.save("actions.npy", 5e-3 * np.arange(20)[:, None] + noise)  # fast, and hardly accelerated
    line = "differentiate actions.npy --method backward --dtype float64 --dt 1e-3 -o out.h5"
    assert trajcli(line).code == 0
    with h5py.File("out.h5", "r+") as file:
        largest = np.abs(file["velocity"][1, :, 2]).max()
        file["acceleration"][1, 9, 2] += 1e-13 * largest / 1e-3
    found = findings(trajcli("check out.h5 --recompute --json"))["recompute acceleration"]
    assert found["passed"] is True
    assert found["exact"] is False


def test_hundreds_of_trajectories_that_fail_have_one_line_for_each_dof(trajcli, folder):
    position = np.full((300, 5, 3), 0.1)
    position[:, 2, 1] = 0.8
    position[217, 3, 1] = 0.9
    position[:, 4, 2] = -1.5
    with h5py.File("a.h5", "w") as file:
        file["position"], file["joint_names"] = position, ["pan", "lift", "elbow"]
        file.attrs["dt"] = 0.5
    Path("l.toml").write_text("[position]\nupper = [0.5, 0.5, 1.0]\n")
    result = trajcli("check a.h5 --limits l.toml")
    assert result.code == 1
    lines = [line.split("; beyond")[0] for line in map(str.strip, result.out.splitlines())]
    assert [line for line in lines if "limit" in line and "trajectory" in line] == [
        "dof 1 (lift): 0.9, limit 0.5, trajectory 217, row 3, 1.500 s",
        "dof 2 (elbow): -1.5, limit -1, trajectory 0, row 4, 2.000 s",
    ]
