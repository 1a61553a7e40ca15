"""The times of the rows that a run writes, where these are not the rows of its mode."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from trajcli.checks import describe
from trajcli.errors import Fault, InputError, UsageError
from trajcli.files.opening import Files
from trajcli.files.stored_time import stored_times
from trajcli.files.time import Floats
from trajcli.jobs.request import Request
from trajcli.jobs.resolved import Resolved, ResolvedInputs
from trajcli.jobs.segments import Segment, Values, in_memory, rows_by_number
from trajcli.sampling import count_at, outside, polynomial_order
from trajcli.units import KNOWN_TIMES, parse_time_unit

_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True)
class OutputTimes:
    """Rows at ``rate``, in Hz, from the first on, or at the times ``stamps`` [N] or [B, N]."""

    where: str
    rate: float | None = None
    stamps: Values | None = None

    @property
    def differ(self) -> bool:
        """Whether trajectories have times of their own."""
        return self.stamps is not None and self.stamps.ndim == 2 and self.stamps.shape[0] > 1

    @property
    def step(self) -> float | str:
        """The step between rows, or "varies"."""
        return "varies" if self.rate is None else 1.0 / self.rate

    def require_shape(self, count: int) -> None:
        """Raise InputError for times of another number of trajectories."""
        if self.stamps is None:
            return
        shape = self.stamps.shape
        if len(shape) not in (1, 2) or not shape[-1] or shape[:-1] not in ((), (1,), (count,)):
            expected = f"[N], or [{count}, N] for {count} trajectories"
            raise InputError(Fault("wrong shape of times", self.where, expected, describe(shape)))

    def grouped(self, resolved: Resolved) -> Resolved:
        """The same trajectories, each with the number of rows that are written of it."""
        segments = [one for part in resolved.by_length for one in self._segments(part)]
        return replace(resolved, segments=segments)

    def _segments(self, part: ResolvedInputs) -> Iterator[Segment]:
        counts, first = self._counts(part), 0
        for segment in part.segments:
            own = counts[first : first + len(segment.trajectories)]
            first += len(own)
            for count in dict.fromkeys(own.tolist()) or [self.count or 1]:
                yield replace(segment.only(own == count), output_rows=count)

    @property
    def count(self) -> int | None:
        """How many times a file names; None of a rate."""
        return None if self.stamps is None else int(self.stamps.shape[-1])

    def _counts(self, part: ResolvedInputs) -> npt.NDArray[np.int64]:
        """How many rows are written of each trajectory [n]."""
        batch, rows = len(part.numbers), part.inputs.rows
        counts = np.full(batch, self.count or 0)
        if self.rate is None:
            return counts
        size = max(1, _BLOCK_BYTES // (8 * rows)) if part.inputs.steps_differ else max(1, batch)
        for begin in range(0, batch, size):
            end = min(begin + size, batch)
            durations = part.stepped(begin, end).row_times()[:, -1].tolist()
            counts[begin:end] = [count_at(self.rate, duration) for duration in durations]
        return counts

    def of(self, numbers: npt.NDArray[np.int64], rows: int, knots: Floats) -> Floats:
        """The times [1 or b, N] of so many rows of these trajectories, which have rows at knots.

        Raises InputError for times that do not increase, or are not within them.
        """
        if self.rate is not None:
            return np.arange(rows)[None] / self.rate
        stored = rows_by_number(self.stamps, numbers) if self.differ else self.stamps
        times = np.atleast_2d(in_memory(stored).astype(np.float64))
        with np.errstate(invalid="ignore"):
            gaps = np.diff(times, axis=1, prepend=-np.inf)
        unordered = np.argwhere(~(np.isfinite(times) & (gaps > 0)))
        place = unordered[0].tolist() if len(unordered) else outside(times, knots)
        if place is None:
            return times
        trajectory, entry = place
        first, last = knots[min(trajectory, len(knots) - 1), [0, -1]].tolist()
        within = "a time that is not within the trajectory", f"{first!r} to {last!r} s"
        increasing = "times that do not increase", "strictly increasing seconds"
        what, expected = increasing if len(unordered) else within
        value = times[min(trajectory, len(times) - 1), entry]
        where = f"{self.where}, trajectory {numbers[trajectory]}, entry {entry}"
        raise InputError(Fault(what, where, expected, repr(float(value))))


def times_of_run(request: Request, files: Files, resolved: Resolved) -> OutputTimes:
    """What --to or --at of integrate names; raises TrajcliError beside gradients, for a mode
    without polynomials, and for times of other trajectories than these."""
    option, mode = "--at" if request.to is None else "--to", resolved.mode
    if request.grad is not None or request.cost is not None:
        what, where = "gradients are those of the mode's own rows", f"{option}, --grad and --cost"
        hint = f"leave {option} out; in Python trajcli.sample is differentiable"
        raise UsageError(Fault(what, where, hint=hint))
    times = output_times(files, request.to, request.at)
    polynomial_order(mode.name, mode.options(resolved.request.recorded), times.where)
    if mode.options().get("frames") == "actions":
        what, expected = "rows from the start on", "frames full or curobo"
        raise UsageError(Fault(what, f"{times.where}, --frames", expected, "actions"))
    times.require_shape(resolved.count)
    return times


def output_times(files: Files, to: float | None, at: str | None) -> OutputTimes:
    """What --to or --at names. Raises TrajcliError for what is none."""
    if (to is None) == (at is None):
        what = "no rate and no times" if to is None else "a rate and times"
        raise UsageError(Fault(what, "--to and --at", "one of them"))
    if to is not None:
        if not (math.isfinite(to) and to > 0):
            raise UsageError(Fault("a rate that is not positive", "--to", "Hz > 0", f"{to:g}"))
        return OutputTimes(f"--to {to:g}", rate=to)
    stored = files.dataset(str(at))
    values, unit, _ = stored_times(stored, None, stamps=True)
    if unit and parse_time_unit(unit) is None:
        raise InputError(Fault("unknown unit", stored.where, KNOWN_TIMES, unit))
    return OutputTimes(stored.where, stamps=values)
