"""Runs a request: reads each block, computes it and writes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Any, TypeAlias

import numpy as np

from trajcli.arrays import largest
from trajcli.commands import select_dofs
from trajcli.errors import InputError, OutputError, Report, join_names
from trajcli.files.atomic_output import os_fault
from trajcli.files.opening import Files
from trajcli.files.outputs import Span
from trajcli.files.quantities import ANGULAR_SMOOTHING, QUANTITIES, RECORDED_POSITION, ROTATIONS
from trajcli.files.repair import TurnJumps
from trajcli.files.writing import write
from trajcli.inputs import Inputs
from trajcli.jobs._orientations import integrate_orientations, read_orientations
from trajcli.jobs.job import Arrays, Block, Job, Results, write_blocks
from trajcli.jobs.plan import Plan
from trajcli.jobs.request import Request
from trajcli.modes.mode import Smoothed

# The warning about each kind of doubt that method smooth has about its result.
_DOUBTS = {
    "gaps": "rows in gaps longer than half a period of the cutoff are guesses; --max-gap splits",
    "outliers": "more than 10 % of the rows would be outliers; --robust lowered no weights",
    "few rows": "under 30 rows are few to choose a cutoff by; --bandlimit sets it",
    "two values": "takes two values, as a gripper does, and no curve; --dofs picks the others",
    "stairs": "the curve follows single steps of the encoder or of rounding; a lower --bandlimit "
    "smooths them",
    "correlation": "the noise of neighbouring rows is correlated, so that the cutoff is too high; "
    "a lower --bandlimit smooths it",
}
# By how much a cutoff that is too high is lowered: half of it may be too low already.
_LOWER = 0.7
Region: TypeAlias = tuple[int, int]
"""A descriptor of the output file, and the byte from which a variable of a block lies in it."""
FindRegion: TypeAlias = Callable[[str, Span], Region | None]
"""Finds the region of a variable of a span of trajectories, where it has one."""


def run(
    request: Request,
    report: Report | None = None,
    on_plan: Callable[[Plan], None] | None = None,
    dry: bool = False,
) -> dict[str, Any]:
    """Runs a request and returns its result as plain values; ``dry`` plans it and stops.

    A shard writes its part of OUT, or nothing where that is done already. ``on_plan`` is called
    with the plan before anything is computed. After an error, OUT is what it was before.
    """
    report, shard = report or Report(), request.shard
    result: dict[str, Any] = {"out": str(request.path), "dry_run": dry}
    if shard is not None:
        from trajcli.jobs.shards import read_finished_part

        if finished := read_finished_part(request, dry):
            return result | finished
    with Files(request, request.memory, report) as files:
        # files are watched for changes from before the first read to after the last
        files.sources.watch(request.paths())
        plan = Plan(request, files)
        files.sources.watch(files.paths())
        if on_plan is not None:
            on_plan(plan)
        result = plan.description | {"notes": report.notes} | result
        if dry:
            return result
        integration = Integration(plan)
        remarks = write(
            request.path,
            plan.output,
            lambda out: write_blocks(integration.job(out.region), out.write, report),
            overwrite=request.overwrite or shard is not None,
            compress=request.compress,
            sources=files.sources,
        )
    report.add_notes(*integration.notes(), *remarks)
    if integration.smoothing is not None:
        result |= integration.smoothing.report()
    # bytes that are read and written: both count against the bandwidth of the disk
    moved, seconds = plan.bytes_read + result["bytes_written"], report.seconds
    return result | {"seconds": seconds, "gb_per_s": moved / seconds / 1e9}


class Integration:
    """Computes the blocks of a run: of actions, or of recordings that are differentiated."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self._nonfinite = plan, 0
        # The largest magnitude of actions that may be normalised. Once one is beyond 1 they are
        # not, and no further block is searched.
        self._largest = 0.0
        self._rotation_report = Report()  # its notes come behind all others
        self._jumps: TurnJumps | None = None
        if not plan.mode.action_order:
            self._jumps = TurnJumps(plan.recording, acting=True)
        self.smoothing = None
        if plan.mode.result_names:
            names = plan.recording.dof_labels
            self.smoothing = Smoothing([names[dof] for dof in plan.other_dofs])

    def job(self, find_region: FindRegion | None = None) -> Job[Block]:
        """Makes the job; kernels write the variables for which ``find_region`` finds a region."""
        plan = self.plan
        blocks = (
            Block(
                group=group, begin=begin, end=min(begin + size, len(x.recording)),
                group_recording=x.recording, numbers=x.recording.numbers,
            )
            for group, (x, size) in enumerate(zip(plan.batches, plan.sizes, strict=True))
            # an empty part of a run still writes the times of its rows
            for begin in range(0, max(len(x.recording), not len(plan.recording)), size)
        )  # fmt: skip
        compute, device = partial(self.compute, find_region), plan.choice.device
        return Job(plan.request.path, plan.output, blocks, compute, device)

    def compute(self, find_region: FindRegion | None, block: Block) -> Results:
        """Reads, checks and computes a block; yields what is not written into the file already."""
        plan, batch = self.plan, self.plan.batches[block.group]
        inputs = batch.read_inputs(block.begin, block.end)
        positions: Any = inputs.actions
        yield 0, {"time": inputs.row_times()}
        # rotations are computed first and alone: their dofs mean nothing one by one
        if plan.rotations and len(block):
            batch.check_values(block.begin, inputs)
            for first, arrays in self._compute_rotations(inputs, block):
                yield first, self._count_nonfinite(arrays)
            inputs = select_dofs(inputs, plan.other_dofs)
        if plan.other_dofs:
            inputs = inputs.prepare_mode(plan.choice)
            yield 0, self._count_nonfinite(self._compute_rows(inputs, find_region, block))
            if self.smoothing is not None:
                smoothed = inputs.smoothed
                assert smoothed is not None  # as all values were checked
                self.smoothing.add(smoothed)
                results = {RECORDED_POSITION: inputs.actions, "guessed": smoothed.guessed}
                results |= smoothed.results
                yield 0, {v.name: results[v.name] for v in plan.smoothing_variables}
            if plan.positions is not None and self._largest <= 1.0:
                commands, actions = plan.commands, inputs.actions
                if commands.actions:  # increments or offsets, not the positions they lead to
                    dofs = [dof for dof in plan.other_dofs if dof not in commands.absolute]
                    stored: Any = batch.inputs.actions
                    actions = stored.read_rows(block.begin, block.end)[..., dofs]
                self._largest = max(self._largest, largest(actions))
        if self._jumps is not None:
            self._jumps.add_block({self._jumps.name: positions}, block.recording)

    def _count_nonfinite(self, arrays: Arrays) -> Arrays:
        self._nonfinite += sum(x.size - int(np.isfinite(x).sum()) for x in arrays.values())
        return arrays

    def _compute_rows(
        self, inputs: Inputs, find_region: FindRegion | None, block: Block
    ) -> dict[str, Any]:
        """Computes the rows of the dofs that are no rotations, and their gradients.

        Compiled kernels write into the regions of the output file; other arrays are returned.
        """
        plan, batch, arrays = self.plan, self.plan.batches[block.group], dict[str, Any]()
        commands = plan.commands.select_dofs(plan.other_dofs) if plan.rotations else plan.commands
        if plan.gradient is not None:
            batch.check_values(block.begin, inputs)
            results = plan.gradient.compute(
                inputs, commands, block.indices, plan.choice, plan.dtype
            )
            # gradients are computed with all quantities
            dropped = set(QUANTITIES).difference(plan.quantities)
            arrays = {name: x for name, x in results.items() if name not in dropped}
        elif plan.choice.backend != "native":
            batch.check_values(block.begin, inputs)
            arrays = inputs.compute(plan.choice, plan.dtype, plan.quantities)
        else:
            from trajcli.kernels.native import FileOutput, Forward

            # the kernel notices NaN and Inf as it reads; a search for their place follows only then
            batch.check_values(block.begin, replace(inputs, allow_nonfinite=True))
            if commands.clique_dofs(inputs):  # the rows of some dofs are replaced
                find_region = None
            shape, out = (len(inputs.actions), inputs.rows, inputs.actions.shape[2]), list[Any]()
            for name in QUANTITIES:
                if name not in plan.quantities or not len(inputs.actions):
                    out.append(None)
                elif find_region and (region := find_region(name, block)):
                    out.append(FileOutput(*region, plan.dtype))
                else:
                    arrays[name] = np.empty(shape, plan.dtype)
                    out.append(arrays[name])
            operands = inputs.operands()  # keeps the arrays alive that the kernel points to
            kernel = Forward(inputs.program(), operands, out, inputs.allow_nonfinite)
            try:
                finite = kernel.run()
            except OSError as error:
                raise OutputError(os_fault(plan.request.path, error)) from None
            self._nonfinite += kernel.faults
            if not finite:
                batch.check_values(block.begin, inputs)
                raise InputError("not finite when it was computed", where=inputs.name("actions"))
        commands.write_clique_rows(arrays, inputs, plan.choice, plan.dtype)
        return arrays

    def _compute_rotations(self, inputs: Inputs, block: Block) -> Results:
        """Computes orientations and angular rates; of recordings, which may be long, in parts."""
        from trajcli.rotations import RotationTrajectory, differentiate_rows

        plan, actions, request = self.plan, inputs.actions, self.plan.request
        frame, place_text = request.rotation_frame, block.group_recording.place_text

        def read(first: int, last: int, all_rows: bool = False) -> Any:
            rows = actions if all_rows else actions[:, first:last]
            try:
                return read_orientations(
                    rows, plan.rotations, lambda k: place_text(block.begin + k),
                    self._rotation_report, request.allow_nonfinite,
                )  # fmt: skip
            except InputError:
                if all_rows:
                    raise
                return read(first, last, all_rows=True)  # whose error counts all rows

        parts: Iterable[tuple[int, RotationTrajectory]]
        if request.recorded:
            count = len(plan.rotations)
            shape = (*actions.shape[:2], *[count] * (count > 1), 4)
            dofs = [dof for rotation in plan.rotations for dof in rotation.dofs]
            inputs = replace(inputs, mode=inputs.mode.select_dofs(dofs))
            parts = differentiate_rows(read, shape, inputs, frame)
        else:
            commands = plan.commands.actions
            parts = [(0, integrate_orientations(inputs, plan.rotations, commands, frame))]
        for first, motion in parts:
            named = zip(ROTATIONS, QUANTITIES, motion, strict=True)
            arrays = {n: x for n, q, x in named if q in plan.quantities and x is not None}
            yield first, arrays
            if inputs.mode.result_names:
                results = motion.options
                yield 0, {n: results[n.removeprefix("angular_")] for n in ANGULAR_SMOOTHING}

    def notes(self) -> Iterator[str]:
        """Yields warnings about the results, when all are written."""
        plan = self.plan
        if self.smoothing is not None:
            yield from self.smoothing.notes()
        if self._jumps is not None:
            yield from self._jumps.notes("" if plan.request.recorded else "trajcli export ")
        if self._nonfinite:
            yield f"{self._nonfinite} results are too large for {plan.dtype} or not finite"
        # increments in rad that a robot takes are far smaller than 1
        least = 0.5 if plan.commands.actions else 0.0
        if plan.positions is not None and plan.bytes_read and least <= self._largest <= 1.0:
            yield (
                "all actions lie within [-1, 1], as normalised commands do; they were read as "
                f"{QUANTITIES[plan.mode.action_order]} in physical units; {plan.positions}"
            )
        yield from self._rotation_report.notes


