"""Figures: quantities over time one above the other, or histograms of peaks. Needs matplotlib.

The same data and options give the same bytes. Nothing is shown on a screen, and no settings of
the user's are read.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, UsageError
from trajcli.views.drawing import Line, Peaks, panels

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""M. Okabe and K. Ito's colours, which colour-blind readers tell apart; without the yellow, which
is too faint on paper."""
_STYLES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
_RED = "#C00000"
_GREY = "#999999"
_WIDTH = 7.0
"""Inches: the width of a page of two columns."""
_SETTINGS = {
    "font.size": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 8,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.0,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "svg.hashsalt": "trajcli",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
}
_FORMATS: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def require_format(path: Path) -> None:
    """Raise UsageError where the name of a figure is of no kind that can be drawn."""
    if path.suffix.lower() not in _FORMATS:
        expected = "FIG.png, FIG.svg or FIG.pdf"
        raise UsageError(
            Fault("unknown kind of figure", str(path), expected, path.suffix or "none")
        )


def require_matplotlib() -> Any:
    """The library, with its own defaults; raises UsageError with the line that installs it."""
    _keep_out_of_home()
    try:
        import matplotlib
    except ImportError as error:
        hint = "pip install 'trajcli[plot]'"
        raise UsageError(Fault("no matplotlib here", "plot", found=str(error), hint=hint)) from None
    return matplotlib


def _keep_out_of_home() -> None:
    """Where matplotlib has no cache of fonts yet, it makes one in a folder that goes with us."""
    if "MPLCONFIGDIR" in os.environ:
        return
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "matplotlib"
    if not any(cache.glob("fontlist*.json")):
        folder = tempfile.mkdtemp(prefix="trajcli-matplotlib-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        os.environ["MPLCONFIGDIR"] = folder


def draw_lines(lines: Sequence[Line], sources: Sequence[str], title: str | None) -> Any:
    """A figure of quantities over time, stacked, with a shared time axis."""
    stacked = panels(lines)
    figure, axes = _figure(len(stacked), 1, 1.55, sharex=True)
    for axis, (quantity, members) in zip(axes, stacked.items(), strict=True):
        _stack(axis, quantity, members)
    axes[-1].set_xlabel("time (s)" if lines[0].timed else "row")
    _margins(axes[-1], lines)
    figure.align_ylabels(axes)
    _finish(figure, lines, sources, title, _marks(lines))
    return figure


def _figure(rows: int, columns: int, height: float, **more: Any) -> tuple[Any, list[Any]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, height * rows + 0.75), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, **more)
    return figure, list(axes.ravel())


def _stack(axis: Any, quantity: str, members: Sequence[Line]) -> None:
    """One quantity of all trajectories and files."""
    thin = 1.0 if len(members) < 4 else 0.7
    faint = 1.0 if len(members) < 9 else 0.5
    for line in members:
        for i, number in enumerate(line.numbers):
            axis.plot(
                line.time,
                line.values[:, i],
                color=_colour(number),
                linestyle=_style(line.source, number),
                linewidth=thin,
                alpha=faint,
                drawstyle="steps-pre" if line.held else "default",
                gid=f"{quantity}/{line.dofs[i]}",
            )
    for line in members:
        _ends(axis, line)
    _limits(axis, members)
    beyond = sum(_violations(axis, line) for line in members)
    unit = _unit(members[0].unit)
    axis.set_ylabel(f"{quantity}\n({unit})" if unit else quantity)
    if beyond:
        said = f"{beyond} value{'s' * (beyond > 1)} beyond limits"
        axis.set_title(said, loc="right", color=_RED, pad=2)


def _ends(axis: Any, line: Line) -> None:
    """Where a trajectory begins and ends, and the goal that the file gives."""
    if not len(line.time):
        return
    for i, number in enumerate(line.numbers):
        about = {"color": _colour(number), "linestyle": "none", "clip_on": False, "zorder": 4}
        first, last = line.values[0, i], line.values[-1, i]
        axis.plot(line.time[:1], [first], "o", ms=3.2, mfc="white", mew=0.8, **about)
        axis.plot(line.time[-1:], [last], "s", ms=2.8, **about)
        if line.goal is not None:
            axis.plot(line.time[-1:], [line.goal[i]], "*", ms=7, mfc="none", mew=0.7, **about)


