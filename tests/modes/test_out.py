"""integrate(out=...): the kernels write into the caller's arrays, and no others are made."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import trajcli

RNG = np.random.default_rng(5)
ACTIONS = RNG.normal(size=(3, 8, 2))
LIBRARIES = {"numpy": np.asarray, "torch": torch.as_tensor}


def address(x: Any) -> int:
    return x.ctypes.data if isinstance(x, np.ndarray) else x.data_ptr()


@pytest.mark.parametrize("convert", LIBRARIES.values(), ids=LIBRARIES)
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("mode", ["jerk", "central", "bspline"])
@pytest.mark.parametrize("dt", [0.1, np.full((3, 1), 0.1) * [[1], [2], [3]]])
def test_kernels_write_into_the_arrays_of_the_caller(
    mode: str, kind: Any, dt: Any, convert: Any
) -> None:
    actions = convert((10 * ACTIONS).astype(kind))
    want = trajcli.integrate(actions, "zero", dt, mode)
    fields = [np.full(x.shape, np.nan, str(x.dtype).split(".")[-1]) for x in (*want, want.time)]
    out = trajcli.Trajectory(*map(convert, fields))
    addresses = [address(x) for x in (*out, out.time)]
    for _ in range(2):
        assert trajcli.integrate(actions, "zero", dt, mode, out=out) is out
        assert [address(x) for x in (*out, out.time)] == addresses
        for x, y in zip((*out, out.time), (*want, want.time), strict=True):
            np.testing.assert_array_equal(np.asarray(x), np.asarray(y))
            np.asarray(x)[...] = np.nan
    assert (out.mode, dict(out.options)) == (want.mode, dict(want.options))


def test_no_other_memory_of_the_size_of_an_output_is_taken() -> None:
    actions = RNG.normal(size=(64, 100, 7))
    out = trajcli.integrate(actions, "zero", 0.1)
    trajcli.integrate(actions, "zero", 0.1, out=out)
    tracemalloc.start()
    trajcli.integrate(actions, "zero", 0.1, out=out)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < out.position.nbytes / 10


def test_outputs_that_are_not_wanted_are_none_in_out() -> None:
    some = trajcli.integrate(ACTIONS, "zero", 0.1, write="position")
    assert trajcli.integrate(ACTIONS + 1, "zero", 0.1, write="position", out=some) is some
    np.testing.assert_array_equal(
        some.position, trajcli.integrate(ACTIONS + 1, "zero", 0.1).position
    )
    with pytest.raises(trajcli.InputError) as error:
        trajcli.integrate(ACTIONS, "zero", 0.1, out=some)
    assert [x.where for x in error.value.faults] == [
        "out.velocity", "out.acceleration", "out.jerk",
    ]  # fmt: skip


@pytest.mark.parametrize("convert", LIBRARIES.values(), ids=LIBRARIES)
@pytest.mark.parametrize(
    "change",
    [
        lambda x: x[:2],
        lambda x: x[:, :8],
        lambda x: np.asarray(x, np.float32) if isinstance(x, np.ndarray) else x.float(),
        lambda x: torch.as_tensor(x) if isinstance(x, np.ndarray) else x.numpy(),
        lambda x: np.asfortranarray(x) if isinstance(x, np.ndarray) else x.mT.contiguous().mT,
        lambda x: x.tolist(),
    ],
)
def test_other_arrays_are_refused(change: Any, convert: Any) -> None:
    made = trajcli.integrate(convert(ACTIONS), "zero", 0.1)
    out = replace(made, position=change(made.position))
    if isinstance(out.position, list):
        out = replace(made, position=None)
    with pytest.raises(trajcli.InputError) as error:
        trajcli.integrate(convert(ACTIONS), "zero", 0.1, out=out)
    assert [x.where for x in error.value.faults] == ["out.position"]


def test_gradients_are_not_lost_in_silence() -> None:
    actions = torch.tensor(ACTIONS, requires_grad=True)
    with torch.no_grad():
        out = trajcli.integrate(actions, "zero", 0.1)
        assert trajcli.integrate(actions, "zero", 0.1, out=out) is out
    with pytest.raises(trajcli.UsageError, match="gradient"):
        trajcli.integrate(actions, "zero", 0.1, out=out)
    with pytest.raises(trajcli.UsageError, match="out="):
        torch.func.vmap(lambda u: trajcli.integrate(u, "zero", 0.1, out=out).position)(
            torch.tensor(ACTIONS)[None]
        )
    with pytest.raises(trajcli.UsageError, match="lengths"):
        trajcli.integrate(ACTIONS, "zero", 0.1, lengths=[1, 2, 3], out=out)
    with pytest.raises(trajcli.InputError, match="not a Trajectory"):
        trajcli.integrate(ACTIONS, "zero", 0.1, out=ACTIONS)


@pytest.mark.parametrize("convert", LIBRARIES.values(), ids=LIBRARIES)
def test_states_that_lie_in_out_are_read_before_it_is_written(convert: Any) -> None:
    actions, number = convert(RNG.normal(size=(500, 6, 2))), convert(np.arange(500)[::-1].copy())
    for row, index in ((0, None), (slice(None), None), (slice(None), number)):
        plan = trajcli.integrate(actions, "zero", 0.1)
        start = plan.position[row, -1]
        want = trajcli.integrate(actions, start + 0, 0.1, start_index=index)
        assert trajcli.integrate(actions, start, 0.1, start_index=index, out=plan) == want


def test_writing_to_what_a_backward_pass_keeps_is_an_error() -> None:
    plan = trajcli.integrate(torch.from_numpy(ACTIONS), "zero", 0.1)
    cost = (torch.ones(3, 9, 2, dtype=torch.float64, requires_grad=True) * plan.position).sum()
    trajcli.integrate(torch.from_numpy(2 * ACTIONS), "zero", 0.1, out=plan)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        cost.backward()
