"""The operator that torch records in place of kernels: in torch.compile, torch.export, make_fx.

torch does not look into it. For fixed dt a program is a linear map of actions and states; the
operator applies it, or its transpose, so that it is its own derivative. What graphs hold besides
tensors are numbers, flags and strings, so ``program`` is the JSON of a mode with its options, from
which :func:`_program` makes the program for the shapes that it sees.

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
from torch.autograd import forward_ad
from torch.library import custom_op

# A module, not its names: where autograd itself is what imports torch, torch's registration of
# operators runs this while autograd is executed only as far as its imports.
from trajcli import autograd
from trajcli.adjoint import gradient_of_even_dt
from trajcli.arrays import to_numpy
from trajcli.errors import UsageError
from trajcli.inputs import Inputs, program_for
from trajcli.kernels import torch_ops
from trajcli.kernels.choose import choose_for_tensors
from trajcli.kernels.program import Operands, Program
from trajcli.modes import MODES, Mode


def integrate(
    inputs: Inputs, operands: Operands, dtype: str, wanted: Sequence[bool], backend: str
) -> list[Tensor | None]:
    """Computes the outputs [B, T, D] of operands by the operator; None if not wanted."""
    actions: Any = operands.actions
    dt: Any = operands.dt
    tensors, present = _present([actions, *torch_ops.wide_states(operands)])
    mode = inputs.mode
    options = {field.name: getattr(mode, field.name) for field in fields(mode)}
    description = [mode.name, options, inputs.recorded, bool(inputs.uneven)]
    program = json.dumps(description, default=lambda values: np.asarray(values).tolist())
    # the gradient of dt needs outputs that are not rounded
    kind = torch.float64 if dt.requires_grad else getattr(torch, dtype)
    rows = linear(dt, tensors, present, actions.shape, wanted, kind, False, program, backend)
    return _spread([x.to(getattr(torch, dtype)) for x in rows], wanted)


@custom_op(
    "trajcli::linear",
    mutates_args=(),
    schema="(Tensor dt, Tensor[] inputs, bool[] given, SymInt[] shape, bool[] wanted, "
    "ScalarType dtype, bool transposed, str program, str backend) -> Tensor[]",
)
def linear(
    dt: Tensor, inputs: Sequence[Tensor], given: Sequence[bool], shape: Sequence[int],
    wanted: Sequence[bool], dtype: torch.dtype, transposed: bool, program: str, backend: str,
) -> list[Tensor]:  # fmt: skip
    """Applies a program to actions [B, H, D] and eight parts [B, D] of start and goal.

    Results are outputs [B, T, D]. ``transposed``: inputs are gradients of the outputs, results
    those of actions, of this type, and of states, in float64. Lists hold no None: ``given`` and
    ``wanted`` are flags of the inputs and results that they hold.
    """
    if forward_ad._current_level >= 0:  # its tangents would be zero, in silence
        what, hint = "forward mode through code that was traced", "the transform in what is traced"
        raise UsageError(what, where="trajcli::linear", expected="backward mode", hint=hint)
    values = _spread([x.resolve_neg() for x in inputs], given)
    kernels = choose_for_tensors(dt.device, backend).kernels
    task = autograd.Task(
        _program(program, shape, dt), kernels, kernels, dtype, tuple(wanted), plain=True
    )
    if not transposed:
        actions = dt.new_zeros(()).expand(shape) if values[0] is None else values[0]
        operands = Operands(actions, dt, values[1:5], values[5:])
        return _present(autograd.compute_rows(task, dtype, operands))[0]
    # the transpose of what is computed by torch's operations is found by autograd, which torch
    # leaves out within operators
    with torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.AutogradFunctionality, False):
        return _present(autograd.pull_back(task, (shape, dtype), tuple(wanted), dt, *values))[0]


@linear.register_fake
def _(dt, inputs, given, shape, wanted, dtype, transposed, program, backend):  # type: ignore
    mode, recorded, _ = _read(program)
    batch, horizon, dofs = shape
    if transposed:
        results = [(shape, dtype), *[((batch, dofs), torch.float64)] * 8]
    else:
        results = [((batch, mode.row_count(horizon, recorded), dofs), dtype)] * 4
    pairs = zip(results, wanted, strict=True)
    return [dt.new_empty(shape, dtype=kind) for (shape, kind), want in pairs if want]


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    dt, tensors, ctx.given, *_ = inputs
    ctx.request, ctx.dtype = inputs[3:], tensors[0].dtype
    ctx.set_materialize_grads(False)
    # a linear map needs no values for its gradient, but that of dt does
    needs_dt = ctx.needs_input_grad[0]
    ctx.save_for_backward(dt, *((*tensors, *output) if needs_dt else ()))


def _backward(ctx: Any, grads: Sequence[Tensor | None]) -> tuple[Any, ...]:
    shape, wanted, _, transposed, program, backend = ctx.request
    dt, *saved = ctx.saved_tensors
    needs_dt, needs_inputs, *_ = ctx.needs_input_grad
    needs_inputs = _spread(needs_inputs, ctx.given)
    upstream = _spread(grads, wanted)
    present, flags = _present(upstream)
    if not present:
        return (None, [None] * sum(ctx.given), *(None,) * 7)
    # the gradient of dt needs those of all inputs, not rounded
    needed = ctx.given if needs_dt else [bool(need) for need in needs_inputs]
    dtype = torch.float64 if needs_dt or transposed else ctx.dtype
    grads = linear(dt, present, flags, shape, needed, dtype, not transposed, program, backend)
    grads, dt_grad = _spread(grads, needed), None
    if needs_dt:
        inputs = _spread(saved, ctx.given)
        outputs = _spread(saved[sum(ctx.given) :], wanted)
        # <L(dt) x, y> is symmetric in the input x of the map and the gradient y of its output: of
        # the transposed map the two change places
        values, rows, row_grads, value_grads = inputs, outputs, upstream, grads
        if transposed:
            values, rows, row_grads, value_grads = upstream, grads, inputs, outputs
        mode, *_ = _read(program)
        if dt.shape[1] == 1:
            dt_grad = gradient_of_even_dt(mode, dt, values, value_grads, rows, row_grads)
        else:
            actions = dt.new_zeros(()).expand(shape) if values[0] is None else values[0]
            operands = Operands(actions, dt, values[1:5], values[5:])
            dt_grad = torch_ops.gradient_of_steps(_program(program, shape, dt), operands, row_grads)
    triples = zip(grads, needs_inputs, ctx.given, strict=True)
    return dt_grad, [x if need else None for x, need, given in triples if given], *(None,) * 7


linear.register_autograd(_backward, setup_context=_save)


@linear.register_vmap
def _(info, in_dims, dt, inputs, given, shape, *request):  # type: ignore
    # the mapped axis becomes a part of the batch
    count, (batch, *rest) = info.batch_size, shape

    def fold(x: Tensor, dim: int | None) -> Tensor:
        x = x.expand(count, *x.shape) if dim is None else x.movedim(dim, 0)
        return x.expand(count, batch, *x.shape[2:]).flatten(0, 1)

    if in_dims[0] is not None or dt.shape[0] > 1:
        dt = fold(dt, in_dims[0])
    inputs = [fold(x, dim) for x, dim in zip(inputs, in_dims[1], strict=True)]
    results = linear(dt, inputs, given, [count * batch, *rest], *request)
    return [x.unflatten(0, (count, batch)) for x in results], [0] * len(results)


@lru_cache(maxsize=256)
def _read(program: str) -> tuple[Mode, bool, bool]:
    """Reads the mode of a program, and whether it is for recordings and for steps that differ."""
    name, options, recorded, uneven = json.loads(program)
    return MODES[name](**options), recorded, uneven


def _program(program: str, shape: Sequence[int], dt: Tensor) -> Program:
    mode, recorded, uneven = _read(program)
    if mode.reads_steps:
        return mode.stepped_program(shape, to_numpy(dt))
    horizon = shape[1]
    if isinstance(horizon, int):
        return program_for(mode, horizon, recorded, uneven)
    return mode.program(horizon, recorded, uneven)  # of symbols


def _present(tensors: Sequence[Tensor | None]) -> tuple[list[Tensor], list[bool]]:
    """Leaves out None; returns the tensors, and a flag for each value."""
    return [x for x in tensors if x is not None], [x is not None for x in tensors]


def _spread(values: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    """Puts None back where flags are not set: the inverse of :func:`_present`."""
    remaining = iter(values)
    return [next(remaining) if flag else None for flag in flags]
