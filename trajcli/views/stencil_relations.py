"""The relation of mode central: its stencils once more, on the stored positions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from trajcli.modes.central import MIDDLE, WINDOW
from trajcli.modes.stencils import derivative_weights
from trajcli.views.laws import Law
from trajcli.views.windows import EPS, Residual, Term, Window


def central(law: Law, window: Window, errors: Mapping[int, Any]) -> Iterator[Residual]:
    """Stencils again, on the stored positions; beyond the ends what ``ends`` puts there."""
    if 0 not in window.values:
        return
    points = _Points.of(law, window, errors)
    first, last = window.clipped(points.earliest - points.before)
    cuts = {first, last}
    if law.recorded:  # at the ends of a recording the windows lie to one side
        edges = (0, 1, MIDDLE, window.total - MIDDLE, window.total - 1)
        cuts |= {at - window.first for at in edges if first < at - window.first < last}
    for begin, end in pairwise(sorted(cuts)):
        yield from points.stencils(window, errors, begin, end, law.recorded)


@dataclass(frozen=True)
class _Points:
    """Positions with what lies beyond the ends, ``before`` of them ahead of the window's rows."""

    values: Any
    errors: Any
    gaps: Any
    slack: Any
    before: int
    earliest: int

    @staticmethod
    def of(law: Law, window: Window, errors: Mapping[int, Any]) -> _Points:
        """The padded positions; ``earliest`` is the first point that has a stencil."""
        values, off = [window.values[0]], [errors[0]]
        gaps, slack = [window.gaps], [window.slack]
        known = set(window.values) >= {0, 1, 2, 3} and law.convention == "standard"
        head = known and not law.recorded and window.first == 0 and law.frames != "actions"
        if head:
            step = window.gaps[:, :1, None]
            parts = [(-step) ** m / math.factorial(m) for m in range(4)]
            before = [c * window.values[m][:, :1] for m, c in enumerate(parts)]
            apart = [np.abs(c) * errors[m][:, :1] for m, c in enumerate(parts)]
            values.insert(0, sum(before[1:], before[0]))
            off.insert(0, sum(apart[1:], apart[0]))
            gaps.insert(0, window.gaps[:, :1])
            slack.insert(0, window.slack[:, :1])
        if not law.recorded and window.first + window.rows == window.total:
            values += [window.values[0][:, -1:]] * 2
            off += [errors[0][:, -1:]] * 2
            gaps += [window.gaps[:, -1:]] * 2
            slack += [window.slack[:, -1:]] * 2
        return _Points(
            values=np.concatenate(values, axis=1),
            errors=np.concatenate(off, axis=1),
            gaps=np.concatenate(gaps, axis=1),
            slack=np.concatenate(slack, axis=1),
            before=int(head),
            earliest=0 if law.recorded else MIDDLE,
        )

    def stencils(
        self, window: Window, errors: Mapping[int, Any], begin: int, end: int, recorded: bool
    ) -> Iterator[Residual]:
        """Rows begin..end of the window, all of the same place in their stencils."""
        at = begin + self.before
        left = MIDDLE
        if recorded:
            start = min(max(window.first + begin - MIDDLE, 0), window.total - WINDOW)
            left = window.first + begin - start
        start, count = at - left, end - begin
        if start < 0 or start + count + WINDOW - 1 > self.values.shape[1]:
            return
        rows = [slice(start + i, start + i + count) for i in range(WINDOW)]
        zero = self.gaps[:, :1].repeat(count, axis=1) * 0.0
        times = [zero]
        for i in range(WINDOW - 1):
            times.append(times[-1] + self.gaps[:, start + i : start + i + count])
        with np.errstate(all="ignore"):
            weights = derivative_weights(times, times[left], zero + 1.0)
        off = self._off(start, count)
        here = self.values[:, rows[left]]
        for m in sorted(set(window.values) - {0}):
            found = window.values[m][:, begin:end]
            with np.errstate(all="ignore"):
                total, allowed = found * 1.0, errors[m][:, begin:end] + 4 * EPS * np.abs(found)
                terms = [Term(m, 0, 1.0)]
                for i in range(WINDOW):
                    weight = np.asarray(weights[m][i])[:, :, None]
                    part = weight * (self.values[:, rows[i]] - here)
                    total = total - part
                    allowed = allowed + np.abs(weight) * self.errors[:, rows[i]]
                    allowed = allowed + np.abs(part) * (32 * EPS + 8 * off)
                    terms.append(Term(0, i - left, -weight, m))
            yield Residual(m, begin, total, allowed, terms)

    def _off(self, start: int, count: int) -> Any:
        """How far the steps of each window may be off, relative: [b, count, 1]."""
        with np.errstate(all="ignore"):
            each = self.slack / self.gaps
        sides = [each[:, start + i : start + i + count] for i in range(WINDOW - 1)]
        return np.max(sides, axis=0)[:, :, None]
