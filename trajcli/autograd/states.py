"""States on their way to and from what kernels make of them: rows that trajectories share, and
parts that are scaled.

Points of a state are sums of its scaled parts, y_m = spacingᵐ · x_m; see band.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trajcli.arrays import own_rows
from trajcli.autograd.folding import Tensors, like

NONE = (None,) * 4


def gathered(part: Tensor, rows: Tensor | None) -> Tensor:
    """Each trajectory's row of a part of a state."""
    return part if rows is None else own_rows(part, rows)


def returned(grad: Tensor, rows: Tensor | None, part: Tensor) -> Tensor:
    """The transpose of :func:`gathered`: the gradient of a part from those of all trajectories,
    summed in their order."""
    if rows is None:
        return grad
    last = part.shape[0] - 1
    known = (rows >= 0) & (rows <= last)
    given = torch.where(known[:, None], grad.double(), 0.0)
    return given.new_zeros(part.shape).index_put((rows.clamp(0, last),), given, accumulate=True)


def each_own(x: Any, dim: int | None, rows: Any, rows_dim: int | None, size: int) -> Any:
    """:func:`gathered` of a part that is mapped over, or whose rows are; mapped over its first
    dimension, then."""
    part = x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
    at = rows.expand(size, *rows.shape) if rows_dim is None else rows.movedim(rows_dim, 0)
    last = part.shape[1] - 1
    found = part.gather(1, at.clamp(0, last)[:, :, None].expand(*at.shape, part.shape[2]))
    return found.masked_fill(((at < 0) | (at > last))[:, :, None], float("nan"))


def scaled(
    parts: Tensors,
    moved: Sequence[Any],
    spacing: Tensor | None,
    moved_spacing: Tensor | None,
    rows: Tensor | None,
) -> list[Any]:
    """How scaled parts move: each trajectory's own spacingᵐ·ẋ_m + m·spacingᵐ⁻¹·ẋ·x_m, [B, D]."""
    found: list[Any] = []
    for m, (x, t) in enumerate(zip(parts, moved, strict=True)):
        if x is None or spacing is None:
            found.append(None if t is None else gathered(t, rows))
            continue
        y = spacing**m * gathered(t, rows)
        if m and moved_spacing is not None:
            y = y + m * spacing ** (m - 1) * moved_spacing * gathered(x, rows)
        found.append(y)
    return found


def unscaled(
    grads: Tensors,
    parts: Tensors,
    spacing: Tensor | None,
    rows: Tensor | None,
    direct: Tensors = NONE,
) -> tuple[list[Tensor | None], Tensor | None]:
    """Gradients of parts and of the spacing from those of the scaled parts.

    direct: gradients of each trajectory's own parts beside those.
    """
    found: list[Tensor | None] = []
    of_spacing: Tensor | None = None
    for m, (x, y, own) in enumerate(zip(parts, grads, direct, strict=True)):
        if x is None:
            found.append(None)
            continue
        grad = own
        if y is not None and y.ndim == 2:  # there are points made of it
            grad = added(own, y if spacing is None else spacing**m * y)
            if m and spacing is not None:
                slope = m * spacing ** (m - 1) * (gathered(x, rows) * y).sum(1)[:, None]
                of_spacing = added(of_spacing, slope)
        found.append(None if grad is None else like(returned(grad, rows, x), x))
    if of_spacing is not None and spacing is not None and len(spacing) == 1:
        of_spacing = of_spacing.sum(0)[None]
    return found, of_spacing


def or_zeros(grads: Tensors, parts: Tensors, actions: Tensor) -> list[Tensor | None]:
    """Gradients of scaled parts [B, D], zeros where they are absent and the part is not."""
    zero = torch.zeros_like(actions[:, 0], dtype=torch.float64)
    return [
        None if x is None else zero if g is None or g.ndim != 2 else g
        for g, x in zip(grads, parts, strict=True)
    ]


def added(a: Tensor | None, b: Tensor | None) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return a + b
