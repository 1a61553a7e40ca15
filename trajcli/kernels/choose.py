"""Which kernels run a job, on which device, and why."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from types import ModuleType

from trajcli.errors import Fault, UsageError

BACKENDS = ("native", "triton", "torch")


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


def choose(device: str = "auto", backend: str = "auto") -> Choice:
    """Pick device and backend.

    Raises UsageError for a device that is not there or a backend this version has not.
    """
    if backend not in ("auto", *BACKENDS):
        known = ", ".join(("auto", *BACKENDS))
        raise UsageError(Fault("unknown backend", "--backend", known, repr(backend)))
    why = _absence(backend)
    if why:
        raise UsageError(Fault(f"backend {backend} is absent", "--backend", "torch", why))
    if backend == "native" and device == "auto":
        return Choice("native", "cpu", "backend native was asked for")
    name, reason = _device(device)
    if backend == "native" and name != "cpu":
        raise UsageError(Fault("backend native runs on the CPU", "--backend", "torch", name))
    if backend == "triton" and name == "cpu" and not interpreted():
        raise UsageError(Fault("backend triton runs on CUDA devices", "--backend", "torch", name))
    if backend == "auto":
        backend = "native" if name == "cpu" else "triton"
        why = _absence(backend)
        if why:
            reason += "" if name == "cpu" else f"; backend triton is absent: {why}"
            backend = "torch"
    return Choice(backend, name, reason)


def absent_backends() -> dict[str, str]:
    """The backends that cannot run here, each with the reason."""
    reasons = {name: _absence(name) for name in BACKENDS}
    return {name: reason for name, reason in reasons.items() if reason}


def _absence(backend: str) -> str:
    """Why a backend cannot run here; empty where it can. Imports torch only for Triton, where
    there is a driver."""
    from trajcli.kernels import native, triton_ops

    if backend == "native":
        return native.absence()
    if backend != "triton":
        return ""
    no_device = not interpreted() and not cuda_devices()
    return triton_ops.absence() or ("there is no CUDA device" if no_device else "")


def interpreted() -> bool:
    """Whether Triton's kernels run in its interpreter, on the CPU: for tests."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "yes", "y")


def cuda_devices() -> int:
    """How many CUDA devices torch can use; torch is not asked where there is no driver."""
    if not any(os.path.exists(path) for path in ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl")):
        return 0
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _device(asked: str) -> tuple[str, str]:
    if asked == "cpu":
        return "cpu", "asked for"
    count = cuda_devices()
    if asked == "auto":
        if count:
            return "cuda:0", "a CUDA device is present"
        return "cpu", "no CUDA device is present"
    kind, _, index = asked.partition(":")
    if kind != "cuda" or not (index == "" or re.fullmatch("[0-9]+", index)):
        raise UsageError(
            Fault("unknown device", "--device", "auto, cpu, cuda or cuda:N", repr(asked))
        )
    if int(index or 0) >= count:
        hint = "--device cpu runs anywhere"
        raise UsageError(
            Fault(
                "no such device", f"--device {asked}", f"one of {count} CUDA devices", asked, hint
            )
        )
    return f"cuda:{int(index or 0)}", "asked for"
