"""trajcli integrate: actions and a start state → position, velocity, acceleration, jerk."""

import os
from typing import TYPE_CHECKING, Any

import typer

from trajcli.cli import options, parsing, process
from trajcli.cli.console import Console, Progress, bytes_text, counted

if TYPE_CHECKING:
    from trajcli.jobs.plan import Plan
    from trajcli.jobs.request import Request

EXAMPLE = """
Example, on the files in sample_data:

    trajcli integrate sample_data/reach.h5 --mode jerk --scheme zoh -o out.h5
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("integrate", epilog=EXAMPLE)(integrate)


def integrate(
    source: options.Sources,
    out: options.Out,
    layout: options.Layout = None,
    filter_key: options.FilterKey = None,
    mode: options.Mode = "acceleration",
    scheme: options.Scheme = None,
    ends: options.Ends = None,
    degree: options.Degree = None,
    steps: options.Steps = None,
    frames: options.Frames = None,
    convention: options.Convention = None,
    dt: options.Dt = None,
    rate: options.Rate = None,
    times: options.Times = None,
    repeated_times: options.RepeatedTimes = "error",
    max_gap: options.MaxGap = None,
    wrap_dofs: options.WrapDofs = None,
    smooth: options.Smooth = None,
    start: options.Start = None,
    start_position: options.StartPosition = None,
    start_velocity: options.StartVelocity = None,
    start_acceleration: options.StartAcceleration = None,
    start_jerk: options.StartJerk = None,
    start_index: options.StartIndex = None,
    goal: options.Goal = None,
    goal_position: options.GoalPosition = None,
    goal_velocity: options.GoalVelocity = None,
    goal_acceleration: options.GoalAcceleration = None,
    goal_jerk: options.GoalJerk = None,
    goal_index: options.GoalIndex = None,
    grad: options.Grad = None,
    cost: options.Cost = None,
    grad_factor: options.GradFactor = None,
    wrt: options.Wrt = None,
    write: options.Write = "position,velocity,acceleration,jerk",
    dtype: options.Dtype = None,
    units: options.Units = None,
    pack: options.Pack = False,
    overwrite: options.Overwrite = False,
    compress: options.Compress = None,
    resume: options.Resume = False,
    durable: options.Durable = False,
    device: options.Device = "auto",
    backend: options.Backend = "auto",
    memory: options.Memory = "256MiB",
    allow_nonfinite: options.AllowNonfinite = False,
    allow_external: options.AllowExternal = False,
    untrusted: options.Untrusted = False,
    shard_index: options.ShardIndex = None,
    num_shards: options.NumShards = None,
    shard: options.Shard = None,
    dry_run: options.DryRun = False,
    no_progress: options.NoProgress = False,
    config: options.Config = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Integrate actions and a start state into trajectories.

    SOURCE holds actions [B, H, D] (or [H, D]): B trajectories of H actions for D dofs. OUT gets
    position, velocity, acceleration and jerk [B, T, D]. `trajcli modes` lists the modes.
    """
    from trajcli.jobs.request import Request
    from trajcli.jobs.share import find_share

    console = Console(json, quiet)
    start_parts = (start_position, start_velocity, start_acceleration, start_jerk)
    goal_parts = (goal_position, goal_velocity, goal_acceleration, goal_jerk)
    request = Request(
        sources=source,
        out=out,
        layout=layout,
        filter_key=filter_key,
        mode=mode,
        options=parsing.given_options(
            scheme=scheme,
            ends=ends,
            degree=degree,
            steps=steps,
            frames=frames,
            convention=convention,
        ),
        dt=dt,
        rate=rate,
        times=times,
        repeated_times=repeated_times,
        max_gap=max_gap,
        wrap_dofs=parsing.parse_numbers(wrap_dofs, "--wrap-dofs"),
        smooth=parsing.split_names(smooth),
        start=start,
        start_parts=_given(start_parts),
        start_index=start_index,
        goal=goal,
        goal_parts=_given(goal_parts),
        goal_index=goal_index,
        grad=grad,
        cost=cost,
        factor=grad_factor,
        wrt=None if wrt is None else parsing.split_names(wrt),
        write=parsing.split_names(write),
        dtype=dtype,
        units=units,
        device=device,
        backend=backend,
        memory=parsing.parse_size(memory),
        pack=pack,
        overwrite=overwrite,
        compress=compress,
        resume=resume,
        durable=durable,
        allow_nonfinite=allow_nonfinite,
        allow_external=allow_external,
        untrusted=untrusted,
        share=find_share(shard_index, num_shards, parsing.parse_shard(shard), os.environ),
    )
    if request.share is not None:
        from trajcli.cli.share import integrate_share

        return integrate_share(request, console, not (no_progress or quiet), dry_run)
    return _integrate_whole(request, console, not (no_progress or quiet), dry_run)


def _integrate_whole(request: "Request", console: Console, shown: bool, dry_run: bool) -> int:
    """The run in one piece."""
    from trajcli.jobs.run import run

    def planned(plan: "Plan") -> None:
        process.settle()
        say_plan(console, plan.describe())

    with Progress(shown=shown) as progress:
        report = run(request, planned, progress, dry_run)
    for note in report["notes"]:
        console.warn(note)
    if dry_run:
        size = bytes_text(report["bytes_written"])
        console.say(f"dry run: would write {size} to {request.out}; nothing was written")
    else:
        console.say(_last_line(report))
    console.document(report)
    return 0


def _given(parts: tuple[str | None, ...]) -> dict[str, str]:
    names = ("position", "velocity", "acceleration", "jerk")
    return {name: text for name, text in zip(names, parts, strict=True) if text is not None}


def say_plan(console: Console, plan: dict[str, Any]) -> None:
    """The first line of a run."""
    shape = plan["shape"]
    given = " ".join(f"{name}={value}" for name, value in plan["options"].items())
    dt = plan["dt"] if isinstance(plan["dt"], str) else f"{plan['dt']:g} s"
    size = " × ".join(
        (
            counted(shape["trajectories"], "trajectory", "trajectories"),
            _range(shape["shortest"], shape["horizon"]),
            counted(shape["dofs"], "dof"),
        )
    )
    source = f"{plan['source']} ({plan['layout']})" if plan["layout"] else plan["source"]
    console.say(
        f"{source}: {size} · {plan['mode']} ({given}) · dt {dt} ({plan['dt_source']}) · "
        f"start {plan['start']} · {plan['device']}, {plan['backend']}: {plan['device_reason']}"
    )


def _range(least: int, most: int) -> str:
    return counted(most, "action") if least == most else f"{least} to {most} actions"


def _last_line(report: dict[str, Any]) -> str:
    count = report["shape"]["trajectories"]
    least = "" if report["shape"]["shortest"] == report["shape"]["horizon"] else "up to "
    return (
        f"{report['out']}: {count} × {least}{report['rows']} rows, "
        f"{bytes_text(report['bytes_written'])} in {report['seconds']:.2f} s, "
        f"{report['gb_per_s']:.2f} GB/s"
    )
