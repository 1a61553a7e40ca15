"""Everything on a CUDA device: whether it is right, and whether it is fast.

    PYTHONPATH=tests:. python3 benchmarks/gpu.py --seconds 280 --report gpu.json
    PYTHONPATH=tests:. python3 benchmarks/gpu.py --dry   # tiny shapes, on a stand-in for a device

Needs torch with CUDA, Triton, NumPy, h5py, and pytest for the last stage; nothing has to be built.
Ends with RIGHT and FAST, PASS or FAIL each; a dry run measures nothing. The exit code is 0 if all
is right, fast or not. Stages:

- about: the commit, versions, the driver, clocks;
- compile: all kernels of checks and times into Triton's cache, by all processors;
- checks of float32: outputs and gradients of every form of a call beside those of the CPU, in
  memory that was NaN before; graphs beside calls; a second device, where there is one;
- host: what a repeated call costs the host beyond an autograd function that allocates the same;
- times: calls and replays of graphs, of one call and of ten, forward, and forward and backward,
  beside a copy that moves the same bytes and torch.cumsum; some trajectories beside the CPU;
- registers of every kernel, and the bytes it spills; clocks once more;
- checks of float64;
- tests: those that need a device, in what is left of the time, at least 30 s.

Each row is in the report as soon as it is known. A worker process makes the rows. Where an error
leaves CUDA unusable, a row takes more than a minute or the worker dies, that row is wrong, and
another worker makes the rest.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import multiprocessing
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import suppress
from datetime import datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import torch

import trajcli
from trajcli import State
from trajcli.modes import QUANTITIES

Row = dict[str, Any]

ROOT = Path(__file__).resolve().parent.parent
DRY = "--dry" in sys.argv
DEVICE = "cpu" if DRY else "cuda"
TARGETS: dict[str, dict[str, tuple[float, str]]] = {
    "RIGHT": {
        "cases that are wrong or fail": (0, "at most"),
        "checks that were not made": (0, "at most"),
        "tests that fail": (0, "at most"),
    },
    "FAST": {
        "bytes a kernel spills": (64, "at most"),
        "host, forward, µs": (40, "at most"),
        "host, forward and backward, µs": (90, "at most"),
        "replay of 64 trajectories, forward, µs": (10, "at most"),
        "share of a copy, forward": (0.5, "at least"),
        "share of a copy, forward and backward": (0.35, "at least"),
    },
}
"""What the figures must reach; shares are the least of the modes, of most values."""
SHAPES = [(64, 30, 7), (100_000, 100, 7), (1024, 30, 7), (16_384, 30, 7), (500_000, 100, 1)]
"""The first and the second are those that targets are for."""
MODES = ["acceleration", "central", "bspline", "jerk"]
RECORDED: Row = {"recorded": True}
INDEXED: Row = {"index": True, "scheme": "foh"}
FORMS: dict[str, tuple[Any, Row]] = {
    "acceleration": ("acceleration", {}),
    "central, goal with an index": ("central", {"ends": "goal"}),
    "acceleration, dt [B, H], start with an index": ("acceleration", INDEXED | {"dt": "BH"}),
    "savgol, dt [B, H]": ("savgol", RECORDED | {"dt": "BH", "window": 5, "degree": 3}),
    "velocity, dt [H]": ("velocity", {"dt": "H", "scheme": "zoh"}),
    "jerk, strided": ("jerk", {"scheme": "foh", "strided": True}),
    "clique, rows of actions": ("clique", {"alignment": "actions"}),
    "acceleration, cuRobo": ("acceleration", {"convention": "curobo"}),
    "central, dt [B, H]": ("central", {"dt": "BH"}),
    "central, cuRobo": ("central", {"convention": "curobo"}),
    "bspline": ("bspline", {"dt": "B1"}),
    "bspline 5, goal with an index": ("bspline", {"degree": 5, "steps": 3, "ends": "goal"}),
    "teleport": ("teleport", {}),
    "recording, backward": ("backward", RECORDED | {"dt": "BH"}),
    "recording, central": ("central", RECORDED),
    "recording, central, dt [H]": ("central", RECORDED | {"dt": "H"}),
    "savgol": ("savgol", RECORDED | {"window": 5, "degree": 3}),
    "smooth": ("smooth", RECORDED | {"bandlimit": 5.0}),
}
"""Modes and options of calls: the shape of dt, states by an index, actions that are strided."""
DTYPES = ["float32", "float64"]
TESTS = ["kernels/test_triton_device", "kernels/test_triton", "jobs/test_device"]
ROUNDS = 1 if DRY else 20
LONGEST = 60.0
"""The seconds that a row may take."""
FOR_COMPILING, FOR_TESTS = 0.4, 0.3
"""The parts of the time that the first stage may take at most, and that the last has at least."""
if DRY:
    FORMS = dict(list(FORMS.items())[:4])
    SHAPES, MODES, DTYPES, TESTS = [(2, 5, 2)], MODES[:1], DTYPES[:1], TESTS[-1:]

launched: Any = None
"""What stands in for a device, in a dry run."""


# -- calls beside those of the CPU --------------------------------------------------------------


class Tensors:
    """Makes the same random tensors on any device, and keeps those with gradients."""

    def __init__(self, device: str) -> None:
        self.device, self.leaves = device, dict[str, torch.Tensor]()

    def __call__(self, name: str, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
        generator = torch.Generator().manual_seed(len(name) + sum(map(ord, name)))
        if dtype == "int64":
            return torch.randint(0, 3, shape, generator=generator).to(self.device)
        values = torch.randn(shape, generator=generator, dtype=getattr(torch, dtype))
        if name == "dt":
            return (0.02 + 0.01 * values.tanh()).to(self.device)
        self.leaves[name] = values.to(self.device).requires_grad_()
        return self.leaves[name]


def call(form: str, dtype: str, tensor: Tensors, backend: Any) -> trajcli.Trajectory:
    """A call of a form."""
    B, H, D = (2, 6, 2) if DRY else (300, 40, 7)
    mode, options = FORMS[form]
    more = dict(options)
    recorded, strided, index = (more.pop(x, False) for x in ("recorded", "strided", "index"))
    sizes = {"B": B, "H": H - recorded, "1": 1}
    shape = tuple([sizes[letter] for letter in more.pop("dt", "")])
    dt = tensor("dt", shape, "float64") if shape else 0.02
    actions = tensor("actions", (B, H, D), dtype)
    if recorded:
        return trajcli.differentiate(actions, dt=dt, method=mode, backend=backend, **more)
    if strided:
        actions = actions.transpose(0, 1).contiguous().transpose(0, 1)
    start = State(*[tensor(f"start {m}", (3 if index else B, D), dtype) for m in range(4)])
    if index:
        more["start_index"] = tensor("index", (B,), "int64")
    if more.get("ends") == "goal":
        more["goal"] = tensor("goal", (3, D), dtype)
        more["goal_index"] = tensor("goal index", (B,), "int64")
    return trajcli.integrate(actions, start, dt, mode, backend=backend, **more)


def results(form: str, dtype: str, device: str, backend: str) -> dict[str, torch.Tensor]:
    """Outputs and gradients of a call, by name; those of kernels in memory that was NaN."""
    tensors = Tensors(device)
    if backend == "triton":
        poison(device)
    outputs: dict[str, Any] = call(form, dtype, tensors, backend).outputs()
    upstream = [
        torch.randn(x.shape, generator=torch.Generator().manual_seed(3)).to(x)
        for x in outputs.values()
    ]
    if backend == "triton":
        poison(device)
    grads = torch.autograd.grad(
        list(outputs.values()), list(tensors.leaves.values()), upstream, allow_unused=True
    )
    named = {f"gradient of {k}": g for k, g in zip(tensors.leaves, grads, strict=True)}
    return {k: x.detach().cpu() for k, x in {**outputs, **named}.items() if x is not None}


def poison(device: str) -> None:
    """Leaves the allocator no free memory but NaN, in either type: what no kernel writes stays so.

    torch cuts tensors of at most 1 MiB from blocks of 2 MiB, and larger ones from others.
    """
    torch.cuda.empty_cache()
    sizes = [1 << 20] * 32 + [1 << 26]
    blocks = [torch.full((size,), 255, dtype=torch.uint8, device=device) for size in sizes]
    del blocks


def compared(found: dict[str, torch.Tensor], want: dict[str, torch.Tensor]) -> Row:
    """The largest difference and where it is: over the largest value along each trajectory and dof,
    and over what the type resolves. Infinite where a value is not finite, or a result is missing.
    """
    errors = dict.fromkeys(found.keys() ^ want.keys(), float("inf"))
    for name in found.keys() & want.keys():
        a, b = found[name].double(), want[name].double()
        size = b.abs().amax(1, keepdim=True) if b.dim() == 3 else b.abs().max()
        allowed = (4e-7 if want[name].dtype == torch.float32 else 2e-11) * size + 1e-300
        alike = a.shape == b.shape and bool(a.isfinite().all() and b.isfinite().all())
        errors[name] = float(((a - b).abs() / allowed).max()) if alike else float("inf")
    worst = max(errors, key=lambda name: errors[name])
    return {"right": errors[worst] <= 1.0, "error": errors[worst], "of": worst}


def check(form: str, dtype: str, device: str = DEVICE) -> Row:
    """A form beside the CPU."""
    if device == "cuda:1" and (DRY or torch.cuda.device_count() < 2):
        return {"left out": "there is no second device"}
    want = results(form, dtype, "cpu", "torch")
    return compared(results(form, dtype, device, "triton"), want)


# -- calls in loops and in graphs ---------------------------------------------------------------


class Work:
    """A call in a loop, as an optimiser makes it, on the device or on the CPU."""

    def __init__(self, mode: Any, shape: tuple[int, int, int], device: str, backend: Any) -> None:
        B, _, D = shape
        self.mode, self.backend, self.dt = mode, backend, 0.02
        self.actions, self.start = torch.randn(shape, device=device), torch.randn(B, D).to(device)
        self.leaf = self.actions.clone().requires_grad_()
        one = self.call(self.actions[:1], self.start[:1])
        self.upstream = [torch.randn(B, *x.shape[1:], device=device) for x in one]
        self.bytes = 4 * (self.actions.numel() + sum(x.numel() for x in self.upstream))

    def call(self, actions: torch.Tensor, start: torch.Tensor) -> list[torch.Tensor]:
        result = trajcli.integrate(
            actions, start, self.dt, self.mode, backend=self.backend, allow_nonfinite=True
        )
        return [x for x in result if x is not None]

    def forward(self) -> list[torch.Tensor]:
        return self.call(self.actions, self.start)

    def both(self) -> torch.Tensor:
        outputs = self.call(self.leaf, self.start)
        return torch.autograd.grad(outputs, self.leaf, self.upstream)[0]

    def all(self) -> list[torch.Tensor]:
        return [*self.forward(), self.both()]

    def beside_cpu(self) -> Row:
        """The first and the last trajectories beside those of the CPU."""
        few = [0, 1, len(self.actions) - 1]
        alone = Work(self.mode, (3, *self.actions.shape[1:]), "cpu", "torch")
        alone.actions, alone.start = self.actions[few].cpu(), self.start[few].cpu()
        alone.leaf = alone.actions.clone().requires_grad_()
        alone.upstream = [x[few].cpu() for x in self.upstream]
        names = [*QUANTITIES, "gradient"]
        found = dict(zip(names, [x[few].cpu() for x in self.all()], strict=True))
        return compared(found, dict(zip(names, alone.all(), strict=True)))


def replay_is_call() -> Row:
    """A replay, with other values than those of the capture, has the bits of a call."""
    work = Work("acceleration", SHAPES[0], DEVICE, "triton")
    replay = captured(work.all)
    with torch.no_grad():
        work.actions.normal_()
        work.leaf.copy_(work.actions)
    return same([x.clone() for x in replay()], work.all())


def unseen_is_captured() -> Row:
    """A call of a shape and a dt that no call has had, captured at once: its replay has the bits of
    calls before and after."""
    dofs = SHAPES[0][2]
    Work("acceleration", (4, 8, dofs), DEVICE, "triton").all()  # chooses and loads the kernels
    work = Work("acceleration", (5, 9, dofs), DEVICE, "triton")
    work.dt = 0.037
    replay = captured(work.all, warm=False)
    before = work.all()
    found = [x.clone() for x in replay()]
    return same([*before, *found], [*work.all(), *before])


def same(found: list[torch.Tensor], want: list[torch.Tensor]) -> Row:
    """Whether they have the same bits, and are finite."""
    pairs = list(zip(found, want, strict=True))
    return {"right": all(torch.equal(a, b) and bool(a.isfinite().all()) for a, b in pairs)}


def captured(work: Callable[[], Any], times: int = 1, warm: bool = True) -> Callable[[], Any]:
    """A replay of the work, captured in a graph so many times."""
    if DRY:
        return work
    if warm:
        side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                work()
        torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            outputs = work()

    def replay() -> Any:
        graph.replay()
        return outputs

    return replay


# -- times --------------------------------------------------------------------------------------


def seconds(work: Callable[[], object], rounds: int = ROUNDS, waits: bool = True) -> float:
    """The median of runs, each until the device is done, or until the host is."""
    times = []
    for _ in range(rounds + 2):
        began = time.perf_counter()
        work()
        if waits:
            synchronize()
        times.append(time.perf_counter() - began)
        synchronize()
    return statistics.median(times[2:])


def device_seconds(work: Callable[[], object], times: int = 1) -> float:
    """The time on the device of one of so many calls in a graph, replayed many times in a row."""
    replay = captured(work, times)
    if DRY:
        return seconds(replay)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    replay()
    begin.record()
    for _ in range(ROUNDS):
        replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / (1e3 * ROUNDS * times)


def synchronize() -> None:
    if not DRY and torch.cuda.is_available():  # processes that only compile have no device
        torch.cuda.synchronize()


def timed(mode: str, shape: tuple[int, int, int]) -> Row:
    """Microseconds of a mode and shape; shares are those of a copy's time in a call's."""
    about: Row = {"mode": mode, "shape": list(shape)}
    needed = 4 * 12 * shape[0] * shape[1] * shape[2]
    if not DRY and needed > torch.cuda.mem_get_info()[0] // 2:
        return about | {"left out": f"needs {needed / 1e9:.0f} GB"}
    work = Work(mode, shape, DEVICE, "triton")
    source = torch.empty(work.bytes // 8, dtype=torch.float32, device=DEVICE)
    target = torch.empty_like(source)
    found = {
        "call": seconds(work.forward),
        "call and backward": seconds(work.both),
        "replay": device_seconds(work.forward),
        "replay and backward": device_seconds(work.both),
        "in a row": device_seconds(work.forward, 10),
        "in a row, and backward": device_seconds(work.both, 10),
        "copy": device_seconds(lambda: target.copy_(source), 10),
        "cumsum": device_seconds(lambda: work.actions.cumsum(1).cumsum(1)),
    }
    share, both = (found["copy"] / found[k] for k in ("in a row", "in a row, and backward"))
    micro = {name: 1e6 * value for name, value in found.items()}
    return about | work.beside_cpu() | micro | {"share": share, "share and backward": 2 * both}


class _Own(torch.autograd.Function):
    """Allocates what a call does, and does nothing."""

    @staticmethod
    def forward(ctx: Any, rows: int, dt: torch.Tensor, *inputs: Any) -> Any:
        ctx.save_for_backward(dt)
        ctx.shape = inputs[0].shape
        B, _, D = inputs[0].shape
        return tuple([inputs[0].new_empty((B, rows, D)) for _ in range(4)])

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Any:
        assert len(ctx.saved_tensors) == 1
        return None, None, upstream[0].new_empty(ctx.shape), *[None] * 8


def host() -> Row:
    """Microseconds of host time of a repeated call beyond those of an autograd function."""
    work = Work("acceleration", SHAPES[0], DEVICE, "triton")
    rows, dt = work.upstream[0].shape[1], torch.zeros(1, 1, device=DEVICE, dtype=torch.float64)
    apply: Any = _Own.apply

    def own(actions: torch.Tensor) -> Any:
        return apply(rows, dt, actions, work.start, *[None] * 7)

    def own_both() -> Any:
        return torch.autograd.grad(own(work.leaf), work.leaf, work.upstream)

    work.all()
    if DRY:
        launched.run = False  # the host's part alone
    of_own, of_both = (seconds(f, 500, waits=False) for f in (lambda: own(work.actions), own_both))
    forward, both = (seconds(f, 500, waits=False) for f in (work.forward, work.both))
    if DRY:
        launched.run = True
    return {"forward": 1e6 * (forward - of_own), "forward and backward": 1e6 * (both - of_both)}


# -- kernels ------------------------------------------------------------------------------------


def compile_all(limit: float) -> Row:
    """Compiles all kernels of checks and times, in as many processes as there are processors."""
    major, minor = (9, 0) if DRY else torch.cuda.get_device_capability()
    jobs = [(mode, "", dofs) for dofs in sorted({D for _, _, D in SHAPES}) for mode in MODES]
    # smooth is computed on the CPU, and has no kernels here
    jobs += [(name, dtype, 0) for dtype in DTYPES for name in FORMS if name != "smooth"]
    count = min(len(jobs), len(os.sched_getaffinity(0)))
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"))
    pending = {pool.submit(compile_one, 10 * major + minor, *job): job for job in jobs}
    done, late = wait(pending, limit)
    pool.shutdown(wait=not late, cancel_futures=True)
    rows = {str(pending[p]): attempt(p.result) for p in done}
    failed = {job: row for job, row in rows.items() if not row["right"]}
    return {"right": not failed, "jobs": len(jobs), "late": len(late), "failed": failed}


def compile_one(capability: int, name: str, dtype: str, dofs: int) -> Row:
    """Compiles what a form or, without a type, a mode needs, in a process without a device."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    from kernels import compile_triton  # type: ignore[import-not-found]
    from kernels.ptx import driver  # type: ignore[import-not-found]

    compile_triton.without_device(capability)
    driver.stand_in()
    torch.set_num_threads(1)

    def work() -> Row:
        if dtype:
            results(name, dtype, "cpu", "triton")
        else:
            Work(name, (2, 5, dofs), "cpu", "triton").both()
        return {"right": True}

    return attempt(work)


