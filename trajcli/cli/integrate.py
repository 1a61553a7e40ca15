"""trajcli integrate: integrates actions from a start state."""

from typing import TYPE_CHECKING, Any

from trajcli.cli import options, settle
from trajcli.cli.console import (
    WIDTH,
    Console,
    bytes_text,
    count_text,
    fit_line,
    speed_text,
    units_lines,
)
from trajcli.errors import UsageError

if TYPE_CHECKING:
    from trajcli.jobs.plan import Plan
    from trajcli.jobs.request import Request

EXAMPLE = f"""
Examples, on files in sample_data:

    {options.EXAMPLE_RUN} -o out.h5

    trajcli integrate sample_data/accelerations.npy --start sample_data/start.npy --dt 0.02 -o a.h5
"""


# The start state belongs to the first action, so that no window of time may begin later: --since
# and --until are options of differentiate alone.
_READING = {name: kind for name, kind in options.READING.items() if name not in ("since", "until")}


@options.command(options.MODE, options.INTEGRATE, _READING, options.RUN)
def integrate(console: Console, mode: options.Mode = None, **typed: Any) -> int:
    """Integrate actions from a start state into trajectories.

    SOURCE holds actions [B, H, D] (or [H, D]): B trajectories of H actions for D dofs. OUT gets
    position, velocity, acceleration and jerk [B, T, D]. `trajcli modes` explains the modes.
    """
    from trajcli.jobs.request import Request

    mode_options, factor = options.pop_mode_options(typed, options.MODE), typed.pop("grad_factor")
    return run_request(console, Request, typed, mode=mode, options=mode_options, factor=factor)


def run_request(
    console: Console, kind: "type[Request]", typed: dict[str, Any], **fields: Any
) -> int:
    """Runs a request, prints its plan and its result, and returns the exit code."""
    from trajcli.jobs.request import parse_shard
    from trajcli.jobs.run import run

    dry_run, text, shard = typed.pop("dry_run"), typed["write"], typed["shard"]
    typed["write"] = tuple(part.strip() for part in text.split(",") if part.strip())
    if not typed["write"]:
        what, expected = "no names", "one or more, like a,b"
        raise UsageError(what, where="--write", expected=expected, found=repr(text))
    typed["shard"] = None if shard is None else parse_shard(shard)

    # the plan is made when all modules of the run are loaded
    def say_plan(plan: "Plan") -> None:
        settle()
        console.say(*plan_lines(plan.description))

    with console.report() as report:
        result = run(kind(**fields, **typed), report, say_plan, dry_run)
    if result.get("already_done"):
        last = f"{result['out']}: shard {result['shard']} is done already"
    elif result["dry_run"]:
        size = bytes_text(result["bytes_written"])
        last = f"dry run: would write {size} to {result['out']}; nothing was written"
    else:
        most = "" if result["shortest_rows"] == result["rows"] else "up to "
        rows = f"{result['shape']['trajectories']} × {most}{result['rows']} rows"
        last = f"{result['out']}: {rows}, {speed_text(result)}"
    return console.finish(result, *smoothing_lines(result), last)


def plan_lines(plan: dict[str, Any]) -> list[str]:
    """Says in the first lines of a run, for 80 columns, what is read and computed, and how."""
    # differentiate has no start: its rows are recorded positions
    shape, recorded = plan["shape"], plan["start"] is None
    shortest, longest = shape["shortest"], shape["horizon"]
    count = count_text(shape["trajectories"], "trajectory", "trajectories")
    rows = count_text(longest, "row" if recorded else "action")
    rows = rows if shortest == longest else f"{shortest} to {rows}"
    rest = f" and {plan['sources'] - 1} more" if plan["sources"] > 1 else ""
    layout = f" ({plan['layout']})" if plan["layout"] else ""
    size = f"{count} × {rows} × {count_text(shape['dofs'], 'dof')}"
    lines = [fit_line("", plan["source"], f"{rest}{layout}: {size}"), *units_lines(plan["units"])]
    # a window of 0.30000000000000004 s is printed as 0.3
    options = {n: f"{x:.4g}" if isinstance(x, float) else x for n, x in plan["options"].items()}
    words = " ".join(f"{name}={value}" for name, value in options.items())
    mode = f"{plan['mode']} ({words})" if words else plan["mode"]
    source = fit_line("as ", plan["mode_source"], " states") if plan["mode_source"] else ""
    # two lines rather than a cut path
    if source and len(mode) + 2 + len(source) > WIDTH:
        lines += [f"{mode},", source]
    else:
        lines.append(", ".join(filter(None, [mode, source])))
    lines += [f"--{name.replace('_', '-')} {value}" for name, value in plan["commands"].items()]
    dt = plan["dt"] if isinstance(plan["dt"], str) else f"{plan['dt']:g} s"
    lines.append(fit_line(f"dt {dt}, from ", plan["dt_source"]))
    if not recorded:
        lines.append(fit_line("start from ", plan["start"]))
    lines.append(f"on {plan['device']} by {plan['backend']}: {plan['device_reason']}")
    return lines


def smoothing_lines(report: dict[str, Any]) -> list[str]:
    smoothing = report.get("smoothing")
    # rotations have their cutoffs in OUT alone
    if smoothing is None or not smoothing["bandlimit"]:
        return []
    ranges = []
    for name in ("bandlimit", "residual"):
        values = [end for ends in smoothing[name] if ends for end in ends]
        if not values:
            return ["dofs that do not move have no cutoff"]
        least, most = (f"{end:.3g}" for end in (min(values), max(values)))
        ranges.append(least if least == most else f"{least} to {most}")
    line = f"cutoff {ranges[0]} Hz, residuals {ranges[1]}"
    rows = sum(smoothing["reweighted"])
    line += f", {count_text(rows, 'row')} with less weight" if rows else ""
    # the natural ends of the spline reach in for half a period of the lowest cutoff
    lowest = min(end for ends in smoothing["bandlimit"] if ends for end in ends)
    return [line, f"derivatives within {0.5 / lowest:.2g} s of the ends are less certain"]
