"""resample, retime and fit, from file to file, and what integrate makes of their outputs."""

from __future__ import annotations

import json
import shlex
import tracemalloc
from pathlib import Path

import h5py
import numpy as np
import pytest
from journeys.arrays import close, read_h5, same, write_h5

import trajcli as library
from trajcli import load, resample, sample

QUANTITIES = ("position", "velocity", "acceleration", "jerk")


@pytest.mark.parametrize(
    ("options", "method", "more", "count"),
    [
        ("", "linear", {}, 2),
        ("--method hold", "hold", {}, 1),
        ("--method ramp-and-hold --hold 0.5", "ramp-and-hold", {"hold": 0.5}, 2),
        ("--method cubic", "cubic", {}, 3),
        ("--method quintic", "quintic", {}, 4),
    ],
)
def test_the_command_is_the_library(trajcli, folder, options, method, more, count):
    trajcli.ok("integrate actions.npy --start start.npy --dt 0.02 -o t.h5")
    result = trajcli.ok(f"resample t.h5 --to 130 {options} -o out.h5 --json")
    assert result.document["arrays"] == list(QUANTITIES[:count])
    assert result.document["dt_source"].endswith("t.h5:/time")
    assert all(name in " ".join(result.document["notes"]) for name in QUANTITIES[count:])
    expected = resample(load("t.h5"), method, rate=130, **more)
    with h5py.File("out.h5") as after:
        assert not set(QUANTITIES[count:]) & set(after)
        for name in QUANTITIES[:count]:
            same(after[name][:], getattr(expected, name))
            same(after["time"][:], expected.time)
        assert after["position"].dims[1].keys() == ["time"]
        assert after.attrs["method"] == method


@pytest.mark.parametrize(
    "mode", ["jerk --scheme zoh", "acceleration --scheme foh", "bspline --degree 5 --steps 3"]
)
def test_a_file_that_states_its_polynomials_is_resampled_exactly(trajcli, folder, mode):
    line = f"integrate actions.npy --start start.npy --dt 0.02 --dtype float64 --mode {mode}"
    trajcli.ok(f"{line} -o t.h5")
    result = trajcli.ok("resample t.h5 --to 137 -o out.h5")
    assert "exactly as " + mode.split()[0] in result.out
    with h5py.File("out.h5") as out:
        # the last row is held at the next step
        plan, count = load("t.h5"), len(out["time"])
        at = np.minimum(out["time"][:], plan.time[-1])
        assert count == np.ceil(plan.time[-1] * 137) + 1 == 137 * out["time"][-1] + 1
        for name, values in sample(plan, at).outputs().items():
            same(out[name][:], values)
        assert "mode" not in out.attrs
    # a method that is named is used, and so is one where the file is not all there
    trajcli.ok("resample t.h5 --to 137 --method quintic -o q.h5 --json")
    for source, why in (("t.h5:position", "velocity"), ("t.h5 --rate 20", "other times")):
        line = f"resample {source} --to 137 -o p.h5 --json --overwrite"
        document = trajcli.ok(line).document
        assert document["method"] == "linear"
        assert why in document["notes"][0]


END = 1.0937
KNOTS = np.append(np.arange(0, END, 0.05), END)


def rest_to_rest(t: np.ndarray, order: int = 0) -> np.ndarray:
    """The quintic from 0 to 1 and 2 at rest, [T, 2], or a derivative of it."""
    curve = np.polynomial.Polynomial([0, 0, 0, 10, -15, 6])
    curve = curve.deriv(order) if order else curve
    return curve(t / END)[:, None] * [1, 2] / END**order


def write_plan(path: str, quantities: tuple[str, ...]) -> None:
    """Writes the rows of a plan as other programs do, in the format that the path ends in."""
    arrays = {name: rest_to_rest(KNOTS, QUANTITIES.index(name)) for name in quantities}
    columns = {f"{name}_{k}": x[:, k] for name, x in arrays.items() for k in range(2)}
    kind = Path(path).suffix
    if kind == ".csv":
        table = np.stack([KNOTS, *columns.values()], 1)
        np.savetxt(path, table, "%.17g", ",", header=",".join(["time", *columns]), comments="")
    elif kind == ".npz":
        np.savez(path, times=KNOTS, **arrays)
    else:
        words = dict(zip(QUANTITIES, ("positions", "velocities", "accelerations"), strict=False))
        named = {words[name]: x.tolist() for name, x in arrays.items()} | {"time_from_start": KNOTS}
        points = [dict(zip(named, row, strict=True)) for row in zip(*named.values(), strict=True)]
        Path(path).write_text(json.dumps({"joint_names": ["a", "b"], "points": points}))


