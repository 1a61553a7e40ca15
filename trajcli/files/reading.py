"""Holds the options that say how SOURCEs are read, with one meaning in every command."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from trajcli.errors import UsageError
from trajcli.units import InputUnits, parse_option

# At most 18 digits, which 64 bits hold.
_SLICE = re.compile(r"([+-]?\d{1,18})?(?::([+-]?\d{1,18})?(?::([+-]?\d{1,18})?)?)?")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Says how the files of a SOURCE are read, as typed. None: taken from the file.

    layout: the family of the files. filter_key: reads only the trajectories listed under this name.
    axes: the axes of the arrays in their order, such as TBD or DT. skip_rows: the number of lines
    before the heading of a table of text. quantity: that of a named array, position to jerk.
    allow_external: follows links, storage and virtual datasets out of a file.
    """

    layout: str | None = None
    filter_key: str | None = None
    dofs: str | None = None
    joints: str | None = None
    rotation: str | None = None
    axes: str | None = None
    episodes: str | None = None
    dt: str | None = None
    rate: float | None = None
    times: str | None = None
    since: str | None = None
    until: str | None = None
    units: str | None = None
    skip_rows: int | None = None
    quantity: str | None = None
    allow_external: bool = False

    @property
    def plain(self) -> bool:
        """Whether no option picks trajectories, rows or dofs, or states units."""
        # a plain reading can be copied from the file byte for byte
        options = (self.layout, self.filter_key, self.dofs, self.joints, self.rotation, self.units)
        return all(option is None for option in (*options, self.axes)) and not self.window

    @property
    def window(self) -> bool:
        return self.since is not None or self.until is not None

    @property
    def clock(self) -> list[str]:
        return [str(x) for x in (self.dt, self.rate, self.times) if x is not None]

    @property
    def input_units(self) -> InputUnits:
        return parse_option(self.units)


@dataclass(frozen=True, kw_only=True)
class Repair:
    """Says how recordings are repaired before they are used, as typed.

    max_gap: seconds; stamps further apart end one trajectory and begin another. repeated_times:
    "drop" leaves out rows whose stamp repeats the one before. wrap_dofs: the angles that are made
    continuous. still: the speed of standstill; None: a share of the largest speed.
    """

    max_gap: float | None = None
    repeated_times: str = "error"
    wrap_dofs: str | None = None
    trim: bool = False
    still: float | None = None

    def refuse_gap(self) -> None:
        """Raises UsageError for a gap that is not a duration, and for a speed that is not used."""
        # before files are read, which may take long
        gap = self.max_gap
        if self.still is not None and not self.trim:
            raise UsageError(
                "a speed of standstill that is not used", where="--still", hint="--trim"
            )
        if gap is not None and not (math.isfinite(gap) and gap > 0):
            raise UsageError("not a gap", where="--max-gap", expected="seconds > 0", found=str(gap))


def parse_floats(text: str) -> list[float] | None:
    """Parses ``0,0.1,-2`` into [0.0, 0.1, -2.0]; None unless all are finite numbers."""
    # float() also reads nan and inf, which are no states or weights
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        return None
    return values if all(map(math.isfinite, values)) else None


def parse_selection(text: str | None, count: int) -> Sequence[int]:
    """Parses the trajectories that 3, 0:10, -1 or 2,5,-1 pick among ``count``; None picks all."""
    if text is None or text.strip() == "all":
        return range(count)
    # as in Python: negative numbers count from the end, and 0:10 excludes 10
    chosen: list[int] = []
    for part in (part.strip() for part in text.split(",")):
        match = _SLICE.fullmatch(part)
        if not part or match is None or (match[3] and int(match[3]) == 0):
            raise UsageError(
                "not a selection",
                where="--episodes",
                expected="3, 0:10, 2,5,-1 or all",
                found=text if len(text) < 80 else f"{text[:77]}...",
            )
        # a range may reach beyond the ends, as in Python; a number may not
        if ":" in part:
            ends = (int(n) if n is not None else None for n in match.groups())
            chosen += range(count)[slice(*ends)]
        elif -count <= int(part) < count:
            chosen.append(int(part) % count)
        else:
            raise UsageError(
                "out of range",
                where="--episodes",
                expected=f"0 to {count - 1}, or -1 for the last" if count else "none: it is empty",
                found=part,
            )
    if not chosen:
        raise UsageError(
            "nothing selected", where="--episodes", expected=f"one or more of {count}", found=text
        )
    # in the order of the option, each once
    return list(dict.fromkeys(chosen))
