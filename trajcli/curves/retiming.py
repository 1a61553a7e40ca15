"""Retimes trajectories within limits: by a uniform factor, or as fast as their path allows."""

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
    duration_error,
    limit_faults,
    make_course,
    make_setpoints,
    solve_timings,
)
from trajcli.curves.resampling import ARRAY_COUNTS, hermite
from trajcli.curves.sampling import derivative, half_ulp, is_known, missing_parts, take, taylor
from trajcli.errors import Fault, InputError, UsageError, raise_if_any, unknown, wrong_shape
from trajcli.kernels.program import Array, ArrayLike, Floats, NumpyArray
from trajcli.mode_options import ANY_PACE
from trajcli.modes.mode import QUANTITIES
from trajcli.padding import padded, read_lengths, zero_padding
from trajcli.trajectory import State, Trajectory, as_trajectory


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The pace of trajectories within limits, and what decides it.

    Attributes:
        factor: how many times as long each trajectory takes, [B].
        limited_by: the quantity of each trajectory that is at its limit, or "".
        dof, row: where it is at its limit, [B]; −1 where nothing is.
        root: the number of the extreme between that row and the next, [B]; −1 for the row itself.
        slack: the share of the limit that is left, [B] by quantity, for the dof with the least.
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

    A selection such as ``retimed[2:5]`` is a ``Trajectory``.
    """

    words = ("limited_by",)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Fastest(Trajectory):
    """Trajectories by the fastest timing of their paths, at rows of mode ``bspline``.

    ``integrate(f.actions, f.start, f.step[:, None], "bspline", goal=f.goal, **f.options)`` computes
    the rows again; if f has ``lengths``, with ``lengths=f.lengths - 5``.

    Attributes:
        duration: of the rows [B], in seconds: from rest to rest, three steps more than the motion.
        uniform: the duration of the path at its fastest uniform pace, [B].
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
        """The goal state, if a trajectory moves at its end."""
        moves = self.options["ends"] == "goal"
        return State(*(self.ends[:, 1, k] for k in range(4))) if moves else None


