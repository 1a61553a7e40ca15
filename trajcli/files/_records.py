"""Reads records as tables of their fields: arrays of structures and lists of dictionaries.

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

from trajcli.errors import InputError, join_names
from trajcli.files._csv_files import parse_column
from trajcli.files._tables import Table
from trajcli.files.catalogue import Catalogue, Dataset, OpenFiles
from trajcli.files.quantities import role
from trajcli.files.source import Place
from trajcli.memory import SCANNED_BYTES

_JOINTS = ("name", "names", "joint_names")
# A file of more arrays has many with the same fields: one of each name without digits is looked at.
_SEARCHED = 200
# The deepest nesting, and how many names a message lists.
_DEEPEST, _LISTED = 64, 8


class Records(Table):
    """The records [N, ...] that lie at a path of a file, as a table of their fields."""

    def __init__(self, file: Catalogue, path: str, stored: Dataset) -> None:
        super().__init__(file.path, file.pool)
        self.family = file.family
        self._file, self._prefix = file, f"{path}/" if path else ""
        self.about = stored.attributes
        self._fields = dict(_find_fields(stored, stored.dtype))
        self.columns = list(self._fields)
        self.dates = [name for name, field in self._fields.items() if "units" in field.attributes]

    def place(self, name: str = "") -> Place:
        return self._file.place(f"{self._prefix}{name}".rstrip("/"))

    def column(self, name: str) -> Dataset:
        return self._fields[name]

    def is_numeric(self, name: str) -> bool:
        return self.is_scalar(name) and self._fields[name].dtype.kind == "f"

    def is_scalar(self, name: str) -> bool:
        return self._fields[name].ndim == 1

    def _find_column(self, name: str) -> list[str]:
        # an option names a column by its path in the file
        return super()._find_column(name.removeprefix(self._prefix))


class RecordFile(Catalogue):
    """A file in which arrays may be of records; the array is then a group of its fields."""

    def __init__(self, path: Path, pool: OpenFiles | None = None) -> None:
        super().__init__(path, pool)
        self._tables: dict[str, Records | None] = {}

    def records(self, path: str) -> Records | None:
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
        # the table is the nearest path above the name that is an array of records
        path, field = name, ""
        while path:
            path, _, last = path.rpartition("/")
            field = f"{last}/{field}".rstrip("/")
            if path in self.known_children:  # a group of HDF5, which is no array of records
                return None
            if (table := self.records(path)) is not None:
                return table.get(field)
        return None

    def match(self, pattern: str, groups: bool = False) -> list[str]:
        # a pattern of fields means dofs of one array: the table itself looks them up
        parent, _, last = pattern.strip("/").rpartition("/")
        if "*" in pattern and not groups:
            paths = super().match(parent, groups=True) if "*" in parent else [parent]
            if tables := [path for path in paths if self.records(path) is not None]:
                arrays = [f"{path}/{last}".strip("/") for path in tables]
                return [path for path in arrays if self.require(path)]
        return super().match(pattern, groups)

    def expand_records(self, names: Sequence[str]) -> list[str]:
        """Replaces the names of arrays of records by those of their fields."""
        # the kinds of arrays, by name without digits, that have been looked at and are no records
        plain, paths = set[str](), list[str]()
        for name in names:
            kind, table = re.sub(r"\d+", "", name) if len(names) > _SEARCHED else name, None
            with suppress(InputError):  # raised where the array is used
                table = None if kind in plain else self.records(name)
            plain |= set() if table else {kind}
            paths += [f"{name}/{x}".lstrip("/") for x in table.names()] if table else [name]
        return paths


def _find_fields(stored: Dataset, kind: np.dtype[Any], *keys: str) -> Iterator[tuple[str, Dataset]]:
    """Yields the fields of records [N] by path: [N], or [N, D] of arrays; dates in nanoseconds."""
    for name in kind.names or ():
        item, inner, path = kind[name].base, kind[name].shape, (*keys, name)
        if item.names and not inner:
            yield from _find_fields(stored, item, *path)
        elif item.kind in "fiubMSU":
            shape = (*stored.shape, *([int(np.prod(inner))] if inner else []))
            dated = item.kind == "M"
            read = partial(_read_field, stored, path, shape[1:], dated)
            about = {"units": "ns"} if dated else item.metadata or {}
            dtype = np.dtype(np.int64) if dated else item
            field = replace(stored, shape=shape, dtype=dtype, reader=read, attributes=about)
            yield "/".join(path), field


def _read_field(
    stored: Dataset, path: Sequence[str], inner: tuple[int, ...], dated: bool, start: int, stop: int
) -> Any:
    # in steps that hold all fields of few records in memory
    start, stop, _ = slice(start, stop).indices(stored.shape[0])
    step = max(1, SCANNED_BYTES * max(1, stored.shape[0]) // max(1, stored.nbytes))
    starts = range(start, max(stop, start + 1), step)
    parts = [stored.read_rows(k, max(start, min(k + step, stop))) for k in starts]
    values = np.concatenate([reduce(getitem, path, part) for part in parts])
    values = values.astype("M8[ns]").astype(np.int64) if dated else values
    return values.reshape(len(values), *inner)


def record_array(records: Sequence[Any], most: int) -> tuple[Any, str] | None:
    """Converts dictionaries to records [N], with a note on what is left out; else gives None."""
    if len(records) < 2 or not all(isinstance(record, dict) for record in records):
        return None
    cells, count = dict[str, dict[int, Any]](), 0
    for row, record in enumerate(records):
        for path, value in leaves(record):
            cells.setdefault(path, {})[row] = value
            count += innermost(value, most - count)[1]
    # records of different fields would make a table of mostly NaN, far larger than the file
    if not cells or len(cells) * len(records) > most:
        return None
    columns = {path: _column(values, len(records), most) for path, values in cells.items()}
    known = {path: x for path, x in columns.items() if x is not None}
    left = [path for path in columns if path not in known]
    # Dictionaries with a time are rows, even if some of their fields cannot be columns. Without a
    # time they may be trajectories, whose values are lists of lists or differ in length.
    timed = any(role(path) == "time" and x.ndim == 1 for path, x in known.items())
    if not known or not (timed or (not left and all(x.ndim < 3 for x in known.values()))):
        return None
    for path, texts in list(known.items()):
        if texts.dtype.kind == "U" and texts.ndim == 1:
            values, about = parse_column(texts.tolist())
            known[path] = values.astype("M8[ns]") if about and values.dtype.kind == "i" else values
        elif texts.dtype.kind == "U" and path.rpartition("/")[2] in _JOINTS:
            # Each record may have its joints in another order. The arrays next to the names [N, D]
            # are sorted as those of the first record, and state them as metadata of their type.
            names, folder = known.pop(path), path.rpartition("/")[0]
            kinds, numbers = np.unique(names, axis=0, return_inverse=True)
            first, sets = names[0].tolist(), kinds.tolist()
            if other := next((x for x in sets if sorted(x) != sorted(first)), None):
                raise ValueError(f"records of other joints in {path}: {', '.join(other)}")
            order = np.array([[x.index(name) for name in first] for x in sets])[numbers.ravel()]
            for name, column in known.items():
                is_neighbour = name.rpartition("/")[0] == folder and column.shape == names.shape
                if is_neighbour and column.dtype.kind != "U":
                    kind = np.dtype(column.dtype, metadata={"joint_names": first})
                    known[name] = np.take_along_axis(column, order, 1).astype(kind)
    known = {path: x.reshape(len(x), -1) if x.ndim > 1 else x for path, x in known.items()}
    array = np.empty(len(records), [(path, x.dtype, x.shape[1:]) for path, x in known.items()])
    for path, column in known.items():
        array[path] = column
    left_out = f"left out, as their values are no columns: {join_names(left, _LISTED)}"
    return array, left_out if left else ""


def leaves(record: Mapping[Any, Any], path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    if depth > _DEEPEST:
        raise ValueError(f"more than {_DEEPEST} dictionaries within each other")
    for key, value in record.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{path}{key}/", depth + 1)
        else:
            yield f"{path}{key}", value


def innermost(value: Any, most: int) -> tuple[Any, int]:
    """Finds the first value in nested lists, and counts values by the first of each list."""
    # not more than ``most``: YAML's aliases repeat lists, and can lead back
    count, depth = 1, 0
    while isinstance(value, list) and value and count <= most and depth <= _DEEPEST:
        count, depth, value = count * len(value), depth + 1, value[0]
    if count > most or depth > _DEEPEST:
        raise ValueError("lists of more values than the file has bytes")
    return value, count


def _column(cells: Mapping[int, Any], count: int, most: int) -> Any:
    """Makes an array [count, ...] of values by row, with NaN or "" elsewhere; None if uneven."""
    filled = {row: value for row, value in cells.items() if value is not None and value != []}
    text = isinstance(innermost(next(iter(filled.values()), 0.0), most)[0], str)
    # an array gives each text the length of the longest, and may take far more than the file
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
