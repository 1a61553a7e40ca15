"""Scores the quality of motions; docs/scores.md has each formula and its source."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np

from trajcli.arrays import arange, eager, float64, library, match_library, seconds, to_numpy
from trajcli.calls import differentiate
from trajcli.curves.retiming import Limit, limit_pairs
from trajcli.errors import InputError, describe
from trajcli.kernels.program import Array, ArrayLike, Booleans, Floats, Integers, NumpyArray
from trajcli.modes.central import WINDOW
from trajcli.modes.mode import QUANTITIES
from trajcli.padding import group_by_length, index_array, merge_groups, read_lengths
from trajcli.rotations import angle
from trajcli.rotations import differentiate as differentiate_rotations
from trajcli.trajectory import Trajectory, as_trajectory

Scores: TypeAlias = dict[str, Array]

UNITS = {"duration": "s", "path_length": "position", "rms_jerk": "jerk", "p95_jerk": "jerk",
         "log_jerk": "", "sparc": "", "angular_path": "rad", "angular_sparc": "",
         "still": "", "idle_start": "s", "idle_end": "s", "idle_longest": "s",
         "time_jumps": "", "saturation": "", "limit_share": ""}  # fmt: skip
"""All scores, with their unit or the quantity whose unit they have; "" for pure numbers."""
# Scores that a few rows can decide.
_PEAK_SCORES = {"rms_jerk", "p95_jerk", "log_jerk", "limit_share"}
# A trajectory stands still up to this share of its peak speed.
_STILL = 0.05
# A jump in time is a step longer than this many median steps.
_JUMP = 1.5
# A value is at a limit within this share of it.
_AT_LIMIT = 1e-3
# SPARC: the part of the spectrum that counts, and how often padding doubles the length.
_LARGEST_HZ, _LEAST_MAGNITUDE, _PADDING = 10.0, 0.05, 4


@eager
def score(
    trajectory: Trajectory, limits: Mapping[str, Limit] | None = None, *,
    lengths: ArrayLike | None = None, still: float | None = None,
) -> Scores:  # fmt: skip
    """Scores trajectories: duration, jerk, smoothness, standstill and more.

    Absent velocities, accelerations and jerks are computed by central differences of the positions.
    Formulas and their sources: docs/scores.md.

    Parameters:
        trajectory: what ``integrate`` or ``load`` returns, NumPy or torch.
        limits: for ``limit_share``, a pair (lower, upper) of numbers or [D], or the largest
            magnitude, by quantity.
        lengths: integers [B], how many rows of each trajectory are data, the others being padding.
            Each is scored as if it were alone, but for ``saturation``, which compares it to the
            others. None: ``trajectory.lengths``.
        still: the speed up to which a trajectory stands still. None: 5 % of its peak speed.

    Returns:
        The scores by name, float64 [B], tensors for tensors. duration, path_length, rms_jerk and
        log_jerk are differentiable with respect to rows and times; their gradient is zero at a norm
        of zero. The other scores have no gradient. A score whose quantities are absent is left out;
        it is NaN for a trajectory without it (too few rows, NaN, no motion).
    """
    trajectory = as_trajectory(trajectory)
    outputs, time = trajectory.outputs(), trajectory.time
    name, values = next(iter(outputs.items()))
    count, rows, dofs = values.shape
    if not count:
        raise InputError("no trajectories", where=name, found=describe(values.shape))
    bounds = limit_pairs({} if limits is None else limits, dofs)
    for known, (lower, upper) in bounds.items():
        if not (lower < upper).all():
            what, found = "limits that nothing keeps", f"{lower.tolist()} to {upper.tolist()}"
            raise InputError(what, where=known, expected="the least below the largest", found=found)
    (times,) = seconds(time[None] if time.ndim == 1 else time)
    times = library(times).broadcast_to(times, (count, rows))
    lengths = trajectory.lengths if lengths is None else lengths
    counts = np.full(count, rows) if lengths is None else read_lengths(lengths, count, rows)
    groups, scored, extremes = group_by_length(counts), [], []
    for numbers in groups:
        # trajectories of one length; no copy if all have the same
        part = slice(None) if len(groups) == 1 else numbers, slice(counts[numbers[0]])
        group = {known: x[part] for known, x in outputs.items()}
        scored.append(block_scores(group, times[part], None, bounds, still=still))
        peaks = block_extremes(to_numpy(group[name], name), bounds.get(name))
        extremes.append(peaks.swapaxes(0, 1))
    scores = {known: merge_groups([x[known] for x in scored], groups) for known in scored[0]}
    scores["saturation"] = saturation(to_numpy(merge_groups(extremes, groups)).swapaxes(0, 1))
    return {name: match_library(scores[name], time) for name in UNITS if name in scores}


def block_scores(
    parts: Mapping[str, Array],
    times: Array,
    step: float | None,
    bounds: Mapping[str, tuple[Floats, Floats]],
    ends: int = 0,
    still: float | None = None,
    turns: Floats | None = None,
) -> Scores:
    """Computes all scores but saturation of trajectories [b, T, D] by quantity, T >= 1.

    times: [b or 1, T]. step: dt if all steps are equal. bounds: limits [D]. ends: how many rows at
    each end the scores of jerk and limits leave out. turns: orientations [b, T, R, 4].
    """
    if 0 < 2 * ends < times.shape[1]:
        # windows at the ends are one-sided: their errors would be the peaks
        inner = {name: values[:, ends:-ends] for name, values in parts.items()}
        without = block_scores(inner, times[:, ends:-ends], step, bounds)
        chosen = {name: without[name] for name in _PEAK_SCORES & without.keys()}
        return block_scores(parts, times, step, bounds, still=still, turns=turns) | chosen
    count, rows, _ = next(iter(parts.values())).shape
    times = library(times).broadcast_to(times, (count, rows))
    with np.errstate(all="ignore"):  # undefined scores become NaN
        increasing = to_numpy(times[:, 1:] > times[:, :-1], "time").all(1)
        parts = add_derivatives(parts, times, step, increasing, {"velocity", "jerk", *bounds})
        scores = _smooth_scores(parts, times) | {"time_jumps": np.zeros(count)}
        parts, times = {name: to_numpy(x, name) for name, x in parts.items()}, to_numpy(times)
        steps = np.diff(times)
        if step is None and rows > 1:
            large = steps > _JUMP * np.median(steps, axis=1, keepdims=True)
            scores["time_jumps"] = (large | ~(steps > 0)).sum(1, dtype=np.float64)
        if not increasing.all():
            times = np.where(increasing[:, None], times, np.nan)
            steps = np.diff(times)
        speeds, duration = list[Array](), times[:, -1] - times[:, 0]
        if turns is not None:
            angular, spin = angular_scores(turns, times, step)
            scores |= angular
            speeds.append(spin)
        if "velocity" in parts:
            speed: Any = _norm(parts["velocity"])
            # adding 0·peak makes the score NaN where a speed is not finite
            scores["still"] = (_slow([speed], still) * steps).sum(1) / duration + 0 * speed.max(1)
            speeds.append(speed)
            scores["sparc"] = _sparc(
                speed if step is not None else _interpolate_evenly(speed, times), times
            )
        if speeds:
            unknown = 0.0 * (duration + np.max(speeds, (0, 2)))
            scores |= {n: x + unknown for n, x in idle_seconds(_slow(speeds, still), steps).items()}
        if "jerk" in parts:
            jerks = np.abs(parts["jerk"].reshape(count, -1), dtype=np.float64)
            scores["p95_jerk"] = np.quantile(jerks, 0.95, axis=1)
        shares = list[Floats]()
        for name in (n for n in QUANTITIES if n in parts and n in bounds):
            (lower, upper), values = bounds[name], parts[name]
            if name == "position":  # counts from the middle
                share = np.abs(values - 0.5 * (lower + upper)) / (0.5 * (upper - lower))
                share = np.where(np.isfinite(upper - lower), share, 0.0)
            else:
                share = np.maximum(values / upper, values / lower)
            shares.append(np.asarray(share.max((1, 2)), np.float64))
        if shares:
            scores["limit_share"] = np.max(shares, axis=0)
        return scores


def _smooth_scores(parts: Mapping[str, Array], times: Array) -> Scores:
    """Computes the differentiable scores of rows at times [b, T], in the library of the arrays."""
    array, duration = library(times), times[:, -1] - times[:, 0]
    scores = {"duration": duration}
    if "position" in parts:
        rows = float64(parts["position"])
        scores["path_length"] = _norm(rows[:, 1:] - rows[:, :-1]).sum(1)
    if "jerk" not in parts:
        return scores
    squares = _squares(parts["jerk"])
    scores["rms_jerk"] = _root(squares.mean(1) / parts["jerk"].shape[2])
    if "velocity" in parts:
        # dimensionless jerk: T³/v_peak² · ∫ |j|² dt, by the trapezoidal rule
        steps, peak = times[:, 1:] - times[:, :-1], array.amax(_norm(parts["velocity"]), 1)
        total = (0.5 * (squares[:, 1:] + squares[:, :-1]) * steps).sum(1)
        moving = array.logical_and(peak > 0, (steps > 0).all(1))
        cost = duration**3 * total / array.where(moving, peak, 1.0) ** 2
        # the logarithm of zero would have a gradient of NaN
        zero = moving & (cost == 0.0)
        finite = -array.log(array.where(moving & ~zero, cost, np.nan))
        scores["log_jerk"] = array.where(zero, np.inf, finite)
    return scores


def add_derivatives(
    parts: Mapping[str, Array], times: Array, step: float | None,
    good: Booleans, needed: set[str],
) -> dict[str, Array]:  # fmt: skip
    """Adds the quantities that are needed and absent, as central differences of the positions, NaN
    for trajectories that are not ``good`` [b]."""
    missing = [name for name in QUANTITIES[1:] if name in needed and name not in parts]
    if not missing or "position" not in parts:
        return dict(parts)
    position: Any = parts["position"]
    array, valid = library(position), index_array(good, position)[:, None]
    if position.shape[1] < WINDOW or not good.any():
        unknown = array.full_like(float64(position), np.nan)
        return {**parts, **dict.fromkeys(missing, unknown)}
    time: dict[str, Any] = {"dt": step}
    if step is None:  # any increasing times do for trajectories that become NaN
        time = {"times": array.where(valid, times, arange(0, times.shape[1], times))}
    names: list[Any] = missing
    motion = differentiate(
        position, method="central", write=names, dtype="float64", allow_nonfinite=True,
        backend="auto", **time,
    )  # fmt: skip
    valid = valid[..., None]
    return {**parts, **{n: array.where(valid, getattr(motion, n), np.nan) for n in missing}}


def angular_rates(
    quaternions: Floats, times: Floats, step: float | None, names: Collection[str]
) -> dict[str, Floats]:
    """Differentiates orientations [b, T, R, 4] by central differences, if they can be: rates
    [b, T, R, 3] by name."""
    good = np.all(np.diff(times) > 0, axis=1)
    rates = {name: np.full((*quaternions.shape[:3], 3), np.nan) for name in names}
    if names and quaternions.shape[1] >= WINDOW and good.any():
        clock = {"times": times[good]} if step is None else {"dt": step}
        with suppress(InputError):  # turns that are too large between rows: NaN
            motion = differentiate_rotations(
                quaternions[good], method="central", allow_nonfinite=True, **clock
            )
            for name in names:
                rates[name][good] = getattr(motion, name)
    return rates


def _slow(speeds: Sequence[Any], still: float | None) -> Booleans:
    """Tells in which steps [b, T − 1] every speed [b, T] is on average one of standstill."""
    most = [_STILL * x.max(1, keepdims=True) if still is None else still for x in speeds]
    slow = [0.5 * (x[:, 1:] + x[:, :-1]) <= y for x, y in zip(speeds, most, strict=True)]
    return np.asarray(np.all(slow, 0))


def _moving(slow: Booleans) -> tuple[Integers, Integers]:
    """Finds the first step in which each trajectory moves, and the one after the last."""
    count, never = slow.shape[1], slow.all(1)  # the number of steps, and 0, if it never moves
    first = np.where(never, count, slow.argmin(1) if count else 0)
    return first, np.where(never, 0, count - slow[:, ::-1].argmin(1) if count else 0)


def idle_seconds(slow: Booleans, steps: Floats) -> dict[str, Floats]:
    """Measures the standstill at the start, at the end, and the longest between, in seconds."""
    elapsed = np.cumsum(np.insert(steps, 0, 0.0, 1), 1)
    (first, last), rows = _moving(slow), np.arange(len(steps))
    step = np.arange(slow.shape[1])
    between = slow & (step > first[:, None]) & (step < last[:, None])
    # when the standstill of each step began: the last end of a step that moves
    began = np.maximum.accumulate(np.where(between, 0.0, elapsed[:, 1:]), 1)
    longest = (elapsed[:, 1:] - began).max(1, initial=0.0)
    start, end = elapsed[rows, first], elapsed[:, -1] - elapsed[rows, last]
    return {"idle_start": start, "idle_end": end, "idle_longest": longest}


def moving_rows(
    parts: Mapping[str, Array], times: Floats, step: float | None, still: float | None,
    turns: Floats,
) -> Integers:  # fmt: skip
    """Finds the rows, first to stop [b, 2], between the idle ends: 0 to 0 if it never moves."""
    increasing = np.all(np.diff(times) > 0, axis=1)
    with np.errstate(all="ignore"):
        speeds = list[Array]()
        if next(iter(parts.values())).shape[2]:  # no dofs where all are rotations
            known = add_derivatives(parts, times, step, increasing, {"velocity"})
            speeds.append(_norm(known["velocity"]))
        if turns.shape[2]:
            speeds.append(angular_scores(turns, times, step)[1])
        first, last = _moving(_slow(speeds, still))
    moves = (last > 0) & np.isfinite(speeds).all((0, 2))
    return np.where(moves[:, None], np.stack([first, last + 1], 1), 0)


def angular_scores(quaternions: Floats, times: Array, step: float | None) -> tuple[Scores, Floats]:
    """Scores orientations [b, T, R, 4] at times [b or 1, T], with their angular speed [b, T]."""
    stamps = np.broadcast_to(times, quaternions.shape[:2])
    turns = angle(quaternions[:, 1:], quaternions[:, :-1])
    rates = angular_rates(quaternions, stamps, step, ["angular_velocity"])["angular_velocity"]
    speed: Any = _norm(rates.reshape(*stamps.shape, -1))
    with np.errstate(all="ignore"):
        even = speed if step is not None else _interpolate_evenly(speed, stamps)
        return {"angular_path": _norm(turns).sum(1), "angular_sparc": _sparc(even, stamps)}, speed


def _squares(values: Array) -> Array:
    wide = float64(values)
    return library(wide).einsum("btd,btd->bt", wide, wide)


def _norm(values: Array) -> Array:
    return _root(_squares(values))


def _root(values: Any) -> Array:
    """Takes square roots with a gradient of zero, not infinity, at zero."""
    array, zero = library(values), values == 0.0
    return array.where(zero, 0.0, array.sqrt(array.where(zero, 1.0, values)))


def _interpolate_evenly(speed: Floats, times: Array) -> Floats:
    """Interpolates the speed [b, T] linearly at as many evenly spaced times."""
    # on a time axis from 0 to 1 for each, so that equal trajectories have equal scores
    known = (times - times[:, :1]) / (times[:, -1:] - times[:, :1])
    even = np.linspace(0.0, 1.0, speed.shape[1])
    return np.stack([np.interp(even, *rows) for rows in zip(known, speed, strict=True)])


def _sparc(speed: Floats, times: Array) -> Floats:
    """Computes the spectral arc length of even rows [b, T] (Balasubramanian et al., 2015)."""
    count, rows = speed.shape
    size = 2 ** (int(np.ceil(np.log2(rows))) + _PADDING)
    rates, result = (rows - 1) / (times[:, -1] - times[:, 0]), np.full(count, np.nan)
    good = np.isfinite(speed.max(1)) & (speed.max(1) > 0) & np.isfinite(rates)
    if not good.any():
        return result
    bins = int(min(size // 2, _LARGEST_HZ * size / rates[good].min())) + 1
    spectrum = np.fft.rfft(speed[good], size)[:, :bins]
    # np.abs is slower: it guards against overflow
    magnitudes = np.sqrt(spectrum.real**2 + spectrum.imag**2)
    magnitudes /= magnitudes.max(1, keepdims=True)
    frequencies = np.arange(bins) * (rates[good] / size)[:, None]
    present = (magnitudes >= _LEAST_MAGNITUDE) & (frequencies <= _LARGEST_HZ)
    last = (bins - 1 - present[:, ::-1].argmax(1))[:, None]
    # the curve of magnitudes over frequencies, scaled to 1 up to the last that counts
    arcs = np.sqrt((1.0 / last) ** 2 + np.diff(magnitudes) ** 2)
    lengths = np.einsum("bn,bn->b", arcs, np.arange(bins - 1) < last)
    result[good] = np.where(last[:, 0] > 0, -lengths, np.nan)  # NaN without a frequency to 10 Hz
    return result


def block_extremes(values: NumpyArray, bounds: tuple[Floats, Floats] | None = None) -> Floats:
    """Finds the least and the largest value of each dof, cut at the limits, and the shares of the
    trajectory's values that are there: [4, b, D]."""
    # rows first, since NumPy is slow along a short axis
    wide = values.swapaxes(0, 1).astype(np.float64, order="C")
    lower, upper = (np.asarray(-np.inf), np.asarray(np.inf)) if bounds is None else bounds
    with np.errstate(invalid="ignore"):
        least, largest = wide.min(0), wide.max(0)
        # an infinite limit gives NaN, which fmax and fmin ignore
        low = np.fmax(np.maximum(least, lower + _AT_LIMIT * np.abs(lower)), least)
        high = np.fmin(np.minimum(largest, upper - _AT_LIMIT * np.abs(upper)), largest)
        at = [np.count_nonzero(wide <= low, 0), np.count_nonzero(wide >= high, 0)]
    return np.stack([low, high, *(count / (len(wide) * wide.shape[2]) for count in at)])


def saturation(extremes: Floats) -> Floats:
    """Computes the share of values at a limit [B] from ``block_extremes`` of all, [4, B, D]."""
    # for a dof that reaches no limit, the extremes over all trajectories count as limits
    low, high, at_low, at_high = extremes
    least, largest = np.fmin.reduce(low, 0), np.fmax.reduce(high, 0)
    shares = at_low * (low == least) + at_high * (high == largest)
    # a dof that never moves is at no extreme
    moving = np.where(np.isfinite(low + high), shares * (least < largest), np.nan)
    return np.asarray(moving.sum(1))
