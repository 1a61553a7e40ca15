"""What a request means: which data, which steps, what will be written, where it runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from trajcli import __version__
from trajcli.errors import Fault, InputError, OutputError, UsageError, raise_if_any
from trajcli.files.outputs import output_family, refuse_output
from trajcli.files.schema import QUANTITIES, Schema, packed_schema
from trajcli.inputs import Inputs
from trajcli.jobs.batch import Batch
from trajcli.jobs.lookup import Files, Place, find_actions, find_dt, find_state, joint_names
from trajcli.jobs.request import Request
from trajcli.kernels.choose import Choice, choose
from trajcli.modes import PARTS, make_mode
from trajcli.trajectory import DTYPES, output_dtype

_BYTES_PER_ELEMENT = 512
"""Working memory of the kernels for each action: some 60 float64 at the most."""
_BLOCK_ELEMENTS = 1 << 17
"""More would leave the processor's caches and run slower."""


@dataclass(frozen=True)
class Plan:
    """A job ready to run: its inputs (not yet read), its schema and everything said about it."""

    batch: Batch
    inputs: Inputs
    schema: Schema
    choice: Choice
    wanted: Sequence[str]
    dtype: str
    block: int
    dt_source: str
    start_source: str
    notes: Sequence[str]

    def describe(self) -> dict[str, Any]:
        """The plan as plain values, for people and JSON."""
        batch, horizon, dofs = self.batch.shape
        mode = self.inputs.mode
        return {
            "source": _source_text(self.batch),
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
            "block_trajectories": self.block,
            "notes": list(self.notes),
        }


