"""What a figure shows: quantities over time, and the peaks of a batch, with their limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.checks import describe
from trajcli.errors import InputError
from trajcli.files.blocks import Array, Floats, Progress
from trajcli.files.limits import Bounds, Limits
from trajcli.files.opening import Files
from trajcli.files.schema import QUANTITIES
from trajcli.files.selection import select
from trajcli.files.source import Source, parse_source
from trajcli.files.trajectory_set import TrajectorySet
from trajcli.views.terminal import LARGEST
from trajcli.views.trajectories import Batch, expand_globs, read_batches, whole_batch

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
class PlotSource:
    """The trajectories of one file that are drawn, and their limits; those of the batch ``main``
    are numbered."""

    number: int
    origin: Source
    batches: Sequence[Batch]
    main: Batch
    episodes: str | None
    limits: Limits | None

    def fields(self, batch: Batch, name: str) -> dict[str, Any]:
        """Returns the fields of Drawn for an array of a batch."""
        first, bounds = batch.first, {}
        held, units, _ = batch.quantities()  # an array called q is positions
        quantity = {array: held_as for held_as, array in held.items()}.get(name, "")
        if self.limits is not None:
            bounds = batch.bounds(self.limits, units)
        return {
            "source": self.number,
            "quantity": batch.quantity(name),
            "unit": ", ".join(dict.fromkeys((first.unit(name) or "").split(","))),
            "dofs": list(zip(first.dofs.numbers, batch.dofs, strict=True)),
            "bounds": bounds.get(quantity),
        }


def plot_sources(
    files: Files, texts: Sequence[str], episodes: str | None = None, limits: Limits | None = None
) -> list[PlotSource]:
    """Returns the trajectories of every file; raises InputError where one has no rows."""
    sources: list[PlotSource] = []
    for text in expand_globs(texts):
        every, origin = read_batches(files, [text]), parse_source(text)
        if not any(0 not in part.shape for batch in every for part in batch.sets):
            raise InputError(
                "nothing to draw",
                where=str(origin),
                expected="trajectories with rows and dofs",
                found=describe(every[0].first.shape) if every else "no trajectories",
            )
        whole_batch(every)
        main = max(every, key=lambda batch: len(batch.first.arrays))
        sources.append(PlotSource(len(sources), origin, every, main, episodes, limits))
    return sources


def require_bounds(drawn: Sequence[Drawn], limits: Path) -> None:
    """Raises InputError where nothing that is drawn has a limit."""
    if all(one.bounds is None for one in drawn):
        names = ", ".join(dict.fromkeys(one.quantity for one in drawn))
        raise InputError(
            "no limits of what is drawn",
            where=str(limits),
            expected=f"limits of {names}",
            hint="leave --limits out, or name the arrays that have these limits",
        )


def lines(source: PlotSource) -> list[Line]:
    """Returns the lines of the chosen trajectories, of the first where none are chosen."""
    chosen = select(source.episodes or "0", source.main.count)
    if len(chosen) > _MOST:
        raise InputError(
            "too many for one figure",
            where="--episodes",
            expected=f"at most {_MOST} trajectories",
            found=str(len(chosen)),
            hint="--histogram shows all of them",
        )
    drawn = [
        _line(source, batch, number, name)
        for number in chosen
        for batch in source.batches
        if number < batch.count and batch.lengths[number]
        for name in batch.first.arrays
    ]
    if not drawn:
        raise InputError(
            "nothing to draw",
            where=f"{source.origin}, trajectory {source.main.name(chosen[0])}",
            expected="a trajectory with rows",
            found="no rows",
        )
    return drawn


def _line(source: PlotSource, batch: Batch, number: int, name: str) -> Line:
    """Returns an array of a trajectory; of many rows, runs of them by their extremes: peaks
    stay."""
    block = batch.block(number)
    fields, times = source.fields(batch, name), block.times()
    time = np.arange(block.rows, dtype=np.float64) if times is None else times[0]
    time, values = time - time[0] * (abs(time[0]) > _CLOCK), _drawable(block.read(name)[0])
    if block.rows > _POINTS:
        starts = np.arange(0, block.rows, -(-block.rows // (_POINTS // 2)))
        ends = np.append(starts[1:], block.rows) - 1
        extremes = [function.reduceat(values, starts, axis=0) for function in (np.fmin, np.fmax)]
        values = np.stack(extremes, 1).reshape(-1, values.shape[1])
        time = np.stack([time[starts], time[ends]], 1).reshape(-1)
    held = _held(block.parts[0][0], fields["quantity"])
    trajectory = source.main.name(number)
    return Line(**fields, trajectory=trajectory, time=time, timed=times is not None, values=values,
                held=held)  # fmt: skip


def _drawable(values: Array) -> Array:
    """Values with NaN in place of what is not finite, or too large for differences to be."""
    return np.where(np.abs(values, dtype=np.float64) < LARGEST, values, np.nan)


def _held(one: TrajectorySet, quantity: str) -> str:
    """Returns how long a value of a quantity holds in the mode that made it.

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


def peaks(source: PlotSource, on_progress: Progress) -> Iterator[Peaks]:
    """Returns the peaks of all trajectories, or of the chosen ones."""
    chosen = sorted(select(source.episodes, source.main.count))
    for batch in source.batches:
        numbers = [number for number in chosen if number < batch.count]
        ends: dict[str, list[Array]] = {name: [] for name in batch.first.arrays}
        for block in batch.blocks(numbers, on_progress):
            for name in ends:
                values = _drawable(block.read(name).astype(np.float64))
                low = np.fmin.reduce(values, 1, initial=np.nan)
                ends[name].append(np.stack([low, np.fmax.reduce(values, 1, initial=np.nan)]))
        for name in ends if numbers else ():
            low, high = np.concatenate(ends[name], axis=1)
            yield Peaks(**source.fields(batch, name), low=low, high=high)


def panels(drawn: Sequence[Any]) -> dict[str, list[Any]]:
    """Returns what is drawn by its quantity: position to jerk, then what else there is."""
    quantities = dict.fromkeys([*QUANTITIES, *(one.quantity for one in drawn)])
    by_quantity = {name: [one for one in drawn if one.quantity == name] for name in quantities}
    return {name: members for name, members in by_quantity.items() if members}


def short_labels(sources: Sequence[PlotSource]) -> list[str]:
    """Returns names of sources without their folders, unless they need them to differ."""
    names = [str(one.origin._replace(path=Path(one.origin.path.name))) for one in sources]
    return names if len(set(names)) == len(names) else [str(one.origin) for one in sources]
