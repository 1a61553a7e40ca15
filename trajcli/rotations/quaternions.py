"""Quaternions: products, exponential and logarithm, other forms of rotations, derivatives.

A unit quaternion w, x, y, z turns vectors of the body into the world. Arrays are NumPy or torch,
with any leading axes; everything is differentiable to any order.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from inspect import signature
from typing import Any, TypeAlias

import numpy as np

from trajcli.arrays import (
    as_array,
    cast,
    concatenate,
    float64,
    in_one_library,
    interleave,
    is_torch,
    library,
    match_library,
    output_dtype,
    readable,
    to_numpy,
)
from trajcli.errors import InputError, UsageError, describe, unknown, wrong_shape
from trajcli.kernels.program import Array, ArrayLike

Function: TypeAlias = Callable[..., Array]

TOLERANCE = 1e-3
"""The error that the norm of a quaternion, or an entry of a matrix, may have."""
# Squares of angles below which functions are computed by their series: these have all derivatives
# at zero, and lose no digits there.
_SMALL = 0.05


def _for_any_dtype(*widths: int, axes: int = 1) -> Callable[[Function], Function]:
    """Makes a function of float64 arrays [..., width] take real numbers of any dtype.

    float32 and half precision give float32. Arrays have at least ``axes``, and broadcast.
    """

    def decorate(function: Function) -> Function:
        arguments = signature(function)
        roles = [*arguments.parameters.values()][: len(widths)]

        @wraps(function)
        def call(*values: Any, **options: Any) -> Array:
            # within the package nearly all arrays are float64 of one library: they are passed on,
            # and only shapes that do not broadcast are looked at again
            double = True
            for x, width in zip(values, widths, strict=False):
                if is_torch(x):
                    double &= x.dtype is sys.modules["torch"].float64 and not x.is_sparse
                else:
                    double &= type(x) is np.ndarray and x.dtype == np.float64
                double = double and x.shape[-1:] == (width,)
            if double and len({*map(is_torch, values)}) == 1:
                with suppress(ValueError, RuntimeError):
                    return function(*values, **options)
            bound = arguments.bind(*values, **options).arguments
            names = [x.name for x in roles if bound.get(x.name, x.default) is not x.default]
            arrays = {name: as_array(bound.pop(name), name) for name in names}
            for (name, x), width in zip(arrays.items(), widths, strict=False):
                if x.ndim < axes or x.shape[-1] != width:
                    expected = f"[..., {width}]" if axes == 1 else f"[..., T, {width}]"
                    raise InputError(wrong_shape(name, expected, x.shape))
            try:
                np.broadcast_shapes(*(tuple(x.shape[:-1]) for x in arrays.values()))
            except ValueError:
                found = " and ".join(describe(x.shape) for x in arrays.values())
                what, where = "shapes that do not broadcast", ", ".join(arrays)
                raise InputError(what, where=where, found=found) from None
            dtype = max(output_dtype(x.dtype) for x in arrays.values())
            wide = {name: float64(x) for name, x in in_one_library(arrays).items()}
            return cast(function(**wide, **bound), dtype)

        return call

    return decorate


def dot(a: Array, b: Array) -> Array:
    """Computes the scalar products [..., 1] of vectors [..., n]."""
    return (a * b).sum(-1)[..., None]


def cross(a: Array, b: Array) -> Array:
    """Computes the cross products of vectors [..., 3], which broadcast."""
    (ax, ay, az), (bx, by, bz) = ((v[..., 0], v[..., 1], v[..., 2]) for v in (a, b))
    return library(a).stack([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx], -1)


def _horner(coefficients: Sequence[float], x: Array) -> Array:
    total = x * coefficients[-1] + coefficients[-2]
    for coefficient in reversed(coefficients[:-2]):
        total = total * x + coefficient
    return total


@_for_any_dtype(4, 4)
def multiply(a: Array, b: Array) -> Array:
    """Multiplies quaternions [..., 4], which broadcast: a·b turns by b first, then by a.

    If b is the conjugate of a, x, y and z are exactly zero.
    """
    (aw, ax, ay, az), (bw, bx, by, bz) = ([q[..., k] for k in range(4)] for q in (a, b))
    w = aw * bw - ax * bx - ay * by - az * bz
    x = aw * bx + ax * bw + ay * bz - az * by
    y = aw * by + ay * bw + az * bx - ax * bz
    z = aw * bz + az * bw + ax * by - ay * bx
    return library(a).stack([w, x, y, z], -1)


@_for_any_dtype(4)
def conjugate(quaternions: Array) -> Array:
    """Inverts the rotations of unit quaternions [..., 4]: w, −x, −y, −z."""
    return concatenate([quaternions[..., :1], -quaternions[..., 1:]], -1)


@_for_any_dtype(4, 3)
def rotate(quaternions: Array, vectors: Array) -> Array:
    """Turns vectors [..., 3] of the body into the world."""
    # q·v·q⁻¹ = v + w·t + u×t with t = 2·u×v, where u is x, y, z of q
    w, v = quaternions[..., :1], quaternions[..., 1:]
    twice = 2.0 * cross(v, vectors)
    return vectors + w * twice + cross(v, twice)


@_for_any_dtype(3)
def exp(rotvecs: Array) -> Array:
    """Computes the quaternions [..., 4] of rotation vectors [..., 3], axis times angle in rad."""
    # cos(θ/2) and sin(θ/2)/θ are functions of θ², whose derivatives all exist at zero
    square, xp = dot(rotvecs, rotvecs), library(rotvecs)
    small = square < _SMALL
    half = 0.5 * xp.sqrt(xp.where(small, _SMALL, square))
    even = [(-0.25) ** k / math.factorial(2 * k) for k in range(7)]
    odd = [0.5 * (-0.25) ** k / math.factorial(2 * k + 1) for k in range(7)]
    cosine = xp.where(small, _horner(even, square), xp.cos(half))
    ratio = xp.where(small, _horner(odd, square), 0.5 * xp.sin(half) / half)
    return concatenate([cosine, ratio * rotvecs], -1)


@_for_any_dtype(4)
def log(quaternions: Array, *, shortest: bool = True) -> Array:
    """Computes the rotation vectors [..., 3] of quaternions [..., 4], in rad and up to π long.

    ``shortest=False`` reads w < 0 as a turn of more than π, up to 2π.
    """
    # The angle, 2·atan2(|v|, w), is smooth at a half turn. Near zero its ratio to |v| is a series
    # in (|v|/w)².
    xp = library(quaternions)
    if shortest:
        quaternions = xp.where(quaternions[..., :1] < 0, -quaternions, quaternions)
    w, v = quaternions[..., :1], quaternions[..., 1:]
    square = dot(v, v)
    small = (square < _SMALL * w * w) & (w > 0)
    # "where" takes gradients of both branches: keep the unused one finite
    safe = xp.where(small, w, 1.0)
    length = xp.sqrt(xp.where(small, 1.0, square))
    coefficients = [(-1.0) ** k / (2 * k + 1) for k in range(12)]
    series = _horner(coefficients, xp.where(small, square, 0.0) / (safe * safe)) / safe
    return 2.0 * xp.where(small, series, xp.arctan2(length, w) / length) * v


@_for_any_dtype(4, 4)
def angle(a: Array, b: Array) -> Array:
    """Computes the angle [...] between orientations [..., 4], in rad from 0 to π."""
    return library(a).linalg.norm(log(multiply(a, conjugate(b))), None, -1)


@_for_any_dtype(4, 4, axes=2)
def continuous(quaternions: Array, before: Array | None = None) -> Array:
    """Makes the signs of quaternions [..., T, 4] continuous.

    None has a negative product with the previous one, nor the first with the row ``before``
    [..., 1, 4]; without ``before`` the first has w >= 0. Rows with NaN are skipped.
    """
    xp = library(quaternions)
    values = quaternions.detach() if is_torch(quaternions) else quaternions
    # the index of the last row before each, or at it, that is known
    number = match_library(np.arange(int(values.shape[-2])), values)
    rows = xp.where(xp.isfinite(values).all(-1), number, 0)
    last = rows.cummax(-1).values if is_torch(rows) else np.maximum.accumulate(rows, -1)
    known = _gathered(values, last)
    products = (known[..., 1:, :] * known[..., :-1, :]).sum(-1)
    first = known[..., :1, 0] if before is None else (before * known[..., :1, :]).sum(-1)
    turns = concatenate([first, products], -1)
    return quaternions * xp.where(turns < 0, -1.0, 1.0).cumprod(-1)[..., None]


def _gathered(values: Array, rows: Array) -> Array:
    """Selects rows [..., N] of values [..., T, n]."""
    index: Any = rows[..., None]
    if is_torch(values):
        return values.gather(-2, index.expand(*index.shape[:-1], values.shape[-1]))
    return np.take_along_axis(values, index, -2)


def _from_matrix(values: Array) -> Array:
    """Converts matrices [..., 9] to quaternions, by the row of 4·q·qᵀ with the largest diagonal.

    S. Shepperd, "Quaternion from rotation matrix", J. Guidance and Control 1 (1978).
    """
    (a, b, c), (d, e, f), (g, h, i) = ([values[..., k + m] for m in range(3)] for k in (0, 3, 6))
    x, y, z, xy, xz, yz = h - f, c - g, d - b, b + d, c + g, f + h
    # the diagonal of 4·q·qᵀ; the largest is at least 1, so that dividing by it loses no digits
    squares = [1.0 + a + e + i, 1.0 + a - e - i, 1.0 - a + e - i, 1.0 - a - e + i]
    rows = [[x, y, z], [xy, xz], [yz]]
    stack = library(values).stack
    table = [
        [rows[min(m, n)][abs(m - n) - 1] if m != n else squares[m] for n in range(4)]
        for m in range(4)
    ]
    products = stack([stack(row, -1) for row in table], -2)
    chosen = _gathered(products, stack(squares, -1).argmax(-1)[..., None])[..., 0, :]
    return chosen / dot(chosen, chosen) ** 0.5


def _to_matrix(quaternions: Array) -> Array:
    w, x, y, z = (quaternions[..., k] for k in range(4))
    xx, yy, zz, xy, xz, yz = (2.0 * a for a in (x * x, y * y, z * z, x * y, x * z, y * z))
    wx, wy, wz = (2.0 * (w * a) for a in (x, y, z))
    first, second = [1.0 - yy - zz, xy - wz, xz + wy], [xy + wz, 1.0 - xx - zz, yz - wx]
    rows = [*first, *second, xz - wy, yz + wx, 1.0 - xx - yy]
    return library(quaternions).stack(rows, -1)


def _from_rot6d(values: Array) -> Array:
    # Gram and Schmidt: the second column without its part along the first; NaN if they are parallel
    first, second = values[..., :3], values[..., 3:]
    first = first / dot(first, first) ** 0.5
    rest = second - dot(first, second) * first
    parallel = dot(rest, rest) <= 1e-12 * dot(second, second)
    second = rest / library(values).where(parallel, math.nan, dot(rest, rest) ** 0.5)
    columns = library(values).stack([first, second, cross(first, second)], -1)
    return _from_matrix(columns.reshape(*columns.shape[:-2], 9))


def _from_rpy(values: Array) -> Array:
    """Converts roll, pitch and yaw, about the fixed axes x, y and z in this order."""
    axes = match_library(np.eye(3), values)
    roll, pitch, yaw = (exp(values[..., k : k + 1] * axes[k]) for k in range(3))
    return multiply(yaw, multiply(pitch, roll))


def _to_rpy(quaternions: Array) -> Array:
    """Converts quaternions to roll, pitch and yaw; where pitch is a right angle, roll is 0."""
    xp, m = library(quaternions), _to_matrix(quaternions)
    m00, m01, _, m10, m11, _, m20, m21, m22 = (m[..., k] for k in range(9))
    cosine = (m00 * m00 + m10 * m10) ** 0.5
    # gimbal lock: roll and yaw turn about the same axis, and only their sum is known
    locked = cosine < 1e-7
    roll = xp.where(locked, 0.0 * m21, xp.arctan2(m21, m22))
    yaw = xp.where(locked, xp.arctan2(-m01, m11), xp.arctan2(m10, m00))
    return xp.stack([roll, xp.arctan2(-m20, cosine), yaw], -1)


FORMS: dict[str, tuple[int, Function, Function]] = {
    "wxyz": (4, lambda v: v, lambda q: q),
    "xyzw": (4, lambda v: v[..., [3, 0, 1, 2]], lambda q: q[..., [1, 2, 3, 0]]),
    "rotvec": (3, exp, log),
    "rot6d": (6, _from_rot6d, lambda q: _to_matrix(q)[..., [0, 3, 6, 1, 4, 7]]),
    "rot6d_rows": (6, lambda v: conjugate(_from_rot6d(v)), lambda q: _to_matrix(q)[..., :6]),
    "rpy": (3, _from_rpy, _to_rpy),
    "matrix": (9, _from_matrix, _to_matrix),
}
"""How rotations are written: the count of numbers, and the functions to and from quaternions."""


def normalize(values: Array, form: str) -> tuple[Array, Array]:
    """Converts rotations in a form to unit quaternions [..., 4], with the error of each [...].

    The error is that of the norm or, for a matrix, of its entries; NaN for no rotation at all.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        quaternions = FORMS[form][1](values)
        norm = dot(quaternions, quaternions) ** 0.5
        off = _to_matrix(quaternions) - values if form == "matrix" else norm - 1.0
        return quaternions / norm, library(values).amax(abs(off), -1)


