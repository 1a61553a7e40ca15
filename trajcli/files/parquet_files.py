"""Reading Parquet: columns of numbers, or of lists of equally many numbers, as arrays."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import InputError
from trajcli.files.arrays import Dataset, OpenFiles
from trajcli.files.file_bytes import open_regular
from trajcli.files.tables import Table
from trajcli.memory import TABLE_ROWS


class ParquetFile(Table):
    """A Parquet file; columns of lists are arrays [rows, D]. Needs pyarrow.

    A row group is read at a time, and the last one of every column stays in memory.
    """

    expected = "an intact Parquet file"

    def __init__(self, path: Path, pool: OpenFiles | None = None) -> None:
        super().__init__(path, "parquet", pool)
        try:
            import pyarrow as arrow
        except ImportError:
            raise InputError(
                "Parquet is read by pyarrow, which is not installed",
                where=str(path),
                hint="pip install pyarrow",
            ) from None
        self.failures = (arrow.ArrowException, OSError, ValueError, KeyError, MemoryError)
        self._types, self._edges = self.safely("", self._read_schema)
        self.columns = list(self._types)
        self.dates = [name for name, kind in self._types.items() if arrow.types.is_timestamp(kind)]

    def begin(self) -> _Handle:
        return _Handle(self.path)

    def _read_schema(self) -> tuple[dict[str, Any], Any]:
        """Returns the types of the columns, and the first row of each row group."""
        about = self.opened().file.metadata
        counts = [about.row_group(k).num_rows for k in range(about.num_row_groups)]
        schema = about.schema.to_arrow_schema()
        return dict(zip(schema.names, schema.types, strict=True)), np.cumsum([0, *counts])

    def scalar(self, name: str) -> bool:
        return not hasattr(self._types[name], "value_type")

    def numeric(self, name: str) -> bool:
        kind: str = str(self._types[name])
        return kind.startswith(("float", "double", "halffloat"))

    @cached_property
    def time_column(self) -> str | None:
        """LeRobot's stamps are those of the rate in meta/info.json, rounded."""
        return None if "frame_index" in self.columns else super().time_column

    def column(self, name: str) -> Dataset:
        where = f"{self.path}:{name}"
        rows = int(self._edges[-1])
        first = self._group(name, 0, where) if rows else np.zeros(0)
        inner, dtype = first.shape[1:], first.dtype
        if not inner:  # those are read as a whole
            self.pool.refuse_larger(rows * dtype.itemsize, where, "fewer rows in a file")

        def read_rows(start: int, stop: int) -> Any:
            parts = [np.zeros((0, *inner), dtype)]
            begin = int(np.searchsorted(self._edges, start, "right")) - 1
            for k in range(max(begin, 0), len(self._edges) - 1):
                if self._edges[k] >= stop:
                    break
                values = self._group(name, k, where)
                _check_even(values.shape[1:] == inner, where)
                low = int(self._edges[k])
                parts.append(values[max(start - low, 0) : stop - low])
            return np.concatenate(parts)

        unit = getattr(self._types[name], "unit", "")  # of stamps and durations
        about = {"units": unit} if unit else {}
        return Dataset(where, (rows, *inner), dtype, read_rows, about, "columns")

    def _group(self, name: str, number: int, where: str) -> Any:
        """Returns the values of a column in a row group; refuses what would unpack to too much."""
        import pyarrow as arrow

        def read() -> Any:
            handle = self.opened()
            if handle.last.get(name, (None,))[0] != number:
                parts, size = [], 0
                for batch in handle.file.iter_batches(TABLE_ROWS, [number], [name]):
                    parts.append(batch.column(0))
                    size += batch.nbytes
                    self.pool.refuse_larger(size, where, "smaller row groups: row_group_size")
                kind = handle.file.schema_arrow.field(name).type
                column = arrow.chunked_array(parts, kind).combine_chunks()
                handle.last[name] = number, _values(column, where)
            return handle.last[name][1]

        return self.safely(name, read, "numbers, or lists of them")


class _Handle:
    """An open Parquet file, and of each column the row group read last."""

    def __init__(self, path: Path) -> None:
        from pyarrow import parquet

        self._stream = open(open_regular(path), "rb")  # noqa: SIM115
        try:
            self.file = parquet.ParquetFile(self._stream)
        except BaseException:
            self._stream.close()
            raise
        self.last: dict[str, tuple[int, Any]] = {}

    def close(self) -> None:
        self.file.close()
        self._stream.close()
        self.last.clear()


def _values(column: Any, where: str) -> Any:
    """Returns a column as an array [rows], or [rows, D] of lists."""
    import pyarrow as arrow

    if column.null_count:
        raise InputError(
            "missing values", where=where, expected="a number in every row", found="nulls"
        )
    kind, types = column.type, arrow.types
    if types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind):
        flat = column.flatten()
        lengths = np.asarray(column.value_lengths())
        even = (lengths == lengths[:1]).all() and len(flat) == lengths.sum()
        _check_even(bool(even), where)
        return _values(flat, where).reshape(len(column), -1)
    if types.is_string(kind) or types.is_large_string(kind):
        return np.array(column.to_pylist(), np.str_)
    if types.is_timestamp(kind) or types.is_duration(kind):
        column = column.cast(arrow.int64())
        kind = column.type
    if not (types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind)):
        raise InputError(
            "not real numbers", where=where, expected="floats or integers", found=str(kind)
        )
    return column.to_numpy(zero_copy_only=False)


def _check_even(even: bool, where: str) -> None:
    if not even:
        raise InputError(
            "lists of different length", where=where, expected="as many numbers in every row"
        )
