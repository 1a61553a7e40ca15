"""What a request means: which data, which steps, what will be written, where it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trajcli import __version__
from trajcli.errors import Fault, Gathering, UsageError
from trajcli.files.arrays import StoredArray
from trajcli.files.placing import refuse_input, refuse_output
from trajcli.files.schema import QUANTITIES, Schema, packed_schema
from trajcli.inputs import Inputs
from trajcli.jobs.batch import Batch, Size
from trajcli.jobs.found import Found, find
from trajcli.jobs.gradient import Gradient, find_gradient, gradient_faults, with_defaults
from trajcli.jobs.lookup import Files, Place, find_actions, joint_names
from trajcli.jobs.names import without_folders
from trajcli.jobs.request import Request
from trajcli.kernels.choose import Choice, choose
from trajcli.modes import PARTS, Mode, make_mode
from trajcli.modes.central import Central
from trajcli.modes.stretch import PIECE
from trajcli.trajectory import DTYPES, output_dtype

_BYTES_PER_ELEMENT = {"native": 96, "torch": 512}
"""Working memory for each action: a block in, four out, and two blocks at once; torch keeps some
60 float64 on the way."""
_BLOCK_ELEMENTS = {"native": 1 << 20, "torch": 1 << 17}
"""More gains nothing, or leaves the processor's caches and runs slower."""
_BYTES_PER_ROW = 64
"""For each row of a trajectory, whatever its dofs: where its window is, its time."""
_BYTES_PER_STEP = 192
"""For each row where steps differ: the step, its bounds and the sum that is its time."""
_BYTES_PER_STENCIL = 3072
"""For each row with weights of its own, while they are made."""


@dataclass(frozen=True)
class Plan:
    """A job ready to run: its inputs (not yet read), its schema and everything said about it."""

    batch: Batch
    inputs: Inputs
    schema: Schema
    choice: Choice
    wanted: Sequence[str]
    dtype: str
    gradient: Gradient | None
    size: Size
    dt_source: str
    start_source: str
    notes: Sequence[str]

    def describe(self) -> dict[str, Any]:
        """The plan as plain values, for people and JSON."""
        batch, horizon, dofs = self.batch.shape
        mode = self.inputs.mode
        return {
            "source": self.batch.name,
            "mode": mode.name,
            "options": mode.options(self.inputs.recorded),
            "shape": {"trajectories": batch, "horizon": horizon, "dofs": dofs},
            "rows": mode.rows(horizon, self.inputs.recorded),
            "dt": _dt_value(self.inputs),
            "dt_source": self.dt_source,
            "start": self.start_source,
            "dtype": self.dtype,
            "write": list(self.wanted),
            "device": self.choice.device,
            "backend": self.choice.backend,
            "device_reason": self.choice.reason,
            "bytes_read": self.batch.nbytes,
            "bytes_written": self.schema.nbytes,
            "block": {"trajectories": self.size.trajectories, "rows": self.size.rows},
            "notes": list(self.notes),
        }


