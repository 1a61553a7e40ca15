"""Trajectories slower or faster, so that they keep their limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trajcli.arrays import to_numpy
from trajcli.checks import as_array
from trajcli.errors import Fault, InputError, raise_if_any
from trajcli.modes.mode import PARTS
from trajcli.resampling import output_type

Array = Any
"""numpy.ndarray"""


@dataclass(frozen=True)
class Retimed:
    """Trajectories at another pace: ``factor`` [B] times as long; ``limited_by`` says why.

    ``parts`` are velocity [B, T, D] and so on, as far as they were given.
    """

    factor: Array
    parts: Mapping[str, Array]
    limited_by: list[str]


Limit = tuple[Array, Array] | Array | float
"""The least and the largest value, each a number or [D]; one alone is the largest magnitude."""


_Pair = tuple[Array, Array]


def retime(
    parts: Mapping[str, Array], limits: Mapping[str, Limit], *, slower_only: bool = False
) -> Retimed:
    """The smallest uniform time scaling that keeps every trajectory within its limits.

    parts: velocity, acceleration and jerk [B, T, D], any of them. limits: by the same names, a
    pair (lower < 0 < upper) of numbers or [D], or the largest magnitude. Time stretched by s
    takes velocity to v/s, acceleration to a/s² and jerk to j/s³; positions stay. The factor is
    below 1 where a trajectory can be faster, unless ``slower_only``; of one that does not move
    it is 1. Values are within the limits also after rounding to their type.

    Raises InputError for limits of what is not given, limits that do not fit, NaN and Inf.
    """
    given = {name: to_numpy(as_array(parts[name], name)) for name in PARTS[1:] if name in parts}
    used = {name: _pair(limits[name]) for name in PARTS[1:] if name in limits}
    raise_if_any(_limit_faults(given, used), InputError)
    batch = len(next(iter(given.values())))
    needed = {name: _needed(given[name], bounds, name) for name, bounds in used.items()}
    table = np.stack(list(needed.values()))  # [parts, B]
    factor = table.max(0)
    names = list(needed)
    limited = [names[k] for k in table.argmax(0)]
    still = factor == 0.0
    factor = np.where(still, 1.0, factor)
    if slower_only:
        factor = np.maximum(factor, 1.0)
    limited = [
        "" if still[b] or factor[b] > table[:, b].max() else limited[b] for b in range(batch)
    ]
    factor = _after_rounding(factor, given, used)
    scaled = {name: _paced(values, factor, name) for name, values in given.items()}
    return Retimed(factor, scaled, limited)


def _pair(limit: Limit) -> _Pair:
    """Lower and upper as float64, [] or [D]."""
    lower, upper = limit if isinstance(limit, tuple) else (-np.asarray(limit), limit)
    return np.asarray(lower, np.float64), np.asarray(upper, np.float64)


def _limit_faults(given: Mapping[str, Array], limits: Mapping[str, _Pair]) -> list[Fault]:
    faults = []
    if not limits:
        faults.append(Fault("no limits", "limits", "limits of velocity, acceleration or jerk"))
    for name in limits:
        if name not in given:
            found = ", ".join(given) or "none"
            what = f"limits of {name}, and no {name}"
            faults.append(Fault(what, name, "every limited quantity", found))
            continue
        dofs = given[name].shape[-1]
        for side, sign, array in zip(("lower", "upper"), (-1.0, 1.0), limits[name], strict=True):
            if array.shape not in ((), (dofs,)):
                expected = f"one number, or {dofs}"
                faults.append(
                    Fault("limits of other dofs", f"{name} {side}", expected, str(array.size))
                )
            elif not (sign * array > 0).all():  # false for NaN too
                expected = f"{side} {'> 0' if sign > 0 else '< 0'}"
                what = "a limit that no pace can keep"
                faults.append(Fault(what, f"{name} {side}", expected, str(array.tolist())))
    shapes = {values.shape for values in given.values()}
    if len(shapes) > 1:
        faults.append(Fault("quantities of different shape", ", ".join(given), found=str(shapes)))
    return faults


def _needed(values: Array, bounds: _Pair, name: str) -> Array:
    """The scaling [B] that a quantity asks for: the order-th root of its worst share."""
    wide = values.astype(np.float64)
    lower, upper = bounds
    share = np.maximum(wide / upper, wide / lower)
    worst = share.max((1, 2), initial=0.0)
    if not np.isfinite(worst).all():
        b = int(np.flatnonzero(~np.isfinite(worst))[0])
        what = "NaN or Inf cannot be brought within limits"
        raise InputError(Fault(what, f"{name}, trajectory {b}"))
    order = PARTS.index(name)
    return np.cbrt(worst) if order == 3 else worst ** (1.0 / order)


def _paced(values: Array, factor: Array, name: str) -> Array:
    """Values of a quantity [B, T, D] at another pace, in their own type."""
    power = factor[:, None, None] ** PARTS.index(name)
    return (values.astype(np.float64) / power).astype(output_type(values.dtype))


def _after_rounding(factor: Array, given: Mapping[str, Array], used: Mapping[str, _Pair]) -> Array:
    """The factor, larger by a few units in the last place where rounding went over a limit."""
    for _ in range(64):
        over = np.zeros(len(factor), bool)
        step = 0.0
        for name, bounds in used.items():
            values = _paced(given[name], factor, name)
            lower, upper = bounds
            outside = (values.astype(np.float64) > upper) | (values.astype(np.float64) < lower)
            over |= outside.any((1, 2))
            step = max(step, float(np.finfo(values.dtype).eps))
        if not over.any():
            break
        least = float(np.finfo(np.float64).eps)
        factor = np.where(over, factor * (1.0 + max(step / 2, least)), factor)
    return factor
