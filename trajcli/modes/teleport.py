"""Teleport: positions without dynamics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trajcli.arrays import constant, leading, pair
from trajcli.errors import Fault
from trajcli.kernels.pairs import Array
from trajcli.kernels.program import BandProgram, Weights
from trajcli.modes.mode import Carried, Case, FramedMode, Parts, filled, needs_start, no_goal
from trajcli.modes.pulling import Pulled, PulledProgram, widened
from trajcli.modes.stretch import Stretch


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
        table = pair(constant([[[[1.0], [0.0], [0.0], [0.0]]]], dt))
        rows = np.arange(actions.shape[1])
        weights = Weights(table, rows, rows * 0)
        return BandProgram(actions, None, None, weights, filled(start) if start_row else None)

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
