"""One block of a run: check its values, compute them, write what comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from trajcli.checks import largest
from trajcli.errors import Fault, raise_if_any
from trajcli.files.schema import QUANTITIES
from trajcli.files.sink import Sink
from trajcli.input_checks import value_faults
from trajcli.inputs import Carry, Inputs
from trajcli.jobs.batch import Block
from trajcli.jobs.plan import Plan
from trajcli.recordings import smooth

_LIMITS = {"float32": 1e38, "float64": 1e307}
"""Below these no result overflows."""


@dataclass(frozen=True)
class Job:
    """Its input, where it goes, and the steps in which that is done.

    ``carry`` is what the rows before have left, the same object for every stretch of a
    trajectory; ``write`` adds the time of these, whoever computes them their state. ``views``:
    where in the output the kernels put results themselves.
    """

    plan: Plan
    output: Sink
    block: Block
    inputs: Inputs
    views: dict[str, Any] | None
    carry: Carry
    allow_nonfinite: bool

    def check(self) -> bool:
        """Raise for values that are wrong; whether no result can overflow."""
        plan, inputs = self.plan, self.inputs
        raise_if_any(_located_faults(self.block, inputs, self.allow_nonfinite))
        if plan.better is not None and inputs.actions.size:
            plan.peak.value = max(plan.peak.value or 0.0, largest(inputs.actions))
        return inputs.stays_below(_LIMITS[plan.dtype], self.carry)

    def results(self) -> Iterator[tuple[str, int, Any]]:
        """Compute it: name, first row, values."""
        return _results(self.plan, self.inputs, self.block.begin, self.views, self.carry)

    def write(
        self,
        results: Iterable[tuple[str, int, Any]],
        bounded: bool,
        each: Callable[..., Iterable[int]] = map,
    ) -> int:
        """Write results and times; returns how many are not finite. ``each``: as map, which may
        write several at a time."""
        plan, inputs, output, carry = self.plan, self.inputs, self.output, self.carry
        begin, step = self.block.begin, self.block.rows[0]

        def one(result: tuple[str, int, Any]) -> int:
            return self._write_one(*result, bounded)

        bad = sum(each(one, results))
        time = next(v for v in plan.schema.variables if v.name.endswith("time"))
        if plan.prefix:
            times = inputs.row_times(carry)
            output.write(f"{plan.prefix}time", begin, times[[0] * len(inputs.actions)]
                         if len(times) == 1 else times, step)  # fmt: skip
        elif len(time.shape) == 2:
            output.write("time", begin, inputs.row_times(carry), step)
        elif begin == plan.begin:  # times that all share are written with the first
            output.write("time", step, inputs.row_times(carry)[0])
        return bad

    def _write_one(self, name: str, row: int, array: Any, bounded: bool) -> int:
        if name in self.plan.smooth:
            array[...] = smooth(array)
        known = bounded and name in QUANTITIES
        bad = 0 if known else array.size - int(np.isfinite(array).sum())
        if self.views is None or name not in self.views:
            self.output.write(self.plan.prefix + name, row, array, self.block.rows[0])
        return bad


def _located_faults(block: Block, inputs: Inputs, allow_nonfinite: bool) -> list[Fault]:
    """What is wrong with the values of a block, each named where it lies."""
    faults = value_faults(inputs, allow_nonfinite)
    if not faults or block.part.origin is None:
        return faults
    found: list[Fault] = []
    for k in range(len(inputs.actions)):
        where, number = block.part.origin(block.local + k)
        found += value_faults(inputs.only(k, {"actions": where}, number), allow_nonfinite)
    return found or faults


def _results(
    plan: Plan, block: Inputs, begin: int, views: dict[str, Any] | None, carry: Carry
) -> Iterator[tuple[str, int, Any]]:
    """What a block gives: name, first row, values."""
    if plan.gradient is None:
        results = block.compute(plan.choice, plan.dtype, plan.wanted, views, carry)
        yield from ((name, begin, values) for name, values in results.items())
        return
    for name, row, values in plan.gradient.block(
        block, plan.inputs, begin, plan.choice, plan.dtype
    ):
        if name not in QUANTITIES or name in plan.wanted:
            yield name, row, values
