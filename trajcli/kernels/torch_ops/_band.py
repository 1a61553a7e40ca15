"""The band in plain torch; see :class:`trajcli.kernels.program.Band`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn.functional import pad

from trajcli.arrays import columns, to_torch
from trajcli.kernels.least_squares import fit_weights
from trajcli.kernels.program import Band, Floats, Parts

if TYPE_CHECKING:
    from torch import Tensor


def outputs(
    program: Band, actions: Tensor, dt: Tensor, start: Parts, goal: Parts, wanted: Sequence[bool]
) -> list[Tensor | None]:
    """Returns rows [B, T, D] of the used actions, dt [b, h] and state parts [B, D], all float64."""
    spacing = program.spacing * columns(dt, 0, 1)
    held = []
    if program.held and program.used:
        held = [columns(actions, program.used - 1, 1).expand(-1, program.held, -1)]
    zero = actions.new_zeros(actions.shape[0], 1, actions.shape[2])
    # points in the order of time: of the start state, the actions, the last action held, the goal
    head = _points(program.head, start, spacing, zero)
    tail = _points(program.tail, goal, spacing, zero)
    points = torch.cat([*head, actions, *held, *tail], 1)
    rows: list[Tensor | None] = []
    for part, values in zip(start, _of_windows(program, points, dt, spacing, wanted), strict=True):
        first = zero if part is None else part[:, None]
        rows.append(
            values if values is None or not program.start_row else torch.cat([first, values], 1)
        )
    return rows


def _points(coefficients: Floats, state: Parts, spacing: Tensor, zero: Tensor) -> list[Tensor]:
    """Returns points of a state's Taylor polynomial, [B, 1, D]: Σ_m coefficient·spacingᵐ·part."""
    scaled = [part if part is None else spacing**m * part for m, part in enumerate(state)]
    points = []
    for row in coefficients:
        # a part that has no weight gives a gradient of zero, and no NaN
        terms = [
            float(c) * x if c else x.masked_fill(torch.ones_like(x, dtype=torch.bool), 0.0)
            for c, x in zip(row, scaled, strict=True)
            if x is not None
        ]
        points.append(sum((term[:, None] for term in terms), zero))
    return points


def _of_windows(
    program: Band, points: Tensor, dt: Tensor, spacing: Tensor, wanted: Sequence[bool]
) -> list[Tensor | None]:
    """Returns the values of every row's window [B, T, D], None for orders that are not wanted.

    x_m = Σ_i w_i·(X_i − X_n), for the position plus X_n, where n is a point of the window that is
    used. Points that are not used are left out, so that their NaN stays in other rows.
    """
    device = points.device
    first, kind = _windows(program, device)
    if program.table is not None:
        table = on_points(program.table, program.base)
        ever, always = (table != 0.0).any(0), (table != 0.0).all(0)
        place = (table != 0.0).argmax(2).T  # of n in the window
        used = torch.as_tensor(table != 0.0, device=device)[kind][None]  # [1, T, 4, W]
        weights = list(torch.as_tensor(table, device=device)[kind][None].unbind(2))
        scales = [spacing[..., None] ** -m for m in range(4)]
    else:
        ever = np.tile(np.arange(4)[:, None] <= (program.degree or 3), program.width)
        always = ever & (np.arange(4)[:, None] > 0) & (program.spans is None)
        place = np.tile(program.base, (4, 1))
        used = _points_used(program, torch.as_tensor(program.base, device=device)[kind])
        weights, scales = weights_of_rows(program, dt), [torch.ones_like(spacing[..., None])] * 4
    orders = [m for m in range(4) if wanted[m]]
    # orders with the same point n share its differences
    near = {place[m].tobytes(): place[m] for m in orders}
    here = {
        key: points.index_select(1, first + torch.as_tensor(x, device=device)[kind])
        for key, x in near.items()
    }
    # without weights the gradient of dt is zero
    rows = {m: torch.zeros_like(here[place[m].tobytes()]) for m in orders}
    for i in range(program.width):
        point = points.index_select(1, first + i)
        rises = {key: point - x for key, x in here.items()}
        for m in (m for m in orders if ever[m, i]):
            rise = rises[place[m].tobytes()]
            if not always[m, i]:
                rise = rise.masked_fill(~used[:, :, m, i, None], 0.0)
            # a weight for every dof: three times as fast as one that is broadcast
            weight = weights[m][..., i, None].expand(-1, -1, rise.shape[2]).contiguous()
            rows[m] = torch.addcmul(rows[m], rise, weight)
    for m in orders:
        rows[m] = rows[m] * scales[m] + (here[place[0].tobytes()] if m == 0 else 0.0)
    return [rows.get(m) for m in range(4)]


