"""trajcli status: shows which shards of a run are done."""

from __future__ import annotations

from trajcli.cli import options
from trajcli.cli.console import MOST_LISTED, Console, count_text

EXAMPLE = f"""
Example, on the files in sample_data (the second lists the part that the first writes):

    {options.EXAMPLE_RUN} -o out.h5 --shard 0/1

    trajcli status out.h5
"""


@options.command()
def status(console: Console, out: options.Divided) -> int:
    """Show which shards of a run are done; exit with 1 unless all are.

    The last line names the shards to run again, as an option of sbatch: --array=3,7-9
    """
    from trajcli.jobs.shards import Run, ranges

    run = Run(out)
    complete = len(run.done) == run.count
    counts = f"{len(run.done)} of {count_text(run.count, 'shard')} done"
    console.say(f"{run.folder}: {counts}{', ready to merge' if complete else ''}")
    if run.missing:
        console.say(f"missing: {ranges(run.missing)}")
    faults = [f"{fault.where}: {fault.what}: {fault.found}" for fault in run.faults.values()]
    console.say(*faults[:MOST_LISTED])
    if len(faults) > MOST_LISTED:
        console.say(f"and {count_text(len(faults) - MOST_LISTED, 'more such part')}")
    # the last line, so that sbatch $(trajcli status OUT | tail -1) submits what is missing
    if run.array:
        console.say(f"--array={run.array}")
    console.write_document(
        {
            "parts": str(run.folder),
            "complete": complete,
            "shards": run.count,
            "done": sorted(run.done),
            "missing": run.missing,
            "faults": {index: fault.in_shell().as_dict() for index, fault in run.faults.items()},
            "array": run.array,
        }
    )
    return 0 if complete else 1
