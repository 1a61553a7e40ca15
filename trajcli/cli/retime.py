"""trajcli retime: finds the pace at which trajectories keep their limits."""

from __future__ import annotations

from typing import Any

from trajcli.cli import options
from trajcli.cli.console import Console, Progress, bytes_text, counted, fitted, units_lines

EXAMPLE = """
Example, on the files in sample_data:

    trajcli integrate sample_data/reach.h5 --mode jerk --scheme zoh -o out.h5

    trajcli retime out.h5 --limits sample_data/limits.toml -o retimed.h5
"""


@options.reading
def retime(
    source: options.Sources,
    out: options.Out,
    limits: options.Limits,
    slower_only: options.SlowerOnly = False,
    verbose: options.VerbosePaces = False,
    skip_bad: options.SkipBad = False,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    **reading: Any,
) -> int:
    """Stretch time by the smallest factor that keeps limits.

    Each trajectory has its own factor s, written as time_scale: velocity becomes v/s, acceleration
    a/s² and jerk j/s³; positions stay. A factor below 1 makes a trajectory faster, unless
    --slower-only. The limits are of velocity, acceleration and jerk, of all or some joints.
    """
    from trajcli.jobs.retime import RetimeRequest, run_retime

    request = RetimeRequest(
        sources=source,
        out=out,
        overwrite=overwrite,
        skip_bad=skip_bad,
        limits=limits,
        slower_only=slower_only,
        **reading,
    )
    console = Console(json, quiet)
    with Progress(not quiet) as progress:
        report = run_retime(request, progress)
    reasons = ", ".join(f"{name}: {count}" for name, count in report["limited_by"].items())
    trajectories = counted(report["trajectories"], "trajectory", "trajectories")
    paces = dict.fromkeys(f"{report['factor'][end]:.6g}" for end in ("least", "most"))
    console.say(
        fitted("", report["source"], f": {trajectories}"),
        fitted("steps from ", report["dt_source"]),
        f"time × {' to '.join(paces)} · limited by {reasons}",
        *units_lines(report["units"]),
        *(_lines(report) if verbose or report["trajectories"] == 1 else ()),
    )
    console.say(f"{out}: {bytes_text(report['bytes_written'])}")
    console.remark(*report["notes"])
    console.remark(*(f"left out: {bad['name']}: {bad['reason']}" for bad in report["left_out"]))
    console.document(report)
    return 1 if report["left_out"] else 0


def _lines(report: dict[str, Any]) -> list[str]:
    """Returns a line per trajectory: the limit that binds, when, and the slack of the others."""
    binding, several, lines = report["binding"], report["trajectories"] > 1, []
    for k, name in enumerate(binding["trajectory"]):
        quantity, joint, when = (binding[key][k] for key in ("quantity", "joint", "time"))
        bound = f"{quantity} of {joint} binds at {when:.6g} s" if quantity else "nothing binds"
        others = {n: share[k] for n, share in report["slack"].items() if n != quantity}
        left = ", ".join(f"{n} {100 * share:.1f} %" for n, share in others.items())
        pace = f"{name}: time × {report['factors'][k]:.6g}, " if several else ""
        lines.append(pace + bound + (f"; slack: {left}" if left else ""))
    return lines
