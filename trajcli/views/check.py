"""Does a file hold? What was checked, what was found, and where it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trajcli.files.limits import Bounds, Limits, read_limits
from trajcli.files.reader import Files, read_sources
from trajcli.views.mode_check import ModeCheck, is_recording, mode_check
from trajcli.views.row_checks import (
    StartCheck,
    StartRows,
    TimeCheck,
    nonfinite_states,
    velocity_off,
)
from trajcli.views.selection import select
from trajcli.views.statistics import Failure, Progress, Statistics
from trajcli.views.terminal import Table
from trajcli.views.trajectories import Batch, batches

if TYPE_CHECKING:
    from rich.console import RenderableType

_BANDS = ("central", "bspline")
"""Modes whose row 0 is a row of the curve with convention curobo, not a copy of the start."""
_WORDS = {True: "ok", False: "FAILS", None: "-"}
StartOf = Callable[[], StartRows | str]
"""The states that row 0 of an output must equal, or why they are not known."""


@dataclass(frozen=True)
class Finding:
    """One check of one array: passed, failed, or (None) not made, and why.

    trajectories: how many were looked at. count: the values that fail, the worst of them at
    ``where``. failures: every trajectory that fails, in words. facts: more for JSON.
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

    def as_dict(self, verbose: bool = False) -> dict[str, Any]:
        """The same, for JSON; verbose: with every trajectory that fails."""
        return {
            "check": self.check,
            "dataset": self.dataset,
            "passed": self.passed,
            "text": self.text,
            "trajectories": self.trajectories,
            "failing_trajectories": len(self.failures),
            "failing_values": self.count,
            "where": self.where or None,
            **self.facts,
            **({"failures": list(self.failures)} if verbose else {}),
        }


def check_source(
    files: Files,
    source: str,
    start_of: StartOf,
    limits: Path | None = None,
    index: str | None = None,
    velocity_of: str | None = None,
    on_progress: Progress = lambda done, total: None,
) -> list[Finding]:
    """All checks of the trajectories that a source names.

    Raises InputError where the file or the limits cannot be read, or there are no trajectories.
    """
    tables = None if limits is None else read_limits(limits)
    findings: list[Finding] = []
    for batch in batches(read_sources(files, [source])):
        numbers = select(index, batch.count, "--index")
        findings += _check_batch(batch, numbers, tables, start_of, on_progress)
        if velocity_of is not None:
            passed, text, where, facts = velocity_off(files, batch, numbers, velocity_of)
            label = batch.label(next(iter(batch.first.arrays)))
            findings.append(
                Finding("velocity", label, passed, text, len(numbers), where, facts=facts)
            )
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
    bounds = {} if limits is None else _bounds(batch, limits)
    arrays = {name: Statistics(first.shape[2], bounds.get(name)) for name in first.arrays}
    mode = mode_check(attributes, list(first.arrays))
    start = StartCheck("" if not mode else _no_start(attributes) or start_of())
    times = TimeCheck(attributes)
    done = 0
    for block in batch.blocks(numbers):
        values = {name: block.read(name) for name in arrays}
        times.add(block)
        for name, statistics in arrays.items():
            statistics.add(values[name], block)
        if isinstance(mode, ModeCheck):
            mode.add(block, values)
        start.add(block, values)
        done += len(block.numbers)
        on_progress(done, count)
    for name, of in arrays.items():
        if not of.nonfinite:
            yield Finding("finite", batch.label(name), True, "no NaN or Inf", count)
            continue
        text, facts = f"{of.nan} NaN, {of.inf} Inf", {"nan": of.nan, "inf": of.inf}
        yield _failed("finite", batch, name, of.nonfinite, text, count, **facts)
    for name, many, bad in nonfinite_states(batch.sets):
        text, where = (f"{len(bad)} NaN or Inf", bad[0]) if bad else ("no NaN or Inf", "")
        yield Finding("finite", name, not bad, text, many, where, len(bad), bad)
    if times.where or times.failures:
        yield _time(batch, times, count)
    if mode:
        yield _mode(batch, mode, attributes, count)
        yield _start(batch, start)
    for name, limit in bounds.items():
        yield _limit(batch, name, arrays[name], limit, count)


def _bounds(batch: Batch, limits: Limits) -> dict[str, Bounds]:
    """The limits of the arrays that a batch has; of actions, as what their mode says they are."""
    itemsize = min(stored.dtype.itemsize for stored in batch.first.arrays.values())
    tables = limits.bounds(batch.dofs, itemsize)
    quantities = {name: batch.quantity(name) for name in batch.first.arrays}
    return {name: tables[what] for name, what in quantities.items() if what in tables}


def _failed(
    check: str,
    batch: Batch,
    name: str,
    failures: Sequence[Failure],
    text: str,
    count: int,
    **facts: Any,
) -> Finding:
    """A check that failed: where the worst is, and every trajectory that fails."""
    worst = max(failures, key=lambda failure: failure.excess)
    facts["at"] = {"trajectory": worst.trajectory, "row": worst.row, "dof": worst.dof}
    values = sum(failure.count for failure in failures)
    places = [_place(batch, failure) for failure in failures]
    label = batch.label(name or worst.dataset)
    return Finding(check, label, False, text, count, _place(batch, worst), values, places, facts)


