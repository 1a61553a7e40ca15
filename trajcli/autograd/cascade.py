"""The cascade as a Function, its transpose as another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from trajcli.arrays import pair
from trajcli.autograd.folding import (
    Tensors,
    batch_of,
    buffers,
    fold,
    like,
    or_zero,
    unfold,
)
from trajcli.autograd.states import added, each_own, gathered, returned
from trajcli.kernels.program import CascadeProgram, run_program
from trajcli.kernels.transpose import action_weights, cascade_gradients, dt_gradient
from trajcli.kernels.transpose import slopes as slopes_of


@dataclass(frozen=True, eq=False)
class CascadePlan:
    """What a cascade is, apart from its tensors; ``kernels`` is the backend's module.

    ``wanted``: the orders whose sources' gradients the adjoint is to give, the others being empty;
    None: all. The gradient of dt needs all. ``of_sources``: their type.
    """

    kernels: Any
    order: int
    scheme: str
    start_row: bool
    recorded: bool
    dtype: torch.dtype
    wanted: tuple[bool, ...] | None = None
    of_sources: torch.dtype = torch.float64

    def bare(self) -> CascadePlan:
        """The relation alone: rows 1..H in float64."""
        return replace(
            self,
            start_row=False,
            recorded=False,
            dtype=torch.float64,
            of_sources=torch.float64,
        )


class Cascade(Function):
    """e0..e3 [B, H, D] or None, s0..s3, dt [b, h], rows of s, plan → x0..x3 [B, T, D].

    s is [B, D] each, or with rows [B] of which each trajectory has [S, D].
    """

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        sources, state, dt, plan = inputs[:4], inputs[4:8], inputs[8], inputs[10]
        actions = sources[plan.order]
        batch, horizon, dofs = actions.shape
        shape = (batch, horizon + int(plan.start_row), dofs)
        out = buffers(shape, plan.dtype, inputs[:9])
        program = CascadeProgram(
            sources=sources,
            state=tuple(pair(part) for part in state),
            dt=dt,
            order=plan.order,
            scheme=plan.scheme,
            start_row=plan.start_row,
            recorded=plan.recorded,
            state_rows=inputs[9],
        )
        run_program(program, plan.kernels, out)
        return tuple(out)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.plan = inputs[10]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:10], *output)
        ctx.save_for_forward(*inputs[:10], *output)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        sources, state, dt, index, rows = saved[:4], saved[4:8], saved[8], saved[9], saved[10:]
        plan: CascadePlan = ctx.plan
        if all(g is None for g in upstream):
            return (None,) * 11
        actions = sources[plan.order]
        shape = tuple(actions.shape)
        if not ctx.needs_input_grad[8]:
            kind = actions.dtype if actions.dtype == torch.float32 else torch.float64
            wanted = tuple(e is not None for e in sources)
            plan = replace(plan, wanted=wanted, of_sources=kind)
        found = CascadeAdjoint.apply(*upstream, dt, plan, shape)
        grad_sources = [like(g, e) for g, e in zip(found[:4], sources, strict=True)]
        grad_state = [like(returned(g, index, s), s) for g, s in zip(found[4:], state, strict=True)]
        grad_dt = None
        if ctx.needs_input_grad[8]:
            own = [gathered(part, index) for part in state]
            slopes = _slopes(_inner(rows, plan), sources, own, dt, plan)
            grad_dt = dt_gradient(found[:4], slopes, dt.shape)
        return (*grad_sources, *grad_state, grad_dt, None, None)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
        saved = ctx.saved_tensors
        sources, state, dt, index, rows = saved[:4], saved[4:8], saved[8], saved[9], saved[10:]
        plan: CascadePlan = ctx.plan
        moved = list(tangents[:4])
        if tangents[8] is not None:
            own = [gathered(part, index) for part in state]
            slopes = _slopes(_inner(rows, plan), sources, own, dt, plan)
            moved = [
                added(e, None if slope is None else slope * tangents[8][:, :, None])
                for e, slope in zip(moved, slopes, strict=True)
            ]
        if moved[plan.order] is None:
            moved[plan.order] = torch.zeros_like(sources[plan.order])
        starts = [or_zero(t, s) for t, s in zip(tangents[4:8], state, strict=True)]
        outputs: tuple[Tensor, ...] = Cascade.apply(*moved, *starts, dt, index, plan)
        return outputs

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[Any, Any]:
        size = info.batch_size
        batch = batch_of(inputs[:4], in_dims[:4])
        given, dims = list(inputs[:9]), list(in_dims[:9])
        if inputs[9] is not None:
            for m in range(4, 8):
                given[m] = each_own(given[m], dims[m], inputs[9], in_dims[9], size)
                dims[m] = 0
        folded = [fold(x, d, size, batch) for x, d in zip(given, dims, strict=True)]
        outputs = Cascade.apply(*folded, None, inputs[10])
        return tuple(unfold(x, size) for x in outputs), (0,) * 4


class CascadeAdjoint(Function):
    """x̄0..x̄3 [B, T, D] or None, dt, plan, shape [B, H, D] → ē0..ē3 [B, H, D], s̄0..s̄3 [B, D]."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        upstream, dt, plan, shape = inputs[:4], inputs[4], inputs[5], inputs[6]
        sources, state = cascade_gradients(
            plan.kernels,
            upstream,
            dt,
            shape,
            order=plan.order,
            scheme=plan.scheme,
            start_row=plan.start_row,
            recorded=plan.recorded,
            wanted=plan.wanted or (True,) * 4,
            of_sources=str(plan.of_sources).removeprefix("torch."),
        )
        return (*sources, *state)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.plan, ctx.shape = inputs[5], inputs[6]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:5], *output)
        ctx.save_for_forward(*inputs[:5], *output)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        given, dt, sources = saved[:4], saved[4], saved[5:9]
        plan = replace(ctx.plan, dtype=torch.float64, wanted=None, of_sources=torch.float64)
        if all(g is None for g in upstream):
            return (None,) * 7
        wanted = ctx.plan.wanted or (True,) * 4
        moved = [g if keep else None for g, keep in zip(upstream[:4], wanted, strict=True)]
        if moved[plan.order] is None:
            moved[plan.order] = torch.zeros_like(sources[plan.order])
        starts = [or_zero(g, s) for g, s in zip(upstream[4:], saved[9:], strict=True)]
        rows = Cascade.apply(*moved, *starts, dt, None, plan)
        grads = [like(g, x) for g, x in zip(rows, given, strict=True)]
        grad_dt = None
        if ctx.needs_input_grad[4]:
            slopes = _slopes(_inner(rows, plan), moved, starts, dt, plan)
            every = _all_sources(ctx, given, dt, sources)
            grad_dt = dt_gradient(every, slopes, dt.shape)
        return (*grads, grad_dt, None, None)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
        saved = ctx.saved_tensors
        dt = saved[4]
        plan: CascadePlan = ctx.plan
        total: list[Tensor] = [torch.zeros_like(x) for x in saved[5:]]
        if any(t is not None for t in tangents[:4]):
            total = list(CascadeAdjoint.apply(*tangents[:4], dt, plan, ctx.shape))
        if tangents[4] is not None:
            sources = _all_sources(ctx, saved[:4], dt, saved[5:9])
            weights = [ebar * tangents[4][:, :, None] for ebar in sources]
            inner, direct = _slopes_transposed(weights, dt, plan)
            moved = CascadeAdjoint.apply(*inner, dt, plan.bare(), ctx.shape)
            total = [a + b for a, b in zip(total, moved, strict=True)]
            total[4:] = [a + b for a, b in zip(total[4:], direct, strict=True)]
        return tuple(t.to(x.dtype) for t, x in zip(total, saved[5:], strict=True))

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[Any, Any]:
        size = info.batch_size
        batch, horizon, dofs = inputs[6]
        folded = [fold(x, d, size, batch) for x, d in zip(inputs[:4], in_dims[:4], strict=True)]
        dt = fold(inputs[4], in_dims[4], size, batch)
        shape = (size * batch, horizon, dofs)
        outputs = CascadeAdjoint.apply(*folded, dt, inputs[5], shape)
        return tuple(unfold(x, size) for x in outputs), (0,) * 8


