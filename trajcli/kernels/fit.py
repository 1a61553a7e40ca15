"""Weights of the polynomial that fits points best, in the sense of least squares."""

from __future__ import annotations

from trajcli.kernels.program import Array


def fit_weights(times: Array, degree: int, inside: Array = 1.0) -> list[Array]:
    """Weights of points in derivatives 0 to 3, at time zero, of the polynomial that fits them best.

    times [..., W], NumPy (any float type) or torch, differentiable; four arrays like it. inside:
    1, or 0 for points that are left out, which the recurrence leaves at 0. A sum
    over polynomials that are orthogonal on the times, by the recurrence of G. Forsythe,
    "Generation and use of orthogonal polynomials for data-fitting with a digital computer",
    J. SIAM 5 (1957), which loses no digits where the normal equations would.
    """
    zero = times[..., :1] * 0.0
    values, before = times * 0.0 + inside, times * 0.0
    at_zero, at_zero_before = [zero + 1.0, zero, zero, zero], [zero] * 4
    norm_before = zero + 1.0
    weights = [times * 0.0] * 4
    for k in range(degree + 1):
        squares = values * values
        norm = squares.sum(-1)[..., None]
        for m in range(min(k, 3) + 1):
            weights[m] = weights[m] + at_zero[m] / norm * values
        mean = (times * squares).sum(-1)[..., None] / norm
        ratio = norm / norm_before if k else zero
        values, before = (times - mean) * values - ratio * before, values
        slopes = [zero, *(m * x for m, x in enumerate(at_zero[:3], start=1))]
        following = [
            slope - mean * x - ratio * y
            for slope, x, y in zip(slopes, at_zero, at_zero_before, strict=True)
        ]
        at_zero, at_zero_before, norm_before = following, at_zero, norm
    return weights
