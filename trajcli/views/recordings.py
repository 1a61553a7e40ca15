"""Reads the trajectories that a view shows, pairs them by time, names and samples them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from trajcli.errors import InputError, UsageError, join_names, raise_if_any
from trajcli.files.clock import exact_seconds
from trajcli.files.limits import Bounds, Limits
from trajcli.files.opening import Files, clock_from_options
from trajcli.files.quantities import QUANTITIES, ROTATIONS, derivative_order, derive_unit
from trajcli.files.reader import assign_times, dof_faults, no_time, read_recordings, require_stamps
from trajcli.files.reading import Repair
from trajcli.files.recording import SEVERAL, Recording, join, mask_numbers, without_rotations
from trajcli.files.repair import repair_recordings
from trajcli.files.source import expand_files, parse_source
from trajcli.kernels.program import Floats, Integers, NumpyArray
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

# A sample of a large array is read in this many blocks, evenly spread over it.
_SAMPLE_BLOCKS = 12
# Rows are at the same time where their stamps differ by less than this share of a step.
_SAME_TIME = 1e-9
GAP = 4.0
"""Usual steps in a gap, over which nothing is interpolated."""


@dataclass(frozen=True)
class PairedTimes:
    """Times of the rows of two sources, on the clock that they share or from their starts.

    start_offsets: by how many seconds each trajectory of ``second`` begins later [n]; 0 from the
    starts. remark: why they do not share a clock, where one source has stamps. slack: by how many
    seconds rounding may separate two stamps of the same time.
    """

    first: Recording
    second: Recording
    start_offsets: Floats
    shared_clock: bool
    remark: str
    slack: float

    @property
    def identical(self) -> bool:
        """Whether both sources have rows at the same times in every trajectory."""
        steps = self.first.step, self.second.step
        if not self.start_offsets.any() and None not in steps and steps[0] == steps[1]:
            return np.array_equal(self.first.lengths, self.second.lengths)
        pairs = map(self.read_times, range(len(self.first)))
        return all(len(a) == len(b) and (abs(a - b) <= self.tolerance(a)).all() for a, b in pairs)

    def read_times(self, k: int) -> tuple[Floats, Floats]:
        """Reads the times [T] of the k-th trajectories, counted from the first row of the first."""
        first, second = (_elapsed(side, k) for side in (self.first, self.second))
        return first, second + self.start_offsets[k]

    def tolerance(self, times: Floats) -> float:
        """Returns by how many seconds two rows of the same time may differ."""
        return self.slack + _SAME_TIME * float(times[-1] - times[0]) / len(times)

    def overlap(self, clocks: Sequence[Floats]) -> list[Integers]:
        """Finds the rows of two trajectories that are within the time and no gap of the other."""
        tolerance, rows = self.tolerance(clocks[0]), list[Integers]()
        for clock, other in zip(clocks, clocks[::-1], strict=True):
            indices = np.flatnonzero(
                (other[0] - tolerance <= clock) & (clock <= other[-1] + tolerance)
            )
            if len(other) > 1:
                after = np.clip(np.searchsorted(other, clock[indices]), 1, len(other) - 1)
                since, until = clock[indices] - other[after - 1], other[after] - clock[indices]
                # On a row of the other nothing is interpolated, so a gap next to it is harmless.
                gap = since + until > GAP * np.median(np.diff(other))
                indices = indices[~gap | (np.minimum(since, until) <= tolerance)]
            rows.append(indices)
        return rows


def paired_times(first: Recording, second: Recording) -> PairedTimes:
    # They share a clock where the stamps of both do not begin at 0, and overlap.
    starts, slack = list[list[Fraction]](), 0.0
    for side in (first, second):
        if side.clock is not None and side.clock.contradiction is not None:
            raise InputError(side.clock.contradiction)
        stamps, unit = side.start_stamps(skip_start=True) or (np.array([np.nan]), "s")
        if np.isfinite(stamps).all():
            # Stamps since 1970 in nanoseconds have more digits than float64: the difference of two
            # starts is computed exactly, and rounded once.
            starts.append([exact_seconds(stamp, unit) for stamp in stamps])
            if stamps.dtype.kind == "f":
                slack += float(4 * exact_seconds(np.spacing(np.abs(stamps).max()), unit))
    if len(starts) < 2:
        remark = "from their starts: only one has stamps of a clock" if starts else ""
        return PairedTimes(first, second, np.zeros(len(first)), False, remark, slack)
    offsets = np.array([float(b - a) for a, b in zip(*starts, strict=True)])
    shared = all(
        offset == 0.0 or -_elapsed(second, k)[-1] <= offset <= _elapsed(first, k)[-1]
        for k, offset in enumerate(offsets.tolist())
    )
    remark = "" if shared else "from their starts: their stamps do not overlap"
    return PairedTimes(first, second, offsets * shared, shared, remark, slack)


def interpolate(
    times: Floats, stamps: Floats, values: NumpyArray, tolerance: float
) -> tuple[NumpyArray, bool]:
    """Interpolates values [T, D] linearly at times within their ``stamps`` [T], except on rows."""
    # Times within the tolerance of a row take that row exactly, in its own type.
    after = np.clip(np.searchsorted(stamps, times), 1, max(len(stamps) - 1, 1)) % len(stamps)
    nearest = np.where(times - stamps[after - 1] < stamps[after] - times, after - 1, after)
    exact = np.abs(times - stamps[nearest]) <= tolerance
    if exact.all():
        return values[nearest], False
    snapped = np.where(exact, stamps[nearest], times)
    columns = [np.interp(snapped, stamps, column) for column in values.T.astype(np.float64)]
    between: NumpyArray = np.stack(columns, 1)
    return between.astype(values.dtype) if values.dtype.kind == "f" else between, True


def _elapsed(recording: Recording, k: int) -> Floats:
    """Reads the times [T] of the k-th trajectory from its first row on; refuses unusable ones."""
    times = recording.take([k]).times()
    if times is None:
        raise InputError(no_time(first_part(recording)))
    if not (np.diff(times) > 0).all():
        raise InputError("times that do not increase", where=recording.place_text(k))
    elapsed: Floats = times[0] - times[0, :1]
    return elapsed


def one_sided_rows(recording: Recording) -> int:
    """Counts the rows at each end around which mode savgol had no full window."""
    # Their derivatives are several times as far off as others, and do not count as peaks.
    mode, window = map(recording.file.attributes().get, ("mode", "window"))
    if str(mode) != "savgol":
        return 0
    if not (isinstance(window, str) and re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,9}s", window)):
        # A window of another type comes from another program.
        return max(int(window), 0) // 2 if isinstance(window, (int, np.integer)) else 0
    # Stamps are rounded: a row at half a window from the end has a full one.
    half = 0.5 * float(window[:-1]) * (1.0 - 1e-5)
    ends = 0
    # The first trajectory of each group stands for the others.
    for part in recording.members:
        times = part.take([0]).known_times() if len(part) else None
        if times is not None and times.size:
            since, until = times[0] - times[0, 0], times[0, -1] - times[0]
            ends = max(ends, int((since < half).sum()), int((until < half).sum()))
    return ends


def first_part(recording: Recording) -> Recording:
    return next((part for part in recording.members if part.fault is None), recording.members[0])


def label(recording: Recording, name: str = "") -> str:
    """Names an array by its path in the file: data/demo_*/actions."""
    return array_path(recording.pattern, recording, name) or recording.file.path.name


def trajectory_text(recording: Recording, number: int) -> str:
    """Names one of several trajectories, in front of a row: "trajectory 13, ", "data/demo_13, "."""
    title = recording.title(number)
    text = f"trajectory {title}, " if title.isdecimal() else f"{title}, "
    return text if len(recording) > 1 else ""


def dof_text(recording: Recording, dof: int) -> str:
    """Names a dof by its number and name in the file: dof 3 (panda_joint4)."""
    name, text = recording.dof_labels[dof], f"dof {recording.dofs.numbers[dof]}"
    return text if name.isdecimal() else f"{text} ({name})"


def array_quantity(recording: Recording, name: str) -> str:
    """Names the quantity of an array; that of actions follows from the mode of the file."""
    mode = recording.stated_mode.name if name == "actions" else ""
    return QUANTITIES[MODES[mode].action_order] if mode else name


def find_quantities(
    recording: Recording, default: str = "position"
) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Finds the array of each quantity; returns these, the units of all, and notes."""
    # The name of an array or the mode of its file tells the quantity. Where neither does, its unit
    # or, where SOURCE names the array, a name like qvel tells, and without these it is ``default``.
    first = next(iter(recording.arrays))
    known = {array_quantity(recording, name): name for name in recording.arrays}
    stored = {name: known[name] for name in QUANTITIES if name in known}
    dof_units, notes = parse_units(recording.unit(first)), []
    if not stored and (dof_units or recording.named or recording.file.family == "npy"):
        orders, rate = {unit.order for unit in dof_units or () if unit.known}, recording.rate_name
        by_unit = bool(orders)
        # A unit weighs more than a name. Dofs whose units differ in order hold several quantities.
        quantity = QUANTITIES[orders.pop()] if len(orders) == 1 else SEVERAL if orders else rate
        quantity = quantity or default
        if quantity in QUANTITIES:
            stored = {quantity: first}
            how = ", by its unit" if by_unit else ", by its name" if rate else ""
            notes.append(f"{first} read as {quantity}{how}")
        else:
            what = "dofs of several quantities" if by_unit or rate == SEVERAL else "no known name"
            notes.append(f"{first} has {what}; --as position, or velocity, …, says what it is")
    units = {name: recording.unit(array) or "" for name, array in stored.items()}
    if units.get("position"):
        units |= {name: derive_unit(name, units["position"]) for name in QUANTITIES}
    return stored, dict.fromkeys(QUANTITIES, "") | units, notes


