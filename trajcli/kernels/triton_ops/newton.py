"""Rows of a band with unequal steps, by Newton's divided differences, and their transposes."""

from __future__ import annotations

import triton
import triton.language as tl

from trajcli.kernels.triton_ops.windows import base_of, push, push_first


@triton.jit
def newton_point(gaps, quotients, before, point, gap):
    """Divided differences of the window that has moved on by a point, and its gaps.

    Of points 0 … 4 of a window, ``quotients`` are (0 1), (1 2), (2 3), (3 4), (0 1 2), (1 2 3),
    (2 3 4), (0 … 3), (1 … 4), (0 … 4).
    """
    q = quotients
    gaps = push(gaps, gap)
    first = (point - before) / gap
    second = (first - q[3]) / (gaps[2] + gap)
    third = (second - q[6]) / (gaps[1] + gaps[2] + gap)
    fourth = (third - q[8]) / (gaps[0] + gaps[1] + gaps[2] + gap)
    return gaps, (q[1], q[2], q[3], first, q[5], q[6], second, q[8], third, fourth)


@triton.jit
def pull_newton_point(gaps, gradients, gap):
    """The transpose: gradients within the window a point before, and that of the difference
    between the last two points."""
    q = gradients
    fourth = q[9] / (gaps[0] + gaps[1] + gaps[2] + gaps[3])
    third = (q[8] + fourth) / (gaps[1] + gaps[2] + gaps[3])
    second = (q[6] + third) / (gaps[2] + gaps[3])
    first = (q[3] + second) / gaps[3]
    zero = tl.zeros(first.shape, tl.float64)
    before = (zero, q[0], q[1], q[2] - second, zero, q[4], q[5] - third, zero, q[7] - fourth, zero)
    return push_first(gaps, gap), before, first


@triton.jit
def newton_weights(gaps, kind, BASE: tl.constexpr):
    """Elementary symmetric polynomials of the base's distances from points 0 … 3 of the window:
    derivatives of the products (t − t_0)(t − t_1) … in Newton's form of the polynomial."""
    zero = tl.zeros(gaps[0].shape, tl.float64)
    times = (zero, gaps[0])
    for i in tl.static_range(1, 4):
        times = times + (times[i] + gaps[i],)
    base = base_of(times, kind, BASE)
    a, b, c, d = base - times[0], base - times[1], base - times[2], base - times[3]
    sum_2, sum_3 = a + b, a + b + c
    pairs_3 = tl.fma(sum_2, c, a * b)
    return (
        sum_2,
        pairs_3,
        tl.fma(pairs_3, d, a * b * c),
        2.0 * sum_3,
        2.0 * tl.fma(sum_3, d, pairs_3),
        6.0 * (sum_3 + d),
    )


@triton.jit
def newton_row(points, gaps, quotients, kind, BASE: tl.constexpr):
    """The four values of a window with unequal steps."""
    w = newton_weights(gaps, kind, BASE)
    q = quotients
    velocity = tl.fma(q[4], w[0], tl.fma(q[7], w[1], tl.fma(q[9], w[2], q[0])))
    acceleration = tl.fma(q[7], w[3], tl.fma(q[9], w[4], 2.0 * q[4]))
    jerk = tl.fma(q[9], w[5], 6.0 * q[7])
    return base_of(points, kind, BASE), velocity, acceleration, jerk


@triton.jit
def pull_newton_row(gaps, gradients, upstream, kind, BASE: tl.constexpr):
    """The transpose, added to the gradients of the quotients."""
    w = newton_weights(gaps, kind, BASE)
    q, v, a, j = gradients, upstream[1], upstream[2], upstream[3]
    of_2 = tl.fma(v, w[0], q[4] + 2.0 * a)
    of_3 = tl.fma(v, w[1], tl.fma(a, w[3], q[7] + 6.0 * j))
    of_4 = tl.fma(v, w[2], tl.fma(a, w[4], tl.fma(j, w[5], q[9])))
    return (q[0] + v, q[1], q[2], q[3], of_2, q[5], q[6], of_3, q[8], of_4)
