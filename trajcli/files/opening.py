"""Opens files by their first bytes or by their ending, and keeps the files of a command."""

from __future__ import annotations

import difflib
import glob
import math
import os
import shlex
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from copy import copy
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError, MissingFileError, Report, UsageError, unknown
from trajcli.files._layouts import FAMILIES, PLAIN, Layout
from trajcli.files.catalogue import (
    Catalogue,
    Dataset,
    OpenFiles,
    join_readers,
    plain_copy,
    python_line,
)
from trajcli.files.clock import Clock, positive
from trajcli.files.dofs import pick_dofs
from trajcli.files.file_bytes import open_regular, read_fault
from trajcli.files.reading import Reading
from trajcli.files.source import (
    ENDINGS,
    ONE_SOURCE,
    Place,
    expand_files,
    first_and_more,
    natural_order,
    parse_source,
)

READERS = {
    "hdf5": "hdf5.Hdf5File",
    "npy": "_numpy_files.NpyFile",
    "npz": "_numpy_files.NpzFile",
    "parquet": "_tables.ParquetFile",
    "csv": "_csv_files.CsvFile",
    "ros": "_ros_files.RosFile",
    "zarr": "_zarr_files.ZarrFile",
    "pt": "_document_files.TorchFile",
    "json": "_document_files.JsonFile",
    "yaml": "_document_files.YamlFile",
    "matlab": "_document_files.MatlabFile",
}
"""The reader of each file format, imported when one is opened; see :class:`Catalogue`."""
_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_SIGNATURES = {
    b"\x93NUMPY": "npy", b"PAR1": "parquet", b"PK\3\4": "npz", b"PK\5\6": "npz",
    b"#ROSBAG": "ros", b"\x89MCAP0\r\n": "ros", b"SQLite f": "ros",
    b"MATLAB 5": "matlab",
}  # fmt: skip
# The format of zip archives that are not .npz, by their ending; "" for those that are not read.
_ZIPPED = {".zip": "zarr", ".pt": "pt", ".pth": "pt", ".xlsx": "", ".ods": ""}
_ENDINGS = {
    **dict.fromkeys((".csv", ".tsv", ".txt", ".tum", ".mot", ".sto"), "csv"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    **dict.fromkeys((".yaml", ".yml"), "yaml"),
    **_ZIPPED,
}
# HDF5 allows user blocks of any power of two; every size that is tried costs a read.
_LARGEST_USER_BLOCK = 1 << 26
_EXPECTED = "HDF5, NumPy, Parquet, CSV, Zarr, a ROS bag, MATLAB, YAML, JSON, or .pt"
_DEFAULT = Reading()


class Files(AbstractContextManager["Files"]):
    """The files of a command, few of them open at a time. Close it, or use ``with``."""

    def __init__(
        self, reading: Reading = _DEFAULT, memory: int | None = None, report: Report | None = None
    ) -> None:
        self.report = report or Report()  # takes notes and warnings about the files
        self._pool = OpenFiles(memory, reading.allow_external, self.report)
        self._pool.reading = reading
        self._files: dict[str, Catalogue] = {}
        self._layouts: dict[str, Layout | None] = {}
        self.sources = self._pool.sources  # the files that were opened, and their states
        self.reading = reading  # how every SOURCE is read
        # whether some sources are outputs of trajcli, in SI whatever --units says, and others not
        self.mixed_units = False

    def with_reading(self, reading: Reading) -> Files:
        """Copies the open files with another reading, about which nothing is reported."""
        # the copy shares the open files and their states; layouts and pools depend on the reading
        files = copy(self)
        files.report = Report()
        files.reading, files._layouts, files._pool = reading, {}, copy(self._pool)
        files._pool.reading = reading
        return files

    def open(self, path: Path | str) -> Catalogue:
        """Opens the file at a path, once. Raises InputError if it cannot be read."""
        key = str(path)
        if key not in self._files:
            self._files[key] = open_arrays(Path(path), self._pool)
        return self._files[key]

    def layout(self, file: Catalogue) -> Layout | None:
        """Finds the layout of a file: the one that --layout names, or the one recognised."""
        key = str(file.path)
        if key not in self._layouts:
            # the groups of an output may look like those of a family, whose names it keeps
            name = self.reading.layout or (PLAIN if file.is_output else None)
            names = (*(family.name for family in FAMILIES), PLAIN)
            if name not in (None, *names):
                fault = unknown("layout", choices=names, found=repr(name), where="--layout")
                raise UsageError(fault)
            self._layouts[key] = None
            guess = name is None and file.family not in ("npy", "npz")
            children = cache(file.children)  # which some formats find among all names
            for family in FAMILIES:
                if family.name == name or (guess and family.matches(file, children)):
                    self._layouts[key] = Layout(family, file)
                    break
        return self._layouts[key]

    def dataset(self, text: str) -> Dataset:
        """Gets the numeric dataset FILE:DATASET; without DATASET, the only one of the file."""
        source = parse_source(text)
        parts = expand_files(source)  # the folder of a ROS 2 bag stands for its only file
        file = self.open(parts[0].path if len(parts) == 1 else source.path)
        names = file.names() if source.dataset is None else [source.dataset]
        if len(names) != 1:
            raise InputError(file.missing(""))
        return pick_dofs(file.require(names[0]).require_numeric(), source.dofs)

    def register_sources(self, sources: Sequence[str]) -> None:
        """Notes which sources are compared: --units is for those that are not in SI."""
        ours = set[bool]()
        for text in sources:
            source = parse_source(text)
            with suppress(InputError):  # reported when it is read
                first = next(iter(expand_files(source)), source)
                ours.add(self.open(first.path).is_output)
        self.mixed_units = len(ours) > 1

    def paths(self) -> list[str]:
        """Lists the paths of all files that were read, linked and side-car files included."""
        linked = (path for file in self._files.values() for path in file.linked_paths)
        return [*self._files, *linked]

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def clock_from_options(files: Files) -> Clock | None:
    """Reads the time that --dt, --rate or --times of ``files.reading`` names, if one does."""
    reading, time_unit = files.reading, files.reading.input_units.time
    dt, rate, times = reading.dt, reading.rate, reading.times
    options = {"--dt": dt, "--rate": rate, "--times": times}
    if len(present := [name for name, value in options.items() if value is not None]) > 1:
        raise UsageError(
            "more than one time step", where=" and ".join(present), expected="one of them"
        )
    if times is not None:
        source, lines, about = parse_source(times), list[Any](), dict[str, Any]()
        for part in expand_files(source) if source.dataset else ():
            layout = files.layout(files.open(part.path))
            for member in layout.split.members if layout else ():
                stored = files.open(part.path).get(member.path(str(source.dataset)))
                if stored is not None and stored.ndim and stored.shape[1:] in ((), (1,)):
                    about |= stored.attributes
                    # an array of all trajectories is theirs only if it has all their rows
                    if member.end is None or (layout and stored.shape[0] == layout.split.rows):
                        lines.append(np.ravel(member.select_rows(stored.require_numeric()).read()))
        if not lines:
            return Clock.from_stamps(files.dataset(times), time_unit)
        # padded with the last stamp, which no later row of a shorter trajectory uses
        lengths = np.array([len(line) for line in lines])
        table = np.zeros((len(lines), max(lengths)), np.result_type(*lines))
        for row, line in zip(table, lines, strict=True):
            row[: len(line)], row[len(line) :] = line, line[-1] if len(line) else 0
        read = lambda start, stop: table[start:stop]  # noqa: E731
        stamps = Dataset(source.place, table.shape, table.dtype, read, about)
        return Clock.from_stamps(stamps, time_unit, lengths)
    if rate is not None:
        if not (math.isfinite(rate) and rate > 0):
            raise UsageError(
                "a rate that is not positive", where="--rate", expected="Hz > 0", found=f"{rate:g}"
            )
        return Clock.even(1.0 / rate, Place(remark=f"--rate {rate:g}"))
    if dt is None:
        return None
    # a text that is no number names a file: FILE, FILE:DATASET or one with a folder
    with suppress(ValueError):
        return Clock.even(float(dt), Place(remark="--dt"))
    if not set(".:/") & set(dt) and not os.path.exists(dt):
        raise UsageError(
            "neither a value nor a file",
            where="--dt",
            expected="SECONDS (as 0.02), FILE:DATASET or FILE:DATASET@ATTR",
            found=dt,
        )
    source = parse_source(dt, attributes=True)
    if source.attribute is None:
        return Clock.from_steps(files.dataset(dt), time_unit)
    # the attribute is that of a dataset, of a group or, without a name, of the file
    file, name = files.open(source.path), source.dataset or ""
    dataset = file.get(name) if name else None
    attributes = dataset.attributes if dataset is not None else file.attributes(name)
    if (value := attributes.get(source.attribute)) is None:
        raise InputError(
            "no such attribute",
            where=dt,
            expected="an attribute of this name",
            found=", ".join(attributes) or "no attributes",
        )
    if (step := positive(value)) is None:
        raise InputError("not a step", where=dt, expected="one number > 0", found=repr(value))
    return Clock.even(step, source.place)


def open_arrays(path: Path, pool: OpenFiles | None = None) -> Catalogue:
    """Opens a file with the reader of its format; raises InputError for one of no known format."""
    module, name = READERS[recognise(path)].split(".")
    reader: Catalogue = getattr(import_module(f"trajcli.files.{module}"), name)(path, pool)
    return reader


def recognise(path: Path) -> str:
    """Recognises the format of a file by its first bytes, then by its ending."""
    if os.path.isdir(path):
        if any(os.path.isfile(path / name) for name in ONE_SOURCE):
            return "zarr"
        if any(os.path.exists(path / name) for name in ("dataset_info.json", "features.json")):
            raise InputError(_rlds(path))
        names, hint = natural_order(os.listdir(path)), ""
        # the files of a folder are named by their most frequent ending, in it or a level below
        for level in ("*", "*/*"):
            pattern = os.path.join(glob.escape(str(path)), level)
            counts = Counter(Path(name).suffix[1:] for name in glob.iglob(pattern))
            ending = max(f"{ENDINGS}|{ENDINGS.upper()}".split("|"), key=counts.__getitem__)
            if counts[ending]:
                hint = f"name its files: {shlex.quote(f'{pattern}.{ending}')}"
                break
        raise InputError(
            "a folder without files that trajcli reads",
            where=str(path),
            expected=f"{_EXPECTED}, or the folder of a data set",
            found=", ".join([*names[:8], *(["…"] if names[8:] else [])]) or "nothing",
            hint=hint,
        )
    by_head, by_name = "", _ENDINGS.get(path.suffix.lower(), "")
    try:
        with open(open_regular(path), "rb") as file:
            head = os.pread(file.fileno(), 64, 0)
            signature = head[:8]
            by_head = next((n for start, n in _SIGNATURES.items() if head.startswith(start)), "")
            # the HDF5 signature may stand behind a user block of 512, 1024, 2048 … bytes
            end, offset = min(os.fstat(file.fileno()).st_size, _LARGEST_USER_BLOCK), 512
            while not by_head and signature != _HDF5_SIGNATURE and offset < end:
                signature = os.pread(file.fileno(), 8, offset)
                offset *= 2
    except FileNotFoundError:
        folder = path.parent
        exists = os.path.isdir(folder)
        files = sorted(os.listdir(folder)) if exists and os.access(folder, os.R_OK) else []
        close = difflib.get_close_matches(path.name, files, 3, 0.6)
        near = ", ".join(shlex.quote(str(folder / name)) for name in close)
        raise MissingFileError(
            "no such file",
            where=str(path),
            expected="a file",
            found="nothing of this name" if exists else f"no folder {folder}",
            hint=f"did you mean {near}?" if near else "",
        ) from None
    except OSError as error:
        raise InputError(read_fault(path, "a readable file", error)) from None
    if signature == _HDF5_SIGNATURE:
        return "hdf5"
    family = by_name if by_head == "npz" and path.suffix.lower() in _ZIPPED else by_head or by_name
    if head and family:
        return family
    raise InputError(_not_read(path, head))


def _not_read(path: Path, head: bytes) -> Fault:
    if ".tfrecord" in path.name or path.suffix == ".array_record":
        return _rlds(path)

    def to_csv(read: str) -> str:
        code = f"import pandas; pandas.{read}.to_csv(%s, index=False)"
        return python_line(code, path, path.with_suffix(".csv"))

    found, hint = f"a file that begins with {head[:8]!r}", ""
    if not head:
        found = "an empty file"
    elif head[:1] == b"\x80":
        found = "a pickle, which may run any program when it is read"
        # the first opcode, behind that of a frame, begins a list, an array or a dictionary
        first = head[11 if head[2:3] == b"\x95" else 2 :][:24]
        array = b"numpy" in first and first[:1] != b"}"
        shape = (1,) if first[:1] == b"]" else (1, 1) if array else None
        hint = plain_copy(path, "np.load(%s, allow_pickle=True)", shape=shape)
        if b"pandas" in head:
            hint = f"if you trust it: {to_csv('read_pickle(%s).reset_index()')}"
    elif head.startswith((b"PK\3\4", b"\xd0\xcf\x11\xe0")):
        found, hint = "a workbook", to_csv("read_excel(%s)")
    elif head.startswith(b"\x1f\x8b"):
        found, hint = "a file packed by gzip", f"gunzip -k {shlex.quote(str(path))}"
    return Fault(
        "not a file of arrays", where=str(path), expected=_EXPECTED, found=found, hint=hint
    )


def _rlds(path: Path) -> Fault:
    return Fault(
        "TFRecord files, as in RLDS data sets, are not read",
        where=str(path),
        expected=_EXPECTED,
        found="a file of serialised TensorFlow examples",
        hint="convert it where TensorFlow is: for i, e in enumerate("
        "tfds.builder_from_directory(FOLDER).as_dataset(split='train')): "
        "np.save(f'episode_{i}.npy', np.stack([s['action'] for s in e['steps']"
        ".as_numpy_iterator()])), or to a LeRobot data set",
    )


class JoinedFiles(Catalogue):
    """Joins files of an array [T, D] each to one file of an array [n, T, D] and its lengths."""

    def __init__(self, files: Sequence[Catalogue]) -> None:
        first = files[0]
        super().__init__(first.path, first.pool)
        self.family, self.members = first.family, files
        arrays = [file.require("") for file in files]
        counts = np.array([array.shape[0] for array in arrays])
        where = first_and_more(array.where for array in arrays)
        shape, dtype = (len(files), int(counts.max()), arrays[0].shape[1]), arrays[0].dtype
        read = join_readers(lambda k, *rows: arrays[k].read_rows(*rows), counts.tolist())
        array = Dataset(where, shape, dtype, read, storage="a file for each")
        lengths = Dataset(where, counts.shape, counts.dtype, lambda a, b: counts[a:b])
        self._entries = {"": array, "lengths": lengths}
        self.spelling = {"": {"lengths": "lengths"}}

    def names(self) -> list[str]:
        return [""]

    def find(self, name: str) -> Dataset | None:
        return None


def join_key(file: Catalogue) -> object:
    """Makes a key that is equal for .npy files of arrays [T, D] of one type and as many dofs."""
    array = file.get("") if file.family == "npy" else None
    if array is None or array.ndim != 2 or 0 in array.shape:
        return object()
    return array.dtype, array.shape[1]
