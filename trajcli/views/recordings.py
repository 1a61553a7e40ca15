"""Reads the trajectories that a view shows, names them in words, and samples them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from trajcli.errors import InputError, UsageError, join_names, raise_if_any
from trajcli.files.clock import exact_seconds
from trajcli.files.limits import Bounds, Limits
from trajcli.files.opening import Files, clock_from_options
from trajcli.files.quantities import QUANTITIES, ROTATIONS, derivative_order, derive_unit, rate_name
from trajcli.files.reader import dof_faults, no_time, read_recordings, require_stamps, assign_times
from trajcli.files.reading import Repair
from trajcli.files.recording import SEVERAL, Array, Recording, join, mask_numbers, without_rotations
from trajcli.files.repair import repair_recordings
from trajcli.files.source import Place, expand_files, parse_source
from trajcli.kernels.program import Floats, Integers
from trajcli.modes import MODES
from trajcli.units import (
    NO_UNIT,
    InputUnits,
    Unit,
    derivative_units,
    differ,
    parse_units,
    per_si,
    require_dof_units,
    si_units,
    unit_text,
)

_SAMPLE_PLACES = 12
# Rows are at the same time where their stamps differ by less than this share of a step.
_SAME_TIME = 1e-9
GAP = 4.0
"""Usual steps in a gap, over which nothing is interpolated."""


@dataclass(frozen=True)
class PairedTimes:
    """Times of the rows of two sources, on the clock that both share or else from their starts.

    late: by how many seconds trajectories of ``second`` begin later [n], 0 from their starts.
    clock: whether both share one; ``remark``: why not, where one has stamps of a clock. slack: how
    far apart, in seconds, rounding of the stamps may move rows of one time.
    """

    first: Recording
    second: Recording
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
        pairs = map(self.rows_of, range(len(self.first)))
        return all(len(a) == len(b) and (abs(a - b) <= self.near(a)).all() for a, b in pairs)

    def of_stamps(self, first: Place, second: Place) -> bool:
        """Whether two datasets are the stamps of the rows themselves."""
        clocks = self.first.clock, self.second.clock
        return [clock and clock.where for clock in clocks] == [first, second]

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
                gap = since + until > GAP * np.median(np.diff(other))
                inside = inside[~gap | (np.minimum(since, until) <= near)]
            rows.append(inside)
        return rows

    def rows_of(self, k: int) -> tuple[Floats, Floats]:
        """Returns the times [T] of the k-th trajectories, from the first row of the first one on.
        Raises InputError for times that are not known or do not increase."""
        first, second = (_elapsed(side, k) for side in (self.first, self.second))
        return first, second + self.late[k]


def paired_times(first: Recording, second: Recording) -> PairedTimes:
    """Returns the times by which rows of two sources are paired.

    They share a clock where the stamps of both do not begin at 0, and overlap. Raises InputError
    for times that are not known.
    """
    starts, slack = list[list[Fraction]](), 0.0
    for side in (first, second):
        if side.clock is not None and side.clock.contradiction is not None:
            raise InputError(side.clock.contradiction)
        stamps, unit = side.start_stamps(skip_start=True) or (np.array([np.nan]), "s")
        if np.isfinite(stamps).all():
            starts.append([exact_seconds(stamp, unit) for stamp in stamps])
            if stamps.dtype.kind == "f":
                slack += float(4 * exact_seconds(np.spacing(np.abs(stamps).max()), unit))
    if len(starts) < 2:
        remark = "from their starts: only one has stamps of a clock" if starts else ""
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


def _elapsed(recording: Recording, k: int) -> Floats:
    """Returns the times [T] of a trajectory from its first row on."""
    times = recording.take([k]).times()
    if times is None:
        raise InputError(no_time(first_part(recording)))
    if not (np.diff(times) > 0).all():
        raise InputError("times that do not increase", where=recording.place_text(k))
    elapsed: Floats = times[0] - times[0, :1]
    return elapsed


def one_sided(recording: Recording) -> int:
    """Returns the number of rows at each end around which mode savgol had no full window.

    Their derivatives are several times as far off as others, and do not count as peaks.
    """
    mode, window = map(recording.file.attributes().get, ("mode", "window"))
    if str(mode) != "savgol":
        return 0
    if not (isinstance(window, str) and re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,9}s", window)):
        # values of other types come from other programs
        return max(int(window), 0) // 2 if isinstance(window, (int, np.integer)) else 0
    half = 0.5 * float(window[:-1]) * (1.0 - 1e-5)  # stamps are rounded
    ends = 0
    for part in recording.members:  # the first trajectory of each group stands for all
        times = part.take([0]).known_times() if len(part) else None
        if times is not None and times.size:
            since, until = times[0] - times[0, 0], times[0, -1] - times[0]
            ends = max(ends, int((since < half).sum()), int((until < half).sum()))
    return ends


def first_part(recording: Recording) -> Recording:
    """Returns the trajectories of the first group that can be used."""
    return next((part for part in recording.members if part.fault is None), recording.members[0])


def label(recording: Recording, name: str = "") -> str:
    """Returns the name of an array in the file: data/demo_*/actions."""
    return array_path(recording.pattern, recording, name) or recording.file.path.name


def trajectory_text(recording: Recording, number: int) -> str:
    """Returns "trajectory 13, " or "data/demo_13, ", for the text before a place in it.

    It is empty where there is only one trajectory.
    """
    title = recording.title(number)
    text = f"trajectory {title}, " if title.isdecimal() else f"{title}, "
    return text if len(recording) > 1 else ""


def dof_text(recording: Recording, dof: int) -> str:
    """Returns the number and the name of a dof in the file: dof 3 (panda_joint4)."""
    name, text = recording.dof_labels[dof], f"dof {recording.dofs.numbers[dof]}"
    return text if name.isdecimal() else f"{text} ({name})"


def beside(first: Recording, second: Recording) -> bool:
    """Returns whether both are the same trajectories: as many, in groups of other names."""
    patterns = [{mask_numbers(part.group) for part in x.members} for x in (first, second)]
    return len(first) == len(second) and not patterns[0] & patterns[1]


def quantity_of(recording: Recording, name: str) -> str:
    """Returns the quantity of an array; that of actions follows from the mode of the file."""
    mode = recording.stated_mode.name if name == "actions" else ""
    return QUANTITIES[MODES[mode].action_order] if mode else name


def quantities(
    recording: Recording, named: str = "position"
) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Returns which array holds each quantity, with units and notes.

    An array whose quantity neither its name nor its mode says has the quantity of its unit or,
    where SOURCE names it, that of a name like qvel, else ``named``; a note says so. Unknown units
    are "".
    """
    first = next(iter(recording.arrays))
    known = {quantity_of(recording, name): name for name in recording.arrays}
    stored = {name: known[name] for name in QUANTITIES if name in known}
    of_unit, notes = parse_units(recording.unit(first)), []
    if not stored and (of_unit or recording.named or recording.file.family == "npy"):
        orders, rate = {unit.order for unit in of_unit or () if unit.known}, recording.rate_name
        by_unit = bool(orders)
        said = QUANTITIES[orders.pop()] if len(orders) == 1 else "effort" if orders else rate
        if (said or named) in QUANTITIES:
            stored = {said or named: first}
            how = ", by its unit" if by_unit else ", by its name" if rate else ""
            notes.append(f"{first} read as {said or named}{how}")
        else:
            what = (
                "dofs of several quantities" if by_unit or rate == SEVERAL else "no motion's name"
            )
            notes.append(f"{first} has {what}; --as position, or velocity, …, says what it is")
    units = {name: recording.unit(array) or "" for name, array in stored.items()}
    if units.get("position"):
        units |= {name: derive_unit(name, units["position"]) for name in QUANTITIES}
    return stored, dict.fromkeys(QUANTITIES, "") | units, notes


