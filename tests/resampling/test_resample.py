"""Rows at another rate, against matrices, SciPy, mode bspline and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.interpolate import BSpline, CubicSpline

from trajcli import InputError, UsageError, integrate, matrices, resample
from trajcli.resampling import METHODS

RANDOM = np.random.default_rng(7)
ROWS = RANDOM.standard_normal((3, 9, 2))


@pytest.mark.parametrize("factor", [1, 2, 3, 5, 7, 10])
@pytest.mark.parametrize("dt", [0.02, 0.1, 1 / 3, 1.0])
def test_whole_factors_are_those_of_the_matrices(factor, dt):
    for method, matrix, options in (
        ("hold", matrices.hold_matrix(9, factor), {}),
        ("linear", matrices.linear_matrix(9, factor), {}),
        ("ramp-and-hold", matrices.ramp_and_hold_matrix(9, factor, factor // 2),
         {"hold": (factor // 2) / factor}),
    ):  # fmt: skip
        found = resample(ROWS, method, rate=factor / dt, dt=dt, **options)
        np.testing.assert_allclose(found.values, matrix @ ROWS, rtol=0, atol=1e-14)
        assert found.values.shape == (3, 8 * factor + 1, 2)
        np.testing.assert_allclose(found.time, np.arange(8 * factor + 1) * dt / factor, rtol=1e-15)


@pytest.mark.parametrize("method", METHODS[:4])
def test_given_rows_come_back_bit_for_bit(method):
    hold = {"hold": 0.25} if method == "ramp-and-hold" else {}
    found = resample(ROWS, method, rate=350.0, dt=0.02, **hold)
    np.testing.assert_array_equal(found.values[:, ::7], ROWS)
    times = np.array([0, 0.1, 0.3, 0.4, 0.9, 1.0, 1.5, 1.9, 2.0])
    found = resample(ROWS, method, rate=10, times=times + 7.0, **hold)
    np.testing.assert_array_equal(found.values[:, np.rint(times * 10).astype(int)], ROWS)


@pytest.mark.parametrize("rate", [7.0, 31.4159, 50.0, 99.9])
@pytest.mark.parametrize("rows", [2, 3, 4, 5, 40])
def test_cubic_is_scipys_spline(rate, rows):
    values = RANDOM.standard_normal((2, rows, 3))
    for times in (np.arange(rows) * 0.1, np.cumsum(RANDOM.uniform(0.05, 0.3, rows))):
        found = resample(values, "cubic", rate=rate, times=times)
        reference = CubicSpline(times - times[0], values, axis=1)(found.time)
        np.testing.assert_allclose(found.values, reference, rtol=0, atol=1e-11)


def test_cubic_reproduces_a_cubic_and_linear_a_line():
    t = np.linspace(0, 3, 13)
    cubic = (2 - t + 0.5 * t**2 - 0.3 * t**3)[:, None]
    found = resample(cubic, "cubic", rate=33.0, dt=0.25)
    x = found.time
    expected = 2 - x + 0.5 * x**2 - 0.3 * x**3
    np.testing.assert_allclose(found.values[:, 0], expected, rtol=0, atol=1e-12)
    found = resample((2 - t)[:, None], "linear", rate=33.0, dt=0.25)
    np.testing.assert_allclose(found.values[:, 0], 2 - found.time, rtol=0, atol=1e-14)


@pytest.mark.parametrize("degree", [3, 4, 5])
def test_bspline_is_scipys_and_mode_bsplines(degree):
    found = resample(ROWS, "bspline", rate=5 / 0.1, dt=0.1, degree=degree)
    mode = integrate(ROWS[:, 1:], ROWS[:, 0], 0.02, "bspline", degree=degree, steps=5)
    np.testing.assert_allclose(found.values, mode.position, rtol=0, atol=1e-14)
    np.testing.assert_allclose(found.time, mode.time, rtol=1e-14)
    found = resample(ROWS, "bspline", rate=37.3, dt=0.1, degree=degree)
    points = np.concatenate([ROWS[:, :1]] * degree + [ROWS] + [ROWS[:, -1:]] * degree, 1)
    knots = (np.arange(points.shape[1] + degree + 1) - degree) * 0.1
    reference = BSpline(knots, np.moveaxis(points, 1, 0), degree)(found.time)
    np.testing.assert_allclose(found.values, np.moveaxis(reference, 0, 1), rtol=0, atol=1e-13)


def test_rows_between_are_those_of_the_formula_at_any_rate():
    rate = 43.7
    for method, hold in (("hold", 1.0), ("linear", 0.0), ("ramp-and-hold", 0.4)):
        found = resample(ROWS, method, rate=rate, dt=0.1, hold=hold if 0 < hold < 1 else 0.0)
        assert len(found.time) == int(0.8 * rate) + 1
        for k, t in enumerate(found.time):
            i = min(int(t / 0.1), 7)
            share = min((t / 0.1 - i) / (1 - hold), 1.0) if hold < 1 else 0.0
            expected = ROWS[:, i] * (1 - share) + ROWS[:, i + 1] * share
            np.testing.assert_allclose(found.values[:, k], expected, rtol=0, atol=1e-12)


def test_a_million_rows_do_not_drift():
    rows = np.arange(100_001.0)[:, None]
    found = resample(rows, "linear", rate=300.0, dt=0.1)
    assert len(found.time) == 3_000_001
    np.testing.assert_allclose(found.values[:, 0], np.arange(3_000_001) / 30, rtol=1e-15, atol=0)
    held = resample(rows, "hold", rate=300.0, dt=0.1).values[:, 0]
    np.testing.assert_array_equal(held, np.arange(3_000_001) // 30)


def test_the_type_is_kept_and_integers_become_float64():
    for given, kept in (("f4", "f4"), ("f8", "f8"), ("f2", "f4"), ("i4", "f8"), (">f4", "f4")):
        found = resample(ROWS.astype(given), "linear", rate=20.0, dt=0.1)
        assert found.values.dtype == np.dtype(kept)


def test_one_row_stays_one_row():
    found = resample(ROWS[:, :1], "cubic", rate=100.0, dt=0.1)
    np.testing.assert_array_equal(found.values, ROWS[:, :1])


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"method": "spline", "rate": 1.0, "dt": 1.0}, "hold, linear"),
        ({"rate": 0.0, "dt": 1.0}, "rate"),
        ({"rate": 1.0}, "dt"),
        ({"rate": 1.0, "dt": -1.0}, "positive"),
        ({"rate": 1.0, "times": [0.0, 1.0]}, "[9]"),
        ({"rate": 1.0, "times": [0, 1, 2, 2, 3, 4, 5, 6, 7]}, "repeat"),
        ({"method": "hold", "rate": 1.0, "dt": 1.0, "hold": 0.5}, "ramp-and-hold"),
        ({"method": "bspline", "rate": 1.0, "times": [0, 1, 2, 3, 4, 5, 6, 7, 9]}, "uniform"),
        ({"method": "bspline", "rate": 1.0, "dt": 1.0, "degree": 2}, "3, 4 or 5"),
    ],
)
def test_what_cannot_be_is_refused_and_says_why(options, word):
    with pytest.raises((UsageError, InputError)) as caught:
        resample(ROWS, **options)
    assert word in str(caught.value)


def test_unix_stamps_hold_every_row_once_and_keep_the_last():
    rows = np.arange(200.0)[:, None]
    stamps = 1.7e9 + np.arange(200) * 0.01
    found = resample(rows, "hold", rate=100.0, times=stamps)
    np.testing.assert_array_equal(found.values, rows)
    dropped = np.delete(np.arange(200), [50, 51, 120])  # a gap in the recording
    found = resample(rows[dropped], "hold", rate=100.0, times=stamps[dropped])
    expected = np.arange(200)
    expected[[50, 51, 120]] = 49, 49, 119
    np.testing.assert_array_equal(found.values[:, 0], expected)


def test_held_actions_act_from_their_time_to_the_next():
    actions = np.arange(4.0)[:, None]
    found = resample(actions, "hold", rate=10.0, times=[5.0, 5.1, 5.4, 5.55, 5.8])
    np.testing.assert_array_equal(found.values[:, 0], [0, 1, 1, 1, 2, 2, 3, 3])
    np.testing.assert_allclose(found.time, np.arange(8) / 10)


@pytest.mark.parametrize("method", ["hold", "linear"])
def test_a_row_that_is_not_finite_does_not_spoil_the_rows_before_it(method):
    rows = np.arange(6.0)[:, None]
    rows[3] = np.nan
    found = resample(rows, method, rate=20.0, dt=0.1).values[:, 0]
    np.testing.assert_array_equal(np.isnan(found), [i in ((6, 7) if method == "hold" else (5, 6, 7))
                                                    for i in range(11)])  # fmt: skip


def test_trajectories_with_times_of_their_own_are_what_they_are_alone():
    from trajcli.resampling import make_resampler

    knots = np.cumsum(RANDOM.uniform(0.09, 0.11, (3, 9)), 1)
    knots = (knots - knots[:, :1]) / (knots[:, -1:] - knots[:, :1])
    for method in METHODS[:4]:
        together = make_resampler(method, knots, 37.0, 0.3 if method == "ramp-and-hold" else 0.0)
        for b in range(3):
            hold = {"hold": 0.3} if method == "ramp-and-hold" else {}
            alone = resample(ROWS[b], method, rate=37.0, times=knots[b], **hold)
            np.testing.assert_allclose(together.apply(ROWS)[b], alone.values, rtol=0, atol=1e-13)