Limit = tuple[ArrayLike, ArrayLike] | ArrayLike | float
"""The least and the largest value, each a number or [D]; a single one is the largest magnitude."""
_Pair = tuple[Floats, Floats]
# The least factor, whose third power is still a normal number; 1e100 is the largest.
_LEAST = 1e-100
# Halvings of a step until a root of a cubic is exact: more than the bits of a float64's fraction.
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
    """Retimes trajectories within limits: by the least uniform factor, or as fast as possible.

    ``uniform`` stretches time from the first row on. A factor s turns velocity into v/s,
    acceleration into a/s² and jerk into j/s³. It is below 1 if a trajectory can be faster, and 1 if
    it does not move. Values are within limits also after rounding to their dtype. Differentiable
    with respect to rows and times; where several values are at a limit, through the first of them.

    ``fastest`` keeps only the path, a quintic spline through the rows, and slows down only where a
    limit binds. Its unknown is the squared speed along the path (D. Verscheure et al.,
    "Time-optimal path tracking for robots", 2009). The result, float64, is mode ``bspline`` of
    degree 3, whose control points are positions at equal times: its rates, and the differences of
    its control points, keep the limits. Ends that move keep their speed, rows without velocities
    rest at both ends, and standstill is left out.

    Parameters:
        trajectory: from ``integrate`` or ``load``; by ``uniform`` it keeps limits between its rows,
            too, if its mode defines a curve there (see ``sample``). Or positions [K, D] or
            [B, K, D] without times, which are a path.
        limits: by quantity, a pair (lower < 0 < upper) of numbers or [D], or the largest magnitude;
            infinite for no limit.
        method: uniform or fastest; None: uniform for a ``Trajectory``, fastest for positions.
        slower_only: uniform: no factor is below 1.
        rate: fastest: rows per second; None: 1000, or the trajectory's rate if that is higher.
        rows: fastest: the number of rows, instead of a rate.
        duration: of all rows, in seconds; None: the shortest.
        corners: fastest: None refuses a path with corners; ``"stop"`` rests at them; a distance
            lets the path cut them, this near to the lines between rows.
        margin: the share of the limits to use.

    Returns:
        By uniform a ``Trajectory`` with its ``factor`` [B] and what decides it: ``limited_by``,
        ``dof``, ``row`` and ``slack``; padding decides nothing. By fastest a ``Trajectory`` with
        ``duration``, ``uniform``, ``states``, ``actions``, ``start``, ``goal`` and ``shares``.

    Raises:
        InputError: limits of absent quantities or for another number of dofs; NaN or Inf; a
            duration that limits forbid; corners; ends that move beyond limits.
        UsageError: limits that require a gradient, which would be lost, or within vmap; an option
            of the other method; fastest for rows with a gradient, or without compiled kernels.
    """
    method = method or ("uniform" if isinstance(trajectory, Trajectory) else "fastest")
    if method not in ("uniform", "fastest"):
        raise UsageError(unknown("method", choices="uniform, fastest", found=repr(method)))
    # each method refuses the options of the other
    others = {"rate": rate, "rows": rows, "corners": corners}
    others = others if method == "uniform" else {"slower_only": slower_only or None}
    if names := [name for name, x in others.items() if x is not None]:
        raise UsageError(f"no option of {method}", where=", ".join(names))
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
    # limits hold between the rows, too, where the curve there is known
    between: dict[str, Any] = {}
    if is_known(trajectory.mode, trajectory.options):
        between = extremes(trajectory.mode, trajectory.options, parts, to_numpy(time, "time"))
    last = np.full(len(next(iter(parts.values()))), time.shape[-1] - 1)
    if trajectory.lengths is not None:  # padding decides nothing
        lengths = to_numpy(trajectory.lengths, "lengths")
        last = lengths - 1
        parts = {name: zero_padding(x, lengths) for name, x in parts.items()}
        for values in between.values():
            values.swapaxes(1, 2)[np.arange(1, time.shape[-1]) >= lengths[:, None]] = 0
    # the pace is found in NumPy; its gradient follows from the one value that decides it
    pace = find_pace(parts, pairs, bool(slower_only), between)
    (knots,) = seconds(time[None] if time.ndim == 1 else time)
    differentiable = any(map(has_gradient, (*outputs.values(), time)))
    durations: Any = knots[np.arange(len(last)) % len(knots), last] - knots[:, 0]
    growth: Array | float = 1.0
    if duration is not None:
        pace = stretch_pace(pace, to_numpy(durations), float(duration))
        growth = durations.detach() / durations if differentiable else 1.0
    elif differentiable:
        growth = _growth(trajectory, knots, pace)
    # time is stretched from the first row on, which keeps its stamp
    factor = match_library(pace.factor, knots) * growth
    times = knots[:, :1] + (knots - knots[:, :1]) * factor[:, None]
    scaled: dict[str, Any] = dict.fromkeys(QUANTITIES)
    scaled |= scale_outputs(outputs, pace.factor, growth)
    return Retimed(
        **scaled,
        time=times[0] if time.ndim == len(times) == 1 else times,
        mode=trajectory.mode,
        options={k: x for k, x in trajectory.options.items() if k in ANY_PACE},
        lengths=trajectory.lengths,
        factor=factor,
        limited_by=pace.limited_by,
        **{name: match_library(getattr(pace, name), knots) for name in ("dof", "row", "root")},
        slack={name: match_library(share, knots) for name, share in pace.slack.items()},
    )


def stretch_pace(pace: Pace, durations: Floats, duration: float) -> Pace:
    """Stretches trajectories of ``durations`` [B] to one duration, from the fastest pace on."""
    # a trajectory that does not move has no pace of its own
    used = np.max([1 - x for x in pace.slack.values()], axis=0)
    least = float((durations * pace.factor * (used > 0)).max())
    if duration < least * (1 - 1e-12) or not (durations > 0).all():
        raise duration_error(duration, least)
    # beyond the fastest pace by rounding alone, a trajectory keeps that pace
    factor = duration / durations
    factor = np.where(used > 0, np.maximum(factor, pace.factor), factor)
    longer = np.minimum(pace.factor / factor, 1.0)
    binds = longer > 1 - 1e-9  # a trajectory that is stretched is at no limit
    slack = {n: 1 - (1 - x) * longer ** QUANTITIES.index(n) for n, x in pace.slack.items()}
    indices = {n: np.where(binds, getattr(pace, n), -1) for n in ("dof", "row", "root")}
    names = [name if bind else "" for name, bind in zip(pace.limited_by, binds, strict=True)]
    return replace(pace, factor=factor, limited_by=names, slack=slack, **indices)


@contextmanager
def _collect_faults(faults: list[Fault], number: int) -> Iterator[None]:
    """Collects the faults of a trajectory, with its number in their places."""
    try:
        yield
    except InputError as error:
        faults += (replace(x, where=f"trajectory {number}, {x.where}") for x in error.faults)


