"""Figures of the peaks of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trajcli.files.limits import Bounds
from trajcli.files.source import Source
from trajcli.views.drawing import Peaks, panels
from trajcli.views.figures import (
    MOST_FILES,
    RED,
    colour_of,
    few,
    finish,
    new_figure,
    plain,
    short_names,
    style_of,
    unit_text,
)

_BINS = 40
_FAR = 2.0
"""Limits are drawn that are from the values by up to so many times their range."""
LIMIT, FAR, BEYOND = "limit", "limit further that way", "beyond a limit"
_MARKS: dict[str, dict[str, Any]] = {
    LIMIT: {"color": RED, "lw": 1.2},
    FAR: {"color": RED, "marker": ">", "ms": 4, "ls": "none"},
    BEYOND: {"color": RED, "marker": "x", "ms": 5, "mew": 1.1, "ls": "none"},
}
"""What the marks in a figure of peaks are called, and how they look."""


def draw_peaks(peaks: Sequence[Peaks], sources: Sequence[Source], title: str | None) -> Any:
    """A figure of how the peaks are distributed over the trajectories, dof by dof."""
    shown = panels(peaks)
    columns = 2 if len(shown) > 1 else 1
    most = max(len(one.numbers) for one in peaks)
    figure, axes = new_figure(-(-len(shown) // columns), columns, 0.9 + 0.2 * most)
    kinds: set[str] = set()
    for axis, (quantity, members) in zip(axes, shown.items(), strict=False):
        kinds |= _histogram(axis, quantity, members)
    for axis in axes[len(shown) :]:
        axis.set_visible(False)
    marks: list[tuple[str, Mapping[str, Any]]] = []
    for source, name in enumerate(short_names(sources) if len(sources) > 1 else ()):
        outline = {"color": "#444444", "lw": 0.9, "ls": style_of(source, 0)}
        filled = {"color": "#444444", "lw": 5, "alpha": 0.75}
        marks.append((plain(name), outline if source else filled))
    marks += [(label, about) for label, about in _MARKS.items() if label in kinds]
    if title is None:
        title = few(short_names(sources), MOST_FILES)
    finish(figure, [], [], title, marks)
    return figure


def _histogram(axis: Any, quantity: str, members: Sequence[Peaks]) -> set[str]:
    """A row of bars for each dof, all rows to one scale, its limits as marks across the row.

    Returns which kinds of marks there are.
    """
    names = {n: name for one in members for n, name in zip(one.numbers, one.dofs, strict=True)}
    rows = {number: len(names) - 1 - i for i, number in enumerate(sorted(names))}
    signed = any(one.signed for one in members)
    values = [_values(one, signed) for one in members]
    low, high = _span(values, signed)
    counts = {
        (one.source, number): np.histogram(shown[:, i], _edges(low, high, one.bounds, i))
        for one, shown in zip(members, values, strict=True)
        for i, number in enumerate(one.numbers)
    }
    tallest = max((int(c.max(initial=0)) for c, _ in counts.values()), default=0) or 1
    kinds: set[str] = set()
    for one in members:
        for i, number in enumerate(one.numbers):
            heights, edges = counts[one.source, number]
            bars = 0.86 * heights / tallest + rows[number]
            about = {"color": colour_of(number), "baseline": rows[number], "zorder": 3 - one.source}
            gid = f"{quantity}/{one.dofs[i]}"
            fill = one.source == 0
            style = {"fill": fill, "alpha": 0.75 if fill else 1.0, "lw": 0 if fill else 0.9}
            style["linestyle"] = style_of(one.source, 0)
            axis.stairs(bars, edges, gid=gid, **about, **style)
            kinds |= _limit_marks(axis, one, i, rows[number], signed, (low, high))
            kinds |= _beyond_marks(axis, one, i, rows[number], signed)
    _label(axis, quantity, members, rows, names, signed)
    if not signed:
        axis.set_xlim(left=0)
    count = len(members[0].low)
    said = f"{count} trajector{'y' if count == 1 else 'ies'}, tallest bar {tallest}"
    axis.set_title(said, loc="left", color="#444444", pad=3, fontsize=7)
    beyond = sum(one.outside for one in members)
    if beyond:
        said = f"{beyond} value{'s' * (beyond > 1)} beyond limits"
        above = {"xycoords": "axes fraction", "textcoords": "offset points"}
        axis.annotate(said, (1, 1), (0, 12), ha="right", color=RED, fontsize=7, **above)
    return kinds


def _values(one: Peaks, signed: bool) -> Any:
    """What is counted: both ends of every trajectory [2 B, dofs], or the larger magnitude."""
    if signed:
        return np.concatenate([one.low, one.high])
    return np.maximum(np.abs(one.low), np.abs(one.high))


def _span(values: Sequence[Any], signed: bool) -> tuple[float, float]:
    """The ends of the bins, a little beyond the values."""
    known = np.concatenate([one.ravel() for one in values])
    known = np.clip(known[np.isfinite(known)], -1e307, 1e307)  # whose difference is finite
    if not signed:
        return 0.0, 1.0001 * (float(known.max(initial=0.0)) or 1.0)
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
    room = 1e-4 * (high - low) if high > low else 0.5 * abs(high) or 0.5
    return low - room, high + room


def _edges(low: float, high: float, bounds: Bounds | None, i: int) -> Any:
    """Bins of one width but for those at limits, which no bar stands on both sides of."""
    edges = np.linspace(low, high, _BINS + 1)
    if bounds is None:
        return edges
    room = bounds.slack * float(bounds.size[i])
    cuts = [float(bounds.lower[i]) - room, np.nextafter(float(bounds.upper[i]) + room, np.inf)]
    cuts = [cut for cut in cuts if low < cut < high]
    half = 0.5 * (high - low) / _BINS
    inner = [edge for edge in edges[1:-1] if all(abs(edge - cut) > half for cut in cuts)]
    return np.array(sorted({low, *inner, *cuts, high}))


def _label(
    axis: Any,
    quantity: str,
    members: Sequence[Peaks],
    rows: Mapping[int, int],
    names: Mapping[int, str],
    signed: bool,
) -> None:
    """What is along the axes."""
    unit = unit_text(members[0].unit)
    what = f"least and largest {quantity}" if signed else f"peak |{quantity}|"
    axis.set_xlabel(what + (f" ({unit})" if unit else ""))
    axis.set_yticks(list(rows.values()), [plain(names[number]) for number in rows])
    axis.set_ylim(-0.1, len(rows))
    axis.tick_params(axis="y", length=0)
    for label in axis.get_yticklabels():
        label.set_verticalalignment("bottom")


def _limit_marks(
    axis: Any, one: Peaks, i: int, row: int, signed: bool, span: tuple[float, float]
) -> set[str]:
    """The limits of a dof: lines, or arrows at the edge where a limit is far from all values."""
    if one.bounds is None:
        return set()
    lower, upper = float(one.bounds.lower[i]), float(one.bounds.upper[i])
    kinds = set()
    room = _FAR * (span[1] - span[0])
    for limit in {lower, upper} if signed else {upper}:
        if not np.isfinite(limit):
            continue
        if span[0] - room <= limit <= span[1] + room:
            axis.plot([limit] * 2, [row, row + 0.86], **_MARKS[LIMIT], zorder=5, gid="limit")
            kinds.add(LIMIT)
            continue
        where = axis.get_yaxis_transform()
        right = limit > span[1]
        about = {**_MARKS[FAR], "marker": ">" if right else "<", "clip_on": False}
        axis.plot(
            [0.985 if right else 0.015], [row + 0.43], transform=where, **about, gid="far limit"
        )
        kinds.add(FAR)
    return kinds


def _beyond_marks(axis: Any, one: Peaks, i: int, row: int, signed: bool) -> set[str]:
    """The value furthest beyond each limit of a dof."""
    if one.bounds is None or not one.beyond[:, i].any():
        return set()
    ends = {-1: float(np.nanmin(one.low[:, i])), 1: float(np.nanmax(one.high[:, i]))}
    limits = {-1: float(one.bounds.lower[i]), 1: float(one.bounds.upper[i])}
    for side, end in ends.items():
        if side * (end - limits[side]) > one.bounds.slack * float(one.bounds.size[i]):
            at = end if signed else abs(end)
            axis.plot([at], [row + 0.43], **_MARKS[BEYOND], zorder=6, gid=f"beyond/{one.dofs[i]}")
    return {BEYOND}