def _named(batch: Batch, number: int) -> str:
    name = batch.name(number)
    return "" if batch.count == 1 else f"trajectory {name}, " if name.isdecimal() else f"{name}, "


def _place(batch: Batch, failure: Failure) -> str:
    """A failure in words: trajectory 13, row 20, dof 3 (panda_joint4)."""
    name = batch.dofs[failure.dof]
    joint = "" if name.isdecimal() else f" ({name})"
    return f"{_named(batch, failure.trajectory)}row {failure.row}, dof {failure.dof}{joint}"


def _time(batch: Batch, times: TimeCheck, count: int) -> Finding:
    label = times.where.removeprefix(f"{batch.path}:").lstrip("/") or "time"
    if batch.first.group and label.startswith(batch.first.group):
        label = batch.pattern + label.removeprefix(batch.first.group)
    if times.failures:
        number, text, where = times.failures[0]
        bad = [f"{_named(batch, n)}{at}: {what}" for n, what, at in times.failures]
        return Finding(
            "time", label, False, text, count, _named(batch, number) + where, len(bad), bad
        )
    dt = next(iter(times.steps)) if len(times.steps) == 1 else None
    text = "increases" if dt is None else f"increases by dt = {dt:g} s"
    known = [step for step in times.steps if step is not None]
    if 1 < len(known) == len(times.steps):
        text += f", dt = {min(known):g} to {max(known):g} s"
    return Finding("time", label, True, text, count, facts={"dt": dt})


def _mode(
    batch: Batch, mode: ModeCheck | str, attributes: Mapping[str, Any], count: int
) -> Finding:
    label = batch.label()
    if isinstance(mode, str):
        text = f"not checked: {mode}; see --recompute"
        return Finding(f"mode {attributes['mode']}", label, None, text, count)
    check = f"mode {mode.name}"
    if not mode.compared:
        return Finding(check, label, None, f"not checked: {mode.reason}", count)
    if not mode.failures:
        how = "to the bit" if mode.exact else "within rounding"
        text, facts = f"equal to what the actions give, {how}", {"exact": mode.exact}
        return Finding(check, label, True, text, mode.compared, facts=facts)
    worst = max(failure.excess for failure in mode.failures)
    wrong = sum(failure.count for failure in mode.failures)
    are = "value is" if wrong == 1 else "values are"
    text = f"{wrong} {are} not what the actions give, up to {worst:.3g} × rounding"
    return _failed(check, batch, "", mode.failures, text, count, times_rounding=worst)


def _no_start(attributes: Mapping[str, Any]) -> str:
    """Why row 0 of an output is no start state; empty where it is."""
    if is_recording(attributes):
        return "a recording has no start state"
    frames, convention = str(attributes.get("frames")), str(attributes.get("convention"))
    curobo = convention == "curobo" and str(attributes["mode"]) in _BANDS
    return "row 0 is not the start" if frames == "actions" or curobo else ""


def _start(batch: Batch, start: StartCheck) -> Finding:
    if isinstance(start.start, str) or not start.compared:
        reason = start.start if isinstance(start.start, str) else "there are no rows"
        return Finding("start row", batch.label(), None, f"not checked: {reason}")
    if not start.failures:
        text = "equals the start state"
        return Finding("start row", batch.label(), True, text, start.compared)
    worst = max(start.failures, key=lambda failure: failure.excess).excess
    text = f"off by {worst:.3g}" if np.isfinite(worst) else "not finite"
    return _failed("start row", batch, "", start.failures, text, start.compared)


def _limit(batch: Batch, name: str, seen: Statistics, bounds: Bounds, count: int) -> Finding:
    check, used = f"{name} limits", seen.used()
    if not seen.outside:
        text = "within limits" + ("" if used is None else f", peak {100 * used:.1f} %")
        return Finding(check, batch.label(name), True, text, count, facts={"used": used})
    worst = max(seen.outside, key=lambda failure: failure.excess)
    above = worst.value > bounds.upper[worst.dof]
    limit = float((bounds.upper if above else bounds.lower)[worst.dof])
    text = f"{worst.value:.6g}, limit {limit:.6g}"
    facts = {"value": worst.value, "limit": limit, "per_dof": seen.beyond.tolist()}
    return _failed(check, batch, name, seen.outside, text, count, **facts)


def recompute_finding(
    name: str, values: int, differing: int, beyond: int, excess: float, at: Sequence[int]
) -> Finding:
    """What computing a variable again came to: values, how many differ, and beyond rounding."""
    if beyond:
        place = dict(zip(("trajectory", "row", "dof"), at, strict=False))
        where = ", ".join(f"{axis} {i}" for axis, i in place.items())
        text = f"{beyond} of {values} values are not what the recorded command gives"
        facts = {"at": place, "times_rounding": excess}
        return Finding("recompute", name, False, text, 0, where, beyond, facts=facts)
    text = f"{differing} of {values} values differ by rounding" if differing else "equal to the bit"
    return Finding("recompute", name, True, text, facts={"exact": not differing})


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
