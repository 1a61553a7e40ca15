"""Runs the kernels in Triton, for CUDA devices, on programs of :mod:`trajcli.kernels.program`.

They run on the current stream of their tensors' device and never wait for it. They copy a band's
tables from the host once, so that a warm call can be captured in a CUDA graph. Kernels are compiled
for a number of dofs and options of the mode, not for numbers of trajectories, actions and states.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from math import gcd
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from trajcli.arrays import is_capturing, keep_for_graphs, to_torch
from trajcli.kernels import torch_ops
from trajcli.kernels.program import Band, Cascade, Gradients, Operands, Parts, Program, Smoother
from trajcli.kernels.torch_ops._band import on_points, weights_of_rows
from trajcli.kernels.triton_ops import _access, _band, _cascade
from trajcli.memory import TORCH_VALUES

WARP, LANES = 32, 128
# Threads that hold rows of a tile, or rows that lanes exchange, may use so many registers: few
# values spill, and five warps fit on each scheduler of a multiprocessor.
REGISTERS = 96
TENSORS = ("actions", "start", "dt", "rows")
"""The arguments of a launch that later calls may replace."""


class Launch:
    """A kernel, the number of its programs, and its arguments, for tensors of one layout.

    Triton looks at every argument of every call to find the kernel it has compiled for such; this
    keeps the kernel. Kernels are not compiled for where tensors begin.
    """

    def __init__(self, kernel: Any, programs: int, arguments: dict[str, Any]) -> None:
        self._kernel, self._programs = kernel, programs
        self._compiled: Any = None
        names = kernel.arg_names
        self._indices = [names.index(name) for name in TENSORS]
        self._values = [arguments[name] for name in names]
        # A difference of equal products has to be zero. The compiler would fuse one of the products
        # with the subtraction, and round only the other, so kernels fuse explicitly.
        self._options = {"num_warps": arguments["LANES"] // WARP, "enable_fp_fusion": False}
        if arguments.get("ROWS", 1) > 1 or ("tiles" in arguments and arguments["K"]):
            self._options["maxnreg"] = REGISTERS

    def __call__(self, *tensors: Any) -> None:
        """Runs the kernel on other tensors, in the order of TENSORS, or on those of the launch."""
        if not self._programs:
            return
        # a copy: several threads may call at once
        values: list[Any] = self._values.copy()
        for index, value in zip(self._indices, tensors, strict=False):
            values[index] = tuple(value) if isinstance(value, list) else value
        with use_device(values[self._indices[2]]):
            if self._compiled is None:
                grid = (self._programs, 1, 1)
                compiled = self._kernel.run(*values, grid=grid, warmup=True, **self._options)
                self._compiled = compiled[grid]
            self._compiled(*values)

    def without_tensors(self) -> Launch:
        for index in self._indices:
            self._values[index] = None
        return self


class Prepared:
    """Runs a program without indices and goal on contiguous tensors of one layout; keeps none."""

    def __init__(self) -> None:
        self._forward: Launch | None = None
        self._adjoints: dict[Any, Launch] = {}

    def forward(self, program: Program, operands: Operands, out: Parts) -> None:
        start = operands.start
        if self._forward is None:
            self._forward = forward_launch(program, operands, out).without_tensors()
            self._mixed = len({len(x) for x in start if x is not None}) > 1
        # kernels read the same number of rows from all parts of a state
        if self._mixed:
            start = state_arguments("start", start, None)["start"]
        self._forward(operands.actions, start, operands.dt, out)

    def adjoint(
        self, program: Program, operands: Operands, upstream: Sequence[Any], gradients: Gradients
    ) -> None:
        # the forward pass ran before the capture, so the graph does not keep its steps alive
        if is_capturing(operands.dt.device):
            keep_for_graphs(operands.dt)
            adjoint(program, operands, upstream, gradients)
            return
        upstream = [x if x is None else x.contiguous() for x in upstream]
        arrays = (*upstream, gradients.actions, *gradients.start)
        key = tuple([None if x is None else x.dtype for x in arrays])
        launch = self._adjoints.get(key)
        if launch is None:
            launch = adjoint_launch(program, operands, upstream, gradients).without_tensors()
            self._adjoints[key] = launch
        launch(gradients.actions, gradients.start, operands.dt, upstream)


def forward(program: Program, operands: Operands, out: Parts) -> None:
    """Fills the outputs; None is skipped."""
    if uses_torch(program):
        torch_ops.forward(program, operands, out)
        return
    for part, inputs, rows in torch_ops.blocks(program, operands, out, size=block_size(program)):
        if any(x is not None and x.numel() for x in rows):
            forward_launch(part, inputs, rows)()


def adjoint(
    program: Program, operands: Operands, upstream: Sequence[Any], gradients: Gradients
) -> None:
    """Fills the gradients of the inputs; None is skipped."""
    if uses_torch(program):
        torch_ops.adjoint(program, operands, upstream, gradients)
        return
    results = [gradients.actions, *gradients.start, *gradients.goal]
    arrays, size = prepare_tensors(upstream), block_size(program)
    for part, inputs, rows, grads in torch_ops.blocks(
        program, operands, arrays, results, size=size
    ):
        if any(x is not None and x.numel() for x in grads):
            block = Gradients(grads[0], grads[1:5], grads[5:])
            adjoint_launch(part, inputs, rows, block)()


def uses_torch(program: Program) -> bool:
    """Tells whether torch computes a program on the device, as no kernel is written for it."""
    return isinstance(program, Smoother) or (isinstance(program, Cascade) and program.recorded)


def block_size(program: Program) -> int:
    """Limits the values of an output that are computed at once."""
    # weights of each row, and the times they are computed from, take many times the rows' memory
    uneven = isinstance(program, Band) and program.table is None
    return TORCH_VALUES if uneven else sys.maxsize


def forward_launch(program: Program, operands: Operands, rows: Parts) -> Launch:
    (actions,) = prepare_tensors([operands.actions])
    arguments = shared_arguments(program, operands, actions, rows)
    arguments |= state_arguments("start", operands.start, operands.start_index)
    batch, _, dofs = operands.actions.shape
    # Where lanes exchange rows, a trajectory has a power of two of lanes (pitch), and so many rows
    # (group) are stored at once that a warp stores 32 values that lie side by side. Memory is
    # written in sectors of 32 bytes, or 8 values of float32. Groups begin at rows whose number is a
    # multiple of the phase, so that they begin at a sector.
    pitch, phase = 1 << (dofs - 1).bit_length(), 8 // gcd(8, dofs)
    group = min(WARP // pitch, arguments["K"])
    # Rows of 8 or 16 dofs fill sectors without an exchange, and those of a band with several steps
    # per knot are not neighbours. Offsets within the trajectories of a warp have 32 bits.
    separate = isinstance(program, Band) and program.windows.steps > 1
    large = WARP // pitch * program.rows * dofs >= 2**31
    if group < 2 or separate or large or dofs % 8 == 0:
        pitch, group, phase = dofs, 1, 1
    arguments |= {"PITCH": pitch, "ROWS": group, "PHASE": phase}
    warps = -(-batch * pitch // WARP)
    if not isinstance(program, Band):
        return Launch(_cascade.forward, warps, arguments)
    arguments |= state_arguments("goal", operands.goal, operands.goal_index)
    steps, inner = program.windows.steps, arguments["inner"]
    # A tile has K windows of a warp's columns. A column may begin up to phase − 1 rows before its
    # first inner row.
    tiles = warps * -(-(inner + phase - 1) // arguments["K"]) if inner else 0
    tiles *= steps
    outer = batch * (program.rows - inner * steps) * dofs
    programs = tiles + -(-outer // arguments["LANES"])
    return Launch(_band.forward, programs, arguments | {"tiles": tiles})


def adjoint_launch(
    program: Program, operands: Operands, upstream: Parts, gradients: Gradients
) -> Launch:
    batch, horizon, dofs = operands.actions.shape
    arguments = shared_arguments(program, operands, gradients.actions, upstream)
    arguments["start"] = tuple(gradients.start)
    if not isinstance(program, Band):
        goals: Sequence[Any] = gradients.goal
        for part in goals:
            if part is not None:
                part.zero_()
        return Launch(_cascade.adjoint, -(-batch * dofs // WARP), arguments)
    arguments["goal"], lanes, tiles, programs = tuple(gradients.goal), arguments["LANES"], 0, 0
    # values of float64 take two registers each, so that half as many windows fit
    if torch.float64 in [x.dtype for x in (gradients.actions, *upstream) if x is not None]:
        arguments["K"] //= 2
    if gradients.actions is not None:
        # the actions that only inner windows use
        exclusive = max(arguments["inner"] - (program.width - 1), 0)
        tiles = -(-batch * dofs // WARP) * -(-exclusive // arguments["K"]) if exclusive else 0
        programs = tiles + -(-batch * (horizon - exclusive) * dofs // lanes)
    arguments |= {"tiles": tiles, "programs": programs, "steps": program.windows.steps}
    # the programs of the goals follow those of the starts, which therefore run if any goal does
    start, goal = (any(x is not None for x in parts) for parts in (gradients.start, gradients.goal))
    roles = 2 if goal else int(start)
    return Launch(_band.adjoint, programs + roles * -(-batch * dofs // lanes), arguments)


def shared_arguments(
    program: Program, operands: Operands, actions: Any, rows: Parts
) -> dict[str, Any]:
    """Makes the arguments that both directions have in common."""
    assert not isinstance(program, Smoother)
    steps: Any = operands.dt
    dt = steps.double()
    arguments = {
        "actions": actions,
        "dt": dt,
        "rows": tuple(rows),
        "batch": operands.actions.shape[0],
        "used": program.used,
        "horizon": operands.actions.shape[1],
        "dt_stride": dt.stride(0) if dt.shape[0] > 1 else 0,
        "START_ROW": program.start_row,
        "D": operands.actions.shape[2],
    }
    if isinstance(program, Band):
        return arguments | band_arguments(program, dt)
    return arguments | {
        "dt_step": dt.stride(1) if dt.shape[1] > 1 else 0,
        "ORDER": program.action_order,
        "SCHEME": program.scheme,
        "EVEN": dt.shape[1] == 1,
        # rows that are loaded ahead: as many as registers hold
        "K": 4 if torch.float64 in [x.dtype for x in (actions, *rows) if x is not None] else 8,
        "LANES": WARP,
    }


def inner_windows(program: Band) -> tuple[int, int, int]:
    """Finds how many windows hold actions alone, their first row and their first action."""
    windows, head = program.windows, len(program.head)
    steps, offset, shift = windows.steps, windows.offset, windows.shift
    # the first and the last window also belong to rows whose windows would begin before the first
    # point or end behind the last, and were moved
    low = max(head, -(-offset // steps) - shift, int(offset // steps < shift))
    after = (windows.count + offset) // steps - shift
    moved = (windows.count - 1 + offset) // steps - shift > windows.last
    # A window of one point is not inner where that point is the last action and copies of it are
    # held: in the adjoint the action sums the rows of all its copies, which a tile does not.
    end = head + program.used - max(program.width - 1, int(program.held > 0))
    high = min(end, windows.last + 1 - moved, after)
    return max(high - low, 0), (low + shift) * steps - offset + program.start_row, low - head


def first_points(program: Band) -> tuple[int, ...] | None:
    """Finds the first point with a weight, by order; None for a band not computed in tiles."""
    if program.table is None:
        return None
    # inner windows of several kinds, as of several steps, may differ in their first points
    windows, table = program.windows, on_points(program.table, program.base)
    used = table[windows.shift * windows.steps :][: windows.steps] != 0.0  # [steps, 4, W]
    first = np.where(used.any(2), used.argmax(2), program.width)
    least = first.min(0)
    same = ((first == least) | (first == program.width)).all()
    return tuple(np.minimum(least, program.width - 1).tolist()) if same else None


_tables: WeakKeyDictionary[Band, dict[Any, Any]] = WeakKeyDictionary()


def band_arguments(program: Band, dt: Tensor) -> dict[str, Any]:
    """Makes the arguments that describe a band."""
    windows, even = program.windows, program.table is not None
    # Tables are sent to a device once, since a copy in every call would wait for the host. They go
    # when the program goes. A graph that is captured reads them as long as it lives.
    on_device = _tables.setdefault(program, {})
    if dt.device not in on_device:
        arrays = [np.concatenate([program.head, program.tail])]
        if program.table is not None:
            arrays.append(np.moveaxis(on_points(program.table, program.base), 0, -1))
        on_device[dt.device] = [to_torch(x, str(dt.device)) for x in arrays]
    if is_capturing(dt.device):
        keep_for_graphs(on_device[dt.device])
    points, *tables = on_device[dt.device]
    weights = None if even else torch.stack(weights_of_rows(program, dt.detach()), 1)
    table: Any = tables[0] if weights is None else weights.mT.contiguous()
    if "tiles" not in on_device:
        first = first_points(program) if program.width <= _band.NARROW.value else None
        on_device["tiles"] = first, *(inner_windows(program) if first else (0, 0, 0))
    first, inner, inner_row, inner_action = on_device["tiles"]
    return {
        "ends_table": points if len(points) else None,
        "table": table,
        "table_stride": table[0].numel() if not even and len(table) > 1 else 0,
        "entries": table.shape[-1],
        "held": program.held,
        "count": windows.count,
        "last": windows.last,
        "offset": windows.offset,
        "shift": windows.shift,
        "HEAD": len(program.head),
        "TAIL": len(program.tail),
        "SPACING": program.spacing,
        "WIDTH": program.width,
        "STEPS": windows.steps,
        "EVEN": even,
        "tiles": 0,
        "inner": inner,
        "inner_row": inner_row,
        "inner_action": inner_action,
        "FIRST": first,
        "COPIES": program.copies,
        "K": 8 if first else 0,
        "LANES": WARP if first else LANES,
    }


def state_arguments(role: str, parts: Parts, index: Any) -> dict[str, Any]:
    """Makes the arguments of a state: parts [S, D], an index, and S."""
    count = max((len(part) for part in parts if part is not None), default=1)
    tensors = prepare_tensors(parts)
    rows = [None if x is None else x.expand(count, -1).contiguous() for x in tensors]
    index = None if index is None else index.contiguous()
    return {role: tuple(rows), f"{role}_index": index, f"{role}_count": count}


def prepare_tensors(arrays: Sequence[Any]) -> list[Any]:
    """Makes tensors contiguous and of a type that kernels load. None stays None."""
    tensors: list[Any] = []
    for x in arrays:
        if x is not None and x.dtype not in (torch.float32, torch.float64):
            # half precision fits in float32, whole numbers in float64
            x = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x.double()
        tensors.append(None if x is None else x.contiguous())
    return tensors


def use_device(tensor: Tensor) -> AbstractContextManager[Any]:
    """Makes the tensor's device the current one: kernels run there, on its current stream."""
    if not tensor.is_cuda or tensor.device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(tensor.device)


def probe(device: str) -> None:
    """Compiles and runs one tiny kernel on a device; raises the error that prevents it."""
    number = torch.zeros(1, device=device)
    with use_device(number):
        _access.write_one[(1,)]((number, None, None, None), enable_fp_fusion=False)
    if number.item() != 1:
        raise RuntimeError("a Triton kernel ran, but wrote nothing")
