"""Curves through orientations, and actions that compose: SciPy's Slerp and RotationSpline.

More splines than the suite's: TRAJCLI_SEED=1 TRAJCLI_CASES=500 pytest -k slopes_of_its_values
"""

import os

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation, RotationSpline, Slerp
from torch.autograd import gradcheck, gradgradcheck

from trajcli import rotations

WXYZ, XYZW = [3, 0, 1, 2], [1, 2, 3, 0]


def walk(rows=30, size=0.7, seed=0):
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(rows, 3))
    steps *= size / np.linalg.norm(steps, axis=1)[:, None]
    times = np.cumsum(rng.uniform(0.05, 0.2, rows))
    return rotations.cumulative_product(rotations.exp(steps)), times


@pytest.mark.parametrize("size", [1e-9, 0.3, 1.5])
@pytest.mark.parametrize("rows", [2, 3, 4, 31])
def test_curves_are_scipys(size, rows):
    q, times = walk(rows, size)
    at = np.linspace(times[0], times[-1], 200)
    as_scipy = Rotation.from_quat(q[:, XYZW])
    flips = np.random.default_rng(0).choice([-1.0, 1.0], (rows, 1))
    found = rotations.resample(flips * q, times=times, at=at - times[0])
    expected = Slerp(times, as_scipy)(at).as_quat()[:, WXYZ]
    assert rotations.angle(found.orientation[0], expected).max() < 1e-12
    spline = RotationSpline(times, as_scipy)
    found = rotations.resample(q, "spline", times=times, at=at - times[0], frame="body")
    assert rotations.angle(found.orientation[0], spline(at).as_quat()[:, WXYZ]).max() < 1e-7
    inside = np.abs(at[:, None] - times).min(1) > 1e-9  # SciPy's rates are of the step after
    for order, rates in ((1, found.angular_velocity), (2, found.angular_acceleration)):
        expected = spline(at, order)
        bound = 1e-6 * size / 0.05**order
        np.testing.assert_allclose(rates[0][inside], expected[inside], rtol=0, atol=bound)


@pytest.mark.parametrize("method", rotations.CURVES)
@pytest.mark.parametrize("frame", ["world", "body"])
def test_rates_are_those_of_the_curve_and_rows_lie_on_it(method, frame):
    q, times = walk()
    times, h = times - times[0], 1e-6
    rows = rotations.resample(q, method, times=times, at=times, frame=frame)
    assert rotations.angle(rows.orientation[0], q).max() < 1e-14
    at = np.linspace(0.001, times[-1] - 0.001, 97)
    before, here, after = (
        rotations.resample(q, method, times=times, at=at + d, frame=frame) for d in (-h, 0.0, h)
    )
    turn = rotations.decompose(np.stack([before.orientation[0], after.orientation[0]], 1),
                               frame=frame)  # fmt: skip
    np.testing.assert_allclose(here.angular_velocity[0], rotations.log(turn[:, 0]) / (2 * h),
                               atol=2e-3)  # fmt: skip
    if method == "spline":
        slope = (after.angular_velocity - before.angular_velocity) / (2 * h)
        np.testing.assert_allclose(here.angular_acceleration, slope, atol=1e-5 * abs(slope).max())
        slope = (after.angular_acceleration - before.angular_acceleration) / (2 * h)
        close = abs(here.angular_jerk - slope) < 1e-5 * abs(slope).max()
        assert close.mean() > 0.95  # but where a row lies between the two


def test_velocities_of_squad_and_accelerations_of_a_spline_are_continuous():
    q, _ = walk(20)
    for method, order in (("squad", 1), ("spline", 1), ("spline", 2)):
        at = np.arange(1, 19)[:, None] * 0.1 + [-1e-9, 1e-9]
        rates = list(rotations.resample(q, method, dt=0.1, at=at.ravel()))[order]
        assert abs(np.diff(rates.reshape(18, 2, 3), axis=1)).max() < 1e-6 * abs(rates).max()


def test_a_turn_of_42_degrees_across_a_half_turn_is_direct():
    vectors = np.deg2rad([[159.0, 0.0, 0.0], [-159.0, 0.0, 0.0]])  # 42° apart
    q = rotations.to_quaternions(vectors, "rotvec")
    for method in rotations.CURVES:
        found = rotations.resample(q, method, dt=1.0, rate=100).orientation[0]
        angles = np.rad2deg(rotations.angle(found[:1], found))
        np.testing.assert_allclose(angles, np.linspace(0.0, 42.0, 101), atol=1e-10)


@pytest.mark.parametrize("method", rotations.CURVES)
def test_curves_have_first_and_second_derivatives(method):
    q, times = walk(5)
    q, times, at = (torch.tensor(x, requires_grad=True)
                    for x in (q, times - times[0], np.array([0.013, 0.1, 0.22])))  # fmt: skip

    def found(q, times, at):
        q = q / (q * q).sum(-1)[..., None] ** 0.5
        return [x for x in rotations.resample(q, method, times=times, at=at) if x is not None][:3]

    assert gradcheck(found, (q, times, at), atol=1e-4, fast_mode=True)
    assert gradgradcheck(lambda *x: found(*x)[:2], (q, times, at), atol=1e-3, fast_mode=True)


