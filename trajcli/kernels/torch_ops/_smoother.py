"""Computes the smoothing spline, :class:`trajcli.kernels.program.Smoother`, in plain torch.

The recursion is the square-root information form from an exactly diffuse start. Each step takes a
QR of three kinds of rows: those that penalise the step's noise, the information on the state so
far, and the measured row. The solution then follows from the last row to the first (C. Paige and
M. Saunders, "Least squares estimation of discrete linear dynamic systems using orthogonal
transformations", SIAM J. Numer. Anal. 14, 1977). Normal equations would lose all digits at a cutoff
of a thousandth of the rate.

A QR eliminates the noise of its step. Over a step that is far, longer than 4/(2π·cutoff), the noise
is the small difference of large numbers, so that the state before the step is eliminated instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from trajcli.kernels.least_squares import control, penalty
from trajcli.kernels.program import Smoother

if TYPE_CHECKING:
    from torch import Tensor


class _Lanes(NamedTuple):
    """Columns [T, n], one for each dof; ``shift`` [n] was subtracted from the values."""

    values: Tensor
    weights: Tensor
    steps: Tensor
    stiffness: Tensor
    unit: Tensor
    shift: Tensor


def outputs(
    program: Smoother, positions: Tensor, dt: Tensor, selection: Sequence[bool]
) -> list[Tensor | None]:
    """Computes rows [B, T, D] of positions [B, T, D] and dt [b, h] in float64."""
    batch, count, dofs = positions.shape
    m, lanes = program.order, _lanes(program, positions, dt)
    states, noises, _ = _solve(m, lanes)
    rows: list[Tensor | None] = []
    for k, select in enumerate(selection):
        if not select:
            rows.append(None)
            continue
        if k < m:
            values = torch.stack([state[:, k] for state in states])
        else:
            # The state ends at order m − 1. Higher derivatives at the beginning of a step follow
            # from its noise. They are zero in the last row: a natural spline ends so.
            control_row = control(m)[2 * m - 1 - k] if k < 2 * m else np.zeros(m)
            weights = control_row * (-1.0) ** (k - m)
            controls = []
            for step, noise in zip(lanes.steps, noises, strict=False):
                terms = [float(w) * noise[:, i] / step ** (k - i) for i, w in enumerate(weights)]
                controls.append(sum(terms[1:], terms[0]))
            values = torch.stack([*controls, torch.zeros_like(lanes.unit)])
        values = values / lanes.unit**k if k else values + lanes.shift
        rows.append(values.reshape(count, batch, dofs).transpose(0, 1))
    return rows


def measure(program: Smoother, positions: Tensor, dt: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Computes Σ w·r² of the residuals r and the sums of leverages, [B, D], and r [B, T, D]."""
    lanes = _lanes(program, positions, dt)
    states, _, leverages = _solve(program.order, lanes, leverages=True)
    residuals = lanes.values - torch.stack([state[:, 0] for state in states])
    shape = (positions.shape[0], positions.shape[2])
    sums = (lanes.weights * residuals**2).sum(0), torch.stack(leverages).sum(0)
    rows = residuals.reshape(positions.shape[1], *shape).transpose(0, 1)
    return sums[0].reshape(shape), sums[1].reshape(shape), rows


def _lanes(program: Smoother, positions: Tensor, dt: Tensor) -> _Lanes:
    batch, count, dofs = positions.shape

    # [b, t, d] → [t, n]
    def columns(values: Tensor) -> Tensor:
        return values.expand(batch, -1, dofs).transpose(0, 1).reshape(-1, batch * dofs)

    def to_device(values: object) -> Tensor:
        return torch.as_tensor(values, dtype=torch.float64, device=dt.device)

    values = columns(positions)
    weights = columns(to_device(program.weights))
    values = values.masked_fill(weights == 0.0, 0.0)
    unit = to_device(program.unit).reshape(-1, 1, 1)
    steps = dt[..., None].expand(-1, max(count - 1, 0), -1) if dt.shape[1] == 1 else dt[..., None]
    # Differences to the first row with a weight: rows that are all equal become exactly zero, and
    # so do their derivatives. Values about zero lose fewer digits.
    first = values.gather(0, (weights > 0.0).double().argmax(0)[None])[0]
    rises = (values - first).masked_fill(weights == 0.0, 0.0)
    mean = (weights * rises).sum(0) / weights.sum(0)
    stiffness = to_device(program.stiffness).expand(batch, dofs).reshape(-1)
    scaled = columns(steps / unit)
    return _Lanes(rises - mean, weights, scaled, stiffness, columns(unit)[0], first + mean)


