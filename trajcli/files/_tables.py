"""Reads tables: columns of one family are one array, one column is the time, one the trajectory.

``t, position/elbow, position/wrist`` and ``timestamp, q0, q1`` are times [N] and an array [N, 2].
Where no columns are of a family, all that are numbers are one array, ``data``.
"""

from __future__ import annotations

import fnmatch
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError, Note, join_names
from trajcli.files.catalogue import Catalogue, Dataset, OpenFiles, import_library
from trajcli.files.file_bytes import open_regular
from trajcli.files.quantities import POSITIONS, last_word, motion_rank, role, split_unit, time_rank
from trajcli.files.source import Place, parse_source
from trajcli.memory import TABLE_ROWS

TRAJECTORIES = ("trajectory", "episode", "episode_index", "episode_id", "traj_id", "episode_idx",
                "episode_ids", "traj_ids", "traj_idx", "traj_index", "trajectory_id")  # fmt: skip
"""Names of the column that tells the trajectory of each row."""
ARRAYS = ("actions", "action", "position", "velocity", "acceleration", "jerk")
"""Names of arrays that may have a single column."""
_WORDS = {"pos": "position", "positions": "position", "vel": "velocity", "velocities": "velocity",
          "acc": "acceleration", "accel": "acceleration"}  # fmt: skip
_WORDS |= zip(ARRAYS, ARRAYS, strict=True)
_WORD = "|".join(_WORDS)
_KNOWN = (*ARRAYS, *POSITIONS)
# Endings of the two columns of a stamp in whole seconds and nanoseconds.
_SECONDS, _NANOSECONDS = ("sec", "secs"), ("nsec", "nsecs", "nanosec", "nanosecs")
# Names of columns that tell the joint, or the publisher, whose values a row has.
_OWNERS = "(joint|motor|dof|link|actuator|servo|topic)s?(_?(name|id|index))?|names?\\d*|" \
          "id|can_?id|(child_)?frame_id"  # fmt: skip
# Columns next to numbered joints that are joints, too; and next to x, y, z those of a pose.
_JOINTS = r".*(joint|gripper|finger|hand|jaw|lift|rail|slider).*|.*\d"
_POSE = r"(.*[_.])?(q?[wxyz]|roll|pitch|yaw|theta)|" + _JOINTS
_LISTED = 8
DATA = "data"


