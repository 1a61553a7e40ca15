"""Gradients through the kernels, and functions that change the gradients passing through them.

For fixed dt every mode is linear in its actions, start and goal: x = L(u, s, g). Its transpose is
the adjoint kernel, (ū, s̄, ḡ) = Lᵀ(x̄). One is the other's derivative.

The gradient of one dt follows from both: see :mod:`trajcli.adjoint`. The gradient of unequal
steps, forward mode and torch.func go through :mod:`trajcli.kernels.torch_ops`, which torch
differentiates itself; smoothers, of many operations for each row, stay with their kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function, forward_ad
from torch.nn import Parameter

from trajcli.adjoint import gradient_of_even_dt
from trajcli.arrays import (
    as_array,
    copy_overlapping,
    empty_arrays,
    is_traced,
    match_library,
    number,
)
from trajcli.errors import UsageError
from trajcli.kernels import torch_ops
from trajcli.kernels.program import Gradients, Operands, Program

# Four parts of the start state, then four of the goal: what Functions take after the actions.
_STATES = 8


def integrate(
    task: Task, operands: Operands, out: Sequence[Tensor | None] | None = None
) -> Sequence[Tensor | None]:
    """Computes a program's outputs [B, T, D], differentiable in all operands unless into ``out``.

    Raises UsageError where a smoother's steps require a gradient, or ``out`` would lose one.
    """
    dt: Any
    program, dt, plain = task.program, operands.dt, task.plain
    tensors: tuple[Any, ...] = (dt, operands.actions, *operands.start, *operands.goal)
    indices: tuple[Any, Any] = (operands.start_index, operands.goal_index)
    if out is not None:
        present = [x for x in (*tensors, *out) if x is not None]
        loses = torch.is_grad_enabled() and any(x.requires_grad for x in present)
        if loses or needs_torch() or not addressable(present):
            raise UsageError(
                "out= has no gradient, and is no part of a trace",
                where="out",
                expected="inputs and outputs that require none",
                hint="with torch.no_grad(), or a call without out",
            )
        compute_rows(task, task.dtype, copy_overlapping(operands, out), out)
        # torch does not see what kernels write. A backward pass that has saved these tensors finds
        # out by their version that their values changed.
        for x in out:
            if x is not None and not x.is_inference():
                torch.autograd.graph.increment_version(x)
        return out
    varies_dt = dt.requires_grad or not (plain or forward_ad.unpack_dual(dt).tangent is None)
    if varies_dt and not program.has_dt_gradient:
        raise UsageError(
            "method smooth has no gradient of dt and times",
            where="dt",
            expected="steps without one",
            hint="dt.detach(), or method savgol, which has it",
        )
    # Kernels see only memory. A transform (torch.func, forward mode) needs operations that torch
    # can transform, or a Function with rules for it; what is traced needs operations to record.
    if not plain:
        transformed = needs_torch()
        if transformed and not (program.has_dt_gradient or is_traced()):
            rows = iter(SmoothedRows.apply(task, None, dt, operands.actions))
            return [next(rows) if select else None for select in task.selection]
        if transformed or not addressable((*tensors, *indices)):
            outputs = torch_ops.trajectories(program, operands, task.selection)
            return [None if x is None else x.to(task.dtype) for x in outputs]
    if varies_dt and dt.shape[1] > 1:
        outputs = torch_ops.trajectories(program, operands, task.selection)
        return _Rounded.apply(task.dtype, *outputs)  # type: ignore[no-any-return]
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors if x is not None):
        if not (indices[0] is None and indices[1] is None):
            task = task._replace(indices=indices)
        return Integrate.apply(task, *tensors)  # type: ignore[no-any-return]
    return compute_rows(task, task.dtype, operands)


class Task(NamedTuple):
    """The arguments of a linear function that are no tensors of its inputs.

    ``kernels`` run the first forward and backward pass, ``general`` any later one. ``selection``:
    which of the four outputs are computed. ``indices``: the start and the goal index. ``plain``:
    in the first forward pass nothing is transformed or traced, and all tensors are in memory.
    """

    program: Program
    kernels: Any
    general: Any
    dtype: torch.dtype
    selection: tuple[bool, ...]
    indices: tuple[Tensor | None, Tensor | None] = (None, None)
    plain: bool = False

    def later(self) -> Task:
        """Makes the task for passes after the first, whose rows are not rounded."""
        return self._replace(kernels=self.general, dtype=torch.float64, plain=False)


class Integrate(Function):
    """Turns dt, actions and four parts of start and goal into outputs, None if not selected."""

    @staticmethod
    def forward(ctx: Any, task: Task, dt: Tensor, *inputs: Any) -> tuple[Tensor | None, ...]:
        # the gradient of dt needs outputs that are not rounded
        needs_dt = ctx.needs_input_grad[1]
        dtype = torch.float64 if needs_dt else task.dtype
        operands = Operands(inputs[0], dt, inputs[1:5], inputs[5:], *task.indices)
        rows = compute_rows(task, dtype, operands)
        ctx.task, ctx.layouts = task, [None if x is None else (x.shape, x.dtype) for x in inputs]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(dt, *((*inputs, *rows) if needs_dt else ()))
        if dtype == task.dtype:
            return tuple(rows)
        return tuple([None if x is None else x.to(task.dtype) for x in rows])

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> tuple[Any, ...]:
        task: Task = ctx.task
        _, needs_dt, *needs = ctx.needs_input_grad
        dt, *saved = ctx.saved_tensors
        layouts = ctx.layouts
        # the gradient of dt needs those of all other inputs, not rounded
        selection = tuple(
            x is not None and (needs_dt or need) for x, need in zip(layouts, needs, strict=True)
        )
        shape, dtype = layouts[0]
        actions = shape, torch.float64 if needs_dt else dtype
        pull = PullBack.apply if torch.is_grad_enabled() else pull_back
        pulled = pull(task, actions, selection, dt, *upstream)
        start, goal = task.indices
        indices = (None, start, start, start, start, goal, goal, goal, goal)
        grads = [
            _sum_shared(grad, layout[0][0], index) if need and layout is not None else None
            for grad, layout, need, index in zip(pulled, layouts, needs, indices, strict=True)
        ]
        steps = None
        if needs_dt:
            inputs, rows = saved[: 1 + _STATES], saved[1 + _STATES :]
            # Rows that were saved are constants. A second derivative needs them as functions of the
            # inputs; where they were not rounded, the saved ones are the outputs themselves.
            if torch.is_grad_enabled() and task.dtype != torch.float64:
                rows = Integrate.apply(task.later(), dt, *inputs)
            operands = Operands(inputs[0], dt, inputs[1:5], inputs[5:], *task.indices)
            values = (operands.actions, *operands.states())
            steps = gradient_of_even_dt(task.program, dt, values, pulled, rows, upstream)
        return None, steps, *grads


class _Rounded(Function):
    """Rounds rows of float64 to a type, and makes their gradients contiguous."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *rows: Tensor | None) -> tuple[Tensor | None, ...]:
        ctx.set_materialize_grads(False)
        rounded = [None if x is None else x.to(dtype, copy=True) for x in rows]
        pairs = zip(rounded, ctx.needs_input_grad[1:], strict=True)
        ctx.mark_non_differentiable(*[x for x, need in pairs if x is not None and not need])
        return tuple(rounded)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        # torch's sums follow the order of memory, and so does their rounding
        return None, *[None if x is None else x.contiguous().double() for x in grads]


