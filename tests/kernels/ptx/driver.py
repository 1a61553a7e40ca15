"""Triton's launches without a device: compiled for a compute capability, run on the CPU.

``emulate`` stands in for Triton's driver and has the interpreter run every launch: quick.
``emulate_driver`` leaves Triton its driver and its launcher in C, on a libcuda of forty lines
(cuda.c): the interpreter then gets the parameters as a device would. Both before any kernel runs.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from kernels.ptx.interpreter import Fault, Module

GRID = (2**31 - 1, 65535, 65535)
"""The most programs along each axis."""
STREAM = 4242
RACES = True
"""Whether memory that two threads touch is a fault; finding that takes half the time."""

emulated = 0
"""The capability that launches are compiled for, once ``emulate`` was called."""
launches: Counter[str] = Counter()
"""How often each kernel has run."""
executed: Counter[str] = Counter()
"""How often each kind of instruction has."""
_modules: dict[str, Module] = {}


def emulate(capability: int) -> None:
    """Compile every launch from now on for the capability, and run it here."""
    global emulated
    again, emulated = bool(emulated), capability
    if again:
        return
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import CUDABackend
    from triton.compiler.compiler import CompiledKernel
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    class NoDevice:
        def get_current_target(self) -> Any:
            return GPUTarget("cuda", emulated, 32)

        def get_current_device(self) -> int:
            return emulated  # kernels are cached per device

        def get_current_stream(self, device: int = 0) -> int:
            return STREAM

        def get_device_capability(self, device: int = 0) -> tuple[int, int]:
            return divmod(emulated, 10)

    driver.set_active(NoDevice())
    stages = CUDABackend.add_stages

    def without_machine_code(self: Any, found: dict[str, Any], *more: Any) -> None:
        stages(self, found, *more)
        found["cubin"] = lambda source, metadata: b"none"

    CUDABackend.add_stages = without_machine_code
    compile_only = JITFunction.run

    def run(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        kernel = compile_only(self, *arguments, grid=grid, warmup=True, **options)
        names = list(self.signature.parameters)
        given = {**dict(zip(names, arguments, strict=False)), **options}
        flat: list[Any] = []
        for name, kind in kernel.src.signature.items():
            _flatten(kind, given[name], flat)
        values = [x.data_ptr() if hasattr(x, "data_ptr") else x for x in flat]
        if not warmup:
            _execute(kernel, grid, values, memory_of(flat))
        return kernel

    def repeated(self: Any, grid: Any) -> Any:
        def run(*arguments: Any) -> None:
            flat: list[Any] = []
            for value, kind in zip(arguments, self.src.signature.values(), strict=True):
                _flatten(kind, value, flat)
            values = [x.data_ptr() if hasattr(x, "data_ptr") else x for x in flat]
            _execute(self, grid, values, memory_of(flat))

        return run

    JITFunction.run = run
    CompiledKernel.__getitem__ = repeated


def stand_in() -> None:
    """Have calls with tensors on the CPU that ask for backend triton get it."""
    from trajcli import _prepared
    from trajcli.kernels.choose import Choice

    choose = _prepared.choose_for_tensors

    def choose_for_tensors(device: Any, backend: str) -> Choice:
        asked = backend == "triton" and device.type == "cpu"
        return Choice("triton", "cpu", "emulated") if asked else choose(device, backend)

    _prepared.choose_for_tensors = choose_for_tensors


def _flatten(kind: Any, value: Any, into: list[Any]) -> None:
    """The arguments that are parameters, in order: what is a constant is none."""
    if isinstance(kind, tuple | list):
        for k, v in zip(kind, value, strict=True):
            _flatten(k, v, into)
    elif kind != "constexpr":
        into.append(value)


def memory_of(values: Any) -> list[tuple[int, int]]:
    """Address and size of the memory of all tensors among the values."""
    if isinstance(values, tuple | list):
        return [place for x in values for place in memory_of(x)]
    if not hasattr(values, "untyped_storage"):
        return []
    storage = values.untyped_storage()
    return [(storage.data_ptr(), storage.nbytes())]


def _execute(kernel: Any, grid: Any, values: list[Any], memory: list[tuple[int, int]]) -> None:
    if any(not 1 <= int(n) <= most for n, most in zip(grid, GRID, strict=False)):
        raise Fault(f"a grid of {grid}")
    module, name = _module(kernel), kernel.metadata.name
    launches[name] += 1
    shared = kernel.metadata.shared
    executed.update(module.run(grid, values, shared, memory, name=name, races=RACES))


def _module(kernel: Any) -> Module:
    text = kernel.asm["ptx"]
    key = hashlib.sha1(text.encode()).hexdigest()
    if key not in _modules:
        _modules[key] = Module(text)
    return _modules[key]


class Launches:
    """What happens at a launch, of Triton's own driver. ``run``: whether the kernel runs, too;
    without, only the host's part is done."""

    def __init__(self) -> None:
        self.run = True
        self.kernel: Any = None
        self.memory: list[tuple[int, int]] = []
        self.error: BaseException | None = None

    def __call__(
        self,
        x: int,
        y: int,
        z: int,
        threads: int,
        shared: int,
        stream: int,
        _: Any,
        parameters: Any,
    ) -> None:
        if not self.run:
            return
        try:
            kernel = _module(self.kernel).kernels[self.kernel.metadata.name]
            raw = [ctypes.string_at(at, size) for at, (_, size) in zip(
                parameters[: len(kernel.params)], kernel.params, strict=True)]  # fmt: skip
            if (stream, threads) != (STREAM, kernel.threads):
                raise Fault(f"stream {stream}, {threads} threads")
            values = [int.from_bytes(x, "little") for x in raw]
            _execute(self.kernel, (x, y, z), values, self.memory)
        except BaseException as error:  # C has no exceptions
            self.error = error


