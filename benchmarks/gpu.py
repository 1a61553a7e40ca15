"""The Triton kernels on a CUDA device: right first, then as a share of its copy bandwidth.

    python benchmarks/gpu.py [--quick] [--modes acceleration,central] [--json gpu.json]
    python benchmarks/gpu.py --dry    # no device: every step on tiny shapes, in the interpreter

Needs torch with CUDA, triton and numpy; trajcli need not be installed. First what starting costs,
with Triton's cache empty and full. Then every mode, forward and adjoint, float32: the kernels are
compiled by a process for each mode, outputs and gradients of a few trajectories compared with
torch_ops, and each kernel captured in a CUDA graph and its replays timed. The bytes a kernel must
move are each input read once and each output written once; the share is that over the time, over
what a device-to-device copy moves (bytes read and written). "torch" is the time of torch_ops per
action, on fewer trajectories, over that of Triton. What is not measured when --seconds are over is
said.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ["TRITON_INTERPRET"] = "1" if "--dry" in sys.argv else "0"  # read with its import

import torch

from trajcli.kernels import cuda, torch_ops, triton_ops
from trajcli.kernels.choose import triton_absence
from trajcli.kernels.program import Gradients, Operands
from trajcli.modes import make_mode

MODES: list[tuple[str, dict[str, Any]]] = [
    ("clique", {}),
    ("velocity", {}),
    ("acceleration", {}),
    ("jerk", {}),
    ("jerk", {"scheme": "foh"}),
    ("central", {}),
    ("central", {"dt": "[1,H]"}),
    ("bspline", {"degree": 3}),
    ("bspline", {"degree": 5}),
    ("teleport", {}),
]
HORIZONS: tuple[int, ...] = (16, 32, 100, 1000)
DOFS: tuple[int, ...] = (1, 6, 7, 14, 32)
LANES = 1_000_000
"""B · D, at least."""
CHECKED = 37
"""Trajectories that are compared."""
FEW = 4_000_000
"""Actions torch_ops is timed with; its passes over memory need many times the space."""
ROOT = Path(__file__).resolve().parent.parent
DRY = "--dry" in sys.argv
DEVICE = "cuda"
if DRY:
    HORIZONS, DOFS, LANES, CHECKED, DEVICE = (9,), (1, 7), 14, 3, "cpu"

_CHILD = """
import json, sys, time
began = time.perf_counter()
import torch
imported = time.perf_counter()
torch.zeros(1, device="{device}")
if "{device}" == "cuda":
    torch.cuda.synchronize()
ready = time.perf_counter()
from trajcli import integrate
actions = torch.zeros(64, {horizon}, 7, device="{device}", requires_grad=True)
start = torch.zeros(7, device="{device}")
run = lambda: integrate(actions, start, 0.02, backend="triton")
position = run().position
forward = time.perf_counter()
position.sum().backward()
if "{device}" == "cuda":
    torch.cuda.synchronize()
