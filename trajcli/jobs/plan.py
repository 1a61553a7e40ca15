"""What a request means: which data, which steps, what will be written, where it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trajcli import __version__
from trajcli.errors import Fault, Gathering, UsageError
from trajcli.files.arrays import StoredArray
from trajcli.files.placing import refuse_input, refuse_output
from trajcli.files.schema import QUANTITIES, Schema, derived_unit, packed_schema
from trajcli.input_checks import shape_faults
from trajcli.inputs import Inputs
from trajcli.jobs.batch import Batch
from trajcli.jobs.doubts import doubts
from trajcli.jobs.found import Found
from trajcli.jobs.gradient import Gradient, find_gradient, gradient_faults, with_defaults
from trajcli.jobs.lengths import find_all
from trajcli.jobs.lookup import joint_names
from trajcli.jobs.names import without_folders
from trajcli.jobs.parts import listed, parts_schema, refuse_unequal, shortly
from trajcli.jobs.places import Files, Place, find_actions
from trajcli.jobs.recorded import prepared
from trajcli.jobs.request import Request
from trajcli.kernels.choose import Choice, Work, choose
from trajcli.kernels.cuda import free_bytes
from trajcli.modes import PARTS, Mode, make_mode
from trajcli.trajectory import DTYPES, output_dtype

_BYTES_PER_ELEMENT = {"native": 64, "torch": 512, "triton": 192, "torch on a device": 512}
"""Working memory for each action: a block in, four out; torch keeps some 60 float64 on the way.
A device's pipeline has two blocks in pinned memory, of which there may be twice what was asked
for, and as much on the device."""
_BLOCK_ELEMENTS = {"native": 1 << 20, "torch": 1 << 17, "triton": 1 << 23}
_BLOCK_ELEMENTS["torch on a device"] = 1 << 22
"""More gains nothing, or leaves the processor's caches and runs slower."""
_SHARE_OF_FREE = 0.8
"""Of a device's free memory, what blocks are to take."""
_BYTES_PER_STEP = 64
"""For each row of trajectories with steps of their own: the step and the sum that is its time."""


@dataclass
class Peak:
    """The largest magnitude among actions, as far as they have been read."""

    value: float | None = None