_HOOK = ctypes.CFUNCTYPE(
    None, *[ctypes.c_uint] * 5, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)
)


def emulate_driver(capability: int) -> Launches:
    """Have Triton's own driver launch kernels on a libcuda that has the interpreter run them."""
    place = tempfile.mkdtemp()
    source, library = Path(__file__).with_name("cuda.c"), f"{place}/libcuda.so.1"
    build = ["gcc", "-O1", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library]
    subprocess.run([*build, str(source)], check=True)
    os.symlink("libcuda.so.1", f"{place}/libcuda.so")
    os.environ["TRITON_LIBCUDA_PATH"] = place
    os.environ.setdefault("TRITON_CACHE_DIR", f"{place}/cache")
    cuda = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    cuda.fake_set_cap(capability)
    launched = Launches()
    launched.hook = _HOOK(launched)  # type: ignore[attr-defined]
    cuda.fake_set_hook(launched.hook)  # type: ignore[attr-defined]

    from triton.backends.nvidia.driver import CudaDriver
    from triton.compiler.compiler import CompiledKernel
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    active = CudaDriver()
    active.get_current_device = lambda: 0
    active.get_current_stream = lambda device=0: STREAM
    active.get_device_capability = lambda device=0: (capability // 10, capability % 10)
    driver.set_active(active)
    real = JITFunction.run

    def run(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        if not launched.run:
            return real(self, *arguments, grid=grid, warmup=warmup, **options)
        launched.kernel = real(self, *arguments, grid=grid, warmup=True, **options)
        launched.memory = memory_of([*arguments, *options.values()])
        real(self, *arguments, grid=grid, warmup=warmup, **options)
        error, launched.error = launched.error, None
        if error is not None:
            raise error
        return launched.kernel

    repeat = CompiledKernel.__getitem__

    def repeated(self: Any, grid: Any) -> Any:
        real = repeat(self, grid)

        def run(*arguments: Any) -> None:
            if launched.run:
                launched.kernel, launched.memory = self, memory_of(arguments)
            real(*arguments)
            error, launched.error = launched.error, None
            if error is not None:
                raise error

        return run

    JITFunction.run = run
    CompiledKernel.__getitem__ = repeated
    return launched
