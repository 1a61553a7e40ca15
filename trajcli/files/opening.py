"""Opening a file by what it is, not by what it is called."""

from __future__ import annotations

import difflib
import os
from importlib import import_module
from pathlib import Path

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import ArrayFile
from trajcli.files.file_bytes import open_regular, unreadable
from trajcli.files.open_files import OpenFiles
from trajcli.files.refusals import PROVENANCE

READERS = {
    "hdf5": "hdf5.Hdf5File",
    "npy": "numpy_files.NpyFile",
    "npz": "numpy_files.NpzFile",
    "npy folder": "numpy_files.FolderFile",
    "parquet": "parquet_files.ParquetFile",
}
"""The class of each family, imported when a file of it is opened; see :class:`ArrayFile`."""
_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_SIGNATURES = {b"\x93NUMPY": "npy", b"PAR1": "parquet", b"PK\3\4": "npz", b"PK\5\6": "npz"}
_LARGEST_USER_BLOCK = 1 << 26
_READ = "HDF5, .npy, .npz or Parquet"


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
    """The family of a file, by its first bytes; "npy folder" for a folder that trajcli wrote."""
    if os.path.isdir(path):
        if os.path.isfile(path / PROVENANCE):
            return "npy folder"
        if any(os.path.exists(path / name) for name in ("dataset_info.json", "features.json")):
            raise InputError(_rlds(path))
        expected = f"a file of {_READ}, or a folder that trajcli wrote"
        raise InputError(Fault("a folder, not a file", str(path), expected))
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
    for start, family in _SIGNATURES.items():
        if head.startswith(start):
            return family
    if ".tfrecord" in path.name or path.suffix == ".array_record":
        raise InputError(_rlds(path))
    if path.suffix == ".npy" and head[:1] == b"\x80":
        from trajcli.files.numpy_files import pickled

        raise InputError(pickled(path))
    found = f"a file that begins with {head!r}" if head else "an empty file"
    raise InputError(Fault("not a file of arrays", str(path), _READ, found))


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
