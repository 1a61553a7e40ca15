"""Gradients on NumPy arrays: forward and back through a mode without torch.

The kernels have their transposes; how a mode makes a program of its inputs is transposed by the
mode (:meth:`Mode.pull_back`). Torch's way to the same numbers is autograd/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trajcli.inputs import Inputs
from trajcli.kernels.program import BandProgram, CascadeProgram, run_program
from trajcli.kernels.transpose import cascade_gradients, dt_gradient, slopes
from trajcli.modes import PARTS
from trajcli.modes.pulling import Pulled, PulledProgram

Arrays = Mapping[str, Any]
Pull = Callable[[Arrays], Arrays]
"""From the outputs to their upstream gradients, those that are not zero."""


def pull_back(
    inputs: Inputs, upstream: Pull, kernels: Any, dtype: str, wrt: Sequence[str]
) -> tuple[Arrays, dict[str, Any]]:
    """The outputs, and the gradients of every trajectory's inputs, float64.

    The latter are named actions [B, H, D], start_position [B, D], …, goal_…, dt [B, n]; those in
    ``wrt`` (actions, start, goal, dt) are given.
    """
    actions = np.asarray(inputs.actions)
    batch, _, dofs = actions.shape
    start, goal = (_four(inputs.gathered(role, None)) for role in ("start", "goal"))
    dt, stretch = inputs.steps(), inputs.reach
    program = inputs.mode.program(stretch, actions, start, goal, dt, inputs.recorded)
    rows = [np.empty((batch, inputs.rows, dofs), dtype) for _ in PARTS]
    run_program(program, kernels, rows)
    outputs = dict(zip(PARTS, rows, strict=True))
    given = upstream(outputs)
    pulled = [given.get(name) for name in PARTS]
    if isinstance(program, CascadeProgram):
        through = _cascade(program, pulled, rows, kernels, "dt" in wrt)
    else:
        through = _band(program, pulled, kernels, "dt" in wrt)
    found = inputs.mode.pull_back(through, stretch, start, goal, dt, inputs.recorded)
    return outputs, _named(found, inputs, wrt)


def _cascade(
    program: CascadeProgram, upstream: Sequence[Any], rows: Sequence[Any], kernels: Any, of_dt: bool
) -> PulledProgram:
    order, dt = program.order, program.dt
    actions = program.sources[order]
    assert actions is not None
    shape = tuple(actions.shape)
    sources, state = cascade_gradients(
        kernels,
        upstream,
        dt,
        shape,
        order=order,
        scheme=program.scheme,
        start_row=program.start_row,
        recorded=program.recorded,
        wanted=[of_dt or m == order for m in range(4)],
    )
    steps = None
    if of_dt:
        inner = [row[:, 1:] if program.start_row else row for row in rows]
        begin = [part.hi for part in program.state]
        found = slopes(inner, (None,) * 4, begin, dt, order, program.scheme)
        steps = dt_gradient(sources, found, (shape[0] or 1, dt.shape[1]))
    return PulledProgram(sources[order], state=state, steps=steps)


def _band(
    program: BandProgram, upstream: Sequence[Any], kernels: Any, of_dt: bool
) -> PulledProgram:
    start: list[Any] = [None] * 4
    if program.start is not None:
        start = [None if g is None else g[:, 0].astype(np.float64) for g in upstream]
        upstream = [None if g is None else g[:, 1:] for g in upstream]
    actions, of_head, of_tail, _ = kernels.band_adjoint(
        upstream, program.actions, program.head, program.tail, program.weights, of_table=False
    )
    return PulledProgram(
        actions,
        head=of_head,
        tail=of_tail,
        state=start,
        of_dt=of_dt,
        program=program,
        upstream=upstream,
        kernels=kernels,
    )


def _four(parts: Mapping[str, Any]) -> list[Any]:
    return [parts.get(name) for name in PARTS]


def _named(found: Pulled, inputs: Inputs, wrt: Sequence[str]) -> dict[str, Any]:
    """The gradients of what is given, under its name."""
    named: dict[str, Any] = {"actions": found.actions} if "actions" in wrt else {}
    for role, grads in (("start", found.start), ("goal", found.goal)):
        shape = (len(found.actions), found.actions.shape[2])
        for name, grad in zip(PARTS, grads, strict=True):
            if role in wrt and name in getattr(inputs, role):
                named[f"{role}_{name}"] = np.zeros(shape) if grad is None else grad
    if "dt" in wrt:
        named["dt"] = inputs.unaligned(found.steps)
    return named