backward = time.perf_counter()
print(json.dumps(dict(
    import_torch=imported - began,
    device_ready=ready - imported,
    first_forward=forward - ready,
    first_adjoint=backward - forward,
)))
"""


def start_up() -> dict[str, dict[str, float]]:
    """Seconds until a new process has results: with nothing compiled yet, and with all of it."""
    code = _CHILD.format(device=DEVICE, horizon=9 if DRY else 100)
    found = {}
    with tempfile.TemporaryDirectory() as place:
        variables = {**os.environ, "TRITON_CACHE_DIR": place, "PYTHONPATH": str(ROOT)}
        for name in ("cold", "warm"):
            child = subprocess.run(
                [sys.executable, "-c", code], env=variables, capture_output=True, text=True
            )
            if child.returncode:
                sys.exit(child.stderr)
            found[name] = json.loads(child.stdout)
    return found


@dataclass
class Job:
    """A mode on random actions of a shape, with buffers to compute into."""

    mode: str
    options: dict[str, Any]
    shape: tuple[int, int, int]

    def __post_init__(self) -> None:
        B, H, D = self.shape
        options = dict(self.options)
        uneven = options.pop("dt", "") == "[1,H]"
        dt = 0.02 + 0.01 * torch.rand(1, H if uneven else 1, device=DEVICE, dtype=torch.float64)
        start = [torch.randn(1, D, device=DEVICE), None, None, None]
        self.program = make_mode(self.mode, **options).program(H, False, uneven)
        self.operands = Operands(torch.randn(self.shape, device=DEVICE), dt, start)
        shape = (B, self.program.rows, D)
        self.rows = [torch.empty(shape, device=DEVICE) for _ in range(4)]
        self.gradients = Gradients(
            torch.empty(self.shape, device=DEVICE),
            [torch.empty(B, D, device=DEVICE, dtype=torch.float64) for _ in range(4)],
        )

    @property
    def bytes_moved(self) -> int:
        return int(4 * self.operands.actions.numel() + sum(4 * x.numel() for x in self.rows))

    def forward(self, kernels: Any) -> list[torch.Tensor]:
        kernels.forward(self.program, self.operands, self.rows)
        return self.rows

    def adjoint(self, kernels: Any) -> list[Any]:
        """Gradients of actions and of the start, from what is in the rows."""
        kernels.adjoint(self.program, self.operands, self.rows, self.gradients)
        return [self.gradients.actions, *self.gradients.start]


def check(mode: str, options: dict[str, Any], dofs: int, horizon: int) -> dict[str, float]:
    """Largest differences from torch_ops: outputs in ulp of float32 (beyond 1e-12 of the largest
    value along the trajectory), gradients over their largest value."""
    job = Job(mode, options, (CHECKED, horizon, dofs))
    found = [x.clone() for x in job.forward(triton_ops)]
    worst = 0.0
    for a, b in zip(found, job.forward(torch_ops), strict=True):
        far = (a.double() - b.double()).abs()
        far = far - 1e-12 * b.double().abs().amax(1, keepdim=True)
        ulp = torch.nextafter(b.abs(), torch.full_like(b, torch.inf)).double() - b.abs().double()
        worst = max(worst, float((far / ulp).max()))
        if not torch.isfinite(a).all():
            worst = float("inf")
    for g in job.rows:
        g.normal_()
    one = [x.clone() for x in job.adjoint(triton_ops)]
    error = max(
        float((a.double() - b.double()).abs().max() / b.abs().max().clamp(min=1e-30))
        for a, b in zip(one, job.adjoint(torch_ops), strict=True)
    )
    return {"ulp": worst, "gradient": error}


def timed(what: Callable[[], object], rounds: int) -> float:
    """Median seconds of a replay of the captured launches."""
    if DRY:
        return _median(what, 1)
    for _ in range(3):
        what()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        what()
    return _median(graph.replay, rounds)


def _median(what: Callable[[], object], rounds: int) -> float:
    what()
    seconds = []
    if DRY:
        began = time.perf_counter()
        what()
        return time.perf_counter() - began
    for _ in range(rounds):
        begin, end = (_event() for _ in range(2))
        begin.record()
        what()
        end.record()
        end.synchronize()
        seconds.append(float(begin.elapsed_time(end)) / 1e3)
    return statistics.median(seconds)


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def copy_bandwidth(rounds: int) -> float:
    """Bytes read and written per second by a device-to-device copy."""
    count = 1 << 20 if DRY else min(1 << 30, torch.cuda.mem_get_info()[0] // 16)
    source = torch.randn(count, device=DEVICE)
    target = torch.empty_like(source)
    return 8 * count / timed(lambda: target.copy_(source), rounds)


def measure(
    mode: str, options: dict[str, Any], shape: tuple[int, int, int], copy: float, rounds: int
) -> list[dict[str, Any]]:
    """A row for forward and one for adjoint."""
    job = Job(mode, options, shape)
    B, H, D = shape
    few = Job(mode, options, (max(1, FEW // (H * D)), min(H, FEW // D), D))
    rows = []
    for direction in ("forward", "adjoint"):
        seconds = timed(lambda d=direction: getattr(job, d)(triton_ops), rounds)  # type: ignore[misc]
        slow = _median(lambda d=direction: getattr(few, d)(torch_ops), 3)  # type: ignore[misc]
        per_action = seconds / job.operands.actions.numel()
        rows.append(
            {
                "mode": mode,
                **options,
                "direction": direction,
                "batch": B,
                "horizon": H,
                "dofs": D,
                "seconds": seconds,
                "gb_per_s": job.bytes_moved / seconds / 1e9,
                "of_copy": job.bytes_moved / seconds / copy,
                "over_torch": slow / few.operands.actions.numel() / per_action,
            }
        )
    return rows


def name_of(row: dict[str, Any]) -> str:
    return " ".join(str(row[key]) for key in ("mode", "scheme", "degree", "dt") if key in row)


def device_facts(copy: float) -> dict[str, Any]:
    import triton

    return {
        "device": "none: the interpreter, figures mean nothing"
        if DRY
        else torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "date": date.today().isoformat(),
        "copy_gb_per_s": copy / 1e9,
    }


def check_all(cases: Sequence[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Every mode in four shapes; prints what is wrong."""
    found = []
    for mode, options in cases:
        for dofs, horizon in ((1, 17), (7, 100), (32, 33), (7, 5000))[: 1 if DRY else 4]:
            row = {"mode": mode, **options, "dofs": dofs, "horizon": horizon}
            row.update(check(mode, options, dofs, horizon))
            row["right"] = row["ulp"] <= 2.0 and row["gradient"] <= 2e-7
            found.append(row)
            if not row["right"]:
                print("WRONG", row, flush=True)
    wrong = sum(not row["right"] for row in found)
    print(f"{len(found)} comparisons with torch_ops, {wrong} wrong", flush=True)
    return found


