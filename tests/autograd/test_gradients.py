"""Gradients of integrate are exact: every mode and option, every input, every way torch has."""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext

import numpy as np
import pytest
import torch
from autograd.problems import CASES, problem
from kernels.cases import Job

import trajcli
from trajcli import State

QUANTITIES = ("position", "velocity", "acceleration", "jerk")
F64 = torch.float64

IN_TURNS = [one for k, one in enumerate(CASES) if (k + k // 4) % 2 == 0]
"""Half of them: of every mode and scheme some shapes of dt, of its neighbour the others."""


def undefined(work: Job, form: str) -> bool:
    """Whether to leave out gradients of outputs in turns, which takes as long as all the rest: a
    cascade and a band show what there is to see."""
    return form == "[1,1]" and work.mode in ("jerk", "central")


@pytest.mark.parametrize(("work", "form"), CASES)
def test_first_derivatives_match_finite_differences_in_both_modes(work, form):
    outputs, inputs = problem(work, form)
    batched = (work, form) in IN_TURNS
    assert torch.autograd.gradcheck(
        outputs,
        inputs,
        check_forward_ad=True,
        check_backward_ad=True,
        check_batched_grad=batched,
        check_batched_forward_grad=batched,
        check_undefined_grad=undefined(work, form),
        fast_mode=True,
    )


@pytest.mark.parametrize(("work", "form"), IN_TURNS)
def test_second_derivatives_match_finite_differences(work, form):
    outputs, inputs = problem(work, form)
    assert torch.autograd.gradgradcheck(
        outputs,
        inputs,
        check_fwd_over_rev=True,
        check_rev_over_rev=True,
        check_batched_grad=True,
        check_undefined_grad=undefined(work, form),
        fast_mode=True,
    )


def test_time_stamps_and_row_times_carry_gradients():
    u = torch.randn(1, 4, 1, dtype=F64)
    times = torch.tensor([0.0, 0.1, 0.3, 0.4, 0.8], dtype=F64, requires_grad=True)

    def both(t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        result = trajcli.integrate(u, torch.zeros(1, dtype=F64), mode="jerk", times=t)
        return result.position, result.time

    assert torch.autograd.gradcheck(both, (times,), check_forward_ad=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_have_the_type_of_their_inputs(dtype):
    u = torch.randn(2, 5, 3, dtype=dtype, requires_grad=True)
    s = torch.randn(2, 3, dtype=dtype, requires_grad=True)
    dt = torch.tensor(0.1, dtype=dtype, requires_grad=True)
    for mode in ("jerk", "central", "bspline"):
        result = trajcli.integrate(u, s, dt, mode)
        loss = (result.position**2).sum() + (result.velocity**2).sum()
        grads = torch.autograd.grad(loss, (u, s, dt))
        for grad, x in zip(grads, (u, s, dt), strict=True):
            assert grad.dtype == dtype
            assert grad.shape == x.shape
            assert grad.abs().sum() > 0


@pytest.mark.parametrize("factor", [0.5, 0.0, -2.0, torch.tensor([1.0, -1.0, 3.0], dtype=F64)])
def test_a_gradient_factor_scales_gradients_and_nothing_else(factor):
    x = torch.randn(4, 3, dtype=F64, requires_grad=True)
    y = trajcli.scale_gradient(x, factor)
    assert torch.equal(y, x)
    (grad,) = torch.autograd.grad((y**3).sum(), x, create_graph=True)
    torch.testing.assert_close(grad, factor * 3 * x**2)
    (second,) = torch.autograd.grad(grad.sum(), x)
    torch.testing.assert_close(second, factor * factor * 6 * x)  # y's own factor counts again
    value, tangent = torch.func.jvp(
        lambda v: trajcli.scale_gradient(v, factor), (x.detach(),), (torch.ones_like(x),)
    )
    assert torch.equal(value, x)
    assert torch.equal(tangent, torch.ones_like(x))
    many = torch.randn(5, 4, 3, dtype=F64)
    mapped = torch.func.vmap(
        torch.func.grad(lambda v: (trajcli.scale_gradient(v, factor) ** 2).sum())
    )(many)
    torch.testing.assert_close(mapped, factor * 2 * many)


def test_a_gradient_factor_must_broadcast_and_require_no_gradient():
    x = torch.ones(2, 3)
    with pytest.raises(trajcli.UsageError, match="cannot require a gradient"):
        trajcli.scale_gradient(x, torch.tensor(2.0, requires_grad=True))
    with pytest.raises(trajcli.UsageError, match="broadcast"):
        trajcli.scale_gradient(x, torch.ones(4, 2, 3))


def test_gradients_are_clipped_per_trajectory_by_norm_and_by_value():
    x = torch.zeros(2, 2, requires_grad=True)
    pulled = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    for options, want in (
        ({}, pulled),
        ({"norm": 1.0}, torch.tensor([[0.6, 0.8], [0.3, 0.4]])),
        ({"value": 3.5}, torch.tensor([[3.0, 3.5], [0.3, 0.4]])),
    ):
        y = trajcli.clip_gradient(x, **options)
        assert torch.equal(y, x)
        (grad,) = torch.autograd.grad(y, x, pulled)
        torch.testing.assert_close(grad, want)
    with pytest.raises(trajcli.UsageError, match="norm"):
        trajcli.clip_gradient(x, norm=-1.0)


@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        (torch.float16, (1e-6, 1.0, 6e4)),
        (torch.bfloat16, (1e-38, 1e38)),
        (torch.float32, (1e-44, 1e-30, 1e19, 1e38)),
        (F64, (1e-310, 1e-200, 1.0, 1e200, 1.7e308)),
    ],
)
def test_gradients_of_any_size_and_type_are_clipped_to_the_norm(dtype, sizes):
    """Squares would vanish or overflow: the reference has 60 digits and exponents of any size."""
    for size in sizes:
        pulled = (torch.linspace(-1, 1, 6, dtype=F64).reshape(2, 3) * size).to(dtype)
        for share in (0.0, 1e-3, 0.5, 2.0, math.inf):
            norm = share * size
            x = torch.zeros(2, 3, dtype=dtype, requires_grad=True)
            (grad,) = torch.autograd.grad(trajcli.clip_gradient(x, norm=norm), x, pulled)
            with localcontext(Context(prec=60)):
                rows = [[Decimal(v) for v in row] for row in pulled.double().tolist()]
                lengths = [sum(v * v for v in row).sqrt() for row in rows]
                want = [
                    [float(v * Decimal(norm) / r if r > norm else v) for v in row]
                    for row, r in zip(rows, lengths, strict=True)
                ]
            assert grad.dtype == dtype
            least = float(torch.finfo(dtype).smallest_normal)
            torch.testing.assert_close(
                grad.double(), torch.tensor(want, dtype=F64),
                rtol=2 * torch.finfo(dtype).eps, atol=least * torch.finfo(dtype).eps,
            )  # fmt: skip


@pytest.mark.parametrize("size", [0.0, 1e-200, 0.3, 1.0, 1e200])
def test_a_second_derivative_differentiates_the_clipping_and_is_finite_at_zero(size):
    pulled, turned = torch.randn(2, 4, 3, dtype=F64)
    norm = size or 1.0
    pulled = (size * pulled).requires_grad_()
    x = torch.zeros(4, 3, dtype=F64, requires_grad=True)
    (grad,) = torch.autograd.grad(trajcli.clip_gradient(x, norm=norm), x, pulled, create_graph=True)
    (second,) = torch.autograd.grad(grad, pulled, turned)
    for row, along, got in zip(pulled.tolist(), turned.tolist(), second.tolist(), strict=True):
        with localcontext(Context(prec=60)):
            g, w = ([Decimal(v) for v in x] for x in (row, along))
            square = sum(v * v for v in g)
            if square > Decimal(norm) ** 2:  # (norm/|g|)·(I − g·gᵀ/|g|²)
                share = sum(a * b for a, b in zip(g, w, strict=True)) / square
                ratio = Decimal(norm) / square.sqrt()
                w = [ratio * (b - a * share) for a, b in zip(g, w, strict=True)]
            want = [float(v) for v in w]
        assert got == pytest.approx(want, rel=1e-12, abs=1e-14)


def test_a_gradient_factor_is_not_rounded_to_half_precision():
    x = torch.zeros(2, dtype=torch.float16, requires_grad=True)
    pulled = torch.tensor([1e-3, 6e4]).half()
    for factor in (1e5, 1e-8, 0.1):
        (grad,) = torch.autograd.grad(trajcli.scale_gradient(x, factor), x, pulled)
        assert torch.equal(grad, (pulled.double() * factor).half())


@pytest.mark.parametrize(("work", "form"), CASES[::3])
def test_dt_may_come_in_only_after_the_gradient_of_the_actions(work, form):
    outputs, (u, dt, *states) = problem(work, form)
    weights = [torch.randn(x.shape, dtype=F64) for x in outputs(u, dt, *states)]
    direction, turned = torch.randn(u.shape, dtype=F64), torch.randn(dt.shape, dtype=F64)

    def slope(dt: torch.Tensor) -> torch.Tensor:
        """How the cost changes along a direction of the actions: dt is no input of this."""

        def cost(u: torch.Tensor) -> torch.Tensor:
            result = outputs(u, dt, *states)
            return sum((w * x**2).sum() for w, x in zip(weights, result, strict=True))

        return (torch.func.grad(cost)(u.detach()) * direction).sum()

    def slope_by_autograd(dt: torch.Tensor) -> torch.Tensor:
        result = outputs(u, dt, *states)
        cost = sum((w * x**2).sum() for w, x in zip(weights, result, strict=True))
        (grad,) = torch.autograd.grad(cost, u, create_graph=True)  # of the actions alone
        return (grad * direction).sum()

    h = 1e-5
    step = dt.detach()
    ahead, behind, here = (slope(step + k * h * turned).detach() for k in (1, -1, 0))
    want = float(ahead - behind) / (2 * h)
    (of_dt,) = torch.autograd.grad(slope_by_autograd(dt), dt, materialize_grads=True)
    tolerance = 1e-6 * max(abs(want), float(here.abs()), 1.0)
    assert abs(float((of_dt * turned).sum()) - want) <= tolerance
    _, tangent = torch.func.jvp(slope, (step,), (turned,))
    assert abs(float(tangent.detach()) - want) <= tolerance


@pytest.mark.parametrize("name", QUANTITIES)
@pytest.mark.parametrize(("mode", "scheme"), [("jerk", "zoh"), ("acceleration", "foh")])
def test_second_derivatives_by_unequal_steps_need_only_one_output(mode, scheme, name):
    random = torch.Generator().manual_seed(3)
    u = torch.randn(2, 4, 1, dtype=F64, generator=random).requires_grad_()
    dt = (torch.rand(4, dtype=F64, generator=random) / 2 + 0.75).requires_grad_()

    def output(u, dt):
        return getattr(trajcli.integrate(u, "zero", dt, mode, scheme=scheme), name)

    assert torch.autograd.gradgradcheck(output, (u, dt))


def test_the_gradient_of_dt_loses_nothing_to_outputs_of_float32():
    u = torch.full((1, 50, 1), 0.01)
    start = State(torch.zeros(1, 1), torch.full((1, 1), 5.3))
    result = []
    for kind in (torch.float32, torch.float64):
        dt = torch.tensor(0.002, dtype=F64, requires_grad=True)
        state = State(start.position.to(kind), start.velocity.to(kind))
        velocity = trajcli.integrate(u.to(kind), state, dt).velocity
        weights = torch.linspace(-1, 1, 51, dtype=kind)[None, :, None]
        (first,) = torch.autograd.grad((velocity * weights).sum(), dt, create_graph=True)
        result.append([first, *torch.autograd.grad(first, dt, allow_unused=True)])
    assert abs(result[0][0] - result[1][0]) <= 1e-6 * abs(result[1][0])


def test_second_derivatives_through_dt_are_those_of_float64():
    result = []
    for kind in (torch.float32, torch.float64):
        torch.manual_seed(0)
        u = torch.randn(2, 6, 1).to(kind).requires_grad_()
        dt = torch.tensor(0.5, dtype=F64, requires_grad=True)
        loss = sum(x.double().square().sum() for x in trajcli.integrate(u, "zero", dt, "jerk"))
        (first,) = torch.autograd.grad(loss, dt, create_graph=True)
        result.append([x.double() for x in torch.autograd.grad(first, (u, dt))])
    for a, b in zip(*result, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * float(b.abs().max()))


@pytest.mark.parametrize("mode", ["acceleration", "clique", "central", "bspline", "teleport"])
def test_no_trajectories_have_a_gradient_of_dt_of_zero(mode):
    u = torch.zeros(0, 6, 2, requires_grad=True)
    dt = torch.tensor(0.1, requires_grad=True)
    result = trajcli.integrate(u, torch.zeros(2), dt, mode)
    sum(x.sum() for x in result).backward()
    assert float(dt.grad) == 0.0
    assert u.grad.shape == (0, 6, 2)


def test_writing_into_the_steps_later_does_not_change_a_gradient():
    u, dt = torch.randn(1, 4, 1, dtype=F64).requires_grad_(), np.full(4, 0.1)
    result = trajcli.integrate(u, "zero", dt)
    dt[:] = 5.0
    (gradient,) = torch.autograd.grad(result.position[:, -1].sum(), u)
    torch.testing.assert_close(gradient[0, :, 0], 0.01 * torch.arange(4.0, 0.0, -1.0).double())


def test_a_negative_view_keeps_its_sign_and_is_checked():
    u = torch.randn(1, 4, 2)
    for _ in range(2):
        result = trajcli.integrate(torch._neg_view(u), "zero", 0.1)
        assert torch.equal(result.acceleration[:, 1:], -u)
    u[0, 1] = torch.nan
    with pytest.raises(trajcli.InputError, match="NaN"):
        trajcli.integrate(torch._neg_view(u), "zero", 0.1)
