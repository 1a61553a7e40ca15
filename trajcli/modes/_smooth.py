"""The smoothing spline: derivatives of noisy recordings without a window."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from trajcli.errors import Fault, InputError
from trajcli.kernels.program import Booleans, Floats, Integers, Operands, Smoother
from trajcli.modes.mode import Case, Mode, Smoothed

_GRID_STEP, _GOLDEN_STEPS, _BISECTIONS = 0.35, 7, 30
# Cutoffs are tried on a grid of ln f_c, and seven golden sections leave 0.024 of two of its steps;
# thirty bisections find where residuals are the noise to nine digits.
# The lowest cutoff that is tried, in periods per trajectory: below it the curve is a polynomial.
_SLOWEST = 0.05
# γ of modified generalised cross-validation: above 1, few rows are not followed too closely.
_PENALTY = 1.2
# Of normal residuals: the mean square of the smallest three quarters over that of all.
_SHARE, _OF_NORMAL = 0.75, 0.3685
# Outliers: the least scale of residuals, as a share of the range and of an encoder's step; how many
# scales off rows are suspected, are outliers, and are so at the ends; the largest share of rows
# that may be outliers; rounds of choosing; how many rows are an end.
_LEAST_SCALE, _OF_STEP, _SUSPECT, _FLAGGED, _OUTER_FLAGGED = 1e-4, 0.29, 4.5, 5.0, 6.0
_MOST_FLAGGED, _ROUNDS, _OUTERMOST = 0.1, 6, 3
# The weight of an outlier: the curve ignores it, and its residual is still measured.
_IGNORED = 1e-30
_GOLDEN = (3.0 - math.sqrt(5.0)) / 2.0
_FEW_ROWS, _GAP_STEPS = 30, 2.0
# Noise is taken as correlated where the correlation of neighbouring residuals exceeds that of white
# noise by this much, and by so many standard deviations.
_CORRELATED, _DEVIATIONS = 0.17, 4.0
# Residuals are no noise below this share of the range, nor where one is off by so many deviations.
_LEAST_NOISE, _PEAK = 1e-6, 7.0
# At half the cutoff noise grows by less than this, in the mean and at most; motion by up to 2⁶.
_MEAN_GROWTH, _MOST_GROWTH = 1.8, 2.0
_FREQUENCIES = (np.arange(256) + 0.5) / 512.0


@dataclass(frozen=True, eq=False)
class Smooth(Mode):
    """The actions are recorded positions; rows are those of the spline that smooths them.

    That is the curve x that minimises Σ w·(x(t) − z)² + λ·∫(x⁽ᵐ⁾)², m the ``order``: it passes
    slow motion and cuts off what is faster than ``bandlimit`` f_c in Hz, by 1/(1 + (f/f_c)^2m),
    λ = 1/(h·(2π·f_c)^2m) with h the median step. Without a bandlimit it is chosen for each dof of
    each trajectory, by the values (:class:`Columns`), or such that the residuals' deviation is
    ``noise``. ``robust`` lowers the weights of outliers; NaN has weight zero.
    """

    name = "smooth"
    takes_start = False
    result_names = ("bandlimit", "residual", "reweighted")

    order: int = 3
    bandlimit: Any = None
    noise: Any = None
    robust: bool = False

    def options(self, recorded: bool = False) -> dict[str, Any]:
        # only those that are set: files state no None
        options = super().options(recorded).items()
        return {name: x for name, x in options if x is not None and x is not False}

    def select_dofs(self, dofs: Sequence[int]) -> Smooth:
        if not isinstance(self.noise, list):  # one noise for all
            return self
        return self._with_noise([self.noise[dof] for dof in dofs])

    def select_trajectories(self, numbers: Integers) -> Smooth:
        if np.ndim(self.bandlimit) < 2 or len(self.bandlimit) == 1:
            return self
        return replace(self, bandlimit=self.bandlimit[numbers])

    def scale_noise(self, per_si: Floats) -> Smooth:
        return self if self.noise is None else self._with_noise((self.noise / per_si).tolist())

    def _with_noise(self, noise: list[float]) -> Smooth:
        """Sets the noise of each dof, as one number where all have the same."""
        return replace(self, noise=noise[0] if len(set(noise)) == 1 else noise)

    @property
    def least_rows(self) -> int:  # type: ignore[override]
        return self.order + 1

    def faults(self, case: Case) -> Iterator[Fault]:
        yield from super().faults(case)
        if case.horizon < self.least_rows:
            yield Fault(
                "too few rows for the order",
                where="actions",
                expected=f"more than {self.order} rows",
                found=str(case.horizon),
                hint="method backward differences recordings of any length",
            )

    def stepped_program(self, shape: Sequence[int], steps: Floats) -> Smoother:
        cutoff = _for_each_dof(self.bandlimit, "bandlimit", shape)
        return self._program(cutoff, np.ones(shape), steps)

    def _program(self, cutoff: Floats, weights: Floats, steps: Floats) -> Smoother:
        # λ in units of steps: the kernels divide times by the median step
        unit = np.median(steps, axis=1)
        with np.errstate(over="ignore", divide="ignore"):
            stiffness = (2.0 * np.pi * cutoff * unit[:, None]) ** (-2 * self.order)
        stiffness = np.where(np.isnan(cutoff), 1.0, stiffness)  # any, of rows that are all equal
        return Smoother(weights.shape[1], self.order, unit, stiffness, weights)

    def prepare(
        self, values: Floats | None, shape: Sequence[int], steps: Floats, kernels: Any, where: str
    ) -> Smoothed:
        """Chooses bandlimits and weights by values [B, T, D]; None if they cannot be read."""
        batch, rows, dofs = shape
        cutoff = _for_each_dof(self.bandlimit, "bandlimit", shape)
        most = 0.5 / np.median(steps, axis=1)[:, None]
        if (cutoff > most * (1.0 + 1e-9)).any():
            raise InputError(
                "a bandlimit above half the rate",
                where="bandlimit",
                expected=f"at most {most.min():.6g} Hz",
                found=f"{np.nanmax(cutoff):.6g} Hz",
            )
        # within torch.func: no bandlimit can be chosen, and no row is missing or weighs less
        if values is None:
            if np.isnan(cutoff).any() or self.robust:
                raise InputError(
                    "positions that cannot be read",
                    where=where,
                    expected="values to choose the bandlimit and the weights by",
                    found="none here",
                    hint="bandlimit=, in Hz, without robust"
                    if self.robust
                    else "bandlimit=, in Hz",
                )
            return Smoothed(self.stepped_program(shape, steps), {"bandlimit": cutoff})
        values = np.ascontiguousarray(values.transpose(0, 2, 1), np.float64)
        values = values.reshape(batch * dofs, rows, 1)
        # NaN weigh nothing, and no row of a column with too few others does
        present = np.isfinite(values)
        present &= present.sum(1, keepdims=True) > self.order
        columns = Columns(
            self.order,
            values,
            np.repeat(steps, dofs, axis=0) if len(steps) > 1 else steps,
            cutoff.reshape(-1),
            _for_each_dof(self.noise, "noise", shape).reshape(-1),
            kernels,
            1.0 * present,
        )
        *by_column, weights, guessed, doubts = columns.choose(self.robust)
        cutoff, residual, reweighted = (x.reshape(batch, dofs) for x in by_column)
        weights, guessed = (  # [n, T, 1] → [B, T, D]
            x.reshape(batch, dofs, rows).transpose(0, 2, 1).copy() for x in (weights, guessed)
        )
        results = {"bandlimit": cutoff, "residual": residual}
        if self.robust:
            results["reweighted"] = reweighted
        doubts = {name: x.reshape(batch, dofs) for name, x in doubts.items()}
        return Smoothed(self._program(cutoff, weights, steps), results, guessed, doubts)


def _for_each_dof(option: Any, name: str, shape: Sequence[int]) -> Floats:
    """Expands an option to each dof [B, D] of positions of a shape, NaN where there is none."""
    batch, _, dofs = shape
    values = np.asarray(np.nan if option is None else option, np.float64)
    sizes = zip(values.shape[::-1], (dofs, batch), strict=False)
    if values.ndim > 2 or any(size not in (1, count) for size, count in sizes):
        raise InputError(
            f"wrong shape of {name}",
            where=name,
            expected=f"a number, [{dofs}] or [{batch}, {dofs}]",
            found=str(list(values.shape)),
        )
    return np.array(np.broadcast_to(values, (batch, dofs)))


class Columns(NamedTuple):
    """Dofs side by side, each as a trajectory of its own, and how their cutoffs are chosen.

    The cutoff is that of least modified generalised cross-validation (C. Gu, "Smoothing spline
    ANOVA models", 2013). Outliers are left out in rounds, as in P. Rousseeuw and A. Leroy, "Robust
    regression and outlier detection", 1987.

    Values and weights are [n, T, 1], steps [1 or n, h]. The cutoff and the deviation of residuals
    that the caller fixes, ``cutoffs`` and ``noise``, are [n], NaN where there is none.
    """

    order: int
    values: Floats
    steps: Floats
    cutoffs: Floats
    noise: Floats
    kernels: Any
    weights: Floats

    def select(self, columns: Integers) -> Columns:
        steps = self.steps[columns] if len(self.steps) > 1 else self.steps
        arrays = ("values", "cutoffs", "noise", "weights")
        return self._replace(steps=steps, **{name: getattr(self, name)[columns] for name in arrays})

    @property
    def counts(self) -> Floats:
        """The number of rows that have full weight, [n]."""
        return np.asarray((self.weights == 1.0).sum((1, 2)), np.float64)

    def choose(self, robust: bool) -> tuple[Any, Any, Any, Floats, Booleans, dict[str, Booleans]]:
        """Chooses a cutoff and weights for each column, and says which results are doubtful.

        Returns cutoffs in Hz (NaN: nothing moves), deviations of residuals, numbers of rows of less
        weight, weights and rows within long gaps [n, T, 1], and the columns of each kind of doubt.
        """
        used = self.weights > 0.0
        first = np.take_along_axis(self.values, used.argmax(1)[:, None], 1)
        moving = (used & (self.values != first)).any((1, 2))
        with np.errstate(divide="ignore", invalid="ignore"):  # of columns that do not move
            cutoff, weights, many = (
                self._reweighted() if robust else (self._chosen(), self.weights, ~moving)
            )
            cutoff = np.where(moving, cutoff, np.nan)
            weighted = self._replace(weights=weights)
            squares, _, off = weighted.measure(cutoff, residuals=True)
            # A gap is long where it exceeds half a period of the cutoff: the curve may turn in it.
            # The rows at the ends and within long gaps are guessed.
            known, unit = used[:, :, 0], np.median(self.steps, axis=1)
            steps = np.broadcast_to(self.steps, (len(self.steps), known.shape[1] - 1))
            times = np.concatenate([np.zeros((len(steps), 1)), steps.cumsum(1)], 1)
            last = np.maximum.accumulate(np.where(known, times, -np.inf), axis=1)
            following = np.where(known, times, np.inf)[:, ::-1]
            following = np.minimum.accumulate(following, axis=1)[:, ::-1]
            longest = np.maximum(0.5 / cutoff, _GAP_STEPS * unit)[:, None]
            gap = np.minimum(following, times[:, -1:]) - np.maximum(last, 0.0)
            guessed = ~known & (gap > longest)
            wide = known[:, 1:] & (times[:, 1:] - last[:, :-1] > longest)
            wide &= np.isfinite(last[:, :-1])
            residual = np.where(moving, np.sqrt(squares / self.counts), 0.0)
            automatic = np.isnan(self.cutoffs)
            low, high = self._ends()
            at_end = (self.values == low[:, None, None]) | (self.values == high[:, None, None])
            two_valued = (~used | at_end).all((1, 2))
            # stairs: values that mostly rest for long, then change by one step of an encoder
            changes = np.abs(np.diff(self.values[:, :, 0], axis=1))
            moved = changes > 0.0
            quantum = np.where(moved, changes, np.inf).min(1)
            by_one = (moved & (changes < 1.5 * quantum[:, None])).sum(1)
            rest = self.counts / (moved.sum(1) + 1.0) * unit
            stairs = (by_one > 0.5 * moved.sum(1)) & (rest > 0.5 * (0.5 / cutoff))
            noisy = automatic & moving & ~two_valued & (residual > _LEAST_NOISE * (high - low))
            noisy &= stairs | weighted._correlated(cutoff, off)
            noisy[noisy] = weighted.select(np.flatnonzero(noisy))._noisy(cutoff[noisy], off[noisy])
            doubts = {
                "gaps": guessed.any(1) | wide.any(1),
                "outliers": many,
                "few rows": automatic & (self.counts < _FEW_ROWS),
                "two values": automatic & two_valued,
                "stairs": noisy & stairs,
                "correlation": noisy & ~stairs,
            }
        return (
            cutoff, residual, (weights < self.weights).sum((1, 2)), weights,
            guessed[:, :, None], {kind: columns & moving for kind, columns in doubts.items()},
        )  # fmt: skip

    def measure(self, cutoff: Floats, residuals: bool = False) -> tuple[Floats, Floats, Any]:
        """Measures curves of cutoffs [n] or [k, n]: Σ w·r², the leverages Σ ℓ, and r, or None."""
        # the k cutoffs of a column are computed side by side, as dofs that share its values
        unit = np.median(self.steps, axis=1)
        stiffness = (2.0 * np.pi * np.nan_to_num(cutoff, nan=1.0) * unit) ** (-2 * self.order)
        stiffness = np.atleast_2d(stiffness).T
        shape = (*self.values.shape[:2], stiffness.shape[1])
        values, weights = (
            as_strided(x, shape, (*x.strides[:2], 0)) for x in (self.values, self.weights)
        )
        program = Smoother(shape[1], self.order, unit, stiffness, weights)
        off = np.empty(shape) if residuals else None
        sums = self.kernels.measure(program, Operands(values, self.steps), off)
        squares, leverages = (x.T.reshape(cutoff.shape) for x in sums)
        return squares, leverages, off

    def _chosen(self) -> Floats:
        """Chooses the cutoffs: those of the caller, of the noise, or of the least score."""
        if not np.isnan(self.cutoffs).any():
            return self.cutoffs
        low, high = self._range()
        if np.isnan(self.noise).all():
            logs = self._least(low, high)
        else:
            # residuals grow as the cutoff falls: bisection finds where their deviation is the noise
            squares = self.noise**2 * self.counts
            for _ in range(_BISECTIONS):
                logs = 0.5 * (low + high)
                rough = self.measure(np.exp(logs))[0] > squares
                low, high = np.where(rough, logs, low), np.where(rough, high, logs)
            logs = 0.5 * (low + high)
        return np.where(np.isnan(self.cutoffs), np.exp(logs), self.cutoffs)

    def _range(self) -> Floats:
        """Bounds ln f_c of the cutoffs that are tried, [2, n]; the highest is half the rate."""
        rows = self.values.shape[1]
        total = self.steps.sum(1) * (rows - 1 if self.steps.shape[1] == 1 else 1)
        ends = np.log([_SLOWEST / total, 0.5 / np.median(self.steps, axis=1)])
        return np.broadcast_to(ends, (2, len(self.values)))

    def _score(self, squares: Floats, leverages: Floats, rows: Floats) -> Floats:
        """Scores curves by modified generalised cross-validation, ln nΣwr² − 2·ln(n − γ·Σℓ)."""
        # each of the rows [n] that is ignored counts as the least of outliers
        free = self.counts - _PENALTY * leverages
        ignored = _FLAGGED**2 * (rows - self.counts) / (self.counts - leverages)
        score = np.log(squares * (1.0 + ignored) * self.counts) - 2.0 * np.log(free)
        return np.where(free > 0.0, score, np.inf)

    def _least(self, low: Floats, high: Floats) -> Floats:
        """Finds ln f_c of the least score: on a grid, then by golden sections around the best."""

        def score_at(logs: Floats) -> Floats:
            return self._score(*self.measure(np.exp(logs))[:2], self.counts)

        # left, right and inner of the next step, by whether ``other`` scores less than inner
        def section(less: Any) -> Floats:
            better, worse = np.where(less, [other, inner], [inner, other])
            ends = np.where(worse < better, worse, left), np.where(worse > better, worse, right)
            return np.stack([*ends, better])

        points = math.ceil((high - low).max() / _GRID_STEP) + 1
        grid = np.minimum(low + _GRID_STEP * np.arange(points)[:, None], high)
        scores = score_at(grid)
        best, least = grid[scores.argmin(0), np.arange(len(low))], scores.min(0)
        left, right = np.maximum(best - _GRID_STEP, low), np.minimum(best + _GRID_STEP, high)
        inner = left + _GOLDEN * (right - left)
        score = score_at(inner)
        less: Any = False
        values: list[Any] = []
        for _ in range(_GOLDEN_STEPS):
            other = left + right - inner
            if values:
                value, values = np.where(less, *values), []
            elif len(low) == 1:
                # a column alone leaves room in a vector: both points that the next step may need
                # are measured with this one
                after = [left + right - inner for left, right, inner in map(section, (True, False))]
                value, *values = score_at(np.stack([other, *after]))
            else:
                value = score_at(other)
            less = value < score
            left, right, inner = section(less)
            score = np.minimum(value, score)
        return np.asarray(np.where(score < least, inner, best))

    def _reweighted(self) -> tuple[Floats, Floats, Booleans]:
        """Chooses cutoffs, weights next to zero at outliers, and columns of too many outliers."""
        cutoff, weights, rows = self._chosen(), self.weights.copy(), self.counts
        plain, (squares, leverages, off) = cutoff.copy(), self.measure(cutoff, residuals=True)
        least = self._score(squares, leverages, rows)
        scale = self._scale(off, leverages, self.weights)
        columns = np.flatnonzero((np.abs(off) > _SUSPECT * scale).any((1, 2)))
        if len(columns):
            weights[columns] = self.select(columns)._first_weights()
        # cutoff and outliers depend on each other: rounds go on for columns that still change
        for _ in range(_ROUNDS if len(columns) else 0):
            part = self.select(columns)._replace(weights=weights[columns])
            full = self.weights[columns]
            cutoff[columns] = part._chosen()
            _, leverages, off = part.measure(cutoff[columns], residuals=True)
            scale = part._scale(off, leverages, full)
            far = np.abs(off) > _FLAGGED * scale
            part = part._replace(weights=full * np.where(far, _IGNORED, 1.0))
            new = part._end_weights(cutoff[columns], full, scale)
            changed = (new != weights[columns]).any((1, 2))
            weights[columns], columns = new, columns[changed]
            if not len(columns):
                break
        # columns keep their weights where more than a tenth of their rows would be outliers, and
        # where no other curve has a better score
        part = self._replace(weights=weights)
        many = rows - part.counts > _MOST_FLAGGED * rows
        worse = many | (part._score(*part.measure(cutoff)[:2], rows) > least)
        cutoff[worse], weights[worse] = plain[worse], self.weights[worse]
        return cutoff, weights, many

    def _first_weights(self) -> Floats:
        """Finds weights [n, T, 1] that ignore what seem outliers, those of the best score."""
        # from low cutoffs, whose curves no outlier deflects far, to high ones
        low, high = self._range()
        part, best, least = self, self.weights, np.full(len(self.values), np.inf)
        for k in range(math.ceil((high - low).max() / _GRID_STEP) + 1):
            logs = np.minimum(low + _GRID_STEP * k, high)
            squares, leverages, off = part.measure(np.exp(logs), residuals=True)
            score = part._score(squares, leverages, self.counts)
            far = np.abs(off) > _FLAGGED * part._scale(off, leverages, self.weights)
            part = self._replace(weights=self.weights * np.where(far, _IGNORED, 1.0))
            better = score < least
            least = np.where(better, score, least)
            best = np.where(better[:, None, None], part.weights, best)
        return best

    def _end_weights(self, cutoff: Floats, full: Floats, scale: Floats) -> Floats:
        """Chooses which of the outermost rows to ignore; returns weights [n, T, 1]."""
        # An outlier at an end deflects the curve until its residual is small, so that residuals do
        # not show it. All subsets of these rows are tried: the best takes most from the sum that
        # the curve minimises, less a price for each row.
        best, values = self.weights, self.values - self._ends()[0][:, None, None]
        for rows in (np.s_[:, :_OUTERMOST], np.s_[:, -_OUTERMOST:]):
            least, weights = np.full(len(scale), np.inf), best.copy()
            for ignored in itertools.product((False, True), repeat=_OUTERMOST):
                weights[rows] = np.where(np.array(ignored)[:, None], _IGNORED, 1.0) * full[rows]
                off = self._replace(weights=weights).measure(cutoff, residuals=True)[2]
                # Σw·r² + λ·∫(x⁽ᵐ⁾)² = Σw·z·r
                total = np.where(full > 0.0, weights * values * off, 0.0).sum((1, 2))
                total += (_OUTER_FLAGGED * scale[:, 0, 0]) ** 2 * sum(ignored)
                better = total < least
                least = np.where(better, total, least)
                best = np.where(better[:, None, None], weights, best)
        return best

    def _scale(self, off: Any, leverages: Floats, weights: Floats) -> Floats:
        """Estimates the deviation [n, 1, 1] of residuals by the smallest three quarters of them."""
        used = weights > 0.0
        few = (_SHARE * used.sum((1, 2))).astype(int)
        sums = np.sort(np.where(used, off**2, np.inf), axis=1).cumsum(1)
        mean = np.take_along_axis(sums, few[:, None, None] - 1, 1)[:, 0, 0] / few
        free = np.maximum(1.0 - leverages / self.counts, 1e-6)
        low, high = self._ends()
        changes = np.abs(np.diff(self.values[:, :, 0], axis=1))
        step = np.where(changes > 0.0, changes, np.inf).min(1)  # of an encoder
        least = np.where(low < high, np.maximum(_LEAST_SCALE * (high - low), _OF_STEP * step), 0.0)
        return np.asarray(np.maximum(np.sqrt(mean / _OF_NORMAL / free), least))[:, None, None]

    def _ends(self) -> tuple[Floats, Floats]:
        """Finds the least and the largest value of full weight of each column, [n]."""
        values = np.where(self.weights == 1.0, self.values, np.nan)[:, :, 0]
        return np.fmin.reduce(values, 1), np.fmax.reduce(values, 1)

    def _noisy(self, cutoff: Floats, off: Floats) -> Booleans:
        """Tells which columns lose noise, not motion, where cut lower."""
        other = self.measure(0.5 * cutoff, residuals=True)[2]
        before, after = (np.where(self.weights == 1.0, np.abs(r), 0.0) for r in (off, other))
        mean = (after**2).sum((1, 2)) <= _MEAN_GROWTH**2 * (before**2).sum((1, 2))
        return np.asarray(mean & (after.max((1, 2)) <= _MOST_GROWTH * before.max((1, 2))))

    def _correlated(self, cutoff: Floats, off: Floats) -> Booleans:
        """Tells which columns have residuals more correlated than those of white noise."""
        r = np.where(self.weights[:, :, 0] == 1.0, off[:, :, 0], 0.0)
        pairs = (r[:, 1:] * r[:, :-1]).sum(1) / (r * r).sum(1)
        # residuals of white noise have the spectrum (1 − gain)², whose transform is the correlation
        share = _FREQUENCIES / (cutoff * np.median(self.steps, axis=1))[:, None]
        power = (1.0 + share ** (-2.0 * self.order)) ** -2.0
        white = (power * np.cos(2.0 * np.pi * _FREQUENCIES)).sum(1) / power.sum(1)
        least = np.maximum(_CORRELATED, _DEVIATIONS / np.sqrt(self.counts))
        # the residuals of a jump are no noise: few, and far larger than the others
        jump = np.abs(r).max(1) > _PEAK * np.sqrt((r * r).sum(1) / self.counts)
        return np.asarray((pairs - white > least) & ~jump)
