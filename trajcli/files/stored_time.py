"""What files and options say of times. The one place that reads it.

Every command takes the first of: an option; stamps or steps beside the arrays; what the layout
says; an attribute ``dt`` or a rate. Steps and stamps that contradict each other are an error.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import Dataset, ReadApart
from trajcli.files.conversion import converted, divided, stated_unit
from trajcli.files.source import Origin
from trajcli.files.time import Floats, Lengths, Time, Values
from trajcli.memory import EAGER_BYTES
from trajcli.units import KNOWN_TIMES, Unit, parse_time_unit

STAMPS: tuple[str, ...] = ("times", "time")
LIKELY_STAMPS = ("timestamps", "timestamp", "stamps", "stamp", "t")
"""What time stamps are called, too."""
RATES = ("control_freq", "rate", "frequency", "fps", "hz")
"""Attributes in which files give steps per second."""
# What is not converted: lower case, without a final s.
_OTHER_TIMES = {"min", "minute", "h", "hr", "hour", "d", "day"}
# What stamps are in that are at least so large: as seconds they are after the year 5000.
_CLOCKS = {"ns": 1e17, "us": 1e14, "ms": 1e11}
# Stamps of a trajectory that are looked at together.
_FEW = 1 << 16
# How far steps may be from a stored dt, and their mean from an attribute dt, as a share of it.
_SAME_STEP, _NOMINAL_STEP = 1e-3, 1e-2


def read_time(
    stored: Dataset,
    stamps: bool,
    given: Unit | None = None,
    lengths: Lengths | None = None,
    nominal: float | None = None,
) -> Time:
    """The time that a dataset of steps or stamps gives, in the given unit or else in its own.

    lengths [B]: how many stamps each trajectory has where the others are padding. nominal: the
    step that is said elsewhere, used where it fits the stamps. Raises InputError for a unit that
    is not converted.
    """
    if stamps and stored.shape[1:] == (1,):  # [T, 1], a column of a table or of MATLAB's
        rows = stored.reader
        stored = replace(stored, shape=stored.shape[:1], reader=lambda *part: rows(*part)[:, 0])
    values, unit, source = stored_times(stored, given, stamps)
    step = None
    kind = None if values.dtype == stored.dtype or stored.dtype.kind != "f" else stored.dtype
    if not isinstance(values, Dataset) and stamps:
        step = equal_step(values, lengths, nominal, kind)
    elif not isinstance(values, Dataset) and values.size and (values == values.flat[0]).all():
        step = float(values.flat[0])
    held = values if step is None else None
    dt, of_rows = (step, held) if stamps else (held if step is None else step, None)
    source = Origin(source.path, source.after, "time stamps " * stamps)
    clock = stored if stamps and stored.ndim in (1, 2) and stored.shape[-1] else None
    if clock is not None and clock.ndim == 1:
        line = ReadApart(lambda _, first, last: stored.read_rows(first, last), stored.shape)
        clock = replace(stored, shape=(1, *stored.shape), reader=line)
    return Time(source, stored.where, dt, of_rows, shape=stored.shape, stamped=stamps, unit=unit,
                converted_from=kind, clock=clock)  # fmt: skip


def stored_times(stored: Dataset, given: Unit | None, stamps: bool) -> tuple[Values, str, Origin]:
    """Numbers in seconds, what their unit was, and where they are from; many with values for every
    trajectory stay where they are. Raises InputError for minutes, hours and days."""
    text = given.name if given is not None else stated_unit(stored)
    unit = given or parse_time_unit(text)
    if unit is None and text.rstrip("s").lower() in _OTHER_TIMES:
        raise InputError(
            "a unit that is not converted",
            where=stored.where,
            expected=KNOWN_TIMES,
            found=text,
            hint="divide them first, or give the step: --dt SECONDS, --rate HZ",
        )
    stored.require_numeric()
    by_size = "" if unit is not None or text or not stamps else unit_by_size(stored)
    unit = parse_time_unit(by_size) or unit
    lazy = stored.nbytes > EAGER_BYTES and stored.ndim == 2 and stored.shape[0] > 1
    if unit is None or unit.per_si == 1.0:
        return (stored if lazy else np.asarray(stored.read())), text, stored.where
    convert = partial(_in_seconds, unit=unit, stamps=stamps)
    values = converted(stored, convert) if lazy else convert(np.asarray(stored.read()))
    said = stored.where.then(f", in {unit}" + " since 1970 by their size" * bool(by_size))
    return values, text or by_size, said


def unit_by_size(stored: Dataset) -> str:
    """Returns the unit of stamps that are too large for seconds since 1970; "" of others."""
    first = np.ravel(stored.read_rows(0, 1)) if stored.shape[:1] > (0,) else np.zeros(1)
    size = float(np.abs(first[:1], dtype=np.float64).sum())
    return next((name for name, least in _CLOCKS.items() if least <= size < 1e20), "")


def stamps_after(stamps: npt.NDArray[Any], seconds: Any, unit: str) -> npt.NDArray[Any]:
    """Returns the stamps of a clock so many seconds after these, in their unit and type."""
    known = parse_time_unit(unit)
    since = seconds * (1.0 if known is None else known.per_si)
    whole = stamps.dtype.kind in "iu"
    return np.asarray(stamps + (np.rint(since).astype(stamps.dtype) if whole else since))


def _in_seconds(values: Any, unit: Unit, stamps: bool) -> Any:
    """Stamps [T] or [b, T] from each first one, or steps, in seconds.

    What a clock has counted since 1970 is more than float64 seconds hold, so the first stamp is
    subtracted before they are divided: of integers without rounding, and of floats that are as
    near to each other as stamps are.
    """
    if stamps and values.size:
        wide = values.astype(np.int64 if values.dtype.kind in "iu" else np.float64)
        first = wide[..., :1]
        with np.errstate(invalid="ignore"):
            values = wide - np.where(np.isfinite(first), first, 0)
    return divided(values, unit.per_si)


def equal_step(
    stamps: npt.NDArray[Any],
    lengths: Lengths | None = None,
    nominal: float | None = None,
    kind: np.dtype[Any] | None = None,
) -> float | None:
    """The step of stamps [T] or [B, T] that are equally spaced up to their rounding, else None.

    A step fits where it gives every stamp within four spacings of the largest. Of those that
    fit, the nominal one wins, then a whole number of Hz, then the one with the fewest digits.
    lengths, nominal: as for :func:`read_time`. kind: the type that they are rounded to, if not
    their own.
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
        rounding = 4 * float(_spacing(stamps, kind))

        def fits(step: float) -> bool:
            for begin in range(0, count, _FEW):  # of many, as of a bag, no copy is made
                part = wide[:, begin : begin + _FEW]
                rows = np.arange(begin, begin + part.shape[1])
                near = np.abs(part - wide[:, :1] - step * rows) <= rounding
                if not (near | (rows >= counts[:, None])).all():
                    return False
            return True

        if not fits(mean):
            return None
    rate = round(1.0 / mean) if mean > 1e-9 else 0
    candidates = [] if nominal is None else [nominal]
    candidates += [1.0 / rate] if rate else []
    candidates += [float(f"{mean:.{digits}g}") for digits in range(1, 17)]
    return next((step for step in candidates if fits(step)), mean)


