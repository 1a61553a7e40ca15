"""Tables, numbers and plots for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
    from rich.text import Text

COLOURS = (32, 172, 36, 175, 74, 166, 184, 244)
"""Terminal colours (of 256) nearest to Okabe and Ito's, which colour-blind readers tell apart."""
_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
"""The bit of each of a braille letter's 4 × 2 dots."""
_READABLE = 8
"""Columns of text are folded to this width before other columns are left out."""
_LABEL = 9
_HEIGHT = 8
_TWO_COLUMNS = 100
LARGEST = 1e300
"""Larger values are not drawn: their differences are not finite."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """A table of texts, which fold where it is too wide; "> min" heads a column of numbers.

    Rows may be short. spare: columns that are left out, the last first, where texts would
    otherwise fold to a few letters.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    spare: Sequence[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich import box, cells, table
        from rich.text import Text

        shown = []  # heading, whether a column of numbers, cells, width
        for heading, *column in zip_longest(self.headings, *self.rows, fillvalue=""):
            name, numbers = heading.removeprefix("> "), heading.startswith(">")
            width = max(map(cells.cell_len, (name, *column)))
            shown.append((name, numbers, column, 2 + (width if numbers else min(width, _READABLE))))
        for one in [one for one in reversed(shown) if one[0] in self.spare]:
            if sum(width for *_, width in shown) > options.max_width:
                shown.remove(one)
        grid = table.Table(
            box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0)
        )
        for name, numbers, _, _ in shown:
            side: JustifyMethod = "right" if numbers else "left"
            grid.add_column(Text(name), justify=side, no_wrap=numbers, overflow="fold")
        for row in zip(*(column for _, _, column, _ in shown), strict=True):
            grid.add_row(*map(Text, row))
        yield grid


def number(value: float | None) -> str:
    """Returns a number of four digits; nothing for None."""
    return "" if value is None else f"{value + 0.0:.4g}"  # + 0.0: no -0


@lru_cache(1024)
def spreadsheet_text(name: str) -> str:
    """Returns a name that a spreadsheet takes for a text and a terminal shows as it is.

    What begins with = + - or @ would be a formula, and gets an apostrophe before it.
    """
    text = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in name)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def shortened(names: Sequence[str], limit: int) -> str:
    """Returns names as a list, of many the first."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def cut(text: str, length: int = 60) -> str:
    """Returns a text of at most so many letters."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


@dataclass(frozen=True)
class Curves:
    """One array of one trajectory: time [n], values [n, D]."""

    title: str
    time: Floats
    time_unit: str
    values: Floats


def figure(curves: Sequence[Curves], names: Sequence[str], console: Console) -> RenderableType:
    """Returns a plot of braille dots for each entry, two beside each other on a wide terminal.

    names [D]: what the dofs are called, in the legend above.
    """
    from rich.columns import Columns
    from rich.console import Group
    from rich.text import Text

    across = 2 if console.width >= _TWO_COLUMNS and len(curves) > 1 else 1
    width = (console.width - 2 * across) // across
    marks = [Text(f"━ {name}", _style(dof)) for dof, name in enumerate(names)]
    plots = [Group(*plot(one, width), "") for one in curves]
    return Group(Text("  ").join(marks), "", Columns(plots, width=width, padding=(0, 2, 0, 0)))


def plot(curves: Curves, width: int) -> list[Text]:
    """Returns a title, eight lines of plot ``width`` columns wide, and the time axis."""
    from rich.text import Text

    across = max(width - _LABEL - 2, 8)
    low, high = value_range(curves.values)
    labels = {0: high, _HEIGHT - 1: low}
    labels.setdefault(min(max(round((_HEIGHT - 1) * high / (high - low)), 0), _HEIGHT - 1), 0.0)
    bits, owner = (np.zeros((_HEIGHT, across), np.int64) for _ in range(2))
    for dof, values in enumerate(curves.values.T):
        dots = _dots(curves.time, values, low, high, 2 * across, 4 * _HEIGHT)
        cells = dots.reshape(_HEIGHT, 4, across, 2).swapaxes(1, 2)
        bits |= (cells * _DOTS).sum(axis=(2, 3))
        owner[cells.any(axis=(2, 3))] = dof  # the line drawn last colours a letter
    lines = [Text(curves.title, "bold")]
    for row in range(_HEIGHT):
        label = f"{labels[row]:.3g}" if row in labels else ""
        line = Text.styled(f"{label:>{_LABEL}} {'┤' if row in labels else '│'}", "dim")
        for cell, dof in zip(bits[row].tolist(), owner[row].tolist(), strict=True):
            line.append(chr(0x2800 + cell) if cell else " ", _style(dof))
        lines.append(line)
    ends = [f"{t:.4g}{curves.time_unit}" for t in curves.time[[0, -1]]] if len(curves.time) else []
    if len(ends) > 1 and ends[0] == ends[1] and len(curves.time) > 1:  # stamps since 1970
        ends = [ends[0], f"+{curves.time[-1] - curves.time[0]:.4g}{curves.time_unit}"]
    gap = " " * max(across - len("".join(ends)), 1)
    lines.append(Text(" " * (_LABEL + 1) + "└" + "─" * across, "dim"))
    lines.append(Text(" " * (_LABEL + 2) + gap.join(ends), "dim"))
    return lines


def value_range(values: Floats) -> tuple[float, float]:
    """Returns the least and the largest finite value; where all are equal, with room around."""
    finite = values[np.abs(values, dtype=np.float64) < LARGEST]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        room = 0.5 * abs(high) or 1.0
        return low - room, high + room
    return low, high


def _dots(
    time: Floats, values: Floats, low: float, high: float, wide: int, tall: int
) -> npt.NDArray[np.bool_]:
    """Returns the dots [tall, wide] of a line: in each column from its least to its largest."""
    good = (np.abs(values, dtype=np.float64) < LARGEST) & np.isfinite(time)
    least, most = np.full(wide, np.inf), np.full(wide, -np.inf)
    if good.any():
        x, y = time[good], values[good]
        edges = np.linspace(x[0], x[-1] if x[-1] > x[0] else x[0] + 1.0, wide + 1)
        column = np.clip(np.searchsorted(edges, x, "right") - 1, 0, wide - 1)
        np.minimum.at(least, column, y)
        np.maximum.at(most, column, y)
        if len(x) > 1:  # between rows a line is straight; where a row is NaN it is interrupted
            at = np.interp(edges, time, np.where(good, values, np.nan))
            least = np.fmin(least, np.fmin(at[:-1], at[1:]))
            most = np.fmax(most, np.fmax(at[:-1], at[1:]))
    drawn = np.isfinite(least) & np.isfinite(most)
    scale = (tall - 1) / (high - low)
    top = np.rint(np.where(drawn, high - most, 0.0) * scale)
    bottom = np.rint(np.where(drawn, high - least, -1.0) * scale)
    rows = np.arange(tall)[:, None]
    covered: npt.NDArray[np.bool_] = (rows >= top) & (rows <= bottom) & drawn
    return covered


def _style(dof: int) -> str:
    return f"color({COLOURS[dof % len(COLOURS)]})"
