"""Some of a trajectory's rows, and what they are computed from.

A trajectory may be computed in stretches of rows, one after the other, with the bits of the
whole: a cascade goes on from the state it ended in, a band needs the neighbours its windows
reach.
"""

from __future__ import annotations

from dataclasses import dataclass

from trajcli.arrays import columns, concatenate, counting, namespace
from trajcli.kernels.pairs import Array, Pair, two_sum
from trajcli.kernels.program import BLOCK_ROWS

Range = tuple[int, int]
"""First, and last + 1."""

PIECE = BLOCK_ROWS
"""Rows a stretch of several has at least (both ends of a trajectory, and the widest window), and
of which it has whole numbers: kernels give the same bits only if cut there."""


@dataclass(frozen=True)
class Stretch:
    """Rows ``rows`` of a trajectory of ``horizon`` actions.

    ``actions`` and ``steps`` (the steps between rows, see :meth:`Mode.align_dt`) are those at
    hand: all that the rows depend on, but for the state carried from the rows before.
    """

    rows: Range
    actions: Range
    steps: Range
    horizon: int

    @property
    def opens(self) -> bool:
        """Whether what comes before the first action is part of it."""
        return self.actions[0] == 0

    @property
    def closes(self) -> bool:
        """Whether what follows the last action is part of it."""
        return self.actions[1] == self.horizon


def under(points: Range, head: int, used: int, horizon: int) -> Range:
    """The actions under windows over some points of head + used actions + tail.

    Where they reach the tail, all up to the last action, which may be held there.
    """
    begin = min(max(points[0] - head, 0), max(used - 1, 0))
    end = points[1] - head
    return begin, horizon if end >= used else max(end, begin)


def times_at(
    dt: Array, stretch: Stretch, counts: Range, before: Pair | None
) -> tuple[Array, Pair | None]:
    """The time after so many steps, [b, n], and what to go on from, unrounded.

    dt [b, 1], or [b, n]: the steps of the stretch; ``before``: the time after counts[0] − 1 steps.
    """
    first, last = counts
    if dt.shape[1] == 1:
        return dt * counting(first, last, dt), None
    zero = namespace(dt).zeros_like(dt[:, 0, None])
    begin = max(first - 1, 0) - stretch.steps[0]
    steps = columns(dt, begin, last - 1 - stretch.steps[0])
    times, after = _elapsed(steps, before or Pair(zero, zero))
    return (concatenate([zero, times], 1) if first == 0 else times), after


def _elapsed(dt: Array, before: Pair) -> tuple[Array, Pair]:
    """before + dt_1, before + dt_1 + dt_2, … [b, n], each rounded once, and the last unrounded."""
    xp = namespace(dt)
    sums = xp.cumsum(concatenate([before.hi, dt], 1), 1)
    gained = two_sum(sums[:, 1:], -sums[:, :-1])  # what each sum missed is added back
    missed = xp.cumsum(concatenate([before.lo, (dt - gained.hi) - gained.lo], 1), 1)
    after = Pair(sums[:, -1, None], missed[:, -1, None])
    return sums[:, 1:] + missed[:, 1:], after
