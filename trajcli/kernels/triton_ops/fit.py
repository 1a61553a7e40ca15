"""Rows by the polynomials that fit their windows best, and their adjoint, in Triton; see ``degree``
of :class:`trajcli.kernels.program.Band`.

Plain: a lane finds a row's orthogonal polynomials one degree after another, and goes through its
window again for each. Windows overlap, so that caches have them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from trajcli.kernels.triton_ops.tiles import lanes, load_row, load_step

SIZES = ["batch", "count", "last", "shift", "width", "entries", "dt_stride", "dt_step"]
SIZES += ["actions_stride", "rows_stride", "span_stride"]
"""Not specialised, so that a last, smaller block needs no other kernel."""


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=["actions", "dt", "spans"])
def run(
    actions, dt, rows, count, last, shift, width, batch, actions_stride, rows_stride,
    entries, dt_stride, dt_step, spans, span_stride,
    ADJOINT: tl.constexpr, DEGREE: tl.constexpr, D: tl.constexpr, DOFS: tl.constexpr,
    LANES: tl.constexpr,
):  # fmt: skip
    """Rows [B, T, D] from actions [B, T, D]. ADJOINT: adds to the gradients of actions, float64,
    what those of rows give. spans: the first and the last row of each row's window, or None."""
    trajectory, dof, there = lanes(batch, D, DOFS, LANES)
    steps = (dt + trajectory * dt_stride, dt_step, entries)
    points = actions + trajectory * actions_stride + dof
    row = trajectory * rows_stride + dof
    for t in range(count):
        first = tl.minimum(tl.maximum(t - shift, 0), last)
        base = t - first
        begin = tl.zeros([LANES], tl.float64)  # the time of the window's first point
        low = tl.zeros([LANES], tl.int64) + first
        high = low + (width - 1)
        if spans is not None:
            span = spans + trajectory * span_stride + 2 * t
            low, high = tl.load(span, mask=there, other=0), tl.load(span + 1, mask=there, other=0)
        for i in range(base):
            step = load_step(steps, first + i, there)
            begin -= tl.where(first + i >= low, step, 0.0)
        window = (points, steps, first, width, begin, low, high, there)
        if ADJOINT:
            upstream = load_row(rows, row, there)
            means, ratios, shares = polynomials(window, begin, upstream, True, DEGREE, D)
            pull(window, base, means, ratios, shares, upstream[0], DEGREE, D)
        else:
            here = tl.load(points + base * D, mask=there, other=0).to(tl.float64)
            zero = begin * 0.0
            values = polynomials(window, here, (here, zero, zero, zero), False, DEGREE, D)[2]
            for m in tl.static_range(4):
                if rows[m] is not None:
                    tl.store(rows[m] + row, values[m], mask=there)
        points += (tl.minimum(tl.maximum(t + 1 - shift, 0), last) - first) * D
        row += D


@triton.jit
def polynomials(window, here, row, ADJOINT: tl.constexpr, DEGREE: tl.constexpr, D: tl.constexpr):
    """The factors of the polynomials' recurrence, and ``row`` with the fit's values added; ADJOINT:
    what of the gradients ``row`` each polynomial takes."""
    points, steps, first, width, begin, low, high, there = window
    zero = begin * 0.0
    one = zero + 1.0
    means = ()
    ratios = ()
    shares = ()
    at_row = (one, zero, zero, zero)  # derivatives of a polynomial
    before = (zero, zero, zero, zero)
    norm_before = one
    for k in tl.static_range(DEGREE + 1):
        norm = zero
        moment = zero
        total = zero
        time = begin
        for i in range(width):
            inside = there & (first + i >= low) & (first + i <= high)
            value = tl.where(inside, polynomial(time, means, ratios, k), 0.0)
            norm = tl.fma(value, value, norm)
            moment = tl.fma(time * value, value, moment)
            if not ADJOINT:
                point = tl.load(points + i * D, mask=inside, other=0).to(tl.float64)
                total = tl.fma(value, tl.where(inside, point - here, 0.0), total)
            time += tl.where(inside, load_step(steps, first + i, there), 0.0)
        norm = tl.where(norm == 0.0, 1.0, norm)  # of lanes without a row
        if ADJOINT:
            taken = zero
            for m in tl.static_range(4):
                taken = tl.fma(at_row[m], row[m], taken)
            shares = shares + (taken / norm,)
        else:
            new = ()
            for m in tl.static_range(4):
                new = new + (tl.fma(at_row[m], total / norm, row[m]),)
            row = new
        mean = moment / norm
        ratio = norm / norm_before if k > 0 else zero
        following = ()
        for m in tl.static_range(4):
            slope = at_row[m - 1] * m if m > 0 else zero
            following = following + (slope - mean * at_row[m] - ratio * before[m],)
        means = means + (mean,)
        ratios = ratios + (ratio,)
        before = at_row
        at_row = following
        norm_before = norm
    return means, ratios, shares if ADJOINT else row


@triton.jit
def polynomial(time, means, ratios, K: tl.constexpr):
    """The K-th of the orthogonal polynomials."""
    value = time * 0.0 + 1.0
    before = time * 0.0
    for k in tl.static_range(K):
        following = (time - means[k]) * value - ratios[k] * before
        before = value
        value = following
    return value


@triton.jit
def pull(
    window, base, means, ratios, shares, rest, DEGREE: tl.constexpr, D: tl.constexpr
):  # fmt: skip
    """Adds to the gradients of the points, in memory; rest: that of the point at the base."""
    points, steps, first, width, begin, low, high, there = window
    time = begin
    for i in range(width):
        inside = there & (first + i >= low) & (first + i <= high)
        gradient = time * 0.0
        for k in tl.static_range(DEGREE + 1):
            gradient = tl.fma(shares[k], polynomial(time, means, ratios, k), gradient)
        total = tl.load(points + i * D, mask=inside, other=0)
        tl.store(points + i * D, total + gradient, mask=inside)
        rest -= tl.where(inside, gradient, 0.0)
        time += tl.where(inside, load_step(steps, first + i, there), 0.0)
    total = tl.load(points + base * D, mask=there, other=0)
    tl.store(points + base * D, total + rest, mask=there)
