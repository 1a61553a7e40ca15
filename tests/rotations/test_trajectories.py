"""Orientations and rates: MuJoCo, analytic motions and their orders, round trips, derivatives."""

import functools

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch.autograd import gradcheck, gradgradcheck

import trajcli
from trajcli import InputError, State, UsageError, rotations

mujoco = pytest.importorskip("mujoco")

AXIS, CONE = np.array([0.0, 0.0, 3.0]), np.array([0.0, 0.3, 1.0])


def coning(t):
    """A top that precesses and spins unevenly: orientations, ω, α and the derivative of α."""
    turn = rotations.exp(t[:, None] * AXIS)
    tilted = rotations.multiply(turn, rotations.exp(np.array([0.4, 0.0, 0.0])))
    axis = rotations.rotate(tilted, np.broadcast_to(CONE, (len(t), 3)))  # turns with AXIS
    d1, d2 = np.cross(AXIS, axis), np.cross(AXIS, np.cross(AXIS, axis))
    s, c = 2.0 * np.sin(t)[:, None], 2.0 * np.cos(t)[:, None]
    rates = [AXIS + c * axis, -s * axis + c * d1, -c * axis - 2.0 * s * d1 + c * d2]
    return rotations.multiply(tilted, rotations.exp(s * CONE)), *rates


def orders(errors):
    return np.log2(np.array(errors[:-1]) / errors[1:])


@pytest.mark.parametrize("frame", ["world", "body"])
def test_differences_and_sums_undo_each_other_over_many_rows(frame):
    rng, rows = np.random.default_rng(0), 100_001
    rates, dt = rng.normal(size=(1, rows - 1, 3)), rng.uniform(0.001, 0.02, rows - 1)
    start = rotations.exp(rng.normal(size=3))
    made = rotations.integrate(rates, start, dt, frame=frame)
    flipped = made.orientation * rng.choice([-1.0, 1.0], (1, rows, 1))
    back = rotations.differentiate(flipped, dt=dt, method="backward", frame=frame)
    np.testing.assert_allclose(back.angular_velocity[:, 1:], rates, atol=1e-12)
    again = rotations.integrate(back.angular_velocity[:, 1:], start, dt, frame=frame)
    np.testing.assert_allclose(again.orientation, made.orientation, rtol=0, atol=1e-12)
    for name in rotations.RATES:
        expected = getattr(made, name)[:, 3:]
        bound = 1e-12 * abs(expected).max()
        np.testing.assert_allclose(getattr(back, name)[:, 3:], expected, rtol=0, atol=bound)


def test_steps_are_mujocos():
    joints = (
        '<body><freejoint/><geom size="1"/></body><body><joint type="ball"/><geom size="1"/></body>'
    )
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{joints}</worldbody></mujoco>")
    rng, dt = np.random.default_rng(0), 0.02
    rates = rng.normal(size=(1, 50, 2, 3)) * 4.0
    start = rotations.exp(rng.normal(size=(2, 3)))
    made = rotations.integrate(rates, start, dt, frame="body")
    position = np.concatenate([np.zeros(3), start[0], start[1]])
    for t, (free, ball) in enumerate(rates[0]):
        before = position.copy()
        mujoco.mj_integratePos(model, position, np.concatenate([np.zeros(3), free, ball]), dt)
        found = np.stack([position[3:7], position[7:]])
        np.testing.assert_allclose(
            rotations.angle(made.orientation[0, t + 1], found), 0, atol=1e-12
        )
        velocity = np.zeros(9)
        mujoco.mj_differentiatePos(model, velocity, dt, before, position)
        pair = np.stack([before, position])[:, 3:].reshape(1, 2, 2, 4)
        difference = rotations.differentiate(pair, dt=dt, method="backward", frame="body")
        np.testing.assert_allclose(difference.angular_velocity[0, 1], velocity[3:].reshape(2, 3),
                                   rtol=0, atol=1e-12)  # fmt: skip


