"""Weights of windows whose steps differ, in Triton: a table for :mod:`band` with a column a row.

They are those of the polynomial that meets a window's points, or of the one of a degree that fits
them best: see :func:`trajcli.kernels.fit.fit_weights` for the method.
"""

from __future__ import annotations

import triton
import triton.language as tl

SIZES = ["batch", "width", "count", "last", "offset", "shift", "lead", "steps", "dt_stride"]
SIZES += ["dt_step", "span_stride"]
"""Not specialised, so that a last, smaller block needs no other kernel."""


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=["dt", "spans", "bases"])
def run(
    table, dt, spans, bases, batch, width, count, last, offset, shift, lead, steps, dt_stride,
    dt_step, span_stride, POINTS: tl.constexpr, COPIES: tl.constexpr, DEGREE: tl.constexpr,
    LANES: tl.constexpr,
):  # fmt: skip
    """Weights of points [b, 4, width, T], or of their differences [b, 4, width − 1, T]. spans: the
    first and the last point of each row's window, or None: all. COPIES: positions are points."""
    row = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    trajectory, t = row // count, (row % count).to(tl.int32)
    there = trajectory < batch
    first = tl.minimum(tl.maximum(t + offset - shift, 0), last)
    base = tl.load(bases + t + offset - first, mask=there, other=0)
    low, high = base * 0, base * 0 + width - 1
    if spans is not None:
        span = spans + trajectory * span_stride + 2 * t
        low = (tl.load(span, mask=there, other=0) - first).to(tl.int32)
        high = (tl.load(span + 1, mask=there, other=0) - first).to(tl.int32)
    # the time from the row to the window's first point
    gaps = (dt + trajectory * dt_stride, dt_step, first - lead, steps, there)
    begin = tl.zeros([LANES], tl.float64)
    for i in range(width - 1):
        begin -= tl.where((i >= low) & (i < base), gap_after(gaps, i), 0.0)
    window = (begin, gaps, base, low, high, width)

    if COPIES:
        times = times_from(base, gaps)
    else:
        fit = orthogonal_polynomials(window, DEGREE)
    place = table + trajectory * (4 * (width - 1 + POINTS) * count.to(tl.int64)) + t
    time = begin
    zero = begin * 0.0
    sums = (zero, zero, zero, zero)
    for i in range(width):
        if COPIES:
            found = weights_of_interpolation(times, base, i)
        else:
            found = weights_of_fit(fit, time, (i >= low) & (i <= high), DEGREE)
        new = ()
        for m in tl.static_range(4):
            weight = found[m]
            # of the difference after this point: that of the points beyond it, seen from the base
            total = sums[m] + weight
            new = new + (total,)
            if not POINTS:
                weight = -total
                if m == 0:
                    weight = tl.where(i >= base, 1.0 - total, weight)
                weight = tl.where((i >= low) & (i < high), weight, 0.0)
            entry = (m * (width - 1 + POINTS) + i) * count.to(tl.int64)
            tl.store(place + entry, weight, mask=there & (i < width - 1 + POINTS))
        sums = new
        time = next_time(window, time, i)


@triton.jit
def times_from(base, gaps):
    """The times of five points from that at the base, each a sum of the gaps between."""
    steps = ()
    for j in tl.static_range(4):
        steps = steps + (gap_after(gaps, j),)
    times = ()
    for i in tl.static_range(5):
        time = steps[0] * 0.0
        for j in tl.static_range(4):
            if j < i:
                time += tl.where(j >= base, steps[j], 0.0)
            else:
                time -= tl.where(j < base, steps[j], 0.0)
        times = times + (time,)
    return times


@triton.jit
def weights_of_interpolation(times, base, i):
    """The i-th point's weights in the derivatives at the base of the polynomial that meets five
    points: its Lagrange polynomial is the product of (x − tⱼ) / (tᵢ − tⱼ) over the others."""
    zero = times[0] * 0.0
    time = zero
    for j in tl.static_range(5):
        time = tl.where(j == i, times[j], time)
    powers = (zero + 1.0, zero, zero, zero)  # coefficients of x⁰ … x³
    scale = zero + 1.0
    for j in tl.static_range(5):
        new = ()
        for m in tl.static_range(4):
            value = -times[j] * powers[m]
            if m > 0:
                value = value + powers[m - 1]
            new = new + (tl.where(j == i, powers[m], value),)
        powers = new
        scale = tl.where(j == i, scale, scale * (time - times[j]))
    position = tl.where(i == base, 1.0, zero)
    return position, powers[1] / scale, 2.0 * powers[2] / scale, 6.0 * powers[3] / scale


