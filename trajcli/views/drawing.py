"""What a figure shows: lines of each quantity of some trajectories, limits, peaks of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trajcli.checks import describe
from trajcli.errors import Fault, InputError
from trajcli.files.limits import Bounds, Limits
from trajcli.files.schema import QUANTITIES
from trajcli.views.laws import ORDERS
from trajcli.views.motions import ACTIONS, Motions, Trajectories
from trajcli.views.scan import Progress
from trajcli.views.selection import select

_POINTS = 4000
"""A line of more rows is drawn by the least and the most of each run of them."""
_BLOCK_ROWS = 1 << 18
_BLOCK_BYTES = 8 << 20
_CLOCK = 1e6
MOST = 100
"""More trajectories are not drawn in one figure."""


@dataclass(frozen=True)
class Line:
    """A quantity of a trajectory: times [n], values [n, dofs]; ``dofs`` are their names."""

    quantity: str
    unit: str
    source: int
    trajectory: str
    time: Any
    timed: bool
    values: Any
    dofs: Sequence[str]
    numbers: Sequence[int]
    bounds: Bounds | None
    outside: int
    """How many values are beyond limits, also of those that are not drawn."""
    goal: Any = None
    held: str = ""
    """Whether a value holds over the step "into" its row or "out of" it; else lines lead on."""

    @property
    def beyond(self) -> Any:
        """Where drawn values are outside their limits, [n, dofs]."""
        return _outside(self.values, self.bounds)


@dataclass(frozen=True)
class Peaks:
    """The least and the largest value of a quantity in each trajectory, [B, dofs].

    NaN where a trajectory has none that is finite; ``beyond``: how many values of each are
    outside their limits, [B, dofs].
    """

    quantity: str
    unit: str
    source: int
    low: Any
    high: Any
    beyond: Any
    dofs: Sequence[str]
    numbers: Sequence[int]
    bounds: Bounds | None

    @property
    def outside(self) -> int:
        """How many values are beyond limits."""
        return int(self.beyond.sum())

    @property
    def signed(self) -> bool:
        """Whether a magnitude would not tell on which side of its limits a value is."""
        if self.quantity == QUANTITIES[0]:
            return True
        return self.bounds is not None and bool((self.bounds.lower != -self.bounds.upper).any())


def _outside(values: Any, bounds: Bounds | None) -> Any:
    """Where values [..., dofs] are outside their limits, by more than rounding."""
    if bounds is None:
        return np.zeros(values.shape, dtype=bool)
    room = bounds.slack * bounds.size
    with np.errstate(invalid="ignore"):
        return (values > bounds.upper + room) | (values < bounds.lower - room)


def lines_of(
    found: Trajectories,
    source: int,
    index: str | None,
    dof: str | None,
    limits: Limits | None,
) -> list[Line]:
    """The lines of the chosen trajectories, by default the first alone."""
    _require_rows(found)
    chosen = select(index, found.count, "--index") if index else [0]
    if len(chosen) > MOST:
        hint = "--histogram shows all at once"
        expected = f"at most {MOST} trajectories"
        raise InputError(
            Fault("too much for one figure", "--index", expected, str(len(chosen)), hint)
        )
    lines = []
    for number in chosen:
        for motions, own in found.beside(number):
            for name in motions.arrays if motions.shape[1] else ():
                lines.append(_line(motions, own, name, source, found.name(number), dof, limits))
    return lines


def _require_rows(found: Trajectories) -> None:
    """Raise InputError where there is nothing to draw."""
    sizes = [one.shape for one in found.main]
    if not any(batch and rows for batch, rows, _ in sizes):
        where = str(found.main[0].file.path) if found.main else ""
        shape = describe(sizes[0]) if sizes else "none"
        raise InputError(Fault("nothing to draw", where, "trajectories with rows", shape))


def _line(
    motions: Motions,
    own: int,
    name: str,
    source: int,
    trajectory: str,
    dof: str | None,
    limits: Limits | None,
) -> Line:
    numbers = list(select(dof, motions.shape[2], "--dof", motions.dofs))
    quantity = quantity_of(motions, name)
    bounds = _bounds(motions, name, quantity, numbers, limits)
    time, values, timed, outside = _thinned(motions, own, name, numbers, bounds)
    if timed and len(time) and abs(time[0]) > _CLOCK:
        time = time - time[0]
    return Line(
        quantity,
        motions.unit(name),
        source,
        trajectory,
        time,
        timed,
        values,
        [motions.dofs[i] for i in numbers],
        numbers,
        bounds,
        outside,
        _goal(motions, own, quantity, numbers),
        _held(motions, quantity),
    )


def _held(motions: Motions, quantity: str) -> str:
    """How long a value of a quantity holds, by the relation of the mode that made it.

    From clique to jerk a_t − a_{t−1} = dt_t·j_t, but for jerks that are linear (foh); sums by euler
    and zoh take an action for the whole step into its row. Cubic B-splines have one jerk from a
    knot to the next, which the row at the knot begins.
    """
    told = motions.attributes
    mode, scheme = str(told.get("mode")), str(told.get("scheme"))
    if str(told.get("smooth", "")):
        return ""
    if mode == "bspline":
        return "out of" if quantity == "jerk" and str(told.get("degree")) == "3" else ""
    if scheme not in ("euler", "zoh", "foh") or mode not in ("clique", *QUANTITIES[1:]):
        return ""
    if quantity == "jerk" and mode != "jerk":
        return "into"
    return "into" if quantity == mode and scheme != "foh" else ""


def quantity_of(motions: Motions, name: str) -> str:
    """What an array is: actions are what their mode says, where the file says which."""
    return _acted(motions) or name if name in ACTIONS else name


def _acted(motions: Motions) -> str:
    """The quantity that the actions of the file's mode are; "" where it does not say."""
    mode = str(motions.attributes.get("mode"))
    return QUANTITIES[ORDERS[mode]] if mode in ORDERS else ""


