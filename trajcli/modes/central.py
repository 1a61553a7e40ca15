"""Central differences: five-point stencils, and weights of finite differences on any points."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from trajcli.arrays import concatenate
from trajcli.errors import Fault
from trajcli.kernels.program import Array, Band, Floats, NumpyArray, Windows
from trajcli.modes.mode import AlignedMode, Case, times_after

WINDOW = 5
MIDDLE = 2


@dataclass(frozen=True)
class Central(AlignedMode):
    """The actions are positions, with derivatives of fourth order (jerk: second) by five points.

    Away from the ends they are exact for quartic positions. ``ends`` says what is beyond:
    ``plan`` (default) continues the Taylor polynomial of the start state and holds the last action;
    ``recording`` (default for a recording) has one-sided windows, and stays exact for quartics;
    ``goal`` ends at rest on the goal position.
    """

    name = "central"
    least_rows = WINDOW

    ends: str | None = None
    convention: str = "standard"

    @property
    def copies_actions(self) -> bool:
        return self.convention == "standard"

    def faults(self, case: Case) -> Iterator[Fault]:
        yield from super().faults(case)
        if case.recorded and self.ends not in (None, "recording"):
            what, found = "a recording ends where it ends", self.ends or ""
            yield Fault(what, where="ends", expected="recording", found=found)
        if case.recorded and case.horizon < self.least_rows:
            yield Fault(
                "too few rows for five-point stencils",
                where="actions",
                expected=f"a recording of at least {self.least_rows} rows",
                found=str(case.horizon),
                hint="method backward differences recordings of any length",
            )
        if moving := sorted(case.goal - {"position"}):
            yield Fault(
                "mode central comes to rest on its goal",
                where="goal",
                expected="a goal position alone",
                found=", ".join(moving),
                hint='mode="bspline" with ends="goal" reaches a moving goal state',
                shell="--mode bspline --ends goal reaches a moving goal state",
            )
        if self.convention == "curobo" and self.alignment != "full":
            what = "convention curobo fixes the rows of central"
            yield Fault(what, where="alignment", expected="none given")
        if case.recorded and self.convention == "curobo":
            what = "convention curobo knows no recordings"
            yield Fault(what, where="start", expected="a start state")

    def options(self, recorded: bool = False) -> dict[str, Any]:
        ends = self.ends or ("recording" if recorded else "plan")
        return {**super().options(recorded), "ends": ends}

    def row_count(self, horizon: int, recorded: bool) -> int:
        return horizon + 4 if self.convention == "curobo" else super().row_count(horizon, recorded)

    def row_times(self, dt: Array, horizon: int, recorded: bool) -> Array:
        if self.convention == "standard":
            return super().row_times(dt, horizon, recorded)
        times = times_after(dt, 0, horizon + 1)
        # cuRobo has a row before the start and two after the end
        after = [times[:, -1, None] + k * dt[:, -1, None] for k in (1.0, 2.0)]
        return concatenate([-dt[:, 0, None], times, *after], 1)

    def program(self, horizon: int, recorded: bool, uneven: bool) -> Band:
        if recorded:
            # one stencil for each row in the window: one-sided at the ends
            rows = tuple(range(WINDOW))
            return Band(
                used=horizon,
                steps=horizon - 1,
                windows=Windows(horizon, horizon - WINDOW, shift=MIDDLE),
                width=WINDOW,
                base=rows,
                table=None if uneven else _stencils(*rows),
            )
        if self.convention == "standard":
            # points on the polynomial of the start state: one step before it, and the start itself
            head = np.array([[1.0, -1.0, 1 / 2, -1 / 6], [1.0, 0.0, 0.0, 0.0]])
        else:
            # position, velocity and acceleration as cuRobo 0.7 extrapolates them k steps back, and
            # the coefficients that it has for jerk
            jerks = ((3, -3 / 2), (2, -4 / 3), (1, -7 / 6))
            past = [(1, -k, k * k / 2 - 2 * k, jerk) for k, jerk in jerks]
            head = np.array([*past, (1, 0, 0, 0)], np.float64)
        # rows 0..H−1 of cuRobo leave no row for the state after the last action
        used = horizon - int(self.alignment == "curobo")
        held = 2 if self.convention == "standard" else 4
        # the rows of cuRobo go on behind the last action, which it holds for two steps more
        to_goal = self.ends == "goal" and used > 0
        count = used + len(head) + held - (WINDOW - 1) if used else 0
        return Band(
            used=used - to_goal,
            steps=used,
            head=head,
            # the goal, at rest, replaces the last action and is held
            tail=np.tile([1.0, 0.0, 0.0, 0.0], (held + 1 if to_goal else 0, 1)),
            held=0 if to_goal else held,
            windows=Windows(count, max(count - 1, 0)),
            width=WINDOW,
            base=(MIDDLE,),
            table=None if uneven and used > 0 else _stencils(MIDDLE),
            # cuRobo has the row of the start state among its five-point differences
            start_row=self.start_row(recorded) and self.convention == "standard",
        )


@functools.cache
def _stencils(*rows: int) -> Floats:
    """Computes weights on differences of five points one unit apart, [row, order, 4].

    ``rows`` are the points of the window that derivatives are taken at. The weights are derivatives
    of the Lagrange polynomials, the closed form of B. Fornberg, "Generation of finite difference
    formulas on arbitrarily spaced grids", Math. Comp. 51 (1988).
    """
    table = []
    for row in rows:
        points, weights = np.arange(WINDOW) - row, np.zeros((4, WINDOW), int)
        for i, point in enumerate(points):
            others = np.delete(points, i)
            # the m-th derivative of Π (x − other) at the row is m! times the coefficient of xᵐ
            derivatives = np.poly(others)[::-1][:4] * (1, 1, 2, 6)
            # 24 is a multiple of these products: sums of integers are exact, and rounded once
            weights[:, i] = derivatives * (24 / np.prod(point - others))
        table.append(on_differences(weights, row) / 24)
    return np.array(table)


def on_differences(weights: NumpyArray, base: NumpyArray | int) -> NumpyArray:
    """Turns weights on points [..., W] into weights on the differences of neighbours.

    Equal positions then have derivatives of exactly zero, wherever they lie.
    Σ_i w_i X_i is X_base·Σ w_i + Σ_i c_i (X_{i+1} − X_i), where c_i is the sum of the weights
    beyond the difference, seen from the base, and negative on its left. Weights of derivatives sum
    to zero.
    """
    after = weights[..., :0:-1].cumsum(-1)[..., ::-1]
    before = weights[..., :-1].cumsum(-1)
    return np.where(np.arange(weights.shape[-1] - 1) >= base, after, -before)


def without_rounding(table: Floats) -> Floats:
    """Makes weights on differences [..., N] equal where only rounding differs."""
    # the point between two equal weights has weight zero, and kernels leave it out
    close = 1e-13 * np.abs(table).max(-1, initial=0.0)
    for i in range(1, table.shape[-1]):
        same = np.abs(table[..., i] - table[..., i - 1]) <= close
        table[..., i] = np.where(same, table[..., i - 1], table[..., i])
    return table
