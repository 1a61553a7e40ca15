"""The kernels in Triton, for CUDA devices; see :mod:`trajcli.kernels.program`.

They run on the current stream of their tensors' device and never wait for it. From the host they
copy a band's tables, once: a warm call can be captured in a CUDA graph. Kernels are compiled per
number of dofs and options of the mode, not per number of trajectories, actions and states.
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

from trajcli.arrays import capturing, keep_for_graphs, to_torch
from trajcli.kernels import torch_ops
from trajcli.kernels.program import Band, Cascade, Gradients, Operands, Parts, Program, Smoother
from trajcli.kernels.torch_ops._band import on_points, weights_of_rows
from trajcli.kernels.triton_ops import _access, _band, _cascade
from trajcli.memory import TORCH_VALUES

WARP, LANES = 32, 128
REGISTERS = 96
"""How many registers a thread may use that holds rows of a tile, or such that lanes exchange: few
values spill, and five warps fit on each scheduler of a multiprocessor."""
TENSORS = ("actions", "start", "dt", "rows")
"""The arguments that calls of a launch may put others in the place of."""


class Launch:
    """A kernel, how many programs of it run, and its arguments by name.

    It may run again with other tensors of the same types and shapes, contiguous. Triton looks at
    every argument of every call to find the kernel it has compiled for such; this keeps the kernel.
    Where tensors begin is nothing that kernels are compiled for.
    """

    def __init__(self, kernel: Any, programs: int, arguments: dict[str, Any]) -> None:
        self._kernel, self._programs = kernel, programs
        self._run: Any = None
        names = kernel.arg_names
        self._places = [names.index(name) for name in TENSORS]
        self._values = [arguments[name] for name in names]
        # a difference of equal products has to be zero, so kernels fuse explicitly
        self._options = {"num_warps": arguments["LANES"] // WARP, "enable_fp_fusion": False}
        if arguments.get("ROWS", 1) > 1 or ("tiles" in arguments and arguments["K"]):
            self._options["maxnreg"] = REGISTERS

    def __call__(self, *tensors: Any) -> None:
        """Runs, with tensors in the place of TENSORS or with those it was made of."""
        if not self._programs:
            return
        values: list[Any] = self._values.copy()  # threads may call at once
        for place, value in zip(self._places, tensors, strict=False):
            values[place] = tuple(value) if isinstance(value, list) else value
        with on(values[self._places[2]]):
            if self._run is None:
                grid = (self._programs, 1, 1)
                compiled = self._kernel.run(*values, grid=grid, warmup=True, **self._options)
                self._run = compiled[grid]
            self._run(*values)

    def without_tensors(self) -> Launch:
        """Returns this launch without its tensors, to be run with others."""
        for place in self._places:
            self._values[place] = None
        return self


class Prepared:
    """The kernels for a program without indices and goal, and contiguous tensors of one layout.

    Launches are made once, and keep no tensor.
    """

    def __init__(self) -> None:
        self._forward: Launch | None = None
        self._adjoints: dict[Any, Launch] = {}

    def forward(self, program: Program, operands: Operands, out: Parts) -> None:
        """As :func:`forward`."""
        start = operands.start
        if self._forward is None:
            self._forward = forward_launch(program, operands, out).without_tensors()
            self._mixed = len({len(x) for x in start if x is not None}) > 1
        if self._mixed:  # kernels read as many rows of all parts
            start = state("start", start, None)["start"]
        self._forward(operands.actions, start, operands.dt, out)

    def adjoint(
        self, program: Program, operands: Operands, upstream: Parts, gradients: Gradients
    ) -> None:
        """As :func:`adjoint`."""
        if capturing(operands.dt.device):  # the forward pass ran before the capture
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
    """Fills the outputs that are wanted."""
    if by_torch(program):
        torch_ops.forward(program, operands, out)
        return
    for part, inputs, into in torch_ops.blocks(program, operands, out, size=block_size(program)):
        if any(x is not None and x.numel() for x in into):
            forward_launch(part, inputs, into)()


def adjoint(program: Program, operands: Operands, upstream: Parts, gradients: Gradients) -> None:
    """Fills the gradients that are wanted of the inputs."""
    if by_torch(program):
        torch_ops.adjoint(program, operands, upstream, gradients)
        return
    wanted = [gradients.actions, *gradients.start, *gradients.goal]
    rows, size = in_rows(upstream), block_size(program)
    for part, inputs, of_rows, into in torch_ops.blocks(program, operands, rows, wanted, size=size):
        if any(x is not None and x.numel() for x in into):
            adjoint_launch(part, inputs, of_rows, Gradients(into[0], into[1:5], into[5:]))()


def by_torch(program: Program) -> bool:
    """Returns whether torch computes this on the device, as no kernel is written for it."""
    return isinstance(program, Smoother) or (isinstance(program, Cascade) and program.recorded)


def block_size(program: Program) -> int:
    """Returns how many values of an output are computed at once.

    All are, except where each row has weights of its own: these, and what they are made of, take
    many times the memory of the rows.
    """
    uneven = isinstance(program, Band) and program.table is None
    return TORCH_VALUES if uneven else sys.maxsize


def forward_launch(program: Program, operands: Operands, rows: Parts) -> Launch:
    """Returns the launch that fills the rows."""
    (actions,) = in_rows([operands.actions])
    arguments = arguments_of(program, operands, actions, rows)
    arguments |= state("start", operands.start, operands.start_index)
    pitch, together, phase = exchange_of(program, operands, arguments["K"])
    arguments |= {"PITCH": pitch, "ROWS": together, "PHASE": phase}
    if not isinstance(program, Band):
        return Launch(_cascade.forward, columns_of(operands, pitch), arguments)
    arguments |= state("goal", operands.goal, operands.goal_index)
    batch, _, dofs = operands.actions.shape
    steps = program.windows.steps
    inner = arguments["inner"]
    tiles = tiles_of(operands, inner and inner + phase - 1, arguments["K"], pitch) * steps
    others = batch * (program.rows - arguments["inner"] * steps) * dofs
    count = tiles + -(-others // arguments["LANES"])
    return Launch(_band.forward, count, arguments | {"tiles": tiles})


def adjoint_launch(
    program: Program, operands: Operands, upstream: Parts, gradients: Gradients
) -> Launch:
    """Returns the launch that fills the gradients."""
    batch, horizon, dofs = operands.actions.shape
    arguments = arguments_of(program, operands, gradients.actions, upstream)
    arguments["start"] = tuple(gradients.start)
    if not isinstance(program, Band):
        for part in gradients.goal:
            if part is not None:
                part.zero_()
        return Launch(_cascade.adjoint, columns_of(operands, dofs), arguments)
    arguments["goal"], lanes, tiles, programs = tuple(gradients.goal), arguments["LANES"], 0, 0
    if wide(gradients.actions, *upstream):
        arguments["K"] //= 2  # as many as registers hold
    if gradients.actions is not None:
        alone = max(arguments["inner"] - (program.width - 1), 0)
        tiles = tiles_of(operands, alone, arguments["K"], dofs)
        programs = tiles + -(-batch * (horizon - alone) * dofs // lanes)
    arguments |= {"tiles": tiles, "programs": programs, "steps": program.windows.steps}
    wanted = [any(x is not None for x in parts) for parts in (gradients.start, gradients.goal)]
    roles = 2 if wanted[1] else int(wanted[0])
    return Launch(_band.adjoint, programs + roles * -(-batch * dofs // lanes), arguments)


def exchange_of(program: Program, operands: Operands, size: int) -> tuple[int, int, int]:
    """Returns how forward stores: how many lanes a trajectory has; how many rows, out of ``size``,
    are exchanged between lanes and stored at once; and of which number a row's is a multiple where
    ``size`` rows begin. Where lanes exchange nothing, each has a column: as many as dofs, 1, 1.

    A warp so stores 32 values in a row, as nearly as a power of two of lanes allows; a number of
    rows that fills whole sectors of memory, of 32 bytes, begins at one.
    """
    dofs = operands.actions.shape[2]
    pitch = 1 << (dofs - 1).bit_length()
    together = min(WARP // pitch, size)
    apart = isinstance(program, Band) and program.windows.steps > 1
    far = WARP // pitch * program.rows * dofs >= 2**31  # places are of 32 bits
    if together < 2 or apart or far or dofs % 8 == 0:
        return dofs, 1, 1
    return pitch, together, 8 // gcd(8, dofs)


def tiles_of(operands: Operands, windows: int, size: int, pitch: int) -> int:
    """Returns how many programs compute the windows of all columns, ``size`` windows each."""
    return columns_of(operands, pitch) * -(-windows // size) if windows else 0


def columns_of(operands: Operands, pitch: int) -> int:
    """Returns how many warps have a lane for each column of the actions, where a trajectory has
    ``pitch`` lanes."""
    return int(-(-operands.actions.shape[0] * pitch // WARP))


def arguments_of(program: Program, operands: Operands, actions: Any, rows: Parts) -> dict[str, Any]:
    """Returns the arguments that both directions have in common."""
    assert not isinstance(program, Smoother)
    dt = operands.dt.double()
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
        "K": 4 if wide(actions, *rows) else 8,  # as many as registers hold
        "LANES": WARP,
    }


_tables: WeakKeyDictionary[Band, dict[Any, Any]] = WeakKeyDictionary()


def inner_windows(program: Band) -> tuple[int, int, int]:
    """Returns the number of inner windows, their first row and their first action.

    Inner windows hold actions alone, and each belongs to as many rows as there are steps.
    """
    windows, head = program.windows, len(program.head)
    steps, offset, shift = windows.steps, windows.offset, windows.shift
    # the first and the last window also belong to rows whose windows were moved inside
    low = max(head, -(-offset // steps) - shift, int(offset // steps < shift))
    after = (windows.count + offset) // steps - shift
    moved = (windows.count - 1 + offset) // steps - shift > windows.last
    # A window of one point is not inner where that point is the last action and copies of it are
    # held: in the adjoint the action sums the rows of all its copies, which a tile does not.
    end = head + program.used - max(program.width - 1, int(program.held > 0))
    high = min(end, windows.last + 1 - moved, after)
    return max(high - low, 0), (low + shift) * steps - offset + program.start_row, low - head


def first_points(program: Band) -> tuple[int, ...] | None:
    """Returns for each order the first point of an inner window that it uses, or else the last one.

    Returns None for a band that is not computed in tiles: its steps differ, or its inner windows
    are of several kinds, whose first points differ.
    """
    if program.table is None:
        return None
    windows, table = program.windows, on_points(program.table, program.base)
    used = table[windows.shift * windows.steps :][: windows.steps] != 0.0  # [steps, 4, W]
    first = np.where(used.any(2), used.argmax(2), program.width)
    least = first.min(0)
    same = ((first == least) | (first == program.width)).all()
    return tuple(np.minimum(least, program.width - 1).tolist()) if same else None


def band_arguments(program: Band, dt: Tensor) -> dict[str, Any]:
    """Returns the arguments that are a band. Its tables are sent to a device once."""
    windows, even = program.windows, program.table is not None
    on_device = _tables.setdefault(program, {})
    if dt.device not in on_device:
        arrays = [np.concatenate([program.head, program.tail])]
        if program.table is not None:
            arrays.append(np.moveaxis(on_points(program.table, program.base), 0, -1))
        on_device[dt.device] = [to_torch(x, str(dt.device)) for x in arrays]
    if capturing(dt.device):
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


def wide(*arrays: Tensor | None) -> bool:
    """Returns whether any array is of float64, whose values take two registers each."""
    return any(x is not None and x.dtype == torch.float64 for x in arrays)


def state(role: str, parts: Parts, index: Any) -> dict[str, Any]:
    """Returns the arguments that are a state: parts [S, D], an index, and S."""
    count = max((len(part) for part in parts if part is not None), default=1)
    rows = [None if x is None else readable(x).expand(count, -1).contiguous() for x in parts]
    index = None if index is None else index.contiguous()
    return {role: tuple(rows), f"{role}_index": index, f"{role}_count": count}


def in_rows(arrays: Sequence[Any]) -> list[Any]:
    """Returns tensors as kernels take them: of a float type and contiguous. None stays None."""
    return [None if x is None else readable(x).contiguous() for x in arrays]


def readable(array: Tensor) -> Tensor:
    """Returns the tensor in a type that kernels load."""
    if array.dtype in (torch.float32, torch.float64):
        return array
    narrow = array.dtype in (torch.float16, torch.bfloat16)
    return array.float() if narrow else array.double()


def on(tensor: Tensor) -> AbstractContextManager[Any]:
    """Makes the tensor's device the current one: kernels run there, on its current stream."""
    if not tensor.is_cuda or tensor.device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(tensor.device)


def probe(device: str) -> None:
    """Compiles and runs one tiny kernel on a device; raises what prevents it.

    That needs a C compiler, Python's headers, and a Triton that supports the card.
    """
    number = torch.zeros(1, device=device)
    with on(number):
        _access.write_one[(1,)]((number, None, None, None), enable_fp_fusion=False)
    if number.item() != 1:
        raise RuntimeError("a Triton kernel ran, but wrote nothing")
