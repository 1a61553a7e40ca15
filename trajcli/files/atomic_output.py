"""Where an output goes: whether it may, its hidden place, the lock on it, its name at the end."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from trajcli.errors import Fault, OutputError

PROVENANCE = "trajcli.json"
"""In a folder of .npy files, the attributes; also the mark of a folder that may be replaced."""
BUSY = "another run is writing this OUT"


def output_family(path: Path) -> str:
    """ "hdf5", "npz" or "npy" (a folder), by the name of OUT."""
    families = {".h5": "hdf5", ".hdf5": "hdf5", ".npz": "npz", "": "npy"}
    family = families.get(path.suffix.lower())
    if family is None:
        hint = "one .npy holds one array; a name without ending makes a folder of .npy files"
        raise OutputError(
            Fault(
                "unknown kind of output",
                str(path),
                "OUT.h5, OUT.hdf5, OUT.npz, or OUT without ending (a folder of .npy files)",
                path.suffix,
                hint if path.suffix == ".npy" else "",
            )
        )
    return family


def refuse_output(path: Path, overwrite: bool) -> None:
    """Raise OutputError where OUT cannot or must not be written."""
    family = output_family(path)
    refuse_place(path, overwrite, folder=family == "npy")
    if family == "npy" and os.path.lexists(path):
        _refuse_folder(path)


def refuse_place(path: Path, overwrite: bool, folder: bool) -> None:
    """Raise OutputError where a file, or a folder, of this name cannot or must not be written."""
    if str(path) == "-" or re.match("[a-z0-9+]+:/", str(path), re.IGNORECASE):
        found = "standard output" if str(path) == "-" else "an address"
        hint = "write to a file, then send it on"
        raise OutputError(Fault("not a file or folder", str(path), "a name", found, hint))
    if not os.path.isdir(path.parent):
        what = "not a folder" if os.path.exists(path.parent) else "no such folder"
        hint = f"mkdir -p {path.parent}"
        raise OutputError(Fault(what, str(path.parent), "the folder of OUT", hint=hint))
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise OutputError(Fault("not writable", str(path.parent), "a folder that can be written"))
    if not os.path.lexists(path):
        return
    is_folder = path.is_dir() and not path.is_symlink()
    if is_folder != folder:
        found = "a folder" if is_folder else "not a folder"
        raise OutputError(Fault("already exists and is of another kind", str(path), found=found))
    if not overwrite:
        hint = "--overwrite replaces it once the new one is complete"
        raise OutputError(Fault("already exists", str(path), "a name that is free", hint=hint))


def _refuse_folder(path: Path) -> None:
    """Raise OutputError where a folder holds what trajcli did not write."""
    ours = (path / PROVENANCE).is_file()
    parts = [*path.iterdir(), *(path / "grad").glob("*")]
    others = [
        part.name
        for part in parts
        if not (ours and (part.suffix == ".npy" or part.name in (PROVENANCE, "grad")))
    ]
    if others:
        hint = "choose another name; only folders that trajcli wrote are replaced"
        found = ", ".join(sorted(others)[:5])
        raise OutputError(
            Fault("a folder with other things in it", str(path), found=found, hint=hint)
        )


@contextlib.contextmanager
def new_file(path: Path, overwrite: bool) -> Iterator[Path]:
    """A file being made: a hidden name to write to, renamed when all went well, else removed."""
    refuse_place(path, overwrite, folder=False)
    hidden = path.parent / f".{path.name}.trajcli-part"
    lock = locked(hidden, path, folder=False)
    try:
        yield hidden
        os.replace(hidden, path)
    except OSError as error:
        raise OutputError(os_fault(path, error)) from None
    finally:
        remove(hidden)
        os.close(lock)


def refuse_input(path: Path, inputs: Iterable[str | Path]) -> None:
    """Raise OutputError where OUT is, or holds, a file that is read."""
    if not os.path.exists(path):
        return
    for source in inputs:
        same = os.path.exists(source) and os.path.samefile(source, path)
        inside = Path(os.path.realpath(source)).is_relative_to(os.path.realpath(path))
        if same or inside:
            hint = "choose another name for the output"
            raise OutputError(
                Fault("the output is an input", str(path), "another file", str(source), hint)
            )


def locked(hidden: Path, path: Path, folder: bool | None = None) -> int:
    """Make the hidden file or folder and hold its lock; refuse where another run does."""
    folder = output_family(path) != "hdf5" if folder is None else folder
    for _ in range(100):
        try:
            if hidden.is_symlink():
                hidden.unlink()  # nobody's but a stranger's: never write through it
            if folder:
                hidden.mkdir(exist_ok=True)
                descriptor = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            else:
                descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise OutputError(os_fault(path, error)) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            found = "it holds " + hidden.name
            raise OutputError(Fault(BUSY, str(path), "one writer", found)) from None
        except OSError:
            return descriptor  # a file system without locks
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), os.stat(hidden)):
                return descriptor
        os.close(descriptor)  # the other run finished and renamed it in between
    raise OutputError(Fault("cannot lock the output", str(path)))


def replace(hidden: Path, path: Path) -> None:
    """Give the finished output its name; a file in one step, a folder in two."""
    if not hidden.is_dir() or not path.is_dir():
        os.replace(hidden, path)
        return
    old = path.parent / f".{path.name}.trajcli-old"
    remove(old)
    os.rename(path, old)
    os.rename(hidden, path)
    remove(old)


def remove(path: Path) -> None:
    """Remove a file, a folder, or (``folder/*``) all that is in a folder."""
    parts: Iterable[Path] = path.parent.iterdir() if path.name == "*" else [path]
    for part in list(parts):
        if part.is_dir() and not part.is_symlink():
            import shutil

            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)


def reserve(path: Path, size: int) -> None:
    """Take the space now, so that a full disk is an error before anything is computed."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
        os.ftruncate(descriptor, max(size, os.fstat(descriptor).st_size))
    finally:
        os.close(descriptor)


def require_space(path: Path, needed: int) -> None:
    disk = os.statvfs(path.parent)
    free = disk.f_bavail * disk.f_frsize
    if needed > free:
        raise OutputError(
            Fault(
                "not enough space on the disk",
                str(path.parent),
                f"{needed} bytes for the output",
                f"{free} bytes free",
                "--write position writes less; --dtype float32 halves float64",
            )
        )


def os_fault(path: Path, error: OSError) -> Fault:
    reason = error.strerror or str(error)
    hint = "nothing was written; free some space" if error.errno == errno.ENOSPC else ""
    return Fault("cannot be written", str(path), found=reason, hint=hint)
