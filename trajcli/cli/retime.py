"""trajcli retime: times trajectories within limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from trajcli.cli import options
from trajcli.cli.console import WIDTH, Console, bytes_text, source_lines

EXAMPLE = """
Examples, on the files in sample_data:

    trajcli integrate sample_data/reach.h5 --mode jerk --scheme zoh -o out.h5

    trajcli retime out.h5 --limits sample_data/limits.toml -o retimed.h5

    trajcli retime sample_data/waypoints.csv --limits sample_data/limits.toml -o fast.h5
"""

# The least share of time of what binds that is listed.
_LEAST = 0.005
# What is said of timings that are not solved.
_STATES = {
    "not converged": "within limits, perhaps not the fastest",
    "uniform": "at a uniform pace",
    "does not move": "does not move",
}


@options.command(options.WRITING | options.RETIME, options.READING)
def retime(console: Console, verbose: options.VerbosePaces = False, **typed: Any) -> int:
    """Time trajectories within limits, or find the fastest timing of a path.

    uniform stretches time by the smallest factor s that keeps limits, which OUT holds as
    time_scale: velocity becomes v/s, acceleration a/s² and jerk j/s³. Below 1 it makes a trajectory
    faster, which --slower-only prevents. fastest varies the pace along the path, so that some limit
    is nearly always reached; OUT holds rows of a B-spline, and its control points as actions, the
    setpoints of a controller. Rows of positions without times, as in a CSV, are a path.
    """
    from trajcli.jobs.request import parse_shard
    from trajcli.jobs.retime import RetimeRequest, run_retime

    typed["shard"] = parse_shard(typed["shard"]) if typed["shard"] is not None else None
    with console.report() as report:
        result = run_retime(RetimeRequest(**typed), report)
    if result.get("already_done"):
        return console.finish(result, f"{result['out']}: shard {result['shard']} is done already")
    lines = _paces if result["method"] == "uniform" else _timings
    console.say(
        *source_lines(result),
        *lines(result, verbose or result["trajectories"] == 1),
        f"{result['out']}: {bytes_text(result['bytes_written'])}",
    )
    return console.finish(result)


def _paces(result: dict[str, Any], verbose: bool) -> list[str]:
    """Returns the factors of time and, ``verbose``, what binds each trajectory."""
    reasons = ", ".join(f"{name}: {count}" for name, count in result["limited_by"].items())
    paces = dict.fromkeys(f"{result['factor'][end]:.6g}" for end in ("least", "most"))
    line = f"time × {' to '.join(paces)} · limited by {reasons}"
    return [line, *(_lines(result) if verbose else ())]


def _timings(result: dict[str, Any], verbose: bool) -> list[str]:
    """Returns how long the fastest timings take in all, the mean shares of time of the limits that
    bind most, and what is not solved; of several, ``verbose``, a line of each."""
    names, states = result["trajectory"], result["states"]
    lines = list(_timing(result, range(len(names)), None if len(names) == 1 and verbose else 4))
    if len(names) > 1:
        longest = max(lasting := result["durations"]["after"])
        lines[0] += f"; the longest takes {longest:.2f} s: {names[lasting.index(longest)]}"
    for state, count in Counter(states).items():
        share = f": {count} of {len(names)}" if len(names) > 1 else ""
        lines += [_STATES[state] + share] if state in _STATES else []
    lines = [part for line in lines for part in wrap(line, WIDTH, subsequent_indent="  ")]
    for k, name in enumerate(names if verbose and len(names) > 1 else ()):
        pace, binding = _timing(result, [k], 2)
        lines.append(f"{name}: {pace}, {_STATES.get(states[k], states[k])}; {binding}")
    return lines


def _timing(result: dict[str, Any], numbers: Sequence[int], most: int | None) -> tuple[str, str]:
    """Returns how long these trajectories take, and the limits that bind for the largest mean
    shares of time: at ``most`` so many."""
    lasting, shares = result["durations"], dict[str, float]()
    before, after, uniform = (
        sum(lasting[key][k] or 0.0 for k in numbers) for key in ("before", "after", "uniform")
    )
    for quantity, of_all in result["shares"].items():
        for joint, *of_each in zip(result["joints"], *(of_all[k] for k in numbers), strict=True):
            shares[f"{quantity} of {joint}"] = sum(of_each) / max(len(numbers), 1)
    binding = sorted((x for x in shares if shares[x] >= _LEAST), key=lambda x: -shares[x])[:most]
    listed = ", ".join(f"{name} {100 * shares[name]:.0f} %" for name in binding)
    pace = f"{before:.2f} s → {after:.2f} s" if before else f"{after:.2f} s"
    return f"{pace} (uniform scaling: {uniform:.2f} s)", f"binds: {listed or 'nothing'}"


def _lines(result: dict[str, Any]) -> list[str]:
    """Returns which limit binds each trajectory and when, and the slack of the others."""
    binding, several, lines = result["binding"], result["trajectories"] > 1, []
    for k, name in enumerate(binding["trajectory"]):
        quantity, joint, when = (binding[key][k] for key in ("quantity", "joint", "time"))
        bound = f"{quantity} of {joint} binds at {when:.6g} s" if quantity else "nothing binds"
        # the slack of a limit is the share of it that the fastest pace leaves unused
        others = {n: share[k] for n, share in result["slack"].items() if n != quantity}
        left = ", ".join(f"{n} {100 * share:.1f} %" for n, share in others.items())
        pace = f"{name}: time × {result['factors'][k]:.6g}, " if several else ""
        lines.append(pace + bound + (f"; slack: {left}" if left else ""))
    return lines
