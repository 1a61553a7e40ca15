"""trajcli status: what of a run in shares is done."""

from __future__ import annotations

from typing import Any

import typer

from trajcli.cli import options
from trajcli.cli.console import Console, bytes_text, counted

EXAMPLE = """
Example, on the files in sample_data (the first does what the second asks for):

    trajcli integrate sample_data/reach.h5 --mode jerk --scheme zoh --shard-index 0 --num-shards 1 -o out.h5

    trajcli status out.h5
"""  # noqa: E501

_SHOWN = 10


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("status", epilog=EXAMPLE)(status)


def status(
    out: options.Divided,
    config: options.Config = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Say what of a run in shares is done, running, missing or failed; exit 1 unless all is done.

    The last line is for sbatch: the shares, of the last number of shares, that have to run.
    """
    from trajcli.jobs.status import status as look

    console = Console(json, quiet)
    found = look(out)
    if not json:
        for line in _lines(found):
            console.say(line)
    console.document(found)
    return 0 if found["complete"] else 1


def _lines(found: dict[str, Any]) -> list[str]:
    units, size = found["units"], found["bytes"]
    counts = ", ".join(f"{units[kind]} {kind}" for kind in units if kind != "all" and units[kind])
    lines = [
        f"{found['parts']}: {counted(units['all'], 'unit')} in "
        f"{counted(found['shares'], 'share')}: {counts}; "
        f"{bytes_text(size['done'])} of {bytes_text(size['all'])}"
    ]
    for kind in ("running", "missing", "failed", "other"):
        ranges = [f"{begin} to {end - 1}" for begin, end in found["trajectories"][kind]]
        more = f" and {len(ranges) - _SHOWN} more runs" if len(ranges) > _SHOWN else ""
        if ranges:
            lines.append(f"{kind}: trajectories {', '.join(ranges[:_SHOWN])}{more}")
    for failed in found["failed"][:_SHOWN]:
        first = failed["faults"][0]
        lines.append(f"unit {failed['unit']}: {first.get('where', '')}: {first['what']}")
    lines += found["notes"][:_SHOWN]
    if found["array"]:
        lines.append(f"--array={found['array']}")
    return lines
