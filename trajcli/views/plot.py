"""What a figure shows: quantities over time, and the peaks of a batch, with their limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.checks import describe
from trajcli.errors import Fault, InputError
from trajcli.files.blocks import Array, Block, Floats, Progress
from trajcli.files.limits import Bounds, Limits
from trajcli.files.opening import Files
from trajcli.files.reader import read_sources
from trajcli.files.schema import QUANTITIES
from trajcli.files.selection import select
from trajcli.files.source import Source, parse_source
from trajcli.files.trajectory_set import TrajectorySet
from trajcli.views.statistics import array_bounds
from trajcli.views.terminal import LARGEST
from trajcli.views.trajectories import Batch, batches, expand_globs, main_batch, whole_batch

_POINTS = 4000
"""Longer lines are drawn by the least and the largest value of each run of rows."""
_CLOCK = 1e6
"""Times beyond so many seconds are those of a clock, and are drawn from the first row on."""
_MOST = 100
"""More trajectories are not drawn in one figure."""


@dataclass(frozen=True)
class Drawn:
    """A quantity of a source, of some dofs: by column, their numbers and names."""

    source: int
    quantity: str
    unit: str
    dofs: Sequence[tuple[int, str]]
    bounds: Bounds | None


@dataclass(frozen=True)
class Line(Drawn):
    """A quantity of a trajectory: times [n], or row numbers, and values [n, dofs].

    held: whether a value holds over the step "into" its row or "out of" it; "" where a line leads
    from row to row.
    """

    trajectory: str
    time: Floats
    timed: bool
    values: Array
    held: str


@dataclass(frozen=True)
class Peaks(Drawn):
    """The least and the largest finite value of a quantity in each trajectory [B, dofs], or NaN."""

    low: Floats
    high: Floats


@dataclass(frozen=True)
class Selection:
    """The trajectories of one file that are drawn, and their limits."""

    source: int
    origin: Source
    batches: Sequence[Batch]
    episodes: str | None
    limits: Limits | None

    @property
    def main(self) -> Batch:
        """The batch whose trajectories are numbered."""
        main = main_batch(self.batches)
        assert main is not None
        return main

    def drawn(self, batch: Batch, name: str) -> dict[str, Any]:
        """The fields of Drawn of an array of a batch."""
        return {
            "source": self.source,
            "quantity": batch.quantity(name),
            "unit": ", ".join(dict.fromkeys((batch.first.unit(name) or "").split(","))),
            "dofs": list(zip(batch.first.dofs.numbers, batch.dofs, strict=True)),
            "bounds": array_bounds(batch, self.limits).get(name),
        }


def selections(
    files: Files,
    sources: Sequence[str],
    episodes: str | None = None,
    limits: Limits | None = None,
) -> list[Selection]:
    """The trajectories of every file of every source; raises InputError where one has no rows."""
    chosen: list[Selection] = []
    for one in expand_globs(sources):
        groups, origin = batches(read_sources(files, [one])), parse_source(one)
        if not any(0 not in part.shape for batch in groups for part in batch.sets):
            shape = describe(groups[0].first.shape) if groups else "no trajectories"
            expected = "trajectories with rows and dofs"
            raise InputError(Fault("nothing to draw", str(origin), expected, shape))
        whole_batch(groups)
        chosen.append(Selection(len(chosen), origin, groups, episodes, limits))
    return chosen


def lines(selection: Selection) -> list[Line]:
    """The lines of the chosen trajectories, of the first where none are chosen."""
    main = selection.main
    chosen = select(selection.episodes or "0", main.count)
    if len(chosen) > _MOST:
        hint = "--histogram shows all of them"
        expected = f"at most {_MOST} trajectories"
        fault = Fault("too many for one figure", "--episodes", expected, str(len(chosen)), hint)
        raise InputError(fault)
    drawn = [
        _line(selection, batch, batch.block(number), name)
        for number in chosen
        for batch in selection.batches
        if number < batch.count and batch.lengths[number]
        for name in batch.first.arrays
    ]
    if not drawn:
        where = f"{selection.origin}, trajectory {main.name(chosen[0])}"
        raise InputError(Fault("nothing to draw", where, "a trajectory with rows", "no rows"))
    return drawn


def _line(selection: Selection, batch: Batch, block: Block, name: str) -> Line:
    drawn, times = selection.drawn(batch, name), block.times()
    time = np.arange(block.rows, dtype=np.float64) if times is None else times[0]
    values = _drawable(block.read(name)[0])
    time, values = _thinned(time - time[0] * (abs(time[0]) > _CLOCK), values)
    return Line(
        **drawn,
        trajectory=selection.main.name(int(block.numbers[0])),
        time=time,
        timed=times is not None,
        values=values,
        held=_held(block.parts[0][0], drawn["quantity"]),
    )


def _thinned(time: Floats, values: Array) -> tuple[Floats, Array]:
    """A line [n, D], or, of many points, its runs of rows by their extremes: peaks stay."""
    rows = len(time)
    if rows <= _POINTS:
        return time, values
    starts = np.arange(0, rows, -(-rows // (_POINTS // 2)))
    ends = np.append(starts[1:], rows) - 1
    extremes = [function.reduceat(values, starts, axis=0) for function in (np.fmin, np.fmax)]
    merged = np.stack(extremes, 1).reshape(-1, values.shape[1])
    return np.stack([time[starts], time[ends]], 1).reshape(-1), merged


def _drawable(values: Array) -> Array:
    """Values with NaN in place of what is not finite, or too large for differences to be."""
    return np.where(np.abs(values, dtype=np.float64) < LARGEST, values, np.nan)


def _held(one: TrajectorySet, quantity: str) -> str:
    """How long a value of a quantity holds in the mode that made it.

    From clique to jerk a_t − a_{t−1} = dt_t·j_t, except for linear jerks (foh); euler and zoh take
    an action for the whole step into its row. A cubic B-spline has one jerk from a knot to the
    next, which begins with the row at the knot.
    """
    stated = [one.attribute(name) for name in ("mode", "scheme", "degree")]
    mode, scheme, degree = (str(value[1]) if value else "" for value in stated)
    if mode == "bspline":
        return "out of" if quantity == "jerk" and degree == "3" else ""
    if scheme not in ("euler", "zoh", "foh") or mode not in ("clique", *QUANTITIES[1:]):
        return ""
    if quantity == "jerk" and mode != "jerk":
        return "into"
    return "into" if quantity == mode and scheme != "foh" else ""


def peaks(selection: Selection, on_progress: Progress) -> Iterator[Peaks]:
    """The peaks of all trajectories, or of the chosen ones."""
    chosen = sorted(select(selection.episodes, selection.main.count))
    for batch in selection.batches:
        numbers = [number for number in chosen if number < batch.count]
        drawn = {name: selection.drawn(batch, name) for name in batch.first.arrays}
        ends: dict[str, list[Array]] = {name: [] for name in drawn}
        for block in batch.blocks(numbers, on_progress):
            for name in drawn:
                values = _drawable(block.read(name).astype(np.float64))
                both = [np.fmin.reduce(values, 1, initial=np.nan)]
                both.append(np.fmax.reduce(values, 1, initial=np.nan))
                ends[name].append(np.stack(both))
        for name, about in drawn.items() if numbers else ():
            low, high = np.concatenate(ends[name], axis=1)
            yield Peaks(**about, low=low, high=high)


def panels(drawn: Sequence[Any]) -> dict[str, list[Any]]:
    """What is drawn by its quantity: position to jerk, then what else there is."""
    quantities = dict.fromkeys([*QUANTITIES, *(one.quantity for one in drawn)])
    by_quantity = {name: [one for one in drawn if one.quantity == name] for name in quantities}
    return {name: members for name, members in by_quantity.items() if members}


def short_labels(selections: Sequence[Selection]) -> list[str]:
    """Names of sources without their folders, unless they need them to differ."""
    names = [str(one.origin._replace(path=Path(one.origin.path.name))) for one in selections]
    return names if len(set(names)) == len(names) else [str(one.origin) for one in selections]