def make_plan(request: Request, files: Files) -> Plan:
    """Look everything up and check it; nothing is computed and nothing written.

    Raises every fault that can be found without reading all values.
    """
    mode = make_mode(request.mode, **request.options)
    wanted = _wanted(request.write)
    _require_choice("--dtype", request.dtype or "float64", DTYPES)
    _require_choice("--repeated-times", request.repeated_times, ("error", "drop"))
    refuse_output(request.out, request.overwrite)
    places = find_actions(files, request.sources)
    batch = Batch.of([place.array for place in places])
    recorded = request.start == "first" or (
        request.options.get("ends") == "recording" and not request.start
    )
    start, start_names, start_source = _start(request, files, places, recorded)
    goal, goal_names, _ = find_state(files, "goal", request.goal, request.goal_parts, places) if (
        _wants_goal(request)
    ) else ({}, {}, "")  # fmt: skip
    dt, times, dt_source, dt_names = find_dt(files, request.dt, request.rate, request.times, places)
    notes = []
    if request.repeated_times == "drop" and times is not None:
        batch, times, note = _without_repeats(batch, times, recorded)
        notes += [note] if note else []
    names = {"actions": _source_text(batch), **start_names, **goal_names, **dt_names}
    index, goal_index = _indices(request, files, places, names)
    inputs = Inputs(
        mode=mode,
        actions=batch,
        start=start,
        goal=goal,
        dt=dt,
        times=times,
        start_index=index,
        goal_index=goal_index,
        recorded=recorded,
        names=names,
    )
    _refuse_inputs_as_output(request.out, files.paths())
    raise_if_any(inputs.faults())
    dtype = request.dtype or output_dtype(batch)
    notes += [
        f"{part.where}: {part.dtype} converted to {dtype}"
        for part in batch.parts
        if part.dtype.kind in "iu" or part.dtype.itemsize == 2
    ][:3]
    elements = max(1, batch.shape[1] * batch.shape[2])
    budget = min(_BLOCK_ELEMENTS, request.memory // _BYTES_PER_ELEMENT)
    if elements * _BYTES_PER_ELEMENT > request.memory:
        notes.append(
            f"one trajectory takes about {elements * _BYTES_PER_ELEMENT >> 20} MiB of working "
            f"memory, more than --memory"
        )
    return Plan(
        batch=batch,
        inputs=inputs,
        schema=_schema(request, inputs, wanted, dtype, dt_source, start_source, places[0]),
        choice=choose(request.device, request.backend),
        wanted=wanted,
        dtype=dtype,
        block=max(1, budget // elements),
        dt_source=dt_source,
        start_source=start_source,
        notes=notes,
    )


def _start(
    request: Request, files: Files, places: Sequence[Place], recorded: bool
) -> tuple[dict[str, Any], dict[str, str], str]:
    if recorded:
        if request.start_parts:
            raise UsageError(
                Fault(
                    "a recording has no separate start state",
                    ", ".join(f"--start-{part}" for part in request.start_parts),
                    "none with --start first",
                )
            )
        return {}, {}, "the recording's first row"
    return find_state(files, "start", request.start, request.start_parts, places)


def _wants_goal(request: Request) -> bool:
    """A goal stored with the actions is used where the mode asks for one."""
    given = request.goal is not None or request.goal_parts
    return bool(given) or request.options.get("ends") == "goal"


def _wanted(write: Sequence[str]) -> list[str]:
    unknown = [name for name in write if name not in QUANTITIES]
    if unknown or not write:
        found = ", ".join(unknown) or "nothing"
        raise UsageError(Fault("unknown output", "--write", ", ".join(QUANTITIES), found))
    return [name for name in PARTS if name in write]


def _require_choice(option: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise UsageError(Fault("unknown value", option, " or ".join(choices), repr(value)))


def _indices(
    request: Request, files: Files, places: Sequence[Place], names: dict[str, str]
) -> tuple[Any, Any]:
    """Start and goal index, from the options or (start index) from beside the actions."""
    found: dict[str, Any] = {}
    for role, given in (("start_index", request.start_index), ("goal_index", request.goal_index)):
        stored = None
        if given is not None:
            stored = files.array(given)
        elif len(places) == 1 and (role == "start_index" or _wants_goal(request)):
            stored = places[0].find(role)
        if role == "start_index" and request.start == "first":
            stored = None
        if stored is not None:
            names[role] = stored.where
            found[role] = stored.read()
    return found.get("start_index"), found.get("goal_index")


def _without_repeats(batch: Batch, times: Any, recorded: bool) -> tuple[Batch, Any, str]:
    """Leave out rows whose stamp equals the one before; one set of stamps for all trajectories."""
    if not recorded:
        hint = "--start first reads the actions as a recording"
        what = "repeated stamps can be dropped from recordings only"
        raise UsageError(Fault(what, "--repeated-times drop", hint=hint))
    if times.ndim == 2 and times.shape[0] > 1:
        raise InputError(
            Fault(
                "trajectories would differ in length",
                "--repeated-times drop",
                "one set of time stamps [T] for all trajectories",
                f"stamps {list(times.shape)}",
                "run the trajectories one at a time",
            )
        )
    stamps = times.reshape(-1)
    if len(stamps) != batch.shape[1]:
        return batch, times, ""  # reported as a wrong number of stamps
    kept = np.flatnonzero(np.concatenate([[True], stamps[1:] != stamps[:-1]]))
    dropped = len(stamps) - len(kept)
    if not dropped:
        return batch, stamps, ""
    rows = "row" if dropped == 1 else "rows"
    return (
        replace(batch, kept=kept),
        stamps[kept],
        f"{dropped} {rows} with repeated stamps dropped",
    )


def _schema(
    request: Request,
    inputs: Inputs,
    wanted: Sequence[str],
    dtype: str,
    dt_source: str,
    start_source: str,
    place: Place,
) -> Schema:
    batch, horizon, dofs = inputs.actions.shape
    rows = inputs.mode.rows(horizon, inputs.recorded)
    steps: Any = inputs.dt if inputs.times is None else inputs.times
    shared = steps.ndim < 2 or steps.shape[0] == 1
    attributes = {
        "mode": inputs.mode.name,
        **inputs.mode.options(inputs.recorded),
        "dt": _dt_value(inputs),
        "dt_source": _without_folders(dt_source),
        "source": _without_folders(_source_text(inputs.actions)),
        "start": _without_folders(start_source),
        "trajcli_version": __version__,
    }
    return packed_schema(
        batch,
        rows,
        dofs,
        wanted=wanted,
        dtype=dtype,
        time=inputs.row_times()[0] if shared else None,
        attributes=attributes,
        start_index=inputs.start_index,
        joint_names=joint_names(place),
        units=request.units or _units(place),
    )


def _units(place: Place) -> str | None:
    """Units that the file gives for its positions."""
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


def _source_text(batch: Batch) -> str:
    first = batch.parts[0].where
    return first if len(batch.parts) == 1 else f"{first} and {len(batch.parts) - 1} more"


def _without_folders(text: str) -> str:
    """The same words with file names for paths: an output must not depend on where files lie."""
    return " ".join(
        os.path.basename(word.split(":/")[0]) + word[len(word.split(":/")[0]) :]
        for word in text.split(" ")
    )


def _refuse_inputs_as_output(out: Path, inputs: Sequence[str]) -> None:
    """OUT must not be, or hold, a file that is read."""
    for path in inputs:
        same = out.exists() and os.path.samefile(path, out)
        inside = output_family(out) == "npy" and Path(os.path.realpath(path)).is_relative_to(
            os.path.realpath(out)
        )
        if same or inside:
            hint = "choose another name for the output"
            raise OutputError(Fault("OUT is an input", str(out), "another file", path, hint))
