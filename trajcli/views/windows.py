"""Windows of rows, and what the relation of a mode leaves of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trajcli.views.laws import CONTEXT

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Term:
    """weight · xᵐ of the row ``offset`` away; the weight goes with dt to a power."""

    order: int
    offset: int
    weight: Any
    power: int = 0


@dataclass(frozen=True)
class Residual:
    """Residuals of one relation [b, n, D] over rows first, first + 1, …, and what is allowed."""

    order: int
    first: int
    values: Any
    allowed: Any
    terms: Sequence[Term]

    @property
    def ratios(self) -> Any:
        """How many times what is allowed; not finite values are no business of a relation."""
        with np.errstate(all="ignore"):
            ratios = np.abs(self.values) / np.maximum(self.allowed, np.finfo(np.float64).tiny)
        return np.where(np.isfinite(ratios), ratios, 0.0)


@dataclass(frozen=True)
class Window:
    """Rows first … of trajectories, of which there are ``total`` rows each.

    values: by order, float64 [b, n, D]; kinds: the types they are stored in; gaps [b or 1, n − 1]
    the steps between the rows, slack how far each may be off.
    """

    values: Mapping[int, Any]
    kinds: Mapping[int, Any]
    gaps: Any
    slack: Any
    first: int
    total: int

    @property
    def rows(self) -> int:
        """How many rows."""
        return int(next(iter(self.values.values())).shape[1])

    @property
    def core(self) -> tuple[int, int]:
        """The rows, in the window, that are this window's and not a neighbour's."""
        ends = self.first + self.rows == self.total
        return (CONTEXT if self.first else 0), self.rows - (0 if ends else CONTEXT)

    def clipped(self, first: int) -> tuple[int, int]:
        """The core from row ``first`` on."""
        begin, end = self.core
        return max(first, begin), end

    def dt(self, first: int, last: int) -> Any:
        """The steps into rows first..last, [b or 1, rows, 1]."""
        return self.gaps[:, first - 1 : last - 1, None]
