"""What is in a file: datasets, ranges and peaks per dof, NaN and Inf."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import InputError
from trajcli.files.arrays import ArrayFile, StoredArray, text_of
from trajcli.files.opening import open_arrays
from trajcli.files.source import Source

_BLOCK_BYTES = 8 << 20


def summarise(source: Source, allow_external: bool, untrusted: bool) -> dict[str, Any]:
    """A file, or the datasets of it that the source names, as plain values.

    Datasets that cannot be read are listed with the reason. Raises InputError where the file
    cannot be opened or the named dataset is not there.
    """
    with open_arrays(source.path, allow_external, untrusted) as file:
        names = _names(file, source)
        datasets = []
        for name in names:
            try:
                stored = file.require(name)
                datasets.append({"name": name or source.path.name, **_dataset(stored)})
            except InputError as error:
                if source.dataset is not None:
                    raise
                datasets.append({"name": name, "unreadable": str(error.faults[0])})
        return {
            "file": str(source.path),
            "family": file.family,
            "bytes": os.path.getsize(Path(source.path)),
            "attributes": dict(file.attributes()),
            "joint_names": _joint_names(file),
            "datasets": datasets,
        }


def _names(file: ArrayFile, source: Source) -> list[str]:
    if source.dataset is None:
        return file.names()
    if file.has_group(source.dataset):
        prefix = source.dataset.strip("/") + "/"
        return [name for name in file.names() if name.startswith(prefix)]
    return file.match(source.dataset)


def _joint_names(file: ArrayFile) -> list[str] | None:
    for name in ("joint_names", "dof"):
        try:
            stored = file.get(name)
        except InputError:
            continue
        if stored is not None and stored.dtype.kind in "SUO":
            return [text_of(value) for value in np.ravel(stored.read())]
    return None


def _dataset(stored: StoredArray) -> dict[str, Any]:
    about: dict[str, Any] = {
        "shape": list(stored.shape),
        "dtype": str(stored.dtype),
        "storage": stored.storage,
        "units": str(stored.attributes["units"]) if "units" in stored.attributes else None,
    }
    if stored.numeric:
        about |= _statistics(stored)
    return about


def _statistics(stored: StoredArray) -> dict[str, Any]:
    """Range over all values and, for [.., D] arrays of floats, per dof; read block by block."""
    dofs = stored.shape[-1] if stored.ndim >= 2 and stored.dtype.kind == "f" else 1
    low, high = np.full(dofs, np.inf), np.full(dofs, -np.inf)
    nan = inf = 0
    for block in _blocks(stored):
        table = np.asarray(block, dtype=np.float64).reshape(-1, dofs)
        if not table.size:
            continue
        bad = ~np.isfinite(table)
        if bad.any():
            nan += int(np.isnan(table).sum())
            inf += int(np.isinf(table).sum())
        low = np.minimum(low, np.where(bad, np.inf, table).min(0))
        high = np.maximum(high, np.where(bad, -np.inf, table).max(0))
    known = np.isfinite(low)
    found: dict[str, Any] = {
        "nan": nan,
        "inf": inf,
        "min": float(low.min()) if known.any() else None,
        "max": float(high.max()) if known.any() else None,
    }
    if stored.ndim >= 2 and stored.dtype.kind == "f":
        found["per_dof"] = [
            {
                "min": float(a) if ok else None,
                "max": float(b) if ok else None,
                "peak": float(max(abs(a), abs(b))) if ok else None,
            }
            for a, b, ok in zip(low, high, known, strict=True)
        ]
    return found


def _blocks(stored: StoredArray) -> Any:
    if not stored.shape:
        yield stored.read()
        return
    per_row = max(1, stored.nbytes // max(1, stored.shape[0]))
    size = max(1, _BLOCK_BYTES // per_row)
    for begin in range(0, stored.shape[0], size):
        yield stored.read_rows(begin, min(begin + size, stored.shape[0]))
