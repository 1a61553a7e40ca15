"""Rotations: unit quaternions, their angular rates, and curves through them. docs/rotations.md.

A quaternion is w, x, y, z and turns vectors of the body into the world. Angular velocity ω and its
derivatives are components in a frame: q̇ = ½ω·q in the "world", q̇ = ½q·ω in the "body". As q⁻¹
turns by −ω of the body in the world, every formula here is written for the world.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any, TypeAlias

import numpy as np

from trajcli import trajectory
from trajcli.arrays import (
    as_array,
    cast,
    concatenate,
    is_torch,
    matched,
    output_dtype,
    readable,
    to_numpy,
)
from trajcli.checks import describe, nonfinite_faults, shape_faults
from trajcli.errors import InputError, UsageError, raise_if_any
from trajcli.inputs import Inputs
from trajcli.kernels.fit import fit_weights
from trajcli.memory import ROTATION_VALUES
from trajcli.modes import PARTS, make_method, make_mode
from trajcli.modes.cascade import Clique
from trajcli.modes.smooth import Smooth
from trajcli.quaternions import (
    FORMS,
    angle,
    conjugate,
    continuous,
    cross,
    cumulative_product,
    dot,
    exp,
    from_quaternions,
    interleaved,
    library,
    log,
    multiply,
    rates_of_log,
    rotate,
    slope_of_log,
    to_quaternions,
)
from trajcli.resampling import placed
from trajcli.sampling import derivative, search, take
from trajcli.trajectory import State

Array: TypeAlias = Any
"""numpy.ndarray or torch.Tensor."""

__all__ = ["CURVES", "FORMS", "RATES", "RotationTrajectory", "angle", "compose", "conjugate",
           "continuous", "cumulative_product", "decompose", "differentiate", "exp",
           "from_quaternions", "integrate", "log", "multiply", "resample", "rotate", "sample",
           "to_quaternions"]  # fmt: skip

RATES = ("angular_velocity", "angular_acceleration", "angular_jerk")
# How far rows of a window may turn away from its middle; the logarithm ends at 2π.
_FARTHEST = 1.5 * math.pi
# How far, in rad, the reference of smooth may be from the rows.
_FARTHEST_DRIFT = 1.5
_MOST_ITERATIONS = 60


@dataclass(frozen=True)
class RotationTrajectory:
    """Orientations and their angular rates, with the time of the rows.

    orientation: unit quaternions w, x, y, z, [B, T, 4] or, of several bodies, [B, T, R, 4]; the
    first has w >= 0, and none a negative product with the one before. Angular velocity,
    acceleration and jerk: [B, T, 3] or [B, T, R, 3] in rad/s, rad/s² and rad/s³, each the
    derivative of the components before; None where not known. time: [T] or [B, T] in seconds.
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
    """Differentiate recorded orientations: angular velocity, acceleration and jerk of each row.

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
    allow_nonfinite |= method == "smooth"  # whose missing rows have no weight
    flat = given.reshape(*given.shape[:2], -1)
    names = {"actions": "quaternions"}
    inputs = Inputs(made, flat, {}, {}, steps, stamps, recorded=True, names=names)
    raise_if_any(shape_faults(inputs))
    if not allow_nonfinite:
        raise_if_any(nonfinite_faults(inputs))
    values = to_quaternions(given, where="quaternions", allow_nonfinite=allow_nonfinite)
    found = differentiate_rows(
        lambda first, last: values[:, first:last], given.shape, inputs, frame
    )
    parts, options = zip(*((list(motion), motion.options) for _, motion in found), strict=True)
    rows = (concatenate(part, 1) for part in zip(*parts, strict=True))
    q, omega, alpha, jerk = (cast(part, output_dtype(given.dtype)) for part in rows)
    time = inputs.row_times()
    time = time[0] if len(time) == 1 else time
    return RotationTrajectory(q, omega, alpha, jerk, time, frame, options[0])


def differentiate_rows(
    read: Callable[[int, int], Array], shape: Sequence[int], inputs: Inputs, frame: str
) -> Iterator[tuple[int, RotationTrajectory]]:
    """Yield orientations and rates of some rows after the other, with the number of the first.

    read: returns unit quaternions of rows first to last. shape: [B, T, 4] or [B, T, R, 4], of all.
    inputs: with the method of differentiation and the steps; its actions are not read.
    """
    mode, bodies, before = inputs.mode, shape[2] if len(shape) == 4 else 1, None

    def rows(first: int, last: int) -> Array:
        return continuous(_framed(_flat(read(first, last)), frame))

    given = read(0, 1)
    steps = _for_bodies(matched(inputs.steps, given), bodies)
    options = {"method": mode.name, **mode.options(True)}
    found: Iterator[tuple[int, list[Array]]]
    if isinstance(mode, Smooth):
        values, size = rows(0, shape[1]), max(1, ROTATION_VALUES // shape[1])
        few = [  # at once: each row has some hundred temporary numbers
            _smooth(values[k : k + size], steps if len(steps) == 1 else steps[k : k + size], mode)
            for k in range(0, len(values), size)
        ]
        whole = [concatenate(part, 0) for part in zip(*(rows for rows, _ in few), strict=True)]
        chosen = {name: np.concatenate([of[name] for _, of in few]) for name in few[0][1]}
        alike = (shape[0], *shape[2:-1], 3)
        options |= {name: x.reshape(alike) for name, x in chosen.items()}
        found = iter([(0, whole)])
    elif isinstance(mode, Clique):
        options["method"], found = "backward", _backward(rows, shape, steps)
    else:
        found = _in_windows(rows, shape, steps, inputs.program(), bodies)
    for first, (values, *rates) in found:
        values = continuous(values, before)
        before = _filled(values)[0][:, -1:]
        yield first, _result([values, *rates], None, frame, read(0, 1), options)


def _backward(
    rows: Callable[[int, int], Array], shape: Sequence[int], steps: Array
) -> Iterator[tuple[int, list[Array]]]:
    """Yield rows of orientations and of differences of neighbours; α̇ needs three rows before."""
    count, size = shape[1], max(4, ROTATION_VALUES // (shape[0] * math.prod(shape[2:-1])))
    for begin in range(0, count, size):
        first = max(0, begin - 3)
        values = rows(first, min(begin + size, count))
        own = steps if steps.shape[1] == 1 else steps[:, first : first + values.shape[1] - 1]
        if values.shape[1] == 1:
            yield begin, [values, *[values[..., 1:] * 0.0] * 3]
            return
        omega = log(multiply(values[:, 1:], conjugate(values[:, :-1]))) / own[..., None]
        later = own if own.shape[1] == 1 else own[:, 1:]
        later = later if later.shape[1] else own  # one rate has no step before it
        rates = trajectory.differentiate(omega, dt=later, method="backward", allow_nonfinite=True)
        parts = [concatenate([x[:, :1], x], 1) for x in rates.outputs().values()]
        yield begin, [x[:, begin - first :] for x in (values, *parts[:3])]


def _smooth(values: Array, steps: Array, mode: Smooth) -> tuple[list[Array], Mapping[str, Any]]:
    """Orientations and rates of the smoothing spline, and what it chose by its options [N, 3].

    The turns from row to row add up to a path in the tangent space. Integrated, the spline of this
    path is a reference r, which the noise's products move away from the rows; the path corrected
    by the logarithms relative to r is smoothed again, and φ is how far that spline is from the
    first: exp(φ)·r is the curve, and its rates are those of exp(φ) and, turned by it, those of r.
    """
    known, absent = _filled(values)
    turns = _turns_between(known)
    path = concatenate([0.0 * turns[:, :1], turns.cumsum(1)], 1)

    options = {name: getattr(mode, name) for name in mode.option_names()}

    def spline(rows: Array, **more: Any) -> trajectory.Trajectory:
        rows = library(rows).where(absent, math.nan, rows) if absent.any() else rows
        return trajectory.differentiate(
            rows, dt=steps, method="smooth", allow_nonfinite=True, **{**options, **more}
        )

    first = spline(path)  # with NaN where a dof stands still and has no bandlimit
    rates = list(first.outputs().values())
    start = multiply(exp(rates[0][:, :1] - path[:, :1]), known[:, :1])
    turned = multiply(cumulative_product(exp(_turns_of_spline(rates, steps[..., None]))), start)
    reference = concatenate([start, turned], 1)
    reference = reference / dot(reference, reference) ** 0.5
    off = log(multiply(known, conjugate(reference)))
    if readable(off) and (np.linalg.norm(to_numpy(off), axis=-1) > _FARTHEST_DRIFT).any():
        raise InputError(
            "turns that the smoothing spline cannot follow",
            where="quaternions",
            hint="record faster, or method savgol",
        )
    chosen = {k: x for k, x in first.options.items() if k in ("bandlimit", "residual")}
    second = spline(rates[0] + off, bandlimit=chosen["bandlimit"], noise=None)
    phi = [after - before for after, before in zip(second.outputs().values(), rates, strict=True)]
    turn = exp(phi[0])
    own, own_alpha, own_jerk = rates_of_log(*phi)
    omega, alpha, jerk = (rotate(turn, x) for x in rates[1:])
    around = cross(own, omega)
    later = own_jerk + cross(own_alpha, omega) + cross(own, around + 2.0 * alpha) + jerk
    chosen |= {k: x for k, x in second.options.items() if k == "reweighted"}
    smoothed = [multiply(turn, reference), own + omega, own_alpha + around + alpha, later]
    return smoothed, chosen


def _filled(values: Array) -> tuple[Array, Array]:
    """Rows [N, T, 4] with the one before, or else the first, where there is none, and where that
    is [N, T, 1]."""
    if not readable(values):
        return values, matched(np.zeros((1, 1, 1)), values) > 0.0
    known = np.isfinite(to_numpy(values)).all(-1)
    rows = np.maximum.accumulate(np.where(known, np.arange(known.shape[1]), 0), 1)
    rows = np.maximum(rows, known.argmax(1)[:, None])
    absent = matched(1.0 - known[..., None], values) > 0.0
    return (values if known.all() else take(values, matched(rows, values))), absent


def _in_windows(
    rows: Callable[[int, int], Array], shape: Sequence[int], steps: Array, band: Any, bodies: int
) -> Iterator[tuple[int, list[Array]]]:
    """Yield rows of orientations and rates by polynomials that fit the logarithm in windows.

    The five-point stencils of ``central`` are polynomials of degree 4 through their five rows.
    """
    count, width, degree, xp = shape[1], band.width, band.degree or 4, library(steps)
    begins, places = band.windows.first(), band.windows.kind()
    spans = None if band.spans is None else _for_bodies(band.spans, bodies)
    points = np.arange(width, dtype=np.longdouble)
    of_unit = fit_weights(points - points[:, None], degree) if band.table is not None else []
    table = [matched(weights.astype(np.float64), steps) for weights in of_unit]
    size = max(1, ROTATION_VALUES // (shape[0] * bodies * (1 if table else 4 * width)))
    for begin in range(0, count, size):
        here = slice(begin, begin + size)
        place, window = places[here], begins[here, None] + np.arange(width)
        low = int(window.min())
        values = rows(low, int(window.max()) + 1)
        inside, middle = np.ones((1, *window.shape), bool), window[None, :, width // 2]
        if spans is not None:
            first, last = spans[:, here, :1], spans[:, here, 1:]
            inside, middle = (window >= first) & (window <= last), (first + last)[..., 0] // 2
        if table:
            weights = [of_row[place] / steps[..., None] ** m for m, of_row in enumerate(table)]
        else:
            gaps = steps[:, window[:, :-1] % steps.shape[1]]  # one, or one per step
            stamps = concatenate([gaps[..., :1] * 0.0, gaps.cumsum(-1)], -1)
            own = stamps[:, np.arange(len(place)), place][..., None]
            weights = fit_weights(stamps - own, degree, matched(1.0 * inside, values))
        reference = take(values, matched(middle - low, values))
        inverse, phi = conjugate(reference), [0.0 * reference[..., 1:]] * 4
        for k in range(width):
            turn = multiply(values[:, window[:, k] - low], inverse)
            if not inside[..., k].all():
                identity = matched(np.array([1.0, 0.0, 0.0, 0.0]), values)
                turn = xp.where(matched(1.0 * inside[..., k, None], values) > 0, turn, identity)
            if readable(turn) and (to_numpy(turn)[..., 0] < math.cos(_FARTHEST / 2)).any():
                raise InputError(
                    "a body turns by more than 270° within half a window",
                    where="quaternions",
                    hint="a shorter window, or method backward",
                )
            turn = log(turn, shortest=False)
            phi = [x + w[..., k, None] * turn for x, w in zip(phi, weights, strict=True)]
        if band.degree is None:  # through the row itself
            own = values[:, begin - low : begin - low + len(place)]
            phi[0] = log(multiply(own, inverse), shortest=False)
        yield begin, [multiply(exp(phi[0]), reference), *rates_of_log(*phi)]


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
    """Integrate angular velocity, acceleration or jerk into orientations.

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
    order = {"velocity": 0, "acceleration": 1, "jerk": 2}.get(mode)
    if order is None:
        raise UsageError(
            "unknown mode",
            where="mode",
            expected="velocity, acceleration or jerk",
            found=repr(mode),
        )
    given = _checked(actions, 3, "actions")
    parts = start.parts() if isinstance(start, State) else {"position": start}
    batch, bodies = len(given), given.shape[2:-1]
    states = {
        name: _broadcast(parts[part], (batch, *bodies, 3), f"start/{part}").reshape(batch, -1)
        for name, part in pairwise(PARTS)
        if part in parts
    }
    # the cascade of ω, whose position is the angular velocity
    flat, inner = given.reshape(*given.shape[:2], -1), ("clique", "velocity", "acceleration")[order]
    states.setdefault("position", np.zeros((1, flat.shape[2])))
    rows = trajectory.integrate(
        flat, State(**states), dt, inner, times=times, scheme=scheme, dtype="float64",
        allow_nonfinite=allow_nonfinite,
    )  # fmt: skip
    gaps, stamps = (None if x is None else as_array(x) for x in (dt, times))
    steps = Inputs(make_mode(inner, scheme=scheme), flat, {}, {}, gaps, stamps).steps
    sign = 1.0 if frame == "world" else -1.0
    outputs = list(rows.outputs().values())[:3]
    rates = [sign * _flat(x.reshape(batch, -1, *given.shape[2:])) for x in outputs]
    turns = _turns(
        rates, order, scheme, _for_bodies(matched(steps, given), _bodies(given))[..., None]
    )
    first = _broadcast(parts["position"], (batch, *bodies, 4), "start").reshape(-1, 1, 4)
    first = to_quaternions(matched(first, given), where="start", allow_nonfinite=allow_nonfinite)
    first = _framed(first, frame)
    turned = multiply(cumulative_product(exp(turns)), first)
    values = concatenate([first, turned / dot(turned, turned) ** 0.5], 1)
    return _result(
        [continuous(values), *rates], rows.time, frame, given, {"mode": mode, "scheme": scheme}
    )


