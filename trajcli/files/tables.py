"""Tables: columns with one prefix are one array, one column is the time, one the trajectory.

``t, position/elbow, position/wrist`` and ``timestamp, q0, q1`` are times [N] and an array [N, 2].
CSV and Parquet files are such tables.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault
from trajcli.files.arrays import ArrayFile, Dataset
from trajcli.files.file_bytes import OpenFiles
from trajcli.units import parse_time_unit

TIMES = ("t", "time", "times", "timestamp", "timestamps", "stamp", "__time", "%time")
"""Columns of time stamps, the first that there is; else the first column of dates is it."""
TRAJECTORIES = ("trajectory", "episode", "episode_index", "episode_id", "traj_id")
"""Columns that are the same in all rows of a trajectory."""
_NUMBERS = ("row", "index", "frame_index")
"""Columns that count rows."""
ARRAYS = ("actions", "action", "position", "velocity", "acceleration", "jerk")
"""Arrays that one column is, too."""
_UNIT = r"(.*?)\s*[\[(]([^\])]*)[\])]"


class Table(ArrayFile):
    """A file of columns. ``columns``: what it calls them, in their order; ``dates``: those of
    dates."""

    columns: Sequence[str]
    dates: Sequence[str] = ()

    def __init__(self, path: Path, family: str, pool: OpenFiles | None = None) -> None:
        super().__init__(path, family, pool)
        self._arrays: dict[str, Dataset] = {}

    @abstractmethod
    def column(self, name: str) -> Dataset:
        """The numbers of a column, [N] or [N, D]."""

    def scalar(self, name: str) -> bool:
        """Whether a column has one value in a row."""
        return True

    @cached_property
    def groups(self) -> dict[str, list[str]]:
        """The arrays by name, and their columns."""
        found: dict[str, list[str]] = {}
        lone = {name for name in self.columns if self._is_alone(name) or not self.scalar(name)}
        taken = set(map(_plain, lone))
        for name in self.columns:
            array = _split(name)[0]
            if name in lone or array in taken:
                array = _plain(name)
            found.setdefault(array.lstrip("/"), []).append(name)
        groups: dict[str, list[str]] = {}
        for array, columns in found.items():
            known = len(columns) > 1 or array in ARRAYS
            groups[array if known else _plain(columns[0]).lstrip("/")] = columns
        return groups

    def _is_alone(self, name: str) -> bool:
        """Whether a column is of times or of trajectories, or counts rows."""
        known = _plain(name).lower() in (*TIMES, *_NUMBERS)
        return known or name in (self.time_column, self.trajectory_column)

    @cached_property
    def time_column(self) -> str | None:
        """The column of time stamps."""
        return self._first(TIMES) or next(iter(self.dates), None)

    @cached_property
    def trajectory_column(self) -> str | None:
        """The column that says of which trajectory a row is."""
        return self._first(TRAJECTORIES)

    def _first(self, names: Sequence[str]) -> str | None:
        plain = {_plain(name).lower(): name for name in reversed(self.columns)}
        return next((plain[name] for name in names if name in plain), None)

    def names(self) -> list[str]:
        return list(self.groups)

    def get(self, name: str) -> Dataset | None:
        name = name.strip("/")
        if name not in self._arrays and (stored := self._described(name)) is not None:
            self._arrays[name] = stored
        return self._arrays.get(name)

    def missing(self, name: str, names: Sequence[str] | None = None) -> Fault:
        return super().missing(name, names or list(dict.fromkeys([*self.groups, *self.columns])))

    def _described(self, name: str) -> Dataset | None:
        """An array by its name; also a column, or several: a,b,c."""
        times = name in ("times", "time") and self.time_column and name not in self.groups
        columns = [self.time_column or ""] if times else self.groups.get(name) or name.split(",")
        if not set(columns) <= set(self.columns):
            return None
        where, unit = f"{self.path}:{columns[0] if times else name}", _with_unit(columns[0])[1]
        parts = [self.column(column) for column in columns]
        about = dict(parts[0].attributes) | ({"units": unit} if unit else {})
        alone = len(columns) == 1 and self._is_alone(columns[0])
        index = len(parts) == 1 and parts[0].dtype.kind != "f"  # of a frame, a task; or texts
        if alone or index or not self.scalar(columns[0]):
            return replace(parts[0], where=where, attributes=about)
        if len(columns) > 1:
            about["joint_names"] = [_split(column)[1] for column in columns]
        dtype = np.result_type(*(part.require_numeric().dtype for part in parts))

        def read_rows(start: int, stop: int) -> Any:
            return np.stack([part.read_rows(start, stop) for part in parts], 1, dtype=dtype)

        shape = (parts[0].shape[0], len(parts))
        return Dataset(where, shape, dtype, read_rows, about, "columns")


def _split(name: str) -> tuple[str, str]:
    """The array of a column and its dof: q0, q[0] and q_0 → q, 0; position/elbow;
    joint1_position → position, joint1; /joint_states/elbow/position → position, elbow."""
    name = _plain(name)
    before, _, last = name.rpartition("/")
    if last in ARRAYS and before:
        return last, before.rpartition("/")[2]
    if before:
        return before, last
    numbered = re.fullmatch(r"(.*?)[_.\[]?(\d+)\]?", name)
    if numbered is not None and numbered[1]:
        return numbered[1], numbered[2]
    before, _, last = name.rpartition("_")
    return (last, before) if last in ARRAYS and before else (name, name)


def _plain(name: str) -> str:
    """The name of a column without its unit: t [s] → t."""
    return _with_unit(name)[0]


def _with_unit(name: str) -> tuple[str, str]:
    """The name and the unit of a column: t [s] → t, s; of times timestamp_ns, too."""
    match = re.fullmatch(_UNIT, name)
    if match and match[1] and not match[2].isdecimal():
        return match[1], match[2]
    stem, _, unit = name.rpartition("_")
    return (stem, unit) if stem.lower() in TIMES and parse_time_unit(unit) else (name, "")
