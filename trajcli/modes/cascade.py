"""The cascade: four modes by one relation, xᵐ_t − xᵐ_{t−1} = dt_t · xᵐ⁺¹_t; and teleport.

The modes say which of the relation's quantities the actions are. kernels/program.py has the
coefficients of a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trajcli.errors import Fault, UsageError
from trajcli.kernels import program
from trajcli.kernels.program import Band, Windows
from trajcli.modes.mode import QUANTITIES, AlignedMode, Case


@dataclass(frozen=True)
class CascadeMode(AlignedMode):
    """Actions of one order; lower orders are running sums, higher ones differences.

    The scheme ``euler`` is the relation itself: semi-implicit Euler, of first order. ``zoh`` is
    exact for actions that are constant over each step, ``foh`` for actions that are linear between
    rows. Differences follow the relation in every scheme.
    """

    causal = True

    scheme: str = "euler"
    convention: str = "standard"

    def __post_init__(self) -> None:
        # cuRobo has no row for the state after the last action
        if self.convention == "curobo" and self.alignment == "full":
            object.__setattr__(self, "alignment", "curobo")

    def faults(self, case: Case) -> Iterator[Fault]:
        yield from super().faults(case)
        if self.convention == "curobo" and self.alignment == "actions":
            what = "convention curobo fixes the alignment"
            yield Fault(what, where="alignment", expected="curobo", found=self.alignment)
        # sums need a value to begin with, differences do not
        if case.recorded and self.action_order:
            yield Fault(
                f"a recording of {self.name} has no position to start from",
                where="start",
                expected="a start state for modes that sum",
                found="first",
                hint="leave start out: a matrix multiplies any start state",
            )

    @property
    def is_linear(self) -> bool:  # type: ignore[override]
        return self.scheme == "foh"

    @property
    def integrates_rotations(self) -> bool:  # type: ignore[override]
        return self.alignment == "full"

    def trapezoidal(self, options: Mapping[str, Any]) -> CascadeMode:
        # foh takes the mean of both ends of a step, which is the trapezoidal rule;
        # euler is the default, which nobody need have asked for
        scheme = options.get("scheme") or ("foh" if self.scheme == "euler" else self.scheme)
        if scheme == "foh" and self.convention == "standard":
            return replace(self, scheme="foh")
        raise UsageError(
            f"{QUANTITIES[self.action_order]} with a time stamp for each row",
            where="scheme",
            expected="foh, which is linear between the rows",
            found=f"{self.scheme}, convention {self.convention}",
            hint='scheme="foh"; or a stamp more than actions, that of the start',
            shell="--scheme foh; or a stamp more than actions, that of the start",
        )

    @property
    def dt_ahead(self) -> int:  # type: ignore[override]
        # dt[t] of cuRobo is the step into row t, and dt[0] is unused
        return int(self.convention == "curobo")

    def program(self, horizon: int, recorded: bool, uneven: bool) -> program.Cascade:
        return program.Cascade(
            action_order=self.action_order,
            scheme=self.scheme,
            # rows 0..H−1 of cuRobo leave no row for the state after the last action
            used=horizon - int(self.alignment == "curobo"),
            start_row=self.start_row(recorded),
            recorded=recorded,
        )


class Clique(CascadeMode):
    """The actions are positions; velocity, acceleration and jerk are backward differences."""

    name = "clique"
    action_order = 0


class Velocity(CascadeMode):
    """The actions are velocities."""

    name = "velocity"
    action_order = 1


class Acceleration(CascadeMode):
    """The actions are accelerations."""

    name = "acceleration"
    action_order = 2


class Jerk(CascadeMode):
    """The actions are jerks."""

    name = "jerk"
    action_order = 3


@dataclass(frozen=True)
class Teleport(AlignedMode):
    """The actions are positions; velocity, acceleration and jerk are zero."""

    name = "teleport"
    causal = True

    def program(self, horizon: int, recorded: bool, uneven: bool) -> Band:
        used = horizon - int(self.alignment == "curobo")
        return Band(
            used=used,
            steps=used,
            # each window is one point, whose differences have no weights: all rates are zero
            windows=Windows(used, max(used - 1, 0)),
            width=1,
            base=(0,),
            table=np.zeros((1, 4, 0)),
            start_row=self.start_row(recorded),
        )
