"""Rotations: unit quaternions, their angular rates, and curves through them. docs/rotations.md.

A quaternion is w, x, y, z and turns vectors of the body into the world. Angular velocity ω and its
derivatives are components in a frame: q̇ = ½ω·q in the "world", q̇ = ½q·ω in the "body". Seen from
the world, q⁻¹ turns by −ω of the body, so that every formula here is written for the world.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from trajcli import calls
from trajcli.arrays import as_array, cast, concatenate, library, match_library, output_dtype
from trajcli.curves.resampling import at_rest, new_times, row_knots
from trajcli.curves.sampling import search, take
from trajcli.errors import InputError, UsageError, describe, raise_if_any, unknown, wrong_shape
from trajcli.inputs import Inputs, nonfinite_faults, shape_faults
from trajcli.kernels.program import Array, ArrayLike
from trajcli.memory import ROTATION_VALUES
from trajcli.modes import QUANTITIES, make_method, make_mode
from trajcli.modes.cascade import Clique
from trajcli.rotations import _rates
from trajcli.rotations._rates import CURVES, repeat_for_bodies
from trajcli.rotations.quaternions import (
    FORMS,
    angle,
    conjugate,
    continuous,
    cumulative_product,
    dot,
    exp,
    from_quaternions,
    log,
    multiply,
    rotate,
    to_quaternions,
)
from trajcli.trajectory import State, state_parts

__all__ = ["CURVES", "FORMS", "RATES", "RotationTrajectory", "angle", "compose", "conjugate",
           "continuous", "cumulative_product", "decompose", "differentiate", "exp",
           "from_quaternions", "integrate", "log", "multiply", "resample", "rotate", "sample",
           "to_quaternions"]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)


RATES = ("angular_velocity", "angular_acceleration", "angular_jerk")


@dataclass(frozen=True)
class RotationTrajectory:
    """Orientations and their angular rates, with the time of the rows.

    Attributes:
        orientation: unit quaternions w, x, y, z, [B, T, 4] or, for several bodies, [B, T, R, 4].
            The first has w >= 0, and none has a negative product with the previous one.
        angular_velocity: [B, T, 3] or [B, T, R, 3] in rad/s; None if unknown, as the others.
        angular_acceleration: the derivative of its components, in rad/s².
        angular_jerk: the second derivative, in rad/s³.
        time: [T] or [B, T], in seconds.
    """

    orientation: Array
    angular_velocity: Array | None
    angular_acceleration: Array | None
    angular_jerk: Array | None
    time: Array
    frame: str = "world"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Array | None]:
        return iter((self.orientation, *(getattr(self, name) for name in RATES)))


def differentiate(
    quaternions: ArrayLike,
    *,
    dt: ArrayLike | float | None = None,
    times: ArrayLike | None = None,
    method: str = "savgol",
    window: int | str | None = None,
    degree: int | None = None,
    frame: str = "world",
    allow_nonfinite: bool = False,
    **smoothing: Any,
) -> RotationTrajectory:
    """Differentiates recorded orientations: angular velocity, acceleration and jerk of each row.

    Parameters:
        quaternions: [T, 4], [B, T, 4] or, of several bodies, [B, T, R, 4], with any signs.
        dt, times, window, degree: see ``trajcli.differentiate``, also for the options of
            ``smooth``: bandlimit (a number, or [3] for the axes of the frame), noise in rad, robust
            and order.
        method: ``smooth`` is the smoothing spline of the path in the tangent space; ``backward`` is
            ω_t = log(q_t·q_{t−1}⁻¹)/dt, which ``integrate`` turns back into the orientations;
            ``central`` and ``savgol`` take the polynomials through, or nearest to, the rotation
            vectors φ of a window of rows relative to its middle row q, and the rates of exp(φ)·q.
            ``savgol`` smooths the orientations, too.
        frame: of the rates, "world" or "body".

    Returns:
        A RotationTrajectory of the input's library, device and dtype, computed in float64;
        differentiable with respect to quaternions, dt and times.

    Raises:
        InputError: norms that are off by more than 1e-3; rows more than 270° from the middle of
            their window; or as ``trajcli.differentiate``.
    """
    rows = _check_rows(quaternions, 4, "quaternions")
    steps, stamps = (None if x is None else as_array(x) for x in (dt, times))
    mode = make_method(method, window=window, degree=degree, **smoothing)
    # smooth gives missing rows no weight
    allow_nonfinite = bool(allow_nonfinite) or mode.name == "smooth"
    flat = rows.reshape(*rows.shape[:2], -1)
    names = {"actions": "quaternions"}
    inputs = Inputs(mode, flat, {}, {}, steps, stamps, recorded=True, names=names)
    raise_if_any(shape_faults(inputs))
    if not allow_nonfinite:
        raise_if_any(nonfinite_faults(inputs))
    values = to_quaternions(rows, where="quaternions", allow_nonfinite=allow_nonfinite)
    blocks = differentiate_rows(
        lambda first, last: values[:, first:last], rows.shape, inputs, frame
    )
    parts, options = zip(*((list(motion), motion.options) for _, motion in blocks), strict=True)
    joined = (concatenate(part, 1) for part in zip(*parts, strict=True))
    q, omega, alpha, jerk = (cast(part, output_dtype(rows.dtype)) for part in joined)
    time = match_library(inputs.row_times(), rows, "dt" if times is None else "times")
    time = time[0] if len(time) == 1 else time
    return RotationTrajectory(q, omega, alpha, jerk, time, frame, options[0])


def differentiate_rows(
    read: Callable[[int, int], Array], shape: Sequence[int], inputs: Inputs, frame: str
) -> Iterator[tuple[int, RotationTrajectory]]:
    """Differentiates quaternions [B, T, (R,) 4] by blocks; yields each with its first row.

    ``read`` reads rows first to last; ``inputs`` has the method and the steps, not the actions.
    """
    mode, bodies, previous = inputs.mode, shape[2] if len(shape) == 4 else 1, None

    def read_rows(first: int, last: int) -> Array:
        return continuous(_to_world(_flatten(read(first, last)), frame))

    like = read(0, 1)
    steps = repeat_for_bodies(match_library(inputs.steps, like), bodies)
    options = {"method": mode.name, **mode.options(True)}
    blocks: Iterator[tuple[int, list[Array]]]
    if mode.result_names:
        # a smoothing spline needs all rows at once: a few trajectories at a time, since each row
        # has some hundred temporary numbers
        values, size = read_rows(0, shape[1]), max(1, ROTATION_VALUES // shape[1])
        groups = [
            _rates.smooth(
                values[k : k + size], steps if len(steps) == 1 else steps[k : k + size],
                mode.options(),
            )
            for k in range(0, len(values), size)
        ]  # fmt: skip
        rows = [concatenate(part, 0) for part in zip(*(rows for rows, _ in groups), strict=True)]
        per_axis = (shape[0], *shape[2:-1], 3)
        for name in groups[0][1]:
            values = np.concatenate([chosen[name] for _, chosen in groups])
            options[name] = values.reshape(per_axis)
        blocks = iter([(0, rows)])
    elif isinstance(mode, Clique):
        options["method"], blocks = "backward", _rates.backward(read_rows, shape, steps)
    else:
        blocks = _rates.fit_windows(read_rows, shape, steps, inputs.program(), bodies)
    for first, (values, *rates) in blocks:
        # signs continue those of the last known row of the previous block
        values = continuous(values, previous)
        previous = _rates.fill_missing(values)[0][:, -1:]
        yield first, _result([values, *rates], None, frame, like, options)


def integrate(
    actions: ArrayLike,
    start: State | ArrayLike,
    dt: ArrayLike | float | None = None,
    mode: str = "velocity",
    *,
    times: ArrayLike | None = None,
    scheme: str = "euler",
    frame: str = "world",
    allow_nonfinite: bool = False,
) -> RotationTrajectory:
    """Integrates angular velocity, acceleration or jerk into orientations.

    Parameters:
        actions: [H, 3], [B, H, 3] or [B, H, R, 3] in rad/s, rad/s² or rad/s³, by ``mode``.
        start: a quaternion, or a State of a quaternion and of angular velocity, acceleration and
            jerk, that broadcasts to [B, 4] or [B, R, 4] (and 3).
        dt, times: see ``trajcli.integrate``.
        scheme: ``euler`` is q_t = exp(dt·ω_t)·q_{t−1}, of order 1. With ``zoh`` and ``foh`` actions
            are constant or linear within a step, and ω(t) is a polynomial. Two terms of the Magnus
            expansion integrate it with order 4, and exactly while its axis is fixed (A. Iserles and
            S. Nørsett, "On the solution of linear differential equations in Lie groups", 1999).
        frame: of actions and rates, "world" or "body".

    Returns:
        A RotationTrajectory of H + 1 rows, beginning with the start, of the input's library, device
        and dtype; differentiable with respect to actions, start, dt and times.

    Raises:
        InputError: a start that is not a rotation; or as ``trajcli.integrate``.
    """
    _require_one_of(QUANTITIES[1:], mode, "mode")
    order = QUANTITIES.index(mode) - 1
    values = _check_rows(actions, 3, "actions")
    parts = state_parts(start, "start", (*values.shape[2:-1], 4))
    if "position" not in parts:
        expected = "a quaternion, or a State of one"
        raise InputError("no start", where="start", expected=expected, found="none given")
    batch, shape = len(values), values.shape[2:-1]
    # The cascade of ω: its position is ω, its velocity α and so on, one quantity below those of the
    # orientation. Actions of mode velocity are its positions (clique), those of acceleration its
    # velocities.
    states = {
        name: _broadcast(parts[part], (batch, *shape, 3), f"start/{part}").reshape(batch, -1)
        for name, part in pairwise(QUANTITIES)
        if part in parts
    }
    flat: Any = values.reshape(*values.shape[:2], -1)
    modes = "clique", "velocity", "acceleration"
    inner: Any = modes[order]
    inner_options: Any = {"scheme": scheme}
    # ω is zero at the start unless the state has one
    states.setdefault("position", np.zeros((1, flat.shape[2])))
    rows = calls.integrate(
        flat, State(**states), dt, inner, times=times, dtype="float64", backend="auto",
        allow_nonfinite=allow_nonfinite, **inner_options,
    )  # fmt: skip
    # the steps as calls.integrate has read them, which the rows alone do not tell
    gaps, stamps = (None if x is None else as_array(x) for x in (dt, times))
    steps = Inputs(make_mode(inner, scheme=scheme), flat, {}, {}, gaps, stamps).steps
    # in the body's frame, q⁻¹ turns by −ω: rates change their sign
    sign = 1.0 if frame == "world" else -1.0
    outputs = list(rows.outputs().values())[:3]
    values = match_library(values, outputs[0])  # tensors if any argument is one
    rates = [sign * _flatten(x.reshape(batch, -1, *values.shape[2:])) for x in outputs]
    steps = repeat_for_bodies(match_library(steps, values), math.prod(shape))[..., None]
    turns = _rates.turns_of_rates(rates, order, scheme, steps)
    first = _broadcast(parts["position"], (batch, *shape, 4), "start").reshape(-1, 1, 4)
    first = match_library(first, values)
    first = to_quaternions(first, where="start", allow_nonfinite=allow_nonfinite)
    first = _to_world(first, frame)
    turned = multiply(cumulative_product(exp(turns)), first)
    # the products of many turns lose their norm by rounding
    orientations = concatenate([first, turned / dot(turned, turned) ** 0.5], 1)
    options = {"mode": mode, "scheme": scheme}
    return _result([continuous(orientations), *rates], rows.time, frame, values, options)


def resample(
    quaternions: ArrayLike,
    method: str = "slerp",
    *,
    rate: float | None = None,
    at: ArrayLike | None = None,
    dt: float | None = None,
    times: ArrayLike | None = None,
    frame: str = "world",
) -> RotationTrajectory:
    """Resamples orientations: one curve through the rows, and its rates, at other times.

    Parameters:
        quaternions: [T, 4], [B, T, 4] or [B, T, R, 4], with any signs.
        rate, at, dt, times: see ``trajcli.resample``.
        method: ``slerp`` is the shortest turn from row to row at constant ω; ``squad`` has a
            continuous ω if steps are equal (K. Shoemake, "Quaternion calculus and fast animation",
            1987); ``spline``, cubic in the logarithm of each step, has a continuous ω and α, and
            at its ends the mean ω of their steps, as SciPy's RotationSpline.
        frame: of the rates, "world" or "body".

    Returns:
        A RotationTrajectory with ω and, by ``spline``, all rates; at a row they are those of the
        step that ends there. Differentiable with respect to quaternions and times.

    Raises:
        InputError, UsageError: as ``trajcli.resample``.
    """
    _require_one_of([*CURVES], method, "method")
    rows = _check_rows(quaternions, 4, "quaternions")
    values = continuous(_to_world(_flatten(to_quaternions(rows, where="quaternions")), frame))
    flat, bodies = rows.reshape(*rows.shape[:2], -1), rows.shape[2] if rows.ndim == 4 else 1
    knots = row_knots(flat, dt, times)
    holds = method == "slerp" or bool(at_rest({"position": flat}, knots.times).all())
    new, at = new_times(flat, rate, at, holds, knots)
    stamps, at = (repeat_for_bodies(x, bodies) for x in (knots.times, at))
    if rows.shape[1] == 1:
        still = take(values, search(stamps, at, right=False) * 0)
        curve = [still, *[0.0 * still[..., 1:]] * 3]
    else:
        curve = CURVES[method](values, stamps, at)
    curve[0] = continuous(curve[0])
    return _result(curve, new, frame, rows, {"method": method})


def sample(
    motion: RotationTrajectory, times: ArrayLike, method: str = "spline"
) -> RotationTrajectory:
    """Samples a trajectory at other times [N] or [B, N], on a curve of ``resample``."""
    if not isinstance(motion, RotationTrajectory):
        found = f"a {type(motion).__name__}"
        raise InputError("not a RotationTrajectory", where="motion", found=found)
    return resample(motion.orientation, method, at=times, times=motion.time, frame=motion.frame)


def compose(
    actions: ArrayLike, start: ArrayLike, *, kind: str = "delta", frame: str = "world"
) -> Array:
    """Composes delta or relative rotations into orientations, beginning with the start.

    Parameters:
        actions: quaternions [H, 4], [B, H, 4] or [B, H, R, 4].
        start: quaternions that broadcast to [B, 4] or [B, R, 4].
        kind: ``delta``, from one row to the next, or ``relative``, from the start.
        frame: the frame in which an action turns: "world", d·q, or "body", q·d, that of a tool.

    Returns:
        Quaternions of H + 1 rows.

    Raises:
        InputError: wrong shapes, or values that are not rotations.
    """
    rows, steps = _read_actions(actions, kind, frame)
    first = _broadcast(start, (len(rows), *rows.shape[2:]), "start").reshape(-1, 1, 4)
    first = _to_world(match_library(to_quaternions(first, where="start"), steps), frame)
    # in the body, all factors are inverted: (q·d)⁻¹ = d⁻¹·q⁻¹ is the product of the world
    turned = multiply(cumulative_product(steps) if kind == "delta" else steps, first)
    turned = continuous(concatenate([first, turned], 1))
    return _result([turned], None, frame, rows, {}).orientation


def decompose(quaternions: ArrayLike, *, kind: str = "delta", frame: str = "world") -> Array:
    """Decomposes orientations into the actions from which ``compose`` makes them."""
    rows, values = _read_actions(quaternions, kind, frame)
    origin = values[:, :-1] if kind == "delta" else values[:, :1]
    turns = continuous(multiply(values[:, 1:], conjugate(origin)))
    return _result([turns], None, frame, rows, {}).orientation


def _read_actions(values: ArrayLike, kind: str, frame: str) -> tuple[Array, Array]:
    _require_one_of(("delta", "relative"), kind, "kind")
    rows = _check_rows(values, 4, "quaternions")
    return rows, _to_world(_flatten(to_quaternions(rows, where="quaternions")), frame)


def _check_rows(values: ArrayLike, width: int, where: str) -> Array:
    """Makes values [T, n] a batch [1, T, n]; raises InputError unless they are [B, T, (R,) n]."""
    rows = as_array(values, where)
    rows = rows[None] if rows.ndim == 2 else rows
    if rows.ndim not in (3, 4) or rows.shape[-1] != width or 0 in rows.shape:
        expected = f"[T, {width}], [B, T, {width}] or [B, T, R, {width}]"
        raise InputError(wrong_shape(where, expected, rows.shape))
    return rows


def _broadcast(values: ArrayLike, shape: Sequence[int], where: str) -> Array:
    array = as_array(values, where)
    try:
        return library(array).broadcast_to(array, tuple(shape))
    except (RuntimeError, ValueError):
        expected = f"one that broadcasts to {describe(shape)}"
        raise InputError(wrong_shape(where, expected, array.shape)) from None


def _to_world(values: Array, frame: str) -> Array:
    """Inverts orientations for rates in the body: the formulas are for the world."""
    _require_one_of(("world", "body"), frame, "frame")
    return values if frame == "world" else conjugate(values)


def _require_one_of(known: Sequence[str], word: str, where: str) -> None:
    if word not in known:
        choices = f"{', '.join(known[:-1])} or {known[-1]}"
        raise UsageError(unknown(where, choices=choices, found=repr(word)))


def _flatten(values: Array) -> Array:
    """Reshapes [B, T, (R,) n] to [B·R, T, n]: every body becomes a trajectory."""
    if values.ndim == 3:
        return values
    return library(values).moveaxis(values, 2, 1).reshape(-1, values.shape[1], values.shape[3])


def _result(
    rows: Sequence[Array], time: Any, frame: str, like: Array, options: Mapping[str, Any]
) -> RotationTrajectory:
    """Makes a trajectory of rows [B·R, T, n], in the shape and dtype of ``like`` and its frame."""
    rates = [x if frame == "world" else -x for x in rows[1:]]
    shaped = []
    for x in (_to_world(rows[0], frame), *rates):
        if like.ndim == 4:
            x = library(x).moveaxis(x.reshape(-1, like.shape[2], *x.shape[1:]), 1, 2)
        shaped.append(cast(x, output_dtype(like.dtype)))
    if time is not None and time.ndim == 2 and len(time) == 1:
        time = time[0]
    velocity, acceleration, jerk = (*shaped[1:], None, None, None)[:3]
    return RotationTrajectory(shaped[0], velocity, acceleration, jerk, time, frame, options)
