"""Launches of the Triton kernels: their arguments, from programs and tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from trajcli.arrays import to_torch
from trajcli.kernels.program import Array, Band, Cascade, Gradients, Operands, Parts, Program
from trajcli.kernels.triton_ops import band, cascade, states, weights
from trajcli.memory import WEIGHTS_BYTES

WARP, LANES = 32, 128
UNFUSED = {"enable_fp_fusion": False}
"""Kernels fuse explicitly: a difference of equal products has to be zero."""


class Launch(NamedTuple):
    """A kernel, how many programs of it run, and its arguments by name."""

    kernel: Any
    programs: int
    arguments: dict[str, Any]

    def run(self) -> None:
        if self.programs:
            self.kernel[(self.programs,)](**self.arguments, **UNFUSED)


class Repeat:
    """A launch that is repeated with other tensors of the same types and shapes, contiguous.

    Triton looks at every argument of every call, to find the kernel it has compiled for such; this
    keeps the kernel. Where tensors begin is nothing that kernels are compiled for.
    """

    def __init__(self, launch: Launch) -> None:
        self._kernel, self._programs, arguments = launch
        names = self._kernel.arg_names
        tensors = ("actions", "start", "dt", "rows")
        self._places = [names.index(name) for name in tensors]
        self._values = [None if name in tensors else arguments[name] for name in names]
        self._options = {k: v for k, v in arguments.items() if k not in names}
        self._run: Any = None

    def __call__(self, actions: Any, start: Parts, dt: Tensor, rows: Parts) -> None:
        if not self._programs:
            return
        values = self._values.copy()  # threads may call at once
        for place, value in zip(
            self._places, (actions, tuple(start), dt, tuple(rows)), strict=True
        ):
            values[place] = value
        with on(dt):
            if self._run is None:
                compiled = self._kernel.run(
                    *values, grid=(self._programs,), warmup=True, **self._options, **UNFUSED
                )
                self._run = compiled[(self._programs, 1, 1)]
            self._run(*values)


def forward(program: Program, operands: Operands, out: Parts) -> None:
    """See :func:`trajcli.kernels.triton_ops.forward`."""
    rows = in_rows(out)
    if any(buffer is not None and buffer.numel() for buffer in rows):
        with on(operands.dt):
            for launch in forward_launches(program, operands, rows):
                launch.run()
        copy_back(rows, out)


def adjoint(program: Program, operands: Operands, upstream: Parts, gradients: Gradients) -> None:
    """See :func:`trajcli.kernels.triton_ops.adjoint`."""
    wanted = [gradients.actions, *gradients.start, *gradients.goal]
    if not operands.dt.numel() or not operands.actions.shape[0] * operands.actions.shape[2]:
        return
    (actions,) = in_rows([gradients.actions])
    parts = [None if buffer is None else buffer.contiguous() for buffer in wanted[1:]]
    grads = Gradients(actions, parts[:4], parts[4:])
    with on(operands.dt):
        for launch in adjoint_launches(program, operands, in_rows(upstream), grads):
            launch.run()
    copy_back([actions, *parts], wanted)


def repeat_forward(program: Program, operands: Operands, out: Parts) -> Repeat:
    """What runs :func:`forward` on contiguous tensors like these; their steps are equal."""
    (launch,) = forward_launches(program, operands, out)
    return Repeat(launch)


def repeat_adjoint(
    program: Program, operands: Operands, upstream: Parts, gradients: Gradients
) -> Repeat:
    """The same of :func:`adjoint`."""
    (launch,) = adjoint_launches(program, operands, upstream, gradients)
    return Repeat(launch)


def forward_launches(program: Program, operands: Operands, rows: Parts) -> Iterator[Launch]:
    """Launches that fill the rows."""
    (actions,) = in_rows([operands.actions])
    arguments = {**state("start", operands.start, operands.start_index)}
    if isinstance(program, Band):
        arguments |= state("goal", operands.goal, operands.goal_index)
    return launches(program, operands, actions, rows, arguments, adjoint=False)


def adjoint_launches(
    program: Program, operands: Operands, upstream: Parts, gradients: Gradients
) -> Iterator[Launch]:
    """Launches that fill the gradients."""
    actions, arguments = gradients.actions, {"start": tuple(gradients.start)}
    if isinstance(program, Band):
        arguments["goal"] = tuple(gradients.goal)
    else:
        for part in gradients.goal:
            if part is not None:
                part.zero_()
    if actions is None and not any(x is not None for x in (*gradients.start, *gradients.goal)):
        return iter(())
    return launches(program, operands, actions, upstream, arguments, adjoint=True)


def launches(
    program: Program,
    operands: Operands,
    actions: Any,
    rows: Parts,
    arguments: Any,
    *,
    adjoint: bool,
) -> Iterator[Launch]:
    """One launch, or where steps differ one for each block of trajectories."""
    batch, _, dofs = operands.actions.shape
    dt = operands.dt.double()
    arguments |= {
        "actions": actions,
        "dt": dt,
        "rows": tuple(rows),
        "batch": batch,
        "used": program.used,
        "actions_stride": 0 if actions is None else actions.stride(0),
        "rows_stride": next((x.stride(0) for x in rows if x is not None), 0),
        "dt_stride": dt.stride(0) if dt.shape[0] > 1 else 0,
        "START_ROW": program.start_row,
        "D": dofs,
    }
    if isinstance(program, Band):
        yield from band_launches(program, operands, dt, arguments, adjoint=adjoint)
        return
    assert isinstance(program, Cascade)
    wide = any(x is not None and x.dtype == torch.float64 for x in (actions, *rows))
    arguments |= {
        "dt_step": dt.stride(1) if dt.shape[1] > 1 else 0,
        "ORDER": program.order,
        "SCHEME": program.scheme,
        "RECORDED": program.recorded,
        "EVEN": dt.shape[1] == 1,
        **({"horizon": operands.actions.shape[1]} if adjoint else {}),
        "K": 4 if wide else 8,  # as many as registers hold
        "LANES": WARP,
        "num_warps": 1,
    }
    kernel = cascade.adjoint if adjoint else cascade.forward
    yield Launch(kernel, -(-batch * dofs // WARP), arguments)


def band_launches(
    program: Band, operands: Operands, dt: Tensor, arguments: dict[str, Any], *, adjoint: bool
) -> Iterator[Launch]:
    """Those of a band; where steps differ each is preceded by the one that makes its weights."""
    batch, horizon, dofs = operands.actions.shape
    arguments |= band_arguments(program, dt.device, adjoint) | {"LANES": LANES}
    at_once = batch
    if program.table is None and dt.shape[0] > 1:
        at_once = max(1, WEIGHTS_BYTES // (32 * program.width * max(program.windows.count, 1)))
    for begin in range(0, batch, at_once):
        count = min(at_once, batch - begin)
        arguments |= {"batch": count, "begin": begin}
        if program.table is None:
            own = dt[begin : begin + count] if dt.shape[0] > 1 else dt
            arguments["table"] = weights_of(program, own, begin, adjoint)
            arguments["table_stride"] = arguments["table"][0].numel() if len(own) > 1 else 0
        if not adjoint:
            yield Launch(band.forward, programs_of(count, program.rows * dofs), arguments)
            continue
        programs = programs_of(count, horizon * dofs)
        wanted = [any(x is not None for x in arguments[role]) for role in ("start", "goal")]
        roles = 2 if wanted[1] else int(wanted[0])
        arguments |= {"programs": programs, "horizon": horizon}
        yield Launch(band.adjoint, programs + roles * -(-count * dofs // LANES), arguments)


def programs_of(batch: int, size: int) -> int:
    """How many programs have a lane for each of so many elements of every trajectory: several
    trajectories in one, or several for one."""
    return -(-batch // max(LANES // size, 1)) * -(-size // LANES)


def state(role: str, parts: Parts, index: Array | None) -> dict[str, Any]:
    """Arguments that are a state: parts [S, D], an index, and S."""
    count = max((len(part) for part in parts if part is not None), default=1)
    rows = [None if x is None else readable(x).expand(count, -1).contiguous() for x in parts]
    index = None if index is None else index.contiguous()
    return {role: tuple(rows), f"{role}_index": index, f"{role}_count": count}


_tables: WeakKeyDictionary[Band, dict[Any, dict[str, Any]]] = WeakKeyDictionary()
captured: list[Any] = []
"""What graphs have captured: they may be replayed when it is used for nothing else."""


def capturing(device: torch.device) -> bool:
    """Whether the device's current stream is captured in a graph."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def band_arguments(program: Band, device: torch.device, adjoint: bool) -> dict[str, Any]:
    """Arguments that a band's calls have in common; its tables are on the device."""
    on_device = _tables.setdefault(program, {})
    found = on_device.get((device, adjoint))
    if found is None:
        found = on_device[device, adjoint] = make_band_arguments(program, device, adjoint)
    if capturing(device):
        captured.append(found)
    return found


