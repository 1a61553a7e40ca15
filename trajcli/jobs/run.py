"""Runs a request: reads each block, computes it and writes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trajcli.arrays import largest
from trajcli.errors import UsageError
from trajcli.files.atomic_output import remove_dead
from trajcli.files.file_bytes import Progress as Progress
from trajcli.files.opening import Files
from trajcli.files.outputs import Output
from trajcli.files.writing import stopped, write
from trajcli.jobs.plan import Plan, make_plan, sources_of_part
from trajcli.jobs.request import Request, fingerprint
from trajcli.kernels.cuda import DeviceLost, DeviceOutOfMemory, device_errors
from trajcli.modes import PARTS
from trajcli.modes.smooth import Smooth

_FEW_ROWS = 30
"""Below so many, cross-validation often chooses badly."""


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
        execution, description = Execution(plan), plan.output
        if shard is not None:
            labels = {"shard": str(shard), "fingerprint": part_fingerprint}
            description = replace(
                description,
                attributes={**description.attributes, **labels},
                sources=sources_of_part(plan, files.paths()),
            )

        def blocks(output: Output) -> Iterator[int]:
            yield from execution.blocks(output)
            if shard is not None:
                output.inputs = input_lines(files.sources, request.out)

        remarks = write(
            request.path,
            description,
            blocks,
            overwrite=request.overwrite or shard is not None,
            compress=request.compress,
            sources=files.sources,
            on_progress=on_progress,
        )
    seconds = time.perf_counter() - began
    moved = plan.bytes_read + report["bytes_written"]
    notes = [*report["notes"], *execution.notes(), *remarks]
    report |= execution.smoothing()
    return report | {"notes": notes, "seconds": seconds, "gb_per_s": moved / seconds / 1e9}


@dataclass
class Execution:
    """Computes the blocks of a run.

    done: how many trajectories are written. bad: how many results are not finite. largest: the
    largest of the actions, where they may be normalised. halved: how often blocks were made
    smaller.
    """

    plan: Plan
    done: int = 0
    bad: int = 0
    largest: float = 0.0
    halved: int = 0
    chosen: list[Smooth] = field(default_factory=list)

    def blocks(self, output: Output) -> Iterator[int]:
        """Computes and writes all blocks, smaller ones where a device has no room for whole ones;
        yields after each how many trajectories are written.

        Raises Stopped where a device was lost.
        """
        while True:
            try:
                yield from self._compute_blocks(output)
                break
            except DeviceOutOfMemory as short:
                sizes, self.halved = self.plan.sizes, self.halved + 1
                if max(sizes) == 1:
                    raise self._no_room(short) from None
                self.plan = replace(self.plan, sizes=[max(1, size // 2) for size in sizes])
            except DeviceLost as lost:
                reason = f"the loss of {self.plan.choice.device} ({lost})"
                raise stopped(
                    output.path, reason, self.done, len(self.plan.resolved.trajectories)
                ) from None

    def _compute_blocks(self, output: Output) -> Iterator[int]:
        plan = self.plan
        for block in plan.blocks(output, self.done):
            with nullcontext() if plan.choice.device == "cpu" else device_errors():
                self.bad += block.run()
            if isinstance(block.inputs.mode, Smooth):
                self.chosen.append(replace(block.inputs.mode, weights=None))
            if plan.positions is not None:
                self.largest = max(self.largest, largest(block.inputs.actions))
            self.done = block.done
            yield self.done

    def _no_room(self, short: DeviceOutOfMemory) -> UsageError:
        """The end of a run whose smallest blocks do not fit a device."""
        return UsageError(
            "no room for the smallest block",
            where=f"--device {self.plan.choice.device}",
            expected="",
            found=str(short),
            hint="--device cpu, or wait until others have left the device",
        )

    def smoothing(self) -> dict[str, Any]:
        """What mode smooth chose: the least and the largest cutoff and residual of all dofs."""
        if not self.chosen:
            return {}
        cutoff, residual = (
            np.concatenate([np.ravel(getattr(mode, name)) for mode in self.chosen])
            for name in ("bandlimit", "residual")
        )
        moving = ~np.isnan(cutoff)
        ranges = [
            [float(x[moving].min()), float(x[moving].max())] if moving.any() else None
            for x in (cutoff, residual)
        ]
        rows = sum(int(x.sum()) for mode in self.chosen if (x := mode.reweighted) is not None)
        return {
            "smoothing": {
                "bandlimit": ranges[0],
                "residual": ranges[1],
                "reweighted": rows,
                "constant": int((~moving).sum()),
            }
        }

    def notes(self) -> Iterator[str]:
        """What there is to say when it is done."""
        plan = self.plan
        if self.chosen:
            rows = min(part.inputs.rows for part in plan.resolved.by_length)
            if rows < _FEW_ROWS:
                yield (
                    f"{rows} rows are few to choose a cutoff by: --bandlimit sets it, and --method "
                    "savgol needs none"
                )
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
