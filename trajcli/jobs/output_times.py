"""What resample --to and --at name: the times of the rows that it writes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.arrays import describe
from trajcli.errors import Fault, InputError, UsageError
from trajcli.files.arrays import ArrayFile, Dataset, in_memory
from trajcli.files.conversion import divided, stated_unit
from trajcli.files.opening import Files
from trajcli.files.source import expand_files, parse_source
from trajcli.files.stacked import Values, rows_by_number
from trajcli.files.stored_time import STAMPS, stamps_after, unit_by_size
from trajcli.files.time import Floats
from trajcli.memory import EAGER_BYTES
from trajcli.resampling import rounding_of
from trajcli.units import KNOWN_TIMES, Unit, parse_time_unit

Numbers = npt.NDArray[np.int64]
Clock = tuple[npt.NDArray[Any], str]
"""A stamp of each trajectory [n] as its source has it, and the unit of these stamps."""


@dataclass(frozen=True)
class OutputTimes:
    """Rows at ``rate``, in Hz, from the first on, or at the stamps of a file, [N] or [B, N].

    unit: of the stamps, where the file says it. starts: the stamps of a clock at which the times of
    an output of trajcli, which begin at 0, are 0.
    """

    where: str
    rate: float | None = None
    values: Values | None = None
    unit: Unit | None = None
    starts: Clock | None = None

    @property
    def differ(self) -> bool:
        """Whether the file has stamps for each trajectory."""
        return self.values is not None and self.values.ndim == 2 and self.values.shape[0] > 1

    @property
    def step(self) -> float | str:
        """The step between rows, or "varies"."""
        return "varies" if self.rate is None else 1.0 / self.rate

    def require_shape(self, count: int) -> None:
        """Raise InputError for times of another number of trajectories."""
        if self.values is None:
            return
        shape, several = self.values.shape, {1} if self.starts is None else {len(self.starts[0])}
        several |= {shape[0] if len(shape) == 2 else 1}
        if len(shape) not in (1, 2) or not shape[-1] or not several <= {1, count}:
            raise InputError(
                "wrong shape of times",
                where=self.where,
                expected=f"[N], or [{count}, N] for {count} trajectories",
                found=describe(shape),
            )

    def take(self, numbers: Numbers) -> OutputTimes:
        """Returns the times of some of the trajectories."""
        starts = self.starts
        if starts is not None and len(starts[0]) > 1:
            starts = starts[0][numbers], starts[1]
        values = rows_by_number(self.values, numbers) if self.differ else self.values
        return replace(self, values=values, starts=starts)

    def stamps(self, numbers: Numbers) -> npt.NDArray[Any]:
        """Returns the stamps [1 or b, N] of trajectories as they are stored."""
        chosen = rows_by_number(self.values, numbers) if self.differ else self.values
        return np.atleast_2d(in_memory(chosen))

    def require_order(self, number: int, stamps: npt.NDArray[Any]) -> None:
        """Raise InputError for stamps [N] of a trajectory that do not increase."""
        ordered = np.isfinite(stamps)
        with np.errstate(invalid="ignore"):
            ordered[1:] &= stamps[1:] > stamps[:-1]
        if not ordered.all():
            entry = int(np.argmin(ordered))
            raise InputError(
                "times that do not increase",
                where=f"{self.where}, trajectory {number}, entry {entry}",
                expected="strictly increasing times",
                found=repr(stamps[entry].item()),
            )


@dataclass(frozen=True)
class PlacedTimes:
    """The stamps of --at, seen from the first rows of n trajectories.

    parts [n, 2]: which of them lie within the rows. firsts [n]: the first of these, as stored.
    shifts [n]: the same in seconds from the first row, where stamps are of the source's clock; None
    where they count from the first row.
    """

    times: OutputTimes
    unit: Unit
    shifts: Floats | None
    parts: Numbers
    firsts: npt.NDArray[Any]

    @property
    def counts(self) -> Numbers:
        """How many rows each trajectory gets [n]."""
        counts: Numbers = self.parts[:, 1] - self.parts[:, 0]
        return counts

    @property
    def remark(self) -> str:
        """What to say of the clock, and of how many stamps lie within the rows."""
        named = self.shifts is not None
        which = "stamps of the source's clock" if named else "counted from the first row"
        inside, count = self.counts.tolist(), self.times.stamps(np.zeros(1, np.int64)).shape[1]
        some = f"{min(inside)} to {max(inside)}" if min(inside) < max(inside) else str(inside[0])
        return f"{self.times.where}: {which}; {some} of {count} lie within the rows"

    @property
    def own_times(self) -> bool:
        """Whether the times that are written differ by trajectory."""
        return self.times.differ or bool((self.parts != self.parts[:1]).any())

    def take(self, numbers: Numbers) -> PlacedTimes:
        """Returns the times of some of the trajectories."""
        shifts = None if self.shifts is None else self.shifts[numbers]
        return replace(
            self,
            times=self.times.take(numbers),
            shifts=shifts,
            parts=self.parts[numbers],
            firsts=self.firsts[numbers],
        )

    def of(self, numbers: Numbers) -> tuple[Floats, Floats]:
        """Returns the times [1 or b, N] of trajectories with equally many, from the first row and
        from the first of them."""
        parts, stamps = self.parts[numbers], self.times.stamps(numbers)
        if (parts == parts[0]).all():
            stamps = stamps[:, slice(*parts[0].tolist())]
        else:
            columns = parts[:, :1] + np.arange(parts[0, 1] - parts[0, 0])
            stamps = np.broadcast_to(stamps, (len(parts), stamps.shape[1]))
            stamps = np.take_along_axis(stamps, columns, 1)
        since = elapsed(stamps, self.unit)
        if self.shifts is None:
            return divided(stamps, self.unit.per_si), since
        shifts = self.shifts[numbers, None]
        same = len(since) == 1 and (shifts == shifts[0]).all()
        return since + (shifts[:1] if same else shifts), since

    def start_stamps(self, clock: Clock | None) -> Clock | None:
        """Returns the stamps, on the source's clock, of the first rows that are written; those of
        --at itself where they are of this clock. clock: the stamps of the source's first rows."""
        if clock is not None and self.shifts is not None:
            if self.times.starts is None:
                return self.firsts, self.unit.name
            clock = self.times.starts
        if clock is None:
            return None
        starts, text = clock
        return stamps_after(starts, divided(self.firsts, self.unit.per_si), text), text


