"""What integrate returns: it unpacks, shows itself in a line, is saved and read back."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import trajcli
from trajcli.inputs import LateTimes
from trajcli.modes import make_mode

ACTIONS = np.random.default_rng(0).normal(size=(3, 8, 2)).astype(np.float32)


@pytest.mark.parametrize("name", ["out.h5", "out.npz"])
@pytest.mark.parametrize("dt", [0.02, np.linspace(0.01, 0.02, 24).reshape(3, 8)])
def test_what_was_saved_is_read_back(tmp_path: Path, name: str, dt: Any) -> None:
    made = trajcli.integrate(ACTIONS, "zero", dt, "jerk", scheme="zoh")
    made.save(tmp_path / name)
    read = trajcli.load(tmp_path / name)
    for a, b in zip([*made, made.time], [*read, read.time], strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert (read.mode, dict(read.options)) == ("jerk", dict(made.options))


def test_outputs_outside_write_are_none_and_absent_in_files(
    tmp_path: Path,
) -> None:
    made = trajcli.integrate(torch.from_numpy(ACTIONS), "zero", 0.02, write=["velocity"])
    p, v, a, j = made
    assert p is a is j is None
    made.save(tmp_path / "out.h5")
    assert list(trajcli.load(tmp_path / "out.h5").outputs()) == ["velocity"]
    assert v is made.velocity


def test_an_existing_file_is_kept_unless_it_may_be_overwritten(tmp_path: Path) -> None:
    made = trajcli.integrate(ACTIONS, "zero", 0.02)
    made.save(tmp_path / "out.h5")
    with pytest.raises(trajcli.OutputError, match="exists"):
        made.save(tmp_path / "out.h5")
    made.save(tmp_path / "out.h5", overwrite=True)


def test_a_file_without_trajectories_is_refused_with_what_is_in_it(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", actions=ACTIONS)
    with pytest.raises(trajcli.InputError, match="actions"):
        trajcli.load(tmp_path / "a.npz")


def test_xarray_gets_its_dimensions_and_times() -> None:
    pytest.importorskip("xarray")
    made = trajcli.integrate(ACTIONS, "zero", 0.02)
    data = made.to_xarray()
    assert dict(data.sizes) == {"trajectory": 3, "time": 9, "dof": 2}
    np.testing.assert_array_equal(data.position.sel(time=data.time[-1]), made.position[:, -1])
    dataset = trajcli.integrate(ACTIONS, "zero", np.full((3, 8), 0.02)).to_xarray()
    assert dataset.time.dims == ("trajectory", "row")


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy])
@pytest.mark.parametrize(("batch", "page"), [(1000, 4 << 10), (6000, 2 << 20)])
def test_large_outputs_begin_at_pages_that_no_other_call_writes_to(
    convert: Any, batch: int, page: int
) -> None:
    inputs = np.random.default_rng(1).normal(size=(3, batch, 8, 7)).astype(np.float32)
    want = [[x.copy() for x in trajcli.integrate(u, "zero", 0.02)] for u in inputs]
    for _ in range(3):  # memory that was freed is used again
        made = [trajcli.integrate(convert(u), "zero", 0.02) for u in inputs]
        for trajectory, parts in zip(made, want, strict=True):
            for x, part in zip(trajectory, parts, strict=True):
                assert np.asarray(x).ctypes.data % page == 0
                np.testing.assert_array_equal(x, part)
        del made


def test_times_that_are_computed_when_they_are_looked_at_are_times() -> None:
    """As those of tensors on a device are."""
    made = trajcli.integrate(torch.from_numpy(ACTIONS), "zero", 0.02)
    times = LateTimes(make_mode("acceleration"), 8, False, 0.02, "cpu")

    def late() -> trajcli.Trajectory:
        return replace(made, time=times)

    assert repr(late()) == repr(made)
    pickled = pickle.loads(pickle.dumps(late()))
    for same in (late(), copy.copy(late()), copy.deepcopy(late()), replace(late()), pickled):
        assert torch.equal(same.time, made.time)
    first = late()
    assert first.time is first.time
    with pytest.raises(AttributeError, match="no attribute 'times'"):
        first.times  # noqa: B018
