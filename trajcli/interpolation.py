"""Curves through rows: piecewise polynomials with their own derivatives.

On a row, a curve is the row, and its derivatives are those of the step that ends there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trajcli.arrays import concatenate, is_torch
from trajcli.errors import UsageError
from trajcli.sampling import derivative, search, take

Array = Any
"""numpy.ndarray or torch.Tensor, float64."""

Curve = Callable[[Array], list[Array]]
"""Returns values [B, N, D] at times [1 or B, N], and the derivatives that are finite everywhere."""

_ROUNDING = 4.0 * np.finfo(np.float64).eps
METHODS = ("hold", "linear", "ramp-and-hold", "cubic", "quintic")
# How many arrays a method takes at most: values, first and second derivatives.
_GIVEN = {"cubic": 2, "quintic": 3}


def curve_through(method: str, rows: Sequence[Array], knots: Array, hold: float = 0.0) -> Curve:
    """Returns the curve of a method through rows at knots [1 or B, T].

    ``rows`` are values [B, T, D] and, where known, their first and second derivatives. Raises
    UsageError where derivatives that the method needs are absent.
    """
    count = finite_orders(method, len(rows))
    if method == "hold":
        return lambda at: _held(rows[0], knots, at)
    if method in ("linear", "ramp-and-hold"):
        return lambda at: _ramped(rows[0], knots, at, hold)
    arrays = list(rows[: _GIVEN[method]])
    if len(arrays) == 1:
        arrays.append(spline_slopes(rows[0], knots))
    return lambda at: _hermite(arrays, knots, at)[:count]


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
    return [take(rows, index - (index - last) * (index > last))]


def _ramped(rows: Array, knots: Array, at: Array, hold: float) -> list[Array]:
    """Returns lines that reach the next row early, by ``hold`` of the step, and their slopes."""
    last = knots.shape[1] - 1
    after = search(knots, at, right=False)
    after = after + 1 * ((after == 0) & (last > 0))
    before = after - 1 * (after > 0)
    begin, ramp = take(knots, before), (take(knots, after) - take(knots, before)) * (1.0 - hold)
    ramp = (ramp + 1.0 * (ramp == 0.0))[..., None]  # a single row has no step
    share = (at - begin)[..., None] / ramp
    first, rise = take(rows, before), take(rows, after) - take(rows, before)
    there = share >= 1.0  # whatever the row before holds
    return [
        _where(there, take(rows, after), first + rise * share),
        _where(share > 1.0, 0.0 * rise, rise / ramp),
    ]


def _hermite(given: Sequence[Array], knots: Array, at: Array) -> list[Array]:
    """Returns polynomials with given derivatives at both ends of a step, around its last row."""
    # around the row that ends the step, so that a row has the derivatives of that step
    here = search(knots, at, right=False)
    tau = (at - take(knots, here))[..., None]
    known = [take(rows, here) for rows in given]
    if knots.shape[1] > 1:
        there = here - 1 * (here > 0) + 1 * (here == 0)  # the first row has a step after it alone
        step = (take(knots, there) - take(knots, here))[..., None]
        time = abs(take(knots, here))[..., None]
        known += _higher(known, [take(rows, there) for rows in given], step, time)
    return [derivative(known, tau, order) for order in range(4)]


def _higher(here: Sequence[Array], there: Sequence[Array], step: Array, time: Array) -> list[Array]:
    """Returns the derivatives above those ``here`` of the polynomial that reaches those ``there``.

    They solve the equations of the Taylor polynomial at the other end, a ``step`` away; C. de Boor,
    "A Practical Guide to Splines", ch. IV. Rows with two derivatives that a cubic joins up to
    rounding are joined by it: over a short step, the rounding of positions (of the size that
    ``time`` gives it) would become a jerk beyond limits.
    """
    if len(here) == 2:
        secant, slope = (there[0] - here[0]) / step, here[1]
        second = (6.0 * secant - 4.0 * slope - 2.0 * there[1]) / step
        return [second, (6.0 * (slope + there[1]) - 12.0 * secant) / step**2]
    value, slope, second = here
    # offsets at the other end that the Taylor polynomial of second order leaves
    change = there[2] - second
    off = there[0] - value - step * (slope + step * (second / 2.0 + change / 6.0))
    slope_off = there[1] - slope - step * (second + change / 2.0)
    off = _beyond_rounding(off, (value, there[0], time * slope))
    slope_off = step * _beyond_rounding(slope_off, (slope, there[1], time * second))
    return [
        (60.0 * off - 24.0 * slope_off) / step**3 + change / step,
        (168.0 * slope_off - 360.0 * off) / step**4,
        (720.0 * off - 360.0 * slope_off) / step**5,
    ]


def _beyond_rounding(values: Array, terms: Sequence[Array]) -> Array:
    """Returns values, with zero where the rounding of these terms may be all of them."""
    rounding = _ROUNDING * sum(abs(term) for term in terms)
    if is_torch(values):
        return values - values.detach() * (abs(values) <= rounding)
    return np.where(abs(values) <= rounding, 0.0, values)


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
    below = concatenate([after, h[:, -1:] + h[:, -2:-1]], 1)
    on = concatenate([h[:, 1:2], 2 * (before + after), h[:, -2:-1]], 1)
    above = concatenate([h[:, :1] + h[:, 1:2], before], 1)
    first = _end(h[:, :1], h[:, 1:2], secant[:, :1], secant[:, 1:2])
    # continuous second derivatives: h₊m₋ + 2(h₋ + h₊)m + h₋m₊ = 3(h₊s₋ + h₋s₊), with secants s
    inside = 3 * (after * secant[:, :-1] + before * secant[:, 1:])
    last = _end(h[:, -1:], h[:, -2:-1], secant[:, -1:], secant[:, -2:-1])
    return _solve_tridiagonal(below, on, above, concatenate([first, inside, last], 1))


def _end(near: Array, far: Array, secant: Array, other: Array) -> Array:
    """Returns the right-hand side of the not-a-knot condition at an end."""
    return ((near + 2 * (near + far)) * far * secant + near**2 * other) / (near + far)


def _solve_tridiagonal(below: Array, on: Array, above: Array, right: Array) -> Array:
    """Solves tridiagonal systems [b, T, ...] by elimination; below and above have T − 1 rows.

    The systems of splines need no pivoting.
    """
    pivot, reduced = [on[:, 0]], [right[:, 0]]
    for i in range(1, on.shape[1]):
        factor = below[:, i - 1] / pivot[-1]
        pivot.append(on[:, i] - factor * above[:, i - 1])
        reduced.append(right[:, i] - factor * reduced[-1])
    solution = [reduced[-1] / pivot[-1]]
    for i in range(on.shape[1] - 2, -1, -1):
        solution.append((reduced[i] - above[:, i] * solution[-1]) / pivot[i])
    rows = solution[::-1]
    return sys.modules["torch"].stack(rows, 1) if is_torch(right) else np.stack(rows, 1)


def _where(condition: Array, yes: Array, no: Array) -> Array:
    return no.where(~condition, yes) if is_torch(no) else np.where(condition, yes, no)
