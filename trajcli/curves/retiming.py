"""Retimes trajectories: the smallest uniform time scaling that keeps limits, also between rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, overload

import numpy as np

from trajcli.arrays import (
    as_array,
    cast,
    concatenate,
    eager,
    float64,
    has_gradient,
    is_torch,
    library,
    match_library,
    number,
    output_dtype,
    read_values,
    reduce_rows,
    require_counts,
    seconds,
    to_numpy,
)
from trajcli.calls import integrate
from trajcli.curves.fastest import (
    Course,
    Setpoints,
    binding_shares,
    forbidden,
    limit_faults,
    make_course,
    make_setpoints,
    solve_timings,
)
from trajcli.curves.resampling import ARRAY_COUNTS, hermite
from trajcli.curves.sampling import derivative, half_ulp, is_known, missing_parts, take, taylor
from trajcli.errors import Fault, InputError, UsageError, raise_if_any, unknown, wrong_shape
from trajcli.kernels.program import Array, Floats, Integers
from trajcli.mode_options import ANY_PACE
from trajcli.modes.mode import QUANTITIES
from trajcli.padding import padded, read_lengths, zero_padding
from trajcli.trajectory import State, Trajectory, as_trajectory


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The pace of trajectories within limits, and what decides it.

    Attributes:
        factor: how many times as long each trajectory takes, [B].
        limited_by: the quantity of each trajectory that is at its limit; "" where none is.
        dof, row: where that is, [B]; −1 where nothing is at a limit.
        root: which extreme between that row and the next it is, [B]; −1 for the row itself.
        slack: the share of the limit that is left [B], by quantity, of the dof with the least.
    """

    factor: Array
    limited_by: list[str]
    dof: Array
    row: Array
    root: Array
    slack: Mapping[str, Array]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Retimed(Trajectory, Pace):
    """Trajectories at another pace, as ``retime`` returns them: NumPy, or tensors for tensors.

    Some of them, ``retimed[2:5]``, are a ``Trajectory``.
    """

    words = ("limited_by",)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Fastest(Trajectory):
    """Trajectories by the fastest timing of their paths, at rows of mode ``bspline``.

    ``integrate(f.actions, f.start, f.step[:, None], "bspline", goal=f.goal, **f.options)`` makes
    their rows; with ``lengths`` less 5, where f has ``lengths``.

    Attributes:
        duration: of the rows [B], in seconds: from rest to rest three steps more than the motion.
        uniform: of the path by its fastest uniform pace, [B].
        step: between rows, [B].
        states: of each timing: solved, not converged (within limits), uniform or does not move.
        actions: control points [B, H, D].
        ends: the start state and the goal state [B, 2, 4, D], as ``start`` and ``goal``.
        shares: of rows at which 98 % or more of a limit is used, [B, D] by quantity.
    """

    duration: Array
    uniform: Array
    step: Array
    states: list[str]
    actions: Array
    ends: Array
    shares: Mapping[str, Array]
    words = ("states",)

    @property
    def start(self) -> State:
        """The start state."""
        return State(*(self.ends[:, 0, k] for k in range(4)))

    @property
    def goal(self) -> State | None:
        """The goal state, where a trajectory moves at its end."""
        moves = self.options["ends"] == "goal"
        return State(*(self.ends[:, 1, k] for k in range(4))) if moves else None


Limit = tuple[Array, Array] | Array | float
"""The least and the largest value, each a number or [D]; one alone is the largest magnitude."""
CURVE_OPTIONS = {"mode", "scheme", "alignment", "ends", "degree", "order", "steps", "convention",
               "absolute", "method"}  # fmt: skip
"""Names of what says which curve a trajectory is, and holds at any pace."""
_Pair = tuple[Floats, Floats]
# The least factor, whose third power is still a normal number; 1e100 is the largest.
_LEAST = 1e-100
# Halvings of a step that find where a cubic is zero: as many as a float64 has bits.
_HALVINGS = 60


