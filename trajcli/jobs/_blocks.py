"""The inputs of trajectories of one length, read block by block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, TypeAlias

import numpy as np

from trajcli.commands import Commands
from trajcli.errors import Fault, InputError, raise_if_any
from trajcli.files.catalogue import Values
from trajcli.files.recording import Recording
from trajcli.inputs import Inputs, shape_faults, value_faults
from trajcli.modes import Mode

MOST_FAULTS = 5
"""The number of faults that one error names: more are as a rule of the same kind."""
LeftOut: TypeAlias = tuple[str, Sequence[Fault]]
"""The name of a trajectory or file that --skip-bad leaves out, and its faults."""


@dataclass(frozen=True)
class Batch:
    """Trajectories of one length, and the inputs that they are computed from."""

    recording: Recording
    inputs: Inputs  # large arrays lie in the files
    commands: Commands

    def shape_faults(self, steps: bool) -> list[Fault]:
        """Finds the faults of shapes and numbers and, with ``steps``, of steps that are not
        positive; of several files, each with the file it is in."""
        faults = shape_faults(self.inputs, steps)
        mode, recorded = self.inputs.mode, self.inputs.recorded
        parts = self.recording.split_by_group() if faults and self.recording.parts else ()
        located = (shape_faults(make_inputs(part, mode, recorded), steps) for part, _ in parts)
        return list(islice(chain.from_iterable(located), MOST_FAULTS)) or faults

    def read_inputs(self, begin: int, end: int) -> Inputs:
        """Reads the inputs of trajectories begin to end into memory, named by their places."""
        stored: Any = self.inputs.actions
        actions = stored.read_rows(begin, end)
        if actions.dtype.kind == "f" and actions.dtype.itemsize > 8:  # no kernel reads long doubles
            actions = actions.astype(np.float64)
        if begin == end:
            return self.inputs.block(actions, begin, end, 0, {})
        (where, number), clock = self.recording.locate(begin), self.recording.part(begin).clock
        names = {"actions": str(where)}
        if clock is not None:
            names |= dict.fromkeys(("dt", "times"), str(clock.where))
        inputs = self.inputs.block(actions, begin, end, begin - number, names)
        # faults count rows as the file does, also behind rows that were left out
        rows: Any = (self.inputs if self.inputs.rates else self.recording.part(begin)).row_numbers
        return self.commands.mode_inputs(replace(inputs, row_numbers=rows))

    def check_values(self, begin: int, inputs: Inputs) -> None:
        """Raises InputError for the values of a block that begins at trajectory ``begin``."""
        faults, end = value_faults(inputs, inputs.allow_nonfinite), begin + len(inputs.actions)
        parts = self.recording.part_indices[begin:end]
        if faults and (
            (parts != parts[:1]).any()
            or self.recording.part(begin).file.members
            or (np.diff(self.recording.group_indices[begin:end]) != 1).any()
            or self.recording.part(begin).row_numbers is not None
        ):
            # numbers in the block and in the files differ by more than a constant: one trajectory
            # after the other, so that faults name its place in its file
            single = (self.read_inputs(k, k + 1) for k in range(begin, end))
            located = (value_faults(x, inputs.allow_nonfinite) for x in single)
            faults = list(islice(chain.from_iterable(located), MOST_FAULTS)) or faults
        raise_if_any(faults)


def has_recorded_rates(recording: Recording, mode: Mode) -> bool:
    """Tells rates that were recorded with a time stamp each from actions of one step each."""
    clock, rows = recording.clock, recording.as_stored.shape[1]  # padding included
    stamped = clock is not None and clock.per_row and rows > 1
    return stamped and mode.action_order > 0


def make_inputs(recording: Recording, mode: Mode, recorded: bool) -> Inputs:
    """Makes the inputs of trajectories of one length; actions stay in the files."""
    rates = mode.is_linear and not recorded and has_recorded_rates(recording, mode)
    clock = recording.clock
    assert clock is not None  # it was required when the recordings were read
    # T recorded rows, the first at time 0, have T - 1 steps between them; T actions take T steps. A
    # recording may state T steps, of which the last leads nowhere
    intervals = recording.rows - (recorded or rates)
    if clock.contradiction is not None:
        for part, _ in recording.split_by_group():
            if part.clock is not None and part.clock.contradiction is None:
                raise_if_any(shape_faults(make_inputs(part, mode, recorded), False))
        raise InputError(clock.contradiction)

    # Either dt or times is set. dt is [] (one step for all), [h], [n, 1] or [n, h]; times, the
    # stamps, are [T] or [n, T].
    dt: Values | None = None if clock.stamped else clock.values
    times: Values | None = clock.values if clock.stamped else None
    if clock.step is not None:
        count = clock.shape[-1] if clock.shape else 1
        counts = (intervals + 1,) if clock.stamped else (intervals, intervals + recorded)
        if count in (1, *counts):
            dt, times = np.asarray(clock.step), None
        else:
            # equal steps were read as one, but their number is wrong: shape_faults shall see it
            steps = np.full(clock.shape, clock.step)
            dt, times = (None, np.cumsum(steps, -1)) if clock.stamped else (steps, None)

    start, goal, actions = recording.start, recording.goal, recording.input
    names = {"actions": str(actions.where), "dt": str(clock.where), "times": str(clock.where)}
    names = {**names, **start.names, **goal.names}
    # Inputs are typed as what kernels get; here large arrays lie in the files
    make: Callable[..., Inputs] = Inputs
    inputs = make(
        mode=mode,
        actions=actions,
        start=start.parts,
        goal=goal.parts,
        dt=dt,
        times=times,
        start_index=start.index,
        goal_index=goal.index,
        recorded=recorded,
        names=names,
        row_numbers=recording.row_numbers,
    )
    batch, rows, dofs = actions.shape
    if not rates or not batch:
        return inputs
    # the first recorded rate is part of the start state, the others are the actions
    numbers = np.arange(batch)
    head = actions.select(numbers, range(1))
    first: Any = replace(
        head, shape=(batch, dofs), reader=lambda *part: head.read_rows(*part)[:, 0]
    )
    rest: Any = actions.select(numbers, range(1, rows))
    return inputs.start_from_rates(rest, first)
