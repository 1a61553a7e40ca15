"""Rows of a band with equal steps, by a table of weights, and their transposes."""

from __future__ import annotations

import triton
import triton.language as tl

from trajcli.kernels.triton_ops.windows import base_of


@triton.jit
def load_weights(table, kind, N: tl.constexpr):
    """Weights of the N differences of a window, order by order."""
    weights = ()
    for i in tl.static_range(4 * N):
        weights = weights + (tl.load(table + kind * (4 * N) + i),)
    return weights


@triton.jit
def scale(values, inverse):
    """Values over 1, h, h², h³: of all four orders as many, order by order."""
    N: tl.constexpr = len(values) // 4
    new = ()
    for i in tl.static_range(4 * N):
        if i < N:
            new = new + (values[i],)
        else:
            # not a plain product: compilers would make a vector of four, and multiply by 1, too
            new = new + (tl.fma(values[i], inverse[i // N - 1], 0.0),)
    return new


@triton.jit
def even_row(points, differences, weights, kind, BASE: tl.constexpr, COPIES: tl.constexpr):
    """The four values of a window, of points one unit apart."""
    N: tl.constexpr = len(differences)
    row = ()
    for m in tl.static_range(4):
        if m == 0:
            value = base_of(points, kind, BASE)
        else:
            value = tl.zeros(points[0].shape, tl.float64)
        if m > 0 or not COPIES:
            for i in tl.static_range(N):
                value = tl.fma(weights[m * N + i], differences[i], value)
        row = row + (value,)
    return row


@triton.jit
def pull_even_row(differences, upstream, rows, weights, COPIES: tl.constexpr):
    """The transpose of even_row, added to the gradients of the differences."""
    N: tl.constexpr = len(differences)
    new = ()
    for i in tl.static_range(N):
        value = differences[i]
        for m in tl.static_range(4):
            if rows[m] is not None and (m > 0 or not COPIES):
                value = tl.fma(weights[m * N + i], upstream[m], value)
        new = new + (value,)
    return new
