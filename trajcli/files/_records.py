"""Records, one a row, as tables of their fields: arrays of structures and lists of dictionaries.

``{"t": 0, "q": [0.1, 0.2]}`` in every line is a column ``t`` and an array ``q`` [N, 2], as in a
table of text. Fields within fields are paths, ``header/stamp/sec``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import InputError, listed
from trajcli.files._csv_files import _values_of
from trajcli.files._tables import Table
from trajcli.files.catalogue import Catalogue, Dataset, OpenFiles
from trajcli.files.quantities import role
from trajcli.memory import SCANNED_BYTES

_JOINTS = ("name", "names", "joint_names")
# Of more arrays one of each name without its digits is looked at. Deepest and longest in messages.
_SEARCHED, _DEEPEST, _LISTED = 200, 64, 8


class Records(Table):
    """The records [N, ...] that lie at a path of a file, as a table of their fields."""

    def __init__(self, file: Catalogue, path: str, stored: Dataset) -> None:
        super().__init__(file.path, file.family, file.pool)
        self._file, self._prefix = file, f"{path}/" if path else ""
        self.about = stored.attributes
        self._fields = dict(_fields(stored, stored.dtype))
        self.columns = list(self._fields)
        self.dates = [name for name, field in self._fields.items() if "units" in field.attributes]

    def place(self, name: str = "") -> Any:
        return self._file.place(f"{self._prefix}{name}".rstrip("/"))

    def column(self, name: str) -> Dataset:
        return self._fields[name]

    def numeric(self, name: str) -> bool:
        return self.scalar(name) and self._fields[name].dtype.kind == "f"

    def scalar(self, name: str) -> bool:
        return self._fields[name].ndim == 1

    def _column(self, name: str) -> list[str]:
        # an option names a column by its path in the file
        return super()._column(name.removeprefix(self._prefix))


class RecordFile(Catalogue):
    """A file in which arrays may be of records, whose fields lie in a group of the array's name."""

    def __init__(self, path: Path, family: str, pool: OpenFiles | None = None) -> None:
        super().__init__(path, family, pool)
        self._tables: dict[str, Records | None] = {}

    def records(self, path: str) -> Records | None:
        """Returns the records at a path as a table; None where there are none."""
        if path not in self._tables:
            stored = super().get(path)
            known = stored is not None and stored.ndim and stored.dtype.names
            self._tables[path] = Records(self, path, stored) if stored and known else None
        return self._tables[path]

    def get(self, name: str) -> Dataset | None:
        name = name.strip("/")
        stored = super().get(name)
        if stored is not None:
            return None if stored.ndim and stored.dtype.names else stored
        above, rest = name, ""
        while above:
            above, _, last = above.rpartition("/")
            rest = f"{last}/{rest}".rstrip("/")
            if above in self.listed:  # a group of HDF5, which is no field
                return None
            if (table := self.records(above)) is not None:
                return table.get(rest)
        return None

    def match(self, pattern: str, groups: bool = False) -> list[str]:
        above, _, last = pattern.strip("/").rpartition("/")
        if "*" in pattern and not groups:
            paths = super().match(above, groups=True) if "*" in above else [above]
            if tables := [path for path in paths if self.records(path) is not None]:
                named = [f"{path}/{last}".strip("/") for path in tables]
                return [path for path in named if self.require(path)]
        return super().match(pattern, groups)

    def with_fields(self, names: Sequence[str]) -> list[str]:
        """Returns the names of arrays, with those of the fields in place of arrays of records."""
        plain, found = set[str](), list[str]()
        for name in names:
            kind, table = re.sub(r"\d+", "", name) if len(names) > _SEARCHED else name, None
            with suppress(InputError):  # raised where the array is used
                table = None if kind in plain else self.records(name)
            plain |= set() if table else {kind}
            found += [f"{name}/{x}".lstrip("/") for x in table.names()] if table else [name]
        return found


def _fields(stored: Dataset, kind: np.dtype[Any], *keys: str) -> Iterator[tuple[str, Dataset]]:
    """Yields the fields of records [N] by path: [N], or [N, D] of arrays; dates in nanoseconds."""
    for name in kind.names or ():
        item, inner, path = kind[name].base, kind[name].shape, (*keys, name)
        if item.names and not inner:
            yield from _fields(stored, item, *path)
        elif item.kind in "fiubMSU":
            shape = (*stored.shape, *([int(np.prod(inner))] if inner else []))
            dated, about = item.kind == "M", {"units": "ns"} if item.kind == "M" else item.metadata
            read, dtype = partial(_rows, stored, path, shape[1:], dated), np.dtype(np.int64)
            field = replace(stored, shape=shape, reader=read, attributes=about or {})
            yield "/".join(path), replace(field, dtype=dtype if dated else item)


