"""Teleport: positions without dynamics."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from trajcli.errors import Fault
from trajcli.kernels.pairs import Array
from trajcli.kernels.program import BandProgram
from trajcli.modes.mode import Case, FramedMode, Parts, filled, needs_start, no_goal
from trajcli.modes.stencils import evenly_spaced

_COPY = [[[Fraction(int(order == 0))] for order in range(4)]]


@dataclass(frozen=True)
class Teleport(FramedMode):
    """Positions are taken as they are; velocity, acceleration and jerk are zero."""

    name = "teleport"
    formula = "p = u, v = a = j = 0"
    needs = "start position (recording: none)"
    gives = "H + 1 (recording: H)"

    def faults(self, case: Case) -> list[Fault]:
        return [*needs_start(case), *no_goal(self.name, case), *self.frames_faults(case)]

    def program(
        self, actions: Array, start: Parts, goal: Parts, dt: Array, recorded: bool
    ) -> BandProgram:
        actions, start_row = self.framed(actions, recorded)
        rows = np.arange(actions.shape[1])
        weights = evenly_spaced(_COPY, rows, rows * 0, dt[:, 0, None])
        return BandProgram(actions, None, None, weights, filled(start) if start_row else None)
