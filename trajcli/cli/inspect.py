"""trajcli inspect: shows what is in a file."""

from __future__ import annotations

from typing import Any

from trajcli.cli import options
from trajcli.cli.console import Console, bytes_text, opened

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
    """Show what is in a file: datasets, times, ranges, peaks, a plot.

    For each dof this shows the range, the peaks of velocity, acceleration and jerk and when they
    are; where values are NaN or Inf; how long the trajectories are, at which rate, and how regular
    it is. Ranges and peaks are those of all trajectories, or of --episodes; the plot shows the
    first of them.

    Large files are sampled, unless --full.
    """
    from trajcli.files.reading import Reading
    from trajcli.views.inspect import inspect_source, report
    from trajcli.views.trajectories import expand_globs

    how, console, reports = Reading(**reading), Console(json, quiet), []
    for text in expand_globs(source):
        with opened(how, quiet) as (files, progress):
            facts, charts, dofs = inspect_source(files, text, how.episodes, full, progress)
        console.remark(*files.notes)
        reports.append(facts)
        if not (json or quiet):
            size = bytes_text(facts["bytes"])
            for part in report(facts, charts, dofs, size, console.rich):
                console.show(part)
    console.document({"files": reports})
