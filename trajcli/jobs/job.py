"""A job, and the one loop that computes its blocks and writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from trajcli.errors import Fault, InputError, Note, Report, UsageError
from trajcli.files.outputs import Description, Span
from trajcli.files.recording import Recording
from trajcli.files.writing import stop_error
from trajcli.kernels.cuda import DeviceLost, DeviceOutOfMemory, device_errors
from trajcli.kernels.program import Integers
from trajcli.memory import CHANGED_BYTES
from trajcli.system import pending_signal

Arrays: TypeAlias = Mapping[str, Any]
"""Entries [b, ...] of the variables of an output, by name."""
Results: TypeAlias = Iterable[tuple[int, Arrays]]
"""The arrays of a block, behind the number of their first row: long ones may come in parts."""


@dataclass(frozen=True, kw_only=True)
class Block(Span):
    """Recorded trajectories that are computed at once.

    group_recording: all trajectories of this length. numbers [n]: their numbers in the job.
    """

    group_recording: Recording
    numbers: Integers

    @cached_property
    def recording(self) -> Recording:
        return self.group_recording.take(slice(self.begin, self.end))

    @property
    def indices(self) -> Integers:
        """The numbers of the block's trajectories in the job [b]."""
        return self.numbers[self.begin : self.end]


S = TypeVar("S", bound=Span)


@dataclass(frozen=True)
class Job(Generic[S]):
    """What a command computes and writes: all trajectories, in blocks of one length."""

    out: Path  # written, or compared with the results
    description: Description
    blocks: Iterable[S]
    compute: Callable[[S], Results]
    device: str = "cpu"


def write_blocks(job: Job[S], write: Callable[[Span, Arrays, int], object], report: Report) -> None:
    """Computes all blocks of a job and writes their arrays, with the number of their first row.

    Where a device has no room for a block, it and all later ones are halved, and a note says so.
    Raises Stopped for a signal between two blocks, or for a lost device.
    """
    # most: the largest block that fits on the device, once one has not
    done, most, total = 0, 0, job.description.sizes["trajectory"]
    for first_block in job.blocks:
        # a stack with the later half below the earlier one keeps trajectories in order
        stack = [first_block]
        while stack:
            block = stack.pop()
            if most and len(block) > most:
                middle = (block.begin + block.end) // 2
                stack += [replace(block, begin=middle), replace(block, end=middle)]
                continue
            # PyTorch and CUDA name a full or lost device in many ways; device_errors knows them
            try:
                with nullcontext() if job.device == "cpu" else device_errors():
                    for first, arrays in job.compute(block):
                        write(block, arrays, first)
            except DeviceOutOfMemory as short:
                if len(block) < 2:
                    what, where = "no room for the smallest block", f"--device {job.device}"
                    hint = "--device cpu, or wait until others have left the device"
                    raise UsageError(what, where=where, found=str(short), hint=hint) from None
                most = len(block) // 2
                stack.append(block)
                continue
            except DeviceLost as lost:
                reason = f"the loss of {job.device} ({lost})"
                raise stop_error(job.out, reason, done, total) from None
            # signals are answered only here, with every block written or not begun
            done += len(block)
            report.on_progress(done, total)
            if signal := pending_signal():
                raise stop_error(job.out, signal, done, total)
    if most:
        report.add_notes(Note(f"blocks were halved: memory on {job.device} was short"))


def make_blocks(recording: Recording, rows: Integers) -> Iterator[Block]:
    """Divides trajectories that have ``rows`` [B] each when they are computed into blocks."""
    # Trajectories with equally many rows are a group of the output, the fewest first. A job may
    # change how many there are, so that recorded lengths do not tell the groups.
    for group, count in enumerate(sorted({*rows.tolist()})):
        numbers = np.flatnonzero(rows == count)
        group_recording = recording.take(numbers)
        for span in group_recording.spans(CHANGED_BYTES, count):
            yield Block(
                group=group,
                begin=span.start,
                end=span.stop,
                group_recording=group_recording,
                numbers=numbers,
            )


def find_faults(
    spans: Iterable[Span], check: Callable[[Span], object]
) -> dict[Span, Sequence[Fault]]:
    """Finds the single trajectories for which ``check`` raises InputError, and their faults."""
    bad: dict[Span, Sequence[Fault]] = {}
    for span in spans:
        try:
            check(span)
        except InputError:
            # the error names what is wrong in the block, not in which trajectories
            for k in range(span.begin, span.end):
                single = replace(span, begin=k, end=k + 1)
                try:
                    check(single)
                except InputError as error:
                    bad[single] = error.faults
    return bad
