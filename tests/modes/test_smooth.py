"""Mode smooth: the smoothing spline, held against exact arithmetic, SciPy and known motions.

Pauses and rounded rows are drawn at random. For others, and more of them:

    TRAJCLI_SEED=1 TRAJCLI_SPLINES=100 pytest tests/modes/test_smooth.py -k "pause or float32"
"""

from __future__ import annotations

import os
from decimal import Decimal, localcontext
from math import factorial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.interpolate import make_smoothing_spline

import trajcli
from trajcli.errors import InputError, UsageError
from trajcli.kernels import native, torch_ops
from trajcli.kernels.program import Gradients, Operands, Smoother
from trajcli.modes._smooth import Columns

SEED = int(os.environ.get("TRAJCLI_SEED") or 0)
SPLINES = int(os.environ.get("TRAJCLI_SPLINES") or 1)
RNG = np.random.default_rng(0)
SEEDED = RNG.bit_generator.state
F64 = torch.float64
QUANTITIES = ("position", "velocity", "acceleration", "jerk")


@pytest.fixture(autouse=True)
def numbers_that_do_not_depend_on_other_tests() -> None:
    RNG.bit_generator.state = SEEDED
    torch.manual_seed(0)


def inverse(a: Any) -> Any:
    """By Gauss and Jordan, with pivots."""
    n = len(a)
    rows = np.concatenate([a, [[Decimal(i == j) for j in range(n)] for i in range(n)]], 1)
    for c in range(n):
        pivot = c + int(abs(rows[c:, c]).argmax())
        rows[[c, pivot]] = rows[[pivot, c]]
        rows[c] = rows[c] / rows[c, c]
        for r in (r for r in range(n) if r != c):
            rows[r] = rows[r] - rows[r, c] * rows[c]
    return rows[:, n:]