def elapsed(stamps: npt.NDArray[Any], unit: Unit) -> Floats:
    """Returns stamps [b, N] in seconds from the first of each.

    What a clock has counted since 1970 is more than float64 seconds hold, so the first stamp is
    subtracted before they are divided.
    """
    wide = stamps.astype(np.int64 if stamps.dtype.kind in "iu" else np.float64)
    return divided(wide - wide[:, :1], unit.per_si)


def output_times(files: Files, to: float | None, at: str | None) -> OutputTimes:
    """What --to or --at names. Raises TrajcliError for what is none."""
    if (to is None) == (at is None):
        raise UsageError(
            "no rate and no times" if to is None else "a rate and times",
            where="--to and --at",
            expected="one of them",
        )
    if to is not None:
        if not (math.isfinite(to) and to > 0):
            raise UsageError(
                "a rate that is not positive", where="--to", expected="Hz > 0", found=f"{to:g}"
            )
        return OutputTimes(f"--to {to:g}", rate=to)
    file, name, stored = _stamps(files, str(at))
    text = stated_unit(stored) or unit_by_size(stored)
    unit = parse_time_unit(text)
    if text and unit is None:
        raise InputError("unknown unit", where=stored.where, expected=KNOWN_TIMES, found=text)
    starts = None
    if "trajcli_version" in file.attributes():
        first = file.get(f"{name.rpartition('/')[0]}/start_stamp".strip("/"))
        if first is not None:
            starts = np.ravel(first.read()), stated_unit(first) or "s"
    lazy = stored.nbytes > EAGER_BYTES and stored.ndim == 2 and stored.shape[0] > 1
    values = stored if lazy else in_memory(stored)
    return OutputTimes(stored.where, values=values, unit=unit, starts=starts)


