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


@dataclass(frozen=True)
class Bounds:
    """The least and the largest value of a quantity, one number for all dofs or [D]."""

    lower: Array
    upper: Array

    def arrays(self) -> tuple[Array, Array]:
        """Both as float64, [] or [D]."""
        return np.asarray(self.lower, np.float64), np.asarray(self.upper, np.float64)


def retime(
    parts: Mapping[str, Array], limits: Mapping[str, Bounds], *, slower_only: bool = False
) -> Retimed:
    """The smallest uniform time scaling that keeps every trajectory within its limits.

    parts: velocity, acceleration and jerk [B, T, D], any of them. limits: by the same names;
    lower < 0 < upper, per dof. Time stretched by s takes velocity to v/s, acceleration to a/s²
    and jerk to j/s³; positions stay. The factor is below 1 where a trajectory can be faster,
    unless ``slower_only``; of one that does not move it is 1. Values are within the limits also
    after rounding to their type.

    Raises InputError for limits of what is not given, limits that do not fit, NaN and Inf.
    """
    given = {name: to_numpy(as_array(parts[name], name)) for name in PARTS[1:] if name in parts}
    used = {name: limits[name] for name in given if name in limits}
    raise_if_any(_limit_faults(given, limits), InputError)
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


def _limit_faults(given: Mapping[str, Array], limits: Mapping[str, Bounds]) -> list[Fault]:
    faults = []
    wanted = [name for name in PARTS[1:] if name in limits]
    if not wanted:
        expected = "limits of velocity, acceleration or jerk"
        faults.append(Fault("no limits", "limits", expected, ", ".join(limits) or "none"))
    for name in wanted:
        if name not in given:
            found = ", ".join(given) or "none"
            what = f"limits of {name}, and no {name}"
            faults.append(Fault(what, name, "every limited quantity", found))
            continue
        dofs = given[name].shape[-1]
        for side, values in vars(limits[name]).items():
            sign = 1.0 if side == "upper" else -1.0
            array = np.asarray(values, dtype=np.float64)
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


def _needed(values: Array, bounds: Bounds, name: str) -> Array:
    """The scaling [B] that a quantity asks for: the order-th root of its worst share."""
    wide = values.astype(np.float64)
    lower, upper = bounds.arrays()
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


def _after_rounding(factor: Array, given: Mapping[str, Array], used: Mapping[str, Bounds]) -> Array:
    """The factor, larger by a few units in the last place where rounding went over a limit."""
    for _ in range(64):
        over = np.zeros(len(factor), bool)
        step = 0.0
        for name, bounds in used.items():
            values = _paced(given[name], factor, name)
            lower, upper = bounds.arrays()
            outside = (values.astype(np.float64) > upper) | (values.astype(np.float64) < lower)
            over |= outside.any((1, 2))
            step = max(step, float(np.finfo(values.dtype).eps))
        if not over.any():
            break
        least = float(np.finfo(np.float64).eps)
        factor = np.where(over, factor * (1.0 + max(step / 2, least)), factor)
    return factor
