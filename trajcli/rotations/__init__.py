"""Rotations: unit quaternions, their angular rates, and curves through them. docs/rotations.md.

A quaternion is w, x, y, z and turns vectors of the body into the world. Angular velocity ω and its
derivatives are components in a frame: q̇ = ½ω·q in the "world", q̇ = ½q·ω in the "body". As q⁻¹
turns by −ω of the body in the world, every formula here is written for the world.
"""

from __future__ import annotations

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
from trajcli.kernels.program import Array
from trajcli.memory import ROTATION_VALUES
from trajcli.modes import QUANTITIES, make_method, make_mode
from trajcli.modes.cascade import Clique
from trajcli.rotations import _rates
from trajcli.rotations._rates import CURVES, for_bodies
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
        orientation: unit quaternions w, x, y, z, [B, T, 4] or, for several bodies, [B, T, R, 4];
            the first has w >= 0, and none a negative product with the one before it.
        angular_velocity: [B, T, 3] or [B, T, R, 3] in rad/s; a rate that is not known is None.
        angular_acceleration: the derivative of these components, in rad/s².
        angular_jerk: the derivative of those, in rad/s³.
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
    quaternions: Array,
    *,
    dt: Array | float | None = None,
    times: Array | None = None,
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
        dt, times, window, degree: see ``trajcli.differentiate``, as for the options of ``smooth``:
            bandlimit (a number, or [3] for the axes of the frame), noise in rad, robust and order.
        method: ``smooth``, the smoothing spline of the path in the tangent space; ``backward``,
            ω_t = log(q_t·q_{t−1}⁻¹)/dt, which ``integrate`` turns back into the orientations;
            ``central`` and ``savgol``, the polynomials through, or nearest to, the
            rotation vectors φ of the rows of a window relative to its middle row q, with the rates
            of exp(φ)·q. ``savgol`` smooths the orientations, too.
        frame: "world" or "body", of the rates.

    Returns a RotationTrajectory of the input's library, device and dtype, computed in float64;
    differentiable by quaternions, dt and times. Raises the errors of
    ``trajcli.differentiate``, and InputError for norms that are off by more than 1e-3 and for
    rows that are more than 270° from the middle of their window.
    """
    given = _checked(quaternions, 4, "quaternions")
    steps, stamps = (None if x is None else as_array(x) for x in (dt, times))
    made = make_method(method, window=window, degree=degree, **smoothing)
    # missing rows of smooth have no weight
    allow_nonfinite = bool(allow_nonfinite) or made.name == "smooth"
    flat = given.reshape(*given.shape[:2], -1)
    names = {"actions": "quaternions"}
    inputs = Inputs(made, flat, {}, {}, steps, stamps, recorded=True, names=names)
    raise_if_any(shape_faults(inputs))
    if not allow_nonfinite:
        raise_if_any(nonfinite_faults(inputs))
    values = to_quaternions(given, where="quaternions", allow_nonfinite=allow_nonfinite)
    blocks = differentiate_rows(
        lambda first, last: values[:, first:last], given.shape, inputs, frame
    )
    parts, options = zip(*((list(motion), motion.options) for _, motion in blocks), strict=True)
    rows = (concatenate(part, 1) for part in zip(*parts, strict=True))
    q, omega, alpha, jerk = (cast(part, output_dtype(given.dtype)) for part in rows)
    time = match_library(inputs.row_times(), given, "dt" if times is None else "times")
    time = time[0] if len(time) == 1 else time
    return RotationTrajectory(q, omega, alpha, jerk, time, frame, options[0])


def differentiate_rows(
    read: Callable[[int, int], Array], shape: Sequence[int], inputs: Inputs, frame: str
) -> Iterator[tuple[int, RotationTrajectory]]:
    """Yields orientations and rates of some rows after the other, with the number of the first.

    read: returns unit quaternions of rows first to last. shape: [B, T, 4] or [B, T, R, 4], of all.
    inputs: with the method of differentiation and the steps; its actions are not read.
    """
    mode, bodies, before = inputs.mode, shape[2] if len(shape) == 4 else 1, None

    def rows(first: int, last: int) -> Array:
        return continuous(_framed(_flat(read(first, last)), frame))

    given = read(0, 1)
    steps = for_bodies(match_library(inputs.steps, given), bodies)
    options = {"method": mode.name, **mode.options(True)}
    blocks: Iterator[tuple[int, list[Array]]]
    if mode.result_names:
        values, size = rows(0, shape[1]), max(1, ROTATION_VALUES // shape[1])
        parts = [slice(k, k + size) for k in range(0, len(values), size)]
        few = [  # at once: each row has some hundred temporary numbers
            _rates.smooth(values[part], steps if len(steps) == 1 else steps[part], mode.options())
            for part in parts
        ]
        whole = [concatenate(part, 0) for part in zip(*(rows for rows, _ in few), strict=True)]
        chosen = {name: np.concatenate([block[name] for _, block in few]) for name in few[0][1]}
        per_axis = (shape[0], *shape[2:-1], 3)
        options |= {name: x.reshape(per_axis) for name, x in chosen.items()}
        blocks = iter([(0, whole)])
    elif isinstance(mode, Clique):
        options["method"], blocks = "backward", _rates.backward(rows, shape, steps)
    else:
        blocks = _rates.in_windows(rows, shape, steps, inputs.program(), bodies)
    for first, (values, *rates) in blocks:
        values = continuous(values, before)
        before = _rates.filled(values)[0][:, -1:]
        yield first, _result([values, *rates], None, frame, read(0, 1), options)


def integrate(
    actions: Array,
    start: State | Array,
    dt: Array | float | None = None,
    mode: str = "velocity",
    *,
    times: Array | None = None,
    scheme: str = "euler",
    frame: str = "world",
    allow_nonfinite: bool = False,
) -> RotationTrajectory:
    """Integrates angular velocity, acceleration or jerk into orientations.

    Parameters:
        actions: [H, 3], [B, H, 3] or [B, H, R, 3] in rad/s, rad/s² or rad/s³, as ``mode`` says.
        start: a quaternion, or a State of a quaternion and of angular velocity, acceleration and
            jerk, that broadcasts to [B, 4] or [B, R, 4] (and 3).
        dt, times: see ``trajcli.integrate``.
        scheme: ``euler``, q_t = exp(dt·ω_t)·q_{t−1}, of order 1; ``zoh`` and ``foh``, actions that
            are constant or linear within a step make ω(t) a polynomial, which two terms of the
            Magnus expansion integrate with order 4, and exactly while its axis stands (A. Iserles
            and S. Nørsett, "On the solution of linear differential equations in Lie groups",
            1999).
        frame: "world" or "body", of actions and rates.

    Returns a RotationTrajectory of H + 1 rows, the first the start, of the input's library,
    device and dtype; differentiable by actions, start, dt and times. Raises the errors of
    ``trajcli.integrate``, and InputError for a start that is no rotation.
    """
    _require_one_of(QUANTITIES[1:], mode, "mode")
    order = QUANTITIES.index(mode) - 1
    given = _checked(actions, 3, "actions")
    parts = state_parts(start, "start", (*given.shape[2:-1], 4))
    if "position" not in parts:
        expected = "a quaternion, or a State of one"
        raise InputError("no start", where="start", expected=expected, found="none given")
    batch, bodies = len(given), given.shape[2:-1]
    states = {
        name: _broadcast(parts[part], (batch, *bodies, 3), f"start/{part}").reshape(batch, -1)
        for name, part in pairwise(QUANTITIES)
        if part in parts
    }
    # the cascade of ω, whose position is the angular velocity
    flat, modes = given.reshape(*given.shape[:2], -1), ("clique", "velocity", "acceleration")
    inner: Any = modes[order]
    of_mode: Any = {"scheme": scheme}
    states.setdefault("position", np.zeros((1, flat.shape[2])))
    rows = calls.integrate(
        flat, State(**states), dt, inner, times=times, dtype="float64", backend="auto",
        allow_nonfinite=allow_nonfinite, **of_mode,
    )  # fmt: skip
    gaps, stamps = (None if x is None else as_array(x) for x in (dt, times))
    steps = Inputs(make_mode(inner, scheme=scheme), flat, {}, {}, gaps, stamps).steps
    sign = 1.0 if frame == "world" else -1.0
    outputs = list(rows.outputs().values())[:3]
    given = match_library(given, outputs[0])  # tensors where any argument is one
    rates = [sign * _flat(x.reshape(batch, -1, *given.shape[2:])) for x in outputs]
    steps = for_bodies(match_library(steps, given), _bodies(given))[..., None]
    turns = _rates.turns_of_rates(rates, order, scheme, steps)
    first = _broadcast(parts["position"], (batch, *bodies, 4), "start").reshape(-1, 1, 4)
    first = to_quaternions(
        match_library(first, given), where="start", allow_nonfinite=allow_nonfinite
    )
    first = _framed(first, frame)
    turned = multiply(cumulative_product(exp(turns)), first)
    values = concatenate([first, turned / dot(turned, turned) ** 0.5], 1)
    options = {"mode": mode, "scheme": scheme}
    return _result([continuous(values), *rates], rows.time, frame, given, options)


def resample(
    quaternions: Array,
    method: str = "slerp",
    *,
    rate: float | None = None,
    at: Array | None = None,
    dt: float | None = None,
    times: Array | None = None,
    frame: str = "world",
) -> RotationTrajectory:
    """Resamples orientations: one curve through the rows, and its rates, at other times.

    Parameters:
        quaternions: [T, 4], [B, T, 4] or [B, T, R, 4], with any signs.
        rate, at, dt, times: see ``trajcli.resample``.
        method: ``slerp``, the shortest turn from row to row at constant ω; ``squad``, whose ω is
            continuous where steps are equal (K. Shoemake, "Quaternion calculus and fast animation",
            1987); ``spline``, cubic in the logarithm of each step, whose ω and α are continuous;
            its ω at the ends are the means of their steps, as in SciPy's RotationSpline.
        frame: "world" or "body", of the rates.

    Returns a RotationTrajectory with ω and, of ``spline``, all rates; at a row they are those of
    the step that ends there. Differentiable by quaternions and times. Raises the errors of
    ``trajcli.resample``.
    """
    _require_one_of([*CURVES], method, "method")
    given = _checked(quaternions, 4, "quaternions")
    values = continuous(_framed(_flat(to_quaternions(given, where="quaternions")), frame))
    flat = given.reshape(*given.shape[:2], -1)
    knots = row_knots(flat, dt, times)
    holds = method == "slerp" or bool(at_rest({"position": flat}, knots.times).all())
    new, at = new_times(flat, rate, at, holds, knots)
    stamps, at = (for_bodies(x, _bodies(given)) for x in (knots.times, at))
    if given.shape[1] == 1:
        still = take(values, search(stamps, at, right=False) * 0)
        rows = [still, *[0.0 * still[..., 1:]] * 3]
    else:
        rows = CURVES[method](values, stamps, at)
    rows[0] = continuous(rows[0])
    return _result(rows, new, frame, given, {"method": method})


def sample(motion: RotationTrajectory, times: Array, method: str = "spline") -> RotationTrajectory:
    """Returns a trajectory at other times [N] or [B, N], by a curve of ``resample``."""
    if not isinstance(motion, RotationTrajectory):
        found = f"a {type(motion).__name__}"
        raise InputError("not a RotationTrajectory", where="motion", found=found)
    return resample(motion.orientation, method, at=times, times=motion.time, frame=motion.frame)


def compose(actions: Array, start: Array, *, kind: str = "delta", frame: str = "world") -> Array:
    """Returns the orientations that delta or relative rotations lead to, the first the start.

    Parameters:
        actions: quaternions [H, 4], [B, H, 4] or [B, H, R, 4].
        start: quaternions that broadcast to [B, 4] or [B, R, 4].
        kind: ``delta``, from one row to the next, or ``relative``, from the start.
        frame: the frame in which an action turns: "world", d·q, or "body", q·d, that of a tool.

    Returns quaternions of H + 1 rows. Raises InputError for shapes, and for no rotations.
    """
    given, steps = _actions(actions, kind, frame)
    first = _broadcast(start, (len(given), *given.shape[2:]), "start").reshape(-1, 1, 4)
    first = _framed(match_library(to_quaternions(first, where="start"), steps), frame)
    turned = multiply(cumulative_product(steps) if kind == "delta" else steps, first)
    turned = continuous(concatenate([first, turned], 1))
    return _result([turned], None, frame, given, {}).orientation


def decompose(quaternions: Array, *, kind: str = "delta", frame: str = "world") -> Array:
    """Returns the actions that ``compose`` makes into orientations, from the first on."""
    given, values = _actions(quaternions, kind, frame)
    origin = values[:, :-1] if kind == "delta" else values[:, :1]
    turns = continuous(multiply(values[:, 1:], conjugate(origin)))
    return _result([turns], None, frame, given, {}).orientation


def _actions(values: Array, kind: str, frame: str) -> tuple[Array, Array]:
    _require_one_of(("delta", "relative"), kind, "kind")
    given = _checked(values, 4, "quaternions")
    return given, _framed(_flat(to_quaternions(given, where="quaternions")), frame)


def _checked(values: Array, width: int, where: str) -> Array:
    """Returns values [T, n] as [1, T, n]; raises InputError unless they are [B, T, (R,) n]."""
    given = as_array(values, where)
    given = given[None] if given.ndim == 2 else given
    if given.ndim not in (3, 4) or given.shape[-1] != width or 0 in given.shape:
        expected = f"[T, {width}], [B, T, {width}] or [B, T, R, {width}]"
        raise InputError(wrong_shape(where, expected, given.shape))
    return given


def _broadcast(values: Array, shape: Sequence[int], where: str) -> Array:
    array = as_array(values, where)
    try:
        return library(array).broadcast_to(array, tuple(shape))
    except (RuntimeError, ValueError):
        expected = f"one that broadcasts to {describe(shape)}"
        raise InputError(wrong_shape(where, expected, array.shape)) from None


def _framed(values: Array, frame: str) -> Array:
    """Returns the orientations whose rates in the world are computed: inverted for the body."""
    _require_one_of(("world", "body"), frame, "frame")
    return values if frame == "world" else conjugate(values)


def _require_one_of(known: Sequence[str], word: str, where: str) -> None:
    if word not in known:
        choices = f"{', '.join(known[:-1])} or {known[-1]}"
        raise UsageError(unknown(where, choices=choices, found=repr(word)))


def _flat(values: Array) -> Array:
    """Returns [B, T, (R,) n] as [B·R, T, n]: every body becomes a trajectory."""
    if values.ndim == 3:
        return values
    return library(values).moveaxis(values, 2, 1).reshape(-1, values.shape[1], values.shape[3])


def _bodies(given: Array) -> int:
    return 1 if given.ndim == 3 else int(given.shape[2])


def _result(
    rows: Sequence[Array], time: Array, frame: str, given: Array, options: Mapping[str, Any]
) -> RotationTrajectory:
    """Returns the trajectory of rows [B·R, T, ...], which are inverted if the frame is the body."""
    rates = [x if frame == "world" else -x for x in rows[1:]]
    shaped = []
    for x in (_framed(rows[0], frame), *rates):
        if given.ndim == 4:
            x = library(x).moveaxis(x.reshape(-1, given.shape[2], *x.shape[1:]), 1, 2)
        shaped.append(cast(x, output_dtype(given.dtype)))
    if time is not None and time.ndim == 2 and len(time) == 1:
        time = time[0]
    velocity, acceleration, jerk = (*shaped[1:], None, None, None)[:3]
    return RotationTrajectory(shaped[0], velocity, acceleration, jerk, time, frame, options)