def units_to_show(recording: Recording, name: str, to: InputUnits) -> tuple[Floats, str]:
    """Returns factors [1 or D] from an array in SI to the units of --to-units, and these as text.

    As many units as dofs are those of the dofs; otherwise a dof takes the one that measures the
    same as its own, and keeps its own where there is none. Raises UsageError for dofs in no known
    unit, and where nothing can be converted.
    """
    count, stated, targets = recording.shape[2], recording.unit(name) or "", to.positions
    if to.time is not None and recording.clock is None:
        found = str(first_part(recording).where)
        raise UsageError("no times to convert", where=f"--to-units {to.time}", found=found)
    if not targets or name == ROTATIONS[0]:
        return np.ones(1), stated
    each, own = len(targets) == count and name not in ROTATIONS, recording.units.get(name, ())
    if recording.is_output and not stated:  # in SI, whichever that is
        own = derivative_units(require_dof_units(targets, count, "--to-units"), derivative_order(name))
    own = si_units(own if own[1:] else list(own or [NO_UNIT]) * count)
    own = without_rotations(recording.turning, own, recording.shape[2])
    kinds, wanted = [Unit(unit.si) for unit in own], {unit.si: unit for unit in targets}
    turned = {dof for rotation in recording.turning for dof in rotation.dofs}
    bare = any(not unit.name and k not in turned for k, unit in enumerate(own))
    apart = differ([Unit(unit.si) for unit in targets], kinds) if each else (
        name not in ROTATIONS
        and (len(wanted) < len(targets) or wanted.keys().isdisjoint(unit.name for unit in kinds))
    )  # fmt: skip
    if bare or apart:
        array = first_part(recording).arrays[name]
        raise UsageError(
            "an unknown unit" if bare else "units that cannot be converted into each other",
            where=f"{array.where}, for --to-units {unit_text(targets)}",
            expected="a known one" if bare else unit_text(targets),
            found=unit_text(kinds),
            hint="--units says what SOURCE is in" if bare and not recording.is_output else "",
        )
    pairs = zip(targets if each else [wanted.get(unit.si, unit) for unit in own], own, strict=True)
    shown = [replace(a, order=b.order) if a.known and b.known else b for a, b in pairs]
    return per_si(shown), unit_text(shown)