def _fastest(
    trajectory: Any, limits: Mapping[str, Limit], margin: float, rate: float | None,
    corners: str | float | None, count: int | None, duration: float | None,
) -> Fastest:  # fmt: skip
    """Retimes by the method fastest, with ``count`` rows if that is given; see ``retime``."""
    if timeless := not isinstance(trajectory, Trajectory):
        path = as_array(trajectory, "position")
        path = path[None] if path.ndim == 2 else path
        trajectory = Trajectory(path, None, None, None, np.arange([1, *path.shape][-2]))
    source = as_trajectory(trajectory)
    outputs, like, (batch, most, dofs) = source.outputs(), source.position, source.shape
    if like is None:
        hint = "method='uniform'"
        raise InputError("no path without positions", where="position", hint=hint)
    if not batch * dofs:
        raise InputError(wrong_shape("position", "[B, K, D]", like.shape))
    if any(map(has_gradient, (*outputs.values(), source.time))):
        what, hint = "the fastest timing has no gradient", "method='uniform', or .detach()"
        raise UsageError(what, where="position", hint=hint)
    parts = {name: to_numpy(x, name).astype(np.float64) for name, x in outputs.items()}
    # positions are those of the path, whatever their limits
    bounds = limit_pairs(limits, dofs, margin)
    bounds.pop(QUANTITIES[0], None)
    counts = np.full(batch, most)
    counts = counts if source.lengths is None else read_lengths(source.lengths, batch, most)
    (times,) = seconds(to_numpy(source.time, "time").reshape(-1, most))
    steps, courses = np.full(batch, 1e-3 if rate is None else 1 / rate), list[Course]()
    faults, solved = list[Fault](), dict[int, Setpoints]()
    for k, length in enumerate(counts):
        clock = None if timeless else times[k % len(times), :length]
        if rate is None and clock is not None and length > 1:
            # nine digits: time stamps are rounded
            steps[k] = min(1e-3, float(f"{(clock[-1] - clock[0]) / (length - 1):.9g}"))
        p, v, a = (parts[n][k, :length] if n in parts else None for n in QUANTITIES[:3])
        with _collect_faults(faults, k):
            courses.append(make_course(p, clock, v, a, corners))  # type: ignore[arg-type]
    raise_if_any(faults)
    timings = solve_timings(courses, bounds)
    # the slowest first: a duration that is too short for it is too short for all
    for k in np.argsort([-x.duration for x in timings], kind="stable").tolist():
        with _collect_faults(faults, k):
            solved[k] = make_setpoints(
                courses[k], timings[k], bounds, 1 / steps[k], count, duration
            )
        if faults and duration:
            break
    raise_if_any(faults)
    points = [solved[k] for k in range(batch)]
    horizons, steps = np.array([len(x.actions) for x in points]), np.array([x.step for x in points])
    actions = np.concatenate([padded(x.actions[None], horizons.max()) for x in points])
    ends = np.array([(x.start, x.goal) for x in points])
    # a goal state is needed only if a trajectory moves at its end; others then have one at rest
    moves = any(x.moving[1] for x in courses)
    start, goal = (State(*ends[:, side].swapaxes(0, 1)) for side in (0, 1))
    motion = integrate(
        actions, start, steps[:, None], "bspline", degree=3, steps=1,
        goal=goal if moves else None, ends="goal" if moves else "plan",
        lengths=None if (horizons == horizons[0]).all() else horizons,
    )  # fmt: skip
    rows: dict[str, Any] = motion.outputs()
    # padding after the rows of a trajectory is left out
    shares = [
        binding_shares({n: x[k, : points[k].count] for n, x in rows.items()}, bounds)
        for k in range(batch)
    ]
    arrays = {
        **motion._arrays(), "step": steps, "actions": actions, "ends": ends,
        "duration": steps * (horizons + 4), "uniform": np.array([x.uniform for x in timings]),
    }  # fmt: skip
    return Fastest(
        **{name: match_library(x, like) for name, x in arrays.items()}, mode=motion.mode,
        options=motion.options, states=[x.state for x in timings],
        shares={n: match_library(np.stack([x[n] for x in shares]), like) for n in bounds},
    )  # fmt: skip


