"""Modes, and building blocks for trajectory optimisation, as dense float64 matrices.

The columns of a mode are what the kernels compute from unit vectors. The building blocks multiply
an array [n, D] of time steps from the left. They do what cuRobo's ``integration_utils`` do, with
one rule for the ends and steps that may differ. Where dt is a tensor, matrices are tensors on its
device, differentiable by it; else they are NumPy arrays.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from trajcli import _prepared
from trajcli.arrays import (
    as_array,
    concatenate,
    float64,
    library,
    match_library,
    read_values,
    readable,
    require_counts,
    step_faults,
    to_numpy,
)
from trajcli.errors import InputError, UsageError, describe, raise_if_any, unknown, wrong_shape
from trajcli.inputs import Inputs
from trajcli.kernels.program import Array, ArrayLike, Band, Floats
from trajcli.modes import QUANTITIES, make_mode
from trajcli.names import AlignmentName, ConventionName, EndsName, ModeName, SchemeName

__all__ = ["Operator", "clique_matrix", "difference_matrix", "hold_matrix", "integration_matrix",
           "linear_matrix", "linspace", "operator", "ramp_and_hold_matrix",
           "start_state_masks"]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)


# Smaller entries, relative to the largest of their row, are zeros with a rounding error.
_CANCELLED = 2.0**-50


def difference_matrix(
    n: int,
    order: int = 1,
    dt: ArrayLike | float = 1.0,
    *,
    shifted: bool = False,
    previous: bool = False,
) -> Array:
    """Builds finite differences of n rows, [n, n], or [n, order + n] with previous states.

    Row t of D·x is the backward difference of ``order``, (x_t − x_{t−1})/dt_t repeated. The first
    ``order`` rows, which would need rows before the first, are zero.

    Parameters:
        dt: seconds, a number, or [n] with dt[t] the step from row t − 1 to row t; dt[0] is used
            only with ``previous``, for the step into row 0 and those before it.
        shifted: forward differences: row t is the backward difference of row t + order, and the
            last ``order`` rows are zero.
        previous: the columns begin with the ``order`` rows before the first, and no row is zero.

    Raises:
        UsageError: wrong shapes, or ``shifted`` with ``previous``.
    """
    require_counts(n=n, order=order)
    if shifted and previous:
        what = "shifted differences need no previous states"
        raise UsageError(what, where="previous", expected="one of the two")
    steps = _steps(n, dt)
    # the rows before the first belong to a larger matrix, and are dropped at the end
    size = n + order if previous else n
    steps = concatenate([steps[:1].repeat(size - n), steps], 0)
    matrix, zeros = (match_library(x, steps) for x in (np.eye(size), np.zeros((size, size))))
    for _ in range(order):
        matrix = (matrix - concatenate([zeros[:1], matrix[:-1]], 0)) / steps[:, None]
    if previous:
        return matrix[order:]
    # forward differences are the same rows, moved up by the order
    parts = [zeros[:order], matrix[order:]]
    return concatenate(parts[::-1] if shifted else parts, 0)


def integration_matrix(
    n: int, order: int = 1, dt: ArrayLike | float = 1.0, *, offset: int = 0
) -> Array:
    """Builds running sums [n, n]: row t of S·u is Σ_{r ≤ t + offset} dt_r·u_r, ``order`` times.

    The start state is not included.

    Parameters:
        dt: seconds, a number or [n], dt[r] the duration of u_r.
        offset: with 0 row t includes u_t, as in the modes (semi-implicit Euler); with −1 all
            ``order`` sums end before it.

    Raises:
        UsageError: wrong shapes.
    """
    require_counts(n=n, order=order)
    require_counts(-n, offset=offset)
    steps = _steps(n, dt)
    # each sum is a lower triangle of ones, whose columns are scaled by the steps
    once = match_library(np.tri(n, n, offset), steps) * steps
    return library(once).linalg.matrix_power(once, order)


def start_state_masks(n: int) -> tuple[Array, Array]:
    """Builds ``place`` [n, 1] and ``rest`` [n, n], for row 0 to be the start [1, D].

    place·start + rest·x is x [n, D] with row 0 replaced.
    """
    require_counts(n=n)
    return np.eye(n, 1), np.diag(np.minimum(np.arange(n), 1.0))


def clique_matrix(n: int, dt: ArrayLike | float) -> Array:
    """Builds the matrix [4·n, 4 + n] from positions to position, velocity, acceleration and jerk.

    The columns are position, velocity, acceleration and jerk of the start state, then n positions.
    The rows are the four quantities at these positions, each the backward difference of the one
    before; they do not depend on the jerk of the start, whose column is zero.

    Parameters:
        dt: seconds, a number or one per step [n], dt[t] the step into position t.
    """
    # alignment actions leaves out the row of the start state, which no position determines
    clique: Any = operator(n, _steps(n, dt), "clique", alignment="actions")
    return concatenate([clique.C, clique.A], 1)


def hold_matrix(n: int, factor: int) -> Array:
    """Builds upsampling that holds each row until the next, [(n − 1)·factor + 1, n].

    Row i·factor + j, 0 ≤ j < factor, is row i.
    """
    require_counts(n=n, factor=factor)
    return _upsampling(n, factor, np.zeros((factor, 1)))


def linear_matrix(n: int, factor: int) -> Array:
    """Builds upsampling along straight lines between rows, [(n − 1)·factor + 1, n].

    Row i·factor + j is row i + j/factor, so that every factor-th row is an input row.
    """
    return ramp_and_hold_matrix(n, factor, 0)


def ramp_and_hold_matrix(n: int, factor: int, hold: int) -> Array:
    """Builds upsampling that ramps to the next row and holds it, [(n − 1)·factor + 1, n].

    A row is reached ``hold`` rows early, 0 ≤ hold < factor; with 0 it is ``linear_matrix``.
    """
    require_counts(n=n, factor=factor)
    require_counts(0, hold=hold)
    if hold >= factor:
        what, expected = "a hold as long as the step", f"0 to {factor - 1}"
        raise UsageError(what, where="hold", expected=expected, found=str(hold))
    return _upsampling(n, factor, np.minimum(np.arange(factor)[:, None] / (factor - hold), 1.0))


def linspace(start: ArrayLike, end: ArrayLike, rows: int) -> Array:
    """Computes straight lines from start to end [..., D], float64 [..., rows, D], with exact ends.

    A single row is the start. Raises UsageError for shapes that do not broadcast.
    """
    require_counts(rows=rows)
    ends = [read_values(as_array(x, name), name) for name, x in (("start", start), ("end", end))]
    a, b = (np.atleast_1d(x.astype(np.float64)) for x in ends)
    try:
        return np.linspace(a, b, rows, axis=-2)
    except ValueError:
        raise UsageError(wrong_shape("end", f"{describe(a.shape)}, as start", b.shape)) from None


def _upsampling(n: int, factor: int, share: Floats) -> Array:
    """Builds upsampling in which row i + 1 has the weight share[j] [factor, 1] in i·factor + j."""
    before, after = np.kron(np.eye(n), 1.0 - share), np.kron(np.eye(n, k=1), share)
    # the last row has no next one to go to
    return (before + after)[: (n - 1) * factor + 1]


def _steps(n: int, dt: ArrayLike | float) -> Array:
    """Reads dt as float64 [n]; raises UsageError for another shape or steps that are not > 0."""
    steps = float64(as_array(dt, "dt"))
    if tuple(steps.shape) not in ((), (n,)):
        raise UsageError(wrong_shape("dt", f"a number or [{n}]", steps.shape))
    if readable(steps):
        raise_if_any(step_faults(to_numpy(steps), "dt"), UsageError)
    return library(steps).broadcast_to(steps, (n,))


@dataclass(frozen=True, eq=False)
class Operator:
    """A mode as matrices, x = A·u + C·s (+ G·g) for one dof, as ``operator`` returns it.

    x [4·T] holds the positions of all rows, then their velocities, accelerations and jerks; u [H]
    are the actions; s and g [4] are position, velocity, acceleration and jerk of the start and the
    goal state. They are tensors where dt or times is one, else NumPy arrays.

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
        """Selects the rows of a quantity: ``A[operator.rows("jerk")]`` is [T, H]."""
        if quantity not in QUANTITIES:
            raise UsageError(unknown("quantity", choices=QUANTITIES, found=repr(quantity)))
        begin = QUANTITIES.index(quantity) * len(self.time)
        return slice(begin, begin + len(self.time))


