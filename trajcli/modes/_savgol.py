"""Local polynomials: smooth derivatives of noisy recordings."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.kernels.least_squares import fit_weights
from trajcli.kernels.program import Band, Floats, Integers, Windows
from trajcli.modes.central import on_differences, without_rounding
from trajcli.modes.mode import Case, Mode

# The table of a window of W rows has W·W weights for each of four orders, 32 MB at this width.
MOST_ROWS = 999
# Stamps are rounded: they may lie beyond half a window by this share of it.
_ROUNDING = 1e-5


@dataclass(frozen=True)
class SavitzkyGolay(Mode):
    """The actions are recorded positions, to which local polynomials are fitted.

    Each row has the value and the derivatives of the polynomial of ``degree`` that fits the
    ``window`` rows around it by least squares, on their actual times; near an end these rows are
    the nearest full window. A window in seconds, like "0.3s", has the rows within half of it, see
    :func:`rows_within`. A. Savitzky and M. Golay, "Smoothing and differentiation of data by
    simplified least squares procedures", Anal. Chem. 36 (1964).
    """

    name = "savgol"
    takes_start = False

    window: int | str = "0.3s"
    degree: int = 4

    @property
    def reads_steps(self) -> bool:
        return isinstance(self.window, str)

    @property
    def least_rows(self) -> int:  # type: ignore[override]
        return self.degree + 1 if isinstance(self.window, str) else self.window

    def faults(self, case: Case) -> Iterator[Fault]:
        yield from super().faults(case)
        rows = str(case.horizon)
        if isinstance(self.window, str):
            if case.horizon < self.least_rows:
                what, expected = "too few rows for the degree", f"more than {self.degree} rows"
                hint = "method backward differences recordings of any length"
                yield Fault(what, where="actions", expected=expected, found=rows, hint=hint)
        elif self.window % 2 == 0 or not self.degree < self.window <= MOST_ROWS:
            expected = f"an odd number of rows, over the degree ({self.degree}), up to {MOST_ROWS}"
            found = str(self.window)
            yield Fault("no such window", where="window", expected=expected, found=found)
        elif case.horizon < self.least_rows:
            yield Fault(
                "a window that is longer than the trajectory",
                where="window",
                expected=f"at most {rows} rows",
                found=str(self.window),
                hint="a window in seconds, like 0.3s, takes the rows there are",
            )

    def program(self, horizon: int, recorded: bool, uneven: bool) -> Band:
        window = int(self.window)
        return Band(
            used=horizon,
            steps=max(horizon - 1, 1),
            windows=Windows(horizon, horizon - window, shift=window // 2),
            width=window,
            base=tuple(range(window)),
            table=None if uneven else fit_table(window, self.degree),
            degree=self.degree,
        )

    def stepped_program(self, shape: Sequence[int], steps: Floats) -> Band:
        """Makes the program of a window in seconds; raises InputError for too many rows."""
        horizon = shape[1]
        seconds = float(str(self.window).removesuffix("s"))
        even = steps.shape == (1, 1)
        if steps.shape[1] == 1:
            steps = np.broadcast_to(steps, (len(steps), max(horizon - 1, 1)))
        # steps that are not positive are reported elsewhere, as faults
        elapsed = np.where(steps > 0, steps, 0.0)[:, : horizon - 1].cumsum(1)
        times = np.concatenate([np.zeros((len(steps), 1)), elapsed], 1)
        spans = np.stack([rows_within(line, seconds, self.degree) for line in times])
        # the least s for which windows of 2·s + 1 rows, which stop at the ends, hold all spans
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


def rows_within(times: Floats, seconds: float, degree: int) -> Integers:
    """Finds the first and the last row [T, 2] of the window around each row, in ``seconds``.

    ``times`` [T] are in seconds, T > degree. A window has the rows within half of it or, where
    these are fewer than degree + 1, the rows up to the distance of the nearest degree + 1. Near an
    end it is the nearest window that reaches the end, or the whole trajectory if that is shorter.
    """
    count, least = len(times), degree + 1
    # the distance to the farthest of the nearest degree + 1 rows: these are neighbours, so each of
    # the degree + 1 runs of them that hold the row is tried
    distance = np.full(count, np.inf)
    for shift in range(least):
        begin = np.arange(count - least + 1)
        row, end = begin + shift, begin + degree
        reach = np.maximum(times[row] - times[begin], times[end] - times[row])
        distance[row] = np.minimum(distance[row], reach)
    # rows at exactly half of the window are in it, whatever rounding did to their times
    half = np.maximum(seconds / 2, distance) * (1.0 + _ROUNDING)
    rows = np.arange(count)
    first = np.minimum(np.searchsorted(times, times - half, "left"), rows)
    last = np.maximum(np.searchsorted(times, times + half, "right") - 1, rows)
    # near an end a window keeps its width: it is that of the last row whose window is whole
    full = int(np.flatnonzero(first == 0)[-1])
    last[:full] = last[full]
    first[:full] = 0
    full = int(np.flatnonzero(last == count - 1)[0])
    first[full:] = first[full]
    return np.stack([first, np.where(rows < full, last, count - 1)], 1)


@functools.lru_cache(maxsize=16)
def fit_table(window: int, degree: int) -> Floats:
    """Computes weights on differences of points, [row, order, W − 1], for equal steps."""
    # long double has eleven more bits than float64, where the machine has it
    points = np.arange(window, dtype=np.longdouble)
    weights = np.stack(fit_weights(points - points[:, None], degree), 1)  # [row, order, point]
    weights[np.abs(weights) < 1e-13 * np.abs(weights).max(2, keepdims=True)] = 0.0  # rounding
    differences = on_differences(weights, np.arange(window)[:, None, None])
    return without_rounding(differences.astype(np.float64))