class Table(Catalogue):
    """A file of columns."""

    columns: Sequence[str]
    # columns whose values are times, such as dates: they are the time where no name says it
    dates: Sequence[str] = ()
    fractional: Sequence[str] = ()  # columns of numbers that are not whole, and so count nothing
    remarks: Sequence[str] = ()
    copies: Mapping[str, str] = {}  # columns whose name a column before them has, with that name

    @abstractmethod
    def column(self, name: str) -> Dataset:
        """Reads a column, [N] or [N, D]."""

    @abstractmethod
    def is_numeric(self, name: str) -> bool:
        """Whether a column has one number in a row that may be a value of a trajectory."""

    def is_scalar(self, name: str) -> bool:
        return True

    @cached_property
    def families(self) -> dict[str, list[str]]:
        """The columns of each array, by their names; a single column has its own name."""
        lone = self._lone_columns | {name for name in self.columns if not self.is_scalar(name)}
        lone_names = set(map(_strip_unit, lone))
        parts, families = dict[str, list[str]](), dict[str, list[str]]()
        for name in self.columns:
            array, plain = _split_name(name)[0], _strip_unit(name)
            if name in self.copies:
                array = f"{_split_name(self.copies[name])[0]}.{plain.rpartition('.')[2]}"
            # an array must not have the name of a column that is no part of it
            if name in lone or array in lone_names:
                array = name if name in self._stamp_pair else plain
            parts.setdefault(array.lstrip("/"), []).append(name)
        for array, columns in parts.items():
            single = not columns[1:] and array not in ARRAYS
            families[_strip_unit(columns[0]).lstrip("/") if single else array] = columns
        return families

    def motion(self) -> tuple[str, str]:
        moving = [c for c in self._dofs if motion_rank(_strip_unit(c)) < 2
                  and not (self.fractional and c not in self.fractional)]  # fmt: skip
        arrays = {array: names for array, names in self.families.items()
                  if names[1:] and {*names} <= {*self._dofs} and {*names} & {*moving}}  # fmt: skip
        if len(arrays) != 1 or not all(map(self.is_scalar, self.columns)):
            return "", ""
        ((array, names),) = arrays.items()
        rest = [name for name in self._dofs if name not in names]
        others = [last_word(name) for name in moving if name in rest]
        # Numbered joints are the motion whatever lies next to them, unless that may be a joint
        # without a number. x, y, z are, unless the rest of a pose, or more than they, is there.
        digits = all(re.search(r"\d\]?$", _strip_unit(name)) for name in names)
        similar = any(re.fullmatch(_JOINTS if digits else _POSE, name) for name in others)
        if not rest or similar or not (digits or len(others) <= len(names)):
            return "", ""
        return array, f", and {join_names(map(_strip_unit, rest), _LISTED)} left out"

    @cached_property
    def groups(self) -> dict[str, list[str]]:
        """The arrays by name, with their columns: families, or all numbers as ``data``."""
        dofs = set(self._dofs)
        families = {array: names for array, names in self.families.items() if set(names) <= dofs}
        # Names that are known, or shared by columns, say which columns are one array. Where every
        # column has a name of its own, each is taken as a dof.
        several = sum(len(names) > 1 for names in families.values())
        known = any(array.rpartition("/")[2] in _KNOWN for array in self.families)
        scalars = all(map(self.is_scalar, self.columns))
        if known or several > 1 or len(families) < 2 or not scalars or self.motion()[0]:
            return self.families
        others = {a: names for a, names in self.families.items() if a not in families}
        return {**others, DATA: self._dofs}

    @cached_property
    def _dofs(self) -> list[str]:
        return [c for c in self.columns if self.is_numeric(c) and c not in self._lone_columns]

    @cached_property
    def _lone_columns(self) -> set[str]:
        """The columns that are part of no array: times, trajectories and counts of rows."""
        names = {self.time_column, self.trajectory_column, *self._stamp_pair}
        # an option may name the time by a path of this file
        clock = self.pool.reading.clock
        for source in (parse_source(text, attributes=True) for text in clock if ":" in text):
            if source.path == self.path:
                names |= {*self._find_column((source.dataset or "").strip("/"))}
        for name in self.columns:
            kind = role(self.copies.get(name, name))
            if kind and not (kind == "count" and name in self.fractional):
                names.add(name)
        return {name for name in names if name is not None}

    @cached_property
    def time_column(self) -> str | None:
        """The column of time stamps, or of their seconds."""
        ranked = sorted((c for c in self.columns if role(c) == "time"), key=time_rank)
        return next(iter((*self._stamp_pair, *ranked, *self.dates)), None)

    @cached_property
    def _stamp_pair(self) -> tuple[str, ...]:
        """Two columns of seconds and nanoseconds, stamp_sec and stamp_nsec; or none."""
        lower = {name.lower(): name for name in self.columns}
        for name in lower:
            stem = re.sub(f"({'|'.join(reversed(_SECONDS))})$", "", name)
            second = next((lower[stem + end] for end in _NANOSECONDS if stem + end in lower), None)
            if stem != name and second is not None:
                return lower[name], second
        return ()

    @cached_property
    def trajectory_column(self) -> str | None:
        words = [re.split(r"[./]", name.lower())[-1] for name in self.columns]
        word = next((name for name in TRAJECTORIES if name in words), None)
        return None if word is None else self.columns[words.index(word)]

    def names(self) -> list[str]:
        return list(self.groups)

    def match(self, pattern: str, groups: bool = False) -> list[str]:
        # the columns that a pattern matches are dofs of one array
        if not groups:
            self.require(pattern)
        return [] if groups else [pattern.strip("/")]

    def missing(self, name: str, names: Sequence[str] | None = None) -> Fault:
        return super().missing(name, names or list(dict.fromkeys([*self.groups, *self.columns])))

    def _find_columns(self, name: str) -> list[str]:
        """Finds the columns of an array, of a column, or of several: a,b,*_joint."""
        # a pattern matches dofs alone, and the time is none of several columns
        if name in self.columns:
            return [name]
        if known := self.groups.get(name) or self.families.get(name) or self._find_column(name):
            return known
        if "," in name:
            parts = [self._find_columns(part.strip("/ ")) for part in name.split(",")]
            clock = () if self.pool.reading.clock else (self.time_column, *self._stamp_pair)
            return [c for part in parts for c in part if c not in clock] if all(parts) else []
        if "*" not in name:
            return []
        return [c for c in self._dofs if fnmatch.fnmatchcase(_strip_unit(c).lstrip("/"), name)]

    def _find_column(self, name: str) -> list[str]:
        """Finds the one column of a name with its unit or without, if there is one."""
        exact = [column for column in (name, f"/{name}") if column in self.columns]
        plain = self._plain_names.get(name, [])
        return exact[:1] or (plain if len(plain) == 1 else [])

    @cached_property
    def _plain_names(self) -> dict[str, list[str]]:
        plain: dict[str, list[str]] = {}
        for column in self.columns:
            plain.setdefault(_strip_unit(column).lstrip("/"), []).append(column)
        return plain

    def find(self, name: str) -> Dataset | None:
        """Looks up an array by its name, a column, or several columns as one array."""
        if name in ("times", "time") and self.time_column and name not in self.groups:
            return self._read_times(self.time_column)
        steps = [c for c in self.columns if role(c) == "step"] if name == "dt" else []
        columns = steps[:1] or self._find_columns(name)
        if not columns or (columns[1:] and not all(map(self.is_scalar, columns))):
            return None  # columns of lists are joined as arrays are, by joined_arrays
        where, parts = self.place(name), [self.column(column) for column in columns]
        units = [split_unit(column)[1].replace(",", " ") for column in columns]
        about = dict(parts[0].attributes)
        if any(units):
            about["units"] = units[0] if len(set(units)) == 1 else ",".join(units)
        alone = len(columns) == 1 and columns[0] in self._lone_columns
        if not alone and parts[0].dtype.kind == "f" and self._alternation is not None:
            raise InputError(self._alternation)
        # a single column stays [N], not [N, 1], if it is a time, an index or texts
        index = len(parts) == 1 and parts[0].dtype.kind != "f"
        if alone or index or not self.is_scalar(columns[0]):
            return replace(parts[0], where=where, attributes=about)
        lone = len(columns) == 1 and (name in ARRAYS or role(columns[0]))
        if not lone and not all(re.fullmatch(r"data\d+", column) for column in columns):
            dofs = [_split_name(self.copies.get(column, column))[1] for column in columns]
            unique = len(set(dofs)) == len(dofs)
            about["joint_names"] = dofs if unique else list(map(_strip_unit, columns))
        dtype = np.result_type(*(part.require_numeric().dtype for part in parts))

        def read_rows(start: int, stop: int) -> Any:
            return np.stack([part.read_rows(start, stop) for part in parts], 1, dtype=dtype)

        shape = (parts[0].shape[0], len(parts))
        stored = Dataset(where, shape, dtype, read_rows, about, "columns")
        remarks = dict.fromkeys(remark for part in parts for remark in part.remarks)
        return replace(stored, remarks=[*self._collect_remarks(name, columns, stored), *remarks])

    @cached_property
    def _alternation(self) -> Fault | None:
        """The fault of rows of different joints in turns, by a column of the names of joints."""
        for name in self.columns:
            if not re.fullmatch(_OWNERS, last_word(name)) or name == self.trajectory_column:
                continue
            values = np.ravel(self.column(name).read())
            kinds, first = np.unique(values, return_index=True)
            order, count = values[np.sort(first)], len(kinds)
            runs = 1 + np.count_nonzero(values[1:] != values[:-1])
            # Texts may be phases of a task, too, which follow each other in long runs. Numbers of
            # joints come in one order over and over; positions of a servo do not.
            if values.dtype.kind in "US":
                turns = "0" <= name[-1] <= "9" or count < runs >= len(values) // 2
            else:
                turns = count < runs and (values == np.resize(order, len(values))).all()
            if turns and 1 < count <= len(values) // 2:
                return Fault(
                    "rows of different joints in turns",
                    where=f"{self.path}:{name}",
                    expected="a column for each joint, and one time in a row",
                    found=", ".join(map(str, order[:4])),
                    hint=self.hint_at_rows(name, order[0].item()),
                )
        return None

    def hint_at_rows(self, column: str, value: object) -> str:
        return f"write the rows with {column} = {value} to a file of their own"

    def _read_times(self, column: str) -> Dataset:
        where, stored = self.place(column), self.column(column)
        if column not in self._stamp_pair:
            unit = split_unit(column)[1]
            about = dict(stored.attributes) | ({"units": unit} if unit else {})
            return replace(stored, where=where, attributes=about)
        low = self.column(self._stamp_pair[1])

        def read_rows(start: int, stop: int) -> Any:
            parts = (part.read_rows(start, stop).astype(np.int64) for part in (stored, low))
            # in integers: float64 holds stamps since 1970 only to 0.2 µs
            return next(parts) * 10**9 + next(parts)

        dtype = np.dtype(np.int64)
        return Dataset(where, stored.shape, dtype, read_rows, {"units": "ns"}, "columns")

    def _collect_remarks(self, name: str, taken: Sequence[str], stored: Dataset) -> list[str]:
        remarks = list(self.remarks)
        columns = self.groups.get(name, [])
        if name == DATA and columns[1:]:
            names = join_names(map(_strip_unit, columns), _LISTED)
            remarks.append(Note(f"{stored.where}: the dofs are the columns {names}"))
        omitted = self._lone_columns - {*taken, self.trajectory_column}
        if "," in name:
            omitted &= {column for part in name.split(",") for column in self._find_column(part)}
        elif not self.pool.reading.clock and (name in self.groups or "*" in name):
            omitted -= {self.time_column, *self._stamp_pair}
        if left := [_strip_unit(column) for column in self.columns if column in omitted]:
            remarks.append(Note(f"{self.path}: left out by name, as no dofs: {', '.join(left)}"))
        return remarks