def units_to_show(recording: Recording, name: str, to: InputUnits) -> tuple[Floats, str]:
    """Returns factors [1 or D] from an array in SI to the units of --to-units, and these."""
    # As many units as dofs are those of the dofs, in their order. Otherwise each dof takes the unit
    # that measures the same as its own, and keeps its own where there is none.
    count, stated, targets = recording.shape[2], recording.unit(name) or "", to.positions
    if to.time is not None and recording.clock is None:
        found = str(first_part(recording).where)
        raise UsageError("no times to convert", where=f"--to-units {to.time}", found=found)
    if not targets or name == ROTATIONS[0]:
        return np.ones(1), stated
    by_dof, units = len(targets) == count and name not in ROTATIONS, recording.units.get(name, ())
    if recording.is_output and not stated:
        # An output of trajcli without units is in SI, in the units that the user asks for.
        units = derivative_units(
            require_dof_units(targets, count, "--to-units"), derivative_order(name)
        )
    units = si_units(units if units[1:] else list(units or [NO_UNIT]) * count)
    units = without_rotations(recording.turning, units, recording.shape[2])
    kinds, by_kind = [Unit(unit.si) for unit in units], {unit.si: unit for unit in targets}
    turned = {dof for rotation in recording.turning for dof in rotation.dofs}
    bare = any(not unit.name and k not in turned for k, unit in enumerate(units))
    if by_dof:
        mismatch = bool(differ([Unit(unit.si) for unit in targets], kinds))
    else:
        # Two targets of one kind contradict each other; rates of rotations may have none of them.
        mismatch = name not in ROTATIONS and (
            len(by_kind) < len(targets) or by_kind.keys().isdisjoint(unit.name for unit in kinds)
        )
    if bare or mismatch:
        array = first_part(recording).arrays[name]
        raise UsageError(
            "an unknown unit" if bare else "units that cannot be converted into each other",
            where=f"{array.where}, for --to-units {unit_text(targets)}",
            expected="a known one" if bare else unit_text(targets),
            found=unit_text(kinds),
            hint="--units says what SOURCE is in" if bare and not recording.is_output else "",
        )
    chosen = targets if by_dof else [by_kind.get(unit.si, unit) for unit in units]
    # Targets are units of positions: a rate takes them per second, as often as its own unit has it.
    shown = [
        replace(target, order=unit.order) if target.known and unit.known else unit
        for target, unit in zip(chosen, units, strict=True)
    ]
    return per_si(shown), unit_text(shown)


