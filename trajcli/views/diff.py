"""Compares the datasets of two sources: by how much they differ, and where the most."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from trajcli.arrays import describe, to_numpy
from trajcli.errors import InputError, Report, join_names
from trajcli.files.catalogue import NUMERIC_KINDS, Catalogue, Dataset, decode_text, json_object
from trajcli.files.conversion import as_batch, match_units, read_unit
from trajcli.files.dofs import Dofs, RotationDofs, named_rotations, pair_dofs, pick_dofs
from trajcli.files.opening import Files, clock_from_options
from trajcli.files.quantities import DOF_NAMES, QUANTITIES, RESERVED_NAMES, ROTATIONS, rate_name
from trajcli.files.reader import assign_times
from trajcli.files.reading import parse_selection
from trajcli.files.recording import (
    ArrayGroup,
    Recording,
    mask_numbers,
    record,
    without_rotations,
)
from trajcli.files.source import Source, expand_files, parse_source
from trajcli.kernels.program import Floats, NumpyArray
from trajcli.memory import SCANNED_BYTES
from trajcli.rotations.quaternions import angle, continuous, normalize
from trajcli.units import parse_units, per_si, si_units, unit_text
from trajcli.views._tracking import VALUES, track
from trajcli.views.recordings import (
    PairedTimes,
    array_path,
    interpolate,
    paired_times,
    read_batches,
)
from trajcli.views.terminal import TextTable

if TYPE_CHECKING:
    from rich.console import RenderableType

_HEADINGS = ("dataset", "> differ", "> beyond", "> absolute", "> RMS", "> relative", "> ulp")
# Letters shown of texts that differ, and how many of them before the first difference.
_LONGEST, _BEFORE = 60, 20
# More datasets than this whose names differ only in numbers share a line.
_LISTED = 3
# So many of the worst trajectories are named.
_WORST = 5


@dataclass(frozen=True)
class Side:
    """A dataset of one source, with its rotations and the recording that tells names and times.

    array: the name of the array within every trajectory; "" where the source names no such array.
    """

    dataset: Dataset
    rotations: Sequence[RotationDofs]
    recording: Recording | None
    array: str = ""

    def without_rotation_units(self) -> Side:
        """Drops the units of rotations whose numbers are not angles, such as quaternions."""
        units, recording = parse_units(read_unit(self.dataset)), self.recording
        if not units or recording is None or len(units) not in (1, recording.shape[2]):
            return self
        units = without_rotations(recording.turning, units, recording.shape[2])
        attributes = {**self.dataset.attributes, "units": unit_text(units)}
        return replace(self, dataset=replace(self.dataset, attributes=attributes))

    def pick(self, dofs: Sequence[int]) -> Side:
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
        reason: why the dataset cannot be compared; note: what was converted or aligned before.
        unequal, excess: how many values differ, and by more than the tolerance.
        absolute, relative, ulp: the largest difference, as a share of the larger magnitude, and
            in units in the last place of the coarser type.
        index, a, b: the index of the two values furthest apart, and these values.
        tracks: for each trajectory its title and how b follows a, [6, dofs] as ``track`` has it.
        joints: the dofs in ``tracks``. pairing: whether dofs were paired by "name" or by "place".
        overlap: the rows that were paired by time; None where rows are compared one by one.
    """

    dataset: str
    reason: str = ""
    note: str = ""
    shape: tuple[int, ...] = ()
    types: str = ""
    values: int = 0
    unequal: int = 0
    excess: int = 0
    absolute: float = 0.0
    relative: float = 0.0
    ulp: float = 0.0
    square_sum: float = 0.0
    index: tuple[int, ...] | None = None
    a: float | str | None = None
    b: float | str | None = None
    rotations: int = 0
    angle: float = 0.0
    angle_square_sum: float = 0.0
    tracks: list[tuple[str, Floats]] = field(default_factory=list)
    names: Sequence[str] = ()
    joints: Sequence[str] = ()
    unit: str = ""
    pairing: str = ""
    unpaired: dict[str, list[str]] = field(default_factory=lambda: {"a": [], "b": []})
    overlap: dict[str, Any] | None = None

    def add_note(self, text: str) -> None:
        self.note = "; ".join(filter(None, [self.note, text]))

    def add_reason(self, text: str) -> None:
        self.reason = "; ".join(filter(None, [self.reason, text]))

    @property
    def passed(self) -> bool:
        return not self.reason and self.excess == 0

    def as_dict(self) -> dict[str, Any]:
        """Builds the JSON object of docs/json.md, with root mean squares in place of the sums."""
        sums = "square_sum", "angle_square_sum", "tracks", "names", "joints", "unit"
        keys = {"reason": "why", "unequal": "differing", "excess": "beyond", "index": "at",
                "pairing": "paired", "unpaired": "only"}  # fmt: skip
        facts = {keys.get(name, name): value for name, value in vars(self).items()}
        return {
            **{key: value for key, value in facts.items() if key not in sums},
            "dataset": self.dataset.rstrip("/"),
            "rms": float(np.sqrt(self.square_sum / max(self.values, 1))),
            "angle_rms": float(np.sqrt(self.angle_square_sum / max(self.rotations, 1))),
            "passed": self.passed,
        }

    def add_tracks(
        self, a: NumpyArray, b: NumpyArray, times: Floats, sides: tuple[Side, Side], start: int
    ) -> None:
        """Measures how trajectories b [n, T, D] follow a, from the one with number ``start`` on."""
        recording, dofs = sides[0].recording, a.shape[2]
        assert recording is not None
        turning = {dof for rotation in sides[0].rotations for dof in rotation.dofs}
        free = [dof for dof in range(dofs) if dof not in turning]
        units = parse_units(read_unit(sides[0].dataset))
        units = None if units is None or len(units) not in (1, dofs) else units
        # Errors are measured in SI; rotations are left out, whose angles are added on their own.
        factors = np.resize(per_si(units), dofs) if units else np.ones(dofs)
        self.unit = unit_text(si_units(units)) if units else ""
        names = self.names if len(self.names) == dofs else [*map(str, range(dofs))]
        self.joints = [names[dof] for dof in free]
        name = self.dataset.rpartition("/")[0] or self.dataset
        tracks = track((a / factors)[..., free], (b / factors)[..., free], times)
        for k, values in enumerate(tracks if free else ()):
            title = name if len(recording) == 1 else f"trajectory {recording.title(start + k)}"
            self.tracks.append((title, values))

    def add_rotations(self, a: NumpyArray, b: NumpyArray, sides: tuple[Side, Side]) -> NumpyArray:
        """Adds the angles between rotations; returns ``b`` with the quaternions' signs of ``a``."""
        # q and −q are one rotation.
        for first, second in zip(*(side.rotations for side in sides), strict=False):
            x, y = a[..., list(first.dofs)], b[..., list(second.dofs)]
            quaternions = [
                to_numpy(normalize(np.asarray(values, np.float64), form)[0])
                for values, form in ((x, first.form), (y, second.form))
            ]
            angles = to_numpy(angle(*quaternions))
            self.rotations += angles.size
            self.angle = float(np.fmax(self.angle, np.nanmax(angles, initial=0.0)))
            self.angle_square_sum += float(np.nansum(angles**2))
            if first.form == second.form and first.width == 4:
                b = np.array(b)
                opposite = (quaternions[0] * quaternions[1]).sum(-1, keepdims=True) < 0
                b[..., list(second.dofs)] = np.where(opposite, -y, y)
        return b

    def add_block(self, a: NumpyArray, b: NumpyArray, tolerance: Tolerance, *start: int) -> None:
        """Adds a pair of blocks that begin at the index ``start`` on the first axes."""
        self.values += a.size
        numeric = a.dtype.kind in NUMERIC_KINDS and b.dtype.kind in NUMERIC_KINDS
        # Strings and booleans are equal or not, without a distance.
        if not numeric:
            a, b = (np.vectorize(decode_text, otypes=["U"])(x) if x.size else x for x in (a, b))
        same = np.asarray(a == b)
        if a.dtype.kind == b.dtype.kind == "f":
            same |= np.isnan(a) & np.isnan(b)
        if same.all():
            return
        # Values without a distance are infinitely far apart.
        gap = share = ulp = np.where(same, 0.0, np.inf)
        excess = ~same
        if numeric:
            x, y = a.astype(np.float64), b.astype(np.float64)
            with np.errstate(all="ignore"):
                size = np.maximum(np.abs(x), np.abs(y))
                gap = np.where(same, 0.0, np.nan_to_num(np.abs(x - y), nan=np.inf, posinf=np.inf))
                share = np.where(gap > 0, np.where(np.isfinite(gap), gap / size, np.inf), 0.0)
                # An infinite magnitude allows nothing: inf is only equal to inf.
                allowed = np.where(np.isfinite(size), tolerance.atol + tolerance.rtol * size, 0.0)
            ulp = np.where(same, 0.0, last_places(a, b))
            excess &= (gap > allowed) & ~(ulp <= tolerance.ulp)
        self.unequal += int((~same).sum())
        self.excess += int(excess.sum())
        self.relative = max(self.relative, float(share.max()))
        self.ulp = max(self.ulp, float(ulp.max()))
        with np.errstate(over="ignore"):
            self.square_sum += float(np.square(gap).sum())
        worst = np.unravel_index(int(gap.argmax()), gap.shape)
        if self.index is None or gap[worst] > self.absolute:
            self.absolute = float(gap[worst])
            self.index = tuple(int(n) + k for n, k in zip_longest(worst, start, fillvalue=0))
            self.a, self.b = ((float if numeric else str)(x[worst]) for x in (a, b))


