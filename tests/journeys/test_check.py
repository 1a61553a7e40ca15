"""trajcli check, as a user types it; delays and wrong rates that --velocity-of must name."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from journeys.arrays import read_h5, write_h5
from scipy import optimize

QUANTITIES = ("position", "velocity", "acceleration", "jerk")


@pytest.fixture
def out(trajcli, samples, tmp_path, monkeypatch) -> Path:
    """A good output with its source beside it, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reach.h5").write_bytes((samples / "reach.h5").read_bytes())
    trajcli.ok("integrate reach.h5 --mode jerk --scheme zoh -o out.h5")
    return tmp_path / "out.h5"


def findings(result) -> dict[str, dict]:
    return {f"{c['check']} {c['dataset']}": c for c in result.document["checks"]}


def only(result, check: str) -> dict:
    (found,) = [c for c in result.document["checks"] if c["check"].startswith(check)]
    return found


def failing(result) -> list[tuple[str, str]]:
    return [(c["check"], c["dataset"]) for c in result.document["checks"] if c["passed"] is False]


def test_a_good_output_passes_every_check(trajcli, out, samples):
    result = trajcli.ok(f"check out.h5 --limits {samples}/limits.toml --json")
    assert result.document["passed"]
    checks = {check["check"]: check["passed"] for check in result.document["checks"]}
    names = ["finite", "start row", "time", "jumps", "frozen rows"]
    names += [f"{name} limits{where}" for name in QUANTITIES for where in ("", " between rows")]
    assert checks == dict.fromkeys(names, True)
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


def test_nan_start_row_and_time_have_separate_checks(trajcli, out):
    with h5py.File(out, "r+") as file:
        file["jerk"][2, 60, 6] = np.nan
        file["position"][5, 0, 1] += 1e-9
        file["time"][7, 9] = file["time"][7, 8]
    found = findings(trajcli.fails("check out.h5 --json"))
    at = found["finite jerk"]["at"]
    assert at.pop("time") == read_h5(out)["time"][2, 60]
    assert at == {"trajectory": 2, "row": 60, "dof": 6}
    at = {"trajectory": 5, "row": 0, "dof": 1, "time": 0.0}
    assert found["start row position"]["at"] == at
    assert found["time time"]["where"].startswith("trajectory 7, row 9 (")
    assert [row["row"] for row in found["time time"]["rows"]] == [9]


def test_the_start_row_is_checked_in_any_folder(trajcli, out):
    Path("results").mkdir()
    trajcli.ok("integrate reach.h5 --mode jerk --scheme zoh -o results/out.h5")
    os.chdir("/")
    line = f"check {out.parent}/results/out.h5 --json"
    assert only(trajcli(line), "start row")["passed"] is True
    (out.parent / "reach.h5").unlink()
    found = only(trajcli(line), "start row")
    assert found["passed"] is None
    assert "reach.h5" in found["text"]


def test_what_passes_a_limit_is_counted_and_the_worst_is_named(trajcli, out):
    with h5py.File(out) as file:
        speed, time = np.abs(file["velocity"][:, :, 1]), file["time"][...]
    limit = 0.9 * speed.max()
    Path("limits.toml").write_text(f"[velocity]\nupper = [9, {limit}, 9, 9, 9, 9, 9]")
    report = trajcli.fails("check out.h5 --limits limits.toml --json")
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
        write_h5("in.h5", q=SWING, time=TIME)
        return "in.h5:q"
    names = ("q[0]", "q[1]") if request.param == "csv" else ("elbow", "wrist")
    table = np.column_stack([TIME, SWING])
    np.savetxt("in.csv", table, delimiter=",", header=",".join(["time", *names]), comments="")
    return "in.csv" if request.param == "csv" else "in.csv:elbow,wrist"


@pytest.mark.parametrize(
    ("quantity", "peak"), [("position", 1.0), ("velocity", 3.0), ("acceleration", 9.0)]
)
def test_positions_of_any_name_are_held_against_limits(trajcli, swing, quantity, peak):
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
    ("values", "limited", "reason"),
    [
        ({"velocity": np.zeros((9, 2)), "dt": 0.1}, "jerk", "no positions to diff"),
        ({"velocity": np.zeros((9, 2)), "dt": 0.1}, "position", "no positions to diff"),
        ({"actions": np.zeros((9, 2)), "dt": 0.1}, "position", "FILE:DATASET names them"),
        ({"position": np.zeros((9, 2))}, "velocity", "no time step"),
        ({"position": np.zeros((4, 2)), "dt": 0.1}, "velocity", "8 values that are NaN"),
        ({"position": np.zeros((9, 2)), "dt": -1.0}, "velocity", "not checked"),
        ({"position": np.zeros((9, 2)), "time": [0.0] * 9}, "velocity", "not checked"),
        ({"position": np.zeros((3, 0, 2)), "dt": 0.1}, "position", "there are no rows"),
        ({"position": np.full((9, 2), np.nan)}, "position", "18 values that are NaN"),
    ],
)
def test_a_limit_held_against_nothing_is_a_failure(trajcli, folder, values, limited, reason):
    write_h5("in.h5", values)
    result = trajcli.fails(f"check in.h5 {write_limits(**{limited: 1.0})} --json")
    assert not result.document["passed"]
    found = only(result, f"{limited} limits")
    assert found["passed"] is False
    assert "not checked" in found["text"]
    assert reason in found["text"]
    assert "could not be made" not in trajcli("check in.h5 --limits limits.toml").out


