"""Verdicts as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trajcli.views.screen import Screen, shown
from trajcli.views.tables import table
from trajcli.views.verdicts import Verdict


def judgement(name: str, verdicts: Sequence[Verdict], screen: Screen) -> Iterator[str]:
    """What was checked, what failed and where, and the sum of it."""
    failed = [verdict for verdict in verdicts if verdict.passed is False]
    columns = [("check", "left"), ("dataset", "left"), ("", "left"), ("found", "left")]
    columns += [("failing", "right"), ("worst", "left")] if failed else []
    rows = []
    for verdict in verdicts:
        more = f" and {verdict.alike - 1} more" if verdict.alike > 1 else ""
        row = [verdict.check, verdict.dataset + more, _word(verdict), verdict.found]
        rows.append(row + ([str(verdict.count or ""), verdict.where] if failed else []))
    yield from table(columns, rows, screen)
    yield ""
    made = sum(verdict.alike for verdict in verdicts if verdict.passed is not None)
    checks = "check" if made == 1 else "checks"
    if failed:
        yield screen.alarming(f"{shown(name)}: {len(failed)} of {made} {checks} failed")
    else:
        left = sum(verdict.alike for verdict in verdicts) - made
        more = f", {left} could not be made" if left else ""
        yield f"{shown(name)}: {made} {checks} passed{more}"


def _word(verdict: Verdict) -> str:
    return {True: "ok", False: "FAILS", None: "-"}[verdict.passed]
