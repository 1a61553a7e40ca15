"""Doing it: read a block, compute it, write it; then give the output its name."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np

from trajcli.errors import Fault, Stopped, TrajcliError, UsageError
from trajcli.files.outputs import discarding, open_output
from trajcli.files.padded import Padded
from trajcli.files.sink import Sink
from trajcli.inputs import Carry, Inputs
from trajcli.jobs.batch import Block
from trajcli.jobs.halving import halved
from trajcli.jobs.job import Job
from trajcli.jobs.pace import Pace
from trajcli.jobs.pipeline import InOrder, Pipeline, Worker, device_for
from trajcli.jobs.places import Files
from trajcli.jobs.plan import BACKEND_LEFT, Plan, make_plan
from trajcli.jobs.request import Request
from trajcli.jobs.shrinking import Sizes, guarded
from trajcli.kernels.device import Lost, NoRoom
from trajcli.modes import PARTS

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)

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
                pace, allow = Pace(plan.choice), request.allow_nonfinite
                reached = compute(plan, sink, sizes, allow, stop, on_progress, pace.block)
                sizes.require_all()
                output.finish()
            pace.keep(request)
    finally:
        files.close()
    seconds = time.perf_counter() - began
    moved = plan.bytes_read + plan.schema.nbytes
    report["notes"] = [
        *report["notes"],
        *([_BEGUN_ANEW] if output.begun_anew else []),
        *halving_notes(plan, reached.halved),
    ]
    if reached.bad:
        report["notes"] = [
            *report["notes"],
            f"{reached.bad} results are too large for {plan.dtype} or not finite",
        ]
    if plan.better is not None and plan.peak.value is not None and plan.peak.value <= 1.0:
        quantity = PARTS[plan.inputs.mode.derivatives_of]
        report["notes"] = [
            *report["notes"],
            f"all actions lie within [-1, 1], as normalised commands do; they were read as "
            f"{quantity} in physical units; {plan.better}",
        ]
    return {**report, "seconds": seconds, "gb_per_s": moved / seconds / 1e9}


_BEGUN_ANEW = "begun anew: the stopped run that lies there was another command, or of other inputs"


@dataclass
class Reached:
    """How far a run is: results that are not finite, trajectories and rows of the next one that
    are done, what these leave for the rows after them; how often blocks had to be halved, and
    the plan with those."""

    bad: int
    done: tuple[int, int]
    carry: Carry
    plan: Plan
    halved: int = 0


def halving_notes(plan: Plan, halved: int) -> list[str]:
    """What a report says of blocks that had to be halved so often."""
    times = f"halved {halved} times" if halved > 1 else "halved"
    return [f"blocks were {times}: memory on {plan.choice.device} was short"] if halved else []


def compute(
    plan: Plan,
    output: Sink,
    sizes: Sizes,
    allow_nonfinite: bool,
    stop: Callable[[], str | None],
    on_progress: Progress,
    on_block: Callable[[int], None] = lambda actions: None,
) -> Reached:
    """Every block from file to file, in smaller ones where a device has no room for whole ones.

    on_block: called with the number of actions of each once it is done.
    """
    carry = Carry.of(output.carried) if output.done[1] else Carry()
    reached = Reached(int(output.carried.get("bad", 0)), output.done, carry, plan)
    if plan.gradient is not None:
        plan.gradient.carry_on(output.carried)
    while True:
        try:
            _each_block(plan, output, sizes, allow_nonfinite, stop, on_progress, on_block, reached)
            break
        except NoRoom as short:
            smaller = halved(plan)
            if smaller is None:
                raise _no_room(plan, output, short, reached) from None
            plan = reached.plan = smaller
            reached.halved += 1
        except Lost as lost:
            came = f"the loss of {plan.choice.device} ({lost})"
            raise _stopped(plan, output, came, reached) from None
    for name, row, array in plan.gradient.finish() if plan.gradient else ():
        output.write(name, row, array)
    return reached


def _each_block(
    plan: Plan,
    output: Sink,
    sizes: Sizes,
    allow_nonfinite: bool,
    stop: Callable[[], str | None],
    on_progress: Progress,
    on_block: Callable[[int], None],
    reached: Reached,
) -> None:
    """The blocks that are left.

    Blocks are read, and their places in the output made ready, while those before are computed
    and written by other threads: one at a time, or two where they need no memory of their own,
    or as many as a device's pipeline holds.
    """
    total, rows, carry = plan.total, plan.inputs.rows, reached.carry
    ahead: deque[tuple[tuple[int, int], Carry, int, Future[int]]] = deque()

    def settle(most: int) -> None:
        """Wait until no more than so many blocks are on their way."""
        while len(ahead) > most:
            done, left, actions, result = ahead.popleft()
            reached.bad += result.result()
            sizes.require_pages()
            output.settle()
            reached.done, reached.carry = done, left
            on_block(actions)
            on_progress(done[0] + done[1] / rows, total)

    with _worker(plan, output) as worker:
        for part, block in _blocks(plan, reached.done):
            inputs = _read(part, block)
            views = _views(part, output, block)
            settle(worker.ahead if views is None else 1)
            came = stop()
            if came is not None:
                settle(0)
                raise _stopped(plan, output, came, reached)
            if block.rows[0] == 0:
                carry = Carry()
            rows, first = part.inputs.rows, part.first
            whole = block.rows[1] == rows
            done = (first + block.end, 0) if whole else (first + block.begin, block.rows[1])
            job = Job(part, output, block, inputs, views, carry, allow_nonfinite)
            ahead.append((done, carry, inputs.actions.size, worker.submit(job)))
        settle(0)


def _worker(plan: Plan, output: Sink) -> Worker:
    """What computes the blocks of a plan; gradients go to a device and back on their own, and to
    an output that keeps what it is given a pipeline's memory cannot be lent."""
    alone = plan.gradient is not None or output.keeps
    device = None if alone else device_for(plan.choice)
    if device is None:
        return InOrder(plan.choice)
    return Pipeline(device, plan.choice, plan.dtype, plan.wanted)


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


