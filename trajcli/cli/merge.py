"""trajcli merge: the parts of a run in shares, as one output."""

from __future__ import annotations

import typer

from trajcli.cli import options
from trajcli.cli.console import Console, Progress, bytes_text, counted

EXAMPLE = """
Example, on the files in sample_data (the first does what the second joins):

    trajcli integrate sample_data/reach.h5 --mode jerk --scheme zoh --shard-index 0 --num-shards 1 -o out.h5

    trajcli merge out.h5.parts -o out.h5
"""  # noqa: E501


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("merge", epilog=EXAMPLE)(merge)


def merge(
    part: options.Parts,
    out: options.Out,
    virtual: options.Virtual = False,
    overwrite: options.Overwrite = False,
    durable: options.Durable = False,
    no_progress: options.NoProgress = False,
    config: options.Config = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Join the parts of a run in shares: OUT is, byte for byte, that of the run in one piece.

    All parts are checked: of one run, none missing, none twice, none damaged. The parts stay.
    """
    from trajcli.jobs.merge import merge as join

    console = Console(json, quiet)
    with Progress(not (no_progress or quiet), "parts") as progress:
        report = join(part, out, overwrite, durable, virtual, progress)
    if report["nonfinite"]:
        results = counted(report["nonfinite"], "result")
        are = "is" if report["nonfinite"] == 1 else "are"
        console.warn(f"{results} {are} too large for their type or not finite")
    trajectories = counted(report["trajectories"], "trajectory", "trajectories")
    parts = counted(report["parts"], "part")
    if virtual:
        console.say(
            f"{out}: {trajectories}, virtual, in {parts} that must stay where they are; reading it "
            "takes --allow-external"
        )
    else:
        console.say(
            f"{out}: {trajectories} of {parts}, "
            f"{bytes_text(report['bytes_written'])} in {report['seconds']:.2f} s, "
            f"{report['gb_per_s']:.2f} GB/s"
        )
    console.document(report)
