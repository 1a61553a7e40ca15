"""Local polynomials: smooth derivatives of noisy recordings."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from trajcli.errors import Fault, InputError
from trajcli.kernels.fit import fit_weights
from trajcli.kernels.program import Band, Floats, Windows
from trajcli.modes.mode import NO_POINTS, Case, Mode, no_goal
from trajcli.modes.stencils import without_rounding

MOST_ROWS = 999
_ROUNDING = 1e-5
"""By how much of half a window stamps may lie beyond it: they are rounded."""


@dataclass(frozen=True)
class SavitzkyGolay(Mode):
    """The actions are recorded positions; rows are those of the polynomials that fit them best.

    Each row has the value and the derivatives, at its time, of the polynomial of ``degree`` that
    fits the ``window`` rows around it in the sense of least squares, on the actual times. Near an
    end these are the nearest full window. A window in seconds, like "0.3s", has the rows within
    half of it, see :func:`rows_within`. A. Savitzky and M. Golay, "Smoothing and
    differentiation of data by simplified least squares procedures", Anal. Chem. 36 (1964).
    """

    name = "savgol"
    degrees = (2, 3, 4, 5)

    window: int | str = "0.3s"
    degree: int = 4

    @property
    def copies_actions(self) -> bool:
        return False

    def faults(self, case: Case) -> list[Fault]:
        faults = no_goal(self.name, case)
        if not case.recorded:
            what, hint = "mode savgol differentiates recordings", "trajcli differentiate"
            faults.append(
                Fault(what, where="start", expected="none", found="a start state", hint=hint)
            )
        if isinstance(self.window, str):
            if case.horizon <= self.degree:
                what, expected = "too few rows for the degree", f"more than {self.degree} rows"
                hint = "method backward differences recordings of any length"
                faults.append(
                    Fault(
                        what, where="actions", expected=expected, found=str(case.horizon), hint=hint
                    )
                )
        elif self.window % 2 == 0 or not self.degree < self.window <= MOST_ROWS:
            expected = f"an odd number of rows, over the degree ({self.degree}), up to {MOST_ROWS}"
            faults.append(
                Fault("no such window", where="window", expected=expected, found=str(self.window))
            )
        elif self.window > case.horizon:
            faults.append(
                Fault(
                    "a window that is longer than the trajectory",
                    where="window",
                    expected=f"at most {case.horizon} rows",
                    found=str(self.window),
                    hint="a window in seconds, like 0.3s, takes the rows there are",
                )
            )
        return faults

    def rows(self, horizon: int, recorded: bool) -> int:
        return horizon

    def program(self, horizon: int, recorded: bool, uneven: bool) -> Band:
        window = int(self.window)
        return Band(
            used=horizon,
            steps=max(horizon - 1, 1),
            head=NO_POINTS,
            tail=NO_POINTS,
            held=0,
            windows=Windows(horizon, horizon - window, shift=window // 2),
            width=window,
            base=tuple(range(window)),
            table=None if uneven else fit_table(window, self.degree),
            degree=self.degree,
        )

    def program_of(self, horizon: int, steps: Floats) -> Band:
        """The program of a window in seconds, at these steps [b, 1 or H − 1].

        Raises InputError for windows of more than MOST_ROWS rows.
        """
        seconds = float(str(self.window).removesuffix("s"))
        even = steps.shape == (1, 1)
        if steps.shape[1] == 1:
            steps = np.broadcast_to(steps, (len(steps), max(horizon - 1, 1)))
        elapsed = np.where(steps > 0, steps, 0.0)[:, : horizon - 1].cumsum(1)  # faults: elsewhere
        times = np.concatenate([np.zeros((len(steps), 1)), elapsed], 1)
        spans = np.stack([rows_within(line, seconds, self.degree) for line in times])
        # the least s such that windows of 2·s + 1 rows, which stop at the ends, hold all of these
        row, first, last = np.arange(horizon), spans[..., 0], spans[..., 1]
        left = np.minimum(row - first, (horizon - first) // 2)
        right = np.minimum(last - row, (last + 1) // 2)
        window = int(2 * np.maximum(left, right).max(initial=0) + 1)
        if window > MOST_ROWS:
            raise InputError(
                "a window of too many rows",
                where="window",
                expected=f"one that holds up to {MOST_ROWS} rows",
                found=f"{self.window}: about {window} rows",
                hint="a narrower window",
            )
        window = min(window, horizon)
        size = last - first + 1
        if even and window % 2 and (size == window).all():
            return replace(self, window=window).program(horizon, True, uneven=False)
        band = replace(self, window=window).program(horizon, True, uneven=True)
        return replace(band, spans=np.ascontiguousarray(spans, np.int64))


def rows_within(times: Floats, seconds: float, degree: int) -> npt.NDArray[np.int64]:
    """The first and the last row [T, 2] of each row's window of so many seconds.

    times [T] in seconds, T > degree. A window has the rows within half of it, and where these are
    fewer than degree + 1, those up to the distance of the nearest degree + 1. Near an end it is
    the nearest one that reaches the end, or the whole trajectory, if that is shorter.
    """
    count, least = len(times), degree + 1
    distance = np.full(count, np.inf)  # of the nearest rows, of which there are enough
    for place in range(least):
        begin = np.arange(count - least + 1)
        row, end = begin + place, begin + degree
        reach = np.maximum(times[row] - times[begin], times[end] - times[row])
        distance[row] = np.minimum(distance[row], reach)
    half = np.maximum(seconds / 2, distance) * (1.0 + _ROUNDING)
    rows = np.arange(count)
    first = np.minimum(np.searchsorted(times, times - half, "left"), rows)
    last = np.maximum(np.searchsorted(times, times + half, "right") - 1, rows)
    full = int(np.flatnonzero(first == 0)[-1])
    last[:full] = last[full]
    first[:full] = 0
    full = int(np.flatnonzero(last == count - 1)[0])
    first[full:] = first[full]
    return np.stack([first, np.where(rows < full, last, count - 1)], 1)


@functools.lru_cache(maxsize=16)
def fit_table(window: int, degree: int) -> Floats:
    """Weights on differences of points one unit apart, at each of them: [place, order, W − 1]."""
    points = np.arange(window, dtype=np.longdouble)  # ten more bits, where there are any
    weights = np.stack(fit_weights(points - points[:, None], degree), 1)  # [place, order, point]
    weights[np.abs(weights) < 1e-13 * np.abs(weights).max(2, keepdims=True)] = 0.0  # by rounding
    # c_i of Σ_i w_i X_i = X_base + Σ_i c_i (X_{i+1} − X_i): the weights beyond the difference, seen
    # from the base; negative on its left
    after = weights[:, :, :0:-1].cumsum(2)[:, :, ::-1]
    before = weights[:, :, :-1].cumsum(2)
    left = np.arange(window - 1) < np.arange(window)[:, None]
    return without_rounding(np.where(left[:, None], -before, after).astype(np.float64))
