"""Figures of the peaks of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trajcli.views.drawing import Peaks, panels
from trajcli.views.figures import (
    RED,
    colour_of,
    finish,
    new_figure,
    plain,
    short_names,
    style_of,
    unit_text,
)


def draw_peaks(peaks: Sequence[Peaks], sources: Sequence[str], title: str | None) -> Any:
    """A figure of how the largest magnitudes are distributed over the trajectories, dof by dof."""
    shown = panels(peaks)
    columns = 2 if len(shown) > 1 else 1
    most = max(len(one.numbers) for one in peaks)
    figure, axes = new_figure(-(-len(shown) // columns), columns, 0.9 + 0.2 * most)
    for axis, (quantity, members) in zip(axes, shown.items(), strict=False):
        _histogram(axis, quantity, members)
    for axis in axes[len(shown) :]:
        axis.set_visible(False)
    marks: list[tuple[str, Mapping[str, Any]]] = []
    for source, name in enumerate(short_names(sources) if len(sources) > 1 else ()):
        outline = {"color": "#444444", "lw": 0.9, "ls": style_of(source, 0)}
        filled = {"color": "#444444", "lw": 5, "alpha": 0.75}
        marks.append((plain(name), outline if source else filled))
    if any(one.bounds is not None for one in peaks):
        marks.append(("limit", {"color": RED, "lw": 1.2}))
    finish(figure, [], [], title, marks)
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
            about = {"color": colour_of(number), "baseline": rows[number], "zorder": 3 - one.source}
            gid = f"{quantity}/{one.dofs[i]}"
            fill = one.source == 0
            style = {"fill": fill, "alpha": 0.75 if fill else 1.0, "lw": 0 if fill else 0.9}
            style["linestyle"] = style_of(one.source, 0)
            axis.stairs(bars, edges, gid=gid, **about, **style)
            _limit_mark(axis, one.bounds, i, rows[number], top)
    unit = unit_text(members[0].unit)
    axis.set_xlabel(f"peak |{quantity}|" + (f" ({unit})" if unit else ""))
    axis.set_yticks(list(rows.values()), [plain(names[number]) for number in rows])
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
        axis.plot([limit] * 2, [row, row + 0.86], color=RED, lw=1.2, zorder=5, gid="limit")
