"""inspect, closer: what is chosen, one number for scripts, states, relations, large files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def out(trajcli, samples, tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    job = f"integrate {samples}/reach.h5 --mode jerk --scheme zoh -o out.h5"
    assert trajcli(job).code == 0
    return tmp_path / "out.h5"


def test_index_and_dof_choose_what_ranges_states_and_peaks_are_of(trajcli, out):
    report = trajcli("inspect out.h5 --episodes 3,10:12 --dofs panda_joint2,-1 --json").document
    with h5py.File(out) as file:
        velocity = file["velocity"][[3, 10, 11]][:, :, [1, 6]]
        time_of_rows = file["time"][[3, 10, 11]]
    (dataset,) = [d for d in report["datasets"] if d["name"] == "velocity"]
    assert dataset["dofs"] == ["panda_joint2", "panda_joint7"]
    for i, dof in enumerate(dataset["per_dof"]):
        values = velocity[:, :, i]
        assert (dof["min"], dof["max"]) == (values.min(), values.max())
        assert dof["peak"] == np.abs(values).max()
        b, t = np.unravel_index(np.abs(values).argmax(), values.shape)
        at = dof["at"]
        assert (at["trajectory"], at["row"]) == ([3, 10, 11][b], t)
        assert at["time"] == time_of_rows[b, t]


@pytest.mark.parametrize(
    "words",
    ["--episodes 64", "--episodes -65", "--episodes a", "--episodes 3:3", "--episodes 1::0",
     "--dofs 7", "--dofs elbow"],
)  # fmt: skip
def test_a_selection_that_is_not_there_is_exit_2(trajcli, out, words):
    result = trajcli(f"inspect out.h5 {words}")
    assert result.code == 2
    assert result.err.startswith(f"error: {words.split()[0]}: ")


@pytest.mark.parametrize(
    ("file", "value", "source"),
    [
        ("control_points.npz", 0.02, "control_points.npz:dt"),
        ("reach.h5", "varies", "reach.h5:/dt"),
        ("recorded.h5", "varies", "time stamps"),
    ],
)
def test_dt_is_told_with_where_it_comes_from(trajcli, samples, file, value, source):
    dt = trajcli(f"inspect {samples}/{file} --json").document["dt"]
    assert dt["value"] == value
    assert source in dt["source"]


def test_attributes_give_dt_too(trajcli, folder):
    with h5py.File("in.h5", "w") as file:
        file["position"] = np.zeros((2, 5, 3))
        file.attrs["fps"] = 50.0
    dt = trajcli("inspect in.h5 --json").document["dt"]
    assert dt["value"] == 0.02
    assert "fps" in dt["source"]


def test_datasets_of_one_pattern_are_one_line_in_natural_order(trajcli, folder):
    with h5py.File("in.h5", "w") as file:
        for i in range(12):
            file[f"data/demo_{i}/actions"] = np.full((10 + i, 3), float(i))
            file[f"data/demo_{i}/obs/q"] = np.full((10 + i, 3), 0.0)
    report = trajcli("inspect in.h5 --json").document
    names = [d["name"] for d in report["datasets"]]
    assert names == ["data/demo_*/actions", "data/demo_*/obs/q"]
    assert report["datasets"][0]["count"] == 12
    assert report["datasets"][0]["shape"] == ["10..21", 3]
    assert report["datasets"][0]["max"] == 11.0
    assert report["trajectories"]["count"] == 12
    assert report["trajectories"]["rows"] == [10, 21]
    report = trajcli("inspect in.h5 --episodes 10 --json").document
    assert report["trajectories"]["shown"] == ["data/demo_10"]
    assert report["datasets"][0]["max"] == 10.0
    assert "12 of" in trajcli("inspect in.h5").out


def test_duration_rate_and_jitter_are_those_of_the_time_stamps(trajcli, folder):
    times = 0.02 * np.arange(101)
    times[50] += 0.003
    with h5py.File("in.h5", "w") as file:
        file["position"] = np.zeros((101, 2))
        file["times"] = times
    found = trajcli("inspect in.h5 --json").document["trajectories"]
    assert found["duration"] == [pytest.approx(2.0)] * 2
    assert found["rate"] == pytest.approx(50.0)
    assert found["jitter"] == pytest.approx(0.003)
    shown = trajcli("inspect in.h5").out
    assert "2 s at 50 Hz, steps up to 3 ms off the median" in shown
    with h5py.File("in.h5", "r+") as file:
        file["times"][50] -= 0.003
    assert trajcli("inspect in.h5 --json").document["dt"]["value"] == 0.02


def test_episodes_of_d4rl_are_seen_as_integrate_sees_them(trajcli, folder):
    ends = np.zeros(60, bool)
    ends[[19, 44, 59]] = True
    with h5py.File("d4rl.hdf5", "w") as file:
        file["actions"] = np.random.default_rng(0).standard_normal((60, 3))
        file["observations"] = np.zeros((60, 8))
        file["terminals"], file["timeouts"] = ends, np.zeros(60, bool)
        file["rewards"] = np.zeros(60)
    report = trajcli("inspect d4rl.hdf5 --json").document
    assert report["layout"] == "d4rl"
    assert report["trajectories"]["count"] == 3
    assert report["trajectories"]["rows"] == [15, 25]
    (actions,) = [
        dataset
        for dataset in trajcli("inspect d4rl.hdf5 --episodes 1 --json").document["datasets"]
        if dataset["name"] == "actions"
    ]
    with h5py.File("d4rl.hdf5") as file:
        assert actions["max"] == file["actions"][20:45].max()
    assert trajcli("check d4rl.hdf5 --json").document["checks"][0]["trajectories"] == 3


@pytest.mark.parametrize("command", ["inspect {}", "check {}"])
def test_an_array_within_each_demo_is_named_by_its_path_there(trajcli, folder, command):
    with h5py.File("demos.hdf5", "w") as file:
        for i in range(3):
            demo = file.create_group(f"data/demo_{i}")
            demo["actions"] = np.zeros((10, 2))
            demo["obs/robot0_joint_pos"] = np.ones((10, 2))
            demo.attrs["num_samples"] = 10
    result = trajcli(command.format("demos.hdf5:obs/robot0_joint_pos"), "--json")
    assert result.code == 0, result.err
    report = result.document
    if "checks" in report:
        assert report["checks"][0]["trajectories"] == 3
        assert report["checks"][0]["dataset"] == "data/demo_*/obs/robot0_joint_pos"
    else:
        assert report["trajectories"]["count"] == 3
        (dataset,) = report["datasets"]
        assert (dataset["count"], dataset["max"]) == (3, 1.0)


def bytes_read() -> int:
    """What this process has read by system calls."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("rchar:")).split()[1])


