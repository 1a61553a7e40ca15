"""The cascade: one relation, xᵐ_t − xᵐ_{t−1} = dt_t · xᵐ⁺¹_t, four modes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trajcli.arrays import filled, float64, leading, pair
from trajcli.errors import Fault
from trajcli.kernels.pairs import Array
from trajcli.kernels.program import CascadeProgram
from trajcli.modes.mode import Carried, Case, FramedMode, Parts, needs_start, no_goal
from trajcli.modes.pulling import Pulled, PulledProgram, widened
from trajcli.modes.stretch import Stretch

SCHEMES = ("euler", "zoh", "foh")


@dataclass(frozen=True)
class Cascade(FramedMode):
    """Actions of one order: those below follow by running sums, those above by differences.

    scheme ``euler``: the relation itself, semi-implicit Euler, first order. ``zoh``: exact for
    actions constant over each step. ``foh``: exact for actions linear between rows. Differences
    are the relation's in every scheme.
    """

    scheme: str = "euler"
    convention: str = "standard"
    needs = "start position; velocity, acceleration and jerk are zero unless given"
    gives = "H + 1"

    def __post_init__(self) -> None:
        if self.convention == "curobo" and self.frames == "full":
            object.__setattr__(self, "frames", "curobo")

    def faults(self, case: Case) -> list[Fault]:
        found = [*needs_start(case), *no_goal(self.name, case), *self.frames_faults(case)]
        if self.convention == "curobo" and self.frames == "actions":
            found.append(
                Fault("convention curobo has frames of its own", "frames", "curobo", self.frames)
            )
        if case.recorded and self.derivatives_of:
            found.append(
                Fault(
                    f"a recording of {self.name} has no position to start from",
                    "start",
                    "a start state for modes that sum",
                    "first",
                    "--start zero or --start-position FILE:DATASET; "
                    "--mode clique reads recorded positions",
                )
            )
        return found

    @property
    def dt_ahead(self) -> int:
        """cuRobo takes the step into row t from dt[t]; dt[0] is unused."""
        return int(self.convention == "curobo")

    def program(
        self,
        stretch: Stretch,
        actions: Array,
        start: Parts,
        goal: Parts,
        dt: Array,
        recorded: bool,
        carried: Carried = None,
    ) -> CascadeProgram:
        starts = stretch.rows[0] == 0
        if recorded and starts:
            start = [float64(actions[:, 0]), None, None, None]
            actions = actions[:, 1:]
        elif stretch.closes:
            actions = leading(actions, self.used(stretch.horizon) - stretch.actions[0])
        state = carried or [pair(part) for part in filled(start)]
        sources = [None] * 4
        sources[self.derivatives_of] = actions
        return CascadeProgram(
            sources=sources,
            state=state,
            dt=dt if dt.shape[1] == 1 else leading(dt, actions.shape[1]),
            order=self.derivatives_of,
            scheme=self.scheme,
            start_row=starts and (recorded or self.lead(recorded) == 1),
            recorded=recorded and starts,
        )

    def pull_back(
        self,
        found: PulledProgram,
        stretch: Stretch,
        start: Parts,
        goal: Parts,
        dt: Array,
        recorded: bool,
    ) -> Pulled:
        steps = found.steps
        if steps is not None and dt.shape[1] > 1:
            steps = widened(steps, dt.shape[1])
        if recorded:
            first = np.asarray(found.state[0])[:, None]
            return Pulled(np.concatenate([first, found.actions], 1), steps=steps)
        return Pulled(widened(found.actions, stretch.horizon), found.state, steps=steps)


class Clique(Cascade):
    """Positions are given; velocity, acceleration and jerk are their backward differences."""

    name = "clique"
    formula = "p = u, v_t = (p_t − p_{t−1})/dt, a = Δv/dt, j = Δa/dt"
    derivatives_of = 0


class Velocity(Cascade):
    """Velocities are given."""

    name = "velocity"
    formula = "v = u, p_t = p_{t−1} + dt·v_t, a = Δv/dt, j = Δa/dt"
    derivatives_of = 1


class Acceleration(Cascade):
    """Accelerations are given."""

    name = "acceleration"
    formula = "a = u, v_t = v_{t−1} + dt·a_t, p_t = p_{t−1} + dt·v_t, j = Δa/dt"
    derivatives_of = 2


class Jerk(Cascade):
    """Jerks are given."""

    name = "jerk"
    formula = "j = u, a, v, p by running sums: x_t = x_{t−1} + dt·x'_t"
    derivatives_of = 3
