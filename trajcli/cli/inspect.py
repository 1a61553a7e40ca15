"""trajcli inspect: what is in a file."""

from __future__ import annotations

from typing import Any

from trajcli.cli import options
from trajcli.cli.console import Console, Progress, bytes_text

EXAMPLE = """
Examples, on files in sample_data:

    trajcli inspect sample_data/reach.h5

    trajcli inspect sample_data/reach.h5 --episodes 3 --dofs 0,1
"""


@options.reading
def inspect(
    source: options.Sources,
    full: options.Full = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    **reading: Any,
) -> None:
    """Show what is in a file: datasets, ranges, peaks, times, a plot.

    Per dof the range and the peaks of velocity, acceleration and jerk, and when they are; NaN and
    Inf and where; how long the trajectories are, their rate and how regular it is. Ranges and
    peaks are of all trajectories or those of --episodes; the plot is of the first of them.

    Of a large file a sample is looked at, unless --full.
    """
    from trajcli.files.opening import Files
    from trajcli.files.reading import Reading
    from trajcli.views.inspect import inspect_source, report
    from trajcli.views.trajectories import expand_globs

    how = Reading(**reading)
    console = Console(json, quiet)
    reports = []
    for one in expand_globs(source):
        with (
            Progress(not quiet) as progress,
            Files(how, on_progress=progress) as files,
        ):
            facts, charts, dofs = inspect_source(files, one, how.episodes, full, progress)
            files.sources.require_unchanged()
        console.warn(*files.notes)
        reports.append(facts)
        if not (json or quiet):
            size = bytes_text(facts["bytes"])
            for part in report(facts, charts, dofs, size, console.rich):
                console.show(part)
    console.document({"files": reports})
