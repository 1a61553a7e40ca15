"""The Triton kernels on a CUDA device: graphs, and shapes too large for an interpreter.

test_triton.py, which also runs there, compares every mode with torch.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernels.cases import Job, job

import trajcli
from trajcli import UsageError, _prepared, arrays
from trajcli.kernels import cuda, torch_ops, triton_ops
from trajcli.kernels.choose import triton_absence
from trajcli.kernels.program import Cascade, Gradients, Operands

pytestmark = [
    pytest.mark.skipif(not cuda.count(), reason="no CUDA device"),
    pytest.mark.skipif(bool(triton_absence()), reason=triton_absence()),
]

WORKS = [job("acceleration"), job("central", ends="goal"), job("bspline", degree=5)]


def drawn(work: Job, shape: tuple[int, int, int]) -> tuple[Any, Operands, Any]:
    """A program, random operands for it, and its rows on the device."""
    torch.manual_seed(0)
    batch, horizon, dofs = shape
    program = work.program(horizon, False)
    state = [torch.randn(batch, dofs, device="cuda") for _ in range(4)]
    dt = torch.full((1, 1), 0.02, dtype=torch.float64, device="cuda")
    operands = Operands(torch.randn(shape, device="cuda"), dt, state, state)
    shape_of_rows = (batch, program.rows, dofs)
    return program, operands, [torch.empty(shape_of_rows, device="cuda") for _ in range(4)]


def buffers(shape: tuple[int, int, int]) -> Gradients:
    batch, _, dofs = shape
    parts = torch.zeros(8, batch, dofs, dtype=torch.float64, device="cuda").unbind()
    return Gradients(torch.zeros(shape, device="cuda"), parts[:4], parts[4:])


@pytest.mark.parametrize("work", WORKS, ids=str)
@pytest.mark.parametrize("shape", [(20_003, 17, 7), (3, 20_003, 5), (70_000, 40, 1)])
def test_large_shapes_are_those_of_torch(work, shape):
    program, operands, rows = drawn(work, shape)
    result = [torch.empty_like(x) for x in rows]
    want = [torch.empty_like(x) for x in rows]
    triton_ops.forward(program, operands, result)
    torch_ops.forward(program, operands, want)
    for a, b in zip(result, want, strict=True):
        off = (a.double() - b.double()).abs() / b.double().abs().amax(1, keepdim=True)
        assert float(off.max()) < 2e-7
    one, two = buffers(shape), buffers(shape)
    triton_ops.adjoint(program, operands, result, one)
    torch_ops.adjoint(program, operands, result, two)
    for a, b in zip([one.actions, *one.start], [two.actions, *two.start], strict=True):
        assert float((a.double() - b.double()).abs().max() / b.double().abs().max()) < 2e-7


@pytest.mark.parametrize("work", WORKS, ids=str)
def test_kernels_are_captured_in_a_graph_and_replayed(work):
    program, operands, rows = drawn(work, (1000, 32, 7))
    gradients = buffers((1000, 32, 7))

    def launch() -> None:
        triton_ops.forward(program, operands, rows)
        triton_ops.adjoint(program, operands, rows, gradients)

    launch()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    operands.actions.normal_()
    graph.replay()
    result = [x.clone() for x in (*rows, gradients.actions, *gradients.start)]
    launch()
    for a, b in zip(result, (*rows, gradients.actions, *gradients.start), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("warm", [True, False])
def test_a_capture_changes_no_call_before_its_replay(warm):
    """Of another dt than that of the call before, or the first of its shape."""
    other, actions = (
        torch.randn(3, count, 2, device="cuda", requires_grad=True) for count in (5, 6 + warm)
    )

    def call(dt: float, actions: torch.Tensor = actions) -> list[torch.Tensor]:
        rows = trajcli.integrate(actions, "zero", dt, allow_nonfinite=True)
        upstream = [torch.ones_like(x) for x in rows]
        return [*rows, *torch.autograd.grad(list(rows), actions, upstream), rows.time]

    call(0.1, other)  # loads the kernels, which a capture could not
    if warm:
        call(0.1), call(0.1)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        call(0.05)
    result = call(0.05)
    _prepared._cache.calls.clear()
    arrays._numbers.clear()
    for a, b in zip(result, call(0.05), strict=True):
        assert torch.equal(a, b)


def test_an_index_out_of_range_keeps_the_device_context_alive():
    index = torch.randint(0, 3, (5000,), device="cuda")
    index[7], index[8] = 3, -1
    actions = torch.randn(5000, 9, 2, device="cuda", dtype=torch.float64)
    start = torch.randn(3, 2, device="cuda", dtype=torch.float64, requires_grad=True)
    dt = torch.full((5000, 1), 0.1, device="cuda", dtype=torch.float64, requires_grad=True)

    def gradients() -> list[torch.Tensor]:
        rows = trajcli.integrate(actions, start, dt, start_index=index, allow_nonfinite=True)
        assert rows.position[7:9].isnan().all()
        return [*torch.autograd.grad(rows.position[9:].sum(), [start, dt])]

    first = gradients()
    assert first[0].isfinite().all()
    assert first[1][9:].isfinite().all()
    for _ in range(5):
        for a, b in zip(gradients(), first, strict=True):
            assert torch.equal(a.nan_to_num(), b.nan_to_num())


def test_compiled_and_mapped_calls_are_those_that_are_neither():
    actions = torch.randn(4, 20, 3, device="cuda", requires_grad=True)

    def cost(actions):
        rows = trajcli.integrate(actions, "zero", 0.02, mode="jerk")
        return (rows.position**2).sum() + rows.velocity.sin().sum()

    compiled = torch.compile(cost, backend="aot_eager", fullgraph=True)
    for one, two in zip((cost(actions), *torch.autograd.grad(cost(actions), actions)),
                        (compiled(actions), *torch.autograd.grad(compiled(actions), actions)),
                        strict=True):  # fmt: skip
        torch.testing.assert_close(one, two)
    mapped = torch.func.vmap(lambda x: trajcli.integrate(x[None], "zero", 0.02).position[0])
    torch.testing.assert_close(mapped(actions), trajcli.integrate(actions, "zero", 0.02).position)


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
def test_a_smoothing_spline_is_that_of_the_cpu():
    positions = torch.randn(3, 40, 2, requires_grad=True)
    on_device = positions.detach().cuda().requires_grad_()
    results = []
    for x in (positions, on_device):
        rows = trajcli.differentiate(x, dt=0.02, bandlimit=5.0)
        grads = torch.autograd.grad(list(rows), x, [torch.ones_like(row) for row in rows])
        results.append([x.cpu() for x in (*rows, *grads, rows.time)])
        assert rows.position.device == x.device
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)
    with (
        pytest.raises(UsageError, match="cannot capture"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        trajcli.differentiate(on_device, dt=0.02, bandlimit=5.0, allow_nonfinite=True)


def test_more_elements_than_32_bits_count_are_all_computed():
    batch, horizon = 2_200_000, 1000
    if torch.cuda.mem_get_info()[0] < 4 * 4 * batch * horizon:
        pytest.skip("needs 36 GB of device memory")
    actions = torch.ones(batch, horizon, 1, device="cuda")
    dt = torch.ones(1, 1, dtype=torch.float64, device="cuda")
    rows = [torch.zeros_like(actions) for _ in range(2)]
    program = Cascade(2, "euler", horizon, start_row=False)
    triton_ops.forward(program, Operands(actions, dt), [*rows, None, None])
    steps = torch.arange(1, horizon + 1, device="cuda", dtype=torch.float64)
    assert bool((rows[1][..., 0] == steps.float()).all())
    assert bool((rows[0][..., 0] == (steps * (steps + 1) / 2).float()).all())
