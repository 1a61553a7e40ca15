"""Tables of text that fit their screen: wide columns fold, numbers stay whole."""

from __future__ import annotations

from collections.abc import Sequence

from trajcli.views.screen import Screen, columns_of, shown

_NARROWEST = 4


def table(
    columns: Sequence[tuple[str, str]],
    rows: Sequence[Sequence[str]],
    screen: Screen,
    title: str = "",
) -> list[str]:
    """The lines of a table; a column is a heading and "left" or "right"."""
    cells = [[shown(cell) for cell in row] for row in rows]
    headings = [heading for heading, _ in columns]
    widths = [
        max(columns_of(text) for text in (heading, *(row[i] for row in cells)))
        for i, heading in enumerate(headings)
    ]
    gap = 2 if sum(widths) + 2 * len(widths) <= screen.width else 1
    _shrink(widths, [side == "left" for _, side in columns], screen.width - gap * len(widths))
    sides = [side for _, side in columns]
    lines = [screen.strong(title)] if title else []
    lines += [screen.strong(line) for line in _line(headings, widths, sides, gap)]
    lines.append(" " + screen.faint(screen.rule * (sum(widths) + gap * (len(widths) - 1))))
    for row in cells:
        lines += _line(row, widths, sides, gap)
    return lines


def _shrink(widths: list[int], folding: Sequence[bool], most: int) -> None:
    """Narrow the widest columns that may fold until all fit; numbers only when nothing else can."""
    while sum(widths) > most:
        able = [i for i, width in enumerate(widths) if folding[i] and width > _NARROWEST]
        able = able or [i for i, width in enumerate(widths) if width > _NARROWEST]
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


def _folded(text: str, width: int) -> list[str]:
    """A cell in pieces of a width, cut after a comma, slash or blank where there is one."""
    pieces = []
    while columns_of(text) > width:
        cut = max(text.rfind(mark, 0, width) + 1 for mark in " ,")
        if cut <= width // 3:
            cut = max(text.rfind(mark, 0, width) + 1 for mark in "/_×x:")
        cut = cut if cut > width // 3 else width
        pieces.append(text[:cut].rstrip())
        text = text[cut:].lstrip()
    return [*pieces, text]
