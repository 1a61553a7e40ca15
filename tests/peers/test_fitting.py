"""Fits beside SciPy's make_lsq_spline and dense least squares, and splines to be given back."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

import trajcli
from trajcli import State

interpolate = pytest.importorskip("scipy.interpolate")
RNG = np.random.default_rng(0)
SEED = int(os.environ.get("TRAJCLI_SEED") or 0)
FITS = int(os.environ.get("TRAJCLI_FITS") or 30)
"""How many jittered recordings are fitted."""
QUANTITIES = ("position", "velocity", "acceleration", "jerk")


def state(batch: int = 3, dofs: int = 2) -> State:
    return State(*RNG.normal(size=(4, batch, dofs)))


def curve(fitted, degree: int, steps: int):
    """What integrate makes of a fit."""
    dt = fitted.knot[:, None] / steps
    return trajcli.integrate(fitted.actions, fitted.start, dt, "bspline", degree=degree,
                             steps=steps, ends="goal", goal=fitted.goal)  # fmt: skip


def dense_rows(degree: int, intervals: int, local, knot: float):
    """p = A u + C s + G g at places in knots, from SciPy's basis and the states' polynomials."""
    points = np.eye(intervals + degree)
    basis = interpolate.BSpline(np.arange(-degree, intervals + degree + 1.0), points, degree)
    rows = basis(np.minimum(local, intervals - 1e-13))
    states = []
    for begin in (0, intervals - 1):
        segment = interpolate.BSpline(np.arange(-degree, degree + 2.0), np.eye(degree + 1), degree)
        inside = np.linspace(0, 1, degree + 1)
        when = inside if begin == 0 else inside - 1
        powers = np.stack([(when * knot) ** m / np.prod(range(1, m + 1)) for m in range(4)], 1)
        states.append(np.linalg.solve(segment(inside * (1 - 1e-14)), powers))
    width = degree + 1
    return (rows[:, width:-width], rows[:, :width] @ states[0], rows[:, -width:] @ states[1])


@pytest.mark.parametrize("degree", [3, 4, 5])
@pytest.mark.parametrize("horizon", [1, 2, 5, 12, 40])
@pytest.mark.parametrize("held", ["none", "start", "both", "positions"])
def test_a_spline_is_given_back(degree, horizon, held):
    start, goal, actions = state(), state(), RNG.normal(size=(3, horizon, 2))
    made = trajcli.integrate(actions, start, 0.02, "bspline", degree=degree, steps=7, ends="goal",
                             goal=goal)  # fmt: skip
    holding = {
        "none": {},
        "start": {"start": start},
        "both": {"start": start, "goal": goal},
        "positions": {"start": State(start.position), "goal": State(goal.position)},
    }
    found = trajcli.fit(
        made.position, 0.02, knots=horizon + degree + 1, degree=degree, **holding[held]
    )
    assert found.knot == pytest.approx([0.14] * 3)
    np.testing.assert_allclose(found.actions[:, :-1], actions[:, :-1], atol=1e-11)
    np.testing.assert_array_equal(found.actions[:, -1], found.goal.position)
    for one, expected in ((found.start, start), (found.goal, goal)):
        for part in QUANTITIES:
            np.testing.assert_allclose(getattr(one, part), getattr(expected, part), atol=1e-8)
    for got, expected in zip(curve(found, degree, 7), made, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-8)
    assert found.error.max() < 1e-12


@pytest.mark.parametrize("degree", [3, 4, 5])
@pytest.mark.parametrize("parts", [0, 1, 2, 4])
def test_a_fit_with_held_states_is_the_dense_least_squares_solution(degree, parts):
    times = np.sort(RNG.uniform(0, 3, 120))
    positions = RNG.normal(size=(1, 120, 2)).cumsum(1)
    intervals = degree + 9
    start, goal = state(1), state(1)
    keep = QUANTITIES[:parts]
    held = [State(*(getattr(one, p) if p in keep else None for p in QUANTITIES)) if parts else None
            for one in (start, goal)]  # fmt: skip
    found = trajcli.fit(positions, times=times, knots=intervals, degree=degree,
                        start=held[0], goal=held[1])  # fmt: skip
    knot = (times[-1] - times[0]) / intervals
    inner, *ends = dense_rows(degree, intervals, (times - times[0]) / knot, knot)
    target = positions[0].copy()
    for end, one in zip(ends, (start, goal), strict=True):
        target -= sum(end[:, m, None] * getattr(one, keep[m]) for m in range(parts))
    matrix = np.concatenate([inner, ends[0][:, parts:], ends[1][:, parts:]], 1)
    scale = np.abs(matrix).max(0)
    solution = np.linalg.lstsq(matrix / scale, target, rcond=None)[0] / scale[:, None]
    np.testing.assert_allclose(found.actions[0, :-1], solution[: inner.shape[1]], atol=1e-8)
    assert found.error == pytest.approx([np.abs(matrix @ solution - target).max()], rel=1e-8)
    for name in keep:
        np.testing.assert_array_equal(getattr(found.start, name), getattr(start, name))
        np.testing.assert_array_equal(getattr(found.goal, name), getattr(goal, name))
    made = curve(found, degree, 3)
    for name in keep:
        np.testing.assert_array_equal(getattr(made, name)[:, 0], getattr(start, name))
        np.testing.assert_allclose(getattr(made, name)[:, -1], getattr(goal, name), atol=1e-12)


def test_a_spline_of_thousands_of_intervals_is_fitted_as_well():
    positions = RNG.normal(size=(1, 20_001, 1)).cumsum(1)
    knots = 0.05 * np.arange(-3, 4004)
    expected = interpolate.make_lsq_spline(0.01 * np.arange(20_001), positions[0], knots, k=3)
    made = curve(trajcli.fit(positions, 0.01, knots=4000), 3, 1)
    np.testing.assert_allclose(made.position[0, :-1], expected(made.time[:-1]), atol=1e-9)


def test_an_error_is_kept_with_few_intervals():
    time = np.linspace(0, 3, 400)
    positions = np.sin(np.outer(time, [2.0, 3.0]))
    found = trajcli.fit(positions, times=time, error=1e-3)
    assert found.error.max() <= 1e-3
    count = round(3 / found.knot[0])
    assert trajcli.fit(positions, times=time, knots=count - 1).error.max() > 1e-3
    assert trajcli.fit(positions, times=time, knots=count).error == found.error


@pytest.mark.parametrize("held", [False, True])
def test_gradients_are_those_of_differences(held):
    rows = torch.tensor(RNG.normal(size=(2, 14, 1)), requires_grad=True)
    ends = [torch.tensor(RNG.normal(size=(2, 1)), requires_grad=True) for _ in range(4)]

    def outputs(rows, p, v, q, w):
        given = {"start": State(p, v), "goal": State(q, w)} if held else {}
        found = trajcli.fit(rows, 0.1, knots=6, **given)
        return found.actions, found.start.acceleration, found.goal.jerk, found.start.position

    if not held:
        assert torch.autograd.gradcheck(lambda rows: outputs(rows, *ends), rows)
        return
    assert torch.autograd.gradcheck(outputs, (rows, *ends), fast_mode=True)
    assert torch.autograd.gradgradcheck(outputs, (rows, *ends), fast_mode=True)


def test_torch_gives_numpys_numbers_in_the_type_of_the_rows():
    positions = RNG.normal(size=(2, 60, 3)).cumsum(1)
    expected = trajcli.fit(positions, 0.1, knots=9)
    found = trajcli.fit(torch.tensor(positions), 0.1, knots=9)
    np.testing.assert_allclose(found.actions.numpy(), expected.actions, atol=1e-12)
    np.testing.assert_allclose(found.goal.jerk.numpy(), expected.goal.jerk, atol=1e-9)
    assert trajcli.fit(positions.astype("f4"), 0.1, knots=9).actions.dtype == np.float32
    half = trajcli.fit(torch.tensor(positions).float(), 0.1, knots=9)
    assert half.actions.dtype == half.start.velocity.dtype == torch.float32


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"knots": 4}, "no such number of intervals"),
        ({"knots": 18}, "no such number of intervals"),
        ({"knots": 8, "degree": 2}, "no such degree"),
        ({"knots": 8, "error": 0.1}, "either knots or an error"),
        ({}, "either knots or an error"),
        ({"error": -1.0}, "not an error"),
        ({"error": 0.1, "start": State(np.full(2, 9.0))}, "an error that is not reached"),
        ({"knots": 8, "dt": 0.0}, "dt"),
        ({"knots": 8, "dt": None}, "either dt or times"),
        ({"knots": 8, "dt": None, "times": np.arange(19.0)}, "wrong number of time stamps"),
        ({"knots": 8, "dt": None, "times": np.zeros(20)}, "time"),
        ({"knots": 8, "start": State(np.zeros(4))}, "wrong shape"),
        ({"knots": 8, "goal": State(np.array([0.0, np.nan]))}, "goal/position"),
    ],
)
def test_what_cannot_be_fitted_is_said(options, said):
    rows = RNG.normal(size=(1, 20, 2))
    with pytest.raises(ValueError, match=said):
        trajcli.fit(rows, **{"dt": 0.1, **options})


def jittered(random, rows: int):
    """Stamps up to 0.9 of a step off, and noisy positions."""
    jitter = random.uniform(0, 0.9) * random.uniform(-1, 1, rows)
    times = np.sort(0.01 * (np.arange(rows) + jitter))
    return times, 0.1 * random.normal(size=(1, rows, 2)).cumsum(1)


@pytest.mark.parametrize("degree", [3, 4, 5])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_error_is_that_of_the_curve_as_it_is_returned(degree, dtype):
    """By SciPy's curve, or it is said why there is none that rows determine."""
    random, refused = np.random.default_rng(SEED + degree), 0
    for _ in range(FITS):
        times, positions = jittered(random, int(random.integers(12, 200)))
        intervals = int(random.integers(degree + 2, len(times) + degree - 5))
        rows = positions.astype(dtype)
        try:
            found = trajcli.fit(rows, times=times, knots=intervals, degree=degree)
        except trajcli.InputError:  # rows do not determine so many
            refused += 1
            continue
        knot = found.knot[0]
        inner, first, last = dense_rows(degree, intervals, (times - times[0]) / knot, knot)
        made = inner @ found.actions[0, :-1].astype("f8")
        for weights, end in ((first, found.start), (last, found.goal)):
            made += weights @ [getattr(end, name)[0].astype("f8") for name in QUANTITIES]
        off = np.abs(made - rows[0].astype("f8")).max()
        assert found.error == pytest.approx([off], rel=1e-6, abs=1e-9)
        # control points follow the rows: float32 loses little of them
        assert off < max(np.abs(rows).max(), 1.0)
        assert np.abs(found.actions).max() < 100 * np.abs(rows).max()
    assert refused < FITS / 4


