"""trajcli merge: joins the parts of a run in shards."""

from __future__ import annotations

from trajcli.cli import options
from trajcli.cli.console import Console, count_text, speed_text

EXAMPLE = f"""
Example, on the files in sample_data (the second merges the part that the first writes):

    {options.EXAMPLE_RUN} -o out.h5 --shard 0/1

    trajcli merge out.h5
"""


@options.command()
def merge(console: Console, out: options.Divided, overwrite: options.Overwrite = False) -> None:
    """Join the shards of a run into OUT, in their order.

    All parts must exist, unchanged and written by the same command. They stay where they are.
    """
    from trajcli.jobs.shards import merge as merge_parts

    with console.report() as report:
        result = merge_parts(out, overwrite, report)
    trajectories = count_text(result["trajectories"], "trajectory", "trajectories")
    parts = count_text(result["parts"], "part")
    console.finish(result, f"{result['out']}: {trajectories} of {parts}, {speed_text(result)}")