def _views(plan: Plan, output: Sink, block: Block) -> dict[str, Any] | None:
    """Where in the output the kernels can put a block themselves; None where they cannot."""
    if plan.gradient is not None or plan.choice.backend != "native":
        return None
    views = {name: output.view(plan.prefix + name) for name in plan.wanted}
    if any(view is None for view in views.values()):
        return None
    trajectories, rows = slice(block.begin, block.end), slice(*block.rows)
    found = {name: view[trajectories, rows] for name, view in views.items()}
    output.populate(found.values())
    return found


def _stopped(plan: Plan, output: Sink, came: str, reached: Reached) -> Stopped:
    """The end of a run that a signal or a lost device stopped; what is done is kept, and what to
    go on from."""
    done = reached.done
    left = {BACKEND_LEFT: np.array(plan.choice.backend), "bad": np.array(reached.bad)}
    if done[1]:
        left |= reached.carry.arrays()
    sums = {} if plan.gradient is None else plan.gradient.carried()
    output.keep(done, {**left, **sums})
    rows = f" and {done[1]} rows of the next" if done[1] else ""
    found = f"{done[0]} of {plan.total} trajectories{rows} done; they are kept"
    hint = "run the same command again with --resume"
    return Stopped(Fault(f"stopped by {came}", found=found, hint=hint))


def _no_room(plan: Plan, output: Sink, short: NoRoom, reached: Reached) -> TrajcliError:
    """The end of a run whose smallest blocks do not fit a device."""
    if reached.done != (0, 0):
        return _stopped(plan, output, f"a lack of memory on {plan.choice.device}", reached)
    hint = "--device cpu, or wait until others have left the device"
    what = "no room for the smallest block"
    return UsageError(Fault(what, f"--device {plan.choice.device}", "", str(short), hint))


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