def _solve(m: int, lanes: _Lanes, leverages: bool = False) -> tuple[list[Tensor], ...]:
    """Solves for rows' states [n, m], the noises after them [n, m] and, on demand, leverages."""
    penalty_rows = torch.as_tensor(penalty(m), device=lanes.values.device)
    count, zero = len(lanes.values), lanes.weights.new_zeros(lanes.values.shape[1], m, m)
    # the square root of the information on the state so far, and its right-hand side
    root, known, side = lanes.weights.sqrt(), zero, zero[:, 0]
    # the last step leads to a state of zero by its noise alone
    steps = torch.cat([lanes.steps, torch.zeros_like(root[:1])])
    far = (steps / 4.0) ** m > lanes.stiffness.sqrt()
    backs, aheads = _taylor(m, -steps.masked_fill(far, 0.0)), _taylor(m, steps)
    far = far[..., None, None]
    power = torch.arange(m, device=zero.device) - m + 0.5
    # of each step: what gives its noise e (or, far, the state before it) by the next state z, as
    # e = k − K·z: k, K, and the inverse of the factor D
    factors = []
    for t in range(count):
        # the information and the measured row, as equations of the next state: x = back·(z − e)
        measured = torch.cat([root[t][:, None, None], zero[:, :1, 1:]], 2)
        rows = torch.cat([known, measured], 1) @ backs[t]
        sides = torch.cat([zero[:, 0], side, (root[t] * lanes.values[t])[:, None]], 1)
        # ‖G·e‖² is for a step of one unit; another length scales each component of the noise
        scale = zero[:, :1]
        if t < count - 1:
            scale = lanes.stiffness.sqrt()[:, None, None] * steps[t][:, None, None] ** power
        process = penalty_rows * scale
        short = [torch.cat([process, zero], 2), torch.cat([-rows, rows], 2)]
        long = [torch.cat([rows, 0.0 * rows], 2), torch.cat([process @ -aheads[t], process], 2)]
        equations = torch.cat(long, 1).where(far[t], torch.cat(short, 1))
        sides = torch.cat([sides[:, m:], sides[:, :m]], 1).where(far[t, :, 0], sides)
        # the upper rows of the triangle eliminate e (or x), the next m know z
        rotation, triangle = torch.linalg.qr(equations, mode="complete")
        sides = _multiply(rotation.mT, sides)
        inverse = torch.linalg.inv(triangle[:, :m, :m])
        gain = torch.linalg.solve_triangular(triangle[:, :m, :m], triangle[:, :m, m:], upper=True)
        factors.append((_multiply(inverse, sides[:, :m]), gain, inverse))
        known, side = triangle[:, m : 2 * m, m:], sides[:, m : 2 * m]
    states, noises, sums = [], [], []
    state, spread, identity = torch.zeros_like(side), zero, torch.eye(m, device=zero.device)
    for t in reversed(range(count)):
        constant, gain, inverse = factors[t]
        back, is_far = backs[t], far[t, :, 0]
        solution = constant - _multiply(gain, state)
        noises.append((state - _multiply(aheads[t], solution)).where(is_far, solution))
        state = solution.where(is_far, _multiply(back, state - solution))
        states.append(state)
        # the leverage is w·P₀₀, with the covariance P of a state by that of the next
        if leverages:
            step = (-gain).where(far[t], back @ (identity + gain))
            spread = step @ spread @ step.mT + back @ inverse @ inverse.mT @ back.mT
            sums.append(lanes.weights[t] * spread[:, 0, 0])
    return states[::-1], noises[::-1], sums[::-1]


def _taylor(m: int, steps: Tensor) -> Tensor:
    orders = torch.arange(m, device=steps.device)
    rise = (orders - orders[:, None]).clamp(min=0)
    factorial = torch.exp(torch.lgamma(rise + 1.0)).round()
    return ((steps[..., None, None] ** rise) / factorial).triu()


def _multiply(matrix: Tensor, vector: Tensor) -> Tensor:
    # column after column: a batched product has other bits for another n
    total = matrix[:, :, 0] * vector[:, None, 0]
    for j in range(1, matrix.shape[2]):
        total = total + matrix[:, :, j] * vector[:, None, j]
    return total
