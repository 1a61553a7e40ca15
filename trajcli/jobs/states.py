"""Start and goal states, and which of them each trajectory uses: from an option or the input."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trajcli.checks import describe, index_shape_faults, state_count_fault
from trajcli.errors import Fault, InputError, UsageError, raise_if_any
from trajcli.files.arrays import ArrayFile, Dataset, in_memory
from trajcli.files.conversion import dataset_in_si, divided
from trajcli.files.opening import Files
from trajcli.files.schema import QUANTITIES, RECORDED_ROW
from trajcli.files.source import parse_source
from trajcli.files.time import EAGER_BYTES
from trajcli.files.trajectory_set import TrajectorySet
from trajcli.jobs.request import parse_floats
from trajcli.jobs.segments import (
    Values,
    first_and_more,
    rows_by_number,
    stacked,
)
from trajcli.units import per_si, unit_text

_MOST_FAULTS = 5


@dataclass(frozen=True)
class StateValues:
    """The parts of start or goal states [S, D] by name, and the index [B] that says which state
    each trajectory uses. Without an index S is B, or 1: shared by all.

    names: where each is from, for messages. sources: where the states of each input come from.
    """

    parts: Mapping[str, Values]
    names: Mapping[str, str]
    sources: Sequence[str]
    index: Values | None = None

    @property
    def source(self) -> str:
        """Where the states come from, in a word."""
        return first_and_more(self.sources)

    def of(self, numbers: Any) -> StateValues:
        """Those of the trajectories with these numbers [n]."""
        if self.index is not None:
            return replace(self, index=rows_by_number(self.index, numbers))
        parts = {
            part: values if values.shape[0] == 1 else rows_by_number(values, numbers)
            for part, values in self.parts.items()
        }
        return replace(self, parts=parts)

    def rows(self, numbers: Any) -> dict[str, Any]:
        """The states [n, D] of these trajectories in memory, or [1, D] where all share one.

        Raises InputError for an index of states that there are not.
        """
        chosen = self.of(numbers)
        parts = {part: in_memory(values) for part, values in chosen.parts.items()}
        if chosen.index is None:
            return parts
        index, count = in_memory(chosen.index), max(map(len, parts.values()))
        if not ((index >= 0) & (index < count)).all():
            raise InputError(
                "index out of range",
                where=f"index of the states {self.source}",
                expected=f"0 to {count - 1}",
            )
        return {part: rows[index] if len(rows) > 1 else rows for part, rows in parts.items()}

    def faults(self, role: str, count: int) -> list[Fault]:
        """What does not fit so many trajectories."""
        if self.index is not None:
            return index_shape_faults(self.names[f"{role}_index"], count, self.index)
        return [
            state_count_fault(role, self.names[f"{role}/{part}"], count, values.shape)
            for part, values in self.parts.items()
            if values.shape[0] not in (1, count)
        ]

    def with_index(self, role: str, index: Dataset) -> StateValues:
        """The same with an index."""
        values = index if index.nbytes > EAGER_BYTES else index.read()
        return replace(self, index=values, names={**self.names, f"{role}_index": index.where})


NO_STATE = StateValues({}, {}, ["none"])


def state_from_option(files: Files, role: str, text: str, one: TrajectorySet) -> StateValues:
    """The state that --start or --goal names: zero, numbers, FILE[:GROUP] or FILE:DATASET.

    It is of the dofs of a set, the first, and in its units where it states none. Raises UsageError
    for a word that is none of these, InputError for a file without states.
    """
    option, numbers = f"--{role}", parse_floats(text)
    if text == "zero" or numbers is not None:
        values = np.zeros(one.shape[2]) if numbers is None else np.array(numbers)
        state = _state(role, {"position": values}, text, one)
        return state if values.any() else replace(state, sources=[text])
    if not set(".:/") & set(text) and not os.path.exists(text):
        raise UsageError(
            "neither a value nor a file",
            where=option,
            expected="zero, numbers like 0,0.1, FILE[:GROUP] or FILE:DATASET",
            found=text,
            hint="trajcli differentiate takes recorded positions" if text == "first" else "",
        )
    source = parse_source(text)
    file = files.open(source.path)
    name = (source.dataset or "").strip("/")
    if file.family == "npy" or (name and file.get(name) is not None):
        state, group = _state(role, {"position": files.dataset(text)}, text, one), ""
        if file.family != "npy":
            group = name[: name.rfind("/") + 1]
        return _with_index_beside(state, role, file, group)
    prefixes = (f"{name}/", f"{name}_", f"{name}/{role}/", f"{name}/{role}_")
    for prefix in prefixes if name else (f"{role}/", f"{role}_", ""):
        parts = {part: file.get(prefix + part) for part in QUANTITIES}
        if parts["position"] is not None:
            numeric = {part: values and values.require_numeric() for part, values in parts.items()}
            return _with_index_beside(_state(role, numeric, text, one), role, file, prefix)
    raise InputError(file.missing(name or f"{role}/position"))


def _with_index_beside(state: StateValues, role: str, file: ArrayFile, prefix: str) -> StateValues:
    """The state with the index that lies beside it in its file, as goal_index beside goal/."""
    index = file.get(re.sub(f"(^|/){role}[/_]$", r"\1", prefix) + f"{role}_index")
    return state if index is None else state.with_index(role, index)


def stored_state(role: str, one: TrajectorySet) -> StateValues:
    """The state beside the trajectories of a set, and its index; else the one that a layout
    recorded."""
    position = one.companion(f"{role}/position", f"{role}_position")
    if position is None:
        return _recorded_state(one) if role == "start" else NO_STATE
    others = {part: one.companion(f"{role}/{part}", f"{role}_{part}") for part in QUANTITIES[1:]}
    source = position.where.removesuffix("/position")
    state = _state(role, {"position": position, **others}, source, one)
    index = one.companion(f"{role}_index")
    return state if index is None else state.with_index(role, index)


def _state(
    role: str, stored: Mapping[str, Values | None], source: str, one: TrajectorySet
) -> StateValues:
    """States [D] or [S, D], of the dofs of a set and in SI; of many for each trajectory the dataset
    itself. Raises InputError for another shape, or units of another kind than those of the set."""
    parts, names = dict[str, Values](), dict[str, str]()
    for part, values in stored.items():
        if values is None:
            continue
        names[f"{role}/{part}"] = where = getattr(values, "where", f"--{role}")
        if len(values.shape) not in (1, 2):
            raise InputError(
                "wrong number of dimensions",
                where=where,
                expected="[B, D] or [D]",
                found=describe(values.shape),
            )
        values = one.pick(values)
        count, dataset = values.shape[-1], values if isinstance(values, Dataset) else None
        units = one.state_units(part, dataset, count)
        if units is not None:
            by = per_si(units)
            if (by != 1.0).any():
                values = dataset_in_si(dataset, units) if dataset else divided(values, by)
                if part == "position":
                    source = f"{source}, in {unit_text(units)}"
        parts[part] = _loaded(values)
    return StateValues(parts, names, [source])


def _loaded(stored: Values) -> Values:
    large = len(stored.shape) > 1 and stored.nbytes > EAGER_BYTES
    return stored if large else np.atleast_2d(in_memory(stored))


def _recorded_state(one: TrajectorySet) -> StateValues:
    """Where a layout's trajectory began, of commands with as many dofs as were recorded."""
    if one.layout is None or one.member is None or not one.commands:
        return NO_STATE
    for pair in one.layout.start:
        first_rows: dict[str, Dataset] = {}
        for part, name in zip(("position", "velocity"), pair, strict=True):
            array = one.layout.array(one.member, [name])
            if array is None or one.pick(array).shape[1:] != one.shape[2:] or not array.shape[0]:
                break
            first_rows[part] = replace(array.require_numeric(), shape=(1, *array.shape[1:]))
        if first_rows:
            read = ", ".join(pair[: len(first_rows)])
            return _state("start", first_rows, f"{one.file.path}: {RECORDED_ROW} {read}", one)
    return NO_STATE


