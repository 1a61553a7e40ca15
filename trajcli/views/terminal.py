"""Tables, numbers and charts for a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from trajcli.kernels.program import Floats

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
    from rich.text import Text

COLOURS = (32, 172, 36, 175, 74, 166, 184, 244)
"""Terminal colours (of 256) nearest to Okabe and Ito's, which colour-blind readers tell apart."""
# The bit of each of a braille letter's 4 × 2 dots.
_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
# Columns of the labels next to a chart, and lines of the chart.
_LABEL, _HEIGHT = 9, 8
# The least width at which two charts are shown side by side.
_TWO_COLUMNS = 100
LARGEST = 1e300
"""Larger values are not drawn: their differences are not finite."""


class TextTable:
    """A table of texts that fits the terminal without breaking a name.

    Where it is too wide, texts wrap at spaces, then the columns ``spare`` are left out, then names
    wrap after a slash, and finally they are cut in the middle. A heading like "> min" is that of
    numbers, which never wrap; rows may have fewer cells than the headings.
    """

    def __init__(
        self, headings: Sequence[str], rows: Sequence[Sequence[str]], spare: Sequence[str] = ()
    ) -> None:
        self.spare = spare
        self.columns = list(zip_longest(headings, *rows, fillvalue=""))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich import box, cells, table
        from rich.text import Text

        def longest(texts: Iterable[str]) -> int:
            return max(map(cells.cell_len, texts), default=0)

        def least(column: Sequence[str], pieces: str = r"\S+") -> int:
            """The width of a column whose texts wrap between these pieces."""
            if column[0].startswith(">"):
                return longest([column[0].removeprefix("> "), *column[1:]])
            return longest(word for text in column for word in re.findall(pieces, text))

        def excess(widths: Iterable[int]) -> int:
            return sum(width + 2 for width in widths) - 2 - options.max_width

        # The narrowest widths to which the columns may wrap, by the least harm that is enough.
        shown = list(self.columns)
        for heading in self.spare:
            for column in [c for c in reversed(shown) if c[0].removeprefix("> ") == heading]:
                if excess(map(least, shown)) > 0:
                    shown.remove(column)
        smallest = [least(column) for column in shown]
        if excess(smallest) > 0:
            smallest = [least(column, r"[^\s/]+/?") for column in shown]
        if excess(smallest) > 0:
            smallest = [w if c[0][:1] == ">" else 1 for w, c in zip(smallest, shown, strict=True)]
        widths = [least(column, r".+") for column in shown]
        # From the width of unbroken texts, the widest column that may be narrowed loses one.
        while excess(widths) > 0 and widths != smallest:
            room = [w if w > low else 0 for w, low in zip(widths, smallest, strict=True)]
            widths[room.index(max(room))] -= 1
        grid = table.Table(
            box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0)
        )
        folded = []
        for column, width in zip(shown, widths, strict=True):
            numbers = column[0].startswith(">")
            texts = [column[0].removeprefix("> "), *column[1:]]
            texts = texts if numbers else [_folded(text, width) for text in texts]
            side: JustifyMethod = "right" if numbers else "left"
            grid.add_column(Text(texts[0]), justify=side, no_wrap=True)
            folded.append(map(Text, texts[1:]))
        for row in zip(*folded, strict=True):
            grid.add_row(*row)
        yield grid


def _folded(text: str, width: int) -> str:
    """Breaks a text into lines: between words, in long words after a slash."""
    from rich.cells import cell_len

    lines = [""]
    for word in re.findall(r"\S+\s*|^\s+", text):
        pieces = re.findall(r"[^/]+/*|/+", word) if cell_len(word.rstrip()) > width else [word]
        for piece in pieces:
            if lines[-1] and cell_len((lines[-1] + piece).rstrip()) > width:
                lines.append("")
            lines[-1] += shortened(piece, width) if cell_len(piece.rstrip()) > width else piece
    return "\n".join(line.rstrip() for line in lines)


def number(value: float | None) -> str:
    """Writes a number with four digits; nothing for None."""
    # Adding 0 turns -0 into 0.
    return "" if value is None else f"{value + 0.0:.4g}"


@lru_cache(1024)
def spreadsheet_text(name: str) -> str:
    """Makes a name that a spreadsheet reads as text and a terminal shows as it is."""
    text = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in name)
    # A name that begins with these would be a formula.
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def shortened(text: str, length: int) -> str:
    """Cuts a text in the middle to ``length`` letters."""
    if len(text) <= length:
        return text
    # The end, which has two thirds of the letters, tells names apart more often than the beginning.
    begin = (length - 1) // 3
    return f"{text[:begin]}…{text[len(text) - (length - 1 - begin) :]}"


