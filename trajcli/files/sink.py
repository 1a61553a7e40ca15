"""What a run writes to: an output, or what puts blocks in their places in one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol


class Sink(Protocol):
    """Takes blocks of named variables; see :class:`trajcli.files.outputs.Output`."""

    path: Path
    keeps: bool
    done: int
    carried: dict[str, Any]

    def write(self, name: str, row: int, block: Any) -> None:
        """Rows of a variable, from ``row`` on."""

    def place(self, name: str, row: int) -> tuple[int, int] | None:
        """Where rows of a variable lie in a file; None where they have to be written."""

    def settle(self) -> None:
        """What is to be done after each block."""

    def keep(self, done: int, carried: Mapping[str, Any]) -> None:
        """Leave what is written, to be resumed."""
