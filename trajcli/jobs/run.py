"""Runs a request: reads each block, computes it and writes it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.arrays import largest
from trajcli.errors import InputError, Note, OutputError, UsageError, raise_if_any
from trajcli.files.atomic_output import os_fault, remove_dead
from trajcli.files.file_bytes import Progress as Progress
from trajcli.files.opening import Files
from trajcli.files.outputs import Output
from trajcli.files.quantities import QUANTITIES, ROTATIONS
from trajcli.files.repair import TurnJumps
from trajcli.files.writing import output_family, stopped, write
from trajcli.inputs import Inputs
from trajcli.jobs._commands import mode_of_dofs, of_dofs
from trajcli.jobs._orientations import integrated_orientations, recorded_orientations
from trajcli.jobs.plan import SMOOTHED, Plan
from trajcli.jobs.request import Request
from trajcli.kernels.cuda import DeviceLost, DeviceOutOfMemory, device_errors
from trajcli.modes.smooth import Smooth

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


def run(
    request: Request,
    on_plan: Callable[[Plan], None] = lambda plan: None,
    on_progress: Progress = lambda done, total: None,
    dry: bool = False,
) -> dict[str, Any]:
    """Runs a request and returns a report of plain values; ``dry`` plans it and stops.

    A shard writes its part of OUT, or nothing where that is done already. ``on_plan`` is called
    with the plan before anything is computed.

    Raises TrajcliError with every fault that was found. OUT is then what it was before.
    """
    began = time.perf_counter()
    shard = request.shard
    if shard is not None and output_family(request.out) == "npy":
        raise OutputError(
            "a run in shards has no .npy output",
            where=str(request.out),
            expected="OUT.h5 or OUT.npz",
            found=request.out.suffix,
        )
    report: dict[str, Any] = {"out": str(request.path), "dry_run": dry}
    if shard is not None and not dry:
        from trajcli.jobs.shards import input_lines, part_is_done

        if part_is_done(request.path, request.to_json(), request.overwrite):
            remove_dead(request.path)  # what a killed run of this shard left
            return report | {"shard": str(shard), "already_done": True, "notes": [], "left_out": []}
    with Files(request, memory=request.memory, on_progress=on_progress) as files:
        files.sources.add(request.paths())
        plan = Plan(request, files)
        files.sources.add(files.paths())
        on_plan(plan)
        report = plan.description | report
        if dry:
            return report
        execution = Execution(plan)

        def blocks(output: Output) -> Iterator[int]:
            yield from execution.blocks(output)
            if shard is not None:
                output.inputs = input_lines(files.sources, request.out)

        remarks = write(
            request.path,
            plan.output,
            blocks,
            overwrite=request.overwrite or shard is not None,
            compress=request.compress,
            sources=files.sources,
            on_progress=on_progress,
        )
    seconds = time.perf_counter() - began
    # bytes that are read and written: both count against the bandwidth of the disk
    moved = plan.bytes_read + report["bytes_written"]
    notes = [*report["notes"], *execution.notes(), *remarks]
    if execution.smoothing is not None:
        report |= execution.smoothing.report()
    return report | {"notes": notes, "seconds": seconds, "gb_per_s": moved / seconds / 1e9}


class Execution:
    """Computes the blocks of a run.

    Attributes:
        sizes: how many trajectories of each length a block has.
        done: the number of trajectories that are written.
        bad: the number of results that are not finite.
        largest: the largest magnitude of actions, looked up where they may be normalised, up to the
            first block with one beyond 1.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan, self.sizes = plan, plan.sizes
        self.done = self.bad = 0
        self.largest = 0.0
        self.turns: TurnJumps | None = None
        if not plan.mode.derivatives_of:
            self.turns = TurnJumps(plan.recording, acting=True)
        self.smoothing = None
        if isinstance(plan.mode, Smooth):
            names = plan.recording.dof_labels
            self.smoothing = Smoothing([names[dof] for dof in plan.other_dofs])

    def blocks(self, output: Output) -> Iterator[int]:
        """Computes and writes all blocks, smaller ones where a device has no room for whole ones;
        yields after each how many trajectories are written.

        Raises Stopped where a device was lost.
        """
        plan = self.plan
        while True:
            try:
                for group, begin, end in self._unwritten():
                    with nullcontext() if plan.choice.device == "cpu" else device_errors():
                        self.compute(output, group, begin, end)
                    self.done += end - begin
                    yield self.done
                break
            except DeviceOutOfMemory as short:
                if max(self.sizes) == 1:
                    raise UsageError(
                        "no room for the smallest block",
                        where=f"--device {plan.choice.device}",
                        found=str(short),
                        hint="--device cpu, or wait until others have left the device",
                    ) from None
                # blocks that are written stay, the others are computed in halves
                self.sizes = [max(1, size // 2) for size in self.sizes]
            except DeviceLost as lost:
                reason = f"the loss of {plan.choice.device} ({lost})"
                total = len(plan.recording)
                raise stopped(output.path, reason, self.done, total) from None

    def _unwritten(self) -> Iterator[tuple[int, int, int]]:
        """Yields the blocks that are not written yet: the index of their length in the plan, and
        the first and last (exclusive) of its trajectories."""
        total, done = 0, self.done
        for group, (batch, size) in enumerate(zip(self.plan.batches, self.sizes, strict=True)):
            count = len(batch.recording)
            for begin in range(max(done - total, 0), count, size):
                yield group, begin, min(begin + size, count)
            total += count
        if not total:  # an empty part of a run still writes the times of its rows
            yield 0, 0, 0

    def compute(self, output: Output, group: int, begin: int, end: int) -> None:
        """Reads, checks, computes and writes trajectories ``begin`` to ``end`` of one length."""
        plan, batch = self.plan, self.plan.batches[group]
        inputs = replace(batch.read(begin, end), allow_nonfinite=plan.request.allow_nonfinite)
        results: Iterable[tuple[str, Any]]  # names and values of variables
        if self.turns is not None:
            members = batch.recording.take(slice(begin, end))
            self.turns.add({self.turns.name: inputs.actions}, members)

        def check_values() -> None:
            allow_nonfinite = plan.request.allow_nonfinite
            raise_if_any(batch.value_faults(begin, inputs, allow_nonfinite))

        output.write_time(begin, len(inputs.actions), inputs.row_times(), group)
        # rotations are computed apart: their dofs mean nothing one by one
        if plan.rotations and end > begin:
            check_values()
            self._write_rotations(output, inputs, group, begin)
            inputs = of_dofs(inputs, plan.other_dofs)
        if not plan.other_dofs:
            return
        commands = plan.commands.among(plan.other_dofs) if plan.rotations else plan.commands
        inputs = inputs.chosen(plan.choice)
        if plan.choice.backend == "native" and plan.gradient is None:
            # the kernel notices NaN and Inf as it reads; a search for their place follows only then
            raise_if_any(batch.value_faults(begin, inputs, allow_nonfinite=True))
            mixed = commands.apart(inputs)  # with rows of another mode
            places = {
                name: None if mixed else output.region(name, begin, group)
                for name in (plan.quantities if end > begin else ())
            }
            arrays, nonfinite = _native(plan, inputs, places, output.path)
            if nonfinite is None:
                check_values()
                raise InputError("not finite when it was computed", where=inputs.name("actions"))
            self.bad += nonfinite
            results = arrays.items()
        else:
            check_values()
            choice, numbers = plan.choice, batch.recording.numbers[begin:end]
            if plan.gradient is None:
                results = inputs.compute(choice, plan.dtype, plan.quantities).items()
            else:
                results = plan.gradient.block(inputs, commands, numbers, choice, plan.dtype)
        positions = commands.positions(inputs, plan.choice, plan.dtype)
        for name, array in results:
            if name in QUANTITIES and name not in plan.quantities:
                continue  # gradients are computed with all quantities
            commands.put({name: array}, positions)
            self.bad += array.size - int(np.isfinite(array).sum())
            output.write(name, begin, array, group)
        if isinstance(inputs.mode, Smooth):
            for variable in plan.smoothing_variables:
                # what the mode chose, or the recorded_position
                chosen = getattr(inputs.mode, variable.name, inputs.actions)
                output.write(variable.name, begin, chosen, group)
            assert self.smoothing is not None
            self.smoothing.add(inputs.mode)
        if plan.positions is not None and self.largest <= 1.0:
            commanded = inputs.actions
            if commands.actions:  # the increments or offsets, not the positions that they lead to
                dofs = [dof for dof in plan.other_dofs if dof not in plan.commands.absolute]
                commanded = batch.inputs.actions.read_rows(begin, end)[..., dofs]
            self.largest = max(self.largest, largest(commanded))

    def _write_rotations(self, output: Output, inputs: Inputs, group: int, begin: int) -> None:
        """Computes and writes the orientations and angular rates of recordings, some rows at a time
        so that memory is bounded, however long they are."""
        from trajcli.rotations import RotationTrajectory, differentiate_rows

        plan, actions, request = self.plan, inputs.actions, self.plan.request
        place = self.plan.batches[group].recording.place_text

        def read(first: int, last: int, whole: bool = False) -> Any:
            rows = actions if whole else actions[:, first:last]
            try:
                return recorded_orientations(
                    rows, plan.rotations, lambda k: place(begin + k), output.notes,
                    request.allow_nonfinite,
                )  # fmt: skip
            except InputError:
                if whole:
                    raise
                return read(first, last, whole=True)  # whose error counts all rows

        count, frame = len(plan.rotations), request.rotation_frame
        rows: Iterable[tuple[int, RotationTrajectory]]
        if request.recorded:
            shape = (*actions.shape[:2], *[count] * (count > 1), 4)
            turning = [dof for rotation in plan.rotations for dof in rotation.dofs]
            inputs = replace(inputs, mode=mode_of_dofs(inputs.mode, turning))
            rows = differentiate_rows(read, shape, inputs, frame)
        else:
            rows = [
                (0, integrated_orientations(inputs, plan.rotations, plan.commands.actions, frame))
            ]
        for first, motion in rows:
            for name, quantity, values in zip(ROTATIONS, QUANTITIES, motion, strict=True):
                if quantity in plan.quantities and values is not None:
                    self.bad += values.size - int(np.isfinite(values).sum())
                    output.write_rows(name, begin, first, values, group)
            for name in SMOOTHED if isinstance(inputs.mode, Smooth) else ():
                output.write(f"angular_{name}", begin, motion.options[name], group)

    def notes(self) -> Iterator[str]:
        """Yields warnings about the results, when all are written."""
        plan = self.plan
        if self.smoothing is not None:
            yield from self.smoothing.notes()
        if self.turns is not None:
            yield from self.turns.notes("" if plan.request.recorded else "trajcli export ")
        if self.sizes != plan.sizes:
            yield Note(f"blocks were halved: memory on {plan.choice.device} was short")
        if self.bad:
            yield f"{self.bad} results are too large for {plan.dtype} or not finite"
        # increments in rad that a robot takes are far smaller than 1
        least = 0.5 if plan.commands.actions else 0.0
        if plan.positions is not None and plan.bytes_read and least <= self.largest <= 1.0:
            yield (
                "all actions lie within [-1, 1], as normalised commands do; they were read as "
                f"{QUANTITIES[plan.mode.derivatives_of]} in physical units; {plan.positions}"
            )


def _native(
    plan: Plan, inputs: Inputs, places: Mapping[str, tuple[int, int] | None], path: Path
) -> tuple[dict[str, Any], int | None]:
    """Computes a block by the compiled kernels, which write straight into the output file.

    places: the descriptor and offset of each quantity, or None where it has no place in the file.

    Returns the arrays without a place, and how many results are not finite; None where inputs are
    not finite and that is not allowed.
    """
    from trajcli.kernels.native import Forward, InFile

    shape = (len(inputs.actions), inputs.rows, inputs.actions.shape[2])
    out: list[Any] = [None] * len(QUANTITIES)
    arrays: dict[str, Any] = {}
    for name, place in places.items():
        if place is None:
            arrays[name] = np.empty(shape, plan.dtype)
        out[QUANTITIES.index(name)] = arrays[name] if place is None else InFile(*place, plan.dtype)
    operands = inputs.operands()  # keeps the arrays alive that the kernel points to
    kernel = Forward(inputs.program(), operands, out, plan.request.allow_nonfinite)
    try:
        finite = kernel.run()
    except OSError as error:
        raise OutputError(os_fault(path, error)) from None
    return arrays, kernel.faults if finite else None


class Smoothing:
    """Sums up what mode smooth chose for each dof of the trajectories of a run."""

    def __init__(self, dofs: Sequence[str]) -> None:
        self._dofs, self._count = dofs, 0
        self._ranges = {name: np.full((2, len(dofs)), np.nan) for name in ("bandlimit", "residual")}
        self._reweighted = np.zeros(len(dofs), np.int64)
        self._doubts = {name: np.zeros(len(dofs), bool) for name in _DOUBTS}
        self._doubted = Counter[str]()

    def add(self, mode: Smooth) -> None:
        """Adds what was chosen for some trajectories."""
        moving = ~np.isnan(mode.bandlimit)
        self._count += len(moving)
        for name, (least, most) in self._ranges.items():
            # a dof whose rows are all equal has no cutoff, and stays out of the range
            values = np.where(moving, getattr(mode, name), np.nan)
            least[:] = np.fmin.reduce([least, *values])
            most[:] = np.fmax.reduce([most, *values])
        if mode.reweighted is not None:
            self._reweighted += mode.reweighted.sum(0)
        for kind, doubted in mode.doubts.items():
            self._doubts[kind] |= doubted.any(0)
            self._doubted[kind] += int(doubted.any(1).sum())

    def report(self) -> dict[str, Any]:
        """Returns, for each dof, the range of cutoffs in Hz and of residuals over all trajectories
        (None: all rows are equal) and the rows with less weight."""
        ranges = {
            name: [None if np.isnan(low) else [float(low), float(high)] for low, high in ends.T]
            for name, ends in self._ranges.items()
        }
        return {"smoothing": ranges | {"reweighted": self._reweighted.tolist()}}

    def notes(self) -> Iterator[str]:
        """Yields a line for each kind of doubt, with the dofs that it concerns."""
        for kind, text in _DOUBTS.items():
            if names := list(compress(self._dofs, self._doubts[kind])):
                words = ("dof " if names[0].isdecimal() else "") + ", ".join(names[:4])
                more = f" and {len(names) - 4} more" if names[4:] else ""
                share = f" in {self._doubted[kind]} of {self._count} trajectories"
                if kind in ("stairs", "correlation"):
                    text += self._lower()
                yield f"{words}{more}{share * (self._count > 1)}: {text}"

    def _lower(self) -> str:
        """Returns a cutoff for each dof, a lower one where the curve follows noise; "" where those
        of trajectories are not alike."""
        least, most = self._ranges["bandlimit"]
        if (most > 2.0 * least).any():
            return ""
        noisy = self._doubts["stairs"] | self._doubts["correlation"]
        cutoffs = np.sqrt(least * most) * np.where(noisy, _LOWER, 1.0)
        # a dof whose rows are all equal takes any
        cutoffs = np.where(np.isnan(cutoffs), np.nanmin(cutoffs), cutoffs)
        return ": --bandlimit " + ",".join(f"{cutoff:.3g}" for cutoff in cutoffs)
