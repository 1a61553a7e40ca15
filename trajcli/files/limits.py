"""Limits of the joints: the TOML of sample_data/limits.toml, and the <limit> of a URDF."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.errors import Fault, InputError, UsageError
from trajcli.files.file_bytes import unreadable
from trajcli.files.schema import QUANTITIES

_LARGEST_BYTES = 4 << 20
_ROUNDING = {4: 1e-6, 8: 1e-9}
"""The share of a limit that is forgiven, by bytes of a value."""

Table = tuple[Sequence[float], Sequence[float]]
"""Lower and upper limits, one per joint."""


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
    """The limits that a file gives: by quantity, for each joint."""

    path: Path
    joints: Sequence[str] | None
    tables: Mapping[str, Table]

    def bounds(self, dofs: Sequence[str], itemsize: int = 8) -> dict[str, Bounds]:
        """Those of some dofs, by name; data without names has the first joints, in order.

        itemsize: bytes of a stored value. Raises InputError where names or numbers do not fit.
        """
        order = self._order(dofs)
        slack = _ROUNDING.get(itemsize, _ROUNDING[4])
        return {
            name: Bounds(np.array(lower)[order], np.array(upper)[order], slack)
            for name, (lower, upper) in self.tables.items()
        }

    def _order(self, dofs: Sequence[str]) -> list[int]:
        """The number of the joint of each dof."""
        count = len(next(iter(self.tables.values()))[0]) if self.tables else 0
        if self.joints is not None and set(dofs) <= set(self.joints):
            return [list(self.joints).index(name) for name in dofs]
        unnamed = all(name.isdecimal() for name in dofs)
        # a URDF goes on with the joints of a gripper
        if (unnamed or self.joints is None) and (
            count == len(dofs) or (count > len(dofs) and self.joints is not None)
        ):
            return list(range(len(dofs)))
        raise InputError(
            Fault(
                "limits of other joints",
                str(self.path),
                ", ".join(dofs),
                ", ".join(self.joints or [f"{count} joints without names"]),
                "the joints are matched by name, or by their number where the data has no names",
            )
        )


def read_limits(path: Path) -> Limits:
    """Limits from a .toml or .urdf file; raises InputError for what is neither or not right."""
    try:
        if not path.is_file() and path.exists():
            raise InputError(Fault("not a regular file", str(path), "a file of limits"))
        with open(path, "rb") as file:
            data = file.read(_LARGEST_BYTES + 1)
    except OSError as error:
        raise InputError(unreadable(path, "a file of limits", error)) from None
    if len(data) > _LARGEST_BYTES:
        expected = f"at most {_LARGEST_BYTES} bytes"
        raise InputError(Fault("too large for limits", str(path), expected))
    return _from_urdf(path, data) if data.lstrip()[:1] == b"<" else _from_toml(path, data)


def _from_toml(path: Path, data: bytes) -> Limits:
    table = _parse_toml(path, data)
    names = table.get("joint_names")
    faults = []
    if names is not None and not _all(names, str):
        faults.append(Fault("not names", f"{path}: joint_names", "a list of strings", repr(names)))
        names = None
    tables: dict[str, Table] = {}
    for name in (name for name in QUANTITIES if name in table):
        where = f"{path}: [{name}]"
        sides = _sides(table[name])
        if sides is None:
            expected = "upper (and lower, if it is not its negative): one number per joint"
            faults.append(Fault("not limits", where, expected, repr(table[name])[:200]))
            continue
        count = len(names) if names is not None else len(next(iter(tables.values()), sides)[1])
        if len(sides[1]) != count:
            found = str(len(sides[1]))
            faults.append(Fault("wrong number of limits", where, f"{count}, one per joint", found))
        for i, (lower, upper) in enumerate(zip(*sides, strict=True)):
            if not lower <= upper:
                what, found = "limits that nothing can keep", f"{lower} and {upper}"
                faults.append(Fault(what, f"{where}, joint {i}", "lower <= upper", found))
        tables[name] = sides
    if not tables and not faults:
        expected = f"tables {', '.join(f'[{name}]' for name in QUANTITIES)}"
        faults.append(Fault("no limits in it", str(path), expected, ", ".join(table) or "nothing"))
    if faults:
        raise InputError(*faults)
    return Limits(path, names, tables)


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
    if not isinstance(table, dict) or not {"lower", "upper"} & set(table):
        return None
    stated = {side: table[side] for side in ("lower", "upper") if side in table}
    if not all(values and _all(values, int, float) for values in stated.values()):
        return None
    try:
        numbers = {side: [float(value) for value in values] for side, values in stated.items()}
    except OverflowError:  # an integer of hundreds of digits
        return None
    upper = numbers["upper"] if "upper" in numbers else [-value for value in numbers["lower"]]
    lower = numbers["lower"] if "lower" in numbers else [-value for value in numbers["upper"]]
    fits = len(lower) == len(upper) and not any(map(math.isnan, lower + upper))
    return (lower, upper) if fits else None


def _all(values: Any, *kinds: type) -> bool:
    """Whether this is a list of such values; true and false are no numbers."""
    return isinstance(values, list) and all(
        isinstance(value, kinds) and not isinstance(value, bool) for value in values
    )


def _from_urdf(path: Path, data: bytes) -> Limits:
    from xml.etree import ElementTree

    joints: dict[str, tuple[float, float, float]] = {}
    faults: list[Fault] = []
    try:
        if b"<!" in data.replace(b"<!--", b""):
            raise ValueError("a document type: entities are not read")
        moving = [
            joint
            for joint in ElementTree.fromstring(data).iter("joint")
            if joint.get("type") in ("revolute", "prismatic", "continuous")
        ]
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        raise InputError(unreadable(path, "a URDF", error)) from None
    for joint in moving:
        name, limit = joint.get("name", ""), joint.find("limit")
        try:
            joints[name] = _urdf_limit(joint.get("type"), {} if limit is None else limit.attrib)
        except ValueError:
            where = f"{path}: joint {name}, <limit>"
            found = str(limit.attrib if limit is not None else "")
            faults.append(Fault("not numbers", where, "lower, upper, velocity", found))
    if not moving:
        faults.append(Fault("no limits in it", str(path), "<joint> with <limit>", "none"))
    if faults:
        raise InputError(*faults)
    lower, upper, speed = zip(*joints.values(), strict=True)
    tables = {"position": (lower, upper), "velocity": ([-v for v in speed], speed)}
    return Limits(path, list(joints), tables)


def _urdf_limit(kind: str | None, limit: Mapping[str, str]) -> tuple[float, float, float]:
    """Lower, upper, speed; a continuous joint has no ends, an absent one is 0 in a URDF."""
    speed = float(limit.get("velocity", "inf"))
    if kind == "continuous" or not limit:
        return -math.inf, math.inf, speed
    lower, upper = float(limit.get("lower", "0")), float(limit.get("upper", "0"))
    if not (lower <= upper and speed >= 0):
        raise ValueError("limits that nothing can keep")
    return lower, upper, speed
