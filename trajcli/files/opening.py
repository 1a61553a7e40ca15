"""Opens files by their first bytes, or else by their ending, and keeps the files of a command."""

from __future__ import annotations

import difflib
import glob
import math
import os
import shlex
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError, MissingFileError, Report, UsageError
from trajcli.files._layouts import Layout, layout_of
from trajcli.files.catalogue import (
    Catalogue,
    Dataset,
    OpenFiles,
    plain_copy,
    python_line,
    reader_of_each,
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
from trajcli.kernels.program import Integers

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
# The format of zip archives that are not .npz, by their ending.
_ZIPPED = {".zip": "zarr", ".pt": "pt", ".pth": "pt", ".xlsx": "", ".ods": ""}
# The format of files without a signature, by their ending.
_ENDINGS = {
    **dict.fromkeys((".csv", ".tsv", ".txt", ".tum", ".mot", ".sto"), "csv"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    **dict.fromkeys((".yaml", ".yml"), "yaml"),
    **_ZIPPED,
}
_LARGEST_USER_BLOCK = 1 << 26
_READ = "HDF5, NumPy, Parquet, CSV, Zarr, a ROS bag, MATLAB, YAML, JSON, or .pt"


_AS_STATED = Reading()


class Files:
    """The files of a command, few of them open at a time. Close it, or use ``with``.

    reading: how every SOURCE is read. sources: the files that were opened, and their states.
    report: takes what is to be said about them.
    """

    def __init__(
        self, reading: Reading = _AS_STATED, memory: int | None = None, report: Report | None = None
    ) -> None:
        self.report = report or Report()
        self._pool = OpenFiles(memory, reading.allow_external, self.report)
        self._pool.reading = reading
        self._files: dict[str, Catalogue] = {}
        self._layouts: dict[str, Layout | None] = {}
        self.sources = self._pool.sources
        self.reading = reading
        # whether some sources of the command are outputs of trajcli, in SI whatever --units says
        self.mixed_units = False

    def with_reading(self, reading: Reading) -> Files:
        """Returns the same open files with another reading, of which nothing is said."""
        files = copy(self)
        files.report = Report()
        files.reading, files._layouts, files._pool = reading, {}, copy(self._pool)
        files._pool.reading = reading
        return files

    def open(self, path: Path | str) -> Catalogue:
        """Returns the file at a path, opened once. Raises InputError if it cannot be read."""
        key = str(path)
        if key not in self._files:
            self._files[key] = open_arrays(Path(path), self._pool)
        return self._files[key]

    def layout(self, file: Catalogue) -> Layout | None:
        """Returns the layout of a file: the one that --layout names, or the one recognised."""
        key = str(file.path)
        if key not in self._layouts:
            known = self.reading.layout or ("plain" if file.is_output else None)
            self._layouts[key] = layout_of(file, known)
        return self._layouts[key]

    def dataset(self, text: str) -> Dataset:
        """Returns the numeric dataset FILE:DATASET; without DATASET, the only one of the file."""
        source = parse_source(text)
        # the folder of a ROS 2 bag stands for the one file in it
        below = expand_files(source)
        file = self.open(below[0].path if len(below) == 1 else source.path)
        names = file.names() if source.dataset is None else [source.dataset]
        if len(names) != 1:
            raise InputError(file.missing(""))
        return pick_dofs(file.require(names[0]).require_numeric(), source.dofs)

    def register_sources(self, sources: Sequence[str]) -> None:
        """Takes note of the sources that are compared, of which --units is for those not in SI."""
        ours = set[bool]()
        for text in sources:
            source = parse_source(text)
            with suppress(InputError):  # reported when it is read
                first = next(iter(expand_files(source)), source)
                ours.add(self.open(first.path).is_output)
        self.mixed_units = len(ours) > 1

    def paths(self) -> list[str]:
        """Returns the paths of all files that were read, linked and side-car files included."""
        return [*self._files, *(path for file in self._files.values() for path in file.outside)]

    def close(self) -> None:
        """Closes all files."""
        for file in self._files.values():
            file.close()

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def clock_from_options(files: Files) -> Clock | None:
    """Returns the time that --dt, --rate or --times of ``files.reading`` names, if one does.

    Raises UsageError for more than one option or a value that is none, InputError for a file that
    cannot be read.
    """
    reading, given = files.reading, files.reading.input_units.time
    dt, rate, times = reading.dt, reading.rate, reading.times
    options = {"--dt": dt, "--rate": rate, "--times": times}
    if len(present := [name for name, value in options.items() if value is not None]) > 1:
        raise UsageError(
            "more than one time step", where=" and ".join(present), expected="one of them"
        )
    if times is not None:
        stamps, lengths = _stamps(files, times)
        return Clock.stamps(stamps, given, lengths)
    if rate is not None:
        if not (math.isfinite(rate) and rate > 0):
            raise UsageError(
                "a rate that is not positive", where="--rate", expected="Hz > 0", found=f"{rate:g}"
            )
        return Clock.even(1.0 / rate, Place(remark=f"--rate {rate:g}"))
    if dt is None:
        return None
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
        return Clock.steps_of(files.dataset(dt), given)
    file, holder = files.open(source.path), source.dataset or ""
    dataset = file.get(holder) if holder else None
    attributes = dataset.attributes if dataset is not None else file.attributes(holder)
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


def _stamps(files: Files, text: str) -> tuple[Dataset, Integers | None]:
    """Returns the stamps FILE:DATASET, and how many each trajectory has: of the trajectories of a
    layout they are [B, T], padded with the last."""
    source, lines, about = parse_source(text), list[Any](), dict[str, Any]()
    for part in expand_files(source) if source.dataset else ():
        layout = files.layout(files.open(part.path))
        for member in layout.split.members if layout else ():
            stored = files.open(part.path).get(member.path(str(source.dataset)))
            if stored is not None and stored.ndim and stored.shape[1:] in ((), (1,)):
                about |= stored.attributes
                if member.end is None or (layout and stored.shape[0] == layout.split.rows):
                    lines.append(np.ravel(member.rows_of(stored.require_numeric()).read()))
    if not lines:
        return files.dataset(text), None
    lengths = np.array([len(line) for line in lines])
    table = np.zeros((len(lines), max(lengths)), np.result_type(*lines))
    for row, line in zip(table, lines, strict=True):
        row[: len(line)], row[len(line) :] = line, line[-1] if len(line) else 0
    read = lambda start, stop: table[start:stop]  # noqa: E731
    return Dataset(source.place, table.shape, table.dtype, read, about), lengths


def open_arrays(path: Path, pool: OpenFiles | None = None) -> Catalogue:
    """Opens a file with the reader of its format; raises InputError for one of no known format."""
    module, name = READERS[recognise(path)].split(".")
    reader: Catalogue = getattr(import_module(f"trajcli.files.{module}"), name)(path, pool)
    return reader


def recognise(path: Path) -> str:
    """Returns the format of a file: by its first bytes, or else by its ending."""
    if os.path.isdir(path):
        if any(os.path.isfile(path / name) for name in ONE_SOURCE):
            return "zarr"
        if any(os.path.exists(path / name) for name in ("dataset_info.json", "features.json")):
            raise InputError(_rlds(path))
        inside, what = natural_order(os.listdir(path)), "a folder without data that are read"
        found = ", ".join([*inside[:8], *(["…"] if inside[8:] else [])]) or "nothing"
        expected, hint = f"{_READ}, or the folder of a data set", _data_files(path)
        raise InputError(what, where=str(path), expected=expected, found=found, hint=hint)
    by_head, by_name = "", _ENDINGS.get(path.suffix.lower(), "")
    try:
        descriptor = open_regular(path)
        try:
            head = os.pread(descriptor, 64, 0)
            signature = head[:8]
            by_head = next((n for start, n in _SIGNATURES.items() if head.startswith(start)), "")
            # the HDF5 signature may stand behind a user block of 512, 1024, 2048 … bytes
            end, offset = min(os.fstat(descriptor).st_size, _LARGEST_USER_BLOCK), 512
            while not by_head and signature != _HDF5_SIGNATURE and offset < end:
                signature = os.pread(descriptor, 8, offset)
                offset *= 2
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise MissingFileError(_missing_file(path)) from None
    except OSError as error:
        raise InputError(read_fault(path, "a readable file", error)) from None
    if signature == _HDF5_SIGNATURE:
        return "hdf5"
    # several formats are zip archives, told apart by their endings
    family = by_name if by_head == "npz" and path.suffix.lower() in _ZIPPED else by_head or by_name
    if head and family:
        return family
    raise InputError(_not_read(path, head))


def _not_read(path: Path, head: bytes) -> Fault:
    """Returns the fault of a file of an unknown format, with a command that converts it."""
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
        first = head[11 if head[2:3] == b"\x95" else 2 :][:24]  # a list, an array or a dictionary
        array = b"numpy" in first and first[:1] != b"}"
        shape = (1,) if first[:1] == b"]" else (1, 1) if array else None
        hint = plain_copy(path, "np.load(%s, allow_pickle=True)", shape=shape)
        if b"pandas" in head:
            hint = f"if you trust it: {to_csv('read_pickle(%s).reset_index()')}"
    elif head.startswith((b"PK\3\4", b"\xd0\xcf\x11\xe0")):
        found, hint = "a workbook", to_csv("read_excel(%s)")
    elif head.startswith(b"\x1f\x8b"):
        found, hint = "a file packed by gzip", f"gunzip -k {shlex.quote(str(path))}"
    return Fault("not a file of arrays", where=str(path), expected=_READ, found=found, hint=hint)


def _data_files(folder: Path) -> str:
    """Returns a hint at the files that are read in a folder or below it; "" for none."""
    for below in ("*", "*/*"):
        pattern = os.path.join(glob.escape(str(folder)), below)
        counts = Counter(Path(path).suffix[1:] for path in glob.iglob(pattern))
        ending = max(f"{ENDINGS}|{ENDINGS.upper()}".split("|"), key=counts.__getitem__)
        if counts[ending]:
            return f"name its files: {shlex.quote(f'{pattern}.{ending}')}"
    return ""


def _rlds(path: Path) -> Fault:
    """Returns the fault of an RLDS data set, with code that converts it."""
    return Fault(
        "TFRecord, as RLDS data sets have it, is not read",
        where=str(path),
        expected=_READ,
        found="a file of serialised TensorFlow examples",
        hint="convert it where TensorFlow is: for i, e in enumerate("
        "tfds.builder_from_directory(FOLDER).as_dataset(split='train')): "
        "np.save(f'episode_{i}.npy', np.stack([s['action'] for s in e['steps']"
        ".as_numpy_iterator()])), or to a LeRobot data set",
    )


def _missing_file(path: Path) -> Fault:
    folder = path.parent
    there = os.path.isdir(folder)
    names = sorted(os.listdir(folder)) if there and os.access(folder, os.R_OK) else []
    close = difflib.get_close_matches(path.name, names, 3, 0.6)
    near = ", ".join(shlex.quote(str(folder / name)) for name in close)
    found = "nothing of this name" if there else f"no folder {folder}"
    hint = f"did you mean {near}?" if near else ""
    return Fault("no such file", where=str(path), expected="a file", found=found, hint=hint)


class JoinedFiles(Catalogue):
    """Files of which each holds one array [T, D] of a type, as one file of an array [n, T, D].

    Thousands of small files are then one group of trajectories. Where they differ in length,
    ``lengths`` is beside the array.
    """

    def __init__(self, files: Sequence[Catalogue]) -> None:
        first = files[0]
        super().__init__(first.path, first.family, first.pool)
        self.members = files
        arrays = [file.require("") for file in files]
        lengths = [array.shape[0] for array in arrays]
        where = first_and_more(array.where for array in arrays)
        shape, dtype = (len(files), max(lengths), arrays[0].shape[1]), arrays[0].dtype
        read = reader_of_each(lambda k, *rows: arrays[k].read_rows(*rows), lengths)
        array = Dataset(where, shape, dtype, read, storage="a file for each")
        counts = np.array(lengths)
        beside = Dataset(where, counts.shape, counts.dtype, lambda a, b: counts[a:b])
        self._entries = {"": array, "lengths": beside}
        self.spelling = {"": {"lengths": "lengths"}}

    def names(self) -> list[str]:
        return [""]

    def find(self, name: str) -> Dataset | None:
        return None  # all that there is was made with the file


def join_key(file: Catalogue) -> object:
    """Returns what files that :class:`JoinedFiles` can join have in common: type and dofs of arrays
    [T, D] in .npy files. Of any other file it returns what no second one has."""
    array = file.get("") if file.family == "npy" else None
    if array is None or array.ndim != 2 or 0 in array.shape:
        return object()
    return array.dtype, array.shape[1]
