"""Describes an output file: its trajectories, dimensions, variables and attributes.

An output holds arrays [trajectory, time, dof]. Where trajectories have times of their own, the
middle dimension is ``row`` and ``time`` is [trajectory, row]. ``trajectory`` and ``row`` are
plain dimensions, ``time`` is a coordinate in seconds, and ``dof`` one of joint names where they are
known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from trajcli.files.arrays import Numbers
from trajcli.files.quantities import QUANTITIES

ROWS = ("trajectory", "row", "dof")
"""The dimensions of an array that has a row for each time of a trajectory."""


@dataclass(frozen=True)
class Variable:
    """An array of an output, with the names of its dimensions.

    values: None where they are written block by block.
    """

    name: str
    dims: tuple[str, ...]
    dtype: np.dtype[Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    values: Any = None

    @property
    def by_trajectory(self) -> bool:
        """Whether the first axis counts trajectories."""
        return self.dims[:1] == ("trajectory",)


@dataclass(frozen=True)
class Group:
    """The trajectories of one length, each in an HDF5 group of its own.

    rows: the length. numbers [n]: which of all trajectories they are. names [n]: their groups.
    """

    rows: int
    numbers: Numbers
    names: Sequence[str]


@dataclass(frozen=True)
class Description:
    """Describes an output file; made by :func:`describe_output`.

    sizes: the sizes of the dimensions; where trajectories differ in length, ``row`` is the longest.
    groups: the trajectories of each length, where they differ in length; else there are none, and
    all trajectories are one array, of these ``names`` where they have any. sources: in a part of a
    run, all names that an attribute of the file sums up.
    """

    sizes: Mapping[str, int]
    variables: Sequence[Variable]
    attributes: Mapping[str, Any]
    names: Sequence[str] | None = None
    joint_names: Sequence[str] | None = None
    groups: Sequence[Group] = ()
    sources: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """ "groups" (one for each trajectory) or "packed" (one array of all)."""
        return "groups" if self.groups else "packed"

    @cached_property
    def nbytes(self) -> int:
        """Size of all values in bytes."""
        return sum(
            self.nbytes_of(variable, k)
            for variable in self.variables
            for k in range(len(self.groups) if variable.by_trajectory and self.groups else 1)
        )

    @property
    def streamed(self) -> list[Variable]:
        """The variables whose values are written block by block."""
        return [variable for variable in self.variables if variable.values is None]

    def shape(self, variable: Variable, group: int = 0) -> tuple[int, ...]:
        """Returns the shape of a variable, of the trajectories of a group where there are any."""
        sizes = self.sizes
        if self.groups:
            part = self.groups[group]
            sizes = {**sizes, "trajectory": len(part.numbers), "row": part.rows}
        return tuple(sizes[dim] for dim in variable.dims)

    def nbytes_of(self, variable: Variable, group: int = 0) -> int:
        """Returns the size of a variable in bytes."""
        return math.prod(self.shape(variable, group)) * variable.dtype.itemsize

    def entry_bytes(self, variable: Variable, group: int = 0) -> int:
        """Returns the size of one entry along the first axis in bytes."""
        return math.prod(self.shape(variable, group)[1:]) * variable.dtype.itemsize


def describe_output(
    lengths: Mapping[int, Numbers],
    sizes: Mapping[str, int],
    variables: Sequence[Variable],
    attributes: Mapping[str, Any],
    *,
    names: Sequence[str] | None = None,
    joint_names: Sequence[str] | None = None,
) -> Description:
    """Describes an output: one array of all trajectories, or a group for each if lengths differ.

    Parameters:
        lengths: the numbers of the trajectories that have each number of rows, counted as ``names``
            are.
        sizes: the sizes of the other dimensions that variables have.
        variables: all variables; the axis of the rows is ``row``. A variable ``time`` [row] says
            that all trajectories have the same times; where each has a group, it has them again.
        attributes: global attributes.
        names: names of the trajectories, which their groups take.
        joint_names: names of the dofs.
    """
    total = sum(len(numbers) for numbers in lengths.values())
    groups = []
    if len(lengths) > 1:
        assert names is not None
        for rows, numbers in sorted(lengths.items()):
            groups.append(Group(rows, numbers, [names[n] for n in numbers]))
        variables = [_of_each_trajectory(variable, total) for variable in variables]
    # times that all share are the coordinate of the rows, which take their name
    along = "row"
    if any(variable.name == "time" and variable.dims == ("row",) for variable in variables):
        along = "time"
        variables = [
            replace(v, dims=tuple(along if dim == "row" else dim for dim in v.dims))
            for v in variables
        ]
    return Description(
        {"trajectory": total, along: max(lengths), **sizes},
        variables,
        attributes,
        None if groups else names,
        joint_names,
        groups,
    )


def _of_each_trajectory(variable: Variable, total: int) -> Variable:
    """Returns a variable that all trajectories share as one that each of them has."""
    if variable.name == "time":
        return time_variable(shared=False)
    # each group can then be read alone
    if not variable.dims:
        return replace(variable, dims=("trajectory",), values=np.full(total, variable.values))
    return variable


def row_variable(name: str, dtype: Any, unit: str | None = None) -> Variable:
    """Describes an array [trajectory, row, dof] in this unit, where it is known."""
    labels = {"long_name": f"joint {name}" if name in QUANTITIES else name}
    return Variable(name, ROWS, np.dtype(dtype), labels | ({"units": unit} if unit else {}))


def time_variable(shared: bool, values: Any = None) -> Variable:
    """Describes the times of the rows: one [row] for all trajectories, or [trajectory, row]."""
    label = {"long_name": "time from the start", "units": "s"}
    return Variable("time", ROWS[1:2] if shared else ROWS[:2], np.dtype("f8"), label, values)


def stamp_variables(stamps: tuple[Any, str] | None) -> list[Variable]:
    """Describes the stamps of the source at which times are 0 [trajectory], of this unit; returns
    nothing without any."""
    if stamps is None:
        return []
    values, unit = stamps
    label = {"long_name": "stamp of the source at time 0", "units": unit}
    dtype = values.dtype.newbyteorder("=")
    return [Variable("start_stamp", ("trajectory",), dtype, label, values)]


def plain_value(value: Any) -> Any:
    """Returns a NumPy value as JSON can hold it, and anything else as text."""
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else str(value)
