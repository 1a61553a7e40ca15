"""The smoothing spline between two rows: what its kernels have in common."""

from __future__ import annotations

import functools
import math

import numpy as np

from trajcli.kernels.program import Floats


@functools.cache
def penalty(order: int) -> Floats:
    """G [m, m], by which the noise e of a step of one unit is penalised: as ‖G·e‖².

    A curve's state is its value and its first m − 1 derivatives, e by how much the state after a
    step is not Taylor's polynomial of the state before it. The least ∫(x⁽ᵐ⁾)² of all curves with
    this e is eᵀ·Q⁻¹·e, Q the Gramian of the m-fold integrator and G the inverse of its Cholesky
    factor (G. Wahba, "Improper priors, spline smoothing and the problem of guarding against model
    errors in regression", J. R. Stat. Soc. B 40, 1978).
    """
    index = range(order)
    scale = [math.factorial(order - 1 - j) for j in index]
    gramian = [
        [1.0 / ((2 * order - 1 - j - k) * scale[j] * scale[k]) for k in index] for j in index
    ]
    return np.linalg.inv(np.linalg.cholesky(np.array(gramian)))


@functools.cache
def control(order: int) -> Floats:
    """The derivatives of orders 2m − 1 … m at the begin of a step of one unit by its noise, [m, m],
    with the signs −1, 1, −1, …, so that the last row is x⁽ᵐ⁾: Aᵀ·Q⁻¹, A Taylor's matrix."""
    index = range(order)
    taylor = [[1.0 / math.factorial(k - j) if k >= j else 0.0 for k in index] for j in index]
    weights: Floats = np.array(taylor).T @ penalty(order).T @ penalty(order)
    return weights