def _rows(
    stored: Dataset, path: Sequence[str], inner: tuple[int, ...], dated: bool, start: int, stop: int
) -> Any:
    """Reads a field of some rows, while all fields of a few of them are in memory."""
    start, stop, _ = slice(start, stop).indices(stored.shape[0])
    step = max(1, SCANNED_BYTES * max(1, stored.shape[0]) // max(1, stored.nbytes))
    starts = range(start, max(stop, start + 1), step)
    parts = [stored.read_rows(k, max(start, min(k + step, stop))) for k in starts]
    values = np.concatenate([reduce(getitem, path, part) for part in parts])
    values = values.astype("M8[ns]").astype(np.int64) if dated else values
    return values.reshape(len(values), *inner)


def record_array(records: Sequence[Any], most: int) -> tuple[Any, str] | None:
    """Returns dictionaries as an array of records [N], and a note on what is left out; None for a
    list of others.

    What a record lacks, and null, is NaN. Values that are lists of lists, or of different lengths,
    make them trajectories, not rows, unless a field says the time. most: the most values, as YAML's
    aliases can repeat a few of them any number of times.
    """
    if len(records) < 2 or not all(isinstance(record, dict) for record in records):
        return None
    cells: dict[str, dict[int, Any]] = {}
    count = 0
    for row, record in enumerate(records):
        for path, value in leaves(record):
            cells.setdefault(path, {})[row] = value
            count += innermost(value, most - count)[1]
    if not cells or len(cells) * len(records) > most:
        return None
    columns = {path: _column(found, len(records), most) for path, found in cells.items()}
    known = {path: x for path, x in columns.items() if x is not None}
    left = [path for path in columns if path not in known]
    timed = any(role(path) == "time" and x.ndim == 1 for path, x in known.items())
    if not known or not (timed or (not left and all(x.ndim < 3 for x in known.values()))):
        return None
    for path, texts in list(known.items()):
        if texts.dtype.kind == "U" and texts.ndim == 1:
            values, about = _values_of(texts.tolist())
            known[path] = values.astype("M8[ns]") if about and values.dtype.kind == "i" else values
        elif texts.dtype.kind == "U" and path.rpartition("/")[2] in _JOINTS:
            _sort_joints(known, path)
    known = {path: x.reshape(len(x), -1) if x.ndim > 1 else x for path, x in known.items()}
    array = np.empty(len(records), [(path, x.dtype, x.shape[1:]) for path, x in known.items()])
    for path, column in known.items():
        array[path] = column
    left_out = f"left out, as their values are no columns: {listed(left, _LISTED)}"
    return array, left_out if left else ""


def leaves(record: Mapping[Any, Any], path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yields the values of a dictionary and of those in it by path."""
    if depth > _DEEPEST:
        raise ValueError(f"more than {_DEEPEST} dictionaries within each other")
    for key, value in record.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{path}{key}/", depth + 1)
        else:
            yield f"{path}{key}", value


def innermost(value: Any, most: int) -> tuple[Any, int]:
    """Returns the first value in lists within each other, and how many there are. Raises ValueError
    for more than ``most``: YAML's aliases repeat lists, and can lead back."""
    count, depth = 1, 0
    while isinstance(value, list) and value and count <= most and depth <= _DEEPEST:
        count, depth, value = count * len(value), depth + 1, value[0]
    if count > most or depth > _DEEPEST:
        raise ValueError("lists of more values than the file has bytes")
    return value, count


def _column(cells: Mapping[int, Any], count: int, most: int) -> Any:
    """Returns values by row as an array [count, ...], with NaN or "" in other rows; None for values
    of several kinds or lengths, and for texts so long that an array would take far more memory."""
    filled = {row: value for row, value in cells.items() if value is not None and value != []}
    text = isinstance(innermost(next(iter(filled.values()), 0.0), most)[0], str)
    if text and max(len(str(value)) for value in filled.values()) * count > 4 * most:
        return None
    try:
        values = np.array(list(filled.values()), None if filled else np.float64)
        # null within lists, or integers of more than 64 bits
        values = values.astype(np.float64) if values.dtype.kind == "O" else values
    except (ValueError, TypeError, OverflowError):
        return None
    if (values.dtype.kind == "U") != text or len(filled) == count:
        return values if (values.dtype.kind == "U") == text else None
    kind = values.dtype if text else np.dtype(np.float64)
    array = np.full((count, *values.shape[1:]), "" if text else np.nan, kind)
    array[list(filled)] = values
    return array


def _sort_joints(columns: dict[str, Any], path: str) -> None:
    """Sorts arrays beside a column of names [N, D], which may come in any order, by those of the
    first record, which they then state; removes the column."""
    names, folder = columns.pop(path), path.rpartition("/")[0]
    kinds, which = np.unique(names, axis=0, return_inverse=True)
    first, sets = names[0].tolist(), kinds.tolist()
    if other := next((x for x in sets if sorted(x) != sorted(first)), None):
        raise ValueError(f"records of other joints in {path}: {', '.join(other)}")
    orders = np.array([[other.index(name) for name in first] for other in sets])[which.ravel()]
    for name, column in columns.items():
        beside = name.rpartition("/")[0] == folder and column.shape == names.shape
        if beside and column.dtype.kind != "U":
            kind = np.dtype(column.dtype, metadata={"joint_names": first})
            columns[name] = np.take_along_axis(column, orders, 1).astype(kind)
