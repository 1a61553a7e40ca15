"""The cascade and its adjoint in Triton; see :class:`trajcli.kernels.program.Cascade`.

A lane computes one column, a dof of a trajectory, row after row, and has what it loads of K rows
ahead of those that it computes. A program is one warp; lanes exchange nothing. Where D is no
multiple of 8, a warp's access to a row takes up to 2.2 times the sectors that its bytes fill, which
caches serve. Tiles of rows that lanes exchange through shared memory avoid that, but take twice the
instructions, and barriers: by counted cycles they are three times slower with data in L2.
"""

from __future__ import annotations

import triton
import triton.language as tl

from trajcli.kernels.triton_ops.states import load_row, load_state, store_part, store_row

SIZES = [
    "start_count",
    "batch",
    "horizon",
    "used",
    "actions_stride",
    "rows_stride",
    "dt_stride",
    "dt_step",
]
"""Not specialised, so that a last, smaller block needs no other kernel."""
POINTERS = ["actions", "start", "start_index", "dt", "rows"]
"""Not specialised by alignment: arrays may begin anywhere."""


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=POINTERS)
def forward(
    actions, start, start_index, start_count, dt, rows,
    batch, used, actions_stride, rows_stride, dt_stride, dt_step,
    START_ROW: tl.constexpr, D: tl.constexpr, ORDER: tl.constexpr, SCHEME: tl.constexpr,
    RECORDED: tl.constexpr, EVEN: tl.constexpr, K: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Rows [B, T, D] from actions [B, ≥ used, D] and states [S, D]."""
    trajectory, dof, there = columns(batch, D, LANES)
    action = trajectory * actions_stride + dof
    row = trajectory * rows_stride + dof
    step = dt + trajectory * dt_stride
    factors = factors_of(tl.load(step, mask=there, other=1.0))
    x = load_state(start, start_index, start_count, trajectory, dof, there, D)
    if START_ROW:
        store_row(rows, x, row, there)
        row += D
    if RECORDED:
        step -= dt_step
    array = (actions,)
    fetched = fetch(array, 1, action, step, dt_step, 0, used, there, D, EVEN, RECORDED, K)
    for begin in range(0, used, K):
        action += K * D
        step += K * dt_step.to(tl.int64)
        ahead = fetch(array, 1, action, step, dt_step, begin + K, used, there, D, EVEN, RECORDED, K)
        for k in tl.static_range(K):
            if not EVEN:
                factors = factors_of(fetched[K + k])
            x = next_row(x, fetched[k].to(tl.float64), factors, ORDER, SCHEME)
            mask = there & (begin + k < used)
            y = x
            if RECORDED and k < 3:
                y = (x[0],)
                for m in tl.static_range(1, 4):
                    y = y + (tl.where(begin + k < m, 0.0, x[m]),)
            store_row(rows, y, row + k * D, mask)
            if RECORDED and 0 < k and k < 4:  # rows before row k take its value of order k
                for i in tl.static_range(k):
                    store_part(rows, x, k, row + i * D, mask & (begin == 0))
        row += K * D
        fetched = ahead


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=POINTERS)
def adjoint(
    actions, start, dt, rows,
    batch, horizon, used, actions_stride, rows_stride, dt_stride, dt_step,
    START_ROW: tl.constexpr, D: tl.constexpr, ORDER: tl.constexpr, SCHEME: tl.constexpr,
    RECORDED: tl.constexpr, EVEN: tl.constexpr, K: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Gradients of actions and of states [B, D] from those of rows, the last row first."""
    trajectory, dof, there = columns(batch, D, LANES)
    first_row = trajectory * rows_stride + dof
    step = dt + trajectory * dt_stride
    factors = factors_of(tl.load(step, mask=there, other=1.0))
    later = zeros(dof, 4)
    if RECORDED:
        step -= dt_step
    # whole tiles of K rows; those of the last that do not exist come first, and add nothing
    begin = (tl.cdiv(used, K) - 1) * K
    row = first_row + (START_ROW + begin.to(tl.int64)) * D
    action = trajectory * actions_stride + dof + begin.to(tl.int64) * D
    step += begin.to(tl.int64) * dt_step
    fetched = fetch(rows, 4, row, step, dt_step, begin, used, there, D, EVEN, RECORDED, K)
    for _ in range(0, used, K):
        row -= K * D
        step -= K * dt_step.to(tl.int64)
        ahead = fetch(rows, 4, row, step, dt_step, begin - K, used, there, D, EVEN, RECORDED, K)
        for k in tl.static_range(K - 1, -1, -1):
            if not EVEN:
                factors = factors_of(fetched[4 * K + k])
            upstream = ()
            for m in tl.static_range(4):
                value = fetched[m * K + k].to(tl.float64)
                if RECORDED and m > 0 and k <= m:  # row m gives its value to those before it
                    shared = tl.zeros(value.shape, tl.float64)
                    if k == m:
                        for i in tl.static_range(m + 1):
                            shared += fetched[m * K + i].to(tl.float64)
                        shared = tl.where(m < used, shared, 0.0)
                    value = tl.where(begin == 0, shared, value)
                upstream = upstream + (value,)
            gradient, later = row_before(later, upstream, factors, ORDER, SCHEME)
            if actions is not None:
                mask = there & (begin + k < used)
                value = gradient.to(actions.dtype.element_ty)
                tl.store(actions + action + k * D, value, mask=mask)
        begin -= K
        action -= K * D
        fetched = ahead
    if actions is not None:
        for i in range(used, horizon):
            place = actions + trajectory * actions_stride + dof + i * D
            tl.store(place, tl.zeros([LANES], tl.float64).to(actions.dtype.element_ty), mask=there)
    if START_ROW:
        upstream = load_row(rows, first_row, there)
        later = (
            later[0] + upstream[0],
            later[1] + upstream[1],
            later[2] + upstream[2],
            later[3] + upstream[3],
        )
    store_row(start, later, trajectory * D + dof, there)


@triton.jit
def columns(batch, D: tl.constexpr, LANES: tl.constexpr):
    """The trajectory and the dof of each lane, and whether there is such a trajectory."""
    column = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    trajectory = column // D
    return trajectory, (column % D).to(tl.int32), trajectory < batch


@triton.jit
def fetch(
    arrays, COUNT: tl.constexpr, place, step, dt_step, begin, used, there,
    D: tl.constexpr, EVEN: tl.constexpr, RECORDED: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Of each array K rows from the begin-th on and, unless all steps are equal, the steps into
    them."""
    values = ()
    for m in tl.static_range(COUNT):
        for k in tl.static_range(K):
            if arrays[m] is None:
                values = values + (tl.zeros(place.shape, tl.float32),)
            else:
                mask = there & (begin >= 0) & (begin + k < used)
                values = values + (tl.load(arrays[m] + place + k * D, mask=mask, other=0),)
    if not EVEN:
        for k in tl.static_range(K):
            mask = there & (begin + k >= RECORDED) & (begin + k < used)
            values = values + (tl.load(step + k * dt_step, mask=mask, other=1.0),)
    return values


@triton.jit
def zeros(like, COUNT: tl.constexpr):
    """COUNT times zero in float64, for all lanes."""
    values = ()
    for _ in tl.static_range(COUNT):
        values = values + (tl.zeros(like.shape, tl.float64),)
    return values


@triton.jit
def factors_of(step):
    """dt, dt²/2, dt³/6 and 1/dt."""
    square = step * step
    return step, square * 0.5, square * step * (1.0 / 6.0), 1.0 / step


@triton.jit
def now_of(factors, n: tl.constexpr, SCHEME: tl.constexpr):
    """The weight of the action in the quantity n orders below it."""
    weight = factors[n - 1]
    if SCHEME == "foh":
        weight = weight * (1.0 / (n + 1))
    return weight


@triton.jit
def next_row(x, action, factors, ORDER: tl.constexpr, SCHEME: tl.constexpr):
    """The row after x: four values."""
    y = (action,)
    for n in tl.static_range(1, ORDER + 1):
        if SCHEME == "euler":
            value = tl.fma(factors[0], y[0], x[ORDER - n])
        else:
            value = tl.fma(now_of(factors, n, SCHEME), action, x[ORDER - n])
            if SCHEME == "foh":
                value = tl.fma(now_of(factors, n, SCHEME) * n, x[ORDER], value)
            for r in tl.static_range(1, n):
                value = tl.fma(factors[r - 1], x[ORDER - n + r], value)
        y = (value,) + y
    for m in tl.static_range(ORDER + 1, 4):
        y = y + ((y[m - 1] - x[m - 1]) * factors[3],)
    return y


@triton.jit
def row_before(later, upstream, factors, ORDER: tl.constexpr, SCHEME: tl.constexpr):
    """The transpose of next_row.

    later: the gradient of this row's four values by the rows after it. Returns the gradient of this
    row's action, and that of the row before by this row and those after it.
    """
    above = zeros(later[3], 1)  # for the row before: orders from the action's to jerk
    received = above[0]
    for m in tl.static_range(3, ORDER, -1):
        received = (upstream[m] + later[m] + received) * factors[3]
        above = (-received,) + above
    action = upstream[ORDER] + later[ORDER] + received
    sums = ()  # of orders below the action's
    for m in tl.static_range(ORDER):
        value = upstream[m] + later[m]
        if SCHEME == "euler" and m > 0:
            value = tl.fma(factors[0], sums[m - 1], value)
        sums = sums + (value,)
    held = above[0]  # for the action before
    below = ()
    for m in tl.static_range(ORDER):
        value = sums[m]
        if SCHEME != "euler":
            action = tl.fma(now_of(factors, ORDER - m, SCHEME), sums[m], action)
            for r in tl.static_range(1, m + 1):
                value = tl.fma(factors[r - 1], sums[m - r], value)
        if SCHEME == "foh":
            before_action = now_of(factors, ORDER - m, SCHEME) * (ORDER - m)
            held = tl.fma(before_action, sums[m], held)
        below = below + (value,)
    if SCHEME == "euler" and ORDER > 0:
        action = tl.fma(factors[0], sums[ORDER - 1], action)
    before = below + (held,)
    for m in tl.static_range(ORDER + 1, 4):
        before = before + (above[m - ORDER],)
    return action, before
