"""inspect, modes and info, as a user types them."""

from __future__ import annotations

import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from journeys.arrays import write_h5


def test_inspect_gives_shapes_types_ranges_and_peaks_per_dof(trajcli, folder):
    values = np.load("actions.npy")
    with h5py.File("in.h5", "w") as file:
        file.create_dataset("actions", data=values, compression="gzip", shuffle=True)
        file["actions"].attrs["units"] = "rad/s^2"
        file["joint_names"] = ["a", "b", "c"]
        file["count"] = 7
        file.attrs["robot"] = "panda"
    report = trajcli("inspect in.h5 --json").document
    assert report["family"] == "hdf5"
    assert report["attributes"] == {"robot": "panda"}
    assert report["joint_names"] == ["a", "b", "c"]
    table = {dataset["name"]: dataset for dataset in report["datasets"]}
    actions = table["actions"]
    stored = [actions[name] for name in ("shape", "dtype", "units")]
    assert stored == [[5, 10, 3], "float32", "rad/s^2"]
    assert "gzip" in actions["storage"]
    assert (actions["nan"], actions["inf"]) == (0, 0)
    for i, dof in enumerate(actions["per_dof"]):
        assert dof["min"] == values[..., i].min()
        assert dof["max"] == values[..., i].max()
        assert dof["peak"] == np.abs(values[..., i]).max()
    assert table["count"]["max"] == 7
    result = trajcli.ok("inspect in.h5")
    for text in ("5×10×3", "float32", "gzip", "rad/s^2", "robot = panda", "peak"):
        assert text in result.out
    assert re.search(rf"^\s*b\s.*{np.abs(values[..., 1]).max():.4g}", result.out, re.MULTILINE)


def test_inspect_counts_nan_and_inf_and_keeps_them_out_of_ranges(trajcli, folder):
    values = np.load("actions.npy")
    values[2, 3, 1], values[0, 0, 1], values[1, 1, 2] = np.nan, np.inf, -np.inf
    np.save("bad.npy", values)
    (dataset,) = trajcli("inspect bad.npy --json").document["datasets"]
    assert (dataset["nan"], dataset["inf"]) == (1, 2)
    finite = values[..., 1][np.isfinite(values[..., 1])]
    ranges = [dataset["per_dof"][1][name] for name in ("min", "max", "peak")]
    assert ranges == [finite.min(), finite.max(), np.abs(finite).max()]
    places = [tuple(at.values()) for at in dataset["nonfinite_at"]]  # trajectory, row, dof
    assert places == [(0, 0, 1), (1, 1, 2), (2, 3, 1)]
    assert "trajectory 2, row 3, dof 1" in trajcli("inspect bad.npy").out


def test_inspect_lists_what_it_will_not_read_with_the_reason(trajcli, folder):
    write_h5("other.h5", x=np.ones(3))
    with h5py.File("in.h5", "w") as file:
        file["good"] = np.ones(3)
        file.create_dataset("vast", (10**6, 10**6), "f8", chunks=(1, 1000))
        file.create_dataset("outside", (3,), "f8", external=[("other.bin", 0, 24)])
        file["link"] = h5py.ExternalLink("other.h5", "/x")
    result = trajcli.ok("inspect in.h5")
    assert "declares more than the file holds" in result.out
    assert "leads out of the file" in result.out
    report = trajcli("inspect in.h5 --json").document
    readable = {d["name"]: "unreadable" not in d for d in report["datasets"]}
    assert readable == {"good": True, "vast": False, "outside": False}


def test_modes_lists_every_mode_with_formula_needs_rows_and_options(trajcli):
    from trajcli.modes import ALIASES, MODES

    result = trajcli.ok("modes")
    listed = trajcli("modes --json").document["modes"]
    assert [mode["name"] for mode in listed] == list(MODES)
    assert {alias: mode["name"] for mode in listed for alias in mode["aliases"]} == ALIASES
    for mode in listed:
        assert mode["options"] == list(MODES[mode["name"]].option_names())
        assert mode["formula"] in result.out
        assert mode["needs"] in result.out
        assert mode["rows"] in result.out


