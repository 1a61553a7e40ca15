"""trajcli integrate with a share: what is said, in lines that programs can read too."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trajcli.cli import process
from trajcli.cli.console import SECONDS_BETWEEN_LINES, Console, bytes_text, counted
from trajcli.cli.integrate import say_plan

if TYPE_CHECKING:
    from trajcli.jobs.account import Account
    from trajcli.jobs.plan import Plan
    from trajcli.jobs.request import Request


_SHOWN = 20


def integrate_share(request: Request, console: Console, shown: bool, dry_run: bool) -> int:
    """Do a share; the exit code is 0 where all of it is done."""
    from trajcli.jobs.sharded import run_share

    def planned(plan: Plan, account: Account) -> None:
        process.settle()
        say_plan(console, plan.describe())
        if not account.mine:
            console.say(f"nothing to do: {counted(account.units, 'unit')}, fewer than shares")
        elif dry_run:
            console.say(_dry_line(account.mine, account.units))

    share = request.share
    assert share is not None
    console.say(f"share {share.index} of {share.number} ({share.why})")
    lines = _Lines(console, shown)
    report = run_share(request, planned, lines, dry_run)
    for why in report["units"]["redone"]:
        console.warn(f"{why}; done again")
    for note in report["notes"]:
        console.warn(note)
    failed = report["units"]["failed"]
    for each in failed[:_SHOWN]:
        console.warn(_failed_line(each))
    if len(failed) > _SHOWN:
        console.warn(f"{len(failed) - _SHOWN} more units refused; trajcli status lists them")
    if not dry_run and report["units"]["mine"]:
        console.say(_last_line(report))
    console.document(report)
    return int(report["exit_code"])


@dataclass
class _Lines:
    """A line of progress now and then: UTC, share, units, GB/s."""

    console: Console
    shown: bool
    last: float = field(default_factory=time.monotonic)

    def __call__(self, account: Account, part: float) -> None:
        if not self.shown or time.monotonic() - self.last < SECONDS_BETWEEN_LINES:
            return
        self.last = time.monotonic()
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        done = account.before + account.done + len(account.failed) + part
        share = account.share
        self.console.note(
            f"{now} share {share.index}/{share.number} units {done:.1f}/{len(account.mine)} "
            f"{account.gb_per_s:.3f} GB/s"
        )


def _dry_line(mine: Sequence[Any], units: int) -> str:
    begin, end = mine[0].trajectories[0], mine[-1].trajectories[1]
    size = bytes_text(sum(unit.nbytes for unit in mine))
    numbers = f"{mine[0].number} to {mine[-1].number} of {units}"
    return (
        f"dry run: units {numbers}, trajectories {begin} to {end - 1}, {size}; nothing was written"
    )


def _failed_line(failed: dict[str, Any]) -> str:
    begin, end = failed["trajectories"]
    first = failed["faults"][0]
    what = f"{first['where']}: {first['what']}" if first.get("where") else first["what"]
    return f"unit {failed['unit']} (trajectories {begin} to {end - 1}) refused: {what}"


def _last_line(report: dict[str, Any]) -> str:
    units, share = report["units"], report["share"]
    words = [f"{units['done']} done"]
    words += [f"{units['done_before']} done before"] if units["done_before"] else []
    words += [f"{len(units['failed'])} refused"] if units["failed"] else []
    busy = len(units["elsewhere"])
    words += [f"{busy} being written by another run: run it again"] if busy else []
    return (
        f"share {share['index']}/{share['number']} into {report['parts']}: "
        f"{counted(units['mine'], 'unit')}: {', '.join(words)}; "
        f"{bytes_text(report['bytes_written'])} in {report['seconds']:.2f} s, "
        f"{report['gb_per_s']:.2f} GB/s"
    )
