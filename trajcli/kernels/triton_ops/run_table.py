"""Launches of the kernels for the gradient of a band's table (table_adjoint.py).

What is added up, and in which order, for the table of a trajectory depends on the number of rows
and dofs alone, so that its bits do not depend on the other trajectories.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trajcli.kernels.program import Held, StatePoints, Weights, Windows
from trajcli.kernels.triton_ops.formula import formula_of, rows_of
from trajcli.kernels.triton_ops.memory import on, power_of_two, rows, stride, together
from trajcli.kernels.triton_ops.run_band import OPTIONS, padding, parted, wide
from trajcli.kernels.triton_ops.table_adjoint import table_adjoint, table_adjoint_each, totals

_LANES = 32
_TILES = 32
"""Tiles of a piece: enough for adding up its lanes to be a small part of the work."""
_PROGRAMS = 8192
"""That many keep a large device busy; from there on each takes several trajectories, where these
share the table."""
_PROGRAMS_OF_ROWS = 2048
"""The same of those that write as many sums as they have rows: fewer, to write less."""
_TOGETHER = 128
"""Parts that are added up at once."""


def gradient(
    upstream: Sequence[Tensor | None],
    actions: Tensor,
    head: StatePoints | None,
    tail: StatePoints | Held | None,
    weights: Weights,
) -> Tensor:
    """That of the table [b, P, 4, W], float64, from those of the outputs [B, T, D].

    At least one trajectory and row. Every row's kind is one of the table's.
    """
    table, where = weights.table.hi, formula_of(weights)
    if all(g is None for g in upstream):
        return torch.zeros_like(table, dtype=torch.float64)
    pulled, pulled_stride = together(upstream)
    given = rows(actions)
    width = int(table.shape[3])
    batch, horizon, dofs = (int(n) for n in given.shape)
    ends = padding(head, tail)
    begin, end = rows_of(where, ends["HEAD"], ends["HEAD"] + horizon - width)
    job: dict[str, Any] = {
        "upstream": pulled,
        "upstream_stride": pulled_stride,
        "actions": given,
        "actions_stride": stride(given),
        **ends,
        "batch": batch,
        "horizon": horizon,
        "last": where.last,
        "OFFSET": where.offset,
        "STEPS": where.steps,
        "SHIFT": where.shift,
        "WIDE": wide(where.count, horizon, max(dofs, 4 * width)),
        "WIDTH": width,
        "D": dofs,
        **OPTIONS,
        "num_warps": 1,
    }
    with on(given):
        return (_of_rows if where.each else _of_kinds)(job, where, begin, end, table)


def _of_kinds(job: dict[str, Any], where: Windows, begin: int, end: int, table: Tensor) -> Tensor:
    """Rows that share tables by their place in the window."""
    shared, kinds, width = table.shape[0] == 1, int(table.shape[1]), job["WIDTH"]
    first = (begin + where.offset) // where.steps - where.shift
    windows = (end - 1 + where.offset) // where.steps - where.shift + 1 - first
    windows = windows if end > begin else 0
    others = where.count - (end - begin)
    places = min(_LANES, power_of_two(max(windows, others) * job["D"]))
    lanes = _LANES // places
    pieces = max(1, -(-windows * job["D"] // (places * _TILES)))
    tiles = -(-job["batch"] // lanes)
    each = min(tiles, max(1, tiles * pieces * where.steps // _PROGRAMS)) if shared else 1
    groups = -(-tiles // each)
    count = groups if shared else job["batch"]
    parts = table.new_empty(count, pieces, kinds, 4, width, dtype=torch.float64)
    table_adjoint[(groups * pieces * kinds,)](
        **job,
        parts=parts,
        begin=begin,
        end=end,
        first=first,
        windows=windows,
        others=others,
        pieces=pieces,
        kinds=kinds,
        each=each,
        SHARED=shared,
        N=lanes,
        F=places,
        TILES=_TILES,
        AT_ONCE=4,
    )
    return _added(parts.flatten(0, 1)[None] if shared else parts)


def _of_rows(job: dict[str, Any], where: Windows, begin: int, end: int, table: Tensor) -> Tensor:
    """Every row with a table of its own."""
    shared, batch, count = table.shape[0] == 1, job["batch"], where.count
    runs = -(-count // _tile(count, job["D"])["N"])
    each = min(batch, max(1, batch * runs // _PROGRAMS_OF_ROWS)) if shared else 1
    groups = -(-batch // each)
    parts = table.new_empty(groups, count, 4, job["WIDTH"], dtype=torch.float64)
    for inside, row, number, jump_at, jump in parted(begin, end, count):
        tile = _tile(number, job["D"])
        runs = -(-number // tile["N"])
        table_adjoint_each[(groups * runs,)](
            **job,
            parts=parts,
            row_0=row,
            rows=number,
            jump_at=jump_at,
            jump=jump,
            count=count,
            runs=runs,
            each=each,
            INNER=inside,
            **tile,
        )
    sums = _added(parts[None]) if shared else parts
    unused = int(table.shape[1]) - count
    return torch.nn.functional.pad(sums, (0, 0, 0, 0, 0, unused)) if unused else sums


def _tile(count: int, dofs: int) -> dict[str, int]:
    """Rows, dofs at a time and how many times at once: a row to a lane where dofs are few, so that
    there is little to add up."""
    lanes = min(_LANES if dofs <= 8 else _LANES // 8, power_of_two(count))
    columns = min(_LANES // lanes, power_of_two(dofs))
    times = -(-dofs // columns)
    return {"N": lanes, "F": columns, "AT_ONCE": times if times <= 8 else 4}


def _added(parts: Tensor) -> Tensor:
    """Sums over the second of the axes [S, n, ...], [S, ...]."""
    while parts.shape[1] > 1:
        number, count = (int(n) for n in parts.shape[:2])
        values = parts[0, 0].numel()
        blocks, columns = -(-count // _TOGETHER), -(-values // 32)
        sums = parts.new_empty(number, blocks, *parts.shape[2:])
        totals[(number * blocks * columns,)](
            parts, sums, count, blocks, values, columns, ROWS=_TOGETHER, K=32, F=32, **OPTIONS
        )
        parts = sums
    return parts[:, 0]