@overload
def retime(
    trajectory: Trajectory[Any], limits: Mapping[str, Limit],
    method: Literal["uniform"] | None = None, *, slower_only: bool = False,
    duration: float | None = None, margin: float = 1.0,
) -> Retimed: ...  # fmt: skip
@overload
def retime(
    trajectory: Any, limits: Mapping[str, Limit], method: Literal["fastest"] | None = None, *,
    rate: float | None = None, rows: int | None = None, duration: float | None = None,
    corners: str | float | None = None, margin: float = 1.0,
) -> Fastest: ...  # fmt: skip
@eager
def retime(
    trajectory: Any, limits: Mapping[str, Limit], method: str | None = None, *,
    slower_only: bool = False, rate: float | None = None, rows: int | None = None,
    duration: float | None = None, corners: str | float | None = None, margin: float = 1.0,
) -> Any:  # fmt: skip
    """Retimes trajectories within limits: by the least uniform factor, or as fast as can be.

    ``uniform`` stretches time. A factor s makes velocity v/s, acceleration a/s² and jerk j/s³;
    times are stretched from the first on. It is below 1 where a trajectory can be faster, and 1 for
    one that does not move. Values are within limits also after rounding to their type.
    Differentiable by rows and times; where several values decide at once, by the first of them.

    ``fastest`` keeps the path alone, a quintic spline through the rows, and slows down only where a
    limit binds. Its unknown is the squared speed along the path (D. Verscheure et al.,
    "Time-optimal path tracking for robots", 2009). The result, float64, is mode ``bspline`` of
    degree 3, whose control points are positions at equal times: its rates, and the differences of
    its control points, keep limits. Ends that move keep their speed, rows without velocities rest
    at both ends, and standstill is left out.

    Parameters:
        trajectory: what ``integrate`` or ``load`` returns. By ``uniform`` it keeps its limits
            between rows too where its mode defines a curve there (see ``sample``), else at the rows
            alone. Or positions [K, D] or [B, K, D] without times, which are a path.
        limits: a pair (lower < 0 < upper) of numbers or [D], or the largest magnitude, by name;
            infinite where there is none.
        method: uniform or fastest; None: uniform for a ``Trajectory``, fastest for positions.
        slower_only: of uniform: no factor is below 1.
        rate: of fastest: rows per second; None: 1000, or those of the trajectory, if more.
        rows: of fastest: their number, instead of a rate.
        duration: of all rows, in seconds; None: the least.
        corners: of fastest: a path that turns at once is refused, unless it rests there,
            ``"stop"``, or is cut within this distance of the lines between rows.
        margin: the share of limits that is used.

    Returns:
        A ``Trajectory`` of uniform with its ``factor`` [B], and what decides that: ``limited_by``,
        ``dof``, ``row`` and ``slack``. Rows behind ``lengths`` decide nothing. Of fastest with
        ``duration``, ``uniform``, ``states``, ``actions``, ``start``, ``goal`` and ``shares``.

    Raises:
        InputError: limits of absent parts or other dofs, or NaN or Inf; a duration that limits
            forbid; corners; ends that move beyond limits.
        UsageError: limits that require a gradient, which would be lost, or within vmap; an option
            of the other method; fastest for rows with a gradient, or without compiled kernels.
    """
    method = method or ("uniform" if isinstance(trajectory, Trajectory) else "fastest")
    if method not in ("uniform", "fastest"):
        raise UsageError(unknown("method", choices="uniform, fastest", found=repr(method)))
    others = {"rate": rate, "rows": rows, "corners": corners}
    others = others if method == "uniform" else {"slower_only": slower_only or None}
    if named := [name for name, x in others.items() if x is not None]:
        raise UsageError(f"no option of {method}", where=", ".join(named))
    if rate is not None and rows is not None:
        raise UsageError("either rate or rows", where="rate, rows")
    require_counts(rows=1 if rows is None else rows)
    for name, size, most, expected in (
        ("rate", rate, 1e300, "> 0"), ("duration", duration, 1e300, "> 0"),
        ("margin", margin, 1, "> 0, <= 1"),
        ("corners", None if corners == "stop" else corners, 1e300, "stop, or a distance > 0"),
    ):  # fmt: skip
        if isinstance(size, str) or (size is not None and not 0 < number(size, name) <= most):
            raise UsageError("no such number", where=name, expected=expected, found=str(size))
    if method == "fastest":
        return _fastest(trajectory, limits, margin, rate, corners, rows, duration)
    trajectory = as_trajectory(trajectory)
    outputs, time = trajectory.outputs(), trajectory.time
    pairs = limit_pairs(limits, trajectory.shape[-1], margin)
    parts = {name: to_numpy(values, name) for name, values in outputs.items()}
    between: Mapping[str, Floats] = {}
    if is_known(trajectory.mode, trajectory.options):
        between = extremes(trajectory.mode, trajectory.options, parts, to_numpy(time, "time"))
    last = np.full(len(next(iter(parts.values()))), time.shape[-1] - 1)
    if trajectory.lengths is not None:  # what is padding decides nothing
        lengths = to_numpy(trajectory.lengths, "lengths")
        last = lengths - 1
        parts = {name: zero_padding(x, lengths) for name, x in parts.items()}
        for reached in between.values():
            reached.swapaxes(1, 2)[np.arange(1, time.shape[-1]) >= lengths[:, None]] = 0
    pace = find_pace(parts, pairs, bool(slower_only), between)
    (knots,) = seconds(time[None] if time.ndim == 1 else time)
    differentiable = any(map(has_gradient, (*outputs.values(), time)))
    own = knots[np.arange(len(last)) % len(knots), last] - knots[:, 0]
    growth: Array | float = 1.0
    if duration is not None:
        pace = stretch_pace(pace, to_numpy(own), float(duration))
        growth = own.detach() / own if differentiable else 1.0
    elif differentiable:
        growth = _growth(trajectory, knots, pace)
    factor = match_library(pace.factor, knots) * growth
    times = knots[:, :1] + (knots - knots[:, :1]) * factor[:, None]
    return Retimed(
        **dict.fromkeys(QUANTITIES) | scale_outputs(outputs, pace.factor, growth),
        time=times[0] if time.ndim == len(times) == 1 else times,
        mode=trajectory.mode,
        options={k: x for k, x in trajectory.options.items() if k in CURVE_OPTIONS},
        lengths=trajectory.lengths,
        factor=factor,
        limited_by=pace.limited_by,
        **{name: match_library(getattr(pace, name), knots) for name in ("dof", "row", "root")},
        slack={name: match_library(share, knots) for name, share in pace.slack.items()},
    )


