"""trajcli merge: the parts of a run in shards, as one output."""

from __future__ import annotations

from trajcli.cli import options
from trajcli.cli.console import Console, Progress, bytes_text, counted

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
    """Merge the parts of a run in shards into OUT: one behind the other, in their order.

    All parts have to be there, of one command, and as they were written. They stay.
    """
    from trajcli.jobs.merge import merge as merge_parts

    console = Console(json, quiet)
    with Progress(not quiet) as progress:
        report = merge_parts(out, overwrite, progress)
    console.warn(*report["notes"])
    whole = f"{report['out']}: {counted(report['trajectories'], 'trajectory', 'trajectories')} of "
    whole += counted(report["parts"], "part")
    size, seconds = bytes_text(report["bytes_written"]), report["seconds"]
    console.say(f"{whole}, {size} in {seconds:.2f} s, {report['gb_per_s']:.2f} GB/s")
    console.document(report)