def kernels() -> dict[str, Row]:
    """Registers, and bytes that are spilled, of the kernels that this process has loaded."""
    from triton.runtime.jit import JITFunction

    modules = [m for name, m in sys.modules.items() if name.startswith("trajcli.kernels.triton_")]
    functions = {f for m in modules for f in vars(m).values() if isinstance(f, JITFunction)}
    return {
        f"{f.module}.{f.fn.__name__} {c.hash[:8]}": {
            "registers": c.n_regs,
            "spilled": 4 * c.n_spills,  # which Triton counts in words
        }
        for f in functions
        for cache in f.device_caches.values()
        for c in cache[0].values()
        if getattr(c, "module", None) is not None
    }


# -- stages -------------------------------------------------------------------------------------


def units(report: Report) -> list[tuple[str, str, Callable[[], Row]]]:
    """All that workers do, in order: the stage, the case, and what makes its row."""
    second = ("acceleration", "float32", "cuda:1")
    checks = {t: [(f"checks of {t}", f, partial(check, f, t)) for f in FORMS] for t in DTYPES}
    return [
        ("about", "", about),
        ("compile", "", partial(compile_all, FOR_COMPILING * report.content["seconds"])),
        *checks["float32"],
        ("checks of float32", "a replay of a graph", replay_is_call),
        ("checks of float32", "a call not seen before, captured", unseen_is_captured),
        ("checks of float32", "a second device", partial(check, *second)),
        ("host", "", host),
        *[("times", f"{m} {s}", partial(timed, m, s)) for s in SHAPES for m in MODES],
        ("registers", "", lambda: dict(report.content["kernels"])),
        ("clocks", "", clocks),
        *checks.get("float64", []),
    ]


