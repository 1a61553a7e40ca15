"""Fits the delay between velocities and the derivatives of positions, for check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trajcli.kernels.program import Floats, NumpyArray

# The most rows by which a signal may be late or early.
_LAGS = 16
# Correlations that differ by less are equally good: about what noise and interpolation leave.
_SIMILAR = 0.008
LARGEST_ERROR = 0.1
"""Encoders and filters make velocities differ by some per cent from differences of positions."""
_UNITS = {
    180 / np.pi: "degrees for radians?",
    np.pi / 180: "radians for degrees?",
    1000.0: "mm for m?",
    0.001: "m for mm?",
    -1.0: "the sign is turned",
}


class VelocityFit:
    """Fits velocities v_t by factor · d_{t − delay}, d being the derivatives of the positions.

    The delay is the lag at which both correlate best, refined to a part of a row; among lags that
    correlate as well, as those of a sine half a period apart do, one of a positive factor, and the
    shortest.
    """

    def __init__(self, dofs: int, rows: int) -> None:
        """Prepares for delays of up to a fifth of the ``rows`` of a typical trajectory."""
        self._lags, self._steps, self._seconds = max(1, min(_LAGS, rows // 5)), 0, 0.0
        # Σ v², Σ d² and Σ v·d: without a lag over all rows, for the error; lag by lag over the
        # inner rows, for the fit.
        self._all_rows = np.zeros((3, dofs))
        self._sums = np.zeros((3, 2 * self._lags + 1, dofs))

    def add_block(self, v: NumpyArray, d: NumpyArray, times: Floats) -> None:
        good = np.isfinite(v) & np.isfinite(d)
        v, d = np.where(good, v, 0.0), np.where(good, d, 0.0)
        self._all_rows += _products(v, d)
        self._steps += len(times) * (v.shape[1] - 1)
        self._seconds += float((times[:, -1] - times[:, 0]).sum())
        first, last = self._lags, v.shape[1] - self._lags
        for lag in range(-first, first + 1) if last > first + 1 else ():
            # The same rows of v at every lag, so that the fits can be compared.
            self._sums[:, lag + first] += _products(
                v[:, first:last], d[:, first - lag : last - lag]
            )

    def facts(self) -> dict[str, Any]:
        """Computes the fit, for JSON.

        per_dof: the RMS of v − d as a share of that of d [D], without a delay. factors, delays:
        those that fit best [D], delays in seconds. residuals: the shares of v that these leave
        unexplained [D]. rate: as the times have it and, where all dofs agree, as it fits.
        """
        (v2, d2, vd), sums = self._all_rows, self._sums
        # Σ(v − d)² = Σv² − 2Σvd + Σd²
        off = np.sqrt(np.maximum(v2 - 2 * vd + d2, 0.0))
        with np.errstate(invalid="ignore", divide="ignore"):
            errors = np.where(off > 0, off / np.sqrt(d2), 0.0)
            correlation = sums[2] / np.sqrt(sums[0] * sums[1])
            peaks, lags = _wave_tops(np.nan_to_num(correlation, posinf=0.0, neginf=0.0))
            similar = np.abs(peaks) >= np.abs(peaks).max(0) - _SIMILAR
            # A turned sign is taken only where no other lag fits as well.
            order = np.abs(lags) + len(peaks) * (peaks < 0)
            best = np.where(similar, order, np.inf).argmin(0), np.arange(peaks.shape[1])
            peak, delay = np.clip(peaks[best], -1.0, 1.0), lags[best]
            # The factor of least squares, Σvd / Σd², is the correlation times √(Σv² / Σd²); the
            # share of v that remains is √(1 − correlation²).
            v2, d2, _ = sums[:, best[0], best[1]]
            moves = (v2 > 0) & (d2 > 0)
            factors = np.where(moves, peak * np.sqrt(v2 / d2), 1.0)
        rest = np.sqrt(np.maximum(1.0 - peak**2, 0.0))
        residuals = np.where(moves, rest, (v2 > 0).astype(np.float64))
        rate = self._steps / self._seconds if self._seconds > 0 else None
        fitted, factor = None, float(np.median(factors[moves])) if moves.any() else 1.0
        # One factor for all dofs that is no ratio of units means that the rate is another one.
        agree = np.abs(factors[moves] - factor) <= LARGEST_ERROR * factor
        if rate and agree.all() and (residuals <= LARGEST_ERROR).all() and not _unit_hint(factor):
            fitted = factor * rate
        delays = np.where(moves, delay, 0.0) / (fitted or rate or np.inf)
        arrays = {"per_dof": errors, "factors": factors, "delays": delays, "residuals": residuals}
        facts: dict[str, Any] = {name: values.tolist() for name, values in arrays.items()}
        return facts | {"rate": {"stated": rate, "fitted": fitted}}


def _wave_tops(values: Floats) -> tuple[Floats, Floats]:
    """Fits a wave A cos(ω(x − x₀)) through each value of −L to L lags [2L + 1, D] and its two
    neighbours; returns the tops A and their lags x₀, zero where a neighbour is larger."""
    lags = np.arange(len(values), dtype=np.float64)[:, None] - len(values) // 2
    low, high = np.pad(values, ((1, 1), (0, 0)))[:-2], np.pad(values, ((1, 1), (0, 0)))[2:]
    with np.errstate(invalid="ignore", divide="ignore"):
        # Values y₋, y, y₊ of a wave have (y₋ + y₊) / 2y = cos ω, (y₊ − y₋) / 2y sin ω = tan ωx₀.
        angle = np.arccos(np.clip(0.5 * (low + high) / values, 0.0, 1.0 - 1e-9))
        slope = 0.5 * (high - low) / np.sin(angle) / values
    # No wave is known at the outermost lags.
    slope[[0, -1]] = 0.0
    extreme = (values != 0.0) & (np.abs(values) >= np.maximum(np.abs(low), np.abs(high)))
    tops = np.where(extreme, [values * np.sqrt(1.0 + slope**2), lags + np.arctan(slope) / angle], 0)
    return tops[0], tops[1]


def fit_text(facts: Mapping[str, Any], worst: int) -> str:
    factor, delay, residual = (facts[n][worst] for n in ("factors", "delays", "residuals"))
    rate, words = facts["rate"], []
    if meaning := _unit_hint(factor):
        words.append(f"{factor:.4g} times as large: {meaning}")
    elif rate["fitted"] and abs(factor - 1) > LARGEST_ERROR / 2:
        words.append(f"fits {rate['fitted']:.3g} rows a second, not {rate['stated']:.3g}")
    if residual > LARGEST_ERROR:
        return "; ".join([*words, f"no rate and delay fits: {100 * residual:.3g} % remain"])
    if abs(delay) * (rate["fitted"] or rate["stated"] or 0.0) > 0.25:
        words.append(f"{1000 * abs(delay):.3g} ms {'late' if delay > 0 else 'early'}")
    return "; ".join([*words, f"{100 * residual:.2g} % remain"])


def _unit_hint(factor: float) -> str:
    """Tells which mistake in units a factor suggests; "" for others."""
    hints = (text for known, text in _UNITS.items() if abs(factor / known - 1) < LARGEST_ERROR)
    return next(hints, "")


def _products(v: NumpyArray, d: NumpyArray) -> Floats:
    """Sums v², d² and v·d over trajectories and rows, [3, D]."""
    return np.stack([np.einsum("btd,btd->d", x, y) for x, y in ((v, v), (d, d), (v, d))])
