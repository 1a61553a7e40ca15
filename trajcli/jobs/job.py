"""One block of a run: check its values, compute them, write what comes out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from trajcli.checks import largest
from trajcli.errors import Fault, InputError, OutputError, raise_if_any
from trajcli.files.placing import os_fault
from trajcli.files.schema import QUANTITIES
from trajcli.files.sink import Sink
from trajcli.input_checks import value_faults
from trajcli.inputs import Inputs
from trajcli.jobs.batch import Block
from trajcli.jobs.plan import Plan
from trajcli.modes import PARTS
from trajcli.recordings import smooth

Results = Iterable[tuple[str, int, Any]]
"""Name, first trajectory, values."""


class Job(NamedTuple):
    """Its input, where it goes, and the steps in which that is done."""

    plan: Plan
    output: Sink
    block: Block
    inputs: Inputs
    allow_nonfinite: bool

    def run(self) -> int:
        """All of it, where the plan says; how many results are not finite."""
        if self.plan.choice.backend == "native" and self.plan.gradient is None:
            return self._run_native()
        self.check()
        return self.write(self._results())

    def check(self) -> None:
        """Raise InputError for values that are wrong."""
        self._check(self.allow_nonfinite)

    def _check(self, allow_nonfinite: bool) -> None:
        plan, inputs = self.plan, self.inputs
        raise_if_any(_located_faults(self.block, inputs, allow_nonfinite))
        if plan.better is not None and inputs.actions.size:
            plan.peak.value = max(plan.peak.value or 0.0, largest(inputs.actions))

    def _run_native(self) -> int:
        """The compiled kernels write into the file themselves, where rows have a place in it; and
        they see what is not finite as they read it, so that it is looked for only then."""
        from trajcli.kernels.native import Forward, InFile

        plan, inputs, begin = self.plan, self.inputs, self.block.begin
        self._check(allow_nonfinite=True)
        shape = (len(inputs.actions), inputs.rows, inputs.actions.shape[2])
        out: list[Any] = [None] * len(PARTS)
        arrays: dict[str, Any] = {}
        for name in plan.wanted:
            smoothed = name in plan.smooth
            place = None if smoothed else self.output.place(plan.prefix + name, begin)
            if place is None:
                arrays[name] = np.empty(shape, plan.dtype)
            out[PARTS.index(name)] = arrays[name] if place is None else InFile(*place, plan.dtype)
        operands = inputs.operands()  # which has to live as long as the kernel runs
        kernel = Forward(inputs.program(), operands, out, not self.allow_nonfinite)
        try:
            finite = kernel.run()
        except OSError as error:
            raise OutputError(os_fault(self.output.path, error)) from None
        if not finite:
            self._check(allow_nonfinite=False)
            raise InputError(Fault("not finite when it was computed", inputs.name("actions")))
        return kernel.faults + self.write((n, begin, values) for n, values in arrays.items())

    def write(self, results: Results) -> int:
        """Write results and times; returns how many are not finite."""
        plan, inputs, output, begin = self.plan, self.inputs, self.output, self.block.begin
        bad = 0
        for name, row, array in results:
            if name in plan.smooth:
                array[...] = smooth(array)
            bad += array.size - int(np.isfinite(array).sum())
            output.write(plan.prefix + name, row, array)
        time = next(v for v in plan.schema.variables if v.name.endswith("time"))
        if plan.prefix:
            times = inputs.row_times()
            times = np.broadcast_to(times, (len(inputs.actions), times.shape[1]))
            output.write(f"{plan.prefix}time", begin, times)
        elif len(time.shape) == 2:
            output.write("time", begin, inputs.row_times())
        elif begin == plan.begin:  # times that all share are written with the first
            output.write("time", 0, inputs.row_times()[0])
        return bad

    def _results(self) -> Iterator[tuple[str, int, Any]]:
        plan, inputs, begin = self.plan, self.inputs, self.block.begin
        if plan.gradient is None:
            results = inputs.compute(plan.choice, plan.dtype, plan.wanted)
            yield from ((name, begin, values) for name, values in results.items())
            return
        found = plan.gradient.block(inputs, plan.inputs, begin, plan.choice, plan.dtype)
        for name, row, values in found:
            if name not in QUANTITIES or name in plan.wanted:
                yield name, row, values


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
