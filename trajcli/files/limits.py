"""Limits of the joints: the TOML of sample_data/limits.toml, and the <limit> of a URDF."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.errors import Fault, InputError, UsageError, raise_if_any
from trajcli.files.dofs import Dofs
from trajcli.files.file_bytes import read_regular, unreadable
from trajcli.files.schema import QUANTITIES, unit_of
from trajcli.units import (
    KNOWN,
    Unit,
    Units,
    in_si,
    of_order,
    parse_units,
    per_si,
    unit_of_dof,
    unit_text,
)

_LARGEST_BYTES = 4 << 20
_ROUNDING = {4: 1e-6, 8: 1e-9}
"""The share of a limit that is forgiven, by bytes of a value."""

Table = tuple[Sequence[float], Sequence[float]]
"""Lower and upper limits, one per joint."""
Parsed = tuple[Sequence[str] | None, dict[str, Table], dict[str, Units], list[Fault]]
"""Joint names, tables and units by quantity, and what is wrong with the file."""
_NONE = -1
"""The joint of a dof that has no limits."""
_LISTED = 4
_MOVING = ("revolute", "prismatic", "continuous")


@dataclass(frozen=True)
class Bounds:
    """Lower and upper limits [D] of one quantity; infinite where there is none.

    ``slack``: the share of ``size`` that is forgiven, because a motion planned to its limits
    passes them by its rounding.
    """

    lower: npt.NDArray[np.float64]
    upper: npt.NDArray[np.float64]
    slack: float = _ROUNDING[8]

    @property
    def size(self) -> npt.NDArray[np.float64]:
        """What an excess is measured by: the larger limit of each dof."""
        sides = np.abs(np.stack([self.lower, self.upper]))
        largest = np.where(np.isfinite(sides), sides, 0.0).max(axis=0)
        return np.where(largest > 0, largest, 1.0)


@dataclass(frozen=True)
class Limits:
    """The limits that a file gives, in SI: by quantity, for each joint.

    ``units``: by quantity, what the file has them in, where it says so. ``urdf``: they are those
    of a robot, of which the data may have a part.
    """

    path: Path
    joints: Sequence[str] | None
    tables: Mapping[str, Table]
    units: Mapping[str, Units] = field(default_factory=dict)
    urdf: bool = False

    def bounds(
        self,
        dofs: Sequence[str],
        itemsize: int = 8,
        units: Mapping[str, str] | None = None,
        picked: Dofs | None = None,
    ) -> dict[str, Bounds]:
        """Those of some dofs, by name; data without names has the first joints, in order. A dof
        that the file does not name has none.

        itemsize: bytes of a stored value. units: of the data, by quantity, where known. picked:
        which of the dofs of a file they are, if not all. Raises InputError where names, numbers or
        units do not fit.
        """
        order = self._order(dofs, picked)
        raise_if_any(self._unit_faults(order, units or {}))
        slack = _ROUNDING.get(itemsize, _ROUNDING[4])
        return {
            name: Bounds(np.append(lower, -np.inf)[order], np.append(upper, np.inf)[order], slack)
            for name, (lower, upper) in self.tables.items()
        }

    def _unit_faults(self, order: Sequence[int], units: Mapping[str, str]) -> Iterator[Fault]:
        """What of the data is in a unit that its limits cannot be compared with."""
        for name, text in units.items():
            if name not in self.units or not text:
                continue
            limits, data = in_si(self.units[name]), parse_units(text)
            limited = [(dof, joint) for dof, joint in enumerate(order) if joint != _NONE]
            if data is None or any(
                unit_of_dof(data, dof) != unit_of_dof(limits, joint) for dof, joint in limited
            ):
                what, where = "limits in another unit", f"{self.path}: [{name}]"
                yield Fault(what, where, text, unit_text(self.units[name]))

    def remarks(
        self, name: str, dofs: Sequence[str], converted: Units | None, picked: Dofs | None = None
    ) -> list[str]:
        """What is to be said of the limits of a quantity: dofs that have none, and what is taken
        for granted where only the data, or only the limits, say a unit that is not of SI.

        converted: the units that the data was in.
        """
        stated, found = self.units.get(name), list[str]()
        if stated is None and converted and unit_text(in_si(converted)) != unit_text(converted):
            found.append(f"limits without a unit: taken as {unit_text(in_si(converted))}")
        if converted is None and stated and unit_text(in_si(stated)) != unit_text(stated):
            found.append(f"data without a unit: taken as {unit_text(in_si(stated))}")
        pairs = zip(dofs, self._order(dofs, picked), strict=True)
        free = [dof for dof, joint in pairs if joint == _NONE]
        if free:
            more = f" and {len(free) - _LISTED} more" if len(free) > _LISTED else ""
            found.append(f"no limits of {', '.join(free[:_LISTED])}{more}")
        return found

    def _order(self, dofs: Sequence[str], picked: Dofs | None) -> Sequence[int]:
        """The number of the joint of each dof, _NONE where the file does not name it."""
        count = len(next(iter(self.tables.values()))[0]) if self.tables else 0
        joints = {name: number for number, name in enumerate(self.joints or ())}
        known = [name for name in dofs if name in joints]
        unknown = [name for name in joints if name not in dofs]
        # a URDF goes on with the joints of a gripper
        if len(known) == len(dofs) or (known and (self.urdf or not unknown)):
            return [joints.get(name, _NONE) for name in dofs]
        unnamed = all(name.isdecimal() for name in dofs)
        picked = picked or Dofs(len(dofs), range(len(dofs)))
        if unnamed or self.joints is None:
            if count == picked.count or (count > picked.count and self.joints is not None):
                return picked.numbers
            if count == len(dofs):
                return range(count)
        where, hint = str(self.path), "joints are matched by name, or by number without names"
        found = ", ".join(self.joints or [f"{count} joints without names"])
        if known:
            what, found = "unknown joint", ", ".join(unknown)
            raise InputError(Fault(what, f"{where}: joint_names", ", ".join(dofs), found, hint))
        raise InputError(Fault("limits of other joints", where, ", ".join(dofs), found, hint))


def read_limits(path: Path) -> Limits:
    """Limits from a .toml or .urdf file; raises InputError for what is neither or not right."""
    data = read_regular(path, _LARGEST_BYTES, "a file of limits")
    parse = _from_urdf if data.lstrip()[:1] == b"<" else _from_toml
    joints, tables, units, faults = parse(path, data)
    count = len(joints) if joints is not None else None
    for name, (lower, upper) in tables.items():
        where, count = f"{path}: [{name}]", len(upper) if count is None else count
        if len(upper) != count:
            expected = f"{count}, one per joint"
            faults.append(Fault("wrong number of limits", where, expected, str(len(upper))))
        for i, (low, high) in enumerate(zip(lower, upper, strict=True)):
            if not low <= high:
                what, sides = "limits that nothing can keep", f"{low} and {high}"
                faults.append(Fault(what, f"{where}, joint {i}", "lower <= upper", sides))
        if name in units and len(units[name]) not in (1, len(upper)):
            expected, found = f"one, or {len(upper)}: one per joint", unit_text(units[name])
            faults.append(Fault("units of other joints", where, expected, found))
    raise_if_any(faults)
    in_si = {name: _in_si(table, units.get(name)) for name, table in tables.items()}
    return Limits(path, joints, in_si, units, parse is _from_urdf)


def _in_si(table: Table, units: Units | None) -> Table:
    if units is None:
        return table
    lower, upper = (np.asarray(side, np.float64) / per_si(units) for side in table)
    return lower.tolist(), upper.tolist()


def _from_toml(path: Path, data: bytes) -> Parsed:
    document = _parse_toml(path, data)
    names, faults, tables = document.get("joint_names"), [], {}
    if names is not None and not _all(names, str):
        faults = [Fault("not names", f"{path}: joint_names", "a list of strings", repr(names))]
        names = None
    for name in (name for name in QUANTITIES if name in document):
        sides = _sides(document[name])
        if sides is not None:
            tables[name] = sides
            continue
        expected = "upper (and lower, if it is not its negative): one number per joint"
        table = repr(document[name])[:200]
        faults.append(Fault("not limits", f"{path}: [{name}]", expected, table))
    if not tables and not faults:
        expected = f"tables {', '.join(f'[{name}]' for name in QUANTITIES)}"
        present = ", ".join(document) or "nothing"
        faults = [Fault("no limits in it", str(path), expected, present)]
    return names, tables, _stated_units(path, document, tables, faults), faults


def _stated_units(
    path: Path, document: Mapping[str, Any], tables: Mapping[str, Table], faults: list[Fault]
) -> dict[str, Units]:
    """The units of each table: those that it states, deg/s, or else the derivative of those of
    positions at the top. What is no such unit is added to the faults."""
    found: dict[str, Units] = {}
    for name in ("", *tables):
        order = QUANTITIES.index(name) if name else 0
        stated = document[name].get("units") if name else document.get("units")
        if stated is None:
            if "" in found:
                found[name] = of_order(found[""], order)
            continue
        units = parse_units(",".join(stated) if _all(stated, str) else stated)
        if units is None or {unit.order for unit in units} != {order}:
            parts = [unit_of(name or "position", part) for part in KNOWN.split(", ")]
            where, expected = f"{path}: {f'[{name}] ' * bool(name)}units", ", ".join(parts)
            faults.append(Fault("unknown unit", where, expected, repr(stated)))
        else:
            found[name] = units
    return {name: found[name] for name in tables if name in found}


def _parse_toml(path: Path, data: bytes) -> dict[str, Any]:
    try:
        import tomllib
    except ImportError:  # Python 3.10
        try:
            import tomli as tomllib
        except ImportError:
            hint = "pip install tomli, or use Python 3.11 or later"
            raise UsageError(Fault("no reader for TOML here", str(path), hint=hint)) from None
    try:
        table: dict[str, Any] = tomllib.loads(data.decode("utf-8"))
        return table
    except (ValueError, RecursionError) as error:
        raise InputError(unreadable(path, "a TOML file", error)) from None


def _sides(table: Any) -> Table | None:
    """Lower and upper of a table; one alone is symmetric. None for what is no such table."""
    stated = table if isinstance(table, dict) else {}
    numbers = {side: stated[side] for side in ("lower", "upper") if side in stated}
    if not numbers or not all(values and _all(values, int, float) for values in numbers.values()):
        return None
    try:
        sides = {side: np.array(values, np.float64) for side, values in numbers.items()}
    except OverflowError:  # an integer of hundreds of digits
        return None
    lower, upper = sides.get("lower"), sides.get("upper")
    lower = -upper if lower is None and upper is not None else lower
    upper = -lower if upper is None and lower is not None else upper
    if lower is None or upper is None or len(lower) != len(upper):
        return None
    return None if np.isnan([lower, upper]).any() else (lower.tolist(), upper.tolist())


def _all(values: Any, *kinds: type) -> bool:
    """Whether this is a list of such values; true and false are no numbers."""
    return isinstance(values, list) and all(
        isinstance(value, kinds) and not isinstance(value, bool) for value in values
    )


def _from_urdf(path: Path, data: bytes) -> Parsed:
    from xml.etree import ElementTree

    try:
        if b"<!" in data.replace(b"<!--", b""):
            raise ValueError("a document type: entities are not read")
        joints = [j for j in ElementTree.fromstring(data).iter("joint") if j.get("type") in _MOVING]
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        raise InputError(unreadable(path, "a URDF", error)) from None
    limits: dict[str, tuple[float, float, float]] = {}
    faults: list[Fault] = []
    for joint in joints:
        name, element = joint.get("name", ""), joint.find("limit")
        limit = {} if element is None else element.attrib
        try:
            lower, upper, speed = (
                float(limit.get(*entry))
                for entry in (("lower", 0), ("upper", 0), ("velocity", "inf"))
            )
            if joint.get("type") == "continuous" or not limit:
                lower, upper = -math.inf, math.inf
            if not (lower <= upper and speed >= 0):
                raise ValueError("limits that nothing can keep")
            limits[name] = lower, upper, speed
        except ValueError:
            where = f"{path}: joint {name}, <limit>"
            faults.append(Fault("not numbers", where, "lower, upper, velocity", str(limit)))
    if not joints:
        faults.append(Fault("no limits in it", str(path), "<joint> with <limit>", "none"))
    if faults:
        return None, {}, {}, faults
    lowers, uppers, speeds = zip(*limits.values(), strict=True)
    tables: dict[str, Table] = {
        "position": (lowers, uppers),
        "velocity": ([-v for v in speeds], speeds),
    }
    units = [Unit("m" if joint.get("type") == "prismatic" else "rad") for joint in joints]
    return list(limits), tables, {name: of_order(units, k) for k, name in enumerate(tables)}, faults
