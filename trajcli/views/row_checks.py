"""Start rows, states beside the trajectories, times, and recorded velocities: block by block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from trajcli.checks import describe
from trajcli.errors import Fault, InputError
from trajcli.files.blocks import Array, Block, shared
from trajcli.files.opening import Files
from trajcli.files.reader import read_sources
from trajcli.files.schema import QUANTITIES
from trajcli.files.source import parse_source
from trajcli.files.time import Time, positive
from trajcli.modes.central import WINDOW
from trajcli.trajectory import differentiate
from trajcli.views.findings import (
    Failure,
    Finding,
    failed,
    failures,
    seconds_text,
    trajectory_text,
)
from trajcli.views.trajectories import Batch
from trajcli.views.velocity_fit import TOLERANCE, VelocityFit

StartRows = Callable[[Array, Sequence[str]], Mapping[str, Array]]
"""The start states by part, [b, D] or [1, D], of trajectories by number [b], and by the names of
their groups where each has one; parts that are absent are 0."""
_LISTED = 5
"""Rows that are shown of a trajectory whose times are wrong."""


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
            state = block.parts[0][0].pick(states.get(name, np.zeros((1, 1))))
            state = np.asarray(state, np.float64)[:, None]
            off = np.abs(rows.astype(np.float64) - state)
            off[np.isnan(off)] = np.inf
            kind = block.parts[0][0].arrays[name].precision
            wrong = ~(off <= np.spacing(np.abs(state).astype(kind)))
            self.failures += failures(wrong, off, rows, block, name)

    def finding(self, batch: Batch) -> Finding:
        """Whether row 0 equals the start state, or why that is not known."""
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
    """What is wrong with the times of a trajectory: in these rows, of these times; or else where.

    The times are in seconds as the file has them.
    """

    trajectory: int
    what: str
    where: str = ""
    rows: Sequence[int] = ()
    times: Sequence[float] = ()

    def places(self, most: int | None = None) -> str:
        """The place, or the rows and their times, of many the first."""
        pairs = list(zip(self.rows, self.times, strict=True))[:most]
        texts = [f"row {row} ({seconds_text(time)})" for row, time in pairs]
        more = (
            f" and {len(self.rows) - len(texts)} more (-v)" if len(texts) < len(self.rows) else ""
        )
        return self.where or ", ".join(texts) + more


@dataclass
class TimeCheck:
    """Time stamps must increase; where the output states one dt, by that.

    where: the dataset, or what else says the time. steps: dt of the sets; None where it varies.
    """

    attributes: Mapping[str, Any]
    failures: list[BadTimes] = field(default_factory=list)
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
                places = bad.tolist(), stamps[bad].tolist()
                self.failures.append(BadTimes(number, text, "", *places))
            if shared(time):
                return

    def finding(self, batch: Batch, count: int) -> Finding | None:
        """Whether the times hold; None of a file without any."""
        if not (self.where or self.failures):
            return None
        label = self.where.removeprefix(f"{batch.path}:").lstrip("/") or "time"
        if batch.first.group and label.startswith(batch.first.group):
            label = batch.pattern + label.removeprefix(batch.first.group)
        if self.failures:
            first, which = self.failures[0], partial(trajectory_text, batch)
            bad = [f"{which(one.trajectory)}{one.places()}: {one.what}" for one in self.failures]
            where = which(first.trajectory) + first.places(_LISTED)
            rows = sum(len(one.rows) or 1 for one in self.failures)
            places = zip(first.rows, first.times, strict=True)
            facts = {
                "rows": [
                    {"trajectory": first.trajectory, "row": row, "time": time}
                    for row, time in places
                ]
            }
            return Finding("time", label, False, first.what, count, where, rows, bad, facts)
        dt = next(iter(self.steps)) if len(self.steps) == 1 else None
        text = "increases" if dt is None else f"increases by dt = {dt:g} s"
        known = [step for step in self.steps if step is not None]
        if 1 < len(known) == len(self.steps):
            text += f", dt = {min(known):g} to {max(known):g} s"
        return Finding("time", label, True, text, count, facts={"dt": dt})


def velocities_finding(
    files: Files, batch: Batch, numbers: Sequence[int], positions: str
) -> Finding:
    """Velocities of trajectories beside the five-point differences of their positions.

    positions: DATASET of the same file, or FILE:DATASET. Facts: per dof [D] the RMS of what is
    between the two as a share of that of the differences, and the factor, delay and rate that fit
    best. Raises InputError where there are no such positions, or no time step.
    """
    name = positions if parse_source(positions).path.exists() else f"{batch.path}:{positions}"
    others = read_sources(files, [name])
    velocity, position = (
        name if name in one.arrays else next(iter(one.arrays))
        for name, one in (("velocity", batch.first), ("position", others[0]))
    )
    shapes = [[describe(one.shape) for one in sets] for sets in (batch.sets, others)]
    if shapes[0] != shapes[1]:
        listed = (f"{len(of)} × {', '.join(dict.fromkeys(of))}" for of in shapes)
        expected, actual = (text.removeprefix("1 × ") for text in listed)
        what = "positions and velocities of different shapes"
        raise InputError(Fault(what, name, f"{expected}, as the velocities", actual))
    if any(0 in one.shape for one in batch.sets):
        fault = Fault("nothing to compare", batch.path, "rows and dofs", "an empty array")
        raise InputError(fault)
    other_of = {id(one): other for one, other in zip(batch.sets, others, strict=True)}
    fit = VelocityFit(batch.first.shape[2], int(np.median(batch.lengths)))
    for velocities in batch.blocks(numbers):
        parts = [(other_of[id(one)], begin, end) for one, begin, end in velocities.parts]
        places = replace(velocities, parts=parts)
        times = velocities.times() if batch.first.time is not None else places.times()
        if times is None:
            hint = "a dataset or an attribute dt says it"
            raise InputError(Fault("no time step", batch.path, "dt or time stamps", hint=hint))
        if velocities.rows < 2:
            continue
        v = velocities.read(velocity).astype(np.float64)
        d: Any = differentiate(
            places.read(position),
            times=times,
            method="central" if velocities.rows >= WINDOW else "backward",
            write=("velocity",),
            dtype="float64",
            allow_nonfinite=True,
        ).velocity
        fit.add(v, d, times)
    errors = fit.errors()
    worst = int(errors.argmax())
    passed = bool(errors[worst] <= TOLERANCE)
    text = f"{100 * errors[worst]:.3g} % (RMS) off the derivative of {positions}"
    text += "" if passed else f"; {fit.text(worst)}"
    label, facts = batch.label(velocity), {"per_dof": errors.tolist(), **fit.facts()}
    return Finding(
        "velocity",
        label,
        passed,
        text,
        len(numbers),
        f"dof {batch.first.dofs.numbers[worst]}",
        facts=facts,
    )