def test_what_rows_do_not_determine_is_said_by_how_much():
    """Unknowns that the least squares solution magnifies are those of the pseudo-inverse."""
    random = np.random.default_rng(SEED)
    for degree, rows, intervals in ((3, 200, 197), (3, 60, 57), (3, 40, 25), (4, 200, 190)):
        for _ in range(5):
            times = jittered(random, rows)[0]
            knot = (times[-1] - times[0]) / intervals
            parts = dense_rows(degree, intervals, (times - times[0]) / knot, 1.0)
            spread = np.sqrt((np.linalg.inv(np.linalg.qr(np.hstack(parts)).R) ** 2).sum(1).max())
            positions = np.zeros((rows, 1))
            if spread < 0.9e4:
                trajcli.fit(positions, times=times, knots=intervals, degree=degree)
            elif spread > 1.1e4:
                with pytest.raises(ValueError, match=r"unknowns, which move .* times"):
                    trajcli.fit(positions, times=times, knots=intervals, degree=degree)


def test_an_error_that_only_undetermined_intervals_would_reach_is_said():
    times, positions = jittered(np.random.default_rng(0), 200)
    with pytest.raises(ValueError, match="an error that is not reached") as raised:
        trajcli.fit(positions, times=times, error=1e-9)
    most = int(str(raised.value).split("with ")[1].split()[0])
    assert 150 < most < 197
    tight = trajcli.fit(positions, times=times, knots=most).error[0]
    assert trajcli.fit(positions, times=times, error=1.01 * tight).error[0] <= 1.01 * tight


def test_nan_and_intervals_without_rows_are_said():
    rows = RNG.normal(size=(20, 2))
    with pytest.raises(ValueError, match="too few rows to fit"):
        trajcli.fit(rows, times=np.r_[np.arange(10) * 0.01, 5 + np.arange(10) * 0.01], knots=12)
    rows[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        trajcli.fit(rows, 0.1, knots=8)
