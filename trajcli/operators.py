"""A mode as matrices: [p; v; a; j] = A·u + C·s + G·g, the same for every dof.

Their columns are what the kernels make of unit vectors.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from trajcli.arrays import as_array, to_numpy
from trajcli.checks import require_counts, shape_faults
from trajcli.errors import Fault, InputError, UsageError, raise_if_any
from trajcli.inputs import Inputs
from trajcli.kernels.choose import choose
from trajcli.kernels.program import Band
from trajcli.modes import PARTS, Mode, make_mode
from trajcli.modes.cascade import Cascade

Array = Any
"""numpy.ndarray, float64."""

_CANCELLED = 2.0**-50
"""An entry this small, relative to the largest of its row, is a rounding error of zero."""


@dataclass(frozen=True, eq=False)
class Csr:
    """A sparse matrix in compressed rows, the format of SciPy.

    ``scipy.sparse.csr_array((m.data, m.indices, m.indptr), shape=m.shape)`` accepts it: row r
    has data[indptr[r]:indptr[r+1]] in the columns indices[indptr[r]:indptr[r+1]].
    """

    data: Array
    indices: Array
    indptr: Array
    shape: tuple[int, int]

    def toarray(self) -> Array:
        """The same matrix, dense."""
        dense = np.zeros(self.shape)
        dense[np.repeat(np.arange(self.shape[0]), np.diff(self.indptr)), self.indices] = self.data
        return dense


Matrix = Any
"""A dense NumPy array, or a ``Csr``."""


@dataclass(frozen=True, eq=False)
class Operator:
    """What ``operator`` returns: x = A·u + C·s (+ G·g) for one dof.

    x [4·T] is position, velocity, acceleration and jerk of all rows, one after the other; u [H]
    the actions; s and g [4] position, velocity, acceleration and jerk of the start and goal
    state. A [4·T, H], C [4·T, 4], G [4·T, 4] (None without ends goal; C is None for a
    recording), float64. time [T]: seconds from the start.
    """

    A: Matrix
    C: Matrix | None
    G: Matrix | None
    time: Array
    mode: str
    options: dict[str, Any] = field(default_factory=dict)

    def rows(self, quantity: str) -> slice:
        """Where a quantity's rows are: ``A[operator.rows("jerk")]`` is [T, H]."""
        if quantity not in PARTS:
            expected = ", ".join(PARTS)
            raise UsageError(Fault("unknown quantity", "quantity", expected, repr(quantity)))
        begin = PARTS.index(quantity) * len(self.time)
        return slice(begin, begin + len(self.time))

    def matrices(self) -> dict[str, Matrix]:
        """The matrices that are not None, by name."""
        named = {"A": self.A, "C": self.C, "G": self.G}
        return {name: matrix for name, matrix in named.items() if matrix is not None}


def operator(
    horizon: int,
    dt: Array | float | None = None,
    mode: str = "acceleration",
    *,
    times: Array | None = None,
    start: Literal["first"] | None = None,
    sparse: bool = False,
    scheme: str | None = None,
    ends: str | None = None,
    degree: int | None = None,
    steps: int | None = None,
    window: int | str | None = None,
    frames: str | None = None,
    convention: str | None = None,
) -> Operator:
    """A mode as matrices, for ``horizon`` actions H of one trajectory and dof.

    dt: the step in seconds, a number or one per step [H]; or ``times``, the stamps of all rows
    [H + 1]. ``start="first"``: the actions are a recording (then [H − 1] and [H]). ``sparse``:
    matrices as ``Csr``, which for central, bspline and teleport take memory in proportion
    to H; dense ones, and those of cascades, to H². The options are ``trajcli.integrate``'s.

    Entries of central and bspline are right to 1e-15 of the largest in their row, those of sums
    to 1e-16·H. Raises UsageError and InputError as ``trajcli.integrate`` does, and for
    matrices that do not fit into memory.
    """
    options = {"scheme": scheme, "ends": ends, "degree": degree, "window": window}
    options |= {"steps": steps, "frames": frames, "convention": convention}
    made = make_mode(mode, **options)
    if not (start is None or (isinstance(start, str) and start == "first")):
        expected = "first (a recording), or none: a matrix multiplies any start state"
        raise UsageError(Fault("unknown start", "start", expected, repr(start)))
    recorded = start == "first" or ends == "recording"
    require_counts(horizon=horizon)
    _require_memory(made, horizon, recorded, sparse)
    one = np.zeros((1, 1))
    inputs = Inputs(
        mode=made,
        actions=np.broadcast_to(0.0, (1, horizon, 1)),
        start={} if recorded else {"position": one},
        goal={"position": one} if ends == "goal" else {},
        dt=None if dt is None else to_numpy(as_array(dt, "dt")).astype(np.float64),
        times=None if times is None else to_numpy(as_array(times, "times")),
        recorded=recorded,
        names={"actions": "horizon"},
    )
    raise_if_any(shape_faults(inputs))
    of_actions, of_start, of_goal = _columns(inputs, sparse)
    return Operator(
        A=of_actions,
        C=None if recorded else of_start,
        G=of_goal if inputs.goal else None,
        time=inputs.row_times()[0],
        mode=made.name,
        options=made.options(recorded),
    )


