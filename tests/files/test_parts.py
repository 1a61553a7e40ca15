"""Parts of datasets, read here and there."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from trajcli.errors import InputError
from trajcli.files.opening import open_arrays
from trajcli.files.source import parse_source

VALUES = np.random.default_rng(3).normal(size=(200, 900, 2))  # parts of it are small, and are not
QUANTITIES = [
    (7, 9, 3, 850),
    (0, 200, 0, 900),
    (150, 151, 899, 900),
    (0, 3, 0, 900),
    (2, 190, 5, 9),
]
QUANTITIES += [
    (199, 200, 0, 900),
    (4, 4, 1, 3),
    (100, 180, 0, 900),
    (20, 60, 10, 890),
    (0, 1, 0, 1),
]


def npy(path: Path) -> str:
    np.save(path / "a.npy", VALUES)
    return "a.npy"


def fortran(path: Path) -> str:
    np.save(path / "a.npy", np.asfortranarray(VALUES))
    return "a.npy"


def stored(path: Path) -> str:
    np.savez(path / "a.npz", before=np.ones(9), a=VALUES)
    return "a.npz:a"


def deflated(path: Path) -> str:
    np.savez_compressed(path / "a.npz", a=VALUES)
    return "a.npz:a"


def contiguous(path: Path) -> str:
    with h5py.File(path / "a.h5", "w") as file:
        file["a"] = VALUES
    return "a.h5:a"


def chunked(path: Path) -> str:
    with h5py.File(path / "a.h5", "w") as file:
        file.create_dataset("a", data=VALUES, chunks=(7, 100, 2), compression="gzip")
    return "a.h5:a"


@pytest.mark.parametrize("kind", [npy, fortran, stored, deflated, contiguous, chunked])
def test_parts_of_arrays_are_the_same_in_any_order(tmp_path, kind):
    source = parse_source(str(tmp_path / kind(tmp_path)))
    with open_arrays(source.path) as file:
        array = file.require(source.dataset or "")
        for start, stop, first, last in QUANTITIES:
            found = array.read_part(start, stop, first, last)
            np.testing.assert_array_equal(found, VALUES[start:stop, first:last])
            np.testing.assert_array_equal(array.read_rows(start, stop), VALUES[start:stop])


@pytest.mark.parametrize("kind", [npy, stored, contiguous])
def test_a_part_that_has_been_cut_off_is_an_error(tmp_path, kind):
    source = parse_source(str(tmp_path / kind(tmp_path)))
    with open_arrays(source.path) as file:
        array = file.require(source.dataset or "")
        with open(source.path, "r+b") as cut:
            cut.truncate(VALUES.nbytes // 2)
        with pytest.raises(InputError):
            array.read_part(198, 199, 3, 800)
