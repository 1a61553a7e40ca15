"""Uniform B-splines of degree 3, 4 or 5 over control points."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from trajcli.arrays import float64, held_for, pair
from trajcli.errors import Fault
from trajcli.kernels.pairs import Array, Pair
from trajcli.kernels.program import BandProgram
from trajcli.modes.mode import Carried, Case, Mode, Parts, filled, needs_start
from trajcli.modes.pulling import NONE, Pulled, PulledProgram, sums, widened
from trajcli.modes.stencils import blossom, evenly_spaced, state_points, state_points_adjoint
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
        _, segment = self._windows(rows, horizon)
        points = int(segment[0]), int(segment[-1]) + self.degree + 1
        return Stretch(rows, under(points, self.degree + 1, horizon, horizon), (0, 1), horizon)

    def _windows(self, rows: Range, horizon: int) -> tuple[Any, Any]:
        """The rows that are computed, not copied, and the segment of each."""
        row = np.arange(max(rows[0], 1 if self.convention == "standard" else 0), rows[1])
        return row, np.minimum(row // self.steps, horizon + self.degree)

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
        tail = None
        if stretch.closes and self.ends == "goal":
            # seen from the last segment, whose local time runs 0..1
            when = 1 if self.convention == "standard" else 0
            tail = self._points(goal, dt, when)
            actions = actions[:, :-1]
        elif stretch.closes:
            tail = pair(held_for(float64(actions[:, -1, None]), self.degree))
        row, segment = self._windows(stretch.rows, stretch.horizon)
        before = 0 if stretch.opens else stretch.actions[0] + self.degree + 1
        copied = self.convention == "standard" and stretch.rows[0] == 0
        return BandProgram(
            actions=actions,
            head=self._points(start, dt, 0) if stretch.opens else None,
            tail=tail,
            weights=evenly_spaced(
                basis_table(self.degree, self.steps),
                segment - before,
                row - segment * self.steps,
                dt,
                self.steps,
            ),
            start=filled(start) if copied else None,
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
        assert found.head is not None
        assert found.tail is not None
        actions, of_goal = widened(found.actions, stretch.horizon), list(NONE)
        of_start, of_dt = self._points_adjoint(start, dt, 0, found.head)
        if self.ends == "goal":
            when = 1 if self.convention == "standard" else 0
            of_goal, more = self._points_adjoint(goal, dt, when, found.tail)
            of_dt = of_dt + more
        else:
            actions[:, -1] += found.tail.sum(1)
        steps = of_dt + found.spacing(dt) if found.of_dt else None
        return Pulled(actions, sums(of_start, found.state), of_goal, steps)

    def _points(self, state: Parts, dt: Array, when: int) -> Pair:
        """Control points of the segment that is the state's polynomial, [B, degree + 1, D].

        ``when``: the local time in the segment, in knots, at which the state holds.
        """
        return state_points(self._seen(state), dt, self._blossoms(when), self.steps)

    def _points_adjoint(
        self, state: Parts, dt: Array, when: int, grad: Array
    ) -> tuple[list[Array | None], Array]:
        return state_points_adjoint(self._seen(state), dt, self._blossoms(when), grad, self.steps)

    def _seen(self, state: Parts) -> Parts:
        """The parts that shape the curve."""
        curobo = self.convention == "curobo" and self.degree == 3
        return [*state[:3], None] if curobo else state

    def _blossoms(self, when: int) -> list[list[Fraction]]:
        d = self.degree
        knots = [tuple(r - d + 1 + k - when for k in range(d)) for r in range(d + 1)]
        return [blossom(d, each) for each in knots]


@functools.cache
def basis_table(degree: int, steps: int) -> list[list[list[Fraction]]]:
    """table[phase][order][point]: the basis on one segment at phase/steps, phase = 0..steps.

    Order m is the m-th derivative by the local time (over the knot spacing to the m by the
    user). Truncated powers: N_i(s) = Σ_k (−1)ᵏ C(d+1, k) (s + d − i − k)ᵈ / d!, k ≤ d − i;
    C. de Boor, "A Practical Guide to Splines", ch. IX.
    """
    return [
        [
            [_basis(degree, point, order, Fraction(phase, steps)) for point in range(degree + 1)]
            for order in range(4)
        ]
        for phase in range(steps + 1)
    ]


def _basis(degree: int, point: int, order: int, s: Fraction) -> Fraction:
    terms: Sequence[Fraction] = [
        (-1) ** k * math.comb(degree + 1, k) * (s + degree - point - k) ** (degree - order)
        for k in range(degree - point + 1)
    ]
    return sum(terms, Fraction(0)) / math.factorial(degree - order)
