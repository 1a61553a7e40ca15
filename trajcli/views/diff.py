"""Compares the datasets of two sources: how far apart they are, and where the most."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from trajcli.arrays import describe
from trajcli.errors import InputError, Report, join_names
from trajcli.files.catalogue import NUMERIC_KINDS, Catalogue, Dataset, decode_text, json_object
from trajcli.files.conversion import as_batch, match_units, read_unit
from trajcli.files.dofs import Dofs, RotationDofs, named_rotations, pair_dofs, pick_dofs
from trajcli.files.opening import Files, clock_from_options
from trajcli.files.quantities import DOF_NAMES, QUANTITIES, RESERVED_NAMES, ROTATIONS, rate_name
from trajcli.files.reader import assign_times
from trajcli.files.reading import parse_selection
from trajcli.files.recording import (
    Array,
    ArrayGroup,
    Recording,
    mask_numbers,
    record,
    without_rotations,
)
from trajcli.files.source import Source, expand_files, parse_source
from trajcli.kernels.program import Floats
from trajcli.memory import SCANNED_BYTES
from trajcli.rotations.quaternions import angle, continuous, normalize
from trajcli.units import parse_units, per_si, si_units, unit_text
from trajcli.views._tracking import VALUES, track
from trajcli.views.recordings import PairedTimes, array_path, paired_times, read_batches, values_at
from trajcli.views.terminal import TextTable

if TYPE_CHECKING:
    from rich.console import RenderableType

_HEADINGS = ("dataset", "> differ", "> beyond", "> absolute", "> RMS", "> relative", "> ulp")
# Letters shown of texts that differ, and how many of them before the first difference.
_LONGEST, _BEFORE = 60, 20
# More datasets than that whose names differ only in numbers share a line.
_LISTED = 3
# Trajectories that are named of many.
_WORST = 5


@dataclass(frozen=True)
class Compared:
    """A dataset to compare, the rotations among its dofs, and the trajectories that it holds, which
    tell names and times; None without any.

    array: what the source calls it within every trajectory; "" where it does not name one array.
    """

    dataset: Dataset
    rotations: Sequence[RotationDofs]
    recording: Recording | None
    array: str = ""

    def with_units_of_dofs(self) -> Compared:
        """Returns it with no unit for the numbers of rotations that are no angles."""
        units, side = parse_units(read_unit(self.dataset)), self.recording
        if not units or side is None or len(units) not in (1, side.shape[2]):
            return self
        units = without_rotations(side.turning, units, side.shape[2])
        about = {**self.dataset.attributes, "units": unit_text(units)}
        return replace(self, dataset=replace(self.dataset, attributes=about))

    def pick(self, dofs: Sequence[int]) -> Compared:
        """Returns some of the dofs, in this order."""
        rotations = [
            replace(rotation, dofs=tuple(map(dofs.index, rotation.dofs)))
            for rotation in self.rotations
            if set(rotation.dofs) <= set(dofs)
        ]
        dataset = Dofs(self.dataset.shape[-1], dofs).pick(self.dataset)
        return replace(self, dataset=dataset, rotations=rotations)


@dataclass(frozen=True)
class Tolerance:
    """A pair passes within atol + rtol · the larger magnitude, or within ``ulp`` last places."""

    rtol: float = 0.0
    atol: float = 0.0
    ulp: float = 0.0


@dataclass
class Difference:
    """How one dataset differs between two sources, summed up block by block.

    Attributes:
        why: why the dataset cannot be compared as a whole; "" where it can.
        note: what was converted or aligned first.
        differing, beyond: counts of values that differ, and that differ by more than allowed.
        absolute, relative, ulp: the largest difference, as a share of the larger magnitude, and
            in last places of the coarser type.
        square: the sum of the squares of all differences.
        at, a, b: index of the two values furthest apart, and these values.
        angle, turned: the largest angle between rotations in rad, and the sum of all their squares;
            ``rotations`` counts them.
        tracked: of each trajectory its name and how b follows a, [6, dofs] as ``track`` has it.
        names: those of the dofs. joints: of those in ``tracked``; unit: their SI unit.
        paired: whether dofs were paired by "name" or by "place"; "" without dofs.
        only: the names of dofs that one source alone has.
        overlap: the rows that were paired by time; None where rows are compared one by one.
    """

    dataset: str
    why: str = ""
    note: str = ""
    shape: tuple[int, ...] = ()
    types: str = ""
    values: int = 0
    differing: int = 0
    beyond: int = 0
    absolute: float = 0.0
    relative: float = 0.0
    ulp: float = 0.0
    square: float = 0.0
    at: tuple[int, ...] | None = None
    a: float | str | None = None
    b: float | str | None = None
    rotations: int = 0
    angle: float = 0.0
    turned: float = 0.0
    tracked: list[tuple[str, Floats]] = field(default_factory=list)
    names: Sequence[str] = ()
    joints: Sequence[str] = ()
    unit: str = ""
    paired: str = ""
    only: dict[str, list[str]] = field(default_factory=lambda: {"a": [], "b": []})
    overlap: dict[str, Any] | None = None

    def remark(self, text: str) -> None:
        """Adds to the note."""
        self.note = "; ".join(filter(None, [self.note, text]))

    def add_why(self, text: str) -> None:
        """Adds a reason why the dataset cannot be compared as a whole."""
        self.why = "; ".join(filter(None, [self.why, text]))

    @property
    def passed(self) -> bool:
        """Whether nothing is beyond the tolerance."""
        return not self.why and self.beyond == 0

    def as_dict(self) -> dict[str, Any]:
        """Returns the difference for JSON, with the root mean square in place of the sum."""
        sums = ("square", "turned", "tracked", "names", "joints", "unit")
        numbers = {name: value for name, value in vars(self).items() if name not in sums}
        numbers["dataset"] = self.dataset.rstrip("/")
        rms = float(np.sqrt(self.square / max(self.values, 1)))
        return {**numbers, "rms": rms, "angle_rms": self.angle_rms, "passed": self.passed}

    @property
    def of_rates(self) -> bool:
        """Whether it compares derivatives, which follow as the positions do."""
        last = self.dataset.rpartition("/")[2]
        return last in (*QUANTITIES[1:], *ROTATIONS[1:]) or bool(rate_name(last))

    def follow(
        self, a: Array, b: Array, times: Floats, sides: tuple[Compared, Compared], first: int
    ) -> None:
        """Measures how trajectories b [n, T, D] follow a, the ``first`` of them and the next."""
        side, dofs = sides[0].recording, a.shape[2]
        assert side is not None
        turning = {dof for rotation in sides[0].rotations for dof in rotation.dofs}
        free = [dof for dof in range(dofs) if dof not in turning]
        units = parse_units(read_unit(sides[0].dataset))
        units = None if units is None or len(units) not in (1, dofs) else units
        factors = np.resize(per_si(units), dofs) if units else np.ones(dofs)
        self.unit = unit_text(si_units(units)) if units else ""
        names = self.names if len(self.names) == dofs else [*map(str, range(dofs))]
        self.joints = [names[dof] for dof in free]
        name = self.dataset.rpartition("/")[0] or self.dataset
        for k, each in enumerate(track((a / factors)[..., free], (b / factors)[..., free], times)):
            title = name if len(side) == 1 else f"trajectory {side.title(first + k)}"
            self.tracked += [(title, each)] if free else []

    @property
    def angle_rms(self) -> float:
        """The root mean square of the angles between rotations, in rad."""
        return float(np.sqrt(self.turned / max(self.rotations, 1)))

    def add_rotations(
        self, a: Array, b: Array, of_a: Sequence[RotationDofs], of_b: Sequence[RotationDofs]
    ) -> Array:
        """Adds the angles between the rotations of a pair of blocks [..., D]; returns ``b`` with
        the signs of quaternions of ``a``, as either sign is the same rotation."""
        for first, second in zip(of_a, of_b, strict=False):
            x, y = a[..., list(first.dofs)], b[..., list(second.dofs)]
            turns = [
                normalize(np.asarray(values, np.float64), form)[0]
                for values, form in ((x, first.form), (y, second.form))
            ]
            angles = angle(*turns)
            self.rotations += angles.size
            self.angle = float(np.fmax(self.angle, np.nanmax(angles, initial=0.0)))
            self.turned += float(np.nansum(angles**2))
            if first.form == second.form and first.width == 4:
                b = np.array(b)
                opposite = (turns[0] * turns[1]).sum(-1, keepdims=True) < 0
                b[..., list(second.dofs)] = np.where(opposite, -y, y)
        return b

    def add(self, a: Array, b: Array, tolerance: Tolerance, *begin: int) -> None:
        """Adds a pair of blocks that begin at these places of the first axes."""
        self.values += a.size
        numeric = a.dtype.kind in NUMERIC_KINDS and b.dtype.kind in NUMERIC_KINDS
        if not numeric:  # strings and booleans are equal or not, without a distance
            a, b = (np.vectorize(decode_text, otypes=["U"])(x) if x.size else x for x in (a, b))
        same = np.asarray(a == b)
        if a.dtype.kind == b.dtype.kind == "f":
            same |= np.isnan(a) & np.isnan(b)
        if same.all():
            return
        # values without a distance are infinitely far apart
        gap = share = ulp = np.where(same, 0.0, np.inf)
        beyond = ~same
        if numeric:
            x, y = a.astype(np.float64), b.astype(np.float64)
            with np.errstate(all="ignore"):
                size = np.maximum(np.abs(x), np.abs(y))
                gap = np.where(same, 0.0, np.nan_to_num(np.abs(x - y), nan=np.inf, posinf=np.inf))
                share = np.where(gap > 0, np.where(np.isfinite(gap), gap / size, np.inf), 0.0)
                # an infinite magnitude allows nothing: inf is only equal to inf
                allowed = np.where(np.isfinite(size), tolerance.atol + tolerance.rtol * size, 0.0)
            ulp = np.where(same, 0.0, last_places(a, b))
            beyond &= (gap > allowed) & ~(ulp <= tolerance.ulp)
        self.differing += int((~same).sum())
        self.beyond += int(beyond.sum())
        self.relative = max(self.relative, float(share.max()))
        self.ulp = max(self.ulp, float(ulp.max()))
        with np.errstate(over="ignore"):
            self.square += float(np.square(gap).sum())
        worst = np.unravel_index(int(gap.argmax()), gap.shape)
        if self.at is None or gap[worst] > self.absolute:
            self.absolute = float(gap[worst])
            self.at = tuple(int(n) + k for n, k in zip_longest(worst, begin, fillvalue=0))
            self.a, self.b = ((float if numeric else str)(x[worst]) for x in (a, b))


def last_places(a: Array, b: Array) -> Floats:
    """Returns the distance of numbers in units of the last place of the larger.

    Both are rounded to the coarser type first; the distance is infinite at a NaN.
    """
    size = min([8, *(x.dtype.itemsize for x in (a, b) if x.dtype.kind == "f")])
    with np.errstate(all="ignore"):
        x, y = (values.astype(f"f{size}") for values in (a, b))
        unit = np.spacing(np.maximum(np.abs(x), np.abs(y)))
        places = np.abs(x.astype(np.float64) - y) / unit
    return np.where(x == y, 0.0, np.where(np.isnan(places), np.inf, places))


def find_datasets(files: Files, text: str) -> dict[str, Compared]:
    """Returns the datasets that a source names, by name.

    The names of several files begin with their places in the folder. A single dataset that is
    named is called "": it is compared with whatever the other source holds. With --episodes
    these are the arrays of each of these trajectories, by its place among them.
    """
    source, episodes = parse_source(text), files.reading.episodes
    if episodes is not None:
        compared: dict[str, Compared] = {}
        for batch in read_batches(files, [text], as_stored=True):
            for place, number in enumerate(parse_selection(episodes, len(batch))):
                own = batch.part(number).take(batch.group_indices[[number]])
                alone = source.dataset and len(own.arrays) == 1
                for name, array in own.arrays.items():
                    path = f"trajectory {place}/{'' if alone else name}"
                    compared[path] = Compared(array, own.rotations, own)
        return compared
    several = expand_files(source)
    if several == [source]:
        return _in_file(files, source, False)
    folder = source.path if source.path.is_dir() else source.path.parent
    return {
        f"{os.path.relpath(member.path, folder)}/{name}": compared
        for member in several
        for name, compared in _in_file(files, member, len(several) > 1).items()
    }


def _in_file(files: Files, source: Source, several: bool) -> dict[str, Compared]:
    """Returns the datasets of one file, by name.

    Where a layout or options say how to read the file, these are the arrays of its trajectories.
    """
    file, plain = files.open(source.path), files.reading.plain
    of_group = source.dataset is None or file.has_group(source.dataset)
    prefix = f"{source.dataset.strip('/')}/" if of_group and source.dataset else ""
    if plain and of_group:
        named = {
            name.removeprefix(prefix): name for name in file.names() if name.startswith(prefix)
        }
    elif plain and file.get(str(source.dataset)) and not (several and files.layout(file)):
        named = {"": str(source.dataset)}
    else:
        return _of_recordings(files, source, prefix, of_group)
    compared: dict[str, Compared] = {}
    recordings: dict[tuple[str, tuple[int, ...], bool, str], Recording | None] = {}
    for name, path in named.items():
        stored = file.require(path)
        if stored.dtype.kind not in f"{NUMERIC_KINDS}SUOb":
            continue
        # the names of the dofs are one dataset of HDF5, found by any of its links
        name = "dof" if name.endswith("/dof") and not stored.numeric else name
        dataset = pick_dofs(stored, source.dofs)
        # arrays of one shape beside each other share names and times, unless they say their own
        folder, _, last = path.rpartition("/")
        own = path if {"joint_names", "dt"} & stored.attributes.keys() else ""
        key = folder, stored.shape, last in RESERVED_NAMES, own
        if key not in recordings:
            recordings[key] = None
            with suppress(InputError):
                origin = ArrayGroup(file, path, {path: stored}, files.layout(file), named=True,
                                    dofs=source.dofs)  # fmt: skip
                option = clock_from_options(files)
                recording = record(origin, files.reading, option=option is not None)
                recordings[key] = (
                    recording if option is None else assign_times([recording], option)[0]
                )
        compared[name] = Compared(dataset, _named_rotations(dataset), recordings[key])
    return compared


def _of_recordings(
    files: Files, source: Source, prefix: str, of_group: bool
) -> dict[str, Compared]:
    """Returns the arrays of the trajectories of a file, by their paths behind a prefix."""
    compared: dict[str, Compared] = {}
    for batch in read_batches(files, [str(source)], as_stored=True):
        for part in batch.members:
            folder = part.group if part.member is None else part.name
            for name, array in part.arrays.items():
                path = array_path(folder, part, name).removeprefix(prefix)
                within = "" if of_group else array_path("", part, name)
                compared[path] = Compared(array, part.rotations, part, within)
    return compared


def _named_rotations(dataset: Dataset) -> Sequence[RotationDofs]:
    """Returns the rotations that a dataset's name or those of its columns tell: the angle between
    two does not depend on the order of their components."""
    if not dataset.ndim or dataset.dtype.kind != "f":
        return ()
    names, order = dataset.attributes.get("joint_names"), dataset.attributes.get("order", "wxyz")
    names, path = names if isinstance(names, list) else (), dataset.where.name
    return named_rotations(path, names, dataset.shape[-1], "", order, dataset.where)


def compare(
    first: Mapping[str, Compared],
    second: Mapping[str, Compared],
    tolerance: Tolerance,
    report: Report,
    always: bool = False,
) -> Iterator[Difference]:
    """Compares the datasets of the same name, in the order of the first source.

    Where each source has one dataset, or names one of every trajectory, these are compared,
    whatever they are called. always: measures how b follows a also where they do not differ.
    """
    if len(first) == len(second) == 1:
        # a single pair is compared whatever the names
        second = dict(zip(first, second.values(), strict=True))
    elif not first.keys() & second.keys():
        first, second = _by_trajectory(first), _by_trajectory(second)
    names = list(dict.fromkeys([*first, *second]))
    for done, name in enumerate(names):
        if name not in first or name not in second:
            yield Difference(name, f"only in {'a' if name in first else 'b'}")
        else:
            yield _difference(name, first[name], second[name], tolerance, always)
        report.on_progress(done + 1, len(names))


def _by_trajectory(side: Mapping[str, Compared]) -> Mapping[str, Compared]:
    """Returns the arrays of one name in every trajectory by their trajectories alone: demo_3/."""
    named = {name.removesuffix(x.array): x for name, x in side.items() if x.array}
    return named if len(named) == len(side) else side


def _difference(
    name: str, a: Compared, b: Compared, tolerance: Tolerance, always: bool
) -> Difference:
    """Compares two datasets row by row or, where they share a clock or one has fewer rows, by their
    times."""
    difference = Difference(name)
    if name.rpartition("/")[2] in DOF_NAMES and [] != sorted(_names(a)) == sorted(_names(b)):
        b = a  # in whatever order: dofs are paired by them
    a, b = _with_same_dofs(difference, a.with_units_of_dofs(), b.with_units_of_dofs())
    first, second, note, why = match_units(a.dataset, b.dataset)
    axes = max(first.ndim, second.ndim)
    first, second = _with_axes(first, axes), _with_axes(second, axes)
    difference.types = " and ".join(dict.fromkeys((str(first.dtype), str(second.dtype))))
    difference.shape = first.shape
    difference.remark(note)
    difference.add_why(why)
    if why or (difference.why and not difference.paired):
        return difference
    try:
        times = _times(a, b)
        if times and times.clock and not times.same:
            if times.of_stamps(a.dataset.where, b.dataset.where):
                difference.remark("the clock by which rows are paired")
            else:
                _compare_by_time(difference, (first, second), times, (a, b), tolerance, always)
            return difference
    except InputError as error:  # nothing is known of clocks and delays
        times = None
        difference.remark(f"compared row by row: {error.faults[0].what}")
    if first.shape == second.shape:
        difference.remark(times.remark if times else "")
        total = first.shape[0] if first.shape else 1
        # blocks of rows, however large the datasets are
        count = max(1, total * SCANNED_BYTES // max(1, first.nbytes))
        for begin in range(0, total, count):
            end = min(begin + count, total)
            x, y = (np.asarray(dataset.read_rows(begin, end)) for dataset in (first, second))
            y = difference.add_rotations(x, y, a.rotations, b.rotations)
            difference.add(x, y, tolerance, begin)
        if difference.beyond or always:
            with suppress(InputError):
                _follow(difference, (first, second), (a, b))
        return difference
    rows = first.shape[-2:-1] + second.shape[-2:-1]
    of_other_rows = second.shape == (*first.shape[:-2], *rows[1:], *first.shape[-1:])
    if times and len(rows) == 2 and min(rows) and of_other_rows:
        _compare_by_time(difference, (first, second), times, (a, b), tolerance, always)
    else:
        difference.add_why(_shapes_differ((a, b)))
    return difference


def _shapes_differ(sides: tuple[Compared, Compared]) -> str:
    shapes = " and ".join(describe(side.dataset.shape) for side in sides)
    return f"shapes differ: {shapes}"


def _names(side: Compared) -> list[str]:
    """Returns the texts of a list of names; none for any other dataset."""
    texts = side.dataset.dtype.kind in "SUO" and side.dataset.ndim == 1
    return side.dataset.texts() if texts else []


def _with_same_dofs(difference: Difference, a: Compared, b: Compared) -> tuple[Compared, Compared]:
    """Returns both with the dofs that they share, in one order, paired by their names or, where
    neither has any, by place. Raises InputError where one alone has names."""
    known = [side.recording for side in (a, b) if side.recording]
    if len(known) < 2 or any(x.array_name.rpartition("/")[2] in RESERVED_NAMES for x in known):
        return a, b
    labels, named = [x.pairing_labels for x in known], [x.joint_names is not None for x in known]
    difference.names = labels[0]
    if not any(named) or labels[0] == labels[1]:
        difference.paired = "name" if all(named) else "place" if len(labels[0]) > 1 else ""
        return a, b
    pairs = pair_dofs(labels[0], labels[1], (a.dataset.where, b.dataset.where))
    if pairs.first:
        difference.paired = pairs.by if all(named) else "place"
    difference.why = pairs.remark
    difference.only = pairs.unpaired
    if not pairs.first or list(pairs.first) == list(pairs.second) == list(range(len(labels[0]))):
        return a, b
    difference.names = [labels[0][dof] for dof in pairs.first]
    if list(pairs.first) != list(pairs.second):
        difference.remark("dofs paired by name")
    return a.pick(pairs.first), b.pick(pairs.second)


def _times(a: Compared, b: Compared) -> PairedTimes | None:
    """Returns the times of two datasets of numbers, of as many trajectories; None where nothing
    says them. Raises InputError for times that are wrong."""
    first, second = a.recording, b.recording
    if first is None or second is None or len(first) != len(second):
        return None
    for side, own in ((first, a), (second, b)):
        rows = (1, *own.dataset.shape)[max(own.dataset.ndim - 1, 1)]
        if side.clock is None or side.rows != rows:
            return None
    return paired_times(first, second)


def _follow(
    difference: Difference, pair: tuple[Dataset, Dataset], sides: tuple[Compared, Compared]
) -> None:
    """Measures how trajectories of the same rows follow each other, in blocks of one length."""
    known = [side.recording for side in sides if side.recording]
    timed = [side for side in known if side.clock is not None]
    if len(known) < 2 or not timed or not (pair[0].numeric and pair[1].numeric):
        return
    a, b = map(as_batch, pair)
    of_times = sides[0].dataset.where in [side.clock.where for side in timed if side.clock]
    of_times |= timed[0].array_name.rpartition("/")[2] in RESERVED_NAMES
    if of_times or a.shape[:2] != timed[0].shape[:2]:
        return
    for block in timed[0].blocks(size=SCANNED_BYTES):
        begin, rows, times = int(block.numbers[0]), block.rows, block.times()
        clocks = [side.take(block.numbers).times() for side in timed]
        if times is None or any(x is None or not (np.diff(x) > 0).all() for x in clocks):
            continue
        x, y = (np.asarray(d.read_rows(begin, begin + len(block)))[:, :rows] for d in (a, b))
        if rows:
            difference.follow(x, y, times - times[:, :1], sides, begin)


def _with_axes(dataset: Dataset, axes: int) -> Dataset:
    """Returns a dataset with axes of length 1 in front: [T, D] as [1, T, D]."""
    new = axes - dataset.ndim
    if new <= 0:
        return dataset
    return replace(dataset, shape=(1,) * new + dataset.shape,
                   reader=lambda begin, end: dataset.read()[(None,) * new])  # fmt: skip


def _compare_by_time(
    difference: Difference,
    pair: tuple[Dataset, Dataset],
    times: PairedTimes,
    sides: tuple[Compared, Compared],
    tolerance: Tolerance,
    always: bool,
) -> None:
    """Compares trajectories where they overlap, at the times of the one with fewer rows there.

    The other is interpolated linearly where it has no row. From their starts, both must end at the
    same time, up to one step of the one with fewer rows.
    """
    moved, rows, seconds = set[str](), 0, 0.0
    datasets = list(map(as_batch, pair))
    for number in range(len(times.first)):
        clocks = times.rows_of(number)
        near, inside = times.near(clocks[0]), times.inside(clocks)
        coarse = int(not len(inside[0]) or 0 < len(inside[1]) < len(inside[0]))
        fine, at = 1 - coarse, clocks[coarse][inside[coarse]]
        ends, steps = [float(c[-1]) for c in clocks], np.diff(clocks[coarse])
        if not times.clock and abs(ends[0] - ends[1]) > steps.max(initial=0.0) + near:
            difference.add_why(f"times differ: {' and '.join(f'0 to {end:g} s' for end in ends)}")
            difference.add_why(_shapes_differ(sides))
            return
        values = [
            np.asarray(dataset.read_rows(number, number + 1))[0][: len(clock)]
            for dataset, clock in zip(datasets, clocks, strict=True)
        ]
        for dofs in (list(x.dofs) for x in sides[fine].rotations if x.width == 4):
            values[fine] = np.array(values[fine])  # neighbours of opposite signs have no mean
            values[fine][..., dofs] = continuous(values[fine][..., dofs])
        if len(inside[1]) > 1:  # the rows of b, wherever those of a are
            own = clocks[1][inside[1]]
            x = values_at(own, clocks[0], values[0], near)[0]
            y = values[1][inside[1]]
            difference.follow(x[None], y[None], own[None], sides, number)
        values[coarse] = values[coarse][inside[coarse]]
        values[fine], between = values_at(at, clocks[fine], values[fine], near)
        moved |= {"ab"[fine]} if between else set()
        rows, seconds = rows + len(at), seconds + float(at[-1] - at[0])
        values[1] = difference.add_rotations(values[0], values[1], *(s.rotations for s in sides))
        x, y = (block[None] for block in values)
        difference.add(x, y, tolerance, number, int(inside[coarse][0]))
    difference.overlap = {"rows": rows, "seconds": seconds, "clock": times.clock,
                          "interpolated": sorted(moved)}  # fmt: skip
    how = "on one clock" if times.clock else times.remark or "from their starts"
    if moved:
        how += f"; {' and '.join(sorted(moved))} interpolated"
    difference.remark(f"{rows} rows ({seconds:.6g} s) aligned by time, {how}")
    if difference.at is not None and pair[0].ndim < len(difference.at):
        difference.at = difference.at[1 : 1 + pair[0].ndim]
    if not (difference.beyond or always):
        difference.tracked = []


def compare_attributes(first: Catalogue, second: Catalogue) -> list[tuple[str, Any, Any]]:
    """Returns the attributes and the recorded options that differ: name, both values."""
    pair = []
    for file in (first, second):
        attributes = dict(file.attributes())
        if request := json_object(attributes.get("request")):
            del attributes["request"]
        texts = {k: x if isinstance(x, str) else json.dumps(x) for k, x in request.items()}
        pair.append(attributes | {f"request.{key}": text for key, text in texts.items()})
    a, b = pair
    return [
        (name, a.get(name), b.get(name))
        for name in sorted({*a, *b})
        if not np.array_equal(np.asarray(a.get(name)), np.asarray(b.get(name)))
    ]


def report(
    sources: tuple[str, str],
    differences: Sequence[Difference],
    attributes: Sequence[tuple[str, Any, Any]],
    verbose: bool,
    tracked: Sequence[Mapping[str, Any]] = (),
    verdict: str | None = None,
) -> Iterator[RenderableType]:
    """Yields what differs and by how much, and how b follows a.

    Many datasets whose groups differ only in numbers share a line, data/demo_*/position; with
    ``verbose`` each has its own. verdict: what a gate says, "" where it is passed.
    """
    from rich.text import Text

    yield Text(f"a: {sources[0]}\nb: {sources[1]}\n")
    patterns: dict[str, list[Difference]] = {}
    for difference in differences:
        # data/demo_3/position and data/demo_12/position are one line
        patterns.setdefault(_pattern(difference), []).append(difference)
    lines: list[tuple[str, list[Difference]]] = []
    for pattern, members in patterns.items():
        if verbose or len(members) <= _LISTED:
            lines += [(member.dataset.rstrip("/") or "values", [member]) for member in members]
        else:
            lines.append((f"{pattern.rstrip('/')} ({len(members)})", members))
    compared = [(name, members) for name, members in lines if any(x.values for x in members)]
    if compared:
        rows = [_row(name, members) for name, members in compared]
        columns = len(_HEADINGS) - (0 if verbose else 2)
        yield TextTable(_HEADINGS[:columns], [row[:columns] for row in rows], spare=("RMS",))
    for name, members in compared:
        worst = max(members, key=lambda member: (member.at is not None, member.absolute))
        if worst.at is not None:
            a, b = _pair(worst.a, worst.b)
            group = f"{worst.dataset.rpartition('/')[0] or worst.dataset} " * (len(members) > 1)
            yield Text(f"{name}: worst at {group}{list(worst.at)}, a = {a}, b = {b}")
    for name, members in lines:
        if any(member.rotations for member in members) and any(m.differing for m in members):
            worst = max(members, key=lambda member: member.angle)
            rms = (sum(m.turned for m in members) / sum(m.rotations for m in members)) ** 0.5
            yield Text(f"{name}: up to {worst.angle:.3g} rad between them, RMS {rms:.3g} rad")
        if notes := [member for member in members if member.why or member.note]:
            first = min(notes, key=lambda member: not member.why)
            # the one whose text is shown, and how many others there are
            shown = [first, *(member for member in notes if member is not first)]
            which = join_names((member.dataset.rstrip("/") for member in shown), 1)
            which = f": {which}" if len(members) > 1 else ""
            yield Text(f"{name}: {'; '.join(filter(None, [first.why, first.note]))}{which}")
    for name, *values in attributes:
        yield Text(f"attribute {name}: {' and '.join(_short(*values))}")
    if differences and not any(x.types for x in differences):  # no dataset of both
        yield Text("no dataset is in both: name one of each; --episodes all goes by trajectories")
    if any(difference.paired == "place" for difference in differences):
        yield Text("dofs without names are compared by place; --joints a,b,c names them")
    yield from tracking_report(tracked)
    if verdict is not None:
        text = verdict or "tracking: within the limits"
        yield Text(f"\n{text}", "bold red" if verdict else "")
        return
    failed = sum(not difference.passed for difference in differences)
    datasets = f"{len(differences)} {'dataset' if len(differences) == 1 else 'datasets'}"
    count = sum(difference.differing for difference in differences)
    if failed:
        differ = "differs" if failed == 1 else "differ"
        yield Text(f"\n{failed} of {datasets} {differ} by more than allowed", "bold red")
    elif count:
        numbers = f"{count} number{' differs' if count == 1 else 's differ'}"
        yield Text(f"\n{datasets}: {numbers}, within the tolerance")
    else:
        yield Text(f"\n{datasets}: equal" if differences else "\nno datasets to compare")


def verdict(differences: Sequence[Difference], error: float | None, delay: float | None) -> str:
    """Returns in words which trajectories are beyond an error after the delay, in SI, or a delay in
    seconds, or were not measured; "" where none is."""
    tracked, beyond = main_tracked(differences), list[str]()
    patterns = {*map(_pattern, tracked)}
    for x in differences:
        name = x.dataset.rstrip("/") or "values"
        if error is not None and x.angle > error:
            beyond.append(f"{name}: {x.angle:.3g} rad between rotations")
        # what one source alone has beside the motion, such as stamps or efforts, does not count
        if tracked and _pattern(x) not in patterns:
            continue
        if x.why or (tracked and not x.tracked):
            beyond.append(f"{name}: {x.why or 'not measured'}")
        for title, (late, _, _, largest, _, missing) in x.tracked:
            known = np.abs(late[np.isfinite(late)])
            far = error is not None and bool(missing.any() or not (largest <= error).all())
            slow = delay is not None and not (known.size and (known <= delay).all())
            beyond += [title] if far or slow else []
    if not (tracked or beyond):
        return "no trajectories with times to measure: --dt SECONDS or --times says them"
    count = max(len(beyond), sum(len(x.tracked) for x in tracked))
    return (
        f"{len(beyond)} of {count} beyond the limits: {join_names(beyond, _WORST)}"
        if beyond
        else ""
    )


def main_tracked(differences: Sequence[Difference]) -> list[Difference]:
    """Returns those that show how b follows a: of positions, where there are any."""
    tracked = [x for x in differences if x.tracked]
    return [x for x in tracked if not x.of_rates] or tracked


def _pattern(difference: Difference) -> str:
    """Returns the name of a dataset without the number of its group or, without one, its own."""
    group, slash, name = difference.dataset.rpartition("/")
    return mask_numbers(group) + slash + (name if group else mask_numbers(name))


def summarize_tracking(differences: Sequence[Difference], verbose: bool) -> list[dict[str, Any]]:
    """Returns how b follows a, for JSON: datasets whose names differ only in numbers are one."""
    patterns: dict[tuple[str, ...], list[Difference]] = {}
    for x in main_tracked(differences):
        patterns.setdefault((_pattern(x), *x.joints), []).append(x)
    document = []
    for (pattern, *names), members in patterns.items():
        titles = [title for x in members for title, _ in x.tracked]
        values = np.stack([each for x in members for _, each in x.tracked])
        errors = np.nan_to_num(values[:, 3], nan=-1.0)  # [episodes, joints]
        places = [
            [
                {"trajectory": title, "joint": name, **dict(zip(VALUES, x.tolist(), strict=True))}
                for name, x in zip(names, each.T, strict=True)
            ]
            for title, each in zip(titles, values, strict=True)
        ]
        lines = [
            {
                **places[k][joint],
                "delay": _median(values[:, 0, joint]),
                "offset": _median(values[:, 1, joint]),
                "rms": float(np.sqrt(np.mean(_known(values[:, 2, joint]) ** 2))),
            }
            for joint, k in enumerate(errors.argmax(0).tolist())
        ]
        order = np.argsort(-errors.max(1), kind="stable").tolist()
        pattern = pattern if len(members) > 1 else members[0].dataset
        document.append({
            "dataset": pattern.rstrip("/"), "unit": members[0].unit, "trajectories": len(values),
            "joints": lines,
            "delay": _spread(np.array([_median(each[0]) for each in values])),
            "largest": _spread(np.fmax.reduce(values[:, 3], axis=1)),
            "worst": [places[k][int(errors[k].argmax())] for k in order[:_WORST]],
            **({"episodes": places} if verbose else {}),
        })  # fmt: skip
    return document


def tracking_report(tracked: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Yields how b follows a: a line for each joint, and one for all trajectories."""
    from rich.text import Text

    for part in tracked:
        name, unit, many = part["dataset"] or "values", part["unit"], part["trajectories"] > 1
        rows = [
            [x["joint"], _milliseconds(x["delay"]), *(_digits(x[n]) for n in VALUES[1:4]),
             (f"{x['trajectory']}, " if many else "") + f"{_digits(x['time'])} s"]
            for x in part["joints"]
        ]  # fmt: skip
        of = f", in {unit}" if unit else ""
        yield Text(f"\n{name}: how b follows a{of}; offset, RMS and largest error after the delay")
        yield TextTable(["joint", "> delay", "> offset", "> RMS", "> largest", "at"], rows)
        if not many:
            continue
        late, error = (
            [form(part[n][k]) for k in ("median", "low", "high")]
            for n, form in (("delay", _milliseconds), ("largest", _digits))
        )
        texts = (f"{x['trajectory']} {_digits(x['largest'])}" for x in part["worst"])
        yield Text(
            f"{part['trajectories']} trajectories: delay {late[0]} (nine in ten {late[1]} to "
            f"{late[2]}), largest error {error[0]} ({error[1]} to {error[2]}); "
            f"worst: {join_names(texts, _WORST)}"
        )
        for each in part.get("episodes", ()):
            x = max(each, key=lambda x: np.nan_to_num(x["largest"]))
            late = [_milliseconds(y["delay"]) for y in each]
            where = f"{x['joint']}, {_digits(x['time'])} s"
            text = f"delays {', '.join(late)}; largest error {_digits(x['largest'])} ({where})"
            yield Text(f"  {x['trajectory']}: {text}")


