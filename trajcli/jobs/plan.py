"""What a run is going to do: its inputs, what it writes, on which device, in which blocks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trajcli.arrays import output_dtype
from trajcli.errors import Fault, FaultCollector, UsageError, raise_if_any
from trajcli.files.reader import Files
from trajcli.files.refusals import refuse_form, refuse_input, refuse_output
from trajcli.files.schema import QUANTITIES, Schema
from trajcli.jobs.block_sizes import block_size, working_bytes, working_memory
from trajcli.jobs.output_schema import make_schema
from trajcli.jobs.request import Request
from trajcli.jobs.resolve import resolve
from trajcli.jobs.resolved import Resolved
from trajcli.jobs.statements import input_units, input_warnings, recorded_positions
from trajcli.kernels.choose import Choice, Work, choose
from trajcli.modes import PARTS

if TYPE_CHECKING:
    from trajcli.jobs.gradient import Gradient
    from trajcli.jobs.output_times import OutputTimes


class BlockRange(NamedTuple):
    """What is read, computed and written at once: trajectories begin..end of one length.

    ``done``: how many trajectories of the run are done when this block is.
    """

    group: int
    begin: int
    end: int
    done: int


@dataclass(frozen=True)
class Plan:
    """A run that is ready to start: its inputs, whose actions are not yet read, and its schema.

    sizes: how many trajectories of each length are computed at once. positions: where actions may
    be normalised commands, what to read instead. output_times: of the rows that are written; None
    where they are those of the mode.
    """

    resolved: Resolved
    schema: Schema
    choice: Choice
    quantities: Sequence[str]
    dtype: str
    gradient: Gradient | None
    sizes: Sequence[int]
    notes: Sequence[str]
    positions: str | None = None
    output_times: OutputTimes | None = None

    @property
    def request(self) -> Request:
        """What was asked for."""
        return self.resolved.request

    @cached_property
    def bytes_read(self) -> int:
        """Bytes of actions in the files."""
        return sum(part.inputs.actions.nbytes for part in self.resolved.by_length)

    def halved(self) -> Plan | None:
        """The same run in blocks of half the size; None where all are single trajectories."""
        if all(size == 1 for size in self.sizes):
            return None
        return replace(self, sizes=[max(1, size // 2) for size in self.sizes])

    def blocks(self, done: int) -> Iterator[BlockRange]:
        """The blocks of the trajectories that are not done, length by length."""
        total = 0
        for group, (part, size) in enumerate(zip(self.resolved.by_length, self.sizes, strict=True)):
            count = len(part.numbers)
            for begin in range(max(done - total, 0), count, size):
                end = min(begin + size, count)
                yield BlockRange(group, begin, end, total + end)
            total += count
        if not total:  # no trajectories: their rows have times all the same
            yield BlockRange(0, 0, 0, 0)

    @cached_property
    def description(self) -> dict[str, Any]:
        """The plan as plain values, for people and JSON."""
        resolved, inputs = self.resolved, self.resolved.longest
        layout = resolved.sets[0].layout
        rows = [part.output_rows for part in resolved.by_length]
        return {
            "source": resolved.source_names[0],
            "sources": len(resolved.sets),
            "layout": None if layout is None else layout.name,
            "mode": resolved.mode.name,
            "mode_source": resolved.mode_source,
            "options": resolved.mode.options(resolved.recorded),
            "commands": resolved.commands.options(),
            "shape": {
                "trajectories": resolved.count,
                "horizon": inputs.horizon,
                "shortest": min(part.inputs.horizon for part in resolved.by_length),
                "dofs": int(inputs.actions.shape[2]),
            },
            "output": self.schema.kind,
            "rows": max(rows),
            "shortest_rows": min(rows),
            "to": self.request.to,
            "at": self.request.at,
            "dt": resolved.dt,
            "dt_source": resolved.dt_source,
            "start": resolved.start_source,
            "units": input_units(resolved.sets[0]),
            "dtype": self.dtype,
            "write": list(self.quantities),
            "device": self.choice.device,
            "backend": self.choice.backend,
            "device_reason": self.choice.reason,
            "bytes_read": self.bytes_read,
            "bytes_written": self.schema.nbytes,
            "block": {"trajectories": self.sizes[0]},
            "notes": list(self.notes),
            "left_out": [
                {"name": bad.name, "reason": "; ".join(fault.what for fault in bad.faults),
                 "faults": [fault.as_dict() for fault in bad.faults]}
                for bad in resolved.left_out
            ],
        }  # fmt: skip


def make_plan(request: Request, files: Files) -> Plan:
    """Look everything up and check it; nothing is computed and nothing written.

    Raises every fault that can be found without reading all values.
    """
    # whether a part is replaced is said by part_is_done, and by merge of OUT
    overwrite = request.overwrite or request.shard is not None
    check, reading = FaultCollector(), _shard_files(request)
    quantities, choice, gradient, output_times, _, resolved, _ = check.attempt(
        lambda: _quantities(request.write),
        lambda: _choice(request, Work(0, 0)),
        lambda: _gradient(request, files),
        lambda: _output_times(request, files),
        partial(refuse_output, request.out, overwrite),
        lambda: _resolved(request, reading or request, files),
        lambda: refuse_input(request.out, files.paths()),
    )
    if resolved is not None and output_times is not None:
        check.attempt(partial(output_times.require_fit, resolved))
    if resolved is not None and gradient is not None and not check.faults:
        gradient = gradient.for_run(resolved)
        check.faults += gradient.faults(resolved)
    raise_if_any(_counted(check.faults))
    paths = files.paths()
    times_differ = resolved.times_differ
    if request.shard is not None and reading is None:
        from trajcli.jobs.shards import shard_range

        chosen = shard_range(resolved.count, request.shard)
        resolved = resolved.take(lambda n: (n >= chosen.start) & (n < chosen.stop))
    if request.skip_bad:
        resolved = resolved.without_bad_values()
    if output_times is not None:
        resolved = output_times.grouped(resolved)
    arrays = [part.inputs.actions for part in resolved.by_length]
    if request.device == "auto":
        choice = _choice(request, Work.of([actions.shape for actions in arrays]))
    stored = np.result_type(*(actions.dtype for actions in arrays))
    dtype = request.dtype or output_dtype(np.empty(0, stored))
    schema = make_schema(resolved, paths, quantities, dtype, gradient, times_differ, output_times)
    refuse_form(request.out, schema, request.compress)
    kind, memory = working_memory(choice, gradient is not None, request.memory)
    return Plan(
        resolved=resolved,
        schema=schema,
        choice=choice,
        quantities=quantities,
        dtype=dtype,
        gradient=gradient,
        sizes=[block_size(part, kind, memory) for part in resolved.by_length],
        notes=[*resolved.notes, *_notes(resolved, dtype, kind), *input_warnings(resolved)],
        positions=recorded_positions(resolved),
        output_times=output_times,
    )


def _resolved(request: Request, reading: Request, files: Files) -> Resolved:
    """The inputs of a request that fit together. reading: the same with its share of the files."""
    resolved = replace(resolve(reading, files), request=request)
    resolved.require_shapes()
    return resolved


def _counted(faults: Sequence[Fault]) -> list[Fault]:
    """Faults that differ in their place alone, as one with their number."""
    places: dict[Fault, list[str]] = {}
    for fault in dict.fromkeys(faults):
        places.setdefault(replace(fault, where=""), []).append(fault.where)
    return [
        replace(fault, where=where[0] + (f" and {len(where) - 1} more" if where[1:] else ""))
        for fault, where in places.items()
    ]


def _choice(request: Request, work: Work) -> Choice:
    """Where and by what a run is computed; each shard of a machine takes a device of its own."""
    local = 0 if request.shard is None else request.shard.local
    return choose(request.device, request.backend, work, local)


def _gradient(request: Request, files: Files) -> Gradient | None:
    """What a request asks for; None where it asks for no gradient."""
    if (request.grad, request.cost, request.wrt, request.factor) == (None, None, None, None):
        return None
    from trajcli.jobs.gradient import resolve_gradient

    return resolve_gradient(request, files)


def _output_times(request: Request, files: Files) -> OutputTimes | None:
    """What a request names; None where the rows are those of its mode."""
    if request.to is None and request.at is None:
        return None
    if request.grad is not None or request.cost is not None:
        option = "--at" if request.to is None else "--to"
        what, where = "gradients are those of the mode's own rows", f"{option}, --grad and --cost"
        hint = f"leave {option} out; in Python trajcli.sample is differentiable"
        raise UsageError(Fault(what, where, hint=hint))
    from trajcli.jobs.output_times import output_times

    return output_times(files, request.to, request.at)


def _shard_files(request: Request) -> Request | None:
    """The request of a shard that reads files of its own: of at least as many files as shards, and
    options that are the same for all trajectories. None where shards divide trajectories."""
    if request.shard is None or not request.shares_all:
        return None
    sources = request.expanded()
    if len(sources) < request.shard.count:
        return None
    try:
        sizes = [os.stat(source.path).st_size for source in sources]
    except OSError:
        return None  # what cannot be read is said when it is opened
    from trajcli.jobs.shards import shard_sources

    chosen = shard_sources(sizes, request.shard)
    return replace(request, sources=[str(sources[k]) for k in chosen])


def _notes(resolved: Resolved, dtype: str, kind: str) -> Iterator[str]:
    """Which types are converted, of many inputs the first; and what takes more than --memory."""
    kinds: dict[Any, str] = {}
    for one in resolved.sets:
        stored = one.input.dtype
        if stored.kind in "iu" or stored.itemsize not in (4, 8):
            kinds.setdefault(stored, one.input.where)
    yield from (f"{where}: {stored} converted to {dtype}" for stored, where in kinds.items())
    needed = max(working_bytes(part, kind) for part in resolved.by_length)
    if needed > resolved.request.memory:
        size = f"{needed / 2**20:.0f} MiB" if needed >= 1 << 20 else f"{needed / 2**10:.1f} KiB"
        yield f"one trajectory takes about {size} of working memory, more than --memory"


def _quantities(write: Sequence[str]) -> list[str]:
    unknown = [name for name in write if name not in QUANTITIES]
    if unknown or not write:
        names = ", ".join(unknown) or "nothing"
        raise UsageError(Fault("unknown output", "--write", ", ".join(QUANTITIES), names))
    return [name for name in PARTS if name in write]
