"""Trajectories of different length in one run: the same bits as alone, in groups or padded."""

from __future__ import annotations

from pathlib import Path

import h5netcdf
import h5py
import numpy as np
import pytest
import xarray
from layouts import writers

from trajcli import State, differentiate, integrate

QUANTITIES = ("position", "velocity", "acceleration", "jerk")
GIVEN = writers.demos()


def test_a_padded_array_is_read_up_to_its_lengths(trajcli, folder):
    random = np.random.default_rng(5)
    lengths = np.array([9, 4, 9, 7, 1, 4])
    actions = random.standard_normal((6, 9, 2))
    for b, length in enumerate(lengths):
        actions[b, length:] = np.nan  # never read
    start, dt = random.standard_normal((6, 2)), random.uniform(0.1, 0.2, (6, 9))
    np.savez("in.npz", actions=actions, lengths=lengths, start_position=start, dt=dt)
    trajcli("integrate in.npz --mode jerk -o out.h5", code=0)
    trajcli("integrate in.npz --mode jerk -o out.npz", code=0)
    with h5py.File("out.h5") as file, np.load("out.npz") as archive:
        for b, length in enumerate(lengths):
            own = actions[b, None, :length]
            alone = integrate(own, State(start[b]), dt[b, None, :length], "jerk")
            group = file[f"in/trajectory_{b}"]
            for name in QUANTITIES:
                expected = getattr(alone, name)[0]
                np.testing.assert_array_equal(group[name][:], expected)
                np.testing.assert_array_equal(archive[f"in/trajectory_{b}/{name}"], expected)
            np.testing.assert_array_equal(group["time"][:], alone.time[0] if alone.time.ndim == 2
                                          else alone.time)  # fmt: skip


@pytest.mark.parametrize("times", ["shared", "own"])
def test_a_padded_recording_has_stamps_up_to_its_length(trajcli, folder, times):
    random = np.random.default_rng(6)
    lengths = np.array([9, 6, 8])
    stamps = np.cumsum(random.uniform(0.1, 0.2, (3, 9)), 1)
    stamps = stamps if times == "own" else stamps[0]
    values = random.standard_normal((3, 9, 2))
    np.savez("in.npz", position=values, lengths=lengths, times=stamps)
    trajcli("differentiate in.npz --method central -o out.h5", code=0)
    with h5py.File("out.h5") as file:
        for b, length in enumerate(lengths):
            own = stamps[b, :length] if times == "own" else stamps[:length]
            alone = differentiate(values[b, :length], times=own, method="central")
            np.testing.assert_array_equal(file[f"in/trajectory_{b}/jerk"][:], alone.jerk[0])


def test_start_states_given_for_all_go_to_their_own_trajectory(trajcli, folder):
    writers.minari(Path("in.h5"), GIVEN)
    start = np.random.default_rng(7).standard_normal((12, 7)).astype("f4")
    np.save("own.npy", start)
    np.save("index.npy", np.arange(12)[::-1].copy())
    np.save("dt.npy", np.linspace(0.1, 0.3, 12)[:, None])
    line = "integrate in.h5 --dt dt.npy --start own.npy"
    trajcli(f"{line} -o a.h5", code=0)
    trajcli(f"{line} --start-index index.npy -o b.h5", code=0)
    with h5py.File("a.h5") as a, h5py.File("b.h5") as b:
        assert b.attrs["source"].split("\n")[10] == "in.h5:/episode_10/actions"
        for i in range(12):
            np.testing.assert_array_equal(a[f"episode_{i}/position"][0], start[i])
            np.testing.assert_array_equal(b[f"episode_{i}/position"][0], start[11 - i])
            assert b[f"episode_{i}/start_index"][()] == 11 - i
            assert a[f"episode_{i}/time"][1] == np.linspace(0.1, 0.3, 12)[i]
    np.save("few.npy", start[:5])
    trajcli.refuses("integrate in.h5 --dt 1 --start few.npy -o c.h5", "[12, 7], or one for all")


def test_a_bad_value_is_named_where_it_lies(trajcli, folder):
    given = writers.demos()
    given[9]["actions"][17, 2] = np.nan
    writers.robomimic(Path("in.h5"), given)
    trajcli.refuses("integrate in.h5 -o out.h5", "in.h5:/data/demo_9/actions", "step 17, dof 2")
    actions = np.zeros((4, 5, 1))
    actions[2, 1, 0] = np.inf
    np.savez("in.npz", actions=actions, lengths=[5, 3, 3, 5], dt=1.0)
    result = trajcli("integrate in.npz --start zero -o out.h5")
    assert "in.npz:actions, trajectory 2, step 1" in result.err


@pytest.mark.parametrize("joints", [False, True])
def test_groups_open_by_name_in_xarray_h5netcdf_and_h5py(trajcli, folder, joints):
    writers.robomimic(Path("in.h5"), GIVEN)
    if joints:
        with h5py.File("in.h5", "r+") as file:
            file["joint_names"] = [f"joint_{i}" for i in "abcdefg"]
    trajcli("integrate in.h5 --units rad -o out.h5", code=0)
    data = Path("out.h5").read_bytes()
    assert data[:8] == b"\x89HDF\r\n\x1a\n"
    assert data[8] <= 2  # the superblock of HDF5 1.8, which MATLAB and HDFView read
    with xarray.open_dataset("out.h5", group="data/demo_10", engine="h5netcdf") as found:
        assert found["jerk"].dims == ("time", "dof")
        assert found["jerk"].attrs["units"] == "rad/s^3"
        assert found["time"].attrs["units"] == "s"
        assert dict(found.sizes) == {"time": LENGTH_10 + 1, "dof": 7}
        np.testing.assert_allclose(found["time"], 0.05 * np.arange(LENGTH_10 + 1))
        if joints:
            assert found["position"].sel(dof="joint_c").shape == (LENGTH_10 + 1,)
    with h5netcdf.File("out.h5") as file:
        assert file.attrs["mode"] == "acceleration"
        variable = file["data/demo_10"]["velocity"]
        assert variable.dimensions == ("time", "dof")
        assert variable.attrs["units"] == "rad/s"
        names = []
        file._h5file.visit(names.append)
        assert len(names) > 12 * 6
    with h5py.File("out.h5") as file:
        velocity = file["data/demo_10/velocity"]
        assert list(velocity.dims[0].keys()) == ["time"]
        assert velocity.dims[0][0][1] == pytest.approx(0.05)
        assert velocity.chunks is None
        assert velocity.id.get_offset() % 4 == 0
    with xarray.open_datatree("out.h5", engine="h5netcdf") as tree:
        assert tree["data/demo_3/position"].shape == (writers.LENGTHS[3] + 1, 7)


LENGTH_10 = writers.LENGTHS[10]
