"""Finds the extremes between rows of the curve that resample draws through them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from trajcli.curves.resampling import ARRAY_COUNTS
from trajcli.curves.retiming import find_zeros, polynomials
from trajcli.curves.sampling import curve_name, derivative, taylor
from trajcli.errors import InputError, UsageError
from trajcli.files.limits import Bounds
from trajcli.files.quantities import QUANTITIES
from trajcli.files.reading import Reading
from trajcli.files.recording import Recording
from trajcli.kernels.program import NumpyArray


class CurveCheck:
    """Finds the extremes of a batch's curve within each step.

    names: the quantities whose extremes are sought; none for lines, whose extremes are rows.
    """

    def __init__(self, batch: Recording, bounds: Mapping[str, Bounds], reading: Reading) -> None:
        """Chooses the curve as resample does, by what the file states or by the first rows."""
        self.curve, self.names, self._bounds = "", list[str](), bounds
        self._rows = [name for name in QUANTITIES if name in batch.arrays]
        if not self._rows or batch.clock is None or not bounds or 0 in batch.shape:
            return
        # The room of jobs is imported only where there are limits, since it loads the modes.
        from trajcli.jobs.resample import curves_between

        # Rows or times that no curve can be drawn through fail in other checks.
        with suppress(InputError, UsageError):
            curves = curves_between(reading, batch.select_arrays(self._rows))
            mode, options = self._mode = curves.mode or ("", {})
            self.curve = curve_name(mode, options) or curves.method
            if mode or (self.curve in ARRAY_COUNTS and len(self._rows) > 1):
                self.names = [name for name in curves.names if name in bounds]

    def find_extremes(
        self, values: Mapping[str, NumpyArray], block: Recording
    ) -> dict[str, tuple[NumpyArray, NumpyArray]]:
        """Finds the value in each step [b, T − 1, D] nearest to a limit, or furthest beyond it.

        Returns by quantity also by how many seconds it is later than the row.
        """
        times = block.known_times()
        if times is None or block.rows < 2 or not (np.diff(times) > 0).all():
            return {}
        knots = times - times[:, :1]
        middle, step = (knots[:, 1:] + knots[:, :-1]) / 2, np.diff(knots)[..., None]
        with np.errstate(all="ignore"):
            # Taylor polynomials of the curve in each step. Those of a mode are around the row that
            # the middle of the step belongs to, tau seconds before it; those of a method around
            # the middle.
            known: list[Any]
            tau: Any
            if self._mode[0]:
                rows = [values[x] if x in self._rows else None for x in QUANTITIES]
                known, tau = taylor(*self._mode, rows, knots, middle)
            else:
                arrays = [values[x] for x in self._rows]
                known = polynomials(self.curve, arrays, knots, [x.dtype for x in arrays])
                known, tau = [*[0.0] * QUANTITIES.index(self._rows[0]), *known], 0.0
            return {
                n: self._quantity_extremes(n, known[QUANTITIES.index(n) :], tau - step / 2, step)
                for n in self.names
            }

    def _quantity_extremes(
        self, name: str, known: list[Any], low: NumpyArray, step: NumpyArray
    ) -> tuple[NumpyArray, NumpyArray]:
        """Finds those of one quantity, whose Taylor polynomials begin at ``low`` in each step."""
        known = [x.astype(np.float64) for x in np.broadcast_arrays(*known)]
        bounds, values = self._bounds[name], known[0]
        delays = np.array(np.broadcast_to(-low, values.shape))

        def excess(values: NumpyArray, dof: NumpyArray) -> NumpyArray:
            over = np.maximum(values - bounds.upper[dof], bounds.lower[dof] - values)
            return over / bounds.size[dof]

        origin = excess(values, np.arange(values.shape[-1]))
        # |Σ c_m τ^m / m!| ≤ Σ |c_m| reach^m / m! bounds what the polynomial adds to its origin in
        # the step. Only steps in which that may exceed the limit, and the largest value so far,
        # have roots of derivatives to find: few of them.
        reach = np.fmax(np.abs(low), np.abs(low + step))
        spread = sum(abs(x) * reach**m / math.factorial(m) for m, x in enumerate(known[1:], 1))
        least = min(bounds.slack, np.nanmax(origin, initial=-math.inf))
        *_, dof = steps = np.nonzero(origin + spread / bounds.size > least)
        begin, end = (np.broadcast_to(x, values.shape)[steps] for x in (low, low + step))
        coefficients = [x[steps] for x in known]
        # An extreme is at an end of the step, or where the derivative is zero.
        candidates = np.stack([begin, end, *find_zeros(coefficients[1:], begin, end)])
        reached: Any = derivative([*coefficients, 0.0], candidates, 0)
        most = excess(reached, dof).argmax(0), np.arange(len(dof))
        values[steps], delays[steps] = reached[most], candidates[most] - begin
        return values, delays