class PullBack(Function):
    """Turns gradients of the outputs into those of the actions and of the states per trajectory."""

    @staticmethod
    def forward(
        ctx: Any, task: Task, actions: Any, selection: tuple[bool, ...], dt: Tensor, *upstream: Any
    ) -> tuple[Tensor | None, ...]:
        grads = pull_back(task, actions, selection, dt, *upstream)
        ctx.task, ctx.shape = task, actions[0]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(dt, *((*upstream, *grads) if ctx.needs_input_grad[3] else ()))
        ctx.present = tuple(x is not None for x in upstream)
        return grads

    @staticmethod
    def backward(ctx: Any, *seconds: Any) -> tuple[Any, ...]:
        # The function is Lᵀ, so its own transpose is L: gradients of gradients are integrated like
        # actions and states.
        dt, *saved = ctx.saved_tensors
        present = [x for x in seconds if x is not None]
        if not present:
            return (None,) * len(ctx.needs_input_grad)
        if seconds[0] is None:
            seconds = (present[0].new_zeros(()).expand(ctx.shape), *seconds[1:])
        needs_dt = ctx.needs_input_grad[3]
        selection = (True,) * 4 if needs_dt else ctx.present
        task = ctx.task.later()._replace(selection=selection, indices=(None, None))
        rows = Integrate.apply(task, dt, *seconds)
        steps = None
        if needs_dt:
            upstream, grads = saved[: len(rows)], saved[len(rows) :]
            steps = gradient_of_even_dt(task.program, dt, seconds, grads, rows, upstream)
        pairs = zip(rows, ctx.present, strict=True)
        return None, None, None, steps, *[x if select else None for x, select in pairs]