def test_two_arms_in_groups_have_limits_each(trajcli, folder):
    with h5py.File("in.h5", "w") as file:
        for arm in ("left", "right"):
            file[f"{arm}/position"], file[f"{arm}/time"] = SWING, TIME
        file["right/velocity"] = np.zeros((200, 2))
    result = trajcli(f"check in.h5 {write_limits(velocity=2.0)} --json")
    assert failing(result) == [("velocity limits", "left/position")]


def test_time_that_does_not_go_by_dt_fails(trajcli, folder):
    trajcli.ok("integrate actions.npy --start zero --dt 0.1 -o out.h5")
    with h5py.File("out.h5", "r+") as file:
        file["time"][4] += 0.01
    assert failing(trajcli("check out.h5 --json")) == [("time", "time")]


def test_dt_and_times_that_contradict_each_other_fail(trajcli, folder):
    write_h5("in.h5", position=np.zeros((2, 5, 3)), times=0.1 * np.arange(5), dt=0.02)
    found = only(trajcli.fails("check in.h5 --json"), "time")
    assert "contradict" in found["text"]
    assert "dt" in found["where"]
    assert "times" in found["where"]


def test_rows_whose_times_are_wrong_are_counted_in_all_trajectories(trajcli, folder):
    times = np.tile(0.1 * np.arange(20), (3, 1))
    times[0, 5:] -= 0.1
    times[2, 2:18:2] = times[2, 1:17:2]
    write_h5("in.h5", position=np.zeros((3, 20, 2)), times=times)
    found = only(trajcli("check in.h5 --json -v"), "time")
    assert (found["failing_values"], found["failing_trajectories"]) == (9, 2)
    assert [one["row"] for one in found["rows"]] == [5]
    first, last = found["failures"]
    assert first == "trajectory 0, row 5 (0.400 s): not increasing"
    assert all(f"row {row} ({times[2, row]:.3f} s)" in last for row in range(2, 18, 2))
    assert "9 in 2 of 3" in trajcli("check in.h5").out
    assert "(0.900 s) and 3 more (-v)" in " ".join(trajcli("check in.h5 --episodes 2").out.split())


@pytest.mark.parametrize(
    ("words", "out"),
    [
        ("padded.h5 --mode central", "out.npz"),
        ("padded.h5 --mode jerk --dofs 0:2 --start 0,0.5", "out.h5"),
        ("demos.h5 --start zero --dt 0.05 --mode bspline --allow-nonfinite", "out.h5"),
        ("demos.h5 --start zero --dt 0.05 --mode velocity --skip-bad", "out.npz"),
        ("recorded.h5:position --method backward --max-gap 0.5", "out.h5"),
        ("actions.npy shorter.npy --start states.npy --dt 0.1", "out.h5"),
        ("actions.npy --start zero --dt 0.1 --cost velocity+0.1*jerk", "out.h5"),
        ("actions.npy --start zero --dt 0.1 --compress 4", "out.h5"),
    ],
)
def test_any_output_computed_again_is_equal_to_the_bit(trajcli, folder, words, out):
    random = np.random.default_rng(0)
    states = {f"start/{name}": random.normal(size=(6, 3)) for name in ("position", "velocity")}
    lengths = [20, 5, 9, 20, 5, 2]
    write_h5("padded.h5", {**states, "@dt": 0.1}, actions=np.ones((6, 20, 3)), lengths=lengths)
    bad = np.where(np.arange(30).reshape(10, 3) == 7, np.nan, 1.0)
    write_h5("demos.h5", {"data/demo_0/actions": np.ones((7, 3)), "data/demo_1/actions": bad})
    times = 0.01 * np.arange(300) + (np.arange(300) >= 100)
    write_h5("recorded.h5", position=random.normal(size=(300, 2)).cumsum(0), times=times)
    np.save("shorter.npy", np.load("actions.npy")[:2, :7])
    np.save("states.npy", random.normal(size=(7, 3)))
    recorded = "--method" in words
    line = f"{'differentiate' if recorded else 'integrate'} {words} -o {out}"
    (trajcli.fails if "--skip-bad" in words else trajcli.ok)(line)
    report = trajcli(f"check {out} --recompute --json").document
    again = [check for check in report["checks"] if check["check"] == "recompute"]
    assert len(again) >= 4
    assert all(check["exact"] for check in again)
    starts = [check["passed"] for check in report["checks"] if check["check"] == "start row"]
    assert set(starts) == {None if recorded else True}