def _all_sources(
    ctx: Any, upstream: Tensors, dt: Tensor, sources: Sequence[Tensor]
) -> Sequence[Tensor]:
    """The gradients of all four sources, also where the adjoint was to leave some out."""
    if ctx.plan.wanted is None:
        return sources
    every = replace(ctx.plan, wanted=None, of_sources=torch.float64)
    found: Sequence[Tensor] = CascadeAdjoint.apply(*upstream, dt, every, ctx.shape)[:4]
    return found


def _slopes(
    rows: Sequence[Tensor], sources: Tensors, state: Sequence[Tensor], dt: Tensor, plan: CascadePlan
) -> list[Tensor | None]:
    return slopes_of(rows, sources, state, dt, plan.order, plan.scheme)


def _slopes_transposed(
    weights: Sequence[Tensor], dt: Tensor, plan: CascadePlan
) -> tuple[list[Tensor], list[Tensor]]:
    """The transpose of Σ weight·slope as a function of rows 1..H and of the start state."""
    step = dt[:, :, None]
    rows = [torch.zeros_like(w) for w in weights]
    state = [torch.zeros_like(w[:, 0]) for w in weights]

    def push_before(m: int, amount: Tensor) -> None:
        state[m] = state[m] + amount[:, 0]
        rows[m] = rows[m] + torch.cat([amount[:, 1:], torch.zeros_like(amount[:, 0, None])], 1)

    for m in range(plan.order):
        n, weight = plan.order - m, weights[m]
        if plan.scheme == "euler":
            rows[m + 1] = rows[m + 1] + weight
            continue
        now, earlier = action_weights(n, plan.scheme)
        driven = n * step ** (n - 1) * weight
        rows[plan.order] = rows[plan.order] + now * driven
        if earlier:
            push_before(plan.order, earlier * driven)
        for r in range(1, n):
            push_before(m + r, step ** (r - 1) / math.factorial(r - 1) * weight)
    for m in range(plan.order + 1, 4):
        share = -weights[m] / step**2  # of x_{m-1} minus its row before
        rows[m - 1] = rows[m - 1] + share
        push_before(m - 1, -share)
    return rows, state


def _inner(rows: Sequence[Tensor], plan: CascadePlan) -> list[Tensor]:
    """Rows 1..H."""
    return [row[:, 1:] for row in rows] if plan.start_row else list(rows)
