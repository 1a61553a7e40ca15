"""Uniform B-splines of degree 3, 4 or 5 over control points."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from trajcli.errors import Fault
from trajcli.kernels.pairs import Array
from trajcli.kernels.program import BandProgram, Held, StatePoints, Unit, Windows
from trajcli.modes.mode import Carried, Case, Mode, Parts, needs_start
from trajcli.modes.pulling import NONE, Pulled, PulledProgram, sums, widened
from trajcli.modes.stencils import blossoms, evenly_spaced, spacing, state_points_adjoint
from trajcli.modes.stretch import Range, Stretch, under

DEGREES = (3, 4, 5)


@dataclass(frozen=True)
class BSpline(Mode):
    """The actions are control points; the curve has degree − 1 continuous derivatives.

    The first segment is the start state's Taylor polynomial. ``ends`` ``plan``: at rest on the
    last action; ``goal``: the goal's position, velocity, acceleration and jerk, exactly, in the
    last row. ``steps`` rows per knot interval; the knot spacing is dt · steps.
    """

    name = "bspline"
    formula = "p(t) = Σ N_i(t) u_i, uniform B-spline of degree 3, 4 or 5; v, a, j its derivatives"
    needs = "start position; dt per trajectory; goal state with --ends goal"
    gives = "(H + degree + 1)·steps + 1"

    degree: int = 3
    steps: int = 1
    ends: str = "plan"
    convention: str = "standard"

    def faults(self, case: Case) -> list[Fault]:
        if case.recorded or self.ends == "recording":
            return [
                Fault(
                    "control points cannot be a recording",
                    "ends",
                    "plan or goal, with a start state",
                    "recording",
                    "--mode central or clique reads recorded positions",
                )
            ]
        found = needs_start(case)
        if case.steps_vary:
            found.append(
                Fault(
                    "mode bspline has uniform knots",
                    "dt",
                    "one dt, or one per trajectory [B, 1]",
                    "one per step",
                )
            )
        if self.ends == "goal" and "position" not in case.goal:
            found.append(
                Fault("ends goal needs a goal position", "goal", "goal position", "none given")
            )
        if self.ends != "goal" and case.goal:
            found.append(
                Fault(
                    "a goal state is used with ends goal only", "goal", "none", hint="--ends goal"
                )
            )
        return found

    def rows(self, horizon: int, recorded: bool) -> int:
        return (horizon + self.degree + 1) * self.steps + 1

    def stretch(self, rows: Range, horizon: int, recorded: bool) -> Stretch:
        segments = self._segments(rows, horizon)
        points = segments[0], segments[1] + self.degree + 1
        return Stretch(rows, under(points, self.degree + 1, horizon, horizon), (0, 1), horizon)

    def _first_row(self, rows: Range) -> int:
        """The first row that is computed, not copied."""
        return max(rows[0], 1 if self.convention == "standard" else 0)

    def _segments(self, rows: Range, horizon: int) -> Range:
        """The segments of the first and the last row that are computed."""
        first, last = self._first_row(rows) // self.steps, (rows[1] - 1) // self.steps
        return min(first, horizon + self.degree), min(last, horizon + self.degree)

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
        head: StatePoints | None = None
        tail: StatePoints | Held | None = None
        if stretch.opens:
            head = self._points(start, dt, 0)
        if stretch.closes and self.ends == "goal":
            # seen from the last segment, whose local time runs 0..1
            tail = self._points(goal, dt, self._goal_time)
            actions = actions[:, :-1]
        elif stretch.closes:
            tail = Held(self.degree)
        before = 0 if stretch.opens else stretch.actions[0] + self.degree + 1
        row, segments = self._first_row(stretch.rows), self._segments(stretch.rows, stretch.horizon)
        where = Windows(
            count=max(stretch.rows[1] - row, 0),
            last=segments[1] - before,
            offset=row - before * self.steps,
            steps=self.steps,
        )
        table = basis_table(self.degree, self.steps)
        copied = self.convention == "standard" and stretch.rows[0] == 0
        return BandProgram(
            actions=actions,
            head=head,
            tail=tail,
            weights=evenly_spaced(table, where, dt, self.steps),
            start=start if copied else None,
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
        program = found.program
        assert program is not None
        assert program.head is not None
        actions, of_goal = widened(found.actions, stretch.horizon), list(NONE)
        of_start, of_spacing = state_points_adjoint(program.head, found.head)
        if isinstance(program.tail, StatePoints):
            of_goal, more = state_points_adjoint(program.tail, found.tail)
            of_spacing = of_spacing + more
        steps = self.steps * of_spacing + found.spacing(dt) if found.of_dt else None
        return Pulled(actions, sums(of_start, found.state), of_goal, steps)

    @property
    def _goal_time(self) -> int:
        """The local time in the last segment, in knots, at which the goal holds."""
        return 1 if self.convention == "standard" else 0

    def _points(self, state: Parts, dt: Array, when: int) -> StatePoints:
        """Control points of the segment that is the state's polynomial, [B, degree + 1, D].

        ``when``: the local time in the segment, in knots, at which the state holds.
        """
        return StatePoints(self._seen(state), blossoms(self.degree, when), spacing(dt, self.steps))

    def _seen(self, state: Parts) -> Parts:
        """The parts that shape the curve."""
        curobo = self.convention == "curobo" and self.degree == 3
        return [*state[:3], None] if curobo else state


@functools.cache
def basis_table(degree: int, steps: int) -> Unit:
    """table[phase][order][point]: the basis on one segment at phase/steps, phase = 0..steps.

    Order m is the m-th derivative by the local time (over the knot spacing to the m by the
    user). Truncated powers: N_i(s) = Σ_k (−1)ᵏ C(d+1, k) (s + d − i − k)ᵈ / d!, k ≤ d − i;
    C. de Boor, "A Practical Guide to Splines", ch. IX.
    """
    points = range(degree + 1)
    return Unit(
        tuple(
            tuple(_basis(degree, point, order, Fraction(phase, steps)) for point in points)
            for order in range(4)
        )
        for phase in range(steps + 1)
    )


def _basis(degree: int, point: int, order: int, s: Fraction) -> Fraction:
    terms: Sequence[Fraction] = [
        (-1) ** k * math.comb(degree + 1, k) * (s + degree - point - k) ** (degree - order)
        for k in range(degree - point + 1)
    ]
    return sum(terms, Fraction(0)) / math.factorial(degree - order)
