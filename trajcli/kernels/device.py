"""What a run from file to file needs of a device: memory, and streams of work.

:mod:`trajcli.kernels.cuda` implements it for CUDA; tests do with threads.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol


class DeviceOutOfMemory(Exception):
    """Memory on the device, or pinned memory of the host, does not suffice."""


class DeviceLost(Exception):
    """The device failed during its work and cannot be used any more."""


class Stream(Protocol):
    """Work that is done in the order of its calls; streams run concurrently."""

    def do(self, work: Callable[[], None]) -> None:
        """Run ``work`` after all earlier work; may return before it is done.

        work launches operations of torch and does not wait for them. Raises DeviceOutOfMemory and
        DeviceLost, here or from ``wait``.
        """

    def wait(self) -> None:
        """Return when all work is done. Raises DeviceOutOfMemory and DeviceLost."""


class Device(Protocol):
    """A device with separate memory; ``name`` as torch calls it."""

    name: str

    def pinned(self, count: int) -> Any:
        """Page-locked memory of the host, which the device copies from and to: uint8 [count].

        Raises DeviceOutOfMemory.
        """

    def memory(self, count: int) -> Any:
        """Memory of the device, a tensor uint8 [count]. Raises DeviceOutOfMemory and DeviceLost."""

    def stream(self) -> Stream:
        """A new stream."""

    def release(self) -> None:
        """Free memory that nothing refers to any more."""

    def errors(self) -> AbstractContextManager[None]:
        """Raise the device's errors within as DeviceOutOfMemory or DeviceLost."""
