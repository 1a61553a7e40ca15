"""Start rows, states beside the trajectories, and times: checked block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trajcli.errors import InputError
from trajcli.files.arrays import Dataset
from trajcli.files.schema import QUANTITIES
from trajcli.files.time import Time, positive
from trajcli.files.trajectory_set import TrajectorySet
from trajcli.views.statistics import Failure, failures
from trajcli.views.trajectories import Array, Block, shared

StartRows = Callable[[Array, Sequence[str]], Mapping[str, Array]]
"""The start states by part, [b, D] or [1, D], of trajectories by number [b], and by the names of
their groups where each has one; parts that are absent are 0."""


@dataclass
class StartCheck:
    """Row 0 beside the start states, to the rounding of the stored type."""

    start: StartRows | str
    failures: list[Failure] = field(default_factory=list)
    compared: int = 0

    def add(self, block: Block, values: Mapping[str, Array]) -> None:
        """Compare the first rows of a block, values [b, T, D] by name."""
        if isinstance(self.start, str) or not block.rows:
            return
        states = self.start(block.numbers, [one.group for one, *_ in block.parts if one.single])
        self.compared += len(block.numbers)
        for name in (name for name in QUANTITIES if name in values):
            rows = values[name][:, :1]
            state = np.asarray(states.get(name, np.zeros((1, 1))), np.float64)[:, None]
            off = np.abs(rows.astype(np.float64) - state)
            off[np.isnan(off)] = np.inf
            wrong = ~(off <= np.spacing(np.abs(state).astype(rows.dtype)))
            self.failures += failures(wrong, off, rows, block, name)


def nonfinite_states(sets: Sequence[TrajectorySet]) -> Iterator[tuple[str, int, list[str]]]:
    """The start and goal states beside trajectories: their name, how many datasets, and where
    they are NaN or Inf."""
    for name in (f"{state}/{quantity}" for state in ("start", "goal") for quantity in QUANTITIES):
        stored: dict[str, Dataset] = {}
        for one in sets:
            with suppress(InputError):  # what is not numbers is no state
                beside = one.companion(name, name.replace("/", "_"))
                if beside is not None:
                    stored[beside.where] = beside
        bad = []
        for where, dataset in stored.items():
            values = np.asarray(dataset.read())
            places = np.argwhere(~np.isfinite(values)) if values.dtype.kind == "f" else ()
            bad += [f"{where}, entry {place.tolist()}" for place in places]
        if stored:
            where = next(iter(stored)).rpartition(":")[2].strip("/")
            yield where if len(stored) == 1 else name, len(stored), bad


@dataclass
class TimeCheck:
    """Time stamps must increase; where the output states one dt, by that.

    failures: trajectory, what is wrong, and where. where: the dataset, or what else says the
    time. steps: dt of the sets; None where it varies.
    """

    attributes: Mapping[str, Any]
    failures: list[tuple[int, str, str]] = field(default_factory=list)
    where: str = ""
    steps: set[float | None] = field(default_factory=set)
    _checked: set[int] = field(default_factory=set)

    def add(self, block: Block) -> None:
        """Check the times of a block; those that all trajectories of a set share, once."""
        numbers = iter(block.numbers.tolist())
        for one, begin, end in block.parts:
            trajectories = {k: next(numbers) for k in range(begin, end)}
            try:
                time = one.time
                if time is None or (shared(time) and id(one) in self._checked):
                    continue
                self._checked.add(id(one))
                self.where = self.where or time.where
                self.steps.add(time.uniform)
                self._check(time, trajectories, block.rows)
            except InputError as error:
                fault = error.faults[0]
                self.failures.append((trajectories[begin], fault.what, fault.where))

    def _check(self, time: Time, trajectories: Mapping[int, int], rows: int) -> None:
        step = positive(self.attributes.get("dt")) if "mode" in self.attributes else None
        stated = step is None or time.uniform is not None
        if stated and not time.faults(min(trajectories), max(trajectories) + 1):
            return
        for k, number in trajectories.items():
            stamps = time.rows(k, 0, rows)
            gaps = np.diff(stamps)
            wrong, text = ~(gaps > 0), "not increasing"
            if step is not None and not wrong.any():
                slack = 2 * np.spacing(np.abs(stamps).max()) + 1e-12 * step
                wrong, text = ~(np.abs(gaps - step) <= slack), f"not in steps of dt = {step:g} s"
            if wrong.any():
                self.failures.append((number, text, f"row {int(wrong.argmax()) + 1}"))
            if shared(time):
                return
