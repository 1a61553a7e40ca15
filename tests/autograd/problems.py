"""Every mode and option as a function of tensors, small enough for finite differences."""

from __future__ import annotations

from collections.abc import Callable

import torch
from kernels.cases import FORMS, Job, job

from trajcli import State

F64 = torch.float64
Tensors = tuple[torch.Tensor, ...]


def problem(work: Job, form: str) -> tuple[Callable[..., Tensors], Tensors]:
    """A function of tensors (actions, dt, start, goal) and random such tensors."""
    B, H, D = 2, 5 if work.recorded else 3, 1
    random = torch.Generator().manual_seed(H * 7 + B)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=F64, generator=random).requires_grad_()

    n = H - work.recorded
    shape = {"[1,1]": (), "[1,H]": (n,), "[B,1]": (B, 1), "[B,H]": (B, n)}[form]
    dt = (torch.rand(shape, dtype=F64, generator=random) / 2 + 0.75).requires_grad_()
    to_goal = ("ends", "goal") in work.options
    goals = {"central": 1, "bspline": 4}[work.mode] if to_goal else 0
    # all parts of a state in one tensor, because finite differences cost by the number of inputs
    states = [draw(n, B, D) for n in ([] if work.recorded else [4, goals] if goals else [4])]

    def outputs(u: torch.Tensor, dt: torch.Tensor, *states: torch.Tensor) -> Tensors:
        start, *goal = [State(*parts) for parts in states] or [None]
        more = {"goal": goal[0]} if goal else {}
        return tuple(work.trajectory(u, start, dt, **more))

    return outputs, (draw(B, H, D), dt, *states)


SCHEMES = [
    ("clique", "euler"),  # clique has no sums
    *((mode, x) for mode in ("velocity", "acceleration", "jerk") for x in ("euler", "zoh", "foh")),
]
ALIGNMENTS = ({}, {"alignment": "actions"}, {"alignment": "curobo"}, {"convention": "curobo"})
CASES = [
    *(  # each scheme by all shapes of dt, and by all alignments in turns
        (job(mode, scheme=scheme, **ALIGNMENTS[(i + k) % 4]), form)
        for i, (mode, scheme) in enumerate(SCHEMES)
        for k, form in enumerate(FORMS)
    ),
    *(  # each band by two shapes of dt, one of them with steps of their own
        (work, form)
        for k, work in enumerate(
            (
                job("central"),
                job("central", alignment="actions"),
                job("central", alignment="curobo", ends="goal"),
                job("central", recorded=True),
                job("central", convention="curobo", ends="goal"),
                job("clique", recorded=True),
                job("teleport"),
            )
        )
        for form in (FORMS[::3] if k % 2 else FORMS[1:3])
    ),
    *(
        (job("bspline", degree=degree, ends=ends, convention=convention), form)
        for degree in (3, 4, 5)
        for ends in ("plan", "goal")
        for form, convention in (("[1,1]", "standard"), ("[B,1]", "curobo"))
    ),
    (job("bspline", steps=3), "[1,1]"),
]
