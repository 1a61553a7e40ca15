"""Runs the kernels in plain torch, on any device with float64; the reference for the others.

Every operation is torch's and nothing is written in place, so that torch differentiates, maps
(vmap) and batches through it in all operands, dt included, to any order. Shapes are those of
:mod:`trajcli.kernels.program`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from trajcli.arrays import columns, is_capturing
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
)
from trajcli.kernels.torch_ops import _band, _smoother
from trajcli.memory import TORCH_VALUES

if TYPE_CHECKING:
    from torch import Tensor


def forward(program: Program, operands: Operands, out: Parts) -> None:
    """Fills the outputs; None is skipped."""
    actions: Any = operands.actions
    dt: Any = operands.dt
    if runs_on_cpu(program, dt):
        inputs = Operands(actions.cpu(), dt.cpu())
        compute_on_cpu(lambda kernels, rows: kernels.forward(program, inputs, rows), out)
        return
    selection = [buffer is not None for buffer in out]
    for part, inputs, buffers in blocks(program, operands, out):
        for buffer, values in zip(buffers, trajectories(part, inputs, selection), strict=True):
            if buffer is not None:
                buffer.copy_(values)


def adjoint(
    program: Program, operands: Operands, upstream: Sequence[Tensor | None], gradients: Gradients
) -> None:
    """Fills the gradients from those of the outputs; None is skipped."""
    dt: Any = operands.dt
    if runs_on_cpu(program, dt):
        # gradients do not depend on the actions, so that only their shape matters
        inputs = Operands(torch.empty(()).expand(operands.actions.shape), dt.cpu())
        grads = [x if x is None else x.cpu() for x in upstream]
        compute_on_cpu(
            lambda kernels, pulled: kernels.adjoint(program, inputs, grads, Gradients(*pulled)),
            [gradients.actions],
        )
        return
    results = (gradients.actions, *gradients.start, *gradients.goal)
    for part, inputs, grads, buffers in blocks(program, operands, upstream, results):
        pulled = pull_back(part, inputs.actions.shape, inputs.dt, grads)
        for buffer, values in zip(buffers, pulled, strict=True):
            if buffer is not None:
                buffer.copy_(values)


def runs_on_cpu(program: Program, dt: Tensor) -> bool:
    """Tells whether the CPU computes a program for tensors on a device: a smoother's."""
    if not isinstance(program, Smoother) or dt.device.type == "cpu":
        return False
    refuse_capture(dt.device)
    return True


def refuse_capture(device: torch.device) -> None:
    """Raises UsageError while a CUDA graph is captured, which copies to the CPU would end."""
    if is_capturing(device):
        raise UsageError(
            "method smooth, which a CUDA graph cannot capture",
            where="method",
            expected="a call and its backward pass outside of the capture: both run on the CPU",
            hint="method savgol with a window in rows",
        )


def compute_on_cpu(compute: Callable[[Any, list[Any]], None], results: Sequence[Any]) -> None:
    """Fills tensors on a device by kernels, compiled or these, that fill tensors on the CPU."""
    # A smoothing spline goes from row to row, with a QR of small matrices at each: on a device
    # every row waits for several kernels, and for the host. The CPU takes less time than that.
    from trajcli.kernels import native

    copies = [None if x is None else torch.empty_like(x, device="cpu") for x in results]
    compute(sys.modules[__name__] if native.absence() else native, copies)
    for x, copy in zip(results, copies, strict=True):
        if x is not None:
            x.copy_(copy)


def measure(
    program: Smoother, operands: Operands, residuals: Floats | None = None
) -> tuple[Floats, Floats]:
    """Sums w·r² and leverages of a smoother, NumPy [B, D]; writes r [B, T, D] to ``residuals``."""
    sums = [np.empty((2, 0, operands.actions.shape[2]))]
    operands = Operands(torch.as_tensor(operands.actions), torch.as_tensor(operands.dt))
    for part, inputs, (buffer,) in blocks(program, operands, [residuals]):
        with torch.no_grad():
            *totals, errors = _smoother.measure(part, inputs.actions.double(), inputs.dt.double())
        sums.append(np.stack([x.numpy() for x in totals]))
        if buffer is not None:
            buffer[:] = errors.numpy()
    squares, leverages = np.concatenate(sums, 1)
    return squares, leverages