def compute_rows(
    task: Task, dtype: torch.dtype, operands: Operands, out: Sequence[Tensor | None] | None = None
) -> Sequence[Tensor | None]:
    """Computes the outputs of :class:`Integrate` outside the graph, into ``out`` if it is given."""
    actions: Any
    dt: Any
    actions, dt, start, goal, *indices = operands
    if not task.plain:
        inputs: tuple[Any, ...] = (actions, *start, *goal)
        readable: Any = _read_in_memory(inputs)
        if readable is None:
            outputs = torch_ops.trajectories(task.program, operands, task.selection)
            return [None if x is None else x.to(dtype) for x in outputs]
        operands = Operands(readable[0], dt, readable[1:5], readable[5:], *indices)
    batch, _, dofs = actions.shape
    shape, device = (batch, task.program.rows, dofs), "cpu" if dt.is_cpu else str(dt.device)
    rows = empty_arrays(shape, str(dtype)[6:], device, task.selection) if out is None else out
    task.kernels.forward(task.program, operands, rows)
    return rows


def pull_back(
    task: Task, actions: Any, selection: tuple[bool, ...], dt: Tensor, *upstream: Any
) -> tuple[Tensor | None, ...]:
    """Computes the selected gradients of :class:`PullBack`; ``actions`` are a shape and a type."""
    (batch, _, dofs), dtype = shape, _ = actions
    readable = _read_in_memory(upstream)
    if readable is not None:
        # kernels write no half precision
        kind = dtype if dtype in (torch.float32, torch.float64) else torch.float64
        grads = empty_arrays(shape, str(kind)[6:], str(dt.device), selection[:1])
        grads += [dt.new_empty((batch, dofs)) if select else None for select in selection[1:]]
        # the function is linear in the actions: only their shape matters
        like = dt.new_empty(()).expand(shape) if grads[0] is None else grads[0]
        gradients = Gradients(grads[0], grads[1:5], grads[5:])
        task.kernels.adjoint(task.program, Operands(like, dt), readable, gradients)
        if grads[0] is not None and kind != dtype:
            grads[0] = grads[0].to(dtype)
    else:
        pulled = torch_ops.pull_back(task.program, shape, dt, upstream)
        grads = [x if select else None for x, select in zip(pulled, selection, strict=True)]
    return tuple(grads)


