"""Limits of joints, as people write them: a table per quantity in a TOML file.

joint_names = ["shoulder", "elbow"]     # optional: the order of the lists below
[velocity]                              # also position, acceleration, jerk
upper = [2.0, 3.0]                      # a number for all joints, or one for each
lower = [-1.0, -3.0]                    # without it: the negative of upper
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError, raise_if_any
from trajcli.files.schema import QUANTITIES
from trajcli.files.toml import read_toml


@dataclass(frozen=True)
class Limits:
    """``lower`` and ``upper`` by quantity, each float64 [] or [D]."""

    path: str
    lower: Mapping[str, Any]
    upper: Mapping[str, Any]
    joint_names: Sequence[str] | None = None
    units: str | None = None

    def for_joints(self, names: Sequence[str] | None, dofs: int) -> Limits:
        """The same in the order of a trajectory's joints, where both are named.

        Raises InputError for a joint without limits, and for limits of another number of dofs.
        """
        raise_if_any(self._count_faults(dofs if names is None else None))
        if names is None or self.joint_names is None:
            raise_if_any(self._count_faults(dofs))
            return self
        known = list(self.joint_names)
        missing = [name for name in names if name not in known]
        if missing:
            found = ", ".join(known)
            what = f"no limits for {', '.join(missing)}"
            raise InputError(Fault(what, self.path, f"limits of {', '.join(names)}", found))
        order = [known.index(name) for name in names]

        def sort(table: Mapping[str, Any]) -> dict[str, Any]:
            return {name: v[order] if v.ndim else v for name, v in table.items()}

        return Limits(self.path, sort(self.lower), sort(self.upper), list(names), self.units)

    def _count_faults(self, dofs: int | None) -> list[Fault]:
        count = dofs if dofs is not None else len(self.joint_names or ()) or None
        return [
            Fault("limits of another number of dofs", f"{self.path}: {name}.{side}",
                  f"one number, or {count}", str(values.size))
            for side, table in (("lower", self.lower), ("upper", self.upper))
            for name, values in table.items()
            if count is not None and values.ndim and values.size != count
        ]  # fmt: skip


def read_limits(path: Path) -> Limits:
    """Limits from a TOML file; raises InputError, with every fault, for what is no limit."""
    table = read_toml(path, "--limits")
    lower: dict[str, Any] = {}
    upper: dict[str, Any] = {}
    faults: list[Fault] = []
    for name, section in table.items():
        if name in ("joint_names", "units"):
            continue
        if name not in QUANTITIES or not isinstance(section, dict):
            expected = ", ".join(f"[{quantity}]" for quantity in QUANTITIES)
            faults.append(Fault("not a quantity with limits", f"{path}: {name}", expected))
            continue
        faults += _section(f"{path}: {name}", name, section, lower, upper)
    if not faults and not upper:
        faults.append(Fault("no limits", str(path), "[velocity] upper = ... and the like"))
    raise_if_any(faults)
    names = table.get("joint_names")
    units = table.get("units")
    return Limits(
        str(path),
        lower,
        upper,
        [str(name) for name in names] if isinstance(names, list) else None,
        units if isinstance(units, str) else None,
    )


def _section(
    where: str, name: str, section: Mapping[str, Any], lower: dict[str, Any], upper: dict[str, Any]
) -> list[Fault]:
    unknown = [key for key in section if key not in ("lower", "upper")]
    if unknown or "upper" not in section:
        return [Fault("not a limit", where, "upper, and optionally lower", ", ".join(section))]
    upper[name] = _numbers(section["upper"])
    lower[name] = _numbers(section["lower"]) if "lower" in section else None
    if upper[name] is not None and "lower" not in section:
        lower[name] = -upper[name]
    if upper[name] is None or lower[name] is None:
        return [Fault("not a limit", where, "a number, or one for each joint", str(dict(section)))]
    try:
        crossed = (lower[name] > upper[name]).any()
    except ValueError:
        return [Fault("lower and upper differ in number", where, found=str(dict(section)))]
    return [Fault("a lower limit above the upper one", where)] if crossed else []


def _numbers(value: Any) -> Any:
    """A number or a list of numbers as float64; None for anything else, and for NaN."""
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(v, (int, float)) and v == v for v in values):
        return None
    return np.asarray(value, dtype=np.float64)
