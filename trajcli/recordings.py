"""What recorded data need before and after they are differenced: NumPy in, NumPy out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from trajcli.errors import Fault, UsageError

Array = Any
"""numpy.ndarray"""

TAPS = (0.06136, 0.24477, 0.38774, 0.24477, 0.06136)
"""The five taps that cuRobo smooths with; a Gaussian of about one row."""
TURN = 2.0 * np.pi


def smooth(values: Array) -> Array:
    """[..., T, D] smoothed along T by the five :data:`TAPS`; in the values' own type.

    Where the window reaches over an end, the taps within are divided by their sum: a constant
    stays what it is up to the last row.
    """
    rows = values.shape[-2]
    wide = values.astype(np.float64)
    total, weight = np.zeros_like(wide), np.zeros(rows)
    for tap, shift in zip(TAPS, range(-2, 3), strict=True):
        begin, end = max(0, -shift), min(rows, rows - shift)  # rows whose neighbour is there
        if begin < end:
            total[..., begin:end, :] += tap * wide[..., begin + shift : end + shift, :]
            weight[begin:end] += tap
    found: Array = (total / weight[:, None]).astype(values.dtype)
    return found


class Unwrapped:
    """Angles [T, D] made continuous, in pieces that follow each other.

    A step of more than half a turn is one of less, the other way round, as in numpy.unwrap.
    """

    def __init__(self, dofs: Sequence[int]) -> None:
        self._dofs = list(dofs)
        self._last: Array = None
        self._turns: Array = None

    def __call__(self, rows: Array) -> Array:
        """The next rows [n, D] as float64."""
        wide = rows.astype(np.float64)
        if not len(wide):
            return wide
        angles = wide[:, self._dofs]
        first = angles[:1] if self._last is None else self._last
        steps = np.diff(np.concatenate([first, angles]), axis=0)
        with np.errstate(invalid="ignore"):  # NaN stays NaN, and is reported where it is
            turns = -np.ceil(steps / TURN - 0.5)  # half a turn is not a wrap
        turns = np.cumsum(np.where(np.isfinite(turns), turns, 0.0), 0)
        turns += 0.0 if self._turns is None else self._turns
        self._last, self._turns = angles[-1:], turns[-1:]
        wide[:, self._dofs] = angles + TURN * turns
        return wide


def unwrap(values: Array, dofs: Sequence[int]) -> Array:
    """[B, T, D] or [T, D] with the angles of some dofs made continuous, as float64."""
    count = values.shape[-1]
    bad = [d for d in dofs if not 0 <= d < count]
    if bad:
        raise UsageError(
            Fault("no such dof", "dofs", f"0 to {count - 1}", ", ".join(map(str, bad)))
        )
    if values.ndim == 2:
        return Unwrapped(dofs)(values)
    return np.stack([Unwrapped(dofs)(rows) for rows in values])


def pieces(times: Array, longest: float) -> Iterator[tuple[int, int]]:
    """Rows begin..end of time stamps [T] between gaps of more than ``longest`` seconds."""
    gaps = np.diff(times.astype(np.float64))
    edges = [0, *(np.flatnonzero(gaps > longest) + 1).tolist(), len(times)]
    yield from itertools.pairwise(edges)