def _bounds(
    motions: Motions, name: str, quantity: str, numbers: Sequence[int], limits: Limits | None
) -> Bounds | None:
    if limits is None or quantity not in limits.tables:
        return None
    whole = limits.bounds(motions.dofs, motions.arrays[name].dtype.itemsize)[quantity]
    return Bounds(whole.lower[numbers], whole.upper[numbers], whole.slack)


def _goal(motions: Motions, own: int, quantity: str, numbers: Sequence[int]) -> Any:
    """The goal that the file gives beside the trajectories, [dofs]; None where there is none."""
    for group in motions.groups:
        for name in (f"{group}goal/{quantity}", f"{group}goal_{quantity}"):
            try:
                stored = motions.file.get(name)
            except InputError:
                continue
            if stored is None or not stored.numeric or stored.shape[-1:] != motions.shape[2:]:
                continue
            if stored.ndim == 2 and own < stored.shape[0]:
                return np.asarray(stored.read_rows(own, own + 1))[0][numbers]
    return None


def _thinned(
    motions: Motions, own: int, name: str, numbers: Sequence[int], bounds: Bounds | None
) -> tuple[Any, Any, bool, int]:
    """Times and values of a line of at most some thousand points, its peaks kept.

    And whether they are times, and how many of all values are beyond limits.
    """
    rows = motions.shape[1]
    timed = bool(motions.steps)

    def times(begin: int, end: int) -> Any:
        return motions.steps.times(own, begin, end) if timed else np.arange(begin, end, dtype="f8")

    if rows <= _POINTS:
        values = motions.read(name, own)[:, numbers]
        return times(0, rows), values, timed, int(_outside(values, bounds).sum())
    run = -(-rows // (_POINTS // 2))
    parts: list[tuple[Any, Any]] = []
    outside = 0
    block = max(_BLOCK_ROWS // run, 1) * run
    for begin in range(0, rows, block):
        end = min(begin + block, rows)
        values, time = motions.read(name, own, begin, end)[:, numbers], times(begin, end)
        outside += int(_outside(values, bounds).sum())
        starts = np.arange(0, end - begin, run)
        last = np.minimum(starts + run, end - begin) - 1
        low, high = (f.reduceat(values, starts, axis=0) for f in (np.minimum, np.maximum))
        parts.append((np.stack([time[starts], time[last]], 1), np.stack([low, high], 1)))
    joined = [np.concatenate([part[i] for part in parts]) for i in (0, 1)]
    return joined[0].reshape(-1), joined[1].reshape(-1, joined[1].shape[-1]), timed, outside


def peaks_of(
    found: Trajectories,
    source: int,
    index: str | None,
    dof: str | None,
    limits: Limits | None,
    on_progress: Progress,
) -> list[Peaks]:
    """The peaks of every trajectory, or of the chosen ones."""
    _require_rows(found)
    chosen = np.asarray(select(index, found.count, "--index"))
    peaks = []
    for sets in found.aspects:
        first = sets[0]
        numbers = list(select(dof, first.shape[2], "--dof", first.dofs))
        names = [first.dofs[i] for i in numbers]
        for name in first.arrays:
            quantity = quantity_of(first, name)
            bounds = _bounds(first, name, quantity, numbers, limits)
            parts = [_extremes(one, name, numbers, bounds, on_progress) for one in sets]
            whole = np.concatenate(parts, axis=1)
            low, high, beyond = whole[:, chosen[chosen < whole.shape[1]]]
            unit = first.unit(name)
            peaks.append(Peaks(quantity, unit, source, low, high, beyond, names, numbers, bounds))
    return peaks


def _extremes(
    motions: Motions,
    name: str,
    numbers: Sequence[int],
    bounds: Bounds | None,
    on_progress: Progress,
) -> Any:
    """The least, the largest and how many beyond limits in each trajectory, [3, B, dofs].

    NaN and Inf are left out; so is padding.
    """
    batch, rows, _ = motions.shape
    stored = motions.arrays[name]
    low = np.full((batch, len(numbers)), np.inf)
    high, beyond = -low, np.zeros(low.shape)
    each = max(1, stored.nbytes // max(batch, 1))
    many = max(1, _BLOCK_BYTES // each)
    long = max(1, rows * _BLOCK_BYTES // each) if each > _BLOCK_BYTES else max(rows, 1)
    for begin in range(0, batch, many):
        end = min(begin + many, batch)
        for first in range(0, rows, long):
            last = min(first + long, rows)
            window = np.asarray(stored.read_part(begin, end, first, last))[:, :, numbers]
            known = np.isfinite(window)
            padding = motions.padding(begin, end, first, last)
            if padding is not None:
                known &= ~padding[:, :, None]
            span = slice(begin, end)
            least = np.where(known, window, np.inf).min(axis=1, initial=np.inf)
            most = np.where(known, window, -np.inf).max(axis=1, initial=-np.inf)
            low[span], high[span] = np.minimum(low[span], least), np.maximum(high[span], most)
            beyond[span] += (_outside(window, bounds) & known).sum(axis=1)
        on_progress(end, batch)
    seen = np.isfinite(low)
    return np.stack([np.where(seen, low, np.nan), np.where(seen, high, np.nan), beyond])


def panels(lines: Sequence[Line] | Sequence[Peaks]) -> Mapping[str, list[Any]]:
    """Lines by quantity: position to jerk, then what else there is."""
    found: dict[str, list[Any]] = {}
    for line in _ordered(lines):
        found.setdefault(line.quantity, []).append(line)
    return found


def _ordered(lines: Sequence[Any]) -> Iterator[Any]:
    for quantity in QUANTITIES:
        yield from (line for line in lines if line.quantity == quantity)
    yield from (line for line in lines if line.quantity not in QUANTITIES)
