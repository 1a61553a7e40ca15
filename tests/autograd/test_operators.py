"""Where torch traces, an operator stands for our kernels: compiled and exported code gives the bits
of a call and its derivatives, for other values and shapes, too."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from autograd.problems import CASES, problem
from kernels.cases import Job, job
from torch import Tensor, func
from torch._dynamo.testing import CompileCounterWithBackend
from torch.export import Dim
from torch.fx.experimental.proxy_tensor import make_fx

import trajcli
from trajcli import State, Trajectory, UsageError, _operators, differentiate, integrate

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, while it traces and compiles
F64 = torch.float64
U = torch.randn(4, 7, 3, generator=torch.Generator().manual_seed(0))
S = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))
Function = Callable[..., Any]

SOME = [
    *CASES[5:32:26],  # cascades
    *((work, form) for work, form in CASES if work.mode == "teleport" and form == "[B,1]"),
    CASES[-8],  # a spline
    (job("clique", recorded=True), "[1,H]"),
    (job("central", ends="goal"), "[B,1]"),
    (job("central", recorded=True), "[B,H]"),
    (job("savgol", recorded=True, window=5), "[1,1]"),
]


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    torch._dynamo.reset()


def compiled(work: Function, backend: Any = "aot_eager", **options: Any) -> Any:
    return torch.compile(work, backend=backend, fullgraph=True, **options)


def arrays_of(trajectory: Trajectory) -> list[Any]:
    return [*(x for x in trajectory if x is not None), trajectory.time]


def assert_equal(found: Any, want: Any) -> None:
    for a, b in zip(found, want, strict=True):
        assert type(a) is type(b)
        assert a.dtype == b.dtype
        assert torch.equal(torch.as_tensor(a), torch.as_tensor(b))


@pytest.mark.parametrize(("work", "form"), SOME)
def test_compiled_code_gives_the_bits_of_a_call_and_exact_gradients(work: Job, form: str) -> None:
    outputs, inputs = problem(work, form)
    quick = compiled(outputs)
    values = [x.detach() for x in inputs]
    assert_equal(quick(*values), outputs(*values))
    assert torch.autograd.gradcheck(quick, inputs, fast_mode=True)


@pytest.mark.parametrize(("work", "form"), [*SOME, *CASES[::9]])
def test_the_operator_has_second_derivatives(work: Job, form: str) -> None:
    outputs, inputs = problem(work, form)
    graph = make_fx(outputs)(*inputs)
    assert "trajcli.linear" in graph.code
    assert torch.autograd.gradcheck(graph, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(graph, inputs, fast_mode=True)


MODES: dict[str, Callable[[Tensor, Tensor], Trajectory]] = {
    "jerk": lambda u, s: integrate(u, s, 0.1, "jerk", scheme="zoh"),
    "steps": lambda u, s: integrate(u, "zero", u[0, :, 0].exp(), "acceleration"),
    "central": lambda u, s: integrate(u, s[0], 0.1, "central", convention="curobo"),
    "bspline": lambda u, s: integrate(
        u, State(s, s), 0.1, "bspline", steps=3, ends="goal", goal=State(s)
    ),
    "savgol": lambda u, s: differentiate(u, dt=0.1, window=5),
}
STILL = {"smooth": lambda u, s: differentiate(u, dt=0.1, bandlimit=2.0)}
"""Modes whose shapes are fixed while torch traces."""


def drawn(batch: int, horizon: int) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, horizon, 3, requires_grad=True), torch.randn(batch, 3)


def slope(outputs: Any, u: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(sum((x**2).sum() for x in outputs[:4]), u)


@pytest.mark.parametrize("name", MODES)
def test_code_compiled_for_symbols_serves_other_shapes(name: str) -> None:
    count = CompileCounterWithBackend("aot_eager")
    quick = compiled(lambda u, s: arrays_of(MODES[name](u, s)), count)
    for batch, horizon in ((5, 7), (6, 9), (2, 30)):
        u, s = drawn(batch, horizon)
        for x, axis in ((u, 0), (u, 1), (s, 0)):
            torch._dynamo.mark_dynamic(x, axis)
        found, want = quick(u, s), arrays_of(MODES[name](u, s))
        pairs = (found, want), (slope(found, u), slope(want, u))
        for a, b in pairs:
            # with a gradient of its own each step is computed by torch's operations in a call
            (torch.testing.assert_close if name == "steps" else assert_equal)(a, b)
    assert count.frame_count == 1


@pytest.mark.parametrize(("name", "strict"), [("jerk", True), ("bspline", False), ("savgol", True)])
def test_exported_programs_are_saved_and_serve_other_shapes(name: str, strict: bool) -> None:
    class Planner(torch.nn.Module):
        def forward(self, u: Tensor, s: Tensor) -> list[Tensor]:
            return arrays_of(MODES[name](u, s))

    batch, horizon = Dim("B", min=2), Dim("H", min=6)
    shapes = {"u": {0: batch, 1: horizon}, "s": {0: batch}}
    exported = torch.export.export(Planner(), (U, S), dynamic_shapes=shapes, strict=strict)
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    module = torch.export.load(file).module()
    u, s = drawn(3, 11)
    want = arrays_of(MODES[name](u, s))
    assert_equal(module(u, s), want)
    assert_equal(slope(module(u, s), u), slope(want, u))


def test_the_gradient_of_dt_comes_from_gradients_that_are_not_rounded() -> None:
    def call(u: Tensor, dt: Tensor) -> Tensor:
        return integrate(u, "zero", dt, "jerk").position

    u, dt = U.clone().requires_grad_(), torch.tensor(0.1).double().requires_grad_()
    upstream = torch.randn(4, 8, 3, generator=torch.Generator().manual_seed(2))
    quick = torch.compile(call, backend="aot_eager", fullgraph=True)
    (found,), (want,) = (
        torch.autograd.grad(function(u, dt), dt, upstream) for function in (quick, call)
    )
    torch.testing.assert_close(found, want, rtol=1e-13, atol=0.0)


@pytest.mark.parametrize("name", [*MODES, *STILL])
def test_the_operator_passes_the_checks_of_torch(name: str, monkeypatch: Any) -> None:
    calls = []
    monkeypatch.setattr(_operators, "linear", lambda *args: calls.append(args) or operator(*args))
    operator = torch.ops.trajcli.linear.default
    u, s = (x.double().requires_grad_() for x in (U, S))
    work = {**MODES, **STILL}[name]
    slope(make_fx(lambda u, s: [*work(u, s)])(u, s)(u, s), u)
    monkeypatch.undo()
    assert {transposed for *_, transposed, _, _ in calls} == {False, True}
    for dt, inputs, *about in calls:
        leaves = [x.detach().clone().requires_grad_() for x in inputs]
        torch.library.opcheck(operator, (dt.detach().clone(), leaves, *about))


def test_vmap_goes_through_the_operator() -> None:
    u, s, dt = U.double(), S.double(), torch.rand(5, 4, 7, dtype=F64) + 0.5
    many = torch.stack([k * u for k in range(1, 6)])

    def cost(u: Tensor, s: Tensor, dt: Tensor) -> Tensor:
        return sum((x**2).sum() for x in integrate(u, s, dt, "jerk"))

    def grads(u: Tensor, s: Tensor, dt: Tensor) -> tuple[Tensor, ...]:
        leaves = [x.detach().requires_grad_() for x in (u, s)]
        return torch.autograd.grad(cost(*leaves, dt), leaves)

    graph = make_fx(grads)(u, s, dt[0])
    for steps, axis in ((dt, 0), (dt[0], None), (dt[0, :1], None), (dt[:, :1, :1], 0)):
        graph = make_fx(grads)(u, s, steps if axis is None else steps[0])
        found = func.vmap(graph, (0, None, axis))(many, s, steps)
        for k, x in enumerate(many):
            want = grads(x, s, steps if axis is None else steps[k])
            torch.testing.assert_close([part[k] for part in found], [*want])


CALLS: dict[str, Callable[[Tensor, Tensor], Trajectory]] = {
    "NumPy state": lambda u, s: integrate(u, State(np.ones((4, 3)), s), np.float64(0.1)),
    "numbers": lambda u, s: integrate(u, [0.0, 1.0, 2.0], 0.1, "acc"),
    "stamps": lambda u, s: integrate(u, s, times=np.arange(8) * 0.1, mode="jerk"),
    "rates": lambda u, s: integrate(u, s, times=torch.arange(7), mode="velocity"),
    "index": lambda u, s: integrate(u, s, 0.1, start_index=torch.tensor([1, 0, 3, 1])),
    "subset": lambda u, s: integrate(u, s, 0.1, write=["jerk", "position"], dtype=np.float64),
    "half": lambda u, s: integrate(u.bfloat16(), s.half(), torch.tensor(0.1)),
    "views": lambda u, s: integrate(u.flip(1)[:, ::2], s[:1].expand(4, 3), 0.1),
    "one": lambda u, s: integrate(u[0], s[0], torch.full((7,), 0.1)),
    "none": lambda u, s: integrate(u[:0], s[:0], 0.1),
    "torch": lambda u, s: integrate(u, s, 0.1, "bspline", backend="torch"),
    "smooth": STILL["smooth"],
}


@pytest.mark.parametrize("name", CALLS)
def test_inputs_of_any_kind_give_what_a_call_gives(name: str) -> None:
    u, s = U.clone().requires_grad_(), S.clone().requires_grad_()
    quick, found = compiled(CALLS[name]), []
    for work in (quick, CALLS[name]):
        trajectory = work(u, s)
        rows = [x for x in trajectory if x is not None]
        assert isinstance(trajectory, Trajectory)
        cost = sum((x.double() ** 2).sum() for x in rows)
        grads = torch.autograd.grad(cost, (u, s), materialize_grads=True)
        found.append([*rows, trajectory.time, *grads])
        about = (
            trajectory.mode,
            {k: str(v) for k, v in trajectory.options.items() if k != "residual"},
        )
        found[-1].append(torch.tensor([ord(x) for x in str(about)]))
    assert_equal(*found)


def test_a_call_with_numpy_alone_gives_numpy() -> None:
    def work(u: Any) -> list[Any]:
        return arrays_of(integrate(u, "zero", 0.1, "jerk"))

    assert_equal(compiled(work)(U.numpy()), work(U.numpy()))


def test_a_step_that_changes_is_compiled_twice() -> None:
    count = CompileCounterWithBackend("aot_eager")
    quick = compiled(lambda u, dt: arrays_of(integrate(u, "zero", dt, "jerk")), count)
    for dt in (0.1, 0.2, 0.3, 0.4):
        assert_equal(quick(U, dt), arrays_of(integrate(U, "zero", dt, "jerk")))
    assert count.frame_count == 2


def test_errors_of_usage_say_the_same() -> None:
    def work(u: Tensor, s: Tensor) -> Trajectory:
        return integrate(u, s[:, :2], 0.1)

    with pytest.raises(trajcli.TrajcliError) as want:
        work(U, S)
    with pytest.raises(type(want.value)) as found:
        torch.compile(work, backend="eager")(U, S)
    assert str(found.value) == str(want.value)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported) as found:
        compiled(work, "eager")(U, S)
    assert str(want.value).split("\n")[0] in str(found.value)


def test_what_is_chosen_by_values_runs_without_being_compiled() -> None:
    u, dt = U.repeat(1, 4, 1), torch.tensor(0.1)

    def work(u: Tensor, dt: Tensor) -> list[Any]:
        return arrays_of(differentiate(2 * u, dt=dt))

    assert_equal(torch.compile(work, backend="eager")(u, dt), work(u, dt))
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="read"):
        compiled(work, "eager")(u, dt)


def motion(u: Tensor) -> Trajectory:
    return integrate(2 * u, "zero", 0.1, "jerk", scheme="zoh")


READING: dict[str, Function] = {
    "retime": lambda u: arrays_of(trajcli.retime(motion(u), {"velocity": 1.0})),
    "score": lambda u: [*trajcli.score(motion(u)).values()],
    "fit": lambda u: [trajcli.fit(u.repeat(1, 2, 1), 0.1, error=1.0).actions],
    "concatenate": lambda u: arrays_of(trajcli.concatenate([motion(u), motion(u)[:, 3:]], "time")),
    "numpy": lambda u: [torch.from_numpy(motion(u).numpy().jerk)],
    "a gap": lambda u: arrays_of(
        differentiate(u, times=torch.arange(7) / 10, max_gap=0.5, method="central")
    ),
    "==": lambda u: [u * (motion(u) == motion(u))],
}


@pytest.mark.parametrize("name", READING)
def test_what_reads_values_runs_between_compiled_code(name: str) -> None:
    u = U.double()
    u[:, :3] = 0.0
    torch.testing.assert_close(
        torch.compile(READING[name], backend="eager")(u), READING[name](u), equal_nan=True
    )


def rows(u: Tensor) -> Tensor:
    return integrate(u, "zero", 0.1, "jerk", scheme="zoh").position


TRANSFORMS: dict[str, Function] = {
    "grad": lambda u: func.grad(lambda x: (rows(x) ** 3).sum())(u),
    "jvp": lambda u: func.jvp(rows, (u,), (2 * u,))[1],
    "jacrev": lambda u: func.jacrev(rows)(u),
    "jacfwd": lambda u: func.jacfwd(rows)(u),
    "hessian": lambda u: func.hessian(lambda x: (rows(x) ** 3).sum())(u),
    "vmap": lambda u: func.vmap(rows)(torch.stack([u, 2 * u])),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_within_traced_code_are_exact(name: str) -> None:
    u, other = torch.randn(2, 2, 3, 1, dtype=F64)
    want = TRANSFORMS[name](other)
    torch.testing.assert_close(make_fx(TRANSFORMS[name])(u)(other), want)
    if name in ("grad", "jvp"):  # others take long to compile
        torch.testing.assert_close(compiled(TRANSFORMS[name], "eager")(other), want)


def test_compiled_code_is_transformed_from_outside() -> None:
    quick = torch.compile(rows, backend="aot_eager")
    quick(U)
    for transform in (lambda f: func.jvp(f, (U,), (U,))[1], lambda f: func.vmap(f)(U[None])):
        assert torch.equal(transform(quick), transform(rows))


@pytest.mark.skipif(not shutil.which("g++"), reason="no compiler for inductor")
def test_inductor_trains_plans_and_their_step() -> None:
    class Plan(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.u, self.step = torch.nn.Parameter(U.clone()), torch.nn.Parameter(torch.zeros(()))

        def forward(self) -> Tensor:
            step = self.step.exp()
            return trajcli.clip_gradient(integrate(self.u, S, step, "jerk").jerk, norm=9.0)

    plan = Plan()
    grads = [
        torch.autograd.grad((work() ** 2).sum(), [*plan.parameters()])
        for work in (plan, compiled(plan, "inductor"))
    ]
    torch.testing.assert_close(*grads)


def test_functions_of_gradients_compile_and_a_factor_may_change() -> None:
    count = CompileCounterWithBackend("aot_eager")

    def work(x: Tensor, factor: float) -> Tensor:
        return trajcli.clip_gradient(trajcli.scale_gradient(2 * x, factor), norm=0.5, value=0.4)

    quick = compiled(work, count)
    for factor in (0.5, 0.25, 0.125, 3.0):
        x = torch.randn(4, 3, requires_grad=True)
        assert_equal(*(torch.autograd.grad((f(x, factor) ** 2).sum(), x) for f in (quick, work)))
    assert count.frame_count == 2


def test_smooth_has_no_gradient_of_dt_in_traced_code() -> None:
    dt = torch.tensor(0.1, requires_grad=True)
    with pytest.raises(UsageError, match=r"read|no gradient"):
        make_fx(lambda u, dt: [*differentiate(u, dt=dt, bandlimit=2.0)])(U, dt)


def test_forward_mode_through_traced_code_is_refused() -> None:
    graph = make_fx(rows)(U)
    with pytest.raises(UsageError, match="forward mode"):
        func.jvp(graph, (U,), (U,))
    with pytest.raises(UsageError, match="forward mode"):
        func.jacfwd(graph)(U)


def test_the_older_tracer_is_refused() -> None:
    with pytest.raises(UsageError, match=r"torch\.jit\.trace"):
        torch.jit.trace(rows, U)
