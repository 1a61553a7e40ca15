"""Chooses the kernels that run a job and their device, and gives the reasons."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple, get_args

from trajcli.errors import UsageError, unknown
from trajcli.kernels import cuda
from trajcli.names import BackendName
from trajcli.system import environment_variable

BACKENDS = get_args(BackendName)[1:]

# Triton's kernels are tested from these on. Triton 3.4 compiles some of them to wrong code.
OLDEST_TRITON = (3, 5)
LEAST_CAPABILITY = (7, 5)


class Choice(NamedTuple):
    """A backend's module, a torch device and the reason for them in a few words."""

    backend: str
    device: str
    reason: str

    @property
    def kernels(self) -> ModuleType:
        module = self.backend if self.backend == "native" else f"{self.backend}_ops"
        return import_module(f"trajcli.kernels.{module}")


def _origin(backend: object) -> str:
    return "TRAJCLI_BACKEND" if environment_variable(b"TRAJCLI_BACKEND") == backend else "backend"


def choose(device: str = "auto", backend: str = "auto") -> Choice:
    """Picks device and backend; raises UsageError for absent ones and for a device in trouble."""
    # importing torch takes longer than most runs, so that only a CUDA device does it
    for name in (backend, environment_variable(b"TRAJCLI_BACKEND") or "auto"):
        if name not in (known := ("auto", *BACKENDS)):
            where = _origin(name)
            raise UsageError(unknown("backend", choices=known, found=repr(name), where=where))
    why = "" if backend == "auto" else backend_absence(backend)
    if why:
        raise UsageError(
            f"backend {backend} is absent", where=_origin(backend), expected="torch", found=why
        )
    reason = "the default" if device == "auto" else f"--device {device}"
    name = "cpu"
    if device not in ("auto", "cpu"):
        match = re.fullmatch("cuda(?::([0-9]+))?", device)
        if match is None:
            found, choices = repr(device), "auto, cpu, cuda or cuda:N"
            raise UsageError(unknown("device", choices=choices, found=found, where="--device"))
        hint, count = "--device cpu runs anywhere", cuda.count()
        name = f"cuda:{int(match[1] or 0)}"  # as torch names it
        if int(match[1] or 0) >= count:
            raise UsageError(
                "no such device",
                where=reason,
                expected=f"one of {count} CUDA devices" if count else "a CUDA device",
                found=device if count else cuda.absence(),
                hint=hint,
            )
        # a device may be present and yet fail, as one that other processes fill
        if trouble := cuda.trouble(name):
            what, expected = "the device is busy or broken", "a free one"
            raise UsageError(what, where=reason, expected=expected, found=trouble, hint=hint)
    if backend == "native" and name != "cpu":
        what = "backend native runs on the CPU"
        raise UsageError(what, where=_origin(backend), expected="torch", found=name)
    if backend == "triton" and name == "cpu":
        raise UsageError(
            "backend triton runs on CUDA devices",
            where=_origin(backend),
            expected="torch",
            found=name,
            hint="tensors on a CUDA device",
            shell="--device cuda",
        )
    because = ""
    # of auto: Triton where its kernels run, C++ on the CPU, torch where neither is possible
    if backend == "auto" and name != "cpu":
        backend, because = device_backend(name)
    elif backend == "auto":
        why = backend_absence("native")
        backend = "torch" if why else "native"
        because = f"kernels {why}; torch takes ten times as long" if why else ""
    return Choice(backend, name, "; ".join(filter(None, (reason, because))))


def backend_absence(backend: str) -> str:
    """Says why a backend cannot run here; empty where it can."""
    if backend == "native":
        from trajcli.kernels import native

        return native.absence()
    if backend != "triton":
        from importlib.util import find_spec

        return "" if find_spec("torch") else "torch is not installed"
    return cuda.absence() or triton_absence()


@cache
def triton_absence() -> str:
    """Says why Triton cannot be used on any device; empty where it can."""
    try:
        import triton
    except ImportError:
        return "triton is not installed; it comes with torch's CUDA builds"
    version = tuple(int(part) for part in re.findall("[0-9]+", triton.__version__)[:2])
    oldest = ".".join(map(str, OLDEST_TRITON))
    return f"triton {triton.__version__} is older than {oldest}" if version < OLDEST_TRITON else ""


def choose_for_tensors(device: Any, backend: str) -> Choice:
    """Picks the backend for tensors on a torch device; raises UsageError if it cannot run there."""
    # the tensors prove that the device exists, so no driver check
    name = str(device)
    if device.type == "cpu":
        return choose("cpu", backend)
    used, why = ("torch", "") if backend == "torch" else device_backend(name)
    if backend not in ("auto", used):
        raise UsageError(
            f"backend {backend} cannot run on the device",
            where=_origin(backend),
            expected="auto, torch, triton" if used == "triton" else "auto, torch",
            found=f"{name}; {why}",
        )
    return Choice(used, name, why)


_device_backends: dict[str, tuple[str, str]] = {}


def device_backend(name: str) -> tuple[str, str]:
    """Picks the backend that ``auto`` takes on a device, and says why.

    Raises UsageError where the first call on a device, which runs a kernel, is captured in a graph.
    """
    import torch

    if name in _device_backends:
        return _device_backends[name]
    least = ".".join(map(str, LEAST_CAPABILITY))
    backend, why = "torch", ""
    if not name.startswith("cuda") or torch.version.hip is not None:
        why = "backend triton is for CUDA devices"
    elif absence := triton_absence():
        why = f"backend triton is absent: {absence}"
    else:
        capability = torch.cuda.get_device_capability(name)
        number = ".".join(map(str, capability))
        if capability < LEAST_CAPABILITY:
            why = f"backend triton needs compute capability {least}, this has {number}"
    if not why:
        # only a kernel that ran shows that Triton's compiler and the driver fit the card
        try:
            _probe(name)
        except UsageError:
            raise
        except (cuda.DeviceOutOfMemory, cuda.DeviceLost) as error:
            # not remembered, as memory that is full may be free in the next call
            return "torch", f"backend triton runs no kernel now: {error}"
        except Exception as error:
            line = cuda.first_line(error)
            why = f"backend triton compiles no kernel here: {type(error).__name__}: {line}"
        else:
            backend, why = "triton", f"compiled for compute capability {number}"
    _device_backends[name] = backend, why
    return backend, why


def _probe(name: str) -> None:
    import torch

    from trajcli.kernels import triton_ops

    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise UsageError(
            "the first call on a device cannot be captured in a graph",
            where=name,
            expected="a call before the capture",
            hint="one call with the same arguments just before the capture",
        )
    with cuda.device_errors():
        triton_ops.probe(name)