def _split_name(name: str) -> tuple[str, str]:
    """Splits the name of a column into its array and its dof."""
    # q0, q[0] and q_0 → q, 0; position/elbow, position_elbow, elbow_pos, elbow.pos and
    # /joint_states/elbow/position → position, elbow; panda_joint1 → panda_joint, panda_joint1;
    # p_RS_x → p_RS, p_RS_x; pose.position.x → pose/position. Paths first, since a part of a
    # path may look like a joint with a number.
    name = _strip_unit(name)
    folder, _, last = name.rpartition("/")
    if last in _WORDS and folder:
        return _WORDS[last], folder.rpartition("/")[2]
    if folder:
        return folder, last
    if match := re.fullmatch(rf"(.+)[_.]({_WORD})|({_WORD})_(.+)", name):
        return _WORDS[match[2] or match[3]], match[1] or match[4]
    if match := re.fullmatch(r"(.+?)[_.\[]?(\d+)\]?", name):
        array = match[1].replace(".", "/")
        return array, match[2] if array.rpartition("/")[2] in _KNOWN else name
    match = re.fullmatch(r"(.+)[_.][xyzw]", name) or re.fullmatch(r"(dof)_.+", name)
    return (match[1].replace(".", "/"), name) if match else (name, name)


def _strip_unit(name: str) -> str:
    return split_unit(name)[0]


