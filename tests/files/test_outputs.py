"""Outputs of unequal lengths hold the same in every form, whatever the blocks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from trajcli.errors import OutputError
from trajcli.files.outputs import (
    Description,
    Output,
    Span,
    Variable,
    describe_output,
    row_variable,
    time_variable,
)
from trajcli.files.writing import write

ROWS = np.array([5, 3, 5, 9, 3, 3, 5, 1])
COUNT, DOFS = len(ROWS), 2
RANDOM = np.random.default_rng(0)
VALUES = [RANDOM.standard_normal((rows, DOFS)).astype("f4") for rows in ROWS]
STEPS = RANDOM.uniform(0.1, 0.2, COUNT)


def description(shared: bool = False, names: Any = None) -> Description:
    variables = [
        row_variable("position", "float32", "rad"),
        row_variable("jerk", "float32", "rad/s^3"),
        time_variable(shared),
        Variable("start_index", ("trajectory",), np.dtype("i8"), values=np.arange(COUNT)),
    ]
    return describe_output(
        {rows: np.flatnonzero(rows == ROWS) for rows in ROWS.tolist()},
        {"dof": DOFS},
        variables,
        {"mode": "jerk"},
        names=names or [f"data/demo_{i}" for i in range(COUNT)],
    )


def no_blocks(output: Output) -> None:
    raise AssertionError("the form is looked at before anything is written")


def times_of(i: int, shared: bool) -> Any:
    return np.arange(ROWS[i]) * (0.5 if shared else STEPS[i])


def make(path: Path, what: Description, size: int = 2, shared: bool = False, **more: Any) -> bytes:
    """Writes an output in blocks of so many trajectories; returns its bytes."""

    def blocks(output: Output) -> None:
        for k, group in enumerate(what.groups):
            for row in range(0, len(group.names), size):
                numbers = np.asarray(group.numbers)[row : row + size]
                values = np.stack([VALUES[i] for i in numbers])
                times = np.stack([times_of(i, shared) for i in numbers])
                span = Span(begin=row, end=row + len(numbers), group=k)
                output.write(span, {"time": times, "position": values, "jerk": -values})

    write(path, what, blocks, overwrite=True, **more)
    assert sorted(path.parent.iterdir()) == [path]
    return path.read_bytes()


@pytest.mark.parametrize("compress", [None, 3])
def test_every_trajectory_has_a_group_with_its_rows(tmp_path, compress):
    make(tmp_path / "out.h5", description(), compress=compress)
    with h5py.File(tmp_path / "out.h5") as file:
        for i in range(COUNT):
            group = file[f"data/demo_{i}"]
            np.testing.assert_array_equal(group["position"][:], VALUES[i])
            np.testing.assert_array_equal(group["jerk"][:], -VALUES[i])
            np.testing.assert_array_equal(group["time"][:], times_of(i, False))
            assert group["start_index"][()] == i
            assert group["jerk"].attrs["units"] == "rad/s^3"
            assert group["jerk"].dims[0][0] == group["time"]
            assert group["jerk"].dims[1][0] == group["dof"]
            assert group["position"].compression == ("gzip" if compress else None)


@pytest.mark.parametrize("name", ["out.h5", "out.npz"])
def test_bytes_do_not_depend_on_when_they_are_written(tmp_path, name):
    first = make(tmp_path / name, description())
    time.sleep(1.1)  # HDF5 counts seconds
    assert make(tmp_path / name, description()) == first


def test_an_archive_has_the_same_names_and_values_as_groups(tmp_path):
    for name in ("one/out.h5", "other/out.npz"):
        (tmp_path / name).parent.mkdir()
        make(tmp_path / name, description())
    paths = tmp_path / "one/out.h5", tmp_path / "other/out.npz"
    with h5py.File(paths[0]) as file, np.load(paths[1]) as archive:
        for name in (n for n in archive.files if n != "trajcli.json"):
            np.testing.assert_array_equal(archive[name], file[name][()])
        assert {f"data/demo_{i}/jerk" for i in range(COUNT)} <= set(archive.files)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("out.npy", {}, "OUT.npz"),
        ("out", {}, "OUT.npz"),
        ("out.npz", {"compress": 3}, "--compress"),
        ("out.h5", {"compress": 10}, "1 to 9"),
    ],
)
def test_other_forms_are_refused_with_a_way_out(tmp_path, name, options, message):
    with pytest.raises(OutputError, match=message):
        write(tmp_path / name, description(), no_blocks, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["data/demo_1/inner", "dof", "data/demo_1"])
def test_groups_that_clash_are_refused(tmp_path, name):
    names = [name, *(f"data/demo_{i}" for i in range(1, COUNT))]
    with pytest.raises(OutputError, match="within another"):
        write(tmp_path / "out.h5", description(names=names), no_blocks)
    assert not list(tmp_path.iterdir())
