"""Reads arrays in documents: YAML, JSON, MATLAB 5, and tensors that torch.save wrote.

A JointTrajectory of ROS, {joint_names, points}, becomes position, velocity, acceleration and times.
"""

from __future__ import annotations

import json
import os
import pickle
import warnings
import zipfile
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import InputError
from trajcli.files._records import RecordFile, innermost, leaves, record_array
from trajcli.files.catalogue import Dataset, OpenFiles, import_library, plain_copy
from trajcli.files.file_bytes import open_regular, read_regular
from trajcli.files.source import natural_order

# The most entries of dictionaries and lists, and the deepest nesting. A document can refer to a
# list twice from the next list, and so on: 30 of them have 10^9 entries.
_MOST_ENTRIES, _DEEPEST = 500_000, 64
# Earlier versions can run code even with ``weights_only`` (CVE-2025-32434).
_LEAST_TORCH = (2, 6)
_POINTS = {"positions": "position", "velocities": "velocity", "accelerations": "acceleration"}
# Nanoseconds in the fields of a duration of ROS 2 and ROS 1.
_PER_SECOND = {"sec": 10**9, "secs": 10**9, "nanosec": 1, "nsecs": 1}


class DocumentFile(RecordFile):
    """Numbers, lists of them and records by their paths in a document, which is read as a whole."""

    failures = (Exception,)  # the libraries have no common error for damaged files
    storage = ""
    remarks: Sequence[str] = ()

    def __init__(self, path: Path, pool: OpenFiles | None = None) -> None:
        super().__init__(path, pool)
        self._names = self.expand_records(list(self.open_handle()))

    @abstractmethod
    def load(self) -> Any:
        """Loads the document: dictionaries, lists, arrays and numbers."""

    def begin(self) -> _Arrays:
        arrays = _Arrays()
        # a number takes a byte at least: more of them repeat one list, as aliases of YAML do
        arrays.most = os.path.getsize(self.path)
        arrays.collect(self.load())
        self.remarks = [*self.remarks, *(f"{self.path}:{text}" for text in arrays.remarks)]
        return arrays

    def names(self) -> list[str]:
        return self._names

    def find(self, name: str) -> Dataset | None:
        if name not in self.open_handle():
            return None

        def read_rows(start: int, stop: int) -> Any:
            return self.slice_array(self.open_handle()[name], start, stop)

        shape, dtype = self.open_handle()[name].shape, read_rows(0, 0).dtype
        about = {"units": "ns"} if dtype == np.int64 and name.endswith("times") else {}
        storage = self.storage or self.family
        array = self.make_dataset(name, shape, dtype, read_rows, about, storage)
        return replace(array, remarks=self.remarks) if dtype.names else array

    def slice_array(self, array: Any, start: int, stop: int) -> Any:
        return array[start:stop] if array.ndim else array


class JsonFile(DocumentFile):
    """A JSON document, or one in every line."""

    expected, family = "a JSON document", "json"

    def load(self) -> Any:
        # one document is the rule; "Extra data" after it is a second one in the next line
        data = read_regular(self.path, self.pool.memory, self.expected)
        text = data.decode(json.detect_encoding(data))
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            if not error.msg.startswith("Extra data"):
                raise
        # a program that is stopped breaks off in the last line; an error before it is damage
        lines, documents = text.rstrip().split("\n"), []
        for number, line in enumerate(lines, 1):
            try:
                documents += [json.loads(line)] if line.strip() else []
            except json.JSONDecodeError as error:
                if number < len(lines):
                    raise ValueError(f"{error.msg} in line {number}") from None
                self.remarks = [f"{self.path} breaks off in line {number}, which is left out"]
        return documents


