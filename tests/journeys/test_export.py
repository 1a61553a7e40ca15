"""trajcli export: read back by those the files are for."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys

import h5py
import numpy as np
import pytest
from journeys.arrays import close, same, write_h5


def read_csv(path: str) -> tuple[list[str], list[list[str]]]:
    with open(path, newline="", encoding="utf-8") as file:
        head, *rows = list(csv.reader(file))
    return head, rows


def test_a_csv_has_a_column_for_each_quantity_and_joint(trajcli, samples, folder):
    line = "--mode bspline --dtype float32 -o out.h5"
    trajcli.ok(f"integrate {samples}/control_points.npz {line}")
    trajcli.ok("export out.h5 --episodes 3 -o out.csv")
    head, rows = read_csv("out.csv")
    rows = np.array(rows, dtype=np.float64)
    names = [f"panda_joint{n}" for n in range(1, 8)]
    quantities = ("position", "velocity", "acceleration", "jerk")
    assert head == ["t (s)", *(f"{q}/{n}" for q in quantities for n in names)]
    with h5py.File("out.h5") as file:
        same(rows[:, 0], file["time"][:])
        for i, quantity in enumerate(quantities):
            stored = file[quantity][3]
            back = rows[:, 1 + 7 * i : 8 + 7 * i].astype(np.float32)
            same(back, stored)  # every digit
    assert np.all(np.diff(rows[:, 0]) > 0)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_holds_trajectories_of_different_length(trajcli, folder, kind):
    recordings = [np.random.default_rng(n).standard_normal((n, 2)) for n in (4, 11, 5)]
    arrays = {"joint_names": ["hip", "knee"]}
    for n, rows in enumerate(recordings):
        arrays[f"data/demo_{n}/position"] = rows
        arrays[f"data/demo_{n}/position@units"] = "rad,m"
        arrays[f"data/demo_{n}/time"] = 0.1 * (n + 1) * np.arange(len(rows))
    write_h5("demos.h5", arrays)
    trajcli.ok(f"export demos.h5 -o out.{kind}")
    columns = ["trajectory", "t", "position/hip", "position/knee"]
    if kind == "csv":
        head, rows = read_csv("out.csv")
        assert head == ["trajectory", "t (s)", "position/hip (rad)", "position/knee (m)"]
    else:
        table = pytest.importorskip("pyarrow.parquet").read_table("out.parquet")
        assert table.column_names == columns
        assert str(table.schema.field("position/hip").type) == "double"
        rows = list(zip(*(table[name].to_pylist() for name in columns), strict=True))
    names = [f"data/demo_{n}" for n, values in enumerate(recordings) for _ in values]
    assert [row[0] for row in rows] == names
    numbers = np.array([row[1:] for row in rows], dtype=np.float64)
    same(numbers[:, 1:], np.concatenate(recordings))
    same(numbers[4:15, 0], 0.1 * 2 * np.arange(11))


def test_names_in_a_csv_are_neither_formulas_nor_control_characters(trajcli, folder):
    joints = ["=HYPERLINK(1)", "b\x1b[2J\r\u202e"]
    write_h5("in.h5", {"=1+1": -1.5 * np.ones((2, 4, 2))}, joint_names=joints)
    trajcli.ok("export in.h5:=1+1 --episodes 0 -o out.csv")
    head, rows = read_csv("out.csv")
    assert head == ["row", "'=1+1/=HYPERLINK(1)", "'=1+1/b\\x1b[2J\\r\\u202e"]
    assert {value for row in rows for value in row[1:]} == {"-1.5"}
    with h5py.File("demos.h5", "w") as file:
        for n in range(2):
            file[f"@sum_{n}\x07/position"] = np.full((1, 1), -2.5)
    trajcli.ok("export demos.h5 -o demos.csv")
    _, rows = read_csv("demos.csv")
    assert [row[0] for row in rows] == ["'@sum_0\\x07", "'@sum_1\\x07"]
    assert {row[2] for row in rows} == {"-2.5"}


def test_an_rrd_opens_and_holds_the_numbers(trajcli, samples, folder):
    pytest.importorskip("rerun")
    reader = pytest.importorskip("rerun.chunk").RrdReader
    trajcli.ok(f"export {samples}/reach.h5:reference --episodes 3,7 --dofs 1 -o out.rrd")
    seen = {}
    for chunk in reader("out.rrd").stream().to_chunks():
        batch = chunk.to_record_batch()
        columns = [name for name in batch.schema.names if name.endswith("Scalars:scalars")]
        if chunk.is_static or not columns:
            continue
        assert chunk.timeline_names == ["time"]
        assert str(batch.schema.field("time").type) == "duration[ns]"
        values = np.array([value[0] for value in batch[columns[0]].to_pylist()])
        times = np.array([t.total_seconds() for t in batch["time"].to_pylist()])
        seen[str(chunk.entity_path)] = (times, values)
    names = {f"/trajectory_{n}/{q}/panda_joint2" for n in (3, 7)
             for q in ("position", "velocity", "acceleration")}  # fmt: skip
    assert set(seen) == names
    with h5py.File(samples / "reach.h5") as file:
        times, values = seen["/trajectory_7/velocity/panda_joint2"]
        same(values, file["reference/velocity"][7, :, 1])
        close(times, np.concatenate([[0], np.cumsum(file["dt"][7])]), atol=1e-6)


def test_the_viewers_own_check_accepts_an_rrd(trajcli, samples, folder):
    pytest.importorskip("rerun")
    command = shutil.which("rerun", path=os.path.dirname(sys.executable))
    if command is None:
        pytest.skip("the viewer is not installed")
    trajcli.ok(f"export {samples}/recorded.h5 -o out.rrd")
    env = {**os.environ, "HOME": str(folder), "RERUN_ANALYTICS": "0"}
    check = subprocess.run([command, "rrd", "verify", "out.rrd"], capture_output=True, env=env)
    assert check.returncode == 0, check.stderr
