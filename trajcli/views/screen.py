"""Tables and numbers on the screen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table of texts, which fold where it is too wide; "> min" heads a column of numbers."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for heading in headings:
        name = Text(heading.removeprefix("> "))
        if heading.startswith(">"):
            grid.add_column(name, justify="right", no_wrap=True)
        else:
            grid.add_column(name, overflow="fold")
    for row in rows:
        grid.add_row(*map(Text, row))
    return grid


def number(value: float | None, digits: int = 4) -> str:
    """A number of a few digits; nothing for None."""
    return "" if value is None else f"{value + 0.0:.{digits}g}"  # + 0.0: no -0


def shortened(names: Sequence[str], limit: int) -> str:
    """Names as a list, of many the first."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def cut(text: str, length: int = 60) -> str:
    """A text of at most so many letters."""
    return text if len(text) <= length else f"{text[: length - 1]}…"
