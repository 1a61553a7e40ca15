"""Computes weights of least squares fits, and the matrices of the smoothers of all backends."""

from __future__ import annotations

import functools
import math

import numpy as np

from trajcli.kernels.program import Array, Floats


def fit_weights(times: Array, degree: int, mask: Array | float = 1.0) -> list[Array]:
    """Computes the weights of points in derivatives 0 to 3, at time zero, of their best fit.

    ``times`` [..., W] are NumPy (any float type) or torch, differentiable; the result is four
    arrays like them. ``mask`` is 1, or 0 for points that are left out.

    The weights are sums over polynomials that are orthogonal on the times, by the recurrence of
    G. Forsythe, "Generation and use of orthogonal polynomials for data-fitting with a digital
    computer", J. SIAM 5 (1957). Rounding costs it orthogonality across gaps, so each polynomial is
    made orthogonal to all before it once more; P. Brubeck, Y. Nakatsukasa and L. Trefethen,
    "Vandermonde with Arnoldi", SIAM Review 63 (2021).
    """
    zero = times[..., :1] * 0.0
    values, at_zero = times * 0.0 + mask, [zero + 1.0, zero, zero, zero]
    # With polynomials P_k that are orthogonal on the times, the derivative of order m of the fit at
    # zero is Σ_k P_k⁽ᵐ⁾(0) / |P_k|² · Σ_i P_k(t_i)·x_i. All are zero at points that are left out.
    # Of every P_k: its values, its derivatives at time zero, |P_k|².
    basis: list[tuple[Array, list[Array], Array]] = []
    weights = [times * 0.0] * 4
    for k in range(degree + 1):
        # times · P_{k−1}, whose derivatives at zero are m·P_{k−1}⁽ᵐ⁻¹⁾(0)
        if basis:
            values, at_zero = times * values, [zero, *(m * at_zero[m - 1] for m in (1, 2, 3))]
        # the recurrence takes the last two polynomials out of it, the second pass those that its
        # rounding left in
        for others in (basis[-2:], basis):
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
    """Computes G [m, m]: the noise e of a step of one unit is penalised by ‖G·e‖².

    A curve's state is its value and its first m − 1 derivatives; e is the difference of the state
    after a step from Taylor's polynomial of the state before it. The least ∫(x⁽ᵐ⁾)² of all curves
    with this e is eᵀ·Q⁻¹·e, Q the Gramian of the m-fold integrator and G the inverse of its
    Cholesky factor (G. Wahba, "Improper priors, spline smoothing and the problem of guarding
    against model errors in regression", J. R. Stat. Soc. B 40, 1978).
    """
    # Q_jk = ∫ τ^(m−1−j)/(m−1−j)! · τ^(m−1−k)/(m−1−k)! dτ over the step
    index = range(order)
    scale = [math.factorial(order - 1 - j) for j in index]
    gramian = [
        [1.0 / ((2 * order - 1 - j - k) * scale[j] * scale[k]) for k in index] for j in index
    ]
    return np.linalg.inv(np.linalg.cholesky(np.array(gramian)))


@functools.cache
def control(order: int) -> Floats:
    """Computes the weights Aᵀ·Q⁻¹ of a unit step's noise in derivatives 2m − 1 … m, [m, m]."""
    # signs of the derivatives alternate as −1, 1, −1, …, so that the last row is x⁽ᵐ⁾
    index = range(order)
    taylor = [[1.0 / math.factorial(k - j) if k >= j else 0.0 for k in index] for j in index]
    weights: Floats = np.array(taylor).T @ penalty(order).T @ penalty(order)
    return weights
