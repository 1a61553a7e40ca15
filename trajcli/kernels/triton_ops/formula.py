"""What kernels are told of the windows of a band, and its weights as whole numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from trajcli.kernels.differences import whole_weights
from trajcli.kernels.pairs import from_fraction
from trajcli.kernels.program import Unit, Weights, Windows

Whole = tuple[int, ...]
"""Whole numbers: as many as there are points for each order, one order after the other."""


def formula_of(weights: Weights) -> Windows:
    """Where its windows begin."""
    assert isinstance(weights.where, Windows)
    return weights.where


def options(where: Windows) -> dict[str, Any]:
    """The formula of windows as kernels are given it: see windows.py."""
    return {
        "OFFSET": where.offset,
        "STEPS": where.steps,
        "SHIFT": where.shift,
        "EACH": where.each,
    }


def rows_of(where: Windows, least: int, most: int) -> tuple[int, int]:
    """The rows whose windows begin at ``least`` to ``most``, none of them held at an end."""
    begin = where.steps * (max(least, 0) + where.shift) - where.offset
    end = where.steps * (min(most, where.last) + 1 + where.shift) - where.offset
    begin, end = max(begin, 0), min(end, where.count)
    return (begin, end) if begin < end else (0, 0)


def most_rows(where: Windows) -> int:
    """How many rows may share a window."""
    at_first = where.steps * (1 + where.shift) - where.offset
    at_last = where.count - (where.steps * (where.last + where.shift) - where.offset)
    return where.count if where.last == 0 else max(where.steps, at_first, at_last)


@lru_cache(maxsize=32)
def points(coefficients: tuple[tuple[Fraction, ...], ...]) -> tuple[float, ...]:
    """The points of a state as whole numbers times its scaled parts.

    For each order one over the common denominator, as a pair; then four whole numbers for each
    point, one for each order.
    """
    common = [math.lcm(*(row[m].denominator for row in coefficients)) for m in range(4)]
    over = [from_fraction(Fraction(1, n)) for n in common]
    numbers = [float(row[m] * common[m]) for row in coefficients for m in range(4)]
    return (*(x for pair in over for x in (pair.hi, pair.lo)), *numbers)


class Stencil(NamedTuple):
    """Windows that move on by one point with every row, weighed by whole numbers.

    of_differences: weights of order m on m-th differences (the last m of them are 0), and what
    they are to be divided by; for rows away from the ends. of_points: those of the points,
    likewise, for all rows but the last one, if its window is that of the row before: that has
    ``last``. None, too, where more than that is special at the ends.
    """

    of_differences: Whole
    differences_common: tuple[int, ...]
    of_points: Whole | None
    points_common: tuple[int, ...]
    last: Whole | None

    @property
    def points(self) -> int:
        """How many of them a window has."""
        return len(self.of_differences) // 4


def stencil(weights: Weights, where: Windows) -> Stencil | None:
    """The stencil of a band, None where it is not one.

    Of a stretch of rows it is that of the whole, so that the bits are the same.
    """
    evenly = weights.evenly
    if evenly is None or where.each or where.steps != 1:
        return None
    held = where.count - 1 + where.offset - where.last  # rows that share the last window, less one
    return _stencil(evenly.unit, where.shift, held)


@lru_cache(maxsize=32)
def _stencil(unit: Unit, shift: int, held: int) -> Stencil | None:
    middle = unit[shift : shift + 1]
    on_differences, differences_common = whole_weights(middle, True)
    alike = shift == 0 and held <= min(1, len(unit) - 1)
    on_points, points_common = whole_weights(unit[: 1 + held] if alike else middle, False)
    if differences_common is None or points_common is None:
        return None
    (of_differences,) = map(_numbers, on_differences)
    of_points, *last = map(_numbers, on_points) if alike else (None,)
    return Stencil(
        of_differences, differences_common, of_points, points_common, last[0] if last else None
    )


def _numbers(kind: Sequence[Sequence[Fraction]]) -> Whole:
    """Orders of one length, side by side; what is missing is 0."""
    width = len(kind[0])
    return tuple(n for row in kind for n in (*map(int, row), *(0,) * (width - len(row))))
