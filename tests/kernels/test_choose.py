"""Files are computed on the CPU unless a device is named; one that cannot be used is an error."""

from __future__ import annotations

import pytest
import torch

from trajcli.errors import UsageError
from trajcli.kernels import cuda
from trajcli.kernels.choose import choose, choose_for_tensors
from trajcli.kernels.cuda import DeviceLost, DeviceOutOfMemory, device_errors


@pytest.fixture
def two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "driver", lambda: True)
    monkeypatch.setattr(cuda, "absence", lambda: "")
    monkeypatch.setattr(cuda, "count", lambda: 2)
    monkeypatch.setattr(cuda, "trouble", lambda name: "")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda name: (9, 0))
    monkeypatch.setattr("trajcli.kernels.choose._probe", lambda name: None)
    monkeypatch.setattr("trajcli.kernels.choose._device_backends", {})


def test_a_device_is_taken_where_it_is_named(two_devices):
    assert choose().device == "cpu"
    assert choose("cuda").device == "cuda:0"
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
        choose("cuda")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("torch.cuda.get_device_capability", (7, 0), "needs compute capability 7.5, this has 7.0"),
        ("trajcli.kernels.choose.triton_absence", "it is too old", "absent: it is too old"),
    ],
)
def test_torch_runs_without_triton_and_the_reason_is_reported(
    two_devices, monkeypatch, name, value, says
):
    monkeypatch.setattr(name, lambda *device: value)
    choice = choose("cuda")
    assert choice.backend == "torch"
    assert says in choice.reason


def probing(monkeypatch: pytest.MonkeyPatch, *results: Exception | None) -> list[str]:
    """Probes that end with these results, one after another; returns the names of devices."""
    names, left = [], list(results)

    def probe(name: str) -> None:
        names.append(name)
        error = left.pop(0)
        if error is not None:
            raise error

    monkeypatch.setattr("trajcli.kernels.choose._probe", probe)
    return names


def test_a_kernel_is_compiled_once_to_see_whether_it_can_be(two_devices, monkeypatch):
    for error, backend in ((None, "triton"), (RuntimeError("no C compiler\nmore"), "torch")):
        monkeypatch.setattr("trajcli.kernels.choose._device_backends", {})
        names = probing(monkeypatch, error)
        for _ in range(3):
            choice = choose("cuda:1")
            assert choice.backend == backend
        assert names == ["cuda:1"]
    assert "no kernel here: RuntimeError: no C compiler" in choice.reason


@pytest.mark.parametrize("passing", [DeviceOutOfMemory("memory is full"), DeviceLost("is busy")])
def test_what_may_pass_is_looked_at_again(two_devices, monkeypatch, passing):
    probing(monkeypatch, passing, None)
    first = choose("cuda")
    assert first.backend == "torch"
    assert str(passing) in first.reason
    assert choose("cuda").backend == "triton"


def test_the_first_call_on_a_device_is_not_captured(two_devices, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda name: (9, 0))
    monkeypatch.setattr("trajcli.kernels.choose._device_backends", {})
    with pytest.raises(UsageError, match="cannot be captured"):
        choose_for_tensors(torch.device("cuda:0"), "auto")


@pytest.mark.parametrize("name", ["xpu:0", "mps", "cuda:0"])
def test_tensors_are_computed_where_they_are(monkeypatch, name):
    """Whatever nodes of drivers there are; Triton's kernels are for CUDA alone."""
    monkeypatch.setattr(cuda, "driver", lambda: False)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr("trajcli.kernels.choose._device_backends", {})
    assert choose_for_tensors(torch.device(name), "auto")[:2] == ("torch", name)
    assert choose_for_tensors(torch.device(name), "torch")[:2] == ("torch", name)
    for backend in ("native", "triton", "none"):
        with pytest.raises(UsageError, match="cannot run on the device"):
            choose_for_tensors(torch.device(name), backend)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate"), DeviceOutOfMemory),
        (RuntimeError("CUDA error: out of memory\nmore"), DeviceOutOfMemory),
        (RuntimeError("CUDA error: unspecified launch failure\nmore"), DeviceLost),
        (RuntimeError("CUDA-capable device(s) is/are busy or unavailable\nmore"), DeviceLost),
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
