"""Retimes trajectories: the smallest uniform time scaling that keeps limits, also between rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.arrays import as_array, float64, is_torch, matched, output_dtype, read_values, seconds
from trajcli.curves.sampling import derivative, is_known, missing_parts, taylor
from trajcli.errors import Fault, InputError, UsageError, raise_if_any, wrong_shape
from trajcli.kernels.program import Array, Floats, Integers
from trajcli.modes.mode import QUANTITIES
from trajcli.trajectory import Trajectory, as_trajectory


@dataclass(frozen=True)
class Retimed:
    """Trajectories at another pace, as ``retime`` returns them: NumPy, or tensors for tensors.

    Attributes:
        factor: how many times as long each trajectory takes, [B].
        parts: velocity [B, T, D] and so on, those of the call at the new pace.
        limited_by: the quantity of each trajectory that is at its limit; "" where none is.
        dof, row: where that is, [B]; −1 where nothing is at a limit.
        slack: the share of the limit that is left [B], by quantity, of the dof with the least.
    """

    factor: Floats
    parts: Mapping[str, Array]
    limited_by: list[str]
    dof: Integers
    row: Integers
    slack: Mapping[str, Floats]


Limit = tuple[Array, Array] | Array | float
"""The least and the largest value, each a number or [D]; one alone is the largest magnitude."""
_Pair = tuple[Floats, Floats]
# The least factor, whose third power is still a normal number; 1e100 is the largest.
_LEAST = 1e-100
# Halvings of a step that find where a cubic is zero: as many as a float64 has bits.
_HALVINGS = 60


def retime(
    trajectory: Trajectory | Mapping[str, Array],
    limits: Mapping[str, Limit],
    *,
    slower_only: bool = False,
) -> Retimed:
    """Stretches time by the smallest uniform factor that keeps each trajectory within limits.

    A factor s makes velocity v/s, acceleration a/s² and jerk j/s³; positions stay. It is below 1
    where a trajectory can be faster, and 1 for one that does not move. Values are within the limits
    also after rounding to their type.

    Parameters:
        trajectory: what ``integrate`` or ``load`` returns, which keeps its limits between rows too
            where its mode defines a curve there (see ``sample``); or any of velocity, acceleration
            and jerk [B, T, D], by name, for limits at the rows alone.
        limits: a pair (lower < 0 < upper) of numbers or [D], or the largest magnitude, by name.
        slower_only: no factor is below 1.

    Raises:
        InputError: limits of absent parts or other dofs, or NaN or Inf.
        UsageError: tensors that require a gradient, which would be lost, or within vmap.
    """
    whole = None if isinstance(trajectory, Mapping) else as_trajectory(trajectory)
    given: Any = trajectory if whole is None else whole.outputs()
    given = {k: as_array(given[k], k) for k in QUANTITIES if k in given}
    arrays = {name: read_values(values, name) for name, values in given.items()}
    between: Mapping[str, Floats] = {}
    if whole is not None and is_known(whole.mode, whole.options):
        times = read_values(whole.time, "time")
        between = extremes(whole.mode, whole.options, arrays, times)
    found = paced(arrays, limits, bool(slower_only), between)
    like = next(filter(is_torch, given.values()), found.factor)
    fields: dict[str, Any] = {k: matched(getattr(found, k), like) for k in ("factor", "dof", "row")}
    for name in ("parts", "slack"):
        fields[name] = {k: matched(x, like) for k, x in getattr(found, name).items()}
    return replace(found, **fields)


def paced(
    parts: Mapping[str, Array],
    limits: Mapping[str, Limit],
    slower_only: bool,
    between: Mapping[str, Floats],
) -> Retimed:
    """Retimes parts by limits that also hold between their rows, at values [B, n, T−1, D]."""
    values = {name: parts[name] for name in QUANTITIES[1:] if name in parts}
    bounds = {name: pair for name, pair in limit_pairs(limits).items() if name != QUANTITIES[0]}
    raise_if_any(_limit_faults(values, bounds), InputError)
    peaks = {name: _peaks(values[name], name) for name in bounds}
    # those of one root after those of another, [B, n·(T−1), D]
    within = {
        name: np.asarray(reached, np.float64).reshape(len(reached), -1, reached.shape[-1])
        for name, reached in between.items()
        if name in bounds
    }
    beyond = {name: _peaks(reached, name) for name, reached in within.items()}
    with np.errstate(over="ignore"):
        shares = {name: _shares(*peaks[name], bounds[name]) for name in bounds}
        for name, pair in beyond.items():
            shares[name] = np.maximum(shares[name], _shares(*pair, bounds[name]))
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
    for extreme in (peaks, beyond):
        factor = _after_rounding(factor, extreme, {name: bounds[name] for name in extreme})
    scaled = {name: scaled_by(array, factor, name) for name, array in values.items()}
    used = {name: share / factor ** QUANTITIES.index(name) for name, share in worst.items()}
    slack = {name: np.maximum(1.0 - share, 0.0) for name, share in used.items()}
    # values on the rows, and behind them those between
    joined = {name: np.concatenate([values[name], more], 1) for name, more in within.items()}
    place = _places(limited_by, shares, {**values, **joined}, bounds)
    rows = next(iter(values.values())).shape[1]  # what is between rows is of the row before
    place = place[0], np.where(place[1] < rows, place[1], (place[1] - rows) % max(rows - 1, 1))
    return Retimed(factor, scaled, limited_by.tolist(), *place, slack)


def _places(
    limited_by: npt.NDArray[Any],
    shares: Mapping[str, Floats],
    values: Mapping[str, Array],
    bounds: Mapping[str, _Pair],
) -> tuple[Integers, Integers]:
    """Returns the dof and the row [B] that are at a limit, −1 where none is."""
    dofs, rows = np.full((2, len(limited_by)), -1)
    for name, share in shares.items():
        numbers = np.flatnonzero(limited_by == name)
        if not len(numbers):
            continue
        worst = share[numbers].argmax(1)
        lower, upper = (np.broadcast_to(side, share.shape[1:])[worst] for side in bounds[name])
        used = values[name][numbers, :, worst].astype(np.float64)
        with np.errstate(over="ignore"):
            of_limit = np.where(used > 0, used / upper[:, None], used / lower[:, None])
        dofs[numbers], rows[numbers] = worst, of_limit.argmax(1)
    return dofs, rows


def limit_pairs(limits: Any) -> dict[str, _Pair]:
    """Returns the lower and the upper limit by quantity, float64 [] or [D].

    Raises UsageError for limits of no quantity.
    """
    names = [*limits] if isinstance(limits, Mapping) else [None]
    if unknown := [name for name in names if name not in QUANTITIES]:
        found = repr(unknown[0] or limits)
        expected = f'{{"velocity": 2.0}}, of {", ".join(QUANTITIES)}'
        raise UsageError("limits of no quantity", where="limits", expected=expected, found=found)
    pairs = {}
    for name in filter(limits.__contains__, QUANTITIES):
        limit = limits[name]
        pair = limit if isinstance(limit, tuple) and len(limit) == 2 else (limit,)
        sides = [float64(read_values(as_array(x, name), name)) for x in pair]
        pairs[name] = (sides[0] if sides[1:] else -sides[0]), sides[-1]
    return pairs


def _limit_faults(parts: Mapping[str, Array], limits: Mapping[str, _Pair]) -> Iterator[Fault]:
    """Yields the faults of limits, and of parts of different shape."""
    if not limits:
        expected = "limits of velocity, acceleration or jerk"
        yield Fault("no limits", where="limits", expected=expected)
    for name in limits:
        if name not in parts:
            what, known = f"limits of {name}, and no {name}", ", ".join(parts) or "none"
            yield Fault(what, where=name, expected="every limited quantity", found=known)
            continue
        yield from limit_shape_faults(name, limits[name], parts[name].shape[-1])
        for side, sign, array in zip(("lower", "upper"), (-1.0, 1.0), limits[name], strict=True):
            if not (sign * array > 0).all():  # false for NaN too
                what, where = "a limit that no pace can keep", f"{name} {side}"
                expected, values = f"{side} {'> 0' if sign > 0 else '< 0'}", str(array.tolist())
                yield Fault(what, where=where, expected=expected, found=values)
    for name, values in parts.items():
        if values.ndim != 3:
            yield wrong_shape(name, "[B, T, D]", values.shape)
    shapes = {values.shape for values in parts.values()}
    if len(shapes) > 1:
        where = ", ".join(parts)
        yield Fault("quantities of different shape", where=where, found=str(shapes))


def limit_shape_faults(name: str, limits: _Pair, dofs: int) -> Iterator[Fault]:
    """Yields the faults of limits of a quantity that are not [] or [D]."""
    for side, array in zip(("lower", "upper"), limits, strict=True):
        if array.shape not in ((), (dofs,)):
            what, expected = "limits of other dofs", f"one number, or {dofs}"
            yield Fault(what, where=f"{name} {side}", expected=expected, found=str(array.size))


def _peaks(values: Array, name: str) -> tuple[Array, Array]:
    """Returns the range of each dof [B, D], extended to zero; raises InputError for NaN and Inf."""
    low, high = _reduced(np.minimum, values), _reduced(np.maximum, values)
    bad = ~(np.isfinite(low) & np.isfinite(high))
    if bad.any():
        raise InputError(
            "NaN or Inf cannot be brought within limits",
            where=f"{name}, trajectory {int(np.argwhere(bad)[0, 0])}",
        )
    return np.minimum(low, 0), np.maximum(high, 0)


def _reduced(smaller: np.ufunc, values: Array) -> Array:
    """Reduces [B, T, D] to [B, D] by halving the rows, 20 times as fast as along a short axis."""
    if not values.shape[1]:
        return np.zeros((len(values), values.shape[2]), values.dtype)
    while (rows := values.shape[1]) > 1:
        half = (rows + 1) // 2
        values = smaller(values[:, :half], values[:, rows - half :])
    return values[:, 0]


def _shares(low: Array, high: Array, bounds: _Pair) -> Floats:
    """Returns the largest share of its limit that each dof takes, [B, D]."""
    lower, upper = bounds
    share: Floats = np.maximum(high.astype(np.float64) / upper, low.astype(np.float64) / lower)
    return share


def scaled_by(values: Array, factor: Floats, name: str) -> Array:
    """Returns a quantity [B, ...] of trajectories ``factor`` [B] times as long.

    It is divided in float64, and has the type of the values (integers: float64).
    """
    power = (factor ** QUANTITIES.index(name)).reshape(-1, *(1,) * (values.ndim - 1))
    scaled = np.empty(values.shape, output_dtype(values.dtype))
    return np.divide(values, power, out=scaled, casting="same_kind", dtype=np.float64)


def _after_rounding(
    factor: Floats, peaks: Mapping[str, tuple[Array, Array]], limits: Mapping[str, _Pair]
) -> Floats:
    """Returns the factor, larger by a few last places where rounding exceeds a limit.

    Values so small that their last place is a large share of them need more.
    """
    for turn in range(64):
        over = np.zeros(len(factor), bool)
        step = float(np.finfo(np.float64).eps)
        for name, (lower, upper) in limits.items():
            low, high = (scaled_by(side, factor, name) for side in peaks[name])
            outside = (high.astype(np.float64) > upper) | (low.astype(np.float64) < lower)
            over |= outside.any(1)
            step = max(step, float(np.finfo(high.dtype).eps) / 2)
        if not over.any():
            break
        # step is half a last place of the outputs; beyond 8 turns it doubles each time
        factor = np.where(over, factor * (1.0 + step * 2.0 ** max(turn - 8, 0)), factor)
    return factor


def extremes(
    mode: str, options: Mapping[str, Any], rows: Mapping[str, Any], times: Floats
) -> dict[str, Floats]:
    """Returns the extreme velocities, accelerations and jerks within the steps between rows.

    Parameters:
        mode, options: ``zoh``, ``foh`` or ``bspline``, as :func:`trajcli.sample` takes them.
        rows: position to jerk [B, T, D] by name.
        times: of the rows [T] or [B, T].

    Returns:
        By name [B, n, T−1, D]: the values where the derivative is zero, at most n in a step;
        others repeat a row. Nothing where rows are not there that the curve is computed from.

    Raises:
        UsageError: a mode whose rows no known polynomial joins.
    """
    values = [None if name not in rows else np.asarray(rows[name]) for name in QUANTITIES]
    (knots,) = seconds(np.atleast_2d(times))
    if missing_parts(mode, options, rows) or knots.shape[1] < 2:
        return {}
    middles, steps = (knots[:, 1:] + knots[:, :-1]) / 2, np.diff(knots)[..., None]
    known, tau = taylor(mode, options, values, knots, middles)
    begin = tau - steps / 2
    extrema = {}
    for order in (1, 2, 3):
        if any(part is None for part in known[order:]) or order >= len(known):
            continue
        shape = np.broadcast_shapes(known[order].shape, begin.shape)
        ends = (np.broadcast_to(x, shape) for x in (begin, begin + steps))
        if roots := _roots(known[order + 1 :], *ends):
            extrema[QUANTITIES[order]] = np.stack([derivative(known, at, order) for at in roots], 1)
    return extrema


def _roots(taylor: Sequence[Floats], begin: Floats, end: Floats) -> list[Floats]:
    """Returns where Σ_m c_m·τᵐ/m!, of degree at most 3, is zero within begin..end; else begin."""
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
            edges = np.sort([begin, *_roots(taylor[1:], begin, end), end], axis=0)
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
