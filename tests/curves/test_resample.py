"""Rows of one curve, against SciPy, matrices, closed forms, and their own integrals.

More splines than the suite's: TRAJCLI_SEED=1 TRAJCLI_CASES=1000 pytest -k slopes
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.interpolate import BPoly, CubicHermiteSpline, CubicSpline

from trajcli import (
    InputError,
    State,
    Trajectory,
    UsageError,
    differentiate,
    integrate,
    load,
    matrices,
    resample,
    rotations,
    sample,
)
from trajcli.curves.resampling import METHODS

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
    for name in ("velocity", "acceleration")[: {"cubic": 2, "quintic": 3}.get(method, 1) - 1]:
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


@pytest.mark.parametrize(("method", "order", "digits"), [("cubic", 2, 5e-3), ("quintic", 3, 0.02)])
def test_hermite_curves_of_float32_rows_are_the_motion_not_their_rounding(method, order, digits):
    def motion(times):  # a sine and its derivatives
        turn = np.arange(4)[:, None] * np.pi / 2 + 2 * np.pi * times
        return (2 * np.pi) ** np.arange(4)[:, None] * np.sin(turn) + [[3.0], [0.0], [0.0], [0.0]]

    times, at = np.arange(500) / 1000, np.linspace(0.0, 0.499, 1311)
    p, v, a, _ = motion(times).astype("f4")[:, None, :, None]
    rows = Trajectory(p, v, a if method == "quintic" else None, None, times)
    found, wanted = list(resample(rows, method, at=at))[order], motion(at)[order]
    assert abs(found[0, :, 0] - wanted).max() < digits * abs(wanted).max()


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


def test_splines_through_any_number_of_rows_have_the_slopes_of_scipys():
    """In NumPy and torch; slopes are linear in the rows, so are the gradients of their sum."""
    random = np.random.default_rng(int(os.environ.get("TRAJCLI_SEED", "0")))
    for _ in range(int(os.environ.get("TRAJCLI_CASES", "12"))):
        count = int(random.integers(4, 24))
        knots = np.cumsum(random.choice([0.01, 0.5, 1.0]) ** random.random(count))
        knots, rows = knots - knots[0], random.normal(size=(count, 1))
        given = torch.tensor(rows, requires_grad=True)
        slopes = [resample(x, "cubic", times=knots, at=knots).velocity for x in (rows, given)]
        (grad,) = torch.autograd.grad(slopes[1].sum(), given)
        wanted = CubicSpline(knots, rows)(knots, 1)
        for found in (slopes[0], slopes[1].detach()):
            np.testing.assert_allclose(found[0], wanted, rtol=0, atol=1e-13 * abs(wanted).max())
        wanted = CubicSpline(knots, np.eye(count))(knots, 1)
        atol = 1e-12 * abs(wanted).max()
        np.testing.assert_allclose(grad[:, 0], wanted.sum(0), rtol=0, atol=atol)


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
        at = (middle[:, None] + half[:, None] * nodes).ravel()
        inside = list(resample(own, method, at=at, **hold))
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
    # the last row is held at the next step
    np.testing.assert_array_equal(fine.time, np.arange(35) / 37)
    at = [*fine.time[:-1], held.time[-1]]
    np.testing.assert_array_equal(fine.acceleration, sample(held, at).acceleration)
    plan = integrate(ROWS, "zero", 0.1, "acceleration", scheme="foh")
    assert resample(plan, rate=9).jerk is not None


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
    kinds = (torch.float16, torch.bfloat16, torch.int32)
    for kind, kept in zip(kinds, (torch.float32, torch.float32, torch.float64), strict=True):
        assert resample(torch.ones(4, 2).to(kind), rate=20.0, dt=0.1).position.dtype == kept


@pytest.mark.parametrize("method", METHODS)
def test_one_row_stays_one_row(method):
    plan = Trajectory(*(x[:, :1] for x in trajectory()), np.zeros(1))
    fine = resample(plan, method, rate=100.0)
    np.testing.assert_array_equal(fine.position, plan.position)
    fine = resample(ROWS[:, :1], "cubic", rate=9.0, dt=1)
    np.testing.assert_array_equal(fine.position, ROWS[:, :1])


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
    held = resample(np.arange(4.0)[:, None], "hold", rate=10.0, times=[5.0, 5.1, 5.4, 5.55, 5.8])
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
    peer = resample(full.position, "cubic", at=at, times=full.time)
    np.testing.assert_array_equal(spline.jerk, peer.jerk)


def rest_to_rest(duration: float = 1.0937, step: float = 0.05) -> Trajectory:
    """The quintic from 0 to 1 and 2 at rest, without a mode, as other programs write it; its last
    step is shorter than the others."""
    t = np.append(np.arange(0.0, duration, step), duration)
    curve = np.polynomial.Polynomial([0, 0, 0, 10, -15, 6])
    orders = [curve, *(curve.deriv(m) for m in (1, 2, 3))]
    rows = [x(t / duration)[:, None] * [1, 2] / duration**m for m, x in enumerate(orders)]
    return Trajectory(*(x[None] for x in rows), t)


def test_by_default_a_plan_without_mode_is_a_hermite_curve():
    plan, at = rest_to_rest(), np.linspace(0, 1.0937, 300)
    p, v, a, _ = (x[0] for x in plan)
    for left_out, peer in (
        ({}, np.polynomial.Polynomial([0, 0, 0, 10, -15, 6])(at / 1.0937)[:, None] * [1, 2]),
        ({"jerk": None}, BPoly.from_derivatives(plan.time, np.stack([p, v, a], 1))(at)),
        ({"acceleration": None}, CubicHermiteSpline(plan.time, p, v)(at)),
        ({"velocity": None}, np.stack([np.interp(at, plan.time, x) for x in p.T], 1)),
    ):
        given = replace(plan, **left_out)
        tensors = [None if x is None else torch.from_numpy(x) for x in (*given, given.time)]
        fine = resample(given, at=at), resample(Trajectory(*tensors), at=torch.from_numpy(at))
        for found in fine:
            np.testing.assert_allclose(found.position[0], peer, rtol=0, atol=1e-13)


SUMS = ("velocity", "acceleration", "jerk")
MADE: dict[str, dict[str, Any]] = {
    **{f"{mode} {scheme}": {"mode": mode, "scheme": scheme} for mode in SUMS
       for scheme in ("euler", "zoh", "foh")},
    **{mode: {"mode": mode} for mode in ("clique", "central", "teleport")},
    "bspline": {"mode": "bspline", "degree": 4, "steps": 3},
    **{method: {"method": method} for method in ("backward", "savgol", "smooth")},
}  # fmt: skip


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("stated", [True, False], ids=["stated", "not stated"])
def test_by_default_rows_of_a_mode_have_its_curve(made, stated):
    random = np.random.default_rng(3)
    dt = 0.1 if made == "bspline" else random.uniform(0.05, 0.1, (1, 39))
    if "method" in MADE[made]:
        times = np.append(0.0, np.cumsum(dt))
        rows = np.sin(times[:, None] * [2.0, 3.0]) + random.normal(size=(40, 2)) * 1e-4
        plan = differentiate(rows, times=times, **MADE[made])
    else:
        plan = integrate(random.normal(size=(39, 2)), "zero", dt, **MADE[made])
    given = plan if stated else replace(plan, mode="", options={})
    at = np.sort(random.uniform(0, np.ravel(plan.time)[-1], 200))
    fine = resample(given, at=at)
    if made in ("bspline", "smooth") or made.endswith(("zoh", "foh")):
        for found, wanted in list(zip(fine, sample(plan, at), strict=True))[:3]:
            if found is not None:
                np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-8 * abs(wanted).max())
    else:
        method = "quintic" if made in ("central", "savgol") else "linear"
        for found, wanted in zip(fine, resample(plan, method, at=at), strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_a_quintic_through_the_sums_of_euler_would_multiply_its_acceleration():
    plan = integrate(np.sign(np.sin(np.arange(1, 60) / 4.0))[:, None], "zero", 0.02)
    assert abs(resample(plan, "quintic", rate=5000.0).acceleration).max() > 3.9
    for given in (plan, replace(plan, mode="", options={})):
        fine = resample(given, rate=5000.0)
        assert fine.acceleration is None
        assert abs(np.diff(fine.velocity, axis=1)).max() < 0.02 + 1e-9


def test_rows_within_vmap_have_the_same_curve():
    at, t = torch.linspace(0, 0.8, 30), torch.arange(9.0) * 0.1
    angles = t[:, None] + torch.randn(3, 1, 2, dtype=torch.float64)
    p, v = angles.sin(), angles.cos()

    def call(p: Any, v: Any) -> Any:
        return resample(Trajectory(p, v, None, None, t), at=at).position

    found = torch.func.vmap(lambda p, v: call(p[None], v[None])[0])(p, v)
    np.testing.assert_array_equal(found, call(p, v))


def test_lines_that_are_resampled_again_stay_lines(tmp_path):
    for method in ("linear", "ramp-and-hold"):
        first = resample(rest_to_rest(), method, rate=130.0, **options_of(method))
        first.save(tmp_path / f"{method}.h5")
        for lines in (first, load(tmp_path / f"{method}.h5")):
            assert resample(lines, rate=777.0).acceleration is None
    again = resample(resample(rest_to_rest(), rate=130.0), rate=777.0)
    assert abs(again.acceleration).max() < 1.01 * abs(rest_to_rest().acceleration).max()


def test_velocities_that_nobody_filled_in_are_not_used():
    rows, t = np.sin(np.arange(40) * 0.1)[None, :, None], np.arange(40) * 0.1
    fine = resample(Trajectory(rows, 0 * rows, None, None, t), rate=77.0)
    np.testing.assert_array_equal(fine.position, resample(rows, rate=77.0, dt=0.1).position)
    few = Trajectory(np.array([[[0.0], [1.0], [0.0]]]), np.zeros((1, 3, 1)), None, None, t[:3])
    assert resample(few, at=[0.025]).position.item() == pytest.approx(3 / 16 - 2 / 64)


MOVING = np.sin(np.arange(12) * 0.1)[:, None]
STOPPED = np.cos(np.pi * np.clip(MOVING, 0, 0.8))
CUTS: list[tuple[Any, dict[str, Any], int, bool]] = [
    # rows, options, how many come out, and whether the last repeats the last row
    (MOVING, {"rate": 100.0, "dt": 0.1}, 111, True),
    (MOVING, {"rate": 9.0, "dt": 0.1}, 11, True),
    (MOVING[:1], {"rate": 9.0, "dt": 0.1}, 1, True),
    (MOVING, {"rate": 9.0, "dt": 0.1, "method": "hold"}, 11, True),
    (MOVING, {"rate": 9.0, "dt": 0.1, "method": "cubic"}, 10, False),
    (STOPPED, {"rate": 9.0, "dt": 0.1, "method": "cubic"}, 11, True),
    (np.stack([STOPPED, MOVING]), {"rate": 9.0, "dt": 0.1, "method": "cubic"}, 10, False),
    (rest_to_rest(), {"rate": 125.0}, 138, True),
    (rest_to_rest(), {"rate": 125.0, "method": "linear"}, 138, True),
    (rest_to_rest(), {"rate": 10_000.0}, 10_938, True),
    (rest_to_rest(), {"at": [0.0, 1.0]}, 2, False),
    (integrate(MOVING, "zero", 0.1, "jerk", scheme="zoh"), {"rate": 9.0}, 12, True),
    (integrate(MOVING, "zero", 0.1, "jerk"), {"rate": 9.0, "method": "cubic"}, 12, True),
    (integrate(MOVING, "zero", 0.1, "central"), {"rate": 9.0}, 12, True),
    (differentiate(MOVING, dt=0.1, method="central"), {"rate": 9.0}, 10, False),
    (differentiate(MOVING, dt=0.1, window=5), {"rate": 9.0}, 10, False),
]


@pytest.mark.parametrize(("rows", "options", "count", "ends"), CUTS)
def test_a_plan_ends_at_its_goal_and_a_cut_motion_earlier(rows, options, count, ends):
    fine = resample(rows, **options)
    assert fine.time.shape == (count,)
    rows = rows if isinstance(rows, Trajectory) else Trajectory(rows, *[None] * 4)
    goal = rows.position.reshape(*fine.position.shape[:1], -1, *rows.position.shape[-1:])[:, -1]
    assert np.array_equal(fine.position[:, -1], goal) == ends
    if ends and fine.acceleration is not None and rows.acceleration is not None:
        np.testing.assert_array_equal(fine.velocity[:, -1], rows.velocity[:, -1])
    if "rate" in options:
        np.testing.assert_array_equal(fine.time, np.arange(count) / options["rate"])


@pytest.mark.parametrize(("method", "count"), [("slerp", 11), ("squad", 10), ("spline", 10)])
def test_orientations_end_as_positions_do(method, count):
    q = rotations.exp(MOVING * [0, 0, 1.0])
    turned = rotations.resample(q, method, rate=9.0, dt=0.1)
    assert turned.time.shape == (count,)
    assert np.allclose(turned.orientation[0, -1], q[-1], atol=1e-15) == (count == 11)
