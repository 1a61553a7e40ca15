"""Trajectories and actions at another rate, or at any times: rows of one curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import takewhile
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from trajcli.arrays import as_array, cast, float64, matched, output_dtype, readable, to_numpy
from trajcli.checks import describe, time_stamp_faults
from trajcli.errors import Fault, InputError, UsageError, raise_if_any
from trajcli.interpolation import METHODS, curve_through, finite_orders
from trajcli.modes import PARTS
from trajcli.sampling import count_at, located, polynomial_order, sample
from trajcli.trajectory import Trajectory

Array = Any
"""numpy.ndarray or torch.Tensor."""
Floats: TypeAlias = npt.NDArray[np.float64]
Parts: TypeAlias = Mapping[str, Array]
"""Outputs [B, T, D] by name."""
Curve: TypeAlias = Callable[[Array], Parts]
"""Outputs at times [1 or B, N] from the first row on."""


def resample(
    rows: Trajectory | Array,
    method: str | None = None,
    *,
    rate: float | None = None,
    at: Array | None = None,
    dt: float | None = None,
    times: Array | None = None,
    hold: float = 0.0,
) -> Trajectory:
    """One curve through rows, and its own derivatives, at ``rate`` or at the times ``at``.

    rows: a ``Trajectory``, or positions (or actions) [B, T, D] or [T, D] that lie ``dt``
    seconds apart or at ``times`` [T] or [B, T]; NumPy or torch. All new times are seconds from the
    first row: ``at`` [N], or [B, N]; or k/``rate`` up to the last row. A row's own time gives that
    row, and the derivatives of the step that ends there. Returns outputs [B, N, D] in the rows'
    type (integers: float64, half precision: float32), differentiable with respect to rows and
    times; None for a derivative that is not finite everywhere.

    The method None is exact for a trajectory that is a known polynomial between its rows, as in
    ``sample``, and else ``linear``:

    - ``hold``: each row until the next; no derivatives. ``times`` may have one entry more, the end
      of the last row: actions then act from their time to the next, and the new rows end before.
    - ``linear``: straight lines, and their velocity.
    - ``ramp-and-hold``: lines that reach the next row early, by ``hold`` of the step, below 1.
    - ``cubic``: by the rows' velocities, where a trajectory has them, position, velocity and
      acceleration of the Hermite curve; else the spline through the positions, with the
      not-a-knot condition at both ends, and its jerk as well.
    - ``quintic``: the Hermite curve through position, velocity and acceleration; all derivatives.

    Of a trajectory without positions its lowest quantity is the curve. Raises InputError or
    UsageError for shapes, times, rates and methods that are wrong.
    """
    raise_if_any(option_faults(method, hold), UsageError)
    if isinstance(rows, Trajectory):
        if dt is not None or times is not None:
            raise UsageError(
                "a trajectory has times of its own", where="dt, times", expected="neither"
            )
        parts, times = rows.outputs(), rows.time
    else:
        values = as_array(rows, "rows")
        parts = {PARTS[0]: values[None] if values.ndim == 2 else values}
    first = next(iter(parts.values()))
    new, within, knots = placed(first, rate, at, dt, times, method)
    if method is None and isinstance(rows, Trajectory) and is_known(rows.mode, rows.options):
        curve = curve_of_mode(rows.mode, rows.options, parts, knots)
    else:
        curve = curve_of_rows(method or "linear", parts, knots, hold)
    outputs = curve(within)
    p, v, a, j = (outputs.get(name) for name in PARTS)
    return Trajectory(p, v, a, j, float64(new))


def placed(
    rows: Array,
    rate: float | None,
    at: Array | None,
    dt: float | None,
    times: Array | None,
    method: str | None = None,
) -> tuple[Array, Array, Array]:
    """Returns the new times, the same as times within the rows [B, T, D] ([1 or B, N]), and the
    times of these [1 or B, T], from 0 on; raises as :func:`resample`."""
    if (rate is None) == (at is None):
        raise UsageError("one of rate and at says where the new rows lie", where="rate, at")
    knots, rounding, durations = _knots(rows, dt, times, method)
    acting = knots.shape[1] > rows.shape[1]
    if at is None:
        if durations is None:
            raise UsageError(
                "a rate needs times that can be read",
                where="times",
                found="tensors within torch.func",
                hint="at= names the new times",
            )
        new = _uniform(rate, durations, rounding, acting)
        within = np.minimum(new, durations)  # the last, but for rounding
    else:
        new = within = as_array(at, "at")
    new, within = (matched(x, rows) for x in (new, within))
    return new, located(within, knots, rows.shape[0], rounding), knots


def is_known(mode: str, options: Mapping[str, Any]) -> bool:
    """Whether the rows of a mode are joined by polynomials that are known."""
    return mode == "bspline" or options.get("scheme") in ("zoh", "foh")


def curve_of_mode(mode: str, options: Mapping[str, Any], parts: Parts, knots: Array) -> Curve:
    """Those polynomials through rows [B, T, D] by name, at knots [1 or B, T].

    Of a cascade that holds its action, derivatives above that are not finite.
    """
    p, v, a, j = (parts.get(name) for name in PARTS)
    whole = Trajectory(p, v, a, j, knots, mode, options)
    finite = finite_parts_of_mode(mode, options, parts)

    def curve(at: Array) -> Parts:
        samples = sample(whole, at).outputs()
        return {name: samples[name] for name in finite}

    return curve


def finite_parts_of_mode(mode: str, options: Mapping[str, Any], parts: Iterable[str]) -> list[str]:
    """Those of the outputs that are finite everywhere between the rows of a mode."""
    order = polynomial_order(mode, options, "trajectory") + (options.get("scheme") == "foh")
    return [name for name in PARTS[: order + 1] if name in parts]


def curve_of_rows(method: str, parts: Parts, knots: Array, hold: float = 0.0) -> Curve:
    """The curve of a method through the lowest of the rows [B, T, D] by name.

    Raises UsageError for derivatives that the method takes and that are not there.
    """
    given = _consecutive(parts)
    evaluate = curve_through(method, [float64(parts[name]) for name in given], knots, hold)
    names, dtype = finite_parts(method, parts), output_dtype(parts[given[0]].dtype)

    def curve(at: Array) -> Parts:
        values = zip(names, evaluate(at), strict=False)  # what is above jerk has no name
        return {name: cast(x, dtype) for name, x in values}

    return curve


def finite_parts(method: str, parts: Iterable[str]) -> tuple[str, ...]:
    """The outputs of the curve through the lowest of these: those that are finite everywhere."""
    given = _consecutive(parts)
    lowest = PARTS.index(given[0])
    return PARTS[lowest : lowest + finite_orders(method, len(given))]


def _consecutive(parts: Iterable[str]) -> list[str]:
    """The lowest of the outputs, and those above it up to the first that is missing."""
    known = set(parts)
    above = PARTS[min(map(PARTS.index, known)) :]
    return list(takewhile(known.__contains__, above))


def new_count(rate: float, duration: float, rounding: float = 0.0, acting: bool = False) -> int:
    """How many rows there are at ``rate`` within a duration whose end may be off by ``rounding``.

    acting: the end is that of the last action, and no row.
    """
    if not acting:
        return count_at(rate, duration + rounding)
    return max(1, math.ceil(duration * rate * (1 - 1e-12) - 1e-9 - rounding * rate))


def option_faults(method: str | None, hold: float) -> list[Fault]:
    """What is wrong with the options of a method."""
    faults = []
    if method not in (None, *METHODS):
        faults.append(
            Fault("unknown method", where="method", expected=", ".join(METHODS), found=repr(method))
        )
    if not 0.0 <= hold < 1.0:
        faults.append(
            Fault(
                "a hold as long as the step", where="hold", expected="0 ≤ hold < 1", found=str(hold)
            )
        )
    if hold and method != "ramp-and-hold":
        faults.append(
            Fault("a hold is part of ramp-and-hold", where="hold", expected="0", found=str(hold))
        )
    return faults


def _knots(
    rows: Array, dt: float | None, times: Array | None, method: str | None
) -> tuple[Array, float, Floats | None]:
    """The times of the given rows from 0 on, [1 or B, T], how far they may be off, and the last
    of them, [1 or B, 1]: None where times cannot be read, as in torch.func."""
    shape = tuple(rows.shape)
    if len(shape) != 3 or shape[1] < 1:
        raise InputError(
            "wrong shape", where="rows", expected="[B, T, D], T >= 1", found=describe(shape)
        )
    if (dt is None) == (times is None):
        raise UsageError("one of dt and times says where the rows lie", where="dt, times")
    if times is None:
        assert dt is not None
        if not (math.isfinite(dt) and dt > 0):
            raise InputError(
                "a step that is not positive and finite",
                where="dt",
                expected="dt > 0, in seconds",
                found=repr(dt),
            )
        even = np.arange(float(shape[1]))[None] * dt
        return matched(even, rows), 0.0, even[:, -1:]
    given = as_array(times, "times")
    stamps = matched(given, rows)
    stamps = stamps[None] if stamps.ndim == 1 else stamps
    counts = (shape[1], shape[1] + 1) if method == "hold" else (shape[1],)
    if stamps.ndim != 2 or stamps.shape[0] not in (1, shape[0]) or stamps.shape[1] not in counts:
        raise InputError(
            "wrong number of time stamps",
            where="times",
            expected=f"[{shape[1]}] or {describe(shape[:2])}",
            found=describe(given.shape),
        )
    rounding, durations = 0.0, None
    if readable(given):
        values = to_numpy(given).reshape(stamps.shape)
        raise_if_any(time_stamp_faults(values, "times"))
        rounding, durations = rounding_of(values), _from_first(values)[:, -1:]
    return _from_first(stamps), rounding, durations


def _from_first(stamps: Array) -> Array:
    """Seconds from the first stamp of each row of [b, T]; integers may be large."""
    wide = float64(stamps) if "float" in str(stamps.dtype) else stamps
    return float64(wide - wide[:, :1])


def rounding_of(stamps: npt.NDArray[Any], kind: np.dtype[Any] | None = None) -> float:
    """How far time stamps, and differences of them, may be off because of their type, or of the
    kind that they were converted from."""
    largest = float(np.abs(stamps.astype(np.float64)).max(initial=0.0))
    kind = kind or stamps.dtype
    small = kind.kind == "f" and kind.itemsize < 8
    return 4.0 * float(np.spacing(np.asarray(largest, kind if small else np.float64)))


def _uniform(rate: float | None, durations: Floats, rounding: float, acting: bool) -> Floats:
    """Times k/rate [N] within all trajectories, which have to last as long as each other."""
    if rate is None or not (math.isfinite(rate) and rate > 0):
        raise UsageError(
            "a rate that is not positive", where="rate", expected="Hz > 0", found=str(rate)
        )
    counts = {new_count(rate, duration, rounding, acting) for duration in durations[:, 0].tolist()}
    if len(counts) > 1:
        least, most = min(counts), max(counts)
        raise InputError(
            "trajectories of different duration",
            where="rate",
            expected="one",
            found=f"{least} to {most} rows",
            hint="at= names times [N] for all, or [B, N]",
        )
    return np.arange(counts.pop()) / rate
