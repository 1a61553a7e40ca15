"""Teleport: positions without dynamics."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from trajcli.arrays import leading
from trajcli.errors import Fault
from trajcli.kernels.pairs import Array
from trajcli.kernels.program import BandProgram, Unit, Windows
from trajcli.modes.mode import Carried, Case, FramedMode, Parts, needs_start, no_goal
from trajcli.modes.pulling import Pulled, PulledProgram, widened
from trajcli.modes.stencils import evenly_spaced
from trajcli.modes.stretch import Stretch

_COPY = Unit([tuple((Fraction(int(order == 0)),) for order in range(4))])


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
        self,
        stretch: Stretch,
        actions: Array,
        start: Parts,
        goal: Parts,
        dt: Array,
        recorded: bool,
        carried: Carried = None,
    ) -> BandProgram:
        if stretch.closes:
            actions = leading(actions, self.used(stretch.horizon) - stretch.actions[0])
        start_row = stretch.rows[0] == 0 and self.lead(recorded)
        count = int(actions.shape[1])
        weights = evenly_spaced(_COPY, Windows(count, max(count - 1, 0)), dt[:, 0, None])
        return BandProgram(actions, None, None, weights, start if start_row else None)

    def pull_back(
        self,
        found: PulledProgram,
        stretch: Stretch,
        start: Parts,
        goal: Parts,
        dt: Array,
        recorded: bool,
    ) -> Pulled:
        steps = np.zeros((len(found.actions), dt.shape[1])) if found.of_dt else None
        return Pulled(widened(found.actions, stretch.horizon), found.state, steps=steps)
