"""The cascade in plain torch; see :class:`trajcli.kernels.program.Cascade`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from trajcli.arrays import columns
from trajcli.kernels.program import Cascade

if TYPE_CHECKING:
    from torch import Tensor


def outputs(
    program: Cascade,
    actions: Tensor,
    dt: Tensor,
    start: Sequence[Tensor | None],
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    """Returns rows [B, T, D] of the used actions, dt [b, h] and start parts [B, D], all float64."""
    k, recorded = program.order, int(program.recorded)
    batch, _, dofs = actions.shape
    zero = actions.new_zeros(batch, dofs)
    state = [zero if part is None else part for part in start]
    if recorded:  # the first row is the start; what it lacks is copied from later rows at the end
        state, actions = [actions[:, 0], zero, zero, zero], actions[:, 1:]
    count = actions.shape[1]
    dt = (dt if dt.shape[1] == 1 else columns(dt, 0, count))[:, :, None]  # [b, h, 1]
    rows: list[Tensor] = [zero] * 4  # [B, 1 + count, D], the state first
    # row 0 is the start state, row t the state after action t
    rows[k] = torch.cat([state[k][:, None], actions], 1)
    # lower orders are sums: x_m,t = x_m,t−1 + gain_t
    # sums from the action's order down, then differences from it up
    for m in reversed(range(k)):
        gain = _gain(program.scheme, rows, dt, m, k)
        rows[m] = torch.cat([state[m][:, None], gain], 1).cumsum(1)
    # higher orders are differences: x_m,t = (x_m−1,t − x_m−1,t−1) / dt_t
    for m in range(k + 1, 1 + max((m for m in range(4) if wanted[m]), default=0)):
        rows[m] = torch.cat([state[m][:, None], rows[m - 1].diff(dim=1) / dt], 1)
    if recorded:
        rows = [_from_row(values, m) for m, values in enumerate(rows)]
    begin = int(not (program.start_row or recorded))
    return [
        columns(values, begin, 1 + count - begin) if want else None
        for values, want in zip(rows, wanted, strict=True)
    ]


def _gain(scheme: str, rows: Sequence[Tensor], dt: Tensor, m: int, k: int) -> Tensor:
    """Returns what quantity m gains in every step, [B, H, D]."""
    # semi-implicit: the derivative at the end of the step
    if scheme == "euler":
        return dt * rows[m + 1][:, 1:]
    n = k - m
    now, before = rows[k][:, 1:], rows[k][:, :-1]
    # n-fold integral of the action over the step: u_t dtⁿ/n! where it is constant (zoh),
    # (u_t + n u_t−1) dtⁿ/(n+1)! where it is linear from u_t−1 to u_t (foh)
    if scheme == "zoh":
        gain = dt**n / math.factorial(n) * now
    else:
        gain = dt**n / math.factorial(n + 1) * (now + n * before)
    # Taylor terms of the derivatives between m and the action, at the beginning of the step
    for r in range(1, n):
        gain = gain + dt**r / math.factorial(r) * rows[m + r][:, :-1]
    return gain


def _from_row(values: Tensor, first: int) -> Tensor:
    """Returns rows of which those before the first known one copy it; zeros if none is known."""
    if first == 0 or values.dim() != 3:
        return values
    if values.shape[1] <= first:
        return values.masked_fill(torch.ones_like(values, dtype=torch.bool), 0.0)  # NaN, too
    known = columns(values, first, values.shape[1] - first)
    return torch.cat([columns(known, 0, 1).expand(-1, first, -1), known], 1)
