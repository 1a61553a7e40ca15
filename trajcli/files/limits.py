"""Limits of the joints: the TOML of sample_data/limits.toml, and the <limit> of a URDF."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.schema import QUANTITIES

_LARGEST = 32 << 20
_FORGIVEN = {4: 1e-6, 8: 1e-9}
"""A share of the limit that rounding may add, by bytes of a value."""


@dataclass(frozen=True)
class Bounds:
    """Lower and upper limits of one quantity, one per dof; infinite where there is none.

    ``slack``: the share of ``size`` that is forgiven, because a motion planned to its limits
    passes them by its rounding.
    """

    lower: Any
    upper: Any
    slack: float = _FORGIVEN[8]

    @property
    def size(self) -> Any:
        """What an excess is measured by: the larger limit of each dof."""
        sides = [
            np.where(np.isfinite(side), np.abs(side), 0.0) for side in (self.lower, self.upper)
        ]
        largest = np.maximum(*sides)
        return np.where(largest > 0, largest, 1.0)


@dataclass(frozen=True)
class Limits:
    """The limits that a file gives: per quantity, by joint."""

    path: Path
    joints: Sequence[str] | None
    tables: Mapping[str, tuple[Sequence[float], Sequence[float]]]

    def bounds(self, dofs: Sequence[str], itemsize: int = 8) -> dict[str, Bounds]:
        """Those of some dofs, by name, else by number; raises InputError where neither fits."""
        order = self._order(dofs)
        slack = _FORGIVEN.get(itemsize, _FORGIVEN[4])
        return {
            name: Bounds(
                np.array([lower[i] for i in order]), np.array([upper[i] for i in order]), slack
            )
            for name, (lower, upper) in self.tables.items()
        }

    def _order(self, dofs: Sequence[str]) -> list[int]:
        count = len(next(iter(self.tables.values()))[0]) if self.tables else 0
        if self.joints is not None and set(dofs) <= set(self.joints):
            return [list(self.joints).index(name) for name in dofs]
        numbered = all(name.isdecimal() for name in dofs)  # no names in the data
        if count == len(dofs) and (numbered or self.joints is None):
            return list(range(count))
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
        if path.stat().st_size > _LARGEST:
            raise InputError(Fault("too large for limits", str(path), f"at most {_LARGEST} bytes"))
        data = path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(Fault("cannot be read", str(path), "a file of limits", reason)) from None
    return _from_urdf(path, data) if data.lstrip()[:1] == b"<" else _from_toml(path, data)


def _from_toml(path: Path, data: bytes) -> Limits:
    from trajcli.files.toml import parse_toml

    table = parse_toml(data, str(path))
    names = table.get("joint_names")
    faults = []
    if names is not None and not _texts(names):
        faults.append(Fault("not names", f"{path}: joint_names", "a list of strings", repr(names)))
        names = None
    tables: dict[str, tuple[list[float], list[float]]] = {}
    for name in QUANTITIES:
        if name not in table:
            continue
        sides = _sides(table[name])
        if sides is None:
            expected = "upper (and lower, if it is not its negative): one number per joint"
            faults.append(
                Fault("not limits", f"{path}: [{name}]", expected, repr(table[name])[:200])
            )
            continue
        counts = [len(names)] if names is not None else [len(v[0]) for v in tables.values()]
        faults += _table_faults(f"{path}: [{name}]", *sides, *counts[:1])
        tables[name] = sides
    if not tables and not faults:
        expected = f"tables {', '.join(f'[{name}]' for name in QUANTITIES)}"
        faults.append(Fault("no limits in it", str(path), expected, ", ".join(table) or "nothing"))
    if faults:
        raise InputError(*faults)
    return Limits(path, names, tables)


def _sides(own: Any) -> tuple[list[float], list[float]] | None:
    """Lower and upper of a table; one alone is symmetric. None for what is no such table."""
    if not isinstance(own, dict) or not {"lower", "upper"} & set(own):
        return None
    given = {side: own[side] for side in ("lower", "upper") if side in own}
    if not all(_numbers(values) for values in given.values()):
        return None
    upper = given.get("upper") or [-value for value in given["lower"]]
    lower = given.get("lower") or [-value for value in given["upper"]]
    if len(lower) != len(upper):
        return None
    return [float(v) for v in lower], [float(v) for v in upper]


def _table_faults(
    where: str, lower: Sequence[float], upper: Sequence[float], count: int | None = None
) -> Iterator[Fault]:
    if count is not None and len(upper) != count:
        yield Fault("wrong number of limits", where, f"{count}, one per joint", str(len(upper)))
    for i, (a, b) in enumerate(zip(lower, upper, strict=True)):
        if not a <= b:
            what = "limits that nothing can keep"
            yield Fault(what, f"{where}, joint {i}", "lower <= upper", f"{a} and {b}")


def _from_urdf(path: Path, data: bytes) -> Limits:
    from xml.parsers import expat

    joints: dict[str, tuple[float, float, float]] = {}
    inside: list[tuple[str, str]] = []
    faults: list[Fault] = []

    def declared(*_: Any) -> int:
        raise ValueError("a document type: entities are not read")

    def begun(tag: str, attributes: dict[str, str]) -> None:
        if tag == "joint" and attributes.get("type") in ("revolute", "prismatic", "continuous"):
            inside[:] = [(attributes.get("name", ""), attributes["type"])]
            joints[inside[0][0]] = (-math.inf, math.inf, math.inf)
        elif tag == "limit" and inside:
            name, kind = inside[0]
            try:
                joints[name] = _urdf_limit(kind, attributes)
            except ValueError:
                where = f"{path}: joint {name}, <limit>"
                faults.append(
                    Fault("not numbers", where, "lower, upper, velocity", str(attributes))
                )

    def ended(tag: str) -> None:
        if tag == "joint":
            inside.clear()

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = declared
    parser.ExternalEntityRefHandler = declared
    parser.StartElementHandler, parser.EndElementHandler = begun, ended
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, ValueError) as error:
        raise InputError(Fault("cannot be read", str(path), "a URDF", str(error))) from None
    if not joints:
        faults.append(Fault("no limits in it", str(path), "<joint> with <limit>", "none"))
    if faults:
        raise InputError(*faults)
    lower, upper, speed = zip(*joints.values(), strict=True)
    tables = {"position": (lower, upper), "velocity": ([-v for v in speed], speed)}
    return Limits(path, list(joints), tables)


def _urdf_limit(kind: str, attributes: Mapping[str, str]) -> tuple[float, float, float]:
    """Lower, upper, speed; a continuous joint has no ends, an absent one is 0 in a URDF."""
    speed = float(attributes.get("velocity", "inf"))
    if kind == "continuous":
        return -math.inf, math.inf, speed
    lower, upper = float(attributes.get("lower", "0")), float(attributes.get("upper", "0"))
    if not (lower <= upper and speed >= 0):
        raise ValueError
    return lower, upper, speed


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, (int, float)) and not isinstance(item, bool) and item == item
        for item in value
    )
