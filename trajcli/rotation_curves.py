"""Curves of orientations through rows: slerp, squad, and a spline of logarithms.

Rows are unit quaternions w, x, y, z [N, T, 4] of continuous signs, rates those in the world.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from trajcli.arrays import concatenate, matched, readable, to_numpy
from trajcli.quaternions import (
    conjugate,
    exp,
    interleaved,
    library,
    log,
    multiply,
    rates_of_log,
    rotate,
    slope_of_log,
)
from trajcli.sampling import derivative, search, take

Array: TypeAlias = Any
"""numpy.ndarray or torch.Tensor."""

_MOST_ITERATIONS = 60


def _step_at(knots: Array, at: Array) -> tuple[Array, Array, Array]:
    """The row before each time, the length of its step, and the time since, [n, N, 1]."""
    after = search(knots, at, right=False)
    before = after - 1 * (after > 0)
    begin = take(knots, before)
    return before, (take(knots, before + 1) - begin)[..., None], (at - begin)[..., None]


def turns_between(values: Array) -> Array:
    """Return the rotation vectors [N, T − 1, 3] from row to row, the shortest ones."""
    return log(multiply(values[:, 1:], conjugate(values[:, :-1])))


def _slerp(values: Array, knots: Array, at: Array) -> list[Array]:
    before, step, tau = _step_at(knots, at)
    omega = take(turns_between(values), before) / step
    return [multiply(exp(tau * omega), take(values, before)), omega]


def _squad(values: Array, knots: Array, at: Array) -> list[Array]:
    """slerp(a, b, 2u(1 − u)) of two slerps, through the rows and through the inner points."""
    _, step, tau = _step_at(knots, at)
    turns = turns_between(values)
    bend, end = 0.25 * (turns[:, 1:] - turns[:, :-1]), 0.0 * turns[:, :1]
    inner_points = multiply(exp(-concatenate([end, bend, end], 1)), values)
    outer, outer_rate = _slerp(values, knots, at)
    inner, inner_rate = _slerp(inner_points, knots, at)
    apart, share = multiply(inner, conjugate(outer)), tau / step
    phi, part = log(apart), 2.0 * share * (1.0 - share)
    slope = part * slope_of_log(phi, inner_rate - rotate(apart, outer_rate))
    slope = slope + (2.0 - 4.0 * share) / step * phi
    turn = exp(part * phi)
    return [multiply(turn, outer), rates_of_log(part * phi, slope)[0] + rotate(turn, outer_rate)]


def _spline(values: Array, knots: Array, at: Array) -> list[Array]:
    """Hermite cubics in the logarithm from the row before, by angular velocities at the rows."""
    before, step, tau = _step_at(knots, at)
    turns = turns_between(values)
    omega = _spline_rates(turns, (knots[:, 1:] - knots[:, :-1])[..., None])
    turn, first = take(turns, before), take(omega, before)
    last = slope_of_log(turn, take(omega, before + 1))
    second = (6.0 * turn / step - 4.0 * first - 2.0 * last) / step
    third = (6.0 * (first + last) - 12.0 * turn / step) / step**2
    known = [0.0 * turn, first, second, third]
    phi = [derivative(known, tau, m) for m in range(4)]
    return [multiply(exp(phi[0]), take(values, before)), *rates_of_log(*phi)]


CURVES = {"slerp": _slerp, "squad": _squad, "spline": _spline}
"""Curves through rows: orientations, and the rates that are finite everywhere."""


def _spline_rates(turns: Array, steps: Array) -> Array:
    """Angular velocities [N, T, 3] at the rows that make α continuous across them.

    α is J·φ̈ + J̇·φ̇ at the end of a cubic and φ̈ at its begin: linear in the ω at its ends, but for
    J̇·φ̇, which is taken from the iteration before, as in SciPy's RotationSpline.
    """
    mean = turns / steps
    omega = concatenate([mean[:, :1], 0.5 * (mean[:, 1:] + mean[:, :-1]), mean[:, -1:]], 1)
    if turns.shape[1] == 1:
        return omega
    axes = matched(np.eye(3), turns)
    columns = [[f(turns, axis + 0.0 * turns) for axis in axes] for f in (_velocity, slope_of_log)]
    forth, back = (library(turns).stack(matrix, -1) for matrix in columns)
    here, there = steps[:, :-1, :, None], steps[:, 1:, :, None]
    below, above = 2.0 / here * forth[:, :-1], 2.0 / there * back[:, 1:]
    on = 4.0 * (1.0 / here + 1.0 / there) * axes + 0.0 * below
    ends = concatenate([mean[:, :1], 0.0 * mean[:, 1:-1], 0.0 * mean[:, :1], mean[:, -1:]], 1)
    fixed = 6.0 * (mean[:, :-1] / steps[:, :-1] + mean[:, 1:] / steps[:, 1:])
    fixed = fixed - (below @ ends[:, :-2, :, None] + above @ ends[:, 2:, :, None])[..., 0]
    for _ in range(_MOST_ITERATIONS):
        slope = slope_of_log(turns[:, :-1], omega[:, 1:-1])
        curving = rates_of_log(turns[:, :-1], slope, 0.0 * slope)[1]
        inner = _solve_blocks(below, on, above, fixed - curving)
        change = abs(inner - omega[:, 1:-1])
        omega = concatenate([mean[:, :1], inner, mean[:, -1:]], 1)
        if readable(change) and not (to_numpy(change) > 1e-14 * to_numpy(1.0 + abs(inner))).any():
            break
    return omega


def _velocity(phi: Array, slope: Array) -> Array:
    return rates_of_log(phi, slope)[0]


def _solve_blocks(below: Array, on: Array, above: Array, right: Array) -> Array:
    """Solve a block-tridiagonal system [N, n, 3, 3] for [N, n, 3] by cyclic reduction (R. Hockney,
    J. ACM 12, 1965): O(log n) vector operations."""
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
    own = even[..., 6:] - even[..., :3] @ previous - even[..., 3:6] @ following
    return interleaved(own[..., 0], others)