def to_quaternions(
    values: ArrayLike,
    form: str = "wxyz",
    where: str = "rotations",
    *,
    allow_nonfinite: bool = False,
) -> Array:
    """Converts rotations in any form to unit quaternions w, x, y, z in float64.

    Parameters:
        values: the rotations, by ``form``:
            ``wxyz`` or ``xyzw``, quaternions [..., 4];
            ``rotvec`` [..., 3], axis times angle in rad;
            ``rot6d`` [..., 6], the first two columns of the matrix one after the other, which are
            made orthogonal (Y. Zhou et al., "On the continuity of rotation representations in
            neural networks", CVPR 2019); ``rot6d_rows``, its first two rows (UMI, PyTorch3D);
            ``matrix`` [..., 9], row by row;
            ``rpy`` [..., 3], roll, pitch and yaw in rad about the fixed axes x, y and z one after
            the other, Rz·Ry·Rx, as in ROS.
        where: the source of the values, for messages.

    Raises:
        InputError: another shape; NaN or Inf, unless allowed; norms of quaternions, or entries of
            matrices, that are off by more than 1e-3.
    """
    _require_form(form, where)
    width = FORMS[form][0]
    rotations = float64(as_array(values, where))
    if rotations.shape[-1:] != (width,):
        fault = wrong_shape(where, f"[..., {width}]", rotations.shape, what=f"not {form}")
        raise InputError(fault)
    quaternions, off = normalize(rotations, form)
    if readable(off):
        fits = to_numpy(off) <= TOLERANCE * (1.0 + 1e-6)
        if allow_nonfinite:
            fits |= ~np.isfinite(to_numpy(rotations)).all(-1)
        if not fits.all():
            first = np.argwhere(~fits)[0].tolist()
            entry = to_numpy(rotations)[tuple(first)].round(4).tolist()
            raise InputError(
                "not rotations",
                where=f"{where}, entry {first}",
                expected=f"{form} of norm 1 or orthogonal, up to {TOLERANCE:g}",
                found=f"{entry} ({(~fits).sum()} such)",
            )
    return quaternions


