"""Local polynomials beside SciPy's savgol_filter and dense least squares."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from scipy.signal import savgol_filter

import trajcli
from trajcli import InputError, UsageError

random = np.random.default_rng(7)


@pytest.mark.parametrize(
    ("window", "degree", "dofs"),
    [(5, 2, 1), (5, 4, 6), (7, 3, 9), (11, 4, 1), (15, 2, 6), (21, 4, 9), (9, 5, 6)],
)
def test_equal_steps_give_scipys_filter(window: int, degree: int, dofs: int) -> None:
    positions = random.normal(size=(3, 60, dofs)).cumsum(1)
    for order, values in enumerate(
        trajcli.differentiate(positions, dt=0.01, method="savgol", window=window, degree=degree)
    ):
        peer = savgol_filter(
            positions, window, degree, deriv=order, delta=0.01, axis=1, mode="interp"
        )
        np.testing.assert_allclose(values, peer, rtol=0, atol=1e-12 * abs(peer).max())


def rows_in(times: Any, t: int, seconds: float, degree: int) -> list[int]:
    """The rows within half a window of row t, or up to the nearest degree + 1, row by row."""
    away = abs(times - times[t])
    half = max(seconds / 2, sorted(away)[degree]) * (1 + 1e-5)
    return [i for i in range(len(times)) if away[i] <= half]


def window_in_time(times: Any, t: int, seconds: float, degree: int) -> list[int]:
    """The same, near an end of the nearest row whose window reaches the end."""
    windows = [rows_in(times, i, seconds, degree) for i in range(len(times))]
    left = max(i for i, rows in enumerate(windows) if 0 in rows)
    right = min(i for i, rows in enumerate(windows) if len(times) - 1 in rows)
    if left >= right:  # no window is full
        return list(range(len(times)))
    return windows[min(max(t, left), right)]


def dense(positions: Any, times: Any, window: int | float, degree: int) -> Any:
    """[4, T, D]: every window by least squares of its own, in scaled time. A float: seconds."""
    rows = []
    for t in range(len(times)):
        if isinstance(window, float):
            within = window_in_time(times, t, window, degree)
            at = slice(within[0], within[-1] + 1)
        else:
            first = min(max(t - window // 2, 0), len(times) - window)
            at = slice(first, first + window)
        scale = times[at][-1] - times[at][0]
        powers = ((times[at] - times[t]) / scale)[:, None] ** np.arange(degree + 1)
        fit = np.linalg.lstsq(powers, positions[at] - positions[t], rcond=None)[0]
        fit = np.concatenate([fit, np.zeros((4, fit.shape[1]))])[:4]
        rows.append(fit * np.array([1.0, 1.0, 2.0, 6.0])[:, None] / scale ** np.arange(4)[:, None])
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
    result = trajcli.differentiate(
        positions, method="savgol", times=times, window=window, degree=degree
    )
    peer = dense(positions, times - times[0], window, degree)
    for values, wanted in zip(result, peer, strict=True):
        atol = 2e-11 * abs(wanted).max()
        np.testing.assert_allclose(values[0], wanted, rtol=0, atol=atol)


def exact(positions: Any, steps: Any, window: int, degree: int) -> tuple[Any, Any]:
    """[T, 4] by the normal equations in rational numbers, and the same by QR in float64."""
    times = [Fraction(0)]
    for step in steps:
        times.append(times[-1] + Fraction(float(step)))
    rows, peer = [], []
    for t in range(len(times)):
        first = min(max(t - window // 2, 0), len(times) - window)
        since = [time - times[t] for time in times[first : first + window]]
        values = [Fraction(float(x)) for x in positions[first : first + window]]
        n = degree + 1
        sums = [sum(time**k for time in since) for k in range(2 * n - 1)]
        table = [
            [*sums[i : i + n], sum(time**i * x for time, x in zip(since, values, strict=True))]
            for i in range(n)
        ]
        for i in range(n):  # positive definite: no pivots
            table[i] = [x / table[i][i] for x in table[i]]
            for j in range(n):
                if j != i:
                    table[j] = [
                        x - table[j][i] * y for x, y in zip(table[j], table[i], strict=True)
                    ]
        polynomial = [*(row[n] for row in table), Fraction(0)]
        rows.append([float(math.factorial(m) * polynomial[m]) for m in range(4)])
        scale = float(max(map(abs, since)))
        q, r = np.linalg.qr(np.vander([float(x) / scale for x in since], n, increasing=True))
        found = np.append(np.linalg.solve(r, q.T @ (positions[first : first + window])), 0.0)
        peer.append([math.factorial(m) * found[m] / scale**m for m in range(4)])
    return np.array(rows), np.array(peer)


@pytest.mark.parametrize("gap", [10.0, 60.0])
@pytest.mark.parametrize(("window", "degree"), [(9, 5), (31, 4), (7, 3)])
def test_a_window_across_a_gap_is_as_exact_as_a_qr(window: int, degree: int, gap: float) -> None:
    steps = random.uniform(0.008, 0.012, 49)
    steps[[24, 40]] = gap
    positions = random.normal(size=50).cumsum()
    wanted, peer = exact(positions, steps, window, degree)
    across = np.abs(np.arange(50)[:, None] - [24.5, 40.5]).min(1) < window / 2
    tensor = torch.from_numpy(positions)[None, :, None].requires_grad_()
    options: Any = {"method": "savgol", "window": window, "degree": degree}
    for backend in ("native", "torch"):
        result = trajcli.differentiate(tensor, dt=steps, backend=backend, **options)
        for order, values in enumerate(result):
            # of the rows whose windows have a gap, and of all
            for rows in (across, slice(None)):
                off = abs(values[0, :, 0].detach().numpy() - wanted[:, order])[rows].max()
                size = abs(wanted[rows, order]).max()
                assert off < max(2 * abs(peer - wanted)[rows, order].max(), 1e-12 * size)
                assert off < 1e-10 * size


def stamps_of(kind: str, rows: int = 50) -> Any:
    steps = random.uniform(0.004, 0.016, rows - 1)
    if kind == "even":
        steps[:] = 0.01
    elif kind == "gaps":
        steps[[0, 20, 21, 22, 23, -1]] = 0.09
    elif kind == "two rates":
        steps = np.repeat([0.01, 0.03], [rows // 2, rows - 1 - rows // 2])
    return np.concatenate([[0.0], steps.cumsum()])


@pytest.mark.parametrize("kind", ["even", "gaps", "two rates"])
@pytest.mark.parametrize(
    ("window", "degree", "backend"),
    [
        ("0.13s", 4, "native"),
        ("0.1s", 2, "torch"),
        ("0.03s", 3, "torch"),
        ("0.03s", 4, "native"),
        ("0.25s", 5, "native"),
    ],
)
def test_a_window_in_seconds_has_the_rows_within_half_of_it(
    window: str, degree: int, kind: str, backend: str
) -> None:
    """At least degree + 1, the nearest; every trajectory its own."""
    times = np.array([stamps_of(kind), stamps_of("jitter")])
    positions = random.normal(size=(2, 50, 2)).cumsum(1)
    options: Any = {"window": window, "degree": degree, "backend": backend}
    tensor = torch.from_numpy(positions)
    result = trajcli.differentiate(tensor, times=times, **options)
    for b in range(2):
        alone = trajcli.differentiate(tensor[b], times=times[b], **options)
        peer = dense(positions[b], times[b], float(window[:-1]), degree)
        for values, same, wanted in zip(result, alone, peer, strict=True):
            np.testing.assert_allclose(values[b], wanted, rtol=0, atol=1e-9 * abs(wanted).max())
            if backend == "native":  # whatever its neighbours are
                assert (values[b] == same[0]).all()


def test_a_window_in_seconds_at_equal_steps_is_that_of_rows() -> None:
    positions = random.normal(size=(2, 60, 3)).cumsum(1)
    for window, rows in (("0.3s", 31), ("0.299s", 29), ("0.095s", 9), (".08s", 9), ("0.001s", 5)):
        result = trajcli.differentiate(positions, dt=0.01, method="savgol", window=window)
        peer = trajcli.differentiate(positions, dt=0.01, method="savgol", window=rows)
        stamped = trajcli.differentiate(
            positions, method="savgol", times=np.arange(60) * 0.01, window=window
        )
        each = trajcli.differentiate(positions, dt=[[0.01], [0.02]], method="savgol", window=window)
        for values, wanted, other, first in zip(result, peer, stamped, each, strict=True):
            assert (values == wanted).all()
            np.testing.assert_allclose(other, wanted, rtol=0, atol=1e-11 * abs(wanted).max())
            np.testing.assert_allclose(first[0], wanted[0], rtol=0, atol=1e-11 * abs(wanted).max())


@pytest.mark.parametrize("steps", [0.01, np.full(19, 0.01)])
def test_a_recording_shorter_than_its_window_is_fitted_as_a_whole(steps: Any) -> None:
    positions = random.normal(size=(20, 2)).cumsum(0)
    result = trajcli.differentiate(positions, dt=steps, method="savgol", window="9s")
    for values, wanted in zip(result, dense(positions, np.arange(20) * 0.01, 9.0, 4), strict=True):
        np.testing.assert_allclose(values[0], wanted, rtol=0, atol=1e-10 * abs(wanted).max())


def test_a_nan_stays_within_windows_in_seconds() -> None:
    times = stamps_of("two rates")
    positions = random.normal(size=(50, 1))
    positions[30] = np.nan
    reached = [30 in window_in_time(times, t, 0.13, 4) for t in range(50)]
    for backend in ("native", "torch"):
        tensor, options = torch.from_numpy(positions), {"window": "0.13s", "backend": backend}
        for values in trajcli.differentiate(tensor, times=times, allow_nonfinite=True, **options):
            assert (np.isnan(values[0, :, 0].numpy()) == reached).all()


@pytest.mark.parametrize("shape", [(), (2, 1), (7,), (2, 7)], ids=str)
@pytest.mark.parametrize("options", [{"window": 5, "degree": 3}, {"window": "4.2s", "degree": 2}])
def test_gradients_of_positions_and_steps(shape: tuple[int, ...], options: Any) -> None:
    def call(positions: Any, dt: Any) -> Any:
        return tuple(trajcli.differentiate(positions, dt=dt, method="savgol", **options))

    steps = 0.5 + torch.rand(shape, dtype=torch.float64)
    if shape[-1:] == (7,) and options["window"] == 5:
        steps[..., 4] = 20.0
    inputs = (
        torch.randn(2, 8, 1, dtype=torch.float64, requires_grad=True),
        steps.requires_grad_(),
    )
    assert torch.autograd.gradcheck(call, inputs, check_forward_ad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, inputs, fast_mode=True)


def test_a_matrix_gives_the_same() -> None:
    positions = random.normal(size=(20, 1))
    for dt, window in product((0.1, random.uniform(0.05, 0.2, 19)), (9, "0.9s")):
        operator = trajcli.operator(20, dt, "savgol", start="first", window=window)
        result = trajcli.differentiate(positions, dt=dt, method="savgol", window=window)
        applied = (operator.A @ positions[:, 0]).reshape(4, 20)
        for values, wanted in zip(result, applied, strict=True):
            np.testing.assert_allclose(values[0, :, 0], wanted, atol=1e-11 * abs(wanted).max())


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"window": 6}, InputError, "odd number of rows"),
        ({"window": 5, "degree": 5}, InputError, r"over the degree \(5\)"),
        ({"window": 1001}, InputError, "up to 999"),
        ({"window": 21}, InputError, "at most 20 rows"),
        ({"window": 7.0}, UsageError, "window"),
        ({"window": 0}, UsageError, "window"),
        ({"window": 7, "degree": 6}, UsageError, "degree"),
    ],
)
def test_windows_and_degrees_that_cannot_be_are_named(
    options: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        trajcli.differentiate(np.ones((20, 2)), dt=0.1, **options)
