"""States that several trajectories share by an index, taken by the kernels and not before them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from trajcli.autograd import run_differentiable
from trajcli.inputs import Inputs
from trajcli.kernels import torch_ops
from trajcli.modes import PARTS, make_mode

START, GOAL = [2, 0, 2, 2], [1, 1, 0, 1]
CASES: list[tuple[str, dict[str, Any], bool]] = [
    ("jerk", {"scheme": "foh"}, False),
    ("acceleration", {"frames": "actions"}, False),
    ("clique", {}, False),
    ("teleport", {}, False),
    ("central", {}, False),
    ("central", {"ends": "goal"}, True),
    ("bspline", {"degree": 4, "ends": "goal"}, True),
    ("bspline", {"degree": 5, "steps": 2}, False),
]


def problem(mode: str, options: dict[str, Any], has_goal: bool) -> Any:
    """A function of actions, start and goal states and dt, and such; taken: by the kernels."""
    made = make_mode(mode, **options)
    torch.manual_seed(0)
    parts = 1 if mode == "central" else 4
    start = torch.randn(4, 3, 2, dtype=torch.float64)
    goal = torch.randn(parts, 2, 2, dtype=torch.float64)
    actions = torch.randn(4, 6, 2, dtype=torch.float64)
    dt = torch.rand(4, 1, dtype=torch.float64) + 0.5
    weights = torch.randn(4, 4, 40, 2, dtype=torch.float64)

    def value(taken: bool) -> Callable[..., Tensor]:
        def loss(actions: Tensor, start: Tensor, goal: Tensor, dt: Tensor) -> Tensor:
            inputs = Inputs(
                mode=made,
                actions=actions,
                start=dict(zip(PARTS, start, strict=True)),
                goal=dict(zip(PARTS, goal, strict=False)) if has_goal else {},
                dt=dt,
                start_index=torch.tensor(START),
                goal_index=torch.tensor(GOAL) if has_goal else None,
            )
            program = inputs.program("cpu", gathers=taken)
            rows = run_differentiable(program, torch_ops, torch.float64)
            pairs = zip(rows, weights, strict=True)
            return sum((torch.sin(x) * w[:, : x.shape[1]]).sum() for x, w in pairs)  # type: ignore[return-value]

        return loss

    return value(True), value(False), (actions, start, goal, dt)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1]}")
def test_gradients_are_those_of_states_gathered_before(case: Any) -> None:
    taken, gathered, given = problem(*case)

    def compare(found: Any, want: Any) -> None:
        for a, b in zip(found, want, strict=True):
            if b is None:
                assert a is None
            else:
                torch.testing.assert_close(
                    a, b, rtol=1e-10, atol=1e-12 * float(b.detach().abs().max() + 1)
                )

    def reverse(loss: Any) -> Any:
        leaves = [x.clone().requires_grad_() for x in given]
        first = torch.autograd.grad(loss(*leaves), leaves, create_graph=True, allow_unused=True)
        total = sum((g * torch.cos(g)).sum() for g in first if g is not None)
        return [*first, *torch.autograd.grad(total, leaves, allow_unused=True)]  # type: ignore[arg-type]

    def forward(loss: Any) -> Any:
        tangents = tuple(
            torch.randn(x.shape, generator=torch.manual_seed(1)).double() for x in given
        )
        value, slope = torch.func.jvp(loss, given, tangents)
        gradients = torch.func.grad(loss, (0, 1, 2, 3))
        _, curvature = torch.func.jvp(gradients, given, tangents)
        return [value, slope, *curvature]

    def mapped(loss: Any) -> Any:
        many = [torch.stack([x, x + 0.1]) for x in given]
        over = torch.func.vmap(torch.func.grad(loss, (0, 1, 2, 3)))(*many)
        starts = torch.func.vmap(loss, (None, 0, None, None))(given[0], many[1], *given[2:])
        return [*over, starts]

    compare(reverse(taken), reverse(gathered))
    compare(forward(taken), forward(gathered))
    compare(mapped(taken), mapped(gathered))


def test_a_state_that_is_not_there_is_nan_where_nobody_looked() -> None:
    index = torch.tensor([0, 5, -1, 2])
    part = torch.arange(6.0).reshape(3, 2).requires_grad_()
    from trajcli.autograd.states import each_own, gathered, returned

    own = gathered(part, index)
    assert torch.isnan(own[1:3]).all()
    assert own[[0, 3]].tolist() == [[0, 1], [4, 5]]
    mapped = each_own(part.detach(), None, torch.stack([index, index]), 0, 2)
    assert torch.equal(torch.isnan(mapped[1]), torch.isnan(own))
    back = returned(torch.ones(4, 2), index, part)
    assert back.tolist() == [[1, 1], [0, 0], [1, 1]]


@pytest.mark.parametrize("mode", ["jerk", "teleport", "central", "bspline"])
@pytest.mark.parametrize("shared", ["one for all", "by an index"])
def test_gradients_of_a_shared_state_are_summed_before_they_are_rounded(
    mode: str, shared: str
) -> None:
    torch.manual_seed(0)
    count, actions = 2000, torch.randn(2000, 5, 1)
    one = torch.randn(1, 1).requires_grad_()
    index = None if shared == "one for all" else torch.zeros(count, dtype=torch.int64)
    states = one if index is None else torch.cat([one, torch.zeros(1, 1)])
    weight = torch.randn(count, 20, 1)

    def gradient(kind: torch.dtype) -> Tensor:
        inputs = Inputs(
            mode=make_mode(mode),
            actions=actions.to(kind),
            start={"position": states.to(kind)},
            goal={},
            dt=torch.tensor(0.5),
            start_index=index,
        )
        rows = run_differentiable(inputs.program("cpu", gathers=True), torch_ops, kind)[0]
        (found,) = torch.autograd.grad((rows * weight[:, : rows.shape[1]].to(kind)).sum(), one)
        return found

    found = gradient(torch.float32).double()
    want = gradient(torch.float64).double()
    assert abs(float(found - want)) <= 2e-7 * float(want.abs())


def test_forward_mode_of_teleport_takes_states_by_their_index() -> None:
    actions, states = torch.randn(2, 3, 1), torch.randn(3, 1)

    def rows(actions: Tensor, dt: Tensor) -> Tensor:
        inputs = Inputs(
            mode=make_mode("teleport"),
            actions=actions,
            start={"position": states},
            goal={},
            dt=dt,
            start_index=torch.tensor([1, 0]),
            trusted=True,
        )
        program = inputs.program("cpu", gathers=True)
        return run_differentiable(program, torch_ops, torch.float32)[0]

    of_actions, of_dt = torch.func.jacfwd(rows, (0, 1))(actions, torch.tensor(0.3))
    assert float(of_actions.sum()) == actions.numel()
    assert float(of_dt.abs().sum()) == 0
