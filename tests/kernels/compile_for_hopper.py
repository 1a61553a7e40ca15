"""Compile the Triton kernels of a few jobs for compute capability 9.0 and say what came out.

    python tests/kernels/compile_for_hopper.py

No device is needed: the launches of run_cascade, run_band and run_table are stopped once they are
compiled. Prints a JSON list: job, kernel, bytes spilled, the widths in bytes of its global loads
and stores of float32 and of more at once, and of kernels that go along rows in columns what the
loop over tiles of rows takes for one action: machine instructions of a thread, those of them in
float64 and those that convert to or from it. For test_triton_compiled.py, in a process of its own:
it stands in for Triton's driver. Of another Triton, such as the oldest that is supported
(triton_ops.OLDEST):

    pip install --no-deps --target elsewhere triton==3.6.0
    PYTHONPATH=elsewhere:. python tests/kernels/compile_for_hopper.py
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from trajcli.inputs import Inputs
from trajcli.kernels.narrow import narrowed
from trajcli.kernels.program import BandProgram
from trajcli.kernels.triton_ops import run_band, run_cascade, run_table
from trajcli.modes import make_mode

TARGET = GPUTarget("cuda", 90, 32)
ONE, ALL = "one dt", "a dt for every step"
JOBS: list[tuple[Any, ...]] = [
    ("clique", {}, (64, 96, 7), ONE),
    ("velocity", {}, (64, 96, 6), ONE),
    ("acceleration", {}, (64, 96, 1), ONE),
    ("acceleration", {}, (64, 96, 6), ONE),
    ("acceleration", {}, (64, 100, 7), ONE),
    ("acceleration", {}, (64, 96, 32), ONE),
    ("jerk", {"scheme": "zoh"}, (64, 96, 6), ONE),
    ("central", {}, (64, 96, 7), ONE),
    ("central", {}, (64, 96, 32), ONE),
    ("bspline", {"degree": 3}, (64, 96, 6), ONE),
    ("bspline", {"degree": 5}, (64, 96, 6), ONE),
    ("bspline", {"degree": 5}, (64, 96, 32), ONE),
    ("teleport", {}, (64, 96, 7), ONE),
    ("acceleration", {}, (1, 100_000, 7), ONE),
    ("jerk", {"scheme": "foh"}, (1, 100_000, 7), ALL),
    ("central", {}, (64, 96, 7), ALL),
    ("bspline", {"degree": 4, "steps": 3}, (64, 96, 7), ONE),
    ("acceleration", {}, (64, 96, 7), ONE, torch.bfloat16),
    ("jerk", {"scheme": "foh"}, (64, 96, 7), ALL, torch.float64),
    ("central", {}, (64, 96, 7), ONE, torch.float16),
    ("bspline", {"degree": 5}, (64, 96, 7), ONE, torch.float64),
]


class NoDevice:
    """As much of Triton's driver as compiling asks for."""

    def get_current_target(self) -> GPUTarget:
        return TARGET

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0


compiled: list[Any] = []
_run = JITFunction.run


