"""trajcli merge: joins the parts of a run in shards."""

from __future__ import annotations

from trajcli.cli import options
from trajcli.cli.console import Console, Progress, counted, speed_text

EXAMPLE = """
Example, on the files in sample_data (the first writes the part that the second merges):

    trajcli integrate sample_data/reach.h5 --mode jerk --scheme zoh -o out.h5 --shard 0/1

    trajcli merge out.h5
"""


def merge(
    out: options.Divided,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Join the parts of a run in shards into OUT, in their order.

    All parts must be there, written by one command, and unchanged. They are kept.
    """
    from trajcli.jobs.merge import merge as merge_parts

    console = Console(json, quiet)
    with Progress(not quiet) as progress:
        report = merge_parts(out, overwrite, progress)
    console.remark(*report["notes"])
    trajectories = counted(report["trajectories"], "trajectory", "trajectories")
    parts = counted(report["parts"], "part")
    console.say(f"{report['out']}: {trajectories} of {parts}, {speed_text(report)}")
    console.document(report)