def about() -> Row:
    import triton

    return {
        "commit": said("git", "describe", "--always", "--dirty"),
        "when": datetime.now().isoformat(timespec="seconds"),
        "versions": [platform.python_version(), torch.__version__, triton.__version__],
        "device": "none: figures mean nothing" if DRY else torch.cuda.get_device_name(),
        "capability": None if DRY else torch.cuda.get_device_capability(),
        **clocks(),
    }


def clocks() -> Row:
    asked = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,temperature.gpu,power.draw"
    query = ("nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader")
    return {asked: "" if DRY else said(*query)}


def said(*command: str) -> str:
    try:
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (run.stdout or run.stderr).strip()


def tests(limit: float) -> Row:
    """The tests that need a device, in several processes. One that is skipped has not passed."""
    if not find_spec("pytest"):
        return {"failed": 1, "said": "pytest is not installed"}
    options = ["-o", "addopts=", "--import-mode=importlib", "-p", "no:cacheprovider", "-q"]
    options += ["--tb=short", "-rfEs", "-o", f"faulthandler_timeout={LONGEST}"]
    options += ["-W", "default"]  # what another torch warns of fails none
    if find_spec("xdist"):
        options += ["-n", "0" if DRY else "8", "--dist=worksteal"]
    if DRY:
        options += ["-k", "cuda or room"]  # one passes, one is skipped
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "tests.xml")
        command = [sys.executable, "-m", "pytest", *options, f"--junitxml={path}"]
        files = [f"tests/{name}.py" for name in TESTS]
        code = run_alone([*command, f"--basetemp={place}/tests", *files], limit, cwd=ROOT)
        suite = ElementTree.parse(path).find("testsuite") if path.exists() else None
    ended_with = code if code is not None else "out of time"
    if suite is None:
        return {"passed": 0, "failed": 1, "exit code": ended_with}
    ended, skipped, failures = Counter[str](), Counter[str](), {}
    for case in suite:
        outcome = next((x for x in case if x.tag in ("skipped", "failure", "error")), None)
        if outcome is None:
            ended[case.get("classname", "")] += 1
        elif outcome.tag == "skipped":
            skipped[outcome.get("message", "")] += 1
        else:
            failures[f"{case.get('classname')}.{case.get('name')}"] = (outcome.text or "")[-3000:]
    none = [name for name in TESTS if not ended[f"tests.{name.replace('/', '.')}"]]
    # one that was interrupted is a case without an outcome, but not in these
    count, *others = (int(suite.get(x, 0)) for x in ("tests", "failures", "errors", "skipped"))
    return {
        "passed": count - sum(others),
        "failed": int(code != 0 or bool(none)),
        "skipped": dict(skipped),
        "failures": failures,
        "no test passed of": none,
        "exit code": ended_with,
    }


