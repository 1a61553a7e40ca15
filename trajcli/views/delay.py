"""How late one signal is behind another, to a fraction of a row, and which offset it has."""

from __future__ import annotations

from typing import Any

import numpy as np

from trajcli.files.trajectories import Array, Floats

# The most rows by which a signal may be late or early.
_LAGS = 16
# A delay or an offset explains a difference where less than this share of it (RMS) remains.
_CLEARLY = 0.5
# More dofs than that are summed up by the least and the most.
_LISTED = 8


def most_lags(rows: int) -> int:
    """Returns the most rows to look for a delay in: a fifth of a trajectory, at most 16."""
    return max(1, min(_LAGS, rows // 5))


def top(scores: Floats) -> tuple[Array, Floats]:
    """Returns the row [D] of the highest score of each column, and its place between rows.

    Parameters:
        scores: [lags, D], at least three lags.

    Returns:
        The rows ``centre``, which have neighbours on both sides, and the ``place`` [D] of the top
        of the parabola through these three, counted from ``centre``.
    """
    best = scores.argmax(0)
    centre = np.clip(best, 1, len(scores) - 2)
    low, middle, high = around(scores, centre)
    bend = np.minimum(low - 2 * middle + high, -1e-300)
    place = np.where(best == centre, np.clip(0.5 * (low - high) / bend, -0.5, 0.5), 0.0)
    return centre, place + (best - centre)  # at the outermost lag, that lag


def around(values: Floats, centre: Array) -> Floats:
    """Returns the values [3, D] at ``centre`` [D] and beside it."""
    near: Floats = values[centre + np.array([[-1], [0], [1]]), np.arange(len(centre))]
    return near


def parabola(values: Floats, place: Floats) -> Floats:
    """Returns the parabola through values [3, D] at −1, 0 and 1, at ``place`` [D]."""
    low, middle, high = values
    value: Floats = middle + 0.5 * place * (high - low) + 0.5 * place**2 * (high - 2 * middle + low)
    return value


class DelayFit:
    """Fits b_t by a_{t − delay} + offset, dof by dof, over the inner rows of all trajectories."""

    def __init__(self, dofs: int, rows: int) -> None:
        """Prepares for trajectories of so many rows."""
        self._lags = most_lags(rows)
        self._count = 0
        # Σ(b − a) and Σ(b − a)², lag by lag
        self._sums = np.zeros((2, 2 * self._lags + 1, dofs))

    def add(self, a: Floats, b: Floats) -> None:
        """Adds trajectories [B, T, D]; those with values that are not finite are left out."""
        good = np.isfinite(a).all((1, 2)) & np.isfinite(b).all((1, 2))
        a, b = a[good], b[good]
        begin, end = self._lags, a.shape[1] - self._lags
        if end <= begin:
            return
        self._count += len(a) * (end - begin)
        for k, lag in enumerate(range(-begin, begin + 1)):
            # the same rows of b at every lag, so that what remains can be compared
            gap = b[:, begin:end] - a[:, begin - lag : end - lag]
            self._sums[0, k] += gap.sum((0, 1))
            self._sums[1, k] += np.einsum("btd,btd->d", gap, gap)

    def facts(self, step: float) -> dict[str, Any] | None:
        """Returns the fit; None where delay and offset explain less than half of the difference.

        Parameters:
            step: seconds between rows.

        Returns:
            rows, seconds: the delays of b [D]; 0 where a delay explains nothing.
            offsets: the means of b − a after the delay [D].
            remaining, rms: root mean square of all dofs after and before both.
        """
        if not self._count:
            return None
        means, squares = self._sums / self._count
        # what remains at each lag after its offset
        left = np.maximum(squares - means**2, 0.0)
        centre, place = top(-left)
        late = np.maximum(parabola(around(left, centre), place), 0.0)
        undelayed = left[self._lags]
        # differences of rounding have no delay
        delayed = late < _CLEARLY**2 * np.where(
            undelayed > 1e-12 * squares[self._lags], undelayed, 0.0
        )
        offsets = np.where(delayed, parabola(around(means, centre), place), means[self._lags])
        remaining = float(np.sqrt(np.where(delayed, late, undelayed).mean()))
        rms = float(np.sqrt(squares[self._lags].mean()))
        if not remaining < _CLEARLY * rms:
            return None
        rows = np.where(delayed, centre + place - self._lags, 0.0)
        return {
            "rows": rows.tolist(),
            "seconds": (rows * step).tolist(),
            "offsets": offsets.tolist(),
            "remaining": remaining,
            "rms": rms,
        }


def delay_text(facts: dict[str, Any]) -> str:
    """Returns in words by which delay and offset b differs from a, and what remains."""
    rows, seconds, offsets = (np.asarray(facts[n]) for n in ("rows", "seconds", "offsets"))
    words = []
    if rows.any():
        moved = rows != 0
        alike = np.ptp(rows[moved]) < 0.25
        middle = float(np.median(rows[moved]))
        time = float(np.median(seconds[moved]))
        if alike:
            late = "late" if middle > 0 else "early"
            words.append(f"{abs(middle):.3g} rows ({abs(time):.3g} s) {late}")
        else:
            words.append(f"late by {_listed(rows)} rows ({_listed(seconds)} s)")
        if alike and not moved.all():
            words[-1] += f" in dofs {', '.join(map(str, np.flatnonzero(moved)[:_LISTED]))}"
    if np.abs(offsets).max() > 0.1 * facts["rms"]:
        # digits far below the difference say nothing
        shown = np.where(np.abs(offsets) < 1e-3 * facts["rms"], 0.0, offsets)
        words.append(f"offset by {_listed(shown)}")
    remain = f"{facts['remaining']:.3g} of {facts['rms']:.3g} (RMS) remain"
    return f"b is {' and '.join(words)}; {remain}"


def _listed(values: Floats) -> str:
    """Returns a value for each dof, or the least and the most of many."""
    if len(values) > _LISTED:
        return f"{values.min():.3g} to {values.max():.3g}"
    return ", ".join(f"{value:.3g}" for value in values)
