"""What an output holds: names, dimensions, units, attributes. The one place that says so.

Outputs are [trajectory, time, dof]. Where trajectories have times of their own, the middle
dimension is ``row`` and ``time`` is [trajectory, row]. ``trajectory`` and ``row`` are plain
dimensions; ``time`` is a coordinate in seconds; ``dof`` one of joint names where they are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize


@dataclass(frozen=True)
class Schema:
    """All of an output: sizes of its dimensions, variables, attributes of the whole."""

    dims: Mapping[str, int]
    variables: Sequence[Variable]
    attributes: Mapping[str, Any]
    joint_names: Sequence[str] | None = None

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
