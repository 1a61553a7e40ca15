"""Rows of one curve, against SciPy, matrices, closed forms, and their own integrals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.interpolate import BPoly, CubicHermiteSpline, CubicSpline

from trajcli import InputError, State, Trajectory, UsageError, integrate, matrices, resample, sample
from trajcli.resampling import METHODS

RANDOM = np.random.default_rng(7)
ROWS = RANDOM.standard_normal((3, 9, 2))
TIMES = np.cumsum(RANDOM.uniform(0.05, 0.3, (3, 9)), 1)


def trajectory(outputs: int = 4, times: Any = None) -> Trajectory:
    """Random rows that no mode joins."""
    rows = [*RANDOM.standard_normal((outputs, 3, 9, 2)), None, None, None][:4]
    return Trajectory(*rows, TIMES - TIMES[:, :1] if times is None else times)


def options_of(method: str) -> dict[str, Any]:
    return {"hold": 0.25} if method == "ramp-and-hold" else {}


@pytest.mark.parametrize("factor", [1, 2, 3, 5, 7, 10])
@pytest.mark.parametrize("dt", [0.02, 0.1, 1 / 3, 1.0])
def test_whole_factors_are_those_of_the_matrices(factor, dt):
    for method, matrix, options in (
        ("hold", matrices.hold_matrix(9, factor), {}),
        ("linear", matrices.linear_matrix(9, factor), {}),
        ("ramp-and-hold", matrices.ramp_and_hold_matrix(9, factor, factor // 2),
         {"hold": (factor // 2) / factor}),
    ):  # fmt: skip
        fine = resample(ROWS, method, rate=factor / dt, dt=dt, **options)
        np.testing.assert_allclose(fine.position, matrix @ ROWS, rtol=0, atol=1e-14)
        assert fine.position.shape == (3, 8 * factor + 1, 2)
        np.testing.assert_allclose(fine.time, np.arange(8 * factor + 1) * dt / factor, rtol=1e-15)


@pytest.mark.parametrize("method", METHODS)
def test_given_rows_come_back_bit_for_bit(method):
    times = np.array([0, 0.1, 0.3, 0.4, 0.9, 1.0, 1.5, 1.9, 2.0])
    plan = trajectory(times=times)
    fine = resample(plan, method, rate=10, **options_of(method))
    rows = np.rint(times * 10).astype(int)
    np.testing.assert_array_equal(fine.position[:, rows], plan.position)
    given = {"cubic": 2, "quintic": 3}.get(method, 1)
    for name in ("velocity", "acceleration")[: given - 1]:
        np.testing.assert_array_equal(getattr(fine, name)[:, rows], getattr(plan, name))
    if method in METHODS[:4]:
        fine = resample(ROWS, method, rate=350.0, dt=0.02, **options_of(method))
        np.testing.assert_array_equal(fine.position[:, ::7], ROWS)


@pytest.mark.parametrize("shared", [True, False], ids=["times of all", "times of their own"])
def test_hermite_curves_are_scipys(shared):
    knots = np.broadcast_to(TIMES[0] - TIMES[0, 0], (3, 9)) if shared else TIMES - TIMES[:, :1]
    plan = trajectory(times=knots[0] if shared else knots)
    at = np.sort(RANDOM.uniform(0.0, 1.0, (3, 50)), 1) * knots[:, -1:]
    cubic, quintic = (resample(plan, method, at=at) for method in ("cubic", "quintic"))
    assert cubic.jerk is None
    for b in range(3):
        p, v, a, _ = (x[b] for x in plan)
        peers = [
            (cubic, CubicHermiteSpline(knots[b], p, v), 3),
            (quintic, BPoly.from_derivatives(knots[b], np.stack([p, v, a], 1)), 4),
        ]
        for curve, peer, count in peers:
            for m, values in enumerate(list(curve)[:count]):
                wanted = peer.derivative(m)(at[b]) if m else peer(at[b])
                atol = 1e-11 * max(1.0, abs(wanted).max())
                np.testing.assert_allclose(values[b], wanted, rtol=0, atol=atol)


@pytest.mark.parametrize("rows", [2, 3, 4, 5, 40])
def test_cubic_through_positions_alone_is_scipys_spline(rows):
    values = RANDOM.standard_normal((2, rows, 3))
    for times in (np.arange(rows) * 0.1, np.cumsum(RANDOM.uniform(0.05, 0.3, rows))):
        for rate in (7.0, 31.4159, 50.0, 99.9):
            fine = resample(values, "cubic", rate=rate, times=times)
            peer = CubicSpline(times - times[0], values, axis=1)
            for m, found in enumerate(fine):
                # which takes the step after a row: compare where no row is
                inside = abs(fine.time[:, None] - (times - times[0])).min(1) > 1e-9
                wanted = peer.derivative(m)(fine.time) if m else peer(fine.time)
                atol = 1e-10 * max(1.0, abs(wanted).max())
                np.testing.assert_allclose(found[:, inside], wanted[:, inside], rtol=0, atol=atol)


@pytest.mark.parametrize("method", METHODS[1:])
def test_every_derivative_that_is_written_integrates_to_the_one_below(method):
    """By Gauss's rule, exact within each of the pieces."""
    plan, hold = trajectory(), options_of(method)
    nodes, weights = np.polynomial.legendre.leggauss(4)
    for b in range(3):
        knots = plan.time[b]
        ramps = knots[1:] - 0.25 * np.diff(knots) if hold else []
        edges = np.sort([*knots, *ramps])
        middle, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
        own = Trajectory(*(x[b : b + 1] for x in plan), knots)
        ends = list(resample(own, method, at=edges, **hold))
        inside = list(
            resample(own, method, at=(middle[:, None] + half[:, None] * nodes).ravel(), **hold)
        )
        count = sum(x is not None for x in ends)
        assert count >= 2
        for m in range(count - 1):
            values = inside[m + 1][0].reshape(len(half), 4, 2)
            integral = half[:, None] * np.einsum("n,knd->kd", weights, values)
            np.testing.assert_allclose(integral, np.diff(ends[m][0], axis=0), rtol=0, atol=1e-9)