SOURCES = ("5", '["actions.npy"], "options": 5', '["a\\u0000.npy"]', '["/dev/zero"]')


@pytest.mark.parametrize(
    "request_text", ["", "[" * 50_000, *(f'{{"sources": {x}}}' for x in SOURCES)]
)
def test_a_recorded_command_that_is_none_is_no_bug(trajcli, folder, request_text):
    trajcli.ok("integrate actions.npy --start zero --dt 0.1 -o out.h5")
    with h5py.File("out.h5", "r+") as file:
        file.attrs["request"] = request_text
    assert only(trajcli.ok("check out.h5 --json"), "start row")["passed"] is None
    trajcli.refuses("check out.h5 --recompute")
    trajcli.refuses("check actions.npy --recompute")


@pytest.mark.parametrize(
    ("name", "change"), [("position", 1e-11), ("acceleration", 1e-10), ("jerk", 1e-15)]
)
def test_recompute_fails_what_is_more_than_the_kernels_promise(trajcli, out, name, change):
    trajcli.ok("integrate reach.h5 --mode jerk --scheme zoh --dtype float64 -o out.h5 --overwrite")
    with h5py.File(out, "r+") as file:
        values = file[name][9]
        values[30, 4] += change * np.abs(values[:, 4]).max()
        file[name][9] = values
    found = findings(trajcli("check out.h5 --recompute --json"))[f"recompute {name}"]
    assert found["passed"] is False
    assert found["at"] == {"trajectory": 9, "row": 30, "dof": 4}


def test_recompute_allows_differences_the_rounding_of_what_they_subtract(trajcli, folder):
    noise = 1e-6 * np.random.default_rng(0).normal(size=(2, 20, 3))
    np.save("actions.npy", 5e-3 * np.arange(20)[:, None] + noise)  # fast, and hardly accelerated
    trajcli.ok("differentiate actions.npy --method backward --dtype float64 --dt 1e-3 -o out.h5")
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
    write_h5("a.h5", {"@dt": 0.5}, position=position, joint_names=["pan", "lift", "elbow"])
    Path("l.toml").write_text("[position]\nupper = [0.5, 0.5, 1.0]\n")
    result = trajcli.fails("check a.h5 --limits l.toml")
    lines = [line.split("; beyond")[0] for line in map(str.strip, result.out.splitlines())]
    assert [line for line in lines if "limit" in line and "trajectory" in line] == [
        "dof 1 (lift): 0.9, limit 0.5, trajectory 217, row 3, 1.500 s",
        "dof 2 (elbow): -1.5, limit -1, trajectory 0, row 4, 2.000 s",
    ]


PHASES = np.array([0.3, 1.1, 2.0])
SPEEDS = np.array([[1.3, 2.9], [0.8, 3.7], [1.9, 2.3]])


def motion(time):
    """Positions and velocities [T, 3], sums of two sines per dof."""
    angle = time[:, None, None] * SPEEDS + PHASES[:, None]
    return np.sin(angle).sum(-1), (SPEEDS * np.cos(angle)).sum(-1)


def write(path, rate=100.0, stated=None, delay=0.0, factor=1.0, noise=0.0, demos=8):
    """Demos of unequal length at a rate; their velocities late by a delay in seconds."""
    random, arrays = np.random.default_rng(0), {"@dt": 1.0 / (stated or rate)}
    for n in range(demos):
        time = n + np.arange(150 + 10 * (n % 3)) / rate
        v = factor * motion(time - delay)[1]
        arrays[f"demo_{n}/obs/qpos"] = motion(time)[0]
        arrays[f"demo_{n}/obs/qvel"] = v + noise * random.normal(size=v.shape)
        arrays[f"demo_{n}/position"] = motion(time)[0]  # by which the demos are recognised
    write_h5(path, arrays)


def found(trajcli, code):
    result = trajcli("check in.h5:obs/qvel --velocity-of obs/qpos --json", code=code)
    return only(result, "velocity")


def test_a_wrong_rate_is_named(trajcli, folder):
    write("in.h5", rate=50.0, stated=30.0)
    finding = found(trajcli, 1)
    assert "fits 50 rows a second, not 30" in finding["text"]
    pair = trajcli.fails("check in.h5 --velocity-of obs/qpos=obs/qvel --json")
    assert pair.document["checks"][-1] == finding
    assert finding["rate"]["fitted"] == pytest.approx(50.0, rel=1e-3)
    assert finding["rate"]["stated"] == pytest.approx(30.0)
    assert finding["factors"] == pytest.approx([5 / 3] * 3, rel=1e-3)


