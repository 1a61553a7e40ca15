"""What a SOURCE names is the same trajectories, names and times for every command."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import h5py
import numpy as np
import pytest
from layouts import writers

from trajcli.errors import InputError, UsageError
from trajcli.files.opening import Files
from trajcli.files.reader import read_recordings
from trajcli.files.reading import Reading
from trajcli.files.recording import Recording
from trajcli.units import unit_text

RANDOM = np.random.default_rng(0)
GIVEN = writers.demos()
T = np.arange(50) * 0.02


@pytest.fixture
def read(tmp_path, monkeypatch):
    """read_recordings in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    with Files() as files:
        yield lambda *sources, **how: read_recordings(files.with_reading(Reading(**how)), sources)


def write(path: str, **arrays: object) -> None:
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file[name.replace("__", "/")] = values


def only(sets: list[Recording]) -> Recording:
    (one,) = sets
    return one


def test_a_named_array_is_called_by_its_last_part(read):
    rows = RANDOM.standard_normal((9, 8))
    write("in.h5", obs__joint_pos=rows, joint_names=[f"j{i}" for i in range(8)])
    one = only(read("in.h5:obs/joint_pos[:7]"))
    assert (one.single, one.shape, one.named) == (True, (1, 9, 7), True)
    assert one.joint_names == [f"j{i}" for i in range(7)]
    np.testing.assert_array_equal(one.input.read()[0], rows[:, :7])
    np.testing.assert_array_equal(one.arrays["joint_pos"].read_rows(0, 1)[0], rows[:, :7])
    assert only(read("in.h5:obs/joint_pos[5:]")).joint_names == ["j5", "j6", "j7"]
    with pytest.raises(UsageError, match="no such dofs"):
        read("in.h5:obs/joint_pos[:9]")


def test_files_of_one_array_each_are_one_group_of_trajectories(read):
    rows = [RANDOM.standard_normal((count, 3)).astype("f4") for count in (5, 8, 5)]
    rows[2] = np.asfortranarray(rows[2])
    for k, values in enumerate(rows):
        np.save(f"run_{k}.npy", values)
    group = only(read("run_*.npy"))
    assert (group.shape, group.lengths.tolist()) == ((3, 8, 3), [5, 8, 5])
    of_five, of_eight = group.split_by_length()
    np.testing.assert_array_equal(of_five.arrays["actions"].read(), np.stack([rows[0], rows[2]]))
    np.testing.assert_array_equal(of_eight.arrays["actions"].read()[0], rows[1])
    np.testing.assert_array_equal(group.input.read()[0], np.pad(rows[0], ((0, 3), (0, 0))))
    assert [len(block) for block in of_five.blocks(size=2 * 5 * 3 * 4)] == [2]
    assert list(map(str, of_five.sources())) == ["run_0.npy", "run_2.npy"]
    assert of_five.place_text(1) == "run_2.npy, trajectory 0"
    assert of_five.output_names(of_five.paths) == ["run_0", "run_2"]
    assert [group.title(k) for k in range(3)] == ["run_0", "run_1", "run_2"]
    np.save("run_1b.npy", rows[1].astype("f8"))  # another type is a group of its own
    assert [group.shape[0] for group in read("run_*.npy")] == [2, 1, 1]


def test_a_group_is_the_trajectories_below_it(read):
    writers.robomimic(Path("in.h5"), GIVEN)
    assert [one.name for one in read("in.h5:data/demo_2")] == ["data/demo_2"]
    for text in ("in.h5:data/demo_2", "in.h5:/data/demo_2/"):
        one = only(read(text))
        np.testing.assert_array_equal(one.input.read()[0], GIVEN[2]["actions"])
    assert len(read("in.h5:data")) == 12
    with pytest.raises(InputError, match="no such dataset"):
        read("in.h5:data/demo_2/obs")


def test_a_name_within_groups_means_the_array_of_every_trajectory(read):
    names = ["run/demo_0", "run/demo_2", "run/demo_10"]
    with h5py.File("in.h5", "w") as file:
        for rows, name in enumerate(names, 5):
            file[f"{name}/position"] = np.zeros((rows, 2))
            file[f"{name}/obs/torque"] = np.full((rows, 2), rows)
    for dataset in ("position", "obs/torque"):
        sets = read(f"in.h5:{dataset}")
        assert [one.shape for one in sets] == [(1, 5, 2), (1, 6, 2), (1, 7, 2)]
        assert [str(one.input.where) for one in sets] == [f"in.h5:/{n}/{dataset}" for n in names]
    with h5py.File("without.h5", "w") as file:
        for name in names:
            file[f"{name}/position"] = np.zeros((5, 2))
        file["run/demo_0/obs/torque"] = np.zeros((5, 2))
    with pytest.raises(InputError, match=r"run/demo_2/obs/torque: no such dataset"):
        read("without.h5:obs/torque")
    with pytest.raises(InputError, match=r"in\.h5:obs/force: no such dataset"):
        read("in.h5:obs/force")


@pytest.mark.parametrize("source", ["in.h5", "in.h5:ep*/position", "in.h5:position"])
def test_an_array_with_one_axis_is_one_dof(read, source):
    write("in.h5", ep0__position=np.arange(50.0), ep1__position=np.arange(40.0), ep0__times=T[:50],
          limits__velocity=np.ones(7))  # fmt: skip
    groups = read(source)
    assert [group.shape for group in groups] == [(1, 50, 1), (1, 40, 1)]
    np.testing.assert_array_equal(groups[1].arrays["position"].read()[0, :, 0], np.arange(40.0))
    write("b.h5", position=np.zeros((50, 2)), velocity=np.zeros(50), limits__velocity=np.ones(14))
    assert [list(group.arrays) for group in read("b.h5")] == [["position"]]


