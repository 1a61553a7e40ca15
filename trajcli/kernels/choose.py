"""Which kernels run a job, on which device, and why."""

from __future__ import annotations

import os
import re
import sys
import time
from dataclasses import dataclass
from types import ModuleType

from trajcli.errors import Fault, UsageError

BACKENDS = ("native", "triton", "torch")

LEAST_CAPABILITY = (8, 0)
"""What Triton's kernels are compiled for: a device with bfloat16 and enough registers."""


@dataclass(frozen=True)
class Choice:
    """A backend's module, a torch device and the reason for them in a few words.

    ``start``: seconds that a CUDA device's start has taken by then, with the import of torch;
    None where torch was there before.
    """

    backend: str
    device: str
    reason: str
    start: float | None = None

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
    device: str = "auto",
    backend: str = "auto",
    actions: int | None = None,
    local: int = 0,
    shared: bool = False,
    before: str = "",
) -> Choice:
    """Pick device and backend.

    actions: how many a job from file to file has; a CUDA device must then be free to use, and is
    picked only where that many pay for its start, by what this machine has measured
    (:mod:`trajcli.kernels.speeds`). local: the number of this process on its machine; where
    ``device`` names no device, processes take them in turn. shared: processes on several machines
    have to come to the same answer. before: the backend that the job was begun with, kept where
    it can be. torch is imported only for a CUDA device. Raises UsageError for a device that is
    not there or a backend this version has not.
    """
    began = None if "torch" in sys.modules else time.perf_counter()
    if backend not in ("auto", *BACKENDS):
        known = ", ".join(("auto", *BACKENDS))
        raise UsageError(Fault("unknown backend", "--backend", known, repr(backend)))
    why = "" if backend == "auto" else _absence(backend)
    if why:
        raise UsageError(Fault(f"backend {backend} is absent", "--backend", "torch", why))
    if backend == "native" and device == "auto":
        return Choice("native", "cpu", "backend native was asked for")
    if device == "auto":
        name, reason = _free(backend, actions, local, shared, before)
    else:
        name, reason = _asked(device, actions, local)
    if backend == "native" and name != "cpu":
        raise UsageError(Fault("backend native runs on the CPU", "--backend", "torch", name))
    if backend == "triton" and name == "cpu" and not interpreted():
        raise UsageError(Fault("backend triton runs on CUDA devices", "--backend", "torch", name))
    if backend == "auto" and name == "cpu":
        backend = _cpu_backend()
    elif backend == "auto":
        backend, because = _device_backend(name)
        reason += f"; {because}"
    start = None if began is None or name == "cpu" else time.perf_counter() - began
    return Choice(backend, name, reason, start)


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


def _asked(asked: str, actions: int | None, local: int) -> tuple[str, str]:
    """The device that was asked for, by its full name, and why."""
    from trajcli.kernels import cuda

    if asked == "cpu":
        return "cpu", "asked for"
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


def _free(
    backend: str, actions: int | None, local: int, shared: bool, before: str
) -> tuple[str, str]:
    """The device of ``auto``, and why: a CUDA device where there is one and the job pays for it."""
    from trajcli.kernels import cuda

    if not cuda.driver():
        return "cpu", "no CUDA device is present"
    pays, reason = _weighed(backend, actions, shared, before)
    if not pays:
        return "cpu", reason
    why = cuda.absence()
    if why:
        return "cpu", f"no CUDA device is present: {why}"
    name = f"cuda:{local % cuda.count()}"
    why = "" if actions is None else cuda.trouble(name)
    if why:
        return "cpu", f"{name} is busy or broken: {why}"
    return name, reason


def _weighed(backend: str, actions: int | None, shared: bool, before: str) -> tuple[bool, str]:
    """Whether a CUDA device is worth asking for, and why."""
    if actions is None:
        return True, "a CUDA device is present"
    if backend == "triton":
        return True, "backend triton was asked for"
    from trajcli.kernels import speeds

    cpu = "torch" if backend == "torch" else _cpu_backend()
    if before and backend == "auto":
        return before != cpu, f"the run it goes on with had backend {before}"
    known = speeds.BUILT_IN if shared else speeds.figures()
    device = ("torch",) if backend == "torch" else ("triton", "torch")
    estimate = speeds.estimate(actions, cpu, device, known)
    return estimate.pays, estimate.words