def stretch_pace(pace: Pace, own: Floats, duration: float) -> Pace:
    """Returns the pace of trajectories, which last ``own`` [B], that makes them last ``duration``.

    Raises InputError where that is faster than the pace, which is the fastest within limits.
    """
    used = np.max([1 - x for x in pace.slack.values()], axis=0)
    least = float((own * pace.factor * (used > 0)).max())
    if duration < least * (1 - 1e-12) or not (own > 0).all():
        raise forbidden(duration, least)
    factor = np.where(used > 0, np.maximum(duration / own, pace.factor), duration / own)
    longer = np.minimum(pace.factor / factor, 1.0)
    bound = longer > 1 - 1e-9
    slack = {n: 1 - (1 - x) * longer ** QUANTITIES.index(n) for n, x in pace.slack.items()}
    where = {n: np.where(bound, getattr(pace, n), -1) for n in ("dof", "row", "root")}
    names = [
        name if is_bound else "" for name, is_bound in zip(pace.limited_by, bound, strict=True)
    ]
    return replace(pace, factor=factor, limited_by=names, slack=slack, **where)


@contextmanager
def _collected(faults: list[Fault], number: int) -> Iterator[None]:
    """Collects the faults of a trajectory, and adds its number to their places."""
    try:
        yield
    except InputError as error:
        faults += (replace(x, where=f"trajectory {number}, {x.where}") for x in error.faults)