def test_episodes_are_found_with_the_rows_of_their_companions(read):
    writers.d4rl(Path("in.h5"), GIVEN)
    with h5py.File("in.h5", "r+") as file:
        file["times"] = np.arange(sum(writers.LENGTHS)) * 0.1
    sets = read("in.h5")
    assert [one.name for one in sets] == [f"trajectory_{i}" for i in range(12)]
    first = 0
    for one, demo in zip(sets, GIVEN, strict=True):
        assert one.shape == (1, len(demo["actions"]), 7)
        assert one.commands
        np.testing.assert_array_equal(one.input.read()[0], demo["actions"].astype("f4"))
        assert one.clock is not None
        assert one.clock.step == 0.1
        observed = one.companions.dataset("observations")
        assert observed is not None
        np.testing.assert_array_equal(observed.read(), demo["position"][:-1].astype("f4"))
        first += len(demo["actions"])
    assert len(read("in.h5", layout="plain")) == 1


def test_demonstrations_without_times_use_the_times_of_their_file(read):
    writers.robomimic(Path("in.h5"), GIVEN)
    with h5py.File("in.h5", "r+") as file:
        file["data/demo_3/dt"] = 0.125
    sets = read("in.h5")
    assert [one.group for one in sets] == [f"data/demo_{i}" for i in range(12)]
    steps = [one.clock.step for one in sets if one.clock is not None]
    assert steps == [0.125 if i == 3 else 0.05 for i in range(12)]
    named = read("in.h5:obs/robot0_joint_pos")
    assert [one.shape[1] for one in named] == writers.LENGTHS
    assert not named[0].commands


def test_units_are_stated_or_implied_by_the_position(read):
    rows = RANDOM.standard_normal((4, 9, 2))
    write("in.h5", position=rows, velocity=rows, jerk=rows)
    with h5py.File("in.h5", "r+") as file:
        file["position"].attrs["units"] = "rad"
        file["jerk"].attrs["units"] = b"deg/s^3"
    one = only(read("in.h5"))
    assert [one.unit(name) for name in one.arrays] == ["rad", "rad/s", "rad/s^3"]
    assert {name: unit_text(units) for name, units in one.units.items()} == {
        "position": "rad", "velocity": "rad/s", "jerk": "deg/s^3"
    }  # fmt: skip
    np.testing.assert_array_equal(one.arrays["velocity"].read(), rows)
    np.testing.assert_allclose(one.arrays["jerk"].read(), np.deg2rad(rows), rtol=1e-15)


@pytest.mark.parametrize("ending", ["h5", "npy", "npz"])
def test_many_files_are_read_with_few_open(tmp_path, monkeypatch, ending):
    monkeypatch.chdir(tmp_path)
    values = RANDOM.standard_normal((300, 5, 3))
    for k, rows in enumerate(values):
        if ending == "h5":
            write(f"in_{k}.h5", actions=rows, dt=1.0 + k)
        elif ending == "npy":
            np.save(f"in_{k}.npy", rows)
        else:
            np.savez(f"in_{k}.npz", actions=rows)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        with Files() as files:
            for k, one in enumerate(read_recordings(files, [f"in_*.{ending}"])):
                np.testing.assert_array_equal(one.input.read()[0], values[k])
                if ending == "h5":
                    assert one.clock is not None
                    assert one.clock.step == 1.0 + k
            assert len(files.paths()) == 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_packed_archives_stay_within_memory_and_larger_arrays_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, mebibytes in (("a", 40), ("b", 40), ("c", 70)):
        values = np.zeros((mebibytes, 1 << 17, 1))
        values[:, 5, 0] = np.arange(mebibytes)
        np.savez_compressed(f"{name}.npz", actions=values)
    with Files(memory=1 << 20) as files:
        sets = read_recordings(files, ["a.npz", "b.npz"])
        for one in (*sets, sets[0]):
            assert one.input.read_rows(38, 40)[:, 5, 0].tolist() == [38, 39]
            closed = [other.file for other in sets if other is not one]
            assert all(not file.open_handle().unpacked for file in closed)
        with pytest.raises(InputError, match="too large to be unpacked"):
            read_recordings(files, ["c.npz"])


def test_files_that_cannot_be_read_are_closed(tmp_path):
    np.save(tmp_path / "short.npy", np.zeros(99))
    names = ["short.npy", "bad.npy", "bad.npz", "bad.h5"]
    for name, head in zip(names, (b"", b"\x93NUMPY", b"PK\3\4", b"\x89HDF\r\n\x1a\n"), strict=True):
        (tmp_path / name).write_bytes((head or (tmp_path / name).read_bytes())[:200] + b"rest")
    before = len(os.listdir("/proc/self/fd"))
    for name in names * 3:
        with Files() as files, pytest.raises(InputError):
            files.open(tmp_path / name)
    assert len(os.listdir("/proc/self/fd")) == before


def test_sources_that_are_no_files_say_what_to_do(read):
    for source, words in (
        ("-", "standard input"),
        ("http://example.org/in.h5", "a URL"),
        ("s3://bucket/in.h5", "a URL"),
    ):
        with pytest.raises(UsageError, match=words):
            read(source)
    with pytest.raises(UsageError, match="no SOURCE"):
        read()
    write("in.h5", other=np.zeros((3, 2)), more=np.zeros((4, 2)))
    with pytest.raises(InputError, match=r"no trajectories found(.|\n)*other \[3, 2\]"):
        read("in.h5")
    write("one.h5", other=np.zeros((3, 2)))
    assert only(read("one.h5")).array_name == "other"