def _require_memory(mode: Mode, horizon: int, recorded: bool, sparse: bool) -> None:
    """Raise UsageError for matrices larger than the machine's memory."""
    banded = not isinstance(mode, Cascade)
    window = getattr(mode, "window", None) or 5
    rows = window if isinstance(window, int) and banded and sparse else horizon
    columns = rows + 8
    needed = 4 * mode.rows(int(horizon), recorded) * columns * 8 * 3
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > present:
        hint = "sparse matrices (--sparse), or " * (banded and not sparse) + "a shorter horizon"
        what, where = "matrices that do not fit into memory", f"horizon {horizon}"
        limit = f"at most {present:.3g} bytes, the memory of this machine"
        raise UsageError(Fault(what, where, limit, f"about {needed:.3g} bytes", hint))


def _columns(inputs: Inputs, sparse: bool) -> tuple[Matrix, ...]:
    """A, C and G: what is computed from actions, start states and goals that are unit vectors.

    Each dof is one. Actions further apart than the window of a band share a dof, as no row has
    both in its window.
    """
    horizon, program = inputs.horizon, inputs.program()
    shared = min(horizon, program.width) if isinstance(program, Band) else horizon
    actions = np.zeros((1, horizon, shared + 8))
    actions[0, range(horizon), np.arange(horizon) % shared] = 1.0
    units = np.eye(8, shared + 8, shared)[:, None]
    start, goal = (dict(zip(PARTS, parts, strict=True)) for parts in (units[:4], units[4:]))
    outputs = replace(inputs, actions=actions, start=start, goal=goal).compute(
        choose("cpu"), "float64", PARTS
    )
    table = np.concatenate([outputs[part][0] for part in PARTS])  # [4·T, shared + 8]
    if not np.isfinite(table).all():
        what = "steps so small or large that entries are beyond float64"
        raise InputError(Fault(what, inputs.name("dt"), "dt like 0.02, in seconds"))
    blocks = np.split(table, (shared, shared + 4), axis=1)
    of_actions, *of_states = (np.ascontiguousarray(block) for block in blocks)
    if isinstance(program, Band):
        csr = _compressed(*_placed(of_actions, program), horizon)
        return (csr, *map(_compressed, of_states)) if sparse else (csr.toarray(), *of_states)
    matrices = of_actions, *of_states
    return tuple(map(_compressed, matrices)) if sparse else matrices


def _placed(values: Array, program: Band) -> tuple[Array, Array]:
    """Entries [4·T, width] of the windows of all rows, and their columns, from those that actions
    share."""
    first = program.windows.first() - len(program.head)
    columns = np.clip(first[:, None] + np.arange(program.width), 0, max(program.used - 1, 0))
    columns = np.concatenate([np.zeros((int(program.start_row), program.width), np.int64), columns])
    columns = np.tile(columns, (4, 1))
    entries = np.take_along_axis(values, columns % values.shape[1], 1)
    entries[np.diff(columns, axis=1, prepend=-1) == 0] = 0.0  # points beyond the first and last
    entries[abs(entries) < _CANCELLED * abs(entries).max(1, initial=0.0, keepdims=True)] = 0.0
    return entries, columns


def _compressed(values: Array, columns: Array | None = None, count: int = 4) -> Csr:
    """Without its zeros. columns: of ``count``, where values [R, W] lie, in ascending order; None:
    values are all of them."""
    if columns is None:
        columns, count = np.broadcast_to(np.arange(values.shape[1]), values.shape), values.shape[1]
    nonzero = values != 0.0
    indptr = np.concatenate([[0], nonzero.sum(1).cumsum()])
    return Csr(values[nonzero], columns[nonzero], indptr, (len(values), count))
