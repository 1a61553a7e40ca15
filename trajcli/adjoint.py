"""Gradients of a block, NumPy in and NumPy out, by the kernels of any backend; gradients of dt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trajcli.arrays import empty, to_numpy, to_torch
from trajcli.inputs import Inputs
from trajcli.kernels.choose import Choice
from trajcli.kernels.program import Array, Cascade, Gradients, Program
from trajcli.modes import PARTS

Arrays = Mapping[str, Any]
NAMES = ("actions", *(f"start_{part}" for part in PARTS), *(f"goal_{part}" for part in PARTS))


def pull_back(
    inputs: Inputs,
    upstream: Callable[[Arrays], Arrays],
    choice: Choice,
    dtype: str,
) -> tuple[Arrays, dict[str, Any]]:
    """Returns the outputs, and the gradients of the inputs per trajectory, NumPy, float64.

    ``upstream`` maps the outputs to their gradients; one that is absent is zero. The result has the
    gradients of all inputs there are, named actions [B, H, D], start_position [B, D], …, goal_…, dt
    [B, n].
    """
    device = None if choice.backend == "native" else choice.device
    program, operands = inputs.program(), inputs.operands(device)
    batch, horizon, dofs = operands.actions.shape
    # the gradient of dt needs outputs that are not rounded
    rows = [empty((batch, inputs.rows, dofs), "float64", device) for _ in PARTS]
    choice.kernels.forward(program, operands, rows)
    outputs = {
        name: to_numpy(values).astype(dtype, copy=False)
        for name, values in zip(PARTS, rows, strict=True)
    }
    arrays = upstream(outputs)
    pulled = [
        None if name not in arrays else arrays[name] if device is None
        else to_torch(arrays[name], device)
        for name in PARTS
    ]  # fmt: skip
    states = [*operands.start, *operands.goal]
    grads = [
        empty((batch, horizon, dofs), "float64", device),
        *(None if part is None else empty((batch, dofs), "float64", device) for part in states),
    ]
    gradients = Gradients(grads[0], grads[1:5], grads[5:])
    choice.kernels.adjoint(program, operands, pulled, gradients)
    named = {
        name: to_numpy(grad) for name, grad in zip(NAMES, grads, strict=True) if grad is not None
    }
    if operands.dt.shape[1] > 1:
        steps = _gradient_of_steps(inputs, arrays)
    else:
        values = [operands.actions, *operands.states()]
        steps = to_numpy(gradient_of_even_dt(program, operands.dt, values, grads, rows, pulled))
    return outputs, {**named, "dt": inputs.unaligned(steps)}


def _gradient_of_steps(inputs: Inputs, upstream: Arrays) -> Any:
    """Returns the gradient of unequal steps per trajectory [B, n], by torch."""
    import torch

    from trajcli.kernels import torch_ops

    operands = inputs.operands("cpu")
    dt = operands.dt.expand(operands.actions.shape[0], -1).clone().requires_grad_()
    wanted = [name in upstream for name in PARTS]
    rows = torch_ops.trajectories(inputs.program(), operands._replace(dt=dt), wanted)
    pairs = [
        (x, torch.as_tensor(upstream[name]).double())
        for name, x in zip(PARTS, rows, strict=True)
        if x is not None and x.requires_grad
    ]
    if not pairs:
        return np.zeros(tuple(dt.shape))
    (grad,) = torch.autograd.grad([x for x, _ in pairs], [dt], [g for _, g in pairs])
    return grad.numpy()


def gradient_of_even_dt(
    program: Program,
    dt: Array,
    inputs: Sequence[Array | None],
    pulled: Sequence[Array | None],
    rows: Sequence[Array | None],
    upstream: Sequence[Array | None],
) -> Array:
    """Returns the gradient of dt [b, 1] for each trajectory, [B, 1] float64, NumPy or torch.

    ``inputs`` are the actions [B, H, D] and four parts of the start and of the goal, gathered per
    trajectory [B, D], with the gradients ``pulled``; ``rows`` are the outputs, with the gradients
    ``upstream``.

    dt only sets the unit of time: x⁽ᵐ⁾·dtᵐ depends on u·dtᵏ, s⁽ʳ⁾·dtʳ and g⁽ʳ⁾·dtʳ alone, k being
    the order of the actions. So, by Euler's theorem on homogeneous functions, in every mode, end
    and convention

        dt·d̄t = k⟨ū, u⟩ + Σ_r r⟨s̄⁽ʳ⁾, s⁽ʳ⁾⟩ + Σ_r r⟨ḡ⁽ʳ⁾, g⁽ʳ⁾⟩ − Σ_m m⟨x̄⁽ᵐ⁾, x⁽ᵐ⁾⟩
    """
    order = program.order if isinstance(program, Cascade) else 0
    # of the actions, four parts of the start, four of the goal, four outputs
    weights = (order, 0, 1, 2, 3, 0, 1, 2, 3, 0, -1, -2, -3)
    total: Any = dt * 0.0
    for weight, values, grad in zip(weights, [*inputs, *rows], [*pulled, *upstream], strict=True):
        if weight and values is not None and grad is not None:
            # contiguous, as sums follow the order of memory, and so does their rounding
            if isinstance(values, np.ndarray):
                products = np.multiply(values, grad, order="C", dtype=np.float64)
            else:
                products = values.double().contiguous() * grad.double().contiguous()
            total = total + weight * products.sum(tuple(range(1, grad.ndim)))[:, None]
    return total / dt
