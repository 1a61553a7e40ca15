"""Files are computed on the CPU unless a device is named; one that cannot be used is an error."""

from __future__ import annotations

import pytest
import torch

from trajcli.errors import UsageError
from trajcli.kernels import cuda
from trajcli.kernels.choose import choose
from trajcli.kernels.cuda import DeviceLost, DeviceOutOfMemory, device_errors


@pytest.fixture
def two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "driver", lambda: True)
    monkeypatch.setattr(cuda, "absence", lambda: "")
    monkeypatch.setattr(cuda, "count", lambda: 2)
    monkeypatch.setattr(cuda, "trouble", lambda name: "")
    monkeypatch.setattr(cuda, "capability", lambda name: (9, 0))
    monkeypatch.setattr("trajcli.kernels.choose._probe", lambda name: "")


def test_a_device_is_taken_where_it_is_named(two_devices):
    assert choose(ready=True).device == "cpu"
    assert choose("cuda", ready=True).device == "cuda:0"
    assert choose("cuda:1", "torch")[:2] == ("torch", "cuda:1")
    with pytest.raises(UsageError, match="triton runs on CUDA devices"):
        choose(backend="triton")


@pytest.mark.parametrize("name", ["cuda:2", "cuda:", "cuda:x", "gpu"])
def test_a_device_that_is_absent_is_an_error(two_devices, name):
    with pytest.raises(UsageError, match=r"no such device|unknown device"):
        choose(name)


def test_a_device_that_does_not_answer_is_an_error(two_devices, monkeypatch):
    monkeypatch.setattr(cuda, "trouble", lambda name: "all CUDA-capable devices are busy")
    with pytest.raises(UsageError, match=r"busy or broken(?s:.*)devices are busy"):
        choose("cuda", ready=True)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("trajcli.kernels.cuda.capability", (7, 0), "needs compute capability 7.5, this has 7.0"),
        ("trajcli.kernels.choose.triton_absence", "it is too old", "absent: it is too old"),
        ("trajcli.kernels.choose._probe", "no C compiler", "no kernel here: no C compiler"),
    ],
)
def test_where_triton_cannot_be_had_torch_is_taken_and_why_is_said(
    two_devices, monkeypatch, name, value, says
):
    monkeypatch.setattr(name, lambda *device: value)
    choice = choose("cuda")
    assert choice.backend == "torch"
    assert says in choice.reason


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate"), DeviceOutOfMemory),
        (RuntimeError("CUDA error: out of memory\nmore"), DeviceOutOfMemory),
        (RuntimeError("CUDA error: unspecified launch failure\nmore"), DeviceLost),
        (RuntimeError("CUDA error: uncorrectable ECC error encountered\nmore"), DeviceLost),
        (RuntimeError("CUDA error: invalid configuration argument"), RuntimeError),
        (RuntimeError("shapes differ"), RuntimeError),
        (ValueError("CUDA"), ValueError),
    ],
)
def test_errors_of_cuda_are_told_apart(error, kind):
    with pytest.raises(kind) as raised, device_errors():
        raise error
    assert raised.type is kind
    assert "more" not in str(raised.value)
