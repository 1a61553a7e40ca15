"""What a trajectory reaches between its rows, where its mode says the curve."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from trajcli.modes.mode import PARTS
from trajcli.sampling import derivative, missing_parts, taylor

Floats: TypeAlias = npt.NDArray[np.float64]

# Of a step, to find where a cubic is zero: as many as there are bits.
_HALVINGS = 60


def extremes(
    mode: str, options: Mapping[str, Any], rows: Mapping[str, Any], times: Floats
) -> dict[str, Floats]:
    """The extreme values of velocity, acceleration and jerk within the steps between rows.

    Parameters:
        mode, options: ``zoh``, ``foh`` or ``bspline``, as :func:`trajcli.sample` takes them.
        rows: position to jerk [B, T, D] by name.
        times: of the rows [T] or [B, T].

    Returns:
        By name [B, n, T−1, D]: the values where the derivative is zero, at most n in a step;
        others repeat a row. Nothing where rows are not there that the curve is computed from.

    Raises:
        UsageError: a mode whose rows no known polynomial joins.
    """
    values = [None if name not in rows else np.asarray(rows[name], np.float64) for name in PARTS]
    knots = np.atleast_2d(np.asarray(times, np.float64))
    if missing_parts(mode, options, rows) or knots.shape[1] < 2:
        return {}
    middles, steps = (knots[:, 1:] + knots[:, :-1]) / 2, np.diff(knots)[..., None]
    known, tau = taylor(mode, options, values, knots, middles)
    begin = tau - steps / 2
    found = {}
    for order in (1, 2, 3):
        if any(part is None for part in known[order:]) or order >= len(known):
            continue
        shape = np.broadcast_shapes(known[order].shape, begin.shape)
        roots = _roots(
            known[order + 1 :], *(np.broadcast_to(x, shape) for x in (begin, begin + steps))
        )
        if roots:
            found[PARTS[order]] = np.stack([derivative(known, at, order) for at in roots], 1)
    return found


def _roots(taylor: Sequence[Floats], begin: Floats, end: Floats) -> list[Floats]:
    """Where Σ_m c_m·τᵐ/m!, of degree at most 3, is zero within begin..end; else begin."""
    degree = len(taylor) - 1
    if degree < 1:
        return []
    with np.errstate(all="ignore"):
        if degree == 1:
            found = [-taylor[0] / taylor[1]]
        elif degree == 2:  # without cancellation: Press et al., "Numerical Recipes", 5.6
            half = -(
                taylor[1]
                + np.copysign(np.sqrt(taylor[1] ** 2 - 2 * taylor[2] * taylor[0]), taylor[1])
            )
            found = [half / taylor[2], 2 * taylor[0] / half]
        else:  # between its own extremes it is monotonic
            edges = np.sort([begin, *_roots(taylor[1:], begin, end), end], axis=0)
            found = [_bisected(taylor, a, b) for a, b in itertools.pairwise(edges)]
        return [np.where((at > begin) & (at < end), at, begin) for at in found]


def _bisected(taylor: Sequence[Floats], low: Floats, high: Floats) -> Floats:
    """Where the polynomial changes its sign between low and high, NaN where it does not."""
    rising = derivative(taylor, high, 0) > 0
    changes = (derivative(taylor, low, 0) > 0) != rising
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = (derivative(taylor, middle, 0) > 0) == rising
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.where(changes, (low + high) / 2, np.nan)
