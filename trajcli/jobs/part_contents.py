"""What a part of a run in shards holds, packed or in groups, read in blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.files.arrays import ArrayFile
from trajcli.files.schema import QUANTITIES, Variable
from trajcli.files.source import natural_key

_BLOCK_BYTES = 16 << 20


class PartContents:
    """``count`` trajectories in an intact part, packed or (``grouped``) each in a group.

    ``names``: of the trajectories, by their number of rows; none where packed ones have no names.
    ``variables``: described as [trajectory, ...] in both cases.
    """

    def __init__(self, path: Path, file: ArrayFile) -> None:
        self.path, self._file, paths = path, file, file.names()
        self.joint_names = _texts(file, "dof")
        self.attributes = file.attributes()
        self.grouped = "time" not in paths
        if self.grouped:
            groups = [path.removesuffix("/time") for path in paths if path.endswith("/time")]
            self.names: dict[int, list[str]] = {}
            for group in sorted(groups, key=natural_key):
                rows = file.require(f"{group}/time").shape[0]
                self.names.setdefault(rows, []).append(group)
            self.count, prefix = len(groups), f"{groups[0]}/"  # all hold what the first one does
            self.variables = self._describe([p for p in paths if p.startswith(prefix)], prefix)
        else:
            self.variables = self._describe(paths)
            self.count = next(v.shape[0] for v in self.variables.values() if v.name in QUANTITIES)
            self.names = {self.variables["time"].shape[-1]: _texts(file, "trajectory") or []}

    def _describe(self, paths: Sequence[str], group: str = "") -> dict[str, Variable]:
        variables = {}
        for path in paths:
            dataset, dims = self._file.require(path), self._file.dims(path)
            name, shape = path.removeprefix(group), dataset.shape
            if group:
                dims = ("trajectory", *("row" if dim == "time" else dim for dim in dims))
                shape = (self.count, *shape)
            if dataset.numeric:  # not the names of dofs and trajectories
                variables[name] = Variable(name, dims, shape, dataset.dtype, dataset.attributes)
        return variables

    def read(self, name: str) -> Any:
        """All values of a dataset."""
        return self._file.require(name).read()

    def lengths(self) -> Any:
        """The rows of each packed trajectory, [n]."""
        stored = "lengths" in self.variables
        return self.read("lengths") if stored else np.full(self.count, max(self.names))

    def blocks(self, rows: int, names: Sequence[str]) -> Iterator[tuple[int, Any, dict[str, Any]]]:
        """The trajectories of so many rows, a block after the other: how many, their times [1 or
        n, T], and variables [n, ...]."""
        if self.grouped:
            for group in self.names.get(rows, ()):
                values = {name: self.read(f"{group}/{name}")[None] for name in names}
                yield 1, self.read(f"{group}/time")[None], values
        elif rows in self.names:
            own_times = self.variables["time"].by_trajectory
            streamed = [*names, "time"] if own_times else names
            size = sum(self.variables[name].row_bytes for name in streamed)
            step = max(1, _BLOCK_BYTES // max(size, 1))
            datasets = {name: self._file.require(name) for name in streamed}
            times = None if own_times else self.read("time")[None]
            for begin in range(0, self.count, step):
                end = min(begin + step, self.count)
                values = {name: stored.read_rows(begin, end) for name, stored in datasets.items()}
                yield end - begin, values.pop("time", times), values


def _texts(file: ArrayFile, name: str) -> list[str] | None:
    """A dataset of strings; None where there is none, or one of numbers."""
    stored = file.get(name) if name in file.names() else None
    return stored.texts() if stored is not None and not stored.numeric else None
