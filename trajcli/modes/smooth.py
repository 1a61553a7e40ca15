"""The smoothing spline: derivatives of noisy recordings without a window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.errors import Fault, InputError
from trajcli.kernels.program import Floats, Smoother
from trajcli.modes.cutoff import Columns
from trajcli.modes.mode import Case, Mode, no_goal, recordings_only


@dataclass(frozen=True, eq=False)
class Smooth(Mode):
    """The actions are recorded positions; rows are those of the spline that smooths them.

    That is the curve x that minimises Σ w·(x(t) − z)² + λ·∫(x⁽ᵐ⁾)², m the ``order``: it passes
    slow motion and cuts off what is faster than ``bandlimit`` f_c in Hz, by 1/(1 + (f/f_c)^2m),
    λ = 1/(h·(2π·f_c)^2m) with h the median step. Without a bandlimit it is chosen for each dof of
    each trajectory, by :mod:`trajcli.modes.cutoff`, or such that the residuals' deviation is
    ``noise``. ``robust`` lowers the weights of outliers; NaN has weight zero.

    :meth:`chosen` sets the ``weights`` [B, T, D], the deviation of the ``residual`` and the number
    of rows ``reweighted`` [B, D]. It marks rows within long gaps as ``guessed`` [B, T, D], and
    lists for each kind of ``doubts`` the dofs that it concerns [B, D].
    """

    name = "smooth"
    formula = "p, v, a, j of the curve with least Σ w·(x − z)² + λ·∫(x⁽ᵐ⁾)²"
    needs = "a recording (trajcli differentiate) of order + 1 rows"
    gives = "H"
    copies_actions = False

    order: int = 3
    bandlimit: Any = None
    noise: Any = None
    robust: bool = False
    weights: Floats | None = None
    residual: Floats | None = None
    reweighted: npt.NDArray[np.int64] | None = None
    guessed: npt.NDArray[np.bool_] | None = None
    doubts: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)

    @classmethod
    def option_names(cls) -> tuple[str, ...]:
        return ("order", "bandlimit", "noise", "robust")

    def options(self, recorded: bool = False) -> dict[str, Any]:
        """Returns the options that are set, and what was chosen.

        That is the bandlimit of each dof [B, D] (NaN: nothing was chosen), the deviation of the
        residuals and the number of reweighted rows [B, D].
        """
        names = (*self.option_names(), "residual", "reweighted")
        values = {name: getattr(self, name) for name in names}
        return {name: x for name, x in values.items() if x is not None and x is not False}

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

    def program_of(self, shape: Sequence[int], steps: Floats) -> Smoother:
        """Returns the program for positions of a shape at steps [b, 1 or T − 1]."""
        batch, rows, dofs = shape
        cutoff = self._of_dofs("bandlimit", batch, dofs)
        unit = np.median(steps, axis=1)
        with np.errstate(over="ignore", divide="ignore"):
            stiffness = (2.0 * np.pi * cutoff * unit[:, None]) ** (-2 * self.order)
        stiffness = np.where(np.isnan(cutoff), 1.0, stiffness)
        weights = np.ones((batch, rows, dofs)) if self.weights is None else self.weights
        return Smoother(rows, self.order, unit, stiffness, weights)

    def _of_dofs(self, name: str, batch: int, dofs: int) -> Floats:
        """Returns an option for each dof [B, D], NaN where it is not given."""
        option = getattr(self, name)
        given = np.asarray(np.nan if option is None else option, np.float64)
        sizes = zip(given.shape[::-1], (dofs, batch), strict=False)
        if given.ndim > 2 or any(size not in (1, count) for size, count in sizes):
            raise InputError(
                f"wrong shape of {name}",
                where=name,
                expected=f"a number, [{dofs}] or [{batch}, {dofs}]",
                found=str(list(given.shape)),
            )
        return np.array(np.broadcast_to(given, (batch, dofs)))

    def chosen(self, positions: Floats | None, shape: Sequence[int], steps: Floats, kernels: Any,
               where: str) -> Smooth:  # fmt: skip
        """Returns the mode with the bandlimits and weights that it chooses by the values.

        ``positions`` [B, T, D] are None where they cannot be read, as within torch.func: then the
        caller must give a bandlimit, and no row is missing. ``kernels`` measure the residuals.
        Raises InputError for a bandlimit above half the rate.
        """
        batch, rows, dofs = shape
        cutoff = self._of_dofs("bandlimit", batch, dofs)
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
        values = np.ascontiguousarray(positions.transpose(0, 2, 1), np.float64)
        columns = Columns.of(
            self.order,
            values.reshape(batch * dofs, rows, 1),
            np.repeat(steps, dofs, axis=0) if len(steps) > 1 else steps,
            cutoff.reshape(-1),
            self._of_dofs("noise", batch, dofs).reshape(-1),
            kernels,
        )
        found = columns.smoothed(self.robust)

        def of_rows(values: Any) -> Any:  # [n, T, 1] → [B, T, D]
            return values.reshape(batch, dofs, rows).transpose(0, 2, 1).copy()

        return replace(
            self,
            bandlimit=found.cutoff.reshape(batch, dofs),
            weights=of_rows(found.weights),
            residual=found.residual.reshape(batch, dofs),
            reweighted=found.reweighted.reshape(batch, dofs) if self.robust else None,
            guessed=of_rows(found.guessed),
            doubts={name: x.reshape(batch, dofs) for name, x in found.doubts.items()},
        )


def value_faults(options: Mapping[str, Any]) -> Iterator[Fault]:
    """Yields the faults of the values of bandlimit and noise."""
    if "bandlimit" in options and "noise" in options:
        yield Fault("both bandlimit and noise", where="noise", expected="one of them")
    for name, expected in (("bandlimit", "Hz > 0"), ("noise", "a deviation > 0")):
        values = np.asarray(options.get(name, 1.0))
        if values.dtype.kind not in "iuf" or ((values <= 0.0) | np.isinf(values)).any():
            found = repr(options[name])
            yield Fault(f"not a {name}", where=name, expected=expected, found=found)
