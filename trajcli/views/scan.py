"""One pass over arrays: ranges, peaks and where, what is not finite, limits, the relation.

All of them, or where that would take long, windows spread evenly over them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from trajcli.files.arrays import StoredArray
from trajcli.files.schema import QUANTITIES
from trajcli.views.laws import CONTEXT, Law, law_of
from trajcli.views.motions import Motions

if TYPE_CHECKING:
    from trajcli.files.limits import Bounds
    from trajcli.views.windows import Window

SAMPLE_BYTES = 24 << 20
_BLOCK_BYTES = 4 << 20
_WINDOWS, _FEW_WINDOWS = 12, 4
"""How many places are looked at; and where each means a chunk of megabytes to unpack."""
_CHEAP = ("contiguous", "stored", "Fortran order")
_PLACES = 5

Place = tuple[int, int, int]
"""Trajectory, row, dof."""
Span = tuple[int, int, int, int]
"""Trajectories begin..end, of each the rows first..last."""
Progress = Callable[[int, int], None]


@dataclass
class Extent:
    """What was seen of an array [B, T, D]: per dof low, high and peak |x| with its place."""

    low: Any
    high: Any
    peak: Any
    peak_at: list[tuple[int, int] | None]
    nan: int = 0
    inf: int = 0
    places: list[Place] = field(default_factory=list)
    beyond: list[int] = field(default_factory=list)
    """Values outside their bounds, per dof."""
    worst: tuple[float, Place] | None = None
    """The largest excess over a bound, as a share of its size, and where."""

    @staticmethod
    def empty(dofs: int) -> Extent:
        """Nothing seen yet."""
        none = np.full(dofs, np.inf)
        return Extent(none, -none, np.full(dofs, -1.0), [None] * dofs, beyond=[0] * dofs)

    def see(
        self,
        values: Any,
        trajectory: int,
        row: int,
        bounds: Bounds | None = None,
        padding: Any = None,
    ) -> None:
        """Take in values [b, n, D] that begin at a trajectory and row; of padding [b, n] none."""
        if padding is not None:
            values = np.where(padding[:, :, None], np.nan, values)
        if not values.size:
            return
        bad = ~np.isfinite(values)
        magnitude = np.abs(values)
        low = high = values
        if bad.any():
            self._see_bad(
                values, bad if padding is None else bad & ~padding[:, :, None], trajectory, row
            )
            magnitude = np.where(bad, -1.0, magnitude)
            low, high = np.where(bad, np.inf, values), np.where(bad, -np.inf, values)
        dofs = values.shape[2]
        self.low = np.minimum(self.low, low.reshape(-1, dofs).min(0))
        self.high = np.maximum(self.high, high.reshape(-1, dofs).max(0))
        flat = magnitude.reshape(-1, dofs)
        for dof in np.flatnonzero(flat.max(0) > self.peak):
            at = int(flat[:, dof].argmax())
            self.peak[dof] = flat[at, dof]
            b, t = divmod(at, values.shape[1])
            self.peak_at[dof] = (trajectory + b, row + t)
        if bounds is not None:
            self._see_beyond(values, trajectory, row, bounds)

    def _see_bad(self, values: Any, bad: Any, trajectory: int, row: int) -> None:
        self.nan += int(np.isnan(values[bad]).sum())
        self.inf += int(np.isinf(values[bad]).sum())
        if len(self.places) < _PLACES:
            for b, t, d in np.argwhere(bad)[: _PLACES - len(self.places)].tolist():
                self.places.append((trajectory + b, row + t, d))

    def _see_beyond(self, values: Any, trajectory: int, row: int, bounds: Bounds) -> None:
        if (self.high <= bounds.upper).all() and (self.low >= bounds.lower).all():
            return
        with np.errstate(invalid="ignore"):
            excess = np.maximum(values - bounds.upper, bounds.lower - values) / bounds.size
        excess = np.where(np.isfinite(values), excess, -1.0)
        counts = (excess > bounds.slack).sum(axis=(0, 1))
        self.beyond = [a + int(b) for a, b in zip(self.beyond, counts, strict=True)]
        at = np.unravel_index(int(excess.argmax()), excess.shape)
        most = float(excess[at])
        if most > bounds.slack and (self.worst is None or most > self.worst[0]):
            self.worst = most, (trajectory + int(at[0]), row + int(at[1]), int(at[2]))


@dataclass
class Relation:
    """How well the relation of the mode holds: the worst row, as a multiple of rounding."""

    law: Law
    ratio: float = 0.0
    residual: float = 0.0
    order: int = 0
    place: Place | None = None
    failing: int = 0
    numbers: int = 0
    """How many residuals were beyond rounding, and how many there are."""

    @property
    def holds(self) -> bool:
        """Whether rounding explains all residuals."""
        return self.ratio <= 1.0

    @property
    def dataset(self) -> str:
        """The array of the worst number."""
        return QUANTITIES[self.order]


@dataclass
class Scan:
    """What a pass over motions saw."""

    extents: dict[str, Extent]
    relation: Relation | None
    sampled: bool
    seen: float
    """The share of the values that was looked at."""


def scan(
    motions: Motions,
    full: bool = True,
    chosen: Sequence[int] | None = None,
    bounds: Mapping[str, Bounds] | None = None,
    on_progress: Progress = lambda done, total: None,
    budget: int = SAMPLE_BYTES,
) -> Scan:
    """Look at trajectories (all, or the chosen ones), or unless ``full`` at a sample of them."""
    batch, rows, dofs = motions.shape
    extents = {name: Extent.empty(dofs) for name in motions.arrays}
    law = law_of(motions.attributes) if set(motions.arrays) & set(QUANTITIES) else None
    # what was smoothed is no longer what the mode gave
    relation = Relation(law) if law and not str(motions.attributes.get("smooth", "")) else None
    each = max(1, motions.nbytes // max(1, batch))
    numbers = range(batch) if chosen is None else chosen
    sampled = not full and each * len(numbers) > budget
    packed = any(not s.storage.startswith(_CHEAP) for s in motions.arrays.values())
    windows = _FEW_WINDOWS if packed else _WINDOWS
    plan = _sample(numbers, rows, each, budget, windows) if sampled else _all(numbers, rows, each)
    spans = list(plan)
    looked = 0
    for done, span in enumerate(spans):
        begin, end, first, last = span
        core = _core(first, last, rows)
        values = {name: _read(stored, span) for name, stored in motions.arrays.items()}
        padding = motions.padding(begin, end, first + core[0], first + core[1])
        for name, array in values.items():
            limits = (bounds or {}).get(name)
            extents[name].see(array[:, slice(*core)], begin, first + core[0], limits, padding)
        if relation is not None:
            _see_relation(relation, motions, values, span)
        looked += (end - begin) * (core[1] - core[0])
        on_progress(done + 1, len(spans))
    seen = looked / max(1, len(numbers) * rows)
    return Scan(extents, relation if relation and relation.numbers else None, sampled, seen)


def _read(stored: StoredArray, span: Span) -> Any:
    return np.asarray(stored.read_part(*span), dtype=np.float64)


def _core(first: int, last: int, rows: int) -> tuple[int, int]:
    return (CONTEXT if first else 0), last - first - (CONTEXT if last < rows else 0)


def _all(numbers: Sequence[int], rows: int, each: int) -> Iterator[Span]:
    """Every row once, in windows that overlap by what the relation needs."""
    if each <= _BLOCK_BYTES:
        most = max(1, _BLOCK_BYTES // each)
        for begin, end in _runs(numbers):
            yield from ((b, min(b + most, end), 0, rows) for b in range(begin, end, most))
        return
    step = max(4 * CONTEXT, rows * _BLOCK_BYTES // each)
    for number in numbers:
        for first in range(0, max(rows - 2 * CONTEXT, 1), step):
            yield number, number + 1, first, min(first + step + 2 * CONTEXT, rows)


def _sample(
    numbers: Sequence[int], rows: int, each: int, budget: int, windows: int
) -> Iterator[Span]:
    """Windows of equal size spread over the trajectories, and over the rows of long ones."""
    size = budget // _WINDOWS
    if each <= size:
        most = max(1, size // each)
        runs = list(_runs(numbers))
        places = np.linspace(0, len(numbers) - most, windows).astype(int)
        for place in sorted(set(places.tolist())):
            if len(runs) == 1:
                yield runs[0][0] + place, runs[0][0] + place + most, 0, rows
            else:
                yield from ((n, n + 1, 0, rows) for n in numbers[place : place + most])
        return
    length = max(8 * CONTEXT, rows * size // each)
    few = (
        np.linspace(0, len(numbers) - 1, min(len(numbers), max(windows // 3, 2)))
        .astype(int)
        .tolist()
    )
    for place in sorted(set(few)):
        for first in np.linspace(0, rows - length, windows // len(few)).astype(int).tolist():
            yield numbers[place], numbers[place] + 1, first, first + length


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Numbers that follow one another, as begin and end."""
    if isinstance(numbers, range) and numbers.step == 1:
        if len(numbers):
            yield numbers.start, numbers.stop
        return
    begin = previous = None
    for number in numbers:
        if previous is not None and number == previous + 1:
            previous = number
            continue
        if begin is not None and previous is not None:
            yield begin, previous + 1
        begin = previous = number
    if begin is not None and previous is not None:
        yield begin, previous + 1


