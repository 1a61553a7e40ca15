"""Outputs of unequal lengths: every form, written in any blocks, stopped and resumed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from trajcli.errors import OutputError
from trajcli.files.atomic_output import HiddenFolder
from trajcli.files.outputs import Output, open_output
from trajcli.files.schema import Group, Schema, packed_schema, unequal_schema

ROWS = np.array([5, 3, 5, 9, 3, 3, 5, 1])
COUNT, DOFS = len(ROWS), 2
RANDOM = np.random.default_rng(0)
VALUES = [RANDOM.standard_normal((rows, DOFS)).astype("f4") for rows in ROWS]
STEPS = RANDOM.uniform(0.1, 0.2, COUNT)


def schema(pack: bool, shared: bool = False, names: Any = None) -> Schema:
    names = names or [f"data/demo_{i}" for i in range(COUNT)]
    groups = []
    for rows in dict.fromkeys(ROWS.tolist()):
        numbers = np.flatnonzero(rows == ROWS)
        groups.append(Group(rows, [names[i] for i in numbers], numbers))
    longest = packed_schema(
        COUNT, 9, DOFS, wanted=["position", "jerk"], dtype="float32", own_times=not shared,
        attributes={"mode": "jerk"}, start_index=np.arange(COUNT), units="rad",
    )  # fmt: skip
    return unequal_schema(longest, groups, pack)


def times_of(i: int, shared: bool) -> Any:
    return np.arange(ROWS[i]) * (0.5 if shared else STEPS[i])


def fill(output: Output, size: int, shared: bool = False, begin: int = 0) -> Iterator[int]:
    """Write block by block, from a trajectory on; yields how many are done."""
    done = 0
    for k, group in enumerate(output.schema.groups):
        for row in range(0, len(group.names), size):
            some = group.numbers[row : row + size]
            done += len(some)
            if done <= begin:
                continue
            for name, sign in (("position", 1), ("jerk", -1)):
                output.write(name, row, sign * np.stack([VALUES[i] for i in some]), k)
            times = np.stack([times_of(i, shared) for i in some])
            output.write_time(row, len(some), times, k)
            yield done


def make(path: Path, what: Schema, size: int = 2, shared: bool = False, **more: Any) -> bytes:
    with open_output(path, what, True, False, **more) as output:
        for _ in fill(output, size, shared):
            pass
        output.finish()
    assert sorted(path.parent.iterdir()) == [path]
    return path.read_bytes() if path.is_file() else b""


@pytest.mark.parametrize("compress", [None, 3])
def test_every_trajectory_has_a_group_with_its_rows(tmp_path, compress):
    make(tmp_path / "out.h5", schema(False), compress=compress)
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


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", ["out.h5", "out.npz", "out"])
def test_a_padded_array_has_nan_behind_the_rows_and_lengths(tmp_path, name, shared):
    make(tmp_path / name, schema(True, shared), shared=shared)
    names = ("position", "jerk", "time", "lengths", "start_index")
    if name == "out":
        found = {n: np.load(tmp_path / name / f"{n}.npy") for n in names}
    elif name == "out.npz":
        with np.load(tmp_path / name) as file:
            found = {n: file[n] for n in names}
    else:
        with h5py.File(tmp_path / name) as file:
            found = {n: file[n][:] for n in names}
            assert file["position"].dims[1][0] == file["time" if shared else "row"]
    np.testing.assert_array_equal(found["lengths"], ROWS)
    np.testing.assert_array_equal(found["start_index"], np.arange(COUNT))
    if shared:
        np.testing.assert_array_equal(found["time"], times_of(3, True))
    for i, rows in enumerate(ROWS):
        np.testing.assert_array_equal(found["jerk"][i, :rows], -VALUES[i])
        assert np.isnan(found["jerk"][i, rows:]).all()
        if not shared:
            np.testing.assert_array_equal(found["time"][i, :rows], times_of(i, False))


@pytest.mark.parametrize(("pack", "compress"), [(False, None), (False, 1), (True, None)])
def test_bytes_depend_neither_on_blocks_nor_on_where_a_run_was_stopped(tmp_path, pack, compress):
    what = schema(pack)
    path = tmp_path / "out.h5"
    options = {"compress": compress, "identity": "this"}
    expected = make(path, what, **options)
    assert make(path, what, size=1, **options) == expected
    for stop in range(1, COUNT):
        output = open_output(path, what, True, False, resume=True, **options)
        assert output.done == 0
        for done in fill(output, 1):
            if done == stop:
                output.keep(done, {"sum": np.array(done)})
                break
        assert path.read_bytes() == expected
        output = open_output(path, what, True, False, resume=True, **options)
        assert output.done == stop == output.carried["sum"]
        with output:
            assert list(fill(output, 1, begin=stop))[-1] == COUNT
            output.finish()
        assert path.read_bytes() == expected
        assert sorted(tmp_path.iterdir()) == [path]


def test_what_another_run_kept_is_removed(tmp_path):
    output = open_output(tmp_path / "out.h5", schema(False), False, False, "this", compress=1)
    next(fill(output, 1))
    output.keep(1, {})
    assert [p.name for p in tmp_path.iterdir()] == [".out.h5.trajcli-stopped"]
    output = open_output(tmp_path / "out.h5", schema(False), False, False, "that", resume=True)
    assert output.begun_anew
    assert output.done == 0
    output.discard()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("out.npz", {}, "--pack"),
        ("out", {}, "--pack"),
        ("out.npz", {"compress": 3}, "--compress"),
        ("out.h5", {"compress": 10}, "1 to 9"),
    ],
)
def test_other_forms_are_refused_with_a_way_out(tmp_path, name, options, message):
    with pytest.raises(OutputError, match=message):
        open_output(tmp_path / name, schema(False), False, False, **options)
    with pytest.raises(OutputError, match="--pack"):
        open_output(tmp_path / "out.h5", schema(True), False, False, compress=3)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["data/demo_1/inner", "dof", "data/demo_1"])
def test_groups_that_clash_are_refused(tmp_path, name):
    names = [name, *(f"data/demo_{i}" for i in range(1, COUNT))]
    with pytest.raises(OutputError, match="--pack"):
        open_output(tmp_path / "out.h5", schema(False, names=names), False, False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["-", "http://host/out.h5", "s3://bucket/out", "out.npy", "o.csv"])
def test_what_is_no_name_of_an_output_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputError):
        open_output(Path(name), schema(True), False, False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "replaced"), [("b.npy", True), ("notes.txt", False)])
def test_a_folder_that_another_process_makes_last_is_replaced_if_it_is_ours(
    tmp_path, monkeypatch, name, replaced
):
    out, replace = tmp_path / "out", os.replace
    hidden = HiddenFolder(out, overwrite=True, folder=True)
    hidden.make()
    hidden.data.mkdir()
    (hidden.data / "a.npy").touch()

    def late(data: Path, path: Path) -> None:
        path.mkdir()
        for made in ("trajcli.json", name):
            (path / made).touch()
        replace(data, path)

    monkeypatch.setattr(os, "replace", late)
    with contextlib.nullcontext() if replaced else pytest.raises(OutputError, match="notes"):
        hidden.publish()
    hidden.close()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert (out / "a.npy").exists() == replaced
    assert (out / name).exists() != replaced
