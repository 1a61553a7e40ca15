"""The base of the modes: name, options, checks, rows, and a program for the kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, get_args

from trajcli.arrays import arange, columns, elapsed
from trajcli.errors import Fault
from trajcli.kernels.program import Array, Booleans, Floats, Integers, Program, Smoother
from trajcli.names import QuantityName

QUANTITIES: tuple[str, ...] = get_args(QuantityName)
"""The parts of a state and the outputs, by order of derivative."""


def promise(rows: int) -> float:
    """Bounds the error before rounding, as a share of the largest magnitude: docs/numbers.md."""
    # a sum of n terms is off by up to half an ulp of float64, 1.1e-16, for each of them
    return max(1e-12, 1.2e-16 * rows)


@dataclass(frozen=True)
class Case:
    """The shape of a job, with the parts of start and goal, for the checks of its mode."""

    horizon: int
    start: frozenset[str]
    goal: frozenset[str]
    recorded: bool
    # dt has an entry per step, not one per trajectory
    steps_vary: bool


@dataclass(frozen=True, eq=False)
class Smoothed:
    """The results of mode smooth for recordings [B, T, D], and the program that smooths them.

    Attributes:
        results: by name and dof [B, D]: the ``bandlimit`` in Hz (NaN: nothing was chosen), the
            deviation of the ``residual`` and, where robust, the number of rows ``reweighted``.
        guessed: the rows within long gaps, [B, T, D].
        doubts: for each kind of doubt the dofs that it concerns, [B, D].
    """

    program: Smoother
    results: Mapping[str, Any]
    guessed: Booleans | None = None
    doubts: Mapping[str, Booleans] = field(default_factory=dict)


@dataclass(frozen=True)
class Mode:
    """The base of the modes, whose options are their dataclass fields.

    Attributes:
        action_order: the order of the actions, from 0 (position) to 3 (jerk).
        is_linear: its actions are linear between the rows.
        integrates_rotations: it has a row for each action that rotations can be composed to.
        takes_start: it integrates from a start state; else it differentiates recordings alone.
        least_rows: the fewest rows that a recording may have.
        dt_ahead: the entry of dt that is the step from row 0 to row 1.
        causal: no row depends on actions after it; a longer horizon has the same rows first.
        result_names: the names of what it chooses by the values, as :meth:`prepare` does.
    """

    name: ClassVar[str]
    action_order: ClassVar[int] = 0
    takes_start: ClassVar[bool] = True
    causal: ClassVar[bool] = False
    result_names: ClassVar[Sequence[str]] = ()
    # properties of modes where an option decides them
    is_linear = False
    integrates_rotations = False
    least_rows = 1
    dt_ahead = 0

    @classmethod
    def option_names(cls) -> tuple[str, ...]:
        return tuple(field.name for field in fields(cls))

    def options(self, recorded: bool = False) -> dict[str, Any]:
        """Lists the options and their values, as files and trajectories state them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def faults(self, case: Case) -> Iterator[Fault]:
        """Yields the reasons why this mode cannot run a case."""
        if not self.takes_start and not case.recorded:
            what, hint = f"mode {self.name} differentiates recordings", 'start="first"'
            yield Fault(what, where="start", expected="none", found="a start state", hint=hint)
        # a recording starts from its own first row
        elif not case.recorded and "position" not in case.start:
            yield Fault(
                "no start position",
                where="start",
                expected="a start state (position, and optionally velocity, acceleration, jerk)",
                found="none given, and none in the input",
                hint='start="zero" or a State; recorded positions: trajcli.differentiate(...)',
                shell="--start zero or --start FILE[:GROUP]; "
                "recorded positions: trajcli differentiate",
            )
        # a goal needs a mode with an end that it replaces
        options = self.options()
        if "ends" not in options and case.goal:
            what = f"mode {self.name} takes no goal state"
            found = ", ".join(name for name in QUANTITIES if name in case.goal)
            hint = 'leave the goal out, or use mode="bspline" or "central" with ends="goal"'
            shell = "leave the goal out, or use --mode bspline or central with --ends goal"
            yield Fault(what, where="goal", expected="none", found=found, hint=hint, shell=shell)
        elif options.get("ends") == "goal" and "position" not in case.goal:
            what, expected = "ends goal needs a goal position", "goal position"
            yield Fault(what, where="goal", expected=expected, found="none given")
        elif options.get("ends") != "goal" and case.goal:
            what, hint = "a goal state is used with ends goal only", 'ends="goal"'
            yield Fault(what, where="goal", expected="none", hint=hint, shell="--ends goal")

    def row_count(self, horizon: int, recorded: bool) -> int:
        """Counts the rows T per trajectory of ``horizon`` actions."""
        return horizon

    @property
    def copies_actions(self) -> bool:
        """Whether the rows hold the actions unchanged."""
        return self.takes_start

    @property
    def reads_steps(self) -> bool:
        """Whether the program depends on the values of the steps: see :meth:`stepped_program`."""
        return bool(self.result_names)

    def row_times(self, dt: Array, horizon: int, recorded: bool) -> Array:
        """Computes the times of the rows in seconds, float64 [b, T]; the start state is at 0."""
        return times_after(dt, 0, self.row_count(horizon, recorded))

    def select_dofs(self, dofs: Sequence[int]) -> Mode:
        return self

    def select_trajectories(self, numbers: Integers) -> Mode:
        return self

    def trapezoidal(self, options: Mapping[str, Any]) -> Mode:
        """Makes the mode integrate rates with a time stamp each; raises UsageError if it cannot."""
        raise NotImplementedError

    def scale_noise(self, per_si: Floats) -> Mode:
        """Converts noise to SI, from a unit of which one SI unit has ``per_si`` [1 or D]."""
        return self

    def program(self, horizon: int, recorded: bool, uneven: bool) -> Program:
        """Makes the program for the kernels; ``uneven``: dt has an entry per step."""
        raise NotImplementedError

    def stepped_program(self, shape: Sequence[int], steps: Floats) -> Program:
        """Makes the program for recordings of a shape [B, T, D] at steps [b, 1 or T − 1]."""
        raise NotImplementedError

    def prepare(
        self, values: Floats | None, shape: Sequence[int], steps: Floats, kernels: Any, where: str
    ) -> Smoothed:
        """Chooses results for recordings of a shape by their values, and makes the program."""
        raise NotImplementedError


