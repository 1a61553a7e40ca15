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

EXAMPLE = """
Examples, on files in sample_data:

    trajcli integrate sample_data/reach.h5 --mode jerk --scheme zoh -o out.h5

    trajcli integrate sample_data/accelerations.npy --start sample_data/start.npy --dt 0.02 -o a.h5
"""


# the start state belongs to the first action: none before a window may be left out
_WHOLE = {name: kind for name, kind in options.READING.items() if name not in ("since", "until")}


@options.command(options.MODE, options.INTEGRATE, _WHOLE, options.RUN)
def integrate(console: Console, mode: options.Mode = None, **typed: Any) -> int:
    """Integrate actions from a start state into trajectories.

    SOURCE holds actions [B, H, D] (or [H, D]): B trajectories of H actions for D dofs. OUT gets
    position, velocity, acceleration and jerk [B, T, D]. `trajcli modes` explains the modes.
    """
    from trajcli.jobs.request import Request

    chosen, factor = options.mode_options(typed, options.MODE), typed.pop("grad_factor")
    return run_request(console, Request, typed, mode=mode, options=chosen, factor=factor)


def run_request(console: Console, kind: "type[Request]", typed: dict[str, Any], **own: Any) -> int:
    """Runs a request, prints its plan and its result, and returns the exit code.

    typed: the options that integrate and differentiate share. own: the other fields.
    """
    from trajcli.jobs.request import parse_shard
    from trajcli.jobs.run import run

    dry_run, text, shard = typed.pop("dry_run"), typed["write"], typed["shard"]
    typed["write"] = tuple(part.strip() for part in text.split(",") if part.strip())
    if not typed["write"]:
        what, expected = "no names", "one or more, like a,b"
        raise UsageError(what, where="--write", expected=expected, found=repr(text))
    typed["shard"] = None if shard is None else parse_shard(shard)

    def say_plan(plan: "Plan") -> None:
        settle()  # all modules of the run are loaded
        console.say(*plan_lines(plan.description))

    with console.report() as report:
        result = run(kind(**own, **typed), report, say_plan, dry_run)
    return console.finish(result, *smoothing_lines(result), last_line(result))


def plan_lines(plan: dict[str, Any]) -> list[str]:
    """Returns the first lines of a run, for 80 columns: what is read and computed, and how."""
    # differentiate has no start: its rows are recorded positions
    shape, recorded = plan["shape"], plan["start"] is None
    shortest, longest = shape["shortest"], shape["horizon"]
    count = count_text(shape["trajectories"], "trajectory", "trajectories")
    rows = count_text(longest, "row" if recorded else "action")
    rows = rows if shortest == longest else f"{shortest} to {rows}"
    more = f" and {plan['sources'] - 1} more" if plan["sources"] > 1 else ""
    layout = f" ({plan['layout']})" if plan["layout"] else ""
    size = f"{count} × {rows} × {count_text(shape['dofs'], 'dof')}"
    lines = [fit_line("", plan["source"], f"{more}{layout}: {size}"), *units_lines(plan["units"])]
    # a window of 0.30000000000000004 s is printed as 0.3
    options = {n: f"{x:.4g}" if isinstance(x, float) else x for n, x in plan["options"].items()}
    chosen = " ".join(f"{name}={value}" for name, value in options.items())
    mode = f"{plan['mode']} ({chosen})" if chosen else plan["mode"]
    source = fit_line("as ", plan["mode_source"], " states") if plan["mode_source"] else ""
    if source and len(mode) + 2 + len(source) > WIDTH:  # two lines rather than a cut path
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
    """Returns what mode smooth chose, as a line of the result."""
    about = report.get("smoothing")
    if about is None or not about["bandlimit"]:  # rotations have their cutoffs in OUT alone
        return []
    cutoffs, residuals = (
        [end for ends in about[name] if ends for end in ends] for name in ("bandlimit", "residual")
    )
    if not cutoffs:
        return ["dofs that do not move have no cutoff"]
    line = f"cutoff {_range(cutoffs)} Hz, residuals {_range(residuals)}"
    rows = sum(about["reweighted"])
    line += f", {count_text(rows, 'row')} with less weight" if rows else ""
    # half a period of the lowest cutoff: the natural ends of the spline reach so far
    return [line, f"derivatives within {0.5 / min(cutoffs):.2g} s of the ends are less certain"]


def _range(values: list[float]) -> str:
    """Returns the least and the largest of some values, in three digits."""
    least, most = (f"{end:.3g}" for end in (min(values), max(values)))
    return least if least == most else f"{least} to {most}"


def last_line(report: dict[str, Any]) -> str:
    """Returns the last line of a run: what was written, or would be."""
    if report.get("already_done"):
        return f"{report['out']}: shard {report['shard']} is done already"
    size = bytes_text(report["bytes_written"])
    if report["dry_run"]:
        return f"dry run: would write {size} to {report['out']}; nothing was written"
    count = report["shape"]["trajectories"]
    least = "" if report["shortest_rows"] == report["rows"] else "up to "
    return f"{report['out']}: {count} × {least}{report['rows']} rows, {speed_text(report)}"
