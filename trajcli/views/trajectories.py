"""Reads the trajectories that a view shows, names them in words, and samples them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError, UsageError, raise_if_any
from trajcli.files.catalogue import NUMERIC_KINDS, Dataset
from trajcli.files.conversion import stated_unit
from trajcli.files.dofs import Dofs, RotationDofs, named_rotations, pick_dofs
from trajcli.files.limits import Bounds, Limits
from trajcli.files.opening import Files, time_from_options
from trajcli.files.quantities import QUANTITIES, ROTATIONS, TAKEN, named_rate, order_of, unit_of
from trajcli.files.reader import dof_faults, read_groups
from trajcli.files.reading import Repair, select
from trajcli.files.repair import repaired
from trajcli.files.source import Place, Source, expand_files, parse_source
from trajcli.files.time import exact_seconds
from trajcli.files.trajectories import (
    Array,
    Floats,
    Integers,
    Trajectories,
    no_time,
    numberless,
    require_stamps,
    row_bytes,
    timed,
)
from trajcli.files.trajectory_group import SEVERAL, TrajectoryGroup
from trajcli.modes import MODES
from trajcli.units import (
    NO_UNIT,
    InputUnits,
    Unit,
    differ,
    for_dofs,
    in_si,
    of_order,
    parse_units,
    per_si,
    unit_text,
)

_SAMPLE_PLACES = 12
# Rows are at the same time where their stamps differ by less than this share of a step.
_SAME_TIME = 1e-9
# Usual steps in a gap, over which nothing is interpolated.
_GAP = 4.0


@dataclass(frozen=True)
class Compared:
    """A dataset to compare, and the rotations among its dofs.

    trajectories: looks up the trajectories that it holds, with names and times; None without any.
    array: what the source calls it within every trajectory; "" where it does not name one array.
    """

    dataset: Dataset
    rotations: Sequence[RotationDofs]
    trajectories: Callable[[], Trajectories | None]
    array: str = ""

    def with_units_of_dofs(self) -> Compared:
        """Returns it with no unit for the numbers of rotations that are no angles."""
        units, side = parse_units(stated_unit(self.dataset)), self.trajectories()
        if not units or side is None or len(units) not in (1, side.first.shape[2]):
            return self
        text = unit_text(side.first.without_rotations(units))
        about = {**self.dataset.attributes, "units": text}
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
class PairedTimes:
    """Times of the rows of two sources, on the clock that both share or else from their starts.

    late: by how many seconds trajectories of ``second`` begin later [n], 0 from their starts.
    clock: whether both share one; ``remark``: why not, where one has stamps of a clock. slack: how
    far apart, in seconds, rounding of the stamps may move rows of one time.
    """

    first: Trajectories
    second: Trajectories
    late: Floats
    clock: bool
    remark: str
    slack: float

    @property
    def same(self) -> bool:
        """Whether the rows of all are at the same times."""
        steps = self.first.step, self.second.step
        if not self.late.any() and None not in steps and steps[0] == steps[1]:
            return np.array_equal(self.first.lengths, self.second.lengths)
        pairs = map(self.of, range(len(self.first)))
        return all(len(a) == len(b) and (abs(a - b) <= self.near(a)).all() for a, b in pairs)

    def of_stamps(self, first: Place, second: Place) -> bool:
        """Whether two datasets are the stamps of the rows themselves."""
        times = self.first.first.time, self.second.first.time
        return [time and time.where for time in times] == [first, second]

    def near(self, times: Floats) -> float:
        """Returns how far apart rows of one time may be."""
        return self.slack + _SAME_TIME * float(times[-1] - times[0]) / len(times)

    def inside(self, clocks: Sequence[Floats]) -> list[Integers]:
        """Returns which rows of two trajectories, at these times, are in the time of both, and in
        no gap of the other."""
        near, rows = self.near(clocks[0]), list[Integers]()
        for clock, other in zip(clocks, clocks[::-1], strict=True):
            inside = np.flatnonzero((other[0] - near <= clock) & (clock <= other[-1] + near))
            if len(other) > 1:
                after = np.clip(np.searchsorted(other, clock[inside]), 1, len(other) - 1)
                since, until = clock[inside] - other[after - 1], other[after] - clock[inside]
                gap = since + until > _GAP * np.median(np.diff(other))
                inside = inside[~gap | (np.minimum(since, until) <= near)]
            rows.append(inside)
        return rows

    def of(self, k: int) -> tuple[Floats, Floats]:
        """Returns the times [T] of the k-th trajectories, from the first row of the first one on.
        Raises InputError for times that are not known or do not increase."""
        first, second = (_elapsed(side, k) for side in (self.first, self.second))
        return first, second + self.late[k]


def paired_times(first: Trajectories, second: Trajectories) -> PairedTimes:
    """Returns the times by which rows of two sources are paired.

    They share a clock where the stamps of both do not begin at 0, and overlap. Raises InputError
    for times that are not known.
    """
    starts, slack = list[list[Fraction]](), 0.0
    for side in (first, second):
        stamps, unit = side.start_stamps(of_rows=True) or (np.array([np.nan]), "s")
        if np.isfinite(stamps).all():
            starts.append([exact_seconds(stamp, unit) for stamp in stamps])
            if stamps.dtype.kind == "f":
                slack += float(4 * exact_seconds(np.spacing(np.abs(stamps).max()), unit))
    if len(starts) < 2:
        remark = "from their starts: only one has stamps of a clock" * len(starts)
        return PairedTimes(first, second, np.zeros(len(first)), False, remark, slack)
    late = np.array([float(b - a) for a, b in zip(*starts, strict=True)])
    clock = all(
        start == 0.0 or -_elapsed(second, k)[-1] <= start <= _elapsed(first, k)[-1]
        for k, start in enumerate(late.tolist())
    )
    remark = "" if clock else "from their starts: their stamps do not overlap"
    return PairedTimes(first, second, late * clock, clock, remark, slack)


def values_at(at: Floats, stamps: Floats, values: Array, slack: float) -> tuple[Array, bool]:
    """Returns values [T, D] at times within their ``stamps`` [T], exactly a row where it is within
    ``slack`` of one; and whether any are between rows."""
    after = np.clip(np.searchsorted(stamps, at), 1, max(len(stamps) - 1, 1)) % len(stamps)
    # the nearest row, before or after
    nearest = np.where(at - stamps[after - 1] < stamps[after] - at, after - 1, after)
    same = np.abs(at - stamps[nearest]) <= slack
    if same.all():
        return values[nearest], False
    near = np.where(same, stamps[nearest], at)
    columns = [np.interp(near, stamps, column) for column in values.T.astype(np.float64)]
    between: Array = np.stack(columns, 1)
    return between.astype(values.dtype) if values.dtype.kind == "f" else between, True


def _elapsed(trajectories: Trajectories, k: int) -> Floats:
    """Returns the times [T] of a trajectory from its first row on."""
    times = trajectories.take([k]).times()
    if times is None:
        raise InputError(no_time(trajectories.first))
    if not (np.diff(times) > 0).all():
        raise InputError("times that do not increase", where=trajectories.place(k))
    elapsed: Floats = times[0] - times[0, :1]
    return elapsed


def one_sided(trajectories: Trajectories) -> int:
    """Returns the number of rows at each end around which mode savgol had no full window.

    Their derivatives are several times as far off as others, and do not count as peaks.
    """
    mode, window = map(trajectories.first.file.attributes().get, ("mode", "window"))
    if str(mode) != "savgol":
        return 0
    if not (isinstance(window, str) and re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,9}s", window)):
        # values of other types come from other programs
        return max(int(window), 0) // 2 if isinstance(window, (int, np.integer)) else 0
    half = 0.5 * float(window[:-1]) * (1.0 - 1e-5)  # stamps are rounded
    ends = 0
    for _, members in trajectories.by_group():  # the first of each group stands for all
        times = members.take([0]).known_times() if len(members) else None
        if times is not None and times.size:
            since, until = times[0] - times[0, 0], times[0, -1] - times[0]
            ends = max(ends, int((since < half).sum()), int((until < half).sum()))
    return ends


def label(trajectories: Trajectories, name: str = "") -> str:
    """Returns the name of an array in the file: data/demo_*/actions."""
    first = trajectories.first
    return array_path(trajectories.pattern, first, name) or first.file.path.name


def trajectory_text(trajectories: Trajectories, number: int) -> str:
    """Returns "trajectory 13, " or "data/demo_13, ", for the text before a place in it.

    It is empty where there is only one trajectory.
    """
    name = trajectories.name(number)
    text = f"trajectory {name}, " if name.isdecimal() else f"{name}, "
    return text if len(trajectories) > 1 else ""


def dof_text(trajectories: Trajectories, dof: int) -> str:
    """Returns the number and the name of a dof in the file: dof 3 (panda_joint4)."""
    name = trajectories.dofs[dof]
    return f"dof {trajectories.first.dofs.numbers[dof]}" + f" ({name})" * (not name.isdecimal())


def beside(first: Trajectories, second: Trajectories) -> bool:
    """Returns whether both are the same trajectories: as many, in groups of other names."""
    patterns = [{numberless(group.group) for group in x.groups} for x in (first, second)]
    return len(first) == len(second) and not patterns[0] & patterns[1]


def quantity_of(trajectories: Trajectories, name: str) -> str:
    """Returns the quantity of an array; that of actions follows from the mode of the file."""
    mode = trajectories.first.stated_mode[0] if name == "actions" else ""
    return QUANTITIES[MODES[mode].derivatives_of] if mode else name


def quantities(
    trajectories: Trajectories, named: str = "position"
) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Returns which array holds each quantity, with units and notes.

    An array whose quantity neither its name nor its mode says has the quantity of its unit or,
    where SOURCE names it, that of a name like qvel, else ``named``; a note says so. Unknown units
    are "".
    """
    group, first = trajectories.first, next(iter(trajectories.first.arrays))
    known = {quantity_of(trajectories, name): name for name in group.arrays}
    stored = {name: known[name] for name in QUANTITIES if name in known}
    of_unit, notes = parse_units(group.unit(first)), []
    if not stored and (of_unit or group.named or group.file.family == "npy"):
        orders, rate = {unit.order for unit in of_unit or () if unit.known}, group.named_rate
        by_unit = bool(orders)
        said = QUANTITIES[orders.pop()] if len(orders) == 1 else "effort" if orders else rate
        if (said or named) in QUANTITIES:
            stored = {said or named: first}
            how = ", by its unit" * by_unit or ", by its name" * bool(rate)
            notes.append(f"{first} read as {said or named}{how}")
        else:
            what = (
                "dofs of several quantities" if by_unit or rate == SEVERAL else "no motion's name"
            )
            notes.append(f"{first} has {what}; --as position, or velocity, …, says what it is")
    units = {name: group.unit(array) or "" for name, array in stored.items()}
    if units.get("position"):
        units |= {name: unit_of(name, units["position"]) for name in QUANTITIES}
    return stored, dict.fromkeys(QUANTITIES, "") | units, notes


