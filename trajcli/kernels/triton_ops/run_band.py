"""Launches of the band kernels: in columns where windows slide evenly (sliding.py), else every
row or point on its own, those away from the ends and those near them (windows.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trajcli.kernels.padding import count_of, pull_points
from trajcli.kernels.pairs import Pair
from trajcli.kernels.program import Held, StatePoints, Weights, Windows
from trajcli.kernels.triton_ops.formula import (
    Stencil,
    formula_of,
    most_rows,
    options,
    points,
    rows_of,
    stencil,
)
from trajcli.kernels.triton_ops.layout import Grid, grid
from trajcli.kernels.triton_ops.memory import (
    Outputs,
    on,
    power_of_two,
    rows,
    states,
    stride,
    together,
)
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

    One axis, since the others have limits. Fewer places where each takes many registers: weights
    of its own, or ``paired`` points.
    """
    if inside:
        few = paired or where.each or where.steps != 1
        tile = _tile(rows * dofs, _TILE // 4 if few else _TILE)
        runs = -(-rows * dofs // tile["F"])
        return (-(-batch // tile["N"]) * runs,), {**tile, "runs": runs}
    columns = min(64, power_of_two(dofs))
    most = _EDGE_TILE if dofs % 4 else 2 * _EDGE_TILE  # 16 bytes a thread where rows are aligned
    tile = {"N": most // columns, "F": columns}
    return (-(-batch // tile["N"]) * rows * -(-dofs // columns),), {**tile, "runs": 1}


def parted(begin: int, end: int, total: int) -> list[tuple[bool, int, int, int, int]]:
    """What is inside begin..end and what is outside: (inside, from, count, jump at, jump)."""
    found = [(True, begin, end - begin, end - begin, 0)] if end > begin else []
    outside = total - (end - begin)
    return [*found, (False, 0, outside, begin, end - begin)] if outside else found


def padding(head: StatePoints | None, tail: StatePoints | Held | None) -> dict[str, Any]:
    """What lies before and after the actions: how many points, and what they are made of."""
    goal = tail if isinstance(tail, StatePoints) else None
    spacing = next((p.spacing for p in (head, goal) if p is not None), None)
    job: dict[str, Any] = {
        "state_spacing": tuple(_flat(spacing)),
        "state_spacing_stride": 0 if spacing is None else int(spacing.hi.shape[0] > 1),
    }
    for part, role, many, name in (
        (head, "state", "states", "HEAD"),
        (goal, "goal", "goals", "TAIL"),
    ):
        given = states((None,) * 4, None) if part is None else states(part.parts, part.rows)
        numbers = None if part is None else points(part.coefficients)
        job |= {role: given.parts, f"{role}_strides": given.strides, f"{role}_rows": given.rows}
        job |= {many: given.count, name: count_of(part), f"{name}_POINTS": numbers}
    if isinstance(tail, Held):
        job["TAIL"] = tail.count
    return job


def forward(
    actions: Tensor,
    head: StatePoints | None,
    tail: StatePoints | Held | None,
    weights: Weights,
    *,
    start: Sequence[Tensor | None] | None,
    start_rows: Tensor | None,
    out: Sequence[Tensor | None],
) -> None:
    """band of at least one trajectory and row, whose windows follow a formula."""
    where = formula_of(weights)
    given = rows(actions)
    batch, horizon, dofs = (int(n) for n in given.shape)
    outputs = Outputs(out)
    paired = any(x is not None and x.dtype == torch.float64 for x in (given, *outputs.places))
    common: dict[str, Any] = {
        "actions": given,
        "actions_stride": stride(given),
        **padding(head, tail),
        "table": tuple(_flat(weights.table)),
        "table_stride": _table_stride(weights.table.hi),
        "out": outputs.places,
        "out_stride": outputs.stride,
        "batch": batch,
        "horizon": horizon,
        "START": int(start is not None),
        "SHARED": weights.table.hi.shape[0] == 1,
        "D": dofs,
    }
    if start is not None and head is None:  # the head's state, if there is one, is the start
        first = states(start, start_rows)
        common |= {"state": first.parts, "state_strides": first.strides}
        common |= {"state_rows": first.rows, "states": first.count}
    sliding = None if paired else stencil(weights, where)  # which keeps float64, not pairs
    with on(given):
        if sliding is not None:
            _slide(weights, where, sliding, common)
        else:
            _each_on_its_own(weights, where, common, paired)
        outputs.give_back()


def _slide(weights: Weights, where: Windows, sliding: Stencil, job: dict[str, Any]) -> None:
    """All rows in one launch, in columns."""
    head, started = job["HEAD"], job["START"]
    points = job["horizon"] + (0 if job["TAIL_POINTS"] else job["TAIL"])  # held ones are actions
    begin, end = rows_of(where, head, head + points - sliding.points)
    layout = grid(job["batch"], max(job["horizon"], end - begin), job["D"], cheap=True)
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
    begin, end = rows_of(where, job["HEAD"], job["HEAD"] + horizon - width)
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
            **options(where),
            INNER=inside,
            WIDE=wide(where.count + 1, horizon, max(dofs, 4 * width)),
            PAIRED=paired or not inside,
            WIDTH=width,
            **tile,
            **OPTIONS,
        )


def backward(
    upstream: Sequence[Tensor | None],
    head: StatePoints | None,
    tail: StatePoints | Held | None,
    weights: Weights,
    grad: Tensor,
) -> tuple[Any, Any]:
    """band_adjoint without the table's, into ``grad`` of the actions; returns those of the ends."""
    where = formula_of(weights)
    batch, horizon, dofs = (int(n) for n in grad.shape)
    pulled, pulled_stride = together(upstream)
    outputs = Outputs([grad])
    common: dict[str, Any] = {
        "upstream": pulled,
        "upstream_stride": pulled_stride,
        "grad_stride": outputs.stride,
        "batch": batch,
        "horizon": horizon,
        "HEAD": count_of(head),
        "TAIL": count_of(tail),
        "D": dofs,
    }
    sliding = stencil(weights, where)
    with on(grad):
        if sliding is not None and sliding.of_points and where.offset <= common["HEAD"]:
            ends = [_of_parts(part, grad) for part in (head, tail)]
            _slide_back(weights, where, sliding, common, outputs.places[0], (head, tail), ends)
        else:
            ends = _gather(weights, where, common, outputs.places[0], (head, tail))
        outputs.give_back()
    return ends[0], ends[1]


def _of_parts(part: StatePoints | Held | None, like: Tensor) -> list[Tensor | None] | None:
    """Buffers [B, D] for the gradients of a state's scaled parts, where there are such."""
    if not isinstance(part, StatePoints):
        return None
    batch, _, dofs = like.shape
    shape = batch, dofs
    return [None if p is None else like.new_empty(shape, dtype=torch.float64) for p in part.parts]


def _slide_back(
    weights: Weights,
    where: Windows,
    sliding: Stencil,
    job: dict[str, Any],
    grad: Tensor | None,
    padding: Sequence[StatePoints | Held | None],
    ends: Sequence[Any],
) -> None:
    """All points in one launch, in columns."""
    layout = grid(job["batch"], job["horizon"], job["D"], cheap=True)
    numbers = [
        points(part.coefficients) if isinstance(part, StatePoints) else None for part in padding
    ]
    slide_back[layout.programs](
        **job,
        **_spacing(weights),
        grad=grad,
        of_state=tuple(ends[0] or (None,) * 4),
        of_goal=tuple(ends[1] or (None,) * 4),
        rows=where.count,
        HEAD_POINTS=numbers[0],
        TAIL_POINTS=numbers[1],
        OFFSET=where.offset,
        WEIGHTS=sliding.of_points,
        LAST_WEIGHTS=sliding.last,
        COMMON=sliding.points_common,
        POINTS=sliding.points,
        **_lanes(layout, job["upstream_stride"], job["grad_stride"]),
    )


def _gather(
    weights: Weights,
    where: Windows,
    job: dict[str, Any],
    grad: Tensor | None,
    padding: Sequence[StatePoints | Held | None],
) -> list[Any]:
    """Points away from the ends, and those near them; gradients of what the ends are made of."""
    batch, horizon, dofs, head = (job[name] for name in ("batch", "horizon", "D", "HEAD"))
    table = weights.table.hi.double().contiguous()
    width = int(table.shape[3])
    held = count_of(padding[1]) if isinstance(padding[1], Held) else 0
    apart = [head, job["TAIL"] - held]
    ends = [table.new_empty(batch, n, dofs) for n in apart]
    begin = max(head, width)
    end = min(head + horizon - int(held > 0), where.last)
    job = {**job, "TAIL": apart[1]}
    for inside, point, count, jump_at, jump in parted(
        begin, max(begin, end), head + horizon + apart[1]
    ):
        programs, tile = _layout(batch, count, dofs, inside, where)
        band_adjoint[programs](
            **job,
            grads=(grad, *ends),
            table=table,
            table_stride=_table_stride(table),
            point_0=point,
            points=count,
            jump_at=jump_at,
            jump=jump,
            last=where.last,
            count=where.count,
            most=most_rows(where),
            **options(where),
            SHARED=table.shape[0] == 1,
            HELD=held,
            INNER=inside,
            WIDE=wide(where.count, horizon, max(dofs, 4 * width)),
            WIDTH=width,
            **tile,
            **OPTIONS,
        )
    none = table.new_empty(0)
    return [
        None if isinstance(part, Held) else pull_points(part, found, none)
        for part, found in zip(padding, ends, strict=True)
    ]


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