# -- the report, workers and what supervises them -----------------------------------------------


class Report:
    """Rows and what else is known, in a file that is whole at any time."""

    def __init__(self, path: Path, content: Row) -> None:
        self.path, self.content = path, content
        self.rows: list[Row] = content["rows"]

    def left(self) -> float:
        """Seconds."""
        return float(self.content["until"]) - time.time()

    def write(self, **more: Any) -> None:
        self.content |= more
        beside = self.path.with_name(f"{self.path.name}.part")
        beside.write_text(json.dumps(self.content, indent=1))
        os.replace(beside, self.path)

    def begin(self, stage: str, case: str) -> None:
        """Writes, and prints, what is worked on."""
        if not self.rows or self.rows[-1]["stage"] != stage:
            print(f"-- {stage}", flush=True)
        self.write(begun=[stage, case])

    def add(self, row: Row) -> None:
        """Writes, and prints, the row of what was begun."""
        stage, case = self.content["begun"]
        self.rows.append({"stage": stage, "case": case, **row})
        self.write(begun=None)
        if "right" in row or case:
            brief = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()}
            long = [brief.pop(k) for k, v in row.items() if "\n" in str(v)]
            print(case, *[f"{k} {v}" for k, v in brief.items()], sep="  ")
            print(*long, sep="\n", end="\n" * bool(long), flush=True)
        else:
            print(json.dumps(row, indent=1), flush=True)


