"""What is exported of any family of files holds its trajectories bit for bit, in every form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from formats.test_zarr import replay
from layouts import writers
from layouts.test_layouts import WITHOUT_DT, WRITERS
from layouts.test_parquet import version_2, version_3

from trajcli.files.reader import Files, read_recordings

DEMOS = writers.demos()
FAMILIES: dict[str, tuple[str, Callable[[Path], object]]] = {
    name: ("in.hdf5", lambda path, write=about[0]: write(path, DEMOS))
    for name, about in {**WRITERS, **WITHOUT_DT}.items()
} | {
    "aloha": ("in.hdf5", lambda path: writers.aloha(path, DEMOS[0])),
    "lerobot 2.1": ("in", version_2),
    "lerobot 3": ("in", version_3),
    "replay": ("in.zarr", lambda path: replay(str(path), 3)),
    "one array": ("in.npz", lambda path: np.savez(path, position=np.ones((3, 4, 2)), dt=0.1)),
}


def trajectories(source: str) -> list[np.ndarray]:
    """The actions of a source, or its first quantity, each trajectory at its own length."""
    found = []
    with Files() as files:
        for one in read_recordings(files, [source]):
            values = next(iter(one.arrays.values())).read()
            lengths = np.full(len(values), values.shape[1]) if one.lengths is None else one.lengths
            found += [rows[:length] for rows, length in zip(values, lengths, strict=True)]
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_every_form_holds_the_trajectories_of_every_family(trajcli, folder, family):
    name, write = FAMILIES[family]
    write(Path(name))
    want = trajectories(name)
    for form in ("csv", "parquet", "h5", "npz"):
        trajcli(f"export {name} -o out.{form}", code=0)
        got = trajectories(f"out.{form}")
        assert [len(one) for one in got] == [len(one) for one in want], form
        for one, other in zip(got, want, strict=True):
            assert form == "csv" or one.dtype == other.dtype, form
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("command", "more"),
    [("export", "-o out.csv"), ("plot", "-o out.png"), ("score", "--dt 0.1")],
)
def test_no_trajectory_is_left_out_without_a_word(trajcli, folder, command, more):
    with h5py.File("in.hdf5", "w") as file:
        for k, dofs in enumerate((3, 3, 4)):
            file[f"data/demo_{k}/actions"] = np.zeros((9, dofs))
    trajcli.refuses(
        f"{command} in.hdf5 {more}",
        "in.hdf5:/data/demo_2/actions: trajectories of different dofs",
        "D = 4",
    )
    assert not [*folder.glob("out.*")]
    assert "demo_2" in trajcli("inspect in.hdf5").err
    trajcli(f"{command} in.hdf5 {more} --dofs 0:3", code=0)


def test_groups_of_any_name_are_exported(trajcli, folder):
    with h5py.File("in.hdf5", "w") as file:
        for k, name in enumerate(("pick", "place")):
            file[f"{name}/position"] = np.full((4, 2), float(k))
            file[f"{name}/velocity"] = np.zeros((4, 2))
        file["other/velocity"] = np.zeros((4, 2))
    assert "not exported: other/velocity" in trajcli("export in.hdf5 -o out.npz").out
    assert np.load("out.npz")["position"][:, 0, 0].tolist() == [0.0, 1.0]
    with h5py.File("in.hdf5", "a") as file:
        for name in ("pick_2/position", "pick_2/velocity", "pick_3/position"):
            file[name] = np.zeros((4, 2))
        file["pick_4/position"] = np.zeros((4, 2))
    trajcli.refuses("export in.hdf5 -o out.h5", "pick_3/position: trajectories of different arrays")
