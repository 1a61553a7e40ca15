"""Outputs that are refused before anything is written, and the faults of failures to write."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from trajcli.errors import Fault, OutputError
from trajcli.files.description import Description
from trajcli.files.file_bytes import file_state

PROVENANCE = "trajcli.json"
"""The member of an .npz archive that holds what HDF5 files have as attributes."""
_FAMILIES = {".h5": "hdf5", ".hdf5": "hdf5", ".npz": "npz", ".npy": "npy"}
_OUT_OF_SPACE = (errno.ENOSPC, errno.EDQUOT)


def output_family(path: Path) -> str:
    """Returns "hdf5", "npz" or "npy" by OUT's name; raises OutputError for other names."""
    family = _FAMILIES.get(path.suffix.lower())
    if family is None:
        fault = Fault(
            "unknown kind of output",
            where=str(path),
            expected="OUT.h5, OUT.npz, or OUT.npy with one quantity",
            found=path.suffix,
            hint="of an .h5, xarray.open_dataset(OUT).to_zarr(STORE) makes a Zarr store",
        )
        raise OutputError(fault)
    return family


def refuse_output(path: Path, overwrite: bool) -> None:
    """Raises OutputError where OUT cannot or must not be written."""
    refuse_place(path, overwrite)
    output_family(path)


def refuse_place(path: Path, overwrite: bool) -> None:
    """Raises OutputError where a file of this name cannot or must not be written."""
    if str(path) == "-" or re.match("[a-z0-9+]+:/", str(path), re.IGNORECASE):
        hint = "write to a file, then send it on"
        raise OutputError(
            "not a file",
            where=str(path),
            expected="a name",
            found="standard output" if str(path) == "-" else "an address",
            hint=hint,
        )
    if not os.path.isdir(path.parent):
        hint = f"mkdir -p {path.parent}"
        raise OutputError(
            "not a folder" if os.path.exists(path.parent) else "no such folder",
            where=str(path.parent),
            expected="the folder of OUT",
            hint=hint,
        )
    if path.is_dir():
        raise OutputError("already exists, and is a folder", where=str(path), expected="a file")
    if os.path.lexists(path) and not overwrite:
        raise OutputError(name_taken(path))


def name_taken(path: Path) -> Fault:
    """Returns the fault of an OUT that exists and must not be replaced."""
    return Fault(
        "already exists",
        where=str(path),
        expected="a name that is free",
        hint="--overwrite replaces it once the new one is complete",
    )


def refuse_input(path: Path, inputs: Iterable[str | Path]) -> None:
    """Raises OutputError where OUT is one of the inputs."""
    out = file_state(path)
    for source in inputs if out is not None else ():
        state = file_state(source)
        if state is not None and out is not None and state[:2] == out[:2]:  # device and inode
            raise OutputError(
                "the output is an input",
                where=str(path),
                expected="another name",
                found=str(source),
            )


def refuse_form(path: Path, description: Description, compress: int | None = None) -> None:
    """Raises OutputError where OUT's form cannot hold what is described, or not compressed."""
    family, faults = output_family(path), []
    if compress is not None and (family != "hdf5" or not 1 <= compress <= 9):
        faults.append(
            Fault(
                "cannot be compressed",
                where="--compress",
                expected="OUT.h5 or OUT.hdf5, and a level from 1 to 9",
                found=f"{path.name}, level {compress}",
            )
        )
    if description.groups and family == "npy":
        what = "trajectories of unequal length are not one array"
        faults.append(Fault(what, where=str(path), expected="OUT.h5 or OUT.npz", found=path.suffix))
    arrays = [variable.name for variable in description.streamed if variable.name != "time"]
    if family == "npy" and len(arrays) != 1:
        what = "a .npy file holds one array"
        faults.append(
            Fault(
                what,
                where=str(path),
                expected="OUT.h5",
                found=", ".join(arrays),
                hint=f"--write {arrays[0]} writes one" if arrays else "",
            )
        )
    names = Counter(name for group in description.groups for name in group.names)
    for name, count in names.items():
        if name.rpartition("/")[0] in names or name in ("", "dof") or count > 1:
            faults.append(Fault("a trajectory within another, or without a name", where=name))
    if faults:
        raise OutputError(*faults[:5])


def require_space(path: Path, needed: int) -> None:
    """Raises OutputError where the disk has fewer bytes free than are needed."""
    disk = os.statvfs(path.parent)
    free = disk.f_bavail * disk.f_frsize
    if needed > free:
        raise OutputError(
            "not enough space on the disk",
            where=str(path.parent),
            expected=f"{needed} bytes for the output",
            found=f"{free} bytes free",
            hint="--write position writes less; --dtype float32 halves float64",
        )


def os_fault(path: Path, error: Exception) -> Fault:
    """Returns the fault of a path that cannot be written; HDF5's text holds the error number."""
    # HDF5 writes errno into the text of its errors alone
    number = getattr(error, "errno", None)
    match = re.search(r"errno = (\d+)", str(error))
    if number is None and match:
        number = int(match[1])
    return Fault(
        "cannot be written",
        where=str(path),
        found=str(error) if number is None else os.strerror(number),
        hint="nothing was written; free some space" if number in _OUT_OF_SPACE else "",
    )


@contextlib.contextmanager
def os_failures(path: Path) -> Iterator[None]:
    """Turns failures to write a file, also within HDF5, into OutputError."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        if not isinstance(error, OSError) and "errno = " not in str(error):
            raise
        raise OutputError(os_fault(path, error)) from None
