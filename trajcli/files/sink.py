"""What a run writes to: an output, or what puts blocks in their places in one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol


class Sink(Protocol):
    """Takes blocks of named variables; see :class:`trajcli.files.outputs.Output`."""

    keeps: bool
    done: tuple[int, int]
    carried: dict[str, Any]

    def write(self, name: str, row: int, block: Any, step: int = 0) -> None:
        """Rows of a variable, from ``row`` on; of each row all, or steps from ``step`` on."""

    def view(self, name: str) -> Any:
        """A variable as memory to compute into; None where it has to be written."""

    def populate(self, parts: Iterable[Any]) -> None:
        """Make ready what is about to be computed into, parts of views."""

    def settle(self) -> None:
        """What the thread that reads has to do between two blocks."""

    def keep(self, done: tuple[int, int], carried: Mapping[str, Any]) -> None:
        """Leave what is written, to be resumed."""
