"""What lies before and after the actions of a band, as points, and the way back from them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from trajcli.arrays import constant_pair, float64, held_for, is_repeated, namespace, own_rows, pair
from trajcli.kernels.pairs import Array, Pair, power
from trajcli.kernels.program import Held, Padding, StatePoints

_POSITION = (Fraction(1), Fraction(0), Fraction(0), Fraction(0))
"""Coefficients of a state's position."""


def count_of(padding: Padding) -> int:
    """How many points there are."""
    if padding is None:
        return 0
    if isinstance(padding, StatePoints):
        return len(padding.coefficients)
    return padding.count if isinstance(padding, Held) else int(padding.hi.shape[1])


def points_of(padding: Padding, actions: Array) -> Pair | None:
    """The points [B, n, D] beside actions [B, H, D], unrounded; None where there are none."""
    if padding is None or isinstance(padding, Pair):
        return padding
    if isinstance(padding, Held):
        return pair(held_for(float64(actions[:, -1:]), padding.count))
    parts = [taken(part, padding.rows) for part in padding.parts]
    if all(row == _POSITION for row in padding.coefficients):
        position = parts[0]
        assert position is not None
        return pair(held_for(position[:, None], len(padding.coefficients)))
    given = [part for part in parts if part is not None]
    spacing = padding.spacing
    apart = spacing is not None and len(spacing.hi) > 1
    if not apart and len(given[0]) > 1 and all(is_repeated(part) for part in given):
        one = _sums(padding, [part if part is None else part[:1] for part in parts])
        shape = len(given[0]), *one.hi.shape[1:]
        return Pair(np.broadcast_to(one.hi, shape), np.broadcast_to(one.lo, shape))
    return _sums(padding, parts)


def _sums(padding: StatePoints, parts: Sequence[Array | None]) -> Pair:
    present = [(m, part[:, None]) for m, part in enumerate(parts) if part is not None]
    columns = constant_pair([[[c] for c in row] for row in padding.coefficients], present[0][1])
    spacing = padding.spacing
    terms = []
    for m, part in present:
        factor = columns[None, :, m]
        factor = factor if spacing is None else factor * power(spacing, m)[:, None]
        terms.append(factor * pair(part))  # [B, n, D]
    return functools.reduce(operator.add, terms)


def pull_points(padding: Padding, grad: Array, of_actions: Array) -> Any:
    """The gradient of what points were made of from that of the points, float64 [B, n, D].

    Of a state's: four arrays [B, D], the gradients of spacingᵐ · part_m, None where there is no
    part. Of the last action, held: it is added to ``of_actions``, and None comes back, as where
    there are no points. Else that of the points as it is.
    """
    if isinstance(padding, Held):
        of_actions[:, -1] += grad.sum(1)
    if padding is None or isinstance(padding, Held):
        return None
    if isinstance(padding, Pair):
        return grad
    found: list[Array | None] = []
    for m, part in enumerate(padding.parts):
        terms = [float(c[m]) * grad[:, i] for i, c in enumerate(padding.coefficients) if c[m]]
        none = namespace(grad).zeros_like(grad[:, 0])
        found.append(None if part is None else functools.reduce(operator.add, terms, none))
    return found


def taken(part: Array | None, rows: Array | None) -> Array | None:
    """A part of a state as float64 [B, D], each trajectory its own."""
    if part is None or isinstance(part, float):  # a number, as a pair's low part
        return part
    if rows is not None:
        return own_rows(part, rows)
    wide = str(part.dtype).endswith("float64")
    return part if wide else float64(part)  # a copy of what is one for all would be B of them
