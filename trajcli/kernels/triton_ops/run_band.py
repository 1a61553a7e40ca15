"""Launches of the band kernels: in columns where windows slide evenly (sliding.py), else every
row or point on its own, those away from the ends and those near them (windows.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trajcli.kernels.pairs import Pair
from trajcli.kernels.program import Weights
from trajcli.kernels.triton_ops.formula import Stencil, Windows, stencil
from trajcli.kernels.triton_ops.layout import Grid, grid
from trajcli.kernels.triton_ops.memory import Outputs, on, power_of_two, rows, stride, together
from trajcli.kernels.triton_ops.sliding import slide
from trajcli.kernels.triton_ops.sliding_adjoint import slide_back
from trajcli.kernels.triton_ops.windows import band
from trajcli.kernels.triton_ops.windows_adjoint import band_adjoint

OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}
_TILE = 1024
_EDGE_TILE = 256


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
        runs = -(-rows * dofs // tile["F"])
        return (-(-batch // tile["N"]) * runs,), {**tile, "runs": runs}  # axis 0 has no limit
    columns = min(64, power_of_two(dofs))
    most = _EDGE_TILE if dofs % 4 else 2 * _EDGE_TILE  # 16 bytes a thread where rows are aligned
    tile = {"N": most // columns, "F": columns}
    return (-(-batch // tile["N"]), rows, -(-dofs // columns)), {**tile, "runs": 1}


def parted(begin: int, end: int, total: int) -> list[tuple[bool, int, int, int, int]]:
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
    sizes = [0 if pair is None else int(pair.hi.shape[1]) for pair in (head, tail)]
    started = int(start is not None)
    begins = [None] * 4 if start is None else [part.double() for part in start]
    strides = [s for part in begins for s in ((0, 0) if part is None else part.stride())]
    paired = any(x is not None and x.dtype == torch.float64 for x in (given, *outputs.places))
    common: dict[str, Any] = {
        "actions": given,
        "actions_stride": stride(given),
        "ends": tuple(part for pair in (head, tail) for part in _flat(pair)),
        "table": tuple(_flat(weights.table)),
        "table_stride": _table_stride(weights.table.hi),
        "start": tuple(begins),
        "start_strides": tuple(int(s) for s in strides),
        "out": outputs.places,
        "out_stride": outputs.stride,
        "batch": batch,
        "horizon": horizon,
        "HEAD": sizes[0],
        "TAIL": sizes[1],
        "START": started,
        "SHARED": weights.table.hi.shape[0] == 1,
        "D": dofs,
    }
    sliding = None if paired else stencil(weights, where)  # which keeps float64, not pairs
    with on(given):
        if sliding is not None:
            _slide(weights, where, sliding, common)
        else:
            _each_on_its_own(weights, where, common, paired)
        outputs.give_back()


def _slide(weights: Weights, where: Windows, sliding: Stencil, job: dict[str, Any]) -> None:
    """All rows in one launch, in columns."""
    layout = grid(job["batch"], job["horizon"], job["D"], cheap=True)
    head, started = job["HEAD"], job["START"]
    begin, end = where.rows_of(head, head + job["horizon"] - sliding.points)
    slide[layout.programs](
        **job,
        **_spacing(weights),
        rows=where.count + started,
        before=begin + started,
        count=end - begin,
        skipped=begin + where.offset - where.shift - head if end > begin else 0,
        alike=where.last - where.offset + 1,
        last=where.last,
        OFFSET=where.offset,
        SHIFT=where.shift,
        WEIGHTS=sliding.of_differences,
        COMMON=sliding.differences_common,
        POINTS=sliding.points,
        **_lanes(layout, job["actions_stride"], job["out_stride"]),
    )


def _each_on_its_own(weights: Weights, where: Windows, job: dict[str, Any], paired: bool) -> None:
    """Rows away from the ends, and those near them."""
    batch, horizon, dofs, started = (job[name] for name in ("batch", "horizon", "D", "START"))
    width = int(weights.table.hi.shape[3])
    begin, end = where.rows_of(job["HEAD"], job["HEAD"] + horizon - width)
    for inside, row, count, jump_at, jump in parted(
        begin + started, end + started, where.count + started
    ):
        programs, tile = _layout(batch, count, dofs, inside, where, paired)
        band[programs](
            **job,
            row_0=row,
            rows=count,
            jump_at=jump_at,
            jump=jump,
            last=where.last,
            **where.options,
            INNER=inside,
            WIDE=wide(where.count + 1, horizon, max(dofs, 4 * width)),
            PAIRED=paired or not inside,
            WIDTH=width,
            **tile,
            **OPTIONS,
        )


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
    pulled, pulled_stride = together(upstream)
    outputs = Outputs([actions])
    common: dict[str, Any] = {
        "upstream": pulled,
        "upstream_stride": pulled_stride,
        "grads": (outputs.places[0], head, tail),
        "actions_stride": outputs.stride,
        "batch": batch,
        "horizon": horizon,
        "HEAD": int(head.shape[1]),
        "TAIL": int(tail.shape[1]),
        "D": dofs,
    }
    sliding = stencil(weights, where)
    with on(actions):
        if sliding is not None and sliding.of_points and where.offset <= common["HEAD"]:
            _slide_back(weights, where, sliding, common)
        else:
            _gather(weights, where, common)
        outputs.give_back()


def _slide_back(weights: Weights, where: Windows, sliding: Stencil, job: dict[str, Any]) -> None:
    """All points in one launch, in columns."""
    layout = grid(job["batch"], job["horizon"] + job["TAIL"], job["D"], cheap=True)
    slide_back[layout.programs](
        **job,
        **_spacing(weights),
        rows=where.count,
        OFFSET=where.offset,
        WEIGHTS=sliding.of_points,
        LAST_WEIGHTS=sliding.last,
        COMMON=sliding.points_common,
        POINTS=sliding.points,
        **_lanes(layout, job["upstream_stride"], job["actions_stride"]),
    )


def _gather(weights: Weights, where: Windows, job: dict[str, Any]) -> None:
    """Points away from the ends, and those near them."""
    batch, horizon, dofs, head = (job[name] for name in ("batch", "horizon", "D", "HEAD"))
    table = weights.table.hi.double().contiguous()
    width = int(table.shape[3])
    begin = max(head, width)
    end = min(head + horizon, where.last)
    for inside, point, count, jump_at, jump in parted(
        begin, max(begin, end), head + horizon + job["TAIL"]
    ):
        programs, tile = _layout(batch, count, dofs, inside, where)
        band_adjoint[programs](
            **job,
            table=table,
            table_stride=_table_stride(table),
            point_0=point,
            points=count,
            jump_at=jump_at,
            jump=jump,
            last=where.last,
            count=where.count,
            most=where.most_rows(),
            **where.options,
            SHARED=table.shape[0] == 1,
            INNER=inside,
            WIDE=wide(where.count, horizon, max(dofs, 4 * width)),
            WIDTH=width,
            **tile,
            **OPTIONS,
        )


def _spacing(weights: Weights) -> dict[str, Any]:
    assert weights.evenly is not None
    spacing = weights.evenly.spacing
    parts = _flat(spacing)
    return {"spacing": tuple(parts), "spacing_stride": int(spacing.hi.shape[0] > 1)}


def _lanes(layout: Grid, *strides: int) -> dict[str, Any]:
    tile = {name: size for name, size in layout.tile.items() if name != "D"}  # D is the job's
    return {
        "pieces": layout.pieces,
        "piece_rows": layout.piece_rows,
        **tile,
        "WIDE": layout.wide(*strides),
        **OPTIONS,
        "num_warps": 1,
    }


def wide(rows: int, horizon: int, values: int) -> bool:
    """Whether places within a trajectory, or its table, of so many values a row may not fit 32
    bits."""
    return (max(rows, horizon) + 64) * values + _TILE > 2**31 - 1


def _flat(pair: Pair | None) -> list[Tensor | None]:
    if pair is None:
        return [None, None]
    lo = pair.lo if isinstance(pair.lo, Tensor) else torch.zeros_like(pair.hi)
    return [pair.hi.double().contiguous(), lo.double().contiguous()]


def _table_stride(table: Tensor) -> int:
    return int(table[0].numel()) if table.shape[0] > 1 else 0
