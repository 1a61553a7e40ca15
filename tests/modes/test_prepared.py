"""A call of integrate that is like an earlier one gives what the first of its kind gives."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import random
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

import trajcli
from trajcli import State, _prepared, integrate

ACTIONS = np.random.default_rng(0).normal(size=(3, 8, 2)).astype(np.float32)
START = np.random.default_rng(1).normal(size=(3, 2)).astype(np.float32)
CASES: list[tuple[str, dict[str, Any]]] = [
    ("acceleration", {}),
    ("jerk", {"scheme": "foh"}),
    ("clique", {}),
    ("central", {}),
    ("bspline", {"degree": 4, "steps": 3}),
    ("teleport", {}),
]


def in_threads(work: Callable[[int], object], count: int) -> None:
    """Calls work(0), work(1), … in threads of their own; raises what the first of them raises."""
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))


@pytest.fixture(autouse=True)
def empty_cache() -> None:
    _prepared._cache.calls.clear()


def fresh(*arguments: Any, **options: Any) -> trajcli.Trajectory:
    _prepared._cache.calls.clear()
    result = integrate(*arguments, **options)
    _prepared._cache.calls.clear()
    return result


def assert_same(a: trajcli.Trajectory, b: trajcli.Trajectory) -> None:
    for x, y in zip([*a, a.time], [*b, b.time], strict=True):
        assert (x is None) == (y is None)
        if x is not None:
            assert x.dtype == y.dtype
            np.testing.assert_array_equal(np.asarray(x), np.asarray(y))
    assert (a.mode, a.options) == (b.mode, b.options)


@pytest.mark.parametrize(("mode", "options"), CASES)
@pytest.mark.parametrize("library", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
@pytest.mark.parametrize("start", ["state", "position", "one", "zero"])
def test_later_calls_have_the_values_of_the_first(
    mode: str, options: dict[str, Any], library: Any, start: str
) -> None:
    for k, dt in enumerate((0.02, 0.02, 0.5, 0.02)):
        actions = library(ACTIONS + np.float32(k))
        arguments: Any = {
            "state": lambda k=k: State(library(START + k), library(START * k)),
            "position": lambda k=k: library(START + k),
            "one": lambda k=k: library(START[0] + k),
            "zero": lambda: "zero",
        }[start]()
        result = integrate(actions, arguments, dt, mode, **options)
        cached = dict(_prepared._cache.calls)
        assert_same(result, fresh(actions, arguments, dt, mode, **options))
        _prepared._cache.calls = cached
    assert len(cached) == 1


@pytest.mark.parametrize("part", ["actions", "start"])
def test_nan_is_refused_in_a_later_call_as_in_the_first(part: str) -> None:
    integrate(ACTIONS, START, 0.02)
    actions, start = ACTIONS.copy(), START.copy()
    {"actions": actions, "start": start}[part][1] = np.nan
    with pytest.raises(trajcli.InputError, match="NaN or Inf"):
        integrate(actions, start, 0.02)


@pytest.mark.parametrize("dt", [0.0, -0.1, float("nan"), float("inf")])
def test_a_later_call_refuses_steps_that_are_not_positive(dt: float) -> None:
    integrate(ACTIONS, START, 0.02)
    with pytest.raises(trajcli.InputError, match="not positive and finite"):
        integrate(ACTIONS, START, dt)


@pytest.mark.parametrize("index", [-1, 3])
def test_an_index_of_no_state_is_refused_in_a_later_call(index: int) -> None:
    integrate(ACTIONS, START, 0.02, start_index=np.array([0, 1, 2]))
    with pytest.raises(trajcli.InputError, match="index out of range"):
        integrate(ACTIONS, START, 0.02, start_index=np.array([0, index, 2]))


@pytest.mark.parametrize("form", ["dt", "times"])
def test_steps_that_are_not_positive_are_refused_in_a_later_call(form: str) -> None:
    stamps = torch.arange(9.0) * 0.1
    integrate(torch.from_numpy(ACTIONS), "zero", **{form: stamps[1:] if form == "dt" else stamps})
    stamps[4] = -1.0
    with pytest.raises(trajcli.InputError, match=r"not positive|go back"):
        integrate(
            torch.from_numpy(ACTIONS), "zero", **{form: stamps[1:] if form == "dt" else stamps}
        )


def test_arrays_of_another_layout_get_a_call_of_their_own() -> None:
    integrate(ACTIONS, START, 0.02)
    turned = np.ascontiguousarray(ACTIONS.transpose(1, 0, 2)).transpose(1, 0, 2)
    for actions in (turned, ACTIONS.astype(">f4"), ACTIONS.astype(np.float16), ACTIONS[:, ::-1]):
        assert_same(integrate(actions, START, 0.02), fresh(actions, START, 0.02))


@pytest.mark.parametrize("before", [True, False], ids=["warm", "cold"])
def test_gradients_belong_to_their_call_whatever_dt_later_calls_have(before: bool) -> None:
    start = torch.from_numpy(START)
    leaves = [torch.from_numpy(ACTIONS).requires_grad_() for _ in range(2)]
    if before:
        integrate(leaves[0], start, 0.3)
    result = integrate(leaves[0], start, 0.1)
    integrate(leaves[0], start, 0.3)
    result.position.sum().backward()
    fresh(leaves[1], start, 0.1).position.sum().backward()
    assert torch.equal(leaves[0].grad, leaves[1].grad)


def test_training_may_follow_inference() -> None:
    leaf = torch.from_numpy(ACTIONS).requires_grad_()
    with torch.inference_mode():
        for _ in range(2):
            integrate(leaf, "zero", 0.1)
    integrate(leaf, "zero", 0.1).position.sum().backward()
    assert leaf.grad is not None


def test_no_array_of_a_caller_is_cached() -> None:
    actions, start = ACTIONS.copy(), START.copy()
    watched = [weakref.ref(actions), weakref.ref(start)]
    for _ in range(2):
        integrate(actions, start, 0.02)
    del actions, start
    gc.collect()
    assert [ref() for ref in watched] == [None, None]


def test_results_are_the_callers_own() -> None:
    first = integrate(ACTIONS, START, 0.02)
    second = integrate(ACTIONS, START, 0.02)
    want = copy.deepcopy(second)
    for x in (*first, first.time):
        x[...] = -1.0
    second.options["scheme"] = "other"  # type: ignore[index]
    third = integrate(ACTIONS, START, 0.02)
    assert_same(third, want)
    assert_same(pickle.loads(pickle.dumps(third)), want)
    assert third.position.flags.owndata


def test_a_full_cache_drops_its_oldest_call() -> None:
    for k in range(_prepared._CACHE_SIZE + 5):
        integrate(np.zeros((1, 1 + k, 1)), "zero", 0.02)
    shapes = [key[2][1] for key in _prepared._cache.calls]
    assert shapes == [(1, 1 + k, 1) for k in range(5, _prepared._CACHE_SIZE + 5)]


def test_threads_do_not_disturb_each_other() -> None:
    want = integrate(ACTIONS, START, 0.02).position
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(200):
            result = integrate(ACTIONS + np.float32(0), START, 0.02 if k % 2 else 0.3)
            if k % 2 and not np.array_equal(result.position, want):
                wrong.append(k)

    in_threads(work, 4)
    assert not wrong


def drawn_call(draw: random.Random) -> tuple[Any, list[Any]]:
    """A call by a backend, and the tensors by which it has gradients."""
    batch, horizon = draw.choice([(1, 6), (3, 6), (3, 9)])
    torch_too = draw.random() < 0.7
    tensors: list[Any] = []

    def array(*shape: int, low: float = -1.0, high: float = 1.0) -> Any:
        values = np.array([draw.uniform(low, high) for _ in range(math.prod(shape))])
        x = torch.from_numpy(values.reshape(shape))
        if not torch_too:
            return x.numpy()
        if draw.random() < 0.5:
            tensors.append(x.requires_grad_())
        if len(shape) > 1 and draw.random() < 0.3:  # strided
            return x.repeat_interleave(2, -1)[..., ::2]
        return x

    actions = array(batch, horizon, 2)
    form = draw.choice(["float", "int", "numpy", "()", "(h,)", "(b, 1)", "(b, h)", "times"])
    options: dict[str, Any] = {"mode": draw.choice(["acceleration", "jerk", "central"])}
    if form == "times":
        options["times"] = array(batch, horizon + 1, low=0.1, high=0.3).cumsum(1)
    elif form.startswith("("):
        sizes = {"()": (), "(h,)": (horizon,), "(b, 1)": (batch, 1), "(b, h)": (batch, horizon)}
        options["dt"] = array(*sizes[form], low=0.1, high=0.3)
    else:
        options["dt"] = {"float": draw.uniform(0.1, 0.3), "int": 1, "numpy": np.float32(0.2)}[form]
    if options["mode"] == "central" and draw.random() < 0.5:
        options |= {"ends": "goal", "goal": array(batch, 2)}
    if draw.random() < 0.3:
        options["start_index"] = np.array([draw.randrange(4) for _ in range(batch)])
    start = array(4 if "start_index" in options else batch, 2)
    return (lambda backend: integrate(actions, start, backend=backend, **options)), tensors


def test_interleaved_calls_and_late_backward_passes_agree_with_backend_torch() -> None:
    def assert_close(a: Any, b: Any) -> None:
        a, b = (x if x is None else torch.as_tensor(x).detach() for x in (a, b))
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)

    def work(seed: int) -> None:
        draw, waiting = random.Random(seed), []
        for _ in range(60):
            call, tensors = drawn_call(draw)
            made, want = ([*found, found.time] for found in map(call, (None, "torch")))
            list(map(assert_close, made, want))
            if tensors:
                waiting.append((tensors, made, want))
        draw.shuffle(waiting)
        for tensors, *calls in waiting:
            sums = [sum(x.sum() for x in found if x.requires_grad) for found in calls]
            grads = [torch.autograd.grad(x, tensors, allow_unused=True) for x in sums]
            list(map(assert_close, *grads))

    in_threads(work, 3)


@pytest.mark.parametrize("module", [np, torch])
@pytest.mark.parametrize("stamped", [False, True])
def test_a_call_keeps_no_large_steps_and_repeats_its_values(module, stamped):
    actions = np.random.default_rng(0).normal(size=(40, 300, 1))
    stamps = np.cumsum(np.random.default_rng(1).uniform(0.01, 0.1, (40, 301)), 1)
    clock = {"times": stamps} if stamped else {"dt": np.diff(stamps)}
    given = {name: module.asarray(x.copy()) for name, x in {"actions": actions, **clock}.items()}
    kept = [weakref.ref(integrate(start="zero", **given).time) for _ in range(2)]
    gc.collect()
    (call,) = _prepared._cache.calls.values()
    assert call._steps is None
    assert call._time is None
    assert not any(reference() is not None for reference in kept)
    expected = integrate(actions, "zero", **clock)
    found = integrate(start="zero", **given)
    np.testing.assert_array_equal(np.asarray(found.position), expected.position)
    np.testing.assert_array_equal(np.asarray(found.time), expected.time)
