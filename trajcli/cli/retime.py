"""trajcli retime: the pace at which trajectories keep their limits."""

from __future__ import annotations

from trajcli.cli import options
from trajcli.cli.console import Console, bytes_text, counted, units_lines

EXAMPLE = """
Example, on the files in sample_data:

    trajcli integrate sample_data/reach.h5 --mode jerk --scheme zoh -o out.h5

    trajcli retime out.h5 --limits sample_data/limits.toml -o retimed.h5
"""


def retime(
    source: options.Sources,
    out: options.Out,
    limits: options.Limits,
    slower_only: options.SlowerOnly = False,
    layout: options.Layout = None,
    filter_key: options.FilterKey = None,
    dt: options.Dt = None,
    rate: options.Rate = None,
    times: options.Times = None,
    pack: options.Pack = False,
    overwrite: options.Overwrite = False,
    durable: options.Durable = False,
    allow_external: options.AllowExternal = False,
    untrusted: options.Untrusted = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Stretch time by the smallest factor that keeps velocity, acceleration and jerk in limits.

    Each trajectory has a factor of its own, written as time_scale: s takes velocity to v/s,
    acceleration to a/s² and jerk to j/s³; positions stay. Below 1 a trajectory becomes faster,
    unless --slower-only.
    """
    typed = {**locals(), "sources": source}
    from trajcli.jobs.retime import RetimeRequest, run_retime

    console = Console(json, quiet)
    report = run_retime(options.request(RetimeRequest, typed))
    reasons = ", ".join(f"{name}: {count}" for name, count in report["limited_by"].items())
    trajectories = counted(report["trajectories"], "trajectory", "trajectories")
    low, high = report["factor"]["least"], report["factor"]["most"]
    console.say(
        f"{report['source']}: {trajectories}, steps from "
        f"{report['dt_source']} · time × {low:.6g} to {high:.6g} · limited by {reasons}",
        *units_lines(report["units"]),
    )
    console.say(f"{out}: {bytes_text(report['bytes_written'])}")
    console.warn(*report["notes"])
    console.document(report)
