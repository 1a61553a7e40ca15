"""What a run is going to do: its inputs, what it writes, on which device, in which blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from trajcli.arrays import output_dtype
from trajcli.errors import Fault, FaultCollector, UsageError
from trajcli.files.arrays import in_memory
from trajcli.files.description import (
    Description,
    Variable,
    describe_output,
    row_variable,
    stamp_variables,
    time_variable,
)
from trajcli.files.opening import Files
from trajcli.files.outputs import Output
from trajcli.files.refusals import refuse_form, refuse_input, refuse_output
from trajcli.files.schema import QUANTITIES, first_and_more, sources_text, unit_of
from trajcli.jobs.block import Block, block_size, working_bytes, working_memory
from trajcli.jobs.request import Request, relative_texts
from trajcli.jobs.resolve import Resolved, resolve
from trajcli.jobs.rotation_block import rotation_sizes, rotation_variables
from trajcli.jobs.statements import (
    input_warnings,
    position_unit,
    recorded_positions,
    units_report,
)
from trajcli.kernels.choose import Choice, choose
from trajcli.modes import PARTS
from trajcli.modes.smooth import Smooth

if TYPE_CHECKING:
    from trajcli.jobs.gradient import Gradient

_AT_ONCE = 100
_RECORDING_OPTIONS = ("window", "degree", "order", "bandlimit", "noise", "robust")
"""The options of methods of differentiation."""


@dataclass(frozen=True)
class Plan:
    """A run that is ready to start: its inputs, whose actions are not yet read, and its output.

    sizes: how many trajectories of each length are computed at once. positions: where actions may
    be normalised commands, what to read instead.
    """

    resolved: Resolved
    output: Description
    choice: Choice
    quantities: Sequence[str]
    dtype: str
    gradient: Gradient | None
    sizes: Sequence[int]
    notes: Sequence[str]
    positions: str | None = None

    @cached_property
    def bytes_read(self) -> int:
        """Bytes of actions in the files."""
        return sum(part.inputs.actions.nbytes for part in self.resolved.by_length)

    def blocks(self, output: Output, done: int) -> Iterator[Block]:
        """The blocks of the trajectories that are not done, length by length."""
        total = 0
        for group, (part, size) in enumerate(zip(self.resolved.by_length, self.sizes, strict=True)):
            count = len(part.trajectories)
            for begin in range(max(done - total, 0), count, size):
                end = min(begin + size, count)
                yield Block(self, output, group, begin, end, total + end)
            total += count
        if not total:  # no trajectories: their rows have times all the same
            yield Block(self, output, 0, 0, 0, 0)

    @cached_property
    def description(self) -> dict[str, Any]:
        """The plan as plain values, for people and JSON."""
        resolved, inputs = self.resolved, self.resolved.longest
        layout, request = resolved.first.layout, resolved.request
        sources = resolved.sources
        options = resolved.mode.options(request.recorded)
        shown = _RECORDING_OPTIONS if request.recorded else ()
        rows = [part.inputs.rows for part in resolved.by_length]
        return {
            "source": sources["source"][0],
            "sources": len(sources["source"]),
            "layout": None if layout is None else layout.name,
            "mode": request.mode or resolved.mode.name if request.recorded else resolved.mode.name,
            "mode_source": resolved.mode_source,
            "options": {n: x for n, x in options.items() if n in shown} if shown else options,
            "commands": resolved.commands.options(),
            "shape": {
                "trajectories": len(resolved.trajectories),
                "horizon": inputs.horizon,
                "shortest": min(part.inputs.horizon for part in resolved.by_length),
                "dofs": int(inputs.actions.shape[2]),
            },
            "output": self.output.kind,
            "rows": max(rows),
            "shortest_rows": min(rows),
            "dt": resolved.dt,
            "dt_source": first_and_more(sources["dt_source"]),
            "start": None if request.recorded else first_and_more(sources["start"]),
            "units": units_report(resolved.first),
            "dtype": self.dtype,
            "write": list(self.quantities),
            "device": self.choice.device,
            "backend": self.choice.backend,
            "device_reason": self.choice.reason,
            "bytes_read": self.bytes_read,
            "bytes_written": self.output.nbytes,
            "block": {"trajectories": self.sizes[0]},
            "notes": list(self.notes),
            "left_out": [
                {"name": name, "reason": "; ".join(fault.what for fault in faults),
                 "faults": [fault.as_dict() for fault in faults]}
                for name, faults in resolved.left_out
            ],
        }  # fmt: skip


def make_plan(request: Request, files: Files) -> Plan:
    """Look everything up and check it; nothing is computed and nothing written.

    Raises every fault that can be found without reading all values.
    """
    # whether a part is replaced is said by part_is_done, and by merge of OUT
    overwrite = request.overwrite or request.shard is not None
    check, shard, files_of_shard = FaultCollector(), request.shard, None
    if shard is not None and request.shares_all:
        files_of_shard = shard.sources(request.expanded())
    quantities, _, resolved = check.attempt(
        lambda: _quantities(request.write),
        partial(refuse_output, request.out, overwrite),
        lambda: resolve(request, files, files_of_shard or request.sources),
    )
    if resolved is not None and resolved.rotations and isinstance(resolved.mode, Smooth):
        what, hint = "method smooth does not take rotations", "--method savgol smooths them"
        check.faults.append(Fault(what, where="--method", hint=hint))
    gradient, _ = check.attempt(
        lambda: resolved and _gradient(request, files, resolved),
        lambda: refuse_input(request.out, files.paths()),
    )
    check.raise_if_any()
    times_differ = resolved.times_differ
    if shard is not None and files_of_shard is None:
        resolved = resolved.take(slice(*shard.share(len(resolved.trajectories))))
    if request.skip_bad:
        resolved = resolved.without_bad_values()
    arrays = [part.inputs.actions for part in resolved.by_length]
    choice = choose(request.device, request.backend, ready=True)
    stored = np.result_type(*(getattr(actions, "precision", actions.dtype) for actions in arrays))
    dtype = request.dtype or output_dtype(stored)
    output = _describe(resolved, files.paths(), quantities, dtype, gradient, times_differ)
    refuse_form(request.out, output, request.compress)
    kind, memory = working_memory(choice, gradient is not None, request.memory)
    return Plan(
        resolved=resolved,
        output=output,
        choice=choice,
        quantities=quantities,
        dtype=dtype,
        gradient=gradient,
        sizes=[block_size(part, kind, memory) for part in resolved.by_length],
        notes=[
            *files.notes,
            *resolved.notes,
            *_notes(resolved, dtype, kind),
            *input_warnings(resolved),
        ],
        positions=recorded_positions(resolved),
    )


def _gradient(request: Request, files: Files, resolved: Resolved) -> Gradient | None:
    """What --grad, --cost and --grad-factor ask for; None without any of them."""
    if (request.grad, request.cost, request.factor) == (None, None, None):
        return None
    from trajcli.jobs.gradient import resolve_gradient

    return resolve_gradient(request, files, resolved)


def _describe(
    resolved: Resolved,
    paths: Sequence[str],
    quantities: Sequence[str],
    dtype: str,
    gradient: Gradient | None,
    times_differ: bool,
) -> Description:
    """Describes the output.

    paths: the files that were read. times_differ: whether trajectories of the run have rows at
    different times.
    """
    names = resolved.first.joint_names
    inputs, request, parts = resolved.longest, resolved.request, resolved.by_length
    rotations, others, unit = resolved.rotations, resolved.other_dofs, position_unit(resolved)
    sizes = {"dof": len(others), **rotation_sizes(rotations)}
    if unit and unit.count(",") + 1 == inputs.actions.shape[2]:
        unit = ",".join(unit.split(",")[dof] for dof in others)
    of_dofs = quantities if others else ()
    variables = [row_variable(n, dtype, unit and unit_of(n, unit)) for n in of_dofs]
    variables += rotation_variables(rotations, quantities, dtype, request.rotation_frame)
    variables.append(time_variable(shared=not times_differ))
    # of a part merge says whether all stamps are 0
    stamps = resolved.trajectories.start_stamps(relative=request.shard is not None)
    variables += stamp_variables(stamps)
    if (index := _start_index(resolved)) is not None:
        label = {"long_name": "start state used"}
        variables.append(Variable("start_index", ("trajectory",), np.dtype("i8"), label, index))
    if isinstance(resolved.mode, Smooth):
        labels = {"bandlimit": {"long_name": "cutoff frequency", "units": "Hz"}}
        labels["residual"] = {"long_name": "deviation of residuals", "units": unit or ""}
        if resolved.mode.robust:
            labels["reweighted"] = {"long_name": "rows with less weight"}
        for name, about in labels.items():
            variables.append(Variable(name, ("trajectory", "dof"), np.dtype("f8"), about))
    if gradient is not None:
        sizes |= gradient.sizes(inputs)
        variables += gradient.variables(inputs, dtype)
    trajectories, paths_of_run = resolved.trajectories, request.source_paths()
    several = len(trajectories.groups) > 1 or len(paths_of_run) > 1 or request.max_gap is not None
    first = resolved.first
    several = several or first.member is not None or first.lengths is not None
    lengths = {
        part.inputs.rows: np.searchsorted(trajectories.numbers, part.trajectories.numbers)
        for part in parts
    }
    return describe_output(
        lengths,
        sizes,
        variables,
        _attributes(resolved, paths),
        names=trajectories.names(paths_of_run) if several else None,
        joint_names=names and [names[dof] for dof in others],
    )


def _start_index(resolved: Resolved) -> Any:
    """Which start state each trajectory uses; None without an index."""
    parts = resolved.by_length
    if parts[0].inputs.start_index is None:
        return None
    index = np.concatenate([in_memory(part.inputs.start_index) for part in parts])
    return index[np.argsort(np.concatenate([part.trajectories.numbers for part in parts]))]


def _attributes(resolved: Resolved, paths: Sequence[str]) -> dict[str, Any]:
    """What the output says of how it was made; paths are relative to its folder."""
    request = resolved.request
    texts = {name: sources_text(name, names) for name, names in resolved.sources.items()}
    mode, options = resolved.mode.name, resolved.mode.options(resolved.request.recorded)
    about = {"mode": mode, **options, "dt": resolved.dt}
    if resolved.rotations:
        about |= {"rotation_order": "wxyz", "rotation_frame": request.rotation_frame}
    return {**about, **resolved.commands.options(), **request.attributes(texts, paths)}


def sources_of_part(plan: Plan, paths: Sequence[str]) -> dict[str, list[str]]:
    """The same as seen from the folder of OUT, for a part to list, and the names of its groups in
    the order of the run. paths: the files read."""
    found: dict[str, list[str]] = {}
    if plan.output.groups:
        groups = plan.output.groups
        titles = {n: name for g in groups for n, name in zip(g.numbers, g.names, strict=True)}
        found["trajectory"] = [titles[number] for number in sorted(titles)]
    for name, names in plan.resolved.sources.items():
        found[name] = []
        for begin in range(0, len(names), _AT_ONCE):  # each text is searched for every path
            text = {name: "\0".join(names[begin : begin + _AT_ONCE])}
            moved = relative_texts(text, paths, plan.resolved.request.out)
            found[name] += moved[name].split("\0")
    return found


def _notes(resolved: Resolved, dtype: str, kind: str) -> Iterator[str]:
    """Which types are converted, of many inputs the first; and what takes more than the memory."""
    kinds: dict[Any, str] = {}
    for one in resolved.trajectories.groups:
        stored = one.input.dtype
        if stored.kind in "iu" or stored.itemsize not in (4, 8):
            kinds.setdefault(stored, one.input.where)
    yield from (f"{where}: {stored} converted to {dtype}" for stored, where in kinds.items())
    needed = max(working_bytes(part, kind) for part in resolved.by_length)
    if needed > resolved.request.memory:
        size = f"{needed / 2**20:.0f} MiB" if needed >= 1 << 20 else f"{needed / 2**10:.1f} KiB"
        yield f"one trajectory takes about {size} of working memory, more than TRAJCLI_MEMORY"


def _quantities(write: Sequence[str]) -> list[str]:
    unknown = [name for name in write if name not in QUANTITIES]
    if unknown or not write:
        raise UsageError(
            "unknown output",
            where="--write",
            expected=", ".join(QUANTITIES),
            found=", ".join(unknown) or "nothing",
        )
    return [name for name in PARTS if name in write]
