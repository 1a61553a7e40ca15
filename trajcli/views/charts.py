"""Lines over time in a terminal: braille dots, or plain letters where there are no such."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trajcli.views.screen import Screen, bare, columns_of, filled

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bits of a braille letter, by column and row."""
_MARKS = "0123456789abcdefghijklmnopqrstuvwxyz"
_LABEL = 9


@dataclass(frozen=True)
class Chart:
    """Lines [n] over x [n], each with a number that is its colour; what to write around them."""

    title: str
    x: Any
    lines: Sequence[tuple[int, Any]]
    x_unit: str


def draw(chart: Chart, screen: Screen, width: int, height: int) -> list[str]:
    """A chart as lines of text, ``width`` columns wide."""
    across = max(width - _LABEL - 2, 8)
    low, high = _range(chart.lines)
    fine = (2, 4) if _dotted(screen) else (1, 1)
    cells, owners = _canvas(chart, low, high, across, height, fine)
    sign = ("┤", "│", "└", "─") if _dotted(screen) else ("|", "|", "+", "-")
    zero = round((height - 1) * high / (high - low)) if low < 0 < high else -1
    labels = {0: high, height - 1: low} | ({zero: 0.0} if 0 < zero < height - 1 else {})
    lines = [screen.strong(chart.title)]
    for row in range(height):
        label = f"{labels[row]:.3g}" if row in labels else ""
        axis = screen.faint(f"{label:>{_LABEL}} {sign[0 if row in labels else 1]}")
        lines.append(axis + _painted(cells[row], owners[row], screen, fine))
    ends = [f"{chart.x[i]:.4g}{chart.x_unit}" if len(chart.x) else "" for i in (0, -1)]
    space = " " * max(across - columns_of(ends[0]) - columns_of(ends[1]), 1)
    lines.append(screen.faint(" " * (_LABEL + 1) + sign[2] + sign[3] * across))
    lines.append(screen.faint(" " * (_LABEL + 2) + ends[0] + space + ends[1]))
    return lines


def legend(names: Sequence[str], screen: Screen, numbers: Sequence[int]) -> list[str]:
    """Which line is which."""
    parts = []
    for number, name in zip(numbers, names, strict=True):
        mark = "━" if _dotted(screen) else _mark(number)
        parts.append(screen.painted(f"{mark} {name}", number))
    return filled(parts, screen, "  ")


def _dotted(screen: Screen) -> bool:
    """Braille on a terminal that has it, and colours to tell the lines apart; else letters."""
    return screen.unicode and screen.colour


def beside(blocks: Sequence[Sequence[str]], widths: int) -> list[str]:
    """Blocks of lines next to each other, each of the same width."""
    height = max(len(block) for block in blocks)
    lines = []
    for row in range(height):
        parts = [block[row] if row < len(block) else "" for block in blocks]
        lines.append(
            "".join(part + " " * (widths - columns_of(bare(part))) for part in parts).rstrip()
        )
    return lines


def _range(lines: Sequence[tuple[int, Any]]) -> tuple[float, float]:
    finite = [y[np.isfinite(y)] for _, y in lines]
    low = min((float(y.min()) for y in finite if len(y)), default=0.0)
    high = max((float(y.max()) for y in finite if len(y)), default=0.0)
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        room = 0.5 * abs(high) or 1.0
        return low - room, high + room
    return low, high


def _canvas(
    chart: Chart, low: float, high: float, across: int, height: int, fine: tuple[int, int]
) -> tuple[Any, Any]:
    """What is in each cell (bits, or 1), and the number of the line drawn there last."""
    cells = np.zeros((height, across), dtype=np.int64)
    owners = np.full((height, across), -1)
    wide, tall = across * fine[0], height * fine[1]
    for number, y in chart.lines:
        for column, (top, bottom) in _columns(chart.x, y, low, high, wide, tall):
            for dot in range(top, bottom + 1):
                row, cell = dot // fine[1], column // fine[0]
                cells[row, cell] |= _DOTS[column % fine[0]][dot % fine[1]] if fine[0] > 1 else 1
                owners[row, cell] = number
    return cells, owners


def _columns(x: Any, y: Any, low: float, high: float, wide: int, tall: int) -> Any:
    """Column by column, the first and last dot of a line that leaves no gaps."""
    good = np.isfinite(y) & np.isfinite(x)
    if not good.any():
        return
    first, last = float(x[0]), float(x[-1])
    if len(x) == 1 or last <= first:
        dot = round((high - float(y[good][0])) / (high - low) * (tall - 1))
        yield 0, (dot, dot)
        return
    edges = np.linspace(first, last, wide + 1)
    at = np.interp(edges, x, np.where(good, y, np.nan))
    inside = np.clip(np.searchsorted(edges, x[good], "right") - 1, 0, wide - 1)
    least, most = np.full(wide, np.inf), np.full(wide, -np.inf)
    np.minimum.at(least, inside, y[good])
    np.maximum.at(most, inside, y[good])
    least = np.fmin(least, np.fmin(at[:-1], at[1:]))
    most = np.fmax(most, np.fmax(at[:-1], at[1:]))
    scale = (tall - 1) / (high - low)
    for column in np.flatnonzero(np.isfinite(least) & np.isfinite(most)).tolist():
        top = round((high - most[column]) * scale)
        bottom = round((high - least[column]) * scale)
        yield column, (max(top, 0), min(bottom, tall - 1))


def _painted(cells: Any, owners: Any, screen: Screen, fine: tuple[int, int]) -> str:
    letters = []
    previous, run = -1, ""
    for bits, owner in zip(cells.tolist(), owners.tolist(), strict=True):
        letter = " " if not bits else chr(0x2800 + bits) if fine[0] > 1 else _mark(owner)
        if owner != previous:
            letters.append(screen.painted(run, previous) if previous >= 0 else run)
            previous, run = owner, ""
        run += letter
    letters.append(screen.painted(run, previous) if previous >= 0 else run)
    return "".join(letters).rstrip()


def _mark(number: int) -> str:
    return _MARKS[number % len(_MARKS)]
