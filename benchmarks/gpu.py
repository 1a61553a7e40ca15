"""Everything on a CUDA device: whether it is right, and what it takes. Ends with PASS or FAIL.

    python benchmarks/gpu.py [--report gpu.json] [--seconds 1200]
    PYTHONPATH=tests python benchmarks/gpu.py --dry   # tiny shapes, on a stand-in for a device

Needs trajcli with its tests, and torch with CUDA. The report is written after every stage, and a
case that fails is in it like the others:

- about: the commit, versions, the driver, clocks before and after;
- checks: outputs and gradients of every form of a call beside those of the CPU; replays of CUDA
  graphs beside calls; a second device, where there is one;
- host: what a repeated call costs the host beyond an autograd function that allocates the same;
- times: calls and replays of graphs, forward, and forward and backward, for 1 to 100 000
  trajectories, beside a copy that moves the same bytes, torch.cumsum and the call on the CPU;
- registers: of every kernel that was compiled, and the bytes it spills;
- tests: those of tests/kernels that need a device.

What does not fit into half of the free memory is not measured, nor what comes after --seconds.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

import trajcli
from trajcli import State

ROOT = Path(__file__).resolve().parent.parent
DRY = "--dry" in sys.argv
DEVICE = "cpu" if DRY else "cuda"
TARGETS = {
    "cases that are wrong or fail": (0, "at most"),
    "tests that fail": (0, "at most"),
    "bytes a kernel spills": (64, "at most"),
    "host, forward, µs": (40, "at most"),
    "host, forward and backward, µs": (90, "at most"),
    "replay of 64 trajectories, forward, µs": (10, "at most"),
    "share of a copy, forward": (0.5, "at least"),
    "share of a copy, forward and backward": (0.35, "at least"),
}
"""What the figures must reach; shares are the least of the modes, of most trajectories."""
SHAPES = [(B, H, 7) for B in (1, 64, 1024, 16_384, 100_000) for H in (30, 100)]
MODES: tuple[str, ...] = ("acceleration", "central", "bspline")
if DRY:
    SHAPES, MODES = [(2, 5, 2)], ("acceleration",)

Call = Callable[[Any], trajcli.Trajectory]
"""A call whose arrays are made by a function from NumPy arrays: for the device or for the CPU."""


def forms(dtype: str) -> dict[str, Callable[[Any, str], trajcli.Trajectory]]:
    """Calls by name. Each takes a function that makes a tensor of its name, shape and type, and a
    backend."""
    B, H, D = (2, 6, 2) if DRY else (300, 40, 7)

    def plan(mode: str, dt: Any = 0.02, **options: Any) -> Any:
        def call(tensor: Any, backend: str) -> trajcli.Trajectory:
            more = dict(options)
            rows = 3 if more.pop("index", False) else B
            if rows == 3:
                more["start_index"] = tensor("index", (B,), "int64")
            start = State(*[tensor(f"start {m}", (rows, D), dtype) for m in range(4)])
            if more.get("ends") == "goal":
                more["goal"] = tensor("goal", (3, D), dtype)
                more["goal_index"] = tensor("goal index", (B,), "int64")
            step = tensor("dt", dt, "float64") if isinstance(dt, tuple) else dt
            actions = tensor("actions", (B, H, D), dtype)
            if more.pop("strided", False):
                actions = actions.transpose(0, 1).contiguous().transpose(0, 1)
            return trajcli.integrate(actions, start, step, mode, backend=backend, **more)

        return call

    def recording(method: str, dt: Any = 0.02) -> Any:
        def call(tensor: Any, backend: str) -> trajcli.Trajectory:
            step = tensor("dt", dt, "float64") if isinstance(dt, tuple) else dt
            positions = tensor("actions", (B, H, D), dtype)
            more: dict[str, Any] = {"window": 5, "degree": 3} if method == "savgol" else {}
            return trajcli.differentiate(positions, dt=step, method=method, backend=backend, **more)

        return call

    found = {
        "acceleration": plan("acceleration"),
        "central, goal with an index": plan("central", ends="goal"),
        "acceleration, dt [B, H], start with an index": plan(
            "acceleration", dt=(B, H), scheme="foh", index=True
        ),
        "savgol, dt [B, H]": recording("savgol", (B, H - 1)),
    }
    if DRY:
        return found
    return found | {
        "velocity, dt [H]": plan("velocity", dt=(H,), scheme="zoh"),
        "jerk, strided": plan("jerk", scheme="foh", strided=True),
        "clique, rows of actions": plan("clique", frames="actions"),
        "acceleration, cuRobo": plan("acceleration", convention="curobo"),
        "central, dt [B, H]": plan("central", dt=(B, H)),
        "central, cuRobo": plan("central", convention="curobo"),
        "bspline": plan("bspline", dt=(B, 1)),
        "bspline 5, goal with an index": plan("bspline", degree=5, steps=3, ends="goal"),
        "teleport": plan("teleport"),
        "recording, backward": recording("backward", (B, H - 1)),
        "recording, central": recording("central"),
        "recording, central, dt [H]": recording("central", (H - 1,)),
        "savgol": recording("savgol"),
    }


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


def results(call: Any, device: str, backend: str) -> dict[str, torch.Tensor]:
    """Outputs and gradients of a call, by name."""
    tensors = Tensors(device)
    trajectory = call(tensors, backend)
    outputs = trajectory.outputs()
    upstream = [
        torch.randn(x.shape, generator=torch.Generator().manual_seed(3)).to(x)
        for x in outputs.values()
    ]
    grads = torch.autograd.grad(
        list(outputs.values()), list(tensors.leaves.values()), upstream, allow_unused=True
    )
    named = {f"gradient of {k}": g for k, g in zip(tensors.leaves, grads, strict=True)}
    return {k: x for k, x in {**outputs, **named}.items() if x is not None}


def error_of(found: dict[str, torch.Tensor], want: dict[str, torch.Tensor]) -> float:
    """The largest difference, over the largest value along each trajectory and dof, and over what
    the type resolves."""
    worst = 0.0
    for name, x in want.items():
        a, b = found[name].detach().cpu().double(), x.detach().double()
        size = b.abs().amax(1, keepdim=True) if b.dim() == 3 else b.abs().max()
        allowed = (4e-7 if x.dtype == torch.float32 else 2e-11) * size + 1e-300
        worst = max(worst, float(((a - b).abs() / allowed).max()))
        if not torch.isfinite(a).all():
            return float("inf")
    return worst


def checks() -> Iterator[dict[str, Any]]:
    """Every form in both types beside the CPU; then what is the device's own."""
    for dtype in ("float32", "float64")[: 1 if DRY else 2]:
        for name, call in forms(dtype).items():
            yield {"case": f"{name}, {dtype}", **check(call, DEVICE)}
    call = forms("float32")["acceleration"]
    yield {"case": "a replay of a graph", **attempt(replay_equals_call)}
    if not DRY and torch.cuda.device_count() > 1:
        yield {"case": "a second device", **check(call, "cuda:1")}


