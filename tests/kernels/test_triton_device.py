"""The Triton kernels on a CUDA device: streams, graphs, memory, half precision, large shapes.

test_triton.py, which also runs there, compares every mode with the other backends.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kernel_cases import BANDS, CASCADES, DEVICE, assert_close, on_triton, problem

from trajcli import InputError, State, integrate
from trajcli.jobs.request import Request
from trajcli.jobs.run import run
from trajcli.kernels import torch_ops, triton_ops
from trajcli.kernels.pairs import Pair
from trajcli.modes import PARTS, make_mode

pytestmark = [
    pytest.mark.skipif(DEVICE == "cpu", reason="no CUDA device"),
    pytest.mark.skipif(bool(triton_ops.absence()), reason=triton_ops.absence()),
]


@pytest.mark.parametrize(("mode", "options", "recorded"), [*CASCADES[::3], *BANDS[::3]])
def test_the_same_bits_every_time_and_whatever_the_neighbours(mode, options, recorded):
    given = problem(mode, options, recorded, (700, 100, 7), "float32", "one")
    first, second = on_triton(given, mode), on_triton(given, mode)
    few = {**given, "actions": given["actions"][300:303]}
    if isinstance(given["start"], State):
        few["start"] = State(*(part[300:303] for part in given["start"].parts().values()))
    if "goal" in given:
        few["goal"] = State(*(part[300:303] for part in given["goal"].parts().values()))
    third = on_triton(few, mode)
    for name in PARTS:
        assert torch.equal(getattr(first, name), getattr(second, name))
        assert torch.equal(getattr(first, name)[300:303], getattr(third, name))


@pytest.mark.parametrize("mode", ["acceleration", "central", "bspline"])
@pytest.mark.parametrize("shape", [(1000, 32, 7), (1, 100_000, 7)])
def test_kernels_are_captured_in_a_cuda_graph_and_replayed(mode, shape):
    from trajcli.inputs import Inputs
    from trajcli.kernels.program import run_program

    actions = torch.randn(shape, device=DEVICE)
    inputs = Inputs(
        mode=make_mode(mode),
        actions=actions,
        start={"position": torch.zeros(1, shape[2], device=DEVICE)},
        goal={},
        dt=torch.tensor(0.02, device=DEVICE),
    )
    program = inputs.program("cuda")
    rows = inputs.mode.rows(shape[1], False)
    out = [torch.empty(shape[0], rows, shape[2], device=DEVICE) for _ in range(4)]
    run_program(program, triton_ops, out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run_program(program, triton_ops, out)
    actions.copy_(torch.randn_like(actions))
    for place in out:
        place.fill_(float("nan"))
    graph.replay()
    found = [place.clone() for place in out]
    program = inputs.program("cuda")
    run_program(program, triton_ops, out)
    if mode == "acceleration":
        assert all(torch.equal(a, b) for a, b in zip(found, out, strict=True))
    assert all(torch.isfinite(a).all() for a in found)


def called(mode: str) -> tuple[list[torch.Tensor], Any]:
    """Inputs of integrate on the device, and integrate on them without a look at their values."""
    torch.manual_seed(0)
    actions, start = torch.randn(3000, 32, 7, device=DEVICE), torch.randn(7, device=DEVICE)
    dt = torch.full((3000, 32), 0.1, device=DEVICE)
    index = torch.arange(3000, device=DEVICE) % 5
    states = torch.randn(5, 7, device=DEVICE)
    steps = 0.1 if mode == "bspline" else dt

    def run() -> list[torch.Tensor]:
        one = integrate(actions, start, steps, mode, allow_nonfinite=True)
        two = integrate(actions, states, 0.1, mode, start_index=index, allow_nonfinite=True)
        return [getattr(rows, name) for rows in (one, two) for name in (*PARTS, "time")]

    return [actions, start], run


@pytest.mark.parametrize("mode", ["clique", "acceleration", "jerk", "central", "bspline"])
def test_integrate_is_captured_in_a_cuda_graph_after_a_call_to_warm_up(mode):
    given, run = called(mode)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = run()
    for tensor in given:
        tensor.normal_()
    graph.replay()
    replayed = [x.clone() for x in found]
    for a, b in zip(replayed, run(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("mode", ["acceleration", "central", "bspline"])
def test_an_index_that_nobody_looked_at_gives_nan_where_there_is_no_state(mode):
    index = torch.tensor([0, 1, 7, -3], device=DEVICE)
    actions, states = torch.randn(4, 9, 7, device=DEVICE), torch.randn(2, 7, device=DEVICE)
    rows = integrate(actions, states, 0.1, mode, start_index=index, allow_nonfinite=True)
    assert torch.isfinite(rows.position[:2]).all()
    assert torch.isnan(rows.position[2:, 0]).all()
    with pytest.raises(InputError, match="index out of range"):
        integrate(actions, states, 0.1, mode, start_index=index)


@pytest.mark.parametrize("mode", ["acceleration", "jerk", "central", "bspline"])
def test_a_backward_pass_is_captured_in_a_cuda_graph(mode):
    torch.manual_seed(0)
    actions = torch.randn(500, 32, 7, device=DEVICE, requires_grad=True)
    start = torch.randn(20, 7, device=DEVICE, requires_grad=True)
    index = torch.arange(500, device=DEVICE) % 20
    dt = torch.full((500, 1), 0.1, device=DEVICE, requires_grad=True)

    def run() -> tuple[torch.Tensor, ...]:
        rows = integrate(actions, start, dt, mode, start_index=index, allow_nonfinite=True)
        cost = sum((getattr(rows, name) ** 2).sum() for name in PARTS)
        return torch.autograd.grad(cost, (actions, start, dt))

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = run()
    with torch.no_grad():
        actions.normal_()
    graph.replay()
    replayed = [x.clone() for x in found]
    for a, b in zip(replayed, run(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=0)


@pytest.mark.parametrize("mode", ["clique", "acceleration", "jerk", "central", "bspline"])
def test_the_host_does_not_wait_where_values_are_not_checked(mode):
    actions = torch.randn(3000, 32, 7, device=DEVICE, requires_grad=True)
    start = torch.zeros(4, 7, device=DEVICE, requires_grad=True)
    index = torch.arange(3000, device=DEVICE) % 4
    dt = torch.full((3000, 1), 0.1, device=DEVICE, requires_grad=True)

    def both() -> None:
        rows = integrate(actions, start, dt, mode, start_index=index, allow_nonfinite=True)
        sum((getattr(rows, name) ** 2).sum() for name in PARTS).backward()

    both()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        both()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_kernels_run_on_the_current_stream_and_do_not_wait():
    actions = torch.randn(20_000, 100, 7, device=DEVICE)
    start = torch.zeros(7, device=DEVICE)
    dt = torch.full((1, 1), 0.02, dtype=torch.float64, device=DEVICE)
    want = integrate(actions, start, 0.02, backend="triton").position
    zero = Pair(*(torch.zeros(20_000, 7, dtype=torch.float64, device=DEVICE) for _ in range(2)))
    out = [torch.zeros(20_000, 101, 7, device=DEVICE) for _ in range(4)]
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream), torch.cuda.device(0):
        torch.cuda.set_sync_debug_mode("error")
        try:
            triton_ops.cascade(
                [None, None, actions, None],
                [zero] * 4,
                dt,
                order=2,
                scheme="euler",
                start_row=True,
                out=out,
                end=False,
            )
        finally:
            torch.cuda.set_sync_debug_mode("default")
    stream.synchronize()
    assert torch.equal(out[0], want)


@pytest.mark.parametrize("mode", ["clique", "acceleration", "jerk", "central", "bspline"])
def test_gradcheck_on_the_device(mode):
    torch.manual_seed(0)
    actions = torch.randn(2, 6, 3, dtype=torch.float64, device=DEVICE, requires_grad=True)
    start = torch.randn(2, 3, dtype=torch.float64, device=DEVICE, requires_grad=True)
    dt = torch.tensor(0.3, dtype=torch.float64, device=DEVICE, requires_grad=True)

    def run(*leaves: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = integrate(*leaves, mode, backend="triton")
        return tuple(getattr(rows, name) for name in PARTS)

    assert torch.autograd.gradcheck(run, (actions, start, dt), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(run, (actions, start, dt))


def test_bfloat16_actions_are_read_right():
    actions = torch.randn(50, 33, 7, device=DEVICE, dtype=torch.bfloat16)
    start = torch.zeros(7, device=DEVICE)
    for mode in ("acceleration", "central"):
        found = integrate(actions, start, 0.1, mode, backend="triton")
        want = integrate(actions.float(), start, 0.1, mode, backend="torch")
        for name in PARTS:
            assert_close(getattr(found, name), getattr(want, name), name)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one CUDA device")
def test_kernels_run_on_the_device_of_their_input():
    actions = torch.randn(5, 9, 7)
    found = [
        integrate(actions.to(f"cuda:{k}"), torch.zeros(7, device=f"cuda:{k}"), 0.1) for k in (0, 1)
    ]
    assert found[1].position.device.index == 1
    assert torch.equal(found[0].position.cpu(), found[1].position.cpu())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("order", "scheme"), [(0, "euler"), (2, "euler"), (3, "foh")])
def test_half_precision_is_written_as_the_nearest_number_there_is(dtype, order, scheme):
    torch.manual_seed(0)
    B, H, D = 300, 100, 7
    actions = torch.randn(B, H, D, device=DEVICE).to(dtype)
    dt = torch.full((1, 1), 0.125, dtype=torch.float64, device=DEVICE)
    zero = Pair(*(torch.zeros(B, D, dtype=torch.float64, device=DEVICE) for _ in range(2)))
    sources: list[Any] = [None] * 4
    sources[order] = actions
    written = []
    for kernels, kind in ((triton_ops, dtype), (torch_ops, torch.float64)):
        out = [torch.empty(B, H, D, dtype=kind, device=DEVICE) for _ in range(4)]
        kernels.cascade(sources, [zero] * 4, dt, order=order, scheme=scheme, out=out, end=False)
        written.append(out)
    for a, b in zip(*written, strict=True):
        want = b.float().to(dtype)
        ulp = torch.finfo(dtype).eps * want.abs().float()
        assert bool(((a.float() - want.float()).abs() <= ulp).all())
        assert float((a == want).float().mean()) > 0.999


@pytest.mark.parametrize("mode", ["jerk", "central"])
@pytest.mark.parametrize("shape", [(200_003, 17, 7), (3, 100_003, 5), (70_000, 100, 1)])
def test_shapes_that_fill_no_tile_are_right_at_their_edges(mode, shape):
    torch.manual_seed(0)
    wide = torch.randn(shape[0], shape[1] + 3, shape[2] + 2, device=DEVICE)
    start = torch.randn(shape[0], shape[2], device=DEVICE)
    views = wide[:, 3:, 1:-1]
    found = integrate(views, start, 0.01, mode)
    some = [0, 1, shape[0] // 2, -2, -1]
    want = integrate(views[some].cpu(), start[some].cpu(), 0.01, mode, backend="torch")
    for name in PARTS:
        assert_close(getattr(found, name)[some], getattr(want, name), name)


def test_more_elements_than_32_bits_count_are_all_computed():
    B, H, D = 2_200_000, 1000, 1
    if torch.cuda.mem_get_info()[0] < 4 * 5 * B * H:
        pytest.skip("needs 44 GB of device memory")
    actions = torch.ones(B, H, D, device=DEVICE)
    zero = Pair(*(torch.zeros(B, D, dtype=torch.float64, device=DEVICE) for _ in range(2)))
    dt = torch.ones(1, 1, dtype=torch.float64, device=DEVICE)
    out = [torch.zeros(B, H, D, device=DEVICE) for _ in range(4)]
    triton_ops.cascade(
        [None, None, actions, None], [zero] * 4, dt, order=2, scheme="euler", out=out, end=False
    )
    steps = torch.arange(1, H + 1, device=DEVICE, dtype=torch.float64)
    assert bool((out[1][..., 0] == steps.float()).all())
    assert bool((out[0][..., 0] == (steps * (steps + 1) / 2).float()).all())


@pytest.mark.parametrize("mode", ["jerk", "central", "bspline"])
@pytest.mark.parametrize("backend", ["triton", "torch"])
def test_a_run_from_file_to_file_gives_what_the_cpu_gives(mode, backend, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    np.save("a.npy", random.standard_normal((300, 200, 7), dtype=np.float32))
    for device, memory in (
        ("cpu", 1 << 28),
        ("cuda", 1 << 28),
        ("cuda", 1 << 20),
        ("cuda", 1 << 18),
    ):
        out = Path(f"{device}-{memory}")
        run(Request(["a.npy"], out, mode=mode, dt="0.02", start="zero", device=device,
                    backend="auto" if device == "cpu" else backend, memory=memory))  # fmt: skip
        for name in PARTS:
            found, want = (np.load(p / f"{name}.npy") for p in (out, Path(f"cpu-{1 << 28}")))
            assert_close(found, want, f"{name}, {memory}")


def test_a_run_that_finds_the_device_full_goes_on_in_smaller_blocks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.random.default_rng(0).standard_normal((20_000, 100, 7), dtype=np.float32))
    asked = Request(["a.npy"], Path("out"), dt="0.02", start="zero", device="cuda", memory=1 << 32)
    free = torch.cuda.mem_get_info()[0]
    monkeypatch.setattr("trajcli.jobs.plan.free_bytes", lambda name: free)  # others come later
    hog = torch.empty(free - (150 << 20), dtype=torch.uint8, device=DEVICE)
    report = run(asked)
    del hog
    torch.cuda.empty_cache()
    run(Request(["a.npy"], Path("cpu"), dt="0.02", start="zero", device="cpu"))
    assert any("halved" in note for note in report["notes"])
    for name in PARTS:
        assert_close(np.load(f"out/{name}.npy"), np.load(f"cpu/{name}.npy"), name)