def _stamps(files: Files, text: str) -> tuple[ArrayFile, str, Dataset]:
    """Returns the stamps FILE:DATASET with their file and name; of a group, such as a topic of a
    bag, or of a file, those within it."""
    source = parse_source(text)
    below = expand_files(source)
    file = files.open(below[0].path if len(below) == 1 else source.path)
    name = (source.dataset or "").strip("/")
    if source.dofs is not None or file.names() == [""]:
        return file, name, files.dataset(text)
    if file.get(name) is None:
        inside = (f"{name}/{stamps}".strip("/") for stamps in STAMPS)
        name = next((path for path in inside if file.get(path) is not None), name)
    return file, name, file.require(name).require_numeric() if name else files.dataset(text)


def placed(
    times: OutputTimes, clock: Clock | None, ends: Floats, slack: Floats
) -> tuple[PlacedTimes, list[Fault]]:
    """Finds out which clock the stamps of --at are of, and which of them lie within the rows.

    They are stamps of the source's clock, or count from the first row: whichever puts more of
    them within the rows or, where none are, puts them nearer. clock: the stamps of the first rows.
    ends, slack [n]: when the rows end, and how far that may be off by rounding, in seconds.

    Returns the stamps, and a fault for each trajectory with stamps outside its rows. Raises
    InputError for stamps that do not increase.
    """
    readings = [_placed(times, times.unit or Unit("s"), None, ends, slack)]
    if clock is not None:
        unit = times.unit or _unit_of(clock[1])
        readings.insert(0, _placed(times, unit, clock, ends, slack))
    return max(readings, key=lambda one: (one[0].counts.sum(), -one[2]))[:2]


def _placed(
    times: OutputTimes, unit: Unit, clock: Clock | None, ends: Floats, slack: Floats
) -> tuple[PlacedTimes, list[Fault], float]:
    """Returns the stamps as counted by a clock or, without one, from the first row; a fault for
    each trajectory with stamps outside its rows, and how far outside the farthest lies."""
    shifts = None if clock is None else np.zeros(len(ends))
    parts, firsts, faults, farthest = [], [], [], 0.0
    for number, end in enumerate(ends.tolist()):
        stamps, spare = times.stamps(np.array([number])), float(slack[number])
        if number == 0 or times.differ:
            times.require_order(number, stamps[0])
        if clock is not None and shifts is not None:
            terms = [(stamps[0, 0], unit.name)]
            if times.starts is not None:
                terms.append((times.starts[0][number % len(times.starts[0])], times.starts[1]))
            first, source = sum(map(_seconds, terms)), (clock[0][number], clock[1])
            at = elapsed(stamps, unit)[0] + float(first - _seconds(source))
            spare += sum(rounding_of(x) / _unit_of(text).per_si for x, text in [*terms, source])
        else:
            at = divided(stamps[0], unit.per_si)
        begin, stop = np.searchsorted(at, [-spare, np.nextafter(end + spare, np.inf)]).tolist()
        parts.append([begin, stop])
        kept = min(begin, len(at) - 1)
        firsts.append(stamps[0, kept])
        if shifts is not None:
            shifts[number] = at[kept]
        if begin or stop < len(at):
            before, after = -float(at[0]), float(at[-1]) - end
            farthest = max(farthest, before, after)
            sides = [f"{begin} before the first row, by up to {before:.6g} s"] * (begin > 0)
            sides += [f"{len(at) - stop} after the last, by up to {after:.6g} s"] * (stop < len(at))
            faults.append(
                Fault(
                    "times that are not within the trajectory",
                    where=f"{times.where}, trajectory {number}, entry {0 if begin else stop}",
                    expected=f"0 to {end!r} s from the first row",
                    found=f"of {len(at)} times " + ", ".join(sides),
                    hint="--skip-bad leaves them out",
                )
            )
    made = PlacedTimes(times, unit, shifts, np.array(parts), np.array(firsts))
    return made, faults, farthest


def _unit_of(text: str) -> Unit:
    """The unit of stamps; one that is not known is taken as seconds, as everywhere."""
    return parse_time_unit(text) or Unit("s")


def _seconds(stamp: tuple[Any, str]) -> Fraction:
    """Returns a stamp of this unit in seconds, exactly."""
    return Fraction(stamp[0].item()) / int(_unit_of(stamp[1]).per_si)
