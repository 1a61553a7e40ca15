"""inspect, modes and info, as a user types them."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


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


def test_a_signalling_nan_is_counted_without_a_warning(trajcli, folder):
    values = np.ones((1, 8, 3), "f4")
    values.view("u4")[0, 2, 1] = 0x7FA00000
    np.save("signal.npy", values)
    result = trajcli("inspect signal.npy --json")
    (dataset,) = result.document["datasets"]
    assert dataset["nan"] == 1
    assert "Warning" not in result.err


@pytest.mark.parametrize("out", ["out.h5", "out.npz", "out.npy"])
def test_inspect_reads_every_kind_of_output(trajcli, folder, out):
    write = "--write jerk" if out == "out.npy" else ""
    assert trajcli(f"integrate actions.npy --start start.npy --dt 1 {write} -o {out}").code == 0
    result = trajcli(f"inspect {out}")
    assert result.code == 0, result.err
    assert "5×11×3" in result.out


def test_inspect_of_a_dataset_or_group_shows_that_alone(trajcli, samples):
    report = trajcli(f"inspect {samples}/reach.h5:start --json").document
    names = [dataset["name"] for dataset in report["datasets"]]
    assert names == ["start/acceleration", "start/position", "start/velocity"]
    report = trajcli(f"inspect {samples}/reach.h5:dt --json").document
    assert [dataset["name"] for dataset in report["datasets"]] == ["dt"]


def test_inspect_of_several_files_is_one_document(trajcli, samples):
    result = trajcli(f"inspect {samples}/start.npy {samples}/accelerations.npy --json")
    assert [Path(f["file"]).name for f in result.document["files"]] == [
        "start.npy",
        "accelerations.npy",
    ]


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


@pytest.mark.parametrize("line", ["inspect none.h5", "inspect start.npy none.h5", "inspect ."])
def test_inspect_of_what_cannot_be_opened_is_exit_2(trajcli, folder, line):
    result = trajcli(line)
    assert result.code == 2
    assert "Traceback" not in result.err
    assert trajcli(f"{line} --json").document["error"]["exit_code"] == 2


def test_odd_units_and_names_are_shown_as_they_are(trajcli, folder):
    with h5py.File("in.h5", "w") as file:
        file["a"] = np.ones((2, 3))
        file["a"].attrs["units"] = np.array([1, 2])
        file["b"] = np.ones((4, 3))
        file["joint_names"] = "only one"
    result = trajcli("inspect in.h5")
    assert result.code == 0, result.err
    assert "[1 2]" in result.out


def test_inspect_works_on_empty_batches(trajcli, folder):
    np.save("none.npy", np.zeros((0, 10, 3)))
    result = trajcli("inspect none.npy")
    assert result.code == 0
    assert "0×10×3" in result.out


def test_modes_lists_every_mode_with_formula_needs_rows_and_options(trajcli):
    from trajcli import MODES

    result = trajcli("modes")
    assert result.code == 0
    listed = trajcli("modes --json").document["modes"]
    assert [mode["name"] for mode in listed] == list(MODES)
    for mode in listed:
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


@pytest.mark.parametrize("columns", ["60", "120"])
def test_a_terminal_gets_a_table_that_fits_and_a_pipe_no_escape_codes(samples, columns):
    command = [sys.executable, "-m", "trajcli", "inspect", str(samples / "reach.h5")]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": columns, "TERM": "xterm-256color"}
    env.pop("NO_COLOR", None)
    piped = subprocess.run(command, capture_output=True, env=env, check=True).stdout
    assert b"\x1b" not in piped
    parent, child = pty.openpty()
    with subprocess.Popen(command, stdout=child, stderr=child, stdin=child, env=env) as process:
        os.close(child)
        shown = b""
        while True:
            try:
                piece = os.read(parent, 65536)
            except OSError:
                break
            if not piece:
                break
            shown += piece
    os.close(parent)
    assert process.returncode == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())
    table = [line for line in plain.splitlines() if "─" in line]
    assert table
    assert all(len(line) <= int(columns) for line in table)


def test_a_closed_pipe_is_no_error(samples):
    line = f'"{sys.executable}" -m trajcli inspect "{samples}/reach.h5" | head -1'
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=env)
    assert "Traceback" not in run.stderr
    assert run.stderr == ""


def test_a_bug_is_exit_70_without_a_traceback(trajcli, monkeypatch, folder):
    from trajcli.jobs import run

    def broken(*_: object) -> None:
        raise ZeroDivisionError("of course")

    monkeypatch.setattr(run, "make_plan", broken)
    line = "integrate actions.npy --start zero --dt 1 -o out.h5"
    result = trajcli(line)
    assert result.code == 70
    assert "Traceback" not in result.err
    assert "of course" in result.err
    monkeypatch.setenv("TRAJCLI_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        trajcli(line)


def test_of_a_small_file_every_value_is_looked_at(trajcli, folder):
    with h5py.File("in.h5", "w") as file:
        for k in range(5):
            file[f"data/demo_{k}/robot0_joint_pos"] = np.full((10 + k, 7), -1.0 * (k == 1))
    report = trajcli("inspect in.h5 --json").document
    (found,) = report["datasets"]
    assert (found["min"], found["max"]) == (-1.0, 0.0)
    assert not report["sampled"]


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


def test_arrays_without_dofs_are_not_exported_or_drawn(trajcli, folder):
    with h5py.File("in.h5", "w") as file:
        file["actions"] = np.zeros((2, 5, 0))
    for out in ("out.csv", "out.npz", "out.h5", "out.png"):
        result = trajcli(f"{'plot' if out == 'out.png' else 'export'} in.h5 -o {out}")
        assert result.code == 2, out
        assert "[2, 5, 0]" in result.err
        assert not Path(out).exists()


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


def test_durations_of_a_sample_are_called_sampled_and_those_of_full_are_not(trajcli, folder):
    with h5py.File("in.h5", "w") as file:
        for n in range(4100):
            file[f"data/demo_{n}/actions"] = np.zeros((2, 1), "f4")
            file[f"data/demo_{n}"].attrs["dt"] = 0.1 if n % 3 != 1 else 0.3
    for line, longest in (("inspect in.h5", 0.1), ("inspect in.h5 --full", 0.3)):
        found = trajcli(f"{line} --json").document["trajectories"]
        assert found["duration"] == pytest.approx([0.1, longest])
        assert found["sampled"] is (longest == 0.1)
        assert ("sampled" in trajcli(line).out) is (longest == 0.1)


def test_groups_of_any_names_are_counted_as_integrate_counts_them(trajcli, folder):
    with h5py.File("in.h5", "w") as file:
        for name, rows in (("left", 20), ("right", 30)):
            file[f"{name}/actions"] = np.full((rows, 2), rows)
        file.attrs["dt"] = 0.1
    plan = trajcli("integrate in.h5 --start zero --dry-run -o out.h5 --json").document
    found = trajcli("inspect in.h5 --json").document
    assert found["trajectories"]["count"] == plan["shape"]["trajectories"] == 2
    assert found["trajectories"]["rows"] == [20, 30]
    assert found["trajectories"]["duration"] == pytest.approx([1.9, 2.9])
    assert trajcli("inspect in.h5").out.splitlines()[1].startswith("  2 trajectories of 20 to 30")
    found = trajcli("inspect in.h5 --episodes 1 --json").document
    assert found["trajectories"]["shown"] == ["right"]
    largest = {one["name"]: one["max"] for one in found["datasets"]}
    assert largest == {"left/actions": None, "right/actions": 30}


def test_the_durations_of_the_first_sample_are_those_of_its_steps(trajcli, samples, folder):
    line = f"integrate {samples}/reach.h5 --mode jerk --scheme zoh -o out.h5"
    assert trajcli(line).code == 0
    with h5py.File("out.h5") as file:
        seconds = file["time"][:, -1] - file["time"][:, 0]
    found = trajcli("inspect out.h5 --json").document["trajectories"]
    assert found["duration"] == [seconds.min(), seconds.max()]
    assert f"{seconds.min():.4g} to {seconds.max():.4g} s" in trajcli("inspect out.h5").out