class _ParquetHandle:
    """An open Parquet file."""

    def __init__(self, path: Path) -> None:
        from pyarrow import parquet

        # of each column, the number and the values of the row group that was read last
        self.last: dict[str, tuple[int, Any]] = {}
        self._stream = open(open_regular(path), "rb")  # noqa: SIM115
        try:
            self.file = parquet.ParquetFile(self._stream)
        except BaseException:
            self._stream.close()
            raise

    def close(self) -> None:
        self.file.close()
        self._stream.close()
        self.last.clear()


class ParquetFile(Table):
    """A Parquet file, read a row group at a time; columns of lists are arrays [rows, D]."""

    family, handle_type = "parquet", _ParquetHandle
    expected, expected_array = "an intact Parquet file", "numbers, or lists of them"

    def __init__(self, path: Path, pool: OpenFiles | None = None) -> None:
        super().__init__(path, pool)
        arrow = import_library("pyarrow", "pyarrow", path)
        self.failures = (arrow.ArrowException, OSError, ValueError, KeyError, MemoryError)
        about = self.guard("", lambda: self.open_handle().file.metadata)
        counts = [about.row_group(k).num_rows for k in range(about.num_row_groups)]
        self._edges = np.cumsum([0, *counts])  # the first row of each row group
        schema = self.guard("", lambda: about.schema.to_arrow_schema())
        self._types = dict(zip(schema.names, schema.types, strict=True))
        self.columns = list(self._types)
        self.dates = [name for name, kind in self._types.items() if arrow.types.is_timestamp(kind)]

    def is_scalar(self, name: str) -> bool:
        return not hasattr(self._types[name], "value_type")

    def is_numeric(self, name: str) -> bool:
        return str(self._types[name]).startswith(("float", "double", "halffloat"))

    def column(self, name: str) -> Dataset:
        where, rows = self.place(name), int(self._edges[-1])
        first = self._read_group(name, 0, where) if rows else np.zeros(0)
        inner, dtype, remarks = first.shape[1:], first.dtype, list[str]()
        # A null makes floats of the integers of its row group, and so of the whole column: all row
        # groups are read to find one, unless the statistics exclude it.
        groups = range(len(self._edges) - 1) if self._has_nulls else ()
        whole = not re.search("float|double|string|null", str(self._types[name]))
        if whole and any(self._read_group(name, k, where).dtype.kind == "f" for k in groups):
            dtype = np.dtype(np.float64)
            remarks = [Note(f"{where} has nulls: its integers or flags are read as floats")]
        if not inner:  # columns side by side are stacked, and held as a whole
            self.pool.refuse_larger(rows * dtype.itemsize, where, "fewer rows in a file")

        def read_rows(start: int, stop: int) -> Any:
            parts = [np.zeros((0, *inner), dtype)]
            begin = int(np.searchsorted(self._edges, start, "right")) - 1
            for k in range(max(begin, 0), int(np.searchsorted(self._edges[:-1], stop))):
                low, values = int(self._edges[k]), self._read_group(name, k, where)
                if values.shape[1:] != inner:
                    raise _uneven_lists(where)
                parts.append(values[max(start - low, 0) : stop - low])
            return np.concatenate(parts, dtype=dtype)

        unit = getattr(self._types[name], "unit", "")  # of stamps and durations
        about = {"units": unit} if unit else {}
        return Dataset(where, (rows, *inner), dtype, read_rows, about, "columns", remarks)

    @cached_property
    def _has_nulls(self) -> bool:
        about = self.open_handle().file.metadata
        parts = map(about.row_group, range(about.num_row_groups))
        known = (part.column(k).statistics for part in parts for k in range(about.num_columns))
        return any(one is None or one.null_count != 0 for one in known)

    def _read_group(self, name: str, number: int, where: Place) -> Any:
        import pyarrow as arrow

        def read() -> Any:
            handle = self.open_handle()
            if handle.last.get(name, (None,))[0] != number:
                parts, size = [], 0
                for batch in handle.file.iter_batches(TABLE_ROWS, [number], [name]):
                    parts.append(batch.column(0))
                    size += batch.nbytes
                    self.pool.refuse_larger(size, where, "smaller row groups: row_group_size")
                kind = handle.file.schema_arrow.field(name).type
                column = arrow.chunked_array(parts, kind).combine_chunks()
                handle.last[name] = number, _column_values(column, where)
            return handle.last[name][1]

        return self.guard(name, read)


