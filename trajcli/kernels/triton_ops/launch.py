"""Launches of the Triton kernels: their arguments, from programs and tensors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trajcli.kernels.program import Array, Band, Gradients, Operands, Parts, Program
from trajcli.kernels.triton_ops import band, cascade, fit, tiles
from trajcli.kernels.triton_ops.tiles import BandForm, CascadeForm

LANES = 128
OPTIONS = {"LANES": LANES, "num_warps": LANES // 32, "enable_fp_fusion": False}
"""Kernels fuse explicitly: a difference of equal products has to be zero."""


def forward(program: Program, operands: Operands, out: Parts) -> None:
    """See :func:`trajcli.kernels.triton_ops.forward`."""
    rows = in_rows(out)
    if any(buffer is not None and buffer.numel() for buffer in rows):
        (actions,) = in_rows([operands.actions])
        start = states(operands.start, operands.start_index)
        goal = states(operands.goal, operands.goal_index)
        launch(program, actions.shape, actions, operands.dt, start, goal, rows, adjoint=False)
        copy_back(rows, out)


def adjoint(program: Program, operands: Operands, upstream: Parts, gradients: Gradients) -> None:
    """See :func:`trajcli.kernels.triton_ops.adjoint`."""
    batch, horizon, dofs = operands.actions.shape
    wanted = [gradients.actions, *gradients.start, *gradients.goal]
    if not batch * dofs or all(buffer is None for buffer in wanted):
        return
    (actions,) = in_rows([gradients.actions])
    if actions is not None and isinstance(program, Band) and program.degree is not None:
        actions = torch.empty(actions.shape, dtype=torch.float64, device=actions.device)  # of sums
    parts = [None if buffer is None else buffer.contiguous() for buffer in wanted[1:]]
    if actions is not None and not reaches_all(program, horizon):
        actions.zero_()
    fits = isinstance(program, Band) and program.degree is not None  # which have no states
    for part in parts if fits else () if isinstance(program, Band) else parts[4:]:
        if part is not None:
            part.zero_()
    start, goal = (parts[:4], None, 1), (parts[4:], None, 1)
    rows = in_rows(upstream)
    launch(program, operands.actions.shape, actions, operands.dt, start, goal, rows, adjoint=True)
    copy_back([actions, *parts], wanted)


def launch(
    program: Program,
    shape: Sequence[int],
    actions: Tensor | None,
    dt: Tensor,
    start: tuple[Parts, Array | None, int],
    goal: tuple[Parts, Array | None, int],
    rows: Parts,
    *,
    adjoint: bool,
) -> None:
    """Launch the program's kernel, which reads actions and states and writes rows, or its adjoint,
    which reads rows and writes actions and states."""
    batch, _, dofs = shape
    parts = -(-dofs // LANES)
    lane_dofs = -(-dofs // parts)  # dofs of a trajectory in one of the kernel's programs
    dt = dt.double()
    tile_rows = 4 if dofs > 1 else 8  # so that they are a sector, 32 bytes, or more
    tile = (dofs, lane_dofs, tile_rows)
    arguments = {
        "actions": actions,
        "dt": dt,
        "rows": tuple(rows),
        "batch": batch,
        "used": program.used,
        "actions_stride": 0 if actions is None else actions.stride(0),
        "rows_stride": next((x.stride(0) for x in rows if x is not None), 0),
        "entries": dt.shape[1],
        "dt_stride": dt.stride(0) if dt.shape[0] > 1 else 0,
        "dt_step": dt.stride(1) if dt.shape[1] > 1 else 0,
        "ADJOINT": adjoint,
        "START_ROW": program.start_row,
        **state_arguments("start", *start),
        **OPTIONS,
    }
    kernel: Any = cascade.run
    if isinstance(program, Band) and program.degree is not None:
        kernel, arguments = fit.run, fit_arguments(program, arguments, dt.device)
        arguments |= {"D": dofs, "DOFS": lane_dofs}
    elif isinstance(program, Band):
        kernel = band.run
        arguments |= state_arguments("goal", *goal) | band_arguments(program, dt.device, tile)
    else:
        options = (program.order, program.scheme, program.recorded)
        arguments["FORM"] = CascadeForm(*tile, dt.shape[1] == 1, *options)
    with on(dt):
        kernel[(-(-batch // (LANES // lane_dofs)) * parts,)](**arguments)


def state_arguments(role: str, parts: Parts, index: Array | None, count: int) -> dict[str, Any]:
    """Arguments that are a state."""
    return {role: tuple(parts), f"{role}_index": index, f"{role}_count": count}


@lru_cache(maxsize=64)
def band_arguments(
    program: Band, device: torch.device, tile: tuple[int, int, int]
) -> dict[str, Any]:
    """Arguments that a band's calls have in common; its tables are on the device."""
    windows, base = program.windows, program.base
    tables = [
        torch.from_numpy(np.ascontiguousarray(x)).to(device) if x is not None and len(x) else None
        for x in (program.head, program.tail, program.table)
    ]
    form = BandForm(
        *tile,
        EVEN=program.table is not None,
        STEPS=windows.steps,
        STEADY=bool((np.diff(windows.first()) == 1).all()),
        WIDTH=program.width,
        KINDS=len(base),
        BASE=base if len(set(base)) > 1 else base[:1],
        COPIES=program.copies,
    )
    return {
        **dict(zip(("head_table", "tail_table", "table"), tables, strict=True)),
        "held": program.held,
        "count": windows.count,
        "last": windows.last,
        "offset": windows.offset,
        "shift": windows.shift,
        "entries": program.steps,
        "HEAD": len(program.head),
        "SPACING": program.spacing,
        "FORM": form,
    }


