"""The transpose of the cascade in Triton: rows backward in time."""

from __future__ import annotations

import triton
import triton.language as tl

from trajcli.kernels.triton_ops.arithmetic import (
    add,
    narrowed,
    rounded,
    rows_of,
    tile_of,
    times_pair,
    widened,
)
from trajcli.kernels.triton_ops.steps import (
    by_taylor,
    chosen,
    lanes,
    offsets,
    row_before,
    step_of,
    steps_at,
    store_state,
    uniform_step,
)


@triton.jit
def homogeneous_before(bases, totals, at, later, step, ORDER: tl.constexpr, D: tl.constexpr):
    """What a foh row asks of the action before it on behalf of what lies beyond its piece.

    The piece after, computed from rest, has all but this in its totals: its first row's share of
    what was carried to it, from the sums carried on (``bases``) less those of its own.
    """
    zero = tl.zeros(later.shape, tl.float64)
    hi, lo = zero, zero
    asked = ()
    for m in tl.static_range(ORDER):
        a_hi = tl.load(bases[2 * m] + at, mask=later, other=0.0)
        a_lo = tl.load(bases[2 * m + 1] + at, mask=later, other=0.0)
        own_hi = tl.load(totals[2 * m] + at + D, mask=later, other=0.0)
        own_lo = tl.load(totals[2 * m + 1] + at + D, mask=later, other=0.0)
        a_hi, a_lo = add(a_hi, a_lo, -own_hi, -own_lo)
        for r in tl.static_range(1, m + 1):
            b_hi, b_lo = by_taylor(step, r, asked[2 * (m - r)], asked[2 * (m - r) + 1])
            a_hi, a_lo = add(a_hi, a_lo, -b_hi, -b_lo)
        asked = asked + (a_hi, a_lo)
        weight_hi = (ORDER - m) * step[4 + 2 * (ORDER - m)]
        weight_lo = (ORDER - m) * step[5 + 2 * (ORDER - m)]
        b_hi, b_lo = times_pair(weight_hi, weight_lo, a_hi, a_lo)
        hi, lo = add(hi, lo, b_hi, b_lo)
    return hi, lo


@triton.jit
def loaded_rows(source, begin, place, mask, N: tl.constexpr, K: tl.constexpr, DP: tl.constexpr):
    """K rows [N, DP] in float64; None is zero."""
    rows = ()
    if source is None:
        for _ in tl.static_range(K):
            rows = rows + (tl.zeros([N, DP], tl.float64),)
    else:
        tile = rows_of(
            tl.reshape(tl.load(source + begin + place, mask=mask, other=0.0), [N, K, DP]), K
        )
        for i in tl.static_range(K):
            rows = rows + (widened(tile[i]),)
    return rows


