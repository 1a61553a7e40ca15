"""trajcli fit: fits B-splines to recordings."""

from __future__ import annotations

import shlex
from typing import Any

from trajcli.cli import options
from trajcli.cli.console import Console, Progress, bytes_text, counted, fitted, units_lines

EXAMPLE = """
Examples, on the files in sample_data (the second turns what the first fits into trajectories):

    trajcli fit sample_data/recorded.h5:position --error 0.002 --steps 10 -o points.h5 --overwrite

    trajcli integrate points.h5 -o out.h5 --overwrite
"""


@options.reading_recordings
def fit(
    source: options.Sources,
    out: options.Out,
    knots: options.Intervals = None,
    error: options.FitError = None,
    degree: options.SplineDegree = 3,
    steps: options.FitSteps = 0,
    start: options.FitStart = None,
    goal: options.FitGoal = None,
    skip_bad: options.SkipBad = False,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    **reading: Any,
) -> int:
    """Fit B-splines to recorded positions by least squares.

    All trajectories get the same number of knots. OUT holds the control points, the start and goal
    states, dt, mode and options, of which `trajcli integrate OUT` makes the curve. The states are
    fitted as well, except for what --start and --goal hold exactly.
    """
    from trajcli.jobs.fit import FitRequest, run_fit

    request = FitRequest(
        sources=source,
        out=out,
        overwrite=overwrite,
        skip_bad=skip_bad,
        knots=knots,
        error=error,
        degree=degree,
        steps=steps,
        start=start,
        goal=goal,
        **reading,
    )
    console = Console(json, quiet)
    with Progress(not quiet) as progress:
        report = run_fit(request, progress)
    worst = report["error"]["most"]
    trajectories = counted(report["trajectories"], "trajectory", "trajectories")
    console.say(
        fitted("", report["source"], f": {trajectories}"),
        fitted("steps from ", report["dt_source"]),
        *units_lines(report["units"]),
        f"degree {degree}, {report['intervals']} intervals between knots",
        f"no row further than {worst:.3g} from its curve",
        f"{out}: {bytes_text(report['bytes_written'])}",
        f"next: trajcli integrate {shlex.quote(str(out))}",
    )
    console.remark(*report["notes"])
    console.remark(*(f"left out: {bad['name']}: {bad['reason']}" for bad in report["left_out"]))
    console.document(report)
    return 1 if report["left_out"] else 0
