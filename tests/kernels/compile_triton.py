"""Compile the Triton kernels for compute capabilities, without a device, and report on them.

    PYTHONPATH=tests:. python tests/kernels/compile_triton.py 8.9 9.0

Prints reports as JSON, a line for each capability: of every job of the last, of others the first of
BANDS. Launches are stopped once their kernel is compiled. Of each kernel: the seconds it took, its
registers, the bytes it spills, and what a thread does in machine instructions for one action in a
cascade's loop, or for one row in a tile of a band: all of them, and those of the float64 pipe
(arithmetic and conversions, of which cheaper cards have one for 32 or 64 of float32's). For
test_triton_compiled.py, in a process of its own: it stands in for Triton's driver. Of another
Triton, such as the least version:

    pip install --no-deps --target build/triton35 'triton==3.5.*'
    PYTHONPATH=build/triton35:tests:. python tests/kernels/compile_triton.py 8.9
"""

from __future__ import annotations

import argparse
import heapq
import json
import re
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton.backends.nvidia
from kernels.cases import Job, case, job
from kernels.comparison import gradients, rows
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

MEASURED: list[tuple[Job, str, int, str]] = [
    (job("acceleration"), "[1,1]", 7, "float32"),
    (job("jerk", scheme="zoh"), "[1,1]", 7, "float32"),
]
"""Mode, dt, dofs, type: whose instructions are counted."""
BANDS: list[tuple[Job, str, int, str]] = [
    (job("central"), "[1,1]", 7, "float32"),
    (job("bspline", degree=5), "[1,1]", 7, "float32"),
]
GOALS: list[tuple[Job, str, int, str]] = [
    (job("central", ends="goal"), "[B,H]", 7, "float32"),
    (job("bspline", degree=3, steps=5, ends="goal"), "[1,1]", 7, "float64"),
]
OTHERS: list[tuple[Job, str, int, str]] = [
    (job("jerk", scheme="foh"), "[B,H]", 1, "float64"),
    (job("clique"), "[1,H]", 33, "float32"),
    (job("central", recorded=True), "[B,1]", 6, "float32"),
    (job("savgol", recorded=True, window=31), "[B,H]", 7, "float32"),
    (job("bspline", degree=5, steps=3), "[1,1]", 7, "float32"),
]
"""With the rest, all that compiles to something of another kind."""
CASCADES = [*MEASURED, *OTHERS[:2]]
TOOLS = Path(triton.backends.nvidia.__file__).parent / "bin"


class NoDevice:
    """As much of Triton's driver as compiling asks for."""

    capability = 90

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return self.capability  # kernels are cached per device

    def get_current_stream(self, device: int = 0) -> int:
        return 0


compiled: list[tuple[Any, float]] = []
_run = JITFunction.run


