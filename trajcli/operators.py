"""A mode as matrices: [p; v; a; j] = A·u + C·s + G·g, the same for every dof.

Cascades are written out row by row, bands from their weights. Neither runs a kernel, so that the
matrices can verify the kernels.
"""

from __future__ import annotations

import itertools
import math
import os
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from trajcli.arrays import to_numpy
from trajcli.checks import as_array, require_counts
from trajcli.errors import Fault, InputError, UsageError, raise_if_any
from trajcli.input_checks import shape_faults
from trajcli.inputs import Inputs
from trajcli.kernels.fit import fit_weights
from trajcli.kernels.program import Band
from trajcli.modes import PARTS, Mode, make_mode
from trajcli.modes.cascade import Cascade
from trajcli.modes.stencils import derivative_weights
from trajcli.sparse import Csr, Entries, compressed, summed

__all__ = ["Csr", "Operator", "operator", "operator_of"]

Array = Any
"""numpy.ndarray, float64."""

Matrix = Any
"""A dense NumPy array, or a :class:`Csr`."""

_BYTES_PER_BAND_ROW = 600
"""Peak memory to compute a band's entries, per row."""


@dataclass(frozen=True, eq=False)
class Operator:
    """What :func:`operator` returns: x = A·u + C·s (+ G·g) for one dof.

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
    window: int | None = None,
    frames: str | None = None,
    convention: str | None = None,
) -> Operator:
    """A mode as matrices, for ``horizon`` actions H of one trajectory and dof.

    dt: the step in seconds, a number or one per step [H]; or ``times``, the stamps of all rows
    [H + 1]. ``start="first"``: the actions are a recording (then [H − 1] and [H]). ``sparse``:
    matrices as :class:`Csr`, which for central, bspline and teleport take memory in proportion
    to H; dense ones, and those of cascades, to H². The options are :func:`trajcli.integrate`'s.

    Entries of central and bspline are right to 1e-15 of the largest in their row, those of sums
    to 1e-16·H. Raises UsageError and InputError as :func:`trajcli.integrate` does, and for
    matrices that do not fit into memory.
    """
    options = {"scheme": scheme, "ends": ends, "degree": degree, "window": window}
    options |= {"steps": steps, "frames": frames, "convention": convention}
    made = make_mode(mode, **options)
    if not (start is None or (isinstance(start, str) and start == "first")):
        raise UsageError(Fault("unknown start", "start", "first, or None", repr(start)))
    step = None if dt is None else to_numpy(as_array(dt, "dt")).astype(np.float64)
    stamps = None if times is None else to_numpy(as_array(times, "times"))
    return operator_of(made, horizon, step, stamps, recorded=start == "first", sparse=sparse)


def operator_of(
    mode: Mode,
    horizon: int,
    dt: Array | None,
    times: Array | None,
    *,
    recorded: bool,
    sparse: bool,
    names: dict[str, str] | None = None,
) -> Operator:
    """:func:`operator` of a mode with options; ``names``: sources of the inputs, for messages."""
    recorded = recorded or getattr(mode, "ends", None) == "recording"
    require_counts(horizon=horizon)
    _require_memory(mode, int(horizon), recorded, sparse)
    one = np.zeros((1, 1))
    inputs = Inputs(
        mode=mode,
        actions=np.broadcast_to(0.0, (1, horizon, 1)),
        start={} if recorded else {"position": one},
        goal={"position": one} if getattr(mode, "ends", None) == "goal" else {},
        dt=dt,
        times=times,
        recorded=recorded,
        names={"actions": "horizon", **(names or {})},
    )
    raise_if_any([_without_trajectory_hint(fault) for fault in shape_faults(inputs)])
    with np.errstate(all="ignore"):
        if isinstance(mode, Cascade):
            matrices = _cascade(mode, horizon, inputs.steps()[0], recorded)
            if sparse:
                matrices = {name: compressed(matrix) for name, matrix in matrices.items()}
        else:
            matrices = _band(mode, horizon, inputs.steps(), recorded)
            if not sparse:
                matrices = {name: matrix.toarray() for name, matrix in matrices.items()}
    for matrix in matrices.values():
        if not np.isfinite(matrix.data if isinstance(matrix, Csr) else matrix).all():
            what = "steps so small or large that entries are beyond float64"
            raise InputError(Fault(what, inputs.name("dt"), "dt like 0.02, in seconds"))
    return Operator(
        A=matrices["A"],
        C=None if recorded else matrices["C"],
        G=matrices["G"] if inputs.goal else None,
        time=inputs.row_times()[0],
        mode=mode.name,
        options=mode.options(recorded),
    )


def _require_memory(mode: Mode, horizon: int, recorded: bool, sparse: bool) -> None:
    """Raise UsageError for matrices larger than the machine's memory."""
    rows = 4 * mode.rows(horizon, recorded)
    banded = sparse and not isinstance(mode, Cascade)
    needed = rows * _BYTES_PER_BAND_ROW if banded else 2 * 8 * rows * (horizon + 8)
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > present:
        dense_band = not sparse and not isinstance(mode, Cascade)
        hint = (
            "sparse matrices (--sparse), or a shorter horizon"
            if dense_band
            else "a shorter horizon"
        )
        what, where = "matrices that do not fit into memory", f"horizon {horizon}"
        limit = f"at most {present:.3g} bytes, the memory of this machine"
        raise UsageError(Fault(what, where, limit, f"about {needed:.3g} bytes", hint))


def _without_trajectory_hint(fault: Fault) -> Fault:
    """The fault without a hint that applies to trajectories only."""
    inapplicable = ("--start", "--repeated-times", "[B, 1]")
    return replace(fault, hint="") if any(x in fault.hint for x in inapplicable) else fault


