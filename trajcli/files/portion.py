"""Some of the trajectories of a run, in an output of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trajcli.files.outputs import Output
from trajcli.files.schema import Schema, Variable, time_variable


def portion_schema(whole: Schema, prefix: str, begin: int, end: int, rows: int) -> Schema:
    """The schema of trajectories begin..end of one length: packed, with the whole's attributes.

    prefix: what the variables of this length are called in the run, "" where all are alike. Those
    of a run of several lengths have their own times.
    """
    variables = []
    for variable in _of_length(whole, prefix, rows):
        if variable.summed:
            variable = variable.apart(end - begin)
        elif variable.dims[:1] == ("trajectory",):
            shape = (end - begin, *variable.shape[1:])
            values = _rows(variable.values, begin, end)
            variable = replace(variable, shape=shape, values=values)
        variables.append(variable)
    dims: dict[str, int] = {}
    for variable in variables:
        dims |= dict(zip(variable.dims, variable.shape, strict=True))
    names = [name for name in ("trajectory", "time", "row", "dof") if name in dims]
    sizes = {name: dims[name] for name in [*names, *dims]}
    return Schema(sizes, variables, whole.attributes, whole.joint_names)


def _of_length(whole: Schema, prefix: str, rows: int) -> Sequence[Variable]:
    """The variables of the trajectories of one length."""
    if not prefix:
        return whole.variables
    if whole.groups:
        count = len(whole.variables) // len(whole.groups)  # all lengths have the same
        first = int(prefix.rstrip("/")) * count
        own = whole.variables[first : first + count]
        return [replace(v, name=v.name.removeprefix(prefix)) for v in own]
    chosen = whole.scatter[int(prefix.rstrip("/"))]
    found = []
    for variable in whole.variables:
        if variable.name == "time":
            found.append(time_variable((len(chosen), rows)))
        elif variable.values is None:
            shape = (len(chosen), rows, *variable.shape[2:])
            dims = ("trajectory", "row", *variable.dims[2:])
            found.append(replace(variable, dims=dims, shape=shape))
        elif variable.name != "lengths":
            found.append(replace(variable, values=variable.values[chosen]))
    return found


def _rows(values: Any, begin: int, end: int) -> Any:
    """Some rows of values, or of what makes them."""
    if callable(values):
        return lambda first, last: values(begin + first, begin + last)
    return None if values is None else values[begin:end]


class Portion:
    """An output that takes trajectories by their numbers in the run: ``begin`` is its first.

    first: trajectories of other lengths before. prefix: of the names in the run.
    """

    def __init__(self, output: Output, prefix: str, first: int, begin: int) -> None:
        self._output, self._prefix = output, prefix
        self._before, self._begin = first + begin, begin
        self._along = {v.name: v.dims[:1] == ("trajectory",) for v in output.schema.variables}
        self.path = output.path
        self.keeps = output.keeps
        self.done = self._before + output.done
        self.carried = output.carried

    def write(self, name: str, row: int, block: Any) -> None:
        """See :class:`Output`."""
        own = name.removeprefix(self._prefix)
        self._output.write(own, row - self._begin if self._along[own] else row, block)

    def place(self, name: str, row: int) -> tuple[int, int] | None:
        """See :class:`Output`."""
        return self._output.place(name.removeprefix(self._prefix), row - self._begin)

    def settle(self) -> None:
        """See :class:`Output`."""
        self._output.settle()

    def keep(self, done: int, carried: Mapping[str, Any]) -> None:
        """See :class:`Output`."""
        self._output.keep(done - self._before, carried)
