"""Doing it: read a block, compute it, write it; then give the output its name."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

from trajcli.errors import Fault, Stopped, raise_if_any
from trajcli.files.mapping import populate
from trajcli.files.outputs import Output, discarding, open_output
from trajcli.files.schema import QUANTITIES
from trajcli.inputs import Inputs
from trajcli.jobs.places import Files
from trajcli.jobs.plan import Plan, make_plan
from trajcli.jobs.request import Request

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)

_LIMITS = {"float32": 1e38, "float64": 1e307}
"""Below these no result overflows."""

Progress = Callable[[int, int], None]
"""Called with trajectories done and all of them."""


def run(
    request: Request,
    on_plan: Callable[[Plan], None] = lambda plan: None,
    on_progress: Progress = lambda done, total: None,
    dry: bool = False,
) -> dict[str, Any]:
    """Run a request and return a report of plain values; ``dry``: plan it and stop.

    Raises TrajcliError with every fault found; OUT is then as it was before.
    """
    began = time.perf_counter()
    files = Files(request.allow_external, request.untrusted)
    try:
        with _signals() as stop:
            plan = make_plan(request, files)
            on_plan(plan)
            report = {**plan.describe(), "out": str(request.out), "dry_run": dry}
            if dry:
                return report
            identity = f"{request.identity(files.paths())}{plan.choice.backend}"
            output = open_output(
                request.out,
                plan.schema,
                request.overwrite,
                request.durable,
                identity,
                request.resume and plan.gradient is None,
                request.compress,
            )
            report["resumed_after"] = output.done
            with discarding(output):
                overflowed = _compute(plan, output, request.allow_nonfinite, stop, on_progress)
                output.finish()
    finally:
        files.close()
    seconds = time.perf_counter() - began
    moved = plan.batch.nbytes + plan.schema.nbytes
    if overflowed:
        report["notes"] = [
            *report["notes"],
            f"{overflowed} results are too large for {plan.dtype} or not finite",
        ]
    return {**report, "seconds": seconds, "gb_per_s": moved / seconds / 1e9}


def _compute(
    plan: Plan,
    output: Output,
    allow_nonfinite: bool,
    stop: Callable[[], str | None],
    on_progress: Progress,
) -> int:
    """Every block from file to file; returns how many results are not finite.

    One block is read, and its place in the output made ready, while the one before is computed
    and written by another thread.
    """
    total = plan.batch.shape[0]
    bad, kept = 0, output.done
    with ThreadPoolExecutor(1) as worker:
        ahead: Future[int] | None = None
        done = reached = kept
        for begin, end, local, part in plan.batch.blocks(plan.block, kept):
            actions = plan.batch.read(part, local, local + end - begin)
            names = {"actions": part.where}
            block = plan.inputs.block(actions, begin, end, begin - local, names)
            views = _views(plan, output, begin, end)
            if ahead is not None:
                bad += ahead.result()
                output.settle()
                done = reached
                on_progress(done, total)
                came = stop()
                if came is not None:
                    raise _stopped(plan, output, came, done)
            ahead = worker.submit(_run_block, plan, output, block, begin, views, allow_nonfinite)
            reached = end
        if ahead is not None:
            bad += ahead.result()
            on_progress(total, total)
    for name, row, array in plan.gradient.finish() if plan.gradient else ():
        output.write(name, row, array)
    return bad


def _views(plan: Plan, output: Output, begin: int, end: int) -> dict[str, Any] | None:
    """Where in the output the kernels can put a block themselves; None where they cannot."""
    if plan.gradient is not None or plan.choice.backend != "native":
        return None
    views = {name: output.view(name) for name in plan.wanted}
    if any(view is None for view in views.values()):
        return None
    blocks = {name: view[begin:end] for name, view in views.items()}
    for block in blocks.values():
        populate(block)
    return blocks


def _run_block(
    plan: Plan,
    output: Output,
    block: Inputs,
    begin: int,
    views: dict[str, Any] | None,
    allow_nonfinite: bool,
) -> int:
    """Check, compute and write one block; returns how many results are not finite."""
    raise_if_any(block.faults())
    if not allow_nonfinite:
        raise_if_any(block.nonfinite())
    bounded = block.stays_below(_LIMITS[plan.dtype])
    bad = 0
    for name, row, array in _results(plan, block, begin, views):
        if not (bounded and name in QUANTITIES):
            bad += array.size - int(np.isfinite(array).sum())
        if views is None or name not in views:
            output.write(name, row, array)
    if any(v.name == "time" for v in plan.schema.streamed):
        output.write("time", begin, block.row_times())
    return bad


def _stopped(plan: Plan, output: Output, came: str, done: int) -> Stopped:
    """The end of a run that a signal stopped; what is done is kept where it can be gone on with.

    Gradients that are summed over trajectories and compressed files cannot: they start again.
    """
    total = plan.batch.shape[0]
    if plan.gradient is not None or not output.resumable:
        output.discard()
        left, hint = "nothing was kept", "run the same command again"
    else:
        output.keep(done)
        left, hint = "they are kept", "run the same command again with --resume"
    found = f"{done} of {total} trajectories done; {left}"
    return Stopped(Fault(f"stopped by {came}", found=found, hint=hint))


def _results(
    plan: Plan, block: Inputs, begin: int, views: dict[str, Any] | None
) -> Iterator[tuple[str, int, Any]]:
    """What a block gives: name, first row, values."""
    if plan.gradient is None:
        results = block.compute(plan.choice, plan.dtype, plan.wanted, views)
        yield from ((name, begin, values) for name, values in results.items())
        return
    kernels, device = plan.choice.kernels, plan.choice.device
    for name, row, values in plan.gradient.block(
        block, plan.inputs, begin, kernels, device, plan.dtype
    ):
        if name not in QUANTITIES or name in plan.wanted:
            yield name, row, values


@contextmanager
def _signals() -> Iterator[Callable[[], str | None]]:
    """Turn signals into an answer to ask for between blocks: the name of one that came."""
    came: list[str] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(signal.Signals(number).name)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    before = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield lambda: came[0] if came else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
