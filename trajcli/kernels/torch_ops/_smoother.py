"""The smoothing spline in plain torch; see :class:`trajcli.kernels.program.Smoother`.

Square-root information form from an exactly diffuse start: for every step a QR of the rows that
penalise it, of what is known of the state so far and of the measured row. The solution then follows
from the last row to the first (C. Paige and M. Saunders, "Least squares estimation of discrete
linear dynamic systems using orthogonal transformations", SIAM J. Numer. Anal. 14, 1977). Normal
equations would lose all digits at a cutoff of a thousandth of the rate.

A QR eliminates the noise of its step. Over a step that is far, longer than 4/(2π·cutoff), the noise
is the small difference of large numbers, and the state before the step is eliminated in its place.
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
    """A column for every dof of every trajectory.

    Values and weights are [T, n], steps in units [T − 1, n]; stiffness, unit and the ``shift`` that
    was subtracted from the values [n].
    """

    values: Tensor
    weights: Tensor
    steps: Tensor
    stiffness: Tensor
    unit: Tensor
    shift: Tensor


def outputs(
    program: Smoother, positions: Tensor, dt: Tensor, wanted: Sequence[bool]
) -> list[Tensor | None]:
    """Returns rows [B, T, D] of positions [B, T, D] and dt [b, h] in float64."""
    batch, count, dofs = positions.shape
    m, lanes = program.order, _lanes(program, positions, dt)
    states, noises, _ = _solve(m, lanes)
    rows: list[Tensor | None] = []
    for k, want in enumerate(wanted):
        if not want:
            rows.append(None)
            continue
        if k < m:
            values = torch.stack([state[:, k] for state in states])
        else:
            values = torch.stack([*_controls(m, k, noises, lanes), torch.zeros_like(lanes.unit)])
        values = values / lanes.unit**k if k else values + lanes.shift
        rows.append(values.reshape(count, batch, dofs).transpose(0, 1))
    return rows


def measure(program: Smoother, positions: Tensor, dt: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns Σ w·r² of the residuals r and the sums of leverages, [B, D], and r [B, T, D]."""
    lanes = _lanes(program, positions, dt)
    states, _, leverages = _solve(program.order, lanes, leverages=True)
    residuals = lanes.values - torch.stack([state[:, 0] for state in states])
    shape = (positions.shape[0], positions.shape[2])
    sums = (lanes.weights * residuals**2).sum(0), torch.stack(leverages).sum(0)
    rows = residuals.reshape(positions.shape[1], *shape).transpose(0, 1)
    return sums[0].reshape(shape), sums[1].reshape(shape), rows


def _lanes(program: Smoother, positions: Tensor, dt: Tensor) -> _Lanes:
    batch, count, dofs = positions.shape

    def columns(values: Tensor) -> Tensor:  # [b, t, d] → [t, n]
        return values.expand(batch, -1, dofs).transpose(0, 1).reshape(-1, batch * dofs)

    def sent(values: object) -> Tensor:
        return torch.as_tensor(values, dtype=torch.float64, device=dt.device)

    values = columns(positions)
    weights = columns(sent(program.weights))
    values = values.masked_fill(weights == 0.0, 0.0)
    unit = sent(program.unit).reshape(-1, 1, 1)
    steps = dt[..., None].expand(-1, max(count - 1, 0), -1) if dt.shape[1] == 1 else dt[..., None]
    # rows that are all equal become exactly zero, and so do their derivatives
    first = values.gather(0, (weights > 0.0).double().argmax(0)[None])[0]
    rises = (values - first).masked_fill(weights == 0.0, 0.0)
    mean = (weights * rises).sum(0) / weights.sum(0)
    stiffness = sent(program.stiffness).expand(batch, dofs).reshape(-1)
    scaled = columns(steps / unit)
    return _Lanes(rises - mean, weights, scaled, stiffness, columns(unit)[0], first + mean)


