"""trajcli plot: draws trajectories, or the peaks or scores of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trajcli.cli import options
from trajcli.cli.console import Console, bytes_text

EXAMPLE = """
Examples, on files in sample_data:

    trajcli plot sample_data/reach.h5 --episodes 3 --limits sample_data/limits.toml -o reach.png --overwrite

    trajcli plot sample_data/reach.h5 --histogram --limits sample_data/limits.toml -o peaks.svg --overwrite

    trajcli plot sample_data/reach.h5 --score p95_jerk -o jerk.png --overwrite
"""  # noqa: E501


@options.command(options.READING | {"episodes": options.PlotEpisodes})
def plot(
    console: Console,
    source: options.Sources,
    out: options.Figure,
    limits: options.LimitsFile = None,
    histogram: options.Histogram = False,
    score: options.ScoreName = None,
    title: options.Title = None,
    size: options.FigureSize = None,
    labels: options.FileLabels = None,
    to_units: options.ToUnits = None,
    overwrite: options.Overwrite = False,
    **reading: Any,
) -> None:
    """Draw position, velocity, acceleration and jerk over time.

    FIG is .png, .svg or .pdf. Several trajectories and files share the panels, commands are
    dashed, and limits (those of FILE, else those that retime kept) are bands, at which lines are
    heavy. --histogram draws the peaks of all trajectories of a file, and the smallest and largest
    positions; --score draws one of their scores. This needs matplotlib: pip install matplotlib.
    """
    from trajcli.errors import InputError, UsageError, unknown
    from trajcli.files.atomic_output import new_file, refuse_input, refuse_path
    from trajcli.files.limits import read_limits
    from trajcli.units import parse_option
    from trajcli.views import figures
    from trajcli.views.plot import panels, plot_sources, read_lines, short_labels
    from trajcli.views.score import score_source

    if out.suffix.lower() not in figures.UNDATED:
        expected, ending = "FIG.png, FIG.svg or FIG.pdf", out.suffix or "no ending"
        raise UsageError(unknown("kind of figure", where=out, choices=expected, found=ending))
    inches = None if size is None else figures.parse_size(size)
    units = parse_option(to_units, "--to-units")
    if to_units is not None and (score is not None or (histogram and units.time)):
        expected = "none: scores are in SI" if score else "none of time, in a histogram"
        raise UsageError("units of what is not drawn", where="--to-units", expected=expected)
    refuse_path(out, overwrite)
    # a missing matplotlib is reported before a long read
    matplotlib = figures.require_matplotlib()
    with console.open_files(reading) as files:
        table = read_limits(limits, files.sources) if limits else None
        files.register_sources(source)
        chosen = plot_sources(files, source, table, labels, units)
        refuse_input(out, [*files.paths(), *([limits] if limits else [])])
        with figures.settings(matplotlib), new_file(out, overwrite) as hidden:
            drawn: Sequence[Any] = []
            matched, report = list[Any](), files.report
            if score is not None:
                names = short_labels(chosen)
                scored = {
                    label: score_source(files, str(plotted.origin), table)
                    for label, plotted in zip(names, chosen, strict=True)
                }
                heading = ("" if names[1:] else names[0]) if title is None else title
                figure = figures.draw_score(scored, score, heading)
            elif histogram:
                drawn = [peaks for plotted in chosen for peaks in plotted.peaks(files.report)]
                figure = figures.draw_peaks(drawn, chosen, title)
            else:
                drawn = read_lines(chosen, report)
                figure = figures.draw_lines(drawn, chosen, title)
            # limits that match no joint that is drawn are a mistake
            bounded = score is not None or any(member.bounds is not None for member in drawn)
            if limits is not None and not bounded:
                quantities = ", ".join(dict.fromkeys(member.quantity for member in drawn))
                what, expected = "no limits of what is drawn", f"limits of {quantities}"
                hint = "leave --limits out, or plot what trajcli differentiate makes of positions"
                raise InputError(what, where=str(limits), expected=expected, hint=hint)
            for recording in (plotted.main for plotted in chosen):
                if table is not None:
                    report.add_notes(*table.remarks(recording.dof_labels, recording.dofs))
                    matched += table.matched(recording.dof_labels, recording.dofs)
            figures.save(figure, hidden, out.suffix, inches)
            # a source that changed meanwhile is an error before FIG appears
            files.sources.require_unchanged()
    console.remark(*report.notes)
    shown, count = [score] if score is not None else list(panels(drawn)), out.stat().st_size
    console.say(f"{out}: {', '.join(shown)}, {bytes_text(count)}")
    result = {"out": str(out), "quantities": shown, "notes": report.notes, "matched": matched}
    console.write_document(result | {"bytes": count})
