"""Parses the units of files, options and limits, and converts them to SI.

Positions are in rad or deg, or in m, cm or mm, their derivatives in these per second (deg/s,
mm/s^2); times are in s, ms, us or ns. The dofs of an array share a unit or have one each:
"rad,rad,m". Values in another unit, or in none ("-"), are taken as they are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from trajcli.errors import InputError, UsageError, unknown
from trajcli.kernels.program import Floats

KNOWN = "rad, deg, m, cm, mm"
KNOWN_TIMES = "s, ms, us, ns"
# The SI unit of each name, how many of the named unit make one, and other words for it.
_UNITS = {
    "rad": ("rad", 1.0, "radian"),
    "deg": ("rad", 180.0 / math.pi, "degree °"),
    "m": ("m", 1.0, "meter metre"),
    "cm": ("m", 1e2, "centimeter centimetre"),
    "mm": ("m", 1e3, "millimeter millimetre"),
    "s": ("s", 1.0, "sec second"),
    "ms": ("s", 1e3, "msec millisec millisecond"),
    "us": ("s", 1e6, "µs μs usec microsec microsecond"),
    "ns": ("s", 1e9, "nsec nanosec nanosecond"),
}
# Every way to write a unit, by its name.
_NAMES = {word: name for name, (_, _, more) in _UNITS.items() for word in (name, *more.split())}
_DERIVED = r"([A-Za-zµμ°]+) ?((?:/ ?s(?:ec)? ?\^? ?[123]?)*|[ .*·]s ?\^? ?-[123])"
# rad/s^2, rad/s2, rad/s/s, rad s-2, rad*s^-2
_SUFFIXES = ("", "/s", "/s^2", "/s^3")


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of that name, per second ``order`` times: 2 for rad/s^2."""

    name: str
    order: int = 0

    @property
    def known(self) -> bool:
        return self.name in _UNITS

    @property
    def si(self) -> str:
        """The SI unit of the name: rad, m or s. Another name is its own."""
        return _UNITS[self.name][0] if self.known else self.name

    @property
    def per_si(self) -> float:
        """How many of this unit make one in SI: 1000 for mm, mm/s and so on."""
        return _UNITS[self.name][1] if self.known else 1.0

    def __str__(self) -> str:
        return self.name + _SUFFIXES[self.order] if self.name else "-"


Units = Sequence[Unit]
"""One unit for all dofs, or one for each dof."""
NO_UNIT = Unit("")


def parse_unit(text: str) -> Unit | None:
    """Parses a unit as files and people write it: rad/s^2, deg s-2, mm/s/s; None for others."""
    unit = _parsed(text.strip())
    return unit if unit.known else None


@lru_cache(maxsize=256)
def _parsed(written: str) -> Unit:
    if written in ("", "-", "1"):
        return NO_UNIT
    text = written
    for sign, plain in (("**", "^"), ("²", "^2"), ("³", "^3"), ("⁻", "-"), ("¹", "1")):
        text = text.replace(sign, plain)
    match = re.fullmatch(_DERIVED, text)
    if match is None:
        return Unit(written)
    # the case of short names matters: Ms is not ms
    word = match[1].lower() if len(match[1]) > 2 else match[1]
    name = _NAMES.get(word) or (_NAMES.get(word.removesuffix("s")) if len(word) > 3 else None)
    powers = re.findall(r"/ ?s(?:ec)? ?\^? ?([123]?)|-([123])", match[2])
    # rad/s/s has two powers, rad/s^2 and rad s-2 have one of 2
    order = sum(int(a or b or 1) for a, b in powers)
    return Unit(written) if order > 3 else Unit(name or match[1], order)


