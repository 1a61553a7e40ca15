"""The hidden folder in which an output is written, and the rename that makes it appear.

    .OUT.trajcli-1f3a09c2    of a process that writes OUT, or that was killed
    .OUT.trajcli-lock        locked while a process writes OUT

Every process writes in a folder that it made, under a name that no other has. OUT appears by one
rename.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from trajcli.errors import (
    BusyError,
    ExistingFileError,
    Fault,
    MissingFolderError,
    OutputError,
    TrajcliError,
)
from trajcli.files.file_bytes import file_state
from trajcli.system import allocate, hold_signals, is_command, mark_complete, rename_new

_OUT_OF_SPACE = (errno.ENOSPC, errno.EDQUOT)
# Bytes of OUT's name in a hidden name; a file system takes 255.
_LONGEST_NAME = 200


class HiddenFolder:
    """The folder in which one process writes OUT; see the top of this module.

    Leaving its context removes it. Raises BusyError where another process writes OUT.
    """

    def __init__(self, path: Path, overwrite: bool) -> None:
        name = path.name
        if len(os.fsencode(name)) > _LONGEST_NAME:  # a hash is as good: nobody reads hidden names
            import hashlib

            name = hashlib.sha256(os.fsencode(name)).hexdigest()
        prefix = f".{name}.trajcli-"
        self._out, self._overwrite = path, overwrite
        self._lock_path = path.parent / f"{prefix}lock"
        self.path = path.parent / f"{prefix}{os.urandom(4).hex()}"
        self.data = self.path / "data"
        """What becomes OUT."""
        refuse_path(path, overwrite)
        self._lock: int | None = None
        # a signal that ends the command may come while nobody has this object yet
        if is_command():
            atexit.register(self.close)
        try:
            with hold_signals():
                exclusive = self._acquire_lock()
            refuse_path(path, overwrite)  # the process before may just have written it
            if exclusive:  # a living process would hold the lock: other folders are of killed ones
                for name in os.listdir(path.parent):
                    if not re.fullmatch(f"{re.escape(prefix)}[0-9a-f]{{8}}", name):
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        folder = path.parent / name
                        status = os.lstat(folder)
                        # a folder of another user, or that others can write to, may be a trap
                        private = status.st_uid == os.geteuid() and not status.st_mode & 0o022
                        if stat.S_ISDIR(status.st_mode) and private:
                            remove(folder)
            os.mkdir(self.path, 0o700)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> HiddenFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def publish(self) -> None:
        """Renames the data to OUT; raises OutputError where OUT appeared in the meantime."""
        # No signal is answered between the rename and the note that the run is complete: a command
        # with OUT under its name ends with 0.
        with hold_signals():
            try:
                (os.replace if self._overwrite else rename_new)(self.data, self._out)
            except FileExistsError:
                raise ExistingFileError(_name_taken(self._out)) from None
            mark_complete()

    def close(self) -> list[str]:
        """Removes the folder and the lock; returns what could not be removed."""
        remaining = []
        with hold_signals():
            if self._lock is not None:
                lock, descriptor, self._lock = self._lock_path, self._lock, None
                # Unlinked while it is held, so that a process that opens this file afterwards finds
                # that it has no name any more, and makes another. Closed before the folder is
                # listed, which takes a descriptor.
                try:
                    os.unlink(lock)
                except OSError:
                    remaining.append(str(lock))
                with contextlib.suppress(OSError):
                    os.close(descriptor)
            remove(self.path)
            if os.path.lexists(self.path):
                remaining.append(str(self.path))
            atexit.unregister(self.close)
        return remaining

    def _acquire_lock(self) -> bool:
        """Takes the lock; returns False on file systems that have none."""
        # a lock file that vanishes belongs to a run that has just ended; a hundred in a row are no
        # accident
        lock = self._lock_path
        for _ in range(100):
            try:
                descriptor = _open_lock(lock)
            except FileNotFoundError:
                continue  # the other run ended and removed it in between
            except OSError as error:
                if error.errno == errno.ELOOP:  # a link, which is none of ours
                    os.unlink(lock)
                    continue
                fault = os_fault(lock, error)
                if os.path.lexists(lock):
                    hint = f"rm {shlex.quote(str(lock))}, once nobody writes {self._out}"
                    fault = replace(fault, what="cannot be opened", hint=hint)
                raise OutputError(fault) from None
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                raise BusyError(
                    "another run is writing this output",
                    where=self._out,
                    expected="one writer",
                    found=f"it holds {lock.name}",
                    hint="run the same command again once it is done",
                ) from None
            except OSError:
                self._lock = descriptor
                return False
            # the other run may have ended and removed the file between open and lock: a lock counts
            # only while its file has the name
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(descriptor), os.lstat(lock)):
                    self._lock = descriptor
                    return True
            os.close(descriptor)
        raise OutputError("cannot be locked", where=self._out)


@contextlib.contextmanager
def new_file(path: Path, overwrite: bool) -> Iterator[Path]:
    """Yields a hidden name to write to; the file appears under its own name when nothing failed."""
    with os_failures(path), HiddenFolder(path, overwrite) as hidden:
        yield hidden.data
        hidden.publish()


def remove(path: Path) -> None:
    """Removes a private folder and what it holds, using at most one file descriptor at a time."""
    with contextlib.suppress(OSError):
        for name in os.listdir(path):
            part = path / name
            if part.is_dir() and not part.is_symlink():
                remove(part)
            else:
                with contextlib.suppress(OSError):
                    part.unlink()
        os.rmdir(path)


def _open_lock(lock: Path) -> int:
    """Opens or makes the lock file; the file of another user only to read, enough to lock it."""
    # neither a link nor a pipe of this name may send or hold the process elsewhere
    flags = os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(lock, os.O_RDWR | os.O_CREAT | flags, 0o666)
    except PermissionError:
        if not os.path.lexists(lock):
            raise
    return os.open(lock, os.O_RDONLY | flags)


def reserve(path: Path, size: int) -> None:
    """Reserves disk space, so that a full disk is an error before anything is computed."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        allocate(descriptor, size)
    finally:
        os.close(descriptor)