@pytest.mark.parametrize(
    ("method", "order"),
    [({"method": "backward"}, (1, 1, 1)), ({"method": "central"}, (4, 4, 2)),
     ({"method": "savgol", "window": 9}, (4, 4, 2))],
)  # fmt: skip
@pytest.mark.parametrize("uneven", [False, True])
def test_differences_converge_to_a_coning_motion(method, order, uneven):
    if uneven and method["method"] != "backward":
        order = (4, 3, 2)  # the symmetry that gives an order more is gone
    errors = []
    for rows in (101, 201, 401):
        share = np.linspace(0.0, 1.0, rows)
        t = 2.0 * (share + uneven * 0.05 * np.sin(6.0 * share))
        orientation, *rates = coning(t)
        found = rotations.differentiate(orientation, times=t, **method)
        errors.append(
            [abs(x[0] - y)[8:-8].max() for x, y in zip(list(found)[1:], rates, strict=True)]
        )
    assert (orders(errors) > np.array(order) - 0.15).all(), errors


@pytest.mark.parametrize("even", [True, False])
def test_ends_are_one_sided_and_savgol_fits_the_logarithm(even):
    t = np.linspace(0.0, 2.0, 201)
    orientation, *rates = coning(t)
    central = rotations.differentiate(orientation, dt=0.01, method="central")
    for found, expected, bound in zip(list(central)[1:], rates, (1e-5, 5e-3, 1.0), strict=True):
        assert abs(found[0] - expected).max() < bound
    noisy = rotations.multiply(rotations.exp(np.random.default_rng(0).normal(0, 1e-3, (201, 3))),
                               orientation)  # fmt: skip
    t = t if even else t + np.random.default_rng(1).uniform(0.0, 0.008, 201)
    times = {"dt": 0.01} if even else {"times": t}
    fitted = rotations.differentiate(noisy, **times, window=21, degree=3)
    for row, first in ((3, 0), (90, 80), (200, 180)):
        window, middle = slice(first, first + 21), noisy[first + 10]
        turns = rotations.log(rotations.multiply(noisy[window], rotations.conjugate(middle)))
        fit = np.polynomial.Polynomial.fit
        curves = [fit(t[window], turns[:, k], 3) for k in range(3)]
        step = 1e-5
        here, before, after = (
            rotations.multiply(rotations.exp(np.array([c(t[row] + h) for c in curves])), middle)
            for h in (0.0, -step, step)
        )
        omega = rotations.log(rotations.multiply(after, rotations.conjugate(before))) / (2 * step)
        assert rotations.angle(here, fitted.orientation[0, row]) < 1e-13
        np.testing.assert_allclose(fitted.angular_velocity[0, row], omega, atol=1e-8)


@functools.cache
def _exact(mode):
    """Orientation at 2 s from a polynomial ω(t) of degree 1 or 2, by SciPy's integrator."""
    c = np.random.default_rng(1).normal(size=(3, 3))
    c[2] *= mode == "jerk"

    def slope(t, q):
        return 0.5 * rotations.multiply(np.concatenate([[0.0], c[0] + c[1] * t + c[2] * t * t]), q)

    return c, solve_ivp(slope, (0, 2), [1.0, 0, 0, 0], "DOP853", rtol=1e-13, atol=1e-14).y[:, -1]


@pytest.mark.parametrize(
    ("mode", "scheme", "order"),
    [("velocity", "foh", 4), ("acceleration", "zoh", 4), ("acceleration", "foh", 4),
     ("jerk", "zoh", 4), ("jerk", "foh", 4), ("velocity", "euler", 1), ("jerk", "euler", 1)],
)  # fmt: skip
@pytest.mark.parametrize("frame", ["world", "body"])
def test_schemes_have_their_orders(mode, scheme, order, frame):
    c, expected = _exact(mode)
    errors = []
    for steps in (40, 80, 160):
        t = np.linspace(0.0, 2.0, steps + 1)[1:, None]
        rates = {"velocity": c[0] + c[1] * t + c[2] * t * t, "acceleration": c[1] + 0.0 * t,
                 "jerk": 2.0 * c[2] + 0.0 * t}  # fmt: skip
        sign = 1.0 if frame == "world" else -1.0  # q⁻¹ turns by −ω of the body
        start = State(np.eye(4)[0], sign * c[0], sign * c[1], sign * 2.0 * c[2])
        made = rotations.integrate(sign * rates[mode], start, 2 / steps, mode, scheme=scheme,
                                   frame=frame)  # fmt: skip
        last = made.orientation[0, -1]
        last = last if frame == "world" else rotations.conjugate(last)
        errors.append(rotations.angle(last, expected))
    assert (abs(orders(errors) - order) < 0.2).all(), errors


