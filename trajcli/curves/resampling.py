"""Resamples trajectories and actions: one curve through the rows, read at other times."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from typing import Any, NamedTuple, TypeAlias, get_args

import numpy as np

from trajcli.arrays import (
    DofChoice,
    as_array,
    cast,
    concatenate,
    dof_numbers,
    float64,
    interleave,
    library,
    match_library,
    number,
    output_dtype,
    readable,
    replace_dofs,
    seconds,
    time_stamp_faults,
    time_stamp_shape_faults,
    to_numpy,
)
from trajcli.curves.sampling import (
    HALF_ULP,
    beyond_rounding,
    derivative,
    finite_mode_outputs,
    half_ulp,
    is_known,
    locate_times,
    missing_parts,
    search,
    take,
)
from trajcli.errors import Fault, InputError, UsageError, raise_if_any, unknown, wrong_shape
from trajcli.inputs import Inputs, shape_faults
from trajcli.kernels.program import Array, ArrayLike, Booleans, Floats, NumpyArray
from trajcli.modes import MODES, QUANTITIES, make_mode
from trajcli.names import CurveName
from trajcli.padding import extend_steps, read_lengths, select_trajectories
from trajcli.trajectory import Trajectory, as_trajectory, sample
from trajcli.trajectory import concatenate as join_trajectories

Outputs: TypeAlias = Mapping[str, Array]
"""Outputs [B, T, D] by name."""
Curve: TypeAlias = Callable[[Array], Outputs]
"""A function of times [1 or B, N], in seconds from the first row, to outputs."""


class Knots(NamedTuple):
    """The times of rows, from 0 on, [1 or B, T]."""

    times: Array
    rounding: float  # by how many seconds the rounding of time stamps may have moved them
    durations: Floats | None  # [1 or B, 1]; None if times cannot be read, as in torch.func


METHODS = get_args(CurveName)
# How many arrays a method takes at most: values, first and second derivatives.
ARRAY_COUNTS = {"cubic": 2, "quintic": 3}
DEFAULT: CurveName = "linear"
SAMPLED_ROWS = 10_000
"""The rows of the first trajectory that decide whether its velocities are derivatives."""
# Slower motion, per second, counts as stopped: the default stopped_velocity_tolerance of
# ros2_control's joint_trajectory_controller.
_STOPPED = 0.01


def resample(
    rows: Trajectory | ArrayLike,
    method: CurveName | None = None,
    *,
    rate: float | None = None,
    at: ArrayLike | None = None,
    dt: ArrayLike | float | None = None,
    times: ArrayLike | None = None,
    hold: float = 0.0,
    hold_dofs: DofChoice | None = None,
    lengths: ArrayLike | None = None,
) -> Trajectory:
    """Resamples rows: evaluates a curve through them, and its derivatives, at other times.

    Differentiable with respect to rows and times. At the time of a row the curve gives that row,
    with the derivatives of the step that ends there. The methods:

    - ``hold`` keeps each row until the next, without derivatives. ``times`` may have an additional
      entry, the end of the last row: each action then acts until the next time, and the new rows
      end before the last.
    - ``linear``: straight lines, and their velocity.
    - ``ramp-and-hold``: lines that reach the next row early, by the share ``hold`` of the step.
    - ``cubic``: for rows with velocities the Hermite curve, with velocity and acceleration; else
      the spline through the positions, not-a-knot at both ends, with jerk as well.
    - ``quintic``: the Hermite curve through position, velocity and acceleration; all derivatives.

    Parameters:
        rows: a ``Trajectory``, or positions (or actions) [B, T, D] or [T, D]; NumPy or torch. In a
            trajectory without positions the curve goes through the lowest quantity.
        method: None is exact if a known polynomial joins the rows, as in ``sample``. Otherwise it
            is ``cubic`` (``quintic``) if velocities (and accelerations) are derivatives at the
            rows, and ``linear`` if they are differences of neighbours, or absent.
        rate: new rows per second, at k/rate up to the last row. If the last row lies between two
            new ones, the later one holds it, so that a plan ends at its goal; but not after a
            smooth curve that ends in motion, unless a mode of ``integrate`` made the rows.
        at: instead of rate, the new times in seconds from the first row, [N] or [B, N].
        dt: the step between rows that are not a ``Trajectory``, as for ``differentiate``.
        times: instead of dt, their time stamps [T] or [B, T].
        hold: the share of the step, below 1, for which ramp-and-hold waits at the next row.
        hold_dofs: dofs that keep each row until the next by any method, as a gripper does, with
            rates of zero: numbers, a slice or a mask [D].
        lengths: integers [B], how many rows of each trajectory are data; padding is not read. None:
            the lengths of a ``Trajectory``. Each trajectory is resampled as if it were alone, by
            the method that suits the first, with zeros after its new rows.

    Returns:
        A ``Trajectory`` of outputs [B, N, D] in the dtype of the rows (integers: float64, half
        precision: float32), with None for a derivative that is not finite everywhere.

    Raises:
        InputError: wrong shapes or times.
        UsageError: a wrong rate or method, or options that cannot be combined.
    """
    hold = number(hold, "hold")
    raise_if_any(option_faults(method, hold), UsageError)
    if isinstance(rows, Trajectory):
        rows = as_trajectory(rows)
        if dt is not None or times is not None:
            what = "a trajectory has times of its own"
            raise UsageError(what, where="dt, times", expected="neither")
        parts, times = rows.outputs(), rows.time
        lengths = rows.lengths if lengths is None else lengths
    else:
        values = as_array(rows, "rows")
        parts = {QUANTITIES[0]: values[None] if values.ndim == 2 else values}
    first = next(iter(parts.values()))
    mode, options = (rows.mode, rows.options) if isinstance(rows, Trajectory) else ("", {})
    # trajectories of different length are resampled one by one
    if lengths is not None:
        options = {"rate": rate, "hold": hold, "hold_dofs": hold_dofs}
        return _resample_padded(rows, parts, dt, times, lengths, method, at, options)
    knots = row_knots(first, dt, times, method)
    method = method or default_method(mode, options, parts, knots.times)
    holds = stops(method, mode, options) or (
        rate is not None and bool(at_rest(parts, knots.times).all())
    )
    new, at = new_times(first, rate, at, holds, knots)
    if method:
        curve = method_curve(method, parts, knots.times, hold)
    else:
        curve = mode_curve(mode, options, parts, knots.times)
    outputs = dict(curve(at))
    # held dofs replace what the curve gives for them
    if hold_dofs is not None:
        dofs = dof_numbers(hold_dofs, first.shape[2:], "hold_dofs")
        for name, x in outputs.items():
            source = parts.get(name, first)
            outputs[name] = hold_dof_rows(x, name, source, knots.times, at, dofs)
    p, v, a, j = (outputs.get(name) for name in QUANTITIES)
    return Trajectory(p, v, a, j, float64(new), options={"method": method} if method else {})


def _resample_padded(
    rows: Trajectory | ArrayLike, parts: Outputs, dt: ArrayLike | float | None,
    times: ArrayLike | None, lengths: ArrayLike, method: CurveName | None, at: ArrayLike | None,
    options: Mapping[str, Any],
) -> Trajectory:  # fmt: skip
    """Resamples each trajectory of a padded batch as if it were alone."""
    first = next(iter(parts.values()))
    row_knots(first, 1.0, None)  # refuses rows of another shape
    counts = read_lengths(lengths, *first.shape[:2])
    steps, stamps = (
        x if x is None else as_array(x, name) for x, name in ((dt, "dt"), (times, "times"))
    )
    batch = Inputs(make_mode("clique"), first, {}, {}, steps, stamps, recorded=True)
    # faults of times are found here, so that they name the trajectories of the whole batch
    clean = extend_steps(batch, counts, first.shape[1])
    row_knots(first, clean.dt, clean.times, method)
    at = at if at is None else as_array(at, "at")
    if at is not None and at.ndim != 1 and at.shape[:-1] not in ((1,), (len(first),)):
        raise InputError(wrong_shape("at", f"[N] or [{len(first)}, N]", at.shape))
    resampled = list[Trajectory]()
    for k, count in enumerate(counts.tolist()):
        part = select_trajectories(batch, np.array([k]), count)
        single: dict[str, Any] = {name: x[k : k + 1, :count] for name, x in parts.items()}
        new = at if at is None or at.ndim == 1 else at[k % len(at)]
        source = single[next(iter(single))]
        clock: dict[str, Any] = {"dt": part.dt, "times": part.times}
        if isinstance(rows, Trajectory):
            source, clock = replace(rows, **single, time=clock["times"], lengths=None), {}
        resampled.append(resample(source, method, at=new, **clock, **options))
        method = resampled[0].options.get("method")
    return join_trajectories(resampled)


def hold_dof_rows(
    values: Array, name: str, rows: Array, knots: Array, at: Array, dofs: Sequence[int]
) -> Array:
    """Makes dofs of sampled values [B, N, D], in place if NumPy, keep each row until the next."""
    held = _hold(float64(rows[..., dofs]), knots, at)
    return replace_dofs(values, dofs, 0 * held if name in QUANTITIES[1:] else held)


def new_times(
    rows: Array, rate: float | None, at: ArrayLike | None, holds: bool, knots: Knots
) -> tuple[Array, Array]:
    """Finds the new times of rows [B, T, D], and at which times [1 or B, N] to evaluate the curve.

    The two differ for a new row after the last row, which holds it; see ``count_new_rows``.
    """
    if (rate is None) == (at is None):
        raise UsageError("either rate or at names the new times", where="rate, at")
    if rate is None:
        new = within = as_array(at, "at")
    else:
        rate = number(rate, "rate")
        if knots.durations is None:
            what, hint = "a rate needs times that can be read", "at= names the new times"
            found = "tensors that are traced, or within torch.func"
            raise UsageError(what, where="times", found=found, hint=hint)
        if not (math.isfinite(rate) and rate > 0):
            what = "a rate that is not positive"
            raise UsageError(what, where="rate", expected="Hz > 0", found=str(rate))
        # actions have one knot more than rows: the end of the last action
        acting = knots.times.shape[1] > rows.shape[1]
        ends = knots.durations[:, 0].tolist()
        counts = {count_new_rows(rate, end, knots.rounding, acting, holds) for end in ends}
        if len(counts) > 1:
            what, found = "trajectories of different duration", f"{min(counts)} to {max(counts)}"
            hint = "at= names times [N] for all, or [B, N]"
            raise InputError(what, where="rate", expected="one", found=f"{found} rows", hint=hint)
        new = np.arange(counts.pop()) / rate
        # the last new row holds the last row, or is past it by rounding
        within = np.minimum(new, knots.durations)
    new, within = (match_library(x, rows, "at") for x in (new, within))
    return new, locate_times(within, knots.times, rows.shape[0], knots.rounding)


def default_method(
    mode: str, options: Mapping[str, Any], parts: Outputs, knots: Array
) -> CurveName | None:
    """Chooses the method if none is named; None is the curve that the mode defines."""
    # Hermite curves, as of ros2_control, need rates that are derivatives at the rows: with the sums
    # and differences of Euler's method a quintic has four times the peak acceleration. Without a
    # mode, the first rows decide.
    names, known = _consecutive(parts), mode != "" and is_known(mode, options)
    if known and not missing_parts(mode, options, parts):
        return None
    count = len(names) if known or mode in ("central", "savgol") else 1
    if not mode and options.get("method") not in METHODS[:3]:  # whose rates are slopes of lines
        first = [x[:1, :SAMPLED_ROWS] for x in (knots, *map(parts.__getitem__, names))]
        count = len(names)
        if all(map(readable, first)):  # not within torch.func
            times, *tables = (to_numpy(float64(x)) for x in first)
            count, steps = 1, np.diff(times)[..., None]
            for rows, rates in pairwise(tables):
                # Derivatives satisfy the trapezoidal rule. Differences do not: the rate at one end
                # of a step explains its rise better than the mean of both.
                rise, before, after = np.diff(rows, axis=1), rates[:, :-1], rates[:, 1:]
                backward, forward, trapezoid = (
                    float(np.nansum(abs(rise - steps * x)))
                    for x in (after, before, (after + before) / 2)
                )
                # some programs log zeros; rates in another unit explain little of the rise
                blank = rates.shape[1] > 10 and not rates.any() and rise.any()
                explained = trapezoid <= float(np.nansum(abs(rise)))
                if blank or not (2.0 * min(backward, forward) >= trapezoid and explained):
                    break
                count += 1
    return (DEFAULT, "cubic", "quintic")[min(count, 3) - 1]


def stops(method: str | None, mode: str, options: Mapping[str, Any]) -> bool:
    """Tells whether the last row may be held at whatever speed it is reached."""
    # it may after lines, which turn at every row, and after the plan of a mode, which ends there
    takes_start = mode not in MODES or MODES[mode].takes_start
    # rows of "ends=recording" need not end at rest, nor do those of a mode without a start
    planned = mode != "" and takes_start and options.get("ends") != "recording"
    return planned or method in METHODS[:3]


def at_rest(parts: Outputs, knots: Array) -> Booleans:
    """Tells for each trajectory [B] whether it has stopped; if rows cannot be read, it has not."""
    # the rates at the last row decide, or the last step if there are none
    rows, *rates = (parts[name] for name in _consecutive(parts)[:2])
    rise, step = rows[:, -1] - rows[:, -2:][:, 0], knots[:, -1:] - knots[:, -2:][:, :1]
    size = library(knots).abs(rates[0][:, -1] if rates else rise)
    slow: Any = size <= (_STOPPED if rates else _STOPPED * step)
    return to_numpy(slow).all(1) if readable(slow) else np.zeros(len(slow), bool)


def mode_curve(mode: str, options: Mapping[str, Any], parts: Outputs, knots: Array) -> Curve:
    """Makes the curve that a mode defines through rows [B, T, D] at knots [1 or B, T]."""
    p, v, a, j = (parts.get(name) for name in QUANTITIES)
    rows = Trajectory(p, v, a, j, knots, mode, options)
    names = finite_mode_outputs(mode, options, parts)

    def curve(at: Array) -> Outputs:
        samples = sample(rows, at).outputs()
        return {name: samples[name] for name in names}

    return curve


def method_curve(method: str, parts: Outputs, knots: Array, hold: float = 0.0) -> Curve:
    """Makes the curve of a method through the lowest quantity of rows at knots [1 or B, T].

    ``parts`` are that quantity [B, T, D] and, where known, its derivatives.
    """
    outputs, names = finite_outputs(method, parts), _consecutive(parts)
    dtype = output_dtype(parts[names[0]].dtype)
    tables = [parts[name] for name in names[: ARRAY_COUNTS.get(method, 1)]]
    half_ulps, rows = [*map(half_ulp, tables)], [*map(float64, tables)]
    if method == "cubic" and len(rows) == 1:
        rows.append(spline_slopes(rows[0], knots))
        half_ulps = [0.0, 0.0]  # the slopes fit the rows as they are: nothing is rounding

    def curve(at: Array) -> Outputs:
        if method == "hold":
            values = [_hold(rows[0], knots, at)]
        elif method in METHODS[:3]:
            # lines that reach the next row early, by ``hold`` of the step, and their slopes
            last, choose = knots.shape[1] - 1, library(rows[0]).where
            after = search(knots, at, right=False).clip(min=min(1, last))
            before = (after - 1).clip(min=0)
            begin, first, end = take(knots, before), take(rows[0], before), take(rows[0], after)
            ramp = (take(knots, after) - begin) * (1.0 - hold)
            ramp = (ramp + 1.0 * (ramp == 0.0))[..., None]  # a single row has no step
            share, rise = (at - begin)[..., None] / ramp, end - first
            # an arrived dof has the row itself, even if the row before is NaN
            values = [choose(share >= 1.0, end, first + rise * share)]
            values.append(choose(share > 1.0, 0.0 * rise, rise / ramp))
        else:
            values = hermite(rows, half_ulps, knots, at, len(outputs))
        return {name: cast(x, dtype) for name, x in zip(outputs, values, strict=False)}

    return curve


def finite_outputs(method: str, parts: Iterable[str]) -> tuple[str, ...]:
    """Lists the outputs that are finite everywhere on the curve through the lowest of ``parts``.

    Raises UsageError if the method needs derivatives that are absent.
    """
    names = _consecutive(parts)
    if method == "quintic" and len(names) < 3:
        what, hint = "quintic takes rows of derivatives", "cubic takes the values alone"
        expected = "the values and two derivatives of them"
        raise UsageError(what, where="method", expected=expected, hint=hint)
    # A derivative is finite where the one below does not jump: lines have one, a cubic Hermite
    # curve has two, and a cubic spline three.
    count = {"hold": 1, "cubic": 3 if names[1:] else 4, "quintic": 4}.get(method, 2)
    lowest = QUANTITIES.index(names[0])
    return QUANTITIES[lowest : lowest + count]


def _consecutive(parts: Iterable[str]) -> list[str]:
    """Lists the lowest of the outputs and those above it, up to the first that is missing."""
    known = set(parts)
    above = QUANTITIES[min(map(QUANTITIES.index, known)) :]
    return list(takewhile(known.__contains__, above))


def count_new_rows(rate: float, duration: float, rounding: float, acting: bool, holds: bool) -> int:
    """Counts the rows at ``rate`` within a duration, which may be off by ``rounding``.

    ``acting``: the duration ends with the last action, which has no row at its end. ``holds``: if
    no row falls on the very end, one more holds the last, with the velocity of a plan's end.
    """
    # 2**60 rows are more than any disk holds
    steps, slack = min(duration * rate, 2.0**60), rounding * rate + 1e-9
    if acting or holds:
        return max(1, math.ceil(steps * (1 - 1e-12) - slack) + (not acting))
    return math.floor(steps * (1 + 1e-12) + slack) + 1  # one row may be at the very end


def option_faults(method: str | None, hold: float) -> Iterator[Fault]:
    if method not in (None, *METHODS):
        yield unknown("method", choices=METHODS, found=repr(method))
    if not 0.0 <= hold < 1.0:
        what, expected = "a hold as long as the step", "0 ≤ hold < 1"
        yield Fault(what, where="hold", expected=expected, found=str(hold))
    if hold and method != "ramp-and-hold":
        what = "a hold is part of ramp-and-hold"
        yield Fault(what, where="hold", expected="0", found=str(hold))


def row_knots(
    rows: Array, dt: ArrayLike | float | None, times: ArrayLike | None, method: str | None = None
) -> Knots:
    """Finds the times of rows [B, T, D]; raises InputError for wrong ones, and for other rows."""
    shape = tuple(rows.shape)
    if len(shape) != 3 or shape[1] < 1:
        raise InputError(wrong_shape("rows", "[B, T, D], T >= 1", shape))
    if (dt is None) == (times is None):
        raise UsageError("either dt or times gives the times of the rows", where="dt, times")
    if times is None:
        even = Inputs(make_mode("clique"), rows, {}, {}, as_array(dt, "dt"), recorded=True)
        raise_if_any(shape_faults(even))
        knots = even.row_times()
        durations = to_numpy(knots)[:, -1:] if readable(knots) else None
        return Knots(match_library(knots, rows, "dt"), 0.0, durations)
    times = as_array(times, "times")
    stamps = match_library(times, rows, "times")
    stamps = stamps[None] if stamps.ndim == 1 else stamps
    # the end of the last action may be stamped, too
    acting = method == "hold" and stamps.shape[-1] == shape[1] + 1
    raise_if_any(time_stamp_shape_faults(times.shape, shape[0], shape[1] + acting, "times"))
    (knots,) = seconds(stamps)
    rounding, durations = 0.0, None
    if readable(times):
        values = to_numpy(times).reshape(stamps.shape)
        raise_if_any(time_stamp_faults(values, "times"))
        (table,) = map(to_numpy, seconds(values))
        rounding, durations = stamp_rounding(values), table[:, -1:] - table[:, :1]
    return Knots(knots - knots[:, :1], rounding, durations)


def stamp_rounding(stamps: NumpyArray, kind: np.dtype[Any] | None = None) -> float:
    """Bounds the error of time stamps and their differences by the rounding of their dtype, or of
    the ``kind`` that they were converted from."""
    kind = kind or stamps.dtype
    if kind.kind != "f":
        return 0.0
    largest = np.abs(stamps.astype(np.float64)).max(initial=0.0)
    # 4 ulp: half for each of two stamps, and as much again for their conversions
    return 4.0 * float(np.spacing(np.asarray(largest, kind if kind.itemsize < 8 else np.float64)))


def _hold(rows: Array, knots: Array, at: Array) -> Array:
    index = search(knots, at, right=True) - 1
    last = rows.shape[1] - 1  # there may be a knot more, the end of the last action
    return take(rows, index.clip(max=last))


def hermite(
    rows: Sequence[Array], half_ulps: Sequence[float], knots: Array, at: Array, orders: int = 4
) -> list[Array]:
    """Evaluates the first ``orders`` derivatives, from values on, of Hermite polynomials.

    ``rows`` are values and one or two derivatives, [B, T, D] each, at ``knots`` [1 or B, T].
    ``half_ulps`` are those of the dtypes that they were rounded to; ``at`` is [1 or B, N].
    """
    # a Taylor polynomial around the row that ends the step: a row has the derivatives of that step
    base = search(knots, at, right=False)
    tau = (at - take(knots, base))[..., None]
    known = [take(x, base) for x in rows]
    if knots.shape[1] > 1:
        far = library(base).abs(base - 1)  # the row before; the first row has only a step after it
        step = (take(knots, far) - take(knots, base))[..., None]
        time = library(knots).abs(take(knots, base))[..., None]
        known += _higher_derivatives(known, [take(x, far) for x in rows], half_ulps, step, time)
    return [derivative(known, tau, order) for order in range(orders)]


def _higher_derivatives(
    base: Sequence[Any], far: Sequence[Any], half_ulps: Sequence[float], step: Any, time: Array
) -> list[Array]:  # fmt: skip
    """Finds the higher derivatives at ``base`` of the polynomial through the values at ``far``.

    They solve the equations of the Taylor polynomial at the other end, a ``step`` away: C. de Boor,
    "A Practical Guide to Splines", ch. IV.
    """
    # Where a polynomial of lower degree joins the rows up to rounding, it is taken: over a short
    # step, the rounding of positions would become a jerk beyond limits. The bounds add up half a
    # last place of the rows at both ends, and that of the time.
    bounds: list[Array] = []
    bound = above = 0.0 * step
    for share, begin, end in [*zip(half_ulps, base, far, strict=False)][::-1]:
        bound = abs(step) * bound + share * (abs(begin) + abs(end)) + HALF_ULP * abs(time * above)
        bounds, above = [4.0 * bound, *bounds], begin
    change = far[-1] - base[-1]
    if len(base) == 2:
        off = far[0] - base[0] - step * (base[1] + change / 2.0)
        off = beyond_rounding(off, bounds[0], half_ulps[0])
        return [6.0 * off / step**2 + change / step, -12.0 * off / step**3]
    value, slope, second = base
    # what the Taylor polynomial of second order leaves at the other end
    off = far[0] - value - step * (slope + step * (second / 2.0 + change / 6.0))
    slope_off = far[1] - slope - step * (second + change / 2.0)
    off = beyond_rounding(off, bounds[0], half_ulps[0])
    slope_off = step * beyond_rounding(slope_off, bounds[1], half_ulps[1])
    return [
        (60.0 * off - 24.0 * slope_off) / step**3 + change / step,
        (168.0 * slope_off - 360.0 * off) / step**4,
        (720.0 * off - 360.0 * slope_off) / step**5,
    ]


def spline_slopes(rows: Array, knots: Array) -> Array:
    """Computes slopes [B, T, D] of the not-a-knot cubic spline through rows at knots [1 or B, T].

    C. de Boor, "A Practical Guide to Splines", ch. IV.
    """
    # through three rows it is the parabola, through two the line
    n = rows.shape[1]
    if n == 1:
        return 0.0 * rows
    h = (knots[:, 1:] - knots[:, :-1])[..., None]
    secant = (rows[:, 1:] - rows[:, :-1]) / h
    if n == 2:
        return concatenate([secant, secant], 1)
    if n == 3:
        middle = (h[:, 1:] * secant[:, :1] + h[:, :1] * secant[:, 1:]) / (h[:, :1] + h[:, 1:])
        return concatenate([2 * secant[:, :1] - middle, middle, 2 * secant[:, 1:] - middle], 1)
    before, after = h[:, :-1], h[:, 1:]
    below = concatenate([0.0 * h[:, :1], after, h[:, -1:] + h[:, -2:-1]], 1)
    on = concatenate([h[:, 1:2], 2 * (before + after), h[:, -2:-1]], 1)
    above = concatenate([h[:, :1] + h[:, 1:2], before, 0.0 * h[:, :1]], 1)
    # continuous second derivatives: h₊m₋ + 2(h₋ + h₊)m + h₋m₊ = 3(h₊s₋ + h₋s₊), with secants s
    inner = 3 * (after * secant[:, :-1] + before * secant[:, 1:])
    # not-a-knot: the third derivative is continuous at the second knot from each end
    first, last = (
        ((edge + 2 * (edge + inward)) * inward * slope + edge**2 * other) / (edge + inward)
        for edge, inward, slope, other in (
            (h[:, :1], h[:, 1:2], secant[:, :1], secant[:, 1:2]),
            (h[:, -1:], h[:, -2:-1], secant[:, -1:], secant[:, -2:-1]),
        )
    )
    return _solve_tridiagonal(below, on, above, concatenate([first, inner, last], 1))


def _solve_tridiagonal(below: Array, on: Array, above: Array, right: Array) -> Array:
    """Solves tridiagonal systems [b, T, D] by cyclic reduction, in O(log T) vector operations.

    ``below`` begins and ``above`` ends with a zero. R. Hockney, J. ACM 12, 1965.
    """
    # The even rows are solved for their own unknown and inserted in the odd rows, which leaves a
    # tridiagonal system of half the size. Splines need no pivoting.
    if on.shape[1] == 1:
        return right / on
    pivot, odd = on[:, 0::2], on.shape[1] // 2
    even = [x[:, 0::2] / pivot for x in (below, above, right)]
    before, after = ([x[:, k : k + odd] for x in even] for k in (0, 1))
    if on.shape[1] % 2 == 0:  # no row follows the last one
        after = [concatenate([x, 0.0 * y[:, :1]], 1) for x, y in zip(after, even, strict=True)]
    low, high = below[:, 1::2], above[:, 1::2]
    others = _solve_tridiagonal(
        -low * before[0],
        on[:, 1::2] - low * before[1] - high * after[0],
        -high * after[1],
        right[:, 1::2] - low * before[2] - high * after[2],
    )
    end, count = 0.0 * others[:, :1], pivot.shape[1]
    padded = concatenate([end, others, end], 1)
    solved = even[2] - even[0] * padded[:, :count] - even[1] * padded[:, 1 : count + 1]
    return interleave(solved, others)
