"""Operators that torch records in place of our kernels: torch.compile, torch.export, make_fx.

torch does not look into them. ``forward`` computes rows, ``adjoint`` their transpose; each is the
other's derivative. What graphs hold beside tensors are numbers, flags and strings: ``program`` is
the JSON of a mode with its options, from which :func:`_program` makes the program for the shapes
that it sees. Lists have only the tensors there are; flags say which: ``given`` of the eight parts
of start and goal, ``wanted`` of the outputs or of all inputs, ``present`` of the outputs' gradients.

Forward mode and torch.func do not come here: an operator would have no tangents.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.library import custom_op

from trajcli.adjoint import gradient_of_even_dt
from trajcli.arrays import to_numpy
from trajcli.autograd import Task, adjoint_of, rows_of, summed
from trajcli.inputs import Inputs, program_for
from trajcli.kernels import torch_ops
from trajcli.kernels.choose import choose_for
from trajcli.kernels.program import Operands, Parts, Program
from trajcli.modes import MODES, Mode


def integrate(
    inputs: Inputs, operands: Operands, dtype: str, wanted: Sequence[bool], backend: str
) -> list[Tensor | None]:
    """Returns the outputs [B, T, D] of operands, None if not wanted."""
    states, dt = operands.states(), operands.dt
    # the gradient of dt needs outputs that are not rounded
    kind = torch.float64 if dt.requires_grad else getattr(torch, dtype)
    given = [x is not None for x in states]
    rows = forward(
        operands.actions, dt, _present(states), given, list(wanted), kind, named(inputs), backend
    )
    return _spread([x.to(getattr(torch, dtype)) for x in rows], wanted)


def named(inputs: Inputs) -> str:
    """Returns the name of the inputs' program."""
    mode = inputs.mode
    options = {field.name: getattr(mode, field.name) for field in fields(mode)}
    about = [mode.name, options, inputs.recorded, inputs.uneven]
    return json.dumps(about, default=lambda values: np.asarray(values).tolist())


@lru_cache(maxsize=256)
def _read(program: str) -> tuple[Mode, bool, bool]:
    """Returns the mode of a program, and whether it is for recordings and for steps that differ."""
    name, options, recorded, uneven = json.loads(program)
    return MODES[name](**options), recorded, uneven


def _program(program: str, shape: Sequence[int], dt: Tensor) -> Program:
    """Returns the program for actions of a shape."""
    mode, recorded, uneven = _read(program)
    if mode.reads_steps:
        return mode.program_of(shape, to_numpy(dt))
    return program_for(mode, shape[1], recorded, uneven)


def _task(program: str, shape: Sequence[int], dt: Tensor, backend: str, **more: Any) -> Task:
    kernels = choose_for(dt.device, backend).kernels
    return Task(_program(program, shape, dt), kernels, kernels, plain=True, **more)


def _present(tensors: Sequence[Tensor | None]) -> list[Tensor]:
    return [x for x in tensors if x is not None]