def test_degrees_are_named_and_positions_that_are_not_there_refused(trajcli, folder):
    write("in.h5", factor=180 / np.pi)
    assert "degrees" in found(trajcli, 1)["text"]
    for positions in ("obs/none", "in.h5:obs"):
        trajcli.refuses(f"check in.h5:obs/qvel --velocity-of {positions}")


@pytest.mark.parametrize("rows", [-7.3, 0.0, 0.4, 16.0])
def test_a_delay_is_found_to_a_part_of_a_row(trajcli, folder, rows):
    write("in.h5", delay=rows / 100)
    finding = found(trajcli, 1 if abs(rows) > 3 else 0)
    assert np.multiply(finding["delays"], 100) == pytest.approx([rows] * 3, abs=0.02)
    assert finding["factors"] == pytest.approx([1.0] * 3, abs=0.01)
    if abs(rows) > 3:
        assert f"{10 * abs(rows):.3g} ms {'late' if rows > 0 else 'early'}" in finding["text"]


def test_the_fit_is_that_of_a_search_over_factor_and_delay(trajcli, folder):
    write("in.h5", factor=1.7, delay=0.031, noise=0.05, demos=1)
    finding = found(trajcli, 1)
    v = read_h5("in.h5")["demo_0/obs/qvel"][:, 0]
    time = np.arange(len(v)) / 100

    def squares(x):
        return np.sum((v - x[0] * motion(time - x[1])[1][:, 0])[20:-20] ** 2)

    best = optimize.minimize(squares, [1.5, 0.02], method="Nelder-Mead", options={"xatol": 1e-6})
    assert finding["factors"][0] == pytest.approx(best.x[0], rel=0.01)
    # a factor that all dofs share is another rate
    assert finding["rate"]["fitted"] == pytest.approx(170.0, rel=0.01)
    delay = finding["delays"][0] * finding["rate"]["fitted"]
    assert delay == pytest.approx(best.x[1] * 100, abs=0.15)
    with_noise = np.sqrt(best.fun / np.sum(v[20:-20] ** 2))
    assert finding["residuals"][0] == pytest.approx(with_noise, rel=0.15)


def test_velocities_of_another_motion_fit_nothing(trajcli, folder):
    write("in.h5")
    with h5py.File("in.h5", "r+") as file:
        for n in range(8):
            values = file[f"demo_{n}/obs/qvel"]
            values[...] = np.random.default_rng(n).normal(size=values.shape)
    finding = found(trajcli, 1)
    assert "no rate and delay fits" in finding["text"]
    assert finding["rate"]["fitted"] is None


@pytest.mark.parametrize("shape", [(0, 20, 3), (2, 0, 3), (2, 20, 0)])
def test_nothing_to_compare_is_refused(trajcli, folder, shape):
    np.savez("empty.npz", position=np.zeros(shape), velocity=np.zeros(shape), dt=0.1)
    trajcli.refuses("check empty.npz --velocity-of position=velocity", "nothing to compare")


def test_velocities_are_compared_with_the_positions_of_their_group(trajcli, folder):
    p, v = motion(np.arange(150) / 100.0)
    np.savez("in.npz", actions=v, position=p, velocity=v, dt=0.01)
    np.savez("turned.npz", actions=p, position=p, velocity=-v, dt=0.01)
    for positions in ("position", "in.npz", "turned.npz"):
        trajcli.ok(f"check in.npz --velocity-of {positions}")
    trajcli.fails("check turned.npz --velocity-of in.npz")


def test_positions_of_another_shape_are_refused_with_both_shapes(trajcli, folder):
    write("a.h5", demos=2)
    write("b.h5", demos=3)
    expected = "2 × [1, 150, 3], [1, 160, 3], as the velocities"
    shapes = "3 × [1, 150, 3], [1, 160, 3], [1, 170, 3]"
    trajcli.refuses("check a.h5:obs/qvel --velocity-of b.h5:obs/qpos", expected, shapes)


def test_rows_far_apart_on_a_spline_are_no_jumps(trajcli, folder):
    """The speed at both rows beside a long step may be zero."""
    points = 0.01 * np.sin(np.arange(60.0)) + np.repeat([0.0, -0.5, 1.5, 1.0], [30, 1, 1, 28])
    np.savez("p.npz", **{"actions": points[:, None], "start/position": np.zeros(1), "dt": 1.0})
    trajcli.ok("integrate p.npz --mode bspline -o o.h5")
    assert "jumps" not in trajcli.ok("check o.h5").out
    trajcli.ok("export o.h5:position -o o.csv")
    assert "does not explain" in trajcli("check o.csv", code=1).out
