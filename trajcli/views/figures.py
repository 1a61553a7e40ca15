"""Draws figures with matplotlib: quantities over time, histograms of peaks and scores.

The same data and options give the same bytes. No window is opened, and the user's matplotlib
settings are not read.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import tempfile
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import UsageError, join_names
from trajcli.files.catalogue import decode_text
from trajcli.files.limits import Bounds
from trajcli.kernels.program import Floats
from trajcli.views.plot import Line, Peaks, PlotSource, line_panels, panels, short_labels
from trajcli.views.score import ScoreTable
from trajcli.views.terminal import value_range

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000",
           "#332288", "#882255", "#44AA99", "#AA4499", "#999933", "#117733", "#888888")  # fmt: skip
"""The palette of M. Okabe and K. Ito, which colour-blind readers tell apart; without the yellow,
which is too faint on paper. For a second arm, muted colours of P. Tol."""
# Files and commands are told apart by dashes, as are dofs beyond the number of colours.
_DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
_STEPS = {"": "default", "into": "steps-pre", "out of": "steps-post"}
_RED, _DARK = "#C00000", "#444444"
_BINS = 40
# The height of the tallest bar of a histogram, as a share of the row of its dof.
_BAR = 0.86
_LIMIT = {"color": _RED, "lw": 1.2}
_MEDIAN = {"color": _DARK, "lw": 1.2}
_AT_LIMIT: Any = {"color": _DARK, "lw": 2.6, "marker": "s", "ms": 2.6, "mew": 0}
# The most trajectories that a legend names one by one.
_LEGEND_ENTRIES = 12
_TITLE_TRAJECTORIES, _TITLE_FILES = 6, 3
# Inches: the text width of a page of two columns.
_WIDTH = 7.0
_PER_INCH = {"in": 1.0, "cm": 2.54, "mm": 25.4}
# Inches: smaller figures have no room for a panel, larger ones exhaust the memory.
_LEAST_SIDE, _MOST_SIDE = 1.0, 40.0
# Inches: the labels along the side of lower panels would overlap.
_LOW_PANEL = 0.85
# The largest share of a figure's height that a legend takes, and the sizes of its letters.
_LEGEND_SHARE, _LETTERS = 0.4, (8, 7, 6, 5)
_SETTINGS = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 8,
    "axes.xmargin": 0.01,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.0,
    "legend.frameon": False,
    "svg.hashsalt": "trajcli",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
    "backend": "Agg",
}
# Metadata that would differ from run to run is left out.
UNDATED: dict[str, dict[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
# A label of the legend, and the style of its line or mark.
_LegendEntry = tuple[str, Mapping[str, Any]]


def require_matplotlib() -> Any:
    if "MPLCONFIGDIR" not in os.environ:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "matplotlib"
        # Without a list of fonts matplotlib would write one into the home directory.
        if not any(cache.glob("fontlist*.json")):
            folder = tempfile.mkdtemp(prefix="trajcli-matplotlib-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            os.environ["MPLCONFIGDIR"] = folder
    try:
        import matplotlib
    except ImportError as error:
        what, hint = "matplotlib is not installed", "pip install matplotlib"
        raise UsageError(what, where="plot", found=str(error), hint=hint) from None
    return matplotlib


def settings(matplotlib: Any) -> Any:
    """Makes a context in which matplotlib has these settings, whatever the user's are."""
    return matplotlib.rc_context({**matplotlib.rcParamsDefault, **_SETTINGS})


def parse_size(text: str) -> tuple[float, float]:
    """Parses 3.5x2.6in, 9x6.5cm or 90x65mm into inches."""
    match = re.fullmatch(r"([0-9.]+) ?[x×] ?([0-9.]+) ?(in|cm|mm)", text.strip())
    with contextlib.suppress(ValueError):
        sides = [float(side) / _PER_INCH[match[3]] for side in match.group(1, 2)] if match else []
        if sides and all(_LEAST_SIDE <= side <= _MOST_SIDE for side in sides):
            return sides[0], sides[1]
    expected = f"WxH in in, cm or mm, each {_LEAST_SIDE:g} to {_MOST_SIDE:g} in, like 3.5x2.6in"
    raise UsageError("not a size", where="--size", expected=expected, found=text)


def save(figure: Any, path: Path, suffix: str, inches: tuple[float, float] | None) -> None:
    """Writes a figure of this size in the format of ``suffix``, whatever the file is called."""
    kind = suffix.lower()
    if inches is not None:
        figure.set_size_inches(inches)
    # The quantity of a low panel is written above it, where its side has no room.
    for axis in figure.axes:
        low = axis.get_position().height * figure.get_figheight() < _LOW_PANEL
        if low and axis.get_ylabel() and not axis.get_title(loc="left"):
            axis.set_title(axis.get_ylabel().replace("\n", " "), loc="left", pad=2, fontsize=7)
            axis.set_ylabel("")
    with warnings.catch_warnings():
        # Letters that no font has are shown as boxes, without a warning.
        warnings.simplefilter("ignore")
        if figure.legends:
            _fit_legend(figure, inches is None)
        figure.savefig(path, format=kind[1:], metadata=UNDATED[kind])


