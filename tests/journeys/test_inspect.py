"""inspect, modes and info, as a user types them."""

from __future__ import annotations

import re

import h5py
import numpy as np
import pytest


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
    assert actions["shape"] == [5, 10, 3]
    assert actions["dtype"] == "float32"
    assert actions["units"] == "rad/s^2"
    assert "gzip" in actions["storage"]
    assert (actions["nan"], actions["inf"]) == (0, 0)
    for i, dof in enumerate(actions["per_dof"]):
        assert dof["min"] == values[..., i].min()
        assert dof["max"] == values[..., i].max()
        assert dof["peak"] == np.abs(values[..., i]).max()
    assert table["count"]["max"] == 7
    result = trajcli("inspect in.h5")
    assert result.code == 0
    for text in ("5×10×3", "float32", "gzip", "rad/s^2", "robot = panda", "peak"):
        assert text in result.out
    assert re.search(rf"^\s*b\s.*{np.abs(values[..., 1]).max():.4g}", result.out, re.MULTILINE)


def test_inspect_counts_nan_and_inf_and_keeps_them_out_of_ranges(trajcli, folder):
    values = np.load("actions.npy")
    values[2, 3, 1], values[0, 0, 1], values[1, 1, 2] = np.nan, np.inf, -np.inf
    np.save("bad.npy", values)
    report = trajcli("inspect bad.npy --json").document
    (dataset,) = report["datasets"]
    assert (dataset["nan"], dataset["inf"]) == (1, 2)
    finite = values[..., 1][np.isfinite(values[..., 1])]
    assert {k: dataset["per_dof"][1][k] for k in ("min", "max", "peak")} == {
        "min": finite.min(),
        "max": finite.max(),
        "peak": np.abs(finite).max(),
    }
    assert dataset["nonfinite_at"] == [
        {"trajectory": 0, "row": 0, "dof": 1},
        {"trajectory": 1, "row": 1, "dof": 2},
        {"trajectory": 2, "row": 3, "dof": 1},
    ]
    assert "trajectory 2, row 3, dof 1" in trajcli("inspect bad.npy").out


def test_inspect_lists_what_it_will_not_read_with_the_reason(trajcli, folder):
    with h5py.File("other.h5", "w") as file:
        file["x"] = np.ones(3)
    with h5py.File("in.h5", "w") as file:
        file["good"] = np.ones(3)
        file.create_dataset("vast", (10**6, 10**6), "f8", chunks=(1, 1000))
        file.create_dataset("outside", (3,), "f8", external=[("other.bin", 0, 24)])
        file["link"] = h5py.ExternalLink("other.h5", "/x")
    result = trajcli("inspect in.h5")
    assert result.code == 0, result.err
    assert "declares more than the file holds" in result.out
    assert "leads out of the file" in result.out
    report = trajcli("inspect in.h5 --json").document
    readable = {d["name"]: "unreadable" not in d for d in report["datasets"]}
    assert readable == {"good": True, "vast": False, "outside": False}


def test_modes_lists_every_mode_with_formula_needs_rows_and_options(trajcli):
    from trajcli.modes import ALIASES, MODES

    result = trajcli("modes")
    assert result.code == 0
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

    def broken(*_: object) -> None:
        raise ZeroDivisionError("of course")

    monkeypatch.setattr(run, "Plan", broken)
    line = "integrate actions.npy --start zero --dt 1 -o out.h5"
    result = trajcli(line)
    assert result.code == 70
    assert "Traceback" not in result.err
    assert "of course" in result.err
    monkeypatch.setenv("TRAJCLI_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        trajcli(line)


def test_a_wrong_number_of_steps_stands_in_place_of_dt(trajcli, folder):
    with h5py.File("in.h5", "w") as file:
        file["actions"] = np.zeros((3, 6, 2))
        file["dt"] = np.full(17, 0.1)
    report = trajcli("inspect in.h5 --json").document
    assert report["dt"]["value"] is None
    assert "wrong number of steps, [17]" in report["dt"]["source"]
    assert "rate" not in report["trajectories"]
    for line in ("export in.h5 -o out.npz", "export in.h5 -o out.csv", "plot in.h5 -o out.png"):
        result = trajcli(line)
        assert result.code == 2, line
        assert "in.h5:/dt: wrong number of steps" in result.err


@pytest.mark.parametrize("kind", ["padded", "groups", "shared"])
def test_durations_and_steps_are_those_of_all_trajectories(trajcli, folder, kind):
    steps = np.full((150, 9), 0.1)
    steps[149] = 0.4
    steps[75] = 0.01
    steps[[77, 77], [3, 4]] = [0.05, 0.15]
    times = np.concatenate([np.zeros((150, 1)), steps.cumsum(1)], 1)
    with h5py.File("in.h5", "w") as file:
        if kind == "groups":
            for n in range(150):
                file[f"data/demo_{n}/position"] = np.zeros((10, 2))
                file[f"data/demo_{n}/time"] = times[n]
        else:
            file["position"] = np.zeros((150, 10, 2))
            file["times"] = times if kind == "padded" else times[149]
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
    with h5py.File("in.h5", "w") as file:
        for n in range(4100):
            file[f"data/demo_{n}/actions"] = np.zeros((2, 1), "f4")
            file[f"data/demo_{n}"].attrs["dt"] = 0.1 if n % 3 != 1 else 0.3
    found = trajcli("inspect in.h5 --json").document["trajectories"]
    assert found["duration"] == pytest.approx([0.1, 0.1])
    assert found["sampled"]


@pytest.mark.parametrize("out", ["out.h5", "out.npz", "out.npy"])
def test_inspect_reads_every_kind_of_output(trajcli, folder, out):
    write = "--write jerk" if out == "out.npy" else ""
    assert trajcli(f"integrate actions.npy --start start.npy --dt 1 {write} -o {out}").code == 0
    result = trajcli(f"inspect {out}")
    assert result.code == 0, result.err
    assert "5×11×3" in result.out


@pytest.mark.parametrize("option", ["--times none.h5:x", "--dt none.h5:x", "--rate 0"])
def test_times_that_cannot_be_used_are_an_error(trajcli, folder, option):
    result = trajcli(f"inspect actions.npy {option}")
    assert (result.code, "error" in result.err) == (2, True)