@dataclass(frozen=True)
class AlignedMode(Mode):
    """A mode whose rows are the start and the actions, as ``alignment`` says.

    full: rows 0..H · actions: rows 1..H · curobo: rows 0..H−1, the last action is unused.
    """

    alignment: str = "full"

    def row_count(self, horizon: int, recorded: bool) -> int:
        return horizon + 1 if self.alignment == "full" and not recorded else horizon

    def faults(self, case: Case) -> Iterator[Fault]:
        yield from super().faults(case)
        if case.recorded and self.alignment != "full":
            what = "a recording has no separate start row to keep or drop"
            expected = "full with a recording"
            yield Fault(what, where="alignment", expected=expected, found=self.alignment)

    def start_row(self, recorded: bool) -> bool:
        return self.alignment != "actions" and not recorded

    def row_times(self, dt: Array, horizon: int, recorded: bool) -> Array:
        # without the start row, row 0 is one step later
        since = int(self.alignment == "actions")
        return times_after(dt, since, since + self.row_count(horizon, recorded))


def times_after(dt: Array, first: int, last: int) -> Array:
    """Computes the times after first … last − 1 steps, float64 [b, last − first]."""
    # products of one step are right to half an ulp, which sums of many are not
    if dt.shape[1] == 1:
        return dt * arange(first, last, dt)
    return elapsed(columns(dt, 0, max(last - 1, 0)))[:, first:]