def units_to_show(group: TrajectoryGroup, name: str, to: InputUnits) -> tuple[Floats, str]:
    """Returns factors [1 or D] from an array in SI to the units of --to-units, and these as text.

    As many units as dofs are those of the dofs; otherwise a dof takes the one that measures the
    same as its own, and keeps its own where there is none. Raises UsageError for dofs in no known
    unit, and where nothing can be converted.
    """
    count, stated, targets = group.shape[2], group.unit(name) or "", to.positions
    if to.time is not None and group.time is None:
        found = str(group.where)
        raise UsageError("no times to convert", where=f"--to-units {to.time}", found=found)
    if not targets or name == ROTATIONS[0]:
        return np.ones(1), stated
    each, own = len(targets) == count and name not in ROTATIONS, group.units.get(name, ())
    ours = "trajcli_version" in group.file.attributes()
    if ours and not stated:  # in SI, whichever that is
        own = of_order(for_dofs(targets, count, "--to-units"), order_of(name))
    own = group.without_rotations(in_si(own if own[1:] else list(own or [NO_UNIT]) * count))
    kinds, wanted = [Unit(unit.si) for unit in own], {unit.si: unit for unit in targets}
    bare = any(not unit.name and k not in group.forms() for k, unit in enumerate(own))
    apart = differ([Unit(unit.si) for unit in targets], kinds) if each else (
        name not in ROTATIONS
        and (len(wanted) < len(targets) or wanted.keys().isdisjoint(unit.name for unit in kinds))
    )  # fmt: skip
    if bare or apart:
        raise UsageError(
            "an unknown unit" if bare else "units that cannot be converted into each other",
            where=f"{group.array(name).where}, for --to-units {unit_text(targets)}",
            expected="a known one" if bare else unit_text(targets),
            found=unit_text(kinds),
            hint="--units says what SOURCE is in" if bare and not ours else "",
        )
    pairs = zip(targets if each else [wanted.get(unit.si, unit) for unit in own], own, strict=True)
    shown = [replace(a, order=b.order) if a.known and b.known else b for a, b in pairs]
    return per_si(shown), unit_text(shown)


