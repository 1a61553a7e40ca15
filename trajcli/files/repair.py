"""Recordings made fit to use: repeated stamps dropped, split at gaps, angles made continuous."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trajcli.arrays import describe, time_stamp_faults
from trajcli.errors import InputError, Note, raise_if_any
from trajcli.files.arrays import Dataset, in_memory
from trajcli.files.dofs import parse_dofs
from trajcli.files.quantities import QUANTITIES
from trajcli.files.reading import Repair
from trajcli.files.time import Time
from trajcli.files.trajectory_group import TrajectoryGroup


def repaired(
    recordings: Sequence[TrajectoryGroup], repair: Repair, least: int
) -> tuple[list[TrajectoryGroup], list[str]]:
    """Repairs recordings.

    Parameters:
        recordings: groups of recordings.
        repair: what is done to them.
        least: rows that a segment between gaps needs; shorter ones are left out.

    Returns:
        The repaired groups, which read the same files, and notes on what was done.

    Raises:
        InputError: if no segment is long enough, or stamps do not increase.
    """
    repair.refuse_gap()
    counts: Counter[str] = Counter()
    groups = list(recordings)
    if repair.max_gap is not None or repair.repeated_times == "drop":
        least = 1 if repair.max_gap is None else least
        groups = [part for group in groups for part in _split_at_gaps(group, repair, least, counts)]
    if repair.wrap_dofs is not None:
        groups = [_unwrapped(group, repair.wrap_dofs) for group in groups]
    return groups, list(_notes(counts, repair.max_gap, least))


def _split_at_gaps(
    group: TrajectoryGroup, repair: Repair, least: int, counts: Counter[str]
) -> Iterator[TrajectoryGroup]:
    """Yields the segments of the recordings of a group; equally spaced recordings stay whole."""
    time = group.time
    if time is None or time.stamps is None:
        longer = repair.max_gap and time and time.uniform and time.uniform > repair.max_gap
        counts["longer"] += bool(longer)
        yield group
        return
    batch, length, _ = group.shape
    stamps = np.atleast_2d(in_memory(time.stamps))
    if stamps.shape[1] != length or len(stamps) not in (1, batch):
        raise InputError(
            "wrong number of time stamps",
            where=time.where,
            expected=f"[{length}], one per row",
            found=describe(time.stamps.shape),
        )
    lengths = np.full(batch, length) if group.lengths is None else group.lengths
    # trajectories of one length that share their stamps share the rows between gaps
    if len(stamps) == 1 and not group.file.members:  # whose segments follow each other
        sharing = [np.flatnonzero(lengths == rows) for rows in dict.fromkeys(lengths.tolist())]
    else:
        sharing = [np.array([k]) for k in range(batch)]
    clock = time.clock
    for members in sharing:
        first = int(members[0])
        line = stamps[first if len(stamps) > 1 else 0, : lengths[first]]
        pieces = [
            rows
            for rows in _runs_between_gaps(line, time.where, repair, counts)
            if len(rows) >= least
        ]
        counts["segments"] += len(pieces)
        for number, rows in enumerate(pieces):
            segment_time = Time(
                time.source, time.where, stamps=line[rows][None], batch=len(members),
                count=len(rows), shape=(1, len(rows)), stamped=True, unit=time.unit,
                converted_from=time.converted_from,
                clock=clock and clock.select(members if clock.shape[0] > 1 else range(1), rows),
            )  # fmt: skip
            suffix = f"/segment_{number}" * (len(pieces) > 1)
            yield group.part(members, rows, suffix, segment_time)


def _runs_between_gaps(
    stamps: Any, where: str, repair: Repair, counts: Counter[str]
) -> Sequence[Any]:
    """Returns the numbers of the rows between gaps.

    Raises InputError for stamps that do not increase.
    """
    rows = np.arange(len(stamps))
    if repair.repeated_times == "drop":
        rows = np.flatnonzero(np.concatenate([[True], stamps[1:] != stamps[:-1]]))
        counts["dropped"] += len(stamps) - len(rows)
    raise_if_any(time_stamp_faults(stamps[rows], where, 0, rows))
    gaps = np.diff(stamps[rows].astype(np.float64)) > (repair.max_gap or math.inf)
    counts["gaps"] += int(gaps.sum())
    pieces = np.split(rows, np.flatnonzero(gaps) + 1)
    counts["pieces"] += len(pieces)
    return pieces


def _notes(counts: Counter[str], gap: float | None, least: int) -> Iterator[str]:
    short = counts["pieces"] - counts["segments"]
    if short and not counts["segments"]:
        raise InputError(
            f"no segment of {least} rows between gaps", where="--max-gap", hint="a larger --max-gap"
        )
    if counts["gaps"]:
        yield Note(f"split at gaps of more than {gap:g} s: {counts['pieces']} segments")
    if counts["longer"]:
        yield f"--max-gap {gap:g} is less than the equal steps of the rows, which are not split"
    if short:
        yield Note(f"segments of fewer than {least} rows left out: {short}")
    if counts["dropped"]:
        rows = "row" if counts["dropped"] == 1 else "rows"
        yield Note(f"{counts['dropped']} {rows} with repeated stamps dropped")


def _unwrapped(group: TrajectoryGroup, which: str) -> TrajectoryGroup:
    """Returns the group with wrapped angles in rad made continuous, as numpy.unwrap does."""
    dofs = parse_dofs(which, group.shape[2], "--wrap-dofs", group.joint_names or ()).numbers
    name = "position" if "position" in group.arrays else next(iter(group.arrays))
    if name in QUANTITIES[1:]:
        return group
    return group.changed(arrays={**group.arrays, name: _unwrapped_array(group.arrays[name], dofs)})


def _unwrapped_array(array: Dataset, dofs: Sequence[int]) -> Dataset:
    """Returns an array [B, T, D] in float64 whose angles are continuous.

    A value that is not finite stays, and the rows behind it continue from the last turn.
    """

    def read_rows(start: int, stop: int) -> Any:
        values = np.array(array.read_rows(start, stop), np.float64)
        for trajectory in values:
            for dof in dofs:
                # NaN would spread to all rows behind it
                finite = np.isfinite(trajectory[:, dof])
                trajectory[finite, dof] = np.unwrap(trajectory[finite, dof])
        return values

    return replace(array, dtype=np.dtype("f8"), reader=read_rows)
