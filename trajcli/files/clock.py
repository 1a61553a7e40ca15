"""The times of rows: one step, steps, or time stamps, from files and options.

Every command takes the first of: an option; stamps or steps next to the arrays; the times of the
layout; an attribute ``dt`` or a rate. Steps and stamps that contradict each other are an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from trajcli.arrays import step_faults, time_stamp_faults, time_stamp_shape_faults
from trajcli.errors import Fault, InputError, raise_if_any, wrong_shape
from trajcli.files.catalogue import Dataset, Numbers, Values, load_array, stack_arrays
from trajcli.files.conversion import as_line, convert_values, divide, read_unit
from trajcli.files.quantities import split_unit
from trajcli.files.source import Place, first_and_more
from trajcli.kernels.program import Floats, Integers, NumpyArray
from trajcli.memory import EAGER_BYTES
from trajcli.units import KNOWN_TIMES, Unit, parse_time_unit

# Units that are not converted, in lower case without a final s: such a file is refused, where an
# unknown word would be read as seconds.
_OTHER_TIMES = {"min", "minute", "h", "hr", "hour", "d", "day"}
# The unit of stamps that are at least this large: in seconds they would be after the year 5000.
_CLOCKS = {"ns": 1e17, "us": 1e14, "ms": 1e11}
# Stamps of a trajectory that are compared at once, so that bags of millions need no copy.
_FEW = 1 << 16
# Seconds; no robot takes longer or shorter steps. Stamps in ns, µs or ms are far beyond.
_LONGEST_STEP, _SHORTEST_STEP = 1.0, 1e-5
SINCE_1970 = 9e8
"""Seconds, in 1998: float32 stamps of a clock that counts since 1970 are then 64 s apart."""
JUMP = 1.5
"""A step longer than this many usual steps is a jump."""
# How far steps may be from a stored dt, and their mean from an attribute dt, as a share of it.
_SAME_STEP, _NOMINAL_STEP = 1e-3, 1e-2


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The times of the rows of trajectories [B, T] in seconds: one step, steps, or time stamps.

    Attributes:
        source: where they come from, for reports: "time stamps x.h5:/times, in ms".
        where: the array or the option, for messages.
        step: the one step of all rows; stamps at equal distances become one step, too.
        values: steps [h], [B, 1] or [B, h] or, if ``stamped``, stamps [T] or [B, T]; None where
            there is one step.
        shape: the shape of the dataset of steps or stamps, also where these became one step.
        batch, count: the number of trajectories, and of their rows.
        begin: the number of the first row in the file.
        acting: the rows are actions, the first of which leads to time dt; there may then be one
            stamp more than rows, that of the start.
        unit: the unit of the dataset, as text; "" where nothing says it.
        converted_from: the type of floats in the file, where they were converted to seconds.
        absolute: the stamps [1 or B, T] as the source has them, in ``unit``.
        nominal: the step that the file states next to stamps.
        contradiction: why there are no times: two statements that contradict each other.
    """

    source: Place
    where: Place
    step: float | None = None
    values: Values | None = None
    stamped: bool = False
    shape: tuple[int, ...] = ()
    batch: int = 1
    count: int = 0
    begin: int = 0
    acting: bool = False
    lengths: Integers | None = None
    unit: str = ""
    converted_from: np.dtype[Any] | None = None
    absolute: Dataset | None = None
    nominal: float | None = None
    contradiction: Fault | None = None

    @classmethod
    def even(cls, step: float, source: Place, where: Place | None = None) -> Clock:
        return cls(source=source, where=where or source, step=step)

    @classmethod
    def unknown(cls, fault: Fault, batch: int, count: int) -> Clock:
        """Makes the times of trajectories [batch, count] that cannot be used, for this reason."""
        where = Place(remark=str(fault.where))
        return cls(source=where, where=where, batch=batch, count=count, contradiction=fault)

    @classmethod
    def from_stamps(
        cls, stored: Dataset, given: Unit | None = None, lengths: Integers | None = None,
        nominal: float | None = None, column: bool = True,
    ) -> Clock:  # fmt: skip
        """Reads the times that a dataset of stamps gives.

        given: the unit of the command line, before the unit that the dataset states. nominal: the
        step that the file states elsewhere, which is used if it fits. column: whether stamps [T, 1]
        are those of T rows, as in a table or MATLAB, not of T trajectories.
        """
        if column and stored.shape[1:] == (1,):
            rows = stored.reader
            stored = replace(stored, shape=stored.shape[:1], reader=lambda *part: rows(*part)[:, 0])
        clock = _stored_times(stored, given, stamps=True)
        values, step = clock.values, None
        if not isinstance(values, Dataset):
            step = equal_step(np.asarray(values), lengths, nominal, clock.converted_from)
        absolute = stored if stored.ndim in (1, 2) and stored.shape[-1] else None
        if absolute is not None and absolute.ndim == 1:
            absolute = as_line(absolute)
        return replace(
            clock, source=replace(clock.source, title="time stamps "), step=step,
            values=values if step is None else None, absolute=absolute,
        )  # fmt: skip

    @classmethod
    def from_steps(cls, stored: Dataset, given: Unit | None = None) -> Clock:
        clock = _stored_times(stored, given, stamps=False)
        values = clock.values  # one step in another unit is a number, no array
        known = np.ravel([] if isinstance(values, Dataset) else np.asarray(values))
        same = known.size > 0 and bool((known == known[0]).all())
        return replace(clock, step=float(known[0]), values=None) if same else clock

    @classmethod
    def join(cls, clocks: Sequence[Clock]) -> Clock:
        """Joins the times of several groups: stamps where all groups have stamps, else steps."""
        first, batches = clocks[0], [clock.batch for clock in clocks]
        if len(clocks) == 1:
            return first
        lengths = (
            np.full(clock.batch, clock.count) if clock.lengths is None else clock.lengths
            for clock in clocks
        )
        joined = replace(
            first, source=first_and_more(clock.source for clock in clocks), batch=sum(batches),
            count=max(clock.count for clock in clocks), lengths=np.concatenate([*lengths]),
            acting=all(clock.acting for clock in clocks),
            stamped=all(clock.stamped for clock in clocks),
            step=None, values=None, shape=(), absolute=None,
        )  # fmt: skip
        for clock in clocks:
            # how many steps actions need depends on their mode
            faults = [clock.contradiction] if clock.acting else clock.shape_faults()
            if fault := next(filter(None, faults), None):
                return replace(joined, contradiction=fault)
        # T stamps are T - 1 steps; one step alone fits any number of rows
        surplus = {
            clock.shape[-1] - clock.count - (clock.stamped and not joined.stamped)
            for clock in clocks
            if clock.stamped or clock.shape[-1:] not in ((), (1,))
        }
        if len(surplus) > 1:
            hint = "--dt, --rate or --times for all, or run them one at a time"
            what, expected = "inputs with different steps", "as many in each"
            fault = Fault(what, where=first.where, expected=expected, hint=hint)
            return replace(joined, contradiction=fault)
        extra = surplus.pop() if surplus else None
        shape = (joined.batch, 1 if extra is None else joined.count + extra)
        if len({clock.step for clock in clocks}) == 1 and first.step is not None:
            return replace(joined, step=first.step, shape=() if extra is None else shape)
        # all groups share one dataset [T], such as --times: shorter ones have its first times
        if all(len(clock.shape) == 1 and clock.where == first.where for clock in clocks):
            longest = max(clocks, key=lambda clock: clock.count)
            return replace(joined, values=longest.values, shape=longest.shape)
        # a table [1 or batch, width] of stamps or of steps for each
        tables = list[Values]()
        for clock in clocks:
            width, table = 1 if extra is None else clock.count + extra, clock.values
            if table is None:
                step = np.nan if clock.step is None else clock.step
                line = step * np.arange(width) if joined.stamped else np.full(width, step)
                tables.append(line[None])
                continue
            if clock.stamped and not joined.stamped:
                table = np.diff(load_array(table).astype(np.float64))
            if table.ndim < 2:
                table = np.reshape(load_array(table), (1, -1))
            if table.shape[1] == 1 < width:
                table = np.broadcast_to(load_array(table), (table.shape[0], width))
            tables.append(table)
        values: Values = stack_arrays(tables, batches)
        values = values if values.nbytes > EAGER_BYTES else load_array(values)
        kind = "time stamps" if joined.stamped else "dt"
        several = len({clock.where for clock in clocks}) > 1
        where = Place(remark=f"{kind} of the inputs") if several else first.where
        return replace(joined, values=values, shape=shape, where=where)

    @property
    def shared(self) -> bool:
        return self.values is None or self.values.ndim < 2 or self.values.shape[0] == 1

    def fit_shape(
        self, batch: int, count: int, acting: bool = False, lengths: Integers | None = None
    ) -> Clock:
        values, shape = self.values, self.shape
        # MATLAB writes the steps of one trajectory as a column [T, 1], the shape of one step for
        # each of T trajectories: the numbers of rows and trajectories tell which it is
        column = not self.stamped and shape[1:] == (1,) and shape[0] != batch
        if column and shape[0] in (count - 1, count):
            values = values if values is None else np.ravel(load_array(values))
            shape = shape[:1]
        return replace(self, values=values, shape=shape, batch=batch, count=count, acting=acting,
                       lengths=lengths)  # fmt: skip

    @property
    def remark(self) -> str:
        """A warning about an unknown unit, or steps that cannot be seconds; "" for others."""
        if self.unit:
            if parse_time_unit(self.unit) is not None:
                return ""
            text = f"is in {self.unit!r}, which is not known ({KNOWN_TIMES}): taken as s"
            return f"{self.where} {text}"
        if isinstance(self.values, Dataset) or self.contradiction is not None:
            return ""
        steps = np.array([[np.nan if self.step is None else self.step]])
        if self.values is not None:
            values = np.atleast_2d(self.values)[:1, :_FEW].astype(np.float64)
            steps = np.diff(values) if self.stamped else values
        # the median, since one long gap says nothing about the unit; by sort, since np.median
        # imports masked arrays
        step = float(np.sort(steps, None)[(steps.size - 1) // 2]) if steps.size else _LONGEST_STEP
        # stamps one second apart are likely numbers of rows
        counted = self.stamped and step == _LONGEST_STEP and self.count > 1
        if not (step > _LONGEST_STEP or 0 < step < _SHORTEST_STEP or counted):
            return ""
        return (
            f"{self.where}: steps of {step:g}, taken as seconds; if they are milliseconds or "
            "nanoseconds, --units ms or --units ns reads them"
        )

    @property
    def per_row(self) -> bool:
        return self.stamped and self.shape[-1:] == (self.count,)

    @property
    def fits(self) -> bool:
        return not self.shape_faults()

    def take(self, trajectories: Numbers, rows: range, lengths: Integers | None = None) -> Clock:
        """Selects the times of consecutive rows of some trajectories."""
        part = self.fit_shape(len(trajectories), len(rows), self.acting, lengths)
        part = replace(part, begin=self.begin + rows.start)
        # how many steps actions need depends on their mode
        misfit = self.shape_faults() if rows.start or not self.acting else ()
        if misfit or self.contradiction is not None:
            return replace(part, contradiction=next(iter(misfit), self.contradiction))
        surplus = self.count - len(rows)

        def cut(stored: Dataset) -> Dataset:
            width = stored.shape[-1] - (surplus if stored.shape[-1] > 1 else 0)
            return stored.select(trajectories if stored.shape[0] > 1 else range(1), range(width))

        absolute = None if rows.start else self.absolute and cut(self.absolute)
        if self.step is not None and (rows.start or not self.shape):
            return replace(part, stamped=False, shape=(), absolute=absolute)
        if rows.start:
            # later rows have times since the first row of all, which their own steps cannot say
            times = self.stored_times(0, 1 if self.shared else self.batch)
            times = times[[0] if self.shared else trajectories, rows.start : rows.stop]
            return replace(part, values=times, stamped=True, acting=False, shape=times.shape,
                           absolute=None)  # fmt: skip
        values, shape = self.values, self.shape
        if isinstance(values, Dataset) and values.ndim == 2:
            values = cut(values)
        elif values is not None:
            table = load_array(values)
            table = table[trajectories] if table.ndim == 2 and len(table) > 1 else table
            values = table[..., : table.shape[-1] - surplus] if table.shape[-1] > 1 else table
        if len(shape) == 2 and shape[0] > 1:
            shape = (len(trajectories), shape[1])
        if shape and shape[-1] > 1:
            shape = (*shape[:-1], shape[-1] - surplus)
        return replace(part, values=values, absolute=absolute, shape=shape)

    def segment(self, trajectories: Numbers, rows: Numbers) -> Clock:
        """Selects the times of some rows of some trajectories; of equal steps, consecutive rows."""
        part, stamps = self.fit_shape(len(trajectories), len(rows)), self.absolute

        def cut(lines: NumpyArray) -> NumpyArray:
            return lines[np.asarray(trajectories) if len(lines) > 1 else [0]][:, np.asarray(rows)]

        if stamps is not None:
            known = cut(self.row_stamps())
            stamps = replace(stamps, shape=known.shape, reader=lambda a, b: known[a:b])
        part = replace(part, absolute=stamps)
        if self.step is not None:
            begin = self.begin + int(rows[0]) + self.acting
            return replace(part, begin=begin, stamped=False, shape=())
        times = cut(self.stored_times())
        return replace(part, values=times, stamped=True, shape=times.shape)

    def row_stamps(self) -> NumpyArray:
        """Reads the stamps [1 or B, count] of all rows of a source with stamps, in its unit."""
        assert self.absolute is not None
        known: NumpyArray = self.absolute.read()
        # an output of trajcli states the stamp of row 0 alone
        if known.shape[1] < self.count:
            times = self.stored_times()
            known = add_seconds(known, times - times[:, :1], self.unit)
        return known[:, -self.count :]  # of actions, not that of the start

    def shape_faults(self) -> list[Fault]:
        batch, rows = self.batch, self.count
        if self.contradiction is not None:
            return [self.contradiction]
        if self.stamped:
            shape = self.shape
            if self.acting and shape in {(rows + 1,), (batch, rows + 1), (1, rows + 1)}:
                return []
            return time_stamp_shape_faults(shape, batch, rows, self.where)
        shape = self.shape if self.values is None else self.values.shape
        counts = {rows - 1, rows}
        one_step = shape in {(), (1,), (1, 1), (batch, 1)}
        if one_step or (shape and shape[-1] in counts and shape[:-1] in {(), (1,), (batch,)}):
            return []
        expected = f"one, [{batch}, 1], [{rows - 1}] or [{batch}, {rows - 1}]"
        return [wrong_shape(self.where, expected, shape, what="wrong number of steps")]

    def faults(self, begin: int = 0, end: int | None = None) -> list[Fault]:
        """Checks that steps are positive and finite, stamps finite and strictly increasing."""
        if faults := self.shape_faults():
            return faults
        end = self.batch if end is None else end
        if self.stamped and self.values is not None:
            values = self._filled(_rows(self.values, begin, end), begin, end)
            return time_stamp_faults(values, self.where, begin if len(values) > 1 else 0)
        steps = self._filled(self.steps(begin, end), begin, end)
        return step_faults(steps, self.where, begin if len(steps) > 1 else 0)

    def _filled(self, values: NumpyArray, begin: int, end: int) -> NumpyArray:
        """Replaces padding among stamps or steps [b, n] by valid ones, so that checks pass it."""
        if self.lengths is None or len(values) != end - begin or values.shape[1] == 1:
            return values
        last = self.lengths[begin:end, None] - 1 + values.shape[1] - self.count
        beyond = np.arange(values.shape[1]) - last
        ends = np.take_along_axis(values, last, 1) if self.stamped else 0.0
        return np.where(beyond > 0, ends + beyond, values)

    def row_times(self) -> Floats:
        """Reads the times [B or 1, count] of all trajectories since their first row."""
        raise_if_any(self.faults())
        times = self.stored_times()
        return times - times[:, :1]

    def stored_times(self, begin: int = 0, end: int | None = None) -> Floats:
        """Reads the times [b or 1, count] of trajectories begin to end, as the file has them."""
        raise_if_any(self.shape_faults())
        end = self.batch if end is None else end
        if self.stamped and self.values is not None:
            stamps = _rows(self.values, begin, end).astype(np.float64)
            return stamps[:, -self.count :] if self.count else stamps[:, :0]
        steps = self.steps(begin, end)
        # an action leads to the end of its step; T steps of T rows lead into each row
        after = self.acting or steps.shape[1] == self.count > 1
        if steps.shape[1] == 1:
            # k·dt has one rounding, a sum of k steps has k
            return steps * np.arange(self.begin + after, self.begin + self.count + after)
        elapsed = np.cumsum(np.insert(steps, 0, 0.0, 1), axis=1)
        if after and steps.shape[1] < self.count:  # the last step goes on
            elapsed = np.concatenate([elapsed, elapsed[:, -1:] + steps[:, -1:]], axis=1)
        return elapsed[:, int(after) :][:, : self.count]

    def first_stamps(self, trajectories: Numbers, skip_start: bool = False) -> NumpyArray | None:
        """Reads the first stamps as the source has them; None without any.

        skip_start: for actions with one stamp more than rows, takes the stamp of the first row.
        """
        if self.absolute is None:
            return None
        batch, stamps = self.absolute.shape
        column = max(stamps - self.count, 0) if skip_start and self.count else 0
        chosen = trajectories if batch > 1 else range(1)
        first = np.ravel(self.absolute.select(chosen, range(column, column + 1)).read())
        return np.broadcast_to(first, len(trajectories))

    def shift(self, stamps: NumpyArray, unit: str) -> Clock:
        """Moves the times of an output of trajcli to the stamps [B] at which its source began."""
        first = self.first_stamps(range(self.batch))
        if first is not None and first.any():
            stamps = add_seconds(stamps, first, unit)
        absolute = Dataset(
            self.where, (len(stamps), 1), stamps.dtype, lambda a, b: stamps[a:b, None]
        )
        return replace(self, absolute=absolute, unit=unit)

    def steps(self, begin: int, end: int) -> Floats:
        if self.values is None:
            return np.full((1, 1), np.nan if self.step is None else self.step)
        steps = _rows(self.values, begin, end).astype(np.float64)
        # of T steps of T rows the first leads into row 0, where loggers write 0 or NaN
        if not self.acting and steps.shape[1] == self.count > 1 and not (steps[:, 0] > 0).all():
            steps[:, 0] = steps[:, 1]
        return steps


def _rows(values: Values, begin: int, end: int) -> NumpyArray:
    """Reads the part [b or 1, n] of [n] or [B, n] that belongs to trajectories begin to end."""
    if values.ndim < 2:
        return np.reshape(load_array(values), (1, -1))
    if values.shape[0] == 1:
        begin, end = 0, 1
    return values.read_rows(begin, end) if isinstance(values, Dataset) else values[begin:end]


def positive(value: object) -> float | None:
    """Reads a number above zero that a float can hold; None for anything else."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.ravel()[0]
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer of hundreds of digits
        return None
    return number if math.isfinite(number) and number > 0 else None


def _stored_times(stored: Dataset, given: Unit | None, stamps: bool) -> Clock:
    """Reads the stamps or steps of a dataset in seconds; large ones [B, n] stay in the file."""
    # the unit is that of the command line, else of an attribute, else of the name: time_ms
    text = given.name if given is not None else read_unit(stored)
    text = text or split_unit(re.split("[:/]", stored.where.last)[-1])[1]
    unit = given or parse_time_unit(text)
    word, since, _ = text.strip("[] ").lower().partition(" since ")
    if unit is None and (since or word.rstrip("s") in _OTHER_TIMES):
        raise InputError(
            "a unit that is not converted",
            where=stored.where,
            expected=KNOWN_TIMES,
            found=text,
            hint="convert them first, or give the step: --dt SECONDS, --rate HZ",
        )
    stored.require_numeric()
    by_size = "" if unit is not None or text or not stamps else unit_by_size(stored)
    unit = parse_time_unit(by_size) or unit
    kind, per_second = stored.precision, unit.per_si if unit else 1.0
    if stamps and kind.kind == "f" and kind.itemsize <= 4 and 0 not in stored.shape:
        # 24 bits of seconds since 1970 leave steps of 64 s to 128 s
        first = np.ravel(stored.read_rows(0, 1)).astype(kind)[0]
        if abs(first) > SINCE_1970 * per_second:
            raise InputError(
                "time stamps too coarse for their type",
                where=stored.where,
                expected="float64 or integers, or stamps from 0",
                found=f"{kind}, which is {np.spacing(first) / per_second:g} s coarse since 1970",
                hint="--rate HZ or --dt SECONDS says the time instead",
            )
    lazy = stored.nbytes > EAGER_BYTES and stored.ndim == 2 and stored.shape[0] > 1
    values: Values = stored if lazy else np.asarray(stored.read())
    source = stored.where
    if unit is not None and unit.per_si != 1.0:
        convert = partial(in_seconds, unit=unit, stamps=stamps)
        values = convert_values(stored, convert) if lazy else convert(values)
        since_1970 = " since 1970 by their size" if by_size else ""
        source = source.with_remark(f", in {unit}{since_1970}")
    rounded = values.dtype != stored.dtype and stored.dtype.kind == "f"
    return Clock(
        source=source, where=stored.where, values=values, stamped=stamps, shape=stored.shape,
        unit=text or by_size, converted_from=stored.dtype if rounded else None,
    )  # fmt: skip


def unit_by_size(stored: Dataset) -> str:
    """Guesses the unit of stamps that are too large for seconds since 1970, else ""."""
    first = np.ravel(stored.read_rows(0, 1)) if stored.shape[:1] > (0,) else np.zeros(1)
    return unit_of_size(float(np.abs(first[:1], dtype=np.float64).sum()))


def unit_of_size(size: float) -> str:
    """Guesses the unit of a stamp that is too large for seconds since 1970, else ""."""
    return next((name for name, least in _CLOCKS.items() if least <= size < 1e20), "")


def add_seconds(stamps: NumpyArray, seconds: Any, unit: str) -> NumpyArray:
    """Adds seconds to the stamps of a clock, in their unit and type."""
    known = parse_time_unit(unit)
    offset = seconds * (1.0 if known is None else known.per_si)
    # integers stay integers: nanoseconds since 1970 in float64 are 256 ns apart
    integers = stamps.dtype.kind in "iu"
    return np.asarray(stamps + (np.rint(offset).astype(stamps.dtype) if integers else offset))


def exact_seconds(stamp: Any, unit: str) -> Fraction:
    """Converts a stamp of a clock to seconds exactly; an unknown unit is taken as seconds."""
    known = parse_time_unit(unit)
    return Fraction(stamp.item()) / int(known.per_si if known else 1)


def in_seconds(values: Any, unit: Unit, stamps: bool) -> Any:
    """Converts stamps [T] or [b, T], counted from the first one, or steps to seconds."""
    # What a clock has counted since 1970 is more than float64 seconds hold, so the first stamp is
    # subtracted before the division: without rounding for integers, and also for floats within
    # a factor of two of each other (Sterbenz), as stamps of a clock are.
    if stamps and values.size:
        wide = values.astype(np.int64 if values.dtype.kind in "iu" else np.float64)
        first = wide[..., :1]
        with np.errstate(invalid="ignore"):
            values = wide - np.where(np.isfinite(first), first, 0)
    return divide(values, unit.per_si)


def equal_step(
    stamps: NumpyArray,
    lengths: Integers | None = None,
    nominal: float | None = None,
    kind: np.dtype[Any] | None = None,
) -> float | None:
    """Finds the step of stamps [T] or [B, T] that are equally spaced up to rounding, else None.

    A step fits if it gives every stamp within four spacings of the largest. Of the steps that
    fit, the nominal one wins, then a whole number of Hz, then the one with the fewest digits.
    kind: the type that they are rounded to, if not their own.
    """
    if stamps.ndim not in (1, 2) or stamps.shape[-1] < 2 or not stamps.size:
        return None
    wide = np.atleast_2d(stamps).astype(np.float64, copy=False)
    batch, count = wide.shape
    counts = lengths if lengths is not None and len(lengths) == batch else np.full(batch, count)
    last = min(max(int(counts[0]), 1), count) - 1
    with np.errstate(invalid="ignore", over="ignore"):
        mean = float(wide[0, last] - wide[0, 0]) / max(last, 1)
        if not (math.isfinite(mean) and mean > 0):
            return None
        rounding = 4 * _spacing(stamps, kind)

        def fits(step: float) -> bool:
            for begin in range(0, count, _FEW):  # in parts, as bags are too large to copy
                part = wide[:, begin : begin + _FEW]
                rows = np.arange(begin, begin + part.shape[1])
                close = np.abs(part - wide[:, :1] - step * rows) <= rounding
                if not (close | (rows >= counts[:, None])).all():
                    return False
            return True

        if not fits(mean):
            return None
    # the mean is 0.0099999998 where a logger wrote 0.01: rounder numbers are tried first
    rate = round(1.0 / mean) if mean > 1e-9 else 0
    candidates = [] if nominal is None else [nominal]
    candidates += [1.0 / rate] if rate else []
    candidates += [float(f"{mean:.{digits}g}") for digits in range(1, 17)]
    return next((step for step in candidates if fits(step)), mean)


def _spacing(stamps: NumpyArray, kind: np.dtype[Any] | None) -> float:
    """Finds the rounding of the largest stamp, of integers that of float64."""
    largest = max(abs(float(np.nanmin(stamps))), abs(float(np.nanmax(stamps))))
    kind = kind or stamps.dtype
    small = kind.kind == "f" and kind.itemsize < 8
    return float(np.spacing(np.asarray(largest, kind if small else np.float64)))


def reconcile(steps: Clock | None, stamps: Clock | None) -> Clock | None:
    """Chooses the times of a group with steps and stamps: steps if one number, else stamps."""
    if steps is None or stamps is None:
        return steps or stamps
    gaps = _gaps(stamps)
    if gaps is None or isinstance(steps.values, Dataset):
        return stamps
    stored = steps.steps(0, steps.batch)
    count = gaps.shape[1]
    if stored.shape[1] > count > 1:
        stored = stored[:, -count:]  # the first of T steps leads into row 0
    # steps and stamps were rounded each for itself: four spacings of the stamps, as in equal_step
    slack, values = 0.0, stamps.values
    if values is not None:
        slack = 4 * _spacing(np.asarray(values), stamps.converted_from)
    agree = not 1 < stored.shape[1] < count
    if agree:
        # padding of stamps is NaN, and says nothing
        close = np.abs(gaps - stored) <= _SAME_STEP * np.abs(stored) + slack
        agree = bool((np.isnan(gaps) | close).all())
    if not agree:
        raise InputError(_contradiction(steps.where, float(stored.mean()), stamps, gaps))
    if steps.step is None:
        return stamps
    return replace(steps, absolute=stamps.absolute, unit=stamps.unit)


def require_nominal(time: Clock, where: Place, dt: float) -> None:
    """Raises InputError for stamps whose mean step is not that of an attribute dt."""
    gaps = _gaps(time)
    if gaps is not None and gaps.size and abs(float(gaps.mean()) - dt) > _NOMINAL_STEP * dt:
        raise InputError(_contradiction(where, dt, time, gaps))


def compare_with_rate(rate: Clock, stamps: Clock) -> Clock:
    """Chooses the times of stamps next to a rate: the rate if it gives them, else the stamps."""
    step, gaps = rate.step, _gaps(stamps)
    if step is None or stamps.step == step:
        return rate
    median = float(np.nanmedian(gaps)) if gaps is not None and gaps.size else 0.0
    if gaps is not None and median > 0.0:  # else stamps repeat, or go back
        # jitter moves the median, and gaps the mean
        usual = median, float(gaps[gaps <= JUMP * median].mean())
        if min(abs(value - step) for value in usual) > _NOMINAL_STEP * step:
            raise InputError(
                "a rate and time stamps that contradict each other",
                where=f"{rate.where} and {stamps.where}",
                expected="one rate",
                found=f"{1 / step:g} Hz, and stamps as of {1 / median:g} Hz",
                hint=f"--rate {1 / step:g}, or --times with the stamps, says which to use",
            )
    return replace(stamps, nominal=step)


def _gaps(time: Clock) -> Floats | None:
    """Reads the steps [b or 1, n] of a time; None for stamps that are read block by block."""
    if time.step is not None:
        return np.full((1, 1), time.step)
    if time.values is None or isinstance(time.values, Dataset) or time.values.ndim == 0:
        return None
    return np.diff(np.atleast_2d(time.values).astype(np.float64), axis=1)


def _contradiction(where: Place, dt: float, stamps: Clock, gaps: Floats) -> Fault:
    return Fault(
        "dt and time stamps that contradict each other",
        where=f"{where} and {stamps.where}",
        expected="equal steps in both",
        found=f"dt {dt:g} s, and stamps {float(gaps.mean()):g} s apart on average",
        hint="--dt or --times says which to use",
    )
