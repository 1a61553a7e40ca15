"""The trajectories that a view shows, what is said of them in words, and samples of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from trajcli.errors import InputError, raise_if_any
from trajcli.files.guesses import require_time
from trajcli.files.limits import Bounds, Limits
from trajcli.files.opening import Files
from trajcli.files.reader import dof_faults, read_groups
from trajcli.files.reading import Repair
from trajcli.files.repair import repaired
from trajcli.files.schema import QUANTITIES, unit_of
from trajcli.files.source import expand_files, parse_source
from trajcli.files.stored_time import time_from_options
from trajcli.files.trajectories import Trajectories, numberless, row_bytes, timed
from trajcli.files.trajectory_group import TrajectoryGroup
from trajcli.modes import MODES
from trajcli.units import parse_units

_SAMPLE_PLACES = 12


def one_sided(trajectories: Trajectories) -> int:
    """Returns the rows at each end of which mode savgol had no full window around them: their
    derivatives are several times as far off as others, and are no peaks."""
    attributes = trajectories.first.file.attributes()
    mode, window = attributes.get("mode"), attributes.get("window")
    if not isinstance(mode, str) or mode != "savgol":
        return 0
    if not (isinstance(window, str) and re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,9}s", window)):
        # other values are another program's
        return max(int(window), 0) // 2 if isinstance(window, (int, np.integer)) else 0
    half = 0.5 * float(window[:-1]) * (1.0 - 1e-5)  # as stamps are rounded
    ends = 0
    for _, members in trajectories.by_group():  # one of each group
        times = members.take([0]).known_times() if len(members) else None
        if times is not None and times.size:
            since, until = times[0] - times[0, 0], times[0, -1] - times[0]
            ends = max(ends, int((since < half).sum()), int((until < half).sum()))
    return ends


def label(trajectories: Trajectories, name: str = "") -> str:
    """Returns an array of trajectories as the file calls it: data/demo_*/actions."""
    first = trajectories.first
    return array_path(trajectories.pattern, first, name) or first.file.path.name


def trajectory_text(trajectories: Trajectories, number: int) -> str:
    """Returns "trajectory 13, ", or "data/demo_13, ", to stand before a place in it; nothing where
    there is only one trajectory."""
    name = trajectories.name(number)
    text = f"trajectory {name}, " if name.isdecimal() else f"{name}, "
    return text if len(trajectories) > 1 else ""


def dof_text(trajectories: Trajectories, dof: int) -> str:
    """Returns the number of a dof in the file, and its name: dof 3 (panda_joint4)."""
    name = trajectories.dofs[dof]
    return f"dof {trajectories.first.dofs.numbers[dof]}" + f" ({name})" * (not name.isdecimal())


def beside(one: Trajectories, other: Trajectories) -> bool:
    """Whether both are the same trajectories: as many, in groups of other names."""
    patterns = [{numberless(group.group) for group in each.groups} for each in (one, other)]
    return len(one) == len(other) and not patterns[0] & patterns[1]


def quantity_of(trajectories: Trajectories, name: str) -> str:
    """Returns what an array holds: actions are what the mode of the file makes them."""
    mode = trajectories.first.stated_mode[0] if name == "actions" else ""
    return QUANTITIES[MODES[mode].derivatives_of] if mode else name


def quantities(
    trajectories: Trajectories, named: str = "position"
) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Returns the array that holds each quantity, the unit of each quantity ("" where it is not
    known), and a note on an array whose quantity neither its name nor its mode says.

    Such an array is what its unit says, or else ``named`` where SOURCE names it.
    """
    group, first = trajectories.first, next(iter(trajectories.first.arrays))
    known = {quantity_of(trajectories, name): name for name in group.arrays}
    stored = {name: known[name] for name in QUANTITIES if name in known}
    of_unit, notes = parse_units(group.unit(first)), []
    if not stored and (of_unit or group.named or group.file.family == "npy"):
        quantity = QUANTITIES[of_unit[0].order] if of_unit else named
        stored = {quantity: first}
        notes.append(f"{first} read as {quantity}" + ", by its unit" * bool(of_unit))
    units = {name: group.unit(array) or "" for name, array in stored.items()}
    if units.get("position"):
        units |= {name: unit_of(name, units["position"]) for name in QUANTITIES}
    return stored, dict.fromkeys(QUANTITIES, "") | units, notes


