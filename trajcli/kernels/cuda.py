"""CUDA devices: which are present and usable, and how they fail."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

# Nodes of a driver: on servers, on Linux inside Windows, on boards with a built-in device.
_DRIVERS = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/nvhost-ctrl", "/dev/nvmap")


class DeviceOutOfMemory(Exception):
    """Raised when the device's memory is full."""


class DeviceLost(Exception):
    """Raised when the device failed during its work and cannot be used any more."""


def driver() -> bool:
    """Returns whether a driver is loaded. Its devices may still be unusable."""
    return any(os.path.exists(path) for path in _DRIVERS)


@cache
def absence() -> str:
    """Returns why there is no CUDA device, or empty. Imports torch only if a driver is loaded."""
    if not driver():
        return "no NVIDIA driver is loaded"
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if torch.cuda.is_available() and torch.cuda.device_count():
            return ""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    why = [str(warning.message).split("\n")[0] for warning in caught[:1]]
    why += [] if visible is None else [f"CUDA_VISIBLE_DEVICES is {visible!r}"]
    return ": ".join(["torch finds no CUDA device", *why])


def count() -> int:
    """Returns how many devices torch can use. Imports torch only if a driver is loaded."""
    if absence():
        return 0
    import torch

    return torch.cuda.device_count()


def trouble(name: str) -> str:
    """Returns why a present device cannot be used now; empty where it can.

    The first call creates the process's context on the device, which takes a while.
    """
    import torch

    try:
        torch.zeros(1, device=name)
        torch.cuda.synchronize(name)
    except RuntimeError as error:
        return first_line(error)
    return ""


def free_bytes(name: str) -> int:
    """Returns how many bytes of a device's memory are free."""
    import torch

    return int(torch.cuda.mem_get_info(name)[0])


# Messages of CUDA for a device that failed; any other is a fault of the request.
_LOST = (
    *("unspecified launch failure", "launch timed out", "uncorrectable", "hardware stack error"),
    *("unknown error", "GPU is lost", "fallen off the bus", "NVLink", "context is destroyed"),
    "busy or unavailable",
)


@contextmanager
def device_errors() -> Iterator[None]:
    """Raises a CUDA error within as DeviceOutOfMemory or DeviceLost if it is one of these."""
    import torch

    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise DeviceOutOfMemory(first_line(error)) from None
    except RuntimeError as error:
        text = str(error)
        if "out of memory" in text:
            raise DeviceOutOfMemory(first_line(error)) from None
        if any(words in text for words in _LOST):
            raise DeviceLost(first_line(error)) from None
        raise


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message."""
    return str(error).strip().split("\n")[0]