def spline(z: Any, steps: Any, weights: Any, cutoff: float, m: int) -> list[np.ndarray]:
    """Derivatives 0 … 3 of the spline at the rows, by the normal equations in 70 digits."""
    with localcontext() as context:
        context.prec = 70
        exact = np.vectorize(lambda x: Decimal(float(x)), otypes=[object])
        h = exact(sorted(steps)[(len(steps) - 1) // 2 : len(steps) // 2 + 1]).mean()
        stiffness = Decimal(float((2 * np.pi * cutoff * float(np.median(steps))) ** (-2 * m)))
        penalty, orders = stiffness * h ** (2 * m - 1), range(m)
        z, steps, weights = map(exact, (z, steps, weights))
        maps = []  # of each step: states by Taylor, the penalty on what they miss, and both
        for t in steps:
            taylor = np.array([[t ** (k - j) / factorial(k - j) if k >= j else Decimal(0)
                                for k in orders] for j in orders])  # fmt: skip
            gramian = np.array([[t ** (2 * m - 1 - j - k) / ((2 * m - 1 - j - k)
                                 * factorial(m - 1 - j) * factorial(m - 1 - k)) for k in orders]
                                for j in orders])  # fmt: skip
            inner = penalty * inverse(gramian)
            maps.append((taylor, inner, taylor.T @ inner))
        diagonal, side = [], []
        for i, weight in enumerate(weights):
            block, right = exact(np.zeros((m, m))), exact(np.zeros((m, 1)))
            block[0, 0], right[0, 0] = weight, weight * z[i]
            if i < len(steps):
                block = block + maps[i][2] @ maps[i][0]
            if i > 0:
                gain = -maps[i - 1][2].T @ inverse(diagonal[i - 1])
                block = block + maps[i - 1][1] + gain @ maps[i - 1][2]
                right = right - gain @ side[i - 1]
            diagonal.append(block)
            side.append(right)
        states = [inverse(diagonal[-1]) @ side[-1]]
        for i in reversed(range(len(steps))):
            states.insert(0, inverse(diagonal[i]) @ (side[i] + maps[i][2] @ states[0]))
        found = [[float(state[k, 0]) for state in states] for k in range(min(m, 4))]
        if m == 3:
            missed = [states[i + 1] - maps[i][0] @ states[i] for i in range(len(steps))]
            jerks = [(maps[i][2] @ e)[m - 1, 0] / penalty for i, e in enumerate(missed)]
            found.append([*map(float, jerks), 0.0])
        return [np.array(values) for values in found]


@pytest.mark.parametrize("order", [3, 4])
@pytest.mark.parametrize("jitter", [0.0, 0.2], ids=["even", "uneven"])
@pytest.mark.parametrize("cutoff", [0.01, 1.0, 300.0])
def test_solution_is_that_in_seventy_digits(order: int, jitter: float, cutoff: float) -> None:
    steps = 1e-3 * (1 + RNG.uniform(-jitter, jitter, 149))
    z = np.sin(np.arange(150) / 40) + RNG.normal(0, 1e-3, 150) + 3.0
    weights = np.where(np.arange(150) % 50 < 5, 0.0, 1.0)
    z[weights == 0] = np.nan
    result = trajcli.differentiate(
        z[:, None], dt=steps if jitter else 1e-3, method="smooth", order=order, bandlimit=cutoff,
        allow_nonfinite=True,
    )  # fmt: skip
    steps = steps if jitter else np.full(149, 1e-3)
    exact = spline(np.nan_to_num(z), steps, weights, cutoff, order)
    for values, expected in zip(result, exact, strict=True):
        assert abs(values[0, :, 0] - expected).max() < 1e-10 * abs(expected).max()


def test_long_recordings_at_a_khz_lose_no_digits() -> None:
    z = np.sin(np.arange(100_000) / 700)[:, None] + RNG.normal(0, 1e-3, (100_000, 1)) + 3.0
    options: dict[str, Any] = {"dt": 1e-3, "method": "smooth", "bandlimit": 1.0}
    short = trajcli.differentiate(z[:1500], **options)
    exact = spline(z[:1500, 0], np.full(1499, 1e-3), np.ones(1500), 1.0, 3)
    for values, expected, digits in zip(short, exact, (1e-12, 1e-12, 1e-11, 1e-10), strict=True):
        assert abs(values[0, :, 0] - expected).max() < digits * abs(expected).max()
    # ten periods from the ends, rows do not depend on what is beyond
    whole, part = (trajcli.differentiate(x, **options) for x in (z, z[70_000:95_000]))
    for values, expected in zip(whole, part, strict=True):
        off = values[0, 80_000:85_000] - expected[0, 10_000:15_000]
        assert abs(off).max() < 1e-9 * abs(expected).max()


@pytest.mark.parametrize("case", range(SPLINES))
@pytest.mark.parametrize("order", [3, 4])
def test_a_pause_of_up_to_a_day_costs_no_digits(order: int, case: int) -> None:
    draw = np.random.default_rng([SEED, order, case])
    rows, cutoff = 24, float(draw.uniform(0.5, 20.0))
    steps = 0.01 * (1.0 + draw.uniform(-0.2, 0.2, rows - 1))
    # on each side there are as many rows as hold a curve
    pauses = draw.choice([order, 12, rows - 2 - order], 2, replace=False)
    steps[pauses] = 10.0 ** draw.uniform(0.0, 5.0, 2)
    z, change = 3.0 + draw.normal(size=(2, rows)).cumsum(1) / 100.0
    exact, changes = (spline(x, steps, np.ones(rows), cutoff, order) for x in (z, change))
    leaf = torch.as_tensor(z[:, None]).requires_grad_()
    options: dict[str, Any] = {"dt": steps, "order": order, "bandlimit": cutoff}
    differentiable = trajcli.differentiate(leaf, **options)
    by_torch = trajcli.differentiate(leaf, backend="torch", **options)
    for made in (trajcli.differentiate(z[:, None], **options), differentiable, by_torch):
        for values, expected in zip(made, exact, strict=True):
            off = abs(torch.as_tensor(values)[0, :, 0].detach().numpy() - expected)
            assert off.max() < 2e-12 * abs(expected).max()
    # the gradient, in a direction: the curve is linear in the positions
    upstream = [draw.normal(size=(1, rows, 1)) / abs(x).max() for x in exact]
    want = [(up[0, :, 0] * x).sum() for up, x in zip(upstream, changes, strict=True)]
    for made in (differentiable, by_torch):
        (grad,) = torch.autograd.grad([*made], leaf, [*map(torch.as_tensor, upstream)])
        terms = grad[:, 0].numpy() * change
        assert abs(terms.sum() - sum(want)) < 1e-11 * max(abs(terms).sum(), *map(abs, want))


@pytest.mark.skipif(bool(native.absence()), reason="no compiled kernels")
@pytest.mark.parametrize("order", [3, 4])
def test_leverages_across_a_pause_are_those_of_the_exact_spline(order: int) -> None:
    steps = np.where(np.arange(13) == 6, 1000.0, 0.01)
    stiffness = float((2 * np.pi * 5.0 * 0.01) ** (-2 * order))
    made = Smoother(14, order, np.array([0.01]), np.array([[stiffness]]), np.ones((1, 14, 1)))
    rows = np.eye(14)
    exact = sum(spline(rows[i], steps, np.ones(14), 5.0, order)[0][i] for i in range(14))
    operands = Operands(rows[:1, :, None].copy(), steps[None])
    for kernels in (native, torch_ops):
        np.testing.assert_allclose(kernels.measure(made, operands)[1], exact, rtol=1e-10)


def program(order: int, rows: int, batch: int, dofs: int, uneven: bool) -> Any:
    """A smoother, its positions [B, T, D] and dt."""
    dt = RNG.uniform(0.008, 0.012, (batch, rows - 1 if uneven else 1))
    weights = RNG.uniform(0.1, 1.0, (batch, rows, dofs))
    weights[0, 3:7, 0] = 0.0
    stiffness = np.exp(RNG.uniform(0, 14, (batch, dofs)))
    made = Smoother(rows, order, np.median(dt, axis=1), stiffness, weights)
    return made, RNG.normal(size=(batch, rows, dofs)).cumsum(1), dt


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (3, 7), (2, 9)])
@pytest.mark.parametrize("order", [3, 4])
@pytest.mark.skipif(bool(native.absence()), reason="no compiled kernels")
def test_compiled_kernel_and_torch_agree(order: int, shape: tuple[int, int], uneven: bool) -> None:
    made, positions, dt = program(order, 40, *shape, uneven)
    tensors = Operands(torch.as_tensor(positions), torch.as_tensor(dt))
    rows = [np.empty_like(positions) for _ in range(4)]
    native.forward(made, Operands(positions, dt), rows)
    for values, expected in zip(rows, torch_ops.trajectories(made, tensors), strict=True):
        assert expected is not None
        assert abs(values - expected.numpy()).max() < 1e-11 * abs(values).max()
    off, of_torch = np.empty_like(positions), np.empty_like(positions)
    measured = native.measure(made, Operands(positions, dt), off)
    reference = torch_ops.measure(made, Operands(positions, dt), of_torch)
    for found, expected in zip(measured, reference, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    used = made.weights > 0.0
    np.testing.assert_allclose(off[used], of_torch[used], atol=1e-11)
    upstream = [RNG.normal(size=positions.shape) for _ in range(4)]
    grad = np.empty_like(positions)
    native.adjoint(made, Operands(positions, dt), upstream, Gradients(grad))
    upstream = [*map(torch.as_tensor, upstream)]
    pulled = torch_ops.pull_back(made, positions.shape, tensors.dt, upstream)
    assert abs(grad - pulled[0].numpy()).max() < 1e-11 * abs(grad).max()


@pytest.mark.skipif(bool(native.absence()), reason="no compiled kernels")
@pytest.mark.parametrize(("order", "rows"), [(3, 1100), (4, 2100)])
def test_long_rows_do_not_depend_on_level_threads_or_files(
    order: int, rows: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Levels keep the factors of 2048, 1024 and 512 rows, and compute others twice."""
    made, positions, dt = program(order, rows, 2, 3, uneven=True)
    dt[0, 1030] = 20.0
    operands = Operands(positions, dt)
    upstream = [RNG.normal(size=positions.shape) for _ in range(4)]

    def results() -> list[bytes]:
        *rows, off, grad = (np.empty_like(positions) for _ in range(6))
        native.forward(made, operands, rows)
        sums = native.measure(made, operands, off)
        native.adjoint(made, operands, upstream, Gradients(grad))
        with (tmp_path / "rows").open("w+b") as file:  # beside rows in memory
            begins = [m * positions.nbytes for m in range(3)]
            places = [native.FileOutput(file.fileno(), begin, "f8") for begin in begins]
            jerk = np.empty_like(positions)
            native.forward(made, operands, [*places, jerk])
            assert file.read() == b"".join(x.tobytes() for x in rows[:3])
        return [x.tobytes() for x in (*rows, jerk, *sums, off, grad)]

    want = results()
    assert want[3] == want[4]
    for level in (1, 3, 4):
        for threads in ("1", "2", "5") if level <= native.level() else ():
            with monkeypatch.context() as patch:
                patch.setenv("TRAJCLI_THREADS", threads)
                patch.setenv("TRAJCLI_LEVEL", str(level))
                assert results() == want


@pytest.mark.skipif(bool(native.absence()), reason="no compiled kernels")
@pytest.mark.parametrize("size", [0.0, 1.0])
@pytest.mark.parametrize("order", [3, 4])
def test_a_dof_has_the_same_bits_next_to_any_other(order: int, size: float) -> None:
    values = RNG.normal(size=(1, 12, 2)) * [size, 1.0]
    weights = np.where(RNG.uniform(size=values.shape) < 0.2, 0.0, 1.0)
    dt, found = RNG.uniform(0.5, 2.0, (1, 11)), []
    for dofs in (1, 2):
        inner = np.s_[..., :dofs]
        out = np.empty((4, 1, 12, dofs))
        made = Smoother(12, order, np.ones(1), np.array([[1e9, 1e-9]])[inner], weights[inner])
        native.forward(made, Operands(values[inner], dt), [*out])
        found.append(out[..., 0].tobytes())
    assert found[0] == found[1]


@pytest.mark.parametrize("kernels", [native, torch_ops])
def test_cutoffs_side_by_side_have_the_bits_of_each_alone(kernels: Any) -> None:
    if kernels is native and native.absence():
        pytest.skip(native.absence())
    made, positions, dt = program(3, 40, 3, 1, uneven=True)
    none = np.full(3, np.nan)
    columns = Columns(3, positions, dt, none, none, kernels, made.weights)
    cutoffs = np.exp(RNG.uniform(0.0, 3.0, (5, 3)))
    squares, leverages, off = columns.measure(cutoffs)
    assert off is None
    assert squares.shape == leverages.shape == (5, 3)
    for row, *sums in zip(cutoffs, squares, leverages, strict=True):
        for found, expected in zip(sums, columns.measure(row)[:2], strict=True):
            np.testing.assert_allclose(found, expected, rtol=0.0 if kernels is native else 1e-12)


@pytest.mark.parametrize("absence", ["", "not built"])
def test_a_smoother_on_a_device_is_computed_on_the_cpu(absence: str, monkeypatch: Any) -> None:
    """Any device but the CPU: here a tensor that says it lies on one, and is copied from there."""
    made, positions, dt = program(3, 40, 2, 3, uneven=False)

    class OnDevice(torch.Tensor):
        device = torch.device("xpu")

        def cpu(self) -> torch.Tensor:
            return self.as_subclass(torch.Tensor).clone()

    def on_device(values: Any) -> torch.Tensor:
        return torch.as_tensor(values).as_subclass(OnDevice)

    monkeypatch.setattr(native, "absence", lambda: absence)
    shape, operands = positions.shape, Operands(on_device(positions), on_device(dt))
    wanted = [True, False, True, True]
    rows = [torch.full(shape, torch.nan, dtype=F64) if want else None for want in wanted]
    torch_ops.forward(made, operands, rows)
    plain = Operands(torch.as_tensor(positions), torch.as_tensor(dt))
    upstream = [None, *(torch.randn(shape, dtype=F64) for _ in range(3))]
    pulled = torch.full(shape, torch.nan, dtype=F64)
    torch_ops.adjoint(made, operands, upstream, Gradients(pulled))
    want = [*torch_ops.trajectories(made, plain, wanted)]
    want.append(torch_ops.pull_back(made, shape, plain.dt, upstream)[0])
    for values, expected in zip([*rows, pulled], want, strict=True):
        if expected is not None:
            assert abs(values - expected).max() < 1e-11 * abs(values).max()
    assert rows[1] is None


def test_solver_of_order_two_is_scipys_smoothing_spline() -> None:
    stamps = np.sort(RNG.uniform(0.0, 3.0, 80))
    z = np.sin(stamps) + RNG.normal(0, 0.1, 80)
    weights, penalty = RNG.uniform(0.5, 2.0, 80), 0.02
    expected = make_smoothing_spline(stamps, z, w=weights, lam=penalty)
    unit = float(np.median(np.diff(stamps)))
    stiffness = np.array([[penalty / unit**3]])
    made = Smoother(80, 2, np.array([unit]), stiffness, weights[None, :, None])
    operands = Operands(torch.as_tensor(z[None, :, None]), torch.as_tensor(np.diff(stamps)[None]))
    rows = torch_ops.trajectories(made, operands, (True, True, True, False))
    for order, values in enumerate(rows[:3]):
        assert values is not None
        exact = expected.derivative(order)(stamps) if order else expected(stamps)
        assert abs(values[0, :, 0].numpy() - exact).max() < 1e-8 * abs(exact).max()


def test_a_trajectory_alone_has_the_same_bits_as_in_a_batch() -> None:
    _, positions, dt = program(3, 60, 5, 3, uneven=True)
    stamps = np.concatenate([np.zeros((5, 1)), dt.cumsum(1)], 1)
    whole = trajcli.differentiate(positions, times=stamps, method="smooth", robust=True)
    for b in range(5):
        z = positions[b, :, 1:2]
        one = trajcli.differentiate(z, times=stamps[b], method="smooth", robust=True)
        assert (one.options["bandlimit"][0, 0] == whole.options["bandlimit"][b, 1]).all()
        for part, values in one.outputs().items():
            assert (values[0, :, 0] == whole.outputs()[part][b, :, 1]).all()


@pytest.mark.parametrize("order", [3, 4])
def test_gradients_are_exact_of_first_and_second_order(order: int) -> None:
    positions = torch.randn(1, 7, 2, dtype=F64).requires_grad_()
    stamps = np.linspace(0, 1, 7) + RNG.uniform(0, 0.02, 7)

    def outputs(z: torch.Tensor) -> tuple[Any, ...]:
        options: dict[str, Any] = {"times": stamps, "bandlimit": 2.0, "order": order}
        return tuple(trajcli.differentiate(z, method="smooth", **options))

    # the curve is linear in the positions, so that differences of long steps are exact
    exact: Any = {"eps": 1e-3, "rtol": 1e-6, "atol": 1e-7, "fast_mode": True}
    assert torch.autograd.gradcheck(outputs, positions, **exact)
    assert torch.autograd.gradgradcheck(outputs, positions, **exact)
    tangent = torch.ones_like(positions)
    _, by_forward = torch.func.jvp(outputs, (positions,), (tangent,))
    for found, expected in zip(by_forward, outputs(tangent), strict=True):
        assert abs(found - expected).max() < 1e-9 * (1 + abs(expected).max())
    mapped = torch.func.vmap(outputs)(positions[:, None])
    for found, expected in zip(mapped, outputs(positions), strict=True):
        assert abs(found[:, 0] - expected).max() < 1e-9 * abs(expected).max()


def test_chosen_bandlimits_are_held_fixed_in_gradients() -> None:
    z = torch.randn(1, 40, 2, dtype=F64).cumsum(1).requires_grad_()
    chosen = trajcli.differentiate(z, dt=0.1, method="smooth")
    (grad,) = torch.autograd.grad(chosen.jerk.square().sum(), z)
    again = trajcli.differentiate(z, dt=0.1, method="smooth", bandlimit=chosen.options["bandlimit"])
    assert (again.jerk == chosen.jerk).all()
    assert (torch.autograd.grad(again.jerk.square().sum(), z)[0] == grad).all()


def test_within_vmap_a_bandlimit_is_needed() -> None:
    def jerk(z: torch.Tensor) -> torch.Tensor:
        return trajcli.differentiate(z, dt=0.1, method="smooth").jerk.sum()

    with pytest.raises(InputError) as caught:
        torch.func.vmap(jerk)(torch.randn(2, 9, 2, dtype=F64))
    assert caught.value.faults[0].hint == "bandlimit=, in Hz"


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6 / 3])
def test_rows_that_are_all_equal_have_derivatives_of_exactly_zero(value: float) -> None:
    z = np.full((1, 50, 2), value)
    z[0, :, 1] = np.arange(50)
    for more in ({}, {"bandlimit": 3.0}, {"robust": True}):
        result = trajcli.differentiate(z, dt=0.01, method="smooth", **more)
        assert (result.position[..., 0] == value).all()
        assert not any(np.any(x[..., 0]) for x in list(result)[1:])
        assert np.isnan(result.options["bandlimit"]).tolist() == [[True, False]]


def test_missing_rows_have_weight_zero_and_stay_within_their_dof() -> None:
    z = np.sin(np.arange(100) / 10)[:, None] * [1.0, 2.0] + RNG.normal(0, 0.01, (100, 2))
    gap = z.copy()
    gap[[0, 1, 40, 41, 42, 99], 0] = np.nan
    with pytest.raises(InputError):
        trajcli.differentiate(gap, dt=0.1, method="smooth")
    result = trajcli.differentiate(gap, dt=0.1, method="smooth", allow_nonfinite=True)
    whole = trajcli.differentiate(z, dt=0.1, method="smooth")
    assert (result.velocity[..., 1] == whole.velocity[..., 1]).all()
    assert abs(result.position[..., 0] - np.sin(np.arange(100) / 10)).max() < 0.1
    gap[4:, 0] = np.nan  # two rows are too few
    result = trajcli.differentiate(gap, dt=0.1, method="smooth", allow_nonfinite=True)
    assert np.isnan(result.position[..., 0]).all()
    assert np.isfinite(result.position[..., 1]).all()


def test_the_residuals_have_the_deviation_that_noise_names() -> None:
    z = np.sin(np.arange(200) / 15)[:, None] + RNG.normal(0, 0.02, (200, 3))
    result = trajcli.differentiate(z, dt=0.01, method="smooth", noise=0.019)
    off = np.sqrt(((z - result.position[0]) ** 2).mean(0))
    np.testing.assert_allclose(off, 0.019, rtol=1e-4)
    np.testing.assert_allclose(result.options["residual"][0], off, rtol=1e-9)


def test_outliers_are_reweighted_and_regular_rows_are_not() -> None:
    clean = np.sin(np.arange(300) / 20)
    z = clean[:, None] + RNG.normal(0, 0.01, (300, 2))
    z[[50, 130, 131, 270], 0] += [3.0, -2.0, 2.5, -3.0]
    plain = trajcli.differentiate(z, dt=0.01, method="smooth")
    robust = trajcli.differentiate(z, dt=0.01, method="smooth", robust=True)
    assert 4 <= robust.options["reweighted"][0, 0] <= 10
    assert robust.options["reweighted"][0, 1] == 0
    assert (robust.velocity[..., 1] == plain.velocity[..., 1]).all()
    off, of_plain = (abs(x.position[0, :, 0] - clean).max() for x in (robust, plain))
    assert off < 0.02 < of_plain


def test_more_outliers_than_a_tenth_are_left_as_they_are() -> None:
    z = np.sin(np.arange(300) / 20)[:, None] + RNG.normal(0, 0.01, (300, 1))
    z[::7] += 3.0 * RNG.choice([-1.0, 1.0], (43, 1))
    robust = trajcli.differentiate(z, dt=0.01, method="smooth", robust=True)
    assert robust.options["reweighted"].tolist() == [[0]]
    assert (robust.position == trajcli.differentiate(z, dt=0.01, method="smooth").position).all()


@pytest.mark.parametrize("jitter", [0.0, 0.2], ids=["even", "uneven"])
def test_derivatives_of_an_encoder_are_as_good_as_promised(jitter: float) -> None:
    rates = 2 * np.pi * np.array([0.3, 0.7, 1.3, 2.1, 3.0])
    errors = []
    for seed in range(10):  # five sines of random phases, with white noise, then quantised
        random = np.random.default_rng(seed)
        stamps = np.concatenate([[0], (0.01 * (1 + random.uniform(-jitter, jitter, 999))).cumsum()])
        angle = np.outer(stamps, rates) + random.uniform(0, 2 * np.pi, 5)
        exact = [(0.1 * rates**k * np.sin(angle + k * np.pi / 2)).sum(1) for k in range(4)]
        z = np.round((exact[0] + random.normal(0, 2e-4, 1000)) / 1e-3) * 1e-3
        result = trajcli.differentiate(z[:, None], times=stamps, method="smooth")
        off = [values[0, 50:-50, 0] - x[50:-50] for values, x in zip(result, exact, strict=True)]
        errors.append([np.sqrt((e**2).mean()) for e in off[1:]])
    assert (np.mean(errors, axis=0) < (0.0062, 0.33, 22)).all()


@pytest.mark.parametrize("order", [3, 4])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_between_rows_the_curve_is_the_spline_itself(order: int, library: str) -> None:
    z = RNG.normal(size=(1, 30, 2)).cumsum(1)
    fine = np.full((1, 59, 2), np.nan)
    fine[:, ::2] = z
    options: dict[str, Any] = {"method": "smooth", "order": order, "bandlimit": 1.5}
    # rows that are missing are where the curve is known without them
    whole = trajcli.differentiate(fine, dt=0.05, allow_nonfinite=True, **options)
    same = (0.05 / 0.1) ** (1.0 / (2 * order))  # λ, which is by the median step
    rows = z if library == "numpy" else torch.as_tensor(z)
    coarse = trajcli.differentiate(rows, dt=0.1, **options | {"bandlimit": 1.5 * same})
    for values, expected in zip(trajcli.sample(coarse, np.arange(59) * 0.05), whole, strict=True):
        assert abs(np.asarray(values) - expected).max() < 1e-8 * abs(expected).max()
    again = trajcli.resample(coarse, rate=20.0)
    assert abs(np.asarray(again.jerk) - whole.jerk).max() < 1e-8 * abs(whole.jerk).max()


@pytest.mark.parametrize("case", range(SPLINES))
@pytest.mark.parametrize("order", [3, 4])
def test_between_float32_rows_the_curve_is_the_exact_spline(order: int, case: int) -> None:
    draw = np.random.default_rng([SEED, order, case])
    rate = float(draw.choice([100.0, 1000.0, 10_000.0]))
    offset, cutoff = float(draw.choice([3.0, 1e4])), rate * float(draw.uniform(0.004, 0.03))
    noise = draw.normal(0.0, 2e-4, 24)
    z = (offset + np.sin(2e-3 * np.pi * np.arange(24)) + noise).astype(np.float32)
    # rows that are missing are where the curve is known without them
    fine = np.zeros(47)
    fine[::2] = z
    same = 0.5 ** (1.0 / (2 * order))  # λ, which is by the median step
    exact = spline(fine, np.full(46, 0.5 / rate), 1.0 - np.arange(47) % 2, cutoff / same, order)
    made = trajcli.differentiate(z[:, None], dt=1.0 / rate, order=order, bandlimit=cutoff)
    assert made.jerk.dtype == np.float32
    sampled = trajcli.sample(made, np.arange(47) * 0.5 / rate)
    # how jerk bends within a step is not known better than by accelerations, which were rounded
    known = 10.0 * rate * 2.0**-24 * abs(exact[2]).max()
    for m, (values, expected) in enumerate(zip(sampled, exact, strict=True)):
        slack = (2e-7, 4e-7, 4e-6, 5e-4)[m] * abs(expected).max() + known / (4 * rate) ** (3 - m)
        assert abs(values[0, :, 0] - expected).max() < slack
    peak = abs(exact[3]).max()
    assert trajcli.retime(made, {"jerk": peak}).factor < 1.01 + known / peak
    # just before a row, the curve is at the row
    for values, rows in zip(trajcli.sample(made, made.time[1:] - 1e-6 / rate), made, strict=True):
        largest = np.spacing(abs(rows).max()) + 1e-5 * abs(np.diff(rows, axis=1)).max()
        assert abs(values - rows[:, 1:]).max() < 4 * largest


@pytest.mark.parametrize("order", [3, 4])
def test_gradients_pass_where_the_curve_leaves_out_what_may_be_rounding(order: int) -> None:
    still = torch.full((12, 1), 3.0, dtype=F64)
    made = trajcli.differentiate(still, dt=0.01, order=order, bandlimit=8.0)
    at = torch.tensor([0.003, 0.017, 0.0555], dtype=F64)

    def outputs(*rows: torch.Tensor) -> tuple[Any, ...]:
        curve = trajcli.Trajectory(*rows, made.time, made.mode, made.options)
        return tuple(trajcli.sample(curve, at))

    leaves = [x.clone().requires_grad_() for x in made if x is not None]
    assert torch.autograd.gradcheck(outputs, leaves, eps=1e-3, rtol=1e-6, fast_mode=True)


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"bandlimit": 6.0}, "bandlimit"),
        ({"bandlimit": -1.0}, "bandlimit"),
        ({"bandlimit": [1.0, 2.0, 3.0]}, "bandlimit"),
        ({"noise": 0.0}, "noise"),
        ({"noise": 0.1, "bandlimit": 1.0}, "noise"),
        ({"order": 5}, "order"),
        ({"window": 5}, "window"),
        ({"method": "central", "robust": True}, "robust"),
        ({"dt": torch.tensor(0.1, requires_grad=True)}, "dt"),
        ({"dt": None, "times": torch.arange(20.0).requires_grad_()}, "dt"),
    ],
)
def test_options_that_cannot_be_are_faults(options: dict[str, Any], where: str) -> None:
    with pytest.raises((InputError, UsageError)) as caught:
        trajcli.differentiate(np.ones((20, 2)), **{"dt": 0.1, "method": "smooth", **options})
    assert caught.value.faults[0].where == where


@pytest.mark.parametrize("ending", [".h5", ".npz"])
def test_what_was_chosen_for_each_trajectory_is_saved(tmp_path: Path, ending: str) -> None:
    chosen = trajcli.differentiate(RNG.normal(size=(1200, 12, 8)).cumsum(1), dt=0.1)
    chosen.save(tmp_path / f"out{ending}")
    loaded = trajcli.load(tmp_path / f"out{ending}")
    assert loaded.options["order"] == 3
    assert (loaded.options["bandlimit"] == chosen.options["bandlimit"]).all()
    at = [0.05, 0.55]
    assert abs(trajcli.sample(loaded, at).jerk - trajcli.sample(chosen, at).jerk).max() == 0.0
    dataset = pytest.importorskip("xarray") and chosen.to_xarray()
    assert dataset["residual"].dims == ("trajectory", "dof")


def test_too_few_rows_name_another_method() -> None:
    with pytest.raises(InputError) as caught:
        trajcli.differentiate(np.ones((3, 2)), dt=0.1, method="smooth")
    assert "backward" in caught.value.faults[0].hint
