"""Does a file hold? What was checked, what was found, and where it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajcli.files.blocks import Progress
from trajcli.files.limits import Bounds, Limits, read_limits
from trajcli.files.opening import Files
from trajcli.files.reader import read_sources
from trajcli.files.selection import select
from trajcli.units import in_si, unit_of_dof
from trajcli.views.findings import Finding, failed
from trajcli.views.mode_check import ModeCheck, is_recording, mode_check
from trajcli.views.row_checks import (
    StartCheck,
    StartRows,
    TimeCheck,
    velocities_finding,
)
from trajcli.views.statistics import Statistics, array_bounds
from trajcli.views.terminal import Table
from trajcli.views.trajectories import Batch, batches

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
    on_progress: Progress = lambda done, total: None,
) -> list[Finding]:
    """All checks of the trajectories that a source names.

    Raises InputError where the file or the limits cannot be read, or there are no trajectories.
    """
    tables = None if limits is None else read_limits(limits)
    findings: list[Finding] = []
    for batch in batches(read_sources(files, [source])):
        numbers = select(episodes, batch.count)
        findings += _check_batch(batch, numbers, tables, start_of, on_progress)
        if velocity_of is not None:
            findings.append(velocities_finding(files, batch, numbers, velocity_of))
    return findings


def _check_batch(
    batch: Batch,
    numbers: Sequence[int],
    limits: Limits | None,
    start_of: StartOf,
    on_progress: Progress,
) -> Iterator[Finding]:
    first, count = batch.first, len(numbers)
    attributes = first.file.attributes()
    bounds = array_bounds(batch, limits)
    arrays = {name: Statistics(first.shape[2], bounds.get(name)) for name in first.arrays}
    mode = mode_check(attributes, list(first.arrays))
    start = StartCheck("" if not mode else _no_start(attributes) or start_of())
    times = TimeCheck(attributes)
    for block in batch.blocks(numbers, on_progress):
        values = {name: block.read(name) for name in arrays}
        times.add(block)
        for name, statistics in arrays.items():
            statistics.add(values[name], block)
        if isinstance(mode, ModeCheck):
            mode.add(block, values)
        start.add(block, values)
    for name, of in arrays.items():
        if not of.nonfinite:
            yield Finding("finite", batch.label(name), True, "no NaN or Inf", count)
            continue
        text, facts = f"{of.nan} NaN, {of.inf} Inf", {"nan": of.nan, "inf": of.inf}
        yield failed("finite", batch, name, of.nonfinite, text, count, **facts)
    if (time := times.finding(batch, count)) is not None:
        yield time
    if isinstance(mode, ModeCheck):
        yield mode.finding(batch, count)
    elif mode:
        text = f"not checked: {mode}; see --recompute"
        yield Finding(f"mode {attributes['mode']}", batch.label(), None, text, count)
    if mode:
        yield start.finding(batch)
    if limits is not None:
        here = {batch.quantity(name) for name in first.arrays}
        for quantity in (name for name in limits.tables if name not in here):
            text = f"not checked: no {quantity} in the file"
            yield Finding(f"{quantity} limits", batch.label(), None, text, count)
    for name, limit in bounds.items():
        finding = _limit(batch, name, arrays[name], limit, count)
        if limits is not None:
            remarks = limits.remarks(
                batch.quantity(name), batch.dofs, first.units.get(name), first.dofs
            )
            finding = replace(finding, text="; ".join([finding.text, *remarks]))
        yield finding


def _no_start(attributes: Mapping[str, Any]) -> str:
    """Why row 0 of an output is no start state; empty where it is."""
    if is_recording(attributes):
        return "a recording has no start state"
    frames, convention = str(attributes.get("frames")), str(attributes.get("convention"))
    curobo = convention == "curobo" and str(attributes["mode"]) in _BANDS
    return "row 0 is not the start" if frames == "actions" or curobo else ""


def _limit(batch: Batch, name: str, seen: Statistics, bounds: Bounds, count: int) -> Finding:
    check, used = f"{name} limits", seen.used()
    if not seen.outside:
        text = "within limits" + ("" if used is None else f", peak {100 * used:.1f} %")
        return Finding(check, batch.label(name), True, text, count, facts={"used": used})
    worst = max(seen.outside, key=lambda failure: failure.excess)
    above = worst.value > bounds.upper[worst.dof]
    limit = float((bounds.upper if above else bounds.lower)[worst.dof])
    units = batch.first.units.get(name)
    unit = "" if units is None else f" {unit_of_dof(in_si(units), worst.dof)}"
    text = f"{worst.value:.6g}, limit {limit:.6g}{unit}"
    facts = {"value": worst.value, "limit": limit, "per_dof": seen.beyond.tolist()}
    return failed(check, batch, name, seen.outside, text, count, **facts)


def report(name: str, findings: Sequence[Finding], verbose: bool) -> Iterator[RenderableType]:
    """A table of the checks and their sum; verbose: every trajectory that fails."""
    from rich.text import Text

    failed = [finding for finding in findings if finding.passed is False]
    columns = ["check", "dataset", "", "found", *(["> failing", "worst"] if failed else [])]
    rows = []
    for one in findings:
        many = f" in {len(one.failures)} of {one.trajectories}" if one.trajectories > 1 else ""
        failing = [f"{one.count}{many}" if one.passed is False else "", one.where]
        row = [one.check, one.dataset, _WORDS[one.passed], one.text, *failing]
        rows.append(row[: len(columns)])
    yield Table(columns, rows)
    for finding in failed if verbose else ():
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
