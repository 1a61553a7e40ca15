"""Names beat places, and two sources of one clock are compared on it, in every command and format.

The motion [T, 3] of pan, lift and elbow is written under names, in orders and at stamps of choice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from journeys.arrays import write_h5

pytestmark = pytest.mark.usefixtures("folder")
NAMES = ("pan", "lift", "elbow")
TIMES = np.arange(300) * 0.01
SINCE_1970 = 1_700_000_000
Array = np.ndarray


def motion(times: np.ndarray, derivative: bool = False) -> np.ndarray:
    if derivative:
        return np.stack([np.cos(times), -np.sin(2 * times), 0.3 + 0 * times], 1)
    return np.stack([np.sin(times), 0.5 * np.cos(2 * times), 0.3 * times], 1)


def csv(name: str, array: str, values: Array, times: Array, names: Sequence[str]) -> str:
    head = ",".join(["timestamp", *(f"{array}/{joint}" for joint in names)])
    np.savetxt(f"{name}.csv", np.c_[times, values], "%.9f", ",", header=head, comments="")
    return f"{name}.csv:{array}"


def parquet(name: str, array: str, values: Array, times: Array, names: Sequence[str]) -> str:
    arrow, tables = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {f"{array}/{joint}": column for joint, column in zip(names, values.T, strict=True)}
    tables.write_table(arrow.table({"timestamp": times, **columns}), f"{name}.parquet")
    return f"{name}.parquet:{array}"


def npz(name: str, array: str, values: Array, times: Array, names: Sequence[str]) -> str:
    arrays = {array: values, "times": times} | ({"joint_names": list(names)} if names else {})
    np.savez(f"{name}.npz", **arrays)
    return f"{name}.npz:{array}"


def hdf5(name: str, array: str, values: Array, times: Array, names: Sequence[str]) -> str:
    """In int64 nanoseconds where they are of a clock since 1970, in a group."""
    stamps = np.round(times * 1e9).astype(np.int64) if times[0] > 1e9 else times
    arrays = {f"run/{array}": values, "run/times": stamps}
    write_h5(f"{name}.h5", arrays | ({"run/joint_names": list(names)} if names else {}))
    return f"{name}.h5:run/{array}"


FORMATS: list[Callable[..., str]] = [csv, parquet, npz, hdf5]
PAIRS = [(csv, csv), (parquet, hdf5), (npz, csv), (hdf5, npz)]


def recording(
    write: Callable[..., str],
    name: str,
    order: Sequence[int] = (0, 1, 2),
    first: float = 0.0,
    array: str = "position",
    names: Sequence[str] = NAMES,
    step: int = 1,
    off: float = 0.0,
) -> str:
    """Writes some dofs of the motion from time ``first`` on; returns FILE:DATASET."""
    times = first + TIMES[::step]
    values = motion(times - (times[0] > 1e9) * SINCE_1970, array == "velocity")[:, list(order)]
    return write(name, array, values + off, times, [names[k] for k in order] if names else ())


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_diff_pairs_dofs_by_their_names(trajcli, one, other):
    a, b = recording(one, "a"), recording(other, "b", (2, 0, 1))
    assert differences(trajcli, f"{a} {b}")["paired"] == "name"
    trajcli.ok(f"diff {a} {b} --episodes all --atol 1e-6")
    swapped = recording(other, "x", (2, 0, 1), names=("lift", "pan", "elbow"))
    trajcli.fails(f"diff {a} {swapped} --atol 1e-6")
    some = recording(other, "s", (2, 0))
    found = trajcli.fails(f"diff {a} {some} --atol 1e-6 --json").document["datasets"][0]
    assert (found["only"], found["beyond"], found["values"]) == ({"a": ["lift"], "b": []}, 0, 600)
    trajcli.ok(f"diff {a} {some} --atol 1e-6 --dofs pan,elbow")
    none = recording(other, "n", (0, 1), names=("wrist", "finger", "elbow"))
    assert trajcli.fails(f"diff {a} {none} --json").document["datasets"][0]["values"] == 0


def differences(trajcli, pair: str, code: int = 0) -> dict:
    (found,) = trajcli(f"diff {pair} --atol 1e-6 --json", code=code).document["datasets"]
    return found


def test_whole_files_are_compared_by_the_names_that_they_hold(trajcli):
    for write, ending in ((npz, "npz"), (hdf5, "h5"), (csv, "csv")):
        for name, order, first in (("a", (0, 1, 2), 5.0), ("b", (2, 0, 1), 5.5)):
            recording(write, name, order, first)
        trajcli.ok(f"diff a.{ending} b.{ending} --atol 1e-6")


@pytest.mark.parametrize("command", ["diff", "check", "plot"])
def test_names_on_one_side_only_are_refused(trajcli, command):
    a, b = recording(hdf5, "a"), recording(npz, "b", names=())
    velocity = recording(npz, "v", array="velocity", names=())
    line = {"diff": f"diff {a} {b}", "plot": f"plot {a} {b} -o fig.svg",
            "check": f"check {velocity} --velocity-of {a}"}[command]  # fmt: skip
    trajcli.refuses(line, "--joints pan,lift,elbow")
    trajcli.ok(f"{line} --joints pan,lift,elbow")


def test_numbered_dofs_are_paired_by_number(trajcli):
    labels = {"q": ["q_0", "q_1", "q_2"], "qd": ["actual_qd_0", "actual_qd_1", "actual_qd_2"],
              "one": ["joint_1", "joint_2", "joint_3"], "none": ()}  # fmt: skip
    for key, names in labels.items():
        recording(npz, key, names=names)
    turned = recording(npz, "turned", (1, 0, 2), names=labels["qd"])
    assert differences(trajcli, f"q.npz:position {turned}")["paired"] == "name"
    for other in ("one", "none"):
        assert differences(trajcli, f"q.npz:position {other}.npz:position")["paired"] == "place"
        assert "by place" in trajcli(f"diff q.npz:position {other}.npz:position").out


@pytest.mark.parametrize(("one", "other"), PAIRS)
@pytest.mark.parametrize("first", [1000.0, float(SINCE_1970)])
def test_sources_of_one_clock_are_compared_on_it(trajcli, one, other, first):
    a = recording(one, "a", first=first)
    b = recording(other, "b", (1, 2, 0), first + 0.5)
    expected = {"rows": 250, "clock": True, "interpolated": []}
    for pair in (f"{a} {b}", f"{b} {a}"):
        found = differences(trajcli, pair)
        assert {key: found["overlap"][key] for key in expected} == expected
        assert found["overlap"]["seconds"] == pytest.approx(2.49, abs=1e-6)
    off = differences(trajcli, f"{a} {recording(other, 'c', first=first + 0.5, off=0.1)}", 1)
    assert off["rms"] == pytest.approx(0.1, abs=1e-6)
    coarse = recording(other, "d", first=first + 0.503, step=3)  # between the rows of a
    (found,) = trajcli.ok(f"diff {a} {coarse} --atol 1e-4 --json").document["datasets"]
    assert (found["overlap"]["rows"], found["overlap"]["interpolated"]) == (83, ["a"])
    late = trajcli.fails(f"diff {a} {recording(other, 'e', first=first + 50)}")
    assert "do not overlap" in " ".join(late.out.split())


def test_stamps_that_begin_at_0_are_of_no_clock(trajcli):
    a, b = recording(npz, "a"), recording(hdf5, "b", first=0.5)
    found = differences(trajcli, f"{a} {b}", 1)
    assert found["overlap"] is None
    assert "from their starts" in found["note"]


def test_each_trajectory_of_a_batch_has_its_own_stamps(trajcli):
    for name, late in (("a", 0.0), ("b", 0.5)):
        times = np.stack([first + late + TIMES for first in (10.0, 100.0, 200.0)])
        write_h5(f"{name}.h5", position=[motion(row) for row in times], times=times)
    overlap = differences(trajcli, "a.h5:position b.h5:position")["overlap"]
    assert (overlap["rows"], overlap["clock"]) == (750, True)
    overlap = differences(trajcli, "a.h5:position b.h5:position --episodes 2")["overlap"]
    assert overlap["rows"] == 250


def test_an_output_is_on_the_clock_of_its_source(trajcli):
    a, b = recording(npz, "a", first=1e3), recording(csv, "b", (2, 1, 0), first=1000.5)
    trajcli.ok(f"resample {a} --to 50 -o o.h5")
    assert differences(trajcli, f"o.h5:position {b}")["overlap"]["rows"] == 125
    velocity = recording(npz, "v", (1, 0, 2), 1000.5, "velocity")
    for positions, rows in ((a, 250), ("o.h5:position", 249)):
        result = trajcli.ok(f"check {velocity} --velocity-of {positions} --json")
        assert result.document["checks"][-1]["overlap"]["rows"] == rows


@pytest.mark.parametrize("write", FORMATS)
def test_velocities_are_those_of_the_positions_of_their_names(trajcli, write):
    p = recording(npz, "p")
    for order in ((0, 1, 2), (2, 0, 1), (2, 1)):
        trajcli.ok(f"check {recording(write, 'v', order, 0.0, 'velocity')} --velocity-of {p}")
    for names in (("lift", "pan", "elbow"), ("pan", "lift", "wrist")):
        v = recording(write, "v", array="velocity", names=names)
        trajcli.fails(f"check {v} --velocity-of {p}")


@pytest.mark.parametrize(("one", "other"), PAIRS[:2])
def test_plot_draws_a_joint_in_one_colour(trajcli, one, other):
    pytest.importorskip("matplotlib")
    a, b = recording(one, "a"), recording(other, "b", (2, 0, 1))
    trajcli.ok(f"plot {a} {b} -o same.svg")
    text, drawn = Path("same.svg").read_text(), {}
    for curve, style in re.findall(r'<path d="([^"]*)" clip[^>]*style="([^"]*)"', text):
        if "#e4e4e4" not in style:
            drawn.setdefault(curve, set()).add(re.search(r"stroke: (#\w+)", style)[1])
    assert len(drawn) == 3 == len(set.union(*drawn.values()))
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", text)
    assert sorted(one for one in texts if one in NAMES) == sorted(NAMES)
    from trajcli.files.opening import Files
    from trajcli.views.plot import plot_sources, read_lines

    for first in (1000.0, float(SINCE_1970)):
        recording(one, "a", first=first)
        for late, start in ((0.5, 0.5), (50.0, 0.0)):
            recording(other, "b", first=first + late)
            with Files() as files:
                lines = read_lines(plot_sources(files, [a, b]), files.report)
                notes = files.report.notes
            assert [line.time[0] for line in lines] == pytest.approx([0.0, start], abs=1e-6)
            assert any("clock" in note or "overlap" in note for note in notes)


TOPS = (("elbow", 0.2), ("finger", 1.0), ("lift", 9.0), ("pan", 9.0))
LIMITS = {"toml": ("l.toml", f"joint_names = {sorted(NAMES)}\n[velocity]\nupper = [0.2, 9, 9]"),
          "moveit": ("l.yaml", "joint_limits:\n" + "".join(
              f"  {name}_joint: {{has_velocity_limits: true, max_velocity: {top}}}\n"
              for name, top in TOPS)),
          "urdf": ("l.urdf", "<robot>" + "".join(
              f'<joint name="{name}" type="continuous"><limit velocity="{top}" effort="1"/></joint>'
              for name, top in TOPS) + "</robot>")}  # fmt: skip


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize("write", FORMATS)
def test_limits_with_names_are_those_of_the_dofs_of_these_names(trajcli, kind, write):
    name, text = LIMITS[kind]
    Path(name).write_text(text)
    source = recording(write, "in", (1, 0, 2))
    checks = trajcli.fails(f"check {source} --limits {name} --json").document["checks"]
    (found,) = [check for check in checks if check["check"] == "velocity limits"]
    assert [dof["name"] for dof in found["dofs"]] == ["elbow"]
    matched = [(one["dof"], one["by"]) for one in found["matched"]]
    assert matched == [(dof, "name") for dof in ("lift", "pan", "elbow")]
    assert ("without a dof" in found["text"]) == (kind != "toml")


COMMANDS = ["check {}", "score {}", "plot {} -o fig.svg", "retime {} -o o.h5"]


@pytest.mark.parametrize("command", COMMANDS)
def test_limits_with_names_are_never_those_of_dofs_without(trajcli, command):
    labelled = [(), ("q0", "q1", "q2"), ("J1", "J2", "J3")]
    for (name, text), labels in zip(LIMITS.values(), labelled, strict=True):
        Path(name).write_text(text)
        names = {"joint_names": list(labels)} if labels else {}
        np.savez("in.npz", position=motion(TIMES), velocity=motion(TIMES, True), dt=0.01, **names)
        line = f"{command.format('in.npz')} --limits {name}"
        error = " ".join(trajcli.refuses(line, "--joints").err.split())
        assert re.search(r"(0|q0|J1) is elbow", error)
    trajcli(f"{line} --joints pan,lift,elbow", code=int(command == "check {}"))


@pytest.mark.parametrize("command", COMMANDS)
def test_only_limits_without_names_go_by_number_and_that_is_said(trajcli, command):
    Path("l.toml").write_text("[velocity]\nupper = [9, 9, 0.4]")
    np.savez("in.npz", position=motion(TIMES), velocity=motion(TIMES, True), dt=0.01)
    result = trajcli.ok(f"{command.format('in.npz')} --limits l.toml --json")
    assert "by number" in result.out
    assert result.out.count('"by": "number"') == 3


RATES = {"actual_qd": "velocity", "joint_velocities": "velocity", "QVEL": "velocity",
         "ddq": "acceleration", "tau": "effort", "q": "position", "current_q": "position",
         "travel": "position"}  # fmt: skip
LIMIT = "[{}]\nupper = 1.2\nlower = -1.2"


def near_one(form: str, name: str) -> str:
    """Writes rows between 1.05 and 1.2 under a name; returns FILE:DATASET."""
    values = 1.1 + 0.05 * motion(TIMES)
    if form == "csv":
        csv("in", name, values, TIMES, "abc")
    elif form == "npz":
        np.savez("in.npz", **{name: values}, dt=0.01)
    elif form == "h5":
        write_h5("in.h5", {f"obs/{name}": values, "@dt": 0.01})
        return f"in.h5:obs/{name}"
    else:
        np.save(f"{name}.npy", values)
        return f"{name}.npy --rate 100"
    return f"in.{form}:{name}"


FORMS = ("csv", "npz", "npy", "h5")


@pytest.mark.parametrize(
    ("name", "form"),
    [(name, FORMS[(k + turn) % 4]) for turn in (0, 2) for k, name in enumerate(RATES)],
)
def test_velocities_by_name_are_never_taken_as_positions(trajcli, name, form):
    source, quantity = near_one(form, name), RATES[name]
    other = "velocity" if quantity != "velocity" else "position"
    for limited, passes in ((quantity, quantity != "effort"), (other, quantity == "position")):
        Path("l.toml").write_text(LIMIT.format(limited if limited != "effort" else "position"))
        trajcli(f"check {source} --limits l.toml", code=int(not passes))
    scores = trajcli.ok(f"score {source} --json").document["summary"]
    assert ("path_length" in scores) == (quantity == "position")
    assert ("still" in scores) == (quantity in ("position", "velocity"))


@pytest.mark.parametrize(
    ("form", "name", "quantity"),
    [
        ("npy", "in", "position"),
        ("csv", "dq", "position"),
        ("npz", "qvel", "acceleration"),
        ("h5", "q", "velocity"),
        ("npz", "dq", "jerk"),
    ],
)
def test_the_option_says_what_an_array_is(trajcli, form, name, quantity):
    source = near_one(form, name)
    for top, code in ((1.0, 1), (1.2, 0)):
        Path("l.toml").write_text(f"[{quantity}]\nupper = {top}")
        trajcli(f"check {source} --as {quantity} --limits l.toml", code=code)
    scores = trajcli.ok(f"score {source} --as {quantity} --json").document["summary"]
    assert ("path_length" in scores) == (quantity == "position")
    report = trajcli.ok(f"resample {source} --as {quantity} --to 50 -o out.h5 --json")
    assert report.document["arrays"][0] == quantity


def test_a_unit_says_what_an_array_is(trajcli):
    csv("in", "data", motion(TIMES), TIMES, [f"{name} [rad/s]" for name in NAMES])
    Path("l.toml").write_text("[velocity]\nupper = 0.5")
    trajcli.fails("check in.csv:data --limits l.toml")
    np.savez("in.npz", position=motion(TIMES), velocity=motion(TIMES, True), dt=0.01)
    trajcli.refuses("check in.npz --as velocity", "FILE:DATASET")


def test_check_says_where_measured_velocities_are_not_those_it_used(trajcli):
    Path("l.toml").write_text("[velocity]\nupper = 9.0")
    for name, measured in (("actual_q", "actual_qd"), ("qpos", "qvel")):
        np.savez("in.npz", **{name: motion(TIMES), measured: motion(TIMES, True)}, dt=0.01)
        text = " ".join(trajcli.ok(f"check in.npz:{name} --limits l.toml --json").out.split())
        assert f"central differences of {name}; {measured}" in text


def table(name: str, head: str, *columns: Array) -> str:
    np.savetxt(name, np.column_stack(columns), "%.9f", ",", header=head, comments="")
    return name


def test_nothing_is_interpolated_over_a_gap(trajcli):
    for name, t in (("a.csv", np.r_[0.0:1.0:0.002, 4.0:5.0:0.002]), ("b.csv", np.r_[0.0:5.0:0.02])):
        table(name, "timestamp,pan,lift,elbow", SINCE_1970 + t, motion(t))
    assert differences(trajcli, "a.csv:data b.csv:data")["overlap"]["rows"] == 100


def test_other_lengths_without_a_clock_are_no_obstacle_to_velocities(trajcli):
    a = recording(csv, "a", step=2)
    v = recording(csv, "v", array="velocity")
    assert " by time" in trajcli.ok(f"check {v} --velocity-of {a}").out


@pytest.mark.parametrize("line", ["diff a.csv:q {}:position --atol 1e-9", "plot a.csv {} -o f.png"])
def test_units_are_for_the_sources_that_are_no_output(trajcli, line):
    table("a.csv", "t,q0,q1,q2", TIMES, np.degrees(motion(TIMES)))
    trajcli.ok("differentiate a.csv --units deg --method central -o out.h5")
    trajcli.ok(f"{line.format('out.h5')} --units deg")
    trajcli.refuses("diff out.h5 out.h5 --units deg", "--to-units")


def test_steps_beside_stamps_keep_their_clock(trajcli):
    steps = 0 * TIMES + 0.01
    table("a.csv", "timestamp,pan,lift,dt", SINCE_1970 + TIMES, motion(TIMES)[:, :2], steps)
    trajcli.ok("differentiate a.csv --method central -o out.h5")
    assert '"start_stamp"' in trajcli.ok("inspect out.h5 --json").out


@pytest.mark.parametrize(
    ("head", "top", "code"),
    [("pan,lift,elbow", 1.5, 1), ("q_dot_0,q_dot_1,q_dot_2", 1.5, 0),
     ("pan_pos,lift_speed,elbow_speed", 3.0, 1)],
)  # fmt: skip
def test_dofs_of_several_quantities_keep_no_limits_of_one(trajcli, head, top, code):
    """A speed of 1 is within limits of 1.5; its derivative of 2 is not."""
    rates = np.stack([np.cos(2 * TIMES)] * 3, 1)
    Path("l.toml").write_text(f"[velocity]\nupper = {top}")
    trajcli(f"check {table('a.csv', f't,{head}', TIMES, rates)}:* --limits l.toml", code=code)


def test_a_single_column_keeps_its_name_and_limits(trajcli):
    table("a.csv", "t,A1 [deg],A2 [deg]", TIMES, np.degrees(motion(TIMES)[:, :2]))
    limits = 'joint_names = ["{}", "{}"]\nunits = "deg"\n[position]\nupper = [300, 1]\n'
    Path("l.toml").write_text(limits.format("A1", "A2"))
    trajcli.fails("check a.csv:A2 --limits l.toml")
    trajcli.ok("check a.csv:A1 --limits l.toml")
    Path("l.toml").write_text(limits.format("q1", "q0"))
    table("b.csv", "t,q0,q1", TIMES, 0.001 * TIMES, motion(TIMES)[:, 1])
    trajcli.ok("check b.csv --limits l.toml")
