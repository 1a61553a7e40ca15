"""Reading arrays in documents: YAML, JSON and MATLAB 5, which are read as a whole.

A JointTrajectory of ROS, {joint_names, points}, is position, velocity, acceleration and times.
"""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import InputError
from trajcli.files.arrays import ArrayFile, Dataset, OpenFiles
from trajcli.files.file_bytes import open_regular, read_regular

_MOST, _DEEPEST = 500_000, 64
"""Entries of dictionaries and lists, and how many lie within each other."""
_OF_POINTS = {"positions": "position", "velocities": "velocity", "accelerations": "acceleration"}
_PER_SECOND = {"sec": 10**9, "secs": 10**9, "nanosec": 1, "nsecs": 1}
"""Nanoseconds in the fields of a duration of ROS 2 and ROS 1."""


class DocumentFile(ArrayFile):
    """Numbers and lists of numbers by their paths in a document."""

    failures = (Exception,)  # what libraries raise over damaged files
    suffix = ""

    def __init__(self, path: Path, pool: OpenFiles | None = None) -> None:
        super().__init__(path, self.suffix, pool)
        self._names = list(self.opened())

    @abstractmethod
    def load(self) -> Any:
        """The document: dictionaries, lists, arrays and numbers."""

    def begin(self) -> _Arrays:
        arrays = _Arrays()
        arrays.numbers = os.path.getsize(self.path)  # a number takes a byte at least
        arrays.add(self.load())
        return arrays

    def names(self) -> list[str]:
        return self._names

    def get(self, name: str) -> Dataset | None:
        name = name.strip("/")
        if name not in self.opened():
            return None
        values = self.opened()[name]
        about = {"units": "ns"} if values.dtype == np.int64 and name.endswith("times") else {}

        def read_rows(start: int, stop: int) -> Any:
            rows = self.opened()[name]
            return rows[start:stop] if rows.ndim else rows

        where = f"{self.path}:{name}"
        return Dataset(where, values.shape, values.dtype, read_rows, about, self.family)


class JsonFile(DocumentFile):
    """A JSON document."""

    expected, suffix = "a JSON document", "json"

    def load(self) -> Any:
        return json.loads(read_regular(self.path, self.pool.memory, self.expected))


class YamlFile(DocumentFile):
    """A YAML document, or several in one file, by PyYAML."""

    expected, suffix = "a YAML document", "yaml"

    def load(self) -> Any:
        return parse_yaml(self.path, read_regular(self.path, self.pool.memory, self.expected))


class MatlabFile(DocumentFile):
    """Variables that MATLAB saved without -v7.3, by SciPy; structures are groups."""

    expected, suffix = "a MATLAB 5 file", "matlab"

    def load(self) -> Any:
        try:
            from scipy.io import loadmat, whosmat
        except ImportError:
            raise InputError(
                "MATLAB 5 files are read by SciPy, which is not installed",
                where=str(self.path),
                hint="pip install scipy; or save -v7.3, which is HDF5, in MATLAB",
            ) from None
        with open(open_regular(self.path), "rb") as file:
            count = sum(np.prod(shape, dtype=float) for _, shape, _ in whosmat(file))
            self.pool.refuse_larger(8 * int(count), str(self.path), "save -v7.3 in MATLAB")
            file.seek(0)
            variables = loadmat(file)
        return {name: value for name, value in variables.items() if not name.startswith("__")}


class _Arrays(dict[str, Any]):
    """Arrays by their paths."""

    entries, numbers = 0, 0

    def add(self, value: Any, path: str = "", depth: int = 0) -> None:
        """Add an array, or those in a dictionary or list; raises ValueError for too many."""
        self.entries += 1
        if self.entries > _MOST or depth > _DEEPEST:
            raise ValueError(f"more than {_MOST} entries, or {_DEEPEST} within each other")
        array = _array(value, self.numbers)
        if array is not None:
            self[path] = array
            return
        pairs: Iterable[tuple[Any, Any]] = ()
        if isinstance(value, Mapping):
            points = value.get("points")
            if isinstance(points, list) and "joint_names" in value:
                value = {"joint_names": value["joint_names"], **_of_points(points)}
            pairs = value.items()
        elif isinstance(value, np.ndarray) and value.dtype.names:  # a structure of MATLAB
            items = value.ravel()
            one = len(items) == 1
            pairs = [(n, items[0][n]) for n in value.dtype.names] if one else enumerate(items)
        elif isinstance(value, np.void) and value.dtype.names:
            pairs = [(name, value[name]) for name in value.dtype.names]
        elif isinstance(value, (list, np.ndarray)):
            pairs = enumerate(np.ravel(value) if isinstance(value, np.ndarray) else value)
        for key, item in pairs:
            self.add(item, f"{path}/{key}".strip("/"), depth + 1)

    def close(self) -> None:
        """Forget them."""
        self.clear()


def _array(value: Any, most: int) -> Any:
    """Numbers or texts as an array; None for what is no number, text or even list of these.

    Raises ValueError for a list of more than ``most`` numbers, as one that YAML's aliases repeat.
    """
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":  # a cell array of MATLAB
        cells = [item.item() for item in value.ravel() if getattr(item, "size", 0) == 1]
        texts = len(cells) == value.size and all(isinstance(cell, str) for cell in cells)
        return np.array(cells) if texts and cells else None
    if isinstance(value, np.ndarray):
        return None if value.dtype.names else value
    if isinstance(value, (bool, str)) or not isinstance(value, (int, float, list)):
        return None
    first, count = value, 1
    while isinstance(first, list):
        count *= len(first)
        if count > most:
            raise ValueError(f"lists of more numbers than the {most} bytes of the file")
        if not first:
            return None
        first = first[0]
    if isinstance(first, (int, float, str)):
        try:
            array = np.array(value)
        except ValueError:  # lists of unequal length
            return None
        same = array.dtype.kind == ("U" if isinstance(first, str) else array.dtype.kind)
        return array if array.dtype.kind in "fiuU" and same else None
    return None


def _of_points(points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The arrays of the points of a JointTrajectory; those that are empty in all are left out."""
    found: dict[str, Any] = {}
    for field, name in _OF_POINTS.items():
        rows = [point.get(field) or [] for point in points]
        if any(rows):
            found[name] = np.array(rows, np.float64)
    stamps = [point.get("time_from_start") for point in points]
    if all(isinstance(stamp, (int, float)) for stamp in stamps):
        found["times"] = np.array(stamps, np.float64)
    elif all(isinstance(stamp, Mapping) for stamp in stamps):
        parts = [
            [int(n) * _PER_SECOND[k] for k, n in dict(stamp or {}).items()] for stamp in stamps
        ]
        found["times"] = np.array([sum(part) for part in parts], np.int64)
    return found


def parse_yaml(path: Path, data: bytes) -> Any:
    """The document in YAML, or a list of several; raises InputError without PyYAML."""
    try:
        import yaml
    except ImportError:
        raise InputError(
            "YAML is read by PyYAML, which is not installed",
            where=str(path),
            hint="pip install pyyaml",
        ) from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # of C, where it is there
    documents = [one for one in yaml.load_all(data, loader) if one is not None]
    return documents[0] if len(documents) == 1 else documents
