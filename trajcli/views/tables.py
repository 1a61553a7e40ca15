"""Tables of text that fit their screen: wide columns fold, numbers stay whole.

Where even folded columns are too many, each row is a block of lines, a cell on each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from trajcli.views.screen import Screen, columns_of, shown

_LONGEST = 12
"""Words without digits may be cut in pieces of so many letters."""
_PIECE = re.compile(r"[^ ,/_:]*[ ,/_:]*")
"""A cell may go on in the next line after these."""

Columns = Sequence[tuple[str, str]]
"""Headings, and "left" or "right"; what is on the left may fold."""


def table(
    columns: Columns, rows: Sequence[Sequence[str]], screen: Screen, title: str = ""
) -> list[str]:
    """The lines of a table, or of blocks where it does not fit."""
    cells = [[shown(cell) for cell in row] for row in rows]
    lines = [screen.strong(title)] if title else []
    if not _fits(columns, cells, screen):
        return lines + _blocks(columns, cells, screen)
    headings = [heading for heading, _ in columns]
    sides = [side for _, side in columns]
    widths = _widths(columns, cells, columns_of)
    gap = 2 if sum(widths) + 2 * len(widths) <= screen.width else 1
    _shrink(widths, _widths(columns, cells, _least), screen.width - gap * len(widths))
    lines += [screen.strong(line) for line in _line(headings, widths, sides, gap)]
    lines.append(" " + screen.faint(screen.rule * (sum(widths) + gap * (len(widths) - 1))))
    for row in cells:
        lines += _line(row, widths, sides, gap)
    return lines


def fits(columns: Columns, rows: Sequence[Sequence[str]], screen: Screen) -> bool:
    """Whether a table fits with no number, and no short word, in pieces."""
    return _fits(columns, [[shown(cell) for cell in row] for row in rows], screen)


def _fits(columns: Columns, cells: Sequence[Sequence[str]], screen: Screen) -> bool:
    return sum(_widths(columns, cells, _least)) + len(columns) <= screen.width


def _widths(
    columns: Columns, cells: Sequence[Sequence[str]], width: Callable[[str], int]
) -> list[int]:
    """The widest cell of each column by a measure; what is on the right is always whole."""
    return [
        max(map(width if side == "left" else columns_of, (heading, *(row[i] for row in cells))))
        for i, (heading, side) in enumerate(columns)
    ]


def _least(text: str) -> int:
    """The columns that the longest piece takes which is not cut."""
    return max(_uncut(piece.rstrip()) for piece in _PIECE.findall(text))


def _uncut(piece: str) -> int:
    width = columns_of(piece)
    return width if any(letter.isdigit() for letter in piece) else min(width, _LONGEST)


def _shrink(widths: list[int], least: Sequence[int], most: int) -> None:
    """Narrow the widest columns until all fit, none below its least."""
    while sum(widths) > most:
        able = [i for i, width in enumerate(widths) if width > least[i]]
        if not able:
            return
        widths[max(able, key=lambda i: widths[i])] -= 1


def _line(cells: Sequence[str], widths: Sequence[int], sides: Sequence[str], gap: int) -> list[str]:
    """One row, over as many lines as its longest cell takes."""
    folded = [_folded(cell, width) for cell, width in zip(cells, widths, strict=True)]
    lines = []
    for n in range(max(len(parts) for parts in folded)):
        line = " "
        for parts, width, side in zip(folded, widths, sides, strict=True):
            text = parts[n] if n < len(parts) else ""
            space = " " * max(width - columns_of(text), 0)
            line += (space + text if side == "right" else text + space) + " " * gap
        lines.append(line.rstrip())
    return lines


def _blocks(columns: Columns, cells: Sequence[Sequence[str]], screen: Screen) -> list[str]:
    """A block for each row: its first cell, then heading and cell for all others that have one."""
    label = max((columns_of(heading) for heading, _ in columns[1:]), default=0)
    room = screen.width - label - 4
    lines = []
    for row in cells:
        if row[0]:
            lines.append(" " + screen.strong(f"{columns[0][0]} {row[0]}".strip()))
        for (heading, _), cell in zip(columns[1:], row[1:], strict=True):
            parts = _folded(cell, max(room, _least(cell))) if cell else []
            for n, part in enumerate(parts):
                lines.append(f"   {heading if n == 0 else '':<{label}} {part}".rstrip())
    return lines


def _folded(text: str, width: int) -> list[str]:
    """A cell in lines of a width: cut after a blank or comma, else where a word may be."""
    lines = []
    while columns_of(text) > width:
        cut = max(text.rfind(mark, 0, width) + 1 for mark in " ,")
        if cut <= width // 3 or columns_of(text[:cut].rstrip()) > width:
            cut = _last_cut(text, width)
        lines.append(text[:cut].rstrip())
        text = text[cut:].lstrip()
    return [*lines, text]


def _last_cut(text: str, width: int) -> int:
    """How many letters fit, up to the end of a piece where one ends."""
    cut = 0
    for piece in _PIECE.findall(text):
        if columns_of(text[: cut + len(piece)].rstrip()) > width:
            break
        cut += len(piece)
    if cut:
        return cut
    while columns_of(text[: cut + 1]) <= width:
        cut += 1
    return max(cut, 1)
