"""Finds the extremes between rows of the curve that resample sends through them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress

import numpy as np

from trajcli.curves.resampling import ARRAY_COUNTS
from trajcli.curves.retiming import polynomials, find_zeros
from trajcli.curves.sampling import curve_name, derivative, taylor
from trajcli.errors import InputError, UsageError
from trajcli.files.limits import Bounds
from trajcli.files.quantities import QUANTITIES
from trajcli.files.reading import Reading
from trajcli.files.recording import Array, Recording


class CurveCheck:
    """Finds what a batch's curve reaches within each step, of the quantities ``names``.

    curve: the mode or the method. Lines, which reach no more than their rows, have no names.
    """

    def __init__(self, batch: Recording, bounds: Mapping[str, Bounds], reading: Reading) -> None:
        """Chooses the curve as resample does, by what the file states or by the first rows."""
        self.curve, self.names, self._bounds = "", list[str](), bounds
        self._rows = [name for name in QUANTITIES if name in batch.arrays]
        if not self._rows or batch.clock is None or not bounds or 0 in batch.shape:
            return
        # jobs is imported where there are limits alone
        from trajcli.jobs.resample import curves_between

        with suppress(InputError, UsageError):  # what is wrong with rows or times fails elsewhere
            curves = curves_between(reading, batch.select_arrays(self._rows))
            mode, options = self._mode = curves.mode or ("", {})
            self.curve = curve_name(mode, options) or curves.method
            if mode or (self.curve in ARRAY_COUNTS and len(self._rows) > 1):
                self.names = [name for name in curves.names if name in bounds]

    def extremes(
        self, values: Mapping[str, Array], block: Recording
    ) -> dict[str, tuple[Array, Array]]:
        """Returns what comes nearest to a limit, or exceeds it the most, in each step of a block
        with arrays [b, T, D] by name, and by how many seconds it is later than the row; where that
        is on no more than a row, any value there."""
        times = block.known_times()
        if times is None or block.rows < 2 or not (np.diff(times) > 0).all():
            return {}
        knots = times - times[:, :1]
        middle, step = (knots[:, 1:] + knots[:, :-1]) / 2, np.diff(knots)[..., None]
        with np.errstate(all="ignore"):
            if self._mode[0]:
                rows = [values[x] if x in self._rows else None for x in QUANTITIES]
                known, tau = taylor(*self._mode, rows, knots, middle)
            else:
                given = [values[x] for x in self._rows]
                known = polynomials(self.curve, given, knots, [x.dtype for x in given])
                known, tau = [*[0.0] * QUANTITIES.index(self._rows[0]), *known], 0.0
            low = tau - step / 2
            return {
                n: self._extremes(n, known[QUANTITIES.index(n) :], low, step) for n in self.names
            }

    def _extremes(
        self, name: str, known: list[Array], low: Array, step: Array
    ) -> tuple[Array, Array]:
        """Returns those of a quantity, whose Taylor polynomials around low − ``low`` are known."""
        known = [x.astype(np.float64) for x in np.broadcast_arrays(*known)]
        bounds, values = self._bounds[name], known[0]
        late = np.array(np.broadcast_to(-low, values.shape))

        def excess(values: Array, dof: Array) -> Array:
            over = np.maximum(values - bounds.upper[dof], bounds.lower[dof] - values)
            return over / bounds.size[dof]

        around = excess(values, np.arange(values.shape[-1]))
        # no polynomial goes further than this from there in the step; few have roots to find
        reach = np.fmax(np.abs(low), np.abs(low + step))
        spread = sum(abs(x) * reach**m / math.factorial(m) for m, x in enumerate(known[1:], 1))
        least = min(bounds.slack, np.nanmax(around, initial=-math.inf))
        *_, dof = place = np.nonzero(around + spread / bounds.size > least)
        begin, end = (np.broadcast_to(x, values.shape)[place] for x in (low, low + step))
        own = [x[place] for x in known]
        at = np.stack([begin, end, *find_zeros(own[1:], begin, end)])
        reached = derivative([*own, 0.0], at, 0)
        most = excess(reached, dof).argmax(0), np.arange(len(dof))
        values[place], late[place] = reached[most], at[most] - begin
        return values, late
