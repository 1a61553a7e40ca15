"""The relation between the rows that a mode promises, as residuals beside what rounding allows.

A residual is a weighted sum of stored numbers that is zero before they were rounded. What it may
come to is the same sum over what each number may be off: half a unit in the last place where it
was given (the actions), one unit and 1e-12 of the largest value along its trajectory and dof
where it was computed (the contract of the kernels); and what the rounding of time stamps does to
the weights. A ratio of the two beyond 1 is not rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from trajcli.modes.central import MIDDLE, WINDOW
from trajcli.modes.stencils import derivative_weights
from trajcli.views.laws import CONTEXT, ORDERS, Law

_COMPUTED = 1e-12
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Term:
    """weight · xᵐ of the row ``offset`` away; the weight goes with dt to a power."""

    order: int
    offset: int
    weight: Any
    power: int = 0


@dataclass(frozen=True)
class Residual:
    """Residuals of one relation [b, n, D] over rows first, first + 1, …, and what is allowed."""

    order: int
    first: int
    values: Any
    allowed: Any
    terms: Sequence[Term]

    @property
    def ratios(self) -> Any:
        """How many times what is allowed; not finite values are no business of a relation."""
        with np.errstate(all="ignore"):
            ratios = np.abs(self.values) / np.maximum(self.allowed, np.finfo(np.float64).tiny)
        return np.where(np.isfinite(ratios), ratios, 0.0)


@dataclass(frozen=True)
class Window:
    """Rows first … of trajectories, of which there are ``total`` rows each.

    values: by order, float64 [b, n, D]; kinds: the types they are stored in; gaps [b or 1, n − 1]
    the steps between the rows, slack how far each may be off.
    """

    values: Mapping[int, Any]
    kinds: Mapping[int, Any]
    gaps: Any
    slack: Any
    first: int
    total: int

    @property
    def rows(self) -> int:
        """How many rows."""
        return int(next(iter(self.values.values())).shape[1])

    @property
    def core(self) -> tuple[int, int]:
        """The rows, in the window, that are this window's and not a neighbour's."""
        ends = self.first + self.rows == self.total
        return (CONTEXT if self.first else 0), self.rows - (0 if ends else CONTEXT)

    def clipped(self, first: int) -> tuple[int, int]:
        """The core from row ``first`` on."""
        begin, end = self.core
        return max(first, begin), end

    def dt(self, first: int, last: int) -> Any:
        """The steps into rows first..last, [b or 1, rows, 1]."""
        return self.gaps[:, first - 1 : last - 1, None]


def residuals(law: Law, window: Window) -> Iterator[Residual]:
    """Every relation that the law and the orders there are allow, over the rows of a window.

    A row is covered by one window alone where windows overlap by twice CONTEXT.
    """
    if window.rows < 2 and law.mode != "teleport":
        return
    errors = {m: _error(law, m, window.values[m], window.kinds[m]) for m in window.values}
    if law.mode == "central":
        yield from _central(law, window, errors)
        return
    for first, last, terms in _relations(law, window):
        if all(term.order in window.values for term in terms):
            yield _sum(window, errors, first, last, terms)


def _error(law: Law, order: int, values: Any, kind: Any) -> Any:
    """What each stored number may be off."""
    with np.errstate(all="ignore"):
        unit = np.spacing(np.abs(values).astype(kind)).astype(np.float64)
        unit = np.where(np.isfinite(unit), unit, 0.0)
        if order == ORDERS.get(law.mode):
            return 0.5 * unit
        known = np.where(np.isfinite(values), np.abs(values), 0.0)
        return unit + _COMPUTED * known.max(axis=1, keepdims=True, initial=0.0)


def _sum(
    window: Window, errors: Mapping[int, Any], first: int, last: int, terms: Sequence[Term]
) -> Residual:
    """The weighted sum over rows first..last, term by term, and what it may come to."""
    with np.errstate(all="ignore"):  # steps that are no steps are time's business
        off = window.slack / window.gaps  # relative, of the step into each row but the first
    off = np.concatenate([off[:, :1], off], axis=1)[:, first:last, None]
    total: Any = 0.0
    allowed: Any = 0.0
    for term in terms:
        rows = slice(first + term.offset, last + term.offset)
        values = window.values[term.order][:, rows]
        with np.errstate(all="ignore"):
            part = term.weight * values
            total = total + part
            allowed = allowed + np.abs(term.weight) * errors[term.order][:, rows]
            allowed = allowed + np.abs(part) * (4.0 * _EPS + term.power * off)
    return Residual(terms[0].order, first, total, allowed, terms)


Found = Iterator[tuple[int, int, list[Term]]]
"""First and last + 1 row (in the window) of a relation, and its terms."""


def _relations(law: Law, window: Window) -> Found:
    if law.mode == "teleport":
        first = 0 if law.frames == "actions" or law.recorded or window.first else 1
        first, last = window.clipped(first)
        if first < last:
            yield from ((first, last, [Term(m, 0, 1.0)]) for m in (1, 2, 3))
    elif law.mode == "bspline":
        first, last = window.clipped(1)
        if first < last:
            yield from _spline(law, window, first, last)
    else:
        yield from _cascades(law, window)


def _cascades(law: Law, window: Window) -> Found:
    for m in range(3):
        earliest = m + 1 if law.recorded else 1
        first, last = window.clipped(max(earliest - window.first, 1))
        if first < last:
            yield first, last, _cascade(law, m, ORDERS[law.mode], window.dt(first, last))
        if law.recorded and window.first == 0 and earliest < window.rows:
            for row in range(earliest):  # not yet differenced: the first value that can be
                ahead = Term(m + 1, earliest - row, -1.0)
                yield row, row + 1, [Term(m + 1, 0, 1.0), ahead]


def _cascade(law: Law, m: int, order: int, dt: Any) -> list[Term]:
    """xᵐ_t − xᵐ_{t−1} − dt·xᵐ⁺¹_t, and where xᵐ is a sum, the scheme's own rule."""
    if m >= order or law.scheme == "euler":
        return [Term(m, 0, 1.0), Term(m, -1, -1.0), Term(m + 1, 0, -dt, 1)]
    n = order - m
    terms = [Term(m, 0, 1.0), *(_taylor(m, r, dt) for r in range(n))]
    if law.scheme == "zoh":
        return [*terms, Term(order, 0, -(dt**n) / math.factorial(n), n)]
    whole = dt**n / math.factorial(n + 1)
    return [*terms, Term(order, -1, -n * whole, n), Term(order, 0, -whole, n)]


