"""Triton's launches without a device: compiled for a compute capability, run on the CPU.

``emulate`` stands in for Triton's driver and has the interpreter run every launch, without an
assembler: quick. ``emulate_driver`` leaves Triton its driver and its launcher in C, on a libcuda of
forty lines (cuda.c), so that the interpreter gets the parameters as a device would. Call one of
them before any kernel runs.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from kernels.ptx.interpreter import Fault, Launch, parse

GRID = (2**31 - 1, 65535, 65535)
"""The most programs along each axis."""
STREAM = 4242
parse = cache(parse)
Memory = list[tuple[int, int]]
"""Addresses and sizes of what a kernel may touch."""

emulated = 0
"""The capability that launches are compiled for, once ``emulate`` was called."""
launches: Counter[str] = Counter()
"""How often each kernel has run."""
_on_launch: Callable[[Any, Any, list[Any], Memory], None]


def intercept(capability: int, on_launch: Callable[[Any, Any, list[Any], Memory], None]) -> None:
    """Compiles every launch from now on for the capability, and calls a function with the kernel,
    the grid, the values of the parameters and the memory of the tensors instead."""
    global emulated, _on_launch
    again, emulated, _on_launch = bool(emulated), capability, on_launch
    if again:
        return
    from triton.backends.compiler import GPUTarget
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
    compile_only = JITFunction.run

    def run(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        kernel = compile_only(self, *arguments, grid=grid, warmup=True, **options)
        values = dict(zip(self.signature.parameters, arguments, strict=False)) | options
        if not warmup:
            kernel[grid](*(values[name] for name in kernel.src.signature))
        return kernel

    def launcher(self: Any, grid: Any) -> Any:
        def launch(*arguments: Any) -> None:
            values = flatten(tuple(self.src.signature.values()), arguments)
            raw = [x.data_ptr() if hasattr(x, "data_ptr") else x for x in values]
            _on_launch(self, grid, raw, memory_of(values))

        return launch

    JITFunction.run = run
    CompiledKernel.__getitem__ = launcher


def compile_quickly() -> None:
    """Leaves out Triton's choice of layouts for access to memory where there is but one, in what is
    only interpreted: what a device runs, or is counted in, is compiled as it is for everybody.

    Its time grows with the square of the accesses, to three quarters of all. The layout of a tensor
    of one dimension and no more elements than threads is that which all tensors have before.
    """
    from triton._C.libtriton import passes
    from triton.backends.nvidia.compiler import CUDABackend

    add_stages = CUDABackend.add_stages

    def add_quick_stages(self: Any, stages: dict[str, Any], options: Any, *more: Any) -> None:
        add_stages(self, stages, options, *more)
        make_ttgir = stages["ttgir"]

        def make_quickly(source: Any, metadata: Any) -> Any:
            shapes = set(re.findall(r"tensor<([\dx]+)x", str(source)))
            if any("x" in x or int(x) > 32 * options.num_warps for x in shapes):
                return make_ttgir(source, metadata)
            with patch.object(passes.ttgpuir, "add_coalesce", lambda manager: None):
                return make_ttgir(source, metadata)

        stages["ttgir"] = make_quickly

    CUDABackend.add_stages = add_quick_stages


def emulate(capability: int) -> None:
    """Compiles every launch from now on for the capability, and runs it here."""
    from triton.backends.nvidia.compiler import CUDABackend

    if not emulated:
        add_stages = CUDABackend.add_stages

        def without_machine_code(self: Any, stages: dict[str, Any], *more: Any) -> None:
            add_stages(self, stages, *more)
            stages["cubin"] = lambda source, metadata: b"none"

        CUDABackend.add_stages = without_machine_code
        compile_quickly()
    intercept(capability, execute)


def stand_in() -> None:
    """Has calls with tensors on the CPU that ask for backend triton get it."""
    from trajcli import _prepared
    from trajcli.kernels.choose import Choice

    choose = _prepared.choose_for_tensors

    def choose_for_tensors(device: Any, backend: str) -> Choice:
        emulates = backend == "triton" and device.type == "cpu"
        return Choice("triton", "cpu", "emulated") if emulates else choose(device, backend)

    _prepared.choose_for_tensors = choose_for_tensors


def flatten(kind: Any, value: Any) -> list[Any]:
    """The arguments that are parameters, in order; a constant is none."""
    if isinstance(kind, tuple | list):
        return [x for k, v in zip(kind, value, strict=True) for x in flatten(k, v)]
    return [] if kind == "constexpr" else [value]


def memory_of(values: Any) -> Memory:
    """The memory of all tensors among the values."""
    if isinstance(values, tuple | list):
        return [span for x in values for span in memory_of(x)]
    if not hasattr(values, "untyped_storage"):
        return []
    storage = values.untyped_storage()
    return [(storage.data_ptr(), storage.nbytes())]


def execute(kernel: Any, grid: Any, values: list[Any], memory: Memory) -> None:
    """Runs a launch in the interpreter."""
    if any(not 1 <= int(n) <= most for n, most in zip(grid, GRID, strict=False)):
        raise Fault(f"a grid of {grid}")
    name = kernel.metadata.name
    launches[name] += 1
    Launch(parse(kernel.asm["ptx"])[name], grid, values, kernel.metadata.shared, memory).run()


class Launches:
    """What happens at a launch by Triton's own driver.

    ``run``: whether the kernel runs; without, only the host's part is done.
    """

    def __init__(self) -> None:
        self.run = True
        self.kernel: Any = None
        self.memory: Memory = []
        self.error: BaseException | None = None

    def __call__(
        self, x: int, y: int, z: int, threads: int, shared: int, stream: Any, _: Any, arguments: Any
    ) -> None:
        """Takes the place of cuLaunchKernelEx, which gets the addresses of the parameters."""
        if not self.run:
            return
        try:
            kernel = parse(self.kernel.asm["ptx"])[self.kernel.metadata.name]
            if (stream, threads) != (STREAM, kernel.threads):
                raise Fault(f"stream {stream}, {threads} threads")
            sizes = [size for _, size in kernel.params]
            raw = [ctypes.string_at(arguments[k], size) for k, size in enumerate(sizes)]
            values = [int.from_bytes(x, "little") for x in raw]
            execute(self.kernel, (x, y, z), values, self.memory)
        except BaseException as error:  # C has no exceptions
            self.error = error

    def launch(self, kernel: Any, memory: Memory, call: Callable[[], None]) -> None:
        """Launches a kernel by a call of Triton's launcher, and raises what went wrong."""
        self.kernel, self.memory = kernel, memory
        call()
        error, self.error = self.error, None
        if error is not None:
            raise error


