"""trajcli operator: a mode as matrices."""

from __future__ import annotations

from trajcli.cli import options
from trajcli.cli.console import Console, bytes_text

EXAMPLE = """
Example:

    trajcli operator --mode jerk --horizon 30 --dt 0.02 -o jerk.npz
"""


def operator(
    horizon: options.Horizon,
    out: options.Out,
    mode: options.Mode = "acceleration",
    scheme: options.Scheme = None,
    ends: options.Ends = None,
    window: options.Window = None,
    degree: options.Degree = None,
    steps: options.Steps = None,
    frames: options.Frames = None,
    convention: options.Convention = None,
    dt: options.Dt = None,
    rate: options.Rate = None,
    times: options.Times = None,
    start: options.FirstOrNone = None,
    sparse: options.Sparse = False,
    overwrite: options.Overwrite = False,
    durable: options.Durable = False,
    allow_external: options.AllowExternal = False,
    untrusted: options.Untrusted = False,
    json: options.Json = False,
    json_schema: options.JsonSchema = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a mode as matrices, for one dof: x = A·u + C·s (+ G·g).

    x [4·T] is T rows of position, then of velocity, acceleration and jerk.

    u [H] are the actions; s and g [4] position, velocity, acceleration and jerk of the start
    and (with --ends goal) of the goal state.
    """
    typed = dict(locals())
    from trajcli.jobs.operator import OperatorRequest, write_operator

    console = Console(json, quiet)
    typed["options"] = options.of_mode(typed)
    report = write_operator(options.request(OperatorRequest, typed))
    chosen = " ".join(f"{name}={value}" for name, value in report["options"].items())
    console.say(
        f"{report['mode']} ({chosen}): {horizon} actions, {report['rows']} rows, "
        f"dt from {report['dt_source']}",
        *(
            f"{name} [{rows}, {columns}], {report['nonzero'][name]} entries not zero"
            for name, (rows, columns) in report["matrices"].items()
        ),
        f"{out}: {bytes_text(report['bytes_written'])}",
    )
    console.warn(*report["notes"])
    console.document(report)
