"""What a mode hands to a kernel: a program, which holds no arrays, and its operands.

Every backend has two functions, ``forward(program, operands, out)`` and
``adjoint(program, operands, upstream, gradients)``. The caller owns all memory; nothing is checked.

Shapes: B trajectories, H actions, D dofs, T rows; b is 1 or B.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = Any
"""numpy.ndarray or torch.Tensor."""

Parts = Sequence[Array | None]
"""Position, velocity, acceleration, jerk."""

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]


class Operands(NamedTuple):
    """The arrays that a program is applied to.

    actions [B, H, D]. dt [b, h] float64 in seconds: h is 1 where all steps are equal, else entry i
    is the i-th step (see the programs). start, goal: four parts [S, D], None is zero; without an
    index S is 1 (shared by all) or B, with an index [B] of int64 trajectory b has row index[b].
    """

    actions: Array
    dt: Array
    start: Parts = (None,) * 4
    goal: Parts = (None,) * 4
    start_index: Array | None = None
    goal_index: Array | None = None

    def states(self) -> list[Array | None]:
        """The eight parts of start and goal per trajectory, [B, D] or, shared by all, [1, D]."""
        roles = (self.start, self.start_index), (self.goal, self.goal_index)
        return [gather_states(part, index) for parts, index in roles for part in parts]


def gather_states(part: Array | None, index: Array | None) -> Array | None:
    """Returns the rows [B, D] of states [S, D] that an index names; all of them without an index.

    Rows are NaN where the index is out of range, as it may be on a device: checking its values
    would wait for them, and reading there would end all use of the device.
    """
    if part is None or index is None:
        return part
    if isinstance(part, np.ndarray):
        return part[index]
    last = part.shape[0] - 1
    outside = (index < 0) | (index > last)
    return part[index.clamp(0, last)].masked_fill(outside[:, None], float("nan"))


class Gradients(NamedTuple):
    """The results of an adjoint; None is not wanted.

    actions [B, H, D], float32 or float64: zero for actions that are not used. start, goal: four
    parts [B, D] float64, one row per trajectory, even where trajectories share a state.
    """

    actions: Array | None = None
    start: Parts = (None,) * 4
    goal: Parts = (None,) * 4


@dataclass(frozen=True)
class Cascade:
    """Sums and differences from the start state on: modes.md, "The cascade".

    The first ``used`` actions are the quantity of order k, ``action_order`` (0 position … 3
    jerk). Row i (after the start row, if there is one) is that of action i; the step into it is
    dt[:, i]. With m below k, n = k − m:

        x_m ← x_m + Σ_{0<r<n} c_r·x_{m+r} + now_n·u_i + before_n·u_{i−1}

    over the values of the row before; u_{−1} is the start's. Above: (x_{m−1} − its value in the
    row before) / dt. ``scheme``:
    euler: c_r = dtʳ, now_n = dtⁿ · zoh: c_r = dtʳ/r!, now_n = dtⁿ/n! ·
    foh: c_r = dtʳ/r!, now_n = dtⁿ/(n+1)!, before_n = n·dtⁿ/(n+1)!.

    ``start_row``: the start state is written as row 0, before those of the actions.
    ``recorded``: there is no start state (order 0 only). Row i is action i, the step into it is
    dt[:, i−1]. Orders m = 1, 2, 3 take in rows 0 … m−1 what they have in row m; if there is no
    row m, zero.
    """

    action_order: int
    scheme: str
    used: int
    start_row: bool
    recorded: bool = False
    roles = ("start",)
    """The states that rows depend on."""
    of_actions_alone = False
    """Whether dt has no gradient, and kernels, not torch's operations, serve torch.func, too."""

    @property
    def rows(self) -> int:
        """The number of rows T that it computes."""
        return self.used + self.start_row


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

    def first(self) -> npt.NDArray[np.int64]:
        """Where the windows begin, [T]."""
        begin = (np.arange(self.count) + self.offset) // self.steps - self.shift
        return np.clip(begin, 0, self.last)

    def kind(self) -> npt.NDArray[np.int64]:
        """Their kinds, [T]."""
        return np.arange(self.count) + self.offset - self.steps * self.first()