def say(row: dict[str, Any]) -> None:
    print(
        f"{name_of(row):<16}{row['direction']:<9}{row['batch']:>9}{row['horizon']:>9}"
        f"{row['dofs']:>4}{1e3 * row['seconds']:>9.3f}{row['gb_per_s']:>7.0f}"
        f"{row['of_copy']:>9.0%}{row['over_torch']:>6.1f}x",
        flush=True,
    )


def compile_all(cases: Sequence[tuple[str, dict[str, Any]]], shapes: Sequence[Any]) -> None:
    """Have every kernel compiled, with few trajectories: they are the same for many."""
    for mode, options in cases:
        for D in sorted({D for _, _, D in shapes}):  # those of one horizon are those of all
            job = Job(mode, options, (64, 16, D))
            job.forward(triton_ops)
            job.adjoint(triton_ops)
    if not DRY:
        torch.cuda.synchronize()


def compile_by_processes(arguments: argparse.Namespace, names: Sequence[str]) -> float:
    """The same by a process for each mode; seconds for all. Compiled kernels stay on disk."""
    began = time.perf_counter()
    quick = ["--quick"] if arguments.quick else []
    command = [sys.executable, __file__, "--compile", *quick]
    running = [subprocess.Popen([*command, "--modes", name]) for name in names]
    for process in running:
        process.wait()
    return time.perf_counter() - began


def measure_all(
    cases: Sequence[tuple[str, dict[str, Any]]],
    shapes: Sequence[tuple[int, int, int]],
    copy: float,
    rounds: int,
    until: float,
) -> list[dict[str, Any]]:
    """Every mode and shape while there is time; prints a line for each."""
    print(f"{'mode':<25}{'B':>9}{'H':>9}{'D':>4}{'ms':>9}{'GB/s':>7}{'of copy':>9}{'torch':>7}")
    found: list[dict[str, Any]] = []
    for mode, options in cases:
        for shape in shapes:
            if time.perf_counter() > until:
                print(f"{mode} {options} {shape}: not measured, out of time", flush=True)
                continue
            try:
                rows = measure(mode, options, shape, copy, rounds)
            except torch.cuda.OutOfMemoryError:
                print(f"{mode} {options} {shape}: out of memory", flush=True)
                continue
            found += rows
            for row in rows:
                say(row)
            if not DRY:
                torch.cuda.empty_cache()
    return found


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures the targets are for: worst and median shares, by direction."""
    found: dict[str, Any] = {}
    for direction in ("forward", "adjoint"):
        some = [row for row in rows if row["direction"] == direction]
        shares = [row["of_copy"] for row in some]
        if some:
            found[direction] = {
                "least_of_copy": min(shares),
                "median_of_copy": statistics.median(shares),
                "least_over_torch": min(row["over_torch"] for row in some),
            }
    return found


def options_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--modes", default="", help="names, separated by commas; default all")
    parser.add_argument("--quick", action="store_true", help="H 16 and 100, D 1, 7 and 32")
    parser.add_argument("--dry", action="store_true", help="tiny shapes, without a device")
    parser.add_argument("--compile", action="store_true", help="compile the kernels and stop")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=420, help="for all of it, about")
    parser.add_argument("--json", type=Path, default=Path("gpu.json"))
    return parser.parse_args()


def main() -> None:
    began, arguments = time.perf_counter(), options_of()
    absent = triton_absence() or ("" if DRY else cuda.absence())
    if absent:
        sys.exit(f"{absent}; --dry runs without a device")
    names = arguments.modes.split(",") if arguments.modes else list(dict(MODES))
    cases = [case for case in MODES if case[0] in names]
    horizons, dofs = ((16, 100), (1, 7, 32)) if arguments.quick and not DRY else (HORIZONS, DOFS)
    shapes = [(-(-LANES // D), H, D) for H in horizons for D in dofs]
    if arguments.compile:
        compile_all(cases, shapes)
        return
    copy = copy_bandwidth(arguments.rounds)
    report: dict[str, Any] = device_facts(copy)
    print(f"{report['device']}, torch {report['torch']}, triton {report['triton']}")
    print(f"device-to-device copy: {copy / 1e9:.0f} GB/s, read and written", flush=True)
    report["start_up"] = start_up()
    print("start:", json.dumps(report["start_up"]), flush=True)
    if not DRY:
        report["compile_seconds"] = compile_by_processes(arguments, names)
        print(f"all kernels compiled in {report['compile_seconds']:.0f} s", flush=True)
    report["checks"] = check_all(cases)
    until = began + arguments.seconds
    report["rows"] = measure_all(cases, shapes, copy, arguments.rounds, until)
    report["summary"] = summary(report["rows"])
    report["seconds"] = time.perf_counter() - began
    arguments.json.write_text(json.dumps(report, indent=1))
    print(json.dumps(report["summary"], indent=1))
    print(f"{report['seconds']:.0f} s in all; {arguments.json}")
    sys.exit(0 if all(row["right"] for row in report["checks"]) else 1)


if __name__ == "__main__":
    main()
