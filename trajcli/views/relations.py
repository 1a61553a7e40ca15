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
from typing import Any

import numpy as np

from trajcli.views.laws import ORDERS, Law
from trajcli.views.stencil_relations import central
from trajcli.views.windows import EPS, Residual, Term, Window

_COMPUTED = 1e-12


def residuals(law: Law, window: Window) -> Iterator[Residual]:
    """Every relation that the law and the orders there are allow, over the rows of a window.

    A row is covered by one window alone where windows overlap by twice CONTEXT.
    """
    if window.rows < 2 and law.mode != "teleport":
        return
    errors = {m: _error(law, m, window.values[m], window.kinds[m]) for m in window.values}
    if law.mode == "central":
        yield from central(law, window, errors)
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
            allowed = allowed + np.abs(part) * (4.0 * EPS + term.power * off)
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