def refuse_path(path: Path, overwrite: bool) -> None:
    """Raises OutputError where a file of this name cannot or must not be written."""
    if str(path) == "-" or re.match("[a-z0-9+]+:/", str(path), re.IGNORECASE):
        raise OutputError(
            "not a file",
            where=path,
            expected="a name",
            found="standard output" if str(path) == "-" else "an address",
            hint="write to a file, then send it on",
        )
    if not os.path.isdir(path.parent):
        exists = os.path.exists(path.parent)
        raise (OutputError if exists else MissingFolderError)(
            "not a folder" if exists else "no such folder",
            where=path.parent,
            expected="the folder of OUT",
            hint=f"os.makedirs({str(path.parent)!r})",
            shell=f"mkdir -p {shlex.quote(str(path.parent))}",
        )
    if path.is_dir():
        what = "already exists, and is a folder"
        raise ExistingFileError(what, where=path, expected="a file")
    if os.path.lexists(path) and not overwrite:
        raise ExistingFileError(_name_taken(path))


def _name_taken(path: Path) -> Fault:
    return Fault(
        "already exists",
        where=path,
        expected="a name that is free",
        hint="overwrite=True replaces it once the new one is complete",
        shell="--overwrite replaces it once the new one is complete",
    )


def refuse_input(path: Path, inputs: Iterable[str | Path]) -> None:
    """Raises OutputError where OUT is one of the inputs."""
    out = file_state(path)
    for source in inputs if out is not None else ():
        state = file_state(source)
        if state and out and state[:2] == out[:2]:  # device and inode
            what, expected = "the output is an input", "another name"
            raise OutputError(what, where=path, expected=expected, found=str(source))


def require_space(path: Path, needed: int) -> None:
    """Raises OutputError where the disk has fewer bytes free than are needed."""
    disk = os.statvfs(path.parent)
    free = disk.f_bavail * disk.f_frsize
    if needed > free:
        raise OutputError(
            "not enough space on the disk",
            where=path.parent,
            expected=f"{needed} bytes for the output",
            found=f"{free} bytes free",
            hint='write="position" writes less; dtype="float32" halves float64',
            shell="--write position writes less; --dtype float32 halves float64",
        )


def os_fault(path: Path, error: Exception) -> Fault:
    """Describes why a path cannot be written."""
    # h5py gives errors of the system as texts, with errno within them
    match = re.search(r"errno = (\d+)", str(error))
    number = getattr(error, "errno", None) or (int(match[1]) if match else None)
    hint = "nothing was written; free some space" if number in _OUT_OF_SPACE else ""
    if "unable to lock file" in str(error):  # where the environment asks HDF5 for locks
        hint = "HDF5_USE_FILE_LOCKING=FALSE in front of the command writes it without locks"
    found = str(error) if number is None else os.strerror(number)
    return Fault("cannot be written", where=path, found=found, hint=hint)


@contextlib.contextmanager
def os_failures(path: Path) -> Iterator[None]:
    """Turns failures to write a file, also within HDF5, into OutputError."""
    try:
        yield
    except TrajcliError:
        raise  # some are OSErrors
    except (OSError, RuntimeError, ValueError) as error:
        if not isinstance(error, OSError) and "errno = " not in str(error):
            raise
        raise OutputError(os_fault(path, error)) from None
