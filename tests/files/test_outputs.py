"""Outputs of unequal lengths: every form, written in any blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from trajcli.errors import OutputError
from trajcli.files.schema import Group, Schema, packed_schema, unequal_schema
from trajcli.files.writing import open_output

ROWS = np.array([5, 3, 5, 9, 3, 3, 5, 1])
COUNT, DOFS = len(ROWS), 2
RANDOM = np.random.default_rng(0)
VALUES = [RANDOM.standard_normal((rows, DOFS)).astype("f4") for rows in ROWS]
STEPS = RANDOM.uniform(0.1, 0.2, COUNT)


def schema(shared: bool = False, names: Any = None) -> Schema:
    names = names or [f"data/demo_{i}" for i in range(COUNT)]
    groups = []
    for rows in dict.fromkeys(ROWS.tolist()):
        numbers = np.flatnonzero(rows == ROWS)
        groups.append(Group(rows, [names[i] for i in numbers], numbers))
    longest = packed_schema(
        COUNT, 9, DOFS, wanted=["position", "jerk"], dtype="float32", own_times=not shared,
        attributes={"mode": "jerk"}, start_index=np.arange(COUNT), units="rad",
    )  # fmt: skip
    return unequal_schema(longest, groups)


def times_of(i: int, shared: bool) -> Any:
    return np.arange(ROWS[i]) * (0.5 if shared else STEPS[i])


def make(path: Path, what: Schema, size: int = 2, shared: bool = False, **more: Any) -> bytes:
    """Write an output in blocks of so many trajectories; its bytes."""
    with open_output(path, what, True, **more) as output:
        for k, group in enumerate(what.groups):
            for row in range(0, len(group.names), size):
                some = group.numbers[row : row + size]
                for name, sign in (("position", 1), ("jerk", -1)):
                    output.write(name, row, sign * np.stack([VALUES[i] for i in some]), k)
                times = np.stack([times_of(i, shared) for i in some])
                output.write_time(row, len(some), times, k)
        output.finish()
    assert sorted(path.parent.iterdir()) == [path]
    return path.read_bytes()


@pytest.mark.parametrize("compress", [None, 3])
def test_every_trajectory_has_a_group_with_its_rows(tmp_path, compress):
    make(tmp_path / "out.h5", schema(), compress=compress)
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


def test_an_archive_has_the_same_names_and_values_as_groups(tmp_path):
    for name in ("one/out.h5", "other/out.npz"):
        (tmp_path / name).parent.mkdir()
        make(tmp_path / name, schema())
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
        open_output(tmp_path / name, schema(), False, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["data/demo_1/inner", "dof", "data/demo_1"])
def test_groups_that_clash_are_refused(tmp_path, name):
    names = [name, *(f"data/demo_{i}" for i in range(1, COUNT))]
    with pytest.raises(OutputError, match="within another"):
        open_output(tmp_path / "out.h5", schema(names=names), False)
    assert not list(tmp_path.iterdir())
