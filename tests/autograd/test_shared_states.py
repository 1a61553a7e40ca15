"""States that several trajectories share: one for all, or by an index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from trajcli import State, autograd, integrate
from trajcli.kernels.program import gather_states

START, GOAL = torch.tensor([2, 0, 2, 2]), torch.tensor([1, 1, 0, 1])
CASES: list[tuple[str, dict[str, Any], bool]] = [
    ("jerk", {"scheme": "foh"}, False),
    ("acceleration", {"alignment": "actions"}, False),
    ("clique", {}, False),
    ("teleport", {}, False),
    ("central", {}, False),
    ("central", {"ends": "goal"}, True),
    ("bspline", {"degree": 4, "ends": "goal"}, True),
    ("bspline", {"degree": 5, "steps": 2}, False),
]


def problem(mode: str, options: dict[str, Any], has_goal: bool) -> Any:
    """A loss of actions, states and dt by an index, and by states gathered before; and such."""
    torch.manual_seed(0)
    parts = 1 if mode == "central" else 4
    start = torch.randn(4, 3, 2, dtype=torch.float64)
    goal = torch.randn(parts, 2, 2, dtype=torch.float64)
    actions = torch.randn(4, 6, 2, dtype=torch.float64)
    dt = torch.rand(4, 1, dtype=torch.float64) + 0.5
    weights = torch.randn(4, 4, 40, 2, dtype=torch.float64)

    def value(indexed: bool) -> Callable[..., Tensor]:
        def loss(actions: Tensor, start: Tensor, goal: Tensor, dt: Tensor) -> Tensor:
            sample = dict(options)
            if not indexed:
                start, goal = start[:, START], goal[:, GOAL]
            else:
                sample["start_index"] = START
            if has_goal:
                sample["goal"] = State(*goal)
                sample |= {"goal_index": GOAL} if indexed else {}
            rows = integrate(actions, State(*start), dt, mode, **sample)
            pairs = zip(rows, weights, strict=True)
            return sum((torch.sin(x) * w[:, : x.shape[1]]).sum() for x, w in pairs)  # type: ignore[return-value]

        return loss

    return value(True), value(False), (actions, start, goal, dt)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1]}")
def test_gradients_are_those_of_states_gathered_before(case: Any) -> None:
    indexed, gathered, sample = problem(*case)

    def compare(result: Any, want: Any) -> None:
        for a, b in zip(result, want, strict=True):
            if b is None:
                assert a is None
            else:
                torch.testing.assert_close(
                    a, b, rtol=1e-10, atol=1e-12 * float(b.detach().abs().max() + 1)
                )

    def reverse(loss: Any) -> Any:
        leaves = [x.clone().requires_grad_() for x in sample]
        first = torch.autograd.grad(loss(*leaves), leaves, create_graph=True, allow_unused=True)
        total = sum((g * torch.cos(g)).sum() for g in first if g is not None)
        return [*first, *torch.autograd.grad(total, leaves, allow_unused=True)]  # type: ignore[arg-type]

    def forward(loss: Any) -> Any:
        tangents = tuple(
            torch.randn(x.shape, generator=torch.manual_seed(1)).double() for x in sample
        )
        value, slope = torch.func.jvp(loss, sample, tangents)
        gradients = torch.func.grad(loss, (0, 1, 2, 3))
        _, curvature = torch.func.jvp(gradients, sample, tangents)
        return [value, slope, *curvature]

    def mapped(loss: Any) -> Any:
        many = [torch.stack([x, x + 0.1]) for x in sample]
        over = torch.func.vmap(torch.func.grad(loss, (0, 1, 2, 3)))(*many)
        starts = torch.func.vmap(loss, (None, 0, None, None))(sample[0], many[1], *sample[2:])
        return [*over, starts]

    compare(reverse(indexed), reverse(gathered))
    compare(forward(indexed), forward(gathered))
    compare(mapped(indexed), mapped(gathered))


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
        rows = integrate(
            actions.to(kind), State(states.to(kind)), 0.5, mode, start_index=index
        ).position
        (result,) = torch.autograd.grad((rows * weight[:, : rows.shape[1]].to(kind)).sum(), one)
        return result

    result = gradient(torch.float32).double()
    want = gradient(torch.float64).double()
    assert abs(float(result - want)) <= 2e-7 * float(want.abs())


def test_an_index_out_of_range_gives_nan_and_no_gradient() -> None:
    """As it does on a device, where its values are not checked."""
    index = torch.tensor([0, 3, 2, -1, 2])
    part, grad = torch.randn(3, 2), torch.randn(5, 2)
    states = gather_states(part, index)
    assert torch.equal(states[[0, 2, 4]], part[[0, 2, 2]])
    assert states[[1, 3]].isnan().all()
    sums = autograd._sum_shared(grad.index_fill(0, torch.tensor([1]), torch.nan), 3, index)
    assert torch.equal(sums, torch.stack([grad[0], torch.zeros(2), grad[2] + grad[4]]))
