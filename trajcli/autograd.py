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
from trajcli.arrays import apart, as_array, empties, empty, matched, number, traced
from trajcli.errors import UsageError
from trajcli.kernels import torch_ops
from trajcli.kernels.program import Gradients, Operands, Program


def integrate(task: Task, operands: Operands) -> Sequence[Tensor | None]:
    """Returns a program's outputs [B, T, D], differentiable in all operands; None if not wanted."""
    program, dt, plain = task.program, operands.dt, task.plain
    tensors = (dt, operands.actions, *operands.start, *operands.goal)
    indices = (operands.start_index, operands.goal_index)
    of_dt = dt.requires_grad or not (plain or forward_ad.unpack_dual(dt).tangent is None)
    if of_dt and program.of_actions_alone:
        raise UsageError(
            "method smooth has no gradient of dt and times",
            where="dt",
            expected="steps without one",
            hint="dt.detach(), or method savgol, which has it",
        )
    if not plain:
        transformed = needs_torch()
        if transformed and program.of_actions_alone and not traced():
            made = iter(SmoothedRows.apply(task, None, dt, operands.actions))
            return [next(made) if want else None for want in task.wanted]
        if transformed or not addressable((*tensors, *indices)):
            rows = torch_ops.trajectories(program, operands, task.wanted)
            return [None if x is None else x.to(task.dtype) for x in rows]
    if of_dt and dt.shape[1] > 1:
        rows = torch_ops.trajectories(program, operands, task.wanted)
        return _Rounded.apply(task.dtype, *rows)  # type: ignore[no-any-return]
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors if x is not None):
        if not (indices[0] is None and indices[1] is None):
            task = task._replace(indices=indices)
        return Integrate.apply(task, *tensors)  # type: ignore[no-any-return]
    return compute_rows(task, task.dtype, operands)


def integrate_into(task: Task, operands: Operands, rows: Sequence[Tensor | None]) -> None:
    """Writes a program's outputs into rows [B, T, D]; raises UsageError where a gradient would be
    lost, or nothing is computed now."""
    tensors = (operands.dt, operands.actions, *operands.start, *operands.goal)
    given = [x for x in (*tensors, *rows) if x is not None]
    lost = torch.is_grad_enabled() and any(x.requires_grad for x in given)
    if lost or needs_torch() or not addressable(given):
        raise UsageError(
            "out= has no gradient, and is no part of a trace",
            where="out",
            expected="inputs and outputs that require none",
            hint="with torch.no_grad(), or a call without out",
        )
    compute_rows(task, task.dtype, apart(operands, rows), rows)
    for x in rows:  # kernels write unseen: a backward pass that has kept them has to know
        if x is not None and not x.is_inference():
            torch.autograd.graph.increment_version(x)


class Task(NamedTuple):
    """All arguments of a linear function but its tensors.

    ``kernels`` run the first forward and backward pass, ``general`` any later one. ``indices``:
    the start and the goal index. ``plain``: in the first forward pass nothing is transformed or
    traced, and all tensors are in memory.
    """

    program: Program
    kernels: Any
    general: Any
    dtype: torch.dtype
    wanted: tuple[bool, ...]
    indices: tuple[Tensor | None, Tensor | None] = (None, None)
    plain: bool = False

    def later(self) -> Task:
        """Returns the task for passes after the first, whose rows are not rounded."""
        return self._replace(kernels=self.general, dtype=torch.float64, plain=False)


