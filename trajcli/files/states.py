"""Start and goal states of trajectories, and which of them each trajectory uses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trajcli.arrays import index_shape_faults, state_count_fault
from trajcli.errors import Fault, InputError, raise_if_any
from trajcli.files.catalogue import Dataset, Values, in_memory, rows_by_number, stacked
from trajcli.files.source import Place, first_and_more
from trajcli.memory import EAGER_BYTES

_MOST_FAULTS = 5


def parse_floats(text: str) -> list[float] | None:
    """Parses ``0,0.1,-2`` into [0.0, 0.1, -2.0]; returns None unless all are finite numbers."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        return None
    return values if all(map(math.isfinite, values)) else None


@dataclass(frozen=True)
class States:
    """Start or goal states of trajectories.

    Attributes:
        parts: states [S, D] by name, "position" to "jerk".
        names: where each part is from, for messages.
        sources: where the states of each input are from.
        index: which state each trajectory uses [B]; without it S is B, or 1 for all.
    """

    parts: Mapping[str, Values]
    names: Mapping[str, str]
    sources: Sequence[Place]
    index: Values | None = None

    @property
    def source(self) -> Place:
        """The first source of the states, and how many others there are."""
        return first_and_more(self.sources)

    def take(self, numbers: Any) -> States:
        """Returns the states of the trajectories with these numbers [n]."""
        if self.index is not None:
            return replace(self, index=rows_by_number(self.index, numbers))
        # a state that all trajectories share has no rows to choose from
        parts = {
            part: values if values.shape[0] == 1 else rows_by_number(values, numbers)
            for part, values in self.parts.items()
        }
        return replace(self, parts=parts)

    def in_memory(self, numbers: Any) -> dict[str, Any]:
        """Returns the states [n, D] of these trajectories in memory, or [1, D] if they share one.

        Raises InputError for an index beyond the states.
        """
        chosen = self.take(numbers)
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
        """Returns the faults of states that do not fit so many trajectories."""
        if self.index is not None:
            return index_shape_faults(self.names[f"{role}_index"], count, self.index)
        return [
            state_count_fault(role, self.names[f"{role}/{part}"], count, values.shape)
            for part, values in self.parts.items()
            if values.shape[0] not in (1, count)
        ]

    def with_index(self, role: str, index: Dataset) -> States:
        """Returns the states with an index that says which each trajectory uses."""
        values = index if index.nbytes > EAGER_BYTES else index.read()
        return replace(self, index=values, names={**self.names, f"{role}_index": str(index.where)})


NO_STATE = States({}, {}, [Place(remark="none")])


def joined_states(role: str, states: Sequence[States], batches: Sequence[int]) -> States:
    """Returns the states of several groups, which have so many trajectories each, as one.

    Raises InputError if some groups lack what others have.
    """
    first = states[0]
    if all(state is first for state in states):
        return first
    indexed = next((state for state in states if state.index is not None), None)
    if indexed is not None:
        what = "several inputs, of which some have an index of states"
        raise InputError(what, where=indexed.source, hint="run them one at a time")
    # a part that some inputs lack would silently be zero there
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
        part: loaded(stacked([_repeated(state.parts[part], batch) for state, batch in pairs]))
        for part in first.parts
    }
    names = {f"{role}/{part}": f"{role} {part} of the inputs" for part in parts}
    sources = list(dict.fromkeys(source for state in states for source in state.sources))
    return States(parts, names, sources)


def _repeated(values: Values, batch: int) -> Values:
    """Returns states [1 or batch, D] as one for each trajectory."""
    if values.shape[0] == batch:
        return values
    return np.broadcast_to(in_memory(values), (batch, values.shape[1]))


def loaded(stored: Values) -> Values:
    """Returns states in memory, unless they are as large as actions may be."""
    # one for each trajectory may be as large as the actions
    large = len(stored.shape) > 1 and stored.nbytes > EAGER_BYTES
    return stored if large else np.atleast_2d(in_memory(stored))
