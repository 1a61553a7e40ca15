"""Reading Parquet: columns of numbers, or of lists of equally many numbers, as arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import ArrayFile, Dataset


class ParquetFile(ArrayFile):
    """A Parquet file; its columns are arrays [rows] or [rows, D]. Needs pyarrow.

    A row group is read at a time, and the last one of every column stays in memory.
    """

    expected = "an intact Parquet file"

    def __init__(self, path: Path) -> None:
        super().__init__(path, "parquet")
        try:
            import pyarrow as arrow
        except ImportError:
            what = "Parquet is read by pyarrow, which is not installed"
            raise InputError(Fault(what, str(path), hint="pip install pyarrow")) from None
        self.failures = (arrow.ArrowException, OSError, ValueError, KeyError, MemoryError)
        self._datasets: dict[str, Dataset] = {}
        self._columns, counts = self.safely("", self._contents)
        self._edges = np.cumsum([0, *counts])

    def begin(self) -> _Handle:
        return _Handle(self.path)

    def _contents(self) -> tuple[list[str], list[int]]:
        """The columns, and the rows of each row group."""
        file = self.opened().file
        groups = (file.metadata.row_group(k) for k in range(file.num_row_groups))
        return list(file.schema_arrow.names), [group.num_rows for group in groups]

    def names(self) -> list[str]:
        return list(self._columns)

    def children(self, group: str = "") -> list[str]:
        return [] if group.strip("/") else self.names()

    def get(self, name: str) -> Dataset | None:
        name = name.strip("/")
        if name in self._columns and name not in self._datasets:
            self._datasets[name] = self._described(name)
        return self._datasets.get(name)

    def _described(self, name: str) -> Dataset:
        where = f"{self.path}:{name}"
        rows = int(self._edges[-1])
        first = self._group(name, 0, where) if rows else np.zeros(0)
        inner, dtype = first.shape[1:], first.dtype

        def read_rows(start: int, stop: int) -> Any:
            parts = [np.zeros((0, *inner), dtype)]
            begin = int(np.searchsorted(self._edges, start, "right")) - 1
            for k in range(max(begin, 0), len(self._edges) - 1):
                if self._edges[k] >= stop:
                    break
                values = self._group(name, k, where)
                if values.shape[1:] != inner:
                    raise InputError(_uneven(where))
                low = int(self._edges[k])
                parts.append(values[max(start - low, 0) : stop - low])
            return np.concatenate(parts)

        return Dataset(where, (rows, *inner), dtype, read_rows, storage="columns")

    def _group(self, name: str, number: int, where: str) -> Any:
        """The values of a column in a row group."""

        def read() -> Any:
            handle = self.opened()
            if handle.last.get(name, (None,))[0] != number:
                column = handle.file.read_row_group(number, columns=[name]).column(0)
                handle.last[name] = number, _values(column.combine_chunks(), where)
            return handle.last[name][1]

        return self.safely(name, read, "numbers, or lists of them")


class _Handle:
    """An open Parquet file, and of each column the row group read last."""

    def __init__(self, path: Path) -> None:
        from pyarrow import parquet

        self.file = parquet.ParquetFile(path, memory_map=False)
        self.last: dict[str, tuple[int, Any]] = {}

    def close(self) -> None:
        """Close it."""
        self.file.close()
        self.last.clear()


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