def last_places(a: NumpyArray, b: NumpyArray) -> Floats:
    """Measures the distance of numbers in units in the last place; infinite at a NaN."""
    # Both are rounded to the coarser type first.
    size = min([8, *(x.dtype.itemsize for x in (a, b) if x.dtype.kind == "f")])
    with np.errstate(all="ignore"):
        x, y = (values.astype(f"f{size}") for values in (a, b))
        # The difference itself is taken in float64, which holds that of two float32 exactly.
        ulps = np.abs(x.astype(np.float64) - y) / np.spacing(np.maximum(np.abs(x), np.abs(y)))
    return np.where(x == y, 0.0, np.where(np.isnan(ulps), np.inf, ulps))


def find_datasets(files: Files, text: str) -> dict[str, Side]:
    """Finds the datasets that a source names, by name; of several files with paths in the folder.

    A single dataset that is named is called "": it is compared with whatever the other source
    holds. With --episodes these are the arrays of each trajectory, by its number among them.
    """
    source, episodes = parse_source(text), files.reading.episodes
    if episodes is not None:
        sides: dict[str, Side] = {}
        # Trajectories are paired by their numbers, whatever their groups are called.
        for batch in read_batches(files, [text], as_stored=True):
            for k, number in enumerate(parse_selection(episodes, len(batch))):
                part = batch.part(number).take(batch.group_indices[[number]])
                single = source.dataset and len(part.arrays) == 1
                for name, array in part.arrays.items():
                    path = f"trajectory {k}/{'' if single else name}"
                    sides[path] = Side(array, part.rotations, part)
        return sides
    members = expand_files(source)
    if members == [source]:
        return _find_in_file(files, source, False)
    folder = source.path if source.path.is_dir() else source.path.parent
    return {
        f"{os.path.relpath(member.path, folder)}/{name}": side
        for member in members
        for name, side in _find_in_file(files, member, len(members) > 1).items()
    }


