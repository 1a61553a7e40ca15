"""Which kernels run a job, on which device, and why."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from types import ModuleType

from trajcli.errors import Fault, UsageError

BACKENDS = ("native", "triton", "torch")

START_UP_SECONDS = 3.0
"""What a CUDA device is taken to cost before it computes. Importing torch took 1.1 s (torch 2.13
for the CPU, 2 shared x86-64 cores, 2026-11-21); the rest is an allowance for the device's context
and for loading compiled kernels, not measured yet: benchmarks/gpu.py measures it on a device."""
ACTIONS_PER_SECOND = {"native": 1e8, "torch": 2e6}
"""What the CPU does meanwhile, from file to file: 35 million float32 actions in 0.3 to 0.5 s with
the compiled kernels on the same 2 cores, and torch's 45 to 560 ns for each (benchmarks/README)."""
LEAST_CAPABILITY = (8, 0)
"""What Triton's kernels are compiled for: a device with bfloat16 and enough registers."""


@dataclass(frozen=True)
class Choice:
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


def choose(
    device: str = "auto", backend: str = "auto", actions: int | None = None, local: int = 0
) -> Choice:
    """Pick device and backend.

    actions: how many a job from file to file has; a CUDA device must then be free to use, and is
    picked only where that many pay for its start. local: the number of this process on its
    machine; where ``device`` names no device, processes take them in turn. torch is imported only
    for a CUDA device. Raises UsageError for a device that is not there or a backend this version
    has not.
    """
    if backend not in ("auto", *BACKENDS):
        known = ", ".join(("auto", *BACKENDS))
        raise UsageError(Fault("unknown backend", "--backend", known, repr(backend)))
    why = "" if backend == "auto" else _absence(backend)
    if why:
        raise UsageError(Fault(f"backend {backend} is absent", "--backend", "torch", why))
    if backend == "native" and device == "auto":
        return Choice("native", "cpu", "backend native was asked for")
    name, reason = _device(device, backend, actions, local)
    if backend == "native" and name != "cpu":
        raise UsageError(Fault("backend native runs on the CPU", "--backend", "torch", name))
    if backend == "triton" and name == "cpu" and not interpreted():
        raise UsageError(Fault("backend triton runs on CUDA devices", "--backend", "torch", name))
    if backend == "auto" and name == "cpu":
        backend = _cpu_backend()
    elif backend == "auto":
        backend, because = _device_backend(name)
        reason += f"; {because}"
    return Choice(backend, name, reason)


def absent_backends() -> dict[str, str]:
    """The backends that cannot run here, each with the reason."""
    reasons = {name: _absence(name) for name in BACKENDS}
    return {name: reason for name, reason in reasons.items() if reason}


def preferred(device: str) -> str:
    """Which backend ``auto`` takes on a CUDA device and why, in a few words."""
    backend, because = _device_backend(device)
    return f"{backend} is preferred, {because}"


def interpreted() -> bool:
    """Whether Triton's kernels run in its interpreter, on the CPU: for tests."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "yes", "y")


def _absence(backend: str) -> str:
    """Why a backend cannot run here; empty where it can. Imports torch only for Triton, where
    there is a driver."""
    if backend == "native":
        from trajcli.kernels import native

        return native.absence()
    if backend != "triton":
        from importlib.util import find_spec

        return "" if find_spec("torch") else "torch is not installed"
    from trajcli.kernels import cuda, triton_ops

    return triton_ops.absence() or ("" if interpreted() else cuda.absence())


def _cpu_backend() -> str:
    from trajcli.kernels import native

    return "torch" if native.absence() else "native"


def _device_backend(name: str) -> tuple[str, str]:
    """The backend of a CUDA device, and why."""
    from trajcli.kernels import cuda, triton_ops

    why = triton_ops.absence()
    if why:
        return "torch", f"backend triton is absent: {why}"
    found, least = (
        ".".join(map(str, version)) for version in (cuda.capability(name), LEAST_CAPABILITY)
    )
    if cuda.capability(name) < LEAST_CAPABILITY:
        return "torch", f"backend triton needs compute capability {least}, this has {found}"
    return "triton", f"compiled for compute capability {found}"


def _device(asked: str, backend: str, actions: int | None, local: int) -> tuple[str, str]:
    """The device, and why."""
    from trajcli.kernels import cuda

    if asked == "cpu":
        return "cpu", "asked for"
    if asked == "auto":
        return _by_size(backend, actions, local)
    kind, _, index = asked.partition(":")
    if kind != "cuda" or not (index == "" or re.fullmatch("[0-9]+", index)):
        raise UsageError(
            Fault("unknown device", "--device", "auto, cpu, cuda or cuda:N", repr(asked))
        )
    where, hint, count = f"--device {asked}", "--device cpu runs anywhere", cuda.count()
    if int(index or 0) >= count:
        expected = f"one of {count} CUDA devices" if count else "a CUDA device"
        found = asked if count else cuda.absence()
        raise UsageError(Fault("no such device", where, expected, found, hint))
    name = f"cuda:{int(index) if index else local % count}"
    trouble = "" if actions is None else cuda.trouble(name)
    if trouble:
        raise UsageError(Fault("the device is busy or broken", where, "one free", trouble, hint))
    return name, "asked for"


def _by_size(backend: str, actions: int | None, local: int) -> tuple[str, str]:
    """The device of ``auto``: a CUDA device where there is one and the job pays for its start."""
    from trajcli.kernels import cuda

    if not cuda.driver():
        return "cpu", "no CUDA device is present"
    rate = ACTIONS_PER_SECOND["torch" if backend == "torch" else _cpu_backend()]
    least = START_UP_SECONDS * rate
    if actions is not None and actions < least and backend != "triton":
        few = f"{actions:,} actions take it less than the {START_UP_SECONDS:g} s"
        return "cpu", f"{few} a CUDA device takes to start"
    why = cuda.absence()
    if why:
        return "cpu", f"no CUDA device is present: {why}"
    name = f"cuda:{local % cuda.count()}"
    if actions is None:
        return name, "a CUDA device is present"
    why = cuda.trouble(name)
    if why:
        return "cpu", f"{name} is busy or broken: {why}"
    return name, f"{actions:,} actions pay for its start"