def from_quaternions(quaternions: ArrayLike, form: str) -> Array:
    """Converts unit quaternions [..., 4] to another form; ``to_quaternions`` is the inverse."""
    _require_form(form, "form")
    return FORMS[form][2](to_quaternions(quaternions))


def _require_form(form: Any, where: str) -> None:
    if not (isinstance(form, str) and form in FORMS):
        raise UsageError(unknown("form of rotations", choices=FORMS, found=repr(form), where=where))


@_for_any_dtype(4, axes=2)
def cumulative_product(quaternions: Array) -> Array:
    """Computes all products q_k·…·q_0 of quaternions [..., T, 4] in O(log T) vector operations.

    G. Blelloch, "Prefix sums and their applications", 1990.
    """
    # products of pairs of neighbours are accumulated, which leaves every second product to compute
    if quaternions.shape[-2] <= 1:
        return quaternions
    even, odd = quaternions[..., 0::2, :], quaternions[..., 1::2, :]
    pairs = cumulative_product(multiply(odd, even[..., : odd.shape[-2], :]))
    later = multiply(even[..., 1:, :], pairs[..., : even.shape[-2] - 1, :])
    return interleave(concatenate([even[..., :1, :], later], -2), pairs)


# Series in θ² for angles up to 2π: b = (1 − cos θ)/θ², c = (θ − sin θ)/θ³ and (2b − sin θ/θ)/θ²,
# and the first and second derivatives of b and c by θ².
_B = [(-1.0) ** k / math.factorial(2 * k + 2) for k in range(20)]
_C = [(-1.0) ** k / math.factorial(2 * k + 3) for k in range(20)]
_G = [(-1.0) ** k * (k + 1) / ((k + 2) * math.factorial(2 * k + 3)) for k in range(20)]
_B1, _C1 = ([k * c for k, c in enumerate(series)][1:] for series in (_B, _C))
_B2, _C2 = ([k * c for k, c in enumerate(series)][1:] for series in (_B1, _C1))


