"""trajcli integrate: actions and a start state → position, velocity, acceleration, jerk."""

from typing import TYPE_CHECKING, Any

from trajcli.cli import options, settle
from trajcli.cli.console import Console, Progress, bytes_text, counted
from trajcli.errors import UsageError

if TYPE_CHECKING:
    from trajcli.jobs.plan import Plan
    from trajcli.jobs.request import Request
    from trajcli.jobs.shards import Shard

EXAMPLE = """
Example, on the files in sample_data:

    trajcli integrate sample_data/reach.h5 --mode jerk --scheme zoh -o out.h5
"""
_WIDTH = 79


@options.computing
def integrate(
    source: options.Sources,
    out: options.Out,
    mode: options.Mode = None,
    scheme: options.Scheme = None,
    ends: options.Ends = None,
    degree: options.Degree = None,
    steps: options.Steps = None,
    frames: options.Frames = None,
    convention: options.Convention = None,
    start: options.Start = None,
    start_index: options.StartIndex = None,
    goal: options.Goal = None,
    absolute: options.Absolute = None,
    actions: options.Actions = None,
    grad: options.Grad = None,
    cost: options.Cost = None,
    grad_factor: options.GradFactor = None,
    **typed: Any,
) -> int:
    """Integrate actions and a start state into trajectories.

    SOURCE holds actions [B, H, D] (or [H, D]): B trajectories of H actions for D dofs. OUT gets
    position, velocity, acceleration and jerk [B, T, D]. `trajcli modes` lists the modes.
    """
    from trajcli.jobs.request import Request

    return run_request(
        Request,
        typed,
        sources=source,
        out=out,
        mode=mode,
        options=options.of_mode(
            scheme=scheme,
            ends=ends,
            degree=degree,
            steps=steps,
            frames=frames,
            convention=convention,
        ),
        start=start,
        start_index=start_index,
        goal=goal,
        absolute=absolute,
        actions=actions,
        grad=grad,
        cost=cost,
        factor=grad_factor,
    )


def run_request(kind: "type[Request]", typed: dict[str, Any], **own: Any) -> int:
    """Run a request of what was typed, say what there is to say of it, return the exit code."""
    from trajcli.jobs.run import run

    console, dry_run = Console(typed.pop("json"), typed.pop("quiet")), typed.pop("dry_run")
    typed["write"] = names(typed["write"], "--write")
    typed["shard"] = None if typed["shard"] is None else parse_shard(typed["shard"])
    request = kind(**own, **typed)

    def say_plan(plan: "Plan") -> None:
        settle()
        console.say(*plan_lines(plan.description))

    with Progress(shown=not console.quiet) as progress:
        report = run(request, say_plan, progress, dry_run)
    console.warn(*report["notes"])
    console.warn(*(f"left out: {bad['name']}: {bad['reason']}" for bad in report["left_out"]))
    console.say(last_line(report))
    console.document(report)
    return 1 if report["left_out"] else 0


def plan_lines(plan: dict[str, Any]) -> list[str]:
    """The first lines of a run, each for 80 columns: what was found, what is computed, from which
    steps and states, and where."""
    shape = plan["shape"]
    shortest, longest = shape["shortest"], shape["horizon"]
    count = counted(shape["trajectories"], "trajectory", "trajectories")
    each = "row" if plan["start"] is None else "action"
    actions = ("" if shortest == longest else f"{shortest} to ") + counted(longest, each)
    more = f" and {plan['sources'] - 1} more" if plan["sources"] > 1 else ""
    layout = f" ({plan['layout']})" if plan["layout"] else ""
    size = f"{count} × {actions} × {counted(shape['dofs'], 'dof')}"
    chosen = " ".join(f"{name}={value}" for name, value in plan["options"].items())
    dt = plan["dt"] if isinstance(plan["dt"], str) else f"{plan['dt']:g} s"
    stated = _fitted(", as ", plan["mode_source"], " states") if plan["mode_source"] else ""
    units, converted = plan["units"], []
    if units and units["read"] != units["written"]:
        behind = f", converted to {units['written']}"
        converted = [_fitted(f"units {units['read']}, from ", units["from"], behind)]
    return [
        _fitted("", plan["source"], f"{more}{layout}: {size}"),
        *converted,
        *_wrapped(f"{plan['mode']} ({chosen})" if chosen else plan["mode"], stated),
        *(f"--{name.replace('_', '-')} {value}" for name, value in plan["commands"].items()),
        _fitted(f"dt {dt}, from ", plan["dt_source"], ""),
        *([] if plan["start"] is None else [_fitted("start from ", plan["start"], "")]),
        f"on {plan['device']} by {plan['backend']}: {plan['device_reason']}",
    ]


def _wrapped(text: str, more: str) -> list[str]:
    """A line, or two where one would be too long."""
    if not more or len(text + more) <= _WIDTH:
        return [text + more]
    return [f"{text},", more.removeprefix(", ")]


def _fitted(before: str, path: str, behind: str) -> str:
    """A line in which a long path loses its beginning."""
    room = max(_WIDTH - len(before) - len(behind), 20)
    return before + (path if len(path) <= room else f"…{path[1 - room :]}") + behind


def last_line(report: dict[str, Any]) -> str:
    """What was written, or would be."""
    if report.get("already_done"):
        return f"{report['out']}: shard {report['shard']} is done already"
    size = bytes_text(report["bytes_written"])
    if report["dry_run"]:
        return f"dry run: would write {size} to {report['out']}; nothing was written"
    count = report["shape"]["trajectories"]
    least = "" if report["shortest_rows"] == report["rows"] else "up to "
    return (
        f"{report['out']}: {count} × {least}{report['rows']} rows, {size} in "
        f"{report['seconds']:.2f} s, {report['gb_per_s']:.2f} GB/s"
    )


def parse_shard(text: str) -> "Shard":
    from trajcli.jobs import shards

    return shards.parse_shard(text)


def names(text: str, option: str) -> tuple[str, ...]:
    """position,velocity → ("position", "velocity")."""
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise UsageError(
            "no names", where=option, expected="one or more, like a,b", found=repr(text)
        )
    return names