def emulate_driver(capability: int) -> Launches:
    """Has Triton's own driver launch kernels on a libcuda that has the interpreter run them."""
    folder = tempfile.mkdtemp()
    source, library = Path(__file__).with_name("cuda.c"), f"{folder}/libcuda.so.1"
    build = ["gcc", "-O1", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library]
    subprocess.run([*build, str(source)], check=True)
    os.symlink("libcuda.so.1", f"{folder}/libcuda.so")
    os.environ["TRITON_LIBCUDA_PATH"] = folder
    os.environ.setdefault("TRITON_CACHE_DIR", f"{folder}/cache")
    cuda = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    cuda.fake_set_cap(capability)
    launched, address = Launches(), ctypes.c_void_p
    hook = ctypes.CFUNCTYPE(None, *[ctypes.c_uint] * 5, address, address, ctypes.POINTER(address))
    launched.hook = hook(launched)  # type: ignore[attr-defined] # C keeps no reference
    cuda.fake_set_hook(launched.hook)  # type: ignore[attr-defined]

    from triton.backends.nvidia.driver import CudaDriver
    from triton.compiler.compiler import CompiledKernel
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    active = CudaDriver()
    active.get_current_device = lambda: 0
    active.get_current_stream = lambda device=0: STREAM
    active.get_device_capability = lambda device=0: divmod(capability, 10)
    driver.set_active(active)
    real, get_launcher = JITFunction.run, CompiledKernel.__getitem__

    def run(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        def call() -> None:
            real(self, *arguments, grid=grid, warmup=warmup, **options)

        if not launched.run:
            return real(self, *arguments, grid=grid, warmup=warmup, **options)
        kernel = real(self, *arguments, grid=grid, warmup=True, **options)
        launched.launch(kernel, memory_of([*arguments, *options.values()]), call)
        return kernel

    def launcher(self: Any, grid: Any) -> Any:
        launch = get_launcher(self, grid)
        return lambda *arguments: launched.launch(
            self, memory_of(arguments), lambda: launch(*arguments)
        )

    JITFunction.run = run
    CompiledKernel.__getitem__ = launcher
    return launched