class YamlFile(DocumentFile):
    """A YAML document, or several in one file, by PyYAML."""

    expected, family = "a YAML document", "yaml"

    def load(self) -> Any:
        data = read_regular(self.path, self.pool.memory, self.expected)
        head, _, last = data.rpartition(b"\n---")
        try:
            documents = parse_yaml(self.path, data)
            if not last.strip() or not isinstance(documents, list):
                return documents
            # A file may also break off where YAML sees no error: the last document then lacks its
            # line end, a field, or numbers of a list that the one before has.
            pair = (dict(leaves(x if isinstance(x, Mapping) else {})) for x in documents[-2:])
            before, end = ({path: np.size(value) for path, value in x.items()} for x in pair)
            cut = not data.endswith(b"\n") or any(end.get(p, 0) < n for p, n in before.items())
            # a list alone, without a document before it, is one document and not several
            if not cut or parse_yaml(self.path, head) == []:
                return documents
            documents.pop()
        except import_library("yaml", "pyyaml", self.path).YAMLError:
            documents = parse_yaml(self.path, head)
            if not isinstance(documents, list):
                raise
        self.remarks = [f"{self.path} breaks off in its last document, which is left out"]
        return documents


class MatlabFile(DocumentFile):
    """Variables that MATLAB saved without -v7.3, by SciPy; structures are groups."""

    expected, family = "a MATLAB 5 file", "matlab"

    def load(self) -> Any:
        matlab = import_library("scipy.io", "scipy", self.path)
        with open(open_regular(self.path), "rb") as file:
            # SciPy unpacks variables as it loads them: their sizes are checked before
            count = sum(np.prod(shape, dtype=float) for _, shape, _ in matlab.whosmat(file))
            self.pool.refuse_larger(8 * int(count), str(self.path), "save -v7.3 in MATLAB")
            file.seek(0)
            variables = matlab.loadmat(file)
        return {name: value for name, value in variables.items() if not name.startswith("__")}


class TorchFile(DocumentFile):
    """A file of tensors, which are mapped. No other objects are constructed (``weights_only``)."""

    expected, family, storage = "tensors, as torch.save writes them", "pt", "tensor"

    def load(self) -> Any:
        torch = import_library("torch", "torch", self.path)
        if tuple(map(int, torch.__version__.split(".")[:2])) < _LEAST_TORCH:
            needed = ".".join(map(str, _LEAST_TORCH))
            raise InputError(
                "tensors are read by torch",
                where=str(self.path),
                expected=f"torch {needed} or later",
                found=torch.__version__,
                hint=f"pip install 'torch>={needed}', or numpy.savez where it was made",
            )
        os.close(open_regular(self.path))
        archive = zipfile.is_zipfile(self.path)  # torch before 1.6 wrote no archives
        if archive:
            # torch would map compressed members as they are, and a pickle may expand to any size
            with zipfile.ZipFile(self.path) as members:
                packed = [info.filename for info in members.infolist() if info.compress_type]
            if packed:
                raise InputError(
                    "a packed archive",
                    where=f"{self.path}:{packed[0]}",
                    expected="stored as it is",
                    found="packed",
                    hint="write it by torch.save",
                )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns of pickles that it did not write
                return torch.load(self.path, "cpu", weights_only=True, mmap=archive)
        except pickle.UnpicklingError:
            what, expected = "holds other objects than tensors", "dictionaries and lists of tensors"
            hint = plain_copy(self.path, 'torch.load(%s, "cpu", weights_only=False)')
            raise InputError(what, where=str(self.path), expected=expected, hint=hint) from None

    def names(self) -> list[str]:
        return natural_order(super().names())

    def slice_array(self, array: Any, start: int, stop: int) -> Any:
        import torch

        if not isinstance(array, torch.Tensor):
            return super().slice_array(array, start, stop)
        # an expanded tensor may repeat few stored values any number of times
        if array.layout == torch.strided and array.nbytes > array.untyped_storage().nbytes():
            raise ValueError(f"{array.nbytes} bytes of values, of which fewer are stored")
        rows = array[start:stop] if array.ndim else array
        return (rows.float() if rows.dtype == torch.bfloat16 else rows).numpy(force=True)


