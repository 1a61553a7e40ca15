"""trajcli resample: writes trajectories or actions at another rate."""

from __future__ import annotations

from typing import Any

from trajcli.cli import options
from trajcli.cli.console import Console, bytes_text, source_lines

EXAMPLE = """
Example, on the files in sample_data:

    trajcli resample sample_data/recorded.h5:position --to 100 --method cubic -o out.h5
"""


@options.command(options.WRITING | options.RESAMPLE, options.READING, options.REPAIR)
def resample(console: Console, **typed: Any) -> int:
    """Write trajectories or actions at another rate or at given times.

    SOURCE is a dataset, or a file of which the actions are taken or, if it has none, position,
    velocity, acceleration and jerk. If the file states zoh, foh or mode bspline, the trajectory is
    a known polynomial between its rows, and the output is exact. Otherwise --method chooses a curve
    through the rows, and all derivatives in OUT are those of the curve. A plan ends at its goal:
    where it ends between two steps of --to, the next holds its last row.

    hold keeps each row until the next; ramp-and-hold moves linearly to the next row and then holds
    it for --hold of the step; cubic matches position and velocity, or is the spline through the
    positions alone; quintic matches position, velocity and acceleration. Rotations turn by slerp
    (linear) or by a spline of their logarithm (cubic).
    """
    from trajcli.jobs.resample import ResampleRequest, run_resample

    request = ResampleRequest(**typed)
    with console.report() as report:
        result = run_resample(request, report)
    first, *others = source_lines(result, f" × {_range(result['rows_before'])} rows")
    # the polynomial of the mode that the file states needs no method
    curve = f"exactly as {result['samples_of']}" if result["samples_of"] else result["method"]
    times = f"{request.to:g} Hz" if request.at is None else f"at the times of {request.at}"
    console.say(first, ", ".join(result["arrays"]), *others, f"{curve} · {times}")
    size = f"{result['trajectories']} × {_range(result['rows'])} rows"
    return console.finish(result, f"{request.out}: {size}, {bytes_text(result['bytes_written'])}")


def _range(rows: dict[str, Any]) -> str:
    low, high = rows["least"], rows["most"]
    return str(high) if low == high else f"{low} to {high}"
