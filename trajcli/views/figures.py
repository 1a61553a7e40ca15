"""Figures: quantities over time one above the other, or histograms of peaks. Needs matplotlib.

The same data and options give the same bytes. Nothing is shown on a screen, and no settings of
the user's are read.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, UsageError
from trajcli.files.source import Source
from trajcli.views.drawing import Line, Peaks, panels

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""M. Okabe and K. Ito's colours, which colour-blind readers tell apart; without the yellow, which
is too faint on paper."""
_STYLES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
_STEPS = {"": "default", "into": "steps-pre", "out of": "steps-post"}
RED = "#C00000"
_GREY = "#999999"
_MOST_NAMED = 12
"""So many trajectories are named in a legend."""
_MOST_TITLED, MOST_FILES = 6, 3
"""So many trajectories and files are named in a title."""
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
        hint = "pip install matplotlib"
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


@dataclass(frozen=True)
class Look:
    """How trajectories are told apart: by dashes where no files or dofs are, and by opacity."""

    trajectories: Sequence[str]
    dashed: bool

    @staticmethod
    def of(lines: Sequence[Line]) -> Look:
        """The look of all lines of a figure."""
        names = list(dict.fromkeys(line.trajectory for line in lines))
        taken = any(line.source or max(line.numbers, default=0) >= len(COLOURS) for line in lines)
        return Look(names, not taken)

    def style(self, line: Line, number: int) -> Any:
        """The dashes of a dof."""
        if not self.dashed:
            return style_of(line.source, number)
        return _STYLES[self.trajectories.index(line.trajectory) % len(_STYLES)]

    def opacity(self, line: Line) -> float:
        """From 1, the first, to what is still seen, the last."""
        each = len(_STYLES) if self.dashed else 1
        last = (len(self.trajectories) - 1) // each
        place = self.trajectories.index(line.trajectory) // each
        return 1.0 - 0.7 * place / max(last, 1)

    def marks(self, lines: Sequence[Line]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """What the legend says: all trajectories, of many the first and the last."""
        if len(self.trajectories) < 2:
            return
        first = {line.trajectory: line for line in reversed(lines)}
        names = self.trajectories
        for name in names if len(names) <= _MOST_NAMED else (names[0], names[-1]):
            line = first[name]
            about = {"color": "#444444", "ls": self.style(line, 0) if self.dashed else "-"}
            yield f"trajectory {name}", {**about, "alpha": self.opacity(line)}


def draw_lines(lines: Sequence[Line], sources: Sequence[Source], title: str | None) -> Any:
    """A figure of quantities over time, stacked, with a shared time axis."""
    stacked = panels(lines)
    look = Look.of(lines)
    figure, axes = new_figure(len(stacked), 1, 1.55, sharex=True)
    for axis, (quantity, members) in zip(axes, stacked.items(), strict=True):
        _stack(axis, quantity, members, look)
    axes[-1].set_xlabel("time (s)" if lines[0].timed else "row")
    _margins(axes[-1], lines)
    figure.align_ylabels(axes)
    title = _title(lines, sources) if title is None else title
    finish(figure, lines, sources, title, [*look.marks(lines), *_marks(lines)])
    return figure


def _title(lines: Sequence[Line], sources: Sequence[Source]) -> str:
    """Which trajectories of which files."""
    told: dict[str, list[str]] = {}
    for source, name in enumerate(short_names(sources)):
        told.setdefault(_which([line for line in lines if line.source == source]), []).append(name)
    return "; ".join(f"{few(names, MOST_FILES)}, {which}" for which, names in told.items())


def _which(lines: Sequence[Line]) -> str:
    """trajectory 3, trajectories 0 to 4, trajectories 2, 5, 7 and 3 more."""
    names = list(dict.fromkeys(line.trajectory for line in lines))
    if len(names) < 2:
        return f"trajectory {names[0]}" if names else "no rows"
    numbers = [int(name) if name.isdecimal() else -2 for name in names]
    if len(names) > 2 and all(b == a + 1 for a, b in pairwise(numbers)):
        return f"trajectories {names[0]} to {names[-1]}"
    return f"trajectories {few(names, _MOST_TITLED)}"


def few(names: Sequence[str], most: int) -> str:
    """Names as a list, of many the first."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def new_figure(rows: int, columns: int, height: float, **more: Any) -> tuple[Any, list[Any]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, height * rows + 0.75), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, **more)
    return figure, list(axes.ravel())


def _stack(axis: Any, quantity: str, members: Sequence[Line], look: Look) -> None:
    """One quantity of all trajectories and files."""
    thin = 1.0 if len(members) < 4 else 0.7
    for line in members:
        for i, number in enumerate(line.numbers):
            axis.plot(
                line.time,
                line.values[:, i],
                color=colour_of(number),
                linestyle=look.style(line, number),
                linewidth=thin,
                alpha=look.opacity(line),
                drawstyle=_STEPS[line.held],
                gid=f"{quantity}/{line.dofs[i]}",
            )
    for line in members:
        _ends(axis, line)
    _limits(axis, members)
    for line in members:
        _violations(axis, line)
    beyond = sum(line.outside for line in members)
    unit = unit_text(members[0].unit)
    axis.set_ylabel(f"{quantity}\n({unit})" if unit else quantity)
    if beyond:
        said = f"{beyond} value{'s' * (beyond > 1)} beyond limits"
        axis.set_title(said, loc="right", color=RED, pad=2)


def _ends(axis: Any, line: Line) -> None:
    """Where a trajectory begins and ends, and the goal that the file gives."""
    if not len(line.time):
        return
    for i, number in enumerate(line.numbers):
        about = {"color": colour_of(number), "linestyle": "none", "clip_on": False, "zorder": 4}
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
                colour = colour_of(number)
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


def _violations(axis: Any, line: Line) -> None:
    """What is beyond limits: underlaid, with a mark at the worst of each stay."""
    beyond = line.beyond
    for i in np.flatnonzero(beyond.any(axis=0)).tolist():
        gid = f"beyond/{line.quantity}/{line.dofs[i]}"
        values = np.where(beyond[:, i], line.values[:, i], np.nan)
        under = {"color": RED, "lw": 4.0, "alpha": 0.35, "zorder": 1.5, "gid": f"{gid}/part"}
        axis.plot(line.time, values, drawstyle=_STEPS[line.held], **under)
        at = _worst(line, i)
        axis.plot(
            line.time[at], values[at], "x", color=RED, ms=5, mew=1.1, ls="none", zorder=5, gid=gid
        )


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


def colour_of(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def style_of(source: int, number: int) -> Any:
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
            ("beyond a limit", {"color": RED, "marker": "x", "ms": 5, "linestyle": "none"})
        )
    return marks


def finish(
    figure: Any,
    lines: Sequence[Line] | Sequence[Peaks],
    sources: Sequence[Source],
    title: str | None,
    marks: Sequence[tuple[str, Mapping[str, Any]]],
) -> None:
    """The legend above all, and the title."""
    from matplotlib.lines import Line2D

    handles = []
    names = {n: name for line in lines for n, name in zip(line.numbers, line.dofs, strict=True)}
    for number, name in sorted(names.items()):
        style = style_of(0, number)
        handles.append(Line2D([], [], color=colour_of(number), ls=style, label=plain(name)))
    if len(sources) > 1:
        for source, name in enumerate(short_names(sources)):
            handles.append(
                Line2D([], [], color="#444444", ls=style_of(source, 0), label=plain(name))
            )
    for label, about in marks:
        handles.append(Line2D([], [], label=label, **about))
    if handles or title:
        figure.legend(
            handles=handles,
            title=plain(title) if title else None,
            title_fontsize=9,
            loc="outside upper center",
            ncols=_legend_columns(len(handles)),
            columnspacing=1.2,
            handlelength=1.8,
        )


def short_names(sources: Sequence[Source]) -> Sequence[str]:
    """Names of files without their folders, unless they need them to differ."""
    names = [str(source._replace(path=Path(source.path.name))) for source in sources]
    return names if len(set(names)) == len(names) else [str(source) for source in sources]


def _legend_columns(count: int) -> int:
    """As few rows as fit, filled evenly."""
    return max(1, -(-count // -(-max(count, 1) // 6)))


def unit_text(text: str) -> str:
    """rad/s^2 as rad/s²."""
    return plain(text).replace("^2", "²").replace("^3", "³")


def plain(text: str) -> str:
    """A text without what matplotlib would read as mathematics or leave out of a legend."""
    return text.replace("$", r"\$").lstrip("_") or text


def save(figure: Any, path: Path, suffix: str) -> None:
    """Write a figure in the format of a suffix, whatever the file is called."""
    metadata = _FORMATS[suffix.lower()]
    figure.savefig(path, format=suffix.lower()[1:], metadata=metadata)


def settings(matplotlib: Any) -> Any:
    """A context with the same settings everywhere, whatever the user's are."""
    return matplotlib.rc_context({**matplotlib.rcParamsDefault, **_SETTINGS, "backend": "Agg"})