def _spacing(stamps: npt.NDArray[Any], kind: np.dtype[Any] | None) -> Any:
    """The rounding of the largest stamp; integers above 2^53 are rounded when they are read."""
    ends = [float(np.nanmin(stamps)), float(np.nanmax(stamps))]
    largest = max(map(abs, ends))
    kind = kind or stamps.dtype
    small = kind.kind == "f" and kind.itemsize < 8
    return np.spacing(np.asarray(largest, kind if small else np.float64))


def reconciled(steps: Time | None, stamps: Time | None) -> Time | None:
    """The one of steps and stamps of one group to use; InputError where they contradict each other.

    Where they agree, steps if they are one number, else the stamps.
    """
    if steps is None or stamps is None:
        return steps or stamps
    gaps = _gaps(stamps)
    if gaps is None or isinstance(steps.dt, Dataset):
        return stamps
    stored = steps.steps(0, steps.batch)
    count = gaps.shape[1]
    if stored.shape[1] > count > 1:
        stored = stored[:, -count:]  # the first of T steps leads into row 0
    slack = 0.0
    if stamps.stamps is not None:
        slack = 4 * float(_spacing(np.asarray(stamps.stamps), stamps.converted_from))
    fits = not 1 < stored.shape[1] < count
    if fits:  # also where stamps are padding
        same = np.abs(gaps - stored) <= _SAME_STEP * np.abs(stored) + slack
        fits = bool((same | np.isnan(gaps)).all())
    if not fits:
        raise InputError(_contradiction(steps.where, float(stored.mean()), stamps, gaps))
    return steps if steps.uniform is not None else stamps


def require_nominal(time: Time, where: str, dt: float) -> None:
    """Raise InputError where stamps have another step on average than an attribute dt says."""
    gaps = _gaps(time)
    if gaps is not None and gaps.size and abs(float(gaps.mean()) - dt) > _NOMINAL_STEP * dt:
        raise InputError(_contradiction(where, dt, time, gaps))


def _gaps(time: Time) -> Floats | None:
    """Steps [b or 1, n] of a time at hand; None of stamps that are read block by block."""
    if time.uniform is not None:
        return np.full((1, 1), time.uniform)
    if time.stamps is None or isinstance(time.stamps, Dataset) or time.stamps.ndim == 0:
        return None
    return np.diff(np.atleast_2d(time.stamps).astype(np.float64), axis=1)


def _contradiction(where: str, dt: float, stamps: Time, gaps: Floats) -> Fault:
    return Fault(
        "dt and time stamps that contradict each other",
        where=f"{where} and {stamps.where}",
        expected="equal steps in both",
        found=f"dt {dt:g} s, and stamps {float(gaps.mean()):g} s apart on average",
        hint="--dt or --times says which to use",
    )
