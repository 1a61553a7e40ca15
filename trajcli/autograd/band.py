"""The band as a Function, its transpose as another.

Points of a state are sums of its scaled parts, y_m = spacingᵐ · x_m, with rational coefficients.
Kernels scale the parts as they read them. What the transpose gives is the gradient of y, from
which those of x and of the spacing follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from trajcli.autograd.folding import (
    Tensors,
    batch_of,
    buffers,
    fold,
    like,
    or_zero,
    unfold,
)
from trajcli.autograd.states import NONE, added, each_own, gathered, or_zeros, scaled, unscaled
from trajcli.kernels.pairs import Pair
from trajcli.kernels.program import (
    BandProgram,
    Evenly,
    Held,
    Listed,
    StatePoints,
    Weights,
    Windows,
    run_program,
)

Coefficients = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True, eq=False)
class BandPlan:
    """What a band is, apart from its tensors.

    ``head``, ``tail``: the coefficients of a state's points; a tail may be the last action, held.
    ``starts``: whether the head's state is the first row. ``of_table``: whether the adjoint is to
    give the gradient of the table, else zeros; ``of_actions``: the type of that of the actions.
    ``evenly``: what the table itself (not a tangent of it) was made of.
    """

    kernels: Any
    head: Coefficients | None
    tail: Coefficients | Held | None
    where: Windows | Listed
    dtype: torch.dtype
    starts: bool = False
    of_table: bool = True
    of_actions: torch.dtype = torch.float64
    evenly: Evenly | None = None

    def of_tangent(self) -> BandPlan:
        """The same for a tangent of the table, or one that stands for many."""
        return replace(self, evenly=None)

    def bare(self) -> BandPlan:
        """Windows alone, in float64."""
        return replace(
            self, dtype=torch.float64, starts=False, of_table=True, of_actions=torch.float64
        )

    def program(
        self,
        actions: Tensor,
        start: Tensors,
        goal: Tensors,
        spacing: Pair | None,
        table: Tensor,
        table_low: Tensor | None,
        rows: Tensors,
    ) -> BandProgram:
        tail = self.tail
        low = torch.zeros_like(table) if table_low is None else table_low
        return BandProgram(
            actions=actions,
            head=None if self.head is None else StatePoints(start, self.head, spacing, rows[0]),
            tail=StatePoints(goal, tail, spacing, rows[1]) if isinstance(tail, tuple) else tail,
            weights=Weights(Pair(table, low), self.where, self.evenly),
            start=tuple(start) if self.starts else None,
            start_rows=rows[0],
        )


class Band(Function):
    """u, s0..s3, g0..g3, spacing (hi, lo), table (hi, lo), rows of s and g, plan → x0..x3.

    s, g: parts of the start and goal state, [B, D] or [S, D] with rows. Absent parts are None, as
    is the spacing where they are scaled already; lo parts are constants. x [B, T, D].
    """

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        actions, start, goal, plan = inputs[0], inputs[1:5], inputs[5:9], inputs[15]
        batch, _, dofs = actions.shape
        shape = (batch, plan.where.count + int(plan.starts), dofs)
        out = buffers(shape, plan.dtype, (*inputs[:10], inputs[11]))
        spacing = _pair(*inputs[9:11])
        program = plan.program(actions, start, goal, spacing, *inputs[11:13], inputs[13:15])
        run_program(program, plan.kernels, out)
        return tuple(out)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.plan = inputs[15]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:15])
        ctx.save_for_forward(*inputs[:15])

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        actions, start, goal, spacing, table = _sorted(saved)
        start_rows, goal_rows = saved[13:]
        plan: BandPlan = ctx.plan
        if all(g is None for g in upstream):
            return (None,) * 16
        direct: Tensors = NONE
        if plan.starts:
            direct = [None if g is None else g[:, 0] for g in upstream]
            upstream = tuple(None if g is None else g[:, 1:] for g in upstream)
        exact = actions.dtype not in (torch.float32, torch.float64)
        plan = replace(
            plan,
            of_table=ctx.needs_input_grad[11],
            of_actions=torch.float64 if exact else actions.dtype,
        )
        found = BandAdjoint.apply(
            *upstream, actions, *start, *goal, spacing, table, start_rows, goal_rows, plan
        )
        of_start, of_spacing = unscaled(found[1:5], start, spacing, start_rows, direct)
        of_goal, more = unscaled(found[5:9], goal, spacing, goal_rows)
        return (
            like(found[0], actions),
            *of_start,
            *of_goal,
            added(of_spacing, more),
            None,
            found[9],
            *NONE,
        )

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
        saved = ctx.saved_tensors
        actions, start, goal, spacing, table = _sorted(saved)
        low, table_low, rows = saved[10], saved[12], saved[13:]
        plan: BandPlan = ctx.plan
        moved = or_zero(tangents[0], actions)
        starts, goals = (
            [or_zero(t, x) for t, x in zip(ts, xs, strict=True)]
            for ts, xs in ((tangents[1:5], start), (tangents[5:9], goal))
        )
        if tangents[9] is None and tangents[11] is None:
            outputs: tuple[Tensor, ...] = Band.apply(
                moved, *starts, *goals, spacing, low, table, table_low, *rows, plan
            )
            return outputs
        inner = replace(plan, starts=False)
        y = [
            *scaled(start, starts, spacing, tangents[9], rows[0]),
            *scaled(goal, goals, spacing, tangents[9], rows[1]),
        ]
        outputs = Band.apply(moved, *y, None, None, table, table_low, None, None, inner)
        if tangents[11] is not None:
            turned = Band.apply(
                actions,
                *start,
                *goal,
                spacing,
                low,
                tangents[11],
                None,
                *rows,
                inner.of_tangent(),
            )
            outputs = tuple(a + b for a, b in zip(outputs, turned, strict=True))
        return _with_first(outputs, starts, rows[0]) if plan.starts else outputs

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[Any, Any]:
        size = info.batch_size
        batch = batch_of(inputs[:1], in_dims[:1])
        folded = _folded(inputs[:15], in_dims[:15], 1, (13, 14), size, batch)
        outputs = Band.apply(*folded, inputs[15].of_tangent())
        return tuple(unfold(x, size) for x in outputs), (0,) * 4


class BandAdjoint(Function):
    """x̄0..x̄3 or None, u, s0..s3, g0..g3, spacing, table, rows of s and g, plan → gradients of u,
    of the scaled parts of s and g (empty where there is none), and of the table."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        upstream, actions, plan = inputs[:4], inputs[4], inputs[17]
        spacing = _pair(inputs[13], None)
        program = plan.program(
            actions, inputs[5:9], inputs[9:13], spacing, inputs[14], None, inputs[15:17]
        )
        (into,) = buffers(actions.shape, plan.of_actions, inputs[:15], 1)
        found, of_start, of_goal, of_table = plan.kernels.band_adjoint(
            upstream,
            actions,
            program.head,
            program.tail,
            program.weights,
            of_table=plan.of_table,
            into=into,
        )
        nothing = actions.new_empty(0, dtype=torch.float64)
        parts = [*(of_start or NONE), *(of_goal or NONE)]
        return (
            found,
            *(nothing.clone() if part is None else part for part in parts),
            torch.zeros_like(inputs[14]) if of_table is None else of_table,
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.plan = inputs[17]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:17])
        ctx.save_for_forward(*inputs[:17])

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Any, ...]:
        given, saved = ctx.saved_tensors[:4], ctx.saved_tensors[4:]
        actions, start, goal, spacing, table = saved[0], saved[1:5], saved[5:9], saved[9], saved[10]
        rows = saved[11:]
        plan: BandPlan = ctx.plan.bare()
        grads: list[Tensor | None] = [None] * 4
        of_actions = of_spacing = of_table = None
        of_start: Tensors = NONE
        of_goal: Tensors = NONE
        if any(g is not None for g in upstream[:9]):
            moved = [
                or_zero(upstream[0], actions),
                *or_zeros(upstream[1:5], start, actions),
                *or_zeros(upstream[5:9], goal, actions),
            ]
            grads = list(Band.apply(*moved, None, None, table, None, None, None, plan))
            if ctx.needs_input_grad[14]:
                of_table = BandAdjoint.apply(*given, *moved, None, table, None, None, plan)[9]
        if upstream[9] is not None:
            plan = plan.of_tangent()
            same, turned = (actions, *start, *goal, spacing), upstream[9]
            more = Band.apply(*same, None, turned, None, *rows, plan)
            grads = [added(a, b) for a, b in zip(grads, more, strict=True)]
            found = BandAdjoint.apply(*given, *same, turned, *rows, replace(plan, of_table=False))
            of_actions = like(found[0], actions)
            of_start, of_spacing = unscaled(found[1:5], start, spacing, rows[0])
            of_goal, rest = unscaled(found[5:9], goal, spacing, rows[1])
            of_spacing = added(of_spacing, rest)
        return (
            *(like(g, x) for g, x in zip(grads, given, strict=True)),
            of_actions,
            *of_start,
            *of_goal,
            of_spacing,
            of_table,
            *NONE[:3],
        )

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
        given, saved = ctx.saved_tensors[:4], ctx.saved_tensors[4:]
        actions, start, goal, spacing, table = saved[0], saved[1:5], saved[5:9], saved[9], saved[10]
        rows = saved[11:]
        plan: BandPlan = ctx.plan
        same = actions, *start, *goal, spacing
        turned = or_zero(tangents[14], table)
        total = list(BandAdjoint.apply(*given, *same, turned, *rows, plan.of_tangent()))
        starts, goals = (
            [or_zero(t, x) for t, x in zip(ts, xs, strict=True)]
            for ts, xs in ((tangents[5:9], start), (tangents[9:13], goal))
        )
        moved = [
            or_zero(tangents[4], actions),
            *scaled(start, starts, spacing, tangents[13], rows[0]),
            *scaled(goal, goals, spacing, tangents[13], rows[1]),
        ]
        total[9] = BandAdjoint.apply(*given, *moved, None, table, None, None, plan)[9]
        if any(t is not None for t in tangents[:4]):
            more = BandAdjoint.apply(*tangents[:4], *same, table, *rows, plan)
            total = [a + b for a, b in zip(total, more, strict=True)]
        return tuple(total)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[Any, Any]:
        size = info.batch_size
        batch = batch_of(inputs[4:5], in_dims[4:5])
        folded = _folded(inputs[:17], in_dims[:17], 5, (15, 16), size, batch)
        table = inputs[14] if in_dims[14] is None else inputs[14].movedim(in_dims[14], 0)
        table = table.expand(size, *table.shape[-4:]) if in_dims[14] is None else table
        count = table.shape[1]
        each = table.expand(size, batch, *table.shape[2:])
        folded[14] = each.reshape(size * batch, *table.shape[2:])
        outputs = BandAdjoint.apply(*folded, inputs[17].of_tangent())
        unfolded = [unfold(x, size) for x in outputs]
        if count == 1:
            unfolded[9] = unfolded[9].sum(1, keepdim=True)
        return tuple(unfolded), (0,) * 10


