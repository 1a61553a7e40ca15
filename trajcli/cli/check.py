"""trajcli check: checks values, times, start rows and limits."""

from __future__ import annotations

from typing import Any

from trajcli.cli import options
from trajcli.cli.console import Console

EXAMPLE = f"""
Examples, on files in sample_data (the second checks what the first writes):

    {options.EXAMPLE_RUN} -o out.h5 --overwrite

    trajcli check out.h5 --limits sample_data/limits.toml
"""


@options.command(options.READING | {"quantity": options.Quantity})
def check(
    console: Console,
    source: options.Sources,
    limits: options.LimitsFile = None,
    recompute: options.Recompute = False,
    velocity_of: options.VelocityOf = None,
    rest: options.Rest = False,
    verbose: options.Verbose = False,
    skip_bad: options.SkipBad = False,
    **reading: Any,
) -> int:
    """Check values, times, motion, start rows and joint limits; exit with 1 on failure.

    Values must be finite, and time stamps must increase without gaps. Positions must not jump by a
    turn or by more than their velocity explains, nor may rows repeat while the robot moves. Row 0
    of an output must be its start state, and joints must stay within --limits: on rows and, on the
    curve by which resample joins them, between rows. --rest asks for rest at both ends. Rotations
    must have norm 1, and their rates must stay within [angular_velocity] and so on. --recompute
    computes an output again and compares.

    Quantities that a file lacks are central differences of its positions. A limit that cannot be
    checked is a failure. Exceeding a limit by a billionth of its size (float32: a millionth) is
    rounding, and passes. Of several files, one that cannot be read fails, and the others are
    checked.
    """
    from trajcli.errors import Fault
    from trajcli.files.source import parse_source
    from trajcli.views.check import Finding, check_source, recompute_finding, report
    from trajcli.views.recordings import expand_globs

    reports: list[dict[str, Any]] = []
    # --velocity-of obs/qpos=obs/qvel names both datasets of each file
    if velocity_of is not None and "=" in velocity_of:
        velocity_of, _, velocities = velocity_of.partition("=")
        source = [f"{file}:{velocities}" for file in source]
    for text in (texts := expand_globs(source)):
        # a file that cannot be read fails the check; the only one is an error instead
        unreadable, findings, notes = dict[str, Fault](), list[Finding](), list[str]()
        alone = text == texts[-1] and not any(report["checks"] for report in reports)
        with console.skip_unreadable(text, unreadable, alone), console.open_files(reading) as files:
            files.register_sources((text, velocity_of) if velocity_of else (text,))
            skipped = unreadable if skip_bad else None
            findings = check_source(files, text, start_rows, limits, velocity_of, skipped, rest)
            notes = files.report.notes
        console.remark(*notes)
        left_out = console.warn_left_out(unreadable)
        if recompute and findings:
            from trajcli.jobs.recompute import recompute as compare

            with console.report() as progress:
                variables = compare(parse_source(text).path, reading["allow_external"], progress)
            findings += [recompute_finding(**vars(variable)) for variable in variables]
        # None is a check that could not be made: reported, but no failure of the data
        passed = not left_out and all(finding.passed is not False for finding in findings)
        checks = [finding.as_dict(verbose) for finding in findings]
        reports.append({"file": text, "passed": passed, "checks": checks, "left_out": left_out})
        console.show(report(text, findings, verbose) if findings else ())
    console.write_document({"files": reports})
    return 0 if all(report["passed"] for report in reports) else 1


def start_rows(*arguments: Any) -> Any:
    """Computes the start rows of an output."""
    # imported here, as only outputs of trajcli need it, and views import no jobs
    from trajcli.jobs.recompute import start_rows

    return start_rows(*arguments)
