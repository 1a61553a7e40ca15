"""Measures how one trajectory follows another: delay, offset and error of each dof."""

from __future__ import annotations

import numpy as np

from trajcli.kernels.program import Floats, NumpyArray

# The longest delay that is looked for: one second, and a fifth of the rows.
_LONGEST, _FRACTION = 1.0, 5
# A delay and an offset explain a motion of which no more than this share (squared) remains, and
# half of what other delays leave: a ramp is as like itself at any delay.
_REMAINDER, _OTHERS = 0.25, 0.5
# Of delays that explain about as much, as those a period apart do, the shortest is meant.
_SIMILAR = 0.02
# A remainder below this share of the variance is rounding.
_EQUAL = 1e-12
VALUES = ("delay", "offset", "rms", "largest", "time", "missing")


def track(a: NumpyArray, b: NumpyArray, times: Floats) -> Floats:
    """Measures how b follows a, both [n, T, D] at ``times`` [1 or n, T]; returns [n, 6, D].

    ``VALUES`` are the delay of b, NaN where none is clear; the mean and the root mean square of
    b − a after it; the largest |b − a| and its time; and how many rows have no finite b − a.
    """
    a, b = a.astype(np.float64), b.astype(np.float64)
    step = float(np.median(np.diff(times))) if a.shape[1] > 1 else 1.0
    delay = _delays(a.copy(), b.copy(), step)
    result = np.full((len(a), len(VALUES), a.shape[2]), np.nan)
    for k, dof in np.ndindex(len(a), a.shape[2]):
        stamps = times[k % len(times)]
        # Rows of b are compared with a where it was one delay earlier, if it was recorded then.
        earlier = stamps - np.nan_to_num(delay[k, dof])
        recorded = (earlier >= stamps[0] - 1e-6 * step) & (earlier <= stamps[-1] + 1e-6 * step)
        gap = b[k, :, dof] - np.interp(earlier, stamps, a[k, :, dof])
        known = recorded & np.isfinite(gap)
        result[k, 0, dof], result[k, -1, dof] = delay[k, dof], (recorded & ~known).sum()
        if known.any():
            offset, rms = gap[known].mean(), np.sqrt((gap[known] ** 2).mean())
            worst = np.where(known, np.abs(gap), -1.0).argmax()
            result[k, 1:-1, dof] = offset, rms, abs(gap[worst]), stamps[worst]
    return result


def _delays(a: Floats, b: Floats, step: float) -> Floats:
    """Computes by how many seconds b [n, T, D] is late [n, D]; both are written to."""
    # Least squares over rows of equal steps; NaN where that explains little.
    rows = a.shape[1]
    lags = min(max(round(min(_LONGEST / step, rows)), 1), rows // _FRACTION)
    if lags < 1:
        return np.full((len(a), a.shape[2]), np.nan)
    for x in (a, b):
        known = np.isfinite(x)
        x[~known] = 0.0
        x -= (x.sum(1) / np.fmax(known.sum(1), 1))[:, None] * known
    # The same rows of b at every lag, so that what remains can be compared. The sums over rows of
    # a·b at all lags at once are a correlation, which the Fourier transform computes.
    b = b[:, lags : rows - lags]
    count, size = b.shape[1], 2 ** int(np.ceil(np.log2(rows)))
    product = np.fft.irfft(
        np.fft.rfft(a, size, axis=1) * np.fft.rfft(b, size, axis=1).conj(), size, axis=1
    )[:, : 2 * lags + 1]

    def sums(x: Floats) -> Floats:
        total = np.cumsum(np.pad(x, ((0, 0), (1, 0), (0, 0))), 1)
        window: Floats = total[:, count:] - total[:, : 2 * lags + 1]
        return window

    # What remains at a lag, with the offset that fits best there, is the variance of b − a:
    # mean (b − a)² less the square of mean (b − a). Reversed, lags go from −L to L.
    square = (b**2).sum(1, keepdims=True) - 2.0 * product + sums(a**2)
    rest = square / count - ((b.sum(1, keepdims=True) - sums(a)) / count) ** 2
    rest = np.maximum(rest[:, ::-1], 0.0)
    variance, least, most = b.var(1), rest.min(1, keepdims=True), rest.max(1, keepdims=True)
    around = np.pad(rest, ((0, 0), (1, 1), (0, 0)), constant_values=np.inf)
    dips = (rest <= around[:, :-2]) & (rest <= around[:, 2:])
    dips &= rest <= least + _SIMILAR * (most - least)
    best = np.where(dips, np.abs(np.arange(-lags, lags + 1))[:, None], rows).argmin(1)[:, None]
    # The vertex of the parabola through the dip and its neighbours refines it to a part of a row.
    low, middle, high = (np.take_along_axis(around, best + k, 1)[:, 0] for k in range(3))
    with np.errstate(all="ignore"):
        bend = low - 2.0 * middle + high
        part = np.where(np.isfinite(bend) & (bend > 0.0), 0.5 * (low - high) / bend, 0.0)
    others = np.median(rest, 1)
    clear = (middle < _REMAINDER * variance) & (middle < _OTHERS * others)
    clear &= others > _EQUAL * variance
    delay = (best[:, 0] - lags + np.clip(part, -0.5, 0.5)) * step
    delay = np.where(rest[:, lags] <= _EQUAL * variance, 0.0, delay)
    return np.where(clear, delay, np.nan)
