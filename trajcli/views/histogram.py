"""Figures of a batch: how the least and largest values of its trajectories are distributed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trajcli.errors import Fault, UsageError
from trajcli.files.blocks import Floats
from trajcli.files.limits import Bounds
from trajcli.views.figures import (
    DARK,
    RED,
    Entry,
    colour,
    finish,
    new_figure,
    plain,
    unit_text,
)
from trajcli.views.plot import Peaks, Selection, panels, short_labels
from trajcli.views.score import ScoreTable
from trajcli.views.terminal import value_range

_BINS = 40
_BAR = 0.86
"""The height of the tallest bar, as a share of a row."""
_LIMIT = {"color": RED, "lw": 1.2}
_MEDIAN = {"color": DARK, "lw": 1.2}


def draw_peaks(peaks: Sequence[Peaks], selections: Sequence[Selection], title: str | None) -> Any:
    """A panel per quantity, in it a row of bars per dof. Raises UsageError for several files."""
    require_one_file(selections)
    shown = [one for members in panels(peaks).values() for one in members]
    columns = 2 if len(shown) > 1 else 1
    tallest = max(len(one.dofs) for one in peaks)
    figure, axes = new_figure(-(-len(shown) // columns), columns, 0.9 + 0.2 * tallest)
    for axis, one in zip(axes, shown, strict=False):
        _panel(axis, one.quantity, one)
    for axis in axes[len(shown) :]:
        axis.set_visible(False)
    title = short_labels(selections)[0] if title is None else title
    limits = [("limit", _LIMIT)] * any(one.bounds is not None for one in peaks)
    finish(figure, title, limits)
    return figure


def require_one_file(selections: Sequence[Selection]) -> None:
    """Raise UsageError for several files."""
    if len(selections) > 1:
        found = ", ".join(short_labels(selections))
        raise UsageError(Fault("a histogram is of one file", "SOURCE", "one", found))


def draw_score(table: ScoreTable, name: str, title: str) -> Any:
    """One panel: how many trajectories have which score, and the median."""
    scores = table.values(name, "--score")
    known = scores[np.isfinite(scores)]
    figure, (axis,) = new_figure(1, 1, 2.4)
    axis.hist(known, _BINS, range=value_range(known), color=colour(0), zorder=3, gid=name)
    entries: list[Entry] = []
    if len(known):
        axis.axvline(np.median(known), **_MEDIAN, zorder=5, gid="median")
        entries.append((f"median {np.median(known):.4g}", _MEDIAN))
    axis.set_xlabel(f"{name} {unit_text(table.units[name])}".strip())
    axis.set_ylabel("trajectories")
    axis.yaxis.get_major_locator().set_params(integer=True)
    absent = f", {len(scores) - len(known)} without" if len(known) < len(scores) else ""
    count = f"{len(scores)} trajector{'y' if len(scores) == 1 else 'ies'}{absent}"
    axis.set_title(count, loc="left", color=DARK, pad=3, fontsize=7)
    finish(figure, title, entries)
    return figure


def _panel(axis: Any, quantity: str, one: Peaks) -> None:
    """A row of bars for each dof, all to one scale, its limits as marks across the row.

    Of positions both ends of every trajectory are counted; else its largest magnitude.
    """
    signed = quantity == "position"
    sizes = np.maximum(np.abs(one.low), np.abs(one.high))
    ends = np.concatenate([one.low, one.high]) if signed else sizes
    low, high = value_range(ends)
    low = low if signed else 0.0
    bars = [
        np.histogram(ends[:, i], _edges(low, high, one.bounds, i)) for i in range(ends.shape[1])
    ]
    tallest = max(int(counts.max(initial=0)) for counts, _ in bars) or 1
    rows = range(len(one.dofs) - 1, -1, -1)
    for i, (row, (number, name)) in enumerate(zip(rows, one.dofs, strict=True)):
        counts, edges = bars[i]
        axis.stairs(_BAR * counts / tallest + row, edges, baseline=row, color=colour(number),
                    fill=True, alpha=0.75, lw=0, zorder=3, gid=f"{quantity}/{name}")  # fmt: skip
        limits = () if one.bounds is None else (one.bounds.lower[i], one.bounds.upper[i])
        for limit in limits if signed else {abs(limit) for limit in limits}:
            if np.isfinite(limit):
                axis.plot([limit] * 2, [row, row + _BAR], **_LIMIT, zorder=5, gid="limit")
    room = 2 * (high - low)  # limits further away are not shown
    left, right = axis.get_xlim()
    axis.set_xlim(max(left, low - room) if signed else 0.0, min(right, high + room))
    what = "least and largest position" if signed else f"peak |{quantity}|"
    axis.set_xlabel(f"{what} {unit_text(one.unit)}".strip())
    axis.set_yticks(list(rows), [plain(name) for _, name in one.dofs], va="bottom")
    axis.set_ylim(-0.1, len(rows))
    axis.tick_params(axis="y", length=0)
    count = len(one.low)
    text = f"{count} trajector{'y' if count == 1 else 'ies'}, tallest bar {tallest}"
    axis.set_title(text, loc="left", color=DARK, pad=3, fontsize=7)


def _edges(low: float, high: float, bounds: Bounds | None, i: int) -> Floats:
    """Bins of one width, except at limits: no bar stands on both sides of one."""
    edges = np.linspace(low, np.nextafter(high, np.inf), _BINS + 1)
    if bounds is None:
        return edges
    room = bounds.slack * float(bounds.size[i])
    cuts = np.array([bounds.lower[i] - room, np.nextafter(bounds.upper[i] + room, np.inf)])
    half = 0.5 * (high - low) / _BINS
    near = np.abs(edges[:, None] - cuts).min(1) <= half
    near[[0, -1]] = False
    inside = cuts[(low < cuts) & (cuts < edges[-1])]
    return np.unique(np.concatenate([edges[~near], inside]))
