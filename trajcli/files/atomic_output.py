"""The hidden folder in which an output is written, and the rename that makes it appear.

    .OUT.trajcli-1f3a09c2    of a process that writes OUT, or that was killed
    .OUT.trajcli-lock        locked while a process writes OUT

Every process writes in a folder that it made, under a name that no other has. OUT appears by one
rename.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from trajcli.errors import BusyError, OutputError
from trajcli.files.refusals import name_taken, os_fault, refuse_place
from trajcli.system import allocate, is_command, rename_new, signals

# Bytes of OUT's name in a hidden name; a file system takes 255.
_LONGEST_NAME = 200


class HiddenFolder:
    """The folder in which one process writes OUT; see the top of this module.

    Raises OutputError where OUT is refused, BusyError where another process writes it.
    """

    def __init__(self, path: Path, overwrite: bool) -> None:
        name = path.name
        if len(os.fsencode(name)) > _LONGEST_NAME:
            import hashlib

            name = hashlib.sha256(os.fsencode(name)).hexdigest()
        self._out, self._prefix, self._overwrite = path, f".{name}.trajcli-", overwrite
        self.path = self._sibling(os.urandom(4).hex())
        self.data = self.path / "data"
        """What becomes OUT."""
        refuse_place(path, overwrite)
        self._lock: int | None = None
        exclusive = self._acquire_lock()
        try:
            refuse_place(path, overwrite)  # the process before may just have written it
            if exclusive:
                self._remove_dead()
        except BaseException:
            self.close()
            raise

    def make(self) -> None:
        """Makes the folder, empty."""
        remove(self.path)
        os.mkdir(self.path, 0o700)

    def publish(self) -> None:
        """Renames the data to OUT.

        Raises OutputError where OUT appeared in the meantime and must not be replaced.
        """
        with signals() if is_command() else contextlib.nullcontext():  # none between name and end
            if self._overwrite:
                os.replace(self.data, self._out)
                return
            try:
                rename_new(self.data, self._out)
            except FileExistsError:
                raise OutputError(name_taken(self._out)) from None

    def close(self) -> list[str]:
        """Removes the folder and the lock; returns what could not be removed."""
        left = []
        if self._lock is not None:
            lock, descriptor, self._lock = self._sibling("lock"), self._lock, None
            try:
                os.unlink(lock)
            except OSError:
                left.append(str(lock))
            with contextlib.suppress(OSError):
                os.close(descriptor)  # first: to look into a folder takes one
        remove(self.path)
        return [*left, str(self.path)] if os.path.lexists(self.path) else left

    def _sibling(self, name: str) -> Path:
        return self._out.parent / f"{self._prefix}{name}"

    def _acquire_lock(self) -> bool:
        """Returns whether the lock is held: some file systems have none.

        Raises BusyError if another process holds it.
        """
        lock = self._sibling("lock")
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
                    what, hint = "cannot be opened", f"rm {lock}, once nobody writes {self._out}"
                    fault = replace(fault, what=what, expected="a lock file", hint=hint)
                raise OutputError(fault) from None
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                what = "another run is writing this output"
                raise BusyError(
                    what, where=str(self._out), expected="one writer", found=f"it holds {lock.name}"
                ) from None
            except OSError:
                self._lock = descriptor
                return False
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(descriptor), os.lstat(lock)):
                    self._lock = descriptor
                    return True
            os.close(descriptor)  # the other run ended and removed it in between
        raise OutputError("cannot be locked", where=str(self._out))

    def _remove_dead(self) -> None:
        """Removes the folders of killed processes; a living one would hold the lock."""
        names = [name for name in os.listdir(self._out.parent) if name.startswith(self._prefix)]
        for name in names:
            folder = self._out.parent / name
            if not re.fullmatch("[0-9a-f]{8}", name.removeprefix(self._prefix)):
                continue
            with contextlib.suppress(FileNotFoundError):
                status = os.lstat(folder)
                others = status.st_uid != os.geteuid() or status.st_mode & 0o022
                if stat.S_ISDIR(status.st_mode) and not others:  # nobody else can write to it
                    remove(folder)


def remove_dead(path: Path) -> None:
    """Removes what killed processes left beside OUT, unless it is being written."""
    with contextlib.suppress(OutputError):
        HiddenFolder(path, overwrite=True).close()


@contextlib.contextmanager
def new_file(path: Path, overwrite: bool) -> Iterator[Path]:
    """Yields a hidden name to write to; the file appears under its own name when nothing failed."""
    hidden = HiddenFolder(path, overwrite)
    try:
        hidden.make()
        yield hidden.data
        hidden.publish()
    except OSError as error:
        raise OutputError(os_fault(path, error)) from None
    finally:
        hidden.close()


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
    """Opens or makes the lock file; one of another user only to read, which is enough to lock."""
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
