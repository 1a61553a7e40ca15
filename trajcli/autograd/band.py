"""The band as a Function, its transpose as another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from trajcli.autograd.folding import batch_of, buffers, fold, like, or_zero, unfold
from trajcli.kernels.pairs import Pair
from trajcli.kernels.program import BandProgram, Evenly, Weights, run_program


@dataclass(frozen=True, eq=False)
class BandPlan:
    """What a band is, apart from its tensors.

    ``of_table``: whether the adjoint is to give the gradient of the table, else zeros;
    ``evenly``: what the table itself (not a tangent of it) was made of.
    """

    kernels: Any
    first: Any
    phase: Any
    dtype: torch.dtype
    of_table: bool = True
    evenly: Evenly | None = None

    def weights(self, hi: Tensor, lo: Tensor | None) -> Weights:
        low = torch.zeros_like(hi) if lo is None else lo
        return Weights(Pair(hi, low), self.first, self.phase, self.evenly)

    def of_tangent(self) -> BandPlan:
        """The same for a tangent of the table, or one that stands for many."""
        return replace(self, evenly=None)


class Band(Function):
    """u, head (hi, lo), tail (hi, lo), table (hi, lo), s0..s3, plan → x0..x3 [B, T, D].

    Absent parts are None; lo parts are constants.
    """

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        actions, head, head_lo, tail, tail_lo, table, table_lo = inputs[:7]
        start, plan = inputs[7:11], inputs[11]
        started = start[0] is not None
        batch, _, dofs = actions.shape
        shape = (batch, len(plan.first) + int(started), dofs)
        out = buffers(shape, plan.dtype, inputs[:11])
        program = BandProgram(
            actions=actions,
            head=_pair(head, head_lo),
            tail=_pair(tail, tail_lo),
            weights=plan.weights(table, table_lo),
            start=start if started else None,
        )
        run_program(program, plan.kernels, out)
        return tuple(out)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.plan = inputs[11]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:11])
        ctx.save_for_forward(*inputs[:11])

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Any, ...]:
        actions, head, _, tail, _, table, _, *start = ctx.saved_tensors
        if all(g is None for g in upstream):
            return (None,) * 12
        grads: list[Tensor | None] = [None] * 4
        if start[0] is not None:
            first_rows = [None if g is None else g[:, 0] for g in upstream]
            grads = [like(g, s) for g, s in zip(first_rows, start, strict=True)]
            upstream = tuple(None if g is None else g[:, 1:] for g in upstream)
        plan = replace(ctx.plan, of_table=ctx.needs_input_grad[5])
        found = BandAdjoint.apply(*upstream, actions, head, tail, table, plan)
        return (
            like(found[0], actions),
            like(found[1], head),
            None,
            like(found[2], tail),
            None,
            found[3],
            None,
            *grads,
            None,
        )

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
        actions, head, _, tail, _, table, table_lo, *start = ctx.saved_tensors
        plan: BandPlan = ctx.plan
        starts: list[Tensor | None] = [None] * 4
        if start[0] is not None:
            starts = [or_zero(t, s) for t, s in zip(tangents[7:11], start, strict=True)]
        moved_head = None if head is None else or_zero(tangents[1], head)
        moved_tail = None if tail is None else or_zero(tangents[3], tail)
        moved = or_zero(tangents[0], actions)
        outputs: tuple[Tensor, ...] = Band.apply(
            moved, moved_head, None, moved_tail, None, table, table_lo, *starts, plan
        )
        if tangents[5] is not None:
            still = [None if s is None else torch.zeros_like(s) for s in start]
            turned = Band.apply(
                actions, head, None, tail, None, tangents[5], None, *still, plan.of_tangent()
            )
            outputs = tuple(a + b for a, b in zip(outputs, turned, strict=True))
        return outputs

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[Any, Any]:
        size = info.batch_size
        indices = (0, 1, 2, 3, 4, 7, 8, 9, 10)
        batch = batch_of([inputs[i] for i in indices], [in_dims[i] for i in indices])
        folded = [fold(x, d, size, batch) for x, d in zip(inputs[:11], in_dims[:11], strict=True)]
        outputs = Band.apply(*folded, inputs[11].of_tangent())
        return tuple(unfold(x, size) for x in outputs), (0,) * 4


class BandAdjoint(Function):
    """x̄0..x̄3 or None, u, head, tail, table, plan → gradients of u, head, tail, table."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        upstream, actions, head, tail, table, plan = inputs[:4], *inputs[4:8], inputs[8]
        *found, of_table = plan.kernels.band_adjoint(
            upstream, actions, head, tail, plan.weights(table, None), of_table=plan.of_table
        )
        given = torch.zeros_like(table) if of_table is None else of_table
        return (*(g.clone() for g in found), given)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.plan = inputs[8]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:8])
        ctx.save_for_forward(*inputs[:8])

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Any, ...]:
        *given, actions, head, tail, table = ctx.saved_tensors
        plan = replace(ctx.plan, dtype=torch.float64, of_table=True)
        if all(g is None for g in upstream):
            return (None,) * 9
        moved = [or_zero(g, x) for g, x in zip(upstream[:3], (actions, head, tail), strict=True)]
        parts = (moved[0], None if head is None else moved[1], None if tail is None else moved[2])
        turned = or_zero(upstream[3], table)
        rows = _run_band(*parts, table, plan)
        of_turned = _run_band(actions, head, tail, turned, plan.of_tangent())
        rows = tuple(a + b for a, b in zip(rows, of_turned, strict=True))
        grads = [like(g, x) for g, x in zip(rows, given, strict=True)]
        through_weights = BandAdjoint.apply(*given, *parts, table, plan)
        through_points = BandAdjoint.apply(*given, actions, head, tail, turned, plan.of_tangent())
        return (
            *grads,
            like(through_points[0], actions),
            like(through_points[1], head),
            like(through_points[2], tail),
            through_weights[3],
            None,
        )

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
        *given, actions, head, tail, table = ctx.saved_tensors
        plan: BandPlan = ctx.plan
        moved = or_zero(tangents[4], actions)
        moved_head = None if head is None else or_zero(tangents[5], head)
        moved_tail = None if tail is None else or_zero(tangents[6], tail)
        turned = or_zero(tangents[7], table)
        a = BandAdjoint.apply(*given, moved, moved_head, moved_tail, table, plan)
        b = BandAdjoint.apply(*given, actions, head, tail, turned, plan.of_tangent())
        total = [b[0], b[1], b[2], a[3]]
        if any(t is not None for t in tangents[:4]):
            c = BandAdjoint.apply(*tangents[:4], actions, head, tail, table, plan)
            total = [x + y for x, y in zip(total, c, strict=True)]
        return tuple(total)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[Any, Any]:
        size = info.batch_size
        batch = batch_of(inputs[:7], in_dims[:7])
        folded = [fold(x, d, size, batch) for x, d in zip(inputs[:7], in_dims[:7], strict=True)]
        table = inputs[7] if in_dims[7] is None else inputs[7].movedim(in_dims[7], 0)
        table = table.expand(size, *table.shape[-4:]) if in_dims[7] is None else table
        count = table.shape[1]
        each = table.expand(size, batch, *table.shape[2:]).reshape(size * batch, *table.shape[2:])
        outputs = BandAdjoint.apply(*folded, each, inputs[8].of_tangent())
        unfolded = [unfold(x, size) for x in outputs]
        if count == 1:
            unfolded[3] = unfolded[3].sum(1, keepdim=True)
        return tuple(unfolded), (0,) * 4


def _run_band(
    actions: Tensor, head: Tensor | None, tail: Tensor | None, table: Tensor, plan: BandPlan
) -> tuple[Tensor, ...]:
    outputs: tuple[Tensor, ...] = Band.apply(
        actions, head, None, tail, None, table, None, *((None,) * 4), plan
    )
    return outputs


def _pair(hi: Tensor | None, lo: Tensor | None) -> Pair | None:
    if hi is None:
        return None
    wide = hi.double()
    return Pair(wide, torch.zeros_like(wide) if lo is None else lo)