def _fit_legend(figure: Any, grows: bool) -> None:
    """Gives a legend the largest letters and the most columns with which it fits the figure."""
    # A figure that does not grow by its legend leaves out, and counts, the entries that do not fit.
    old = legend = figure.legends[0]
    wide, tall = 0.97 * figure.bbox.width, figure.bbox.height
    texts = [old.get_title(), *old.get_texts()]
    title, *labels = [text.get_text() for text in texts]
    longest = max(texts, key=lambda text: len(text.get_text()))
    letter = longest.get_window_extent().width / max(1, len(longest.get_text())) / _LETTERS[0]
    # At most six columns, which are filled as evenly as possible.
    count = max(1, len(labels))
    even = sorted({-(-count // rows) for rows in range(-(-count // 6), count + 1)})
    halves = [count >> k for k in range(count.bit_length())]
    for few, size, columns in product(halves, _LETTERS, even[::-1]):
        legend.remove()
        room = max(7, int(0.95 * wide / (letter * (size + 1) or 1)))
        legend = figure.legend(
            old.legend_handles[:few],
            [textwrap.fill(label, room - 6) for label in labels[:few]],
            title=textwrap.fill(title, room) + f"\nand {count - few} more" * (few < count),
            title_fontsize=size + 1,
            fontsize=size,
            loc="outside upper center",
            ncols=columns,
            columnspacing=1.2,
            handlelength=1.8,
        )
        box = legend.get_window_extent()
        if box.width <= wide and (grows or box.height <= _LEGEND_SHARE * tall):
            break
    if grows:
        figure.set_figheight((tall + max(0.0, box.height - 0.6 * figure.dpi)) / figure.dpi)


def draw_lines(lines: Sequence[Line], sources: Sequence[PlotSource], title: str | None) -> Any:
    """Draws a panel per quantity, one above the other, over a shared time axis."""
    # Colours are dofs, dashes are files and commands; where one dof is compared, colours are files.
    # The later trajectories are fainter.
    stacked, dofs = list(line_panels(lines)), sorted({dof for x in lines for dof in x.dofs})
    # Each file, and states and commands of it, have dashes of their own: states come first.
    kinds = sorted({(k in x.commands, x.source) for x in lines for k in range(len(x.dofs))})
    by_file = len(sources) > 1 and len(dofs) == 1 and not kinds[-1][0]
    names = list(dict.fromkeys(line.trajectory for line in lines))
    opacity = dict(zip(names, np.linspace(1.0, 0.3, len(names)).tolist(), strict=True))
    # A panel of a single dof that follows the panel of its quantity is lower.
    small = [k > 0 and stacked[k - 1][0] == panel[0] for k, panel in enumerate(stacked)]
    figure, axes = _new_figure([0.6 if low else 1.55 for low in small], 1, sharex=True)
    for axis, low, (quantity, members, shown) in zip(axes, small, stacked, strict=True):
        width = 1.0 if len(members) < 4 else 0.7
        for line in members:
            for i, (number, name) in enumerate(line.dofs):
                if number not in shown:
                    continue
                colour = _colour(line.source if by_file else number)
                if line.recording is not None:
                    axis.plot(line.time, line.recording[:, i], ".", color=colour, markersize=3.0,
                              markeredgewidth=0, alpha=0.5, zorder=1.5,
                              gid=f"recorded/{name}")  # fmt: skip
                dashes = _dashes(kinds.index((i in line.commands, line.source)), number)
                style = {"ls": dashes, "alpha": opacity[line.trajectory],
                         "drawstyle": _STEPS[line.hold], "color": colour}  # fmt: skip
                values, gid = line.values[:, i], f"{quantity}/{name}"
                axis.plot(line.time, values, linewidth=width, gid=gid, **style)
                if (binding := line.find_binding(line.values)[:, i]).any():
                    # Rows whose neighbours are not at the limit need a mark, since they have no
                    # line.
                    lone = binding & (np.convolve(binding, np.ones(3), "same") < 2)
                    axis.plot(line.time, np.where(binding, values, np.nan), markevery=lone,
                              gid=f"at its limit/{name}", **_AT_LIMIT | style)  # fmt: skip
        _draw_limits(axis, members, shown)
        units = ", ".join(dict.fromkeys(line.unit for line in members if line.unit))
        name = f", {_plain(dict(dofs)[min(shown)])}" if low else ""
        axis.set_ylabel(f"{quantity}{name}\n{_unit_text(units)}".strip())
        axis.locator_params(axis="y", nbins=2 if low else "auto")
    clock = lines[0].time_unit if all(line.time_unit for line in lines) else ""
    axes[-1].set_xlabel(f"time ({clock})" if clock else "row")
    figure.align_ylabels(axes)
    if title is None:
        noun = "trajectory" if len(names) == 1 else "trajectories"
        files = join_names(short_labels(sources), _TITLE_FILES)
        title = f"{files}, {noun} {join_names(names, _TITLE_TRAJECTORIES)}"
    entries: list[_LegendEntry] = [
        (name, {"color": _DARK if by_file else _colour(number), "ls": _dashes(0, number)})
        for number, name in dofs
    ]
    for k, (command, source) in enumerate(kinds if len(kinds) > 1 else ()):
        words = [short_labels(sources)[source]] if len(sources) > 1 else []
        words += ["command" if command else "state"] if len(kinds) > len(sources) else []
        colour = _colour(source) if by_file else _DARK
        entries.append((", ".join(words), {"color": colour, "ls": _dashes(k, 0)}))
    if bound := [line.binding_rows for line in lines if line.binding_rows.any()]:
        single = len(names) == len(sources) == len(set(map(len, bound))) == 1
        share = f" ({100 * np.logical_or.reduce(bound).mean():.0f} % of the rows)" if single else ""
        entries.append((f"at its limit{share}", _AT_LIMIT | {"marker": ""}))
    # Of many trajectories the legend has the first and the last.
    faint = names if len(names) <= _LEGEND_ENTRIES else [names[0], names[-1]]
    for name in faint if len(names) > 1 else ():
        entries.append((f"trajectory {name}", {"color": _DARK, "alpha": opacity[name]}))
    _finish(figure, title, entries)
    return figure


def _draw_limits(axis: Any, members: Sequence[Line], shown: set[int]) -> None:
    """Draws limits as bands; an edge that only one dof has is drawn in its colour."""
    bands = {
        number: (float(line.bounds.lower[i]), float(line.bounds.upper[i]))
        for line in members
        if line.bounds is not None
        for i, (number, _) in enumerate(line.dofs)
        if number in shown
    }
    low, high = axis.get_ylim()
    # Limits further away than the lines are high would flatten these, and are not drawn.
    reach = high - low
    ends = low - reach, high + reach
    edges = [edge for band in bands.values() for edge in band if ends[0] <= edge <= ends[1]]
    low = min([low, *(edge - 0.05 * reach for edge in edges)])
    high = max([high, *(edge + 0.05 * reach for edge in edges)])
    for lower, upper in sorted(set(bands.values())):
        axis.axhspan(max(lower, low), min(upper, high), color=_DARK, alpha=0.035, lw=0,
                     zorder=0)  # fmt: skip
    for edge in sorted(set(edges)):
        owners = [number for number, band in bands.items() if edge in band]
        shade = _colour(owners[0]) if 1 == len(owners) < len(bands) else _DARK
        axis.axhline(edge, color=shade, lw=0.9, ls=(0, (6, 3)), zorder=1)
    axis.set_ylim(low, high)


def draw_peaks(peaks: Sequence[Peaks], sources: Sequence[PlotSource], title: str | None) -> Any:
    """Draws a panel per quantity with a row of bars per dof, all to one scale, and its limits."""
    if len(sources) > 1:
        what, names = "a histogram shows one file", ", ".join(short_labels(sources))
        raise UsageError(what, where="SOURCE", expected="one file", found=names)
    members = [member for group in panels(peaks).values() for member in group]
    columns = 2 if len(members) > 1 else 1
    tallest = max(len(quantity.dofs) for quantity in peaks)
    figure, axes = _new_figure([0.9 + 0.2 * tallest] * -(-len(members) // columns), columns)
    for axis, member in zip(axes, members, strict=False):
        # Each trajectory counts with both ends of its positions, or with its largest magnitude.
        quantity, bounds, signed = member.quantity, member.bounds, member.quantity == "position"
        ends = np.concatenate(member.values) if signed else np.abs(member.values).max(0)
        low, high = value_range(ends)
        low = low if signed else 0.0
        bars = [np.histogram(x, _edges(low, high, bounds, i)) for i, x in enumerate(ends.T)]
        most = max(int(counts.max(initial=0)) for counts, _ in bars) or 1
        rows = range(len(member.dofs) - 1, -1, -1)
        for i, (row, (number, name)) in enumerate(zip(rows, member.dofs, strict=True)):
            counts, edges = bars[i]
            gid = f"{quantity}/{name}"
            axis.stairs(_BAR * counts / most + row, edges, baseline=row, color=_colour(number),
                        fill=True, alpha=0.75, lw=0, zorder=3, gid=gid)  # fmt: skip
            limits = () if bounds is None else (bounds.lower[i], bounds.upper[i])
            for limit in limits if signed else {abs(limit) for limit in limits}:
                if np.isfinite(limit):
                    axis.plot([limit] * 2, [row, row + _BAR], **_LIMIT, zorder=5, gid="limit")
        # Limits further away than twice the range are not shown.
        room = 2 * (high - low)
        left, right = axis.get_xlim()
        axis.set_xlim(max(left, low - room) if signed else 0.0, min(right, high + room))
        text = "least and largest position" if signed else f"peak |{quantity}|"
        axis.set_xlabel(f"{text} {_unit_text(member.unit)}".strip())
        axis.set_yticks(list(rows), [_plain(name) for _, name in member.dofs], va="bottom")
        axis.set_ylim(-0.1, len(rows))
        axis.tick_params(axis="y", length=0)
        _caption(axis, member.values.shape[1], f", tallest bar {most}")
    for axis in axes[len(members) :]:
        axis.set_visible(False)
    limited = any(member.bounds is not None for member in peaks)
    legend: list[_LegendEntry] = [("limit", _LIMIT)] if limited else []
    _finish(figure, short_labels(sources)[0] if title is None else title, legend)
    return figure


def draw_score(tables: Mapping[str, ScoreTable], name: str, title: str) -> Any:
    """Draws histograms of a score of all trajectories of each file, and their medians."""
    scores = [table.values(name, "--score") for table in tables.values()]
    known = [values[np.isfinite(values)] for values in scores]
    span = value_range(np.concatenate(known))
    figure, (axis,) = _new_figure([2.4], 1)
    entries: list[_LegendEntry] = []
    for k, (label, values) in enumerate(zip(tables, known, strict=True)):
        look = {"alpha": 0.55, "histtype": "stepfilled"} if len(tables) > 1 else {}
        axis.hist(values, _BINS, range=span, color=_colour(k), zorder=3, gid=name, **look)
        if not len(values):
            continue
        style = {"color": _colour(k), "lw": 1.2, "ls": _dashes(k, 0)} if look else _MEDIAN
        axis.axvline(np.median(values), **style, zorder=5, gid="median")
        text = f"median {np.median(values):.4g}"
        entries.append((f"{label}, {text}" if look else text, style))
    units = next(iter(tables.values())).units[name]
    axis.set_xlabel(f"{name} {_unit_text(units)}".strip())
    axis.set_ylabel("trajectories")
    axis.yaxis.get_major_locator().set_params(integer=True)
    total, absent = sum(map(len, scores)), sum(map(len, scores)) - sum(map(len, known))
    _caption(axis, total, f", {absent} without" if absent else "")
    _finish(figure, title, entries)
    return figure


def _caption(axis: Any, count: int, remark: str) -> None:
    text = f"{count} trajector{'y' if count == 1 else 'ies'}{remark}"
    axis.set_title(text, loc="left", color=_DARK, pad=3, fontsize=7)


def _edges(low: float, high: float, bounds: Bounds | None, i: int) -> Floats:
    """Computes bins of one width, except at limits, which no bar may straddle."""
    edges = np.linspace(low, np.nextafter(high, np.inf), _BINS + 1)
    if bounds is None:
        return edges
    room = bounds.slack * float(bounds.size[i])
    # A value that exceeds a limit by rounding counts as within it.
    cuts = np.array([bounds.lower[i] - room, np.nextafter(bounds.upper[i] + room, np.inf)])
    # A limit takes the place of the edge that is nearest to it.
    replaced = np.abs(edges[:, None] - cuts).min(1) <= 0.5 * (high - low) / _BINS
    replaced[[0, -1]] = False
    cuts = cuts[(low < cuts) & (cuts < edges[-1])]
    return np.unique(np.concatenate([edges[~replaced], cuts]))


def _new_figure(heights: Sequence[float], columns: int, **options: Any) -> tuple[Any, list[Any]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, sum(heights) + 0.75), layout="constrained")
    FigureCanvasAgg(figure)
    options |= {"squeeze": False, "height_ratios": heights}
    return figure, list(figure.subplots(len(heights), columns, **options).ravel())


def _finish(figure: Any, title: str, entries: Sequence[_LegendEntry]) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], label=_plain(label), **style) for label, style in entries]
    if handles or title:
        figure.legend(handles=handles, title=_plain(title))


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _dashes(kind: int, number: int) -> Any:
    return _DASHES[(kind + number // len(COLOURS)) % len(_DASHES)]


def _unit_text(unit: str) -> str:
    """Writes rad/s^2 as (rad/s²)."""
    return f"({_plain(unit).replace('^2', '²').replace('^3', '³')})" if unit else ""


def _plain(text: str) -> str:
    """Escapes what matplotlib would typeset as mathematics, leave out of a legend or not draw."""
    return decode_text(text).replace("$", r"\$").lstrip("_") or text
