"""Resamples trajectories and actions: one curve through the rows, read at other times."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from typing import Any, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

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
    HALF_PLACE,
    beyond_rounding,
    derivative,
    finite_order,
    half_place,
    is_known,
    locate_times,
    missing_parts,
    search,
    take,
)
from trajcli.errors import Fault, InputError, UsageError, raise_if_any, unknown, wrong_shape
from trajcli.inputs import Inputs, shape_faults
from trajcli.kernels.program import Array, Floats
from trajcli.modes import MODES, QUANTITIES, make_mode
from trajcli.names import CurveName
from trajcli.padding import extend_steps, read_lengths, select_trajectories
from trajcli.trajectory import Trajectory, as_trajectory, sample
from trajcli.trajectory import concatenate as concatenated

Outputs: TypeAlias = Mapping[str, Array]
"""Outputs [B, T, D] by name."""
Curve: TypeAlias = Callable[[Array], Outputs]
"""Returns outputs at times [1 or B, N], in seconds from the first row."""

Knots: TypeAlias = tuple[Array, float, Floats | None]
"""The times of rows, how far rounding may move them, and the last; see ``row_knots``."""
METHODS = get_args(CurveName)
# How many arrays a method takes at most: values, first and second derivatives.
ARRAY_COUNTS = {"cubic": 2, "quintic": 3}
DEFAULT: CurveName = "linear"
SAMPLED_ROWS = 10_000
"""How many rows of the first trajectory tell whether its velocities are derivatives."""
# Motion slower than this, per second, has stopped: the default stopped_velocity_tolerance of
# ros2_control's joint_trajectory_controller.
_STOPPED = 0.01


def resample(
    rows: Trajectory | Array,
    method: CurveName | None = None,
    *,
    rate: float | None = None,
    at: Array | None = None,
    dt: Array | float | None = None,
    times: Array | None = None,
    hold: float = 0.0,
    hold_dofs: DofChoice | None = None,
    lengths: Array | None = None,
) -> Trajectory:
    """Resamples rows: one curve through them, and its own derivatives, at other times.

    Differentiable with respect to rows and times. The time of a row gives that row, and the
    derivatives of the step that ends there. The methods:

    - ``hold``: each row until the next; no derivatives. ``times`` may have one entry more, the end
      of the last row: actions then act from their time to the next, and the new rows end before.
    - ``linear``: straight lines, and their velocity.
    - ``ramp-and-hold``: lines that reach the next row early, by ``hold`` of the step.
    - ``cubic``: where the rows have velocities, the Hermite curve with its velocity and
      acceleration; else the spline through the positions, not-a-knot at both ends, and its jerk.
    - ``quintic``: the Hermite curve through position, velocity and acceleration; all derivatives.

    Parameters:
        rows: a ``Trajectory``, or positions (or actions) [B, T, D] or [T, D]; NumPy or torch. Of a
            trajectory without positions the lowest quantity is the curve.
        method: None is exact where a known polynomial joins the rows, as in ``sample``; elsewhere
            ``cubic`` (``quintic``) where velocities (and accelerations) are derivatives at the
            rows, and ``linear`` where they are differences of neighbours, or absent.
        rate: new rows per second, at k/rate up to the last row. If that is between two of them, the
            next one holds it, so that a plan ends at its goal; not after a smooth curve that ends
            in motion, unless a mode of ``integrate`` made the rows.
        at: instead of rate, the new times in seconds from the first row, [N] or [B, N].
        dt: the step between rows that are no ``Trajectory``, as for ``differentiate``.
        times: instead of dt, their time stamps [T] or [B, T].
        hold: the share of the step, below 1, that ramp-and-hold waits at the next row.
        hold_dofs: dofs that keep each row until the next by any method, as a gripper does, with
            rates of zero: numbers, a slice or a mask [D].
        lengths: [B], integers: how many rows each trajectory has, where the others are padding,
            which is not read; None: those of a ``Trajectory``. Each is resampled as it is alone, by
            the method that the first one decides, with zeros behind its new rows.

    Returns:
        A ``Trajectory`` of outputs [B, N, D] in the type of the rows (integers: float64, half
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
    if lengths is not None:
        rest = {"rate": rate, "hold": hold, "hold_dofs": hold_dofs}
        return _padded(rows, parts, dt, times, lengths, method, at, rest)
    knots, *_ = of_rows = row_knots(first, dt, times, method)
    method = method or default_method(mode, options, parts, knots)
    held = stops(method, mode, options) or (rate is not None and at_rest(parts, knots).all())
    new, within = placed(first, rate, at, bool(held), of_rows)
    curve = method and method_curve(method, parts, knots, hold)
    outputs = dict((curve or mode_curve(mode, options, parts, knots))(within))
    if hold_dofs is not None:
        dofs = dof_numbers(hold_dofs, first.shape[2:], "hold_dofs")
        for name, x in outputs.items():
            outputs[name] = hold_dof_rows(x, name, parts.get(name, first), knots, within, dofs)
    p, v, a, j = (outputs.get(name) for name in QUANTITIES)
    return Trajectory(p, v, a, j, float64(new), options={"method": method} if method else {})


def _padded(
    rows: Trajectory | Array, parts: Outputs, dt: Array | float | None, times: Array | None,
    lengths: Array, method: CurveName | None, at: Array | None, rest: Mapping[str, Any],
) -> Trajectory:  # fmt: skip
    """Returns a padded batch at other times, in which each trajectory is as it is alone."""
    first = next(iter(parts.values()))
    row_knots(first, 1.0, None)  # refuses rows of another shape
    counts = read_lengths(lengths, *first.shape[:2])
    steps, stamps = (
        x if x is None else as_array(x, name) for x, name in ((dt, "dt"), (times, "times"))
    )
    whole = Inputs(make_mode("clique"), first, {}, {}, steps, stamps, recorded=True)
    clean = continued(whole, counts, first.shape[1])
    row_knots(first, clean.dt, clean.times, method)  # counts the faults as the caller does
    at = at if at is None else as_array(at, "at")
    if at is not None and at.ndim != 1 and at.shape[:-1] not in ((1,), (len(first),)):
        raise InputError(wrong_shape("at", f"[N] or [{len(first)}, N]", at.shape))
    made = list[Trajectory]()
    for k, count in enumerate(counts.tolist()):
        part = select_trajectories(whole, np.array([k]), count)
        one = {name: x[k : k + 1, :count] for name, x in parts.items()}
        new = at if at is None or at.ndim == 1 else at[k % len(at)]
        given: Any = one[next(iter(one))]
        clock: dict[str, Any] = {"dt": part.dt, "times": part.times}
        if isinstance(rows, Trajectory):
            given, clock = replace(rows, **one, time=part.times, lengths=None), {}
        made.append(resample(given, method, at=new, **clock, **rest))
        method = made[0].options.get("method")
    return concatenated(made)


def hold_dof_rows(
    values: Array, name: str, rows: Array, knots: Array, at: Array, dofs: Sequence[int]
) -> Array:
    """Returns values [B, N, D] of a curve, of which some dofs keep each of the rows [B, T, D] until
    the next. A dof that does so stands still: its rates are 0. NumPy arrays are written to."""
    (held,) = curve_through("hold", [rows[..., dofs]], knots)(at)
    return replace_dofs(values, dofs, 0 * held if name in QUANTITIES[1:] else held)


def placed(
    rows: Array, rate: float | None, at: Array | None, held: bool, of_rows: Knots
) -> tuple[Array, Array]:
    """Returns the new times, and the same as times within the rows [B, T, D] ([1 or B, N]); raises
    as ``resample``. held: see ``count_new_rows``."""
    if (rate is None) == (at is None):
        raise UsageError("either rate or at names the new times", where="rate, at")
    knots, rounding, durations = of_rows
    if rate is None:
        new = within = as_array(at, "at")
    else:
        rate = number(rate, "rate")
        if durations is None:
            raise UsageError(
                "a rate needs times that can be read",
                where="times",
                found="tensors that are traced, or within torch.func",
                hint="at= names the new times",
            )
        if not (math.isfinite(rate) and rate > 0):
            raise UsageError(
                "a rate that is not positive", where="rate", expected="Hz > 0", found=str(rate)
            )
        # one knot more than rows: the end of the last action
        acting = knots.shape[1] > rows.shape[1]
        counts = {
            count_new_rows(rate, end, rounding, acting, held) for end in durations[:, 0].tolist()
        }
        if len(counts) > 1:
            raise InputError(
                "trajectories of different duration",
                where="rate",
                expected="one",
                found=f"{min(counts)} to {max(counts)} rows",
                hint="at= names times [N] for all, or [B, N]",
            )
        new = np.arange(counts.pop()) / rate
        # the last holds the last row, or is past it by rounding
        within = np.minimum(new, durations)
    new, within = (match_library(x, rows, "at") for x in (new, within))
    return new, locate_times(within, knots, rows.shape[0], rounding)


def default_method(
    mode: str, options: Mapping[str, Any], parts: Outputs, knots: Array
) -> CurveName | None:
    """Returns the method where none is named; None is the curve that the mode defines.

    Hermite curves, those of ros2_control, need rates that are derivatives at the rows: through the
    sums and differences of Euler's method a quintic has four times the peak acceleration. Where no
    mode is stated, the first rows ``parts`` at ``knots`` [1 or B, T] tell.
    """
    names, known = _consecutive(parts), mode != "" and is_known(mode, options)
    if known and not missing_parts(mode, options, parts):
        return None
    count = len(names) if known or mode in ("central", "savgol") else 1
    if not mode and options.get("method") not in METHODS[:3]:  # slopes of lines
        first = [x[:1, :SAMPLED_ROWS] for x in (knots, *map(parts.__getitem__, names))]
        count = len(names)
        if all(map(readable, first)):  # not within torch.func
            times, *rows = (to_numpy(float64(x)) for x in first)
            pairs = pairwise(rows)
            count = 1 + sum(1 for _ in takewhile(lambda pair: _joined(*pair, times), pairs))
    return (DEFAULT, "cubic", "quintic")[min(count, 3) - 1]


def _joined(rows: Floats, rates: Floats, knots: Floats) -> bool:
    """Returns whether rates are derivatives of rows [1, T, D]: of differences, those at one end of
    a step explain it better than the trapezoidal rule does."""
    steps, rise = np.diff(knots)[..., None], np.diff(rows, axis=1)
    after, before = rates[:, 1:], rates[:, :-1]
    off = [float(np.nansum(abs(rise - steps * x))) for x in (after, before, (after + before) / 2)]
    unknown = rates.shape[1] > 10 and not rates.any() and rise.any()  # zeros, as some programs log
    # rates in another unit, or of something else, explain little of the rise
    return not unknown and 2.0 * min(off[:2]) >= off[2] <= float(np.nansum(abs(rise)))


def stops(method: str | None, mode: str, options: Mapping[str, Any]) -> bool:
    """Returns whether the last row may be held however fast it is reached: after lines, which turn
    at every row, and after the plan of a mode, which ends there."""
    takes_start = mode not in MODES or MODES[mode].takes_start
    made = mode != "" and takes_start and options.get("ends") != "recording"
    return made or method in METHODS[:3]


def at_rest(parts: Outputs, knots: Array) -> npt.NDArray[np.bool_]:
    """Returns whether each trajectory [B] has stopped at its last row, by the rates there or, where
    there are none, by the last step. Rows that cannot be read move."""
    rows, *rates = (parts[name] for name in _consecutive(parts)[:2])
    rise, step = rows[:, -1] - rows[:, -2:][:, 0], knots[:, -1:] - knots[:, -2:][:, :1]
    slow = abs(rates[0][:, -1]) <= _STOPPED if rates else abs(rise) <= _STOPPED * step
    return to_numpy(slow.all(1)) if readable(slow) else np.zeros(len(slow), bool)


def mode_curve(mode: str, options: Mapping[str, Any], parts: Outputs, knots: Array) -> Curve:
    """Returns the polynomials that a mode defines through rows [B, T, D], at knots [1 or B, T].

    Where a mode holds its action, derivatives above it are not finite, and are left out.
    """
    p, v, a, j = (parts.get(name) for name in QUANTITIES)
    whole = Trajectory(p, v, a, j, knots, mode, options)
    finite = finite_mode_outputs(mode, options, parts)

    def curve(at: Array) -> Outputs:
        samples = sample(whole, at).outputs()
        return {name: samples[name] for name in finite}

    return curve


def finite_mode_outputs(mode: str, options: Mapping[str, Any], parts: Iterable[str]) -> list[str]:
    """Returns the outputs that are finite everywhere between the rows of a mode."""
    return [name for name in QUANTITIES[: finite_order(mode, options) + 1] if name in parts]


def method_curve(method: str, parts: Outputs, knots: Array, hold: float = 0.0) -> Curve:
    """Returns the curve of a method through the lowest quantity of rows [B, T, D].

    Raises UsageError where derivatives that the method needs are absent.
    """
    names = _consecutive(parts)
    evaluate = curve_through(method, [parts[name] for name in names], knots, hold)
    outputs, dtype = finite_outputs(method, parts), output_dtype(parts[names[0]].dtype)

    def curve(at: Array) -> Outputs:
        values = zip(outputs, evaluate(at), strict=False)  # derivatives above jerk have no name
        return {name: cast(x, dtype) for name, x in values}

    return curve


def finite_outputs(method: str, parts: Iterable[str]) -> tuple[str, ...]:
    """Returns the outputs of the curve through the lowest of ``parts`` that are finite."""
    names = _consecutive(parts)
    # derivatives are counted from the quantity that the curve goes through
    lowest = QUANTITIES.index(names[0])
    return QUANTITIES[lowest : lowest + finite_orders(method, len(names))]


def _consecutive(parts: Iterable[str]) -> list[str]:
    """Returns the lowest of the outputs, and the next ones up to the first that is missing."""
    known = set(parts)
    above = QUANTITIES[min(map(QUANTITIES.index, known)) :]
    return list(takewhile(known.__contains__, above))


def count_new_rows(rate: float, duration: float, rounding: float, acting: bool, held: bool) -> int:
    """Returns the number of rows at ``rate`` within a duration, which may be off by ``rounding``.

    ``acting``: the duration ends with the last action, and has no row there. ``held``: where no row
    is at the very end, the next one holds the last, with the velocity with which a plan hands over:
    zero would be a stop that nobody planned.
    """
    steps, slack = min(duration * rate, 2.0**60), rounding * rate + 1e-9  # more than any disk holds
    if acting or held:
        return max(1, math.ceil(steps * (1 - 1e-12) - slack) + (not acting))
    return math.floor(steps * (1 + 1e-12) + slack) + 1  # one row may be at the very end


def option_faults(method: str | None, hold: float) -> Iterator[Fault]:
    """Yields the faults of the options of a method."""
    if method not in (None, *METHODS):
        yield unknown("method", choices=METHODS, found=repr(method))
    if not 0.0 <= hold < 1.0:
        what, expected = "a hold as long as the step", "0 ≤ hold < 1"
        yield Fault(what, where="hold", expected=expected, found=str(hold))
    if hold and method != "ramp-and-hold":
        what = "a hold is part of ramp-and-hold"
        yield Fault(what, where="hold", expected="0", found=str(hold))


def row_knots(
    rows: Array, dt: Array | float | None, times: Array | None, method: str | None = None
) -> Knots:
    """Returns the times of rows from 0 on [1 or B, T], how far they may be off by rounding, and the
    last of them [1 or B, 1], which is None where times cannot be read, as in torch.func."""
    shape = tuple(rows.shape)
    if len(shape) != 3 or shape[1] < 1:
        raise InputError(wrong_shape("rows", "[B, T, D], T >= 1", shape))
    if (dt is None) == (times is None):
        raise UsageError("either dt or times gives the times of the rows", where="dt, times")
    if times is None:
        even = Inputs(make_mode("clique"), rows, {}, {}, as_array(dt, "dt"), recorded=True)
        raise_if_any(shape_faults(even))
        knots = even.row_times()
        return (
            match_library(knots, rows, "dt"),
            0.0,
            to_numpy(knots)[:, -1:] if readable(knots) else None,
        )
    times = as_array(times, "times")
    stamps = match_library(times, rows, "times")
    stamps = stamps[None] if stamps.ndim == 1 else stamps
    # the end of the last action may be stamped, too
    acting = method == "hold" and stamps.shape[-1] == shape[1] + 1
    raise_if_any(time_stamp_shape_faults(times.shape, shape[0], shape[1] + acting, "times"))
    rounding, durations = 0.0, None
    if readable(times):
        values = to_numpy(times).reshape(stamps.shape)
        raise_if_any(time_stamp_faults(values, "times"))
        rounding, durations = stamp_rounding(values), _from_first(values)[:, -1:]
    return _from_first(stamps), rounding, durations


def _from_first(stamps: Array) -> Array:
    (times,) = seconds(stamps)
    return times - times[:, :1]


def stamp_rounding(stamps: npt.NDArray[Any], kind: np.dtype[Any] | None = None) -> float:
    """Returns how far time stamps and their differences may be off by the rounding of their type.

    ``kind`` is the type that they were converted from, if any.
    """
    kind = kind or stamps.dtype
    if kind.kind != "f":
        return 0.0
    largest = np.abs(stamps.astype(np.float64)).max(initial=0.0)
    return 4.0 * float(np.spacing(np.asarray(largest, kind if kind.itemsize < 8 else np.float64)))


def curve_through(
    method: str, rows: Sequence[Array], knots: Array, hold: float = 0.0
) -> Callable[[Array], list[Array]]:
    """Returns the curve of a method through rows at knots [1 or B, T].

    It takes times [1 or B, N], and returns values [B, N, D] and the derivatives that are finite
    everywhere. On a row, it is the row, with the derivatives of the step that ends there.
    ``rows`` are values [B, T, D] and, where known, their first and second derivatives. Raises
    UsageError where derivatives that the method needs are absent.
    """
    count = finite_orders(method, len(rows))
    places, rows = [*map(half_place, rows)], [*map(float64, rows)]
    if method == "hold":
        return lambda at: _held(rows[0], knots, at)
    if method in ("linear", "ramp-and-hold"):
        return lambda at: _ramped(rows[0], knots, at, hold)
    arrays = list(rows[: ARRAY_COUNTS[method]])
    if len(arrays) == 1:
        arrays.append(spline_slopes(rows[0], knots))
        places = [0.0, 0.0]  # slopes that fit rows as they are
    return lambda at: hermite(arrays, places, knots, at)[:count]


def finite_orders(method: str, given: int) -> int:
    """Returns how many of a curve's values and derivatives are finite everywhere.

    A derivative is finite where the one below does not jump: no derivative of ``hold``, one of
    ``linear`` and ``ramp-and-hold``, two of ``cubic`` with given slopes, three of the cubic spline
    and of ``quintic``. Raises UsageError where the method needs more than ``given`` arrays.
    """
    if method == "quintic" and given < 3:
        raise UsageError(
            "quintic takes rows of derivatives",
            where="method",
            expected="the values and two derivatives of them",
            hint="cubic takes the values alone",
        )
    return {"hold": 1, "quintic": 4}.get(method, 2 if method != "cubic" else 4 - (given > 1))


def _held(rows: Array, knots: Array, at: Array) -> list[Array]:
    """Returns each row until the next."""
    index = search(knots, at, right=True) - 1
    last = rows.shape[1] - 1  # there may be a knot more, the end of the last step
    return [take(rows, index.clip(max=last))]


def _ramped(rows: Array, knots: Array, at: Array, hold: float) -> list[Array]:
    """Returns lines that reach the next row early, by ``hold`` of the step, and their slopes."""
    last = knots.shape[1] - 1
    after = search(knots, at, right=False)
    after = after.clip(min=min(1, last))
    before = (after - 1).clip(min=0)
    begin, ramp = take(knots, before), (take(knots, after) - take(knots, before)) * (1.0 - hold)
    ramp = (ramp + 1.0 * (ramp == 0.0))[..., None]  # a single row has no step
    share = (at - begin)[..., None] / ramp
    first, rise = take(rows, before), take(rows, after) - take(rows, before)
    there, choose = share >= 1.0, library(rows).where  # whatever the row before holds
    values = choose(there, take(rows, after), first + rise * share)
    return [values, choose(share > 1.0, 0.0 * rise, rise / ramp)]


def hermite(
    given: Sequence[Array], places: Sequence[float], knots: Array, at: Array, orders: int = 4
) -> list[Array]:
    """Returns polynomials with given derivatives at both ends of a step, around its last row, and
    their derivatives. places: half a last place of the types that the rows were rounded to."""
    # around the row that ends the step, so that a row has the derivatives of that step
    here = search(knots, at, right=False)
    tau = (at - take(knots, here))[..., None]
    known = [take(rows, here) for rows in given]
    if knots.shape[1] > 1:
        there = abs(here - 1)  # the row before; the first row has a step after it alone
        step = (take(knots, there) - take(knots, here))[..., None]
        time = abs(take(knots, here))[..., None]
        known += _higher(known, [take(rows, there) for rows in given], places, step, time)
    return [derivative(known, tau, order) for order in range(orders)]


def _higher(
    here: Sequence[Array], there: Sequence[Array], places: Sequence[float], step: Array, time: Array
) -> list[Array]:
    """Returns the derivatives above those ``here`` of the polynomial that reaches those ``there``.

    They solve the equations of the Taylor polynomial at the other end, a ``step`` away; C. de Boor,
    "A Practical Guide to Splines", ch. IV. Rows that a polynomial of fewer degrees joins up to
    rounding (of half last ``places``, and of what ``time`` gives) are joined by it: over a short
    step, the rounding of positions would become a jerk beyond limits.
    """
    bounds: list[Array] = []
    bound = above = 0.0 * step
    for place, begin, end in [*zip(places, here, there, strict=False)][::-1]:
        bound = abs(step) * bound + place * (abs(begin) + abs(end)) + HALF_PLACE * abs(time * above)
        bounds, above = [4.0 * bound, *bounds], begin
    change = there[-1] - here[-1]
    if len(here) == 2:
        off = there[0] - here[0] - step * (here[1] + change / 2.0)
        off = beyond_rounding(off, bounds[0], places[0])
        return [6.0 * off / step**2 + change / step, -12.0 * off / step**3]
    value, slope, second = here
    # offsets at the other end that the Taylor polynomial of second order leaves
    off = there[0] - value - step * (slope + step * (second / 2.0 + change / 6.0))
    slope_off = there[1] - slope - step * (second + change / 2.0)
    off = beyond_rounding(off, bounds[0], places[0])
    slope_off = step * beyond_rounding(slope_off, bounds[1], places[1])
    return [
        (60.0 * off - 24.0 * slope_off) / step**3 + change / step,
        (168.0 * slope_off - 360.0 * off) / step**4,
        (720.0 * off - 360.0 * slope_off) / step**5,
    ]


def spline_slopes(rows: Array, knots: Array) -> Array:
    """Returns slopes [B, T, D] of the not-a-knot cubic spline through rows at knots [1 or B, T].

    Through three rows it is the parabola, through two the line. C. de Boor, "A Practical Guide to
    Splines", ch. IV.
    """
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
    first = _end(h[:, :1], h[:, 1:2], secant[:, :1], secant[:, 1:2])
    # continuous second derivatives: h₊m₋ + 2(h₋ + h₊)m + h₋m₊ = 3(h₊s₋ + h₋s₊), with secants s
    inside = 3 * (after * secant[:, :-1] + before * secant[:, 1:])
    last = _end(h[:, -1:], h[:, -2:-1], secant[:, -1:], secant[:, -2:-1])
    return _solve_tridiagonal(below, on, above, concatenate([first, inside, last], 1))


def _end(near: Array, far: Array, secant: Array, other: Array) -> Array:
    """Returns the right-hand side of the not-a-knot condition at an end."""
    return ((near + 2 * (near + far)) * far * secant + near**2 * other) / (near + far)


def _solve_tridiagonal(below: Array, on: Array, above: Array, right: Array) -> Array:
    """Solves tridiagonal systems [b, T, D] by cyclic reduction, in O(log T) vector operations.

    Rows 0, 2, … are solved for their unknown, which leaves a system of rows 1, 3, … (R. Hockney,
    J. ACM 12, 1965). below and above have a zero at their end. Splines need no pivoting.
    """
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
