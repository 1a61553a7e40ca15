"""What every mode is: a name, options, checks, rows, and a program for the kernels."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from trajcli.arrays import columns, concatenate, counting, elapsed
from trajcli.errors import Fault
from trajcli.kernels.program import Array, Program

PARTS = ("position", "velocity", "acceleration", "jerk")
"""The parts of a state and the outputs, by order of derivative."""

FRAMES = ("full", "actions", "curobo")
CONVENTIONS = ("standard", "curobo")


def promise(rows: int) -> float:
    """How far results may be off before their last rounding, as a share of the largest magnitude
    along the trajectory that they are, or are the difference of."""
    return max(1e-12, 1.2e-16 * rows)


@dataclass(frozen=True)
class Case:
    """The shape of a job, as far as a mode's checks need it.

    ``start`` and ``goal`` name the parts that are present. ``steps_vary``: dt has an entry per
    step, not one for a whole trajectory.
    """

    horizon: int
    start: frozenset[str] = frozenset()
    goal: frozenset[str] = frozenset()
    recorded: bool = False
    steps_vary: bool = False


@dataclass(frozen=True)
class Mode:
    """Base of the modes. A mode's options are its dataclass fields.

    ``derivatives_of`` is the order of the actions (0 position … 3 jerk), ``degrees`` those that the
    option degree can have.
    """

    name: ClassVar[str]
    derivatives_of: ClassVar[int] = 0
    degrees: ClassVar[tuple[int, ...]] = ()

    @classmethod
    def option_names(cls) -> tuple[str, ...]:
        """The options this mode takes."""
        return tuple(field.name for field in fields(cls))

    def options(self, recorded: bool = False) -> dict[str, Any]:
        """The options and the values they take."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def faults(self, case: Case) -> list[Fault]:
        """Why this mode cannot run the case."""
        raise NotImplementedError

    def rows(self, horizon: int, recorded: bool) -> int:
        """T: rows written per trajectory of ``horizon`` actions."""
        raise NotImplementedError

    @property
    def copies_actions(self) -> bool:
        """Whether rows hold the actions as they are."""
        return True

    @property
    def dt_ahead(self) -> int:
        """Which entry of dt is the step from row 0 to row 1."""
        return 0

    def align_dt(self, dt: Array) -> Array:
        """dt [b, h] from the input, with entry t−1 as the step from row t−1 to row t."""
        if not self.dt_ahead or dt.shape[1] == 1:
            return dt
        return concatenate([dt[:, 1:], dt[:, -1, None]], 1)

    def row_times(self, dt: Array, horizon: int, recorded: bool) -> Array:
        """Time of the rows in seconds, float64 [b, T]; the start state's row is at 0."""
        return times_after(dt, 0, self.rows(horizon, recorded))

    def program(self, horizon: int, recorded: bool, uneven: bool) -> Program:
        """The kernels' program for trajectories of ``horizon`` actions.

        ``uneven``: dt has an entry per step.
        """
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
        """The fault of frames chosen for a recording, whose rows are fixed."""
        if case.recorded and self.frames != "full":
            return [
                Fault(
                    "a recording has no separate start row to keep or drop",
                    where="frames",
                    expected="full with a recording",
                    found=self.frames,
                )
            ]
        return []

    def start_row(self, recorded: bool) -> bool:
        """Whether the start state is written as row 0."""
        return self.frames != "actions" and not recorded

    def used(self, horizon: int) -> int:
        """How many actions are used."""
        return horizon - int(self.frames == "curobo")

    def row_times(self, dt: Array, horizon: int, recorded: bool) -> Array:
        since = int(self.frames == "actions")
        return times_after(dt, since, since + self.rows(horizon, recorded))


def times_after(dt: Array, first: int, last: int) -> Array:
    """The time after first … last − 1 steps, float64 [b, last − first]."""
    if dt.shape[1] == 1:
        return dt * counting(first, last, dt)
    return elapsed(columns(dt, 0, max(last - 1, 0)))[:, first:]


def no_goal(mode: str, case: Case) -> list[Fault]:
    """The fault of a goal state for a mode that does not use it."""
    if not case.goal:
        return []
    return [
        Fault(
            f"mode {mode} takes no goal state",
            where="goal",
            expected="none",
            found=", ".join(case.goal),
            hint="leave the goal out, or use --mode bspline or central with --ends goal",
        )
    ]


def needs_start(case: Case) -> list[Fault]:
    """The fault of a start state that is missing."""
    if case.recorded or "position" in case.start:
        return []
    return [
        Fault(
            "no start position",
            where="start",
            expected="a start state (position, and optionally velocity, acceleration, jerk)",
            found="none given, and none in the input",
            hint="--start zero or --start FILE[:GROUP]; recorded positions: trajcli differentiate",
        )
    ]


def needs_goal(ends: str | None, case: Case) -> list[Fault]:
    """The fault of a goal state that is missing, or present without ``ends`` goal."""
    if ends == "goal" and "position" not in case.goal:
        return [
            Fault(
                "ends goal needs a goal position",
                where="goal",
                expected="goal position",
                found="none given",
            )
        ]
    if ends != "goal" and case.goal:
        return [
            Fault(
                "a goal state is used with ends goal only",
                where="goal",
                expected="none",
                hint="--ends goal",
            )
        ]
    return []


NO_POINTS = np.zeros((0, 4))
"""Nothing before or after the actions of a band."""
