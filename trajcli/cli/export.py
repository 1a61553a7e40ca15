"""trajcli export: trajectories for other programs."""

from __future__ import annotations

import typer

from trajcli.cli import options
from trajcli.cli.console import Console, Progress, bytes_text

EXAMPLE = """
Examples, on files in sample_data:

    trajcli export sample_data/reach.h5:reference --index 3 -o reach.csv --overwrite

    trajcli export sample_data/recorded.h5 -o recorded.npz --overwrite
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("export", epilog=EXAMPLE)(export)


def export(
    source: options.OneSource,
    out: options.Export,
    index: options.Index = None,
    dof: options.Dof = None,
    rows: options.ExportRows = None,
    overwrite: options.Overwrite = False,
    allow_external: options.AllowExternal = False,
    untrusted: options.Untrusted = False,
    no_progress: options.NoProgress = False,
    config: options.Config = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write trajectories for PlotJuggler (.csv), rerun (.rrd), NumPy (.npz, .npy).

    A .csv has a column t and one for each quantity and joint: position/joint1. In an .rrd each of
    those is a scalar on the time line "time"; it needs rerun: pip install rerun-sdk.
    """
    from trajcli.files.opening import open_arrays
    from trajcli.files.placing import refuse_input, refuse_place
    from trajcli.files.source import parse_source
    from trajcli.views import exports
    from trajcli.views.motions import require_trajectories

    console = Console(json, quiet)
    exports.require_kind(out)
    refuse_place(out, overwrite, folder=False)
    if out.suffix.lower() == ".rrd":
        exports.require_rerun()
    found = parse_source(source)
    refuse_input(out, [found.path])
    with open_arrays(found.path, allow_external, untrusted) as file:
        tracks = exports.tracks_of(require_trajectories(file, found), index, dof, rows)
        with Progress(not (no_progress or quiet), "blocks") as progress:
            report = exports.write(tracks, out, overwrite, progress)
    report["bytes"] = out.stat().st_size
    count = report["trajectories"]
    which = f"{count} trajectories" if count != 1 else "1 trajectory"
    names = ", ".join(report["quantities"])
    console.say(f"{out}: {which}, {names}, {bytes_text(report['bytes'])}")
    console.document(report)
