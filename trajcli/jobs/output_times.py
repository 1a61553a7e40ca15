"""What resample --to and --at name: the times of the rows that it writes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trajcli.checks import describe
from trajcli.errors import InputError, UsageError
from trajcli.files.arrays import in_memory
from trajcli.files.opening import Files
from trajcli.files.stacked import Values, rows_by_number
from trajcli.files.stored_time import stored_times
from trajcli.files.time import Floats
from trajcli.sampling import outside
from trajcli.units import KNOWN_TIMES, parse_time_unit


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
            raise InputError(
                "wrong shape of times",
                where=self.where,
                expected=f"[N], or [{count}, N] for {count} trajectories",
                found=describe(shape),
            )

    @property
    def count(self) -> int | None:
        """How many times a file names; None of a rate."""
        return None if self.stamps is None else int(self.stamps.shape[-1])

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
        raise InputError(
            what,
            where=f"{self.where}, trajectory {numbers[trajectory]}, entry {entry}",
            expected=expected,
            found=repr(float(value)),
        )


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
    stored = files.dataset(str(at))
    # times from the first row: as of steps, no first value is subtracted
    values, unit, _ = stored_times(stored, None, stamps=False)
    if unit and parse_time_unit(unit) is None:
        raise InputError("unknown unit", where=stored.where, expected=KNOWN_TIMES, found=unit)
    return OutputTimes(stored.where, stamps=values)
