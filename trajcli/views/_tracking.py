"""Measures how one trajectory follows another: the delay, the offset and the error of each dof."""

from __future__ import annotations

import numpy as np

from trajcli.files.recording import Array
from trajcli.kernels.program import Floats

# The longest delay that is looked for: seconds, and as a share of the rows.
_LONGEST, _SHARE = 1.0, 5
# A delay and an offset explain a motion of which no more than this share (squared) remains, and
# half of what other delays leave: a ramp is as like itself at any delay.
_CLEARLY, _OTHERS = 0.25, 0.5
# Of delays that explain about as much, as those a period apart do, the shortest is meant.
_AS_WELL = 0.02
_EQUAL = 1e-12
VALUES = ("delay", "offset", "rms", "largest", "time", "missing")


def track(a: Array, b: Array, times: Floats) -> Floats:
    """Returns how b follows a, both [n, T, D] at ``times`` [1 or n, T], as [n, 6, D]: ``VALUES``.

    The delay of b, NaN where none is clear; the mean of b − a after it, and its root mean square;
    the largest, and when that is, NaN without any; and how many rows have no finite b − a.
    """
    a, b = a.astype(np.float64), b.astype(np.float64)
    step = float(np.median(np.diff(times))) if a.shape[1] > 1 else 1.0
    delay = _delays(a.copy(), b.copy(), step)
    result = np.full((len(a), len(VALUES), a.shape[2]), np.nan)
    for k, dof in np.ndindex(len(a), a.shape[2]):
        own = times[k % len(times)]
        at = own - np.nan_to_num(delay[k, dof])
        inside = (at >= own[0] - 1e-6 * step) & (at <= own[-1] + 1e-6 * step)
        gap = b[k, :, dof] - np.interp(at, own, a[k, :, dof])
        known = inside & np.isfinite(gap)
        result[k, 0, dof], result[k, -1, dof] = delay[k, dof], (inside & ~known).sum()
        if known.any():
            offset, rms = gap[known].mean(), np.sqrt((gap[known] ** 2).mean())
            worst = np.where(known, np.abs(gap), -1.0).argmax()
            result[k, 1:-1, dof] = offset, rms, abs(gap[worst]), own[worst]
    return result


def _delays(a: Floats, b: Floats, step: float) -> Floats:
    """Returns by how many seconds b [n, T, D] is late [n, D], by least squares over rows of equal
    steps; NaN where that explains little. Both are written to."""
    rows = a.shape[1]
    lags = min(max(round(min(_LONGEST / step, rows)), 1), rows // _SHARE)
    if lags < 1:
        return np.full((len(a), a.shape[2]), np.nan)
    for x in (a, b):
        known = np.isfinite(x)
        x[~known] = 0.0
        x -= (x.sum(1) / np.fmax(known.sum(1), 1))[:, None] * known
    # the same rows of b at every lag, so that what remains can be compared
    b = b[:, lags : rows - lags]
    count, size = b.shape[1], 2 ** int(np.ceil(np.log2(rows)))
    product = np.fft.irfft(
        np.fft.rfft(a, size, axis=1) * np.fft.rfft(b, size, axis=1).conj(), size, axis=1
    )[:, : 2 * lags + 1]

    def sums(x: Floats) -> Floats:
        total = np.cumsum(np.pad(x, ((0, 0), (1, 0), (0, 0))), 1)
        part: Floats = total[:, count:] - total[:, : 2 * lags + 1]
        return part

    square = (b**2).sum(1, keepdims=True) - 2.0 * product + sums(a**2)
    left = square / count - ((b.sum(1, keepdims=True) - sums(a)) / count) ** 2
    left = np.maximum(left[:, ::-1], 0.0)  # by lags −L to L
    spread, least = b.var(1), left.min(1, keepdims=True)
    most = left.max(1, keepdims=True)
    around = np.pad(left, ((0, 0), (1, 1), (0, 0)), constant_values=np.inf)
    dips = (left <= around[:, :-2]) & (left <= around[:, 2:])
    dips &= left <= least + _AS_WELL * (most - least)
    far = np.abs(np.arange(-lags, lags + 1))[:, None]
    best = np.where(dips, far, rows).argmin(1)[:, None]
    low, middle, high = (np.take_along_axis(around, best + k, 1)[:, 0] for k in range(3))
    with np.errstate(all="ignore"):
        bend = low - 2.0 * middle + high
        part = np.where(np.isfinite(bend) & (bend > 0.0), 0.5 * (low - high) / bend, 0.0)
    others = np.median(left, 1)
    clear = (middle < _CLEARLY * spread) & (middle < _OTHERS * others) & (others > _EQUAL * spread)
    late = (best[:, 0] - lags + np.clip(part, -0.5, 0.5)) * step
    late = np.where(left[:, lags] <= _EQUAL * spread, 0.0, late)
    return np.where(clear, late, np.nan)