class SmoothedRows(Function):
    """Turns positions into rows of a smoother or, with the type ``back``, gradients back.

    Each is the other's derivative, in any transform.
    """

    @staticmethod
    def forward(task: Task, back: torch.dtype | None, dt: Tensor, *inputs: Tensor) -> Any:
        if back:
            grads, actions_only = iter(inputs), (True,) + _STATES * (False,)
            upstream = [next(grads) if select else None for select in task.selection]
            pulled = pull_back(task, (inputs[0].shape, back), actions_only, dt, *upstream)
            return tuple([x.to(back) for x in pulled if x is not None])
        rows = compute_rows(task, task.dtype, Operands(inputs[0], dt))
        return tuple([x for x in rows if x is not None])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        task, ctx.back, dt, first, *_ = inputs
        # the kernels of the first run may refuse NaN, which a derivative may have
        ctx.task = task._replace(kernels=task.general, plain=False)
        ctx.other = None if ctx.back else first.dtype
        ctx.save_for_backward(dt)
        ctx.save_for_forward(dt)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        pulled = SmoothedRows.apply(ctx.task, ctx.other, *ctx.saved_tensors, *grads)
        return None, None, None, *pulled

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        # linear: the tangent of the rows is what becomes of the tangents of the positions
        return SmoothedRows.apply(ctx.task, ctx.back, *ctx.saved_tensors, *tangents[3:])

    @staticmethod
    def vmap(info: Any, in_dims: Any, task: Task, back: Any, dt: Tensor, *inputs: Tensor) -> Any:
        # The mapped axis becomes more trajectories: kernels run once for all of them. What the
        # program has for each trajectory is repeated.
        program: Any = task.program
        count = info.batch_size
        names = ["stiffness", "weights"] + ["unit"] * (len(dt) > 1)
        repeated = {name: np.concatenate([getattr(program, name)] * count) for name in names}
        task = task._replace(program=replace(program, **repeated))
        mapped = [
            x.expand(count, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(inputs, in_dims[3:], strict=True)
        ]
        dt = dt.repeat(count, 1) if len(dt) > 1 else dt
        results = SmoothedRows.apply(task, back, dt, *(x.flatten(0, 1) for x in mapped))
        return tuple([x.unflatten(0, (count, -1)) for x in results]), (0,) * len(results)


def _sum_shared(grad: Tensor | None, count: int, index: Tensor | None) -> Tensor | None:
    """Sums gradients per trajectory over the trajectories that share a state."""
    if grad is None or (index is None and grad.shape[0] == count):
        return grad
    if index is None:
        return grad.sum(0, keepdim=True)
    # an index that is out of range, whose rows are NaN, names no state
    outside = (index < 0) | (index >= count)
    grad, index = grad.masked_fill(outside[:, None], 0.0), index.clamp(0, count - 1)
    sums = grad.new_zeros(count, grad.shape[1])
    if grad.device.type == "cpu":
        return sums.index_add(0, index, grad)
    # on a device index_add adds in any order, so that bits differ from run to run; index_put sorts
    # before it adds
    return sums.index_put((index,), grad, accumulate=True)


def _read_in_memory(tensors: Sequence[Tensor | None]) -> list[Tensor | None] | None:
    """Prepares tensors for kernels; None where kernels may not read them."""
    if not addressable(tensors):
        return None
    # the memory of a negative view holds the opposite sign, so that it is copied
    return [x.resolve_neg() if x is not None and x.is_neg() else x for x in tensors]


_core, _PRE_DISPATCH = torch._C, torch._C.DispatchKey.PreDispatch


def addressable(tensors: Sequence[Any]) -> bool:
    """Tells whether kernels may read tensors at their addresses, and write results there."""
    # A mode such as that of make_fx, torch.export, FakeTensorMode and FlopCounterMode sees
    # operations before torch's kernels do, and would not see ours. Functional, meta and batched
    # tensors have no memory, and subclasses, such as fake ones, may mean anything by it.
    if (
        _core._len_torch_dispatch_stack()
        or _core._dispatch_tls_is_dispatch_key_included(_PRE_DISPATCH)
        or _core._get_tracing_state()
    ):
        return False
    # every call comes here, so this is a loop: all() over a generator takes longer
    try:
        for x in tensors:
            kind = type(x)
            if x is not None and not (
                (kind is Tensor or kind is Parameter) and (x.data_ptr() or not x.numel())
            ):
                return False
    except RuntimeError:
        return False
    return True


def needs_torch() -> bool:
    """Tells whether torch.func or forward mode is active: they need torch's operations."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def scale_gradient(x: Tensor, factor: float | Tensor) -> Tensor:
    """Multiplies gradients that flow back through x by ``factor``; returns x, bit for bit.

    factor: a number or a tensor that broadcasts to x, in any unit; 0 and negative numbers are
    allowed. Forward-mode tangents are not scaled. In a double backward the factor multiplies
    again, by the chain rule, as in torchlogix's GradFactor. Raises UsageError for a factor that
    requires a gradient, which is not defined.
    """
    if torch.compiler.is_dynamo_compiling():
        from trajcli import _compiled

        # Dynamo compiles again for every number, but not for every tensor
        if isinstance(factor, int | float):
            factor = factor * torch.ones((), dtype=torch.float64, device=x.device)
        return _compiled.call(__name__, "scale_gradient", x, factor)  # type: ignore[no-any-return]
    _require_tensor(x)
    factors: Any = match_library(as_array(factor, "factor"), x)
    if factors.requires_grad:
        raise UsageError(
            "a gradient factor cannot require a gradient",
            where="factor",
            hint="scale_gradient(x, factor.detach())",
        )
    sizes = zip(factors.shape[::-1], x.shape[::-1], strict=False)
    if factors.ndim > x.ndim or any(size not in (1, length) for size, length in sizes):
        raise UsageError(
            "the factor does not broadcast",
            where="factor",
            expected=str(tuple(x.shape)),
            found=str(tuple(factors.shape)),
        )
    scaled: Tensor = _ScaleGradient.apply(x, factors)
    return scaled


def clip_gradient(x: Tensor, *, norm: float | None = None, value: float | None = None) -> Tensor:
    """Clips the gradients that flow back through x, per trajectory; returns x, bit for bit.

    x [B, ...]. norm: the largest Euclidean norm of one trajectory's gradient, which is scaled
    down to it; value: the largest absolute value of an entry. None (the default) clips nothing;
    with both, values are clipped first. Computed in float64, for gradients of any size. A second
    derivative differentiates the clipping. Raises UsageError for a bound that is negative or NaN.
    """
    if torch.compiler.is_dynamo_compiling():
        from trajcli import _compiled

        bounds = {"norm": norm, "value": value}
        return _compiled.call(__name__, "clip_gradient", x, **bounds)  # type: ignore[no-any-return]
    _require_tensor(x)
    bounds = {"norm": norm, "value": value}
    for name, bound in bounds.items():
        bounds[name] = bound = None if bound is None else number(bound, name)
        if bound is not None and not bound >= 0:
            raise UsageError(
                "a bound that is negative or NaN", where=name, expected=">= 0", found=str(bound)
            )
    if norm is None and value is None:
        return x
    clipped: Tensor = _ClipGradient.apply(x, *bounds.values())
    return clipped


def _require_tensor(x: object) -> None:
    if not isinstance(x, Tensor):
        raise UsageError(
            "no tensor", where="x", expected="a torch.Tensor", found=f"a {type(x).__name__}"
        )


class _Identity(Function):
    """Passes x on unchanged; subclasses act on its gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, *_: Any) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        return tangent.view_as(tangent)