def _digits(value: float) -> str:
    return f"{value:.3g}".replace("nan", "-")


def _milliseconds(value: float) -> str:
    return f"{round(1e3 * value, 3):.3g} ms".replace("nan ms", "-")


def _known(values: Floats) -> Floats:
    """Returns the finite values, or one NaN where there are none."""
    known = values[np.isfinite(values)]
    return known if known.size else np.array([np.nan])


def _median(values: Floats) -> float:
    return float(np.median(_known(values)))


def _spread(values: Floats) -> dict[str, float]:
    """Returns the median, and between what nine in ten are."""
    quantiles = np.quantile(_known(values), [0.05, 0.5, 0.95])
    return dict(zip(("low", "median", "high"), quantiles.tolist(), strict=True))


def _row(name: str, members: Sequence[Difference]) -> list[str]:
    """Returns the cells of a line of the table: counts, and the largest of all members."""
    differing = sum(x.differing for x in members)
    if not differing:
        return [name, "0"]
    largest = [max(getattr(x, key) for x in members) for key in ("absolute", "relative", "ulp")]
    rms = (sum(x.square for x in members) / sum(x.values for x in members)) ** 0.5
    texts = [f"{largest[0]:.3g}", f"{rms:.3g}", f"{largest[1]:.3g}", f"{largest[2]:.4g}"]
    return [name, str(differing), str(sum(x.beyond for x in members)), *texts]


def _pair(a: float | str | None, b: float | str | None) -> tuple[str, str]:
    """Returns two values, with as many digits as tell them apart."""
    if not (isinstance(a, float) and isinstance(b, float)):
        return str(a), str(b)
    pairs = ((f"{a:.{digits}g}", f"{b:.{digits}g}") for digits in range(6, 18))
    return next((pair for pair in pairs if pair[0] != pair[1]), (repr(a), repr(b)))


def _short(a: Any, b: Any) -> tuple[str, str]:
    """Returns two texts, shortened; where they begin alike, from shortly before they part."""
    texts = ["absent" if value is None else " ".join(str(value).split()) for value in (a, b)]
    if texts[0] == texts[1]:  # they differ in spaces and ends of lines, or in type
        texts = [repr(value) for value in (a, b)]
    begin = max(0, len(os.path.commonprefix(texts)) - _BEFORE)  # noqa: RUF071 - of letters
    if begin and max(map(len, texts)) > _LONGEST:
        texts = [f"…{text[begin:]}" for text in texts]
    first, second = (t if len(t) <= _LONGEST else f"{t[: _LONGEST - 1]}…" for t in texts)
    return first, second
