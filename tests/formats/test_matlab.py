"""What MATLAB saved with -v7.3 is read as MATLAB shows it."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from layouts import writers

RANDOM = np.random.default_rng(5)


def write(**variables: np.ndarray) -> None:
    writers.matlab(Path("in.mat"), **variables)


@pytest.mark.parametrize("batch", [4, 1])
def test_a_batch_is_integrated_as_the_same_array_of_numpy_is(trajcli, folder, batch):
    actions = RANDOM.standard_normal((batch, 20, 3))
    write(actions=actions, dt=np.full((1, 1), 0.02))
    np.savez("in.npz", actions=actions, dt=0.02)
    for name in ("in.mat", "in.npz"):
        trajcli(f"integrate {name} --mode acceleration --start zero -o {name[3:]}.npz", code=0)
    found, expected = np.load("mat.npz"), np.load("npz.npz")
    assert found["position"].shape[0] == batch
    for quantity in ("position", "velocity", "acceleration", "jerk"):
        np.testing.assert_array_equal(found[quantity], expected[quantity])


@pytest.mark.parametrize("name", ["t", "times"])
@pytest.mark.parametrize("shape", [(1, -1), (-1, 1)])
@pytest.mark.parametrize("bend", [0.0, 0.1])
def test_times_are_a_row_or_a_column(trajcli, folder, name, shape, bend):
    times = np.arange(50) * 0.02
    times += bend * times**2
    position = np.sin(times[:, None] + np.arange(7))
    write(position=position, **{name: times.reshape(shape)})
    np.savez("in.npz", position=position, times=times)
    for source in ("in.mat", "in.npz"):
        trajcli(f"differentiate {source}:position --method central -o {source[3:]}.npz", code=0)
    found, expected = np.load("mat.npz"), np.load("npz.npz")
    np.testing.assert_array_equal(found["jerk"], expected["jerk"])
    trajcli(f"score in.mat:position --times in.mat:{name}", code=0)


def test_cells_next_to_the_trajectories_are_skipped(trajcli, folder):
    position = RANDOM.standard_normal((20, 3))
    write(q=position)
    with h5py.File("in.mat", "a") as file:
        held = file.create_dataset("#refs#/a", data=position.T)
        empty = file.create_dataset("#refs#/b", data=np.zeros(2, np.uint64))
        empty.attrs["MATLAB_empty"] = np.uint8(1)
        cells = file.create_dataset("names", (2, 1), h5py.ref_dtype)
        cells[0, 0] = held.ref
        for one, kind in ((held, "double"), (empty, "cell"), (cells, "cell")):
            one.attrs["MATLAB_class"] = np.bytes_(kind)
    result = trajcli("differentiate in.mat --method backward --dt 0.1 -o out.h5", code=0)
    assert "in.mat:/q is taken" in result.err
    with h5py.File("out.h5") as file:
        np.testing.assert_array_equal(file["position"][0], position)
    trajcli.refuses(
        "differentiate in.mat:names --method backward --dt 0.1 -o no.h5",
        "in.mat:/names: not real numbers",
    )
