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


def unwrap(values: Array, dofs: Sequence[int]) -> Array:
    """[B, T, D] or [T, D] with the angles of some dofs made continuous, as float64.

    A step of more than half a turn is one of less, the other way round, as in numpy.unwrap. What
    is not finite stays where it is, and the rows behind it go on from the last turn.
    """
    count = values.shape[-1]
    bad = [d for d in dofs if not 0 <= d < count]
    if bad:
        raise UsageError(
            Fault("no such dof", "dofs", f"0 to {count - 1}", ", ".join(map(str, bad)))
        )
    wide = values.astype(np.float64)
    angles = wide[..., list(dofs)]
    with np.errstate(invalid="ignore"):
        turns = -np.ceil(np.diff(angles, axis=-2) / TURN - 0.5)  # half a turn is not a wrap
    turns = np.cumsum(np.where(np.isfinite(turns), turns, 0.0), -2)
    wide[..., 1:, list(dofs)] += TURN * turns
    return wide


def pieces(times: Array, longest: float) -> Iterator[tuple[int, int]]:
    """Rows begin..end of time stamps [T] between gaps of more than ``longest`` seconds."""
    gaps = np.diff(times.astype(np.float64))
    edges = [0, *(np.flatnonzero(gaps > longest) + 1).tolist(), len(times)]
    yield from itertools.pairwise(edges)
