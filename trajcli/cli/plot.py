"""trajcli plot: a figure of trajectories, or of the peaks of a batch."""

from __future__ import annotations

from trajcli.cli import options
from trajcli.cli.console import Console, Progress, bytes_text, counted

EXAMPLE = """
Examples, on files in sample_data:

    trajcli plot sample_data/reach.h5 --index 3 --limits sample_data/limits.toml -o reach.png --overwrite

    trajcli plot sample_data/reach.h5 --histogram --limits sample_data/limits.toml -o peaks.svg --overwrite
"""  # noqa: E501


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
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Draw position, velocity, acceleration and jerk over time, as .png, .svg or .pdf.

    Trajectories, and several files, are drawn over each other; limits are bands, and what is
    beyond them is marked. With --histogram the peaks of all trajectories of one file, of positions
    the least and the largest.
    Needs matplotlib: pip install matplotlib.
    """
    from trajcli.files.atomic_output import new_file
    from trajcli.files.limits import read_limits
    from trajcli.files.reader import Files
    from trajcli.files.refusals import refuse_input, refuse_place
    from trajcli.views import figures
    from trajcli.views.histogram import draw_peaks
    from trajcli.views.plot import Line, Peaks, lines, panels, peaks, selections

    console = Console(json, quiet)
    figures.require_format(out)
    refuse_place(out, overwrite, folder=False)
    matplotlib = figures.require_matplotlib()
    table = read_limits(limits) if limits else None
    with Files(allow_external, untrusted) as files, Progress(not quiet) as progress:
        chosen = selections(files, source, index, dof, table)
        refuse_input(out, [*files.paths(), *([limits] if limits else [])])
        with figures.settings(matplotlib), new_file(out, overwrite) as hidden:
            drawn: list[Line] | list[Peaks]
            if histogram:
                drawn = [peak for one in chosen for peak in peaks(one, progress)]
                figure = draw_peaks(drawn, chosen, title)
            else:
                drawn = [line for one in chosen for line in lines(one)]
                figure = figures.draw_lines(drawn, chosen, title)
            figures.save(figure, hidden, out.suffix)
            files.sources.require_unchanged()
    names = list(panels(drawn))
    beyond = sum(one.beyond for one in drawn)
    size = out.stat().st_size
    text = f"{out}: {', '.join(names)}, {bytes_text(size)}"
    if any(one.bounds is not None for one in drawn):
        count = f"{counted(beyond, 'value')}" if beyond else "no value"
        text += f", {count} beyond limits"
    console.say(text)
    console.document({"out": str(out), "quantities": names, "bytes": size, "beyond_limits": beyond})
