"""Finds CUDA devices, and tells how they fail. torch is imported only where a driver is loaded."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

# Nodes that a loaded driver creates: on servers, on Linux inside Windows, on boards with a built-in
# device. Looking for them takes microseconds, importing torch seconds.
_DRIVERS = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/nvhost-ctrl", "/dev/nvmap")


class DeviceOutOfMemory(Exception):
    """Raised when the device's memory is full."""


class DeviceLost(Exception):
    """Raised when the device failed during its work and cannot be used any more."""


def driver() -> bool:
    """Tells whether a driver is loaded, whose devices may still be unusable."""
    return any(os.path.exists(path) for path in _DRIVERS)


@cache
def absence() -> str:
    """Says why there is no CUDA device; empty where there is one."""
    if not driver():
        return "no NVIDIA driver is loaded"
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    # torch warns of a driver that does not fit; the warning is part of the reason
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if torch.cuda.is_available() and torch.cuda.device_count():
            return ""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    why = [str(warning.message).split("\n")[0] for warning in caught[:1]]
    why += [] if visible is None else [f"CUDA_VISIBLE_DEVICES is {visible!r}"]
    return ": ".join(["torch finds no CUDA device", *why])


def count() -> int:
    if absence():
        return 0
    import torch

    return torch.cuda.device_count()


def trouble(name: str) -> str:
    """Says why a present device cannot be used now; empty where it can."""
    import torch

    # A device that other processes fill, or forbid to share, fails at its first kernel. The first
    # call creates this process's context on the device, which takes a while.
    try:
        torch.zeros(1, device=name)
        torch.cuda.synchronize(name)
    except RuntimeError as error:
        return first_line(error)
    return ""


def free_bytes(name: str) -> int:
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
    """Turns CUDA errors of its block into DeviceOutOfMemory and DeviceLost."""
    import torch

    # torch has a type for its own allocator's failures alone; CUDA's come as RuntimeError with text
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
    """Cuts an error's message to its first line: CUDA's go on with advice for developers."""
    return str(error).strip().split("\n")[0]