def _find_in_file(files: Files, source: Source, several: bool) -> dict[str, Side]:
    """Finds the datasets that a source names in one of its files, which may be ``several``."""
    # A plain file is compared dataset by dataset, whatever they hold. Where a layout or options say
    # how to read it, the arrays of its trajectories are compared.
    file, plain = files.open(source.path), files.reading.plain
    is_group = source.dataset is None or file.has_group(source.dataset)
    prefix = f"{source.dataset.strip('/')}/" if is_group and source.dataset else ""
    sides: dict[str, Side] = {}
    if plain and is_group:
        paths = {
            name.removeprefix(prefix): name for name in file.names() if name.startswith(prefix)
        }
    elif plain and file.get(str(source.dataset)) and not (several and files.layout(file)):
        paths = {"": str(source.dataset)}
    else:
        for batch in read_batches(files, [str(source)], as_stored=True):
            for part in batch.members:
                folder = part.group if part.member is None else part.name
                for name, array in part.arrays.items():
                    path = array_path(folder, part, name).removeprefix(prefix)
                    within = "" if is_group else array_path("", part, name)
                    sides[path] = Side(array, part.rotations, part, within)
        return sides
    recordings: dict[tuple[str, tuple[int, ...], bool, str], Recording | None] = {}
    for name, path in paths.items():
        stored = file.require(path)
        if stored.dtype.kind not in f"{NUMERIC_KINDS}SUOb":
            continue
        # The names of the dofs are one dataset of HDF5, found by any of its links.
        name = "dof" if name.endswith("/dof") and not stored.numeric else name
        # Arrays of one shape in one folder share names and times, unless they have their own.
        folder, _, last = path.rpartition("/")
        owner = path if {"joint_names", "dt"} & stored.attributes.keys() else ""
        key = folder, stored.shape, last in RESERVED_NAMES, owner
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
        dataset, rotations = pick_dofs(stored, source.dofs), tuple[RotationDofs, ...]()
        if dataset.ndim and dataset.dtype.kind == "f":
            # The angle between two rotations does not depend on the order of their components.
            order = dataset.attributes.get("order", "wxyz")
            labels = dataset.attributes.get("joint_names")
            labels = labels if isinstance(labels, list) else ()
            rotations = tuple(
                named_rotations(
                    dataset.where.name, labels, dataset.shape[-1], "", order, dataset.where
                )
            )
        sides[name] = Side(dataset, rotations, recordings[key])
    return sides