def _growth(trajectory: Trajectory, knots: Array, pace: Pace) -> Array:
    """Makes ones [B] that carry the gradient of the factor's logarithm."""
    # the factor is a root of the value that is at its limit, times a constant
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
        # column 0 is the row, the others the extremes after it
        value = values[np.arange(len(numbers)), root + 1]
        share = (value / value.detach()) ** (1 / order)
        before: Any = growth
        growth = before.index_put((match_library(numbers, knots),), share)
    return growth


def find_pace(
    parts: Mapping[str, Array],
    limits: Mapping[str, Limit],
    slower_only: bool,
    between: Mapping[str, Floats],
) -> Pace:
    """Finds the fastest uniform pace of rows [B, T, D], and of the values ``between`` them
    [B, n, T−1, D], within limits, by quantity."""
    values = {name: parts[name] for name in QUANTITIES[1:] if name in parts}
    bounds = limit_pairs(limits, next(iter(parts.values())).shape[-1])
    bounds.pop(QUANTITIES[0], None)  # positions are the same at any pace
    raise_if_any(limit_faults([*values], bounds), InputError)
    # the rows, and the values between: those of one root after those of another, [B, n·(T−1), D]
    tables = [{name: values[name] for name in bounds}, dict[str, Array]()]
    for name in filter(between.__contains__, bounds):
        count, _, _, dofs = between[name].shape
        tables[1][name] = between[name].reshape(count, -1, dofs)
    peaks = [{name: _peaks(x, name) for name, x in table.items()} for table in tables]
    with np.errstate(over="ignore"):
        shares = {
            name: np.max([_shares(*x[name], bounds[name]) for x in peaks if name in x], axis=0)
            for name in bounds
        }
    worst = {name: share.max(1, initial=0.0) for name, share in shares.items()}
    # a quantity falls with the power of the factor that is its order; the one that needs the most
    # time decides
    roots = {"velocity": np.positive, "acceleration": np.sqrt, "jerk": np.cbrt}
    needed = np.stack([roots[name](share) for name, share in worst.items()])
    limited_by, factor = np.array(list(bounds))[needed.argmax(0)], needed.max(0)
    limited_by[(factor == 0.0) | (slower_only & (factor < 1.0))] = ""
    factor = np.where(factor == 0.0, 1.0, np.maximum(factor, 1.0 if slower_only else 0.0))
    if (bad := ~((factor > _LEAST) & (factor < 1.0 / _LEAST))).any():
        number, what = int(bad.argmax()), "limits that no pace can keep"
        where, found = f"trajectory {number}, {limited_by[number]}", f"time × {factor[number]:.3g}"
        raise InputError(what, where=where, found=found)
    for ranges in peaks:
        factor = _round_up(factor, ranges, bounds)
    slack = {
        name: np.maximum(1.0 - share / factor ** QUANTITIES.index(name), 0.0)
        for name, share in worst.items()
    }
    dof, row = np.full((2, len(factor)), -1)
    for name in {*limited_by.tolist()} - {""}:
        numbers = np.flatnonzero(limited_by == name)
        dof[numbers] = dofs = shares[name][numbers].argmax(1)
        column = np.concatenate([x[name][numbers, :, dofs] for x in tables if name in x], 1)
        pair = [np.broadcast_to(side, values[name].shape[2])[dofs, None] for side in bounds[name]]
        with np.errstate(over="ignore"):
            row[numbers] = _shares(column, column, pair).argmax(1)
    # an index past the rows counts the values between, which belong to the row before them
    rows = next(iter(values.values())).shape[1]
    root, step = np.divmod(row - rows, max(rows - 1, 1))
    row, root = np.where(row < rows, row, step), np.where(row < rows, -1, root)
    names = limited_by.tolist()
    return Pace(factor=factor, limited_by=names, dof=dof, row=row, root=root, slack=slack)


def limit_pairs(limits: Any, dofs: int, margin: float = 1.0) -> dict[str, _Pair]:
    """Reads the lower and the upper limit by quantity, float64 [] or [D], times a margin."""
    names = [*limits] if isinstance(limits, Mapping) else [None]
    if unknown := [name for name in names if name not in QUANTITIES]:
        found = repr(unknown[0] or limits)
        expected = f'{{"velocity": 2.0}}, of {", ".join(QUANTITIES)}'
        raise UsageError("limits of no quantity", where="limits", expected=expected, found=found)
    pairs, faults = {}, []
    for name in filter(limits.__contains__, QUANTITIES):
        limit = limits[name]
        # a single limit is the magnitude for both directions
        pair = limit if isinstance(limit, tuple) and len(limit) == 2 else (limit,)
        sides: list[Any] = [margin * float64(read_values(as_array(x, name), name)) for x in pair]
        pairs[name] = (sides[0] if sides[1:] else -sides[0]), sides[-1]
        for side, array in zip(("lower", "upper"), pairs[name], strict=True):
            if array.shape not in ((), (dofs,)):
                what, expected = "wrong number of limits", f"one number, or {dofs}"
                where, size = f"{name} {side}", str(array.size)
                faults.append(Fault(what, where=where, expected=expected, found=size))
    raise_if_any(faults, InputError)
    return pairs


