"""Defines what a mode hands to a kernel: a program, which holds no arrays, and its operands.

Every backend has two functions, ``forward(program, operands, out)`` and
``adjoint(program, operands, upstream, gradients)``. The caller owns all memory; nothing is checked.

Shapes: B trajectories, H actions, D dofs, T rows; b is 1 or B.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor
else:
    Tensor = Any  # who looks at annotations need not have torch

NumpyArray: TypeAlias = npt.NDArray[Any]
Array: TypeAlias = NumpyArray | Tensor
ArrayLike: TypeAlias = Array | Sequence[Any]
"""What calls take as an array: nested lists, too."""

Parts = Sequence[Array | None]
"""Position, velocity, acceleration, jerk."""

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]


class Operands(NamedTuple):
    """The arrays that a program is applied to.

    actions [B, H, D]. dt [b, h] float64 in seconds: h is 1 where all steps are equal, else entry i
    is the i-th step, as each program counts them. start, goal: four parts [S, D], None is zero;
    without an index S is 1 (shared by all) or B, with an index [B] of int64 trajectory b has row
    index[b].
    """

    actions: Array
    dt: Array
    start: Parts = (None,) * 4
    goal: Parts = (None,) * 4
    start_index: Array | None = None
    goal_index: Array | None = None

    def states(self) -> list[Array | None]:
        """Gathers the eight parts of start and goal per trajectory, [B, D] or, shared, [1, D]."""
        roles = (self.start, self.start_index), (self.goal, self.goal_index)
        return [gather_states(part, index) for parts, index in roles for part in parts]


def gather_states(part: Array | None, index: Any) -> Any:
    """Gathers the rows [B, D] of states [S, D] that an index names; all of them without one."""
    if part is None or index is None:
        return part
    if isinstance(part, np.ndarray):
        return part[index]
    # An index on a device cannot be checked without waiting for it, and a read out of range would
    # end the process's use of the device.
    last = part.shape[0] - 1
    outside = (index < 0) | (index > last)
    return part[index.clamp(0, last)].masked_fill(outside[:, None], float("nan"))


class Gradients(NamedTuple):
    """The results of an adjoint; None is skipped.

    actions [B, H, D], float32 or float64: zero for actions that are not used. start, goal: four
    parts [B, D] float64, one row per trajectory, even where trajectories share a state.
    """

    actions: Array | None = None
    start: Parts = (None,) * 4
    goal: Parts = (None,) * 4


@dataclass(frozen=True)
class Cascade:
    """Sums and differences from the start state on, of modes clique to jerk (docs/modes.md).

    The first ``used`` actions are the quantity of order k. Row i (after the start row, if there is
    one) is that of action i; the step into it is dt[:, i]. With m below k, n = k − m:

        x_m ← x_m + Σ_{0<r<n} c_r·x_{m+r} + now_n·u_i + before_n·u_{i−1}

    over the values of the row before; u_{−1} is the start's. Above: (x_{m−1} − its value in the
    row before) / dt. ``scheme``:
    euler: c_r = dtʳ, now_n = dtⁿ · zoh: c_r = dtʳ/r!, now_n = dtⁿ/n! ·
    foh: c_r = dtʳ/r!, now_n = dtⁿ/(n+1)!, before_n = n·dtⁿ/(n+1)!.
    """

    # k, the order of the actions: 0 position … 3 jerk
    action_order: int
    scheme: str
    used: int
    # the start state is written as row 0, before those of the actions
    start_row: bool
    # There is no start state (order 0 only). Row i is action i, the step into it is dt[:, i−1].
    # Order m copies row m into rows 0 … m−1, which have too few rows before them to difference; it
    # is zero if there is no row m.
    recorded: bool = False
    # the states that rows depend on
    roles = ("start",)
    # whether the program is differentiable in dt; if not, kernels serve torch.func, too
    has_dt_gradient = True

    @property
    def rows(self) -> int:
        return self.used + self.start_row

    @property
    def is_exact(self) -> bool:
        """Whether it integrates each step exactly (zoh, foh), by Taylor coefficients."""
        return self.scheme != "euler"

    @property
    def is_linear(self) -> bool:
        """Whether actions are linear from row to row (foh)."""
        return self.scheme == "foh"


@dataclass(frozen=True)
class Windows:
    """The window of points of each of ``count`` rows, and the kind of its weights.

    Row t's window begins at point first = clip((t + offset) // steps − shift, 0, last); its kind
    is t + offset − steps · first. Neither offset nor shift is negative, so no kind is.
    """

    count: int
    last: int
    offset: int = 0
    steps: int = 1
    shift: int = 0

    def first(self) -> Integers:
        """Computes the first points of the windows, [T]."""
        begin = (np.arange(self.count) + self.offset) // self.steps - self.shift
        return np.clip(begin, 0, self.last)

    def kind(self) -> Integers:
        """Computes the kinds of the windows, [T]."""
        return np.arange(self.count) + self.offset - self.steps * self.first()


@dataclass(frozen=True, eq=False)
class Band:
    """A window of weights that slides over points: central, savgol and bspline (docs/modes.md).

    The points X are: for every row of ``head`` [n, 4], Σ_m head[i, m]·hᵐ·start_m; the first
    ``used`` actions; the last of these again, ``held`` times; for every row of ``tail`` [k, 4] the
    same of the goal. h = ``spacing``·dt[:, 0].

    A row takes the ``width`` points of its window and the weights of its kind, which apply to
    differences of neighbours, d_i = X_{first+i+1} − X_{first+i}:

        x_0 = X_{first + base[kind]} + Σ_i table[kind, 0, i]·d_i
        x_m = h⁻ᵐ Σ_i table[kind, m, i]·d_i

    Where steps differ there is no ``table``: width is then 5, windows.steps 1, and the derivatives
    are those, at the point base[kind] of the window, of the polynomial through its points; x_0 is
    that point itself. With ``degree`` the width is any, and the polynomial is the one of that
    degree that fits the points best in the sense of least squares; x_0 is its value. Such a band
    has no points but the actions, all of them, and no start row.

    Unless windows.count is 0, all windows lie within the points, and there is an action if any are
    held.
    """

    used: int
    # The number of steps. Where they differ, the one from point i to point i + 1 is
    # dt[:, clip(i − max(n − 1, 0), 0, steps − 1)].
    steps: int
    windows: Windows
    width: int
    # of each kind; where windows.steps > 1 all kinds have one base
    base: tuple[int, ...]
    # [P, 4, width − 1], for points one unit apart. Weights are of differences, so that joints that
    # stand still have derivatives of exactly zero. A point whose two differences have equal
    # weights, or 0 where it has only one, has no weight itself: its NaN does not reach the row.
    # Table and base have every kind of a window that moves, with rows of that kind or without:
    # P ≥ (shift + 1)·windows.steps.
    table: Floats | None
    head: Floats = field(default_factory=lambda: np.zeros((0, 4)))
    tail: Floats = field(default_factory=lambda: np.zeros((0, 4)))
    held: int = 0
    spacing: int = 1
    # the start state is written as row 0, before those of the windows
    start_row: bool = False
    degree: int | None = None
    # [b, T, 2], one for each dt: the first and the last point, counted as the actions are, that a
    # row takes of its window. Its own point lies between them.
    spans: Integers | None = None
    action_order = 0
    has_dt_gradient = True

    @property
    def rows(self) -> int:
        return self.windows.count + self.start_row

    @property
    def roles(self) -> tuple[str, ...]:
        """The states that rows depend on."""
        start = ("start",) if self.start_row or len(self.head) else ()
        return (*start, "goal") if len(self.tail) else start

    @property
    def copies(self) -> bool:
        """Whether positions are copies of points."""
        if self.table is None:
            return self.degree is None
        return not self.table[:, 0].any()


@dataclass(frozen=True, eq=False)
class Smoother:
    """The smoothing spline of method smooth (docs/modes.md).

    The rows are value and derivatives, at the rows' times, of the curve x that minimises

        Σ_i w_i·(x(t_i) − u_i)² + κ·unit^(2m−1)·∫(x⁽ᵐ⁾)² dt

    for each dof of each trajectory; m is ``order``, u the first ``used`` actions. The step from row
    i to row i + 1 is dt[:, i]. Rows that are all equal have derivatives of exactly zero; a dof with
    fewer than m rows of weight is NaN.
    """

    used: int
    order: int
    # [b]: a step in seconds by which states are scaled, which is dt where its steps are equal
    unit: Floats
    # κ [B, D]
    stiffness: Floats
    # w [B, T, D]; an action of weight zero may be anything
    weights: Floats
    roles = ()
    start_row = False
    action_order = 0
    has_dt_gradient = False

    @property
    def rows(self) -> int:
        return self.used


Program = Cascade | Band | Smoother
