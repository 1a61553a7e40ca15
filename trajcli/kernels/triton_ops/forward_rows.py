"""The cascade in Triton: rows forward in time."""

from __future__ import annotations

import triton
import triton.language as tl

from trajcli.kernels.triton_ops.arithmetic import (
    narrowed,
    rounded,
    rows_of,
    tile_of,
    widened,
)
from trajcli.kernels.triton_ops.steps import (
    chosen,
    lanes,
    loaded_state,
    next_row,
    offsets,
    own_state,
    part_of,
    step_of,
    steps_at,
    store_state,
    uniform_step,
    with_part,
)


@triton.jit(do_not_specialize=["batch", "horizon", "states"])
def forward(
    actions,
    actions_stride,
    state,
    state_strides,
    state_rows,
    states,
    dt,
    dt_stride,
    out,
    out_stride,
    end,
    totals,
    bases,
    batch,
    horizon,
    pieces,
    piece_rows,
    ORDER: tl.constexpr,
    SCHEME: tl.constexpr,
    START_ROW: tl.constexpr,
    STEPPED: tl.constexpr,
    CHUNKED: tl.constexpr,
    BOTTOM: tl.constexpr,
    TOP: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Rows of outputs from actions, forward in time.

    Row o of a piece is action o − START_ROW. CHUNKED 0: lanes are trajectories. 1: pieces of
    them from rest, of which only the last state (``totals``) is wanted. 2: pieces, each from its
    state in ``bases`` (orders below the actions') and the last state of the piece before.
    """
    trajectory, piece, column, alive = lanes(batch, pieces, N, DP, D)
    row_0 = piece * piece_rows
    own, known = own_state(state_rows, states, trajectory, batch)
    if CHUNKED != 1:
        x = loaded_state(state, state_strides, own, known, column, alive)
    at = (trajectory * pieces + piece) * D + column
    if CHUNKED == 1:
        begun = alive & (row_0 > START_ROW)
        above = trajectory * actions_stride + (row_0 - START_ROW - 1) * D + column
        previous = widened(tl.load(actions + above, mask=begun, other=0.0))
        zero = tl.zeros(alive.shape, tl.float64)
        x = (zero, zero, zero, zero, zero, zero, zero, zero)
        if SCHEME == 2:
            start = loaded_state(state, state_strides, own, known, column, alive & (piece == 0))
            before = tl.where(begun, previous, start[2 * ORDER])
            x = with_part(x, ORDER, before, start[2 * ORDER + 1])
    if CHUNKED == 2:
        later = alive & (piece > 0)
        for m in tl.static_range(4):
            hi, lo = x[2 * m], x[2 * m + 1]
            if m < ORDER:
                hi = tl.load(bases[2 * m] + at, mask=later, other=0.0)
                lo = tl.load(bases[2 * m + 1] + at, mask=later, other=0.0)
            else:
                hi = tl.load(totals[2 * m] + at - D, mask=later, other=0.0)
                lo = tl.load(totals[2 * m + 1] + at - D, mask=later, other=0.0)
            x = with_part(
                x,
                m,
                tl.where(piece > 0, hi, x[2 * m]),
                tl.where(piece > 0, lo, x[2 * m + 1]),
            )
    flat = tl.arange(0, K * DP)[None, :]
    flat_row = flat // DP
    flat_column = flat % DP + tl.program_id(1) * DP
    there = (trajectory < batch) & (flat_column < D)
    from_begin, from_place = offsets(
        actions_stride, trajectory, row_0, pieces, piece_rows, N, K, D, DP, WIDE
    )
    to_begin, to_place = offsets(
        out_stride, trajectory, row_0, pieces, piece_rows, N, K, D, DP, WIDE
    )
    if not STEPPED:
        step = step_of(uniform_step(dt, dt_stride, trajectory, batch), ORDER, SCHEME)
    for first in range(0, piece_rows, K):
        row = row_0 + first + flat_row  # of the outputs
        inside = there & (row < horizon + START_ROW)
        if CHUNKED != 0:
            inside = inside & (first + flat_row < piece_rows)
        action_row = row - START_ROW
        tile = tl.load(
            actions + (from_begin - START_ROW * D) + from_place,
            mask=inside & (action_row >= 0),
            other=0.0,
        )
        rows = rows_of(tl.reshape(tile, [N, K, DP]), K)
        if STEPPED:
            steps = steps_at(
                dt,
                trajectory,
                dt_stride,
                row_0 + first - START_ROW,
                horizon,
                trajectory < batch,
                N,
                K,
            )
        position = ()
        velocity = ()
        acceleration = ()
        jerk = ()
        for i in tl.static_range(K):
            if STEPPED:
                step = step_of(steps[i], ORDER, SCHEME)
            y = next_row(x, widened(rows[i]), step, ORDER, SCHEME, BOTTOM, TOP)
            o = row_0 + first + i
            if START_ROW and i == 0:
                y = chosen(o == 0, x, y)
            if CHUNKED == 1 or end[0] is not None:
                y = chosen((o < horizon + START_ROW) & (first + i < piece_rows), y, x)
            x = y
            if out[0] is not None and ORDER != 0:
                position = position + (narrowed(rounded(x[0], x[1]), out[0].dtype.element_ty),)
            if out[1] is not None and ORDER != 1:
                velocity = velocity + (narrowed(rounded(x[2], x[3]), out[1].dtype.element_ty),)
            if out[2] is not None and ORDER != 2:
                acceleration = acceleration + (
                    narrowed(rounded(x[4], x[5]), out[2].dtype.element_ty),
                )
            if out[3] is not None and ORDER != 3:
                jerk = jerk + (narrowed(rounded(x[6], x[7]), out[3].dtype.element_ty),)
        columns = (position, velocity, acceleration, jerk)
        for m in tl.static_range(4):
            if out[m] is not None:
                if m == ORDER:
                    given = narrowed(widened(tile), out[m].dtype.element_ty)
                    if START_ROW:
                        at_start = own * state_strides[4 * m] + row * 0
                        at_start = at_start + flat_column * state_strides[4 * m + 1]
                        rest = part_of(state[2 * m] + at_start, inside & (row == 0), known)
                        rest = narrowed(widened(rest), out[m].dtype.element_ty)
                        given = tl.where(row == 0, rest, given)
                else:
                    given = tile_of(columns[m], K)
                tl.store(out[m] + to_begin + to_place, given, mask=inside)
        from_begin += K * D
        to_begin += K * D
    if CHUNKED == 1:
        store_state(totals, x, at, alive)
    elif end[0] is not None:
        if CHUNKED == 0:
            store_state(end, x, trajectory * D + column, alive)
        else:
            store_state(end, x, trajectory * D + column, alive & (piece == pieces - 1))
