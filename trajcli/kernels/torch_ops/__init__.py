"""The kernels in plain torch: any device with float64, the reference for the others.

Every operation is torch's and nothing is written in place, so that torch
differentiates, maps (vmap) and batches through it in all operands, dt included, to any order.
Shapes as in :mod:`trajcli.kernels.program`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from trajcli.arrays import capturing, columns
from trajcli.errors import UsageError
from trajcli.kernels.program import (
    Band,
    Cascade,
    Floats,
    Gradients,
    Operands,
    Parts,
    Program,
    Smoother,
    gather_states,
)
from trajcli.kernels.torch_ops import _band, _smoother
from trajcli.memory import TORCH_VALUES

if TYPE_CHECKING:
    from torch import Tensor


def forward(program: Program, operands: Operands, out: Parts) -> None:
    """Fills the outputs; None is not wanted."""
    if is_for_cpu(program, operands.dt):
        inputs = Operands(operands.actions.cpu(), operands.dt.cpu())
        on_cpu(lambda rows: cpu_kernels().forward(program, inputs, rows), out)
        return
    wanted = [buffer is not None for buffer in out]
    for part, inputs, buffers in blocks(program, operands, out):
        for buffer, values in zip(buffers, trajectories(part, inputs, wanted), strict=True):
            if buffer is not None:
                buffer.copy_(values)


def adjoint(program: Program, operands: Operands, upstream: Parts, gradients: Gradients) -> None:
    """Fills the gradients from those of the outputs; None is not wanted."""
    if is_for_cpu(program, operands.dt):
        # only the shape of the actions matters
        inputs = Operands(torch.empty(()).expand(operands.actions.shape), operands.dt.cpu())
        grads = [x if x is None else x.cpu() for x in upstream]
        on_cpu(
            lambda pulled: cpu_kernels().adjoint(program, inputs, grads, Gradients(*pulled)),
            [gradients.actions],
        )
        return
    wanted = (gradients.actions, *gradients.start, *gradients.goal)
    for part, inputs, grads, buffers in blocks(program, operands, upstream, wanted):
        pulled = pull_back(part, inputs.actions.shape, inputs.dt, grads)
        for buffer, values in zip(buffers, pulled, strict=True):
            if buffer is not None:
                buffer.copy_(values)


def is_for_cpu(program: Program, dt: Tensor) -> bool:
    """Returns whether a program for tensors on a device is computed on the CPU."""
    for_cpu = isinstance(program, Smoother) and dt.device.type != "cpu"
    if for_cpu:
        refuse_capture(dt.device)
    return for_cpu


def refuse_capture(device: torch.device) -> None:
    """Raises UsageError while a CUDA graph is captured, which copies to the CPU would end."""
    if capturing(device):
        raise UsageError(
            "method smooth, which a CUDA graph cannot capture",
            where="method",
            expected="a call and its backward pass outside of the capture: both run on the CPU",
            hint="method savgol with a window in rows",
        )


def on_cpu(compute: Callable[[list[Any]], None], into: Parts) -> None:
    """Fills tensors on a device with what is computed into tensors like them on the CPU.

    A smoothing spline goes from row to row, with a QR of small matrices at each: on a device every
    row waits for several kernels, and for the host. The CPU's kernel takes less time than that.
    """
    results = [None if x is None else torch.empty_like(x, device="cpu") for x in into]
    compute(results)
    for x, result in zip(into, results, strict=True):
        if x is not None:
            x.copy_(result)


def cpu_kernels() -> Any:
    """Returns the compiled kernels or, where there are none, these."""
    from trajcli.kernels import native

    return sys.modules[__name__] if native.absence() else native


def measure(
    program: Smoother, operands: Operands, residuals: Floats | None = None
) -> tuple[Floats, Floats]:
    """The sums over a smoother's rows of w·r², r the residuals, and of the leverages, [B, D].

    Arrays are NumPy's. residuals: where r goes, [B, T, D].
    """
    sums = [np.empty((2, 0, operands.actions.shape[2]))]
    operands = Operands(torch.as_tensor(operands.actions), torch.as_tensor(operands.dt))
    for part, inputs, into in blocks(program, operands, [residuals]):
        with torch.no_grad():
            assert isinstance(part, Smoother)
            *totals, off = _smoother.measure(part, inputs.actions.double(), inputs.dt.double())
        sums.append(np.stack([x.numpy() for x in totals]))
        if into[0] is not None:
            into[0][:] = off.numpy()
    squares, leverages = np.concatenate(sums, 1)
    return squares, leverages


def blocks(
    program: Program, operands: Operands, *arrays: Sequence[Any], size: int = TORCH_VALUES
) -> Iterator[tuple[Any, ...]]:
    """Yields the program, the operands and parts of arrays [B, …] of a block of trajectories.

    size: about how many values an output of a block has.
    """
    batch, _, dofs = operands.actions.shape
    count = max(1, size // max(1, program.rows * dofs))
    for begin in range(0, batch, count):
        inner = slice(begin, begin + count)

        def rows(values: Any, inner: slice = inner) -> Any:
            return values[inner] if values is not None and len(values) == batch else values

        part, (actions, dt, start, goal, *indices) = program, operands
        if isinstance(program, Smoother):
            unit, stiffness = rows(program.unit), rows(program.stiffness)
            part = replace(program, unit=unit, stiffness=stiffness, weights=rows(program.weights))
        elif isinstance(program, Band) and program.spans is not None:
            part = replace(program, spans=rows(program.spans))
        # an index picks from all states
        start, goal = (
            [rows(state) for state in states] if index is None else states
            for states, index in zip((start, goal), indices, strict=True)
        )
        inputs = Operands(rows(actions), rows(dt), start, goal, *map(rows, indices))
        yield part, inputs, *([None if x is None else x[inner] for x in some] for some in arrays)


def pull_back(
    program: Program, shape: Sequence[int], dt: Tensor, upstream: Sequence[Tensor | None]
) -> list[Tensor]:
    """Returns gradients of the inputs from those of the outputs, in float64.

    They are those of the actions [B, H, D], then four parts [B, D] of the start and of the goal.
    """
    batch, _, dofs = shape
    # outputs are linear in actions and states, so gradients do not depend on their values: zeros do
    actions = dt.new_zeros(tuple(shape), dtype=torch.float64)
    states = [dt.new_zeros(batch, dofs, dtype=torch.float64) for _ in range(8)]
    inputs = [x.requires_grad_() for x in (actions, *states)]
    operands = Operands(actions, dt.detach(), states[:4], states[4:])
    return _gradients(program, operands, upstream, inputs)


def gradient_of_steps(
    program: Program, operands: Operands, upstream: Sequence[Tensor | None]
) -> Tensor:
    """Returns the gradient of unequal steps dt [b, h] from those of the outputs, in float64.

    It is differentiable where gradients are recorded.
    """
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # another tensor, as actions and states may be functions of dt
        dt = operands.dt.view_as(operands.dt) if again else operands.dt.detach()
        dt.requires_grad_()
    (grad,) = _gradients(program, operands._replace(dt=dt), upstream, [dt], again)
    return grad


def _gradients(
    program: Program,
    operands: Operands,
    upstream: Sequence[Tensor | None],
    inputs: Sequence[Tensor],
    again: bool = False,
) -> list[Tensor]:
    """Returns gradients of some operands from those of the outputs, ``again`` differentiable."""
    with torch.enable_grad():
        rows = trajectories(program, operands, [grad is not None for grad in upstream])
    pairs = [
        (x, grad.double())
        for x, grad in zip(rows, upstream, strict=True)
        if x is not None and grad is not None and x.requires_grad
    ]
    if not pairs:
        return [torch.zeros_like(x) for x in inputs]
    outputs, of_rows = zip(*pairs, strict=True)
    grads = torch.autograd.grad(
        outputs, inputs, of_rows, create_graph=again, allow_unused=True, materialize_grads=True
    )
    return list(grads)


def trajectories(
    program: Program, operands: Operands, wanted: Sequence[bool] = (True,) * 4
) -> list[Tensor | None]:
    """Returns the outputs [B, T, D] in float64, None for what is not wanted."""
    actions, dt = columns(operands.actions, 0, program.used).double(), operands.dt.double()
    if isinstance(program, Smoother):
        return _smoother.outputs(program, actions, dt, wanted)
    batch = actions.shape[0]
    start = _states(operands.start, operands.start_index, batch)
    if isinstance(program, Cascade):
        return _cascade(program, actions, dt, start, wanted)
    goal = _states(operands.goal, operands.goal_index, batch)
    return _band.outputs(program, actions, dt, start, goal, wanted)


def _states(parts: Parts, index: Tensor | None, batch: int) -> list[Tensor | None]:
    """Returns a start or goal state per trajectory, four parts [B, D] in float64, None is zero."""
    states = [gather_states(None if part is None else part.double(), index) for part in parts]
    return [part if part is None else part.expand(batch, -1) for part in states]


def _cascade(
    program: Cascade, actions: Tensor, dt: Tensor, start: Parts, wanted: Sequence[bool]
) -> list[Tensor | None]:
    """Returns rows [B, T, D] of the used actions, dt [b, h] and start parts [B, D], all float64."""
    k, recorded = program.action_order, int(program.recorded)
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
    # from the action's order down, orders are sums: x_m,t = x_m,t−1 + gain_t
    for m in reversed(range(k)):
        gain = _gain_by_scheme(program.scheme, rows, dt, m, k)
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


def _gain_by_scheme(scheme: str, rows: Sequence[Tensor], dt: Tensor, m: int, k: int) -> Tensor:
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