@triton.jit(do_not_specialize=["batch", "horizon"])
def backward(
    upstream,
    upstream_stride,
    end,
    dt,
    dt_stride,
    sources,
    sources_stride,
    state,
    totals,
    bases,
    batch,
    horizon,
    pieces,
    piece_rows,
    ORDER: tl.constexpr,
    SCHEME: tl.constexpr,
    STEPPED: tl.constexpr,
    CHUNKED: tl.constexpr,
    EVEN: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    WIDE: tl.constexpr,
):
    """The transpose of :func:`forward` at fixed dt, rows in reverse.

    CHUNKED as there: 1 computes what each piece asks of the one before, from rest; 2 starts
    pieces from ``bases`` (orders below the actions') and the totals of the piece after. EVEN: the
    horizon is a multiple of K and lanes are trajectories.
    """
    trajectory, piece, column, alive = lanes(batch, pieces, N, DP, D)
    row_0 = piece * piece_rows
    at = (trajectory * pieces + piece) * D + column
    final = alive & (piece == pieces - 1)
    later = ()
    for m in tl.static_range(4):
        hi = tl.zeros(alive.shape, tl.float64)
        lo = tl.zeros(alive.shape, tl.float64)
        if end[m] is not None:
            if CHUNKED != 1 or m >= ORDER:
                hi = tl.load(end[m] + trajectory * D + column, mask=final, other=0.0)
        if CHUNKED == 2:
            inner = alive & (piece < pieces - 1)
            if m < ORDER:
                more_hi = tl.load(bases[2 * m] + at, mask=inner, other=0.0)
                more_lo = tl.load(bases[2 * m + 1] + at, mask=inner, other=0.0)
            else:
                more_hi = tl.load(totals[2 * m] + at + D, mask=inner, other=0.0)
                more_lo = tl.load(totals[2 * m + 1] + at + D, mask=inner, other=0.0)
                if SCHEME == 2 and m == ORDER:
                    if STEPPED:
                        reach = row_0 + piece_rows
                        gap = tl.load(
                            dt + trajectory * dt_stride + reach,
                            mask=(trajectory < batch) & (reach < horizon),
                            other=1.0,
                        )
                    else:
                        gap = uniform_step(dt, dt_stride, trajectory, batch)
                    b_hi, b_lo = homogeneous_before(
                        bases, totals, at, inner, step_of(gap, ORDER, SCHEME), ORDER, D
                    )
                    more_hi, more_lo = add(more_hi, more_lo, b_hi, b_lo)
            hi = tl.where(inner, more_hi, hi)
            lo = tl.where(inner, more_lo, lo)
        later = later + (hi, lo)
    flat = tl.arange(0, K * DP)[None, :]
    flat_row = flat // DP
    there = (trajectory < batch) & (flat % DP + tl.program_id(1) * DP < D)
    from_begin, from_place = offsets(
        upstream_stride, trajectory, row_0, pieces, piece_rows, N, K, D, DP, WIDE
    )
    to_begin, to_place = offsets(
        sources_stride, trajectory, row_0, pieces, piece_rows, N, K, D, DP, WIDE
    )
    if not STEPPED:
        step = step_of(uniform_step(dt, dt_stride, trajectory, batch), ORDER, SCHEME)
    tiles = (piece_rows + K - 1) // K
    from_begin += (tiles - 1).to(tl.int64) * (K * D)
    to_begin += (tiles - 1).to(tl.int64) * (K * D)
    for tile in range(tiles):
        first = (tiles - 1 - tile) * K
        inside = there & (row_0 + first + flat_row < horizon)
        if CHUNKED != 0:
            inside = inside & (first + flat_row < piece_rows)
        g0 = loaded_rows(upstream[0], from_begin, from_place, inside, N, K, DP)
        g1 = loaded_rows(upstream[1], from_begin, from_place, inside, N, K, DP)
        g2 = loaded_rows(upstream[2], from_begin, from_place, inside, N, K, DP)
        g3 = loaded_rows(upstream[3], from_begin, from_place, inside, N, K, DP)
        if STEPPED:
            steps = steps_at(
                dt, trajectory, dt_stride, row_0 + first, horizon, trajectory < batch, N, K
            )
        e0 = ()
        e1 = ()
        e2 = ()
        e3 = ()
        for i in tl.static_range(K - 1, -1, -1):
            if STEPPED:
                step = step_of(steps[i], ORDER, SCHEME)
            asked, before = row_before(later, (g0[i], g1[i], g2[i], g3[i]), step, ORDER, SCHEME)
            if EVEN:
                later = before
            else:
                valid = (row_0 + first + i < horizon) & (first + i < piece_rows)
                later = chosen(valid, before, later)
            if sources[0] is not None:
                e0 = (narrowed(rounded(asked[0], asked[1]), sources[0].dtype.element_ty),) + e0
            if sources[1] is not None:
                e1 = (narrowed(rounded(asked[2], asked[3]), sources[1].dtype.element_ty),) + e1
            if sources[2] is not None:
                e2 = (narrowed(rounded(asked[4], asked[5]), sources[2].dtype.element_ty),) + e2
            if sources[3] is not None:
                e3 = (narrowed(rounded(asked[6], asked[7]), sources[3].dtype.element_ty),) + e3
        columns = (e0, e1, e2, e3)
        for m in tl.static_range(4):
            if sources[m] is not None:
                tl.store(sources[m] + to_begin + to_place, tile_of(columns[m], K), mask=inside)
        from_begin -= K * D
        to_begin -= K * D
    if CHUNKED == 1:
        store_state(totals, later, at, alive)
    else:
        for m in tl.static_range(4):
            if state[m] is not None:
                value = rounded(later[2 * m], later[2 * m + 1])
                tl.store(state[m] + trajectory * D + column, value, mask=alive & (piece == 0))
