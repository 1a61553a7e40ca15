"""Local polynomials: smooth derivatives of noisy recordings."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.kernels.fit import fit_weights
from trajcli.kernels.program import Band, Floats, Windows
from trajcli.modes.mode import NO_POINTS, Case, Mode, no_goal

MOST_ROWS = 999


@dataclass(frozen=True)
class SavitzkyGolay(Mode):
    """The actions are recorded positions; rows are those of the polynomials that fit them best.

    Each row has the value and the derivatives, at its time, of the polynomial of ``degree`` that
    fits the ``window`` rows around it in the sense of least squares, on the actual times. Near an
    end these are the nearest full window. A. Savitzky and M. Golay, "Smoothing and
    differentiation of data by simplified least squares procedures", Anal. Chem. 36 (1964).
    """

    name = "savgol"
    formula = "p, v, a, j of the polynomial that fits the window rows around t best"
    needs = "a recording (--start first) of at least window rows"
    gives = "H"
    degrees = (2, 3, 4, 5)

    window: int | str | None = None
    degree: int = 4

    @property
    def copies_actions(self) -> bool:
        return False

    def faults(self, case: Case) -> list[Fault]:
        faults = no_goal(self.name, case)
        if not case.recorded:
            hint = "--start first, if the actions are recorded positions"
            faults.append(
                Fault("mode savgol smooths recordings", "start", "first", "a start state", hint)
            )
        if self.window is None:
            expected = "the rows of a window, odd"
            hint = "as many as the shortest motion that matters takes: 31 are 0.3 s at 100 Hz"
            faults.append(Fault("mode savgol needs a window", "window", expected, "none", hint))
        elif isinstance(self.window, str):
            what, expected = "a window in seconds", "rows; in seconds for integrate of the shell"
            faults.append(Fault(what, "window", expected, self.window))
        elif self.window % 2 == 0 or not self.degree < self.window <= MOST_ROWS:
            expected = f"an odd number of rows, over the degree ({self.degree}), up to {MOST_ROWS}"
            faults.append(Fault("no such window", "window", expected, str(self.window)))
        elif self.window > case.horizon:
            faults.append(
                Fault(
                    "a window that is longer than the trajectory",
                    "window",
                    f"at most {case.horizon} rows",
                    str(self.window),
                )
            )
        return faults

    def in_rows(self, steps: set[float]) -> SavitzkyGolay:
        """The same with a window like "0.3s" in rows: those within half of it, at these steps.

        Raises InputError where that is not one number.
        """
        if not isinstance(self.window, str):
            return self
        half = 0.5 * float(self.window.removesuffix("s")) * (1.0 + 1e-9)
        least = (self.degree + 1) | 1
        windows = {max(2 * int(min(half / step, MOST_ROWS)) + 1, least) for step in steps}
        if len(windows) > 1:
            found = f"{min(windows)} to {max(windows)} rows: the steps of recordings differ"
            what, hint = "a window of several lengths", "--window ROWS"
            raise InputError(Fault(what, "--window", self.window, found, hint))
        return replace(self, window=windows.pop())

    def rows(self, horizon: int, recorded: bool) -> int:
        return horizon

    def program(self, horizon: int, recorded: bool, uneven: bool) -> Band:
        window = int(self.window or 0)
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


@functools.lru_cache(maxsize=16)
def fit_table(window: int, degree: int) -> Floats:
    """Weights on differences of points one unit apart, at each of them: [place, order, W − 1]."""
    points = np.arange(window, dtype=np.longdouble)  # ten more bits, where there are any
    weights = np.stack(fit_weights(points - points[:, None], degree), 1)  # [place, order, point]
    # c_i of Σ_i w_i X_i = X_base + Σ_i c_i (X_{i+1} − X_i): the weights beyond the difference, seen
    # from the base; negative on its left
    after = weights[:, :, :0:-1].cumsum(2)[:, :, ::-1]
    before = weights[:, :, :-1].cumsum(2)
    left = np.arange(window - 1) < np.arange(window)[:, None]
    return np.where(left[:, None], -before, after).astype(np.float64)
