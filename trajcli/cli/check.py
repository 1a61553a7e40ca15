"""trajcli check: does a file hold?"""

from __future__ import annotations

import sys

import typer

from trajcli.cli import options
from trajcli.cli.console import Console, Progress

EXAMPLE = """
Examples, on files in sample_data (the first makes what the second checks):

    trajcli integrate sample_data/reach.h5 --mode jerk --scheme zoh -o out.h5 --overwrite

    trajcli check out.h5 --limits sample_data/limits.toml
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check", epilog=EXAMPLE)(check)


def check(
    source: options.Sources,
    limits: options.LimitsFile = None,
    start: options.CheckedStart = None,
    index: options.Index = None,
    allow_external: options.AllowExternal = False,
    untrusted: options.Untrusted = False,
    no_progress: options.NoProgress = False,
    config: options.Config = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Check that an output holds, and keeps limits; exit 1 if not.

    The relation of its mode in every row, NaN and Inf, the start row, time that rises, and limits
    of the joints.

    A limit may be passed by a billionth of its size (float32: a millionth), which is rounding.
    """
    from trajcli.files.source import expand_files, parse_source
    from trajcli.views.judgement import judgement
    from trajcli.views.screen import Screen, within
    from trajcli.views.verdicts import Asked, check_file

    console = Console(json, quiet)
    asked = Asked(limits, start, index, allow_external, untrusted)
    screen = Screen.of(sys.stderr if json else sys.stdout)
    reports = []
    for found in [one for text in source for one in expand_files(parse_source(text))]:
        with Progress(not (no_progress or quiet), "blocks") as progress:
            verdicts = check_file(found, asked, progress)
        passed = all(verdict.passed is not False for verdict in verdicts)
        checks = [verdict.as_dict() for verdict in verdicts]
        reports.append({"file": str(found), "passed": passed, "checks": checks})
        if not (json or quiet):
            for line in within(judgement(str(found), verdicts, screen), screen):
                console.say(line)
    console.document(reports[0] if len(reports) == 1 else {"files": reports})
    return 0 if all(report["passed"] for report in reports) else 1
