"""Finite-difference weights on any five points, and the Taylor polynomial of a state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any, TypeVar

from trajcli.arrays import namespace
from trajcli.kernels.pairs import Array, Pair, from_fraction, power
from trajcli.modes.mode import Parts

Number = TypeVar("Number", Fraction, Pair)


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


def _whole(value: int, like: Number) -> Any:
    return Fraction(value) if isinstance(like, Fraction) else Pair(float(value))


def state_polynomial(parts: Parts, step: Pair, coefficients: Sequence[Fraction]) -> Pair:
    """Σ coefficient_m · stepᵐ · part_m, unrounded: a point on a state's Taylor polynomial.

    step [b, 1]; parts [B, D]; the result is [B, D].
    """
    total: Pair | None = None
    for m, (part, coefficient) in enumerate(zip(parts, coefficients, strict=True)):
        if part is None or coefficient == 0:
            continue
        values = Pair(part, namespace(part).zeros_like(part))
        term = power(step, m) * from_fraction(coefficient) * values
        total = term if total is None else total + term
    if total is None:
        raise ValueError("a state needs its position")
    return total


def taylor(time: Fraction) -> list[Fraction]:
    """Coefficients of the Taylor polynomial ``time`` steps away from a state."""
    return [time**m / math.factorial(m) for m in range(4)]


def blossom(degree: int, knots: Sequence[int]) -> list[Fraction]:
    """Coefficients of a state's Taylor polynomial as a B-spline control point.

    The control point of a polynomial is its blossom (polar form) at ``degree`` knots:
    Σ xᵐ hᵐ e_m(knots) / (m! C(degree, m)). L. Ramshaw, "Blossoms are polar forms", 1989.
    """
    exact = [Fraction(knot) for knot in knots]
    return [
        elementary_symmetric(exact, m, Fraction(1)) / (math.factorial(m) * math.comb(degree, m))
        for m in range(4)
    ]


def per_order(table: Pair, step: Pair) -> Pair:
    """A table [P, 4, W] for unit steps, its order-m weights over stepᵐ: [b, P, 4, W].

    step [b, 1].
    """
    xp = namespace(step.hi)
    one = power(step, 0)
    powers = [one, step, power(step, 2), power(step, 3)]
    hi = xp.stack([p.hi for p in powers], 1)[:, None]  # [b, 1, 4, 1]
    lo = xp.stack([xp.zeros_like(step.hi) + p.lo for p in powers], 1)[:, None]
    return Pair(table.hi[None], table.lo[None]) / Pair(hi, lo)


def spacing(dt: Array, factor: int = 1) -> Pair:
    """A uniform step [b, 1] as a pair, times a whole number."""
    return Pair(dt) * Pair(float(factor))
