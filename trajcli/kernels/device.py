"""What a run from file to file asks of a device: memory, and streams of work.

:mod:`trajcli.kernels.cuda` has the real one; tests put threads in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol


class NoRoom(Exception):
    """Memory on the device, or pinned memory of the host, does not suffice."""


class Lost(Exception):
    """The device failed in the middle of its work; nothing more can be had from it."""


class Stream(Protocol):
    """Work that is done in the order in which it is asked for; streams run beside one another."""

    def do(self, work: Callable[[], None]) -> None:
        """Have it done after all that was asked for; may return before it is.

        work issues operations of torch and does not wait for them. Raises NoRoom and Lost, at
        once or from ``wait``.
        """

    def wait(self) -> None:
        """Return when all of it is done. Raises NoRoom and Lost for what went wrong."""


class Device(Protocol):
    """A device with memory of its own; ``name`` as torch calls it."""

    name: str

    def pinned(self, count: int) -> Any:
        """So many bytes of the host that the device copies from and to by itself: uint8 [count].

        Raises NoRoom.
        """

    def memory(self, count: int) -> Any:
        """So many bytes of the device, a tensor uint8 [count]. Raises NoRoom and Lost."""

    def stream(self) -> Stream:
        """A stream of its own."""

    def release(self) -> None:
        """Give back memory that nothing refers to any more."""

    def errors(self) -> AbstractContextManager[None]:
        """Within it, errors of the device come out as NoRoom or Lost; others as they are."""
