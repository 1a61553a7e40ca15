"""trajcli differentiate: recorded positions → position, velocity, acceleration, jerk."""

from typing import Any

from trajcli.cli import options
from trajcli.cli.console import Console
from trajcli.cli.integrate import names, parse_shard, run_and_report

EXAMPLE = """
Examples, on the files in sample_data:

    trajcli differentiate sample_data/recorded.h5 -o out.h5

    trajcli differentiate sample_data/recorded.h5:position --method central -o central.h5
"""


@options.reading_recordings
def differentiate(
    source: options.Sources,
    out: options.Out,
    method: options.Differences = "savgol",
    window: options.Window = None,
    degree: options.FitDegree = None,
    skip_bad: options.SkipBad = False,
    write: options.Write = "position,velocity,acceleration,jerk",
    dtype: options.Dtype = None,
    overwrite: options.Overwrite = False,
    compress: options.Compress = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    device: options.Device = "auto",
    shard: options.Shard = None,
    allow_nonfinite: options.AllowNonfinite = False,
    **reading: Any,
) -> int:
    """Differentiate recorded positions: velocity, acceleration and jerk of every row.

    SOURCE holds positions [B, T, D] (or [T, D]) with their times. OUT gets position, velocity,
    acceleration and jerk [B, T, D]; with savgol the position is smoothed as well.
    """
    from trajcli.jobs.request import DifferentiateRequest

    request = DifferentiateRequest(
        sources=source,
        out=out,
        mode=method,
        options=options.of_mode(window=window, degree=degree),
        skip_bad=skip_bad,
        write=names(write, "--write"),
        dtype=dtype,
        overwrite=overwrite,
        compress=compress,
        device=device,
        shard=None if shard is None else parse_shard(shard),
        allow_nonfinite=allow_nonfinite,
        **reading,
    )
    return run_and_report(request, dry_run, Console(json, quiet))