def test_the_plan_of_a_mode_is_exact_without_a_method():
    plan = integrate(ROWS, "zero", np.diff(TIMES, prepend=0.0), "jerk", scheme="zoh")
    at = np.sort(RANDOM.uniform(0, plan.time[:, -1].min(), 40))
    for found, wanted in zip(resample(plan, at=at), sample(plan, at), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert abs(resample(plan, "linear", at=at).position - sample(plan, at).position).max() > 1e-4
    held = integrate(ROWS, "zero", 0.1, "acceleration", scheme="zoh")
    fine = resample(held, rate=37.0)
    assert fine.jerk is None  # a held acceleration jumps
    np.testing.assert_array_equal(fine.acceleration, sample(held, fine.time).acceleration)
    assert (
        resample(integrate(ROWS, "zero", 0.1, "acceleration", scheme="foh"), rate=9).jerk
        is not None
    )


def test_a_million_rows_do_not_drift():
    rows = np.arange(20_001.0)[:, None]
    fine = resample(rows, "linear", rate=300.0, dt=0.1)
    assert len(fine.time) == 600_001
    expected = np.arange(600_001) / 30
    np.testing.assert_allclose(fine.position[0, :, 0], expected, rtol=1e-15, atol=3e-11)
    held = resample(rows, "hold", rate=300.0, dt=0.1).position[0, :, 0]
    np.testing.assert_array_equal(held, np.arange(600_001) // 30)


def test_a_last_row_just_before_its_time_is_the_last_row():
    rows = np.arange(3.0)[:, None]
    for values in (rows, torch.from_numpy(rows)):
        fine = resample(values, rate=1.0, times=[0.0, 0.5, 1.0 - 1e-10])
        assert fine.time.tolist() == [0.0, 1.0]
        assert fine.position.tolist() == [[[0.0], [2.0]]]


def test_the_type_is_kept_and_integers_become_float64():
    for given, kept in (("f4", "f4"), ("f8", "f8"), ("f2", "f4"), ("i4", "f8"), (">f4", "f4")):
        fine = resample(ROWS.astype(given), "linear", rate=20.0, dt=0.1)
        assert fine.position.dtype == fine.velocity.dtype == np.dtype(kept)
    kinds = {
        torch.float16: torch.float32,
        torch.bfloat16: torch.float32,
        torch.int32: torch.float64,
    }
    for kind, kept in kinds.items():
        assert resample(torch.ones(4, 2).to(kind), rate=20.0, dt=0.1).position.dtype == kept


@pytest.mark.parametrize("method", METHODS)
def test_one_row_stays_one_row(method):
    plan = Trajectory(*(x[:, :1] for x in trajectory()), np.zeros(1))
    fine = resample(plan, method, rate=100.0)
    np.testing.assert_array_equal(fine.position, plan.position)
    np.testing.assert_array_equal(
        resample(ROWS[:, :1], "cubic", rate=9.0, dt=1).position, ROWS[:, :1]
    )


@pytest.mark.parametrize("method", METHODS)
def test_torch_gives_what_numpy_gives(method):
    plan = trajectory()
    tensors = Trajectory(*map(torch.from_numpy, plan), torch.from_numpy(plan.time))
    at = RANDOM.uniform(0, plan.time[:, -1].min(), (3, 20))
    for times in (at, at[0]):
        fine, same = (resample(x, method, at=times, **options_of(method)) for x in (plan, tensors))
        for a, b in zip(fine, same, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                np.testing.assert_allclose(b.numpy(), a, rtol=1e-12, atol=1e-12 * abs(a).max())


@pytest.mark.parametrize("method", [*METHODS, "spline", "exact"])
def test_gradients_of_rows_and_times(method):
    def call(p: Any, v: Any, a: Any, steps: Any, share: Any) -> Any:
        knots = torch.cat([0.0 * steps[:, :1], steps.cumsum(1)], 1)
        at = share * knots[:, -1:]
        if method == "exact":
            plan = integrate(p[:, 1:], State(v[:, 0]), steps, "jerk", scheme="zoh")
            fine = resample(plan, at=at)
        elif method == "spline":
            fine = resample(p, "cubic", at=at, times=knots)
        else:
            plan = Trajectory(p, v, a, None, knots)
            fine = resample(plan, method, at=at, **options_of(method))
        return tuple(x for x in fine if x is not None and x.requires_grad)

    torch.manual_seed(0)
    inputs = [*torch.rand(3, 2, 6, 2), 0.1 + torch.rand(2, 5), torch.rand(2, 7)]
    inputs = [x.double().requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(call, inputs, fast_mode=True)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"method": "spline", "rate": 1.0, "dt": 1.0}, "hold, linear"),
        ({"method": "quintic", "rate": 1.0, "dt": 1.0}, "derivatives"),
        ({"rate": 0.0, "dt": 1.0}, "rate"),
        ({"dt": 1.0}, "rate, at"),
        ({"rate": 1.0, "at": [0.5], "dt": 1.0}, "rate, at"),
        ({"at": [0.5, 8.5], "dt": 1.0}, "not within"),
        ({"at": [[0.5], [0.5]], "dt": 1.0}, "[N] or [3, N]"),
        ({"rate": 1.0}, "dt"),
        ({"rate": 1.0, "dt": -1.0}, "positive"),
        ({"rate": 1.0, "times": [0.0, 1.0]}, "[9]"),
        ({"rate": 1.0, "times": [0, 1, 2, 2, 3, 4, 5, 6, 7]}, "repeat"),
        ({"rate": 10.0, "times": TIMES}, "different duration"),
        ({"method": "hold", "rate": 1.0, "dt": 1.0, "hold": 0.5}, "ramp-and-hold"),
        ({"method": "ramp-and-hold", "rate": 1.0, "dt": 1.0, "hold": 1.0}, "as long as the step"),
    ],
)
def test_what_cannot_be_is_refused_and_says_why(options, word):
    with pytest.raises((UsageError, InputError)) as caught:
        resample(ROWS, **options)
    assert word in str(caught.value)


