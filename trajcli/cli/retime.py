"""trajcli retime: stretches time so that trajectories keep limits."""

from __future__ import annotations

from typing import Any

from trajcli.cli import options
from trajcli.cli.console import Console, bytes_text, source_lines

EXAMPLE = """
Example, on the files in sample_data:

    trajcli integrate sample_data/reach.h5 --mode jerk --scheme zoh -o out.h5

    trajcli retime out.h5 --limits sample_data/limits.toml -o retimed.h5
"""


@options.command(options.WRITING, options.READING)
def retime(
    console: Console,
    limits: options.Limits,
    slower_only: options.SlowerOnly = False,
    verbose: options.VerbosePaces = False,
    **typed: Any,
) -> int:
    """Stretch time by the smallest factor that keeps limits.

    Each trajectory has a factor s of its own, which OUT holds as time_scale: velocity becomes v/s,
    acceleration a/s² and jerk j/s³; positions do not change. A factor below 1 makes a trajectory
    faster, which --slower-only prevents. FILE limits velocity, acceleration or jerk of all or some
    joints.
    """
    from trajcli.jobs.retime import RetimeRequest, run_retime

    request = RetimeRequest(limits=limits, slower_only=slower_only, **typed)
    with console.report() as report:
        result = run_retime(request, report)
    reasons = ", ".join(f"{name}: {count}" for name, count in result["limited_by"].items())
    paces = dict.fromkeys(f"{result['factor'][end]:.6g}" for end in ("least", "most"))
    console.say(
        *source_lines(result),
        f"time × {' to '.join(paces)} · limited by {reasons}",
        *(_lines(result) if verbose or result["trajectories"] == 1 else ()),
        f"{request.out}: {bytes_text(result['bytes_written'])}",
    )
    return console.finish(result)


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
