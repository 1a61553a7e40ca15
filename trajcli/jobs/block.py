"""One block of a run: read it, check its values, compute them, write what comes out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError, OutputError, raise_if_any
from trajcli.files.outputs import Output
from trajcli.files.refusals import os_fault
from trajcli.files.schema import QUANTITIES
from trajcli.inputs import Inputs
from trajcli.jobs.plan import BlockRange, Plan
from trajcli.modes import PARTS

Results = Iterable[tuple[str, Any]]
"""Names and values."""


@dataclass(frozen=True)
class Block:
    """Trajectories that are computed at once: their inputs, and where the results go."""

    plan: Plan
    output: Output
    at: BlockRange
    inputs: Inputs

    @staticmethod
    def read(plan: Plan, output: Output, at: BlockRange) -> Block:
        """The block with its actions, and all that lies in files, in memory."""
        return Block(plan, output, at, plan.resolved.by_length[at.group].read(at.begin, at.end))

    def run(self) -> int:
        """Compute and write it; how many results are not finite."""
        if self.plan.choice.backend == "native" and self.plan.gradient is None:
            return self._run_native()
        self.check()
        return self.write(self._results())

    def check(self) -> None:
        """Raise InputError for values that are wrong."""
        self._check(self.plan.request.allow_nonfinite)

    def _check(self, allow_nonfinite: bool) -> None:
        part = self.plan.resolved.by_length[self.at.group]
        raise_if_any(part.value_faults(self.at.begin, self.inputs, allow_nonfinite))

    def _run_native(self) -> int:
        """The compiled kernels write into the file themselves, where rows have a place in it; and
        they see what is not finite as they read it, so that it is looked for only then."""
        from trajcli.kernels.native import Forward, InFile

        plan, inputs, at = self.plan, self.inputs, self.at
        self._check(allow_nonfinite=True)
        shape = (len(inputs.actions), inputs.rows, inputs.actions.shape[2])
        out: list[Any] = [None] * len(PARTS)
        arrays: dict[str, Any] = {}
        for name in plan.quantities if shape[0] else ():
            place = self.output.place(name, at.begin, at.group)
            if place is None:
                arrays[name] = np.empty(shape, plan.dtype)
            out[PARTS.index(name)] = arrays[name] if place is None else InFile(*place, plan.dtype)
        operands = inputs.operands()  # which has to live as long as the kernel runs
        kernel = Forward(inputs.program(), operands, out, not plan.request.allow_nonfinite)
        try:
            finite = kernel.run()
        except OSError as error:
            raise OutputError(os_fault(self.output.path, error)) from None
        if not finite:
            self._check(allow_nonfinite=False)
            raise InputError(Fault("not finite when it was computed", inputs.name("actions")))
        return kernel.faults + self.write(arrays.items())

    def write(self, results: Results) -> int:
        """Write results and times; returns how many are not finite."""
        bad, at, inputs = 0, self.at, self.inputs
        for name, array in results:
            bad += array.size - int(np.isfinite(array).sum())
            self.output.write(name, at.begin, array, at.group)
        self.output.write_time(at.begin, len(inputs.actions), inputs.row_times(), at.group)
        return bad

    def _results(self) -> Results:
        plan, inputs = self.plan, self.inputs
        if plan.gradient is None:
            return inputs.compute(plan.choice, plan.dtype, plan.quantities).items()
        numbers = plan.resolved.by_length[self.at.group].numbers[self.at.begin : self.at.end]
        pulled = plan.gradient.block(inputs, numbers, plan.choice, plan.dtype)
        unwritten = set(QUANTITIES) - set(plan.quantities)
        return ((name, values) for name, values in pulled if name not in unwritten)
