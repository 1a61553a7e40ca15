"""Gradients of a block by torch: the same as trajcli/adjoint.py, on any device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from trajcli.arrays import to_torch
from trajcli.autograd import run_differentiable
from trajcli.inputs import Inputs
from trajcli.modes import PARTS

Arrays = Mapping[str, Any]


def pull_back(
    inputs: Inputs,
    upstream: Callable[[Arrays], Arrays],
    kernels: Any,
    device: str,
    dtype: str,
    wrt: Sequence[str],
) -> tuple[Arrays, dict[str, Any]]:
    """See :func:`trajcli.adjoint.pull_back`; what comes and goes lies in NumPy."""
    leaves, block = _with_leaves(inputs, wrt, device)
    kind = getattr(torch, dtype)
    rows = run_differentiable(block.program(device), kernels, kind)
    outputs = {name: x.detach().cpu().numpy() for name, x in zip(PARTS, rows, strict=True)}
    pulled = upstream(outputs)
    grads = torch.autograd.grad(
        [row for name, row in zip(PARTS, rows, strict=True) if name in pulled],
        list(leaves.values()),
        [to_torch(pulled[name], device).to(kind) for name in PARTS if name in pulled],
        allow_unused=True,
    )
    found = {
        name: (torch.zeros_like(leaf) if grad is None else grad).double().cpu().numpy()
        for (name, leaf), grad in zip(leaves.items(), grads, strict=True)
    }
    return outputs, found


def _with_leaves(inputs: Inputs, wrt: Sequence[str], device: str) -> tuple[dict[str, Any], Inputs]:
    """A block whose inputs are tensors of its own trajectories, those in ``wrt`` to be leaves."""
    leaves: dict[str, Any] = {}
    batch = int(inputs.actions.shape[0])

    def leaf(name: str, tensor: Any, wanted: bool) -> Any:
        if wanted:
            leaves[name] = tensor = tensor.clone().requires_grad_()
        return tensor

    actions = leaf("actions", to_torch(inputs.actions, device), "actions" in wrt)
    states = {
        role: {
            part: leaf(f"{role}_{part}", values, role in wrt)
            for part, values in inputs.gathered(role, device).items()
        }
        for role in ("start", "goal")
    }
    raw = to_torch(inputs.raw_steps(), device).double()
    dt = leaf("dt", raw.expand(batch, raw.shape[1]), "dt" in wrt)
    block = replace(
        inputs,
        actions=actions,
        start=states["start"],
        goal=states["goal"],
        start_index=None,
        goal_index=None,
        dt=dt,
        times=None,
        steps_aligned=inputs.times is not None,
    )
    return leaves, block