def _turns(rates: Sequence[Array], order: int, scheme: str, steps: Array) -> Array:
    """The rotation vector of each step, by ω, α and the derivative of α [N, T, 3] at the rows."""
    if scheme == "euler":
        return steps * rates[0][:, 1:]
    terms = [rates[m][:, :-1] * steps**m / math.factorial(m) for m in range(order)]
    before, after = (x * steps**order for x in (rates[order][:, :-1], rates[order][:, 1:]))
    if scheme == "zoh":
        terms.append(after / math.factorial(order))
    else:
        terms += [before / math.factorial(order), (after - before) / math.factorial(order + 1)]
    return _magnus(terms, steps)


def _magnus(terms: Sequence[Array], steps: Array) -> Array:
    """The rotation vectors of steps of length h in which ω = Σ c_k·(t/h)^k, by the first two terms
    of the Magnus expansion, of which the second is
    h²/2 · Σ_{k<m} c_k × c_m · (1/(m + 1) − 1/(k + 1))/(k + m + 2)."""
    turns = steps * sum(c / (k + 1) for k, c in enumerate(terms))
    for k, m in combinations(range(len(terms)), 2):
        weight = 0.5 * (1 / (m + 1) - 1 / (k + 1)) / (k + m + 2)
        turns = turns + weight * steps * steps * cross(terms[k], terms[m])
    return turns


