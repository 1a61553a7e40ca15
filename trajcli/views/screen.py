"""What text is shown on: how wide, which letters, colours or none."""

from __future__ import annotations

import os
import re
import shutil
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

PIPE_WIDTH = 160
"""Piped output is read by programs and pagers: it is not folded at 80 columns."""

PALETTE = (32, 172, 36, 175, 74, 166, 184, 244)
"""Of the 256 colours that terminals have, those nearest to Okabe and Ito's, apart for all eyes."""

_NAMED = 3
_CODES = re.compile(r"\x1b\[[0-9;]*m")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Screen:
    """A terminal, or a pipe."""

    width: int = PIPE_WIDTH
    terminal: bool = False
    unicode: bool = True
    colour: bool = False

    @staticmethod
    def of(stream: TextIO | None) -> Screen:
        """What a stream is: TERM, NO_COLOR, COLUMNS and its encoding say."""
        terminal = bool(stream is not None and stream.isatty())
        encoding = getattr(stream, "encoding", None) or "utf-8"
        dumb = os.environ.get("TERM") in ("dumb", "unknown")
        return Screen(
            width=shutil.get_terminal_size().columns if terminal else PIPE_WIDTH,
            terminal=terminal,
            unicode=_writes(encoding),
            colour=terminal and not dumb and not os.environ.get("NO_COLOR"),
        )

    @property
    def rule(self) -> str:
        """The line under a heading."""
        return "─" if self.unicode else "-"

    @property
    def dot(self) -> str:
        """What stands between two things said in a line."""
        return " · " if self.unicode else ", "

    @property
    def times(self) -> str:
        """The sign between the sizes of a shape."""
        return "×" if self.unicode else "x"

    def strong(self, text: str) -> str:
        """Headings."""
        return f"\x1b[1m{text}\x1b[0m" if self.colour else text

    def faint(self, text: str) -> str:
        """Rules and axes."""
        return f"\x1b[2m{text}\x1b[0m" if self.colour else text

    def alarming(self, text: str) -> str:
        """What failed."""
        return f"\x1b[1;31m{text}\x1b[0m" if self.colour else text

    def painted(self, text: str, number: int) -> str:
        """In the colour of a line."""
        colour = PALETTE[number % len(PALETTE)]
        return f"\x1b[38;5;{colour}m{text}\x1b[0m" if self.colour else text


def shown(text: object) -> str:
    """A text from a file as it may be shown: what would steer a terminal is written out."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], str(text))


def shown_list(text: str) -> str:
    """A text of which every line is a name, of many the first."""
    names = [shown(line) for line in text.split("\n")]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def columns_of(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    marks = sum(bool(unicodedata.combining(letter)) for letter in text)
    return len(text) + wide - marks


def bare(text: str) -> str:
    """A text without the codes that colour it."""
    return _CODES.sub("", text)


def filled(parts: Sequence[str], screen: Screen, between: str, indent: str = "") -> list[str]:
    """Parts joined into lines that fit."""
    lines: list[str] = []
    line = ""
    for part in parts:
        longer = f"{line}{between}{part}" if line else f"{indent}{part}"
        if line and columns_of(bare(longer)) > screen.width:
            lines.append(line)
            longer = f"{indent}{part}"
        line = longer
    return [*lines, line] if line else lines


def within(lines: Iterable[str], screen: Screen) -> Iterator[str]:
    """Lines, those too long for a terminal folded at blanks."""
    for line in lines:
        if not screen.terminal or columns_of(bare(line)) <= screen.width:
            yield line
            continue
        indent = " " * (len(line) - len(line.lstrip(" ")))
        yield from filled(line.lstrip(" ").split(" "), screen, " ", indent)


def _writes(encoding: str) -> bool:
    try:
        "─×·⣿".encode(encoding)
    except (UnicodeError, LookupError):
        return False
    return True
