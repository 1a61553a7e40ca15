"""The Triton kernels give the rows and gradients that torch gives.

On a CUDA device they run as they are. Without one test_triton_emulated.py runs these tests in a
process of its own, compiled, and the device's instructions carried out on the CPU (ptx/).
"""

from __future__ import annotations

import random
import time
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from kernels.cases import (
    BANDS,
    CASCADES,
    DOFS,
    DTYPES,
    STATES,
    Case,
    applied,
    case,
    job,
    random_band,
    random_fit,
)
from kernels.comparison import (
    assert_right,
    assert_same_alone,
    assert_same_without_others,
    gradients,
    rows,
)
from kernels.ptx import driver
from kernels.test_memory import assert_same_from_views

from trajcli import InputError, State, _prepared
from trajcli.kernels import cuda, triton_ops
from trajcli.kernels.choose import triton_absence
from trajcli.kernels.program import Band, Windows

pytestmark = [
    pytest.mark.skipif(bool(triton_absence()), reason=triton_absence()),
    pytest.mark.skipif(
        not cuda.count() and not driver.emulated,
        reason="no CUDA device; test_triton_emulated.py runs these without",
    ),
]

WORKS = [job("jerk", scheme="foh"), job("clique"), job("central"), job("bspline", ends="goal")]


def assert_both_right(sample: Case) -> None:
    assert_right(rows, "triton", sample)
    assert_right(gradients, "triton", sample)


MODES = [*CASCADES[:2], *CASCADES[3::2], *BANDS[:5], *BANDS[5::5]]


@pytest.mark.parametrize("work", MODES, ids=str)
def test_every_mode_is_right(work):
    k = MODES.index(work)
    form, dofs = work.forms[k % len(work.forms)], DOFS[k % len(DOFS)]
    shape = (3, max(work.least, 5 if work.mode == "bspline" else 9), dofs)
    assert_both_right(case(work, shape, form, DTYPES[k % 2], k, STATES[k % 3]))


@pytest.mark.parametrize("work", [*WORKS, job("central", recorded=True)], ids=str)
def test_every_shape_of_dt_is_right(work):
    for k, form in enumerate(work.forms):
        assert_both_right(case(work, (2, max(work.least, 6), 3), form, "float64", k))


