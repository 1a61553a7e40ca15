"""trajcli inspect: what is in a file."""

from __future__ import annotations

from trajcli.cli import options
from trajcli.cli.console import Console, Progress, bytes_text

EXAMPLE = """
Examples, on files in sample_data:

    trajcli inspect sample_data/reach.h5

    trajcli inspect sample_data/reach.h5 --episodes 3 --dofs 0,1
"""


def inspect(
    source: options.Sources,
    episodes: options.Episodes = None,
    dofs: options.Dofs = None,
    joints: options.Joints = None,
    full: options.Full = False,
    allow_external: options.AllowExternal = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show what is in a file: datasets, ranges, peaks, times, a plot.

    Per dof the range and the peaks of velocity, acceleration and jerk, and when they are; NaN and
    Inf and where; how long the trajectories are, their rate and how regular it is. Ranges and
    peaks are of all trajectories or those of --episodes; the plot is of the first of them.

    Of a large file a sample is looked at, unless --full.
    """
    from trajcli.files.opening import Files
    from trajcli.views.inspect import inspect_source, report
    from trajcli.views.trajectories import expand_globs

    console = Console(json, quiet)
    reports = []
    for one in expand_globs(source):
        with (
            Progress(not quiet) as progress,
            Files(allow_external, dofs, joints, on_progress=progress) as files,
        ):
            inspection = inspect_source(files, one, episodes, full, progress)
            files.sources.require_unchanged()
        console.warn(*files.notes)
        reports.append(inspection.report)
        if not (json or quiet):
            size = bytes_text(inspection.report["bytes"])
            for part in report(inspection, size, console.rich):
                console.show(part)
    console.document(reports[0] if len(reports) == 1 else {"files": reports})
