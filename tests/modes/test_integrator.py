"""prepare(): what it returns integrates as integrate does, whatever it is called with."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

import trajcli

RNG = np.random.default_rng(7)
SHAPE = B, H, D = 3, 12, 2
ACTIONS = RNG.normal(size=SHAPE)
STATE, GOAL = RNG.normal(size=(2, B, D))
MODES: list[tuple[str, dict[str, Any]]] = [
    ("acceleration", {"dt": 0.1}),
    ("jerk", {"dt": np.linspace(0.1, 0.2, H), "scheme": "zoh", "dtype": "float64"}),
    ("velocity", {"times": np.linspace(0, 2, H + 1) ** 2, "alignment": "actions"}),
    ("velocity", {"times": np.linspace(0, 2, H)}),
    ("central", {"dt": 0.1, "ends": "goal", "goal": GOAL, "write": ["position", "jerk"]}),
    ("bspline", {"dt": 0.1, "degree": 5, "steps": 2}),
    ("teleport", {"dt": 0.1, "start_index": np.array([2, 0, 0])}),
    ("clique", {"dt": 0.1, "lengths": [12, 3, 5]}),
    ("clique", {"dt": 0.1, "commands": "delta", "absolute": [1]}),
    ("position", {"dt": 0.1, "backend": "torch", "allow_nonfinite": True}),
]
KINDS = {
    "float64": lambda x: x,
    "float32": lambda x: x.astype(np.float32),
    "integers": lambda x: (10 * x).astype(int),
    "strided": lambda x: np.repeat(x, 2, -1)[..., ::2],
    "a tensor": torch.tensor,
    "a half tensor": lambda x: torch.tensor(x).bfloat16(),
    "with a gradient": lambda x: torch.tensor(x, requires_grad=True),
    "in another order": lambda x: torch.tensor(x).mT.contiguous().mT,
}


def require_same(made: Any, want: Any) -> None:
    assert (made.mode, made.options.keys()) == (want.mode, want.options.keys())
    for a, b in zip((*made, made.time), (*want, want.time), strict=True):
        assert type(a) is type(b)
        if a is not None:
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_array_equal(*(torch.as_tensor(x).detach().numpy() for x in (a, b)))
            assert getattr(a, "requires_grad", False) == getattr(b, "requires_grad", False)


@pytest.mark.parametrize(("mode", "options"), MODES)
def test_arrays_may_change_their_type_and_layout_from_call_to_call(
    mode: str, options: dict[str, Any]
) -> None:
    integrator = trajcli.prepare(SHAPE, mode, **options)
    for _ in range(3):
        for convert in KINDS.values():
            for _ in range(3):
                inputs = convert(ACTIONS), trajcli.State(STATE, STATE)
                require_same(integrator(*inputs), trajcli.integrate(*inputs, mode=mode, **options))
    with torch.no_grad():
        actions = torch.tensor(ACTIONS, requires_grad=True)
        assert not integrator(actions, STATE).outputs()["position"].requires_grad


def test_gradients_are_those_of_integrate() -> None:
    integrator = trajcli.prepare(SHAPE, "jerk", dt=0.1)
    found = []
    for call in (integrator, integrator, lambda u, s: trajcli.integrate(u, s, 0.1, "jerk")):
        actions, start = (torch.tensor(x, requires_grad=True) for x in (ACTIONS, STATE))
        call(actions, start).position.square().sum().backward()
        found.append((actions.grad, start.grad))
    for grads in found[:2]:
        for a, b in zip(grads, found[2], strict=True):
            assert torch.equal(a, b)


def test_dt_and_goal_may_be_told_at_the_call() -> None:
    integrator = trajcli.prepare(SHAPE, "central", dt=0.1, ends="goal", goal=GOAL)
    for dt, goal in ((None, None), (0.2, None), (None, STATE), (np.full((B, 1), 0.3), STATE)):
        for _ in range(3):
            made = integrator(ACTIONS, "zero", dt, goal=goal)
            want = trajcli.integrate(
                ACTIONS, "zero", 0.1 if dt is None else dt, "central", ends="goal",
                goal=GOAL if goal is None else goal,
            )  # fmt: skip
            require_same(made, want)
    stamped = trajcli.prepare(SHAPE, times=np.linspace(0, 1, H + 1) ** 2)
    require_same(stamped(ACTIONS, "zero", 0.1), trajcli.integrate(ACTIONS, "zero", 0.1))


def test_outputs_may_be_written_into_a_trajectory() -> None:
    integrator = trajcli.prepare((H, D), dt=0.1)
    out = integrator(ACTIONS[0], "zero")
    for k in range(3):
        assert integrator(ACTIONS[k], "zero", out=out) is out
        require_same(out, trajcli.integrate(ACTIONS[k], "zero", 0.1))


def test_threads_share_an_integrator() -> None:
    integrator = trajcli.prepare(SHAPE, "jerk", dt=0.1)

    def right(seed: int) -> bool:
        actions = np.random.default_rng(seed % 7).normal(size=SHAPE)
        actions = actions.astype([np.float32, np.float64][seed % 2])
        want = trajcli.integrate(actions, "zero", 0.1, "jerk")
        return all(
            np.array_equal(x, y) for x, y in zip(integrator(actions, "zero"), want, strict=True)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(right, range(400)))
    integrator(ACTIONS, "zero")
    integrator(ACTIONS, "zero")
    with ThreadPoolExecutor(1) as pool:  # a call serves one thread at a time
        assert integrator._recent.call is not None
        assert pool.submit(lambda: integrator._recent.call).result() is None


def test_torch_compile_takes_it_for_integrate() -> None:
    integrator = trajcli.prepare(SHAPE, "jerk", dt=0.1)
    compiled = torch.compile(lambda u: integrator(u, "zero").position * 2.0, backend="eager")
    actions = torch.tensor(ACTIONS)
    for _ in range(2):
        assert torch.equal(compiled(actions), integrator(actions, "zero").position * 2.0)


def test_vmap_and_forward_mode_go_through_it() -> None:
    integrator = trajcli.prepare(SHAPE, "jerk", dt=0.1)
    actions = torch.tensor(ACTIONS)
    integrator(actions, "zero")
    integrator(actions, "zero")
    _, tangent = torch.func.jvp(lambda u: integrator(u, "zero").position, (actions,), (actions,))
    assert torch.allclose(tangent, integrator(actions, "zero").position)
    many = torch.func.vmap(lambda u: integrator(u, "zero").position)(actions[None])
    assert torch.allclose(many[0], integrator(actions, "zero").position)


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor])
def test_actions_of_another_shape_are_refused(convert: Any) -> None:
    integrator = trajcli.prepare(SHAPE, dt=0.1)
    for shape in (SHAPE, (4, H, D), SHAPE, (H, D)):
        if shape == SHAPE:
            integrator(convert(ACTIONS), "zero")
            continue
        with pytest.raises(trajcli.InputError) as error:
            integrator(convert(np.ones(shape)), "zero")
        assert error.value.faults[0].where == "actions"


@pytest.mark.parametrize(
    ("shape", "options", "where"),
    [
        (SHAPE, {"mode": "jrk"}, "mode"),
        (SHAPE, {"scheme": "rk4"}, "scheme"),
        (SHAPE, {"mode": "teleport", "scheme": "zoh"}, "scheme"),
        (SHAPE, {"start": STATE}, "option"),
        (SHAPE, {"write": "positions"}, "write"),
        ((7,), {}, "shape"),
    ],
)
def test_wrong_options_are_refused_before_the_first_call(
    shape: Any, options: dict[str, Any], where: str
) -> None:
    with pytest.raises((trajcli.UsageError, trajcli.InputError)) as error:
        trajcli.prepare(shape, **options)
    assert error.value.faults[0].where == where


def test_it_shows_what_it_was_told() -> None:
    assert (
        repr(trajcli.prepare(SHAPE, "central", dt=0.1, ends="goal", goal=GOAL))
        == "Integrator([3, 12, 2], mode='central', dt=0.1, ends='goal', goal=[3, 2])"
    )


def test_what_integrate_refuses_is_refused_when_it_is_prepared() -> None:
    for shape in (5, None, (1, 2, 3, 4)):
        with pytest.raises(trajcli.InputError, match="shape: wrong shape"):
            trajcli.prepare(shape, dt=0.1)  # type: ignore[call-overload]
    with pytest.raises(trajcli.UsageError, match="write: unknown output"):
        trajcli.prepare((1, 5, 2), dt=0.1, write=None)  # type: ignore[call-overload]


def test_it_goes_with_models_and_to_other_processes() -> None:
    integrator = trajcli.prepare((1, 5, 2), "jerk", dt=0.1, scheme="zoh", write="position")
    actions = np.ones((1, 5, 2))
    want = integrator(actions, "zero")
    for made in (copy.deepcopy(integrator), pickle.loads(pickle.dumps(integrator))):
        assert made(actions, "zero") == want