def check(call: Any, device: str) -> dict[str, Any]:
    def compare() -> dict[str, Any]:
        error = error_of(results(call, device, "triton"), results(call, "cpu", "torch"))
        return {"right": error <= 1.0, "error": error}

    return attempt(compare)


def attempt(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What it returns, or the error."""
    try:
        return work()
    except Exception as error:
        if not DRY and isinstance(error, torch.cuda.OutOfMemoryError):
            torch.cuda.empty_cache()
        return {"right": False, "error": f"{type(error).__name__}: {error}"[:2000]}


class Work:
    """A call in a loop, as an optimiser makes it, on the device or on the CPU."""

    def __init__(self, mode: str, shape: tuple[int, int, int], device: str, backend: str) -> None:
        B, _, D = shape
        self.mode, self.backend = mode, backend
        self.actions = torch.randn(shape, device=device)
        self.leaf = self.actions.clone().requires_grad_()
        self.start = State(torch.randn(B, D, device=device))
        outputs = self.forward()
        self.upstream = [torch.randn_like(x) for x in outputs]
        self.bytes = 4 * (self.actions.numel() + sum(x.numel() for x in outputs))

    def forward(self, leaf: bool = False) -> list[torch.Tensor]:
        actions = self.leaf if leaf else self.actions
        result = trajcli.integrate(
            actions, self.start, 0.02, self.mode, backend=self.backend, allow_nonfinite=True
        )
        return [x for x in result if x is not None]

    def both(self) -> torch.Tensor:
        (gradient,) = torch.autograd.grad(self.forward(leaf=True), self.leaf, self.upstream)
        return gradient


def replay_equals_call() -> dict[str, Any]:
    work = Work("acceleration", SHAPES[0], DEVICE, "triton")
    replay = captured(lambda: [*work.forward(), work.both()])
    with torch.no_grad():
        work.actions.normal_()
        work.leaf.copy_(work.actions)
    found, want = [x.clone() for x in replay()], [*work.forward(), work.both()]
    return {"right": all(torch.equal(a, b) for a, b in zip(found, want, strict=True))}


def captured(work: Callable[[], Any]) -> Callable[[], Any]:
    """A replay of the work, captured in a graph."""
    if DRY:
        return work
    side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = work()

    def replay() -> Any:
        graph.replay()
        return outputs

    return replay


def seconds(work: Callable[[], object], device: str = DEVICE) -> float:
    """The median of runs, each until the device is done."""
    rounds = 1 if DRY else 20
    times = []
    for _ in range(rounds + 2):
        began = time.perf_counter()
        work()
        if device != "cpu":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return statistics.median(times[2:])


def device_seconds(work: Callable[[], object]) -> float:
    """The time on the device of one of many in a row."""
    if DRY:
        return seconds(work)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    work()
    begin.record()
    for _ in range(20):
        work()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 2e4


def times(until: float) -> Iterator[dict[str, Any]]:
    """A row for each mode and shape."""
    for shape in SHAPES:
        for mode in MODES:
            row = {"mode": mode, "shape": list(shape)}
            needed = 4 * 12 * shape[0] * shape[1] * shape[2]
            if time.perf_counter() > until:
                yield row | {"left out": "out of time"}
            elif not DRY and needed > torch.cuda.mem_get_info()[0] // 2:
                yield row | {"left out": f"needs {needed / 1e9:.0f} GB"}
            else:
                yield row | attempt(lambda m=mode, s=shape: timed(m, s))  # type: ignore[misc]


def timed(mode: str, shape: tuple[int, int, int]) -> dict[str, Any]:
    """Microseconds of a mode and shape; shares are those of a copy's time in a replay's."""
    work = Work(mode, shape, DEVICE, "triton")
    source = torch.empty(work.bytes // 8, dtype=torch.float32, device=DEVICE)
    target = torch.empty_like(source)
    found = {
        "call": seconds(work.forward),
        "call and backward": seconds(work.both),
        "replay": device_seconds(captured(work.forward)),
        "replay and backward": device_seconds(captured(work.both)),
        "copy": device_seconds(captured(lambda: target.copy_(source))),
        "cumsum": device_seconds(captured(lambda: work.actions.cumsum(1).cumsum(1))),
    }
    if work.actions.numel() < 10_000_000:
        native = Work(mode, shape, "cpu", "auto")
        found |= {
            "CPU": seconds(native.forward, "cpu"),
            "CPU and backward": seconds(native.both, "cpu"),
        }
    micro = {name: 1e6 * value for name, value in found.items()}
    share, both = (found["copy"] / found[k] for k in ("replay", "replay and backward"))
    return {"right": True, **micro, "share": share, "share and backward": 2 * both}


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


def host(pause: Callable[[bool], None]) -> dict[str, Any]:
    """Microseconds of host time of a repeated call beyond those of an autograd function."""
    work = Work("acceleration", (64, 30, 7) if not DRY else SHAPES[0], DEVICE, "triton")
    dt = torch.zeros(1, 1, device=DEVICE, dtype=torch.float64)
    states = [work.start.position, *[None] * 7]
    apply: Any = _Own.apply

    def own(leaf: bool = False) -> Any:
        return apply(work.upstream[0].shape[1], dt, work.leaf if leaf else work.actions, *states)

    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "forward": (work.forward, own),
        "forward and backward": (
            work.both,
            lambda: torch.autograd.grad(own(leaf=True), work.leaf, work.upstream),
        ),
    }
    found = {}
    for name, pair in pairs.items():
        for call in pair:
            call()
        pause(True)
        medians = []
        for call in pair:
            spent = []
            for _ in range(500):
                began = time.perf_counter()
                call()
                spent.append(time.perf_counter() - began)
                if not DRY:
                    torch.cuda.synchronize()
            medians.append(1e6 * statistics.median(spent))
        pause(False)
        found[name] = medians[0] - medians[1]
    return found


def registers() -> list[dict[str, Any]]:
    """Of the kernels of this process."""
    from trajcli.kernels.triton_ops import band, cascade

    kernels = [band.forward, band.adjoint, cascade.forward, cascade.adjoint]
    return [
        {"kernel": f"{k.module}.{k.fn.__name__}", "registers": c.n_regs, "spilled": c.n_spills}
        for k in kernels
        for cache in k.device_caches.values()
        for c in cache[0].values()
        if getattr(c, "module", None) is not None
    ]


def tests() -> dict[str, Any]:
    """Those of tests/kernels that need a device."""
    files = [f"tests/kernels/test_triton{name}.py" for name in ("", "_device", "_compiled")]
    options = ["--collect-only"] if DRY else []
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *files]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return {"failed": int(run.returncode != 0), "said": run.stdout[-3000:]}


def about() -> dict[str, Any]:
    import triton

    def said(*command: str) -> str:
        try:
            run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        except OSError as error:
            return str(error)
        return (run.stdout or run.stderr).strip()

    query = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,temperature.gpu,power.draw"
    return {
        "commit": said("git", "describe", "--always", "--dirty"),
        "when": datetime.now().isoformat(timespec="seconds"),
        "trajcli": trajcli.__version__,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "device": "none: figures mean nothing" if DRY else torch.cuda.get_device_name(),
        "capability": None if DRY else torch.cuda.get_device_capability(),
        query: "" if DRY else said("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"),
    }


def figures(report: dict[str, Any]) -> dict[str, float]:
    """Those that targets are for, as far as there are."""
    rows = [row for row in report["times"] if "share" in row]
    cases = [*report["checks"], *report["times"]]
    found: dict[str, float] = {
        "cases that are wrong or fail": sum(
            not row.get("right", "left out" in row) for row in cases
        ),
        "tests that fail": report["tests"]["failed"],
        "bytes a kernel spills": max((row["spilled"] for row in report["registers"]), default=0),
    }
    if DRY:
        return found
    for name, value in report["host"].items():
        if name not in ("right", "error"):
            found[f"host, {name}, µs"] = value
    small = [row["replay"] for row in rows if row["shape"] == [64, 30, 7]]
    if small:
        found["replay of 64 trajectories, forward, µs"] = max(small)
    largest = [row for row in rows if row["shape"] == rows[-1]["shape"]] if rows else []
    if largest:
        found["share of a copy, forward"] = min(row["share"] for row in largest)
        share = min(row["share and backward"] for row in largest)
        found["share of a copy, forward and backward"] = share
    return found


def verdict(report: dict[str, Any]) -> bool:
    """Prints every figure beside its target; whether all are there and reach it."""
    found, passed = figures(report), True
    for name, (target, sense) in TARGETS.items():
        if DRY and name not in found:
            continue
        value = found.get(name, float("nan"))
        reached = value <= target if sense == "at most" else value >= target
        passed &= reached
        print(f"{name:<45}{value:>10.2f}   {sense} {target}{'' if reached else '   MISSED'}")
    return passed


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--report", type=Path, default=Path("gpu.json"))
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--dry", action="store_true", help="tiny shapes, without a device")
    arguments = parser.parse_args()
    until = time.perf_counter() + arguments.seconds
    pause: Callable[[bool], None] = lambda quiet: None  # noqa: E731
    if DRY:
        from kernels.ptx import driver  # type: ignore[import-not-found]

        launched = driver.emulate_driver(90)
        driver.stand_in()
        pause = lambda quiet: setattr(launched, "run", not quiet)  # noqa: E731
    elif not torch.cuda.is_available():
        sys.exit("torch finds no CUDA device; --dry runs without one")
    report: dict[str, Any] = {}
    stages: dict[str, Callable[[], Any]] = {
        "about": about,
        "checks": lambda: rows_of(checks()),
        "host": lambda: attempt(lambda: host(pause)),
        "times": lambda: rows_of(times(until)),
        "registers": lambda: rows_of(iter(registers())),
        "tests": tests,
        "after": about,
    }
    for name, stage in stages.items():
        print(f"-- {name}", flush=True)
        report[name] = stage()
        if not isinstance(report[name], list):
            print(json.dumps(report[name], indent=1), flush=True)
        arguments.report.write_text(json.dumps(report, indent=1))
    passed = verdict(report)
    report["passed"] = passed
    arguments.report.write_text(json.dumps(report, indent=1))
    print("PASS" if passed else "FAIL")
    sys.exit(not passed)


def rows_of(rows: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """All rows, each printed as soon as it is there."""
    found = []
    for row in rows:
        print(
            "  ".join(
                f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()
            ),
            flush=True,
        )
        found.append(row)
    return found


if __name__ == "__main__":
    main()
