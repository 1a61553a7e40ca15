"""Many small files: those alike are opened once, and read as if each had been."""

from __future__ import annotations

import resource
from pathlib import Path

import h5py
import numpy as np
import pytest

from trajcli.files.alike import AlikeFile
from trajcli.files.opening import open_arrays
from trajcli.files.source import Source
from trajcli.jobs.places import Files

RANDOM = np.random.default_rng(0)


def write(name: str, steps: int = 20, rate: float = 50.0, big: bool = False) -> None:
    """A file of actions, a start state, a dt and attributes; values at random."""
    if name.endswith(".npy"):
        kind = ">f8" if big else "f4"
        np.save(name, RANDOM.standard_normal((steps, 3)).astype(kind))
        return
    with h5py.File(name, "w") as file:
        file["actions"] = RANDOM.standard_normal((steps, 3)).astype(">f8" if big else "f4")
        file["start/position"] = RANDOM.standard_normal(3)
        file["packed"] = np.zeros(0)
        file.create_dataset("chunked", data=np.arange(6.0), chunks=(2,), compression=1)
        file["dt"] = 1 / rate
        file["actions"].attrs["units"] = "rad"
        file.attrs["rate"] = rate


@pytest.fixture
def opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = Files()

    def all_of(*names: str):
        return [files.open(Source(Path(name))) for name in names]

    yield all_of
    files.close()


@pytest.mark.parametrize("ending", ["h5", "npy"])
@pytest.mark.parametrize("big", [False, True])
def test_files_that_differ_in_values_are_opened_once_and_read_each(opened, ending, big):
    names = [f"in_{k}.{ending}" for k in range(5)]
    for name in names:
        write(name, big=big)
    found = opened(*names)
    assert [isinstance(file, AlikeFile) for file in found] == [False, False, True, True, True]
    for name, file in zip(names, found, strict=True):
        with open_arrays(Path(name)) as alone:
            assert file.names() == alone.names()
            assert dict(file.attributes()) == dict(alone.attributes())
            assert file.children() == alone.children()
            assert file.has_group("start") == alone.has_group("start")
            assert file.get("nothing") is None
            for each in alone.names():
                one, other = file.require(each), alone.require(each)
                assert one.where == other.where
                assert (one.shape, one.dtype) == (other.shape, other.dtype)
                assert dict(one.attributes) == dict(other.attributes)
                np.testing.assert_array_equal(one.read(), other.read())
            first = "actions" if ending == "h5" else ""
            steps = (
                file.require(first).read_part(3, 9, 1, 2),
                alone.require(first).read()[3:9, 1:2],
            )
            np.testing.assert_array_equal(*steps)


def test_files_of_other_lengths_types_or_attributes_are_told_apart(opened):
    write("a.h5")
    write("b.h5")
    write("longer.h5", steps=21)
    write("typed.h5", big=True)
    write("rated.h5", rate=51.0)
    found = opened("a.h5", "b.h5", "longer.h5", "typed.h5", "rated.h5")
    assert not any(isinstance(file, AlikeFile) for file in found)
    assert found[2].require("actions").shape == (21, 3)
    assert found[4].attributes()["rate"] == 51.0


def test_a_file_cut_short_between_looking_and_reading_is_an_error(opened):
    for k in range(3):
        write(f"in_{k}.npy")
    stored = opened("in_0.npy", "in_1.npy", "in_2.npy")[2].require("")
    with open("in_2.npy", "r+b") as file:
        file.truncate(200)
    with pytest.raises(ValueError, match="became shorter"):
        stored.read()


def test_a_missing_or_empty_file_among_many_is_named(opened):
    for k in range(3):
        write(f"in_{k}.h5")
    opened("in_0.h5", "in_1.h5", "in_2.h5")
    with pytest.raises(ValueError, match=r"gone\.h5"):
        opened("gone.h5")
    Path("empty.h5").touch()
    with pytest.raises(ValueError, match=r"empty\.h5"):
        opened("empty.h5")


def test_many_numbers_of_files_alike_are_each_their_own(opened):
    for k in range(3):
        with h5py.File(f"in_{k}.h5", "w") as file:
            for n in range(20):
                file[f"number_{n}"] = RANDOM.standard_normal()
                file[f"none_{n}"] = np.zeros((0, 3))
    found = opened("in_0.h5", "in_1.h5", "in_2.h5")[2]
    assert isinstance(found, AlikeFile)
    with h5py.File("in_2.h5") as file:
        for name in file:
            np.testing.assert_array_equal(found.require(name).read(), file[name][()])


@pytest.mark.parametrize("shape", [(4, 2000, 5), (9000, 5), (4, 9, 3, 2)])
@pytest.mark.parametrize("ending", ["h5", "npy"])
def test_large_files_alike_are_read_a_part_at_a_time(opened, ending, shape):
    names, values = [f"in_{k}.{ending}" for k in range(3)], []
    for name in names:
        values.append(RANDOM.standard_normal(shape))
        if ending == "npy":
            np.save(name, values[-1])
        else:
            with h5py.File(name, "w") as file:
                file["actions"] = values[-1]
    found = opened(*names)[2]
    assert isinstance(found, AlikeFile)
    stored = found.require("actions" if ending == "h5" else "")
    np.testing.assert_array_equal(stored.read(), values[2])
    np.testing.assert_array_equal(stored.read_rows(1, 3), values[2][1:3])
    np.testing.assert_array_equal(stored.read_part(1, 3, 2, 4), values[2][1:3, 2:4])
    assert stored.read_part(2, 2, 0, 4).shape == (0, 4, *shape[2:])
    assert stored.read_rows(3, 3).shape == (0, *shape[1:])


def test_more_files_than_a_process_may_have_open_at_first_are_opened(opened):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    names = [f"in_{k}.h5" for k in range(300)]
    for k, name in enumerate(names):
        write(name, steps=2 + k)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        assert [file.require("actions").shape[0] for file in opened(*names)] == [
            2 + k for k in range(300)
        ]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