def compile_only(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
    compiled.append(_run(self, *arguments, grid=grid, warmup=True, **options))
    return compiled[-1]


def launch(
    mode: str,
    options: dict[str, Any],
    shape: tuple[int, int, int],
    steps: str,
    dtype: torch.dtype = torch.float32,
) -> None:
    """All kernels of a job, forward and adjoint; some also for a loss of positions alone."""
    B, H, D = shape
    inputs = Inputs(
        mode=make_mode(mode, **options),
        actions=torch.randn(shape).to(dtype),
        start={"position": torch.zeros(1, D)},
        goal={},
        dt=torch.tensor(0.02) if steps == ONE else torch.full((B, H), 0.02),
    )
    program: Any = inputs.program("cpu")
    rows = inputs.mode.rows(H, False)
    out = [torch.empty(B, rows, D, dtype=dtype) for _ in range(4)]
    upstream = [torch.empty(B, rows - 1, D, dtype=dtype) for _ in range(4)]
    if isinstance(program, BandProgram):
        weights = narrowed(program.weights)
        ends = program.head, program.tail
        run_band.forward(
            program.actions,
            *ends,
            weights,
            start=program.start,
            start_rows=None,
            out=out,
        )
        grad = torch.empty(program.actions.shape, dtype=dtype)
        run_band.backward(upstream, *ends, weights, grad)
        if D == 7 and steps == ONE:  # a loss of positions alone
            run_band.backward([upstream[0], None, None, None], *ends, weights, grad)
        run_table.gradient(upstream, program.actions, *ends, program.weights)
        return
    order, scheme = program.order, program.scheme
    run_cascade.forward(
        program.sources[order],
        program.state,
        program.dt,
        order=order,
        scheme=scheme,
        start_row=program.start_row,
        out=out,
        end=False,
    )
    sources: list[Any] = [None] * 4
    sources[order] = torch.empty(shape, dtype=dtype)
    none: list[Any] = [None] * 4
    for pulled in (upstream, [upstream[0], None, None, None])[: 1 + (D == 7 and steps == ONE)]:
        run_cascade.backward(
            pulled, none, program.dt, shape, order=order, scheme=scheme, sources=sources, state=none
        )


def spilled(ptx: str) -> int:
    """Bytes of registers stored to memory and loaded back, by ptxas -v."""
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "kernel.ptx"
        source.write_text(ptx)
        command = [get_ptxas(TARGET.arch).path, "-v", "-arch=sm_90a", str(source), "-o", os.devnull]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return sum(map(int, re.findall(r"(\d+) bytes spill", said)))


def widths(ptx: str, what: str) -> list[int]:
    """Bytes per thread of the global loads or stores of 32-bit numbers."""
    found = re.findall(rf"{what}\.global(?:\.\w+::\w+|\.L\w+)*(?:\.v(\d))?\.b32", ptx)
    return sorted({4 * int(count or 1) for count in found})


def constants(kernel: Any) -> dict[str, Any]:
    """What a kernel was compiled for, by name."""
    names = kernel.src.fn.arg_names
    return {names[at[0]]: value for at, value in kernel.src.constants.items() if len(at) == 1}


def per_action(kernel: Any) -> dict[str, float] | None:
    """Instructions of the loop over tiles, which are those that go through shared memory."""
    given = constants(kernel)
    if "K" not in given or "DP" not in given:
        return None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as binary:
        binary.write(kernel.asm["cubin"])
        binary.flush()
        command = [str(Path(get_ptxas(TARGET.arch).path).with_name("nvdisasm")), "-c", binary.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: list[str] = []
    labels: dict[str, int] = {}
    loops: list[list[str]] = []
    for line in text.splitlines():
        if label := re.match(r"(\.L_x_\d+):", line.strip()):
            labels[label[1]] = len(found)
        elif instruction := re.match(r"\s*/\*\w+\*/\s+(?:@\S+\s+)?([A-Z]\w*)([^;]*);", line):
            found.append(instruction[1])
            back = re.search(r"\.L_x_\d+", instruction[2]) if instruction[1] == "BRA" else None
            if back and back[0] in labels:
                loops.append(found[labels[back[0]] :])
    tiles = [loop for loop in loops if "STS" in loop or "STSM" in loop]
    if not tiles:
        return None
    loop = max(tiles, key=len)
    actions = given["K"] * given["D"] / (given["DP"] * -(-given["D"] // given["DP"]))
    return {
        "instructions": len(loop) / actions,
        "float64": sum(bool(re.match("D[A-Z]", name)) for name in loop) / actions,
        "conversions": loop.count("F2F") / actions,
    }


def main() -> None:
    driver.set_active(NoDevice())
    JITFunction.run = compile_only
    report = []
    for job in JOBS:
        compiled.clear()
        launch(*job)
        for kernel in compiled:
            ptx = kernel.asm["ptx"]
            row: dict[str, Any] = {
                "job": [*job[:4], *map(str, job[4:])],
                "kernel": kernel.metadata.name,
            }
            row["spilled"] = spilled(ptx)
            row["loads"], row["stores"] = widths(ptx, "ld"), widths(ptx, "st")
            row["per_action"] = per_action(kernel)
            row["in_pieces"] = constants(kernel).get("pieces") != 1
            report.append(row)
    json.dump(report, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
