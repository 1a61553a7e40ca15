"""What a run from file to file asks of a device: memory, lanes of work, and marks on them.

Lanes run beside one another, each in order; a mark is a point in a lane that another lane or the
host can wait for. :mod:`trajcli.kernels.cuda` does it with streams and events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class NoRoom(Exception):
    """Memory on the device, or pinned memory of the host, does not suffice."""


class Lost(Exception):
    """The device failed in the middle of its work; nothing more can be had from it."""


class Mark(Protocol):
    """A point in the work of a lane."""

    def wait(self) -> None:
        """Return when the lane is there. Raises NoRoom and Lost for what went wrong before."""


class Lane(Protocol):
    """Work that is done in the order in which it is asked for."""

    def do(self, work: Callable[[], None]) -> None:
        """Have it done after all that was asked for; may return before it is.

        work issues operations of torch and does not wait for them. Raises NoRoom and Lost, at
        once or from a later mark.
        """

    def after(self, mark: Any) -> None:
        """Have what is asked for from now on done after a mark of another lane."""

    def mark(self) -> Mark:
        """The point after all that was asked for."""


class Device(Protocol):
    """A device with memory of its own; ``name`` as torch calls it."""

    name: str

    def pinned(self, count: int) -> Any:
        """So many bytes of the host that the device copies from and to by itself: uint8 [count].

        Raises NoRoom.
        """

    def memory(self, count: int) -> Any:
        """So many bytes of the device, a tensor uint8 [count]. Raises NoRoom and Lost."""

    def lane(self) -> Lane:
        """A lane of its own."""

    def release(self) -> None:
        """Give back memory that nothing refers to any more."""
