"""Trajectories of different length in one array, padded with NaN; ``lengths`` says how far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trajcli.files.outputs import Output
from trajcli.files.schema import Schema, Variable, time_variable


def padded_schema(
    longest: Schema, numbers: Sequence[Any], rows: Sequence[int], shared_step: bool
) -> Schema:
    """The schema of all trajectories, from that of the longest ones.

    numbers[k]: which trajectories have rows[k] rows. shared_step: one time of the rows holds for
    all of them.
    """
    total, most = sum(map(len, numbers)), max(rows)
    lengths = np.zeros(total, np.int64)
    for some, count in zip(numbers, rows, strict=True):
        lengths[some] = count
    along = "time" if shared_step else "row"
    variables = []
    for variable in longest.variables:
        if variable.name == "time":
            variables.append(time_variable((most,) if shared_step else (total, most)))
        elif variable.values is None:
            dims, shape = ("trajectory", along, *variable.dims[2:]), (total, *variable.shape[1:])
            variables.append(replace(variable, dims=dims, shape=shape))
        elif variable.dims[:1] != ("trajectory",):
            variables.append(variable)
    label = {"long_name": "rows that are not padding"}
    variables.append(Variable("lengths", ("trajectory",), (total,), lengths.dtype, label, lengths))
    sizes = {**longest.dims, "trajectory": total, along: most}
    if along == "row":
        sizes.pop("time", None)
    return replace(longest, dims=sizes, variables=variables, scatter=tuple(numbers))


class Padded:
    """An output that takes k/NAME, trajectories of one length, and puts each in its place."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.path = output.path
        self.keeps = output.keeps
        self.done = output.done
        self.carried = output.carried
        self._variables = {v.name: v for v in output.schema.variables}
        self._lengths = self._variables["lengths"].values

    def write(self, name: str, row: int, block: Any) -> None:
        """Trajectories row, row + 1, … of their length, each with its padding."""
        part, _, own = name.partition("/")
        variable, chosen = self._variables[own], self._output.schema.scatter[int(part)]
        if len(variable.shape) == 1:  # the time of the rows, which all share
            if row == 0 and self._lengths[chosen[0]] == variable.shape[0]:
                self._output.write(own, 0, block[0])
            return
        for number, values in zip(chosen[row : row + len(block)], block, strict=True):
            rest = np.full((variable.shape[1] - len(values), *values.shape[1:]), np.nan)
            whole = np.concatenate([values, rest.astype(values.dtype)])
            self._output.write(own, int(number), whole[None])

    def place(self, name: str, row: int) -> None:
        """None: the padding is put behind what is written."""

    def settle(self) -> None:
        """See :class:`Output`."""
        self._output.settle()

    def keep(self, done: int, carried: Mapping[str, Any]) -> None:
        """See :class:`Output`."""
        self._output.keep(done, carried)

    def finish(self) -> None:
        """See :class:`Output`."""
        self._output.finish()

    def discard(self) -> None:
        """See :class:`Output`."""
        self._output.discard()
