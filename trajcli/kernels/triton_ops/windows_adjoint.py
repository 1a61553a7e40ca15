"""The transpose of the band in Triton: every point on its own, from the rows that use it."""

from __future__ import annotations

import triton
import triton.language as tl

from trajcli.kernels.triton_ops.arithmetic import narrowed, widened
from trajcli.kernels.triton_ops.windows import kind_of, places, row_number, weights_at


@triton.jit
def pulled(
    upstream,
    upstream_stride,
    table,
    table_at,
    weighted,
    trajectory,
    t,
    d,
    mask,
    total,
    AT: tl.constexpr,
    WIDTH: tl.constexpr,
    D: tl.constexpr,
):
    """total plus what row t asks of point AT of its window."""
    for m in tl.static_range(4):
        if upstream[m] is not None:
            at = table_at + m * WIDTH
            if m > 0 and WIDTH // 2 == AT:  # the others are weighed less this one
                weight = tl.zeros_like(tl.load(table + at, mask=weighted, other=0.0))
                for i in tl.static_range(WIDTH):
                    if i != WIDTH // 2:
                        weight = weight - tl.load(table + at + i, mask=weighted, other=0.0)
            else:
                weight = tl.load(table + at + AT, mask=weighted, other=0.0)
            place = upstream[m] + trajectory * upstream_stride + t * D + d
            total = tl.fma(weight, widened(tl.load(place, mask=mask, other=0.0)), total)
    return total


@triton.jit
def asked_of(
    q,
    d,
    trajectory,
    mask,
    upstream,
    upstream_stride,
    table,
    table_stride,
    batch,
    last,
    count,
    most,
    total,
    OFFSET: tl.constexpr,
    STEPS: tl.constexpr,
    SHIFT: tl.constexpr,
    EACH: tl.constexpr,
    SHARED: tl.constexpr,
    INNER: tl.constexpr,
    WIDTH: tl.constexpr,
    D: tl.constexpr,
):
    """total plus what all rows whose window holds point q ask of it, in their order."""
    for k in tl.static_range(WIDTH):
        first = q - (WIDTH - 1 - k)
        begin = STEPS * (first + SHIFT) - OFFSET
        if INNER:
            for r in tl.static_range(STEPS):
                t = begin + r
                if STEPS == 1 and not EACH:
                    at, weighted = weights_at(
                        trajectory, table_stride, SHIFT, batch, mask, SHARED, True, INNER, WIDTH
                    )
                else:
                    kind = kind_of(t, first, OFFSET, STEPS, EACH)
                    at, weighted = weights_at(
                        trajectory, table_stride, kind, batch, mask, SHARED, False, INNER, WIDTH
                    )
                total = pulled(
                    upstream,
                    upstream_stride,
                    table,
                    at,
                    weighted,
                    trajectory,
                    t,
                    d,
                    mask,
                    total,
                    WIDTH - 1 - k,
                    WIDTH,
                    D,
                )
        else:
            end = tl.where(first == last, count, begin + STEPS)
            begin = tl.maximum(tl.where(first == 0, 0, begin), 0)
            for r in range(most):
                t = begin + r
                asked = (first >= 0) & (first <= last) & (t < end) & (t < count)
                asks = mask & asked
                kind = tl.where(asked, kind_of(t, first, OFFSET, STEPS, EACH), 0)
                at, weighted = weights_at(
                    trajectory, table_stride, kind, batch, mask, SHARED, False, INNER, WIDTH
                )
                total = pulled(
                    upstream,
                    upstream_stride,
                    table,
                    at,
                    weighted,
                    trajectory,
                    t,
                    d,
                    asks,
                    total,
                    WIDTH - 1 - k,
                    WIDTH,
                    D,
                )
    return total


@triton.jit(
    do_not_specialize=["batch", "points", "jump_at", "jump", "last", "count", "most", "runs"]
)
def band_adjoint(
    upstream,
    upstream_stride,
    table,
    table_stride,
    grads,
    grad_stride,
    batch,
    horizon,
    point_0,
    points,
    jump_at,
    jump,
    last,
    count,
    most,
    runs,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
    OFFSET: tl.constexpr,
    STEPS: tl.constexpr,
    SHIFT: tl.constexpr,
    EACH: tl.constexpr,
    SHARED: tl.constexpr,
    HELD: tl.constexpr,
    INNER: tl.constexpr,
    WIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    D: tl.constexpr,
    N: tl.constexpr,
    F: tl.constexpr,
):
    """Gradients of ``points`` padded points (actions, head, tail in ``grads``) from point_0 on.

    A point gathers what each row of ``count`` whose window holds it asks of it, in the order of
    the rows. INNER: points of which every window is one of STEPS rows; else there may be ``most``.
    HELD: how many points behind the last action are that action again.
    """
    trajectory, number, d, there = places(points, runs, INNER, WIDE, D, N, F)
    mask = there & (trajectory < batch)
    q = point_0 + number + tl.where(number >= jump_at, jump, 0)
    total = asked_of(
        q,
        d,
        trajectory,
        mask,
        upstream,
        upstream_stride,
        table,
        table_stride,
        batch,
        last,
        count,
        most,
        tl.zeros([N, F], tl.float64),
        OFFSET,
        STEPS,
        SHIFT,
        EACH,
        SHARED,
        INNER,
        WIDTH,
        D,
    )
    if HELD > 0 and not INNER:
        one = row_number(points, D, F)
        one = point_0 + one + tl.where(one >= jump_at, jump, 0)
        for more in range(1, tl.where(one == HEAD + horizon - 1, HELD + 1, 1)):
            total = asked_of(
                q + more,
                d,
                trajectory,
                mask,
                upstream,
                upstream_stride,
                table,
                table_stride,
                batch,
                last,
                count,
                most,
                total,
                OFFSET,
                STEPS,
                SHIFT,
                EACH,
                SHARED,
                INNER,
                WIDTH,
                D,
            )
    inner = mask & (q >= HEAD) & (q < HEAD + horizon)
    to = grads[0] + trajectory * grad_stride + (q - HEAD) * D + d
    tl.store(to, narrowed(total, grads[0].dtype.element_ty), mask=inner)
    if not INNER:
        if HEAD > 0:
            tl.store(grads[1] + (trajectory * HEAD + q) * D + d, total, mask=mask & (q < HEAD))
        if TAIL > 0:
            after = q - HEAD - horizon
            tl.store(
                grads[2] + (trajectory * TAIL + after) * D + d, total, mask=mask & (after >= 0)
            )
