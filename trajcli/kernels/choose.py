"""Which kernels run a job, on which device, and why."""

from __future__ import annotations

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
        from trajcli.kernels import torch_ops

        return torch_ops


def choose(device: str = "auto", backend: str = "auto") -> Choice:
    """Pick device and backend.

    Raises UsageError for a device that is not there or a backend this version has not.
    """
    if backend not in ("auto", *BACKENDS):
        known = ", ".join(("auto", *BACKENDS))
        raise UsageError(Fault("unknown backend", "--backend", known, repr(backend)))
    if backend in ("native", "triton"):
        absent = absent_backends()[backend]
        raise UsageError(Fault(f"backend {backend} is absent", "--backend", "torch", absent))
    name, reason = _device(device)
    return Choice("torch", name, reason)


def absent_backends() -> dict[str, str]:
    """The backends that cannot run here, each with the reason."""
    return {
        "native": "not part of this version of trajcli",
        "triton": "not part of this version of trajcli",
    }


def _device(asked: str) -> tuple[str, str]:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if asked == "auto":
        if count:
            return "cuda:0", "a CUDA device is present"
        return "cpu", "no CUDA device is present"
    if asked == "cpu":
        return "cpu", "asked for"
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