def _fastest(
    trajectory: Any, limits: Mapping[str, Limit], margin: float, rate: float | None,
    corners: str | float | None, count: int | None, duration: float | None,
) -> Fastest:  # fmt: skip
    """Returns what ``retime`` does by the method fastest, with ``count`` rows where it is given."""
    if timeless := not isinstance(trajectory, Trajectory):
        points = as_array(trajectory, "position")
        points = points[None] if points.ndim == 2 else points
        trajectory = Trajectory(points, None, None, None, np.arange([1, *points.shape][-2]))
    whole = as_trajectory(trajectory)
    outputs, like, (batch, most, dofs) = whole.outputs(), whole.position, whole.shape
    if like is None:
        hint = "method='uniform'"
        raise InputError("no path without positions", where="position", hint=hint)
    if not batch * dofs:
        raise InputError(wrong_shape("position", "[B, K, D]", like.shape))
    if any(map(has_gradient, (*outputs.values(), whole.time))):
        what, hint = "the fastest timing has no gradient", "method='uniform', or .detach()"
        raise UsageError(what, where="position", hint=hint)
    parts = {name: to_numpy(x, name).astype(np.float64) for name, x in outputs.items()}
    bounds = limit_pairs(limits, dofs, margin)
    bounds.pop(QUANTITIES[0], None)
    counts = np.full(batch, most)
    counts = counts if whole.lengths is None else read_lengths(whole.lengths, batch, most)
    (times,) = seconds(to_numpy(whole.time, "time").reshape(-1, most))
    steps, courses = np.full(batch, 1e-3 if rate is None else 1 / rate), list[Course]()
    faults, made = list[Fault](), dict[int, Setpoints]()
    for k, length in enumerate(counts):
        clock = None if timeless else times[k % len(times), :length]
        if rate is None and clock is not None and length > 1:  # but for the rounding of stamps
            steps[k] = min(1e-3, float(f"{(clock[-1] - clock[0]) / (length - 1):.9g}"))
        p, v, a = (parts[n][k, :length] if n in parts else None for n in QUANTITIES[:3])
        with _collected(faults, k):
            courses.append(make_course(p, clock, v, a, corners))  # type: ignore[arg-type]
    raise_if_any(faults)
    timings = solve_timings(courses, bounds)
    # the slowest first: what it says of a duration holds for all
    for k in np.argsort([-x.duration for x in timings], kind="stable").tolist():
        with _collected(faults, k):
            made[k] = make_setpoints(courses[k], timings[k], bounds, 1 / steps[k], count, duration)
        if faults and duration:
            break
    raise_if_any(faults)
    own = [made[k] for k in range(batch)]
    horizons, steps = np.array([len(x.actions) for x in own]), np.array([x.step for x in own])
    actions = np.concatenate([padded(x.actions[None], horizons.max()) for x in own])
    ends = np.array([(x.start, x.goal) for x in own])
    goes_on = any(x.moving[1] for x in courses)
    start, goal = (State(*ends[:, side].swapaxes(0, 1)) for side in (0, 1))
    motion = integrate(
        actions, start, steps[:, None], "bspline", degree=3, steps=1,
        goal=goal if goes_on else None, ends="goal" if goes_on else "plan",
        lengths=None if (horizons == horizons[0]).all() else horizons,
    )  # fmt: skip
    rows = motion.outputs()
    used = [
        binding_shares({n: x[k, : one.count] for n, x in rows.items()}, bounds)
        for k, one in enumerate(own)
    ]
    arrays = {**motion._arrays(), "step": steps, "actions": actions, "ends": ends}
    arrays |= {
        "duration": steps * (horizons + 4),
        "uniform": np.array([x.uniform for x in timings]),
    }
    return Fastest(
        **{name: match_library(x, like) for name, x in arrays.items()}, mode=motion.mode,
        options=motion.options, states=[x.state for x in timings],
        shares={n: match_library(np.stack([x[n] for x in used]), like) for n in bounds},
    )  # fmt: skip


def _growth(trajectory: Trajectory, knots: Array, pace: Pace) -> Array:
    """Returns ones [B] with the gradient of the logarithm of the factor.

    The factor is a root of the value that is at its limit, times a constant.
    """
    outputs, growth = trajectory.outputs(), match_library(np.ones(len(pace.factor)), knots)
    between: Mapping[str, Array] = {}
    if (pace.root >= 0).any():
        between = extremes(trajectory.mode, trajectory.options, outputs, knots, pace.row)
    for name in {*pace.limited_by} - {""}:
        numbers, order = np.flatnonzero(np.array(pace.limited_by) == name), QUANTITIES.index(name)
        row, dof, root = (x[numbers] for x in (pace.row, pace.dof, pace.root))
        values = float64(outputs[name])[numbers, row, dof][:, None]
        if name in between:
            values = concatenate([values, between[name][numbers, :, 0, dof]], 1)
        value = values[np.arange(len(numbers)), root + 1]
        share = (value / value.detach()) ** (1 / order)
        growth = growth.index_put((match_library(numbers, knots),), share)
    return growth


