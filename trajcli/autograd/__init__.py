"""Gradients: the kernels as torch.autograd.Functions whose derivatives are Functions again.

For fixed dt a cascade is linear in its sources and start state: x = L(e, s). Its transpose is
the adjoint kernel, (ē, s̄) = Lᵀ(x̄). dt enters the relation of quantity m in row t through one
number, the slope ∂x^m_t/∂dt_t with all else in the relation held; a change of dt acts like a
source of that size. So, with no other kernel:

    forward mode    ẋ = L(ė + slope·ḋt, ṡ)
    backward        (ē, s̄) = Lᵀ(x̄),   d̄t = Σ ē·slope

and the same again for Lᵀ, whose transpose is L. A band is bilinear in the padded sequence and
the weights: its derivatives are bands and adjoints with one of the two replaced. How head, tail
and weights come from state and dt is ordinary torch arithmetic in modes/, which torch
differentiates itself.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trajcli.autograd.band import Band, BandPlan
from trajcli.autograd.cascade import Cascade, CascadePlan
from trajcli.kernels.program import CascadeProgram, Program


def run_differentiable(
    program: Program, kernels: Any, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The four outputs [B, T, D] of a program, differentiable in all of its tensors."""
    outputs: tuple[Tensor, Tensor, Tensor, Tensor]
    if isinstance(program, CascadeProgram):
        plan = CascadePlan(
            kernels, program.order, program.scheme, program.start_row, program.recorded, dtype
        )
        state = [part.hi for part in program.state]
        outputs = Cascade.apply(*program.sources, *state, program.dt, plan)
        return outputs
    head, tail, table = program.head, program.tail, program.weights.table
    start = program.start or (None,) * 4
    weights = program.weights
    shape = BandPlan(kernels, weights.first, weights.phase, dtype, evenly=weights.evenly)
    outputs = Band.apply(
        program.actions,
        *((None, None) if head is None else (head.hi, head.lo.detach())),
        *((None, None) if tail is None else (tail.hi, tail.lo.detach())),
        table.hi,
        table.lo.detach(),
        *start,
        shape,
    )
    return outputs