def make_band_arguments(program: Band, device: torch.device, adjoint: bool) -> dict[str, Any]:
    """The same, made anew."""
    width, windows, base, table = program.width, program.windows, program.base, program.table
    narrow = width <= band.NARROW.value
    ever = always = np.ones((4, width), bool)  # which points windows use, by order
    if table is not None:
        differences = -np.diff(table, prepend=0.0, append=0.0)
        ever, always = (differences != 0.0).any(0), (differences != 0.0).all(0)
        if adjoint:  # weights of points: those of the differences before and after
            differences[range(len(base)), 0, base] += 1.0
            table = differences
    elif program.copies:
        ever = always = ever & (np.arange(4) > 0)[:, None]
    if program.spans is not None:
        always = np.zeros_like(ever)

    def sent(array: Any) -> Tensor | None:
        return to_torch(array, str(device)) if array.size else None

    arguments = {
        "ends_table": sent(np.concatenate([program.head, program.tail])),
        "table": None if table is None else sent(np.moveaxis(table, 0, -1)),
        "table_stride": 0,
        "entries": windows.count if table is None else len(base),
        "held": program.held,
        "count": windows.count,
        "last": windows.last,
        "offset": windows.offset,
        "shift": windows.shift,
        "HEAD": len(program.head),
        "SPACING": program.spacing,
        "WIDTH": width,
        "STEPS": windows.steps,
        "EVEN": table is not None,
    }
    if not adjoint:
        return arguments | {
            "bases": sent(np.array(base, np.int32)),
            "BASE": base[0] if narrow and len(set(base)) == 1 else -1,
            "EVER": bits(ever) if narrow else 0,
            "ALWAYS": bits(always) if narrow else 0,
        }
    first = windows.first()  # how many rows use each point: windows that begin up to width before
    points = np.arange(first[-1] + width if len(first) else 0)
    low, high = (np.searchsorted(first, x, "right") for x in (points - width, points))
    return arguments | {
        "inner": width * windows.steps,
        "reach": int((high - low).max(initial=0)),
        "TAIL": len(program.tail),
        "ORDERS": bits(ever.any(1)) | 1,
    }


