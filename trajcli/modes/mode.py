"""What every mode is: a name, options, checks, rows, and a program for the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from trajcli.arrays import concatenate, constant, leading, namespace, zeros
from trajcli.errors import Fault
from trajcli.kernels.pairs import Array, two_sum
from trajcli.kernels.program import Program

PARTS = ("position", "velocity", "acceleration", "jerk")
"""The parts of a state and the outputs, by order of derivative."""

FRAMES = ("full", "actions", "curobo")
CONVENTIONS = ("standard", "curobo")

Parts = Sequence[Array | None]
"""Position, velocity, acceleration, jerk as float64 [B, D]; None is zero."""


@dataclass(frozen=True)
class Case:
    """The shape of a job, as far as a mode's checks need it.

    ``start`` and ``goal`` name the parts that are given. ``steps_vary``: dt has an entry per
    step, not one for a whole trajectory.
    """

    horizon: int
    start: frozenset[str] = frozenset()
    goal: frozenset[str] = frozenset()
    recorded: bool = False
    steps_vary: bool = False


@dataclass(frozen=True)
class Mode:
    """Base of the modes. Options are the dataclass fields of each.

    ``derivatives_of`` is the order of the actions (0 position … 3 jerk).
    """

    name: ClassVar[str]
    formula: ClassVar[str]
    needs: ClassVar[str]
    gives: ClassVar[str]
    derivatives_of: ClassVar[int] = 0

    @classmethod
    def option_names(cls) -> tuple[str, ...]:
        """The options this mode takes."""
        return tuple(field.name for field in fields(cls))

    def options(self, recorded: bool = False) -> dict[str, Any]:
        """The options and the values they take."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def faults(self, case: Case) -> list[Fault]:
        """What keeps this mode from running the case."""
        raise NotImplementedError

    def rows(self, horizon: int, recorded: bool) -> int:
        """T: rows written per trajectory of ``horizon`` actions."""
        raise NotImplementedError

    def intervals(self, horizon: int, recorded: bool) -> int:
        """How many steps lie between the rows that are given: entries of a per-step dt."""
        return horizon - 1 if recorded else horizon

    def align_dt(self, dt: Array) -> Array:
        """dt [b, h] as given, with entry t−1 as the step from row t−1 to row t."""
        return dt

    def row_times(self, dt: Array, horizon: int, recorded: bool) -> Array:
        """Time of each row in seconds [b, T]; row 0 of the plan or recording is 0."""
        raise NotImplementedError

    @property
    def row_0(self) -> int | None:
        """Steps from the start to row 0, where rows are a step apart; None where they are not."""
        return 0

    def program(
        self, actions: Array, start: Parts, goal: Parts, dt: Array, recorded: bool
    ) -> Program:
        """The kernel program for actions [B, H, D] and dt [b, h] float64."""
        raise NotImplementedError


@dataclass(frozen=True)
class FramedMode(Mode):
    """A mode whose rows are the start and the actions, as ``frames`` says.

    full: rows 0..H · actions: rows 1..H · curobo: rows 0..H−1, the last action is unused.
    """

    frames: str = "full"

    def rows(self, horizon: int, recorded: bool) -> int:
        return horizon + 1 if self.frames == "full" and not recorded else horizon

    def frames_faults(self, case: Case) -> list[Fault]:
        """A recording has the rows it has."""
        if case.recorded and self.frames != "full":
            return [
                Fault(
                    "a recording has no separate start row to keep or drop",
                    "frames",
                    "full with a recording",
                    self.frames,
                )
            ]
        return []

    def framed(self, actions: Array, recorded: bool) -> tuple[Array, bool]:
        """The actions that are used, and whether the start state is written as row 0."""
        if self.frames == "curobo":
            actions = actions[:, :-1]
        return actions, self.frames != "actions" and not recorded

    @property
    def row_0(self) -> int | None:
        return 1 if self.frames == "actions" else 0

    def row_times(self, dt: Array, horizon: int, recorded: bool) -> Array:
        if self.frames == "actions":
            return elapsed(dt, horizon)[:, 1:]
        return elapsed(dt, self.rows(horizon, recorded) - 1)


def elapsed(dt: Array, steps: int) -> Array:
    """0, dt_1, dt_1 + dt_2, … as float64 [b, steps + 1], each rounded once; dt [b, h]."""
    xp = namespace(dt)
    if dt.shape[1] == 1:
        return dt * constant(np.arange(steps + 1), dt)
    dt = leading(dt, steps)
    sums = xp.cumsum(concatenate([xp.zeros_like(dt[:, 0, None]), dt], 1), 1)
    gained = two_sum(sums[:, 1:], -sums[:, :-1])  # what each sum missed is added back
    missed = xp.cumsum((dt - gained.hi) - gained.lo, 1)
    return concatenate([sums[:, 0, None], sums[:, 1:] + missed], 1)


def no_goal(mode: str, case: Case) -> list[Fault]:
    """The fault of a goal state given to a mode that has no use for it."""
    if not case.goal:
        return []
    hint = "leave the goal out, or use --mode bspline or central with --ends goal"
    return [Fault(f"mode {mode} takes no goal state", "goal", "none", ", ".join(case.goal), hint)]


def needs_start(case: Case) -> list[Fault]:
    """The fault of a start state that is missing."""
    if case.recorded or "position" in case.start:
        return []
    return [
        Fault(
            "no start position",
            "start",
            "a start state (position, and optionally velocity, acceleration, jerk)",
            "none given, and none in the input",
            "--start zero, --start first (the actions are a recording) or --start FILE[:GROUP]",
        )
    ]


def filled(parts: Parts) -> tuple[Array, Array, Array, Array]:
    """All four parts of a state, zero where none is given."""
    position, velocity, acceleration, jerk = parts
    if position is None:
        raise ValueError("a state needs its position")
    zero = zeros(position)
    return (
        position,
        zero if velocity is None else velocity,
        zero if acceleration is None else acceleration,
        zero if jerk is None else jerk,
    )


def replace_last(actions: Array, points: Array, copies: int) -> tuple[Array, Array]:
    """The actions but the last, and points [B, D] held for ``copies`` rows in its place."""
    return actions[:, :-1], concatenate([points[:, None]] * copies, 1)
