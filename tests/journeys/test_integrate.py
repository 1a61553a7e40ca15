"""integrate, from file to file, as a user types it."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from journeys.arrays import close, read_h5, same, write_h5
from journeys.conftest import python

from trajcli import State, integrate

RUN = "integrate actions.npy --start start.npy --dt 0.02"
QUANTITIES = ("position", "velocity", "acceleration", "jerk")


@pytest.mark.parametrize(
    ("options", "same_as"),
    [
        ("", {}),
        ("--mode acc", {"mode": "acceleration"}),
        ("--mode jerk --scheme zoh", {"mode": "jerk", "scheme": "zoh"}),
        ("--mode velocity --scheme foh", {"mode": "velocity", "scheme": "foh"}),
        ("--mode position --alignment actions", {"mode": "clique", "alignment": "actions"}),
        ("--mode central --convention curobo", {"mode": "central", "convention": "curobo"}),
        ("--mode bspline --degree 5 --steps 4", {"mode": "bspline", "degree": 5, "steps": 4}),
        ("--mode teleport", {"mode": "teleport"}),
        ("--alignment curobo", {"alignment": "curobo"}),
        ("--dtype float64", {"dtype": "float64"}),
    ],
)
def test_options_of_the_command_are_those_of_the_library(trajcli, folder, options, same_as):
    trajcli.ok(f"{RUN} -o out.h5 {options}")
    trajcli.ok(f"{RUN} -o out.npz {options}")
    trajectory = integrate(np.load("actions.npy"), np.load("start.npy"), 0.02, **same_as)
    for written in (read_h5("out.h5"), np.load("out.npz")):
        for name in (*QUANTITIES, "time"):
            same(written[name], getattr(trajectory, name), name)
            assert written[name].dtype == getattr(trajectory, name).dtype


def test_start_and_goal_states_come_from_groups_of_files(trajcli, folder):
    random = np.random.default_rng(1)
    parts = {name: random.standard_normal((5, 3)) for name in QUANTITIES}
    other = {f"other/{name}": values[::-1] for name, values in parts.items()}
    write_h5("states.h5", other | {f"start/{name}": values for name, values in parts.items()})
    line = "integrate actions.npy --dt 0.02 --mode bspline --ends goal -o out.h5"
    trajcli.ok(f"{line} --start states.h5 --goal states.h5:other")
    goal = State(**{name: values[::-1] for name, values in parts.items()})
    trajectory = integrate(
        np.load("actions.npy"), State(**parts), 0.02, "bspline", ends="goal", goal=goal
    )
    for name in QUANTITIES:
        same(read_h5("out.h5")[name], getattr(trajectory, name))
    np.save("rows.npy", rows := random.standard_normal((5, 9, 3)))
    for k, values in enumerate(rows):
        np.save(f"row{k}.npy", values)
    write_h5("rows.h5", q=rows)
    line = "integrate actions.npy --dt 0.02 --dtype float64 -o d.h5 --overwrite"
    for recorded in ("rows.npy", "rows.h5:q", "row[0-4].npy"):  # the first row of each
        trajcli.ok(f"{line} --start {recorded}")
        same(read_h5("d.h5")["position"][:, 0], rows[:, 0])


def test_a_start_can_be_typed(trajcli, folder):
    line = "integrate actions.npy --dt 0.02 -o out.h5 --overwrite"
    trajcli.ok(f"{line} --start 0.5,-1,2e-1")
    same(read_h5("out.h5")["position"][:, 0], np.float32([[0.5, -1, 0.2]] * 5))
    trajcli.refuses(f"{line} --start 0.5,1", "D = 3")


def test_what_cannot_be_integrated_is_left_out_and_listed(trajcli, folder):
    actions = np.load("actions.npy")
    actions[3, 7, 2] = np.nan
    np.save("nan.npy", actions)
    np.save("wide.npy", np.zeros((2, 10, 4), "f4"))
    Path("broken.npy").write_bytes(b"no array")
    line = "integrate actions.npy broken.npy nan.npy wide.npy --start zero --dt 0.02 -o out.h5"
    trajcli.refuses(line)
    result = trajcli.fails(f"{line} --skip-bad --json")
    assert [bad["name"] for bad in result.document["left_out"]] == [
        "broken.npy", "wide", "nan.npy, trajectory 3",
    ]  # fmt: skip
    assert "left out: nan.npy, trajectory 3: NaN or Inf" in result.err
    good = np.concatenate([np.load("actions.npy"), np.delete(actions, 3, 0)])
    same(read_h5("out.h5")["jerk"], integrate(good, "zero", 0.02).jerk)
    with h5py.File("out.h5") as file:
        names = [f"{stem}/trajectory_{k}" for stem in ("actions", "nan") for k in range(5)]
        assert list(file["trajectory"].asstr()) == [n for n in names if n != "nan/trajectory_3"]
    trajcli.ok("integrate actions.npy --start zero --dt 1 -o fine.h5 --skip-bad")
    trajcli.refuses("integrate broken.npy --start zero --dt 1 -o none.h5 --skip-bad")


def test_a_trajectory_with_repeated_stamps_is_named_by_its_dataset(trajcli, folder):
    position, times = np.random.default_rng(2).random((3, 6, 2)), np.arange(6) * 0.1
    write_h5("demos.h5", {f"data/demo_{k}/position": position[k] for k in range(3)}
             | {f"data/demo_{k}/time": times for k in (0, 2)}
             | {"data/demo_1/time": times[[0, 1, 1, 3, 4, 5]]})  # fmt: skip
    line = "differentiate demos.h5:data/demo_*/position --method backward -o out.h5"
    where, row = "demos.h5:/data/demo_1/time: time stamps that repeat", "row 2 (0.1)"
    trajcli.refuses(line, where, row)
    (bad,) = trajcli.fails(f"{line} --skip-bad --json").document["left_out"]
    assert bad["name"] == "demos.h5:/data/demo_1/position, trajectory 0"
    assert f"{bad['faults'][0]['where']}: {bad['reason']}" == where
    same(read_h5("out.h5")["position"], position[[0, 2]])
    alone = line.replace("demo_*", "demo_1").replace("out.h5", "none.h5")
    trajcli.refuses(f"{alone} --skip-bad", where)


@pytest.mark.parametrize("role", ["start", "goal"])
def test_states_by_index_work_in_padded_arrays(trajcli, folder, role):
    actions = np.random.default_rng(3).standard_normal((4, 10, 3))
    lengths, index = np.array([10, 6, 10, 6]), np.array([3, 3, 0, 1])
    states = np.arange(12.0).reshape(4, 3)  # as many as trajectories
    with h5py.File("in.h5", "w") as file:
        file["actions"], file["lengths"], file["dt"] = actions, lengths, 0.02
        file[f"{role}/position"], file[f"{role}_index"] = states, index
        file.require_group("start")
        if role == "goal":
            file["start/position"] = np.zeros((1, 3))
    more = "--mode bspline --ends goal" if role == "goal" else ""
    trajcli.ok(f"integrate in.h5 -o out.h5 {more}")
    with h5py.File("out.h5") as file:
        for k in range(4):
            row = file[f"in/trajectory_{k}/position"][0 if role == "start" else -1]
            close(row, states[index[k]], atol=1e-12)


def test_what_it_wrote_is_read_back_with_the_same_dt(trajcli, folder):
    trajcli.ok("integrate actions.npy --start zero --rate 30 -o out.h5")
    result = trajcli.ok("differentiate out.h5:position --method backward -o again.h5 --json")
    assert result.document["dt"] == 1 / 30
    assert read_h5("again.h5")["time"].ndim == 1


def test_many_files_with_an_attribute_of_their_own_need_little_memory(folder):
    for k in range(300):
        more = {"start/position": np.zeros((1, 7)), "@dt": 0.02, "@recorded": f"run {k}"}
        write_h5(f"f{k}.h5", more, actions=np.full((20, 7), k, "f4"))
    code = (
        "import resource, sys; from trajcli.cli import main; "
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; "
        "assert main(['integrate', 'f*.h5', '-o', 'out.h5', '--quiet']) == 0; "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    assert int(python("-c", code).stdout) / 1024 < 80
    same(read_h5("out.h5")["acceleration"][:, 1, 0], np.arange(300))


def test_the_first_lines_of_a_run_fit_80_columns(trajcli, folder):
    deep = Path("a_folder_with_a_long_name_" * 3) / ("another_one_" * 8)
    deep.mkdir(parents=True)
    write_h5(deep / "in.h5", {"start/position": np.zeros(7)}, actions=np.zeros((5, 9, 7)), dt=0.01)
    result = trajcli.ok(f"integrate {deep}/in.h5 -o out.h5 --mode jerk --scheme zoh")
    lines = result.out.splitlines()
    assert 5 <= len(lines) <= 7
    assert max(map(len, lines)) < 80


def test_everything_is_found_in_a_plain_hdf5_file(trajcli, folder):
    random = np.random.default_rng(2)
    start = {name: random.standard_normal((2, 3)) for name in QUANTITIES}
    index = np.array([1, 0, 0, 1, 1])
    with h5py.File("in.h5", "w") as file:
        file["actions"] = np.load("actions.npy")
        for name, values in start.items():
            file[f"start/{name}"] = values
        file["start/position"].attrs["units"] = "m"
        file["start_index"] = index
        file["dt"] = np.full(10, 0.02)
        file["joint_names"] = ["a", "b", "c"]
    trajcli.ok("integrate in.h5 -o out.h5")
    trajectory = integrate(
        np.load("actions.npy"), State(**start), np.full(10, 0.02), start_index=index
    )
    with h5py.File("out.h5") as file:
        same(file["position"], trajectory.position)
        same(file["start_index"], index)
        assert file["velocity"].attrs["units"] == "m/s"
        assert list(file["dof"].asstr()) == ["a", "b", "c"]


def test_several_sources_and_patterns_are_one_batch_in_natural_order(trajcli, folder):
    actions = np.load("actions.npy")
    with h5py.File("demos.h5", "w") as file:
        for i in (10, 9, 1, 2, 0):
            file[f"data/demo_{i}/actions"] = actions[i % 5] + i
            file[f"data/demo_{i}/start_position"] = np.full(3, i)
            file[f"data/demo_{i}"].attrs["dt"] = 0.02
    trajcli.refuses("integrate demos.h5:data/demo_*/actions actions.npy --start zero -o out.h5")
    trajcli.ok("integrate demos.h5:/data/demo_*/actions -o out.h5")
    order = np.array([0, 1, 2, 9, 10])
    stacked = actions[order % 5] + np.float32(order)[:, None, None]
    expected = integrate(stacked, np.repeat(order[:, None], 3, 1), 0.02)
    same(read_h5("out.h5")["position"], expected.position)
    trajcli.ok("integrate actions.npy actions.npy --start zero --dt 1 -o two.h5")
    assert read_h5("two.h5")["position"].shape == (10, 11, 3)


def test_the_same_input_gives_the_same_bytes_anywhere(trajcli, folder):
    there = Path(shutil.copytree(folder, folder / "elsewhere"))
    for out in ("out.h5", "out.npz"):
        trajcli.ok(f"{RUN} -o {out}")
        line = f"integrate {there}/actions.npy --start {there}/start.npy --dt 0.02 -o {there}/{out}"
        trajcli.ok(line)
        assert (there / out).read_bytes() == Path(out).read_bytes()


def test_paths_within_other_names_are_relative_in_outputs(trajcli, folder):
    # a group of the same name as the file
    write_h5("x.h5", {"x.h5/actions": np.load("actions.npy"), "x.h5/dt": 0.02})
    os.makedirs("of x.h5/runs")
    for name in ("x.h5", "start.npy"):
        shutil.copy(name, "of x.h5")
    words = ["x.h5", "of x.h5/x.h5", "--start", "0,0,0", "-o", "of x.h5/runs/out.h5"]
    trajcli.ok("integrate", *words)
    with h5py.File("of x.h5/runs/out.h5") as file:
        said = dict(file.attrs)
    assert said["source"] == "../../x.h5:/x.h5/actions\n../x.h5:/x.h5/actions"
    assert said["dt_source"] == "../../x.h5:/x.h5/dt and 1 more"
    assert json.loads(said["request"])["sources"] == ["../../x.h5", "../x.h5"]
    words = ["x.h5", "--start", "of x.h5/start.npy", "-o", "of x.h5/runs/out.h5", "--overwrite"]
    trajcli.ok("integrate", *words)
    with h5py.File("of x.h5/runs/out.h5") as file:
        assert file.attrs["start"] == "../start.npy"


def test_only_what_is_asked_for_is_written_and_quiet_says_nothing(trajcli, folder):
    result = trajcli.ok(f"{RUN} -o out.h5 --write jerk,position --quiet")
    assert (result.out, result.err) == ("", "")
    assert {*QUANTITIES, "time"} & {*read_h5("out.h5")} == {"position", "jerk", "time"}


def test_the_output_opens_in_xarray_with_dims_coordinates_and_units(trajcli, folder):
    xarray = pytest.importorskip("xarray")
    trajcli.ok(f"{RUN} -o out.h5 --units rad")
    with xarray.open_dataset("out.h5", engine="h5netcdf") as data:
        assert data["position"].dims == ("trajectory", "time", "dof")
        assert data.sizes == {"trajectory": 5, "time": 11, "dof": 3}
        assert data["acceleration"].attrs["units"] == "rad/s^2"
        assert data["time"].attrs["units"] == "s"
        close(data["time"], 0.02 * np.arange(11), rtol=1e-15)
        assert data.attrs["mode"] == "acceleration"
        assert data.attrs["source"] == "actions.npy"
    np.save("steps.npy", np.linspace(0.02, 0.03, 50).reshape(5, 10))
    trajcli.ok("integrate actions.npy --start zero --dt steps.npy -o two.h5")
    with xarray.open_dataset("two.h5", engine="h5netcdf") as data:
        assert data["time"].dims == ("trajectory", "row")
        assert data["position"].dims == ("trajectory", "row", "dof")


def test_a_dry_run_says_what_would_happen_and_writes_nothing(trajcli, folder):
    plan = trajcli.ok(f"{RUN} -o out.h5 --dry-run --json").document
    assert sorted(os.listdir()) == ["actions.npy", "start.npy"]
    assert plan["shape"] == {"trajectories": 5, "horizon": 10, "shortest": 10, "dofs": 3}
    assert plan["bytes_written"] == 4 * 5 * 11 * 3 * 4 + 11 * 8
    assert plan["device"] == "cpu"
    assert plan["dry_run"] is True


def test_the_command_line_wins_over_the_environment_over_the_default(trajcli, folder, monkeypatch):
    line = "integrate actions.npy --start start.npy --dt 0.02 -o out.h5 --overwrite --json"
    assert trajcli(line).document["mode"] == "acceleration"
    monkeypatch.setenv("TRAJCLI_MODE", "clique")
    assert trajcli(line).document["mode"] == "clique"
    assert trajcli(f"{line} --mode jerk").document["mode"] == "jerk"


@pytest.mark.parametrize("way", ["", "TRAJCLI_BACKEND=torch", "--cost jerk"])
def test_nan_is_refused_or_stays_where_it_is(trajcli, folder, way):
    actions = np.load("actions.npy")
    actions[3, 7, 2] = np.nan
    np.save("nan.npy", actions)
    line = f"integrate nan.npy --start start.npy --dt 0.02 -o out.h5 {way}"
    trajcli.refuses(line, "nan.npy, trajectory 3, step 7, dof 2")
    trajcli.ok(line + " --allow-nonfinite")
    clean = integrate(np.load("actions.npy"), np.load("start.npy"), 0.02).position
    written = read_h5("out.h5")["position"]
    touched = np.isnan(written)
    assert touched[3, 8:, 2].all()
    assert touched.sum() == 3
    same(written[~touched], clean[~touched])


@pytest.mark.parametrize("option", ["goals.h5", "goals.h5:far/goal", "goals.h5:far/goal/position"])
def test_the_index_of_goal_states_lies_beside_them(trajcli, folder, option):
    group, states = option.partition(":")[2].partition("goal")[0], np.arange(6.0).reshape(2, 3)
    write_h5("goals.h5", {f"{group}goal/position": states, f"{group}goal_index": [1, 0, 1, 1, 0]})
    trajcli.ok(f"{RUN} --mode central --ends goal --goal {option} -o out.h5")
    same(read_h5("out.h5")["position"][:, -1], states[[1, 0, 1, 1, 0]])


def test_a_run_in_shards_is_not_one_array(trajcli, folder):
    trajcli.refuses(f"{RUN} --write position -o out.npy --shard 0/2", "OUT.h5 or OUT.npz")


ROWS, DOFS = 8, 3
UNEVEN = np.linspace(0.1, 0.2, ROWS)
ARRAYS = ("actions", "position", "velocity", "acceleration", "jerk")


def values(rows=ROWS, batch=2):
    return np.random.default_rng(rows + batch).normal(size=(batch, rows, DOFS))


def stamps(count):
    return {"times": np.arange(count) * 0.1}


FILES = {
    "a": {"dt": 0.1},
    "steps": {"dt": UNEVEN},
    "own_steps": {"dt": np.stack([UNEVEN, 2 * UNEVEN])},
    "own_step": {"dt": np.array([[0.1], [0.2]])},
    "too_many_steps": {"dt": np.full(ROWS + 3, 0.1)},
    "stamps": stamps(ROWS + 1),
    "uneven_stamps": {"times": np.cumsum([0.0, *UNEVEN])},
    "too_few_stamps": stamps(ROWS - 1),
    "too_many_stamps": stamps(ROWS + 2),
    "padded": {"dt": 0.1, "lengths": np.array([ROWS, 5])},
    "longer": {"actions": values(12), **stamps(13)},
    "one": {"actions": values(batch=1), "dt": 0.1},
}


def trajectories(path):
    """The arrays and times of each trajectory of an output, in the order of their names."""
    with h5py.File(path) as file:
        groups = set()
        file.visit(lambda name: groups.add(os.path.split(name)))
        places = {group for group, name in groups if name in ARRAYS and "start" not in group}
        for place in sorted(places, key=lambda name: list(map(int, re.findall(r"\d+", name)))):
            group = file[f"/{place}"]
            arrays = [group[name][()] for name in ARRAYS if name in group]
            named = ((one, name) for one in (group, file) for name in ("time", "times"))
            time = next((one[name][()] for one, name in named if name in one), np.zeros(1))
            if arrays[0].ndim == 2:
                yield [*arrays, time]
                continue
            for k in range(len(arrays[0])):
                yield [*(array[k] for array in arrays), time if time.ndim == 1 else time[k]]


@pytest.mark.parametrize("line", ["integrate {} --scheme zoh -o {}", "resample {} --to 23 -o {}"])
def test_two_files_give_what_each_of_them_gives(trajcli, folder, line):
    for name, arrays in FILES.items():
        np.savez(name, **{"actions": values(), "start_position": np.ones(DOFS), **arrays})
    groups = {}
    for n, rows in enumerate((ROWS, 6)):
        arrays = {"actions": values(rows)[n], "start/position": np.ones(DOFS), **stamps(rows + 1)}
        groups |= {f"g{n}/{name}": of for name, of in arrays.items()}
    write_h5("groups.h5", groups)
    files = sorted(name for name in os.listdir() if name.endswith((".npz", ".h5")))
    alone = {}
    for name in files:
        done = trajcli(line.format(name, f"{name}.out.h5")).code == 0
        alone[name] = list(trajectories(f"{name}.out.h5")) if done else None
    refused = [name for name in files if alone[name] is None]
    assert len(refused) in range(2, 8)
    for pair in itertools.combinations_with_replacement(files, 2):
        result = trajcli(line.format(" ".join(pair), "both.h5") + " --overwrite")
        assert result.code == (2 if {*pair} & {*refused} else 0), (pair, result.err)
        if result.code:
            assert any(name in result.err for name in refused), (pair, result.err)
            continue
        both, each = list(trajectories("both.h5")), [*alone[pair[0]], *alone[pair[1]]]
        assert len(both) == len(each), pair
        for one in each:
            same = [
                k
                for k, other in enumerate(both)
                if all(
                    a.shape == b.shape and np.allclose(a, b, rtol=1e-12, atol=1e-12)
                    for a, b in zip(one, other, strict=True)
                )
            ]
            assert same, pair
            both.pop(same[0])


@pytest.mark.parametrize("option", ["--dt dt.npy", "--times times.npy"])
def test_steps_that_an_option_names_are_shared_whatever_holds_the_trajectories(
    trajcli, folder, option
):
    actions = np.load("actions.npy")
    steps = np.linspace(0.1, 0.2, actions.shape[1])
    np.save("dt.npy", steps)
    np.save("times.npy", np.cumsum([0.0, *steps]))
    np.save("a.npy", actions[:2])
    np.save("b.npy", actions[2:])
    line = f"integrate {{}} {option} --start zero --cost jerk -o {{}}"
    trajcli.ok(line.format("actions.npy", "one.h5"))
    trajcli.ok(line.format("a.npy b.npy", "two.h5"))
    with h5py.File("one.h5") as one, h5py.File("two.h5") as two:
        assert one["grad/dt"].shape == actions.shape[:2]
        times = two["b/trajectory_0/time" if "time" not in two else "time"]
        np.testing.assert_array_equal(times, one["time"])
        close(two["grad/dt"], one["grad/dt"], rtol=1e-12)