def _peaks(values: Array, name: str) -> tuple[NumpyArray, NumpyArray]:
    """Finds the range of each dof [B, D], extended to zero; raises InputError for NaN and Inf."""
    low, high = reduce_rows(np.minimum, values), reduce_rows(np.maximum, values)
    bad = ~(np.isfinite(low) & np.isfinite(high))
    if bad.any():
        where = f"{name}, trajectory {int(np.argwhere(bad)[0, 0])}"
        raise InputError("NaN or Inf cannot be brought within limits", where=where)
    # limits lie on both sides of zero: values of one sign use nothing of the other side
    return np.minimum(low, 0), np.maximum(high, 0)


def _shares(low: NumpyArray, high: NumpyArray, bounds: Sequence[Floats]) -> Floats:
    lower, upper = bounds
    return np.maximum(high.astype(np.float64) / upper, low.astype(np.float64) / lower)


def scale_outputs(
    parts: Mapping[str, Array], factor: Array, growth: Array | float = 1.0
) -> dict[str, Array]:
    """Scales quantities [B, ...] to trajectories ``factor`` · ``growth`` [B] times as long."""
    scaled = dict(parts)
    for order, name in enumerate(QUANTITIES):
        if order and name in parts:
            power = match_library(factor**order, parts[name]) * growth**order
            scaled[name] = _divide(parts[name], power)
    return scaled


def _divide(values: Array, power: Array) -> Array:
    """Divides values [B, ...] by a power of the factor [B] in float64, and restores their dtype."""
    quotient = float64(values) / power.reshape(-1, *(1,) * (values.ndim - 1))
    return cast(quotient, "float32") if output_dtype(values.dtype) == "float32" else quotient


def _round_up(
    factor: Floats, peaks: Mapping[str, tuple[NumpyArray, NumpyArray]], limits: Mapping[str, _Pair]
) -> Floats:
    """Increases the factor until the values keep the limits after rounding to their dtype."""
    for turn in range(64):
        over = np.zeros(len(factor), bool)
        step = float(np.finfo(np.float64).eps)
        for name, sides in peaks.items():
            (lower, upper), power = limits[name], factor ** QUANTITIES.index(name)
            quotients: Iterator[Any] = (_divide(side, power) for side in sides)
            low, high = quotients
            outside = (high.astype(np.float64) > upper) | (low.astype(np.float64) < lower)
            over |= outside.any(1)
            step = max(step, float(np.finfo(high.dtype).eps) / 2)
        if not over.any():
            break
        # By half a last place of the outputs at a time. That is too little for values so small that
        # their last place is a large share of them: after 8 turns the increase doubles each time.
        factor = np.where(over, factor * (1.0 + step * 2.0 ** max(turn - 8, 0)), factor)
    return factor


def extremes(
    mode: str, options: Mapping[str, Any], rows: Mapping[str, Array], times: Array,
    steps: Array | None = None,
) -> dict[str, Array]:  # fmt: skip
    """Finds the extreme velocities, accelerations and jerks within the steps between rows.

    ``rows`` are position to jerk [B, T, D] by name, at ``times`` [T] or [B, T]. ``steps`` [B]
    selects one step of each trajectory, None all T − 1. The result has, by name [B, n, T−1, D], the
    values where the derivative is zero, at most n in a step; the others repeat a row. It is empty
    without the rows that the curve is computed from.
    """
    (knots,) = seconds(times[None] if times.ndim == 1 else times)
    if missing_parts(mode, options, rows) or knots.shape[1] < 2:
        return {}
    numbers = np.arange(knots.shape[1] - 1)[None] if steps is None else steps[:, None].clip(0)
    first = match_library(numbers.clip(max=knots.shape[1] - 2), knots)
    begin, end = take(knots, first), take(knots, first + 1)
    # times are counted from the row around which the polynomial is expanded; tau is that of the
    # middle of the step, which lies on no other polynomial
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
        peaks = []
        for root in find_zeros([to_numpy(x) for x in known[order + 1 :]], *ends):
            at: Any = root
            if is_torch(low):
                # one step of Newton's method leaves a root where it is, and gives it its gradient
                at = match_library(root, low)
                bend: Any = derivative(known, at, order + 2)
                within = at > low
                newton = derivative(known, at, order + 1) / bend.where(within & (bend != 0), 1.0)
                at = (at - newton).where(within, low)
            peaks.append(derivative(known, at, order))
        if peaks:
            extrema[QUANTITIES[order]] = library(low).stack(peaks, 1)
    return extrema