def blocks(
    program: Program, operands: Operands, *arrays: Sequence[Any], size: int = TORCH_VALUES
) -> Iterator[tuple[Any, ...]]:
    """Yields program, operands and arrays [B, …] of blocks whose outputs have ``size`` values."""
    # torch keeps every intermediate result of a block, for all of its rows at once
    batch, _, dofs = operands.actions.shape
    count = max(1, size // max(1, program.rows * dofs))
    for begin in range(0, batch, count):
        block = slice(begin, begin + count)

        # arrays with one row for all trajectories stay as they are
        def cut(values: Any, block: slice = block) -> Any:
            return values[block] if values is not None and len(values) == batch else values

        part, (actions, dt, start, goal, *indices) = program, operands
        if isinstance(program, Smoother):
            unit, stiffness = cut(program.unit), cut(program.stiffness)
            part = replace(program, unit=unit, stiffness=stiffness, weights=cut(program.weights))
        elif isinstance(program, Band) and program.spans is not None:
            part = replace(program, spans=cut(program.spans))
        # an index picks from all states
        start, goal = (
            [cut(state) for state in states] if index is None else states
            for states, index in zip((start, goal), indices, strict=True)
        )
        inputs = Operands(cut(actions), cut(dt), start, goal, *map(cut, indices))
        yield part, inputs, *([None if x is None else x[block] for x in some] for some in arrays)


def pull_back(
    program: Program, shape: Sequence[int], dt: Tensor, upstream: Sequence[Tensor | None]
) -> list[Tensor]:
    """Computes float64 gradients of actions [B, H, D] and of eight parts of states [B, D]."""
    batch, _, dofs = shape
    # outputs are linear in actions and states, so that any values give the same gradients
    actions = dt.new_zeros(tuple(shape), dtype=torch.float64)
    states = [dt.new_zeros(batch, dofs, dtype=torch.float64) for _ in range(8)]
    inputs = [x.requires_grad_() for x in (actions, *states)]
    operands = Operands(actions, dt.detach(), states[:4], states[4:])
    return _gradients(program, operands, upstream, inputs)


def gradient_of_steps(
    program: Program, operands: Operands, upstream: Sequence[Tensor | None]
) -> Tensor:
    """Computes the gradient of unequal steps dt [b, h] in float64, differentiable as recorded."""
    differentiable = torch.is_grad_enabled()
    with torch.enable_grad():
        # actions and states may be functions of dt: the gradient through them is not this one's,
        # so that it is taken by a tensor of its own
        steps: Any = operands.dt
        dt: Tensor = steps.view_as(steps) if differentiable else steps.detach()
        dt.requires_grad_()
    (grad,) = _gradients(program, operands._replace(dt=dt), upstream, [dt], differentiable)
    return grad


def _gradients(
    program: Program,
    operands: Operands,
    upstream: Sequence[Tensor | None],
    inputs: Sequence[Tensor],
    differentiable: bool = False,
) -> list[Tensor]:
    with torch.enable_grad():
        rows = trajectories(program, operands, [grad is not None for grad in upstream])
    pairs = [
        (x, grad.double())
        for x, grad in zip(rows, upstream, strict=True)
        if x is not None and grad is not None and x.requires_grad
    ]
    if not pairs:
        return [torch.zeros_like(x) for x in inputs]
    outputs, grads = zip(*pairs, strict=True)
    options = {"create_graph": differentiable, "allow_unused": True, "materialize_grads": True}
    return list(torch.autograd.grad(outputs, inputs, grads, **options))


def trajectories(
    program: Program, operands: Operands, selection: Sequence[bool] = (True,) * 4
) -> list[Tensor | None]:
    """Computes the outputs [B, T, D] in float64; None where not selected."""
    used: Any = columns(operands.actions, 0, program.used)
    steps: Any = operands.dt
    actions, dt = used.double(), steps.double()
    if isinstance(program, Smoother):
        return _smoother.outputs(program, actions, dt, selection)
    states = wide_states(operands)
    start, goal = states[:4], states[4:]
    if isinstance(program, Cascade):
        return _cascade(program, actions, dt, start, selection)
    return _band.outputs(program, actions, dt, start, goal, selection)


def wide_states(operands: Operands) -> list[Tensor | None]:
    """Gathers the eight parts of start and goal per trajectory, float64 [B, D]; None is zero."""
    # gradients of states that trajectories share are summed before they are rounded
    roles: tuple[Sequence[Any], ...] = operands.start, operands.goal
    start, goal = ([x if x is None else x.double() for x in parts] for parts in roles)
    states: list[Any] = operands._replace(start=start, goal=goal).states()
    return [x if x is None else x.expand(operands.actions.shape[0], -1) for x in states]


def _cascade(
    program: Cascade, actions: Tensor, dt: Tensor, start: Sequence[Tensor | None],
    selection: Sequence[bool],
) -> list[Tensor | None]:  # fmt: skip
    """Computes rows [B, T, D] of float64 actions and states by the formulas of program.Cascade."""
    k, scheme = program.action_order, program.scheme
    zero = actions.new_zeros(actions.shape[0], actions.shape[2])
    state = [zero if part is None else part for part in start]
    # a recording has no start state: its first row stands in for one
    if program.recorded:
        state, actions = [actions[:, 0], zero, zero, zero], actions[:, 1:]
    count = actions.shape[1]
    dt = (dt if dt.shape[1] == 1 else columns(dt, 0, count))[:, :, None]  # [b, h, 1]
    # [B, 1 + count, D]: row 0 is the start state, row t the state after action t
    rows: list[Tensor] = [zero] * 4
    rows[k] = torch.cat([state[k][:, None], actions], 1)
    now, before = rows[k][:, 1:], rows[k][:, :-1]
    # from the action's order down, orders are sums of what each step adds to them
    for m in reversed(range(k)):
        n = k - m
        if scheme == "euler":
            # semi-implicit: the derivative at the end of the step
            gain = dt * rows[m + 1][:, 1:]
        elif scheme == "zoh":
            # the n-fold integral over the step of an action that is constant: u_t·dtⁿ/n!
            gain = dt**n / math.factorial(n) * now
        else:
            # of one that is linear from u_t−1 to u_t: (u_t + n·u_t−1)·dtⁿ/(n+1)!
            gain = dt**n / math.factorial(n + 1) * (now + n * before)
        # Taylor's terms of the orders between m and the action's, at the beginning of the step
        for r in range(1, n if scheme != "euler" else 1):
            gain = gain + dt**r / math.factorial(r) * rows[m + r][:, :-1]
        rows[m] = torch.cat([state[m][:, None], gain], 1).cumsum(1)
    # higher orders are differences: x_m,t = (x_m−1,t − x_m−1,t−1) / dt_t
    for m in range(k + 1, 1 + max((m for m in range(4) if selection[m]), default=0)):
        rows[m] = torch.cat([state[m][:, None], rows[m - 1].diff(dim=1) / dt], 1)
    # A recording has no rows before its first to difference, so that rows 0 … m − 1 of order m copy
    # row m. Where there is no row m they are zero, and NaN must not come through: a product would.
    for m in range(1, 4) if program.recorded else ():
        values = rows[m]
        if values.dim() != 3:  # neither selected nor needed for a higher order
            continue
        if values.shape[1] <= m:
            rows[m] = values.masked_fill(torch.ones_like(values, dtype=torch.bool), 0.0)
        else:
            rest = columns(values, m, values.shape[1] - m)
            rows[m] = torch.cat([columns(rest, 0, 1).expand(-1, m, -1), rest], 1)
    begin = int(not (program.start_row or program.recorded))
    return [
        columns(values, begin, 1 + count - begin) if select else None
        for values, select in zip(rows, selection, strict=True)
    ]
