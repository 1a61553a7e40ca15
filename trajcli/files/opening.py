"""Opening a file by what it is, not by what it is called."""

from __future__ import annotations

import os
from pathlib import Path

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import ArrayFile
from trajcli.files.placing import PROVENANCE

_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_NPY_SIGNATURE = b"\x93NUMPY"
_PARQUET_SIGNATURE = b"PAR1"
_ZIP_SIGNATURES = (b"PK\x03\x04", b"PK\x05\x06")


def open_arrays(path: Path, allow_external: bool = False, untrusted: bool = False) -> ArrayFile:
    """Open an .npy, .npz or HDF5 file, or a folder that trajcli wrote, for reading.

    ``untrusted``: the file is read by a child process with limits on time and memory, so that
    what a library cannot survive is a reported bad file. Raises InputError for a file that is
    missing, unreadable, empty or something else.
    """
    family = recognise(path)
    if untrusted:
        from trajcli.files.untrusted import UntrustedFile

        return UntrustedFile(path, family, allow_external)
    return open_family(path, family, allow_external)


def open_family(path: Path, family: str, allow_external: bool) -> ArrayFile:
    """Open a file of a known family in this process."""
    if family == "hdf5":
        from trajcli.files.hdf5 import Hdf5File

        return Hdf5File(path, allow_external)
    if family == "parquet":
        from trajcli.files.parquet_files import ParquetFile

        return ParquetFile(path)
    if family == "npy folder":
        from trajcli.files.folders import FolderFile

        return FolderFile(path)
    from trajcli.files.numpy_files import NpyFile, NpzFile

    return NpyFile(path) if family == "npy" else NpzFile(path)


def recognise(path: Path) -> str:
    """ "hdf5", "npy", "npz" or "parquet", by the first bytes; "npy folder" for one of trajcli's."""
    try:
        if os.path.isdir(path):
            if os.path.isfile(os.path.join(path, PROVENANCE)):
                return "npy folder"
            raise InputError(_folder(path))
        if os.path.exists(path) and not os.path.isfile(path):  # reading a pipe could wait for ever
            found = "a pipe, socket or device"
            raise InputError(Fault("not a regular file", str(path), "a file on a disk", found))
        with open(path, "rb") as file:
            head = file.read(8)
            offset = 512  # an HDF5 file may carry a user block of 512, 1024, ... bytes
            size = os.fstat(file.fileno()).st_size
            at = head
            while at != _HDF5_SIGNATURE and offset < min(size, 1 << 26):
                file.seek(offset)
                at = file.read(8)
                offset *= 2
    except FileNotFoundError:
        raise InputError(_missing_file(path)) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(Fault("cannot be opened", str(path), "a readable file", reason)) from None
    if at == _HDF5_SIGNATURE:
        return "hdf5"
    if head.startswith(_NPY_SIGNATURE):
        return "npy"
    if head.startswith(_ZIP_SIGNATURES):
        return "npz"
    if head.startswith(_PARQUET_SIGNATURE):
        return "parquet"
    if ".tfrecord" in path.name or path.suffix == ".array_record":
        raise InputError(_rlds(path))
    if path.suffix == ".npy" and head[:1] == b"\x80":
        from trajcli.files.numpy_files import pickled

        raise InputError(pickled(path))
    found = f"a file that begins with {head!r}" if head else "an empty file"
    raise InputError(Fault("not a file of arrays", str(path), "HDF5, .npy, .npz or Parquet", found))


def _folder(path: Path) -> Fault:
    """The fault of a folder; one of RLDS is named, and so are the files of LeRobot's."""
    if any((path / name).exists() for name in ("dataset_info.json", "features.json")):
        return _rlds(path)
    hint = (
        f"'{path}/data/*/*.parquet' are its episodes" if (path / "meta/info.json").exists() else ""
    )
    expected = "an .h5, .npy, .npz or .parquet file, or a folder that trajcli wrote"
    return Fault("a folder, not a file", str(path), expected, hint=hint)


def _rlds(path: Path) -> Fault:
    """The fault of RLDS data, and how to bring them here."""
    return Fault(
        "TFRecord, as RLDS data sets have it, is not read",
        str(path),
        "HDF5, .npy, .npz or Parquet",
        "a file of serialised TensorFlow examples",
        "convert it where TensorFlow is: for i, e in enumerate(tfds.builder_from_directory(FOLDER)"
        ".as_dataset(split='train')): np.save(f'episode_{i}.npy', "
        "np.stack([s['action'] for s in e['steps'].as_numpy_iterator()])), "
        "or to a LeRobot data set",
    )


def _missing_file(path: Path) -> Fault:
    import difflib

    folder = path.parent
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        names = []
    near = difflib.get_close_matches(path.name, names, 3, 0.6)
    hint = f"did you mean {', '.join(str(folder / name) for name in near)}?" if near else ""
    found = "nothing of this name" if os.path.isdir(folder) else f"no folder {folder}"
    return Fault("no such file", str(path), "a file", found, hint)