def _windows(program: Band, device: torch.device) -> tuple[Tensor, Tensor]:
    """Returns the first point and the kind of every row's window, [T]."""
    windows = program.windows
    # windows that would begin before the first point or end after the last are moved inside
    row = torch.arange(windows.count, device=device) + windows.offset
    first = (row // windows.steps - windows.shift).clamp(0, windows.last)
    return first, row - windows.steps * first


def on_points(table: Floats, base: Sequence[int]) -> Floats:
    """Turns weights of differences of neighbours [P, 4, W − 1] into weights of points [P, 4, W].

    They are exactly zero for points that are not used. Those of the position include the base.
    """
    weights = -np.diff(table, prepend=0.0, append=0.0)
    weights[range(len(base)), 0, base] += 1.0
    return weights


def weights_of_rows(program: Band, dt: Tensor) -> list[Tensor]:
    """Returns the weights of every row's points where steps differ, four arrays [b, T, W]."""
    first, kind = _windows(program, dt.device)
    base = to_torch(np.array(program.base), str(dt.device))[kind][:, None]
    place = torch.arange(program.width - 1, device=dt.device)
    # the step between two points of a window; points before the start are the first step apart
    step = first[:, None] + place - max(len(program.head) - 1, 0)
    dt = dt.expand(-1, program.steps) if dt.shape[1] == 1 else dt
    gaps = dt[:, step.clamp(0, program.steps - 1)]  # [b, T, W − 1]
    # times from the row: sums of the gaps between, as differences of times would lose digits
    later = torch.where(place >= base, gaps, 0.0).cumsum(2)
    earlier = torch.where(place < base, gaps, 0.0).flip(2).cumsum(2).flip(2)
    times = pad(later, (1, 0)) - pad(earlier, (0, 1))
    if program.degree is None:
        position = (torch.arange(program.width, device=dt.device) == base).double()
        return [position.expand_as(times), *_through_points(gaps, times)]
    inside = _points_used(program, base[:, 0])[:, :, 0].double()
    return fit_weights(times, program.degree, inside)


def _points_used(program: Band, base: Tensor) -> Tensor:
    """Returns which points of a window have weights where steps differ, [b, T, 4, W]."""
    first, _ = _windows(program, base.device)
    place = torch.arange(program.width, device=base.device)
    used = torch.ones_like(base, dtype=torch.bool)[None, :, None, None] & (place >= 0)
    if program.degree is None:  # positions are points
        return torch.cat([(place == base[:, None])[None, :, None], used.expand(-1, -1, 3, -1)], 2)
    if program.spans is not None:
        spans = to_torch(program.spans, str(base.device))
        place = first[:, None] + place
        used = ((place >= spans[..., :1]) & (place <= spans[..., 1:]))[:, :, None]
    # a parabola has no jerk
    return used & (torch.arange(4, device=base.device) <= program.degree)[:, None]


def _through_points(gaps: Tensor, times: Tensor) -> list[Tensor]:
    """Returns weights of derivatives 1 to 3 of the polynomial through five points: three [b, T, 5].

    Derivatives of Newton's form f₀ + f₁(x−x₀) + f₂(x−x₀)(x−x₁) + …, where f are the divided
    differences: here as weights of the four differences of neighbours.
    """
    span, divided = gaps, torch.diag_embed(1.0 / gaps)
    f = [divided[..., 0, :]]
    for k in (1, 2, 3):
        span = span[..., :-1] + gaps[..., k:]  # from a point to the one after the k-th after it
        divided = divided.diff(dim=-2) / span[..., None]
        f.append(divided[..., 0, :])
    a, b, c, d, _ = (-times[..., None]).unbind(2)  # from points to the row
    # the derivatives of f₁(x−x₀) + f₂(x−x₀)(x−x₁) + … at the row, by sums of products of times
    pair, triple = a + b, a + b + c
    pairs = a * b + pair * c  # products of two of the first three
    velocity = f[0] + f[1] * pair + f[2] * pairs + f[3] * (a * b * (c + d) + c * d * pair)
    acceleration = 2.0 * (f[1] + f[2] * triple + f[3] * (pairs + d * triple))
    of_differences = velocity, acceleration, 6.0 * (f[2] + f[3] * (triple + d))
    return [pad(x, (1, 0)) - pad(x, (0, 1)) for x in of_differences]
