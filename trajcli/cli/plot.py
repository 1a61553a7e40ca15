"""trajcli plot: a figure of trajectories, or of the peaks of a batch."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import typer

from trajcli.cli import options
from trajcli.cli.console import Console, Progress, bytes_text, counted

EXAMPLE = """
Examples, on files in sample_data:

    trajcli plot sample_data/reach.h5 --index 3 --limits sample_data/limits.toml -o reach.png --overwrite

    trajcli plot sample_data/reach.h5 --histogram --limits sample_data/limits.toml -o peaks.svg --overwrite
"""  # noqa: E501


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("plot", epilog=EXAMPLE)(plot)


def plot(
    source: options.Sources,
    out: options.Figure,
    index: options.PlotIndex = None,
    dof: options.Dof = None,
    limits: options.LimitsFile = None,
    histogram: options.Histogram = False,
    title: options.Title = None,
    overwrite: options.Overwrite = False,
    allow_external: options.AllowExternal = False,
    untrusted: options.Untrusted = False,
    no_progress: options.NoProgress = False,
    config: options.Config = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Draw a figure of trajectories, or of the peaks of a batch.

    Position, velocity, acceleration and jerk over time, of the first trajectory or those of
    --index; several files over each other. Limits are bands, and what is beyond them is marked.
    With --histogram the peaks of all of them, of positions the least and the largest.

    Needs matplotlib: pip install matplotlib.
    """
    from trajcli.files.limits import read_limits
    from trajcli.files.opening import open_arrays
    from trajcli.files.placing import new_file, refuse_input, refuse_place
    from trajcli.files.source import expand_files, parse_source
    from trajcli.views import drawing, figures
    from trajcli.views.histograms import draw_peaks
    from trajcli.views.motions import require_trajectories

    console = Console(json, quiet)
    figures.require_format(out)
    refuse_place(out, overwrite, folder=False)
    library = figures.require_matplotlib()
    sources = [found for text in source for found in expand_files(parse_source(text))]
    given = [found.path for found in sources] + ([limits] if limits else [])
    refuse_input(out, given)
    table = read_limits(limits) if limits else None
    drawn: list[Any] = []
    with ExitStack() as stack:
        progress = stack.enter_context(Progress(not (no_progress or quiet), "blocks"))
        for number, found in enumerate(sources):
            file = stack.enter_context(open_arrays(found.path, allow_external, untrusted))
            trajectories = require_trajectories(file, found)
            if histogram:
                drawn += drawing.peaks_of(trajectories, number, index, dof, table, progress)
            else:
                drawn += drawing.lines_of(trajectories, number, index, dof, table)
    with figures.settings(library):
        figure = (draw_peaks if histogram else figures.draw_lines)(drawn, sources, title)
        with new_file(out, overwrite) as hidden:
            figures.save(figure, hidden, out.suffix)
    _tell(console, out, drawn)


def _tell(console: Console, out: Any, drawn: Any) -> None:
    """What was drawn, and where it is."""
    quantities = list(dict.fromkeys(one.quantity for one in drawn))
    beyond = sum(one.outside for one in drawn)
    limited = any(one.bounds is not None for one in drawn)
    size = out.stat().st_size
    said = f"{out}: {', '.join(quantities)}, {bytes_text(size)}"
    count = f"{counted(beyond, 'value')} beyond limits" if beyond else "no value beyond limits"
    console.say(f"{said}, {count}" if limited else said)
    report = {"out": str(out), "quantities": quantities, "bytes": size}
    console.document({**report, "beyond_limits": beyond})
