"""What an output holds: names, dimensions, units, attributes. The one place that says so.

Outputs are [trajectory, time, dof]. Where trajectories have times of their own, the middle
dimension is ``row`` and ``time`` is [trajectory, row]. ``trajectory`` and ``row`` are plain
dimensions; ``time`` is a coordinate in seconds; ``dof`` one of joint names where they are known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

QUANTITIES = ("position", "velocity", "acceleration", "jerk")
_PER_SECOND = {"position": "", "velocity": "/s", "acceleration": "/s^2", "jerk": "/s^3"}
_LONG_NAMES = {
    "position": "joint position",
    "velocity": "joint velocity",
    "acceleration": "joint acceleration",
    "jerk": "joint jerk",
}


RECORDED_START = "the recording's first row"
"""What the attribute ``start`` of an output says where the actions were a recording."""


RECORDED_ROW = "first row of each"
"""What it says where the start was looked up in what was recorded beside the actions."""


_POSITION_UNITS = ("rad", "deg", "degree", "degrees", "°", "rev", "m", "mm", "cm")
_DERIVED = r"([A-Za-z°]+) ?((?:/ ?s(?:ec)? ?\^? ?[123]?)*|[ .*·]s ?\^? ?-[123])"
# rad/s^2, rad/s2, rad/s/s, rad s-2, rad*s^-2


def derived_unit(unit: object) -> tuple[str, int] | None:
    """The unit of positions that a unit is derived from, and how often: rad/s^2 gives rad, 2.

    None for what is no such unit, or no text.
    """
    if not isinstance(unit, (str, bytes)):
        return None
    text = unit.decode("utf-8", "replace") if isinstance(unit, bytes) else unit
    for sign, plain in (("**", "^"), ("²", "^2"), ("³", "^3"), ("⁻", "-"), ("¹", "1")):
        text = text.replace(sign, plain)
    found = re.fullmatch(_DERIVED, text.strip())
    if found is None or found[1] not in _POSITION_UNITS:
        return None
    powers = re.findall(r"/ ?s(?:ec)? ?\^? ?([123]?)|-([123])", found[2])
    return found[1], sum(int(a or b or 1) for a, b in powers)


def unit_of(quantity: str, positions: str) -> str:
    """The unit of a quantity, by that of the positions: rad gives rad/s, rad/s^2, …"""
    return positions + _PER_SECOND[quantity]


@dataclass(frozen=True)
class Variable:
    """An array of an output; ``values`` is None where they are streamed in block by block.

    Many values may be given as a function of begin and end that makes those rows.
    """

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    values: Any = None

    @property
    def nbytes(self) -> int:
        """Size of the values in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def summed(self) -> bool:
        """Whether it is a gradient of what trajectories share, summed over them."""
        return self.name.startswith("grad/") and self.dims[:1] != ("trajectory",)

    def apart(self, batch: int) -> Variable:
        """Of a summed gradient, what each of so many trajectories adds to it."""
        per_state = self.dims[-1:] == ("dof",)  # [states, D]: a trajectory adds to one of them
        dims, shape = (self.dims[1:], self.shape[1:]) if per_state else (self.dims, self.shape)
        kind = np.dtype("float64")
        return replace(self, dims=("trajectory", *dims), shape=(batch, *shape), dtype=kind)


@dataclass(frozen=True)
class Schema:
    """All of an output: sizes of its dimensions, variables, attributes of the whole.

    groups: of an output that has a group for each trajectory, the names of these; those of one
    length together, and variables called k/NAME hold what the trajectories groups[k] get.
    scatter: of a padded output, the numbers of the trajectories of each length.
    """

    dims: Mapping[str, int]
    variables: Sequence[Variable]
    attributes: Mapping[str, Any]
    joint_names: Sequence[str] | None = None
    groups: Sequence[Sequence[str]] = ()
    scatter: Sequence[Any] = ()

    @property
    def kind(self) -> str:
        """ "mirrored" (a group for each trajectory), "padded" or "packed"."""
        return "mirrored" if self.groups else "padded" if self.scatter else "packed"

    @property
    def nbytes(self) -> int:
        """Size of all values in bytes."""
        return sum(variable.nbytes for variable in self.variables)

    @property
    def streamed(self) -> list[Variable]:
        """The variables whose values come block by block."""
        return [variable for variable in self.variables if variable.values is None]


def time_variable(shape: tuple[int, ...], values: Any = None) -> Variable:
    """The time of the rows [T]; or [B, T] where each trajectory has its own."""
    dims = ("time",) if len(shape) == 1 else ("trajectory", "row")
    label = {"long_name": "time from the start", "units": "s"}
    return Variable("time", dims, shape, np.dtype("float64"), label, values)


