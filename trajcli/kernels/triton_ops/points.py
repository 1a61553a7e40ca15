"""What lies before and after the actions of a band, in Triton: points of a state or of a goal, or
the last action again.

A state is given by its parts [B, D], or [S, D] with the row of each trajectory. Its points are
whole numbers times its scaled parts, given in a flat tuple (POINTS): see formula.points.
"""

from __future__ import annotations

import triton
import triton.language as tl

from trajcli.kernels.triton_ops.arithmetic import add, narrowed, times, times_pair, widened
from trajcli.kernels.triton_ops.steps import own_state, part_of


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
    denominator, four pairs flat, () for parts that are zero."""
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
def scaled_ends(
    state,
    state_strides,
    state_rows,
    states,
    goal,
    goal_strides,
    goal_rows,
    goals,
    spacing,
    spacing_stride,
    trajectory,
    d,
    mask,
    batch,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
    HEAD_POINTS: tl.constexpr,
    TAIL_POINTS: tl.constexpr,
):
    """The scaled states of head and tail, () where there are no points of such."""
    early = ()
    late = ()
    if HEAD > 0:
        early = scaled_state(
            state,
            state_strides,
            state_rows,
            states,
            spacing,
            spacing_stride,
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
            spacing,
            spacing_stride,
            trajectory,
            d,
            mask,
            batch,
            TAIL_POINTS,
        )
    return early, late


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
