"""The files of a command that are open at a time, and how much of them is unpacked in memory."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from trajcli.errors import Fault, InputError

if TYPE_CHECKING:
    from trajcli.files.arrays import ArrayFile

DEFAULT_MEMORY = 256 << 20
_LEAST_MEMORY = 64 << 20
_MOST_FILES = 64


class OpenFiles:
    """Files of which only so many are open at a time: one more closes the one opened first.

    That one is opened again when something of it is read. ``lock`` is held while a file is used,
    so that no other thread closes it. ``memory``: bytes that may be unpacked at once, 64 MiB at
    least. ``allow_external``: what leads out of a file is followed.
    """

    def __init__(self, memory: int = DEFAULT_MEMORY, allow_external: bool = False) -> None:
        self.memory, self.allow_external = max(memory, _LEAST_MEMORY), allow_external
        self._files: dict[ArrayFile, int] = {}  # and the bytes that each has unpacked
        self.lock = threading.RLock()

    def add(self, file: ArrayFile) -> None:
        """Count a file that has been opened."""
        self._files[file] = 0
        while len(self._files) > _MOST_FILES:
            next(iter(self._files)).close()

    def hold(self, file: ArrayFile, size: int) -> None:
        """Make room for what a file unpacks, at most ``memory``: others forget what they hold."""
        others = (other for other in list(self._files) if other is not file)
        while size + sum(self._files.values()) > self.memory:
            next(others, file).close()
        file.opened()
        self._files[file] += size

    def remove(self, file: ArrayFile) -> None:
        """Forget a file that has been closed."""
        self._files.pop(file, None)

    def refuse_larger(self, size: int, where: str, hint: str) -> None:
        """Raise InputError for what is unpacked as a whole and takes more than ``memory``."""
        if size > self.memory:
            what, expected = "too large to be unpacked", f"at most {self.memory} bytes at once"
            hint = f"a larger --memory, where the command has it, or {hint}"
            raise InputError(Fault(what, where, expected, f"{size} bytes", hint))
