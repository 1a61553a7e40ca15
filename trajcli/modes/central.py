"""Central differences: five-point stencils on positions."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from trajcli.arrays import concatenate
from trajcli.errors import Fault
from trajcli.kernels.program import Array, Band, Floats, Windows
from trajcli.modes.mode import NO_POINTS, Case, FramedMode, needs_goal, needs_start, times_after
from trajcli.modes.stencils import derivative_weights, on_differences, taylor

WINDOW = 5
MIDDLE = 2

CUROBO_PAST = {1: Fraction(-7, 6), 2: Fraction(-4, 3), 3: Fraction(-3, 2)}
"""The jerk coefficients that cuRobo 0.7 has for the points k steps before the start."""


@dataclass(frozen=True)
class Central(FramedMode):
    """The actions are positions, with derivatives of fourth order (jerk: second) by five points.

    Away from the ends they are exact for quartic positions. ``ends`` says what is beyond:
    ``plan`` (default) continues the Taylor polynomial of the start state and holds the last action;
    ``recording`` (default for a recording) has one-sided windows, and stays exact for quartics;
    ``goal`` ends at rest on the goal position.
    """

    name = "central"

    ends: str | None = None
    convention: str = "standard"

    @property
    def copies_actions(self) -> bool:
        return self.convention == "standard"

    def faults(self, case: Case) -> Iterator[Fault]:
        yield from (*needs_start(case), *self.frames_faults(case), *needs_goal(self.ends, case))
        if case.recorded and self.ends not in (None, "recording"):
            what, found = "a recording ends where it ends", self.ends or ""
            yield Fault(what, where="ends", expected="recording", found=found)
        if case.recorded and case.horizon < WINDOW:
            yield Fault(
                "too few rows for five-point stencils",
                where="actions",
                expected=f"a recording of at least {WINDOW} rows",
                found=str(case.horizon),
                hint="method backward differences recordings of any length",
            )
        if moving := sorted(case.goal - {"position"}):
            yield Fault(
                "mode central comes to rest on its goal",
                where="goal",
                expected="a goal position alone",
                found=", ".join(moving),
                hint="--mode bspline --ends goal reaches a moving goal state",
            )
        if self.convention == "curobo" and self.frames != "full":
            what = "convention curobo fixes the rows of central"
            yield Fault(what, where="frames", expected="none given")
        if case.recorded and self.convention == "curobo":
            what = "convention curobo knows no recordings"
            yield Fault(what, where="start", expected="a start state")

    def options(self, recorded: bool = False) -> dict[str, Any]:
        ends = self.ends or ("recording" if recorded else "plan")
        return {**super().options(recorded), "ends": ends}

    def rows(self, horizon: int, recorded: bool) -> int:
        return horizon + 4 if self.convention == "curobo" else super().rows(horizon, recorded)

    def row_times(self, dt: Array, horizon: int, recorded: bool) -> Array:
        if self.convention == "standard":
            return super().row_times(dt, horizon, recorded)
        times = times_after(dt, 0, horizon + 1)
        # cuRobo has a row before the start and two after the end
        after = [times[:, -1, None] + k * dt[:, -1, None] for k in (1.0, 2.0)]
        return concatenate([-dt[:, 0, None], times, *after], 1)

    def start_row(self, recorded: bool) -> bool:
        return super().start_row(recorded) if self.convention == "standard" else False

    def program(self, horizon: int, recorded: bool, uneven: bool) -> Band:
        if recorded:
            # a recording has a stencil for each place in the window: one-sided at the ends
            places = tuple(range(WINDOW))
            return Band(
                used=horizon,
                steps=horizon - 1,
                head=NO_POINTS,
                tail=NO_POINTS,
                held=0,
                windows=Windows(horizon, horizon - WINDOW, shift=MIDDLE),
                width=WINDOW,
                base=places,
                table=None if uneven else _stencils(*places),
            )
        head = self._head()
        used, held = self.used(horizon), 2 if self.convention == "standard" else 4
        # cuRobo's rows go on behind the last action, which it holds for two steps more
        to_goal = self.ends == "goal" and used > 0
        count = used + len(head) + held - (WINDOW - 1) if used else 0
        return Band(
            used=used - to_goal,
            steps=used,
            head=head,
            # the goal, at rest, replaces the last action and is held
            tail=np.tile([1.0, 0.0, 0.0, 0.0], (held + 1, 1)) if to_goal else NO_POINTS,
            held=0 if to_goal else held,
            windows=Windows(count, max(count - 1, 0)),
            width=WINDOW,
            base=(MIDDLE,),
            table=None if uneven and used > 0 else _stencils(MIDDLE),
            start_row=self.start_row(recorded),
        )

    def _head(self) -> Floats:
        """Returns points on the polynomial of the start state; the last is the start itself."""
        if self.convention == "standard":
            return np.array([taylor(Fraction(-1)), taylor(Fraction(0))], np.float64)
        # position, velocity and acceleration as cuRobo extrapolates them k steps back
        past = [(1, -k, Fraction(k * k, 2) - 2 * k, CUROBO_PAST[k]) for k in (3, 2, 1)]
        return np.array([*past, taylor(Fraction(0))], np.float64)


@functools.cache
def _stencils(*places: int) -> Floats:
    """Returns weights on differences of five points one unit apart, [place, order, 4]."""
    points = [Fraction(i) for i in range(WINDOW)]
    return np.array(
        [
            on_differences(derivative_weights(points, Fraction(place), Fraction(1)), place)
            for place in places
        ],
        np.float64,
    )