def measured_beside(trajectories: Trajectories, quantity: str) -> str:
    """Returns the name of an array beside the first one whose name says that it holds a quantity,
    for as many dofs; "" without any."""
    first = trajectories.first
    array = array_path(first.group, first, next(iter(first.arrays)))
    folder = array.rpartition("/")[0]
    for name in first.file.children(folder):
        other = named_rate(name) == quantity and f"{folder}/{name}".lstrip("/") != array
        stored = first.file.get(f"{folder}/{name}") if other else None
        if stored is not None and stored.numeric and stored.shape[-1:] == (first.dofs.count,):
            return name
    return ""


def bounds_of(
    trajectories: Trajectories, limits: Limits, units: Mapping[str, str]
) -> dict[str, Bounds]:
    """Returns the limits of the dofs by quantity, in the ``units`` of the arrays."""
    first = trajectories.first
    itemsize = min(dataset.precision.itemsize for dataset in first.arrays.values())
    return limits.bounds(trajectories.dofs, itemsize, units, first.dofs)


def sample(trajectories: Trajectories, budget: int) -> Iterator[Trajectories]:
    """Yields blocks of about ``budget`` bytes in all, evenly spread over the trajectories.

    Of trajectories too long for that, only some rows are read.
    """
    first, count = trajectories.first, len(trajectories)
    rows, of_rows = first.shape[1], row_bytes(first) * len(first.arrays)
    length = max(1, budget // _SAMPLE_PLACES // of_rows)
    length -= length % rows if length > rows else 0
    starts = np.linspace(0, max(count * rows - length, 0), _SAMPLE_PLACES).astype(int)
    for k, row in (divmod(start, rows) for start in dict.fromkeys(starts.tolist())):
        if length >= rows:
            yield from trajectories.take(slice(k, k + length // rows)).blocks()
            continue
        whole = trajectories.take([k])
        part = min(length, whole.rows)
        yield whole.rows_only(min(row, whole.rows - part), part)


def nbytes(trajectories: Trajectories) -> int:
    """Returns the approximate size of all arrays of trajectories, in bytes."""
    first = trajectories.first
    return max(1, first.shape[1]) * row_bytes(first) * len(first.arrays) * len(trajectories)


def try_blocks(
    blocks: Iterable[Trajectories],
    use: Callable[[Trajectories], None],
    faults: dict[str, Fault] | None = None,
) -> None:
    """Uses every block; of one that cannot be read, the trajectories one after the other.

    faults: takes the faults of those that cannot be read, by name, which are raised without it.
    """
    for block in blocks:
        try:
            use(block)
        except InputError as error:
            if faults is None:
                raise
            if len(block) > 1:
                try_blocks(map(block.take, np.arange(len(block))[:, None]), use, faults)
            else:
                faults[block.name(int(block.numbers[0]))] = error.faults[0]


def array_path(path: str, group: TrajectoryGroup, name: str) -> str:
    """Returns the path of an array in the file: obs/joint_pos for joint_pos."""
    stored = group.array_name if name and name == next(iter(group.arrays)) else name
    return f"{path}/{stored}".strip("/")


def expand_globs(texts: Sequence[str]) -> list[str]:
    """Returns a source for each file that globs name; a folder of files is one source."""
    sources: list[str] = []
    for text in texts:
        source = parse_source(text)
        sources += [text] if source.path.is_dir() else map(str, expand_files(source))
    return sources


def read_batches(
    files: Files, sources: Sequence[str], as_stored: bool = False, repair: Repair | None = None
) -> list[Trajectories]:
    """Returns the trajectories that sources name, in batches of the same arrays and dofs. Each has
    the notes on all.

    Parameters:
        as_stored: keeps the units of the files, unless --units says others.
        repair: what is repaired in recordings first.
    """
    groups, notes = read_groups(files, sources, as_stored)
    joined, time = _joined(groups), time_from_options(files)
    if time is not None:
        joined = [timed(members, time) for members in joined]
    for first in (members[0] for members in joined):
        if first.given.time is not None:
            require_stamps(first, first.time)
        with suppress(InputError):  # times that the command may not need
            notes += [first.time.remark] if first.time and first.time.remark else []
    if repair is not None and repair != Repair():
        timeless = repair.max_gap is None and repair.repeated_times == "error"
        for k, members in enumerate(joined):
            for group in members:
                if group.time is None and not timeless:
                    raise InputError(no_time(group))
            joined[k], repairs = repaired(members, repair, 1)
            notes += repairs
    return [Trajectories(members, notes=dict.fromkeys(notes)) for members in joined]


def _joined(groups: Iterable[TrajectoryGroup]) -> list[list[TrajectoryGroup]]:
    """Joins groups of the same arrays whose names differ only in numbers, in their order.

    Groups of other names (actions, and reference/position) hold other arrays of the same
    trajectories; but in a file that trajcli wrote, every group is a trajectory.
    """
    members: dict[tuple[Any, ...], list[TrajectoryGroup]] = {}
    for group in groups:
        written = group.group and "trajcli_version" in group.file.attributes()
        key = "*" if written else numberless(group.group)
        members.setdefault((key, group.shape[2], *group.arrays), []).append(group)
    return list(members.values())


def main_batch(candidates: Sequence[Trajectories]) -> Trajectories | None:
    """Returns the first of the trajectories with the most arrays; None without any."""
    return max(candidates, key=lambda batch: len(batch.first.arrays), default=None)


def companions(main: Trajectories, candidates: Sequence[Trajectories]) -> Iterator[Trajectories]:
    """Yields the batches that hold other arrays of the same trajectories: positions, orientations
    and angular rates lie beside each other."""
    here = places(main)
    yield from (batch for batch in candidates if batch is not main and places(batch) == here)


def places(batch: Trajectories) -> list[Any]:
    """Returns where the trajectories of a batch are, equal for other arrays of the same ones."""
    return [(group.file.path, group.group, group.name, group.shape[:2]) for group in batch.groups]


def whole_batch(candidates: Sequence[Trajectories]) -> tuple[Trajectories | None, list[str]]:
    """Returns the trajectories with the most arrays, and the names of other arrays.

    Raises InputError where trajectories would be left out, as they have other dofs, or other arrays
    in groups of the same names.
    """
    main = main_batch(candidates)
    if main is None:
        return None, []
    arrays = list(main.first.arrays)
    same = [batch for batch in candidates if list(batch.first.arrays) == arrays]
    others = [batch for batch in candidates if batch not in same]
    groups = [group for batch in same for group in batch.groups]
    raise_if_any(dof_faults([main.first, *groups]))
    taken = {(group.file.path, group.group) for group in groups}
    patterns = {numberless(group.group) for group in groups}
    for group in (group for batch in others for group in batch.groups):
        if (group.file.path, group.group) not in taken and numberless(group.group) in patterns:
            what, expected = "trajectories of different arrays", ", ".join(arrays)
            found, hint = ", ".join(group.arrays), "FILE:DATASET names an array that all have"
            raise InputError(what, where=group.where, expected=expected, found=found, hint=hint)
    labels = [label(batch, next(iter(batch.first.arrays))) for batch in others]
    return (main if len(same) == 1 else Trajectories(groups, notes=main.notes)), labels


def known_rotations(group: TrajectoryGroup) -> Sequence[RotationDofs]:
    """Returns the rotations of a group; none where the order of quaternions is not known."""
    with suppress(InputError):
        return group.rotations
    return ()


def datasets(files: Files, text: str) -> dict[str, Compared]:
    """Returns the datasets that a source names, by name.

    The names of several files begin with their places in the folder. A single dataset that is
    named is called "": it is compared with whatever the other source holds. With --episodes
    these are the arrays of each of these trajectories, by its place among them.
    """
    source, episodes = parse_source(text), files.reading.episodes
    if episodes is not None:
        return _of_trajectories(files, text, episodes, bool(source.dataset))
    several = expand_files(source)
    if several == [source]:
        return _in_file(files, source, False)
    folder = source.path if source.path.is_dir() else source.path.parent
    return {
        f"{os.path.relpath(member.path, folder)}/{name}": compared
        for member in several
        for name, compared in _in_file(files, member, len(several) > 1).items()
    }


def _of_trajectories(files: Files, text: str, episodes: str, named: bool) -> dict[str, Compared]:
    """Returns the arrays of the chosen trajectories, each alone, by "trajectory 3/position"."""
    compared: dict[str, Compared] = {}
    for batch in read_batches(files, [text], as_stored=True):
        for place, number in enumerate(select(episodes, len(batch))):
            block = batch.take([number])
            group, begin, end = block.runs[0]
            which, rows = range(begin, end), range(block.rows)
            for name, dataset in group.arrays.items():
                title = "" if named and len(group.arrays) == 1 else name
                compared[f"trajectory {place}/{title}"] = Compared(
                    dataset.select(which, rows), known_rotations(group), partial(block.take, [0])
                )
    return compared


def _in_file(files: Files, source: Source, several: bool) -> dict[str, Compared]:
    """Returns the datasets of one file, by name.

    Where a layout or options say how to read the file, these are the arrays of its trajectories.
    """
    file, plain = files.open(source.path), files.reading.plain
    of_group = source.dataset is None or file.has_group(source.dataset)
    prefix = f"{source.dataset.strip('/')}/" if of_group and source.dataset else ""
    looked_up: dict[Any, Trajectories | None] = {}

    def trajectories(path: str, stored: Dataset) -> Trajectories | None:
        """Returns the trajectories that a dataset of the file holds; arrays of one shape beside
        each other have the same names and times, unless they say their own."""
        folder, _, last = path.rpartition("/")
        own = path if {"joint_names", "dt"} & stored.attributes.keys() else ""
        key = folder, stored.shape, last in TAKEN, own
        if key not in looked_up:
            looked_up[key] = None
            with suppress(InputError):
                group = TrajectoryGroup(file, path, {path: stored}, files.layout(file), named=True)
                if source.dofs is not None:
                    group = group.keep_dofs(source.dofs, str(group.where))
                time = time_from_options(files)
                looked_up[key] = Trajectories([group] if time is None else timed([group], time))
        return looked_up[key]

    compared = dict[str, Compared]()
    if plain and of_group:
        named = {
            name.removeprefix(prefix): name for name in file.names() if name.startswith(prefix)
        }
    elif plain and file.get(str(source.dataset)) and not (several and files.layout(file)):
        named = {"": str(source.dataset)}
    else:
        for batch in read_batches(files, [str(source)], as_stored=True):
            for group in batch.groups:
                folder = group.group if group.member is None else group.name
                for name, array in group.arrays.items():
                    path = array_path(folder, group, name).removeprefix(prefix)
                    within = "" if of_group else array_path("", group, name)
                    itself = partial(Trajectories, [group])
                    compared[path] = Compared(array, known_rotations(group), itself, within)
        return compared
    for name, path in named.items():
        stored = file.require(path)
        if stored.dtype.kind in f"{NUMERIC_KINDS}SUOb":
            # the names of the dofs are one dataset of HDF5, found by any of its links
            name = "dof" if name.endswith("/dof") and not stored.numeric else name
            dataset, beside = pick_dofs(stored, source.dofs), partial(trajectories, path, stored)
            compared[name] = Compared(dataset, _named_rotations(dataset), beside)
    return compared


def _named_rotations(dataset: Dataset) -> Sequence[RotationDofs]:
    """Returns the rotations that a dataset's name or those of its columns tell: the angle between
    two does not depend on the order of their components."""
    if not dataset.ndim or dataset.dtype.kind != "f":
        return ()
    names, order = dataset.attributes.get("joint_names"), dataset.attributes.get("order", "wxyz")
    names, path = names if isinstance(names, list) else (), dataset.where.name
    return named_rotations(path, names, dataset.shape[-1], "", order, dataset.where)
