"""Doing it: read a block, compute it, write it; then give the output its name."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

from trajcli.checks import largest
from trajcli.errors import Fault, Stopped, raise_if_any
from trajcli.files.mapping import populate
from trajcli.files.outputs import Output, discarding, open_output
from trajcli.files.padded import Padded
from trajcli.files.portion import Portion
from trajcli.files.schema import QUANTITIES
from trajcli.inputs import Carry, Inputs
from trajcli.jobs.batch import Block
from trajcli.jobs.places import Files
from trajcli.jobs.plan import Plan, make_plan
from trajcli.jobs.request import Request
from trajcli.jobs.shrinking import Sizes, guarded
from trajcli.modes import PARTS
from trajcli.recordings import smooth

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)

_LIMITS = {"float32": 1e38, "float64": 1e307}
"""Below these no result overflows."""

Progress = Callable[[float, int], None]
"""Called with trajectories done, of the last one maybe a part, and all of them."""


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
        with signals() as stop:
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
                request.resume,
                request.compress,
            )
            report["resumed_after"] = output.done[0] + output.done[1] / plan.inputs.rows
            sink = Padded(output) if plan.schema.scatter else output
            with discarding(output), guarded(files.paths()) as sizes:
                overflowed = compute(plan, sink, sizes, request.allow_nonfinite, stop, on_progress)
                sizes.require_all()
                output.finish()
    finally:
        files.close()
    seconds = time.perf_counter() - began
    moved = plan.bytes_read + plan.schema.nbytes
    if overflowed:
        report["notes"] = [
            *report["notes"],
            f"{overflowed} results are too large for {plan.dtype} or not finite",
        ]
    if plan.better is not None and plan.peak.value is not None and plan.peak.value <= 1.0:
        quantity = PARTS[plan.inputs.mode.derivatives_of]
        report["notes"] = [
            *report["notes"],
            f"all actions lie within [-1, 1], as normalised commands do; they were read as "
            f"{quantity} in physical units; {plan.better}",
        ]
    return {**report, "seconds": seconds, "gb_per_s": moved / seconds / 1e9}


def compute(
    plan: Plan,
    output: Output | Padded | Portion,
    sizes: Sizes,
    allow_nonfinite: bool,
    stop: Callable[[], str | None],
    on_progress: Progress,
) -> int:
    """Every block from file to file; returns how many results are not finite.

    Blocks are read, and their places in the output made ready, while those before are computed
    and written by another thread: one at a time, or two where they need no memory of their own.
    """
    total, rows = plan.total, plan.inputs.rows
    bad, done = int(output.carried.get("bad", 0)), output.done
    carry = Carry.of(output.carried) if done[1] else Carry()
    if plan.gradient is not None:
        plan.gradient.carry_on(output.carried)
    ahead: deque[tuple[tuple[int, int], Future[int]]] = deque()

    def settle(most: int) -> None:
        """Wait until no more than so many blocks are on their way."""
        nonlocal bad, done
        while len(ahead) > most:
            reached, result = ahead.popleft()
            bad += result.result()
            sizes.require_pages()
            output.settle()
            done = reached
            on_progress(done[0] + done[1] / rows, total)

    with ThreadPoolExecutor(1) as worker:
        for part, block in _blocks(plan, done):
            inputs = _read(part, block)
            views = _views(part, output, block)
            settle(0 if views is None else 1)
            came = stop()
            if came is not None:
                settle(0)
                left = {"bad": np.array(bad), **(carry.arrays() if done[1] else {})}
                raise _stopped(plan, output, came, done, left)
            if block.rows[0] == 0:
                carry = Carry()
            job = (part, output, block, inputs, views, carry, allow_nonfinite)
            rows, first = part.inputs.rows, part.first
            whole = block.rows[1] == rows
            reached = (first + block.end, 0) if whole else (first + block.begin, block.rows[1])
            ahead.append((reached, worker.submit(_run_block, *job)))
        settle(0)
    for name, row, array in plan.gradient.finish() if plan.gradient else ():
        output.write(name, row, array)
    return bad


def _blocks(plan: Plan, done: tuple[int, int]) -> Iterator[tuple[Plan, Block]]:
    """Every block of every length; ``done``: trajectories there are, and rows of the next one."""
    for part in plan.each():
        left = max(0, done[0] - part.first)
        rows = done[1] if done[0] >= part.first else 0
        if left < part.batch.shape[0] or not part.batch.shape[0]:
            for block in part.batch.blocks(part.size, part.inputs.rows, (left, rows), part.end):
                yield part, block


def _read(plan: Plan, block: Block) -> Inputs:
    """The input of a block."""
    stretch = plan.inputs.mode.stretch(block.rows, plan.inputs.horizon, plan.inputs.recorded)
    whole = plan.gradient is not None
    actions = plan.batch.read(block, (0, plan.inputs.horizon) if whole else stretch.actions)
    return plan.inputs.block(
        actions,
        block.begin,
        block.end,
        block.begin - block.local,
        {"actions": block.part.where},
        None if whole else stretch,
    )


def _views(plan: Plan, output: Output | Padded | Portion, block: Block) -> dict[str, Any] | None:
    """Where in the output the kernels can put a block themselves; None where they cannot."""
    if plan.gradient is not None or plan.choice.backend != "native":
        return None
    views = {name: output.view(plan.prefix + name) for name in plan.wanted}
    if any(view is None for view in views.values()):
        return None
    trajectories, rows = slice(block.begin, block.end), slice(*block.rows)
    found = {name: view[trajectories, rows] for name, view in views.items()}
    for part in found.values():
        populate(part)
    return found


def _run_block(
    plan: Plan,
    output: Output | Padded | Portion,
    block: Block,
    inputs: Inputs,
    views: dict[str, Any] | None,
    carry: Carry,
    allow_nonfinite: bool,
) -> int:
    """Check, compute and write one block; returns how many results are not finite."""
    raise_if_any(_value_faults(block, inputs, allow_nonfinite))
    if plan.better is not None and inputs.actions.size:
        plan.peak.value = max(plan.peak.value or 0.0, largest(inputs.actions))
    bounded = inputs.stays_below(_LIMITS[plan.dtype], carry)
    bad, (begin, step) = 0, (block.begin, block.rows[0])
    for name, row, array in _results(plan, inputs, begin, views, carry):
        if name in plan.smooth:
            array[...] = smooth(array)
        if not (bounded and name in QUANTITIES):
            bad += array.size - int(np.isfinite(array).sum())
        if views is None or name not in views:
            output.write(plan.prefix + name, row, array, step)
    time = next(v for v in plan.schema.variables if v.name.endswith("time"))
    if plan.prefix:
        times = inputs.row_times(carry)
        output.write(f"{plan.prefix}time", begin, times[[0] * len(inputs.actions)]
                     if len(times) == 1 else times, step)  # fmt: skip
    elif len(time.shape) == 2:
        output.write("time", begin, inputs.row_times(carry), step)
    elif begin == plan.begin:  # times that all share are written with the first
        output.write("time", step, inputs.row_times(carry)[0])
    return bad


def _value_faults(block: Block, inputs: Inputs, allow_nonfinite: bool) -> list[Fault]:
    """What is wrong with the values of a block, each named where it lies."""
    faults = inputs.value_faults(allow_nonfinite)
    if not faults or block.part.origin is None:
        return faults
    found: list[Fault] = []
    for k in range(len(inputs.actions)):
        where, number = block.part.origin(block.local + k)
        found += inputs.only(k, {"actions": where}, number).value_faults(allow_nonfinite)
    return found or faults


def _stopped(
    plan: Plan,
    output: Output | Padded | Portion,
    came: str,
    done: tuple[int, int],
    left: Mapping[str, Any],
) -> Stopped:
    """The end of a run that a signal stopped; what is done is kept, and what to go on from."""
    sums = {} if plan.gradient is None else plan.gradient.carried()
    output.keep(done, {**left, **sums})
    rows = f" and {done[1]} rows of the next" if done[1] else ""
    found = f"{done[0]} of {plan.total} trajectories{rows} done; they are kept"
    hint = "run the same command again with --resume"
    return Stopped(Fault(f"stopped by {came}", found=found, hint=hint))


def _results(
    plan: Plan, block: Inputs, begin: int, views: dict[str, Any] | None, carry: Carry
) -> Iterator[tuple[str, int, Any]]:
    """What a block gives: name, first row, values."""
    if plan.gradient is None:
        results = block.compute(plan.choice, plan.dtype, plan.wanted, views, carry)
        yield from ((name, begin, values) for name, values in results.items())
        return
    for name, row, values in plan.gradient.block(
        block, plan.inputs, begin, plan.choice, plan.dtype
    ):
        if name not in QUANTITIES or name in plan.wanted:
            yield name, row, values


@contextmanager
def signals() -> Iterator[Callable[[], str | None]]:
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