def find_pace(
    parts: Mapping[str, Array],
    limits: Mapping[str, Limit],
    slower_only: bool,
    between: Mapping[str, Floats],
) -> Pace:
    """Returns the pace of parts whose limits also hold between rows, at values [B, n, T−1, D]."""
    values = {name: parts[name] for name in QUANTITIES[1:] if name in parts}
    bounds = limit_pairs(limits, next(iter(parts.values())).shape[-1])
    bounds.pop(QUANTITIES[0], None)
    raise_if_any(limit_faults([*values], bounds), InputError)
    # the rows, and what is between: that of one root after that of another, [B, n·(T−1), D]
    reached = [{name: values[name] for name in bounds}, dict[str, Array]()]
    for name in filter(between.__contains__, bounds):
        count, _, _, dofs = between[name].shape
        reached[1][name] = between[name].reshape(count, -1, dofs)
    peaks = [{name: _peaks(x, name) for name, x in parts.items()} for parts in reached]
    with np.errstate(over="ignore"):
        shares = {
            name: np.max([_shares(*x[name], bounds[name]) for x in peaks if name in x], axis=0)
            for name in bounds
        }
    worst = {name: share.max(1, initial=0.0) for name, share in shares.items()}
    # each quantity falls with the power of the factor that is its order
    roots = {"velocity": np.positive, "acceleration": np.sqrt, "jerk": np.cbrt}
    needed = np.stack([roots[name](share) for name, share in worst.items()])
    # the quantity that needs the most time decides
    limited_by, factor = np.array(list(bounds))[needed.argmax(0)], needed.max(0)
    limited_by[(factor == 0.0) | (slower_only & (factor < 1.0))] = ""
    factor = np.where(factor == 0.0, 1.0, np.maximum(factor, 1.0 if slower_only else 0.0))
    if (bad := ~((factor > _LEAST) & (factor < 1.0 / _LEAST))).any():
        number = int(bad.argmax())
        raise InputError(
            "limits that no pace can keep",
            where=f"trajectory {number}, {limited_by[number]}",
            found=f"time × {factor[number]:.3g}",
        )
    for ranges in peaks:
        factor = _after_rounding(factor, ranges, bounds)
    used = {name: share / factor ** QUANTITIES.index(name) for name, share in worst.items()}
    slack = {name: np.maximum(1.0 - share, 0.0) for name, share in used.items()}
    dof, row = np.full((2, len(factor)), -1)
    for name in {*limited_by.tolist()} - {""}:
        numbers = np.flatnonzero(limited_by == name)
        worst = shares[name][numbers].argmax(1)
        of_worst = np.concatenate([x[name][numbers, :, worst] for x in reached if name in x], 1)
        pair = [np.broadcast_to(side, values[name].shape[2])[worst, None] for side in bounds[name]]
        with np.errstate(over="ignore"):
            row[numbers] = _shares(of_worst, of_worst, pair).argmax(1)
        dof[numbers] = worst
    rows = next(iter(values.values())).shape[1]  # what is between rows is of the row before
    root, step = np.divmod(row - rows, max(rows - 1, 1))
    at_row = row < rows
    return Pace(
        factor=factor,
        limited_by=limited_by.tolist(),
        dof=dof,
        row=np.where(at_row, row, step),
        root=np.where(at_row, -1, root),
        slack=slack,
    )


def limit_pairs(limits: Any, dofs: int, margin: float = 1.0) -> dict[str, _Pair]:
    """Returns the lower and the upper limit by quantity, float64 [] or [D], times a margin.

    Raises UsageError for limits of no quantity, and InputError for another shape.
    """
    names = [*limits] if isinstance(limits, Mapping) else [None]
    if unknown := [name for name in names if name not in QUANTITIES]:
        found = repr(unknown[0] or limits)
        expected = f'{{"velocity": 2.0}}, of {", ".join(QUANTITIES)}'
        raise UsageError("limits of no quantity", where="limits", expected=expected, found=found)
    pairs, faults = {}, []
    for name in filter(limits.__contains__, QUANTITIES):
        limit = limits[name]
        pair = limit if isinstance(limit, tuple) and len(limit) == 2 else (limit,)
        sides = [margin * float64(read_values(as_array(x, name), name)) for x in pair]
        pairs[name] = (sides[0] if sides[1:] else -sides[0]), sides[-1]
        for side, array in zip(("lower", "upper"), pairs[name], strict=True):
            if array.shape not in ((), (dofs,)):
                what, expected = "limits of other dofs", f"one number, or {dofs}"
                where, size = f"{name} {side}", str(array.size)
                faults.append(Fault(what, where=where, expected=expected, found=size))
    raise_if_any(faults, InputError)
    return pairs