def _column_values(column: Any, where: Place) -> Any:
    """Converts a column to an array [rows], or [rows, D] of lists; nulls are NaN or empty texts."""
    import pyarrow as arrow

    kind, types = column.type, arrow.types
    if hasattr(kind, "value_type") and hasattr(column, "value_lengths"):
        flat, lengths = column.flatten(), np.asarray(column.value_lengths().fill_null(0))
        filled = np.flatnonzero(lengths) if column.null_count else slice(None)
        if (lengths[filled] != lengths[filled][:1]).any() or len(flat) != lengths.sum():
            raise _uneven_lists(where)
        values = _column_values(flat, where).reshape(len(lengths[filled]), -1)
        if isinstance(filled, slice):
            return values
        table = np.full((len(column), values.shape[1]), np.nan, np.result_type(values, np.float16))
        table[filled] = values
        return table
    if types.is_string(kind) or types.is_large_string(kind):
        return np.array(column.fill_null("").to_pylist(), np.str_)
    if types.is_null(kind):
        return np.full(len(column), np.nan)
    if types.is_timestamp(kind) or types.is_duration(kind):
        column = column.cast(arrow.int64())
        kind = column.type
    if not (types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind)):
        raise InputError(
            "not real numbers", where=where, expected="floats or integers", found=str(kind)
        )
    values = column.to_numpy(zero_copy_only=False)
    return values.astype(np.float64) if column.null_count and values.dtype.kind == "O" else values


def _uneven_lists(where: Place) -> InputError:
    return InputError(
        "lists of different length", where=where, expected="as many numbers in every row"
    )