@triton.jit
def weights_of_fit(fit, time, inside, DEGREE: tl.constexpr):
    """A point's weights in the derivatives of the polynomial that fits all points best."""
    factors, norms, at_row = fit
    values = polynomials(time, factors, DEGREE)
    weights = ()
    for m in tl.static_range(4):
        weight = time * 0.0
        for k in tl.static_range(DEGREE + 1):
            weight = tl.fma(at_row[k][m] / norms[k], values[k], weight)
        weights = weights + (tl.where(inside, weight, 0.0),)
    return weights


@triton.jit
def orthogonal_polynomials(window, DEGREE: tl.constexpr):
    """The factors of polynomials that are orthogonal on the window, their sums of squares, and
    their derivatives 0 … 3 at the row."""
    one = window[0] * 0.0 + 1.0
    factors = ()
    norms = products(window, factors, 0, False)
    for k in tl.static_range(1, DEGREE + 1):
        found = products(window, factors, k - 1, True)
        new = ()
        for j in tl.static_range(k):
            new = new + (found[j] / norms[j],)
        # made orthogonal again to all before it: rounding spoils that across gaps
        rest = products(window, factors + new, k, False)
        for j in tl.static_range(k):
            factors = factors + (new[j] + rest[j] / norms[j],)
        norms = norms + (tl.where(rest[k] == 0.0, 1.0, rest[k]),)  # of lanes without a row

    at_row = ((one, one * 0.0, one * 0.0, one * 0.0),)  # derivatives of each polynomial
    for k in tl.static_range(1, DEGREE + 1):
        new = ()
        for m in tl.static_range(4):
            value = one * 0.0
            if m > 0:
                value = at_row[k - 1][m - 1] * m
            for j in tl.static_range(k):
                value = value - factors[k * (k - 1) // 2 + j] * at_row[j][m]
            new = new + (value,)
        at_row = at_row + (new,)
    return factors, norms, at_row


@triton.jit
def gap_after(gaps, i):
    """The time from a window's i-th point to the next."""
    dt, dt_step, first, steps, there = gaps
    step = tl.minimum(tl.maximum(first + i, 0), steps - 1)
    return tl.load(dt + step.to(tl.int64) * dt_step, mask=there, other=1.0)


@triton.jit
def next_time(window, time, i):
    """The time of the point after the i-th, from that of the i-th; it stands still outside."""
    _, gaps, base, low, high, _ = window
    after = time + tl.where((i >= low) & (i < high), gap_after(gaps, i), 0.0)
    return tl.where(i + 1 == base, 0.0, after)


@triton.jit
def polynomials(time, factors, K: tl.constexpr):
    """Orthogonal polynomials 0 … K: time times the one before, less what the factors take of those
    before it."""
    values = (time * 0.0 + 1.0,)
    for k in tl.static_range(1, K + 1):
        value = time * values[k - 1]
        for j in tl.static_range(k):
            value = tl.fma(-factors[k * (k - 1) // 2 + j], values[j], value)
        values = values + (value,)
    return values


@triton.jit
def products(window, factors, K: tl.constexpr, TIMES: tl.constexpr):
    """The sums over the window of products of the K-th polynomial (TIMES: and the time) with each
    up to it."""
    begin, _, _, low, high, width = window
    time = begin
    sums = ()
    for _ in tl.static_range(K + 1):
        sums = sums + (begin * 0.0,)
    for i in range(width):
        values = polynomials(time, factors, K)
        value = values[K]
        if TIMES:
            value = value * time
        value = tl.where((i >= low) & (i <= high), value, 0.0)
        new = ()
        for j in tl.static_range(K + 1):
            new = new + (tl.fma(value, values[j], sums[j]),)
        sums = new
        time = next_time(window, time, i)
    return sums
