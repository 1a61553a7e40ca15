"""The smoothing spline: derivatives of noisy recordings without a window."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trajcli.errors import Fault, InputError
from trajcli.kernels.program import Floats, Operands, Smoother
from trajcli.modes.mode import Case, Mode, no_goal, recordings_only

_GRID_STEP, _GOLDEN_STEPS, _BISECTIONS = 0.35, 7, 30
_SLOWEST = 0.05
"""Of the cutoffs that are tried: periods in a trajectory."""
_PENALTY = 1.2
"""γ of modified generalised cross-validation: above 1, few rows are not followed too closely."""
_SHARE, _OF_NORMAL = 0.9, 0.623
"""The mean square of the smallest nine tenths of normal residuals, by the mean of all."""
_LEAST_SCALE, _FLAGGED, _MOST_FLAGGED, _ROUNDS = 1e-4, 5.0, 0.1, 6
"""Outliers: of the range, the least scale; how many scales far the farthest residual is where
there are any; the largest share of rows that may be; how often rows are weighed again."""
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True, eq=False)
class Smooth(Mode):
    """The actions are recorded positions; rows are those of the spline that smooths them.

    That is the curve x that minimises Σ w·(x(t) − z)² + λ·∫(x⁽ᵐ⁾)², m the ``order``: it passes
    slow motion and cuts off what is faster than ``bandlimit`` f_c in Hz, by 1/(1 + (f/f_c)^2m),
    λ = 1/(h·(2π·f_c)^2m) with h the median step. Without a bandlimit it is chosen for each dof of
    each trajectory by modified generalised cross-validation (C. Gu, "Smoothing spline ANOVA
    models", 2013), or such that the residuals' deviation is ``noise``. ``robust`` lowers the
    weights of outliers (Huber); NaN has weight zero.
    """

    name = "smooth"
    formula = "p, v, a, j of the curve with least Σ w·(x − z)² + λ·∫(x⁽ᵐ⁾)²"
    needs = "a recording (trajcli differentiate) of order + 1 rows"
    gives = "H"

    order: int = 3
    bandlimit: Any = None
    noise: float | None = None
    robust: bool = False
    weights: Floats | None = field(default=None, repr=False)
    residual: Floats | None = field(default=None, repr=False)
    reweighted: npt.NDArray[np.int64] | None = field(default=None, repr=False)

    @classmethod
    def option_names(cls) -> tuple[str, ...]:
        return ("order", "bandlimit", "noise", "robust")

    def options(self, recorded: bool = False) -> dict[str, Any]:
        """The options, with the bandlimit of each dof [B, D] (NaN: nothing was chosen), and the
        residuals' deviation and how many rows were reweighted [B, D]."""
        names = (*self.option_names(), "residual", "reweighted")
        return {name: x for name in names if (x := getattr(self, name)) is not None}

    @property
    def copies_actions(self) -> bool:
        return False

    def faults(self, case: Case) -> Iterator[Fault]:
        yield from no_goal(self.name, case)
        yield from recordings_only(self.name, case)
        if case.horizon <= self.order:
            yield Fault(
                "too few rows for the order",
                where="actions",
                expected=f"more than {self.order} rows",
                found=str(case.horizon),
                hint="method backward differences recordings of any length",
            )

    def rows(self, horizon: int, recorded: bool) -> int:
        return horizon

    def program_of(self, shape: Sequence[int], steps: Floats) -> Smoother:
        """The program for positions of this shape at steps [b, 1 or T − 1]."""
        batch, rows, dofs = shape
        cutoff = self._cutoff(batch, dofs)
        unit = np.median(steps, axis=1)
        with np.errstate(over="ignore", divide="ignore"):
            stiffness = (2.0 * np.pi * cutoff * unit[:, None]) ** (-2 * self.order)
        stiffness = np.where(np.isnan(cutoff), 1.0, stiffness)
        return Smoother(rows, self.order, unit, stiffness, self.weights)

    def _cutoff(self, batch: int, dofs: int) -> Floats:
        """The bandlimit of each dof [B, D]; NaN where it is to be chosen."""
        given = np.asarray(np.nan if self.bandlimit is None else self.bandlimit, np.float64)
        sizes = zip(given.shape[::-1], (dofs, batch), strict=False)
        if given.ndim > 2 or any(size not in (1, count) for size, count in sizes):
            raise InputError(
                "wrong shape of bandlimit",
                where="bandlimit",
                expected=f"a number, [{dofs}] or [{batch}, {dofs}]",
                found=str(list(given.shape)),
            )
        return np.array(np.broadcast_to(given, (batch, dofs)))

    def chosen(self, positions: Floats | None, shape: Sequence[int], steps: Floats, kernels: Any,
               where: str) -> Smooth:  # fmt: skip
        """The same mode with a bandlimit for each dof [B, D], and with the rows' weights.

        positions [B, T, D]; None if they cannot be read, as within torch.func: then there must be
        a bandlimit, and no row is missing. kernels: the module that measures residuals.
        Raises InputError for a bandlimit that the rate does not carry.
        """
        batch, rows, dofs = shape
        cutoff = self._cutoff(batch, dofs)
        most = 0.5 / np.median(steps, axis=1)[:, None]
        if (cutoff > most * (1.0 + 1e-9)).any():
            raise InputError(
                "a bandlimit above half the rate",
                where="bandlimit",
                expected=f"at most {most.min():.6g} Hz",
                found=f"{np.nanmax(cutoff):.6g} Hz",
            )
        if positions is None:
            if np.isnan(cutoff).any():
                raise InputError(
                    "positions that cannot be read",
                    where=where,
                    expected="values to choose the bandlimit by",
                    found="none here",
                    hint="bandlimit=, in Hz",
                )
            return replace(self, bandlimit=cutoff)
        columns = np.ascontiguousarray(positions.transpose(0, 2, 1), np.float64)
        values = columns.reshape(batch * dofs, rows, 1)
        present = np.isfinite(values)
        enough = present.sum((1, 2)) > self.order
        weights = None if present.all() else present * enough[:, None, None].astype(np.float64)
        steps = np.repeat(steps, dofs, axis=0) if len(steps) > 1 else steps
        data = _Columns(self.order, values, steps, weights, kernels)
        first = np.take_along_axis(values, present.argmax(1)[:, None], 1)
        moving = enough & (present & (values != first)).any((1, 2))
        limits = np.where(moving, cutoff.reshape(-1), np.nan)
        residual, reweighted = np.zeros(len(values)), np.zeros(len(values), np.int64)
        live = np.flatnonzero(moving)
        if len(live):
            choose = self._choose if self.noise is None else self._match
            fixed = limits[live]

            def choice(part: _Columns, which: npt.NDArray[np.int64]) -> Floats:
                known = ~np.isnan(fixed[which])
                return fixed[which] if known.all() else np.where(known, fixed[which], choose(part))

            part = data.take(live)
            found, new = _settle(part, choice, self.robust)
            limits[live] = found
            if new is not None:
                weights = np.ones_like(values) if weights is None else weights
                reweighted[live] = (new < part.all_weights()).sum((1, 2))
                weights[live] = new
            squares, _, _ = part.replaced(new).measure(found)
            residual[live] = np.sqrt(squares / part.counts())
        if weights is not None:
            weights = weights.reshape(batch, dofs, rows).transpose(0, 2, 1).copy()
        shape = (batch, dofs)
        return replace(
            self,
            bandlimit=limits.reshape(shape),
            weights=weights,
            residual=residual.reshape(shape),
            reweighted=reweighted.reshape(shape) if self.robust else None,
        )

    def _choose(self, data: _Columns) -> Floats:
        """The cutoffs of least ln Σwr² − 2·ln(n − γ·Σℓ), ℓ the leverages: on a grid of ln f_c, then
        by golden sections of the two steps around the best."""
        low, high = data.range()
        counts = data.counts()

        def score(logs: Floats) -> Floats:
            squares, leverages, _ = data.measure(np.exp(logs))
            free = counts - _PENALTY * leverages
            with np.errstate(divide="ignore", invalid="ignore"):
                value: Floats = np.log(squares) - 2.0 * np.log(free)
                return np.where(free > 0.0, value, np.inf)

        points = math.ceil((high - low).max() / _GRID_STEP) + 1
        grid = np.minimum(low + _GRID_STEP * np.arange(points)[:, None], high)
        scores = np.stack([score(logs) for logs in grid])
        place = scores.argmin(0)[None]
        left, right = (
            np.take_along_axis(grid, np.clip(place + by, 0, points - 1), 0)[0] for by in (-1, 1)
        )
        best, least = (np.take_along_axis(x, place, 0)[0] for x in (grid, scores))
        inner = [right - _GOLDEN * (right - left), left + _GOLDEN * (right - left)]
        at = [score(logs) for logs in inner]
        for step in range(_GOLDEN_STEPS + 1):
            for logs, value in zip(inner, at, strict=True):
                best, least = np.where(value < least, logs, best), np.minimum(value, least)
            if step == _GOLDEN_STEPS:
                break
            lower = at[0] < at[1]
            left, right = np.where(lower, left, inner[0]), np.where(lower, inner[1], right)
            gap = _GOLDEN * (right - left)
            new = np.where(lower, right - gap, left + gap)
            value = score(new)
            inner = [np.where(lower, new, inner[1]), np.where(lower, inner[0], new)]
            at = [np.where(lower, value, at[1]), np.where(lower, at[0], value)]
        chosen: Floats = np.exp(best)
        return chosen

    def _match(self, data: _Columns) -> Floats:
        """The cutoffs at which the residuals' deviation is the noise, by bisection."""
        assert self.noise is not None
        low, high = data.range()
        most = self.noise**2 * data.counts()
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            rough = data.measure(np.exp(middle))[0] > most
            low, high = np.where(rough, middle, low), np.where(rough, high, middle)
        chosen: Floats = np.exp(0.5 * (low + high))
        return chosen


def value_faults(options: Mapping[str, Any]) -> Iterator[Fault]:
    """Yields the faults of the values of bandlimit and noise."""
    if "bandlimit" in options and "noise" in options:
        yield Fault("both bandlimit and noise", where="noise", expected="one of them")
    for name, expected in (("bandlimit", "Hz > 0"), ("noise", "a deviation > 0")):
        values = np.asarray(options.get(name, 1.0))
        if values.dtype.kind not in "iuf" or ((values <= 0.0) | np.isinf(values)).any():
            found = repr(options[name])
            yield Fault(f"not a {name}", where=name, expected=expected, found=found)


class _Columns(NamedTuple):
    """Dofs side by side, each a trajectory: values and weights [n, T, 1], steps [1 or n, h]."""

    order: int
    values: Floats
    steps: Floats
    weights: Floats | None
    kernels: Any

    def take(self, which: npt.NDArray[np.int64]) -> _Columns:
        weights = None if self.weights is None else self.weights[which]
        steps = self.steps[which] if len(self.steps) > 1 else self.steps
        return self._replace(values=self.values[which], steps=steps, weights=weights)

    def replaced(self, weights: Floats | None) -> _Columns:
        return self if weights is None else self._replace(weights=weights)

    def all_weights(self) -> Floats:
        return np.ones_like(self.values) if self.weights is None else self.weights

    def counts(self) -> Floats:
        """How many rows have weight, [n]."""
        return np.asarray((self.all_weights() != 0.0).sum((1, 2)), np.float64)

    def range(self) -> tuple[Floats, Floats]:
        """The logarithms of the lowest and the highest cutoff that are tried, [n]."""
        gaps = self.values.shape[1] - 1
        total = self.steps.sum(1) * (gaps if self.steps.shape[1] == 1 else 1)
        low, high = np.log(_SLOWEST / total), np.log(0.5 / np.median(self.steps, axis=1))
        zeros = np.zeros(len(self.values))
        return low + zeros, high + zeros

    def measure(self, cutoff: Floats, residuals: bool = False) -> Any:
        """Σ w·r² and Σ ℓ, [n], and the residuals r [n, T, 1] or None."""
        mode = Smooth(order=self.order, bandlimit=cutoff[:, None], weights=self.weights)
        program = mode.program_of(self.values.shape, self.steps)
        operands = Operands(self.values, self.steps)
        off = np.empty_like(self.values) if residuals else None
        squares, leverages = self.kernels.measure(program, operands, off)
        return squares[:, 0], leverages[:, 0], off


def _settle(
    data: _Columns,
    choice: Callable[[_Columns, npt.NDArray[np.int64]], Floats],
    robust: bool,
) -> tuple[Floats, Floats | None]:
    """Cutoffs, and weights where some rows are outliers: choose, weigh, and choose again.

    A dof of which more than a tenth of the rows would be outliers keeps the weights it had.
    """
    which = np.arange(len(data.values))
    plain = cutoff = choice(data, which)
    if not robust:
        return cutoff, None
    weights = data.all_weights()
    present = weights > 0.0
    spread = np.where(present, data.values, -np.inf).max(1) - np.where(
        present, data.values, np.inf
    ).min(1)
    original, cutoff = weights, cutoff.copy()
    for _ in range(_ROUNDS):
        part = data.replaced(weights).take(which)
        _, leverages, off = part.measure(cutoff[which], residuals=True)
        here = present[which]
        sizes = np.sort(np.where(here, np.abs(off), np.inf), axis=1)[:, :, 0]
        counts = here.sum((1, 2))
        small = np.arange(sizes.shape[1]) < (_SHARE * counts).astype(int)[:, None]
        mean = np.where(small, sizes, 0.0) ** 2
        scale = np.sqrt(mean.sum(1) / np.maximum(small.sum(1), 1) / _OF_NORMAL)
        scale /= np.sqrt(np.maximum(1.0 - leverages / counts, 1e-6))
        scale = np.maximum(scale, _LEAST_SCALE * spread[which, 0])[:, None, None]
        far = np.where(here, np.abs(off), 0.0) / (3.0 * scale)
        outlying = far.max((1, 2)) * 3.0 > _FLAGGED
        new = np.where(here, np.minimum(1.0, 1.0 / np.maximum(far, 1.0) ** 2), 0.0)
        new = np.where(outlying[:, None, None], original[which] * new, original[which])
        many = (far > 1.0).sum((1, 2)) > _MOST_FLAGGED * counts
        new = np.where((many & outlying)[:, None, None], original[which], new)
        changed = ~np.isclose(new, weights[which], rtol=1e-3, atol=0.0).all((1, 2))
        given_up = which[many & outlying]
        weights = weights.copy()
        weights[which] = new
        cutoff[given_up] = plain[given_up]
        which = which[changed & outlying & ~many]
        if not len(which):
            break
        cutoff[which] = choice(data.replaced(weights).take(which), which)
    return cutoff, weights