class _Arrays(dict[str, Any]):
    """The arrays of a document by their paths."""

    entries, most = 0, 0  # how many entries were visited; the most values that a list may have
    remarks: tuple[str, ...] = ()

    def collect(self, value: Any, path: str = "", depth: int = 0) -> None:
        """Collects an array, or those in a dictionary or list. Raises ValueError for too many."""
        self.entries += 1
        if self.entries > _MOST_ENTRIES or depth > _DEEPEST:
            raise ValueError(f"more than {_MOST_ENTRIES} entries, or {_DEEPEST} within each other")
        array = _to_array(value, self.most)
        if array is not None:
            self[path] = array
            return
        structures = isinstance(value, np.ndarray) and value.dtype.names
        items = [_to_builtin(item) for item in value.ravel()] if structures else value
        pairs: Iterable[tuple[Any, Any]] = ()
        if isinstance(items, list):
            # publishers that share a topic alternate: records of the same joints belong together
            sets: dict[str, list[Any]] = {}
            for record in items:
                names = record.get("name") if isinstance(record, Mapping) else None
                key = ",".join(sorted(map(str, names))) if isinstance(names, list) else ""
                sets.setdefault(key, []).append(record)
            if len(sets) > 1:
                value = dict(enumerate(sets.values()))
            elif (table := record_array(items, self.most)) is not None:
                self[path], left_out = table
                self.remarks += (f"{path} {left_out}",) if left_out else ()
                return
        fields = getattr(getattr(value, "dtype", None), "names", None)
        if isinstance(value, Mapping):
            points = value.get("points")
            if isinstance(points, list) and "joint_names" in value:
                value = {"joint_names": value["joint_names"]}
                # a field that is empty in all points of a JointTrajectory is left out
                for field, name in _POINTS.items():
                    numbers = [point.get(field) or [] for point in points]
                    if any(numbers):
                        value[name] = np.array(numbers, np.float64)
                stamps = [point.get("time_from_start") for point in points]
                if all(isinstance(stamp, (int, float)) for stamp in stamps):
                    value["times"] = np.array(stamps, np.float64)
                elif all(isinstance(stamp, Mapping) for stamp in stamps):
                    # exact, unlike seconds in float64
                    times = [sum(int(n) * _PER_SECOND[k] for k, n in s.items()) for s in stamps]
                    value["times"] = np.array(times, np.int64)
            pairs = value.items()
        elif fields:  # a structure of MATLAB, or several
            rows = np.ravel(value)
            pairs = enumerate(rows) if len(rows) != 1 else [(n, rows[0][n]) for n in fields]
        elif isinstance(value, (list, tuple, np.ndarray)):
            pairs = enumerate(np.ravel(value) if isinstance(value, np.ndarray) else value)
        for key, item in pairs:
            self.collect(item, f"{path}/{key}".strip("/"), depth + 1)

    def close(self) -> None:
        self.clear()  # tensors in use stay mapped


def _to_array(value: Any, most: int) -> Any:
    """Converts numbers, texts and even lists of these to an array; None for anything else."""
    if hasattr(value, "untyped_storage"):
        return value
    if isinstance(value, np.ndarray):
        if value.dtype.kind != "O":
            return None if value.dtype.names or not value.size else value  # [] of MATLAB is nothing
        cells = [cell.item() for cell in value.ravel() if getattr(cell, "size", 0) == 1]
        texts = len(cells) == value.size and all(isinstance(cell, str) for cell in cells)
        return np.array(cells) if texts and cells else None
    if isinstance(value, (bool, str)) or not isinstance(value, (int, float, list)):
        return None
    first, _ = innermost(value, most)
    try:
        array = np.array(value) if isinstance(first, (int, float, str)) else None
    except ValueError:  # lists of unequal length
        return None
    kinds = "U" if isinstance(first, str) else "fiub"
    return array if array is not None and array.dtype.kind in kinds else None


def _to_builtin(value: Any) -> Any:
    """Converts a structure of MATLAB to dictionaries, lists, numbers and texts."""
    if isinstance(value, np.ndarray) and value.size != 1:
        return (value[0] if len(value) == 1 else value).tolist()
    item = value.flat[0] if isinstance(value, np.ndarray) else value
    if isinstance(item, np.void):
        return {name: _to_builtin(item[name]) for name in item.dtype.names or ()}
    return item.item() if isinstance(item, np.generic) else item


def parse_yaml(path: Path, data: bytes) -> Any:
    """Parses a YAML document, or several as a list. Raises InputError without PyYAML."""
    yaml = import_library("yaml", "pyyaml", path)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # builds of PyYAML may lack the C one
    documents = [part for part in yaml.load_all(data, loader) if part is not None]
    return documents[0] if len(documents) == 1 else documents