def bits(flags: Any) -> int:
    """Flags as bits of a number, the first the lowest."""
    return sum(1 << i for i, flag in enumerate(flags.ravel().tolist()) if flag)


def weights_of(program: Band, dt: Tensor, begin: int, adjoint: bool) -> Tensor:
    """Weights of every row's points, or of their differences, where steps differ: [b, 4, n, T]."""
    windows, batch, spans = program.windows, dt.shape[0], program.spans
    table = dt.new_empty((batch, 4, program.width - 1 + adjoint, windows.count))
    if windows.count == 0:
        return table
    if spans is not None:
        rows = spans if len(spans) == 1 else spans[begin : begin + batch]
        spans = to_torch(rows, str(dt.device))
    arguments = {
        "table": table,
        "dt": dt,
        "spans": spans,
        "bases": band_arguments(program, dt.device, adjoint=False)["bases"],
        "batch": batch,
        "width": program.width,
        "count": windows.count,
        "last": windows.last,
        "offset": windows.offset,
        "shift": windows.shift,
        "lead": max(len(program.head) - 1, 0),
        "steps": program.steps,
        "dt_stride": dt.stride(0) if batch > 1 else 0,
        "dt_step": dt.stride(1) if dt.shape[1] > 1 else 0,
        "span_stride": 2 * windows.count if spans is not None and len(spans) > 1 else 0,
        "POINTS": adjoint,
        "COPIES": program.copies,
        "DEGREE": 4 if program.degree is None else program.degree,
        "LANES": LANES,
    }
    Launch(weights.run, -(-batch * windows.count // LANES), arguments).run()
    return table


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


def copy_back(results: Sequence[Any], buffers: Sequence[Any]) -> None:
    """Copy results that were written to other memory into the caller's buffers."""
    for result, buffer in zip(results, buffers, strict=True):
        if result is not None and result is not buffer:
            buffer.copy_(result)


def on(tensor: Tensor) -> AbstractContextManager[Any]:
    """Makes the tensor's device the current one: kernels run there, on its current stream."""
    if not tensor.is_cuda or tensor.device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(tensor.device)


def probe(device: str) -> None:
    """See :func:`trajcli.kernels.triton_ops.probe`."""
    number = torch.zeros(1, device=device)
    with on(number):
        states.write_one[(1,)](number, **UNFUSED)
    if number.item() != 1:
        raise RuntimeError("a Triton kernel ran, but wrote nothing")
