"""The trajectories of a run, and of each length all that they are computed from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError, raise_if_any
from trajcli.files.arrays import Dataset
from trajcli.files.schema import RECORDED_START
from trajcli.files.time import EAGER_BYTES, Time
from trajcli.files.trajectory_set import TrajectorySet
from trajcli.input_checks import shape_faults, value_faults
from trajcli.inputs import Inputs
from trajcli.jobs.request import Request
from trajcli.jobs.row_selection import Segment, Values, in_memory, pick_dofs, stacked, unwrapped
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
class ResolvedInputs:
    """The trajectories of one length: what they are computed from, actions [n, H, D] among it,
    with names that say where; ``numbers`` [n] are theirs in the run."""

    segments: Sequence[Segment]
    inputs: Inputs
    numbers: Any

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(len(segment.trajectories) for segment in self.segments))

    def place(self, k: int) -> tuple[str, int, Any]:
        """Where the actions of the k-th trajectory lie: dataset, number in it, and row numbers
        (None: from 0 on)."""
        at = bisect_right(self._ends, k)
        segment = self.segments[at]
        rows, local = segment.rows, k - self._ends[at] + len(segment.trajectories)
        plain = isinstance(rows, range) and rows.start == 0
        where = segment.source.input.where
        return where, int(segment.trajectories[local]), None if plain else np.asarray(rows)

    def read(self, begin: int, end: int) -> Inputs:
        """The inputs of trajectories begin..end, in memory; messages say where they lie."""
        actions = self.inputs.actions.read_rows(begin, end)
        if actions.dtype.kind == "f" and actions.dtype.itemsize > 8:
            actions = actions.astype(np.float64)
        if begin == end:
            return self.inputs.block(actions, begin, end, 0, {})
        where, number, rows = self.place(begin)
        inputs = self.inputs.block(actions, begin, end, begin - number, {"actions": where})
        return replace(inputs, row_numbers=rows)

    def value_faults(self, begin: int, inputs: Inputs, allow_nonfinite: bool) -> list[Fault]:
        """What is wrong with the values of trajectories from ``begin`` on, which were read, named
        by the places where they lie."""
        faults, count = value_faults(inputs, allow_nonfinite), len(inputs.actions)
        if not faults or not count:
            return faults
        at = bisect_right(self._ends, begin)
        if begin + count <= self._ends[at] and isinstance(self.segments[at].trajectories, range):
            return faults  # they lie as they are numbered
        located: list[Fault] = []
        for k in range(count):
            where, number, rows = self.place(begin + k)
            one = replace(inputs.only(k, {"actions": where}, number), row_numbers=rows)
            located += value_faults(one, allow_nonfinite)
            if len(located) >= _MOST_FAULTS:
                break
        return located or faults

    def bad(self, allow_nonfinite: bool) -> dict[int, LeftOut]:
        """The trajectories, by number in the run, whose values cannot be integrated. Reads all."""
        batch, rows, dofs = self.inputs.actions.shape
        size = max(1, _BLOCK_BYTES // (rows * dofs * 8))
        bad: dict[int, LeftOut] = {}
        for begin in range(0, batch, size):
            end = min(begin + size, batch)
            whole = value_faults(self.read(begin, end), allow_nonfinite)
            for k in range(begin, end) if whole else ():
                faults = self.value_faults(k, self.read(k, k + 1), allow_nonfinite)
                if faults:
                    where, number, _ = self.place(k)
                    bad[int(self.numbers[k])] = LeftOut(f"{where}, trajectory {number}", faults)
        return bad


@dataclass(frozen=True)
class Resolved:
    """The trajectories of a run, in the order of its sources.

    mode_source: the file that states the mode, where it is taken from one. times, dofs: of each
    set, its times and the dofs that are picked (None: all). start, goal: of all trajectories of
    the run, of which the segments may be a part; ``run_count`` of them.
    """

    request: Request
    mode: Mode
    mode_source: str | None
    sets: Sequence[TrajectorySet]
    times: Sequence[Time]
    dofs: Sequence[Sequence[int] | None]
    start: StateValues
    goal: StateValues
    segments: Sequence[Segment]
    run_count: int
    joint_names: Sequence[str] | None
    notes: Sequence[str] = ()
    left_out: Sequence[LeftOut] = ()

    @cached_property
    def count(self) -> int:
        """How many trajectories there are."""
        return sum(len(segment.trajectories) for segment in self.segments)

    @cached_property
    def source_names(self) -> list[str]:
        """Every dataset that actions are read from."""
        return list(dict.fromkeys(one.input.where for one in self.sets))

    @cached_property
    def dt_source(self) -> str:
        """Where the times of the rows are from."""
        first, *more = dict.fromkeys(time.source for time in self.times)
        return f"{first} and {len(more)} more" if more else first

    @property
    def start_source(self) -> str:
        """Where the start states are from."""
        return RECORDED_START if self.request.recorded else self.start.source

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
    def has_own_times(self) -> bool:
        """Whether trajectories differ in the times of their rows."""
        for part in self.by_length:
            steps: Any = part.inputs.dt if part.inputs.times is None else part.inputs.times
            if steps.ndim == 2 and steps.shape[0] != 1:
                return True
        return len(self.by_length) > 1 and self.dt == "varies"

    def require_shapes(self) -> None:
        """Raise InputError with all that does not fit by its shape or number, and, but for
        skip_bad, steps that do not go forward."""
        steps, faults = not self.request.skip_bad, list[Fault]()
        for part in self.by_length:
            found, located = shape_faults(part.inputs, steps), list[Fault]()
            for segment in part.segments if found and len(part.segments) > 1 else ():
                located += shape_faults(self._inputs([segment]).inputs, steps)
                if len(located) >= _MOST_FAULTS:
                    break
            faults += located or found
        raise_if_any(faults)

    def take(self, wanted: Callable[[Any], Any]) -> Resolved:
        """The same with the trajectories alone whose numbers [n] are wanted, booleans [n]."""
        parts = [segment.chosen(wanted(np.asarray(segment.numbers))) for segment in self.segments]
        segments = [part for part in parts if len(part.trajectories)]
        return replace(self, segments=segments or parts[:1])

    def without_bad_values(self) -> Resolved:
        """The same without trajectories whose values are not finite, or whose steps do not go
        forward; reads all values. Raises InputError where none remain."""
        bad: dict[int, LeftOut] = {}
        for part in self.by_length:
            found = part.bad(self.request.allow_nonfinite)
            for segment in part.segments if found and len(part.segments) > 1 else ():
                if not found.keys().isdisjoint(np.asarray(segment.numbers).tolist()):
                    found |= self._inputs([segment]).bad(self.request.allow_nonfinite)
            bad |= found
        if not bad:
            return self
        rest = self.take(lambda numbers: ~np.isin(numbers, list(bad)))
        if not rest.count:
            raise InputError(
                *(fault for k in sorted(bad)[:_MOST_FAULTS] for fault in bad[k].faults)
            )
        return replace(rest, left_out=[*self.left_out, *(bad[number] for number in sorted(bad))])

    @cached_property
    def by_length(self) -> Sequence[ResolvedInputs]:
        """What the trajectories of each length are computed from.

        Raises InputError where inputs do not fit together.
        """
        lengths: dict[int, list[Segment]] = {}
        for segment in self.segments:
            lengths.setdefault(len(segment.rows), []).append(segment)
        return [self._inputs(segments) for segments in lengths.values()]

    def _inputs(self, segments: Sequence[Segment]) -> ResolvedInputs:
        rows, recorded = segments[0].rows, self.request.recorded
        intervals = self.mode.intervals(len(rows), recorded)
        numbers = np.concatenate([np.asarray(s.numbers, np.int64) for s in segments])
        actions = stacked([self._actions(segment) for segment in segments])
        times = [self.times[segment.set_number] for segment in segments]
        dt, stamps, where = join_times(segments, times, (intervals, intervals + recorded))
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
            row_numbers=None if len(segments) > 1 or isinstance(rows, range) else rows,
        )
        return ResolvedInputs(segments, inputs, numbers)

    def _actions(self, segment: Segment) -> Dataset:
        array = segment.source.input
        if not segment.whole:
            array = array.select(segment.trajectories, segment.rows)
        dofs = self.dofs[segment.set_number]
        if dofs is not None:
            array = pick_dofs(array, dofs)
        return unwrapped(array, self.request.wrap_dofs) if self.request.wrap_dofs else array


def join_times(
    segments: Sequence[Segment], times: Sequence[Time], counts: Sequence[int]
) -> tuple[Values, Values, str]:
    """dt [], [h], [n, 1] or [n, h] or else stamps [T] or [n, T] of these segments, and their name.

    counts: how many steps there may be.
    """
    first, where = times[0], times[0].where
    same = all(time is first or time.uniform == first.uniform for time in times)
    if segments[0].stamps is None and same and first.uniform is not None:
        return *_one_step(first, segments[0], counts), where
    pairs = zip(times, segments, strict=True)
    tables = [_steps_or_stamps(time, segment) for time, segment in pairs]
    stamped = all(of_stamps for _, of_stamps in tables)
    if len(tables) == 1:
        return (None, tables[0][0], where) if stamped else (tables[0][0], None, where)
    rows = []
    for (values, of_stamps), segment in zip(tables, segments, strict=True):
        if of_stamps and not stamped:
            values = np.diff(in_memory(values).astype("f8"))
        rows.append((values, len(segment.trajectories)))
    widths = {values.shape[-1] for values, _ in rows} - {1}
    if len(widths) > 1:
        hint = "--dt, --rate or --times for all, or run them one at a time"
        raise InputError(Fault("inputs with different steps", where, "as many in each", hint=hint))
    width = max(widths, default=1)
    joined: Values = stacked([
        values if values.shape == (n, width) else np.broadcast_to(in_memory(values), (n, width))
        for values, n in rows
    ])  # fmt: skip
    joined = joined if joined.nbytes > EAGER_BYTES else joined.read()
    if stamped:
        return None, joined, "time stamps of the inputs"
    return joined, None, "dt of the inputs"


def _one_step(time: Time, segment: Segment, counts: Sequence[int]) -> tuple[Values, Values]:
    """dt and no stamps; where it stands for steps or stamps that are too many or too few, these."""
    assert time.uniform is not None
    shape = time.select(segment.trajectories, len(segment.rows)).shape
    if not shape or shape[-1] == 1 or shape[-1] - time.stamped in counts:
        return np.asarray(time.uniform), None
    if time.stamped:
        return None, np.broadcast_to(time.uniform * np.arange(shape[-1]), shape)
    return np.full(shape, time.uniform), None


def _steps_or_stamps(time: Time, segment: Segment) -> tuple[Values, bool]:
    """Steps or stamps of a segment, [h] or [1 or n, h], and whether they are stamps."""
    if segment.stamps is not None:
        return segment.stamps[None], True
    if time.uniform is not None:
        return np.full((1, 1), time.uniform), False
    if not segment.whole:
        time = time.select(segment.trajectories, len(segment.rows))
    return (time.dt, False) if time.stamps is None else (time.stamps, True)
