"""Checks whether a file holds: finite values, time stamps, the start row and limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trajcli.errors import Fault, InputError, Progress, listed
from trajcli.files.limits import Limits, read_limits
from trajcli.files.opening import Files
from trajcli.files.quantities import QUANTITIES, RECORDED_START
from trajcli.files.reading import select
from trajcli.files.recording import Array, Recording
from trajcli.files.repair import TurnJumps
from trajcli.files.source import parse_source
from trajcli.modes import MODES
from trajcli.scores import with_derivatives
from trajcli.units import Units, in_si, of_order, unit_of_dof
from trajcli.views._delay import read_positions, velocities_finding
from trajcli.views._statistics import RotationStatistics, Statistics, Summary, read_blocks
from trajcli.views.findings import (
    Finding,
    StartCheck,
    StartRows,
    TimeCheck,
    failed,
    jumps_findings,
    place_text,
    rotation_findings,
)
from trajcli.views.recordings import (
    beside,
    bounds_of,
    dof_text,
    label,
    locations,
    measured_beside,
    quantities,
    quantity_of,
    read_batches,
)
from trajcli.views.terminal import TextTable

if TYPE_CHECKING:
    from rich.console import RenderableType

_WORDS = {True: "ok", False: "FAILS", None: "-"}
# Number of spans beyond a limit that are listed for each dof.
_SPANS = 3


def check_source(
    files: Files,
    source: str,
    start_of: Callable[[Files, Path], StartRows | str],
    limits: Path | None = None,
    velocity_of: str | None = None,
    on_progress: Progress = lambda done, total: None,
    left_out: dict[str, Fault] | None = None,
) -> list[Finding]:
    """Checks the trajectories that a source names, each batch in one pass.

    start_of: returns the states that row 0 of an output must equal, or why they are unknown.
    limits: a file of limits that all must keep. velocity_of: positions whose derivative the source
    must be. left_out: takes the faults of trajectories that cannot be read, which fail without it.

    Raises InputError where the file or the limits cannot be read, or there are no trajectories.
    """
    tables = None if limits is None else read_limits(limits, files.sources)
    # an array that is compared with positions is a velocity
    named = "position" if velocity_of is None else "velocity"
    findings: list[Finding] = []
    batches = read_batches(files, [source])
    turns = {} if tables is None else tables.turns
    stored = {name for batch in batches for name in batch.arrays}
    unchecked = dict.fromkeys(() if tables is None else (*tables.tables, *turns))
    checked: list[object] = []
    for batch in batches:
        numbers = select(files.reading.episodes, len(batch))
        count, attributes = len(numbers), batch.file.attributes()
        turning = RotationStatistics(batch, ("norm", "sign"), turns, stored)
        arrays = {name: Statistics(name, batch.shape[2]) for name in batch.arrays}
        held = None
        if tables is not None and tables.tables and not turning.alone:
            held = LimitCheck(batch, tables, named, batches)
            arrays |= held.stored
        for name in (*turning.of, *(tables.tables if tables and held else ())):
            unchecked.pop(name, None)
        # orientations and their rates are batches of the same times and start
        times = start = None
        if locations(batch) not in checked:
            checked.append(locations(batch))
            times = TimeCheck(batch)
            if str(attributes.get("mode", "")) in MODES:
                reason = _no_start(attributes, batch)
                start = StartCheck(reason or start_of(files, parse_source(source).path))
        chosen, faults = batch.take(numbers).usable()
        jumps = TurnJumps(batch)
        checks: tuple[Summary | None, ...] = (turning, held, times, start, jumps)
        summaries = [*arrays.values(), *filter(None, checks)]
        read_blocks(chosen.blocks(on_progress), batch.arrays, summaries, faults)
        if faults and len(faults) == len(numbers):
            raise InputError(*faults.values())
        if left_out is not None:
            left_out |= faults
        elif faults:
            texts = [f"{name}: {fault.what}" for name, fault in faults.items()]
            text, name = next(iter(faults.values())).what, label(batch)
            findings.append(Finding("readable", name, False, text, count, texts[0], 0, texts))
        for name, statistics in arrays.items():
            nan, inf = statistics.nan, statistics.inf
            if statistics.nonfinite:
                worst, text = statistics.nonfinite, f"{nan} NaN, {inf} Inf"
                findings.append(failed("finite", batch, name, worst, text, count, nan=nan, inf=inf))
            else:
                findings.append(Finding("finite", label(batch, name), True, "no NaN or Inf", count))
        findings += jumps_findings(jumps, batch, count)
        if padded := _ending_in_nan(batch, numbers):
            text = "rows of NaN at the ends, which neither lengths nor a mask state as padding"
            findings.append(Finding("padding", label(batch, next(iter(arrays))), False, text, count,
                                    padded[0], len(padded), padded))  # fmt: skip
        findings += times.findings(batch, count) if times else ()
        findings += [start.finding(batch)] if start else ()
        findings += held.findings(count) if held else ()
        findings += rotation_findings(turning, count)
        if velocity_of is not None:
            positions = read_positions(files, batch, velocity_of)
            findings.append(velocities_finding(batch, numbers, positions, velocity_of))
    for name in unchecked:  # a limit that cannot be checked is a failure
        why = "no dofs are rotations" if name in turns else "all dofs are rotations"
        findings.append(Finding(f"{name} limits", source, False, f"not checked: {why}"))
    return findings


def _ending_in_nan(batch: Recording, numbers: Sequence[int]) -> list[str]:
    """Returns the trajectories that are taken to end before rows of NaN, in words."""
    ended: list[bool] = []
    for part in batch.members:
        short = part.lengths < part.rows
        stated = short.any() and part.companions.lengths(*part.shape[:2], part.single)[0]
        ended += (short if stated is None else short & False).tolist()
    return [f"trajectory {batch.title(number)}" for number in numbers if ended[number]]


def _no_start(attributes: Mapping[str, Any], batch: Recording) -> str:
    """Returns why row 0 of an output is not compared with a start state; "" where it is."""
    if str(attributes.get("start")) == RECORDED_START:
        return "a recording has no start state"
    if batch.of_rotations:
        return "rotations are compared by --recompute"
    # with convention curobo, row 0 of a band mode is a row of the curve
    band = str(attributes["mode"]) in ("central", "bspline")
    curobo = str(attributes.get("convention")) == "curobo" and band
    return "row 0 is not the start" if str(attributes.get("frames")) == "actions" or curobo else ""


class LimitCheck:
    """Holds the arrays of a batch, and central differences of its positions, against limits.

    stored: the statistics of each array whose quantity has limits. derived: those of quantities
    that are derived from ``positions``. missing: quantities whose limits cannot be checked, for a
    ``reason``.
    """

    def __init__(
        self, batch: Recording, limits: Limits, named: str, batches: Sequence[Recording]
    ) -> None:
        """Assigns each quantity with limits to an array, to differences, or to ``missing``.

        named: the quantity of an array that SOURCE names and whose quantity nothing states.
        batches: those of the source; what this one lacks may be checked in another one.
        """
        self.batch, self.limits, dofs = batch, limits, batch.shape[2]
        arrays, units, self.notes = quantities(batch, named)
        bounds = bounds_of(batch, limits, units)
        self.quantities = {name: quantity_of(batch, name) for name in batch.arrays}
        self.quantities |= {name: quantity for quantity, name in arrays.items()}
        self.positions, self.reason = arrays.get("position", ""), ""
        if not self.positions:
            # limits on a quantity that nothing gives are a failure, never a pass with a remark
            self.reason = "and no positions to differentiate; FILE:DATASET names them"
        elif batch.clock is None:
            step = f"and no time step to differentiate {self.positions} with"
            self.reason = f"{step}; --dt SECONDS says it"
        checked = {*arrays, *_checked_elsewhere(batch, arrays, batches, named)}
        lacking = [quantity for quantity in bounds if quantity not in checked]
        self.missing = lacking if self.reason else []
        self.derived = {q: Statistics(q, dofs, bounds[q]) for q in lacking if not self.reason}
        self.stored = {
            name: Statistics(name, dofs, bounds[quantity])
            for name, quantity in self.quantities.items()
            if quantity in bounds
        }

    def add(self, values: Mapping[str, Array], block: Recording) -> None:
        """Adds the quantities derived from a block of arrays [b, T, D] by name."""
        if not self.derived:
            return
        position, times = values[self.positions], block.known_times()
        if times is None:  # the file contradicts itself
            times = np.zeros(position.shape[:2])
        # differences need stamps that increase; other trajectories get NaN, which fails
        good = np.all(np.diff(times) > 0, axis=1)
        parts = with_derivatives({"position": position}, times, block.step, good, {*self.derived})
        for statistics in self.derived.values():
            statistics.add(parts, block)

    def findings(self, count: int) -> Iterator[Finding]:
        """Yields a finding for each quantity that has limits, of ``count`` trajectories."""
        for quantity in self.missing:
            text = "; ".join([f"not checked: no {quantity}, {self.reason}", *self.notes])
            yield Finding(f"{quantity} limits", label(self.batch), False, text, count)
        for name, statistics in self.stored.items():
            quantity = self.quantities[name]
            # an array that is read as another quantity, as the notes say, is titled by that
            title = name if quantity == quantity_of(self.batch, name) else quantity
            yield self._finding(title, name, quantity, statistics, count)
        for quantity, statistics in self.derived.items():
            yield self._finding(quantity, self.positions, quantity, statistics, count)

    def _finding(
        self, title: str, name: str, quantity: str, statistics: Statistics, count: int
    ) -> Finding:
        """Returns whether an array keeps its limits; values that cannot be compared fail."""
        batch, units = self.batch, self.batch.units.get(name)
        units = units and of_order(units, QUANTITIES.index(quantity))
        check, array, used = f"{title} limits", label(batch, name), statistics.used()
        absent = f"not checked at {statistics.nan + statistics.inf} values that are NaN or Inf"
        if statistics.outside:
            finding = self._beyond(check, name, units, statistics, count, absent)
        elif statistics.nonfinite:
            finding = failed(check, batch, name, statistics.nonfinite, absent, count)
        elif not statistics.known:
            finding = Finding(check, array, False, "not checked: there are no rows", count)
        else:
            text = "within limits" + ("" if used is None else f", peak {100 * used:.1f} %")
            finding = Finding(check, array, True, text, count, facts={"used": used})
        remarks = self.limits.unit_remarks(quantity, units)
        remarks += self.limits.remarks(batch.dof_labels, batch.dofs)
        facts = {"quantity": quantity, **finding.facts}
        differences = []
        if quantity in self.derived:
            facts["derived_from"] = array
            differences.append(f"central differences of {name}")
            if measured := measured_beside(batch, quantity):
                text = f"{measured}, which is measured, is not used: name it to check it"
                differences.append(text)
        text = "; ".join([finding.text, *differences, *self.notes, *remarks])
        facts["matched"] = self.limits.matched(batch.dof_labels, batch.dofs)
        return replace(finding, text=text, facts=facts)

    def _beyond(
        self, check: str, name: str, units: Units | None, statistics: Statistics, count: int,
        absent: str,
    ) -> Finding:  # fmt: skip
        """Lists every dof that is beyond its limits, with its worst value and where that is."""
        batch, bounds = self.batch, statistics.bounds
        assert bounds is not None
        texts, dofs, lines = {}, {}, []
        for dof, worst in sorted(statistics.worst.items()):
            # a value below the lower limit is held against that one
            side = bounds.upper if worst.value > bounds.upper[dof] else bounds.lower
            limit, unit = float(side[dof]), unit_of_dof(in_si(units), dof) if units else ""
            texts[dof] = f"{worst.value:.6g}, limit {limit:.6g} {unit}".rstrip()
            at, spans = place_text(batch, worst), _spans_text(worst.spans)
            lines.append(f"{dof_text(batch, dof)}: {texts[dof]}, {at}; beyond it in {spans}")
            dofs[dof] = {
                "dof": batch.dofs.numbers[dof],
                "name": batch.dof_labels[dof],
                "value": worst.value,
                "trajectory": worst.trajectory,
                "row": worst.row,
                "time": worst.time,
                "spans": [{"rows": rows, "seconds": seconds} for rows, seconds in worst.spans],
                "limit": limit,
                "failing_values": int(statistics.beyond[dof]),
            }
        dof = max(sorted(statistics.worst), key=lambda dof: statistics.worst[dof].excess)
        text = f"{texts[dof]}; {absent}" if statistics.nonfinite else texts[dof]
        facts = {name: dofs[dof][name] for name in ("value", "limit")}
        facts |= {"per_dof": statistics.beyond.tolist(), "dofs": list(dofs.values())}
        finding = failed(check, batch, name, statistics.outside, text, count, **facts)
        return replace(finding, details=lines)


def _spans_text(spans: Sequence[tuple[list[int], list[float] | None]]) -> str:
    """Returns the first runs of rows beyond a limit: seconds 0.001 to 0.061, 2.379 and 2 more."""
    ends = [
        [str(row) for row in rows] if seconds is None else [f"{time:.3f}" for time in seconds]
        for rows, seconds in spans
    ]
    text = listed((a if a == b else f"{a} to {b}" for a, b in ends), _SPANS)
    return f"{'rows' if spans[0][1] is None else 'seconds'} {text}"


def _checked_elsewhere(
    batch: Recording, arrays: Mapping[str, str], batches: Sequence[Recording], named: str
) -> set[str]:
    """Returns the quantities whose limits other batches of the same trajectories are held against.

    A batch without positions (actions) need not have the quantities that lie beside it; nor is
    anything derived from positions where only the other batch has them.
    """
    held = [quantities(other, named)[0] for other in batches if beside(batch, other)]
    if "position" in arrays:
        held = [arrays for arrays in held if "position" not in arrays]
    elif any("position" in arrays for arrays in held):
        return set(QUANTITIES)
    return {quantity for arrays in held for quantity in arrays}


def report(name: str, findings: Sequence[Finding], verbose: bool) -> Iterator[RenderableType]:
    """Yields a table of the checks and their sum, with ``verbose`` every trajectory that fails."""
    from rich.text import Text

    failing = [finding for finding in findings if finding.passed is False]
    rows = []
    for finding in findings:
        count = str(finding.count) if finding.passed is False and finding.count else ""
        if count and finding.trajectories > 1:
            count += f" in {len(finding.failures)} of {finding.trajectories}"
        row = [finding.check, finding.dataset, _WORDS[finding.passed], finding.text, count]
        rows.append(row if failing else row[:-1])
    columns = ["check", "dataset", "", "found", "> failing"]
    yield TextTable(columns if failing else columns[:-1], rows, spare=["failing"])
    for finding in failing:
        if finding.where and not finding.details:
            yield Text(f"{finding.check}, {finding.dataset}: worst at {finding.where}")
    # first each dof that fails, then with -v each trajectory
    lists = [(finding, finding.details) for finding in failing]
    lists += [(finding, finding.failures) for finding in failing if verbose]
    for finding, lines in lists:
        if lines:
            yield Text(f"\n{finding.check}, {finding.dataset}", "bold")
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