def test_constant_velocity_is_exact_and_standstill_has_zero_rates():
    rate, t = np.array([1.0, -2.0, 0.5]), np.linspace(0.0, 30.0, 301)
    for scheme in ("euler", "zoh", "foh"):
        start = State(np.eye(4)[0], rate)
        made = rotations.integrate(np.tile(rate, (300, 1)), start, 0.1, scheme=scheme)
        expected = rotations.exp(t[:, None] * rate)
        np.testing.assert_allclose(made.orientation[0], expected, atol=1e-13)
    still = np.tile(rotations.exp(rate), (40, 1))
    for method in ({"method": "backward"}, {"method": "central"}, {"window": 7}, {"window": "1s"}):
        for values in list(rotations.differentiate(still, dt=0.01, **method))[1:]:
            assert not np.any(values)


def test_bodies_and_trajectories_do_not_see_each_other():
    rng, dt = np.random.default_rng(0), np.array([[0.01], [0.02]])
    rates, start = rng.normal(size=(2, 30, 3, 3)), rotations.exp(rng.normal(size=(2, 3, 3)))
    made = rotations.integrate(rates, State(start, rates[:, 0]), dt, scheme="foh")
    found = [rotations.differentiate(made.orientation, dt=dt, window=w) for w in (7, "0.05s")]
    at = np.array([0.0, 0.03, 0.2777])
    curve = rotations.resample(made.orientation, "squad", times=made.time, at=at)
    for b in range(2):
        for r in range(3):
            one = State(start[b, r], rates[b, 0, r])
            alone = rotations.integrate(rates[b, :, r], one, dt[b, 0], scheme="foh")
            again = [rotations.differentiate(alone.orientation, dt=dt[b, 0], window=w)
                     for w in (7, "0.05s")]  # fmt: skip
            piece = rotations.resample(alone.orientation, "squad", times=alone.time, at=at)
            for whole, part in zip((made, *found, curve), (alone, *again, piece), strict=True):
                # alone, steps are equal, and a window in seconds is one in rows
                rounding = 1e-12 if whole is found[1] else 0.0
                for x, y in zip(whole, part, strict=True):
                    if x is not None:
                        bound = rounding * abs(y).max()
                        np.testing.assert_allclose(x[b, :, r], y[0], rtol=0, atol=bound)


def test_missing_rows_stay_in_their_windows_and_are_refused_unless_allowed():
    orientation = coning(np.linspace(0.0, 1.0, 101))[0]
    orientation[50] = np.nan
    with pytest.raises(InputError, match="step 50"):
        rotations.differentiate(orientation, dt=0.01)
    for method, reach in (("backward", 3), ("central", 2)):
        found = rotations.differentiate(orientation, dt=0.01, method=method, allow_nonfinite=True)
        wrong = np.flatnonzero(np.isnan(np.concatenate(list(found), -1)).any((0, 2)))
        assert 50 - reach <= wrong.min() <= 50 <= wrong.max() <= 50 + reach


