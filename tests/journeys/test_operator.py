"""trajcli operator, as typed."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from scipy import sparse

import trajcli as library


@pytest.mark.parametrize("out", ["op.h5", "op.npz", "op", "op.zarr"])
@pytest.mark.parametrize("thin", ["", "--sparse"])
def test_the_matrices_of_a_mode_lie_in_a_file(trajcli, folder, out, thin):
    line = f"operator --mode bspline --ends goal --horizon 6 --dt 0.1 -o {out} {thin} --json"
    result = trajcli(line)
    assert result.code == 0, result.err
    want = library.operator(6, 0.1, "bspline", ends="goal")
    assert result.document["matrices"] == {
        name: list(matrix.shape) for name, matrix in want.matrices().items()
    }
    if out.endswith("h5"):
        with h5py.File(out) as file:
            stored = {name: values[()] for name, values in file.items()}
            assert file.attrs["mode"] == "bspline"
            assert file.attrs["row_order"] == "position,velocity,acceleration,jerk"
    elif out.endswith("npz"):
        with np.load(out) as file:
            stored = {name: file[name] for name in file if not name.endswith(".json")}
    elif out.endswith("zarr"):
        group = pytest.importorskip("zarr").open(out, mode="r")
        stored = {name: array[...] for name, array in group.arrays()}
    else:
        stored = {path.stem: np.load(path) for path in (folder / out).glob("*.npy")}
    np.testing.assert_array_equal(stored["time"], want.time)
    for name, matrix in want.matrices().items():
        if thin:
            parts = (stored[f"{name}_{part}"] for part in ("data", "indices", "indptr"))
            stored_matrix = sparse.csr_array(tuple(parts), shape=stored[f"{name}_shape"]).toarray()
        else:
            stored_matrix = stored[name]
        np.testing.assert_array_equal(stored_matrix, matrix)


def test_steps_come_from_a_file(trajcli, folder):
    steps = np.array([0.1, 0.2, 0.4])
    np.save("steps.npy", steps)
    np.save("stamps.npy", np.concatenate([[0.0], np.cumsum(steps)]))
    want = library.operator(3, steps, "jerk", scheme="foh").A
    for option in ("--dt steps.npy", "--times stamps.npy"):
        line = f"operator --mode jerk --scheme foh --horizon 3 {option} -o op.npz --overwrite"
        assert trajcli(line).code == 0
        with np.load("op.npz") as file:
            np.testing.assert_allclose(file["A"], want, rtol=1e-14)


def test_a_recording_has_no_start_state(trajcli, folder):
    line = "operator --mode central --start first --horizon 8 --rate 10 -o op.npz"
    assert trajcli(line).code == 0
    with np.load("op.npz") as file:
        assert set(file) - {"trajcli.json"} == {"A", "time"}
        assert file["A"].shape == (32, 8)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--horizon 0 --dt 0.1", "--horizon"),
        ("--horizon 3", "no time step"),
        ("--horizon 3 --dt 0.1 --start zero", "any start state"),
        ("--horizon 3 --dt 0.1 --mode snap", "not a choice"),
        ("--horizon 3 --dt start.npy", "wrong shape"),
        ("--horizon 3 --dt 0.1 --rate 5", "more than one time step"),
        ("--dt 0.1", "--horizon"),
        ("--horizon -3 --dt 0.1", "--horizon"),
        ("--horizon 4000000000000000000 --dt 0.1", "do not fit into memory"),
        ("--horizon 3 --dt 1e-300 --mode central", "beyond float64"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_written(trajcli, folder, words, message):
    before = sorted(folder.iterdir())
    result = trajcli(f"operator {words} -o op.h5")
    assert result.code == 2
    assert message in result.err
    assert sorted(folder.iterdir()) == before


def test_an_output_that_is_there_or_is_an_input_is_refused(trajcli, folder):
    np.savez("steps.npz", dt=np.full(3, 0.1))
    line = "operator --horizon 3 --dt steps.npz:dt -o steps.npz"
    assert "exists" in trajcli(line).err
    assert "the output is an input" in trajcli(f"{line} --overwrite").err
    with np.load("steps.npz") as file:
        assert set(file) == {"dt"}