class Smoothing:
    """Sums up what mode smooth chose for each dof of the trajectories of a run."""

    def __init__(self, dofs: Sequence[str]) -> None:
        self._dofs, self._count = dofs, 0
        self._ranges = {name: np.full((2, len(dofs)), np.nan) for name in ("bandlimit", "residual")}
        self._reweighted = np.zeros(len(dofs), np.int64)
        self._doubts = {name: np.zeros(len(dofs), bool) for name in _DOUBTS}
        self._doubted = Counter[str]()

    def add(self, smoothed: Smoothed) -> None:
        results = smoothed.results
        moving = ~np.isnan(results["bandlimit"])
        self._count += len(moving)
        for name, (least, most) in self._ranges.items():
            # a dof whose rows are all equal has no cutoff, and stays out of the range
            values = np.where(moving, results[name], np.nan)
            least[:] = np.fmin.reduce([least, *values])
            most[:] = np.fmax.reduce([most, *values])
        if "reweighted" in results:
            self._reweighted += results["reweighted"].sum(0)
        for kind, doubted in smoothed.doubts.items():
            self._doubts[kind] |= doubted.any(0)
            self._doubted[kind] += int(doubted.any(1).sum())

    def report(self) -> dict[str, Any]:
        """Sums up the range of cutoffs in Hz and of residuals of each dof, None if its rows are all
        equal, and the rows with less weight."""
        ranges = {
            name: [None if np.isnan(low) else [float(low), float(high)] for low, high in ends.T]
            for name, ends in self._ranges.items()
        }
        return {"smoothing": ranges | {"reweighted": self._reweighted.tolist()}}

    def notes(self) -> Iterator[str]:
        """Yields a line for each kind of doubt, with the dofs that it concerns."""
        # A cutoff for each dof, as --bandlimit takes them: the geometric mean of what was chosen,
        # lower where the curve follows noise. It is named where one cutoff fits all trajectories.
        least, most = self._ranges["bandlimit"]
        proposal = ""
        if not (most > 2.0 * least).any():
            noisy = self._doubts["stairs"] | self._doubts["correlation"]
            cutoffs = np.sqrt(least * most) * np.where(noisy, _LOWER, 1.0)
            # a dof whose rows are all equal takes any
            if noisy.any():
                cutoffs = np.where(np.isnan(cutoffs), np.nanmin(cutoffs), cutoffs)
            proposal = ": --bandlimit " + ",".join(f"{cutoff:.3g}" for cutoff in cutoffs)
        for kind, text in _DOUBTS.items():
            if names := list(compress(self._dofs, self._doubts[kind])):
                words = ("dof " if names[0].isdecimal() else "") + join_names(names, 4)
                if self._count > 1:
                    words += f" in {self._doubted[kind]} of {self._count} trajectories"
                if kind in ("stairs", "correlation"):
                    text += proposal
                yield f"{words}: {text}"
