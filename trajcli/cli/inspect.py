"""trajcli inspect: shows what is in a file."""

from __future__ import annotations

from typing import Any

from trajcli.cli import options
from trajcli.cli.console import Console, bytes_text

EXAMPLE = """
Examples, on files in sample_data:

    trajcli inspect sample_data/reach.h5

    trajcli inspect sample_data/reach.h5 --episodes 3 --dofs 0,1
"""


@options.command(options.READING)
def inspect(
    console: Console, source: options.Sources, full: options.Full = False, **reading: Any
) -> None:
    """Show what a file holds: datasets, times, ranges, peaks, a plot.

    This lists the datasets and where they hold NaN or Inf, the length and rate of the
    trajectories, and the range of each dof with its peak velocity, acceleration and jerk. They
    are those of all trajectories, or of --episodes; the plot shows the first of these.

    Only a sample of a large file is read, unless --full is given.
    """
    from trajcli.views.inspect import inspect_source, report
    from trajcli.views.recordings import expand_globs

    reports = []
    for text in expand_globs(source):
        with console.open_files(reading) as files:
            facts, charts, dofs = inspect_source(files, text, full)
        console.remark(*files.report.notes)
        reports.append(facts)
        console.show(report(facts, charts, dofs, bytes_text(facts["bytes"]), console.rich))
    console.write_document({"files": reports})
