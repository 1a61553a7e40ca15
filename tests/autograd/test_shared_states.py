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
    from trajcli.autograd.folding import gathered, returned

    own = gathered(part, index)
    assert torch.isnan(own[1:3]).all()
    assert own[[0, 3]].tolist() == [[0, 1], [4, 5]]
    back = returned(torch.ones(4, 2), index, part)
    assert back.tolist() == [[1, 1], [0, 0], [1, 1]]