def operator(
    horizon: int,
    dt: ArrayLike | float | None = None,
    mode: ModeName | Literal["savgol"] = "acceleration",
    *,
    times: ArrayLike | None = None,
    start: Literal["first"] | None = None,
    scheme: SchemeName | None = None,
    ends: EndsName | Literal["recording"] | None = None,
    degree: int | None = None,
    steps: int | None = None,
    window: int | str | None = None,
    alignment: AlignmentName | None = None,
    convention: ConventionName | None = None,
) -> Operator:
    """Builds a mode as dense matrices, for the actions of one trajectory and dof.

    Entries of central and bspline are right to 1e-15 of the largest in their row, those of sums to
    1e-16·H.

    Parameters:
        horizon: the number of actions H.
        dt: the step in seconds, a number or one per step [H]. Where it is a tensor the matrices
            are tensors on its device, differentiable by it.
        mode: as for ``integrate``, or savgol.
        times: instead of dt, the stamps of all rows [H + 1].
        start: ``"first"`` where the actions are a recording, with H − 1 steps and H stamps.
        window: of savgol, a number of rows or seconds; the other options are those of
            ``integrate``.

    Raises:
        InputError, UsageError: as ``integrate`` does, and for matrices larger than memory.
    """
    # a mode takes its own options, and refuses the others by name
    options = {"scheme": scheme, "ends": ends, "degree": degree, "window": window}
    options |= {"steps": steps, "alignment": alignment, "convention": convention}
    kind = make_mode(mode, **options)
    if kind.result_names:
        what = f"mode {mode} is no matrix: it chooses a bandlimit by the values"
        raise UsageError(what, where="mode", expected="savgol, or a mode of integrate")
    if not (start is None or (isinstance(start, str) and start == "first")):
        choices = "first (a recording), or none: a matrix multiplies any start state"
        raise UsageError(unknown("start", choices=choices, found=repr(start)))
    # a file or a Trajectory states ends recording where its actions were a recording
    recorded = start == "first" or ends == "recording"
    require_counts(horizon=horizon)
    # four quantities, H + 8 columns, 8 bytes, and three copies while they are made
    needed = 4 * kind.row_count(int(horizon), recorded) * (horizon + 8) * 8 * 3
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise UsageError(
            "matrices that do not fit into memory",
            where=f"horizon {horizon}",
            expected=f"at most {memory:.3g} bytes, the memory of this machine",
            found=f"about {needed:.3g} bytes",
            hint="a shorter horizon",
        )
    # each column is a dof of its own: H actions, 4 parts of the start, 4 of the goal
    units = np.eye(8, horizon + 8, horizon)[:, None]
    # central comes to rest on its goal, which is a position alone
    aim = QUANTITIES[:1] if kind.name == "central" else QUANTITIES
    inputs = Inputs(
        mode=kind,
        actions=np.eye(horizon, horizon + 8)[None],
        start={} if recorded else dict(zip(QUANTITIES, units, strict=False)),
        goal=dict(zip(aim, units[4:], strict=False)) if ends == "goal" else {},
        dt=None if dt is None else as_array(dt, "dt"),
        times=None if times is None else as_array(times, "times"),
        recorded=recorded,
        names={"actions": "horizon"},
        allow_nonfinite=True,
    )
    # kernels compute all columns as they compute trajectories, with the same numbers
    *rows, time, _, _ = _prepared.run_once(inputs, QUANTITIES, "float64", "auto")
    blocks = slice(horizon), slice(horizon, horizon + 4), slice(horizon + 4, None)
    tables = [concatenate([x[0][:, block] for x in rows], 0) for block in blocks]
    actions, start_parts, goal_parts = tables
    if not all(np.isfinite(to_numpy(x)).all() for x in tables if readable(x)):
        raise InputError(
            "steps so small or large that entries are beyond float64",
            where=inputs.name("dt"),
            expected="dt like 0.02, in seconds",
        )
    # the weights of a window cancel for most actions, and leave rounding where they do
    if isinstance(inputs.program(), Band):
        size = library(actions).abs(actions)
        cancelled = size < _CANCELLED * library(size).amax(size, 1)[:, None]
        actions = library(size).where(cancelled, 0.0, actions)
    return Operator(
        A=actions,
        C=None if recorded else start_parts,
        G=goal_parts if inputs.goal else None,
        time=time,
        mode=kind.name,
        options=kind.options(recorded),
    )