def _turns_of_spline(path: Sequence[Array], steps: Array) -> Array:
    """The rotation vectors of the steps of a path, from it and two derivatives at the rows: between
    them it is the quintic that has these."""
    x, v, a = path[:3]
    first, second = steps * v[:, :-1], 0.5 * steps**2 * a[:, :-1]
    gap = x[:, 1:] - x[:, :-1] - first - second
    slope = steps * v[:, 1:] - first - 2.0 * second
    bend = steps**2 * (a[:, 1:] - a[:, :-1])
    cubic = 10.0 * gap - 4.0 * slope + 0.5 * bend
    quartic = -15.0 * gap + 7.0 * slope - bend
    quintic = 6.0 * gap - 3.0 * slope + 0.5 * bend
    powers = (first, second, cubic, quartic, quintic)
    return _magnus([(k + 1) * c / steps for k, c in enumerate(powers)], steps)


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
    """One curve of orientations through rows, and its rates, at ``rate`` or at the times ``at``.

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
    if method not in CURVES:
        raise UsageError(
            "unknown method", where="method", expected=", ".join(CURVES), found=repr(method)
        )
    given = _checked(quaternions, 4, "quaternions")
    values = continuous(_framed(_flat(to_quaternions(given, where="quaternions")), frame))
    new, at, knots = placed(given.reshape(*given.shape[:2], -1), rate, at, dt, times)
    knots, at = _for_bodies(knots, _bodies(given)), _for_bodies(at, _bodies(given))
    if given.shape[1] == 1:
        still = take(values, search(knots, at, right=False) * 0)
        rows = [still, *[0.0 * still[..., 1:]] * 3]
    else:
        rows = CURVES[method](values, knots, at)
    rows[0] = continuous(rows[0])
    return _result(rows, new, frame, given, {"method": method})


def sample(motion: RotationTrajectory, times: Array, method: str = "spline") -> RotationTrajectory:
    """Return a trajectory at other times [N] or [B, N], by a curve of ``resample`` through its
    rows."""
    return resample(motion.orientation, method, at=times, times=motion.time, frame=motion.frame)


def _step_at(knots: Array, at: Array) -> tuple[Array, Array, Array]:
    """The row before each time, the length of its step, and the time since, [n, N, 1]."""
    after = search(knots, at, right=False)
    before = after - 1 * (after > 0)
    begin = take(knots, before)
    return before, (take(knots, before + 1) - begin)[..., None], (at - begin)[..., None]


def _turns_between(values: Array) -> Array:
    return log(multiply(values[:, 1:], conjugate(values[:, :-1])))


def _slerp(values: Array, knots: Array, at: Array) -> list[Array]:
    before, step, tau = _step_at(knots, at)
    omega = take(_turns_between(values), before) / step
    return [multiply(exp(tau * omega), take(values, before)), omega]


def _squad(values: Array, knots: Array, at: Array) -> list[Array]:
    """slerp(a, b, 2u(1 − u)) of two slerps, through the rows and through the inner points."""
    _, step, tau = _step_at(knots, at)
    turns = _turns_between(values)
    bend, end = 0.25 * (turns[:, 1:] - turns[:, :-1]), 0.0 * turns[:, :1]
    inner_points = multiply(exp(-concatenate([end, bend, end], 1)), values)
    outer, outer_rate = _slerp(values, knots, at)
    inner, inner_rate = _slerp(inner_points, knots, at)
    apart, share = multiply(inner, conjugate(outer)), tau / step
    phi, part = log(apart), 2.0 * share * (1.0 - share)
    slope = part * slope_of_log(phi, inner_rate - rotate(apart, outer_rate))
    slope = slope + (2.0 - 4.0 * share) / step * phi
    turn = exp(part * phi)
    return [multiply(turn, outer), rates_of_log(part * phi, slope)[0] + rotate(turn, outer_rate)]


def _spline(values: Array, knots: Array, at: Array) -> list[Array]:
    """Hermite cubics in the logarithm from the row before, by angular velocities at the rows."""
    before, step, tau = _step_at(knots, at)
    turns = _turns_between(values)
    omega = _spline_rates(turns, (knots[:, 1:] - knots[:, :-1])[..., None])
    turn, first = take(turns, before), take(omega, before)
    last = slope_of_log(turn, take(omega, before + 1))
    second = (6.0 * turn / step - 4.0 * first - 2.0 * last) / step
    third = (6.0 * (first + last) - 12.0 * turn / step) / step**2
    known = [0.0 * turn, first, second, third]
    phi = [derivative(known, tau, m) for m in range(4)]
    return [multiply(exp(phi[0]), take(values, before)), *rates_of_log(*phi)]


CURVES = {"slerp": _slerp, "squad": _squad, "spline": _spline}
"""Curves through rows: orientations, and the rates that are finite everywhere."""


def _spline_rates(turns: Array, steps: Array) -> Array:
    """Angular velocities [N, T, 3] at the rows that make α continuous across them.

    α is J·φ̈ + J̇·φ̇ at the end of a cubic and φ̈ at its begin: linear in the ω at its ends, but for
    J̇·φ̇, which is taken from the iteration before, as in SciPy's RotationSpline.
    """
    mean = turns / steps
    omega = concatenate([mean[:, :1], 0.5 * (mean[:, 1:] + mean[:, :-1]), mean[:, -1:]], 1)
    if turns.shape[1] == 1:
        return omega
    axes = matched(np.eye(3), turns)
    columns = [[f(turns, axis + 0.0 * turns) for axis in axes] for f in (_velocity, slope_of_log)]
    forth, back = (library(turns).stack(matrix, -1) for matrix in columns)
    here, there = steps[:, :-1, :, None], steps[:, 1:, :, None]
    below, above = 2.0 / here * forth[:, :-1], 2.0 / there * back[:, 1:]
    on = 4.0 * (1.0 / here + 1.0 / there) * axes + 0.0 * below
    ends = concatenate([mean[:, :1], 0.0 * mean[:, 1:-1], 0.0 * mean[:, :1], mean[:, -1:]], 1)
    fixed = 6.0 * (mean[:, :-1] / steps[:, :-1] + mean[:, 1:] / steps[:, 1:])
    fixed = fixed - (below @ ends[:, :-2, :, None] + above @ ends[:, 2:, :, None])[..., 0]
    for _ in range(_MOST_ITERATIONS):
        slope = slope_of_log(turns[:, :-1], omega[:, 1:-1])
        curving = rates_of_log(turns[:, :-1], slope, 0.0 * slope)[1]
        inner = _solve_blocks(below, on, above, fixed - curving)
        change = abs(inner - omega[:, 1:-1])
        omega = concatenate([mean[:, :1], inner, mean[:, -1:]], 1)
        if readable(change) and not (to_numpy(change) > 1e-14 * to_numpy(1.0 + abs(inner))).any():
            break
    return omega


def _velocity(phi: Array, slope: Array) -> Array:
    return rates_of_log(phi, slope)[0]


def _solve_blocks(below: Array, on: Array, above: Array, right: Array) -> Array:
    """Solve a block-tridiagonal system [N, n, 3, 3] for [N, n, 3] by cyclic reduction (R. Hockney,
    J. ACM 12, 1965): O(log n) vector operations."""
    solve = library(on).linalg.solve
    if on.shape[1] == 1:
        return solve(on, right[..., None])[..., 0]
    rows = concatenate([below, above, right[..., None]], -1)
    even, odd = solve(on[:, 0::2], rows[:, 0::2]), rows[:, 1::2]
    padded, size = concatenate([even, 0.0 * even[:, :1]], 1), odd.shape[1]
    before = odd[..., :3] @ padded[:, :size]
    after = odd[..., 3:6] @ padded[:, 1 : size + 1]
    middle = on[:, 1::2] - before[..., 3:6] - after[..., :3]
    right = (odd - before - after)[..., 6]
    others = _solve_blocks(-before[..., :3], middle, -after[..., 3:6], right)
    zero, size = 0.0 * others[:, :1], even.shape[1]
    previous = concatenate([zero, others], 1)[:, :size, :, None]
    following = concatenate([others, zero], 1)[:, :size, :, None]
    own = even[..., 6:] - even[..., :3] @ previous - even[..., 3:6] @ following
    return interleaved(own[..., 0], others)


def compose(actions: Array, start: Array, *, kind: str = "delta", frame: str = "world") -> Array:
    """Return the orientations that delta or relative rotations lead to, the first the start.

    Parameters:
        actions: quaternions [H, 4], [B, H, 4] or [B, H, R, 4].
        start: quaternions that broadcast to [B, 4] or [B, R, 4].
        kind: ``delta``, from one row to the next, or ``relative``, from the start.
        frame: the frame in which an action turns: "world", d·q, or "body", q·d, that of a tool.

    Returns quaternions of H + 1 rows. Raises InputError for shapes, and for no rotations.
    """
    given, steps = _actions(actions, kind, frame)
    first = _broadcast(start, (len(given), *given.shape[2:]), "start").reshape(-1, 1, 4)
    first = _framed(matched(to_quaternions(first, where="start"), steps), frame)
    turned = multiply(cumulative_product(steps) if kind == "delta" else steps, first)
    turned = continuous(concatenate([first, turned], 1))
    return _result([turned], None, frame, given, {}).orientation


def decompose(quaternions: Array, *, kind: str = "delta", frame: str = "world") -> Array:
    """Return the actions that ``compose`` makes into orientations, from the first on."""
    given, values = _actions(quaternions, kind, frame)
    origin = values[:, :-1] if kind == "delta" else values[:, :1]
    turns = continuous(multiply(values[:, 1:], conjugate(origin)))
    return _result([turns], None, frame, given, {}).orientation


def _actions(values: Array, kind: str, frame: str) -> tuple[Array, Array]:
    if kind not in ("delta", "relative"):
        raise UsageError(
            "unknown kind", where="kind", expected="delta or relative", found=repr(kind)
        )
    given = _checked(values, 4, "quaternions")
    return given, _framed(_flat(to_quaternions(given, where="quaternions")), frame)


def _checked(values: Array, width: int, where: str) -> Array:
    """Values [T, n] as [1, T, n], others as they are; raises InputError for other shapes."""
    given = as_array(values, where)
    given = given[None] if given.ndim == 2 else given
    if given.ndim not in (3, 4) or given.shape[-1] != width or not given.shape[1]:
        expected = f"[T, {width}], [B, T, {width}] or [B, T, R, {width}]"
        raise InputError("wrong shape", where=where, expected=expected, found=describe(given.shape))
    return given


def _broadcast(values: Array, shape: Sequence[int], where: str) -> Array:
    array = as_array(values, where)
    try:
        return library(array).broadcast_to(array, tuple(shape))
    except (RuntimeError, ValueError):
        expected, found = f"one that broadcasts to {describe(shape)}", describe(array.shape)
        raise InputError("wrong shape", where=where, expected=expected, found=found) from None


def _framed(values: Array, frame: str) -> Array:
    """Orientations as those whose rates in the world are computed: of the body, the inverse."""
    if frame not in ("world", "body"):
        raise UsageError(
            "unknown frame", where="frame", expected="world or body", found=repr(frame)
        )
    return values if frame == "world" else conjugate(values)


def _flat(values: Array) -> Array:
    """[B, T, (R,) n] as [B·R, T, n]: every body is a trajectory."""
    if values.ndim == 3:
        return values
    return library(values).moveaxis(values, 2, 1).reshape(-1, values.shape[1], values.shape[3])


def _for_bodies(values: Array, bodies: int) -> Array:
    """Of [b, ...] per trajectory, [b·R, ...]; shared ones as they are."""
    if bodies == 1 or len(values) == 1:
        return values
    return (values.repeat_interleave if is_torch(values) else values.repeat)(bodies, 0)


def _bodies(given: Array) -> int:
    return 1 if given.ndim == 3 else int(given.shape[2])


def _result(
    rows: Sequence[Array], time: Array, frame: str, given: Array, options: Mapping[str, Any]
) -> RotationTrajectory:
    """Rows [B·R, T, ...] in the world, of inverse rotations where the frame is the body."""
    rates = [x if frame == "world" else -x for x in rows[1:]]
    shaped = []
    for x in (_framed(rows[0], frame), *rates):
        x = x if given.ndim == 3 else x.reshape(-1, given.shape[2], *x.shape[1:])
        x = x if given.ndim == 3 else library(x).moveaxis(x, 1, 2)
        shaped.append(cast(x, output_dtype(given.dtype)))
    if time is not None and time.ndim == 2 and len(time) == 1:
        time = time[0]
    velocity, acceleration, jerk = (*shaped[1:], None, None, None)[:3]
    return RotationTrajectory(shaped[0], velocity, acceleration, jerk, time, frame, options)
