"""Local polynomials beside SciPy's savgol_filter and dense least squares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.signal import savgol_filter

import trajcli
from trajcli import InputError, UsageError

random = np.random.default_rng(7)


@pytest.mark.parametrize("dofs", [1, 6, 9])
@pytest.mark.parametrize(
    ("window", "degree"), [(5, 2), (5, 4), (7, 3), (11, 4), (15, 2), (21, 4), (9, 5)]
)
def test_equal_steps_give_scipys_filter(window: int, degree: int, dofs: int) -> None:
    positions = random.normal(size=(3, 60, dofs)).cumsum(1)
    result = trajcli.integrate(positions, "first", 0.01, "savgol", window=window, degree=degree)
    for order, values in enumerate(result):
        peer = savgol_filter(
            positions, window, degree, deriv=order, delta=0.01, axis=1, mode="interp"
        )
        np.testing.assert_allclose(values, peer, rtol=0, atol=1e-12 * abs(peer).max())


def dense(positions: Any, times: Any, window: int, degree: int) -> Any:
    """[4, T, D]: every window by least squares of its own, in scaled time."""
    rows = []
    for t in range(len(times)):
        first = min(max(t - window // 2, 0), len(times) - window)
        at = slice(first, first + window)
        scale = times[at][-1] - times[at][0]
        powers = ((times[at] - times[t]) / scale)[:, None] ** np.arange(degree + 1)
        fit = np.linalg.lstsq(powers, positions[at] - positions[t], rcond=None)[0]
        factors = np.array([1.0, 1.0, 2.0, 6.0])[:, None]
        fit = np.concatenate([fit, np.zeros((4, fit.shape[1]))])[:4]
        rows.append(fit * factors / scale ** np.arange(4)[:, None])
    derivatives = np.moveaxis(np.array(rows), 1, 0)
    derivatives[0] += positions
    return derivatives


@pytest.mark.parametrize("stamps", ["jitter", "a gap", "unix time"])
@pytest.mark.parametrize(("window", "degree"), [(7, 2), (11, 4), (31, 4), (9, 5), (31, 3)])
def test_unequal_steps_give_dense_least_squares(window: int, degree: int, stamps: str) -> None:
    steps = random.uniform(0.004, 0.016, 69)
    if stamps == "a gap":
        steps[30] = 0.1
    times = np.concatenate([[0.0], steps.cumsum()])
    if stamps == "unix time":
        times = np.round((times + 1.7e9) * 2**20) / 2**20
    positions = random.normal(size=(70, 7)).cumsum(0)
    result = trajcli.integrate(
        positions, "first", times=times, mode="savgol", window=window, degree=degree
    )
    peer = dense(positions, times - times[0], window, degree)
    for values, wanted in zip(result, peer, strict=True):
        atol = 2e-11 * abs(wanted).max()
        np.testing.assert_allclose(values[0], wanted, rtol=0, atol=atol)


@pytest.mark.parametrize("degree", [2, 3, 4, 5])
def test_polynomials_up_to_the_degree_come_back_exactly(degree: int) -> None:
    times = np.cumsum(random.uniform(0.01, 0.03, 40))
    times -= times[0]
    curve = np.polynomial.Polynomial(random.normal(size=degree + 1), domain=[0, times[-1]])
    positions = curve(times)[:, None]
    for window in (11, 15):
        result = trajcli.integrate(
            positions, "first", times=times, mode="savgol", window=window, degree=degree
        )
        for order, values in enumerate(result):
            wanted = curve.deriv(order)(times) if order else curve(times)
            # of the positions' own rounding, which derivatives divide by powers of the step
            size = abs(positions).max() / times[1] ** order
            np.testing.assert_allclose(values[0, :, 0], wanted, rtol=0, atol=1e-12 * size)


@pytest.mark.parametrize("shape", [(), (2, 1), (7,), (2, 7)], ids=str)
def test_gradients_of_positions_and_steps(shape: tuple[int, ...]) -> None:
    def call(positions: Any, dt: Any) -> Any:
        return tuple(trajcli.integrate(positions, "first", dt, "savgol", window=5, degree=3))

    inputs = (
        torch.randn(2, 8, 1, dtype=torch.float64, requires_grad=True),
        (0.5 + torch.rand(shape, dtype=torch.float64)).requires_grad_(),
    )
    assert torch.autograd.gradcheck(call, inputs, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call, inputs, fast_mode=True)


def test_a_matrix_gives_the_same() -> None:
    positions = random.normal(size=(20, 1))
    for dt in (0.1, random.uniform(0.05, 0.2, 19)):
        operator = trajcli.operator(20, dt, "savgol", start="first", window=9)
        result = trajcli.integrate(positions, "first", dt, "savgol", window=9)
        product = (operator.A @ positions[:, 0]).reshape(4, 20)
        for values, wanted in zip(result, product, strict=True):
            np.testing.assert_allclose(values[0, :, 0], wanted, atol=1e-11 * abs(wanted).max())


@pytest.mark.parametrize(
    ("options", "start", "words"),
    [
        ({}, "first", "needs a window"),
        ({"window": 6}, "first", "odd number of rows"),
        ({"window": 5, "degree": 5}, "first", r"over the degree \(5\)"),
        ({"window": 1001}, "first", "up to 999"),
        ({"window": 21}, "first", "at most 20 rows"),
        ({"window": 7}, "zero", "start first"),
    ],
)
def test_windows_that_cannot_be_are_named(options: Any, start: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        trajcli.integrate(np.ones((20, 2)), start, 0.1, "savgol", **options)


@pytest.mark.parametrize("options", [{"window": 7.0}, {"window": 0}, {"window": 7, "degree": 6}])
def test_options_that_are_none_are_refused(options: Any) -> None:
    with pytest.raises(UsageError, match=r"window|degree"):
        trajcli.integrate(np.ones((20, 2)), "first", 0.1, "savgol", **options)