def test_info_names_versions_devices_and_why_a_backend_is_absent(trajcli):
    import torch

    release = torch.__version__.partition("+")[0]  # which not every wheel's metadata goes beyond
    facts = trajcli("info --json").document
    assert facts["versions"]["torch"] in (release, torch.__version__)
    assert facts["devices"][0]["name"] == "cpu"
    for backend in facts["backends"]:
        assert backend["present"] or backend["why"]
    assert release in trajcli("info").out


def test_a_bug_is_exit_70_without_a_traceback(trajcli, monkeypatch, folder):
    from trajcli.jobs import run

    monkeypatch.setattr(run, "Plan", lambda *_: 1 / 0)
    line = "integrate actions.npy --start zero --dt 1 -o out.h5"
    result = trajcli(line)
    assert result.code == 70
    assert "Traceback" not in result.err
    assert "division by zero" in result.err
    monkeypatch.setenv("TRAJCLI_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        trajcli(line)


def test_a_wrong_number_of_steps_stands_in_place_of_dt(trajcli, folder):
    write_h5("in.h5", actions=np.zeros((3, 6, 2)), dt=np.full(17, 0.1))
    report = trajcli("inspect in.h5 --json").document
    assert report["dt"]["value"] is None
    assert "wrong number of steps, [17]" in report["dt"]["source"]
    assert "rate" not in report["trajectories"]
    for line in ("export in.h5 -o out.npz", "export in.h5 -o out.csv", "plot in.h5 -o out.png"):
        trajcli.refuses(line, "in.h5:/dt: wrong number of steps")


@pytest.mark.parametrize("kind", ["padded", "groups", "shared"])
def test_durations_and_steps_are_those_of_all_trajectories(trajcli, folder, kind):
    steps = np.full((150, 9), 0.1)
    steps[149] = 0.4
    steps[75] = 0.01
    steps[[77, 77], [3, 4]] = [0.05, 0.15]
    times = np.concatenate([np.zeros((150, 1)), steps.cumsum(1)], 1)
    if kind == "groups":
        stamps = {f"data/demo_{n}/time": times[n] for n in range(150)}
        position = {f"data/demo_{n}/position": np.zeros((10, 2)) for n in range(150)}
        write_h5("in.h5", stamps | position)
    else:
        times = times if kind == "padded" else times[149]
        write_h5("in.h5", position=np.zeros((150, 10, 2)), times=times)
    found = trajcli("inspect in.h5 --json").document["trajectories"]
    assert found["count"] == 150
    assert not found["sampled"]
    least, median, largest = (3.6, 0.4, 0.4) if kind == "shared" else (0.09, 0.1, 0.4)
    assert found["duration"] == pytest.approx([least, 3.6])
    assert found["rate"] == pytest.approx(1 / median)
    assert found["jitter"] == pytest.approx(largest - median)
    for which, seconds in (("75", 0.09 if kind != "shared" else 3.6), ("149", 3.6)):
        found = trajcli(f"inspect in.h5 --json --episodes {which}").document["trajectories"]
        assert found["duration"] == pytest.approx([seconds, seconds])


def test_durations_of_a_sample_are_called_sampled(trajcli, folder):
    actions = {f"data/demo_{n}/actions": np.zeros((2, 1), "f4") for n in range(2100)}
    write_h5("in.h5", actions | {f"data/demo_{n}@dt": 0.3 if n % 2 else 0.1 for n in range(2100)})
    found = trajcli("inspect in.h5 --json").document["trajectories"]
    assert found["duration"] == pytest.approx([0.1, 0.1])
    assert found["sampled"]


@pytest.mark.parametrize("option", ["--times none.h5:x", "--dt none.h5:x", "--rate 0"])
def test_times_that_cannot_be_used_are_an_error(trajcli, folder, option):
    trajcli.refuses(f"inspect actions.npy {option}", "error")


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


def test_dt_is_told_with_where_it_comes_from(trajcli, samples):
    for file, value, source in (
        ("control_points.npz", 0.02, ":dt"),
        ("reach.h5", "varies", ":/dt"),
    ):
        dt = trajcli(f"inspect {samples}/{file} --json").document["dt"]
        assert (dt["value"], f"{file}{source}" in dt["source"]) == (value, True)


def test_datasets_of_one_pattern_are_one_line_in_natural_order(trajcli, folder):
    arrays = {f"data/demo_{i}/actions": np.full((10 + i, 3), float(i)) for i in range(12)}
    arrays |= {f"data/demo_{i}/obs/q": np.zeros((10 + i, 3)) for i in range(12)}
    write_h5("in.h5", arrays)
    report = trajcli("inspect in.h5 --json").document
    assert [d["name"] for d in report["datasets"]] == ["data/demo_*/actions", "data/demo_*/obs/q"]
    first, trajectories = report["datasets"][0], report["trajectories"]
    assert (first["count"], first["shape"], first["max"]) == (12, ["10..21", 3], 11.0)
    assert (trajectories["count"], trajectories["rows"]) == (12, [10, 21])
    report = trajcli("inspect in.h5 --episodes 10 --json").document
    assert report["trajectories"]["shown"] == ["data/demo_10"]
    assert report["datasets"][0]["max"] == 10.0
    assert "12 of" in trajcli("inspect in.h5").out


@pytest.mark.parametrize("shape", [(700_000, 101, 7), (1, 70_000_000, 7)])
def test_of_ten_gigabytes_a_sample_is_read_and_it_is_said(trajcli, folder, monkeypatch, shape):
    """The file is sparse: it takes no space, and has the size it says."""
    from trajcli.views._statistics import Statistics

    sizes = []
    add = Statistics.add_block

    def counted(self, arrays, block):
        sizes.append(arrays[self.name].nbytes)
        add(self, arrays, block)

    monkeypatch.setattr(Statistics, "add_block", counted)
    with h5py.File("big.h5", "w") as file:
        for name in ("position", "velocity", "acceleration", "jerk"):
            properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            properties.set_layout(h5py.h5d.CONTIGUOUS)
            properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
            space = h5py.h5s.create_simple(shape)
            h5py.h5d.create(file.id, name.encode(), h5py.h5t.NATIVE_FLOAT, space, properties)
        options = {"scheme": "euler", "alignment": "full", "convention": "standard", "dt": 0.01}
        file.attrs.update(mode="acceleration", start="zero", **options)
        first, last = (0, 0, 1), (shape[0] - 1, shape[1] - 1, 2)
        file["jerk"][first], file["jerk"][last] = -4.0, 5.0
    assert Path("big.h5").stat().st_size > 7e9
    report = trajcli.ok("inspect big.h5 --json").document
    Path("big.h5").unlink()
    assert 10e6 < sum(sizes) < 40e6
    assert report["sampled"]
    (jerk,) = [d for d in report["datasets"] if d["name"] == "jerk"]
    assert (jerk["min"], jerk["max"]) == (-4.0, 5.0)  # both ends are always looked at
    assert jerk["per_dof"][2]["at"]["row"] == shape[1] - 1


def test_the_word_all_means_all_joints(trajcli, folder):
    for names, found in ((["a", "b"], ["a", "b"]), (["any", "all"], ["all"])):
        write_h5("in.h5", position=np.zeros((2, 5, 2)), joint_names=names)
        datasets = trajcli("inspect in.h5 --dofs all --json").document["datasets"]
        assert [dataset["dofs"] for dataset in datasets if "dofs" in dataset] == [found]


@pytest.mark.parametrize(
    "words",
    ["--episodes 64", "--episodes -65", "--episodes a", "--episodes 3:3", "--episodes 1::0",
     "--dofs 7", "--dofs elbow"],
)  # fmt: skip
def test_a_selection_that_is_not_there_is_exit_2(trajcli, out, words):
    assert trajcli.refuses(f"inspect out.h5 {words}").err.startswith(f"error: {words.split()[0]}: ")