def _cascade(mode: Cascade, horizon: int, dt: Array, recorded: bool) -> dict[str, Array]:
    """Row by row, by the relation; columns are the H actions, then the start state's parts."""
    used = horizon - (1 if recorded or mode.frames == "curobo" else 0)
    steps = np.broadcast_to(dt, used) if len(dt) == 1 else dt[:used]
    k = mode.derivatives_of
    x = np.zeros((4, used + 1, horizon + 4))
    x[range(4), 0, range(horizon, horizon + 4)] = 1.0
    if recorded:
        x[:, 0] = 0.0
        x[0, 0, 0] = 1.0
    for t in range(1, used + 1):
        x[k, t, t if recorded else t - 1] = 1.0
        for m in range(k - 1, -1, -1):
            x[m, t] = x[m, t - 1] + _increment(x, t, steps[t - 1], m, k, mode.scheme)
        for m in range(k + 1, 4):
            x[m, t] = (x[m - 1, t] - x[m - 1, t - 1]) / steps[t - 1]
    for m in range(1, 4) if recorded else ():
        x[m, :m] = x[m, m] if used >= m else 0.0
    if mode.frames == "actions":
        x = x[:, 1:]
    table = x.reshape(-1, horizon + 4)
    return {"A": table[:, :horizon].copy(), "C": table[:, horizon:].copy()}


def _increment(x: Array, t: int, dt: float, m: int, k: int, scheme: str) -> Array:
    """What quantity m gains in the step into row t, as a row of coefficients."""
    if scheme == "euler":
        return dt * x[m + 1, t]
    n = k - m
    gained = sum(dt**r / math.factorial(r) * x[m + r, t - 1] for r in range(1, n))
    if scheme == "zoh":
        return gained + dt**n / math.factorial(n) * x[k, t]
    return gained + dt**n / math.factorial(n + 1) * (n * x[k, t - 1] + x[k, t])


def _band(mode: Mode, horizon: int, dt: Array, recorded: bool) -> dict[str, Csr]:
    """The weights of the windows, applied to the inputs that make up their points."""
    program = mode.program(horizon, recorded, uneven=dt.shape[1] > 1)
    assert isinstance(program, Band)
    where, step = program.windows, float(dt[0, 0])
    powers = (program.spacing * step) ** np.arange(4)
    points = _points(program, powers)
    first, kind = where.first(), where.kind()
    if program.table is None:
        weights = _uneven_weights(program, dt[0], first, kind)
    else:
        weights = _on_points(program)[kind] / powers[:, None]
    rows = program.rows
    entries: dict[str, list[Entries]] = {"A": [], "C": [], "G": []}
    if program.start_row:
        entries["C"].append((np.arange(4) * rows, np.arange(4), np.ones(4)))
    for m, i in itertools.product(range(4), range(program.width)):
        row = m * rows + program.start_row + np.arange(len(first))
        for name, (of_point, column, value) in points.items():
            for k in range(column.shape[1]):
                at = np.flatnonzero(of_point[first + i])
                point = first[at] + i
                values = weights[at, m, i] * value[point, k]
                entries[name].append((row[at], column[point, k], values))
    widths = {"A": horizon, "C": 4, "G": 4}
    return {name: summed(entries[name], (4 * rows, widths[name])) for name in entries}


def _points(program: Band, powers: Array) -> dict[str, tuple[Array, Array, Array]]:
    """The points as sums of inputs: by matrix, which points have entries, and the entries' columns
    [N, k] and values [N, k]."""
    head, used, tail = len(program.head), program.used, len(program.tail)
    count = head + used + program.held + tail
    index = np.arange(count)
    action = np.clip(index - head, 0, max(used - 1, 0))[:, None]
    acting = (index >= head) & (index < count - tail)
    points = {"A": (acting, action, np.ones((count, 1)))}
    four = np.broadcast_to(np.arange(4), (count, 4))
    for name, begin, coefficients in (("C", 0, program.head), ("G", count - tail, program.tail)):
        value = np.zeros((count, 4))
        value[begin : begin + len(coefficients)] = coefficients * powers
        points[name] = ((index >= begin) & (index < begin + len(coefficients)), four, value)
    return points


def _on_points(program: Band) -> Array:
    """Weights on points [P, 4, W] from those on differences of neighbours."""
    assert program.table is not None
    weights = np.zeros((len(program.table), 4, program.width))
    weights[:, :, 1:] += program.table
    weights[:, :, :-1] -= program.table
    weights[range(len(program.base)), 0, program.base] += 1.0
    return weights


def _uneven_weights(program: Band, dt: Array, first: Array, kind: Array) -> Array:
    """Weights on points [T, 4, W] where steps differ."""
    lead = max(len(program.head) - 1, 0)
    at = np.arange(program.width - 1)
    gaps = dt[np.clip(first[:, None] + at - lead, 0, program.steps - 1)]  # [T, W - 1]
    times = np.concatenate([np.zeros((len(gaps), 1)), gaps.cumsum(1)], 1)
    base = np.array(program.base)[kind]
    here = times[range(len(gaps)), base]
    if program.degree is None:
        weights = derivative_weights(list(times.T), here, np.ones(len(gaps)))
        table = np.moveaxis(np.array(weights), -1, 0)
    else:
        table = np.stack(fit_weights(times - here[:, None], program.degree), 1)
    # what stands still has no derivatives
    table[range(len(gaps)), 1:, base] -= table[:, 1:].sum(2)
    return table