def parse_units(text: object) -> Units | None:
    """Parses the units of dofs, "rad/s" or "rad,rad,m"; None if none is known."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    units = [_parsed(part.strip()) for part in text.split(",")] if isinstance(text, str) else []
    return units if any(unit.known and unit.si != "s" for unit in units) else None


def parse_time_unit(text: str) -> Unit | None:
    """Parses the unit of stamps or steps: ms, [s], "seconds since 1970-01-01"; None for others."""
    # [s] is from headings of tables, "seconds since" from netCDF
    unit = parse_unit(text.strip().strip("[]").lower().partition(" since ")[0])
    return unit if unit is not None and unit.si == "s" and unit.order == 0 else None


def unit_text(units: Units) -> str:
    """Writes units as a text that :func:`parse_units` reads."""
    names = [str(unit) for unit in units]
    return names[0] if len(set(names)) == 1 else ",".join(names)


def units_of_dofs(text: str, dofs: Sequence[int], count: int) -> str:
    """Selects the units of some of ``count`` dofs, which share one or have one each."""
    parts = text.split(",")
    return ",".join(parts[dof] for dof in dofs) if len(parts) == count else text


def unit_of_dof(units: Units, dof: int) -> Unit:
    return units[dof] if len(units) > 1 else units[0]


def si_units(units: Units) -> Units:
    return [Unit(unit.si, unit.order) for unit in units]


def derivative_units(units: Units, order: int) -> Units:
    """Converts units to those of another derivative: rad/s for rad and order 1."""
    return [replace(unit, order=order) for unit in units]


def per_si(units: Units) -> Floats:
    """Lists the divisors that convert values in these units to SI, [1 or D]."""
    return np.array([unit.per_si for unit in units])


def require_dof_units(units: Units, count: int, where: object) -> Units:
    """Checks that units are one, or one for each of ``count`` dofs; raises InputError otherwise."""
    if len(units) in (1, count):
        return units
    what, expected = "wrong number of units", f"one, or {count}: one for each dof"
    raise InputError(what, where=where, expected=expected, found=unit_text(units))


def require_convertible_units(sources: Sequence[tuple[object, Units | None]]) -> None:
    """Raises InputError for units, with their places, such as rad and m."""
    # the first source of each kind of units, which the message names
    kinds: dict[tuple[Unit, ...], object] = {}
    for place, units in sources:
        kind = tuple(Unit(unit.si) for unit in units or ())
        for first, where in kinds.items():
            if differ(first, kind):
                what, found = "units that cannot be converted into each other", unit_text(kind)
                expected, hint = f"{unit_text(first)}, as {where}", "--units says what is right"
                raise InputError(what, where=place, expected=expected, found=found, hint=hint)
        kinds.setdefault(kind, place)


def differ(a: Units, b: Units) -> bool:
    """Tells whether a dof has different units in both; having no unit is no difference."""
    # a single unit stands for all dofs
    count = max(len(a), len(b))
    pairs = zip(*(units if len(units) > 1 else [*units] * count for units in (a, b)), strict=False)
    return any(x.name and y.name and x != y for x, y in pairs)


@dataclass(frozen=True)
class InputUnits:
    """The units of positions and of time that --units or --to-units names."""

    positions: Units = ()
    time: Unit | None = None


def parse_option(text: str | None, option: str = "--units") -> InputUnits:
    """Parses deg, "rad,rad,mm" or "deg,ms" of --units; raises UsageError for unknown units."""
    if text is None:
        return InputUnits()
    expected = f"{KNOWN}: one, or one for each dof, - for none; and {KNOWN_TIMES} of time stamps"
    positions, times = list[Unit](), list[Unit]()
    for part in text.split(","):
        # "-" is a dof without a unit, but only among others
        if part.strip() == "-" != text.strip():
            positions.append(NO_UNIT)
            continue
        if (unit := parse_unit(part)) is None:
            found = repr(part.strip())
            raise UsageError(unknown("unit", choices=expected, found=found, where=option))
        if unit.order:
            what = "not a unit of positions"
            hint = "velocities and so on have their unit per second"
            raise UsageError(what, where=option, expected=unit.name, found=str(unit), hint=hint)
        (times if unit.si == "s" else positions).append(unit)
    if len(times) > 1:
        what = "more than one unit of time"
        raise UsageError(what, where=option, expected=expected, found=repr(text))
    return InputUnits(positions, times[0] if times else None)
