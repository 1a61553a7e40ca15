"""What checks find, in words and for JSON; the checks of start rows and times, block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trajcli.errors import InputError
from trajcli.files.blocks import Array, Block, shared
from trajcli.files.schema import QUANTITIES
from trajcli.files.time import Time, positive
from trajcli.views.statistics import Failure, failures
from trajcli.views.trajectories import Batch

StartRows = Callable[[Array, Sequence[str]], Mapping[str, Array]]
"""The start states by part, [b, D] or [1, D], of trajectories by number [b], and by the names of
their groups where each has one; parts that are absent are 0."""
_LISTED = 5
"""Rows that are shown of a trajectory whose times are wrong."""


@dataclass(frozen=True)
class Finding:
    """One check of one array: passed, failed, or (None) not made, and why.

    trajectories: how many were looked at. count: the values that fail, the worst of them at
    ``where``. failures: every trajectory that fails, in words. facts: more for JSON. details: more
    lines for people.
    """

    check: str
    dataset: str
    passed: bool | None
    text: str
    trajectories: int = 0
    where: str = ""
    count: int = 0
    failures: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    details: Sequence[str] = ()

    def as_dict(self, verbose: bool = False) -> dict[str, Any]:
        """Returns the finding for JSON; verbose: with every trajectory that fails."""
        facts = {**self.facts, **({"failures": list(self.failures)} if verbose else {})}
        return {
            "check": self.check,
            "dataset": self.dataset,
            "passed": self.passed,
            "text": self.text,
            "trajectories": self.trajectories,
            "failing_trajectories": len(self.failures),
            "failing_values": self.count,
            "where": self.where or None,
            **facts,
        }


def failed(
    check: str,
    batch: Batch,
    name: str,
    failures: Sequence[Failure],
    text: str,
    count: int,
    **facts: Any,
) -> Finding:
    """Returns a check that failed: where the worst is, and every trajectory that fails."""
    worst = max(failures, key=lambda failure: failure.excess)
    places = []
    for failure in failures:
        words = [f"row {failure.row}", batch.dof_text(failure.dof)]
        words += [] if failure.time is None else [seconds_text(failure.time)]
        places.append(batch.trajectory_text(failure.trajectory) + ", ".join(words))
    dof = batch.first.dofs.numbers[worst.dof]
    facts["at"] = {"trajectory": worst.trajectory, "row": worst.row, "dof": dof}
    facts["at"] |= {} if worst.time is None else {"time": worst.time}
    values = sum(failure.count for failure in failures)
    label, where = batch.label(name or worst.dataset), places[failures.index(worst)]
    return Finding(check, label, False, text, count, where, values, places, facts)


def seconds_text(time: float) -> str:
    """Returns a time in words, as inspect has it: 0.400 s."""
    return f"{time:.3f} s"


def recompute_finding(
    name: str, values: int, differing: int, beyond: int, excess: float, at: Sequence[int]
) -> Finding:
    """Returns what computing a variable again gave: how many values differ, and beyond rounding."""
    if beyond:
        place = dict(zip(("trajectory", "row", "dof"), at, strict=False))
        where = ", ".join(f"{axis} {i}" for axis, i in place.items())
        text = f"{beyond} of {values} values are not what the recorded command gives"
        facts = {"at": place, "times_rounding": excess}
        return Finding("recompute", name, False, text, 0, where, beyond, facts=facts)
    text = f"{differing} of {values} values differ by rounding" if differing else "equal to the bit"
    return Finding("recompute", name, True, text, facts={"exact": not differing})


@dataclass
class StartCheck:
    """Compares row 0 with the start states, to the rounding of the stored type."""

    start: StartRows | str
    failures: list[Failure] = field(default_factory=list)
    compared: int = 0

    def add(self, block: Block, values: Mapping[str, Array]) -> None:
        """Compares the first rows of a block, values [b, T, D] by name."""
        if isinstance(self.start, str) or not block.rows:
            return
        states = self.start(block.numbers, [one.group for one, *_ in block.parts if one.single])
        self.compared += len(block.numbers)
        for name in (name for name in QUANTITIES if name in values):
            rows = values[name][:, :1]
            state = block.parts[0][0].pick(states.get(name, np.zeros((1, 1))))
            state = np.asarray(state, np.float64)[:, None]
            off = np.abs(rows.astype(np.float64) - state)
            off[np.isnan(off)] = np.inf
            kind = block.parts[0][0].arrays[name].precision
            wrong = ~(off <= np.spacing(np.abs(state).astype(kind)))
            self.failures += failures(wrong, off, rows, block, name)

    def finding(self, batch: Batch) -> Finding:
        """Returns whether row 0 equals the start state, or why that is not known."""
        label = batch.label()
        if isinstance(self.start, str) or not self.compared:
            reason = self.start if isinstance(self.start, str) else "there are no rows"
            return Finding("start row", label, None, f"not checked: {reason}")
        if not self.failures:
            return Finding("start row", label, True, "equals the start state", self.compared)
        worst = max(self.failures, key=lambda failure: failure.excess).excess
        text = f"off by {worst:.3g}" if np.isfinite(worst) else "not finite"
        return failed("start row", batch, "", self.failures, text, self.compared)


@dataclass(frozen=True)
class BadTimes:
    """What is wrong with the times of a trajectory, and in which rows, or in which dataset."""

    trajectory: int
    what: str
    where: str = ""
    rows: Sequence[tuple[int, float]] = ()

    def places(self, batch: Batch, most: int | None = None) -> str:
        """Returns the dataset, or the rows and their times, of many the first."""
        texts = [f"row {row} ({seconds_text(time)})" for row, time in self.rows[:most]]
        left = len(self.rows) - len(texts)
        rows = ", ".join(texts) + (f" and {left} more (-v)" if left else "")
        return batch.trajectory_text(self.trajectory) + (self.where or rows)


@dataclass
class TimeCheck:
    """Checks that time stamps increase; where the output states one dt, by that.

    where: the dataset, or what else says the time. steps: dt of the sets; None where it varies.
    """

    attributes: Mapping[str, Any]
    failures: list[BadTimes] = field(default_factory=list)
    where: str = ""
    steps: set[float | None] = field(default_factory=set)
    _checked: set[int] = field(default_factory=set)

    def add(self, block: Block) -> None:
        """Checks the times of a block; those that all trajectories of a set share, once."""
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
                self.failures.append(BadTimes(trajectories[begin], fault.what, fault.where))

    def _check(self, time: Time, trajectories: Mapping[int, int], rows: int) -> None:
        step = positive(self.attributes.get("dt")) if "mode" in self.attributes else None
        stated = step is None or time.uniform is not None
        if stated and not time.faults(min(trajectories), max(trajectories) + 1):
            return
        for k, number in trajectories.items():
            stamps = time.rows(k, k + 1, 0, rows)[0]
            gaps = np.diff(stamps)
            wrong, text = ~(gaps > 0), "not increasing"
            if step is not None and not wrong.any():
                slack = 2 * np.spacing(np.abs(stamps).max()) + 1e-12 * step
                wrong, text = ~(np.abs(gaps - step) <= slack), f"not in steps of dt = {step:g} s"
            if wrong.any():
                bad = np.flatnonzero(wrong) + 1
                pairs = list(zip(bad.tolist(), stamps[bad].tolist(), strict=True))
                self.failures.append(BadTimes(number, text, rows=pairs))
            if shared(time):
                return

    def findings(self, batch: Batch, count: int) -> Iterator[Finding]:
        """Returns whether the times of so many trajectories hold; nothing of a file without any."""
        if not (self.where or self.failures):
            return
        label = self.where.removeprefix(f"{batch.path}:").lstrip("/") or "time"
        if batch.first.group and label.startswith(batch.first.group):
            label = batch.pattern + label.removeprefix(batch.first.group)
        if self.failures:
            first = self.failures[0]
            texts = [f"{one.places(batch)}: {one.what}" for one in self.failures]
            where, many = first.places(batch, _LISTED), sum(len(f.rows) or 1 for f in self.failures)
            number = first.trajectory
            rows = [{"trajectory": number, "row": row, "time": time} for row, time in first.rows]
            facts: dict[str, Any] = {"rows": rows}
            yield Finding("time", label, False, first.what, count, where, many, texts, facts)
            return
        dt = next(iter(self.steps)) if len(self.steps) == 1 else None
        text = "increases" if dt is None else f"increases by dt = {dt:g} s"
        known = [step for step in self.steps if step is not None]
        if 1 < len(known) == len(self.steps):
            text += f", dt = {min(known):g} to {max(known):g} s"
        yield Finding("time", label, True, text, count, facts={"dt": dt})