@pytest.mark.parametrize("frame", ["world", "body"])
@pytest.mark.parametrize("kind", ["delta", "relative"])
def test_actions_compose_to_the_orientations_they_were_taken_from(frame, kind):
    q = np.stack([walk(40, seed=seed)[0] for seed in range(3)])
    actions = rotations.decompose(q, kind=kind, frame=frame)
    back = rotations.compose(actions, q[:, 0], kind=kind, frame=frame)
    assert rotations.angle(back, q).max() < 1e-13
    turns = Rotation.from_quat(q[0][:, XYZW])
    for t in range(1, 40):  # as robomimic's controllers do: R = ΔR·R, or in the tool's frame R·ΔR
        origin = turns[t - 1] if kind == "delta" else turns[0]
        action = Rotation.from_quat(actions[0, t - 1, XYZW])
        goal = action * origin if frame == "world" else origin * action
        assert (goal * turns[t].inv()).magnitude() < 1e-14
    steps, start = torch.tensor(actions[:1, :4]), torch.tensor(q[0, 0])
    for x in (steps, start):
        x.requires_grad_()

    def found(steps, start):
        steps, start = (x / (x * x).sum(-1)[..., None] ** 0.5 for x in (steps, start))
        return rotations.compose(steps, start, kind=kind, frame=frame)

    assert gradcheck(found, (steps, start), fast_mode=True)
    assert gradgradcheck(found, (steps, start), fast_mode=True)


@pytest.mark.parametrize("frame", ["world", "body"])
@pytest.mark.parametrize("method", ["slerp", "squad", "spline"])
def test_a_trajectory_is_sampled_between_its_rows_in_its_frame(method, frame):
    omega = np.tile([[0.3, -1.0, 0.5]], (40, 1))
    start = np.array([0.5, 0.5, -0.5, 0.5])
    motion = rotations.integrate(omega, start, 0.1, scheme="zoh", frame=frame)
    times = np.array([0.0, 0.05, 1.234, 3.99, 4.0])
    sampled = rotations.sample(motion, times, method)
    turn = rotations.exp(times[:, None] * omega[0])
    pair = (turn, start) if frame == "world" else (start, turn)
    assert rotations.angle(sampled.orientation[0], rotations.multiply(*pair)).max() < 1e-13
    np.testing.assert_allclose(sampled.angular_velocity[0], omega[:5], atol=1e-12)


@pytest.mark.parametrize("axis", [None, [0.0, 0.6, 0.8]])
@pytest.mark.parametrize("size", [0.5, 3.1])
def test_gradients_of_a_spline_are_the_slopes_of_its_values(size, axis):
    """Central differences in NumPy. About one axis the values are found before their slopes."""
    random = np.random.default_rng(int(os.environ.get("TRAJCLI_SEED", "0")))
    for _ in range(int(os.environ.get("TRAJCLI_CASES", "1"))):
        rows = int(random.integers(3, 9))
        turns = random.normal(size=(rows, 3)) if axis is None else np.outer(np.ones(rows), axis)
        turns *= size * random.uniform(0.5, 1, (rows, 1)) / np.linalg.norm(turns, axis=1)[:, None]
        q = rotations.cumulative_product(rotations.exp(turns))
        times = np.cumsum(random.uniform(0.5, 1.5, rows))
        at = random.uniform(0.0, times[-1] - times[0], 5)
        weights, tilt = random.normal(size=(4, 5, 4)), random.normal(size=(rows, 4))
        tilt -= (tilt * q).sum(1)[:, None] * q  # norms stay
        along = [tilt, random.normal(size=rows)]
        given = [torch.tensor(x, requires_grad=True) for x in (q, times)]
        total = _cost(*given, torch.tensor(at), torch.tensor(weights))
        grads = torch.autograd.grad(total, given, create_graph=True)
        found = sum((x * torch.tensor(d)).sum() for x, d in zip(grads, along, strict=True))
        bends = torch.autograd.grad(found, given)
        second = sum((x.numpy() * d).sum() for x, d in zip(bends, along, strict=True))
        numbers = {
            k: _cost(q + k * along[0], times + k * along[1], at, weights)
            for k in (1e-5, -1e-5, 2e-5, -2e-5, 1e-4, -1e-4)
        }
        slopes = [(numbers[h] - numbers[-h]) / (2 * h) for h in (1e-5, 2e-5)]
        most = max(abs(x.detach().numpy()).max() for x in grads)
        assert abs(found.item() - (4 * slopes[0] - slopes[1]) / 3) < 1e-8 * most
        bend = (numbers[1e-4] - 2 * total.item() + numbers[-1e-4]) / 1e-8
        assert abs(second - bend) < 1e-4 * (most + abs(second))


def _cost(q, times, at, weights):
    parts = rotations.resample(q, "spline", times=times, at=at)
    return sum((x[0] * w[:, : x.shape[-1]]).sum() for x, w in zip(parts, weights, strict=True))