@pytest.mark.parametrize("shape", [(700_000, 101, 7), (1, 70_000_000, 7)])
def test_of_ten_gigabytes_a_sample_is_read_and_it_is_said(trajcli, folder, monkeypatch, shape):
    """The file is sparse: it takes no space, and has the size it says."""
    from trajcli.views.statistics import Statistics

    sizes = []
    add = Statistics.add

    def counted(self, values, block):
        sizes.append(values.nbytes)
        add(self, values, block)

    monkeypatch.setattr(Statistics, "add", counted)
    with h5py.File("big.h5", "w") as file:
        for name in ("position", "velocity", "acceleration", "jerk"):
            properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            properties.set_layout(h5py.h5d.CONTIGUOUS)
            properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
            space = h5py.h5s.create_simple(shape)
            h5py.h5d.create(file.id, name.encode(), h5py.h5t.NATIVE_FLOAT, space, properties)
        options = {"scheme": "euler", "frames": "full", "convention": "standard", "dt": 0.01}
        file.attrs.update(mode="acceleration", start="zero", **options)
        first, last = (0, 0, 1), (shape[0] - 1, shape[1] - 1, 2)
        file["jerk"][first], file["jerk"][last] = -4.0, 5.0
    assert Path("big.h5").stat().st_size > 7e9
    trajcli("inspect start.npy")  # everything is loaded
    sizes.clear()
    before = bytes_read()
    result = trajcli("inspect big.h5 --json")
    Path("big.h5").unlink()
    assert result.code == 0, result.err
    assert 10e6 < sum(sizes) < 40e6  # of what is mapped
    assert bytes_read() - before < 40e6
    report = result.document
    assert report["sampled"]
    (jerk,) = [d for d in report["datasets"] if d["name"] == "jerk"]
    assert (jerk["min"], jerk["max"]) == (-4.0, 5.0)  # both ends are always looked at
    assert jerk["per_dof"][2]["at"]["row"] == shape[1] - 1


