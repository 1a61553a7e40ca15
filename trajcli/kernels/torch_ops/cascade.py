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
    """Rows [B, T, D] from the used actions, dt [b, h] and start parts [B, D], all in float64."""
    k, recorded = program.order, int(program.recorded)
    batch, _, dofs = actions.shape
    zero = actions.new_zeros(batch, dofs)
    state = [zero if part is None else part for part in start]
    if recorded:
        state, actions = [actions[:, 0], zero, zero, zero], actions[:, 1:]
    count = actions.shape[1]
    dt = (dt if dt.shape[1] == 1 else columns(dt, 0, count))[:, :, None]  # [b, h, 1]
    rows: list[Tensor] = [zero] * 4  # [B, 1 + count, D], the state first
    rows[k] = torch.cat([state[k][:, None], actions], 1)
    for m in reversed(range(k)):
        gain = _gain(program.scheme, rows, dt, m, k)
        rows[m] = torch.cat([state[m][:, None], gain], 1).cumsum(1)
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
    """What quantity m gains in every step, [B, H, D]."""
    if scheme == "euler":
        return dt * rows[m + 1][:, 1:]
    n = k - m
    now, before = rows[k][:, 1:], rows[k][:, :-1]
    if scheme == "zoh":
        gain = dt**n / math.factorial(n) * now
    else:
        gain = dt**n / math.factorial(n + 1) * (now + n * before)
    for r in range(1, n):
        gain = gain + dt**r / math.factorial(r) * rows[m + r][:, :-1]
    return gain


def _from_row(values: Tensor, first: int) -> Tensor:
    """The rows before the first known one take its values; zero where there is none."""
    if first == 0 or values.dim() != 3:
        return values
    if values.shape[1] <= first:
        return values.masked_fill(torch.ones_like(values, dtype=torch.bool), 0.0)  # NaN, too
    known = columns(values, first, values.shape[1] - first)
    return torch.cat([columns(known, 0, 1).expand(-1, first, -1), known], 1)