def _spread(tensors: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    """Returns tensors where flags are set, else None."""
    rest = iter(tensors)
    return [next(rest) if flag else None for flag in flags]


@custom_op(
    "trajcli::forward",
    mutates_args=(),
    schema="(Tensor actions, Tensor dt, Tensor[] states, bool[] given, bool[] wanted, "
    "ScalarType dtype, str program, str backend) -> Tensor[]",
)
def forward(
    actions: Tensor, dt: Tensor, states: Sequence[Tensor], given: Sequence[bool],
    wanted: Sequence[bool], dtype: torch.dtype, program: str, backend: str,
) -> list[Tensor]:  # fmt: skip
    """Returns the wanted rows [B, T, D]. actions [B, H, D], dt [b, h], states [B or 1, D]."""
    actions, *states = [x.resolve_neg() for x in (actions, *states)]
    parts = _spread(states, given)
    task = _task(program, actions.shape, dt, backend, dtype=dtype, wanted=tuple(wanted))
    return _present(rows_of(task, dtype, Operands(actions, dt, parts[:4], parts[4:])))


@custom_op(
    "trajcli::adjoint",
    mutates_args=(),
    schema="(Tensor dt, Tensor[] upstream, bool[] present, SymInt[] shape, bool[] wanted, "
    "ScalarType dtype, str program, str backend) -> Tensor[]",
)
def adjoint(
    dt: Tensor, upstream: Sequence[Tensor], present: Sequence[bool], shape: Sequence[int],
    wanted: Sequence[bool], dtype: torch.dtype, program: str, backend: str,
) -> list[Tensor]:  # fmt: skip
    """Returns the wanted gradients of actions of a shape and dtype, and of the eight parts of
    states [B, D], from those of the rows."""
    grads = _spread([x.resolve_neg() for x in upstream], present)
    task = _task(program, shape, dt, backend, dtype=dtype, wanted=tuple(present))
    return _present(adjoint_of(task, (shape, dtype), tuple(wanted), dt, *grads))


@forward.register_fake
def _(actions, dt, states, given, wanted, dtype, program, backend):  # type: ignore
    mode, recorded, _ = _read(program)
    batch, horizon, dofs = actions.shape
    shape = batch, mode.rows(horizon, recorded), dofs
    return [actions.new_empty(shape, dtype=dtype) for want in wanted if want]


@adjoint.register_fake
def _(dt, upstream, present, shape, wanted, dtype, program, backend):  # type: ignore
    batch, _, dofs = shape
    of_actions = [dt.new_empty(shape, dtype=dtype)] * wanted[0]
    return [*of_actions, *(dt.new_empty((batch, dofs)) for want in wanted[1:] if want)]


def _forward_context(ctx: Any, inputs: Any, output: Any) -> None:
    actions, dt, states, ctx.given, ctx.wanted, _, ctx.program, ctx.backend = inputs
    ctx.shape, ctx.dtype, ctx.counts = actions.shape, actions.dtype, [x.shape[0] for x in states]
    ctx.set_materialize_grads(False)
    of_dt = ctx.needs_input_grad[1]
    ctx.save_for_backward(dt, *((actions, *states, *output) if of_dt else ()))


def _forward_backward(ctx: Any, grads: Sequence[Tensor | None]) -> tuple[Any, ...]:
    of_actions, of_dt, of_states, *_ = ctx.needs_input_grad
    dt, *saved = ctx.saved_tensors
    upstream = _spread(grads, ctx.wanted)
    needed = [of_actions, *_spread(of_states, ctx.given)]
    exist = [True, *ctx.given]
    wanted = [bool(need or (of_dt and there)) for need, there in zip(needed, exist, strict=True)]
    # the gradient of dt needs gradients that are not rounded
    dtype = torch.float64 if of_dt else ctx.dtype
    pulled: list[Any] = [None] * 9
    if any(wanted) and any(x is not None for x in upstream):
        flags = [x is not None for x in upstream]
        made = adjoint(
            dt, _present(upstream), flags, ctx.shape, wanted, dtype, ctx.program, ctx.backend
        )
        pulled = _spread(made, wanted)
    steps = None
    if of_dt:
        actions, states, rows = (
            saved[0],
            saved[1 : 1 + len(ctx.counts)],
            saved[1 + len(ctx.counts) :],
        )
        values = [actions, *_spread(states, ctx.given)]
        steps = _gradient_of_dt(ctx, dt, values, pulled, _spread(rows, ctx.wanted), upstream)
    counts = _spread(ctx.counts, ctx.given)
    of_parts = [
        summed(grad, count) if need else None
        for grad, count, need, there in zip(pulled[1:], counts, needed[1:], ctx.given, strict=True)
        if there
    ]
    return (pulled[0] if of_actions else None), steps, of_parts, *(None,) * 5


def _gradient_of_dt(
    ctx: Any, dt: Tensor, values: Parts, pulled: Parts, rows: Parts, upstream: Parts
) -> Tensor:
    """Returns the gradient of dt [b, h], [B, h]. See :func:`gradient_of_even_dt`."""
    if dt.shape[1] == 1:
        order = _read(ctx.program)[0].derivatives_of
        return gradient_of_even_dt(order, dt, values, pulled, rows, upstream)
    program = _program(ctx.program, ctx.shape, dt)
    operands = Operands(values[0], dt, values[1:5], values[5:])
    return torch_ops.gradient_of_steps(program, operands, upstream)


def _adjoint_context(ctx: Any, inputs: Any, output: Any) -> None:
    dt, upstream, ctx.present, ctx.shape, ctx.wanted, _, ctx.program, ctx.backend = inputs
    ctx.set_materialize_grads(False)
    of_dt = ctx.needs_input_grad[0]
    ctx.save_for_backward(dt, *((*upstream, *output) if of_dt else ()))


def _adjoint_backward(ctx: Any, seconds: Sequence[Tensor | None]) -> tuple[Any, ...]:
    dt, *saved = ctx.saved_tensors
    of_dt, of_upstream, *_ = ctx.needs_input_grad
    actions, *states = values = _spread(seconds, ctx.wanted)
    rows: list[Any] = [None] * 4
    steps = None
    if any(x is not None for x in values):
        if actions is None:
            actions = dt.new_zeros(()).expand(ctx.shape)
        wanted = [True] * 4 if of_dt else ctx.present
        given = [x is not None for x in states]
        made = forward(
            actions, dt, _present(states), given, wanted, torch.float64, ctx.program, ctx.backend
        )
        rows = _spread(made, wanted)
        if of_dt:
            upstream = _spread(saved, ctx.present)
            pulled = _spread(saved[sum(ctx.present) :], ctx.wanted)
            steps = _gradient_of_dt(ctx, dt, [actions, *states], pulled, rows, upstream)
    needs = iter(of_upstream)
    grads = [
        x if next(needs) else None for x, there in zip(rows, ctx.present, strict=True) if there
    ]
    return steps, grads, *(None,) * 6


forward.register_autograd(_forward_backward, setup_context=_forward_context)
adjoint.register_autograd(_adjoint_backward, setup_context=_adjoint_context)


def _many(x: Tensor, dim: int | None, count: int, batch: int) -> Tensor:
    """Returns what vmap maps over, of each of ``count`` batches, as one batch; as it is where all
    trajectories share it."""
    if dim is None and x.shape[0] == 1:
        return x
    x = x.expand(count, *x.shape) if dim is None else x.movedim(dim, 0)
    return x.expand(count, batch, *x.shape[2:]).flatten(0, 1)


@forward.register_vmap
def _(info, in_dims, actions, dt, states, *more):  # type: ignore
    count, of_states = info.batch_size, in_dims[2]
    batch = actions.shape[0] if in_dims[0] is None else actions.movedim(in_dims[0], 0).shape[1]
    actions, dt = (
        _many(x, dim, count, batch) for x, dim in zip((actions, dt), in_dims, strict=False)
    )
    states = [_many(x, dim, count, batch) for x, dim in zip(states, of_states, strict=True)]
    if len(actions) != count * batch:  # one trajectory
        actions = actions.expand(count, *actions.shape[1:])
    rows = [x.unflatten(0, (count, batch)) for x in forward(actions, dt, states, *more)]
    return rows, [0] * len(rows)


@adjoint.register_vmap
def _(info, in_dims, dt, upstream, present, shape, *more):  # type: ignore
    count, (batch, *rest) = info.batch_size, shape
    dt = _many(dt, in_dims[0], count, batch)
    upstream = [
        _many(x, dim, count, batch).expand(count * batch, *x.shape[-2:])
        for x, dim in zip(upstream, in_dims[1], strict=True)
    ]
    grads = adjoint(dt, upstream, present, [count * batch, *rest], *more)
    grads = [x.unflatten(0, (count, batch)) for x in grads]
    return grads, [0] * len(grads)
