"""Launches of the band kernels: rows and points away from the ends, and those near them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trajcli.kernels.pairs import Pair
from trajcli.kernels.program import Weights
from trajcli.kernels.triton_ops.memory import Outputs, on, power_of_two, rows, stride, together
from trajcli.kernels.triton_ops.windows import band
from trajcli.kernels.triton_ops.windows_adjoint import band_adjoint

OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}
_TILE = 1024
_EDGE_TILE = 256


@dataclass(frozen=True)
class Windows:
    """Where windows begin, as a formula: see windows.py. ``each``: every row has weights of its
    own, else they go by the place in the window."""

    count: int
    offset: int
    steps: int
    shift: int
    last: int
    each: bool

    @property
    def options(self) -> dict[str, Any]:
        return {
            "OFFSET": self.offset,
            "STEPS": self.steps,
            "SHIFT": self.shift,
            "EACH": self.each,
        }

    def rows_of(self, least: int, most: int) -> tuple[int, int]:
        """The rows whose windows begin at ``least`` to ``most``, none of them held at an end."""
        begin = self.steps * (max(least, 0) + self.shift) - self.offset
        end = self.steps * (min(most, self.last) + 1 + self.shift) - self.offset
        begin, end = max(begin, 0), min(end, self.count)
        return (begin, end) if begin < end else (0, 0)

    def most_rows(self) -> int:
        """How many rows may share a window."""
        at_first = self.steps * (1 + self.shift) - self.offset
        at_last = self.count - (self.steps * (self.last + self.shift) - self.offset)
        return self.count if self.last == 0 else max(self.steps, at_first, at_last)


def windows(first: Any, phase: Any) -> Windows | None:
    """The formula behind the arrays of a table's use; None where there is none like it.

    first, phase: NumPy int64 [T], T > 0. They are compared with the formula in every row.
    """
    count, last = len(first), int(first[-1])
    row = np.arange(count)
    each = count > 1 and np.array_equal(phase, row)
    later = np.flatnonzero(first > first[0])
    for offset, shift in ((0, 0), (1, 0), (0, 2)):
        steps = int(later[0] + offset) // int(first[0] + 1) if len(later) else count + offset
        steps = 1 if shift else steps
        begins = np.clip((row + offset) // max(steps, 1) - shift, 0, last)
        if steps < 1 or not np.array_equal(begins, first):
            continue
        if each or np.array_equal(phase, row + offset - steps * first):
            return Windows(count, offset, steps, shift, last, each)
    return None


def _tile(places: int, most: int) -> dict[str, int]:
    """Trajectories and flat places of a tile: few lanes idle, long runs."""
    sizes = [2**k for k in range(most.bit_length() - 1, 3, -1)]
    waste = {size: -(-places // size) * size for size in sizes}
    best = min(waste.values())
    size = next(size for size in sizes if waste[size] <= 1.05 * best)
    return {"N": most // size, "F": size}


def _layout(
    batch: int, rows: int, dofs: int, inside: bool, where: Windows, paired: bool = False
) -> tuple[tuple[int, ...], dict[str, int]]:
    """Grid and tile: away from the ends flat places, near them a row of many trajectories.

    Fewer places where each takes many registers: weights of its own, or ``paired`` points.
    """
    if inside:
        few = paired or where.each or where.steps != 1
        tile = _tile(rows * dofs, _TILE // 4 if few else _TILE)
        return (-(-batch // tile["N"]), -(-rows * dofs // tile["F"])), tile
    columns = min(64, power_of_two(dofs))
    most = _EDGE_TILE if dofs % 4 else 2 * _EDGE_TILE  # 16 bytes a thread where rows are aligned
    tile = {"N": most // columns, "F": columns}
    return (-(-batch // tile["N"]), rows, -(-dofs // columns)), tile


def _parts(begin: int, end: int, total: int) -> list[tuple[bool, int, int, int, int]]:
    """What is inside begin..end and what is outside: (inside, from, count, jump at, jump)."""
    found = [(True, begin, end - begin, end - begin, 0)] if end > begin else []
    outside = total - (end - begin)
    return [*found, (False, 0, outside, begin, end - begin)] if outside else found


def forward(
    actions: Tensor,
    head: Pair | None,
    tail: Pair | None,
    weights: Weights,
    where: Windows,
    *,
    start: Sequence[Tensor] | None,
    out: Sequence[Tensor | None],
) -> None:
    """band of at least one trajectory and row."""
    given = rows(actions)
    batch, horizon, dofs = (int(n) for n in given.shape)
    outputs = Outputs(out)
    ends = [part for pair in (head, tail) for part in _flat(pair)]
    sizes = [0 if pair is None else int(pair.hi.shape[1]) for pair in (head, tail)]
    table = _flat(weights.table)
    width = int(weights.table.hi.shape[3])
    started = start is not None
    begins = [None] * 4 if start is None else [part.double() for part in start]
    strides = [s for part in begins for s in ((0, 0) if part is None else part.stride())]
    begin, end = where.rows_of(sizes[0], sizes[0] + horizon - width)
    paired = given.dtype == torch.float64
    with on(given):
        for inside, row, count, jump_at, jump in _parts(
            begin + started, end + started, where.count + started
        ):
            programs, tile = _layout(batch, count, dofs, inside, where, paired)
            band[programs](
                given,
                stride(given),
                tuple(ends),
                tuple(table),
                _table_stride(weights.table.hi),
                tuple(begins),
                tuple(int(s) for s in strides),
                outputs.places,
                outputs.stride,
                batch,
                horizon,
                row,
                count,
                jump_at,
                jump,
                where.last,
                HEAD=sizes[0],
                TAIL=sizes[1],
                **where.options,
                SHARED=weights.table.hi.shape[0] == 1,
                INNER=inside,
                WIDE=_wide(where.count + 1, horizon, dofs),
                PAIRED=paired or not inside,
                START=int(started),
                WIDTH=width,
                D=dofs,
                **tile,
                **OPTIONS,
            )
        outputs.give_back()


def backward(
    upstream: Sequence[Tensor | None],
    weights: Weights,
    where: Windows,
    *,
    grads: Sequence[Tensor],
) -> None:
    """band_adjoint without the table's, into grads of the actions, head and tail [B, n, D]."""
    actions, head, tail = grads
    batch, horizon, dofs = (int(n) for n in actions.shape)
    sizes = int(head.shape[1]), int(tail.shape[1])
    pulled, pulled_stride = together(upstream)
    outputs = Outputs([actions])
    table = weights.table.hi.double().contiguous()
    width = int(table.shape[3])
    begin = max(sizes[0], width)
    end = min(sizes[0] + horizon, where.last)
    with on(actions):
        for inside, point, count, jump_at, jump in _parts(
            begin, max(begin, end), sizes[0] + horizon + sizes[1]
        ):
            programs, tile = _layout(batch, count, dofs, inside, where)
            band_adjoint[programs](
                pulled,
                pulled_stride,
                table,
                _table_stride(table),
                (outputs.places[0], head, tail),
                outputs.stride,
                batch,
                horizon,
                point,
                count,
                jump_at,
                jump,
                where.last,
                where.count,
                where.most_rows(),
                HEAD=sizes[0],
                TAIL=sizes[1],
                **where.options,
                SHARED=table.shape[0] == 1,
                INNER=inside,
                WIDE=_wide(where.count, horizon, dofs),
                WIDTH=width,
                D=dofs,
                **tile,
                **OPTIONS,
            )
        outputs.give_back()


def _wide(rows: int, horizon: int, dofs: int) -> bool:
    """Whether places within a trajectory may not fit 32 bits."""
    return (max(rows, horizon) + 64) * dofs + _TILE > 2**31 - 1


def _flat(pair: Pair | None) -> list[Tensor | None]:
    if pair is None:
        return [None, None]
    lo = pair.lo if isinstance(pair.lo, Tensor) else torch.zeros_like(pair.hi)
    return [pair.hi.double().contiguous(), lo.double().contiguous()]


def _table_stride(table: Tensor) -> int:
    return int(table[0].numel()) if table.shape[0] > 1 else 0
