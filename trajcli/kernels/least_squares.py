"""Weights of least squares fits, and what the smoothers of all backends have in common."""

from __future__ import annotations

import functools
import math

import numpy as np

from trajcli.kernels.program import Array, Floats


def fit_weights(times: Array, degree: int, inside: Array = 1.0) -> list[Array]:
    """Returns weights of points in derivatives 0 to 3, at time zero, of their best fit.

    ``times`` [..., W] are NumPy (any float type) or torch, differentiable; the result is four
    arrays like them. ``inside`` is 1, or 0 for points that are left out, where all polynomials
    are 0.

    The weights are sums over polynomials that are orthogonal on the times, by the recurrence of
    G. Forsythe, "Generation and use of orthogonal polynomials for data-fitting with a digital
    computer", J. SIAM 5 (1957). Rounding costs it orthogonality across gaps, so each polynomial is
    made orthogonal to all before it once more; P. Brubeck, Y. Nakatsukasa and L. Trefethen,
    "Vandermonde with Arnoldi", SIAM Review 63 (2021).
    """
    zero = times[..., :1] * 0.0
    values, at_zero = times * 0.0 + inside, [zero + 1.0, zero, zero, zero]
    # of every polynomial: its values, its derivatives at time zero, its sum of squares
    basis: list[tuple[Array, list[Array], Array]] = []
    weights = [times * 0.0] * 4
    for k in range(degree + 1):
        if basis:
            values, at_zero = times * values, [zero, *(m * at_zero[m - 1] for m in (1, 2, 3))]
        for others in (basis[-2:], basis):  # the recurrence, then what its rounding left
            shares = [(values * other).sum(-1)[..., None] / norm for other, _, norm in others]
            for share, (other, derivatives, _) in zip(shares, others, strict=True):
                values = values - share * other
                at_zero = [x - share * y for x, y in zip(at_zero, derivatives, strict=True)]
        norm = (values * values).sum(-1)[..., None]
        for m in range(min(k, 3) + 1):
            weights[m] = weights[m] + at_zero[m] / norm * values
        basis.append((values, at_zero, norm))
    return weights


@functools.cache
def penalty(order: int) -> Floats:
    """Returns G [m, m]: the noise e of a step of one unit is penalised by ‖G·e‖².

    A curve's state is its value and its first m − 1 derivatives; e is the difference of the state
    after a step from Taylor's polynomial of the state before it. The least ∫(x⁽ᵐ⁾)² of all curves
    with this e is eᵀ·Q⁻¹·e, Q the Gramian of the m-fold integrator and G the inverse of its
    Cholesky factor (G. Wahba, "Improper priors, spline smoothing and the problem of guarding
    against model errors in regression", J. R. Stat. Soc. B 40, 1978).
    """
    index = range(order)
    scale = [math.factorial(order - 1 - j) for j in index]
    gramian = [
        [1.0 / ((2 * order - 1 - j - k) * scale[j] * scale[k]) for k in index] for j in index
    ]
    return np.linalg.inv(np.linalg.cholesky(np.array(gramian)))


@functools.cache
def control(order: int) -> Floats:
    """Returns the derivatives of orders 2m − 1 … m at the beginning of a step by its noise, [m, m].

    The step has one unit. Signs alternate as −1, 1, −1, …, so that the last row is x⁽ᵐ⁾: this is
    Aᵀ·Q⁻¹, A Taylor's matrix.
    """
    index = range(order)
    taylor = [[1.0 / math.factorial(k - j) if k >= j else 0.0 for k in index] for j in index]
    weights: Floats = np.array(taylor).T @ penalty(order).T @ penalty(order)
    return weights
