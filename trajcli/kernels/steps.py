"""Gradients of dt from the outputs, their gradients, and the gradients of the other inputs.

In NumPy or in torch, which can differentiate them again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from trajcli.arrays import columns, concatenate
from trajcli.kernels.program import Array, Cascade, Program

Arrays = Sequence[Array | None]


def gradient_of_dt(
    program: Program, dt: Array, inputs: Arrays, pulled: Arrays, rows: Arrays, upstream: Arrays
) -> Array:
    """Returns the gradient of dt [b, h] for each trajectory: [B, h] float64.

    inputs: the actions [B, H, D], then four parts of the start and of the goal, gathered per
    trajectory [B, D]; pulled: their gradients. rows: the outputs; upstream: theirs. A band must
    have equal steps; a cascade with unequal steps needs all outputs.
    """
    if dt.shape[1] == 1:
        return _of_even_steps(program, dt, inputs, pulled, rows, upstream)
    if not isinstance(program, Cascade):
        raise NotImplementedError("bands with unequal steps: torch_ops")
    return _of_uneven_steps(program, dt, inputs, rows, upstream)


def _of_even_steps(
    program: Program, dt: Array, inputs: Arrays, pulled: Arrays, rows: Arrays, upstream: Arrays
) -> Array:
    """Returns the gradient of one dt, which only sets the unit of time.

    x⁽ᵐ⁾·dtᵐ depends on u·dtᵏ, s⁽ʳ⁾·dtʳ and g⁽ʳ⁾·dtʳ alone, k being the order of the actions. So,
    by Euler's theorem on homogeneous functions, in every mode, end and convention

        dt·d̄t = k⟨ū, u⟩ + Σ_r r⟨s̄⁽ʳ⁾, s⁽ʳ⁾⟩ + Σ_r r⟨ḡ⁽ʳ⁾, g⁽ʳ⁾⟩ − Σ_m m⟨x̄⁽ᵐ⁾, x⁽ᵐ⁾⟩
    """
    order = program.order if isinstance(program, Cascade) else 0
    # of the actions, four parts of the start, four of the goal, four outputs
    weights = (order, 0, 1, 2, 3, 0, 1, 2, 3, 0, -1, -2, -3)
    total: Any = dt * 0.0
    for weight, values, grad in zip(weights, [*inputs, *rows], [*pulled, *upstream], strict=True):
        if weight and values is not None and grad is not None:
            products = _in_order(values) * _in_order(grad)
            total = total + weight * products.sum(tuple(range(1, grad.ndim)))[:, None]
    return total / dt


def _of_uneven_steps(
    program: Cascade, dt: Array, inputs: Arrays, rows: Arrays, upstream: Arrays
) -> Array:
    """Returns the derivative of the row that each step leads to, times that row's gradient.

    With the coefficients of :class:`Cascade`, λ_m the gradient of quantity m in a row, by all
    rows from it on: below the order, λ_m is a running sum from the end; above, differences.
    """
    k, first = program.order, int(program.start_row or program.recorded)
    grads = [None if g is None else _in_order(g) for g in upstream]
    if program.recorded:
        grads = [_folded(g, m) for m, g in enumerate(grads)]
    outputs = [_in_order(x) for x in rows if x is not None]
    start = [None if part is None else _in_order(part)[:, None] for part in inputs[1:5]]
    count = outputs[0].shape[1] - first
    step = columns(dt, 0, count)[:, :, None]
    now = [columns(x, first, count) for x in outputs]
    zero = columns(now[0], 0, 1) * 0.0
    before = [
        _join([columns(x, 0, 1) if first else zero if s is None else s + zero, _earlier(y)])
        for x, y, s in zip(outputs, now, start, strict=True)
    ]
    grads = [None if g is None else columns(g, first, count) for g in grads]
    total: Any = 0.0
    adjoint: list[Any] = [None] * 4
    for m in range(k):  # λ_m = x̄_m + λ_m and Σ c_r·λ_{m−r} of the next row
        gain: Any = grads[m]
        for r in range(1, m + 1):
            if adjoint[m - r] is not None:
                share = _power(program, step, r) * adjoint[m - r]
                gain = _sum(gain, _join([_later(share), zero]))
        if gain is None:
            continue
        adjoint[m] = _flipped(_flipped(gain).cumsum(1))
        # dt · d gain / d dt, term by term: each is a power of dt
        n = k - m
        slope = n * _now(program, step, n) * now[k]
        if program.scheme == "foh":
            slope = slope + n * n * _now(program, step, n) * before[k]
        for r in range(1, n):
            slope = slope + r * _power(program, step, r) * before[m + r]
        total = total + (adjoint[m] * slope).sum(2)
    for m in range(3, k, -1):  # λ_m = x̄_m + λ_{m+1}/dt − the same of the next row
        gain = grads[m]
        if m < 3 and adjoint[m + 1] is not None:
            share = adjoint[m + 1] / step
            gain = _sum(gain, share - _join([_later(share), zero]))
        adjoint[m] = gain
        if gain is not None:
            total = total - (gain * now[m]).sum(2)
    gradient = total / step[:, :, 0] + zero[:, :, 0]
    # steps behind the last row have no part in any output
    unused = dt.shape[1] - count
    return _join([gradient, *[columns(gradient, 0, 1) * 0.0] * unused]) if unused > 0 else gradient


def _in_order(values: Array) -> Array:
    """Returns the values as contiguous float64, as sums follow the order of memory, and so does
    their rounding."""
    if isinstance(values, np.ndarray):
        return np.ascontiguousarray(values, np.float64)
    return values.double().contiguous()


def _power(program: Cascade, step: Array, r: int) -> Array:
    return step**r if program.scheme == "euler" else step**r / math.factorial(r)


def _now(program: Cascade, step: Array, n: int) -> Array:
    over = {"euler": 1, "zoh": math.factorial(n), "foh": math.factorial(n + 1)}[program.scheme]
    return step**n / over


def _folded(grad: Array | None, first: int) -> Array | None:
    """Adds the gradients of rows that copy the first known row to that row's."""
    if grad is None or first == 0:
        return grad
    if grad.shape[1] <= first:
        return grad * 0.0
    total = columns(grad, 0, first + 1).sum(1)[:, None]
    rest = grad.shape[1] - first - 1
    return _join([columns(grad, 0, first) * 0.0, total, columns(grad, first + 1, rest)])


def _sum(a: Array | None, b: Array) -> Array:
    return b if a is None else a + b


def _earlier(values: Array) -> Array:
    """Returns all rows but the last."""
    return columns(values, 0, values.shape[1] - 1)


def _later(values: Array) -> Array:
    """Returns all rows but the first."""
    return columns(values, 1, values.shape[1] - 1)


def _flipped(values: Array) -> Array:
    return values[:, ::-1] if isinstance(values, np.ndarray) else values.flip(1)


def _join(parts: Sequence[Array]) -> Array:
    return concatenate(parts, 1)
