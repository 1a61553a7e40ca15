"""What mode smooth chose in a run: what OUT holds of it, and what there is to say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from trajcli.files.outputs import ROWS, Variable, row_variable
from trajcli.files.quantities import RECORDED_POSITION, SMOOTHING
from trajcli.modes.smooth import Smooth

# What there is to say of each kind of doubt.
_DOUBTS = {
    "gaps": "rows in gaps longer than half a period of the cutoff are guesses; --max-gap splits",
    "outliers": "more than 10 % of the rows would be outliers; --robust lowered no weights",
    "few rows": "under 30 rows are few to choose a cutoff by; --bandlimit sets it",
    "stairs": "the curve follows single steps of the encoder; a lower --bandlimit smooths them",
    "correlation": "the noise of neighbouring rows is correlated, so that the cutoff is too high; "
    "a lower --bandlimit smooths it",
}


def smoothing_variables(
    mode: Smooth, dtype: str, unit: str | None, missing: bool
) -> Iterator[Variable]:
    """Describes what OUT holds beside the rows. missing: whether rows may be NaN."""
    yield row_variable(RECORDED_POSITION, dtype, unit)
    for name, labels in SMOOTHING.items():
        if name == "residual":
            labels = {**labels, "units": unit or ""}
        if name != "reweighted" or mode.robust:
            kind = "i8" if name == "reweighted" else "f8"
            yield Variable(name, ("trajectory", "dof"), np.dtype(kind), labels)
    if missing:
        yield Variable("guessed", ROWS, np.dtype("u1"), {"long_name": "row within a long gap"})


class Smoothing:
    """Sums up what mode smooth chose for each dof of the trajectories of a run."""

    def __init__(self, dofs: Sequence[str]) -> None:
        self._dofs, self._count = dofs, 0
        self._ranges = {name: np.full((2, len(dofs)), np.nan) for name in ("bandlimit", "residual")}
        self._reweighted = np.zeros(len(dofs), np.int64)
        self._doubts = {name: np.zeros(len(dofs), bool) for name in _DOUBTS}
        self._doubted = Counter[str]()

    def add(self, mode: Smooth) -> None:
        """Adds what was chosen for some trajectories."""
        moving = ~np.isnan(mode.bandlimit)
        self._count += len(moving)
        for name, (least, most) in self._ranges.items():
            values = np.where(moving, getattr(mode, name), np.nan)
            least[:] = np.fmin.reduce([least, *values])
            most[:] = np.fmax.reduce([most, *values])
        if mode.reweighted is not None:
            self._reweighted += mode.reweighted.sum(0)
        for kind, doubted in mode.doubts.items():
            self._doubts[kind] |= doubted.any(0)
            self._doubted[kind] += int(doubted.any(1).sum())

    def report(self) -> dict[str, Any]:
        """Returns, for each dof, the range of cutoffs in Hz and of residuals over all trajectories
        (None: all rows are equal) and the rows with less weight."""
        ranges = {
            name: [None if np.isnan(low) else [float(low), float(high)] for low, high in ends.T]
            for name, ends in self._ranges.items()
        }
        return {"smoothing": ranges | {"reweighted": self._reweighted.tolist()}}

    def notes(self) -> Iterator[str]:
        """Yields a line for each kind of doubt, with the dofs that it concerns."""
        for kind, text in _DOUBTS.items():
            names = [
                name for name, doubt in zip(self._dofs, self._doubts[kind], strict=True) if doubt
            ]
            if names:
                some = f" in {self._doubted[kind]} of {self._count} trajectories"
                yield f"{_listed(names)}{some * (self._count > 1)}: {text}"


def _listed(names: Sequence[str]) -> str:
    """Returns names of dofs for a line: the first ones, and how many more there are."""
    words = ("dof " if names[0].isdecimal() else "") + ", ".join(names[:4])
    return words + (f" and {len(names) - 4} more" if names[4:] else "")
