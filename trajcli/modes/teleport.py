"""Teleport: positions without dynamics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trajcli.errors import Fault
from trajcli.kernels.program import Band, Windows
from trajcli.modes.mode import NO_POINTS, Case, FramedMode, needs_start, no_goal


@dataclass(frozen=True)
class Teleport(FramedMode):
    """The actions are positions; velocity, acceleration and jerk are zero."""

    name = "teleport"

    def faults(self, case: Case) -> Iterator[Fault]:
        yield from (*needs_start(case), *no_goal(self.name, case), *self.frames_faults(case))

    def program(self, horizon: int, recorded: bool, uneven: bool) -> Band:
        used = self.used(horizon)
        return Band(
            used=used,
            steps=used,
            head=NO_POINTS,
            tail=NO_POINTS,
            held=0,
            windows=Windows(used, max(used - 1, 0)),
            width=1,
            base=(0,),
            table=np.zeros((1, 4, 0)),
            start_row=self.start_row(recorded),
        )