def _window(motions: Motions, values: Mapping[str, Any], span: Span) -> Window:
    """A window of motions for the relation of their mode."""
    from trajcli.views.windows import Window

    begin, end, first, last = span
    step = motions.attributes.get("dt")
    if isinstance(step, (float, np.floating)):  # what the rows were computed with
        gaps = np.full((1, max(last - first - 1, 1)), float(step))
        slack = gaps * 0.0
    else:
        gaps, slack = motions.steps.gaps(begin, end, first, last)
    orders = {name: m for m, name in enumerate(QUANTITIES) if name in values}
    return Window(
        {m: values[name] for name, m in orders.items()},
        {m: motions.arrays[name].dtype for name, m in orders.items()},
        gaps,
        slack,
        first,
        motions.shape[1],
    )


def _see_relation(
    relation: Relation, motions: Motions, values: Mapping[str, Any], span: Span
) -> None:
    if not values or next(iter(values.values())).size == 0:
        return
    from trajcli.views.blame import blame
    from trajcli.views.relations import residuals
    from trajcli.views.windows import Residual

    window = _window(motions, values, span)
    found = list(residuals(relation.law, window))
    worst: tuple[float, Residual, Any] | None = None
    for residual in found:
        ratios = residual.ratios
        relation.numbers += ratios.size
        if not ratios.size:
            continue
        at = np.unravel_index(int(ratios.argmax()), ratios.shape)
        relation.failing += int((ratios > 1.0).sum())
        ratio = float(ratios[at])
        if worst is None or ratio > worst[0]:
            worst = ratio, residual, at
    if worst is None or (worst[0] <= relation.ratio and relation.place is not None):
        return
    ratio, residual, at = worst
    b, d = int(at[0]), int(at[2])
    order, row = residual.order, residual.first + int(at[1])
    if ratio > 1.0:
        order, row = blame(found, b, d, row)
    relation.ratio, relation.residual = ratio, float(residual.values[at])
    relation.order = order
    relation.place = (span[0] + b, window.first + row, d)
