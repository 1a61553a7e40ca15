"""What the gradients of a cascade are made of, on NumPy arrays and torch tensors alike.

For fixed dt a cascade is linear, and its transpose a kernel. dt enters the relation of quantity m
in row t through one number, its slope ∂x^m_t/∂dt_t with all else in the relation held: a change
of dt acts like a source of that size. So the gradient of dt is the sum of the sources' gradients
times the slopes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from trajcli.arrays import columns, concatenate, float64, namespace
from trajcli.kernels.pairs import Array

Arrays = Sequence[Array | None]


def action_weights(n: int, scheme: str) -> tuple[float, float]:
    """Weights of this and the previous action, over dt**n, in the n-th sum of the action."""
    if scheme == "zoh":
        return 1.0 / math.factorial(n), 0.0
    return 1.0 / math.factorial(n + 1), n / math.factorial(n + 1)


def cascade_gradients(
    kernels: Any,
    upstream: Arrays,
    dt: Array,
    shape: Sequence[int],
    *,
    order: int,
    scheme: str,
    start_row: bool,
    recorded: bool,
    wanted: Sequence[bool] = (True,) * 4,
    of_sources: str = "float64",
) -> tuple[Sequence[Array], Sequence[Array]]:
    """Gradients of the four sources [B, H, D], of the type ``of_sources``, and of the state [B, D]
    from those of all rows."""
    given = list(upstream)
    if recorded:
        given = [None if g is None else _gathered(float64(g), m) for m, g in enumerate(given)]
    inner = [None if g is None else g[:, 1:] for g in given] if start_row else given
    none = (None,) * 4
    sources, state = kernels.cascade_adjoint(
        inner,
        none,
        dt,
        shape,
        order=order,
        scheme=scheme,
        wanted=wanted,
        of_sources=of_sources,
    )
    if start_row:
        pairs = zip(state, given, strict=True)
        state = [s if g is None else s + float64(g[:, 0]) for s, g in pairs]
    return sources, state


def _gathered(g: Array, m: int) -> Array:
    """The transpose of filling the first m rows with row m."""
    zero = namespace(g).zeros_like
    if not m or g.shape[1] <= m:
        return g if not m else zero(g)
    return concatenate([zero(g[:, :m]), g[:, : m + 1].sum(1)[:, None], g[:, m + 1 :]], 1)


def slopes(
    rows: Sequence[Array],
    sources: Arrays,
    state: Sequence[Array],
    dt: Array,
    order: int,
    scheme: str,
) -> list[Array | None]:
    """∂x^m_t/∂dt_t in the relation of each quantity, all else in it held: [B, H, D] or None.

    rows: the quantities in rows 1..H. sources: what was added to the relation of each.
    """
    step = dt[:, :, None]
    x = [float64(row) for row in rows]

    def before(m: int) -> Array:
        return concatenate([float64(state[m])[:, None], columns(x[m], 0, x[m].shape[1] - 1)], 1)

    found: list[Array | None] = [None] * 4
    for m in range(order):
        n = order - m
        if scheme == "euler":
            found[m] = x[m + 1]
            continue
        now, earlier = action_weights(n, scheme)
        driven = now * x[order]
        if earlier:
            driven = driven + earlier * before(order)
        slope = n * step ** (n - 1) * driven
        for r in range(1, n):
            slope = slope + step ** (r - 1) / math.factorial(r - 1) * before(m + r)
        found[m] = slope
    for m in range(order + 1, 4):
        source = sources[m]
        found[m] = -(x[m] if source is None else x[m] - float64(source)) / step
    return found


def dt_gradient(sources: Sequence[Array], slopes: Arrays, shape: Sequence[int]) -> Array:
    """Σ ē·slope over dofs, and over what the ``shape`` of dt [b, h] shares."""
    total: Any = 0.0
    for grad, slope in zip(sources, slopes, strict=True):
        if slope is not None:
            total = total + (grad * slope).sum(2)
    for axis in (0, 1):
        if shape[axis] == 1:
            total = total.sum(axis)[None] if axis == 0 else total.sum(axis)[:, None]
    return total