def fit_arguments(program: Band, arguments: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Arguments of a band whose rows are fits: of recordings, so that it has no states."""
    unused = {"used", "START_ROW", "start", "start_index", "start_count"}
    windows, spans = program.windows, program.spans
    return {
        **{name: value for name, value in arguments.items() if name not in unused},
        "count": windows.count,
        "last": windows.last,
        "shift": windows.shift,
        "width": program.width,
        "spans": None if spans is None else torch.from_numpy(spans).to(device),
        "span_stride": 0 if spans is None or len(spans) == 1 else 2 * program.rows,
        "DEGREE": program.degree,
    }


def reaches_all(program: Program, horizon: int) -> bool:
    """Whether an adjoint writes the gradients of all actions, and does not add to them."""
    if isinstance(program, Band) and program.degree is not None:
        return False
    if program.used < horizon or not isinstance(program, Band):
        return program.used == horizon
    windows, head = program.windows.first(), len(program.head)
    ends = head + program.used - program.width
    return bool(len(windows) and windows[0] <= head and windows[-1] >= ends)


def in_rows(arrays: Parts) -> list[Any]:
    """Tensors [B, T, D] as kernels take them: of a float type, rows and dofs side by side, and all
    of one stride from trajectory to trajectory. None stays None."""
    rows = [None if x is None else readable(x) for x in arrays]
    rows = [x if x is None or _side_by_side(x) else x.contiguous() for x in rows]
    if len({x.stride(0) for x in rows if x is not None}) > 1:
        rows = [None if x is None else x.contiguous() for x in rows]
    return rows


def _side_by_side(array: Tensor) -> bool:
    _, rows, dofs = array.shape
    _, by_row, by_dof = array.stride()
    return (dofs == 1 or by_dof == 1) and (rows <= 1 or by_row == dofs)


def readable(array: Tensor) -> Tensor:
    """The tensor in a type that kernels load."""
    if array.dtype in (torch.float32, torch.float64):
        return array
    narrow = array.dtype in (torch.float16, torch.bfloat16)
    return array.float() if narrow else array.double()


def states(parts: Parts, index: Array | None) -> tuple[list[Any], Any, int]:
    """Parts [S, D] of one S, their index, and S."""
    count = max((len(part) for part in parts if part is not None), default=1)
    rows = [
        None if part is None else readable(part).expand(count, -1).contiguous() for part in parts
    ]
    return rows, None if index is None else index.contiguous(), count


def copy_back(results: Sequence[Any], buffers: Sequence[Any]) -> None:
    """Copy results that were written to other memory into the caller's buffers."""
    for result, buffer in zip(results, buffers, strict=True):
        if result is not None and result is not buffer:
            buffer.copy_(result)


def on(tensor: Tensor) -> AbstractContextManager[Any]:
    """Makes the tensor's device the current one: kernels run there, on its current stream."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def probe(device: str) -> None:
    """See :func:`trajcli.kernels.triton_ops.probe`."""
    number = torch.zeros(1, device=device)
    with on(number):
        tiles.write_one[(1,)](number)
    if number.item() != 1:
        raise RuntimeError("a Triton kernel ran, but wrote nothing")
