"""Doing it: read a block, compute it, write it; then give the output its name."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np

from trajcli.errors import Fault, Stopped, TrajcliError, UsageError
from trajcli.files.outputs import discarding, open_output
from trajcli.files.padded import Padded
from trajcli.files.sink import Sink
from trajcli.jobs.batch import Block
from trajcli.jobs.job import Job
from trajcli.jobs.pipeline import Pipeline, device_of
from trajcli.jobs.places import Files
from trajcli.jobs.plan import Plan, make_plan
from trajcli.jobs.request import Request
from trajcli.jobs.shrinking import Sizes, guarded
from trajcli.kernels.device import Lost, NoRoom
from trajcli.modes import PARTS

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)

Progress = Callable[[int, int], None]
"""Called with trajectories done, and all of them."""


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
            report["resumed_after"] = output.done
            sink = Padded(output) if plan.schema.scatter else output
            with discarding(output), guarded(files.paths()) as sizes:
                allow = request.allow_nonfinite
                reached = compute(plan, sink, sizes, allow, stop, on_progress)
                sizes.require_all()
                output.finish()
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
    """How far a run is: results that are not finite, trajectories that are done, how often
    blocks had to be halved, and the plan with those."""

    bad: int
    done: int
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
) -> Reached:
    """Every block from file to file, in smaller ones where a device has no room for whole ones."""
    reached = Reached(int(output.carried.get("bad", 0)), output.done, plan)
    if plan.gradient is not None:
        plan.gradient.carry_on(output.carried)
    while True:
        try:
            _compute_blocks(output, sizes, allow_nonfinite, stop, on_progress, reached)
            break
        except NoRoom as short:
            smaller = reached.plan.halved()
            if smaller is None:
                raise _no_room(output, short, reached) from None
            reached.plan = smaller
            reached.halved += 1
        except Lost as lost:
            came = f"the loss of {plan.choice.device} ({lost})"
            raise _stopped(output, came, reached) from None
    for name, row, array in plan.gradient.finish() if plan.gradient else ():
        output.write(name, row, array)
    return reached


def _compute_blocks(
    output: Sink,
    sizes: Sizes,
    allow_nonfinite: bool,
    stop: Callable[[], str | None],
    on_progress: Progress,
    reached: Reached,
) -> None:
    """The blocks that are left."""

    def jobs() -> Iterator[Job]:
        for plan, block in _blocks(reached.plan, reached.done):
            came = stop()
            if came is not None:
                raise _stopped(output, came, reached)
            inputs = plan.inputs.block(
                plan.batch.read(block),
                block.begin,
                block.end,
                block.begin - block.local,
                {"actions": block.part.where},
            )
            yield Job(plan, output, block, inputs, allow_nonfinite)

    for job, bad in _computed(reached.plan, output, jobs()):
        sizes.require_pages()
        output.settle()
        reached.bad += bad
        reached.done = job.plan.first + job.block.end
        on_progress(reached.done, reached.plan.total)


def _computed(plan: Plan, output: Sink, jobs: Iterator[Job]) -> Iterator[tuple[Job, int]]:
    """The jobs, done, and how many of their results are not finite.

    Gradients go to a device and back on their own; and an output that keeps what it is given
    cannot be lent the memory of a pipeline.
    """
    if plan.choice.device == "cpu":
        yield from ((job, job.run()) for job in jobs)
        return
    device = device_of(plan.choice)
    if plan.gradient is None and not output.keeps:
        yield from Pipeline(device, plan.choice).run(jobs)
        return
    for job in jobs:
        with device.errors():
            bad = job.run()
        yield job, bad


def _blocks(plan: Plan, done: int) -> Iterator[tuple[Plan, Block]]:
    """Every block of every length, but of the trajectories that are done."""
    for part in plan.each():
        left = max(0, done - part.first)
        if left < part.batch.shape[0] or not part.batch.shape[0]:
            for block in part.batch.blocks(part.size, left, part.end):
                yield part, block


def _stopped(output: Sink, came: str, reached: Reached) -> Stopped:
    """The end of a run that a signal or a lost device stopped; what is done is kept, and what to
    go on from."""
    plan = reached.plan
    sums = {} if plan.gradient is None else plan.gradient.carried()
    output.keep(reached.done, {"bad": np.array(reached.bad), **sums})
    found = f"{reached.done} of {plan.total} trajectories done; they are kept"
    hint = "run the same command again with --resume"
    return Stopped(Fault(f"stopped by {came}", found=found, hint=hint))


def _no_room(output: Sink, short: NoRoom, reached: Reached) -> TrajcliError:
    """The end of a run whose smallest blocks do not fit a device."""
    device = reached.plan.choice.device
    if reached.done:
        return _stopped(output, f"a lack of memory on {device}", reached)
    hint = "--device cpu, or wait until others have left the device"
    what = "no room for the smallest block"
    return UsageError(Fault(what, f"--device {device}", "", str(short), hint))


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
