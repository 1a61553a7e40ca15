"""Finite-difference weights on any points, and Taylor polynomials of states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any, TypeVar

import numpy as np

from trajcli.kernels.program import Floats

Number = TypeVar("Number", Fraction, Any)


def elementary_symmetric(values: Sequence[Any], degree: int, one: Any) -> Any:
    """Returns the sum of all products of ``degree`` of the values."""
    return sum((math.prod(factors, start=one) for factors in combinations(values, degree)), one * 0)


def derivative_weights(points: Sequence[Number], at: Number, one: Number) -> list[list[Number]]:
    """Returns weights[order][point] of derivatives 0 to 3 at one place, from distinct points.

    They are derivatives of the Lagrange polynomials, the closed form of B. Fornberg, "Generation
    of finite difference formulas on arbitrarily spaced grids", Math. Comp. 51 (1988), exact for
    polynomials of degree below the number of points.
    """
    weights: list[list[Number]] = [[] for _ in range(4)]
    for i, point in enumerate(points):
        others = [other for j, other in enumerate(points) if j != i]
        scale = math.prod((point - other for other in others), start=one)
        # Π (x − other), its coefficients in powers of (x − at)
        roots = [at - other for other in others]
        for order in range(4):
            # the derivative at the place is order! times the coefficient of (x − at)^order
            coefficient = elementary_symmetric(roots, len(roots) - order, one)
            weights[order].append(math.factorial(order) * coefficient / scale)
    return weights


def on_differences(weights: Sequence[Sequence[Any]], base: int) -> list[list[Any]]:
    """Turns weights on points into weights on the differences of neighbours.

    Σ_i w_i X_i is X_base·Σ w_i + Σ_i c_i (X_{i+1} − X_i), where c_i is the sum of the weights
    beyond the difference, seen from the base, and negative on its left. Weights of derivatives sum
    to zero.
    """
    return [
        [sum(row[i + 1 :]) if i >= base else -sum(row[: i + 1]) for i in range(len(row) - 1)]
        for row in weights
    ]


def without_rounding(table: Floats) -> Floats:
    """Makes weights on differences [..., N] equal where only rounding differs.

    The point between two equal weights has weight zero, and kernels leave it out.
    """
    close = 1e-13 * np.abs(table).max(-1, initial=0.0)
    for i in range(1, table.shape[-1]):
        same = np.abs(table[..., i] - table[..., i - 1]) <= close
        table[..., i] = np.where(same, table[..., i - 1], table[..., i])
    return table


def taylor(time: Fraction) -> tuple[Fraction, ...]:
    """Returns the coefficients of the Taylor polynomial ``time`` steps away from a state."""
    return tuple(time**m / math.factorial(m) for m in range(4))


def blossoms(degree: int, when: int) -> list[list[Fraction]]:
    """Returns the B-spline control points of a segment that is the Taylor polynomial of a state.

    They are coefficients of the parts of the state, which holds at the local time ``when``, in
    knots. The control point of a polynomial is its blossom (polar form) at ``degree`` knots:
    Σ xᵐ hᵐ e_m(knots) / (m! C(degree, m)). L. Ramshaw, "Blossoms are polar forms", 1989.
    """
    return [
        [
            elementary_symmetric(
                [Fraction(r - degree + 1 + k - when) for k in range(degree)], m, Fraction(1)
            )
            / (math.factorial(m) * math.comb(degree, m))
            for m in range(4)
        ]
        for r in range(degree + 1)
    ]