def bounds_of(
    trajectories: Trajectories, limits: Limits, units: Mapping[str, str]
) -> dict[str, Bounds]:
    """Returns the limits of the dofs by quantity; units: of the arrays, by quantity."""
    first = trajectories.first
    itemsize = min(dataset.precision.itemsize for dataset in first.arrays.values())
    return limits.bounds(trajectories.dofs, itemsize, units, first.dofs)


def sample(trajectories: Trajectories, budget: int) -> Iterator[Trajectories]:
    """Returns about ``budget`` bytes of trajectories, evenly spread, in blocks; some rows of those
    that are too long for that."""
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
    """Returns the size of the arrays of trajectories, roughly."""
    first = trajectories.first
    return max(1, first.shape[1]) * row_bytes(first) * len(first.arrays) * len(trajectories)


def array_path(path: str, group: TrajectoryGroup, name: str) -> str:
    """Returns an array as the file calls it, in a group at a path: obs/joint_pos for joint_pos."""
    stored = group.array_name if name and name == next(iter(group.arrays)) else name
    return f"{path}/{stored}".strip("/")


def expand_globs(texts: Sequence[str]) -> list[str]:
    """Returns a source for each file that globs name; a folder of files is one source."""
    sources = [(text, parse_source(text)) for text in texts]
    return [
        one
        for text, source in sources
        for one in ([text] if source.path.is_dir() else map(str, expand_files(source)))
    ]


def read_batches(
    files: Files, sources: Sequence[str], as_stored: bool = False, repair: Repair | None = None
) -> list[Trajectories]:
    """Returns the trajectories that sources name, at the times that --dt, --rate or --times give;
    those with other arrays, dofs or names of their groups apart.

    as_stored: in the units of the files, unless --units says others. repair: what is done to
    recordings first.
    """
    every = batches(read_groups(files, sources, as_stored))
    time = time_from_options(files)
    if time is not None:
        every = [Trajectories(timed(batch.groups, time)) for batch in every]
    if repair is None or repair == Repair():
        return every
    repaired_batches = []
    for batch in every:
        for group in batch.groups:
            require_time(group.time, group.where, group)
        groups, notes = repaired(batch.groups, repair, 1)
        for note in notes:
            files.note(note)
        repaired_batches.append(Trajectories(groups))
    return repaired_batches


def batches(groups: Iterable[TrajectoryGroup]) -> list[Trajectories]:
    """Returns the groups in their order, those together whose names differ in numbers alone.

    Groups of other names (actions, and reference/position) hold other arrays of the same
    trajectories; but in a file that trajcli wrote every group is a trajectory.
    """
    members: dict[tuple[Any, ...], list[TrajectoryGroup]] = {}
    for group in groups:
        written = group.group and "trajcli_version" in group.file.attributes()
        key = "*" if written else numberless(group.group)
        members.setdefault((key, group.shape[2], *group.arrays), []).append(group)
    return list(map(Trajectories, members.values()))


def main_batch(candidates: Sequence[Trajectories]) -> Trajectories | None:
    """Returns the trajectories with the most arrays, the first of several; None where there are
    none."""
    return max(candidates, key=lambda batch: len(batch.first.arrays), default=None)


def whole_batch(candidates: Sequence[Trajectories]) -> tuple[Trajectories | None, list[str]]:
    """Returns the trajectories with the most arrays, in groups of any names, and other arrays.

    Raises InputError where trajectories would be left out: those that have other dofs, or in groups
    of the same names other arrays.
    """
    main = main_batch(candidates)
    if main is None:
        return None, []
    arrays = list(main.first.arrays)
    alike = [batch for batch in candidates if list(batch.first.arrays) == arrays]
    others = [batch for batch in candidates if batch not in alike]
    groups = [group for batch in alike for group in batch.groups]
    raise_if_any(dof_faults([main.first, *groups]))
    places = {(group.file.path, group.group) for group in groups}
    patterns = {numberless(group.group) for group in groups}
    for group in (group for batch in others for group in batch.groups):
        if (group.file.path, group.group) not in places and numberless(group.group) in patterns:
            raise InputError(
                "trajectories of different arrays",
                where=group.where,
                expected=", ".join(arrays),
                found=", ".join(group.arrays),
                hint="FILE:DATASET names an array that all have",
            )
    labels = [label(batch, next(iter(batch.first.arrays))) for batch in others]
    return (main if len(alike) == 1 else Trajectories(groups)), labels
