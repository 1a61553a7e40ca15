"""Uniform B-splines of degree 3, 4 or 5 over control points."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from trajcli.errors import Fault
from trajcli.kernels.program import Band, Floats, Windows
from trajcli.modes.central import on_differences, without_rounding
from trajcli.modes.mode import Case, Mode


@dataclass(frozen=True)
class BSpline(Mode):
    """The actions are control points; the curve has degree − 1 continuous derivatives.

    The first segment is the Taylor polynomial of the start state. With ``ends`` ``plan`` the curve
    ends at rest on the last action, with ``goal`` exactly in the goal state. There are ``steps``
    rows per knot interval, and knots are dt · steps apart.
    """

    name = "bspline"
    copies_actions = False

    degree: int = 3
    steps: int = 1
    ends: str = "plan"
    convention: str = "standard"

    def faults(self, case: Case) -> Iterator[Fault]:
        if case.recorded or self.ends == "recording":
            yield Fault(
                "control points cannot be a recording",
                where="ends",
                expected="plan or goal, with a start state",
                found="recording",
                hint="modes central, savgol and clique take recorded positions",
            )
            return
        yield from super().faults(case)
        if case.steps_vary:
            what = "mode bspline has uniform knots"
            expected = "one dt, or one per trajectory [B, 1]"
            yield Fault(what, where="dt", expected=expected, found="one per step")

    def row_count(self, horizon: int, recorded: bool) -> int:
        return (horizon + self.degree + 1) * self.steps + 1

    def program(self, horizon: int, recorded: bool, uneven: bool) -> Band:
        # cuRobo takes row 0 from the curve, and has the goal state at the start of the last
        # segment, not at its end
        standard = self.convention == "standard"
        to_goal = self.ends == "goal"
        # the start state itself is row 0, so the curve's rows begin one later
        first = int(standard)
        return Band(
            used=horizon - to_goal,
            steps=1,
            head=self._points(0),
            tail=self._points(first)[: None if to_goal else 0],
            held=0 if to_goal else self.degree,
            windows=Windows(
                count=self.row_count(horizon, recorded) - first,
                last=horizon + self.degree,
                offset=first,
                steps=self.steps,
            ),
            width=self.degree + 1,
            base=((self.degree + 1) // 2,) * (self.steps + 1),
            table=basis_table(self.degree, self.steps),
            spacing=self.steps,
            start_row=standard,
        )

    def _points(self, time: int) -> Floats:
        """Computes the control points of the segment that is the Taylor polynomial of a state.

        They are coefficients of the state's parts. The curve has this state at the local time
        ``time`` of the segment, in knots. The control point of a polynomial is its blossom (polar
        form) at d knots: Σ xᵐ hᵐ e_m(knots) / (m! C(d, m)), e_m the sum of all products of m of
        them. L. Ramshaw, "Blossoms are polar forms", 1989.
        """
        knots = [range(r - self.degree + 1, r + 1) for r in range(self.degree + 1)]
        points = np.array(
            [
                [
                    sum(math.prod(k - time for k in factors) for factors in combinations(line, m))
                    / (math.factorial(m) * math.comb(self.degree, m))
                    for m in range(4)
                ]
                for line in knots
            ]
        )
        # cuRobo ignores the jerk of the start with degree 3
        if self.convention == "curobo" and self.degree == 3:
            points[:, 3] = 0.0
        return points


@functools.lru_cache(maxsize=64)
def basis_table(degree: int, steps: int) -> Floats:
    """Computes weights on differences of control points one unit apart, [phase, order, difference].

    The local times are phase/steps for phase = 0..steps. The basis on one segment is
    N_i(s) = Σ_k (−1)ᵏ C(d+1, k) (s + d − i − k)ᵈ / d!, k ≤ d − i, expanded in powers of s;
    C. de Boor, "A Practical Guide to Splines", ch. IX.
    """
    # [power, order, point], times (d − m)!: integers, which are rounded once at the end
    scaled = np.zeros((degree + 1, 4, degree + 1), np.int64)
    for power, order, point in np.ndindex(scaled.shape):
        exponent = degree - order
        scaled[power, order, point] = sum(
            (-1) ** k
            * math.comb(degree + 1, k)
            * math.comb(exponent, power)  # 0 above the exponent
            * (degree - point - k) ** max(exponent - power, 0)
            for k in range(degree - point + 1)
        )
    scaled = on_differences(scaled, (degree + 1) // 2)
    factorials = np.array([[math.factorial(degree - order)] for order in range(4)])
    time = np.arange(steps + 1) / steps
    table = np.zeros((steps + 1, 4, degree))
    # Horner's rule in the local time, which would turn a zero at the end into a rounding error
    for coefficients in reversed(scaled / factorials):
        table = table * time[:, None, None] + coefficients
    table[-1] = scaled.sum(0) / factorials
    return without_rounding(table)
