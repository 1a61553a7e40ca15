"""Reads what a figure shows: quantities over time, and peaks of a batch, with their limits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.arrays import describe, reduce_rows, to_numpy
from trajcli.curves import fastest
from trajcli.curves.sampling import hold_side
from trajcli.errors import InputError, Note, Report, UsageError, raise_if_any
from trajcli.files.conversion import as_batch
from trajcli.files.dofs import dof_numbers, match_names, pair_dofs
from trajcli.files.limits import Bounds, Limits
from trajcli.files.opening import Files
from trajcli.files.quantities import QUANTITIES, RECORDED_POSITION
from trajcli.files.reading import parse_selection
from trajcli.files.recording import Recording
from trajcli.files.source import Source, parse_source
from trajcli.kernels.program import Floats, NumpyArray
from trajcli.mode_options import CURVE
from trajcli.rotations import angle
from trajcli.units import InputUnits, Unit
from trajcli.views._statistics import orientations, read_blocks
from trajcli.views.recordings import (
    array_quantity,
    dof_bounds,
    expand_globs,
    find_quantities,
    label,
    paired_times,
    read_batches,
    units_to_show,
    whole_batch,
)
from trajcli.views.terminal import LARGEST

# Longer lines are drawn by the least and the largest value of each run of rows.
_POINTS = 4000
# Times beyond so many seconds are those of a clock, and are drawn from the first row on.
_CLOCK = 1e6
# The most trajectories that one figure shows: more lines hide each other.
_MOST = 100
_ANGLE = "angle from the start"
# The most dofs of a quantity that have small panels of their own.
_SMALL_PANELS = 4
# Words for what a robot was told, and for what it did, in names of dofs, arrays and files.
_COMMAND = (r"(?<![^\W_])(?:cmd|command(?:s|ed)?|actions?|targets?|desired|des|ref(?:erences?)?"
         r"|set_?points?|goals?|planned)(?:[\W_]+|$)")  # fmt: skip
_STATE = (r"(?<![^\W_])(?:(?:observations?[._/])?states?|actual|meas(?:ured)?|feedback"
         r"|obs(?:erved)?|current)(?:[\W_]+|$)")  # fmt: skip
_IN_SI = InputUnits()


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """The least and the largest value of a quantity in each trajectory, [2, B, D]; NaN without any.

    dofs: number and name of each [D]. factors: from values in SI to those that are drawn [D].
    """

    source: int
    quantity: str
    unit: str
    dofs: Sequence[tuple[int, str]]
    factors: Floats
    bounds: Bounds | None = None
    values: NumpyArray = field(default_factory=lambda: np.empty(0))

    def find_binding(self, values: NumpyArray) -> NumpyArray:
        """Finds the values [n, D] that are at a limit, by the measure of retime."""
        # The path is given to retime: limits of positions do not bind.
        if self.bounds is None or self.quantity not in QUANTITIES[1:]:
            return np.zeros(values.shape, bool)
        return fastest.is_binding(values, self.bounds.lower, self.bounds.upper)


@dataclass(frozen=True, kw_only=True)
class Line(Peaks):
    """A quantity of one trajectory: values [n, D] over time [n], or over row numbers.

    commands: the indices of dofs that are commands of states in the same figure. time_unit: "" of
    row numbers. hold: whether a value holds over the step "into" its row or "out of" it; "" where a
    line leads from row to row. recording: the positions [n, D] that these were smoothed from.
    """

    trajectory: str
    array: str
    commands: Sequence[int] = ()
    time: Floats
    time_unit: str
    hold: str
    recording: NumpyArray | None
    binding_rows: NumpyArray


@dataclass(frozen=True)
class BlockExtremes:
    """Collects by array the least and the largest value of each trajectory, [2, b, D]."""

    extremes: dict[str, list[NumpyArray]]

    def add_block(self, values: Mapping[str, NumpyArray], _: Recording) -> None:
        for name, parts in self.extremes.items():
            rows = _drawable(values[name])
            parts.append(np.stack([reduce_rows(np.fmin, rows), reduce_rows(np.fmax, rows)]))


@dataclass(frozen=True)
class PlotSource:
    """The trajectories of one file that are drawn, numbered as in the batch ``main``.

    number: that of the file in the figure. target: the units that values are drawn in.
    """

    number: int
    origin: Source
    batches: Sequence[Recording]
    main: Recording
    episodes: str | None
    limits: Limits | None
    target: InputUnits
    label: str = ""

    @property
    def selection(self) -> Sequence[int]:
        """The numbers of the trajectories that are drawn: the first without --episodes."""
        return parse_selection(self.episodes or "0", len(self.main))

    def starts(self) -> list[float]:
        """Reads the times at which the trajectories begin; 0 for those of a clock."""
        times = (self.main.take([number]).known_times() for number in self.selection)
        starts = [0.0 if time is None or not time.size else float(time[0, 0]) for time in times]
        # The numbers of a clock are too large to read in a figure.
        return [start if abs(start) <= _CLOCK else 0.0 for start in starts]

    def lines(self, starts: Sequence[float] | None = None) -> list[Line]:
        numbers, starts = self.selection, starts or self.starts()
        if len(numbers) > _MOST:
            what, expected = "too many for one figure", f"at most {_MOST} trajectories"
            found, hint = str(len(numbers)), "--histogram shows all of them"
            raise InputError(what, where="--episodes", expected=expected, found=found, hint=hint)
        lines = [
            self._read_line(batch, number, name, start)
            for number, start in zip(numbers, starts, strict=True)
            for batch in self.batches
            if number < len(batch) and batch.lengths[number]
            for name in (*batch.arrays, *([_ANGLE] if batch.rotations else []))
        ]
        if not lines:
            where = f"{self.origin}, trajectory {self.main.title(numbers[0])}"
            expected = "a trajectory with rows"
            raise InputError("nothing to draw", where=where, expected=expected, found="no rows")
        return lines

    def peaks(self, report: Report) -> Iterator[Peaks]:
        selection = sorted(parse_selection(self.episodes, len(self.main)))
        for batch in self.batches:
            numbers = [number for number in selection if number < len(batch)]
            summary = BlockExtremes({name: [] for name in batch.arrays})
            read_blocks(batch.take(numbers).blocks(report), batch.arrays, [summary])
            for name, parts in summary.extremes.items() if numbers else ():
                peaks = self._quantity(batch, name)
                yield replace(peaks, values=np.concatenate(parts, axis=1) * peaks.factors)

    def _read_line(self, batch: Recording, number: int, name: str, start: float) -> Line:
        """Reads an array of a trajectory, or angles from its first row."""
        block = batch.take([number])
        times = block.times()
        if name == _ANGLE:
            turns, _ = orientations(next(iter(block.arrays.values())).read(), batch.rotations)
            rows = to_numpy(angle(turns, turns[:, :1]))[0]
        else:
            rows = block.arrays[name].read()[0]
        quantity = self._quantity(batch, name)
        unit, values = self.target.time or Unit("s"), _drawable(rows) * quantity.factors
        time = np.arange(block.rows, dtype=np.float64) if times is None else times[0]
        time, binding = time - time[0] + start, quantity.find_binding(values)
        if times is not None:
            time *= unit.per_si
        part, recording = batch.part(number), None
        if block.rows > _POINTS:
            # Of many rows, the least and the largest of each run are drawn, at its first and last
            # row, so that peaks stay.
            starts = np.arange(0, block.rows, -(-block.rows // (_POINTS // 2)))
            ends = np.append(starts[1:], block.rows) - 1
            runs = np.stack([e.reduceat(values, starts, axis=0) for e in (np.fmin, np.fmax)], 1)
            falls = values[starts, None] > values[ends, None]
            values = np.where(falls, runs[:, ::-1], runs).reshape(-1, values.shape[1])
            time = np.stack([time[starts], time[ends]], 1).reshape(-1)
        elif name == "position" and not part.file.members:
            # The file of a smoothed trajectory has the positions that were recorded.
            stored = part.companions.dataset(RECORDED_POSITION)
            index = int(batch.group_indices[number])
            if stored is not None:
                recording = part.pick(as_batch(stored)).read_rows(index, index + 1)[0]
                recording = recording * quantity.factors
        # Over which step a value holds in the mode that made it: from clique to jerk
        # a_t − a_{t−1} = dt_t·j_t, except for linear jerks (foh); euler and zoh take an action for
        # the whole step into its row. A cubic B-spline has one jerk from a knot to the next, which
        # begins with the row at the knot.
        attribute = part.companions.attribute
        options = {option.name: attribute(option.name)[1] for option in CURVE}
        return Line(
            **(vars(quantity) | {"values": values}),
            trajectory=self.main.title(number),
            array=f"{self.label or self.origin.path.name}/{label(batch, name)}",
            time=time,
            time_unit="" if times is None else str(unit),
            hold=hold_side(str(attribute("mode")[1]), options, quantity.quantity),
            recording=recording,
            binding_rows=np.any(binding, axis=1),
        )

    def _quantity(self, batch: Recording, name: str) -> Peaks:
        """Describes what lines and peaks of an array of a batch have in common, without values."""
        if name == _ANGLE:
            target = next((x for x in self.target.positions if x.si == "rad"), Unit("rad"))
            names = [(k, rotation.name) for k, rotation in enumerate(batch.rotations)]
            factors = np.array([target.per_si])
            return Peaks(
                source=self.number, quantity=name, unit=str(target), dofs=names, factors=factors
            )
        # An array called q is positions; with rotations among its dofs it keeps its name.
        stored, units, _ = find_quantities(batch)
        quantity = next((quantity for quantity, array in stored.items() if array == name), "")
        if not quantity or batch.holds_rotations or batch.rotations:
            quantity = array_quantity(batch, name)
        factors, unit = units_to_show(batch, name, self.target)
        if (limits := self.limits) is None:
            # Those that retime keeps with its rows.
            tables = dict[str, Floats]()
            for array, stored_rows in batch.arrays.items() if batch.is_output else ():
                ends = (stored_rows.attributes.get(f"{side}_limit") for side in ("lower", "upper"))
                sides = [*map(np.asarray, ends)]
                if all(side.shape == (batch.dofs.count,) for side in sides):
                    tables[array] = np.stack(sides)
            limits = Limits(batch.file.path, None, tables)
        if bounds := dof_bounds(batch, limits, units).get(quantity):
            bounds = replace(bounds, lower=bounds.lower * factors, upper=bounds.upper * factors)
        return Peaks(
            source=self.number,
            quantity=quantity,
            unit=", ".join(dict.fromkeys(unit.split(","))),
            dofs=list(zip(batch.dofs.numbers, batch.dof_labels, strict=True)),
            factors=factors,
            bounds=bounds,
        )


def plot_sources(
    files: Files,
    texts: Sequence[str],
    limits: Limits | None = None,
    labels: str | None = None,
    to: InputUnits = _IN_SI,
) -> list[PlotSource]:
    """Reads the trajectories of every file, called a,b by ``labels``, in units ``to``."""
    sources, texts = list[PlotSource](), expand_globs(texts)
    names = [""] * len(texts) if labels is None else [name.strip() for name in labels.split(",")]
    if labels is not None and (len(names) != len(texts) or not all(names)):
        what, expected = "labels that do not fit the files", f"{len(texts)}, one for each file"
        raise UsageError(what, where="--labels", expected=expected, found=labels)
    for k, text in enumerate(texts):
        batches, origin = read_batches(files, [text]), parse_source(text)
        if all(0 in part.shape for batch in batches for part in batch.members):
            found = describe(batches[0].shape) if batches else "no trajectories"
            expected = "trajectories with rows and dofs"
            raise InputError("nothing to draw", where=str(origin), expected=expected, found=found)
        # Trajectories that a figure would leave out are refused.
        whole_batch(batches)
        main = max(batches, key=lambda batch: len(batch.arrays))
        episodes = files.reading.episodes
        # Without --episodes a set is drawn as if it were complete.
        if episodes is None:
            raise_if_any(main.usable()[1].values())
        sources.append(PlotSource(k, origin, batches, main, episodes, limits, to, names[k]))
    return sources


def read_lines(sources: Sequence[PlotSource], report: Report) -> list[Line]:
    # A dof has one number and name in all sources; times are those of the clock that they share
    # with the first, otherwise they count from their starts.
    first, remarks = sources[0], Report()
    starts, shared = [source.starts() for source in sources], False
    for source in sources[1:]:
        # Sources without times are drawn from their starts.
        with suppress(InputError):
            if len(source.selection) == len(first.selection):
                times = paired_times(*(x.main.take(list(x.selection)) for x in (first, source)))
                if times.remark:
                    remarks.add_notes(times.remark)
                if times.shared_clock:
                    starts[source.number] = (np.array(starts[0]) + times.start_offsets).tolist()
                    shared = True
    # One source that shares no clock has all of them drawn from their starts.
    if remarks.notes:
        report.add_notes(f"drawn {'; '.join(remarks.notes)}")
        starts = [[0.0] * len(source.selection) for source in sources]
    elif shared:
        report.add_notes(Note("drawn on one clock"))
    dofs = _FigureDofs(short_labels(sources), report)
    lines = [x for source, start in zip(sources, starts, strict=True) for x in source.lines(start)]
    # Dofs that are commands of others are dashed, and named without the words for either:
    # cmd_joint_1 and actual_joint_1 are both joint_1.
    parts = list[list[tuple[tuple[str, object], bool, str]]]()
    for line in lines:
        names = [name for _, name in line.dofs]
        stems = [
            re.sub(f"(?i){_COMMAND}|{_STATE}", "", name).strip("._ ") or name for name in names
        ]
        keys = [(line.quantity, key) for key in dof_numbers(names) or stems]
        texts = [x if re.search(f"(?i){_STATE}", x) else f"{line.array}/{x}" for x in names]
        commands = [re.search(f"(?i){_COMMAND}", text) is not None for text in texts]
        parts.append(list(zip(keys, commands, stems, strict=True)))
    sides = {(key, command) for part in parts for key, command, _ in part}
    for i, (line, part) in enumerate(zip(lines, parts, strict=True)):
        # Only a dof of which the figure has both sides loses its words.
        both = [{(key, True), (key, False)} <= sides for key, *_ in part]
        pairs = zip(line.dofs, part, both, strict=True)
        stripped = [(n, stem if pair else name) for (n, name), (*_, stem), pair in pairs]
        indices = [k for k, (_, command, _) in enumerate(part) if command and both[k]]
        line = replace(line, dofs=stripped, commands=indices)
        lines[i] = replace(line, dofs=dofs.find_names(line))
    return lines


class _FigureDofs:
    """The dofs of a figure, each with one number, which is its colour, and one name."""

    def __init__(self, sources: Sequence[str], report: Report) -> None:
        self._sources, self._report = sources, report
        self._known: list[tuple[int, str]] = []
        self._lines: dict[tuple[Any, ...], list[tuple[int, str]]] = {}

    def find_names(self, line: Line) -> list[tuple[int, str]]:
        """Finds the numbers and names of the dofs of a line in the figure."""
        key = line.source, line.quantity, *line.dofs
        if key in self._lines:
            return self._lines[key]
        # Dofs that an earlier line has, whatever its quantity, have the same number.
        names = [name for _, name in line.dofs]
        match = match_names(names, [name for _, name in self._known])
        dofs = [None if k is None else self._known[k] for k in match]
        # Dofs of the same quantity in another source are paired as diff pairs them.
        for (source, quantity, *_), others in self._lines.items():
            if quantity == line.quantity and source != line.source:
                places = [f"{self._sources[k]}, {quantity}" for k in (source, line.source)]
                pairs = pair_dofs([name for _, name in others], names, places)
                if pairs.by == "place" and len(names) > 1:
                    self._report.add_notes(Note("dofs without names are drawn by place"))
                for a, b in zip(pairs.first, pairs.second, strict=True):
                    dofs[b] = others[a]
                break
        # A new dof keeps its number, and so its colour, unless another one has it.
        for k, (number, name) in enumerate(line.dofs):
            taken = {known for known, _ in self._known}
            dofs[k] = dofs[k] or next((dof for dof in self._known if dof[1] == name), None)
            if dofs[k] is None:
                self._known.append((max(taken) + 1 if number in taken else number, name))
            self._lines.setdefault(key, []).append(dofs[k] or self._known[-1])
        return self._lines[key]


def _drawable(values: NumpyArray) -> NumpyArray:
    """Replaces by NaN the values that are not finite or whose differences would not be."""
    return np.where(np.abs(values, dtype=np.float64) < LARGEST, values, np.nan)


def panels(drawn: Sequence[Any]) -> dict[str, list[Any]]:
    """Groups what is drawn by quantity: position to jerk, then all others."""
    quantities = dict.fromkeys([*QUANTITIES, *(member.quantity for member in drawn)])
    by_quantity = {name: [x for x in drawn if x.quantity == name] for name in quantities}
    return {name: members for name, members in by_quantity.items() if members}


def line_panels(lines: Sequence[Line]) -> Iterator[tuple[str, Sequence[Line], set[int]]]:
    """Yields a panel for each quantity: its lines, and the numbers of the dofs that are shown."""

    # A panel follows for each dof that switches between two values, as a gripper does.
    def switches(values: NumpyArray) -> bool:
        known = values[np.isfinite(values)]
        # An encoder at rest also has two values, but goes between them in most rows.
        return 10 * np.count_nonzero(np.diff(known)) <= len(known) and len(np.unique(known)) == 2

    for quantity, members in panels(lines).items():
        pairs = [(dof[0], line.values[:, k]) for line in members for k, dof in enumerate(line.dofs)]
        dofs = {number for number, _ in pairs}
        small = sorted({number for number, values in pairs if switches(values)})
        small = small if len(small) < min(len(dofs), _SMALL_PANELS + 1) else []
        yield quantity, members, dofs.difference(small)
        yield from ((quantity, members, {number}) for number in small)


def short_labels(sources: Sequence[PlotSource]) -> list[str]:
    """Lists the labels of sources, or their names, without folders where these differ."""
    if all(source.label for source in sources):
        return [source.label for source in sources]
    # Folders are shown only where files in them are called the same.
    origins = [source.origin for source in sources]
    names = [str(origin._replace(path=Path(origin.path.name))) for origin in origins]
    return names if len(set(names)) == len(names) else [str(origin) for origin in origins]