def _taylor(m: int, r: int, dt: Any) -> Term:
    """−dtʳ/r! · xᵐ⁺ʳ of the row before."""
    return Term(m + r, -1, -(dt**r) / math.factorial(r) if r else -1.0, r)


def _spline(law: Law, window: Window, first: int, last: int) -> Found:
    """From row to row within a segment the curve is one polynomial of its degree.

    degree 3: the jerk is constant; 4: linear, as with foh; 5: quadratic, its bend eliminated.
    """
    dt = window.dt(first, last)
    if law.degree == 3:
        for m in range(3):
            yield first, last, [Term(m, 0, 1.0), *(_taylor(m, r, dt) for r in range(4 - m))]
        at = window.first + np.arange(first, last)
        inside = (at % law.steps != 0) | (at == window.total - 1)  # the last row has no segment
        same = np.where(inside, 1.0, 0.0)[None, :, None]
        yield first, last, [Term(3, 0, same), Term(3, -1, -same)]
    elif law.degree == 4:
        for m in range(3):
            yield first, last, _cascade(Law("jerk", "foh"), m, 3, dt)
    else:
        yield first, last, _quintic(1, dt, 1 / 3, 1 / 6, 1 / 12)
        yield first, last, _quintic(0, dt, 1 / 8, 1 / 24, 1 / 40)


