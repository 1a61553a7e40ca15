"""What this machine can do: plain copies, every mode beside them, and a file to a file.

The measure of a kernel is the time of plain copies that read and write as many arrays: one array
of actions copied to four others; and what it must move, each array once, as a share of what those
copies move in its time. Everything is run in turns, so that a busy machine is busy for
all of them; the figures are medians over the rounds, ratios those of the same round.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.arrays import is_torch, to_torch
from trajcli.errors import Fault, UsageError
from trajcli.inputs import Inputs
from trajcli.jobs.request import Request
from trajcli.jobs.run import run
from trajcli.kernels import cuda
from trajcli.kernels.choose import LEAST_CAPABILITY, Choice, absent_backends
from trajcli.kernels.native import threads
from trajcli.kernels.program import BandProgram, Program, run_program
from trajcli.modes import PARTS, make_mode

MODES: dict[str, dict[str, Any]] = {
    "clique": {},
    "velocity": {},
    "acceleration": {},
    "jerk": {},
    "central": {},
    "bspline": {"degree": 5},
    "teleport": {},
}
HORIZON = 100
_SLOW_ELEMENTS = 1_000_000

Report = Callable[[str], None]


def bench(
    elements: int,
    dofs: Sequence[int],
    modes: Sequence[str],
    rounds: int,
    folder: Path,
    on_step: Report = lambda text: None,
) -> dict[str, Any]:
    """Measure and return a report of plain values.

    elements: actions B·H·D in memory, float32; folder: where the file is written for a while.
    Raises UsageError for modes that are unknown and numbers that are not positive.
    """
    _check(elements, dofs, modes, rounds, folder)
    kernels = []
    for count in dofs:
        for mode in modes:
            for choice in _choices():
                on_step(f"{mode}, D = {count}, {choice.backend} on {choice.device}")
                kernels += _kernel_rows(mode, count, choice, elements, rounds)
    on_step("file to file")
    return {
        "elements": elements,
        "horizon": HORIZON,
        "rounds": rounds,
        "threads": threads(),
        "copy_gb_per_s": _copy_speed(elements, rounds),
        "kernels": kernels,
        "file": _file_row(elements, rounds, folder),
        "backends_absent": absent_backends(),
    }


def _check(
    elements: int, dofs: Sequence[int], modes: Sequence[str], rounds: int, folder: Path
) -> None:
    faults = [
        Fault("not a mode to measure", "--modes", ", ".join(MODES), mode)
        for mode in modes
        if mode not in MODES
    ]
    for name, least, value in (
        ("--elements", HORIZON * max(dofs, default=1), elements),
        ("--dofs", 1, min(dofs, default=0)),
        ("--rounds", 1, rounds),
    ):
        if value < least:
            faults.append(Fault("too few", name, f"at least {least}", str(value)))
    if not os.access(folder, os.W_OK | os.X_OK) or not folder.is_dir():
        faults.append(Fault("not a folder to write in", "--folder", found=str(folder)))
    if faults:
        raise UsageError(*faults)


def _choices() -> list[Choice]:
    """Every backend on the CPU, and on the first CUDA device where there is one to be had."""
    absent = absent_backends()
    places = [("native", "cpu"), ("torch", "cpu")]
    if cuda.count() and not cuda.trouble("cuda"):
        able = cuda.capability("cuda") >= LEAST_CAPABILITY
        places += [("triton", "cuda"), ("torch", "cuda")][0 if able else 1 :]
    return [Choice(name, device, "bench") for name, device in places if name not in absent]


def _kernel_rows(
    mode: str, dofs: int, choice: Choice, elements: int, rounds: int
) -> list[dict[str, Any]]:
    """Forward and adjoint of a mode in one backend, each against the copies of its round."""
    backend = choice.backend
    if backend == "torch":  # each of its steps is a pass over memory, some hundred of them
        elements = min(elements, max(_SLOW_ELEMENTS, HORIZON * dofs))
    batch = elements // (HORIZON * dofs)
    random = np.random.default_rng(0)
    actions = random.standard_normal((batch, HORIZON, dofs), dtype=np.float32)
    inputs = Inputs(
        mode=make_mode(mode, **MODES[mode]),
        actions=actions,
        start={"position": np.zeros((1, dofs))},
        goal={},
        dt=np.asarray(0.02),
    )
    rows = inputs.mode.rows(HORIZON, False)
    out = [np.zeros((batch, rows, dofs), np.float32) for _ in PARTS]
    place = None if backend == "native" else choice.device
    program = inputs.program(place, gathers=backend == "triton")
    places = out if backend == "native" else _as_tensors(out, choice.device)
    pull = _adjoint(program, choice, places, actions)
    forward: Callable[[], object] = lambda: run_program(program, choice.kernels, places)  # noqa: E731
    copies: Callable[[], object] = _Copies(actions)
    timed = _timed
    if choice.device != "cpu":
        timed, copies = _timed_on_device, _replayed(_DeviceCopies(actions))
        if backend == "triton":  # torch_ops sends its tables, which no graph can
            forward, pull = _replayed(forward), _replayed(pull)
    found: dict[str, list[tuple[float, float]]] = {"forward": [], "adjoint": []}
    for _ in range(rounds + 1):
        floor = timed(copies)
        found["forward"].append((timed(forward), floor))
        found["adjoint"].append((timed(pull), floor))
    moved = (actions.nbytes + sum(array.nbytes for array in out)) / (8 * actions.nbytes)
    return [
        {
            "mode": mode,
            "dofs": dofs,
            "backend": backend,
            "device": choice.device,
            "direction": direction,
            "seconds": statistics.median(t for t, _ in times[1:]),
            "copies": statistics.median(t / floor for t, floor in times[1:]),
            "copy_gb_per_s": 8e-9
            * actions.nbytes
            / statistics.median(floor for _, floor in times[1:]),
            "of_copy": statistics.median(moved * floor / t for t, floor in times[1:]),
            "ns_per_element": 1e9 * statistics.median(t for t, _ in times[1:]) / actions.size,
        }
        for direction, times in found.items()
    ]


def _as_tensors(arrays: Sequence[Any], device: str) -> list[Any]:
    import torch

    return [torch.from_numpy(array).to(device) for array in arrays]


def _adjoint(
    program: Program, choice: Choice, upstream: Sequence[Any], actions: Any
) -> Callable[[], object]:
    """The transpose with respect to actions and states, upstream in the place of the outputs."""
    kernels: Any = choice.kernels
    if isinstance(program, BandProgram):
        inner = [g[:, 1:] if program.start is not None else g for g in upstream]
        given, weights = program.actions, program.weights
        head, tail = program.head, program.tail
        if choice.backend == "torch":
            return lambda: kernels.band_adjoint(inner, given, head, tail, weights, of_table=False)
        grad = _like(given, np.empty(given.shape, np.float32))
        return lambda: kernels.band_adjoint(
            inner, given, head, tail, weights, of_table=False, into=grad
        )
    inner = [g[:, 1:] if program.start_row else g for g in upstream]
    none, options = (None,) * 4, {"order": program.order, "scheme": program.scheme}
    shape = tuple(program.sources[program.order].shape)  # type: ignore[union-attr]
    if choice.backend == "torch":
        return lambda: kernels.cascade_adjoint(inner, none, program.dt, shape, **options)
    sources: list[Any] = [None] * 4
    sources[program.order] = _like(program.dt, np.empty(actions.shape, np.float32))
    state = [_like(program.dt, np.empty((shape[0], shape[2]))) for _ in PARTS]
    return lambda: kernels.adjoint_into(
        inner, none, program.dt, shape, **options, sources=sources, state=state
    )


def _like(given: Any, array: Any) -> Any:
    """The array where and as what ``given`` is."""
    return to_torch(array, str(given.device)) if is_torch(given) else array


class _DeviceCopies:
    """The same floor on a CUDA device, of four arrays: one would be read from its cache."""

    def __init__(self, values: Any) -> None:
        given = to_torch(values, "cuda")
        self._pairs = [(given.clone(), given.clone()) for _ in PARTS]

    def __call__(self) -> None:
        for out, values in self._pairs:
            out.copy_(values)


class _Copies:
    """The floor: an array copied to four others, on as many threads as the kernels use."""

    def __init__(self, values: Any) -> None:
        self._values = values.reshape(-1)
        self._out = [np.zeros_like(self._values) for _ in PARTS]

    def __call__(self) -> None:
        count = threads()
        edges = [self._values.size * k // count for k in range(count + 1)]

        def part(k: int) -> None:
            for out in self._out:
                np.copyto(out[edges[k] : edges[k + 1]], self._values[edges[k] : edges[k + 1]])

        with ThreadPoolExecutor(count) as pool:
            list(pool.map(part, range(count)))


def _copy_speed(elements: int, rounds: int) -> float:
    """Bytes read and written by the copies, per second / 1e9."""
    copies = _Copies(np.ones(elements, np.float32))
    seconds = [_timed(copies) for _ in range(rounds + 1)][1:]
    return 8 * 4 * elements / statistics.median(seconds) / 1e9


def _file_row(elements: int, rounds: int, folder: Path) -> dict[str, Any]:
    """Mode acceleration from file to file in this process, against copying the output."""
    batch = max(1, elements // (HORIZON * 7))
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder)))
        actions = np.random.default_rng(0).standard_normal((batch, HORIZON, 7), dtype=np.float32)
        np.save(place / "actions.npy", actions)
        del actions
        request = Request(
            sources=[str(place / "actions.npy")],
            out=place / "out.h5",
            dt="0.02",
            start="zero",
            device="cpu",
        )
        runs, copies = [], []
        for _ in range(rounds + 1):
            runs.append(_timed(lambda: run(request)))
            copies.append(_timed(lambda: _copy_file(place / "out.h5", place / "copy.h5")))
            size = os.path.getsize(place / "out.h5")
            for name in ("out.h5", "copy.h5"):
                os.unlink(place / name)
    pairs = list(zip(runs[1:], copies[1:], strict=True))
    return {
        "bytes_written": size,
        "seconds": statistics.median(runs[1:]),
        "copy_seconds": statistics.median(copies[1:]),
        "copies": statistics.median(a / b for a, b in pairs),
    }


def _copy_file(source: Path, target: Path) -> None:
    import shutil

    shutil.copyfile(source, target)


def _timed(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def _timed_on_device(what: Callable[[], object]) -> float:
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    what()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def _replayed(what: Callable[[], object]) -> Callable[[], object]:
    """The launches of a call alone: captured in a CUDA graph, which the host starts at once."""
    import torch

    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        what()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        what()
    replay: Callable[[], object] = graph.replay
    return replay