def joined_states(role: str, states: Sequence[StateValues], batches: Sequence[int]) -> StateValues:
    """The states of all sets as those of one, whose sets have so many trajectories.

    Raises InputError where some sets lack what others have.
    """
    first = states[0]
    if all(state is first for state in states):
        return first
    indexed = next((state for state in states if state.index is not None), None)
    if indexed is not None:
        what = "several inputs, of which some have an index of states"
        raise InputError(what, where=indexed.source, hint="run them one at a time")
    full = max(states, key=lambda state: len(state.parts))
    for state in states:
        missing = [part for part in full.parts if part not in state.parts]
        if missing:
            what = f"{role} {', '.join(missing)} in some of the inputs only"
            raise InputError(what, where=state.source, expected=f"as in {full.source}")
    pairs = list(zip(states, batches, strict=True))
    faults = [fault for state, batch in pairs for fault in state.faults(role, batch)]
    raise_if_any(faults[:_MOST_FAULTS])
    parts = {
        part: _loaded(stacked([_repeated(state.parts[part], batch) for state, batch in pairs]))
        for part in first.parts
    }
    names = {f"{role}/{part}": f"{role} {part} of the inputs" for part in parts}
    sources = list(dict.fromkeys(source for state in states for source in state.sources))
    return StateValues(parts, names, sources)


def _repeated(values: Values, batch: int) -> Values:
    """States [1 or batch, D] as one for each trajectory."""
    if values.shape[0] == batch:
        return values
    return np.broadcast_to(in_memory(values), (batch, values.shape[1]))