def rates_of_log(phi: Array, *slopes: Array) -> list[Array]:
    """Computes ω, α and the derivative of α of exp(φ)·q in the world, from one to three slopes.

    Parameters:
        phi, slopes: φ, φ̇, φ̈, …, [..., 3] each.
    """
    # ω = J·φ̇ with the left Jacobian of exp, J·x = x + b·φ×x + c·φ×(φ×x) (T. Barfoot, "State
    # Estimation for Robotics", ch. 7). α and its derivative follow by the product rule, with the
    # derivatives s1, s2 of θ², u1, u2 of φ×φ̇ and w1, w2 of φ×(φ×φ̇).
    square, first = dot(phi, phi), slopes[0]
    b, c = _horner(_B, square), _horner(_C, square)
    u = cross(phi, first)
    w = cross(phi, u)
    rates = [first + b * u + c * w]
    if len(slopes) > 1:
        b1, c1 = _horner(_B1, square), _horner(_C1, square)
        s1, u1 = 2.0 * dot(phi, first), cross(phi, slopes[1])
        w1 = cross(first, u) + cross(phi, u1)
        rates.append(slopes[1] + b * u1 + c * w1 + s1 * (b1 * u + c1 * w))
    if len(slopes) > 2:
        b2, c2 = _horner(_B2, square), _horner(_C2, square)
        s2 = 2.0 * (dot(first, first) + dot(phi, slopes[1]))
        u2 = cross(first, slopes[1]) + cross(phi, slopes[2])
        w2 = cross(slopes[1], u) + 2.0 * cross(first, u1) + cross(phi, u2)
        bend_b, bend_c = b2 * s1 * s1 + b1 * s2, c2 * s1 * s1 + c1 * s2
        twice = 2.0 * s1 * (b1 * u1 + c1 * w1)
        rates.append(slopes[2] + b * u2 + c * w2 + twice + bend_b * u + bend_c * w)
    return rates


def slope_of_log(phi: Array, omega: Array) -> Array:
    """Computes φ̇ of exp(φ)·q that turns by ω in the world, by the inverse left Jacobian."""
    square, u = dot(phi, phi), cross(phi, omega)
    share = _horner(_G, square) / (2.0 * _horner(_B, square))
    return omega - 0.5 * u + share * cross(phi, u)
