"""What traces operations, or imitates them on tensors without values, gets a function of its inputs
or an error: never what lay in memory, nor the numbers of the call that was traced.

Functions of few operations are traced by make_fx, one of them by all; each by every tracer with

    TRAJCLI_CALLS=2 pytest tests/autograd/test_traced.py
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

import trajcli
from trajcli import State, _prepared, rotations
from trajcli.errors import TrajcliError
from trajcli.modes import MODES

ALL = int(os.environ.get("TRAJCLI_CALLS") or 1) > 1
F64 = torch.float64
STAMPS = np.array([0.0, 0.1, 0.25, 0.3, 0.42, 0.5])
Function = Callable[..., Any]


def drawn(inputs: str, seed: int) -> list[Tensor]:
    """Tensors by letters: actions, states, stamps, quaternions, rates."""
    random = torch.Generator().manual_seed(seed)
    shapes = {"u": (2, 6, 2), "s": (2, 2), "t": (6,), "q": (1, 6, 4), "w": (1, 6, 3)}
    tensors = []
    for letter in inputs:
        x = torch.rand(shapes[letter], generator=random, dtype=F64)
        x = x / 5 + torch.eye(4, dtype=F64)[0] if letter == "q" else x
        x = x / x.norm(dim=-1, keepdim=True) if letter == "q" else x
        tensors.append((x + 0.5).cumsum(0) / 9 if letter == "t" else x)
    return tensors


def tensors_of(result: Any) -> list[Tensor]:
    """All tensors of a result, that of the time among them."""
    if hasattr(result, "parts"):
        result = list(result.parts().values())
    elif hasattr(result, "goal"):
        result = [result.actions, result.start, result.goal]
    elif hasattr(result, "time"):
        result = [*result, result.time]
    parts = result if isinstance(result, (list, tuple)) else [result]
    return [
        y for x in parts if x is not None for y in ([x] if isinstance(x, Tensor) else tensors_of(x))
    ]


def gradients(work: Function, *inputs: Tensor) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in inputs]
    cost = sum((x**3).sum() for x in tensors_of(work(*leaves)) if x.requires_grad)
    return list(torch.autograd.grad(cost, leaves))


def matrices_of(t: Tensor) -> list[Tensor]:
    made = trajcli.operator(6, t, "central")
    return [made.A, made.C, made.time]


def integrated(mode: str, **options: Any) -> Function:
    return lambda u, s: trajcli.integrate(u, s, 0.1, mode, **options)


def differentiated(method: str, **options: Any) -> Function:
    return lambda u: trajcli.differentiate(u, dt=0.1, method=method, **options)


PLANNED = integrated("jerk", scheme="zoh")
FUNCTIONS: dict[str, tuple[str, Function]] = {
    **{mode: ("us", integrated(mode)) for mode in MODES if mode not in ("savgol", "smooth")},
    "steps": ("ust", lambda u, s, t: trajcli.integrate(u, s, t, "jerk")),
    "a step": ("ust", lambda u, s, t: trajcli.integrate(u, s, t[0], "clique")),
    "a goal": (
        "us",
        lambda u, s: trajcli.integrate(u, s, 0.1, "bspline", ends="goal", goal=State(s, s)),
    ),
    "an index": (
        "us",
        lambda u, s: trajcli.integrate(u, State(s, s), 0.1, start_index=np.array([1, 1])),
    ),
    "float32": ("u", lambda u: trajcli.integrate(u.float(), "zero", 0.1)),
    "backward": ("u", differentiated("backward")),
    "five points": ("u", differentiated("central")),
    "savgol": ("u", differentiated("savgol")),
    "smooth": ("u", lambda u: differentiated("smooth", bandlimit=2.0)(u[:, :4])),
    "stamps": ("ut", lambda u, t: trajcli.differentiate(u, times=t, method="central")),
    "sample": ("ust", lambda u, s, t: trajcli.sample(PLANNED(u, s), t / 3)),
    "resample": ("u", lambda u: trajcli.resample(u, "cubic", rate=30.0, dt=0.1)),
    "resample at": ("ut", lambda u, t: trajcli.resample(u, "linear", at=STAMPS[:3], times=t)),
    "operator": ("t", matrices_of),
    "fit": ("us", lambda u, s: trajcli.fit(u.repeat(1, 2, 1), 0.1, knots=6, start=State(s))),
    "gradients": ("us", lambda u, s: gradients(PLANNED, u, s)),
    "clip_gradient": ("u", lambda u: gradients(lambda x: trajcli.clip_gradient(x, norm=0.5), u)),
    "scale_gradient": ("u", lambda u: gradients(lambda x: trajcli.scale_gradient(x, 0.5), u)),
    "rates": ("q", lambda q: rotations.differentiate(q, dt=0.1, method="backward")),
    "turns": ("wq", lambda w, q: rotations.integrate(w, q[:, 0], 0.1, scheme="foh")),
    "slerp": ("q", lambda q: rotations.resample(q, rate=30.0, dt=0.1)),
    "squad": ("q", lambda q: rotations.resample(q, "squad", at=STAMPS[1:3], dt=0.1)),
    "compose": ("q", lambda q: rotations.compose(q[:, 1:], q[:, 0])),
    "decompose": ("q", rotations.decompose),
    "angle": ("q", lambda q: rotations.angle(q, q.flip(1))),
    "rpy": ("q", lambda q: rotations.to_quaternions(rotations.from_quaternions(q, "rpy"), "rpy")),
}
# What is chosen by values, or computed by NumPy.
REFUSED: dict[str, tuple[str, Function]] = {
    "a bandlimit": ("u", differentiated("smooth")),
    "weights": ("u", differentiated("smooth", bandlimit=2.0, robust=True)),
    "a window": ("ut", lambda u, t: trajcli.differentiate(u, times=t, method="savgol")),
    "rows": ("ut", lambda u, t: trajcli.resample(u, "cubic", rate=30.0, times=t)),
    "an error": ("u", lambda u: trajcli.fit(u, 0.01, error=10.0)),
    "times": ("ut", lambda u, t: trajcli.fit(u, times=t, knots=5)),
    "a pace": ("us", lambda u, s: trajcli.retime(PLANNED(u, s), {"velocity": 1.0})),
    "scores": ("us", lambda u, s: trajcli.score(PLANNED(u, s))),
}


class Watched(Tensor):
    """A subclass without behaviour of its own."""


def exported(work: Function, inputs: Sequence[Tensor]) -> Function:
    class Module(torch.nn.Module):
        def forward(self, *inputs: Tensor) -> list[Tensor]:
            return tensors_of(work(*inputs))

    return torch.export.export(Module(), tuple(inputs), strict=False).module()


def by_make_fx(**options: Any) -> Callable[[Function, Sequence[Tensor]], Function]:
    return lambda work, inputs: make_fx(lambda *x: tensors_of(work(*x)), **options)(*inputs)


def within(mode: Any) -> Callable[[Function, Sequence[Tensor]], Function]:
    def run(work: Function, _: Sequence[Tensor]) -> Function:
        def call(*inputs: Tensor) -> Any:
            with mode():
                return work(*inputs)

        return call

    return run


TRACERS: dict[str, Callable[[Function, Sequence[Tensor]], Function]] = {
    "make_fx": by_make_fx(),
    "subclass": lambda work, _: lambda *x: work(*(t.as_subclass(Watched) for t in x)),
    "flops": within(lambda: FlopCounterMode(display=False)),
    "before dispatch": by_make_fx(pre_dispatch=True),
    "fake": by_make_fx(tracing_mode="fake"),
    "symbolic": by_make_fx(tracing_mode="symbolic"),
    "export": exported,
}


def assert_same(found: Any, want: Any) -> None:
    for a, b in zip(tensors_of(found), tensors_of(want), strict=True):
        a = a.as_subclass(Tensor).detach()
        torch.testing.assert_close(a, b.detach(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's own, while it traces
def test_a_traced_function_equals_a_call_on_other_values(name: str) -> None:
    inputs, work = FUNCTIONS[name]
    first, other = drawn(inputs, 0), drawn(inputs, 1)
    want = work(*other)  # which keeps the call for others of these shapes
    export = ["export"] * (name in ("resample", "turns"))  # takes a second
    for tracer in TRACERS if ALL or name == "velocity" else ["make_fx", "subclass", *export]:
        assert_same(TRACERS[tracer](work, first)(*other), want)
    assert_same(work(*other), want)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tensors_without_values_give_shapes_before_and_after_a_call(name: str) -> None:
    inputs, work = FUNCTIONS[name]
    values = drawn(inputs, 0)
    _prepared._cache.calls.clear()
    mode = FakeTensorMode()
    fakes = [mode.from_tensor(x) for x in values]
    results = []
    for call in ("before", "after"):
        with mode:
            results.append(tensors_of(work(*fakes)))
        assert all(isinstance(x, FakeTensor) for x in results[-1])
        results.append(tensors_of(work(*(x.to("meta") for x in values))))
        if call == "before":
            want = tensors_of(work(*values))
    for result in results:
        assert [(x.shape, x.dtype) for x in result] == [(x.shape, x.dtype) for x in want]
    assert_same(work(*values), want)


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_is_chosen_by_values_is_refused_without_them(name: str) -> None:
    inputs, work = REFUSED[name]
    values = drawn(inputs, 0)
    mode = FakeTensorMode()
    with pytest.raises(TrajcliError, match="read"):
        TRACERS["make_fx"](work, values)
    with mode, pytest.raises(TrajcliError, match="read"):
        work(*map(mode.from_tensor, values))
    with pytest.raises(TrajcliError, match="read"):
        work(*(x.to("meta") for x in values))


def test_a_fake_tensor_outside_of_its_mode_is_refused() -> None:
    fake = FakeTensorMode().from_tensor(drawn("u", 0)[0])
    with pytest.raises(trajcli.UsageError, match="outside of its mode"):
        trajcli.integrate(fake, "zero", 0.1)


def test_a_functional_tensor_is_computed_by_operations() -> None:
    u, s = drawn("us", 0)
    want = PLANNED(u, s).position
    for _ in range(2):
        found = PLANNED(torch._to_functional_tensor(u), torch._to_functional_tensor(s)).position
        torch._sync(found)
        assert_same(torch._from_functional_tensor(found), want)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_traced_backward_pass_is_a_function_of_its_gradients() -> None:
    u, s = drawn("us", 0)
    position = PLANNED(u.requires_grad_(), s).position

    def pull_back(upstream: Tensor) -> Tensor:
        return torch.autograd.grad(position, u, upstream, retain_graph=True)[0]

    first, other = torch.randn(2, *position.shape, dtype=F64)
    assert_same(make_fx(pull_back)(first)(other), pull_back(other))
