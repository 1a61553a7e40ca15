"""Blocks of rows, as arrays [b, T, D]: trajectories of one length, and their times."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trajcli.checks import nonfinite_fault
from trajcli.errors import InputError
from trajcli.files.arrays import Dataset
from trajcli.jobs.segments import EqualLength, Segment, stacked
from trajcli.resampling import rounding_of

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Part(EqualLength):
    """The trajectories of one length, T."""

    @cached_property
    def length(self) -> int:
        """T."""
        return len(self.segments[0].rows)

    @cached_property
    def step(self) -> float | None:
        """The step between rows where all have the same one."""
        steps = {segment.time.uniform for segment in self.segments}
        return steps.pop() if len(steps) == 1 else None

    @cached_property
    def spans_steps(self) -> bool:
        """Whether times say where the step of each action begins and ends."""
        return all(
            one.source.of_actions
            and one.time.fitted(one.source.shape[0], one.source.shape[1] + 1).fits
            for one in self.segments
        )

    @cached_property
    def rounding(self) -> float:
        """How far time stamps may be off because of their type."""
        stamps = (segment.time.stamps for segment in self.segments)
        lines = (s.read_rows(0, 1) if isinstance(s, Dataset) else s for s in stamps)
        return max(0.0 if line is None else rounding_of(np.nan_to_num(line)) for line in lines)

    @cached_property
    def arrays(self) -> dict[str, Dataset]:
        """The arrays that all of them have, [n, T, D]."""
        sets = [segment.source for segment in self.segments]
        names = [n for n in sets[0].arrays if all(n in one.arrays for one in sets)]
        return {n: stacked([s.array(s.source.arrays[n]) for s in self.segments]) for n in names}

    @cached_property
    def row_times(self) -> Dataset:
        """The times of the rows, [n, T]."""
        return stacked([_row_times(segment, self.length) for segment in self.segments])

    @cached_property
    def step_times(self) -> Dataset:
        """Where the steps of actions begin, and the last one ends, [n, T + 1]."""
        return stacked([_row_times(segment, self.length + 1) for segment in self.segments])


class Block(NamedTuple):
    """Trajectories that are read at once: some of one length."""

    part: Part
    at: Numbers

    @property
    def numbers(self) -> Numbers:
        """Their numbers [b] in the run."""
        return self.part.numbers[self.at]

    def read(self, name: str) -> Any:
        """The rows of an array [b, T, D]; raises InputError for NaN and Inf."""
        values, axes = self._rows_of(self.part.arrays[name]), ("trajectory", "step", "dof")
        if nonfinite_fault(values, name, axes) is not None:
            hint = "a curve through them does not exist: repair the input, or leave it out"
            for k, one in zip(self.at, values, strict=True):
                segment, number = self.part.place(int(k))
                where = segment.source.arrays[name].where
                fault = nonfinite_fault(one[None], where, axes, number)
                if fault:
                    raise InputError(replace(fault, hint=hint))
        return values

    def times(self, acting: bool = False) -> tuple[Floats, float]:
        """Times of the rows from 0 on, and how far they may be off because of their type.

        [b, T], or [1, T] where all have the same. acting: T + 1 times of actions, from the first
        step's beginning to the last one's end, where the files say them. Raises InputError for
        times that do not go on.
        """
        part, acting = self.part, acting and self.part.spans_steps
        if part.step is not None:
            return part.step * np.arange(float(part.length + acting))[None], 0.0
        times = self._rows_of(part.step_times if acting else part.row_times)
        same = (times == times[:1]).all()
        return times[:1] if same else times, part.rounding

    def _rows_of(self, array: Dataset) -> npt.NDArray[Any]:
        first, last = int(self.at[0]), int(self.at[-1]) + 1
        if last - first > len(self.at):
            array, first, last = array.select(self.at, range(array.shape[1])), 0, len(self.at)
        return np.asarray(array.read_rows(first, last))


def _row_times(segment: Segment, count: int) -> Dataset:
    """The times [n, count] of a segment's rows, or of one time more than rows."""
    time, shape = segment.selected_time, (len(segment.trajectories), count)
    if count > len(segment.rows):
        time = time.fitted(time.batch, count)

    def read_rows(begin: int, end: int) -> Floats:
        return np.broadcast_to(time.row_times(begin, end), (end - begin, count))

    return Dataset(time.where, shape, np.dtype("f8"), read_rows)
