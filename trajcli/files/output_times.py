"""Finds the times that options name among the rows of each trajectory: the stamps of
resample --at, and the ends of a window, --since and --until."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import numpy as np

from trajcli.curves.resampling import stamp_rounding
from trajcli.errors import Fault, InputError, wrong_shape
from trajcli.files.catalogue import Values, load_array, take_trajectories
from trajcli.files.clock import add_seconds, exact_seconds, in_seconds, unit_by_size
from trajcli.files.companions import STAMPS
from trajcli.files.conversion import divide, read_unit
from trajcli.files.opening import Files
from trajcli.files.source import Place, expand_files, parse_source
from trajcli.kernels.program import Floats, Integers, NumpyArray
from trajcli.memory import EAGER_BYTES
from trajcli.units import KNOWN_TIMES, Unit, parse_time_unit

StartStamps = tuple[NumpyArray, str]
"""A stamp of each trajectory [n] as its source has it, and the unit of these stamps."""


@dataclass(frozen=True)
class OutputTimes:
    """Stamps that an option names, ``values`` [N] or [B, N].

    unit: the unit of the stamps, if it is known. starts: for an output of trajcli, whose times
    begin at 0, the stamps of its source's clock at those zeros.
    """

    values: Values
    where: Place
    unit: Unit | None
    starts: StartStamps | None = None

    @property
    def differ(self) -> bool:
        return self.values.ndim == 2 and int(self.values.shape[0]) > 1

    def stamps(self, numbers: Integers) -> NumpyArray:
        """Reads the stamps [1 or b, N] of trajectories as they are stored."""
        chosen = take_trajectories(self.values, numbers) if self.differ else self.values
        return np.atleast_2d(load_array(chosen))


def times_of_file(files: Files, text: str, count: int) -> OutputTimes:
    """Reads the stamps FILE:DATASET [N] or [count, N], or those in a file or group, as of a bag."""
    source = parse_source(text)
    # a pattern or a folder with one file stands for that file
    expanded = expand_files(source)
    file = files.open(expanded[0].path if len(expanded) == 1 else source.path)
    name = (source.dataset or "").strip("/")
    if source.dofs is None and file.names() != [""] and file.get(name) is None:
        # a group, or a topic of a bag: its stamps have one of the names that readers know
        names = (f"{name}/{stamps}".strip("/") for stamps in STAMPS)
        name = next((path for path in names if file.get(path) is not None), name)
    if source.dofs is not None or file.names() == [""] or not name:
        stored = files.dataset(text)
    else:
        stored = file.require(name).require_numeric()
    label = read_unit(stored) or unit_by_size(stored)
    unit = parse_time_unit(label)
    if label and unit is None:
        raise InputError("unknown unit", where=stored.where, expected=KNOWN_TIMES, found=label)
    # stamps are one line for all trajectories, or one for each; start stamps have their own number
    starts: StartStamps | None = None
    counts = {stored.shape[0] if stored.ndim == 2 else 1}
    if file.is_output:
        first = file.get(f"{name.rpartition('/')[0]}/start_stamp".strip("/"))
        if first is not None:
            starts = np.ravel(first.read()), read_unit(first) or "s"
            counts.add(len(starts[0]))
    if stored.ndim not in (1, 2) or not stored.shape[-1] or not counts <= {1, count}:
        what = "wrong shape of times"
        expected = f"[N], or [{count}, N] for {count} trajectories"
        raise InputError(wrong_shape(stored.where, expected, stored.shape, what=what))
    # a large table stays in its file, and is read trajectory by trajectory
    lazy = stored.nbytes > EAGER_BYTES and stored.ndim == 2 and stored.shape[0] > 1
    return OutputTimes(stored if lazy else load_array(stored), stored.where, unit, starts)


class ChosenTimes:
    """Stamps of an option as a clock counts them, and which lie within the rows of n trajectories.

    spans: the first and last (exclusive) stamp within the rows [n, 2]. firsts: the first of these
    stamps, as stored [n]. shifts: the same in seconds from the first row [n]; None where stamps
    count from there. farthest: how far outside the farthest stamp lies, in seconds.
    """

    def __init__(
        self,
        times: OutputTimes,
        numbers: Integers,
        clock: StartStamps | None,
        ends: Floats,
        slack: Floats,
    ) -> None:
        """numbers [n]: the trajectories of the file of stamps. clock: the stamps of their first
        rows; None: the stamps count from there. ends, slack [n]: when the rows end, and how far
        that may be off by rounding, in seconds."""
        self.times, self.numbers, self._clock, self._slack = times, numbers, clock, slack
        # an unknown unit is taken as seconds, as everywhere
        self.unit = times.unit or parse_time_unit(clock[1] if clock else "s") or Unit("s")
        self.faults, self.farthest = list[Fault](), 0.0
        spans, firsts, shifts = [], [], []
        for k, (number, end) in enumerate(zip(numbers.tolist(), ends.tolist(), strict=True)):
            stamps = times.stamps(np.array([number]))[0]
            if k == 0 or times.differ:
                ordered = np.isfinite(stamps)
                with np.errstate(invalid="ignore"):
                    ordered[1:] &= stamps[1:] > stamps[:-1]
                if not ordered.all():
                    entry = int(np.argmin(ordered))
                    raise InputError(
                        "times that do not increase",
                        where=f"{times.where}, trajectory {number}, entry {entry}",
                        expected="strictly increasing times",
                        found=repr(stamps[entry].item()),
                    )
            times_in_s, spare = self.seconds(k)
            # the end is within the rows, so that the search has to go on behind it
            bounds = [-spare, np.nextafter(end + spare, np.inf)]
            begin, stop = np.searchsorted(times_in_s, bounds).tolist()
            spans.append([begin, stop])
            # where all stamps are before the rows, the last stands in for the first within them
            first = min(begin, len(times_in_s) - 1)
            firsts.append(stamps[first])
            shifts.append(times_in_s[first])
            if begin or stop < len(times_in_s):
                before, after = -float(times_in_s[0]), float(times_in_s[-1]) - end
                late = len(times_in_s) - stop
                self.farthest = max(self.farthest, before, after)
                sides = [f"{begin} before the first row, by up to {before:.6g} s"] * (begin > 0)
                sides += [f"{late} after the last, by up to {after:.6g} s"] * (late > 0)
                self.faults.append(
                    Fault(
                        "times that are not within the trajectory",
                        where=f"{times.where}, trajectory {number}, entry {0 if begin else stop}",
                        expected=f"0 to {end!r} s from the first row",
                        found=f"of {len(times_in_s)} times " + ", ".join(sides),
                        hint="--skip-bad leaves them out",
                    )
                )
        self.spans, self.firsts = np.array(spans), np.array(firsts)
        self.shifts: Floats | None = None if clock is None else np.array(shifts)

    def seconds(self, k: int) -> tuple[Floats, float]:
        """Counts all stamps in seconds from the first row, and how far off they may be."""
        number, clock, spare = int(self.numbers[k]), self._clock, float(self._slack[k])
        stamps, starts = self.times.stamps(np.array([number]))[0], self.times.starts
        if clock is None:
            return divide(stamps, self.unit.per_si), spare
        # stamp = value + the zero of the file's times on the source's clock, if it states one
        terms = [(stamps[0], self.unit.name)]
        if starts is not None:
            terms.append((starts[0][number % len(starts[0])], starts[1]))
        # The difference of the first stamps is exact, as int64 nanoseconds since 1970 have more
        # digits than float64; the other stamps are counted from the first, and are small numbers.
        first, source = sum(exact_seconds(*term) for term in terms), (clock[0][k], clock[1])
        units = [(stamp, parse_time_unit(text) or Unit("s")) for stamp, text in [*terms, source]]
        spare += sum(stamp_rounding(stamp) / unit.per_si for stamp, unit in units)
        return in_seconds(stamps, self.unit, True) + float(first - exact_seconds(*source)), spare

    @property
    def counts(self) -> Integers:
        return self.spans[:, 1] - self.spans[:, 0]

    def take(self, indices: Integers) -> ChosenTimes:
        selection = copy(self)
        selection.numbers, selection.spans = self.numbers[indices], self.spans[indices]
        selection.firsts = self.firsts[indices]
        selection.shifts = None if self.shifts is None else self.shifts[indices]
        return selection

    @property
    def clock_name(self) -> str:
        counted = self.shifts is None
        return "counted from the first row" if counted else "stamps of the source's clock"

    @property
    def remark(self) -> str:
        """A note on the clock, and on how many stamps lie within the rows."""
        count, least, most = self.times.values.shape[-1], min(self.counts), max(self.counts)
        counts = f"{least} to {most}" if least < most else str(least)
        return f"{self.times.where}: {self.clock_name}; {counts} of {count} lie within the rows"

    @property
    def times_differ(self) -> bool:
        return self.times.differ or bool((self.spans != self.spans[:1]).any())

    def row_times(self, indices: Integers) -> tuple[Floats, Floats]:
        """Computes times [1 or b, N] in seconds from the first row, and from the first of them."""
        spans, stamps = self.spans[indices], self.times.stamps(self.numbers[indices])
        if (spans == spans[0]).all():  # one line of times for all, where they share it
            stamps = stamps[:, slice(*spans[0].tolist())]
        else:
            columns = spans[:, :1] + np.arange(spans[0, 1] - spans[0, 0])
            stamps = np.broadcast_to(stamps, (len(spans), stamps.shape[1]))
            stamps = np.take_along_axis(stamps, columns, 1)
        since: Floats = in_seconds(stamps, self.unit, True)
        if self.shifts is None:
            return divide(stamps, self.unit.per_si), since
        # stays one line [1, N] where all trajectories begin at the same stamp
        shifts = self.shifts[indices, None]
        same = len(since) == 1 and (shifts == shifts[0]).all()
        return since + (shifts[:1] if same else shifts), since

    def start_stamps(self, clock: StartStamps) -> StartStamps:
        """Finds the stamps of the first rows that are written on the clock of the source's rows."""
        starts, text = clock
        if self.shifts is not None:
            if self.times.starts is None:
                return self.firsts, self.unit.name
            zeros, text = self.times.starts
            starts = zeros[self.numbers % len(zeros)]
        return add_seconds(starts, divide(self.firsts, self.unit.per_si), text), text


def choose_clock(
    times: OutputTimes, numbers: Integers, clock: StartStamps | None, ends: Floats, slack: Floats
) -> ChosenTimes:
    """Finds out which clock stamps are of: that of the source, or one that begins at the first row.

    It is whichever puts more of them within the rows or, where none are, puts them nearer.
    """
    clocks: list[StartStamps | None] = [None] if clock is None else [clock, None]
    # the clock comes first, so that it is taken where both put all stamps within the rows
    readings = [ChosenTimes(times, numbers, start, ends, slack) for start in clocks]
    return max(readings, key=lambda reading: (reading.counts.sum(), -reading.farthest))
