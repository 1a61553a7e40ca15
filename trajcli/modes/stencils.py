"""Finite-difference weights on any five points, and the Taylor polynomial of a state."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any, TypeVar

import numpy as np

from trajcli.arrays import (
    constant,
    differentiable,
    pair,
    settled,
    stack,
)
from trajcli.kernels.pairs import Array, Pair, from_fraction, power
from trajcli.kernels.program import Evenly, StatePoints, Unit, Weights, Windows

Number = TypeVar("Number", Fraction, Pair, Any)


def elementary_symmetric(values: Sequence[Any], degree: int, one: Any) -> Any:
    """The sum of all products of ``degree`` of the values."""
    total = None
    for chosen in combinations(values, degree):
        product = one
        for value in chosen:
            product = product * value
        total = product if total is None else total + product
    return total


def derivative_weights(points: Sequence[Number], at: Number, one: Number) -> list[list[Number]]:
    """Weights that give derivatives 0 to 3 at one place from values at distinct points.

    Returns weights[order][point]: derivatives of the Lagrange polynomials, the closed form of
    B. Fornberg, "Generation of finite difference formulas on arbitrarily spaced grids",
    Math. Comp. 51 (1988). Exact for polynomials of degree below the number of points.
    """
    weights: list[list[Number]] = [[] for _ in range(4)]
    for i, point in enumerate(points):
        others = [other for j, other in enumerate(points) if j != i]
        scale = one
        for other in others:
            scale = scale * (point - other)
        # Π (x − other), its coefficients in powers of (x − at)
        roots = [at - other for other in others]
        for order in range(4):
            coefficient = elementary_symmetric(roots, len(roots) - order, one)
            factor = one
            for k in range(2, order + 1):
                factor = factor * _whole(k, one)
            weights[order].append(factor * coefficient / scale)
    return weights


def _whole(value: int, like: Any) -> Any:
    if isinstance(like, Fraction):
        return Fraction(value)
    return Pair(float(value)) if isinstance(like, Pair) else float(value)


def state_points_adjoint(
    points: StatePoints, scaled: Sequence[Array | None]
) -> tuple[list[Array | None], Array]:
    """Gradients of a state's parts [B, D] and of the spacing [B, 1] from those of
    spacingᵐ · part_m (see :func:`trajcli.kernels.padding.pull_points`)."""
    assert points.spacing is not None
    h = points.spacing.hi
    found: list[Array | None] = [None] * 4
    given = [g for g in scaled if g is not None]
    of_spacing = (given[0] * 0.0).sum(1)[:, None]
    for m, (part, g) in enumerate(zip(points.parts, scaled, strict=True)):
        if part is None or g is None:
            continue
        found[m] = h**m * g
        if m:
            of_spacing = of_spacing + m * h ** (m - 1) * (part * g).sum(1)[:, None]
    return found, of_spacing


def gap_gradient(
    gaps: Array, first: Any, place: Any, padded: Array, upstream: Sequence[Array | None]
) -> Array:
    """The gradient of unequal steps through the stencils they make, [B, n].

    gaps [b, n]; windows of five points begin at ``first`` and are evaluated at their point
    ``place`` [T]; padded [B, n + 1, D]; upstream [B, T, D]. Where point k of an interpolant P
    moves with its value held, the m-th derivative at x changes by −P'(x_k)·ℓ_k⁽ᵐ⁾(x), ℓ_k being
    the Lagrange polynomial of the point; where x itself moves, by P⁽ᵐ⁺¹⁾(x).
    """
    width, rows = 5, np.arange(len(first))
    windows = [padded[:, first + i] for i in range(width)]  # each [B, T, D]
    times = [gaps[:, first] * 0.0]
    for i in range(width - 1):
        times.append(times[-1] + gaps[:, first + i])
    one = times[0] + 1.0
    at_points = [derivative_weights(times, time, one)[1] for time in times]  # P' at each point
    here = np.stack(times)[place, :, rows].T
    weights = derivative_weights(times, here, one)
    fourth = [24.0 / _product([t - s for s in times if s is not t]) for t in times]
    asked = [None if g is None else g.astype(np.float64) for g in upstream[1:]]
    of_here = np.zeros((len(padded), len(first)))
    for g, slope in zip(asked, [*weights[2:], fourth], strict=True):
        if g is not None:
            of_here += (g * _applied(slope, windows)).sum(2)
    found = np.zeros((len(padded), gaps.shape[1]))
    later = np.zeros_like(of_here)  # of the points after a gap, all of which it moves
    for k in range(width - 1, 0, -1):
        slope = _applied(at_points[k], windows)
        for g, weight in zip(asked, weights[1:], strict=True):
            if g is not None:
                later = later - weight[k] * (g * slope).sum(2)
        later = later + np.where(place == k, of_here, 0.0)
        np.add.at(found.T, first + k - 1, later.T)  # of a recording, windows share gaps
    return found


def _applied(weights: Sequence[Array], windows: Sequence[Array]) -> Array:
    """Σ weight_i [b, T] · point_i [B, T, D], on differences from the first: they sum to zero."""
    terms = [w[:, :, None] * (x - windows[0]) for w, x in zip(weights, windows, strict=True)]
    return functools.reduce(operator.add, terms)


def _product(factors: Sequence[Array]) -> Array:
    return functools.reduce(operator.mul, factors)


def taylor(time: Fraction) -> tuple[Fraction, ...]:
    """Coefficients of the Taylor polynomial ``time`` steps away from a state."""
    return tuple(time**m / math.factorial(m) for m in range(4))


@functools.cache
def blossoms(degree: int, when: int) -> tuple[tuple[Fraction, ...], ...]:
    """Coefficients of a state's Taylor polynomial as B-spline control points of one segment.

    The control point of a polynomial is its blossom (polar form) at ``degree`` knots:
    Σ xᵐ hᵐ e_m(knots) / (m! C(degree, m)). L. Ramshaw, "Blossoms are polar forms", 1989.
    ``when``: the local time in the segment, in knots, at which the state holds.
    """
    return tuple(
        tuple(
            elementary_symmetric(
                [Fraction(r - degree + 1 + k - when) for k in range(degree)], m, Fraction(1)
            )
            / (math.factorial(m) * math.comb(degree, m))
            for m in range(4)
        )
        for r in range(degree + 1)
    )


def evenly_spaced(
    unit: Unit,
    where: Windows,
    dt: Array,
    factor: int = 1,
) -> Weights:
    """Weights for points factor·dt apart from those for unit steps, unit[kind][order][point].

    dt [b, 1]; ``where``: the windows of the rows.
    """
    step = spacing(settled(dt), factor)
    table = Pair(*(constant(part, dt) for part in _rounded(unit)))  # [P, 4, W]
    powers = stack([power(step, m) for m in range(4)], 1)  # [b, 4, 1]
    exact = table[None] / powers[:, None]

    def plain() -> Array:
        orders = constant([[0.0], [1.0], [2.0], [3.0]], dt)
        return table.hi[None] / (factor * dt[:, None, :, None]) ** orders

    return Weights(differentiable(exact, plain), where, Evenly(unit, step))


@functools.lru_cache(maxsize=32)
def _rounded(unit: Unit) -> tuple[Any, Any]:
    """The same as a pair of arrays [P, 4, W]."""
    pairs = [from_fraction(weight) for kind in unit for row in kind for weight in row]
    shape = len(unit), 4, len(unit[0][0])
    parts = np.array([p.hi for p in pairs]), np.array([p.lo for p in pairs])
    return parts[0].reshape(shape), parts[1].reshape(shape)


def spacing(dt: Array, factor: int = 1) -> Pair:
    """factor·dt as a pair."""
    return differentiable(pair(settled(dt)) * Pair(float(factor)), lambda: factor * dt)