def packed_schema(
    batch: int,
    rows: int,
    dofs: int,
    *,
    wanted: Sequence[str],
    dtype: str,
    own_times: bool,
    attributes: Mapping[str, Any],
    start_index: Any = None,
    joint_names: Sequence[str] | None = None,
    units: str | None = None,
    more: Sequence[Variable] = (),
) -> Schema:
    """The schema of packed trajectories [batch, rows, dofs].

    own_times: every trajectory has times of its own. start_index: integers, or a function of
    begin and end. more: further variables, which bring the sizes of their dimensions.
    """
    shared = not own_times
    along = "time" if shared else "row"
    kind = np.dtype(dtype)
    variables = []
    for name in wanted:
        labels = {"long_name": _LONG_NAMES[name]}
        if units:
            labels["units"] = unit_of(name, units)
        dims = ("trajectory", along, "dof")
        variables.append(Variable(name, dims, (batch, rows, dofs), kind, labels))
    variables.append(time_variable((rows,) if shared else (batch, rows)))
    if start_index is not None:
        label = {"long_name": "start state used"}
        whole, axes = np.dtype("int64"), ("trajectory",)
        variables.append(Variable("start_index", axes, (batch,), whole, label, start_index))
    sizes = {"trajectory": batch, along: rows, "dof": dofs}
    for variable in more:
        sizes |= dict(zip(variable.dims, variable.shape, strict=True))
    return Schema(sizes, [*variables, *more], attributes, joint_names)


def mirrored_schema(
    members: Sequence[Sequence[str]],
    rows: Sequence[int],
    dofs: int,
    *,
    wanted: Sequence[str],
    dtype: str,
    attributes: Mapping[str, Any],
    start_index: Sequence[Any] = (),
    joint_names: Sequence[str] | None = None,
    units: str | None = None,
) -> Schema:
    """The schema of trajectories in groups: members[k] are those of rows[k] rows."""
    variables = []
    for k, (names, count) in enumerate(zip(members, rows, strict=True)):
        packed = packed_schema(
            len(names),
            count,
            dofs,
            wanted=wanted,
            dtype=dtype,
            own_times=True,
            attributes={},
            start_index=start_index[k] if start_index else None,
            units=units,
        )
        variables += [replace(v, name=f"{k}/{v.name}") for v in packed.variables]
    return Schema({"dof": dofs}, variables, attributes, joint_names, members)


def rows_schema(
    names: Sequence[str],
    dtypes: Mapping[str, np.dtype[Any]],
    batch: int,
    rows: int,
    dofs: int,
    *,
    shared_step: float | None,
    attributes: Mapping[str, Any],
    joint_names: Sequence[str] | None = None,
    units: Mapping[str, str] | None = None,
    more: Mapping[str, Any] | None = None,
    states: Mapping[str, Any] | None = None,
) -> Schema:
    """The schema of rows made from rows: arrays [batch, rows, dofs] and their times.

    shared_step: the time between all rows, where it is one; actions then have it as ``dt`` too.
    more: values of every trajectory [batch]. states: start and goal states beside actions.
    """
    shared = shared_step is not None or batch == 1
    along = "time" if shared else "row"
    variables = []
    for name in names:
        labels = {"long_name": _LONG_NAMES.get(name, name)}
        if units and name in units:
            labels["units"] = units[name]
        kind = np.dtype("f4" if dtypes[name].kind == "f" and dtypes[name].itemsize <= 4 else "f8")
        variables.append(
            Variable(name, ("trajectory", along, "dof"), (batch, rows, dofs), kind, labels)
        )
    variables.append(time_variable((rows,) if shared else (batch, rows)))
    if "actions" in names and shared_step is not None:
        label = {"long_name": "step of the actions", "units": "s"}
        step = np.asarray(shared_step)
        variables.append(Variable("dt", (), (), step.dtype, label, step))
    variables += [trajectory_values(name, values) for name, values in (more or {}).items()]
    sizes = {"trajectory": batch, along: rows, "dof": dofs}
    for name, values in (states or {}).items():
        dims = ("state", "dof")[-values.ndim :] if not name.endswith("index") else ("trajectory",)
        variables.append(Variable(name, dims, values.shape, values.dtype, {}, values))
        sizes |= dict(zip(dims, values.shape, strict=True))
    return Schema(sizes, variables, attributes, joint_names)


def trajectory_values(name: str, values: Any) -> Variable:
    """A number for every trajectory."""
    label = {"long_name": name.replace("_", " ")}
    return Variable(name, ("trajectory",), values.shape, values.dtype, label, values)