def attempt(work: Callable[[], Row]) -> Row:
    """The row that it returns, or the error."""
    try:
        row = work()
        synchronize()
    except Exception as error:
        causes, cause = [], error.__cause__ or error.__context__
        while cause is not None:
            causes.append(f"{type(cause).__name__}: {cause}"[:600])
            cause = cause.__cause__ or cause.__context__
        return {
            "right": False,
            "error": f"{type(error).__name__}: {error}"[:600],
            "causes": causes,
            "traceback": traceback.format_exc()[-4000:],
        }
    return row


def spoilt() -> bool:
    """Whether an error has left CUDA unusable in this process, or the process in a capture."""
    if DRY:
        return False
    try:
        torch.cuda.synchronize()
    except Exception:
        return True
    return torch.cuda.current_stream() != torch.cuda.default_stream()


def work_off(report: Report) -> int:
    """What a worker does: all units that have no row yet. Returns its exit code."""
    global launched
    faulthandler.enable()
    faulthandler.dump_traceback_later(LONGEST, exit=True)
    if DRY:
        from kernels.ptx import driver

        launched = driver.emulate_driver(90)
        driver.stand_in()
    elif not torch.cuda.is_available():
        print("torch finds no CUDA device; --dry runs without one", file=sys.stderr)
        return 1
    from triton import knobs

    def note(metadata: Row, cache_hit: bool, **_: Any) -> None:
        if not cache_hit:
            report.content["compiled late"].append(metadata["name"])

    knobs.compilation.listener = note
    known = {(row["stage"], row["case"]) for row in report.rows}
    reserved = max(FOR_TESTS * report.content["seconds"], 30)
    for stage, case, work in units(report):
        if (stage, case) in known:
            continue
        report.begin(stage, case)
        if report.left() < reserved and stage not in ("about", "registers"):
            report.add({"left out": "out of time"})
            continue
        more = FOR_COMPILING * report.content["seconds"] if stage == "compile" else 0.0
        faulthandler.dump_traceback_later(LONGEST + more, exit=True)
        began = time.perf_counter()
        row = attempt(work)
        row["seconds"] = time.perf_counter() - began
        report.content["kernels"] |= kernels()
        report.add(row)
        if row.get("right") is False and spoilt():
            return 1
    return 0


