"""Angular rates of orientations, turns of angular rates, and curves through orientations.

Orientations are unit quaternions w, x, y, z [N, T, 4] of continuous signs; rates are in the world.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from trajcli import calls
from trajcli.arrays import (
    concatenate,
    interleave,
    is_torch,
    library,
    match_library,
    readable,
    to_numpy,
)
from trajcli.curves.sampling import derivative, search, take
from trajcli.errors import InputError
from trajcli.kernels.least_squares import fit_weights
from trajcli.kernels.program import Array
from trajcli.memory import ROTATION_VALUES
from trajcli.rotations.quaternions import (
    conjugate,
    cross,
    cumulative_product,
    dot,
    exp,
    log,
    multiply,
    rates_of_log,
    rotate,
    slope_of_log,
)
from trajcli.trajectory import Trajectory

# How far rows of a window may turn from its middle: the logarithm ends at 2π.
_FARTHEST = 1.5 * math.pi
# How far, in rad, the reference of smooth may be from the rows.
_FARTHEST_DRIFT = 1.5
# Newton's method doubles the exact digits each time, and usually stops earlier.
_MOST_ITERATIONS = 12


def backward(
    rows: Callable[[int, int], Array], shape: Sequence[int], steps: Array
) -> Iterator[tuple[int, list[Array]]]:
    """Yields orientations and their rates by differences of neighbours, block by block."""
    count, size = shape[1], max(4, ROTATION_VALUES // (shape[0] * math.prod(shape[2:-1])))
    for begin in range(0, count, size):
        first = max(0, begin - 3)  # α̇ needs three rows before
        values = rows(first, min(begin + size, count))
        gaps = steps if steps.shape[1] == 1 else steps[:, first : first + values.shape[1] - 1]
        if values.shape[1] == 1:
            yield begin, [values, *[values[..., 1:] * 0.0] * 3]
            return
        omega: Any = turns_between(values) / gaps[..., None]
        later = gaps if gaps.shape[1] == 1 else gaps[:, 1:]
        later = later if later.shape[1] else gaps  # a single rate has no step before it
        rates = calls.differentiate(
            omega, dt=later, method="backward", allow_nonfinite=True, backend="auto"
        )
        parts = [concatenate([x[:, :1], x], 1) for x in rates.outputs().values()]
        yield begin, [x[:, begin - first :] for x in (values, *parts[:3])]


def smooth(
    values: Array, steps: Array, options: Mapping[str, Any]
) -> tuple[list[Array], Mapping[str, Any]]:
    """Fits the smoothing spline: orientations and rates, and by option what it chose [N, 3]."""
    # The turns from row to row add up to a path in the tangent space. Integrated, the spline of
    # this path is a reference r, which drifts from the rows by products of the noise. The path,
    # corrected by the logarithms relative to r, is smoothed again, and φ is how far that spline is
    # from the first: the curve is exp(φ)·r. Its rates are those of exp(φ) and, turned by it, of r.
    known, absent = fill_missing(values)
    turns = turns_between(known)
    path = concatenate([0.0 * turns[:, :1], turns.cumsum(1)], 1)
    incomplete = readable(values) and bool(absent.any())

    def spline(rows: Array, **more: Any) -> Trajectory:
        rows = library(rows).where(absent, math.nan, rows) if incomplete else rows
        return calls.differentiate(
            rows, dt=steps, allow_nonfinite=True, backend="auto",
            method="smooth", **{**options, **more},
        )  # fmt: skip

    first = spline(path)  # NaN where a dof stands still and has no bandlimit
    rates = list(first.outputs().values())
    start = multiply(exp(rates[0][:, :1] - path[:, :1]), known[:, :1])
    turned = multiply(cumulative_product(exp(_turns_of_spline(rates, steps[..., None]))), start)
    reference = concatenate([start, turned], 1)
    reference = reference / dot(reference, reference) ** 0.5
    off = log(multiply(known, conjugate(reference)))
    if readable(off) and (np.linalg.norm(to_numpy(off), axis=-1) > _FARTHEST_DRIFT).any():
        raise InputError(
            "turns that the smoothing spline cannot follow",
            where="quaternions",
            hint="record faster, or method savgol",
        )
    chosen = {k: x for k, x in first.options.items() if k in ("bandlimit", "residual")}
    second = spline(rates[0] + off, bandlimit=chosen["bandlimit"], noise=None)
    phi = [after - before for after, before in zip(second.outputs().values(), rates, strict=True)]
    turn = exp(phi[0])
    omega, alpha, jerk = rates_of_log(*phi)
    base, base_alpha, base_jerk = (rotate(turn, x) for x in rates[1:])
    around = cross(omega, base)
    smoothed = [
        multiply(turn, reference),
        omega + base,
        alpha + around + base_alpha,
        jerk + cross(alpha, base) + cross(omega, around + 2.0 * base_alpha) + base_jerk,
    ]
    return smoothed, chosen | {k: x for k, x in second.options.items() if k == "reweighted"}


def fill_missing(values: Array) -> tuple[Array, Array]:
    """Fills missing rows of [N, T, 4] by the last known, or first, row; tells which [N, T, 1]."""
    if not readable(values):
        return values, match_library(np.zeros((1, 1, 1)), values) > 0.0
    known = np.isfinite(to_numpy(values)).all(-1)
    rows = np.maximum.accumulate(np.where(known, np.arange(known.shape[1]), 0), 1)
    rows = np.maximum(rows, known.argmax(1)[:, None])
    absent = match_library(1.0 - known[..., None], values) > 0.0
    return (values if known.all() else take(values, match_library(rows, values))), absent


def fit_windows(
    rows: Callable[[int, int], Array], shape: Sequence[int], steps: Array, band: Any, bodies: int
) -> Iterator[tuple[int, list[Array]]]:
    """Yields orientations and rates by polynomials that fit the logarithm in windows of rows."""
    # the five-point stencils of central are polynomials of degree 4 through their five rows
    count, width, degree, xp = shape[1], band.width, band.degree or 4, library(steps)
    begins, kinds = band.windows.first(), band.windows.kind()
    spans = None if band.spans is None else repeat_for_bodies(band.spans, bodies)
    points = np.arange(width, dtype=np.longdouble)
    # equal steps: the weights for a step of 1, by the index of the row in its window
    exact: Sequence[Any] = ()
    if band.table is not None:
        exact = fit_weights(points - points[:, None], degree)
    table = [match_library(weights.astype(np.float64), steps) for weights in exact]
    size = max(1, ROTATION_VALUES // (shape[0] * bodies * 4 * width))
    for begin in range(0, count, size):
        here = slice(begin, begin + size)
        kind, window = kinds[here], begins[here, None] + np.arange(width)
        low = int(window.min())
        values = rows(low, int(window.max()) + 1)
        valid, middle = np.ones((1, *window.shape), bool), window[None, :, width // 2]
        if spans is not None:
            first, last = spans[:, here, :1], spans[:, here, 1:]
            valid, middle = (window >= first) & (window <= last), (first + last)[..., 0] // 2
        if table:
            weights = [by_row[kind] / steps[..., None] ** m for m, by_row in enumerate(table)]
        else:
            gaps = steps[:, window[:, :-1] % steps.shape[1]]  # one, or one per step
            stamps = concatenate([gaps[..., :1] * 0.0, gaps.cumsum(-1)], -1)
            origin = stamps[:, np.arange(len(kind)), kind][..., None]
            weights = fit_weights(stamps - origin, degree, match_library(1.0 * valid, values))
        inverse = conjugate(take(values, match_library(middle - low, values)))
        turns = multiply(values[:, window - low], inverse[:, :, None])  # [N, rows, W, 4]
        if not valid.all():
            identity = match_library(np.array([1.0, 0.0, 0.0, 0.0]), values)
            turns = xp.where(match_library(1.0 * valid[..., None], values) > 0, turns, identity)
        if readable(turns) and (to_numpy(turns)[..., 0] < math.cos(_FARTHEST / 2)).any():
            raise InputError(
                "a body turns by more than 270° within half a window",
                where="quaternions",
                hint="a shorter window, or method backward",
            )
        sums = xp.stack(weights, -2) @ log(turns, shortest=False)
        phi = [sums[..., m, :] for m in range(4)]
        if band.degree is None:  # the polynomials of central pass through the row itself
            row = values[:, begin - low : begin - low + len(kind)]
            phi[0] = log(multiply(row, inverse), shortest=False)
        fitted = multiply(exp(phi[0]), conjugate(inverse))
        yield begin, [fitted, *rates_of_log(*phi)]


def turns_of_rates(rates: Sequence[Array], order: int, hold: str, steps: Array) -> Array:
    """Integrates ω, α and dα/dt [N, T, 3] at the rows into the rotation vector of each step."""
    if hold == "euler":
        return steps * rates[0][:, 1:]
    terms = [rates[m][:, :-1] * steps**m / math.factorial(m) for m in range(order)]
    before, after = (x * steps**order for x in (rates[order][:, :-1], rates[order][:, 1:]))
    if hold == "zoh":
        terms.append(after / math.factorial(order))
    else:
        terms += [before / math.factorial(order), (after - before) / math.factorial(order + 1)]
    return _magnus(terms, steps)


def _magnus(terms: Sequence[Array], steps: Array) -> Array:
    """Integrates ω = Σ c_k·(t/h)^k over steps h by two terms of the Magnus expansion."""
    # the second is h²/2 · Σ_{k<m} c_k × c_m · (1/(m + 1) − 1/(k + 1))/(k + m + 2)
    turns = steps * sum(c / (k + 1) for k, c in enumerate(terms))
    for k, m in combinations(range(len(terms)), 2):
        weight = 0.5 * (1 / (m + 1) - 1 / (k + 1)) / (k + m + 2)
        turns = turns + weight * steps * steps * cross(terms[k], terms[m])
    return turns


def _turns_of_spline(path: Sequence[Array], steps: Array) -> Array:
    """Integrates a path that is quintic between rows, with derivatives, into rotation vectors."""
    x, v, a = path[:3]
    first, second = steps * v[:, :-1], 0.5 * steps**2 * a[:, :-1]
    gap = x[:, 1:] - x[:, :-1] - first - second
    slope = steps * v[:, 1:] - first - 2.0 * second
    bend = steps**2 * (a[:, 1:] - a[:, :-1])
    cubic = 10.0 * gap - 4.0 * slope + 0.5 * bend
    quartic = -15.0 * gap + 7.0 * slope - bend
    quintic = 6.0 * gap - 3.0 * slope + 0.5 * bend
    powers = (first, second, cubic, quartic, quintic)
    return _magnus([(k + 1) * c / steps for k, c in enumerate(powers)], steps)


def repeat_for_bodies(values: Array, bodies: int) -> Array:
    """Repeats values [b, ...] of trajectories for their bodies, [b·R, ...]; shared ones stay."""
    if bodies == 1 or len(values) == 1:
        return values
    return (values.repeat_interleave if is_torch(values) else values.repeat)(bodies, 0)


def _find_step(knots: Array, at: Array) -> tuple[Array, Array, Array]:
    """Finds the row before each time, the length of its step, and the time since, [n, N, 1]."""
    after = search(knots, at, right=False)
    before = (after - 1).clip(min=0)
    begin = take(knots, before)
    return before, (take(knots, before + 1) - begin)[..., None], (at - begin)[..., None]


def turns_between(values: Array) -> Array:
    """Computes the shortest rotation vectors [N, T − 1, 3] from row to row."""
    return log(multiply(values[:, 1:], conjugate(values[:, :-1])))


def _slerp(values: Array, knots: Array, at: Array) -> list[Array]:
    before, step, tau = _find_step(knots, at)
    omega = take(turns_between(values), before) / step
    return [multiply(exp(tau * omega), take(values, before)), omega]


def _squad(values: Array, knots: Array, at: Array) -> list[Array]:
    """Computes slerp(a, b, 2u(1 − u)) of two slerps: through the rows, and the inner points."""
    _, step, tau = _find_step(knots, at)
    turns = turns_between(values)
    # Shoemake's inner points: a quarter of the change of turn, none at the ends
    bend, end = 0.25 * (turns[:, 1:] - turns[:, :-1]), 0.0 * turns[:, :1]
    inner_points = multiply(exp(-concatenate([end, bend, end], 1)), values)
    outer, outer_rate = _slerp(values, knots, at)
    inner, inner_rate = _slerp(inner_points, knots, at)
    between, share = multiply(inner, conjugate(outer)), tau / step
    phi, part = log(between), 2.0 * share * (1.0 - share)
    slope = part * slope_of_log(phi, inner_rate - rotate(between, outer_rate))
    slope = slope + (2.0 - 4.0 * share) / step * phi
    turn = exp(part * phi)
    return [multiply(turn, outer), rates_of_log(part * phi, slope)[0] + rotate(turn, outer_rate)]


def _spline(values: Array, knots: Array, at: Array) -> list[Array]:
    """Computes Hermite cubics in the logarithm from the row before, by ω at the rows."""
    before, step, tau = _find_step(knots, at)
    turns = turns_between(values)
    steps = (knots[:, 1:] - knots[:, :-1])[..., None]
    # The angular velocities [N, T, 3] at the rows make α continuous there.
    # α is φ̈ at the begin of a cubic, and J·φ̈ + J̇·φ̇ at its end: linear in the ω at both ends, but
    # for J̇·φ̇, which is quadratic in the later one (as in SciPy's RotationSpline).
    mean, axes = turns / steps, match_library(np.eye(3), turns)
    inner = 0.5 * (mean[:, 1:] + mean[:, :-1])
    if turns.shape[1] > 1:
        columns = [f(turns[..., None, :], axes) for f in (rates_of_log, slope_of_log)]
        forth, back = (library(turns).swapaxes(x, -1, -2) for x in (columns[0][0], columns[1]))
        earlier, later = steps[:, :-1, :, None], steps[:, 1:, :, None]
        below, above = 2.0 / earlier * forth[:, :-1], 2.0 / later * back[:, 1:]
        on = 4.0 * (1.0 / earlier + 1.0 / later) * axes + 0.0 * below
        right = 6.0 * (mean[:, :-1] / steps[:, :-1] + mean[:, 1:] / steps[:, 1:])
        system = (turns[:, :-1], back[:, :-1], below, on, above, right, mean)
        inner, *constants = [x.detach() if is_torch(x) else x for x in (inner, *system)]
        for _ in range(_MOST_ITERATIONS):
            change = _newton_step(inner, *constants)
            inner, size = inner + change, library(change).abs(change)
            bound = 1e-14 * (1.0 + library(inner).abs(inner))
            if readable(size) and not to_numpy(size > bound).any():
                break
        # gradients: each more step doubles the order up to which derivatives are exact
        for _ in range(2 if is_torch(turns) else 0):
            inner = inner + _newton_step(inner, *system)
    omega = concatenate([mean[:, :1], inner, mean[:, -1:]], 1)
    # φ is cubic from 0 to the turn of the step, with φ̇ from ω at both ends
    turn, first = take(turns, before), take(omega, before)
    last = slope_of_log(turn, take(omega, before + 1))
    second = (6.0 * turn / step - 4.0 * first - 2.0 * last) / step
    third = (6.0 * (first + last) - 12.0 * turn / step) / step**2
    known = [0.0 * turn, first, second, third]
    phi = [derivative(known, tau, m) for m in range(4)]
    return [multiply(exp(phi[0]), take(values, before)), *rates_of_log(*phi)]


CURVES = {"slerp": _slerp, "squad": _squad, "spline": _spline}
"""Curves through rows: orientations, and the rates that are finite everywhere."""


def _newton_step(
    inner: Array, phi: Array, back: Array, below: Array, on: Array, above: Array, right: Array,
    mean: Array,
) -> Array:  # fmt: skip
    """Computes the change of ω at inner rows, before which a step turns by φ."""

    def bend(slopes: Array) -> Array:  # J̇·φ̇
        return rates_of_log(phi[..., None, :], slopes, 0.0 * slopes)[1]

    slope = (back @ inner[..., None])[..., None, :, 0]
    tangents = library(back).swapaxes(back, -1, -2)
    quadratic = bend(slope)
    # the derivative of a quadratic form f in direction t is f(x + t) − f(x) − f(t)
    change = bend(slope + tangents) - quadratic - bend(tangents)
    jacobian = library(change).swapaxes(change, -1, -2)
    omega = concatenate([mean[:, :1], inner, mean[:, -1:]], 1)[..., None]
    linear = below @ omega[:, :-2] + on @ omega[:, 1:-1] + above @ omega[:, 2:]
    return _solve_blocks(below, on + jacobian, above, right - quadratic[..., 0, :] - linear[..., 0])


def _solve_blocks(below: Array, on: Array, above: Array, right: Array) -> Array:
    """Solves a block-tridiagonal system [N, n, 3, 3] for [N, n, 3] in O(log n) operations."""
    # cyclic reduction: R. Hockney, J. ACM 12, 1965
    solve = library(on).linalg.solve
    if on.shape[1] == 1:
        return solve(on, right[..., None])[..., 0]
    rows = concatenate([below, above, right[..., None]], -1)
    even, odd = solve(on[:, 0::2], rows[:, 0::2]), rows[:, 1::2]
    padded, size = concatenate([even, 0.0 * even[:, :1]], 1), odd.shape[1]
    before = odd[..., :3] @ padded[:, :size]
    after = odd[..., 3:6] @ padded[:, 1 : size + 1]
    middle = on[:, 1::2] - before[..., 3:6] - after[..., :3]
    right = (odd - before - after)[..., 6]
    others = _solve_blocks(-before[..., :3], middle, -after[..., 3:6], right)
    zero, size = 0.0 * others[:, :1], even.shape[1]
    previous = concatenate([zero, others], 1)[:, :size, :, None]
    following = concatenate([others, zero], 1)[:, :size, :, None]
    solved = even[..., 6:] - even[..., :3] @ previous - even[..., 3:6] @ following
    return interleave(solved[..., 0], others)