def test_what_is_no_rotation_or_option_is_refused():
    q = coning(np.linspace(0.0, 1.0, 20))[0]
    for call, error in (
        (lambda: rotations.differentiate(1.01 * q, dt=0.1), InputError),
        (lambda: rotations.differentiate(q[:, :3], dt=0.1), InputError),
        (lambda: rotations.differentiate(q, dt=0.1, frame="tool"), UsageError),
        (lambda: rotations.differentiate(q, dt=0.1, method="foh"), UsageError),
        (lambda: rotations.integrate(q[:, 1:], [1.0, 0, 0], 0.1), InputError),
        (lambda: rotations.integrate(q[:, 1:], [1.0, 0, 0, 0.1], 0.1), InputError),
        (lambda: rotations.integrate(q[:, 1:], q[0], 0.1, "position"), UsageError),
        (lambda: rotations.integrate(q[:, 1:], q[0], 0.1, scheme="rk4"), UsageError),
        (lambda: rotations.resample(q, "linear", dt=0.1, rate=20), UsageError),
        (lambda: rotations.compose(q, q[0], kind="deltas"), UsageError),
    ):
        with pytest.raises(error):
            call()
    spin = rotations.exp(np.linspace(0.0, 60.0, 61)[:, None] * np.eye(3)[0])
    with pytest.raises(InputError, match="270°"):
        rotations.differentiate(spin, dt=0.01, window=13)
    rotations.differentiate(spin, dt=0.01, window=7)