def supervise(report: Report) -> Report:
    """Has workers make all rows; returns what they reported."""
    while True:
        count = len(report.rows)
        with tempfile.TemporaryFile("w+", errors="replace") as errors:
            command = [sys.executable, *sys.argv, "--worker"]
            code = run_alone(command, max(report.left(), LONGEST), stderr=errors)
            errors.seek(0)
            text = errors.read()
        print(text, end="", file=sys.stderr, flush=True)
        report = Report(report.path, json.loads(report.path.read_text()))
        if report.content["begun"]:
            died = f"the worker died with exit code {code}"
            report.add({"right": False, "error": died, "traceback": text[-4000:]})
        if code == 0 or len(report.rows) == count:
            return report


def run_alone(command: list[str], limit: float, **options: Any) -> int | None:
    """Runs a command, and leaves no process of it. Its exit code; None if it was not done in time:
    it is interrupted, as pytest then says what it has, and soon killed."""
    process = subprocess.Popen(command, start_new_session=True, **options)
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(15)
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def figures(report: Report) -> dict[str, float]:
    """Returns the figures that have targets, where they were measured."""
    made = {(x["stage"], x["case"]) for x in report.rows if x.get("left out") != "out of time"}
    asked = {(stage, case) for stage, case, _ in units(report) if stage.startswith("checks")}
    last = {row["stage"]: row for row in report.rows}
    found = {
        "cases that are wrong or fail": sum(row.get("right") is False for row in report.rows),
        "checks that were not made": len(asked - made),
        "tests that fail": last["tests"]["failed"],
    }
    if report.content["kernels"]:
        spilled = [kernel["spilled"] for kernel in report.content["kernels"].values()]
        found["bytes a kernel spills"] = max(spilled)
    for name in last.get("host", {}).keys() & {"forward", "forward and backward"}:
        found[f"host, {name}, µs"] = last["host"][name]
    small, large = (
        [row for row in report.rows if "share" in row and row["shape"] == list(shape)]
        for shape in (SHAPES[0], SHAPES[-1 if DRY else 1])
    )
    if len(small) == len(MODES):
        found["replay of 64 trajectories, forward, µs"] = max(row["replay"] for row in small)
    if len(large) == len(MODES):
        found["share of a copy, forward"] = min(row["share"] for row in large)
        least = min(row["share and backward"] for row in large)
        found["share of a copy, forward and backward"] = least
    return found


