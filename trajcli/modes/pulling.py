"""Gradients on their way from a kernel program back to what a mode made it of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trajcli.kernels.padding import points_of
from trajcli.kernels.pairs import Array
from trajcli.kernels.program import BandProgram, run_program

NONE = (None,) * 4


@dataclass(frozen=True, eq=False)
class PulledProgram:
    """Gradients of a program's parts, NumPy, float64.

    ``head``, ``tail``: of the scaled parts of a state whose points they are, four [B, D];
    ``state``: of the cascade's state, or of the row that a band copies; ``steps``: of a cascade's
    dt, each trajectory's own [B, n]. What bands know further is for :meth:`spacing`.
    """

    actions: Array
    head: Any = None
    tail: Any = None
    state: Sequence[Array | None] = NONE
    steps: Array | None = None
    of_dt: bool = False
    program: BandProgram | None = None
    upstream: Sequence[Array | None] = NONE
    kernels: Any = None

    def spacing(self, dt: Array) -> Array:
        """The gradient of a band's one dt through its weights, [B, 1].

        Weights of order m go with dt to the −m, and so do the rows they give.
        """
        assert self.program is not None
        program = self.program
        batch, _, dofs = program.actions.shape
        shape = (batch, program.weights.where.count, dofs)
        rows = [
            None if g is None or not m else np.empty(shape) for m, g in enumerate(self.upstream)
        ]
        bare = BandProgram(program.actions, program.head, program.tail, program.weights)
        if any(row is not None for row in rows):
            run_program(bare, self.kernels, rows)
        total = np.zeros((batch, 1))
        for m, (g, row) in enumerate(zip(self.upstream, rows, strict=True)):
            if g is not None and row is not None:
                total -= m * np.einsum("btd,btd->b", g, row)[:, None] / dt
        return total

    def padded(self) -> Array:
        """The sequence a band's windows slide over, [B, N, D] float64."""
        assert self.program is not None
        actions = self.program.actions
        head, tail = (points_of(p, actions) for p in (self.program.head, self.program.tail))
        parts = [head and head.hi, actions, tail and tail.hi]
        return np.concatenate([np.asarray(p, np.float64) for p in parts if p is not None], 1)


@dataclass(frozen=True, eq=False)
class Pulled:
    """Gradients of a mode's inputs: actions [B, H, D], states [B, D], steps [B, 1 or n]."""

    actions: Array
    start: Sequence[Array | None] = NONE
    goal: Sequence[Array | None] = NONE
    steps: Array | None = None


def widened(values: Array, count: int) -> Array:
    """[B, n, D] with zeros behind, up to ``count``: what was not used has no gradient."""
    if values.shape[1] == count:
        return values
    lacking = (len(values), count - values.shape[1], *values.shape[2:])
    return np.concatenate([values, np.zeros(lacking)], 1)


def sums(one: Sequence[Array | None], two: Sequence[Array | None]) -> list[Array | None]:
    """Sums of gradients of which some are absent."""
    return [b if a is None else a if b is None else a + b for a, b in zip(one, two, strict=True)]