def dof_bounds(recording: Recording, limits: Limits, units: Mapping[str, str]) -> dict[str, Bounds]:
    itemsize = min(dataset.precision.itemsize for dataset in recording.arrays.values())
    return limits.bounds(recording.dof_labels, itemsize, units, recording.dofs)


def sample(recording: Recording, budget: int) -> Iterator[Recording]:
    """Yields blocks of about ``budget`` bytes in all, evenly spread over the trajectories."""
    rows, row_bytes = recording.rows, recording.row_bytes * len(recording.arrays)
    length = max(1, budget // _SAMPLE_BLOCKS // row_bytes)
    length -= length % rows if length > rows else 0
    starts = np.linspace(0, max(len(recording) * rows - length, 0), _SAMPLE_BLOCKS).astype(int)
    # Where one block covers everything, all starts are 0, and it is read once.
    for k, row in (divmod(start, rows) for start in dict.fromkeys(starts.tolist())):
        if length >= rows:
            yield from recording.take(slice(k, k + length // rows)).blocks()
            continue
        # Of trajectories too long for that, only some rows are read.
        trajectory = recording.take([k])
        part = min(length, trajectory.rows)
        start = min(row, trajectory.rows - part)
        yield trajectory.take(slice(None), range(start, start + part))


def array_path(path: str, recording: Recording, name: str) -> str:
    """Builds the path of an array in the file: obs/joint_pos for joint_pos."""
    stored = recording.array_name if name and name == next(iter(recording.arrays)) else name
    return f"{path}/{stored}".strip("/")


def expand_globs(texts: Sequence[str]) -> list[str]:
    """Lists a source for each file that globs name; a folder of files is one source."""
    sources: list[str] = []
    for text in texts:
        source = parse_source(text)
        sources += [text] if source.path.is_dir() else map(str, expand_files(source))
    return sources


def read_batches(
    files: Files, sources: Sequence[str], as_stored: bool = False, repair: Repair | None = None
) -> list[Recording]:
    """Reads the trajectories that sources name, in batches of the same arrays and dofs."""
    recordings, report = read_recordings(files, sources, as_stored), files.report
    # Groups whose names differ only in numbers hold trajectories of one batch. Groups of other
    # names (actions, and reference/position) hold other arrays of the same trajectories, except in
    # a file that trajcli wrote, where every group is a trajectory.
    groups: dict[tuple[str, int, tuple[str, ...]], list[Recording]] = {}
    for recording in recordings:
        output = recording.group and recording.is_output
        pattern = "*" if output else mask_numbers(recording.group)
        key = pattern, recording.shape[2], tuple(recording.arrays)
        groups.setdefault(key, []).append(recording)
    batches, option = list(groups.values()), clock_from_options(files)
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
        # Unwrapping turns is the only repair that needs no times.
        timeless = replace(repair, wrap_dofs=None) == Repair()
        for k, members in enumerate(batches):
            for recording in members:
                if recording.clock is None and not timeless:
                    raise InputError(no_time(recording))
            batches[k] = repair_recordings(members, repair, 1, report, files.reading.episodes)
    return [join(members) for members in batches]


def other_arrays(main: Recording, candidates: Sequence[Recording]) -> list[Recording]:
    """Finds the batches that hold other arrays of the same trajectories, such as orientations."""
    return [x for x in candidates if x is not main and locations(x) == locations(main)]


def locations(batch: Recording) -> list[tuple[Path, str, str, tuple[int, ...]]]:
    """Locates the trajectories of a batch; equal for batches of other arrays of the same ones."""
    return [(part.file.path, part.group, part.name, part.shape[:2]) for part in batch.members]


def whole_batch(candidates: Sequence[Recording]) -> tuple[Recording | None, list[Recording]]:
    """Joins the trajectories with the most arrays; returns also the batches of other arrays."""
    if not candidates:
        return None, []
    main = max(candidates, key=lambda batch: len(batch.arrays))
    arrays = list(main.arrays)
    same = [batch for batch in candidates if list(batch.arrays) == arrays]
    others = [batch for batch in candidates if batch not in same]
    parts = [part for batch in same for part in batch.members]
    raise_if_any(dof_faults(parts))
    groups = {(part.file.path, part.group) for part in parts}
    patterns = {mask_numbers(part.group) for part in parts}
    for part in (part for batch in others for part in batch.members):
        if (part.file.path, part.group) not in groups and mask_numbers(part.group) in patterns:
            what, expected = "trajectories of different arrays", ", ".join(arrays)
            found, hint = ", ".join(part.arrays), "FILE:DATASET names an array that all have"
            raise InputError(what, where=part.where, expected=expected, found=found, hint=hint)
    return (main if len(same) == 1 else join(parts)), others
