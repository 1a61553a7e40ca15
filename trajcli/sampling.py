"""Trajectories between their rows: the piecewise polynomials that their modes define."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from trajcli.arrays import float64, is_torch, readable, to_numpy, to_torch
from trajcli.checks import as_array, describe
from trajcli.errors import Fault, InputError, UsageError
from trajcli.modes import MODES, PARTS
from trajcli.modes.mode import promise
from trajcli.trajectory import Trajectory

Array = Any
"""numpy.ndarray or torch.Tensor."""
Floats: TypeAlias = npt.NDArray[np.float64]

_MOST_ROWS = 2.0**60
"""More than any disk holds."""


def sample(trajectory: Trajectory, times: Array) -> Trajectory:
    """The trajectory at any times between its first row and its last, exactly.

    times: seconds on the axis of ``trajectory.time``, in any order: [N] for all trajectories, or
    [B, N]. Returns outputs [B, N, D] of the trajectory's library, device and dtype, computed in
    float64 and rounded once; differentiable with respect to the rows and, for torch, the times.
    A time that is a row's, up to the rounding of sums of steps, gives that row.

    Defined for what is a known polynomial between two rows: jerk, acceleration and velocity (and
    positions by clique) under ``zoh`` or ``foh``, and ``bspline``. Under zoh the action is held
    back from its own row to the row before, and derivatives above it are zero; under foh it is
    linear, and so the derivative above it constant.

    Raises UsageError for another mode or scheme, or outputs that were not written but are needed
    (those from the wanted one up to the action's; of bspline all), InputError for times that are
    NaN or outside the trajectory.
    """
    outputs = trajectory.outputs()
    order = polynomial_order(trajectory.mode, trajectory.options, "trajectory")
    for name in outputs:
        lowest = min(PARTS.index(name), 2 if trajectory.options.get("degree") == 5 else order)
        missing = set(PARTS[lowest : order + 1]) - outputs.keys()
        if missing:
            expected = f"{', '.join(sorted(missing, key=PARTS.index))} as well"
            hint = "write= (--write) of integrate names the outputs"
            raise UsageError(
                Fault(
                    f"{name} between rows takes outputs above it", "trajectory", expected, hint=hint
                )
            )
    like = next(iter(outputs.values()))
    if is_torch(like):
        times = to_torch(as_array(times, "times"), str(like.device))
    else:
        times = to_numpy(as_array(times, "times"))
    knots, at = float64(trajectory.time), float64(times)
    knots, at = (x[None] if x.ndim == 1 else x for x in (knots, at))
    _check_shape(at, times, like.shape[0])
    if readable(at) and readable(knots):  # not within torch.func, nor while a graph is captured
        _check_within(to_numpy(at), to_numpy(knots))
    at = _on_rows(at, knots)
    rows = [None if x is None else float64(x) for x in trajectory]
    values = (
        _spline(rows, knots, at, int(trajectory.options["degree"]))
        if trajectory.mode == "bspline"
        else _held(rows, knots, at, order, trajectory.options["scheme"])
    )
    p, v, a, j = (
        None if row is None else _rounded(value, row)
        for value, row in zip(values, trajectory, strict=True)
    )
    return Trajectory(p, v, a, j, times)


def polynomial_order(mode: str, options: Mapping[str, Any], where: str) -> int:
    """The highest order that those between rows are computed from.

    Raises UsageError for a mode and options whose rows no known polynomial joins.
    """
    if mode == "bspline":
        return 3
    scheme = options.get("scheme")
    if scheme in ("zoh", "foh"):
        return MODES[mode].derivatives_of
    about = f"mode {mode}" if mode else "a trajectory of no mode"
    raise UsageError(
        Fault(
            "no polynomial is known between these rows",
            where,
            "scheme zoh or foh, or mode bspline",
            f"{about}, scheme {scheme}" if scheme else about,
            "resample interpolates any rows",
        )
    )


def count_at(rate: float, duration: float) -> int:
    """How many rows there are at ``rate``, in Hz, from the first on; one at the end counts."""
    return math.floor(min(duration * rate * (1 + 1e-12) + 1e-9, _MOST_ROWS)) + 1


def outside(times: Floats, knots: Floats) -> tuple[int, int] | None:
    """The first trajectory and entry of times [b or 1, N] that are not within knots [b or 1, T]."""
    slack = _rounding(knots)
    wrong = ~((times >= knots[:, :1] - slack) & (times <= knots[:, -1:] + slack))
    if not wrong.any():
        return None
    trajectory, entry = np.argwhere(wrong)[0].tolist()
    return trajectory, entry


def _check_shape(at: Array, times: Array, batch: int) -> None:
    if at.ndim != 2 or at.shape[0] not in (1, batch):
        expected = f"[N] or [{batch}, N]"
        raise InputError(Fault("wrong shape of times", "times", expected, describe(times.shape)))


def _check_within(times: Floats, knots: Floats) -> None:
    place = outside(times, knots)
    if place is None:
        return
    trajectory, entry = place
    begin, end = knots[min(trajectory, len(knots) - 1), [0, -1]].tolist()
    several = len(times) > 1 or len(knots) > 1
    raise InputError(
        Fault(
            "a time that is not within the trajectory",
            f"times, trajectory {trajectory}, entry {entry}"
            if several
            else f"times, entry {entry}",
            f"{begin!r} to {end!r} s",
            repr(float(times[min(trajectory, len(times) - 1), entry])),
        )
    )


def _rounding(knots: Array) -> Array:
    """How far sums of so many steps may be off, [b, 1]."""
    return promise(knots.shape[1] - 1) * abs(knots[:, -1:])


def _on_rows(at: Array, knots: Array) -> Array:
    """The times; one that is a row's up to the rounding of sums of steps as that row's own."""
    after = _search(knots, at, right=False)
    last = knots.shape[1] - 1
    for index in (after - 1 * (after > 0), after - 1 * (after > last)):
        off = at - _take(knots, index)
        near = abs(off) <= _rounding(knots)
        at = at - (off.detach().where(near, 0.0) if is_torch(off) else np.where(near, off, 0.0))
    return at


def _held(rows: list[Array], knots: Array, at: Array, order: int, scheme: str) -> list[Array]:
    """Taylor polynomials around the row that ends the step, which hold in it alone.

    The action is that row's, so that a time on it gives it as it is.
    """
    index = _search(knots, at, right=False)
    tau = (at - _take(knots, index))[..., None]
    known: list[Array] = [x if x is None else _take(x, index) for x in rows[: order + 1]]
    if scheme == "foh":  # the first row has no step before it, and takes the one after
        known.append(_slope(rows[order], knots, index - 1 * (index > 0)))
    return _derivatives(known, tau)


def _spline(rows: list[Array], knots: Array, at: Array, degree: int) -> list[Array]:
    """Taylor polynomials around the row before, whose segment the step belongs to."""
    index = _search(knots, at, right=True) - 1
    tau = (at - _take(knots, index))[..., None]
    known: list[Array] = [x if x is None else _take(x, index) for x in rows]
    if degree > 3:
        known.append(_slope(rows[3], knots, index))
    if degree == 5:
        # a₁ = a₀ + j₀h + s·h²/2 + c·h³/6 and j₁ = j₀ + s·h + c·h²/2, of which the slope is known
        step = _step(knots, index)
        mean = (_slope(rows[2], knots, index) - known[3]) / step
        crackle = 6.0 * (known[4] - 2.0 * mean) / step
        known = [*known[:4], known[4] - 0.5 * step * crackle, crackle]
    return _derivatives(known, tau)


def _step(knots: Array, index: Array) -> Array:
    """The step that begins at a row, [b, N, 1]; one after the last row, where nothing changes."""
    last = index == knots.shape[1] - 1
    return (_take(knots, index + 1 * ~last) - _take(knots, index) + 1.0 * last)[..., None]


def _slope(rows: Array, knots: Array, index: Array) -> Array:
    """The mean derivative over the step that begins at a row."""
    after = index + 1 * (index < knots.shape[1] - 1)
    return (_take(rows, after) - _take(rows, index)) / _step(knots, index)


def _derivatives(known: list[Array], tau: Array) -> list[Array]:
    """Orders 0 to 3 of Σ_m known_m·τᵐ/m!; known orders before the first wanted may be None."""
    values: list[Array] = []
    for m in range(4):
        if m < len(known) and known[m] is None:
            values.append(None)
            continue
        total: Any = known[-1] if m < len(known) else known[-1] * 0.0
        for r in reversed(range(len(known) - m - 1)):  # Horner
            total = known[m + r] + total * tau / (r + 1)
        values.append(total)
    return values


def _search(knots: Array, at: Array, *, right: bool) -> Array:
    """[b, N]: how many knots lie before each time (``right``: or at it)."""
    if is_torch(at):
        torch = sys.modules["torch"]
        batch = max(len(knots), len(at))
        knots, at = (x.detach().expand(batch, -1).contiguous() for x in (knots, at))
        return torch.searchsorted(knots, at, right=right)
    side: Any = "right" if right else "left"
    if len(knots) == 1:
        return np.searchsorted(knots[0], at, side)
    stamps = np.broadcast_to(at, (len(knots), at.shape[1]))
    return np.stack([np.searchsorted(k, t, side) for k, t in zip(knots, stamps, strict=True)])


def _take(values: Array, index: Array) -> Array:
    """values [b, T] or [b, T, D] at rows [b, N]."""
    batch = max(len(values), len(index))
    if is_torch(values):
        values = values.expand(batch, *values.shape[1:])
        index = index.expand(batch, -1)
        if values.ndim == 3:
            index = index[..., None].expand(-1, -1, values.shape[2])
        return values.gather(1, index)
    values = np.broadcast_to(values, (batch, *values.shape[1:]))
    index = index[..., None] if values.ndim == 3 else index
    return np.take_along_axis(values, index, 1)


def _rounded(values: Array, like: Array) -> Array:
    return values.to(like.dtype) if is_torch(values) else values.astype(like.dtype)
