"""trajcli check: checks whether a file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trajcli.cli import options
from trajcli.cli.console import Console, Progress, opened

EXAMPLE = """
Examples, on files in sample_data (the first makes what the second checks):

    trajcli integrate sample_data/reach.h5 --mode jerk --scheme zoh -o out.h5 --overwrite

    trajcli check out.h5 --limits sample_data/limits.toml
"""


@options.reading
def check(
    source: options.Sources,
    limits: options.LimitsFile = None,
    recompute: options.Recompute = False,
    velocity_of: options.VelocityOf = None,
    verbose: options.Verbose = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    **reading: Any,
) -> int:
    """Check whether a file holds and keeps limits; exit 1 if not.

    Values must be finite, time stamps must increase, row 0 must be the start state, and joints
    must keep their limits. With --recompute an output is computed again and compared.

    Quantities that a file lacks are central differences of its positions. Limits that cannot be
    checked fail. A limit may be exceeded by a billionth of its size (float32: a millionth), which
    is rounding. Of rotations norms must be 1, and rates keep [angular_velocity] and so on.
    """
    from trajcli.files.opening import Files
    from trajcli.files.reading import Reading
    from trajcli.files.source import parse_source
    from trajcli.views.check import check_source, report
    from trajcli.views.findings import StartRows, recompute_finding
    from trajcli.views.trajectories import expand_globs

    how, console, reports = Reading(**reading), Console(json, quiet), []
    if velocity_of is not None and "=" in velocity_of:
        velocity_of, _, velocities = velocity_of.partition("=")
        source = [f"{file}:{velocities}" for file in source]
    for text in expand_globs(source):
        path = parse_source(text).path
        with opened(how, quiet) as (files, progress):

            def start_of(files: Files = files, path: Path = path) -> StartRows | str:
                from trajcli.jobs.recompute import start_rows

                return start_rows(files, path)

            episodes = how.episodes
            findings = check_source(files, text, start_of, limits, episodes, velocity_of, progress)
        console.remark(*files.notes)
        if recompute:
            from trajcli.jobs.recompute import recompute as compare

            with Progress(not quiet) as progress:
                again = compare(path, how.allow_external, progress)
            findings += [recompute_finding(**vars(variable)) for variable in again]
        passed = all(finding.passed is not False for finding in findings)
        checks = [finding.as_dict(verbose) for finding in findings]
        reports.append({"file": text, "passed": passed, "checks": checks})
        for part in report(text, findings, verbose) if not (json or quiet) else ():
            console.show(part)
    console.document({"files": reports})
    return 0 if all(report["passed"] for report in reports) else 1