def _sorted(saved: Sequence[Any]) -> tuple[Any, Any, Any, Any, Any]:
    """Actions, start, goal, spacing and table of a Band's inputs."""
    return saved[0], saved[1:5], saved[5:9], saved[9], saved[11]


def _folded(
    inputs: Sequence[Any],
    dims: Sequence[int | None],
    states: int,
    rows: tuple[int, int],
    size: int,
    batch: int,
) -> list[Any]:
    """Inputs without a mapped dimension, and every trajectory with a state of its own.

    ``states``: where the four parts of the start begin, those of the goal after them; ``rows``:
    where the rows of each are.
    """
    found, places = list(inputs), list(dims)
    for k, at in enumerate(rows):
        for m in range(states + 4 * k, states + 4 * k + 4):
            if found[m] is not None and inputs[at] is not None:
                found[m] = each_own(found[m], places[m], inputs[at], dims[at], size)
                places[m] = 0
        found[at] = None
    return [fold(x, d, size, batch) for x, d in zip(found, places, strict=True)]


def _with_first(
    rows: Sequence[Tensor], first: Sequence[Any], index: Tensor | None
) -> tuple[Tensor, ...]:
    """Rows after those of a start."""
    found = []
    for values, part in zip(rows, first, strict=True):
        zero = values.new_zeros(values.shape[0], 1, values.shape[2])
        row = zero if part is None else zero + gathered(part, index)[:, None].to(values.dtype)
        found.append(torch.cat([row, values], 1))
    return tuple(found)


def _pair(hi: Tensor | None, lo: Tensor | None) -> Pair | None:
    if hi is None:
        return None
    return Pair(hi, torch.zeros_like(hi) if lo is None else lo)