def _solve(m: int, lanes: _Lanes, leverages: bool = False) -> tuple[list[Tensor], ...]:
    """Returns for every row the curve's state in units [n, m], the noise of the step after it
    [n, m] and, where asked for, the leverage [n]."""
    count, n = lanes.values.shape
    penalty_rows = torch.as_tensor(penalty(m), device=lanes.values.device)
    zero = lanes.weights.new_zeros(n, m, m)
    root, known = lanes.weights.sqrt(), zero  # the square root of the information so far
    side = lanes.values.new_zeros(n, m)  # and its right-hand side
    steps = torch.cat([lanes.steps, torch.zeros_like(root[:1])])  # the last leads to zero
    far = (steps / 4.0) ** m > lanes.stiffness.sqrt()
    backs, aheads = _taylor(m, -steps.masked_fill(far, 0.0)), _taylor(m, steps)
    far = far[..., None, None]
    power = torch.arange(m, device=zero.device) - m + 0.5
    factors = []  # of the noise e (or state) by the next state z, e = k − K·z: k, K, the factor D⁻¹
    for t in range(count):
        measured = torch.cat([root[t][:, None, None], zero[:, :1, 1:]], 2)
        rows = torch.cat([known, measured], 1) @ backs[t]
        sides = torch.cat([zero[:, 0], side, (root[t] * lanes.values[t])[:, None]], 1)
        scale = zero[:, :1]
        if t < count - 1:
            scale = lanes.stiffness.sqrt()[:, None, None] * steps[t][:, None, None] ** power
        process = penalty_rows * scale
        near = [torch.cat([process, zero], 2), torch.cat([-rows, rows], 2)]
        long = [torch.cat([rows, 0.0 * rows], 2), torch.cat([process @ -aheads[t], process], 2)]
        equations = torch.cat(long, 1).where(far[t], torch.cat(near, 1))
        sides = torch.cat([sides[:, m:], sides[:, :m]], 1).where(far[t, :, 0], sides)
        rotation, triangle = torch.linalg.qr(equations, mode="complete")
        sides = _times(rotation.mT, sides)
        inverse = torch.linalg.inv(triangle[:, :m, :m])
        ahead = torch.linalg.solve_triangular(triangle[:, :m, :m], triangle[:, :m, m:], upper=True)
        factors.append((_times(inverse, sides[:, :m]), ahead, inverse))
        known, side = triangle[:, m : 2 * m, m:], sides[:, m : 2 * m]
    states, noises, sums = [], [], []
    state, spread, identity = torch.zeros_like(side), zero, torch.eye(m, device=zero.device)
    for t in reversed(range(count)):
        own, ahead, inverse = factors[t]
        back, is_far = backs[t], far[t, :, 0]
        found = own - _times(ahead, state)
        noises.append((state - _times(aheads[t], found)).where(is_far, found))
        state = found.where(is_far, _times(back, state - found))
        states.append(state)
        if leverages:  # the covariance P, by that of the next
            gain = (-ahead).where(far[t], back @ (identity + ahead))
            spread = gain @ spread @ gain.mT + back @ inverse @ inverse.mT @ back.mT
            sums.append(lanes.weights[t] * spread[:, 0, 0])
    return states[::-1], noises[::-1], sums[::-1]


def _taylor(m: int, steps: Tensor) -> Tensor:
    """Returns Taylor's matrices of steps [..., m, m]."""
    orders = torch.arange(m, device=steps.device)
    rise = (orders - orders[:, None]).clamp(min=0)
    factorial = torch.exp(torch.lgamma(rise + 1.0)).round()
    return ((steps[..., None, None] ** rise) / factorial).triu()


def _controls(m: int, k: int, noises: list[Tensor], lanes: _Lanes) -> list[Tensor]:
    """Returns the derivative of order k ≥ m, in units, at all rows but the last."""
    weights = control(m)[2 * m - 1 - k] * (-1.0) ** (k - m) if k < 2 * m else np.zeros(m)
    values = []
    for step, noise in zip(lanes.steps, noises, strict=False):
        terms = [float(w) * noise[:, i] / step ** (k - i) for i, w in enumerate(weights)]
        values.append(sum(terms[1:], terms[0]))
    return values


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    """Multiplies [n, i, j] and [n, j] column after column, which gives the same bits for any n."""
    total = matrix[:, :, 0] * vector[:, None, 0]
    for j in range(1, matrix.shape[2]):
        total = total + matrix[:, :, j] * vector[:, None, j]
    return total
