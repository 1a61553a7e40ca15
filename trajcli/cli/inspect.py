"""trajcli inspect: what is in a file."""

from __future__ import annotations

import sys
from typing import Any

import typer
from typer.core import TyperCommand

from trajcli.cli import options, parsing
from trajcli.cli.console import Console, Progress, bytes_text

EXAMPLE = """
Examples, on files in sample_data:

    trajcli inspect sample_data/reach.h5

    trajcli inspect sample_data/reach.h5 --index 3 --dof 0,1 --rows 0:5

    trajcli inspect sample_data/reach.h5 --value reference/position[3,-1,2]
"""


class _Inspect(TyperCommand):
    """A command whose --rows may stand alone: then it means all rows, as "all" does."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for i, word in enumerate(args):
            following = args[i + 1] if i + 1 < len(args) else ""
            if word == "--rows" and following != "all" and not parsing.is_slice(following):
                args = [*args[:i], "--rows=:", *args[i + 1 :]]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("inspect", epilog=EXAMPLE, cls=_Inspect)(inspect)


def inspect(
    source: options.Sources,
    index: options.InspectIndex = None,
    dof: options.Dof = None,
    rows: options.Rows = None,
    value: options.Value = None,
    full: options.Full = False,
    allow_external: options.AllowExternal = False,
    untrusted: options.Untrusted = False,
    no_progress: options.NoProgress = False,
    config: options.Config = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show what is in a file: datasets, ranges, peaks, states, a plot.

    Per dof the range and the peaks of velocity, acceleration and jerk, and when they are; NaN and
    Inf and where; start and end state; how well the relation of the mode holds. Ranges and peaks
    are of all trajectories or those of --index; states and the plot are of the first of them.

    Of a large file a sample is looked at, unless --full.
    """
    from trajcli.files.source import expand_files, parse_source
    from trajcli.views.datasets import Wish
    from trajcli.views.inspection import describe
    from trajcli.views.screen import Screen, within
    from trajcli.views.summary import summarise

    console = Console(json, quiet)
    sources = [found for text in source for found in expand_files(parse_source(text))]
    if value is not None:
        _print_values(console, sources, value, allow_external, untrusted)
        return
    wish = Wish(index, dof, rows, full, allow_external, untrusted)
    screen = Screen.of(sys.stderr if json else sys.stdout)
    reports = []
    for found in sources:
        with Progress(full and not (no_progress or quiet), "blocks") as progress:
            summary = summarise(found, wish, progress)
        reports.append(summary.report)
        if not (json or quiet):
            lines = describe(summary, bytes_text(summary.report["bytes"]), screen)
            for line in within(lines, screen):
                console.say(line)
    console.document(reports[0] if len(reports) == 1 else {"files": reports})


def _print_values(
    console: Console, sources: Any, text: str, allow_external: bool, untrusted: bool
) -> None:
    """One number and nothing else, for scripts: all its digits."""
    from trajcli.views.number import read_number

    for source in sources:
        found = read_number(source, text, allow_external, untrusted)
        if console.as_json:
            console.document({"file": str(source.path), "value": found})
        else:
            print(found)
