"""One block of a run: read it, check its values, compute them, write what comes out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from trajcli.arrays import cast, to_numpy, to_torch
from trajcli.errors import Fault, InputError, OutputError, raise_if_any
from trajcli.files.outputs import Output
from trajcli.files.refusals import os_fault
from trajcli.files.schema import QUANTITIES
from trajcli.inputs import Inputs
from trajcli.jobs.plan import BlockRange, Plan
from trajcli.modes import PARTS

Results = Iterable[tuple[str, Any]]
"""Names and values."""

_SAMPLES = 1 << 16
"""Of each quantity at once; more would leave the processor's caches."""
_DEVICE_SAMPLES = 1 << 21
"""The same on a device, which fewer would leave idle."""


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
        sampled = self.plan.output_times is not None
        if self.plan.choice.backend == "native" and self.plan.gradient is None and not sampled:
            return self._run_native()
        self.check()
        if sampled:
            return self._run_sampled()
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
        commands = plan.resolved.commands
        self._check(allow_nonfinite=True)
        shape = (len(inputs.actions), inputs.rows, inputs.actions.shape[2])
        out: list[Any] = [None] * len(PARTS)
        arrays: dict[str, Any] = {}
        for name in plan.quantities if shape[0] else ():
            mixed = commands.as_position  # with rows of another mode
            place = None if mixed else self.output.place(name, at.begin, at.group)
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
        bad, at, inputs, plan = 0, self.at, self.inputs, self.plan
        commands = plan.resolved.commands
        positions = commands.positions(inputs, plan.choice, plan.dtype)
        for name, array in results:
            commands.put({name: array}, positions)
            bad += array.size - int(np.isfinite(array).sum())
            self.output.write(name, at.begin, array, at.group)
        self.output.write_time(at.begin, len(inputs.actions), self._times, at.group)
        return bad

    @cached_property
    def _times(self) -> Any:
        """The times of the rows that are written, [1 or b, T]."""
        times, at, knots = self.plan.output_times, self.at, self.inputs.row_times()
        if times is None:
            return knots
        part = self.plan.resolved.by_length[at.group]
        return times.of(part.numbers[at.begin : at.end], part.output_rows, knots)

    def _run_sampled(self) -> int:
        """Compute the rows at other times than those of the mode, so many at once; those of a
        single trajectory go to their place in the file as they come."""
        plan, at, bad = self.plan, self.at, 0
        shape = (len(self.inputs.actions), self._times.shape[1], self.inputs.actions.shape[2])
        places = [self.output.place(name, at.begin, at.group) for name in plan.quantities]
        alone = shape[0] == 1 and None not in places
        arrays = {} if alone else {name: np.empty(shape, plan.dtype) for name in plan.quantities}
        for first, samples in self._samples() if shape[0] else ():
            for name, values in samples.items():
                if alone:
                    bad += values.size - int(np.isfinite(values).sum())
                    self.output.write_rows(name, at.begin, first, values[0], at.group)
                else:
                    arrays[name][:, first : first + values.shape[1]] = values
        return bad + self.write(arrays.items())

    def _samples(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The first of some rows, and the quantities that are written of them."""
        from trajcli.sampling import polynomial_order, sample
        from trajcli.trajectory import Trajectory

        plan, inputs, mode = self.plan, self.inputs, self.plan.resolved.mode
        options, knots = mode.options(inputs.recorded), inputs.row_times()
        order = min(polynomial_order(mode.name, options, "--to"), len(PARTS) - 2)
        lowest = min(order, PARTS.index(plan.quantities[0]))  # what others are computed from
        rows = inputs.compute_there(plan.choice, "float64", PARTS[lowest:])
        p, v, a, j = (rows.get(name) for name in PARTS)
        there = knots if plan.choice.backend == "native" else to_torch(knots, plan.choice.device)
        whole = Trajectory(p, v, a, j, there, mode.name, options)
        times = np.minimum(self._times, knots[:, -1:])  # the last, but for rounding
        most = _SAMPLES if plan.choice.device == "cpu" else _DEVICE_SAMPLES
        size = max(1, most // (len(inputs.actions) * inputs.actions.shape[2]))
        for first in range(0, times.shape[1], size):
            with np.errstate(over="ignore", invalid="ignore"):
                samples = sample(whole, times[:, first : first + size]).outputs()
                yield first, {n: to_numpy(cast(samples[n], plan.dtype)) for n in plan.quantities}

    def _results(self) -> Results:
        plan, inputs = self.plan, self.inputs
        if plan.gradient is None:
            return inputs.compute(plan.choice, plan.dtype, plan.quantities).items()
        numbers = plan.resolved.by_length[self.at.group].numbers[self.at.begin : self.at.end]
        pulled = plan.gradient.block(
            inputs, plan.resolved.commands, numbers, plan.choice, plan.dtype
        )
        unwritten = set(QUANTITIES) - set(plan.quantities)
        return ((name, values) for name, values in pulled if name not in unwritten)