@dataclass(frozen=True, eq=False)
class Band:
    """A window of weights that slides over points: modes.md, "The band".

    The points X are: for every row of ``head`` [n, 4], Σ_m head[i, m]·hᵐ·start_m; the first
    ``used`` actions; the last of these again, ``held`` times; for every row of ``tail`` [k, 4] the
    same of the goal. h = ``spacing``·dt[:, 0].

    A row takes the ``width`` points of its window and the weights of its kind, which apply to
    differences of neighbours, d_i = X_{first+i+1} − X_{first+i}, so that what stands still has
    derivatives of exactly zero:

        x_0 = X_{first + base[kind]} + Σ_i table[kind, 0, i]·d_i
        x_m = h⁻ᵐ Σ_i table[kind, m, i]·d_i

    ``table`` [P, 4, width − 1] is for points one unit apart. A point whose two differences have
    equal weights, or 0 where it has one alone, is not used: no NaN of it reaches the row. None
    where steps differ: width is then 5, windows.steps 1, and the derivatives are those, at the
    point base[kind] of the window, of the polynomial through its points, whose times differ by
    gaps: from point i to point i + 1 it is dt[:, clip(i − max(n − 1, 0), 0, steps − 1)]; x_0 is
    that point itself. With ``degree`` the width is any, and the polynomial is the one of that
    degree that fits the points best in the sense of least squares; x_0 is its value. Such a band
    has no points but the actions, all of them, and no start row. With ``spans`` [b, T, 2], as many
    as there are dt, each row has a window of its own: of the points of its window those from its
    first to its last, the row's own among them, numbered as the actions are.

    ``start_row``: the start state is written as row 0, before those of the windows.

    Table and base have every kind of a window that moves, with rows of that kind or without:
    P ≥ (shift + 1)·windows.steps. Where windows.steps > 1, all kinds have one base. Unless
    windows.count is 0, all windows lie within the points, and there is an action if any are held.
    """

    used: int
    steps: int
    windows: Windows
    width: int
    base: tuple[int, ...]
    table: Floats | None
    head: Floats = field(default_factory=lambda: np.zeros((0, 4)))
    tail: Floats = field(default_factory=lambda: np.zeros((0, 4)))
    held: int = 0
    spacing: int = 1
    start_row: bool = False
    degree: int | None = None
    spans: npt.NDArray[np.int64] | None = None
    action_order = 0
    of_actions_alone = False

    @property
    def rows(self) -> int:
        """The number of rows T that it computes."""
        return self.windows.count + self.start_row

    @property
    def roles(self) -> tuple[str, ...]:
        """The states that rows depend on."""
        start = ("start",) if self.start_row or len(self.head) else ()
        return (*start, "goal") if len(self.tail) else start

    @property
    def copies(self) -> bool:
        """Whether positions are points as they are."""
        if self.table is None:
            return self.degree is None
        return not self.table[:, 0].any()


@dataclass(frozen=True, eq=False)
class Smoother:
    """The smoothing spline: modes.md, "Recordings with noise".

    The rows are value and derivatives, at the rows' times, of the curve x that minimises

        Σ_i w_i·(x(t_i) − u_i)² + κ·unit^(2m−1)·∫(x⁽ᵐ⁾)² dt

    for each dof of each trajectory; m is ``order``, u the first ``used`` actions. ``unit`` [b] is a
    step in seconds by which states are scaled: all of dt where its steps are equal. ``stiffness``
    [B, D] is κ. ``weights`` [B, T, D] are w; an action of weight zero may be anything.
    The step from row i to row i + 1 is dt[:, i]. Rows that are all equal have derivatives of
    exactly zero; a dof with fewer than m rows of weight is NaN.
    """

    used: int
    order: int
    unit: Floats
    stiffness: Floats
    weights: Floats
    roles = ()
    start_row = False
    action_order = 0
    of_actions_alone = True

    @property
    def rows(self) -> int:
        """The number of rows T that it computes."""
        return self.used


Program = Cascade | Band | Smoother