@pytest.mark.parametrize("kind", ["csv", "npz", "yaml"])
def test_a_plan_of_another_program_keeps_its_curve_and_its_goal(trajcli, folder, kind):
    for count, method, atol in ((3, "quintic", 1e-13), (2, "cubic", 1e-5), (1, "linear", 2e-2)):
        write_plan(f"plan.{kind}", QUANTITIES[:count])
        result = trajcli.ok(f"resample plan.{kind} --to 125 -o out.h5 --overwrite --json")
        assert (result.document["method"], result.document["held_ends"]) == (method, 1)
        assert any("held at the next step" in note for note in result.document["notes"])
        trajcli.ok("resample out.h5 --to 777 -o again.h5 --overwrite")
        with h5py.File("again.h5") as file:
            assert file.attrs["method"] == ("linear" if count == 1 else "quintic")
        found = read_h5("out.h5")
        assert result.document["arrays"] == list(QUANTITIES[: (2, 3, 4)[count - 1]])
        same(np.ravel(found["time"]), np.arange(138) / 125)
        at = np.minimum(np.arange(138) / 125, END)
        close(found["position"][0], rest_to_rest(at), rtol=0, atol=atol)
        same(found["position"][0, -1], [1, 2])
        with h5py.File("out.h5") as file:
            assert file.attrs["held_ends"] == 1
            assert file.attrs["dt"] == 1 / 125
    write_plan(f"plan.{kind}", QUANTITIES[:3])
    stamps = "time" if kind == "csv" else "times"
    result = trajcli.ok(f"resample plan.{kind} --at plan.{kind}:{stamps} -o at.h5 --json")
    assert (result.document["held_ends"], result.document["rows"]["most"]) == (0, len(KNOTS))


@pytest.mark.parametrize(
    ("made", "curve"),
    [
        ("resample in.h5:position --to 130", "linear"),
        ("resample in.h5:position --to 130 --method cubic", "quintic"),
        ("differentiate in.h5:position --order 4", "smooth order=4"),
        ("differentiate in.h5:position --method savgol", "quintic"),
    ],
)
def test_rows_keep_their_curve_when_they_are_retimed(trajcli, curves, made, curve):
    limits("[velocity]\nupper = 0.7")
    trajcli.ok(f"{made} -o a.h5")
    trajcli.ok("retime a.h5 --limits limits.toml -o b.h5")
    for source in ("a.h5", "b.h5"):
        document = trajcli.ok(f"resample {source} --to 500 -o c.h5 --overwrite --json").document
        assert curve in (document["method"], document["samples_of"])