def reached(found: dict[str, float], verdict: str) -> str:
    """Prints figures beside their targets. PASS if all are there and reach them, else FAIL."""
    print(f"-- {verdict}")
    missed = ""
    for name, (target, sense) in TARGETS[verdict].items():
        value = found.get(name, float("nan"))
        good = value <= target if sense == "at most" else value >= target
        note = "" if good else "   MISSED"
        print(f"{name:<45}{value:>10.2f}   {sense} {target}{note}")
        missed += note
    return "FAIL" if missed else "PASS"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--report", type=Path, default=Path("gpu.json"))
    parser.add_argument("--seconds", type=float, default=280, help="for all, 280 without")
    parser.add_argument("--dry", action="store_true", help="tiny shapes, without a device")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        code = work_off(Report(arguments.report, json.loads(arguments.report.read_text())))
        sys.stderr.flush()
        os._exit(code)  # a lost device, or a process that still compiles, would hold it up
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    until = time.time() + arguments.seconds
    content = {"dry": DRY, "seconds": arguments.seconds, "until": until, "begun": None}
    report = Report(arguments.report, content | {"rows": [], "kernels": {}, "compiled late": []})
    report.write()
    report = supervise(report)
    if not report.rows:
        sys.exit(1)
    report.begin("tests", "")
    report.add(tests(max(report.left(), 30)))
    found = figures(report)
    right, fast = reached(found, "RIGHT"), None if DRY else reached(found, "FAST")
    verdicts = {"right": right == "PASS", "fast": None if DRY else fast == "PASS"}
    report.write(figures=found, **verdicts, took=arguments.seconds - report.left())
    print(f"RIGHT: {right}")
    print(f"FAST: {fast or 'not measured'}")
    sys.exit(right != "PASS")


if __name__ == "__main__":
    main()
