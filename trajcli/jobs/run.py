"""Doing it: read a block, compute it, write it; then give the output its name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from trajcli.arrays import largest
from trajcli.errors import Stopped, UsageError
from trajcli.files.atomic_output import remove_dead
from trajcli.files.file_bytes import Progress as Progress
from trajcli.files.file_bytes import SourceFiles
from trajcli.files.opening import Files
from trajcli.files.outputs import Output
from trajcli.files.writing import open_output
from trajcli.jobs.plan import Plan, make_plan, sources_of_part
from trajcli.jobs.request import Request, fingerprint
from trajcli.kernels.cuda import DeviceLost, DeviceOutOfMemory, device_errors
from trajcli.modes import PARTS
from trajcli.system import signals


def run(
    request: Request,
    on_plan: Callable[[Plan], None] = lambda plan: None,
    on_progress: Progress = lambda done, total: None,
    dry: bool = False,
) -> dict[str, Any]:
    """Run a request and return a report of plain values; ``dry``: plan it and stop.

    With a shard, OUT is a part; where that is there already, nothing is done. Raises TrajcliError
    with every fault found; OUT is then as it was before.
    """
    began = time.perf_counter()
    shard = request.shard
    if shard is not None:
        shard.refuse_one_array(request.out)
    part_fingerprint = "" if shard is None else fingerprint(request)
    report: dict[str, Any] = {"out": str(request.path), "dry_run": dry}
    if shard is not None and not dry:
        from trajcli.jobs.shards import input_lines, part_is_done

        if part_is_done(request.path, part_fingerprint, request.to_json(), request.overwrite):
            remove_dead(request.path)
            return report | {"shard": str(shard), "already_done": True, "notes": [], "left_out": []}
    files = Files(request, memory=request.memory, on_progress=on_progress)
    with files:
        files.sources.add(request.paths())
        plan = make_plan(request, files)
        files.sources.add(files.paths())
        on_plan(plan)
        report = plan.description | report
        if dry:
            return report
        schema = plan.schema
        if shard is not None:
            labels = {"shard": str(shard), "fingerprint": part_fingerprint}
            schema = replace(
                schema,
                attributes={**schema.attributes, **labels},
                sources=sources_of_part(plan, files.paths()),
            )
        output = open_output(
            request.path,
            schema,
            request.overwrite or shard is not None,
            request.compress,
        )
        with signals() as stop, output:
            execution = Execution(plan, output, files.sources, stop, on_progress)
            execution.compute()
            if shard is not None:
                output.inputs = input_lines(files.sources, request.out)
            files.sources.require_unchanged()
            output.finish()
    seconds = time.perf_counter() - began
    moved = plan.bytes_read + report["bytes_written"]
    notes = [*report["notes"], *execution.notes(), *output.notes]
    return report | {"notes": notes, "seconds": seconds, "gb_per_s": moved / seconds / 1e9}


@dataclass
class Execution:
    """Every block of a run, from file to file.

    ``done``: trajectories so far. ``bad``: results that are not finite. ``largest``: of the
    actions, where they may be normalised. ``halved``: how often blocks were made smaller.
    """

    plan: Plan
    output: Output
    sources: SourceFiles
    stop: Callable[[], str | None]
    on_progress: Progress
    done: int = 0
    bad: int = 0
    largest: float = 0.0
    halved: int = 0

    def compute(self) -> None:
        """Compute all, in smaller blocks where a device has no room for whole ones.

        Raises Stopped where a signal came, or a device was lost.
        """
        while True:
            try:
                self._compute_blocks()
                break
            except DeviceOutOfMemory as short:
                sizes, self.halved = self.plan.sizes, self.halved + 1
                if max(sizes) == 1:
                    raise self._no_room(short) from None
                self.plan = replace(self.plan, sizes=[max(1, size // 2) for size in sizes])
            except DeviceLost as lost:
                reason = f"the loss of {self.plan.choice.device} ({lost})"
                raise self._stopped(reason) from None

    def _compute_blocks(self) -> None:
        plan = self.plan
        for block in plan.blocks(self.output, self.done):
            signal_name = self.stop()
            if signal_name is not None:
                raise self._stopped(signal_name)
            with nullcontext() if plan.choice.device == "cpu" else device_errors():
                self.bad += block.run()
            if plan.positions is not None:
                self.largest = max(self.largest, largest(block.inputs.actions))
            self.done = block.done
            self.on_progress(self.done, plan.resolved.count)

    def _stopped(self, reason: str) -> Stopped:
        """The end of a run that a signal or a lost device stopped."""
        return Stopped(
            f"stopped by {reason}",
            found=f"{self.done} of {self.plan.resolved.count} trajectories done",
            hint="run the same command again",
        )

    def _no_room(self, short: DeviceOutOfMemory) -> UsageError:
        """The end of a run whose smallest blocks do not fit a device."""
        return UsageError(
            "no room for the smallest block",
            where=f"--device {self.plan.choice.device}",
            expected="",
            found=str(short),
            hint="--device cpu, or wait until others have left the device",
        )

    def notes(self) -> Iterator[str]:
        """What there is to say when it is done."""
        plan = self.plan
        if self.halved:
            times = f"halved {self.halved} times" if self.halved > 1 else "halved"
            yield f"blocks were {times}: memory on {plan.choice.device} was short"
        if self.bad:
            yield f"{self.bad} results are too large for {plan.dtype} or not finite"
        if plan.positions is not None and plan.bytes_read and self.largest <= 1.0:
            yield (
                "all actions lie within [-1, 1], as normalised commands do; they were read as "
                f"{PARTS[plan.resolved.mode.derivatives_of]} in physical units; {plan.positions}"
            )
