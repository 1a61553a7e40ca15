"""Reads limits of joints: the TOML of sample_data/limits.toml, the <limit> of a URDF, and MoveIt's
joint_limits.yaml."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import InputError, Note, UsageError, join_names, unknown
from trajcli.files._document_files import parse_yaml
from trajcli.files.dofs import Dofs, dof_numbers, match_names
from trajcli.files.file_bytes import SourceFiles, read_fault, read_regular
from trajcli.files.quantities import QUANTITIES, ROTATIONS, derive_unit
from trajcli.kernels.program import Floats
from trajcli.units import (
    KNOWN,
    Unit,
    Units,
    derivative_units,
    parse_units,
    per_si,
    si_units,
    unit_of_dof,
    unit_text,
)

# No URDF and no table of limits is larger: such a file is something else, named by mistake.
_LARGEST_BYTES = 4 << 20
# The share of a limit by which rounding may pass it, by bytes of a value.
_ROUNDING = {4: 1e-6, 8: 1e-9}

Parsed = tuple[Sequence[str] | None, dict[str, Floats], dict[str, Units]]
"""Joint names; by quantity the lower and upper limits [2, joints], and their units."""
# The joint of a dof that has no limits.
_NONE = -1
_LISTED = 4
_MOVING = ("revolute", "prismatic", "continuous")
# Angles with a tag of xacro, as Universal Robots writes them: max_position: !degrees 360.0.
_TAGGED = re.compile(rb"!(degrees|radians)\s+([-+.\deE]+)(?=\s)")
_IMPOSSIBLE = "impossible limits"


@dataclass(frozen=True)
class Bounds:
    """Lower and upper limits [D] of one quantity; infinite where there is none.

    ``slack``: the share of ``size`` by which values may pass a limit, because a motion that was
    planned up to its limits passes them by rounding.
    """

    lower: Floats
    upper: Floats
    slack: float = _ROUNDING[8]

    @property
    def size(self) -> Floats:
        """The larger limit of each dof, which an excess is compared with."""
        sides = np.abs([self.lower, self.upper])
        largest: Floats = np.where(np.isfinite(sides), sides, 0.0).max(axis=0)
        return np.where(largest > 0, largest, 1.0)


@dataclass(frozen=True)
class Limits:
    """The limits that a file gives, in SI: by quantity, lower and upper [2, joints].

    joints: their names, if the file has them. units: the units of the file by quantity, where it
    states them. robot: whether the file describes a robot, of which the data may have some joints.
    for_all: whether there is one limit for all dofs. turns: the largest rates of rotations.
    """

    path: Path
    joints: Sequence[str] | None
    tables: Mapping[str, Floats]
    units: Mapping[str, Units] = field(default_factory=dict)
    robot: bool = False
    for_all: bool = False
    turns: Mapping[str, float] = field(default_factory=dict)

    def bounds(
        self,
        dofs: Sequence[str],
        itemsize: int = 8,
        units: Mapping[str, str] | None = None,
        picked: Dofs | None = None,
    ) -> dict[str, Bounds]:
        """Finds the limits of some dofs by quantity.

        Joints are matched with dofs by :func:`match_names`; limits without names are matched by
        number. A dof that the file does not name has no limits. itemsize: bytes of a stored value,
        whose rounding is forgiven. units: the units of the data by quantity, where they are known.
        picked: which dofs of a file they are, if not all.
        """
        order = self._order(dofs, picked)
        limited = [(dof, joint) for dof, joint in enumerate(order) if joint != _NONE]
        for name, text in (units or {}).items():
            if name not in self.units or not text:
                continue
            limits, data = si_units(self.units[name]), parse_units(text)
            pairs = [(unit_of_dof(data, k), unit_of_dof(limits, n)) for k, n in limited if data]
            if data is None or any(unit.name and unit != other for unit, other in pairs):
                where, found = f"{self.path}: [{name}]", unit_text(self.units[name])
                raise InputError("limits in another unit", where=where, expected=text, found=found)
        slack = _ROUNDING.get(itemsize, _ROUNDING[4])
        # one more limit, infinite, behind those of the joints: index -1 is that of free dofs
        return {
            name: Bounds(np.append(lower, -np.inf)[order], np.append(upper, np.inf)[order], slack)
            for name, (lower, upper) in self.tables.items()
        }

    def unit_remarks(self, name: str, converted: Units | None) -> list[str]:
        """Says what is assumed where data or limits alone state a unit other than SI."""
        units, remarks = self.units.get(name), list[str]()
        for what, stated, other in (("limits", units, converted), ("data", converted, units)):
            if stated is None and other and unit_text(si_units(other)) != unit_text(other):
                remarks.append(f"{what} without a unit: taken as {unit_text(si_units(other))}")
        return remarks

    def remarks(self, dofs: Sequence[str], picked: Dofs | None = None) -> list[str]:
        """Says how limits were matched, which dofs have none, and which limits have no dof."""
        if not self.tables:
            return []
        order = self._order(dofs, picked)
        pairs, remarks = list(zip(dofs, order, strict=True)), list[str]()
        renamed = [
            f"{dof} is {self.joints[joint]}"
            for dof, joint in pairs
            if self.joints and joint != _NONE and dof != self.joints[joint] and not dof.isdecimal()
        ]
        free = [dof for dof, joint in pairs if joint == _NONE]
        spare = [name for number, name in enumerate(self.joints or ()) if number not in order]
        if self.joints is None and not self.for_all:
            remarks.append(Note("limits without names: by number"))
        for kind, what, names in (
            (str, "no limits of ", free),
            (Note, "limits by name: ", renamed),
            (Note, "limits without a dof: ", spare),
        ):
            remarks += [kind(f"{what}{join_names(names, _LISTED)}")] if names else []
        return remarks

    def _order(self, dofs: Sequence[str], picked: Dofs | None) -> Sequence[int]:
        """Matches each dof with the number of its joint; _NONE if the file does not name it."""
        if not self.tables:
            return [_NONE] * len(dofs)
        if self.for_all:
            return [0] * len(dofs)
        count, joints = next(iter(self.tables.values())).shape[1], self.joints
        if joints is None:
            picked = picked or Dofs(len(dofs), range(len(dofs)))
            if count not in (picked.count, len(dofs)):
                what, hint = "limits of other joints", "--dofs takes the dofs that they are of"
                expected, found = f"{len(dofs)}, one for each dof", f"{count} without names"
                where = str(self.path)
                raise InputError(what, where=where, expected=expected, found=found, hint=hint)
            return picked.numbers if count == picked.count else range(count)
        order = [_NONE if match is None else match for match in match_names(dofs, joints)]
        # dofs without names are their numbers, which q0, q1, … are, too
        numbers = dof_numbers(joints)
        if numbers is not None and sorted(map(str, numbers)) == sorted(dofs):
            order = [numbers.index(int(dof)) for dof in dofs]
        known = set(order) - {_NONE}
        spare = [name for number, name in enumerate(joints) if number not in order]
        # some dofs may have no limits, but not if other limits are spare: these are likely theirs
        # under another name. A URDF has spare joints anyway, such as those of a gripper.
        if len(known) == len(dofs) or (known and (self.robot or not spare)):
            return order
        # the hint names the dofs after the spare limits, in their order
        rest = iter(spare)
        names = [next(rest, dof) if joint == _NONE else joints[joint]
                 for dof, joint in zip(dofs, order, strict=True)]  # fmt: skip
        meaning = ", ".join(f"{dof} is {name}" for dof, name in zip(dofs, names, strict=True))
        raise InputError(
            "unknown joint" if known else "limits of other joints",
            where=f"{self.path}: joint_names" if known else str(self.path),
            expected=", ".join(dofs),
            found=", ".join(spare),
            hint="--joints a,b,c says what the dofs are called, in their order: "
            f"--joints {','.join(names)} if {meaning}",
        )

    def matched(self, dofs: Sequence[str], picked: Dofs | None = None) -> list[dict[str, Any]]:
        """Says for JSON which limit each dof has, and how it was matched."""
        by = "all" if self.for_all else "number" if self.joints is None else "name"
        return [
            {"dof": dof, "limit": None, "by": None} if joint == _NONE else
            {"dof": dof, "limit": self.joints[joint] if self.joints else joint, "by": by}
            for dof, joint in zip(dofs, self._order(dofs, picked), strict=True)
        ]  # fmt: skip


def read_limits(path: Path, sources: SourceFiles | None = None) -> Limits:
    """Reads limits from a .toml, .urdf or .yaml file, and adds it to the files of the command."""
    if sources is not None:
        sources.record(path)
    data = read_regular(path, _LARGEST_BYTES, "a file of limits")
    urdf, moveit = data.lstrip()[:1] == b"<", path.suffix.lower() in (".yaml", ".yml")
    read = _from_urdf if urdf else _from_moveit if moveit else _from_toml
    joints, tables, units = read(path, data)
    turns = {name: tables.pop(name) for name in ROTATIONS if name in tables}
    for name, sides in turns.items():
        if sides.ndim != 1 or sides[0] != -sides[1]:
            what, expected = "not the limit of a magnitude", "upper, one number for all rotations"
            raise InputError(what, where=f"{path}: [{name}]", expected=expected)
    largest = {name: float(sides[1] / per_si(units[name])[0]) for name, sides in turns.items()}
    if not tables and not turns:
        expected = "<joint> with <limit>" if urdf else f"tables [{'], ['.join(QUANTITIES)}]"
        raise InputError("no limits in it", where=str(path), expected=expected)
    # limits per joint give their number; a file of single numbers is of all dofs, however many
    widths = [sides.shape[1] for sides in tables.values() if sides.ndim == 2]
    count = len(joints) if joints is not None else next(iter(widths), 1)
    for name, sides in tables.items():
        if sides.ndim == 1:  # one number is of all joints
            sides = np.repeat(sides[:, None], count, 1)
        where, stated = f"{path}: [{name}]", units.get(name, ())
        if sides.shape[1] != count or len(stated) not in (0, 1, count):
            raise InputError(
                "wrong number of limits" if sides.shape[1] != count else "wrong number of units",
                where=where,
                expected=f"{count}, one per joint",
                found=str(sides.shape[1]) if sides.shape[1] != count else unit_text(stated),
            )
        for joint in np.flatnonzero(sides[0] > sides[1])[:1]:
            where, found = f"{where}, joint {joint}", f"{sides[0, joint]} and {sides[1, joint]}"
            raise InputError(_IMPOSSIBLE, where=where, expected="lower <= upper", found=found)
        tables[name] = sides / per_si(stated) if stated else sides
    for_all = joints is None and not widths
    return Limits(path, joints, tables, units, urdf or moveit, for_all, largest)


def _from_toml(path: Path, data: bytes) -> Parsed:
    try:
        toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    except ImportError:
        what, hint = "no TOML reader is installed", "pip install tomli, or use Python 3.11 or later"
        raise UsageError(what, where=str(path), hint=hint) from None
    try:
        document: dict[str, Any] = toml.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(read_fault(path, "a TOML file", error)) from None
    names, tables = document.get("joint_names"), dict[str, Floats]()
    if names is not None and not _are_texts(names):
        where = f"{path}: joint_names"
        raise InputError("not names", where=where, expected="strings", found=repr(names))
    for name in (name for name in (*QUANTITIES, *ROTATIONS[1:]) if name in document):
        table = document[name] if isinstance(document[name], dict) else {}
        try:
            arrays = {side: np.array(table[side]) for side in ("lower", "upper") if side in table}
            if not arrays or any(v.dtype.kind not in "if" or v.ndim > 1 for v in arrays.values()):
                raise ValueError
            # a single side is symmetric
            opposite = -next(iter(arrays.values())).astype(np.float64)
            sides = (arrays.get(side, opposite) for side in ("lower", "upper"))
            tables[name] = np.stack(np.broadcast_arrays(*sides)).astype(np.float64)
            if np.isnan(tables[name]).any() or not tables[name].size:
                raise ValueError
        except ValueError:  # also raised for lists of unequal length
            expected = "upper (and lower, if it is not its negative): a number, or one per joint"
            where, found = f"{path}: [{name}]", repr(document[name])[:200]
            raise InputError("not limits", where=where, expected=expected, found=found) from None
    # each table states its units, or has the derivative of those at the top of the document, which
    # come first here; rates of rotations are in rad unless they state something else
    known: dict[str, Units] = {}
    for name in ("", *tables):
        turning = name in ROTATIONS
        order = (ROTATIONS if turning else QUANTITIES).index(name or QUANTITIES[0])
        usual = derive_unit(QUANTITIES[order], "rad") if turning else None
        stated = (document[name] if name else document).get("units", usual)
        if stated is None:
            if "" in known:
                known[name] = derivative_units(known[""], order)
            continue
        units = parse_units(",".join(stated) if _are_texts(stated) else stated)
        if units is None or {(unit.known, unit.order) for unit in units} != {(True, order)}:
            choices = [derive_unit(name or "position", part) for part in KNOWN.split(", ")]
            where = f"{path}: [{name}] units" if name else f"{path}: units"
            raise InputError(unknown("unit", choices=choices, found=repr(stated), where=where))
        known[name] = units
    return names, tables, {name: known[name] for name in tables if name in known}


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _from_moveit(path: Path, data: bytes) -> Parsed:
    try:
        factors = {b"degrees": math.pi / 180.0, b"radians": 1.0}
        # tags of xacro are replaced before parsing: PyYAML does not know them
        in_rad = lambda tagged: b"%r" % (float(tagged[2]) * factors[tagged[1]])  # noqa: E731
        document = parse_yaml(path, _TAGGED.sub(in_rad, data))
        # among the parameters of a node the limits lie deeper: /move_group: ros__parameters: …
        while isinstance(document, dict) and "joint_limits" not in document and len(document) == 1:
            (document,) = document.values()
        joints: dict[str, dict[str, Any]] = document["joint_limits"]
        tables = {name: np.full((2, len(joints)), [[-np.inf], [np.inf]]) for name in QUANTITIES}
        for number, stated in enumerate(joints.values()):
            for name, sides in tables.items():
                if stated.get(f"has_{name}_limits") is not True:
                    continue
                upper = float(stated[f"max_{name}"])
                lower = float(stated[f"min_{name}"] if name == "position" else -upper)
                sides[:, number] = lower, upper
    except InputError:
        raise
    except Exception as error:  # errors of PyYAML, and of any layout but MoveIt's
        expected = "MoveIt's joint_limits: has_velocity_limits, max_velocity, …"
        raise InputError(read_fault(path, expected, error)) from None
    return list(joints), {n: sides for n, sides in tables.items() if np.isfinite(sides).any()}, {}


def _from_urdf(path: Path, data: bytes) -> Parsed:
    from xml.etree import ElementTree

    try:
        # entities can expand to gigabytes or name other files, so a document type is refused; the
        # next lines would not find it in any encoding but UTF-8
        text = data.decode("utf-8-sig")
        if "\0" in text or "<!" in text.replace("<!--", ""):
            raise ValueError("not UTF-8, or a document type, whose entities are not read")
        joints = [j for j in ElementTree.fromstring(text).iter("joint") if j.get("type") in _MOVING]
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        raise InputError(read_fault(path, "a URDF", error)) from None
    limits: dict[str, tuple[float, float, float, Unit]] = {}
    for joint in joints:
        name, element = joint.get("name", ""), joint.find("limit")
        limit = {} if element is None else element.attrib
        found, where = str(limit), f"{path}: joint {name}, <limit>"
        try:
            lower, upper = float(limit.get("lower", 0)), float(limit.get("upper", 0))
            speed = float(limit.get("velocity", "inf"))
        except ValueError:
            expected = "lower, upper, velocity"
            raise InputError("not numbers", where=where, expected=expected, found=found) from None
        # the specification of URDF: continuous joints have no lower and upper limits
        if joint.get("type") == "continuous" or not limit:
            lower, upper = -math.inf, math.inf
        if not (lower <= upper and speed >= 0):
            raise InputError(_IMPOSSIBLE, where=where, expected="lower <= upper", found=found)
        unit = Unit("m" if joint.get("type") == "prismatic" else "rad")
        limits[name] = lower, upper, speed, unit
    if not limits:
        return [], {}, {}
    lowers, uppers, speeds, units = zip(*limits.values(), strict=True)
    largest = np.array(speeds)
    tables = {"position": np.array([lowers, uppers]), "velocity": np.array([-largest, largest])}
    return list(limits), tables, {name: derivative_units(units, k) for k, name in enumerate(tables)}