def _limits(axis: Any, members: Sequence[Line]) -> None:
    """What is allowed, as bands; on the right edge whose limit each is."""
    low, high = _extent(members)
    room = 0.06 * (high - low)
    bands = {}
    for line in members:
        if line.bounds is not None:
            for i, number in enumerate(line.numbers):
                bands[number] = float(line.bounds.lower[i]), float(line.bounds.upper[i])
    shown = [edge for band in bands.values() for edge in band if np.isfinite(edge)]
    near = [edge for edge in shown if low - (high - low) <= edge <= high + (high - low)]
    bottom, top = min([low, *near]) - room, max([high, *near]) + room
    for lower, upper in sorted(set(bands.values())):
        axis.axhspan(
            max(lower, bottom), min(upper, top), color="#0072B2", alpha=0.05, lw=0, zorder=0
        )
        for edge in (lower, upper):
            if bottom <= edge <= top:
                axis.axhline(edge, color=_GREY, lw=0.6, ls=(0, (6, 3)), zorder=1)
    for place, (number, band) in enumerate(sorted(bands.items())):
        for edge in band:
            if bottom <= edge <= top:
                across = [1.003 + 0.005 * place, 1.0075 + 0.005 * place]
                where = axis.get_yaxis_transform()
                colour = _colour(number)
                axis.plot(across, [edge] * 2, transform=where, color=colour, clip_on=False, lw=1.8)
    axis.set_ylim(bottom, top)


def _extent(members: Sequence[Line]) -> tuple[float, float]:
    values = np.concatenate([line.values.ravel() for line in members])
    values = values[np.isfinite(values)]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
    if high - low <= 1e-12 * max(abs(low), abs(high), 1e-300):
        middle = abs(high) or 1.0
        return low - 0.5 * middle, high + 0.5 * middle
    return low, high


def _violations(axis: Any, line: Line) -> int:
    """What is beyond limits: underlaid, with a mark at the worst of each stay; how many values."""
    beyond = line.beyond
    for i in np.flatnonzero(beyond.any(axis=0)).tolist():
        gid = f"beyond/{line.quantity}/{line.dofs[i]}"
        values = np.where(beyond[:, i], line.values[:, i], np.nan)
        axis.plot(line.time, values, color=_RED, lw=4.0, alpha=0.35, zorder=1.5, gid=f"{gid}/part")
        at = _worst(line, i)
        axis.plot(
            line.time[at], values[at], "x", color=_RED, ms=5, mew=1.1, ls="none", zorder=5, gid=gid
        )
    return int(beyond.sum())


def _worst(line: Line, i: int) -> Any:
    """The row of the largest excess in each run of rows beyond a limit."""
    assert line.bounds is not None
    beyond = line.beyond[:, i]
    edges = np.flatnonzero(np.diff(np.concatenate([[False], beyond, [False]]).astype(int)))
    values = line.values[:, i]
    excess = np.maximum(values - line.bounds.upper[i], line.bounds.lower[i] - values)
    runs = zip(edges[::2], edges[1::2], strict=True)
    return np.array([a + int(np.argmax(excess[a:b])) for a, b in runs], dtype=int)


def _margins(axis: Any, lines: Sequence[Line]) -> None:
    times = [line.time for line in lines if len(line.time)]
    first, last = min(t[0] for t in times), max(t[-1] for t in times)
    if last > first:
        axis.set_xlim(first - 0.01 * (last - first), last + 0.01 * (last - first))


