"""A run on a device gives the values of a run on the CPU, in smaller blocks if it must.

Where there is no CUDA device, torch's kernels on the CPU stand for one that has little memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from trajcli.errors import InputError, Stopped, UsageError
from trajcli.jobs.request import DifferentiateRequest, Request
from trajcli.jobs.run import run
from trajcli.kernels import cuda, torch_ops
from trajcli.kernels.choose import Choice

BATCH, HORIZON, DOFS = 23, 150, 3
OUT_OF_MEMORY = torch.cuda.OutOfMemoryError("CUDA out of memory, 3 bytes free\nmore")
LOST = RuntimeError("CUDA error: unspecified launch failure\nmore")


@pytest.fixture
def request_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Request:
    """Makes the request of a run in many blocks."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    actions = random.standard_normal((BATCH, HORIZON, DOFS))
    np.save("actions.npy", actions.astype("f4"))
    np.save("halves.npy", actions.astype(">f2"))
    np.save("counts.npy", (100 * actions).astype("i2"))
    np.save("all.npy", random.uniform(0.01, 0.1, (BATCH, HORIZON)))
    np.save("index.npy", random.integers(0, 4, BATCH))
    np.save("states.npy", random.standard_normal((4, DOFS)))
    with h5py.File("lengths.h5", "w") as file:
        for k, rows in enumerate((70, 40, 70, 90, 40)):
            file[f"demo_{k}/actions"] = actions[k, :rows]
    return Request(sources=["actions.npy"], out=Path("out.h5"), dt="0.02", start="zero")


@pytest.fixture
def want(request_, monkeypatch) -> Callable[[Request], bytes]:
    """Computes a run by torch on the CPU, in one block; later runs are on the device."""

    def compute(request: Request) -> bytes:
        choice = Choice("torch", "cpu", "a test")
        monkeypatch.setattr("trajcli.jobs.plan.choose", lambda *_, **__: choice)
        run(replace(request, out=Path("want.h5")))
        device = choice._replace(device="cpu:0")
        monkeypatch.setattr("trajcli.jobs.plan.choose", lambda *_, **__: device)
        monkeypatch.setattr("trajcli.jobs.plan.free_bytes", lambda name: 5 << 18)
        return Path("want.h5").read_bytes()

    return compute


@pytest.fixture
def fail(monkeypatch) -> Callable[..., None]:
    """Makes kernels fail at the n-th block, and at all blocks with more trajectories."""
    forward, calls = torch_ops.forward, [0]

    def install(error: BaseException, block: int = 0, most: int = BATCH) -> None:
        def failing(program: Any, operands: Any, out: Any) -> None:
            calls[0] += 1
            if calls[0] == block or len(operands.actions) > most:
                raise error
            forward(program, operands, out)

        monkeypatch.setattr(torch_ops, "forward", failing)

    return install


CASES: dict[str, dict[str, Any]] = {
    "a dt for every step": {"dt": "all.npy", "mode": "velocity"},
    "states by index": {"start": "states.npy", "start_index": "index.npy"},
    "bspline": {"mode": "bspline"},
    "half precision": {"sources": ["halves.npy"]},
    "whole numbers": {"sources": ["counts.npy"], "mode": "jerk"},
    "float64, one quantity": {"dtype": "float64", "write": ("velocity",)},
    "different lengths": {"sources": ["lengths.h5:*/actions"]},
    "gradients": {"cost": "jerk"},
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_a_device_writes_the_same_values(request_, want, options):
    request = replace(request_, **options)
    expected = want(request)
    assert run(request)["block"]["trajectories"] < BATCH
    assert request.out.read_bytes() == expected


@pytest.mark.skipif(not cuda.count(), reason="no CUDA device")
@pytest.mark.parametrize("kind", [Request, DifferentiateRequest])
def test_a_cuda_device_gives_the_values_of_the_cpu(request_, kind):
    """Covers integrate, and differentiate by the smoothing spline."""
    if kind is DifferentiateRequest:
        request_ = kind(sources=request_.sources, out=request_.out, dt=request_.dt)
    run(replace(request_, out=Path("want.h5")))
    assert run(replace(request_, device="cuda"))["device"] == "cuda:0"
    with h5py.File("out.h5") as file, h5py.File("want.h5") as expected:
        for name in ("position", "velocity", "acceleration", "jerk"):
            np.testing.assert_allclose(file[name], expected[name], rtol=2e-7, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "failing"),
    [({"dt": "all.npy"}, {"block": 3}), ({"cost": "jerk"}, {"block": 3}), ({}, {"most": 1})],
)
def test_short_memory_halves_blocks_as_often_as_needed(request_, want, fail, options, failing):
    request = replace(request_, **options)
    expected = want(request)
    fail(OUT_OF_MEMORY, **failing)
    report = run(request)
    assert request.out.read_bytes() == expected
    assert report["notes"] == ["blocks were halved: memory on cpu:0 was short"]


def test_no_room_for_the_smallest_block_is_one_message(request_, want, fail):
    want(request_)
    fail(OUT_OF_MEMORY, most=0)
    with pytest.raises(UsageError) as refused:
        run(request_)
    (fault,) = refused.value.faults
    assert (fault.what, fault.where) == ("no room for the smallest block", "--device cpu:0")
    assert fault.found == "CUDA out of memory, 3 bytes free"
    assert not list(Path().glob("*out*"))


def test_a_lost_device_stops_a_run_that_can_be_repeated(request_, want, fail):
    expected = want(request_)
    fail(LOST, block=3)
    with pytest.raises(Stopped) as stopped:
        run(request_)
    assert stopped.value.exit_code == 75
    assert "the loss of cpu:0" in stopped.value.faults[0].what
    assert not list(Path().glob("out*"))
    run(request_)
    assert request_.out.read_bytes() == expected


def test_wrong_values_are_named_and_nothing_is_left(request_, want):
    want(request_)
    actions = np.load("actions.npy")
    actions[20, 5, 1] = np.nan
    np.save("actions.npy", actions)
    with pytest.raises(InputError, match="trajectory 20, step 5, dof 1"):
        run(request_)
    assert not list(Path().glob("*out*"))