def _quintic(m: int, dt: Any, before: float, here: float, bend: float) -> list[Term]:
    """The relation of xᵐ where the jerk is a quadratic known only at both ends of a step.

    With j(s) = j₀ + (j₁ − j₀)·s + q·s·(s − 1), 0 ≤ s ≤ 1: a₁ − a₀ = dt·((j₀ + j₁)/2 − q/6), which
    gives q; the double integral of j is dt²·(j₀/3 + j₁/6 − q/12), the triple one
    dt³·(j₀/8 + j₁/24 − q/40).
    """
    n = 3 - m
    lower, upper = dt ** (n - 1), dt**n
    return [
        Term(m, 0, 1.0),
        *(_taylor(m, r, dt) for r in range(n - 1)),
        Term(2, -1, -lower * (1 / math.factorial(n - 1) - 6 * bend), n - 1),
        Term(2, 0, -lower * 6 * bend, n - 1),
        Term(3, -1, -upper * (before - 3 * bend), n),
        Term(3, 0, -upper * (here - 3 * bend), n),
    ]


def _central(law: Law, window: Window, errors: Mapping[int, Any]) -> Iterator[Residual]:
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
                total, allowed = found * 1.0, errors[m][:, begin:end] + 4 * _EPS * np.abs(found)
                terms = [Term(m, 0, 1.0)]
                for i in range(WINDOW):
                    weight = np.asarray(weights[m][i])[:, :, None]
                    part = weight * (self.values[:, rows[i]] - here)
                    total = total - part
                    allowed = allowed + np.abs(weight) * self.errors[:, rows[i]]
                    allowed = allowed + np.abs(part) * (32 * _EPS + 8 * off)
                    terms.append(Term(0, i - left, -weight, m))
            yield Residual(m, begin, total, allowed, terms)

    def _off(self, start: int, count: int) -> Any:
        """How far the steps of each window may be off, relative: [b, count, 1]."""
        with np.errstate(all="ignore"):
            each = self.slack / self.gaps
        sides = [each[:, start + i : start + i + count] for i in range(WINDOW - 1)]
        return np.max(sides, axis=0)[:, :, None]


def blame(found: Sequence[Residual], trajectory: int, dof: int, row: int) -> tuple[int, int]:
    """The order and row of the one number whose error explains most of what fails near a row.

    A number that is off by δ moves every relation it is part of by its weight times δ: of all
    numbers near, the one whose δ leaves the least behind.
    """
    near = range(row - 3 * CONTEXT, row + 3 * CONTEXT + 1)
    missed: dict[tuple[int, int], float] = {}
    weighed: dict[tuple[int, int], float] = {}
    for residual in found:
        shape = residual.values.shape
        b = trajectory if shape[0] > 1 else 0
        for i in (at - residual.first for at in near):
            if not 0 <= i < shape[1] or not np.isfinite(residual.values[b, i, dof]):
                continue
            allowed = max(float(residual.allowed[b, i, dof]), 1e-140)
            off = float(residual.values[b, i, dof]) / allowed
            for term in residual.terms:
                weight = _entry(term.weight, b, i) / allowed
                number = (term.order, residual.first + i + term.offset)
                missed[number] = missed.get(number, 0.0) + weight * off
                weighed[number] = weighed.get(number, 0.0) + weight * weight
    explained = {n: missed[n] / weighed[n] * missed[n] for n in missed if weighed[n] > 0}
    return max(explained, key=lambda number: (explained[number], -abs(number[1] - row)))


def _entry(weight: Any, trajectory: int, row: int) -> float:
    if isinstance(weight, float):
        return weight
    b, i = (min(at, n - 1) for at, n in zip((trajectory, row), weight.shape[:2], strict=True))
    return float(weight[b, i, 0])
