"""trajcli export: read back by those the files are for."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest


@pytest.fixture
def plans(trajcli, samples, tmp_path, monkeypatch) -> Path:
    """An output whose trajectories share their times, in the current folder."""
    monkeypatch.chdir(tmp_path)
    job = f"integrate {samples}/control_points.npz --mode bspline --dtype float32 -o out.h5"
    assert trajcli(job).code == 0
    return tmp_path / "out.h5"


def read_csv(path: str) -> tuple[list[str], np.ndarray]:
    with open(path, newline="", encoding="utf-8") as file:
        head, *rows = list(csv.reader(file))
    return head, np.array(rows, dtype=np.float64)


def test_a_csv_has_t_and_a_column_for_each_quantity_and_joint(trajcli, plans):
    assert trajcli("export out.h5 --episodes 3 -o out.csv").code == 0
    head, rows = read_csv("out.csv")
    names = [f"panda_joint{n}" for n in range(1, 8)]
    quantities = ("position", "velocity", "acceleration", "jerk")
    assert head == ["t (s)", *(f"{q}/{n}" for q in quantities for n in names)]
    with h5py.File(plans) as file:
        np.testing.assert_array_equal(rows[:, 0], file["time"][:])
        for i, quantity in enumerate(quantities):
            stored = file[quantity][3]
            back = rows[:, 1 + 7 * i : 8 + 7 * i].astype(np.float32)
            np.testing.assert_array_equal(back, stored)  # every digit
    assert np.all(np.diff(rows[:, 0]) > 0)


@pytest.fixture
def demos(folder) -> list[np.ndarray]:
    """demos.h5: three recordings of different length and step."""
    values = [np.random.default_rng(n).standard_normal((n, 2)) for n in (4, 11, 5)]
    with h5py.File("demos.h5", "w") as file:
        for n, rows in enumerate(values):
            file[f"data/demo_{n}/position"] = rows
            file[f"data/demo_{n}/position"].attrs["units"] = "rad,m"
            file[f"data/demo_{n}/time"] = 0.1 * (n + 1) * np.arange(len(rows))
        file["joint_names"] = ["hip", "knee"]
    return values


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_holds_trajectories_of_different_length(trajcli, demos, kind):
    assert trajcli(f"export demos.h5 -o out.{kind}").code == 0
    columns = ["trajectory", "t", "position/hip", "position/knee"]
    if kind == "csv":
        with open("out.csv", newline="") as file:
            head, *rows = list(csv.reader(file))
        assert head == ["trajectory", "t (s)", "position/hip (rad)", "position/knee (m)"]
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        table = parquet.read_table("out.parquet")
        assert table.column_names == columns
        assert str(table.schema.field("position/hip").type) == "double"
        rows = list(zip(*(table[name].to_pylist() for name in columns), strict=True))
    names = [f"data/demo_{n}" for n, values in enumerate(demos) for _ in values]
    assert [row[0] for row in rows] == names
    numbers = np.array([row[1:] for row in rows], dtype=np.float64)
    np.testing.assert_array_equal(numbers[:, 1:], np.concatenate(demos))
    np.testing.assert_array_equal(numbers[4:15, 0], 0.1 * 2 * np.arange(11))


def test_hdf5_keeps_trajectories_of_different_length_apart(trajcli, demos):
    assert trajcli("export demos.h5 --episodes 2,1 --dofs knee -o out.h5").code == 0
    with h5py.File("out.h5") as file:
        for n in (1, 2):
            np.testing.assert_array_equal(file[f"data/demo_{n}/position"], demos[n][:, 1:])
        np.testing.assert_allclose(file["data/demo_2/time"], 0.3 * np.arange(5), rtol=1e-15)
    assert trajcli("inspect out.h5").code == 0
    assert trajcli("diff out.h5:data/demo_1/position demos.h5:data/demo_1/position[1:]").code == 0


def test_names_in_a_csv_are_neither_formulas_nor_control_characters(trajcli, folder):
    with h5py.File("in.h5", "w") as file:
        file["=1+1"] = -1.5 * np.ones((2, 4, 2))
        file["joint_names"] = ["=HYPERLINK(1)", "b\x1b[2J\r\u202e"]
    assert trajcli("export in.h5:=1+1 --episodes 0 -o out.csv").code == 0
    head, rows = read_csv("out.csv")
    assert head == ["row", "'=1+1/=HYPERLINK(1)", "'=1+1/b\\x1b[2J\\r\\u202e"]
    assert (rows[:, 1:] == -1.5).all()
    assert "-1.5" in Path("out.csv").read_text()
    with h5py.File("demos.h5", "w") as file:
        for n in range(2):
            file[f"@sum_{n}\x07/position"] = np.full((1, 1), -2.5)
    assert trajcli("export demos.h5 -o demos.csv").code == 0
    with open("demos.csv", newline="") as file:
        _, *rows = list(csv.reader(file))
    assert [row[0] for row in rows] == ["'@sum_0\\x07", "'@sum_1\\x07"]
    assert {row[2] for row in rows} == {"-2.5"}


def test_an_npz_holds_the_same_numbers_and_type(trajcli, plans):
    assert trajcli("export out.h5 --episodes 2:5 --dofs 0,6 -o out.npz").code == 0
    with h5py.File(plans) as file, np.load("out.npz") as archive:
        for name in ("position", "velocity", "acceleration", "jerk"):
            assert archive[name].dtype == np.float32
            np.testing.assert_array_equal(archive[name], file[name][2:5][:, :, [0, 6]])
        np.testing.assert_array_equal(archive["time"], file["time"])
    report = trajcli("inspect out.npz --json").document
    assert report["joint_names"] == ["panda_joint1", "panda_joint7"]


def test_an_rrd_opens_and_holds_the_numbers_on_a_duration_time_line(trajcli, samples, folder):
    pytest.importorskip("rerun")
    reader = pytest.importorskip("rerun.chunk").RrdReader
    line = f"export {samples}/reach.h5:reference --episodes 3,7 --dofs 1 -o out.rrd"
    assert trajcli(line).code == 0
    seen = {}
    for chunk in reader("out.rrd").stream().to_chunks():
        path = str(chunk.entity_path)
        if chunk.is_static or "Scalars:scalars" not in "".join(
            chunk.to_record_batch().schema.names
        ):
            continue
        batch = chunk.to_record_batch()
        column = next(n for n in batch.schema.names if n.endswith("Scalars:scalars"))
        assert chunk.timeline_names == ["time"]
        assert str(batch.schema.field("time").type) == "duration[ns]"
        values = np.array([value[0] for value in batch[column].to_pylist()])
        times = np.array([t.total_seconds() for t in batch["time"].to_pylist()])
        seen[path] = (times, values)
    names = {f"/trajectory_{n}/{q}/panda_joint2" for n in (3, 7)
             for q in ("position", "velocity", "acceleration")}  # fmt: skip
    assert set(seen) == names
    with h5py.File(samples / "reach.h5") as file:
        times, values = seen["/trajectory_7/velocity/panda_joint2"]
        np.testing.assert_array_equal(values, file["reference/velocity"][7, :, 1])
        stamps = np.concatenate([[0], np.cumsum(file["dt"][7])])
        np.testing.assert_allclose(times, stamps, atol=1e-6)


def test_the_viewers_own_check_accepts_an_rrd(trajcli, samples, folder):
    pytest.importorskip("rerun")
    command = shutil.which("rerun", path=os.path.dirname(sys.executable))
    if command is None:
        pytest.skip("the viewer is not installed")
    assert trajcli(f"export {samples}/recorded.h5 -o out.rrd").code == 0
    env = {**os.environ, "HOME": str(folder), "RERUN_ANALYTICS": "0"}
    check = subprocess.run([command, "rrd", "verify", "out.rrd"], capture_output=True, env=env)
    assert check.returncode == 0, check.stderr


def test_without_rerun_the_line_that_installs_it_is_printed(trajcli, samples, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "rerun", None)
    result = trajcli(f"export {samples}/recorded.h5 -o out.rrd")
    assert result.code == 2
    assert "try:      pip install rerun-sdk\n" in result.err
    assert not Path("out.rrd").exists()


@pytest.mark.parametrize("kind", ["csv", "npz", "h5"])
def test_an_existing_file_is_kept_unless_told_and_an_input_always(trajcli, folder, kind):
    np.save("in.npy", np.ones((1, 4, 2)))
    Path(f"out.{kind}").write_bytes(b"mine")
    assert trajcli(f"export in.npy -o out.{kind}").code == 2
    assert Path(f"out.{kind}").read_bytes() == b"mine"
    assert trajcli(f"export in.npy -o out.{kind} --overwrite").code == 0
    assert Path(f"out.{kind}").read_bytes() != b"mine"
    assert trajcli("export in.npy -o in.npy --overwrite").code == 2
    assert np.load("in.npy").shape == (1, 4, 2)
    assert not [path for path in Path().iterdir() if path.name.startswith(".")]


def test_trajectories_of_different_length_are_arrays_of_their_own(trajcli, demos):
    assert trajcli("export demos.h5 -o out.npz").code == 0
    with np.load("out.npz") as archive:
        for k, values in enumerate(demos):
            np.testing.assert_array_equal(archive[f"data/demo_{k}/position"], values)
        np.testing.assert_allclose(archive["data/demo_2/time"], 0.3 * np.arange(5), rtol=1e-15)
    assert trajcli("check out.npz --json").document["checks"][0]["trajectories"] == 3
