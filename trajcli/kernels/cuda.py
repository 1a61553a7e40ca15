"""CUDA devices: whether there is one and can be used, and the device of a run on streams."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

from trajcli.kernels.device import Lost, NoRoom

_DRIVERS = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/nvhost-ctrl", "/dev/nvmap")
"""What a driver shows: of servers, of Linux inside Windows, of boards with a built-in device."""


def driver() -> bool:
    """Whether a driver is loaded, which says nothing of what can be used."""
    return any(os.path.exists(path) for path in _DRIVERS)


@cache
def absence() -> str:
    """What is missing for CUDA; empty where a device is there. Imports torch only for a driver."""
    if not driver():
        return "no NVIDIA driver is loaded"
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if torch.cuda.is_available() and torch.cuda.device_count():
            return ""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    why = [str(warning.message).split("\n")[0] for warning in said[:1]]
    why += [] if visible is None else [f"CUDA_VISIBLE_DEVICES is {visible!r}"]
    return ": ".join(["torch finds no CUDA device", *why])


def count() -> int:
    """How many devices torch can use; torch is not asked where there is no driver."""
    if absence():
        return 0
    import torch

    return torch.cuda.device_count()


def trouble(name: str) -> str:
    """Why a device that is there cannot be used at present; empty where it can.

    The first to ask makes the process known to the device, which takes a while.
    """
    import torch

    try:
        torch.zeros(1, device=name)
        torch.cuda.synchronize(name)
    except RuntimeError as error:
        return _first_line(error)
    return ""


def capability(name: str) -> tuple[int, int]:
    """The compute capability of a device."""
    import torch

    return torch.cuda.get_device_capability(name)


def free_bytes(name: str) -> int:
    """Bytes of a device that nobody uses."""
    import torch

    return int(torch.cuda.mem_get_info(name)[0])


class Cuda:
    """See :class:`trajcli.kernels.device.Device`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def pinned(self, count: int) -> Any:
        import torch

        with judged():
            return torch.empty(count, dtype=torch.uint8, pin_memory=True)

    def memory(self, count: int) -> Any:
        import torch

        with judged():
            return torch.empty(count, dtype=torch.uint8, device=self.name)

    def stream(self) -> CudaStream:
        return CudaStream(self.name)

    def release(self) -> None:
        import torch

        with judged():
            torch.cuda.empty_cache()

    def errors(self) -> AbstractContextManager[None]:
        return judged()


class CudaStream:
    """See :class:`trajcli.kernels.device.Stream`."""

    def __init__(self, name: str) -> None:
        import torch

        with judged():
            self._stream = torch.cuda.Stream(name)  # type: ignore[no-untyped-call]
            # blocking: who waits leaves the processor to others
            self._done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]

    def do(self, work: Callable[[], None]) -> None:
        import torch

        with judged(), torch.inference_mode(), torch.cuda.stream(self._stream):
            work()
            self._done.record(self._stream)

    def wait(self) -> None:
        with judged():
            self._done.synchronize()


_LOST = (
    *("unspecified launch failure", "launch timed out", "uncorrectable", "hardware stack error"),
    *("unknown error", "GPU is lost", "fallen off the bus", "NVLink", "context is destroyed"),
    "devices are busy or unavailable",
)
"""What CUDA says of a device that failed; all else is a fault of what it was asked for."""


@contextmanager
def judged() -> Iterator[None]:
    """Errors of CUDA within come out as NoRoom or Lost where they are such; others as they are."""
    import torch

    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise NoRoom(_first_line(error)) from None
    except RuntimeError as error:
        text = str(error)
        if "out of memory" in text:
            raise NoRoom(_first_line(error)) from None
        if any(words in text for words in _LOST):
            raise Lost(_first_line(error)) from None
        raise


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0]
