"""Arrays, in memory or in a file, seen in another way: some of their rows, or several as one.

What lies in a file is read when it is needed, block by block.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from trajcli.files.arrays import ArrayFile, Dataset, ReadApart, in_memory
from trajcli.files.source import Origin, first_and_more

Values = Any
"""numpy.ndarray, or a Dataset that is read block by block."""


class JoinedFiles(ArrayFile):
    """Files of which each holds one array [T, D] of a type, as one file of an array [n, T, D].

    Thousands of small files are then one group of trajectories. Where they differ in length,
    ``lengths`` is beside the array.
    """

    def __init__(self, files: Sequence[ArrayFile]) -> None:
        first = files[0]
        super().__init__(first.path, first.family, first.pool)
        self.members = files
        arrays = [file.require("") for file in files]
        lengths = [array.shape[0] for array in arrays]
        where = first_and_more(array.where for array in arrays)
        shape, dtype = (len(files), max(lengths), arrays[0].shape[1]), arrays[0].dtype
        read = ReadApart(lambda k, *rows: arrays[k].read_rows(*rows), lengths)
        self._array = Dataset(where, shape, dtype, read, storage="a file for each")
        counts = np.array(lengths)
        self._lengths = Dataset(
            where, counts.shape, counts.dtype, lambda start, stop: counts[start:stop]
        )

    def names(self) -> list[str]:
        return [""]

    def get(self, name: str) -> Dataset | None:
        return {"": self._array, "lengths": self._lengths}.get(name.strip("/"))


def joining(file: ArrayFile) -> object:
    """Returns what files have in common that :class:`JoinedFiles` can join: the type and the dofs
    of arrays [T, D] in .npy files. Of any other file it returns what no second one has."""
    array = file.get("") if file.family == "npy" else None
    if array is None or array.ndim != 2 or 0 in array.shape:
        return object()
    return array.dtype, array.shape[1]


def rows_by_number(values: Values, numbers: Any) -> Values:
    """Returns rows of [B, ...] by number; of a dataset [B, T, ...] they are read when needed."""
    if len(numbers) == values.shape[0] and (np.diff(numbers) == 1).all():
        return values
    if isinstance(values, Dataset) and values.ndim > 1:
        return values.select(numbers, range(values.shape[1]))
    return in_memory(values)[numbers]


def stacked(arrays: Sequence[Values]) -> Dataset:
    """Returns values [b, ...] one behind the other, equal in shape behind the first axis."""
    first, ends = arrays[0], list(accumulate(array.shape[0] for array in arrays))
    if isinstance(first, Dataset) and len(arrays) == 1:
        return first
    dtype = np.result_type(*{array.dtype for array in arrays})

    def read_rows(start: int, stop: int) -> Any:
        # an empty block gives the type where no row is read
        blocks = [np.empty((0, *first.shape[1:]), dtype)]
        k = bisect_right(ends, start)
        while start < stop:
            begin, end, array = ends[k] - arrays[k].shape[0], min(stop, ends[k]), arrays[k]
            rows = slice(start - begin, end - begin)
            in_file = isinstance(array, Dataset)
            blocks.append(array.read_rows(rows.start, rows.stop) if in_file else array[rows])
            start, k = end, k + 1
        return blocks[1] if len(blocks) == 2 else np.concatenate(blocks)

    where = first_and_more(getattr(array, "where", Origin()) for array in arrays)
    kind = np.result_type(*{getattr(array, "precision", array.dtype) for array in arrays})
    return Dataset(where, (ends[-1], *first.shape[1:]), dtype, read_rows, converted_from=kind)
