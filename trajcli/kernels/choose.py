"""Which kernels run a job, on which device, and why."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from functools import cache
from types import ModuleType
from typing import NamedTuple

from trajcli.errors import Fault, UsageError

BACKENDS = ("native", "triton", "torch")

OLDEST_TRITON = (3, 4)
LEAST_CAPABILITY = (7, 5)
"""What Triton's kernels are compiled for and tested with."""

LEAST_ACTIONS = {"native": 300_000_000, "torch": 6_000_000}
"""Smaller jobs finish on the CPU before a CUDA device has started, which takes about 3 s with the
import of torch and the kernels: the compiled kernels do 1e8 actions a second from file to file,
torch on two cores 2e6 (benchmarks/README)."""
LEAST_COLUMNS = 1024
"""Trajectories times dofs. One lane computes a column from its first row to its last: with fewer
columns a device is mostly idle, and a lane is slower than a core."""


class Work(NamedTuple):
    """The size of a job: actions, and columns (trajectory, dof)."""

    actions: int
    columns: int

    @staticmethod
    def of(shapes: Iterable[Sequence[int]]) -> Work:
        """That of trajectories [B, H, D], one shape per length."""
        shapes = list(shapes)
        return Work(sum(b * h * d for b, h, d in shapes), sum(b * d for b, _, d in shapes))


class Choice(NamedTuple):
    """A backend's module, a torch device and the reason for them in a few words."""

    backend: str
    device: str
    reason: str

    @property
    def kernels(self) -> ModuleType:
        if self.backend == "native":
            from trajcli.kernels import native

            return native
        if self.backend == "triton":
            from trajcli.kernels import triton_ops

            return triton_ops
        from trajcli.kernels import torch_ops

        return torch_ops


def choose(device: str = "auto", backend: str = "auto", work: Work | None = None) -> Choice:
    """Pick device and backend.

    work: the size of a job from file to file, for which a CUDA device must be usable, and which
    must be worth its start for ``auto`` to take one; None in memory. torch is imported only for a
    CUDA device. Raises UsageError for an absent device or backend.
    """
    if backend not in ("auto", *BACKENDS):
        known = ", ".join(("auto", *BACKENDS))
        raise UsageError(Fault("unknown backend", "--backend", known, repr(backend)))
    why = "" if backend == "auto" else backend_absence(backend)
    if why:
        raise UsageError(Fault(f"backend {backend} is absent", "--backend", "torch", why))
    if backend == "native" and device == "auto":
        return Choice("native", "cpu", "--backend native")
    if device == "auto":
        name, reason = _automatic_device(backend, work)
    else:
        name, reason = _named_device(device, work)
    if backend == "native" and name != "cpu":
        raise UsageError(Fault("backend native runs on the CPU", "--backend", "torch", name))
    if backend == "triton" and name == "cpu" and not interpreted():
        raise UsageError(Fault("backend triton runs on CUDA devices", "--backend", "torch", name))
    if backend == "auto":
        backend, because = device_backend(name) if name != "cpu" else _cpu_backend()
        reason += f"; {because}" if because else ""
    return Choice(backend, name, reason)


def interpreted() -> bool:
    """Whether Triton's kernels run in its interpreter, on the CPU: for tests."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "yes", "y")


def backend_absence(backend: str) -> str:
    """Why a backend cannot run here; empty where it can. Imports torch only for Triton, where
    there is a driver."""
    if backend == "native":
        from trajcli.kernels import native

        return native.absence()
    if backend != "triton":
        from importlib.util import find_spec

        return "" if find_spec("torch") else "torch is not installed"
    from trajcli.kernels import cuda

    return ("" if interpreted() else cuda.absence()) or triton_absence()


@cache
def triton_absence() -> str:
    """Why Triton cannot be used on any device; empty where it can."""
    try:
        import triton
    except ImportError:
        return "triton is not installed; it comes with torch's CUDA builds"
    version = tuple(int(part) for part in re.findall("[0-9]+", triton.__version__)[:2])
    oldest = ".".join(map(str, OLDEST_TRITON))
    return f"triton {triton.__version__} is older than {oldest}" if version < OLDEST_TRITON else ""


def _cpu_backend() -> tuple[str, str]:
    from trajcli.kernels import native

    why = native.absence()
    return ("torch", f"kernels {why}; torch takes ten times as long") if why else ("native", "")


def device_backend(name: str) -> tuple[str, str]:
    """The backend that ``auto`` takes on a CUDA device, and why."""
    from trajcli.kernels import cuda

    why = triton_absence()
    if why:
        return "torch", f"backend triton is absent: {why}"
    capability = cuda.capability(name)
    number, least = (".".join(map(str, x)) for x in (capability, LEAST_CAPABILITY))
    if capability < LEAST_CAPABILITY:
        return "torch", f"backend triton needs compute capability {least}, this has {number}"
    why = _probe(name)
    if why:
        return "torch", f"backend triton compiles no kernel here: {why}"
    return "triton", f"compiled for compute capability {number}"


@cache
def _probe(name: str) -> str:
    """Why Triton cannot compile and run a small kernel on a device; empty where it can.

    Triton builds C at run time, and may not support the card.
    """
    from trajcli.kernels import triton_ops

    try:
        triton_ops.probe(name)
    except Exception as error:
        lines = str(error).strip().split("\n")
        return f"{type(error).__name__}: {lines[0]}"
    return ""


def _named_device(device: str, work: Work | None) -> tuple[str, str]:
    """The device that the caller names, in full, and the reason."""
    from trajcli.kernels import cuda

    reason = f"--device {device}"
    if device == "cpu":
        return "cpu", reason
    kind, _, index = device.partition(":")
    if kind != "cuda" or not (index == "" or re.fullmatch("[0-9]+", index)):
        raise UsageError(
            Fault("unknown device", "--device", "auto, cpu, cuda or cuda:N", repr(device))
        )
    hint, count = "--device cpu runs anywhere", cuda.count()
    if int(index or 0) >= count:
        expected = f"one of {count} CUDA devices" if count else "a CUDA device"
        present = device if count else cuda.absence()
        raise UsageError(Fault("no such device", reason, expected, present, hint))
    name = f"cuda:{int(index or 0)}"
    trouble = "" if work is None else cuda.trouble(name)
    if trouble:
        raise UsageError(Fault("the device is busy or broken", reason, "a free one", trouble, hint))
    return name, reason


def _automatic_device(backend: str, work: Work | None) -> tuple[str, str]:
    """The device of ``auto`` and the reason: a CUDA device where one is present and worth it."""
    from trajcli.kernels import cuda

    if not cuda.driver():
        return "cpu", "no CUDA device is present"
    why = "" if work is None else _too_little(backend, work)
    if why:
        return "cpu", why
    why = cuda.absence()
    if why:
        return "cpu", f"no CUDA device is present: {why}"
    name = "cuda:0"
    why = "" if work is None else cuda.trouble(name)
    if why:
        return "cpu", f"{name} is busy or broken: {why}"
    return name, "a CUDA device is present" + ("" if work is None else ", and the job is large")


def _too_little(backend: str, work: Work) -> str:
    """Why a job is too small for a CUDA device; empty where it is not."""
    if backend == "triton":
        return ""
    least = LEAST_ACTIONS["torch" if backend == "torch" else _cpu_backend()[0]]
    if work.actions < least:
        return f"fewer than {least:,} actions do not pay for a CUDA device's start"
    if work.columns < LEAST_COLUMNS and backend != "torch":
        return f"a CUDA device has one lane for each trajectory and dof, here {work.columns:,}"
    return ""
