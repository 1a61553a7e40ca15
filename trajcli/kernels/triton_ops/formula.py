"""Where the windows of a band begin, as a formula, and its weights as whole numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from trajcli.kernels.differences import whole_weights
from trajcli.kernels.program import Weights

Whole = tuple[int, ...]
"""Whole numbers: as many as there are points for each order, one order after the other."""


@dataclass(frozen=True)
class Windows:
    """Where windows begin, as a formula: see windows.py. ``each``: every row has weights of its
    own, else they go by the place in the window."""

    count: int
    offset: int
    steps: int
    shift: int
    last: int
    each: bool

    @property
    def options(self) -> dict[str, Any]:
        return {
            "OFFSET": self.offset,
            "STEPS": self.steps,
            "SHIFT": self.shift,
            "EACH": self.each,
        }

    def rows_of(self, least: int, most: int) -> tuple[int, int]:
        """The rows whose windows begin at ``least`` to ``most``, none of them held at an end."""
        begin = self.steps * (max(least, 0) + self.shift) - self.offset
        end = self.steps * (min(most, self.last) + 1 + self.shift) - self.offset
        begin, end = max(begin, 0), min(end, self.count)
        return (begin, end) if begin < end else (0, 0)

    def most_rows(self) -> int:
        """How many rows may share a window."""
        at_first = self.steps * (1 + self.shift) - self.offset
        at_last = self.count - (self.steps * (self.last + self.shift) - self.offset)
        return self.count if self.last == 0 else max(self.steps, at_first, at_last)


def windows(first: Any, phase: Any) -> Windows | None:
    """The formula behind the arrays of a table's use; None where there is none like it.

    first, phase: NumPy int64 [T], T > 0. They are compared with the formula in every row.
    """
    count, last = len(first), int(first[-1])
    row = np.arange(count)
    each = count > 1 and np.array_equal(phase, row)
    later = np.flatnonzero(first > first[0])
    for offset, shift in ((0, 0), (1, 0), (0, 2)):
        steps = int(later[0] + offset) // int(first[0] + 1) if len(later) else count + offset
        steps = 1 if shift else steps
        begins = np.clip((row + offset) // max(steps, 1) - shift, 0, last)
        if steps < 1 or not np.array_equal(begins, first):
            continue
        if each or np.array_equal(phase, row + offset - steps * first):
            return Windows(count, offset, steps, shift, last, each)
    return None


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
    middle = evenly.unit[where.shift : where.shift + 1]
    on_differences, differences_common = whole_weights(middle, True)
    held = where.count - 1 + where.offset - where.last  # rows that share the last window, less one
    alike = where.shift == 0 and held <= min(1, len(evenly.unit) - 1)
    on_points, points_common = whole_weights(evenly.unit[: 1 + held] if alike else middle, False)
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
