"""trajcli fit: fits B-splines to recordings."""

from __future__ import annotations

import shlex
from typing import Any

from trajcli.cli import options
from trajcli.cli.console import Console, bytes_text, source_lines

EXAMPLE = """
Examples, on the files in sample_data (the second integrates what the first fits):

    trajcli fit sample_data/recorded.h5:position --error 0.002 --steps 10 -o points.h5 --overwrite

    trajcli integrate points.h5 -o out.h5 --overwrite
"""


@options.command(options.WRITING, options.READING, options.REPAIR)
def fit(
    console: Console,
    knots: options.Intervals = None,
    error: options.FitError = None,
    degree: options.SplineDegree = 3,
    steps: options.FitSteps = 0,
    start: options.FitStart = None,
    goal: options.FitGoal = None,
    **typed: Any,
) -> int:
    """Fit B-splines to recorded positions by least squares.

    All trajectories get the same number of knots. OUT holds control points, start and goal states,
    dt, mode and options, from which `trajcli integrate OUT` computes the curve. The states are
    fitted as well, except where --start and --goal fix them.
    """
    from trajcli.jobs.fit import FitRequest, run_fit

    request = FitRequest(
        knots=knots, error=error, degree=degree, steps=steps, start=start, goal=goal, **typed
    )
    with console.report() as report:
        result = run_fit(request, report)
    worst = result["error"]["most"]
    curve = request.out.with_name(f"{request.out.stem}_curve.h5")
    next_words = [str(request.out), "-o", str(curve), *["--overwrite"] * request.overwrite]
    console.say(
        *source_lines(result),
        f"degree {degree}, {result['intervals']} intervals between knots",
        f"all rows within {worst:.3g} of their curve",
        f"{request.out}: {bytes_text(result['bytes_written'])}",
        # OUT states its mode and options, so that integrate needs none
        f"next: trajcli integrate {shlex.join(next_words)}",
    )
    return console.finish(result)
