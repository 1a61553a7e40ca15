"""Zarr stores that trajcli writes: the values of HDF5, as zarr, xarray and trajcli read them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from layouts import writers

zarr = pytest.importorskip("zarr")

RUN = "integrate actions.npy --start start.npy --dt 0.05"


def values(name: str) -> dict[str, np.ndarray]:
    """Every array of numbers in a file, by its path."""
    found: dict[str, np.ndarray] = {}
    if name.endswith(".zarr"):
        members = zarr.open_group(name, mode="r").members(max_depth=None)
        found = {path: one[...] for path, one in members if isinstance(one, zarr.Array)}
    else:
        with h5py.File(name) as file:
            file.visititems(
                lambda path, one: (
                    found.update({path: one[()]}) if isinstance(one, h5py.Dataset) else None
                )
            )
    plain = {path for path, one in found.items() if np.asarray(one).dtype.kind in "fiu"}
    return {path: np.asarray(found[path]) for path in plain - {"row", "trajectory"}}


def require_same(trajcli, options: str, source: str = RUN) -> None:
    for out in ("out.h5", "out.zarr"):
        result = trajcli(f"{source} {options} -o {out} --overwrite")
        assert result.code == 0, result.err
    want, got = values("out.h5"), values("out.zarr")
    scales = {path for path in want if path.split("/")[-1] not in ("dof",)}
    assert scales - {"action", "step", "state"} >= got.keys() >= {"time"} & want.keys()
    for path, array in got.items():
        assert array.dtype == want[path].dtype, path
        np.testing.assert_array_equal(array, want[path], err_msg=path)
    with h5py.File("out.h5") as file:
        for name, stated in file.attrs.items():
            assert zarr.open_group("out.zarr", mode="r").attrs[name] == stated, name
    result = trajcli("diff out.h5 out.zarr --json")
    assert result.code == 0, result.err


@pytest.mark.parametrize(
    "options",
    ["", "--mode jerk --dtype float64", "--cost jerk --mode jerk"],
)
def test_a_store_holds_what_hdf5_does(trajcli, folder, options):
    require_same(trajcli, options)
    assert trajcli("check out.zarr --recompute").code == 0
    assert trajcli("inspect out.zarr").code == 0
    assert not list(Path().glob(".*"))


@pytest.mark.parametrize("options", ["", "--pack"])
def test_trajectories_of_unequal_length_are_in_groups_as_in_the_input(trajcli, folder, options):
    writers.robomimic(Path("demos.hdf5"), writers.demos())
    require_same(trajcli, options, "integrate demos.hdf5 --mode jerk")
    if not options:
        group = zarr.open_group("out.zarr", mode="r")["data"]
        assert sorted(group) == sorted(f"demo_{k}" for k in range(writers.COUNT))


def test_units_dimensions_and_joints_are_those_of_hdf5(trajcli, folder):
    xarray = pytest.importorskip("xarray")
    line = f"{RUN} --joints shoulder,elbow,wrist --units rad -o out"
    assert trajcli(f"{line}.zarr").code == trajcli(f"{line}.h5").code == 0
    with xarray.open_zarr("out.zarr", consolidated=False) as store:
        assert store["position"].dims == ("trajectory", "time", "dof")
        assert store["dof"].values.tolist() == ["shoulder", "elbow", "wrist"]
        assert store["jerk"].attrs["units"] == "rad/s^3"
        np.testing.assert_allclose(store["time"], 0.05 * np.arange(11), rtol=1e-12)
    report = json.loads(trajcli("inspect out.zarr --json").out)
    assert report["joint_names"] == ["shoulder", "elbow", "wrist"]


def test_a_chunk_is_some_whole_trajectories(trajcli, folder):
    np.save("long.npy", np.random.default_rng(0).normal(size=(7, 30_000, 9)))  # 2.06 MiB each
    line = "integrate long.npy --start zero --dt 0.01 --write position -o"
    for out in ("out.h5", "out.zarr"):
        assert trajcli(f"{line} {out} --memory 1MiB").code == 0
    array = zarr.open_array("out.zarr/position", mode="r")
    assert array.chunks == (1, 30_001, 9)
    np.testing.assert_array_equal(array[...], values("out.h5")["position"])
    np.save("short.npy", np.random.default_rng(0).normal(size=(600, 300, 9)))
    line = line.replace("long", "short")
    for out in ("out.h5", "out.zarr"):
        assert trajcli(f"{line} {out} --overwrite --memory 1MiB").code == 0
    array = zarr.open_array("out.zarr/position", mode="r")
    assert array.chunks == (193, 301, 9)
    np.testing.assert_array_equal(array[...], values("out.h5")["position"])


def test_only_a_store_of_trajcli_is_overwritten(trajcli, folder):
    zarr.create_array("out.zarr", data=np.zeros((3, 4)))
    result = trajcli(f"{RUN} -o out.zarr --overwrite")
    assert result.code == 2
    assert "other things" in result.err
    os.rename("out.zarr", "theirs.zarr")
    assert trajcli(f"{RUN} -o out.zarr").code == 0
    assert trajcli(f"{RUN} -o out.zarr").code == 2
    assert trajcli(f"{RUN} -o out.zarr --overwrite").code == 0
    Path("out.zarr/position/notes.txt").write_text("mine")
    assert trajcli(f"{RUN} -o out.zarr --overwrite").code == 2


@pytest.mark.parametrize("name", ["../../x", "a/../../x", "__x", "zarr.json", "y" * 300])
def test_a_name_is_never_a_path_out_of_the_store(trajcli, folder, name):
    from trajcli.errors import OutputError
    from trajcli.files.zarr_nodes import require_folders

    with pytest.raises(OutputError, match="Zarr"):
        require_folders(["data/demo_0", name])


def test_it_needs_no_zarr(trajcli, folder, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "zarr", None)
    assert trajcli(f"{RUN} -o out.zarr").code == 0
    result = trajcli("inspect out.zarr")
    assert result.code == 2
    assert "pip install 'trajcli[zarr]'" in result.err


def test_a_store_with_joint_names_is_read_by_a_child_process_as_well(trajcli, folder):
    np.savez("in.npz", actions=np.ones((2, 9, 2)), dt=0.1)
    assert trajcli("integrate in.npz --start zero --joints a,b -o out.zarr").code == 0
    shown = trajcli("score out.zarr").out
    result = trajcli("score out.zarr --untrusted")
    assert (result.code, result.out) == (0, shown), result.err