def make_plan(request: Request, files: Files) -> Plan:
    """Look everything up and check it; nothing is computed and nothing written.

    Raises every fault that can be found without reading all values.
    """
    check = Gathering()
    mode = check.attempt(lambda: make_mode(request.mode, **request.options))
    wanted = check.attempt(lambda: _wanted(request.write))
    choice = check.attempt(lambda: choose(request.device, request.backend))
    check.attempt(lambda: _require_choice("--dtype", request.dtype or "float64", DTYPES))
    check.attempt(
        lambda: _require_choice("--repeated-times", request.repeated_times, ("error", "drop"))
    )
    gradient = check.attempt(lambda: find_gradient(request, files))
    check.attempt(lambda: refuse_output(request.out, request.overwrite))
    places = check.attempt(lambda: find_actions(files, request.sources))
    found = check.attempt(lambda: find(request, files, places, check)) if places else None
    check.attempt(lambda: refuse_input(request.out, files.paths()))
    if found is None or mode is None or wanted is None or choice is None or places is None:
        check.raise_if_any()
        raise AssertionError("a step failed without a fault")
    inputs = found.inputs(mode)
    check.faults += inputs.faults()
    if gradient is not None and not check.faults:
        gradient = with_defaults(gradient, inputs)
        check.faults += gradient_faults(gradient, inputs)
    check.raise_if_any()
    batch = found.batch
    dtype = request.dtype or output_dtype(batch)
    kind = "torch" if gradient is not None else choice.backend
    size = _size(inputs, kind, request.memory, gradient is not None)
    needed = 0 if gradient is None else inputs.rows * batch.shape[2] * _BYTES_PER_ELEMENT[kind]
    return Plan(
        batch=batch,
        inputs=inputs,
        schema=_schema(request, inputs, wanted, dtype, found, places[0], gradient, files.paths()),
        gradient=gradient,
        choice=choice,
        wanted=wanted,
        dtype=dtype,
        size=size,
        dt_source=found.dt_source,
        start_source=found.start_source,
        notes=[
            *found.notes,
            *_notes(batch, dtype, needed, request.memory),
        ],
    )


def _size(inputs: Inputs, kind: str, memory: int, whole: bool) -> Size:
    """How much is done at once within so much working memory; ``whole``: trajectories are not cut.

    Trajectories that fit go together; of one that does not, some rows.
    """
    batch, horizon, dofs = inputs.actions.shape
    rows = max(horizon, inputs.rows)
    steps: Any = inputs.dt if inputs.times is None else inputs.times
    per_step = int(steps.ndim > 0 and steps.shape[-1] > 1)
    alone = _BYTES_PER_ROW + per_step * _BYTES_PER_STEP  # for each row, beside its dofs
    if isinstance(inputs.mode, Central):
        alone += per_step * _BYTES_PER_STENCIL
    own = steps.ndim == 2 and steps.shape[0] > 1  # else shared by the trajectories of a block
    each = _BYTES_PER_ELEMENT[kind]
    budget = min(_BLOCK_ELEMENTS[kind] * each, memory)
    per_row = dofs * each + (alone if own else 0)
    together = (budget - (0 if own else rows * alone)) // (rows * per_row)
    if together >= 1 or whole:
        return Size(max(1, min(together, max(batch, 1))), inputs.rows)
    lead = int(inputs.recorded or inputs.mode.lead(inputs.recorded))
    return Size(1, max(PIECE, budget // (dofs * each + alone)), lead)


def _notes(batch: Batch, dtype: str, needed: int, memory: int) -> list[str]:
    notes = [
        f"{part.where}: {part.dtype} converted to {dtype}"
        for part in batch.parts[:3]
        if part.dtype.kind in "iu" or part.dtype.itemsize == 2
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
        "source": without_folders("\n".join(part.where for part in found.batch.parts), paths),
        "start": without_folders(found.start_source, paths),
        "trajcli_version": __version__,
    }
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
        units=request.units or _units(place, inputs.mode),
        more=gradient.variables(inputs, dtype) if gradient is not None else (),
    )


def _indices(stored: Any) -> Any:
    return stored.read_rows if isinstance(stored, StoredArray) else stored


def _units(place: Place, mode: Mode) -> str | None:
    """Units that the file gives for its positions, which the actions of some modes are."""
    if mode.derivatives_of == 0 and "units" in place.array.attributes:
        return str(place.array.attributes["units"])
    for name in ("start/position", "start_position"):
        stored = place.find(name)
        if stored is not None and "units" in stored.attributes:
            return str(stored.attributes["units"])
    found = place.attribute("position_units")
    return str(found[1]) if found else None


def _dt_value(inputs: Inputs) -> float | str:
    if inputs.dt is not None and inputs.dt.ndim == 0:
        return float(inputs.dt)
    return "varies"
