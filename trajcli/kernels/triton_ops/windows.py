"""The band in Triton: every output on its own, from the points around it.

A program computes a tile of outputs as they lie in memory, a few trajectories by a run of flat
(row, dof) places. Windows of a tile overlap, so all but the first load of a point come from
cache. Row t's window begins at min(max((t + OFFSET) // STEPS − SHIFT, 0), last). This is for any
weights (a dt for every step, several steps to a knot, one-sided ends, float64) and for the rows
near the ends of those that sliding.py computes.
"""

from __future__ import annotations

import triton
import triton.language as tl

from trajcli.kernels.triton_ops.arithmetic import (
    add,
    narrowed,
    rounded,
    times,
    times_pair,
    two_sum,
    widened,
)
from trajcli.kernels.triton_ops.steps import own_state, part_of


@triton.jit
def window(t, last, OFFSET: tl.constexpr, STEPS: tl.constexpr, SHIFT: tl.constexpr):
    """Where the window of row t begins."""
    return tl.minimum(tl.maximum((t + OFFSET) // STEPS - SHIFT, 0), last)


@triton.jit
def kind_of(t, first, OFFSET: tl.constexpr, STEPS: tl.constexpr, EACH: tl.constexpr):
    """Which row of the table row t takes: its own (EACH), or by its place in the window."""
    if EACH:
        kind = t
    else:
        kind = t + OFFSET - STEPS * first
    return kind


@triton.jit
def places(
    count,
    runs,
    INNER: tl.constexpr,
    WIDE: tl.constexpr,
    D: tl.constexpr,
    N: tl.constexpr,
    F: tl.constexpr,
):
    """Trajectories [N, 1] int64, number of the row, dof and whether there is such a place.

    INNER: one of ``runs`` of flat places of ``count`` rows, [1, F], in 32 bits unless WIDE. Else
    one row, a number, [1, F] dofs.
    """
    tile = tl.program_id(0)
    if INNER:
        run = tile % runs
        tile = tile // runs
        if WIDE:
            run = run.to(tl.int64)
        flat = run * F + tl.arange(0, F)[None, :]
        number = flat // D
        d = flat % D
        there = flat < count * D
    else:
        number = tl.program_id(1) + tl.zeros([1, 1], tl.int64)
        d = tl.program_id(2) * F + tl.arange(0, F)[None, :]
        there = d < D
    trajectory = tile.to(tl.int64) * N + tl.arange(0, N)[:, None]
    return trajectory, number, d, there


@triton.jit
def weights_at(
    trajectory,
    stride,
    kind,
    batch,
    there,
    SHARED: tl.constexpr,
    ALIKE: tl.constexpr,
    INNER: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Where the weights of rows lie in the table, and whether there are any. SHARED by all
    trajectories and ALIKE for all rows of the tile they are numbers, read once."""
    at = kind * (4 * WIDTH)
    if SHARED:
        if ALIKE or not INNER:
            mask = tl.zeros([1, 1], tl.int32) == 0
            at = at + tl.zeros([1, 1], tl.int64)
        else:
            mask = there
    else:
        at = at + trajectory * stride
        if ALIKE or not INNER:
            mask = trajectory < batch
        else:
            mask = there & (trajectory < batch)
    return at, mask


@triton.jit
def scaled_state(
    parts,
    strides,
    rows,
    count,
    spacing,
    spacing_stride,
    trajectory,
    d,
    mask,
    batch,
    POINTS: tl.constexpr,
):
    """What a state's points are sums of: its parts by spacing to the order and over a common
    denominator, four pairs flat, () for parts that are zero. POINTS: see run_band.py."""
    own, known = own_state(rows, count, trajectory, batch)
    one = tl.full([1, 1], 1.0, tl.float64)
    hi, lo = one, one * 0.0
    power_hi, power_lo = hi, lo
    if spacing[0] is not None:
        inside = trajectory < batch
        hi = tl.load(spacing[0] + trajectory * spacing_stride, mask=inside, other=1.0)
        lo = tl.load(spacing[1] + trajectory * spacing_stride, mask=inside, other=0.0)
        power_hi, power_lo = hi * 0.0 + 1.0, lo * 0.0
    found = ()
    for m in tl.static_range(4):
        if parts[m] is None:
            found = found + ((), ())
        else:
            place = parts[m] + own * strides[2 * m] + d * strides[2 * m + 1]
            part = widened(part_of(place, mask, known))
            over_hi = tl.full([1, 1], POINTS[2 * m], tl.float64)
            over_lo = tl.full([1, 1], POINTS[2 * m + 1], tl.float64)
            by_hi, by_lo = times_pair(over_hi, over_lo, power_hi, power_lo)
            found = found + times(part, by_hi, by_lo)
        power_hi, power_lo = times_pair(hi, lo, power_hi, power_lo)
    return found


@triton.jit
def point_of(parts, scaled, i, mask, POINTS: tl.constexpr, COUNT: tl.constexpr):
    """Point i of a state's as a pair, from :func:`scaled_state`."""
    hi = tl.zeros(mask.shape, tl.float64)
    lo = tl.zeros(mask.shape, tl.float64)
    for m in tl.static_range(4):
        if parts[m] is not None:
            weight = tl.zeros([1, 1], tl.float64)
            for k in tl.static_range(COUNT):
                weight = tl.where(i == k, POINTS[8 + 4 * k + m], weight)
            term_hi, term_lo = times(weight, scaled[2 * m], scaled[2 * m + 1])
            hi, lo = add(hi, lo, term_hi, term_lo)
    return hi, lo


@triton.jit
def point(
    q,
    d,
    trajectory,
    mask,
    actions,
    actions_stride,
    horizon,
    state,
    early,
    goal,
    late,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
    HEAD_POINTS: tl.constexpr,
    TAIL_POINTS: tl.constexpr,
    HALO: tl.constexpr,
    D: tl.constexpr,
):
    """Point q of the padded actions as a pair. HALO: it may lie before or after the actions, among
    HEAD points of a state or TAIL of a goal (``early``, ``late``: scaled), or where the last
    action is held (TAIL_POINTS is None)."""
    if HALO:
        at = q - HEAD
        if TAIL_POINTS is None:
            at = tl.minimum(at, horizon - 1)
        inner = mask & (at >= 0) & (at < horizon)
        place = trajectory * actions_stride + at * D + d
        hi = widened(tl.load(actions + place, mask=inner, other=0.0))
        lo = tl.zeros_like(hi)
        if HEAD > 0:
            other_hi, other_lo = point_of(state, early, q, mask, HEAD_POINTS, HEAD)
            hi = tl.where(at < 0, other_hi, hi)
            lo = tl.where(at < 0, other_lo, lo)
        if TAIL > 0 and TAIL_POINTS is not None:
            other_hi, other_lo = point_of(goal, late, at - horizon, mask, TAIL_POINTS, TAIL)
            hi = tl.where(at >= horizon, other_hi, hi)
            lo = tl.where(at >= horizon, other_lo, lo)
    else:
        place = trajectory * actions_stride + (q - HEAD) * D + d
        hi = widened(tl.load(actions + place, mask=mask, other=0.0))
        lo = tl.zeros_like(hi)
    return hi, lo


@triton.jit
def leading_bits(a):
    """a to its 15 leading bits: its products with differences of float32 values, and sums of a
    few of those, are without error."""
    scaled = 274877906945.0 * a  # 2**38 + 1
    return scaled - (scaled - a)


@triton.jit
def weighed(table, at, mask, hi, lo, M: tl.constexpr, WIDTH: tl.constexpr, PAIRED: tl.constexpr):
    """Σ_i weight_i · point_i of order M: the weights lie at table[..] + at + i.

    hi, lo: the points (differences from the middle one for M > 0), of which those with a weight
    of zero count for nothing, NaN or not. PAIRED: in pairs throughout. Else the points are
    float32 or differences of such; weights are taken in two parts, the leading one exact.
    """
    sum_hi = tl.zeros_like(hi[0])
    sum_lo = tl.zeros_like(hi[0])
    for i in tl.static_range(WIDTH):
        if M == 0 or i != WIDTH // 2:
            weight_hi = tl.load(table[0] + at + i, mask=mask, other=0.0)
            weight_lo = tl.load(table[1] + at + i, mask=mask, other=0.0)
            used = weight_hi != 0.0
            if PAIRED:
                term_hi, term_lo = times_pair(weight_hi, weight_lo, hi[i], lo[i])
                term_hi = tl.where(used, term_hi, 0.0)
                term_lo = tl.where(used, term_lo, 0.0)
                sum_hi, sum_lo = add(sum_hi, sum_lo, term_hi, term_lo)
            elif M == 0:
                sum_hi = tl.fma(weight_hi, tl.where(used, hi[i], 0.0), sum_hi)
            else:
                value = tl.where(used, hi[i], 0.0)
                leading = leading_bits(weight_hi)
                sum_hi = tl.fma(leading, value, sum_hi)
                sum_lo = tl.fma((weight_hi - leading) + weight_lo, value, sum_lo)
    return rounded(sum_hi, sum_lo)


@triton.jit
def band_rows(
    row,
    d,
    trajectory,
    mask,
    actions,
    actions_stride,
    state,
    early,
    goal,
    late,
    table,
    table_stride,
    out,
    out_stride,
    batch,
    horizon,
    last,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
    HEAD_POINTS: tl.constexpr,
    TAIL_POINTS: tl.constexpr,
    OFFSET: tl.constexpr,
    STEPS: tl.constexpr,
    SHIFT: tl.constexpr,
    EACH: tl.constexpr,
    SHARED: tl.constexpr,
    INNER: tl.constexpr,
    PAIRED: tl.constexpr,
    START: tl.constexpr,
    WIDTH: tl.constexpr,
    D: tl.constexpr,
):
    """Outputs at places of rows, trajectories and dofs; see :func:`band`."""
    t = row - START
    if INNER:
        first = (t + OFFSET) // STEPS - SHIFT
    else:
        first = window(t, last, OFFSET, STEPS, SHIFT)
    hi = ()
    lo = ()
    for i in tl.static_range(WIDTH):
        windowed = mask & (t >= 0)
        point_hi, point_lo = point(
            first + i,
            d,
            trajectory,
            windowed,
            actions,
            actions_stride,
            horizon,
            state,
            early,
            goal,
            late,
            HEAD,
            TAIL,
            HEAD_POINTS,
            TAIL_POINTS,
            not INNER,
            D,
        )
        hi = hi + (point_hi,)
        lo = lo + (point_lo,)
    apart_hi = ()
    apart_lo = ()
    for i in tl.static_range(WIDTH):
        if PAIRED:
            point_hi, point_lo = two_sum(hi[i], -hi[WIDTH // 2])
            point_lo = point_lo + (lo[i] - lo[WIDTH // 2])
            apart_hi = apart_hi + (point_hi,)
            apart_lo = apart_lo + (point_lo,)
        else:
            apart_hi = apart_hi + (hi[i] - hi[WIDTH // 2],)
            apart_lo = apart_lo + (lo[i],)
    if INNER and STEPS == 1 and not EACH:
        at, weighted = weights_at(
            trajectory, table_stride, SHIFT, batch, mask, SHARED, True, INNER, WIDTH
        )
    else:
        kind = kind_of(t, first, OFFSET, STEPS, EACH)
        if not INNER:
            kind = tl.maximum(kind, 0)  # the start's row has none
        at, weighted = weights_at(
            trajectory, table_stride, kind, batch, mask, SHARED, False, INNER, WIDTH
        )
    for m in tl.static_range(4):
        if out[m] is not None:
            if m == 0:
                value = weighed(table, at, weighted, hi, lo, m, WIDTH, PAIRED)
            else:
                value = weighed(
                    table, at + m * WIDTH, weighted, apart_hi, apart_lo, m, WIDTH, PAIRED
                )
            to = out[m] + trajectory * out_stride + row * D + d
            tl.store(to, narrowed(value, out[m].dtype.element_ty), mask=mask & (t >= 0))


@triton.jit
def start_row(
    out,
    out_stride,
    parts,
    strides,
    rows,
    count,
    trajectory,
    d,
    mask,
    batch,
    D: tl.constexpr,
):
    """The start state as the first row of the outputs."""
    own, known = own_state(rows, count, trajectory, batch)
    for m in tl.static_range(4):
        if out[m] is not None:
            value = tl.zeros(mask.shape, tl.float64)
            if parts[m] is not None:
                place = parts[m] + own * strides[2 * m] + d * strides[2 * m + 1]
                value = widened(part_of(place, mask, known))
            to = out[m] + trajectory * out_stride + d
            tl.store(to, narrowed(value, out[m].dtype.element_ty), mask=mask)


@triton.jit(
    do_not_specialize=[
        "batch",
        "rows",
        "jump_at",
        "jump",
        "last",
        "runs",
        "states",
        "goals",
    ]
)
def band(
    actions,
    actions_stride,
    state,
    state_strides,
    state_rows,
    states,
    goal,
    goal_strides,
    goal_rows,
    goals,
    state_spacing,
    state_spacing_stride,
    table,
    table_stride,
    out,
    out_stride,
    batch,
    horizon,
    row_0,
    rows,
    jump_at,
    jump,
    last,
    runs,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
    HEAD_POINTS: tl.constexpr,
    TAIL_POINTS: tl.constexpr,
    OFFSET: tl.constexpr,
    STEPS: tl.constexpr,
    SHIFT: tl.constexpr,
    EACH: tl.constexpr,
    SHARED: tl.constexpr,
    INNER: tl.constexpr,
    WIDE: tl.constexpr,
    PAIRED: tl.constexpr,
    START: tl.constexpr,
    WIDTH: tl.constexpr,
    D: tl.constexpr,
    N: tl.constexpr,
    F: tl.constexpr,
):
    """``rows`` rows of outputs from row_0 on; from number ``jump_at`` on, ``jump`` rows further.

    SHARED: the table is the same for all trajectories. INNER: windows hold actions only, and
    none is held at an end. START: row 0 is the start.
    """
    trajectory, number, d, there = places(rows, runs, INNER, WIDE, D, N, F)
    mask = there & (trajectory < batch)
    row = row_0 + number + tl.where(number >= jump_at, jump, 0)
    early = ()
    late = ()
    if not INNER:
        if HEAD > 0:
            early = scaled_state(
                state,
                state_strides,
                state_rows,
                states,
                state_spacing,
                state_spacing_stride,
                trajectory,
                d,
                mask,
                batch,
                HEAD_POINTS,
            )
        if TAIL > 0 and TAIL_POINTS is not None:
            late = scaled_state(
                goal,
                goal_strides,
                goal_rows,
                goals,
                state_spacing,
                state_spacing_stride,
                trajectory,
                d,
                mask,
                batch,
                TAIL_POINTS,
            )
        if START:
            start_row(
                out,
                out_stride,
                state,
                state_strides,
                state_rows,
                states,
                trajectory,
                d,
                mask & (row == 0),
                batch,
                D,
            )
    band_rows(
        row,
        d,
        trajectory,
        mask,
        actions,
        actions_stride,
        state,
        early,
        goal,
        late,
        table,
        table_stride,
        out,
        out_stride,
        batch,
        horizon,
        last,
        HEAD,
        TAIL,
        HEAD_POINTS,
        TAIL_POINTS,
        OFFSET,
        STEPS,
        SHIFT,
        EACH,
        SHARED,
        INNER,
        PAIRED,
        START,
        WIDTH,
        D,
    )