def test_each_trajectory_ends_at_its_own_goal(trajcli, folder):
    ends = {"demo_0": 0.5, "demo_1": 0.73, "demo_2": 0.91, "demo_3": 1.0}
    arrays: dict[str, np.ndarray] = {}
    for name, end in ends.items():
        at = np.linspace(0, END, 12)
        arrays[f"{name}/times"] = at * end / END
        for order, quantity in enumerate(QUANTITIES[:2]):
            rows = rest_to_rest(at, order) * (END / end) ** order
            rows[:, 1] = (at > END / 2) * (order == 0)  # a gripper
            arrays[f"{name}/{quantity}"] = rows
    arrays["demo_2/velocity"][-1, 0] = 0.5  # it ends in motion
    write_h5("in.h5", arrays)
    report = trajcli.ok("resample in.h5 --to 20 --hold-dofs 1 -o out.h5 --json").document
    assert report["held_ends"] == 1
    assert report["rows"] == {"least": 11, "most": 21}
    assert any("0.02 s later" in note for note in report["notes"])
    assert any("0.01 s before" in note for note in report["notes"])
    found = read_h5("out.h5")
    for name, count in zip(ends, (11, 16, 19, 21), strict=True):
        assert len(found[f"{name}/position"]) == count
        if name != "demo_2":
            same(found[f"{name}/position"][-1], [1, 1])
            same(found[f"{name}/velocity"][-1], [0, 0])


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("acceleration", "npz"),
        ("acceleration --scheme zoh", "csv"),
        ("jerk --scheme foh", "h5"),
        ("clique", "csv"),
        ("teleport", "npz"),
    ],
)
def test_an_export_is_resampled_as_what_it_was_made_of(trajcli, folder, mode, kind):
    line = f"integrate actions.npy --start start.npy --dt 0.05 --dtype float64 --mode {mode}"
    trajcli.ok(f"{line} -o t.h5")
    trajcli.ok(f"export t.h5 -o e.{kind}")
    trajcli.ok("resample t.h5 --to 130 -o a.h5")
    trajcli.ok(f"resample e.{kind} --to 130 -o b.h5")
    made, exported = read_h5("a.h5"), read_h5("b.h5")
    for name in set(QUANTITIES) & set(made):
        # a held acceleration is not yet that of the start state
        found, wanted = exported[name][:, 1:], made[name][:, 1:]
        close(found, wanted, rtol=0, atol=1e-9 * abs(wanted).max())


def test_a_held_acceleration_has_no_jerk(trajcli, folder):
    trajcli.ok("integrate actions.npy --start start.npy --dt 0.02 --scheme zoh -o t.h5")
    result = trajcli.ok("resample t.h5 --to 137 -o out.h5")
    assert "no jerk: by acceleration zoh it is not finite" in result.err
    with h5py.File("out.h5") as file:
        assert "jerk" not in file


def test_a_file_stands_for_its_actions_as_in_integrate(trajcli, folder, samples):
    result = trajcli.ok(f"resample {samples}/reach.h5 --to 500 --method hold -o out.h5 --json")
    assert result.document["arrays"] == ["actions"]
    with h5py.File(samples / "reach.h5") as before, h5py.File("out.h5") as after:
        assert "position" not in after
        for b in range(64):
            group = after[f"reach/trajectory_{b}"]
            ends = np.cumsum(before["dt"][b])
            time = np.arange(np.ceil(ends[-1] * 500)) / 500
            same(group["actions"][:], before["actions"][b][np.searchsorted(ends, time, "right")])
            same(group["start/position"], before["start/position"][b])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("resample actions.npy --dt 1 --to 0 -o o.h5", "--to"),
        ("resample actions.npy --dt 1 --at late.npy -o o.h5", "late.npy, trajectory 0, entry 1"),
        ("resample bad.npy --dt 1 --to 10 -o o.h5", "bad.npy, trajectory 1, step 2, dof 0"),
        ("retime short.npz --dt 1 --limits limits.toml -o o.h5", "no such rows"),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_is_written(trajcli, folder, line, message):
    bad = np.load("actions.npy")
    bad[1, 2, 0] = np.nan
    np.save("bad.npy", bad)
    np.savez("short.npz", position=bad)
    np.save("late.npy", [0.0, 9.5])
    Path("limits.toml").write_text("[velocity]\nupper = [1.0, 1.0, 1.0]\n")
    trajcli.refuses(line, message)


@pytest.mark.parametrize(("batch", "rate"), [(60_000, 20), (300, 2000)])
def test_memory_does_not_grow_with_the_input(trajcli, folder, batch, rate):
    write_h5("in.h5", actions=np.ones((batch, 50, 2), "f4"), dt=0.1)
    trajcli("resample in.h5:actions --to 20 -o warm.h5")
    tracemalloc.start()
    trajcli.ok(f"resample in.h5 --to {rate} --method cubic -o out.h5")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 25e6