@dataclass(frozen=True)
class Chart:
    """One array of one trajectory: time [n] in a unit, values [n, D]."""

    title: str
    time: Floats
    time_unit: str
    values: Floats


def figure(charts: Sequence[Chart], names: Sequence[str], console: Console) -> RenderableType:
    """Arranges charts of braille dots, two side by side on a wide terminal, under a legend."""
    from rich.columns import Columns
    from rich.console import Group
    from rich.text import Text

    across = 2 if console.width >= _TWO_COLUMNS and len(charts) > 1 else 1
    width = (console.width - 2 * across) // across
    marks = [Text(f"━ {name}", _style(dof)) for dof, name in enumerate(names)]
    plots = [Group(*draw(chart, width), "") for chart in charts]
    return Group(Text("  ").join(marks), "", Columns(plots, width=width, padding=(0, 2, 0, 0)))


def draw(chart: Chart, width: int) -> list[Text]:
    """Draws a title, eight lines of dots ``width`` columns wide, and the time axis."""
    from rich.text import Text

    across = max(width - _LABEL - 2, 8)
    low, high = value_range(chart.values)
    labels = {0: high, _HEIGHT - 1: low}
    # Zero has a label where it is between the ends.
    labels.setdefault(min(max(round((_HEIGHT - 1) * high / (high - low)), 0), _HEIGHT - 1), 0.0)
    # Each letter has 4 × 2 dots, and one colour: that of the dof drawn last.
    bits, owner = (np.zeros((_HEIGHT, across), np.int64) for _ in range(2))
    for dof, values in enumerate(chart.values.T):
        # In each column of dots the line goes from its least to its largest value.
        good = (np.abs(values, dtype=np.float64) < LARGEST) & np.isfinite(chart.time)
        least, most = np.full(2 * across, np.inf), np.full(2 * across, -np.inf)
        if good.any():
            x, y = chart.time[good], values[good]
            # The columns of dots divide the time evenly.
            edges = np.linspace(x[0], x[-1] if x[-1] > x[0] else x[0] + 1.0, 2 * across + 1)
            column = np.clip(np.searchsorted(edges, x, "right") - 1, 0, 2 * across - 1)
            np.minimum.at(least, column, y)
            np.maximum.at(most, column, y)
            # Between rows a line is straight; where a row is NaN it is interrupted.
            if len(x) > 1:
                heights = np.interp(edges, chart.time, np.where(good, values, np.nan))
                least = np.fmin(least, np.fmin(heights[:-1], heights[1:]))
                most = np.fmax(most, np.fmax(heights[:-1], heights[1:]))
        drawn = np.isfinite(least) & np.isfinite(most)
        scale = (4 * _HEIGHT - 1) / (high - low)
        top = np.rint(np.where(drawn, high - most, 0.0) * scale)
        bottom = np.rint(np.where(drawn, high - least, -1.0) * scale)
        rows = np.arange(4 * _HEIGHT)[:, None]
        dots = (rows >= top) & (rows <= bottom) & drawn
        cells = dots.reshape(_HEIGHT, 4, across, 2).swapaxes(1, 2)
        bits |= (cells * _DOTS).sum(axis=(2, 3))
        owner[cells.any(axis=(2, 3))] = dof
    lines = [Text(chart.title, "bold")]
    for row in range(_HEIGHT):
        label = f"{labels[row]:.3g}" if row in labels else ""
        line = Text.styled(f"{label:>{_LABEL}} {'┤' if row in labels else '│'}", "dim")
        for cell, dof in zip(bits[row].tolist(), owner[row].tolist(), strict=True):
            line.append(chr(0x2800 + cell) if cell else " ", _style(dof))
        lines.append(line)
    ends = [f"{t:.4g}{chart.time_unit}" for t in chart.time[[0, -1]]] if len(chart.time) else []
    # Stamps since 1970 are equal in four digits: the end shows the duration instead.
    if len(ends) > 1 and ends[0] == ends[1] and len(chart.time) > 1:
        ends = [ends[0], f"+{chart.time[-1] - chart.time[0]:.4g}{chart.time_unit}"]
    gap = " " * max(across - len("".join(ends)), 1)
    lines.append(Text(" " * (_LABEL + 1) + "└" + "─" * across, "dim"))
    lines.append(Text(" " * (_LABEL + 2) + gap.join(ends), "dim"))
    return lines


def value_range(values: Floats) -> tuple[float, float]:
    """Finds the least and the largest finite value, with room around where they are equal."""
    finite = values[np.abs(values, dtype=np.float64) < LARGEST]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        room = 0.5 * abs(high) or 1.0
        return low - room, high + room
    return low, high


def _style(dof: int) -> str:
    return f"color({COLOURS[dof % len(COLOURS)]})"
