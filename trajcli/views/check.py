"""Does a file hold? What was checked, what was found, and where it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trajcli.errors import InputError
from trajcli.files.blocks import Array, Block, Progress
from trajcli.files.limits import Limits, read_limits
from trajcli.files.opening import Files
from trajcli.files.schema import QUANTITIES, RECORDED_START
from trajcli.files.selection import select
from trajcli.modes import MODES
from trajcli.scores import with_derivatives
from trajcli.units import in_si, of_order, unit_of_dof
from trajcli.views.findings import Finding, StartCheck, StartRows, TimeCheck, failed, seconds_text
from trajcli.views.statistics import Failure, Statistics
from trajcli.views.terminal import Table
from trajcli.views.trajectories import Batch, read_batches
from trajcli.views.velocity import velocities_finding

if TYPE_CHECKING:
    from rich.console import RenderableType

_BANDS = ("central", "bspline")
"""Modes whose row 0 is a row of the curve with convention curobo, not a copy of the start."""
_WORDS = {True: "ok", False: "FAILS", None: "-"}
_SPANS = 3
"""Spans that are shown of each dof that fails."""


def check_source(
    files: Files,
    source: str,
    start_of: Callable[[], StartRows | str],
    limits: Path | None = None,
    episodes: str | None = None,
    velocity_of: str | None = None,
    on_progress: Progress = lambda done, total: None,
) -> list[Finding]:
    """Makes all checks of the trajectories that a source names.

    start_of: returns the states that row 0 of an output must equal, or why they are not known.
    Raises InputError where the file or the limits cannot be
    read, or there are no trajectories.
    """
    tables = None if limits is None else read_limits(limits, files.sources)
    findings: list[Finding] = []
    every = read_batches(files, [source])
    for batch in every:
        numbers = select(episodes, batch.count)
        named = "position" if velocity_of is None else "velocity"
        check = None if tables is None else LimitCheck(batch, tables, named, every)
        findings += _check_batch(batch, numbers, check, start_of, on_progress)
        if velocity_of is not None:
            findings.append(velocities_finding(files, batch, numbers, velocity_of))
    return findings


def _check_batch(
    batch: Batch,
    numbers: Sequence[int],
    limits: LimitCheck | None,
    start_of: Callable[[], StartRows | str],
    on_progress: Progress,
) -> Iterator[Finding]:
    count, attributes = len(numbers), batch.first.file.attributes()
    arrays = {name: Statistics(batch.first.shape[2]) for name in batch.first.arrays}
    if limits is not None:
        arrays |= limits.stored
    of_mode = str(attributes.get("mode", "")) in MODES
    start = StartCheck(_no_start(attributes) or start_of() if of_mode else "")
    times = TimeCheck(attributes)
    for block in batch.blocks(numbers, on_progress):
        values = {name: block.read(name) for name in arrays}
        times.add(block)
        for name, statistics in arrays.items():
            statistics.add(values[name], block)
        if limits is not None:
            limits.add(values, block)
        start.add(block, values)
    for name, statistics in arrays.items():
        if not statistics.nonfinite:
            yield Finding("finite", batch.label(name), True, "no NaN or Inf", count)
            continue
        facts = {"nan": statistics.nan, "inf": statistics.inf}
        text = f"{statistics.nan} NaN, {statistics.inf} Inf"
        yield failed("finite", batch, name, statistics.nonfinite, text, count, **facts)
    yield from times.findings(batch, count)
    if of_mode:
        yield start.finding(batch)
    if limits is not None:
        yield from limits.findings(count)


def _no_start(attributes: Mapping[str, Any]) -> str:
    """Returns why row 0 of an output is no start state; empty where it is."""
    if str(attributes.get("start")) == RECORDED_START:
        return "a recording has no start state"
    frames, convention = str(attributes.get("frames")), str(attributes.get("convention"))
    curobo = convention == "curobo" and str(attributes["mode"]) in _BANDS
    return "row 0 is not the start" if frames == "actions" or curobo else ""


class LimitCheck:
    """Limits, held against the arrays of a batch and against differences of its positions.

    stored: by array. derived: by quantity that no array holds, of the differences of
    ``positions``. missing: quantities whose limits are held against nothing, for a ``reason``.
    """

    def __init__(self, batch: Batch, limits: Limits, named: str, every: Sequence[Batch]) -> None:
        """named: what an array that SOURCE names is where nothing else says it. every: all batches
        of the source, of which one may hold what another one of the same trajectories lacks."""
        self.batch, self.limits, dofs = batch, limits, batch.first.shape[2]
        arrays, units, self.notes = batch.quantities(named)
        bounds = batch.bounds(limits, units)
        self.quantities = {name: batch.quantity(name) for name in batch.first.arrays}
        self.quantities |= {name: quantity for quantity, name in arrays.items()}
        self.positions, self.reason = arrays.get("position", ""), ""
        if not self.positions:
            self.reason = "and no positions to differentiate; FILE:DATASET names them"
        elif _without_time(batch):
            step = f"and no time step to differentiate {self.positions} with"
            self.reason = f"{step}; --dt SECONDS says it"
        lacking = [quantity for quantity in bounds if quantity not in arrays]
        if lacking:
            beside = _held_beside(batch, arrays, every, named)
            lacking = [quantity for quantity in lacking if quantity not in beside]
        self.missing = lacking if self.reason else []
        self.derived = {q: Statistics(dofs, bounds[q]) for q in lacking if not self.reason}
        self.stored = {
            name: Statistics(dofs, bounds[quantity])
            for name, quantity in self.quantities.items()
            if quantity in bounds
        }

    def add(self, values: Mapping[str, Array], block: Block) -> None:
        """Adds a block, whose arrays are values [b, T, D] by name, to what is derived."""
        if not self.derived:
            return
        position, times = values[self.positions], block.known_times()
        if times is None:
            parts = {name: np.full(position.shape, np.nan) for name in self.derived}
        else:
            good = np.all(np.diff(times) > 0, axis=1)
            needed = set(self.derived)
            parts = with_derivatives({"position": position}, times, block.step, good, needed)
        for name, statistics in self.derived.items():
            statistics.add(parts[name], block)

    def findings(self, count: int) -> Iterator[Finding]:
        """Returns what was found of so many trajectories."""
        for quantity in self.missing:
            text = f"not checked: no {quantity}, {self.reason}"
            yield Finding(f"{quantity} limits", self.batch.label(), False, text, count)
        for name, statistics in self.stored.items():
            quantity = self.quantities[name]
            # of a quantity that is read as another one, which notes say, that one
            title = name if quantity == self.batch.quantity(name) else quantity
            yield self._finding(title, name, quantity, statistics, count, self.notes)
        for quantity, statistics in self.derived.items():
            name = self.positions
            notes = [f"central differences of {name}", *self.notes]
            finding = self._finding(quantity, name, quantity, statistics, count, notes)
            facts = {**finding.facts, "derived_from": self.batch.label(name)}
            yield replace(finding, facts=facts)

    def _finding(
        self,
        title: str,
        name: str,
        quantity: str,
        statistics: Statistics,
        count: int,
        notes: Sequence[str],
    ) -> Finding:
        """Returns whether an array keeps its limits; what cannot be held against them fails."""
        batch, order = self.batch, QUANTITIES.index(quantity)
        units = batch.first.units.get(name)
        units = None if units is None else of_order(units, order)
        remarks = self.limits.remarks(quantity, batch.dofs, units, batch.first.dofs)
        check, label, used = f"{title} limits", batch.label(name), statistics.used()
        facts: dict[str, Any] = {"quantity": quantity}
        absent = f"not checked at {statistics.nan + statistics.inf} values that are NaN or Inf"
        if statistics.outside:
            finding = self._beyond(check, name, units, statistics, count, absent)
        elif statistics.nonfinite:
            finding = failed(check, batch, name, statistics.nonfinite, absent, count, **facts)
        elif not statistics.known:
            text = "not checked: there are no rows"
            finding = Finding(check, label, False, text, count, facts=facts)
        else:
            text = "within limits" + ("" if used is None else f", peak {100 * used:.1f} %")
            finding = Finding(check, label, True, text, count, facts=facts | {"used": used})
        facts = {**facts, **finding.facts}
        return replace(finding, text="; ".join([finding.text, *notes, *remarks]), facts=facts)

    def _beyond(
        self, check: str, name: str, units: Any, statistics: Statistics, count: int, absent: str
    ) -> Finding:
        """Lists every dof that is beyond its limits, and where the most."""
        batch, bounds = self.batch, statistics.bounds
        assert bounds is not None
        texts, about, lines = {}, {}, []
        for dof, worst in sorted(statistics.worst.items()):
            side = bounds.upper if worst.value > bounds.upper[dof] else bounds.lower
            limit, unit = float(side[dof]), unit_of_dof(in_si(units), dof) if units else ""
            texts[dof] = f"{worst.value:.6g}, limit {limit:.6g} {unit}".rstrip()
            lines.append(f"{batch.dof_text(dof)}: {texts[dof]}, {_worst_text(batch, worst)}")
            about[dof] = {
                "dof": batch.first.dofs.numbers[dof],
                "name": batch.dofs[dof],
                "value": worst.value,
                "trajectory": worst.trajectory,
                "row": worst.row,
                "time": worst.time,
                "spans": [{"rows": rows, "seconds": seconds} for rows, seconds in worst.spans],
                "limit": limit,
                "failing_values": int(statistics.beyond[dof]),
            }
        dof = max(sorted(statistics.worst), key=lambda dof: statistics.worst[dof].excess)
        text = texts[dof] + f"; {absent}" * bool(statistics.nonfinite)
        facts = {name: about[dof][name] for name in ("value", "limit")}
        facts |= {"per_dof": statistics.beyond.tolist(), "dofs": list(about.values())}
        finding = failed(check, batch, name, statistics.outside, text, count, **facts)
        return replace(finding, details=lines)


def _worst_text(batch: Batch, worst: Failure) -> str:
    """Returns where a dof is furthest beyond its limits, and its spans there, of many the first."""
    spans = worst.spans[:_SPANS]
    ends = [
        [str(row) for row in rows] if seconds is None else [f"{time:.3f}" for time in seconds]
        for rows, seconds in spans
    ]
    text = ", ".join(a if a == b else f"{a} to {b}" for a, b in ends)
    more = f" and {len(worst.spans) - _SPANS} more" if len(worst.spans) > _SPANS else ""
    at, unit = ("", "rows") if worst.time is None else (f", {seconds_text(worst.time)}", "seconds")
    place = f"{batch.trajectory_text(worst.trajectory)}row {worst.row}{at}"
    return f"{place}; beyond it in {unit} {text}{more}"


def _held_beside(
    batch: Batch, arrays: Mapping[str, str], every: Sequence[Batch], named: str
) -> set[str]:
    """Returns the quantities held against limits in other batches of the same trajectories.

    What has no positions (actions) need not have what lies beside them, nor is what it says (their
    jerk) derived from them.
    """
    beside = [other.quantities(named)[0] for other in every if batch.beside(other)]
    if "position" in arrays:
        beside = [quantities for quantities in beside if "position" not in quantities]
    elif any("position" in quantities for quantities in beside):
        return set(QUANTITIES)
    return {quantity for quantities in beside for quantity in quantities}


def _without_time(batch: Batch) -> bool:
    """Whether nothing says the times; the check of the times reports those that are wrong."""
    try:
        return any(one.time is None for one in batch.sets)
    except InputError:
        return False


def report(name: str, findings: Sequence[Finding], verbose: bool) -> Iterator[RenderableType]:
    """A table of the checks and their sum; verbose: every trajectory that fails."""
    from rich.text import Text

    failing = [finding for finding in findings if finding.passed is False]
    columns = ["check", "dataset", "", "found", *(["> failing", "worst"] if failing else [])]
    rows = []
    for one in findings:
        many = f" in {len(one.failures)} of {one.trajectories}" if one.trajectories > 1 else ""
        values = f"{one.count}{many}" if one.passed is False and one.count else ""
        row = [one.check, one.dataset, _WORDS[one.passed], one.text, values, one.where]
        rows.append(row[: len(columns)])
    yield Table(columns, rows)
    lists = [(one, one.details) for one in failing]
    lists += [(one, one.failures) for one in failing if verbose]
    for one, lines in lists:
        if lines:
            yield Text(f"\n{one.check}, {one.dataset}", "bold")
            yield Text("\n".join(f"  {line}" for line in lines))
    made = sum(finding.passed is not None for finding in findings)
    checks = "check" if made == 1 else "checks"
    if failing:
        yield Text(f"\n{name}: {len(failing)} of {made} {checks} failed", "bold red")
        if not verbose and any(len(finding.failures) > 1 for finding in failing):
            yield Text("-v lists every trajectory that fails")
    else:
        omitted = len(findings) - made
        more = f", {omitted} could not be made" if omitted else ""
        yield Text(f"\n{name}: {made} {checks} passed{more}")
