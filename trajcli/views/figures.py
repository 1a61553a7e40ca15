"""Figures of quantities over time, with matplotlib; what all figures look like.

The same data and options give the same bytes. No window is opened, and the user's matplotlib
settings are not read.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, UsageError
from trajcli.files.arrays import text_of
from trajcli.views.plot import Line, Selection, panels, short_labels
from trajcli.views.terminal import shortened

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""M. Okabe and K. Ito's colours, which colour-blind readers tell apart; without the yellow, which
is too faint on paper."""
_DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
_STEPS = {"": "default", "into": "steps-pre", "out of": "steps-post"}
RED, DARK, GREY = "#C00000", "#444444", "#999999"
_LEGEND_ENTRIES = 12
"""So many trajectories are named in a legend."""
_TITLE_TRAJECTORIES, TITLE_FILES = 6, 3
_INCHES = 7.0
"""The width of a page of two columns."""
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
_UNDATED: dict[str, dict[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
Entry = tuple[str, Mapping[str, Any]]
"""A label of the legend, and the style of the line or mark beside it."""


def require_format(path: Path) -> None:
    """Raise UsageError where the name of a figure has no ending that can be drawn."""
    if path.suffix.lower() not in _UNDATED:
        expected = "FIG.png, FIG.svg or FIG.pdf"
        found = path.suffix or "no ending"
        raise UsageError(Fault("unknown kind of figure", str(path), expected, found))


def require_matplotlib() -> Any:
    """The library; raises UsageError with the line that installs it."""
    if "MPLCONFIGDIR" not in os.environ:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "matplotlib"
        if not any(cache.glob("fontlist*.json")):  # it would write one into the home directory
            folder = tempfile.mkdtemp(prefix="trajcli-matplotlib-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            os.environ["MPLCONFIGDIR"] = folder
    try:
        import matplotlib
    except ImportError as error:
        hint = "pip install matplotlib"
        fault = Fault("matplotlib is not installed", "plot", found=str(error), hint=hint)
        raise UsageError(fault) from None
    return matplotlib


def settings(matplotlib: Any) -> Any:
    """A context with these settings, whatever the user's are."""
    return matplotlib.rc_context({**matplotlib.rcParamsDefault, **_SETTINGS})


def save(figure: Any, path: Path, suffix: str) -> None:
    """Write a figure in the format of a suffix, whatever the file is called."""
    kind = suffix.lower()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that no font here has: the figure shows them
        figure.savefig(path, format=kind[1:], metadata=_UNDATED[kind])


def draw_lines(lines: Sequence[Line], selections: Sequence[Selection], title: str | None) -> Any:
    """A panel per quantity, one above the other, over a shared time axis.

    Colours are dofs, dashes are files; the later trajectories are fainter.
    """
    stacked = panels(lines)
    names = list(dict.fromkeys(line.trajectory for line in lines))
    opacity = dict(zip(names, np.linspace(1.0, 0.3, len(names)).tolist(), strict=True))
    figure, axes = new_figure(len(stacked), 1, 1.55, sharex=True)
    for axis, (quantity, members) in zip(axes, stacked.items(), strict=True):
        _panel(axis, quantity, members, opacity)
    axes[-1].set_xlabel("time (s)" if all(line.timed for line in lines) else "row")
    figure.align_ylabels(axes)
    if title is None:
        which = "trajectory" if len(names) == 1 else "trajectories"
        sources = shortened(short_labels(selections), TITLE_FILES)
        title = f"{sources}, {which} {shortened(names, _TITLE_TRAJECTORIES)}"
    finish(figure, title, _entries(lines, selections, opacity))
    return figure


def _panel(axis: Any, quantity: str, members: Sequence[Line], opacity: Mapping[str, float]) -> None:
    """One quantity of all trajectories and sources."""
    width = 1.0 if len(members) < 4 else 0.7
    for line in members:
        for i, (number, name) in enumerate(line.dofs):
            axis.plot(line.time, line.values[:, i], color=colour(number), linewidth=width,
                      linestyle=_dashes(line.source, number), alpha=opacity[line.trajectory],
                      drawstyle=_STEPS[line.held], gid=f"{quantity}/{name}")  # fmt: skip
    _draw_limits(axis, members)
    units = ", ".join(dict.fromkeys(line.unit for line in members if line.unit))
    axis.set_ylabel(f"{quantity}\n{unit_text(units)}".strip())


def _draw_limits(axis: Any, members: Sequence[Line]) -> None:
    """What is allowed, as bands; an edge that is one dof's alone has the colour of it."""
    bands = {
        number: (float(line.bounds.lower[i]), float(line.bounds.upper[i]))
        for line in members
        if line.bounds is not None
        for i, (number, _) in enumerate(line.dofs)
    }
    low, high = axis.get_ylim()
    reach = high - low
    near = [edge for band in bands.values() for edge in band if low - reach <= edge <= high + reach]
    low = min([low, *(edge - 0.05 * reach for edge in near)])
    high = max([high, *(edge + 0.05 * reach for edge in near)])
    for lower, upper in sorted(set(bands.values())):
        axis.axhspan(max(lower, low), min(upper, high), color=COLOURS[0], alpha=0.05, lw=0,
                     zorder=0)  # fmt: skip
    for edge in sorted(set(near)):
        owners = [number for number, band in bands.items() if edge in band]
        shade = colour(owners[0]) if len(owners) == 1 else GREY
        axis.axhline(edge, color=shade, lw=0.7, ls=(0, (6, 3)), zorder=1)
    axis.set_ylim(low, high)


def _entries(
    lines: Sequence[Line], selections: Sequence[Selection], opacity: Mapping[str, float]
) -> list[Entry]:
    """The legend: dofs, sources, trajectories (of many the first and the last), and marks."""
    dofs = {number: name for line in lines for number, name in line.dofs}
    entries: list[Entry] = [
        (name, {"color": colour(number), "ls": _dashes(0, number)})
        for number, name in sorted(dofs.items())
    ]
    if len(selections) > 1:
        labels = enumerate(short_labels(selections))
        entries += [(label, {"color": DARK, "ls": _dashes(source, 0)}) for source, label in labels]
    names = list(opacity)
    shown = names if len(names) <= _LEGEND_ENTRIES else (names[0], names[-1])
    for name in shown if len(names) > 1 else ():
        entries.append((f"trajectory {name}", {"color": DARK, "alpha": opacity[name]}))
    return entries


def new_figure(rows: int, columns: int, height: float, **options: Any) -> tuple[Any, list[Any]]:
    """A figure of panels of this height in inches, and its axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_INCHES, height * rows + 0.75), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(rows, columns, squeeze=False, **options).ravel())


def finish(figure: Any, title: str, entries: Sequence[Entry]) -> None:
    """The legend above all panels, and the title."""
    from matplotlib.lines import Line2D

    if not (entries or title):
        return
    rows = -(-max(len(entries), 1) // 6)
    figure.legend(
        handles=[Line2D([], [], label=plain(label), **style) for label, style in entries],
        title=plain(title) if title else None,
        title_fontsize=9,
        loc="outside upper center",
        ncols=max(1, -(-len(entries) // rows)),
        columnspacing=1.2,
        handlelength=1.8,
    )


def colour(number: int) -> str:
    """The colour of a dof."""
    return COLOURS[number % len(COLOURS)]


def _dashes(source: int, number: int) -> Any:
    """Sources differ in their dashes; so do dofs beyond the number of colours."""
    return _DASHES[(source + number // len(COLOURS)) % len(_DASHES)]


def unit_text(unit: str) -> str:
    """rad/s^2 as (rad/s²)."""
    return f"({plain(unit).replace('^2', '²').replace('^3', '³')})" if unit else ""


def plain(text: str) -> str:
    """Text without what matplotlib would typeset as mathematics, leave out of a legend or, of the
    name of a file, could not draw."""
    return text_of(text).replace("$", r"\$").lstrip("_") or text
