"""Which kernels run a job, on which device, and why."""

from __future__ import annotations

import re
from functools import cache
from types import ModuleType
from typing import NamedTuple

from trajcli.errors import UsageError
from trajcli.kernels import cuda

BACKENDS = ("native", "triton", "torch")

OLDEST_TRITON = (3, 4)
LEAST_CAPABILITY = (7, 5)
"""What Triton's kernels are compiled for and tested with."""


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


_BACKEND = "TRAJCLI_BACKEND, or backend= in Python"


def choose(device: str = "auto", backend: str = "auto", ready: bool = False) -> Choice:
    """Pick device and backend; the device of ``auto`` is the CPU.

    ready: a CUDA device must not only be there, but answer. torch is imported only for a CUDA
    device. Raises UsageError for an absent device or backend.
    """
    if backend not in ("auto", *BACKENDS):
        raise UsageError(
            "unknown backend",
            where=_BACKEND,
            expected=", ".join(("auto", *BACKENDS)),
            found=repr(backend),
        )
    why = "" if backend == "auto" else backend_absence(backend)
    if why:
        raise UsageError(
            f"backend {backend} is absent", where=_BACKEND, expected="torch", found=why
        )
    reason = "the default" if device == "auto" else f"--device {device}"
    name = "cpu" if device in ("auto", "cpu") else _cuda_device(device, ready)
    if backend == "native" and name != "cpu":
        raise UsageError(
            "backend native runs on the CPU", where=_BACKEND, expected="torch", found=name
        )
    if backend == "triton" and name == "cpu" and not cuda.interpreted():
        raise UsageError(
            "backend triton runs on CUDA devices",
            where=_BACKEND,
            expected="torch",
            found=name,
            hint="--device cuda",
        )
    if backend == "auto":
        backend, because = device_backend(name) if name != "cpu" else _cpu_backend()
        reason += f"; {because}" if because else ""
    return Choice(backend, name, reason)


def backend_absence(backend: str) -> str:
    """Why a backend cannot run here; empty where it can. Imports torch only for Triton, where
    there is a driver."""
    if backend == "native":
        from trajcli.kernels import native

        return native.absence()
    if backend != "triton":
        from importlib.util import find_spec

        return "" if find_spec("torch") else "torch is not installed"

    return ("" if cuda.interpreted() else cuda.absence()) or triton_absence()


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


def _cuda_device(device: str, ready: bool) -> str:
    """Returns torch's name for cuda or cuda:N; raises UsageError where there is no such device."""

    match = re.fullmatch("cuda(?::([0-9]+))?", device)
    if match is None:
        raise UsageError(
            "unknown device",
            where="--device",
            expected="auto, cpu, cuda or cuda:N",
            found=repr(device),
        )
    index, count = int(match[1] or 0), cuda.count()
    where, hint = f"--device {device}", "--device cpu runs anywhere"
    if index >= count:
        raise UsageError(
            "no such device",
            where=where,
            expected=f"one of {count} CUDA devices" if count else "a CUDA device",
            found=device if count else cuda.absence(),
            hint=hint,
        )
    name = f"cuda:{index}"
    trouble = cuda.trouble(name) if ready else ""
    if trouble:
        raise UsageError(
            "the device is busy or broken",
            where=where,
            expected="a free one",
            found=trouble,
            hint=hint,
        )
    return name
