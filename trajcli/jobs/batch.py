"""Actions from one or many datasets, seen as one [B, H, D]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trajcli.checks import describe
from trajcli.errors import Fault, InputError
from trajcli.files.arrays import StoredArray


@dataclass(frozen=True)
class Batch:
    """Datasets of equal horizon and dofs, one after the other.

    ``kept``: indices of the rows that are used, where some are left out.
    """

    parts: Sequence[StoredArray]
    kept: Any = None

    @staticmethod
    def of(arrays: Sequence[StoredArray]) -> Batch:
        """Join datasets [B, H, D] or [H, D]; raises InputError where they do not fit."""
        parts = [_as_batch(array.require_numeric()) for array in arrays]
        first = parts[0]
        faults = [
            Fault(
                "trajectories of different length or dofs in one run",
                part.where,
                f"H = {first.shape[1]}, D = {first.shape[2]}, as in {first.where}",
                f"H = {part.shape[1]}, D = {part.shape[2]}",
                "run them one at a time",
            )
            for part in parts[1:]
            if part.shape[1:] != first.shape[1:]
        ]
        if faults:
            raise InputError(*faults[:5])
        return Batch(parts)

    @property
    def shape(self) -> tuple[int, int, int]:
        """[B, H, D]."""
        _, horizon, dofs = self.parts[0].shape
        rows = horizon if self.kept is None else len(self.kept)
        return sum(part.shape[0] for part in self.parts), rows, dofs

    @property
    def ndim(self) -> int:
        """Always 3."""
        return 3

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type that holds all parts."""
        return np.result_type(*(part.dtype for part in self.parts))

    @property
    def nbytes(self) -> int:
        """Bytes of values in the files."""
        return sum(part.nbytes for part in self.parts)

    @property
    def name(self) -> str:
        """What it is called in messages."""
        first = self.parts[0].where
        return first if len(self.parts) == 1 else f"{first} and {len(self.parts) - 1} more"

    def blocks(self, size: int, begin: int = 0) -> Iterator[tuple[int, int, int, StoredArray]]:
        """Runs of at most ``size`` trajectories that lie in one dataset, from ``begin`` on.

        Yields first and last + 1 among all trajectories, the first in its dataset, the dataset.
        """
        offset = 0
        for part in self.parts:
            for local in range(max(begin - offset, 0), part.shape[0], size):
                end = min(local + size, part.shape[0])
                yield offset + local, offset + end, local, part
            offset += part.shape[0]

    def read(self, part: StoredArray, begin: int, end: int) -> Any:
        """Actions begin..end of one dataset."""
        values = part.read_rows(begin, end)
        return values if self.kept is None else values[:, self.kept]


def _as_batch(array: StoredArray) -> StoredArray:
    """A dataset as [B, H, D]; [H, D] is one trajectory."""
    if array.ndim == 3:
        return array
    if array.ndim != 2:
        raise InputError(
            Fault(
                "wrong number of dimensions",
                array.where,
                "[B, H, D], or [H, D] for one trajectory",
                describe(array.shape),
            )
        )
    inner = array.read_rows

    def read_rows(begin: int, end: int) -> Any:
        values = inner(0, array.shape[0])[None]
        return values[begin:end]

    return replace(array, shape=(1, *array.shape), read_rows=read_rows)