class Integrate(Function):
    """Turns dt, actions and four parts of start and goal into outputs, None if not wanted."""

    @staticmethod
    def forward(ctx: Any, task: Task, dt: Tensor, *inputs: Any) -> tuple[Tensor | None, ...]:
        # the gradient of dt needs outputs that are not rounded
        of_dt = ctx.needs_input_grad[1]
        dtype = torch.float64 if of_dt else task.dtype
        operands = Operands(inputs[0], dt, inputs[1:5], inputs[5:], *task.indices)
        rows = compute_rows(task, dtype, operands)
        ctx.task, ctx.inputs = task, [None if x is None else (x.shape, x.dtype) for x in inputs]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(dt, *((*inputs, *rows) if of_dt else ()))
        if dtype == task.dtype:
            return tuple(rows)
        return tuple([None if x is None else x.to(task.dtype) for x in rows])

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> tuple[Any, ...]:
        task: Task = ctx.task
        _, of_dt, *needed = ctx.needs_input_grad
        dt, *saved = ctx.saved_tensors
        wanted = tuple(
            x is not None and (of_dt or need) for x, need in zip(ctx.inputs, needed, strict=True)
        )
        shape, dtype = ctx.inputs[0]
        # the gradient of dt needs gradients that are not rounded
        actions = shape, torch.float64 if of_dt else dtype
        pull = PullBack.apply if torch.is_grad_enabled() else pull_back
        pulled = pull(task, actions, wanted, dt, *upstream)
        indices = (None, *(task.indices[:1] * 4), *(task.indices[1:] * 4))
        grads = [
            _summed(grad, about[0][0], index) if need and about is not None else None
            for grad, about, need, index in zip(pulled, ctx.inputs, needed, indices, strict=True)
        ]
        steps = None
        if of_dt:  # from the products of all inputs, outputs and their gradients
            inputs, rows = saved[:9], saved[9:]
            if torch.is_grad_enabled() and task.dtype != torch.float64:
                # saved rows that are not rounded are no outputs, and have no derivatives
                rows = Integrate.apply(task.later(), dt, *inputs)
            operands = Operands(inputs[0], dt, inputs[1:5], inputs[5:], *task.indices)
            values = (operands.actions, *operands.states())
            steps = gradient_of_even_dt(task.program, dt, values, pulled, rows, upstream)
        return None, steps, *grads


