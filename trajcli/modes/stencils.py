"""Finite-difference weights on any five points, and the Taylor polynomial of a state."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any, TypeVar

from trajcli.arrays import constant, constant_pair, differentiable, pair, settled, stack
from trajcli.kernels.pairs import Array, Pair, power
from trajcli.kernels.program import Evenly, Weights
from trajcli.modes.mode import Parts

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


def state_points(
    parts: Parts, dt: Array, coefficients: Sequence[Sequence[Fraction]], factor: int = 1
) -> Pair:
    """Points on a state's Taylor polynomial, unrounded: Σ_m coefficients[i][m] · hᵐ · part_m.

    h = factor·dt, dt [b, 1]; parts [B, D]; a point i for each row of coefficients: [B, n, D].
    """
    present = [(m, part[:, None]) for m, part in enumerate(parts) if part is not None]
    columns = constant_pair([[[c] for c in row] for row in coefficients], dt)  # [n, 4, 1]
    step = spacing(dt, factor)
    exact = [
        columns[None, :, m] * power(step, m)[:, None] * pair(settled(part))  # [B, n, D]
        for m, part in present
    ]

    def plain() -> Array:
        step = (factor * dt)[:, None]
        terms = [columns.hi[None, :, m] * step**m * part for m, part in present]
        return functools.reduce(operator.add, terms)

    return differentiable(functools.reduce(operator.add, exact), plain)


def taylor(time: Fraction) -> list[Fraction]:
    """Coefficients of the Taylor polynomial ``time`` steps away from a state."""
    return [time**m / math.factorial(m) for m in range(4)]


@functools.cache
def blossom(degree: int, knots: tuple[int, ...]) -> list[Fraction]:
    """Coefficients of a state's Taylor polynomial as a B-spline control point.

    The control point of a polynomial is its blossom (polar form) at ``degree`` knots:
    Σ xᵐ hᵐ e_m(knots) / (m! C(degree, m)). L. Ramshaw, "Blossoms are polar forms", 1989.
    """
    exact = [Fraction(knot) for knot in knots]
    return [
        elementary_symmetric(exact, m, Fraction(1)) / (math.factorial(m) * math.comb(degree, m))
        for m in range(4)
    ]


def evenly_spaced(
    unit: Sequence[Sequence[Sequence[Fraction]]],
    first: Any,
    phase: Any,
    dt: Array,
    factor: int = 1,
) -> Weights:
    """Weights for points factor·dt apart from those for unit steps, unit[kind][order][point].

    dt [b, 1]; first, phase [T]: see :class:`Weights`.
    """
    step = spacing(dt, factor)
    table = constant_pair(unit, dt)  # [P, 4, W]
    powers = stack([power(step, m) for m in range(4)], 1)  # [b, 4, 1]
    exact = table[None] / powers[:, None]

    def plain() -> Array:
        orders = constant([[0.0], [1.0], [2.0], [3.0]], dt)
        return table.hi[None] / (factor * dt[:, None, :, None]) ** orders

    made_of = Evenly(tuple(tuple(tuple(row) for row in kind) for kind in unit), step)
    return Weights(differentiable(exact, plain), first, phase, made_of)


def spacing(dt: Array, factor: int = 1) -> Pair:
    """factor·dt as a pair, a constant."""
    return pair(settled(dt)) * Pair(float(factor))
