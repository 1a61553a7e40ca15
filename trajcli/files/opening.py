"""Opening a file by what it is, not by what it is called, as far as it says what it is."""

from __future__ import annotations

import difflib
import os
from importlib import import_module
from pathlib import Path

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import ArrayFile
from trajcli.files.file_bytes import OpenFiles, open_regular, unreadable
from trajcli.files.refusals import PROVENANCE
from trajcli.files.source import ONE_SOURCE

READERS = {
    "hdf5": "hdf5.Hdf5File",
    "npy": "numpy_files.NpyFile",
    "npz": "numpy_files.NpzFile",
    "npy folder": "numpy_files.FolderFile",
    "parquet": "parquet_files.ParquetFile",
    "csv": "csv_files.CsvFile",
    "ros": "ros_files.RosFile",
    "zarr": "zarr_files.ZarrFile",
    "safetensors": "tensor_files.SafetensorsFile",
    "pt": "tensor_files.TorchFile",
}
"""The class of each family, imported when a file of it is opened; see :class:`ArrayFile`."""
_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_SIGNATURES = {
    b"\x93NUMPY": "npy", b"PAR1": "parquet", b"PK\3\4": "npz", b"PK\5\6": "npz",
    b"#ROSBAG": "ros", b"\x89MCAP0\r\n": "ros", b"SQLite f": "ros",
}  # fmt: skip
_ZIPPED = {".zip": "zarr", ".pt": "pt", ".pth": "pt", ".xlsx": "", ".ods": ""}
"""What zip archives may be besides .npz, by the ending of their names."""
_ENDINGS = {".csv": "csv", ".tsv": "csv", ".txt": "csv", ".safetensors": "safetensors"} | _ZIPPED
"""Of files that do not say what they are."""
_LARGEST_USER_BLOCK = 1 << 26
_READ = "HDF5, NumPy, Parquet, CSV, Zarr, a ROS bag, or tensors"


def open_arrays(path: Path, pool: OpenFiles | None = None, untrusted: bool = False) -> ArrayFile:
    """Open a file of one of :data:`READERS` for reading.

    ``untrusted``: the file is read by a child process with limits on time and memory, so that
    what a library cannot survive is a reported bad file. Raises InputError for a file that is
    missing, unreadable, empty or something else.
    """
    family = recognise(path)
    if untrusted:
        from trajcli.files.untrusted import UntrustedFile

        return UntrustedFile(path, family, pool)
    return open_family(path, family, pool)


def open_family(path: Path, family: str, pool: OpenFiles | None = None) -> ArrayFile:
    """Open a file of a known family in this process."""
    module, name = READERS[family].split(".")
    reader: ArrayFile = getattr(import_module(f"trajcli.files.{module}"), name)(path, pool)
    return reader


def recognise(path: Path) -> str:
    """The family of a file, by its first bytes or else its name; of a folder that trajcli wrote
    "npy folder"."""
    if os.path.isdir(path):
        if os.path.isfile(path / PROVENANCE):
            return "npy folder"
        if any(os.path.isfile(path / name) for name in ONE_SOURCE):
            return "zarr"
        if any(os.path.exists(path / name) for name in ("dataset_info.json", "features.json")):
            raise InputError(_rlds(path))
        expected = f"{_READ}, or the folder of a data set"
        raise InputError(Fault("a folder without data that are read", str(path), expected))
    try:
        with open(open_regular(path), "rb") as file:
            head = signature = file.read(8)
            size, offset = os.fstat(file.fileno()).st_size, 512
            while signature != _HDF5_SIGNATURE and offset < min(size, _LARGEST_USER_BLOCK):
                file.seek(offset)  # behind a user block of 512, 1024, … bytes
                signature = file.read(8)
                offset *= 2
    except FileNotFoundError:
        raise InputError(_missing_file(path)) from None
    except OSError as error:
        raise InputError(unreadable(path, "a readable file", error)) from None
    if signature == _HDF5_SIGNATURE:
        return "hdf5"
    by_name = _ENDINGS.get(path.suffix.lower(), "")
    by_head = next((name for start, name in _SIGNATURES.items() if head.startswith(start)), "")
    family = by_name if by_head == "npz" and path.suffix.lower() in _ZIPPED else by_head or by_name
    if head and family:
        return family
    raise InputError(_not_read(path, head))


def _not_read(path: Path, head: bytes) -> Fault:
    """The fault of a file that is of no family, and how to bring what it holds here."""
    if ".tfrecord" in path.name or path.suffix == ".array_record":
        return _rlds(path)
    stem, found, hint = path.stem, f"a file that begins with {head!r}", ""
    if not head:
        found = "an empty file"
    elif head.startswith(b"MATLAB 5"):
        found = "a MATLAB 5 file"
        hint = (
            f"m = scipy.io.loadmat('{path.name}'); numpy.savez('{stem}.npz', "
            "**{k: v for k, v in m.items() if k[0] != '_'}); or save -v7.3, which is HDF5"
        )
    elif head[:1] == b"\x80":
        found = "a pickle, which may run any program when it is read"
        hint = f"in the program that wrote it: numpy.savez('{stem}.npz', actions=...)"
    elif head.startswith((b"PK\3\4", b"\xd0\xcf\x11\xe0")):
        found = "a workbook"
        hint = f"pandas.read_excel('{path.name}').to_csv('{stem}.csv', index=False)"
    elif head.startswith(b"\x1f\x8b"):
        found, hint = "a file packed by gzip", f"gunzip -k {path}"
    return Fault("not a file of arrays", str(path), _READ, found, hint)


def _rlds(path: Path) -> Fault:
    """The fault of RLDS data, and how to bring them here."""
    return Fault(
        "TFRecord, as RLDS data sets have it, is not read",
        str(path),
        _READ,
        "a file of serialised TensorFlow examples",
        "convert it where TensorFlow is: for i, e in enumerate(tfds.builder_from_directory(FOLDER)"
        ".as_dataset(split='train')): np.save(f'episode_{i}.npy', "
        "np.stack([s['action'] for s in e['steps'].as_numpy_iterator()])), "
        "or to a LeRobot data set",
    )


def _missing_file(path: Path) -> Fault:
    folder = path.parent
    there = os.path.isdir(folder)
    names = sorted(os.listdir(folder)) if there and os.access(folder, os.R_OK) else []
    near = difflib.get_close_matches(path.name, names, 3, 0.6)
    hint = f"did you mean {', '.join(str(folder / name) for name in near)}?" if near else ""
    found = "nothing of this name" if there else f"no folder {folder}"
    return Fault("no such file", str(path), "a file", found, hint)
