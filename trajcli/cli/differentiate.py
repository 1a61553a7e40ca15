"""trajcli differentiate: recorded positions → position, velocity, acceleration, jerk."""

from typing import TYPE_CHECKING

from trajcli.cli import options, settle
from trajcli.cli.console import Console, Progress
from trajcli.cli.integrate import last_line, names, parse_shard, plan_lines

if TYPE_CHECKING:
    from trajcli.jobs.plan import Plan

EXAMPLE = """
Examples, on the files in sample_data:

    trajcli differentiate sample_data/recorded.h5 -o out.h5

    trajcli differentiate sample_data/recorded.h5:position --method central -o central.h5
"""


def differentiate(
    source: options.Sources,
    out: options.Out,
    method: options.Differences = "savgol",
    window: options.Window = None,
    degree: options.FitDegree = None,
    dt: options.Dt = None,
    rate: options.Rate = None,
    times: options.Times = None,
    dofs: options.Dofs = None,
    joints: options.Joints = None,
    episodes: options.Episodes = None,
    units: options.Units = None,
    layout: options.Layout = None,
    filter_key: options.FilterKey = None,
    max_gap: options.MaxGap = None,
    repeated_times: options.RepeatedTimes = "error",
    wrap_dofs: options.WrapDofs = None,
    write: options.Write = "position,velocity,acceleration,jerk",
    dtype: options.Dtype = None,
    overwrite: options.Overwrite = False,
    compress: options.Compress = None,
    dry_run: options.DryRun = False,
    skip_bad: options.SkipBad = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    device: options.Device = "auto",
    shard: options.Shard = None,
    allow_nonfinite: options.AllowNonfinite = False,
    allow_external: options.AllowExternal = False,
) -> int:
    """Differentiate recorded positions: velocity, acceleration and jerk of every row.

    SOURCE holds positions [B, T, D] (or [T, D]) with their times. OUT gets position, velocity,
    acceleration and jerk [B, T, D]; with savgol the position is smoothed as well.
    """
    from trajcli.jobs.request import DifferentiateRequest
    from trajcli.jobs.run import run

    console = Console(json, quiet)
    request = DifferentiateRequest(
        sources=source,
        out=out,
        mode=method,
        options=options.of_mode({"window": window, "degree": degree}),
        dt=dt,
        rate=rate,
        times=times,
        dofs=dofs,
        joints=joints,
        episodes=episodes,
        units=units,
        layout=layout,
        filter_key=filter_key,
        max_gap=max_gap,
        repeated_times=repeated_times,
        wrap_dofs=wrap_dofs,
        write=names(write, "--write"),
        dtype=dtype,
        overwrite=overwrite,
        compress=compress,
        skip_bad=skip_bad,
        device=device,
        shard=None if shard is None else parse_shard(shard),
        allow_nonfinite=allow_nonfinite,
        allow_external=allow_external,
    )

    def say_plan(plan: "Plan") -> None:
        settle()
        console.say(*plan_lines(plan.description))

    with Progress(shown=not quiet) as progress:
        report = run(request, say_plan, progress, dry_run)
    console.warn(*report["notes"])
    console.warn(*(f"left out: {bad['name']}: {bad['reason']}" for bad in report["left_out"]))
    console.say(last_line(report))
    console.document(report)
    return 1 if report["left_out"] else 0
