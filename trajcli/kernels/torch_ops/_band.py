"""Computes :class:`trajcli.kernels.program.Band` in plain torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import pad

from trajcli.arrays import columns, to_torch
from trajcli.kernels.least_squares import fit_weights
from trajcli.kernels.program import Band, Floats

if TYPE_CHECKING:
    from torch import Tensor

    States = Sequence[Tensor | None]


def outputs(
    program: Band, actions: Tensor, dt: Tensor, start: States, goal: States,
    selection: Sequence[bool],
) -> list[Tensor | None]:  # fmt: skip
    """Computes rows [B, T, D] of the used actions, dt [b, h] and state parts [B, D], in float64."""
    spacing = program.spacing * columns(dt, 0, 1)
    zero = actions.new_zeros(actions.shape[0], 1, actions.shape[2])
    held = []
    if program.held and program.used:
        held = [columns(actions, program.used - 1, 1).expand(-1, program.held, -1)]
    # points in the order of time: of the start state, the actions, the last action held, the goal
    head = _state_points(program.head, start, spacing, zero)
    tail = _state_points(program.tail, goal, spacing, zero)
    points = torch.cat([*head, actions, *held, *tail], 1)
    # x_m = Σ_i w_i·(X_i − X_n), for the position plus X_n, where n is a point of the window with a
    # weight. Points without one are left out, so that their NaN stays in other rows.
    device = points.device
    first, kind = _windows(program, device)
    if program.table is not None:
        # a point that has a weight in some kinds of window, but not in all, is masked row by row
        table = on_points(program.table, program.base)
        ever, always = (table != 0.0).any(0), (table != 0.0).all(0)
        reference = (table != 0.0).argmax(2).T  # [4, P]: n, in the window
        used = torch.as_tensor(table != 0.0, device=device)[kind][None]  # [1, T, 4, W]
        weights = list(torch.as_tensor(table, device=device)[kind][None].unbind(2))
        scales = [spacing[..., None] ** -m for m in range(4)]
    else:
        ever = np.tile(np.arange(4)[:, None] <= (program.degree or 3), program.width)
        always = ever & (np.arange(4)[:, None] > 0) & (program.spans is None)
        reference = np.tile(program.base, (4, 1))
        used = _points_used(program, torch.as_tensor(program.base, device=device)[kind])
        weights, scales = weights_of_rows(program, dt), [torch.ones_like(spacing[..., None])] * 4
    orders = [m for m in range(4) if selection[m]]
    # orders with the same reference point share its differences
    keys = {m: reference[m].tobytes() for m in orders}
    references = {
        key: points.index_select(1, first + torch.as_tensor(reference[m], device=device)[kind])
        for m, key in keys.items()
    }
    # rows begin at zero: where no point has a weight, the gradient of dt is zero and not absent
    rows = {m: torch.zeros_like(references[keys[m]]) for m in orders}
    for i in range(program.width):
        point = points.index_select(1, first + i)
        rises = {key: point - x for key, x in references.items()}
        for m in (m for m in orders if ever[m, i]):
            rise = rises[keys[m]]
            if not always[m, i]:
                rise = rise.masked_fill(~used[:, :, m, i, None], 0.0)
            # a weight for every dof: three times as fast as one that is broadcast
            weight = weights[m][..., i, None].expand(-1, -1, rise.shape[2]).contiguous()
            rows[m] = torch.addcmul(rows[m], rise, weight)
    for m in orders:
        rows[m] = rows[m] * scales[m] + (references[keys[0]] if m == 0 else 0.0)
    if program.start_row:
        parts = [zero if part is None else part[:, None] for part in start]
        rows = {m: torch.cat([parts[m], x], 1) for m, x in rows.items()}
    return [rows.get(m) for m in range(4)]


def _state_points(
    coefficients: Floats, state: States, spacing: Tensor, zero: Tensor
) -> list[Tensor]:
    """Computes points of a state's Taylor polynomial, [B, 1, D]: Σ_m coefficient·spacingᵐ·part."""
    scaled = [part if part is None else spacing**m * part for m, part in enumerate(state)]
    points = []
    for row in coefficients:
        # A part without a weight stays in the graph, so that its gradient is zero and not absent,
        # but as a filled mask: zero times the part would be NaN where the part is.
        terms = [
            float(c) * x if c else x.masked_fill(torch.ones_like(x, dtype=torch.bool), 0.0)
            for c, x in zip(row, scaled, strict=True)
            if x is not None
        ]
        points.append(sum((term[:, None] for term in terms), zero))
    return points