def _peaks(values: Array, name: str) -> tuple[Array, Array]:
    """Returns the range of each dof [B, D], extended to zero; raises InputError for NaN and Inf."""
    low, high = reduce_rows(np.minimum, values), reduce_rows(np.maximum, values)
    bad = ~(np.isfinite(low) & np.isfinite(high))
    if bad.any():
        raise InputError(
            "NaN or Inf cannot be brought within limits",
            where=f"{name}, trajectory {int(np.argwhere(bad)[0, 0])}",
        )
    return np.minimum(low, 0), np.maximum(high, 0)


def _shares(low: Array, high: Array, bounds: Sequence[Floats]) -> Floats:
    """Returns the largest share of its limit that each dof takes, [B, D]."""
    lower, upper = bounds
    share: Floats = np.maximum(high.astype(np.float64) / upper, low.astype(np.float64) / lower)
    return share


def scale_outputs(
    parts: Mapping[str, Array], factor: Floats, growth: Array | float = 1.0
) -> dict[str, Array]:
    """Returns quantities [B, ...] of trajectories ``factor`` · ``growth`` [B] times as long."""
    scaled = dict(parts)
    for order, name in enumerate(QUANTITIES):
        if order and name in parts:
            power = match_library(factor**order, parts[name]) * growth**order
            scaled[name] = _divided(parts[name], power)
    return scaled


def _divided(values: Array, power: Array) -> Array:
    """Returns values [B, ...] over a power of the factor [B].

    They are divided in float64, and have the type of the values (integers: float64).
    """
    quotient = float64(values) / power.reshape(-1, *(1,) * (values.ndim - 1))
    return cast(quotient, "float32") if output_dtype(values.dtype) == "float32" else quotient


def _after_rounding(
    factor: Floats, peaks: Mapping[str, tuple[Array, Array]], limits: Mapping[str, _Pair]
) -> Floats:
    """Returns the factor, larger by a few last places where rounding exceeds a limit.

    Values so small that their last place is a large share of them need more.
    """
    for turn in range(64):
        over = np.zeros(len(factor), bool)
        step = float(np.finfo(np.float64).eps)
        for name, sides in peaks.items():
            (lower, upper), power = limits[name], factor ** QUANTITIES.index(name)
            low, high = (_divided(side, power) for side in sides)
            outside = (high.astype(np.float64) > upper) | (low.astype(np.float64) < lower)
            over |= outside.any(1)
            step = max(step, float(np.finfo(high.dtype).eps) / 2)
        if not over.any():
            break
        # step is half a last place of the outputs; beyond 8 turns it doubles each time
        factor = np.where(over, factor * (1.0 + step * 2.0 ** max(turn - 8, 0)), factor)
    return factor


def extremes(
    mode: str, options: Mapping[str, Any], rows: Mapping[str, Array], times: Array,
    steps: Integers | None = None,
) -> dict[str, Array]:  # fmt: skip
    """Returns the extreme velocities, accelerations and jerks within the steps between rows.

    ``rows`` are position to jerk [B, T, D] by name, NumPy or torch, at ``times`` [T] or [B, T];
    ``steps`` [B] picks one step of each trajectory, None all T − 1. The result has, by name
    [B, n, T−1, D], the values where the derivative is zero, at most n in a step; others repeat a
    row. It is empty without the rows that the curve is computed from. Raises UsageError for a mode
    whose rows no known polynomial joins.
    """
    (knots,) = seconds(times[None] if times.ndim == 1 else times)
    if missing_parts(mode, options, rows) or knots.shape[1] < 2:
        return {}
    numbers = np.arange(knots.shape[1] - 1)[None] if steps is None else steps[:, None].clip(0)
    first = match_library(numbers.clip(max=knots.shape[1] - 2), knots)
    begin, end = take(knots, first), take(knots, first + 1)
    values = [rows.get(name) for name in QUANTITIES]
    known, tau = taylor(mode, options, values, knots, (begin + end) / 2)
    step = (end - begin)[..., None]
    low = tau - step / 2
    extrema = {}
    for order in (1, 2, 3):
        if any(part is None for part in known[order:]) or order >= len(known):
            continue
        shape = np.broadcast_shapes(known[order].shape, low.shape)
        ends = (np.broadcast_to(to_numpy(x), shape) for x in (low, low + step))
        slope = [to_numpy(x) for x in known[order + 1 :]]
        if found := [_followed(known, at, low, order + 1) for at in find_zeros(slope, *ends)]:
            at_roots = [derivative(known, at, order) for at in found]
            extrema[QUANTITIES[order]] = library(low).stack(at_roots, 1)
    return extrema