@pytest.mark.parametrize("dofs", [1, 3, 8, 17, 130])
def test_any_number_of_dofs_is_right(dofs):
    work = WORKS[DOFS.index(dofs) % 3] if dofs in DOFS else WORKS[0]
    assert_both_right(
        case(work, (4 if dofs > 9 else 130 // dofs, 5, dofs), "[B,1]", "float32", dofs)
    )


@pytest.mark.parametrize("horizon", [1, 2, 13])
def test_any_number_of_actions_is_right(horizon):
    works = [WORKS[horizon % 4], job("clique", recorded=True), job("central", alignment="curobo")]
    for work in works:
        assert_both_right(case(work, (2, horizon, 2), work.forms[-1], "float32", horizon))


@pytest.mark.parametrize("seed", range(4))
def test_bands_of_any_form_are_right(seed):
    assert_both_right(random_band(seed))


@pytest.mark.parametrize("seed", [7, 18])  # of shared and own stamps
def test_windows_of_any_rows_are_fitted(seed):
    assert_both_right(random_fit(seed))


SINGLE_POINTS = Band(
    used=12,
    steps=12,
    windows=Windows(count=14, last=13),
    width=1,
    base=(0,),
    table=np.zeros((1, 4, 0)),
    held=2,
)


@pytest.mark.parametrize(
    "sample",
    [
        case(job("central", recorded=True), (2, 23, 3), "[B,1]", "float64"),
        case(job("bspline", steps=3, ends="goal"), (2, 23, 3), "[B,1]", "float64"),
        applied(
            SINGLE_POINTS, "windows of one point", (2, 12, 3), np.full((2, 1), 0.1),
            "float64", "own", np.random.default_rng(0),
        ),
    ],
    ids=str,
)  # fmt: skip
def test_rows_in_tiles_and_next_to_them_are_right(sample):
    """More windows than one tile holds, and fewer than two hold; the last action of a band of
    single points also collects the gradients of its held copies."""
    assert_both_right(sample)


@pytest.mark.parametrize(("work", "form"), [(WORKS[0], "[B,H]"), (WORKS[2], "[B,1]")])
def test_bits_depend_on_no_neighbour(work, form):
    sample = case(work, (7, 19, 7), form, "float32")
    for way in (rows, gradients):
        assert_same_alone(way, "triton", sample)


@pytest.mark.parametrize("work", WORKS[::2], ids=str)
def test_every_result_is_the_same_without_others(work):
    sample = case(work, (1, 4, 3), "[1,1]", "float32")
    for way in (rows, gradients):
        assert_same_without_others(way, "triton", sample)


@pytest.mark.parametrize("work", WORKS, ids=str)
def test_an_index_of_no_state_gives_nan_in_its_own_trajectory(work):
    sample = case(work, (4, 5, 3), "[1,1]", "float32", 0, "indexed")
    states = [np.ones((3, 3), np.float32)] * 4
    index, clean = np.array([0, 3, 2, -1]), np.array([0, 0, 2, 2])
    operands = sample.operands._replace(start=states, start_index=index)
    result = rows("triton", replace(sample, operands=operands))
    want = rows("triton", replace(sample, operands=operands._replace(start_index=clean)))
    for a, b in zip(result, want, strict=True):
        np.testing.assert_array_equal(a[[0, 2]], b[[0, 2]])
        assert np.isnan(a[[1, 3], 0]).all()


@pytest.mark.parametrize("work", WORKS, ids=str)
def test_what_is_not_finite_stays_in_its_dof(work):
    sample = case(work, (3, 9, 3), "[1,1]", "float64")
    actions = sample.operands.actions.copy()
    actions[1, 4, 2] = np.nan
    spoilt = replace(sample, operands=sample.operands._replace(actions=actions))
    for a, b in zip(rows("triton", spoilt), rows("triton", sample), strict=True):
        others = np.ones(a.shape, bool)
        others[1, :, 2] = False
        np.testing.assert_array_equal(a[others], b[others])
        assert not np.isfinite(a[1, :, 2]).all()


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_rows_in_tiles_do_not_use_points_of_weight_zero(value):
    """Nor actions, rows that do not use them: what is finite has the bits it has without the value.
    Central differences of odd orders do not use their own row."""
    sample = case(job("central", recorded=True), (3, 23, 3), "[1,1]", "float64")
    actions = spoil(sample.operands.actions, value)
    spoilt = replace(sample, operands=sample.operands._replace(actions=actions))
    want = [np.isfinite(x) for x in rows("torch", spoilt)]
    assert_finite_as(want, rows("triton", spoilt), rows("triton", sample))
    for m in range(4):
        upstream = list(sample.upstream)
        upstream[m] = spoil(upstream[m], value)
        spoilt = replace(sample, upstream=upstream)
        want = [np.isfinite(x) for x in gradients("torch", spoilt)]
        assert not want[0].all()
        assert_finite_as(want, gradients("triton", spoilt), gradients("triton", sample))


def spoil(values: np.ndarray, value: float) -> np.ndarray:
    values = values.copy()
    values[1, 11, 2] = value
    return values


def assert_finite_as(want: Any, spoilt: Any, clean: Any) -> None:
    for finite, a, b in zip(want, spoilt, clean, strict=True):
        np.testing.assert_array_equal(np.isfinite(a), finite)
        np.testing.assert_array_equal(a[finite], b[finite])


def test_values_near_the_largest_are_points_as_they_are():
    sample = case(job("central"), (1, 27, 1), "[1,1]", "float64")
    actions = sample.operands.actions.copy()
    actions[0, 13:15, 0] = 1.5e308, -1.5e308
    sample = replace(sample, operands=sample.operands._replace(actions=actions))
    (position, *_) = rows("triton", sample, (True, False, False, False))
    np.testing.assert_array_equal(position[0, 1:], actions[0])


@pytest.mark.skipif(cuda.count() > 0, reason="the views are in the memory of the CPU")
@pytest.mark.parametrize("work", [*WORKS[:3], job("clique", recorded=True)], ids=str)
def test_views_of_any_kind_change_no_bit(work):
    assert_same_from_views(work, "triton", random.Random(str(work)), (3, max(work.least, 4), 3))


def test_a_probe_that_works_says_nothing():
    triton_ops.probe("cuda" if cuda.count() else "cpu")


@pytest.mark.parametrize(
    "work",
    [job("acceleration", alignment="curobo"), job("central"), job("bspline", steps=2)],
    ids=str,
)
def test_later_calls_have_the_bits_of_the_first(work):
    """Which are prepared, wherever in memory their tensors begin."""
    device = "cuda" if cuda.count() else "cpu"
    _prepared._cache.calls.clear()

    def drawn(*shape: int) -> torch.Tensor:
        flat = torch.randn(torch.Size(shape).numel() + 1, device=device)
        return flat[draw.randrange(2) :][: flat.numel() - 1].view(shape)

    for k in range(4):
        draw = random.Random(k)
        actions, dt = drawn(3, 5, 2).requires_grad_(), 0.1 + k // 2
        # one part for all trajectories beside those for each
        parts = [drawn(*shape).requires_grad_() for shape in ((3, 2), (2,), (3, 2), (3, 2))]
        results = []
        for fresh in (False, True):
            if fresh:
                calls = dict(_prepared._cache.calls)
                _prepared._cache.calls.clear()
            result = work.trajectory(actions, State(*parts), dt, backend="triton")
            torch.manual_seed(k)
            grads = [torch.randn_like(x) for x in result]
            pulled = torch.autograd.grad(list(result), [actions, *parts], grads)
            results.append([*result, result.time, *pulled])
        _prepared._cache.calls = calls
        for a, b in zip(*results, strict=True):
            assert torch.equal(a, b)
    assert len(calls) == 1
    actions.data[1, 2] = float("nan")
    with pytest.raises(InputError, match="NaN or Inf"):
        work.trajectory(actions, State(*parts), dt, backend="triton")


def test_a_prepared_call_keeps_no_tensor_of_a_backward_pass():
    device = "cuda" if cuda.count() else "cpu"
    actions = torch.randn(4, 5, 8, device=device, requires_grad=True)
    for work in (job("acceleration"), job("central")):
        for _ in range(2):  # the second is the first that is prepared
            result = work.trajectory(actions, "zero", 0.1, backend="triton")
            upstream = [torch.ones_like(x) for x in result]
            (gradient,) = torch.autograd.grad(list(result), actions, upstream)
        alive = [weakref.ref(x) for x in (gradient, *upstream, result.position)]
        del gradient, upstream, result
        # a device's thread of the backward pass lets go a moment after the caller goes on
        until = time.monotonic() + 10.0
        while any(x() is not None for x in alive) and time.monotonic() < until:
            time.sleep(0.001)
        assert [x() is None for x in alive] == [True] * 6


def test_what_a_graph_captures_is_not_prepared(monkeypatch):
    device = "cuda" if cuda.count() else "cpu"
    actions = torch.randn(2, 5, 2, device=device)
    arrays = _prepared.Arrays(actions, 0.1, None, "zero")
    assert _prepared.kinds_of(arrays) is not None
    monkeypatch.setattr(_prepared, "is_capturing", lambda device: True)
    assert _prepared.kinds_of(arrays) is None