def _windows(program: Band, device: torch.device) -> tuple[Tensor, Tensor]:
    """Computes the first point and the kind of windows [T], with sizes that export leaves open."""
    windows = program.windows
    row = torch.arange(windows.count, device=device) + windows.offset
    first = (row // windows.steps - windows.shift).clamp(0, windows.last)
    return first, row - windows.steps * first


def on_points(table: Floats, base: Sequence[int]) -> Floats:
    """Turns weights of differences [P, 4, W − 1] into those of points [P, 4, W], base included."""
    weights = -np.diff(table, prepend=0.0, append=0.0)
    weights[range(len(base)), 0, base] += 1.0
    return weights


def weights_of_rows(program: Band, dt: Tensor) -> list[Tensor]:
    """Computes the weights of every row's points where steps differ, four arrays [b, T, W]."""
    first, kind = _windows(program, dt.device)
    base = to_torch(np.array(program.base), str(dt.device))[kind][:, None]
    index = torch.arange(program.width - 1, device=dt.device)
    # The step between two points of a window. Points before the start are the first step apart, and
    # those behind the last action the last step.
    step = first[:, None] + index - max(len(program.head) - 1, 0)
    dt = dt.expand(-1, program.steps) if dt.shape[1] == 1 else dt
    gaps = dt[:, step.clamp(0, program.steps - 1)]  # [b, T, W − 1]
    # Times from the row are sums of the gaps between: differences of times since the start would
    # lose digits in long recordings.
    later = torch.where(index >= base, gaps, 0.0).cumsum(2)
    earlier = torch.where(index < base, gaps, 0.0).flip(2).cumsum(2).flip(2)
    times = pad(later, (1, 0)) - pad(earlier, (0, 1))
    if program.degree is None:
        position = (torch.arange(program.width, device=dt.device) == base).double()
        return [position.expand_as(times), *_through_points(gaps, times)]
    mask = _points_used(program, base[:, 0])[:, :, 0].double()
    weights: list[Any] = fit_weights(times, program.degree, mask)
    return weights


def _points_used(program: Band, base: Tensor) -> Tensor:
    """Finds the points of a window that have weights where steps differ, [b, T, 4, W]."""
    first, _ = _windows(program, base.device)
    index = torch.arange(program.width, device=base.device)
    used = torch.ones_like(base, dtype=torch.bool)[None, :, None, None] & (index >= 0)
    # a polynomial through the points gives the position of the row's own point
    if program.degree is None:
        return torch.cat([(index == base[:, None])[None, :, None], used.expand(-1, -1, 3, -1)], 2)
    if program.spans is not None:
        spans = to_torch(program.spans, str(base.device))
        index = first[:, None] + index
        used = ((index >= spans[..., :1]) & (index <= spans[..., 1:]))[:, :, None]
    # derivatives above the degree are zero: a parabola has no jerk
    return used & (torch.arange(4, device=base.device) <= program.degree)[:, None]


def _through_points(gaps: Tensor, times: Tensor) -> list[Tensor]:
    """Computes weights of derivatives 1 to 3 of polynomials through five points [b, T, 5]."""
    # Newton's form f₀ + f₁(x−x₀) + f₂(x−x₀)(x−x₁) + … has the divided differences f_k. Here these
    # are weights of the four differences of neighbours: f₁ is a difference over its gap, and
    # each further one the difference of two such over the span of their points
    span, divided = gaps, torch.diag_embed(1.0 / gaps)
    f = [divided[..., 0, :]]
    for k in (1, 2, 3):
        # from each point to the (k + 1)-th after it
        span = span[..., :-1] + gaps[..., k:]
        divided = divided.diff(dim=-2) / span[..., None]
        f.append(divided[..., 0, :])
    a, b, c, d, _ = (-times[..., None]).unbind(2)  # from points to the row
    # The m-th derivative of a product of times is m! times the sum of its products with m factors
    # fewer: (x−x₀)(x−x₁) has the slope a + b at the row, and so on.
    pair, triple = a + b, a + b + c
    pairs = a * b + pair * c  # products of two of the first three
    velocity = f[0] + f[1] * pair + f[2] * pairs + f[3] * (a * b * (c + d) + c * d * pair)
    acceleration = 2.0 * (f[1] + f[2] * triple + f[3] * (pairs + d * triple))
    derivatives = velocity, acceleration, 6.0 * (f[2] + f[3] * (triple + d))
    return [pad(x, (1, 0)) - pad(x, (0, 1)) for x in derivatives]
