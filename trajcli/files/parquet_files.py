"""Reading Parquet: columns of numbers, or of lists of equally many numbers, as arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import ArrayFile, StoredArray, unreadable

SIGNATURE = b"PAR1"


class ParquetFile(ArrayFile):
    """A Parquet file; its columns are arrays [rows] or [rows, D]. Needs pyarrow.

    A row group is read at a time, and the last one kept.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "parquet")
        try:
            import pyarrow as arrow
            from pyarrow import parquet
        except ImportError:
            hint = "pip install pyarrow"
            what = "Parquet is read by pyarrow, which is not installed"
            raise InputError(Fault(what, str(path), hint=hint)) from None
        self._faults = (arrow.ArrowException, OSError, ValueError, KeyError, MemoryError)
        try:
            self._file = parquet.ParquetFile(path, memory_map=False)
            self._schema = self._file.schema_arrow
            counts = [
                self._file.metadata.row_group(k).num_rows for k in range(self._file.num_row_groups)
            ]
        except self._faults as error:
            raise InputError(unreadable(path, "an intact Parquet file", error)) from None
        self._edges = np.cumsum([0, *counts])
        self._last: tuple[str, int, Any] | None = None

    def names(self) -> list[str]:
        return list(self._schema.names)

    def children(self, group: str = "") -> list[str]:
        return [] if group.strip("/") else self.names()

    def get(self, name: str) -> StoredArray | None:
        if name.strip("/") not in self._schema.names:
            return None
        name = name.strip("/")
        where = f"{self.path}:{name}"
        rows = int(self._edges[-1])
        first = self._group(name, 0, where) if rows else np.zeros(0)

        def read_rows(start: int, stop: int) -> Any:
            parts = [first[:0]]
            begin = int(np.searchsorted(self._edges, start, "right")) - 1
            for k in range(max(begin, 0), len(self._edges) - 1):
                if self._edges[k] >= stop:
                    break
                values = self._group(name, k, where)
                if values.shape[1:] != first.shape[1:]:
                    raise InputError(_uneven(where))
                low = int(self._edges[k])
                parts.append(values[max(start - low, 0) : stop - low])
            return np.concatenate(parts)

        return StoredArray(
            where, (rows, *first.shape[1:]), first.dtype, read_rows, storage="columns"
        )

    def close(self) -> None:
        self._file.close()

    def _group(self, name: str, number: int, where: str) -> Any:
        """The values of a column in a row group."""
        if self._last is not None and self._last[:2] == (name, number):
            return self._last[2]
        try:
            column = self._file.read_row_group(number, columns=[name]).column(0)
            values = _values(column.combine_chunks(), where)
        except self._faults as error:
            raise InputError(unreadable(where, "numbers, or lists of them", error)) from None
        self._last = (name, number, values)
        return values


def _values(column: Any, where: str) -> Any:
    """A column as an array [rows], or [rows, D] of lists."""
    import pyarrow as arrow

    if isinstance(column, arrow.ChunkedArray):
        column = arrow.concat_arrays(column.chunks)
    if column.null_count:
        raise InputError(Fault("missing values", where, "a number in every row", "nulls"))
    kind = column.type
    if arrow.types.is_fixed_size_list(kind) or arrow.types.is_list(kind) or (
        arrow.types.is_large_list(kind)
    ):  # fmt: skip
        flat = column.flatten()
        if len(column) and len(flat) % len(column):
            raise InputError(_uneven(where))
        lengths = np.asarray(column.value_lengths())
        if len(lengths) and (lengths != lengths[0]).any():
            raise InputError(_uneven(where))
        inner = _values(flat, where)
        return inner.reshape(len(column), -1)
    if not (arrow.types.is_floating(kind) or arrow.types.is_integer(kind)
            or arrow.types.is_boolean(kind)):  # fmt: skip
        raise InputError(Fault("not real numbers", where, "floats or integers", str(kind)))
    return column.to_numpy(zero_copy_only=False)


def _uneven(where: str) -> Fault:
    return Fault("lists of different length", where, "as many numbers in every row")