def _tensor(values):
    return torch.tensor(np.asarray(values), dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize(
    ("method", "frame"),
    [({"method": "backward"}, "world"), ({"method": "central"}, "body"),
     ({"window": 5, "degree": 3}, "world"), ({"window": 5, "degree": 3}, "body")],
)  # fmt: skip
def test_differences_have_first_and_second_derivatives(method, frame):
    q, dt = _tensor(coning(np.linspace(0.0, 0.5, 7))[0]), _tensor([0.1, 0.08, 0.1, 0.05, 0.1, 0.1])

    def found(q, dt):
        q = q / (q * q).sum(-1)[..., None] ** 0.5
        result = rotations.differentiate(q, dt=dt, frame=frame, **method)
        return [x * 10.0**-k for k, x in enumerate(result)]

    assert gradcheck(found, (q, dt), fast_mode=True)
    assert gradgradcheck(lambda q, dt: found(q, dt)[1:3], (q, dt), atol=1e-4, fast_mode=True)


@pytest.mark.parametrize(
    ("mode", "scheme"),
    [("velocity", "euler"), ("velocity", "foh"), ("acceleration", "zoh"), ("jerk", "euler"),
     ("jerk", "foh")],
)  # fmt: skip
def test_sums_have_first_and_second_derivatives(mode, scheme):
    rng = np.random.default_rng(0)
    actions, rates = _tensor(rng.normal(size=(4, 3))), _tensor(rng.normal(size=(3, 3)))
    others = rates, _tensor([1.0, 0.0, 0.0, 0.0]), _tensor(0.2)

    def found(actions, rates, start, dt):
        start = start / (start * start).sum() ** 0.5
        made = rotations.integrate(actions, State(start, *rates), dt, mode, scheme=scheme)
        return made.orientation, made.angular_velocity

    assert gradcheck(found, (actions, *others), fast_mode=True)
    assert gradgradcheck(found, (actions, *others), fast_mode=True)
    still = torch.zeros(4, 3, dtype=torch.float64, requires_grad=True)  # at zero, too
    assert gradgradcheck(found, (still, *others), fast_mode=True)


def test_tensors_of_any_type_give_what_arrays_do():
    q = coning(np.linspace(0.0, 1.0, 60))[0]
    dt = np.linspace(0.01, 0.02, 59)
    for method in ({"method": "backward"}, {"method": "central"}, {"window": "0.2s"}):
        tensor = rotations.differentiate(torch.tensor(q), dt=dt, **method)
        half = rotations.differentiate(q.astype(np.float32), dt=dt, **method)
        for x, y, z in zip(rotations.differentiate(q, dt=dt, **method), tensor, half, strict=True):
            np.testing.assert_allclose(y, x, atol=1e-11 * abs(x).max())
            assert z.dtype == np.float32
    mapped = torch.func.vmap(lambda q: rotations.differentiate(q, dt=0.1, window=5).angular_jerk)
    batch = torch.tensor(np.stack([q, q[::-1]]))
    expected = rotations.differentiate(batch, dt=0.1, window=5).angular_jerk
    np.testing.assert_allclose(mapped(batch)[:, 0], expected, atol=1e-9)


def wavering(rows, dt, noise=0.0):
    """A tilted body that turns about two moving axes, with noise in rad."""
    t = np.arange(rows) * dt
    about_z = rotations.exp(t[:, None] * [0.0, 0.0, 0.5])
    about_x = rotations.exp(np.sin(1.3 * t)[:, None] * [1.0, 0.0, 0.0])
    by_chance = np.random.default_rng(3).normal(0.0, noise, (rows, 3))
    return rotations.multiply(rotations.exp(by_chance), rotations.multiply(about_z, about_x))


def test_smooth_about_a_fixed_axis_smooths_the_angle():
    t = np.arange(300) / 100
    angles = 2.0 * np.sin(3.0 * t) + np.random.default_rng(0).normal(0, 0.01, 300)
    expected = trajcli.differentiate(angles[:, None], dt=0.01, method="smooth")
    q = rotations.exp(angles[:, None] * [0.0, 0.0, 1.0])
    found = rotations.differentiate(q, dt=0.01, method="smooth")
    rows = rotations.exp(expected.position[0] * [0.0, 0.0, 1.0])
    assert rotations.angle(found.orientation[0], rows).max() < 1e-9
    for part, name in zip(("velocity", "acceleration", "jerk"), rotations.RATES, strict=True):
        values = getattr(expected, part)[0, :, 0]
        np.testing.assert_allclose(
            getattr(found, name)[0, :, 2], values, atol=1e-8 * abs(values).max()
        )
    np.testing.assert_allclose(
        found.options["bandlimit"][0, 2], expected.options["bandlimit"][0, 0]
    )


@pytest.mark.parametrize("frame", ["world", "body"])
def test_rates_of_smooth_are_those_of_its_orientations(frame):
    q = wavering(2000, 0.002, noise=1e-3)
    found = rotations.differentiate(q, dt=0.002, method="smooth", bandlimit=4.0, frame=frame)
    again = rotations.differentiate(found.orientation, dt=0.002, method="central", frame=frame)
    inner = np.s_[:, 3:-3]
    for name, bound in zip(rotations.RATES, (1e-7, 1e-6, 2e-2), strict=True):
        error = abs(getattr(found, name) - getattr(again, name))[inner].max()
        assert error < bound * abs(getattr(again, name)).max(), name


def test_smooth_follows_noisy_rotations_closer_than_savgol_and_bridges_missing_rows():
    clean, noisy = wavering(1000, 0.01), wavering(1000, 0.01, noise=2e-3)
    truth = rotations.differentiate(clean, dt=0.01, method="central").angular_velocity

    def error(found):
        return np.sqrt(((found.angular_velocity - truth) ** 2).mean())

    smooth = rotations.differentiate(noisy, dt=0.01, method="smooth")
    assert error(smooth) < 0.5 * error(rotations.differentiate(noisy, dt=0.01, method="savgol"))
    assert np.allclose(smooth.options["residual"], 2e-3, rtol=0.1)
    noisy[[0, *range(300, 320)]] = np.nan
    bridged = rotations.differentiate(noisy, dt=0.01, method="smooth")
    assert error(bridged) < 1.1 * error(smooth)
    gaps = np.delete(noisy, slice(600, 640), 0), np.delete(np.arange(1000) * 0.01, slice(600, 640))
    bridged = rotations.differentiate(gaps[0], times=gaps[1], method="smooth")
    assert abs(bridged.angular_velocity).max() < 1.5 * abs(truth).max()
    fast = wavering(200, 0.01)[::20]
    with pytest.raises(InputError, match="too few rows"):
        rotations.differentiate(fast[:3], dt=0.2, method="smooth")


def test_smooth_has_gradients_for_its_bandlimit():
    q = torch.tensor(wavering(12, 0.02, noise=1e-2), requires_grad=True)

    def outputs(q):
        q = q / q.norm(dim=-1, keepdim=True)
        found = rotations.differentiate(q, dt=0.02, method="smooth", bandlimit=6.0)
        return found.orientation, found.angular_velocity, found.angular_acceleration

    assert gradcheck(outputs, (q,), atol=1e-4, fast_mode=True)
    assert gradgradcheck(outputs, (q[:7].detach().requires_grad_(),), atol=1e-3, fast_mode=True)