def method_extremes(
    method: str, rows: Mapping[str, Floats], times: Floats, kinds: Mapping[str, np.dtype[Any]]
) -> dict[str, Floats]:
    """Finds the extremes of the cubic or quintic curve through rows [B, T, D], which were rounded
    to the dtypes ``kinds``, at ``times`` [B, T]: by name [B, 2, T−1, D]."""
    (knots,), names = seconds(times), [name for name in QUANTITIES if name in rows]
    tables, precisions = [rows[name] for name in names], [kinds[name] for name in names]
    known, step = polynomials(method, tables, knots, precisions), np.diff(knots)[..., None]
    extrema = {}
    for name in names[1:]:
        if (order := QUANTITIES.index(name)) >= len(known):
            continue
        # Roots are sought only in the few steps whose polynomial may leave the range of the rows:
        # none goes further from its middle than the sum of its terms at an end.
        powers = (abs(x) * (step / 2) ** m / math.factorial(m) for m, x in enumerate(known[order:]))
        _, values, spread = next(powers), known[order], sum(powers)
        most, least = rows[name].max(1, keepdims=True), rows[name].min(1, keepdims=True)
        indices = np.nonzero((values + spread > most) | (values - spread < least))
        taylor = [x[indices] for x in known[order:]]
        end = np.broadcast_to(step / 2, values.shape)[indices]
        at = np.stack([-end, end, *find_zeros(taylor[1:], -end, end)])
        reached, ends = derivative([*taylor, 0.0], at, 0), np.stack([values, values], 1)
        ends[:, 0][indices], ends[:, 1][indices] = reached.min(0), reached.max(0)
        extrema[name] = ends
    return extrema


def polynomials(
    method: str, rows: Sequence[Floats], knots: Array, kinds: Sequence[np.dtype[Any]]
) -> list[Floats]:
    """Computes values and derivatives amid each step [B, T−1, D] of the cubic or quintic curve."""
    tables = [x.astype(np.float64) for x in rows[: ARRAY_COUNTS[method]]]
    half_ulps = [half_ulp(np.empty(0, kind)) for kind in kinds]
    middle = (knots[:, 1:] + knots[:, :-1]) / 2
    known: list[Any] = hermite(tables, half_ulps, knots, middle, 2 * len(tables))
    return known


def find_zeros(taylor: Sequence[Floats], begin: Floats, end: Floats) -> list[Floats]:
    """Finds where Σ_m c_m·τᵐ/m! is zero between begin and end; gives begin for other roots."""
    degree, candidates = len(taylor) - 1, list[Floats]()
    if degree < 1:
        return []
    with np.errstate(all="ignore"):
        if degree == 1:
            candidates = [-taylor[0] / taylor[1]]
        elif degree == 2:  # without cancellation: Press et al., "Numerical Recipes", 5.6
            root = np.sqrt(taylor[1] ** 2 - 2 * taylor[2] * taylor[0])
            half = -(taylor[1] + np.copysign(root, taylor[1]))
            candidates = [half / taylor[2], 2 * taylor[0] / half]
        else:  # the polynomial is monotonic between its extremes: bisection between these
            edges = np.sort([begin, *find_zeros(taylor[1:], begin, end), end], axis=0)
            for low, high in itertools.pairwise(edges):
                rising = derivative(taylor, high, 0) > 0
                changes = (derivative(taylor, low, 0) > 0) != rising
                for _ in range(_HALVINGS):
                    middle = (low + high) / 2
                    above = (derivative(taylor, middle, 0) > 0) == rising
                    low, high = np.where(above, low, middle), np.where(above, middle, high)
                candidates.append(np.where(changes, (low + high) / 2, np.nan))
        return [np.where((at > begin) & (at < end), at, begin) for at in candidates]