def measured_beside(recording: Recording, quantity: str) -> str:
    """Returns the name of an array beside the first one whose name says that it holds a quantity,
    for as many dofs; "" without any."""
    array = array_path(recording.group, recording, next(iter(recording.arrays)))
    folder, count = array.rpartition("/")[0], recording.dofs.count
    for name in recording.file.children(folder):
        other = rate_name(name) == quantity and f"{folder}/{name}".lstrip("/") != array
        stored = recording.file.get(f"{folder}/{name}") if other else None
        if stored is not None and stored.numeric and stored.shape[-1:] == (count,):
            return name
    return ""


def bounds_of(recording: Recording, limits: Limits, units: Mapping[str, str]) -> dict[str, Bounds]:
    """Returns the limits of the dofs by quantity, in the ``units`` of the arrays."""
    itemsize = min(dataset.precision.itemsize for dataset in recording.arrays.values())
    return limits.bounds(recording.dof_labels, itemsize, units, recording.dofs)


def sample(recording: Recording, budget: int) -> Iterator[Recording]:
    """Yields blocks of about ``budget`` bytes in all, evenly spread over the trajectories.

    Of trajectories too long for that, only some rows are read.
    """
    rows, of_rows = recording.rows, recording.row_bytes * len(recording.arrays)
    length = max(1, budget // _SAMPLE_PLACES // of_rows)
    length -= length % rows if length > rows else 0
    starts = np.linspace(0, max(len(recording) * rows - length, 0), _SAMPLE_PLACES).astype(int)
    for k, row in (divmod(start, rows) for start in dict.fromkeys(starts.tolist())):
        if length >= rows:
            yield from recording.take(slice(k, k + length // rows)).blocks()
            continue
        whole = recording.take([k])
        part = min(length, whole.rows)
        first = min(row, whole.rows - part)
        yield whole.take(slice(None), range(first, first + part))


def array_path(path: str, recording: Recording, name: str) -> str:
    """Returns the path of an array in the file: obs/joint_pos for joint_pos."""
    stored = recording.array_name if name and name == next(iter(recording.arrays)) else name
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
) -> list[Recording]:
    """Returns the trajectories that sources name, in batches of the same arrays and dofs.

    Parameters:
        as_stored: keeps the units of the files, unless --units says others.
        repair: what is repaired in recordings first.
    """
    recordings, report = read_recordings(files, sources, as_stored), files.report
    batches, option = _batches(recordings), clock_from_options(files)
    if option is not None:
        batches = [assign_times(members, option) for members in batches]
    for first in (members[0] for members in batches):
        require_stamps(first)
        if first.clock and first.clock.remark:
            report.add_notes(first.clock.remark)
    if repair is not None and repair != Repair():
        if repair.trim and len(batches) > 1:
            what, hint = "arrays with idle ends of their own", "FILE:DATASET names one"
            found = join_names((str(members[0].where) for members in batches), 6)
            raise InputError(what, where=sources[0], expected="one", found=found, hint=hint)
        timeless = replace(repair, wrap_dofs=None) == Repair()
        for k, members in enumerate(batches):
            for recording in members:
                if recording.clock is None and not timeless:
                    raise InputError(no_time(recording))
            batches[k] = repair_recordings(members, repair, 1, report, files.reading.episodes)
    return [join(members) for members in batches]


def _batches(recordings: Iterable[Recording]) -> list[list[Recording]]:
    """Returns lists of recordings of the same arrays whose groups differ only in numbers, in their
    order.

    Groups of other names (actions, and reference/position) hold other arrays of the same
    trajectories; but in a file that trajcli wrote, every group is a trajectory.
    """
    batches: dict[tuple[str, int, tuple[str, ...]], list[Recording]] = {}
    for each in recordings:
        pattern = "*" if each.group and each.is_output else mask_numbers(each.group)
        batches.setdefault((pattern, each.shape[2], tuple(each.arrays)), []).append(each)
    return list(batches.values())


def main_batch(candidates: Sequence[Recording]) -> Recording | None:
    """Returns the first of the trajectories with the most arrays; None without any."""
    return max(candidates, key=lambda batch: len(batch.arrays), default=None)


def other_arrays(main: Recording, candidates: Sequence[Recording]) -> Iterator[Recording]:
    """Yields the batches that hold other arrays of the same trajectories: positions, orientations
    and angular rates lie beside each other."""
    here = locations(main)
    yield from (batch for batch in candidates if batch is not main and locations(batch) == here)


def first_labels(batches: Iterable[Recording]) -> list[str]:
    """Returns the names of the first arrays of batches, for messages."""
    return [label(batch, next(iter(batch.arrays))) for batch in batches]


def locations(batch: Recording) -> list[tuple[Path, str, str, tuple[int, ...]]]:
    """Returns where the trajectories of a batch are, equal for other arrays of the same ones."""
    return [(part.file.path, part.group, part.name, part.shape[:2]) for part in batch.members]


def whole_batch(candidates: Sequence[Recording]) -> tuple[Recording | None, list[Recording]]:
    """Returns the trajectories with the most arrays, and the batches of other arrays.

    Raises InputError where trajectories would be left out, as they have other dofs, or other arrays
    in groups of the same names.
    """
    main = main_batch(candidates)
    if main is None:
        return None, []
    arrays = list(main.arrays)
    same = [batch for batch in candidates if list(batch.arrays) == arrays]
    others = [batch for batch in candidates if batch not in same]
    parts = [part for batch in same for part in batch.members]
    raise_if_any(dof_faults(parts))
    taken = {(part.file.path, part.group) for part in parts}
    patterns = {mask_numbers(part.group) for part in parts}
    for part in (part for batch in others for part in batch.members):
        if (part.file.path, part.group) not in taken and mask_numbers(part.group) in patterns:
            what, expected = "trajectories of different arrays", ", ".join(arrays)
            found, hint = ", ".join(part.arrays), "FILE:DATASET names an array that all have"
            raise InputError(what, where=part.where, expected=expected, found=found, hint=hint)
    return (main if len(same) == 1 else join(parts)), others
