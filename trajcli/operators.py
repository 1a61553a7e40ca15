"""Returns modes as matrices: [p; v; a; j] = A·u + C·s + G·g, the same for every dof.

The columns are what the kernels compute from unit vectors.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from trajcli.arrays import as_array, to_numpy
from trajcli.checks import require_counts, shape_faults
from trajcli.errors import InputError, UsageError, raise_if_any
from trajcli.inputs import Inputs
from trajcli.kernels.choose import choose
from trajcli.kernels.program import Band
from trajcli.modes import PARTS, Mode, make_mode

Array = Any
"""numpy.ndarray, float64."""

# Smaller entries, relative to the largest of their row, are zeros with a rounding error.
_CANCELLED = 2.0**-50


@dataclass(frozen=True, eq=False)
class Operator:
    """A mode as matrices, x = A·u + C·s (+ G·g) for one dof, as ``operator`` returns it.

    x [4·T] holds the positions of all rows, then their velocities, accelerations and jerks; u [H]
    are the actions; s and g [4] are position, velocity, acceleration and jerk of the start and the
    goal state.

    Attributes:
        A: float64 [4·T, H].
        C: [4·T, 4]; None for a recording.
        G: [4·T, 4]; None without ``ends="goal"``.
        time: seconds from the start, [T].
        mode: the mode, with its ``options``.
    """

    A: Array
    C: Array | None
    G: Array | None
    time: Array
    mode: str
    options: dict[str, Any] = field(default_factory=dict)

    def rows(self, quantity: str) -> slice:
        """Returns the rows of a quantity: ``A[operator.rows("jerk")]`` is [T, H]."""
        if quantity not in PARTS:
            expected, found = ", ".join(PARTS), repr(quantity)
            raise UsageError("unknown quantity", where="quantity", expected=expected, found=found)
        begin = PARTS.index(quantity) * len(self.time)
        return slice(begin, begin + len(self.time))


def operator(
    horizon: int,
    dt: Array | float | None = None,
    mode: str = "acceleration",
    *,
    times: Array | None = None,
    start: Literal["first"] | None = None,
    scheme: str | None = None,
    ends: str | None = None,
    degree: int | None = None,
    steps: int | None = None,
    window: int | str | None = None,
    frames: str | None = None,
    convention: str | None = None,
) -> Operator:
    """Returns a mode as dense matrices, for the actions of one trajectory and dof.

    Entries of central and bspline are right to 1e-15 of the largest in their row, those of sums to
    1e-16·H.

    Parameters:
        horizon: the number of actions H.
        dt: the step in seconds, a number or one per step [H].
        mode: as for ``integrate``, or savgol.
        times: instead of dt, the stamps of all rows [H + 1].
        start: ``"first"`` where the actions are a recording, with H − 1 steps and H stamps.
        window: of savgol, a number of rows or seconds; the other options are those of
            ``integrate``.

    Raises:
        InputError, UsageError: as ``integrate`` does, and for matrices larger than memory.
    """
    options = {"scheme": scheme, "ends": ends, "degree": degree, "window": window}
    options |= {"steps": steps, "frames": frames, "convention": convention}
    made = make_mode(mode, **options)
    if not (start is None or (isinstance(start, str) and start == "first")):
        raise UsageError(
            "unknown start",
            where="start",
            expected="first (a recording), or none: a matrix multiplies any start state",
            found=repr(start),
        )
    recorded = start == "first" or ends == "recording"
    require_counts(horizon=horizon)
    _require_memory(made, horizon, recorded)
    zero = np.zeros((1, 1))
    inputs = Inputs(
        mode=made,
        actions=np.broadcast_to(0.0, (1, horizon, 1)),
        start={} if recorded else {"position": zero},
        goal={"position": zero} if ends == "goal" else {},
        dt=None if dt is None else to_numpy(as_array(dt, "dt")).astype(np.float64),
        times=None if times is None else to_numpy(as_array(times, "times")),
        recorded=recorded,
        names={"actions": "horizon"},
    )
    raise_if_any(shape_faults(inputs))
    of_actions, of_start, of_goal = _columns(inputs)
    return Operator(
        A=of_actions,
        C=None if recorded else of_start,
        G=of_goal if inputs.goal else None,
        time=inputs.row_times()[0],
        mode=made.name,
        options=made.options(recorded),
    )


def _require_memory(mode: Mode, horizon: int, recorded: bool) -> None:
    """Raises UsageError for matrices larger than the memory of the machine."""
    # four quantities, H + 8 columns, 8 bytes, and three copies while they are made
    needed = 4 * mode.rows(int(horizon), recorded) * (horizon + 8) * 8 * 3
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > present:
        raise UsageError(
            "matrices that do not fit into memory",
            where=f"horizon {horizon}",
            expected=f"at most {present:.3g} bytes, the memory of this machine",
            found=f"about {needed:.3g} bytes",
            hint="a shorter horizon",
        )


def _columns(inputs: Inputs) -> list[Array]:
    """Returns A, C and G: the outputs of unit vectors as actions, start and goal, one per dof."""
    horizon = inputs.horizon
    # each column is a dof of its own: H actions, 4 parts of the start, 4 of the goal
    actions = np.eye(horizon, horizon + 8)[None]
    units = np.eye(8, horizon + 8, horizon)[:, None]
    start, goal = (dict(zip(PARTS, parts, strict=True)) for parts in (units[:4], units[4:]))
    outputs = replace(inputs, actions=actions, start=start, goal=goal).compute(
        choose("cpu"), "float64", PARTS
    )
    table = np.concatenate([outputs[part][0] for part in PARTS])  # [4·T, H + 8]
    if not np.isfinite(table).all():
        raise InputError(
            "steps so small or large that entries are beyond float64",
            where=inputs.name("dt"),
            expected="dt like 0.02, in seconds",
        )
    blocks = np.split(table, (horizon, horizon + 4), axis=1)
    of_actions, *of_states = (np.ascontiguousarray(block) for block in blocks)
    if isinstance(inputs.program(), Band):
        size = abs(of_actions)
        of_actions[size < _CANCELLED * size.max(1, initial=0.0, keepdims=True)] = 0.0
    return [of_actions, *of_states]