class _ScaleGradient(_Identity):
    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (factor,) = ctx.saved_tensors
        # half precision has neither 1e-8 nor 1e5, which a factor may be
        wide = grad.to(torch.complex128 if grad.is_complex() else torch.float64)
        return (wide * factor).to(grad.dtype), None


class _ClipGradient(_Identity):
    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.bounds = inputs[1:]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        norm, value = ctx.bounds
        wide = grad.to(torch.complex128 if grad.is_complex() else torch.float64)
        wide = wide[..., None]  # each entry of [B] is a trajectory
        if value is not None:
            wide = wide.clamp(-value, value)
        if norm is not None and norm < math.inf and wide.numel():
            inner = tuple(range(1, wide.ndim))
            # The norm is computed in units of the largest entry, in which squares neither vanish
            # nor overflow. The unit is a constant to a second derivative: the norm does not depend
            # on it. A gradient of zero has no direction, and is divided by 1.
            unit = wide.detach().abs().amax(inner, keepdim=True)
            zero = unit == 0.0
            unit = torch.where(zero | ~unit.isfinite(), 1.0, unit)
            scaled = wide / unit
            length = torch.where(zero, 1.0, (scaled * scaled).sum(inner, keepdim=True)).sqrt()
            long = torch.where(zero, norm == 0.0, length * unit > norm)
            wide = torch.where(long, scaled / length * norm, wide)
        return wide[..., 0].to(grad.dtype), None, None
