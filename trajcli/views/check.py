"""Does a file hold? What was checked, what was found, and where it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trajcli.errors import InputError
from trajcli.files.blocks import Array, Block, Progress
from trajcli.files.limits import Limits, read_limits
from trajcli.files.opening import Files
from trajcli.files.reader import read_sources
from trajcli.files.schema import QUANTITIES, RECORDED_START
from trajcli.files.selection import select
from trajcli.files.time import Time
from trajcli.modes import MODES
from trajcli.scores import with_derivatives
from trajcli.units import in_si, of_order, unit_of_dof
from trajcli.views.findings import Finding, dof_facts, dof_text, failed, worst_text
from trajcli.views.row_checks import (
    StartCheck,
    StartRows,
    TimeCheck,
    velocities_finding,
)
from trajcli.views.statistics import Statistics, quantity_bounds
from trajcli.views.terminal import Table
from trajcli.views.trajectories import Batch, batches, same_trajectories

if TYPE_CHECKING:
    from rich.console import RenderableType

_BANDS = ("central", "bspline")
"""Modes whose row 0 is a row of the curve with convention curobo, not a copy of the start."""
_WORDS = {True: "ok", False: "FAILS", None: "-"}
StartOf = Callable[[], StartRows | str]
"""The states that row 0 of an output must equal, or why they are not known."""


def check_source(
    files: Files,
    source: str,
    start_of: StartOf,
    limits: Path | None = None,
    episodes: str | None = None,
    velocity_of: str | None = None,
    time: Time | None = None,
    on_progress: Progress = lambda done, total: None,
) -> list[Finding]:
    """All checks of the trajectories that a source names; time: in place of what the file says.

    Raises InputError where the file or the limits cannot be read, or there are no trajectories.
    """
    tables = None if limits is None else read_limits(limits, files.sources)
    findings: list[Finding] = []
    every = batches(read_sources(files, [source]))
    for batch in every:
        batch.use_time(time)
        numbers = select(episodes, batch.count)
        held = None
        if tables is not None:
            named = "position" if velocity_of is None else "velocity"
            held = HeldLimits.of(batch, tables, named, every)
        findings += _check_batch(batch, numbers, held, start_of, on_progress)
        if velocity_of is not None:
            findings.append(velocities_finding(files, batch, numbers, velocity_of))
    return findings


def _check_batch(
    batch: Batch,
    numbers: Sequence[int],
    limits: HeldLimits | None,
    start_of: StartOf,
    on_progress: Progress,
) -> Iterator[Finding]:
    first, count = batch.first, len(numbers)
    attributes = first.file.attributes()
    arrays = {name: Statistics(first.shape[2]) for name in first.arrays}
    if limits is not None:
        arrays |= limits.stored
    stated = str(attributes.get("mode", "")) in MODES
    start = StartCheck(_no_start(attributes) or start_of() if stated else "")
    times = TimeCheck(attributes)
    for block in batch.blocks(numbers, on_progress):
        values = {name: block.read(name) for name in arrays}
        times.add(block)
        for name, statistics in arrays.items():
            statistics.add(values[name], block)
        if limits is not None:
            limits.add(values, block)
        start.add(block, values)
    for name, of in arrays.items():
        if not of.nonfinite:
            yield Finding("finite", batch.label(name), True, "no NaN or Inf", count)
            continue
        text, facts = f"{of.nan} NaN, {of.inf} Inf", {"nan": of.nan, "inf": of.inf}
        yield failed("finite", batch, name, of.nonfinite, text, count, **facts)
    if (time := times.finding(batch, count)) is not None:
        yield time
    if stated:
        yield start.finding(batch)
    if limits is not None:
        yield from limits.findings(count)


def _no_start(attributes: Mapping[str, Any]) -> str:
    """Why row 0 of an output is no start state; empty where it is."""
    if str(attributes.get("start")) == RECORDED_START:
        return "a recording has no start state"
    frames, convention = str(attributes.get("frames")), str(attributes.get("convention"))
    curobo = convention == "curobo" and str(attributes["mode"]) in _BANDS
    return "row 0 is not the start" if frames == "actions" or curobo else ""


@dataclass(frozen=True)
class HeldLimits:
    """Limits that are held against the arrays of a batch, and against differences of its positions.

    stored: by array. quantities: of these, and of all other arrays. derived: by quantity that no
    array holds, of the differences of ``positions``. missing: by quantity, why nothing is held
    against its limits. notes: on how arrays were read.
    """

    batch: Batch
    limits: Limits
    quantities: Mapping[str, str]
    positions: str
    stored: Mapping[str, Statistics]
    derived: Mapping[str, Statistics]
    missing: Mapping[str, str]
    notes: Sequence[str]

    @classmethod
    def of(cls, batch: Batch, limits: Limits, named: str, every: Sequence[Batch]) -> HeldLimits:
        """named: what an array that SOURCE names is where nothing else says it. every: all batches
        of the source, of which one may hold what another one of the same trajectories lacks."""
        arrays, units, notes = batch.quantities(named)
        bounds, dofs = quantity_bounds(batch, limits, units), batch.first.shape[2]
        quantities = {name: batch.quantity(name) for name in batch.first.arrays}
        quantities |= {name: quantity for quantity, name in arrays.items()}
        lacking = set(bounds) - set(arrays)
        lacking -= _held_beside(batch, arrays, every, named) if lacking else set()
        positions, why = arrays.get("position", ""), {}
        if not positions:
            why = dict.fromkeys(
                lacking, "and no positions to differentiate; FILE:DATASET names them"
            )
        elif _without_time(batch):
            text = f"and no time step to differentiate {positions} with; --dt SECONDS says it"
            why = dict.fromkeys(lacking, text)
        return cls(
            batch,
            limits,
            quantities,
            positions,
            {n: Statistics(dofs, bounds[q]) for n, q in quantities.items() if q in bounds},
            {q: Statistics(dofs, bounds[q]) for q in bounds if q in lacking and q not in why},
            {q: f"not checked: no {q}, {why[q]}" for q in bounds if q in why},
            notes,
        )

    def add(self, values: Mapping[str, Array], block: Block) -> None:
        """Holds a block, whose arrays are values [b, T, D] by name, against what is derived."""
        if not self.derived:
            return
        position, times = values[self.positions], block.known_times()
        if times is None:
            found = {name: np.full(position.shape, np.nan) for name in self.derived}
        else:
            good = np.all(np.diff(times) > 0, axis=1)
            wanted = set(self.derived)
            found = with_derivatives({"position": position}, times, block.step, good, wanted)
        for name, statistics in self.derived.items():
            statistics.add(found[name], block)

    def findings(self, count: int) -> Iterator[Finding]:
        """What was found of so many trajectories."""
        batch = self.batch
        for quantity, text in self.missing.items():
            yield Finding(f"{quantity} limits", batch.label(), False, text, count)
        for name, seen in self.stored.items():
            check, quantity = f"{name} limits", self.quantities[name]
            if quantity != batch.quantity(name):  # which notes say
                check = f"{quantity} limits"
            finding = _limit(batch, check, name, seen, quantity, count)
            yield self._with_remarks(finding, quantity, name, self.notes)
        for quantity, seen in self.derived.items():
            finding = _limit(batch, f"{quantity} limits", self.positions, seen, quantity, count)
            facts = {**finding.facts, "derived_from": batch.label(self.positions)}
            how = [f"central differences of {self.positions}", *self.notes]
            finding = replace(finding, facts=facts)
            yield self._with_remarks(finding, quantity, self.positions, how)

    def _with_remarks(
        self, finding: Finding, quantity: str, name: str, how: Sequence[str]
    ) -> Finding:
        first = self.batch.first
        known, order = first.units.get(name), QUANTITIES.index(quantity)
        converted = None if known is None else of_order(known, order)
        remarks = self.limits.remarks(quantity, self.batch.dofs, converted, first.dofs)
        return replace(finding, text="; ".join([finding.text, *how, *remarks]))


def _held_beside(
    batch: Batch, arrays: Mapping[str, str], every: Sequence[Batch], named: str
) -> set[str]:
    """The quantities that are held against limits in other batches of the same trajectories.

    What has no positions (actions) need not have what lies beside them, nor is what it says (their
    jerk) derived from them.
    """
    beside = [one.quantities(named)[0] for one in every if same_trajectories(batch, one)]
    if "position" in arrays:
        beside = [others for others in beside if "position" not in others]
    elif any("position" in others for others in beside):
        return set(QUANTITIES)
    return {quantity for others in beside for quantity in others}


def _without_time(batch: Batch) -> bool:
    """Whether nothing says the times; the check of the times reports those that are wrong."""
    try:
        return any(one.time is None for one in batch.sets)
    except InputError:
        return False


def _limit(
    batch: Batch, check: str, name: str, seen: Statistics, quantity: str, count: int
) -> Finding:
    """Whether an array keeps its limits; what could not be held against them fails, too."""
    bounds, used, label = seen.bounds, seen.used(), batch.label(name)
    assert bounds is not None
    facts: dict[str, Any] = {"quantity": quantity}
    absent = f"not checked at {seen.nan + seen.inf} values that are NaN or Inf"
    if not seen.outside and seen.nonfinite:
        return failed(check, batch, name, seen.nonfinite, absent, count, **facts)
    if not seen.known:
        return Finding(check, label, False, "not checked: there are no rows", count, facts=facts)
    if not seen.outside:
        text = "within limits" + ("" if used is None else f", peak {100 * used:.1f} %")
        return Finding(check, label, True, text, count, facts=facts | {"used": used})
    units, order, limited = batch.first.units.get(name), QUANTITIES.index(quantity), []
    for dof, worst in sorted(seen.worst.items()):
        limit = float((bounds.upper if worst.value > bounds.upper[dof] else bounds.lower)[dof])
        unit = "" if units is None else unit_of_dof(in_si(of_order(units, order)), dof)
        text = f"{worst.value:.6g}, limit {limit:.6g} {unit}".rstrip()
        known = {"limit": limit, "failing_values": int(seen.beyond[dof])}
        limited.append((worst, text, dof_facts(batch, dof, worst) | known))
    worst, text, of_worst = max(limited, key=lambda one: one[0].excess)
    facts |= {"value": worst.value, "limit": of_worst["limit"], "per_dof": seen.beyond.tolist()}
    facts["dofs"] = [about for *_, about in limited]
    text += f"; {absent}" * bool(seen.nonfinite)
    finding = failed(check, batch, name, seen.outside, text, count, **facts)
    places = [dof_text(batch, dof) for dof in sorted(seen.worst)]
    lines = [
        f"{place}: {text}, {worst_text(batch, worst)}"
        for place, (worst, text, _) in zip(places, limited, strict=True)
    ]
    return replace(finding, details=lines)


def report(name: str, findings: Sequence[Finding], verbose: bool) -> Iterator[RenderableType]:
    """A table of the checks and their sum; verbose: every trajectory that fails."""
    from rich.text import Text

    failed = [finding for finding in findings if finding.passed is False]
    columns = ["check", "dataset", "", "found", *(["> failing", "worst"] if failed else [])]
    rows = []
    for one in findings:
        many = f" in {len(one.failures)} of {one.trajectories}" if one.trajectories > 1 else ""
        failing = [f"{one.count}{many}" if one.passed is False and one.count else "", one.where]
        row = [one.check, one.dataset, _WORDS[one.passed], one.text, *failing]
        rows.append(row[: len(columns)])
    yield Table(columns, rows)
    for finding in (finding for finding in failed if finding.details):
        yield Text(f"\n{finding.check}, {finding.dataset}", "bold")
        yield Text("\n".join(f"  {line}" for line in finding.details))
    for finding in (finding for finding in failed if verbose and finding.failures):
        yield Text(f"\n{finding.check}, {finding.dataset}", "bold")
        yield Text("\n".join(f"  {where}" for where in finding.failures))
    made = sum(finding.passed is not None for finding in findings)
    checks = "check" if made == 1 else "checks"
    if failed:
        yield Text(f"\n{name}: {len(failed)} of {made} {checks} failed", "bold red")
        if not verbose and any(len(finding.failures) > 1 for finding in failed):
            yield Text("-v lists every trajectory that fails")
    else:
        omitted = len(findings) - made
        more = f", {omitted} could not be made" if omitted else ""
        yield Text(f"\n{name}: {made} {checks} passed{more}")
