"""Trajectories of a run grouped by length, with the inputs needed to compute each group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from typing import Any

import numpy as np

from trajcli.checks import shape_faults, value_faults
from trajcli.errors import Fault, InputError, raise_if_any
from trajcli.files.arrays import in_memory
from trajcli.files.schema import RECORDED_START
from trajcli.files.time import EAGER_BYTES
from trajcli.files.trajectory_set import TrajectorySet
from trajcli.inputs import Inputs
from trajcli.jobs.commands import Commands
from trajcli.jobs.request import Request
from trajcli.jobs.segments import (
    EqualLength,
    Segment,
    Values,
    by_length,
    first_and_more,
    stacked,
)
from trajcli.jobs.states import StateValues
from trajcli.modes import Mode

_MOST_FAULTS = 5
_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True)
class LeftOut:
    """A trajectory or file that --skip-bad leaves out, and why."""

    name: str
    faults: Sequence[Fault]


@dataclass(frozen=True)
class ResolvedInputs(EqualLength):
    """The trajectories of one length: what they are computed from, actions [n, H, D] among it,
    with names that say where."""

    inputs: Inputs
    commands: Commands

    def read(self, begin: int, end: int) -> Inputs:
        """The inputs of trajectories begin..end, in memory; messages say where they lie."""
        actions = self.inputs.actions.read_rows(begin, end)
        if actions.dtype.kind == "f" and actions.dtype.itemsize > 8:
            actions = actions.astype(np.float64)
        if begin == end:
            return self.inputs.block(actions, begin, end, 0, {})
        segment, number = self.place(begin)
        names = {"actions": segment.source.input.where}
        inputs = self.inputs.block(actions, begin, end, begin - number, names)
        return self.commands.used(replace(inputs, row_numbers=segment.source.row_numbers))

    def value_faults(self, begin: int, inputs: Inputs, allow_nonfinite: bool) -> list[Fault]:
        """What is wrong with the values of trajectories from ``begin`` on, which were read, named
        by the places where they lie."""
        faults, end = value_faults(inputs, allow_nonfinite), begin + len(inputs.actions)
        if not faults or end - begin < 2:
            return faults
        first, last = self.place(begin)[0], self.place(end - 1)[0]
        if first is last and isinstance(first.trajectories, range):
            return faults  # they lie as they are numbered
        single = (one.faults for one in self._bad(begin, end, allow_nonfinite).values())
        return list(islice(chain.from_iterable(single), _MOST_FAULTS)) or faults

    def bad(self, allow_nonfinite: bool) -> dict[int, LeftOut]:
        """The trajectories, by number in the run, whose values cannot be integrated. Reads all."""
        batch, rows, dofs = self.inputs.actions.shape
        size = max(1, _BLOCK_BYTES // (rows * dofs * 8))
        bad: dict[int, LeftOut] = {}
        for begin in range(0, batch, size):
            end = min(begin + size, batch)
            if value_faults(self.read(begin, end), allow_nonfinite):
                bad |= self._bad(begin, end, allow_nonfinite)
        return bad

    def _bad(self, begin: int, end: int, allow_nonfinite: bool) -> dict[int, LeftOut]:
        bad: dict[int, LeftOut] = {}
        for k in range(begin, end):
            faults = value_faults(self.read(k, k + 1), allow_nonfinite)
            if faults:
                segment, number = self.place(k)
                name = f"{segment.source.input.where}, trajectory {number}"
                bad[int(self.numbers[k])] = LeftOut(name, faults)
        return bad


@dataclass(frozen=True)
class Resolved:
    """The trajectories of a run, in the order of its sources.

    mode_source: the file that states the mode, where it is taken from one. start, goal: of all
    trajectories of the run, of which the segments may be a part.
    """

    request: Request
    mode: Mode
    mode_source: str | None
    sets: Sequence[TrajectorySet]
    start: StateValues
    goal: StateValues
    segments: Sequence[Segment]
    commands: Commands
    notes: Sequence[str] = ()
    left_out: Sequence[LeftOut] = ()

    @cached_property
    def count(self) -> int:
        """How many trajectories there are."""
        return sum(len(segment.trajectories) for segment in self.segments)

    @cached_property
    def source_names(self) -> list[str]:
        """Every dataset that actions are read from."""
        return list(dict.fromkeys(segment.source.source for segment in self.segments))

    @cached_property
    def dt_source(self) -> str:
        """Where the times of the rows are from."""
        return first_and_more(self.sources["dt_source"])

    @cached_property
    def start_source(self) -> str:
        """Where the start states are from."""
        return first_and_more(self.sources["start"])

    @cached_property
    def sources(self) -> dict[str, Sequence[str]]:
        """All names that attributes of the output sum up, by attribute."""
        return {
            "source": self.source_names,
            "dt_source": list(dict.fromkeys(segment.time.source for segment in self.segments)),
            "start": [RECORDED_START] if self.request.recorded else self.start.sources,
            **({"goal": self.goal.sources} if self.goal.parts else {}),
        }

    @cached_property
    def longest(self) -> Inputs:
        """The inputs of the longest trajectories."""
        return max((part.inputs for part in self.by_length), key=lambda inputs: inputs.horizon)

    @cached_property
    def dt(self) -> float | str:
        """The step where all trajectories have the same one, else "varies"."""
        steps = [part.inputs.dt for part in self.by_length]
        if any(dt is None or dt.ndim or dt != steps[0] for dt in steps):
            return "varies"
        return float(steps[0])  # type: ignore[arg-type]

    @property
    def times_differ(self) -> bool:
        """Whether trajectories differ in the times of their rows."""
        several = len(self.by_length) > 1 and self.dt == "varies"
        return several or any(part.inputs.steps_differ for part in self.by_length)

    def require_shapes(self) -> None:
        """Raise InputError with all that does not fit by its shape or number, and, but for
        skip_bad, steps that do not go forward."""
        steps, faults = not self.request.skip_bad, list[Fault]()
        for part in self.by_length:
            unfit = shape_faults(part.inputs, steps)
            several = part.segments if unfit and len(part.segments) > 1 else ()
            single = (self._inputs(EqualLength([segment])).inputs for segment in several)
            located = (shape_faults(inputs, steps) for inputs in single)
            faults += list(islice(chain.from_iterable(located), _MOST_FAULTS)) or unfit
        raise_if_any(faults)

    def take(self, wanted: Callable[[Any], Any]) -> Resolved:
        """The same with the trajectories alone whose numbers [n] are wanted, booleans [n]."""
        segments = [one.only(wanted(np.asarray(one.numbers))) for one in self.segments]
        return replace(self, segments=[s for s in segments if len(s.trajectories)] or segments[:1])

    def without_bad_values(self) -> Resolved:
        """The same without trajectories whose values are not finite, or whose steps do not go
        forward; reads all values. Raises InputError where none remain."""
        bad: dict[int, LeftOut] = {}
        for part in self.by_length:
            bad |= part.bad(self.request.allow_nonfinite)
            for segment in part.segments if len(part.segments) > 1 else ():  # in its file's terms
                if not bad.keys().isdisjoint(np.asarray(segment.numbers).tolist()):
                    one = self._inputs(EqualLength([segment]))
                    bad |= one.bad(self.request.allow_nonfinite)
        left_out = [bad[number] for number in sorted(bad)]
        rest = self.take(lambda numbers: ~np.isin(numbers, list(bad)))
        if not rest.count:
            raise InputError(*(fault for one in left_out[:_MOST_FAULTS] for fault in one.faults))
        return replace(rest, left_out=[*self.left_out, *left_out])

    @cached_property
    def by_length(self) -> Sequence[ResolvedInputs]:
        """What the trajectories of each length are computed from.

        Raises InputError where inputs do not fit together.
        """
        return [self._inputs(equal) for equal in by_length(self.segments)]

    def _inputs(self, equal: EqualLength) -> ResolvedInputs:
        segments, numbers, recorded = equal.segments, equal.numbers, self.request.recorded
        first, intervals = segments[0].source, len(segments[0].rows) - recorded
        arrays = [segment.array(segment.source.input) for segment in segments]
        actions = stacked(arrays)
        counts = (intervals, intervals + recorded)
        misfits = [one for one in segments if segments[1:] and not _fits(one, counts)]
        alone = (self._inputs(EqualLength([one])).inputs for one in misfits)
        raise_if_any(fault for one in alone for fault in shape_faults(one, False))
        dt, stamps, where = join_times(segments, counts)
        start, goal = self.start.of(numbers), self.goal.of(numbers)
        named = {"actions": actions.where, "dt": where, "times": where}
        inputs = Inputs(
            mode=self.mode,
            actions=actions,
            start=start.parts,
            goal=goal.parts,
            dt=dt,
            times=stamps,
            start_index=start.index,
            goal_index=goal.index,
            recorded=recorded,
            names={**named, **start.names, **goal.names},
            row_numbers=None if len(segments) > 1 else first.row_numbers,
        )
        return ResolvedInputs(segments, inputs, self.commands)


def join_times(segments: Sequence[Segment], counts: Sequence[int]) -> tuple[Values, Values, str]:
    """dt [], [h], [n, 1] or [n, h] or else stamps [T] or [n, T] of these segments, and their name.

    counts: how many steps there may be, the first of them between the rows.
    """
    first, step, where = segments[0], segments[0].time.uniform, segments[0].time.where
    same = all(s.time is first.time or s.time.uniform == step for s in segments)
    if same and step is not None:
        return *_one_step(first, step, counts), where
    tables = [_steps_or_stamps(segment) for segment in segments]
    stamped = all(of_stamps for _, of_stamps in tables)
    values = tables[0][0]
    one_for_all = values.ndim == 1 and all(one.shape == values.shape for one, _ in tables)
    if len(tables) == 1 or (one_for_all and all(s.time.where == where for s in segments)):
        return (None, values, where) if stamped else (values, None, where)
    rows = [
        np.diff(in_memory(values).astype("f8")) if of_stamps and not stamped else values
        for values, of_stamps in tables
    ]
    widths = {values.shape[-1] for values in rows} - {1}
    if len(widths) > 1:
        raise InputError(
            "inputs with different steps",
            where=where,
            expected="as many in each",
            hint="--dt, --rate or --times for all, or run them one at a time",
        )
    shapes = [(len(segment.trajectories), max(widths, default=1)) for segment in segments]
    joined: Values = stacked([
        values if values.shape == shape else np.broadcast_to(in_memory(values), shape)
        for values, shape in zip(rows, shapes, strict=True)
    ])  # fmt: skip
    joined = joined if joined.nbytes > EAGER_BYTES else joined.read()
    if stamped:
        return None, joined, "time stamps of the inputs"
    return joined, None, "dt of the inputs"


def _one_step(segment: Segment, step: float, counts: Sequence[int]) -> tuple[Values, Values]:
    """dt and no stamps; where it stands for steps or stamps that are too many or too few, these."""
    if _fits(segment, counts):
        return np.asarray(step), None
    steps = np.full(segment.selected_time.shape, step)
    return (None, np.cumsum(steps, -1)) if segment.time.stamped else (steps, None)


def _fits(segment: Segment, counts: Sequence[int]) -> bool:
    """Whether the steps or stamps of a file are so many as its trajectories need."""
    shape, stamped = segment.selected_time.shape, segment.time.stamped
    whole = shape and shape[-1] != 1
    return not whole or (shape[-1] - 1 == counts[0] if stamped else shape[-1] in counts)


def _steps_or_stamps(segment: Segment) -> tuple[Values, bool]:
    """Steps or stamps of a segment, [h] or [1 or n, h], and whether they are stamps."""
    if segment.time.uniform is not None:
        return np.full((1, 1), segment.time.uniform), False
    time = segment.selected_time
    return (time.dt, False) if time.stamps is None else (time.stamps, True)