class _Rounded(Function):
    """Rounds rows of float64 to a type. Their gradients become contiguous, because torch's sums
    follow the order of memory, and so does their rounding."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *rows: Tensor | None) -> tuple[Tensor | None, ...]:
        ctx.set_materialize_grads(False)
        rounded = [None if x is None else x.to(dtype, copy=True) for x in rows]
        pairs = zip(rounded, ctx.needs_input_grad[1:], strict=True)
        ctx.mark_non_differentiable(*[x for x, need in pairs if x is not None and not need])
        return tuple(rounded)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return None, *[None if x is None else x.contiguous().double() for x in grads]


class PullBack(Function):
    """Turns gradients of the outputs into those of the actions and of the states per trajectory."""

    @staticmethod
    def forward(
        ctx: Any, task: Task, actions: Any, wanted: tuple[bool, ...], dt: Tensor, *upstream: Any
    ) -> tuple[Tensor | None, ...]:
        grads = pull_back(task, actions, wanted, dt, *upstream)
        ctx.task, ctx.shape = task, actions[0]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(dt, *((*upstream, *grads) if ctx.needs_input_grad[3] else ()))
        ctx.wanted = tuple(x is not None for x in upstream)
        return grads

    @staticmethod
    def backward(ctx: Any, *seconds: Any) -> tuple[Any, ...]:
        dt, *saved = ctx.saved_tensors
        present = [x for x in seconds if x is not None]
        if not present:
            return (None,) * 8
        if seconds[0] is None:
            seconds = (present[0].new_zeros(()).expand(ctx.shape), *seconds[1:])
        of_dt = ctx.needs_input_grad[3]
        wanted = (True,) * 4 if of_dt else ctx.wanted
        task = ctx.task.later()._replace(wanted=wanted, indices=(None, None))
        rows = Integrate.apply(task, dt, *seconds)
        steps = None
        if of_dt:
            steps = gradient_of_even_dt(task.program, dt, seconds, saved[4:], rows, saved[:4])
        grads = [x if want else None for x, want in zip(rows, ctx.wanted, strict=True)]
        return None, None, None, steps, *grads


def compute_rows(
    task: Task, dtype: torch.dtype, operands: Operands, out: Sequence[Tensor | None] | None = None
) -> Sequence[Tensor | None]:
    """Computes what Integrate does, without its place in the graph."""
    actions, dt, start, goal, *indices = operands
    if not task.plain:
        plain = _in_memory((actions, *start, *goal))
        if plain is None:
            found = torch_ops.trajectories(task.program, operands, task.wanted)
            return [None if x is None else x.to(dtype) for x in found]
        operands = Operands(plain[0], dt, plain[1:5], plain[5:], *indices)
    batch, _, dofs = actions.shape
    shape, device = (batch, task.program.rows, dofs), "cpu" if dt.is_cpu else str(dt.device)
    rows = empties(shape, str(dtype)[6:], device, task.wanted) if out is None else out
    task.kernels.forward(task.program, operands, rows)
    return rows


def pull_back(
    task: Task, actions: Any, wanted: tuple[bool, ...], dt: Tensor, *upstream: Any
) -> tuple[Tensor | None, ...]:
    """Computes what PullBack does, without its place in the graph."""
    (batch, _, dofs), dtype = shape, _ = actions
    plain = _in_memory(upstream)
    if plain is not None:
        # kernels write no half precision
        kind = dtype if dtype in (torch.float32, torch.float64) else torch.float64
        grads = [empty(shape, str(kind)[6:], str(dt.device)) if wanted[0] else None]
        grads += [dt.new_empty((batch, dofs)) if want else None for want in wanted[1:]]
        # only the shape of the actions matters
        like = dt.new_empty(()).expand(shape) if grads[0] is None else grads[0]
        gradients = Gradients(grads[0], grads[1:5], grads[5:9])
        task.kernels.adjoint(task.program, Operands(like, dt), plain, gradients)
        if grads[0] is not None and kind != dtype:
            grads[0] = grads[0].to(dtype)
    else:
        pulled = torch_ops.pull_back(task.program, shape, dt, upstream)
        grads = [x if want else None for x, want in zip(pulled, wanted, strict=True)]
    return tuple(grads)


class SmoothedRows(Function):
    """Turns positions into the wanted rows of a smoother; ``back``, gradients of rows into that of
    positions, of this type. Each is the other's derivative, whatever the transform."""

    @staticmethod
    def forward(task: Task, back: torch.dtype | None, dt: Tensor, *inputs: Tensor) -> Any:
        if back:
            given, of_positions = iter(inputs), (True,) + 8 * (False,)
            upstream = [next(given) if want else None for want in task.wanted]
            grads = pull_back(task, (inputs[0].shape, back), of_positions, dt, *upstream)
            return tuple([x.to(back) for x in grads if x is not None])
        rows = compute_rows(task, task.dtype, Operands(inputs[0], dt))
        return tuple([x for x in rows if x is not None])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        task, ctx.back, dt, first, *_ = inputs
        # the kernels of the first run may look for NaN, which a derivative may have
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
        return SmoothedRows.apply(ctx.task, ctx.back, *ctx.saved_tensors, *tangents[3:])

    @staticmethod
    def vmap(info: Any, in_dims: Any, task: Task, back: Any, dt: Tensor, *inputs: Tensor) -> Any:
        program: Any = task.program
        count = info.batch_size
        names = ["stiffness", "weights"] + ["unit"] * (len(dt) > 1)
        more = {name: np.concatenate([getattr(program, name)] * count) for name in names}
        task = task._replace(program=replace(program, **more))
        many = [
            x.expand(count, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(inputs, in_dims[3:], strict=True)
        ]
        dt = dt.repeat(count, 1) if len(dt) > 1 else dt
        made = SmoothedRows.apply(task, back, dt, *(x.flatten(0, 1) for x in many))
        return tuple([x.unflatten(0, (count, -1)) for x in made]), (0,) * len(made)


def _summed(grad: Tensor | None, count: int, index: Tensor | None) -> Tensor | None:
    """Sums gradients per trajectory over those that share a state.

    Those of an index that is out of range, whose rows are NaN, are gradients of no state.
    """
    if grad is None or (index is None and grad.shape[0] == count):
        return grad
    if index is None:
        return grad.sum(0, keepdim=True)
    outside = (index < 0) | (index >= count)
    grad, index = grad.masked_fill(outside[:, None], 0.0), index.clamp(0, count - 1)
    sums = grad.new_zeros(count, grad.shape[1])
    if grad.device.type == "cpu":
        return sums.index_add(0, index, grad)
    # index_add would add in any order there; this sorts before it adds
    return sums.index_put((index,), grad, accumulate=True)


def _in_memory(tensors: Sequence[Tensor | None]) -> list[Tensor | None] | None:
    """Returns the tensors as kernels may read them; None where they may not. A negative view is
    copied: its memory holds the opposite sign."""
    if not addressable(tensors):
        return None
    return [x.resolve_neg() if x is not None and x.is_neg() else x for x in tensors]


_core, _PRE_DISPATCH = torch._C, torch._C.DispatchKey.PreDispatch


def addressable(tensors: Sequence[Any]) -> bool:
    """Returns whether kernels may read tensors at their addresses, and write results there.

    Functional, meta and batched tensors have no memory, and subclasses, such as fake ones, mean
    what they like by it. A mode such as that of make_fx, torch.export, FakeTensorMode and
    FlopCounterMode, which sees operations before torch's kernels do, would not see ours.
    """
    if (
        _core._len_torch_dispatch_stack()
        or _core._dispatch_tls_is_dispatch_key_included(_PRE_DISPATCH)
        or _core._get_tracing_state()
    ):
        return False
    try:  # a loop, as each small call comes here
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
    """Returns whether torch.func or forward mode is active: they need torch's operations."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def needs_operator() -> bool:
    """Returns whether an operator stands for kernels: where torch records or imitates operations,
    but not in torch.func and forward mode, in which it would have no tangents."""
    return traced() and not needs_torch()


def scale_gradient(x: Tensor, factor: float | Tensor) -> Tensor:
    """Returns x, bit for bit; multiplies gradients that flow back through it by ``factor``.

    factor: a number or a tensor that broadcasts to x, in any unit; 0 and negative numbers are
    allowed. Forward-mode tangents are not scaled. In a double backward the factor multiplies
    again, by the chain rule, as in torchlogix's GradFactor. Raises UsageError for a factor that
    requires a gradient, which is not defined.
    """
    if torch.compiler.is_dynamo_compiling():
        from trajcli import _compiled

        if isinstance(factor, int | float):  # a number that changes is compiled again, a tensor not
            factor = factor * torch.ones((), dtype=torch.float64, device=x.device)
        return _compiled.call(__name__, "scale_gradient", x, factor)  # type: ignore[no-any-return]
    _require_tensor(x)
    factors: Tensor = matched(as_array(factor, "factor"), x)
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
    """Returns x, bit for bit; clips the gradients that flow back, per trajectory.

    x [B, ...]. norm: the largest Euclidean norm of one trajectory's gradient, which is scaled
    down to it; value: the largest absolute value of an entry. None (the default) clips nothing;
    with both, values are clipped first. Computed in float64, for gradients of any size. A second
    derivative differentiates the clipping.
    """
    if torch.compiler.is_dynamo_compiling():
        from trajcli import _compiled

        bounds = {"norm": norm, "value": value}
        return _compiled.call(__name__, "clip_gradient", x, **bounds)  # type: ignore[no-any-return]
    _require_tensor(x)
    given = {"norm": norm, "value": value}
    bounds = {k: None if bound is None else number(bound, k) for k, bound in given.items()}
    for name, bound in bounds.items():
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
    """Returns x unchanged; subclasses act on its gradient."""

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
        return (grad.to(_wide(grad)) * factor).to(grad.dtype), None


def _wide(x: Tensor) -> torch.dtype:
    """Returns the type in which gradients are changed: half precision has neither 1e-8 nor 1e5."""
    return torch.complex128 if x.is_complex() else torch.float64


class _ClipGradient(_Identity):
    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.bounds = inputs[1:]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        norm, value = ctx.bounds
        wide = grad.to(_wide(grad))[..., None]  # each entry of [B] is a trajectory
        if value is not None:
            wide = wide.clamp(-value, value)
        if norm is not None and norm < math.inf and wide.numel():
            inner = tuple(range(1, wide.ndim))
            # length and direction do not depend on the unit in which they are computed; in this one
            # squares neither vanish nor overflow
            unit = wide.detach().abs().amax(inner, keepdim=True)
            zero = unit == 0.0
            unit = torch.where(zero | ~unit.isfinite(), 1.0, unit)
            share = wide / unit
            length = torch.where(zero, 1.0, (share * share).sum(inner, keepdim=True)).sqrt()
            long = torch.where(zero, norm == 0.0, length * unit > norm)
            wide = torch.where(long, share / length * norm, wide)
        return wide[..., 0].to(grad.dtype), None, None
