"""The times of rows: one step, steps, or time stamps. The one place that checks them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from trajcli.arrays import describe, step_faults, time_stamp_faults, time_stamp_shape_faults
from trajcli.errors import Fault, raise_if_any
from trajcli.files.arrays import Dataset, Numbers
from trajcli.files.source import Origin
from trajcli.units import KNOWN_TIMES, parse_time_unit

Floats: TypeAlias = npt.NDArray[np.float64]
Lengths: TypeAlias = npt.NDArray[np.int64]
Values: TypeAlias = "npt.NDArray[Any] | Dataset"


@dataclass(frozen=True, slots=True)
class Time:
    """Times of the rows of trajectories, in seconds: ``dt`` or ``stamps``.

    dt: one step, or steps [h], [B, 1] or [B, h]. stamps: [T] or [B, T]. Stamps at equal
    distances are held as one dt. ``source`` says where they come from, ``where`` names the array
    or option in messages. ``batch``, ``count``: the trajectories and the rows they are for.
    ``actions``: the rows are actions, the first of which leads to time dt; there may then be one
    stamp more than rows, that of the start. ``shape``: that of the dataset of steps or, where
    ``stamped``, of stamps, also where they are held as one dt. ``lengths`` [B]: how many rows are
    not padding. ``unit``: what the dataset was in, as text; "" where nothing says it.
    ``converted_from``: the type of floats in the file, where they were converted to seconds.
    ``clock``: the stamps as the source has them, [1 or B, T], in ``unit``.
    """

    source: Origin
    where: str
    dt: float | Values | None = None
    stamps: Values | None = None
    batch: int = 1
    count: int = 0
    actions: bool = False
    shape: tuple[int, ...] = ()
    stamped: bool = False
    lengths: Lengths | None = None
    unit: str = ""
    converted_from: np.dtype[Any] | None = None
    clock: Dataset | None = None

    @classmethod
    def of(cls, source: Origin, dt: float, where: str = "") -> Time:
        """One step for all."""
        return cls(source, where or source, dt=dt)

    @property
    def uniform(self) -> float | None:
        """The step where all steps of all trajectories are equal."""
        return self.dt if isinstance(self.dt, float) else None

    @property
    def shared(self) -> bool:
        """Whether all trajectories have the same times."""
        values = self.dt if self.stamps is None else self.stamps
        return (
            values is None or isinstance(values, float) or values.ndim < 2 or values.shape[0] == 1
        )

    def fitted(
        self, batch: int, count: int, actions: bool = False, lengths: Lengths | None = None
    ) -> Time:
        """Returns the times for trajectories [batch, count]."""
        return replace(self, batch=batch, count=count, actions=actions, lengths=lengths)

    @property
    def remark(self) -> str:
        """What to say of a unit that is not known; "" of others."""
        if not self.unit or parse_time_unit(self.unit) is not None:
            return ""
        return f"{self.where} is in {self.unit!r}, which is not known ({KNOWN_TIMES}): taken as s"

    @property
    def fits(self) -> bool:
        """Whether there are as many stamps or steps as the rows need."""
        return not self.shape_faults()

    def select(self, trajectories: Numbers, count: int) -> Time:
        """Returns the times of some trajectories of a padded array, cut to ``count`` rows."""
        surplus = self.count - count

        def part(values: float | Values | None) -> Any:
            if values is None or isinstance(values, float):
                return values
            width = values.shape[-1] - (surplus if values.shape[-1] > 1 else 0)
            if isinstance(values, Dataset):
                return values.select(trajectories, range(width))
            chosen = values[trajectories] if values.ndim == 2 and values.shape[0] > 1 else values
            return chosen[..., :width]

        shape = self.shape
        if len(shape) == 2 and shape[0] > 1:
            shape = (len(trajectories), shape[1])
        if shape and shape[-1] > 1:
            shape = (*shape[:-1], shape[-1] - surplus)
        cut = self.fitted(len(trajectories), count, self.actions)
        clock = self.clock
        if clock is not None and clock.shape[0] > 1:
            clock = part(clock)
        return replace(cut, dt=part(self.dt), stamps=part(self.stamps), clock=clock, shape=shape)

    def shape_faults(self) -> list[Fault]:
        """What is wrong with the number of stamps or steps."""
        batch, rows = self.batch, self.count
        if self.stamps is not None or self.stamped:
            shape = self.shape if self.stamps is None else self.stamps.shape
            if self.actions and shape in {(rows + 1,), (batch, rows + 1), (1, rows + 1)}:
                return []
            return time_stamp_shape_faults(shape, batch, rows, self.where)
        shape = self.shape if isinstance(self.dt, float) or self.dt is None else self.dt.shape
        counts = {rows - 1, rows}
        one_step = shape in {(), (1,), (1, 1), (batch, 1)}
        if one_step or (shape and shape[-1] in counts and shape[:-1] in {(), (1,), (batch,)}):
            return []
        return [
            Fault(
                "wrong number of steps",
                where=self.where,
                expected=f"one, [{batch}, 1], [{rows - 1}] or [{batch}, {rows - 1}]",
                found=describe(shape),
            )
        ]

    def faults(self, begin: int = 0, end: int | None = None) -> list[Fault]:
        """What is wrong with the steps or stamps of trajectories begin..end, by shape and value.

        Steps must be positive and finite, stamps finite and strictly increasing.
        """
        found = self.shape_faults()
        if found:
            return found
        end = self.batch if end is None else end
        if self.stamps is not None:
            values = self._filled(_rows(self.stamps, begin, end), begin, end)
            return time_stamp_faults(values, self.where, begin if len(values) > 1 else 0)
        steps = self._filled(self.steps(begin, end), begin, end)
        return step_faults(steps, self.where, begin if len(steps) > 1 else 0)

    def _filled(self, values: npt.NDArray[Any], begin: int, end: int) -> npt.NDArray[Any]:
        """Stamps or steps [b, n] with good ones in place of padding."""
        if self.lengths is None or len(values) != end - begin or values.shape[1] == 1:
            return values
        last = self.lengths[begin:end, None] - 1 + values.shape[1] - self.count
        beyond = np.arange(values.shape[1]) - last
        ends = np.take_along_axis(values, last, 1) if self.stamps is not None else 0.0
        return np.where(beyond > 0, ends + beyond, values)

    def row_times(self, begin: int = 0, end: int | None = None) -> Floats:
        """Times of all rows of trajectories begin..end from the first row on, [b or 1, count].

        One line where all trajectories share their times. Raises InputError where stamps or
        steps are too many, too few, not finite or not increasing.
        """
        raise_if_any(self.faults(begin, end))
        found = self._row_times(begin, self.batch if end is None else end)
        elapsed: Floats = found - found[:, :1]
        return elapsed

    def rows(self, begin: int, end: int, first: int, last: int) -> Floats:
        """Times [b or 1, n] of rows first..last of trajectories begin..end as the file has them,
        whatever their values.

        Raises InputError where there are too many or too few.
        """
        raise_if_any(self.shape_faults())
        found: Floats = self._row_times(begin, end)[:, first:last]
        return found

    def _row_times(self, begin: int, end: int) -> npt.NDArray[Any]:
        if self.stamps is not None:
            stamps = _rows(self.stamps, begin, end).astype(np.float64)
            return stamps[:, -self.count :] if self.count else stamps[:, :0]
        steps = self.steps(begin, end)
        after = self.actions or steps.shape[1] == self.count > 1
        if steps.shape[1] == 1:
            return steps * np.arange(after, self.count + after)
        elapsed = np.cumsum(np.insert(steps, 0, 0.0, 1), axis=1)
        if after and steps.shape[1] < self.count:  # the last step goes on
            elapsed = np.concatenate([elapsed, elapsed[:, -1:] + steps[:, -1:]], axis=1)
        return elapsed[:, int(after) :][:, : self.count]

    def first_stamps(self, begin: int, end: int, of_rows: bool = False) -> npt.NDArray[Any] | None:
        """Returns the first stamps [b] of trajectories begin to end as the source has them.

        of_rows: of actions with one stamp more than rows, the stamp of the first row, not that of
        the start. None without stamps.
        """
        if self.clock is None:
            return None
        batch, stamps = self.clock.shape
        column = max(stamps - self.count, 0) if of_rows and self.count else 0
        rows = (begin, end) if batch > 1 else (0, 1)
        first = np.ravel(self.clock.read_part(*rows, column, column + 1))
        return np.broadcast_to(first, end - begin)

    def steps(self, begin: int, end: int) -> Floats:
        """Steps of trajectories begin..end, [b or 1, h]."""
        if self.dt is None or isinstance(self.dt, float):
            return np.full((1, 1), np.nan if self.dt is None else self.dt)
        return _rows(self.dt, begin, end).astype(np.float64)


def _rows(values: Values, begin: int, end: int) -> npt.NDArray[Any]:
    """The part of [n] or [B, n] that belongs to trajectories begin..end, [b or 1, n]."""
    if values.ndim < 2:
        whole = values.read() if isinstance(values, Dataset) else values
        return np.reshape(whole, (1, -1))
    if values.shape[0] == 1:
        begin, end = 0, 1
    found = values.read_rows(begin, end) if isinstance(values, Dataset) else values[begin:end]
    return np.asarray(found)


def positive(value: object) -> float | None:
    """A number above zero that a float can hold; None for anything else."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.ravel()[0]
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer of hundreds of digits
        return None
    return number if math.isfinite(number) and number > 0 else None
