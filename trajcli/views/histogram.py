"""Figures of a batch: how the least and largest values of its trajectories are distributed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trajcli.errors import Fault, UsageError
from trajcli.files.limits import Bounds
from trajcli.views.figures import (
    BEYOND,
    DARK,
    RED,
    Entry,
    beyond_text,
    colour,
    finish,
    new_figure,
    plain,
    unit_text,
)
from trajcli.views.plot import Peaks, Selection, panels, short_labels
from trajcli.views.score import ScoreTable
from trajcli.views.terminal import value_range
from trajcli.views.trajectories import Floats

_BINS = 40
_FAR = 2.0
"""Limits are shown that are from the values by up to so many times their range."""
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
    finish(figure, title, limits + [("beyond a limit", BEYOND)] * any(one.beyond for one in peaks))
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
    """A row of bars for each dof, all to one scale, its limits as marks across the row."""
    signed = quantity == "position"
    ends = _ends(one, signed)
    low, high = value_range(ends)
    low = low if signed else 0.0
    span = low - 1e-4 * (high - low), high + 1e-4 * (high - low)
    bars = [np.histogram(ends[:, i], _edges(span, one.bounds, i)) for i in range(len(one.dofs))]
    tallest = max((int(counts.max(initial=0)) for counts, _ in bars), default=0) or 1
    rows = range(len(one.dofs) - 1, -1, -1)
    for i, (row, (number, name)) in enumerate(zip(rows, one.dofs, strict=True)):
        counts, edges = bars[i]
        axis.stairs(_BAR * counts / tallest + row, edges, baseline=row, color=colour(number),
                    fill=True, alpha=0.75, lw=0, zorder=3, gid=f"{quantity}/{name}")  # fmt: skip
        _mark_limits(axis, one, i, row, name, signed)
    room = _FAR * (span[1] - span[0])  # limits further away are not shown
    left, right = axis.get_xlim()
    axis.set_xlim(max(left, span[0] - room) if signed else 0.0, min(right, span[1] + room))
    what = "least and largest position" if signed else f"peak |{quantity}|"
    axis.set_xlabel(f"{what} {unit_text(one.unit)}".strip())
    axis.set_yticks(list(rows), [plain(name) for _, name in one.dofs], va="bottom")
    axis.set_ylim(-0.1, len(rows))
    axis.tick_params(axis="y", length=0)
    count = len(one.low)
    text = f"{count} trajector{'y' if count == 1 else 'ies'}, tallest bar {tallest}"
    axis.set_title(text, loc="left", color=DARK, pad=3, fontsize=7)
    if one.beyond:
        axis.annotate(beyond_text(one.beyond), (1, 1), (0, 12), ha="right", color=RED, fontsize=7,
                      xycoords="axes fraction", textcoords="offset points")  # fmt: skip


def _edges(span: tuple[float, float], bounds: Bounds | None, i: int) -> Floats:
    """Bins of one width, except at limits: no bar stands on both sides of one."""
    low, high = span
    edges = np.linspace(low, high, _BINS + 1)
    if bounds is None:
        return edges
    room = bounds.slack * float(bounds.size[i])
    cuts = [float(bounds.lower[i]) - room, np.nextafter(float(bounds.upper[i]) + room, np.inf)]
    cuts = [cut for cut in cuts if low < cut < high]
    half = 0.5 * (high - low) / _BINS
    inner = [edge for edge in edges[1:-1] if all(abs(edge - cut) > half for cut in cuts)]
    return np.array(sorted({low, *inner, *cuts, high}))


def _ends(one: Peaks, signed: bool) -> Floats:
    """What is counted: both ends of every trajectory [2 B, dofs], or its largest magnitude."""
    if signed:
        return np.concatenate([one.low, one.high])
    return np.maximum(np.abs(one.low), np.abs(one.high))


def _mark_limits(axis: Any, one: Peaks, i: int, row: int, name: str, signed: bool) -> None:
    """The limits of a dof, and the value furthest beyond each."""
    if one.bounds is None:
        return
    lower, upper = float(one.bounds.lower[i]), float(one.bounds.upper[i])
    for limit in {lower, upper} if signed else {-lower, upper}:
        if np.isfinite(limit):
            axis.plot([limit] * 2, [row, row + _BAR], **_LIMIT, zorder=5, gid="limit")
    room = one.bounds.slack * float(one.bounds.size[i])
    low, high = float(np.fmin.reduce(one.low[:, i])), float(np.fmax.reduce(one.high[:, i]))
    worst = [low] * (low < lower - room) + [high] * (high > upper + room)
    for end in worst if signed else [max(map(abs, worst))] if worst else []:
        axis.plot([end], [row + _BAR / 2], **BEYOND, zorder=6, gid=f"beyond/{name}")
