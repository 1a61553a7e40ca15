"""trajcli retime: times trajectories within limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from trajcli.cli import options
from trajcli.cli.console import WIDTH, Console, bytes_text, source_lines

EXAMPLE = f"""
Examples, on the files in sample_data:

    {options.EXAMPLE_RUN} -o out.h5

    trajcli retime out.h5 --limits sample_data/limits.toml -o retimed.h5

    trajcli retime sample_data/waypoints.csv --limits sample_data/limits.toml -o fast.h5
"""

# Limits that bind for less than this share of the time are not listed: they would print as 0 %.
_LEAST = 0.005
# How timings that are not solved are described.
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
    describe = _paces if result["method"] == "uniform" else _timings
    console.say(
        *source_lines(result),
        # a single trajectory has the room for all that is known of it
        *describe(result, verbose or result["trajectories"] == 1),
        f"{result['out']}: {bytes_text(result['bytes_written'])}",
    )
    return console.finish(result)


def _paces(result: dict[str, Any], verbose: bool) -> list[str]:
    """Says the factors of time and, ``verbose``, which limit binds each trajectory and when."""
    reasons = ", ".join(f"{name}: {count}" for name, count in result["limited_by"].items())
    paces = dict.fromkeys(f"{result['factor'][end]:.6g}" for end in ("least", "most"))
    lines = [f"time × {' to '.join(paces)} · limited by {reasons}"]
    binding = result["binding"]
    for k, name in enumerate(binding["trajectory"] if verbose else ()):
        quantity, joint, when = (binding[key][k] for key in ("quantity", "joint", "time"))
        bound = f"{quantity} of {joint} binds at {when:.6g} s" if quantity else "nothing binds"
        # the slack of a limit is the share of it that the fastest pace leaves unused
        others = {n: share[k] for n, share in result["slack"].items() if n != quantity}
        slack = ", ".join(f"{n} {100 * share:.1f} %" for n, share in others.items())
        factor = f"{name}: time × {result['factors'][k]:.6g}, "
        pace = factor if result["trajectories"] > 1 else ""
        lines.append(pace + bound + (f"; slack: {slack}" if slack else ""))
    return lines


def _timings(result: dict[str, Any], verbose: bool) -> list[str]:
    """Says how long the fastest timings take in all, which limits bind for how much of the time,
    and which timings are not solved; with ``verbose`` also for each trajectory."""
    names, states = result["trajectory"], result["states"]
    lines = list(_timing(result, range(len(names)), None if len(names) == 1 and verbose else 4))
    if len(names) > 1:
        durations = result["durations"]["after"]
        longest = max(durations)
        lines[0] += f"; the longest takes {longest:.2f} s: {names[durations.index(longest)]}"
    for state, count in Counter(states).items():
        share = f": {count} of {len(names)}" if len(names) > 1 else ""
        lines += [_STATES[state] + share] if state in _STATES else []
    lines = [part for line in lines for part in wrap(line, WIDTH, subsequent_indent="  ")]
    for k, name in enumerate(names if verbose and len(names) > 1 else ()):
        pace, binding = _timing(result, [k], 2)
        lines.append(f"{name}: {pace}, {_STATES.get(states[k], states[k])}; {binding}")
    return lines


def _timing(result: dict[str, Any], indices: Sequence[int], most: int | None) -> tuple[str, str]:
    """Says how long these trajectories take, and which limits bind for the largest mean shares of
    the time, at most ``most`` of them."""
    durations, shares = result["durations"], dict[str, float]()
    before, after, uniform = (
        sum(durations[key][k] or 0.0 for k in indices) for key in ("before", "after", "uniform")
    )
    for quantity, rows in result["shares"].items():
        for joint, *column in zip(result["joints"], *(rows[k] for k in indices), strict=True):
            shares[f"{quantity} of {joint}"] = sum(column) / max(len(indices), 1)
    binding = sorted((x for x in shares if shares[x] >= _LEAST), key=lambda x: -shares[x])[:most]
    listed = ", ".join(f"{name} {100 * shares[name]:.0f} %" for name in binding)
    pace = f"{before:.2f} s → {after:.2f} s" if before else f"{after:.2f} s"
    return f"{pace} (uniform scaling: {uniform:.2f} s)", f"binds: {listed or 'nothing'}"