def compare(
    first: Mapping[str, Side],
    second: Mapping[str, Side],
    tolerance: Tolerance,
    report: Report,
    always: bool = False,
) -> Iterator[Difference]:
    """Compares the datasets of the same name, in the order of the first source."""
    # A single pair is compared whatever the names.
    if len(first) == len(second) == 1:
        second = dict(zip(first, second.values(), strict=True))
    elif not first.keys() & second.keys():
        # Without a name in common, arrays of one name in every trajectory are paired by their
        # trajectories alone: demo_3/.
        named = [
            {name.removesuffix(x.array): x for name, x in side.items() if x.array}
            for side in (first, second)
        ]
        first = named[0] if len(named[0]) == len(first) else first
        second = named[1] if len(named[1]) == len(second) else second
    names = list(dict.fromkeys([*first, *second]))
    for done, name in enumerate(names):
        if name not in first or name not in second:
            yield Difference(name, f"only in {'a' if name in first else 'b'}")
        else:
            yield _compare_pair(name, first[name], second[name], tolerance, always)
        report.on_progress(done + 1, len(names))


def _compare_pair(name: str, a: Side, b: Side, tolerance: Tolerance, always: bool) -> Difference:
    """Compares two datasets row by row or, on a shared clock or with fewer rows, by their times."""
    difference = Difference(name)
    if name.rpartition("/")[2] in DOF_NAMES and all(
        side.dataset.dtype.kind in "SUO" and side.dataset.ndim == 1 for side in (a, b)
    ):
        # Lists of the same names are equal in any order, since dofs are paired by name.
        texts = [sorted(side.dataset.texts()) for side in (a, b)]
        b = a if texts[0] == texts[1] != [] else b
    a, b = _share_dofs(difference, a.without_rotation_units(), b.without_rotation_units())
    first, second, note, reason = match_units(a.dataset, b.dataset)
    axes = max(first.ndim, second.ndim)
    first, second = (_with_leading_axes(dataset, axes) for dataset in (first, second))
    difference.types = " and ".join(dict.fromkeys((str(first.dtype), str(second.dtype))))
    difference.shape = first.shape
    difference.add_note(note)
    difference.add_reason(reason)
    if reason or (difference.reason and not difference.pairing):
        return difference
    times, sides = None, (a, b)
    # On a shared clock rows belong together by their times, even where both have as many rows.
    try:
        known = [(x.recording, x.dataset) for x in sides if x.recording and x.recording.clock]
        # [T], [T, D] or [B, T, D]; a number has one row
        timed = [x for x, d in known if x.rows == (1, *d.shape)[max(d.ndim - 1, 1)]]
        if len(timed) == 2 and len(timed[0]) == len(timed[1]):
            times = paired_times(*timed)
        if times and times.shared_clock and not times.identical:
            clocks = [side.clock and side.clock.where for side in (times.first, times.second)]
            if clocks == [a.dataset.where, b.dataset.where]:
                difference.add_note("the clock by which rows are paired")
            else:
                _compare_by_time(difference, (first, second), times, sides, tolerance, always)
            return difference
    except InputError as error:
        times = None
        difference.add_note(f"compared row by row: {error.faults[0].what}")
    if first.shape == second.shape:
        difference.add_note(times.remark if times else "")
        total = first.shape[0] if first.shape else 1
        # Blocks of rows, so that memory does not grow with the datasets.
        count = max(1, total * SCANNED_BYTES // max(1, first.nbytes))
        for start in range(0, total, count):
            stop = min(start + count, total)
            x, y = (np.asarray(dataset.read_rows(start, stop)) for dataset in (first, second))
            y = difference.add_rotations(x, y, sides)
            difference.add_block(x, y, tolerance, start)
        if difference.excess or always:
            with suppress(InputError):
                _track_rows(difference, (first, second), sides)
        return difference
    # Without one, trajectories may differ in nothing but the number of rows.
    rows = first.shape[-2:-1] + second.shape[-2:-1]
    same_but_rows = second.shape == (*first.shape[:-2], *rows[1:], *first.shape[-1:])
    if times and len(rows) == 2 and min(rows) and same_but_rows:
        _compare_by_time(difference, (first, second), times, sides, tolerance, always)
    else:
        difference.add_reason(_shapes_text(sides))
    return difference


def _shapes_text(sides: tuple[Side, Side]) -> str:
    return f"shapes differ: {' and '.join(describe(side.dataset.shape) for side in sides)}"


def _share_dofs(difference: Difference, a: Side, b: Side) -> tuple[Side, Side]:
    """Picks the dofs that both sides have, in one order: by name or, without any, by place."""
    # Reserved names, as those of stamps and lengths, are not of arrays with dofs.
    known = [side.recording for side in (a, b) if side.recording]
    if len(known) < 2 or any(x.array_name.rpartition("/")[2] in RESERVED_NAMES for x in known):
        return a, b
    labels, named = [x.pairing_labels for x in known], [x.joint_names is not None for x in known]
    difference.names = labels[0]
    if not any(named) or labels[0] == labels[1]:
        difference.pairing = "name" if all(named) else "place" if len(labels[0]) > 1 else ""
        return a, b
    pairs = pair_dofs(labels[0], labels[1], (a.dataset.where, b.dataset.where))
    if pairs.first:
        difference.pairing = pairs.by if all(named) else "place"
    difference.reason = pairs.remark
    difference.unpaired = pairs.unpaired
    if not pairs.first or list(pairs.first) == list(pairs.second) == list(range(len(labels[0]))):
        return a, b
    difference.names = [labels[0][dof] for dof in pairs.first]
    if list(pairs.first) != list(pairs.second):
        difference.add_note("dofs paired by name")
    return a.pick(pairs.first), b.pick(pairs.second)


def _track_rows(
    difference: Difference, pair: tuple[Dataset, Dataset], sides: tuple[Side, Side]
) -> None:
    """Measures how trajectories of the same rows follow each other, in blocks of one length."""
    known = [side.recording for side in sides if side.recording]
    timed = [recording for recording in known if recording.clock is not None]
    if len(known) < 2 or not timed or not (pair[0].numeric and pair[1].numeric):
        return
    a, b = map(as_batch, pair)
    # Stamps do not follow each other as positions do.
    is_clock = sides[0].dataset.where in [x.clock.where for x in timed if x.clock]
    is_clock |= timed[0].array_name.rpartition("/")[2] in RESERVED_NAMES
    if is_clock or a.shape[:2] != timed[0].shape[:2]:
        return
    # An episode of a file has its number there, so that trajectories are counted here, not named.
    for span in timed[0].spans(SCANNED_BYTES):
        block = timed[0].take(span)
        start, rows, times = span.start, block.rows, block.times()
        # Delays are meaningless where times are unknown or do not increase.
        clocks = [recording.take(span).times() for recording in timed]
        if times is None or any(x is None or not (np.diff(x) > 0).all() for x in clocks):
            continue
        x, y = (np.asarray(d.read_rows(start, start + len(block)))[:, :rows] for d in (a, b))
        if rows:
            difference.add_tracks(x, y, times - times[:, :1], sides, start)


def _with_leading_axes(dataset: Dataset, axes: int) -> Dataset:
    new = axes - dataset.ndim
    if new <= 0:
        return dataset
    return replace(dataset, shape=(1,) * new + dataset.shape,
                   reader=lambda start, stop: dataset.read()[(None,) * new])  # fmt: skip


def _compare_by_time(
    difference: Difference,
    pair: tuple[Dataset, Dataset],
    times: PairedTimes,
    sides: tuple[Side, Side],
    tolerance: Tolerance,
    always: bool,
) -> None:
    """Compares trajectories where they overlap, at the times of the one with fewer rows there."""
    # The other is interpolated linearly where it has no row. From their starts, both must end at
    # the same time, up to one step of the one with fewer rows.
    interpolated, rows, seconds = set[str](), 0, 0.0
    datasets = list(map(as_batch, pair))
    for number in range(len(times.first)):
        clocks = times.read_times(number)
        slack, overlap = times.tolerance(clocks[0]), times.overlap(clocks)
        # The side with fewer rows where both overlap keeps them.
        coarse = int(not len(overlap[0]) or 0 < len(overlap[1]) < len(overlap[0]))
        fine, common = 1 - coarse, clocks[coarse][overlap[coarse]]
        ends, steps = [float(c[-1]) for c in clocks], np.diff(clocks[coarse])
        if not times.shared_clock and abs(ends[0] - ends[1]) > steps.max(initial=0.0) + slack:
            texts = " and ".join(f"0 to {end:g} s" for end in ends)
            difference.add_reason(f"times differ: {texts}")
            difference.add_reason(_shapes_text(sides))
            return
        values = [
            np.asarray(dataset.read_rows(number, number + 1))[0][: len(clock)]
            for dataset, clock in zip(datasets, clocks, strict=True)
        ]
        # Quaternions are made continuous: neighbours of opposite signs have no mean.
        for dofs in (list(x.dofs) for x in sides[fine].rotations if x.width == 4):
            values[fine] = np.array(values[fine])
            values[fine][..., dofs] = continuous(values[fine][..., dofs])
        # Tracking is measured at the rows of b, since a delay moves b along a.
        if len(overlap[1]) > 1:
            stamps, y = clocks[1][overlap[1]], values[1][overlap[1]]
            x = interpolate(stamps, clocks[0], values[0], slack)[0]
            difference.add_tracks(x[None], y[None], stamps[None], sides, number)
        values[coarse] = values[coarse][overlap[coarse]]
        values[fine], between = interpolate(common, clocks[fine], values[fine], slack)
        interpolated |= {"ab"[fine]} if between else set()
        rows, seconds = rows + len(common), seconds + float(common[-1] - common[0])
        values[1] = difference.add_rotations(values[0], values[1], sides)
        x, y = (block[None] for block in values)
        difference.add_block(x, y, tolerance, number, int(overlap[coarse][0]))
    difference.overlap = {"rows": rows, "seconds": seconds, "clock": times.shared_clock,
                          "interpolated": sorted(interpolated)}  # fmt: skip
    how = "on one clock" if times.shared_clock else times.remark or "from their starts"
    how += f"; {' and '.join(sorted(interpolated))} interpolated" if interpolated else ""
    difference.add_note(f"{rows} rows ({seconds:.6g} s) aligned by time, {how}")
    # The index of a single trajectory has no number of it.
    if difference.index is not None and pair[0].ndim < len(difference.index):
        difference.index = difference.index[1 : 1 + pair[0].ndim]
    if not (difference.excess or always):
        difference.tracks = []


def compare_attributes(first: Catalogue, second: Catalogue) -> list[tuple[str, Any, Any]]:
    """Compares attributes and recorded options; lists names and values of those that differ."""
    pair = []
    for file in (first, second):
        attributes = dict(file.attributes())
        # The request of an output is a JSON text: its options are compared one by one.
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
    """Yields what differs and by how much, and how b follows a; ``verdict`` is a gate's."""
    from rich.text import Text

    yield Text(f"a: {sources[0]}\nb: {sources[1]}\n")
    # Many datasets whose groups differ only in numbers share a line, data/demo_*/position; with
    # --verbose each has its own.
    patterns: dict[str, list[Difference]] = {}
    for difference in differences:
        patterns.setdefault(_pattern(difference), []).append(difference)
    lines: list[tuple[str, list[Difference]]] = []
    for pattern, members in patterns.items():
        if verbose or len(members) <= _LISTED:
            lines += [(member.dataset.rstrip("/") or "values", [member]) for member in members]
        else:
            lines.append((f"{pattern.rstrip('/')} ({len(members)})", members))
    yield from _value_lines(lines, verbose)
    for name, members in lines:
        if any(member.rotations for member in members) and any(m.unequal for m in members):
            angle = max(member.angle for member in members)
            squares = sum(m.angle_square_sum for m in members)
            rms = (squares / sum(m.rotations for m in members)) ** 0.5
            yield Text(f"{name}: up to {angle:.3g} rad between rotations, RMS {rms:.3g} rad")
        if notes := [member for member in members if member.reason or member.note]:
            # The member whose text is shown is the first that is listed.
            first = min(notes, key=lambda member: not member.reason)
            order = [first, *(member for member in notes if member is not first)]
            titles = join_names((member.dataset.rstrip("/") for member in order), 1)
            titles = f": {titles}" if len(members) > 1 else ""
            yield Text(f"{name}: {'; '.join(filter(None, [first.reason, first.note]))}{titles}")
    for name, *values in attributes:
        texts = ["absent" if x is None else " ".join(str(x).split()) for x in values]
        # Texts that are equal here differ in spaces, ends of lines or type, which repr shows.
        if texts[0] == texts[1]:
            texts = [repr(value) for value in values]
        # Where two long texts begin alike, both start shortly before they differ.
        start = max(0, len(os.path.commonprefix(texts)) - _BEFORE)  # noqa: RUF071 - of letters
        if start and max(map(len, texts)) > _LONGEST:
            texts = [f"…{text[start:]}" for text in texts]
        texts = [t if len(t) <= _LONGEST else f"{t[: _LONGEST - 1]}…" for t in texts]
        yield Text(f"attribute {name}: {' and '.join(texts)}")
    # Types are known of every pair: without them no name is in both sources.
    if differences and not any(x.types for x in differences):
        yield Text("no dataset is in both: name one of each; --episodes all pairs trajectories")
    if any(difference.pairing == "place" for difference in differences):
        yield Text("dofs without names are compared by place; --joints a,b,c names them")
    yield from _tracking_lines(tracked)
    # Limits of tracking decide alone: the tolerances of values then do not.
    if verdict is not None:
        text = verdict or "tracking: within the limits"
        yield Text(f"\n{text}", "bold red" if verdict else "")
        return
    failed = sum(not difference.passed for difference in differences)
    datasets = f"{len(differences)} {'dataset' if len(differences) == 1 else 'datasets'}"
    count = sum(difference.unequal for difference in differences)
    if failed:
        differ = "differs" if failed == 1 else "differ"
        yield Text(f"\n{failed} of {datasets} {differ} by more than allowed", "bold red")
    elif count:
        numbers = f"{count} number{' differs' if count == 1 else 's differ'}"
        yield Text(f"\n{datasets}: {numbers}, within the tolerance")
    else:
        yield Text(f"\n{datasets}: equal" if differences else "\nno datasets to compare")


def _value_lines(
    lines: Sequence[tuple[str, list[Difference]]], verbose: bool
) -> Iterator[RenderableType]:
    from rich.text import Text

    compared = [(name, members) for name, members in lines if any(x.values for x in members)]
    rows = []
    for name, members in compared:
        rows.append([name, "0"])
        if unequal := sum(x.unequal for x in members):
            absolute, relative, ulp = (
                max(getattr(x, key) for x in members) for key in ("absolute", "relative", "ulp")
            )
            rms = (sum(x.square_sum for x in members) / sum(x.values for x in members)) ** 0.5
            rows[-1] = [name, str(unequal), str(sum(x.excess for x in members)), f"{absolute:.3g}",
                        f"{rms:.3g}", f"{relative:.3g}", f"{ulp:.4g}"]  # fmt: skip
    # Relative differences and last places are shown only with -v: around zero they are large.
    if rows:
        columns = len(_HEADINGS) - (0 if verbose else 2)
        yield TextTable(_HEADINGS[:columns], [row[:columns] for row in rows], spare=("RMS",))
    for name, members in compared:
        worst = max(members, key=lambda member: (member.index is not None, member.absolute))
        if worst.index is None:
            continue
        a, b = str(worst.a), str(worst.b)
        if isinstance(worst.a, float) and isinstance(worst.b, float):
            # The fewest digits, from six on, that tell the two apart.
            pairs = ((f"{worst.a:.{n}g}", f"{worst.b:.{n}g}") for n in range(6, 18))
            exact = repr(worst.a), repr(worst.b)
            a, b = next((pair for pair in pairs if pair[0] != pair[1]), exact)
        group = f"{worst.dataset.rpartition('/')[0] or worst.dataset} " * (len(members) > 1)
        yield Text(f"{name}: worst at {group}{list(worst.index)}, a = {a}, b = {b}")


def verdict(differences: Sequence[Difference], error: float | None, delay: float | None) -> str:
    """Lists the trajectories beyond an error, in SI, or a delay in seconds; "" without any."""
    tracked, failures = _motion_differences(differences), list[str]()
    patterns = {*map(_pattern, tracked)}
    for x in differences:
        name = x.dataset.rstrip("/") or "values"
        if error is not None and x.angle > error:
            failures.append(f"{name}: {x.angle:.3g} rad between rotations")
        # What only one source has next to the motion, such as stamps or efforts, does not count.
        if tracked and _pattern(x) not in patterns:
            continue
        if x.reason or (tracked and not x.tracks):
            failures.append(f"{name}: {x.reason or 'not measured'}")
        for title, (delays, _, _, largest, _, missing) in x.tracks:
            # A delay that no joint shows is not known to be within the limit.
            known = np.abs(delays[np.isfinite(delays)])
            far = error is not None and bool(missing.any() or not (largest <= error).all())
            slow = delay is not None and not (known.size and (known <= delay).all())
            failures += [title] if far or slow else []
    if not (tracked or failures):
        return "no trajectories with times to measure: --dt SECONDS or --times gives the times"
    count = max(len(failures), sum(len(x.tracks) for x in tracked))
    text = f"{len(failures)} of {count} beyond the limits: {join_names(failures, _WORST)}"
    return text if failures else ""


def _motion_differences(differences: Sequence[Difference]) -> list[Difference]:
    """Picks the differences that show how b follows a: of positions, where there are any."""
    tracked = [x for x in differences if x.tracks]
    rates = (*QUANTITIES[1:], *ROTATIONS[1:])
    # Derivatives follow as the positions do, with the same delay.
    names = [(x, x.dataset.rpartition("/")[2]) for x in tracked]
    return [x for x, name in names if not (name in rates or rate_name(name))] or tracked


def _pattern(difference: Difference) -> str:
    """Names a dataset without the number of its group or, without a group, without its own."""
    group, slash, name = difference.dataset.rpartition("/")
    return mask_numbers(group) + slash + (name if group else mask_numbers(name))


def summarize_tracking(differences: Sequence[Difference], verbose: bool) -> list[dict[str, Any]]:
    """Sums up how b follows a, for JSON: datasets whose names differ only in numbers are one."""
    patterns: dict[tuple[str, ...], list[Difference]] = {}
    for x in _motion_differences(differences):
        patterns.setdefault((_pattern(x), *x.joints), []).append(x)
    document = []
    for (pattern, *names), members in patterns.items():
        titles = [title for x in members for title, _ in x.tracks]
        values = np.stack([track for x in members for _, track in x.tracks])
        errors = np.nan_to_num(values[:, 3], nan=-1.0)  # [episodes, joints]
        episodes = [
            [
                {"trajectory": title, "joint": name, **dict(zip(VALUES, x.tolist(), strict=True))}
                for name, x in zip(names, track.T, strict=True)
            ]
            for title, track in zip(titles, values, strict=True)
        ]
        # The error is that of the worst episode, the delay and the offset are typical ones.
        joints = [
            {
                **episodes[k][joint],
                "delay": float(np.median(_finite(values[:, 0, joint]))),
                "offset": float(np.median(_finite(values[:, 1, joint]))),
                "rms": float(np.sqrt(np.mean(_finite(values[:, 2, joint]) ** 2))),
            }
            for joint, k in enumerate(errors.argmax(0).tolist())
        ]
        delays = np.array([np.median(_finite(track[0])) for track in values])
        worst = np.argsort(-errors.max(1), kind="stable").tolist()[:_WORST]
        pattern = pattern if len(members) > 1 else members[0].dataset
        document.append({
            "dataset": pattern.rstrip("/"), "unit": members[0].unit, "trajectories": len(values),
            "joints": joints, "delay": _spread(delays),
            "largest": _spread(np.fmax.reduce(values[:, 3], axis=1)),
            "worst": [episodes[k][int(errors[k].argmax())] for k in worst],
            **({"episodes": episodes} if verbose else {}),
        })  # fmt: skip
    return document


def _finite(values: Floats) -> Floats:
    finite = values[np.isfinite(values)]
    return finite if finite.size else np.array([np.nan])


def _spread(values: Floats) -> dict[str, float]:
    """Computes the median, and the quantiles between which nine in ten values are."""
    quantiles = np.quantile(_finite(values), [0.05, 0.5, 0.95])
    return dict(zip(("low", "median", "high"), quantiles.tolist(), strict=True))


def _tracking_lines(tracked: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    from rich.text import Text

    for part in tracked:
        name, unit, many = part["dataset"] or "values", part["unit"], part["trajectories"] > 1
        rows = [
            [x["joint"], _milliseconds(x["delay"]), *(_digits(x[n]) for n in VALUES[1:4]),
             (f"{x['trajectory']}, " if many else "") + f"{_digits(x['time'])} s"]
            for x in part["joints"]
        ]  # fmt: skip
        unit = f", in {unit}" if unit else ""
        yield Text(
            f"\n{name}: how b follows a{unit}; offset, RMS and largest error after the delay"
        )
        yield TextTable(["joint", "> delay", "> offset", "> RMS", "> largest", "at"], rows)
        if not many:
            continue
        delay, error = (
            [form(part[n][k]) for k in ("median", "low", "high")]
            for n, form in (("delay", _milliseconds), ("largest", _digits))
        )
        texts = (f"{x['trajectory']} {_digits(x['largest'])}" for x in part["worst"])
        yield Text(
            f"{part['trajectories']} trajectories: delay {delay[0]} (nine in ten {delay[1]} to "
            f"{delay[2]}), largest error {error[0]} ({error[1]} to {error[2]}); "
            f"worst: {join_names(texts, _WORST)}"
        )
        for episode in part.get("episodes", ()):
            x = max(episode, key=lambda x: np.nan_to_num(x["largest"]))
            delays = ", ".join(_milliseconds(y["delay"]) for y in episode)
            where = f"{x['joint']}, {_digits(x['time'])} s"
            text = f"delays {delays}; largest error {_digits(x['largest'])} ({where})"
            yield Text(f"  {x['trajectory']}: {text}")


def _digits(value: float) -> str:
    return f"{value:.3g}".replace("nan", "-")


def _milliseconds(value: float) -> str:
    return f"{round(1e3 * value, 3):.3g} ms".replace("nan ms", "-")
