"""What an output holds: names, dimensions, units, attributes. The one place that says so.

Outputs are [trajectory, time, dof]. Where trajectories have times of their own, the middle
dimension is ``row`` and ``time`` is [trajectory, row]. ``trajectory`` and ``row`` are plain
dimensions; ``time`` is a coordinate in seconds; ``dof`` one of joint names where they are known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

TAKEN = ("trajectory", "time", "row", "step", "point", "each", "dof", "times", "dt", "lengths",
         "joint_names")  # fmt: skip
"""What outputs call their dimensions and what lies beside the arrays of trajectories."""
QUANTITIES = ("position", "velocity", "acceleration", "jerk")
_PER_SECOND = {"position": "", "velocity": "/s", "acceleration": "/s^2", "jerk": "/s^3"}
RECORDED_START = "the recording's first row"
"""What the attribute ``start`` of an output says where the actions were a recording."""
RECORDED_ROW = "first row of each"
"""What it says where the start was looked up in what was recorded beside the actions."""


def unit_of(quantity: str, positions: str) -> str:
    """The unit of a quantity, by that of the positions: rad gives rad/s, rad/s^2, …"""
    return ",".join(part + _PER_SECOND[quantity] for part in positions.split(","))


@dataclass(frozen=True)
class Variable:
    """An array of an output; ``values`` is None where they are written block by block."""

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
    def row_bytes(self) -> int:
        """Size of one entry along the first axis in bytes."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def by_trajectory(self) -> bool:
        """Whether its first axis is that of the trajectories."""
        return self.dims[:1] == ("trajectory",)


@dataclass(frozen=True)
class Group:
    """Trajectories of one length: ``rows`` of each, and the ``names`` of their HDF5 groups.

    numbers: which of all trajectories they are, int64 [n].
    """

    rows: int
    names: Sequence[str]
    numbers: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Schema:
    """Describes an output file: dimensions, variables and global attributes.

    groups: of trajectories of unequal length, those of each length. The variables are then
    described as for one array of all of them, as if all had the longest; every trajectory has a
    group of its own. See :func:`unequal_schema`. trajectory_names: of trajectories in one array,
    the coordinate ``trajectory``. sources: of a part of a run, all names that an attribute of the
    whole sums up.
    """

    dims: Mapping[str, int]
    variables: Sequence[Variable]
    attributes: Mapping[str, Any]
    joint_names: Sequence[str] | None = None
    groups: Sequence[Group] = ()
    trajectory_names: Sequence[str] | None = None
    sources: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """ "groups" (one for each trajectory) or "packed" (one array of all)."""
        return "groups" if self.groups else "packed"

    @property
    def nbytes(self) -> int:
        """Size of all values in bytes."""
        if not self.groups:
            return sum(variable.nbytes for variable in self.variables)
        groups = range(len(self.groups))
        return sum(self.in_group(v, k).nbytes for k in groups for v in self.variables)

    @property
    def streamed(self) -> list[Variable]:
        """The variables whose values are written block by block."""
        return [variable for variable in self.variables if variable.values is None]

    def in_group(self, variable: Variable, group: int) -> Variable:
        """A variable of the shape that the trajectories of one length have, [n, rows, ...]."""
        if not self.groups or not variable.by_trajectory:
            return variable
        part = self.groups[group]
        rows = (part.rows,) if variable.dims[1:2] == ("row",) else variable.shape[1:2]
        return replace(variable, shape=(len(part.names), *rows, *variable.shape[2:]))


def unequal_schema(longest: Schema, groups: Sequence[Group]) -> Schema:
    """Returns the schema of trajectories of unequal length, each in a group of its own, from that
    of all as if they had the longest."""
    total, rows = longest.dims["trajectory"], max(group.rows for group in groups)
    variables = []
    for variable in longest.variables:
        if variable.name == "time":
            variable = time_variable((total, rows))
        elif variable.dims[1:2] == ("time",):
            variable = replace(variable, dims=("trajectory", "row", *variable.dims[2:]))
        elif not variable.dims:  # one dt of all: every group has it
            values = np.full(total, variable.values)
            variable = replace(variable, dims=("trajectory",), shape=(total,), values=values)
        variables.append(variable)
    dims = {"row" if name == "time" else name: size for name, size in longest.dims.items()}
    return replace(longest, dims=dims, variables=variables, groups=tuple(groups))


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

    own_times: every trajectory has times of its own. start_index: integers [batch]. more: further
    variables, which bring the sizes of their dimensions.
    """
    along = "row" if own_times else "time"
    variables = []
    for name in wanted:
        labels = {"long_name": f"joint {name}" if name in QUANTITIES else name}
        if units:
            labels["units"] = unit_of(name, units)
        dims = ("trajectory", along, "dof")
        variables.append(Variable(name, dims, (batch, rows, dofs), np.dtype(dtype), labels))
    variables.append(time_variable((batch, rows) if own_times else (rows,)))
    if start_index is not None:
        label, index = {"long_name": "start state used"}, np.asarray(start_index, np.int64)
        variables.append(
            Variable("start_index", ("trajectory",), index.shape, index.dtype, label, index)
        )
    sizes = {"trajectory": batch, along: rows, "dof": dofs}
    for variable in more:
        sizes |= dict(zip(variable.dims, variable.shape, strict=True))
    return Schema(sizes, [*variables, *more], attributes, joint_names)


def plain_value(value: Any) -> Any:
    """A NumPy value as JSON can hold it; anything else as text."""
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else str(value)