def method_extremes(
    method: str, rows: Mapping[str, Floats], times: Floats, kinds: Mapping[str, np.dtype[Any]]
) -> dict[str, Floats]:
    """Returns the extremes of the curve by ``method``, cubic or quintic, through ``rows`` [B, T, D]
    by name, of positions and velocities at least, at ``times`` [B, T], by name [B, 2, T−1, D].

    kinds: the types that rows were rounded to, by name.
    """
    (knots,), names = seconds(times), [name for name in QUANTITIES if name in rows]
    given, places = [rows[name] for name in names], [kinds[name] for name in names]
    known, step = polynomials(method, given, knots, places), np.diff(knots)[..., None]
    extrema = {}
    for name in names[1:]:
        if (order := QUANTITIES.index(name)) >= len(known):
            continue
        # no polynomial goes further than this from its middle; few steps have roots to find
        powers = (abs(x) * (step / 2) ** m / math.factorial(m) for m, x in enumerate(known[order:]))
        _, values, spread = next(powers), known[order], sum(powers)
        most, least = rows[name].max(1, keepdims=True), rows[name].min(1, keepdims=True)
        place = np.nonzero((values + spread > most) | (values - spread < least))
        own = [x[place] for x in known[order:]]
        end = np.broadcast_to(step / 2, values.shape)[place]
        at = np.stack([-end, end, *find_zeros(own[1:], -end, end)])
        reached, ends = derivative([*own, 0.0], at, 0), np.stack([values, values], 1)
        ends[:, 0][place], ends[:, 1][place] = reached.min(0), reached.max(0)
        extrema[name] = ends
    return extrema


def polynomials(
    method: str, rows: Sequence[Floats], knots: Floats, kinds: Sequence[np.dtype[Any]]
) -> list[Floats]:
    """Returns values and derivatives amid each step [B, T−1, D] of the curve by ``method``, cubic
    or quintic, through rows of values and of their derivatives, which were rounded to ``kinds``."""
    given = [x.astype(np.float64) for x in rows[: ARRAY_COUNTS[method]]]
    places = [half_ulp(np.empty(0, kind)) for kind in kinds]
    return hermite(given, places, knots, (knots[:, 1:] + knots[:, :-1]) / 2, 2 * len(given))


def _followed(known: list[Array], found: Floats, low: Array, order: int) -> Array:
    """Returns roots of a derivative, which NumPy has found, with their gradients; others at low."""
    if not is_torch(low):
        return found
    at = match_library(found, low)
    # one step of Newton's method leaves a root where it is, and gives it its gradient
    bend, inside = derivative(known, at, order + 1), at > low
    step = derivative(known, at, order) / bend.where(inside & (bend != 0), 1.0)
    return (at - step).where(inside, low)


def find_zeros(taylor: Sequence[Floats], begin: Floats, end: Floats) -> list[Floats]:
    """Returns where Σ_m c_m·τᵐ/m! is zero within begin..end; else begin."""
    degree = len(taylor) - 1
    if degree < 1:
        return []
    with np.errstate(all="ignore"):
        if degree == 1:
            candidates = [-taylor[0] / taylor[1]]
        elif degree == 2:  # without cancellation: Press et al., "Numerical Recipes", 5.6
            root = np.sqrt(taylor[1] ** 2 - 2 * taylor[2] * taylor[0])
            half = -(taylor[1] + np.copysign(root, taylor[1]))
            candidates = [half / taylor[2], 2 * taylor[0] / half]
        else:  # between its own extremes it is monotonic
            edges = np.sort([begin, *find_zeros(taylor[1:], begin, end), end], axis=0)
            candidates = [_bisected(taylor, a, b) for a, b in itertools.pairwise(edges)]
        return [np.where((at > begin) & (at < end), at, begin) for at in candidates]


def _bisected(taylor: Sequence[Floats], low: Floats, high: Floats) -> Floats:
    """Returns where the polynomial changes its sign between low and high, NaN where it does not."""
    rising = derivative(taylor, high, 0) > 0
    changes = (derivative(taylor, low, 0) > 0) != rising
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = (derivative(taylor, middle, 0) > 0) == rising
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.where(changes, (low + high) / 2, np.nan)
