"""Compiles the Triton kernels for compute capabilities, without a device, and reports on them.

    PYTHONPATH=tests:. python tests/kernels/compile_triton.py 8.9 9.0

Prints a line of JSON for each capability: a report on every job of the last, of others on the first
of BANDS. Then the number of kernels that blocks of other sizes need. Of each kernel: its registers,
the bytes it spills, and what a thread does in machine instructions for one action in a cascade's
loop, or for one row in a tile of a band: all of them, and those of the float64 pipe (arithmetic and
conversions, of which cheaper cards have one for 32 or 64 of float32's). It stands in for Triton's
driver, so test_triton_compiled.py runs it in a process of its own.
"""

from __future__ import annotations

import argparse
import heapq
import json
import re
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton.backends.nvidia
from kernels.cases import Job, case, job
from kernels.comparison import gradients, rows
from kernels.ptx import driver

Sample = tuple[Job, str, int, str]
"""Mode, dt, dofs, type."""
MEASURED: list[Sample] = [
    (job("acceleration"), "[1,1]", 7, "float32"),
    (job("jerk", scheme="zoh"), "[1,1]", 7, "float32"),
]
"""Their instructions are counted, those of each action."""
BANDS: list[Sample] = [
    (job("central"), "[1,1]", 7, "float32"),
    (job("bspline", degree=5), "[1,1]", 7, "float32"),
]
GOALS: list[Sample] = [
    (job("central", ends="goal"), "[B,H]", 7, "float32"),
    (job("bspline", degree=3, steps=5, ends="goal"), "[1,1]", 7, "float64"),
]
OTHERS: list[Sample] = [
    (job("jerk", scheme="foh"), "[B,H]", 1, "float64"),
    (job("clique"), "[1,H]", 33, "float32"),
    (job("central", recorded=True), "[B,1]", 8, "float32"),
    (job("savgol", recorded=True, window=31), "[B,H]", 7, "float32"),
    (job("bspline", degree=5, steps=3), "[1,1]", 7, "float32"),
]
"""With the rest, all that compiles to something of another kind."""
CASCADES = [*MEASURED, *OTHERS[:2]]
TOOLS = Path(triton.backends.nvidia.__file__).parent / "bin"


compiled: list[Any] = []
"""The kernels of all launches since this was cleared."""


def without_device(capability: int = 90) -> None:
    """Has launches compile for a capability, and stop."""
    driver.intercept(capability, lambda kernel, *_: compiled.append(kernel))


def launch(work: Job, form: str, dofs: int, dtype: str, batch: int = 20, horizon: int = 32) -> None:
    """Forward and adjoint."""
    sample = case(work, (batch, horizon, dofs), form, dtype)
    state = [np.ones((batch, dofs), dtype)] * 4  # no part is missing, as it may be in cases
    sample = replace(sample, operands=sample.operands._replace(start=state, goal=state))
    rows("triton", sample)
    gradients("triton", sample)


# -- machine code -------------------------------------------------------------------------------


def tool(name: str, option: str, kernel: Any) -> str:
    """What a tool of CUDA, which Triton brings along, prints about a kernel's machine code."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        command = [str(TOOLS / name), option, file.name]
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


STORE = re.compile("STG")
FLOAT64 = re.compile(r"D(ADD|MUL|FMA|SETP)|F2F|MUFU\.\w*64|[IF]2[IF]\.\w*F64")


def count(pattern: re.Pattern[str], names: list[str]) -> int:
    return sum(bool(pattern.match(name)) for name in names)


def count_instructions(kernel: Any, tiled: bool) -> dict[str, float]:
    """Counts instructions for each action or, of a tile, for each value of a column.

    In a cascade's loop, which begins and ends at the block that stores; in a tile, of the whole
    program, by way of that block. Forward stores four values for each.
    """
    blocks, after = basic_blocks(tool("nvdisasm", "-c", kernel))
    storing = [k for k, block in enumerate(blocks) if count(STORE, block)]
    if tiled:
        # the block that stores most of those that compute: others store what is not in tiles
        tile = max(storing, key=lambda k: (count(FLOAT64, blocks[k]) > 0) * count(STORE, blocks[k]))
        ends = {k for k, block in enumerate(blocks) if block[-1:] == ["EXIT"]}
        names = shortest_way(blocks, after, [0], {tile})
        names += shortest_way(blocks, after, [tile], ends)[len(blocks[tile]) :]
    else:
        rounds = [shortest_way(blocks, after, after[k], {k}) for k in storing]
        # not the loop that stores zeros for actions that are not used
        names = max(rounds, key=lambda x: (bool(count(FLOAT64, x)), count(STORE, x), -len(x)))
    values = count(STORE, names) / (4 if kernel.metadata.name == "forward" else 1)
    return {"instructions": len(names) / values, "float64": count(FLOAT64, names) / values}


def compile_jobs(capability: int, samples: list[Sample]) -> list[dict[str, Any]]:
    """Reports on all kernels of these jobs."""
    without_device(capability)
    reports = []
    for sample in samples:
        compiled.clear()
        launch(*sample)
        for kernel in compiled:
            resources = tool("cuobjdump", "-res-usage", kernel)
            row: dict[str, Any] = {"job": str(sample[0]), "kernel": kernel.metadata.name}
            row["registers"] = int(re.findall(r"REG:(\d+)", resources)[0])
            row["spilled"] = int(re.findall(r"STACK:(\d+)", resources)[0])
            if sample in CASCADES or sample in BANDS:
                row |= count_instructions(kernel, tiled=sample in BANDS)
            reports.append(row)
    return reports


def count_variants() -> int:
    """Counts the kernels that blocks of other sizes need besides those of the first."""
    compiled.clear()
    for batch, horizon in ((64, 32), (1, 32), (63, 32), (16, 31), (2, 1), (3, 2)):
        launch(job("central", ends="goal"), "[B,1]", 7, "float32", batch, horizon)
    return len({kernel.hash for kernel in compiled}) - 2


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("capabilities", nargs="+")
    capabilities = parser.parse_args().capabilities
    torch.set_num_threads(1)
    for name in capabilities:
        samples = [*MEASURED, *BANDS, *GOALS, *OTHERS] if name == capabilities[-1] else BANDS[:1]
        print(json.dumps(compile_jobs(int(name.replace(".", "")), samples)))
    print(count_variants())


if __name__ == "__main__":
    main()
