"""HDF5 files in a line, and NumPy's comparisons by short names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

same, close = np.testing.assert_array_equal, np.testing.assert_allclose


def write_h5(path: str | Path, more: dict[str, Any] | None = None, /, **arrays: Any) -> None:
    """Makes a file of datasets, and of attributes called "dataset@name", of the file "@name"."""
    with h5py.File(path, "w") as file:
        values = {**arrays, **(more or {})}
        for name in sorted(values, key=lambda name: "@" in name):
            dataset, at, attribute = name.partition("@")
            if at:
                file[dataset or "/"].attrs[attribute] = values[name]
            else:
                file[dataset] = values[name]


def read_h5(path: str | Path) -> dict[str, Any]:
    """Returns all datasets of a file by name."""
    arrays: dict[str, Any] = {}

    def visit(name: str, value: object) -> None:
        if isinstance(value, h5py.Dataset):
            arrays[name] = value[()]

    with h5py.File(path) as file:
        file.visititems(visit)
    return arrays