def draw_peaks(peaks: Sequence[Peaks], sources: Sequence[str], title: str | None) -> Any:
    """A figure of how the largest magnitudes are distributed over the trajectories, dof by dof."""
    shown = panels(peaks)
    columns = 2 if len(shown) > 1 else 1
    most = max(len(one.numbers) for one in peaks)
    figure, axes = _figure(-(-len(shown) // columns), columns, 0.9 + 0.2 * most)
    for axis, (quantity, members) in zip(axes, shown.items(), strict=False):
        _histogram(axis, quantity, members)
    for axis in axes[len(shown) :]:
        axis.set_visible(False)
    marks: list[tuple[str, Mapping[str, Any]]] = []
    for source, name in enumerate(_short(sources) if len(sources) > 1 else ()):
        outline = {"color": "#444444", "lw": 0.9, "ls": _style(source, 0)}
        filled = {"color": "#444444", "lw": 5, "alpha": 0.75}
        marks.append((_plain(name), outline if source else filled))
    if any(one.bounds is not None for one in peaks):
        marks.append(("limit", {"color": _RED, "lw": 1.2}))
    _finish(figure, [], [], title, marks)
    return figure


def _histogram(axis: Any, quantity: str, members: Sequence[Peaks]) -> None:
    """A row of bars for each dof, all rows to one scale; its limit as a mark across the row."""
    names = {n: name for one in members for n, name in zip(one.numbers, one.dofs, strict=True)}
    rows = {number: len(names) - 1 - i for i, number in enumerate(sorted(names))}
    top = max((float(one.values.max(initial=0.0)) for one in members), default=0.0) or 1.0
    edges = np.linspace(0.0, 1.0001 * top, 41)
    counts = {
        (one.source, number): np.histogram(one.values[:, i], edges)[0]
        for one in members
        for i, number in enumerate(one.numbers)
    }
    tallest = max((int(c.max(initial=0)) for c in counts.values()), default=0) or 1
    for one in members:
        for i, number in enumerate(one.numbers):
            bars = 0.86 * counts[one.source, number] / tallest + rows[number]
            about = {"color": _colour(number), "baseline": rows[number], "zorder": 3 - one.source}
            gid = f"{quantity}/{one.dofs[i]}"
            fill = one.source == 0
            style = {"fill": fill, "alpha": 0.75 if fill else 1.0, "lw": 0 if fill else 0.9}
            style["linestyle"] = _style(one.source, 0)
            axis.stairs(bars, edges, gid=gid, **about, **style)
            _limit_mark(axis, one.bounds, i, rows[number], top)
    unit = _unit(members[0].unit)
    axis.set_xlabel(f"peak |{quantity}|" + (f" ({unit})" if unit else ""))
    axis.set_yticks(list(rows.values()), [_plain(names[number]) for number in rows])
    axis.set_ylim(-0.1, len(rows))
    axis.set_xlim(left=0)
    axis.tick_params(axis="y", length=0)
    for label in axis.get_yticklabels():
        label.set_verticalalignment("bottom")
    said = f"{len(members[0].values)} trajectories, tallest bar {tallest}"
    axis.set_title(said, loc="left", color="#444444", pad=3, fontsize=7)


def _limit_mark(axis: Any, bounds: Any, i: int, row: int, top: float) -> None:
    if bounds is None:
        return
    limit = max(abs(float(bounds.lower[i])), abs(float(bounds.upper[i])))
    if limit <= 2 * top:
        axis.plot([limit] * 2, [row, row + 0.86], color=_RED, lw=1.2, zorder=5, gid="limit")


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _style(source: int, number: int) -> Any:
    """Files differ in their dashes; so do dofs beyond the colours there are."""
    return _STYLES[(source + number // len(COLOURS)) % len(_STYLES)]


def _marks(lines: Sequence[Line]) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """What the marks in a figure of lines mean."""
    grey = {"color": "#444444", "linestyle": "none"}
    marks = [
        ("start", {**grey, "marker": "o", "ms": 3.2, "mfc": "white", "mew": 0.8}),
        ("end", {**grey, "marker": "s", "ms": 2.8}),
    ]
    if any(line.goal is not None for line in lines):
        marks.append(("goal", {**grey, "marker": "*", "ms": 7, "mfc": "none", "mew": 0.7}))
    if any(line.beyond.any() for line in lines):
        marks.append(
            ("beyond a limit", {"color": _RED, "marker": "x", "ms": 5, "linestyle": "none"})
        )
    return marks


def _finish(
    figure: Any,
    lines: Sequence[Line] | Sequence[Peaks],
    sources: Sequence[str],
    title: str | None,
    marks: Sequence[tuple[str, Mapping[str, Any]]],
) -> None:
    """The legend above all, and the title."""
    from matplotlib.lines import Line2D

    handles = []
    names = {n: name for line in lines for n, name in zip(line.numbers, line.dofs, strict=True)}
    for number, name in sorted(names.items()):
        style = _style(0, number)
        handles.append(Line2D([], [], color=_colour(number), ls=style, label=_plain(name)))
    if len(sources) > 1:
        for source, name in enumerate(_short(sources)):
            handles.append(
                Line2D([], [], color="#444444", ls=_style(source, 0), label=_plain(name))
            )
    for label, about in marks:
        handles.append(Line2D([], [], label=label, **about))
    if handles or title:
        figure.legend(
            handles=handles,
            title=_plain(title) if title else None,
            title_fontsize=9,
            loc="outside upper center",
            ncols=_legend_columns(len(handles)),
            columnspacing=1.2,
            handlelength=1.8,
        )


def _short(sources: Sequence[str]) -> Sequence[str]:
    """Names of files without their folders, unless they need them to differ."""
    names = [os.path.basename(source) for source in sources]
    return names if len(set(names)) == len(names) else sources


def _legend_columns(count: int) -> int:
    """As few rows as fit, filled evenly."""
    return max(1, -(-count // -(-max(count, 1) // 6)))


def _unit(text: str) -> str:
    """rad/s^2 as rad/s²."""
    return _plain(text).replace("^2", "²").replace("^3", "³")


def _plain(text: str) -> str:
    """A text without what matplotlib would read as mathematics or leave out of a legend."""
    return text.replace("$", r"\$").lstrip("_") or text


def save(figure: Any, path: Path, suffix: str) -> None:
    """Write a figure in the format of a suffix, whatever the file is called."""
    metadata = _FORMATS[suffix.lower()]
    figure.savefig(path, format=suffix.lower()[1:], metadata=metadata)


def settings(matplotlib: Any) -> Any:
    """A context with the same settings everywhere, whatever the user's are."""
    return matplotlib.rc_context({**matplotlib.rcParamsDefault, **_SETTINGS, "backend": "Agg"})
