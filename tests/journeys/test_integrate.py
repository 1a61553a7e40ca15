"""integrate, from file to file, as a user types it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from trajcli import State, integrate
from trajcli.jobs.request import Request
from trajcli.jobs.run import run

RUN = "integrate actions.npy --start start.npy --dt 0.02"
QUANTITIES = ("position", "velocity", "acceleration", "jerk")


def read(path: str | Path) -> dict[str, np.ndarray]:
    """All arrays of an output of any kind."""
    path = Path(path)
    if path.is_dir():
        return {part.stem: np.load(part) for part in path.glob("*.npy")}
    if path.suffix == ".npz":
        with np.load(path) as archive:
            return {name: archive[name] for name in archive.files if not name.endswith(".json")}
    with h5py.File(path) as file:
        return {name: file[name][()] for name in file if name not in ("trajectory", "row", "dof")}


def expected(**options: object) -> dict[str, np.ndarray]:
    trajectory = integrate(np.load("actions.npy"), np.load("start.npy"), 0.02, **options)
    return {name: getattr(trajectory, name) for name in (*QUANTITIES, "time")}


@pytest.mark.parametrize("out", ["out.h5", "out.hdf5", "out.npz"])
def test_every_kind_of_output_holds_what_the_library_computes(trajcli, folder, out):
    result = trajcli(f"{RUN} -o {out}")
    assert result.code == 0, result.err
    written = read(out)
    for name, values in expected().items():
        np.testing.assert_array_equal(written[name], values)
        assert written[name].dtype == values.dtype


@pytest.mark.parametrize(
    ("options", "same"),
    [
        ("--mode acc", {"mode": "acceleration"}),
        ("--mode jerk --scheme zoh", {"mode": "jerk", "scheme": "zoh"}),
        ("--mode velocity --scheme foh", {"mode": "velocity", "scheme": "foh"}),
        ("--mode position --frames actions", {"mode": "clique", "frames": "actions"}),
        ("--mode central", {"mode": "central"}),
        ("--mode central --convention curobo", {"mode": "central", "convention": "curobo"}),
        (
            "--mode bspline --degree 5 --steps 4",
            {"mode": "bspline", "degree": 5, "steps": 4},
        ),
        ("--mode teleport", {"mode": "teleport"}),
        ("--frames curobo", {"frames": "curobo"}),
        ("--dtype float64", {"dtype": "float64"}),
    ],
)
def test_options_of_the_command_are_those_of_the_library(trajcli, folder, options, same):
    result = trajcli(f"{RUN} -o out.h5 {options}")
    assert result.code == 0, result.err
    written = read("out.h5")
    for name, values in expected(**same).items():
        np.testing.assert_array_equal(written[name], values, err_msg=name)


def test_start_and_goal_states_come_from_groups_of_files(trajcli, folder):
    random = np.random.default_rng(1)
    parts = {name: random.standard_normal((5, 3)) for name in QUANTITIES}
    with h5py.File("states.h5", "w") as file:
        for name, values in parts.items():
            file[f"start/{name}"], file[f"other/{name}"] = values, values[::-1]
    line = "integrate actions.npy --dt 0.02 --mode bspline --ends goal -o out.h5"
    result = trajcli(f"{line} --start states.h5 --goal states.h5:other")
    assert result.code == 0, result.err
    goal = State(**{name: values[::-1] for name, values in parts.items()})
    trajectory = integrate(
        np.load("actions.npy"), State(**parts), 0.02, "bspline", ends="goal", goal=goal
    )
    for name in QUANTITIES:
        np.testing.assert_array_equal(read("out.h5")[name], getattr(trajectory, name))


def test_a_start_can_be_typed(trajcli, folder):
    line = "integrate actions.npy --dt 0.02 -o out.h5 --overwrite"
    assert trajcli(f"{line} --start 0.5,-1,2e-1").code == 0
    np.testing.assert_array_equal(read("out.h5")["position"][:, 0], np.tile([0.5, -1, 0.2], (5, 1))
                                  .astype("f4"))  # fmt: skip
    result = trajcli(f"{line} --start 0.5,1")
    assert result.code == 2
    assert "D = 3" in result.err


def test_what_cannot_be_integrated_is_left_out_and_listed(trajcli, folder):
    actions = np.load("actions.npy")
    actions[3, 7, 2] = np.nan
    np.save("nan.npy", actions)
    np.save("wide.npy", np.zeros((2, 10, 4), "f4"))
    Path("broken.npy").write_bytes(b"no array")
    line = "integrate actions.npy broken.npy nan.npy wide.npy --start zero --dt 0.02 -o out.h5"
    assert trajcli(line).code == 2
    result = trajcli(f"{line} --skip-bad --json")
    assert result.code == 1, result.err
    assert [bad["name"] for bad in result.document["left_out"]] == [
        "broken.npy", "wide", "nan.npy, trajectory 3",
    ]  # fmt: skip
    assert "left out: nan.npy, trajectory 3: NaN or Inf" in result.err
    good = np.concatenate([np.load("actions.npy"), np.delete(actions, 3, 0)])
    np.testing.assert_array_equal(read("out.h5")["jerk"], integrate(good, "zero", 0.02).jerk)
    with h5py.File("out.h5") as file:
        names = [f"{stem}/trajectory_{k}" for stem in ("actions", "nan") for k in range(5)]
        assert list(file["trajectory"].asstr()) == [n for n in names if n != "nan/trajectory_3"]
    assert trajcli("integrate actions.npy --start zero --dt 1 -o fine.h5 --skip-bad").code == 0
    result = trajcli("integrate broken.npy --start zero --dt 1 -o none.h5 --skip-bad")
    assert (result.code, Path("none.h5").exists()) == (2, False)


@pytest.fixture
def one_of_three_repeats(folder):
    """demos.h5: recordings of which the second has a repeated stamp; returns their positions."""
    position = np.random.default_rng(2).random((3, 6, 2))
    times = np.tile(np.arange(6) * 0.1, (3, 1))
    times[1, 2] = times[1, 1]
    with h5py.File("demos.h5", "w") as file:
        for k in range(3):
            file[f"data/demo_{k}/position"] = position[k]
            file[f"data/demo_{k}/time"] = times[k]
    return position


def test_steps_that_do_not_go_forward_are_named_by_file_group_and_row(
    trajcli, one_of_three_repeats
):
    line = "differentiate demos.h5:data/demo_*/position --method backward -o out.h5"
    result = trajcli(line)
    assert (result.code, Path("out.h5").exists()) == (2, False)
    assert "demos.h5:/data/demo_1/time: time stamps that repeat" in result.err
    assert "row 2 (0.1)" in result.err


def test_a_trajectory_whose_steps_do_not_go_forward_is_left_out(trajcli, one_of_three_repeats):
    line = "differentiate demos.h5:data/demo_*/position --method backward -o out.h5"
    result = trajcli(f"{line} --skip-bad --json")
    assert result.code == 1, result.err
    (bad,) = result.document["left_out"]
    assert bad["name"] == "demos.h5:/data/demo_1/position, trajectory 0"
    assert bad["reason"] == "time stamps that repeat"
    assert bad["faults"][0]["where"] == "demos.h5:/data/demo_1/time"
    np.testing.assert_array_equal(read("out.h5")["position"], one_of_three_repeats[[0, 2]])


def test_a_step_that_is_not_positive_in_one_of_many_files_is_named_or_left_out(trajcli, folder):
    for name, step in (("a", 0.1), ("b", 0.0), ("c", 0.2)):
        with h5py.File(f"{name}.h5", "w") as file:
            file["actions"], file["dt"] = np.load("actions.npy")[0], [step] + [0.1] * 9
    line = "integrate a.h5 b.h5 c.h5 --start zero -o out.h5"
    result = trajcli(line)
    assert result.code == 2
    assert "b.h5:/dt" in result.err
    assert "of the inputs" not in result.err
    result = trajcli(f"{line} --skip-bad --json")
    assert result.code == 1, result.err
    assert [bad["name"] for bad in result.document["left_out"]] == ["b.h5:/actions, trajectory 0"]
    result = trajcli("integrate b.h5 --start zero -o none.h5 --skip-bad")
    assert (result.code, Path("none.h5").exists()) == (2, False)


def test_little_memory_is_stated_in_a_unit_that_fits(trajcli, folder):
    result = trajcli("integrate actions.npy --start zero --dt 1 -o out.h5 TRAJCLI_MEMORY=1")
    assert result.code == 0
    assert "KiB of working memory" in result.err


def test_a_file_with_dt_and_stamps_that_contradict_each_other_is_refused(trajcli, folder):
    with h5py.File("in.h5", "w") as file:
        file["actions"], file["dt"] = np.load("actions.npy"), 0.02
        file["times"] = np.arange(11) * 0.05
    result = trajcli("integrate in.h5 --start zero -o out.h5")
    assert result.code == 2
    assert "in.h5:/dt" in result.err
    assert "in.h5:/times" in result.err
    assert trajcli("integrate in.h5 --start zero --dt 0.02 -o out.h5").code == 0


@pytest.mark.parametrize("role", ["start", "goal"])
def test_states_by_index_are_those_of_the_index_in_a_padded_array_too(trajcli, folder, role):
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
    result = trajcli(f"integrate in.h5 -o out.h5 {more}")
    assert result.code == 0, result.err
    with h5py.File("out.h5") as file:
        for k in range(4):
            row = file[f"in/trajectory_{k}/position"][0 if role == "start" else -1]
            np.testing.assert_allclose(row, states[index[k]], atol=1e-12)


def test_what_it_wrote_is_read_back_with_the_same_dt(trajcli, folder):
    assert trajcli("integrate actions.npy --start zero --rate 30 -o out.h5").code == 0
    result = trajcli("differentiate out.h5:position --method backward -o again.h5 --json")
    assert result.code == 0, result.err
    assert result.document["dt"] == 1 / 30
    assert read("again.h5")["time"].ndim == 1


def test_many_files_with_an_attribute_of_their_own_need_little_time_and_memory(folder):
    for k in range(300):
        with h5py.File(f"f{k}.h5", "w") as file:
            file["actions"], file["start/position"] = np.full((20, 7), k, "f4"), np.zeros((1, 7))
            file.attrs.update(dt=0.02, recorded=f"run {k}")
    code = (
        "import resource, sys; from trajcli.cli import main; "
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; "
        "code = main(['integrate', 'f*.h5', '-o', 'out.h5', '--quiet']); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before); sys.exit(code)"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True
    )
    assert int(run.stdout) / 1024 < 80
    with h5py.File("out.h5") as file:
        np.testing.assert_array_equal(file["acceleration"][:, 1, 0], np.arange(300))
        assert file["trajectory"].asstr()[17] == "f17"


def test_the_first_lines_of_a_run_fit_80_columns(trajcli, folder):
    deep = Path("a_folder_with_a_long_name_" * 3) / ("another_one_" * 8)
    deep.mkdir(parents=True)
    with h5py.File(deep / "in.h5", "w") as file:
        file["actions"], file["dt"], file["start/position"] = np.zeros((5, 9, 7)), 0.01, np.zeros(7)
    result = trajcli(f"integrate {deep}/in.h5 -o out.h5 --mode jerk --scheme zoh")
    assert result.code == 0, result.err
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
    assert trajcli("integrate in.h5 -o out.h5").code == 0
    trajectory = integrate(
        np.load("actions.npy"), State(**start), np.full(10, 0.02), start_index=index
    )
    with h5py.File("out.h5") as file:
        np.testing.assert_array_equal(file["position"], trajectory.position)
        np.testing.assert_array_equal(file["start_index"], index)
        assert file["velocity"].attrs["units"] == "m/s"
        assert list(file["dof"].asstr()) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("line", "dt", "source"),
    [
        ("--dt 0.05", 0.05, "--dt"),
        ("--rate 20", 1 / 20, "--rate"),
        ("--dt in.h5:steps@period", 0.05, "in.h5:steps@period"),
        ("--dt in.h5@control", 0.05, "in.h5@control"),
        ("--dt in.h5:steps", 0.05, "in.h5:/steps"),
    ],
)
def test_dt_is_taken_from_where_it_is_said(trajcli, folder, line, dt, source):
    with h5py.File("in.h5", "w") as file:
        file["steps"] = 0.05
        file["steps"].attrs["period"] = 0.05
        file.attrs["control"] = 0.05
    result = trajcli(f"integrate actions.npy --start zero {line} -o out.h5 --json")
    assert result.code == 0, result.err
    assert result.document["dt"] == dt
    assert source in result.document["dt_source"]
    assert read("out.h5")["time"][-1] == pytest.approx(10 * dt, rel=1e-15)


@pytest.mark.parametrize(
    ("attributes", "dt"),
    [({"dt": 0.04}, 0.04), ({"control_freq": 25}, 0.04), ({"fps": 25.0}, 0.04)],
)
def test_dt_in_attributes_of_the_file_is_used_and_printed(trajcli, folder, attributes, dt):
    with h5py.File("in.h5", "w") as file:
        file["actions"] = np.load("actions.npy")
        file["start/position"] = np.load("start.npy")
        file.attrs.update(attributes)
    result = trajcli("integrate in.h5 -o out.h5")
    assert result.code == 0, result.err
    name = next(iter(attributes))
    assert f"@{name}" in result.out
    with h5py.File("out.h5") as file:
        assert file.attrs["dt"] == dt
        assert name in file.attrs["dt_source"]


def test_several_sources_and_patterns_are_one_batch_in_natural_order(trajcli, folder):
    actions = np.load("actions.npy")
    with h5py.File("demos.h5", "w") as file:
        for i in (10, 9, 1, 2, 0):
            file[f"data/demo_{i}/actions"] = actions[i % 5] + i
            file[f"data/demo_{i}/start_position"] = np.full(3, i)
            file[f"data/demo_{i}"].attrs["dt"] = 0.02
    result = trajcli("integrate demos.h5:data/demo_*/actions actions.npy --start zero -o out.h5")
    assert result.code == 2  # actions.npy has no dt
    result = trajcli("integrate demos.h5:/data/demo_*/actions -o out.h5")
    assert result.code == 0, result.err
    order = [0, 1, 2, 9, 10]
    stacked = np.stack([actions[i % 5] + i for i in order])
    start = np.array([[i] * 3 for i in order])
    trajectory = integrate(stacked, start, 0.02)
    np.testing.assert_array_equal(read("out.h5")["position"], trajectory.position)
    result = trajcli("integrate actions.npy actions.npy --start zero --dt 1 -o two.h5")
    assert result.code == 0, result.err
    assert read("two.h5")["position"].shape == (10, 11, 3)


def test_several_files_with_steps_per_trajectory_keep_each_its_own(trajcli, folder, samples):
    source = samples / "reach.h5"
    line = f"integrate {source} {source} --mode jerk --scheme zoh -o out.h5"
    result = trajcli(line)
    assert result.code == 0, result.err
    positions = read("out.h5")["position"]
    with h5py.File(source) as file:
        reference = file["reference/position"][:]
    np.testing.assert_allclose(positions, np.concatenate([reference] * 2), atol=1e-11)


def test_trajectories_of_different_dofs_are_refused_by_name(trajcli, folder):
    np.save("narrow.npy", np.zeros((2, 4, 2)))
    result = trajcli("integrate actions.npy narrow.npy --start zero --dt 1 -o out.h5")
    assert result.code == 2
    assert "narrow.npy" in result.err
    assert "D = 2" in result.err


@pytest.mark.parametrize("out", ["out.h5", "out.npz"])
def test_the_same_input_beside_it_gives_the_same_bytes_wherever_it_lies(trajcli, folder, out):
    assert trajcli(f"{RUN} -o {out}").code == 0
    first = Path(out).read_bytes()
    os.mkdir("elsewhere")
    for name in ("actions.npy", "start.npy"):
        shutil.copy(name, "elsewhere")
    time.sleep(1.1)  # past the resolution of a clock that must not be in there
    there = folder / "elsewhere"
    line = f"integrate {there}/actions.npy --start {there}/start.npy --dt 0.02 -o elsewhere/{out}"
    assert trajcli(line).code == 0
    assert (there / out).read_bytes() == first


def test_paths_that_are_part_of_other_names_are_relative_in_an_output_where_they_are_paths(
    trajcli, folder
):
    actions = np.load("actions.npy")
    with h5py.File("x.h5", "w") as file:  # a group of the same name as the file
        file["x.h5/actions"], file["x.h5/dt"] = actions, 0.02
    os.makedirs("of x.h5/runs")
    for name in ("x.h5", "start.npy"):
        shutil.copy(name, "of x.h5")
    words = ["x.h5", "of x.h5/x.h5", "--start", "0,0,0", "-o", "of x.h5/runs/out.h5"]
    assert trajcli("integrate", *words).code == 0
    with h5py.File("of x.h5/runs/out.h5") as file:
        said = dict(file.attrs)
    assert said["source"] == "../../x.h5:/x.h5/actions\n../x.h5:/x.h5/actions"
    assert said["dt_source"] == "../../x.h5:/x.h5/dt and 1 more"
    words = ["x.h5", "--start", "of x.h5/start.npy", "-o", "of x.h5/runs/out.h5", "--overwrite"]
    assert trajcli("integrate", *words).code == 0
    with h5py.File("of x.h5/runs/out.h5") as file:
        assert file.attrs["start"] == "../start.npy"


def test_the_request_in_an_output_names_files_as_seen_from_there(trajcli, folder):
    os.makedirs("runs/first")
    assert trajcli(f"{RUN} --mode jerk -o runs/first/out.h5").code == 0
    with h5py.File("runs/first/out.h5") as file:
        stored, source = file.attrs["request"], file.attrs["source"]
    assert source == "../../actions.npy"
    assert json.loads(stored) == {"dt": "0.02", "mode": "jerk", "sources": ["../../actions.npy"],
                                  "start": "../../start.npy"}  # fmt: skip
    request = Request.from_json(stored, folder / "runs/first")
    assert os.path.samefile(request.sources[0], "actions.npy")
    again = replace(request, out=Path("runs/first/again.h5"))
    assert again.to_json() == stored
    run(again)
    assert Path("runs/first/again.h5").read_bytes() == Path("runs/first/out.h5").read_bytes()


def test_only_what_is_asked_for_is_written(trajcli, folder):
    assert trajcli(f"{RUN} -o out.h5 --write jerk,position").code == 0
    assert set(read("out.h5")) == {"position", "jerk", "time"}


def test_the_output_opens_in_xarray_with_dims_coordinates_and_units(trajcli, folder):
    xarray = pytest.importorskip("xarray")
    assert trajcli(f"{RUN} -o out.h5 --units rad").code == 0
    with xarray.open_dataset("out.h5", engine="h5netcdf") as data:
        assert data["position"].dims == ("trajectory", "time", "dof")
        assert data.sizes == {"trajectory": 5, "time": 11, "dof": 3}
        assert data["acceleration"].attrs["units"] == "rad/s^2"
        assert data["time"].attrs["units"] == "s"
        np.testing.assert_allclose(data["time"], 0.02 * np.arange(11), rtol=1e-15)
        assert data.attrs["mode"] == "acceleration"
        assert data.attrs["source"] == "actions.npy"
    np.save("steps.npy", np.linspace(0.02, 0.03, 50).reshape(5, 10))
    assert trajcli("integrate actions.npy --start zero --dt steps.npy -o two.h5").code == 0
    with xarray.open_dataset("two.h5", engine="h5netcdf") as data:
        assert data["time"].dims == ("trajectory", "row")
        assert data["position"].dims == ("trajectory", "row", "dof")


def test_a_dry_run_says_what_would_happen_and_writes_nothing(trajcli, folder):
    before = sorted(os.listdir())
    result = trajcli(f"{RUN} -o out.h5 --dry-run --json")
    assert result.code == 0
    assert sorted(os.listdir()) == before
    plan = result.document
    assert plan["shape"] == {"trajectories": 5, "horizon": 10, "shortest": 10, "dofs": 3}
    assert plan["bytes_written"] == 4 * 5 * 11 * 3 * 4 + 11 * 8
    assert plan["device"] == "cpu"
    assert plan["dry_run"] is True


def test_json_is_one_document_and_text_goes_to_stderr(trajcli, folder):
    result = trajcli(f"{RUN} -o out.h5 --json")
    assert json.loads(result.out)["out"] == "out.h5"
    assert "actions.npy" in result.err
    result = trajcli("integrate missing.npy -o x.h5 --json")
    assert result.code == 2
    assert result.document["error"]["faults"][0]["where"] == "missing.npy"


def test_quiet_says_nothing(trajcli, folder):
    result = trajcli(f"{RUN} -o out.h5 --quiet")
    assert (result.code, result.out, result.err) == (0, "", "")


def test_the_command_line_wins_over_the_environment_over_the_default(trajcli, folder, monkeypatch):
    line = "integrate actions.npy --start start.npy --dt 0.02 -o out.h5 --overwrite --json"
    assert trajcli(line).document["mode"] == "acceleration"
    monkeypatch.setenv("TRAJCLI_MODE", "clique")
    assert trajcli(line).document["mode"] == "clique"
    assert trajcli(f"{line} --mode jerk").document["mode"] == "jerk"


@pytest.mark.parametrize("way", ["", "TRAJCLI_BACKEND=torch", "--cost jerk"])
def test_nan_is_refused_by_place_and_stays_where_it_is_when_allowed(trajcli, folder, way):
    actions = np.load("actions.npy")
    actions[3, 7, 2] = np.nan
    np.save("nan.npy", actions)
    line = f"integrate nan.npy --start start.npy --dt 0.02 -o out.h5 {way}"
    result = trajcli(line)
    assert result.code == 2
    assert "nan.npy, trajectory 3, step 7, dof 2" in result.err
    assert not Path("out.h5").exists()
    result = trajcli(line + " --allow-nonfinite")
    assert result.code == 0
    clean = expected()["position"]
    with h5py.File("out.h5") as file:
        written = file["position"][()]
    touched = np.isnan(written)
    assert touched[3, 8:, 2].all()
    assert touched.sum() == 3
    np.testing.assert_array_equal(written[~touched], clean[~touched])


def test_results_too_large_for_float32_are_said(trajcli, folder):
    np.save("big.npy", np.full((1, 4, 1), 3e38, "f4"))
    result = trajcli("integrate big.npy --start zero --dt 10 -o out.h5 --json")
    assert result.code == 0
    assert any("too large" in note for note in result.document["notes"])


def test_an_empty_batch_and_a_single_action_work(trajcli, folder):
    np.save("none.npy", np.zeros((0, 10, 3)))
    assert trajcli("integrate none.npy --start zero --dt 1 -o none.h5").code == 0
    assert read("none.h5")["position"].shape == (0, 11, 3)
    np.save("one.npy", np.ones((1, 1)))
    assert trajcli("integrate one.npy --start zero --dt 1 -o one.h5").code == 0
    np.testing.assert_array_equal(read("one.h5")["position"], [[[0.0], [1.0]]])


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_ends_the_run_with_75_and_the_same_command_does_it(trajcli, folder, signum):
    np.save("many.npy", np.zeros((20000, 100, 7), "f4"))
    line = "integrate many.npy --start zero --dt 1 -o out.h5 --mode central"
    process = subprocess.Popen(
        [sys.executable, "-m", "trajcli", *line.split()],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        preexec_fn=lambda: signal.signal(signum, signal.SIG_DFL),
    )
    while not list(folder.glob(".out.h5*")) and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signum)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75, err
    assert signum.name in err
    assert "run the same command again" in err
    assert not Path("out.h5").exists()
    assert trajcli(line).code == 0
    assert trajcli(f"{line.replace('out.h5', 'whole.h5')}").code == 0
    assert Path("out.h5").read_bytes() == Path("whole.h5").read_bytes()
    listed = ["actions.npy", "many.npy", "out.h5", "start.npy", "whole.h5"]
    assert sorted(os.listdir()) == listed


@pytest.mark.parametrize("mode", ["jerk", "central"])
def test_memory_does_not_grow_with_the_batch(folder, mode):
    """Peak memory of the whole process for 8 MB and for 80 MB of actions."""
    peaks = []
    for batch in (1_000, 10_000):
        with h5py.File("many.h5", "w") as file:
            file["actions"] = np.zeros((batch, 200, 10), "f4")
        code = (
            "import re, sys; from trajcli.cli import main; "
            "code = main('integrate many.h5 --start zero --dt 1 -o out.h5 "
            f"--overwrite --quiet --write position --mode {mode}'.split()); "
            # of this process alone: getrusage has also what the one was that started it
            "print(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1]); "
            "sys.exit(code)"
        )
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        env["TRAJCLI_MEMORY"] = "32MiB"
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True
        )
        peaks.append(int(run.stdout) / 1024)
    assert peaks[1] - peaks[0] < 40, peaks


def test_the_output_says_all_that_it_was_made_of(trajcli, folder, samples):
    np.save("more.npy", np.load("actions.npy")[:2])
    line = "integrate actions.npy more.npy --start zero --dt 0.1 -o two.h5"
    assert trajcli(line).code == 0
    with h5py.File("two.h5") as file:
        assert file.attrs["source"].split("\n") == ["actions.npy", "more.npy"]
        assert "goal" not in file.attrs
    line = f"integrate {samples}/control_points.npz --mode bspline --ends goal -o goal.h5"
    assert trajcli(line).code == 0
    with h5py.File("goal.h5") as file:
        assert file.attrs["goal"].endswith("/control_points.npz:goal_position")
    line = f"differentiate {samples}/recorded_faulty.h5:position --method backward"
    assert trajcli(f"{line} --repeated-times drop -o drop.h5").code == 0
    with h5py.File("drop.h5") as file:
        assert json.loads(file.attrs["request"])["repeated_times"] == "drop"


@pytest.mark.parametrize("option", ["goals.h5", "goals.h5:far/goal", "goals.h5:far/goal/position"])
def test_the_index_of_goal_states_lies_beside_them(trajcli, folder, option):
    group, states = option.partition(":")[2].partition("goal")[0], np.arange(6.0).reshape(2, 3)
    with h5py.File("goals.h5", "w") as file:
        file[f"{group}goal/position"], file[f"{group}goal_index"] = states, [1, 0, 1, 1, 0]
    line = f"{RUN} --mode central --ends goal --goal {option} -o out.h5"
    assert trajcli(line).code == 0
    np.testing.assert_array_equal(read("out.h5")["position"][:, -1], states[[1, 0, 1, 1, 0]])


def test_a_run_in_shards_is_not_one_array(trajcli, folder):
    result = trajcli(f"{RUN} --write position -o out.npy --shard 0/2")
    assert (result.code, "OUT.h5 or OUT.npz" in result.err) == (2, True)
    assert not list(folder.glob("out.npy*"))