@dataclass(frozen=True)
class Plan:
    """A job ready to run: its inputs (not yet read), its schema and everything said about it.

    Trajectories of different length are several plans in one: ``parts`` has one for each length,
    ``prefix`` what its variables are called, ``first`` how many trajectories come before it. The
    batch, inputs and size of the whole are then those of the longest.
    """

    batch: Batch
    inputs: Inputs
    schema: Schema
    choice: Choice
    wanted: Sequence[str]
    dtype: str
    gradient: Gradient | None
    size: int
    """How many trajectories are done at once."""
    layout: str | None
    dt_source: str
    start_source: str
    notes: Sequence[str]
    parts: Sequence[Plan] = ()
    prefix: str = ""
    first: int = 0
    total: int = 0
    begin: int = 0
    end: int | None = None
    """Which of its trajectories are done, where not all are."""
    source: str = ""
    """What the data are called, where the batch is only a share of them."""
    smooth: Sequence[str] = ()
    better: str | None = None
    """Where the actions may be normalised commands: what to read in their place."""
    peak: Peak = field(default_factory=Peak)

    def each(self) -> Sequence[Plan]:
        """The plan itself, or the plans for each length."""
        return self.parts or (self,)

    @property
    def bytes_read(self) -> int:
        """Bytes of values in the files."""
        return sum(part.batch.nbytes for part in self.each())

    def halved(self) -> Plan | None:
        """The same work in blocks of half the size; None where they cannot be smaller."""
        if all(part.size == 1 for part in self.each()):
            return None
        parts = [replace(part, size=max(1, part.size // 2)) for part in self.parts]
        return replace(self, size=max(1, self.size // 2), parts=parts)

    def describe(self) -> dict[str, Any]:
        """The plan as plain values, for people and JSON."""
        _, horizon, dofs = self.batch.shape
        mode = self.inputs.mode
        shortest = min(part.batch.shape[1] for part in self.each())
        return {
            "source": self.source or self.batch.name,
            "layout": self.layout,
            "mode": mode.name,
            "options": mode.options(self.inputs.recorded),
            "shape": {
                "trajectories": self.total,
                "horizon": horizon,
                "shortest": shortest,
                "dofs": dofs,
            },
            "output": self.schema.kind,
            "rows": mode.rows(horizon, self.inputs.recorded),
            "dt": _dt_value(self.inputs),
            "dt_source": self.dt_source,
            "start": self.start_source,
            "dtype": self.dtype,
            "write": list(self.wanted),
            "device": self.choice.device,
            "backend": self.choice.backend,
            "device_reason": self.choice.reason,
            "bytes_read": self.bytes_read,
            "bytes_written": self.schema.nbytes,
            "block": {"trajectories": self.size},
            "notes": list(self.notes),
        }


def make_plan(request: Request, files: Files) -> Plan:
    """Look everything up and check it; nothing is computed and nothing written.

    Raises every fault that can be found without reading all values.
    """
    check = Gathering()
    local = 0 if request.share is None else request.share.local
    mode = check.attempt(lambda: make_mode(request.mode, **request.options))
    wanted = check.attempt(lambda: _wanted(request.write))
    choice = check.attempt(lambda: choose(request.device, request.backend, Work(0, 0), local))
    check.attempt(lambda: _require_choice("--dtype", request.dtype or "float64", DTYPES))
    check.attempt(
        lambda: _require_choice("--repeated-times", request.repeated_times, ("error", "drop"))
    )
    gradient = check.attempt(lambda: find_gradient(request, files))
    may_be_there = request.overwrite or request.share is not None  # shares leave OUT to merge
    check.attempt(lambda: refuse_output(request.out, may_be_there))
    given = check.attempt(
        lambda: find_actions(files, request.sources, request.layout, request.filter_key)
    )
    ready = check.attempt(lambda: prepared(request, files, given or ())) if given and mode else None
    left, places, preparing = ready or (request, [], [])
    founds = check.attempt(lambda: find_all(left, files, places, check)) if places else None
    check.attempt(lambda: refuse_input(request.out, files.paths()))
    if founds is None or mode is None or wanted is None or choice is None:
        check.raise_if_any()
        raise AssertionError("a step failed without a fault")
    all_inputs = [found.inputs(mode) for _, found in founds]
    check.faults += [fault for inputs in all_inputs for fault in shape_faults(inputs)]
    check.attempt(lambda: refuse_unequal(request, len(founds)))
    if gradient is not None and not check.faults:
        gradient = with_defaults(gradient, all_inputs[0])
        check.faults += gradient_faults(gradient, all_inputs[0])
    check.raise_if_any()
    longest = max(range(len(founds)), key=lambda k: all_inputs[k].horizon)
    found, inputs = founds[longest][1], all_inputs[longest]
    dtype = request.dtype or output_dtype(_widest([each.batch for _, each in founds]))
    if request.device == "auto":
        work = Work.of(each.actions.shape for each in all_inputs)
        choice = choose(request.device, request.backend, work, local)
    kind, memory = _room(choice, gradient, request.memory)
    size = _size(inputs, kind, memory)
    needed = inputs.rows * inputs.actions.shape[2] * _BYTES_PER_ELEMENT[kind]
    plan = Plan(
        batch=found.batch,
        inputs=inputs,
        schema=_schema(request, inputs, wanted, dtype, found, places[0], gradient, files.paths()),
        gradient=gradient,
        choice=choice,
        wanted=wanted,
        dtype=dtype,
        size=size,
        layout=places[0].layout.name if places[0].layout is not None else None,
        dt_source=found.dt_source,
        start_source=found.start_source,
        notes=[
            *preparing,
            *dict.fromkeys(note for _, each in founds for note in each.notes),
            *_notes(found.batch, dtype, needed, request.memory),
            *doubts(request.sources, places, inputs),
        ],
        total=sum(len(numbers) for numbers, _ in founds),
        smooth=tuple(request.smooth),
        better=_better_than_commands(places[0], mode),
    )
    if len(founds) == 1:
        return plan
    return _in_parts(plan, request, places, founds, (kind, memory), files.paths())


def _room(choice: Choice, gradient: Gradient | None, memory: int) -> tuple[str, int]:
    """What a block's memory is counted for, and how much there is: on a device no more than most
    of what is free there."""
    kind = "torch" if gradient is not None else choice.backend
    if choice.device == "cpu":
        return ("torch" if kind == "triton" else kind), memory
    kind = "torch on a device" if kind == "torch" else kind
    return kind, min(memory, int(_SHARE_OF_FREE * free_bytes(choice.device)))


def _better_than_commands(place: Place, mode: Mode) -> str | None:
    """What to read instead, where a robot's commands would be taken for physical quantities."""
    layout, member = place.layout, place.member
    if layout is None or member is None or not place.commands:
        return None
    if layout.commands_positions and mode.derivatives_of == 0:
        return None  # positions to go to, in rad or m
    names = layout.recorded(member)
    if not names:
        return f"layout {layout.name} has no recorded positions here"
    listed = ", ".join(f"{place.file.path}:{name}" for name in names)
    return f"the recorded positions are {listed} (--start first --mode central or clique)"


def _widest(batches: Sequence[Batch]) -> Any:
    """The batch, of several, whose type holds all."""
    kind = np.result_type(*(batch.dtype for batch in batches))
    return next((batch for batch in batches if batch.dtype == kind), batches[0])


def _in_parts(
    plan: Plan,
    request: Request,
    places: Sequence[Place],
    founds: Sequence[tuple[Any, Found]],
    room: tuple[str, int],
    paths: Sequence[str],
) -> Plan:
    """The plan for each length, and the schema that all of them fill."""
    mode, first, parts = plan.inputs.mode, 0, []
    for k, (numbers, found) in enumerate(founds):
        inputs = found.inputs(mode)
        size = _size(inputs, *room)
        parts.append(
            replace(plan, batch=found.batch, inputs=inputs, size=size, prefix=f"{k}/", first=first)
        )
        first += len(numbers)
    units = request.units or _units(request, places[0], mode)
    whole = parts_schema(request, plan.schema, places, [n for n, _ in founds], parts, units, paths)
    parts = [replace(part, schema=whole) for part in parts]
    return replace(plan, schema=whole, parts=parts, source=shortly([p.name for p in places]))


def _size(inputs: Inputs, kind: str, memory: int) -> int:
    """How many trajectories are done at once within so much working memory."""
    batch, horizon, dofs = inputs.actions.shape
    steps: Any = inputs.dt if inputs.times is None else inputs.times
    own = inputs.uneven and steps.ndim == 2 and steps.shape[0] > 1
    each = _BYTES_PER_ELEMENT[kind]
    per_row = dofs * each + (_BYTES_PER_STEP if own else 0)
    budget = min(_BLOCK_ELEMENTS[kind] * each, memory)
    together = budget // (max(horizon, inputs.rows) * per_row)
    return int(max(1, min(together, batch)))


def _notes(batch: Batch, dtype: str, needed: int, memory: int) -> list[str]:
    notes = [
        f"{part.where}: {part.dtype} converted to {dtype}"
        for part in batch.parts[:3]
        if part.dtype.kind in "iu" or part.dtype.itemsize not in (4, 8)
    ]
    if needed > memory:
        notes.append(
            f"one trajectory takes about {needed >> 20} MiB of working memory, more than --memory"
        )
    return notes


def _wanted(write: Sequence[str]) -> list[str]:
    unknown = [name for name in write if name not in QUANTITIES]
    if unknown or not write:
        found = ", ".join(unknown) or "nothing"
        raise UsageError(Fault("unknown output", "--write", ", ".join(QUANTITIES), found))
    return [name for name in PARTS if name in write]


def _require_choice(option: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise UsageError(Fault("unknown value", option, " or ".join(choices), repr(value)))


def _schema(
    request: Request,
    inputs: Inputs,
    wanted: Sequence[str],
    dtype: str,
    found: Found,
    place: Place,
    gradient: Gradient | None,
    paths: Sequence[str],
) -> Schema:
    batch, _, dofs = inputs.actions.shape
    steps: Any = inputs.dt if inputs.times is None else inputs.times
    attributes = {
        "mode": inputs.mode.name,
        **inputs.mode.options(inputs.recorded),
        "dt": _dt_value(inputs),
        "dt_source": without_folders(found.dt_source, paths),
        "source": without_folders(listed(found.batch.sources()), paths),
        "start": without_folders(found.start_source, paths),
        "trajcli_version": __version__,
    }
    if request.smooth:
        attributes["smooth"] = ",".join(request.smooth)
    if request.wrap_dofs:
        attributes["wrap_dofs"] = ",".join(map(str, request.wrap_dofs))
    if request.max_gap is not None:
        attributes["max_gap"] = request.max_gap
    if inputs.goal:
        attributes["goal"] = without_folders(found.goal_source, paths)
    if inputs.times is not None:
        attributes["repeated_times"] = request.repeated_times
    if gradient is not None:
        attributes |= {
            "wrt": ",".join(gradient.wrt),
            "gradient_factor": gradient.factor,
            "gradient_of": request.cost or without_folders(request.grad or "", paths),
        }
    return packed_schema(
        batch,
        inputs.rows,
        dofs,
        wanted=wanted,
        dtype=dtype,
        own_times=steps.ndim == 2 and steps.shape[0] != 1,
        attributes=attributes,
        start_index=_indices(inputs.start_index),
        joint_names=joint_names(place),
        units=request.units or _units(request, place, inputs.mode),
        more=gradient.variables(inputs, dtype) if gradient is not None else (),
    )


def _indices(stored: Any) -> Any:
    return stored.read_rows if isinstance(stored, StoredArray) else stored


def _units(request: Request, place: Place, mode: Mode) -> str | None:
    """Units that the file gives for its positions, or those that its actions are derived from."""
    if mode.derivatives_of == 0 and "units" in place.array.attributes:
        return str(place.array.attributes["units"])
    beside = request.start is None and "position" not in request.start_parts
    for name in ("start/position", "start_position") if beside else ():
        stored = place.find(name)
        if stored is not None and "units" in stored.attributes:
            return str(stored.attributes["units"])
    found = place.attribute("position_units")
    if found is None:
        derived = derived_unit(place.array.attributes.get("units"))
        return derived[0] if derived and derived[1] == mode.derivatives_of else None
    return str(found[1])


def _dt_value(inputs: Inputs) -> float | str:
    if inputs.dt is not None and inputs.dt.ndim == 0:
        return float(inputs.dt)
    return "varies"
