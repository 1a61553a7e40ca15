"""Central differences: five-point stencils on positions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from trajcli.arrays import (
    columns_at,
    concatenate,
    constant,
    differentiable,
    leading,
    namespace,
    pair,
    settled,
    stack,
)
from trajcli.errors import Fault
from trajcli.kernels.pairs import Array, Pair
from trajcli.kernels.program import BandProgram, Held, StatePoints, Unit, Weights, Windows
from trajcli.modes.mode import Carried, Case, FramedMode, Parts, needs_start
from trajcli.modes.pulling import NONE, Pulled, PulledProgram, sums, widened
from trajcli.modes.stencils import (
    derivative_weights,
    evenly_spaced,
    gap_gradient,
    spacing,
    state_points_adjoint,
    taylor,
)
from trajcli.modes.stretch import Range, Stretch, times_at, under

WINDOW = 5
MIDDLE = 2

CUROBO_PAST = {1: Fraction(-7, 6), 2: Fraction(-4, 3), 3: Fraction(-3, 2)}
"""cuRobo 0.7's jerk coefficients of the points k steps before the start."""


@dataclass(frozen=True)
class Central(FramedMode):
    """Positions are given; derivatives by five-point stencils, fourth order (jerk: second).

    Exact for quartic positions away from the ends. ``ends``: ``plan`` (default) extends by the
    start state's Taylor polynomial and holds the last action; ``recording`` (default for a
    recording) uses one-sided windows and stays exact for quartics; ``goal`` ends at rest on the
    goal position.
    """

    name = "central"
    formula = "p = u; v, a, j from the five-point stencil on p_{t−2} … p_{t+2}"
    needs = "start position (recording: none, five rows)"
    gives = "H + 1 (recording: H; curobo: H + 4)"

    ends: str | None = None
    convention: str = "standard"

    def faults(self, case: Case) -> list[Fault]:
        found = [*needs_start(case), *self.frames_faults(case), *self._end_faults(case)]
        if self.convention == "curobo" and self.frames != "full":
            found.append(
                Fault("central with convention curobo has rows of its own", "frames", "none given")
            )
        if case.recorded and self.convention == "curobo":
            found.append(Fault("convention curobo knows no recordings", "start", "a start state"))
        return found

    def _end_faults(self, case: Case) -> list[Fault]:
        found = []
        if self.ends == "recording" and not case.recorded:
            hint = "leave the start out, or use --ends plan"
            found.append(
                Fault("a recording has no separate start state", "start", "none", "given", hint)
            )
        if case.recorded and self.ends not in (None, "recording"):
            found.append(
                Fault("a recording ends where it ends", "ends", "recording", self.ends or "")
            )
        if case.recorded and case.horizon < WINDOW:
            found.append(
                Fault(
                    "too few rows for five-point stencils",
                    "actions",
                    f"a recording of at least {WINDOW} rows",
                    str(case.horizon),
                    "--mode clique differences recordings of any length",
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
        moving = sorted(case.goal - {"position"})
        if moving:
            found.append(
                Fault(
                    "mode central comes to rest on its goal",
                    "goal",
                    "a goal position alone",
                    ", ".join(moving),
                    "--mode bspline --ends goal reaches a moving goal state",
                )
            )
        return found

    def options(self, recorded: bool = False) -> dict[str, Any]:
        ends = self.ends or ("recording" if recorded else "plan")
        return {**super().options(recorded), "ends": ends}

    def rows(self, horizon: int, recorded: bool) -> int:
        return horizon + 4 if self.convention == "curobo" else super().rows(horizon, recorded)

    def row_times(
        self, dt: Array, stretch: Stretch, before: Pair | None = None
    ) -> tuple[Array, Pair | None]:
        if self.convention == "standard":
            return super().row_times(dt, stretch, before)
        first, end = stretch.rows[0] - 1, min(stretch.rows[1] - 1, stretch.horizon + 1)
        times, after = times_at(dt, stretch, (max(first, 0), end), before)
        beyond = range(1, stretch.rows[1] - end)  # rows after that of the last action
        last = [times[:, -1, None] + float(k) * dt[:, -1, None] for k in beyond]
        return concatenate([*([-dt[:, 0, None]] if first < 0 else []), times, *last], 1), after

    def _padding(self) -> tuple[int, int]:
        """Points before the first action, and copies of the last one after it."""
        return (2, 2) if self.convention == "standard" else (4, 4)

    def lead(self, recorded: bool) -> int:
        return super().lead(recorded) if self.convention == "standard" else 0

    def stretch(self, rows: Range, horizon: int, recorded: bool) -> Stretch:
        if recorded:
            begin, end = (_window_within(row, horizon) for row in (rows[0], rows[1] - 1))
            end += WINDOW
            return Stretch(rows, (begin, end), (begin, end - 1), horizon)
        lead, (head, _) = self.lead(recorded), self._padding()
        points = max(rows[0] - lead, 0), rows[1] - lead + WINDOW - 1
        actions = under(points, head, self.used(horizon), horizon)
        return Stretch(rows, actions, actions, horizon)

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
        if recorded:
            return self._recording(stretch, actions, dt)
        lead, (head, held) = self.lead(recorded), self._padding()
        tail: StatePoints | Held | None = None
        if stretch.closes:
            actions = leading(actions, self.used(stretch.horizon) - stretch.actions[0])
        count = int(actions.shape[1])
        step = spacing(dt[:, 0, None])
        if stretch.closes and count and self.ends == "goal":  # in place of the last action
            hold = ((Fraction(1), *(Fraction(0),) * 3),) * (held + 1)
            actions, tail = actions[:, :-1], StatePoints(goal, hold, step)
        elif stretch.closes and count:  # frames curobo drops an only action: the start row alone
            tail = Held(held)
        first = max(stretch.rows[0] - lead, 0)
        offset = first - (0 if stretch.opens else stretch.actions[0] + head)
        rows = max(stretch.rows[1] - lead - first, 0)
        gaps = _padded_gaps(
            dt,
            count,
            before=head - 1 if stretch.opens else None,
            after=held if stretch.closes else 0,
        )
        where = Windows(rows, max(rows - 1 + offset, 0), offset)
        return BandProgram(
            actions=actions,
            head=StatePoints(start, self._head(), step) if stretch.opens else None,
            tail=tail,
            weights=_weights(gaps, where, (MIDDLE, MIDDLE)),
            start=start if stretch.rows[0] == 0 and lead else None,
        )

    def _recording(self, stretch: Stretch, actions: Array, dt: Array) -> BandProgram:
        rows, begin = stretch.rows, stretch.actions[0]
        last = _window_within(rows[1] - 1, stretch.horizon)
        where = Windows(rows[1] - rows[0], last - begin, shift=max(MIDDLE - rows[0], 0))
        return BandProgram(
            actions=actions,
            head=None,
            tail=None,
            weights=_weights(dt, where, (rows[0] - begin, rows[1] - 1 - last)),
        )

    def _head(self) -> tuple[tuple[Fraction, ...], ...]:
        """Points before the first action, the last of them the start: of its polynomial."""
        if self.convention == "standard":
            return taylor(Fraction(-1)), taylor(Fraction(0))
        past = [
            (Fraction(1), Fraction(-k), Fraction(k * k, 2) - 2 * k, CUROBO_PAST[k])
            for k in (3, 2, 1)
        ]
        return *past, taylor(Fraction(0))

    def pull_back(
        self,
        found: PulledProgram,
        stretch: Stretch,
        start: Parts,
        goal: Parts,
        dt: Array,
        recorded: bool,
    ) -> Pulled:
        if recorded:
            return Pulled(found.actions, steps=self._steps(found, dt, stretch.horizon, True))
        program = found.program
        assert program is not None
        assert program.head is not None
        actions, of_goal, used = found.actions, list(NONE), self.used(stretch.horizon)
        of_start, of_tau = state_points_adjoint(program.head, found.head)
        if isinstance(program.tail, StatePoints):
            of_goal, _ = state_points_adjoint(program.tail, found.tail)
        steps = self._steps(found, dt, used, False)
        if steps is not None:
            steps[:, :1] += of_tau
        start_grads = sums(of_start, found.state)
        return Pulled(widened(actions, stretch.horizon), start_grads, of_goal, steps)

    def _steps(self, found: PulledProgram, dt: Array, used: int, recorded: bool) -> Array | None:
        """The gradient of the steps through the weights, [B, 1 or n]; None if nobody asks."""
        if not found.of_dt:
            return None
        assert found.program is not None
        if dt.shape[1] == 1 or used == 0:
            return widened(found.spacing(dt[:, :1]), dt.shape[1])
        where = found.program.weights.where
        first = where.first
        head, held = self._padding()
        gaps = dt if recorded else _padded_gaps(dt, used, head - 1, held)
        place = np.arange(len(first)) - first if recorded else np.full(len(first), MIDDLE)
        of_gaps = gap_gradient(gaps, first, place, found.padded(), found.upstream)
        if recorded:
            return of_gaps
        steps = np.zeros((len(of_gaps), dt.shape[1]))
        steps[:, :used] = of_gaps[:, head - 1 : head - 1 + used]
        steps[:, 0] += of_gaps[:, : head - 1].sum(1)
        steps[:, used - 1] += of_gaps[:, head - 1 + used :].sum(1)
        return steps


def _window_within(row: int, horizon: int) -> int:
    """Where the window of a recording's row begins: none reaches beyond the data."""
    return min(max(row - MIDDLE, 0), horizon - WINDOW)


def _padded_gaps(dt: Array, count: int, before: int | None, after: int) -> Array:
    """Steps between the points of the padded sequence, [b, 1] if uniform, else [b, n].

    dt: the steps into ``count`` actions. before: copies of the first, for what lies before them;
    None where nothing does, and the step into the first action leads from elsewhere.
    """
    if dt.shape[1] == 1 or count == 0:
        return dt[:, 0, None]
    dt = leading(dt, count)
    first = [dt[:, 0, None]] * before + [dt] if before is not None else [dt[:, 1:]]
    return concatenate([*first, *([dt[:, -1, None]] * after)], 1)


def _weights(gaps: Array, where: Windows, places: Range) -> Weights:
    """Stencils evaluated at the rows' own points: in windows of kind k at their point
    places[0] + k, up to places[1].

    gaps [b, 1] (uniform) or [b, n]: the steps between points.
    """
    if gaps.shape[1] == 1:
        return evenly_spaced(_unit_stencils(*places), where, gaps)
    exact = _stencils(gaps, where, places, lambda values: pair(settled(values)))
    table = stack([stack(row, -1) for row in exact], -2)  # [b, T, 4, 5]
    xp = namespace(gaps)

    def plain() -> Array:
        rows = _stencils(gaps, where, places, lambda values: values)
        return xp.stack([xp.stack(row, -1) for row in rows], -2)

    return Weights(differentiable(table, plain), replace(where, each=True))


def _stencils(
    gaps: Array, where: Windows, places: Range, number: Callable[[Array], Any]
) -> list[list[Any]]:
    """weights[order][point], each [b, T]: of windows on unequal steps, as numbers of a kind."""
    zero = columns_at(gaps, where.first) * 0.0
    times = [number(zero)]  # of the window's points, from its first
    for i in range(WINDOW - 1):
        times.append(times[-1] + number(columns_at(gaps, where.first + i)))
    here = times[places[0]]
    for i in range(places[0], places[1]):
        later = number(constant(where.kind + places[0] > i, gaps))
        here = here + (times[i + 1] - times[i]) * later
    return derivative_weights(times, here, number(zero + 1.0))


@functools.cache
def _unit_stencils(first: int, last: int) -> Unit:
    """Those at points ``first`` to ``last`` of five that are one unit apart."""
    points = [Fraction(i) for i in range(WINDOW)]
    return Unit(
        tuple(map(tuple, derivative_weights(points, Fraction(place), Fraction(1))))
        for place in range(first, last + 1)
    )