def compile_only(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
    began = time.perf_counter()
    kernel = _run(self, *arguments, grid=grid, warmup=True, **options)
    compiled.append((kernel, time.perf_counter() - began))
    return NotRun()


class NotRun:
    """A compiled kernel whose launches do nothing."""

    def __getitem__(self, grid: Any) -> Any:
        return lambda *values: None


def launch(work: Job, form: str, dofs: int, dtype: str, batch: int = 20, horizon: int = 32) -> None:
    """Forward and adjoint."""
    sample = case(work, (batch, horizon, dofs), form, dtype)
    state = [np.ones((batch, dofs), dtype)] * 4  # no part is missing, as it may be in cases
    sample = replace(sample, operands=sample.operands._replace(start=state, goal=state))
    rows("triton", sample)
    gradients("triton", sample)


# -- machine code -------------------------------------------------------------------------------


def tool(name: str, options: list[str], content: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(content)
        file.flush()
        command = [str(TOOLS / name), *options, file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def basic_blocks(text: str) -> tuple[list[list[str]], list[list[int]]]:
    """Instructions of each block of a disassembly, and which blocks come after it."""
    blocks: list[list[str]] = [[]]
    labels: dict[str, int] = {}
    jumps: dict[int, tuple[str | None, bool]] = {}
    for line in text.splitlines():
        if label := re.match(r"(\.L_x_\d+):", line.strip()):
            blocks.append([])
            labels[label[1]] = len(blocks) - 1
        elif reports := re.match(r"\s*/\*\w+\*/\s+(@\S+\s+)?([A-Z][\w.]*)([^;]*);", line):
            guard, name, rest = reports.groups()
            blocks[-1].append(name)
            if name.split(".")[0] in ("BRA", "EXIT", "RET"):
                target = re.search(r"\.L_x_\d+", rest)
                falls = bool(guard) or "P" in rest.split("`")[0]
                jumps[len(blocks) - 1] = (target[0] if target else None, falls)
                blocks.append([])
    after = []
    for i in range(len(blocks)):
        target, falls = jumps.get(i, (None, True))
        ways = [labels[target]] if target else []
        after.append([*ways, *([i + 1] if falls and i + 1 < len(blocks) else [])])
    return blocks, after


def shortest_way(
    blocks: list[list[str]], after: list[list[int]], begin: list[int], ends: set[int]
) -> list[str]:
    """The fewest instructions on a way from one of some blocks to one of others, both included."""
    heap = [(len(blocks[i]), i, (i,)) for i in begin]
    done = set()
    while heap:
        length, here, way = heapq.heappop(heap)
        if here in ends:
            return [name for i in way for name in blocks[i]]
        if here not in done:
            done.add(here)
            for i in after[here]:
                heapq.heappush(heap, (length + len(blocks[i]), i, (*way, i)))
    return []


FLOAT64 = re.compile(r"D(ADD|MUL|FMA|SETP)|F2F|MUFU\.\w*64|[IF]2[IF]\.\w*F64")


def stores(names: list[str]) -> int:
    """How many of them store."""
    return sum(name.startswith("STG") for name in names)


def float64(names: list[str]) -> int:
    """How many of them are of the float64 pipe."""
    return sum(bool(FLOAT64.match(name)) for name in names)


def per_action(kernel: Any) -> dict[str, float]:
    """Instructions of the loop that stores most, for each action: forward stores four values."""
    blocks, after = basic_blocks(tool("nvdisasm", ["-c"], kernel.asm["cubin"]))
    storing = [i for i, block in enumerate(blocks) if stores(block)]
    rounds = [shortest_way(blocks, after, after[i], {i}) for i in storing]
    # not the one that stores zeros for actions that are not used
    loop = max(rounds, key=lambda names: (bool(float64(names)), stores(names), -len(names)))
    actions = stores(loop) / (4 if kernel.metadata.name == "forward" else 1)
    return {
        "instructions": len(loop) / actions,
        "float64": float64(loop) / actions,
    }


def per_value_of_tile(kernel: Any) -> dict[str, float]:
    """Instructions of a program that computes a tile, for each value of a column: forward stores
    four. It is the way through the block that stores most of those that compute."""
    blocks, after = basic_blocks(tool("nvdisasm", ["-c"], kernel.asm["cubin"]))
    tile = max(range(len(blocks)), key=lambda i: (float64(blocks[i]) > 0) * stores(blocks[i]))
    ends = {i for i, block in enumerate(blocks) if block[-1:] == ["EXIT"]}
    names = shortest_way(blocks, after, [0], {tile})
    names += shortest_way(blocks, after, [tile], ends)[len(blocks[tile]) :]
    values = stores(names) / (4 if kernel.metadata.name == "forward" else 1)
    return {"instructions": len(names) / values, "float64": float64(names) / values}


def report(kernel: Any, seconds: float) -> dict[str, Any]:
    resources = tool("cuobjdump", ["-res-usage"], kernel.asm["cubin"])
    return {
        "seconds": seconds,
        "registers": int(re.findall(r"REG:(\d+)", resources)[0]),
        "spilled": int(re.findall(r"STACK:(\d+)", resources)[0]),
    }


def compile_jobs(capability: int, samples: list[tuple[Job, str, int, str]]) -> list[dict[str, Any]]:
    """Reports on all kernels of these jobs."""
    NoDevice.capability = capability
    reports = []
    for work, form, dofs, dtype in samples:
        compiled.clear()
        launch(work, form, dofs, dtype)
        for kernel, seconds in compiled:
            about = {"job": str(work), "dt": form, "dofs": dofs, "dtype": dtype}
            row = {"capability": capability, **about, "kernel": kernel.metadata.name}
            row |= report(kernel, seconds)
            if (work, form, dofs, dtype) in CASCADES:
                row |= per_action(kernel)
            if (work, form, dofs, dtype) in BANDS:
                row |= per_value_of_tile(kernel)
            reports.append(row)
    return reports


def variants() -> int:
    """Kernels that blocks of other sizes need, beside those of the first."""
    compiled.clear()
    work = job("central", ends="goal")
    for batch, horizon in ((64, 32), (1, 32), (63, 32), (16, 31), (2, 1), (3, 2)):
        launch(work, "[B,1]", 7, "float32", batch, horizon)
    return len({kernel.hash for kernel, _ in compiled}) - 2


def without_device(capability: int = 90) -> None:
    """Have launches compile for a capability, and stop."""
    NoDevice.capability = capability
    driver.set_active(NoDevice())
    JITFunction.run = compile_only


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("capabilities", nargs="*")
    parser.add_argument(
        "--variants", action="store_true", help="how many more kernels blocks of other sizes need"
    )
    arguments = parser.parse_args()
    without_device()
    torch.set_num_threads(1)
    for name in arguments.capabilities:
        last = name == arguments.capabilities[-1]
        samples = [*MEASURED, *BANDS, *GOALS, *OTHERS] if last else BANDS[:1]
        reports = compile_jobs(int(name.replace(".", "")), samples)
        print(json.dumps(reports))
    if arguments.variants:
        print(variants())


if __name__ == "__main__":
    main()
