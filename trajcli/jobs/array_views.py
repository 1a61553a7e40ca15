"""Arrays, in memory or in a file, seen another way: some rows or dofs of them, or several as one.

What lies in a file is read when it is needed, block by block.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.files.arrays import Dataset

Values = Any
"""numpy.ndarray, or a Dataset that is read block by block."""


def rows_by_number(values: Values, numbers: Any) -> Values:
    """Rows of [B, ...] by number; of a dataset [B, T, ...] they are read when they are needed."""
    if len(numbers) == values.shape[0] and (np.diff(numbers) == 1).all():
        return values
    if isinstance(values, Dataset) and values.ndim > 1:
        return values.select(numbers, range(values.shape[1]))
    return in_memory(values)[numbers]


def in_memory(values: Values) -> npt.NDArray[Any]:
    """The values of an array, which is read where it is a dataset."""
    return np.asarray(values.read() if isinstance(values, Dataset) else values)


def pick_dofs(values: Values, dofs: Sequence[int]) -> Values:
    """Some dofs of [..., D], in this order."""
    columns = list(dofs)
    if not isinstance(values, Dataset):
        return values[..., columns]
    rows = values.read_rows
    shape = (*values.shape[:-1], len(columns))
    return replace(values, shape=shape, read_rows=lambda a, b: rows(a, b)[..., columns])


def unwrapped(array: Dataset, dofs: Sequence[int]) -> Dataset:
    """[B, T, D] in float64, with angles in rad that wrap made continuous as numpy.unwrap does.

    What is not finite stays where it is, and the rows behind it go on from the last turn.
    """

    def read_rows(start: int, stop: int) -> Any:
        values = np.array(array.read_rows(start, stop), np.float64)
        for trajectory in values:
            for dof in dofs:
                finite = np.isfinite(trajectory[:, dof])
                trajectory[finite, dof] = np.unwrap(trajectory[finite, dof])
        return values

    return replace(array, dtype=np.dtype("f8"), read_rows=read_rows)


def stacked(arrays: Sequence[Values]) -> Dataset:
    """Values [b, ...] one behind the other, equal in shape behind the first axis."""
    first, ends = arrays[0], list(accumulate(array.shape[0] for array in arrays))
    if isinstance(first, Dataset) and len(arrays) == 1:
        return first
    dtype = np.result_type(*{array.dtype for array in arrays})

    def read_rows(start: int, stop: int) -> Any:
        blocks = [np.empty((0, *first.shape[1:]), dtype)]
        k = bisect_right(ends, start)
        while start < stop:
            begin, end, part = ends[k] - arrays[k].shape[0], min(stop, ends[k]), arrays[k]
            rows = slice(start - begin, end - begin)
            stored = isinstance(part, Dataset)
            blocks.append(part.read_rows(rows.start, rows.stop) if stored else part[rows])
            start, k = end, k + 1
        return blocks[1] if len(blocks) == 2 else np.concatenate(blocks)

    more = f" and {len(arrays) - 1} more" if len(arrays) > 1 else ""
    where = getattr(first, "where", "") + more
    return Dataset(where, (ends[-1], *first.shape[1:]), dtype, read_rows)