def test_held_actions_act_from_their_time_to_the_next():
    actions = np.arange(4.0)[:, None]
    held = resample(actions, "hold", rate=10.0, times=[5.0, 5.1, 5.4, 5.55, 5.8])
    np.testing.assert_array_equal(held.position[0, :, 0], [0, 1, 1, 1, 2, 2, 3, 3])
    np.testing.assert_allclose(held.time, np.arange(8) / 10)


def test_trajectories_with_times_of_their_own_are_what_they_are_alone():
    knots = (TIMES - TIMES[:, :1]) / (TIMES[:, -1:] - TIMES[:, :1])
    for method in METHODS[:4]:
        together = resample(ROWS, method, rate=37.0, times=knots, **options_of(method))
        for b in range(3):
            alone = resample(ROWS[b], method, rate=37.0, times=knots[b], **options_of(method))
            np.testing.assert_array_equal(together.position[b], alone.position[0])


def test_the_lowest_quantity_of_a_trajectory_without_positions_is_the_curve():
    full = trajectory(3)
    moved = Trajectory(None, full.position, full.velocity, None, full.time)
    at = np.linspace(0, full.time[:, -1].min(), 30)
    curve = resample(moved, "cubic", at=at)
    assert curve.position is None
    peer = resample(Trajectory(full.position, full.velocity, None, None, full.time), "cubic", at=at)
    for found, wanted in zip(list(curve)[1:], list(peer)[:3], strict=True):
        np.testing.assert_array_equal(found, wanted)
    gap = Trajectory(full.position, None, full.velocity, None, full.time)
    spline = resample(gap, "cubic", at=at)
    np.testing.assert_array_equal(
        spline.jerk, resample(full.position, "cubic", at=at, times=full.time).jerk
    )
