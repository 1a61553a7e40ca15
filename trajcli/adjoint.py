"""Gradients of a block, NumPy in and NumPy out, by the kernels of any backend; gradients of dt."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trajcli.arrays import empty_arrays, to_numpy, to_torch
from trajcli.inputs import Inputs
from trajcli.kernels.choose import Choice
from trajcli.kernels.program import Array, Cascade, Floats, Gradients, Program
from trajcli.modes import QUANTITIES, Mode

Arrays = Mapping[str, Any]
NAMES = "actions", *(f"{role}_{part}" for role in ("start", "goal") for part in QUANTITIES)


def pull_back(
    inputs: Inputs, upstream: Callable[[Arrays], Arrays], choice: Choice, dtype: str
) -> tuple[Arrays, dict[str, Any]]:
    """Computes the outputs, and the gradients of the inputs per trajectory, NumPy in float64.

    ``upstream`` maps the outputs to their gradients, absent ones being zero. The gradients are
    actions [B, H, D], start_position [B, D], …, goal_…, dt [B, n], of inputs that are present.
    """
    device = None if choice.backend == "native" else choice.device
    program, operands = inputs.program(), inputs.operands(device)
    batch, horizon, dofs = operands.actions.shape
    # the gradient of dt needs outputs that are not rounded
    rows = empty_arrays((batch, inputs.rows, dofs), "float64", device, [True] * 4)
    choice.kernels.forward(program, operands, rows)
    outputs = {
        name: to_numpy(values).astype(dtype, copy=False)
        for name, values in zip(QUANTITIES, rows, strict=True)
    }
    arrays = upstream(outputs)
    pulled = [arrays.get(name) for name in QUANTITIES]
    if device is not None:
        pulled = [x if x is None else to_torch(x, device) for x in pulled]
    states = [part is not None for part in (*operands.start, *operands.goal)]
    grads = empty_arrays((batch, horizon, dofs), "float64", device, [True])
    grads += empty_arrays((batch, dofs), "float64", device, states)
    gradients = Gradients(grads[0], grads[1:5], grads[5:])
    choice.kernels.adjoint(program, operands, pulled, gradients)
    named = {
        name: to_numpy(grad) for name, grad in zip(NAMES, grads, strict=True) if grad is not None
    }
    if operands.dt.shape[1] == 1:
        values = [operands.actions, *operands.states()]
        steps = to_numpy(gradient_of_even_dt(program, operands.dt, values, grads, rows, pulled))
    elif isinstance(program, Cascade) and not program.recorded:
        start = [None if part is None else to_numpy(part) for part in operands.states()[:4]]
        dt = to_numpy(operands.dt)
        steps = _gradient_of_cascade_steps(program, dt, start, [*map(to_numpy, rows)], arrays)
    else:
        # the weights of a band are rational functions of its steps: torch differentiates them
        import torch

        from trajcli.kernels import torch_ops

        operands = inputs.operands("cpu")
        even: Any = operands.dt
        operands = operands._replace(dt=even.expand(batch, -1))
        row_grads = [torch.as_tensor(arrays[x]) if x in arrays else None for x in QUANTITIES]
        with torch.no_grad():
            steps = torch_ops.gradient_of_steps(program, operands, row_grads).numpy()
    return outputs, {**named, "dt": inputs.dt_gradient(steps)}


def _gradient_of_cascade_steps(
    program: Cascade,
    dt: Floats,
    start: Sequence[Floats | None],
    rows: Sequence[Floats],
    upstream: Arrays,
) -> Floats:
    """Computes the gradient of the unequal steps dt [b, n] of a cascade, [B, n], without torch."""
    # Row t follows from row t − 1 by powers of dt_t, so the gradient is Σ_m ⟨λ_m, ∂x_m/∂dt_t⟩. Here
    # λ_m is the gradient of x_m in row t by all rows from t on: a running sum from the end below
    # the order of the actions, differences above it. Coefficients are those of Cascade.
    order, first, used = program.action_order, int(program.start_row), program.used
    step = dt[:, :used, None]
    # x_m in each row, and in the row before it, which for the first is the start state
    now = [x[:, first:] for x in rows]
    before = [np.roll(x, 1, axis=1) for x in now]
    for m, part in enumerate(start):
        before[m][:, 0] = 0.0 if part is None else part
    adjoint = [
        upstream[name][:, first:].astype(np.float64) if name in upstream else np.zeros_like(x)
        for name, x in zip(QUANTITIES, now, strict=True)
    ]

    def power(r: int) -> Floats:
        return step**r / (math.factorial(r) if program.is_exact else 1)

    total = np.zeros(now[0].shape[:2])
    for m in range(order):
        # λ_m = x̄_m + λ_m of the next row + Σ_r c_r·λ_{m−r} of the next row, by the recurrence of
        # the next row: a row passes its gradient on to the one before
        for r in range(1, m + 1):
            adjoint[m][:, :-1] += (power(r) * adjoint[m - r])[:, 1:]
        adjoint[m] = adjoint[m][:, ::-1].cumsum(1)[:, ::-1]
        # dt·∂x_m/∂dt: each term of x_m is a power of dt, and is multiplied by its exponent
        n = order - m
        held = step**n / (math.factorial(n + program.is_linear) if program.is_exact else 1)
        slope = n * held * now[order]
        if program.is_linear:
            slope += n * n * held * before[order]
        for r in range(1, n):
            slope += r * power(r) * before[m + r]
        # without a gradient of x_m its slope does not count, even where it is infinite
        if adjoint[m].any():
            total += (adjoint[m] * slope).sum(2)
    # Above the order of the actions x_m is a difference divided by dt, so dt·∂x_m/∂dt = −x_m. The
    # highest order comes first, as it passes its gradient down.
    for m in range(3, order, -1):
        if m < 3:
            share = adjoint[m + 1] / step
            adjoint[m] += share
            adjoint[m][:, :-1] -= share[:, 1:]
        if adjoint[m].any():
            total -= (adjoint[m] * now[m]).sum(2)
    # no output depends on steps behind the last row
    gradient = np.zeros((len(total), dt.shape[1]))
    gradient[:, :used] = total / step[:, :, 0]
    return gradient


def gradient_of_even_dt(
    program: Program | Mode,
    dt: Array,
    inputs: Sequence[Any],
    pulled: Sequence[Any],
    rows: Sequence[Any],
    upstream: Sequence[Any],
) -> Any:
    """Computes the gradient of dt [b, 1] for each trajectory, [B, 1] float64, NumPy or torch.

    ``inputs`` are the actions [B, H, D] and four parts of the start and of the goal, gathered per
    trajectory [B, D], with the gradients ``pulled``; ``rows`` are the outputs, with the gradients
    ``upstream``.

    dt only sets the unit of time: x⁽ᵐ⁾·dtᵐ depends on u·dtᵏ, s⁽ʳ⁾·dtʳ and g⁽ʳ⁾·dtʳ alone, k being
    the order of the actions. So, by Euler's theorem on homogeneous functions, in every mode, end
    and convention

        dt·d̄t = k⟨ū, u⟩ + Σ_r r⟨s̄⁽ʳ⁾, s⁽ʳ⁾⟩ + Σ_r r⟨ḡ⁽ʳ⁾, g⁽ʳ⁾⟩ − Σ_m m⟨x̄⁽ᵐ⁾, x⁽ᵐ⁾⟩
    """
    # the weight k, r or −m of the actions, four parts of the start, four of the goal, four outputs
    weights = (program.action_order, 0, 1, 2, 3, 0, 1, 2, 3, 0, -1, -2, -3)
    total: Any = dt * 0.0
    for weight, values, grad in zip(weights, [*inputs, *rows], [*pulled, *upstream], strict=True):
        if weight and values is not None and grad is not None:
            # sums follow the order of memory, and so does their rounding: contiguous arrays give
            # the same bits for every layout
            if isinstance(values, np.ndarray):
                products = np.multiply(values, grad, order="C", dtype=np.float64)
            else:
                products = values.double().contiguous() * grad.double().contiguous()
            total = total + weight * products.sum(tuple(range(1, grad.ndim)))[:, None]
    return total / dt