@pytest.mark.parametrize("lengths", [[6, 6, 6], [6, 3, 4]])
@pytest.mark.parametrize("index", [None, [3, 0, 3], [2, 0, 1]])
def test_shared_start_states_stay_those_of_their_trajectories(trajcli, folder, lengths, index):
    states = {"start_position": np.array([0.5, -2.0])}
    if index:
        places = np.arange(2.0 * (max(index) + 1)).reshape(-1, 2)
        states = {"start_position": places, "start_index": index}
    actions = np.random.default_rng(3).standard_normal((3, 6, 2))
    np.savez("in.npz", actions=actions, lengths=lengths, dt=0.1, **states)
    trajcli.ok("resample in.npz --to 10 -o same.h5")
    for name in ("in.npz", "same.h5"):
        trajcli.ok(f"integrate {name} --mode velocity -o {name}.out.npz")
    with np.load("in.npz.out.npz") as first, np.load("same.h5.out.npz") as again:
        names = [name for name in first.files if name.endswith("position")]
        assert len(names) == (1 if len(set(lengths)) == 1 else 3)
        for name in names:
            close(again[name], first[name], rtol=0, atol=1e-14)


@pytest.mark.parametrize("which", ["2", "gripper", "-1"])
def test_held_dofs_keep_each_row_until_the_next(trajcli, folder, which):
    t, names = np.arange(40), np.array(["a", "b", "gripper"])  # which is open or closed
    rows = np.column_stack([np.sin(t / 5), np.sin(t / 5 + 1), t // 10 % 2]).astype("f8")
    velocity = np.gradient(rows, 0.1, axis=0)
    np.savez("in.npz", position=rows, velocity=velocity, dt=0.1, joint_names=names)
    line = "resample in.npz --to 37 --method cubic"
    assert "--hold-dofs 2" in trajcli(f"{line} -o free.h5").err
    assert "two values" not in trajcli.ok(f"{line} --hold-dofs {which} -o held.h5").err
    with h5py.File("free.h5") as free, h5py.File("held.h5") as file:
        found, times = np.squeeze(file["position"]), np.ravel(file["time"])
        same(found[:, :2], np.squeeze(free["position"])[:, :2])
        before = np.floor(times / 0.1 + 1e-9).astype(int)
        same(found[:, 2], rows[before, 2])
        assert not np.squeeze(file["velocity"])[:, 2].any()
        assert file.attrs["hold_dofs"] == which


MODES = [
    *(f"{mode} --scheme {scheme}" for mode in ("acceleration", "jerk")
      for scheme in ("euler", "zoh", "foh")),
    *("velocity --scheme zoh", "clique", "central", "teleport"),
    *("bspline --degree 5 --steps 3", "jerk --alignment curobo"),
]  # fmt: skip
RATES = ("velocity", "acceleration", "jerk")
IN_SI = {"": 1.0, "rad": 1.0, "deg": np.pi / 180, "mm": 0.001}


def rows(kind: str = "f8") -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    return {name: random.normal(size=(4, 15, 3)).astype(kind) for name in RATES}


def write(name: str, joints: str = "", **arrays: np.ndarray) -> None:
    write_h5(name, {"joint_names": list(joints)} if joints else {}, **arrays, dt=0.1)


def limits(text: str, name: str = "limits.toml") -> None:
    Path(name).write_text(text)


@pytest.mark.parametrize("mode", MODES)
def test_what_is_retimed_passes_check_with_the_same_limits(trajcli, folder, mode):
    kind = ("f4", "f8")[MODES.index(mode) % 2]
    for turn in range(3):
        random = np.random.default_rng([turn, MODES.index(mode), kind == "f4"])
        batch, rows, dofs = (int(random.integers(*of)) for of in ((1, 5), (9, 50), (1, 5)))
        scale, dt = 10 ** random.uniform(-4, 4), 10 ** random.uniform(-3, 0)
        actions = np.cumsum(random.normal(size=(batch, rows, dofs)) * scale, 1)
        arrays = {"joint_names": [f"j{k}" for k in range(dofs)], "@dt": dt}
        for b in range(batch):  # of unequal length
            arrays[f"d_{b}/actions"] = actions[b, : int(random.integers(9, rows + 1))].astype(kind)
            arrays[f"d_{b}/start/position"] = random.normal(size=dofs) * scale
        write_h5("in.h5", arrays)
        unit = ("rad", "deg", "mm")[turn]
        trajcli.ok(f"integrate in.h5 --mode {mode} --units {unit} -o out.h5 --overwrite")
        peaks = dict.fromkeys(RATES, 1e-30)
        for path, values in read_h5("out.h5").items():
            if (name := path.rpartition("/")[2]) in peaks:
                largest = abs(values).reshape(-1, dofs).max(0)
                peaks[name] = np.maximum(peaks[name], largest)
        named = random.permutation(dofs)[: random.integers(1, dofs + 1)].tolist()
        other = "deg" if unit == "rad" else "rad" if unit == "deg" else unit
        text = [f"joint_names = {[f'j{k}' for k in named]}".replace("'", '"'), f'units = "{other}"']
        for name in RATES[random.integers(3) :]:
            upper = peaks[name][named] * 10 ** random.uniform(-3, 3, len(named)) / IN_SI[other]
            lower = -upper * 10 ** random.uniform(-1, 1, len(named))
            text += [f"[{name}]", f"upper = {upper.tolist()}", f"lower = {lower.tolist()}"]
        limits("\n".join(text))
        slower = "--slower-only" * int(turn == 2)
        trajcli.ok(f"retime out.h5 --limits limits.toml -o paced.h5 --overwrite {slower}")
        assert "within limits" in trajcli.ok("check paced.h5 --limits limits.toml").out


def test_limits_of_some_joints_leave_the_others_free(trajcli, folder):
    write("in.h5", "abc", **rows())
    limits('joint_names = ["c", "a"]\n[velocity]\nupper = [0.5, 0.3]\nlower = [-0.3, -0.5]')
    result = trajcli("retime in.h5 --limits limits.toml -o out.h5 --json")
    assert result.document["notes"] == ["no limits of b"]
    velocity = rows()["velocity"]
    worst = np.maximum(velocity / [0.3, np.inf, 0.5], velocity / [-0.5, np.inf, -0.3])
    close(result.document["factors"], worst.max((1, 2)), rtol=1e-15)
    assert set(result.document["binding"]["joint"]) == {"a", "c"}
    assert "no limits of b" in trajcli("check out.h5 --limits limits.toml").out
    same(read_h5("out.h5")["time_scale"], result.document["factors"])


def test_limits_of_a_urdf_may_be_of_other_joints_too(trajcli, folder):
    write("in.h5", "abc", **rows())
    joint = '<joint name="{}" type="revolute"><limit lower="-9" upper="9" velocity="0.5"/></joint>'
    limits(f"<robot>{''.join(map(joint.format, 'xb'))}</robot>", "arm.urdf")
    result = trajcli("retime in.h5 --limits arm.urdf -o out.h5 --json")
    assert result.document["notes"] == ["no limits of a, c", "limits without a dof: x"]
    expected = abs(rows()["velocity"][..., 1]).max(1) / 0.5
    close(result.document["factors"], expected, rtol=1e-15)
    limits(joint.format("x"), "arm.urdf")
    trajcli.refuses("retime in.h5 --limits arm.urdf -o new.h5", "limits of other joints")


def test_what_binds_is_reported_with_its_joint_and_time(trajcli, folder):
    write("in.h5", "abc", **rows())
    upper = {"velocity": [1.0, 2.0, 3.0], "acceleration": [9.0, 0.7, 5.0]}
    limits("\n".join(f"[{name}]\nupper = {of}" for name, of in upper.items()))
    result = trajcli("retime in.h5 --limits limits.toml -o out.h5 --json").document
    lines = trajcli("retime in.h5 --limits limits.toml -o out.h5 --overwrite -v").out.splitlines()
    binding, paced = result["binding"], read_h5("out.h5")
    for b in range(4):
        name, joint, time = (binding[key][b] for key in ("quantity", "joint", "time"))
        (row,), dof = np.flatnonzero(paced["time"][b] == time), "abc".index(joint)
        assert abs(paced[name][b, row, dof]) == pytest.approx(upper[name][dof], rel=1e-15)
        (other,) = upper.keys() - {name}
        slack = 1 - (abs(paced[other][b]) / upper[other]).max()
        assert result["slack"][other][b] == pytest.approx(slack, abs=1e-14)
        line = f"{name} of {joint} binds at {time:.6g} s; slack: {other} {100 * slack:.1f} %"
        assert f"{b}: time × " in lines[3 + b]
        assert line in lines[3 + b]


def test_positions_that_no_pace_brings_within_limits_are_pointed_out(trajcli, folder):
    position = np.zeros((4, 15, 3))
    position[1:3, 4, 1] = 2.0
    write("in.h5", position=position, **rows())
    limits(f"[position]\nupper = {[1.0] * 3}\n[velocity]\nupper = {[1.0] * 3}")
    result = trajcli.ok("retime in.h5 --limits limits.toml -o out.h5")
    said = "positions beyond their limits in 2 of 4 trajectories, which no pace changes"
    assert said in result.err
    trajcli.fails("check out.h5 --limits limits.toml")


def test_retimed_and_exported_files_name_files_as_seen_from_their_folder(trajcli, out, folder):
    (folder / "sub").mkdir()
    (folder / "limits.toml").write_text("[velocity]\nupper = 1")
    trajcli.ok("retime out.h5 --limits limits.toml -o sub/paced.h5")
    with h5py.File("sub/paced.h5") as file:
        said = dict(file.attrs)
    assert (said["limits"], said["source"]) == ("../limits.toml", "../out.h5:/position")
    assert "start" not in said  # the state was named as seen from the folder of its own output
    trajcli.ok("export out.h5 -o sub/arrays.h5")
    with h5py.File("sub/arrays.h5") as file:
        assert file.attrs["source"] == "../out.h5:/position"


def test_trajectories_that_cannot_be_retimed_are_left_out(trajcli, folder):
    arrays, stamps = rows(), 1_700_000_000_000 + 100 * np.arange(4 * 15).reshape(4, 15)
    arrays["velocity"][2, 3, 1] = np.nan
    write_h5("in.h5", {"times@units": "ms"}, **arrays, times=stamps)
    limits("[velocity]\nupper = 0.5")
    line = "retime in.h5 --limits limits.toml -o out.h5"
    trajcli.refuses(line)
    (left,) = trajcli.fails(f"{line} --skip-bad --json").document["left_out"]
    assert "trajectory 2, step 3, dof 1" in left["name"]
    with h5py.File("out.h5") as file:
        same(file["start_stamp"], stamps[[0, 1, 3], 0])
        assert file["start_stamp"].attrs["units"] == "ms"
        assert file["velocity"].shape == (3, 15, 3)
        assert np.abs(file["velocity"]).max() <= 0.5


TIME = np.arange(200) * 0.01


def motion(count: int = 5, rows: int = 200):
    return np.sin(np.random.default_rng(0).uniform(1, 4, (count, 1, 3)) * TIME[:rows, None])


@pytest.fixture
def curves(folder):
    more = {"position@units": "rad", "joint_names": ["a", "b", "c"]}
    write_h5("in.h5", more, position=motion(), times=TIME)


@pytest.mark.parametrize(("degree", "target"), [(3, "points.npz"), (5, "points.h5")])
def test_integrate_makes_the_curve_of_a_fit(trajcli, curves, degree, target):
    report = trajcli.ok(f"fit in.h5 --knots 20 --degree {degree} --steps 4 -o {target} --json")
    assert report.document["trajectories"] == 5
    trajcli.ok(f"integrate {target} -o out.h5")  # mode and options are in the file
    fitted = library.fit(motion(), 0.01, knots=20, degree=degree)
    assert report.document["error"]["most"] == pytest.approx(fitted.error.max(), rel=1e-9)
    made = library.integrate(fitted.actions, fitted.start, fitted.knot[:, None] / 4, "bspline",
                             degree=degree, steps=4, ends="goal", goal=fitted.goal)  # fmt: skip
    with h5py.File("out.h5") as file:
        for name, values in made.outputs().items():
            close(file[name][:], values, atol=1e-6, rtol=1e-9)
        if target == "points.h5":
            assert file["position"].attrs["units"] == "rad"
            assert [one.decode() for one in file["dof"][:]] == ["a", "b", "c"]
        assert np.ravel(file["time"])[80] == pytest.approx(1.99)


def test_the_line_that_the_command_shows_next_works(trajcli, curves):
    result = trajcli.ok("fit in.h5 --error 0.001 -o", "my points.h5")
    assert "all rows within 0.00" in result.out
    (line,) = [one for one in result.out.splitlines() if one.startswith("next: trajcli ")]
    trajcli.ok("", *shlex.split(line.removeprefix("next: trajcli ")))
    file, rows = read_h5("my points_curve.h5"), motion()
    at, p = np.atleast_2d(file["time"])[0], file["position"]
    off = max(np.abs(np.interp(TIME, at, p[b, :, k]) - rows[b, :, k]).max()
              for b in range(5) for k in range(3))  # fmt: skip
    assert off < 2e-3  # and of straight lines between the rows


def test_demos_of_unequal_length_have_the_same_number_of_control_points(trajcli, folder):
    demos = [motion(1, 100 + 10 * (n % 3)) for n in range(12)]
    write_h5("demos.h5", {"@dt": 0.01, **{f"demo_{n}/position": x[0] for n, x in enumerate(demos)}})
    report = trajcli("fit demos.h5 --knots 12 -o points.h5 --json").document
    points = read_h5("points.h5")
    for n, demo in enumerate(demos):
        alone = library.fit(demo, 0.01, knots=12)
        close(points["actions"][n], alone.actions[0], atol=1e-9)
        assert points["dt"][n, 0] * report["steps"] == pytest.approx(alone.knot[0])
        assert report["errors"][n] == pytest.approx(alone.error[0], rel=1e-6)


def test_states_are_held_exactly(trajcli, curves):
    trajcli.refuses("fit in.h5 --knots 20 --start held -o points.h5", "first, rest, zero")
    trajcli.ok("fit in.h5 --knots 20 --start rest --goal last -o points.h5")
    with h5py.File("points.h5") as file:
        same(file["start/position"][:], motion()[:, 0])
        assert not file["start/velocity"][:].any()
        assert not file["start/jerk"][:].any()
        same(file["goal/position"][:], motion()[:, -1])
        assert file["goal/velocity"][:].all()
    random = np.random.default_rng(1).normal(size=(2, 5, 3))
    np.savez("start.npz", position=random[0], velocity=random[1])
    trajcli.ok("fit in.h5 --knots 20 --start start.npz --goal 1,2,3 -o held.npz")
    with np.load("held.npz") as file:
        names = {name.replace("_", "/"): file[name] for name in file.files}
        same(names["start/position"], random[0])
        same(names["start/velocity"], random[1])
        assert names["start/acceleration"].all()
        same(names["goal/position"], [[1.0, 2, 3]] * 5)


def test_velocities_are_not_fitted_and_gaps_are_said(trajcli, curves):
    with h5py.File("in.h5", "r+") as file:
        file["velocity"] = motion()
        file["times"][100:] = TIME[100:] + 9.0
    trajcli.refuses("fit in.h5:velocity --knots 20 -o points.h5", "not positions")
    trajcli.refuses("fit in.h5 --knots 20 -o points.h5", "too few rows to fit")


def test_recordings_that_cannot_be_fitted_are_left_out(trajcli, curves):
    starts = np.arange(15.0).reshape(5, 3)
    with h5py.File("in.h5", "r+") as file:
        file["position"][1, 7, 2] = np.nan
        file["begin/position"] = starts
    line = "fit in.h5:position --knots 20 --start in.h5:begin -o out.h5"
    trajcli.refuses(line)
    result = trajcli.fails(f"{line} --skip-bad --json")
    (left,) = result.document["left_out"]
    assert "trajectory 1, step 7, dof 2" in left["name"]
    assert result.document["trajectories"] == len(result.document["errors"]) == 4
    # the others keep the states that are theirs
    same(read_h5("out.h5")["start/position"], np.delete(starts, 1, 0))


@pytest.mark.parametrize("factor", [57.3, -1.0])
def test_velocities_in_another_unit_or_direction_give_no_curve(trajcli, folder, factor):
    times = np.arange(300) * 0.01
    arrays = {"position": np.sin(times)[:, None], "velocity": factor * np.cos(times)[:, None]}
    np.savez("in.npz", **arrays, times=times)
    trajcli("resample in.npz --to 250 -o out.h5", code=0)
    with h5py.File("out.h5") as file:
        wanted = np.sin(np.minimum(file["time"][:], times[-1]))
        np.testing.assert_allclose(np.ravel(file["position"]), wanted, atol=2e-5)
