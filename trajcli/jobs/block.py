"""One block of a run: how large it is; read it, check its values, compute them, write them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from trajcli.errors import InputError, OutputError, raise_if_any
from trajcli.files.outputs import Output
from trajcli.files.refusals import os_fault
from trajcli.inputs import Inputs
from trajcli.jobs.resolve import LengthInputs
from trajcli.jobs.rotation_block import write_rotations
from trajcli.kernels.choose import Choice
from trajcli.kernels.cuda import free_bytes
from trajcli.modes import PARTS
from trajcli.modes.smooth import Smooth

if TYPE_CHECKING:
    from trajcli.jobs.plan import Plan

Results = Iterable[tuple[str, Any]]
"""Names and values."""

_BYTES_PER_ELEMENT = {"native": 64, "torch": 512, "triton": 64, "torch on a device": 512}
"""Working memory for each action: a block in, four out; torch keeps some 60 float64 on the way.
A device has as much of its own."""
_BLOCK_ELEMENTS = {
    "native": 1 << 20, "torch": 1 << 17, "triton": 1 << 23, "torch on a device": 1 << 22
}  # fmt: skip
"""More gains nothing, or leaves the processor's caches and runs slower."""
_SHARE_OF_FREE = 0.8
"""Of a device's free memory, what blocks are to take."""
_BYTES_PER_STEP = 64
"""For each row of trajectories with steps of their own: the step and the sum that is its time."""


def working_memory(choice: Choice, gradient: bool, memory: int) -> tuple[str, int]:
    """What a block's memory is counted for, and how much there is: on a device no more than most
    of what is free there."""
    kind = "torch" if gradient else choice.backend
    if choice.device == "cpu":
        return ("torch" if kind == "triton" else kind), memory
    kind = "torch on a device" if kind == "torch" else kind
    return kind, min(memory, int(_SHARE_OF_FREE * free_bytes(choice.device)))


def block_size(part: LengthInputs, kind: str, memory: int) -> int:
    """How many trajectories are computed at once."""
    room = min(_BLOCK_ELEMENTS[kind] * _BYTES_PER_ELEMENT[kind], memory)
    return int(max(1, min(room // working_bytes(part, kind), len(part.trajectories))))


def working_bytes(part: LengthInputs, kind: str) -> int:
    """Working memory for the rows of the mode of one trajectory."""
    inputs = part.inputs
    _, horizon, dofs = inputs.actions.shape
    steps_differ = inputs.uneven and inputs.steps_differ
    per_row = dofs * _BYTES_PER_ELEMENT[kind] + (_BYTES_PER_STEP if steps_differ else 0)
    return int(max(horizon, inputs.rows) * per_row)


@dataclass(frozen=True)
class Block:
    """Trajectories begin..end of one length, which are computed at once, and where they go.

    ``done``: how many trajectories of the run are done when this block is.
    """

    plan: Plan
    output: Output
    group: int
    begin: int
    end: int
    done: int

    @cached_property
    def part(self) -> LengthInputs:
        """All trajectories of this length."""
        return self.plan.resolved.by_length[self.group]

    @cached_property
    def inputs(self) -> Inputs:
        """What they are computed from, read when it is first needed."""
        inputs = self.part.read(self.begin, self.end)
        inputs = replace(inputs, trusted=self.plan.resolved.request.allow_nonfinite)
        return inputs.chosen(self.plan.choice)

    def check(self, finite: bool = True) -> None:
        """Raise InputError for values that are wrong; finite: also for those that are not finite,
        unless they are allowed."""
        allow_nonfinite = not finite or self.plan.resolved.request.allow_nonfinite
        raise_if_any(self.part.value_faults(self.begin, self.inputs, allow_nonfinite))

    def run(self) -> int:
        """Compute and write it; how many results are not finite."""
        if self.plan.resolved.rotations:
            self.check()
            return write_rotations(self)
        if self.plan.choice.backend == "native" and self.plan.gradient is None:
            return self._run_native()
        self.check()
        return self.write(self._results())

    def _run_native(self) -> int:
        """The compiled kernels write into the file themselves, where rows have a place in it; and
        they see what is not finite as they read it, so that it is looked for only then."""
        from trajcli.kernels.native import Forward, InFile

        plan, inputs = self.plan, self.inputs
        self.check(finite=False)
        shape = (len(inputs.actions), inputs.rows, inputs.actions.shape[2])
        out: list[Any] = [None] * len(PARTS)
        arrays: dict[str, Any] = {}
        for name in plan.quantities if shape[0] else ():
            mixed = plan.resolved.commands.apart(inputs)  # with rows of another mode
            place = None if mixed else self.output.place(name, self.begin, self.group)
            if place is None:
                arrays[name] = np.empty(shape, plan.dtype)
            out[PARTS.index(name)] = arrays[name] if place is None else InFile(*place, plan.dtype)
        operands = inputs.operands()  # which has to live as long as the kernel runs
        kernel = Forward(inputs.program(), operands, out, not plan.resolved.request.allow_nonfinite)
        try:
            finite = kernel.run()
        except OSError as error:
            raise OutputError(os_fault(self.output.path, error)) from None
        if not finite:
            self.check()
            raise InputError("not finite when it was computed", where=inputs.name("actions"))
        return kernel.faults + self.write(arrays.items())

    def write(self, results: Results) -> int:
        """Write results and times; returns how many are not finite."""
        bad, inputs, plan = 0, self.inputs, self.plan
        commands = plan.resolved.commands
        positions = commands.positions(inputs, plan.choice, plan.dtype)
        for name, array in results:
            commands.put({name: array}, positions)
            bad += array.size - int(np.isfinite(array).sum())
            self.output.write(name, self.begin, array, self.group)
        if isinstance(inputs.mode, Smooth):
            for name in ("bandlimit", "residual", "reweighted"):
                if (values := getattr(inputs.mode, name)) is not None:
                    self.output.write(name, self.begin, values, self.group)
        times = inputs.row_times()
        self.output.write_time(self.begin, len(inputs.actions), times, self.group)
        return bad

    def _results(self) -> Results:
        plan = self.plan
        if plan.gradient is None:
            return self.inputs.compute(plan.choice, plan.dtype, plan.quantities).items()
        of = (
            self.inputs,
            plan.resolved.commands,
            self.part.trajectories.numbers[self.begin : self.end],
        )
        pulled = plan.gradient.block(*of, plan.choice, plan.dtype)
        unwritten = set(PARTS) - set(plan.quantities)
        return ((name, values) for name, values in pulled if name not in unwritten)
