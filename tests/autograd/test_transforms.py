"""Every transform of torch.func gives what plain autograd gives, on the first call and on later
ones, whatever dt is.

Calls are drawn at random from a fixed seed. For others, and more of them:

    TRAJCLI_SEED=7 TRAJCLI_CALLS=100 pytest tests/autograd/test_transforms.py
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from kernels.cases import BANDS, CASCADES, Job
from torch import Tensor, func
from torch.autograd import forward_ad

import trajcli
from trajcli import State, UsageError, _prepared, resample
from trajcli.arrays import readable
from trajcli.kernels import native
from trajcli.kernels.torch_ops import _smoother

SEED = int(os.environ.get("TRAJCLI_SEED") or 31)
CALLS = int(os.environ.get("TRAJCLI_CALLS") or 1)
"""Of each transform with each kind of dt."""

Function = Callable[[Tensor], Any]


# -- each transform, and the same by plain autograd ------------------------------------------


def cost(rows: Function) -> Function:
    return lambda u: sum((k + x).square().sum() for k, x in enumerate(rows(u)))


def gradient(rows: Function, u: Tensor) -> Tensor:
    leaf = u.clone().requires_grad_()
    (grad,) = torch.autograd.grad(cost(rows)(leaf), leaf)
    return grad


def jacobian(rows: Function, u: Tensor) -> Any:
    return torch.autograd.functional.jacobian(rows, u)


def pushed(rows: Function, u: Tensor) -> list[Tensor]:
    """The change of the rows in the direction of u."""
    return [(x * u).sum(tuple(range(-u.ndim, 0))) for x in jacobian(rows, u)]


def dual(rows: Function, u: Tensor) -> list[Tensor]:
    with forward_ad.dual_level():
        pairs = [forward_ad.unpack_dual(x) for x in rows(forward_ad.make_dual(u, u))]
        return [torch.zeros_like(x) if tangent is None else tangent for x, tangent in pairs]


def pull_back(rows: Function, u: Tensor) -> Tensor:
    values, pull = func.vjp(rows, u)
    (grad,) = pull(tuple(2 * (k + x) for k, x in enumerate(values)))
    return grad  # that of the cost


def many(u: Tensor) -> Tensor:
    return torch.stack([u, 2 * u, -u])


def mapped(rows: Function, u: Tensor) -> list[Tensor]:
    return list(map(torch.stack, zip(*(rows(x) for x in many(u)), strict=True)))


TRANSFORMS: dict[
    str, tuple[Callable[[Function, Tensor], Any], Callable[[Function, Tensor], Any]]
] = {
    "grad": (lambda rows, u: func.grad(cost(rows))(u), gradient),
    "grad_and_value": (
        lambda rows, u: func.grad_and_value(cost(rows))(u),
        lambda rows, u: (gradient(rows, u), cost(rows)(u)),
    ),
    "vjp": (pull_back, gradient),
    "jvp": (lambda rows, u: func.jvp(rows, (u,), (u,))[1], pushed),
    "linearize": (lambda rows, u: func.linearize(rows, u)[1](u), pushed),
    "forward mode": (dual, pushed),
    "jacrev": (lambda rows, u: func.jacrev(rows)(u), jacobian),
    "jacfwd": (lambda rows, u: func.jacfwd(rows)(u), jacobian),
    "hessian": (
        lambda rows, u: func.hessian(cost(rows))(u),
        lambda rows, u: torch.autograd.functional.hessian(cost(rows), u),
    ),
    "vmap": (lambda rows, u: func.vmap(rows)(many(u)), mapped),
    "vmap of grad": (
        lambda rows, u: func.vmap(func.grad(cost(rows)))(many(u)),
        lambda rows, u: torch.stack([gradient(rows, x) for x in many(u)]),
    ),
    "functionalize": (lambda rows, u: func.functionalize(rows)(u), lambda rows, u: rows(u)),
}


# -- calls -----------------------------------------------------------------------------------


def drawn_call(
    draw: random.Random, works: Sequence[Job], form: str
) -> tuple[str, Function, Tensor]:
    """A mode with random options and inputs, as a function of its actions [B, H, D] or [H, D]."""
    work = draw.choice([x for x in works if form not in ("[H]", "times") or "[1,H]" in x.forms])
    options: dict[str, Any] = {}
    shape = (draw.randint(1, 3), max(draw.randint(1, 4), work.least), draw.randint(1, 2))
    dtype = torch.float64
    torch.manual_seed(draw.randrange(2**31))
    goals = 0 if ("ends", "goal") not in work.options else 1 if work.mode == "central" else 4
    start, goal = ([torch.randn(shape[0], shape[2], dtype=dtype) for _ in range(4)] for _ in "sg")
    steps = shape[1] - work.recorded
    dt: Any = draw.uniform(0.5, 1.5)
    if form == "times":
        options["times"] = torch.cat([torch.zeros(1), torch.rand(steps) + 0.5]).cumsum(0)
        dt = None
    elif form != "number":
        kind = torch.float64 if draw.random() < 0.5 else torch.float32
        shapes = {"[]": (), "[H]": (max(steps, 1),), "[B,1]": (shape[0], 1)}
        dt = torch.rand(shapes[form], dtype=kind) + 0.5
    if goals:
        options["goal"] = State(*goal[:goals])
    state = draw.choice(("zero", start[0][0], State(*start)))
    if isinstance(state, State) and not work.recorded and draw.random() < 0.5:
        options["start_index"] = torch.randint(0, shape[0], shape[:1])
    u = torch.randn(shape, dtype=dtype)
    if shape[0] == 1 and draw.random() < 0.5:
        u = u[0]

    def rows(u: Tensor) -> tuple[Tensor, ...]:
        return tuple(work.trajectory(u, state, dt, **options))

    return f"{work} {tuple(u.shape)}", rows, u


@pytest.mark.parametrize(
    ("name", "form"),
    [
        (name, form)
        for name in TRANSFORMS
        for form in ("number", "[]", "[H]", "[B,1]", "times")
        if name != "linearize" or form == "times"  # linearize traces for seconds
    ],
)
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning")  # linearize
def test_transforms_give_what_plain_autograd_gives(name: str, form: str) -> None:
    transform, plain = TRANSFORMS[name]
    draw = random.Random(f"{SEED} {name} {form}")
    # linearize traces for seconds what has many operations
    works = CASCADES if name == "linearize" else [*CASCADES, *CASCADES, *BANDS]
    for k in range(CALLS):
        note, rows, u = drawn_call(draw, works, form)
        _prepared._cache.calls.clear()
        first = transform(rows, u)
        want = plain(rows, u)  # caches the call
        for result in (first, transform(rows, u), transform(rows, u)):
            for a, b in zip(_tensors(result), _tensors(want), strict=True):
                size = float(b.abs().max()) if b.numel() else 0.0
                assert torch.allclose(a, b, rtol=1e-9, atol=1e-9 * size), f"call {k}: {note}"


@pytest.mark.skipif(bool(native.absence()), reason="no compiled kernels")
@pytest.mark.parametrize(
    "name", [x for x in TRANSFORMS if x != "linearize"]
)  # which traces the loop
@pytest.mark.parametrize("order", [3, 4])
def test_smooth_is_transformed_without_a_loop_over_rows(
    name: str, order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    transform, plain = TRANSFORMS[name]
    u, times = torch.randn(2, 6, 2, dtype=torch.float64), np.array([0.0, 0.1, 0.2, 0.35, 0.4, 9.0])

    def rows(u: Tensor) -> tuple[Tensor, ...]:
        made = trajcli.differentiate(
            u, times=times, bandlimit=2.0, order=order, write=["velocity", "jerk"]
        )
        return made.velocity, made.jerk

    want = plain(rows, u)
    if name != "functionalize":  # which sees torch's operations alone
        monkeypatch.delattr(_smoother, "outputs")
    for a, b in zip(_tensors(transform(rows, u)), _tensors(want), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9 * float(b.abs().max()))


def _tensors(values: Any) -> list[Tensor]:
    """Those of any nesting."""
    return [values] if isinstance(values, Tensor) else [y for x in values for y in _tensors(x)]


@pytest.mark.parametrize("transformed_first", [True, False])
def test_a_call_within_a_transform_changes_none_outside(transformed_first: bool) -> None:
    u = torch.randn(2, 5, 3)
    _prepared._cache.calls.clear()
    want = trajcli.integrate(u, "zero", 0.1, "jerk").position
    _prepared._cache.calls.clear()
    for transformed in (transformed_first, not transformed_first, transformed_first):
        if transformed:
            func.grad(lambda x: trajcli.integrate(x, "zero", 0.1, "jerk").position.sum())(u)
        else:
            assert torch.equal(trajcli.integrate(u, "zero", 0.1, "jerk").position, want)


@pytest.mark.parametrize("transform", [func.grad, func.vmap, func.functionalize])
def test_values_that_torch_cannot_give_are_not_checked(transform: Any) -> None:
    """Within functionalize a tensor reads as whatever lies in memory. grad wraps values."""
    seen = []

    def work(x: Tensor) -> Tensor:
        seen.append(readable(x))
        return x.sum()

    transform(work)(torch.ones(3))
    assert seen == [transform is func.grad]


def test_a_rate_without_readable_times_is_refused_with_a_working_hint() -> None:
    u = torch.randn(2, 5, 3)

    def at_new_times(u: Tensor, **new: Any) -> Tensor:
        planned = trajcli.integrate(u, "zero", 0.1, "jerk", scheme="zoh")
        return resample(planned, **new).position.sum()

    with pytest.raises(UsageError, match="at= names the new times"):
        func.vmap(lambda x: resample(u, times=x, rate=30.0).position)(torch.arange(10.0).view(2, 5))
    assert func.grad(at_new_times)(u, at=torch.tensor([0.05, 0.3])).abs().sum() > 0


@pytest.mark.parametrize("name", [name for name in TRANSFORMS if name != "hessian"])
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning")
def test_rows_at_another_rate_are_transformed_too(name: str) -> None:
    transform, plain = TRANSFORMS[name]
    u = torch.randn(2, 5, 3, dtype=torch.float64)
    (method,) = random.Random(name).sample(["hold", "linear", "cubic"], 1)

    def rows(u: Tensor) -> tuple[Tensor, ...]:
        return tuple(x for x in resample(u, method, rate=30.0, dt=0.1) if x is not None)

    for a, b in zip(_tensors(transform(rows, u)), _tensors(plain(rows, u)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9 * float(b.abs().max()))