def test_full_looks_at_everything_and_a_sample_says_that_it_is_one(trajcli, folder, monkeypatch):
    from trajcli.views import inspect

    monkeypatch.setattr(inspect, "SAMPLE_BYTES", 1 << 14)
    monkeypatch.setattr(inspect, "LEAST_BYTES", 1 << 14)
    values = np.zeros((500, 100, 3))
    values[[250, 77], [50, 3], [1, 0]] = np.nan, 9.0
    np.save("in.npy", values)
    sampled = trajcli("inspect in.npy")
    assert "a sample of the values" in sampled.out
    report = trajcli("inspect in.npy --full --json").document
    assert not report["sampled"]
    (dataset,) = report["datasets"]
    assert (dataset["nan"], dataset["max"]) == (1, 9.0)
    assert dataset["nonfinite_at"] == [{"trajectory": 250, "row": 50, "dof": 1}]
    assert "a sample" not in trajcli("inspect in.npy --full").out


@pytest.mark.parametrize("command", ["inspect {f}", "check {f}", "diff {f} {f}",
                                     "export {f} --episodes 0 -o {o}"])  # fmt: skip
def test_looking_imports_neither_torch_nor_what_it_does_not_need(samples, tmp_path, command):
    words = command.format(f=samples / "reach.h5", o=tmp_path / "o.csv").split()
    run = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "trajcli", *words],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    modules = {line.rpartition("|")[2].strip().partition(".")[0] for line in run.stderr.split("\n")}
    assert "h5py" in modules
    assert modules.isdisjoint({"torch", "matplotlib", "rerun"})


@pytest.mark.parametrize("command", ["inspect {f} --json", "check {f} --json",
                                     "export {f} -o o.npz --json"])  # fmt: skip
def test_all_trajectories_are_what_the_word_all_and_no_index_mean(trajcli, out, command):
    line = command.format(f="out.h5")
    without = trajcli(line).document
    Path("o.npz").unlink(missing_ok=True)
    result = trajcli(f"{line} --episodes all")
    assert result.code == 0, result.err
    assert result.document == without


def test_all_joints_are_what_the_word_all_means_unless_one_is_called_so(trajcli, folder):
    for names, found in ((["a", "b"], ["a", "b"]), (["any", "all"], ["all"])):
        with h5py.File("in.h5", "w") as file:
            file["position"] = np.zeros((2, 5, 2))
            file["joint_names"] = names
        datasets = trajcli("inspect in.h5 --dofs all --json").document["datasets"]
        assert [dataset["dofs"] for dataset in datasets if "dofs" in dataset] == [found]


def test_only_arrays_of_dofs_have_numbers_per_dof(trajcli, out, samples):
    for file, with_dofs in (
        (out, {"position", "velocity", "acceleration", "jerk"}),
        (samples / "reach.h5", {"actions", "reference/position", "reference/velocity",
                                "reference/acceleration"}),
    ):  # fmt: skip
        datasets = trajcli(f"inspect {file} --json").document["datasets"]
        assert {d["name"] for d in datasets if "per_dof" in d} == with_dofs
        assert all(len(d.get("per_dof", range(7))) == 7 for d in datasets)
    assert "per_dof" not in trajcli(f"inspect {out}:time --json").document["datasets"][0]


def test_numbers_of_chosen_and_of_all_trajectories_are_told_apart(trajcli, samples):
    line = f"inspect {samples}/reach.h5"
    datasets = trajcli(f"{line} --episodes 3 --json").document["datasets"]
    whose = {d["name"]: d["trajectories"] for d in datasets if "min" in d}
    assert {name for name, which in whose.items() if which == "all"} == {
        "dt", "start/position", "start/velocity", "start/acceleration"
    }  # fmt: skip
    assert {which for which in whose.values() if which != "all"} == {"3"}
    shown = trajcli(f"{line} --episodes 3").out
    assert "\n* of all trajectories; the others of --episodes 3\n" in shown
    assert "\nstart/position * " in shown
    assert "\nactions   " in shown
    assert "*" not in trajcli(line).out
