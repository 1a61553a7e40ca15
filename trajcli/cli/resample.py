"""trajcli resample: writes trajectories or actions at another rate."""

from __future__ import annotations

from typing import Any

from trajcli.cli import options
from trajcli.cli.console import Console, Progress, bytes_text, counted, fitted, units_lines

EXAMPLE = """
Example, on the files in sample_data:

    trajcli resample sample_data/recorded.h5:position --to 100 --method cubic -o out.h5
"""


@options.reading_recordings
def resample(
    source: options.Sources,
    out: options.Out,
    to: options.ToRate = None,
    at: options.ToTimes = None,
    method: options.Method = None,
    hold: options.Hold = 0.0,
    rotation_frame: options.RotationFrame = "world",
    hold_dofs: options.HoldDofs = None,
    skip_bad: options.SkipOutside = False,
    allow_nonfinite: options.AllowNonfinite = False,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    **reading: Any,
) -> int:
    """Write trajectories or actions at another rate or at given times.

    SOURCE is a dataset or a file; of a file its actions are taken or, where it has none, position,
    velocity, acceleration and jerk. A trajectory whose file states scheme zoh or foh or mode
    bspline is a known polynomial between its rows, and written exactly. Otherwise a curve goes
    through the rows, and all derivatives written are those of the curve.

    The curves: hold keeps each row until the next; ramp-and-hold reaches the next row early,
    by --hold of the step; cubic goes by position and velocity, or is the spline through the
    positions alone; quintic goes by position, velocity and acceleration. Rotations turn by slerp
    (linear) or by a spline of their logarithm (cubic).
    """
    from trajcli.jobs.resample import ResampleRequest, run_resample

    request = ResampleRequest(
        sources=source,
        out=out,
        overwrite=overwrite,
        to=to,
        at=at,
        method=method,
        hold=hold,
        rotation_frame=rotation_frame,
        hold_dofs=hold_dofs,
        skip_bad=skip_bad,
        allow_nonfinite=allow_nonfinite,
        **reading,
    )
    console = Console(json, quiet)
    with Progress(not quiet) as progress:
        report = run_resample(request, progress)
    trajectories = counted(report["trajectories"], "trajectory", "trajectories")
    console.say(
        fitted("", report["source"], f": {trajectories} × {_range(report['rows_before'])} rows"),
        ", ".join(report["arrays"]),
        fitted("steps from ", report["dt_source"]),
        *units_lines(report["units"]),
    )
    how = f"exactly as {report['samples_of']}" if report["samples_of"] else report["method"]
    console.say(f"{how} · " + (f"{to:g} Hz" if at is None else f"at the times of {at}"))
    console.remark(*report["notes"])
    console.remark(*(f"left out: {bad['name']}: {bad['reason']}" for bad in report["left_out"]))
    console.say(
        f"{out}: {report['trajectories']} × {_range(report['rows'])} rows, "
        f"{bytes_text(report['bytes_written'])}"
    )
    console.document(report)
    return 1 if report["left_out"] else 0


def _range(rows: dict[str, Any]) -> str:
    """Returns numbers of rows as text: 10 to 13."""
    low, high = rows["least"], rows["most"]
    return str(high) if low == high else f"{low} to {high}"
